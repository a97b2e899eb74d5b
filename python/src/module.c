/*
 * module.c: the module brim._core.
 */
#include "extension.h"

int brim_py_unsigned(PyObject *object, void *number) {
    PyObject *integer = PyNumber_Index(object);
    const unsigned long long value = integer == NULL ? 0 : PyLong_AsUnsignedLongLong(integer);
    Py_XDECREF(integer);
    if (PyErr_Occurred() != NULL) {
        return 0;
    }
    *(uint64_t *)number = value;
    return 1;
}

int brim_py_unsigned32(PyObject *object, void *number) {
    uint64_t value;
    if (!brim_py_unsigned(object, &value)) {
        return 0;
    }
    if (value > UINT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "%llu is more than %u", (unsigned long long)value,
                     UINT32_MAX);
        return 0;
    }
    *(uint32_t *)number = (uint32_t)value;
    return 1;
}

static PyObject *shut_down(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    brim_py_loaders_close();
    return Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    { "stages", brim_py_stages, METH_NOARGS, "The table of stages." },
    { "parse", brim_py_parse, METH_VARARGS,
      "parse(text): the text as brim prints it, and its stages." },
    { "add", brim_py_add, METH_VARARGS, "add(text, stage, arguments): one stage more." },
    { "guess", brim_py_guess, METH_VARARGS, "guess(path): the pipeline that reads a file." },
    { "devices", brim_py_devices, METH_VARARGS, "devices(kind): those that there are." },
    { "shutdown", shut_down, METH_NOARGS, "Closes every loader; for the interpreter's end." },
    { "processes", brim_py_processes_list, METH_NOARGS, "The worker processes that live." },
    { "serve", brim_py_serve, METH_VARARGS,
      "serve(socket, load, describe): what a worker process does." },
    { NULL, NULL, 0, NULL },
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "brim._core", .m_doc = "brim in C: what `brim` is made from.",
    .m_size = -1,          .m_methods = methods,
};

/* Before the interpreter ends, so that no worker calls into it afterwards. */
static int register_shutdown(PyObject *module) {
    PyObject *atexit = PyImport_ImportModule("atexit");
    PyObject *function = PyObject_GetAttrString(module, "shutdown");
    PyObject *result = atexit == NULL || function == NULL
                           ? NULL
                           : PyObject_CallMethod(atexit, "register", "O", function);
    Py_XDECREF(atexit);
    Py_XDECREF(function);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) {
        return NULL;
    }
    if (brim_py_errors_init(module) != 0 || brim_py_array_init(module) != 0 ||
        brim_py_ragged_init(module) != 0 || brim_py_batch_init(module) != 0 ||
        brim_py_loader_init(module) != 0 || brim_py_binding_init(module) != 0 ||
        brim_py_runtime_init(module) != 0 ||
        PyModule_AddStringConstant(module, "version", brim_version()) != 0 ||
        PyModule_AddIntConstant(module, "MAX_RANK", BRIM_MAX_RANK) != 0 ||
        register_shutdown(module) != 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
