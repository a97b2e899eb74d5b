/*
 * test_jpeg_hostile.c: JPEG files that are cut, damaged, or made to do harm, and the
 * orientation that EXIF holds.
 *
 * Bytes lie at the end of a page behind which there is nothing, because libjpeg itself
 * is not watched by sanitizers.
 */
#include "jpeg_util.h"

#include <sys/mman.h>
#include <unistd.h>

/* ---------------------------------------------------------------- hostile */

/* At the end of a page behind which there is nothing. */
struct edge {
    uint8_t *pages;
    size_t bytes;
};

static struct edge make_edge(size_t most) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct edge edge = { .bytes = (size_t)brim__align(most, page) };
    edge.pages =
        mmap(NULL, edge.bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(edge.pages != MAP_FAILED);
    assert_int_equal(mprotect(edge.pages + edge.bytes, page, PROT_NONE), 0);
    return edge;
}

static uint8_t *to_edge(const struct edge *edge, const uint8_t *data, size_t bytes) {
    assert_true(bytes <= edge->bytes);
    return memcpy(edge->pages + edge->bytes - bytes, data, bytes);
}

static void free_edge(const struct edge *edge) {
    munmap(edge->pages, edge->bytes + (size_t)sysconf(_SC_PAGESIZE));
}

/* Header and all pixels of what may be anything; large sizes are left alone. */
static brim_status try_bytes(const uint8_t *data, size_t bytes, bool damaged) {
    struct brim__input input;
    struct brim__image_info info;
    struct run run = { 0 };
    brim__input_memory(&input, data, bytes);
    const brim_status status = brim__jpeg_info(&input, true, &info);
    if (status != BRIM_OK) {
        assert_int_equal(status, BRIM_STATUS_CORRUPT);
        assert_true(strlen(brim_detail()) > 10);
        return status;
    }
    if (info.memory > 1 << 20) {
        return BRIM_STATUS_BUDGET;
    }
    struct brim__decoding decoding = whole_of(&input, &info);
    decoding.damaged = damaged;
    const brim_status decoded = run_decoding(&decoding, &run);
    if (decoded != BRIM_OK) {
        assert_int_equal(decoded, BRIM_STATUS_CORRUPT);
        assert_null(strstr(brim_detail(), "needs more than"));
        assert_null(strstr(brim_detail(), "has changed"));
    }
    return decoded;
}

static void test_truncation(void **state) {
    (void)state;
    for (unsigned way = 0; way < WAYS; way++) {
        struct spec spec = { .width = 40, .height = 36, .components = 3, .h = { 2 }, .v = { 2 } };
        set_way(&spec, way);
        const struct bytes file = make_jpeg(&spec, way);
        const struct edge edge = make_edge(file.count);
        assert_int_equal(try_bytes(to_edge(&edge, file.data, file.count), file.count, false),
                         BRIM_OK);
        for (size_t bytes = 0; bytes < file.count; bytes++) {
            const uint8_t *cut = to_edge(&edge, file.data, bytes);
            if (try_bytes(cut, bytes, false) != BRIM_STATUS_CORRUPT) {
                fail_msg("way %u: %zu of %zu bytes are taken for all", way, bytes, file.count);
            }
            (void)try_bytes(cut, bytes, true);
        }
        const size_t most = file.count - 10;
        assert_int_equal(try_bytes(to_edge(&edge, file.data, most), most, true), BRIM_OK);
        free_edge(&edge);
        free(file.data);
    }
}

static void test_random_damage(void **state) {
    (void)state;
    uint64_t random = 99;
    unsigned passed = 0;
    for (unsigned way = 0; way < WAYS; way++) {
        struct spec spec = { .width = 33, .height = 20, .components = 3, .h = { 2 }, .v = { 2 } };
        set_way(&spec, way);
        const struct bytes file = make_jpeg(&spec, way);
        const struct edge edge = make_edge(file.count);
        for (unsigned i = 0; i < 2000; i++) {
            uint8_t *data = to_edge(&edge, file.data, file.count);
            const unsigned changes = 1 + (unsigned)(next_random(&random) >> 40) % 4;
            for (unsigned k = 0; k < changes; k++) {
                data[(next_random(&random) >> 20) % file.count] =
                    (uint8_t)(next_random(&random) >> 40);
            }
            passed += try_bytes(data, file.count, i % 2 == 1) == BRIM_OK;
        }
        free_edge(&edge);
        free(file.data);
    }
    assert_in_range(passed, 1000, 9000); /* both ends were met */
}

