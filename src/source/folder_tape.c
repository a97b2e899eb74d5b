/*
 * folder_tape.c: files that are written from front to back, and read again.
 *
 * The last bytes wait in a buffer; what is written can be read at once, by its
 * descriptor. A scratch file loses its name as soon as it is made, so that a
 * process that dies leaves nothing behind.
 */
#include "source/folder.h"

#include <unistd.h>

brim_status brim__tape_begin(struct brim__tape *tape, const char *path, bool scratch,
                             uint8_t *buffer, size_t room) {
    tape->buffer = buffer;
    tape->room = room;
    tape->used = 0;
    const brim_status status = brim__new_file_begin(&tape->file, path);
    tape->refused = status != BRIM_OK;
    tape->view = (struct brim__file){ .fd = tape->file.fd, .path = path };
    if (status == BRIM_OK && scratch) {
        (void)unlink(tape->file.temporary);
    }
    return status;
}

static brim_status write_out(struct brim__tape *tape, const void *bytes, size_t count) {
    const brim_status status = brim__new_file_write(&tape->file, tape->view.bytes, bytes, count);
    tape->refused |= status != BRIM_OK;
    tape->view.bytes += count;
    return status;
}

brim_status brim__tape_flush(struct brim__tape *tape) {
    const size_t used = tape->used;
    tape->used = 0;
    return used == 0 ? BRIM_OK : write_out(tape, tape->buffer, used);
}

brim_status brim__tape_append(struct brim__tape *tape, const void *bytes, size_t count) {
    if (count > tape->room - tape->used) {
        const brim_status status = brim__tape_flush(tape);
        if (status != BRIM_OK) {
            return status;
        }
    }
    if (count > tape->room) {
        return write_out(tape, bytes, count);
    }
    memcpy(tape->buffer + tape->used, bytes, count);
    tape->used += count;
    return BRIM_OK;
}

void brim__tape_abandon(struct brim__tape *tape) {
    if (tape->buffer != NULL) {
        brim__new_file_abandon(&tape->file);
        tape->view.fd = -1;
    }
}

brim_status brim__tape_peek(struct brim__tape_reader *reader, size_t bytes, const uint8_t **data) {
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
