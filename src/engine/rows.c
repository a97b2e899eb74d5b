/*
 * rows.c: making rows: locate, fetch, run the program, deal with bad samples.
 *
 * Positions are located in chunks; neighbours in the same source (sequential
 * order) are fetched by one read. When such a read fails its samples are fetched
 * one by one, so that a bad record never takes its neighbours along.
 */
#include "engine/loader.h"

#include "order/philox.h"

#include <stdio.h>

#define CHUNK         64
#define REPLACE_TRIES 16

static uint64_t *row_ids(const brim_plan *plan, uint8_t *slot) {
    return (uint64_t *)(void *)(slot + plan->ids_offset);
}

/* A failure of this kind is the sample's fault, not the system's or ours. */
static bool is_bad_sample(brim_status status) {
    return status == BRIM_CORRUPT || status == BRIM_CALLBACK || status == BRIM_IO;
}

/* ---------------------------------------------------------------- a group */

struct group {
    struct brim__run *run;
    const struct brim__leaf *leaf;
    struct brim__frame frame;
    uint64_t sample; /* of the first row */
    uint32_t row, count;
    /* after a failure: the source to describe the sample by, and whether that
     * sample alone failed (else a read of several did) */
    uint32_t source;
    bool certain;
};

static brim_status fetch(struct group *group, uint32_t s, const uint8_t **records) {
    const struct brim__leaf *leaf = group->leaf;
    const struct brim__source *source = leaf->source[s];
    const int32_t direct = leaf->program.direct[s];
    const struct brim__output *output =
        direct >= 0 ? &group->run->loader->plan->output[direct] : NULL;
    uint8_t *buffer =
        output != NULL ? group->run->slot_memory + output->offset + group->row * output->row_bytes
                       : group->run->scratch + leaf->buffer[s];
    brim_call call = group->frame.call;
    call.sample = group->sample;
    call.key = leaf->key[s];
    uint64_t got = 0;
    if (source->serial != NULL) {
        brim__lock(source->serial);
    }
    const brim_status status = source->ops->fetch(
        source, &call, brim__min(group->count, leaf->run[s]), buffer, records, &got);
    if (source->serial != NULL) {
        brim__unlock(source->serial);
    }
    if (status == BRIM_OK) {
        group->count = (uint32_t)brim__min(group->count, got);
        if (source->is_file) {
            group->run->read_bytes += brim__source_span(source, group->count);
        }
    }
    return status;
}

static brim_status run_timed(const struct group *group) {
    const struct brim__program *program = &group->leaf->program;
    uint64_t before = brim__now();
    for (uint32_t i = 0; i < program->step_count; i++) {
        const brim_status status = program->step[i]->run(program->step[i], &group->frame);
        const uint64_t after = brim__now();
        group->run->stage_ns[program->step[i]->stage] += after - before;
        before = after;
        if (status != BRIM_OK) {
            return status;
        }
    }
    return BRIM_OK;
}

/* Makes rows row .. row + count - 1 of consecutive samples; group->count says
 * how many were made, which may be fewer even when none failed. A failure is
 * that of the sample after these. */
static brim_status make_group(struct group *group) {
    struct brim__run *run = group->run;
    const brim_plan *plan = run->loader->plan;
    const struct brim__leaf *leaf = group->leaf;
    struct brim__frame *frame = &group->frame;
    const uint8_t *records[BRIM__MAX_SOURCES];
    const uint32_t wanted = group->count;
    for (uint32_t s = 0; s < leaf->source_count; s++) {
        const uint64_t before = run->timed ? brim__now() : 0;
        const brim_status status = fetch(group, s, &records[s]);
        if (run->timed) {
            const uint64_t took = brim__now() - before;
            run->stage_ns[leaf->source_stage[s]] += took;
            run->slowest_fetch_ns = brim__max(run->slowest_fetch_ns, took);
        }
        if (status != BRIM_OK) {
            group->count = 0;
            group->source = s;
            group->certain = wanted == 1;
            return status;
        }
    }
    uint64_t *ids = row_ids(plan, run->slot_memory);
    for (uint32_t i = 0; i < group->count; i++) {
        const uint32_t row = group->row + i;
        frame->call.sample = group->sample + i;
        for (uint32_t s = 0; s < leaf->source_count; s++) {
            frame->record[s] = records[s] + i * leaf->source[s]->pitch;
        }
        for (uint32_t f = 0; f < plan->output_count; f++) {
            frame->row[f] =
                run->slot_memory + plan->output[f].offset + row * plan->output[f].row_bytes;
        }
        const brim_status status =
            run->timed ? run_timed(group) : brim__program_run(&leaf->program, frame);
        if (status != BRIM_OK) {
            group->count = i;
            group->certain = true;
            return status;
        }
        ids[row] = leaf->first_id + frame->call.sample;
    }
    return BRIM_OK;
}

