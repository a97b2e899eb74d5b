/*
 * brim.h: the one public header of brim.
 *
 * brim feeds training and evaluation loops from data of any size inside one
 * hard memory budget. A program makes a runtime (the budget and its workers),
 * describes what it wants as a pipeline (text, or stage by stage), opens a
 * loader, and takes batches from it:
 *
 *     brim_runtime *runtime;
 *     brim_loader *loader;
 *     brim_batch *batch;
 *     brim_runtime_new(NULL, &runtime);
 *     brim_loader_open(runtime, pipeline, NULL, &loader);
 *     while (brim_loader_next(loader, BRIM_FOREVER, &batch) == BRIM_OK) {
 *         const brim_field *x = brim_batch_find(batch, "x");
 *         ... use x->data ...
 *         brim_batch_release(batch);
 *     }
 *
 * Conventions that hold for every call:
 *
 * - Every call that can fail returns a brim_status and gives its result
 *   through an out-parameter, which is written only on BRIM_OK.
 * - brim_detail() is the text of the last failure on the calling thread: what
 *   failed, where, how much, and what to change.
 * - A struct that the caller fills begins with `size`; set it with the matching
 *   BRIM_..._INIT macro. Fields added later lie behind it and default to zero.
 *   Structs that the library hands out by pointer may grow at their end.
 * - _free, _close and _release accept NULL.
 * - The library never prints, exits, aborts, installs signal handlers or lets
 *   the environment decide its behaviour.
 * - After fork(), every call in the child on an object of the parent returns
 *   BRIM_STATUS_FORKED; freeing there is harmless and takes no lock.
 *
 * Threads. Different objects may be used from different threads at once. For
 * one object:
 *   runtime, budget   every call from any thread at any time
 *   pipeline, plan    reading from any thread; changing and freeing by one
 *   loader            next, seek, state, restore from one thread at a time;
 *                     interrupt, stats, detail from any thread at any time;
 *                     close from any thread: it interrupts a call in progress
 *                     and waits for it to return, then the handle is gone
 *   batch             reading and releasing from any thread; released once
 *
 * Units: memory in bytes, times in nanoseconds unless the name says otherwise.
 */
#ifndef BRIM_H
#define BRIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_VERSION_MAJOR 0
#define BRIM_VERSION_MINOR 1
#define BRIM_VERSION_PATCH 0

#if defined(BRIM_BUILDING) && defined(__GNUC__)
#define BRIM_API __attribute__((visibility("default")))
#else
#define BRIM_API
#endif

/* ------------------------------------------------------------------ status */

/* X(name in C, number, meaning). Numbers are never reused. */
#define BRIM_STATUSES(X)                                                            \
    X(BRIM_OK, 0, "success")                                                        \
    X(BRIM_STATUS_END, 1, "end of the epoch")                                       \
    X(BRIM_STATUS_TIMEOUT, 2, "timed out")                                          \
    X(BRIM_STATUS_INTERRUPTED, 3, "interrupted")                                    \
    X(BRIM_STATUS_HELD, 4, "too many batches are held")                             \
    X(BRIM_STATUS_INVALID, 5, "invalid argument")                                   \
    X(BRIM_STATUS_SYNTAX, 6, "the pipeline's text is wrong")                        \
    X(BRIM_STATUS_UNBOUND, 7, "a name in the pipeline is not bound")                \
    X(BRIM_STATUS_BUDGET, 8, "does not fit the budget")                             \
    X(BRIM_STATUS_MEMORY, 9, "the system refused memory")                           \
    X(BRIM_STATUS_IO, 10, "the system failed to read or write")                     \
    X(BRIM_STATUS_CORRUPT, 11, "bad data")                                          \
    X(BRIM_STATUS_UNSUPPORTED, 12, "not supported")                                 \
    X(BRIM_STATUS_MISMATCH, 13, "the state belongs to other data or another order") \
    X(BRIM_STATUS_CALLBACK, 14, "a callback failed")                                \
    X(BRIM_STATUS_FORKED, 15, "used after fork in the child")                       \
    X(BRIM_STATUS_THREAD, 16, "the system refused a thread")                        \
    X(BRIM_STATUS_CLOSED, 17, "the loader is closing")                              \
    X(BRIM_STATUS_UNSEEKABLE, 18, "the source cannot seek")                         \
    X(BRIM_STATUS_DRIVER, 19, "the driver of a device failed")

typedef enum brim_status {
#define X(name, number, text) name = number,
    BRIM_STATUSES(X)
#undef X
} brim_status;

/* "BRIM_STATUS_BUDGET", and "does not fit the budget". Never NULL. */
BRIM_API const char *brim_status_name(brim_status status);
BRIM_API const char *brim_status_text(brim_status status);

/* The calling thread's last failure in words; "" before the first. Valid until
 * the next failing call on this thread. */
BRIM_API const char *brim_detail(void);

/* What was refused, in numbers: of the calling thread's last brim_runtime_new,
 * brim_plan_new or brim_loader_open, if that returned BRIM_STATUS_BUDGET; else all 0. */
typedef struct brim_refusal {
    size_t size;
    uint64_t minimum_bytes; /* smallest host limit in which the pipeline opens alone; 0: unknown */
    int exact; /* 0: it was refused before all was known: at least minimum_bytes, perhaps more */
    uint64_t minimum_pinned_bytes; /* the same of page-locked memory and of the device; ... */
    uint64_t minimum_device_bytes; /* ... 0 on the host, and where `exact` is 0 */
    uint64_t others_bytes;         /* what other processes have of a shared budget in which there
                                      was no room for another process */
    int blocked; /* 1: no limit would do: the shared budget is locked by a process that does not
                    go on, damaged, or shared by as many as can be */
} brim_refusal;
#define BRIM_REFUSAL_INIT \
    { .size = sizeof(brim_refusal) }
BRIM_API brim_status brim_refused(brim_refusal *refusal);

/* "0.1.0": the version of the library that is loaded. */
BRIM_API const char *brim_version(void);

/* ------------------------------------------------------------------ dtypes */

/* X(suffix of the name in C, name in pipelines and files, number, bytes of an element).
 * Numbers are never reused. */
