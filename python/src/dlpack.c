/*
 * dlpack.c: arrays through DLPack, versioned (1.0) and not.
 *
 * The structs are those of the DLPack specification. A capsule holds a tensor that
 * keeps the Array alive until the consumer calls its deleter, from whatever thread.
 *
 * A consumer renames the capsule when it takes the tensor over; the destructor of a capsule that
 * was not renamed calls the deleter. Some call the deleter and do not rename: torch does when it
 * refuses a device. And some take the destructor away (jax), so the structs cannot live as long as
 * the capsule. They are therefore never freed, but used again for later tensors: they can be read
 * at any time, and hold the number of the tensor that they are now. A capsule knows the number of
 * its own, and its destructor touches no other. There are as many as tensors were alive at a time.
 *
 * On a device the consumer names the stream in which it will use the memory, which then
 * waits for the batch; the batch goes back after what that stream holds when the last
 * view dies. dl_device=(1, 0) asks for a copy in host memory instead.
 */
#include "extension.h"

#include <stdlib.h>

struct dl_device {
    int32_t type, id;
};
struct dl_type {
    uint8_t code, bits;
    uint16_t lanes;
};
struct dl_tensor {
    void *data;
    struct dl_device device;
    int32_t rank;
    struct dl_type type;
    int64_t *shape, *strides; /* in elements */
    uint64_t byte_offset;
};
struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *managed);
};
struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *managed);
    uint64_t flags;
    struct dl_tensor tensor;
};

#define ON_CPU         1
#define ON_CUDA        2
#define ON_OPENCL      4
#define FLAG_READ_ONLY 1u
#define FLAG_IS_COPIED 2u
#define NAME           "dltensor"
#define NAME_VERSIONED "dltensor_versioned"

/* One of the two, with the array that it shows and room for its numbers. Guarded by the
 * interpreter's lock; what the consumer reads does not change while it has the tensor. */
struct export {
    union {
        struct dl_managed managed;
        struct dl_versioned versioned;
    } as;
    PyObject *array;     /* NULL: deleted */
    uintptr_t number;    /* of this tensor, of all that there were */
    struct export *next; /* of those that are free */
    int64_t shape[BRIM_MAX_RANK], strides[BRIM_MAX_RANK];
};

static struct export *free_exports;
static uintptr_t last_number;

/* The lock is held. */
static struct export *export_new(PyObject *array) {
    struct export *export = free_exports;
    if (export != NULL) {
        free_exports = export->next;
    } else if ((export = malloc(sizeof *export)) == NULL) {
        return NULL;
    }
    *export = (struct export){ .array = Py_NewRef(array), .number = ++last_number };
    return export;
}

/* What was deleted already stays so. The lock is held. */
static void export_free(struct export *export) {
    PyObject *const array = export->array;
    if (array != NULL) {
        export->array = NULL;
        export->next = free_exports;
        free_exports = export;
        Py_DECREF(array);
    }
}

static void drop(struct export *export) {
    if (Py_IsInitialized()) { /* else the interpreter is gone, and the memory with it */
        const PyGILState_STATE lock = PyGILState_Ensure();
        export_free(export);
        PyGILState_Release(lock);
    }
}
static void delete_managed(struct dl_managed *managed) {
    drop(managed->context);
}
static void delete_versioned(struct dl_versioned *managed) {
    drop(managed->context);
}

/* Deletes a tensor that was not taken over, unless it has been deleted all the same. */
static void end_capsule(PyObject *capsule) {
    const char *const name = PyCapsule_IsValid(capsule, NAME)             ? NAME
                             : PyCapsule_IsValid(capsule, NAME_VERSIONED) ? NAME_VERSIONED
                                                                          : NULL;
    if (name != NULL) {
        /* the union is the first member */
        struct export *export = PyCapsule_GetPointer(capsule, name);
        if (export->number == (uintptr_t)PyCapsule_GetContext(capsule)) {
            drop(export);
        }
    }
}

static struct dl_type type_of(brim_dtype dtype) {
    enum { INTEGER = 0, UNSIGNED = 1, FLOAT = 2, BFLOAT = 4, COMPLEX = 5, BOOL = 6 };
    uint8_t code = FLOAT;
    switch (dtype) {
    case BRIM_DTYPE_BOOL:
        code = BOOL;
        break;
    case BRIM_DTYPE_U8:
    case BRIM_DTYPE_U16:
    case BRIM_DTYPE_U32:
    case BRIM_DTYPE_U64:
        code = UNSIGNED;
        break;
    case BRIM_DTYPE_I8:
    case BRIM_DTYPE_I16:
    case BRIM_DTYPE_I32:
    case BRIM_DTYPE_I64:
        code = INTEGER;
        break;
    case BRIM_DTYPE_BF16:
        code = BFLOAT;
        break;
    case BRIM_DTYPE_C64:
    case BRIM_DTYPE_C128:
        code = COMPLEX;
        break;
    case BRIM_DTYPE_F16:
    case BRIM_DTYPE_F32:
    case BRIM_DTYPE_F64:
        break;
    }
    return (struct dl_type){ code, (uint8_t)(8 * brim_dtype_bytes(dtype)), 1 };
}

static struct dl_device device_of(const ArrayObject *self) {
    switch (self->device_kind) {
    case BRIM_DEVICE_CUDA:
        return (struct dl_device){ ON_CUDA, (int32_t)self->device_index };
    case BRIM_DEVICE_OPENCL:
        return (struct dl_device){ ON_OPENCL, (int32_t)self->device_index };
    case BRIM_DEVICE_HOST:
        break;
    }
    return (struct dl_device){ ON_CPU, 0 };
}

