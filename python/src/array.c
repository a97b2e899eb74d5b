/*
 * array.c: Array, a field of a batch.
 *
 * An Array is a view of a batch's memory and keeps the batch alive. It speaks the
 * buffer protocol, __array_interface__ and DLPack (dlpack.c), so that every framework
 * takes it without a copy. On a device it speaks DLPack alone, and CUDA's
 * __cuda_array_interface__ (device.c): a request for host memory fails and says to copy.
 */
#include "extension.h"

#include <stdio.h>
#include <string.h>

PyTypeObject *brim_py_array_type;

/* ------------------------------------------------------------------- dtypes */

static const struct {
    brim_dtype dtype;
    const char *format;    /* of the buffer protocol; NULL: it has none */
    const char *interface; /* of __array_interface__ */
} dtypes[] = {
    { BRIM_DTYPE_BOOL, "?", "|b1" },   { BRIM_DTYPE_U8, "B", "|u1" },
    { BRIM_DTYPE_I8, "b", "|i1" },     { BRIM_DTYPE_U16, "H", "<u2" },
    { BRIM_DTYPE_I16, "h", "<i2" },    { BRIM_DTYPE_U32, "I", "<u4" },
    { BRIM_DTYPE_I32, "i", "<i4" },    { BRIM_DTYPE_U64, "L", "<u8" },
    { BRIM_DTYPE_I64, "l", "<i8" },    { BRIM_DTYPE_F16, "e", "<f2" },
    { BRIM_DTYPE_BF16, NULL, "<V2" },  { BRIM_DTYPE_F32, "f", "<f4" },
    { BRIM_DTYPE_F64, "d", "<f8" },    { BRIM_DTYPE_C64, "Zf", "<c8" },
    { BRIM_DTYPE_C128, "Zd", "<c16" },
};
#define DTYPES (sizeof dtypes / sizeof dtypes[0])

const char *brim_py_format(brim_dtype dtype) {
    for (size_t i = 0; i < DTYPES; i++) {
        if (dtypes[i].dtype == dtype) {
            return dtypes[i].format;
        }
    }
    return NULL;
}

brim_dtype brim_py_dtype_of_format(const char *format) {
    const int standard = format[0] == '=' || format[0] == '<';
    if (standard || format[0] == '@' || format[0] == '|') {
        format++;
    }
    if (strcmp(format, "q") == 0) {
        return BRIM_DTYPE_I64;
    }
    if (strcmp(format, "Q") == 0) {
        return BRIM_DTYPE_U64;
    }
    if (standard && (strcmp(format, "l") == 0 || strcmp(format, "L") == 0)) {
        return format[0] == 'l' ? BRIM_DTYPE_I32 : BRIM_DTYPE_U32;
    }
    for (size_t i = 0; i < DTYPES; i++) {
        if (dtypes[i].format != NULL && strcmp(dtypes[i].format, format) == 0) {
            return dtypes[i].dtype;
        }
    }
    return (brim_dtype)0;
}

brim_dtype brim_py_dtype_of_name(const char *name) {
    for (size_t i = 0; i < DTYPES; i++) {
        if (strcmp(brim_dtype_name(dtypes[i].dtype), name) == 0) {
            return dtypes[i].dtype;
        }
    }
    return (brim_dtype)0;
}

const char *brim_py_type_text(brim_dtype dtype) {
    for (size_t i = 0; i < DTYPES; i++) {
        if (dtypes[i].dtype == dtype) {
            return dtypes[i].interface;
        }
    }
    return "";
}

/* -------------------------------------------------------------------- Array */

void brim_py_count_view(PyObject *owner, Py_ssize_t change) {
    if (owner != NULL && Py_IS_TYPE(owner, brim_py_batch_type)) {
        ((BatchObject *)owner)->views += change;
    }
}

