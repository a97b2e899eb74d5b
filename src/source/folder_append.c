/*
 * folder_append.c: files that are written from front to back, and read again.
 *
 * The last bytes are kept in a buffer. Written bytes can be read at once through the same
 * descriptor. A scratch file loses its name as soon as it is made, so that a process that dies
 * leaves no file.
 */
#include "source/listing.h"

#include <unistd.h>

brim_status brim__append_begin(struct brim__append_file *append, const char *path, bool scratch,
                               uint8_t *buffer, size_t room) {
    append->buffer = buffer;
    append->room = room;
    append->used = 0;
    const brim_status status = brim__new_file_begin(&append->file, path);
    append->refused = status != BRIM_OK;
    append->view = (struct brim__file){ .fd = append->file.fd, .path = path };
    if (status == BRIM_OK && scratch) {
        (void)unlink(append->file.temporary);
    }
    return status;
}

static brim_status write_out(struct brim__append_file *append, const void *bytes, size_t count) {
    const brim_status status =
        brim__new_file_write(&append->file, append->view.bytes, bytes, count);
    append->refused |= status != BRIM_OK;
    append->view.bytes += count;
    return status;
}

brim_status brim__append_flush(struct brim__append_file *append) {
    const size_t used = append->used;
    append->used = 0;
    return used == 0 ? BRIM_OK : write_out(append, append->buffer, used);
}

brim_status brim__append_bytes(struct brim__append_file *append, const void *bytes, size_t count) {
    if (count > append->room - append->used) {
        const brim_status status = brim__append_flush(append);
        if (status != BRIM_OK) {
            return status;
        }
    }
    if (count > append->room) {
        return write_out(append, bytes, count);
    }
    memcpy(append->buffer + append->used, bytes, count);
    append->used += count;
    return BRIM_OK;
}

void brim__append_abandon(struct brim__append_file *append) {
    if (append->buffer != NULL) {
        brim__new_file_abandon(&append->file);
        append->view.fd = -1;
    }
}

brim_status brim__forward_peek(struct brim__forward_reader *reader, size_t bytes,
                               const uint8_t **data) {
    assert(bytes <= reader->room);
    const size_t rest = reader->have - reader->from;
    if (rest < bytes) {
        const size_t more = (size_t)brim__min(reader->room - rest, reader->end - reader->at);
        if (more < bytes - rest) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "%s: ends at byte %llu in the middle of a record", reader->file->path,
                              (unsigned long long)reader->end);
        }
        memmove(reader->buffer, reader->buffer + reader->from, rest);
        reader->from = 0;
        reader->have = rest;
        const brim_status status =
            brim__file_read(reader->file, reader->at, reader->buffer + rest, more);
        if (status != BRIM_OK) {
            return status;
        }
        reader->at += more;
        reader->have += more;
    }
    *data = reader->buffer + reader->from;
    return BRIM_OK;
}
