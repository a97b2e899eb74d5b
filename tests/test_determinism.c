/*
 * test_determinism.c: the batches of a pipeline are the same for any number of
 * threads, any budget, any growth and any number of batches held, and after
 * stopping and resuming anywhere.
 *
 * Each pipeline of the table is run once without threads and with memory in
 * plenty; every other way of running it must give the same digest.
 */
#include "support/support.h"

#include <stdio.h>
#include <string.h>

#define EPOCHS  2
#define IMAGES  61 /* in three files: 20, 1 and 40 */
#define HEIGHT  5
#define WIDTH   7
#define TOKENS  500
#define SAMPLES 83 /* of the array and the callback source */

/* ------------------------------------------------------- arrays, functions */

static float matrix[SAMPLES][3][4];

static const brim_field_spec read_fields[] = {
    { .size = sizeof(brim_field_spec),
      .name = "noise",
      .dtype = BRIM_DTYPE_U32,
      .rank = 1,
      .shape = { 16 } }, /* a record that is its row */
    { .size = sizeof(brim_field_spec), .name = "number", .dtype = BRIM_DTYPE_I64 },
};
static const brim_field_spec map_fields[] = {
    { .size = sizeof(brim_field_spec), .name = "sum", .dtype = BRIM_DTYPE_F64 },
    { .size = sizeof(brim_field_spec),
      .name = "draw",
      .dtype = BRIM_DTYPE_U32,
      .rank = 2,
      .shape = { 2, 3 } },
};

/* Everything that a call says goes in, so that nothing of it may vary. */
static int read_sample(void *user, const brim_call *call, brim_value *outputs, size_t count,
                       char *why, size_t why_bytes) {
    const int64_t number = (int64_t)(call->sample * 1000 + call->epoch);
    for (uint32_t i = 0; i < 16; i++) {
        const uint32_t noise = brim_call_random(call, i);
        memcpy((char *)outputs[0].data + i * sizeof noise, &noise, sizeof noise);
    }
    if (count == 2) {
        memcpy(outputs[1].data, &number, sizeof number);
    }
    if (user != NULL && call->sample % 7 == 3) {
        snprintf(why, why_bytes, "a multiple of seven and three");
        return 1;
    }
    return 0;
}

static int map_sample(void *user, const brim_call *call, const brim_value *inputs,
                      size_t input_count, brim_value *outputs, size_t output_count, char *why,
                      size_t why_bytes) {
    double sum = (double)call->sample;
    (void)user, (void)output_count, (void)why, (void)why_bytes;
    for (size_t i = 0; i < input_count; i++) {
        for (uint64_t k = 0; k < inputs[i].bytes; k++) {
            sum = sum * 0.5 + ((const uint8_t *)inputs[i].data)[k];
        }
    }
    memcpy(outputs[0].data, &sum, sizeof sum);
    for (uint32_t i = 0; i < 6; i++) {
        const uint32_t draw = brim_call_random(call, i);
        memcpy((char *)outputs[1].data + i * sizeof draw, &draw, sizeof draw);
    }
    return 0;
}

static const brim_binding bindings[] = {
    { .size = sizeof(brim_binding),
      .name = "matrix",
      .kind = BRIM_BINDING_ARRAY,
      .data = matrix,
      .dtype = BRIM_DTYPE_F32,
      .rank = 3,
      .shape = { SAMPLES, 3, 4 } },
    { .size = sizeof(brim_binding),
      .name = "backwards",
      .kind = BRIM_BINDING_ARRAY,
      .data = &matrix[SAMPLES - 1][2][3],
      .dtype = BRIM_DTYPE_F32,
      .rank = 3,
      .shape = { SAMPLES, 3, 4 },
      .strides = { -48, -16, -4 } },
    { .size = sizeof(brim_binding),
      .name = "reader",
      .kind = BRIM_BINDING_SOURCE,
      .count = SAMPLES,
      .fields = read_fields,
      .field_count = 2,
      .read = read_sample },
    { .size = sizeof(brim_binding),
      .name = "parallel",
      .kind = BRIM_BINDING_SOURCE,
      .count = SAMPLES,
      .fields = read_fields,
      .field_count = 2,
      .read = read_sample,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT },
    { .size = sizeof(brim_binding),
      .name = "rows",
      .kind = BRIM_BINDING_SOURCE,
      .count = SAMPLES,
      .fields = read_fields,
      .field_count = 1,
      .read = read_sample,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT },
    { .size = sizeof(brim_binding),
      .name = "failing",
      .kind = BRIM_BINDING_SOURCE,
      .count = SAMPLES,
      .fields = read_fields,
      .field_count = 2,
      .read = read_sample,
      .user = matrix,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT },
    { .size = sizeof(brim_binding),
      .name = "serial",
      .kind = BRIM_BINDING_MAP,
      .fields = map_fields,
      .field_count = 2,
      .map = map_sample },
    { .size = sizeof(brim_binding),
      .name = "concurrent",
      .kind = BRIM_BINDING_MAP,
      .fields = map_fields,
      .field_count = 2,
      .map = map_sample,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT },
};