#define BRIM_DTYPES(X)       \
    X(BOOL, bool, 1, 1)      \
    X(U8, uint8, 2, 1)       \
    X(I8, int8, 3, 1)        \
    X(U16, uint16, 4, 2)     \
    X(I16, int16, 5, 2)      \
    X(U32, uint32, 6, 4)     \
    X(I32, int32, 7, 4)      \
    X(U64, uint64, 8, 8)     \
    X(I64, int64, 9, 8)      \
    X(F16, float16, 10, 2)   \
    X(BF16, bfloat16, 11, 2) \
    X(F32, float32, 12, 4)   \
    X(F64, float64, 13, 8)   \
    X(C64, complex64, 14, 8) \
    X(C128, complex128, 15, 16)

typedef enum brim_dtype {
#define X(name, text, number, bytes) BRIM_DTYPE_##name = number,
    BRIM_DTYPES(X)
#undef X
} brim_dtype;

BRIM_API const char *brim_dtype_name(brim_dtype dtype); /* "float32" */
BRIM_API size_t brim_dtype_bytes(brim_dtype dtype);     /* 0 if unknown */

#define BRIM_MAX_RANK   8  /* dimensions of a field, with the batch's */
#define BRIM_NAME_BYTES 48 /* longest field or label, with its zero */

/* How the samples of a field differ. Ragged fields differ in their first
 * dimension, up to a bound; text and bytes are ragged uint8. */
typedef enum brim_form {
    BRIM_FORM_DENSE = 0,  /* all have one shape */
    BRIM_FORM_RAGGED = 1, /* so many elements as the sample has */
    BRIM_FORM_TEXT = 2,   /* UTF-8, without a zero at its end */
    BRIM_FORM_BYTES = 3,  /* any bytes */
} brim_form;

/* A count that nobody can tell before the end: of streams, behind filters. */
#define BRIM_UNKNOWN UINT64_MAX

/* ----------------------------------------------------------------- memory */

/* Kinds of memory that a budget counts. Page-locked memory is host memory too, and
 * counts as both. */
typedef enum brim_memory {
    BRIM_MEMORY_HOST = 0,
    BRIM_MEMORY_PINNED = 1, /* page-locked host memory */
    BRIM_MEMORY_DEVICE = 2, /* of the first device; of any: brim_device_memory */
} brim_memory;
#define BRIM_MEMORY_KINDS 18 /* host, page-locked, eight devices with CUDA, eight with OpenCL */

typedef struct brim_budget brim_budget;

/* No limit of its own: only its parents' limits hold. */
#define BRIM_UNLIMITED UINT64_MAX

/* What one budget counts in one kind of memory. */
typedef struct brim_budget_info {
    size_t size;
    char label[BRIM_NAME_BYTES];
    uint64_t limit;    /* most that may be used here, or BRIM_UNLIMITED */
    uint64_t minimum;  /* set aside at the parent, used or not */
    uint64_t charged;  /* taken by brim, its hooks, or the user's charges */
    uint64_t reserved; /* bounds for libraries that cannot be counted */
    uint64_t elastic;  /* the part of charged that gives way when needed */
    uint64_t peak;     /* most of charged + reserved that ever was */
    uint32_t depth;    /* 0 for the runtime's own budget */
} brim_budget_info;
#define BRIM_BUDGET_INFO_INIT \
    { .size = sizeof(brim_budget_info) }

/* A budget below `parent` with a limit (BRIM_UNLIMITED for none) and a minimum
 * that is set aside at once. Freed by brim_budget_free, which returns whatever
 * is still charged to it. A parent may be freed before its children; it goes
 * when the last of them does. */
BRIM_API brim_status brim_budget_new(brim_budget *parent, const char *label, uint64_t limit,
                                     uint64_t minimum, brim_budget **budget);
BRIM_API void brim_budget_free(brim_budget *budget);

/* Changes what a budget allows of a kind of memory, and what is set aside of it at its
 * parent; brim_budget_new does it for host memory. So parts of one device are budgets
 * below one another. Elastic memory gives way to a lower limit or a larger minimum; if
 * more is in use nevertheless, or cannot be set aside, the call is refused with
 * BRIM_STATUS_BUDGET and nothing has changed. The runtime's own budget has no minimum. */
BRIM_API brim_status brim_budget_set(brim_budget *budget, brim_memory kind, uint64_t limit,
                                     uint64_t minimum);

/* Counts memory that the caller is about to take. Elastic memory of loaders
 * gives way first; if that does not suffice the call is refused with
 * BRIM_STATUS_BUDGET, and the detail names the budget that refused and the holders,
 * largest first. Waits only for samples in progress. */
BRIM_API brim_status brim_budget_charge(brim_budget *budget, brim_memory kind, uint64_t bytes);
BRIM_API void brim_budget_uncharge(brim_budget *budget, brim_memory kind, uint64_t bytes);

BRIM_API brim_status brim_budget_read(brim_budget *budget, brim_memory kind,
                                      brim_budget_info *info);

/* Calls `visit` for the budget and all below it, parents first. No brim call
 * may be made from within it; a non-zero return ends the walk. */
typedef int brim_budget_visit(void *user, const brim_budget_info *info);
BRIM_API brim_status brim_budget_walk(brim_budget *budget, brim_memory kind,
                                      brim_budget_visit *visit, void *user);

/* ---------------------------------------------------------------- devices
 *
 * Drivers are looked for at run time, when somebody asks: libOpenCL.so.1 and
 * libcuda.so.1. */

typedef enum brim_device {
    BRIM_DEVICE_HOST = 0,
    BRIM_DEVICE_CUDA = 1,
    BRIM_DEVICE_OPENCL = 2,
} brim_device;
#define BRIM_MOST_DEVICES 8 /* of a kind */

typedef struct brim_device_info {
    size_t size;
    brim_device kind;
    uint32_t index;
    char name[128];         /* "NVIDIA A100", "pthread-haswell-AMD EPYC" */
    char driver[128];       /* what drives it, with its version */
    uint64_t total_bytes;   /* of its memory */
    uint64_t free_bytes;    /* now; BRIM_UNKNOWN: the driver does not tell (OpenCL) */
    uint64_t largest_bytes; /* that it gives at once; BRIM_UNLIMITED: all that is free */
    int unified;            /* 1: its memory is the host's */
    int converts;           /* 1: pixels are copied as uint8 and normalised there */
} brim_device_info;
#define BRIM_DEVICE_INFO_INIT \
    { .size = sizeof(brim_device_info) }

