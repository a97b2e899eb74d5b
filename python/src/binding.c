/*
 * binding.c: Binding, a Python object that a pipeline names as @name.
 *
 *     Binding(name, kind, object, *, fields, count, labels, dtype, shape, pure,
 *             concurrent, probed, reopen, processes)
 *
 * It is a brim_binding and whatever that points to: an array's buffer, which is held
 * as long as the Binding lives; paths as bytes; the specs of fields. Loaders and
 * batches keep their Bindings, so that brim may point into them.
 *
 * The collector. A function may refer to a loader that refers to its Binding. Dropping the function
 * breaks such a cycle: calls after that fail and say so. A buffer is never released before the
 * Binding itself, for workers of a loader that is not yet closed may read it at that moment.
 */
#include "extension.h"

#include <string.h>

PyTypeObject *brim_py_binding_type;

static const struct {
    const char *name;
    brim_binding_kind kind;
} kinds[] = {
    { "array", BRIM_BINDING_ARRAY },   { "source", BRIM_BINDING_SOURCE },
    { "map", BRIM_BINDING_MAP },       { "stream", BRIM_BINDING_STREAM },
    { "filter", BRIM_BINDING_FILTER }, { "flat_map", BRIM_BINDING_FLAT_MAP },
    { "files", BRIM_BINDING_FILES },   { "batch_map", BRIM_BINDING_BATCH_MAP },
};
#define KINDS (sizeof kinds / sizeof kinds[0])

static const char *const forms[] = { "dense", "ragged", "text", "bytes" };

/* --------------------------------------------------------------- arguments */

/* A tuple of sizes into `shape`; its length, or -1. */
static int read_shape(PyObject *object, const char *what, int64_t shape[BRIM_MAX_RANK]) {
    PyObject *tuple = PySequence_Tuple(object);
    if (tuple == NULL) {
        return -1;
    }
    const Py_ssize_t rank = PyTuple_Size(tuple);
    if (rank > BRIM_MAX_RANK) {
        PyErr_Format(brim_py_pipeline_error, "%s has %zd dimensions, but at most %d are possible",
                     what, rank, BRIM_MAX_RANK);
        Py_DECREF(tuple);
        return -1;
    }
    for (Py_ssize_t i = 0; i < rank; i++) {
        PyObject *size = PyNumber_Index(PyTuple_GetItem(tuple, i));
        shape[i] = size == NULL ? -1 : PyLong_AsLongLong(size);
        Py_XDECREF(size);
        if (PyErr_Occurred() != NULL) {
            Py_DECREF(tuple);
            return -1;
        }
    }
    Py_DECREF(tuple);
    return (int)rank;
}

static int read_spec(PyObject *field, brim_field_spec *spec, char name[BRIM_NAME_BYTES]) {
    const char *text, *dtype, *form;
    PyObject *shape;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(field, "s#sOs;a field is (name, dtype, shape, form)", &text, &length,
                          &dtype, &shape, &form)) {
        return -1;
    }
    if (length >= BRIM_NAME_BYTES || strlen(text) != (size_t)length) {
        PyErr_Format(brim_py_pipeline_error,
                     "the field name %R is longer than %d bytes, or has a zero in it",
                     PyTuple_GetItem(field, 0), BRIM_NAME_BYTES - 1);
        return -1;
    }
    memcpy(name, text, (size_t)length + 1);
    *spec = (brim_field_spec)BRIM_FIELD_SPEC_INIT;
    spec->name = name;
    spec->dtype = brim_py_dtype_of_name(dtype);
    if (spec->dtype == 0) {
        PyErr_Format(brim_py_pipeline_error, "field '%s': there is no dtype \"%s\"", name, dtype);
        return -1;
    }
    size_t i = 0;
    while (i < sizeof forms / sizeof forms[0] && strcmp(forms[i], form) != 0) {
        i++;
    }
    if (i == sizeof forms / sizeof forms[0]) {
        PyErr_Format(brim_py_pipeline_error,
                     "field '%s': its form is \"%s\", but may be dense, ragged, text or bytes",
                     name, form);
        return -1;
    }
    spec->form = (brim_form)i;
    const int rank = read_shape(shape, name, spec->shape);
    spec->rank = rank < 0 ? 0 : (uint32_t)rank;
    return rank < 0 ? -1 : 0;
}

