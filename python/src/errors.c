/*
 * errors.c: the family of exceptions, and statuses made into them.
 *
 *     Error
 *      ├─ BudgetError (MemoryError)     it does not fit the memory
 *      │   └─ HeldError                 more batches are held than `hold` allows
 *      ├─ PipelineError (ValueError)    the pipeline or an argument is wrong
 *      ├─ DataError                     files or samples are bad
 *      │   └─ FunctionError             a Python function failed; it is the cause
 *      ├─ StateError (ValueError)       a state of other data, or a stream that cannot go there
 *      ├─ DeviceError (RuntimeError)    the driver of a device failed
 *      ├─ IterationError (RuntimeError) an iterator that a newer one has ended
 *      └─ ClosedError (RuntimeError)    the loader or runtime is closed, or of a parent process
 *
 * The text is always the library's own, which says what to change. What else the library knows of
 * a failure (brim_failure) becomes attributes, which are None where it is not known.
 */
#include "extension.h"

#include <string.h>

PyObject *brim_py_error, *brim_py_budget_error, *brim_py_held_error, *brim_py_pipeline_error,
    *brim_py_data_error, *brim_py_function_error, *brim_py_state_error, *brim_py_device_error,
    *brim_py_iteration_error, *brim_py_closed_error, *brim_py_hold_warning, *brim_py_cache_warning,
    *brim_py_randomness_warning, *brim_py_empty_warning;

struct family {
    PyObject **exception;
    const char *name, *doc;
    PyObject **parent, **builtin; /* NULL: none */
};

static int add(PyObject *module, const struct family *member) {
    PyObject *bases = member->parent == NULL ? Py_BuildValue("(O)", *member->builtin)
                      : member->builtin == NULL
                          ? Py_BuildValue("(O)", *member->parent)
                          : Py_BuildValue("(OO)", *member->parent, *member->builtin);
    if (bases == NULL) {
        return -1;
    }
    *member->exception = PyErr_NewExceptionWithDoc(member->name, member->doc, bases, NULL);
    Py_DECREF(bases);
    return *member->exception == NULL
               ? -1
               : PyModule_AddObjectRef(module, strrchr(member->name, '.') + 1, *member->exception);
}

/* What is not known of an error. */
static int add_attributes(void) {
    static const char *const unknown[] = { "status",   "stage",   "stage_index", "span",
                                           "argument", "source",  "sample",      "byte",
                                           "wanted",   "minimum", "exact" };
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        if (PyObject_SetAttrString(brim_py_error, unknown[i], Py_None) != 0) {
            return -1;
        }
    }
    PyObject *none = PyTuple_New(0);
    const int failed = none == NULL || PyObject_SetAttrString(brim_py_error, "holders", none) != 0;
    Py_XDECREF(none);
    return failed ? -1 : 0;
}

