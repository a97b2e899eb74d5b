/*
 * runtime.c: Runtime, a budget and its workers: opening, planning, usage, trim.
 *
 * Opening may take long (listing a folder, building an index). Whether or not the
 * program wants to see progress, brim asks now and then whether to go on, and that
 * is when the interpreter looks at its signals: Ctrl-C ends it.
 */
#include "extension.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject *brim_py_runtime_type;

/* The library's runtime for the length of a call, which may give up the interpreter's
 * lock or run code of the program: closing waits for its end. NULL with an exception. */
static brim_runtime *enter(PyObject *object) {
    RuntimeObject *self = (RuntimeObject *)object;
    if (self->closed) {
        PyErr_SetString(brim_py_closed_error, "this runtime is closed");
        return NULL;
    }
    self->users++;
    return self->runtime;
}

static void leave(PyObject *object) {
    RuntimeObject *self = (RuntimeObject *)object;
    if (--self->users == 0 && self->closed) {
        brim_runtime *runtime = self->runtime;
        self->runtime = NULL;
        BRIM_WITHOUT_LOCK(brim_runtime_free(runtime));
    }
}

static PyObject *runtime_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = { "memory", "threads",       "index_dir",     "pinned", "device_memory",
                             "shared", "shared_memory", "trust_foreign", NULL };
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_runtime *runtime;
    brim_status status;
    int threads = BRIM_THREADS_AUTO;
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        return PyErr_Format(PyExc_RuntimeError, "brim works only in the main interpreter: its "
                                                "threads could not call functions of another");
    }
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "|O&$izO&O&zO&p:Runtime", names, brim_py_unsigned, &options.host_bytes,
            &threads, &options.index_dir, brim_py_unsigned, &options.pinned_bytes, brim_py_unsigned,
            &options.device_bytes, &options.shared_name, brim_py_unsigned, &options.shared_bytes,
            &options.trust_foreign)) {
        return NULL;
    }
    options.threads = threads;
    BRIM_WITHOUT_LOCK(status = brim_runtime_new(&options, &runtime));
    if (status != BRIM_OK) {
        return brim_py_raise(status);
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    RuntimeObject *self = (RuntimeObject *)allocate(type, 0);
    if (self == NULL) {
        brim_runtime_free(runtime);
        return NULL;
    }
    self->runtime = runtime;
    return (PyObject *)self;
}

static PyObject *runtime_close(PyObject *object, PyObject *unused) {
    RuntimeObject *self = (RuntimeObject *)object;
    (void)unused;
    if (!self->closed) {
        self->users++;
        self->closed = 1;
        leave(object);
    }
    return Py_NewRef(Py_None);
}

static void runtime_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(runtime_close(object, NULL));
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *runtime_closed(PyObject *object, void *unused) {
    (void)unused;
    return PyBool_FromLong(((RuntimeObject *)object)->closed);
}

/* ----------------------------------------------------------------- progress */

struct progress {
    PyObject *callable;                 /* NULL: there is none */
    PyObject *type, *value, *traceback; /* what it raised */
};

static const char *unit_name(brim_unit unit) {
    return unit == BRIM_UNIT_FILES ? "files" : unit == BRIM_UNIT_SAMPLES ? "samples" : "bytes";
}

static int ask(void *user, const brim_progress *work) {
    struct progress *progress = user;
    const PyGILState_STATE lock = PyGILState_Ensure();
    int bad = PyErr_CheckSignals();
    if (bad == 0 && progress->callable != NULL) {
        PyObject *total = work->total == BRIM_UNKNOWN ? Py_NewRef(Py_None)
                                                      : PyLong_FromUnsignedLongLong(work->total);
        PyObject *result = total == NULL
                               ? NULL
                               : PyObject_CallFunction(progress->callable, "sKOs", work->what,
                                                       (unsigned long long)work->done, total,
                                                       unit_name(work->unit));
        bad = result == NULL;
        Py_XDECREF(total);
        Py_XDECREF(result);
    }
    if (bad != 0) {
        PyErr_Fetch(&progress->type, &progress->value, &progress->traceback);
    }
    PyGILState_Release(lock);
    return bad != 0 ? BRIM_ANSWER_STOP : BRIM_ANSWER_DONE;
}

/* While `next` makes samples or waits for them. The exception of a signal's handler stays
 * set until the library has returned, which it does at once. */
static int ask_signals(void *user) {
    (void)user;
    const PyGILState_STATE lock = PyGILState_Ensure();
    const int bad = PyErr_CheckSignals();
    PyGILState_Release(lock);
    return bad != 0 ? BRIM_ANSWER_STOP : BRIM_ANSWER_DONE;
}