/* How many devices of a kind there are. BRIM_STATUS_UNSUPPORTED: there is no driver, and
 * the detail says what was looked for. */
BRIM_API brim_status brim_device_count(brim_device kind, uint32_t *count);
BRIM_API brim_status brim_device_read(brim_device kind, uint32_t index, brim_device_info *info);
/* "cuda:1", "opencl" (the first), "host" or "cpu". */
BRIM_API brim_status brim_device_parse(const char *text, brim_device *kind, uint32_t *index);
BRIM_API const char *brim_device_name(brim_device kind); /* "cuda"; NULL: no such kind */
/* Which kind of memory a budget counts its memory as. */
BRIM_API brim_memory brim_device_memory(brim_device kind, uint32_t index);

/* ---------------------------------------------------------------- runtime */

typedef struct brim_runtime brim_runtime;

#define BRIM_THREADS_AUTO (-1) /* the CPUs of this process: affinity and cgroup quota */

typedef struct brim_runtime_options {
    size_t size;
    uint64_t host_bytes;   /* 0: a quarter of what is free, see host_origin; or all of a shared
                              budget */
    uint64_t pinned_bytes; /* page-locked, which is part of host_bytes; 0: all of these */
    uint64_t device_bytes; /* of each device; 0: a quarter of what is free there when it is first
                              used */
    int32_t threads; /* BRIM_THREADS_AUTO, 0 (the caller's thread does the work), or a number */
    const char *index_dir; /* directory of indexes and listings; NULL: .cache/brim in the user's
                              home, which the system's user database names */
    /* A budget that processes of this machine and user share, by its name (1 to 64 letters,
     * digits, '-', '_' and '.'); NULL: none. What they take of each kind of memory is never
     * more in all than the limits that the first of them gave: shared_bytes, and pinned_bytes
     * and device_bytes where given. Others give the same, or 0. */
    const char *shared_name;
    uint64_t shared_bytes; /* of host memory, in all processes together */
    /* 0: an index, a listing or a cache file that another user owns (root aside), or that its
     * group or others may write, counts as absent. 1: it is used as if it were the user's own:
     * for teams that share an index directory and trust each other. */
    int trust_foreign;
} brim_runtime_options;
#define BRIM_RUNTIME_OPTIONS_INIT \
    { .size = sizeof(brim_runtime_options), .threads = BRIM_THREADS_AUTO }

/* Charged, reserved and what lies outside, in one look. */
typedef struct brim_usage {
    size_t size;
    uint64_t limit;    /* host bytes */
    uint64_t charged;  /* now: what brim mapped, or took through hooks */
    uint64_t reserved; /* now: bounds for libraries without hooks */
    uint64_t elastic;  /* the part of charged that trim would return */
    uint64_t peak;     /* most of charged + reserved so far */
    uint64_t rss;      /* resident memory of the whole process */
    uint64_t peak_rss;
    uint64_t outside;      /* rss less charged: code, libc, interpreters, page maps; 0 if less */
    uint32_t threads;      /* workers running */
    uint32_t loaders;      /* loaders open */
    char host_origin[160]; /* how the limit came about, in words */
    /* of the budget that processes share; all 0: there is none */
    uint64_t shared_limit;
    uint64_t shared_used; /* by all of them, their minimums among it */
    uint32_t processes;   /* this one among them */
} brim_usage;
#define BRIM_USAGE_INIT \
    { .size = sizeof(brim_usage) }

/* options may be NULL. Usually one runtime for a process. Destroyed by
 * brim_runtime_free; loaders and batches that are left keep what they need. */
BRIM_API brim_status brim_runtime_new(const brim_runtime_options *options, brim_runtime **runtime);
BRIM_API void brim_runtime_free(brim_runtime *runtime);

/* The runtime's own budget, borrowed: valid as long as the runtime. */
BRIM_API brim_budget *brim_runtime_budget(brim_runtime *runtime);
BRIM_API brim_status brim_runtime_usage(brim_runtime *runtime, brim_usage *usage);

/* Gives everything elastic back to the system; *bytes (may be NULL) says how
 * much. What pays grows again when batches are asked for. */
BRIM_API brim_status brim_runtime_trim(brim_runtime *runtime, uint64_t *bytes);

/* For interpreters whose programs may hold pointers that they should not: from
 * now on pages that brim gives back, in all runtimes of the process, stay mapped
 * as empty pages, which read as zeros and cost no memory; only addresses are
 * used up. */
BRIM_API void brim_keep_addresses(void);

/* --------------------------------------------------------------- pipeline */

typedef struct brim_pipeline brim_pipeline;

/* One argument of a stage, for building without text. */
typedef enum brim_argument_kind {
    BRIM_ARGUMENT_TEXT = 0, /* words, paths, choices, @names: as in text, unquoted */
    BRIM_ARGUMENT_INTEGER = 1,
    BRIM_ARGUMENT_REAL = 2,
    BRIM_ARGUMENT_PIPELINE = 3,
} brim_argument_kind;

typedef struct brim_argument {
    size_t size;
    const char *key; /* NULL: positional */
    brim_argument_kind kind;
    const char *text;
    int64_t integer;
    double real;
    const brim_pipeline *pipeline; /* copied */
} brim_argument;
#define BRIM_ARGUMENT_INIT \
    { .size = sizeof(brim_argument) }

/* "npy x.npy | shuffle seed=7 | batch 64". */
BRIM_API brim_status brim_pipeline_parse(const char *text, brim_pipeline **pipeline);
/* An empty pipeline, and one stage more at its end. A list value is given by
 * repeating its key. The array's elements lie arguments->size bytes apart. */
BRIM_API brim_status brim_pipeline_new(brim_pipeline **pipeline);
BRIM_API brim_status brim_pipeline_add(brim_pipeline *pipeline, const char *stage,
                                       const brim_argument *arguments, size_t count);
BRIM_API brim_status brim_pipeline_copy(const brim_pipeline *pipeline, brim_pipeline **copy);
BRIM_API void brim_pipeline_free(brim_pipeline *pipeline);
/* How many stages it has, those in parentheses not counted; the name of each
 * (NULL past the end); and the pipeline without all but its first `count`. */
