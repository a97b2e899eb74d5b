/*
 * folder_walk.c: reads one directory: its entries, links and loops; and decides which names are
 * samples.
 *
 * Directories are read with the system call into a counted buffer, because opendir would take
 * memory that is not counted. Most file systems report the type of each entry. With others, and for
 * links, each entry needs a stat.
 *
 * A loop needs a link. So only a link to a directory is compared with the directories on its path,
 * from the root on. If it is one of them, it is left out.
 *
 * A directory that changes gets a new time of modification, which a program may set
 * back (tar and rsync do), and a new time of change, which only the clock sets.
 * Both go into the hash of its facts, with its inode and device.
 *
 * These times have the grain of the system's clock, some milliseconds. A directory that has just
 * changed is read only after that grain has passed, so that every change after the reading changes
 * its times. Some file systems store whole seconds, FAT even seconds only: brim does not wait that
 * long. If the fraction of a time is zero and the time is that recent, the directory is marked as
 * unsure, and read again at the next opening.
 */
#include "base/fault.h"
#include "source/listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int stat_once(int directory, const char *path, int flags, struct stat *facts) {
    if (brim__fault(BRIM__FAULT_OPEN)) {
        errno = EIO;
        return -1;
    }
    return fstatat(directory, path, facts, flags);
}

static int open_once(const char *path) {
    if (brim__fault(BRIM__FAULT_OPEN)) {
        errno = EMFILE;
        return -1;
    }
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
}

static ssize_t read_once(int fd, uint8_t *buffer) {
    if (brim__fault(BRIM__FAULT_READ)) {
        errno = EIO;
        return -1;
    }
    return getdents64(fd, buffer, BRIM__WALK_BUFFER);
}

static brim_status fail_at(const char *path, const char *what) {
    char why[BRIM__ERROR_TEXT];
    return brim__fail(BRIM_STATUS_IO, "%s: this directory cannot be %s: %s", path, what,
                      brim__error_text(errno, why));
}

/* ------------------------------------------------------------------- times */

