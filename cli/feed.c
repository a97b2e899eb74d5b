/*
 * feed.c: the loop around brim_loader_next.
 *
 * The signal handler sets a flag and nothing else. The flag is looked at before
 * each batch, and waiting is cut into pieces of a fifth of a second, so that it
 * is seen soon even when no batch comes; the library asks for it while it makes samples on
 * this thread. A second signal ends the process.
 */
#include "feed.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_NS 200000000

static volatile sig_atomic_t signal_seen;

static void on_signal(int number) {
    signal_seen = number;
}

int feed_signal(void) {
    return signal_seen;
}

int feed_progress(void *user, const brim_progress *work) {
    progress_work(user, work);
    return feed_signal() != 0 ? BRIM_ANSWER_STOP : BRIM_ANSWER_DONE;
}

/* A signal that the parent had ignored (nohup) stays ignored. */
static void watch(int number) {
    struct sigaction before;
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        struct sigaction action = { .sa_flags = (int)SA_RESETHAND };
        action.sa_handler = on_signal;
        sigemptyset(&action.sa_mask);
        sigaction(number, &action, NULL);
    }
}

void feed_watch(void) {
    watch(SIGINT);
    watch(SIGTERM);
}

brim_status feed_open(struct feed *feed, struct session *session) {
    const size_t hold = (size_t)session->options->hold;
    *feed = (struct feed){ .hold = hold, .begun = now_seconds() };
    feed_watch();
    const brim_status status = session_load(session, &feed->loader);
    /* after opening, which refuses what no budget can hold */
    if (status == BRIM_OK) {
        feed->held = take(hold, sizeof feed->held[0]);
    }
    return status;
}

static void give_back(struct feed *feed) {
    brim_batch_release(feed->held[feed->oldest]);
    feed->oldest = (feed->oldest + 1) % feed->hold;
    feed->count--;
}

brim_status feed_next(struct feed *feed, const brim_batch **batch) {
    if (feed->count == feed->hold) {
        give_back(feed);
    }
    brim_batch *next = NULL;
    brim_status status;
    do {
        if (signal_seen != 0) {
            return BRIM_STATUS_INTERRUPTED;
        }
        status = brim_loader_next(feed->loader, WAIT_NS, &next);
    } while (status == BRIM_STATUS_TIMEOUT);
    if (status == BRIM_OK) {
        feed->held[(feed->oldest + feed->count) % feed->hold] = next;
        feed->count++;
        *batch = next;
    }
    return status;
}

void feed_close(struct feed *feed) {
    while (feed->count > 0) {
        give_back(feed);
    }
    free(feed->held);
    brim_loader_close(feed->loader);
    *feed = (struct feed){ 0 };
}
