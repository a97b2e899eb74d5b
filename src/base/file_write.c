/*
 * file_write.c: makes files whole or not at all.
 *
 *     begin     remove what is left of processes that are gone;
 *               open "NAME.PID-N.tmp", which must not exist, and lock it
 *     write     by position
 *     commit    fsync, rename to NAME, close, fsync of the directory
 *
 * The process's number and a counter keep the temporary names of processes and
 * threads apart. A name that exists was left by a process that died with the
 * same number, or belongs to another machine on a shared disk: the next one is
 * tried.
 *
 * Leftovers: a temporary file is locked (flock) as long as it is written. A temporary file of this
 * user that is not locked, whose number no process here has and that has not been written to for an
 * hour was left by a process that is gone. The number alone is not enough, because the process may
 * run in another container or on another machine. Neither is the lock, because some network disks
 * keep locks on one machine only, and a file is made before it is locked.
 */
#include "base/file_write.h"
#include "base/fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STRETCH (2u << 20)

#define TRIES        1000  /* names before giving up */
#define LEFT_ENTRIES 10000 /* of a directory that are looked at for what is left */
#define LEFT_SECONDS 3600

static brim_status fail_at(const char *path, const char *what) {
    char why[BRIM__ERROR_TEXT];
    return brim__fail(BRIM_STATUS_IO, "%s: cannot be %s: %s", path, what,
                      brim__error_text(errno, why));
}

/* Every call that changes files asks first whether a test wants it to fail. */
static bool refused(int error) {
    if (brim__fault(BRIM__FAULT_WRITE)) {
        errno = error;
        return true;
    }
    return false;
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

/* ------------------------------------------------------------ what is left */

/* Reads a number without a sign and moves *text after it. false: there is none, or it does not
 * fit. */
static bool take_number(const char **text, long *number) {
    char *end;
    if (**text < '0' || **text > '9') {
        return false;
    }
    errno = 0;
    *number = strtol(*text, &end, 10);
    *text = end;
    return errno == 0;
}

/* Whether an entry is a temporary name of `base`, of a process that is not here. */
static bool is_left_name(const char *entry, const char *base) {
    const size_t length = strlen(base);
    long process, number;
    if (strncmp(entry, base, length) != 0 || entry[length] != '.') {
        return false;
    }
    entry += length + 1;
    if (!take_number(&entry, &process) || *entry++ != '-' || !take_number(&entry, &number) ||
        strcmp(entry, ".tmp") != 0 || process <= 0 || (pid_t)process != process) {
        return false;
    }
    return kill((pid_t)process, 0) != 0 && errno == ESRCH;
}

static bool is_left_file(const struct stat *facts) {
    return S_ISREG(facts->st_mode) && facts->st_nlink == 1 && facts->st_uid == geteuid() &&
           time(NULL) - facts->st_mtime > LEFT_SECONDS;
}

/* Removes the entry if it is not locked. Errors here are ignored: they do not concern the new
 * file. */
static void remove_left(int directory, const char *entry) {
    struct stat facts, now;
    const int fd =
        openat(directory, entry, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return;
    }
    if (fstat(fd, &facts) == 0 && is_left_file(&facts) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        fstatat(directory, entry, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_dev == facts.st_dev &&
        now.st_ino == facts.st_ino && is_left_file(&now)) {
        (void)unlinkat(directory, entry, 0);
    }
    close(fd);
}

static void remove_all_left(const char *path) {
    char name[PATH_MAX];
    const char *slash = strrchr(path, '/'), *base = slash != NULL ? slash + 1 : path;
    const struct dirent *entry;
    if (!directory_of(path, name)) {
        return;
    }
    DIR *directory = opendir(name);
    for (int i = 0; directory != NULL && i < LEFT_ENTRIES && (entry = readdir(directory)) != NULL;
         i++) {
        if (is_left_name(entry->d_name, base)) {
            remove_left(dirfd(directory), entry->d_name);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
}

/* ----------------------------------------------------------------- writing */

brim_status brim__new_file_begin(struct brim__new_file *file, const char *path) {
    return brim__new_file_begin_as(file, path, 0600);
}

brim_status brim__new_file_begin_as(struct brim__new_file *file, const char *path, unsigned mode) {
    static _Atomic unsigned counter;
    file->fd = -1;
    file->path = path;
    remove_all_left(path);
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
                                          O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
        if (file->fd >= 0) {
            (void)flock(file->fd, LOCK_EX | LOCK_NB); /* not every file system has locks */
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
        /* the disk starts to write now, so that commit waits for less */
        const uint64_t done = begin / STRETCH * STRETCH;
        (void)sync_file_range(file->fd, (off_t)done, (off_t)(offset - done), SYNC_FILE_RANGE_WRITE);
    }
    return BRIM_OK;
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
        return errno == EACCES; /* one that may be written to and not read cannot be synced */
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
        const brim_status status = fail_at(file->path, "renamed to its name");
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
