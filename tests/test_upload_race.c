/*
 * test_upload_race.c: device memory that a consumer still reads is not written.
 *
 * The consumer reads every batch late, on a queue of its own, and releases it right after
 * the read was put there. The queue is held back until the loader has nothing more to
 * give, so that any memory that was used again too early has other bytes when the read
 * is done at last. The same on OpenCL and on the stand-in for CUDA, which also sees
 * memory that is freed, or written by another stream, while something reads it.
 *
 * label: full
 */
#include "upload_util.h"

#include "engine/loader.h"
#include "engine/upload.h"
#include "memory/budget.h"

#include <pthread.h>

#define MOST_BATCHES 64
#define A_MINUTE     INT64_C(60000000000)
#define A_MOMENT     INT64_C(4000000) /* ns: for a batch that must not come */
#define A_LOOK       10000000         /* ns: for something else that must not happen */

static const brim_device both[] = { BRIM_DEVICE_OPENCL, BRIM_DEVICE_CUDA };
static const char *const texts[] = {
    "npy $/images.npy | shuffle seed=3 | batch 4 remainder=keep",
    "npy $/images.npy | shuffle seed=3 | normalize imagenet | layout chw | batch 4 remainder=keep",
    ("zip (npy $/images.npy) (npy $/classes.npy name=label) | filter \"label != 7\" | "
     "shuffle buffer=8KiB seed=3 | normalize unit on=x | batch 4 remainder=keep"),
    ("npy $/images.npy | shuffle seed=3 | normalize imagenet | layout chw | cache device | "
     "batch 4 remainder=keep"),
};
#define TEXTS (sizeof texts / sizeof texts[0])
#define KEPT  3 /* samples stay on the device: from the second epoch on they are gathered */

/* --------------------------------------------------- what must have been read */

/* The first field of all batches of an epoch, or of three where samples stay; or of what was
 * read late of them. */
struct reads {
    char text[TEXT_BYTES];
    size_t count;
    size_t bytes[MOST_BATCHES];
    uint8_t *data[MOST_BATCHES];
};

static struct reads read_on_host(const char *text) {
    struct reads reads = { .count = 0 };
    struct session session;
    brim_batch *batch;
    expand(text, reads.text);
    session_open(&session, reads.text, &(struct how){ .threads = 0 });
    for (int epochs = text == texts[KEPT] ? 3 : 1; epochs > 0; epochs--) {
        while (brim_loader_next(session.loader, BRIM_FOREVER, &batch) == BRIM_OK) {
            const uint64_t bytes = brim_batch_field_at(batch, 0)->bytes;
            assert_true(reads.count < MOST_BATCHES);
            reads.bytes[reads.count] = bytes;
            reads.data[reads.count] = malloc(bytes);
            MUST(brim_batch_copy_field(batch, 0, reads.data[reads.count], bytes));
            reads.count++;
            brim_batch_release(batch);
        }
    }
    session_close(&session);
    return reads;
}

/* Room for as much, with nothing in it that could be right. */
static struct reads begin_reads(const struct reads *truth) {
    struct reads reads = *truth;
    for (size_t i = 0; i < truth->count; i++) {
        reads.data[i] = malloc(truth->bytes[i]);
        assert_non_null(reads.data[i]);
        memset(reads.data[i], 0xA5, truth->bytes[i]);
    }
    return reads;
}

static void end_reads(struct reads *reads) {
    for (size_t i = 0; i < reads->count; i++) {
        free(reads->data[i]);
    }
}

static void assert_read(const struct reads *truth, const struct reads *got, size_t from,
                        size_t until) {
    for (size_t i = from; i < until; i++) {
        if (memcmp(truth->data[i], got->data[i], truth->bytes[i]) != 0) {
            fail_msg("batch %zu of \"%s\" was overtaken: the consumer read other bytes", i,
                     truth->text);
        }
    }
}

/* ---------------------------------------------------------------- late readers */

struct race {
    const struct reads *truth;
    struct reads late;
    struct session session;
    struct consumer consumer;
    bool knows; /* the loader was opened with the consumer's queue */
    size_t taken;
    brim_batch *held[MOST_HELD];
    uint32_t held_count;
};

