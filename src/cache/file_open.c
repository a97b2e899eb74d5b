/*
 * file_open.c: opens or makes a cache file that this process may read, and perhaps fill.
 *
 * Many processes may use one file; the process that holds the lock (flock) of the file itself fills
 * it. The others read, and check every second or so whether the lock is free, because its holder
 * ended or was killed. A file that is missing, stale or damaged is replaced:
 *
 *     what has the name    missing: an empty file is made, which gets the name or fails
 *     its lock             not free: another process does this now, or fills it
 *     still the name?      else a process replaced it in between: begin again
 *     new file             header, sparse table; locked; renamed over the old one
 *
 * So only the holder of its lock renames over a file, and if many processes begin at once without a
 * file, one makes it and the others read it. A reader of a file that is replaced keeps the old file
 * open.
 *
 * The lock belongs to the open file, which a child inherits after a fork: it is released explicitly
 * at the end. If the process is killed, its children may hold it longer, and no process fills the
 * file until they end; the descriptor does not survive an exec.
 */
#include "base/fault.h"
#include "base/file.h"
#include "base/file_write.h"
#include "cache/file_tier.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define RETRY_NS   UINT64_C(1000000000)
#define COUNT_NS   UINT64_C(100000000)
#define TRIES      100 /* at a path that other processes use at the same time */
#define PAUSE_NS   10000000
#define PATH_SHOWN 110 /* bytes of a path in a warning, its end */

/* ----------------------------------------------------------------- warnings */

/* "cache PATH: ..." */
__attribute__((format(printf, 2, 3))) static void say(struct brim__file_tier *tier,
                                                      const char *format, ...) {
    const size_t length = strlen(tier->path);
    const bool cut = length > PATH_SHOWN;
    va_list arguments;
    va_start(arguments, format);
    brim__lock(&tier->lock);
    const int begin =
        snprintf(tier->warning, sizeof tier->warning, "cache %s%.*s: ", cut ? "..." : "",
                 PATH_SHOWN, tier->path + (cut ? length - PATH_SHOWN : 0));
    vsnprintf(tier->warning + begin, sizeof tier->warning - (size_t)begin, format, arguments);
    brim__unlock(&tier->lock);
    va_end(arguments);
}

/* Sets the warning from the thread's last failure, whose text may begin with the path. */
static void say_detail(struct brim__file_tier *tier) {
    const char *why = brim_detail();
    const size_t length = strlen(tier->path);
    const bool repeats = strncmp(why, tier->path, length) == 0 && why[length] == ':';
    say(tier, "%s: nothing is kept", repeats ? why + length + 2 : why);
}

/* Turns filling off for good. The warning must be set before, so that no caller sees it turned off
 * without a reason. */
static void give_up(struct brim__file_tier *tier) {
    atomic_store(&tier->writes, false);
    atomic_store(&tier->retry_ns, UINT64_MAX);
}

void brim__file_tier_off(struct brim__file_tier *tier, int error) {
    char why[BRIM__ERROR_TEXT];
    say(tier, "%s: nothing more is kept", brim__error_text(error, why));
    give_up(tier);
}

/* ------------------------------------------------------------------ opening */

enum outcome { DONE, AGAIN, WAIT };

static void count_filled(struct brim__file_tier *tier, int fd) {
    atomic_store(&tier->counted_ns, brim__now());
    struct brim__cache_walk walk;
    struct brim__cache_entry entry;
    uint64_t number, filled = 0;
    brim__cache_walk_begin(&walk, fd, tier->start.count);
    while (brim__cache_walk_next(&walk, &number, &entry)) {
        filled++;
    }
    atomic_store(&tier->filled, filled);
}

/* The filling process has the count; others count the entries in the table. */
void brim__file_tier_count(struct brim__file_tier *tier) {
    const int fd = atomic_load(&tier->fd);
    if (fd >= 0 && !atomic_load(&tier->writes) &&
        brim__now() - atomic_load(&tier->counted_ns) >= COUNT_NS) {
        count_filled(tier, fd);
    }
}

void brim__file_tier_look(struct brim__file_tier *tier) {
    const int fd = atomic_load(&tier->fd);
    struct stat opened;
    if (fd >= 0 && atomic_load(&tier->writes) && brim__cache_stat(fd, &opened) == 0 &&
        opened.st_nlink == 0) {
        say(tier, "was deleted: its entries are lost when this loader closes");
    }
}

