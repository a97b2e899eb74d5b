/*
 * interpreter.c: the interpreter's lock on brim's threads.
 *
 * A thread needs a Python thread state to run Python. PyGILState_Ensure makes one for
 * a thread that has none and throws it away again, which costs more than a small
 * function does and loses what threading.local keeps. So the first call on a thread
 * makes a state that stays:
 *
 *     first call    Ensure (makes it), SaveThread (lock given back, state stays)
 *     every call    Ensure ... Release
 *     thread's end  the state is put on the list of those without a thread
 *
 * Clearing a state takes the interpreter's lock, but a thread that ends brim's threads
 * and waits for them may hold it. So states of threads that have ended are cleared later,
 * by the next thread that comes here for the first time: there are never more of them
 * than threads have lived at once. That thread has no state of its own yet, which
 * matters: PyThreadState_Delete forgets the calling thread's (3.12).
 *
 * Invariant: a state is on the list at most once, and only in the process that made
 * it; after fork Python has deleted the states of all other threads in the child.
 */
#include "extension.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct kept {
    PyThreadState *state;
    pid_t process;
    struct kept *next;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* a thread's struct kept; its destructor runs at the thread's end */
static int key_works;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct kept *without_thread; /* mutex */

static void give_up(void *value) {
    struct kept *kept = value;
    pthread_mutex_lock(&mutex);
    kept->next = without_thread;
    without_thread = kept;
    pthread_mutex_unlock(&mutex);
}

/* fork copies a mutex as it is, perhaps held by a thread that the child has not. */
static void begin_in_child(void) {
    pthread_mutex_init(&mutex, NULL);
    without_thread = NULL;
}

static void init(void) {
    key_works =
        pthread_key_create(&key, give_up) == 0 && pthread_atfork(NULL, NULL, begin_in_child) == 0;
}

/* Clears the states of threads that have ended. This thread has none, and no lock. */
static void sweep(void) {
    pthread_mutex_lock(&mutex);
    struct kept *kept = without_thread;
    without_thread = NULL;
    pthread_mutex_unlock(&mutex);
    while (kept != NULL) {
        struct kept *next = kept->next;
        if (kept->process == getpid()) {
            PyEval_RestoreThread(kept->state);
            PyThreadState_Clear(kept->state);
            PyEval_ReleaseThread(kept->state);
            PyThreadState_Delete(kept->state);
        }
        free(kept);
        kept = next;
    }
}

/* Makes a state that stays. If that fails, calls work all the same. */
static void keep_state(void) {
    pthread_once(&once, init);
    /* zero: taking the lock of an interpreter that ends may end the thread below */
    struct kept *kept = key_works ? calloc(1, sizeof *kept) : NULL;
    if (kept == NULL) {
        return;
    }
    if (pthread_setspecific(key, kept) != 0) {
        free(kept);
        return;
    }
    sweep();
    PyGILState_Ensure();
    *kept = (struct kept){ .state = PyEval_SaveThread(), .process = getpid() };
}

int brim_py_enter(PyGILState_STATE *state) {
    if (!Py_IsInitialized()) {
        return 0;
    }
    if (PyGILState_GetThisThreadState() == NULL) {
        keep_state();
    }
    *state = PyGILState_Ensure();
    return 1;
}

void brim_py_leave(PyGILState_STATE state) {
    PyGILState_Release(state);
}
