/*
 * index_file.h: the pages of an index file; for index.c and index_write.c, and for the
 * listing of a folder, which is an index with the records after its pages.
 *
 *     page 0:       header
 *     page 1 .. n:  170 entries each, the last one filled with zeros
 *
 * Every page ends with the hash of its other bytes, seeded with the page's number, so that a page
 * in the wrong place is detected too.
 */
#ifndef BRIM_INDEX_FILE_H
#define BRIM_INDEX_FILE_H

#include "base/file_write.h"
#include "source/index.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "indexes are little-endian");

#define BRIM__INDEX_PAGE     4096
#define BRIM__INDEX_HASHED   (BRIM__INDEX_PAGE - 8) /* bytes before a page's hash */
#define BRIM__INDEX_ENTRY    24
#define BRIM__INDEX_PER_PAGE 170
#define BRIM__INDEX_VERSION  1
#define BRIM__INDEX_MAGIC    "brimidx\n"
#define BRIM__INDEX_LENGTH   (UINT64_C(1) << 48) /* every length is below */

struct brim__index_header {
    char magic[8];
    uint32_t version;
    uint32_t page_bytes;
    char source[BRIM_NAME_BYTES];
    uint64_t options;
    uint64_t data_bytes;
    int64_t data_modified_ns;
    uint64_t count;
    uint64_t largest;
    uint64_t total;
};

struct brim__index_item {
    uint64_t offset;
    uint64_t length_kind; /* length in the low 48 bits */
    uint32_t a, b;
};
_Static_assert(sizeof(struct brim__index_item) == BRIM__INDEX_ENTRY, "24 bytes on disk");

/* Fills in the header of a fresh index of `data`, except its last three fields. */
void brim__index_expect(const struct brim__file *data, const struct brim__index_recipe *recipe,
                        struct brim__index_header *header);
uint64_t brim__index_page_hash(const uint8_t *page, uint64_t number);
/* Write the hash at the end of a page; compare it. */
void brim__index_seal(uint8_t *page, uint64_t number);
bool brim__index_sealed(const uint8_t *page, uint64_t number);
static inline uint64_t brim__index_pages(uint64_t count) {
    return 1 + brim__divide_up(count, BRIM__INDEX_PER_PAGE);
}

/* index_write.c: packs entries into pages 1, 2, ... of a file that is being made. */
struct brim__index_packer {
    struct brim__new_file *file;
    uint8_t *buffer;
    uint8_t *to;       /* of the next entry */
    uint8_t *page_end; /* after the last entry that the page in progress can hold */
    size_t pages;      /* that the buffer holds */
    size_t page;       /* the one in progress */
    uint64_t first;    /* number of the buffer's first page in the file */
    uint64_t count, largest, total;
    bool refused; /* the place could not be written */
};
void brim__index_packer_init(struct brim__index_packer *packer, struct brim__new_file *file,
                             uint8_t *buffer, size_t pages);
brim_status brim__index_pack(struct brim__index_packer *packer,
                             const struct brim__index_entry *entry);
/* Writes the pages that are left. */
brim_status brim__index_packer_end(struct brim__index_packer *packer);

/* index_write.c: makes the index `path` of `data`. */
brim_status brim__index_make(const char *path, const struct brim__file *data,
                             const struct brim__index_recipe *recipe,
                             struct brim__opening *opening);

#endif
