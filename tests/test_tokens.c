/*
 * test_tokens.c: windows over token files, against a naive model.
 *
 * The model keeps the tokens of each file in an array and lists the windows by
 * stepping through it. Files of all formats are written here from the same
 * tokens, and every window must come out the same, read and mapped.
 */
#include "source_util.h"

#include "source/tokens.h"

#define MOST_TOKENS 4096

enum kind { U16, U32, LLMC, LLMC32, MEGATRON_U16, MEGATRON_I32, MEGATRON_I64, MEGATRON_U8, KINDS };

static const struct {
    const char *format;
    brim_dtype dtype;
    uint8_t code; /* in a Megatron index */
} kinds[KINDS] = {
    [U16] = { "u16", BRIM_DTYPE_U16, 0 },
    [U32] = { "u32", BRIM_DTYPE_U32, 0 },
    [LLMC] = { "llmc", BRIM_DTYPE_U16, 0 },
    [LLMC32] = { "llmc", BRIM_DTYPE_U32, 0 },
    [MEGATRON_U16] = { "megatron", BRIM_DTYPE_U16, 8 },
    [MEGATRON_I32] = { "megatron", BRIM_DTYPE_I32, 4 },
    [MEGATRON_I64] = { "megatron", BRIM_DTYPE_I64, 5 },
    [MEGATRON_U8] = { "megatron", BRIM_DTYPE_U8, 1 },
};

struct file {
    uint64_t count;
    uint64_t token[MOST_TOKENS];
};

static void make_tokens(struct file *file, uint64_t count, uint64_t *random, brim_dtype dtype) {
    const size_t bits = 8 * brim_dtype_bytes(dtype);
    file->count = count;
    for (uint64_t i = 0; i < count; i++) {
        file->token[i] = next_random(random) >> (65 - (bits < 53 ? bits : 53));
        assert_true(file->token[i] < (uint64_t)1 << 53); /* exact as a double */
    }
}

static size_t pack(const struct file *file, brim_dtype dtype, uint8_t *bytes) {
    const size_t item = brim_dtype_bytes(dtype);
    for (uint64_t i = 0; i < file->count; i++) {
        memcpy(bytes + i * item, &file->token[i], item); /* little-endian */
    }
    return file->count * item;
}

struct index {
    size_t bytes;
    uint8_t byte[65536];
};

static void put(struct index *index, uint64_t value, size_t bytes) {
    assert_true(index->bytes + bytes <= sizeof index->byte);
    memcpy(index->byte + index->bytes, &value, bytes);
    index->bytes += bytes;
}

/* An index over `tokens` tokens in sequences of growing length. */
static uint64_t make_index(struct index *index, uint8_t code, uint64_t tokens, bool modes) {
    const size_t item = code == 4 ? 4 : code == 5 ? 8 : code == 1 ? 1 : 2;
    uint64_t sequences = 0;
    for (uint64_t left = tokens; left > 0; sequences++) {
        left -= brim__min(left, sequences % 7);
    }
    index->bytes = 0;
    memcpy(index->byte, "MMIDIDX\0\0", 9);
    index->bytes = 9;
    put(index, 1, 8);
    put(index, code, 1);
    put(index, sequences, 8);
    put(index, 2, 8);
    uint64_t left = tokens;
    for (uint64_t i = 0; i < sequences; i++) {
        put(index, brim__min(left, i % 7), 4);
        left -= brim__min(left, i % 7);
    }
    uint64_t at = 0;
    for (uint64_t i = 0; i < sequences; i++) {
        put(index, at * item, 8);
        at += brim__min(tokens - at, i % 7);
    }
    put(index, 0, 8);
    put(index, sequences, 8);
    for (uint64_t i = 0; modes && i < sequences; i++) {
        put(index, i % 2, 1);
    }
    return sequences;
}

