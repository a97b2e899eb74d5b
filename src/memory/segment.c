/*
 * segment.c: making, opening and deleting the memory that processes share.
 *
 * Lifetime. A process that opens a name makes the file if there is none, checks its owner, and then
 * locks it (flock): a file of another user is neither locked nor made larger. With that lock held,
 * no other process makes, joins or leaves: so a file without its magic was left by a process that
 * was killed while making it, and is made again. The last process that leaves deletes the name: no
 * file is left if processes end normally. A process that waited for the lock of a file that was
 * deleted meanwhile finds it without a name, and begins again. A file that killed processes have
 * left is taken over by the next process, as if it were new.
 *
 * The pages are allocated when the file is made: a page that was missing later would be a SIGBUS.
 * The file's descriptor is kept no longer than its lock. The lock is released with an explicit
 * call, because a forked child may have a copy of the descriptor.
 *
 * A process that is stopped while it has the lock keeps the others from it: they fail after some
 * seconds, with an error that says so.
 */
#include "memory/segment.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC  UINT64_C(0x0a64657261687362) /* "bshared\n" */
#define FORMAT 2
/* The layout of a lock differs between C libraries. */
#ifdef __GLIBC__
#define LIBRARY 1
#else
#define LIBRARY 2
#endif

#define JOIN_NS  UINT64_C(10000000000)
#define LEAVE_NS UINT64_C(1000000000)

const char *brim__segment_path(const char *name, char text[BRIM__SEGMENT_PATH]) {
    snprintf(text, BRIM__SEGMENT_PATH, "/dev/shm/brim-%u-%s", (unsigned)geteuid(), name);
    return text;
}

static brim_status check_name(const char *name) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const size_t length = strnlen(name, BRIM__SHARED_NAME_BYTES);
    if (length == 0 || length >= BRIM__SHARED_NAME_BYTES || strspn(name, allowed) != length) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "the name of a shared budget is 1 to %d letters, digits, '-', '_' and "
                          "'.', not \"%.80s\"",
                          BRIM__SHARED_NAME_BYTES - 1, name);
    }
    return BRIM_OK;
}

static brim_status refuse(const char *name, const char *what, int error) {
    char path[BRIM__SEGMENT_PATH];
    char why[BRIM__ERROR_TEXT];
    const bool shortage = error == EMFILE || error == ENFILE || error == ENOMEM;
    return brim__fail(shortage ? BRIM_STATUS_MEMORY : BRIM_STATUS_IO,
                      "shared budget \"%s\": %s %s: %s%s", name, brim__segment_path(name, path),
                      what, brim__error_text(error, why),
                      error == ENOENT || error == EACCES || error == ENOSYS || error == EROFS
                          ? "; budgets are shared through /dev/shm, where this user must be able "
                            "to make files"
                          : "");
}

static brim_status damaged(const char *name, const char *what) {
    char path[BRIM__SEGMENT_PATH];
    return brim__fail(BRIM_STATUS_CORRUPT,
                      "shared budget \"%s\": %s %s; when no process uses it any more, delete it, "
                      "or use another name",
                      name, brim__segment_path(name, path), what);
}

/* As shm_open does, which older C libraries have in a library of its own. */
static int open_once(const char *name, int flags) {
    char path[BRIM__SEGMENT_PATH];
    if (brim__fault(BRIM__FAULT_OPEN)) {
        errno = EACCES;
        return -1;
    }
    return open(brim__segment_path(name, path),
                O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | flags, S_IRUSR | S_IWUSR);
}

static bool look_once(int file, struct stat *facts) {
    if (brim__fault(BRIM__FAULT_OPEN)) {
        errno = EIO;
        return false;
    }
    return fstat(file, facts) == 0;
}

