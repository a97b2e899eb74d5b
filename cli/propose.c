/*
 * propose.c: tries caches in a pipeline and reports which save time.
 *
 * Stages that are done in one pass have one time together, and a cache in their midst
 * would split them; so nothing is worked out from the stages' times. The pipeline runs
 * as it is and with a cache, over the same few samples, and the CPU time that the
 * process takes for a sample is compared: it is what a cache saves, and does not depend
 * on what else the machine does. Of the cached one the epochs that fill it do not count.
 *
 * What is proposed has worked in the session's budget: `cache memory` had room for all
 * samples of the trial, and a file, which needs memory to be filled, was filled with a few.
 *
 * The places are after the last stage that allows a cache, which saves most, and after
 * an earlier one where samples are smallest, if that is half of it or less. Right after
 * the source is no place: the system keeps files in memory by itself.
 */
#include "propose.h"

#include "feed.h"
#include "output.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LEAST_SAVED  0.1 /* of the time */
#define LEAST_FOUND  0.5 /* of a trial's samples, to say what finding all would take */
#define ALL_FOUND    0.99
#define FILLINGS     3 /* epochs that a trial may take to fill its cache */
#define FILE_SAMPLES 4 /* that a trial's file has room for */
#define FILE_SECONDS 0.1
#define KEPT_BYTES   128 /* that a sample in memory takes at most beside its own, with rounding */
#define TABLE_BYTES  64  /* that a file takes at most for a sample, beside its own */
#define NEARLY       0.9 /* as good as the other */
#define MOST_SECONDS 2.0 /* that one pass over a trial's samples may take */
#define LEAST_ROWS   4.0 /* of a trial */

/* ------------------------------------------------------------------- places */

static bool is_transform(const char *name) {
    const brim_stage_info *stage = brim_stage_find(name);
    return stage != NULL && stage->room == BRIM_ROOM_TRANSFORM;
}

/* Whether no stage stands in parentheses, and none is a cache. */
static bool is_plain(const brim_pipeline *pipeline, const brim_plan *plan) {
    brim_pipeline_stage stage;
    size_t count = 0;
    for (; stage_at(pipeline, count, &stage); count++) {
        if (stage.depth > 0 || stage.info->room == BRIM_ROOM_CACHE) {
            return false;
        }
    }
    return count == brim_plan_get(plan)->stage_count;
}

static void add(struct proposals *proposals, const brim_plan *plan, uint32_t stage) {
    const brim_plan_stage *at = brim_plan_stage_at(plan, stage);
    struct proposal *proposal = &proposals->at[proposals->count++];
    *proposal = (struct proposal){ .stage = stage, .sample_bytes = at->sample_bytes };
    snprintf(proposal->after, sizeof proposal->after, "%s", at->name);
}

void proposals_find(struct proposals *proposals, const struct session *session,
                    const brim_loader *loader) {
    const brim_plan *plan = brim_loader_plan(loader);
    const brim_plan_info *info = brim_plan_get(plan);
    const uint64_t source = brim_plan_stage_at(plan, 0)->samples;
    const brim_plan_stage *last = NULL, *least = NULL;
    uint32_t last_at = 0, least_at = 0;
    *proposals = (struct proposals){ .rows = info->batch_rows };
    if (info->samples == BRIM_UNKNOWN || outline_of(session->pipeline).stream ||
        !is_plain(session->pipeline, plan)) {
        return;
    }
    proposals->samples = (double)(source > 0 && source < info->samples ? source : info->samples);
    proposals->room = (double)info->limit_bytes - (double)info->planned_bytes;
    for (uint32_t i = 0; i < info->stage_count; i++) {
        const brim_plan_stage *stage = brim_plan_stage_at(plan, i);
        if (!stage->cacheable || !is_transform(stage->name)) {
            continue;
        }
        if (last != NULL && (least == NULL || last->sample_bytes <= least->sample_bytes)) {
            least = last;
            least_at = last_at;
        }
        last = stage;
        last_at = i;
    }
    if (last != NULL) {
        add(proposals, plan, last_at);
    }
    if (least != NULL && least->sample_bytes <= last->sample_bytes / 2) {
        add(proposals, plan, least_at);
    }
}

