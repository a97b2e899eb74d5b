/*
 * shared.c: claims of processes on one budget.
 *
 * The sum of the claims of all entries is computed again for each claim, with the segment's lock
 * held, and nothing else is kept. So a process that is killed at any instant leaves nothing to be
 * repaired: each entry is what its owner last stored, and the lock of a dead process is taken over.
 * Raising a claim needs the lock, lowering it is a single store of the owner: the sum that another
 * process reads with the lock is at least the true sum.
 *
 * An entry of a killed process counts until a process looks for dead ones: before a firm claim is
 * refused, sometimes when an elastic one is, and when a process joins or leaves. The search reads
 * /proc, so it runs without the lock: the candidates are noted, checked, and then freed with the
 * lock if they are still the same.
 *
 * Waiting for the lock has a limit, because its owner may have been stopped by a signal. Then
 * claims are refused, with an error that says so. A claim waits only some milliseconds, because the
 * lock of the tree is held meanwhile; callers that can wait longer do so without it and try again.
 */
#include "memory/shared.h"

#include "base/platform.h"
#include "memory/budget.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#define JOIN_NS UINT64_C(2000000000)
#define SPINS   20

/* Polls, because pthread_mutex_timedlock uses a clock that users can set. The lock is held for
 * microseconds, unless its owner is not running. */
static enum brim__claim lock_until(const struct brim__shared *shared, uint64_t deadline) {
    struct brim__shared_segment *segment = shared->segment;
    const struct timespec pause = { .tv_nsec = 100000 };
    int error;
    for (uint32_t tries = 0; (error = pthread_mutex_trylock(&segment->lock)) == EBUSY; tries++) {
        if (tries < SPINS) {
            brim__relax();
        } else if (brim__now() < deadline) {
            (void)nanosleep(&pause, NULL);
        } else {
            return BRIM__CLAIM_BUSY;
        }
    }
    if (error == EOWNERDEAD) { /* entries need no repair: see above */
        error = pthread_mutex_consistent(&segment->lock);
    }
    if (error != 0) {
        return BRIM__CLAIM_BROKEN;
    }
    atomic_store_explicit(&segment->holder, shared->own.number, memory_order_relaxed);
    return BRIM__CLAIMED;
}

static void unlock(struct brim__shared_segment *segment) {
    atomic_store_explicit(&segment->holder, 0, memory_order_relaxed);
    pthread_mutex_unlock(&segment->lock);
}

void brim__shared_await(const struct brim__shared *shared, uint64_t deadline) {
    if (lock_until(shared, deadline) == BRIM__CLAIMED) {
        unlock(shared->segment);
    }
}

void brim__shared_explain(const struct brim__shared *shared, enum brim__claim why,
                          char text[BRIM__DETAIL_BYTES]) {
    const uint64_t holder = atomic_load_explicit(&shared->segment->holder, memory_order_relaxed);
    char path[BRIM__SEGMENT_PATH];
    brim__segment_path(shared->name, path);
    if (why == BRIM__CLAIM_BUSY && holder != 0) {
        snprintf(text, BRIM__DETAIL_BYTES,
                 "shared budget \"%s\": its lock is held by process %llu, which is not running: "
                 "continue it (kill -CONT %llu) or end it",
                 shared->name, (unsigned long long)holder, (unsigned long long)holder);
    } else if (why == BRIM__CLAIM_BUSY) {
        snprintf(text, BRIM__DETAIL_BYTES,
                 "shared budget \"%s\": its lock is held by a process that is not running: "
                 "continue or end the processes that have %s open",
                 shared->name, path);
    } else {
        snprintf(text, BRIM__DETAIL_BYTES,
                 "shared budget \"%s\": %s was damaged: end the processes that share it, and "
                 "delete it",
                 shared->name, path);
    }
}

static struct brim__identity owner_of(const struct brim__shared_entry *entry) {
    return (struct brim__identity){
        .number = atomic_load_explicit(&entry->number, memory_order_acquire),
        .start = atomic_load_explicit(&entry->start, memory_order_relaxed),
        .space = atomic_load_explicit(&entry->space, memory_order_relaxed),
    };
}

static void free_entry(struct brim__shared_entry *entry) {
    atomic_store_explicit(&entry->number, 0, memory_order_release);
}

static bool is_used(const struct brim__shared_entry *entry) {
    return atomic_load_explicit(&entry->number, memory_order_acquire) != 0;
}

static uint64_t bytes_of(const struct brim__shared_entry *entry, brim_memory kind) {
    return is_used(entry) ? atomic_load_explicit(&entry->bytes[kind], memory_order_acquire) : 0;
}