/* Starts filling after all bytes that any process may have written. An entry that remained after a
 * crash may point to such bytes, so they are not used again. */
static void fill_from_end(struct brim__file_tier *tier, int fd) {
    struct stat facts;
    const int error = brim__cache_stat(fd, &facts);
    if (error != 0) {
        brim__file_tier_off(tier, error);
        return;
    }
    brim__lock(&tier->lock);
    tier->writer.heap_end =
        brim__align(brim__max(tier->heap, (uint64_t)facts.st_size), BRIM__TIER_ALIGNMENT);
    atomic_store(&tier->known_end, tier->writer.heap_end);
    tier->warning[0] = '\0';
    brim__unlock(&tier->lock);
    atomic_store(&tier->retry_ns, UINT64_MAX);
    atomic_store(&tier->writes, true);
}

/* The file can be used and has this key: all may use it from now on. */
static void publish(struct brim__file_tier *tier, int fd) {
    struct stat facts;
    (void)futimens(fd, NULL); /* the time of the last use; skipped without the right to set it */
    count_filled(tier, fd);
    atomic_store(&tier->known_end,
                 brim__cache_stat(fd, &facts) == 0 ? (uint64_t)facts.st_size : tier->heap);
    atomic_store(&tier->fd, fd);
}

static int set_length(int fd, uint64_t bytes) {
    if (brim__fault(BRIM__FAULT_WRITE)) {
        return ENOSPC;
    }
    return ftruncate(fd, (off_t)bytes) == 0 ? 0 : errno;
}

/* Fills the new file, which is locked before it gets its name. A second descriptor is kept, because
 * renaming closes the first. They share the lock. */
static int fill_new(struct brim__file_tier *tier, struct brim__new_file *file,
                    const struct brim__cache_header *header) {
    if (brim__new_file_write(file, 0, header, sizeof *header) != BRIM_OK) {
        return -1;
    }
    const int error = set_length(file->fd, tier->heap);
    if (error != 0) {
        char why[BRIM__ERROR_TEXT];
        brim__fail(BRIM_STATUS_IO, "%s: cannot be written: %s", tier->path,
                   brim__error_text(error, why));
        return -1;
    }
    const int fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0 || brim__cache_lock(fd) != 0 || brim__new_file_commit(file) != BRIM_OK) {
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}

/* Replaces the file, whose lock is held, by a new one. */
static void replace(struct brim__file_tier *tier, const struct brim__cache_header *header) {
    struct brim__new_file file;
    char size[BRIM__SIZE_TEXT];
    if (tier->heap > tier->limit) {
        say(tier,
            "its table of %llu samples takes %s, more than its limit: nothing is kept; give a "
            "larger limit=",
            (unsigned long long)header->count, brim__size_text(tier->heap, size));
        give_up(tier);
        return;
    }
    brim__fail(BRIM_STATUS_IO, "%s: cannot be made", tier->path);
    int fd = -1;
    if (brim__new_file_begin(&file, tier->path) == BRIM_OK) {
        fd = fill_new(tier, &file, header);
        brim__new_file_abandon(&file);
    }
    if (fd < 0) {
        say_detail(tier);
        give_up(tier);
        return;
    }
    publish(tier, fd);
    fill_from_end(tier, fd);
}

/* The holder of the lock of the file with the name may fill it; the others read. Takes over the
 * descriptor. */
static enum outcome use(struct brim__file_tier *tier, int fd) {
    char why[BRIM__ERROR_TEXT];
    const int error = brim__cache_lock(fd);
    if (error == 0 && !brim__cache_is_at(tier->path, fd)) {
        close(fd);
        return AGAIN;
    }
    publish(tier, fd);
    if (error == 0) {
        fill_from_end(tier, fd);
    } else if (error == EWOULDBLOCK) {
        atomic_store(&tier->retry_ns, brim__now() + RETRY_NS);
        say(tier, "another loader or process is filling it: this one only reads");
    } else {
        say(tier, "it cannot be locked (%s): it is only read", brim__error_text(error, why));
        give_up(tier);
    }
    return DONE;
}

