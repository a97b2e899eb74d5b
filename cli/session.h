/*
 * session.h: what plan, run and bench begin with (a runtime and a pipeline), and
 * how a failure of any command is told.
 */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "document.h"
#include "options.h"
#include "output.h"

#include <brim.h>

struct session {
    const struct options *options;
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_open_options open;
};

/* A failure: its status, its words, and the smallest budget where it is one. */
struct failure {
    brim_status status;
    char text[1024];
    uint64_t minimum_bytes; /* 0: unknown, or not a matter of the budget */
};

/* Parses the pipeline and makes the runtime. Returns EXIT_GOOD, or an exit code
 * after telling why. session_end is called in either case. */
int session_begin(struct session *session, const struct options *options);
void session_end(struct session *session);

/* The calling thread's last failure; when it is the budget, with the minimum
 * that planning finds. */
struct failure failure_now(const struct session *session, brim_status status);
/* "error" and "status", into an object that is begun. */
void failure_json(struct document *json, const struct failure *failure);
/* Prints the failure on stderr and returns its exit code. */
int failure_print(const struct options *options, const struct failure *failure);
/* The same and, with --json, an object on stdout, which for the budget has "fits"
 * and "minimum_bytes" too. */
int failure_tell(const struct options *options, const struct failure *failure);

#endif
