/*
 * open.c: planning, opening and closing a loader.
 *
 * The loader's record lies in the arena of its plan, so that the plan's minimum
 * holds it. Opening: a budget of its own, the plan, the firm slots and scratch,
 * then workers and (growth fixed) elastic slots as far as memory is free.
 */
#include "base/struct.h"
#include "engine/chain.h"
#include "engine/log.h"
#include "engine/make.h"
#include "engine/position.h"
#include "engine/resident.h"
#include "engine/sequencer.h"

#include <stdio.h>

/* ----------------------------------------------------------------- options */

static brim_status read_options(brim_runtime *runtime, const brim_open_options *given,
                                brim_open_options *options) {
    *options = (brim_open_options)BRIM_OPEN_OPTIONS_INIT;
    if (given != NULL) {
        const brim_status status = brim__struct_take("open options", "BRIM_OPEN_OPTIONS_INIT",
                                                     given, given->size, options, sizeof *options);
        if (status != BRIM_OK) {
            return status;
        }
    }
    if (options->device_kind != BRIM_DEVICE_HOST && options->device_kind != BRIM_DEVICE_CUDA &&
        options->device_kind != BRIM_DEVICE_OPENCL) {
        return brim__fail(BRIM_STATUS_INVALID, "device_kind=%d is not a brim_device",
                          (int)options->device_kind);
    }
    if (options->device_kind == BRIM_DEVICE_HOST && options->device_queue != NULL) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "device_queue needs batches on a device: set device_kind");
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

/* ------------------------------------------------------------------ layout */

/* Hands out the parts of a loader's record one after the other; memory NULL: only counts. */
struct walk {
    uint8_t *memory;
    uint64_t used;
};

static void *take_part(struct walk *walk, uint64_t count, uint64_t bytes) {
    void *part = walk->memory != NULL ? walk->memory + walk->used : NULL;
    walk->used += brim__align(count * bytes, BRIM__CACHE_LINE);
    return part;
}

static void lay_out_ring(struct walk *walk, brim_loader *loader, const struct brim__ring *ring,
                         uint32_t fields) {
    struct brim__slot *slot = take_part(walk, ring->cap, sizeof *slot);
    brim_field *field = take_part(walk, (uint64_t)ring->cap * fields, sizeof *field);
    if (loader == NULL) {
        return;
    }
    struct brim__ring *own = &loader->ring[loader->ring_count++];
    *own = *ring;
    own->slot = slot;
    own->from = own == loader->ring ? NULL : own - 1;
    for (uint32_t i = 0; i < ring->cap; i++) {
        slot[i].ring = own;
        slot[i].batch.field = fields > 0 ? field + (uint64_t)i * fields : NULL;
    }
    loader->last = own;
    loader->batches = ring->memory != BRIM__RING_DEVICE ? own : loader->batches;
}

/* All of it lies in the plan's extra memory. The one place that knows which rings there are. */
static brim_loader *lay_out(struct walk *walk, const brim_plan *plan) {
    const brim_plan_info *info = &plan->info;
    const uint32_t fields = plan->delivered.output_count;
    const bool there = plan->on_device.used, sequenced = plan->sequence.on;
    const struct brim__ring_role *make =
        plan->sequence.stream ? &brim__stream_role : &brim__make_role;
    brim_loader *loader = take_part(walk, 1, sizeof *loader);
    if (sequenced) {
        const uint32_t chunks = plan->sequence.chunks;
        const struct brim__ring ring = { .role = make,
                                         .cap = chunks,
                                         .minimum = chunks,
                                         .planned = chunks,
                                         .bytes = plan->made.bytes };
        lay_out_ring(walk, loader, &ring, 0);
    }
    const struct brim__ring batches = { .role = sequenced ? &brim__sequencer_role : make,
                                        .cap = plan->slot_cap,
                                        .minimum = info->minimum_slots,
                                        .planned = info->slots,
                                        .memory = there ? BRIM__RING_STAGING : BRIM__RING_HOST,
                                        .bytes = info->slot_bytes,
                                        .made_once = sequenced };
    lay_out_ring(walk, loader, &batches, there ? 0 : fields);
    if (there) {
        const struct brim__ring ring = { .role = &brim__upload_role,
                                         .cap = plan->device_slot_cap,
                                         .minimum = info->minimum_device_slots,
                                         .planned = info->device_slots,
                                         .memory = BRIM__RING_DEVICE,
                                         .bytes = plan->on_device.tail_bytes,
                                         .made_once = sequenced };
        lay_out_ring(walk, loader, &ring, fields);
    }
    void *sequencer = take_part(walk, sequenced, sizeof(struct brim__sequencer));
    void *uploader = take_part(walk, there, sizeof(struct brim__uploader));
    void *scratch = take_part(walk, plan->thread_cap + 1, sizeof(struct brim__scratch));
    void *stage = take_part(walk, info->stage_count, sizeof(struct brim__stage_time));
    if (loader != NULL) {
        loader->rows = loader->ring;
        loader->sequencer = sequenced ? sequencer : NULL;
        loader->position = sequenced ? &brim__position_sequenced : &brim__position_direct;
        loader->uploader = there ? uploader : NULL;
        loader->scratch = scratch;
        loader->report.stage = stage;
    }
    return loader;
}