/* The sum of all entries except `own`. A sum that does not fit 64 bits was not written by brim, and
 * exceeds every limit. */
static uint64_t sum_others(const struct brim__shared_segment *segment, uint32_t own,
                           brim_memory kind) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < BRIM__SHARED_ENTRIES; i++) {
        if (i != own && brim__add_overflows(sum, bytes_of(&segment->entry[i], kind), &sum)) {
            return UINT64_MAX;
        }
    }
    return sum;
}

/* How far `bytes` beside `others` are above a limit. */
static uint64_t missing_of(uint64_t others, uint64_t bytes, uint64_t limit) {
    const uint64_t left = limit - brim__min(others, limit);
    return bytes > left ? bytes - left : 0;
}

/* ------------------------------------------------------------------ claims */

/* The most that firm or elastic claims may reach. */
static uint64_t bound_of(const struct brim__shared *shared, brim_memory kind, bool elastic) {
    const uint64_t limit = shared->limits[kind];
    return elastic && limit != BRIM_UNLIMITED ? limit - limit / BRIM__FIRM_PART : limit;
}

enum brim__claim brim__shared_claim(struct brim__shared *shared, brim_memory kind, uint64_t bytes,
                                    bool elastic, uint64_t *missing) {
    struct brim__shared_segment *segment = shared->segment;
    struct brim__shared_entry *entry = &segment->entry[shared->entry];
    *missing = bytes - brim__min(bytes, shared->claimed[kind]);
    enum brim__claim result = lock_until(shared, shared->stuck ? 0 : brim__now() + BRIM__SOON_NS);
    shared->stuck = result != BRIM__CLAIMED;
    if (shared->stuck) {
        return result;
    }
    const struct brim__identity owner = owner_of(entry);
    result = BRIM__CLAIM_BROKEN;
    if (brim__identity_equals(&owner, &shared->own)) {
        *missing = missing_of(sum_others(segment, shared->entry, kind), bytes,
                              bound_of(shared, kind, elastic));
        result = *missing > 0 ? BRIM__CLAIM_FULL : BRIM__CLAIMED;
        if (result == BRIM__CLAIMED) {
            atomic_store_explicit(&entry->bytes[kind], bytes, memory_order_release);
            shared->claimed[kind] = bytes;
        }
    }
    unlock(segment);
    return result;
}

void brim__shared_settle(struct brim__shared *shared, brim_memory kind, uint64_t bytes) {
    assert(bytes <= shared->claimed[kind]);
    if (bytes != shared->claimed[kind]) {
        shared->claimed[kind] = bytes;
        atomic_store_explicit(&shared->segment->entry[shared->entry].bytes[kind], bytes,
                              memory_order_release);
    }
}

void brim__shared_tell_elastic(struct brim__shared *shared, brim_memory kind, uint64_t bytes) {
    atomic_store_explicit(&shared->segment->entry[shared->entry].elastic[kind], bytes,
                          memory_order_relaxed);
}

uint64_t brim__shared_others(const struct brim__shared *shared, brim_memory kind) {
    return sum_others(shared->segment, shared->entry, kind);
}

uint64_t brim__shared_left(const struct brim__shared *shared, brim_memory kind, uint64_t taken,
                           bool elastic) {
    const uint64_t bound = bound_of(shared, kind, elastic);
    const uint64_t left = bound - brim__min(brim__shared_others(shared, kind), bound);
    return left - brim__min(taken, left);
}

uint32_t brim__shared_processes(const struct brim__shared *shared) {
    struct brim__identity seen[BRIM__SHARED_ENTRIES];
    uint32_t count = 0;
    for (uint32_t i = 0; i < BRIM__SHARED_ENTRIES; i++) {
        const struct brim__identity owner = owner_of(&shared->segment->entry[i]);
        uint32_t k = 0;
        while (k < count && !brim__identity_equals(&seen[k], &owner)) {
            k++;
        }
        if (owner.number != 0 && k == count) {
            seen[count++] = owner;
        }
    }
    return count;
}

void brim__shared_reap(const struct brim__shared *shared, uint64_t deadline) {
    struct brim__shared_segment *segment = shared->segment;
    struct brim__identity gone[BRIM__SHARED_ENTRIES];
    bool any = false;
    for (uint32_t i = 0; i < BRIM__SHARED_ENTRIES; i++) {
        gone[i] = owner_of(&segment->entry[i]);
        if (gone[i].number != 0 && !brim__identity_is_gone(&gone[i], &shared->own)) {
            gone[i].number = 0;
        }
        any = any || gone[i].number != 0;
    }
    if (!any || lock_until(shared, deadline) != BRIM__CLAIMED) {
        return;
    }
    for (uint32_t i = 0; i < BRIM__SHARED_ENTRIES; i++) {
        const struct brim__identity owner = owner_of(&segment->entry[i]);
        if (gone[i].number != 0 && brim__identity_equals(&owner, &gone[i])) {
            free_entry(&segment->entry[i]);
        }
    }
    unlock(segment);
}

