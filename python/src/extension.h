/*
 * extension.h: the C extension brim._core.
 *
 * It sees brim.h and CPython's limited API of 3.10, so that one build serves 3.10
 * and all later versions. A type is a file:
 *
 *     module.c     the module: its types, functions and constants
 *     errors.c     the family of exceptions, and statuses made into them
 *     pipelines.c  text to text: parsing, adding a stage, the table of stages
 *     runtime.c    Runtime: budget, usage, trim, opening and planning
 *     plan.c       a plan as a dict
 *     loader.h     Loader: delivery.c, epochs.c (iterators, states), caches.c, loader.c
 *     batch.c      Batch: a slot that was lent
 *     array.c      Array: a field, through the buffer protocol and __array_interface__;
 *                  dlpack.c: the same through DLPack; ragged.c: Ragged, a field whose
 *                  rows differ in length
 *     device.c     devices: which there are, the streams of consumers, copies to the host
 *     binding.c    Binding: a Python object that a pipeline names as @name
 *     function.c   calling Python functions from brim's workers
 *     processes.c  the same in worker processes; handover.c: how values get there;
 *                  serve.c: inside such a process
 *     interpreter.c  the interpreter's lock on brim's threads
 *
 * The interpreter lock. A brim call that may wait, take time or run a callback is
 * made without it (BRIM_WITHOUT_LOCK), for brim's workers need it to run Python
 * functions, and some calls wait for workers. Objects here are guarded by it
 * otherwise.
 *
 * What keeps what alive: Array -> Batch -> its slot and the bindings; Loader -> its
 * bindings and its Runtime; Binding -> the function or array. A brim object
 * refers to a Python object only through a Binding.
 */
#ifndef BRIM_PYTHON_EXTENSION_H
#define BRIM_PYTHON_EXTENSION_H

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "buffer.h"
#include <brim.h>

#define BRIM_WITHOUT_LOCK(statement)                        \
    do {                                                    \
        PyThreadState *const thread_ = PyEval_SaveThread(); \
        statement;                                          \
        PyEval_RestoreThread(thread_);                      \
    } while (0)

/* Converters ("O&") to uint64_t and uint32_t that refuse what does not fit: module.c. */
int brim_py_unsigned(PyObject *object, void *number);
int brim_py_unsigned32(PyObject *object, void *number);

/* ------------------------------------------------------------------ errors.c */

/* Error and those below it; made once, for the whole process. */
extern PyObject *brim_py_error;          /* Error(Exception) */
extern PyObject *brim_py_budget_error;   /* BudgetError(Error, MemoryError) */
extern PyObject *brim_py_held_error;     /* HeldError(BudgetError) */
extern PyObject *brim_py_pipeline_error; /* PipelineError(Error, ValueError) */
extern PyObject *brim_py_data_error;     /* DataError(Error) */
extern PyObject
    *brim_py_function_error; /* FunctionError(DataError): a function's exception is its cause */
extern PyObject *brim_py_state_error;     /* StateError(Error, ValueError) */
extern PyObject *brim_py_device_error;    /* DeviceError(Error, RuntimeError) */
extern PyObject *brim_py_iteration_error; /* IterationError(Error, RuntimeError) */
extern PyObject *brim_py_closed_error; /* ClosedError(Error, RuntimeError): closed, or after fork */
extern PyObject *brim_py_hold_warning; /* HoldWarning(UserWarning) */
extern PyObject *brim_py_cache_warning;      /* CacheWarning(UserWarning) */
extern PyObject *brim_py_randomness_warning; /* RandomnessWarning(UserWarning) */
extern PyObject *brim_py_empty_warning;      /* EmptyBatchWarning(UserWarning) */

int brim_py_errors_init(PyObject *module);
/* Raises what a status means, with the thread's last failure. NULL, always. A
 * function's exception that is its cause becomes the exception's. */
PyObject *brim_py_raise(brim_status status);
/* The same of another failure, in these words; and of one that is not the library's. */
PyObject *brim_py_raise_failure(brim_status status, const brim_failure *failure, const char *text);
PyObject *brim_py_raise_text(brim_status status, const char *text);

/* --------------------------------------------------------------- pipelines.c */

