/*
 * test_fork.c: after fork the child cannot use the parent's objects, but it can
 * free them, make its own, and end.
 *
 * The child checks with EXPECT, which prints and ends the child: an assertion
 * of the test library would go on with the parent's tests. An alarm in the
 * child ends it when a call hangs on a lock that the parent held, and prints where it
 * hangs: in brim, in the sanitizer or in the system's library.
 */
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "memory/budget.h"

#include <execinfo.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_SECONDS 60
#define FORKS         300
#define FRAMES        64
#define HUNG          99 /* exit code */

#define EXPECT(condition)                                                            \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "in the child: line %d: %s: %s\n", __LINE__, #condition, \
                    brim_detail());                                                  \
            _exit(1);                                                                \
        }                                                                            \
    } while (0)

static char text[TEXT_BYTES];

/* One of everything. */
struct family {
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_plan *plan;
    brim_budget *budget;
    brim_loader *loader;
    brim_batch *batch, *copy;
    brim_state state;
    struct digest digest; /* of the batch */
    struct digest start;  /* of the first batches of the pipeline */
};

static struct family begin_family(int32_t threads) {
    struct family family = { 0 };
    brim_open_options options = open_options("parent");
    options.hold = 2;
    recipe_text("callback", text); /* with serialised functions, which have locks */
    family.start = first_batches(text, 5);
    family.runtime = make_runtime(threads, 0);
    family.pipeline = parse(text);
    assert_int_equal(brim_plan_new(family.runtime, family.pipeline, &options, &family.plan),
                     BRIM_OK);
    assert_int_equal(brim_budget_new(brim_runtime_budget(family.runtime), "model", 1 << 20, 4096,
                                     &family.budget),
                     BRIM_OK);
    assert_int_equal(brim_budget_charge(family.budget, BRIM_MEMORY_HOST, 100), BRIM_OK);
    family.loader = open_on(family.runtime, text, &options).loader;
    assert_int_equal(brim_loader_next(family.loader, BRIM_FOREVER, &family.batch), BRIM_OK);
    assert_int_equal(brim_batch_copy(family.batch, &family.copy), BRIM_OK);
    assert_int_equal(brim_loader_state(family.loader, &family.state), BRIM_OK);
    digest_batch(&family.digest, family.batch);
    return family;
}

static void end_family(struct family *family) {
    struct digest again = { 0 };
    digest_batch(&again, family->batch);
    assert_int_equal(again.value, family->digest.value);
    assert_true(take_more(family->loader, 4, &family->digest));
    assert_int_equal(family->digest.value, family->start.value);
    brim__budget_check(brim_runtime_budget(family->runtime));
    brim_batch_release(family->batch);
    brim_batch_release(family->copy);
    brim_loader_close(family->loader);
    brim_budget_free(family->budget);
    brim_plan_free(family->plan);
    brim_pipeline_free(family->pipeline);
    assert_int_equal(brim_runtime_trim(family->runtime, NULL), BRIM_OK);
    assert_int_equal(usage_of(family->runtime).charged, empty_runtime_bytes());
    brim_runtime_free(family->runtime);
}

/* --------------------------------------------------------------- the child */

static int no_visit(void *user, const brim_budget_info *info) {
    const bool visited = user != NULL || info != NULL;
    EXPECT(!visited);
    return 0;
}

static void use_runtime(const struct family *family) {
    brim_usage usage = BRIM_USAGE_INIT;
    const brim_open_options options = open_options("child");
    uint64_t bytes = 7;
    brim_plan *plan = NULL;
    brim_loader *loader = NULL;
    EXPECT(brim_runtime_read_usage(family->runtime, &usage) == BRIM_STATUS_FORKED);
    EXPECT(strstr(brim_detail(), "fork") != NULL);
    EXPECT(brim_runtime_trim(family->runtime, &bytes) == BRIM_STATUS_FORKED && bytes == 7);
    EXPECT(brim_plan_new(family->runtime, family->pipeline, &options, &plan) == BRIM_STATUS_FORKED);
    EXPECT(brim_loader_open(family->runtime, family->pipeline, &options, &loader) ==
           BRIM_STATUS_FORKED);
    EXPECT(plan == NULL && loader == NULL);
}