/* The first marker of that kind. */
static size_t find_segment(const struct bytes *file, uint8_t marker) {
    size_t at = 2;
    while (file->data[at + 1] != marker) {
        at += 2 + ((size_t)file->data[at + 2] << 8 | file->data[at + 3]);
        assert_true(at + 4 < file->count);
    }
    return at;
}

static void test_scan_bomb(void **state) {
    (void)state;
    const struct spec spec = { .width = 64, .height = 64, .components = 1, .progressive = true };
    const struct bytes file = make_jpeg(&spec, 1);
    static const uint8_t scan[] = { 0xff, 0xda, 0, 8, 1, 1, 0, 1, 5, 0, 0 };
    for (unsigned scans = 500; scans <= 80000; scans *= 160) {
        struct bytes bomb = { 0 };
        put(&bomb, file.data, file.count - 2);
        for (unsigned i = 0; i < scans; i++) {
            put(&bomb, scan, sizeof scan);
        }
        put(&bomb, "\xff\xd9", 2);
        const brim_status status = try_bytes(bomb.data, bomb.count, true);
        assert_int_equal(status, scans == 500 ? BRIM_OK : BRIM_STATUS_CORRUPT);
        if (scans > 500) {
            assert_detail_has("scan bomb");
        }
        free(bomb.data);
    }
    free(file.data);
}

/* Scans are bounded together with pixels; those of usual files are far below. */
static void test_work_is_bounded(void **state) {
    (void)state;
    struct bytes bomb = make_bomb(400, 300, 30);
    struct brim__input input;
    struct brim__image_info info;
    brim__input_memory(&input, bomb.data, bomb.count);
    assert_int_equal(brim__jpeg_info(&input, false, &info), BRIM_OK);
    struct brim__decoding decoding = whole_of(&input, &info);
    static const unsigned allowed[] = { 0, 24, 29, 30, 31 };
    for (size_t i = 0; i < BRIM__COUNT(allowed); i++) {
        struct run run = { 0 };
        decoding.most_work = (uint64_t)allowed[i] * 400 * 300;
        const brim_status status = run_decoding(&decoding, &run);
        assert_int_equal(status,
                         allowed[i] == 0 || allowed[i] >= 30 ? BRIM_OK : BRIM_STATUS_CORRUPT);
        if (status != BRIM_OK) {
            assert_detail_has(allowed[i] == 24 ? "400x300 pixels and more than 24 scans"
                                               : "more than 29 scans");
            assert_detail_has("raise decode's max_pixels");
        }
    }
    free(bomb.data);
}

struct question {
    unsigned asked, stop_at;
};

static int answer(void *user) {
    struct question *question = user;
    return ++question->asked >= question->stop_at;
}

/* Between rows of blocks of a scan, between rows, and between pieces of the data. */
static void test_interrupted(void **state) {
    (void)state;
    const struct spec spec = { .width = 700, .height = 900, .components = 3, .h = { 2 } };
    struct bytes files[] = { make_bomb(4000, 4000, 900), make_jpeg(&spec, 1) };
    for (size_t i = 0; i < BRIM__COUNT(files); i++) {
        atomic_bool flag = true;
        struct brim__stop stop = { .flag = &flag };
        struct brim__input input;
        struct brim__image_info info;
        brim__input_memory(&input, files[i].data, files[i].count);
        assert_int_equal(brim__jpeg_info(&input, false, &info), BRIM_OK);
        input.stop = &stop;
        struct brim__decoding decoding = whole_of(&input, &info);
        for (int damaged = 0; damaged < 2; damaged++) {
            struct run run = { 0 };
            decoding.damaged = damaged == 1;
            assert_int_equal(run_decoding(&decoding, &run), BRIM_STATUS_INTERRUPTED);
            assert_int_equal(run.next, 0);
        }
    }
    /* a question is asked from time to time, and the flag is set by the answer */
    atomic_bool flag = false;
    struct question question = { .stop_at = 3 };
    struct brim__stop stop = { .flag = &flag, .asked = answer, .user = &question };
    struct brim__input input;
    struct brim__image_info info;
    struct run run = { 0 };
    brim__input_memory(&input, files[0].data, files[0].count);
    assert_int_equal(brim__jpeg_info(&input, false, &info), BRIM_OK);
    input.stop = &stop;
    struct brim__decoding decoding = whole_of(&input, &info);
    assert_int_equal(run_decoding(&decoding, &run), BRIM_STATUS_INTERRUPTED);
    assert_int_equal(question.asked, 3);
    assert_true(atomic_load(&flag));
    free(files[0].data);
    free(files[1].data);
}

