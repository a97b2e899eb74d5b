/*
 * file_writer.c: writes entries to a cache file.
 *
 * A worker with an entry reserves room for it in a ring and fills it there; a thread writes
 * committed entries, in order, many in one call, then their table entries. No worker waits: if the
 * ring has no room, because the disk is slower than the workers, the entry is dropped. It may be
 * kept in a later epoch. Without workers there is no thread, and the committing thread writes.
 *
 * A number may come again while its entry is being written (drawn twice, or an epoch later on a
 * slow disk). To write it only once, the writer checks the table before each run for numbers that
 * were stored after their entries were begun.
 *
 * Ring and stack are elastic: they are taken when there is something to write and memory is free,
 * and given up when they are revoked. The ring is also freed if no entry came for a second, because
 * a full cache needs none.
 *
 * Revoking waits for workers that are filling room (a sample in progress) and for a write in
 * progress. Entries that are committed but not written are dropped.
 */
#include "cache/file_tier.h"

#include <stdio.h>

#define STACK_USABLE  (256u << 10)
#define LEAST_RING    (UINT64_C(256) << 10)
#define MOST_RING     (UINT64_C(8) << 20)
#define RING_ENTRIES  16 /* of the largest size, within these */
#define MOST_ENTRY    (UINT64_C(1) << 56)
#define RUN_ITEMS     64 /* written in one call */
#define RUN_BYTES     (UINT64_C(1) << 20)
#define TAKE_AGAIN_NS UINT64_C(10000000)
#define IDLE_NS       UINT64_C(1000000000)

enum state { PAD, LENT, READY, GONE };

struct item {
    enum state state;
    uint64_t total; /* bytes in the ring, with this head */
    uint64_t number, stamp, bytes;
    uint64_t since; /* where the heap ended when it was not in the table */
    uint8_t none[16];
};
_Static_assert(sizeof(struct item) == BRIM__TIER_ALIGNMENT, "what follows is aligned");

/* Entries that are written together. */
struct run {
    uint64_t items;   /* of the ring that it ends, those that are not written among them */
    uint64_t ready;   /* of them committed ... */
    uint64_t pending; /* ... with this many bytes */
    uint64_t at;      /* where the heap ends, before they are written */
    uint64_t bytes;   /* that are written there, of `count` entries */
    uint32_t count;
    uint64_t number[RUN_ITEMS];
    uint64_t since[RUN_ITEMS];
    struct brim__cache_entry entry[RUN_ITEMS], before[RUN_ITEMS];
    struct iovec vector[RUN_ITEMS];
};

static uint64_t padded(uint64_t bytes) {
    return brim__align(bytes, BRIM__TIER_ALIGNMENT);
}

static uint64_t item_bytes(uint64_t entry_bytes) {
    return sizeof(struct item) + padded(entry_bytes);
}

/* The largest useful ring. */
static uint64_t ring_bytes(uint64_t entry_bytes) {
    const uint64_t one = item_bytes(entry_bytes);
    return brim__max(one, brim__min(brim__max(one * RING_ENTRIES, LEAST_RING), MOST_RING));
}

uint64_t brim__file_writer_most(uint64_t entry_bytes) {
    return entry_bytes > MOST_ENTRY
               ? 0
               : brim__align(ring_bytes(entry_bytes), brim__page_bytes()) +
                     brim__thread_stack_bytes(STACK_USABLE) + brim__page_bytes();
}

/* --------------------------------------------------------- ring: lock held */

static struct item *item_at(const struct brim__file_writer *writer, uint64_t at) {
    return (struct item *)(void *)(writer->ring.memory + at);
}

static uint64_t behind(const struct brim__file_writer *writer, uint64_t at) {
    const uint64_t next = at + item_at(writer, at)->total;
    return next == writer->ring.bytes ? 0 : next;
}

static struct item *append(struct brim__file_writer *writer, uint64_t total, enum state state) {
    struct item *item = item_at(writer, writer->tail);
    item->state = state;
    item->total = total;
    writer->tail = behind(writer, writer->tail);
    writer->items++;
    return item;
}

/* Reserves an item in one piece; NULL: no room. */
static struct item *reserve(struct brim__file_writer *writer, uint64_t total) {
    if (writer->items == 0) {
        writer->head = writer->tail = 0;
    } else if (writer->tail > writer->head && total > writer->ring.bytes - writer->tail) {
        if (total > writer->head) {
            return NULL;
        }
        append(writer, writer->ring.bytes - writer->tail, PAD);
    }
    const uint64_t end =
        writer->items == 0 || writer->tail > writer->head ? writer->ring.bytes : writer->head;
    return total <= end - writer->tail ? append(writer, total, LENT) : NULL;
}

