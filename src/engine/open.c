/*
 * open.c: planning, opening and closing a loader.
 *
 * The loader's record lies in the arena of its plan, so that the plan's minimum
 * holds it. Opening: a budget of its own, the plan, the firm slots and scratch,
 * then workers and (growth fixed) elastic slots as far as memory is free.
 */
#include "engine/loader.h"
#include "engine/sequencer.h"
#include "engine/ship.h"

#include <stdio.h>

/* ----------------------------------------------------------------- options */

static brim_status read_options(brim_runtime *runtime, const brim_open_options *given,
                                brim_open_options *options) {
    *options = (brim_open_options)BRIM_OPEN_OPTIONS_INIT;
    if (given != NULL) {
        if (given->size < offsetof(brim_open_options, binding_count) + sizeof(size_t)) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "open options: size is %zu: begin with "
                              "BRIM_OPEN_OPTIONS_INIT",
                              given->size);
        }
        memcpy(options, given, brim__min(given->size, sizeof(*options)));
    }
    if (options->device_kind != BRIM_DEVICE_HOST && options->device_kind != BRIM_DEVICE_CUDA &&
        options->device_kind != BRIM_DEVICE_OPENCL) {
        return brim__fail(BRIM_STATUS_INVALID, "device_kind=%d is no brim_device",
                          (int)options->device_kind);
    }
    if (options->device_kind == BRIM_DEVICE_HOST && options->device_queue != NULL) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "device_queue is of use only where batches are delivered "
                          "on a device: set device_kind");
    }
    if (options->device_kind != BRIM_DEVICE_HOST && options->shared == 1) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "worker processes write into memory files, which "
                          "cannot be page-locked: open without `shared`, or "
                          "deliver on the host");
    }
    if (options->threads < BRIM_THREADS_AUTO) {
        return brim__fail(BRIM_STATUS_INVALID, "threads=%d: 0 or more, or -1 for the runtime's",
                          options->threads);
    }
    if (options->growth != BRIM_GROWTH_ON_DEMAND && options->growth != BRIM_GROWTH_FIXED) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "growth=%d is neither BRIM_GROWTH_ON_DEMAND nor BRIM_GROWTH_FIXED",
                          (int)options->growth);
    }
    if (options->shared != 0 && options->shared != 1) {
        return brim__fail(BRIM_STATUS_INVALID, "shared=%d is neither 0 nor 1", options->shared);
    }
    if (options->budget == NULL) {
        options->budget = runtime->budget;
    } else if (!brim__budget_is_below(options->budget, runtime->budget)) {
        return brim__fail(BRIM_STATUS_INVALID, "the budget belongs to another runtime");
    }
    return BRIM_OK;
}

static uint64_t align_record(uint64_t bytes) {
    return brim__align(bytes, BRIM__CACHE_LINE);
}

/* What a loader needs of its plan's arena. */
static uint64_t loader_bytes(const brim_plan *plan) {
    return align_record(sizeof(brim_loader)) +
           align_record(plan->slot_cap * sizeof(struct brim__slot)) +
           align_record(plan->slot_cap * plan->delivered.output_count * sizeof(brim_field)) +
           align_record(plan->sequence.on ? sizeof(struct brim__sequencer) : 0) +
           align_record(plan->sequence.chunks * sizeof(struct brim__slot)) +
           align_record(plan->landing.on ? sizeof(struct brim__ship) : 0) +
           align_record(plan->berth_cap * sizeof(struct brim__slot)) +
           align_record(plan->berth_cap * plan->delivered.output_count * sizeof(brim_field)) +
           align_record((plan->thread_cap + 1) * sizeof(struct brim__scratch)) +
           plan->info.stage_count * sizeof(struct brim__stage_time);
}

/* Keeps for brim_refused what a plan that does not fit, or whose loader was refused, needs. */
static void note_plan(const brim_plan_info *info) {
    brim_refusal *told = &brim__refusal_note()->told;
    told->minimum_bytes = info->minimum_bytes;
    told->minimum_pinned_bytes = info->minimum_pinned_bytes;
    told->minimum_device_bytes = info->minimum_device_bytes;
    told->exact = 1;
}