PyObject *brim_py_stages(PyObject *module, PyObject *unused);
PyObject *brim_py_parse(PyObject *module, PyObject *args);
PyObject *brim_py_add(PyObject *module, PyObject *args);
PyObject *brim_py_guess(PyObject *module, PyObject *args);

/* ---------------------------------------------------------------- binding.c
 *
 * Binding(name, kind, ...): see binding.c. To the rest it is a brim_binding and the
 * references that keep what it points to alive. */

struct processes; /* processes.c */

/* A Python function as brim's workers call it: function.c. */
struct function {
    PyObject *call;              /* takes its kind's arguments: see function.c */
    PyObject *reopen;            /* of a stream; NULL: it can be read once */
    struct processes *processes; /* NULL: in this process */
};

typedef struct {
    PyObject_HEAD
    brim_binding binding;   /* .user is the object itself */
    PyObject *name;         /* str */
    PyObject *object;       /* of files: a tuple of the paths as bytes; else NULL */
    Py_buffer buffer;       /* of an array; .obj NULL: none is held */
    brim_field_spec *specs; /* what binding.fields points to */
    char (*spec_names)[BRIM_NAME_BYTES];
    const char **paths; /* of files, into `object` */
    int64_t *labels;
    struct function function; /* .call NULL: none, or the collector has broken a cycle */
} BindingObject;

extern PyTypeObject *brim_py_binding_type;
int brim_py_binding_init(PyObject *module);

/* --------------------------------------------------------------- function.c */

/* The callbacks of bindings whose `object` is a Python function; user is the
 * BindingObject. Each takes the interpreter's lock, unless worker processes run
 * the function. */
brim_read_callback brim_py_read;
brim_map_callback brim_py_map;
brim_filter_callback brim_py_filter;
brim_flat_map_callback brim_py_flat_map;
brim_pull_callback brim_py_pull;
brim_reopen_callback brim_py_reopen;
brim_batch_map_callback brim_py_batch_map;

/* Whether a function of one of these bindings is being called on this very thread. */
int brim_py_is_running(PyObject *bindings);

/* Keeps the exception that is set, as the cause of the failure that the callback is about to
 * return (brim_callback_cause), and writes its text into `why`; brim_py_raise finds it again. It
 * is kept for the binding whose function is being called on this thread. The lock is held. */
void brim_py_keep_exception(char *why, size_t why_bytes);
/* The exception that is a failure's cause, which is not kept any longer; or NULL. */
PyObject *brim_py_kept_exception(uint64_t cause);
/* For tp_traverse and tp_clear of the binding that exceptions are kept for. */
int brim_py_visit_exceptions(const BindingObject *owner, visitproc visit, void *arg);
void brim_py_drop_exceptions(const BindingObject *owner);

/* Calls a function of kind map, source (inputs NULL), batch_map (inputs that may be
 * written) or filter on values, sets the lengths of outputs that are not dense, and sees
 * to it that no view of them is kept.
 * 0 (filter: 1 or 0), or -1 with an exception set that holds no frames. The lock is
 * held. */
int brim_py_call_map(PyObject *call, const brim_call *which, const brim_value *inputs,
                     size_t input_count, int writable, brim_value *outputs, size_t output_count);
int brim_py_call_filter(PyObject *call, const brim_call *which, const brim_value *inputs,
                        size_t input_count);

/* The brim_answer of a callback whose function has raised the exception that is set: those that
 * are no Exception (SystemExit, KeyboardInterrupt) say nothing of the sample, and stop the run. */
int brim_py_answer_to_exception(void);

/* ------------------------------------------------------------ interpreter.c */

/* Takes the interpreter's lock on a thread of brim, whose Python thread state is
 * kept from call to call. 0: the interpreter ends, and nothing of it may be called. */
int brim_py_enter(PyGILState_STATE *state);
void brim_py_leave(PyGILState_STATE state);

/* ---------------------------------------------- processes.c (parent), serve.c (child) */

/* Worker processes for one function, `count` at most, started when calls come.
 * `spawn` is a brim._workers.Spawner: called, it starts a process and gives (pid,
 * descriptor of its socket). NULL with an exception set. The lock is held. */