/* ------------------------------------------------------------------- words */

bool brim__list_add(char *text, size_t bytes, size_t *at, const char *entry, uint32_t left) {
    const size_t tail = sizeof ", and 4294967295 more";
    const size_t length = strlen(entry) + (*at > 0 ? 2 : 0);
    if (*at + length + (left > 1 ? tail : 1) <= bytes) {
        *at += (size_t)snprintf(text + *at, bytes - *at, "%s%s", *at > 0 ? ", " : "", entry);
        return true;
    }
    if (*at > 0 && *at + tail <= bytes) {
        snprintf(text + *at, bytes - *at, ", and %u more", left);
    }
    return false;
}

struct share {
    uint64_t bytes, elastic, number;
    bool own;
    char command[BRIM__COMMAND_BYTES];
};

/* The processes that hold memory of a kind. `locked`: the lock is held. Only then can their
 * commands be read. */
static uint32_t read_shares(const struct brim__shared *shared, brim_memory kind, bool locked,
                            struct share shares[BRIM__SHARED_ENTRIES]) {
    const struct brim__shared_segment *segment = shared->segment;
    uint32_t count = 0;
    for (uint32_t i = 0; i < BRIM__SHARED_ENTRIES; i++) {
        const struct brim__shared_entry *entry = &segment->entry[i];
        struct share *share = &shares[count];
        *share = (struct share){ .bytes = bytes_of(entry, kind),
                                 .elastic = atomic_load_explicit(&entry->elastic[kind],
                                                                 memory_order_relaxed),
                                 .number = owner_of(entry).number,
                                 .own = i == shared->entry };
        share->elastic = brim__min(share->elastic, share->bytes);
        if (locked) {
            memcpy(share->command, entry->command, sizeof share->command - 1);
        }
        count += share->bytes > 0;
    }
    return count;
}

/* Largest first. */
static void sort_shares(struct share *shares, uint32_t count) {
    for (uint32_t done = 0; done < count; done++) {
        uint32_t largest = done;
        for (uint32_t i = done + 1; i < count; i++) {
            largest = shares[i].bytes > shares[largest].bytes ? i : largest;
        }
        const struct share share = shares[largest];
        shares[largest] = shares[done];
        shares[done] = share;
    }
}

#define SHARER_TEXT (32 + BRIM__COMMAND_BYTES)

static const char *sharer(const struct share *share, char text[SHARER_TEXT]) {
    if (share->own) {
        return "this process";
    }
    snprintf(text, SHARER_TEXT, share->command[0] != '\0' ? "process %llu (%s)" : "process %llu",
             (unsigned long long)share->number, share->command);
    for (char *c = text; *c != '\0'; c++) { /* a command may be any bytes */
        *c = *c >= ' ' && *c <= '~' ? *c : '?';
    }
    return text;
}

static void write_shares(const struct share *shares, uint32_t count, char *text, size_t bytes) {
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        const struct share *share = &shares[i];
        char who[SHARER_TEXT];
        char elastic[BRIM__SIZE_TEXT + 24] = "";
        char entry[sizeof who + BRIM__SIZE_TEXT + sizeof elastic];
        char size[BRIM__SIZE_TEXT];
        if (share->elastic > 0) {
            snprintf(elastic, sizeof elastic, " (%s of it elastic)",
                     brim__size_text(share->elastic, size));
        }
        snprintf(entry, sizeof entry, "%s %s%s", sharer(share, who),
                 brim__size_text(share->bytes, size), elastic);
        if (!brim__list_add(text, bytes, &at, entry, count - i)) {
            return;
        }
    }
}

static void note_shares(const struct share *shares, uint32_t count, struct brim__lack *lack) {
    for (uint32_t i = 0; i < count; i++) {
        char who[SHARER_TEXT];
        brim__lack_holder(lack, sharer(&shares[i], who), shares[i].bytes);
    }
}

