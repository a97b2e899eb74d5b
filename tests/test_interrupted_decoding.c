/*
 * test_interrupted_decoding.c: images that take seconds to decode do not keep whoever wants
 * to interrupt or close; what was interrupted is made again with the same bytes, and is
 * neither a bad sample nor in any cache.
 *
 * The image is a JPEG of very many scans, most of which do nothing (jpeg_util.h).
 */
#include "jpeg_util.h"

#include "engine/loader.h"
#include "support/memory_watch.h"

#include <pthread.h>
#include <stdatomic.h>

/* Of the processor, which does not count what else the machine does: well below the 5 s that
 * the slow image takes. */
#define SOON_NS   UINT64_C(2000000000)
#define SLOW_TEXT "max_pixels=4000000000 room=40MiB"

static struct bytes slow, brief;

static int begin(void **state) {
    if (begin_tests(state) != 0) {
        return -1;
    }
    slow = make_bomb(4000, 4000, 1000);
    brief = make_bomb(1600, 1600, 200);
    write_file("slow.jpg", slow.data, slow.count);
    write_file("brief.jpg", brief.data, brief.count);
    char text[TEXT_BYTES];
    const char *lines = format_text(text, "path\n%s\n%s\n", in_directory("brief.jpg").text,
                                    in_directory("brief.jpg").text);
    write_file("brief.csv", lines, strlen(lines));
    lines = format_text(text, "path\n%s\n", in_directory("slow.jpg").text);
    write_file("slow.csv", lines, strlen(lines));
    return 0;
}

static int end(void **state) {
    free(slow.data);
    free(brief.data);
    return end_tests(state);
}

/* ------------------------------------------------------- from other threads */

struct caller {
    brim_loader *loader;
    brim_status status;
    atomic_bool returned;
};

static void *call_next(void *argument) {
    struct caller *caller = argument;
    brim_batch *batch;
    caller->status = brim_loader_next(caller->loader, BRIM_FOREVER, &batch);
    atomic_store(&caller->returned, true);
    return NULL;
}

/* Some thread has been making the image for a while, and the caller waits for it. */
static void await_decoding(brim_loader *loader) {
    for (bool waits = false; !waits;) {
        bool busy = false;
        brim__lock(&loader->mutex);
        for (uint32_t i = 0; i < loader->rows->cap; i++) {
            busy |= loader->rows->slot[i].busy > 0;
        }
        waits = busy && loader->in_call;
        brim__unlock(&loader->mutex);
        sleep_ns(1000000);
    }
    sleep_ns(100000000);
}

/* Another thread calls next, and waits in it for the image. */
static pthread_t begin_next(struct caller *caller) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, call_next, caller), 0);
    await_decoding(caller->loader);
    return thread;
}

static const char *slow_text(char text[TEXT_BYTES]) {
    return format_text(text,
                       "files %s probe=no index=beside | decode " SLOW_TEXT
                       " | resize 8 8 | batch 1 on_error=skip",
                       in_directory("slow.csv").text);
}

static void test_interrupt(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    for (int32_t threads = 0; threads <= 2; threads += 2) {
        brim_runtime *runtime = make_runtime(threads, 0);
        const brim_open_options options = open_options("slow");
        struct session session = open_on(runtime, slow_text(text), &options);
        for (int again = 0; again < 2; again++) {
            struct caller caller = { .loader = session.loader };
            const pthread_t thread = begin_next(&caller);
            assert_false(atomic_load(&caller.returned));
            const uint64_t before = used_ns();
            assert_int_equal(brim_loader_interrupt(session.loader), BRIM_OK);
            pthread_join(thread, NULL);
            assert_true(used_ns() - before < SOON_NS);
            assert_int_equal(caller.status, BRIM_STATUS_INTERRUPTED);
        }
        brim_stats stats = BRIM_STATS_INIT;
        assert_int_equal(brim_loader_read_stats(session.loader, &stats), BRIM_OK);
        assert_int_equal(stats.skipped, 0);
        const uint64_t before = used_ns();
        brim_loader_close(session.loader);
        assert_true(used_ns() - before < SOON_NS);
        brim_runtime_free(runtime);
    }
}

static void test_close(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    for (int32_t threads = 0; threads <= 2; threads += 2) {
        brim_runtime *runtime = make_runtime(threads, 0);
        const brim_open_options options = open_options("slow");
        struct session session = open_on(runtime, slow_text(text), &options);
        struct caller caller = { .loader = session.loader };
        const pthread_t thread = begin_next(&caller);
        const uint64_t before = used_ns();
        brim_loader_close(session.loader);
        pthread_join(thread, NULL);
        assert_true(used_ns() - before < SOON_NS);
        assert_int_equal(caller.status, BRIM_STATUS_CLOSED);
        brim_runtime_free(runtime);
    }
}

