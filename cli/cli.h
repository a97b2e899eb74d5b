/*
 * cli.h: what the files of the command line share: its commands and exit codes.
 *
 * Each command is one file with one function, which takes parsed options and
 * returns an exit code. Everything is done through brim.h.
 */
#ifndef CLI_H
#define CLI_H

#include "options.h"

#include <stddef.h>

enum {
    EXIT_GOOD = 0,
    EXIT_FAILED = 1,   /* the data or the system */
    EXIT_USAGE = 2,    /* the options or the pipeline's text */
    EXIT_BUDGET = 3,   /* the pipeline does not fit the budget */
    EXIT_SIGNAL = 128, /* plus the signal's number */
};

struct command {
    const char *name;
    const char *summary; /* one line, for the list of commands */
    const char *operand; /* what stands beside the options, "PATH..." for several; NULL: nothing */
    int operand_required;
    const char *text; /* what its help says between usage and options */
    unsigned bit;     /* IN_...: which options it takes; 0: none but --help */
    int (*run)(const struct options *options);
};

/* What the first word after `brim cache` may be. */
#define CACHE_ACTIONS "list info verify rm prune"

extern const struct command commands[];
extern const size_t command_count;
const struct command *command_find(const char *name);

int command_plan(const struct options *options);
int command_run(const struct options *options);
int command_bench(const struct options *options);
int command_cat(const struct options *options);
int command_show(const struct options *options);
int command_inspect(const struct options *options);
int command_index(const struct options *options);
int command_cache(const struct options *options);
int command_devices(const struct options *options);
int command_completion(const struct options *options);
int command_stages(const struct options *options);
int command_help(const struct options *options);
int command_version(const struct options *options);

#endif
