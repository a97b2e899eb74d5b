/*
 * files.c: the group's directory and alarm, and the files that tests read.
 */
#include "support/support.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WATCHDOG_SECONDS 1100 /* before ctest loses patience, so that a debugger may catch it */

static char directory[64];

static int begin_in(const char *place) {
    alarm(WATCHDOG_SECONDS); /* its default action ends the process */
    snprintf(directory, sizeof directory, "%s/brim-engine-XXXXXX", place);
    return mkdtemp(directory) == NULL ? -1 : 0;
}

int begin_tests(void **state) {
    (void)state;
    return begin_in("/tmp");
}

int begin_tests_in_memory(void **state) {
    (void)state;
    return begin_in(access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp");
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *place) {
    (void)about;
    (void)kind;
    (void)place;
    return remove(path);
}

int end_tests(void **state) {
    (void)state;
    alarm(0);
    return nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *format_text(char text[TEXT_BYTES], const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, TEXT_BYTES, format, arguments);
    va_end(arguments);
    assert_true(length >= 0 && length < TEXT_BYTES);
    return text;
}

struct path in_directory(const char *name) {
    struct path path;
    const int length = snprintf(path.text, sizeof path.text, "%s/%s", directory, name);
    assert_true(length > 0 && (size_t)length < sizeof path.text);
    return path;
}

void write_file(const char *name, const void *data, size_t bytes) {
    const int fd = open(in_directory(name).text, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), bytes);
    assert_int_equal(close(fd), 0);
}

static const char *npy_dtype(brim_dtype dtype) {
    static const char *const names[] = {
        [BRIM_DTYPE_BOOL] = "|b1", [BRIM_DTYPE_U8] = "|u1",  [BRIM_DTYPE_I8] = "|i1",
        [BRIM_DTYPE_U16] = "<u2",  [BRIM_DTYPE_I16] = "<i2", [BRIM_DTYPE_U32] = "<u4",
        [BRIM_DTYPE_I32] = "<i4",  [BRIM_DTYPE_U64] = "<u8", [BRIM_DTYPE_I64] = "<i8",
        [BRIM_DTYPE_F16] = "<f2",  [BRIM_DTYPE_F32] = "<f4", [BRIM_DTYPE_F64] = "<f8",
    };
    assert_true((size_t)dtype < sizeof names / sizeof names[0] && names[dtype] != NULL);
    return names[dtype];
}

void write_npy(const char *name, brim_dtype dtype, uint32_t rank, const int64_t *shape,
               const void *data) {
    enum { HEADER = 192, DICT = HEADER - 10 };
    unsigned char header[HEADER];
    char text[DICT + 1];
    size_t bytes = brim_dtype_bytes(dtype);
    int length = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                          npy_dtype(dtype));
    for (uint32_t i = 0; i < rank; i++) {
        length +=
            snprintf(text + length, sizeof text - (size_t)length, "%lld, ", (long long)shape[i]);
        bytes *= (size_t)shape[i];
    }
    length += snprintf(text + length, sizeof text - (size_t)length, "), }");
    assert_true(length > 0 && length < DICT);
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = DICT & 255;
    header[9] = DICT >> 8;
    memset(header + 10, ' ', DICT);
    memcpy(header + 10, text, (size_t)length);
    header[HEADER - 1] = '\n';

    const int fd = open(in_directory(name).text, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, header, sizeof header), sizeof header);
    assert_int_equal(write(fd, data, bytes), bytes);
    assert_int_equal(close(fd), 0);
}

uint64_t next_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

void fill_random(void *data, size_t bytes, uint64_t seed) {
    uint64_t state = seed * 2 + 1;
    unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(next_random(&state) >> 40);
    }
}
