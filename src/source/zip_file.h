/*
 * zip_file.h: the container of npz files: which members a zip file has, and
 * where their bytes lie. Nothing is extracted. (The stage `zip`, which puts
 * sources side by side, is another thing: zip.c.)
 */
#ifndef BRIM_ZIP_FILE_H
#define BRIM_ZIP_FILE_H

#include "base/file.h"

#define BRIM__ZIP_MEMBERS    65536
#define BRIM__ZIP_NAME_BYTES 1024 /* longest name, with its zero */

struct brim__zip {
    const struct brim__file *file;
    uint64_t directory, directory_bytes; /* the central directory */
    uint64_t members;
};

enum brim__zip_method { BRIM__ZIP_STORED = 0, BRIM__ZIP_DEFLATED = 8 };

/* What the central directory says of a member: claims, until it is located. */
struct brim__zip_member {
    char name[BRIM__ZIP_NAME_BYTES]; /* without control characters */
    uint16_t flags, method;
    uint32_t crc;          /* CRC-32 of the content */
    uint64_t packed_bytes; /* in the file */
    uint64_t bytes;        /* of the content */
    uint64_t header;       /* byte of its local header */
    uint64_t entry;        /* byte of its entry in the central directory */
};

/* Finds the central directory, which must lie inside the file. */
brim_status brim__zip_open(struct brim__zip *zip, const struct brim__file *file);

/* All members in the order of the directory; a failing visit ends the walk and
 * is its result. Takes no memory but a few KiB of stack. */
typedef brim_status brim__zip_visit(void *user, const struct brim__zip_member *member);
brim_status brim__zip_walk(const struct brim__zip *zip, brim__zip_visit *visit, void *user);

/* *data: the byte at which the member's packed_bytes begin. Makes sure that they
 * can be read (a method that is known, not encrypted), that the local header
 * agrees, and that they lie inside the file and under no other member. */
brim_status brim__zip_locate(const struct brim__zip *zip, const struct brim__zip_member *member,
                             uint64_t *data);

#endif
