/*
 * `cache device`: samples that are copied to the device once and gathered there in every
 * epoch: the same batches in every limit, nothing copied twice, and memory that gives way.
 *
 * On OpenCL; without a device of it, all of this skips. Where batches are delivered on the
 * host, the same stage keeps samples in memory.
 */
#include "support/support.h"

#include "engine/loader.h"
#include "engine/resident.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define SAMPLES 61
#define ROW     (12 * 10 * 3)

static bool has_device(void) {
    uint32_t count = 0;
    return brim_device_count(BRIM_DEVICE_OPENCL, &count) == BRIM_OK && count > 0;
}

#define NEED_DEVICE()                                                  \
    do {                                                               \
        if (!has_device()) {                                           \
            print_message("no device of OpenCL: %s\n", brim_detail()); \
            skip();                                                    \
        }                                                              \
    } while (0)

static int begin(void **state) {
    static uint8_t pixels[SAMPLES * ROW];
    static int64_t labels[SAMPLES];
    if (begin_tests(state) != 0) {
        return -1;
    }
    fill_random(pixels, sizeof pixels, 1);
    for (int64_t i = 0; i < SAMPLES; i++) {
        labels[i] = i * i;
    }
    write_npy("images.npy", BRIM_DTYPE_U8, 4, (const int64_t[]){ SAMPLES, 12, 10, 3 }, pixels);
    write_npy("labels.npy", BRIM_DTYPE_I64, 1, (const int64_t[]){ SAMPLES }, labels);
    return 0;
}

static const char *const stages[] = {
    "shuffle seed=3",
    "shuffle seed=3 | normalize imagenet on=x | layout chw on=x",
    "normalize unit on=x | cast float16 on=x",
    "shuffle seed=9 | take 37 | normalize imagenet on=x",
    "repeat 2 | shuffle seed=9 | normalize imagenet on=x",
};
static const char *const endings[] = { "batch 8", "batch 7 remainder=pad", "batch 16 micro=3" };

static void pipeline_of(char text[TEXT_BYTES], size_t stage, size_t ending, const char *cache) {
    const struct path images = in_directory("images.npy"), labels = in_directory("labels.npy");
    format_text(text, "zip (npy %s) (npy %s name=label) | %s | %s%s", images.text, labels.text,
                stages[stage], cache, endings[ending]);
}

static struct digest run(const char *text, const struct how *how, unsigned epochs,
                         brim_cache_stats *stats, uint64_t copied[]) {
    struct session session;
    struct digest digest = { 0 };
    session_open(&session, text, how);
    for (unsigned i = 0; i < epochs; i++) {
        brim_stats now = BRIM_STATS_INIT;
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
        assert_int_equal(brim_loader_read_stats(session.loader, &now), BRIM_OK);
        if (copied != NULL) {
            copied[i] = now.copied_bytes;
        }
    }
    if (stats != NULL) {
        *stats = (brim_cache_stats)BRIM_CACHE_STATS_INIT;
        assert_int_equal(brim_loader_read_cache_stats(session.loader, 0, stats), BRIM_OK);
    }
    session_close(&session);
    return digest;
}

static void assert_same(struct digest a, struct digest b, const char *text) {
    if (a.value != b.value || a.batches != b.batches) {
        fail_msg("\"%s\" gave other batches", text);
    }
}

static void test_same_batches(void **state) {
    (void)state;
    NEED_DEVICE();
    for (size_t s = 0; s < sizeof stages / sizeof stages[0]; s++) {
        for (size_t e = 0; e < sizeof endings / sizeof endings[0]; e++) {
            char plain[TEXT_BYTES], cached[TEXT_BYTES];
            pipeline_of(plain, s, e, "");
            pipeline_of(cached, s, e, "cache device | ");
            const struct digest wanted = run(plain, &(struct how){ 0 }, 3, NULL, NULL);
            for (int32_t threads = 0; threads <= 2; threads += 2) {
                const struct how how = { .threads = threads, .device = BRIM_DEVICE_OPENCL };
                brim_cache_stats stats;
                assert_same(run(cached, &how, 3, &stats, NULL), wanted, cached);
                assert_true(stats.hits > 0 && stats.filled > 0 && stats.bytes > 0);
                assert_string_equal(stats.tier, "device");
            }
            assert_same(run(cached, &(struct how){ 0 }, 3, NULL, NULL), wanted, cached);
        }
    }
}