BRIM_API size_t brim_pipeline_count(const brim_pipeline *pipeline);
BRIM_API const char *brim_pipeline_stage_at(const brim_pipeline *pipeline, size_t index);
BRIM_API brim_status brim_pipeline_cut(brim_pipeline *pipeline, size_t count);
/* The pipeline as text that parses to the same pipeline; owned by it, valid
 * until it is changed or freed. NULL when memory for it was refused. */
BRIM_API const char *brim_pipeline_text(const brim_pipeline *pipeline);

/* ---------------------------------------------------------------- bindings
 *
 * Arrays and functions of the caller appear in a pipeline as @name and are
 * bound when it is planned or opened. What they point to must stay valid until
 * the loader is closed and its last batch released; the structs themselves are
 * copied. */

/* One field of a sample as callbacks see it. */
typedef struct brim_value {
    const char *name;
    brim_dtype dtype;
    uint32_t rank;
    int64_t shape[BRIM_MAX_RANK];
    void *data; /* contiguous, row-major; inputs aligned to 64 bytes, outputs to their element */
    uint64_t bytes;
    /* not dense: shape[0] and bytes of an input are this sample's; of an output
     * they are the bound, and the callback sets shape[0] to what it wrote */
    brim_form form;
} brim_value;

/* What a callback promises to put out. */
typedef struct brim_field_spec {
    size_t size;
    const char *name;
    brim_dtype dtype;
    uint32_t rank;
    int64_t shape[BRIM_MAX_RANK];
    uint64_t largest_bytes; /* bound for one sample; 0: what the shape says */
    brim_form form;         /* not dense: shape[0] is the bound */
} brim_field_spec;
#define BRIM_FIELD_SPEC_INIT \
    { .size = sizeof(brim_field_spec) }

/* Pages that other processes can map, where a loader was opened with `shared`. */
typedef struct brim_region {
    void *memory; /* NULL: none */
    uint64_t bytes;
    uint64_t number; /* of these pages alone, in this process for ever */
    int file;        /* a memory file of just these pages; the library's, not to be closed */
} brim_region;

/* Which sample a callback is making. */
typedef struct brim_call {
    size_t size;
    uint64_t sample; /* its number in the source; of a batch: see brim_batch_map_callback */
    uint64_t epoch;  /* of the source: repeat and mix count their passes here */
    uint64_t key;    /* from the stage's seed, its place and the branch of a mix */
    /* opened with `shared`: values of this call lie in the batch's pages, in the
     * scratch's, or elsewhere (records in the caller's memory); else both are none */
    brim_region batch, scratch;
} brim_call;

/* Random numbers for callbacks: the same for (call, draw) on any thread. */
BRIM_API uint32_t brim_call_random(const brim_call *call, uint32_t draw);

#define BRIM_CALLBACK_PURE 1u /* same input, same output: may be cached and made again */
#define BRIM_CALLBACK_CONCURRENT \
    2u                          /* may run on several threads at once; else calls are serialised */
#define BRIM_CALLBACK_PROBED 4u /* the fields were found by trying: the plan says so */
#define BRIM_CALLBACK_RANDOM 8u /* depends on the epoch or on random numbers: not to be cached */

/* Returns 0, or non-zero for a bad sample (see on_error); `why` (of
 * why_bytes) may be filled with the reason. Calls of a function that is not
 * declared BRIM_CALLBACK_CONCURRENT are serialised by a lock of its own; no other lock
 * is held. A callback may use brim, but not close its own loader or take from
 * it; an interrupt does not cut it short. */
typedef int brim_read_callback(void *user, const brim_call *call, brim_value *outputs,
                               size_t output_count, char *why, size_t why_bytes);
typedef int brim_map_callback(void *user, const brim_call *call, const brim_value *inputs,
                              size_t input_count, brim_value *outputs, size_t output_count,
                              char *why, size_t why_bytes);

/* 1: keep the sample, 0: leave it out, negative: a bad sample. */
typedef int brim_filter_callback(void *user, const brim_call *call, const brim_value *inputs,
                                 size_t input_count, char *why, size_t why_bytes);
/* Makes sample `index` (0, 1, ...) of those that one sample becomes. 1: made,
 * 0: there are no more, negative: a bad sample. */
typedef int brim_flat_map_callback(void *user, const brim_call *call, uint64_t index,
                                   const brim_value *inputs, size_t input_count,
                                   brim_value *outputs, size_t output_count, char *why,
                                   size_t why_bytes);
/* The next sample of a stream. 1: given, 0: the stream has ended, negative: a
 * bad sample, behind which the stream goes on. Called by one thread at a time,
 * in order. */
typedef int brim_pull_callback(void *user, brim_value *outputs, size_t output_count, char *why,
                               size_t why_bytes);
/* Makes `sample` of `epoch` the one that is pulled next. 0, or non-zero for a
 * failure. */
typedef int brim_reopen_callback(void *user, uint64_t epoch, uint64_t sample, char *why,
                                 size_t why_bytes);

/* A whole batch, when its last row is made and before anybody sees it. Values are
 * its dense fields, the batch's dimension first, with the valid rows alone. They
 * are changed in place if the binding declares no fields; else the callback fills
 * the outputs, which take the place of all fields, and have as many rows.
 * call->sample is the batch's number: the position of its first row. Not called for
 * a batch without valid rows. Returns 0, or non-zero if the batch is bad, which
 * on_error does not skip. */
typedef int brim_batch_map_callback(void *user, const brim_call *call, brim_value *inputs,
                                    size_t input_count, brim_value *outputs, size_t output_count,
                                    char *why, size_t why_bytes);

typedef enum brim_binding_kind {
    BRIM_BINDING_ARRAY = 0,     /* array @name */
    BRIM_BINDING_SOURCE = 1,    /* callback @name: samples by number */
    BRIM_BINDING_MAP = 2,       /* map @name */
    BRIM_BINDING_STREAM = 3,    /* stream @name: samples one after the other */
    BRIM_BINDING_FILTER = 4,    /* filter by=@name */
    BRIM_BINDING_FLAT_MAP = 5,  /* flat_map @name: many samples from one */
    BRIM_BINDING_FILES = 6,     /* files list=@name: paths of files */
    BRIM_BINDING_BATCH_MAP = 7, /* batch_map @name: whole batches */
} brim_binding_kind;

