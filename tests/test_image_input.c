/*
 * test_image_input.c: encoded bytes in memory and through a window, and what the
 * bytes of other files are said to be.
 */
#include "support/support.h"

#include "base/fault.h"
#include "image/decode.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 3 * BRIM__INPUT_WINDOW + 777, BEFORE = 123 };

static uint8_t content[BEFORE + BYTES + 50];
static uint8_t window[BRIM__INPUT_WINDOW];

struct opened {
    struct brim__file file;
    struct path path;
    struct brim__input input;
};

static void open_content(struct opened *opened) {
    fill_random(content, sizeof content, 3);
    write_file("content", content, sizeof content);
    opened->path = in_directory("content");
    assert_int_equal(brim__file_open(&opened->file, opened->path.text), BRIM_OK);
    brim__input_file(&opened->input, &opened->file, BEFORE, BYTES, window);
}

static void pieces_by_offset_are_the_bytes(void **state) {
    (void)state;
    struct opened opened;
    struct brim__input memory;
    uint64_t random = 5;
    open_content(&opened);
    brim__input_memory(&memory, content + BEFORE, BYTES);
    for (int i = 0; i < 3000; i++) {
        const size_t bytes = next_random(&random) % (i % 10 == 0 ? BRIM__INPUT_WINDOW + 1 : 100);
        const uint64_t at = next_random(&random) % (BYTES - bytes + 1);
        const uint8_t *data;
        assert_int_equal(brim__input_at(&opened.input, at, bytes, &data), BRIM_OK);
        assert_memory_equal(data, content + BEFORE + at, bytes);
        assert_int_equal(brim__input_at(&memory, at, bytes, &data), BRIM_OK);
        assert_ptr_equal(data, content + BEFORE + at);
    }
    brim__file_close(&opened.file);
}

static void the_next_pieces_are_all_bytes(void **state) {
    (void)state;
    struct opened opened;
    struct brim__input memory;
    const uint8_t *data;
    size_t bytes;
    open_content(&opened);
    /* a look at the begin leaves the window filled, and does not move `next` */
    assert_int_equal(brim__input_at(&opened.input, 10, 20, &data), BRIM_OK);
    for (int round = 0; round < 2; round++) {
        uint64_t at = round == 0 ? 0 : 70000;
        brim__input_seek(&opened.input, at);
        do {
            assert_int_equal(brim__input_next(&opened.input, &data, &bytes), BRIM_OK);
            assert_memory_equal(data, content + BEFORE + at, bytes);
            at += bytes;
        } while (bytes > 0);
        assert_int_equal(at, BYTES);
    }
    brim__input_seek(&opened.input, UINT64_MAX);
    assert_int_equal(brim__input_next(&opened.input, &data, &bytes), BRIM_OK);
    assert_int_equal(bytes, 0);
    brim__input_memory(&memory, content, BYTES);
    for (uint64_t at = 0; at < BYTES; at += bytes) {
        assert_int_equal(brim__input_next(&memory, &data, &bytes), BRIM_OK);
        assert_int_equal(bytes, brim__min(BYTES - at, BRIM__INPUT_WINDOW));
        assert_ptr_equal(data, content + at);
    }
    assert_int_equal(brim__input_next(&memory, &data, &bytes), BRIM_OK);
    assert_int_equal(bytes, 0);
    /* whoever is to stop gets no more of either */
    atomic_bool flag = true;
    struct brim__stop stop = { .flag = &flag };
    memory.stop = opened.input.stop = &stop;
    brim__input_seek(&memory, 0);
    assert_int_equal(brim__input_next(&memory, &data, &bytes), BRIM_STATUS_INTERRUPTED);
    brim__input_seek(&opened.input, 0);
    assert_int_equal(brim__input_next(&opened.input, &data, &bytes), BRIM_STATUS_INTERRUPTED);
    brim__file_close(&opened.file);
}