/* A new text with `more` after stage `stage` of a plain pipeline. */
static char *insert(const brim_pipeline *pipeline, uint32_t stage, const char *more) {
    const char *text = brim_pipeline_text(pipeline);
    brim_pipeline_stage at;
    const size_t end = stage_at(pipeline, stage, &at) ? at.end : strlen(text);
    const size_t bytes = strlen(text) + strlen(more) + 4;
    char *longer = take(bytes, 1);
    snprintf(longer, bytes, "%.*s | %s%s", (int)end, text, more, text + end);
    return longer;
}

/* ------------------------------------------------------------------- trials */

struct trial {
    double cpu_seconds;  /* for a sample */
    double found;        /* the share of samples that the cache had */
    double sample_bytes; /* that it took for one */
    uint64_t filled;     /* samples that it kept */
};

static double cpu_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Takes epochs until one ends after `seconds`. An epoch without a batch is the end. */
static brim_status take_epochs(struct feed *feed, double seconds, struct progress *progress,
                               const char *what) {
    const double begun = now_seconds();
    uint64_t batches = 0;
    for (;;) {
        const brim_batch *batch;
        const brim_status status = feed_next(feed, &batch);
        batches += status == BRIM_OK;
        progress_say(progress, what);
        if (status == BRIM_STATUS_END && now_seconds() - begun >= seconds) {
            return batches > 0 ? BRIM_OK : BRIM_STATUS_END;
        }
        if (status != BRIM_OK && (status != BRIM_STATUS_END || batches == 0)) {
            return status;
        }
    }
}

/* Takes epochs until one misses nothing. */
static brim_status fill(struct feed *feed, struct progress *progress, const char *what) {
    brim_cache_stats cache = BRIM_CACHE_STATS_INIT;
    brim_status status = BRIM_OK;
    uint64_t misses = UINT64_MAX; /* before the last epoch */
    for (int i = 0; i < FILLINGS && status == BRIM_OK && cache.misses != misses; i++) {
        misses = cache.misses;
        status = take_epochs(feed, 0, progress, what);
        (void)brim_loader_read_cache_stats(feed->loader, 0, &cache);
    }
    return status;
}

static brim_status measure(struct feed *feed, double seconds, struct progress *progress,
                           const char *what, struct trial *trial) {
    brim_stats before = BRIM_STATS_INIT, after = BRIM_STATS_INIT;
    brim_cache_stats old = BRIM_CACHE_STATS_INIT, cache = BRIM_CACHE_STATS_INIT;
    (void)brim_loader_read_stats(feed->loader, &before);
    const bool cached = before.cache_count > 0;
    brim_status status = cached ? fill(feed, progress, what) : BRIM_OK;
    if (status != BRIM_OK) {
        return status;
    }
    (void)brim_loader_read_stats(feed->loader, &before);
    (void)brim_loader_read_cache_stats(feed->loader, 0, &old);
    const double begun = cpu_now();
    status = take_epochs(feed, seconds, progress, what);
    trial->cpu_seconds = cpu_now() - begun;
    (void)brim_loader_read_stats(feed->loader, &after);
    if (status != BRIM_OK || after.samples == before.samples) {
        return status == BRIM_OK ? BRIM_STATUS_END : status;
    }
    trial->cpu_seconds /= (double)(after.samples - before.samples);
    if (cached && brim_loader_read_cache_stats(feed->loader, 0, &cache) == BRIM_OK) {
        const double hits = (double)(cache.hits - old.hits);
        const double misses = (double)(cache.misses - old.misses);
        trial->found = hits > 0 ? hits / (hits + misses) : 0;
        trial->filled = cache.filled;
        trial->sample_bytes =
            cache.filled > 0 ? (double)cache.bytes / (double)cache.filled : INFINITY;
    }
    return BRIM_OK;
}