static void begin_race_with(struct race *race, const struct reads *truth, struct consumer consumer,
                            bool knows, struct how how) {
    /* without its queue OpenCL's loader would live in another context */
    *race = (struct race){
        .truth = truth, .late = begin_reads(truth), .consumer = consumer, .knows = knows
    };
    how.device = consumer.kind;
    how.queue = knows || consumer.kind == BRIM_DEVICE_OPENCL ? race->consumer.queue : NULL;
    session_open(&race->session, truth->text, &how);
}

static void begin_race(struct race *race, const struct reads *truth, brim_device kind, bool knows,
                       struct how how) {
    begin_race_with(race, truth, consumer_new(kind), knows, how);
}

static void end_race(struct race *race) {
    if (race->session.loader != NULL) {
        session_close(&race->session);
    }
    consumer_close(&race->consumer);
    end_reads(&race->late);
    if (race->consumer.kind == BRIM_DEVICE_CUDA) {
        check_standin();
    }
}

static void release_oldest(struct race *race) {
    brim_batch *oldest = race->held[0];
    if (race->knows) {
        brim_batch_release(oldest);
    } else {
        brim_batch_release_after(oldest, race->consumer.queue);
    }
    race->held_count--;
    memmove(race->held, race->held + 1, race->held_count * sizeof race->held[0]);
}

/* The next batch, across the end of an epoch; NULL: BRIM_STATUS_TIMEOUT. */
static brim_batch *take_next(struct race *race, int64_t timeout) {
    brim_batch *batch;
    brim_status status = brim_loader_next(race->session.loader, timeout, &batch);
    if (status == BRIM_STATUS_END) {
        status = brim_loader_next(race->session.loader, timeout, &batch);
    }
    if (status != BRIM_OK && status != BRIM_STATUS_TIMEOUT) {
        fail_msg("next: %s: %s", brim_status_name(status), brim_detail());
    }
    return status == BRIM_OK ? batch : NULL;
}

/* And the consumer's late read of it. */
static bool take_late(struct race *race, int64_t timeout, uint64_t microseconds) {
    brim_batch *batch = take_next(race, timeout);
    if (batch == NULL) {
        return false;
    }
    const brim_field *field = brim_batch_field_at(batch, 0);
    assert_true(race->taken < race->truth->count);
    assert_int_equal(field->bytes, race->truth->bytes[race->taken]);
    if (!race->knows) {
        MUST(brim_batch_wait(batch, race->consumer.queue));
    }
    consumer_read(&race->consumer, field, race->late.data[race->taken], microseconds);
    race->taken++;
    race->held[race->held_count++] = batch;
    if (race->held_count == race->session.hold) {
        release_oldest(race);
    }
    return true;
}

static void release_all(struct race *race) {
    while (race->held_count > 0) {
        release_oldest(race);
    }
}

/* With the queue held, takes all that there is to be had: a batch for each device slot of the
 * plan, however long that takes, and then there is none, since no slot is lent twice. */
static void take_all_that_is_free(struct race *race) {
    const uint32_t most = brim_plan_get(brim_loader_plan(race->session.loader))->device_slots;
    const size_t until = brim__min(race->taken + most, race->truth->count);
    consumer_hold(&race->consumer);
    while (race->taken < until) {
        assert_true(take_late(race, A_MINUTE, 0));
    }
    release_all(race);
    if (race->taken < race->truth->count) {
        assert_null(take_next(race, A_MOMENT));
    }
}

static void test_a_late_reader_reads_the_old_bytes(void **state) {
    const brim_device kind = *(const brim_device *)*state;
    NEED_DEVICE(kind);
    for (size_t t = 0; t < TEXTS; t++) {
        struct reads truth = read_on_host(texts[t]);
        for (unsigned way = 0; way < 27; way++) {
            const uint32_t hold = 1 + way % 3;
            const int32_t threads = (int32_t)(way / 3 % 3);
            const uint32_t slots[] = { hold + 1, 0, (uint32_t)brim__max(2, hold) };
            struct race race;
            begin_race(&race, &truth, kind, (way + t) % 2 == 0,
                       (struct how){ .threads = threads, .hold = hold, .slots = slots[way / 9] });
            while (race.taken < truth.count) {
                const size_t from = race.taken;
                take_all_that_is_free(&race);
                consumer_go_on(&race.consumer);
                consumer_finish(&race.consumer);
                assert_read(&truth, &race.late, from, race.taken);
            }
            end_race(&race);
        }
        end_reads(&truth);
    }
}

