/*
 * stream.c: access to pipes, sockets, terminals and standard input.
 *
 * A pipe is opened without blocking, because its writer may come later or
 * never; it has ended when a writer came and all have gone. The system tells
 * the two apart when asked by poll(), which is therefore called before every
 * read.
 */
#include "base/stream.h"
#include "base/fault.h"
#include "base/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static bool is_standard_input(const char *path) {
    return strcmp(path, "-") == 0;
}

const char *brim__stream_name(const char *path) {
    return is_standard_input(path) ? "standard input" : path;
}

bool brim__stream_is(const char *path) {
    struct stat facts;
    return is_standard_input(path) ||
           (stat(path, &facts) == 0 &&
            (S_ISFIFO(facts.st_mode) || S_ISSOCK(facts.st_mode) || S_ISCHR(facts.st_mode)));
}

static int connect_to(const char *path) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (!brim__copy_text(address.sun_path, sizeof address.sun_path, path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        const int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static int open_once(const char *path) {
    struct stat facts;
    if (brim__fault(BRIM__FAULT_OPEN)) {
        errno = EMFILE;
        return -1;
    }
    if (is_standard_input(path)) {
        return fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    }
    if (stat(path, &facts) == 0 && S_ISSOCK(facts.st_mode)) {
        return connect_to(path);
    }
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

brim_status brim__stream_open(struct brim__stream *stream, const char *path) {
    char why[BRIM__ERROR_TEXT];
    *stream = (struct brim__stream){ .fd = -1, .path = path };
    int fd;
    do {
        fd = open_once(path);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        const brim_status status =
            brim__fail(BRIM_STATUS_IO, "%s: cannot be opened: %s", brim__stream_name(path),
                       brim__error_text(errno, why));
        return brim__at_source(status, brim__stream_name(path));
    }
    struct stat facts;
    if (brim__fault(BRIM__FAULT_OPEN) || fstat(fd, &facts) != 0 || S_ISDIR(facts.st_mode)) {
        close(fd);
        return brim__fail(BRIM_STATUS_IO, "%s: cannot be read as a stream of bytes",
                          brim__stream_name(path));
    }
    const off_t position = S_ISREG(facts.st_mode) ? lseek(fd, 0, SEEK_CUR) : -1;
    stream->fd = fd;
    stream->seekable = position >= 0;
    stream->start = stream->at = position >= 0 ? (uint64_t)position : 0;
    return BRIM_OK;
}

void brim__stream_close(struct brim__stream *stream) {
    if (stream->fd >= 0) {
        close(stream->fd);
    }
    stream->fd = -1;
}

/* false: the deadline came first. */
static bool wait_for_bytes(int fd, uint64_t deadline_ns) {
    const uint64_t second = 1000000000;
    for (;;) {
        struct pollfd wanted = { .fd = fd, .events = POLLIN };
        const uint64_t now = brim__now();
        const uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
        const struct timespec wait = { .tv_sec = (time_t)(left / second),
                                       .tv_nsec = (long)(left % second) };
        const int ready = ppoll(&wanted, 1, deadline_ns == UINT64_MAX ? NULL : &wait, NULL);
        if (ready > 0 || (ready < 0 && errno != EINTR)) {
            return true; /* reading says what is wrong */
        }
        if (ready == 0) {
            return false;
        }
    }
}

static ssize_t read_once(const struct brim__stream *stream, void *buffer, size_t bytes) {
    if (brim__fault(BRIM__FAULT_READ)) {
        errno = EIO;
        return -1;
    }
    return stream->seekable ? pread(stream->fd, buffer, bytes, (off_t)stream->at)
                            : read(stream->fd, buffer, bytes);
}

brim_status brim__stream_read(struct brim__stream *stream, void *buffer, size_t bytes,
                              uint64_t deadline_ns, size_t *got) {
    for (;;) {
        if (!stream->seekable && !wait_for_bytes(stream->fd, deadline_ns)) {
            return brim__fail(BRIM_STATUS_TIMEOUT, "%s: no data came in time",
                              brim__stream_name(stream->path));
        }
        const ssize_t count = read_once(stream, buffer, bytes);
        if (count >= 0) {
            stream->at += (uint64_t)count;
            *got = (size_t)count;
            return BRIM_OK;
        }
        if (errno != EINTR && errno != EAGAIN) {
            char why[BRIM__ERROR_TEXT];
            return brim__fail(BRIM_STATUS_IO, "%s: cannot be read: %s",
                              brim__stream_name(stream->path), brim__error_text(errno, why));
        }
    }
}

void brim__stream_rewind(struct brim__stream *stream) {
    assert(stream->seekable);
    stream->at = stream->start;
}
