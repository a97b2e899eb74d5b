/*
 * test_lines.c: files and streams of lines against a naive model.
 *
 * The model splits the bytes one at a time. Random bytes with many newlines,
 * quotes, carriage returns and blank lines are read by number and as a stream,
 * in all formats, and every record must be the model's.
 */
#include "source_util.h"

#include "base/fault.h"
#include "base/platform.h"
#include "source/lines_parts.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

/* ------------------------------------------------------------------- model */

struct lines {
    struct {
        const uint8_t *bytes;
        uint64_t length;
    } line[20000];
    size_t count;
};

static void split(struct lines *lines, const struct brim__line_format *format, const uint8_t *bytes,
                  size_t count) {
    size_t at = count >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    uint64_t skip = format->skip;
    lines->count = 0;
    while (at < count) {
        const size_t begin = at;
        bool inside = false, closed = false;
        while (at < count && (bytes[at] != '\n' || inside)) {
            const bool opens = format->delimiter == 0 || at == begin || closed ||
                               bytes[at - 1] == format->delimiter;
            closed = false;
            if (format->quotes && bytes[at] == '"' && (inside || opens)) {
                inside = !inside;
                closed = !inside;
            }
            at++;
        }
        size_t length = at - begin;
        if (at < count && length > 0 && bytes[at - 1] == '\r') {
            length--;
        }
        at++;
        if (format->skip_blank && length == 0) {
            continue;
        }
        if (skip > 0) {
            skip--;
            continue;
        }
        assert_true(lines->count < BRIM__COUNT(lines->line));
        lines->line[lines->count].bytes = bytes + begin;
        lines->line[lines->count].length = length;
        lines->count++;
    }
}

/* ------------------------------------------------------------------ format */

/* A record of these tests: a span, and a copy of the first bytes in `work`. */
struct record {
    struct brim__span span;
    const uint8_t *work;
    uint64_t padding;
};
#define WORK_BYTES 24

static brim_status parse(const struct brim__source *source, void *self, uint8_t *bytes,
                         uint64_t length, uint8_t *to, uint8_t *work) {
    (void)source;
    (void)self;
    if (length > 0 && bytes[0] == '!') {
        return brim__fail(BRIM_STATUS_CORRUPT, "a bad record");
    }
    bytes[length] = 0; /* allowed, and seen by the sanitizer if it is not ours */
    memcpy(work, bytes, brim__min(length, WORK_BYTES));
    const struct record record = { .span = { .data = bytes, .count = length }, .work = work };
    memcpy(to, &record, sizeof record);
    return BRIM_OK;
}

struct scene {
    struct brim__arena arena;
    struct brim__opening opening;
    struct brim__source source;
    struct brim__lines *lines;
    struct brim__item item[4];
    struct brim__values paths;
};

static const struct brim__line_format plain = {
    .stage = "test", .max_bytes = 1000, .work_bytes = WORK_BYTES, .parse = parse
};

static brim_status begin(struct scene *scene, const struct brim__line_format *format, const char *a,
                         const char *b) {
    memset(scene, 0, sizeof *scene);
    brim__arena_init(&scene->arena, NULL);
    scene->opening.arena = &scene->arena;
    scene->item[0].text = a;
    scene->item[1].text = b;
    scene->paths = (struct brim__values){ .items = scene->item, .count = b == NULL ? 1 : 2 };
    return brim__lines_init(&scene->source, format, &scene->paths, BRIM__INDEX_BESIDE,
                            &scene->opening, &scene->lines);
}

static brim_status finish(struct scene *scene) {
    scene->source.record_bytes = scene->source.pitch = sizeof(struct record);
    return brim__lines_finish(&scene->source, scene->lines);
}

static brim_status open_lines(struct scene *scene, const struct brim__line_format *format,
                              const char *a, const char *b) {
    const brim_status status = begin(scene, format, a, b);
    return status == BRIM_OK ? finish(scene) : status;
}

static void end(struct scene *scene) {
    if (scene->source.ops != NULL) {
        scene->source.ops->close(&scene->source);
    }
    brim__arena_fini(&scene->arena);
}

static uint8_t *buffer_for(const struct brim__source *source, uint64_t count) {
    uint8_t *buffer = NULL;
    assert_int_equal(posix_memalign((void **)&buffer, 64, brim__source_buffer(source, count)), 0);
    return buffer;
}