/* --------------------------------------------------------------- pipelines */

/* $ stands for the directory. Those with the same letter give the same batches. */
struct case_ {
    char same;
    const char *text;
};

static const struct case_ cases[] = {
    { 'a', "npy $/a.npy $/b.npy $/c.npy | batch 16 micro=5" },
    { 'a', "npy $/a.npy $/b.npy $/c.npy map=yes | batch 16 micro=5" },
    { 'b', "npy $/a.npy $/b.npy $/c.npy | shuffle seed=9 | batch 8 remainder=drop" },
    { 'b', "npy $/a.npy $/b.npy $/c.npy map=yes | shuffle seed=9 | batch 8 remainder=drop" },
    { 'c', "zip (npy $/a.npy $/b.npy $/c.npy name=image) (npy $/labels.npy name=label) | "
           "shuffle seed=3 | layout chw | normalize imagenet | cast float16 on=image | "
           "one_hot 10 on=label | batch 7" },
    { 'c', "zip (npy $/a.npy $/b.npy $/c.npy name=image map=yes) (npy $/labels.npy name=label "
           "map=yes) | shuffle seed=3 | normalize imagenet | layout chw | cast float16 on=image | "
           "one_hot 10 on=label | batch 7" },
    { 'd', "zip (npy $/a.npy $/b.npy $/c.npy name=image) (npy $/labels.npy name=label) | "
           "layout chw | reshape 3 -1 | normalize mean=0.1,0.2,0.3 std=1,2,3 axis=0 | "
           "cast bfloat16 on=image | cast int64 on=label | batch 9 remainder=pad" },
    { 'e', "tokens $/t.bin $/u.bin length=17 stride=5 | shuffle seed=2 | batch 8 remainder=pad" },
    { 'e', "tokens $/t.bin $/u.bin length=17 stride=5 map=yes | shuffle seed=2 | "
           "batch 8 remainder=pad" },
    { 'f', "tokens $/t.bin length=12 | cast int64 | batch 6 micro=4" },
    { 'g', "mix 0.5 (npy $/a.npy | shuffle seed=1) 0.3 (npy $/b.npy | repeat 5) "
           "0.2 (mix 1 (npy $/c.npy | shuffle seed=2) 2 (npy $/a.npy $/c.npy) length=30) "
           "length=111 | cast float32 | batch 9" },
    { 'h', "range 50 | shuffle seed=5 | repeat 3 | batch 8" },
    { 'i', "range 1000 | split train validation=0.2 seed=4 | shuffle | batch 32" },
    { 'j', "npy $/a.npy $/b.npy $/c.npy | shuffle block=4 seed=6 | batch 6" },
    { 'k', "array @matrix | shuffle | reshape -1 | batch 10" },
    { 'l', "array @backwards name=matrix | normalize mean=1 std=2 | layout wh from=hw | batch 10" },
    { 'm', "callback @reader | shuffle seed=8 | batch 11" },
    { 'm', "callback @parallel | shuffle seed=8 | batch 11" },
    { 'n', "callback @rows | skip 3 | take 70 | batch 11 micro=2" },
    { 'o', "array @matrix | shuffle | map @serial | batch 6" },
    { 'o', "array @matrix | shuffle | map @concurrent | batch 6" },
    { 'p', "callback @parallel | map @concurrent | map @serial | cast float32 on=sum | batch 5" },
    { 'q', "callback @failing | shuffle | batch 6 on_error=skip remainder=pad" },
    { 'r', "callback @failing | shuffle | batch 6 on_error=replace" },
    { 's', "mix 1 (array @matrix name=x | shuffle | map @concurrent) 2 (range 40 name=z | "
           "shuffle | map @serial) length=90 | batch 7 micro=3" },
};
enum { CASES = sizeof cases / sizeof cases[0] };

static const char *text_of(const struct case_ *item, char text[TEXT_BYTES]) {
    const struct path directory = in_directory("");
    const size_t length = strlen(directory.text) - 1; /* without its slash */
    size_t used = 0;
    for (const char *at = item->text; *at != '\0'; at++) {
        assert_true(used + length + 1 < TEXT_BYTES);
        if (*at == '$') {
            memcpy(text + used, directory.text, length);
            used += length;
        } else {
            text[used++] = *at;
        }
    }
    text[used] = '\0';
    return text;
}