static void test_nobody_overtakes_while_seeking_and_trimming(void **state) {
    const brim_device kind = *(const brim_device *)*state;
    NEED_DEVICE(kind);
    struct reads truths[2] = { read_on_host(texts[1]), read_on_host(texts[KEPT]) };
    for (unsigned way = 0; way < 12; way++) {
        const struct reads truth = truths[way / 6];
        struct race race;
        brim_batch *batch;
        begin_race(&race, &truth, kind, way % 2 == 0,
                   (struct how){ .threads = (int32_t)(way % 3), .slots = way % 6 < 3 ? 2 : 0 });
        take_all_that_is_free(&race);
        const size_t taken = race.taken;
        MUST(brim_loader_seek(race.session.loader, 0, 0));
        assert_int_equal(brim_loader_next(race.session.loader, A_MOMENT, &batch),
                         BRIM_STATUS_TIMEOUT);
        MUST(brim_runtime_trim(race.session.runtime, NULL));
        assert_int_equal(brim_loader_next(race.session.loader, A_MOMENT, &batch),
                         BRIM_STATUS_TIMEOUT);
        consumer_go_on(&race.consumer);
        consumer_finish(&race.consumer);
        assert_read(&truth, &race.late, 0, taken);
        race.taken = 0; /* and from the beginning again */
        assert_true(take_late(&race, A_MINUTE, 0));
        release_all(&race);
        consumer_finish(&race.consumer);
        assert_read(&truth, &race.late, 0, 1);
        end_race(&race);
    }
    end_reads(&truths[0]);
    end_reads(&truths[1]);
}

/* The next batches up to number `until`, read back at once and given back for good. */
static void take_at_once(struct race *race, size_t until) {
    while (race->taken < until) {
        const size_t i = race->taken++;
        brim_batch *batch = take_next(race, A_MINUTE);
        assert_non_null(batch);
        MUST(brim_batch_copy_field(batch, 0, race->late.data[i], race->truth->bytes[i]));
        brim_batch_release_after(batch, NULL);
        assert_read(race->truth, &race->late, i, i + 1);
    }
}

/* Batches that were gathered from samples that stay are read late, while these samples go, in
 * part or all of them, and come back, and others are gathered. */
static void test_late_readers_while_samples_come_and_go(void **state) {
    const brim_device kind = *(const brim_device *)*state;
    NEED_DEVICE(kind);
    struct reads truth = read_on_host(texts[KEPT]);
    const size_t steps = truth.count / 3;
    for (unsigned way = 0; way < 6; way++) {
        struct race race;
        begin_race(&race, &truth, kind, true,
                   (struct how){ .threads = (int32_t)(way % 3),
                                 .growth = way < 3 ? BRIM_GROWTH_ON_DEMAND : BRIM_GROWTH_FIXED,
                                 .slots = 4,
                                 .device_bytes = 16 << 20 });
        brim_loader *loader = race.session.loader;
        brim_budget *root = brim_runtime_budget(race.session.runtime);
        const brim_plan_info *info = brim_plan_get(brim_loader_plan(loader));
        cuda_standin_delay(way % 2 * 50);
        take_at_once(&race, steps);
        consumer_hold(&race.consumer);
        for (int i = 0; i < 2; i++) {
            assert_true(take_late(&race, A_MINUTE, 100));
        }
        for (unsigned i = 0; race.taken < truth.count; i++) {
            brim_cache_stats stats = BRIM_CACHE_STATS_INIT;
            MUST(brim_loader_read_cache_stats(loader, 0, &stats));
            if (i % 4 == 0) {
                MUST(brim_runtime_trim(race.session.runtime, NULL));
            } else if (i % 2 == 0) { /* two slots more than the minimum may be read */
                MUST(brim_budget_set(
                    root, race.session.kind,
                    info->minimum_device_bytes + 2 * info->device_slot_bytes + stats.bytes / 2, 0));
                MUST(brim_budget_set(root, race.session.kind, 16 << 20, 0));
            }
            take_at_once(&race, brim__min(race.taken + 1 + i % 4, truth.count));
        }
        brim_cache_stats stats = BRIM_CACHE_STATS_INIT;
        MUST(brim_loader_read_cache_stats(loader, 0, &stats));
        assert_true(stats.stored > UPLOAD_SAMPLES && stats.hits > 0);
        consumer_go_on(&race.consumer);
        consumer_finish(&race.consumer);
        cuda_standin_delay(0);
        assert_read(&truth, &race.late, steps, steps + 2);
        end_race(&race);
    }
    end_reads(&truth);
}

