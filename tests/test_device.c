/*
 * test_device.c: what all kinds of devices have in common, and the host as one: names
 * and numbers, memory and copies, lookups and gathers against plain models, and every
 * point at which a driver may fail.
 */
#include "device_util.h"

#include "base/fault.h"

#define DEVICE_FAULTS (1u << BRIM__FAULT_DEVICE)

/* ---------------------------------------------------------------- the names */

static void texts_name_devices(void **state) {
    (void)state;
    static const struct {
        const char *text;
        brim_device kind;
        uint32_t index;
    } good[] = {
        { "host", BRIM_DEVICE_HOST, 0 },       { "cpu", BRIM_DEVICE_HOST, 0 },
        { "host:0", BRIM_DEVICE_HOST, 0 },     { "cpu:0", BRIM_DEVICE_HOST, 0 },
        { "cuda", BRIM_DEVICE_CUDA, 0 },       { "cuda:0", BRIM_DEVICE_CUDA, 0 },
        { "cuda:7", BRIM_DEVICE_CUDA, 7 },     { "opencl", BRIM_DEVICE_OPENCL, 0 },
        { "opencl:3", BRIM_DEVICE_OPENCL, 3 },
    };
    for (size_t i = 0; i < BRIM__COUNT(good); i++) {
        brim_device kind = (brim_device)99;
        uint32_t index = 99;
        must_ok(brim_device_parse(good[i].text, &kind, &index));
        assert_int_equal(kind, good[i].kind);
        assert_int_equal(index, good[i].index);
    }
    static const struct {
        const char *text, *part;
    } bad[] = {
        { "", "is not a device" },        { "gpu", "\"gpu\" is not a device; write host" },
        { "CUDA", "is not a device" },    { "cuda ", "is not a device" },
        { "cudax:1", "is not a device" }, { ":1", "is not a device" },
        { "cuda:", "from 0 to 7" },       { "cuda:8", "from 0 to 7" },
        { "cuda:-1", "from 0 to 7" },     { "cuda:1x", "from 0 to 7" },
        { "cuda:1:2", "from 0 to 7" },    { "cuda:18446744073709551617", "from 0 to 7" },
        { "cpu:1", "from 0 to 0" },       { "host:1", "from 0 to 0" },
    };
    for (size_t i = 0; i < BRIM__COUNT(bad); i++) {
        brim_device kind = (brim_device)99;
        uint32_t index = 99;
        assert_int_equal(brim_device_parse(bad[i].text, &kind, &index), BRIM_STATUS_INVALID);
        assert_detail_has(bad[i].part);
        assert_int_equal(kind, 99);
        assert_int_equal(index, 99);
    }
    brim_device kind;
    uint32_t index;
    assert_int_equal(brim_device_parse(NULL, &kind, &index), BRIM_STATUS_INVALID);
    assert_int_equal(brim_device_parse("cuda", NULL, &index), BRIM_STATUS_INVALID);
    assert_int_equal(brim_device_parse("cuda", &kind, NULL), BRIM_STATUS_INVALID);
}

static void kinds_have_names_and_memory(void **state) {
    (void)state;
    assert_string_equal(brim_device_name(BRIM_DEVICE_HOST), "host");
    assert_string_equal(brim_device_name(BRIM_DEVICE_CUDA), "cuda");
    assert_string_equal(brim_device_name(BRIM_DEVICE_OPENCL), "opencl");
    assert_null(brim_device_name((brim_device)3));
    assert_null(brim_device_name((brim_device)-1));
    /* every device counts as a kind of its own */
    bool taken[BRIM_MEMORY_KINDS] = { [BRIM_MEMORY_HOST] = true, [BRIM_MEMORY_PINNED] = true };
    assert_int_equal(brim_device_memory(BRIM_DEVICE_HOST, 0), BRIM_MEMORY_HOST);
    assert_int_equal(brim_device_memory(BRIM_DEVICE_CUDA, 0), BRIM_MEMORY_DEVICE);
    for (int kind = BRIM_DEVICE_CUDA; kind <= BRIM_DEVICE_OPENCL; kind++) {
        for (uint32_t index = 0; index < BRIM_MAX_DEVICES; index++) {
            const int memory = (int)brim_device_memory((brim_device)kind, index);
            assert_in_range(memory, 0, BRIM_MEMORY_KINDS - 1);
            assert_false(taken[memory]);
            taken[memory] = true;
        }
    }
    assert_int_equal(brim_device_memory(BRIM_DEVICE_CUDA, BRIM_MAX_DEVICES), BRIM_MEMORY_NONE);
    assert_int_equal(brim_device_memory((brim_device)77, 0), BRIM_MEMORY_NONE);
}

