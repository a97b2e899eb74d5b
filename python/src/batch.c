/*
 * batch.c: Batch, a slot that brim has lent.
 *
 * The slot is released when the Batch dies, which every view of its memory keeps alive. release()
 * releases it earlier if no view is left. On a device it is released after the work that consumers'
 * queues hold at that moment.
 */
#include "extension.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject *brim_py_batch_type;

void brim_py_lending_unref(struct lending *lending) {
    if (lending != NULL && --lending->references == 0) {
        Py_XDECREF(lending->queue);
        free(lending);
    }
}

PyObject *brim_py_batch_new(brim_batch *batch, PyObject *bindings, struct lending *lending,
                            int is_copy) {
    BatchObject *self = PyObject_GC_New(BatchObject, brim_py_batch_type);
    if (self == NULL) {
        brim_batch_release(batch);
        return NULL;
    }
    self->batch = batch;
    self->bindings = Py_NewRef(bindings);
    self->lending = lending;
    self->is_copy = is_copy;
    self->is_beyond = 0;
    self->views = 0;
    const brim_field *field = brim_batch_field_at(batch, 0);
    self->on_device = field != NULL && field->device_kind != BRIM_DEVICE_HOST;
    self->queue = self->on_device ? brim_py_queue_behind(lending->handle) : NULL;
    self->looked_at = 0;
    lending->references++;
    *(is_copy ? &lending->copies : &lending->lent) += 1;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static void give_back(BatchObject *self) {
    brim_batch *batch = self->batch;
    if (batch != NULL) {
        self->batch = NULL;
        *(self->is_copy ? &self->lending->copies : &self->lending->lent) -= 1;
        self->lending->beyond -= self->is_beyond;
        if (self->on_device) { /* the call may wait for the driver and, of a closed loader, for the
                                  queue's work */
            void *const queue = brim_py_batch_behind(self);
            BRIM_WITHOUT_LOCK(brim_batch_release_after(batch, queue));
            return;
        }
        /* with the interpreter's lock: the call waits for no thread that needs it, and
         * giving the lock up for each batch would cost more than the call */
        brim_batch_release(batch);
    }
}

static void batch_dealloc(PyObject *object) {
    BatchObject *self = (BatchObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    give_back(self);
    brim_py_lending_unref(self->lending);
    Py_DECREF(self->bindings);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

/* Cycles are broken elsewhere, at a dict or list: what lies in the batch's memory may
 * need it to the end. */
static int batch_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((BatchObject *)object)->bindings);
    return 0;
}

static const brim_batch *get(PyObject *object) {
    const brim_batch *batch = ((BatchObject *)object)->batch;
    if (batch == NULL) {
        PyErr_SetString(brim_py_closed_error, "this batch was released");
    }
    return batch;
}

static const brim_batch_info *info_of(PyObject *object) {
    const brim_batch *batch = get(object);
    return batch == NULL ? NULL : brim_batch_get(batch);
}

/* ------------------------------------------------------------------ mapping */

static PyObject *batch_item(PyObject *object, PyObject *key) {
    const brim_batch *batch = get(object);
    if (batch == NULL) {
        return NULL;
    }
    const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, NULL) : NULL;
    const uint32_t count = name == NULL ? 0 : brim_batch_get(batch)->field_count;
    uint32_t number = 0;
    while (number < count && strcmp(brim_batch_field_at(batch, number)->name, name) != 0) {
        number++;
    }
    if (number == count) {
        PyObject *names = PyObject_CallMethod(object, "keys", NULL);
        if (names != NULL) {
            PyErr_Clear();
            PyErr_Format(PyExc_KeyError, "no field %R; there are %R", key, names);
            Py_DECREF(names);
        }
        return NULL;
    }
    const brim_field *field = brim_batch_field_at(batch, number);
    return field->offsets == NULL ? brim_py_array_of(object, field, number, 0, (int)field->rank,
                                                     field->shape, field->strides)
                                  : brim_py_ragged_new(object, field, number);
}

static PyObject *batch_keys(PyObject *object, PyObject *unused) {
    const brim_batch *batch = get(object);
    (void)unused;
    if (batch == NULL) {
        return NULL;
    }
    PyObject *list = PyList_New(0);
    const uint32_t count = brim_batch_get(batch)->field_count;
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *name = PyUnicode_FromString(brim_batch_field_at(batch, i)->name);
        if (name == NULL || PyList_Append(list, name) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(name);
    }
    return list;
}

