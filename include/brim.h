/*
 * brim.h: the one public header of brim.
 *
 * brim feeds training and evaluation loops from data of any size inside one
 * hard memory budget. A program makes a runtime (the budget and its workers),
 * describes what it wants as a pipeline (text, or stage by stage), opens a
 * loader, and takes batches from it:
 *
 *     #include <brim.h>
 *     #include <stdio.h>
 *
 *     int main(void) {
 *         brim_runtime *runtime = NULL;
 *         brim_loader *loader = NULL;
 *         brim_batch *batch = NULL;
 *         brim_status status = brim_runtime_new(NULL, &runtime);
 *         if (status == BRIM_OK)
 *             status = brim_loader_open_text(runtime, "range 1000 name=x | shuffle | batch 64",
 *                                            NULL, &loader);
 *         while (status == BRIM_OK &&
 *                (status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
 *             const brim_field *x = brim_batch_find(batch, "x");
 *             printf("%d numbers\n", (int)x->shape[0]);
 *             brim_batch_release(batch);
 *         }
 *         if (status != BRIM_STATUS_END) // once at the end of each epoch
 *             fprintf(stderr, "%s\n", brim_detail());
 *         brim_loader_close(loader);
 *         brim_runtime_free(runtime);
 *         return status == BRIM_STATUS_END ? 0 : 1;
 *     }
 *
 * Conventions that hold for every call:
 *
 * - A call that can fail returns a brim_status and gives its result through an
 *   out-parameter. On failure an out-parameter for a pointer is set to NULL;
 *   any other is left as it was, unless its call says otherwise.
 * - NULL for a handle, or for an out-parameter that is not marked as optional,
 *   is BRIM_STATUS_INVALID. A call that returns a pointer or a number returns
 *   NULL or 0. _free, _close and _release accept NULL and do nothing.
 * - brim_detail() is the text of the last failure on the calling thread: what
 *   failed, where, how much, and what to change. brim_failure_read() is the same
 *   failure for programs: stage, file, sample, byte, memory.
 * - A call with _read in its name fills a struct that the caller passes.
 * - A struct that the caller makes begins with `size`: initialise it with the
 *   matching BRIM_..._INIT macro. Later versions add fields at its end. A program
 *   that was compiled with an older header passes a shorter struct: what it lacks
 *   has its default. One that was compiled with a newer header passes a longer
 *   struct: it is refused with BRIM_STATUS_UNSUPPORTED if a byte that this library
 *   does not know is not 0. In a longer struct that the library fills, these bytes
 *   become 0.
 * - The elements of an array of such structs are as far apart as the `size` of
 *   the first one says. Structs that the library returns by pointer may also grow
 *   at their end; a call returns each element of an array of them.
 * - A callback returns a brim_answer. The type is int, because any number that is
 *   not one counts as BRIM_ANSWER_BAD.
 * - The library never prints, exits, aborts (a debug build checks assertions),
 *   installs signal handlers or lets the environment decide its behaviour.
 * - After fork(), a call in the child that returns a status, on a runtime, budget,
 *   plan, loader, batch or output of the parent, returns BRIM_STATUS_FORKED; freeing
 *   there is harmless and takes no lock. Pipelines can be used.
 *
 * Threads. Different objects may be used from different threads at once. For
 * one object:
 *   runtime, budget   every call from any thread at any time
 *   pipeline, plan    reading from any thread; changing and freeing by one
 *   loader            next, seek, state, restore from one thread at a time;
 *                     interrupt, plan, detail and every _read from any thread;
 *                     close from any thread, once: it makes a next in progress
 *                     return BRIM_STATUS_CLOSED and waits for it; no call may
 *                     begin after close has begun
 *   batch             reading and releasing from any thread; released once
 *   output            every call from one thread at a time
 * A call without an object may be made from any thread. No call may be made from
 * a signal handler: brim_interrupted_callback is for programs that have one.
 *
 * Units: memory in bytes, times in nanoseconds unless the name says otherwise.
 */
#ifndef BRIM_H
#define BRIM_H

#include <stddef.h>
#include <stdint.h>