static void past_the_end_is_refused(void **state) {
    (void)state;
    struct opened opened;
    struct brim__input memory;
    const uint8_t *data;
    open_content(&opened);
    brim__input_memory(&memory, content, BYTES);
    struct brim__input *const inputs[] = { &opened.input, &memory };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(brim__input_at(inputs[i], BYTES, 0, &data), BRIM_OK);
        assert_int_equal(brim__input_at(inputs[i], BYTES - 3, 4, &data), BRIM_STATUS_CORRUPT);
        assert_detail_has("ends after 197385 bytes; 4 are needed at byte 197382");
        assert_int_equal(brim__input_at(inputs[i], UINT64_MAX, 2, &data), BRIM_STATUS_CORRUPT);
        assert_int_equal(brim__input_at(inputs[i], BYTES - 3, 3, &data), BRIM_OK);
    }
    /* a file that is shorter than it should be */
    size_t bytes;
    brim__input_file(&opened.input, &opened.file, BEFORE, BYTES + 1000, window);
    brim__input_seek(&opened.input, BYTES);
    assert_int_equal(brim__input_next(&opened.input, &data, &bytes), BRIM_STATUS_CORRUPT);
    brim__input_file(&opened.input, &opened.file, UINT64_MAX, 10, window);
    assert_int_equal(brim__input_at(&opened.input, 5, 1, &data), BRIM_STATUS_CORRUPT);
    brim__file_close(&opened.file);
}

static void a_failed_read_leaves_nothing_behind(void **state) {
    (void)state;
    struct opened opened;
    const uint8_t *data;
    size_t bytes;
    open_content(&opened);
    assert_int_equal(brim__input_at(&opened.input, 0, 100, &data), BRIM_OK);
    brim__fault_arm(1u << BRIM__FAULT_READ, 1, false);
    assert_int_equal(brim__input_at(&opened.input, 100000, 100, &data), BRIM_STATUS_IO);
    brim__fault_arm(1u << BRIM__FAULT_READ, 1, false);
    assert_int_equal(brim__input_next(&opened.input, &data, &bytes), BRIM_STATUS_IO);
    brim__fault_arm(0, 0, false);
    assert_int_equal(brim__input_at(&opened.input, 0, 100, &data), BRIM_OK);
    assert_memory_equal(data, content + BEFORE, 100);
    assert_int_equal(brim__input_next(&opened.input, &data, &bytes), BRIM_OK);
    assert_memory_equal(data, content + BEFORE, bytes);
    brim__file_close(&opened.file);
}

static void what_is_no_image_is_named(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t count;
        const char *says;
    } cases[] = {
        { "", 0, "is not a JPEG, PNG or WebP image: it is empty" },
        { "GIF89a\1\0", 8, "is not a JPEG, PNG or WebP image (begins with 47 49 46 38, a GIF)" },
        { "BM\x36\0\0\0", 6, "a BMP" },
        { "II*\0\x08\0\0\0", 8, "a TIFF" },
        { "MM\0*\0\0\0\x08", 8, "a TIFF" },
        { "P6\n1 1\n255\n", 11, "a PNM" },
        { "\0\0\0\x1c"
          "ftypavif\0\0\0\0",
          16, "an AVIF" },
        { "\0\0\0\x18"
          "ftypheic\0\0\0\0",
          16, "a HEIC" },
        { "<!DOCTYPE html>", 15, "an HTML page" },
        { "<html><body>", 12, "an HTML page" },
        { "\x89PNG\n\x1a\n\0\0\0\rIHDR", 15, "a PNG whose line ends were changed in transfer" },
        { "RIFF\x24\0\0\0WAVEfmt ", 16, "a RIFF file that is not a WebP" },
        { "\0\0\0\0\0\0\0\0\0\0", 10, "zeros" },
        { "\xff\xd8", 2, "(begins with ff d8)" },
        { "x", 1, "(begins with 78)" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct brim__input input;
        struct brim__image_info info = { .width = 77 };
        uint8_t *copy = malloc(cases[i].count + 1);
        memcpy(copy, cases[i].bytes, cases[i].count);
        brim__input_memory(&input, copy, cases[i].count);
        assert_int_equal(brim__image_info(&input, true, &info), BRIM_STATUS_CORRUPT);
        assert_detail_has(cases[i].says);
        assert_int_equal(info.width, 77);
        free(copy);
    }
}

static void formats_have_names(void **state) {
    (void)state;
    assert_string_equal(brim__image_format_name(BRIM__IMAGE_JPEG), "JPEG");
    assert_string_equal(brim__image_format_name(BRIM__IMAGE_PNG), "PNG");
    assert_string_equal(brim__image_format_name(BRIM__IMAGE_WEBP), "WebP");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_by_offset_are_the_bytes),
        cmocka_unit_test(the_next_pieces_are_all_bytes),
        cmocka_unit_test(past_the_end_is_refused),
        cmocka_unit_test(a_failed_read_leaves_nothing_behind),
        cmocka_unit_test(what_is_no_image_is_named),
        cmocka_unit_test(formats_have_names),
    };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}
