/*
 * test_waiting.c: calls that wait: interrupted, timed out, closed from another
 * thread, and making progress whatever the workers do.
 *
 * A source that stops at a gate stands for slow user code. The group's alarm
 * ends a test that hangs.
 */
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "base/fault.h"
#include "engine/loader.h"
#include "memory/budget.h"

#include <stdatomic.h>
#include <time.h>

#define CLOSINGS (is_thread_sanitized() ? 100u : 300u)

/* Between two threads, "at once" is well below this and well above what a
 * loaded machine needs to switch threads. */
#define AT_ONCE_NS UINT64_C(30000000000)

static char training[TEXT_BYTES], validation[TEXT_BYTES];
static const char *const gated = "callback @gated | batch 2";

static int begin(void **state) {
    if (begin_memory_tests(state) != 0) {
        return -1;
    }
    recipe_text("npy", training);
    recipe_text("tokens", validation);
    return 0;
}

struct caller {
    brim_loader *loader;
    int64_t timeout_ns;
    brim_status status;
    brim_batch *batch;
    atomic_bool returned;
};

static void *call_next(void *argument) {
    struct caller *caller = argument;
    caller->status = brim_loader_next(caller->loader, caller->timeout_ns, &caller->batch);
    atomic_store(&caller->returned, true);
    return NULL;
}

/* Until the call has begun, or is over already. */
static void await_call(struct caller *caller) {
    for (bool inside = false; !inside && !atomic_load(&caller->returned);) {
        brim__lock(&caller->loader->mutex);
        inside = caller->loader->in_call;
        brim__unlock(&caller->loader->mutex);
    }
}

static bool returns_at_once(struct caller *caller) {
    const uint64_t deadline = brim__now() + AT_ONCE_NS;
    while (!atomic_load(&caller->returned) && brim__now() < deadline) {
        sleep_ns(100000);
    }
    return atomic_load(&caller->returned);
}

/* Two workers that stand at the gate have all of the batch that is wanted next,
 * so that `next` has no rows to make itself. */
static struct session open_gated(uint64_t from) {
    const brim_open_options options = open_options("gated");
    gate_shut(from);
    return open_on(make_runtime(2, 0), gated, &options);
}

static void close_gated(struct session *session) {
    gate_open();
    brim_loader_close(session->loader);
    brim_runtime_free(session->runtime);
}

static void test_interrupting_a_call_that_waits(void **state) {
    (void)state;
    struct session session = open_gated(4);
    struct digest digest = { 0 };
    assert_true(take_more(session.loader, 2, &digest)); /* samples 0 to 3 pass */
    gate_await(2);
    for (int i = 0; i < 3; i++) {
        struct caller caller = { .loader = session.loader, .timeout_ns = BRIM_FOREVER };
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, call_next, &caller), 0);
        await_call(&caller);
        sleep_ns(i * 10000000u);
        assert_int_equal(brim_loader_interrupt(session.loader), BRIM_OK);
        const bool good = returns_at_once(&caller);
        if (!good) {
            gate_open();
        }
        pthread_join(thread, NULL);
        assert_true(good);
        assert_int_equal(caller.status, BRIM_STATUS_INTERRUPTED);
        assert_null(caller.batch);
    }
    gate_open();
    assert_true(take_more(session.loader, 60, &digest)); /* as if nothing had been */
    assert_same(digest, first_batches(gated, 62));
    close_gated(&session);
}

/* Says stop the first time only. */
static int stop_once(void *user) {
    return (*(unsigned *)user)++ == 0;
}

static void test_a_program_that_is_asked(void **state) {
    (void)state;
    unsigned asked = 0;
    brim_open_options options = open_options(NULL);
    options.interrupted = stop_once;
    options.interrupted_user = &asked;
    /* while it makes rows itself, which take no time */
    struct session session = open_on(make_runtime(0, 0), training, &options);
    brim_batch *batch = NULL;
    struct digest digest = { 0 };
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                     BRIM_STATUS_INTERRUPTED);
    assert_int_equal(asked, 1);
    assert_true(take_more(session.loader, 6, &digest));
    assert_same(digest, first_batches(training, 6));
    brim_loader_close(session.loader);
    brim_runtime_free(session.runtime);
    /* while it waits for workers */
    gate_shut(4);
    session = open_on(make_runtime(2, 0), gated, &options);
    digest = (struct digest){ 0 };
    assert_true(take_more(session.loader, 2, &digest));
    gate_await(2); /* they have all of the next batch */
    asked = 0;
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                     BRIM_STATUS_INTERRUPTED);
    assert_int_equal(asked, 1);
    assert_null(batch);
    close_gated(&session);
}

