/*
 * state.c: reads and writes a state file.
 *
 * Writing goes to a new file beside the old one, which is synced and renamed
 * over it; the directory is synced last, so that the new name survives a crash.
 */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static brim_status fail(struct failure *failure, brim_status status, const char *what,
                        const char *path, const char *why) {
    *failure = (struct failure){ .status = status };
    snprintf(failure->text, sizeof(failure->text), "%s %s: %s", what, path, why);
    return status;
}

static bool write_all(int fd, const unsigned char *bytes, size_t count) {
    while (count > 0) {
        const ssize_t wrote = write(fd, bytes, count);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            return false;
        }
        bytes += wrote;
        count -= (size_t)wrote;
    }
    return true;
}

/* Not every file system syncs directories; the state is in place without it. */
static void sync_folder_of(const char *path) {
    char copy[PATH_MAX];
    snprintf(copy, sizeof(copy), "%s", path);
    const int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

brim_status state_check(const char *path, struct failure *failure) {
    static const char what[] = "--state: cannot write the state to";
    const size_t length = strlen(path);
    struct stat facts;
    char copy[PATH_MAX], why[128];
    if (length >= sizeof(copy)) {
        return fail(failure, BRIM_INVALID, what, path, strerror(ENAMETOOLONG));
    }
    if ((stat(path, &facts) == 0 && S_ISDIR(facts.st_mode)) || path[length - 1] == '/') {
        return fail(failure, BRIM_INVALID, what, path, "it is a folder: give the name of a file");
    }
    /* the folder, also for a file that is there: another is made and renamed */
    memcpy(copy, path, length + 1);
    if (access(dirname(copy), W_OK | X_OK) != 0) {
        snprintf(why, sizeof(why), "its folder: %s", strerror(errno));
        return fail(failure, BRIM_INVALID, what, path, why);
    }
    return BRIM_OK;
}

brim_status state_write(const char *path, const brim_state *state, struct failure *failure) {
    char temporary[PATH_MAX];
    const int length = snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof(temporary)) {
        return fail(failure, BRIM_IO, "cannot write the state to", path, strerror(ENAMETOOLONG));
    }
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return fail(failure, BRIM_IO, "cannot write the state to", path, strerror(errno));
    }
    bool good = write_all(fd, state->bytes, sizeof(state->bytes)) && fsync(fd) == 0;
    int problem = errno;
    if (close(fd) != 0 && good) {
        good = false;
        problem = errno;
    }
    if (good && rename(temporary, path) != 0) {
        good = false;
        problem = errno;
    }
    if (!good) {
        unlink(temporary);
        return fail(failure, BRIM_IO, "cannot write the state to", path, strerror(problem));
    }
    sync_folder_of(path);
    return BRIM_OK;
}

brim_status state_read(const char *path, brim_state *state, struct failure *failure) {
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        return fail(failure, BRIM_IO, "cannot read the state in", path, strerror(errno));
    }
    const size_t got = fread(state->bytes, 1, sizeof(state->bytes), file);
    const bool broken = ferror(file) != 0;
    const int problem = errno;
    const bool longer = !broken && fgetc(file) != EOF;
    fclose(file);
    if (broken) {
        return fail(failure, BRIM_IO, "cannot read the state in", path, strerror(problem));
    }
    if (got != sizeof(state->bytes) || longer) {
        char why[96];
        snprintf(why, sizeof(why), "it is %s than the %zu bytes of a state",
                 longer ? "longer" : "shorter", sizeof(state->bytes));
        return fail(failure, BRIM_CORRUPT, "no state is in", path, why);
    }
    return BRIM_OK;
}
