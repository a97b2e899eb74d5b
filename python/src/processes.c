/*
 * processes.c: Python functions in worker processes, the program's side.
 *
 * A pool has up to `count` processes for one function, all equal. A brim worker that
 * has a sample takes an idle one, or starts one, or waits; hands the sample over
 * (processes.h) and waits for the reply. It holds no Python lock: that is taken
 * only to start a process and to make an exception out of a reply. So as many
 * processes work at a time as the loader has threads.
 *
 *     EMPTY -> BUSY -> IDLE -> BUSY -> ... -> EMPTY
 *              started by its first holder     died, or the pool was stopped
 *
 * A process whose function takes longer than the pool's time-out is killed, and its
 * sample fails: it would hang again. The time begins when the process has been sent the
 * sample, so that starting up does not count.
 *
 * A process that dies is replaced and the sample tried again: what it wrote is written anew, and it
 * is dead for sure before the next one begins. A batch_map is the exception: it may have changed
 * the batch already. That batch fails, and is made again from its samples when the loader is asked
 * again.
 *
 * Locks: pools_lock guards the list of pools (for fork and for usage), a pool's mutex
 * its processes; pools_lock is taken first. Neither is held while waiting for a
 * process or for Python's lock. Of a process, `state`, `pid`, `socket` and `counts`
 * are guarded by the mutex; the rest belongs to the thread that made it BUSY.
 *
 * After fork the child closes the sockets and forgets the processes: they are not its
 * own, and must see the program's end when the program ends.
 */
#include "processes.h"
#include "extension.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRIES    3     /* of a sample whose process dies */
#define START_MS 60000 /* that a process may take to come up */
#define SLICE_MS 1000  /* between looks at whether it lives */
#define GRACE_MS 500   /* to end by itself, before it is killed */
#define MOST     1024  /* processes of a pool */

#define MOST_SECONDS 1000000 /* of a time-out */

enum state { EMPTY, IDLE, BUSY };

struct counts {
    uint64_t calls;
    struct copied copied;
};

struct process {
    enum state state;
    pid_t pid;  /* 0: none */
    int socket; /* -1: none */
    struct counts counts;
    uint64_t requests; /* so far, to it and to those before it */
    struct handover handover;
};

struct processes {
    pthread_mutex_t mutex;
    pthread_cond_t freed;
    PyObject *spawn;
    struct bounce_budget budget;
    char label[BRIM_NAME_BYTES];
    int64_t timeout_ms;     /* of one call; 0: none */
    struct processes *next; /* pools_lock */
    int stopping;           /* mutex */
    int forked;             /* set in a child of fork, which is the only thread there */
    unsigned count;
    struct process process[];
};

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static struct processes *pools;

/* How one try ended: the process has replied; or `why` says why not, and the process
 * is as it was (REFUSED) or not to be used again (GIVEN_UP), or has not replied in time
 * and must be killed (TIMED_OUT); or it died, before it had
 * taken the request for sure (UNREAD) or perhaps later (DIED), or sent an invalid reply
 * (GARBLED), and another one may do better. */
enum outcome { REPLIED, REFUSED, GIVEN_UP, TIMED_OUT, UNREAD, DIED, GARBLED };

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void nap(void) {
    const struct timespec time = { .tv_nsec = 2000000 };
    nanosleep(&time, NULL);
}

/* --------------------------------------------------------------------- fork */

static void before_fork(void) {
    pthread_mutex_lock(&pools_lock);
}

static void after_fork(void) {
    pthread_mutex_unlock(&pools_lock);
}

static void forget_processes(void) {
    for (struct processes *pool = pools; pool != NULL; pool = pool->next) {
        pool->forked = 1;
        for (unsigned i = 0; i < pool->count; i++) {
            struct process *process = &pool->process[i];
            if (process->socket >= 0) {
                close(process->socket);
            }
            process->socket = -1;
            process->pid = 0;
        }
    }
    pthread_mutex_unlock(&pools_lock);
}

static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork, forget_processes);
}

/* ------------------------------------------------------------------- ending */

/* Waits for the end of a process, killing it after GRACE_MS. What waitpid says of
 * it; -1 if other code has taken that. */
