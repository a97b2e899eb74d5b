/*
 * pipelines.c: pipelines as text, and the table of stages.
 *
 * A Python pipeline is its text; brim's own object lives only for as long as a
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

/* ---------------------------------------------------------------- stages */

static const char *const types[] = { "integer", "real", "size",    "yesno",    "choice",
                                     "word",    "path", "binding", "pipeline", "weighted" };
static const char *const rooms[] = { "source", "order", "transform", "batching", "cache" };

/* Where bytes of a text lie among its characters, which are counted from the last place on. */
struct counted {
    const char *text;
    size_t byte, characters;
};

static int begins_character(const struct counted *counted) {
    return ((unsigned char)counted->text[counted->byte] & 0xC0) != 0x80;
}

static Py_ssize_t character_of(struct counted *counted, size_t byte) {
    while (counted->byte < byte) {
        counted->characters += begins_character(counted);
        counted->byte++;
    }
    while (counted->byte > byte) {
        counted->byte--;
        counted->characters -= begins_character(counted);
    }
    return (Py_ssize_t)counted->characters;
}

static PyObject *number_or_none(uint32_t number) {
    return number == BRIM_NO_STAGE ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(number);
}

static PyObject *value_object(const brim_pipeline_value *value) {
    switch (value->info->type) {
    case BRIM_TYPE_INTEGER:
    case BRIM_TYPE_SIZE:
        return PyLong_FromLongLong(value->integer);
    case BRIM_TYPE_YESNO:
        return PyBool_FromLong(value->integer != 0);
    case BRIM_TYPE_REAL:
    case BRIM_TYPE_WEIGHTED:
        return PyFloat_FromDouble(value->real);
    case BRIM_TYPE_PIPELINE:
        return Py_NewRef(Py_None);
    case BRIM_TYPE_CHOICE:
    case BRIM_TYPE_WORD:
    case BRIM_TYPE_PATH:
    case BRIM_TYPE_BINDING:
        break;
    }
    return PyUnicode_DecodeFSDefault(value->text);
}

static PyObject *describe_value(const brim_pipeline_value *value, struct counted *counted) {
    PyObject *object = value_object(value);
    if (object == NULL) {
        return NULL;
    }
    const Py_ssize_t begin = character_of(counted, value->begin);
    return Py_BuildValue("{s:s,s:s,s:N,s:O,s:n,s:n}", "argument", value->info->name, "type",
                         types[value->info->type], "value", object, "given",
                         value->end > 0 ? Py_True : Py_False, "begin", begin, "end",
                         character_of(counted, value->end));
}

static PyObject *list_values(const brim_pipeline *pipeline, size_t stage, size_t count,
                             struct counted *counted) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count; i++) {
        brim_pipeline_value value = BRIM_PIPELINE_VALUE_INIT;
        const brim_status status = brim_pipeline_read_value(pipeline, stage, i, &value);
        PyObject *item =
            status == BRIM_OK ? describe_value(&value, counted) : brim_py_raise(status);
        if (item == NULL || PyList_Append(list, item) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *describe_use(const brim_pipeline *pipeline, size_t number,
                              struct counted *counted) {
    brim_pipeline_stage stage = BRIM_PIPELINE_STAGE_INIT;
    const brim_status status = brim_pipeline_read_stage(pipeline, number, &stage);
    if (status != BRIM_OK) {
        return brim_py_raise(status);
    }
    const Py_ssize_t begin = character_of(counted, stage.begin);
    PyObject *values = list_values(pipeline, number, stage.value_count, counted);
    PyObject *parent = values == NULL ? NULL : number_or_none(stage.parent);
    if (parent == NULL) {
        Py_XDECREF(values);
        return NULL;
    }
    return Py_BuildValue("{s:s,s:s,s:n,s:n,s:I,s:N,s:I,s:N}", "name", stage.info->name, "room",
                         rooms[stage.info->room], "begin", begin, "end",
                         character_of(counted, stage.end), "depth", stage.depth, "parent", parent,
                         "branch", stage.branch, "values", values);
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
    struct counted counted = { .text = brim_pipeline_text(pipeline) };
    PyObject *stages = PyList_New(0);
    const size_t count = brim_pipeline_stage_count(pipeline);
    for (size_t i = 0; stages != NULL && i < count; i++) {
        PyObject *stage = describe_use(pipeline, i, &counted);
        if (stage == NULL || PyList_Append(stages, stage) != 0) {
            Py_CLEAR(stages);
        }
        Py_XDECREF(stage);
    }
    PyObject *printed = stages == NULL ? NULL : take_text(pipeline);
    if (stages == NULL) {
        brim_pipeline_free(pipeline);
    }
    PyObject *result = printed == NULL ? NULL : PyTuple_Pack(2, printed, stages);
    Py_XDECREF(stages);
    Py_XDECREF(printed);
    return result;
}

/* --------------------------------------------------------------- arguments */

/* A Python value as an argument: yes and no, numbers, text, ("pipeline", text).
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
    PyObject *choices = split_choices(argument->choices);
    if (choices == NULL) {
        return NULL;
    }
    const uint32_t flags = argument->flags;
    return Py_BuildValue(
        "{s:s,s:s,s:N,s:N,s:N,s:z,s:d,s:d,s:N,s:s}", "name", argument->name, "type",
        types[argument->type], "required", PyBool_FromLong(flags & BRIM_ARGUMENT_FLAG_REQUIRED),
        "positional", PyBool_FromLong(flags & BRIM_ARGUMENT_FLAG_POSITIONAL), "list",
        PyBool_FromLong(flags & BRIM_ARGUMENT_FLAG_LIST), "default", argument->fallback, "least",
        argument->least, "most", argument->most, "choices", choices, "help", argument->help);
}

static PyObject *describe_stage(const brim_stage_info *stage) {
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
