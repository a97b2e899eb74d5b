/*
 * delivery.c: taking a batch from the library's loader.
 *
 * One thread at a time is inside the library's loader (`busy`); others wait without
 * the interpreter's lock. Waiting is done in slices, between which signals are looked
 * at, and so they are while the library makes samples on this thread: Ctrl-C works whatever
 * the workers do.
 *
 * Charged copies. A loader opened with copies=True lends `hold` slots, and one beyond them for a
 * moment: such a batch is handed out as a copy, which the budget counts, and its slot goes back
 * at once. If the budget has no room for the copy, the slot itself is handed out; and if it has
 * none for that slot, or it is lent already, `next` names what is held, and no batch is lost. So
 * the program gets as many batches as fit. One warning names the `hold` with which there would
 * have been no copy.
 */
#include "loader.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DETAIL 2048

/* ------------------------------------------------------------ one at a time */

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int brim_py_loader_usable(const LoaderObject *self) {
    if (self->loader == NULL || self->closing) {
        PyErr_SetString(brim_py_closed_error, "this loader is closed");
        return 0;
    }
    if (self->process != getpid()) {
        PyErr_SetString(brim_py_closed_error,
                        "this loader belongs to the parent process: open another one after fork");
        return 0;
    }
    return 1;
}

int brim_py_loader_enter(LoaderObject *self) {
    if (!brim_py_loader_usable(self)) {
        return -1;
    }
    const unsigned long me = PyThread_get_thread_ident();
    if (self->busy_thread == me) {
        PyErr_SetString(brim_py_iteration_error,
                        "a function of the pipeline cannot use the loader that runs it");
        return -1;
    }
    while (PyThread_acquire_lock(self->busy, NOWAIT_LOCK) == 0) {
        int got;
        BRIM_WITHOUT_LOCK(got = PyThread_acquire_lock_timed(self->busy, BRIM_PY_SLICE_NS / 1000,
                                                            0) == PY_LOCK_ACQUIRED);
        if (got) {
            break;
        }
        if (PyErr_CheckSignals() != 0) {
            return -1;
        }
    }
    if (!brim_py_loader_usable(self)) {
        PyThread_release_lock(self->busy);
        return -1;
    }
    self->busy_thread = me;
    return 0;
}

void brim_py_loader_leave(LoaderObject *self) {
    self->busy_thread = 0;
    PyThread_release_lock(self->busy);
}

int brim_py_loader_look(LoaderObject *self) {
    if (!brim_py_loader_usable(self)) {
        return -1;
    }
    self->users++;
    return 0;
}

void brim_py_loader_looked(LoaderObject *self) {
    if (--self->users == 0 && self->close_waits) {
        self->close_waits = 0;
        brim_py_loader_finish(self);
    }
}

/* What one more batch takes. */
static uint64_t slot_bytes(const LoaderObject *self) {
    const brim_plan_info *const info = brim_plan_get(brim_loader_plan(self->loader));
    return info->device_slot_bytes > 0 ? info->device_slot_bytes : info->slot_bytes;
}

/* `more` is said after the library's text. */
static PyObject *raise_with(LoaderObject *self, brim_status status, const char *more) {
    char text[DETAIL];
    brim_failure failure = BRIM_FAILURE_INIT, mine = BRIM_FAILURE_INIT;
    if (self->closing) {
        PyErr_SetString(brim_py_closed_error, "the loader was closed by another thread");
        return NULL;
    }
    if (brim_loader_read_failure(self->loader, &failure) != BRIM_OK) {
        return brim_py_raise(status);
    }
    if (brim_failure_read(&mine) == BRIM_OK && strcmp(mine.text, failure.text) == 0) {
        failure = mine; /* with what it says of memory */
    }
    if (status == BRIM_STATUS_HELD && self->copies && failure.wanted_bytes == 0) {
        failure.wanted_bytes = slot_bytes(self);
    }
    snprintf(text, sizeof text, "%s%s", failure.text, more);
    return brim_py_raise_failure(status, &failure, text);
}

