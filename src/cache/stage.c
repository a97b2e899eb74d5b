/*
 * stage.c: `cache`: its arguments, and the stages after which it is allowed.
 *
 * A cache keeps a sample as it was first made. That is the same in every epoch only if no stage
 * before it is random or impure. Otherwise the cache is refused; with freeze=yes, random stages
 * before it draw as in epoch 0 in every epoch, cached or not. So the batches never depend on the
 * contents of the cache.
 */
#include "cache/cache.h"

enum { TIER, FILE_PATH, LIMIT, VERIFY, FREEZE };
enum { IN_MEMORY, ON_DEVICE };

static brim_status make(const struct brim__use *use, struct brim__arena *arena,
                        struct brim__cache **out) {
    const bool file = brim__given(use, FILE_PATH);
    struct brim__cache *cache;
    if (file && brim__given(use, TIER)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "cache: give one of 'memory', 'device' and file=PATH; to keep samples in "
                          "two of them, use two caches in a row");
    }
    brim_status status = brim__arena_take(arena, sizeof *cache, &cache);
    if (status == BRIM_OK && file) {
        status = brim__arena_text(arena, brim__item(use, FILE_PATH)->text, &cache->path);
    }
    if (status != BRIM_OK) {
        return status;
    }
    const bool there = brim__given(use, TIER) && brim__item(use, TIER)->integer == ON_DEVICE;
    cache->ops = file ? &brim__file_tier : there ? NULL : &brim__memory_tier;
    cache->limit =
        brim__given(use, LIMIT) ? (uint64_t)brim__item(use, LIMIT)->integer : BRIM_UNLIMITED;
    cache->verify = (enum brim__verify)brim__item(use, VERIFY)->integer;
    cache->freeze = brim__item(use, FREEZE)->integer != 0;
    *out = cache;
    return BRIM_OK;
}

brim_status brim__cache_allowed(const struct brim__cache *cache,
                                const struct brim__program *program) {
    if (program->impure && (cache->path != NULL || !cache->freeze)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "cache: '%s' before it is not declared to give the same result for the "
                          "same sample: declare it (BRIM_CALLBACK_PURE; in Python version=)%s%s",
                          program->impure_stage,
                          cache->path != NULL ? "" : ", give freeze=yes to keep its first result",
                          strncmp(program->impure_stage, "callback ", 9) == 0
                              ? ""
                              : ", or put the cache before it");
    }
    if (program->random && !cache->freeze) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "cache: '%s' before it is random, and would be the same in every epoch: "
                          "put the cache before it, or give freeze=yes if you want that",
                          program->random_stage);
    }
    if (cache->ops == NULL &&
        (cache->verify == BRIM__VERIFY_HIT || cache->verify == BRIM__VERIFY_CONTENT)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "cache device: samples on the device are not "
                                                   "compared with files again: leave verify= out");
    }
    if (program->unversioned_stage != NULL && cache->path != NULL) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "cache file=%s: '%s' before it has no version, so the next run could not "
                          "tell whether it has changed: give it version=, change that whenever it "
                          "changes, or use 'cache memory'",
                          cache->path, program->unversioned_stage);
    }
    return BRIM_OK;
}

static const brim_argument_info arguments[] = {
    [TIER] = { .name = "tier",
               .type = BRIM_TYPE_CHOICE,
               .flags = BRIM_ARGUMENT_FLAG_POSITIONAL,
               .choices = "memory|device",
               .help = "memory: in free budget, given back when it is needed; the default without "
                       "file=; device: in free memory of the device that batches are delivered on, "
                       "after all other stages except batch" },
    [FILE_PATH] = { .name = "file",
                    .type = BRIM_TYPE_PATH,
                    .help = "in this file, which is made if it does not exist; a directory has one "
                            "file for each pipeline" },
    [LIMIT] = { .name = "limit",
                .type = BRIM_TYPE_SIZE,
                .least = 0,
                .most = 9007199254740992.0,
                .help = "the most bytes that it takes; default: all that is free" },
    [VERIFY] = { .name = "verify",
                 .type = BRIM_TYPE_CHOICE,
                 .fallback = "open",
                 .choices = "open|hit|never|content",
                 .help = "when size, times and inode of data files are checked: open: of all files "
                         "when opening; hit: of the sample's file, at each hit; never; content: "
                         "instead, the sample's records are read and hashed at each hit" },
    [FREEZE] = { .name = "freeze",
                 .type = BRIM_TYPE_YESNO,
                 .fallback = "no",
                 .help = "yes: random stages before it draw as in epoch 0, in every epoch" },
};

const struct brim__stage brim__stage_cache = {
    .info = { .name = "cache",
              .summary = "keeps samples in memory, on the device or in a file",
              .example = "cache file=val.brimcache limit=20GiB",
              .room = BRIM_ROOM_CACHE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .make_cache = make,
};