static void write_tokens(const char *name, enum kind kind, const struct file *file) {
    static uint8_t bytes[1024 + 8 * MOST_TOKENS];
    size_t at = 0;
    char full[64];
    snprintf(full, sizeof full, "%s.bin", name);
    if (kind == LLMC || kind == LLMC32) {
        const uint32_t header[3] = { kind == LLMC ? 20240520 : 20240801, kind == LLMC ? 1 : 7,
                                     (uint32_t)file->count };
        memset(bytes, 0, 1024);
        memcpy(bytes, header, sizeof header);
        at = 1024;
    }
    at += pack(file, kinds[kind].dtype, bytes + at);
    write_file(scratch_path(full).text, bytes, at);
    snprintf(full, sizeof full, "%s.idx", name);
    unlink(scratch_path(full).text);
    if (kinds[kind].code != 0) {
        static struct index index;
        make_index(&index, kinds[kind].code, file->count, file->count % 2 == 0);
        write_file(scratch_path(full).text, index.byte, index.bytes);
    }
}

static void use_tokens(struct test_use *use, const char *length, const char *format) {
    use_init(use, &brim__stage_tokens);
    use_set(use, "length", length);
    use_set(use, "format", format);
}

/* All windows of all files, in fetches of `run`, against the model. */
static void check_windows(const struct brim__source *source, const struct file *files,
                          size_t file_count, uint64_t length, uint64_t stride, bool shift,
                          uint64_t run) {
    uint8_t *buffer = new_buffer(source, run);
    uint64_t sample = 0, got = 0, used = 0;
    const uint8_t *records = NULL;
    for (size_t f = 0; f < file_count; f++) {
        for (uint64_t begin = 0; begin + length + (shift ? 1 : 0) <= files[f].count;
             begin += stride, sample++) {
            assert_true(sample < source->count);
            if (used == got) {
                assert_int_equal(fetch_run(source, sample, run, buffer, &records, &got), BRIM_OK);
                assert_true(got >= 1 && got <= run);
                used = 0;
            }
            for (uint32_t field = 0; field < source->field_count; field++) {
                for (uint64_t i = 0; i < length; i++) {
                    double value[2];
                    read_element(&source->field[field].view, records + used * source->pitch, i,
                                 value);
                    if (value[0] != (double)files[f].token[begin + field + i]) {
                        fail_msg("file %zu, window at %llu, field %u, token %llu: %g", f,
                                 (unsigned long long)begin, field, (unsigned long long)i, value[0]);
                    }
                }
            }
            used++;
        }
        assert_int_equal(used, got); /* a fetch never crosses a file's end */
    }
    assert_int_equal(sample, source->count);
    free(buffer);
}

static void test_windows_equal_model(void **state) {
    (void)state;
    static struct file files[3];
    static const struct {
        uint64_t length, stride;
    } cases[] = { { 1, 0 }, { 1, 1 }, { 8, 0 }, { 8, 3 }, { 8, 40 }, { 64, 1 }, { 37, 36 } };
    uint64_t random = 99;
    for (enum kind kind = 0; kind < KINDS; kind++) {
        struct path paths[3];
        const uint64_t counts[3] = { 301, 20, 266 };
        for (size_t f = 0; f < 3; f++) {
            char name[16];
            snprintf(name, sizeof name, "t%zu", f);
            make_tokens(&files[f], counts[f], &random, kinds[kind].dtype);
            write_tokens(name, kind, &files[f]);
            strcat(name, ".bin");
            paths[f] = scratch_path(name);
        }
        for (size_t c = 0; c < BRIM__COUNT(cases); c++) {
            for (int map = 0; map < 2; map++) {
                for (int shift = 0; shift < 2; shift++) {
                    for (size_t file_count = 1; file_count <= 3; file_count += 2) {
                        struct test_use use;
                        char length[24], stride[24];
                        snprintf(length, sizeof length, "%llu",
                                 (unsigned long long)cases[c].length);
                        snprintf(stride, sizeof stride, "%llu",
                                 (unsigned long long)cases[c].stride);
                        use_tokens(&use, length, kinds[kind].format);
                        use_set(&use, "stride", stride);
                        use_set(&use, "shift", shift ? "yes" : "no");
                        use_set(&use, "map", map ? "yes" : "no");
                        for (size_t f = 0; f < file_count; f++) {
                            use_set(&use, "files", paths[f].text);
                        }
                        struct opened opened;
                        if (open_use(&opened, &use, NULL, 0) != BRIM_OK) {
                            fail_msg("%s", brim_detail());
                        }
                        const struct brim__source *source = &opened.source;
                        const uint64_t step =
                            cases[c].stride == 0 ? cases[c].length : cases[c].stride;
                        assert_int_equal(source->field_count, shift ? 2 : 1);
                        assert_string_equal(source->field[0].name, "x");
                        assert_int_equal(source->field[0].view.dtype, kinds[kind].dtype);
                        assert_int_equal(source->pitch, step * brim_dtype_bytes(kinds[kind].dtype));
                        assert_int_equal(source->in_memory, map);
                        if (!map && step > 2 * (cases[c].length + 1)) {
                            assert_int_equal(source->most_run, 1);
                        }
                        check_windows(source, files, file_count, cases[c].length, step, shift, 1);
                        check_windows(source, files, file_count, cases[c].length, step, shift, 5);
                        brim__source_advise(source, 0, source->count);
                        close_opened(&opened);
                    }
                }
            }
        }
    }
}

