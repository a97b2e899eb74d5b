/*
 * device.c: batches on devices: which devices there are, the streams of consumers, and
 * copies to the host.
 *
 * A batch on a device is there after an event. A reader says in which queue it reads: that queue is
 * made to wait for the event (brim_py_batch_await), and the batch goes back after all that the
 * queue holds when the last view dies. Nothing here waits, except for copies to the host.
 *
 * CUDA's streams have names that the array API standard fixed: 1 is the legacy default
 * stream, 2 the default stream of the calling thread, others are pointers; 0 could be
 * either of the first two and is refused. What was in the stream of one thread is given
 * back by whatever thread drops the last view: so the mark is put into the legacy stream,
 * which waits for all threads' default streams.
 */
#include "extension.h"

#include <string.h>

#define LEGACY        1u
#define PER_THREAD    2u
#define FIRST_ADDRESS 4096u /* no pointer is less */

/* ----------------------------------------------------------------- devices */

static PyObject *count_or_none(uint64_t count) {
    return count == BRIM_UNKNOWN ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(count);
}

static PyObject *text_of(const char *text) {
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *describe(brim_device kind, uint32_t index) {
    brim_device_info info = BRIM_DEVICE_INFO_INIT;
    brim_status status;
    BRIM_WITHOUT_LOCK(status = brim_device_read(kind, index, &info));
    if (status != BRIM_OK) {
        return brim_py_raise(status);
    }
    return Py_BuildValue("{s:s,s:I,s:N,s:N,s:K,s:N,s:N,s:N}", "kind", brim_device_name(kind),
                         "index", index, "name", text_of(info.name), "driver", text_of(info.driver),
                         "total", (unsigned long long)info.total_bytes, "free",
                         count_or_none(info.free_bytes), "unified", PyBool_FromLong(info.unified),
                         "converts", PyBool_FromLong(info.converts));
}

PyObject *brim_py_devices(PyObject *module, PyObject *args) {
    const char *name;
    brim_device kind;
    uint32_t index, count;
    (void)module;
    if (!PyArg_ParseTuple(args, "s:devices", &name)) {
        return NULL;
    }
    brim_status status = brim_device_parse(name, &kind, &index);
    if (status == BRIM_OK) {
        BRIM_WITHOUT_LOCK(status = brim_device_count(kind, &count));
    }
    if (status != BRIM_OK) {
        return brim_py_raise(status);
    }
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *item = describe(kind, i);
        if (item == NULL || PyList_Append(list, item) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

PyObject *brim_py_device_text(brim_device kind, uint32_t index) {
    return kind == BRIM_DEVICE_HOST ? PyUnicode_FromString("cpu")
                                    : PyUnicode_FromFormat("%s:%u", brim_device_name(kind), index);
}

int brim_py_need_host(brim_device kind, uint32_t index, PyObject *exception) {
    if (kind == BRIM_DEVICE_HOST) {
        return 0;
    }
    PyErr_Format(exception, "on %s:%u: use .to_host() or DLPack", brim_device_name(kind), index);
    return -1;
}

/* ----------------------------------------------------------------- streams */

int brim_py_read_stream(PyObject *object, uintptr_t *stream) {
    PyObject *integer = PyNumber_Index(object);
    const unsigned long long value = integer == NULL ? 0 : PyLong_AsUnsignedLongLong(integer);
    Py_XDECREF(integer);
    if (PyErr_Occurred() != NULL) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Format(PyExc_ValueError, "%R is no stream or queue", object);
        }
        return -1;
    }
    if (value == 0) {
        PyErr_SetString(PyExc_ValueError,
                        "stream=0 may mean two streams: 1 is the legacy default stream, 2 the "
                        "default stream of the calling thread");
        return -1;
    }
    *stream = (uintptr_t)value;
    return 0;
}

/* pyopencl's, torch's and cupy's objects; the default stream is 0 to the last two. */
static PyObject *number_of(PyObject *object) {
    static const char *const names[] = { "int_ptr", "cuda_stream", "ptr" };
    if (PyIndex_Check(object)) {
        return PyNumber_Index(object);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        PyObject *value = PyObject_GetAttrString(object, names[i]);
        if (value != NULL) {
            const int is_default = PyObject_Not(value) == 1;
            if (is_default) {
                Py_DECREF(value);
                value = PyLong_FromLong(LEGACY);
            }
            return value;
        }
        PyErr_Clear();
    }
    return PyErr_Format(PyExc_TypeError,
                        "queue is a CUDA stream or an OpenCL queue, as an int or as an object of "
                        "torch, cupy or pyopencl, not %R",
                        object);
}

int brim_py_queue(PyObject *object, brim_device kind, void **queue) {
    uintptr_t value = 0;
    *queue = NULL;
    if (object == Py_None) {
        return 0;
    }
    if (kind == BRIM_DEVICE_HOST) {
        PyErr_SetString(PyExc_ValueError, "a queue is of a device: give device= too");
        return -1;
    }
    PyObject *number = number_of(object);
    const int is_null = kind == BRIM_DEVICE_OPENCL && number != NULL && PyObject_Not(number) == 1;
    const int bad = number == NULL || (!is_null && brim_py_read_stream(number, &value) != 0);
    Py_XDECREF(number);
    if (bad) {
        return -1;
    }
    if (kind == BRIM_DEVICE_OPENCL && value < FIRST_ADDRESS) {
        PyErr_Format(PyExc_ValueError,
                     "queue=%R is not a cl_command_queue: give the handle of one, or leave it out",
                     object);
        return -1;
    }
    *queue = (void *)value;
    return 0;
}

void *brim_py_batch_behind(const BatchObject *batch) {
    return batch->queue != NULL ? batch->queue : batch->looked_at ? (void *)LEGACY : NULL;
}

void *brim_py_queue_behind(void *queue) {
    return queue == (void *)PER_THREAD ? (void *)LEGACY : queue;
}

/* The caller, or a view, has a reference. Another thread's release() is refused meanwhile. */
static brim_status wait_in(BatchObject *batch, void *stream) {
    brim_status status;
    batch->views++;
    BRIM_WITHOUT_LOCK(status = brim_batch_wait(batch->batch, stream));
    batch->views--;
    if (status != BRIM_OK) {
        brim_py_raise(status);
    }
    return status;
}

int brim_py_batch_await(BatchObject *batch, void *stream) {
    brim_status status;
    void *const behind = brim_py_queue_behind(stream);
    if (behind != NULL && batch->queue != NULL && batch->queue != behind) {
        PyErr_Format(PyExc_BufferError,
                     "this batch is used in stream %p already, and would be released before %p has "
                     "finished with it: use one stream for a batch, or copy() it",
                     batch->queue, behind);
        return -1;
    }
    void *const before = batch->queue;
    if (behind != NULL) {
        batch->queue = behind; /* before another thread names one */
    }
    status = wait_in(batch, stream);
    if (status == BRIM_STATUS_INVALID) { /* it is none, so nothing uses it */
        batch->queue = before;
    }
    return status == BRIM_OK ? 0 : -1;
}

/* --------------------------------------------------------- copies to the host */

PyObject *brim_py_read_field(BatchObject *batch, size_t number, size_t before) {
    const uint64_t bytes = brim_batch_field_at(batch->batch, number)->bytes;
    PyObject *memory = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(before + bytes));
    brim_status status;
    if (memory == NULL) {
        return NULL;
    }
    void *data = PyByteArray_AsString(memory) + before;
    BRIM_WITHOUT_LOCK(status = brim_batch_copy_field(batch->batch, number, data, bytes));
    if (status != BRIM_OK) {
        Py_DECREF(memory);
        return brim_py_raise(status);
    }
    return memory;
}

