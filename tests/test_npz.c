/*
 * test_npz.c: zip files of arrays as numpy writes them, and as nobody should.
 *
 * The zip files are made here, field by field, so that each of them can lie.
 */
#include "arrays_util.h"

/* ------------------------------------------------------------- zip files */

struct member {
    const char *name;
    struct bytes content;
    bool deflated;
    /* lies and variations; 0: none */
    uint16_t method, flags, disk, local_method;
    uint32_t crc_xor;
    uint64_t claimed;    /* size of the content */
    uint64_t moved;      /* where the local header is said to be */
    const char *local;   /* another name in the local header */
    bool zip64;          /* sizes stand in zip64 fields */
    bool no_zip64_field; /* ... which are left out */
    bool streamed;       /* sizes follow the data */
    bool garbage;        /* bytes behind the compressed ones, counted in */
};

struct archive {
    bool zip64;
    uint16_t disk;
    uint64_t members, directory, directory_bytes; /* lies; 0: none */
    const char *comment;
    size_t extra_directory; /* bytes behind the last entry */
};

static void add_sizes(struct bytes *zip, const struct member *member, uint32_t crc, uint64_t packed,
                      uint64_t whole, bool local) {
    const bool left_out = local && member->streamed;
    add_number(zip, left_out ? 0 : crc, 4);
    add_number(zip, left_out ? 0 : member->zip64 ? 0xffffffff : packed, 4);
    add_number(zip, left_out ? 0 : member->zip64 ? 0xffffffff : whole, 4);
}