static void assert_record(const uint8_t *records, uint64_t number, const uint8_t *bytes,
                          uint64_t length) {
    struct record record;
    memcpy(&record, records + number * sizeof record, sizeof record);
    assert_int_equal(record.span.count, length);
    assert_memory_equal(record.span.data, bytes, length);
    assert_memory_equal(record.work, bytes, brim__min(length, WORK_BYTES));
}

/* Fetches [sample, sample + count) in as many calls as it takes. */
static void assert_fetched(const struct brim__source *source, const struct lines *model,
                           uint64_t sample, uint64_t count) {
    uint8_t *buffer = buffer_for(source, count);
    while (count > 0) {
        const uint8_t *records;
        uint64_t got;
        assert_int_equal(fetch_run(source, sample, count, buffer, &records, &got), BRIM_OK);
        assert_true(got >= 1 && got <= count && got <= source->most_run);
        for (uint64_t i = 0; i < got; i++) {
            assert_record(records, i, model->line[sample + i].bytes,
                          model->line[sample + i].length);
        }
        sample += got;
        count -= got;
    }
    free(buffer);
}

/* Bytes of which many are special. */
static size_t make_bytes(uint8_t *bytes, size_t count, unsigned special, uint64_t *random) {
    static const uint8_t specials[] = { '\n', '\n', '\r', '"', '\n', ',' };
    for (size_t i = 0; i < count; i++) {
        const uint64_t r = next_random(random);
        bytes[i] = r % 100 < special ? specials[(r >> 8) % sizeof specials]
                                     : (uint8_t)('a' + (r >> 16) % 26);
        if (bytes[i] == '\n' && i > 0 && (r >> 24) % 3 == 0) {
            bytes[i - 1] = '\r';
        }
    }
    if (next_random(random) % 4 == 0 && count >= 3) {
        memcpy(bytes, "\xEF\xBB\xBF", 3);
    }
    return count;
}

static void random_format(struct brim__line_format *format, uint64_t *random) {
    *format = plain;
    format->max_bytes = 1u << 20;
    format->quotes = next_random(random) % 2;
    format->delimiter = next_random(random) % 2 ? ',' : 0;
    format->skip_blank = next_random(random) % 2;
    format->skip = next_random(random) % 3;
    format->work_bytes = next_random(random) % 2 ? WORK_BYTES : 10000;
}

static struct lines model_of_file; /* large */

/* ------------------------------------------------------------------- files */

static void test_files_are_split_as_the_model_does(void **state) {
    (void)state;
    static uint8_t bytes[30000];
    uint64_t random = 1;
    const struct path path = scratch_path("lines");
    for (int round = 0; round < 150; round++) {
        struct brim__line_format format;
        struct scene scene;
        const unsigned special = round % 2 ? 30 : 3;
        const size_t count = make_bytes(
            bytes, (size_t)(next_random(&random) % (round < 100 ? 300 : 30000)), special, &random);
        random_format(&format, &random);
        write_file(path.text, bytes, count);
        unlink(scratch_path("lines.test.brimidx").text); /* too fast for the clock of files */
        split(&model_of_file, &format, bytes, count);
        const brim_status status = open_lines(&scene, &format, path.text, NULL);
        if (model_of_file.count == 0) {
            assert_int_equal(status, BRIM_STATUS_CORRUPT);
            assert_detail_has("holds no records");
            end(&scene);
            continue;
        }
        assert_int_equal(status, BRIM_OK);
        assert_int_equal(scene.source.count, model_of_file.count);
        uint64_t largest = 1;
        for (size_t i = 0; i < model_of_file.count; i++) {
            largest = brim__max(largest, model_of_file.line[i].length);
        }
        assert_int_equal(brim__lines_bound(scene.lines), largest);
        assert_fetched(&scene.source, &model_of_file, 0, model_of_file.count);
        for (int i = 0; i < 10; i++) {
            const uint64_t sample = next_random(&random) % model_of_file.count;
            const uint64_t some = 1 + next_random(&random) % 100;
            assert_fetched(&scene.source, &model_of_file, sample,
                           brim__min(some, model_of_file.count - sample));
        }
        end(&scene);
    }
}

