/*
 * test_faults.c: faults while arrays and tokens are loaded, and in all that can
 * be done with a loader; see support/fault_sweep.h. The formats and stages that
 * came later stand in test_faults_formats.c and test_faults_stages.c.
 */
#include "support/fault_sweep.h"
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include <string.h>

/* --------------------------------------------------------------- scenarios */

/* The recipe of the scenario's own name. */
static void run_recipe(void) {
    char text[TEXT_BYTES];
    const brim_open_options options = open_options("recipe");
    begin_runtime(SIXTEEN_MIB * 4);
    brim_loader *loader = open_text(recipe_text(now.scenario->name, text), &options);
    take(loader, 1);
    must(brim_loader_seek(loader, 1, 1), "seek");
    take(loader, 1);
    brim_loader_close(loader);
    end_runtime();
}

static void run_pad(void) {
    char text[TEXT_BYTES];
    brim_open_options options = open_options("rank 1");
    options.rank = 1;
    options.world = 2;
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(recipe_text("pad", text), &options);
    take(loader, 4); /* the last of the epoch is padded */
    brim_loader_close(loader);
    end_runtime();
}

/* The first loader has taken all; the second and a user's charge take it back. */
static void run_two(void) {
    static uint64_t limit[3], charge;
    char training[TEXT_BYTES], validation[TEXT_BYTES];
    brim_open_options first = open_options("training"), second = open_options("validation");
    recipe_text("npy", training);
    recipe_text("llmc", validation);
    first.growth = BRIM_GROWTH_FIXED;
    first.slots = 16;
    if (limit[now.threads] == 0) { /* in the run without a fault */
        charge = plan_alone(now.threads, validation, &second).minimum_bytes;
        limit[now.threads] = plan_alone(now.threads, training, &first).minimum_bytes + 2 * charge;
    }
    begin_runtime(limit[now.threads]);
    brim_loader *a = open_text(training, &first);
    take(a, 1);
    brim_loader *b = open_text(validation, &second);
    take(b, 1);
    take(a, 1);
    brim_budget *model;
    ATTEMPT(brim_budget_new(brim_runtime_budget(now.runtime), "model", BRIM_UNLIMITED, 0, &model),
            model);
    must(brim_budget_charge(model, BRIM_MEMORY_HOST, charge / 2), "charge");
    take(b, 1);
    take(a, 1);
    brim_loader_close(a);
    brim_budget_free(model);
    brim_loader_close(b);
    end_runtime();
}

static void run_copy(void) {
    char text[TEXT_BYTES];
    const brim_open_options options = open_options("copied");
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(recipe_text("zip", text), &options);
    brim_batch *batch = take_one(loader), *copy, *second;
    ATTEMPT(brim_batch_copy(batch, &copy), copy);
    brim_batch_release(batch);
    brim_loader_close(loader);
    ATTEMPT(brim_batch_copy(copy, &second), second);
    digest_batch(&now.digest, copy);
    brim_batch_release(copy);
    digest_batch(&now.digest, second);
    brim_batch_release(second);
    end_runtime();
}

/* The third batch needs a slot above the minimum, and has it until it is released. */
static void run_beyond(void) {
    char text[TEXT_BYTES];
    brim_open_options options = open_options("beyond");
    options.hold = 2;
    options.beyond = 1;
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(recipe_text("npy", text), &options);
    for (int i = 0; i < 3; i++) {
        brim_batch *held[3];
        for (int b = 0; b < 3; b++) {
            held[b] = take_one(loader);
            digest_batch(&now.digest, held[b]);
        }
        must(brim_runtime_trim(now.runtime, NULL), "trim");
        for (int b = 0; b < 3; b++) {
            brim_batch_release(held[(b + i) % 3]);
        }
    }
    brim_loader_close(loader);
    end_runtime();
}

static void run_trim(void) {
    char text[TEXT_BYTES];
    brim_open_options options = open_options("trimmed");
    options.growth = BRIM_GROWTH_FIXED;
    options.hold = 2;
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(recipe_text("npy", text), &options);
    for (int i = 0; i < 3; i++) {
        brim_batch *held = take_one(loader);
        must(brim_runtime_trim(now.runtime, NULL), "trim");
        digest_batch(&now.digest, held);
        take(loader, 1);
        brim_batch_release(held);
    }
    brim_loader_close(loader);
    end_runtime();
}

