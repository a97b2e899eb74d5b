/*
 * session.h: what commands that open a pipeline begin with (a runtime and the pipeline), and how a
 * failure of any command is reported.
 */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "document.h"
#include "options.h"
#include "output.h"
#include "progress.h"

#include <brim.h>
#include <limits.h>

struct session {
    const struct options *options;
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_open_options open;
    struct progress opening; /* shows long work of planning and opening */
    bool noted;              /* what was found of indexes has been told */
    bool opened;             /* planned or loaded, with success or not: a stream is spent */
};

/* A failure: its status, its words, and the smallest budget where it is one. */
struct failure {
    brim_status status;
    char text[1024];
    uint64_t minimum_bytes; /* 0: unknown, or not a matter of the budget */
    uint64_t minimum_device_bytes, minimum_pinned_bytes; /* 0 on the host */
    uint64_t minimum_shared_bytes; /* of all processes together; 0: that is not in the way */
    uint64_t others_bytes;         /* what of it other processes have */
    bool at_least; /* it was refused before all was known: minimum_bytes may not do */
};

/* Parses the pipeline and makes the runtime. Returns EXIT_GOOD, or an exit code
 * after telling why. session_end is called in either case. */
int session_begin(struct session *session, const struct options *options);
/* The same for any pipeline's text, and nothing is told: *failure says why. */
brim_status session_open(struct session *session, const struct options *options, const char *text,
                         struct failure *failure);
void session_end(struct session *session);

/* brim_plan_new and brim_loader_open of the session, with progress. SIGINT and
 * SIGTERM end them with BRIM_STATUS_INTERRUPTED, so that nothing half done is left. */
brim_status session_plan(struct session *session, brim_plan **plan);
brim_status session_load(struct session *session, brim_loader **loader);
/* brim_plan_verify, with progress. */
brim_status session_verify(struct session *session, const brim_plan *plan);

/* Whether what is no file was meant as a pipeline: it is one, or what is wrong with it comes after
 * the name of a stage. */
bool is_pipeline(const char *subject);
/* Stage `index` of a pipeline, those in parentheses counted; false: past the end. */
bool stage_at(const brim_pipeline *pipeline, size_t index, brim_pipeline_stage *stage);
/* Value `number` of an argument of that stage; false: it has none. */
bool argument_of(const brim_pipeline *pipeline, size_t index, const char *argument, size_t number,
                 brim_pipeline_value *value);

/* What is known of a pipeline before it is opened. */
struct outline {
    bool stream;  /* reads standard input, a pipe or the like, which can be opened only once */
    bool batches; /* its last stage makes batches */
    bool changes; /* a stage changes samples ... */
    bool decodes; /* ... and is `decode` */
    size_t sample_bytes; /* of its text before the first stage that makes batches */
};
struct outline outline_of(const brim_pipeline *pipeline);

/* What the plan of a session that does not fit says of the smallest budget. */
void failure_minimum(struct failure *failure, const struct session *session,
                     const brim_plan_info *info);
/* The calling thread's last failure; when it is the budget, with the minimum
 * that the refusal tells. */
struct failure failure_now(const struct session *session, brim_status status);
/* "error" and "status", into an object that is begun. */
void failure_json(struct document *json, const struct failure *failure);
/* Prints the failure on stderr and returns its exit code. */
int failure_print(const struct options *options, const struct failure *failure);
/* The same and, with --json, an object on stdout, which for the budget has "fits"
 * and "minimum_bytes" too. */
int failure_tell(const struct options *options, const struct failure *failure);

/* What a command does with one of its operands: an object in `json`, or lines if that is NULL.
 * Sets *failure, to BRIM_OK too, and returns the exit code. */
typedef int operand_run(const struct options *options, const char *operand, struct document *json,
                        struct failure *failure);
/* All operands until a signal ends it; with --json their objects stand in an array "files".
 * Returns the first exit code that is not good, or the signal's. */
int each_operand(const struct options *options, operand_run *run);

#endif