/* Every way for a line end to lie across the end of a window. */
static void test_line_ends_at_every_place(void **state) {
    (void)state;
    static uint8_t bytes[8192 + 200];
    const struct path path = scratch_path("edges");
    for (size_t at = 8192 - 8; at < 8192 + 8; at++) {
        for (int quotes = 0; quotes < 2; quotes++) {
            struct brim__line_format format = plain;
            struct scene scene;
            uint64_t limits[BRIM_MEMORY_KINDS] = { 64 << 10 }; /* windows of 8 KiB */
            brim_budget *budget;
            format.quotes = quotes;
            format.max_bytes = 16384;
            memset(bytes, 'x', sizeof bytes);
            bytes[at] = '\n';
            bytes[at - 1] = '\r';
            bytes[at - 5] = bytes[at + 5] = '"';
            bytes[at + 3] = '\n';
            write_file(path.text, bytes, sizeof bytes);
            unlink(scratch_path("edges.test.brimidx").text);
            split(&model_of_file, &format, bytes, sizeof bytes);
            assert_int_equal(brim__budget_root("test", limits, &budget), BRIM_OK);
            assert_int_equal(begin(&scene, &format, path.text, NULL), BRIM_OK);
            struct brim__arena small;
            brim__arena_init(&small, budget);
            scene.opening.arena = &small;
            assert_int_equal(finish(&scene), BRIM_OK);
            assert_int_equal(scene.source.count, model_of_file.count);
            assert_fetched(&scene.source, &model_of_file, 0, model_of_file.count);
            end(&scene);
            brim__arena_fini(&small);
            brim_budget_free(budget);
        }
    }
}

static void test_several_files_are_one_source(void **state) {
    (void)state;
    const struct path a = scratch_path("a"), b = scratch_path("b");
    struct scene scene;
    char text[300];
    write_file(a.text, "one\ntwo\r\n\nfour", 14);
    write_file(b.text,
               "\xEF\xBB\xBF"
               "five\nsix\n",
               12);
    assert_int_equal(open_lines(&scene, &plain, a.text, b.text), BRIM_OK);
    const char *const wanted[] = { "one", "two", "", "four", "five", "six" };
    assert_int_equal(scene.source.count, BRIM__COUNT(wanted));
    struct lines *model = &model_of_file;
    for (size_t i = 0; i < BRIM__COUNT(wanted); i++) {
        model->line[i].bytes = (const uint8_t *)wanted[i];
        model->line[i].length = strlen(wanted[i]);
    }
    assert_fetched(&scene.source, model, 0, 6);
    assert_fetched(&scene.source, model, 5, 1);
    scene.source.ops->describe(&scene.source, 5, text, sizeof text);
    assert_non_null(strstr(text, "/b, record 1 (byte 8)"));
    brim__source_advise(&scene.source, 2, 4);
    const uint64_t identity = scene.source.identity;
    end(&scene);
    assert_int_equal(open_lines(&scene, &plain, b.text, a.text), BRIM_OK);
    assert_true(scene.source.identity != identity);
    end(&scene);
}

static void test_long_records_are_bad_samples(void **state) {
    (void)state;
    static uint8_t bytes[300000];
    const struct path path = scratch_path("long");
    struct scene scene;
    const uint8_t *records;
    uint64_t got;
    memset(bytes, 'y', sizeof bytes);
    memcpy(bytes, "short\n", 6);
    memcpy(bytes + sizeof bytes - 7, "\nshort\n", 7);
    write_file(path.text, bytes, sizeof bytes);
    assert_int_equal(open_lines(&scene, &plain, path.text, NULL), BRIM_OK);
    assert_int_equal(scene.source.count, 3);
    assert_int_equal(brim__lines_bound(scene.lines), 1000);
    assert_true(scene.source.extra_bytes < 100000);
    uint8_t *buffer = buffer_for(&scene.source, 3);
    assert_int_equal(fetch_run(&scene.source, 0, 3, buffer, &records, &got), BRIM_OK);
    assert_int_equal(got, 1);
    assert_int_equal(fetch_run(&scene.source, 1, 2, buffer, &records, &got), BRIM_STATUS_CORRUPT);
    assert_detail_has("max_bytes");
    assert_int_equal(fetch_run(&scene.source, 2, 1, buffer, &records, &got), BRIM_OK);
    assert_record(records, 0, (const uint8_t *)"short", 5);
    free(buffer);
    end(&scene);
}