static void release(struct brim__file_writer *writer, uint64_t items) {
    for (; items > 0; items--) {
        writer->head = behind(writer, writer->head);
        writer->items--;
    }
}

/* Collects the items from the head on that workers have finished. */
static bool collect_run(const struct brim__file_writer *writer, struct run *run) {
    uint64_t at = writer->head;
    run->items = run->ready = run->pending = run->bytes = 0;
    run->at = writer->heap_end;
    run->count = 0;
    while (run->items < writer->items) {
        struct item *item = item_at(writer, at);
        if (item->state == LENT) {
            break;
        }
        if (item->state == READY) {
            const uint64_t bytes = padded(item->bytes);
            if (run->count == RUN_ITEMS || (run->count > 0 && run->pending + bytes > RUN_BYTES)) {
                break;
            }
            run->number[run->count] = item->number;
            run->since[run->count] = item->since;
            run->entry[run->count] =
                (struct brim__cache_entry){ .length = item->bytes, .stamp = item->stamp };
            run->vector[run->count] = (struct iovec){ item + 1, bytes };
            run->count++;
            run->ready++;
            run->pending += bytes;
        }
        run->items++;
        at = behind(writer, at);
    }
    return run->items > 0;
}

/* ------------------------------------------------------- writing: unlocked */

/* How many entries from `first` on have consecutive numbers. */
static uint32_t in_a_row(const struct run *run, uint32_t first) {
    uint32_t count = 1;
    while (first + count < run->count && run->number[first + count] == run->number[first] + count) {
        count++;
    }
    return count;
}

/* Reads the table's entries of the run's numbers. */
static int look(int fd, struct run *run) {
    int error = 0;
    memset(run->before, 0, sizeof run->before);
    for (uint32_t i = 0, count; error == 0 && i < run->count; i += count) {
        size_t got;
        count = in_a_row(run, i);
        error = brim__cache_read(fd, brim__cache_table_at(run->number[i]), &run->before[i],
                                 count * sizeof run->before[0], &got);
    }
    return error;
}

/* Whether its number was stored after the entry was begun, or is in the run before it. */
static bool is_twice(struct brim__file_tier *tier, const struct run *run, uint32_t kept,
                     uint32_t i) {
    const struct brim__cache_entry *before = &run->before[i];
    if (!brim__cache_is_none(before) && before->offset >= run->since[i] &&
        before->stamp == run->entry[i].stamp &&
        atomic_load(brim__file_suspect(tier, run->number[i])) != run->number[i] + 1) {
        return true;
    }
    for (uint32_t j = 0; j < kept; j++) {
        if (run->number[j] == run->number[i] && run->entry[j].stamp == run->entry[i].stamp) {
            return true;
        }
    }
    return false;
}

/* Drops entries that are stored already, and gives the others their places in the heap. */
static void place(struct brim__file_tier *tier, struct run *run) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < run->count; i++) {
        if (is_twice(tier, run, kept, i)) {
            continue;
        }
        run->number[kept] = run->number[i];
        run->before[kept] = run->before[i];
        run->vector[kept] = run->vector[i];
        run->entry[kept] = run->entry[i];
        run->entry[kept].offset = run->at + run->bytes;
        run->bytes += run->vector[kept].iov_len;
        kept++;
    }
    run->count = kept;
}

/* Writes the table's entries of `count` consecutive numbers. */
static int enter(struct brim__file_tier *tier, int fd, const struct run *run, uint32_t first,
                 uint32_t count) {
    struct iovec vector = { (void *)(uintptr_t)&run->entry[first], count * sizeof run->entry[0] };
    const int error = brim__cache_write(fd, brim__cache_table_at(run->number[first]), &vector, 1);
    for (uint32_t i = first; error == 0 && i < first + count; i++) {
        uint64_t suspected = run->number[i] + 1;
        if (brim__cache_is_none(&run->before[i])) {
            atomic_fetch_add(&tier->filled, 1);
        }
        atomic_compare_exchange_strong(brim__file_suspect(tier, suspected - 1), &suspected, 0);
        atomic_fetch_add(&tier->stored, 1);
    }
    return error;
}