void brim__shared_list(const struct brim__shared *shared, brim_memory kind, char *text,
                       size_t bytes, struct brim__lack *lack) {
    struct share shares[BRIM__SHARED_ENTRIES];
    const bool locked =
        lock_until(shared, shared->stuck ? 0 : brim__now() + BRIM__SOON_NS) == BRIM__CLAIMED;
    const uint32_t count = read_shares(shared, kind, locked, shares);
    if (locked) {
        unlock(shared->segment);
    }
    sort_shares(shares, count);
    write_shares(shares, count, text, bytes);
    if (lack != NULL) {
        note_shares(shares, count, lack);
    }
}

/* ------------------------------------------------------- joining and leaving */

/* With the segment's lock: whether any process is in it. */
static bool is_empty(const struct brim__shared_segment *segment) {
    uint32_t i = 0;
    while (i < BRIM__SHARED_ENTRIES && !is_used(&segment->entry[i])) {
        i++;
    }
    return i == BRIM__SHARED_ENTRIES;
}

static brim_status begin_limits(const char *name, const uint64_t given[BRIM_MEMORY_KINDS],
                                uint64_t limits[BRIM_MEMORY_KINDS]) {
    if (given[BRIM_MEMORY_HOST] == 0) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "shared budget \"%s\": no process uses it yet: the first process must give its size",
            name);
    }
    for (size_t kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        limits[kind] = given[kind] > 0              ? given[kind]
                       : kind == BRIM_MEMORY_PINNED ? given[BRIM_MEMORY_HOST]
                                                    : BRIM_UNLIMITED;
    }
    return BRIM_OK;
}

static brim_status check_limits(const char *name, const uint64_t given[BRIM_MEMORY_KINDS],
                                const uint64_t limits[BRIM_MEMORY_KINDS]) {
    for (size_t kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        /* page-locked memory is host memory, so the same limit is no further limit */
        const bool limited =
            kind == BRIM_MEMORY_HOST ||
            (limits[kind] != BRIM_UNLIMITED &&
             (kind != BRIM_MEMORY_PINNED || limits[kind] != limits[BRIM_MEMORY_HOST]));
        if (given[kind] > 0 && limited && given[kind] != limits[kind]) {
            return brim__fail(
                BRIM_STATUS_INVALID,
                "shared budget \"%s\": a limit of %llu bytes%s was given, but the limit is %llu "
                "bytes while other processes use it: give the same limit, or none",
                name, (unsigned long long)given[kind],
                kind == BRIM_MEMORY_HOST ? ""
                : kind == BRIM_MEMORY_PINNED
                    ? " of page-locked memory"
                    : " of device memory", /* one limit goes for all devices */
                (unsigned long long)limits[kind]);
        }
    }
    return BRIM_OK;
}

/* With the lock: the failure of a process whose first claims do not fit. */
static brim_status refuse_claim(const struct brim__shared *shared, brim_memory kind,
                                uint64_t others, uint64_t claim) {
    struct share shares[BRIM__SHARED_ENTRIES];
    char where[BRIM__MEMORY_TEXT], limit[BRIM__SIZE_TEXT], asked[BRIM__SIZE_TEXT], holders[400];
    uint64_t needed;
    if (brim__add_overflows(others, claim, &needed)) {
        needed = UINT64_MAX;
    }
    brim__size_text(shared->limits[kind], limit);
    brim__memory_text(kind, where);
    brim__size_text(claim, asked);
    const uint32_t count = read_shares(shared, kind, true, shares);
    sort_shares(shares, count);
    write_shares(shares, count, holders, sizeof holders);
    const brim_status status =
        others == 0
            ? brim__fail(BRIM_STATUS_BUDGET,
                         "shared budget \"%s\" (limit %s%s) is too small: a process needs %s to "
                         "start; give it at least %llu bytes",
                         shared->name, limit, where, asked, (unsigned long long)needed)
            : brim__fail(
                  BRIM_STATUS_BUDGET,
                  "shared budget \"%s\" (limit %s%s) has no room for another process, which "
                  "needs %s to start; %llu bytes are in use; held by %s; " BRIM__SHARED_ADVICE,
                  shared->name, limit, where, asked, (unsigned long long)others, holders,
                  (unsigned long long)needed);
    struct brim__lack *lack = brim__lack();
    lack->kind = kind;
    lack->wanted = claim;
    lack->others_bytes = kind == BRIM_MEMORY_HOST ? others : 0;
    note_shares(shares, count, lack);
    return status;
}

static brim_status check_claims(const struct brim__shared *shared,
                                const struct brim__shared_segment *segment,
                                const uint64_t claims[BRIM_MEMORY_KINDS]) {
    for (int kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        const uint64_t others = sum_others(segment, BRIM__SHARED_ENTRIES, (brim_memory)kind);
        if (claims[kind] > 0 && missing_of(others, claims[kind], shared->limits[kind]) > 0) {
            return refuse_claim(shared, (brim_memory)kind, others, claims[kind]);
        }
    }
    return BRIM_OK;
}