int brim_py_errors_init(PyObject *module) {
    const struct family members[] = {
        { &brim_py_error, "brim.Error", "The base class of brim's exceptions.", NULL,
          &PyExc_Exception },
        { &brim_py_budget_error, "brim.BudgetError", "It does not fit the budget.", &brim_py_error,
          &PyExc_MemoryError },
        { &brim_py_held_error, "brim.HeldError", "More batches are held than `hold` allows.",
          &brim_py_budget_error, NULL },
        { &brim_py_pipeline_error, "brim.PipelineError", "The pipeline or an argument is wrong.",
          &brim_py_error, &PyExc_ValueError },
        { &brim_py_data_error, "brim.DataError", "Files or samples are bad.", &brim_py_error,
          NULL },
        { &brim_py_function_error, "brim.FunctionError",
          "A function failed; its exception is the cause.", &brim_py_data_error, NULL },
        { &brim_py_state_error, "brim.StateError",
          "A state of other data or another order, or a stream that cannot seek.", &brim_py_error,
          &PyExc_ValueError },
        { &brim_py_device_error, "brim.DeviceError", "The driver of a device failed.",
          &brim_py_error, &PyExc_RuntimeError },
        { &brim_py_iteration_error, "brim.IterationError", "A newer iterator has ended this one.",
          &brim_py_error, &PyExc_RuntimeError },
        { &brim_py_closed_error, "brim.ClosedError",
          "The loader or runtime is closed, or belongs to a parent process.", &brim_py_error,
          &PyExc_RuntimeError },
        { &brim_py_hold_warning, "brim.HoldWarning",
          "Batches are copied because more are held than `hold` allows.", NULL,
          &PyExc_UserWarning },
        { &brim_py_cache_warning, "brim.CacheWarning",
          "A cache keeps nothing more or was reset, or an index was not trusted.", NULL,
          &PyExc_UserWarning },
        { &brim_py_randomness_warning, "brim.RandomnessWarning",
          "A function draws random numbers that are not seeded for each sample.", NULL,
          &PyExc_UserWarning },
        { &brim_py_empty_warning, "brim.EmptyBatchWarning",
          "All samples of a batch were bad, and it is delivered without rows.", NULL,
          &PyExc_UserWarning },
    };
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        if (add(module, &members[i]) != 0) {
            return -1;
        }
    }
    return add_attributes();
}

static PyObject *exception_of(brim_status status) {
    switch (status) {
    case BRIM_STATUS_BUDGET:
    case BRIM_STATUS_MEMORY:
    case BRIM_STATUS_THREAD:
        return brim_py_budget_error;
    case BRIM_STATUS_HELD:
        return brim_py_held_error;
    case BRIM_STATUS_INVALID:
    case BRIM_STATUS_SYNTAX:
    case BRIM_STATUS_UNBOUND:
    case BRIM_STATUS_UNSUPPORTED:
        return brim_py_pipeline_error;
    case BRIM_STATUS_IO:
    case BRIM_STATUS_CORRUPT:
        return brim_py_data_error;
    case BRIM_STATUS_CALLBACK:
    case BRIM_STATUS_STOPPED:
        return brim_py_function_error;
    case BRIM_STATUS_MISMATCH:
    case BRIM_STATUS_UNSEEKABLE:
        return brim_py_state_error;
    case BRIM_STATUS_DRIVER:
        return brim_py_device_error;
    case BRIM_STATUS_CLOSED:
    case BRIM_STATUS_FORKED:
        return brim_py_closed_error;
    case BRIM_OK:
    case BRIM_STATUS_END:
    case BRIM_STATUS_TIMEOUT:
    case BRIM_STATUS_BUSY:
    case BRIM_STATUS_INTERRUPTED:
        break;
    }
    return brim_py_error;
}

/* ------------------------------------------------------------------ raising */

/* Gives an attribute to an exception; takes `value` over. An attribute that cannot be made is
 * left out: the exception matters more. */
static void set(PyObject *exception, const char *name, PyObject *value) {
    if (value == NULL || PyObject_SetAttrString(exception, name, value) != 0) {
        PyErr_Clear();
    }
    Py_XDECREF(value);
}

static void set_text(PyObject *exception, const char *name, const char *text) {
    if (text[0] != '\0') {
        set(exception, name, PyUnicode_DecodeFSDefault(text));
    }
}

static void set_number(PyObject *exception, const char *name, uint64_t number, int known) {
    if (known) {
        set(exception, name, PyLong_FromUnsignedLongLong(number));
    }
}

static void set_stage(PyObject *exception, const brim_failure *failure) {
    set_text(exception, "stage", failure->stage);
    set_text(exception, "argument", failure->argument);
    set_number(exception, "stage_index", failure->stage_index,
               failure->stage_index != BRIM_NO_STAGE);
    if (failure->end > 0) {
        set(exception, "span",
            Py_BuildValue("(KK)", (unsigned long long)failure->begin,
                          (unsigned long long)failure->end));
    }
    set_text(exception, "source", failure->source);
    set_number(exception, "sample", failure->sample, failure->sample != BRIM_UNKNOWN);
    set_number(exception, "byte", failure->byte, failure->byte != BRIM_UNKNOWN);
}

