/*
 * test_cache_behind.c: a cache file is written behind those who make samples. A disk that
 * stands still costs entries, which are dropped and counted, and nothing else: batches come,
 * what is there is found, and when the disk goes on, so does filling.
 *
 * The disk is pwritev, which this program has of its own: every call waits at a gate while
 * that is shut.
 */
#include "support/cache_runs.h"
#include "support/memory_data.h"
#include "support/memory_watch.h"

#include "base/platform.h"

#include <inttypes.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#define PATIENCE_NS UINT64_C(60000000000)

/* 2,048 samples of 2 KiB, of which some hundred are on their way at most; an epoch has 128
 * batches. */
#define SAMPLES     UINT64_C(2048)
#define EPOCH       UINT64_C(128)
#define TABLE_BYTES (4096 + SAMPLES * 32)
static const char *const marked =
    "range 2048 | one_hot 2048 on=index | cast uint8 ^| shuffle | batch 16";
static const char *const cache = "cache file=$/1.cache";

/* ----------------------------------------------------------------- the disk */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool shut;
    unsigned let_through; /* calls that still get through a shut gate */
    unsigned waiting;
} disk = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

ssize_t pwritev(int fd, const struct iovec *vectors, int count, off_t offset) {
    ssize_t total = 0;
    pthread_mutex_lock(&disk.mutex);
    if (disk.shut && disk.let_through > 0) {
        disk.let_through--;
    } else {
        disk.waiting++;
        pthread_cond_broadcast(&disk.changed);
        while (disk.shut) {
            pthread_cond_wait(&disk.changed, &disk.mutex);
        }
        disk.waiting--;
    }
    pthread_mutex_unlock(&disk.mutex);
    for (int i = 0; i < count; i++) {
        const ssize_t done = pwrite(fd, vectors[i].iov_base, vectors[i].iov_len, offset + total);
        if (done < 0) {
            return total > 0 ? total : -1;
        }
        total += done;
        if ((size_t)done < vectors[i].iov_len) {
            break;
        }
    }
    return total;
}

static void disk_stop(unsigned let_through) {
    pthread_mutex_lock(&disk.mutex);
    disk.shut = true;
    disk.let_through = let_through;
    pthread_mutex_unlock(&disk.mutex);
}

static void disk_go_on(void) {
    pthread_mutex_lock(&disk.mutex);
    disk.shut = false;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.mutex);
}

static bool disk_is_waited_for(void) {
    pthread_mutex_lock(&disk.mutex);
    const bool waiting = disk.waiting > 0;
    pthread_mutex_unlock(&disk.mutex);
    return waiting;
}

/* -------------------------------------------------------------------- tests */

static void take(struct session *session, uint64_t batches, struct digest *digest) {
    assert_true(take_more(session->loader, batches, digest));
}

/* Batches until so many samples have been written. */
static void take_until_stored(struct session *session, uint64_t wanted, struct digest *digest) {
    const uint64_t deadline = brim__now() + PATIENCE_NS;
    while (cache_stats(session->loader, 0).stored < wanted) {
        take(session, 8, digest);
        if (brim__now() > deadline) {
            const brim_cache_stats stats = cache_stats(session->loader, 0);
            fail_msg("%" PRIu64 " samples were written, not %" PRIu64 ": %s", stats.stored, wanted,
                     stats.warning);
        }
    }
}