static struct bytes make_zip(const struct member *members, size_t count,
                             const struct archive *archive) {
    struct bytes zip = { 0 }, directory = { 0 };
    for (size_t i = 0; i < count; i++) {
        const struct member *member = &members[i];
        const uint32_t crc =
            (uint32_t)crc32(0, member->content.data, (uInt)member->content.count) ^ member->crc_xor;
        struct bytes packed = { 0 };
        if (member->deflated) {
            packed = compressed(member->content.data, member->content.count, RAW_DEFLATE);
        } else {
            add(&packed, member->content.data, member->content.count);
        }
        if (member->garbage) {
            add_text(&packed, "garbage");
        }
        const uint64_t whole = member->claimed != 0 ? member->claimed : member->content.count;
        const uint16_t method = member->method != 0 ? member->method : member->deflated ? 8 : 0;
        const uint16_t flags = (uint16_t)(member->flags | (member->streamed ? 8 : 0));
        const uint64_t header = zip.count;
        const char *local = member->local != NULL ? member->local : member->name;
        add(&zip, "PK\3\4", 4);
        add_number(&zip, 45, 2);
        add_number(&zip, flags, 2);
        add_number(&zip, member->local_method != 0 ? member->local_method : method, 2);
        add_number(&zip, 0, 4);
        add_sizes(&zip, member, crc, packed.count, whole, true);
        add_number(&zip, strlen(local), 2);
        add_number(&zip, member->zip64 ? 20 : 0, 2);
        add_text(&zip, local);
        if (member->zip64) {
            add_number(&zip, 1, 2);
            add_number(&zip, 16, 2);
            add_number(&zip, whole, 8);
            add_number(&zip, packed.count, 8);
        }
        add(&zip, packed.data, packed.count);
        if (member->streamed) {
            add(&zip, "PK\7\10", 4);
            add_number(&zip, crc, 4);
            add_number(&zip, packed.count, 4);
            add_number(&zip, whole, 4);
        }

        const bool field = member->zip64 && !member->no_zip64_field;
        add(&directory, "PK\1\2", 4);
        add_number(&directory, 45, 2);
        add_number(&directory, 45, 2);
        add_number(&directory, flags, 2);
        add_number(&directory, method, 2);
        add_number(&directory, 0, 4);
        add_sizes(&directory, member, crc, packed.count, whole, false);
        add_number(&directory, strlen(member->name), 2);
        add_number(&directory, field ? 4 + 5 + 28 : 0, 2);
        add_number(&directory, 3, 2);
        add_number(&directory, member->disk, 2);
        add_number(&directory, 0, 6);
        add_number(&directory,
                   member->zip64        ? 0xffffffff
                   : member->moved != 0 ? member->moved
                                        : header,
                   4);
        add_text(&directory, member->name);
        if (field) { /* behind a field that nobody knows */
            add_number(&directory, 0x7777, 2);
            add_number(&directory, 5, 2);
            add_text(&directory, "12345");
            add_number(&directory, 1, 2);
            add_number(&directory, 24, 2);
            add_number(&directory, whole, 8);
            add_number(&directory, packed.count, 8);
            add_number(&directory, member->moved != 0 ? member->moved : header, 8);
        }
        add_text(&directory, "why");
        free(packed.data);
    }
    for (size_t i = 0; i < archive->extra_directory; i++) {
        add_number(&directory, 0, 1);
    }
    const uint64_t stated = archive->members != 0 ? archive->members : count;
    const uint64_t at = archive->directory != 0 ? archive->directory : zip.count;
    const uint64_t bytes =
        archive->directory_bytes != 0 ? archive->directory_bytes : directory.count;
    add(&zip, directory.data, directory.count);
    if (archive->zip64) {
        const uint64_t end64 = zip.count;
        add(&zip, "PK\6\6", 4);
        add_number(&zip, 44, 8);
        add_number(&zip, 45, 2);
        add_number(&zip, 45, 2);
        add_number(&zip, archive->disk, 4);
        add_number(&zip, 0, 4);
        add_number(&zip, stated, 8);
        add_number(&zip, stated, 8);
        add_number(&zip, bytes, 8);
        add_number(&zip, at, 8);
        add(&zip, "PK\6\7", 4);
        add_number(&zip, 0, 4);
        add_number(&zip, end64, 8);
        add_number(&zip, 1, 4);
    }
    add(&zip, "PK\5\6", 4);
    add_number(&zip, archive->zip64 ? 0 : archive->disk, 2);
    add_number(&zip, 0, 2);
    add_number(&zip, archive->zip64 ? 0xffff : stated, 2);
    add_number(&zip, archive->zip64 ? 0xffff : stated, 2);
    add_number(&zip, archive->zip64 ? 0xffffffff : bytes, 4);
    add_number(&zip, archive->zip64 ? 0xffffffff : at, 4);
    add_number(&zip, archive->comment != NULL ? strlen(archive->comment) : 0, 2);
    add_text(&zip, archive->comment != NULL ? archive->comment : "");
    free(directory.data);
    return zip;
}

/* ------------------------------------------------------------- npy files */

static struct bytes make_npy(const char *descr, const char *shape, const char *fortran,
                             const void *data, size_t count) {
    struct bytes npy = { 0 };
    char text[118];
    memset(text, ' ', sizeof text);
    const int length =
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }", descr,
                 fortran, shape);
    assert_true(length > 0 && length < 117);
    text[length] = ' ';
    text[117] = '\n';
    add(&npy, "\x93NUMPY\1\0", 8);
    add_number(&npy, sizeof text, 2);
    add(&npy, text, sizeof text);
    add(&npy, data, count);
    return npy;
}

static const int32_t numbers[4][3] = {
    { 1, -2, 3 }, { 40, 50, 60 }, { 700, 800, 900 }, { -1000, 0, 2000000 }
};

static struct bytes numbers_npy(void) {
    return make_npy("<i4", "(4, 3)", "False", numbers, sizeof numbers);
}

/* --------------------------------------------------------------- opening */

static struct path zip_path(void) {
    return scratch_path("x.npz");
}

static void use_npz(struct test_use *use, const char *path, const char *array, const char *map) {
    use_init(use, &brim__stage_npz);
    use_set(use, "file", path);
    if (array != NULL) {
        use_set(use, "array", array);
    }
    use_set(use, "map", map);
}

