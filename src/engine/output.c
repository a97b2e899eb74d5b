/*
 * output.c: files of the caller that appear under their name only when they are complete:
 * the library's own way of making files (base/file_write.h), for the public header.
 */
#include "base/file_write.h"
#include "memory/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#define MODE 0666 /* less what the process's umask takes away: it is the user's file */

struct brim_output {
    struct brim__new_file file;
    char path[PATH_MAX];
};

/* The file that is replaced: what a link leads to, not the link. */
static brim_status find_target(const char *path, char target[PATH_MAX]) {
    struct stat facts;
    if (lstat(path, &facts) != 0 || !S_ISLNK(facts.st_mode)) {
        return brim__copy_text(target, PATH_MAX, path)
                   ? BRIM_OK
                   : brim__fail(BRIM_INVALID, "%.256s...: the path is too long", path);
    }
    if (realpath(path, target) == NULL) {
        char why[BRIM__ERROR_TEXT];
        return brim__fail(BRIM_IO, "%s: is a link that leads nowhere: %s", path,
                          brim__error_text(errno, why));
    }
    return BRIM_OK;
}

brim_status brim_output_new(const char *path, brim_output **output) {
    if (path == NULL || path[0] == '\0' || output == NULL) {
        return brim__fail(BRIM_INVALID, "an output needs a path and a place for its handle");
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
    *output = made;
    return BRIM_OK;
}

int brim_output_file(const brim_output *output) {
    return output->file.fd;
}

brim_status brim_output_commit(brim_output *output) {
    const brim_status status = brim__new_file_commit(&output->file);
    brim__free(output);
    return status;
}

void brim_output_free(brim_output *output) {
    if (output != NULL) {
        brim__new_file_abandon(&output->file);
        brim__free(output);
    }
}