/* ---------------------------------------------------------- open and plan */

#define SHARED_IF_NEEDED (-1) /* by functions in worker processes */

/* What an opening is given, and what must stay until it is done. */
struct given {
    brim_pipeline *pipeline;
    brim_binding *bindings;
    PyObject *tuple; /* of Binding */
    brim_open_options options;
    struct progress progress;
    PyObject *queue; /* borrowed */
    uint32_t hold;
    int copies;
};

static int read_bindings(struct given *given, PyObject *sequence) {
    given->tuple = sequence == NULL ? PyTuple_New(0) : PySequence_Tuple(sequence);
    if (given->tuple == NULL) {
        return -1;
    }
    const Py_ssize_t count = PyTuple_Size(given->tuple);
    given->bindings = calloc((size_t)count + 1, sizeof *given->bindings);
    if (given->bindings == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int processes = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GetItem(given->tuple, i);
        if (!Py_IS_TYPE(item, brim_py_binding_type)) {
            PyErr_Format(PyExc_TypeError, "bindings are brim._core.Binding, not %R",
                         (PyObject *)Py_TYPE(item));
            return -1;
        }
        const BindingObject *binding = (BindingObject *)item;
        given->bindings[i] = binding->binding;
        if (binding->function.processes != NULL && given->options.device_kind != BRIM_DEVICE_HOST) {
            PyErr_Format(brim_py_pipeline_error,
                         "@%s runs in worker processes, whose memory cannot be page-locked for "
                         "copies to a device: leave processes= out, or deliver on the host "
                         "(device='cpu')",
                         binding->binding.name);
            return -1;
        }
        processes |= binding->function.processes != NULL;
    }
    if (given->options.shared == SHARED_IF_NEEDED) {
        given->options.shared = processes;
    }
    given->options.bindings = given->bindings;
    given->options.binding_count = (size_t)count;
    return 0;
}

static void given_fini(struct given *given) {
    brim_pipeline_free(given->pipeline);
    free(given->bindings);
    Py_XDECREF(given->tuple);
    Py_XDECREF(given->progress.type);
    Py_XDECREF(given->progress.value);
    Py_XDECREF(given->progress.traceback);
}

static int read_device(brim_open_options *options, const char *device, PyObject *queue) {
    brim_device kind = BRIM_DEVICE_HOST;
    const brim_status status =
        device == NULL ? BRIM_OK : brim_device_parse(device, &kind, &options->device_index);
    if (status != BRIM_OK) {
        brim_py_raise(status);
        return -1;
    }
    options->device_kind = kind;
    return brim_py_queue(queue, options->device_kind, &options->device_queue);
}

static int given_init(struct given *given, PyObject *args, PyObject *keywords) {
    static char *names[] = { "text",   "bindings", "label",   "rank",  "world",
                             "hold",   "copies",   "threads", "slots", "fixed",
                             "shared", "progress", "device",  "queue", NULL };
    const char *text, *device = NULL;
    PyObject *bindings = NULL, *progress = Py_None, *shared = Py_None;
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    int fixed = 0;
    *given = (struct given){ 0 };
    options.world = 1;
    options.shared = SHARED_IF_NEEDED;
    given->hold = 2;
    given->queue = Py_None;
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "s|O$zO&O&O&piO&pOOzO", names, &text, &bindings, &options.label,
            brim_py_unsigned32, &options.rank, brim_py_unsigned32, &options.world,
            brim_py_unsigned32, &given->hold, &given->copies, &options.threads, brim_py_unsigned32,
            &options.slots, &fixed, &shared, &progress, &device, &given->queue) ||
        read_device(&options, device, given->queue) != 0) {
        return -1;
    }
    if (given->hold == 0 || given->hold == UINT32_MAX || options.world == 0) {
        PyErr_SetString(PyExc_ValueError, "hold and world are at least 1");
        return -1;
    }
    if (shared != Py_None && (options.shared = PyObject_IsTrue(shared)) < 0) {
        return -1;
    }
    options.growth = fixed ? BRIM_GROWTH_FIXED : BRIM_GROWTH_ON_DEMAND;
    options.progress = ask;
    options.progress_user = &given->progress;
    options.interrupted = ask_signals;
    given->progress.callable = progress == Py_None ? NULL : progress;
    given->options = options;
    const brim_status status = brim_pipeline_parse(text, &given->pipeline);
    if (status != BRIM_OK) {
        brim_py_raise(status);
        return -1;
    }
    given->options.hold = given->hold;
    /* what is lent while it is being copied needs a slot of its own */
    given->options.beyond = given->copies != 0;
    return read_bindings(given, bindings);
}

