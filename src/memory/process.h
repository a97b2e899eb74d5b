/*
 * process.h: who a process is, so that others can tell when it is gone.
 *
 * A number of a process is used again, and means something only in one namespace of
 * numbers. So a process is its number, the time at which it started, and its namespaces.
 */
#ifndef BRIM_PROCESS_H
#define BRIM_PROCESS_H

#include "base/base.h"

#define BRIM__COMMAND_BYTES 16

struct brim__identity {
    uint64_t number; /* 0: nobody */
    uint64_t start;  /* clock ticks since the machine started, as its namespace has it */
    uint64_t space;  /* its namespaces of numbers and times; 0: unknown, nobody can judge */
};

static inline bool brim__identity_equals(const struct brim__identity *a,
                                         const struct brim__identity *b) {
    return a->number == b->number && a->start == b->start && a->space == b->space;
}

/* Of this process, with its command, of which nothing but printable ASCII is kept. Where
 * /proc is not that of this process's namespace, start and space are 0. */
void brim__identity_own(struct brim__identity *own, char command[BRIM__COMMAND_BYTES]);
/* Whether `who` is certainly gone, and its memory with it. A process of other namespaces
 * than `own` is not judged. Reads /proc. */
bool brim__identity_is_gone(const struct brim__identity *who, const struct brim__identity *own);

#endif