/* Sets the note: why the file at the path cannot be used. there: its header; NULL if it is not
 * usable at all. */
static void note_why(struct brim__file_tier *tier, const struct brim__cache_header *there,
                     const struct brim__cache_header *wanted) {
    char text[BRIM__TIER_WARNING];
    if (there == NULL) {
        snprintf(text, sizeof text, "it was damaged, or of another format");
    } else if (there->data != wanted->data || there->sample != wanted->sample) {
        snprintf(text, sizeof text, "it was of other data or stages: %.140s", there->pipeline);
    } else if (there->verify != wanted->verify) {
        snprintf(text, sizeof text, "it was made with another verify=");
    } else {
        snprintf(text, sizeof text, "a file of the data has changed since");
    }
    brim__lock(&tier->lock);
    snprintf(tier->note, sizeof tier->note, "reset: %.240s", text);
    brim__unlock(&tier->lock);
}

/* Whether other users could have put samples into the file. Then it is not used, and if it belongs
 * to another user, it is not changed. An empty file of this user is trusted, because it has no
 * data. */
static enum brim__trust trust(const struct brim__file_tier *tier, const struct stat *facts) {
    const enum brim__trust found = brim__trust_of(facts->st_uid, facts->st_mode);
    return tier->start.trust_foreign || (found == BRIM__EXPOSED && facts->st_size == 0)
               ? BRIM__TRUSTED
               : found;
}

static void note_exposed(struct brim__file_tier *tier, const struct stat *facts) {
    brim__lock(&tier->lock);
    snprintf(tier->note, sizeof tier->note,
             "reset: other users could write it (mode %04o; trust_foreign, --trust-foreign: use "
             "such files)",
             (unsigned)facts->st_mode & 07777);
    brim__unlock(&tier->lock);
}

/* Replaces a file that is stale, damaged, or empty. Closes the descriptor. */
static enum outcome begin_anew(struct brim__file_tier *tier, int fd, bool empty, bool made,
                               const struct brim__cache_header *header) {
    char why[BRIM__ERROR_TEXT];
    const int error = brim__cache_lock(fd);
    enum outcome outcome = DONE;
    if (error == EWOULDBLOCK && empty) {
        outcome = WAIT; /* another process is making it */
    } else if (error == EWOULDBLOCK) {
        atomic_store(&tier->retry_ns, brim__now() + RETRY_NS);
        say(tier,
            "is of another pipeline or of other data, or could be written by other users, and "
            "another loader or process is filling it: nothing is kept; give another path");
    } else if (error != 0) {
        say(tier, "it cannot be locked (%s): nothing is kept", brim__error_text(error, why));
        give_up(tier);
    } else if (!brim__cache_is_at(tier->path, fd)) {
        outcome = AGAIN;
    } else {
        replace(tier, header);
        if (made && brim__cache_is_at(tier->path, fd)) {
            (void)unlink(tier->path); /* it failed; no other process may have put another there */
        }
    }
    close(fd);
    return outcome;
}

#define NO_DIRECTORY (-1) /* no errno: the thread's detail says why */

/* Opens the file at the path, or makes it. */
static int open_or_make(struct brim__file_tier *tier, int *fd, bool *made, int *read_only) {
    *made = false;
    *read_only = 0;
    int error = brim__cache_open(tier->path, O_RDWR, fd);
    if (error == EACCES || error == EROFS || error == EPERM) {
        *read_only = error;
        error = brim__cache_open(tier->path, O_RDONLY, fd);
    } else if (error == ENOENT) {
        if (brim__make_directory_of(tier->path) != BRIM_OK) {
            return NO_DIRECTORY;
        }
        error = brim__cache_open(tier->path, O_RDWR | O_CREAT | O_EXCL, fd);
        *made = error == 0;
    }
    return error;
}