/* The exception of a failed opening. */
static PyObject *given_failed(struct given *given, brim_status status) {
    if (given->progress.type == NULL) {
        return brim_py_raise(status);
    }
    PyErr_Restore(given->progress.type, given->progress.value, given->progress.traceback);
    given->progress.type = given->progress.value = given->progress.traceback = NULL;
    return NULL;
}

static PyObject *runtime_open(PyObject *object, PyObject *args, PyObject *keywords) {
    struct given given;
    brim_loader *loader;
    brim_status status;
    PyObject *result = NULL;
    brim_runtime *runtime = enter(object);
    if (runtime == NULL) {
        return NULL;
    }
    if (given_init(&given, args, keywords) == 0) {
        BRIM_WITHOUT_LOCK(status =
                              brim_loader_open(runtime, given.pipeline, &given.options, &loader));
        result = status == BRIM_OK ? brim_py_loader_new(loader, (RuntimeObject *)object,
                                                        given.tuple, given.hold, given.copies)
                                   : given_failed(&given, status);
        if (result != NULL) {
            brim_py_loader_on_device(result, &given.options, given.queue);
        }
    }
    given_fini(&given);
    leave(object);
    return result;
}

static PyObject *runtime_plan(PyObject *object, PyObject *args, PyObject *keywords) {
    struct given given;
    brim_plan *plan;
    brim_status status;
    PyObject *result = NULL;
    brim_runtime *runtime = enter(object);
    if (runtime == NULL) {
        return NULL;
    }
    if (given_init(&given, args, keywords) == 0) {
        BRIM_WITHOUT_LOCK(status = brim_plan_new(runtime, given.pipeline, &given.options, &plan));
        if (status == BRIM_OK) {
            result = brim_py_plan_new(plan, given.options.device_kind, given.options.device_index,
                                      given.copies);
            brim_plan_free(plan);
        } else {
            given_failed(&given, status);
        }
    }
    given_fini(&given);
    leave(object);
    return result;
}

/* -------------------------------------------------------------------- usage */

struct walk {
    brim_budget_info *info;
    size_t count, room;
};

static int count_holder(void *user, const brim_budget_info *info) {
    struct walk *walk = user;
    if (walk->count < walk->room) {
        walk->info[walk->count] = *info;
    }
    walk->count++;
    return 0;
}

static PyObject *describe_holder(const brim_budget_info *info) {
    PyObject *limit = info->limit == BRIM_UNLIMITED ? Py_NewRef(Py_None)
                                                    : PyLong_FromUnsignedLongLong(info->limit);
    return Py_BuildValue("{s:s,s:I,s:N,s:K,s:K,s:K,s:K,s:K}", "label", info->label, "depth",
                         info->depth, "limit", limit, "minimum", (unsigned long long)info->minimum,
                         "charged", (unsigned long long)info->charged, "reserved",
                         (unsigned long long)info->reserved, "elastic",
                         (unsigned long long)info->elastic, "peak", (unsigned long long)info->peak);
}

