/*
 * zip_file.c: the container of npz files.
 *
 *     | local header, name, extra | packed bytes |    member 0
 *     | local header ...                         |    member 1 ...
 *     | entry, name, extra, comment |  ...            central directory
 *     | zip64 end record | zip64 locator |            only if something is too large
 *     | end record, comment |                         found from the file's end
 *
 * Everything is little-endian, and is read again each time it is needed, through a window of a few
 * KiB. No table of the members is kept, however many there are.
 *
 * The central directory decides. A local header is only used for the distance to its member's
 * bytes, and must agree with the directory. Offsets are used without correction, so a zip file with
 * other data in front of it is refused. Sizes are compared with the file before they are used. All
 * of them are then below 2^63, so sums cannot overflow.
 */
#include "source/zip_file.h"

#include <stdio.h>

#define END_BYTES       22
#define END64_BYTES     56
#define LOCATOR_BYTES   20
#define ENTRY_BYTES     46
#define LOCAL_BYTES     30
#define MOST_COMMENT    65535
#define WINDOW_BYTES    4096
#define SATURATED_SHORT 0xffffu /* the real value stands in a zip64 record */
#define SATURATED_LONG  0xffffffffu

enum {
    FLAG_ENCRYPTED = 1,
    FLAG_STREAMED = 8, /* sizes and CRC follow the data: the local header has none */
    FLAG_PATCHED = 32,
    FLAG_STRONG = 64,
    FLAG_MASKED = 8192,
};

static uint16_t short_at(const uint8_t *bytes) {
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}
static uint32_t long_at(const uint8_t *bytes) {
    return (uint32_t)short_at(bytes) | (uint32_t)short_at(bytes + 2) << 16;
}
static uint64_t quad_at(const uint8_t *bytes) {
    return (uint64_t)long_at(bytes) | (uint64_t)long_at(bytes + 4) << 32;
}

static brim_status bad(const struct brim__file *file, uint64_t at, const char *what) {
    return brim__fail_byte(BRIM_STATUS_CORRUPT, file->path, at, "%s", what);
}

static brim_status several_disks(const struct brim__file *file, uint64_t at) {
    return brim__fail_byte(BRIM_STATUS_UNSUPPORTED, file->path, at,
                           "one of several parts of a zip file: join them into one file");
}

/* ------------------------------------------------------------- end records */

/* Finds the end record: its comment ends where the file ends. */
static brim_status find_end(const struct brim__file *file, uint64_t *at) {
    uint8_t tail[END_BYTES + MOST_COMMENT];
    const size_t count = brim__min(sizeof tail, file->bytes);
    if (count < END_BYTES) {
        return bad(file, file->bytes, "not a zip file: too short for its end record");
    }
    const brim_status status = brim__file_read(file, file->bytes - count, tail, count);
    if (status != BRIM_OK) {
        return status;
    }
    for (size_t i = count - END_BYTES + 1; i-- > 0;) {
        if (memcmp(tail + i, "PK\5\6", 4) == 0 &&
            short_at(tail + i + 20) == count - END_BYTES - i) {
            *at = file->bytes - count + i;
            return BRIM_OK;
        }
    }
    return bad(file, file->bytes, "not a zip file, or cut short: no end record closes the file");
}

/* Replaces the values that did not fit the end record. Without a locator the values of the end
 * record are exact, even 65535 members. */
static brim_status read_end64(struct brim__zip *zip, uint64_t end) {
    const struct brim__file *file = zip->file;
    uint8_t bytes[END64_BYTES];
    if (end < LOCATOR_BYTES) {
        return BRIM_OK;
    }
    const uint64_t locator = end - LOCATOR_BYTES;
    brim_status status = brim__file_read(file, locator, bytes, LOCATOR_BYTES);
    if (status != BRIM_OK) {
        return status;
    }
    if (memcmp(bytes, "PK\6\7", 4) != 0) {
        return BRIM_OK;
    }
    if (long_at(bytes + 4) != 0 || long_at(bytes + 16) > 1) {
        return several_disks(file, locator);
    }
    const uint64_t at = quad_at(bytes + 8);
    if (at > locator || locator - at < END64_BYTES) {
        return bad(file, locator + 8, "the zip64 end record would lie after its own locator");
    }
    status = brim__file_read(file, at, bytes, END64_BYTES);
    if (status != BRIM_OK) {
        return status;
    }
    if (memcmp(bytes, "PK\6\6", 4) != 0) {
        return bad(file, at, "no zip64 end record where the locator says");
    }
    if (long_at(bytes + 16) != 0 || long_at(bytes + 20) != 0 ||
        quad_at(bytes + 24) != quad_at(bytes + 32)) {
        return several_disks(file, at);
    }
    zip->members = quad_at(bytes + 32);
    zip->directory_bytes = quad_at(bytes + 40);
    zip->directory = quad_at(bytes + 48);
    if (zip->directory > at || zip->directory_bytes > at - zip->directory) {
        return bad(file, at + 40, "the central directory would lie after its own end record");
    }
    return BRIM_OK;
}