/* Nothing is held: everything goes on at its pace, but reads take longer than all else. */
static void test_slow_readers(void **state) {
    (void)state;
    for (unsigned way = 0; way < 3 * TEXTS; way++) {
        struct reads truth = read_on_host(texts[way % TEXTS]);
        struct race race;
        begin_race(&race, &truth, BRIM_DEVICE_CUDA, way % 2 == 0,
                   (struct how){ .threads = (int32_t)(way / TEXTS),
                                 .hold = 1 + way % 3,
                                 .slots = 2 + way % 3,
                                 .bytes = AT_MINIMUM,
                                 .device_bytes = way % TEXTS == KEPT ? 0 : AT_MINIMUM,
                                 .pinned_bytes = AT_MINIMUM });
        cuda_standin_delay(200);
        while (race.taken < truth.count) {
            assert_true(take_late(&race, A_MINUTE, 3000));
        }
        release_all(&race);
        cuda_standin_delay(0);
        consumer_finish(&race.consumer);
        assert_read(&truth, &race.late, 0, truth.count);
        end_race(&race);
        end_reads(&truth);
    }
}

/* ----------------------------------------------------------- readers at the end */

struct ending {
    brim_loader *loader;
    brim_batch *batch;
    void *queue;
    atomic_bool ended;
};

static void *close_in_thread(void *argument) {
    struct ending *ending = argument;
    brim_loader_close(ending->loader);
    atomic_store(&ending->ended, true);
    return NULL;
}

static void *release_in_thread(void *argument) {
    struct ending *ending = argument;
    brim_batch_release_after(ending->batch, ending->queue);
    atomic_store(&ending->ended, true);
    return NULL;
}

/* Runs it in a thread, which must not come to its end before the consumer goes on. */
static void end_only_after(struct race *race, void *(*run)(void *), struct ending *ending) {
    pthread_t thread;
    atomic_init(&ending->ended, false);
    assert_int_equal(pthread_create(&thread, NULL, run, ending), 0);
    sleep_ns(A_LOOK);
    assert_false(atomic_load(&ending->ended));
    consumer_go_on(&race->consumer);
    assert_int_equal(pthread_join(thread, NULL), 0);
    consumer_finish(&race->consumer);
}

/* The session's loader has been closed by the test. */
static void forget_loader(struct race *race) {
    for (int kind = BRIM_MEMORY_PINNED; kind < BRIM_MEMORY_KINDS; kind++) {
        assert_int_equal(budget_of(race->session.runtime, (brim_memory)kind).charged, 0);
    }
    brim_runtime_free(race->session.runtime);
    race->session.loader = NULL;
}

static void test_closing_waits_for_readers(void **state) {
    const brim_device kind = *(const brim_device *)*state;
    NEED_DEVICE(kind);
    struct reads truth = read_on_host(texts[1]);
    for (unsigned way = 0; way < 6; way++) {
        struct race race;
        begin_race(&race, &truth, kind, way % 2 == 0,
                   (struct how){ .threads = (int32_t)(way % 3), .hold = 1 + way / 2 });
        take_all_that_is_free(&race);
        struct ending ending = { .loader = race.session.loader };
        end_only_after(&race, close_in_thread, &ending);
        assert_read(&truth, &race.late, 0, race.taken);
        forget_loader(&race);
        end_race(&race);
    }
    end_reads(&truth);
}

static void test_releasing_after_closing_waits_for_readers(void **state) {
    const brim_device kind = *(const brim_device *)*state;
    NEED_DEVICE(kind);
    struct reads truth = read_on_host(texts[1]);
    for (unsigned way = 0; way < 3; way++) {
        struct race race;
        begin_race(&race, &truth, kind, true, (struct how){ .threads = (int32_t)way, .hold = 2 });
        brim_batch *batch = take_batch(&race.session);
        brim_loader_close(race.session.loader);
        consumer_hold(&race.consumer);
        consumer_read(&race.consumer, brim_batch_field_at(batch, 0), race.late.data[0], 0);
        struct ending ending = { .batch = batch, .queue = race.consumer.queue };
        end_only_after(&race, release_in_thread, &ending);
        assert_read(&truth, &race.late, 0, 1);
        forget_loader(&race);
        end_race(&race);
    }
    end_reads(&truth);
}

