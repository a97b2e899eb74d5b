/*
 * stage.c: `cache`: its arguments, and where it may stand.
 *
 * A cache keeps what a sample was when it was first made. That is the same in every
 * epoch only if nothing before it is random or impure: then it is refused, or, told to
 * freeze, what is random before it is drawn as in epoch 0 in every epoch, cached or
 * not. So what comes out never depends on what happens to be cached.
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
                          "cache: say either 'memory', 'device' or file=PATH; two "
                          "caches in a row keep samples in both");
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
        return brim__fail(
            BRIM_STATUS_INVALID,
            "cache: nobody says that '%s' before it gives the same for the same sample: declare it "
            "so (BRIM_CALLBACK_PURE; in Python version=)%s%s",
            program->impure_stage,
            cache->path != NULL ? "" : ", say freeze=yes to keep what it gives first",
            strncmp(program->impure_stage, "callback ", 9) == 0 ? ""
                                                                : ", or put the cache before it");
    }
    if (program->random && !cache->freeze) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "cache: '%s' before it is random, and would be the same in every epoch: put the cache "
            "before it, or say freeze=yes if that is what you want",
            program->random_stage);
    }
    if (cache->ops == NULL &&
        (cache->verify == BRIM__VERIFY_HIT || cache->verify == BRIM__VERIFY_CONTENT)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "cache device: what is on the device is not compared "
                          "with files again: leave verify= out");
    }
    if (program->unversioned_stage != NULL && cache->path != NULL) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "cache file=%s: '%s' before it has no version, and what is kept could be of another "
            "one in the next run: give it version=, and another whenever it changes, or use "
            "'cache memory'",
            cache->path, program->unversioned_stage);
    }
    return BRIM_OK;
}

static const brim_argument_info arguments[] = {
    [TIER] = { .name = "tier",
               .type = BRIM_TYPE_CHOICE,
               .flags = BRIM_ARGUMENT_POSITIONAL,
               .choices = "memory|device",
               .help = "memory: in what the budget has left, given back when it is needed; also if "
                       "neither this nor file= is given; device: the same of the device that "
                       "batches are delivered on, behind all other stages but batch" },
    [FILE_PATH] = { .name = "file",
                    .type = BRIM_TYPE_PATH,
                    .help = "in this file, made if it is not there; a directory holds one for "
                            "each pipeline" },
    [LIMIT] = { .name = "limit",
                .type = BRIM_TYPE_SIZE,
                .least = 0,
                .most = 9007199254740992.0,
                .help = "bytes that it takes at most; all that is free if not given" },
    [VERIFY] = { .name = "verify",
                 .type = BRIM_TYPE_CHOICE,
                 .fallback = "open",
                 .choices = "open|hit|never|content",
                 .help = "when size, time and inode of the data's files are looked at: of all "
                         "when opening, of a sample's own each time, or never; content: a "
                         "sample's records are read and hashed each time" },
    [FREEZE] = { .name = "freeze",
                 .type = BRIM_TYPE_YESNO,
                 .fallback = "no",
                 .help = "random stages before it are drawn as in epoch 0, in every epoch" },
};

const struct brim__stage brim__stage_cache = {
    .info = { .name = "cache",
              .summary = "samples made once and found again, in memory, on the device or in a file",
              .example = "cache file=val.brimcache limit=20GiB",
              .room = BRIM_ROOM_CACHE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .make_cache = make,
};