typedef struct brim_binding {
    size_t size;
    const char *name; /* without the @ */
    brim_binding_kind kind;
    void *user;
    /* array: the first dimension counts the samples; strides in bytes, or all
     * zero for row-major */
    const void *data;
    brim_dtype dtype;
    uint32_t rank;
    int64_t shape[BRIM_MAX_RANK];
    int64_t strides[BRIM_MAX_RANK];
    /* callbacks: what they put out (a map callback's fields replace all of the
     * sample's), and how they may be called */
    uint64_t count; /* samples of a source; most that flat_map makes of one; paths of files */
    const brim_field_spec *fields; /* elements lie fields->size bytes apart */
    size_t field_count;
    uint32_t
        flags; /* BRIM_CALLBACK_PURE, BRIM_CALLBACK_CONCURRENT, BRIM_CALLBACK_PROBED, BRIM_CALLBACK_RANDOM */
    brim_read_callback *read;
    brim_map_callback *map;
    brim_filter_callback *filter;
    brim_flat_map_callback *flat_map;
    brim_pull_callback *pull;
    brim_reopen_callback *reopen; /* of a stream; NULL: it can be read only once */
    /* files: `count` paths, and a label for each or NULL */
    const char *const *paths;
    const int64_t *labels;
    brim_batch_map_callback *batch_map; /* its fields have no batch dimension */
} brim_binding;
#define BRIM_BINDING_INIT \
    { .size = sizeof(brim_binding) }

/* -------------------------------------------------------- plan and opening */

typedef enum brim_growth {
    BRIM_GROWTH_ON_DEMAND = 0, /* start at the minimum, take more when it pays */
    BRIM_GROWTH_FIXED = 1,     /* take all that is planned when opening, as far as it is free */
} brim_growth;

/* Told while planning or opening does long work, such as building an index:
 * what it is doing, and how far it is, in bytes; where it lists or looks at
 * files, in files, with a total of 0 while that is not known. Non-zero: give up,
 * and the call returns BRIM_STATUS_INTERRUPTED. Called on the thread of that call, at
 * most some times a second. */
typedef int brim_progress_callback(void *user, const char *what, uint64_t done, uint64_t total);

/* Asked by `next`, on its thread, at most 50 times a second while it makes samples or waits for
 * them: non-zero ends the call as brim_loader_interrupt does. For programs whose signal handlers
 * set a flag. It may not use the loader. */
typedef int brim_interrupted_callback(void *user);

typedef struct brim_open_options {
    size_t size;
    brim_budget *budget;     /* NULL: the runtime's; else one of its descendants */
    const char *label;       /* names the loader in usage and refusals; NULL: "loader N" */
    uint32_t rank;           /* this is shard `rank` ... */
    uint32_t world;          /* ... of `world`; 0 counts as 1 */
    uint32_t hold;           /* batches lent at a time, with the next one; 0 counts as 1 */
    int32_t threads;         /* at most this many workers; BRIM_THREADS_AUTO: the runtime's */
    uint32_t slots;          /* most slots; 0: as planned */
    brim_growth growth;      /* of host, page-locked and device memory */
    brim_device device_kind; /* where batches are delivered */
    uint32_t device_index;
    const brim_binding *bindings; /* elements lie bindings->size bytes apart */
    size_t binding_count;
    brim_progress_callback *progress; /* NULL: none */
    void *progress_user;
    int shared; /* 1: batches and scratch lie in memory files, for callbacks that have other
                   processes do their work; see brim_call */
    /* The queue in which batches are used: a cl_command_queue, or a CUstream (1: the legacy
     * default stream, 2: the thread's). `next` makes it wait for a batch, and releasing a batch
     * waits for what is in it. NULL: none, see brim_batch_wait and brim_batch_release_after. */
    void *device_queue;
    brim_interrupted_callback *interrupted; /* NULL: none */
    void *interrupted_user;
    uint32_t beyond; /* batches lent above `hold`, each in a slot above the minimum, which is
                        charged firmly from the call of `next` for it until it is released;
                        like copies, these come on top of planned_bytes */
} brim_open_options;
#define BRIM_OPEN_OPTIONS_INIT \
    { .size = sizeof(brim_open_options), .threads = BRIM_THREADS_AUTO }

typedef struct brim_plan brim_plan;

typedef struct brim_plan_info {
    int fits;               /* 0: `reason` says why not */
    uint64_t minimum_bytes; /* smallest host limit in which it opens alone */
    uint64_t planned_bytes; /* what it will use at most; charged never exceeds it */
    uint64_t limit_bytes;   /* what it was fitted into */
    uint64_t slot_bytes;
    uint64_t scratch_bytes; /* for each thread */
    uint64_t stack_bytes;   /* of each worker, with thread-local storage */
    uint64_t fixed_bytes;   /* tables, indexes, what is unpacked, and the loader itself */
    uint32_t threads;       /* workers; 0: the caller's thread */
    uint32_t slots;
    uint32_t minimum_slots; /* max(2, hold); on a device 2 */
    uint32_t hold;
    uint64_t samples;    /* in an epoch, over all ranks; or BRIM_UNKNOWN, as the next two */
    uint64_t batches;    /* that one rank receives in an epoch, micro-batches counted one by one */
    uint64_t steps;      /* batches, counting all micro-batches of one as one */
    uint64_t batch_rows; /* most rows in what next returns */
    uint64_t data_fingerprint;
    uint64_t sample_fingerprint;
    uint64_t order_fingerprint;
    uint32_t field_count;
    uint32_t stage_count;
    const char *reason;       /* why it does not fit; "" if it does */
    const char *limit_origin; /* how the limit came about */
    int sequenced;            /* 1: samples are placed one after the other */
    uint64_t window_bytes;    /* sequenced: samples on their way, and shuffle buffers */
    uint32_t index_count;     /* indexes of files, see brim_plan_index_at */
    /* delivered on a device; all 0 on the host. `slots` are then those that are filled in
     * page-locked memory and copied from there. */
    uint64_t device_slot_bytes;
    uint32_t device_slots;         /* planned */
    uint32_t minimum_device_slots; /* max(2, hold) */
    uint64_t device_fixed_bytes;   /* what is converted there goes through this */
    uint64_t minimum_device_bytes; /* smallest limit of the device in which it opens alone */
    uint64_t planned_device_bytes;
    uint64_t minimum_pinned_bytes;
    uint64_t planned_pinned_bytes;
} brim_plan_info;

