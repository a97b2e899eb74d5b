/*
 * make_stream.c: chunks of a stream: one thread at a time pulls samples into its
 * scratch, in order, and then makes them while the next one pulls.
 *
 * A pull waits PULL_NS at most, so that an idle pipe does not delay interrupting, closing and
 * seeking for long. Samples that an interrupted `next` has pulled cannot be pulled again: they stay
 * in its scratch, and its next call makes them first.
 */
#include "engine/make.h"

#define PULL_NS 20000000

/* mutex held: a chunk for what will be pulled, or NULL. */
static struct brim__slot *begin_chunk(brim_loader *loader) {
    const struct brim__pulls *stream = &loader->stream;
    struct brim__slot *slot = brim__ring_find_free(loader->rows);
    if (slot == NULL || stream->pulling || stream->ended || stream->stuck) {
        return NULL;
    }
    slot->rows = 0;
    slot->delivery = (struct brim__delivery){ .first = stream->at };
    brim__begin(loader, slot);
    brim__slot_fill(slot);
    slot->busy = 1;
    return slot;
}

/* mutex held: nothing came; the chunk was never begun. */
static void give_up(brim_loader *loader, struct brim__slot *slot) {
    if (!slot->abandoned) {
        loader->rows->make--;
        loader->reached.begun.index--;
    }
    slot->busy = 0;
    brim__slot_free(slot);
    brim__loader_event(loader);
}

/* No lock held, and the mutex after: makes what was pulled, and reports. */
static void make(struct brim__run *run, uint64_t sample, const uint8_t *records, uint64_t before) {
    brim_loader *loader = run->loader;
    const struct brim__source *source = loader->plan->leaf[0]->source[0];
    brim__rows_pulled(run, sample, records);
    run->read_bytes = source->is_file ? brim__source_span(source, run->count) : 0;
    const uint64_t took = brim__now() - before;
    brim__lock(&loader->mutex);
    if (run->interrupted && !run->slot->abandoned) {
        loader->stream.unmade.slot = run->slot;
        loader->stream.unmade.records = records;
        loader->stream.unmade.sample = sample;
    }
    brim__run_end(run, took);
}

/* mutex held, released meanwhile: `next` makes what it pulled before an interrupt. */
static void make_pulled(brim_loader *loader) {
    struct brim__slot *slot = loader->stream.unmade.slot;
    const uint8_t *records = loader->stream.unmade.records;
    const uint64_t sample = loader->stream.unmade.sample;
    struct brim__run run = { .slot = slot, .memory = brim__scratch_take(loader, true) };
    loader->stream.unmade.slot = NULL;
    slot->claims.returned = 0;
    slot->busy = 1;
    brim__run_begin(&run, loader, true);
    run.first = 0;
    run.count = slot->rows;
    brim__loader_unlock(loader);
    make(&run, sample, records, brim__now());
}

/* What became of a pull. */
struct pull {
    const uint8_t *records;
    uint64_t got;
    uint64_t before; /* when it began */
    brim_status status;
    bool lost; /* where the stream stands: it could not be rewound */
};

/* No lock held. */
static struct pull pull(struct brim__run *run, bool rewind, uint64_t sample) {
    const struct brim__leaf *leaf = run->loader->plan->leaf[0];
    const struct brim__source *source = leaf->source[0];
    struct pull pull = { .before = brim__now() };
    pull.status = rewind ? source->ops->rewind(source, run->slot->epoch, sample) : BRIM_OK;
    pull.lost = pull.status != BRIM_OK;
    if (!pull.lost) {
        pull.status = source->ops->pull(source, leaf->run[0], pull.before + PULL_NS,
                                        run->scratch + leaf->buffer[0], &pull.records, &pull.got);
    }
    run->first = 0;
    run->count = (uint32_t)pull.got;
    return pull;
}

/* mutex held: the chunk learns what was pulled; true: nothing can be pulled any more. */
static bool note_pulled(brim_loader *loader, struct brim__slot *slot, const struct pull *pull) {
    struct brim__pulls *stream = &loader->stream;
    if (pull->status == BRIM_STATUS_END && !pull->lost) {
        stream->ended = slot->claims.ended = true;
        return false;
    }
    const bool stuck =
        pull->lost || (pull->status != BRIM_OK && pull->status != BRIM_STATUS_END &&
                       (pull->status == BRIM_STATUS_IO || !brim__is_bad_sample(pull->status)));
    slot->rows = slot->claims.given = pull->status == BRIM_OK ? (uint32_t)pull->got : 1;
    stream->stuck = stuck;
    stream->at += stuck ? 0 : slot->rows;
    stream->rewind |= pull->lost;
    return stuck;
}

static bool turn(brim_loader *loader, bool is_next) {
    struct brim__pulls *stream = &loader->stream;
    if (loader->revoking) {
        return false;
    }
    if (is_next && stream->unmade.slot != NULL) {
        make_pulled(loader);
        return true;
    }
    struct brim__run run = { .memory = brim__scratch_take(loader, is_next) };
    if (run.memory == NULL) {
        return false;
    }
    run.slot = begin_chunk(loader);
    if (run.slot == NULL) {
        run.memory->busy = false;
        return false;
    }
    brim__run_begin(&run, loader, is_next);
    const bool rewind = stream->rewind;
    const uint64_t sample = stream->at;
    stream->pulling = true;
    stream->rewind = false;
    brim__loader_unlock(loader);

    const struct pull pulled = pull(&run, rewind, sample);

    brim__lock(&loader->mutex);
    stream->pulling = false;
    if (run.slot->abandoned || pulled.status == BRIM_STATUS_TIMEOUT) {
        /* an abandoned pull is pulled again: the seek that abandoned it rewinds */
        give_up(loader, run.slot);
        run.memory->busy = false;
        stream->rewind |= pulled.lost;
        return true;
    }
    const bool stuck = note_pulled(loader, run.slot, &pulled);
    brim__loader_want(loader);
    brim__loader_unlock(loader);
    brim__pool_wake(loader->runtime); /* the next one may pull */

    if (pulled.status == BRIM_OK) {
        make(&run, sample, pulled.records, pulled.before);
        return true;
    }
    if (!run.slot->claims.ended) {
        brim__rows_unpulled(&run, sample, pulled.status, stuck);
    }
    const uint64_t took = brim__now() - pulled.before;
    brim__lock(&loader->mutex);
    brim__run_end(&run, took);
    return true;
}

const struct brim__ring_role brim__stream_role = { .turn = turn };