/* Waits by looking again and again: there is no flock with a deadline. */
static bool lock(int file, uint64_t wait_ns) {
    const uint64_t deadline = brim__now() + wait_ns;
    const struct timespec pause = { .tv_nsec = 1000000 };
    while (flock(file, LOCK_EX | LOCK_NB) != 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || brim__now() >= deadline) {
            return false;
        }
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

void brim__segment_unlock(int file) {
    if (file >= 0) {
        (void)flock(file, LOCK_UN);
        close(file);
    }
}

uint64_t brim__segment_inode(int file) {
    struct stat facts;
    return fstat(file, &facts) == 0 ? (uint64_t)facts.st_ino : 0;
}

void brim__segment_remove(const char *name) {
    char path[BRIM__SEGMENT_PATH];
    (void)unlink(brim__segment_path(name, path));
}

void brim__segment_unmap(struct brim__shared_segment *segment) {
    brim__file_unmap_shared(segment, sizeof *segment);
}

/* Called before locking: a file of another user is not even locked. */
static brim_status check_owner(const char *name, const struct stat *facts) {
    if (!S_ISREG(facts->st_mode) || facts->st_uid != geteuid()) {
        return damaged(name, "is not a file of this user");
    }
    if ((facts->st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return damaged(name, "is open to other users");
    }
    return BRIM_OK;
}

/* Reads the facts of the open file and checks its owner; closes it on failure. */
static brim_status look(const char *name, int file, struct stat *facts) {
    brim_status status = look_once(file, facts) ? check_owner(name, facts)
                                                : refuse(name, "cannot be examined", errno);
    if (status != BRIM_OK) {
        brim__segment_unlock(file);
    }
    return status;
}

/* Opens the name's file, locks it and reads its facts. They are read before it is locked, because
 * it may be another user's, and again after, because its size may have changed. */
static brim_status open_locked(const char *name, int *file, struct stat *facts) {
    for (;;) {
        *file = open_once(name, O_CREAT);
        if (*file < 0) {
            return refuse(name, "cannot be opened", errno);
        }
        brim_status status = look(name, *file, facts);
        if (status != BRIM_OK) {
            return status;
        }
        if (!lock(*file, JOIN_NS)) {
            close(*file);
            return brim__fail(
                BRIM_STATUS_IO,
                "shared budget \"%s\": another process has been opening or closing it "
                "for %u s; if it was stopped, continue or end it",
                name, (unsigned)(JOIN_NS / 1000000000));
        }
        status = look(name, *file, facts);
        if (status != BRIM_OK || facts->st_nlink > 0) {
            return status;
        }
        brim__segment_unlock(*file); /* the last process that used it has just deleted it */
    }
}

/* Allocates a new file's length and pages. */
static brim_status fill(const char *name, int file) {
    int error = 0;
    do {
        error = brim__fault(BRIM__FAULT_WRITE)                                    ? ENOSPC
                : fallocate(file, 0, 0, sizeof(struct brim__shared_segment)) == 0 ? 0
                                                                                  : errno;
    } while (error == EINTR);
    return error == 0 ? BRIM_OK : refuse(name, "cannot be made", error);
}

static brim_status init(const char *name, struct brim__shared_segment *segment) {
    pthread_mutexattr_t attributes;
    char why[BRIM__ERROR_TEXT];
    memset(segment, 0, sizeof *segment);
    int error = pthread_mutexattr_init(&attributes);
    if (error == 0) {
        error = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        if (error == 0) {
            error = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        }
        if (error == 0) {
            error = pthread_mutex_init(&segment->lock, &attributes);
        }
        pthread_mutexattr_destroy(&attributes);
    }
    if (error != 0) {
        return brim__fail(BRIM_STATUS_MEMORY,
                          "shared budget \"%s\": its lock could not be made: %s", name,
                          brim__error_text(error, why));
    }
    segment->format = FORMAT << 8 | LIBRARY;
    segment->mutex_bytes = sizeof segment->lock;
    segment->kinds = BRIM_MEMORY_KINDS;
    segment->entries = BRIM__SHARED_ENTRIES;
    atomic_store_explicit(&segment->magic, MAGIC, memory_order_release);
    return BRIM_OK;
}

static brim_status check(const char *name, const struct brim__shared_segment *segment) {
    if (atomic_load_explicit(&segment->magic, memory_order_acquire) != MAGIC) {
        return damaged(name, "is not a shared budget of brim, or was damaged");
    }
    if (segment->format != (FORMAT << 8 | LIBRARY) ||
        segment->mutex_bytes != sizeof segment->lock || segment->kinds != BRIM_MEMORY_KINDS ||
        segment->entries != BRIM__SHARED_ENTRIES) {
        return damaged(name, "is of another version of brim, or for another C library");
    }
    return BRIM_OK;
}

/* Anything else than a segment is left alone. */
static brim_status check_size(const char *name, const struct stat *facts) {
    char what[96];
    if (facts->st_size == 0 || facts->st_size == sizeof(struct brim__shared_segment)) {
        return BRIM_OK;
    }
    snprintf(what, sizeof what,
             "has %lld bytes, not %zu: it is of another version of brim, or "
             "was damaged",
             (long long)facts->st_size, sizeof(struct brim__shared_segment));
    return damaged(name, what);
}

static brim_status map(const char *name, int file, const struct stat *facts,
                       struct brim__shared_segment **segment) {
    const bool is_new = facts->st_size == 0;
    brim_status status = check_size(name, facts);
    if (status == BRIM_OK && is_new) {
        status = fill(name, file);
    }
    if (status != BRIM_OK) {
        goto failed;
    }
    *segment = brim__file_map_shared(file, sizeof **segment);
    if (*segment == NULL) {
        status = refuse(name, "cannot be mapped", errno);
        goto failed;
    }
    status = atomic_load_explicit(&(*segment)->magic, memory_order_acquire) == 0
                 ? init(name, *segment)
                 : check(name, *segment);
    if (status == BRIM_OK) {
        return BRIM_OK;
    }
    brim__segment_unmap(*segment);
failed:
    if (is_new) {
        brim__segment_remove(name);
    }
    return status;
}

brim_status brim__segment_open(const char *name, struct brim__shared_segment **segment, int *file) {
    struct stat facts;
    brim_status status = check_name(name);
    if (status == BRIM_OK) {
        status = open_locked(name, file, &facts);
    }
    if (status != BRIM_OK) {
        return status;
    }
    status = map(name, *file, &facts, segment);
    if (status != BRIM_OK) {
        brim__segment_unlock(*file);
    }
    return status;
}

int brim__segment_relock(const char *name, uint64_t inode) {
    struct stat facts;
    const int file = open_once(name, 0);
    if (file < 0) {
        return -1;
    }
    if (look_once(file, &facts) && (uint64_t)facts.st_ino == inode && lock(file, LEAVE_NS) &&
        look_once(file, &facts) && facts.st_nlink > 0) {
        return file;
    }
    brim__segment_unlock(file);
    return -1;
}
