/*
 * format_data.c: files of every format, written byte by byte.
 */
#include "support/format_data.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#define ROWS      60
#define WIDTH     8
#define DOCUMENTS 40
#define MOST_IDS  8

static char text[65536];
static size_t text_bytes;

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void add(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text + text_bytes, sizeof text - text_bytes, format, arguments);
    va_end(arguments);
    assert_true(length >= 0 && text_bytes + (size_t)length < sizeof text);
    text_bytes += (size_t)length;
}

static void write_text(const char *name) {
    write_file(name, text, text_bytes);
    text_bytes = 0;
}

static void write_lines(void) {
    for (unsigned i = 0; i < 60; i++) {
        add("line %u%.*s\n", i, (int)(i % 30), " of a text that goes on for a while");
    }
    write_text("lines.txt");
    add("label,score,name\n");
    for (unsigned i = 0; i < 24; i++) {
        add("%u,%u.25,\"name, \"\"%u\"\"\"\n", i % 3, i * 7 % 100, i);
    }
    write_text("table.csv");
    for (unsigned i = 0; i < 24; i++) {
        add("{\"label\": %u, \"ids\": [", i % 4);
        for (unsigned k = 0; k < i % (MOST_IDS + 1); k++) {
            add("%s%u", k == 0 ? "" : ", ", i * 10 + k);
        }
        add("], \"text\": \"d\\u00e9 %u\"}\n", i);
    }
    write_text("documents.jsonl");
    for (unsigned i = 0; i < 30; i++) {
        add("%u\n", i * 17 % ROWS);
    }
    write_text("chosen.txt");
}

static void write_numbers(void) {
    int64_t numbers[30];
    for (int64_t i = 0; i < 30; i++) {
        numbers[i] = i * 13 % ROWS;
    }
    write_npy("chosen.npy", BRIM_DTYPE_I64, 1, (const int64_t[]){ 30 }, numbers);
}

/* -------------------------------------------------------------- containers */

/* Raw deflate or gzip; returns the bytes in `to`. */
static size_t compress_to(uint8_t *to, size_t room, const void *from, size_t bytes, int window) {
    z_stream stream;
    memset(&stream, 0, sizeof stream);
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (z_const Bytef *)from;
    stream.avail_in = (uInt)bytes;
    stream.next_out = to;
    stream.avail_out = (uInt)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    assert_int_equal(deflateEnd(&stream), Z_OK);
    return stream.total_out;
}

static uint8_t *put(uint8_t *to, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        *to++ = (uint8_t)(value >> (8 * i));
    }
    return to;
}

/* What the local header and the directory say alike. */
static uint8_t *put_entry(uint8_t *to, bool deflated, uint32_t crc, size_t packed, size_t bytes,
                          size_t name) {
    to = put(to, 20, 2);
    to = put(to, 0, 2);
    to = put(to, deflated ? 8 : 0, 2);
    to = put(to, 0x21 << 16, 4); /* 1 January 1980 */
    to = put(to, crc, 4);
    to = put(to, packed, 4);
    to = put(to, bytes, 4);
    to = put(to, name, 2);
    return put(to, 0, 2);
}

/* A zip file with one member, x.npy. */
static void write_npz(const char *name, const uint8_t *member, size_t bytes, bool deflated) {
    static const char member_name[] = "x.npy";
    static uint8_t file[16384];
    const size_t named = sizeof member_name - 1;
    const uint32_t crc = (uint32_t)crc32(0, member, (uInt)bytes);
    uint8_t packed[8192];
    size_t packed_bytes = bytes;
    if (deflated) {
        packed_bytes = compress_to(packed, sizeof packed, member, bytes, -15);
    }
    uint8_t *to = put(file, 0x04034b50, 4);
    to = put_entry(to, deflated, crc, packed_bytes, bytes, named);
    memcpy(to, member_name, named);
    to += named;
    memcpy(to, deflated ? packed : member, packed_bytes);
    to += packed_bytes;
    const uint8_t *directory = to;
    to = put(to, 0x02014b50, 4);
    to = put(to, 20, 2);
    to = put_entry(to, deflated, crc, packed_bytes, bytes, named);
    memset(to, 0, 14); /* no comment, first disk, no attributes, local header at 0 */
    to += 14;
    memcpy(to, member_name, named);
    to += named;
    const uint64_t directory_bytes = (uint64_t)(to - directory);
    to = put(to, 0x06054b50, 4);
    to = put(to, 0, 4);
    to = put(to, 1, 2);
    to = put(to, 1, 2);
    to = put(to, directory_bytes, 4);
    to = put(to, (uint64_t)(directory - file), 4);
    to = put(to, 0, 2);
    write_file(name, file, (size_t)(to - file));
}

static void write_tensors(void) {
    static float values[ROWS][WIDTH];
    static uint8_t file[192 + sizeof values];
    for (size_t i = 0; i < ROWS; i++) {
        for (size_t k = 0; k < WIDTH; k++) {
            values[i][k] = (float)i + (float)k / 16;
        }
    }
    write_npy("member.npy", BRIM_DTYPE_F32, 2, (const int64_t[]){ ROWS, WIDTH }, values);
    FILE *member = fopen(in_directory("member.npy").text, "rbe");
    assert_non_null(member);
    assert_int_equal(fread(file, 1, sizeof file, member), sizeof file);
    fclose(member);
    write_npz("stored.npz", file, sizeof file, false);
    write_npz("deflated.npz", file, sizeof file, true);

    static uint8_t tensors[256 + sizeof values];
    char header[128];
    const int length =
        snprintf(header, sizeof header,
                 "{\"x\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]}}", ROWS,
                 WIDTH, sizeof values);
    put(tensors, (uint64_t)length, 8);
    memcpy(tensors + 8, header, (size_t)length);
    memcpy(tensors + 8 + length, values, sizeof values);
    write_file("x.safetensors", tensors, 8 + (size_t)length + sizeof values);
}

