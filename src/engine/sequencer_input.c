/*
 * sequencer_input.c: the lowest level of a sequencer: rows of chunks, in order, without those
 * that are bad, dropped by a filter, or left out by skip and take.
 */
#include "engine/position.h"
#include "engine/sequencer.h"

/* The chunk to read from, or why there is none. */
static enum brim__flow take_chunk(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    enum brim__flow flow = BRIM__FLOW_ROW;
    if (sequencer->chunk != NULL) {
        return flow;
    }
    brim__lock(&loader->mutex);
    const struct brim__shard shard = brim__loader_shard(loader, loader->reached.taken.epoch);
    struct brim__slot *head = brim__ring_head(loader->rows);
    if (!loader->plan->sequence.stream &&
        loader->reached.taken.index >= brim__shard_deliveries(&shard)) {
        flow = BRIM__FLOW_END;
    } else if (!brim__slot_is_ready(head)) {
        flow = BRIM__FLOW_WAIT;
    } else {
        sequencer->chunk = head;
        sequencer->chunk_row = sequencer->origin_row;
        sequencer->origin_row = 0;
    }
    brim__unlock(&loader->mutex);
    return flow;
}

static void leave_chunk(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    brim__lock(&loader->mutex);
    brim__slot_free(sequencer->chunk);
    loader->rows->take++;
    loader->reached.taken.index++;
    brim__loader_want(loader);
    BRIM__CHECK_CHAIN(loader);
    brim__unlock(&loader->mutex);
    brim__pool_wake(loader->runtime);
    sequencer->chunk = NULL;
}

static enum brim__flow fail(brim_loader *loader, const struct brim__slot *chunk) {
    struct brim__sequencer *sequencer = loader->sequencer;
    const uint64_t sample = sequencer->chunk_row / loader->plan->rows_per_sample;
    const uint64_t number = chunk->delivery.first + sample;
    if (chunk->error.status != BRIM_OK && chunk->claims.error_row == sample) {
        sequencer->failure = chunk->error;
    } else {
        brim__error_keep(
            &sequencer->failure,
            brim__at_sample(brim__fail(BRIM_STATUS_CORRUPT,
                                       "sample %llu is bad; the error of an earlier sample of the "
                                       "stream gives the reason",
                                       (unsigned long long)number),
                            number));
    }
    return BRIM__FLOW_FAIL;
}

bool brim__made_too_many(const brim_loader *loader) {
    const struct brim__sequencer *sequencer = loader->sequencer;
    return sequencer->met + sequencer->skipped > loader->plan->batching.max_errors;
}

static enum brim__flow fail_of_many(brim_loader *loader) {
    struct brim__sequencer *sequencer = loader->sequencer;
    brim__lock(&loader->mutex);
    brim_status status = brim__fail_bad(loader, sequencer->bad_text, sequencer->bad_cause);
    brim__unlock(&loader->mutex);
    status = brim__fail_within(
        status, "more than max_errors=%llu bad samples since the last batch, the last",
        (unsigned long long)loader->plan->batching.max_errors);
    brim__error_keep(&sequencer->failure, status);
    return BRIM__FLOW_FAIL;
}

void brim__made_leave_sample(brim_loader *loader) {
    const uint64_t most = loader->plan->rows_per_sample;
    loader->sequencer->chunk_row += most - loader->sequencer->chunk_row % most;
}

enum brim__flow brim__made_rows(brim_loader *loader, uint64_t most, uint64_t *first,
                                uint64_t *count) {
    const brim_plan *plan = loader->plan;
    const struct brim__sequence *sequence = &plan->sequence;
    struct brim__sequencer *sequencer = loader->sequencer;
    for (;;) {
        if (sequencer->at.passed >= sequence->take &&
            sequencer->at.passed - sequence->take >= sequence->skip) {
            return BRIM__FLOW_END;
        }
        if (brim__made_too_many(loader)) {
            return fail_of_many(loader);
        }
        const enum brim__flow flow = take_chunk(loader);
        if (flow != BRIM__FLOW_ROW) {
            return flow;
        }
        const struct brim__slot *chunk = sequencer->chunk;
        assert(chunk != NULL);
        const uint8_t *outcome = chunk->pages.memory + plan->made.outcome_offset;
        const uint64_t rows = chunk->rows * plan->rows_per_sample;
        assert(sequencer->chunk_row <= rows);
        if (sequencer->chunk_row == rows) {
            if (chunk->claims.ended) {
                return BRIM__FLOW_END;
            }
            leave_chunk(loader);
            continue;
        }
        const uint64_t at = sequencer->chunk_row;
        uint64_t run = 1;
        if (outcome[at] == BRIM__ROW_FAILED) {
            return fail(loader, chunk);
        }
        if (outcome[at] == BRIM__ROW_MADE) {
            /* rows that skip leaves out come one by one; take ends a run */
            const bool skipped = sequencer->at.passed < sequence->skip;
            const uint64_t left = skipped ? 1
                                  : sequence->take == UINT64_MAX
                                      ? UINT64_MAX
                                      : sequence->skip + sequence->take - sequencer->at.passed;
            const uint64_t end = brim__min(rows - at, brim__min(most, left));
            while (run < end && outcome[at + run] == BRIM__ROW_MADE) {
                run++;
            }
            sequencer->at.passed += run;
            sequencer->chunk_row += run;
            if (!skipped) {
                *first = at;
                *count = run;
                return BRIM__FLOW_ROW;
            }
            continue;
        }
        if (outcome[at] == BRIM__ROW_BAD) {
            brim__made_leave_sample(loader);
            sequencer->met++;
            memcpy(sequencer->bad_text, chunk->bad_text, sizeof sequencer->bad_text);
            sequencer->bad_cause = chunk->bad_cause;
        } else {
            sequencer->chunk_row++;
        }
    }
}

struct brim__position brim__made_position(const brim_loader *loader) {
    const struct brim__sequencer *sequencer = loader->sequencer;
    struct brim__position position = sequencer->at;
    position.sample =
        sequencer->chunk->delivery.first + sequencer->chunk_row / loader->plan->rows_per_sample;
    position.row = sequencer->chunk_row % loader->plan->rows_per_sample;
    return position;
}

enum brim__flow brim__made_next(brim_loader *loader, struct brim__row *row) {
    uint64_t first, count;
    const enum brim__flow flow = brim__made_rows(loader, 1, &first, &count);
    if (flow == BRIM__FLOW_ROW) {
        *row = (struct brim__row){ .layout = &loader->plan->made,
                                   .memory = loader->sequencer->chunk->pages.memory,
                                   .at = first,
                                   .after = brim__made_position(loader) };
    }
    return flow;
}