/* Runs a pipeline over `rows` samples, the same in every epoch, drawn from all. */
static brim_status run(const struct session *session, const char *text, uint64_t rows,
                       double seconds, struct progress *progress, const char *what,
                       struct trial *trial) {
    struct session own = *session;
    struct feed feed = { 0 };
    char few[64];
    snprintf(few, sizeof few, "shuffle each_epoch=no | take %" PRIu64, rows);
    brim_status status = brim_pipeline_parse(text, &own.pipeline);
    if (status != BRIM_OK) {
        return status;
    }
    char *shorter = insert(own.pipeline, 0, few);
    brim_pipeline_free(own.pipeline);
    status = brim_pipeline_parse(shorter, &own.pipeline);
    free(shorter);
    if (status != BRIM_OK) {
        return status;
    }
    own.open.rank = 0; /* ranks take other samples in other epochs */
    own.open.world = 1;
    own.open.progress_user = &own.opening;
    status = feed_open(&feed, &own);
    if (status == BRIM_OK) {
        status = measure(&feed, seconds, progress, what, trial);
    }
    feed_close(&feed);
    brim_pipeline_free(own.pipeline);
    return status;
}

/* As many samples as one pass gets through in half the time, or as many as fit. */
static uint64_t rows_of(const struct proposals *proposals, double rate, double seconds) {
    const double batch = (double)proposals->rows, slow = rate * MOST_SECONDS;
    double rows = rate * seconds / 2;
    double fit = INFINITY;
    for (size_t i = 0; i < proposals->count; i++) {
        const double bytes = (double)proposals->at[i].sample_bytes;
        fit = fit < proposals->room / 2 / bytes ? fit : proposals->room / 2 / bytes;
    }
    rows = rows < fit ? rows : fit;
    const double least = batch < slow ? batch : slow;
    rows = rows < least ? least : rows;
    rows = rows < LEAST_ROWS ? LEAST_ROWS : rows;
    return (uint64_t)(rows < proposals->samples ? rows : proposals->samples);
}

/* Puts in what the trial of a cache says, against that without it. */
static void judge(const struct proposals *proposals, struct proposal *proposal,
                  const struct trial *plain, const struct trial *trial) {
    if (trial->found < LEAST_FOUND) {
        return;
    }
    const double missed = (1 - trial->found) * plain->cpu_seconds;
    const double cached = (trial->cpu_seconds - missed) / trial->found;
    const double bound = (double)proposal->sample_bytes;
    proposal->saves = 1 - (cached > 0 ? cached : 0) / plain->cpu_seconds;
    proposal->less = trial->sample_bytes < bound;
    proposal->bytes = proposals->samples * (proposal->less ? trial->sample_bytes : bound);
    proposal->file = trial->found < ALL_FOUND ||
                     proposal->bytes + proposals->samples * KEPT_BYTES > proposals->room;
}

/* The stage of a cache in the file `path`, which stays small. */
static char *file_stage(const struct proposals *proposals, const struct proposal *proposal,
                        const char *path) {
    const double bytes = 0x1p20 + proposals->samples * TABLE_BYTES +
                         FILE_SAMPLES * ((double)proposal->sample_bytes + 0x1p12);
    const size_t room = 2 * strlen(path) + 64;
    char *stage = take(room, 1);
    size_t at = (size_t)snprintf(stage, room, "cache file='");
    for (; *path != '\0'; path++) {
        if (*path == '\'' || *path == '\\') {
            stage[at++] = '\\';
        }
        stage[at++] = *path;
    }
    snprintf(stage + at, room - at, "' limit=%.0f", bytes);
    return stage;
}