static int64_t nanoseconds(const struct timespec *time) {
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

/* Computes the facts of a directory before it is read. */
static void take_facts(const struct stat *from, bool settle, struct brim__facts *facts) {
    const struct timespec *const times[2] = { &from->st_mtim, &from->st_ctim };
    const uint64_t words[4] = { from->st_dev, from->st_ino, (uint64_t)nanoseconds(times[0]),
                                (uint64_t)nanoseconds(times[1]) };
    *facts = (struct brim__facts){ .hash = brim__hash(words, sizeof words, 0),
                                   .device = from->st_dev,
                                   .inode = from->st_ino };
    for (int i = 0; i < 2; i++) {
        facts->unsure = !brim__time_is_sure(times[i], settle) || facts->unsure;
    }
}

brim_status brim__walk_facts(const char *path, bool settle, struct brim__facts *facts) {
    struct stat found;
    if (stat_once(AT_FDCWD, path, 0, &found) != 0) {
        return fail_at(path, "found");
    }
    if (!S_ISDIR(found.st_mode)) {
        return brim__fail(BRIM_STATUS_IO, "%s: is not a directory", path);
    }
    take_facts(&found, settle, facts);
    return BRIM_OK;
}

/* Whether a link leads nowhere because of its own path, not because the system fails. */
static bool leads_nowhere(int error) {
    return error == ENOENT || error == ELOOP || error == EACCES || error == ENOTDIR ||
           error == ENAMETOOLONG;
}

brim_status brim__walk_nowhere(const char *path) {
    struct stat found;
    if (stat_once(AT_FDCWD, path, 0, &found) != 0) {
        return leads_nowhere(errno) ? BRIM_OK : fail_at(path, "found");
    }
    return S_ISDIR(found.st_mode) ? brim__fail(BRIM_STATUS_IO, "%s: is a directory now", path)
                                  : BRIM_OK;
}

/* ----------------------------------------------------------------- entries */

struct walk {
    char *path;
    size_t root_bytes;
    bool links;
    int fd;
    brim__entry_visit *visit;
    void *user;
};

/* Whether `facts` is one of the directories from the root to the current one. */
static brim_status is_loop(const struct walk *walk, const struct stat *facts, bool *loop) {
    char *const path = walk->path;
    *loop = false;
    for (size_t end = walk->root_bytes; !*loop; end++) {
        const char held = path[end];
        if (held != '/' && held != '\0') {
            continue;
        }
        struct stat above;
        path[end] = '\0';
        const int failed = stat_once(AT_FDCWD, path, 0, &above);
        path[end] = held;
        if (failed != 0) {
            return fail_at(path, "found");
        }
        *loop = above.st_dev == facts->st_dev && above.st_ino == facts->st_ino;
        if (held == '\0') {
            break;
        }
    }
    return BRIM_OK;
}

static brim_status fail_entry(const struct walk *walk, const char *name) {
    char why[BRIM__ERROR_TEXT];
    const int error = errno;
    return brim__fail(BRIM_STATUS_IO, "%s/%s: cannot be examined: %s", walk->path, name,
                      brim__error_text(error, why));
}

static brim_status take_directory(const struct walk *walk, struct brim__entry *entry,
                                  const struct stat *facts) {
    entry->directory = true;
    take_facts(facts, true, &entry->facts);
    return walk->visit(walk->user, entry);
}

static brim_status take_link(const struct walk *walk, struct brim__entry *entry) {
    struct stat facts;
    bool loop = false;
    if (!walk->links) {
        return BRIM_OK;
    }
    entry->link = true;
    if (stat_once(walk->fd, entry->name, 0, &facts) != 0) {
        entry->nowhere = leads_nowhere(errno);
        return entry->nowhere ? walk->visit(walk->user, entry) : fail_entry(walk, entry->name);
    }
    if (S_ISREG(facts.st_mode)) {
        return walk->visit(walk->user, entry);
    }
    if (!S_ISDIR(facts.st_mode)) {
        return BRIM_OK;
    }
    const brim_status status = is_loop(walk, &facts, &loop);
    return status != BRIM_OK || loop ? status : take_directory(walk, entry, &facts);
}

static brim_status take_entry(const struct walk *walk, const char *name, unsigned char type) {
    struct brim__entry entry = { .name = name };
    struct stat facts;
    if (name[0] == '.') { /* hidden, or the directory itself and the one above */
        return BRIM_OK;
    }
    if (type == DT_REG) {
        return walk->visit(walk->user, &entry);
    }
    if (type == DT_LNK) {
        return take_link(walk, &entry);
    }
    if (type != DT_DIR && type != DT_UNKNOWN) {
        return BRIM_OK;
    }
    if (stat_once(walk->fd, name, AT_SYMLINK_NOFOLLOW, &facts) != 0) {
        /* removed meanwhile, which has changed the directory's time */
        return errno == ENOENT ? BRIM_OK : fail_entry(walk, name);
    }
    if (S_ISLNK(facts.st_mode)) {
        return take_link(walk, &entry);
    }
    if (S_ISDIR(facts.st_mode)) {
        return take_directory(walk, &entry, &facts);
    }
    return S_ISREG(facts.st_mode) ? walk->visit(walk->user, &entry) : BRIM_OK;
}

brim_status brim__walk(char *path, size_t root_bytes, bool links, uint8_t *buffer,
                       brim__entry_visit *visit, void *user) {
    struct walk walk = {
        .path = path, .root_bytes = root_bytes, .links = links, .visit = visit, .user = user
    };
    brim_status status = BRIM_OK;
    ssize_t bytes;
    do {
        walk.fd = open_once(path);
    } while (walk.fd < 0 && errno == EINTR);
    if (walk.fd < 0) {
        return fail_at(path, "opened");
    }
    do {
        do {
            bytes = read_once(walk.fd, buffer);
        } while (bytes < 0 && errno == EINTR);
        if (bytes < 0) {
            status = fail_at(path, "read");
        }
        for (ssize_t at = 0; at < bytes && status == BRIM_OK;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buffer + at);
            status = take_entry(&walk, entry->d_name, entry->d_type);
            at += entry->d_reclen;
        }
    } while (bytes > 0 && status == BRIM_OK);
    close(walk.fd);
    return status;
}

/* ------------------------------------------------------------------- names */

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Files that brim keeps beside data, and their temporary files, are never samples. */
static bool is_ours(const char *name) {
    static const char *const endings[] = { ".brimlst", ".brimidx", ".brimprb" };
    bool ours = false;
    for (size_t i = 0; i < BRIM__COUNT(endings); i++) {
        ours = ours || strstr(name, endings[i]) != NULL;
    }
    return ours;
}

bool brim__folder_wants(const struct brim__folder *folder, const char *name) {
    const size_t length = strlen(name);
    for (size_t i = 0; i < folder->extension_count; i++) {
        const char *extension = folder->extension[i];
        const size_t bytes = strlen(extension);
        size_t same = 0;
        while (same < bytes && bytes < length &&
               lower(name[length - bytes + same]) == extension[same]) {
            same++;
        }
        if (same == bytes && bytes < length && name[length - bytes - 1] == '.') {
            return true;
        }
    }
    return folder->extension_count == 0 && !is_ours(name);
}

void brim__folder_endings(const struct brim__folder *folder, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < folder->extension_count && used < bytes; i++) {
        const int wrote = snprintf(text + used, bytes - used, "%s.%s",
                                   i == 0                             ? " with the extension "
                                   : i + 1 == folder->extension_count ? " or "
                                                                      : ", ",
                                   folder->extension[i]);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
}