typedef struct brim_plan_field {
    const char *name;
    brim_dtype dtype;
    uint32_t rank;                /* with the batch's dimension first */
    int64_t shape[BRIM_MAX_RANK]; /* ragged: shape[1] is the bound */
    uint64_t bytes;               /* of a full batch */
    brim_form form;
    int converted; /* 1: copied to the device as uint8, and made what it is there */
} brim_plan_field;

typedef struct brim_plan_stage {
    const char *name;
    const char *text;      /* with defaults spelled out */
    const char *effect;    /* what it puts out, in words: "60000 samples", "x float32 3x32x32" */
    uint64_t bytes;        /* bound on what it needs, in all threads of the minimum */
    uint64_t samples;      /* after it; 0 if it does not change the count */
    int fused;             /* 1: done in one pass with the stage before it */
    int cacheable;         /* 1: a cache may stand right behind it */
    uint64_t sample_bytes; /* then: what such a cache would keep of a sample, at most */
} brim_plan_stage;

/* The index of one file: where its records lie. */
typedef struct brim_plan_index {
    const char *path;       /* of the index */
    const char *data_path;  /* of the file */
    uint64_t records;       /* in it */
    uint64_t largest_bytes; /* the longest record's */
    uint64_t data_bytes;    /* the file's */
    uint64_t bytes;         /* the index's */
    int made;               /* 1: made for this plan; 0: it was there, and fresh */
    const char *note;       /* what was found in its place and not used, because other users could
                               have written it; "": nothing to tell */
} brim_plan_index;

/* Fits a pipeline into what a runtime (and options->budget) has free. Indexes
 * that are missing are made; samples are read only for types and labels, and what
 * is compressed is counted, not unpacked (but for labels). A pipeline that does not
 * fit still gives a plan, whose info says why; BRIM_STATUS_BUDGET only if the plan itself
 * does not fit. A plan holds its tables (some dozen KiB) in the budget until
 * brim_plan_free. */
BRIM_API brim_status brim_plan_new(brim_runtime *runtime, const brim_pipeline *pipeline,
                                   const brim_open_options *options, brim_plan **plan);
BRIM_API void brim_plan_free(brim_plan *plan);
/* Owned by the plan. Index out of range: NULL. */
BRIM_API const brim_plan_info *brim_plan_get(const brim_plan *plan);
BRIM_API const brim_plan_field *brim_plan_field_at(const brim_plan *plan, size_t index);
BRIM_API const brim_plan_stage *brim_plan_stage_at(const brim_plan *plan, size_t index);
BRIM_API const brim_plan_index *brim_plan_index_at(const brim_plan *plan, size_t index);
/* Reads all indexes of the plan and compares their checksums. BRIM_STATUS_CORRUPT names
 * the first that is damaged. */
BRIM_API brim_status brim_plan_verify(const brim_plan *plan);
/* The names that a source gives the labels 0, 1, ... of a field, such as those of a
 * folder's classes: how many, and each, owned by the plan. 0 and NULL: none. */
BRIM_API size_t brim_plan_class_count(const brim_plan *plan, const char *field);
BRIM_API const char *brim_plan_class_name(const brim_plan *plan, const char *field, size_t index);

/* What a sample is called, by the number that batches give it: the path of its
 * file, or "x.npy, sample 17". */
BRIM_API brim_status brim_plan_sample_name(const brim_plan *plan, uint64_t sample, char *text,
                                           size_t text_bytes);

/* ----------------------------------------------------------------- loader */

typedef struct brim_loader brim_loader;
typedef struct brim_batch brim_batch;

/* Reserves the pipeline's minimum, unpacks what is compressed into it, and starts;
 * BRIM_STATUS_BUDGET if that does not fit: brim_refused says what would.
 * options may be NULL. Destroyed by brim_loader_close; batches that are still
 * lent stay valid and charged until released. */
BRIM_API brim_status brim_loader_open(brim_runtime *runtime, const brim_pipeline *pipeline,
                                      const brim_open_options *options, brim_loader **loader);
BRIM_API void brim_loader_close(brim_loader *loader);

/* The next batch, waiting at most timeout_ns (BRIM_FOREVER; 0: do not wait).
 * BRIM_STATUS_END once at the end of each epoch; the call after it begins the next.
 * BRIM_STATUS_HELD when `hold` batches are lent, and `beyond` above them or as many as fit
 * the budget. After a failure the same batch is made again by the next call; seek goes
 * elsewhere.
 *
 * With on_error=skip all samples of a batch may be bad. Where the batch is a
 * whole step of the only rank it is passed over: no batch comes with its step's
 * number, and an epoch of such batches alone is BRIM_STATUS_END at once. With several
 * ranks, which must take equally many steps, and where a step has several
 * micro-batches, it is delivered: valid_rows is 0 and skipped is not, and
 * brim_stats.warning says so. brim_stats.empty counts both. */
#define BRIM_FOREVER (-1)
BRIM_API brim_status brim_loader_next(brim_loader *loader, int64_t timeout_ns, brim_batch **batch);

/* Goes to a step of an epoch; the step just past the last is the end. Where
 * samples are placed one after the other, the batches before it are made and
 * thrown away, and a step that there is not shows in `next`. BRIM_STATUS_UNSEEKABLE for a
 * stream without reopen. */
BRIM_API brim_status brim_loader_seek(brim_loader *loader, uint64_t epoch, uint64_t step);

/* Makes a `next` that waits, or else the next one, return BRIM_STATUS_INTERRUPTED. One that makes
 * samples itself leaves an image that it decodes, within a fraction of a second; the batch is
 * made by the next call, with the same bytes. A callback is not cut short. */
BRIM_API brim_status brim_loader_interrupt(brim_loader *loader);

/* The plan that the loader runs; owned by the loader. */
BRIM_API const brim_plan *brim_loader_plan(const brim_loader *loader);

/* Copies the text of the loader's last failure. */
BRIM_API void brim_loader_detail(brim_loader *loader, char *text, size_t text_bytes);

/* Where a loader stands: everything after the batches delivered so far. Plain
 * bytes, the same on every machine; they may be stored as they are. */
#define BRIM_STATE_BYTES 128
typedef struct brim_state {
    unsigned char bytes[BRIM_STATE_BYTES];
} brim_state;
BRIM_API brim_status brim_loader_state(brim_loader *loader, brim_state *state);
/* Goes on from a state, also one that another number of ranks has written.
 * BRIM_STATUS_MISMATCH if the data or the order differ. Under another batch or world
 * a state from inside a step restarts that step. */