static brim_status open_npz(struct opened *opened, const char *array, const char *map) {
    struct test_use use;
    const struct path path = zip_path();
    use_npz(&use, path.text, array, map);
    return open_use(opened, &use, NULL, 0);
}

static void write_zip(const struct member *members, size_t count, const struct archive *archive) {
    const struct archive plain = { 0 };
    struct bytes zip = make_zip(members, count, archive != NULL ? archive : &plain);
    write_bytes(zip_path().text, &zip);
    free(zip.data);
}

static void assert_numbers(const char *array, const char *map, bool in_memory) {
    struct opened opened;
    if (open_npz(&opened, array, map) != BRIM_OK) {
        fail_msg("%s", brim_detail());
    }
    const struct brim__source *source = &opened.source;
    assert_int_equal(source->count, 4);
    assert_int_equal(source->field[0].view.dtype, BRIM_DTYPE_I32);
    assert_int_equal(source->field[0].view.shape.rank, 1);
    assert_int_equal(source->field[0].view.shape.dim[0], 3);
    assert_int_equal(source->in_memory, in_memory);
    assert_string_equal(source->field[0].name, "x");
    assert_records(source, numbers, sizeof numbers);
    close_opened(&opened);
}

static void refuse(const struct member *members, size_t count, const struct archive *archive,
                   const char *array, brim_status status, const char *part) {
    struct opened opened;
    write_zip(members, count, archive);
    const brim_status got = open_npz(&opened, array, "no");
    if (got != status) {
        fail_msg("status %d, not %d, with \"%s\": %s", (int)got, (int)status, part, brim_detail());
    }
    assert_detail_has("x.npz");
    assert_detail_has(part);
    close_opened(&opened);
}

/* ----------------------------------------------------------------- tests */

static void test_stored_and_deflated(void **state) {
    (void)state;
    struct bytes npy = numbers_npy();
    for (int variation = 0; variation < 16; variation++) {
        const bool deflated = variation & 1;
        const struct member members[] = {
            { .name = "README", .content = npy },
            { .name = "a.npy",
              .content = npy,
              .deflated = deflated,
              .zip64 = variation & 2,
              .streamed = variation & 4 },
        };
        const struct archive archive = { .zip64 = variation & 8,
                                         .comment = variation & 8 ? "PK\5\6 is what I say" : NULL };
        write_zip(members, 2, &archive);
        assert_numbers(NULL, "no", deflated);
        assert_numbers("a", "no", deflated);
        assert_numbers("a.npy", "no", deflated);
        assert_numbers("a", "yes", true);
        assert_numbers("README", "no", false);
    }
    free(npy.data);
}

static void test_dtypes_and_orders(void **state) {
    (void)state;
    /* the same 2 x 3 numbers, the first dimension varying fastest */
    static const uint16_t columns[6] = { 1, 4, 2, 5, 3, 6 };
    struct bytes npy = make_npy("<u2", "(2, 3)", "True", columns, sizeof columns);
    for (int deflated = 0; deflated < 2; deflated++) {
        const struct member member = { .name = "f.npy", .content = npy, .deflated = deflated };
        write_zip(&member, 1, NULL);
        struct opened opened;
        if (!deflated) {
            assert_int_equal(open_npz(&opened, NULL, "no"), BRIM_STATUS_INVALID);
            assert_detail_has("map=yes");
            close_opened(&opened);
        }
        assert_int_equal(open_npz(&opened, NULL, deflated ? "no" : "yes"), BRIM_OK);
        assert_int_equal(opened.source.count, 2);
        for (uint64_t sample = 0; sample < 2; sample++) {
            const uint8_t *record;
            uint64_t got = 0;
            assert_int_equal(fetch_run(&opened.source, sample, 1, NULL, &record, &got), BRIM_OK);
            for (uint64_t i = 0; i < 3; i++) {
                double value[2];
                read_element(&opened.source.field[0].view, record, i, value);
                assert_true(value[0] == (double)(sample * 3 + i + 1));
            }
        }
        close_opened(&opened);
    }
    free(npy.data);
    npy = make_npy(">f8", "(1,)", "False", "\x40\x09\x21\xfb\x54\x44\x2d\x18", 8);
    const struct member big = { .name = "pi.npy", .content = npy, .deflated = true };
    write_zip(&big, 1, NULL);
    struct opened opened;
    assert_int_equal(open_npz(&opened, NULL, "no"), BRIM_OK);
    const uint8_t *record;
    uint64_t got = 0;
    double value[2];
    assert_int_equal(fetch_run(&opened.source, 0, 1, NULL, &record, &got), BRIM_OK);
    read_element(&opened.source.field[0].view, record, 0, value);
    assert_true(value[0] == 3.141592653589793);
    close_opened(&opened);
    free(npy.data);
}