static void test_interrupting_before_a_call(void **state) {
    (void)state;
    for (int32_t threads = 0; threads <= 2; threads += 2) {
        brim_runtime *runtime = make_runtime(threads, 0);
        const brim_open_options options = open_options(NULL);
        struct session session = open_on(runtime, training, &options);
        struct digest digest = { 0 };
        brim_batch *batch = NULL;
        for (int i = 0; i < 6; i++) {
            assert_int_equal(brim_loader_interrupt(session.loader), BRIM_OK);
            assert_int_equal(brim_loader_interrupt(session.loader), BRIM_OK); /* counts once */
            assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                             BRIM_STATUS_INTERRUPTED);
            assert_null(batch);
            assert_true(take_more(session.loader, 1, &digest));
        }
        assert_same(digest, first_batches(training, 6));
        brim_loader_close(session.loader);
        brim_runtime_free(runtime);
    }
}

static void *close_in_thread(void *loader) {
    brim_loader_close(loader);
    return NULL;
}

static void test_closing_while_another_thread_waits(void **state) {
    (void)state;
    struct session session = open_gated(0);
    struct caller caller = { .loader = session.loader, .timeout_ns = BRIM_FOREVER };
    pthread_t thread, closer;
    gate_await(2);
    assert_int_equal(pthread_create(&thread, NULL, call_next, &caller), 0);
    await_call(&caller);
    assert_int_equal(pthread_create(&closer, NULL, close_in_thread, session.loader), 0);
    const bool good = returns_at_once(&caller); /* although the callbacks have not returned */
    gate_open();
    pthread_join(thread, NULL);
    pthread_join(closer, NULL);
    assert_true(good);
    assert_int_equal(caller.status, BRIM_STATUS_CLOSED);
    assert_int_equal(brim_runtime_trim(session.runtime, NULL), BRIM_OK);
    assert_int_equal(usage_of(session.runtime).charged, empty_runtime_bytes());
    brim_runtime_free(session.runtime);
}

/* One call and one closing, whichever comes first inside. The runtime goes at
 * once too, so that a call that still looks at anything looks at nothing. */
static void test_closing_at_any_moment_of_a_call(void **state) {
    (void)state;
    uint64_t random = 5;
    for (unsigned i = 0; i < CLOSINGS; i++) {
        brim_runtime *runtime = make_runtime((int32_t)(next_random(&random) % 3), 0);
        const brim_open_options options = open_options(NULL);
        struct session session = open_on(runtime, i % 2 ? training : validation, &options);
        struct caller caller = { .loader = session.loader,
                                 .timeout_ns = i % 5 == 0 ? 50000 : BRIM_FOREVER };
        pthread_t thread;
        sleep_ns(next_random(&random) % 100000);
        assert_int_equal(pthread_create(&thread, NULL, call_next, &caller), 0);
        await_call(&caller);
        sleep_ns(next_random(&random) % 200000);
        brim_loader_close(session.loader);
        brim_runtime_free(runtime);
        pthread_join(thread, NULL);
        assert_true(caller.status == BRIM_OK || caller.status == BRIM_STATUS_CLOSED ||
                    (caller.status == BRIM_STATUS_TIMEOUT && i % 5 == 0));
        if (caller.status == BRIM_OK) {
            assert_same(digest_of(caller.batch), first_batches(i % 2 ? training : validation, 1));
            brim_batch_release(caller.batch);
        }
    }
}