BRIM_API brim_status brim_loader_restore(brim_loader *loader, const brim_state *state);

typedef struct brim_stats {
    size_t size;
    uint64_t epoch;   /* of the next batch */
    uint64_t samples; /* delivered since opening */
    uint64_t batches;
    uint64_t bytes;          /* of all fields delivered */
    uint64_t read_bytes;     /* asked of files */
    uint64_t skipped;        /* bad samples left out (on_error=skip) */
    uint64_t replaced;       /* bad samples replaced (on_error=replace) */
    uint64_t waited_ns;      /* time that next spent waiting or making rows */
    uint64_t opening_ns;     /* time that opening took */
    uint64_t first_batch_ns; /* from opening's begin to the first batch; 0 before it */
    uint32_t threads;        /* workers running for this runtime */
    uint32_t slots;          /* mapped now */
    uint32_t lent;
    uint32_t revoked; /* times that memory was taken from it */
    uint32_t stage_count;
    uint32_t error_count; /* texts kept: the last few */
    int ended;       /* 1: `epoch` is known to have no more batches: next returns BRIM_STATUS_END */
    uint64_t errors; /* texts met so far, those made ahead among them */
    uint32_t cache_count;  /* caches of the pipeline, see brim_loader_cache_stats */
    uint32_t device_slots; /* with memory now */
    uint64_t copied_bytes; /* from the host to the device */
    uint64_t empty;        /* batches of bad samples alone, passed over or delivered */
    char warning[256];     /* of those that were delivered; "": there were none */
} brim_stats;
#define BRIM_STATS_INIT \
    { .size = sizeof(brim_stats) }
BRIM_API brim_status brim_loader_stats(brim_loader *loader, brim_stats *stats);

typedef struct brim_stage_stats {
    size_t size;
    const char *name;
    uint64_t samples; /* rows made so far, by all parts of a mix together, without those that a
                         cache behind it had */
    uint64_t ns;      /* spent in it, over all threads, estimated from timed runs */
} brim_stage_stats;
#define BRIM_STAGE_STATS_INIT \
    { .size = sizeof(brim_stage_stats) }
BRIM_API brim_status brim_loader_stage_stats(brim_loader *loader, size_t stage,
                                             brim_stage_stats *stats);
/* One cache of the pipeline. */
typedef struct brim_cache_stats {
    size_t size;
    const char *tier;  /* "memory", "file" or "device" */
    uint32_t stage;    /* its place among the plan's stages */
    int fills;         /* 0: only read, or turned off: `warning` says why */
    uint64_t samples;  /* that may be in it */
    uint64_t filled;   /* that are, or are on their way */
    uint64_t bytes;    /* of memory or of the disk that it takes now */
    uint64_t hits;     /* samples taken from it since opening, and ... */
    uint64_t misses;   /* ... those that had to be made */
    uint64_t stored;   /* put in since opening */
    uint64_t dropped;  /* made, and not kept for want of room or time */
    uint64_t damaged;  /* found torn or forged, and made again */
    uint64_t changed;  /* of data that have changed since, and made again (verify=hit, content) */
    char warning[256]; /* "": all is well */
    char note[256]; /* what was found when it was opened: "begun anew: ..."; "": nothing to tell */
} brim_cache_stats;
#define BRIM_CACHE_STATS_INIT \
    { .size = sizeof(brim_cache_stats) }
BRIM_API brim_status brim_loader_cache_stats(brim_loader *loader, size_t index,
                                             brim_cache_stats *stats);
/* Copies the text of a recent bad sample; 0 is the latest. Workers may meet another
 * one between two calls: then stats.errors differs, and the numbers have moved on. */
BRIM_API brim_status brim_loader_error(brim_loader *loader, size_t index, char *text,
                                       size_t text_bytes);

/* ------------------------------------------------------------ cache files
 *
 * What `cache file=` keeps, looked at from outside. A file that is no cache is
 * refused with BRIM_STATUS_INVALID. */

typedef struct brim_cache_info {
    size_t size;
    int usable;       /* 0: of another format or byte order, or its header is damaged: a loader
                    begins it anew; the numbers below may then be 0 */
    int in_use;       /* 1: a process fills it at this moment */
    uint64_t samples; /* that may be in it */
    uint64_t filled;  /* that seem to be: brim_cache_verify looks closer */
    uint64_t bytes;   /* on the disk */
    uint64_t limit;   /* bytes that it may take; BRIM_UNLIMITED */
    uint64_t data_fingerprint, sample_fingerprint;
    int64_t created_ns, used_ns; /* since 1970; used: last opened or filled */
    const char *verify;          /* "open", "hit", "never" or "content" */
    char pipeline[1024];         /* the stages before it, perhaps cut */
} brim_cache_info;
#define BRIM_CACHE_INFO_INIT \
    { .size = sizeof(brim_cache_info) }
BRIM_API brim_status brim_cache_inspect(const char *path, brim_cache_info *info);
/* Reads all entries: how many are whole, and how many are not. `progress` as of
 * opening, in entries. The file is not changed. */
BRIM_API brim_status brim_cache_verify(const char *path, brim_progress_callback *progress,
                                       void *progress_user, uint64_t *good, uint64_t *bad);
/* Deletes one that no process fills (else BRIM_STATUS_HELD). Who reads it goes on with what it
 * has open. */
BRIM_API brim_status brim_cache_remove(const char *path);

/* ------------------------------------------------------------------ batch */

typedef struct brim_field {
    const char *name;
    brim_dtype dtype;
    uint32_t rank; /* the batch's dimension first */
    int64_t shape[BRIM_MAX_RANK];
    int64_t strides[BRIM_MAX_RANK]; /* in bytes */
    void *data; /* writable until released; aligned to 64 bytes; OpenCL: a cl_mem */
    uint64_t bytes;
    brim_device device_kind; /* where `data` is */
    uint32_t device_index;
    void *ready; /* a cl_event or CUevent after which it is there; NULL on the host */
    brim_form form;
    /* not dense: the rows lie one behind the other, row r from offsets[r] to
     * offsets[r + 1], counted in the first dimension; shape[1] is -1 and
     * strides[0] 0. NULL when dense. */
    const int64_t *offsets; /* in host memory */
    uint64_t offset;        /* OpenCL: where the field begins in `data`, in bytes */
} brim_field;