/* The same of a plan that was refused while it was made: what it had and asked for. */
static void note_build(const brim_runtime *runtime, brim_budget *budget) {
    struct brim__refusal_note *note = brim__refusal_note();
    brim_budget_info had = BRIM_BUDGET_INFO_INIT;
    uint64_t bytes = note->needed;
    if (note->told.exact == 0 && brim_budget_read(budget, BRIM_MEMORY_HOST, &had) == BRIM_OK) {
        bytes = brim__max(bytes, had.peak);
        if (brim__add_overflows(bytes, runtime->base_bytes + brim__budget_node_bytes(), &bytes)) {
            bytes = UINT64_MAX;
        }
        note->told.minimum_bytes = brim__max(bytes, BRIM__BUDGET_FLOOR);
    }
}

/* A budget node for one loader, and a plan charged to it. device: opened, unless batches
 * are delivered on the host. */
static brim_status build(brim_runtime *runtime, const brim_pipeline *pipeline,
                         const brim_open_options *options, const char *label, brim_budget **budget,
                         struct brim__device *device, brim_plan **plan) {
    const bool on_device = options->device_kind != BRIM_DEVICE_HOST;
    brim_budget_info held = BRIM_BUDGET_INFO_INIT; /* for the device */
    brim_status status = brim_budget_new(options->budget, label, BRIM_UNLIMITED, 0, budget);
    if (status != BRIM_OK) {
        return status;
    }
    if (on_device) {
        status = brim__device_open(device, options->device_kind, options->device_index,
                                   options->device_queue, *budget);
        if (status == BRIM_OK) {
            status = brim__runtime_use(runtime, device);
        }
        if (status == BRIM_OK) {
            status = brim_budget_read(*budget, BRIM_MEMORY_HOST, &held);
        }
        if (status != BRIM_OK) {
            if (status == BRIM_STATUS_BUDGET) {
                note_build(runtime, *budget);
            }
            brim__device_close(device);
            brim_budget_free(*budget);
            return status;
        }
    }
    const struct brim__plan_request request = {
        .budget = *budget,
        .base_bytes = runtime->base_bytes + brim__budget_node_bytes() + held.charged,
        .extra_bytes = loader_bytes,
        .options = options,
        .threads = runtime->threads,
        .running = { brim__pool_suited(runtime, false), brim__pool_suited(runtime, true) },
        .limit_origin = runtime->origin,
        .index_dir = runtime->index_dir,
        .trust_foreign = runtime->trust_foreign,
        .device = on_device ? device : NULL,
    };
    status = brim__plan_build(&request, pipeline, plan);
    if (status == BRIM_STATUS_BUDGET) {
        note_build(runtime, *budget);
    }
    if (status != BRIM_OK) {
        brim__device_close(device);
        brim_budget_free(*budget);
    }
    return status;
}

static brim_status plan_new(brim_runtime *runtime, const brim_pipeline *pipeline,
                            const brim_open_options *given, brim_plan **out) {
    brim_open_options options;
    brim_budget *budget;
    struct brim__device device = { 0 };
    brim_plan *plan;
    if (brim__runtime_forked(runtime)) {
        return brim__forked();
    }
    brim_status status = read_options(runtime, given, &options);
    if (status == BRIM_OK) {
        status = build(runtime, pipeline, &options, "plan", &budget, &device, &plan);
    }
    if (status == BRIM_OK) {
        brim__device_close(&device);
        brim_budget_free(budget); /* the plan holds a reference until it is freed */
        *out = plan;
    }
    return status;
}

brim_status brim_plan_new(brim_runtime *runtime, const brim_pipeline *pipeline,
                          const brim_open_options *options, brim_plan **plan) {
    brim__refusal_begin();
    return brim__refusal_end(plan_new(runtime, pipeline, options, plan));
}

void brim_plan_free(brim_plan *plan) {
    brim__plan_free(plan);
}

/* ----------------------------------------------------------------- opening */