static void test_bad_records_stop_a_run(void **state) {
    (void)state;
    const struct path path = scratch_path("bad");
    struct scene scene;
    const uint8_t *records;
    uint64_t got;
    write_file(path.text, "a\nb\n!c\nd\n", 9);
    assert_int_equal(open_lines(&scene, &plain, path.text, NULL), BRIM_OK);
    uint8_t *buffer = buffer_for(&scene.source, 4);
    assert_int_equal(fetch_run(&scene.source, 0, 4, buffer, &records, &got), BRIM_OK);
    assert_int_equal(got, 2);
    assert_int_equal(fetch_run(&scene.source, 2, 2, buffer, &records, &got), BRIM_STATUS_CORRUPT);
    assert_detail_has("a bad record");
    assert_int_equal(fetch_run(&scene.source, 3, 1, buffer, &records, &got), BRIM_OK);
    assert_record(records, 0, (const uint8_t *)"d", 1);
    free(buffer);
    end(&scene);
}

/* Entries that overlap, come in the wrong order or touch: an index that somebody
 * made by hand. Whatever comes out, nothing outside the buffer is touched. */
static void test_a_lying_index_stays_in_the_buffer(void **state) {
    (void)state;
    static uint8_t bytes[5000];
    uint64_t random = 9;
    const struct path path = scratch_path("lie");
    make_bytes(bytes, sizeof bytes, 10, &random);
    write_file(path.text, bytes, sizeof bytes);
    struct scene scene;
    assert_int_equal(open_lines(&scene, &plain, path.text, NULL), BRIM_OK);
    end(&scene);
    const struct path index = scratch_path("lie.test.brimidx");
    struct brim__file file;
    static uint8_t pages[20 * 4096];
    assert_int_equal(brim__file_open(&file, index.text), BRIM_OK);
    assert_true(file.bytes <= sizeof pages);
    assert_int_equal(brim__file_read(&file, 0, pages, file.bytes), BRIM_OK);
    const size_t count = file.bytes;
    brim__file_close(&file);
    for (int round = 0; round < 50; round++) {
        for (size_t page = 1; page < count / 4096; page++) {
            for (size_t i = 0; i < 170; i++) {
                const uint64_t offset = next_random(&random) % 5000;
                const uint64_t length = next_random(&random) % brim__min(5001 - offset, 60);
                memcpy(pages + page * 4096 + i * 24, &offset, 8);
                memcpy(pages + page * 4096 + i * 24 + 8, &length, 8);
            }
            const uint64_t hash = brim__hash(pages + page * 4096, 4088, page);
            memcpy(pages + page * 4096 + 4088, &hash, 8);
        }
        write_file(index.text, pages, count);
        assert_int_equal(open_lines(&scene, &plain, path.text, NULL), BRIM_OK);
        uint8_t *buffer = buffer_for(&scene.source, 64);
        for (uint64_t sample = 0; sample < scene.source.count; sample += 7) {
            const uint8_t *records;
            uint64_t got;
            const uint64_t most = brim__min(64, scene.source.count - sample);
            const brim_status status =
                fetch_run(&scene.source, sample, most, buffer, &records, &got);
            assert_true(status == BRIM_OK || status == BRIM_STATUS_CORRUPT);
            for (uint64_t i = 0; status == BRIM_OK && i < got; i++) {
                struct brim__index_entry entry; /* what it says is what one gets */
                assert_int_equal(brim__index_read(scene.lines->index, sample + i, 1, &entry),
                                 BRIM_OK);
                assert_record(records, i, bytes + entry.offset, entry.length);
            }
        }
        free(buffer);
        end(&scene);
    }
}

