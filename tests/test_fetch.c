/*
 * test_fetch.c: what all sources that read files promise (source.h): the ranges that
 * `locate` gives, read by other means and handed to `parse`, make the samples that `fetch`
 * makes, one by one and in runs. Every source of the table is here, or says why not.
 */
#include "arrays_util.h"
#include "folder_util.h"

#include "plan/pipeline.h"
#include "source/index_file.h"

/* ------------------------------------------------------------------- files */

static void put_bytes(const char *name, struct bytes *bytes) {
    put(name, bytes->data, bytes->count);
    free(bytes->data);
    *bytes = (struct bytes){ 0 };
}

/* Bytes that count up. */
static void add_counting(struct bytes *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const uint8_t byte = (uint8_t)(i * 7 + i / 256);
        add(bytes, &byte, 1);
    }
}

static struct bytes npy(const char *header, size_t data_bytes) {
    struct bytes bytes = { 0 };
    add(&bytes, "\x93NUMPY\1\0", 8);
    add_number(&bytes, strlen(header) + 1, 2);
    add_text(&bytes, header);
    add_text(&bytes, "\n");
    add_counting(&bytes, data_bytes);
    return bytes;
}

static void put_npz(const char *name, bool deflated) {
    struct bytes member = npy("{'descr':'<i2','fortran_order':False,'shape':(30,5)}", 300);
    struct bytes packed = { 0 }, zip = { 0 };
    const uint32_t crc = (uint32_t)crc32(0, member.data, (uInt)member.count);
    if (deflated) {
        packed = compressed(member.data, member.count, RAW_DEFLATE);
    } else {
        add(&packed, member.data, member.count);
    }
    size_t directory = 0;
    for (int central = 0; central < 2; central++) {
        directory = zip.count;
        add_number(&zip, central ? 0x02014b50 : 0x04034b50, 4);
        add_number(&zip, 20, central ? 2 : 0);
        add_number(&zip, 20, 2);
        add_number(&zip, 0, 2);
        add_number(&zip, deflated ? 8 : 0, 2);
        add_number(&zip, 0, 4);
        add_number(&zip, crc, 4);
        add_number(&zip, packed.count, 4);
        add_number(&zip, member.count, 4);
        add_number(&zip, 5, 2);
        add_number(&zip, 0, central ? 16 : 2);
        add_text(&zip, "a.npy");
        add(&zip, packed.data, central ? 0 : packed.count);
    }
    const size_t end = zip.count;
    add_number(&zip, 0x06054b50, 4);
    add_number(&zip, 0, 4);
    add_number(&zip, 1, 2);
    add_number(&zip, 1, 2);
    add_number(&zip, end - directory, 4);
    add_number(&zip, directory, 4);
    add_number(&zip, 0, 2);
    put_bytes(name, &zip);
    free(member.data);
    free(packed.data);
}

static void put_arrays(void) {
    struct bytes bytes = npy("{'descr':'<i4','fortran_order':False,'shape':(137,3)}", 137 * 12);
    put_bytes("a.npy", &bytes);
    bytes = npy("{'descr':'<i4','fortran_order':False,'shape':(5,3)}", 60);
    put_bytes("b.npy", &bytes);
    bytes = npy("{'descr':'<i4','fortran_order':True,'shape':(9,4)}", 144);
    put_bytes("f.npy", &bytes);
    bytes = npy("{'descr':'|u1','fortran_order':False,'shape':(3,40000)}", 120000);
    put_bytes("large.npy", &bytes);
    put_npz("stored.npz", false);
    put_npz("deflated.npz", true);
    add_big(&bytes, 0x00000803, 4);
    add_big(&bytes, 20, 4);
    add_big(&bytes, 4, 4);
    add_big(&bytes, 3, 4);
    add_counting(&bytes, 240);
    struct bytes packed = compressed(bytes.data, bytes.count, GZIP);
    put_bytes("images.idx", &bytes);
    put_bytes("images.idx.gz", &packed);
    add_counting(&bytes, 3073 * 70);
    put_bytes("cifar.bin", &bytes);
    add_counting(&bytes, 6 + 10 * 100);
    put_bytes("records.bin", &bytes);
    static const char header[] = "{\"w\":{\"dtype\":\"I16\",\"shape\":[25,2],"
                                 "\"data_offsets\":[0,100]}}   ";
    add_number(&bytes, strlen(header), 8);
    add_text(&bytes, header);
    add_counting(&bytes, 100);
    put_bytes("w.safetensors", &bytes);
}