/* The bytes first, then the table. */
static int write_run(struct brim__file_tier *tier, struct run *run) {
    const int fd = atomic_load(&tier->fd);
    int error = look(fd, run);
    if (error == 0) {
        place(tier, run);
    }
    if (error != 0 || run->count == 0) {
        return error;
    }
    for (uint32_t i = 0; i < run->count; i++) {
        struct brim__cache_entry *entry = &run->entry[i];
        uint8_t *data = run->vector[i].iov_base;
        memset(data + entry->length, 0, run->vector[i].iov_len - entry->length);
        entry->checksum = brim__cache_checksum(tier->seed, run->number[i], entry, data);
    }
    error = brim__cache_write(fd, run->at, run->vector, (int)run->count);
    for (uint32_t i = 0, count; error == 0 && i < run->count; i += count) {
        count = in_a_row(run, i);
        error = enter(tier, fd, run, i, count);
    }
    return error;
}

/* lock held, released meanwhile: writes a run; false: there is none. */
static bool write_some(struct brim__file_tier *tier) {
    struct brim__file_writer *writer = &tier->writer;
    struct run run;
    if (writer->writing || !collect_run(writer, &run)) {
        return false;
    }
    if (run.count > 0) {
        const uint64_t before = atomic_load(&tier->stored);
        writer->writing = true;
        brim__unlock(&tier->lock);
        const int error = atomic_load(&tier->writes) ? write_run(tier, &run) : 0;
        if (error != 0) {
            brim__file_tier_off(tier, error);
        }
        brim__lock(&tier->lock);
        writer->writing = false;
        atomic_fetch_add(&tier->dropped, run.count - (atomic_load(&tier->stored) - before));
        if (atomic_load(&tier->writes)) {
            writer->heap_end += run.bytes;
            atomic_store(&tier->known_end, writer->heap_end);
        }
        writer->pending -= run.pending;
        writer->ready -= run.ready;
    }
    release(writer, run.items);
    brim__broadcast(&writer->idle);
    return true;
}

static void *run_thread(void *argument) {
    struct brim__file_tier *tier = argument;
    struct brim__file_writer *writer = &tier->writer;
    brim__lock(&tier->lock);
    while (!writer->quit || writer->drain) {
        if (write_some(tier)) {
            continue;
        }
        if (writer->quit) {
            break;
        }
        const bool ring = writer->ring.memory != NULL;
        if (!brim__wait(&writer->work, &tier->lock, ring ? brim__now() + IDLE_NS : UINT64_MAX) &&
            writer->items == 0) {
            brim__pages_free(&writer->ring);
        }
    }
    brim__unlock(&tier->lock);
    return NULL;
}

/* ------------------------------------------------------------------- memory */

/* lock held: sets the warning, while no entry has been kept yet. */
static void say_short(struct brim__file_tier *tier, uint64_t bytes) {
    char size[BRIM__SIZE_TEXT];
    if (atomic_load(&tier->stored) == 0) {
        tier->writer.poor = true;
        snprintf(tier->warning, sizeof tier->warning,
                 "cache: the budget has no %s left for writing samples: nothing is kept",
                 brim__size_text(bytes, size));
    }
}

/* lock held: makes ring and thread if memory is free. A request takes the lock of the budget's
 * tree, so it is not made for every sample. */
static bool prepare(struct brim__file_tier *tier) {
    struct brim__file_writer *writer = &tier->writer;
    brim_budget *budget = tier->start.budget;
    const bool thread = tier->start.threads && !writer->started;
    const bool ring = writer->ring.memory == NULL;
    const uint64_t now = ring || thread ? brim__now() : 0;
    if (!ring && !thread) {
        return true;
    }
    if (now < writer->take_ns || tier->start.most_bytes > MOST_ENTRY) {
        return false;
    }
    writer->take_ns = now + TAKE_AGAIN_NS;
    const uint64_t page = brim__page_bytes();
    const uint64_t stack = thread ? brim__thread_stack_bytes(STACK_USABLE) : 0;
    const uint64_t least = ring ? brim__align(item_bytes(tier->start.most_bytes), page) : 0;
    const uint64_t spare = brim__tier_spare(&tier->start) & ~(page - 1);
    if (stack + least > spare) {
        say_short(tier, stack + least);
        return false;
    }
    const uint64_t most = brim__align(ring_bytes(tier->start.most_bytes), page);
    if (ring && brim__pages_new(&writer->ring, budget, brim__min(most, spare - stack), true,
                                false) != BRIM_OK) {
        return false;
    }
    if (thread) {
        writer->started =
            brim__pages_new(&writer->stack, budget, stack, true, true) == BRIM_OK &&
            brim__thread_start(&writer->thread, writer->stack.memory, writer->stack.bytes,
                               "brim cache", run_thread, tier) == BRIM_OK;
        if (!writer->started) {
            brim__pages_free(&writer->stack);
            brim__pages_free(&writer->ring);
            return false;
        }
    }
    if (writer->poor) {
        writer->poor = false;
        tier->warning[0] = '\0';
    }
    return true;
}