/* Whether what is asked for is a copy in host memory of what is on a device: 1 or 0, or -1
 * with an exception if it is neither that nor the memory itself. */
static int wants_copy(const ArrayObject *self, PyObject *wanted, PyObject *copy) {
    const struct dl_device device = device_of(self);
    int type = device.type, id = device.id;
    const int copies = copy == Py_None ? -1 : PyObject_IsTrue(copy);
    if (PyErr_Occurred() != NULL) {
        return -1;
    }
    if (wanted != Py_None && !PyArg_ParseTuple(wanted, "ii;dl_device is (type, id)", &type, &id)) {
        return -1;
    }
    if (type == ON_CPU && device.type != ON_CPU) {
        if (copies == 0) {
            PyErr_Format(PyExc_BufferError,
                         "on %s:%u: host memory can have only a copy, which copy=False forbids",
                         brim_device_name(self->device_kind), self->device_index);
            return -1;
        }
        return 1;
    }
    if (type != device.type || (type != ON_CPU && id != device.id)) {
        PyErr_Format(PyExc_BufferError, "the array is in memory of device (%d, %d), not (%d, %d)",
                     device.type, device.id, type, id);
        return -1;
    }
    if (copies == 1) {
        PyErr_SetString(PyExc_BufferError, "brim does not copy here: copy the imported array");
        return -1;
    }
    return 0;
}

/* Has the consumer's stream wait for what is on a device. */
static int await(const ArrayObject *self, PyObject *stream) {
    uintptr_t number = 1; /* CUDA's legacy default stream */
    if (self->device_kind != BRIM_DEVICE_CUDA) {
        if (stream != Py_None) {
            PyErr_SetString(PyExc_BufferError, self->device_kind == BRIM_DEVICE_HOST
                                                   ? "arrays in host memory have no stream"
                                                   : "OpenCL has no streams: leave stream out");
            return -1;
        }
        if (self->device_kind == BRIM_DEVICE_HOST) {
            return 0;
        }
        if (((BatchObject *)self->owner)->queue != NULL) {
            return 0; /* that waits already */
        }
        number = 0; /* no queue is known: this thread waits */
    } else if (stream != Py_None) {
        if (PyLong_Check(stream) && PyLong_AsLong(stream) == -1 && PyErr_Occurred() == NULL) {
            return 0;
        }
        PyErr_Clear(); /* a pointer that is no long */
        if (brim_py_read_stream(stream, &number) != 0) {
            return -1;
        }
    }
    return brim_py_batch_await((BatchObject *)self->owner, (void *)number);
}

/* A capsule of the array, which it keeps. */
static PyObject *pack(PyObject *object, int versioned, uint64_t flags) {
    const ArrayObject *self = (ArrayObject *)object;
    struct export *export = export_new(object);
    if (export == NULL) {
        return PyErr_NoMemory();
    }
    const Py_ssize_t item = (Py_ssize_t)brim_dtype_bytes(self->dtype);
    for (int i = 0; i < self->rank; i++) {
        export->shape[i] = self->shape[i];
        export->strides[i] = self->strides[i] / item;
    }
    const struct dl_tensor tensor = { .data = self->data,
                                      .device = device_of(self),
                                      .rank = self->rank,
                                      .type = type_of(self->dtype),
                                      .shape = export->shape,
                                      .strides = export->strides,
                                      .byte_offset = self->offset };
    if (versioned) {
        flags |= self->readonly ? FLAG_READ_ONLY : 0;
        export->as.versioned = (struct dl_versioned){ .major = 1,
                                                      .minor = 0,
                                                      .context = export,
                                                      .deleter = delete_versioned,
                                                      .flags = flags,
                                                      .tensor = tensor };
    } else {
        export->as.managed = (struct dl_managed){ tensor, export, delete_managed };
    }
    PyObject *capsule = PyCapsule_New(export, versioned ? NAME_VERSIONED : NAME, end_capsule);
    if (capsule == NULL) {
        export_free(export);
    } else {
        PyCapsule_SetContext(capsule, (void *)export->number); /* fails for what is no capsule */
    }
    return capsule;
}

PyObject *brim_py_dlpack(PyObject *object, PyObject *args, PyObject *keywords) {
    static char *names[] = { "stream", "max_version", "dl_device", "copy", NULL };
    ArrayObject *self = (ArrayObject *)object;
    PyObject *stream = Py_None, *most = Py_None, *device = Py_None, *copy = Py_None;
    long major = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO:__dlpack__", names, &stream, &most,
                                     &device, &copy)) {
        return NULL;
    }
    if (most != Py_None) {
        PyObject *first = PySequence_GetItem(most, 0);
        major = first == NULL ? -1 : PyLong_AsLong(first);
        Py_XDECREF(first);
        if (major == -1 && PyErr_Occurred() != NULL) {
            return NULL;
        }
    }
    const int versioned = major >= 1;
    if (self->readonly && !versioned) {
        PyErr_SetString(PyExc_BufferError,
                        "this array is read-only, which DLPack says from version 1 on");
        return NULL;
    }
    const int copies = wants_copy(self, device, copy);
    if (copies < 0 || (copies == 0 && await(self, stream) != 0)) {
        return NULL;
    }
    PyObject *array = copies ? brim_py_array_copy(self) : Py_NewRef(object);
    PyObject *capsule = array == NULL ? NULL : pack(array, versioned, copies ? FLAG_IS_COPIED : 0);
    Py_XDECREF(array);
    return capsule;
}

PyObject *brim_py_dlpack_device(PyObject *self, PyObject *unused) {
    const struct dl_device device = device_of((ArrayObject *)self);
    (void)unused;
    return Py_BuildValue("(ii)", device.type, device.id);
}