brim_status brim__zip_open(struct brim__zip *zip, const struct brim__file *file) {
    uint8_t bytes[END_BYTES];
    uint64_t end = 0;
    *zip = (struct brim__zip){ .file = file };
    brim_status status = find_end(file, &end);
    if (status == BRIM_OK) {
        status = brim__file_read(file, end, bytes, sizeof bytes);
    }
    if (status != BRIM_OK) {
        return status;
    }
    const uint16_t disk = short_at(bytes + 4), first_disk = short_at(bytes + 6);
    if ((disk != 0 && disk != SATURATED_SHORT) ||
        (first_disk != 0 && first_disk != SATURATED_SHORT) ||
        short_at(bytes + 8) != short_at(bytes + 10)) {
        return several_disks(file, end);
    }
    zip->members = short_at(bytes + 10);
    zip->directory_bytes = long_at(bytes + 12);
    zip->directory = long_at(bytes + 16);
    if (zip->members == SATURATED_SHORT || zip->directory_bytes == SATURATED_LONG ||
        zip->directory == SATURATED_LONG) {
        status = read_end64(zip, end);
        if (status != BRIM_OK) {
            return status;
        }
    }
    if (zip->directory > end || zip->directory_bytes > end - zip->directory) {
        return bad(file, end + 12, "the central directory would lie after its own end record");
    }
    if (zip->members > BRIM__ZIP_MEMBERS) {
        return brim__fail_byte(BRIM_STATUS_UNSUPPORTED, file->path, end, "%llu members; at most %d",
                               (unsigned long long)zip->members, BRIM__ZIP_MEMBERS);
    }
    if (zip->members > zip->directory_bytes / ENTRY_BYTES) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, file->path, end,
                               "%llu members need %d bytes each in the central "
                               "directory, which has %llu",
                               (unsigned long long)zip->members, ENTRY_BYTES,
                               (unsigned long long)zip->directory_bytes);
    }
    return BRIM_OK;
}

/* ------------------------------------------------------- central directory */

/* A piece of the directory in memory. */
struct window {
    const struct brim__zip *zip;
    uint64_t at; /* byte of the file of bytes[0] */
    size_t count;
    uint8_t bytes[WINDOW_BYTES];
};

/* Gives bytes [at, at + count) of the directory, count <= WINDOW_BYTES. The bytes after them are
 * read too, because they are needed next. */
static brim_status look(struct window *window, uint64_t at, size_t count, const uint8_t **bytes) {
    const struct brim__zip *zip = window->zip;
    const uint64_t end = zip->directory + zip->directory_bytes;
    if (at > end || count > end - at) {
        return bad(zip->file, at, "the central directory ends inside an entry");
    }
    if (at < window->at || at - window->at > window->count ||
        count > window->count - (at - window->at)) {
        window->at = at;
        window->count = brim__min(WINDOW_BYTES, end - at);
        const brim_status status = brim__file_read(zip->file, at, window->bytes, window->count);
        if (status != BRIM_OK) {
            window->count = 0;
            return status;
        }
    }
    *bytes = window->bytes + (at - window->at);
    return BRIM_OK;
}

/* Takes the values that did not fit the 32 bits of an entry from its zip64 field. */
static brim_status read_extra(struct window *window, uint64_t at, uint64_t end,
                              struct brim__zip_member *member) {
    uint64_t *const wanted[] = { member->bytes == SATURATED_LONG ? &member->bytes : NULL,
                                 member->packed_bytes == SATURATED_LONG ? &member->packed_bytes
                                                                        : NULL,
                                 member->header == SATURATED_LONG ? &member->header : NULL };
    bool missing = wanted[0] != NULL || wanted[1] != NULL || wanted[2] != NULL;
    while (missing && end - at >= 4) {
        const uint8_t *bytes;
        brim_status status = look(window, at, 4, &bytes);
        if (status != BRIM_OK) {
            return status;
        }
        const uint16_t id = short_at(bytes), count = short_at(bytes + 2);
        if (count > end - at - 4) {
            return bad(window->zip->file, at, "an extra field extends past its entry");
        }
        if (id == 1) {
            status = look(window, at + 4, brim__min(count, 24), &bytes);
            if (status != BRIM_OK) {
                return status;
            }
            size_t used = 0;
            for (size_t i = 0; i < BRIM__COUNT(wanted); i++) {
                if (wanted[i] != NULL && count - used >= 8) {
                    *wanted[i] = quad_at(bytes + used);
                    used += 8;
                } else if (wanted[i] != NULL) {
                    return bad(window->zip->file, at, "a zip64 field without its value");
                }
            }
            missing = false;
        }
        at += 4 + (uint64_t)count;
    }
    return missing ? bad(window->zip->file, member->entry,
                         "a size of 2^32 - 1 that no zip64 field explains")
                   : BRIM_OK;
}

