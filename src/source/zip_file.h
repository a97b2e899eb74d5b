/*
 * zip_file.h: the container of npz files: the members of a zip file and the places of their bytes.
 * Nothing is extracted. (The stage `zip`, which puts sources side by side, is not related: zip.c.)
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

/* A member's entry in the central directory. Its values are not checked before brim__zip_locate. */
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

/* Visits all members in the order of the directory. A failing visit ends the walk, which returns
 * its status. Takes no memory except a few KiB of stack. */
typedef brim_status brim__zip_visit(void *user, const struct brim__zip_member *member);
brim_status brim__zip_walk(const struct brim__zip *zip, brim__zip_visit *visit, void *user);

/* *data: the byte at which the member's packed_bytes begin. Checks that they can be read (a known
 * method, not encrypted), that the local header agrees, and that they are inside the file and
 * shared with no other member. */
brim_status brim__zip_locate(const struct brim__zip *zip, const struct brim__zip_member *member,
                             uint64_t *data);

#endif