static int write_files(void **state) {
    static uint8_t images[IMAGES][HEIGHT][WIDTH][3], labels[IMAGES];
    static uint16_t tokens[TOKENS];
    if (begin_tests(state) != 0) {
        return -1;
    }
    fill_random(images, sizeof images, 1);
    fill_random(labels, sizeof labels, 2);
    fill_random(tokens, sizeof tokens, 3);
    for (size_t i = 0; i < IMAGES; i++) {
        labels[i] %= 10;
    }
    for (size_t i = 0; i < SAMPLES * 12; i++) {
        ((float *)matrix)[i] = (float)i * 0.37f - 100;
    }
    write_npy("a.npy", BRIM_DTYPE_U8, 4, (const int64_t[]){ 20, HEIGHT, WIDTH, 3 }, images[0]);
    write_npy("b.npy", BRIM_DTYPE_U8, 4, (const int64_t[]){ 1, HEIGHT, WIDTH, 3 }, images[20]);
    write_npy("c.npy", BRIM_DTYPE_U8, 4, (const int64_t[]){ 40, HEIGHT, WIDTH, 3 }, images[21]);
    write_npy("labels.npy", BRIM_DTYPE_U8, 1, (const int64_t[]){ IMAGES }, labels);
    write_file("t.bin", tokens, 300 * sizeof tokens[0]);
    write_file("u.bin", tokens + 300, (TOKENS - 300) * sizeof tokens[0]);
    return 0;
}

/* -------------------------------------------------------------------- runs */

static struct digest digest_run(const char *text, const struct how *how) {
    struct session session;
    struct digest digest = { 0 };
    session_open(&session, text, how);
    for (int i = 0; i < EPOCHS; i++) {
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    }
    session_close(&session);
    return digest;
}

static struct how plain(void) {
    return (struct how){ .bindings = bindings,
                         .binding_count = sizeof bindings / sizeof bindings[0] };
}

static struct digest expected(const struct case_ *item) {
    char text[TEXT_BYTES];
    const struct how how = plain();
    return digest_run(text_of(item, text), &how);
}

static void assert_digest(struct digest got, struct digest wanted, const char *text,
                          const struct how *how) {
    if (got.value != wanted.value || got.batches != wanted.batches) {
        fail_msg("\"%s\", %d threads, %s, hold %u, %s: digest %016llx of %llu batches, not "
                 "%016llx of %llu",
                 text, how->threads, how->bytes == AT_MINIMUM ? "the minimum" : "plenty", how->hold,
                 how->growth == BRIM_GROWTH_FIXED ? "fixed" : "grow", (unsigned long long)got.value,
                 (unsigned long long)got.batches, (unsigned long long)wanted.value,
                 (unsigned long long)wanted.batches);
    }
}

static void test_any_way_of_running(void **state) {
    (void)state;
    static const int32_t threads[] = { 0, 1, 2, 8 };
    for (size_t c = 0; c < CASES; c++) {
        char text[TEXT_BYTES];
        const struct digest wanted = expected(&cases[c]);
        text_of(&cases[c], text);
        assert_true(wanted.batches > 2 * EPOCHS);
        for (unsigned way = 0; way < 32; way++) {
            struct how how = plain();
            how.threads = threads[way % 4];
            how.bytes = way & 4 ? AT_MINIMUM : 0;
            how.hold = way & 8 ? 3 : 1;
            how.growth = way & 16 ? BRIM_GROWTH_FIXED : BRIM_GROWTH_ON_DEMAND;
            assert_digest(digest_run(text, &how), wanted, text, &how);
        }
    }
}

static void test_same_data_another_way(void **state) {
    (void)state;
    for (size_t c = 1; c < CASES; c++) {
        const struct digest before = expected(&cases[c - 1]), here = expected(&cases[c]);
        if (cases[c].same == cases[c - 1].same) {
            assert_int_equal(here.value, before.value);
        } else {
            assert_int_not_equal(here.value, before.value);
        }
    }
}

/* -------------------------------------------------------------- resumption */

/* Checks on the way that a batch's own state is what the loader's would be. */
struct resumed {
    struct digest digest;
    brim_state state; /* after the latest batch */
};

static void visit_resumed(void *user, const brim_batch *batch) {
    struct resumed *resumed = user;
    digest_batch(&resumed->digest, batch);
    assert_int_equal(brim_batch_state(batch, &resumed->state), BRIM_OK);
}