static struct group begin_group(struct brim__run *run, const struct brim__place *place,
                                uint32_t row, uint32_t count) {
    const struct brim__leaf *leaf = run->loader->plan->leaf[place->leaf];
    return (
        struct group){ .run = run,
                       .leaf = leaf,
                       .sample = place->sample,
                       .row = row,
                       .count = count,
                       .frame = { .scratch = run->scratch + leaf->program_scratch,
                                  .call = { .size = sizeof(brim_call), .epoch = place->epoch } } };
}

/* Puts what the sample is called before the thread's detail. */
static brim_status name_sample(const struct group *group, brim_status status) {
    char where[160];
    const struct brim__source *source = group->leaf->source[group->source];
    source->ops->describe(source, group->sample + group->count, where, sizeof(where));
    return brim__fail_within(status, "%s", where);
}

static brim_status make_single(struct brim__run *run, const struct brim__place *place,
                               uint32_t row) {
    struct group group = begin_group(run, place, row, 1);
    const brim_status status = make_group(&group);
    return status == BRIM_OK ? BRIM_OK : name_sample(&group, status);
}

/* ------------------------------------------------------------- bad samples */

static void keep_text(struct brim__run *run) {
    if (run->texts < BRIM__COUNT(run->text)) {
        brim__copy_text(run->text[run->texts++], BRIM__SAMPLE_ERROR, brim_detail());
    }
}

/* Another sample for the row: a pure function of position and try. */
static brim_status replace(struct brim__run *run, uint32_t row) {
    const brim_plan *plan = run->loader->plan;
    const uint64_t count = brim__order_count(&plan->order);
    brim_status status = BRIM_CORRUPT;
    for (uint32_t attempt = 0; attempt < REPLACE_TRIES; attempt++) {
        struct brim__place place;
        const uint64_t position =
            brim__random_below(plan->replace_key, run->slot->delivery.first + row, run->slot->epoch,
                               attempt * 2, count);
        brim__order_locate(&plan->order, run->slot->epoch, position, 1, &place);
        status = make_single(run, &place, row);
        if (status == BRIM_OK || !is_bad_sample(status)) {
            run->replaced_rows += status == BRIM_OK;
            return status;
        }
    }
    return brim__fail_within(status, "%d other samples failed too, the last one", REPLACE_TRIES);
}

static void handle_bad(struct brim__run *run, brim_status status, uint32_t row) {
    const brim_plan *plan = run->loader->plan;
    const enum brim__on_error policy = plan->batching.on_error;
    if (is_bad_sample(status) && policy != BRIM__FAIL) {
        keep_text(run);
        if (policy == BRIM__SKIP) {
            run->slot_memory[plan->bad_offset + row] = 1;
            run->bad_rows++;
            return;
        }
        status = replace(run, row);
        if (status == BRIM_OK) {
            return;
        }
    }
    if (run->error == BRIM_OK || row < run->error_row) {
        run->error = status;
        run->error_row = row;
        brim__copy_text(run->error_text, sizeof(run->error_text), brim_detail());
    }
}

/* -------------------------------------------------------------------- runs */

static uint32_t neighbours(const struct brim__place *places, uint32_t count) {
    uint32_t n = 1;
    while (n < count && places[n].leaf == places[0].leaf && places[n].epoch == places[0].epoch &&
           places[n].sample == places[0].sample + n) {
        n++;
    }
    return n;
}

