/*
 * epochs.c: iterators of a Loader, and its position.
 *
 * iter(loader) begins the next epoch and ends every older iterator. An epoch of which at most one
 * batch was taken is begun again by the next iter(), so that a look at the first batch costs
 * nothing; epochs(n) and set_epoch() name their epochs. An epoch in which a batch could not be had
 * is neither over nor left: `for` has lost its iterator, and the next one goes on with that batch.
 * An exception from a signal handler (Ctrl-C) is not such an error: it may come anywhere, and
 * counts as `break`.
 *
 *     iter() ── 0 or 1 batch ── iter(): the same epoch, from where it began
 *     iter() ── 2 or more, or the end ── iter(): the next epoch
 *     iter() ── an error ── iter(): the same epoch, from the batch that failed
 *     load_state_dict(), seek() ── iter(): on from there
 */
#include "loader.h"

static PyTypeObject *iterator_type, *epoch_type, *epochs_type;

void brim_py_loader_note_start(LoaderObject *self) {
    if (self->pending == NULL) {
        BRIM_WITHOUT_LOCK(self->has_start =
                              brim_loader_state(self->loader, &self->start) == BRIM_OK);
    } else if (self->has_start && self->taken > 0) {
        self->start = self->delivered; /* what is pending was not delivered */
    }
    self->taken = 0;
}

brim_status brim_py_loader_start(LoaderObject *self) {
    brim_stats stats = BRIM_STATS_INIT;
    const brim_status status = brim_loader_read_stats(self->loader, &stats);
    if (status == BRIM_OK) {
        brim_py_loader_note_start(self);
        self->wanted_epoch = BRIM_PY_NO_EPOCH;
        self->epoch = stats.epoch;
        self->began = 1;
        self->ended = self->end_unsaid = self->failed = 0;
        self->from_state = self->moved;
        self->moved = 0;
    }
    return status;
}

static brim_status go_to(LoaderObject *self, uint64_t epoch, uint64_t step) {
    brim_status status;
    brim_py_loader_drop_pending(self);
    BRIM_WITHOUT_LOCK(status = brim_loader_seek(self->loader, epoch, step));
    return status;
}

/* Back to where the newest iterator began, as if it had taken nothing. */
static brim_status go_back(LoaderObject *self) {
    brim_status status;
    if (!self->has_start) {
        return go_to(self, self->epoch, 0); /* fails, and says why */
    }
    brim_py_loader_drop_pending(self);
    self->moved = self->from_state;
    BRIM_WITHOUT_LOCK(status = brim_loader_restore(self->loader, &self->start));
    return status;
}

/* Whether it stands at the begin of an epoch, whose first batches may have been made. */
static int stands_at(const LoaderObject *self, uint64_t epoch) {
    brim_stats stats = BRIM_STATS_INIT;
    return (self->ended || self->end_unsaid || !self->began) && !self->moved &&
           brim_loader_read_stats(self->loader, &stats) == BRIM_OK && stats.epoch == epoch;
}

/* Puts the loader where a new iterator begins. `forward`: an epoch that was begun is
 * never begun again. `busy` is held. */
static brim_status begin(LoaderObject *self, int forward) {
    brim_status status = BRIM_OK;
    if (self->wanted_epoch != BRIM_PY_NO_EPOCH) {
        if (!stands_at(self, self->wanted_epoch)) {
            status = go_to(self, self->wanted_epoch, 0);
        }
    } else if (self->began && !self->ended && !self->end_unsaid && !self->failed) {
        if (self->taken > 1 || forward) {
            status = go_to(self, self->epoch + 1, 0);
        } else if (self->taken == 1 || self->pending != NULL) {
            status = go_back(self);
        }
    }
    if (status == BRIM_OK) {
        self->generation++;
        status = brim_py_loader_start(self);
    }
    return status;
}

typedef struct {
    PyObject_HEAD
    LoaderObject *loader;
    uint64_t generation;
    int ended;
} IteratorObject;

static PyObject *iterator_new(LoaderObject *loader, int forward) {
    if (brim_py_loader_enter(loader) != 0) {
        return NULL;
    }
    const brim_status status = begin(loader, forward);
    if (status != BRIM_OK) {
        brim_py_loader_raise(loader, status);
        brim_py_loader_leave(loader);
        return NULL;
    }
    const uint64_t generation = loader->generation;
    brim_py_loader_leave(loader);
    IteratorObject *self = PyObject_GC_New(IteratorObject, iterator_type);
    if (self != NULL) {
        self->loader = (LoaderObject *)Py_NewRef(loader);
        self->generation = generation;
        self->ended = 0;
        PyObject_GC_Track(self);
    }
    return (PyObject *)self;
}

static PyObject *iterator_next(PyObject *object) {
    IteratorObject *self = (IteratorObject *)object;
    LoaderObject *loader = self->loader;
    if (self->ended || brim_py_loader_enter(loader) != 0) {
        return NULL;
    }
    PyObject *batch = NULL;
    if (self->generation != loader->generation) {
        PyErr_SetString(brim_py_iteration_error,
                        "this iterator was ended: a newer iterator, seek(), next() or "
                        "load_state_dict() has moved the loader");
    } else {
        batch = brim_py_loader_take(loader, BRIM_PY_NEVER);
        self->ended = batch == NULL && PyErr_Occurred() == NULL;
    }
    brim_py_loader_leave(loader);
    return batch;
}