static void assert_format(const char *name, brim_dtype dtype, uint64_t count) {
    struct test_use use;
    use_tokens(&use, "1", "auto");
    use_set(&use, "shift", "no");
    const struct path path = scratch_path(name);
    use_set(&use, "files", path.text);
    struct opened opened;
    if (open_use(&opened, &use, NULL, 0) != BRIM_OK) {
        fail_msg("%s", brim_detail());
    }
    assert_int_equal(opened.source.field[0].view.dtype, dtype);
    assert_int_equal(opened.source.count, count);
    close_opened(&opened);
}

static void test_auto_finds_the_format(void **state) {
    (void)state;
    static struct file file;
    uint64_t random = 5;
    make_tokens(&file, 100, &random, BRIM_DTYPE_U8);
    write_tokens("auto", U16, &file);
    assert_format("auto.bin", BRIM_DTYPE_U16, 100);
    write_tokens("auto", LLMC, &file);
    assert_format("auto.bin", BRIM_DTYPE_U16, 100);
    write_tokens("auto", LLMC32, &file);
    assert_format("auto.bin", BRIM_DTYPE_U32, 100);
    write_tokens("auto", MEGATRON_I32, &file);
    assert_format("auto.bin", BRIM_DTYPE_I32, 100);
    assert_format("auto.idx", BRIM_DTYPE_I32, 100);
    /* a neighbour that only has the name of an index */
    write_file(scratch_path("auto.idx").text, "MMIDIDY\0\0 and so on", 20);
    write_tokens("other", U16, &file);
    write_file(scratch_path("other.idx").text, "MMIDIDY\0\0 and so on", 20);
    assert_format("other.bin", BRIM_DTYPE_U16, 100);
    write_file(scratch_path("other.idx").text, "MM", 2);
    assert_format("other.bin", BRIM_DTYPE_U16, 100);
    unlink(scratch_path("auto.idx").text);
    assert_format("auto.bin", BRIM_DTYPE_U16, 200);

    /* without a suffix, a Megatron pair is named by what both begin with */
    write_tokens("auto", MEGATRON_U16, &file);
    struct test_use use;
    struct opened opened;
    use_tokens(&use, "4", "megatron");
    const struct path path = scratch_path("auto");
    use_set(&use, "files", path.text);
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
    char text[600], wanted[600];
    opened.source.ops->describe(&opened.source, 3, text, sizeof text);
    snprintf(wanted, sizeof wanted, "%s.bin, sample 3 (byte 24)", path.text);
    assert_string_equal(text, wanted);
    close_opened(&opened);
}

static brim_status refuse(const char *name, const char *length, const char *format) {
    struct test_use use;
    struct opened opened;
    use_tokens(&use, length, format);
    const struct path path = scratch_path(name);
    use_set(&use, "files", path.text);
    const brim_status status = open_use(&opened, &use, NULL, 0);
    assert_true(opened.arena.bytes <= 65536);
    close_opened(&opened);
    return status;
}