static int read_fields(BindingObject *self, PyObject *fields) {
    PyObject *tuple = PySequence_Tuple(fields);
    if (tuple == NULL) {
        return -1;
    }
    const size_t count = (size_t)PyTuple_Size(tuple);
    self->specs = PyMem_Malloc((count + 1) * sizeof *self->specs);
    self->spec_names = PyMem_Malloc((count + 1) * sizeof *self->spec_names);
    if (self->specs == NULL || self->spec_names == NULL) {
        PyErr_NoMemory();
        Py_DECREF(tuple);
        return -1;
    }
    int failed = 0;
    for (size_t i = 0; failed == 0 && i < count; i++) {
        failed =
            read_spec(PyTuple_GetItem(tuple, (Py_ssize_t)i), &self->specs[i], self->spec_names[i]);
    }
    Py_DECREF(tuple);
    self->binding.fields = count > 0 ? self->specs : NULL;
    self->binding.field_count = count;
    return failed;
}

/* ------------------------------------------------------------------- arrays */

static int is_row_major(const Py_buffer *buffer) {
    Py_ssize_t stride = buffer->itemsize;
    for (int i = buffer->ndim - 1; i >= 0; i--) {
        if (buffer->shape[i] != 1 && buffer->strides[i] != stride) {
            return 0;
        }
        stride *= buffer->shape[i];
    }
    return 1;
}

static int take_shape(BindingObject *self) {
    const Py_buffer *buffer = &self->buffer;
    if (buffer->ndim < 1 || buffer->ndim > BRIM_MAX_RANK) {
        PyErr_Format(
            brim_py_pipeline_error,
            "array @%U has %d dimensions, but must have 1 to %d, and the first is the samples",
            self->name, buffer->ndim, BRIM_MAX_RANK);
        return -1;
    }
    self->binding.rank = (uint32_t)buffer->ndim;
    int several = 0, apart = 0;
    for (int i = 0; i < buffer->ndim; i++) {
        several |= buffer->shape[i] > 1;
        apart |= buffer->strides[i] != 0;
        self->binding.shape[i] = buffer->shape[i];
        self->binding.strides[i] = buffer->strides[i];
    }
    if (several && !apart) { /* to the library, strides that are all 0 mean row-major */
        PyErr_Format(brim_py_pipeline_error,
                     "array @%U is one repeated element (all its strides are 0), which brim does "
                     "not support; give numpy.ascontiguousarray(x), or x.copy()",
                     self->name);
        return -1;
    }
    return 0;
}

/* Of the given dtype. Elements of as many bytes are taken as they lie; others, such as
 * plain bytes, are a row-major array of the given shape. */
static int reinterpret(BindingObject *self, const char *dtype, PyObject *shape) {
    const Py_buffer *buffer = &self->buffer;
    brim_binding *binding = &self->binding;
    binding->dtype = brim_py_dtype_of_name(dtype);
    const uint64_t item = brim_dtype_bytes(binding->dtype);
    if (item == 0) {
        PyErr_Format(brim_py_pipeline_error, "array @%U: there is no dtype \"%s\"", self->name,
                     dtype);
        return -1;
    }
    if (shape == Py_None && item == (uint64_t)buffer->itemsize) {
        return take_shape(self);
    }
    if (shape == Py_None || !is_row_major(buffer)) {
        PyErr_Format(brim_py_pipeline_error,
                     "array @%U: reading elements of %zd bytes as %s needs shape= and a "
                     "contiguous array",
                     self->name, buffer->itemsize, dtype);
        return -1;
    }
    const int rank = read_shape(shape, "shape=", binding->shape);
    if (rank < 0) {
        return -1;
    }
    binding->rank = (uint32_t)rank;
    uint64_t elements = 1;
    int wrong = rank == 0;
    for (int i = 0; i < rank; i++) {
        wrong |= binding->shape[i] < 0 ||
                 __builtin_mul_overflow(elements, (uint64_t)binding->shape[i], &elements);
    }
    if (wrong || __builtin_mul_overflow(elements, item, &elements) ||
        elements != (uint64_t)buffer->len) {
        PyErr_Format(brim_py_pipeline_error,
                     "array @%U: shape=%R of %s does not take the %zd bytes that the object has",
                     self->name, shape, dtype, buffer->len);
        return -1;
    }
    return 0;
}