PyObject *brim_py_array_new(PyObject *owner, void *data, brim_dtype dtype, int rank,
                            const int64_t *shape, const int64_t *strides, int readonly) {
    ArrayObject *self = PyObject_GC_New(ArrayObject, brim_py_array_type);
    if (self == NULL) {
        return NULL;
    }
    self->owner = Py_XNewRef(owner);
    self->data = data;
    self->offset = 0;
    self->device_kind = BRIM_DEVICE_HOST;
    self->device_index = 0;
    self->field = 0;
    self->skip = 0;
    self->dtype = dtype;
    self->rank = rank;
    self->readonly = readonly;
    Py_ssize_t stride = (Py_ssize_t)brim_dtype_bytes(dtype);
    for (int i = rank - 1; i >= 0; i--) {
        self->shape[i] = (Py_ssize_t)shape[i];
        self->strides[i] = strides != NULL ? (Py_ssize_t)strides[i] : stride;
        stride *= self->shape[i];
    }
    brim_py_count_view(owner, 1);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

PyObject *brim_py_array_of(PyObject *owner, const brim_field *field, size_t number, uint64_t skip,
                           int rank, const int64_t *shape, const int64_t *strides) {
    const int opencl = field->device_kind == BRIM_DEVICE_OPENCL;
    void *data = opencl ? field->data : (uint8_t *)field->data + skip;
    PyObject *object = brim_py_array_new(owner, data, field->dtype, rank, shape, strides, 0);
    if (object != NULL) {
        ArrayObject *self = (ArrayObject *)object;
        self->offset = opencl ? field->offset + skip : 0;
        self->device_kind = field->device_kind;
        self->device_index = field->device_index;
        self->field = number;
        self->skip = skip;
    }
    return object;
}

static int array_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((ArrayObject *)object)->owner);
    return 0;
}