static void test_which_array(void **state) {
    (void)state;
    struct bytes npy = numbers_npy();
    struct bytes other = make_npy("|u1", "(5,)", "False", "hello", 5);
    const struct member members[] = {
        { .name = "a", .content = other },     { .name = "a.npy", .content = npy },
        { .name = "b.npy", .content = other }, { .name = "dir/c.npy", .content = npy },
        { .name = "note", .content = other },
    };
    refuse(members, 5, NULL, NULL, BRIM_STATUS_INVALID, "array=; they are: a, b, dir/c");
    refuse(members, 5, NULL, "d", BRIM_STATUS_INVALID, "no array 'd'; it holds 3: a, b, dir/c");
    refuse(members, 5, NULL, "b.np", BRIM_STATUS_INVALID, "no array 'b.np'");
    refuse(members + 4, 1, NULL, NULL, BRIM_STATUS_INVALID, "none of its 1 members is an array");
    refuse(members, 0, NULL, NULL, BRIM_STATUS_INVALID, "none of its 0 members");
    write_zip(members, 5, NULL);
    assert_numbers("dir/c", "no", false);
    assert_numbers("a.npy", "no", false);
    /* the exact name comes first, and it is no npy file */
    const struct member exact[] = { members[1], members[0] };
    refuse(exact, 2, NULL, "a", BRIM_OK, "");
    free(npy.data);
    free(other.data);
}

static void test_long_list_is_cut(void **state) {
    (void)state;
    struct bytes npy = numbers_npy();
    struct member members[200] = { 0 };
    char names[200][24];
    for (size_t i = 0; i < 200; i++) {
        snprintf(names[i], sizeof names[i], "array-number-%zu.npy", i);
        members[i] = (struct member){ .name = names[i], .content = npy, .deflated = i % 2 };
    }
    refuse(members, 200, NULL, NULL, BRIM_STATUS_INVALID, "holds 200 arrays");
    assert_detail_has("array-number-0, array-number-1, ");
    assert_detail_has(", ...");
    assert_numbers("array-number-198", "no", false);
    assert_numbers("array-number-199.npy", "no", true);
    free(npy.data);
}