/* What is read lies without gaps, whatever it does on the device. */
PyObject *brim_py_array_copy(const ArrayObject *array) {
    int64_t shape[BRIM_MAX_RANK];
    PyObject *memory = brim_py_read_field((BatchObject *)array->owner, array->field, 0);
    if (memory == NULL) {
        return NULL;
    }
    for (int i = 0; i < array->rank; i++) {
        shape[i] = array->shape[i];
    }
    PyObject *copy = brim_py_array_new(memory, PyByteArray_AsString(memory) + array->skip,
                                       array->dtype, array->rank, shape, NULL, 0);
    Py_DECREF(memory);
    return copy;
}

/* ------------------------------------------------- __cuda_array_interface__ */

/* Version 3. The consumer has its own stream wait for the one that is named here, and never
 * says which it is. To look whether there is such an interface is to read it: so this does
 * not bind the batch to a stream, and one that is named later is as good. */
PyObject *brim_py_cuda_interface(PyObject *object, void *unused) {
    const ArrayObject *self = (ArrayObject *)object;
    (void)unused;
    if (self->device_kind != BRIM_DEVICE_CUDA) {
        PyErr_SetString(PyExc_AttributeError, "not in the memory of a CUDA device");
        return NULL;
    }
    BatchObject *batch = (BatchObject *)self->owner;
    void *stream = batch->queue != NULL ? batch->queue : (void *)LEGACY;
    if (wait_in(batch, stream) != BRIM_OK) {
        return NULL;
    }
    batch->looked_at = 1;
    return Py_BuildValue("{s:N,s:s,s:(NO),s:N,s:N,s:i}", "shape",
                         PyObject_GetAttrString(object, "shape"), "typestr",
                         brim_py_type_text(self->dtype), "data", PyLong_FromVoidPtr(self->data),
                         Py_False, "strides", PyObject_GetAttrString(object, "strides"), "stream",
                         PyLong_FromVoidPtr(stream), "version", 3);
}