typedef struct brim_batch_info {
    uint64_t epoch;
    uint64_t step;  /* number of the batch in the epoch */
    uint32_t micro; /* which of the step's micro-batches */
    uint32_t micro_count;
    uint64_t rows;           /* of the first dimension, padded rows among them */
    uint64_t valid_rows;     /* 0: all samples were bad (see brim_loader_next), or none were due */
    uint64_t skipped;        /* bad samples left out of it */
    uint64_t step_rows;      /* valid rows planned for the step at this rank ... */
    uint64_t global_rows;    /* ... and over all ranks */
    uint64_t first_position; /* of its first row, in the epoch's global order; bucket: 0 */
    const uint64_t *samples; /* the sample's number, for each row; UINT64_MAX where padded */
    const uint8_t *valid;    /* 1 or 0 for each row */
    uint32_t field_count;
} brim_batch_info;

/* Owned by the batch, valid until it is released. Not found: NULL. */
BRIM_API const brim_batch_info *brim_batch_get(const brim_batch *batch);
BRIM_API const brim_field *brim_batch_field_at(const brim_batch *batch, size_t index);
BRIM_API const brim_field *brim_batch_find(const brim_batch *batch, const char *name);
/* Where a loader would stand that had delivered this batch and no more. */
BRIM_API brim_status brim_batch_state(const brim_batch *batch, brim_state *state);
/* A copy, charged to the loader's budget, that does not count as held. */
BRIM_API brim_status brim_batch_copy(const brim_batch *batch, brim_batch **copy);
BRIM_API void brim_batch_release(brim_batch *batch);

/* On a device. What is put into `queue` after this call sees the batch; NULL: the
 * call itself waits until it is there. On the host nothing needs to wait. */
BRIM_API brim_status brim_batch_wait(const brim_batch *batch, void *queue);
/* Releases a batch that work in `queue` may still read: its memory is used again, or
 * given back, only after all that the queue holds now. NULL: nothing reads it any more.
 * brim_batch_release does so with the queue that the loader was opened with. For a copy,
 * and after brim_loader_close, the call itself waits for that work. OpenCL: the queue is
 * of the context that the batches are in, which is that of the loader's device_queue. */
BRIM_API void brim_batch_release_after(brim_batch *batch, void *queue);
/* Copies a field to host memory, which has room for field->bytes, and waits for it. */
BRIM_API brim_status brim_batch_read(const brim_batch *batch, size_t field, void *data,
                                     uint64_t bytes);

/* ---------------------------------------------------------------- outputs
 *
 * A file that appears under its name only when it is complete: a reader finds the old
 * file or the whole new one. Until then it is PATH.PID-N.tmp, in the same directory. A
 * process that was killed leaves such a file behind; it is removed when PATH is written
 * again, an hour later or more. */

typedef struct brim_output brim_output;

/* Made with the rights that the process's umask leaves. Of a link, the file that it
 * leads to is replaced; a link of another user, who may have planted it, is refused. Ended by
 * one of brim_output_commit and brim_output_free. */
BRIM_API brim_status brim_output_new(const char *path, brim_output **output);
/* The descriptor to write to; the library's, not to be closed. */
BRIM_API int brim_output_file(const brim_output *output);
/* Puts it in its place, on the disk. After a failure what was there before is there still,
 * but for the last step: where only the directory cannot be synced ("cannot be entered on the
 * disk"), the new file is in its place and may be lost with the power. The handle is gone in
 * either case. */
BRIM_API brim_status brim_output_commit(brim_output *output);
/* Gives it up: nothing is left of it. */
BRIM_API void brim_output_free(brim_output *output);

/* ------------------------------------------------------- table of stages */

typedef enum brim_room {
    BRIM_ROOM_SOURCE = 0,
    BRIM_ROOM_ORDER = 1,
    BRIM_ROOM_TRANSFORM = 2,
    BRIM_ROOM_BATCHING = 3,
    BRIM_ROOM_CACHE = 4,
} brim_room;

typedef enum brim_type {
    BRIM_TYPE_INTEGER = 0,
    BRIM_TYPE_REAL = 1,
    BRIM_TYPE_SIZE = 2,     /* bytes; takes KiB, MiB, GiB, kB, MB, GB */
    BRIM_TYPE_YESNO = 3,    /* yes or no */
    BRIM_TYPE_CHOICE = 4,   /* one of `choices` */
    BRIM_TYPE_WORD = 5,     /* a name */
    BRIM_TYPE_PATH = 6,     /* a file; not part of fingerprints */
    BRIM_TYPE_BINDING = 7,  /* @name */
    BRIM_TYPE_PIPELINE = 8, /* ( ... ) */
    BRIM_TYPE_WEIGHTED = 9, /* weight ( ... ): a number, then a pipeline */
} brim_type;

#define BRIM_ARGUMENT_REQUIRED   1u /* no default */
#define BRIM_ARGUMENT_POSITIONAL 2u /* may stand without its key */
#define BRIM_ARGUMENT_LIST       4u /* several values: positional ones follow each other, key=a,b */

typedef struct brim_argument_info {
    const char *name;
    brim_type type;
    uint32_t flags;
    const char *fallback; /* default, as it would be written; NULL: none */
    double least, most;   /* range of numbers; both 0: any */
    const char *choices;  /* "drop|keep|pad", or NULL */
    const char *help;
} brim_argument_info;

typedef struct brim_stage_info {
    const char *name;
    const char *summary;
    const char *example; /* the stage alone, as it stands in a pipeline */
    brim_room room;
    uint32_t version; /* changes when what it puts out changes */
    const brim_argument_info *arguments;
    size_t argument_count;
} brim_stage_info;

BRIM_API size_t brim_stage_count(void);
BRIM_API const brim_stage_info *brim_stage_at(size_t index); /* NULL past the end */
BRIM_API const brim_stage_info *brim_stage_find(const char *name);

/* What a file is, from its bytes and its name: writes the pipeline that reads
 * it, such as "idx train-images.gz". BRIM_STATUS_UNSUPPORTED if nothing is known that
 * would. */
BRIM_API brim_status brim_guess(const char *path, char *pipeline, size_t pipeline_bytes);

#ifdef __cplusplus
}
#endif

#endif /* BRIM_H */
