/*
 * bench.c: `brim bench`: how fast a pipeline is, and how sure that is.
 *
 * One loader is opened and measured several times without a pause between, so
 * that a repeat sees the pipeline as a long training would. What comes before
 * (opening, growing, a cold page cache's first reads) is a warm-up as long as a
 * repeat that does not count. Epochs follow each other; a repeat may span them. At the
 * end caches are tried in the pipeline (propose.h), with the loader closed, so that they
 * have its budget.
 */
#include "cache_stats.h"
#include "cli.h"
#include "feed.h"
#include "holders.h"
#include "progress.h"
#include "propose.h"
#include "session.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define LEAST_TRIAL_SECONDS 0.1 /* shorter ones say nothing */
#define MOST_TRIAL_SECONDS  0.5

struct repeat {
    double seconds;
    double samples_per_second, batches_per_second, bytes_per_second;
};

struct bench {
    const struct options *options;
    struct session *session;
    struct feed feed;
    struct progress progress;
    struct repeat *repeats; /* options->repeat of them */
    uint64_t done;
    bool warm; /* the warm-up is over */
    struct failure failure;
};

static brim_status fail(struct bench *bench, brim_status status) {
    bench->failure = failure_now(bench->session, status);
    return status;
}

/* The share of all repeats and the warm-up that is done, `part` of this one. */
static double share_done(const struct bench *bench, double part) {
    return ((double)bench->done + (bench->warm ? 1 : 0) + part) /
           ((double)bench->options->repeat + 1);
}

/* Takes batches until the repeat's time or steps are over. */
static brim_status measure(struct bench *bench, struct repeat *repeat) {
    const struct options *options = bench->options;
    brim_stats before = BRIM_STATS_INIT, after = BRIM_STATS_INIT;
    (void)brim_loader_read_stats(bench->feed.loader, &before);
    const double begin = now_seconds();
    double now = begin;
    uint64_t steps = 0;
    bool ended = false; /* the last answer was the end of an epoch */
    while (options->steps > 0 ? steps < options->steps : now - begin < options->seconds) {
        const brim_batch *batch;
        const brim_status status = feed_next(&bench->feed, &batch);
        if (status == BRIM_STATUS_END && ended) {
            bench->failure = (struct failure){
                .status = BRIM_STATUS_INVALID,
                .text = "the pipeline gives no batches, so there is nothing to measure",
            };
            return BRIM_STATUS_INVALID;
        }
        ended = status == BRIM_STATUS_END;
        if (status == BRIM_OK) {
            steps += brim_batch_get(batch)->micro + 1 == brim_batch_get(batch)->micro_count;
            const double part = options->steps > 0 ? (double)steps / (double)options->steps
                                                   : (now - begin) / options->seconds;
            progress_update(&bench->progress, bench->session->runtime, bench->feed.loader,
                            share_done(bench, part));
        } else if (status != BRIM_STATUS_END) {
            return status == BRIM_STATUS_INTERRUPTED ? status : fail(bench, status);
        }
        now = now_seconds();
    }
    (void)brim_loader_read_stats(bench->feed.loader, &after);
    repeat->seconds = now - begin;
    repeat->samples_per_second = (double)(after.samples - before.samples) / repeat->seconds;
    repeat->batches_per_second = (double)(after.batches - before.batches) / repeat->seconds;
    repeat->bytes_per_second = (double)(after.bytes - before.bytes) / repeat->seconds;
    return BRIM_OK;
}

static int by_rate(const void *a, const void *b) {
    const double x = ((const struct repeat *)a)->samples_per_second;
    const double y = ((const struct repeat *)b)->samples_per_second;
    return (x > y) - (x < y);
}

/* The samples per second below which a share `q` of the (sorted) repeats lies,
 * between neighbours in proportion; not a number before the first is done. */
static double quantile(const struct bench *bench, double q) {
    if (bench->done == 0) {
        return NAN;
    }
    const double at = q * (double)(bench->done - 1);
    const uint64_t low = (uint64_t)at;
    const uint64_t high = low + 1 < bench->done ? low + 1 : low;
    const double a = bench->repeats[low].samples_per_second;
    const double b = bench->repeats[high].samples_per_second;
    return a + (b - a) * (at - (double)low);
}

/* Calls `row` for each stage with its share of all stages' time; that of a fused one is
 * in the stage before it. */