static void the_host_is_a_device(void **state) {
    (void)state;
    uint32_t count = 0;
    must_ok(brim_device_count(BRIM_DEVICE_HOST, &count));
    assert_int_equal(count, 1);
    brim_device_info info = BRIM_DEVICE_INFO_INIT;
    must_ok(brim_device_read(BRIM_DEVICE_HOST, 0, &info));
    assert_int_equal(info.size, sizeof info);
    assert_int_equal(info.kind, BRIM_DEVICE_HOST);
    assert_string_equal(info.name, "host");
    assert_true(info.total_bytes > 0 && info.free_bytes > 0);
    assert_true(info.largest_bytes == BRIM_UNLIMITED);
    assert_int_equal(info.unified, 1);
    assert_int_equal(info.converts, 1);
}

static void a_shorter_info_is_filled_as_far_as_it_goes(void **state) {
    (void)state;
    brim_device_info info;
    memset(&info, 0x5a, sizeof info);
    info.size = offsetof(brim_device_info, name);
    must_ok(brim_device_read(BRIM_DEVICE_HOST, 0, &info));
    assert_int_equal(info.size, offsetof(brim_device_info, name));
    assert_int_equal(info.kind, BRIM_DEVICE_HOST);
    assert_int_equal(info.index, 0);
    for (size_t i = offsetof(brim_device_info, name); i < sizeof info; i++) {
        assert_int_equal(((const uint8_t *)&info)[i], 0x5a);
    }
}

static void what_makes_no_sense_is_refused(void **state) {
    (void)state;
    uint32_t count = 77;
    brim_device_info info = BRIM_DEVICE_INFO_INIT;
    brim_device_info unset = { 0 };
    assert_int_equal(brim_device_count(BRIM_DEVICE_HOST, NULL), BRIM_STATUS_INVALID);
    assert_int_equal(brim_device_count((brim_device)3, &count), BRIM_STATUS_INVALID);
    assert_detail_has("3 is not a kind of device");
    assert_int_equal(count, 77);
    assert_int_equal(brim_device_read((brim_device)-1, 0, &info), BRIM_STATUS_INVALID);
    assert_int_equal(brim_device_read(BRIM_DEVICE_HOST, 0, NULL), BRIM_STATUS_INVALID);
    assert_int_equal(brim_device_read(BRIM_DEVICE_HOST, 0, &unset), BRIM_STATUS_INVALID);
    assert_int_equal(brim_device_read(BRIM_DEVICE_HOST, 1, &info), BRIM_STATUS_INVALID);
    assert_detail_has("there is no host:1: the last device of this kind is host:0");
    struct brim__device device;
    assert_int_equal(brim__device_open(&device, BRIM_DEVICE_HOST, 1, NULL, NULL),
                     BRIM_STATUS_INVALID);
    brim__device_close(&device);
    assert_int_equal(brim__device_open(&device, (brim_device)9, 0, NULL, NULL),
                     BRIM_STATUS_INVALID);
    assert_int_equal(brim__device_open(&device, BRIM_DEVICE_HOST, 0, &device, NULL),
                     BRIM_STATUS_INVALID);
    assert_detail_has("the host has no queues");
}

/* ------------------------------------------------------------ memory, copies */

static void bytes_go_there_and_back(void **state) {
    (void)state;
    struct place place;
    place_open(&place, BRIM_DEVICE_HOST);
    enum { BYTES = 10000 };
    uint8_t *const data = some_bytes(BYTES, 1);
    uint8_t *const back = some_bytes(BYTES, 2);
    struct brim__device_memory a = put(&place, data, BYTES);
    struct brim__device_memory b;
    must_ok(brim__device_take(&place.device, BYTES, &b));
    assert_int_equal((uintptr_t)a.handle % 64, 0);
    must_ok(brim__queue_copy(&place.queue, &b, 5000, &a, 100, 5000));
    must_ok(brim__queue_copy(&place.queue, &b, 0, &b, 5000, 5000));
    must_ok(brim__queue_write(&place.queue, &b, BYTES, data, 0));
    must_ok(brim__queue_read(&place.queue, back, &b, BYTES, 0));
    must_ok(brim__queue_copy(&place.queue, &a, 0, &b, 0, 0));
    must_ok(brim__queue_flush(&place.queue));
    get(&place, &b, back);
    assert_memory_equal(back, data + 100, 5000);
    assert_memory_equal(back + 5000, data + 100, 5000);
    void *pin = &pin;
    must_ok(brim__device_pin(&place.device, data, BYTES, &pin));
    assert_null(pin);
    brim__device_unpin(&place.device, data, pin);
    brim__device_give(&place.device, &a);
    brim__device_give(&place.device, &a);
    assert_null(a.handle);
    brim__device_give(&place.device, &b);
    free(data);
    free(back);
    place_close(&place);
    place_close(&place); /* harmless */
}