static void test_closing_at_any_moment_of_the_workers(void **state) {
    (void)state;
    uint64_t random = 3;
    brim_runtime *runtime = make_runtime(2, 0);
    for (unsigned i = 0; i < CLOSINGS; i++) {
        brim_open_options options = open_options(NULL);
        options.growth = i % 3 ? BRIM_GROWTH_ON_DEMAND : BRIM_GROWTH_FIXED;
        struct session session = open_on(runtime, i % 2 ? training : validation, &options);
        struct digest digest = { 0 };
        const uint64_t batches = next_random(&random) % 4;
        assert_true(take_more(session.loader, batches, &digest));
        brim_batch *held = i % 4 == 0 && batches < 4 ? take_batch(&session) : NULL;
        if (i % 7 == 0) {
            assert_int_equal(brim_loader_seek(session.loader, 3, 1), BRIM_OK);
        }
        sleep_ns(next_random(&random) % 300000);
        brim_loader_close(session.loader);
        if (held != NULL) {
            digest_batch(&digest, held);
            brim_batch_release(held);
        }
        check_budget(runtime);
    }
    assert_int_equal(brim_runtime_trim(runtime, NULL), BRIM_OK);
    assert_int_equal(usage_of(runtime).charged, empty_runtime_bytes());
    brim_runtime_free(runtime);
}

/* Asked again and again without waiting, the batches come all the same. */
static void test_time_outs(void **state) {
    (void)state;
    static const int64_t timeouts[] = { 0, 1, 1000, 1000000 };
    for (unsigned way = 0; way < 8; way++) {
        brim_runtime *runtime = make_runtime(way % 2 ? 2 : 0, 0);
        const brim_open_options options = open_options(NULL);
        struct session session = open_on(runtime, training, &options);
        struct digest digest = { 0 };
        const uint64_t deadline = brim__now() + 2 * AT_ONCE_NS;
        while (digest.batches < 20 && brim__now() < deadline) {
            brim_batch *batch = NULL;
            const brim_status status = brim_loader_next(session.loader, timeouts[way / 2], &batch);
            if (status == BRIM_OK) {
                digest_batch(&digest, batch);
                brim_batch_release(batch);
            } else if (status == BRIM_STATUS_TIMEOUT) {
                assert_null(batch);
                sleep_ns(1000);
            } else {
                assert_int_equal(status, BRIM_STATUS_END);
            }
        }
        assert_same(digest, first_batches(training, 20));
        brim_loader_close(session.loader);
        brim_runtime_free(runtime);
    }
}

/* Workers were planned, but the system starts none. */
static void test_polling_without_the_workers_planned(void **state) {
    (void)state;
    brim__fault_arm(1u << BRIM__FAULT_THREAD, 1, true);
    brim_runtime *runtime = make_runtime(2, 0);
    const brim_open_options options = open_options(NULL);
    struct session session = open_on(runtime, training, &options);
    assert_int_equal(brim_plan_get(brim_loader_plan(session.loader))->threads, 2);
    struct digest digest = { 0 };
    const uint64_t deadline = brim__now() + 2 * AT_ONCE_NS;
    while (digest.batches < 3 && brim__now() < deadline) {
        brim_batch *batch;
        if (brim_loader_next(session.loader, 0, &batch) == BRIM_OK) {
            digest_batch(&digest, batch);
            brim_batch_release(batch);
        }
    }
    assert_int_equal(usage_of(runtime).threads, 0);
    brim__fault_arm(0, 0, false);
    assert_same(digest, first_batches(training, 3));
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
}

/* The only worker stands at the gate of another loader. */
static void test_progress_while_all_workers_are_elsewhere(void **state) {
    (void)state;
    const brim_open_options options = open_options(NULL);
    brim_runtime *runtime = make_runtime(1, 0);
    gate_shut(0);
    struct session other = open_on(runtime, gated, &options);
    gate_await(1);
    struct session session = open_on(runtime, training, &options);
    assert_int_equal(brim_plan_get(brim_loader_plan(session.loader))->threads, 1);
    struct digest digest = { 0 };
    const uint64_t deadline = brim__now() + 2 * AT_ONCE_NS;
    while (digest.batches < 3 && brim__now() < deadline) {
        brim_batch *batch;
        if (brim_loader_next(session.loader, 0, &batch) == BRIM_OK) {
            digest_batch(&digest, batch);
            brim_batch_release(batch);
        }
    }
    assert_true(take_more(session.loader, 2, &digest));
    gate_open();
    assert_same(digest, first_batches(training, 5));
    brim_loader_close(session.loader);
    brim_loader_close(other.loader);
    brim_runtime_free(runtime);
}