static void each_stage(brim_loader *loader,
                       void (*row)(void *to, const brim_stage_stats *stage, double share,
                                   bool fused),
                       void *to) {
    const brim_plan *plan = brim_loader_plan(loader);
    brim_stats stats = BRIM_STATS_INIT;
    (void)brim_loader_read_stats(loader, &stats);
    double total = 0;
    for (uint32_t i = 0; i < stats.stage_count; i++) {
        brim_stage_stats stage = BRIM_STAGE_STATS_INIT;
        if (brim_loader_read_stage_stats(loader, i, &stage) == BRIM_OK) {
            total += (double)stage.ns;
        }
    }
    for (uint32_t i = 0; i < stats.stage_count; i++) {
        brim_stage_stats stage = BRIM_STAGE_STATS_INIT;
        if (brim_loader_read_stage_stats(loader, i, &stage) == BRIM_OK) {
            row(to, &stage, total > 0 ? (double)stage.ns / total : 0,
                brim_plan_stage_at(plan, i)->fused != 0);
        }
    }
}

static void stage_json(void *to, const brim_stage_stats *stage, double share, bool fused) {
    struct document *json = to;
    put_object(json, NULL);
    put_text(json, "name", stage->name);
    put_count(json, "samples", stage->samples);
    put_real(json, "seconds", (double)stage->ns * 1e-9);
    put_real(json, "share", share);
    put_bool(json, "fused", fused);
    end_object(json);
}

struct stage_table {
    struct table table;
    bool fused; /* a stage in it is */
};

static void stage_row(void *to, const brim_stage_stats *stage, double share, bool fused) {
    char name[CELL_BYTES], samples[NUMBER_TEXT], each[NUMBER_TEXT], percent[NUMBER_TEXT];
    struct stage_table *stages = to;
    if (fused) {
        stages->fused = true;
        snprintf(name, sizeof name, "+ %s", stage->name);
        table_row(&stages->table, (const char *[]){ name, "", "", "" });
        return;
    }
    snprintf(percent, sizeof percent, "%.1f %%", share * 100);
    snprintf(each, sizeof each, "%.1f ns",
             stage->samples > 0 ? (double)stage->ns / (double)stage->samples : 0);
    table_row(&stages->table,
              (const char *[]){ stage->name, percent, each, count_text(stage->samples, samples) });
}

/* The document, but for its end. */
static struct document begin_json(const struct bench *bench) {
    const brim_plan_info *plan = brim_plan_get(brim_loader_plan(bench->feed.loader));
    brim_usage usage = BRIM_USAGE_INIT;
    (void)brim_runtime_read_usage(bench->session->runtime, &usage);
    const struct repeat none = { .batches_per_second = NAN, .bytes_per_second = NAN };
    const struct repeat *middle = bench->done > 0 ? &bench->repeats[(bench->done - 1) / 2] : &none;
    struct document json = { .file = stdout };
    put_object(&json, NULL);
    put_object(&json, "samples_per_second");
    put_real(&json, "median", quantile(bench, 0.5));
    put_real(&json, "min", quantile(bench, 0));
    put_real(&json, "q1", quantile(bench, 0.25));
    put_real(&json, "q3", quantile(bench, 0.75));
    put_real(&json, "max", quantile(bench, 1));
    end_object(&json);
    put_real(&json, "batches_per_second", middle->batches_per_second);
    put_real(&json, "bytes_per_second", middle->bytes_per_second);
    put_array(&json, "repeats");
    for (uint64_t i = 0; i < bench->done; i++) {
        put_real(&json, NULL, bench->repeats[i].samples_per_second);
    }
    end_array(&json);
    put_array(&json, "stages");
    each_stage(bench->feed.loader, stage_json, &json);
    end_array(&json);
    put_count(&json, "minimum_bytes", plan->minimum_bytes);
    put_count(&json, "planned_bytes", plan->planned_bytes);
    put_count(&json, "limit_bytes", usage.limit);
    put_count(&json, "peak_charged_bytes", usage.peak);
    put_count(&json, "peak_rss_bytes", usage.peak_rss);
    put_count(&json, "threads", plan->threads);
    put_count(&json, "slots", plan->slots);
    brim_stats stats = BRIM_STATS_INIT;
    (void)brim_loader_read_stats(bench->feed.loader, &stats);
    copies_json(&json, bench->options, &stats);
    shared_json(&json, &usage);
    holders_json(&json, bench->session->runtime);
    caches_json(&json, bench->feed.loader);
    return json;
}