static void run_state(void) {
    char text[TEXT_BYTES];
    brim_state state;
    const brim_open_options options = open_options("resumed");
    recipe_text("zip", text);
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(text, &options);
    take(loader, 2);
    must(brim_loader_state(loader, &state), "state");
    brim_loader_close(loader);
    loader = open_text(text, &options);
    must(brim_loader_restore(loader, &state), "restore");
    take(loader, 1);
    must(brim_loader_restore(loader, &state), "restore");
    take(loader, 1);
    brim_loader_close(loader);
    end_runtime();
}

static void run_plan(void) {
    static const char *const names[] = { "zip", "megatron", "mix", "callback" };
    const brim_open_options options = open_options("planned");
    begin_runtime(SIXTEEN_MIB);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[TEXT_BYTES];
        brim_pipeline *pipeline;
        brim_plan *plan;
        ATTEMPT(brim_pipeline_parse(recipe_text(names[i], text), &pipeline), pipeline);
        ATTEMPT(brim_plan_new(now.runtime, pipeline, &options, &plan), plan);
        /* of what does not depend on the threads, as the tables for them do */
        const brim_plan_info *info = brim_plan_get(plan);
        now.digest.value = now.digest.value * 31 + info->slot_bytes + info->scratch_bytes +
                           info->order_fingerprint;
        brim_plan_free(plan);
        brim_pipeline_free(pipeline);
    }
    end_runtime();
}

/* Stage by stage; a stage that could not be added is as if never asked for. */
static void run_build(void) {
    const brim_argument length[] = {
        { .size = sizeof(brim_argument), .kind = BRIM_ARGUMENT_INTEGER, .integer = 50 },
    };
    const brim_argument rows[] = {
        { .size = sizeof(brim_argument), .kind = BRIM_ARGUMENT_INTEGER, .integer = 8 },
        { .size = sizeof(brim_argument),
          .key = "remainder",
          .kind = BRIM_ARGUMENT_TEXT,
          .text = "drop" },
    };
    const struct {
        const char *stage;
        const brim_argument *arguments;
        size_t count;
    } stages[] = { { "range", length, 1 }, { "shuffle", NULL, 0 }, { "batch", rows, 2 } };
    brim_pipeline *pipeline, *copy;
    ATTEMPT(brim_pipeline_new(&pipeline), pipeline);
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        const void *none = NULL;
        ATTEMPT(brim_pipeline_add(pipeline, stages[i].stage, stages[i].arguments, stages[i].count),
                none);
    }
    ATTEMPT(brim_pipeline_copy(pipeline, &copy), copy);
    brim_pipeline_free(pipeline);
    forget_detail();
    const char *text = brim_pipeline_text(copy);
    if (text == NULL) {
        check_failure("brim_pipeline_text", BRIM_STATUS_MEMORY);
        text = brim_pipeline_text(copy);
    }
    if (text == NULL || strncmp(text, "range 50 | shuffle", 18) != 0) {
        wrong("the text is \"%s\"", text == NULL ? "" : text);
    }
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(text, NULL);
    brim_pipeline_free(copy);
    take(loader, 7);
    brim_loader_close(loader);
    end_runtime();
}

static struct scenario scenarios[] = {
    { .name = "npy", .run = run_recipe },      { .name = "zip", .run = run_recipe },
    { .name = "tokens", .run = run_recipe },   { .name = "llmc", .run = run_recipe },
    { .name = "megatron", .run = run_recipe }, { .name = "mapped", .run = run_recipe },
    { .name = "mix", .run = run_recipe },      { .name = "callback", .run = run_recipe },
    { .name = "array", .run = run_recipe },    { .name = "pad", .run = run_pad },
    { .name = "two", .run = run_two },         { .name = "copy", .run = run_copy },
    { .name = "beyond", .run = run_beyond },   { .name = "trim", .run = run_trim },
    { .name = "state", .run = run_state },     { .name = "plan", .run = run_plan },
    { .name = "build", .run = run_build },
};

int main(int argc, char **argv) {
    return sweep_main(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0],
                      begin_memory_tests);
}
