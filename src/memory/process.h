/*
 * process.h: the identity of a process, so that others can tell when it is gone.
 *
 * The number of a process is reused, and is valid only in one PID namespace. So a process is
 * identified by its number, its start time, and its namespaces.
 */
#ifndef BRIM_PROCESS_H
#define BRIM_PROCESS_H

#include "base/base.h"

#define BRIM__COMMAND_BYTES 16

struct brim__identity {
    uint64_t number; /* 0: no process */
    uint64_t start;  /* clock ticks since the machine started, as its namespace has it */
    uint64_t space;  /* its namespaces of numbers and times; 0: unknown */
};

static inline bool brim__identity_equals(const struct brim__identity *a,
                                         const struct brim__identity *b) {
    return a->number == b->number && a->start == b->start && a->space == b->space;
}

/* The identity of this process, and its command, of which only printable ASCII is kept. If /proc is
 * not that of this process's namespace, start and space are 0. */
void brim__identity_own(struct brim__identity *own, char command[BRIM__COMMAND_BYTES]);
/* Whether `who` is certainly gone, and its memory with it. A process of other namespaces
 * than `own` is not judged. Reads /proc. */
bool brim__identity_is_gone(const struct brim__identity *who, const struct brim__identity *own);

#endif