/* Tells the system about the same rows of the batch after this one. */
static void advise(const struct brim__run *run, uint32_t row, uint32_t count) {
    const brim_plan *plan = run->loader->plan;
    const uint64_t total = brim__order_count(&plan->order);
    const uint64_t first = run->slot->delivery.first + row + plan->shard.global_rows;
    struct brim__place places[CHUNK];
    if (first >= total) {
        return;
    }
    count = (uint32_t)brim__min(count, total - first);
    brim__order_locate(&plan->order, run->slot->epoch, first, count, places);
    for (uint32_t i = 0; i < count;) {
        const struct brim__leaf *leaf = plan->leaf[places[i].leaf];
        const uint32_t n = neighbours(places + i, count - i);
        for (uint32_t s = 0; s < leaf->source_count; s++) {
            if (leaf->source[s]->is_file && leaf->source[s]->ops->advise != NULL) {
                leaf->source[s]->ops->advise(leaf->source[s], places[i].sample, n);
            }
        }
        i += n;
    }
}

static void make_chunk(struct brim__run *run, uint32_t row, uint32_t count) {
    const brim_plan *plan = run->loader->plan;
    struct brim__place places[CHUNK];
    if (run->advise) {
        advise(run, row, count);
    }
    brim__order_locate(&plan->order, run->slot->epoch, run->slot->delivery.first + row, count,
                       places);
    uint32_t alone = 0; /* samples up to here are fetched one by one */
    for (uint32_t i = 0; i < count;) {
        const uint32_t n = i < alone ? 1 : neighbours(places + i, count - i);
        struct group group = begin_group(run, &places[i], row + i, n);
        const brim_status status = make_group(&group);
        i += group.count;
        if (status == BRIM_OK) {
            continue;
        }
        if (!group.certain) {
            alone = i + n;
            continue;
        }
        row_ids(plan, run->slot_memory)[row + i] = group.leaf->first_id + places[i].sample;
        handle_bad(run, name_sample(&group, status), row + i);
        i++;
    }
}

/* Rows that only fill the batch up: zeros, flagged invalid. */
static void pad(struct brim__run *run, uint32_t row, uint32_t count) {
    const brim_plan *plan = run->loader->plan;
    for (uint32_t f = 0; f < plan->output_count; f++) {
        const struct brim__output *output = &plan->output[f];
        memset(run->slot_memory + output->offset + row * output->row_bytes, 0,
               count * output->row_bytes);
    }
    for (uint32_t i = 0; i < count; i++) {
        row_ids(plan, run->slot_memory)[row + i] = UINT64_MAX;
    }
}

void brim__rows_make(struct brim__run *run) {
    const brim_plan *plan = run->loader->plan;
    const uint32_t end = run->first + run->count;
    const uint32_t valid =
        (uint32_t)brim__max(run->first, brim__min(end, run->slot->delivery.valid_rows));
    memset(run->slot_memory + plan->valid_offset + run->first, 1, valid - run->first);
    memset(run->slot_memory + plan->valid_offset + valid, 0, end - valid);
    memset(run->slot_memory + plan->bad_offset + run->first, 0, run->count);
    for (uint32_t row = run->first; row < valid; row += CHUNK) {
        make_chunk(run, row, (uint32_t)brim__min(CHUNK, valid - row));
    }
    if (valid < end) {
        pad(run, valid, end - valid);
    }
}

void brim__rows_close_up(const brim_plan *plan, struct brim__slot *slot) {
    uint8_t *memory = slot->pages.memory;
    const uint8_t *bad = memory + plan->bad_offset;
    uint8_t *valid = memory + plan->valid_offset;
    uint64_t *ids = row_ids(plan, memory);
    uint32_t to = 0;
    for (uint32_t from = 0; from < slot->rows; from++) {
        if (bad[from]) {
            continue;
        }
        if (to != from) {
            for (uint32_t f = 0; f < plan->output_count; f++) {
                uint8_t *field = memory + plan->output[f].offset;
                const uint64_t bytes = plan->output[f].row_bytes;
                memcpy(field + to * bytes, field + from * bytes, bytes);
            }
            ids[to] = ids[from];
            valid[to] = valid[from];
        }
        to++;
    }
}
