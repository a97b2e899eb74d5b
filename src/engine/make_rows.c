/*
 * make_rows.c: making rows: locate, fetch, run the program, deal with bad samples.
 *
 * Positions are located in groups; neighbours in the same source (sequential
 * order) are fetched by one read. When such a read fails its samples are fetched
 * one by one, so that a bad record never takes its neighbours along.
 *
 * A leaf with caches asks them first; what one of them has needs neither a read nor
 * the steps before it. Neighbours that none has are still read together.
 *
 * Where one sample becomes several rows (plan->rows_per_sample), sample i of a slot has the
 * rows i * most and following; rows that it does not use are marked as dropped.
 */
#include "engine/make.h"
#include "engine/place.h"
#include "engine/resident.h"

#include "order/philox.h"

#include <stdio.h>

#define CHUNK         64
#define REPLACE_TRIES 16

bool brim__is_bad_sample(brim_status status) {
    return status == BRIM_STATUS_CORRUPT || status == BRIM_STATUS_CALLBACK ||
           status == BRIM_STATUS_IO;
}

/* ---------------------------------------------------------------- a group */

struct group {
    struct brim__run *run;
    const struct brim__leaf *leaf;
    struct brim__frame frame;
    uint64_t sample;     /* the first one's number */
    uint32_t row, count; /* samples of the slot */
    uint64_t epoch;      /* of the frame's call, after a cache that is frozen */
    uint32_t from;       /* the first step that is run: 0, or the one after a cache */
    /* after a failure: the source to describe the sample by, and whether that
     * sample alone failed (else a read of several did) */
    uint32_t source;
    bool certain;
};

