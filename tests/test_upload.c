/*
 * Batches delivered on a device: the same as on the host for every kind of pipeline, in
 * any limit from the minimum up, after seeks and restores, with batches held, copied and
 * released late; and memory that stays flat.
 *
 * On OpenCL; without a device of it, all of this skips.
 */
#include "upload_util.h"

#include "engine/loader.h"

#include <stdatomic.h>

#define OPENCL BRIM_DEVICE_OPENCL

static const char *const pipelines[] = {
    "npy $/numbers.npy | shuffle seed=3 | batch 8",
    "npy $/images.npy | shuffle seed=3 | batch 8",
    "npy $/images.npy | shuffle seed=3 | normalize imagenet | layout chw | batch 8",
    "npy $/images.npy | normalize imagenet | layout chw | cast float16 | batch 8 remainder=keep",
    "npy $/images.npy | normalize mean=0.5 std=0.25 | batch 7 remainder=pad",
    "npy $/images.npy | normalize unit | cast bfloat16 | batch 5 micro=2 remainder=keep",
    "npy $/images.npy | cast float32 | layout chw | batch 16",
    "zip (npy $/images.npy) (npy $/numbers.npy name=y) | normalize imagenet | layout chw | batch 6 "
    "remainder=keep",
    "mix 0.5 (npy $/images.npy | normalize imagenet) 0.5 (npy $/images.npy | normalize imagenet) | "
    "batch 6",
    "mix 0.5 (npy $/images.npy | normalize imagenet) 0.5 (npy $/images.npy | normalize unit) | "
    "batch 6",
    "npy $/images.npy | random_crop 8 | flip | normalize imagenet | layout chw | batch 8",
    "zip (npy $/images.npy) (npy $/numbers.npy name=label) | normalize imagenet on=x | layout chw "
    "on=x | batch 8 | "
    "mixup",
    "text $/lines.txt | batch 6 remainder=keep",
    "text $/lines.txt | pad on=text | batch 6 remainder=keep",
    "zip (npy $/images.npy) (npy $/classes.npy name=label) | filter \"label != 7\" | shuffle "
    "buffer=8KiB seed=1 | "
    "normalize "
    "imagenet | batch 8",
    "text $/lines.txt | pad on=text | bucket 64 buffer=4KiB",
};

#define PIPELINES (sizeof pipelines / sizeof pipelines[0])

/* ------------------------------------------------------------- the same batches */

/* Two epochs with threads and holds, against those of the host. */
static void compare_with_host(const char *text, const struct how *given) {
    struct how how = *given;
    how.threads = 1;
    const struct digest wanted = run_epochs(text, &how, 2);
    how.device = OPENCL;
    for (how.threads = 0; how.threads <= 2; how.threads++) {
        for (how.hold = 1; how.hold <= 3; how.hold += 2) {
            const struct digest got = run_epochs(text, &how, 2);
            if (got.value != wanted.value || got.batches != wanted.batches) {
                fail_msg("\"%s\" is not the same on the device (%d threads, hold %u)", text,
                         how.threads, how.hold);
            }
        }
    }
}

static void test_same_as_on_the_host(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    for (size_t p = 0; p < PIPELINES; p++) {
        char text[TEXT_BYTES];
        compare_with_host(expand(pipelines[p], text), &(struct how){ .threads = 0 });
    }
}

/* All ways in which data comes in, callbacks among them. */
static void test_every_source(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    const struct how how = { .bindings = memory_bindings, .binding_count = memory_binding_count };
    for (size_t r = 0; r < recipe_count; r++) {
        char text[TEXT_BYTES];
        compare_with_host(expand(recipes[r].text, text), &how);
    }
}

static void test_ranks(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    for (uint32_t rank = 0; rank < 3; rank++) {
        char text[TEXT_BYTES];
        const struct how how = { .rank = rank, .world = 3 };
        compare_with_host(expand(pipelines[4], text), &how);
    }
}