/* values(), or items() with names. */
static PyObject *collect(PyObject *object, int with_names) {
    PyObject *names = batch_keys(object, NULL);
    PyObject *list = names == NULL ? NULL : PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < PyList_Size(names); i++) {
        PyObject *name = PyList_GetItem(names, i);
        PyObject *value = batch_item(object, name);
        PyObject *item = value == NULL ? NULL
                         : !with_names ? Py_NewRef(value)
                                       : PyTuple_Pack(2, name, value);
        Py_XDECREF(value);
        if (item == NULL || PyList_Append(list, item) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    Py_XDECREF(names);
    return list;
}

static PyObject *batch_values(PyObject *object, PyObject *unused) {
    (void)unused;
    return collect(object, 0);
}

static PyObject *batch_items(PyObject *object, PyObject *unused) {
    (void)unused;
    return collect(object, 1);
}

static PyObject *batch_get(PyObject *object, PyObject *args) {
    PyObject *key, *fallback = Py_None;
    if (!PyArg_ParseTuple(args, "O|O:get", &key, &fallback)) {
        return NULL;
    }
    PyObject *value = batch_item(object, key);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_KeyError)) {
        PyErr_Clear();
        return Py_NewRef(fallback);
    }
    return value;
}

static int batch_contains(PyObject *object, PyObject *key) {
    const brim_batch *batch = get(object);
    if (batch == NULL) {
        return -1;
    }
    const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, NULL) : NULL;
    PyErr_Clear();
    return name != NULL && brim_batch_find(batch, name) != NULL;
}

static PyObject *batch_iter(PyObject *object) {
    PyObject *names = batch_keys(object, NULL);
    PyObject *iterator = names == NULL ? NULL : PyObject_GetIter(names);
    Py_XDECREF(names);
    return iterator;
}

static Py_ssize_t batch_length(PyObject *object) {
    const brim_batch_info *info = info_of(object);
    return info == NULL ? -1 : (Py_ssize_t)info->field_count;
}

/* --------------------------------------------------------------- attributes */

static PyObject *batch_ids(PyObject *object, void *unused) {
    const brim_batch_info *info = info_of(object);
    (void)unused;
    if (info == NULL) {
        return NULL;
    }
    /* as signed numbers, in which a row that only fills the batch up is -1 */
    const int64_t shape = (int64_t)info->rows;
    return brim_py_array_new(object, (void *)(uintptr_t)info->samples, BRIM_DTYPE_I64, 1, &shape,
                             NULL, 1);
}

static PyObject *batch_valid(PyObject *object, void *unused) {
    const brim_batch_info *info = info_of(object);
    (void)unused;
    if (info == NULL) {
        return NULL;
    }
    const int64_t shape = (int64_t)info->rows;
    return brim_py_array_new(object, (void *)(uintptr_t)info->valid, BRIM_DTYPE_BOOL, 1, &shape,
                             NULL, 1);
}

static PyObject *name_of(const brim_plan *plan, uint64_t sample) {
    char text[8192];
    if (sample == UINT64_MAX) {
        return Py_NewRef(Py_None);
    }
    const brim_status status = brim_plan_sample_name(plan, sample, text, sizeof text);
    return status == BRIM_OK ? PyUnicode_DecodeFSDefault(text) : brim_py_raise(status);
}

