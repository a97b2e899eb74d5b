/*
 * file_write.c: makes files whole or not at all.
 *
 *     begin     open "NAME.PID-N.tmp", which must not exist
 *     write     by position
 *     commit    fsync, close, rename to NAME, fsync of the directory
 *
 * The process's number and a counter keep the temporary names of processes and
 * threads apart. A name that exists was left by a process that died with the
 * same number, or belongs to another machine on a shared disk: the next one is
 * tried.
 */
#include "base/file_write.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define STRETCH (2u << 20)

#define TRIES 1000 /* names before giving up */

static brim_status fail_at(const char *path, const char *what) {
    char why[BRIM__ERROR_TEXT];
    return brim__fail(BRIM_IO, "%s: cannot be %s: %s", path, what, brim__error_text(errno, why));
}

/* Each door to the system asks first whether a test wants it shut. */
static bool refused(int error) {
    if (brim__fault(BRIM__FAULT_WRITE)) {
        errno = error;
        return true;
    }
    return false;
}

brim_status brim__new_file_begin(struct brim__new_file *file, const char *path) {
    static _Atomic unsigned counter;
    file->fd = -1;
    file->path = path;
    for (int i = 0; i < TRIES; i++) {
        const int length =
            snprintf(file->temporary, sizeof file->temporary, "%s.%ld-%u.tmp", path, (long)getpid(),
                     atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed));
        if (length < 0 || (size_t)length >= sizeof file->temporary) {
            errno = ENAMETOOLONG;
            break;
        }
        file->fd = refused(EACCES) ? -1
                                   : open(file->temporary,
                                          O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (file->fd >= 0) {
            return BRIM_OK;
        }
        if (errno != EEXIST && errno != EINTR) {
            break;
        }
    }
    return fail_at(path, "made");
}

brim_status brim__new_file_write(struct brim__new_file *file, uint64_t offset, const void *bytes,
                                 size_t count) {
    const uint8_t *from = bytes;
    const uint64_t begin = offset;
    while (count > 0) {
        const ssize_t done = refused(ENOSPC) ? -1 : pwrite(file->fd, from, count, (off_t)offset);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            errno = done == 0 ? EIO : errno;
            return fail_at(file->path, "written");
        }
        from += done;
        offset += (uint64_t)done;
        count -= (size_t)done;
    }
    if (begin / STRETCH != offset / STRETCH) {
        /* the disk begins now, so that commit need not wait for all of it */
        const uint64_t done = begin / STRETCH * STRETCH;
        (void)sync_file_range(file->fd, (off_t)done, (off_t)(offset - done), SYNC_FILE_RANGE_WRITE);
    }
    return BRIM_OK;
}

/* Copies the directory part of a path; "." if there is none. */
static bool directory_of(const char *path, char directory[PATH_MAX]) {
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        return brim__copy_text(directory, PATH_MAX, ".");
    }
    const size_t length = slash == path ? 1 : (size_t)(slash - path);
    if (length >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(directory, path, length);
    directory[length] = '\0';
    return true;
}

/* So that the new name survives a loss of power. Some file systems cannot sync
 * a directory (EINVAL), and keep names in order by themselves. */
static bool sync_directory(const char *path) {
    char directory[PATH_MAX];
    if (!directory_of(path, directory) || refused(EIO)) {
        return false;
    }
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    const int error = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
    close(fd);
    errno = error;
    return error == 0;
}

brim_status brim__new_file_commit(struct brim__new_file *file) {
    if (refused(EIO) || fsync(file->fd) != 0) {
        const brim_status status = fail_at(file->path, "written to the disk");
        brim__new_file_abandon(file);
        return status;
    }
    if (refused(EACCES) || rename(file->temporary, file->path) != 0) {
        const brim_status status = fail_at(file->path, "put in its place");
        brim__new_file_abandon(file);
        return status;
    }
    close(file->fd);
    file->fd = -1;
    return sync_directory(file->path) ? BRIM_OK : fail_at(file->path, "entered on the disk");
}

void brim__new_file_abandon(struct brim__new_file *file) {
    if (file->fd >= 0) {
        (void)unlink(file->temporary);
        close(file->fd);
        file->fd = -1;
    }
}

brim_status brim__make_directory_of(const char *path) {
    char directory[PATH_MAX];
    if (!directory_of(path, directory)) {
        return fail_at(path, "made");
    }
    for (char *end = directory + 1;; end++) {
        const char here = *end;
        if (here != '/' && here != '\0') {
            continue;
        }
        *end = '\0';
        struct stat facts;
        if (stat(directory, &facts) != 0 &&
            (refused(EACCES) || (mkdir(directory, 0700) != 0 && errno != EEXIST))) {
            return fail_at(directory, "made");
        }
        if (here == '\0') {
            return BRIM_OK;
        }
        *end = here;
    }
}