static void refuse(const struct bytes *file, const char *part) {
    struct brim__input input;
    struct brim__image_info info;
    brim__input_memory(&input, file->data, file->count);
    assert_int_equal(brim__jpeg_info(&input, true, &info), BRIM_STATUS_CORRUPT);
    assert_detail_has(part);
}

/* The file with one byte of its segment changed. */
static void refuse_changed(const struct bytes *file, uint8_t marker, size_t at, uint8_t value,
                           const char *part) {
    struct bytes changed = { 0 };
    put(&changed, file->data, file->count);
    changed.data[find_segment(file, marker) + at] = value;
    refuse(&changed, part);
    free(changed.data);
}

static void test_refused_by_name(void **state) {
    (void)state;
    const struct spec spec = { .width = 300, .height = 20, .components = 3, .h = { 2 } };
    const struct bytes file = make_jpeg(&spec, 1);
    static const struct {
        uint8_t marker;
        const char *name;
    } kinds[] = {
        { 0xc3, "lossless" },
        { 0xc5, "hierarchical" },
        { 0xc9, "arithmetically" },
        { 0xca, "arithmetically" },
        { 0xcb, "lossless" },
        { 0xf7, "JPEG-LS" },
        { 0xc8, "unknown marker ffc8" },
    };
    for (size_t i = 0; i < BRIM__COUNT(kinds); i++) {
        refuse_changed(&file, 0xc0, 1, kinds[i].marker, kinds[i].name);
    }
    refuse_changed(&file, 0xc0, 4, 12, "12 bits for a sample");
    refuse_changed(&file, 0xc0, 6, 0, "height after its pixels"); /* 20 is one byte */
    refuse_changed(&file, 0xc0, 9, 2, "of 2 components");
    refuse_changed(&file, 0xc0, 9, 4, "of 4 components has");
    refuse_changed(&file, 0xc0, 11, 0x50, "sampling factors 5 x 0");
    refuse_changed(&file, 0xc0, 14, 0x31, "whole ratios"); /* 2 and 3 */
    refuse_changed(&file, 0xda, 4, 0, "first scan's header");
    refuse_changed(&file, 0xda, 4, 4, "first scan's header");
    refuse_changed(&file, 0xda, 1, 0xd9, "ends before its pixels");
    refuse_changed(&file, 0xdb, 1, 0xd8, "begins again");
    refuse_changed(&file, 0xc4, 1, 0xc0, "a second frame header");
    refuse_changed(&file, 0xdb, 3, 0, "a segment of 0 bytes");
    refuse(&(struct bytes){ (uint8_t *)"\x89PNG", 4 }, "is not a JPEG");
    refuse(&(struct bytes){ (uint8_t *)"\xff", 1 }, "ends after 1 bytes");
    free(file.data);
}

