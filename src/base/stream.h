/*
 * stream.h: bytes that come one after the other: pipes, sockets, terminals.
 *
 * "-" is standard input, whatever it is. Reading never waits longer than the given deadline. A
 * regular file that was given as standard input is read by position, so that it can be read again
 * and its descriptor's own position, which other processes may share, stays where it is.
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
/* Reads what is available, 1 .. bytes. Waits for it until brim__now() is deadline_ns, then fails
 * with BRIM_STATUS_TIMEOUT. *got is 0 at the end of the stream. */
brim_status brim__stream_read(struct brim__stream *stream, void *buffer, size_t bytes,
                              uint64_t deadline_ns, size_t *got);
/* Back to where it was when opened; only if seekable. */
void brim__stream_rewind(struct brim__stream *stream);
/* The name of the stream in messages. */
const char *brim__stream_name(const char *path);

#endif
