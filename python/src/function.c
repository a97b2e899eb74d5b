/*
 * function.c: calling Python functions from brim's workers.
 *
 * What is called is a trampoline of brim/_calls.py, which makes numpy arrays of the
 * values and calls the user's function:
 *
 *     map        call(sample, epoch, key, inputs, outputs)
 *     filter     call(sample, epoch, key, inputs) -> truth value
 *     flat_map   call(sample, epoch, key, index, inputs, outputs), None: no more
 *     batch_map  call(number, epoch, key, inputs, outputs)
 *     source     call(sample, epoch, key, outputs)
 *     stream     call(outputs), None: the stream has ended
 *     reopen     reopen(epoch, sample)
 *
 * `inputs` is a dict of Arrays, str for text and bytes for bytes; `outputs` a tuple of
 * Arrays, shape[0] of those that are not dense being the bound. All Arrays lie in
 * brim's memory. Calls return None or a tuple: for each output how many elements of
 * its first dimension were written, None where it is dense.
 *
 * Invariant: no Array outlives its call. Its memory soon holds another sample, or is
 * gone; so after the call only this file may have a reference to one, or the
 * sample fails with a text that says what was kept. An exception holds the frames it
 * came through, and these their variables: brim/_tracebacks.py takes them away.
 *
 * Invariant: an exception that is kept belongs to the Binding whose function raised it,
 * which shows it to Python's collector and drops it at its end. So a loader that an
 * exception refers to can still go.
 */
#include "extension.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_VALUES 64

/* ------------------------------------------------------------------ running */

/* A function that is being called on this thread, in this process or another. */
struct running {
    const BindingObject *binding;
    const struct running *outer;
};
static _Thread_local const struct running *running; /* the innermost */

int brim_py_is_running(PyObject *bindings) {
    const Py_ssize_t count = bindings == NULL ? 0 : PyTuple_Size(bindings);
    for (const struct running *at = running; at != NULL; at = at->outer) {
        for (Py_ssize_t i = 0; i < count; i++) {
            if (PyTuple_GetItem(bindings, i) == (const PyObject *)at->binding) {
                return 1;
            }
        }
    }
    return 0;
}

/* --------------------------------------------------------------- exceptions */

#define KEPT 64 /* the last ones: as many as any loader may yet report */

/* Guarded by the interpreter's lock. Number n is at n % KEPT. */
static struct {
    uint64_t number;
    const BindingObject *owner; /* NULL: none */
    PyObject *exception;        /* NULL: it was raised, or its owner is gone */
} kept[KEPT];
static uint64_t kept_count;

/* The exception that is set, complete and taken off the thread. */
static PyObject *take_exception(void) {
    PyObject *type, *exception, *traceback;
    PyErr_Fetch(&type, &exception, &traceback);
    PyErr_NormalizeException(&type, &exception, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(exception, traceback);
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return exception;
}

static void put_exception(PyObject *exception) {
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(exception)), exception,
                  PyException_GetTraceback(exception));
}

/* Takes the frames away that the exception came through. */
static void detach(PyObject *exception) {
    PyObject *module = PyImport_ImportModule("brim._tracebacks");
    PyObject *none = module == NULL ? NULL : PyObject_CallMethod(module, "detach", "O", exception);
    Py_XDECREF(none);
    Py_XDECREF(module);
    PyErr_Clear();
}