static void use_budget(brim_budget *budget) {
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    brim_budget *below = NULL;
    EXPECT(brim_budget_new(budget, "below", BRIM_UNLIMITED, 0, &below) == BRIM_STATUS_FORKED);
    EXPECT(below == NULL);
    EXPECT(brim_budget_charge(budget, BRIM_MEMORY_HOST, 1) == BRIM_STATUS_FORKED);
    EXPECT(brim_budget_read(budget, BRIM_MEMORY_HOST, &info) == BRIM_STATUS_FORKED);
    EXPECT(brim_budget_walk(budget, BRIM_MEMORY_HOST, no_visit, NULL) == BRIM_STATUS_FORKED);
    brim_budget_uncharge(budget, BRIM_MEMORY_HOST, 1);
}

static void use_loader(const struct family *family) {
    brim_batch *batch = NULL;
    brim_state state;
    brim_stats stats = BRIM_STATS_INIT;
    brim_stage_stats stage = BRIM_STAGE_STATS_INIT;
    char detail[64] = "";
    EXPECT(brim_loader_next(family->loader, BRIM_FOREVER, &batch) == BRIM_STATUS_FORKED);
    EXPECT(brim_loader_next(family->loader, 0, &batch) == BRIM_STATUS_FORKED && batch == NULL);
    EXPECT(brim_loader_seek(family->loader, 0, 0) == BRIM_STATUS_FORKED);
    EXPECT(brim_loader_interrupt(family->loader) == BRIM_STATUS_FORKED);
    EXPECT(brim_loader_state(family->loader, &state) == BRIM_STATUS_FORKED);
    EXPECT(brim_loader_restore(family->loader, &family->state) == BRIM_STATUS_FORKED);
    EXPECT(brim_loader_read_stats(family->loader, &stats) == BRIM_STATUS_FORKED);
    EXPECT(brim_loader_read_stage_stats(family->loader, 0, &stage) == BRIM_STATUS_FORKED);
    brim_failure failure = BRIM_FAILURE_INIT;
    EXPECT(brim_loader_read_error(family->loader, 0, &failure) == BRIM_STATUS_FORKED);
    brim_loader_detail(family->loader, detail, sizeof detail);
    EXPECT(brim_plan_verify(family->plan, NULL, NULL) == BRIM_STATUS_FORKED);
    EXPECT(brim_plan_sample_name(family->plan, 0, detail, sizeof detail) == BRIM_STATUS_FORKED);
    EXPECT(brim_plan_get(brim_loader_plan(family->loader))->hold == 2); /* only looks */
}

static void use_batch(const struct family *family, const brim_batch *batch) {
    brim_state state;
    brim_batch *copy = NULL;
    struct digest digest = { 0 };
    EXPECT(brim_batch_state(batch, &state) == BRIM_STATUS_FORKED);
    EXPECT(brim_batch_copy(batch, &copy) == BRIM_STATUS_FORKED && copy == NULL);
    digest_batch(&digest, batch); /* its own memory, like all that was there */
    EXPECT(digest.value == family->digest.value);
}

static void free_in_some_order(const struct family *family, int order) {
    for (int i = 0; i < 7; i++) {
        switch ((i * (order % 2 ? 3 : 1) + order) % 7) {
        case 0:
            brim_batch_release(family->batch);
            break;
        case 1:
            brim_batch_release(family->copy);
            break;
        case 2:
            brim_loader_close(family->loader);
            break;
        case 3:
            brim_plan_free(family->plan);
            break;
        case 4:
            brim_budget_free(family->budget);
            break;
        case 5:
            brim_pipeline_free(family->pipeline);
            break;
        default:
            brim_runtime_free(family->runtime);
        }
    }
}

/* The thread sanitizer cannot start threads in the child of a process that has
 * some. */
static void load_in_child(const struct family *family) {
    brim_runtime_options runtime_options = BRIM_RUNTIME_OPTIONS_INIT;
    const brim_open_options options = open_options("child");
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
    struct digest digest = { 0 };
    /* the sanitizers' own lock of threads may be held at the time of a fork, and
     * then no thread can be started in the child: theirs to mend, not ours */
    runtime_options.threads = is_sanitized() ? 0 : 2;
    runtime_options.host_bytes = (uint64_t)64 << 20;
    EXPECT(brim_runtime_new(&runtime_options, &runtime) == BRIM_OK);
    EXPECT(brim_pipeline_parse(text, &pipeline) == BRIM_OK);
    EXPECT(brim_loader_open(runtime, pipeline, &options, &loader) == BRIM_OK);
    EXPECT(take_more(loader, 5, &digest));
    EXPECT(digest.value == family->start.value);
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
}

static void live_as_child(const struct family *family, int order) {
    if (order % 3 == 1) {
        load_in_child(family);
    }
    use_runtime(family);
    use_budget(brim_runtime_budget(family->runtime));
    use_budget(family->budget);
    use_loader(family);
    use_batch(family, family->batch);
    use_batch(family, family->copy);
    free_in_some_order(family, order);
    if (order % 3 == 2) {
        load_in_child(family);
    }
}