/* ---------------------------------------------------------------- other places */

/* States are those of the host, and either goes on from the other's. */
static void test_states_and_seeks(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    for (size_t p = 0; p < PIPELINES; p++) {
        char text[TEXT_BYTES];
        struct session host, there;
        uint64_t random = p + 1;
        expand(pipelines[p], text);
        session_open(&host, text, &(struct how){ .threads = 0 });
        session_open(&there, text, &(struct how){ .threads = (int32_t)(p % 3), .device = OPENCL });
        for (int round = 0; round < 6; round++) {
            struct digest a = { 0 }, b = { 0 };
            const uint64_t most = 1 + next_random(&random) % 4;
            take_batches(&host, most, digest_batch, &a);
            take_batches(&there, most, digest_batch, &b);
            assert_same(a, b);
            const brim_state at = session_state(&host), other = session_state(&there);
            assert_memory_equal(&at, &other, sizeof at);
            /* on for a while, and back: each to where the other stood */
            take_batches(&host, 1, digest_batch, &a);
            take_batches(&there, 1 + next_random(&random) % 5, digest_batch, &b);
            session_restore(&host, &other);
            session_restore(&there, &at);
            if (round % 2 == 1) {
                const uint64_t epoch = next_random(&random) % 3, step = next_random(&random) % 3;
                MUST(brim_loader_seek(host.loader, epoch, step));
                MUST(brim_loader_seek(there.loader, epoch, step));
            }
        }
        session_close(&host);
        session_close(&there);
    }
}

/* ------------------------------------------------------------------ bad samples */

#define SAMPLES 60

static atomic_uchar bad[SAMPLES];

static int read_sample(void *user, const brim_call *call, brim_value *outputs, size_t count,
                       char *why, size_t why_bytes) {
    const int64_t value = (int64_t)call->sample * 10;
    (void)user, (void)count;
    memcpy(outputs[0].data, &value, sizeof value);
    if (atomic_load(&bad[call->sample])) {
        snprintf(why, why_bytes, "sample %llu was spoilt", (unsigned long long)call->sample);
        return 7;
    }
    return 0;
}

static const brim_field_spec value_field = { .size = sizeof(brim_field_spec),
                                             .name = "value",
                                             .dtype = BRIM_DTYPE_I64 };
static const brim_binding failing_source = { .size = sizeof(brim_binding),
                                             .name = "reader",
                                             .kind = BRIM_BINDING_SOURCE,
                                             .count = SAMPLES,
                                             .fields = &value_field,
                                             .field_count = 1,
                                             .read = read_sample,
                                             .flags = BRIM_CALLBACK_CONCURRENT };

/* What every call of `next` gave. */
struct transcript {
    size_t calls;
    struct {
        brim_status status;
        char detail[512];
        struct digest digest;
    } call[48];
};

static void spoil(bool spoilt) {
    static const int numbers[] = { 3, 4, 17, 31, 32, 33, 59 };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        atomic_store(&bad[numbers[i]], spoilt);
    }
}

/* Halfway all samples become good. */
static struct transcript transcribe(const char *text, const struct how *how) {
    static struct transcript transcript;
    struct session session;
    transcript = (struct transcript){ 0 };
    spoil(true);
    session_open(&session, text, how);
    for (size_t i = 0; i < 48; i++) {
        brim_batch *batch;
        const brim_status status = brim_loader_next(session.loader, BRIM_FOREVER, &batch);
        transcript.call[i].status = status;
        if (status == BRIM_OK) {
            digest_batch(&transcript.call[i].digest, batch);
            brim_batch_release(batch);
        } else {
            snprintf(transcript.call[i].detail, sizeof transcript.call[i].detail, "%s",
                     brim_detail());
        }
        if (i == 23) {
            spoil(false);
            MUST(brim_loader_seek(session.loader, 1, 2)); /* what was made ahead goes */
        }
    }
    session_close(&session);
    return transcript;
}