static int reap(pid_t pid) {
    const int64_t until = now_ms() + GRACE_MS;
    int killed = 0;
    for (;;) {
        int status;
        const pid_t done = waitpid(pid, &status, WNOHANG);
        if (done == pid) {
            return status;
        }
        if (done < 0 && errno != EINTR) {
            return -1;
        }
        if (!killed && now_ms() >= until) {
            kill(pid, SIGKILL);
            killed = 1;
        }
        nap();
    }
}

/* Ends a process that the caller has made BUSY. */
static int bury(struct processes *pool, struct process *process) {
    pthread_mutex_lock(&pool->mutex);
    const pid_t pid = process->pid;
    const int socket = process->socket;
    process->pid = 0;
    process->socket = -1;
    pthread_mutex_unlock(&pool->mutex);
    if (socket >= 0) {
        close(socket);
    }
    const int status = pid > 0 ? reap(pid) : -1;
    brim_py_handover_begin(&process->handover);
    return status;
}

void brim_py_processes_stop(struct processes *pool) {
    if (pool == NULL || pool->forked) {
        return;
    }
    pthread_mutex_lock(&pool->mutex);
    pool->stopping = 1;
    for (unsigned i = 0; i < pool->count; i++) {
        if (pool->process[i].socket >= 0) {
            /* idle ones end by themselves; a thread that waits for a busy one sees the
             * end of its packets, and reaps it */
            shutdown(pool->process[i].socket, SHUT_RDWR);
        }
    }
    for (unsigned i = 0; i < pool->count; i++) {
        struct process *process = &pool->process[i];
        if (process->state == IDLE) {
            process->state = BUSY;
            pthread_mutex_unlock(&pool->mutex);
            bury(pool, process);
            pthread_mutex_lock(&pool->mutex);
            process->state = EMPTY;
        }
    }
    pthread_mutex_unlock(&pool->mutex);
    pthread_cond_broadcast(&pool->freed);
}

/* ------------------------------------------------------------------- errors */

/* The exception of a reply, kept for the call that asked for the batch. Returns
 * what the callback does. */
static int keep_reply(const struct reply *reply, char *why, size_t why_bytes) {
    PyGILState_STATE lock;
    if (!brim_py_enter(&lock)) {
        return BRIM_ANSWER_STOP;
    }
    int answer = BRIM_ANSWER_BAD;
    PyObject *module = PyImport_ImportModule("brim._workers");
    PyObject *exception = module == NULL
                              ? NULL
                              : PyObject_CallMethod(module, "rebuild", "y#y#", reply->bytes,
                                                    (Py_ssize_t)reply->exception_bytes,
                                                    reply->bytes + reply->exception_bytes,
                                                    (Py_ssize_t)reply->text_bytes);
    if (exception != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
        answer = brim_py_answer_to_exception();
    }
    brim_py_keep_exception(why, why_bytes);
    Py_XDECREF(exception);
    Py_XDECREF(module);
    brim_py_leave(lock);
    return answer;
}

/* The time-out of a call as a TimeoutError, kept likewise. */
static void keep_timeout(const struct processes *pool, const struct work *work, pid_t pid) {
    const int batch = work->request->kind == CALL_BATCH_MAP;
    char text[256];
    snprintf(text, sizeof text,
             "@%s did not return within timeout=%g seconds %s %llu; its worker process %d was "
             "killed and is replaced",
             pool->label, (double)pool->timeout_ms / 1000,
             batch ? "in the batch at position" : "at sample",
             (unsigned long long)work->call->sample, (int)pid);
    snprintf(work->why, work->why_bytes, "%s", text); /* if the interpreter is ending */
    PyGILState_STATE lock;
    if (brim_py_enter(&lock)) {
        PyErr_SetString(PyExc_TimeoutError, text);
        brim_py_keep_exception(work->why, work->why_bytes);
        brim_py_leave(lock);
    }
}

/* Whether Ctrl-C was pressed while the program's main thread works for a loader
 * without threads. It is raised there again, once the call has returned. */
static int was_interrupted(char *why, size_t why_bytes) {
    if (syscall(SYS_gettid) != getpid()) {
        return 0;
    }
    PyGILState_STATE lock;
    if (!brim_py_enter(&lock)) {
        return 0;
    }
    const int interrupted = PyErr_CheckSignals() != 0;
    if (interrupted) {
        const int keyboard = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
        brim_py_keep_exception(why, why_bytes);
        if (keyboard) {
            PyErr_SetInterrupt();
        }
    }
    brim_py_leave(lock);
    return interrupted;
}