static int iterator_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((IteratorObject *)object)->loader);
    return 0;
}

static void iterator_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_DECREF(((IteratorObject *)object)->loader);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

PyObject *brim_py_loader_iter(PyObject *object) {
    return iterator_new((LoaderObject *)object, 0);
}

Py_ssize_t brim_py_loader_length(PyObject *object) {
    LoaderObject *self = (LoaderObject *)object;
    if (!brim_py_loader_usable(self)) {
        return -1;
    }
    const uint64_t batches = brim_plan_get(brim_loader_plan(self->loader))->batches;
    if (batches == BRIM_UNKNOWN) {
        PyErr_SetString(PyExc_TypeError,
                        "the number of batches is not known before the end of the epoch");
        return -1;
    }
    return (Py_ssize_t)batches;
}

/* Epoch: one pass, with its number; its iterator was made with it. */
typedef struct {
    PyObject_HEAD
    IteratorObject *iterator;
    unsigned long long number;
} EpochObject;

static PyObject *epoch_iter(PyObject *object) {
    return Py_NewRef(((EpochObject *)object)->iterator);
}
static Py_ssize_t epoch_length(PyObject *object) {
    return brim_py_loader_length((PyObject *)((EpochObject *)object)->iterator->loader);
}
static PyObject *epoch_number(PyObject *object, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(((EpochObject *)object)->number);
}
static PyObject *epoch_repr(PyObject *object) {
    return PyUnicode_FromFormat("brim.Epoch(%llu)", ((EpochObject *)object)->number);
}
static int epoch_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((EpochObject *)object)->iterator);
    return 0;
}

static void epoch_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_DECREF(((EpochObject *)object)->iterator);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

/* What epochs(n) gives. */
typedef struct {
    PyObject_HEAD
    LoaderObject *loader;
    Py_ssize_t left;     /* negative: no end */
    uint64_t generation; /* of the epoch given last */
} EpochsObject;

static PyObject *epochs_next(PyObject *object) {
    EpochsObject *self = (EpochsObject *)object;
    if (self->left == 0) {
        return NULL;
    }
    const int forward = self->loader->generation == self->generation;
    /* the rest of an epoch that failed is no further one; without progress it counts, so
     * that a loop that catches an error that stays comes to its end */
    const int rest = forward && self->loader->failed && self->loader->taken > 0;
    PyObject *iterator = iterator_new(self->loader, forward);
    if (iterator == NULL) {
        return NULL;
    }
    EpochObject *epoch = PyObject_GC_New(EpochObject, epoch_type);
    if (epoch == NULL) {
        Py_DECREF(iterator);
        return NULL;
    }
    self->left -= self->left > 0 && !rest;
    self->generation = ((IteratorObject *)iterator)->generation;
    epoch->iterator = (IteratorObject *)iterator;
    epoch->number = self->loader->epoch;
    PyObject_GC_Track(epoch);
    return (PyObject *)epoch;
}

static int epochs_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((EpochsObject *)object)->loader);
    return 0;
}

static void epochs_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_DECREF(((EpochsObject *)object)->loader);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

PyObject *brim_py_loader_epochs(PyObject *object, PyObject *args) {
    PyObject *count = Py_None;
    Py_ssize_t left = -1;
    if (!PyArg_ParseTuple(args, "|O:epochs", &count)) {
        return NULL;
    }
    if (count != Py_None) {
        left = PyNumber_AsSsize_t(count, PyExc_OverflowError);
        if (left < 0) {
            if (PyErr_Occurred() == NULL) {
                PyErr_SetString(PyExc_ValueError, "a number of epochs is not negative");
            }
            return NULL;
        }
    }
    EpochsObject *self = PyObject_GC_New(EpochsObject, epochs_type);
    if (self != NULL) {
        self->loader = (LoaderObject *)Py_NewRef(object);
        self->left = left;
        self->generation = BRIM_PY_NO_EPOCH;
        PyObject_GC_Track(self);
    }
    return (PyObject *)self;
}

PyObject *brim_py_loader_set_epoch(PyObject *object, PyObject *args) {
    LoaderObject *self = (LoaderObject *)object;
    brim_stats stats = BRIM_STATS_INIT;
    uint64_t epoch;
    if (!PyArg_ParseTuple(args, "O&:set_epoch", brim_py_unsigned, &epoch) ||
        !brim_py_loader_usable(self)) {
        return NULL;
    }
    (void)brim_loader_read_stats(self->loader, &stats);
    /* loops call it in every epoch, also in one that they have just resumed */
    self->wanted_epoch = self->moved && stats.epoch == epoch ? BRIM_PY_NO_EPOCH : epoch;
    return Py_NewRef(Py_None);
}

/* ------------------------------------------------------------------- states */

/* The loader stands somewhere else now; the next iterator goes on from there. At the
 * very end of an epoch that is the next epoch. */
