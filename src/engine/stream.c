/*
 * stream.c: chunks of a stream: one thread at a time pulls samples into its
 * scratch, in order, and then makes them while the next one pulls.
 *
 * A pull waits PULL_NS at most, so that interrupting, closing and seeking are not
 * kept for long by a pipe into which nothing is written. What `next` has pulled when it
 * is interrupted cannot be pulled again: it stays in its scratch, and is made by its next
 * call, before anything else.
 */
#include "engine/loader.h"

#define PULL_NS 20000000

/* mutex held: a chunk for what will be pulled, or NULL. */
static struct brim__slot *begin_chunk(brim_loader *loader) {
    struct brim__slot *slot = brim__slot_find_free(loader->ring, loader->ring_cap);
    if (slot == NULL || loader->pulling || loader->stream_ended || loader->stuck) {
        return NULL;
    }
    slot->ticket = loader->make_ticket++;
    slot->epoch = loader->make_epoch;
    slot->index = loader->make_index++;
    slot->rows = 0;
    slot->ended = false;
    brim__slot_restart(slot);
    slot->delivery = (struct brim__delivery){ .first = loader->stream_at };
    slot->state = BRIM__SLOT_FILLING;
    slot->busy = 1;
    return slot;
}

/* mutex held: nothing came; the chunk was never begun. */
static void give_up(brim_loader *loader, struct brim__slot *slot) {
    if (!slot->abandoned) {
        loader->make_ticket--;
        loader->make_index--;
    }
    slot->busy = 0;
    brim__slot_free(slot);
    brim__loader_event(loader);
}

static bool is_bad_sample(brim_status status) {
    return status == BRIM_STATUS_CORRUPT || status == BRIM_STATUS_CALLBACK;
}

/* No lock held: makes what was pulled, and reports. */
static void make(struct brim__run *run, struct brim__slot *slot, struct brim__scratch *scratch,
                 uint64_t sample, const uint8_t *records, uint64_t before) {
    brim_loader *loader = run->loader;
    const struct brim__source *source = loader->plan->leaf[0]->source[0];
    brim__rows_pulled(run, sample, records);
    run->read_bytes = source->is_file ? brim__source_span(source, run->count) : 0;
    const uint64_t took = brim__now() - before;
    brim__lock(&loader->mutex);
    if (run->interrupted && !slot->abandoned) {
        loader->unmade.slot = slot;
        loader->unmade.records = records;
        loader->unmade.sample = sample;
    }
    brim__run_end(run, slot, scratch, took);
}

/* mutex held, and not after: makes what was pulled before an interrupt. */
static void make_pulled(brim_loader *loader) {
    struct brim__run run;
    struct brim__slot *slot = loader->unmade.slot;
    const uint8_t *records = loader->unmade.records;
    const uint64_t sample = loader->unmade.sample;
    struct brim__scratch *scratch = brim__scratch_take(loader, true);
    loader->unmade.slot = NULL;
    slot->returned = 0;
    slot->busy = 1;
    brim__run_begin(&run, loader, slot, scratch, true);
    run.first = 0;
    run.count = slot->rows;
    brim__unlock(&loader->mutex);
    make(&run, slot, scratch, sample, records, brim__now());
}

bool brim__stream_work(brim_loader *loader, bool is_next) {
    const struct brim__leaf *leaf = loader->plan->leaf[0];
    const struct brim__source *source = leaf->source[0];
    if (is_next && loader->unmade.slot != NULL) {
        make_pulled(loader);
        return true;
    }
    struct brim__scratch *scratch = brim__scratch_take(loader, is_next);
    struct brim__slot *slot = scratch != NULL ? begin_chunk(loader) : NULL;
    if (slot == NULL) {
        brim__nothing_to_do(loader, is_next, scratch);
        return false;
    }
    struct brim__run run;
    brim__run_begin(&run, loader, slot, scratch, is_next);
    const bool rewind = loader->rewind;
    const uint64_t sample = loader->stream_at, epoch = slot->epoch;
    loader->pulling = true;
    loader->rewind = false;
    brim__unlock(&loader->mutex);

    const uint8_t *records = NULL;
    uint64_t got = 0;
    const uint64_t before = brim__now();
    brim_status status = rewind ? source->ops->rewind(source, epoch, sample) : BRIM_OK;
    const bool lost = status != BRIM_OK;
    if (!lost) {
        status = source->ops->pull(source, leaf->run[0], before + PULL_NS,
                                   run.scratch + leaf->buffer[0], &records, &got);
    }
    run.first = 0;
    run.count = (uint32_t)got;

    brim__lock(&loader->mutex);
    loader->pulling = false;
    if (slot->abandoned || status == BRIM_STATUS_TIMEOUT) {
        /* what was pulled for nobody is pulled again: who abandoned it wants a rewind */
        give_up(loader, slot);
        scratch->busy = false;
        loader->rewind |= lost;
        brim__unlock(&loader->mutex);
        brim__broadcast(&loader->ready);
        return true;
    }
    const bool stuck =
        lost || (status != BRIM_OK && status != BRIM_STATUS_END && !is_bad_sample(status));
    if (status == BRIM_STATUS_END && !lost) {
        loader->stream_ended = slot->ended = true;
    } else {
        slot->rows = slot->claimed = status == BRIM_OK ? run.count : 1;
        loader->stuck = stuck;
        loader->stream_at += stuck ? 0 : slot->rows;
        loader->rewind |= lost;
    }
    atomic_store(&loader->wants, true);
    brim__unlock(&loader->mutex);
    brim__pool_wake(loader->runtime); /* the next one may pull */

    if (status == BRIM_OK) {
        make(&run, slot, scratch, sample, records, before);
        return true;
    }
    if (!slot->ended) {
        brim__rows_unpulled(&run, sample, status, stuck);
    }
    const uint64_t took = brim__now() - before;
    brim__lock(&loader->mutex);
    brim__run_end(&run, slot, scratch, took);
    return true;
}