static brim_status fetch(struct group *group, uint32_t s, const uint8_t **records) {
    const struct brim__leaf *leaf = group->leaf;
    const struct brim__source *source = leaf->source[s];
    const int32_t direct = leaf->program.direct[s];
    const struct brim__layout *made = &group->run->loader->plan->made;
    uint8_t *buffer =
        direct >= 0 ? brim__layout_row(&made->output[direct], group->run->slot_memory, group->row)
                    : group->run->scratch + leaf->buffer[s];
    brim_call call = group->frame.call;
    call.sample = group->sample;
    call.epoch = leaf->frozen > 0 ? 0 : group->epoch;
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

static brim_status run_timed(const struct group *group, uint32_t first, uint32_t end) {
    const struct brim__program *program = &group->leaf->program;
    uint64_t before = brim__now();
    for (uint32_t i = first; i < end; i++) {
        const brim_status status = program->step[i]->run(program->step[i], &group->frame);
        const uint64_t after = brim__now();
        group->run->stage_ns[program->step[i]->stage] += after - before;
        before = after;
        if (status != BRIM_OK) {
            return brim__step_failed(program->step[i], status);
        }
    }
    return BRIM_OK;
}

static brim_status run_plain(const struct group *group, uint32_t first, uint32_t end) {
    return group->run->timed ? run_timed(group, first, end)
                             : brim__program_run(&group->leaf->program, first, end, &group->frame);
}

/* Steps first .. end - 1 of those from group->from on. */
static brim_status run_steps(struct group *group, uint32_t first, uint32_t end) {
    const uint32_t frozen = group->leaf->frozen;
    first = first < group->from ? group->from : first;
    if (BRIM__UNLIKELY(first < frozen)) {
        group->frame.call.epoch = 0;
        const brim_status status = run_plain(group, first, frozen < end ? frozen : end);
        group->frame.call.epoch = group->epoch;
        if (status != BRIM_OK) {
            return status;
        }
        first = frozen;
    }
    return first < end ? run_plain(group, first, end) : BRIM_OK;
}

static void set_outputs(struct group *group, uint64_t row) {
    uint8_t *memory = group->run->slot_memory;
    const struct brim__layout *made = &group->run->loader->plan->made;
    for (uint32_t f = 0; f < made->output_count; f++) {
        const struct brim__output *output = &made->output[f];
        group->frame.row[f] = brim__layout_row(output, memory, row);
        if (output->form != BRIM_FORM_DENSE) {
            group->frame.length[f] = brim__layout_lengths(output, memory) + row;
        }
    }
}

/* One sample that becomes several rows: those after its last are dropped. */
static brim_status make_many(struct group *group, uint64_t first) {
    const brim_plan *plan = group->run->loader->plan;
    const struct brim__program *program = &group->leaf->program;
    uint8_t *outcome = group->run->slot_memory + plan->made.outcome_offset + first;
    uint64_t *ids = brim__layout_ids(&plan->made, group->run->slot_memory) + first;
    memset(outcome, BRIM__ROW_DROPPED, plan->rows_per_sample);
    group->frame.expansion_index =
        0; /* not the last sample's: random steps before the expansion look at it */
    set_outputs(group, first);
    const uint32_t expand =
        program->expand == BRIM__NO_EXPAND ? program->step_count : program->expand;
    brim_status status = run_steps(group, 0, expand);
    for (uint64_t i = 0; status == BRIM_OK && i < program->rows_per_sample; i++) {
        group->frame.expansion_index = i;
        set_outputs(group, first + i);
        status = run_steps(group, expand, program->step_count);
        if (status == BRIM_OK) {
            outcome[i] = BRIM__ROW_MADE;
            ids[i] = group->leaf->first_id + group->frame.call.sample;
        } else if (status == BRIM__DROPPED) {
            status = BRIM_OK;
        } else if (status != BRIM__EXHAUSTED) {
            outcome[i] = BRIM__ROW_BAD;
        }
    }
    return status == BRIM__EXHAUSTED || status == BRIM__DROPPED ? BRIM_OK : status;
}

static brim_status make_one(struct group *group, uint64_t row) {
    const brim_plan *plan = group->run->loader->plan;
    set_outputs(group, row);
    brim_status status = run_steps(group, 0, group->leaf->program.step_count);
    if (status == BRIM__DROPPED || status == BRIM__EXHAUSTED) {
        group->run->slot_memory[plan->made.outcome_offset + row] = BRIM__ROW_DROPPED;
        status = BRIM_OK;
    }
    if (status == BRIM_OK) {
        brim__layout_ids(&plan->made, group->run->slot_memory)[row] =
            group->leaf->first_id + group->frame.call.sample;
    }
    return status;
}

/* Runs the program for samples whose records have been fetched (NULL: which are in a
 * cache); group->count says how many were made. A failure is that of the sample after these. */
static brim_status run_group(struct group *group, const uint8_t *const *records) {
    const struct brim__leaf *leaf = group->leaf;
    const uint64_t most = group->run->loader->plan->rows_per_sample;
    for (uint32_t i = 0; i < group->count; i++) {
        group->frame.call.sample = group->sample + i;
        for (uint32_t s = 0; records != NULL && s < leaf->source_count; s++) {
            group->frame.record[s] = records[s] + i * leaf->source[s]->pitch;
        }
        const brim_status status =
            most == 1 ? make_one(group, group->row + i) : make_many(group, (group->row + i) * most);
        if (BRIM__UNLIKELY(status != BRIM_OK)) {
            group->count = i;
            group->certain = true;
            return status;
        }
    }
    return BRIM_OK;
}

/* ---------------------------------------------------------------- caches */

/* What the system says of the sample's files, and what its records hold; where it says nothing,
 * the sample is made as if there were no cache. */
static void take_stamp(struct group *group) {
    const struct brim__leaf *leaf = group->leaf;
    struct brim__frame *frame = &group->frame;
    uint8_t *buffers[BRIM__MAX_SOURCES];
    for (uint32_t s = 0; s < leaf->source_count; s++) {
        const int32_t direct = leaf->program.direct[s];
        buffers[s] = direct >= 0 ? brim__layout_row(&group->run->loader->plan->made.output[direct],
                                                    group->run->slot_memory, group->row)
                                 : group->run->scratch + leaf->buffer[s];
    }
    group->count = 1;
    if (leaf->stamped) {
        frame->unstamped = brim__sources_stamp(leaf->source, leaf->source_count, group->sample,
                                               buffers, &frame->stamp) != BRIM_OK;
    }
    if (leaf->hashed) {
        uint64_t read;
        frame->unread = brim__sources_content(leaf->source, leaf->source_count, group->sample,
                                              buffers, &frame->content, &read) != BRIM_OK;
        group->run->read_bytes += read;
    }
}

static bool is_cached(const struct brim__leaf *leaf, uint64_t sample) {
    for (uint32_t p = 0; p < leaf->cache_count; p++) {
        if (brim__cache_has(&leaf->cache[p], sample)) {
            return true;
        }
    }
    return false;
}

/* Neighbours from the first on that no cache has. */
static uint32_t count_missing(const struct group *group) {
    uint32_t count = 1;
    while (count < group->count && !is_cached(group->leaf, group->sample + count)) {
        count++;
    }
    return count;
}

/* The last cache that has the group's first sample, or NULL: then the group is made
 * from its beginning. */
static const struct brim__leaf_cache *find_cached(struct group *group, struct brim__found *found) {
    const struct brim__leaf *leaf = group->leaf;
    struct brim__frame *frame = &group->frame;
    frame->call.sample = group->sample;
    if (leaf->stamped || leaf->hashed) {
        take_stamp(group);
    }
    for (uint32_t p = 0; p < leaf->cache_count; p++) {
        brim__cache_pass(&leaf->cache[p], frame);
    }
    for (uint32_t p = leaf->cache_count; p-- > 0;) {
        if (brim__cache_enter(&leaf->cache[p], frame, found)) {
            return &leaf->cache[p];
        }
    }
    return NULL;
}

static brim_status make_cached(struct group *group, const struct brim__leaf_cache *leaf_cache,
                               struct brim__found *found, uint64_t before) {
    struct brim__run *run = group->run;
    if (run->timed) {
        run->stage_ns[leaf_cache->cache->stage] += brim__now() - before;
    }
    run->read_bytes += leaf_cache->cache->path != NULL ? found->bytes : 0;
    group->count = 1;
    group->from = leaf_cache->resume;
    const brim_status status = run_group(group, NULL);
    brim__cache_leave(leaf_cache, found);
    return status;
}

/* Makes `count` consecutive samples, or fewer even when none failed. */
static brim_status make_group(struct group *group) {
    struct brim__run *run = group->run;
    const struct brim__leaf *leaf = group->leaf;
    const uint8_t *records[BRIM__MAX_SOURCES]; /* of source_count sources: only these are cleared */
    if (leaf->cache_count > 0) {
        struct brim__found found;
        const uint64_t before = run->timed ? brim__now() : 0;
        const struct brim__leaf_cache *leaf_cache = find_cached(group, &found);
        if (leaf_cache != NULL) {
            return make_cached(group, leaf_cache, &found, before);
        }
        group->count = count_missing(group);
    }
    memset(records, 0, leaf->source_count * sizeof records[0]);
    for (uint32_t s = 0; s < leaf->source_count; s++) {
        const bool alone = group->count == 1 || leaf->source[s]->most_run == 1;
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
            group->certain = alone;
            return status;
        }
    }
    return run_group(group, records);
}

