/*
 * serve.c: inside a worker process. processes.h describes the protocol, brim/_worker.py the start
 * of the process.
 *
 * The main thread takes requests and calls the function. A second thread does
 * nothing but wait for the program to close the socket, or to die: then it ends this
 * process, after a moment in which the main thread may end by itself, so that a
 * function that hangs does not keep the process alive.
 */
#include "extension.h"
#include "processes.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

struct map {
    uint8_t *memory; /* NULL: none */
    uint64_t bytes;
};

struct server {
    int socket;
    PyObject *call, *describe;
    struct map map[MAPS];
    struct request request;
    struct reply reply;
};

/* ---------------------------------------------------------------- the watch */

static void *watch(void *user) {
    struct pollfd hang_up = { .fd = *(const int *)user, .events = POLLRDHUP };
    while (poll(&hang_up, 1, -1) < 0 && errno == EINTR) {
    }
    sleep(1);
    _exit(EXIT_FAILURE);
}

static int start_watch(const struct server *server) {
    pthread_t thread;
    /* not const for pthread's sake */
    const int error = pthread_create(&thread, NULL, watch, (void *)(uintptr_t)&server->socket);
    if (error != 0) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    pthread_detach(thread);
    return 0;
}

/* ------------------------------------------------------------------ packets */

/* The bytes of a request and those of its descriptors that this process could take;
 * 0: the program has gone. */
static ssize_t take_packet(struct server *server, int files[REGIONS], size_t *file_count) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(REGIONS * sizeof(int))];
    } control;
    struct iovec data = { .iov_base = &server->request, .iov_len = sizeof server->request };
    struct msghdr message = { .msg_iov = &data,
                              .msg_iovlen = 1,
                              .msg_control = &control,
                              .msg_controllen = CMSG_LEN(REGIONS * sizeof(int)) };
    ssize_t bytes;
    do {
        bytes = recvmsg(server->socket, &message, MSG_CMSG_CLOEXEC);
    } while (bytes < 0 && errno == EINTR);
    *file_count = 0;
    const struct cmsghdr *header = bytes > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        *file_count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(files, CMSG_DATA(header), *file_count * sizeof(int));
    }
    return bytes < 0 ? 0 : bytes;
}