/* How a process ended, in words. */
static void tell_end(enum outcome outcome, int status, pid_t pid, char *text, size_t text_bytes) {
    if (outcome == GARBLED) {
        snprintf(text, text_bytes, "worker process %d sent an invalid reply", (int)pid);
    } else if (status != -1 && WIFSIGNALED(status)) {
        const char *const name = strsignal(WTERMSIG(status));
        snprintf(text, text_bytes, "worker process %d was ended by signal %d (%s)", (int)pid,
                 WTERMSIG(status), name != NULL ? name : "unknown");
    } else if (status != -1 && WIFEXITED(status)) {
        snprintf(text, text_bytes, "worker process %d left with exit code %d", (int)pid,
                 WEXITSTATUS(status));
    } else {
        snprintf(text, text_bytes, "worker process %d is gone", (int)pid);
    }
}

/* What may have ended it. */
static const char *guess_cause(enum outcome outcome, int status) {
    if (outcome == GARBLED) {
        return "the function may write to a descriptor that is not its own";
    }
    if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == CANNOT_MAP) {
        return "it had no descriptor or no addresses left to map the sample's memory, see "
               "ulimit -n and -v";
    }
    return "the function may crash on what it was given, or need more memory than the system "
           "or process_memory allows";
}

/* ----------------------------------------------------------------- the pool */

static PyObject *attribute(PyObject *object, const char *name) {
    PyObject *value = PyObject_GetAttrString(object, name);
    if (value == NULL) {
        PyErr_Format(PyExc_TypeError, "the spawner has no attribute '%s'", name);
    }
    return value;
}

/* The pool's time-out, in milliseconds. */
static int take_timeout(struct processes *pool, PyObject *spawn) {
    PyObject *seconds = attribute(spawn, "timeout");
    if (seconds == NULL) {
        return -1;
    }
    if (seconds != Py_None) {
        const double value = PyFloat_AsDouble(seconds);
        if (PyErr_Occurred() == NULL && !(value > 0 && value <= MOST_SECONDS)) {
            PyErr_Format(PyExc_ValueError, "timeout=%R, but it is above 0 and at most %d seconds",
                         seconds, MOST_SECONDS);
        }
        pool->timeout_ms = PyErr_Occurred() == NULL && value >= 0.001 ? (int64_t)(value * 1000) : 1;
    }
    Py_DECREF(seconds);
    return PyErr_Occurred() != NULL ? -1 : 0;
}

/* Where the pool's budget will be, and its label. */
static int find_budget(struct processes *pool, PyObject *spawn) {
    PyObject *label = attribute(spawn, "label"), *runtime = attribute(spawn, "runtime");
    const char *text = label != NULL ? PyUnicode_AsUTF8AndSize(label, NULL) : NULL;
    int result = -1;
    if (text != NULL && runtime != NULL) {
        snprintf(pool->label, sizeof pool->label, "%s", text);
        if (!PyObject_TypeCheck(runtime, brim_py_runtime_type) ||
            ((RuntimeObject *)runtime)->runtime == NULL) {
            PyErr_SetString(brim_py_closed_error, "the runtime of worker processes is closed");
        } else {
            snprintf(pool->budget.label, sizeof pool->budget.label, "processes of %.30s",
                     pool->label);
            pool->budget.above = brim_runtime_budget(((RuntimeObject *)runtime)->runtime);
            result = 0;
        }
    }
    Py_XDECREF(label);
    Py_XDECREF(runtime);
    return result;
}

struct processes *brim_py_processes_new(PyObject *spawn, Py_ssize_t count) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (count < 1 || count > MOST) {
        PyErr_Format(PyExc_ValueError, "processes=%zd, but a function has 1 to %d of them", count,
                     MOST);
        return NULL;
    }
    pthread_once(&once, watch_forks);
    struct processes *pool =
        PyMem_Malloc(sizeof(struct processes) + (size_t)count * sizeof(struct process));
    if (pool == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *pool = (struct processes){ .count = (unsigned)count };
    if (take_timeout(pool, spawn) != 0 || find_budget(pool, spawn) != 0) {
        PyMem_Free(pool);
        return NULL;
    }
    for (unsigned i = 0; i < pool->count; i++) {
        pool->process[i] = (struct process){ .socket = -1 };
        brim_py_handover_init(&pool->process[i].handover, &pool->budget);
    }
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->freed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pool->spawn = Py_NewRef(spawn);
    pthread_mutex_lock(&pools_lock);
    pool->next = pools;
    pools = pool;
    pthread_mutex_unlock(&pools_lock);
    return pool;
}

