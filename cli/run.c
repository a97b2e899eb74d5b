/*
 * run.c: `brim run`: takes all batches of a pipeline and says how it went.
 *
 * The state is written when the run ends for whatever reason (done, a failure,
 * Ctrl-C), so that --resume can always go on from there. What the summary says
 * is collected once and printed as a table or as JSON.
 */
#include "bad.h"
#include "cache_stats.h"
#include "cli.h"
#include "digest.h"
#include "feed.h"
#include "holders.h"
#include "progress.h"
#include "session.h"
#include "state.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define ERRORS_KEPT  100 /* shown with --json */
#define ERRORS_SHOWN 5

struct run {
    const struct options *options;
    struct session *session;
    struct feed feed;
    struct digest *digest; /* NULL unless asked for */
    struct progress progress;
    uint64_t batches, steps, epochs;
    brim_stats begun; /* when the epoch began */
    struct bad bad;
    struct failure failure; /* status BRIM_OK: none */
    double seconds;
    brim_stats stats;
    brim_usage usage;
};

/* The share of the batches asked for that has come, with `batch`; 0 if unknown. */
static double share_done(const struct run *run, const brim_batch *batch) {
    const brim_plan_info *plan = brim_plan_get(brim_loader_plan(run->feed.loader));
    const brim_batch_info *info = brim_batch_get(batch);
    const uint64_t at = info->step * info->micro_count + info->micro + 1;
    if (plan->batches < at) {
        return 0;
    }
    double left = (double)(plan->batches - at) +
                  (double)(run->options->epochs - run->epochs - 1) * (double)plan->batches;
    if (plan->batches == BRIM_UNKNOWN) {
        left = INFINITY; /* only --steps can tell */
    }
    const double steps_left =
        (double)(run->options->steps - run->steps) * (double)info->micro_count;
    if (run->options->steps > 0 && steps_left < left) {
        left = steps_left;
    }
    return (double)run->batches / ((double)run->batches + left);
}

static brim_status write_state(struct run *run) {
    brim_state state;
    const brim_status status = brim_loader_state(run->feed.loader, &state);
    if (status != BRIM_OK) {
        run->failure = failure_now(run->session, status);
        return status;
    }
    return state_write(run->options->state, &state, &run->failure);
}

/* Goes where --seek or --resume say. */
static brim_status go_to_start(struct run *run) {
    const struct options *options = run->options;
    brim_status status = BRIM_OK;
    if (options->resume != NULL) {
        brim_state state;
        status = state_read(options->resume, &state, &run->failure);
        if (status != BRIM_OK) {
            return status;
        }
        status = brim_loader_restore(run->feed.loader, &state);
    } else if (options->seek) {
        status = brim_loader_seek(run->feed.loader, options->seek_epoch, options->seek_step);
    }
    if (status != BRIM_OK) {
        run->failure = failure_now(run->session, status);
    }
    return status;
}

/* What is done with one batch. */
static brim_status use(struct run *run, const brim_batch *batch) {
    const struct options *options = run->options;
    const brim_batch_info *info = brim_batch_get(batch);
    run->batches++;
    bad_look(&run->bad, run->feed.loader);
    run->steps += info->micro + 1 == info->micro_count;
    if (run->digest != NULL) {
        const brim_status status = digest_add(run->digest, batch);
        if (status != BRIM_OK) {
            run->failure = failure_now(run->session, status);
            return status;
        }
    }
    progress_update(&run->progress, run->session->runtime, run->feed.loader,
                    share_done(run, batch));
    if (options->state_every > 0 && run->batches % options->state_every == 0) {
        return write_state(run);
    }
    return BRIM_OK;
}

/* An epoch is over. One of which nothing was good is a failure, unless only its end was run. */
static brim_status end_epoch(struct run *run) {
    brim_stats stats = BRIM_STATS_INIT;
    (void)brim_loader_read_stats(run->feed.loader, &stats);
    bad_look(&run->bad, run->feed.loader);
    run->epochs++;
    const uint64_t skipped = stats.skipped - run->begun.skipped;
    const bool whole =
        run->epochs > 1 || (run->options->resume == NULL && run->options->seek_step == 0);
    if (whole && stats.samples == run->begun.samples && skipped > 0) {
        run->failure.status = BRIM_STATUS_CORRUPT;
        snprintf(run->failure.text, sizeof run->failure.text,
                 "all %" PRIu64 " samples of epoch %" PRIu64 " were bad, so it was empty: %s",
                 skipped, stats.epoch - 1,
                 run->bad.count > 0 ? run->bad.texts[0] : "their errors are not known");
        return BRIM_STATUS_CORRUPT;
    }
    run->begun = stats;
    return BRIM_OK;
}