/* One runtime after the other: `first` batches, `second` batches, the rest. */
static void run_in_pieces(const char *text, uint64_t first, uint64_t second, unsigned way,
                          struct digest wanted) {
    struct how how = plain();
    struct resumed resumed = { .digest = { 0 } };
    const uint64_t pieces[] = { first, second, TO_THE_END };
    brim_state state;
    unsigned ended = 0;
    for (unsigned piece = 0; piece < 3; piece++) {
        struct session session;
        how.threads = (int32_t)((way + piece) % 3);
        how.bytes = (way + piece) % 2 ? AT_MINIMUM : 0;
        how.hold = 1 + (way + piece) % 3;
        session_open(&session, text, &how);
        if (piece > 0) {
            session_restore(&session, &state);
        }
        if (pieces[piece] != TO_THE_END) {
            ended += take_batches(&session, pieces[piece], visit_resumed, &resumed);
        } else {
            while (ended < EPOCHS) {
                ended += take_batches(&session, TO_THE_END, visit_resumed, &resumed);
            }
        }
        state = session_state(&session);
        session_close(&session);
        if (ended == 0) {
            assert_memory_equal(&state, &resumed.state, sizeof state);
        }
    }
    assert_digest(resumed.digest, wanted, text, &how);
}

static void test_resume_twice(void **state) {
    (void)state;
    for (size_t c = 0; c < CASES; c++) {
        char text[TEXT_BYTES];
        const struct digest wanted = expected(&cases[c]);
        const uint64_t in_epoch = wanted.batches / EPOCHS;
        text_of(&cases[c], text);
        run_in_pieces(text, 1, 1, 0, wanted);
        run_in_pieces(text, 2, in_epoch - 3, 1, wanted);
        run_in_pieces(text, in_epoch / 2, in_epoch / 3, 2, wanted);
        run_in_pieces(text, in_epoch - 1, 1, 3, wanted);
        run_in_pieces(text, in_epoch, 2, 4, wanted);
    }
}

/* The first epoch ended, the end not yet told: it is told after resuming. */
static void test_resume_at_the_end(void **state) {
    (void)state;
    const struct how how = { 0 };
    struct session session;
    struct digest digest = { 0 };
    const char *text = "range 10 | batch 5";
    session_open(&session, text, &how);
    assert_false(take_batches(&session, 2, digest_batch, &digest));
    const brim_state before = session_state(&session);
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    const brim_state after = session_state(&session);
    session_close(&session);
    assert_int_equal(digest.batches, 2);

    session_open(&session, text, &how);
    session_restore(&session, &before);
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    assert_int_equal(digest.batches, 2);
    const brim_state again = session_state(&session);
    assert_memory_equal(&again, &after, sizeof after);
    session_restore(&session, &after);
    brim_batch *batch = take_batch(&session);
    assert_int_equal(brim_batch_get(batch)->epoch, 1);
    assert_int_equal(brim_batch_get(batch)->step, 0);
    brim_batch_release(batch);
    session_close(&session);
}

static void test_state_of_something_else(void **state) {
    (void)state;
    static const struct {
        const char *text;
        brim_status status;
        const char *part;
    } others[] = {
        { "range 100 | shuffle seed=1 | batch 5", BRIM_OK, "" },
        { "range 100 | shuffle seed=1 | cast float32 | batch 7", BRIM_OK, "" },
        { "range 100 | shuffle seed=2 | batch 5", BRIM_STATUS_MISMATCH, "another order" },
        { "range 100 | batch 5", BRIM_STATUS_MISMATCH, "another order" },
        { "range 100 | shuffle seed=1 | take 99 | batch 5", BRIM_STATUS_MISMATCH, "another order" },
        { "range 101 | shuffle seed=1 | batch 5", BRIM_STATUS_MISMATCH, "other data" },
    };
    const struct how how = { 0 };
    struct session session;
    struct digest digest = { 0 };
    session_open(&session, "range 100 | shuffle seed=1 | batch 5", &how);
    take_batches(&session, 3, digest_batch, &digest);
    brim_state taken = session_state(&session);
    session_close(&session);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        session_open(&session, others[i].text, &how);
        assert_int_equal(brim_loader_restore(session.loader, &taken), others[i].status);
        assert_true(others[i].status == BRIM_OK || strstr(brim_detail(), others[i].part) != NULL);
        brim_batch *batch = take_batch(&session); /* a refusal moves nothing */
        assert_int_equal(brim_batch_get(batch)->first_position,
                         others[i].status == BRIM_OK ? 15 : 0);
        brim_batch_release(batch);
        session_close(&session);
    }
    session_open(&session, "range 100 | shuffle seed=1 | batch 5", &how);
    for (size_t i = 0; i < sizeof taken.bytes; i++) {
        taken.bytes[i] ^= 4;
        assert_int_equal(brim_loader_restore(session.loader, &taken), BRIM_STATUS_CORRUPT);
        taken.bytes[i] ^= 4;
    }
    session_close(&session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_way_of_running),
        cmocka_unit_test(test_same_data_another_way),
        cmocka_unit_test(test_resume_twice),
        cmocka_unit_test(test_resume_at_the_end),
        cmocka_unit_test(test_state_of_something_else),
    };
    return cmocka_run_group_tests(tests, write_files, end_tests);
}