/* Without workers the batches come as fast as they are made, not one for each
 * time that nobody came to help. */
static void test_no_waiting_for_workers_that_are_gone(void **state) {
    (void)state;
    const char *tiny = "range 64 | batch 64";
    const brim_open_options options = open_options(NULL);
    brim_runtime *runtime = make_runtime(2, 8 << 20);
    struct session session = open_on(runtime, tiny, &options);
    brim_budget *model = NULL;
    brim_budget *root = brim_runtime_budget(runtime);
    assert_int_equal(brim_budget_new(root, "model", BRIM_UNLIMITED, 0, &model), BRIM_OK);
    assert_int_equal(brim_budget_charge(model, BRIM_MEMORY_HOST,
                                        brim__budget_available(model, BRIM_MEMORY_HOST)),
                     BRIM_OK);
    assert_int_equal(usage_of(runtime).threads, 0);
    uint64_t fastest = UINT64_MAX;
    for (int i = 0; i < 50; i++) {
        const uint64_t began = brim__now();
        assert_true(take_more(session.loader, 1, NULL));
        fastest = brim__min(fastest, brim__now() - began);
    }
    assert_true(fastest < 1000000);
    brim_loader_close(session.loader);
    brim_budget_free(model);
    brim_runtime_free(runtime);
}

/* A loader with callbacks needs workers with larger stacks. It replaces as many
 * as it wants, and none where a larger one would not fit. */
static void test_workers_of_two_sizes(void **state) {
    (void)state;
    for (int roomy = 0; roomy < 2; roomy++) {
        brim_runtime *runtime = make_runtime(2, roomy ? 64 << 20 : 6 << 20);
        brim_open_options options = open_options(NULL);
        struct digest a = { 0 }, b = { 0 };
        struct session first = open_on(runtime, training, &options);
        assert_int_equal(usage_of(runtime).threads, 2);
        options.threads = 1;
        struct session second = open_on(runtime, gated, &options);
        for (int i = 0; i < 30; i++) {
            const brim_usage usage = usage_of(runtime);
            assert_int_equal(usage.threads, 2);
            assert_true((usage.charged > BRIM__STACK_CALLBACK) == roomy);
            assert_true(take_more(first.loader, 2, &a));
            assert_true(take_more(second.loader, 2, &b));
            sleep_ns(2000000); /* past the time after which workers are asked for again */
        }
        assert_same(a, first_batches(training, 60));
        assert_same(b, first_batches(gated, 60));
        check_budget(runtime);
        brim_loader_close(first.loader);
        brim_loader_close(second.loader);
        brim_runtime_free(runtime);
    }
}

static void test_a_time_out_is_kept(void **state) {
    (void)state;
    struct session session = open_gated(0);
    brim_batch *batch = NULL;
    gate_await(2);
    for (int64_t timeout = 0; timeout <= 20000000; timeout += 10000000) {
        const uint64_t began = brim__now();
        assert_int_equal(brim_loader_next(session.loader, timeout, &batch), BRIM_STATUS_TIMEOUT);
        const uint64_t took = brim__now() - began;
        assert_true(took >= (uint64_t)timeout && took < (uint64_t)timeout + AT_ONCE_NS);
        assert_null(batch);
    }
    gate_open();
    struct digest digest = { 0 };
    assert_true(take_more(session.loader, 3, &digest));
    assert_same(digest, first_batches(gated, 3));
    close_gated(&session);
}

#define SLICE_NS INT64_C(50000000) /* as an interpreter waits that looks at its signals */

/* Every sample takes a while, so that a batch of four takes longer than a slice. */
static int take_long(void *user, const brim_call *call, brim_value *outputs, size_t output_count,
                     char *why, size_t why_bytes) {
    (void)user, (void)output_count, (void)why, (void)why_bytes;
    sleep_ns(20000000);
    *(int64_t *)outputs[0].data = (int64_t)(call->sample * call->sample);
    return 0;
}

