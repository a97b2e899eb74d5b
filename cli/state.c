/*
 * state.c: reads and writes a state file.
 *
 * Writing is the library's (brim_output): a new file beside the old one takes its
 * place when it is on the disk.
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
    snprintf(failure->text, sizeof failure->text, "%s %s: %s", what, path, why);
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

brim_status state_check(const char *path, struct failure *failure) {
    static const char what[] = "--state: cannot write the state to";
    const size_t length = strlen(path);
    struct stat facts;
    char copy[PATH_MAX], why[128];
    if (length >= sizeof copy) {
        return fail(failure, BRIM_STATUS_INVALID, what, path, strerror(ENAMETOOLONG));
    }
    if ((stat(path, &facts) == 0 && S_ISDIR(facts.st_mode)) || path[length - 1] == '/') {
        return fail(failure, BRIM_STATUS_INVALID, what, path,
                    "it is a directory: give the name of a file");
    }
    if (stat(path, &facts) == 0 && !S_ISREG(facts.st_mode)) {
        return fail(failure, BRIM_STATUS_INVALID, what, path,
                    "it is not a regular file, and the state would replace it");
    }
    /* the directory, also for a file that is there: another is made and renamed */
    memcpy(copy, path, length + 1);
    if (access(dirname(copy), W_OK | X_OK) != 0) {
        snprintf(why, sizeof why, "its directory: %s", strerror(errno));
        return fail(failure, BRIM_STATUS_INVALID, what, path, why);
    }
    return BRIM_OK;
}

brim_status state_write(const char *path, const brim_state *state, struct failure *failure) {
    brim_output *output;
    brim_status status = brim_output_new(path, &output);
    if (status == BRIM_OK &&
        !write_all(brim_output_file(output), state->bytes, sizeof state->bytes)) {
        const int problem = errno;
        brim_output_free(output);
        return fail(failure, BRIM_STATUS_IO, "cannot write the state to", path, strerror(problem));
    }
    if (status == BRIM_OK) {
        status = brim_output_commit(output);
    }
    if (status != BRIM_OK) {
        *failure = (struct failure){ .status = status };
        snprintf(failure->text, sizeof failure->text, "cannot write the state: %s", brim_detail());
    }
    return status;
}

/* Regular files only: opening a pipe would wait until another process writes to it. */
static brim_status open_state(const char *path, int *fd, struct failure *failure) {
    struct stat facts;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*fd < 0 || fstat(*fd, &facts) != 0) {
        const int problem = errno;
        if (*fd >= 0) {
            close(*fd);
        }
        return fail(failure, BRIM_STATUS_IO, "cannot read the state in", path, strerror(problem));
    }
    if (!S_ISREG(facts.st_mode)) {
        close(*fd);
        return fail(failure, BRIM_STATUS_IO, "cannot read the state in", path,
                    S_ISDIR(facts.st_mode) ? "it is a directory: give the name of a file"
                                           : "it is not a regular file");
    }
    return BRIM_OK;
}

brim_status state_read(const char *path, brim_state *state, struct failure *failure) {
    unsigned char bytes[BRIM_STATE_BYTES + 1]; /* one more shows that it is longer */
    size_t got = 0;
    int fd;
    brim_status status = open_state(path, &fd, failure);
    if (status != BRIM_OK) {
        return status;
    }
    while (got < sizeof bytes) {
        const ssize_t count = read(fd, bytes + got, sizeof bytes - got);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            status =
                fail(failure, BRIM_STATUS_IO, "cannot read the state in", path, strerror(errno));
        }
        if (count <= 0) {
            break;
        }
        got += (size_t)count;
    }
    close(fd);
    if (status != BRIM_OK) {
        return status;
    }
    if (got != sizeof state->bytes) {
        char why[96];
        snprintf(why, sizeof why, "it is %s than the %zu bytes of a state",
                 got > sizeof state->bytes ? "longer" : "shorter", sizeof state->bytes);
        return fail(failure, BRIM_STATUS_CORRUPT, "there is no state in", path, why);
    }
    memcpy(state->bytes, bytes, sizeof state->bytes);
    return BRIM_OK;
}