/* The budget and all below it. What comes between the two walks is left out. */
static PyObject *list_holders(brim_budget *budget, brim_memory kind) {
    struct walk walk = { 0 };
    brim_status status = brim_budget_walk(budget, kind, count_holder, &walk);
    walk.room = walk.count;
    walk.count = 0;
    walk.info = calloc(walk.room + 1, sizeof *walk.info);
    if (walk.info == NULL) {
        return PyErr_NoMemory();
    }
    if (status == BRIM_OK) {
        status = brim_budget_walk(budget, kind, count_holder, &walk);
    }
    PyObject *list = status == BRIM_OK ? PyList_New(0) : brim_py_raise(status);
    for (size_t i = 0; list != NULL && i < walk.count && i < walk.room; i++) {
        PyObject *holder = describe_holder(&walk.info[i]);
        if (holder == NULL || PyList_Append(list, holder) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(holder);
    }
    free(walk.info);
    return list;
}

/* Adds {name: holders} if any of this kind was ever used. */
static int add_kind(PyObject *dict, brim_budget *budget, brim_memory kind, PyObject *name) {
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    const brim_status status = brim_budget_read(budget, kind, &info);
    int bad = name == NULL;
    if (status != BRIM_OK) {
        brim_py_raise(status);
        bad = 1;
    } else if (!bad && (info.peak > 0 || kind == BRIM_MEMORY_HOST)) {
        PyObject *holders = list_holders(budget, kind);
        bad = holders == NULL || PyDict_SetItem(dict, name, holders) != 0;
        Py_XDECREF(holders);
    }
    Py_XDECREF(name);
    return bad ? -1 : 0;
}

/* {"host": [...], "pinned": [...], "cuda:0": [...]} */
static PyObject *list_kinds(brim_runtime *runtime) {
    static const brim_device devices[] = { BRIM_DEVICE_CUDA, BRIM_DEVICE_OPENCL };
    brim_budget *budget = brim_runtime_budget(runtime);
    PyObject *dict = PyDict_New();
    int bad = dict == NULL ||
              add_kind(dict, budget, BRIM_MEMORY_HOST, PyUnicode_FromString("host")) != 0 ||
              add_kind(dict, budget, BRIM_MEMORY_PINNED, PyUnicode_FromString("pinned")) != 0;
    for (uint32_t i = 0; !bad && i < 2 * BRIM_MAX_DEVICES; i++) {
        const brim_device kind = devices[i / BRIM_MAX_DEVICES];
        const uint32_t index = i % BRIM_MAX_DEVICES;
        bad = add_kind(dict, budget, brim_device_memory(kind, index),
                       brim_py_device_text(kind, index)) != 0;
    }
    if (bad) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *describe_usage(brim_runtime *runtime) {
    brim_usage usage = BRIM_USAGE_INIT;
    const brim_status status = brim_runtime_read_usage(runtime, &usage);
    if (status != BRIM_OK) {
        return brim_py_raise(status);
    }
    PyObject *kinds = list_kinds(runtime);
    if (kinds == NULL) {
        return NULL;
    }
    PyObject *holders = Py_NewRef(PyDict_GetItemString(kinds, "host"));
    PyObject *shared =
        usage.processes == 0
            ? Py_NewRef(Py_None)
            : Py_BuildValue("{s:K,s:K,s:I}", "limit", (unsigned long long)usage.shared_limit,
                            "used", (unsigned long long)usage.shared_used, "processes",
                            usage.processes);
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:I,s:I,s:s,s:N,s:N,s:N}", "limit",
        (unsigned long long)usage.limit, "charged", (unsigned long long)usage.charged, "reserved",
        (unsigned long long)usage.reserved, "elastic", (unsigned long long)usage.elastic, "peak",
        (unsigned long long)usage.peak, "rss", (unsigned long long)usage.rss, "peak_rss",
        (unsigned long long)usage.peak_rss, "outside", (unsigned long long)usage.outside, "threads",
        usage.threads, "loaders", usage.loaders, "origin", usage.host_origin, "holders", holders,
        "kinds", kinds, "shared", shared);
}

static PyObject *runtime_usage(PyObject *object, PyObject *unused) {
    brim_runtime *runtime = enter(object);
    (void)unused;
    if (runtime == NULL) {
        return NULL;
    }
    PyObject *usage = describe_usage(runtime);
    leave(object);
    return usage;
}

static PyObject *runtime_trim(PyObject *object, PyObject *unused) {
    brim_runtime *runtime = enter(object);
    uint64_t bytes = 0;
    brim_status status;
    (void)unused;
    if (runtime == NULL) {
        return NULL;
    }
    BRIM_WITHOUT_LOCK(status = brim_runtime_trim(runtime, &bytes));
    leave(object);
    return status == BRIM_OK ? PyLong_FromUnsignedLongLong(bytes) : brim_py_raise(status);
}

/* What charge and uncharge are given: bytes of host memory, page-locked or not, or
 * of device memory. */
struct amount {
    uint64_t bytes;
    brim_device device;
    uint32_t index;
    int pinned;
};

static int read_amount(struct amount *amount, PyObject *args) {
    const char *device = "cpu";
    *amount = (struct amount){ .device = BRIM_DEVICE_HOST };
    if (!PyArg_ParseTuple(args, "O&|sp", brim_py_unsigned, &amount->bytes, &device,
                          &amount->pinned)) {
        return -1;
    }
    const brim_status status = brim_device_parse(device, &amount->device, &amount->index);
    if (status != BRIM_OK) {
        brim_py_raise(status);
        return -1;
    }
    return 0;
}