/* BRIM_OK when all that was asked for came, BRIM_STATUS_INTERRUPTED, or a failure,
 * which is in run->failure. */
static brim_status take_batches(struct run *run) {
    const struct options *options = run->options;
    while (run->epochs < options->epochs && (options->steps == 0 || run->steps < options->steps)) {
        const brim_batch *batch;
        brim_status status = feed_next(&run->feed, &batch);
        if (status == BRIM_STATUS_END || status == BRIM_OK) {
            status = status == BRIM_STATUS_END ? end_epoch(run) : use(run, batch);
            if (status != BRIM_OK) {
                return status;
            }
            continue;
        }
        if (status != BRIM_STATUS_INTERRUPTED) {
            run->failure = failure_now(run->session, status);
        }
        return status;
    }
    return BRIM_OK;
}

/* How many of the texts are of samples that were left out or replaced, and not
 * of a batch that never came. */
static size_t texts_kept(const struct run *run) {
    const uint64_t bad = run->stats.skipped + run->stats.replaced;
    return bad < run->bad.count ? (size_t)bad : run->bad.count;
}

static void print_json(struct run *run, bool interrupted) {
    struct document json = { .file = stdout };
    put_object(&json, NULL);
    if (run->failure.status != BRIM_OK) {
        failure_json(&json, &run->failure);
    }
    const brim_plan_info *plan = brim_plan_get(brim_loader_plan(run->feed.loader));
    put_count(&json, "samples", run->stats.samples);
    put_count(&json, "batches", run->stats.batches);
    put_count(&json, "epochs", run->epochs);
    put_count(&json, "bytes", run->stats.bytes);
    put_count(&json, "read_bytes", run->stats.read_bytes);
    put_real(&json, "seconds", run->seconds);
    put_real(&json, "samples_per_second", (double)run->stats.samples / run->seconds);
    put_real(&json, "first_batch_seconds", (double)run->stats.first_batch_ns * 1e-9);
    put_count(&json, "minimum_bytes", plan->minimum_bytes);
    put_count(&json, "planned_bytes", plan->planned_bytes);
    put_count(&json, "limit_bytes", run->usage.limit);
    put_count(&json, "peak_charged_bytes", run->usage.peak);
    put_count(&json, "peak_rss_bytes", run->usage.peak_rss);
    put_count(&json, "threads", plan->threads);
    put_count(&json, "slots", plan->slots);
    put_count(&json, "skipped", run->stats.skipped);
    put_count(&json, "replaced", run->stats.replaced);
    put_count(&json, "empty", run->stats.empty);
    put_text(&json, "warning", run->stats.warning);
    put_array(&json, "errors");
    for (size_t i = 0; i < texts_kept(run); i++) {
        put_text(&json, NULL, run->bad.texts[i]);
    }
    end_array(&json);
    copies_json(&json, run->options, &run->stats);
    shared_json(&json, &run->usage);
    holders_json(&json, run->session->runtime);
    caches_json(&json, run->feed.loader);
    put_bool(&json, "interrupted", interrupted);
    if (run->digest != NULL) {
        char text[DIGEST_TEXT];
        put_text(&json, "digest", digest_text(run->digest, text));
    }
    end_object(&json);
}

static void print_bad_samples(struct run *run) {
    char skipped[NUMBER_TEXT], replaced[NUMBER_TEXT];
    printf("bad samples  %s skipped, %s replaced\n", count_text(run->stats.skipped, skipped),
           count_text(run->stats.replaced, replaced));
    const size_t kept = texts_kept(run), shown = kept < ERRORS_SHOWN ? kept : ERRORS_SHOWN;
    for (size_t i = 0; i < shown; i++) {
        fputs("             ", stdout);
        put_clean(stdout, run->bad.texts[i]);
        putchar('\n');
    }
    const uint64_t more = run->stats.skipped + run->stats.replaced - shown;
    if (more > 0) {
        printf("             and %s more%s\n", count_text(more, skipped),
               run->epochs > 1 ? ", counted in each epoch" : "");
    }
}