/* With both locks: an entry for this process. */
static brim_status take_entry(struct brim__shared *shared, struct brim__shared_segment *segment,
                              const char command[BRIM__COMMAND_BYTES],
                              const uint64_t claims[BRIM_MEMORY_KINDS]) {
    uint32_t i = 0;
    while (i < BRIM__SHARED_ENTRIES && is_used(&segment->entry[i])) {
        i++;
    }
    if (i == BRIM__SHARED_ENTRIES) {
        const brim_status status = brim__fail(BRIM_STATUS_BUDGET,
                                              "shared budget \"%s\": %d runtimes use it "
                                              "already, which is the maximum",
                                              shared->name, BRIM__SHARED_ENTRIES);
        brim__lack()->blocked = true;
        return status;
    }
    struct brim__shared_entry *entry = &segment->entry[i];
    for (size_t kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        atomic_store_explicit(&entry->bytes[kind], claims[kind], memory_order_relaxed);
        atomic_store_explicit(&entry->elastic[kind], 0, memory_order_relaxed);
        shared->claimed[kind] = claims[kind];
    }
    memcpy(entry->command, command, sizeof entry->command);
    atomic_store_explicit(&entry->start, shared->own.start, memory_order_relaxed);
    atomic_store_explicit(&entry->space, shared->own.space, memory_order_relaxed);
    atomic_store_explicit(&entry->number, shared->own.number, memory_order_release);
    shared->entry = i;
    return BRIM_OK;
}

static brim_status join(struct brim__shared *shared, struct brim__shared_segment *segment,
                        const char command[BRIM__COMMAND_BYTES],
                        const uint64_t limits[BRIM_MEMORY_KINDS],
                        const uint64_t claims[BRIM_MEMORY_KINDS]) {
    brim_status status;
    const enum brim__claim got = lock_until(shared, brim__now() + JOIN_NS);
    if (got != BRIM__CLAIMED) {
        char text[BRIM__DETAIL_BYTES];
        brim__shared_explain(shared, got, text);
        return brim__fail_text(BRIM_STATUS_IO, text);
    }
    if (is_empty(segment)) {
        status = begin_limits(shared->name, limits, shared->limits);
        if (status == BRIM_OK) {
            memcpy(segment->limits, shared->limits, sizeof segment->limits);
        }
    } else {
        memcpy(shared->limits, segment->limits, sizeof shared->limits);
        status = check_limits(shared->name, limits, shared->limits);
    }
    if (status == BRIM_OK) {
        status = check_claims(shared, segment, claims);
    }
    if (status == BRIM_OK) {
        status = take_entry(shared, segment, command, claims);
    }
    unlock(segment);
    return status;
}

brim_status brim__shared_join(struct brim__shared *shared, const char *name,
                              const uint64_t limits[BRIM_MEMORY_KINDS],
                              const uint64_t claims[BRIM_MEMORY_KINDS]) {
    char command[BRIM__COMMAND_BYTES];
    struct brim__shared_segment *segment;
    int file;
    brim_status status = brim__segment_open(name, &segment, &file);
    if (status != BRIM_OK) {
        return status;
    }
    *shared = (struct brim__shared){ .segment = segment,
                                     .entry = BRIM__SHARED_ENTRIES, /* none yet */
                                     .inode = brim__segment_inode(file) };
    brim__copy_text(shared->name, sizeof shared->name, name);
    brim__identity_own(&shared->own, command);
    brim__shared_reap(shared, brim__now() + JOIN_NS);
    status = join(shared, segment, command, limits, claims);
    if (status != BRIM_OK) {
        if (is_empty(segment)) {
            brim__segment_remove(name);
        }
        brim__segment_unmap(segment);
        shared->segment = NULL;
    }
    brim__segment_unlock(file);
    return status;
}

void brim__shared_leave(struct brim__shared *shared) {
    if (shared->segment == NULL) {
        return;
    }
    const int file = brim__segment_relock(shared->name, shared->inode);
    const struct brim__identity owner = owner_of(&shared->segment->entry[shared->entry]);
    if (brim__identity_equals(&owner, &shared->own)) {
        free_entry(&shared->segment->entry[shared->entry]);
    }
    if (file >= 0) {
        brim__shared_reap(shared, brim__now() + BRIM__SOON_NS);
        if (is_empty(shared->segment)) {
            brim__segment_remove(shared->name);
        }
    }
    brim__segment_unmap(shared->segment);
    brim__segment_unlock(file);
    shared->segment = NULL;
}
