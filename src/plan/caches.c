/*
 * caches.c: the `cache` stages of a plan.
 *
 * The key of a cache depends on what its samples are made of: the identities of the sources and the
 * stages before it, only of its own leaves. So stages after it, and other parts of a mix, may
 * change. The format of entries and the versions of the image libraries are part of the key too.
 */
#include "cache/residents.h"
#include "plan/compile.h"

#include <stdio.h>

#define ENTRY_FORMAT 1    /* of what entry.c puts into an entry */
#define TEXT_BYTES   1000 /* of the pipeline in a cache file, for people */

/* Sets the cache's text: the chain up to the cache, cut, without the stages that do not change
 * samples (order stages and other caches). */
static brim_status set_text(struct brim__compiler *compiler, struct brim__cache *cache,
                            const brim_pipeline *pipeline, size_t uses) {
    char text[TEXT_BYTES] = "";
    size_t length = 0;
    for (size_t u = 0; u < uses && length + 4 < sizeof text; u++) {
        const brim_room room = pipeline->use[u].stage->info.room;
        if (u > 0 && (room == BRIM_ROOM_ORDER || room == BRIM_ROOM_CACHE)) {
            continue;
        }
        length += (size_t)snprintf(text + length, sizeof text - length, u > 0 ? " | " : "");
        length +=
            brim__use_text(&pipeline->use[u], false, false, text + length, sizeof text - length);
    }
    return brim__arena_text(&compiler->plan->arena, text, &cache->pipeline);
}

/* If files are not checked, paths distinguish data of equal shapes. */
static brim_status enter_paths(struct brim__compiler *compiler, const brim_pipeline *pipeline,
                               uint64_t *fingerprint) {
    char *text;
    const size_t length = brim__use_text(&pipeline->use[0], true, false, NULL, 0);
    const brim_status status =
        brim__arena_take(&compiler->plan->arena, (uint64_t)length + 1, &text);
    if (status == BRIM_OK) {
        brim__use_text(&pipeline->use[0], true, false, text, length + 1);
        *fingerprint = brim__hash(text, length, *fingerprint);
    }
    return status;
}

static brim_status without_numbers(const brim_plan *plan) {
    return plan->sequence.stream ? brim__fail(BRIM_STATUS_UNSUPPORTED,
                                              "cache: the samples of a stream have no numbers, so "
                                              "they cannot be found again: read a file")
                                 : brim__fail(BRIM_STATUS_UNSUPPORTED,
                                              "cache: after '%s' samples have no numbers, so they "
                                              "cannot be found again: put the cache before it",
                                              plan->sequence.cause);
}

/* Checks the place of a cache on a device, which keeps rows as they are delivered. */
static brim_status check_device_cache(const brim_plan *plan, const struct brim__site *site) {
    return site->nested ? brim__fail(BRIM_STATUS_SYNTAX,
                                     "cache device: it keeps samples as they are delivered, and "
                                     "cannot be inside parentheses: put it at the end of the "
                                     "pipeline, before batch")
           : plan->device_cache != NULL
               ? brim__fail(BRIM_STATUS_SYNTAX, "cache device: there is one already")
               : BRIM_OK;
}

brim_status brim__check_residents(const struct brim__compiler *compiler) {
    const brim_plan *plan = compiler->plan;
    if (plan->device_cache == NULL) {
        return BRIM_OK;
    }
    if (plan->sequence.on) {
        return brim__fail(
            BRIM_STATUS_UNSUPPORTED,
            "cache device: the plan is sequenced, because of '%s': use 'cache memory' before it",
            plan->sequence.cause);
    }
    if (compiler->late_count > 0) {
        return brim__fail(BRIM_STATUS_SYNTAX,
                          "cache device: '%s' changes whole batches on the host: use 'cache "
                          "memory'",
                          compiler->late[0].use->stage->info.name);
    }
    for (uint32_t f = 0; f < plan->leaf[0]->program.field_count; f++) {
        const struct brim__program_field *field = &plan->leaf[0]->program.field[f];
        if (field->form != BRIM_FORM_DENSE) {
            return brim__fail(BRIM_STATUS_UNSUPPORTED,
                              "cache device: samples of field '%s' differ in length: use 'cache "
                              "memory', or give them one length with pad to=",
                              field->name);
        }
    }
    return BRIM_OK;
}

/* Samples that the user's code makes have no records to compare before it has run. */
static brim_status check_content(const struct brim__leaf *leaf) {
    for (uint32_t s = 0; s < leaf->source_count; s++) {
        if (leaf->source[s]->callback) {
            return brim__fail(BRIM_STATUS_UNSUPPORTED,
                              "cache verify=content: '%s' makes its samples and has no records to "
                              "compare: leave verify= out, and give it version=",
                              leaf->source[s]->maker == NULL ? "a callback"
                                                             : leaf->source[s]->maker);
        }
    }
    return BRIM_OK;
}

/* Hashes the leaf into the cache's keys. With freeze its first `frozen` steps make other samples
 * than without. */