static int take_array(BindingObject *self, PyObject *object, const char *dtype, PyObject *shape) {
    brim_binding *binding = &self->binding;
    Py_buffer *buffer = &self->buffer;
    if (PyObject_GetBuffer(object, buffer, PyBUF_RECORDS_RO) != 0) {
        buffer->obj = NULL;
        return -1;
    }
    binding->data = buffer->buf;
    if (dtype != NULL) {
        return reinterpret(self, dtype, shape);
    }
    const char *format = buffer->format != NULL ? buffer->format : "B";
    if ((format[0] == '>' || format[0] == '!') && buffer->itemsize > 1) {
        PyErr_Format(brim_py_pipeline_error,
                     "array @%U has elements \"%s\", in the byte order of other machines; give "
                     "x.astype(x.dtype.newbyteorder('='))",
                     self->name, format);
        return -1;
    }
    binding->dtype = brim_py_dtype_of_format(format[0] == '>' ? format + 1 : format);
    if (binding->dtype == 0 || brim_dtype_bytes(binding->dtype) != (size_t)buffer->itemsize) {
        PyErr_Format(brim_py_pipeline_error,
                     "array @%U has elements \"%s\" of %zd bytes, which brim has no dtype for; it "
                     "takes bool, integers, floats and complex numbers",
                     self->name, format, buffer->itemsize);
        return -1;
    }
    return take_shape(self);
}

/* -------------------------------------------------------------------- files */

static PyObject *path_to_bytes(PyObject *path) {
    PyObject *bytes = NULL;
    if (!PyUnicode_FSConverter(path, &bytes)) { /* str, bytes and os.PathLike, without zeros */
        return NULL;
    }
    return bytes;
}

static int take_files(BindingObject *self, PyObject *paths, PyObject *labels) {
    const Py_ssize_t count = PySequence_Size(paths);
    if (count < 0) {
        return -1;
    }
    if (labels != Py_None && PySequence_Size(labels) != count) {
        if (PyErr_Occurred() == NULL) {
            PyErr_Format(brim_py_pipeline_error, "files @%U: %zd paths, but %zd labels", self->name,
                         count, PySequence_Size(labels));
        }
        return -1;
    }
    self->object = PyTuple_New(count);
    self->paths = PyMem_Malloc(((size_t)count + 1) * sizeof *self->paths);
    self->labels =
        labels == Py_None ? NULL : PyMem_Malloc(((size_t)count + 1) * sizeof *self->labels);
    if (self->object == NULL || self->paths == NULL ||
        (labels != Py_None && self->labels == NULL)) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *path = PySequence_GetItem(paths, i);
        PyObject *bytes = path == NULL ? NULL : path_to_bytes(path);
        Py_XDECREF(path);
        if (bytes == NULL || PyTuple_SetItem(self->object, i, bytes) != 0) {
            return -1;
        }
        self->paths[i] = PyBytes_AsString(bytes);
        if (labels == Py_None) {
            continue;
        }
        PyObject *label = PySequence_GetItem(labels, i);
        PyObject *number = label == NULL ? NULL : PyNumber_Index(label);
        Py_XDECREF(label);
        self->labels[i] = number == NULL ? 0 : PyLong_AsLongLong(number);
        Py_XDECREF(number);
        if (PyErr_Occurred() != NULL) {
            return -1;
        }
    }
    self->binding.count = (uint64_t)count;
    self->binding.paths = self->paths;
    self->binding.labels = self->labels;
    return 0;
}

