/*
 * loader.c: Loader, a running pipeline: its life, its figures. See loader.h.
 */
#include "loader.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DETAIL 2048

PyTypeObject *brim_py_loader_type;
static LoaderObject *open_loaders;
static int shut_down; /* the interpreter ends */

static PyObject *loader_next(PyObject *object, PyObject *args, PyObject *keywords) {
    static char *names[] = { "timeout", NULL };
    LoaderObject *self = (LoaderObject *)object;
    PyObject *timeout = Py_None;
    int64_t timeout_ns = BRIM_PY_NEVER;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:next", names, &timeout)) {
        return NULL;
    }
    if (timeout != Py_None) {
        const double seconds = PyFloat_AsDouble(timeout);
        if (PyErr_Occurred() != NULL) {
            return NULL;
        }
        if (!(seconds >= 0)) {
            PyErr_SetString(PyExc_ValueError, "a timeout is in seconds, from 0 on");
            return NULL;
        }
        timeout_ns = seconds > 1e9 ? BRIM_PY_NEVER : (int64_t)(seconds * 1e9);
    }
    if (brim_py_loader_enter(self) != 0) {
        return NULL;
    }
    self->generation++; /* iterators would lose count */
    const brim_status status = self->ended || !self->began ? brim_py_loader_start(self) : BRIM_OK;
    PyObject *batch = status == BRIM_OK ? brim_py_loader_take(self, timeout_ns)
                                        : brim_py_loader_raise(self, status);
    brim_py_loader_leave(self);
    return batch == NULL && PyErr_Occurred() == NULL ? Py_NewRef(Py_None) : batch;
}

/* -------------------------------------------------------------------- stats */