/* Takes over an exception that is detached; brim_py_keep_exception says the rest. */
static void keep(PyObject *exception, char *why, size_t why_bytes) {
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(exception), "__name__");
    PyObject *text = type == NULL ? NULL : PyUnicode_FromFormat("%S: %S", type, exception);
    PyObject *bytes =
        text == NULL ? NULL : PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
    const char *said = bytes == NULL ? "an exception that has no text" : PyBytes_AsString(bytes);
    const uint64_t number = ++kept_count;
    int used = snprintf(why, why_bytes, "%s", said);
    if (used >= (int)why_bytes) { /* cut: not in the middle of a character */
        used = (int)why_bytes - 1;
        while (used > 0 && ((unsigned char)why[used] & 0xC0) == 0x80) {
            used--;
        }
        if (((unsigned char)why[used] & 0x80) != 0) {
            why[used] = '\0';
        }
    }
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    Py_XDECREF(type);
    PyErr_Clear();
    PyObject *old = kept[number % KEPT].exception;
    kept[number % KEPT].number = number;
    kept[number % KEPT].owner = running == NULL ? NULL : running->binding;
    kept[number % KEPT].exception = exception;
    Py_XDECREF(old);
    brim_callback_cause(number);
}

void brim_py_keep_exception(char *why, size_t why_bytes) {
    PyObject *exception = take_exception();
    detach(exception);
    keep(exception, why, why_bytes);
}

PyObject *brim_py_kept_exception(uint64_t cause) {
    if (cause == 0 || kept[cause % KEPT].number != cause) {
        return NULL;
    }
    PyObject *exception = kept[cause % KEPT].exception;
    kept[cause % KEPT].exception = NULL;
    return exception;
}

int brim_py_visit_exceptions(const BindingObject *owner, visitproc visit, void *arg) {
    for (size_t i = 0; i < KEPT; i++) {
        if (kept[i].owner == owner) {
            Py_VISIT(kept[i].exception);
        }
    }
    return 0;
}

void brim_py_drop_exceptions(const BindingObject *owner) {
    for (size_t i = 0; i < KEPT; i++) {
        if (kept[i].owner == owner) {
            kept[i].owner = NULL;
            Py_CLEAR(kept[i].exception);
        }
    }
}

/* -------------------------------------------------------------------- values */

/* The Arrays of a call, one reference each. */
struct views {
    size_t count;
    PyObject *array[MOST_VALUES];
    const char *name[MOST_VALUES];
};

static PyObject *value_to_array(const brim_value *value, int readonly, struct views *views) {
    if (views->count == MOST_VALUES) {
        return PyErr_Format(PyExc_ValueError, "more than %d fields", MOST_VALUES);
    }
    PyObject *array = brim_py_array_new(NULL, value->data, value->dtype, (int)value->rank,
                                        value->shape, NULL, readonly);
    if (array != NULL) {
        views->name[views->count] = value->name;
        views->array[views->count++] = Py_NewRef(array);
    }
    return array;
}

static PyObject *value_to_object(const brim_value *value, int readonly, struct views *views) {
    switch (value->form) {
    case BRIM_FORM_TEXT:
        return PyUnicode_DecodeUTF8(value->data, (Py_ssize_t)value->shape[0], "replace");
    case BRIM_FORM_BYTES:
        return PyBytes_FromStringAndSize(value->data, (Py_ssize_t)value->shape[0]);
    case BRIM_FORM_DENSE:
    case BRIM_FORM_RAGGED:
        break;
    }
    return value_to_array(value, readonly, views);
}

static PyObject *inputs_to_dict(const brim_value *inputs, size_t count, int readonly,
                                struct views *views) {
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < count; i++) {
        PyObject *name = PyUnicode_InternFromString(brim_value_at(inputs, i)->name);
        PyObject *object =
            name == NULL ? NULL : value_to_object(brim_value_at(inputs, i), readonly, views);
        if (object == NULL || PyDict_SetItem(dict, name, object) != 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(object);
        Py_XDECREF(name);
    }
    return dict;
}

static PyObject *outputs_to_tuple(const brim_value *outputs, size_t count, struct views *views) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *array = value_to_array(brim_value_at(outputs, i), 0, views);
        if (array == NULL || PyTuple_SetItem(tuple, (Py_ssize_t)i, array) != 0) {
            Py_CLEAR(tuple);
        }
    }
    return tuple;
}