/* Neither many segments nor much rubbish keep a reader busy. */
static void test_endless_headers(void **state) {
    (void)state;
    const struct spec spec = { .width = 30, .height = 20, .components = 3 };
    const struct bytes file = make_jpeg(&spec, 1);
    struct bytes long_one = { 0 };
    put(&long_one, "\xff\xd8", 2);
    for (int i = 0; i < 4090; i++) {
        put(&long_one, "\xff\xfe\0\3x", 5);
    }
    struct bytes longer = { 0 };
    put(&longer, long_one.data, long_one.count);
    put(&longer, long_one.data + 2, long_one.count - 2);
    refuse(&longer, "segments before its pixels");
    put(&long_one, file.data + 2, file.count - 2);
    refuse(&long_one, "segments before its pixels");
    struct bytes stray = { 0 };
    put(&stray, "\xff\xd8", 2);
    for (int i = 0; i < 5000; i++) {
        put(&stray, "rubbish\xff\0", 9);
    }
    struct bytes more = { 0 };
    put(&more, stray.data, stray.count);
    put(&more, stray.data + 2, stray.count - 2);
    refuse(&more, "belong to no segment");
    put(&stray, "\xff\xff\xff", 3); /* fill bytes */
    put(&stray, file.data + 2, file.count - 2);
    assert_int_equal(try_bytes(stray.data, stray.count, false), BRIM_OK);
    free(more.data);
    free(stray.data);
    free(longer.data);
    free(long_one.data);
    free(file.data);
}

/* A header that is not the one that the memory was sized by. */
static void test_changed_header(void **state) {
    (void)state;
    struct spec spec = { .width = 30, .height = 20, .components = 3 };
    const struct bytes small = make_jpeg(&spec, 1);
    spec.width = 31;
    const struct bytes other = make_jpeg(&spec, 1);
    struct brim__input input;
    struct brim__image_info info;
    struct run run = { 0 };
    brim__input_memory(&input, small.data, small.count);
    assert_int_equal(brim__jpeg_info(&input, false, &info), BRIM_OK);
    brim__input_memory(&input, other.data, other.count);
    struct brim__decoding decoding = whole_of(&input, &info);
    assert_int_equal(run_decoding(&decoding, &run), BRIM_STATUS_CORRUPT);
    assert_detail_has("has changed");
    free(small.data);
    free(other.data);
}

static void test_failing_read(void **state) {
    (void)state;
    static uint8_t window[BRIM__INPUT_WINDOW];
    const struct spec spec = { .width = 600, .height = 500, .components = 3 };
    const struct bytes file = make_jpeg(&spec, 1);
    assert_true(file.count > 3 * sizeof window);
    write_file("short.jpg", file.data, file.count);
    const struct path path = in_directory("short.jpg");
    struct brim__file opened;
    struct brim__input input;
    struct brim__image_info info;
    struct run run = { 0 };
    assert_int_equal(brim__file_open(&opened, path.text), BRIM_OK);
    brim__input_file(&input, &opened, 0, file.count, window);
    assert_int_equal(brim__jpeg_info(&input, true, &info), BRIM_OK);
    assert_int_equal(truncate(path.text, (off_t)(2 * sizeof window)), 0);
    struct brim__decoding decoding = whole_of(&input, &info);
    decoding.damaged = true; /* reading is another matter */
    assert_int_equal(run_decoding(&decoding, &run), BRIM_STATUS_CORRUPT);
    assert_detail_has("short.jpg");
    brim__file_close(&opened);
    free(file.data);
}

/* ------------------------------------------------------------------- EXIF */

static size_t make_tiff(uint8_t *tiff, bool big, uint32_t directory, uint32_t entries, uint32_t tag,
                        uint32_t type, uint32_t value) {
    size_t used = 0;
#define PUT(number, bytes)                                                             \
    for (uint32_t k = 0; k < (bytes); k++) {                                           \
        tiff[used++] = (uint8_t)((uint32_t)(number) >> 8 * (big ? (bytes)-1 - k : k)); \
    }
    memcpy(tiff, big ? "MM" : "II", 2);
    used = 2;
    PUT(42, 2)
    PUT(directory, 4)
    PUT(entries, 2)
    PUT(tag, 2)
    PUT(type, 2)
    PUT(1, 4)
    PUT(value, type == 3 ? 2u : type == 1 ? 1u : 4u)
    while (used < 22) {
        tiff[used++] = 0;
    }
    PUT(8, 4) /* the next directory: this one */
#undef PUT
    return used;
}