/* The arguments of Runtime with which it would open. */
static PyObject *minimum_of(const brim_failure *failure) {
    const struct {
        const char *name;
        uint64_t bytes;
    } limits[] = { { "memory", failure->minimum_bytes },
                   { "pinned", failure->minimum_pinned_bytes },
                   { "device_memory", failure->minimum_device_bytes } };
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < sizeof limits / sizeof limits[0]; i++) {
        PyObject *bytes = limits[i].bytes > 0 ? PyLong_FromUnsignedLongLong(limits[i].bytes) : NULL;
        if (bytes != NULL && PyDict_SetItemString(dict, limits[i].name, bytes) != 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(bytes);
    }
    return dict;
}

static PyObject *holders_of(const brim_failure *failure) {
    PyObject *holders = PyTuple_New((Py_ssize_t)failure->holder_count);
    for (uint32_t i = 0; holders != NULL && i < failure->holder_count; i++) {
        PyObject *holder = Py_BuildValue("(sK)", failure->holder[i].label,
                                         (unsigned long long)failure->holder[i].bytes);
        if (holder == NULL || PyTuple_SetItem(holders, (Py_ssize_t)i, holder) != 0) {
            Py_CLEAR(holders);
        }
    }
    return holders;
}

static void set_lack(PyObject *exception, const brim_failure *failure) {
    set_number(exception, "wanted", failure->wanted_bytes, failure->wanted_bytes > 0);
    if (failure->minimum_bytes + failure->minimum_pinned_bytes + failure->minimum_device_bytes >
        0) {
        set(exception, "minimum", minimum_of(failure));
        set(exception, "exact", PyBool_FromLong(failure->exact));
    }
    if (failure->holder_count > 0) {
        set(exception, "holders", holders_of(failure));
    }
}

PyObject *brim_py_raise_failure(brim_status status, const brim_failure *failure, const char *text) {
    PyObject *cause = brim_py_kept_exception(failure->cause);
    if (cause != NULL && PyObject_IsInstance(cause, PyExc_Exception) == 0) {
        /* KeyboardInterrupt, SystemExit: not a failure of the function */
        PyErr_SetObject((PyObject *)Py_TYPE(cause), cause);
        Py_DECREF(cause);
        return NULL;
    }
    const char *words = text[0] != '\0' ? text : brim_status_text(status);
    PyObject *type = exception_of(status);
    PyObject *message = PyUnicode_DecodeUTF8(words, (Py_ssize_t)strlen(words), "replace");
    PyObject *exception =
        message == NULL ? NULL : PyObject_CallFunctionObjArgs(type, message, NULL);
    Py_XDECREF(message);
    if (exception == NULL) {
        Py_XDECREF(cause);
        return NULL;
    }
    set(exception, "status", PyUnicode_FromString(brim_status_name(status)));
    set_stage(exception, failure);
    set_lack(exception, failure);
    if (cause != NULL) {
        PyException_SetCause(exception, cause); /* takes it over */
    }
    PyErr_SetObject(type, exception);
    Py_DECREF(exception);
    return NULL;
}

PyObject *brim_py_raise_text(brim_status status, const char *text) {
    const brim_failure none = { .size = sizeof none,
                                .stage_index = BRIM_NO_STAGE,
                                .sample = BRIM_UNKNOWN,
                                .byte = BRIM_UNKNOWN };
    return brim_py_raise_failure(status, &none, text);
}

PyObject *brim_py_raise(brim_status status) {
    brim_failure failure = BRIM_FAILURE_INIT;
    (void)brim_failure_read(&failure);
    return brim_py_raise_failure(status, &failure, failure.text);
}