/* let_through: 0 stops the writer with samples, 1 with their places in the table. */
static void check_stall(int32_t threads, unsigned let_through, uint64_t stored_before) {
    char text[TEXT_BYTES], without[TEXT_BYTES];
    struct session session;
    struct digest digest = { 0 };
    const struct how how = { .threads = threads };
    remove_file("1.cache");
    with_caches(marked, (struct caches){ { NULL } }, without);
    session_open(&session, with_caches(marked, (struct caches){ { cache } }, text), &how);
    take_until_stored(&session, stored_before, &digest);

    disk_stop(let_through);
    while (!disk_is_waited_for()) {
        take(&session, 1, &digest);
    }
    const brim_cache_stats stopped = cache_stats(session.loader, 0);
    /* nothing that follows waits for the disk: it stands still until the last batch is taken */
    take(&session, 2 * EPOCH, &digest);
    const brim_cache_stats still = cache_stats(session.loader, 0);
    assert_true(disk_is_waited_for());
    assert_int_equal(still.stored, stopped.stored);
    assert_true(still.dropped > stopped.dropped);
    assert_true(still.hits >= (stored_before > 0 ? stopped.hits + 1 : stopped.hits));
    assert_true(still.fills);
    assert_string_equal(still.warning, "");
    assert_int_equal(still.damaged, 0);

    disk_go_on();
    take_until_stored(&session, SAMPLES, &digest);
    take(&session, EPOCH, &digest);
    /* samples came again while they were on their way, and none was written twice */
    assert_int_equal(cache_stats(session.loader, 0).stored, SAMPLES);
    assert_true(file_bytes("1.cache") <= TABLE_BYTES + SAMPLES * SAMPLES);
    assert_same(digest, first_batches(without, digest.batches));
    assert_int_equal(cache_stats(session.loader, 0).damaged, 0);
    session_close(&session);

    brim_cache_stats found;
    uint64_t good, bad;
    assert_int_equal(brim_cache_verify(in_directory("1.cache").text, NULL, NULL, &good, &bad),
                     BRIM_OK);
    assert_int_equal(good, SAMPLES);
    assert_int_equal(bad, 0);
    assert_digest(text, run_epochs(text, &how, 1, &found), first_batches(without, EPOCH));
    assert_int_equal(found.misses, 0);
}

static void test_the_first_sample_waits_for_the_disk(void **state) {
    (void)state;
    check_stall(1, 0, 0);
    check_stall(2, 0, 0);
}

static void test_the_first_place_waits_for_the_disk(void **state) {
    (void)state;
    check_stall(2, 1, 0);
}

static void test_the_disk_stops_half_way(void **state) {
    (void)state;
    check_stall(1, 0, 600);
    check_stall(2, 1, 600);
}

/* The loader is closed while the disk stands still: what is committed is written when it goes
 * on, and what was dropped is missing. */
struct closing {
    struct session session;
    _Atomic bool closed;
};

static void *close_in_thread(void *argument) {
    struct closing *closing = argument;
    brim_loader_close(closing->session.loader);
    closing->closed = true;
    return NULL;
}

static void test_closing_writes_what_is_there(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    const struct how how = { .threads = 2 };
    struct closing closing = { 0 };
    struct digest digest = { 0 };
    pthread_t thread;
    uint64_t good, bad;
    remove_file("1.cache");
    disk_stop(0);
    session_open(&closing.session, with_caches(marked, (struct caches){ { cache } }, text), &how);
    take(&closing.session, EPOCH, &digest);
    const brim_cache_stats stats = cache_stats(closing.session.loader, 0);
    assert_int_equal(stats.stored, 0);
    assert_true(stats.filled > 0 && stats.filled < SAMPLES); /* on their way */
    assert_int_equal(pthread_create(&thread, NULL, close_in_thread, &closing), 0);
    sleep_ns(20000000);
    assert_false(closing.closed);
    disk_go_on();
    pthread_join(thread, NULL);
    brim_runtime_free(closing.session.runtime);
    assert_int_equal(brim_cache_verify(in_directory("1.cache").text, NULL, NULL, &good, &bad),
                     BRIM_OK);
    assert_true(good >= stats.filled);
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_sample_waits_for_the_disk),
        cmocka_unit_test(test_the_first_place_waits_for_the_disk),
        cmocka_unit_test(test_the_disk_stops_half_way),
        cmocka_unit_test(test_closing_writes_what_is_there),
    };
    return cmocka_run_group_tests(tests, begin_memory_tests_in_memory, end_tests);
}
