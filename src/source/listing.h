/*
 * listing.h: the listing of a folder: the order of its samples, kept on disk.
 *
 *     folder.c         the stage `folder`: arguments, opening, locating and parsing
 *     folder_make.c    makes a listing: walks, sorts, looks at the images, writes
 *     folder_walk.c    one directory: its entries, links, loops
 *     folder_links.c   directories that links reach again and again
 *     folder_sort.c    sorts any number of keys in bounded memory
 *     folder_append.c  files that are written from front to back, and read again
 *     folder_list.c    the listing: its bytes, whether it is fresh, its records
 *
 * A listing has an index of the samples, their paths, the names of the classes, and the directories
 * that were walked, with a hash that shows whether they have changed. So nothing in memory grows
 * with the number of files, and a folder is walked again only when one of its directories has
 * changed. Byte layout: docs/folder.md.
 */
#ifndef BRIM_LISTING_H
#define BRIM_LISTING_H

#include "source/index_file.h"
#include "source/paths.h"

#define BRIM__MOST_ROOTS 65535

/* ------------------------------------------------------------ folder_append.c */

/* A file that is being written. */
struct brim__append_file {
    struct brim__new_file file;
    struct brim__file view; /* what is written so far, for reading */
    uint8_t *buffer;
    size_t room, used; /* of the buffer: the last bytes are in it */
    bool refused;      /* the directory could not be written */
};
/* scratch: the file never gets its name, and disappears with the process. */
brim_status brim__append_begin(struct brim__append_file *append, const char *path, bool scratch,
                               uint8_t *buffer, size_t room);
brim_status brim__append_bytes(struct brim__append_file *append, const void *bytes, size_t count);
brim_status brim__append_flush(struct brim__append_file *append);
/* May be called twice, or without begin. */
void brim__append_abandon(struct brim__append_file *append);
static inline uint64_t brim__append_end(const struct brim__append_file *append) {
    return append->view.bytes + append->used;
}

/* Reads [at, end) of a file from front to back. */
struct brim__forward_reader {
    const struct brim__file *file;
    uint64_t at, end; /* that are not yet in the buffer */
    uint8_t *buffer;
    size_t room, from, have;
};
static inline bool brim__forward_done(const struct brim__forward_reader *reader) {
    return reader->at == reader->end && reader->from == reader->have;
}
/* Gives the next bytes, at most `room`; valid until the next call. Only skip moves the reader. */
brim_status brim__forward_peek(struct brim__forward_reader *reader, size_t bytes,
                               const uint8_t **data);
static inline void brim__forward_skip(struct brim__forward_reader *reader, size_t bytes) {
    reader->from += bytes;
}

/* ------------------------------------------------------------ folder_sort.c */

#define BRIM__SORT_FAN   64   /* most runs that are merged at once */
#define BRIM__SORT_CHUNK 8192 /* least of a run in memory; a key is shorter */

struct brim__sort_stream {
    struct brim__forward_reader reader;
    const uint8_t *key;
    uint32_t length;
};

/* Keys are bytes, compared like memcmp; a key comes before the keys that begin with it. */
struct brim__sorter {
    struct brim__append_file spill; /* sorted runs; begun when memory is full */
    const char *path;
    uint8_t *spill_buffer;
    size_t spill_room;
    uint8_t *memory;
    size_t bytes, used; /* the keys from the front, their places from the back */
    uint32_t count;
    uint32_t *sorted; /* the places, once sorted in memory */
    uint32_t next;
    bool spilled;
    uint64_t begin, runs; /* in the spill file */
    bool given;           /* the first of the heap was given to the caller */
    uint32_t live;        /* streams in the heap */
    uint32_t heap[BRIM__SORT_FAN];
    struct brim__sort_stream stream[BRIM__SORT_FAN];
};
/* memory: aligned, at least 2 chunks. path: the file of runs is made beside it. */
void brim__sorter_init(struct brim__sorter *sorter, const char *path, uint8_t *memory, size_t bytes,
                       uint8_t *spill_buffer, size_t spill_room);
