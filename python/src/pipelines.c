/*
 * pipelines.c: pipelines as text, and the table of stages.
 *
 * A pipeline of Python's is its text; brim's own object lives only for as long as a
 * call here, so that there is nothing to keep alive, to copy or to guard.
 */
#include "extension.h"

#include <stdlib.h>
#include <string.h>

/* The text of a pipeline, which is freed. */
static PyObject *take_text(brim_pipeline *pipeline) {
    const char *text = brim_pipeline_text(pipeline);
    PyObject *result =
        text == NULL ? brim_py_raise(BRIM_STATUS_MEMORY) : PyUnicode_FromString(text);
    brim_pipeline_free(pipeline);
    return result;
}

static brim_status make(const char *text, brim_pipeline **pipeline) {
    return text[0] == '\0' ? brim_pipeline_new(pipeline) : brim_pipeline_parse(text, pipeline);
}

PyObject *brim_py_parse(PyObject *module, PyObject *args) {
    const char *text;
    brim_pipeline *pipeline;
    (void)module;
    if (!PyArg_ParseTuple(args, "s:parse", &text)) {
        return NULL;
    }
    const brim_status status = make(text, &pipeline);
    if (status != BRIM_OK) {
        return brim_py_raise(status);
    }
    PyObject *names = PyList_New(0);
    const size_t count = brim_pipeline_count(pipeline);
    for (size_t i = 0; names != NULL && i < count; i++) {
        PyObject *name = PyUnicode_FromString(brim_pipeline_stage_at(pipeline, i));
        if (name == NULL || PyList_Append(names, name) != 0) {
            Py_CLEAR(names);
        }
        Py_XDECREF(name);
    }
    PyObject *printed = take_text(pipeline);
    PyObject *result = names == NULL || printed == NULL ? NULL : PyTuple_Pack(2, printed, names);
    Py_XDECREF(names);
    Py_XDECREF(printed);
    return result;
}

PyObject *brim_py_cut(PyObject *module, PyObject *args) {
    const char *text;
    Py_ssize_t count;
    brim_pipeline *pipeline;
    (void)module;
    if (!PyArg_ParseTuple(args, "sn:cut", &text, &count)) {
        return NULL;
    }
    brim_status status = make(text, &pipeline);
    if (status == BRIM_OK) {
        status = brim_pipeline_cut(pipeline, count < 0 ? 0 : (size_t)count);
        if (status != BRIM_OK) {
            brim_pipeline_free(pipeline);
        }
    }
    return status == BRIM_OK ? take_text(pipeline) : brim_py_raise(status);
}

/* --------------------------------------------------------------- arguments */

/* A value of Python's as an argument: yes and no, numbers, text, ("pipeline", text).
 * A nested pipeline is the caller's to free. */
static int read_value(PyObject *value, brim_argument *argument, brim_pipeline **nested) {
    if (PyBool_Check(value)) {
        argument->text = value == Py_True ? "yes" : "no";
        return 0;
    }
    if (PyLong_Check(value)) {
        argument->kind = BRIM_ARGUMENT_INTEGER;
        argument->integer = PyLong_AsLongLong(value);
        return argument->integer == -1 && PyErr_Occurred() != NULL ? -1 : 0;
    }
    if (PyFloat_Check(value)) {
        argument->kind = BRIM_ARGUMENT_REAL;
        argument->real = PyFloat_AsDouble(value);
        return 0;
    }
    if (PyUnicode_Check(value)) {
        argument->text = PyUnicode_AsUTF8AndSize(value, NULL);
        return argument->text == NULL ? -1 : 0;
    }
    const char *what, *text;
    if (!PyTuple_Check(value) || !PyArg_ParseTuple(value, "ss", &what, &text)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "an argument is a str, int, float, bool or pipeline, not %R",
                     (PyObject *)Py_TYPE(value));
        return -1;
    }
    argument->kind = BRIM_ARGUMENT_PIPELINE;
    const brim_status status = brim_pipeline_parse(text, nested);
    if (status != BRIM_OK) {
        brim_py_raise(status);
        return -1;
    }
    argument->pipeline = *nested;
    return 0;
}

