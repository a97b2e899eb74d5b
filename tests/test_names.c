/*
 * test_names.c: what samples are called, by the numbers that batches give them.
 */
#include "support/image_data.h"
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *pets[] = { "cat/0.jpg", "cat/1.jpg", "cat/2.png", "cat/3.webp",
                              "dog/4.jpg", "dog/5.jpg", "dog/6.png", "dog/7.webp" };

struct planned {
    brim_runtime *runtime;
    brim_plan *plan;
};

static struct planned plan_of(const char *text, const brim_open_options *options) {
    char whole[TEXT_BYTES];
    struct planned planned = { .runtime = make_runtime(0, 0) };
    brim_pipeline *pipeline = parse(expand(text, whole));
    if (brim_plan_new(planned.runtime, pipeline, options, &planned.plan) != BRIM_OK) {
        fail_msg("%s: %s", whole, brim_detail());
    }
    brim_pipeline_free(pipeline);
    return planned;
}

static void end_plan(struct planned *planned) {
    brim_plan_free(planned->plan);
    assert_int_equal(usage_of(planned->runtime).charged, empty_runtime_bytes());
    brim_runtime_free(planned->runtime);
}

/* $ stands for the directory. */
static void assert_name(const brim_plan *plan, uint64_t sample, const char *wanted) {
    char name[TEXT_BYTES], whole[TEXT_BYTES];
    if (brim_plan_sample_name(plan, sample, name, sizeof name) != BRIM_OK) {
        fail_msg("sample %llu: %s", (unsigned long long)sample, brim_detail());
    }
    assert_string_equal(name, expand(wanted, whole));
}

static void test_folders(void **state) {
    (void)state;
    const brim_open_options options = open_options(NULL);
    struct planned planned = plan_of(
        "folder $/pets index=beside | shuffle seed=1 | take 3 | decode | resize 8 8 | batch 2",
        &options);
    for (unsigned i = 0; i < 8; i++) { /* of the source: what take leaves out has a name too */
        char wanted[64];
        snprintf(wanted, sizeof wanted, "$/pets/%s", pets[i]);
        assert_name(planned.plan, i, wanted);
    }
    end_plan(&planned);
}

static void test_lists_and_manifests(void **state) {
    (void)state;
    static const char *const paths[] = { "pets/cat/0.jpg", "pets/dog/6.png" };
    brim_binding list = BRIM_BINDING_INIT;
    list.kind = BRIM_BINDING_FILES;
    list.name = "mine";
    list.paths = paths;
    list.count = 2;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.bindings = &list;
    options.binding_count = 1;
    struct planned planned = plan_of("files list=@mine root=$ | decode | resize 8 8", &options);
    assert_name(planned.plan, 0, "$/pets/cat/0.jpg");
    assert_name(planned.plan, 1, "$/pets/dog/6.png");
    end_plan(&planned);

    planned = plan_of("files $/pets.csv index=beside | decode | resize 8 8", &options);
    assert_name(planned.plan, 0, "$/pets/cat/0.jpg");
    assert_name(planned.plan, 1, "$/pets/dog/6.png");
    /* the record is read with memory that is charged, and refused as any other */
    brim_budget *model;
    char name[TEXT_BYTES];
    assert_int_equal(
        brim_budget_new(brim_runtime_budget(planned.runtime), "model", BRIM_UNLIMITED, 0, &model),
        BRIM_OK);
    const brim_usage usage = usage_of(planned.runtime);
    assert_int_equal(brim_budget_charge(model, BRIM_MEMORY_HOST, usage.limit - usage.charged),
                     BRIM_OK);
    assert_int_equal(brim_plan_sample_name(planned.plan, 0, name, sizeof name), BRIM_STATUS_BUDGET);
    brim_budget_free(model);
    assert_name(planned.plan, 0, "$/pets/cat/0.jpg");
    end_plan(&planned);
}

/* Parts are numbered through; of a zip the part that has files by name has the say. */
static void test_parts(void **state) {
    (void)state;
    const brim_open_options options = open_options(NULL);
    struct planned planned = plan_of(
        "concat (zip (range 8 name=i) (folder $/pets classes=no index=beside) | decode | resize 8 "
        "8)"
        " (zip (range 2 name=i) (folder $/same classes=no index=beside) | decode | resize 8 8 | "
        "shuffle seed=4)",
        &options);
    assert_name(planned.plan, 0, "$/pets/cat/0.jpg");
    assert_name(planned.plan, 7, "$/pets/dog/7.webp");
    assert_name(planned.plan, 8, "$/same/0.png");
    assert_name(planned.plan, 9, "$/same/1.png");
    char name[64] = "as it was";
    assert_int_equal(brim_plan_sample_name(planned.plan, 10, name, sizeof name),
                     BRIM_STATUS_INVALID);
    assert_detail_has("sample 10: the sources have 10 samples in all");
    assert_int_equal(brim_plan_sample_name(planned.plan, UINT64_MAX, name, sizeof name),
                     BRIM_STATUS_INVALID);
    assert_string_equal(name, "as it was");
    end_plan(&planned);
}