static void put_tokens(void) {
    struct bytes bytes = { 0 };
    add_counting(&bytes, 2 * 3000);
    put_bytes("u16.bin", &bytes);
    add_number(&bytes, 20240520, 4);
    add_number(&bytes, 1, 4);
    add_number(&bytes, 700, 4);
    add_number(&bytes, 0, 1012);
    add_counting(&bytes, 1400);
    put_bytes("llmc.bin", &bytes);
    add_counting(&bytes, 4 * 90);
    put_bytes("m.bin", &bytes);
    add(&bytes, "MMIDIDX\0\0", 9);
    add_number(&bytes, 1, 8);
    add_number(&bytes, 4, 1);
    add_number(&bytes, 2, 8);
    add_number(&bytes, 0, 8);
    add_number(&bytes, 60, 4);
    add_number(&bytes, 30, 4);
    add_number(&bytes, 0, 8);
    add_number(&bytes, 240, 8);
    put_bytes("m.idx", &bytes);
}

static void put_lines(void) {
    struct bytes bytes = { 0 };
    char line[200];
    add_text(&bytes, "name,n,value\n");
    for (int i = 0; i < 300; i++) {
        snprintf(line, sizeof line, "%s\"a \"\"quoted\"\"\n%d\",%d,%d.5%s\n",
                 i % 5 == 0 ? "\n" : "", i, i, -i, i % 3 == 0 ? "\r" : "");
        add_text(&bytes, line);
    }
    add_text(&bytes, "last,1,2"); /* without its end */
    put_bytes("t.csv", &bytes);
    put("u.csv", "name,n,value\nx,1,2\n", 19);
    for (int i = 0; i < 200; i++) {
        snprintf(line, sizeof line,
                 "{\"text\":\"a \\u00e4 %d\", \"list\":[%d,2,3%s], \"pair\":[1.5,%d]}\n", i, i,
                 i % 4 == 0 ? ",4,5" : "", i);
        add_text(&bytes, line);
    }
    put_bytes("t.jsonl", &bytes);
    for (int i = 0; i < 400; i++) {
        snprintf(line, sizeof line, "line %d%.*s\n", i, i % 60,
                 "------------------------------------------------------------");
        add_text(&bytes, i % 9 == 0 ? "\n" : line);
    }
    put_bytes("t.txt", &bytes);
    add_text(&bytes, "path,weight,other\n");
    for (int i = 0; i < 100; i++) {
        snprintf(line, sizeof line, "photos/%c/%d.png,%d.25,\"x\"\"%d\"\n", 'a' + i % 2, i, i, i);
        add_text(&bytes, line);
    }
    put_bytes("manifest.csv", &bytes);
    for (int i = 0; i < 50; i++) {
        snprintf(line, sizeof line, "{\"path\":\"photos/a/%d.png\", \"boxes\":[%d,2%s]}\n", i, i,
                 i % 2 == 0 ? ",3" : "");
        add_text(&bytes, line);
    }
    put_bytes("manifest.jsonl", &bytes);
}