static void test_members_that_lie(void **state) {
    (void)state;
    struct bytes npy = numbers_npy();
    const struct member good = { .name = "a.npy", .content = npy };
    struct member bad = good;
#define REFUSE(status, part, ...)                   \
    do {                                            \
        bad = good;                                 \
        __VA_ARGS__;                                \
        const struct member both[] = { bad, good }; \
        refuse(both, 1, NULL, "a", status, part);   \
        struct member last[] = { good, bad };       \
        last[0].name = "first.npy";                 \
        refuse(last, 2, NULL, "a", status, part);   \
    } while (0)
    REFUSE(BRIM_STATUS_UNSUPPORTED, "encrypted", bad.flags = 1);
    REFUSE(BRIM_STATUS_UNSUPPORTED, "encrypted", bad.flags = 64);
    REFUSE(BRIM_STATUS_UNSUPPORTED, "patch", bad.flags = 32);
    REFUSE(BRIM_STATUS_UNSUPPORTED, "method 12", bad.method = 12);
    REFUSE(BRIM_STATUS_UNSUPPORTED, "method 93", bad.method = 93);
    REFUSE(BRIM_STATUS_UNSUPPORTED, "parts", bad.disk = 1);
    REFUSE(BRIM_STATUS_CORRUPT, "another method", bad.local_method = 8);
    REFUSE(BRIM_STATUS_CORRUPT, "another name", bad.local = "b.npy");
    REFUSE(BRIM_STATUS_CORRUPT, "another name", bad.local = "a.npz0");
    REFUSE(BRIM_STATUS_CORRUPT, "should begin here", bad.moved = 1);
    REFUSE(BRIM_STATUS_CORRUPT, "the members end", bad.moved = 1u << 30);
    REFUSE(BRIM_STATUS_CORRUPT, "the members end", bad.moved = UINT64_C(1) << 63; bad.zip64 = true);
    REFUSE(BRIM_STATUS_CORRUPT, "the members end", bad.moved = UINT64_MAX; bad.zip64 = true);
    REFUSE(BRIM_STATUS_CORRUPT, "no zip64 field explains", bad.zip64 = bad.no_zip64_field = true);
    REFUSE(BRIM_STATUS_CORRUPT, "stored uncompressed", bad.claimed = 5);
    REFUSE(BRIM_STATUS_CORRUPT, "stored uncompressed", bad.claimed = UINT64_MAX; bad.zip64 = true);
    REFUSE(BRIM_STATUS_CORRUPT, "CRC-32", bad.deflated = true; bad.crc_xor = 1);
    REFUSE(BRIM_STATUS_CORRUPT, "byte 175: the inflated member ends", bad.deflated = true;
           bad.claimed = 175);
    REFUSE(BRIM_STATUS_CORRUPT, "but 177 were expected", bad.deflated = true; bad.claimed = 177);
    REFUSE(BRIM_STATUS_CORRUPT, "7 bytes follow", bad.deflated = true; bad.garbage = true);
    REFUSE(BRIM_STATUS_CORRUPT, "cannot inflate to", bad.deflated = true; bad.claimed = 200000);
    REFUSE(BRIM_STATUS_CORRUPT, "cannot inflate to", bad.deflated = true; bad.claimed = UINT64_MAX;
           bad.zip64 = true);
    struct bytes longer = numbers_npy();
    add_text(&longer, "x");
    REFUSE(BRIM_STATUS_CORRUPT, "continue after the 176 bytes", bad.deflated = true;
           bad.content = longer; bad.claimed = 176);
    free(longer.data);
    struct bytes junk = { 0 };
    add_text(&junk, "\7 begins a block of a kind that there is not");
    REFUSE(BRIM_STATUS_CORRUPT, "the compressed data are damaged", bad.method = 8;
           bad.content = junk);
    free(junk.data);
#undef REFUSE
    /* nobody reads it, so that its CRC may be wrong */
    bad = good;
    bad.crc_xor = 7;
    write_zip(&bad, 1, NULL);
    assert_numbers(NULL, "no", false);
    free(npy.data);
}

static void test_names_that_lie(void **state) {
    (void)state;
    struct bytes npy = numbers_npy();
    char longest[2000];
    memset(longest, 'n', sizeof longest);
    longest[1500] = '\0';
    const struct member twice[] = { { .name = "a.npy", .content = npy },
                                    { .name = "a.npy", .content = npy } };
    refuse(twice, 2, NULL, "a", BRIM_STATUS_CORRUPT, "second member with the name a.npy");
    const struct member too_long[] = { { .name = longest, .content = npy } };
    refuse(too_long, 1, NULL, NULL, BRIM_STATUS_UNSUPPORTED, "name of 1500 bytes");
    const struct member none[] = { { .name = "", .content = npy } };
    refuse(none, 1, NULL, NULL, BRIM_STATUS_UNSUPPORTED, "name of 0 bytes");
    const struct member escape[] = { { .name = "\033[2J.npy", .content = npy } };
    refuse(escape, 1, NULL, NULL, BRIM_STATUS_CORRUPT, "control character");
    free(npy.data);
}