/* Tries once to get a file of this key. */
static enum outcome try_to_open(struct brim__file_tier *tier) {
    struct brim__cache_header wanted, there;
    struct stat facts;
    enum brim__cache_kind kind;
    char why[BRIM__ERROR_TEXT];
    int fd, read_only;
    bool made;
    int error = open_or_make(tier, &fd, &made, &read_only);
    if (error == EEXIST) {
        return AGAIN; /* another process was faster */
    }
    if (error == 0) {
        error = brim__cache_examine(fd, &facts, &there, &kind);
    }
    if (error != 0) {
        if (error == NO_DIRECTORY) {
            say_detail(tier);
        } else {
            say(tier, "%s: nothing is kept", brim__error_text(error, why));
        }
        give_up(tier);
        if (fd >= 0) {
            close(fd);
        }
        return DONE;
    }
    brim__cache_header_init(&wanted, &tier->start);
    const enum brim__trust whose = trust(tier, &facts);
    const bool ours = kind == BRIM__CACHE_USABLE && brim__cache_same_key(&wanted, &there) &&
                      whose == BRIM__TRUSTED;
    if (kind == BRIM__CACHE_STRANGER) {
        say(tier, "is not a cache file, so it is not changed: nothing is kept; give another path");
        give_up(tier);
    } else if (whose == BRIM__FOREIGN) {
        say(tier,
            "belongs to another user (number %u), so it is not changed: nothing is kept; give "
            "another path, or trust such files (trust_foreign, --trust-foreign)",
            (unsigned)facts.st_uid);
        give_up(tier);
    } else if (read_only != 0 && whose == BRIM__EXPOSED) {
        say(tier, "other users could write it (mode %04o), and it cannot be replaced: %s",
            (unsigned)facts.st_mode & 07777, brim__error_text(read_only, why));
        give_up(tier);
    } else if (read_only != 0 && ours) {
        publish(tier, fd);
        say(tier, "%s: it is only read", brim__error_text(read_only, why));
        give_up(tier);
        return DONE;
    } else if (read_only != 0) {
        say(tier, "is of another pipeline or of other data, and cannot be replaced: %s",
            brim__error_text(read_only, why));
        give_up(tier);
    } else if (ours) {
        return use(tier, fd);
    } else {
        if (whose == BRIM__EXPOSED) {
            note_exposed(tier, &facts);
        } else if (kind != BRIM__CACHE_EMPTY) {
            note_why(tier, kind == BRIM__CACHE_USABLE ? &there : NULL, &wanted);
        }
        return begin_anew(tier, fd, kind == BRIM__CACHE_EMPTY, made, &wanted);
    }
    close(fd);
    return DONE;
}

void brim__file_tier_open(struct brim__file_tier *tier, bool patient) {
    for (int i = 0; i < TRIES; i++) {
        const enum outcome outcome = try_to_open(tier);
        if (outcome == DONE) {
            return;
        }
        if (outcome == WAIT && !patient) {
            break;
        }
        if (outcome == WAIT) {
            const struct timespec pause = { .tv_nsec = PAUSE_NS };
            nanosleep(&pause, NULL);
        }
    }
    atomic_store(&tier->retry_ns, brim__now() + RETRY_NS);
    say(tier, "other processes are making it: nothing is kept yet");
}

/* Takes the lock of a file that this process has only read so far. */
static void take_over(struct brim__file_tier *tier, int fd) {
    if (brim__cache_lock(fd) != 0) {
        return;
    }
    if (!brim__cache_is_at(tier->path, fd)) {
        (void)flock(fd, LOCK_UN);
        say(tier, "was deleted or replaced: the old file is only read");
        give_up(tier);
    } else {
        fill_from_end(tier, fd);
    }
}

/* Called with `trying` set. Does nothing if another thread has tried meanwhile. */
static void try_again(struct brim__file_tier *tier, uint64_t retry) {
    const int fd = atomic_load(&tier->fd);
    if (atomic_load(&tier->writes) || atomic_load(&tier->retry_ns) != retry) {
        return;
    }
    /* a final success or failure sets it to never */
    atomic_store(&tier->retry_ns, brim__now() + RETRY_NS);
    if (fd >= 0) {
        take_over(tier, fd);
    } else {
        brim__file_tier_open(tier, false);
    }
}

bool brim__file_tier_may_fill(struct brim__file_tier *tier) {
    if (BRIM__UNLIKELY(!atomic_load(&tier->writes))) {
        const uint64_t retry = atomic_load(&tier->retry_ns);
        if (retry == UINT64_MAX || brim__now() < retry || atomic_exchange(&tier->trying, true)) {
            return false;
        }
        try_again(tier, retry);
        atomic_store(&tier->trying, false);
    }
    return atomic_load(&tier->writes);
}