/* Lays the loader's parts out in the plan's extra memory. */
static brim_loader *place(brim_runtime *runtime, brim_plan *plan, brim_budget *budget) {
    uint8_t *memory = plan->extra;
    brim_loader *loader = (brim_loader *)(void *)memory;
    memory += align_record(sizeof(*loader));
    loader->slot = (struct brim__slot *)(void *)memory;
    memory += align_record(plan->slot_cap * sizeof(struct brim__slot));
    for (uint32_t i = 0; i < plan->slot_cap; i++) {
        loader->slot[i].batch.field =
            (brim_field *)(void *)memory + i * plan->delivered.output_count;
    }
    memory += align_record(plan->slot_cap * plan->delivered.output_count * sizeof(brim_field));
    loader->ring = loader->slot;
    loader->ring_cap = plan->slot_cap;
    if (plan->sequence.on) {
        loader->sequencer = (struct brim__sequencer *)(void *)memory;
        memory += align_record(sizeof(struct brim__sequencer));
        loader->ring = (struct brim__slot *)(void *)memory;
        loader->ring_cap = plan->sequence.chunks;
        memory += align_record(plan->sequence.chunks * sizeof(struct brim__slot));
    }
    if (plan->landing.on) {
        loader->ship = (struct brim__ship *)(void *)memory;
        memory += align_record(sizeof(struct brim__ship));
        loader->ship->berth = (struct brim__slot *)(void *)memory;
        memory += align_record(plan->berth_cap * sizeof(struct brim__slot));
        for (uint32_t i = 0; i < plan->berth_cap; i++) {
            loader->ship->berth[i].batch.field =
                (brim_field *)(void *)memory + i * plan->delivered.output_count;
        }
        memory += align_record(plan->berth_cap * plan->delivered.output_count * sizeof(brim_field));
    }
    loader->scratch = (struct brim__scratch *)(void *)memory;
    memory += align_record((plan->thread_cap + 1) * sizeof(struct brim__scratch));
    loader->stage = (struct brim__stage_time *)(void *)memory;
    loader->runtime = runtime;
    loader->plan = plan;
    loader->budget = budget;
    loader->hold = plan->info.hold;
    atomic_init(&loader->references, 1);
    atomic_init(&loader->wants, true);
    atomic_init(&loader->starving, false);
    atomic_init(&loader->interrupted, false);
    atomic_init(&loader->stopping, false);
    return loader;
}

brim_status brim__loader_pages(brim_loader *loader, struct brim__pages *pages, uint64_t bytes,
                               bool elastic) {
    return loader->shared ? brim__pages_new_shared(pages, loader->budget, bytes, elastic)
                          : brim__pages_new(pages, loader->budget, bytes, elastic, false);
}

static brim_status take_window(brim_loader *loader) {
    brim_status status = BRIM_OK;
    for (uint32_t i = 0; status == BRIM_OK && i < loader->ring_cap; i++) {
        struct brim__slot *chunk = &loader->ring[i];
        status = brim__loader_pages(loader, &chunk->pages, loader->plan->made.bytes, false);
        chunk->state = status == BRIM_OK ? BRIM__SLOT_FREE : BRIM__SLOT_EMPTY;
    }
    if (status == BRIM_OK) {
        status = brim__sequencer_init(loader);
    }
    if (status == BRIM_OK) {
        const struct brim__position begin = { .epoch = 0 };
        brim__sequencer_go(loader, &begin);
    }
    return status;
}

/* The minimum: max(2, hold) slots, one scratch and the window, firm. */
static brim_status take_minimum(brim_loader *loader) {
    const brim_plan_info *info = &loader->plan->info;
    brim_status status =
        brim__loader_pages(loader, &loader->scratch[0].pages, info->scratch_bytes, false);
    loader->scratch_count = status == BRIM_OK;
    for (uint32_t i = 0; status == BRIM_OK && i < info->minimum_slots; i++) {
        struct brim__slot *slot = &loader->slot[i];
        status = brim__loader_pages(loader, &slot->pages, info->slot_bytes, false);
        if (status == BRIM_OK && loader->ship != NULL) {
            status = brim__slot_pin(loader, slot, false);
        }
        if (status == BRIM_OK) {
            slot->state = BRIM__SLOT_FREE;
            loader->slot_count++;
        }
    }
    if (status == BRIM_OK && loader->sequencer != NULL) {
        status = take_window(loader);
    }
    return status == BRIM_OK && loader->ship != NULL ? brim__ship_open(loader) : status;
}

