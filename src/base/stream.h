/*
 * stream.h: bytes that come one after the other: pipes, sockets, terminals.
 *
 * "-" is standard input, whatever it is. Reading never waits longer than it is
 * told to. A regular file that was given as standard input is read by position,
 * so that it can be read again and its descriptor's own position, which other
 * processes may share, stays where it is.
 */
#ifndef BRIM_STREAM_H
#define BRIM_STREAM_H

#include "base/base.h"

struct brim__stream {
    int fd;           /* -1: not open */
    const char *path; /* must outlive it; "-" in messages: standard input */
    bool seekable;
    uint64_t start, at; /* seekable: position of the first byte and of the next */
};

/* "-", or the path of a pipe, a socket or a character device. */
bool brim__stream_is(const char *path);
brim_status brim__stream_open(struct brim__stream *stream, const char *path);
void brim__stream_close(struct brim__stream *stream); /* harmless twice */
/* What there is, 1 .. bytes of it, waiting until deadline_ns of brim__now() at
 * most: then BRIM_STATUS_TIMEOUT. *got is 0 at the end. */
brim_status brim__stream_read(struct brim__stream *stream, void *buffer, size_t bytes,
                              uint64_t deadline_ns, size_t *got);
/* Back to where it was when opened; only if seekable. */
void brim__stream_rewind(struct brim__stream *stream);
/* What to call it. */
const char *brim__stream_name(const char *path);

#endif
