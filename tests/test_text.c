/*
 * test_text.c: the stage `text`, and what is UTF-8.
 */
#include "source_util.h"

#include "base/utf8.h"

/* ------------------------------------------------------------------- UTF-8 */

/* Writes the character in the one way that is allowed. */
static size_t encode(uint32_t character, uint8_t *to) {
    if (character < 0x80) {
        to[0] = (uint8_t)character;
        return 1;
    }
    if (character < 0x800) {
        to[0] = (uint8_t)(0xC0 | character >> 6);
        to[1] = (uint8_t)(0x80 | (character & 63));
        return 2;
    }
    if (character < 0x10000) {
        to[0] = (uint8_t)(0xE0 | character >> 12);
        to[1] = (uint8_t)(0x80 | (character >> 6 & 63));
        to[2] = (uint8_t)(0x80 | (character & 63));
        return 3;
    }
    to[0] = (uint8_t)(0xF0 | character >> 18);
    to[1] = (uint8_t)(0x80 | (character >> 12 & 63));
    to[2] = (uint8_t)(0x80 | (character >> 6 & 63));
    to[3] = (uint8_t)(0x80 | (character & 63));
    return 4;
}

static bool is_surrogate(uint32_t character) {
    return character >= 0xD800 && character < 0xE000;
}

static void test_every_character_is_known(void **state) {
    (void)state;
    uint8_t bytes[16];
    for (uint32_t character = 0; character < 0x110000; character++) {
        memset(bytes, 'a', sizeof bytes);
        const size_t length = encode(character, bytes + 5);
        const size_t valid = brim__utf8_valid(bytes, 5 + length);
        if (valid != (is_surrogate(character) ? 5 : 5 + length)) {
            fail_msg("U+%04X: %zu of %zu bytes are valid", character, valid, 5 + length);
        }
        /* cut short it is none */
        if (length > 1 && brim__utf8_valid(bytes, 5 + length - 1) != 5) {
            fail_msg("U+%04X, cut short, is taken", character);
        }
    }
}

/* All sequences of three bytes: valid ones are those that some characters are
 * written as, which a table of all characters' bytes says. */
static void test_nothing_else_is_known(void **state) {
    (void)state;
    uint8_t bytes[4];
    for (uint32_t three = 0; three < 1u << 24; three += 1 + three % 3) {
        bytes[0] = (uint8_t)(three >> 16);
        bytes[1] = (uint8_t)(three >> 8);
        bytes[2] = (uint8_t)three;
        size_t wanted = 0;
        while (wanted < 3) {
            /* decode as if it were right, and look whether encoding gives it back */
            const uint8_t first = bytes[wanted];
            const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
            uint8_t again[4];
            if (wanted + length > 3) {
                break;
            }
            uint32_t character = length == 1 ? first : first & (0x7Fu >> length);
            for (size_t i = 1; i < length; i++) {
                character = character << 6 | (bytes[wanted + i] & 63);
            }
            if (is_surrogate(character) || encode(character, again) != length ||
                memcmp(again, bytes + wanted, length) != 0) {
                break;
            }
            wanted += length;
        }
        const size_t valid = brim__utf8_valid(bytes, 3);
        if (valid != wanted) {
            fail_msg("%06x: %zu bytes are said to be valid, not %zu", three, valid, wanted);
        }
    }
    const uint8_t too_high[] = { 0xF4, 0x90, 0x80, 0x80 }, too_long[] = { 0xF0, 0x8F, 0xBF, 0xBF };
    assert_int_equal(brim__utf8_valid(too_high, 4), 0);
    assert_int_equal(brim__utf8_valid(too_long, 4), 0);
    assert_int_equal(brim__utf8_valid(too_high, 0), 0);
}

/* ------------------------------------------------------------------- stage */

static void use_text(struct test_use *use, const char *path) {
    use_init(use, &brim__stage_text);
    use_set(use, "files", path);
    use_set(use, "index", "beside");
}

static void assert_line(const struct brim__source *source, uint64_t sample, const char *line) {
    uint8_t *buffer = new_buffer(source, 1);
    const uint8_t *record;
    struct brim__span span;
    uint64_t got;
    assert_int_equal(fetch_run(source, sample, 1, buffer, &record, &got), BRIM_OK);
    memcpy(&span, record + source->field[0].view.offset, sizeof span);
    assert_int_equal(span.count, strlen(line));
    assert_memory_equal(span.data, line, span.count);
    assert_true(span.count <= source->field[0].view.shape.dim[0]);
    free(buffer);
}