static void no_event_counts_as_done(void **state) {
    (void)state;
    struct place place;
    place_open(&place, BRIM_DEVICE_HOST);
    struct brim__event none = { 0 };
    must_ok(brim__queue_wait(&place.queue, &none));
    must_ok(brim__event_poll(&place.device, &none));
    must_ok(brim__event_wait(&place.device, &none));
    brim__event_free(&place.device, &none);
    wait_for_all(&place.queue);
    struct brim__queue other;
    assert_int_equal(brim__queue_of(&place.device, &none, &other), BRIM_STATUS_INVALID);
    brim__queue_free(&other);
    place_close(&place);
}

static void too_much_memory_is_refused(void **state) {
    (void)state;
    struct place place;
    place_open(&place, BRIM_DEVICE_HOST);
    struct brim__device_memory memory;
    static const uint64_t sizes[] = { UINT64_MAX, UINT64_MAX - 4096, INT64_MAX, UINT64_C(1) << 60 };
    for (size_t i = 0; i < BRIM__COUNT(sizes); i++) {
        assert_int_equal(brim__device_take(&place.device, sizes[i], &memory), BRIM_STATUS_MEMORY);
        assert_null(memory.handle);
    }
    place.device.largest = 1000; /* as a device that gives no more at once */
    assert_int_equal(brim__device_take(&place.device, 1001, &memory), BRIM_STATUS_MEMORY);
    assert_detail_has("host:0 allocates at most 1000");
    must_ok(brim__device_take(&place.device, 1000, &memory));
    brim__device_give(&place.device, &memory);
    place_close(&place);
}

/* --------------------------------------------------------- lookups, gathers */

/* The formula of device.h, element by element. */
static void model_lookup(const struct lookup_case *test, uint8_t *to) {
    uint8_t *const source = some_bytes(test->source_bytes, test->seed);
    uint8_t *const table = some_bytes(test->table_bytes, test->seed + 1);
    const struct brim__lookup *const l = &test->lookup;
    fill_random(to, test->destination_bytes, test->seed + 2);
    const uint64_t elements = (uint64_t)l->dim[0] * l->dim[1] * l->dim[2];
    for (uint64_t row = 0; row < l->rows; row++) {
        for (uint64_t i = 0; i < elements; i++) {
            const uint64_t index[] = { i / l->dim[2] / l->dim[1], i / l->dim[2] % l->dim[1],
                                       i % l->dim[2], 0 };
            const uint64_t place =
                index[0] * l->stride[0] + index[1] * l->stride[1] + index[2] * l->stride[2];
            const uint8_t value = source[l->source_offset + row * l->source_row + place];
            const uint64_t entry = index[l->axis] * 256 + value;
            for (uint32_t byte = 0; byte < l->element; byte++) {
                to[l->destination_offset + row * l->destination_row + i * l->element + byte] =
                    table[l->table_offset + entry * l->element + byte];
            }
        }
    }
    free(source);
    free(table);
}

static void lookups_follow_their_formula(void **state) {
    (void)state;
    struct place place;
    place_open(&place, BRIM_DEVICE_HOST);
    uint64_t random = 11;
    for (int i = 0; i < 100; i++) {
        const struct lookup_case test = random_lookup(&random);
        uint8_t *const wanted = malloc(test.destination_bytes);
        assert_non_null(wanted);
        model_lookup(&test, wanted);
        uint8_t *const given = run_lookup(&place, &test);
        assert_memory_equal(given, wanted, test.destination_bytes);
        free(wanted);
        free(given);
    }
    place_close(&place);
}

static void model_gather(const struct gather_case *test, uint8_t *to) {
    const struct brim__gather *const g = &test->gather;
    uint8_t *part[BRIM__GATHER_PARTS];
    for (uint32_t i = 0; i < test->parts; i++) {
        part[i] = some_bytes(test->part_bytes, test->seed + 1 + i);
    }
    fill_random(to, test->destination_bytes, test->seed);
    for (uint64_t row = 0; row < g->rows; row++) {
        const uint32_t number = test->number[row];
        if (number != UINT32_MAX) {
            memcpy(to + g->destination_offset + row * g->destination_row,
                   part[number / g->part_rows] + g->source_offset +
                       number % g->part_rows * g->source_row,
                   g->row_bytes);
        }
    }
    for (uint32_t i = 0; i < test->parts; i++) {
        free(part[i]);
    }
}