/* --------------------------------------------------------- by the caller's word */

/* Says stop each time it has been asked twice. */
static int stop_often(void *user) {
    unsigned *asked = user;
    return ++*asked % 2 == 0;
}

static int never_stop(void *user) {
    (void)user;
    return 0;
}

/* Takes the epoch, with as many interrupts as come; returns how many. */
static unsigned take_all(brim_loader *loader, struct digest *digest) {
    unsigned interrupted = 0;
    for (;;) {
        brim_batch *batch;
        const brim_status status = brim_loader_next(loader, BRIM_FOREVER, &batch);
        if (status == BRIM_STATUS_END) {
            return interrupted;
        }
        if (status == BRIM_STATUS_INTERRUPTED) {
            interrupted++;
            /* only so often: an image is made from its beginning each time */
            loader->consumer.asked = interrupted == 3 ? never_stop : loader->consumer.asked;
            continue;
        }
        assert_int_equal(status, BRIM_OK);
        digest_batch(digest, batch);
        brim_batch_release(batch);
    }
}

struct feed {
    unsigned next;
};

static int pull(void *user, brim_value *outputs, size_t count, char *why, size_t why_bytes) {
    struct feed *feed = user;
    (void)count, (void)why, (void)why_bytes;
    if (feed->next == 3) {
        return 0;
    }
    feed->next++;
    memcpy(outputs[0].data, brief.data, brief.count);
    outputs[0].shape[0] = (int64_t)brief.count;
    return 1;
}

static void test_made_again(void **state) {
    (void)state;
    static const char *const texts[] = {
        "files %s probe=no index=beside | decode room=8MiB | resize 9 7 | batch 2 on_error=skip",
        "files %s probe=no index=beside | decode room=8MiB | resize 9 7 | cache | batch 2 "
        "on_error=replace",
        "files %s index=beside | decode | gaussian_blur 3 | resize 9 7 | batch 1 remainder=keep",
        "stream @feed | decode room=8MiB | resize 9 7 | batch 2 on_error=skip",
    };
    for (size_t i = 0; i < BRIM__COUNT(texts); i++) {
        struct digest digest[2] = { 0 };
        for (int interrupts = 0; interrupts < 2; interrupts++) {
            char text[TEXT_BYTES];
            unsigned asked = 0;
            struct feed feed = { 0 };
            brim_runtime *runtime = make_runtime(0, 0);
            brim_open_options options = open_options("brief");
            const brim_field_spec field = { .size = sizeof field,
                                            .name = "image",
                                            .dtype = BRIM_DTYPE_U8,
                                            .rank = 1,
                                            .shape = { (int64_t)brief.count },
                                            .form = BRIM_FORM_BYTES };
            const brim_binding binding = { .size = sizeof binding,
                                           .name = "feed",
                                           .kind = BRIM_BINDING_STREAM,
                                           .user = &feed,
                                           .fields = &field,
                                           .field_count = 1,
                                           .pull = pull };
            options.bindings = &binding;
            options.binding_count = i == 3;
            options.interrupted = interrupts == 1 ? stop_often : NULL;
            options.interrupted_user = &asked;
            struct session session = open_on(
                runtime, format_text(text, texts[i], in_directory("brief.csv").text), &options);
            const unsigned met = take_all(session.loader, &digest[interrupts]);
            assert_int_equal(met, interrupts == 1 ? 3 : 0);
            brim_stats stats = BRIM_STATS_INIT;
            assert_int_equal(brim_loader_read_stats(session.loader, &stats), BRIM_OK);
            assert_int_equal(stats.skipped + stats.replaced, 0);
            assert_int_equal(stats.samples, i == 3 ? 3 : 2);
            brim_loader_close(session.loader);
            brim_runtime_free(runtime);
        }
        assert_same(digest[0], digest[1]);
    }
}

/* ------------------------------------------------------------------ the bound */

static void test_too_many_scans(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    brim_runtime *runtime = make_runtime(0, 0);
    const brim_open_options options = open_options("bomb");
    struct session session =
        open_on(runtime,
                format_text(text, "files %s index=beside | decode | resize 8 8 | batch 1",
                            in_directory("slow.csv").text),
                &options);
    brim_batch *batch;
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_STATUS_CORRUPT);
    assert_detail_has("slow.csv");
    assert_detail_has("4000x4000 pixels and more than 268 scans");
    brim_loader_close(session.loader);
    brim_runtime_free(runtime);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_made_again),
        cmocka_unit_test(test_too_many_scans),
    };
    return cmocka_run_group_tests_name("interrupted_decoding", tests, begin, end);
}