static PyObject *batch_names(PyObject *object, void *unused) {
    const BatchObject *self = (BatchObject *)object;
    const brim_batch_info *info = info_of(object);
    (void)unused;
    if (info == NULL) {
        return NULL;
    }
    if (self->lending->loader == NULL) {
        return brim_py_raise_text(BRIM_STATUS_CLOSED,
                                  "names are looked up in the loader, and it is closed");
    }
    const brim_plan *plan = brim_loader_plan(self->lending->loader);
    PyObject *list = PyList_New(0);
    for (uint64_t row = 0; list != NULL && row < info->rows; row++) {
        PyObject *name = name_of(plan, info->samples[row]);
        if (name == NULL || PyList_Append(list, name) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(name);
    }
    return list;
}

static PyObject *batch_number(PyObject *object, void *offset) {
    const brim_batch_info *info = info_of(object);
    if (info == NULL) {
        return NULL;
    }
    uint64_t number;
    memcpy(&number, (const char *)info + (uintptr_t)offset, sizeof number);
    return PyLong_FromUnsignedLongLong(number);
}

static PyObject *batch_small_number(PyObject *object, void *offset) {
    const brim_batch_info *info = info_of(object);
    if (info == NULL) {
        return NULL;
    }
    uint32_t number;
    memcpy(&number, (const char *)info + (uintptr_t)offset, sizeof number);
    return PyLong_FromUnsignedLong(number);
}

static PyObject *batch_is_copy(PyObject *object, void *unused) {
    (void)unused;
    return PyBool_FromLong(((BatchObject *)object)->is_copy);
}

static PyObject *batch_device(PyObject *object, void *unused) {
    const brim_batch *batch = get(object);
    (void)unused;
    if (batch == NULL) {
        return NULL;
    }
    const brim_field *field = brim_batch_field_at(batch, 0);
    return field == NULL ? brim_py_device_text(BRIM_DEVICE_HOST, 0)
                         : brim_py_device_text(field->device_kind, field->device_index);
}

static PyObject *batch_ready(PyObject *object, void *unused) {
    const brim_batch *batch = get(object);
    (void)unused;
    if (batch == NULL) {
        return NULL;
    }
    const brim_field *field = brim_batch_field_at(batch, 0);
    return field == NULL || field->ready == NULL ? Py_NewRef(Py_None)
                                                 : PyLong_FromVoidPtr(field->ready);
}

static PyObject *batch_state(PyObject *object, void *unused) {
    const brim_batch *batch = get(object);
    brim_state state;
    (void)unused;
    if (batch == NULL) {
        return NULL;
    }
    const brim_status status = brim_batch_state(batch, &state);
    return status == BRIM_OK ? brim_py_state_new(&state) : brim_py_raise(status);
}

/* ------------------------------------------------------------------ methods */

static PyObject *batch_copy(PyObject *object, PyObject *unused) {
    BatchObject *self = (BatchObject *)object;
    const brim_batch *batch = get(object);
    brim_batch *copy;
    brim_status status;
    (void)unused;
    if (batch == NULL) {
        return NULL;
    }
    Py_INCREF(object); /* while another thread may drop it, or release() it */
    self->views++;
    BRIM_WITHOUT_LOCK(status = brim_batch_copy(batch, &copy));
    self->views--;
    PyObject *result = status == BRIM_OK ? brim_py_batch_new(copy, self->bindings, self->lending, 1)
                                         : brim_py_raise(status);
    Py_DECREF(object);
    return result;
}

static PyObject *batch_wait(PyObject *object, PyObject *args) {
    PyObject *given = Py_None;
    void *queue;
    const brim_batch *batch = get(object);
    if (batch == NULL || !PyArg_ParseTuple(args, "|O:wait", &given)) {
        return NULL;
    }
    const brim_field *field = brim_batch_field_at(batch, 0);
    const brim_device kind = field == NULL ? BRIM_DEVICE_HOST : field->device_kind;
    /* a queue may be a Python object, whose code can release the batch */
    return brim_py_queue(given, kind, &queue) == 0 && get(object) != NULL &&
                   brim_py_batch_await((BatchObject *)object, queue) == 0
               ? Py_NewRef(Py_None)
               : NULL;
}

static PyObject *batch_release(PyObject *object, PyObject *unused) {
    (void)unused;
    if (((BatchObject *)object)->views > 0) {
        return PyErr_Format(PyExc_BufferError,
                            "views of this batch are alive: it is released when the last one dies");
    }
    give_back((BatchObject *)object);
    return Py_NewRef(Py_None);
}

static PyObject *batch_repr(PyObject *object) {
    const BatchObject *self = (BatchObject *)object;
    if (self->batch == NULL) {
        return PyUnicode_FromString("brim.Batch(released)");
    }
    const brim_batch_info *info = brim_batch_get(self->batch);
    PyObject *names = batch_keys(object, NULL);
    PyObject *text =
        names == NULL
            ? NULL
            : PyUnicode_FromFormat("brim.Batch(epoch=%llu, step=%llu, rows=%llu, fields=%R)",
                                   (unsigned long long)info->epoch, (unsigned long long)info->step,
                                   (unsigned long long)info->rows, names);
    Py_XDECREF(names);
    return text;
}

/* ------------------------------------------------------------------- states */

PyObject *brim_py_state_new(const brim_state *state) {
    static const char digits[] = "0123456789abcdef";
    char text[2 * BRIM_STATE_BYTES + 1] = "";
    for (size_t i = 0; i < BRIM_STATE_BYTES; i++) {
        text[2 * i] = digits[state->bytes[i] >> 4];
        text[2 * i + 1] = digits[state->bytes[i] & 15];
    }
    return Py_BuildValue("{s:i,s:s}", "format", 1, "state", text);
}

int brim_py_state_read(PyObject *object, brim_state *state) {
    PyObject *text = PyMapping_Check(object) ? PyMapping_GetItemString(object, "state") : NULL;
    const char *digits =
        text != NULL && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    int good = digits != NULL && strlen(digits) == sizeof *state * 2 &&
               strspn(digits, "0123456789abcdef") == sizeof *state * 2;
    for (size_t i = 0; good && i < BRIM_STATE_BYTES; i++) {
        const char pair[3] = { digits[2 * i], digits[2 * i + 1], '\0' };
        state->bytes[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    Py_XDECREF(text);
    if (!good) {
        PyErr_Clear();
        brim_py_raise_text(
            BRIM_STATUS_MISMATCH,
            "this is not a state of brim: give a result of state_dict() or a batch's `state`");
        return -1;
    }
    return 0;
}

/* --------------------------------------------------------------------- type */

#define AT(member) (void *)offsetof(brim_batch_info, member)

static PyGetSetDef attributes[] = {
    { "ids", batch_ids, NULL, "The samples' numbers; -1 for padding rows.", NULL },
    { "valid", batch_valid, NULL, "Which rows are samples.", NULL },
    { "names", batch_names, NULL, "What each sample is called: the path of its file.", NULL },
    { "rows", batch_number, NULL, "Rows, including padding rows.", AT(rows) },
    { "valid_rows", batch_number, NULL, "Rows that are samples.", AT(valid_rows) },
    { "skipped", batch_number, NULL,
      "Bad samples left out of it; with valid_rows 0: all of them were bad.", AT(skipped) },
    { "global_rows", batch_number, NULL, "Samples of this step over all ranks.", AT(global_rows) },
    { "epoch", batch_number, NULL, "The epoch's number.", AT(epoch) },
    { "step", batch_number, NULL, "The batch's number in the epoch.", AT(step) },
    { "micro", batch_small_number, NULL, "Which of the step's micro-batches.", AT(micro) },
    { "micro_count", batch_small_number, NULL, "Micro-batches of the step.", AT(micro_count) },
    { "is_copy", batch_is_copy, NULL, "Whether it is a charged copy instead of a slot.", NULL },
    { "device", batch_device, NULL, "Where its fields are: \"cpu\", \"cuda:0\", \"opencl:0\".",
      NULL },
    { "ready", batch_ready, NULL,
      "The cl_event or CUevent after which it is on its device; None on the host.", NULL },
    { "state", batch_state, NULL, "The position of a loader right after this batch.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyMethodDef methods[] = {
    { "keys", batch_keys, METH_NOARGS, "The fields' names." },
    { "values", batch_values, METH_NOARGS, "The fields." },
    { "items", batch_items, METH_NOARGS, "Names and fields." },
    { "get", batch_get, METH_VARARGS, "get(name, default=None)" },
    { "copy", batch_copy, METH_NOARGS,
      "A copy that does not count as held, charged to the budget." },
    { "wait", batch_wait, METH_VARARGS,
      "wait(queue=None): the queue waits until it is on its device; None: the calling thread." },
    { "release", batch_release, METH_NOARGS, "Gives the slot back now." },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "A batch in a slot that brim lends. It is released when the last view dies." },
    { Py_tp_dealloc, (void *)batch_dealloc },
    { Py_tp_traverse, (void *)batch_traverse },
    { Py_tp_repr, (void *)batch_repr },
    { Py_tp_iter, (void *)batch_iter },
    { Py_tp_getset, attributes },
    { Py_tp_methods, methods },
    { Py_mp_length, (void *)batch_length },
    { Py_mp_subscript, (void *)batch_item },
    { Py_sq_contains, (void *)batch_contains },
    { 0, NULL },
};
static PyType_Spec spec = { .name = "brim.Batch",
                            .basicsize = sizeof(BatchObject),
                            .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                     Py_TPFLAGS_DISALLOW_INSTANTIATION,
                            .slots = slots };

int brim_py_batch_init(PyObject *module) {
    brim_py_batch_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return brim_py_batch_type == NULL ? -1 : PyModule_AddType(module, brim_py_batch_type);
}