static void test_members_in_the_same_bytes(void **state) {
    (void)state;
    struct bytes npy = numbers_npy();
    /* b's local header is said to lie inside a */
    const struct member members[] = { { .name = "a.npy", .content = npy },
                                      { .name = "b.npy", .content = npy, .moved = 40 } };
    refuse(members, 2, NULL, "a", BRIM_STATUS_CORRUPT, "same bytes as a.npy");
    free(npy.data);
}

static void test_archives_that_lie(void **state) {
    (void)state;
    struct bytes npy = numbers_npy();
    const struct member member = { .name = "a.npy", .content = npy };
    for (int zip64 = 0; zip64 < 2; zip64++) {
#define REFUSE(status, part, ...)                                            \
    do {                                                                     \
        const struct archive archive = { .zip64 = zip64 != 0, __VA_ARGS__ }; \
        refuse(&member, 1, &archive, NULL, status, part);                    \
    } while (0)
        REFUSE(BRIM_STATUS_UNSUPPORTED, "one of several parts", .disk = 1);
        REFUSE(BRIM_STATUS_CORRUPT, "members need 46 bytes each", .members = 60000);
        REFUSE(BRIM_STATUS_CORRUPT, "ends inside an entry", .members = 2, .extra_directory = 45);
        REFUSE(BRIM_STATUS_CORRUPT, "should begin here", .members = 2, .extra_directory = 60);
        REFUSE(BRIM_STATUS_CORRUPT, "continues after its last entry", .extra_directory = 1);
        REFUSE(BRIM_STATUS_CORRUPT, "after its own end", .directory = 0xfffffff0);
        REFUSE(BRIM_STATUS_CORRUPT, "after its own end", .directory_bytes = 0xfffffff0);
        REFUSE(BRIM_STATUS_CORRUPT, "should begin here", .directory = 1);
#undef REFUSE
    }
    const struct archive many = { .zip64 = true, .members = 70000 };
    refuse(&member, 1, &many, NULL, BRIM_STATUS_UNSUPPORTED, "70000 members; at most 65536");
    const struct archive endless = { .zip64 = true, .members = UINT64_MAX };
    refuse(&member, 1, &endless, NULL, BRIM_STATUS_UNSUPPORTED, "members; at most 65536");
    const struct archive far_away = { .zip64 = true, .directory = UINT64_MAX - 7 };
    refuse(&member, 1, &far_away, NULL, BRIM_STATUS_CORRUPT, "after its own end");
    free(npy.data);

    struct bytes file = { 0 };
    add_text(&file, "this is no zip file, but it is long enough to be one");
    write_bytes(zip_path().text, &file);
    struct opened opened;
    assert_int_equal(open_npz(&opened, NULL, "no"), BRIM_STATUS_CORRUPT);
    assert_detail_has("not a zip file");
    close_opened(&opened);
    free(file.data);
}