static int send_reply(struct server *server) {
    struct reply *reply = &server->reply;
    const size_t bytes = offsetof(struct reply, bytes) + reply->exception_bytes + reply->text_bytes;
    ssize_t sent;
    do {
        sent = send(server->socket, reply, bytes, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)bytes ? 0 : -1;
}

/* Takes the exception that is set over into the reply. */
static void tell_exception(struct server *server) {
    struct reply *reply = &server->reply;
    PyObject *type, *exception, *traceback;
    PyErr_Fetch(&type, &exception, &traceback);
    PyErr_NormalizeException(&type, &exception, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(exception, traceback);
    }
    const char *pickled = "", *text = "";
    Py_ssize_t pickled_bytes = 0, text_bytes = 0;
    PyObject *described = PyObject_CallFunctionObjArgs(server->describe, exception, NULL);
    if (described == NULL ||
        !PyArg_ParseTuple(described, "y#y#", &pickled, &pickled_bytes, &text, &text_bytes)) {
        PyErr_Clear();
        text = "the exception cannot be described";
        text_bytes = (Py_ssize_t)strlen(text);
        pickled_bytes = 0;
    }
    reply->result = FAILED;
    reply->exception_bytes = pickled_bytes > EXCEPTION_MOST ? 0 : (uint32_t)pickled_bytes;
    reply->text_bytes = text_bytes > EXCEPTION_MOST ? EXCEPTION_MOST : (uint32_t)text_bytes;
    memcpy(reply->bytes, pickled, reply->exception_bytes);
    memcpy(reply->bytes + reply->exception_bytes, text, reply->text_bytes);
    Py_XDECREF(described);
    Py_XDECREF(type);
    Py_XDECREF(exception);
    Py_XDECREF(traceback);
}

/* ------------------------------------------------------------------- values */

static int map_file(struct map *map, int file, uint64_t bytes) {
    if (map->memory != NULL) {
        munmap(map->memory, map->bytes);
        *map = (struct map){ .memory = NULL };
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        return -1;
    }
    *map = (struct map){ .memory = memory, .bytes = bytes };
    return 0;
}

/* Maps what is new; the descriptors are needed no longer. If one is missing (the function
 * has left no room for it) or cannot be mapped, the process ends at once: at that
 * place is what was there before, and the program believes otherwise. */
static void take_files(struct server *server, const int files[REGIONS], size_t file_count) {
    size_t used = 0;
    for (size_t r = 0; r < REGIONS; r++) {
        const struct wire_region *region = &server->request.region[r];
        if (region->bytes == 0 || !region->fresh) {
            continue;
        }
        if (used == file_count || region->map >= MAPS ||
            map_file(&server->map[region->map], files[used], region->bytes) != 0) {
            _exit(CANNOT_MAP);
        }
        close(files[used++]);
    }
}

/* The value in this process's memory. */
static int place(const struct server *server, const struct wire_value *wire, brim_value *value) {
    static _Alignas(64) uint8_t nothing[64];
    *value = (brim_value){ .size = sizeof *value,
                           .name = wire->name,
                           .dtype = (brim_dtype)wire->dtype,
                           .rank = wire->rank,
                           .data = nothing,
                           .bytes = wire->bytes,
                           .form = (brim_form)wire->form };
    memcpy(value->shape, wire->shape, sizeof value->shape);
    if (wire->region == NOWHERE) {
        return 0;
    }
    const struct wire_region *region = &server->request.region[wire->region];
    const struct map *map = &server->map[region->map];
    if (map->memory == NULL || wire->offset > map->bytes ||
        wire->bytes > map->bytes - wire->offset) {
        PyErr_Format(PyExc_RuntimeError, "field '%s' lies outside of what is mapped", wire->name);
        return -1;
    }
    value->data = map->memory + wire->offset;
    return 0;
}

static int call(struct server *server) {
    const struct request *request = &server->request;
    const size_t count = (size_t)request->input_count + request->output_count;
    brim_value value[MAX_VALUES];
    for (size_t i = 0; i < count; i++) {
        if (place(server, &request->value[i], &value[i]) != 0) {
            return -1;
        }
    }
    const brim_call which = { .size = sizeof(brim_call),
                              .sample = request->sample,
                              .epoch = request->epoch,
                              .key = request->key };
    const brim_value *inputs = request->input_count > 0 ? value : NULL; /* none: a source */
    brim_value *outputs = value + request->input_count;
    const int result =
        request->kind == CALL_FILTER
            ? brim_py_call_filter(server->call, &which, inputs, request->input_count)
            : brim_py_call_map(server->call, &which, inputs, request->input_count,
                               request->kind == CALL_BATCH_MAP, outputs, request->output_count);
    for (size_t i = request->input_count; i < count; i++) {
        server->reply.length[i - request->input_count] = value[i].rank > 0 ? value[i].shape[0] : 0;
    }
    return result;
}

/* -------------------------------------------------------------------- serve */

/* 1: goes on, 0: the program has gone. */
static int serve_one(struct server *server) {
    int files[REGIONS];
    size_t file_count;
    ssize_t bytes;
    BRIM_WITHOUT_LOCK(bytes = take_packet(server, files, &file_count));
    if (bytes == 0) {
        return 0;
    }
    struct reply *reply = &server->reply;
    memset(reply, 0, offsetof(struct reply, bytes));
    reply->number = server->request.number;
    take_files(server, files, file_count);
    const int result = call(server);
    if (result < 0) {
        tell_exception(server);
    } else {
        reply->result = result;
    }
    return send_reply(server) == 0;
}

PyObject *brim_py_serve(PyObject *module, PyObject *args) {
    static struct server server; /* one for a process */
    PyObject *load;
    (void)module;
    if (!PyArg_ParseTuple(args, "iOO", &server.socket, &load, &server.describe)) {
        return NULL;
    }
    if (start_watch(&server) != 0) {
        return NULL;
    }
#ifdef M_MMAP_THRESHOLD
    /* The function takes and frees a sample's worth of memory for each sample. What is
     * freed stays with the process instead of being given back and faulted in again. */
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
    server.call = PyObject_CallNoArgs(load);
    if (server.call == NULL) {
        tell_exception(&server);
    }
    int goes_on = send_reply(&server) == 0 && server.call != NULL;
    while (goes_on) {
        goes_on = serve_one(&server);
    }
    Py_CLEAR(server.call);
    return Py_NewRef(Py_None);
}