static struct group begin_group(struct brim__run *run, const struct brim__location *place,
                                uint32_t row, uint32_t count) {
    const struct brim__leaf *leaf = run->loader->plan->leaf[place->leaf];
    return (struct group){ .run = run,
                           .leaf = leaf,
                           .sample = place->sample,
                           .row = row,
                           .count = count,
                           .epoch = place->epoch,
                           .frame = { .scratch = run->scratch + leaf->program_scratch,
                                      .stop = &run->stop,
                                      .call = { .size = sizeof(brim_call),
                                                .epoch = place->epoch,
                                                .batch = run->batch_region,
                                                .scratch = run->scratch_region } } };
}

/* Puts what the sample is called before the thread's detail, and says all that is known of it. */
static brim_status name_sample(const struct group *group, brim_status status) {
    char where[160];
    const struct brim__source *source = group->leaf->source[group->source];
    const uint64_t sample = group->sample + group->count;
    source->ops->describe(source, sample, where, sizeof where);
    return brim__plan_at_sample(group->run->loader->plan, brim__fail_within(status, "%s", where),
                                group->leaf, group->source, sample);
}

static brim_status make_single(struct brim__run *run, const struct brim__location *place,
                               uint32_t row) {
    struct group group = begin_group(run, place, row, 1);
    const brim_status status = make_group(&group);
    return status == BRIM_OK ? BRIM_OK : name_sample(&group, status);
}