PyObject *brim_py_loader_raise(LoaderObject *self, brim_status status) {
    char more[384] = "";
    if (status == BRIM_STATUS_HELD && self->copies) {
        snprintf(more, sizeof more,
                 " (%zd batches and copies of batches are held, and another copy of %.1f MiB does "
                 "not fit the budget; a variable of an earlier loop may still refer to one: del it "
                 "and ask again, also with a new loop: no batch is lost)",
                 self->lending->lent + self->lending->copies,
                 (double)slot_bytes(self) / (1024 * 1024));
    } else if (status == BRIM_STATUS_HELD) {
        snprintf(more, sizeof more,
                 " (a variable of an earlier loop may still refer to one: del it)");
    }
    return raise_with(self, status, more);
}

/* -------------------------------------------------------- taking a batch */

void brim_py_loader_drop_pending(LoaderObject *self) {
    brim_batch_release(self->pending);
    self->pending = NULL;
}

/* Raises a failure to make a batch. A program that catches it and asks again gets the same batch
 * and, if the data stay as they are, the same failure: the text says how to get past it. */
static void raise_of_batch(LoaderObject *self, brim_status status) {
    if (status == BRIM_STATUS_IO || status == BRIM_STATUS_CORRUPT ||
        status == BRIM_STATUS_CALLBACK) {
        raise_with(
            self, status,
            " (the next call makes the same batch again; batch(..., on_error=\"skip\") leaves out "
            "bad samples, not what a batch_map refuses; set_epoch() begins another epoch)");
    } else {
        brim_py_loader_raise(self, status);
    }
}

/* The next batch from the library, in slices. BRIM_STATUS_INTERRUPTED with an exception
 * set: a signal's. */
static brim_status wait_for_batch(LoaderObject *self, int64_t timeout_ns, brim_batch **batch) {
    brim_loader *const loader = self->loader;
    const int64_t deadline = timeout_ns == BRIM_PY_NEVER ? BRIM_PY_NEVER : now_ns() + timeout_ns;
    for (;;) {
        brim_status status;
        int64_t slice = BRIM_PY_SLICE_NS;
        if (deadline != BRIM_PY_NEVER) {
            const int64_t left = deadline - now_ns();
            slice = left < 0 ? 0 : left < slice ? left : slice;
        }
        BRIM_WITHOUT_LOCK(status = brim_loader_next(loader, slice, batch));
        if (PyErr_Occurred() != NULL || PyErr_CheckSignals() != 0) {
            /* for programs that catch KeyboardInterrupt and go on */
            if (status == BRIM_OK) {
                self->pending = *batch;
            }
            self->end_unsaid = status == BRIM_STATUS_END;
            return BRIM_STATUS_INTERRUPTED;
        }
        if (status != BRIM_STATUS_TIMEOUT) {
            return status;
        }
        if (self->closing || (deadline != BRIM_PY_NEVER && now_ns() >= deadline)) {
            return BRIM_STATUS_TIMEOUT;
        }
    }
}

/* Warns once of copies that were made: when the program has let go of something, or at the
 * end of the epoch. Before that it is not known how many it keeps. */
static int warn_of_copies(LoaderObject *self) {
    if (self->warned || self->copied == 0) {
        return 0;
    }
    self->warned = 1;
    char text[256];
    snprintf(text, sizeof text,
             "%zd batches are held at a time, but hold=%u: the others are copies, which cost time "
             "and memory. hold=%zd would avoid them.",
             self->most_kept, self->hold, self->most_kept);
    return PyErr_WarnEx(brim_py_hold_warning, text, 2);
}

/* Once, of a batch all of whose samples were bad. Said before it is handed out, because the
 * mean of no rows is NaN. */
static int warn_of_empty(LoaderObject *self, const brim_batch *batch) {
    const brim_batch_info *info = brim_batch_get(batch);
    brim_stats stats = BRIM_STATS_INIT;
    if (info->valid_rows > 0 || info->skipped == 0 || self->warned_empty ||
        brim_loader_read_stats(self->loader, &stats) != BRIM_OK || stats.warning[0] == '\0') {
        return 0;
    }
    self->warned_empty = 1;
    return PyErr_WarnEx(brim_py_empty_warning, stats.warning, 1);
}