static void gathers_copy_rows_by_number(void **state) {
    (void)state;
    struct place place;
    struct place without; /* a device without a kernel for it */
    place_open(&place, BRIM_DEVICE_HOST);
    place_open(&without, BRIM_DEVICE_HOST);
    struct brim__device_ops ops = *without.device.ops;
    ops.gather = NULL;
    without.device.ops = &ops;
    uint64_t random = 12;
    for (int i = 0; i < 100; i++) {
        const struct gather_case test = random_gather(&random);
        uint8_t *const wanted = malloc(test.destination_bytes);
        assert_non_null(wanted);
        model_gather(&test, wanted);
        uint8_t *const given = run_gather(&place, &test);
        uint8_t *const copied = run_gather(&without, &test);
        assert_memory_equal(given, wanted, test.destination_bytes);
        assert_memory_equal(copied, wanted, test.destination_bytes);
        free(wanted);
        free(given);
        free(copied);
    }
    place_close(&place);
    place_close(&without);
}

static void nothing_to_do_is_done(void **state) {
    (void)state;
    struct place place;
    place_open(&place, BRIM_DEVICE_HOST);
    struct brim__lookup lookup = { .element = 4, .dim = { 3, 4, 5 } };
    must_ok(brim__queue_lookup(&place.queue, &lookup));
    lookup.rows = 2;
    lookup.dim[1] = 0;
    must_ok(brim__queue_lookup(&place.queue, &lookup));
    struct brim__gather gather = { .part_rows = 1, .row_bytes = 10 };
    must_ok(brim__queue_gather(&place.queue, &gather));
    place_close(&place);
}

/* ------------------------------------------------------------------- faults */

/* All that a driver may fail in turn, on the host. Returns the first failure. */
static brim_status whole_life(void) {
    static uint8_t data[256];
    static const uint32_t number;
    struct brim__device device;
    struct brim__queue queue = { 0 };
    struct brim__device_memory memory[2] = { { 0 } };
    struct brim__event event = { 0 };
    void *pin;
    brim_status status = brim__device_open(&device, BRIM_DEVICE_HOST, 0, NULL, NULL);
    if (status != BRIM_OK) {
        return status;
    }
    const struct brim__lookup lookup = { .source = &memory[0],
                                         .table = &memory[0],
                                         .destination = &memory[1],
                                         .rows = 1,
                                         .element = 1,
                                         .dim = { 1, 1, 1 },
                                         .axis = 3 };
    const struct brim__gather gather = { .part = { &memory[0] },
                                         .part_rows = 1,
                                         .source_row = 8,
                                         .destination = &memory[1],
                                         .destination_row = 8,
                                         .row_bytes = 8,
                                         .rows = 1,
                                         .number = &number };
    for (int i = 0; i < 2 && status == BRIM_OK; i++) {
        status = brim__device_take(&device, sizeof data, &memory[i]);
    }
    if (status == BRIM_OK && (status = brim__device_pin(&device, data, 1, &pin)) == BRIM_OK) {
        brim__device_unpin(&device, data, pin);
        if ((status = brim__queue_new(&device, &queue)) == BRIM_OK &&
            (status = brim__queue_write(&queue, &memory[0], 0, data, 256)) == BRIM_OK &&
            (status = brim__queue_copy(&queue, &memory[1], 0, &memory[0], 0, 256)) == BRIM_OK &&
            (status = brim__queue_lookup(&queue, &lookup)) == BRIM_OK &&
            (status = brim__queue_gather(&queue, &gather)) == BRIM_OK &&
            (status = brim__queue_read(&queue, data, &memory[1], 0, 256)) == BRIM_OK &&
            (status = brim__queue_flush(&queue)) == BRIM_OK) {
            status = brim__queue_record(&queue, &event);
        }
    }
    brim__event_free(&device, &event);
    brim__queue_free(&queue);
    brim__device_give(&device, &memory[0]);
    brim__device_give(&device, &memory[1]);
    brim__device_close(&device);
    return status;
}

static void every_point_fails_cleanly(void **state) {
    (void)state;
    uint64_t nth = 0;
    for (bool more = true; more;) {
        brim__fault_arm(DEVICE_FAULTS, ++nth, false);
        const brim_status status = whole_life();
        more = brim__fault_injected() > 0;
        if (more) {
            assert_int_equal(status,
                             nth == 2 || nth == 3 ? BRIM_STATUS_MEMORY : BRIM_STATUS_DRIVER);
            assert_detail_has("host:0");
            assert_detail_has("refused by a test");
        } else {
            must_ok(status);
        }
    }
    assert_int_equal(nth, 13); /* twelve calls */
    brim__fault_arm(0, 0, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_name_devices),
        cmocka_unit_test(kinds_have_names_and_memory),
        cmocka_unit_test(the_host_is_a_device),
        cmocka_unit_test(a_shorter_info_is_filled_as_far_as_it_goes),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(bytes_go_there_and_back),
        cmocka_unit_test(no_event_counts_as_done),
        cmocka_unit_test(too_much_memory_is_refused),
        cmocka_unit_test(lookups_follow_their_formula),
        cmocka_unit_test(gathers_copy_rows_by_number),
        cmocka_unit_test(nothing_to_do_is_done),
        cmocka_unit_test(every_point_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}
