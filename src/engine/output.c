/*
 * output.c: files of the caller that appear under their name only when they are complete:
 * the library's own way of making files (base/file_write.h), for the public header.
 */
#include "base/file_write.h"
#include "base/platform.h"
#include "base/struct.h"
#include "memory/alloc.h"

#include <sys/stat.h>
#include <unistd.h>

#define MODE       0666 /* less what the process's umask takes away: it is the user's file */
#define MOST_LINKS 40   /* one after the other, as for the system */

struct brim_output {
    struct brim__new_file file;
    uint32_t process; /* that made it: a child of fork has no right to the file */
    char path[PATH_MAX];
};

/* Replaces the path of a link by what the link says. */
static bool follow(char path[PATH_MAX]) {
    char said[PATH_MAX];
    const ssize_t length = readlink(path, said, sizeof said);
    const char *slash = strrchr(path, '/');
    if (length <= 0 || (size_t)length >= sizeof said) {
        return false;
    }
    said[length] = '\0';
    const size_t kept = said[0] == '/' || slash == NULL ? 0 : (size_t)(slash - path) + 1;
    return brim__copy_text(path + kept, PATH_MAX - kept, said);
}

/* The file that is replaced: what a link leads to, not the link. A link that another user could
 * have planted is not followed: it could lead to any file of this user's. */
static brim_status find_target(const char *path, char target[PATH_MAX]) {
    struct stat facts;
    if (!brim__copy_text(target, PATH_MAX, path)) {
        return brim__fail(BRIM_STATUS_INVALID, "%.256s...: the path is too long", path);
    }
    int links = 0;
    while (lstat(target, &facts) == 0 && S_ISLNK(facts.st_mode)) {
        if (facts.st_uid != geteuid() && facts.st_uid != 0) {
            return brim__fail(BRIM_STATUS_IO,
                              "%s: is a link of another user (number %u), which is not "
                              "followed: remove it, or give the name of the file",
                              target, (unsigned)facts.st_uid);
        }
        if (++links > MOST_LINKS || !follow(target)) {
            return brim__fail(BRIM_STATUS_IO, "%s: is a link that leads nowhere", path);
        }
    }
    if (links > 0 && stat(target, &facts) != 0) {
        return brim__fail(BRIM_STATUS_IO, "%s: is a link that leads nowhere", path);
    }
    return BRIM_OK;
}

brim_status brim_output_new(const char *path, brim_output **output) {
    if (output == NULL) {
        return brim__fail_null("output");
    }
    *output = NULL;
    if (path == NULL || path[0] == '\0') {
        return brim__fail(BRIM_STATUS_INVALID, "an output needs a path");
    }
    brim_status status;
    brim_output *made = brim__alloc(NULL, sizeof *made, &status);
    if (made == NULL) {
        return status;
    }
    status = find_target(path, made->path);
    if (status == BRIM_OK) {
        status = brim__new_file_begin_as(&made->file, made->path, MODE);
    }
    if (status != BRIM_OK) {
        brim__free(made);
        return status;
    }
    made->process = brim__process();
    *output = made;
    return BRIM_OK;
}

int brim_output_file(const brim_output *output) {
    return output != NULL ? output->file.fd : -1;
}

brim_status brim_output_commit(brim_output *output) {
    if (output == NULL) {
        return brim__fail_null("output");
    }
    if (output->process != brim__process()) {
        brim_output_free(output);
        return brim__fail(BRIM_STATUS_FORKED,
                          "the output belongs to the process that made it: commit it there");
    }
    const brim_status status = brim__new_file_commit(&output->file);
    brim__free(output);
    return status;
}

void brim_output_free(brim_output *output) {
    if (output != NULL) {
        if (output->process == brim__process()) {
            brim__new_file_abandon(&output->file);
        } else {
            close(output->file.fd); /* the file is the parent's */
        }
        brim__free(output);
    }
}