static void test_order_behind_it(void **state) {
    (void)state;
    NEED_DEVICE();
    char plain[TEXT_BYTES], text[TEXT_BYTES];
    pipeline_of(plain, 2, 0, "shuffle seed=5 | take 40 | repeat 2 | ");
    pipeline_of(text, 2, 0, "cache device | shuffle seed=5 | take 40 | repeat 2 | ");
    const struct digest wanted = run(plain, &(struct how){ 0 }, 3, NULL, NULL);
    assert_same(
        run(text, &(struct how){ .threads = 1, .device = BRIM_DEVICE_OPENCL }, 3, NULL, NULL),
        wanted, text);
}

static void test_copied_once(void **state) {
    (void)state;
    NEED_DEVICE();
    char text[TEXT_BYTES];
    pipeline_of(text, 1, 0, "cache device | ");
    for (int32_t threads = 0; threads <= 2; threads++) {
        const struct how how = { .threads = threads, .device = BRIM_DEVICE_OPENCL };
        uint64_t copied[4];
        brim_cache_stats stats;
        run(text, &how, 4, &stats, copied);
        /* batches of the second epoch may be under way before the first has ended */
        assert_true(copied[0] >= SAMPLES * (ROW + 8));
        assert_int_equal(copied[2], copied[1]);
        assert_int_equal(copied[3], copied[1]);
        assert_int_equal(stats.filled, SAMPLES);
        assert_true(stats.hits >= 2 * SAMPLES);
    }
}

/* Any limit of the device from the minimum up: what does not fit is copied every time. */
static void test_every_limit(void **state) {
    (void)state;
    NEED_DEVICE();
    char plain[TEXT_BYTES], text[TEXT_BYTES];
    pipeline_of(plain, 1, 0, "");
    pipeline_of(text, 1, 0, "cache device | ");
    const struct digest wanted = run(plain, &(struct how){ 0 }, 3, NULL, NULL);
    struct session session;
    session_open(&session, text,
                 &(struct how){ .device = BRIM_DEVICE_OPENCL, .device_bytes = AT_MINIMUM });
    const brim_plan_info info = *brim_plan_get(brim_loader_plan(session.loader));
    session_close(&session);
    uint64_t filled = 0;
    const uint64_t all =
        info.minimum_device_bytes + 4 * info.device_slot_bytes + SAMPLES * (ROW * 4 + 8 + 64);
    for (uint64_t limit = info.minimum_device_bytes; limit < all; limit += 4096) {
        const struct how how = { .threads = limit % 8192 == 0 ? 1 : 0,
                                 .device = BRIM_DEVICE_OPENCL,
                                 .device_bytes = limit };
        brim_cache_stats stats;
        assert_same(run(text, &how, 3, &stats, NULL), wanted, text);
        filled = stats.filled > filled ? stats.filled : filled;
    }
    assert_int_equal(filled, SAMPLES);
}

