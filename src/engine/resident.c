/*
 * resident.c: samples that stay on the device; see resident.h.
 */
#include "engine/resident.h"

#include "engine/chain.h"

static uint32_t *numbers_of(const brim_loader *loader, const struct brim__slot *from) {
    return (uint32_t *)(void *)(from->pages.memory + loader->plan->on_device.numbers);
}

uint64_t brim__resident_number(const brim_loader *loader, const struct brim__slot *from,
                               const uint64_t *samples, uint64_t rows) {
    const struct brim__residents *tier = loader->uploader->residents;
    uint32_t *number = numbers_of(loader, from);
    uint64_t found = 0;
    for (uint64_t r = 0; r < rows; r++) {
        number[r] = brim__resident_row(tier, samples[r]);
        found += number[r] != BRIM__NOT_RESIDENT;
    }
    atomic_fetch_add_explicit(&loader->plan->device_cache->hits, found, memory_order_relaxed);
    atomic_fetch_add_explicit(&loader->plan->device_cache->misses, rows - found,
                              memory_order_relaxed);
    return found;
}

uint64_t brim__resident_made(const brim_loader *loader, const struct brim__slot *from,
                             uint64_t *first, uint64_t rows) {
    const uint32_t *number = numbers_of(loader, from);
    while (*first < rows && number[*first] != BRIM__NOT_RESIDENT) {
        ++*first;
    }
    uint64_t end = *first;
    while (end < rows && number[end] == BRIM__NOT_RESIDENT) {
        end++;
    }
    return end - *first;
}

brim_status brim__resident_send(brim_loader *loader, const struct brim__slot *from, uint64_t rows) {
    return brim__queue_write(&loader->uploader->queue, &loader->uploader->fixed,
                             loader->plan->on_device.numbers_there, numbers_of(loader, from),
                             rows * sizeof(uint32_t));
}

static uint64_t row_bytes(const brim_plan *plan, uint32_t f) {
    const struct brim__device_field *field = &plan->on_device.field[f];
    return field->converts ? field->row_bytes : plan->delivered.output[f].row_bytes;
}

brim_status brim__resident_gather(brim_loader *loader, const struct brim__slot *from,
                                  const struct brim__slot *to, uint64_t rows) {
    const brim_plan *plan = loader->plan;
    const struct brim__residents *tier = loader->uploader->residents;
    brim_status status = BRIM_OK;
    for (uint32_t f = 0; status == BRIM_OK && f < plan->delivered.output_count; f++) {
        const uint64_t bytes = row_bytes(plan, f);
        struct brim__gather gather = { .part_rows = tier->part_rows,
                                       .source_offset =
                                           tier->part_rows * plan->on_device.field[f].resident,
                                       .source_row = bytes,
                                       .destination = &to->device.memory,
                                       .destination_offset = plan->on_device.field[f].offset,
                                       .destination_row = bytes,
                                       .row_bytes = bytes,
                                       .rows = rows,
                                       .number = numbers_of(loader, from),
                                       .numbers = &loader->uploader->fixed,
                                       .numbers_offset = plan->on_device.numbers_there };
        for (uint32_t p = 0; p < tier->part_count; p++) {
            gather.part[p] = &tier->part[p];
        }
        if (bytes > 0) {
            status = brim__queue_gather(&loader->uploader->queue, &gather);
        }
    }
    return status;
}

/* `count` rows of a device slot, from `first` on, to those that were reserved. */
static brim_status store(brim_loader *loader, const struct brim__slot *to, uint64_t first,
                         uint64_t count) {
    const brim_plan *plan = loader->plan;
    const struct brim__residents *tier = loader->uploader->residents;
    const uint64_t part = tier->rows / tier->part_rows, row = tier->rows % tier->part_rows;
    brim_status status = BRIM_OK;
    for (uint32_t f = 0; status == BRIM_OK && f < plan->delivered.output_count; f++) {
        const uint64_t bytes = row_bytes(plan, f);
        if (bytes > 0) {
            status = brim__queue_copy(
                &loader->uploader->queue, &tier->part[part],
                tier->part_rows * plan->on_device.field[f].resident + row * bytes,
                &to->device.memory, plan->on_device.field[f].offset + first * bytes, count * bytes);
        }
    }
    return status;
}