static void test_a_copy_waits_for_its_readers(void **state) {
    const brim_device kind = *(const brim_device *)*state;
    NEED_DEVICE(kind);
    struct reads truth = read_on_host(texts[1]);
    for (int closed = 0; closed < 2; closed++) {
        struct race race;
        brim_batch *copy, *second;
        begin_race(&race, &truth, kind, true, (struct how){ .threads = 1 });
        brim_batch *batch = take_batch(&race.session);
        MUST(brim_batch_copy(batch, &copy));
        brim_batch_release(batch);
        MUST(brim_batch_copy(copy, &second)); /* of a copy */
        brim_batch_release(copy);
        if (closed) {
            brim_loader_close(race.session.loader);
        }
        assert_null(brim_batch_field_at(second, 0)->ready);
        consumer_hold(&race.consumer);
        consumer_read(&race.consumer, brim_batch_field_at(second, 0), race.late.data[0], 0);
        struct ending ending = { .batch = second, .queue = race.consumer.queue };
        end_only_after(&race, release_in_thread, &ending);
        assert_read(&truth, &race.late, 0, 1);
        if (!closed) {
            brim_loader_close(race.session.loader);
        }
        forget_loader(&race); /* copies are more than what was planned */
        end_race(&race);
    }
    end_reads(&truth);
}

struct releasing {
    pthread_barrier_t *start;
    brim_batch *batch[3];
    void *queue;
};

static void *release_all_in_thread(void *argument) {
    struct releasing *releasing = argument;
    pthread_barrier_wait(releasing->start);
    for (int i = 0; i < 3; i++) {
        brim_batch_release_after(releasing->batch[i], releasing->queue);
    }
    return NULL;
}

/* Batches come back while another thread closes, with their copies still under way. */
static void test_releasing_while_closing(void **state) {
    const brim_device kind = *(const brim_device *)*state;
    NEED_DEVICE(kind);
    struct reads truth = read_on_host(texts[1]);
    for (unsigned way = 0; way < (is_thread_sanitized() ? 12u : 30u); way++) {
        struct race race;
        pthread_barrier_t start;
        pthread_t thread;
        begin_race(
            &race, &truth, kind, true,
            (struct how){ .threads = (int32_t)(way % 2), .hold = 3, .growth = BRIM_GROWTH_FIXED });
        cuda_standin_delay(way % 3 * 200);
        struct releasing releasing = { .start = &start,
                                       .queue = way % 4 < 2 ? race.consumer.queue : NULL };
        for (int i = 0; i < 3; i++) {
            releasing.batch[i] = take_batch(&race.session);
        }
        assert_int_equal(pthread_barrier_init(&start, NULL, 2), 0);
        assert_int_equal(pthread_create(&thread, NULL, release_all_in_thread, &releasing), 0);
        pthread_barrier_wait(&start);
        brim_loader_close(race.session.loader);
        assert_int_equal(pthread_join(thread, NULL), 0);
        pthread_barrier_destroy(&start);
        cuda_standin_delay(0);
        brim__budget_check(brim_runtime_budget(race.session.runtime));
        forget_loader(&race);
        end_race(&race);
    }
    end_reads(&truth);
}

/* -------------------------------------------------------------------- queues */

/* Brim's own copies are slow, and the consumer does not wait for them on the host. */
static void test_what_is_queued_after_next_sees_the_batch(void **state) {
    const brim_device kind = *(const brim_device *)*state;
    NEED_DEVICE(kind);
    for (unsigned way = 0; way < 6; way++) {
        struct reads truth = read_on_host(texts[way % TEXTS]);
        struct race race;
        begin_race(&race, &truth, kind, way % 2 == 0, (struct how){ .threads = (int32_t)way / 2 });
        cuda_standin_delay(1000);
        while (race.taken < truth.count) {
            assert_true(take_late(&race, A_MINUTE, 0));
        }
        release_all(&race);
        cuda_standin_delay(0);
        consumer_finish(&race.consumer);
        assert_read(&truth, &race.late, 0, truth.count);
        end_race(&race);
        end_reads(&truth);
    }
}

