/*
 * cat.c: `brim cat`: the samples of a pipeline: a line each, as JSON, or as .npy
 * files.
 *
 * One epoch in the pipeline's order. Rows that only fill a batch up are left out.
 * A pipeline without batches gives one sample at a time, so that what comes before
 * a bad sample is shown.
 */
#include "cli.h"
#include "feed.h"
#include "npy_writer.h"
#include "progress.h"
#include "session.h"
#include "value.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define FLUSH_BATCHES 256

struct cat {
    const struct options *options;
    struct session *session;
    struct feed feed;
    struct npy_writer *npy; /* NULL: to standard output */
    struct progress progress;
    bool live;          /* samples are shown as they come: those of a stream, or on a terminal */
    unsigned unflushed; /* batches, to notice in time that the reader has gone */
    uint64_t skipped, shown;
    struct failure failure; /* status BRIM_OK: none */
};

/* Names come from files too; one that is not UTF-8 is shown like a bad path. */
static void put_key(const char *name) {
    if (!json_string_write(stdout, name, strlen(name))) {
        json_string_write(stdout, "?", 1);
    }
}

static void print_json(const brim_batch *batch, uint64_t row) {
    const brim_batch_info *info = brim_batch_get(batch);
    printf("{\"sample\": %" PRIu64 ", \"fields\": {", info->samples[row]);
    for (uint32_t i = 0; i < info->field_count; i++) {
        const brim_field *field = brim_batch_field_at(batch, i);
        const struct value value = value_of(field, row);
        if (i > 0) {
            fputs(", ", stdout);
        }
        put_key(field->name);
        fputs(": ", stdout);
        value_json(&value, stdout);
    }
    puts("}}");
}

static void print_line(const brim_batch *batch, uint64_t row) {
    const brim_batch_info *info = brim_batch_get(batch);
    printf("%" PRIu64, info->samples[row]);
    for (uint32_t i = 0; i < info->field_count; i++) {
        const brim_field *field = brim_batch_field_at(batch, i);
        const struct value value = value_of(field, row);
        fputs("  ", stdout);
        put_clean(stdout, field->name);
        fputc(' ', stdout);
        value_print(&value, stdout);
    }
    putchar('\n');
}

static bool is_done(const struct cat *cat) {
    return cat->options->count > 0 && cat->shown == cat->options->count;
}

static brim_status use_row(struct cat *cat, const brim_batch *batch, uint64_t row) {
    if (cat->skipped < cat->options->skip) {
        cat->skipped++;
        return BRIM_OK;
    }
    cat->shown++;
    if (cat->npy != NULL) {
        return npy_writer_add(cat->npy, batch, row, &cat->failure);
    }
    if (cat->options->json) {
        print_json(batch, row);
    } else {
        print_line(batch, row);
    }
    return BRIM_OK;
}

static brim_status use(struct cat *cat, const brim_batch *batch) {
    const brim_batch_info *info = brim_batch_get(batch);
    for (uint64_t row = 0; row < info->rows && !is_done(cat); row++) {
        const brim_status status = info->valid[row] ? use_row(cat, batch, row) : BRIM_OK;
        if (status != BRIM_OK) {
            return status;
        }
    }
    progress_update(&cat->progress, cat->session->runtime, cat->feed.loader, 0);
    if (cat->npy == NULL && (cat->live || ++cat->unflushed == FLUSH_BATCHES)) {
        cat->unflushed = 0;
        if (fflush(stdout) != 0) {
            return BRIM_STATUS_IO; /* main says so */
        }
    }
    return BRIM_OK;
}

/* Where single samples are handed out in a known order, those to leave out need
 * not be made. */
static brim_status skip_ahead(struct cat *cat) {
    const brim_plan *plan = brim_loader_plan(cat->feed.loader);
    const brim_plan_info *info = brim_plan_get(plan);
    const brim_plan_stage *last = brim_plan_stage_at(plan, info->stage_count - 1);
    const brim_stage_info *stage = last != NULL ? brim_stage_find(last->name) : NULL;
    if (cat->options->skip == 0 || info->sequenced || info->steps == BRIM_UNKNOWN ||
        stage == NULL || stage->room == BRIM_ROOM_BATCHING) {
        return BRIM_OK;
    }
    cat->skipped = cat->options->skip;
    return brim_loader_seek(cat->feed.loader, 0,
                            cat->skipped < info->steps ? cat->skipped : info->steps);
}

/* BRIM_OK at the end, BRIM_STATUS_INTERRUPTED, or a failure. */
static brim_status take_samples(struct cat *cat) {
    brim_status status = skip_ahead(cat);
    while (status == BRIM_OK && !is_done(cat)) {
        const brim_batch *batch;
        status = feed_next(&cat->feed, &batch);
        if (status == BRIM_OK) {
            status = use(cat, batch);
        }
    }
    if (status != BRIM_OK && status != BRIM_STATUS_END && status != BRIM_STATUS_INTERRUPTED &&
        cat->failure.status == BRIM_OK && ferror(stdout) == 0) {
        cat->failure = failure_now(cat->session, status);
    }
    return status == BRIM_STATUS_END ? BRIM_OK : status;
}

/* The loader is open. */
static int cat_open(struct cat *cat) {
    const struct options *options = cat->options;
    if (options->npy != NULL) {
        cat->npy = npy_writer_new(options->npy, brim_loader_plan(cat->feed.loader), &cat->failure);
        if (cat->npy == NULL) {
            return failure_print(options, &cat->failure);
        }
    }
    cat->live = brim_plan_get(brim_loader_plan(cat->feed.loader))->sequenced != 0 ||
                isatty(STDOUT_FILENO) == 1;
    /* samples and a progress line would overwrite each other on one terminal */
    progress_begin(&cat->progress, options->npy != NULL);
    brim_status status = take_samples(cat);
    if (status == BRIM_OK && cat->npy != NULL) {
        status = npy_writer_finish(cat->npy, &cat->failure);
    }
    progress_end(&cat->progress);
    npy_writer_close(cat->npy);
    if (cat->failure.status != BRIM_OK) {
        return failure_print(options, &cat->failure);
    }
    return status == BRIM_STATUS_INTERRUPTED ? EXIT_SIGNAL + feed_signal() : EXIT_GOOD;
}

int command_cat(const struct options *options) {
    struct session session;
    struct cat cat = { .options = options, .session = &session };
    int code = session_begin(&session, options);
    if (code == EXIT_GOOD) {
        const brim_status status = feed_open(&cat.feed, &session);
        if (status == BRIM_OK) {
            code = cat_open(&cat);
        } else {
            cat.failure = failure_now(&session, status);
            code = failure_tell(options, &cat.failure);
        }
        feed_close(&cat.feed);
    }
    session_end(&session);
    return code;
}