/* What a loader needs of its plan's arena. */
static uint64_t loader_bytes(const brim_plan *plan) {
    struct walk walk = { 0 };
    lay_out(&walk, plan);
    return walk.used;
}

/* What a plan that was refused while it was made needs at least: what it had and asked for. */
static void note_build(const brim_runtime *runtime, brim_budget *budget) {
    struct brim__lack *lack = brim__lack();
    brim_budget_info had = BRIM_BUDGET_INFO_INIT;
    uint64_t bytes = lack->needed;
    if (brim_budget_read(budget, BRIM_MEMORY_HOST, &had) == BRIM_OK) {
        bytes = brim__max(bytes, had.peak);
        if (brim__add_overflows(bytes, runtime->base_bytes + brim__budget_node_bytes(), &bytes)) {
            bytes = UINT64_MAX;
        }
        lack->minimum_bytes = brim__max(bytes, BRIM__BUDGET_FLOOR);
        lack->minimum_pinned_bytes = lack->minimum_device_bytes = 0;
        lack->final = true;
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
        brim__log_planned(runtime, plan);
        brim__device_close(&device);
        brim_budget_free(budget); /* the plan holds a reference until it is freed */
        *out = plan;
    }
    return status;
}

brim_status brim_plan_new(brim_runtime *runtime, const brim_pipeline *pipeline,
                          const brim_open_options *options, brim_plan **plan) {
    if (plan == NULL) {
        return brim__fail_null("plan");
    }
    *plan = NULL;
    if (runtime == NULL || pipeline == NULL) {
        return brim__fail_null("runtime and pipeline");
    }
    return brim__lack_of_opening(plan_new(runtime, pipeline, options, plan));
}

void brim_plan_free(brim_plan *plan) {
    brim__plan_free(plan);
}

/* ----------------------------------------------------------------- opening */