/* Used by the BRIM_..._INIT macros: all fields are zero except `size` (and `threads`). */
#ifdef __cplusplus
extern "C++" { /* also where a program includes this header inside its own extern "C" */
template <typename T> static inline T brim__init() {
    T made = T();
    made.size = sizeof(T);
    return made;
}
template <typename T> static inline T brim__init_threads() {
    T made = brim__init<T>();
    made.threads = -1; /* BRIM_THREADS_AUTO */
    return made;
}
}
#define BRIM__ENUM               : int /* every number, also of a newer library, is a value of it */
#define BRIM__INIT(type)         brim__init<type>()
#define BRIM__INIT_THREADS(type) brim__init_threads<type>()
extern "C" {
#else
#define BRIM__ENUM
#define BRIM__INIT(type) \
    { .size = sizeof(type) }
#define BRIM__INIT_THREADS(type) \
    { .size = sizeof(type), .threads = BRIM_THREADS_AUTO }
#endif

/* The version of this header. docs/abi.md says what changes with which number. */
#define BRIM_VERSION_MAJOR 0
#define BRIM_VERSION_MINOR 1
#define BRIM_VERSION_PATCH 0
/* One number to compare: 1002003 is version 1.2.3. */
#define BRIM_VERSION_NUMBER \
    (BRIM_VERSION_MAJOR * 1000000 + BRIM_VERSION_MINOR * 1000 + BRIM_VERSION_PATCH)

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
    X(BRIM_STATUS_DRIVER, 19, "the driver of a device failed")                      \
    X(BRIM_STATUS_STOPPED, 20, "a callback stopped the run")                        \
    X(BRIM_STATUS_BUSY, 21, "in use by another process")

/* What a call returns. */
typedef enum brim_status BRIM__ENUM {
#define X(name, number, text) name = number,
    BRIM_STATUSES(X)
#undef X
} brim_status;

/* "BRIM_STATUS_BUDGET", and "does not fit the budget". Never NULL. */
BRIM_API const char *brim_status_name(brim_status status);
BRIM_API const char *brim_status_text(brim_status status);

/* The calling thread's last failure in words; "" before the first. Valid until the next call on
 * this thread: a call that succeeds may also have met a failure. Every status but BRIM_OK counts,
 * so BRIM_STATUS_END and BRIM_STATUS_TIMEOUT too. */
BRIM_API const char *brim_detail(void);

/* The version of the library that is loaded: "0.1.0", and as BRIM_VERSION_NUMBER. */
BRIM_API const char *brim_version(void);
BRIM_API uint32_t brim_version_number(void);

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

/* The type of an element. */
typedef enum brim_dtype BRIM__ENUM {
#define X(name, text, number, bytes) BRIM_DTYPE_##name = number,
    BRIM_DTYPES(X)
#undef X
} brim_dtype;

BRIM_API const char *brim_dtype_name(brim_dtype dtype); /* "float32"; "unknown" */
BRIM_API size_t brim_dtype_bytes(brim_dtype dtype);     /* 0 if unknown */

#define BRIM_MAX_RANK   8  /* dimensions of a field, with the batch's */
#define BRIM_NAME_BYTES 48 /* longest field or label, with its zero */

/* Whether all samples of a field have one shape. Ragged fields differ in their first dimension, up
 * to a bound; text and bytes are ragged uint8. */
typedef enum brim_form BRIM__ENUM {
    BRIM_FORM_DENSE = 0,  /* all have one shape */
    BRIM_FORM_RAGGED = 1, /* as many elements as the sample has */
    BRIM_FORM_TEXT = 2,   /* UTF-8, without a zero at its end */
    BRIM_FORM_BYTES = 3,  /* any bytes */
} brim_form;

/* A count that is not known before the end of the data, as for streams and after filters. */
#define BRIM_UNKNOWN UINT64_MAX

/* --------------------------------------------------------------- callbacks */

/* The return value of every callback but brim_log_callback. The comment at each type lists the
 * answers that mean success: BRIM_ANSWER_DONE, BRIM_ANSWER_SAMPLE, or both. BRIM_ANSWER_STOP stops.
 * Every other number counts as BRIM_ANSWER_BAD. A callback with the parameter `why` may write the
 * reason of a failure there. */
typedef enum brim_answer BRIM__ENUM {
    BRIM_ANSWER_STOP = -2,  /* stop: the brim_loader_next that would return this batch fails with
                              BRIM_STATUS_STOPPED, whatever on_error says, and the next call tries
                              again. When a pipeline is planned or opened, that call fails with
                              BRIM_STATUS_STOPPED. A callback that was asked whether to continue
                              ends the call in progress with BRIM_STATUS_INTERRUPTED. */
    BRIM_ANSWER_BAD = -1,   /* this sample or batch is bad: BRIM_STATUS_CALLBACK. on_error decides
                              what a bad sample does: fail, skip or replace. */
    BRIM_ANSWER_DONE = 0,   /* done, continue; from a callback that gives samples: there is none */
    BRIM_ANSWER_SAMPLE = 1, /* from a callback that gives samples: here is one; of a filter: keep
                              this sample (DONE: leave it out) */
} brim_answer;

/* How much a line of the log matters. */
typedef enum brim_log_level BRIM__ENUM {
    BRIM_LOG_NOTE = 0,    /* what was found or done, such as a cache file that was reset */
    BRIM_LOG_WARNING = 1, /* works, but not as requested, such as a cache that stores nothing
                             more */
} brim_log_level;

/* Gets, in one line, an event that is not a failure but worth knowing: an index or a cache that was
 * found but not used, a cache that stores nothing more, workers that were not started, a batch
 * without a valid row. Each is reported once for each plan or loader. Called only within
 * brim_plan_new, brim_loader_open, brim_loader_open_text, brim_loader_next and brim_loader_close,
 * on the thread of that call, with no lock of the library held; it may run on several threads at
 * the same time. It may use brim, except for the loader of the call in progress, and must not free
 * the runtime. `text` is valid during the call. */
typedef void brim_log_callback(void *user, brim_log_level level, const char *text);

/* ----------------------------------------------------------------- memory */

/* Kinds of memory that a budget counts. Page-locked memory is host memory too, and
 * counts as both. */
typedef enum brim_memory BRIM__ENUM {
    BRIM_MEMORY_NONE = -1, /* of a device that does not exist */
    BRIM_MEMORY_HOST = 0,
    BRIM_MEMORY_PINNED = 1, /* page-locked host memory */
    BRIM_MEMORY_DEVICE = 2, /* of cuda:0; brim_device_memory gives that of any device */
} brim_memory;
/* How many kinds this version has: host, page-locked, eight CUDA and eight OpenCL devices. A later
 * version may have more, with numbers after these. */
#define BRIM_MEMORY_KINDS 18

/* ---------------------------------------------------------------- failures
 *
 * The failure of brim_detail() as fields. No program needs to parse the text, which may change from
 * version to version. */

#define BRIM_NO_STAGE     UINT32_MAX
#define BRIM_SOURCE_BYTES 256 /* of a failure's source, with its zero; a longer one is cut */
#define BRIM_MAX_HOLDERS  8

/* A holder of memory when memory was refused: a budget (its label) or a process. */
typedef struct brim_holder {
    char label[BRIM_NAME_BYTES];
    uint64_t bytes;
} brim_holder;

/* A failure as fields. An unknown field is "", 0, or the value that its comment names. */
typedef struct brim_failure {
    size_t size;
    brim_status status; /* BRIM_OK: nothing has failed on this thread yet */
    char text[1024];    /* brim_detail() */
    /* The stage of the pipeline that failed: its number for brim_pipeline_read_stage, and its bytes
     * [begin, end) of the text. `at` is the byte that is wrong, or `begin`. The text is what was
     * given to brim_pipeline_parse or brim_loader_open_text, or else brim_pipeline_text. */
    char stage[BRIM_NAME_BYTES];    /* "": none or unknown */
    char argument[BRIM_NAME_BYTES]; /* of the stage: wrong or missing; "": none */
    uint32_t stage_index;           /* BRIM_NO_STAGE: unknown */
    size_t begin, end, at;          /* end 0: unknown */
    /* the data */
    char source[BRIM_SOURCE_BYTES]; /* the file, or "@name" of a binding; "": none */
    uint64_t sample;                /* its number as batches give it; BRIM_UNKNOWN */
    uint64_t byte;  /* of the file: the wrong one, or where its record begins; BRIM_UNKNOWN */
    uint64_t cause; /* what a callback gave brim_callback_cause; 0: none */
    /* the memory, with BRIM_STATUS_BUDGET */
    brim_memory wanted_kind;
    uint64_t wanted_bytes;  /* that were refused; 0: unknown */
    uint64_t minimum_bytes; /* smallest host limit that is enough: for a plan or a loader, that of a
                               runtime in which it opens alone (below a nested budget a little less
                               may do); else of the budget that refused; 0: unknown */
    uint64_t minimum_pinned_bytes; /* smallest limit of page-locked memory that is enough; 0: none
                                      is needed, or it is unknown */
    uint64_t minimum_device_bytes; /* the same of the device */
    /* 1: minimum_bytes is exact. 0: refused before all was known, so the true minimum may be
     * larger; or no plan was refused, but a charge or a limit */
    int exact;
    int blocked;           /* 1: no limit is enough: the shared budget is locked by a stopped
                              process, is damaged, or has the most runtimes that it can have */
    uint64_t others_bytes; /* what other processes use of a shared budget that had no room for
                              another process */
    uint32_t holder_count;
    brim_holder holder[BRIM_MAX_HOLDERS]; /* largest first */
} brim_failure;
#define BRIM_FAILURE_INIT BRIM__INIT(brim_failure)
/* The calling thread's last failure, of which brim_detail() is the text: to be read right after the
 * call that failed. */
BRIM_API brim_status brim_failure_read(brim_failure *failure);

/* ---------------------------------------------------------------- budgets */

/* A node in a tree of limits. The root is the runtime's (brim_runtime_budget), the others are
 * destroyed by brim_budget_free. */
typedef struct brim_budget brim_budget;

/* No limit of its own: only the limits of its parents apply. */
#define BRIM_UNLIMITED UINT64_MAX

/* What one budget counts in one kind of memory. */
typedef struct brim_budget_info {
    size_t size;
    char label[BRIM_NAME_BYTES];
    uint64_t limit;    /* most that may be used here, or BRIM_UNLIMITED */
    uint64_t minimum;  /* set aside at the parent, used or not */
    uint64_t charged;  /* allocated by brim, or charged by the program */
    uint64_t reserved; /* bounds for libraries whose memory cannot be counted */
    uint64_t elastic;  /* the part of charged that gives way when memory is needed */
    uint64_t peak;     /* most of charged + reserved so far */
    uint32_t depth;    /* 0 for the runtime's own budget */
    uint32_t unused;   /* 0 */
} brim_budget_info;
#define BRIM_BUDGET_INFO_INIT BRIM__INIT(brim_budget_info)

/* A budget below `parent` with a limit (BRIM_UNLIMITED for none; with 0 nothing can be charged) and
 * a minimum that is set aside at once. `label` is not empty; a long one is cut. Destroyed by
 * brim_budget_free, which returns what is still charged to it. A parent may be freed before its
 * children: its counts last until the last child is freed. */
BRIM_API brim_status brim_budget_new(brim_budget *parent, const char *label, uint64_t limit,
                                     uint64_t minimum, brim_budget **budget);
BRIM_API void brim_budget_free(brim_budget *budget);

/* Changes a budget's limit for a kind of memory, and its minimum, which is set aside at the parent;
 * brim_budget_new does so for host memory. It can divide the memory of a device between budgets. A
 * lower limit or a larger minimum revokes elastic memory. If more is still in use, or the minimum
 * cannot be set aside, the call fails with BRIM_STATUS_BUDGET and changes nothing. The runtime's
 * own budget has no minimum. */
BRIM_API brim_status brim_budget_set(brim_budget *budget, brim_memory kind, uint64_t limit,
                                     uint64_t minimum);

/* Counts memory that the caller is about to take. It first revokes elastic memory of loaders. If
 * that is not enough, it fails with BRIM_STATUS_BUDGET; the detail names the budget that refused
 * and the holders, largest first. It waits only for samples in progress. */
BRIM_API brim_status brim_budget_charge(brim_budget *budget, brim_memory kind, uint64_t bytes);
/* Uncharges `bytes`. If that is more than is charged, a mistake of the caller, all of it is
 * uncharged; a debug build of the library aborts. */
BRIM_API void brim_budget_uncharge(brim_budget *budget, brim_memory kind, uint64_t bytes);

BRIM_API brim_status brim_budget_read(brim_budget *budget, brim_memory kind,
                                      brim_budget_info *info);

/* Gets one budget. Any brim_answer except BRIM_ANSWER_DONE ends the walk, which still returns
 * BRIM_OK. The lock of the tree of budgets is held: the callback must not call brim. */
typedef int brim_budget_visit(void *user, const brim_budget_info *info);
/* Calls `visit` for the budget and all below it, parents first. */
BRIM_API brim_status brim_budget_walk(brim_budget *budget, brim_memory kind,
                                      brim_budget_visit *visit, void *user);

/* ---------------------------------------------------------------- devices
 *
 * The drivers, libOpenCL.so.1 and libcuda.so.1, are loaded at run time, by the first call that
 * needs one. */

/* The kind of a device. */
typedef enum brim_device BRIM__ENUM {
    BRIM_DEVICE_HOST = 0,
    BRIM_DEVICE_CUDA = 1,
    BRIM_DEVICE_OPENCL = 2,
} brim_device;
#define BRIM_MAX_DEVICES 8 /* of a kind */

/* A device, and how much of its memory is free. */
typedef struct brim_device_info {
    size_t size;
    brim_device kind;
    uint32_t index;
    char name[128];         /* "NVIDIA A100", "pthread-haswell-AMD EPYC" */
    char driver[128];       /* its driver, with the version */
    uint64_t total_bytes;   /* of its memory */
    uint64_t free_bytes;    /* now; BRIM_UNKNOWN: the driver does not report it (OpenCL) */
    uint64_t largest_bytes; /* largest single allocation; BRIM_UNLIMITED: all that is free */
    int unified;            /* 1: its memory is the host's */
    int converts;           /* 1: pixels are copied as uint8 and normalised on the device */
} brim_device_info;
#define BRIM_DEVICE_INFO_INIT BRIM__INIT(brim_device_info)

/* How many devices of a kind there are. BRIM_STATUS_UNSUPPORTED: there is no driver; the
 * detail says which was looked for. */
BRIM_API brim_status brim_device_count(brim_device kind, uint32_t *count);
BRIM_API brim_status brim_device_read(brim_device kind, uint32_t index, brim_device_info *info);
/* "cuda:1", "opencl" (the first), "host" or "cpu". */
BRIM_API brim_status brim_device_parse(const char *text, brim_device *kind, uint32_t *index);
BRIM_API const char *brim_device_name(brim_device kind); /* "cuda"; NULL: no such kind */
/* The kind of memory under which budgets count a device; BRIM_MEMORY_NONE: no such device. */
BRIM_API brim_memory brim_device_memory(brim_device kind, uint32_t index);

/* ---------------------------------------------------------------- runtime */

/* A budget and a pool of workers; destroyed by brim_runtime_free. */
typedef struct brim_runtime brim_runtime;

#define BRIM_THREADS_AUTO (-1) /* the CPUs of this process: affinity and cgroup quota */

/* The limits of a runtime, and where it keeps what it makes. */
typedef struct brim_runtime_options {
    size_t size;
    uint64_t host_bytes;   /* limit of host memory; 0: the limit of the shared budget, or without
                              one a quarter of what is free; brim_usage.host_origin says which */
    uint64_t pinned_bytes; /* limit of page-locked memory, a part of host_bytes; 0: host_bytes */
    uint64_t device_bytes; /* limit of each device; 0: a quarter of what is free on it when it is
                              first used */
    int32_t threads; /* BRIM_THREADS_AUTO, 0 (the caller's thread does the work), or a number */
    const char *index_dir; /* directory of indexes and listings; NULL: .cache/brim in the user's
                              home, as the system's user database names it */
    /* The name of a budget that processes of this machine and user share: 1 to 64 letters,
     * digits, '-', '_' and '.'; NULL: none. All processes together never take more of a kind of
     * memory than the first one set as its limit: shared_bytes, and pinned_bytes and device_bytes
     * where given. The others give the same limits, or 0. */
    const char *shared_name;
    uint64_t shared_bytes; /* limit of host memory for all processes together */
    /* 0: an index, a listing or a cache file that another user (other than root) owns, or that
     * its group or others may write, counts as absent. 1: it is used as if it were the user's
     * own. For teams that share an index directory and trust each other. */
    int trust_foreign;
    brim_log_callback *log; /* NULL: none */
    void *log_user;
} brim_runtime_options;
#define BRIM_RUNTIME_OPTIONS_INIT BRIM__INIT_THREADS(brim_runtime_options)

/* The memory that a runtime has counted, and what else the process uses. */
typedef struct brim_usage {
    size_t size;
    uint64_t limit;    /* host bytes */
    uint64_t charged;  /* now: allocated by brim, or charged by the program */
    uint64_t reserved; /* now: bounds for libraries whose memory cannot be counted */
    uint64_t elastic;  /* the part of charged that brim_runtime_trim would return */
    uint64_t peak;     /* most of charged + reserved so far */
    uint64_t rss;      /* resident set size of the whole process */
    uint64_t peak_rss;
    uint64_t outside;      /* rss minus charged, at least 0: code, libc, interpreters, page maps */
    uint32_t threads;      /* workers running */
    uint32_t loaders;      /* loaders open */
    char host_origin[160]; /* where the limit comes from, in words */
    /* of the budget that processes share; all 0: there is none */
    uint64_t shared_limit;
    uint64_t shared_used; /* by all processes, including their minimums */
    uint32_t processes;   /* that share it, including this one */
    uint32_t unused;      /* 0 */
} brim_usage;
#define BRIM_USAGE_INIT BRIM__INIT(brim_usage)

/* Usually a process has one runtime. `options` may be NULL. Destroyed by brim_runtime_free;
 * loaders and batches that still exist keep what they need. */
BRIM_API brim_status brim_runtime_new(const brim_runtime_options *options, brim_runtime **runtime);
BRIM_API void brim_runtime_free(brim_runtime *runtime);

/* The runtime's own budget, borrowed: valid as long as the runtime. */
BRIM_API brim_budget *brim_runtime_budget(brim_runtime *runtime);
BRIM_API brim_status brim_runtime_read_usage(brim_runtime *runtime, brim_usage *usage);

/* Revokes all elastic memory and returns it to the system; *bytes (optional, may be NULL)
 * is how much that was. Loaders take memory again on demand. */
BRIM_API brim_status brim_runtime_trim(brim_runtime *runtime, uint64_t *bytes);

/* For interpreters, whose programs may hold pointers to memory that brim has freed. After this
 * call, in all runtimes of the process, such pages stay mapped as empty pages: they read as zeros
 * and cost addresses, but no memory. */
BRIM_API void brim_keep_addresses(void);

/* ------------------------------------------------------- table of stages */

/* The kind of a stage. */
typedef enum brim_room BRIM__ENUM {
    BRIM_ROOM_SOURCE = 0,
    BRIM_ROOM_ORDER = 1,
    BRIM_ROOM_TRANSFORM = 2,
    BRIM_ROOM_BATCHING = 3,
    BRIM_ROOM_CACHE = 4,
} brim_room;

/* The type of an argument. */
typedef enum brim_type BRIM__ENUM {
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

/* Flags of brim_argument_info. */
#define BRIM_ARGUMENT_FLAG_REQUIRED   1u /* no default */
#define BRIM_ARGUMENT_FLAG_POSITIONAL 2u /* may stand without its key */
#define BRIM_ARGUMENT_FLAG_LIST       4u /* several values: a b, or key=a,b */

/* One argument of a stage in the table. */
typedef struct brim_argument_info {
    const char *name;
    brim_type type;
    uint32_t flags;
    const char *fallback; /* default, as a pipeline would write it; NULL: none */
    double least, most;   /* range of numbers; both 0: any */
    const char *choices;  /* "drop|keep|pad", or NULL */
    const char *help;
} brim_argument_info;

/* One stage in the table. */
typedef struct brim_stage_info {
    const char *name;
    const char *summary;
    const char *example; /* the stage alone, as it stands in a pipeline */
    brim_room room;
    uint32_t version;      /* changes when the output changes */
    const void *arguments; /* private: brim_stage_argument_at gives each */
    size_t argument_count;
} brim_stage_info;

BRIM_API size_t brim_stage_count(void);
BRIM_API const brim_stage_info *brim_stage_at(size_t index);       /* NULL past the end */
BRIM_API const brim_stage_info *brim_stage_find(const char *name); /* NULL: no such stage */
BRIM_API const brim_argument_info *brim_stage_argument_at(const brim_stage_info *stage,
                                                          size_t index); /* NULL past the end */

/* --------------------------------------------------------------- pipeline */

/* A list of stages: what to do. Destroyed by brim_pipeline_free. */
typedef struct brim_pipeline brim_pipeline;

/* Which field of a brim_argument holds its value. */
typedef enum brim_argument_kind BRIM__ENUM {
    BRIM_ARGUMENT_TEXT = 0, /* words, paths, choices, @names: as in a pipeline's text, unquoted */
    BRIM_ARGUMENT_INTEGER = 1,
    BRIM_ARGUMENT_REAL = 2,
    BRIM_ARGUMENT_PIPELINE = 3,
} brim_argument_kind;

/* One argument of a stage, for building a pipeline without text. */
typedef struct brim_argument {
    size_t size;
    const char *key; /* NULL: positional */
    brim_argument_kind kind;
    const char *text; /* copied, as the pipeline is */
    int64_t integer;
    double real;
    const brim_pipeline *pipeline;
} brim_argument;
#define BRIM_ARGUMENT_INIT BRIM__INIT(brim_argument)

/* A pipeline from text such as "npy x.npy | shuffle seed=7 | batch 64". */
BRIM_API brim_status brim_pipeline_parse(const char *text, brim_pipeline **pipeline);
/* Makes an empty pipeline; adds a stage at its end. A list is given by repeating its key. The
 * elements of `arguments` lie arguments->size bytes apart. */
BRIM_API brim_status brim_pipeline_new(brim_pipeline **pipeline);
BRIM_API brim_status brim_pipeline_add(brim_pipeline *pipeline, const char *stage,
                                       const brim_argument *arguments, size_t count);
BRIM_API brim_status brim_pipeline_copy(const brim_pipeline *pipeline, brim_pipeline **copy);
BRIM_API void brim_pipeline_free(brim_pipeline *pipeline);
/* The number of stages, without those in parentheses. _cut removes all stages after the first
 * `count`. */
BRIM_API size_t brim_pipeline_length(const brim_pipeline *pipeline);
BRIM_API brim_status brim_pipeline_cut(brim_pipeline *pipeline, size_t count);
/* The pipeline as text that parses to the same pipeline; owned by it, valid
 * until it is changed or freed. */
BRIM_API const char *brim_pipeline_text(const brim_pipeline *pipeline);

/* A stage of a pipeline. Stages are numbered in the order of the text: one with pipelines in
 * parentheses comes before the stages of those. */
typedef struct brim_pipeline_stage {
    size_t size;
    const brim_stage_info *info; /* its row of the table: name, room, arguments */
    size_t begin, end;           /* its bytes of brim_pipeline_text, including its parentheses */
    uint32_t depth;              /* number of parentheses around it */
    uint32_t parent;             /* the stage that these belong to; BRIM_NO_STAGE: none ... */
    uint32_t branch;             /* ... and which of its pipelines this is in: 0, 1, ... */
    size_t value_count;          /* of its arguments, see brim_pipeline_read_value */
} brim_pipeline_stage;
#define BRIM_PIPELINE_STAGE_INIT BRIM__INIT(brim_pipeline_stage)

/* One value of an argument of a stage; a list has several. Defaults are values too. */
typedef struct brim_pipeline_value {
    size_t size;
    const brim_argument_info *info; /* of its argument: name, type */
    const char *text;               /* without quotes, a binding without its @; "": a pipeline */
    int64_t integer;                /* INTEGER, SIZE in bytes, YESNO (0 or 1), CHOICE (which one) */
    double real;                    /* REAL, and the weight of WEIGHTED */
    uint32_t branch;   /* of a pipeline: the `branch` of its stages; else BRIM_NO_STAGE */
    size_t begin, end; /* its bytes of brim_pipeline_text, with quotes, @ or parentheses; both 0:
                          the default, which the text leaves out */
} brim_pipeline_value;
#define BRIM_PIPELINE_VALUE_INIT BRIM__INIT(brim_pipeline_value)

/* All stages, including those in parentheses. The pipeline owns what a stage and a value point to,
 * until it is changed or freed. BRIM_STATUS_INVALID: there is none with that number. */
BRIM_API size_t brim_pipeline_stage_count(const brim_pipeline *pipeline);
BRIM_API brim_status brim_pipeline_read_stage(const brim_pipeline *pipeline, size_t stage,
                                              brim_pipeline_stage *out);
BRIM_API brim_status brim_pipeline_read_value(const brim_pipeline *pipeline, size_t stage,
                                              size_t value, brim_pipeline_value *out);

/* The name nearest to `word` by edit distance, for "did you mean", as in brim's error texts: the
 * first of equally near names. NULL: none is near enough. */
BRIM_API const char *brim_nearest(const char *word, const char *const *names, size_t count);

/* Writes the pipeline that reads a file, such as "idx train-images.gz", from the file's bytes and
 * name. BRIM_STATUS_UNSUPPORTED: no source is known that reads it. BRIM_STATUS_INVALID: it takes
 * more bytes; the detail says how many. */
BRIM_API brim_status brim_guess(const char *path, char *pipeline, size_t pipeline_bytes);

/* ---------------------------------------------------------------- bindings
 *
 * A pipeline names arrays and functions of the caller as @name. They are bound when it is planned
 * or opened. What they point to must stay valid until the plan is freed, or the loader closed and
 * its last batch released; the structs themselves and their strings are copied. Bindings that the
 * pipeline does not name are ignored. */

/* One field of a sample as callbacks see it. Callbacks get arrays of them, whose elements lie
 * `size` bytes apart: use brim_value_at for all but the first. */
typedef struct brim_value {
    size_t size;
    const char *name;
    brim_dtype dtype;
    uint32_t rank;
    int64_t shape[BRIM_MAX_RANK];
    void *data; /* contiguous, row-major; inputs aligned to 64 bytes, outputs to their element */
    uint64_t bytes;
    /* not dense: shape[0] and bytes of an input are this sample's; of an output they are the bound,
     * and the callback sets shape[0] to the length that it wrote */
    brim_form form;
    uint32_t unused; /* 0 */
} brim_value;

/* Element `index` of the array of values that a callback was given. A callback must not change its
 * inputs (except batch_map). */
static inline brim_value *brim_value_at(const brim_value *values, size_t index) {
    return (brim_value *)(void *)((char *)(uintptr_t)values + index * values->size);
}

/* One output field of a callback. */
typedef struct brim_field_spec {
    size_t size;
    const char *name;
    brim_dtype dtype;
    uint32_t rank;
    int64_t shape[BRIM_MAX_RANK];
    uint64_t largest_bytes; /* bound for one sample; 0: the size of the shape */
    brim_form form;         /* not dense: shape[0] is the bound */
    uint32_t unused;        /* must be 0 */
} brim_field_spec;
#define BRIM_FIELD_SPEC_INIT BRIM__INIT(brim_field_spec)

/* Pages that other processes can map, of a loader that was opened with `shared`. This struct
 * does not grow: it is part of another. */
typedef struct brim_region {
    void *memory; /* NULL: none */
    uint64_t bytes;
    uint64_t number; /* identifies these pages; never used again in this process */
    int file;        /* a memory file of exactly these pages, which the library closes; -1: none */
} brim_region;

/* Which sample a callback is making. */
typedef struct brim_call {
    size_t size;
    uint64_t sample; /* its number in the source; of a batch: see brim_batch_map_callback */
    uint64_t epoch;  /* of the source: repeat and mix count their passes here */
    uint64_t key;    /* from the stage's seed and position, and the branch of a mix */
    /* With `shared`, the pages of the batch and of scratch memory. A value that is in neither is in
     * memory of the program, such as a bound array. Without `shared`, both are empty. */
    brim_region batch, scratch;
} brim_call;

/* A random number for callbacks: the same for equal (call, draw) on any thread. */
BRIM_API uint32_t brim_call_random(const brim_call *call, uint32_t draw);
/* For a callback of a binding that is about to fail: sets `cause` of the failure to a number that
 * the program chooses, such as that of a stored exception. It applies only to the call in progress.
 * The failure's text then leaves out the number that the callback returned. */
BRIM_API void brim_callback_cause(uint64_t cause);

/* Flags of a binding's callback. */
#define BRIM_CALLBACK_PURE 1u /* same input, same output: may be cached and made again */
#define BRIM_CALLBACK_CONCURRENT \
    2u                          /* may run on several threads at once; else calls are serialised */
#define BRIM_CALLBACK_PROBED 4u /* the fields were found by a trial call; the plan says so */
#define BRIM_CALLBACK_RANDOM 8u /* depends on the epoch or on random numbers: never cached */

/* For all callbacks of bindings: `why`, of why_bytes, may be filled with the reason of a failure.
 * Within one loader, calls of a callback that is not declared BRIM_CALLBACK_CONCURRENT never
 * overlap; two loaders that have the same function may call it at the same time. No lock but
 * that of the callback is held. A callback may use brim, but must not close its own loader or take
 * batches from it. brim_loader_interrupt does not end it early. */

/* Makes sample call->sample. BRIM_ANSWER_DONE: made. */
typedef int brim_read_callback(void *user, const brim_call *call, brim_value *outputs,
                               size_t output_count, char *why, size_t why_bytes);
/* Makes a new sample from a sample. BRIM_ANSWER_DONE: made. */
typedef int brim_map_callback(void *user, const brim_call *call, const brim_value *inputs,
                              size_t input_count, brim_value *outputs, size_t output_count,
                              char *why, size_t why_bytes);
/* BRIM_ANSWER_SAMPLE: keep the sample. BRIM_ANSWER_DONE: leave it out. */
typedef int brim_filter_callback(void *user, const brim_call *call, const brim_value *inputs,
                                 size_t input_count, char *why, size_t why_bytes);
/* Makes sample `index` (0, 1, ...) of the samples that one sample becomes. BRIM_ANSWER_SAMPLE:
 * made. BRIM_ANSWER_DONE: there are no more. */
typedef int brim_flat_map_callback(void *user, const brim_call *call, uint64_t index,
                                   const brim_value *inputs, size_t input_count,
                                   brim_value *outputs, size_t output_count, char *why,
                                   size_t why_bytes);
/* Gives the next sample of a stream. BRIM_ANSWER_SAMPLE: given. BRIM_ANSWER_DONE: the stream has
 * ended. After a bad sample the stream continues with the next one, also after a failure with
 * on_error=fail: the next brim_loader_next returns the batch without it. Called by one thread at a
 * time, in order. */
typedef int brim_pull_callback(void *user, brim_value *outputs, size_t output_count, char *why,
                               size_t why_bytes);
/* Makes `sample` of `epoch` the one that is pulled next. BRIM_ANSWER_DONE: done. Any failure
 * fails the call, whatever on_error says. */
typedef int brim_reopen_callback(void *user, uint64_t epoch, uint64_t sample, char *why,
                                 size_t why_bytes);

/* Processes a whole batch, after its last row is made and before it is delivered. The values are
 * its dense fields, with the batch's dimension first and only the valid rows. If the binding
 * declares no fields, they are changed in place; else the callback fills the outputs, which replace
 * all fields and have as many rows. call->sample is the position of the batch's first row. Not
 * called for a batch without valid rows. BRIM_ANSWER_DONE: done. A bad batch fails: on_error does
 * not apply to it. */
typedef int brim_batch_map_callback(void *user, const brim_call *call, brim_value *inputs,
                                    size_t input_count, brim_value *outputs, size_t output_count,
                                    char *why, size_t why_bytes);

/* What a binding is, and the stage that takes it. */
typedef enum brim_binding_kind BRIM__ENUM {
    BRIM_BINDING_ARRAY = 0,     /* array @name */
    BRIM_BINDING_SOURCE = 1,    /* callback @name: samples by number */
    BRIM_BINDING_MAP = 2,       /* map @name */
    BRIM_BINDING_STREAM = 3,    /* stream @name: samples one after another */
    BRIM_BINDING_FILTER = 4,    /* filter by=@name */
    BRIM_BINDING_FLAT_MAP = 5,  /* flat_map @name: many samples from one */
    BRIM_BINDING_FILES = 6,     /* files list=@name: paths of files */
    BRIM_BINDING_BATCH_MAP = 7, /* batch_map @name: whole batches */
} brim_binding_kind;

/* An array, a function or a list of files that a pipeline calls @name. */
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
    /* callbacks: their output fields (those of a map callback replace all fields of the sample),
     * and how they may be called */
    uint64_t count; /* samples of a source; most that flat_map makes of one; paths of files */
    const brim_field_spec *fields; /* elements lie fields->size bytes apart */
    size_t field_count;
    uint32_t flags; /* BRIM_CALLBACK_... */
    brim_read_callback *read;
    brim_map_callback *map;
    brim_filter_callback *filter;
    brim_flat_map_callback *flat_map;
    brim_pull_callback *pull;
    brim_reopen_callback *reopen; /* of a stream; NULL: it can only be read once */
    /* files: `count` paths, and a label for each or NULL */
    const char *const *paths;
    const int64_t *labels;
    brim_batch_map_callback *batch_map; /* its fields have no batch dimension */
} brim_binding;
#define BRIM_BINDING_INIT BRIM__INIT(brim_binding)

/* The binding of a row-major array in memory: shape[0] samples of shape[1], shape[2], ... */
static inline brim_binding brim_bind_array(const char *name, const void *data, brim_dtype dtype,
                                           uint32_t rank, const int64_t *shape) {
    brim_binding binding = BRIM_BINDING_INIT;
    binding.name = name;
    binding.kind = BRIM_BINDING_ARRAY;
    binding.data = data;
    binding.dtype = dtype;
    binding.rank = rank;
    for (uint32_t i = 0; shape != NULL && i < rank && i < BRIM_MAX_RANK; i++) {
        binding.shape[i] = shape[i];
    }
    return binding;
}

/* -------------------------------------------------------- plan and opening */

/* When a loader takes the memory above its minimum. */
typedef enum brim_growth BRIM__ENUM {
    BRIM_GROWTH_ON_DEMAND = 0, /* when it makes batches come faster */
    BRIM_GROWTH_FIXED = 1,     /* all planned memory that is free, when opening */
} brim_growth;

/* What progress is counted in. */
typedef enum brim_unit BRIM__ENUM {
    BRIM_UNIT_BYTES = 0,
    BRIM_UNIT_FILES = 1,
    BRIM_UNIT_SAMPLES = 2,
} brim_unit;

/* How far long work is. */
typedef struct brim_progress {
    size_t size;
    const char *what; /* the work, in words: "indexing train.csv"; valid during the call */
    brim_unit unit;
    uint64_t done;
    uint64_t total; /* BRIM_UNKNOWN */
} brim_progress;

/* Reports long work in a call that plans, opens or verifies, such as building an index.
 * BRIM_ANSWER_DONE: continue; any other answer ends the call with BRIM_STATUS_INTERRUPTED. Called
 * on the thread of that call, with no lock of the library held, at most a few times a second. */
typedef int brim_progress_callback(void *user, const brim_progress *progress);

/* Called by brim_loader_next, on its thread, at most 50 times a second while it makes samples or
 * waits for them. BRIM_ANSWER_DONE: continue; any other answer ends the call as
 * brim_loader_interrupt does. It is for programs whose signal handlers set a flag, and must not use
 * the loader. */
typedef int brim_interrupted_callback(void *user);

/* How a pipeline is planned and opened. Strings are copied. What `..._user` and `device_queue`
 * point to must stay valid until the loader is closed and its last batch released. */
typedef struct brim_open_options {
    size_t size;
    brim_budget *budget;     /* NULL: the runtime's; else one below it */
    const char *label;       /* names the loader in usage and refusals; NULL: "loader N" */
    uint32_t rank;           /* this is shard `rank` ... */
    uint32_t world;          /* ... of `world`; 0 counts as 1 */
    uint32_t hold;           /* batches lent at a time, the requested one included; 0 counts as 1 */
    int32_t threads;         /* at most this many workers; BRIM_THREADS_AUTO: the runtime's */
    uint32_t slots;          /* most slots that are planned; 0: as memory allows */
    brim_growth growth;      /* of host, page-locked and device memory */
    brim_device device_kind; /* where batches are delivered */
    uint32_t device_index;
    const brim_binding *bindings; /* elements lie bindings->size bytes apart */
    size_t binding_count;
    brim_progress_callback *progress; /* NULL: none */
    void *progress_user;
    int shared; /* 1: batches and scratch memory lie in memory files, for callbacks that work in
                   other processes; see brim_call */
    /* How many batches may be lent above `hold`; 0: none. Each takes one slot above the minimum,
     * which stays charged from the brim_loader_next that asks for it until the release. These slots
     * are not part of planned_bytes. To get one, brim_loader_next may revoke elastic memory of
     * others, even with a time-out of 0. */
    uint32_t beyond;
    /* The queue in which batches are used: a cl_command_queue, or a CUstream (1: the legacy default
     * stream, 2: the thread's). brim_loader_next makes it wait for the batch, and the memory of a
     * released batch is used again after the work that the queue holds then. NULL: none, see
     * brim_batch_wait and brim_batch_release_after. */
    void *device_queue;
    brim_interrupted_callback *interrupted; /* NULL: none */
    void *interrupted_user;
} brim_open_options;
#define BRIM_OPEN_OPTIONS_INIT BRIM__INIT_THREADS(brim_open_options)

/* A pipeline fitted into a budget; destroyed by brim_plan_free. */
typedef struct brim_plan brim_plan;

/* The numbers of a plan as a whole. */
typedef struct brim_plan_info {
    int fits;               /* 0: `reason` says why not */
    uint64_t minimum_bytes; /* smallest host limit in which it opens alone */
    uint64_t planned_bytes; /* most that it will use, without copies of batches and batches lent
                               above `hold` */
    uint64_t limit_bytes;   /* the limit that it was fitted into */
    uint64_t slot_bytes;
    uint64_t scratch_bytes; /* for each thread */
    uint64_t stack_bytes;   /* of each worker, with thread-local storage */
    uint64_t fixed_bytes;   /* tables, indexes, unpacked data and the loader itself */
    uint32_t threads;       /* workers; 0: the caller's thread */
    uint32_t slots;
    uint32_t minimum_slots; /* max(2, hold); on a device 2 */
    uint32_t hold;
    uint64_t samples;    /* in an epoch, over all ranks; or BRIM_UNKNOWN, as the next two */
    uint64_t batches;    /* of one rank in an epoch, each micro-batch counted */
    uint64_t steps;      /* of one rank in an epoch: micro-batches of a step count as one */
    uint64_t batch_rows; /* most rows of a delivered batch */
    uint64_t data_fingerprint;
    uint64_t sample_fingerprint;
    uint64_t order_fingerprint;
    uint32_t field_count;
    uint32_t stage_count;
    const char *reason;       /* why it does not fit; "" if it does */
    const char *limit_origin; /* where the limit comes from, in words */
    int sequenced;            /* 1: rows are assigned while samples are made */
    uint64_t window_bytes;    /* sequenced: samples in progress, and shuffle buffers */
    uint32_t index_count;     /* indexes of files, see brim_plan_index_at */
    /* Where batches are delivered on a device; on the host all are 0. `slots` then counts the
     * slots in page-locked memory, which are filled and copied to the device. */
    uint64_t device_slot_bytes;
    uint32_t device_slots;         /* planned */
    uint32_t minimum_device_slots; /* max(2, hold) */
    uint64_t device_fixed_bytes;   /* buffers of conversions on the device */
    uint64_t minimum_device_bytes; /* smallest limit of the device in which it opens alone */
    uint64_t planned_device_bytes;
    uint64_t minimum_pinned_bytes;
    uint64_t planned_pinned_bytes;
} brim_plan_info;

/* One field of the batches. */
typedef struct brim_plan_field {
    const char *name;
    brim_dtype dtype;
    uint32_t rank;                /* with the batch's dimension first */
    int64_t shape[BRIM_MAX_RANK]; /* ragged: shape[1] is the bound */
    uint64_t bytes;               /* of a full batch */
    brim_form form;
    int converted; /* 1: copied to the device as uint8 and converted there */
} brim_plan_field;

/* One stage of the pipeline. Stages are numbered as in brim_pipeline_read_stage,
 * brim_loader_read_stage_stats and brim_cache_stats.stage. */
typedef struct brim_plan_stage {
    const char *name;
    const char *text;      /* with defaults spelled out */
    const char *effect;    /* its output, in words: "60000 samples", "x float32 3x32x32" */
    uint64_t bytes;        /* bound on what it needs, in all threads of the minimum */
    uint64_t samples;      /* after it; 0 if it does not change the count */
    int fused;             /* 1: done in one pass with the stage before it */
    int cacheable;         /* 1: a cache may follow it */
    uint64_t sample_bytes; /* cacheable: most bytes of a sample in such a cache */
    size_t begin, end;     /* its bytes of brim_pipeline_text */
    size_t field_count;    /* see brim_plan_stage_field_at; 0: it does not change the fields */
} brim_plan_stage;

/* The index of one file: where its records are. */
typedef struct brim_plan_index {
    const char *path;       /* of the index */
    const char *data_path;  /* of the data file */
    uint64_t records;       /* how many the data file has */
    uint64_t largest_bytes; /* of the longest record */
    uint64_t data_bytes;    /* of the data file */
    uint64_t bytes;         /* of the index */
    int made;               /* 1: made for this plan; 0: an index was there, and up to date */
    const char *note;       /* the file that was found in its place and not used, because other
                               users could have written it; "": there was none */
} brim_plan_index;

/* Fits a pipeline into what a runtime (and options->budget) has free. `options` may be NULL.
 * Missing indexes are made. Samples are read only for types and labels; compressed data is
 * unpacked only for labels. A pipeline that does not fit still gives a plan, whose info says
 * why: BRIM_STATUS_BUDGET means that the plan itself does not fit. A plan keeps its tables (a few
 * dozen KiB) in the budget until brim_plan_free. */
BRIM_API brim_status brim_plan_new(brim_runtime *runtime, const brim_pipeline *pipeline,
                                   const brim_open_options *options, brim_plan **plan);
BRIM_API void brim_plan_free(brim_plan *plan);
/* Owned by the plan. Index out of range: NULL. */
BRIM_API const brim_plan_info *brim_plan_get(const brim_plan *plan);
BRIM_API const brim_plan_field *brim_plan_field_at(const brim_plan *plan, size_t index);
BRIM_API const brim_plan_stage *brim_plan_stage_at(const brim_plan *plan, size_t index);
BRIM_API const brim_plan_index *brim_plan_index_at(const brim_plan *plan, size_t index);
/* A field of one sample after stage `stage`: without the batch's dimension, and shape[0] is the
 * bound of a field that is not dense. An image of any size has 0 for height and width. */
BRIM_API const brim_plan_field *brim_plan_stage_field_at(const brim_plan *plan, size_t stage,
                                                         size_t index);
/* Reads all indexes of the plan and compares their checksums. BRIM_STATUS_CORRUPT: the detail
 * names the first damaged one. `progress` may be NULL. */
BRIM_API brim_status brim_plan_verify(const brim_plan *plan, brim_progress_callback *progress,
                                      void *progress_user);
/* The names of the labels 0, 1, ... of a field, such as the classes of a folder: how many there
 * are (0: none), and each (NULL past the end), owned by the plan. */
BRIM_API size_t brim_plan_class_count(const brim_plan *plan, const char *field);
BRIM_API const char *brim_plan_class_name(const brim_plan *plan, const char *field, size_t index);

/* The name of a sample, by its number in brim_batch_info.samples: the path of its file, or
 * "x.npy, sample 17". BRIM_STATUS_INVALID: it takes more bytes. */
BRIM_API brim_status brim_plan_sample_name(const brim_plan *plan, uint64_t sample, char *text,
                                           size_t text_bytes);

/* ----------------------------------------------------------------- loader */

/* A running plan; destroyed by brim_loader_close. */
typedef struct brim_loader brim_loader;
/* A batch that is lent, or a copy of one; given back by brim_batch_release or
 * brim_batch_release_after. */
typedef struct brim_batch brim_batch;

/* Takes the pipeline's minimum, unpacks compressed data into it, and starts. BRIM_STATUS_BUDGET: it
 * does not fit; brim_failure_read gives the limits that are enough. `options` may be NULL. Batches
 * that are still lent when the loader is closed stay valid and charged until released. */
BRIM_API brim_status brim_loader_open(brim_runtime *runtime, const brim_pipeline *pipeline,
                                      const brim_open_options *options, brim_loader **loader);
/* The same from the pipeline's text. */
BRIM_API brim_status brim_loader_open_text(brim_runtime *runtime, const char *text,
                                           const brim_open_options *options, brim_loader **loader);
BRIM_API void brim_loader_close(brim_loader *loader);

/* The next batch, waiting at most timeout_ns (0: do not wait; BRIM_FOREVER, and every number below
 * 0: without limit). BRIM_STATUS_END: once at the end of each epoch; the call after it begins the
 * next epoch. BRIM_STATUS_HELD: `hold` + `beyond` batches are lent, or the budget has no room for
 * one more above `hold`; at the end of an epoch BRIM_STATUS_END is returned even then. After a
 * failure the next call makes the same batch again; brim_loader_seek goes to another step.
 *
 * With on_error=skip all samples of a batch may be bad. If the batch is a whole step of the only
 * rank, it is passed over: no batch has the number of that step. If all batches of an epoch are
 * passed over, the call returns BRIM_STATUS_END. If there are several ranks, which must all take
 * the same number of steps, or if the step has several micro-batches, the batch is delivered: its
 * valid_rows is 0 and its skipped is not, and brim_stats.warning says so. brim_stats.empty counts
 * both. */
#define BRIM_FOREVER (-1)
BRIM_API brim_status brim_loader_next(brim_loader *loader, int64_t timeout_ns, brim_batch **batch);

/* Goes to a step of an epoch; the step after the last is the end. In a sequenced plan
 * (brim_plan_info.sequenced) the batches before it are made and thrown away, and a step that does
 * not exist fails the next brim_loader_next. BRIM_STATUS_UNSEEKABLE: a stream without `reopen`. */
BRIM_API brim_status brim_loader_seek(brim_loader *loader, uint64_t epoch, uint64_t step);

/* Makes the brim_loader_next in progress, or else the next one, return BRIM_STATUS_INTERRUPTED. A
 * call that decodes an image itself stops within a fraction of a second. The next call makes the
 * batch, with the same bytes. A callback is not ended early. */
BRIM_API brim_status brim_loader_interrupt(brim_loader *loader);

/* The plan that the loader runs; owned by the loader. */
BRIM_API const brim_plan *brim_loader_plan(const brim_loader *loader);

/* Copies the text of the loader's last failure, cut to text_bytes; "": there was none. */
BRIM_API void brim_loader_detail(brim_loader *loader, char *text, size_t text_bytes);
/* The same failure for programs. Its fields about memory are not set: brim_failure_read has them,
 * on the thread that failed. */
BRIM_API brim_status brim_loader_read_failure(brim_loader *loader, brim_failure *failure);

#define BRIM_STATE_BYTES 128
/* The position of a loader: after the batches that were delivered so far. Plain bytes, the same on
 * every machine; they may be stored as they are. */
typedef struct brim_state {
    unsigned char bytes[BRIM_STATE_BYTES];
} brim_state;
BRIM_API brim_status brim_loader_state(brim_loader *loader, brim_state *state);
/* Continues from a state, which another number of ranks may have written. BRIM_STATUS_MISMATCH: the
 * data or the order differ. BRIM_STATUS_CORRUPT: this is no state of a loader. If the batch size or
 * `world` differ, a state from inside a step restarts that step. */
BRIM_API brim_status brim_loader_restore(brim_loader *loader, const brim_state *state);

/* What a loader has done since it was opened. */
typedef struct brim_stats {
    size_t size;
    uint64_t epoch;   /* of the next batch */
    uint64_t samples; /* delivered since opening */
    uint64_t batches;
    uint64_t bytes;          /* of all fields delivered */
    uint64_t read_bytes;     /* read from files */
    uint64_t skipped;        /* bad samples left out (on_error=skip) */
    uint64_t replaced;       /* bad samples replaced (on_error=replace) */
    uint64_t waited_ns;      /* time that brim_loader_next spent waiting or making rows */
    uint64_t opening_ns;     /* time that opening took */
    uint64_t first_batch_ns; /* from the start of opening to the first batch; 0 before it */
    uint32_t threads;        /* workers that run for the runtime */
    uint32_t slots;          /* that have memory now */
    uint32_t lent;           /* batches lent now */
    uint32_t revoked;        /* times that memory was taken from it */
    uint32_t stage_count;    /* stages, see brim_loader_read_stage_stats */
    uint32_t error_count;    /* bad samples that are kept, see brim_loader_read_error */
    int ended;       /* 1: `epoch` has no more batches: brim_loader_next returns BRIM_STATUS_END */
    uint64_t errors; /* bad samples met so far, including those of batches made ahead */
    uint32_t cache_count;  /* caches of the pipeline, see brim_loader_read_cache_stats */
    uint32_t device_slots; /* that have memory now */
    uint64_t copied_bytes; /* from the host to the device */
    uint64_t empty;        /* batches whose samples were all bad, passed over or delivered */
    char warning[256];     /* about the first of those that was delivered; "": there was none */
} brim_stats;
#define BRIM_STATS_INIT BRIM__INIT(brim_stats)
BRIM_API brim_status brim_loader_read_stats(brim_loader *loader, brim_stats *stats);

/* One stage of the pipeline. */
typedef struct brim_stage_stats {
    size_t size;
    const char *name;
    uint64_t samples; /* rows made so far, by all parts of a mix together, without hits in a later
                         cache */
    uint64_t ns;      /* spent in it by all threads, estimated from a part of the runs */
} brim_stage_stats;
#define BRIM_STAGE_STATS_INIT BRIM__INIT(brim_stage_stats)
BRIM_API brim_status brim_loader_read_stage_stats(brim_loader *loader, size_t stage,
                                                  brim_stage_stats *stats);
/* One cache of the pipeline. */
typedef struct brim_cache_stats {
    size_t size;
    const char *tier;  /* "memory", "file" or "device"; as all names here, valid until the loader
                          is closed */
    uint32_t stage;    /* its index among the plan's stages */
    int fills;         /* 0: only read, or turned off: `warning` says why */
    uint64_t samples;  /* most samples that can be in it */
    uint64_t filled;   /* samples in it, or being written */
    uint64_t bytes;    /* of memory or disk that it takes now */
    uint64_t hits;     /* samples taken from it since opening */
    uint64_t misses;   /* samples that had to be made since opening */
    uint64_t stored;   /* samples put in since opening */
    uint64_t dropped;  /* samples made and not kept, for lack of room or time */
    uint64_t damaged;  /* entries found torn or forged; their samples were made again */
    uint64_t changed;  /* entries whose data has changed since (verify=hit, content); made again */
    char warning[256]; /* why it does not store all samples that it should; "": it does */
    char note[256];    /* what was found when it was opened, "reset: ..."; "": nothing */
} brim_cache_stats;
#define BRIM_CACHE_STATS_INIT BRIM__INIT(brim_cache_stats)
BRIM_API brim_status brim_loader_read_cache_stats(brim_loader *loader, size_t index,
                                                  brim_cache_stats *stats);
/* The failure of a bad sample that was skipped or replaced: stage, source, number, byte, text. They
 * are numbered from 0 since opening, and the last BRIM_ERRORS_KEPT of brim_stats.errors are kept:
 * BRIM_STATUS_INVALID for all others. */
#define BRIM_ERRORS_KEPT 8
BRIM_API brim_status brim_loader_read_error(brim_loader *loader, uint64_t number,
                                            brim_failure *failure);

/* ------------------------------------------------------------ cache files
 *
 * The files that `cache file=` writes, without a loader. A file that is not a cache is
 * refused with BRIM_STATUS_INVALID. */

/* What the header and the table of a cache file say. */
typedef struct brim_cache_info {
    size_t size;
    int usable;       /* 0: another format or byte order, or a damaged header: a loader resets it,
                         and the numbers below may be 0 */
    int in_use;       /* 1: a process fills it now */
    uint64_t samples; /* most samples that can be in it */
    uint64_t filled;  /* samples in it by its table; brim_cache_verify checks them */
    uint64_t bytes;   /* on the disk */
    uint64_t limit;   /* most bytes that it may take, or BRIM_UNLIMITED */
    uint64_t data_fingerprint, sample_fingerprint;
    int64_t created_ns, used_ns; /* since 1970; used: last opened or filled */
    const char *verify;          /* "open", "hit", "never" or "content" */
    char pipeline[1024];         /* the stages before it, cut if longer */
} brim_cache_info;
#define BRIM_CACHE_INFO_INIT BRIM__INIT(brim_cache_info)
BRIM_API brim_status brim_cache_read(const char *path, brim_cache_info *info);
/* Reads all entries and counts those that are whole and those that are not; `good` and `bad` are
 * optional (may be NULL), and count up to a failure. `progress` may be NULL. The file is not
 * changed. */
BRIM_API brim_status brim_cache_verify(const char *path, brim_progress_callback *progress,
                                       void *progress_user, uint64_t *good, uint64_t *bad);
/* Deletes a cache file; BRIM_STATUS_BUSY: a process fills it. A loader that reads it continues with
 * the file that it has open. */
BRIM_API brim_status brim_cache_remove(const char *path);

/* ------------------------------------------------------------------ batch */

/* One field of a batch. */
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
    void *ready; /* a cl_event or CUevent after which the data is there, which the library releases
                    with the batch; NULL on the host */
    brim_form form;
    /* Not dense: the rows follow one another, row r from offsets[r] to offsets[r + 1],
     * counted in the first dimension; shape[1] is -1 and strides[0] is 0. Dense: NULL. */
    const int64_t *offsets; /* in host memory */
    uint64_t offset;        /* OpenCL: where the field begins in `data`, in bytes */
} brim_field;