static void test_arrays_that_lie(void **state) {
    (void)state;
    static const struct {
        const char *descr, *shape;
        brim_status status;
        const char *part;
    } cases[] = {
        { "|O", "(4, 3)", BRIM_STATUS_UNSUPPORTED, "pickle" },
        { "<i4", "(5, 3)", BRIM_STATUS_CORRUPT, "cut short" },
        { "<i4", "(4294967296, 4294967296)", BRIM_STATUS_CORRUPT, "more than 2^63" },
        { "<i4", "()", BRIM_STATUS_INVALID, "scalar" },
        { "<i4", "(0, 3)", BRIM_STATUS_INVALID, "holds no samples" },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        for (int deflated = 0; deflated < 2; deflated++) {
            struct bytes npy =
                make_npy(cases[i].descr, cases[i].shape, "False", numbers, sizeof numbers);
            const struct member member = { .name = "a.npy", .content = npy, .deflated = deflated };
            refuse(&member, 1, NULL, NULL, cases[i].status, cases[i].part);
            free(npy.data);
        }
    }
    struct bytes tiny = { 0 };
    add_text(&tiny, "\x93NUMPY");
    for (int deflated = 0; deflated < 2; deflated++) {
        const struct member member = { .name = "a.npy", .content = tiny, .deflated = deflated };
        refuse(&member, 1, NULL, NULL, BRIM_STATUS_CORRUPT,
               "member ends inside the first 10 bytes");
    }
    free(tiny.data);
}

/* Half a mebibyte of zeros in half a kibibyte: held, or refused beforehand. */
static void test_budget(void **state) {
    (void)state;
    uint8_t *zeros = calloc(1, 1 << 19);
    struct bytes npy = make_npy("|u1", "(512, 1024)", "False", zeros, 1 << 19);
    struct member member = { .name = "a.npy", .content = npy, .deflated = true };
    write_zip(&member, 1, NULL);
    struct test_use use;
    struct within within;
    const struct path path = zip_path();
    use_npz(&use, path.text, NULL, "no");
    assert_int_equal(open_within(&within, &use, 1 << 20), BRIM_OK);
    assert_true(within.opened.source.in_memory);
    assert_records(&within.opened.source, zeros, 1 << 19);
    close_within(&within);
    assert_int_equal(open_within(&within, &use, 1 << 18), BRIM_STATUS_BUDGET);
    assert_detail_has("x.npz, a.npy");
    assert_detail_has("(524416 bytes)");
    assert_detail_has("numpy.savez instead of savez_compressed");
    assert_detail_has("raise the limit");
    close_within(&within);
    /* there is room for the array, but not for what inflating needs */
    assert_int_equal(open_within(&within, &use, (1 << 19) + (20 << 10)), BRIM_STATUS_BUDGET);
    close_within(&within);
    /* stored it needs next to nothing */
    member.deflated = false;
    write_zip(&member, 1, NULL);
    assert_int_equal(open_within(&within, &use, 64 << 10), BRIM_OK);
    assert_records(&within.opened.source, zeros, 1 << 19);
    close_within(&within);
    free(zeros);
    free(npy.data);
}

static void test_hostile_bytes(void **state) {
    (void)state;
    struct bytes npy = numbers_npy();
    for (int deflated = 0; deflated < 2; deflated++) {
        struct test_use use;
        const struct path path = zip_path();
        const struct member members[] = {
            { .name = "b.npy", .content = npy },
            { .name = "a.npy", .content = npy, .deflated = deflated, .zip64 = true },
        };
        const struct archive archive = { .zip64 = true };
        struct bytes zip = make_zip(members, 2, &archive);
        use_npz(&use, path.text, "a", "no");
        cut_everywhere(&use, path.text, &zip);
        flip_bytes(&use, path.text, &zip, 500);
        refuse_everything(&use);
        free(zip.data);
    }
    free(npy.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stored_and_deflated),
        cmocka_unit_test(test_dtypes_and_orders),
        cmocka_unit_test(test_which_array),
        cmocka_unit_test(test_long_list_is_cut),
        cmocka_unit_test(test_members_that_lie),
        cmocka_unit_test(test_names_that_lie),
        cmocka_unit_test(test_members_in_the_same_bytes),
        cmocka_unit_test(test_archives_that_lie),
        cmocka_unit_test(test_arrays_that_lie),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_hostile_bytes),
    };
    return cmocka_run_group_tests_name("npz", tests, make_directory, remove_directory);
}