/* The entry at `at`; *next: the one after it. */
static brim_status read_entry(struct window *window, uint64_t at, struct brim__zip_member *member,
                              uint64_t *next) {
    const struct brim__zip *zip = window->zip;
    const uint8_t *bytes;
    brim_status status = look(window, at, ENTRY_BYTES, &bytes);
    if (status != BRIM_OK) {
        return status;
    }
    if (memcmp(bytes, "PK\1\2", 4) != 0) {
        return bad(zip->file, at, "an entry of the central directory should begin here");
    }
    const size_t name = short_at(bytes + 28), extra = short_at(bytes + 30);
    *next = at + ENTRY_BYTES + name + extra + short_at(bytes + 32);
    *member = (struct brim__zip_member){ .flags = short_at(bytes + 8),
                                         .method = short_at(bytes + 10),
                                         .crc = long_at(bytes + 16),
                                         .packed_bytes = long_at(bytes + 20),
                                         .bytes = long_at(bytes + 24),
                                         .header = long_at(bytes + 42),
                                         .entry = at };
    if (short_at(bytes + 34) != 0 && short_at(bytes + 34) != SATURATED_SHORT) {
        return several_disks(zip->file, at + 34);
    }
    if (*next > zip->directory + zip->directory_bytes) {
        return bad(zip->file, at, "the central directory ends inside an entry");
    }
    if (name == 0 || name >= sizeof member->name) {
        return brim__fail_byte(BRIM_STATUS_UNSUPPORTED, zip->file->path, at + 28,
                               "a member's name of %zu bytes; it must have 1 to %zu", name,
                               sizeof member->name - 1);
    }
    status = look(window, at + ENTRY_BYTES, name, &bytes);
    if (status != BRIM_OK) {
        return status;
    }
    memcpy(member->name, bytes, name);
    for (size_t i = 0; i < name; i++) { /* names end up in messages */
        if ((uint8_t)member->name[i] < ' ' || member->name[i] == 0x7f) {
            return bad(zip->file, at + ENTRY_BYTES + i,
                       "a control character in the name of a member");
        }
    }
    status = read_extra(window, at + ENTRY_BYTES + name, at + ENTRY_BYTES + name + extra, member);
    if (status != BRIM_OK) {
        return status;
    }
    /* all members lie before the directory */
    if (member->header > zip->directory || zip->directory - member->header < LOCAL_BYTES ||
        member->packed_bytes > zip->directory - member->header - LOCAL_BYTES) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, zip->file->path, at,
                               "the entry says that %llu bytes of a member lie after "
                               "byte %llu, but the members end at byte %llu",
                               (unsigned long long)member->packed_bytes,
                               (unsigned long long)member->header,
                               (unsigned long long)zip->directory);
    }
    return BRIM_OK;
}

brim_status brim__zip_walk(const struct brim__zip *zip, brim__zip_visit *visit, void *user) {
    struct window window = { .zip = zip };
    struct brim__zip_member member;
    uint64_t at = zip->directory;
    for (uint64_t i = 0; i < zip->members; i++) {
        brim_status status = read_entry(&window, at, &member, &at);
        if (status == BRIM_OK) {
            status = visit(user, &member);
        }
        if (status != BRIM_OK) {
            return status;
        }
    }
    if (at != zip->directory + zip->directory_bytes) {
        return bad(zip->file, at, "the central directory continues after its last entry");
    }
    return BRIM_OK;
}

/* ------------------------------------------------------------- one member */