static PyObject *list_stages(brim_loader *loader, uint32_t count) {
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        brim_stage_stats stage = BRIM_STAGE_STATS_INIT;
        if (brim_loader_read_stage_stats(loader, i, &stage) != BRIM_OK) {
            break;
        }
        PyObject *item =
            Py_BuildValue("{s:s,s:K,s:d}", "name", stage.name, "samples",
                          (unsigned long long)stage.samples, "seconds", (double)stage.ns * 1e-9);
        if (item == NULL || PyList_Append(list, item) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

/* The texts of bad samples, the latest first. */
static PyObject *list_errors(brim_loader *loader, const brim_stats *stats) {
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < stats->error_count; i++) {
        brim_failure failure = BRIM_FAILURE_INIT;
        if (brim_loader_read_error(loader, stats->errors - 1 - i, &failure) != BRIM_OK) {
            break; /* others have come since */
        }
        PyObject *item =
            PyUnicode_DecodeUTF8(failure.text, (Py_ssize_t)strlen(failure.text), "replace");
        if (item == NULL || PyList_Append(list, item) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *describe(LoaderObject *self) {
    brim_stats stats = BRIM_STATS_INIT;
    const brim_status status = brim_loader_read_stats(self->loader, &stats);
    if (status != BRIM_OK) {
        return brim_py_raise(status);
    }
    PyObject *stages = list_stages(self->loader, stats.stage_count);
    PyObject *errors = list_errors(self->loader, &stats);
    PyObject *caches = brim_py_list_caches(self->loader, stats.cache_count);
    if (stages == NULL || errors == NULL || caches == NULL) {
        Py_XDECREF(stages);
        Py_XDECREF(errors);
        Py_XDECREF(caches);
        return NULL;
    }
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:d,s:d,s:d,s:I,s:I,s:I,s:I,s:I,s:K,s:K,s:K,s:s,s:N,s:N,s:N}",
        "epoch", (unsigned long long)stats.epoch, "samples", (unsigned long long)stats.samples,
        "batches", (unsigned long long)stats.batches, "bytes", (unsigned long long)stats.bytes,
        "read_bytes", (unsigned long long)stats.read_bytes, "skipped",
        (unsigned long long)stats.skipped, "replaced", (unsigned long long)stats.replaced,
        "waited_seconds", (double)stats.waited_ns * 1e-9, "opening_seconds",
        (double)stats.opening_ns * 1e-9, "first_batch_seconds", (double)stats.first_batch_ns * 1e-9,
        "threads", stats.threads, "slots", stats.slots, "device_slots", stats.device_slots, "lent",
        stats.lent, "revoked", stats.revoked, "copied_bytes",
        (unsigned long long)stats.copied_bytes, "copies", (unsigned long long)self->copied, "empty",
        (unsigned long long)stats.empty, "warning", stats.warning, "stages", stages, "errors",
        errors, "caches", caches);
}

static PyObject *loader_stats(PyObject *object, PyObject *unused) {
    LoaderObject *self = (LoaderObject *)object;
    (void)unused;
    if (brim_py_loader_look(self) != 0) {
        return NULL;
    }
    PyObject *stats = describe(self);
    brim_py_loader_looked(self);
    return stats;
}

static PyObject *loader_plan(PyObject *object, void *unused) {
    LoaderObject *self = (LoaderObject *)object;
    (void)unused;
    if (brim_py_loader_look(self) != 0) {
        return NULL;
    }
    PyObject *dict = brim_py_plan_new(brim_loader_plan(self->loader), self->device_kind,
                                      self->device_index, self->copies);
    brim_py_loader_looked(self);
    PyObject *module = dict == NULL ? NULL : PyImport_ImportModule("brim._plan");
    PyObject *plan = module == NULL ? NULL : PyObject_CallMethod(module, "Plan", "O", dict);
    Py_XDECREF(module);
    Py_XDECREF(dict);
    return plan;
}

static PyObject *loader_classes(PyObject *object, void *unused) {
    PyObject *plan = loader_plan(object, unused);
    PyObject *classes = plan == NULL ? NULL : PyMapping_GetItemString(plan, "classes");
    Py_XDECREF(plan);
    return classes;
}

static PyObject *loader_epoch(PyObject *object, void *unused) {
    LoaderObject *self = (LoaderObject *)object;
    brim_stats stats = BRIM_STATS_INIT;
    (void)unused;
    if (!brim_py_loader_usable(self)) {
        return NULL;
    }
    (void)brim_loader_read_stats(self->loader, &stats);
    return PyLong_FromUnsignedLongLong(self->wanted_epoch != BRIM_PY_NO_EPOCH ? self->wanted_epoch
                                                                              : stats.epoch);
}

static PyObject *loader_device(PyObject *object, void *unused) {
    const LoaderObject *self = (LoaderObject *)object;
    (void)unused;
    return brim_py_device_text(self->device_kind, self->device_index);
}

static PyObject *loader_hold(PyObject *object, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLong(((LoaderObject *)object)->hold);
}

static PyObject *loader_lent(PyObject *object, void *unused) {
    (void)unused;
    return PyLong_FromSsize_t(((LoaderObject *)object)->lending->lent);
}

static PyObject *loader_repr(PyObject *object) {
    LoaderObject *self = (LoaderObject *)object;
    if (self->loader == NULL || self->closing || self->process != getpid()) {
        return PyUnicode_FromString("<brim.Loader, closed>");
    }
    return PyUnicode_FromFormat("<brim.Loader at epoch %llu, %zd of %u batches lent>",
                                (unsigned long long)self->epoch, self->lending->lent, self->hold);
}

static PyObject *loader_closed(PyObject *object, void *unused) {
    const LoaderObject *self = (LoaderObject *)object;
    (void)unused;
    return PyBool_FromLong(self->loader == NULL || self->closing);
}

static PyObject *loader_interrupt(PyObject *object, PyObject *unused) {
    LoaderObject *self = (LoaderObject *)object;
    (void)unused;
    if (!brim_py_loader_usable(self)) {
        return NULL;
    }
    (void)brim_loader_interrupt(self->loader);
    return Py_NewRef(Py_None);
}

/* ---------------------------------------------------------- life and death */

PyObject *brim_py_loader_new(brim_loader *loader, RuntimeObject *runtime, PyObject *bindings,
                             uint32_t hold, int copies) {
    allocfunc allocate = (allocfunc)PyType_GetSlot(brim_py_loader_type, Py_tp_alloc);
    LoaderObject *self = NULL;
    struct lending *lending = calloc(1, sizeof *lending);
    PyThread_type_lock busy = PyThread_allocate_lock();
    if (shut_down) {
        PyErr_SetString(brim_py_closed_error, "the interpreter is ending: no loader is opened");
    } else if (lending == NULL || busy == NULL) {
        PyErr_NoMemory();
    } else {
        self = (LoaderObject *)allocate(brim_py_loader_type, 0);
    }
    if (self == NULL) {
        free(lending);
        if (busy != NULL) {
            PyThread_free_lock(busy);
        }
        BRIM_WITHOUT_LOCK(brim_loader_close(loader));
        return NULL;
    }
    *lending = (struct lending){ .references = 1, .loader = loader };
    self->loader = loader;
    self->runtime = (RuntimeObject *)Py_NewRef(runtime);
    self->bindings = Py_NewRef(bindings);
    self->lending = lending;
    self->busy = busy;
    self->process = getpid();
    self->hold = hold;
    self->copies = copies;
    self->wanted_epoch = BRIM_PY_NO_EPOCH;
    brim_py_loader_note_start(self); /* without the lock: no other thread knows it yet */
    self->next = open_loaders;
    if (open_loaders != NULL) {
        open_loaders->before = self;
    }
    open_loaders = self;
    if (brim_py_warn_of_caches(self, 2) != 0) {
        Py_CLEAR(self); /* closes it */
    }
    return (PyObject *)self;
}

void brim_py_loader_on_device(PyObject *object, const brim_open_options *options, PyObject *queue) {
    LoaderObject *self = (LoaderObject *)object;
    self->device_kind = options->device_kind;
    self->device_index = options->device_index;
    self->lending->queue = Py_NewRef(queue);
    self->lending->handle = options->device_queue;
}

static void unlist(LoaderObject *self) {
    if (self->before != NULL) {
        self->before->next = self->next;
    } else if (open_loaders == self) {
        open_loaders = self->next;
    }
    if (self->next != NULL) {
        self->next->before = self->before;
    }
    self->next = self->before = NULL;
}

/* Functions that hang in worker processes are cut short, so that closing is not. */
static void stop_processes(const LoaderObject *self) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(self->bindings); i++) {
        struct processes *processes =
            ((BindingObject *)PyTuple_GetItem(self->bindings, i))->function.processes;
        if (processes != NULL) {
            BRIM_WITHOUT_LOCK(brim_py_processes_stop(processes));
        }
    }
}