static void test_faults_while_reading(void **state) {
    (void)state;
    const struct path path = scratch_path("faults");
    const unsigned all = (1u << BRIM__FAULT_KINDS) - 1;
    write_file(path.text, "a\nbb\nccc\n", 9);
    const size_t descriptors = open_descriptors();
    for (uint64_t nth = 1;; nth++) {
        struct scene scene;
        unlink(scratch_path("faults.test.brimidx").text);
        brim__fault_arm(all, nth, false);
        brim_status status = open_lines(&scene, &plain, path.text, NULL);
        if (status == BRIM_OK) {
            uint8_t *buffer = buffer_for(&scene.source, 3);
            const uint8_t *records;
            uint64_t got;
            status = fetch_run(&scene.source, 0, 3, buffer, &records, &got);
            if (status == BRIM_OK) {
                assert_int_equal(got, 3);
                assert_record(records, 2, (const uint8_t *)"ccc", 3);
            }
            free(buffer);
        }
        const uint64_t injected = brim__fault_injected();
        brim__fault_arm(0, 0, false);
        assert_true(status == BRIM_OK || status == BRIM_STATUS_IO || status == BRIM_STATUS_MEMORY);
        end(&scene);
        assert_int_equal(open_descriptors(), descriptors);
        if (injected == 0) {
            assert_int_equal(status, BRIM_OK);
            break;
        }
    }
}

/* -------------------------------------------------------------------- peek */

static void test_peeking_at_files(void **state) {
    (void)state;
    const struct path path = scratch_path("peek");
    struct brim__line_format format = plain;
    struct scene scene;
    uint8_t *bytes;
    uint64_t length;
    format.skip_blank = true;
    format.quotes = true;
    write_file(path.text,
               "\xEF\xBB\xBF"
               "head\r\n\n\"a\nb\",c\nlast",
               22);
    assert_int_equal(begin(&scene, &format, path.text, NULL), BRIM_OK);
    const char *const wanted[] = { "head", "\"a\nb\",c", "last" };
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(brim__lines_peek(scene.lines, i, &bytes, &length), BRIM_OK);
        assert_int_equal(length, strlen(wanted[i]));
        assert_string_equal((const char *)bytes, wanted[i]);
    }
    assert_int_equal(brim__lines_peek(scene.lines, 3, &bytes, &length), BRIM_STATUS_END);
    brim__lines_format(scene.lines)->skip = 1;
    assert_int_equal(finish(&scene), BRIM_OK);
    assert_int_equal(scene.source.count, 2);
    end(&scene);

    format.max_bytes = 3;
    assert_int_equal(begin(&scene, &format, path.text, NULL), BRIM_OK);
    assert_int_equal(brim__lines_peek(scene.lines, 0, &bytes, &length), BRIM_STATUS_CORRUPT);
    assert_detail_has("max_bytes");
    end(&scene);
}

/* ----------------------------------------------------------------- streams */

/* A pipe at standard input, and a child that writes into it in pieces. */
struct feed {
    int kept; /* the standard input of before */
    pid_t child;
};

static void feed_begin(struct feed *feed, const uint8_t *bytes, size_t count, size_t piece) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    feed->child = fork();
    assert_true(feed->child >= 0);
    if (feed->child == 0) {
        close(ends[0]);
        while (count > 0) {
            const size_t some = count < piece ? count : piece;
            if (write(ends[1], bytes, some) != (ssize_t)some) {
                _exit(1);
            }
            bytes += some;
            count -= some;
        }
        _exit(0);
    }
    close(ends[1]);
    feed->kept = dup(0);
    assert_int_equal(dup2(ends[0], 0), 0);
    close(ends[0]);
}

static void feed_end(const struct feed *feed) {
    int code;
    assert_int_equal(dup2(feed->kept, 0), 0);
    close(feed->kept);
    assert_int_equal(waitpid(feed->child, &code, 0), feed->child);
}

/* Pulls to the end and compares with the model from sample `from` on. */
static void assert_pulled(const struct brim__source *source, const struct lines *model,
                          uint64_t from, uint64_t count) {
    uint8_t *buffer = buffer_for(source, count);
    uint64_t sample = from;
    for (;;) {
        const uint8_t *records;
        uint64_t got;
        const brim_status status =
            source->ops->pull(source, count, UINT64_MAX, buffer, &records, &got);
        if (status == BRIM_STATUS_END) {
            break;
        }
        assert_int_equal(status, BRIM_OK);
        assert_true(got >= 1 && got <= count && sample + got <= model->count);
        for (uint64_t i = 0; i < got; i++) {
            assert_record(records, i, model->line[sample + i].bytes,
                          model->line[sample + i].length);
        }
        sample += got;
    }
    assert_int_equal(sample, model->count);
    const uint8_t *records;
    uint64_t got;
    assert_int_equal(source->ops->pull(source, count, 0, buffer, &records, &got), BRIM_STATUS_END);
    free(buffer);
}