static void test_bad_samples(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    static const char *const batches[] = {
        "batch 8 on_error=fail",
        "batch 8 on_error=skip max_errors=100",
        "batch 8 on_error=skip max_errors=3",
        "batch 1 on_error=skip max_errors=100", /* empty ones are passed over */
        "batch 8 on_error=replace max_errors=100",
        "batch 8 on_error=replace max_errors=2",
        "batch 8 on_error=skip max_errors=100 remainder=pad",
    };
    for (size_t b = 0; b < 2 * sizeof batches / sizeof batches[0]; b++) {
        char text[TEXT_BYTES];
        if (b % 2 && strstr(batches[b / 2], "replace") != NULL) {
            continue; /* behind a filter there is nothing to choose from */
        }
        format_text(text, "callback @reader %s| %s",
                    b % 2 ? "| filter \"value != 50\" " : "| shuffle seed=4 ", batches[b / 2]);
        struct how how = { .bindings = &failing_source, .binding_count = 1 };
        const struct transcript wanted = transcribe(text, &how);
        how.device = OPENCL;
        for (how.threads = 0; how.threads <= 2; how.threads++) {
            const struct transcript got = transcribe(text, &how);
            for (size_t i = 0; i < 48; i++) {
                if (got.call[i].status != wanted.call[i].status ||
                    strcmp(got.call[i].detail, wanted.call[i].detail) != 0 ||
                    got.call[i].digest.value != wanted.call[i].digest.value) {
                    fail_msg("\"%s\", call %zu with %d threads: %s (%s), on the host %s (%s)", text,
                             i, how.threads, brim_status_name(got.call[i].status),
                             got.call[i].detail, brim_status_name(wanted.call[i].status),
                             wanted.call[i].detail);
                }
            }
        }
    }
}

/* ------------------------------------------------------------- what a batch says */

static void test_what_a_batch_says(void **state) {
    (void)state;
    NEED_DEVICE(OPENCL);
    char text[TEXT_BYTES];
    struct session session;
    uint8_t byte;
    session_open(&session, expand(pipelines[7], text),
                 &(struct how){ .threads = 0, .device = OPENCL });
    brim_batch *batch = take_batch(&session);
    const brim_field *x = brim_batch_find(batch, "x"), *y = brim_batch_find(batch, "y");
    assert_non_null(x);
    assert_non_null(y);
    assert_int_equal(x->device_kind, OPENCL);
    assert_int_equal(x->device_index, 0);
    assert_int_equal(x->dtype, BRIM_DTYPE_F32);
    assert_int_equal(x->rank, 4);
    assert_int_equal(x->shape[1], 3);
    assert_int_equal(x->strides[3], 4);
    assert_non_null(x->ready);
    assert_non_null(x->data);
    assert_true(x->data == y->data && x->offset != y->offset && y->offset % 64 == 0);
    assert_int_equal(brim_batch_copy_field(batch, 0, &byte, 1), BRIM_STATUS_INVALID);
    assert_detail_has("there is room for 1");
    assert_int_equal(brim_batch_copy_field(batch, 2, &byte, 1), BRIM_STATUS_INVALID);
    assert_detail_has("the batch has 2");
    MUST(brim_batch_wait(batch, NULL));
    /* pixels go there as they are: a quarter of what the batch has there */
    const brim_stats stats = stats_of(session.loader);
    const uint64_t each = x->bytes / 4 + y->bytes;
    assert_true(stats.copied_bytes >= each && stats.copied_bytes % each == 0);
    assert_int_equal(stats.device_slots, 2);
    brim_batch_release(batch);
    session_close(&session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_on_the_host),
        cmocka_unit_test(test_every_source),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_states_and_seeks),
        cmocka_unit_test(test_bad_samples),
        cmocka_unit_test(test_what_a_batch_says),
    };
    return cmocka_run_group_tests_name("upload", tests, begin_upload_tests, end_tests);
}