/* ------------------------------------------------------------- bad samples */

static void keep_failure(struct brim__run *run) {
    if (run->bad_count < BRIM__COUNT(run->bad)) {
        brim__failure_keep(&run->bad[run->bad_count++]);
    }
}

/* Another sample for the row: a pure function of position and try. */
static brim_status replace(struct brim__run *run, uint32_t row) {
    const brim_plan *plan = run->loader->plan;
    const uint64_t count = brim__order_count(&plan->order);
    brim_status status = BRIM_STATUS_CORRUPT;
    for (uint32_t attempt = 0; attempt < REPLACE_TRIES; attempt++) {
        struct brim__location place;
        const uint64_t position =
            brim__random_below(plan->replace_key, run->slot->delivery.first + row, run->slot->epoch,
                               attempt * 2, count);
        brim__order_locate(&plan->order, run->slot->epoch, position, 1, &place);
        status = make_single(run, &place, row);
        if (status == BRIM_OK || !brim__is_bad_sample(status)) {
            run->replaced_rows += status == BRIM_OK;
            return status;
        }
    }
    return brim__fail_within(status, "%d other samples failed too, the last one", REPLACE_TRIES);
}

/* Marks the rows of a sample: from the one that failed to its last, since a
 * reader may begin at any; all of them if it failed before its first. */
static void mark(const struct brim__run *run, uint32_t row, enum brim__row_outcome outcome) {
    const brim_plan *plan = run->loader->plan;
    uint8_t *outcomes = run->slot_memory + plan->made.outcome_offset + row * plan->rows_per_sample;
    const uint8_t *failed = memchr(outcomes, BRIM__ROW_BAD, plan->rows_per_sample);
    const uint64_t from = failed == NULL ? 0 : (uint64_t)(failed - outcomes);
    memset(outcomes + from, outcome, plan->rows_per_sample - from);
}

/* The run fails at this row, whatever on_error says. */
static void refuse(struct brim__run *run, brim_status status, uint32_t row) {
    if (run->loader->plan->sequence.on) {
        mark(run, row, BRIM__ROW_FAILED); /* the rows before it are used all the same */
    }
    if (run->error == BRIM_OK || row < run->error_row) {
        run->error = status;
        run->error_row = row;
        brim__failure_keep(&run->failure);
    }
}

/* Whether a sample was not made because the run is to stop: then nothing of the run counts. */
static bool is_interrupted(struct brim__run *run, brim_status status) {
    run->interrupted |= status == BRIM_STATUS_INTERRUPTED && brim__stopped(&run->stop);
    return run->interrupted;
}

static void handle_bad(struct brim__run *run, brim_status status, uint32_t row) {
    const enum brim__on_error policy = run->loader->plan->batching.on_error;
    if (is_interrupted(run, status)) {
        return;
    }
    if (brim__is_bad_sample(status) && policy != BRIM__FAIL) {
        keep_failure(run);
        if (policy == BRIM__SKIP) {
            mark(run, row, BRIM__ROW_BAD);
            run->bad_rows++;
            return;
        }
        status = replace(run, row);
        if (status == BRIM_OK || is_interrupted(run, status)) {
            return;
        }
    }
    refuse(run, status, row);
}

/* -------------------------------------------------------------------- runs */