static void test_exif(void **state) {
    (void)state;
    const struct edge edge = make_edge(64);
    uint8_t tiff[64];
    for (int big = 0; big < 2; big++) {
        for (uint32_t type = 1; type <= 4; type++) {
            for (uint32_t value = 0; value < 12; value++) {
                const size_t bytes = make_tiff(tiff, big, 8, 1, 0x112, type, value);
                const uint8_t wanted = (uint8_t)(type != 2 && value >= 1 && value <= 8 ? value : 1);
                assert_int_equal(brim__exif_orientation(tiff, bytes), wanted);
                /* any part of it, with nothing behind */
                for (size_t cut = 0; cut < bytes; cut++) {
                    const uint8_t got = brim__exif_orientation(to_edge(&edge, tiff, cut), cut);
                    assert_int_equal(got, cut < 22 ? 1 : wanted);
                }
            }
        }
        /* directories nowhere, inside the header, and of more entries than there are */
        for (uint32_t at = 0; at < 40; at++) {
            const size_t bytes = make_tiff(tiff, big, at, 65535, 0x112, 3, 6);
            const uint8_t got = brim__exif_orientation(to_edge(&edge, tiff, bytes), bytes);
            assert_int_equal(got, at == 8 ? 6 : 1);
        }
        const size_t bytes = make_tiff(tiff, big, UINT32_MAX, 1, 0x112, 3, 6);
        assert_int_equal(brim__exif_orientation(tiff, bytes), 1);
    }
    uint64_t random = 5;
    for (int i = 0; i < 100000; i++) {
        const size_t bytes = make_tiff(tiff, i % 2, 8, 1, 0x112, 3, 6);
        tiff[(next_random(&random) >> 20) % bytes] = (uint8_t)(next_random(&random) >> 40);
        const uint8_t got = brim__exif_orientation(to_edge(&edge, tiff, bytes), bytes);
        assert_in_range(got, 1, 8);
    }
    free_edge(&edge);
}

static void test_exif_in_file(void **state) {
    (void)state;
    const struct spec spec = { .width = 30, .height = 20, .components = 3 };
    const struct bytes file = make_jpeg(&spec, 1);
    const size_t frame = find_segment(&file, 0xc0), scan = find_segment(&file, 0xda);
    const size_t places[] = { 2, frame, scan };
    for (size_t i = 0; i < BRIM__COUNT(places); i++) {
        struct bytes with = { 0 };
        put(&with, file.data, places[i]);
        put(&with, "\xff\xe1\0\10http:/", 10); /* XMP */
        for (uint32_t value = 6; value <= 8; value += 2) {
            uint8_t tiff[64];
            const size_t bytes = make_tiff(tiff, true, 8, 1, 0x112, 3, value);
            const uint8_t head[] = {
                0xff, 0xe1, 0, (uint8_t)(8 + bytes), 'E', 'x', 'i', 'f', 0, 0
            };
            put(&with, head, sizeof head);
            put(&with, tiff, bytes);
        }
        put(&with, file.data + places[i], file.count - places[i]);
        struct brim__input input;
        struct brim__image_info info;
        brim__input_memory(&input, with.data, with.count);
        assert_int_equal(brim__jpeg_info(&input, true, &info), BRIM_OK);
        assert_int_equal(info.orientation, 6); /* the first one */
        assert_int_equal(brim__jpeg_info(&input, false, &info), BRIM_OK);
        assert_int_equal(info.orientation, 1);
        assert_int_equal(try_bytes(with.data, with.count, false), BRIM_OK);
        free(with.data);
    }
    free(file.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncation),      cmocka_unit_test(test_random_damage),
        cmocka_unit_test(test_work_is_bounded), cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_scan_bomb),       cmocka_unit_test(test_refused_by_name),
        cmocka_unit_test(test_endless_headers), cmocka_unit_test(test_changed_header),
        cmocka_unit_test(test_failing_read),    cmocka_unit_test(test_exif),
        cmocka_unit_test(test_exif_in_file),
    };
    return cmocka_run_group_tests(tests, begin_tests_in_memory, end_tests);
}