static brim_loader *place(brim_runtime *runtime, brim_plan *plan, brim_budget *budget) {
    struct walk walk = { .memory = plan->extra };
    brim_loader *loader = lay_out(&walk, plan);
    loader->runtime = runtime;
    loader->plan = plan;
    loader->budget = budget;
    loader->hold = plan->info.hold;
    atomic_init(&loader->references, 1);
    atomic_init(&loader->wants, true);
    atomic_init(&loader->wanted, 0);
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

static brim_status take_ring(brim_loader *loader, struct brim__ring *ring) {
    brim_status status = BRIM_OK;
    while (status == BRIM_OK && ring->count < ring->minimum) {
        struct brim__slot *slot = brim__ring_add(ring);
        status = brim__ring_added(slot, brim__slot_map(loader, slot, false));
    }
    return status;
}

/* The minimum, firm: one scratch, and of each ring its own. */
static brim_status take_minimum(brim_loader *loader) {
    brim_status status = brim__loader_pages(loader, &loader->scratch[0].pages,
                                            loader->plan->info.scratch_bytes, false);
    loader->scratch_count = status == BRIM_OK;
    for (struct brim__ring *ring = loader->rows; status == BRIM_OK && ring <= loader->batches;
         ring++) {
        status = take_ring(loader, ring);
    }
    if (status == BRIM_OK && loader->sequencer != NULL) {
        status = brim__sequencer_init(loader);
    }
    if (status == BRIM_OK && loader->uploader != NULL) {
        status = brim__upload_open(loader);
        if (status == BRIM_OK) {
            status = take_ring(loader, loader->last);
        }
        if (status == BRIM_STATUS_MEMORY) {
            status = brim__upload_explain(loader);
        }
    }
    return status;
}

/* Everything that is neither lent nor part of the plan. From now on what is lent cannot be
 * taken back from the user. */
static void give_back(brim_loader *loader) {
    for (uint32_t r = 0; r < loader->ring_count; r++) {
        struct brim__ring *ring = &loader->ring[r];
        for (uint32_t i = 0; i < ring->cap; i++) {
            struct brim__slot *slot = &ring->slot[i];
            if (slot->state == BRIM__SLOT_LENT) {
                brim__slot_firm_up(loader, slot);
            } else if (slot->state != BRIM__SLOT_EMPTY) {
                brim__slot_unmap(loader, slot);
            }
        }
    }
    for (uint32_t i = 0; i <= loader->plan->thread_cap; i++) {
        brim__pages_free(&loader->scratch[i].pages);
    }
    if (loader->sequencer != NULL) {
        brim__sequencer_fini(loader);
    }
}

static void free_core(brim_loader *loader) {
    brim_runtime *runtime = loader->runtime;
    brim_budget *budget = loader->budget;
    if (loader->uploader != NULL) {
        brim__upload_free(loader);
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

/* All slots and scratch that are planned, as far as memory is free. */
static void grow_all(brim_loader *loader) {
    brim__lock(&loader->mutex);
    while (brim__ring_grow(loader, loader->batches) == BRIM_OK || brim__scratch_grow(loader)) {
    }
    if (loader->uploader != NULL) {
        loader->uploader->running = true; /* revocation waits for a slot in the making */
        while (brim__ring_grow(loader, loader->last) == BRIM_OK) {
        }
        loader->uploader->running = false;
        brim__loader_event(loader);
    }
    brim__loader_unlock(loader);
}

static void start(brim_loader *loader, brim_growth growth) {
    brim_runtime *runtime = loader->runtime;
    const brim_plan_info *info = &loader->plan->info;
    const uint64_t slots =
        growth == BRIM_GROWTH_FIXED ? (info->slots - loader->batches->count) * info->slot_bytes : 0;
    brim__loader_note_lacking(loader); /* from now on caches leave it free, and ... */
    brim__budget_make_free(loader->budget, BRIM_MEMORY_HOST,
                           brim__loader_lacks(loader) + slots); /* gave it up */
    brim__budget_on_revoke(loader->budget, brim__chain_revoke, loader);
    if (growth == BRIM_GROWTH_FIXED) {
        grow_all(loader);
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

/* Gives everything back but what is lent. No thread is inside. */
static void shut(brim_loader *loader) {
    brim__caches_stop(loader);
    if (loader->uploader != NULL) {
        brim__upload_close(loader);
    }
    brim__lock(&loader->mutex);
    brim__loader_note_lacking(loader);
    give_back(loader);
    brim__unlock(&loader->mutex);
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
        brim__copy_text(label, sizeof label, options.label);
    } else {
        snprintf(label, sizeof label, "loader %llu", (unsigned long long)number);
    }
    status = build(runtime, pipeline, &options, label, &budget, &device, &plan);
    if (status != BRIM_OK) {
        return status;
    }
    brim__log_planned(runtime, plan);
    if (!plan->info.fits) {
        status = brim__plan_refuse(plan, label);
        goto no_locks;
    }
    brim_loader *loader = place(runtime, plan, budget);
    loader->shared = options.shared == 1;
    loader->beyond = options.beyond;
    loader->consumer.asked = options.interrupted;
    loader->consumer.asked_user = options.interrupted_user;
    if (loader->uploader != NULL) {
        loader->uploader->device = device;
        loader->uploader->consumer = options.device_queue;
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
    if (status == BRIM_OK && loader->sequencer != NULL) {
        const struct brim__position begin = { .epoch = 0 };
        brim__sequencer_go(loader, &begin);
    }
    if (status != BRIM_OK) {
        if (status == BRIM_STATUS_BUDGET) { /* others have taken it meanwhile */
            brim__plan_note_minimum(plan);
        }
        loader->closing = true;
        shut(loader);
        free_core(loader);
        return status;
    }
    loader->report.opened_ns = began;
    start(loader, options.growth);
    loader->report.stats.opening_ns = brim__now() - began;
    brim__log_opened(loader);
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
    if (loader == NULL) {
        return brim__fail_null("loader");
    }
    *loader = NULL;
    if (runtime == NULL || pipeline == NULL) {
        return brim__fail_null("runtime and pipeline");
    }
    return brim__lack_of_opening(loader_open(runtime, pipeline, options, loader));
}

brim_status brim_loader_open_text(brim_runtime *runtime, const char *text,
                                  const brim_open_options *options, brim_loader **loader) {
    brim_pipeline *pipeline;
    if (loader == NULL) {
        return brim__fail_null("loader");
    }
    *loader = NULL;
    if (runtime == NULL || text == NULL) {
        return brim__fail_null("runtime and text");
    }
    brim_status status = brim_pipeline_parse(text, &pipeline);
    if (status == BRIM_OK) {
        status = loader_open(runtime, pipeline, options, loader);
        if (status != BRIM_OK) {
            brim__pipeline_note_given(pipeline); /* the program has no other text */
        }
    }
    brim_pipeline_free(pipeline);
    return brim__lack_of_opening(status);
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
    while (loader->in_call) {
        brim__loader_wait(loader, UINT64_MAX);
    }
    brim__loader_unlock(loader);
    brim__budget_on_revoke(loader->budget, NULL, NULL);
    brim__pool_leave(loader->runtime, loader);
    brim__log_closing(loader);
    shut(loader);
    brim__loader_unref(loader);
}

const brim_plan *brim_loader_plan(const brim_loader *loader) {
    return loader != NULL ? loader->plan : NULL;
}