void brim_py_loader_finish(LoaderObject *self) {
    brim_loader *const loader = self->loader;
    stop_processes(self);
    BRIM_WITHOUT_LOCK({
        do { /* the thread that is inside comes out */
            (void)brim_loader_interrupt(loader);
        } while (PyThread_acquire_lock_timed(self->busy, 1000, 0) != PY_LOCK_ACQUIRED);
    });
    brim_py_loader_drop_pending(self);
    BRIM_WITHOUT_LOCK(brim_loader_close(loader));
    self->loader = NULL;
    PyThread_release_lock(self->busy);
}

/* Closes it, now or when the calls that read it are done. -1 with an exception: the
 * calling thread is inside it, and would wait for itself. */
static int shut(LoaderObject *self) {
    if (self->loader == NULL || self->closing) {
        return 0;
    }
    const int forked = self->process != getpid();
    if (!forked &&
        (self->busy_thread == PyThread_get_thread_ident() || brim_py_is_running(self->bindings))) {
        PyErr_SetString(brim_py_iteration_error,
                        "a function of the pipeline cannot close the loader that runs it");
        return -1;
    }
    self->closing = 1;
    self->lending->loader = NULL;
    unlist(self);
    if (forked) {
        brim_loader_close(self->loader); /* takes no lock in a forked child */
        self->loader = NULL;
    } else if (self->users > 0) {
        self->close_waits = 1;
    } else {
        brim_py_loader_finish(self);
    }
    return 0;
}

void brim_py_loaders_close(void) {
    shut_down = 1;
    while (open_loaders != NULL) {
        LoaderObject *self = open_loaders;
        Py_INCREF(self);
        if (shut(self) != 0) {
            PyErr_Clear();
            unlist(self);
        }
        Py_DECREF(self);
    }
}

/* A loader whose last reference was dropped by one of its own functions: the main
 * thread closes it. */
struct orphan {
    brim_loader *loader;
    PyObject *bindings;
};

static int close_orphan(void *argument) {
    struct orphan *orphan = argument;
    BRIM_WITHOUT_LOCK(brim_loader_close(orphan->loader));
    Py_DECREF(orphan->bindings);
    free(orphan);
    return 0;
}

static void leave_orphan(LoaderObject *self) {
    struct orphan *orphan = malloc(sizeof *orphan);
    self->lending->loader = NULL;
    unlist(self);
    brim_py_loader_drop_pending(self);
    if (orphan != NULL) {
        *orphan = (struct orphan){ self->loader, Py_NewRef(self->bindings) };
        if (Py_AddPendingCall(close_orphan, orphan) == 0) {
            return;
        }
    }
    Py_INCREF(self->bindings); /* nothing can close it: what it calls must stay */
}

static PyObject *loader_close(PyObject *object, PyObject *unused) {
    (void)unused;
    return shut((LoaderObject *)object) == 0 ? Py_NewRef(Py_None) : NULL;
}