static int set_up_files(void **state) {
    if (make_tree(state) != 0 || chdir(tree) != 0) {
        return -1;
    }
    put_arrays();
    put_tokens();
    put_lines();
    for (int i = 0; i < 150; i++) {
        char name[64];
        snprintf(name, sizeof name, "photos/%c/%.*s%d.png", 'a' + i % 2, i % 40,
                 "----------------------------------------", i);
        put(name, "x", 1);
    }
    return 0;
}

static int tear_down_files(void **state) {
    return chdir("/") == 0 ? drop_tree(state) : -1;
}

/* ------------------------------------------------------------------- cases */

/* Stage and arguments; one that has files lies in ranges. */
static const char *const cases[] = {
    "npy files=a.npy files=b.npy files=a.npy",
    "npy files=a.npy files=b.npy map=yes",
    "npy files=f.npy map=yes",
    "npy files=large.npy",
    "npz file=stored.npz",
    "npz file=stored.npz map=yes",
    "npz file=deflated.npz",
    "idx files=images.idx",
    "idx files=images.idx.gz",
    "idx files=images.idx files=images.idx.gz files=images.idx",
    "cifar files=cifar.bin",
    "records files=records.bin bytes=10 skip=6 fields=a:int16 fields=b:uint8:3@5",
    "records files=records.bin bytes=10 skip=6 order=big fields=a:int32@2 map=yes",
    "safetensors file=w.safetensors tensor=w",
    "safetensors file=w.safetensors tensor=w map=yes",
    "tokens files=u16.bin length=16",
    "tokens files=u16.bin files=u16.bin length=100 stride=3",
    "tokens files=u16.bin length=4 stride=100",
    "tokens files=u16.bin length=4 stride=100 map=yes",
    "tokens files=llmc.bin length=8 shift=no",
    "tokens files=m.bin length=8",
    "csv files=t.csv files=u.csv files=t.csv index=beside",
    "csv files=t.csv columns=value columns=n types=float32 types=int16 index=beside "
    "missing=zero max_text=5",
    "csv files=t.csv columns=n columns=value pack=yes index=beside",
    "jsonl files=t.jsonl index=beside",
    "jsonl files=t.jsonl fields=list types=int32[] index=beside",
    "text files=t.txt index=beside",
    "text files=t.txt files=t.csv form=bytes index=beside",
    "folder directories=photos probe=no index=beside",
    "folder directories=photos/a classes=no probe=no index=beside",
    "files manifest=manifest.csv probe=no index=beside",
    "files manifest=manifest.jsonl probe=no index=beside",
};

/* Sources without files, and what else stands in their room. */
static const char *const without[] = { "array", "callback", "range", "stream", "zip" };

static const struct brim__stage *find_stage(const char *name, size_t length) {
    for (size_t i = 0; i < brim__stages_count; i++) {
        if (strlen(brim__stages[i]->info.name) == length &&
            memcmp(brim__stages[i]->info.name, name, length) == 0) {
            return brim__stages[i];
        }
    }
    fail_msg("there is no stage %s", name);
    return NULL;
}

/* Lists get one value for each word; what has a default gets another. */
static void use_case(struct test_use *use, const char *text, char held[512]) {
    const size_t length = strcspn(text, " ");
    use_init(use, find_stage(text, length));
    snprintf(held, 512, "%s", text + length);
    char *rest = held;
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        char *value = strchr(word, '=');
        if (value != NULL) {
            *value = '\0';
            use_set(use, word, value + 1);
        }
    }
}

static void open_case(struct opened *opened, const char *text) {
    struct test_use use;
    char held[512];
    use_case(&use, text, held);
    if (open_use(opened, &use, NULL, 0) != BRIM_OK) {
        fail_msg("%s: %s", text, brim_detail());
    }
}

/* ---------------------------------------------------------------- contract */