static void test_others(void **state) {
    (void)state;
    const brim_open_options options = open_options(NULL);
    struct planned planned =
        plan_of("mix 1 (range 5 name=x) 2 (range 7 name=x) | batch 2", &options);
    assert_name(planned.plan, 4, "range, sample 4");
    assert_name(planned.plan, 5, "range, sample 0");
    assert_name(planned.plan, 11, "range, sample 6");
    end_plan(&planned);
    planned = plan_of("zip (npy $/pets.npy name=a) (range 2 name=b)", &options);
    char name[TEXT_BYTES], start[TEXT_BYTES];
    assert_int_equal(brim_plan_sample_name(planned.plan, 1, name, sizeof name), BRIM_OK);
    expand("$/pets.npy, sample 1", start);
    assert_memory_equal(name, start, strlen(start));
    end_plan(&planned);
}

static int pull_nothing(void *user, brim_value *outputs, size_t output_count, char *why,
                        size_t why_bytes) {
    (void)user, (void)outputs, (void)output_count, (void)why, (void)why_bytes;
    return 0;
}

static void test_streams_have_none(void **state) {
    (void)state;
    brim_field_spec field = BRIM_FIELD_SPEC_INIT;
    field.name = "x";
    field.dtype = BRIM_DTYPE_I64;
    brim_binding stream = BRIM_BINDING_INIT;
    stream.kind = BRIM_BINDING_STREAM;
    stream.name = "documents";
    stream.pull = pull_nothing;
    stream.fields = &field;
    stream.field_count = 1;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.bindings = &stream;
    options.binding_count = 1;
    struct planned planned = plan_of("stream @documents | batch 2", &options);
    char name[64];
    assert_int_equal(brim_plan_sample_name(planned.plan, 0, name, sizeof name),
                     BRIM_STATUS_UNSUPPORTED);
    end_plan(&planned);
}

/* A path that was cut would be that of another file. */
static void test_room_for_the_text(void **state) {
    (void)state;
    const brim_open_options options = open_options(NULL);
    struct planned planned = plan_of("folder $/pets index=beside | decode | resize 8 8", &options);
    char wanted[TEXT_BYTES], name[TEXT_BYTES];
    expand("$/pets/cat/0.jpg", wanted);
    const size_t length = strlen(wanted);
    for (size_t room = 0; room <= length; room += 3) {
        name[0] = '?';
        assert_int_equal(brim_plan_sample_name(planned.plan, 0, name, room), BRIM_STATUS_INVALID);
        assert_int_equal(name[0], '?');
    }
    assert_int_equal(brim_plan_sample_name(planned.plan, 0, name, length), BRIM_STATUS_INVALID);
    assert_int_equal(brim_plan_sample_name(planned.plan, 0, name, length + 1), BRIM_OK);
    assert_string_equal(name, wanted);
    assert_int_equal(brim_plan_sample_name(planned.plan, 0, NULL, 9), BRIM_STATUS_INVALID);
    assert_int_equal(brim_plan_sample_name(NULL, 0, name, 9), BRIM_STATUS_INVALID);
    end_plan(&planned);
}

struct asker {
    const brim_plan *plan;
    const char *directory; /* with a slash at its end */
    atomic_bool stop;
    bool wrong;
};

static void *ask(void *argument) {
    struct asker *asker = argument;
    char name[TEXT_BYTES], wanted[TEXT_BYTES];
    for (unsigned i = 0; !atomic_load(&asker->stop) || i < 16; i++) {
        snprintf(wanted, sizeof wanted, "%s%s", asker->directory, pets[i % 8]);
        asker->wrong |= brim_plan_sample_name(asker->plan, i % 8, name, sizeof name) != BRIM_OK ||
                        strcmp(name, wanted) != 0;
    }
    return NULL;
}

static void test_from_any_thread_while_it_runs(void **state) {
    (void)state;
    char text[TEXT_BYTES], directory[TEXT_BYTES];
    const brim_open_options options = open_options(NULL);
    brim_runtime *runtime = make_runtime(2, 0);
    const struct session session = open_on(
        runtime,
        expand("folder $/pets index=beside | shuffle | decode | resize 8 8 | batch 2", text),
        &options);
    struct asker asker[2] = { 0 };
    pthread_t thread[2];
    expand("$/pets/", directory);
    for (unsigned i = 0; i < 2; i++) {
        asker[i].plan = brim_loader_plan(session.loader);
        asker[i].directory = directory;
        assert_int_equal(pthread_create(&thread[i], NULL, ask, &asker[i]), 0);
    }
    struct digest digest = { 0 };
    const bool took = take_more(session.loader, 40, &digest);
    for (unsigned i = 0; i < 2; i++) {
        atomic_store(&asker[i].stop, true);
        pthread_join(thread[i], NULL);
        assert_false(asker[i].wrong);
    }
    assert_true(took);
    assert_same(digest, first_batches(text, 40));
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
}

static void test_after_fork(void **state) {
    (void)state;
    const brim_open_options options = open_options(NULL);
    struct planned planned =
        plan_of("files $/pets.csv index=beside | decode | resize 8 8", &options);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char name[64];
        _exit(brim_plan_sample_name(planned.plan, 0, name, sizeof name) == BRIM_STATUS_FORKED ? 0
                                                                                              : 1);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    end_plan(&planned);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_lists_and_manifests),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_streams_have_none),
        cmocka_unit_test(test_room_for_the_text),
        cmocka_unit_test(test_from_any_thread_while_it_runs),
        cmocka_unit_test(test_after_fork),
    };
    return cmocka_run_group_tests(tests, begin_image_tests, end_tests);
}