static void test_lines_become_samples(void **state) {
    (void)state;
    const struct path path = scratch_path("text");
    const char *const text = "\xEF\xBB\xBF"
                             "first\r\n\nth\xC3\xAFrd\nlast";
    struct test_use use;
    struct opened opened;
    write_file(path.text, text, strlen(text));
    use_text(&use, path.text);
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
    const struct brim__source *source = &opened.source;
    assert_int_equal(source->count, 4);
    assert_int_equal(source->field_count, 1);
    assert_string_equal(source->field[0].name, "text");
    assert_int_equal(source->field[0].form, BRIM_FORM_TEXT);
    assert_int_equal(source->field[0].view.dtype, BRIM_DTYPE_U8);
    assert_int_equal(source->field[0].view.shape.rank, 1);
    assert_int_equal(source->field[0].view.shape.dim[0], 6); /* the longest */
    assert_true(source->is_file && !source->in_memory && !source->stream);
    const char *const lines[] = { "first", "", "th\xC3\xAFrd", "last" };
    for (uint64_t i = 0; i < 4; i++) {
        assert_line(source, i, lines[i]);
    }
    close_opened(&opened);
}

static void test_text_must_be_utf8(void **state) {
    (void)state;
    const struct path path = scratch_path("latin");
    struct test_use use;
    struct opened opened;
    write_file(path.text, "good\nna\xEFve\ngood again\n", 22);
    use_text(&use, path.text);
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
    uint8_t *buffer = new_buffer(&opened.source, 3);
    const uint8_t *records;
    uint64_t got;
    assert_int_equal(fetch_run(&opened.source, 0, 3, buffer, &records, &got), BRIM_OK);
    assert_int_equal(got, 1);
    assert_int_equal(fetch_run(&opened.source, 1, 2, buffer, &records, &got), BRIM_STATUS_CORRUPT);
    assert_detail_has("byte 2 of the line (0xef)");
    assert_detail_has("form=bytes");
    assert_line(&opened.source, 2, "good again");
    free(buffer);
    close_opened(&opened);

    use_set(&use, "form", "bytes");
    use_set(&use, "name", "line");
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
    assert_string_equal(opened.source.field[0].name, "line");
    assert_int_equal(opened.source.field[0].form, BRIM_FORM_BYTES);
    assert_line(&opened.source, 1, "na\xEFve");
    close_opened(&opened);
}

static void test_the_bound_is_the_smaller_one(void **state) {
    (void)state;
    const struct path path = scratch_path("bound");
    struct test_use use;
    struct opened opened;
    write_file(path.text, "12345678\n1234\n", 14);
    use_text(&use, path.text);
    use_set(&use, "max_bytes", "5");
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
    assert_int_equal(opened.source.field[0].view.shape.dim[0], 5);
    uint8_t *buffer = new_buffer(&opened.source, 2);
    const uint8_t *records;
    uint64_t got;
    assert_int_equal(fetch_run(&opened.source, 0, 2, buffer, &records, &got), BRIM_STATUS_CORRUPT);
    assert_detail_has("max_bytes is 5");
    free(buffer);
    assert_line(&opened.source, 1, "1234");
    close_opened(&opened);
}

static void test_refusals(void **state) {
    (void)state;
    struct test_use use;
    struct opened opened;
    const size_t descriptors = open_descriptors();
    const struct path none = scratch_path("none");
    use_text(&use, none.text);
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_STATUS_IO);
    close_opened(&opened);
    use_set(&use, "name", "no name");
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_STATUS_INVALID);
    close_opened(&opened);
    const struct path empty = scratch_path("empty");
    write_file(empty.text, "", 0);
    use_text(&use, empty.text);
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_STATUS_CORRUPT);
    assert_detail_has("it is empty");
    close_opened(&opened);
    assert_int_equal(open_descriptors(), descriptors);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_character_is_known),
        cmocka_unit_test(test_nothing_else_is_known),
        cmocka_unit_test(test_lines_become_samples),
        cmocka_unit_test(test_text_must_be_utf8),
        cmocka_unit_test(test_the_bound_is_the_smaller_one),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("text", tests, make_directory, remove_directory);
}