static brim_status enter_leaf(struct brim__compiler *compiler, struct brim__cache *cache,
                              const struct brim__site *site, struct brim__leaf *leaf,
                              uint32_t frozen) {
    brim_status status = BRIM_OK;
    if (cache->freeze) {
        leaf->frozen = frozen;
        leaf->sample_fingerprint =
            brim__hash_words(leaf->sample_fingerprint, 0x667265657a65u, leaf->draws);
        status = brim__enter_stage(compiler, &compiler->plan->info.sample_fingerprint, site->use);
    }
    cache->data = brim__hash_words(cache->data, leaf->data_fingerprint, leaf->count);
    cache->sample = brim__hash_words(cache->sample, leaf->sample_fingerprint, 0);
    cache->count += leaf->count;
    return status;
}

/* Puts the cache between the steps of a leaf. */
static brim_status attach(struct brim__compiler *compiler, struct brim__cache *cache,
                          const struct brim__site *site, struct brim__leaf *leaf) {
    brim_plan *plan = compiler->plan;
    const uint64_t scratch = leaf->program.scratch_bytes;
    struct brim__leaf_cache *leaf_cache = &leaf->cache[leaf->cache_count];
    leaf->program.stage = site->index;
    brim_status status = brim__cache_attach(cache, &leaf->program, leaf->cache_count, leaf_cache);
    if (status != BRIM_OK) {
        return status;
    }
    leaf_cache->first = leaf->first_id - plan->leaf[site->first_leaf]->first_id;
    leaf->cache_count++;
    leaf->stamped |= cache->verify == BRIM__VERIFY_HIT;
    leaf->hashed |= cache->verify == BRIM__VERIFY_CONTENT;
    if (cache->verify == BRIM__VERIFY_CONTENT) {
        status = check_content(leaf);
    }
    plan->stage[site->index].bytes =
        brim__max(plan->stage[site->index].bytes, leaf->program.scratch_bytes - scratch);
    return status == BRIM_OK ? enter_leaf(compiler, cache, site, leaf, leaf_cache->resume) : status;
}

static brim_status compile_tier(struct brim__compiler *compiler, struct brim__cache *cache,
                                const struct brim__site *site) {
    brim_plan *plan = compiler->plan;
    brim_status status = set_text(compiler, cache, site->pipeline, site->number);
    for (uint32_t i = site->first_leaf; status == BRIM_OK && i < plan->leaf_count; i++) {
        status = attach(compiler, cache, site, plan->leaf[i]);
    }
    if (status == BRIM_OK) {
        status =
            brim__arena_take(&plan->arena, cache->ops->arena_bytes(cache->count), &cache->memory);
    }
    if (status == BRIM_OK) {
        cache->next = plan->caches;
        plan->caches = cache;
    }
    return status;
}

/* For `cache device`: its samples are rows of batches, and no step of a program stores them. */
static brim_status compile_residents(struct brim__compiler *compiler, struct brim__cache *cache,
                                     const struct brim__site *site) {
    brim_plan *plan = compiler->plan;
    brim_status status = check_device_cache(plan, site);
    for (uint32_t i = site->first_leaf; status == BRIM_OK && i < plan->leaf_count; i++) {
        struct brim__program *program = &plan->leaf[i]->program;
        program->stage = site->index;
        status = brim__cache_allowed(cache, program);
        if (status == BRIM_OK) {
            status = enter_leaf(compiler, cache, site, plan->leaf[i], program->step_count + 1);
        }
    }
    if (status == BRIM_OK) {
        status =
            brim__arena_take(&plan->arena, brim__residents_bytes(cache->count), &cache->memory);
    }
    if (status == BRIM_OK) {
        plan->device_cache = cache;
    }
    return status;
}

brim_status brim__compile_cache(struct brim__compiler *compiler, const struct brim__site *site) {
    brim_plan *plan = compiler->plan;
    const struct brim__use *use = site->use;
    struct brim__cache *cache;
    if (plan->sequence.on) {
        return without_numbers(plan);
    }
    brim_status status = use->stage->make_cache(use, &plan->arena, &cache);
    if (status != BRIM_OK) {
        return status;
    }
    if (cache->ops == NULL && compiler->device == NULL) {
        cache->ops = &brim__memory_tier; /* the host is the device */
    }
    cache->stage = site->index;
    cache->first_stage = site->begin;
    cache->data = ENTRY_FORMAT;
    cache->sample = brim__image_libraries();
    if (cache->verify == BRIM__VERIFY_NEVER) {
        status = enter_paths(compiler, site->pipeline, &cache->data);
    }
    if (status == BRIM_OK) {
        status = cache->ops != NULL ? compile_tier(compiler, cache, site)
                                    : compile_residents(compiler, cache, site);
    }
    plan->cache_count += status == BRIM_OK;
    plan->stage[site->index].effect = cache->effect; /* set by brim__plan_fit */
    return status;
}

void brim__cacheable(brim_plan *plan, uint32_t index, uint32_t first_leaf) {
    brim_plan_stage *stage = &plan->stage[index];
    stage->cacheable = !plan->sequence.on;
    for (uint32_t i = first_leaf; stage->cacheable && i < plan->leaf_count; i++) {
        const struct brim__program *program = &plan->leaf[i]->program;
        uint64_t bytes;
        stage->cacheable =
            !program->random && !program->impure && brim__cache_entry_bytes(program, &bytes);
        stage->sample_bytes = stage->cacheable ? brim__max(stage->sample_bytes, bytes) : 0;
    }
}