static void test_waiting_on_the_host(void **state) {
    const brim_device kind = *(const brim_device *)*state;
    NEED_DEVICE(kind);
    struct reads truth = read_on_host(texts[1]);
    struct race race;
    begin_race(&race, &truth, kind, false, (struct how){ .threads = 0 });
    cuda_standin_delay(1000);
    while (race.taken < truth.count) {
        brim_batch *batch = take_batch(&race.session);
        MUST(brim_batch_wait(batch, NULL));
        const brim_field *field = brim_batch_field_at(batch, 0);
        consumer_read(&race.consumer, field, race.late.data[race.taken++], 0);
        consumer_finish(&race.consumer);
        brim_batch_release_after(batch, NULL); /* nobody reads it any more */
    }
    cuda_standin_delay(0);
    assert_read(&truth, &race.late, 0, truth.count);
    end_race(&race);
    end_reads(&truth);
}

/* Of two consumers only the one that goes on gives its memory back. */
static void test_two_queues(void **state) {
    const brim_device kind = *(const brim_device *)*state;
    NEED_DEVICE(kind);
    struct reads truth = read_on_host(texts[1]);
    struct race race;
    begin_race(&race, &truth, kind, false, (struct how){ .threads = 1, .slots = 2 });
    struct consumer other = consumer_beside(&race.consumer);
    consumer_hold(&race.consumer);
    consumer_hold(&other);
    for (int i = 0; i < 2; i++) {
        const struct consumer *reader = i == 0 ? &race.consumer : &other;
        brim_batch *batch = take_batch(&race.session);
        MUST(brim_batch_wait(batch, reader->queue));
        consumer_read(reader, brim_batch_field_at(batch, 0), race.late.data[race.taken++], 0);
        brim_batch_release_after(batch, reader->queue);
    }
    brim_batch *batch;
    assert_int_equal(brim_loader_next(race.session.loader, A_MOMENT, &batch), BRIM_STATUS_TIMEOUT);
    consumer_go_on(&other);
    MUST(brim_loader_next(race.session.loader, A_MINUTE, &batch)); /* in the memory of the 2nd */
    assert_int_equal(brim_batch_get(batch)->step, 2);
    MUST(brim_batch_wait(batch, other.queue));
    consumer_read(&other, brim_batch_field_at(batch, 0), race.late.data[race.taken++], 0);
    brim_batch_release_after(batch, other.queue);
    consumer_finish(&other);
    MUST(brim_loader_next(race.session.loader, A_MINUTE, &batch)); /* once more */
    brim_batch_release(batch);
    consumer_go_on(&race.consumer);
    consumer_finish(&race.consumer);
    assert_read(&truth, &race.late, 0, race.taken);
    consumer_close_beside(&other);
    end_race(&race);
    end_reads(&truth);
}

/* OpenCL: the consumer's queue may work in any order but for barriers. */
static void test_a_queue_that_works_out_of_order(void **state) {
    (void)state;
    NEED_DEVICE(BRIM_DEVICE_OPENCL);
    struct consumer consumer = consumer_out_of_order();
    if (consumer.queue == NULL) {
        print_message("skipped: the device has no queues that work out of order\n");
        skip();
    }
    for (size_t t = 0; t < TEXTS; t++) {
        struct reads truth = read_on_host(texts[t]);
        for (unsigned way = 0; way < 4; way++) {
            struct race race;
            begin_race_with(&race, &truth, consumer_out_of_order(), way % 2 == 0,
                            (struct how){ .threads = (int32_t)(way / 2), .hold = 1 + way % 3 });
            /* a mark is behind all that reads */
            while (race.taken < truth.count / 2) {
                const size_t from = race.taken;
                take_all_that_is_free(&race);
                consumer_go_on(&race.consumer);
                consumer_finish(&race.consumer);
                assert_read(&truth, &race.late, from, race.taken);
            }
            end_race(&race);

            /* what reads is behind a copy that does not begin yet */
            begin_race_with(&race, &truth, consumer_out_of_order(), way % 2 == 0,
                            (struct how){ .threads = 0, .hold = 1 + way % 3 });
            struct consumer own = { .kind = BRIM_DEVICE_OPENCL,
                                    .context = race.consumer.context,
                                    .queue = race.session.loader->uploader->queue.handle };
            consumer_hold(&own);
            assert_true(take_late(&race, A_MINUTE, 0));
            sleep_ns(A_LOOK);
            consumer_go_on(&own);
            release_all(&race);
            consumer_finish(&race.consumer);
            assert_read(&truth, &race.late, 0, 1);
            end_race(&race);
        }
        end_reads(&truth);
    }
    consumer_close(&consumer);
}