static void write_images(void) {
    static uint8_t images[16 + 50 * 36] = { 0, 0, 8, 3, 0, 0, 0, 50, 0, 0, 0, 6, 0, 0, 0, 6 };
    static uint8_t packed[4096], cifar[12][3073], raw[200][7];
    fill_random(images + 16, sizeof images - 16, 4);
    write_file("images.idx", images, sizeof images);
    write_file("images.idx.gz", packed,
               compress_to(packed, sizeof packed, images, sizeof images, 31));
    fill_random(cifar, sizeof cifar, 5);
    for (size_t i = 0; i < 12; i++) {
        cifar[i][0] = (uint8_t)(i % 10);
    }
    write_file("cifar.bin", cifar, sizeof cifar);
    fill_random(raw, sizeof raw, 6);
    write_file("raw.bin", raw, sizeof raw);
}

int begin_format_tests(void **state) {
    if (begin_tests_in_memory(state) != 0) {
        return -1;
    }
    write_lines();
    write_numbers();
    write_tensors();
    write_images();
    return 0;
}

/* --------------------------------------------------------------- functions */

static const brim_field_spec document_fields[] = {
    { .size = sizeof(brim_field_spec), .name = "number", .dtype = BRIM_DTYPE_I64 },
    { .size = sizeof(brim_field_spec),
      .name = "ids",
      .dtype = BRIM_DTYPE_I32,
      .rank = 1,
      .shape = { MOST_IDS },
      .form = BRIM_FORM_RAGGED },
};
static int64_t next_document;

void rewind_documents(void) {
    next_document = 0;
}

static int pull_document(void *user, brim_value *outputs, size_t output_count, char *why,
                         size_t why_bytes) {
    (void)user, (void)output_count, (void)why, (void)why_bytes;
    const int64_t number = next_document, count = number % (MOST_IDS + 1);
    if (number == DOCUMENTS) {
        return 0;
    }
    next_document++;
    memcpy(outputs[0].data, &number, sizeof number);
    for (int32_t i = 0; i < count; i++) {
        memcpy((char *)outputs[1].data + (size_t)i * sizeof i, &i, sizeof i);
    }
    outputs[1].shape[0] = count;
    return 1;
}

static int reopen_documents(void *user, uint64_t epoch, uint64_t sample, char *why,
                            size_t why_bytes) {
    (void)user, (void)epoch, (void)why, (void)why_bytes;
    next_document = (int64_t)sample;
    return 0;
}

static int64_t first_integer(const brim_value *value) {
    int64_t number;
    memcpy(&number, value->data, sizeof number);
    return number;
}

static int keep_even(void *user, const brim_call *call, const brim_value *inputs,
                     size_t input_count, char *why, size_t why_bytes) {
    (void)user, (void)call, (void)input_count, (void)why, (void)why_bytes;
    return first_integer(&inputs[0]) % 2 == 0;
}

static int make_two(void *user, const brim_call *call, uint64_t index, const brim_value *inputs,
                    size_t input_count, brim_value *outputs, size_t output_count, char *why,
                    size_t why_bytes) {
    (void)user, (void)call, (void)input_count, (void)output_count, (void)why, (void)why_bytes;
    const int64_t number = first_integer(&inputs[0]) * 10 + (int64_t)index;
    memcpy(outputs[0].data, &number, sizeof number);
    return index < 2;
}

/* Of each row's first number its double, in a field of its own. */
static int double_all(void *user, const brim_call *call, brim_value *inputs, size_t input_count,
                      brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)call, (void)input_count, (void)output_count, (void)why, (void)why_bytes;
    for (int64_t row = 0; row < inputs[0].shape[0]; row++) {
        ((int64_t *)outputs[0].data)[row] = 2 * ((const int64_t *)inputs[0].data)[row];
    }
    return 0;
}

static const brim_binding bindings[] = {
    { .size = sizeof(brim_binding),
      .name = "documents",
      .kind = BRIM_BINDING_STREAM,
      .fields = document_fields,
      .field_count = 2,
      .pull = pull_document,
      .reopen = reopen_documents },
    { .size = sizeof(brim_binding),
      .name = "even",
      .kind = BRIM_BINDING_FILTER,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
      .filter = keep_even },
    { .size = sizeof(brim_binding),
      .name = "twice",
      .kind = BRIM_BINDING_FLAT_MAP,
      .count = 2,
      .fields = document_fields,
      .field_count = 1,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
      .flat_map = make_two },
    { .size = sizeof(brim_binding),
      .name = "double",
      .kind = BRIM_BINDING_BATCH_MAP,
      .fields = document_fields,
      .field_count = 1,
      .flags = BRIM_CALLBACK_PURE,
      .batch_map = double_all },
};

brim_open_options format_options(void) {
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.label = "formats";
    options.bindings = bindings;
    options.binding_count = sizeof bindings / sizeof bindings[0];
    return options;
}
