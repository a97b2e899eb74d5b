/*
 * shared_budget.c: two processes of one machine in one budget of 8 MiB.
 *
 * A process that evaluates holds a model of 5 MiB. Another process that trains loads its batches in
 * the rest, and is refused a model of 5 MiB, with a text that names the other process. When that
 * process has ended, its memory is free. It would also be free if it had been killed.
 */
#include <brim.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t together = 8 << 20, model = 5 << 20;

/* Ends the program if a call failed. */
static void must(brim_status status) {
    if (status != BRIM_OK) {
        fprintf(stderr, "shared_budget: %s: %s\n", brim_status_name(status), brim_detail());
        exit(1);
    }
}

static void must_hold(int claim, const char *otherwise) {
    if (!claim) {
        fprintf(stderr, "shared_budget: %s\n", otherwise);
        exit(1);
    }
}

/* Processes with the same name share; all give the same limit. */
static brim_runtime *join(const char *name) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_runtime *runtime;
    options.shared_name = name;
    options.shared_bytes = together;
    options.threads = 0;
    must(brim_runtime_new(&options, &runtime));
    return runtime;
}

/* Holds its model until it is told to end. */
static void evaluate(const char *name, int told, int tells) {
    brim_runtime *runtime = join(name);
    char byte = 0;
    must(brim_budget_charge(brim_runtime_budget(runtime), BRIM_MEMORY_HOST, model));
    must_hold(write(tells, &byte, 1) == 1 && read(told, &byte, 1) == 1, "the pipes broke");
    brim_runtime_free(runtime);
}

static uint64_t train(brim_runtime *runtime) {
    brim_pipeline *pipeline;
    brim_loader *loader;
    brim_batch *batch;
    brim_status status;
    uint64_t batches = 0;
    must(brim_pipeline_parse("range 100000 | shuffle | batch 1000", &pipeline));
    must(brim_loader_open(runtime, pipeline, NULL, &loader));
    while ((status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
        brim_batch_release(batch);
        batches++;
    }
    must(status == BRIM_STATUS_END ? BRIM_OK : status);
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    return batches;
}

int main(void) {
    char name[64], byte = 0;
    int orders[2], answers[2], status = 0;
    brim_usage usage = BRIM_USAGE_INIT;
    snprintf(name, sizeof name, "example-%d", (int)getpid());
    must_hold(pipe(orders) == 0 && pipe(answers) == 0, "no pipes");
    const pid_t other = fork(); /* before there is a runtime, which a child could not use */
    must_hold(other >= 0, "no second process");
    if (other == 0) {
        evaluate(name, orders[0], answers[1]);
        return 0;
    }
    close(answers[1]);
    must_hold(read(answers[0], &byte, 1) == 1, "the other process has failed");

    brim_runtime *runtime = join(name);
    brim_budget *budget = brim_runtime_budget(runtime);
    printf("%llu batches beside the other process\n", (unsigned long long)train(runtime));
    must(brim_runtime_read_usage(runtime, &usage));
    printf("%u processes use %.1f of %.1f MiB\n", usage.processes,
           (double)usage.shared_used / (1 << 20), (double)usage.shared_limit / (1 << 20));
    must_hold(usage.processes == 2 && usage.shared_used > model, "the other is not counted");

    must_hold(brim_budget_charge(budget, BRIM_MEMORY_HOST, model) == BRIM_STATUS_BUDGET,
              "two models fitted");
    printf("%s\n", brim_detail());

    must_hold(write(orders[1], &byte, 1) == 1 && waitpid(other, &status, 0) == other, "no end");
    must_hold(status == 0, "the other process has failed");
    must(brim_budget_charge(budget, BRIM_MEMORY_HOST, model));
    must(brim_runtime_read_usage(runtime, &usage));
    printf("%u process uses %.1f of %.1f MiB\n", usage.processes,
           (double)usage.shared_used / (1 << 20), (double)usage.shared_limit / (1 << 20));
    brim_runtime_free(runtime);
    return 0;
}