/* ---------------------------------------------------------------- functions */

static int take_function(BindingObject *self, PyObject *object, PyObject *reopen,
                         PyObject *processes) {
    brim_binding *binding = &self->binding;
    if (!PyCallable_Check(object)) {
        PyErr_Format(PyExc_TypeError, "@%U: %R cannot be called", self->name, object);
        return -1;
    }
    self->function.call = Py_NewRef(object);
    switch (binding->kind) {
    case BRIM_BINDING_SOURCE:
        binding->read = brim_py_read;
        break;
    case BRIM_BINDING_MAP:
        binding->map = brim_py_map;
        break;
    case BRIM_BINDING_STREAM:
        binding->pull = brim_py_pull;
        break;
    case BRIM_BINDING_FILTER:
        binding->filter = brim_py_filter;
        break;
    case BRIM_BINDING_FLAT_MAP:
        binding->flat_map = brim_py_flat_map;
        break;
    case BRIM_BINDING_BATCH_MAP:
        binding->batch_map = brim_py_batch_map;
        break;
    case BRIM_BINDING_ARRAY:
    case BRIM_BINDING_FILES:
        break;
    }
    if (reopen != Py_None) {
        self->function.reopen = Py_NewRef(reopen);
        binding->reopen = brim_py_reopen;
    }
    if (processes == Py_None) {
        return 0;
    }
    PyObject *spawn;
    Py_ssize_t count;
    if (binding->kind != BRIM_BINDING_SOURCE && binding->kind != BRIM_BINDING_MAP &&
        binding->kind != BRIM_BINDING_FILTER && binding->kind != BRIM_BINDING_BATCH_MAP) {
        PyErr_Format(brim_py_pipeline_error,
                     "@%U: processes can run only functions of map, filter, batch_map and dataset",
                     self->name);
        return -1;
    }
    if (!PyArg_ParseTuple(processes, "On;processes is (spawn, count)", &spawn, &count)) {
        return -1;
    }
    self->function.processes = brim_py_processes_new(spawn, count);
    return self->function.processes == NULL ? -1 : 0;
}

/* --------------------------------------------------------------------- type */

/* What __new__ was given beside name, kind and object. */
struct options {
    PyObject *fields, *labels, *shape, *reopen, *processes;
    const char *dtype;
    unsigned long long count;
    int pure, random, concurrent, probed;
};

static int fill(BindingObject *self, const char *kind, PyObject *object,
                const struct options *options) {
    brim_binding *binding = &self->binding;
    *binding = (brim_binding)BRIM_BINDING_INIT;
    binding->user = self;
    binding->name = PyUnicode_AsUTF8AndSize(self->name, NULL);
    binding->count = options->count;
    binding->flags = (options->pure ? BRIM_CALLBACK_PURE : 0) |
                     (options->random ? BRIM_CALLBACK_RANDOM : 0) |
                     (options->concurrent ? BRIM_CALLBACK_CONCURRENT : 0) |
                     (options->probed ? BRIM_CALLBACK_PROBED : 0);
    size_t i = 0;
    while (i < KINDS && strcmp(kinds[i].name, kind) != 0) {
        i++;
    }
    if (binding->name == NULL) {
        return -1;
    }
    if (i == KINDS) {
        PyErr_Format(PyExc_ValueError, "there is no kind of binding \"%s\"", kind);
        return -1;
    }
    binding->kind = kinds[i].kind;
    if (options->fields != NULL && read_fields(self, options->fields) != 0) {
        return -1;
    }
    switch (binding->kind) {
    case BRIM_BINDING_ARRAY:
        return take_array(self, object, options->dtype, options->shape);
    case BRIM_BINDING_FILES:
        return take_files(self, object, options->labels);
    case BRIM_BINDING_SOURCE:
    case BRIM_BINDING_MAP:
    case BRIM_BINDING_STREAM:
    case BRIM_BINDING_FILTER:
    case BRIM_BINDING_FLAT_MAP:
    case BRIM_BINDING_BATCH_MAP:
        break;
    }
    return take_function(self, object, options->reopen, options->processes);
}