/* What is there goes in the middle of an epoch, and comes back. */
static void test_gives_way(void **state) {
    (void)state;
    NEED_DEVICE();
    char plain[TEXT_BYTES], text[TEXT_BYTES];
    pipeline_of(plain, 1, 0, "");
    pipeline_of(text, 1, 0, "cache device | ");
    const struct digest wanted = run(plain, &(struct how){ 0 }, 8, NULL, NULL);
    for (int32_t threads = 0; threads <= 2; threads++) {
        struct session session;
        struct digest digest = { 0 };
        session_open(&session, text,
                     &(struct how){ .threads = threads, .device = BRIM_DEVICE_OPENCL });
        for (unsigned epoch = 0; epoch < 8; epoch++) {
            for (unsigned step = 0; step < 3; step++) {
                brim_cache_stats stats = BRIM_CACHE_STATS_INIT;
                uint64_t bytes;
                assert_false(take_batches(&session, 2, digest_batch, &digest));
                assert_int_equal(brim_runtime_trim(session.runtime, &bytes), BRIM_OK);
                assert_int_equal(brim_loader_read_cache_stats(session.loader, 0, &stats), BRIM_OK);
                assert_true(stats.filled <= SAMPLES);
            }
            assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
        }
        brim_cache_stats stats = BRIM_CACHE_STATS_INIT;
        assert_int_equal(brim_loader_read_cache_stats(session.loader, 0, &stats), BRIM_OK);
        assert_true(stats.stored > SAMPLES); /* again and again */
        session_close(&session);
        assert_same(digest, wanted, text);
    }
}

/* ------------------------------------------------ what of the device it takes */

/* Slots that are large beside a part. */
static void large_batches(char text[TEXT_BYTES], const char *cache) {
    const struct path images = in_directory("images.npy");
    format_text(text, "npy %s | shuffle seed=3 | normalize imagenet | %sbatch 24", images.text,
                cache);
}

/* A device in which the slots that are planned have room, and half of the samples besides. */
static uint64_t limit_for_half(const char *text) {
    struct session session;
    session_open(&session, text, &(struct how){ .device = BRIM_DEVICE_OPENCL });
    const brim_plan_info *info = brim_plan_get(brim_loader_plan(session.loader));
    const uint64_t bytes =
        info->minimum_device_bytes +
        (info->device_slots - info->minimum_device_slots) * info->device_slot_bytes +
        SAMPLES / 2 * brim__loader_residents(session.loader)->start.row_bytes;
    session_close(&session);
    return bytes;
}

static uint64_t free_of(const struct session *session) {
    return brim__budget_free_now(session->loader->budget, session->kind);
}

/* What a slot is kept free for: one, if more are planned. */
static uint64_t spare_of(const struct session *session) {
    const brim_plan_info *info = brim_plan_get(brim_loader_plan(session->loader));
    brim_stats stats = BRIM_STATS_INIT;
    assert_int_equal(brim_loader_read_stats(session->loader, &stats), BRIM_OK);
    return stats.device_slots < info->device_slots ? info->device_slot_bytes : 0;
}

static uint64_t filled_of(const struct session *session) {
    brim_cache_stats stats = BRIM_CACHE_STATS_INIT;
    assert_int_equal(brim_loader_read_cache_stats(session->loader, 0, &stats), BRIM_OK);
    return stats.filled;
}

static void take_epochs(struct session *session, unsigned epochs, struct digest *digest) {
    for (unsigned i = 0; i < epochs; i++) {
        assert_true(take_batches(session, TO_THE_END, digest_batch, digest));
    }
}

/* Slots that are planned and not taken keep nothing from it but the next of them, and are
 * made free when they are wanted. */
static void test_takes_what_is_free(void **state) {
    (void)state;
    NEED_DEVICE();
    char plain[TEXT_BYTES], text[TEXT_BYTES];
    large_batches(plain, "");
    large_batches(text, "cache device | ");
    const struct digest wanted = run(plain, &(struct how){ 0 }, 6, NULL, NULL);
    struct session session;
    struct digest digest = { 0 };
    session_open(
        &session, text,
        &(struct how){ .device = BRIM_DEVICE_OPENCL, .device_bytes = limit_for_half(text) });
    const brim_plan_info *info = brim_plan_get(brim_loader_plan(session.loader));
    const struct brim__residents *tier = brim__loader_residents(session.loader);
    assert_true(info->device_slots >= info->minimum_device_slots + 2);
    take_epochs(&session, 3, &digest);
    /* less than a part is left, and than a row of each part */
    const uint64_t rest = (tier->part_rows + BRIM__GATHER_PARTS) * tier->start.row_bytes;
    assert_true(filled_of(&session) < SAMPLES);
    assert_true(free_of(&session) < spare_of(&session) + rest);

    const uint64_t slots = 2 * info->device_slot_bytes;
    assert_true(free_of(&session) < slots);
    brim__budget_make_free(session.loader->budget, session.kind, slots);
    assert_true(free_of(&session) >= slots);
    take_epochs(&session, 3, &digest);
    session_close(&session);
    assert_same(digest, wanted, text);
}