static void test_streams_are_split_as_the_model_does(void **state) {
    (void)state;
    static uint8_t bytes[200000];
    uint64_t random = 2;
    for (int round = 0; round < 60; round++) {
        struct brim__line_format format;
        struct scene scene;
        struct feed feed;
        const unsigned special = round % 3 == 0 ? 8 : 30;
        const size_t most = round < 40 ? 300 : round % 3 == 0 ? sizeof bytes : 30000;
        const size_t count =
            make_bytes(bytes, (size_t)(next_random(&random) % most), special, &random);
        random_format(&format, &random);
        split(&model_of_file, &format, bytes, count);
        feed_begin(&feed, bytes, count,
                   (size_t)(1 + next_random(&random) % (round < 40 ? 20 : 9000)));
        assert_int_equal(open_lines(&scene, &format, "-", NULL), BRIM_OK);
        assert_true(scene.source.stream && scene.source.count == BRIM_UNKNOWN);
        assert_null(scene.source.ops->rewind);
        assert_pulled(&scene.source, &model_of_file, 0, 1 + next_random(&random) % 100);
        end(&scene);
        feed_end(&feed);
    }
}

static void test_streams_wait_no_longer_than_told(void **state) {
    (void)state;
    const struct path path = scratch_path("pipe");
    struct scene scene;
    const uint8_t *records;
    uint64_t got;
    assert_int_equal(mkfifo(path.text, 0600), 0);
    assert_int_equal(open_lines(&scene, &plain, path.text, NULL), BRIM_OK);
    uint8_t *buffer = buffer_for(&scene.source, 4);
    const struct brim__source_ops *ops = scene.source.ops;
    /* nobody has opened it for writing yet: that is not the end */
    const uint64_t began = brim__now();
    assert_int_equal(ops->pull(&scene.source, 4, began + 30000000, buffer, &records, &got),
                     BRIM_STATUS_TIMEOUT);
    const uint64_t waited = brim__now() - began;
    assert_true(waited >= 30000000 && waited < UINT64_C(60000000000));
    const int fd = open(path.text, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "one\ntwo\nthr", 11), 11);
    assert_int_equal(ops->pull(&scene.source, 4, UINT64_MAX, buffer, &records, &got), BRIM_OK);
    assert_int_equal(got, 2);
    assert_record(records, 1, (const uint8_t *)"two", 3);
    assert_int_equal(ops->pull(&scene.source, 4, 0, buffer, &records, &got), BRIM_STATUS_TIMEOUT);
    assert_int_equal(write(fd, "ee", 2), 2);
    assert_int_equal(close(fd), 0);
    assert_int_equal(ops->pull(&scene.source, 4, UINT64_MAX, buffer, &records, &got), BRIM_OK);
    assert_record(records, 0, (const uint8_t *)"three", 5);
    assert_int_equal(ops->pull(&scene.source, 4, UINT64_MAX, buffer, &records, &got),
                     BRIM_STATUS_END);
    free(buffer);
    end(&scene);
}

static void test_streams_go_on_behind_bad_records(void **state) {
    (void)state;
    static uint8_t bytes[400000];
    struct brim__line_format format = plain;
    struct scene scene;
    struct feed feed;
    const uint8_t *records;
    uint64_t got;
    format.skip = 1;
    format.quotes = true;
    /* header | a | !bad | b | too long for the window | c | too long | d */
    memset(bytes, 'z', sizeof bytes);
    memcpy(bytes, "header\na\n!bad\nb\n", 16);
    memcpy(bytes + 300000, "\nc\n", 3);
    bytes[16] = bytes[299999] = '"'; /* what stands between them is one record */
    bytes[200000] = '\n';
    memcpy(bytes + 300003 + 1001, "\nd\n", 3);
    feed_begin(&feed, bytes, 300003 + 1004, 7777);
    assert_int_equal(open_lines(&scene, &format, "-", NULL), BRIM_OK);
    uint8_t *buffer = buffer_for(&scene.source, 8);
    const char *const wanted[] = { "a", NULL, "b", NULL, "c", NULL, "d" };
    for (size_t i = 0; i < BRIM__COUNT(wanted); i++) {
        const brim_status status =
            scene.source.ops->pull(&scene.source, 8, UINT64_MAX, buffer, &records, &got);
        if (wanted[i] == NULL) {
            assert_int_equal(status, BRIM_STATUS_CORRUPT);
            assert_detail_has(i == 1 ? "a bad record" : "max_bytes");
        } else {
            assert_int_equal(status, BRIM_OK);
            assert_int_equal(got, 1);
            assert_record(records, 0, (const uint8_t *)wanted[i], 1);
        }
    }
    assert_int_equal(scene.source.ops->pull(&scene.source, 8, UINT64_MAX, buffer, &records, &got),
                     BRIM_STATUS_END);
    free(buffer);
    end(&scene);
    feed_end(&feed);
}