static PyObject *binding_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = { "name",       "kind",   "object", "fields",    "count",
                             "labels",     "dtype",  "shape",  "pure",      "random",
                             "concurrent", "probed", "reopen", "processes", NULL };
    struct options options = {
        .labels = Py_None, .shape = Py_None, .reopen = Py_None, .processes = Py_None
    };
    PyObject *name, *object;
    const char *kind;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "UsO|$OKOzOppppOO:Binding", names, &name,
                                     &kind, &object, &options.fields, &options.count,
                                     &options.labels, &options.dtype, &options.shape, &options.pure,
                                     &options.random, &options.concurrent, &options.probed,
                                     &options.reopen, &options.processes)) {
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    BindingObject *self = (BindingObject *)allocate(type, 0); /* all zero */
    if (self == NULL) {
        return NULL;
    }
    self->name = Py_NewRef(name);
    if (fill(self, kind, object, &options) != 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int binding_traverse(PyObject *object, visitproc visit, void *arg) {
    const BindingObject *self = (BindingObject *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->object);
    Py_VISIT(self->buffer.obj);
    Py_VISIT(self->function.call);
    Py_VISIT(self->function.reopen);
    return brim_py_visit_exceptions(self, visit, arg);
}

static int binding_clear(PyObject *object) {
    BindingObject *self = (BindingObject *)object;
    Py_CLEAR(self->function.call);
    Py_CLEAR(self->function.reopen);
    brim_py_drop_exceptions(self);
    return 0;
}

static void binding_dealloc(PyObject *object) {
    BindingObject *self = (BindingObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    binding_clear(object);
    if (self->function.processes != NULL) {
        brim_py_processes_free(self->function.processes);
    }
    if (self->buffer.obj != NULL) {
        PyBuffer_Release(&self->buffer);
    }
    Py_CLEAR(self->object);
    Py_CLEAR(self->name);
    PyMem_Free(self->specs);
    PyMem_Free(self->spec_names);
    PyMem_Free((void *)self->paths);
    PyMem_Free(self->labels);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *binding_name(PyObject *object, void *unused) {
    (void)unused;
    return Py_NewRef(((BindingObject *)object)->name);
}

static PyObject *binding_kind(PyObject *object, void *unused) {
    (void)unused;
    for (size_t i = 0; i < KINDS; i++) {
        if (kinds[i].kind == ((BindingObject *)object)->binding.kind) {
            return PyUnicode_FromString(kinds[i].name);
        }
    }
    return Py_NewRef(Py_None);
}

static PyObject *binding_repr(PyObject *object) {
    PyObject *kind = binding_kind(object, NULL);
    PyObject *text = kind == NULL ? NULL
                                  : PyUnicode_FromFormat("brim.Binding(%R, %R)",
                                                         ((BindingObject *)object)->name, kind);
    Py_XDECREF(kind);
    return text;
}

static PyGetSetDef attributes[] = {
    { "name", binding_name, NULL, "The name, without the @.", NULL },
    { "kind", binding_kind, NULL, "What it is bound as, such as \"array\".", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "A Python object that a pipeline names as @name." },
    { Py_tp_new, (void *)binding_new },
    { Py_tp_dealloc, (void *)binding_dealloc },
    { Py_tp_traverse, (void *)binding_traverse },
    { Py_tp_clear, (void *)binding_clear },
    { Py_tp_repr, (void *)binding_repr },
    { Py_tp_getset, attributes },
    { 0, NULL },
};
static PyType_Spec spec = { .name = "brim.Binding",
                            .basicsize = sizeof(BindingObject),
                            .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                            .slots = slots };

int brim_py_binding_init(PyObject *module) {
    brim_py_binding_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return brim_py_binding_type == NULL
               ? -1
               : PyModule_AddObjectRef(module, "Binding", (PyObject *)brim_py_binding_type);
}