/* Which view something else still refers to; views->count: none. */
static size_t find_kept(const struct views *views) {
    size_t i = 0;
    while (i < views->count && Py_REFCNT(views->array[i]) == 1) {
        i++;
    }
    return i;
}

/* Lets the views go, and raises if one of them is still referred to. An exception that
 * is set stays, if it is not itself what keeps a view. */
static int drop_views(struct views *views) {
    PyObject *exception = PyErr_Occurred() != NULL ? take_exception() : NULL;
    if (exception != NULL) {
        detach(exception);
    }
    size_t at = find_kept(views);
    if (at < views->count) {
        PyGC_Collect(); /* garbage that is not collected yet must not count */
        at = find_kept(views);
    }
    if (at < views->count) {
        brim_keep_addresses(); /* the program may look at it when its memory is gone */
    }
    if (at < views->count && exception != NULL) {
        PyErr_Format(brim_py_error,
                     "%S (the exception kept a view of field '%s', which is no longer valid: put a "
                     "copy into exceptions)",
                     exception, views->name[at]);
        Py_CLEAR(exception);
    } else if (at < views->count) {
        PyErr_Format(brim_py_error,
                     "the function kept a view of field '%s', whose memory will soon hold another "
                     "sample; keep a copy instead: sample['%s'].copy()",
                     views->name[at], views->name[at]);
    } else if (exception != NULL) {
        put_exception(exception);
    }
    for (size_t i = 0; i < views->count; i++) {
        Py_DECREF(views->array[i]);
    }
    return PyErr_Occurred() != NULL ? -1 : 0;
}