static void test_peeking_at_streams_loses_nothing(void **state) {
    (void)state;
    static uint8_t bytes[100000];
    uint64_t random = 4;
    struct brim__line_format format = plain;
    struct feed feed;
    struct scene scene;
    uint8_t *peeked;
    uint64_t length;
    format.max_bytes = 100000;
    make_bytes(bytes, sizeof bytes, 5, &random);
    split(&model_of_file, &format, bytes, sizeof bytes);
    feed_begin(&feed, bytes, sizeof bytes, 1234);
    assert_int_equal(begin(&scene, &format, "-", NULL), BRIM_OK);
    const uint64_t numbers[] = { 0, 100, 3, 0 };
    for (size_t i = 0; i < BRIM__COUNT(numbers); i++) {
        assert_int_equal(brim__lines_peek(scene.lines, numbers[i], &peeked, &length), BRIM_OK);
        assert_int_equal(length, model_of_file.line[numbers[i]].length);
        assert_memory_equal(peeked, model_of_file.line[numbers[i]].bytes, length);
        assert_int_equal(peeked[length], 0);
    }
    /* far behind what peeking holds */
    assert_int_equal(brim__lines_peek(scene.lines, 100000, &peeked, &length), BRIM_STATUS_END);
    assert_int_equal(finish(&scene), BRIM_OK);
    assert_pulled(&scene.source, &model_of_file, 0, 64);
    end(&scene);
    feed_end(&feed);
}

static int give_up(void *user, const brim_progress *progress) {
    assert_int_equal(progress->total, BRIM_UNKNOWN);
    ++*(int *)user;
    return 1;
}

static void test_waiting_to_peek_can_be_given_up(void **state) {
    (void)state;
    const struct path path = scratch_path("silent");
    struct scene scene;
    uint8_t *bytes;
    uint64_t length;
    int calls = 0;
    assert_int_equal(mkfifo(path.text, 0600), 0);
    assert_int_equal(begin(&scene, &plain, path.text, NULL), BRIM_OK);
    scene.opening.progress = give_up;
    scene.opening.progress_user = &calls;
    assert_int_equal(brim__lines_peek(scene.lines, 0, &bytes, &length), BRIM_STATUS_INTERRUPTED);
    assert_int_equal(calls, 1);
    end(&scene);
}

static void test_a_file_at_standard_input_can_be_read_again(void **state) {
    (void)state;
    static uint8_t bytes[50000];
    uint64_t random = 6;
    const struct path path = scratch_path("again");
    struct brim__line_format format = plain;
    struct scene scene;
    format.skip = 1;
    format.skip_blank = true;
    make_bytes(bytes, sizeof bytes, 20, &random);
    write_file(path.text, bytes, sizeof bytes);
    const int kept = dup(0);
    const int fd = open(path.text, O_RDONLY);
    assert_int_equal(dup2(fd, 0), 0);
    assert_int_equal(lseek(0, 100, SEEK_SET), 100); /* somebody has read before us */
    split(&model_of_file, &format, bytes + 100, sizeof bytes - 100);
    assert_int_equal(open_lines(&scene, &format, "-", NULL), BRIM_OK);
    assert_non_null(scene.source.ops->rewind);
    assert_pulled(&scene.source, &model_of_file, 0, 30);
    const uint64_t places[] = { 0, 1, 777, model_of_file.count - 1, model_of_file.count };
    for (size_t i = 0; i < BRIM__COUNT(places); i++) {
        assert_int_equal(scene.source.ops->rewind(&scene.source, i, places[i]), BRIM_OK);
        assert_pulled(&scene.source, &model_of_file, places[i], 30);
    }
    assert_int_equal(scene.source.ops->rewind(&scene.source, 0, UINT64_MAX), BRIM_OK);
    assert_int_equal(lseek(0, 0, SEEK_CUR), 100); /* others share the position */
    end(&scene);
    assert_int_equal(dup2(kept, 0), 0);
    close(fd);
    close(kept);
}