brim_status brim__resident_store(brim_loader *loader, const struct brim__slot *from,
                                 const struct brim__slot *to, const uint64_t *samples,
                                 uint64_t rows) {
    struct brim__residents *tier = loader->uploader->residents;
    uint64_t first = 0, count;
    while ((count = brim__resident_made(loader, from, &first, rows)) > 0) {
        const uint64_t kept = brim__resident_reserve(tier, count, loader->uploader->spare);
        if (kept == 0) {
            return BRIM_OK;
        }
        const brim_status status = store(loader, to, first, kept);
        if (status != BRIM_OK) {
            return status;
        }
        /* from now on rows are left out; they are gathered later in the same queue */
        brim__resident_publish(tier, samples + first, kept);
        first += kept;
    }
    return BRIM_OK;
}

void brim__resident_withdraw(brim_loader *loader, const struct brim__slot *from) {
    struct brim__residents *tier = loader->uploader->residents;
    const uint64_t *samples = brim__layout_ids(&loader->plan->delivered, from->pages.memory);
    for (uint64_t r = 0; r < from->delivery.valid_rows - from->bad_rows; r++) {
        if (atomic_exchange(&tier->row[samples[r]], 0) != 0) {
            atomic_fetch_sub_explicit(&tier->filled, 1, memory_order_relaxed);
        }
    }
}

uint64_t brim__resident_revoke(void *holder, brim_memory kind, uint64_t wanted, bool firmly) {
    (void)kind;   /* nothing else is elastic */
    (void)firmly; /* all of it is soon made again */
    brim_loader *loader = holder;
    struct brim__uploader *uploader = loader->uploader;
    brim__lock(&loader->mutex);
    loader->revoking = true;
    while (uploader->running) {
        brim__loader_wait(loader, UINT64_MAX);
    }
    /* batches on their way lack rows that were there when they were made */
    brim__chain_recall(loader, loader->last->make);
    uploader->running = true;
    brim__loader_unlock(loader);
    brim__queue_free(&uploader->queue); /* waits for what reads these parts */
    const uint64_t given = brim__resident_give(uploader->residents, wanted);
    brim__lock(&loader->mutex);
    uploader->running = loader->revoking = false;
    brim__loader_want(loader);
    brim__loader_event(loader);
    brim__loader_unlock(loader);
    brim__pool_wake(loader->runtime);
    return given;
}

/* -------------------------------------------------------- opening and closing */

brim_status brim__resident_start(brim_loader *loader) {
    struct brim__cache *cache = loader->plan->device_cache;
    if (cache == NULL) {
        return BRIM_OK;
    }
    brim_status status =
        brim_budget_new(loader->budget, "cache device", BRIM_UNLIMITED, 0, &cache->budget);
    if (status != BRIM_OK) {
        return status;
    }
    struct brim__residents *residents = cache->memory;
    residents->start = (struct brim__residents_start){
        .budget = cache->budget,
        .device = &loader->uploader->device,
        .kind = loader->plan->on_device.kind,
        .count = cache->count,
        .row_bytes = cache->most_bytes,
        .limit =
            brim__min(cache->limit, brim__residents_most_bytes(cache->count, cache->most_bytes)),
    };
    loader->uploader->residents = residents;
    brim__budget_yields(cache->budget, BRIM__YIELDS_CACHE);
    brim__budget_on_revoke(cache->budget, brim__resident_revoke, loader);
    return BRIM_OK;
}

void brim__resident_stop(brim_loader *loader) {
    struct brim__residents *residents = brim__loader_residents(loader);
    if (residents == NULL) {
        return;
    }
    brim__budget_on_revoke(residents->start.budget, NULL, NULL);
    brim__queue_free(&loader->uploader->queue); /* waits for what reads it */
    brim__residents_end(residents);
    brim_budget_free(residents->start.budget);
    loader->uploader->residents = NULL;
}

void brim__resident_stats(const brim_loader *loader, brim_cache_stats *stats) {
    const struct brim__residents *residents = brim__loader_residents(loader);
    stats->tier = "device";
    if (residents != NULL) {
        stats->fills = true;
        stats->filled = atomic_load_explicit(&residents->filled, memory_order_relaxed);
        stats->bytes = atomic_load_explicit(&residents->bytes, memory_order_relaxed);
        stats->stored = atomic_load_explicit(&residents->stored, memory_order_relaxed);
        stats->dropped = atomic_load_explicit(&residents->dropped, memory_order_relaxed);
    }
}
