/*
 * memory_tier.c: a tier in memory: entries are found without a lock, and stored once, under a
 * mutex. memory_space.h describes their memory and how it is revoked.
 *
 * Between begin and commit the caller fills its room without the mutex. It is counted as inside, so
 * that its extent stays. If the extent is given up meanwhile, commit finds it dead and drops the
 * entry. If another thread was faster, the second entry is dropped.
 */
#include "cache/memory_space.h"

static uint64_t arena_bytes(uint64_t count) {
    return sizeof(struct brim__tier) + brim__divide_up(count, BRIM__SEGMENT_COUNT) *
                                           sizeof(_Atomic(struct brim__cache_segment *));
}

static brim_status start_tier(void *memory, const struct brim__tier_start *start,
                              struct brim__tier **out) {
    struct brim__tier *tier = memory;
    const brim_status status = brim__mutex_init(&tier->mutex);
    if (status != BRIM_OK) {
        return status;
    }
    tier->start = *start;
    brim__space_init(tier);
    brim__budget_on_revoke(start->budget, brim__space_revoke, tier);
    *out = tier;
    return BRIM_OK;
}

static void stop(struct brim__tier *tier) {
    brim__budget_on_revoke(tier->start.budget, NULL, NULL);
    brim__space_fini(tier);
    brim__mutex_fini(&tier->mutex);
}

/* ------------------------------------------------------------------ finding */

static uint8_t *data_of(const struct brim__kept *kept) {
    return (uint8_t *)(kept + 1);
}

static bool find(struct brim__tier *tier, uint64_t number, uint64_t stamp, uint8_t *buffer,
                 uint64_t room, struct brim__found *found) {
    _Atomic uint64_t *pin = brim__space_enter(tier);
    const struct brim__kept *kept = brim__space_look(tier, number);
    if (kept == NULL || kept->stamp != stamp || kept->bytes > room) {
        brim__space_leave(pin);
        return false;
    }
    *found = (struct brim__found){ .data = data_of(kept), .bytes = kept->bytes, .pin = pin };
    if (tier->start.copies) {
        memcpy(buffer, found->data, found->bytes);
        brim__space_leave(pin);
        found->data = buffer;
        found->pin = NULL;
    }
    return true;
}

static void done(struct brim__tier *tier, struct brim__found *found) {
    (void)tier;
    if (found->pin != NULL) {
        brim__space_leave(found->pin);
        found->pin = NULL;
    }
}

static bool has(struct brim__tier *tier, uint64_t number) {
    _Atomic uint64_t *pin = brim__space_enter(tier); /* so that the segment stays */
    const bool there = brim__space_look(tier, number) != NULL;
    brim__space_leave(pin);
    return there;
}

/* ------------------------------------------------------------------ filling */

static void drop(struct brim__tier *tier) {
    atomic_fetch_add_explicit(&brim__space_stripe(tier)->dropped, 1, memory_order_relaxed);
}

/* Mutex held: whether the entry is stored. An entry with another stamp is removed from the
 * table. */
static bool is_there(struct brim__tier *tier, uint64_t number, uint64_t stamp) {
    const struct brim__kept *kept = brim__space_look(tier, number);
    if (kept != NULL && kept->stamp != stamp) {
        atomic_store(brim__space_pointer(tier, number), NULL);
        tier->filled--;
        tier->changed++;
        return false;
    }
    return kept != NULL;
}

static bool begin(struct brim__tier *tier, uint64_t number, uint64_t stamp, uint64_t bytes,
                  struct brim__room *room) {
    if (!tier->fills || bytes > tier->start.most_bytes || bytes > PTRDIFF_MAX / 2 ||
        brim__space_is_full(tier, brim__space_stride(bytes))) {
        drop(tier);
        return false;
    }
    _Atomic uint64_t *pin = brim__space_enter(tier); /* before taking room, so that it stays */
    brim__lock(&tier->mutex);
    const bool there = is_there(tier, number, stamp);
    struct brim__kept *kept = there ? NULL : brim__space_add(tier, number, stamp, bytes);
    brim__unlock(&tier->mutex);
    if (kept == NULL) {
        brim__space_leave(pin);
        if (!there) {
            drop(tier);
        }
        return false;
    }
    *room = (struct brim__room){
        .data = data_of(kept), .bytes = bytes, .number = number, .stamp = stamp, .pin = pin
    };
    return true;
}

static struct brim__kept *kept_in(const struct brim__room *room) {
    return (struct brim__kept *)(void *)room->data - 1;
}

static void commit(struct brim__tier *tier, struct brim__room *room) {
    struct brim__kept *kept = kept_in(room);
    brim__lock(&tier->mutex);
    const bool dead = kept->extent->dead;
    if (!dead && is_there(tier, kept->number, kept->stamp)) {
        brim__space_return(tier, kept);
    } else if (!dead) {
        atomic_store(brim__space_pointer(tier, kept->number), kept);
        tier->filled++;
        tier->stored++;
    }
    brim__unlock(&tier->mutex);
    if (dead) {
        drop(tier);
    }
    brim__space_leave(room->pin);
}

static void abandon(struct brim__tier *tier, struct brim__room *room) {
    const struct brim__kept *kept = kept_in(room);
    brim__lock(&tier->mutex);
    if (!kept->extent->dead) {
        brim__space_return(tier, kept);
    }
    brim__unlock(&tier->mutex);
    brim__space_leave(room->pin);
}

static void stats(struct brim__tier *tier, struct brim__tier_stats *out) {
    *out = (struct brim__tier_stats){ .fills = tier->fills };
    memcpy(out->warning, tier->warning, sizeof out->warning);
    for (size_t i = 0; i < BRIM__STRIPES; i++) {
        out->dropped += atomic_load_explicit(&tier->stripe[i].dropped, memory_order_relaxed);
    }
    brim__lock(&tier->mutex);
    out->filled = tier->filled;
    out->bytes = tier->segment_bytes + tier->extent_bytes;
    out->stored = tier->stored;
    out->changed = tier->changed;
    brim__unlock(&tier->mutex);
}

const struct brim__tier_ops brim__memory_tier = {
    .name = "memory",
    .arena_bytes = arena_bytes,
    .most_bytes = brim__space_most_bytes,
    .start = start_tier,
    .stop = stop,
    .find = find,
    .done = done,
    .has = has,
    .begin = begin,
    .commit = commit,
    .abandon = abandon,
    .stats = stats,
};