/* A batch: its position in the epoch, and its rows. */
typedef struct brim_batch_info {
    uint64_t epoch;
    uint64_t step;  /* in the epoch, from 0; its micro-batches share it */
    uint32_t micro; /* which of the step's micro-batches */
    uint32_t micro_count;
    uint64_t rows;           /* of the first dimension, including padded rows */
    uint64_t valid_rows;     /* 0: all samples were bad (see brim_loader_next), or all rows are
                                padded */
    uint64_t skipped;        /* bad samples that were left out */
    uint64_t step_rows;      /* valid rows that the step has at this rank, as planned */
    uint64_t global_rows;    /* the same over all ranks */
    uint64_t first_position; /* of its first row, in the epoch's global order; bucket: 0 */
    const uint64_t *samples; /* the number of each row's sample; UINT64_MAX where padded */
    const uint8_t *valid;    /* for each row: 1 valid, 0 padded */
    uint32_t field_count;
} brim_batch_info;

/* Owned by the batch, valid until it is released. NULL: there is no such field. */
BRIM_API const brim_batch_info *brim_batch_get(const brim_batch *batch);
BRIM_API const brim_field *brim_batch_field_at(const brim_batch *batch, size_t index);
BRIM_API const brim_field *brim_batch_find(const brim_batch *batch, const char *name);
/* The state of a loader that has delivered the batches up to this one. */
BRIM_API brim_status brim_batch_state(const brim_batch *batch, brim_state *state);
/* A copy, charged to the loader's budget. It does not count as held, and is released as a batch. */
BRIM_API brim_status brim_batch_copy(const brim_batch *batch, brim_batch **copy);
BRIM_API void brim_batch_release(brim_batch *batch);

