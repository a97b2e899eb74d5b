/*
 * ragged.c: Ragged, a field whose rows differ in length: all rows end to end, and where
 * each begins.
 *
 * On a device the rows are there and the offsets in host memory; rows can be had as
 * Arrays there, and as text or lists only from a copy (to_host).
 */
#include "extension.h"

#include <string.h>

static PyTypeObject *ragged_type;

typedef struct {
    PyObject_HEAD
    PyObject *owner;  /* the Batch, or the memory of a copy */
    brim_field field; /* what it points to is the owner's */
    size_t number;    /* of the field in the batch */
} RaggedObject;

static Py_ssize_t ragged_rows(const RaggedObject *self) {
    return (Py_ssize_t)self->field.shape[0];
}

/* Elements [first, end) of the first dimension, over all rows. */
static PyObject *ragged_part(const RaggedObject *self, int64_t first, int64_t end) {
    const brim_field *field = &self->field;
    int64_t shape[BRIM_MAX_RANK] = { end - first };
    int64_t bytes = (int64_t)brim_dtype_bytes(field->dtype);
    for (uint32_t i = 2; i < field->rank; i++) {
        shape[i - 1] = field->shape[i];
        bytes *= field->shape[i];
    }
    return brim_py_array_of(self->owner, field, self->number, (uint64_t)(first * bytes),
                            (int)field->rank - 1, shape, NULL);
}

static PyObject *ragged_values(PyObject *object, void *unused) {
    const RaggedObject *self = (RaggedObject *)object;
    (void)unused;
    return ragged_part(self, 0, self->field.offsets[ragged_rows(self)]);
}

static PyObject *ragged_offsets(PyObject *object, void *unused) {
    const RaggedObject *self = (RaggedObject *)object;
    const int64_t shape = (int64_t)ragged_rows(self) + 1;
    (void)unused;
    return brim_py_array_new(self->owner, (void *)(uintptr_t)self->field.offsets, BRIM_DTYPE_I64, 1,
                             &shape, NULL, 1);
}

static PyObject *ragged_form(PyObject *object, void *unused) {
    static const char *const names[] = { "dense", "ragged", "text", "bytes" };
    (void)unused;
    return PyUnicode_FromString(names[((RaggedObject *)object)->field.form]);
}

static Py_ssize_t ragged_length(PyObject *object) {
    return ragged_rows((RaggedObject *)object);
}

static PyObject *ragged_item(PyObject *object, Py_ssize_t row) {
    const RaggedObject *self = (RaggedObject *)object;
    if (row < 0 || row >= ragged_rows(self)) {
        return PyErr_Format(PyExc_IndexError, "row %zd of %zd", row, ragged_rows(self));
    }
    const int64_t first = self->field.offsets[row], end = self->field.offsets[row + 1];
    const char *data = (const char *)self->field.data + first;
    if (self->field.form != BRIM_FORM_RAGGED &&
        brim_py_need_host(self->field.device_kind, self->field.device_index, PyExc_TypeError)) {
        return NULL;
    }
    switch (self->field.form) {
    case BRIM_FORM_TEXT:
        return PyUnicode_DecodeUTF8(data, (Py_ssize_t)(end - first), "replace");
    case BRIM_FORM_BYTES:
        return PyBytes_FromStringAndSize(data, (Py_ssize_t)(end - first));
    case BRIM_FORM_DENSE:
    case BRIM_FORM_RAGGED:
        break;
    }
    return ragged_part(self, first, end);
}