/* Everything that is neither lent nor part of the plan. */
static void give_back(brim_loader *loader) {
    for (uint32_t i = 0; i < loader->plan->slot_cap; i++) {
        struct brim__slot *slot = &loader->slot[i];
        if (loader->ship != NULL) {
            brim__slot_unpin(loader, slot);
        }
        if (slot->state != BRIM__SLOT_LENT) {
            brim__pages_free(&slot->pages);
            slot->state = BRIM__SLOT_EMPTY;
        } else if (slot->pages.elastic) {
            /* from now on nobody can take it back from the user */
            brim__budget_firm_up(loader->budget, BRIM_MEMORY_HOST, slot->pages.bytes);
            slot->pages.elastic = false;
        }
    }
    for (uint32_t i = 0; i <= loader->plan->thread_cap; i++) {
        brim__pages_free(&loader->scratch[i].pages);
    }
    if (loader->sequencer != NULL) {
        for (uint32_t i = 0; i < loader->ring_cap; i++) {
            brim__pages_free(&loader->ring[i].pages);
        }
        brim__sequencer_fini(loader);
    }
}

static void free_core(brim_loader *loader) {
    brim_runtime *runtime = loader->runtime;
    brim_budget *budget = loader->budget;
    if (loader->ship != NULL) {
        brim__ship_free(loader);
    }
    brim__condition_fini(&loader->ready);
    brim__mutex_fini(&loader->mutex);
    brim__plan_free(loader->plan); /* and with it the loader */
    brim_budget_free(budget);
    brim__runtime_unref(runtime);
}

static brim_status init_locks(brim_loader *loader) {
    brim_status status = brim__mutex_init(&loader->mutex);
    if (status == BRIM_OK) {
        status = brim__condition_init(&loader->ready);
        if (status != BRIM_OK) {
            brim__mutex_fini(&loader->mutex);
        }
    }
    return status;
}

static void start(brim_loader *loader, brim_growth growth) {
    brim_runtime *runtime = loader->runtime;
    const brim_plan_info *info = &loader->plan->info;
    const uint64_t slots =
        growth == BRIM_GROWTH_FIXED ? (info->slots - loader->slot_count) * info->slot_bytes : 0;
    brim__loader_note_lacking(loader); /* from now on caches leave it free, and ... */
    brim__budget_make_free(loader->budget, BRIM_MEMORY_HOST,
                           brim__loader_lacks(loader) + slots); /* gave it up */
    brim__budget_on_revoke(loader->budget, brim__loader_revoke, loader);
    if (growth == BRIM_GROWTH_FIXED) {
        brim__lock(&loader->mutex);
        while (brim__slot_grow(loader) || brim__scratch_grow(loader)) {
        }
        if (loader->ship != NULL) {
            brim__ship_grow(loader);
        }
        brim__unlock(&loader->mutex);
    }
    brim__pool_enter(runtime, loader);
    if (loader->plan->info.threads > 0) {
        brim__pool_grow(runtime, loader->plan->info.threads, loader->plan->stack_usable);
        brim__lock(&loader->mutex);
        brim__loader_note_lacking(loader);
        brim__unlock(&loader->mutex);
        brim__pool_wake(runtime);
    }
}