static PyObject *loader_enter(PyObject *object, PyObject *unused) {
    (void)unused;
    return brim_py_loader_usable((LoaderObject *)object) ? Py_NewRef(object) : NULL;
}

static PyObject *loader_exit(PyObject *object, PyObject *args) {
    (void)args;
    return loader_close(object, NULL);
}

static int loader_traverse(PyObject *object, visitproc visit, void *arg) {
    LoaderObject *self = (LoaderObject *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->runtime);
    Py_VISIT(self->bindings);
    return 0;
}

static int loader_clear(PyObject *object) {
    LoaderObject *self = (LoaderObject *)object;
    if (shut(self) != 0) { /* before what its workers may call goes away */
        PyErr_Clear();
    } else {
        Py_CLEAR(self->bindings);
    }
    return 0;
}

static void loader_dealloc(PyObject *object) {
    LoaderObject *self = (LoaderObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->lending != NULL) {
        PyObject *kept[3];
        PyErr_Fetch(&kept[0], &kept[1], &kept[2]);
        if (shut(self) != 0) {
            PyErr_Clear();
            leave_orphan(self);
        }
        PyErr_Restore(kept[0], kept[1], kept[2]);
        brim_py_lending_unref(self->lending);
        PyThread_free_lock(self->busy);
    }
    Py_XDECREF(self->bindings);
    Py_XDECREF(self->runtime);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* -------------------------------------------------------------------- types */

static PyGetSetDef attributes[] = {
    { "plan", loader_plan, NULL, "The plan that it runs.", NULL },
    { "classes", loader_classes, NULL, "The names of the labels, for each field that has them.",
      NULL },
    { "epoch", loader_epoch, NULL, "The epoch of the next batch.", NULL },
    { "device", loader_device, NULL, "Where its batches are: \"cpu\", \"cuda:0\", \"opencl:0\".",
      NULL },
    { "hold", loader_hold, NULL, "How many batches may be held at a time.", NULL },
    { "lent", loader_lent, NULL, "How many batches are held now, without copies.", NULL },
    { "closed", loader_closed, NULL, "Whether it is closed.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyMethodDef methods[] = {
    { "epochs", brim_py_loader_epochs, METH_VARARGS,
      "epochs(count=None): this many more epochs, one after the other." },
    { "set_epoch", brim_py_loader_set_epoch, METH_VARARGS,
      "set_epoch(epoch): the epoch that the next iterator begins." },
    { "seek", brim_py_loader_seek, METH_VARARGS, "seek(epoch, step): goes to a batch." },
    { "next", (PyCFunction)(void (*)(void))loader_next, METH_VARARGS | METH_KEYWORDS,
      "next(timeout=None): the next batch; None at the end of each epoch." },
    { "state_dict", brim_py_loader_state_dict, METH_NOARGS,
      "The position: after the batches delivered so far." },
    { "load_state_dict", brim_py_loader_load_state_dict, METH_O,
      "Continues from a state, also one that another number of ranks has written." },
    { "stats", loader_stats, METH_NOARGS, "What it has done so far." },
    { "interrupt", loader_interrupt, METH_NOARGS, "Makes a next() that waits raise." },
    { "close", loader_close, METH_NOARGS, "Closes the loader. Batches that are held stay valid." },
    { "__enter__", loader_enter, METH_NOARGS, NULL },
    { "__exit__", loader_exit, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot loader_slots[] = {
    { Py_tp_doc, "A running pipeline. iter(loader) is the next epoch." },
    { Py_tp_dealloc, (void *)loader_dealloc },
    { Py_tp_traverse, (void *)loader_traverse },
    { Py_tp_clear, (void *)loader_clear },
    { Py_tp_repr, (void *)loader_repr },
    { Py_tp_iter, (void *)brim_py_loader_iter },
    { Py_tp_getset, attributes },
    { Py_tp_methods, methods },
    { Py_mp_length, (void *)brim_py_loader_length },
    { 0, NULL },
};
static PyType_Spec loader_spec = { .name = "brim.Loader",
                                   .basicsize = sizeof(LoaderObject),
                                   .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                            Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                   .slots = loader_slots };

int brim_py_loader_init(PyObject *module) {
    brim_py_loader_type = (PyTypeObject *)PyType_FromSpec(&loader_spec);
    return brim_py_loader_type == NULL || PyModule_AddType(module, brim_py_loader_type) != 0
               ? -1
               : brim_py_epochs_init(module);
}