/* Others hold all of the device but some rows, then nothing. */
static void test_beside_others(void **state) {
    (void)state;
    NEED_DEVICE();
    char text[TEXT_BYTES];
    large_batches(text, "cache device | ");
    struct session session;
    session_open(&session, text, &(struct how){ .device = BRIM_DEVICE_OPENCL });
    const uint64_t limit = brim_plan_get(brim_loader_plan(session.loader))->planned_device_bytes;
    session_close(&session);
    for (uint64_t rows = 0; rows <= 5; rows += 5) {
        struct digest digest = { 0 };
        brim_budget *other;
        session_open(&session, text,
                     &(struct how){ .device = BRIM_DEVICE_OPENCL, .device_bytes = limit });
        const struct brim__residents *tier = brim__loader_residents(session.loader);
        assert_int_equal(brim_budget_new(brim_runtime_budget(session.runtime), "other",
                                         BRIM_UNLIMITED, 0, &other),
                         BRIM_OK);
        const uint64_t left = spare_of(&session) + rows * tier->start.row_bytes;
        const uint64_t held = free_of(&session) - left;
        assert_true(brim__budget_try(other, session.kind, held));
        take_epochs(&session, 1, &digest);
        assert_int_equal(filled_of(&session), rows);
        brim__budget_return(other, session.kind, held);
        brim_budget_free(other);
        take_epochs(&session, 2, &digest);
        /* parts stay as they are, unless there was none */
        assert_int_equal(filled_of(&session), rows > 0 ? BRIM__GATHER_PARTS * rows : SAMPLES);
        session_close(&session);
    }
}

/* A driver that accepts copies which never arrive, and says so only when asked for them. */
static struct {
    struct brim__device_ops ops;
    const struct brim__device_ops *real;
    bool fails;
} driver;

static brim_status write_nothing(struct brim__queue *queue, const struct brim__device_memory *to,
                                 uint64_t offset, const void *from, uint64_t bytes) {
    return driver.fails ? BRIM_OK : driver.real->write(queue, to, offset, from, bytes);
}

static brim_status poll_failure(struct brim__device *device, void *event) {
    return driver.fails ? brim__fail(BRIM_STATUS_DRIVER, "the copy failed on the device")
                        : driver.real->event_poll(device, event);
}

/* What did not come to the device does not stay there: told once, then made again. */
static void test_copies_that_fail(void **state) {
    (void)state;
    NEED_DEVICE();
    const size_t count = sizeof endings / sizeof endings[0];
    for (size_t e = 0; e <= count; e++) {
        char plain[TEXT_BYTES], text[TEXT_BYTES];
        pipeline_of(plain, 1, e % count, "");
        pipeline_of(text, 1, e % count, "cache device | ");
        if (e == count) { /* what a sequencer has made is uploaded again */
            const struct path images = in_directory("images.npy"),
                              labels = in_directory("labels.npy");
            format_text(plain, "zip (npy %s) (npy %s name=label) | filter \"label != 4\" | batch 8",
                        images.text, labels.text);
            memcpy(text, plain, sizeof text);
        }
        const struct digest wanted = run(plain, &(struct how){ 0 }, 3, NULL, NULL);
        struct session session;
        struct digest digest = { 0 };
        brim_batch *batch;
        session_open(&session, text, &(struct how){ .device = BRIM_DEVICE_OPENCL });
        struct brim__device *device = &session.loader->uploader->device;
        driver.real = device->ops;
        driver.ops = *device->ops;
        driver.ops.write = write_nothing;
        driver.ops.event_poll = poll_failure;
        device->ops = &driver.ops;
        driver.fails = true;
        assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch),
                         BRIM_STATUS_DRIVER);
        assert_detail_has("the copy failed on the device");
        driver.fails = false;
        for (unsigned i = 0; i < 3; i++) {
            assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
        }
        device->ops = driver.real;
        session_close(&session);
        assert_same(digest, wanted, text);
    }
}