static void print_table(const struct bench *bench, bool interrupted) {
    const brim_plan_info *plan = brim_plan_get(brim_loader_plan(bench->feed.loader));
    brim_usage usage = BRIM_USAGE_INIT;
    (void)brim_runtime_read_usage(bench->session->runtime, &usage);
    const struct repeat *middle = &bench->repeats[(bench->done - 1) / 2];
    char a[NUMBER_TEXT], b[NUMBER_TEXT], c[NUMBER_TEXT], d[NUMBER_TEXT];
    printf("median   %s samples/s, %s batches/s, %s/s\n", rate_text(quantile(bench, 0.5), a),
           rate_text(middle->batches_per_second, b), bytes_text(middle->bytes_per_second, c));
    printf("spread   %s .. %s samples/s, the middle half %s .. %s\n",
           rate_text(quantile(bench, 0), a), rate_text(quantile(bench, 1), b),
           rate_text(quantile(bench, 0.25), c), rate_text(quantile(bench, 0.75), d));
    printf("repeats  %s%s\n", count_text(bench->done, a), interrupted ? ", interrupted" : "");
    printf("workers  %" PRIu32 " thread%s, %" PRIu32 " slots\n", plan->threads,
           plan->threads == 1 ? "" : "s", plan->slots);
    printf("memory   peak %s of %s\n", bytes_text((double)usage.peak, a),
           bytes_text((double)usage.limit, b));
    brim_stats stats = BRIM_STATS_INIT;
    (void)brim_loader_read_stats(bench->feed.loader, &stats);
    shared_print(&usage, 9);
    copies_print(bench->options, &stats, 9);
    caches_print(bench->feed.loader, 9);
    putchar('\n');
    holders_print(bench->session->runtime);
    putchar('\n');
    struct stage_table stages = { .table = { .columns = 4, .right = 1u << 1 | 1u << 2 | 1u << 3 } };
    table_row(&stages.table, (const char *[]){ "stage", "share", "a sample", "samples" });
    each_stage(bench->feed.loader, stage_row, &stages);
    table_print(&stages.table, stdout);
    if (stages.fused) {
        puts("(+ is done in one pass with the stage before it, which has its time)");
    }
}

/* What one measured pass of a trial is to take. */
static double trial_seconds(const struct bench *bench) {
    const double half = bench->repeats[0].seconds / 2;
    return fmin(fmax(half, LEAST_TRIAL_SECONDS), MOST_TRIAL_SECONDS);
}

/* Closes the loader, to try caches in its place. */
static void propose(struct bench *bench, struct proposals *proposals) {
    const struct options *options = bench->options;
    proposals_find(proposals, bench->session, bench->feed.loader);
    feed_close(&bench->feed);
    progress_begin(&bench->progress, !options->quiet && !options->json);
    proposals_try(proposals, bench->session, quantile(bench, 0.5), trial_seconds(bench),
                  &bench->progress);
    progress_end(&bench->progress);
}

/* All repeats that there are were measured. */
static void tell(struct bench *bench, bool interrupted) {
    struct proposals proposals = { 0 };
    struct document json = { 0 };
    if (bench->options->json) {
        json = begin_json(bench);
    } else if (bench->done > 0) {
        print_table(bench, interrupted);
    }
    loader_say(bench->feed.loader, bench->options);
    if (!interrupted) {
        fflush(stdout);
        propose(bench, &proposals);
    }
    if (bench->options->json) {
        proposals_json(&json, &proposals);
        put_bool(&json, "interrupted", feed_signal() != 0);
        end_object(&json);
    } else {
        proposals_print(&proposals);
    }
    proposals_free(&proposals);
}

/* The loader is open: warms up, measures, prints. */
static int bench_open(struct bench *bench) {
    const struct options *options = bench->options;
    progress_begin(&bench->progress, !options->quiet && !options->json);
    struct repeat warm_up;
    brim_status status = measure(bench, &warm_up);
    bench->warm = true;
    while (status == BRIM_OK && bench->done < options->repeat) {
        status = measure(bench, &bench->repeats[bench->done]);
        bench->done += status == BRIM_OK;
    }
    progress_end(&bench->progress);
    if (bench->failure.status != BRIM_OK) {
        return failure_tell(options, &bench->failure);
    }
    qsort(bench->repeats, bench->done, sizeof bench->repeats[0], by_rate);
    tell(bench, status == BRIM_STATUS_INTERRUPTED);
    return feed_signal() != 0 ? EXIT_SIGNAL + feed_signal() : EXIT_GOOD;
}

int command_bench(const struct options *options) {
    struct session session;
    struct bench bench = { .options = options, .session = &session };
    int code = session_begin(&session, options);
    if (code == EXIT_GOOD) {
        const brim_status status = feed_open(&bench.feed, &session);
        if (status == BRIM_OK) {
            bench.repeats = take(options->repeat, sizeof bench.repeats[0]);
            code = bench_open(&bench);
            free(bench.repeats);
        } else {
            (void)fail(&bench, status);
            code = failure_tell(options, &bench.failure);
        }
        feed_close(&bench.feed);
    }
    session_end(&session);
    return code;
}