brim_status brim__sorter_add(struct brim__sorter *sorter, const void *key, size_t length);
/* Ends adding. From now on brim__sorter_next gives the keys in order. */
brim_status brim__sorter_sort(struct brim__sorter *sorter);
/* Valid until the next call. BRIM_STATUS_END after the last. */
brim_status brim__sorter_next(struct brim__sorter *sorter, const uint8_t **key, size_t *length);
void brim__sorter_reset(struct brim__sorter *sorter); /* for other keys */
void brim__sorter_fini(struct brim__sorter *sorter);

/* ------------------------------------------------------------ folder_walk.c */

/* Of a directory, when it was looked at. */
struct brim__facts {
    uint64_t hash; /* of its device, inode and times; another if anything in it changes */
    bool unsure;   /* too young for a coarse clock: a change may leave the hash as it is */
    uint64_t device, inode;
};
struct brim__entry {
    const char *name;
    bool directory;
    bool link;
    bool nowhere;             /* a link that leads to nothing, now */
    struct brim__facts facts; /* of a directory */
};
typedef brim_status brim__entry_visit(void *user, const struct brim__entry *entry);

#define BRIM__WALK_BUFFER 16384
/* Visits all entries of a directory except hidden ones, in no order: directories and files (regular
 * files, and links that lead nowhere: reading them gives the error). If `links`, links are
 * followed, but not to a directory on the path itself; else they are left out. path: PATH_MAX
 * bytes, changed during the call; its first root_bytes are the root. buffer: BRIM__WALK_BUFFER
 * bytes, aligned. A failing visit ends the walk. A directory that has just changed is read after
 * its clock has advanced. */
brim_status brim__walk(char *path, size_t root_bytes, bool links, uint8_t *buffer,
                       brim__entry_visit *visit, void *user);
/* settle: waits until the directory's clock has advanced, so that a later change changes the hash.
 * BRIM_STATUS_IO: there is no directory, or it cannot be examined. */
brim_status brim__walk_facts(const char *path, bool settle, struct brim__facts *facts);
/* BRIM_OK: the path does not lead to a directory, and the reason is the path, not a failing
 * system. */
brim_status brim__walk_nowhere(const char *path);

/* ----------------------------------------------------------- folder_links.c */

/* Directories that links lead to, each for the class in which it is reached. Links
 * that lead to each other multiply: a few of them make thousands of paths. */
struct brim__links {
    uint64_t *seen; /* hashes, 0 where there is none; charged */
    uint64_t count, room;
    uint64_t again; /* links that led where others had led */
    uint64_t once;  /* directories that are not reached through these */
};
/* To be called for each directory that is entered. below: it is below a directory that was reached
 * again. *again: it was reached again, or is below such a directory. BRIM_STATUS_INVALID: too many
 * links lead to the same directories. */
brim_status brim__links_enter(struct brim__links *links, const struct brim__entry *entry,
                              uint64_t class_key, bool below, const char *root, brim_budget *budget,
                              bool *again);
void brim__links_fini(struct brim__links *links); /* harmless twice */

/* ------------------------------------------------------------ folder_list.c */

#define BRIM__LISTING_VERSION 4
#define BRIM__LISTING_RECORD  32
#define BRIM__NO_LABEL        UINT32_MAX

/* One record: a sample, a class or a directory; its path follows it. */
struct brim__listed {
    uint64_t hash;       /* of all that follows, seeded with the record's place */
    uint64_t a;          /* sample: bytes of the file; directory: hash of its facts */
    uint64_t b;          /* sample: its format; directory: enum brim__listed_directory */
    uint32_t label;      /* or BRIM__NO_LABEL */
    uint16_t root;       /* which one */
    uint16_t path_bytes; /* from the root on; of a class its name */
};
_Static_assert(sizeof(struct brim__listed) == BRIM__LISTING_RECORD, "32 bytes on disk");
#define BRIM__LISTED_MOST (BRIM__LISTING_RECORD + PATH_MAX)