static void move(LoaderObject *self) {
    brim_stats stats = BRIM_STATS_INIT;
    brim_batch *none;
    if (brim_loader_read_stats(self->loader, &stats) == BRIM_OK && stats.ended) {
        BRIM_WITHOUT_LOCK((void)brim_loader_next(self->loader, 0, &none)); /* BRIM_STATUS_END */
    }
    self->generation++;
    self->began = self->ended = self->end_unsaid = self->failed = 0;
    brim_py_loader_note_start(self);
    self->moved = 1;
    self->wanted_epoch = BRIM_PY_NO_EPOCH;
}

PyObject *brim_py_loader_seek(PyObject *object, PyObject *args) {
    LoaderObject *self = (LoaderObject *)object;
    uint64_t epoch, step;
    if (!PyArg_ParseTuple(args, "O&O&:seek", brim_py_unsigned, &epoch, brim_py_unsigned, &step) ||
        brim_py_loader_enter(self) != 0) {
        return NULL;
    }
    const brim_status status = go_to(self, epoch, step);
    if (status == BRIM_OK) {
        move(self);
    } else {
        brim_py_loader_raise(self, status);
    }
    brim_py_loader_leave(self);
    return status == BRIM_OK ? Py_NewRef(Py_None) : NULL;
}

PyObject *brim_py_loader_state_dict(PyObject *object, PyObject *unused) {
    LoaderObject *self = (LoaderObject *)object;
    brim_state state;
    brim_status status = BRIM_OK;
    (void)unused;
    if (brim_py_loader_enter(self) != 0) {
        return NULL;
    }
    if (self->pending != NULL && self->has_start) {
        state = self->taken == 0 ? self->start : self->delivered;
    } else {
        BRIM_WITHOUT_LOCK(status = brim_loader_state(self->loader, &state));
    }
    PyObject *result =
        status == BRIM_OK ? brim_py_state_new(&state) : brim_py_loader_raise(self, status);
    brim_py_loader_leave(self);
    return result;
}

PyObject *brim_py_loader_load_state_dict(PyObject *object, PyObject *dict) {
    LoaderObject *self = (LoaderObject *)object;
    brim_state state;
    brim_status status;
    if (brim_py_state_read(dict, &state) != 0 || brim_py_loader_enter(self) != 0) {
        return NULL;
    }
    brim_py_loader_drop_pending(self);
    BRIM_WITHOUT_LOCK(status = brim_loader_restore(self->loader, &state));
    if (status == BRIM_OK) {
        move(self);
    } else {
        brim_py_loader_raise(self, status);
    }
    brim_py_loader_leave(self);
    return status == BRIM_OK ? Py_NewRef(Py_None) : NULL;
}

/* -------------------------------------------------------------------- types */

static PyType_Slot iterator_slots[] = {
    { Py_tp_doc, "The batches of one epoch." },    { Py_tp_dealloc, (void *)iterator_dealloc },
    { Py_tp_traverse, (void *)iterator_traverse }, { Py_tp_iter, (void *)PyObject_SelfIter },
    { Py_tp_iternext, (void *)iterator_next },     { 0, NULL },
};
static PyType_Spec iterator_spec = { .name = "brim.EpochIterator",
                                     .basicsize = sizeof(IteratorObject),
                                     .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                              Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                     .slots = iterator_slots };

static PyGetSetDef epoch_attributes[] = {
    { "number", epoch_number, NULL, "The epoch's number, from 0 on.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyType_Slot epoch_slots[] = {
    { Py_tp_doc, "One pass over the data." },   { Py_tp_dealloc, (void *)epoch_dealloc },
    { Py_tp_traverse, (void *)epoch_traverse }, { Py_tp_repr, (void *)epoch_repr },
    { Py_tp_iter, (void *)epoch_iter },         { Py_tp_getset, epoch_attributes },
    { Py_mp_length, (void *)epoch_length },     { 0, NULL },
};
static PyType_Spec epoch_spec = { .name = "brim.Epoch",
                                  .basicsize = sizeof(EpochObject),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                           Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  .slots = epoch_slots };

static PyType_Slot epochs_slots[] = {
    { Py_tp_doc, "Epochs, one after the other." }, { Py_tp_dealloc, (void *)epochs_dealloc },
    { Py_tp_traverse, (void *)epochs_traverse },   { Py_tp_iter, (void *)PyObject_SelfIter },
    { Py_tp_iternext, (void *)epochs_next },       { 0, NULL },
};
static PyType_Spec epochs_spec = { .name = "brim.Epochs",
                                   .basicsize = sizeof(EpochsObject),
                                   .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                            Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                   .slots = epochs_slots };

int brim_py_epochs_init(PyObject *module) {
    iterator_type = (PyTypeObject *)PyType_FromSpec(&iterator_spec);
    epoch_type = (PyTypeObject *)PyType_FromSpec(&epoch_spec);
    epochs_type = (PyTypeObject *)PyType_FromSpec(&epochs_spec);
    return iterator_type == NULL || epoch_type == NULL || epochs_type == NULL
               ? -1
               : PyModule_AddType(module, epoch_type);
}