static PyObject *ragged_list(PyObject *object, PyObject *unused) {
    const brim_field *field = &((RaggedObject *)object)->field;
    const Py_ssize_t rows = ragged_length(object);
    (void)unused;
    if (brim_py_need_host(field->device_kind, field->device_index, PyExc_TypeError) != 0) {
        return NULL;
    }
    PyObject *list = PyList_New(0);
    for (Py_ssize_t row = 0; list != NULL && row < rows; row++) {
        PyObject *item = ragged_item(object, row);
        if (item != NULL && Py_IS_TYPE(item, brim_py_array_type)) {
            PyObject *elements = brim_py_array_list(item, NULL);
            Py_DECREF(item);
            item = elements;
        }
        if (item == NULL || PyList_Append(list, item) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *ragged_repr(PyObject *object) {
    const RaggedObject *self = (RaggedObject *)object;
    return PyUnicode_FromFormat("brim.Ragged(rows=%zd, elements=%lld, dtype=%s)", ragged_rows(self),
                                (long long)self->field.offsets[ragged_rows(self)],
                                brim_dtype_name(self->field.dtype));
}

static PyObject *ragged_device(PyObject *object, void *unused) {
    const brim_field *field = &((RaggedObject *)object)->field;
    (void)unused;
    return brim_py_device_text(field->device_kind, field->device_index);
}

PyObject *brim_py_ragged_new(PyObject *owner, const brim_field *field, size_t number) {
    RaggedObject *self = PyObject_GC_New(RaggedObject, ragged_type);
    if (self != NULL) {
        self->owner = Py_NewRef(owner);
        self->field = *field;
        self->number = number;
        brim_py_count_view(owner, 1);
        PyObject_GC_Track(self);
    }
    return (PyObject *)self;
}

/* Offsets and rows in one piece of memory, which is the copy's owner. */
static PyObject *ragged_to_host(PyObject *object, PyObject *unused) {
    const RaggedObject *self = (RaggedObject *)object;
    brim_field field = self->field;
    const size_t before = (size_t)(ragged_rows(self) + 1) * sizeof *field.offsets;
    (void)unused;
    if (field.device_kind == BRIM_DEVICE_HOST) {
        return Py_NewRef(object);
    }
    PyObject *memory = brim_py_read_field((BatchObject *)self->owner, self->number, before);
    if (memory == NULL) {
        return NULL;
    }
    char *data = PyByteArray_AsString(memory);
    memcpy(data, field.offsets, before);
    field.offsets = (const int64_t *)(void *)data;
    field.data = data + before;
    field.device_kind = BRIM_DEVICE_HOST;
    field.device_index = 0;
    PyObject *copy = brim_py_ragged_new(memory, &field, 0);
    Py_DECREF(memory);
    return copy;
}

static int ragged_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((RaggedObject *)object)->owner);
    return 0;
}

static void ragged_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject *owner = ((RaggedObject *)object)->owner;
    PyObject_GC_UnTrack(object);
    brim_py_count_view(owner, -1);
    Py_DECREF(owner);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyGetSetDef ragged_attributes[] = {
    { "values", ragged_values, NULL, "All rows end to end.", NULL },
    { "offsets", ragged_offsets, NULL, "Where each row begins, and where the last one ends.",
      NULL },
    { "device", ragged_device, NULL, "Where its values are: \"cpu\", \"cuda:0\".", NULL },
    { "form", ragged_form, NULL, "\"ragged\", \"text\" or \"bytes\".", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyMethodDef ragged_methods[] = {
    { "to_host", ragged_to_host, METH_NOARGS,
      "The field in host memory; a copy if it is on a device." },
    { "tolist", ragged_list, METH_NOARGS, "The rows in a list: str, bytes or lists." },
    { NULL, NULL, 0, NULL },
};
static PyType_Slot ragged_slots[] = {
    { Py_tp_doc, "A field whose rows differ in length." },
    { Py_tp_dealloc, (void *)ragged_dealloc },
    { Py_tp_traverse, (void *)ragged_traverse },
    { Py_tp_repr, (void *)ragged_repr },
    { Py_tp_getset, ragged_attributes },
    { Py_tp_methods, ragged_methods },
    { Py_sq_length, (void *)ragged_length },
    { Py_sq_item, (void *)ragged_item },
    { 0, NULL },
};
static PyType_Spec ragged_spec = { .name = "brim.Ragged",
                                   .basicsize = sizeof(RaggedObject),
                                   .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                            Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                   .slots = ragged_slots };

int brim_py_ragged_init(PyObject *module) {
    ragged_type = (PyTypeObject *)PyType_FromSpec(&ragged_spec);
    return ragged_type == NULL ? -1 : PyModule_AddType(module, ragged_type);
}