/* Whether the budget lets a file be filled at all. */
static bool file_fills(const struct proposals *proposals, const struct proposal *proposal,
                       const struct session *session, uint64_t rows, struct progress *progress) {
    const char *base = getenv("TMPDIR");
    char folder[PATH_MAX], path[PATH_MAX + 16];
    struct trial trial = { 0 };
    base = base != NULL && base[0] != '\0' ? base : "/tmp";
    if (snprintf(folder, sizeof folder, "%s/brim-XXXXXX", base) >= (int)sizeof folder ||
        mkdtemp(folder) == NULL) {
        return false;
    }
    snprintf(path, sizeof path, "%s/brimcache", folder);
    char *stage = file_stage(proposals, proposal, path);
    char *text = insert(session->pipeline, proposal->stage, stage);
    const bool ran = run(session, text, rows < proposals->rows ? rows : proposals->rows,
                         FILE_SECONDS, progress, "trying a file", &trial) == BRIM_OK;
    free(text);
    free(stage);
    (void)unlink(path);
    (void)rmdir(folder);
    return ran && trial.filled > 0;
}

/* Drops those that do not pay, and puts the better one first. */
static void choose(struct proposals *proposals) {
    size_t kept = 0;
    for (size_t i = 0; i < proposals->count; i++) {
        if (proposals->at[i].saves > LEAST_SAVED) {
            proposals->at[kept++] = proposals->at[i];
        }
    }
    proposals->count = kept;
    if (kept == 2 && proposals->at[1].saves >= NEARLY * proposals->at[0].saves) {
        const struct proposal first = proposals->at[0];
        proposals->at[0] = proposals->at[1];
        proposals->at[1] = first;
    }
}

void proposals_try(struct proposals *proposals, const struct session *session,
                   double samples_per_second, double seconds, struct progress *progress) {
    const char *text = brim_pipeline_text(session->pipeline);
    const uint64_t rows = rows_of(proposals, samples_per_second, seconds);
    struct trial plain = { 0 };
    if (proposals->count == 0 || text == NULL ||
        run(session, text, rows, seconds, progress, "trying it without a cache", &plain) !=
            BRIM_OK) {
        proposals->count = 0;
        return;
    }
    for (size_t i = 0; i < proposals->count; i++) {
        struct proposal *proposal = &proposals->at[i];
        struct trial trial = { 0 };
        char what[BRIM_NAME_BYTES + 32];
        snprintf(what, sizeof what, "trying a cache after %s", proposal->after);
        char *cached = insert(session->pipeline, proposal->stage, "cache memory");
        if (run(session, cached, rows, seconds, progress, what, &trial) == BRIM_OK) {
            judge(proposals, proposal, &plain, &trial);
        }
        free(cached);
        if (proposal->saves > LEAST_SAVED && proposal->file &&
            !file_fills(proposals, proposal, session, rows, progress)) {
            proposal->saves = 0;
        }
    }
    choose(proposals);
    for (size_t i = 0; i < proposals->count; i++) {
        proposals->at[i].text =
            insert(session->pipeline, proposals->at[i].stage,
                   proposals->at[i].file ? "cache file=samples.brimcache" : "cache memory");
    }
}

/* ------------------------------------------------------------------- telling */

void proposals_print(const struct proposals *proposals) {
    char bytes[NUMBER_TEXT];
    for (size_t i = 0; i < proposals->count; i++) {
        const struct proposal *proposal = &proposals->at[i];
        printf("\n%scache after %s: %s%s, saves %.0f %%\n  ", i > 0 ? "or " : "", proposal->after,
               proposal->less ? "about " : "", bytes_text(proposal->bytes, bytes),
               proposal->saves * 100);
        put_clean(stdout, proposal->text);
        putchar('\n');
    }
}

void proposals_json(struct document *json, const struct proposals *proposals) {
    put_array(json, "proposals");
    for (size_t i = 0; i < proposals->count; i++) {
        const struct proposal *proposal = &proposals->at[i];
        put_object(json, NULL);
        put_text(json, "after", proposal->after);
        put_count(json, "stage", proposal->stage);
        put_count(json, "sample_bytes", proposal->sample_bytes);
        put_count(json, "bytes", (uint64_t)proposal->bytes);
        put_real(json, "saves", proposal->saves);
        put_text(json, "pipeline", proposal->text);
        end_object(json);
    }
    end_array(json);
}

void proposals_free(struct proposals *proposals) {
    for (size_t i = 0; i < proposals->count; i++) {
        free(proposals->at[i].text);
    }
    *proposals = (struct proposals){ 0 };
}