/* Makes work that is put into `queue` after this call wait for the batch; NULL: the call itself
 * waits until the batch is on the device. On the host it does nothing. */
BRIM_API brim_status brim_batch_wait(const brim_batch *batch, void *queue);
/* Releases a batch that work in `queue` may still read: its memory is used again, or given back,
 * only after the work that was put into the queue before this call. NULL: no work reads it now.
 * brim_batch_release does this with the queue that the loader was opened with. For a copy, and
 * after brim_loader_close, the call itself waits for that work. OpenCL: the queue belongs to the
 * context of the batches, which is that of the loader's device_queue. */
BRIM_API void brim_batch_release_after(brim_batch *batch, void *queue);
/* Copies a field to host memory, which has room for field->bytes, and waits for it. */
BRIM_API brim_status brim_batch_copy_field(const brim_batch *batch, size_t field, void *data,
                                           uint64_t bytes);

/* ---------------------------------------------------------------- outputs
 *
 * A file that appears under its name only when it is complete: a reader finds the old
 * file or the whole new one. Until then it is PATH.PID-N.tmp, in the same directory. A
 * process that is killed leaves such a file; it is removed when PATH is written again, an hour
 * later or more. */

/* A file that is being written; destroyed by brim_output_commit or brim_output_free. */
typedef struct brim_output brim_output;

/* The file has the permissions that the process's umask leaves. If PATH is a link, the file that
 * it leads to is replaced; a link of another user, who could have planted it, is refused. */
BRIM_API brim_status brim_output_new(const char *path, brim_output **output);
/* The descriptor to write to, which the library closes; -1: `output` is NULL. */
BRIM_API int brim_output_file(const brim_output *output);
/* Syncs the file and renames it to PATH. On failure the old file is still in place, with one
 * exception: if only the directory cannot be synced ("cannot be entered on the disk"), the new file
 * is in place, and a loss of power may undo that. The handle is gone in every case. */
BRIM_API brim_status brim_output_commit(brim_output *output);
/* Removes the unfinished file. */
BRIM_API void brim_output_free(brim_output *output);

#ifdef __cplusplus
}
#endif

#endif /* BRIM_H */