/* Once, of an epoch all of whose batches were passed over: a loop over it does nothing. */
static int warn_of_nothing(LoaderObject *self) {
    brim_stats stats = BRIM_STATS_INIT;
    if (self->taken > 0 || self->warned_empty ||
        brim_loader_read_stats(self->loader, &stats) != BRIM_OK || stats.empty == 0) {
        return 0;
    }
    self->warned_empty = 1;
    return PyErr_WarnFormat(brim_py_empty_warning, 1,
                            "all samples of epoch %llu were bad, so it has no batches "
                            "(on_error=skip): stats()[\"errors\"] has their errors",
                            (unsigned long long)self->epoch);
}

static PyObject *hand_out_copy(LoaderObject *self, brim_batch *batch) {
    brim_status status;
    brim_batch *copy;
    BRIM_WITHOUT_LOCK(status = brim_batch_copy(batch, &copy));
    if (status == BRIM_STATUS_BUDGET || status == BRIM_STATUS_MEMORY) {
        return brim_py_batch_new(batch, self->bindings, self->lending, 0);
    }
    if (status != BRIM_OK) {
        self->pending = batch;
        return brim_py_raise(status);
    }
    brim_batch_release(batch);
    self->copied++;
    PyObject *result = brim_py_batch_new(copy, self->bindings, self->lending, 1);
    if (result != NULL) {
        ((BatchObject *)result)->is_beyond = 1;
        self->lending->beyond++;
    }
    return result;
}

/* A taken batch as a Python object: the batch itself or a copy. */
static PyObject *hand_out(LoaderObject *self, brim_batch *batch) {
    /* with this one; slots all of them, if `hold` were as much */
    const Py_ssize_t kept = self->lending->lent + self->lending->beyond + 1;
    if (kept <= self->most_kept && warn_of_copies(self) != 0) {
        self->pending = batch;
        return NULL;
    }
    const int is_copy = self->copies && self->lending->lent >= (Py_ssize_t)self->hold;
    PyObject *result = is_copy ? hand_out_copy(self, batch)
                               : brim_py_batch_new(batch, self->bindings, self->lending, 0);
    if (result != NULL && kept > self->most_kept) {
        self->most_kept = kept;
    }
    return result;
}

PyObject *brim_py_loader_take(LoaderObject *self, int64_t timeout_ns) {
    brim_batch *batch = self->pending;
    brim_status status = BRIM_OK;
    self->pending = NULL;
    self->failed = 0;
    if (self->end_unsaid) {
        self->end_unsaid = 0;
        status = BRIM_STATUS_END;
    } else if (batch == NULL) {
        status = wait_for_batch(self, timeout_ns, &batch);
    }
    if (status == BRIM_OK && warn_of_empty(self, batch) != 0) {
        self->pending = batch; /* for programs that catch the warning and go on */
        self->failed = 1;
        return NULL;
    }
    if (status == BRIM_OK) {
        brim_state after;
        const brim_status known = brim_batch_state(batch, &after);
        PyObject *result = hand_out(self, batch);
        if (result != NULL) {
            self->taken++;
            if (known == BRIM_OK) {
                self->delivered = after;
            }
        } else {
            self->failed = self->pending != NULL;
        }
        return result;
    }
    if (status == BRIM_STATUS_END) {
        if (self->from_state && self->taken == 0) {
            self->from_state = 0; /* it stood at the end: what follows is the next epoch */
            self->epoch++;
            return brim_py_loader_take(self, timeout_ns);
        }
        self->end_unsaid = warn_of_copies(self) != 0 || warn_of_nothing(self) != 0 ||
                           brim_py_warn_of_caches(self, 1) != 0;
        self->ended = !self->end_unsaid;
        return NULL;
    }
    if (PyErr_Occurred() != NULL) {
        return NULL; /* a signal's, which counts as `break` */
    }
    if (status == BRIM_STATUS_TIMEOUT && !self->closing) {
        PyErr_SetString(PyExc_TimeoutError, "no batch within the time given");
    } else {
        raise_of_batch(self, status);
    }
    self->failed = PyErr_ExceptionMatches(PyExc_Exception);
    return NULL;
}
