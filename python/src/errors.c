/*
 * errors.c: the family of exceptions, and statuses made into them.
 *
 *     Error
 *      ├─ BudgetError (MemoryError)     it does not fit the memory
 *      │   └─ HeldError                 more batches are kept than `hold` allows
 *      ├─ PipelineError (ValueError)    the pipeline or an argument is wrong
 *      ├─ DataError                     files or samples are bad
 *      │   └─ FunctionError             a Python function failed; it is the cause
 *      ├─ StateError (ValueError)       a state of other data, or a stream that cannot go there
 *      ├─ DeviceError (RuntimeError)    the driver of a device failed
 *      ├─ IterationError (RuntimeError) an iterator that a newer one has ended
 *      └─ ClosedError (RuntimeError)    the loader or runtime is closed, or of a parent process
 *
 * The text is always the library's own, which says what to change.
 */
#include "extension.h"

#include <stdlib.h>
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

int brim_py_errors_init(PyObject *module) {
    const struct family members[] = {
        { &brim_py_error, "brim.Error", "All that brim raises.", NULL, &PyExc_Exception },
        { &brim_py_budget_error, "brim.BudgetError", "It does not fit the memory.", &brim_py_error,
          &PyExc_MemoryError },
        { &brim_py_held_error, "brim.HeldError", "More batches are kept than `hold` allows.",
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
          "The loader or runtime is closed, or of a parent process.", &brim_py_error,
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
    return 0;
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
    case BRIM_STATUS_INTERRUPTED:
        break;
    }
    return brim_py_error;
}

/* The next mark "[#N] " from `text` on, its number and its end; or NULL. */
static char *find_mark(char *text, unsigned long *number, char **end) {
    for (char *at = text; (at = strstr(at, "[#")) != NULL; at += 2) {
        char *digits = at + 2;
        *number = strtoul(digits, end, 10);
        if (*end != digits && strncmp(*end, "] ", 2) == 0) {
            *end += 2;
            return at;
        }
    }
    return NULL;
}

static void cut(char *from, const char *end) {
    memmove(from, end, strlen(end) + 1);
}

/* Beside the marks, what the library says of the callback's result goes: Python's
 * functions return no numbers that mean anything. */
void brim_py_plain_text(char *text) {
    static const char before[] = " returned -1: ", behind[] = " (it returned -1)";
    unsigned long number;
    char *at = text, *end;
    while ((at = find_mark(at, &number, &end)) != NULL) {
        cut(at, end);
        char *result = at - (sizeof before - 1);
        if (result >= text && strncmp(result, before, sizeof before - 1) == 0) {
            cut(result, result + strlen(" returned -1"));
        }
        if ((result = strstr(text, behind)) != NULL) {
            cut(result, result + sizeof behind - 1);
        }
    }
}

PyObject *brim_py_raise_text(brim_status status, const char *text) {
    char plain[2048];
    PyObject *cause = brim_py_kept_exception(text);
    if (cause != NULL && PyObject_IsInstance(cause, PyExc_Exception) == 0) {
        /* KeyboardInterrupt, SystemExit: no failure of the function's */
        PyErr_SetObject((PyObject *)Py_TYPE(cause), cause);
        Py_DECREF(cause);
        return NULL;
    }
    snprintf(plain, sizeof plain, "%s", text[0] != '\0' ? text : brim_status_text(status));
    brim_py_plain_text(plain);
    PyObject *type = exception_of(status);
    PyObject *message = PyUnicode_DecodeUTF8(plain, (Py_ssize_t)strlen(plain), "replace");
    PyObject *exception =
        message == NULL ? NULL : PyObject_CallFunctionObjArgs(type, message, NULL);
    Py_XDECREF(message);
    if (exception == NULL) {
        Py_XDECREF(cause);
        return NULL;
    }
    if (cause != NULL) {
        PyException_SetCause(exception, cause); /* takes it over */
    }
    PyErr_SetObject(type, exception);
    Py_DECREF(exception);
    return NULL;
}

PyObject *brim_py_raise(brim_status status) {
    return brim_py_raise_text(status, brim_detail());
}