struct processes *brim_py_processes_new(PyObject *spawn, Py_ssize_t count);
/* Stops them, waits until they are gone, and lets go of `spawn`. No call is in
 * progress. The lock is held. */
void brim_py_processes_free(struct processes *pool);
/* Ends all processes, also those whose function hangs: calls in progress and later
 * ones fail. To be called before brim_loader_close, which waits for calls in
 * progress. Any thread, with the lock or without. NULL is legal. */
void brim_py_processes_stop(struct processes *pool);
/* brim_map_callback, brim_read_callback (inputs NULL), brim_batch_map_callback (inputs
 * that may be written) and brim_filter_callback in a worker process. The lock is not
 * held. */
int brim_py_processes_map(struct processes *processes, const brim_call *call,
                          const brim_value *inputs, size_t input_count, int writable,
                          brim_value *outputs, size_t output_count, char *why, size_t why_bytes);
int brim_py_processes_filter(struct processes *processes, const brim_call *call,
                             const brim_value *inputs, size_t input_count, char *why,
                             size_t why_bytes);
/* _core.processes(): a dict for each process that lives, of all functions. */
PyObject *brim_py_processes_list(PyObject *module, PyObject *unused);
/* _core.serve(socket, load, describe): a worker process's whole life. */
PyObject *brim_py_serve(PyObject *module, PyObject *args);

/* ----------------------------------------------------------------- runtime.c */

typedef struct {
    PyObject_HEAD
    brim_runtime *runtime; /* NULL: closed, and no call inside */
    Py_ssize_t users;      /* calls in progress, with the lock or without */
    int closed;            /* the last of them frees it */
} RuntimeObject;

extern PyTypeObject *brim_py_runtime_type;
int brim_py_runtime_init(PyObject *module);

/* ------------------------------------------------------------------- plan.c */

/* What a plan for a device (a brim_device) says, as a dict. copies: for a loader that hands
 * out copies. */
PyObject *brim_py_plan_new(const brim_plan *plan, brim_device device_kind, uint32_t device_index,
                           int copies);

/* ------------------------------------------------------------------ loader.c */

/* What a loader and its batches share; outlives the loader. */
struct lending {
    Py_ssize_t references;
    PyObject *queue;     /* what the loader was opened with, kept alive; NULL: none */
    void *handle;        /* its handle */
    Py_ssize_t lent;     /* slots that the program holds */
    Py_ssize_t copies;   /* copies that it holds */
    Py_ssize_t beyond;   /* of these, in place of slots: see delivery.c */
    brim_loader *loader; /* NULL: closed */
};
void brim_py_lending_unref(struct lending *lending);

extern PyTypeObject *brim_py_loader_type;
int brim_py_loader_init(PyObject *module);
/* A loader that has just been opened; takes it over, also on failure. */
PyObject *brim_py_loader_new(brim_loader *loader, RuntimeObject *runtime, PyObject *bindings,
                             uint32_t hold, int copies);
/* Where it was opened; the queue is kept as long as a batch may need it. */
void brim_py_loader_on_device(PyObject *object, const brim_open_options *options, PyObject *queue);
/* Closes every loader that is still open: brim's workers call nothing in Python
 * afterwards. Called when the interpreter ends. */
void brim_py_loaders_close(void);

/* ------------------------------------------------------------------ batch.c */

typedef struct {
    PyObject_HEAD
    brim_batch *batch;  /* NULL: released */
    PyObject *bindings; /* a tuple: what the batch's memory may refer to */
    struct lending *lending;
    int is_copy;      /* not a slot: charged by itself, and not counted as lent */
    int is_beyond;    /* a copy that the loader handed out in place of a slot */
    Py_ssize_t views; /* Arrays and Raggeds in its memory */
    /* on a device */
    int on_device;
    void *queue;   /* in which work may read it, at first the loader's; NULL: none */
    int looked_at; /* through __cuda_array_interface__ */
} BatchObject;

extern PyTypeObject *brim_py_batch_type;
int brim_py_batch_init(PyObject *module);
/* Takes the batch over, also on failure. */
PyObject *brim_py_batch_new(brim_batch *batch, PyObject *bindings, struct lending *lending,
                            int is_copy);