/* Of a device that has no limit yet, a quarter of what is free, as with the first loader. */
static brim_status limit_device(brim_budget *budget, const struct amount *amount) {
    const brim_memory kind = brim_device_memory(amount->device, amount->index);
    brim_device_info info = BRIM_DEVICE_INFO_INIT;
    brim_budget_info now = BRIM_BUDGET_INFO_INIT;
    brim_status status = brim_device_read(amount->device, amount->index, &info);
    if (status == BRIM_OK) {
        status = brim_budget_read(budget, kind, &now);
    }
    if (status != BRIM_OK || now.limit != BRIM_UNLIMITED) {
        return status;
    }
    const uint64_t left = info.free_bytes == BRIM_UNKNOWN ? info.total_bytes : info.free_bytes;
    /* refused where a loader that opens meanwhile has set it, and taken more */
    status = brim_budget_set(budget, kind, left / 4, 0);
    return status == BRIM_STATUS_BUDGET ? BRIM_OK : status;
}

static brim_status charge(brim_budget *budget, const struct amount *amount) {
    if (amount->device != BRIM_DEVICE_HOST) {
        const brim_status status = limit_device(budget, amount);
        return status != BRIM_OK
                   ? status
                   : brim_budget_charge(budget, brim_device_memory(amount->device, amount->index),
                                        amount->bytes);
    }
    brim_status status = brim_budget_charge(budget, BRIM_MEMORY_HOST, amount->bytes);
    if (status == BRIM_OK && amount->pinned) {
        status = brim_budget_charge(budget, BRIM_MEMORY_PINNED, amount->bytes);
        if (status != BRIM_OK) {
            brim_budget_uncharge(budget, BRIM_MEMORY_HOST, amount->bytes);
        }
    }
    return status;
}

static PyObject *runtime_charge(PyObject *object, PyObject *args) {
    struct amount amount;
    brim_status status;
    brim_runtime *runtime = read_amount(&amount, args) == 0 ? enter(object) : NULL;
    if (runtime == NULL) {
        return NULL;
    }
    BRIM_WITHOUT_LOCK(status = charge(brim_runtime_budget(runtime), &amount));
    leave(object);
    return status == BRIM_OK ? Py_NewRef(Py_None) : brim_py_raise(status);
}

static PyObject *runtime_uncharge(PyObject *object, PyObject *args) {
    struct amount amount;
    brim_runtime *runtime = read_amount(&amount, args) == 0 ? enter(object) : NULL;
    if (runtime == NULL) {
        return NULL;
    }
    brim_budget *budget = brim_runtime_budget(runtime);
    if (amount.device != BRIM_DEVICE_HOST) {
        brim_budget_uncharge(budget, brim_device_memory(amount.device, amount.index), amount.bytes);
    } else {
        brim_budget_uncharge(budget, BRIM_MEMORY_HOST, amount.bytes);
        if (amount.pinned) {
            brim_budget_uncharge(budget, BRIM_MEMORY_PINNED, amount.bytes);
        }
    }
    leave(object);
    return Py_NewRef(Py_None);
}

/* --------------------------------------------------------------------- type */

static PyGetSetDef attributes[] = {
    { "closed", runtime_closed, NULL, "Whether close() was called.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyMethodDef methods[] = {
    { "open", (PyCFunction)(void (*)(void))runtime_open, METH_VARARGS | METH_KEYWORDS,
      "open(text, bindings=(), ...): a Loader." },
    { "plan", (PyCFunction)(void (*)(void))runtime_plan, METH_VARARGS | METH_KEYWORDS,
      "plan(text, bindings=(), ...): the plan of open()." },
    { "usage", runtime_usage, METH_NOARGS, "The holders of memory." },
    { "trim", runtime_trim, METH_NOARGS, "Revokes all elastic memory; returns how many bytes." },
    { "charge", runtime_charge, METH_VARARGS,
      "charge(bytes, device, pinned): counts memory of the program." },
    { "uncharge", runtime_uncharge, METH_VARARGS, "uncharge(bytes, device, pinned)" },
    { "close", runtime_close, METH_NOARGS, "Closes the runtime. Open loaders continue to work." },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "One memory budget, and the threads that work inside it." },
    { Py_tp_new, (void *)runtime_new },
    { Py_tp_dealloc, (void *)runtime_dealloc },
    { Py_tp_getset, attributes },
    { Py_tp_methods, methods },
    { 0, NULL },
};
static PyType_Spec spec = { .name = "brim._core.Runtime",
                            .basicsize = sizeof(RuntimeObject),
                            .flags = Py_TPFLAGS_DEFAULT,
                            .slots = slots };

int brim_py_runtime_init(PyObject *module) {
    brim_py_runtime_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return brim_py_runtime_type == NULL ? -1 : PyModule_AddType(module, brim_py_runtime_type);
}