/* An epoch, asked for with a time-out; how many calls were in vain. Each of these
 * has lasted as long as it was given. */
static uint64_t take_in_slices(brim_loader *loader, int64_t timeout_ns, struct digest *digest) {
    uint64_t in_vain = 0;
    for (;;) {
        brim_batch *batch = NULL;
        const uint64_t began = brim__now();
        const brim_status status = brim_loader_next(loader, timeout_ns, &batch);
        if (status == BRIM_OK) {
            digest_batch(digest, batch);
            brim_batch_release(batch);
        } else if (status == BRIM_STATUS_TIMEOUT) {
            assert_true(brim__now() - began >= (uint64_t)timeout_ns);
            in_vain++;
        } else {
            assert_int_equal(status, BRIM_STATUS_END);
            return in_vain;
        }
    }
}

static void test_waiting_in_slices(void **state) {
    (void)state;
    brim_field_spec field = BRIM_FIELD_SPEC_INIT;
    field.name = "x";
    field.dtype = BRIM_DTYPE_I64;
    brim_binding source = BRIM_BINDING_INIT;
    source.kind = BRIM_BINDING_SOURCE;
    source.name = "slow";
    source.count = 8;
    source.read = take_long;
    source.fields = &field;
    source.field_count = 1;
    static const char *const texts[] = { "callback @slow | batch 4",
                                         "callback @slow | filter \"x != 9\" | batch 4" };
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.bindings = &source;
    options.binding_count = 1;
    for (unsigned i = 0; i < 2; i++) {
        struct digest wanted = { 0 };
        for (int32_t threads = -1; threads <= 2; threads++) { /* -1: none, and not in slices */
            brim_runtime *runtime = make_runtime(threads < 0 ? 0 : threads, 0);
            struct session session = open_on(runtime, texts[i], &options);
            struct digest digest = { 0 };
            const uint64_t in_vain =
                take_in_slices(session.loader, threads < 0 ? BRIM_FOREVER : SLICE_NS, &digest);
            wanted = threads < 0 ? digest : wanted;
            assert_same(digest, wanted);
            assert_true(threads != 0 || in_vain > 0);
            brim_loader_close(session.loader);
            brim_runtime_free(runtime);
        }
    }
}

static uint64_t thread_cpu_ns(void) {
    struct timespec time;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void test_slices_are_slept_through(void **state) {
    (void)state;
    struct session session = open_gated(0);
    brim_batch *batch = NULL;
    gate_await(2);
    bool slept = false; /* in some of them: a machine may count what others did in one */
    for (int i = 0; i < 8; i++) {
        const uint64_t began = brim__now(), used = thread_cpu_ns();
        assert_int_equal(brim_loader_next(session.loader, SLICE_NS, &batch), BRIM_STATUS_TIMEOUT);
        slept |= thread_cpu_ns() - used < (brim__now() - began) / 2;
    }
    assert_true(slept);
    gate_open();
    close_gated(&session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interrupting_a_call_that_waits),
        cmocka_unit_test(test_a_program_that_is_asked),
        cmocka_unit_test(test_interrupting_before_a_call),
        cmocka_unit_test(test_closing_while_another_thread_waits),
        cmocka_unit_test(test_closing_at_any_moment_of_a_call),
        cmocka_unit_test(test_closing_at_any_moment_of_the_workers),
        cmocka_unit_test(test_time_outs),
        cmocka_unit_test(test_polling_without_the_workers_planned),
        cmocka_unit_test(test_progress_while_all_workers_are_elsewhere),
        cmocka_unit_test(test_no_waiting_for_workers_that_are_gone),
        cmocka_unit_test(test_workers_of_two_sizes),
        cmocka_unit_test(test_a_time_out_is_kept),
        cmocka_unit_test(test_waiting_in_slices),
        cmocka_unit_test(test_slices_are_slept_through),
    };
    return cmocka_run_group_tests(tests, begin, end_tests);
}