/* {"format": 1, "state": "...hex"} */
PyObject *brim_py_state_new(const brim_state *state);
int brim_py_state_read(PyObject *object, brim_state *state);

/* -------------------------------------------- array.c, dlpack.c, ragged.c */

typedef struct {
    PyObject_HEAD
    PyObject *owner; /* the Batch, or the memory of a copy */
    void *data;      /* on OpenCL devices a cl_mem */
    uint64_t offset; /* in it: OpenCL */
    brim_device device_kind;
    uint32_t device_index;
    size_t field;  /* on a device: which of the batch's ... */
    uint64_t skip; /* ... and which byte of it is the first */
    brim_dtype dtype;
    int rank;
    int readonly;
    Py_ssize_t shape[BRIM_MAX_RANK], strides[BRIM_MAX_RANK]; /* strides in bytes */
} ArrayObject;

extern PyTypeObject *brim_py_array_type;
int brim_py_array_init(PyObject *module);
/* strides NULL: without gaps. */
PyObject *brim_py_array_new(PyObject *owner, void *data, brim_dtype dtype, int rank,
                            const int64_t *shape, const int64_t *strides, int readonly);
/* Elements of field `number` of a batch, wherever it is, from byte `skip` on. */
PyObject *brim_py_array_of(PyObject *owner, const brim_field *field, size_t number, uint64_t skip,
                           int rank, const int64_t *shape, const int64_t *strides);
PyObject *brim_py_array_numpy(PyObject *object, PyObject *unused);
PyObject *brim_py_array_list(PyObject *object, PyObject *unused);
/* Counts what lies in the memory of an owner that is a Batch. */
void brim_py_count_view(PyObject *owner, Py_ssize_t change);
int brim_py_ragged_init(PyObject *module);
PyObject *brim_py_ragged_new(PyObject *owner, const brim_field *field, size_t number);
/* The buffer protocol's format of a dtype ("f"), NULL if it has none (bfloat16);
 * and a dtype from such a format, 0 if there is none. */
const char *brim_py_format(brim_dtype dtype);
brim_dtype brim_py_dtype_of_format(const char *format);
brim_dtype brim_py_dtype_of_name(const char *name); /* "float32"; 0: unknown */

/* The __cuda_array_interface__ and __array_interface__ "typestr" of a dtype. */
const char *brim_py_type_text(brim_dtype dtype);

/* dlpack.c: methods of Array. */
PyObject *brim_py_dlpack(PyObject *object, PyObject *args, PyObject *keywords);
PyObject *brim_py_dlpack_device(PyObject *self, PyObject *unused);

/* ----------------------------------------------------------------- device.c */

/* _core.devices(kind): those of "cuda" or "opencl"; without a driver an exception. */
PyObject *brim_py_devices(PyObject *module, PyObject *args);
/* "cpu", "cuda:0". */
PyObject *brim_py_device_text(brim_device kind, uint32_t index);
/* 0: it is in host memory; else -1 with an exception that says where it is. */
int brim_py_need_host(brim_device kind, uint32_t index, PyObject *exception);
/* The queue after whose work the batch is released; NULL: none. */
void *brim_py_batch_behind(const BatchObject *batch);
/* Makes the stream of a consumer wait for the batch, which is then released only after what the
 * stream holds. NULL: this thread waits. -1 with an exception. */
int brim_py_batch_await(BatchObject *batch, void *stream);
/* A CUDA stream as consumers name it: 1, 2, a pointer. -1: an exception. */
int brim_py_read_stream(PyObject *object, uintptr_t *stream);
/* A queue of a device of the kind, from None (NULL), int or an object of torch, cupy or
 * pyopencl. -1 with an exception: it is none. */
int brim_py_queue(PyObject *object, brim_device kind, void **queue);
/* The queue after whose work a batch is released that was used in this one. */
void *brim_py_queue_behind(void *queue);
/* A field of a batch in new memory of the host, after `before` bytes: a bytearray. */
PyObject *brim_py_read_field(BatchObject *batch, size_t number, size_t before);
/* An Array in host memory that is a copy of one on a device. */
PyObject *brim_py_array_copy(const ArrayObject *array);
/* What became of an Array's __cuda_array_interface__. */
PyObject *brim_py_cuda_interface(PyObject *object, void *unused);

#endif