static void test_bad_plain_files(void **state) {
    (void)state;
    const struct path path = scratch_path("bad.bin");
    static uint8_t bytes[2048];
    write_file(path.text, bytes, 101);
    assert_int_equal(refuse("bad.bin", "4", "auto"), BRIM_STATUS_CORRUPT);
    assert_detail_has("bad.bin: byte 100: ");
    assert_int_equal(refuse("bad.bin", "4", "u32"), BRIM_STATUS_CORRUPT);
    assert_detail_has("multiple of 4");
    write_file(path.text, bytes, 100);
    assert_int_equal(refuse("bad.bin", "50", "u16"), BRIM_STATUS_INVALID);
    assert_detail_has("51 tokens");
    write_file(path.text, bytes, 0);
    assert_int_equal(refuse("bad.bin", "1", "u16"), BRIM_STATUS_INVALID);
    assert_int_equal(refuse("none.bin", "1", "u16"), BRIM_STATUS_IO);
    assert_int_equal(refuse("none.bin", "1", "megatron"), BRIM_STATUS_IO);
    assert_int_equal(refuse("none.idx", "1", "auto"), BRIM_STATUS_IO);
}

static void test_bad_llmc_files(void **state) {
    (void)state;
    const struct path path = scratch_path("llmc.bin");
    static uint8_t bytes[2048];
    uint32_t header[3] = { 20240520, 1, 100 };
    memcpy(bytes, header, sizeof header);
    for (size_t cut = 4; cut < 1224; cut++) {
        write_file(path.text, bytes, cut);
        assert_int_equal(refuse("llmc.bin", "4", "auto"), BRIM_STATUS_CORRUPT);
        assert_detail_has("llmc.bin: byte ");
    }
    write_file(path.text, bytes, 1226);
    assert_int_equal(refuse("llmc.bin", "4", "auto"), BRIM_STATUS_CORRUPT);
    assert_detail_has("100 tokens");
    assert_detail_has("202 bytes");
    header[1] = 2;
    memcpy(bytes, header, sizeof header);
    write_file(path.text, bytes, 1224);
    assert_int_equal(refuse("llmc.bin", "4", "auto"), BRIM_STATUS_UNSUPPORTED);
    assert_detail_has("byte 4: version 2");
    header[0] = 20240522;
    memcpy(bytes, header, sizeof header);
    write_file(path.text, bytes, 1224);
    assert_int_equal(refuse("llmc.bin", "4", "llmc"), BRIM_STATUS_CORRUPT);
    assert_detail_has("byte 0");
    header[0] = 20240520;
    header[1] = 1;
    header[2] = 0xffffffff;
    memcpy(bytes, header, sizeof header);
    write_file(path.text, bytes, 1224);
    assert_int_equal(refuse("llmc.bin", "4", "llmc"), BRIM_STATUS_CORRUPT);
    assert_detail_has("4294967295 tokens");
}

static void test_files_must_agree(void **state) {
    (void)state;
    static struct file file;
    uint64_t random = 7;
    make_tokens(&file, 100, &random, BRIM_DTYPE_U8);
    write_tokens("one", U16, &file);
    write_tokens("two", LLMC, &file);
    write_tokens("three", MEGATRON_I32, &file);
    write_tokens("four", MEGATRON_I64, &file);
    static const char *const pairs[][2] = { { "one.bin", "two.bin" },
                                            { "one.bin", "three.bin" },
                                            { "three.idx", "four.idx" } };
    for (size_t i = 0; i < BRIM__COUNT(pairs); i++) {
        struct test_use use;
        struct opened opened;
        use_tokens(&use, "4", "auto");
        const struct path a = scratch_path(pairs[i][0]), b = scratch_path(pairs[i][1]);
        use_set(&use, "files", a.text);
        use_set(&use, "files", b.text);
        assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_STATUS_INVALID);
        assert_detail_has("must agree");
        close_opened(&opened);
    }
}