static brim_status loader_open(brim_runtime *runtime, const brim_pipeline *pipeline,
                               const brim_open_options *given, brim_loader **out) {
    const uint64_t began = brim__now();
    brim_open_options options;
    brim_budget *budget;
    struct brim__device device = { 0 };
    brim_plan *plan;
    if (brim__runtime_forked(runtime)) {
        return brim__forked();
    }
    brim_status status = read_options(runtime, given, &options);
    if (status != BRIM_OK) {
        return status;
    }
    char label[BRIM_NAME_BYTES];
    brim__lock(&runtime->pool);
    const uint64_t number = ++runtime->loaders_opened;
    brim__unlock(&runtime->pool);
    if (options.label != NULL) {
        brim__copy_text(label, sizeof(label), options.label);
    } else {
        snprintf(label, sizeof(label), "loader %llu", (unsigned long long)number);
    }
    status = build(runtime, pipeline, &options, label, &budget, &device, &plan);
    if (status != BRIM_OK) {
        return status;
    }
    if (!plan->info.fits) {
        note_plan(&plan->info);
        status = brim__fail(BRIM_STATUS_BUDGET, "\"%s\" %s", label, plan->info.reason);
        goto no_locks;
    }
    brim_loader *loader = place(runtime, plan, budget);
    loader->shared = options.shared == 1;
    loader->beyond = options.beyond;
    loader->asked = options.interrupted;
    loader->asked_user = options.interrupted_user;
    if (loader->ship != NULL) {
        loader->ship->device = device;
        loader->ship->consumer = options.device_queue;
    }
    status = init_locks(loader);
    if (status != BRIM_OK) {
        goto no_locks;
    }
    brim__runtime_ref(runtime);
    status = brim__plan_load(plan);
    if (status == BRIM_OK) {
        status = brim__caches_stamp(loader, &options);
    }
    if (status == BRIM_OK) {
        status = take_minimum(loader);
    }
    if (status == BRIM_OK) {
        status = brim__caches_start(loader);
    }
    if (status != BRIM_OK) {
        if (status == BRIM_STATUS_BUDGET) { /* others have taken it meanwhile */
            note_plan(&plan->info);
        }
        brim__caches_stop(loader);
        if (loader->ship != NULL) {
            brim__ship_close(loader);
        }
        give_back(loader);
        free_core(loader);
        return status;
    }
    loader->opened_ns = began;
    start(loader, options.growth);
    loader->stats.opening_ns = brim__now() - began;
    *out = loader;
    return BRIM_OK;

no_locks:
    brim__device_close(&device);
    brim__plan_free(plan);
    brim_budget_free(budget);
    return status;
}

brim_status brim_loader_open(brim_runtime *runtime, const brim_pipeline *pipeline,
                             const brim_open_options *options, brim_loader **loader) {
    brim__refusal_begin();
    return brim__refusal_end(loader_open(runtime, pipeline, options, loader));
}

/* ----------------------------------------------------------------- closing */

void brim__loader_ref(brim_loader *loader) {
    atomic_fetch_add_explicit(&loader->references, 1, memory_order_relaxed);
}

void brim__loader_unref(brim_loader *loader) {
    if (atomic_fetch_sub_explicit(&loader->references, 1, memory_order_acq_rel) == 1) {
        free_core(loader);
    }
}

void brim_loader_close(brim_loader *loader) {
    if (loader == NULL || brim__runtime_forked(loader->runtime)) {
        return;
    }
    brim__lock(&loader->mutex);
    loader->closing = true;
    atomic_store(&loader->stopping, true);
    atomic_store(&loader->interrupted, true);
    atomic_store(&loader->wants, false);
    brim__loader_event(loader);
    brim__broadcast(&loader->ready);
    while (loader->in_call) {
        brim__wait(&loader->ready, &loader->mutex, UINT64_MAX);
    }
    brim__unlock(&loader->mutex);
    brim__budget_on_revoke(loader->budget, NULL, NULL);
    brim__pool_leave(loader->runtime, loader);
    brim__caches_stop(loader);
    if (loader->ship != NULL) {
        brim__ship_close(loader);
    }
    brim__lock(&loader->mutex);
    brim__loader_note_lacking(loader);
    give_back(loader);
    brim__unlock(&loader->mutex);
    brim__loader_unref(loader);
}

const brim_plan *brim_loader_plan(const brim_loader *loader) {
    return loader->plan;
}