enum brim__listed_directory {
    BRIM__LISTED_SURE,   /* unchanged as long as its facts have this hash */
    BRIM__LISTED_UNSURE, /* may have changed all the same */
    BRIM__LISTED_NONE,   /* a link that led nowhere: no directory must be there */
    BRIM__LISTED_KIND = 3,
    BRIM__LISTED_AGAIN = 4, /* a bit, only while a listing is made: links led here before */
};

struct brim__listing_header {
    char magic[8];
    uint32_t version, page_bytes;
    uint64_t options; /* hash of the roots and of all that decides the samples */
    uint64_t samples, classes, directories;
    uint64_t classes_at, directories_at, bytes; /* samples begin after the entries */
    uint64_t labelled;                          /* 1: samples have labels */
    uint64_t longest;                           /* path of a sample, from the root on */
    uint64_t identity;
    uint64_t loose; /* files in the roots that would be samples, but belong to no class */
    struct brim__probed probed;
};

struct brim__listing {
    struct brim__index index; /* its file is the listing; fd -1: not open */
    struct brim__listing_header header;
};
/* Where the records of that many samples begin. */
static inline uint64_t brim__listing_records_at(uint64_t samples) {
    return brim__index_pages(samples) * BRIM__INDEX_PAGE;
}

/* The roots of the samples, and which files are samples. */
struct brim__folder {
    const char *const *root;     /* as the user wrote them, for messages */
    const char *const *absolute; /* the same, from "/" on and without links */
    size_t root_count;
    enum brim__folder_classes { BRIM__CLASSES_AUTO, BRIM__CLASSES_YES, BRIM__CLASSES_NO } classes;
    const char *const *extension; /* in lower case, without the dot */
    size_t extension_count;       /* 0: any */
    bool recursive, links, probe, allow_empty;
    enum brim__index_home home;
};

/* folder_walk.c: whether a file of this name is a sample, by its extension. */
bool brim__folder_wants(const struct brim__folder *folder, const char *name);
/* " with the extension .jpg or .png", or "". */
void brim__folder_endings(const struct brim__folder *folder, char *text, size_t bytes);

/* BRIM_OK: the listing at `path` is whole, was made with these options, and no directory in it has
 * changed (folder NULL: directories are not compared). Else it must be made. */
brim_status brim__listing_open(struct brim__listing *listing, const char *path, uint64_t options,
                               const struct brim__folder *folder,
                               const struct brim__opening *opening);
void brim__listing_close(struct brim__listing *listing); /* harmless twice */
brim_status brim__listing_damaged(const char *path, uint64_t at);
/* Reads the names of all classes into the arena. */
brim_status brim__listing_classes(const struct brim__listing *listing,
                                  struct brim__opening *opening, const char *const **names);
/* Fills in the header for these options, up to `samples`. */
void brim__listing_expect(struct brim__listing_header *header, uint64_t options);
/* Appends a record; its hash and path_bytes are filled in. */
brim_status brim__listed_append(struct brim__append_file *append, struct brim__listed listed,
                                const char *path, size_t path_bytes);
/* Reads a record of `bytes` bytes from byte `at` of the file; *path has no zero at its end.
 * BRIM_STATUS_CORRUPT: it is damaged. */
brim_status brim__listed_parse(const uint8_t *record, uint64_t bytes, const char *file_path,
                               uint64_t at, struct brim__listed *listed, const char **path);
brim_status brim__listed_next(struct brim__forward_reader *reader, struct brim__listed *listed,
                              const char **path);
/* "ROOT/path" with a zero, an absolute path; PATH_MAX bytes. BRIM_STATUS_IO: too long. */
brim_status brim__listed_path(const struct brim__folder *folder, uint32_t root, const char *path,
                              size_t path_bytes, char to[PATH_MAX]);

/* ------------------------------------------------------------ folder_make.c */

/* Walks the folder and writes the listing, whole or not at all. */
brim_status brim__listing_make(const char *path, uint64_t options,
                               const struct brim__folder *folder, struct brim__opening *opening);

#endif