/* One sample made in two ways. */
static void assert_same_record(const struct brim__source *source, const uint8_t *a,
                               const uint8_t *b) {
    for (uint32_t f = 0; f < source->field_count; f++) {
        const struct brim__source_field *field = &source->field[f];
        uint64_t elements = 1, unit = brim_dtype_bytes(field->view.dtype);
        if (field->deferred) {
            assert_string_equal(path_in(a, field), path_in(b, field));
            continue;
        }
        for (uint32_t i = 0; i < field->view.shape.rank; i++) {
            elements *= field->view.shape.dim[i];
        }
        if (field->form == BRIM_FORM_DENSE) {
            for (uint64_t e = 0; e < elements; e++) {
                double x[2], y[2];
                read_element(&field->view, a, e, x);
                read_element(&field->view, b, e, y);
                assert_memory_equal(x, y, sizeof x);
            }
            continue;
        }
        struct brim__span x, y;
        memcpy(&x, a + field->view.offset, sizeof x);
        memcpy(&y, b + field->view.offset, sizeof y);
        assert_int_equal(x.count, y.count);
        assert_true(x.count <= field->view.shape.dim[0]);
        unit *= elements / field->view.shape.dim[0];
        if (x.count > 0) {
            assert_memory_equal(x.data, y.data, x.count * unit);
        }
    }
}

/* The bytes of a range by the system's own calls, in memory of just that size. */
static uint8_t *read_range(const struct brim__source *source,
                           const struct brim__file_range *range) {
    uint8_t *bytes = malloc(range->bytes + source->range_margin + (range->bytes == 0));
    assert_non_null(bytes);
    if (range->file->fd < 0) { /* it was inflated */
        assert_non_null(range->memory);
        memcpy(bytes, range->memory, range->bytes);
        return bytes;
    }
    assert_true(range->offset <= range->file->bytes);
    assert_true(range->bytes <= range->file->bytes - range->offset);
    const int fd = open(range->file->path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, bytes, range->bytes, (off_t)range->offset), range->bytes);
    close(fd);
    if (range->memory != NULL) {
        assert_memory_equal(bytes, range->memory, range->bytes);
    }
    return bytes;
}

static void check_range(const struct brim__source *source, const struct brim__file_range *range,
                        const uint8_t *records, uint64_t count) {
    uint8_t *bytes = read_range(source, range);
    if (source->ops->parse == NULL) {
        assert_int_equal(range->bytes, (range->samples - 1) * source->pitch + source->record_bytes);
        for (uint64_t i = 0; i < brim__min(range->samples, count); i++) {
            assert_same_record(source, records + i * source->pitch, bytes + i * source->pitch);
        }
        free(bytes);
        return;
    }
    uint8_t *record = malloc(source->record_bytes), *work;
    assert_non_null(record);
    assert_int_equal(range->samples, 1);
    assert_true(range->bytes + source->range_margin <= source->range_bytes);
    assert_int_equal(
        posix_memalign((void **)&work, 64, source->work_bytes + source->scratch_bytes + 1), 0);
    memset(work, 0xa5, source->work_bytes + source->scratch_bytes);
    if (source->ops->parse(source, range, bytes, record, work) != BRIM_OK) {
        fail_msg("%s", brim_detail());
    }
    assert_same_record(source, records, record);
    free(work);
    free(record);
    free(bytes);
}

static void check_run(const struct brim__source *source, uint64_t count) {
    struct brim__file_range ranges[BRIM__MOST_RANGES];
    uint8_t *buffer = new_buffer(source, count);
    for (uint64_t sample = 0; sample < source->count;) {
        const uint8_t *records;
        uint64_t got, located = 0;
        size_t found = 0;
        if (fetch_run(source, sample, count, buffer, &records, &got) != BRIM_OK ||
            source->ops->locate(source, sample, count, ranges, BRIM__COUNT(ranges), &found) !=
                BRIM_OK) {
            fail_msg("sample %llu: %s", (unsigned long long)sample, brim_detail());
        }
        assert_true(got > 0 && got <= count && found > 0 && found <= BRIM__COUNT(ranges));
        for (size_t i = 0; i < found; i++) {
            assert_true(ranges[i].samples > 0);
            if (located < got) {
                check_range(source, &ranges[i], records + located * source->pitch, got - located);
            } else {
                free(read_range(source, &ranges[i]));
            }
            located += ranges[i].samples;
        }
        assert_true(located <= count && located <= source->count - sample);
        sample += brim__min(got, located);
    }
    free(buffer);
}

