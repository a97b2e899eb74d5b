/*
 * file_format.h: the format of a cache file, and the functions that read and write it.
 *
 *     | header, 4096 bytes | table: `count` entries of 32 bytes | heap: entries' bytes ... |
 *       magic  ...  magic    sparse; zeros: none                  each aligned to 64
 *
 * The header never changes, and a file has it before it gets its name. The table and the heap are
 * filled in place: first an entry's bytes are written at the heap's end, then its entry in the
 * table. After a crash or a loss of power, either of them may be missing or torn. An entry is used
 * only if its checksum matches, which covers the bytes, the number, the length, the stamp, and the
 * file's key.
 *
 * The file is in the byte order of the machine, which the header names: a file from another kind of
 * machine is not usable. The magic is at both ends of the header, so that a cache file with one
 * damaged spot is still recognised as one.
 *
 * Only the process that holds the lock of the file with the name replaces it (by a rename), and
 * only the process that holds a file's own lock fills it: see file_open.c.
 *
 * Calls to the system return 0 or an errno, and ask the fault points first.
 */
#ifndef BRIM_FILE_FORMAT_H
#define BRIM_FILE_FORMAT_H

#include "cache/tier.h"

#include <sys/stat.h>
#include <sys/uio.h>

#define BRIM__CACHE_MAGIC      "brimcch\n"
#define BRIM__CACHE_VERSION    1
#define BRIM__CACHE_BYTE_ORDER UINT64_C(0x0102030405060708)
#define BRIM__CACHE_HEADER     4096
#define BRIM__CACHE_PIPELINE   1024 /* with its zero */
#define BRIM__CACHE_SUFFIX     ".brimcache"

struct brim__cache_header {
    char magic[8];
    uint64_t byte_order;
    uint32_t version;
    uint32_t verify; /* enum brim__verify */
    uint64_t data, sample, stamp;
    uint64_t count;
    uint64_t most_bytes; /* of an entry */
    uint64_t limit;      /* when it was made: for people */
    int64_t created_ns;  /* since 1970 */
    char pipeline[BRIM__CACHE_PIPELINE];
    uint8_t zeros[BRIM__CACHE_HEADER - 96 - BRIM__CACHE_PIPELINE];
    uint64_t checksum; /* of all before */
    char magic_again[8];
};
_Static_assert(sizeof(struct brim__cache_header) == BRIM__CACHE_HEADER, "one page on disk");

struct brim__cache_entry {
    uint64_t offset, length; /* of its bytes in the file */
    uint64_t stamp;
    uint64_t checksum;
};
_Static_assert(sizeof(struct brim__cache_entry) == 32, "32 bytes on disk: none lies in two pages");

enum brim__cache_kind {
    BRIM__CACHE_EMPTY,    /* no bytes at all: a process makes it now, or died while doing so */
    BRIM__CACHE_STRANGER, /* not a cache: not to be changed */
    BRIM__CACHE_UNUSABLE, /* a cache, but damaged, or of another format or machine */
    BRIM__CACHE_USABLE,
};

/* -------------------------------------------------------------------- doors */

int brim__cache_open(const char *path, int flags, int *fd); /* close-on-exec */
int brim__cache_stat(int fd, struct stat *facts);
/* Bytes on the disk: less than the file's length if the table has few entries. */
static inline uint64_t brim__cache_disk_bytes(const struct stat *facts) {
    return (uint64_t)facts->st_blocks * 512;
}
/* Reads `bytes` bytes, or fewer at the file's end: *got. */
int brim__cache_read(int fd, uint64_t offset, void *buffer, size_t bytes, size_t *got);
/* Writes all, in one call if the system lets it; changes the vectors. */
int brim__cache_write(int fd, uint64_t offset, struct iovec *vectors, int count);
/* Takes the writer's lock; EWOULDBLOCK if it is not free. */
int brim__cache_lock(int fd);
/* Whether the path still names the open file. */
bool brim__cache_is_at(const char *path, int fd);

/* ------------------------------------------------------------------- header */

/* Where the heap of a file with this many numbers begins; UINT64_MAX: no file is so long. */
uint64_t brim__cache_heap(uint64_t count);
void brim__cache_header_init(struct brim__cache_header *header,
                             const struct brim__tier_start *start);
/* Computes the checksum. */
void brim__cache_header_seal(struct brim__cache_header *header);
/* Determines what the file is. If it is usable, *header is its header. */
int brim__cache_examine(int fd, struct stat *facts, struct brim__cache_header *header,
                        enum brim__cache_kind *kind);
/* Whether entries of the one are entries of the other. */
bool brim__cache_same_key(const struct brim__cache_header *a, const struct brim__cache_header *b);
/* The file's name in a directory with the caches of many pipelines: 16 digits of a hash of the key
 * and the pipeline's text. The stamp is not hashed, so that a cache whose data changed is replaced.
 * The text has the data's paths, so data sets of equal shapes have different names. */
#define BRIM__CACHE_NAME 32
void brim__cache_name(const struct brim__cache_header *header, char name[BRIM__CACHE_NAME]);

/* ------------------------------------------------------------------ entries */

static inline uint64_t brim__cache_table_at(uint64_t number) {
    return BRIM__CACHE_HEADER + number * sizeof(struct brim__cache_entry);
}
static inline bool brim__cache_is_none(const struct brim__cache_entry *entry) {
    return (entry->offset | entry->length | entry->stamp | entry->checksum) == 0;
}
/* The seed of the checksums of a file's entries. */
uint64_t brim__cache_seed(const struct brim__cache_header *header);
/* The checksum of an entry whose length and stamp are set. */
uint64_t brim__cache_checksum(uint64_t seed, uint64_t number, const struct brim__cache_entry *entry,
                              const void *data);
/* Whether it lies in a heap that begins at `heap`, aligned, and is not longer than `most`. */
bool brim__cache_entry_lies(const struct brim__cache_entry *entry, uint64_t heap, uint64_t most);
/* Reads an entry that lies in the heap, piece by piece, and compares its checksum. */
bool brim__cache_is_whole(int fd, uint64_t seed, uint64_t number,
                          const struct brim__cache_entry *entry);

/* A walk over the table's entries that are not empty. */
struct brim__cache_walk {
    int fd;
    uint64_t count;
    uint64_t next; /* number to read from */
    size_t at, held;
    int error; /* that ended it */
    struct brim__cache_entry entry[256];
};
void brim__cache_walk_begin(struct brim__cache_walk *walk, int fd, uint64_t count);
/* false: the end, or an error. */
bool brim__cache_walk_next(struct brim__cache_walk *walk, uint64_t *number,
                           struct brim__cache_entry *entry);

#endif