void brim_py_processes_free(struct processes *pool) {
    if (pool == NULL) {
        return;
    }
    BRIM_WITHOUT_LOCK(brim_py_processes_stop(pool));
    pthread_mutex_lock(&pools_lock);
    struct processes **link = &pools;
    while (*link != pool) {
        link = &(*link)->next;
    }
    *link = pool->next;
    pthread_mutex_unlock(&pools_lock);
    for (unsigned i = 0; i < pool->count; i++) {
        brim_py_handover_fini(&pool->process[i].handover);
    }
    brim_budget_free(atomic_load(&pool->budget.budget));
    if (!pool->forked) {
        pthread_cond_destroy(&pool->freed);
        pthread_mutex_destroy(&pool->mutex);
    }
    Py_DECREF(pool->spawn);
    PyMem_Free(pool);
}

/* An idle process, else one that can be started, else NULL. The mutex is held. */
static struct process *find_free(struct processes *pool) {
    struct process *empty = NULL;
    for (unsigned i = 0; i < pool->count; i++) {
        struct process *process = &pool->process[i];
        if (process->state == IDLE) {
            return process;
        }
        empty = empty == NULL && process->state == EMPTY ? process : empty;
    }
    return empty;
}

/* A process that is the caller's until `leave`; its pid is 0 if it must be started.
 * NULL with `why`: the pool is being stopped, or Ctrl-C was pressed. */