static int read_arguments(PyObject *list, brim_argument *arguments, brim_pipeline **nested) {
    const Py_ssize_t count = PyList_Size(list);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value;
        arguments[i] = (brim_argument)BRIM_ARGUMENT_INIT;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "zO", &arguments[i].key, &value) ||
            read_value(value, &arguments[i], &nested[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

PyObject *brim_py_add(PyObject *module, PyObject *args) {
    const char *text, *stage;
    PyObject *given, *result = NULL;
    brim_pipeline *pipeline;
    (void)module;
    if (!PyArg_ParseTuple(args, "ssO:add", &text, &stage, &given)) {
        return NULL;
    }
    PyObject *list = PySequence_List(given); /* keeps what the arguments point to */
    if (list == NULL) {
        return NULL;
    }
    const Py_ssize_t count = PyList_Size(list);
    brim_argument *arguments = calloc((size_t)count + 1, sizeof *arguments);
    brim_pipeline **nested = calloc((size_t)count + 1, sizeof(brim_pipeline *));
    if (arguments == NULL || nested == NULL) {
        PyErr_NoMemory();
    } else if (read_arguments(list, arguments, nested) == 0) {
        brim_status status = make(text, &pipeline);
        if (status == BRIM_OK) {
            status = brim_pipeline_add(pipeline, stage, arguments, (size_t)count);
            if (status != BRIM_OK) {
                brim_pipeline_free(pipeline);
            }
        }
        result = status == BRIM_OK ? take_text(pipeline) : brim_py_raise(status);
    }
    for (Py_ssize_t i = 0; nested != NULL && i < count; i++) {
        brim_pipeline_free(nested[i]);
    }
    free(nested);
    free(arguments);
    Py_DECREF(list);
    return result;
}

PyObject *brim_py_guess(PyObject *module, PyObject *args) {
    const char *path;
    char text[8192];
    brim_status status;
    (void)module;
    if (!PyArg_ParseTuple(args, "s:guess", &path)) {
        return NULL;
    }
    BRIM_WITHOUT_LOCK(status = brim_guess(path, text, sizeof text));
    return status == BRIM_OK ? PyUnicode_FromString(text) : brim_py_raise(status);
}

/* ------------------------------------------------------- table of stages */

static PyObject *split_choices(const char *choices) {
    if (choices == NULL) {
        return Py_NewRef(Py_None);
    }
    PyObject *text = PyUnicode_FromString(choices);
    PyObject *list = text == NULL ? NULL : PyObject_CallMethod(text, "split", "s", "|");
    Py_XDECREF(text);
    return list;
}

static PyObject *describe_argument(const brim_argument_info *argument) {
    static const char *const types[] = { "integer", "real", "size",    "yesno",    "choice",
                                         "word",    "path", "binding", "pipeline", "weighted" };
    PyObject *choices = split_choices(argument->choices);
    if (choices == NULL) {
        return NULL;
    }
    const uint32_t flags = argument->flags;
    return Py_BuildValue(
        "{s:s,s:s,s:N,s:N,s:N,s:z,s:d,s:d,s:N,s:s}", "name", argument->name, "type",
        types[argument->type], "required", PyBool_FromLong(flags & BRIM_ARGUMENT_REQUIRED),
        "positional", PyBool_FromLong(flags & BRIM_ARGUMENT_POSITIONAL), "list",
        PyBool_FromLong(flags & BRIM_ARGUMENT_LIST), "default", argument->fallback, "least",
        argument->least, "most", argument->most, "choices", choices, "help", argument->help);
}

static PyObject *describe_stage(const brim_stage_info *stage) {
    static const char *const rooms[] = { "source", "order", "transform", "batching", "cache" };
    PyObject *arguments = PyList_New(0);
    for (size_t i = 0; arguments != NULL && i < stage->argument_count; i++) {
        PyObject *argument = describe_argument(brim_stage_argument_at(stage, i));
        if (argument == NULL || PyList_Append(arguments, argument) != 0) {
            Py_CLEAR(arguments);
        }
        Py_XDECREF(argument);
    }
    return arguments == NULL ? NULL
                             : Py_BuildValue("{s:s,s:s,s:s,s:s,s:I,s:N}", "name", stage->name,
                                             "summary", stage->summary, "example", stage->example,
                                             "room", rooms[stage->room], "version", stage->version,
                                             "arguments", arguments);
}

PyObject *brim_py_stages(PyObject *module, PyObject *unused) {
    PyObject *list = PyList_New(0);
    (void)module;
    (void)unused;
    for (size_t i = 0; list != NULL && i < brim_stage_count(); i++) {
        PyObject *stage = describe_stage(brim_stage_at(i));
        if (stage == NULL || PyList_Append(list, stage) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(stage);
    }
    return list;
}
