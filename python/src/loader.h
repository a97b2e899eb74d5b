/*
 * loader.h: Loader, over its four files.
 *
 *     delivery.c  one thread at a time; taking a batch, by itself or as a copy
 *     epochs.c    iterators, epochs, seeking and states
 *     caches.c    the figures and warnings of its caches
 *     loader.c    the type: its life, its figures
 */
#ifndef BRIM_PYTHON_LOADER_H
#define BRIM_PYTHON_LOADER_H

#include "extension.h"

#include <pythread.h>
#include <sys/types.h>

#define BRIM_PY_SLICE_NS 50000000 /* between two looks at the signals */
#define BRIM_PY_NEVER    (-1)
#define BRIM_PY_NO_EPOCH UINT64_MAX

typedef struct LoaderObject {
    PyObject_HEAD
    brim_loader *loader; /* NULL: closed */
    RuntimeObject *runtime;
    PyObject *bindings; /* tuple */
    struct lending *lending;
    brim_device device_kind; /* where its batches are */
    uint32_t device_index;
    PyThread_type_lock busy;
    unsigned long busy_thread; /* the thread that holds it; 0: none */
    int closing;
    pid_t process;
    Py_ssize_t users; /* calls that read it without `busy`, with the interpreter's lock */
    int close_waits;  /* for the last of them */
    struct LoaderObject *next, *before; /* list of those that are open */

    uint32_t hold;
    int copies, warned;
    Py_ssize_t most_kept;   /* most batches that the program has had at a time */
    uint64_t copied;        /* batches handed out as copies */
    uint64_t warned_caches; /* that keep nothing more: a bit for each */
    uint64_t noted_caches;  /* that were reset */
    int warned_empty;       /* of a batch without rows */
    int warned_indexes;     /* 1: done */
    brim_batch *pending;    /* taken, but not delivered: a copy was refused, a signal came */

    /* the newest iterator */
    uint64_t generation;
    uint64_t epoch;
    uint64_t taken;   /* batches that it delivered */
    int began, ended; /* it was made; its epoch is over */
    int end_unsaid;   /* it is, but a signal or a warning came before that could be said */
    int failed;       /* its last call raised and left the epoch unfinished: the next goes on */
    int moved;        /* by a state or seek(): the next iterator goes on from there */
    int from_state;   /* this one did; it may stand at the very end of an epoch */
    int has_start;
    brim_state start;      /* where it began; has_start 0: a stream that cannot tell */
    brim_state delivered;  /* where it stood after its last batch */
    uint64_t wanted_epoch; /* of set_epoch(), or NO_EPOCH */
} LoaderObject;

/* ------------------------------------------------------------- delivery.c */

/* Whether it is open, and of this process; else an exception. */
int brim_py_loader_usable(const LoaderObject *self);
/* Takes `busy`; signals are looked at while waiting. -1 with an exception. */
int brim_py_loader_enter(LoaderObject *self);
void brim_py_loader_leave(LoaderObject *self);
/* Raises the failure of the brim_loader. */
PyObject *brim_py_loader_raise(LoaderObject *self, brim_status status);
/* For calls that only look: it stays open until they are done, even if the collector,
 * which may run in the middle of them, drops its last other user. */
int brim_py_loader_look(LoaderObject *self);
void brim_py_loader_looked(LoaderObject *self);
/* The next batch. NULL without an exception: the end of the epoch. With one, `failed` says
 * whether the next iterator goes on with the same batch. `busy` is held. */
PyObject *brim_py_loader_take(LoaderObject *self, int64_t timeout_ns);
void brim_py_loader_drop_pending(LoaderObject *self);

/* --------------------------------------------------------------- caches.c */

/* A dict for each cache. */
PyObject *brim_py_list_caches(brim_loader *loader, uint32_t count);
/* Warns of caches that have something to say and have not said it. `level`: of the stack,
 * as of warnings.warn. -1: the warning was made an exception. */
int brim_py_warn_of_caches(LoaderObject *self, Py_ssize_t level);

/* --------------------------------------------------------------- loader.c */

/* Closes it now. `busy` is free, and no call reads it. */
void brim_py_loader_finish(LoaderObject *self);

/* --------------------------------------------------------------- epochs.c */

int brim_py_epochs_init(PyObject *module);
/* The loader begins here, as far as states and iterators are concerned. */
void brim_py_loader_note_start(LoaderObject *self);

/* An iterator, or next() by hand, begins where the loader stands. `busy` is held. */
brim_status brim_py_loader_start(LoaderObject *self);

/* Methods of Loader. */
PyObject *brim_py_loader_iter(PyObject *object);
Py_ssize_t brim_py_loader_length(PyObject *object);
PyObject *brim_py_loader_epochs(PyObject *object, PyObject *args);
PyObject *brim_py_loader_set_epoch(PyObject *object, PyObject *args);
PyObject *brim_py_loader_seek(PyObject *object, PyObject *args);
PyObject *brim_py_loader_state_dict(PyObject *object, PyObject *unused);
PyObject *brim_py_loader_load_state_dict(PyObject *object, PyObject *dict);

#endif