static struct process *take(struct processes *pool, char *why, size_t why_bytes) {
    struct process *taken = NULL;
    int interrupted = 0;
    pthread_mutex_lock(&pool->mutex);
    while (taken == NULL && !pool->stopping && !interrupted) {
        taken = find_free(pool);
        if (taken != NULL) {
            taken->state = BUSY;
            break;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += SLICE_MS / 1000;
        if (pthread_cond_timedwait(&pool->freed, &pool->mutex, &until) == ETIMEDOUT) {
            pthread_mutex_unlock(&pool->mutex);
            interrupted = was_interrupted(why, why_bytes);
            pthread_mutex_lock(&pool->mutex);
        }
    }
    pthread_mutex_unlock(&pool->mutex);
    if (taken == NULL && !interrupted) {
        snprintf(why, why_bytes, "the worker processes are being stopped");
    }
    return taken;
}

static void leave(struct processes *pool, struct process *process, const struct copied *copied) {
    pthread_mutex_lock(&pool->mutex);
    process->state = process->pid > 0 ? IDLE : EMPTY;
    process->counts.calls++;
    process->counts.copied.in += copied->in;
    process->counts.copied.out += copied->out;
    const int stopping = pool->stopping;
    pthread_mutex_unlock(&pool->mutex);
    pthread_cond_signal(&pool->freed);
    if (stopping) {
        brim_py_processes_stop(pool); /* which did not touch it while it was busy */
    }
}

/* One process of the list. */
struct row {
    int pid;
    char label[BRIM_NAME_BYTES];
    struct counts counts;
};

/* Up to `most` rows into `rows`; how many there are. Calls nothing in Python, whose
 * collector might free a pool. */
static size_t read_rows(struct row *rows, size_t most) {
    size_t count = 0;
    pthread_mutex_lock(&pools_lock);
    for (struct processes *pool = pools; pool != NULL; pool = pool->next) {
        if (pool->forked) {
            continue;
        }
        pthread_mutex_lock(&pool->mutex);
        for (unsigned i = 0; i < pool->count; i++) {
            const struct process *process = &pool->process[i];
            if (process->pid > 0 && count++ < most) {
                rows[count - 1] = (struct row){ .pid = process->pid, .counts = process->counts };
                memcpy(rows[count - 1].label, pool->label, sizeof pool->label);
            }
        }
        pthread_mutex_unlock(&pool->mutex);
    }
    pthread_mutex_unlock(&pools_lock);
    return count;
}

PyObject *brim_py_processes_list(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    const size_t most = read_rows(NULL, 0);
    struct row *rows = PyMem_Malloc((most + 1) * sizeof(struct row));
    if (rows == NULL) {
        return PyErr_NoMemory();
    }
    const size_t found = read_rows(rows, most), count = found < most ? found : most;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count; i++) {
        const struct counts *counts = &rows[i].counts;
        PyObject *row = Py_BuildValue("{s:i,s:s,s:K,s:K,s:K}", "pid", rows[i].pid, "function",
                                      rows[i].label, "calls", (unsigned long long)counts->calls,
                                      "copied_in", (unsigned long long)counts->copied.in,
                                      "copied_out", (unsigned long long)counts->copied.out);
        if (row == NULL || PyList_Append(list, row) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
    }
    PyMem_Free(rows);
    return list;
}

/* ------------------------------------------------------------------ talking */

static int is_dead(pid_t pid) {
    siginfo_t info = { 0 };
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

/* Whether a packet of `bytes` bytes is the reply to a request, and all that it says of
 * itself is so. */
static int is_reply(const struct reply *reply, size_t bytes, uint64_t number) {
    const size_t head = offsetof(struct reply, bytes);
    return bytes >= head && reply->number == number && reply->result >= FAILED &&
           reply->result <= 1 && reply->exception_bytes <= EXCEPTION_MOST &&
           reply->text_bytes <= EXCEPTION_MOST &&
           bytes == head + reply->exception_bytes + reply->text_bytes;
}

/* How long to wait for a packet before looking at other things. */
static int slice_until(int64_t until) {
    const int64_t left = until == 0 ? SLICE_MS : until - now_ms();
    return left > SLICE_MS ? SLICE_MS : left < 0 ? 0 : (int)left;
}

/* The reply to a request. until: 0 without limit; TIMED_OUT then. A child of the process may
 * hold its socket open after its death, so that is looked at too. */
static enum outcome receive(const struct process *process, uint64_t number, int64_t until,
                            struct reply *reply, char *why, size_t why_bytes) {
    for (;;) {
        struct pollfd packet = { .fd = process->socket, .events = POLLIN };
        const int ready = poll(&packet, 1, slice_until(until));
        if (ready > 0) {
            const ssize_t bytes =
                recv(process->socket, reply, sizeof *reply, MSG_DONTWAIT | MSG_TRUNC);
            if (bytes > 0) {
                return is_reply(reply, (size_t)bytes, number) ? REPLIED : GARBLED;
            }
            if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) {
                continue;
            }
            /* what a socket is closed on, unread, is told to the other end as a reset */
            return bytes < 0 && errno == ECONNRESET ? UNREAD : DIED;
        }
        if (was_interrupted(why, why_bytes)) {
            return GIVEN_UP;
        }
        if (ready == 0 && is_dead(process->pid)) {
            return DIED;
        }
        if (until != 0 && now_ms() >= until) {
            return TIMED_OUT;
        }
    }
}

/* Starts the process and waits until it is ready. */
static enum outcome start(struct processes *pool, struct process *process, struct reply *reply,
                          char *why, size_t why_bytes) {
    int pid = 0, socket = -1;
    PyGILState_STATE lock;
    if (!brim_py_enter(&lock)) {
        snprintf(why, why_bytes, "the interpreter is ending");
        return GIVEN_UP;
    }
    PyObject *made = PyObject_CallNoArgs(pool->spawn);
    if (made == NULL || !PyArg_ParseTuple(made, "ii", &pid, &socket)) {
        brim_py_keep_exception(why, why_bytes);
    }
    Py_XDECREF(made);
    brim_py_leave(lock);
    if (pid == 0) {
        return GIVEN_UP;
    }
    pthread_mutex_lock(&pool->mutex);
    process->pid = pid;
    process->socket = socket;
    if (pool->stopping) {
        shutdown(socket, SHUT_RDWR);
    }
    pthread_mutex_unlock(&pool->mutex);
    const enum outcome outcome = receive(process, 0, now_ms() + START_MS, reply, why, why_bytes);
    if (outcome == TIMED_OUT) {
        snprintf(why, why_bytes, "worker process %d did not start within %d seconds", pid,
                 START_MS / 1000);
        return GIVEN_UP;
    }
    if (outcome == REPLIED && reply->result == FAILED) {
        keep_reply(reply, why, why_bytes);
        return GIVEN_UP;
    }
    return outcome;
}

static int send_request(const struct process *process, const struct request *request,
                        const int files[REGIONS], size_t file_count) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(REGIONS * sizeof(int))];
    } control = { 0 };
    const size_t count = (size_t)request->input_count + request->output_count;
    struct iovec data = { .iov_base = (void *)(uintptr_t)request,
                          .iov_len =
                              offsetof(struct request, value) + count * sizeof(struct wire_value) };
    struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };
    if (file_count > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(file_count * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(file_count * sizeof(int));
        memcpy(CMSG_DATA(&control.header), files, file_count * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(process->socket, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -1 : 0;
}

/* ------------------------------------------------------------------ calling */

static enum outcome run(struct processes *pool, struct process *process, struct work *work) {
    if (process->pid == 0) {
        const enum outcome outcome = start(pool, process, work->reply, work->why, work->why_bytes);
        if (outcome != REPLIED) {
            return outcome == DIED ? UNREAD : outcome;
        }
    }
    int files[REGIONS];
    size_t file_count;
    if (brim_py_hand_over(&process->handover, work, files, &file_count) != 0) {
        return REFUSED;
    }
    work->request->number = ++process->requests;
    if (send_request(process, work->request, files, file_count) != 0) {
        return UNREAD;
    }
    const int64_t until = pool->timeout_ms > 0 ? now_ms() + pool->timeout_ms : 0;
    const enum outcome outcome =
        receive(process, work->request->number, until, work->reply, work->why, work->why_bytes);
    if (outcome == REPLIED && work->reply->result != FAILED) {
        brim_py_take_back(&process->handover, work);
    }
    return outcome;
}

/* What the callback returns. */
static int work_on(struct processes *pool, struct work *work) {
    if (work->input_count + work->output_count > MAX_VALUES) {
        snprintf(work->why, work->why_bytes,
                 "%zu fields are more than the %d that worker processes take",
                 work->input_count + work->output_count, MAX_VALUES);
        return FAILED;
    }
    brim_py_write_request(work);
    char end[128];
    const char *cause = "";
    for (int tries = 0; tries < TRIES; tries++) {
        struct process *process = take(pool, work->why, work->why_bytes);
        if (process == NULL) {
            return FAILED;
        }
        const enum outcome outcome = run(pool, process, work);
        const pid_t pid = process->pid;
        const int again = outcome == UNREAD || outcome == DIED || outcome == GARBLED;
        if ((outcome == GARBLED || outcome == TIMED_OUT) && !is_dead(pid)) {
            kill(pid, SIGKILL);
        }
        if (again || outcome == GIVEN_UP || outcome == TIMED_OUT) {
            const int status = bury(pool, process);
            tell_end(outcome, status, pid, end, sizeof end);
            cause = guess_cause(outcome, status);
        }
        leave(pool, process, &work->copied);
        work->copied = (struct copied){ 0 };
        int answer = outcome == REPLIED ? work->reply->result : FAILED;
        if (outcome == REPLIED && answer == FAILED) {
            answer = keep_reply(work->reply, work->why, work->why_bytes);
        } else if (outcome == TIMED_OUT) {
            keep_timeout(pool, work, pid);
        }
        if (!again) {
            return answer;
        }
        if (outcome != UNREAD && work->request->kind == CALL_BATCH_MAP) {
            snprintf(work->why, work->why_bytes, "%s in the batch at position %llu; %s", end,
                     (unsigned long long)work->call->sample, cause);
            return FAILED;
        }
    }
    snprintf(work->why, work->why_bytes, "%s at sample %llu, as did the %d before it; %s", end,
             (unsigned long long)work->call->sample, TRIES - 1, cause);
    return FAILED;
}

int brim_py_processes_map(struct processes *processes, const brim_call *call,
                          const brim_value *inputs, size_t input_count, int writable,
                          brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    struct request request = { .kind = writable ? CALL_BATCH_MAP : CALL_MAP };
    struct reply reply;
    struct work work = { .call = call,
                         .inputs = inputs,
                         .outputs = outputs,
                         .input_count = input_count,
                         .output_count = output_count,
                         .request = &request,
                         .reply = &reply,
                         .why = why,
                         .why_bytes = why_bytes };
    return work_on(processes, &work);
}

int brim_py_processes_filter(struct processes *processes, const brim_call *call,
                             const brim_value *inputs, size_t input_count, char *why,
                             size_t why_bytes) {
    struct request request = { .kind = CALL_FILTER };
    struct reply reply;
    struct work work = { .call = call,
                         .inputs = inputs,
                         .input_count = input_count,
                         .request = &request,
                         .reply = &reply,
                         .why = why,
                         .why_bytes = why_bytes };
    return work_on(processes, &work);
}