static void test_ranges_make_the_samples(void **state) {
    (void)state;
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        struct opened opened;
        open_case(&opened, cases[i]);
        const struct brim__source *source = &opened.source;
        assert_non_null(source->ops->locate);
        assert_ptr_equal(source->ops->fetch, brim__source_fetch);
        assert_int_equal(source->extra_bytes, brim__source_parsing_bytes(source));
        assert_true(source->ops->parse == NULL ? source->extra_bytes == 0
                                               : source->most_run <= BRIM__MOST_RANGES);
        check_run(source, 1);
        check_run(source, brim__min(3, source->most_run));
        check_run(source, source->most_run);
        brim__source_advise(source, 0, source->count);
        brim__source_advise(source, source->count - 1, UINT64_MAX);
        close_opened(&opened);
    }
}

static void test_every_source_is_here(void **state) {
    (void)state;
    for (size_t s = 0; s < brim__stages_count; s++) {
        const char *name = brim__stages[s]->info.name;
        bool known = brim__stages[s]->info.room != BRIM_ROOM_SOURCE;
        for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
            const size_t length = strcspn(cases[i], " ");
            known = known || (strlen(name) == length && memcmp(cases[i], name, length) == 0);
        }
        for (size_t i = 0; i < BRIM__COUNT(without); i++) {
            known = known || strcmp(without[i], name) == 0;
        }
        if (!known) {
            fail_msg("no test of the ranges of %s", name);
        }
    }
    struct opened opened;
    open_case(&opened, "range count=5");
    assert_null(opened.source.ops->locate);
    brim__source_advise(&opened.source, 0, 5); /* nothing to do */
    close_opened(&opened);
}

/* ----------------------------------------------------------------- hostile */

/* A file that is cut short after it was opened: its ranges lie outside, and reading says so. */
static void test_files_that_shrink(void **state) {
    (void)state;
    static const char *const shrinking[] = { "npy files=cut", "text files=cut index=beside" };
    struct bytes bytes = npy("{'descr':'|u1','fortran_order':False,'shape':(40,50)}", 2000);
    for (size_t i = 50; i < bytes.count; i += 50) {
        bytes.data[i] = i > 100 ? '\n' : bytes.data[i];
    }
    for (size_t i = 0; i < BRIM__COUNT(shrinking); i++) {
        struct opened opened;
        put("cut", bytes.data, bytes.count);
        open_case(&opened, i == 0 ? "npy files=cut" : "text files=cut form=bytes index=beside");
        const struct brim__source *source = &opened.source;
        const uint64_t last = source->count - 1;
        struct brim__file_range range;
        const uint8_t *record;
        uint64_t got;
        size_t found;
        uint8_t *buffer = new_buffer(source, 1);
        assert_int_equal(truncate("cut", 200), 0);
        assert_int_equal(fetch_run(source, 0, 1, buffer, &record, &got), BRIM_OK);
        assert_int_equal(source->ops->locate(source, last, 1, &range, 1, &found), BRIM_OK);
        assert_true(range.offset >= 200);
        assert_int_equal(fetch_run(source, last, 1, buffer, &record, &got), BRIM_STATUS_CORRUPT);
        assert_detail_has("cut while in use");
        brim__source_advise(source, 0, source->count);
        free(buffer);
        close_opened(&opened);
    }
    free(bytes.data);
}