/* Takes over how much was written into outputs that are not dense. */
static int take_lengths(PyObject *lengths, brim_value *outputs, size_t count) {
    if (lengths != Py_None &&
        (!PyTuple_Check(lengths) || PyTuple_Size(lengths) != (Py_ssize_t)count)) {
        PyErr_Format(PyExc_TypeError, "a call returned %R instead of %zu lengths", lengths, count);
        return -1;
    }
    for (size_t i = 0; lengths != Py_None && i < count; i++) {
        PyObject *length = PyTuple_GetItem(lengths, (Py_ssize_t)i);
        if (length == Py_None || brim_value_at(outputs, i)->form == BRIM_FORM_DENSE) {
            continue;
        }
        brim_value_at(outputs, i)->shape[0] = PyLong_AsLongLong(length);
        if (PyErr_Occurred() != NULL) {
            return -1;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------- calling */

/* What a call is given, in the order of the table above, so far as its kind has it. */
struct arguments {
    const brim_call *call; /* NULL: none */
    int has_index;
    uint64_t index;
    int has_inputs, writable;
    const brim_value *inputs;
    size_t input_count;
    int has_outputs;
    brim_value *outputs;
    size_t output_count;
};

static PyObject *make_arguments(const struct arguments *given, struct views *views) {
    PyObject *argument[6];
    size_t count = 0;
    if (given->call != NULL) {
        argument[count++] = PyLong_FromUnsignedLongLong(given->call->sample);
        argument[count++] = PyLong_FromUnsignedLongLong(given->call->epoch);
        argument[count++] = PyLong_FromUnsignedLongLong(given->call->key);
    }
    if (given->has_index) {
        argument[count++] = PyLong_FromUnsignedLongLong(given->index);
    }
    if (given->has_inputs) {
        argument[count++] =
            inputs_to_dict(given->inputs, given->input_count, !given->writable, views);
    }
    if (given->has_outputs) {
        argument[count++] = outputs_to_tuple(given->outputs, given->output_count, views);
    }
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    int whole = tuple != NULL;
    for (size_t i = 0; i < count; i++) {
        whole = whole && argument[i] != NULL;
        if (whole) {
            whole = PyTuple_SetItem(tuple, (Py_ssize_t)i, argument[i]) == 0;
        } else {
            Py_XDECREF(argument[i]);
        }
    }
    if (!whole) {
        Py_CLEAR(tuple);
    }
    return tuple;
}

/* Calls; *truth is whether the result was true, and for calls with outputs whether
 * there was one. 0, or -1 with an exception set. The lock is held. */
static int call_with(PyObject *call, const struct arguments *given, int *truth) {
    struct views views = { .count = 0 };
    PyObject *arguments = make_arguments(given, &views);
    PyObject *result = arguments == NULL ? NULL : PyObject_Call(call, arguments, NULL);
    Py_XDECREF(arguments);
    if (result != NULL && given->has_outputs) {
        *truth = result != Py_None;
        (void)take_lengths(result, given->outputs, given->output_count);
    } else if (result != NULL) {
        *truth = PyObject_IsTrue(result);
    }
    Py_XDECREF(result);
    return drop_views(&views);
}

int brim_py_call_map(PyObject *call, const brim_call *which, const brim_value *inputs,
                     size_t input_count, int writable, brim_value *outputs, size_t output_count) {
    const struct arguments arguments = { .call = which,
                                         .has_inputs = inputs != NULL,
                                         .writable = writable,
                                         .inputs = inputs,
                                         .input_count = input_count,
                                         .has_outputs = 1,
                                         .outputs = outputs,
                                         .output_count = output_count };
    int truth;
    return call_with(call, &arguments, &truth);
}

int brim_py_call_filter(PyObject *call, const brim_call *which, const brim_value *inputs,
                        size_t input_count) {
    const struct arguments arguments = {
        .call = which, .has_inputs = 1, .inputs = inputs, .input_count = input_count
    };
    int truth = 0;
    return call_with(call, &arguments, &truth) != 0 ? -1 : truth;
}

int brim_py_answer_to_exception(void) {
    return PyErr_ExceptionMatches(PyExc_Exception) ? BRIM_ANSWER_BAD : BRIM_ANSWER_STOP;
}

/* Takes the interpreter's lock, and a reference to a function that a binding has, to be dropped
 * before brim_py_leave(). NULL, without the lock and with `why` filled: there is none any more. */
static PyObject *enter(PyObject *const *function, PyGILState_STATE *state, char *why,
                       size_t why_bytes) {
    if (!brim_py_enter(state)) {
        snprintf(why, why_bytes, "the interpreter is ending");
        return NULL;
    }
    PyObject *own = Py_XNewRef(*function);
    if (own == NULL) {
        snprintf(why, why_bytes,
                 "the function no longer exists: Python's garbage collector has "
                 "cleared it");
        brim_py_leave(*state);
    }
    return own;
}

/* Calls the function of a binding, on any thread without the lock: 1 or 0 for truth, or another
 * brim_answer with `why` filled. */
static int run_here(const BindingObject *binding, const struct arguments *arguments, char *why,
                    size_t why_bytes) {
    PyGILState_STATE state;
    PyObject *call = enter(&binding->function.call, &state, why, why_bytes);
    if (call == NULL) {
        return BRIM_ANSWER_STOP;
    }
    int truth = 0;
    if (call_with(call, arguments, &truth) != 0) {
        truth = brim_py_answer_to_exception();
        const int interrupt = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
        keep(take_exception(), why, why_bytes);
        if (interrupt) {
            PyErr_SetInterrupt(); /* it is the program's, whatever becomes of this sample */
        }
    }
    Py_DECREF(call);
    brim_py_leave(state);
    return truth;
}

/* The same in this process or another. */
static int run(const BindingObject *binding, const struct arguments *arguments, char *why,
               size_t why_bytes) {
    struct processes *const processes = binding->function.processes;
    const struct running here = { .binding = binding, .outer = running };
    running = &here;
    int truth;
    if (processes == NULL) {
        truth = run_here(binding, arguments, why, why_bytes);
    } else if (arguments->has_outputs) {
        truth = brim_py_processes_map(processes, arguments->call, arguments->inputs,
                                      arguments->input_count, arguments->writable,
                                      arguments->outputs, arguments->output_count, why, why_bytes);
    } else {
        truth = brim_py_processes_filter(processes, arguments->call, arguments->inputs,
                                         arguments->input_count, why, why_bytes);
    }
    running = here.outer;
    if (truth >= 0) {
        brim_callback_cause(0); /* of a try in another process that was made again */
    }
    return truth;
}

/* Of a callback that says nothing but whether it is done. */
static int answer_of(int truth) {
    return truth < 0 ? truth : BRIM_ANSWER_DONE;
}

int brim_py_read(void *user, const brim_call *call, brim_value *outputs, size_t output_count,
                 char *why, size_t why_bytes) {
    const struct arguments arguments = {
        .call = call, .has_outputs = 1, .outputs = outputs, .output_count = output_count
    };
    return answer_of(run(user, &arguments, why, why_bytes));
}

int brim_py_map(void *user, const brim_call *call, const brim_value *inputs, size_t input_count,
                brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    const struct arguments arguments = { .call = call,
                                         .has_inputs = 1,
                                         .inputs = inputs,
                                         .input_count = input_count,
                                         .has_outputs = 1,
                                         .outputs = outputs,
                                         .output_count = output_count };
    return answer_of(run(user, &arguments, why, why_bytes));
}

int brim_py_filter(void *user, const brim_call *call, const brim_value *inputs, size_t input_count,
                   char *why, size_t why_bytes) {
    const struct arguments arguments = {
        .call = call, .has_inputs = 1, .inputs = inputs, .input_count = input_count
    };
    return run(user, &arguments, why, why_bytes);
}

int brim_py_flat_map(void *user, const brim_call *call, uint64_t index, const brim_value *inputs,
                     size_t input_count, brim_value *outputs, size_t output_count, char *why,
                     size_t why_bytes) {
    const struct arguments arguments = { .call = call,
                                         .has_index = 1,
                                         .index = index,
                                         .has_inputs = 1,
                                         .inputs = inputs,
                                         .input_count = input_count,
                                         .has_outputs = 1,
                                         .outputs = outputs,
                                         .output_count = output_count };
    return run(user, &arguments, why, why_bytes);
}

int brim_py_batch_map(void *user, const brim_call *call, brim_value *inputs, size_t input_count,
                      brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    const struct arguments arguments = { .call = call,
                                         .has_inputs = 1,
                                         .writable = 1,
                                         .inputs = inputs,
                                         .input_count = input_count,
                                         .has_outputs = 1,
                                         .outputs = outputs,
                                         .output_count = output_count };
    return answer_of(run(user, &arguments, why, why_bytes));
}

int brim_py_pull(void *user, brim_value *outputs, size_t output_count, char *why,
                 size_t why_bytes) {
    const struct arguments arguments = { .has_outputs = 1,
                                         .outputs = outputs,
                                         .output_count = output_count };
    return run(user, &arguments, why, why_bytes);
}

static int reopen_here(const BindingObject *binding, uint64_t epoch, uint64_t sample, char *why,
                       size_t why_bytes) {
    PyGILState_STATE state;
    PyObject *reopen = enter(&binding->function.reopen, &state, why, why_bytes);
    if (reopen == NULL) {
        return BRIM_ANSWER_STOP;
    }
    PyObject *result =
        PyObject_CallFunction(reopen, "KK", (unsigned long long)epoch, (unsigned long long)sample);
    const int failed = result == NULL ? BRIM_ANSWER_BAD : BRIM_ANSWER_DONE;
    if (result == NULL) {
        brim_py_keep_exception(why, why_bytes);
    }
    Py_XDECREF(result);
    Py_DECREF(reopen);
    brim_py_leave(state);
    return failed;
}

int brim_py_reopen(void *user, uint64_t epoch, uint64_t sample, char *why, size_t why_bytes) {
    const struct running here = { .binding = user, .outer = running };
    running = &here;
    const int failed = reopen_here(user, epoch, sample, why, why_bytes);
    running = here.outer;
    return failed;
}