/* -------------------------------------------------------------- Megatron */

#define SEQUENCES_AT 18
#define DOCUMENTS_AT 26
#define LENGTHS_AT   34

static void test_hostile_index(void **state) {
    (void)state;
    static struct file file;
    static struct index index, broken;
    uint64_t random = 11;
    make_tokens(&file, 3000, &random, BRIM_DTYPE_U16);
    write_tokens("m", MEGATRON_U16, &file);
    const uint64_t sequences = make_index(&index, 8, file.count, false);
    assert_true(sequences > 600); /* several chunks */
    const size_t pointers_at = LENGTHS_AT + 4 * sequences;
    const struct {
        size_t at, bytes;
        uint64_t value;
        const char *says;
    } cases[] = {
        { 0, 1, 'X', "byte 0: " },
        { 8, 1, 1, "byte 0: " },
        { 9, 8, 2, "byte 9: " },
        { 17, 1, 0, "byte 17: " },
        { 17, 1, 9, "byte 17: " },
        { 17, 1, 255, "byte 17: " },
        { 17, 1, 7, "not tokens" },
        { 17, 1, 6, "not tokens" },
        { 17, 1, 4, "byte " },
        { SEQUENCES_AT, 8, 0, "byte 26: " },
        { SEQUENCES_AT, 8, sequences - 1, "byte 26: " },
        { SEQUENCES_AT, 8, sequences + 1, "byte 26: " },
        { SEQUENCES_AT, 8, UINT64_MAX, "byte 18: " },
        { SEQUENCES_AT, 8, UINT64_MAX / 12 + 2, "byte 18: " },
        { SEQUENCES_AT, 8, (uint64_t)1 << 62, "byte 18: " },
        { DOCUMENTS_AT, 8, 1, "byte 26: " },
        { DOCUMENTS_AT, 8, 3, "byte 26: " },
        { DOCUMENTS_AT, 8, UINT64_MAX, "byte 26: " },
        { DOCUMENTS_AT, 8, (uint64_t)1 << 61, "byte 26: " },
        { DOCUMENTS_AT, 8, ((uint64_t)1 << 61) + 2, "byte 26: " }, /* times 8: 16 */
        { LENGTHS_AT, 4, 0xffffffff, "sequence 0 has -1 tokens" },
        { LENGTHS_AT + 4 * 700, 4, 0x80000000, "sequence 700 has" },
        { LENGTHS_AT, 4, 1, "sequence 1 begins" },
        { LENGTHS_AT, 4, 0x7fffffff, "m.bin: byte 6000: " },
        { LENGTHS_AT + 4 * (sequences - 1), 4, 0, "m.bin: byte " },
        { LENGTHS_AT + 4 * (sequences - 1), 4, 1000, "m.bin: byte 6000: " },
        { pointers_at, 8, 2, "sequence 0 begins at byte 2" },
        { pointers_at, 8, UINT64_MAX, "sequence 0 begins at byte -1" },
        { pointers_at + 8 * 513, 8, (uint64_t)1 << 63, "sequence 513 begins" },
        { pointers_at + 8 * (sequences - 1), 8, 0, "begins at byte 0" },
    };
    const struct path path = scratch_path("m.idx");
    const size_t before = open_descriptors();
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        broken = index;
        memcpy(broken.byte + cases[i].at, &cases[i].value, cases[i].bytes);
        write_file(path.text, broken.byte, broken.bytes);
        const brim_status status = refuse("m.idx", "4", "auto");
        if (status != BRIM_STATUS_CORRUPT && status != BRIM_STATUS_UNSUPPORTED) {
            fail_msg("case %zu: %d %s", i, (int)status, brim_detail());
        }
        assert_detail_has("/m.");
        assert_detail_has(cases[i].says);
    }
    assert_int_equal(open_descriptors(), before);
}