/* Overwrites entries of an index, with hashes as they should be. */
static void forge(const char *path, const struct brim__index_item *items, size_t count) {
    uint8_t page[BRIM__INDEX_PAGE];
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, page, sizeof page, BRIM__INDEX_PAGE), sizeof page);
    memcpy(page, items, count * sizeof *items);
    brim__index_seal(page, 1);
    assert_int_equal(pwrite(fd, page, sizeof page, BRIM__INDEX_PAGE), sizeof page);
    close(fd);
}

/* Ranges that overlap, touch, lie far apart or in another order are read one by one; one that
 * lies outside the file, or is longer than any may be, is refused. */
static void test_forged_indexes(void **state) {
    (void)state;
    static char text[40000];
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (char)(i % 100 == 99 ? '\n' : 'a' + i % 26);
    }
    put("forged.txt", text, sizeof text);
    static const char *const line = "text files=forged.txt form=bytes index=beside";
    struct opened opened;
    open_case(&opened, line);
    assert_int_equal(opened.source.count, 400);
    close_opened(&opened);
    const struct brim__index_item items[] = {
        { .offset = 0, .length_kind = 50 },      { .offset = 50, .length_kind = 50 },
        { .offset = 20, .length_kind = 60 },     { .offset = 80, .length_kind = 0 },
        { .offset = 81, .length_kind = 10 },     { .offset = 30000, .length_kind = 99 },
        { .offset = 5, .length_kind = 99 },      { .offset = 200, .length_kind = 1 },
        { .offset = 202, .length_kind = 99 },    { .offset = sizeof text, .length_kind = 0 },
        { .offset = 39999, .length_kind = 2 },   { .offset = UINT64_MAX, .length_kind = 2 },
        { .offset = 100, .length_kind = 10000 },
    };
    const size_t good = BRIM__COUNT(items) - 3;
    struct brim__index_item own[BRIM__COUNT(items)];
    memcpy(own, items, sizeof own);
    for (size_t i = good; i < BRIM__COUNT(items); i++) {
        own[i] = (struct brim__index_item){ .offset = 7, .length_kind = 9 };
    }
    forge("forged.txt.text.brimidx", own, BRIM__COUNT(own));
    open_case(&opened, line);
    check_run(&opened.source, 1);
    check_run(&opened.source, opened.source.most_run);
    uint8_t *whole = new_buffer(&opened.source, opened.source.most_run);
    for (uint64_t s = 0; s < 9; s++) { /* how many are read together */
        static const uint64_t together[] = { 1, 1, 1, 2, 1, 1, 3, 2, 1 };
        const uint8_t *record;
        uint64_t got;
        assert_int_equal(fetch_run(&opened.source, s, 60, whole, &record, &got), BRIM_OK);
        assert_int_equal(got, together[s]);
    }
    free(whole);
    close_opened(&opened);
    for (size_t bad = good; bad < BRIM__COUNT(items); bad++) {
        struct brim__file_range ranges[4];
        size_t found;
        const uint8_t *record;
        uint64_t got;
        own[0] = items[bad];
        forge("forged.txt.text.brimidx", own, BRIM__COUNT(own));
        open_case(&opened, line);
        const struct brim__source *source = &opened.source;
        uint8_t *buffer = new_buffer(source, 4);
        assert_int_equal(source->ops->locate(source, 0, 4, ranges, 4, &found), BRIM_STATUS_CORRUPT);
        assert_int_equal(fetch_run(source, 0, 4, buffer, &record, &got), BRIM_STATUS_CORRUPT);
        assert_int_equal(fetch_run(source, 1, 3, buffer, &record, &got), BRIM_OK);
        brim__source_advise(source, 0, source->count);
        free(buffer);
        close_opened(&opened);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_make_the_samples),
        cmocka_unit_test(test_every_source_is_here),
        cmocka_unit_test(test_files_that_shrink),
        cmocka_unit_test(test_forged_indexes),
    };
    return cmocka_run_group_tests(tests, set_up_files, tear_down_files);
}