static void print_table(struct run *run, bool interrupted) {
    const brim_plan_info *plan = brim_plan_get(brim_loader_plan(run->feed.loader));
    const brim_stats *stats = &run->stats;
    char a[NUMBER_TEXT], b[NUMBER_TEXT], c[NUMBER_TEXT], d[NUMBER_TEXT];
    printf("samples      %s in %s batches, %s whole epoch%s%s\n", count_text(stats->samples, a),
           count_text(stats->batches, b), count_text(run->epochs, c), run->epochs == 1 ? "" : "s",
           interrupted ? ", interrupted" : "");
    printf("time         %s, first batch after %s\n", time_text(run->seconds, a),
           stats->first_batch_ns > 0 ? time_text((double)stats->first_batch_ns * 1e-9, b) : "-");
    printf("rate         %s samples/s, %s/s\n", rate_text((double)stats->samples / run->seconds, a),
           bytes_text((double)stats->bytes / run->seconds, b));
    printf("memory       peak %s of %s (planned %s, minimum %s)\n",
           bytes_text((double)run->usage.peak, a), bytes_text((double)run->usage.limit, b),
           bytes_text((double)plan->planned_bytes, c), bytes_text((double)plan->minimum_bytes, d));
    printf("RSS          peak %s, the whole process\n", bytes_text((double)run->usage.peak_rss, a));
    printf("workers      %" PRIu32 " thread%s, %" PRIu32 " slots\n", plan->threads,
           plan->threads == 1 ? "" : "s", plan->slots);
    shared_print(&run->usage, 13);
    copies_print(run->options, stats, 13);
    caches_print(run->feed.loader, 13);
    if (stats->skipped > 0 || stats->replaced > 0) {
        print_bad_samples(run);
    }
    if (run->digest != NULL) {
        char text[DIGEST_TEXT];
        printf("digest       %s\n", digest_text(run->digest, text));
    }
    putchar('\n');
    holders_print(run->session->runtime);
}

static void print_summary(struct run *run, bool interrupted) {
    if (run->options->json) {
        print_json(run, interrupted);
    } else if (!run->options->quiet) {
        print_table(run, interrupted);
    } else if (run->digest != NULL) {
        char text[DIGEST_TEXT];
        puts(digest_text(run->digest, text));
    }
}

/* The loader is open: takes the batches, writes the state, prints. */
static int run_open(struct run *run) {
    const struct options *options = run->options;
    progress_begin(&run->progress, !options->quiet && !options->json);
    brim_status status = go_to_start(run);
    if (status != BRIM_OK) {
        progress_end(&run->progress);
        return failure_tell(options, &run->failure);
    }
    status = take_batches(run);
    if (options->state != NULL) {
        const struct failure first = run->failure;
        (void)write_state(run);
        if (first.status != BRIM_OK) {
            run->failure = first; /* the first failure is the one that is shown */
        }
    }
    run->seconds = now_seconds() - run->feed.begun;
    progress_end(&run->progress);
    (void)brim_loader_read_stats(run->feed.loader, &run->stats);
    (void)brim_runtime_read_usage(run->session->runtime, &run->usage);

    const bool interrupted = status == BRIM_STATUS_INTERRUPTED;
    print_summary(run, interrupted);
    loader_say(run->feed.loader, options);
    if (run->failure.status != BRIM_OK) {
        return failure_print(options, &run->failure);
    }
    if (options->seek && run->batches == 0 && !interrupted && !options->quiet) {
        fprintf(stderr,
                "brim run: no batch came: step %" PRIu64 " of epoch %" PRIu64 " is past the last\n",
                options->seek_step, options->seek_epoch);
    }
    return interrupted ? EXIT_SIGNAL + feed_signal() : EXIT_GOOD;
}

int command_run(const struct options *options) {
    struct session session;
    struct run run = {
        .options = options,
        .session = &session,
        .bad.most = ERRORS_KEPT,
        .stats = BRIM_STATS_INIT,
        .usage = BRIM_USAGE_INIT,
    };
    int code = session_begin(&session, options);
    if (code == EXIT_GOOD && options->state != NULL &&
        state_check(options->state, &run.failure) != BRIM_OK) {
        code = failure_tell(options, &run.failure);
    }
    if (code == EXIT_GOOD) {
        run.digest = options->digest ? digest_new() : NULL;
        const brim_status status = feed_open(&run.feed, &session);
        if (status == BRIM_OK) {
            code = run_open(&run);
        } else {
            run.failure = failure_now(&session, status);
            code = failure_tell(options, &run.failure);
        }
        feed_close(&run.feed);
        bad_free(&run.bad);
        digest_free(run.digest);
    }
    session_end(&session);
    return code;
}