/* Prints where the child hangs. The parent has called backtrace already, so that nothing has to
 * be loaded for it here. */
static void tell_hang(int number) {
    static const char told[] = "the child hangs here:\n";
    void *frame[FRAMES];
    (void)number;
    const ssize_t written = write(STDERR_FILENO, told, sizeof told - 1);
    backtrace_symbols_fd(frame, backtrace(frame, FRAMES), STDERR_FILENO);
    _exit(written < 0 ? 1 : HUNG);
}

/* Forks, lets the child live, and sees that it ended well. */
static void fork_once(const struct family *family, int order) {
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(CHILD_SECONDS);
        live_as_child(family, order);
        if (order % 2 == 0 || is_sanitized()) { /* whose search for leaks needs all threads */
            _exit(0);
        }
        exit(0); /* with all that a library might have hung on it */
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("the child of fork %d ended with %s %d", order,
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
}

/* --------------------------------------------------------------- the tests */

static void test_fork_without_threads(void **state) {
    (void)state;
    struct family family = begin_family(0);
    for (int order = 0; order < 14; order++) {
        fork_once(&family, order);
    }
    end_family(&family);
}

static void test_fork_with_idle_workers(void **state) {
    (void)state;
    struct family family = begin_family(2);
    for (int order = 0; order < 14; order++) {
        fork_once(&family, order);
    }
    end_family(&family);
}

/* Threads that take, release and drop all locks of a runtime all the time. */
struct noise {
    brim_runtime *runtime;
    brim_loader *loader;
    struct digest digest;
    atomic_bool stop, good;
};

static void *take_batches_meanwhile(void *argument) {
    struct noise *noise = argument;
    bool good = true;
    while (good && !atomic_load(&noise->stop)) {
        good = take_more(noise->loader, 1, &noise->digest);
    }
    atomic_store(&noise->good, good);
    return NULL;
}

static void *charge_meanwhile(void *argument) {
    struct noise *noise = argument;
    brim_budget *root = brim_runtime_budget(noise->runtime);
    while (!atomic_load(&noise->stop)) {
        brim_usage usage = BRIM_USAGE_INIT;
        if (brim_budget_charge(root, BRIM_MEMORY_HOST, 4096) == BRIM_OK) {
            brim_budget_uncharge(root, BRIM_MEMORY_HOST, 4096);
        }
        brim_runtime_read_usage(noise->runtime, &usage);
        brim_runtime_trim(noise->runtime, NULL);
    }
    return NULL;
}

static void test_fork_while_everything_runs(void **state) {
    (void)state;
    struct family family = begin_family(2);
    const brim_open_options options = open_options("noise");
    struct noise noise = { .runtime = family.runtime };
    char noise_text[TEXT_BYTES];
    pthread_t thread[2];
    noise.loader = open_on(family.runtime, recipe_text("array", noise_text), &options).loader;
    assert_int_equal(pthread_create(&thread[0], NULL, take_batches_meanwhile, &noise), 0);
    assert_int_equal(pthread_create(&thread[1], NULL, charge_meanwhile, &noise), 0);
    for (int order = 0; order < FORKS; order++) {
        fork_once(&family, order);
    }
    atomic_store(&noise.stop, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
    }
    assert_true(atomic_load(&noise.good));
    const struct digest wanted = first_batches(noise_text, noise.digest.batches);
    assert_int_equal(noise.digest.value, wanted.value);
    brim_loader_close(noise.loader);
    end_family(&family);
}

/* What a child does to objects that are its own is none of the parent's. */
static void test_a_child_of_a_child(void **state) {
    (void)state;
    struct family family = begin_family(0);
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(CHILD_SECONDS);
        const pid_t grandchild = fork();
        EXPECT(grandchild >= 0);
        if (grandchild == 0) {
            live_as_child(&family, 1);
            _exit(0);
        }
        EXPECT(waitpid(grandchild, &status, 0) == grandchild && status == 0);
        live_as_child(&family, 2);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    end_family(&family);
}

int main(void) {
    void *frame[1];
    (void)backtrace(frame, 1);
    signal(SIGALRM, tell_hang); /* of the children */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fork_without_threads),
        cmocka_unit_test(test_fork_with_idle_workers),
        cmocka_unit_test(test_fork_while_everything_runs),
        cmocka_unit_test(test_a_child_of_a_child),
    };
    return cmocka_run_group_tests(tests, begin_memory_tests, end_tests);
}