/* A queue that cannot use the batches is refused; released on one, a batch's memory is not
 * used again, and the loader has another. */
static void test_a_foreign_queue(void **state) {
    const brim_device kind = *(const brim_device *)*state;
    NEED_DEVICE(kind);
    struct reads truth = read_on_host(texts[1]);
    const struct digest wanted = run_epochs(truth.text, &(struct how){ .threads = 0 }, 2);
    struct session session;
    struct digest digest = { 0 };
    struct consumer consumer = { .kind = kind };
    CUcontext context = NULL, popped;
    const char *says = kind == BRIM_DEVICE_CUDA ? "is not of the primary context of cuda:0"
                                                : "of another OpenCL context";
    if (kind == BRIM_DEVICE_CUDA) {
        assert_int_equal(cuDevicePrimaryCtxRetain(&context, 1), CUDA_SUCCESS);
        assert_int_equal(cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
        consumer = consumer_beside(&consumer);
        expect_refused(truth.text, &(struct how){ .device = kind, .queue = consumer.queue },
                       BRIM_STATUS_INVALID, says);
    } else {
        consumer = consumer_new(kind);
    }
    session_open(&session, truth.text,
                 &(struct how){ .threads = 1, .device = kind, .device_bytes = AT_MINIMUM });
    for (int i = 0; i < 40; i++) {
        brim_batch *batch;
        if (brim_loader_next(session.loader, A_MINUTE, &batch) == BRIM_STATUS_END) {
            MUST(brim_loader_next(session.loader, A_MINUTE, &batch));
        }
        assert_int_equal(brim_batch_wait(batch, consumer.queue), BRIM_STATUS_INVALID);
        assert_detail_has(says);
        brim_batch_release_after(batch, consumer.queue);
    }
    MUST(brim_loader_seek(session.loader, 0, 0));
    for (int i = 0; i < 2; i++) {
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    }
    assert_same(digest, wanted);
    session_close(&session);
    if (kind == BRIM_DEVICE_CUDA) {
        consumer_close_beside(&consumer);
        assert_int_equal(cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
        assert_int_equal(cuDevicePrimaryCtxRelease_v2(1), CUDA_SUCCESS);
        check_standin();
    } else {
        consumer_close(&consumer);
    }
    end_reads(&truth);
}

/* One test that failed says nothing about the next. */
static int reset(void **state) {
    (void)state;
    cuda_standin_reset();
    return 0;
}

#define ON_BOTH(test)                                                    \
    { #test " on OpenCL", test, reset, NULL, (void *)&both[0] }, {       \
#test " on CUDA's stand-in", test, reset, NULL, (void *)&both[1] \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BOTH(test_a_late_reader_reads_the_old_bytes),
        ON_BOTH(test_nobody_overtakes_while_seeking_and_trimming),
        ON_BOTH(test_late_readers_while_samples_come_and_go),
        cmocka_unit_test_setup(test_slow_readers, reset),
        ON_BOTH(test_closing_waits_for_readers),
        ON_BOTH(test_releasing_after_closing_waits_for_readers),
        ON_BOTH(test_a_copy_waits_for_its_readers),
        ON_BOTH(test_releasing_while_closing),
        ON_BOTH(test_what_is_queued_after_next_sees_the_batch),
        ON_BOTH(test_waiting_on_the_host),
        ON_BOTH(test_two_queues),
        cmocka_unit_test_setup(test_a_queue_that_works_out_of_order, reset),
        ON_BOTH(test_a_foreign_queue),
    };
    return cmocka_run_group_tests_name("upload_race", tests, begin_upload_tests, end_tests);
}