static uint32_t neighbours(const struct brim__location *places, uint32_t count) {
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
    const uint64_t first = run->slot->delivery.first + row + plan->deliveries.global_rows;
    struct brim__location places[CHUNK];
    if (first >= total) {
        return;
    }
    count = (uint32_t)brim__min(count, total - first);
    brim__order_locate(&plan->order, run->slot->epoch, first, count, places);
    for (uint32_t i = 0; i < count;) {
        const struct brim__leaf *leaf = plan->leaf[places[i].leaf];
        const uint32_t n = leaf->cache_count > 0 ? 1 : neighbours(places + i, count - i);
        for (uint32_t s = 0; s < leaf->source_count && !is_cached(leaf, places[i].sample); s++) {
            brim__source_advise(leaf->source[s], places[i].sample, n);
        }
        i += n;
    }
}

static void make_located(struct brim__run *run, uint32_t row, uint32_t count) {
    const brim_plan *plan = run->loader->plan;
    const struct brim__residents *residents = brim__loader_residents(run->loader);
    struct brim__location places[CHUNK];
    if (run->advise) {
        advise(run, row, count);
    }
    brim__order_locate(&plan->order, run->slot->epoch, run->slot->delivery.first + row, count,
                       places);
    uint32_t alone = 0; /* samples up to here are fetched one by one */
    for (uint32_t i = 0; i < count && !run->interrupted;) {
        uint32_t n = i < alone ? 1 : neighbours(places + i, count - i);
        if (BRIM__UNLIKELY(residents != NULL)) {
            const uint64_t sample = plan->leaf[places[i].leaf]->first_id + places[i].sample;
            if (brim__resident_has(residents, sample)) {
                brim__layout_ids(&plan->made, run->slot_memory)[row + i] = sample;
                i++;
                continue;
            }
            for (uint32_t k = 1; k < n; k++) {
                n = brim__resident_has(residents, sample + k) ? k : n;
            }
        }
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
        brim__layout_ids(&plan->made, run->slot_memory)[(row + i) * plan->rows_per_sample] =
            group.leaf->first_id + places[i].sample;
        handle_bad(run, name_sample(&group, status), row + i);
        i++;
    }
}

void brim__rows_pulled(struct brim__run *run, uint64_t sample, const uint8_t *records) {
    const brim_plan *plan = run->loader->plan;
    memset(run->slot_memory + plan->made.outcome_offset, BRIM__ROW_MADE,
           run->count * plan->rows_per_sample);
    for (uint32_t i = 0; i < run->count && !run->interrupted;) {
        const struct brim__location place = { .sample = sample + i, .epoch = run->slot->epoch };
        struct group group = begin_group(run, &place, i, run->count - i);
        const uint8_t *const rest[] = { records + i * group.leaf->source[0]->pitch };
        const brim_status status = run_group(&group, rest);
        i += group.count;
        if (status != BRIM_OK) {
            handle_bad(run, name_sample(&group, status), i);
            i++;
        }
    }
}

void brim__rows_unpulled(struct brim__run *run, uint64_t sample, brim_status status, bool stuck) {
    const brim_plan *plan = run->loader->plan;
    const struct brim__location place = { .sample = sample, .epoch = run->slot->epoch };
    const struct group group = begin_group(run, &place, 0, 0);
    run->count = 1;
    memset(run->slot_memory + plan->made.outcome_offset, BRIM__ROW_DROPPED, plan->rows_per_sample);
    status = name_sample(&group, status);
    if (stuck) {
        refuse(run, status, 0);
    } else {
        handle_bad(run, status, 0);
    }
}

void brim__rows_make(struct brim__run *run) {
    const brim_plan *plan = run->loader->plan;
    const uint32_t end = run->first + run->count;
    const uint32_t valid =
        (uint32_t)brim__max(run->first, brim__min(end, run->slot->delivery.valid_rows));
    memset(run->slot_memory + plan->made.outcome_offset + run->first * plan->rows_per_sample,
           BRIM__ROW_MADE, run->count * plan->rows_per_sample);
    if (!plan->sequence.on) {
        memset(run->slot_memory + plan->made.valid_offset + run->first, 1, valid - run->first);
    }
    for (uint32_t row = run->first; row < valid && !run->interrupted; row += CHUNK) {
        make_located(run, row, (uint32_t)brim__min(CHUNK, valid - row));
    }
    if (valid < end) {
        brim__place_padding(&plan->made, run->slot_memory, valid, end);
    }
}