static void test_truncated_index_and_tokens(void **state) {
    (void)state;
    static struct file file;
    static struct index index;
    uint64_t random = 13;
    make_tokens(&file, 30, &random, BRIM_DTYPE_U16);
    write_tokens("cut", MEGATRON_U16, &file);
    make_index(&index, 8, file.count, false);
    const struct path idx = scratch_path("cut.idx"), bin = scratch_path("cut.bin");
    for (size_t cut = 0; cut < index.bytes; cut++) {
        write_file(idx.text, index.byte, cut);
        assert_int_equal(refuse("cut.idx", "4", "auto"), BRIM_STATUS_CORRUPT);
        assert_detail_has("cut.idx: byte ");
    }
    write_file(idx.text, index.byte, index.bytes);
    uint8_t bytes[64];
    const size_t whole = pack(&file, BRIM_DTYPE_U16, bytes);
    for (size_t cut = 0; cut <= 64; cut++) {
        if (cut == whole) {
            continue;
        }
        write_file(bin.text, bytes, cut);
        assert_int_equal(refuse("cut.idx", "4", "auto"), BRIM_STATUS_CORRUPT);
        assert_detail_has("cut.bin: byte ");
    }
    write_file(bin.text, bytes, whole);
    assert_format("cut.idx", BRIM_DTYPE_U16, 30);
}

static void test_random_corruption_of_index(void **state) {
    (void)state;
    static struct file file;
    static struct index index, broken;
    uint64_t random = 17;
    make_tokens(&file, 60, &random, BRIM_DTYPE_U16);
    write_tokens("rot", MEGATRON_U16, &file);
    make_index(&index, 8, file.count, true);
    const struct path path = scratch_path("rot.idx");
    for (unsigned round = 0; round < 5000; round++) {
        broken = index;
        for (uint64_t wrong = 1 + next_random(&random) % 2; wrong > 0; wrong--) {
            const uint64_t number = next_random(&random);
            broken.byte[number % broken.bytes] = (uint8_t)(number >> 40);
        }
        write_file(path.text, broken.byte, broken.bytes);
        struct test_use use;
        struct opened opened;
        use_tokens(&use, "4", "megatron");
        use_set(&use, "files", path.text);
        if (open_use(&opened, &use, NULL, 0) == BRIM_OK) {
            /* what still opens must hold the same tokens: an 8-bit or signed
             * view of them at most */
            const struct brim__source *source = &opened.source;
            uint8_t *buffer = new_buffer(source, 3);
            const uint8_t *records;
            uint64_t got;
            assert_int_equal(fetch_run(source, source->count - 1, 3, buffer, &records, &got),
                             BRIM_OK);
            free(buffer);
        } else {
            assert_detail_has("/rot.");
        }
        close_opened(&opened);
    }
}

static void test_identity(void **state) {
    (void)state;
    static struct file file;
    uint64_t random = 19, identity[4];
    make_tokens(&file, 100, &random, BRIM_DTYPE_U16);
    write_tokens("same1", U16, &file);
    write_tokens("same2", U16, &file);
    static const char *const names[] = { "same1.bin", "same2.bin", "same1.bin", "same1.bin" };
    static const char *const lengths[] = { "4", "4", "5", "4" };
    for (size_t i = 0; i < 4; i++) {
        struct test_use use;
        struct opened opened;
        use_tokens(&use, lengths[i], "u16");
        const struct path path = scratch_path(names[i]);
        use_set(&use, "files", path.text);
        use_set(&use, "map", i == 1 ? "yes" : "no");
        use_set(&use, "stride", i == 3 ? "3" : "0");
        assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
        identity[i] = opened.source.identity;
        close_opened(&opened);
    }
    assert_true(identity[0] == identity[1]);
    assert_true(identity[0] != identity[2]);
    assert_true(identity[0] != identity[3]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_equal_model),
        cmocka_unit_test(test_auto_finds_the_format),
        cmocka_unit_test(test_bad_plain_files),
        cmocka_unit_test(test_bad_llmc_files),
        cmocka_unit_test(test_files_must_agree),
        cmocka_unit_test(test_hostile_index),
        cmocka_unit_test(test_truncated_index_and_tokens),
        cmocka_unit_test(test_random_corruption_of_index),
        cmocka_unit_test(test_identity),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