static void array_dealloc(PyObject *object) {
    ArrayObject *self = (ArrayObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    brim_py_count_view(self->owner, -1);
    Py_XDECREF(self->owner);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static Py_ssize_t count_bytes(const ArrayObject *self) {
    Py_ssize_t bytes = (Py_ssize_t)brim_dtype_bytes(self->dtype);
    for (int i = 0; i < self->rank; i++) {
        bytes *= self->shape[i];
    }
    return bytes;
}

static int is_contiguous(const ArrayObject *self) {
    Py_ssize_t stride = (Py_ssize_t)brim_dtype_bytes(self->dtype);
    for (int i = self->rank - 1; i >= 0; i--) {
        if (self->shape[i] > 1 && self->strides[i] != stride) {
            return 0;
        }
        stride *= self->shape[i];
    }
    return 1;
}

static int array_buffer(PyObject *object, Py_buffer *view, int flags) {
    ArrayObject *self = (ArrayObject *)object;
    const char *format = brim_py_format(self->dtype);
    view->obj = NULL;
    if (brim_py_need_host(self->device_kind, self->device_index, PyExc_BufferError) != 0) {
        return -1;
    }
    if (format == NULL) {
        PyErr_Format(PyExc_BufferError,
                     "the buffer protocol has no %s: use DLPack, as torch.from_dlpack does",
                     brim_dtype_name(self->dtype));
        return -1;
    }
    if ((flags & PyBUF_WRITABLE) != 0 && self->readonly) {
        PyErr_SetString(PyExc_BufferError, "this array is read-only");
        return -1;
    }
    const int strided = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
    const int row_major = (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS || !strided;
    const int columns = (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && self->rank > 1;
    if (columns || (row_major && !is_contiguous(self))) {
        PyErr_SetString(PyExc_BufferError, "this array does not have that order in memory");
        return -1;
    }
    *view = (Py_buffer){ .buf = self->data,
                         .obj = Py_NewRef(object),
                         .len = count_bytes(self),
                         .itemsize = (Py_ssize_t)brim_dtype_bytes(self->dtype),
                         .readonly = self->readonly,
                         .ndim = self->rank,
                         /* the protocol does not say const, and no code writes there */
                         .format = (flags & PyBUF_FORMAT) != 0 ? (char *)(uintptr_t)format : NULL,
                         .shape = (flags & PyBUF_ND) != 0 ? self->shape : NULL,
                         .strides = strided ? self->strides : NULL };
    return 0;
}

static PyObject *sizes_to_tuple(const Py_ssize_t *sizes, int count) {
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; i++) {
        PyObject *size = PyLong_FromSsize_t(sizes[i]);
        if (size == NULL || PyTuple_SetItem(tuple, i, size) != 0) {
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

static PyObject *array_shape(PyObject *object, void *unused) {
    (void)unused;
    return sizes_to_tuple(((ArrayObject *)object)->shape, ((ArrayObject *)object)->rank);
}

static PyObject *array_strides(PyObject *object, void *unused) {
    (void)unused;
    return sizes_to_tuple(((ArrayObject *)object)->strides, ((ArrayObject *)object)->rank);
}

static PyObject *array_dtype(PyObject *object, void *unused) {
    (void)unused;
    return PyUnicode_FromString(brim_dtype_name(((ArrayObject *)object)->dtype));
}

static PyObject *array_ndim(PyObject *object, void *unused) {
    (void)unused;
    return PyLong_FromLong(((ArrayObject *)object)->rank);
}

static PyObject *array_nbytes(PyObject *object, void *unused) {
    (void)unused;
    return PyLong_FromSsize_t(count_bytes((ArrayObject *)object));
}

static PyObject *array_interface(PyObject *object, void *unused) {
    const ArrayObject *self = (ArrayObject *)object;
    (void)unused;
    if (brim_py_need_host(self->device_kind, self->device_index, PyExc_AttributeError) != 0) {
        return NULL;
    }
    return Py_BuildValue("{s:N,s:s,s:(NN),s:N,s:i}", "shape", array_shape(object, NULL), "typestr",
                         brim_py_type_text(self->dtype), "data", PyLong_FromVoidPtr(self->data),
                         PyBool_FromLong(self->readonly), "strides", array_strides(object, NULL),
                         "version", 3);
}

static PyObject *array_device(PyObject *object, void *unused) {
    const ArrayObject *self = (ArrayObject *)object;
    (void)unused;
    return brim_py_device_text(self->device_kind, self->device_index);
}

static PyObject *array_handle(PyObject *object, void *unused) {
    (void)unused;
    return PyLong_FromVoidPtr(((ArrayObject *)object)->data);
}

static PyObject *array_offset(PyObject *object, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(((ArrayObject *)object)->offset);
}

static Py_ssize_t array_length(PyObject *object) {
    const ArrayObject *self = (ArrayObject *)object;
    if (self->rank == 0) {
        PyErr_SetString(PyExc_TypeError, "a scalar has no length");
        return -1;
    }
    return self->shape[0];
}

PyObject *brim_py_array_numpy(PyObject *object, PyObject *unused) {
    const ArrayObject *self = (ArrayObject *)object;
    (void)unused;
    if (brim_py_need_host(self->device_kind, self->device_index, PyExc_TypeError) != 0) {
        return NULL;
    }
    if (brim_py_format(((ArrayObject *)object)->dtype) == NULL) {
        return PyErr_Format(PyExc_TypeError,
                            "numpy has no %s: use torch.from_dlpack, or cast it in the pipeline",
                            brim_dtype_name(((ArrayObject *)object)->dtype));
    }
    PyObject *numpy = PyImport_ImportModule("numpy");
    PyObject *array = numpy == NULL ? NULL : PyObject_CallMethod(numpy, "asarray", "O", object);
    Py_XDECREF(numpy);
    return array;
}

static PyObject *array_to_host(PyObject *object, PyObject *unused) {
    if (((ArrayObject *)object)->device_kind == BRIM_DEVICE_HOST) {
        return brim_py_array_numpy(object, unused);
    }
    PyObject *copy = brim_py_array_copy((ArrayObject *)object);
    PyObject *array = copy == NULL ? NULL : brim_py_array_numpy(copy, NULL);
    Py_XDECREF(copy);
    return array;
}

/* numpy asks for it where there is neither the buffer protocol nor the interface: on a
 * device, where the text tells more than numpy could. */
static PyObject *array_array(PyObject *object, PyObject *args, PyObject *keywords) {
    PyObject *array = brim_py_array_numpy(object, NULL);
    PyObject *call = array == NULL ? NULL : PyObject_GetAttrString(array, "__array__");
    PyObject *result = call == NULL ? NULL : PyObject_Call(call, args, keywords);
    Py_XDECREF(call);
    Py_XDECREF(array);
    return result;
}

static PyObject *array_item(PyObject *object, PyObject *key) {
    PyObject *array = brim_py_array_numpy(object, NULL);
    PyObject *item = array == NULL ? NULL : PyObject_GetItem(array, key);
    Py_XDECREF(array);
    return item;
}

static PyObject *array_iter(PyObject *object) {
    PyObject *array = brim_py_array_numpy(object, NULL);
    PyObject *iterator = array == NULL ? NULL : PyObject_GetIter(array);
    Py_XDECREF(array);
    return iterator;
}

/* Element by element, as numpy compares. */
static PyObject *array_compare(PyObject *object, PyObject *other, int how) {
    PyObject *array = brim_py_array_numpy(object, NULL);
    PyObject *result = array == NULL ? NULL : PyObject_RichCompare(array, other, how);
    Py_XDECREF(array);
    return result;
}

PyObject *brim_py_array_list(PyObject *object, PyObject *unused) {
    const ArrayObject *self = (ArrayObject *)object;
    (void)unused;
    if (brim_py_need_host(self->device_kind, self->device_index, PyExc_TypeError) != 0) {
        return NULL;
    }
    PyObject *view = PyMemoryView_FromObject(object);
    PyObject *list = view == NULL ? NULL : PyObject_CallMethod(view, "tolist", NULL);
    Py_XDECREF(view);
    if (list == NULL && PyErr_ExceptionMatches(PyExc_NotImplementedError)) {
        PyErr_Clear(); /* float16 and complex: numpy knows them */
        PyObject *array = brim_py_array_numpy(object, NULL);
        list = array == NULL ? NULL : PyObject_CallMethod(array, "tolist", NULL);
        Py_XDECREF(array);
    }
    return list;
}

static PyObject *array_repr(PyObject *object) {
    const ArrayObject *self = (ArrayObject *)object;
    PyObject *shape = array_shape(object, NULL);
    PyObject *device = array_device(object, NULL);
    PyObject *text = NULL;
    if (shape != NULL && device != NULL) {
        const char *type = brim_dtype_name(self->dtype);
        text = self->device_kind == BRIM_DEVICE_HOST
                   ? PyUnicode_FromFormat("brim.Array(shape=%R, dtype=%s)", shape, type)
                   : PyUnicode_FromFormat("brim.Array(shape=%R, dtype=%s, device=%U)", shape, type,
                                          device);
    }
    Py_XDECREF(shape);
    Py_XDECREF(device);
    return text;
}

static PyGetSetDef array_attributes[] = {
    { "shape", array_shape, NULL, "The dimensions.", NULL },
    { "strides", array_strides, NULL, "Bytes from an element to the next, for each dimension.",
      NULL },
    { "dtype", array_dtype, NULL, "The elements' type, such as \"float32\".", NULL },
    { "ndim", array_ndim, NULL, "How many dimensions there are.", NULL },
    { "nbytes", array_nbytes, NULL, "The bytes of all elements.", NULL },
    { "device", array_device, NULL, "Where it is: \"cpu\", \"cuda:0\", \"opencl:0\".", NULL },
    { "handle", array_handle, NULL, "The address, or an OpenCL device's cl_mem.", NULL },
    { "offset", array_offset, NULL, "Of the first element in a cl_mem, in bytes; else 0.", NULL },
    { "__array_interface__", array_interface, NULL, "What numpy reads.", NULL },
    { "__cuda_array_interface__", brim_py_cuda_interface, NULL, "What CUDA's libraries read.",
      NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyMethodDef array_methods[] = {
    { "numpy", brim_py_array_numpy, METH_NOARGS, "A numpy array in the same memory." },
    { "to_host", array_to_host, METH_NOARGS,
      "A numpy array: on a device a copy, else in the same memory." },
    { "__array__", (PyCFunction)(void (*)(void))array_array, METH_VARARGS | METH_KEYWORDS,
      "What numpy asks for if there is nothing better." },
    { "tolist", brim_py_array_list, METH_NOARGS, "The elements in nested lists." },
    { "__dlpack__", (PyCFunction)(void (*)(void))brim_py_dlpack, METH_VARARGS | METH_KEYWORDS,
      "A DLPack capsule of the same memory." },
    { "__dlpack_device__", brim_py_dlpack_device, METH_NOARGS, "Where the memory is." },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot array_slots[] = {
    { Py_tp_doc, "A field of a batch, in the batch's own memory." },
    { Py_tp_dealloc, (void *)array_dealloc },
    { Py_tp_traverse, (void *)array_traverse },
    { Py_tp_repr, (void *)array_repr },
    { Py_tp_iter, (void *)array_iter },
    { Py_tp_richcompare, (void *)array_compare },
    { Py_tp_hash, (void *)PyObject_HashNotImplemented },
    { Py_tp_getset, array_attributes },
    { Py_tp_methods, array_methods },
    { Py_mp_length, (void *)array_length },
    { Py_mp_subscript, (void *)array_item },
    { Py_bf_getbuffer, (void *)array_buffer },
    { 0, NULL },
};
static PyType_Spec array_spec = { .name = "brim.Array",
                                  .basicsize = sizeof(ArrayObject),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                           Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  .slots = array_slots };

int brim_py_array_init(PyObject *module) {
    brim_py_array_type = (PyTypeObject *)PyType_FromSpec(&array_spec);
    return brim_py_array_type == NULL ? -1 : PyModule_AddType(module, brim_py_array_type);
}