static brim_status check_readable(const struct brim__zip *zip,
                                  const struct brim__zip_member *member) {
    const char *path = zip->file->path;
    const unsigned long long at = member->entry;
    if ((member->flags & (FLAG_ENCRYPTED | FLAG_STRONG | FLAG_MASKED)) != 0) {
        return brim__fail_byte(BRIM_STATUS_UNSUPPORTED, path, at,
                               "%s is encrypted: save it without a password", member->name);
    }
    if ((member->flags & FLAG_PATCHED) != 0) {
        return brim__fail_byte(BRIM_STATUS_UNSUPPORTED, path, at, "%s is a patch to another file",
                               member->name);
    }
    if (member->method != BRIM__ZIP_STORED && member->method != BRIM__ZIP_DEFLATED) {
        return brim__fail_byte(BRIM_STATUS_UNSUPPORTED, path, at,
                               "%s is compressed with method %u; known are 0 (stored) "
                               "and 8 (deflate), which numpy.savez and savez_compressed write",
                               member->name, member->method);
    }
    if (member->method == BRIM__ZIP_STORED && member->bytes != member->packed_bytes) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, path, at,
                               "%s is stored uncompressed, but with %llu bytes instead of %llu",
                               member->name, (unsigned long long)member->packed_bytes,
                               (unsigned long long)member->bytes);
    }
    return BRIM_OK;
}

static brim_status disagrees(const struct brim__zip *zip, const struct brim__zip_member *member,
                             const char *what) {
    return brim__fail_byte(BRIM_STATUS_CORRUPT, zip->file->path, member->header,
                           "the local header of %s has another %s than the central "
                           "directory",
                           member->name, what);
}

static brim_status read_local(const struct brim__zip *zip, const struct brim__zip_member *member,
                              uint64_t *data) {
    uint8_t bytes[LOCAL_BYTES + BRIM__ZIP_NAME_BYTES];
    const size_t length = strlen(member->name);
    brim_status status = brim__file_read(zip->file, member->header, bytes, LOCAL_BYTES);
    if (status != BRIM_OK) {
        return status;
    }
    if (memcmp(bytes, "PK\3\4", 4) != 0) {
        return bad(zip->file, member->header, "the local header of a member should begin here");
    }
    *data = member->header + LOCAL_BYTES + short_at(bytes + 26) + short_at(bytes + 28);
    if (*data > zip->directory || member->packed_bytes > zip->directory - *data) {
        return bad(zip->file, member->header,
                   "the member's bytes would continue into the central directory");
    }
    const uint16_t flags = short_at(bytes + 6);
    if (((flags ^ member->flags) & FLAG_ENCRYPTED) != 0 || short_at(bytes + 8) != member->method) {
        return disagrees(zip, member, "method");
    }
    if (short_at(bytes + 26) != length) {
        return disagrees(zip, member, "name");
    }
    const uint32_t packed = long_at(bytes + 18), whole = long_at(bytes + 22);
    if ((flags & FLAG_STREAMED) == 0 &&
        (long_at(bytes + 14) != member->crc ||
         (packed != SATURATED_LONG && packed != member->packed_bytes) ||
         (whole != SATURATED_LONG && whole != member->bytes))) {
        return disagrees(zip, member, "size or CRC");
    }
    status = brim__file_read(zip->file, member->header + LOCAL_BYTES, bytes, length);
    if (status != BRIM_OK) {
        return status;
    }
    return memcmp(bytes, member->name, length) == 0 ? BRIM_OK : disagrees(zip, member, "name");
}

struct neighbours {
    const struct brim__zip *zip;
    const struct brim__zip_member *member;
    uint64_t end; /* byte after the member */
};

/* Refuses two members that share bytes, a way to make a small file seem large. */
static brim_status check_apart(void *user, const struct brim__zip_member *other) {
    const struct neighbours *neighbours = user;
    const struct brim__zip_member *member = neighbours->member;
    const uint64_t other_end =
        other->header + LOCAL_BYTES + strlen(other->name) + other->packed_bytes;
    if (other->entry == member->entry || other->header >= neighbours->end ||
        other_end <= member->header) {
        return BRIM_OK;
    }
    return brim__fail_byte(BRIM_STATUS_CORRUPT, neighbours->zip->file->path, other->header,
                           "%s lies in the same bytes as %s", other->name, member->name);
}

brim_status brim__zip_locate(const struct brim__zip *zip, const struct brim__zip_member *member,
                             uint64_t *data) {
    brim_status status = check_readable(zip, member);
    if (status == BRIM_OK) {
        status = read_local(zip, member, data);
    }
    if (status != BRIM_OK) {
        return status;
    }
    struct neighbours neighbours = { .zip = zip,
                                     .member = member,
                                     .end = *data + member->packed_bytes };
    return brim__zip_walk(zip, check_apart, &neighbours);
}