static void test_sockets_and_devices(void **state) {
    (void)state;
    const struct path path = scratch_path("socket");
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct scene scene;
    const uint8_t *records;
    uint64_t got;
    assert_true(strlen(path.text) < sizeof address.sun_path);
    strcpy(address.sun_path, path.text);
    const int server = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(server, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(server, 1), 0);
    assert_int_equal(open_lines(&scene, &plain, path.text, NULL), BRIM_OK);
    const int client = accept(server, NULL, NULL);
    assert_int_equal(write(client, "hello\n", 6), 6);
    uint8_t *buffer = buffer_for(&scene.source, 1);
    assert_int_equal(scene.source.ops->pull(&scene.source, 1, UINT64_MAX, buffer, &records, &got),
                     BRIM_OK);
    assert_record(records, 0, (const uint8_t *)"hello", 5);
    close(client);
    close(server);
    assert_int_equal(scene.source.ops->pull(&scene.source, 1, UINT64_MAX, buffer, &records, &got),
                     BRIM_STATUS_END);
    end(&scene);

    assert_int_equal(open_lines(&scene, &plain, "/dev/null", NULL), BRIM_OK);
    assert_int_equal(scene.source.ops->pull(&scene.source, 1, UINT64_MAX, buffer, &records, &got),
                     BRIM_STATUS_END);
    end(&scene);

    /* one record without an end: bad once, and then nothing comes in time */
    assert_int_equal(open_lines(&scene, &plain, "/dev/zero", NULL), BRIM_OK);
    assert_int_equal(scene.source.ops->pull(&scene.source, 1, UINT64_MAX, buffer, &records, &got),
                     BRIM_STATUS_CORRUPT);
    const uint64_t soon = brim__now() + 20000000;
    assert_int_equal(scene.source.ops->pull(&scene.source, 1, soon, buffer, &records, &got),
                     BRIM_STATUS_TIMEOUT);
    end(&scene);
    free(buffer);
}

static void test_what_cannot_be_opened(void **state) {
    (void)state;
    struct scene scene;
    const struct path path = scratch_path("a");
    assert_int_equal(open_lines(&scene, &plain, path.text, "-"), BRIM_STATUS_INVALID);
    assert_detail_has("it must be the only file");
    end(&scene);
    assert_int_equal(open_lines(&scene, &plain, scratch_path("none").text, NULL), BRIM_STATUS_IO);
    end(&scene);
    assert_int_equal(open_lines(&scene, &plain, scratch_directory, NULL), BRIM_STATUS_IO);
    assert_detail_has("a directory");
    end(&scene);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_are_split_as_the_model_does),
        cmocka_unit_test(test_line_ends_at_every_place),
        cmocka_unit_test(test_several_files_are_one_source),
        cmocka_unit_test(test_long_records_are_bad_samples),
        cmocka_unit_test(test_bad_records_stop_a_run),
        cmocka_unit_test(test_a_lying_index_stays_in_the_buffer),
        cmocka_unit_test(test_faults_while_reading),
        cmocka_unit_test(test_peeking_at_files),
        cmocka_unit_test(test_streams_are_split_as_the_model_does),
        cmocka_unit_test(test_streams_wait_no_longer_than_told),
        cmocka_unit_test(test_streams_go_on_behind_bad_records),
        cmocka_unit_test(test_peeking_at_streams_loses_nothing),
        cmocka_unit_test(test_waiting_to_peek_can_be_given_up),
        cmocka_unit_test(test_a_file_at_standard_input_can_be_read_again),
        cmocka_unit_test(test_sockets_and_devices),
        cmocka_unit_test(test_what_cannot_be_opened),
    };
    return cmocka_run_group_tests_name("lines", tests, make_directory, remove_directory);
}