/* A driver in whose hands copies are lost, who says so when he is asked for them; until then
 * they pass for being under way. */
static struct {
    struct brim__device_ops ops;
    const struct brim__device_ops *real;
    pthread_mutex_t lock; /* guards what follows */
    bool loses;
    void *lost[64]; /* events behind copies that were lost, two for each batch */
    size_t lost_count;
    size_t told; /* from here on the loss is told */
    void *stop;  /* freeing this event takes until it is NULL again */
    bool stopped;
} careless = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void sleep_a_little(void) {
    nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

static bool is_set(const bool *flag) {
    pthread_mutex_lock(&careless.lock);
    const bool set = *flag;
    pthread_mutex_unlock(&careless.lock);
    return set;
}

static void lose(bool loses) {
    pthread_mutex_lock(&careless.lock);
    careless.loses = loses;
    pthread_mutex_unlock(&careless.lock);
}

static void tell(size_t first) {
    pthread_mutex_lock(&careless.lock);
    careless.told = first;
    pthread_mutex_unlock(&careless.lock);
}

static brim_status write_or_lose(struct brim__queue *queue, const struct brim__device_memory *to,
                                 uint64_t offset, const void *from, uint64_t bytes) {
    return is_set(&careless.loses) ? BRIM_OK : careless.real->write(queue, to, offset, from, bytes);
}

static brim_status record_lost(struct brim__queue *queue, void **event) {
    const brim_status status = careless.real->record(queue, event);
    pthread_mutex_lock(&careless.lock);
    if (careless.loses && careless.lost_count < BRIM__COUNT(careless.lost)) {
        careless.lost[careless.lost_count++] = *event;
    }
    pthread_mutex_unlock(&careless.lock);
    return status;
}

static brim_status poll_lost(struct brim__device *device, void *event) {
    bool lost = false, told = false;
    pthread_mutex_lock(&careless.lock);
    for (size_t i = 0; i < careless.lost_count; i++) {
        lost |= careless.lost[i] == event;
        told |= careless.lost[i] == event && i >= careless.told;
    }
    pthread_mutex_unlock(&careless.lock);
    return !lost  ? careless.real->event_poll(device, event)
           : told ? brim__fail(BRIM_STATUS_DRIVER, "the copy was lost")
                  : BRIM_STATUS_TIMEOUT;
}

static void free_lost(struct brim__device *device, void *event) {
    pthread_mutex_lock(&careless.lock);
    for (size_t i = 0; i < careless.lost_count; i++) {
        careless.lost[i] = careless.lost[i] == event ? NULL : careless.lost[i];
    }
    while (careless.stop == event) {
        careless.stopped = true;
        pthread_mutex_unlock(&careless.lock);
        sleep_a_little();
        pthread_mutex_lock(&careless.lock);
    }
    pthread_mutex_unlock(&careless.lock);
    careless.real->event_free(device, event);
}

/* While no thread uploads. */
static void put_driver(brim_loader *loader, const struct brim__device_ops *ops) {
    brim__lock(&loader->mutex);
    while (loader->uploader->running) {
        brim__wait(&loader->ready, &loader->mutex, UINT64_MAX);
    }
    loader->uploader->device.ops = ops;
    brim__unlock(&loader->mutex);
}

static void begin_losing(brim_loader *loader) {
    careless.real = loader->uploader->device.ops;
    careless.ops = *careless.real;
    careless.ops.write = write_or_lose;
    careless.ops.record = record_lost;
    careless.ops.event_poll = poll_lost;
    careless.ops.event_free = free_lost;
    careless.loses = careless.stopped = false;
    careless.lost_count = 0;
    careless.told = BRIM__COUNT(careless.lost);
    careless.stop = NULL;
    put_driver(loader, &careless.ops);
}

static uint32_t count_state(brim_loader *loader, bool there, enum brim__slot_state wanted) {
    brim__lock(&loader->mutex);
    const uint32_t found = brim__ring_count(there ? loader->last : loader->batches, wanted);
    brim__unlock(&loader->mutex);
    return found;
}

/* Until so many slots of the device, or of the host, are in this state. */
static void await_state(brim_loader *loader, bool there, enum brim__slot_state wanted,
                        uint32_t count) {
    for (int tries = 0; count_state(loader, there, wanted) < count; tries++) {
        assert_true(tries < 300000);
        sleep_a_little();
    }
}

/* Until none of the host is. */
static void await_none(brim_loader *loader, enum brim__slot_state state) {
    for (int tries = 0; count_state(loader, false, state) > 0; tries++) {
        assert_true(tries < 300000);
        sleep_a_little();
    }
}

/* Samples whose copies are lost seem to stay on the device until that is told, which may be
 * after the loader went elsewhere: then they are in no batch that was made meanwhile. */
static void lose_copies(const char *text, struct digest wanted, bool while_uploading) {
    struct session session;
    struct digest digest = { 0 };
    brim_batch *batch = NULL;
    session_open(
        &session, text,
        &(struct how){
            .threads = 1, .growth = BRIM_GROWTH_FIXED, .device = BRIM_DEVICE_OPENCL, .slots = 2 });
    brim_loader *loader = session.loader;
    await_state(loader, true, BRIM__SLOT_READY, 2);
    begin_losing(loader);
    lose(true);
    assert_true(brim__resident_revoke(loader, session.kind, UINT64_MAX, true) > 0);
    assert_int_equal(brim_loader_seek(loader, 0, 0), BRIM_OK);
    await_state(loader, true, BRIM__SLOT_READY, 2);
    pthread_mutex_lock(&careless.lock);
    assert_true(careless.lost_count >= 4); /* of a slot and a device slot each */
    careless.loses = false;
    careless.stop = while_uploading ? loader->last->slot[0].device.ready.handle : NULL;
    pthread_mutex_unlock(&careless.lock);
    if (!while_uploading) {
        batch = take_batch(&session);
    }
    assert_int_equal(brim_loader_seek(loader, 0, 0), BRIM_OK);
    if (while_uploading) { /* one whose rows were left out, and who uploads it is half way */
        while (!is_set(&careless.stopped)) {
            sleep_a_little();
        }
        tell(0);
        assert_int_equal(brim_loader_next(loader, 0, &batch), BRIM_STATUS_TIMEOUT);
        pthread_mutex_lock(&careless.lock);
        careless.stop = NULL;
        pthread_mutex_unlock(&careless.lock);
    } else { /* one in a device slot, and another one that finds none */
        await_state(loader, true, BRIM__SLOT_READY, 1);
        await_state(loader, false, BRIM__SLOT_READY, 1);
        tell(0);
        await_none(loader, BRIM__SLOT_LEAVING);
        assert_int_equal(brim_batch_wait(batch, NULL), BRIM_STATUS_DRIVER);
        brim_batch_release(batch);
    }
    for (unsigned i = 0; i < 3; i++) {
        assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    }
    put_driver(loader, careless.real);
    session_close(&session);
    assert_same(digest, wanted, text);
}

/* A batch is lost, and that is told; before anybody asks again the one before it is, too. That
 * is tried again with it, and not told once more. */
static void test_two_losses_are_told_once(void **state) {
    (void)state;
    NEED_DEVICE();
    for (int kept = 0; kept < 2; kept++) {
        char text[TEXT_BYTES];
        struct session session;
        struct digest digest = { 0 };
        brim_batch *batch;
        pipeline_of(text, 1, 0, kept ? "cache device | " : "");
        const struct digest wanted = run(text, &(struct how){ 0 }, 2, NULL, NULL);
        session_open(&session, text,
                     &(struct how){ .threads = 1, .device = BRIM_DEVICE_OPENCL, .slots = 2 });
        brim_loader *loader = session.loader;
        await_state(loader, true, BRIM__SLOT_READY, 2);
        begin_losing(loader);
        lose(true);
        if (kept) {
            assert_true(brim__resident_revoke(loader, session.kind, UINT64_MAX, true) > 0);
        }
        assert_int_equal(brim_loader_seek(loader, 0, 0), BRIM_OK);
        await_state(loader, true, BRIM__SLOT_READY, 2);
        lose(false);
        tell(2);
        assert_int_equal(brim_loader_next(loader, BRIM_FOREVER, &batch), BRIM_STATUS_DRIVER);
        assert_detail_has("the copy was lost");
        tell(0);
        await_none(loader, BRIM__SLOT_LEAVING);
        for (unsigned i = 0; i < 2; i++) {
            assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
        }
        put_driver(loader, careless.real);
        session_close(&session);
        assert_same(digest, wanted, text);
    }
}

static void test_copies_that_are_lost(void **state) {
    (void)state;
    NEED_DEVICE();
    char plain[TEXT_BYTES], text[TEXT_BYTES];
    pipeline_of(plain, 1, 0, "");
    pipeline_of(text, 1, 0, "cache device | ");
    const struct digest wanted = run(plain, &(struct how){ 0 }, 3, NULL, NULL);
    for (int i = 0; i < 4; i++) {
        lose_copies(text, wanted, i % 2);
    }
}

static void test_refusals(void **state) {
    (void)state;
    NEED_DEVICE();
    const struct path images = in_directory("images.npy");
    const struct how how = { .device = BRIM_DEVICE_OPENCL };
    char text[TEXT_BYTES];
    format_text(text, "npy %s | cache device | normalize unit | batch 4", images.text);
    expect_refused(text, &how, BRIM_STATUS_SYNTAX, "comes after 'cache device'");
    format_text(text, "npy %s | random_crop 8 | cache device | batch 4", images.text);
    expect_refused(text, &how, BRIM_STATUS_INVALID, "'random_crop' before it is random");
    format_text(text, "npy %s | cache device verify=hit | batch 4", images.text);
    expect_refused(text, &how, BRIM_STATUS_UNSUPPORTED, "leave verify= out");
    format_text(text, "npy %s | cache device | cache device | batch 4", images.text);
    expect_refused(text, &how, BRIM_STATUS_SYNTAX, "there is one already");
    format_text(text, "mix 1 (npy %s | cache device) | batch 4", images.text);
    expect_refused(text, &how, BRIM_STATUS_SYNTAX, "inside parentheses");
}

static void test_frozen(void **state) {
    (void)state;
    NEED_DEVICE();
    const struct path images = in_directory("images.npy");
    char plain[TEXT_BYTES], text[TEXT_BYTES];
    format_text(plain, "npy %s | random_crop 8 | flip | cache memory freeze=yes | batch 8",
                images.text);
    format_text(text, "npy %s | random_crop 8 | flip | cache device freeze=yes | batch 8",
                images.text);
    const struct digest wanted = run(plain, &(struct how){ 0 }, 3, NULL, NULL);
    assert_same(
        run(text, &(struct how){ .threads = 1, .device = BRIM_DEVICE_OPENCL }, 3, NULL, NULL),
        wanted, text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_batches),
        cmocka_unit_test(test_order_behind_it),
        cmocka_unit_test(test_copied_once),
        cmocka_unit_test(test_every_limit),
        cmocka_unit_test(test_gives_way),
        cmocka_unit_test(test_takes_what_is_free),
        cmocka_unit_test(test_beside_others),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_copies_that_fail),
        cmocka_unit_test(test_copies_that_are_lost),
        cmocka_unit_test(test_two_losses_are_told_once),
        cmocka_unit_test(test_frozen),
    };
    return cmocka_run_group_tests_name("resident", tests, begin, end_tests);
}