/* Frees all memory. Committed entries are written first (drain) or dropped. */
static uint64_t put_away(struct brim__file_tier *tier, bool drain) {
    struct brim__file_writer *writer = &tier->writer;
    brim__lock(&tier->lock);
    writer->closing = writer->quit = true;
    writer->drain = drain;
    brim__broadcast(&writer->work);
    while (writer->lent > 0 || (writer->writing && !writer->started)) {
        brim__wait(&writer->idle, &tier->lock, UINT64_MAX);
    }
    brim__unlock(&tier->lock);
    if (writer->started) { /* no other thread changes it now */
        brim__thread_join(writer->thread);
    }
    brim__lock(&tier->lock);
    for (; writer->items > 0; release(writer, 1)) {
        if (item_at(writer, writer->head)->state == READY) {
            atomic_fetch_add(&tier->dropped, 1);
        }
    }
    const uint64_t bytes = writer->ring.bytes + writer->stack.bytes;
    writer->pending = writer->ready = 0;
    writer->take_ns = brim__now() + TAKE_AGAIN_NS; /* others need the memory now */
    writer->started = writer->closing = writer->quit = writer->drain = false;
    brim__pages_free(&writer->ring);
    brim__pages_free(&writer->stack);
    brim__unlock(&tier->lock);
    return bytes;
}

static uint64_t revoke(void *holder, brim_memory kind, uint64_t wanted, bool firmly) {
    (void)kind;   /* nothing else is elastic */
    (void)wanted; /* part of a ring cannot be freed */
    (void)firmly;
    return put_away(holder, false);
}

brim_status brim__file_writer_init(struct brim__file_tier *tier) {
    brim_status status = brim__condition_init(&tier->writer.work);
    if (status != BRIM_OK) {
        return status;
    }
    status = brim__condition_init(&tier->writer.idle);
    if (status != BRIM_OK) {
        brim__condition_fini(&tier->writer.work);
        return status;
    }
    brim__budget_on_revoke(tier->start.budget, revoke, tier);
    return BRIM_OK;
}

void brim__file_writer_fini(struct brim__file_tier *tier) {
    brim__budget_on_revoke(tier->start.budget, NULL, NULL);
    put_away(tier, true);
    brim__condition_fini(&tier->writer.idle);
    brim__condition_fini(&tier->writer.work);
}

/* -------------------------------------------------------------------- rooms */

bool brim__file_writer_begin(struct brim__file_tier *tier, uint64_t number, uint64_t stamp,
                             uint64_t bytes, uint64_t since, struct brim__room *room) {
    struct brim__file_writer *writer = &tier->writer;
    struct item *item = NULL;
    brim__lock(&tier->lock);
    const uint64_t taken = writer->heap_end + writer->pending;
    if (taken > tier->limit || padded(bytes) > tier->limit - taken) {
        writer->full = true;
    } else if (!writer->closing && prepare(tier)) {
        item = reserve(writer, sizeof *item + padded(bytes));
    }
    if (item != NULL) {
        item->number = number;
        item->stamp = stamp;
        item->bytes = bytes;
        item->since = since;
        writer->lent++;
        writer->pending += padded(bytes);
    }
    brim__unlock(&tier->lock);
    if (item == NULL) {
        return false;
    }
    *room = (struct brim__room){
        .data = (uint8_t *)(item + 1), .bytes = bytes, .number = number, .stamp = stamp, .pin = item
    };
    return true;
}

void brim__file_writer_end(struct brim__file_tier *tier, struct brim__room *room, bool keep) {
    struct brim__file_writer *writer = &tier->writer;
    struct item *item = room->pin;
    brim__lock(&tier->lock);
    assert(item->state == LENT && writer->lent > 0);
    item->state = keep ? READY : GONE;
    writer->pending -= keep ? 0 : padded(item->bytes);
    writer->ready += keep;
    writer->lent--;
    if (writer->started) {
        brim__signal(&writer->work);
    } else {
        while (write_some(tier)) {
        }
    }
    brim__broadcast(&writer->idle);
    brim__unlock(&tier->lock);
    room->pin = NULL;
}
