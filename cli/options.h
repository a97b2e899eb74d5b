/*
 * options.h: the options of all commands, from one table.
 *
 * The table in options.c gives each option its name, the form of its value, the
 * commands that take it and its help. Parsing, suggestions and the help texts
 * come from it.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <brim.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Which commands take an option. */
#define IN_PLAN    1u
#define IN_RUN     2u
#define IN_BENCH   4u
#define IN_STAGES  8u
#define IN_OTHER   16u
#define IN_CAT     32u
#define IN_INSPECT 64u
#define IN_INDEX   128u
#define IN_SHOW    256u
#define IN_CACHE   512u
#define IN_DEVICES 1024u

struct command;

struct options {
    const struct command *command;
    const char *operand;   /* the first: the pipeline, or the name that follows stages and help */
    char *const *operands; /* all of them, of a command that takes many */
    size_t operand_count;
    uint64_t memory; /* 0: the library's choice */
    int32_t threads;
    uint64_t epochs;
    uint64_t steps; /* 0: no limit */
    uint32_t rank, world;
    uint64_t hold;
    uint64_t slots; /* 0: as planned */
    brim_device device;
    uint32_t device_index;
    uint64_t device_memory, pinned; /* 0: the library's choice */
    const char *shared;             /* a budget's name; NULL: none */
    uint64_t shared_memory;         /* 0: what others said */
    brim_growth growth;
    bool seek;
    uint64_t seek_epoch, seek_step;
    const char *state;
    uint64_t state_every; /* 0: at the end only */
    const char *resume;
    uint64_t repeat;
    double seconds;
    uint64_t count, skip; /* samples; count 0: all, or by default */
    const char *npy;      /* a folder */
    const char *output;   /* of show: a file, or "-" */
    const char *field;    /* names with commas between; NULL: all that are images */
    uint64_t columns;     /* 0: as it looks good */
    uint64_t epoch;
    const char *index_dir; /* NULL: by default */
    uint64_t to;           /* of cache prune: bytes; BRIM_UNLIMITED: not said */
    bool trust_foreign;
    bool digest, json, quiet, help, markdown, verify, dry_run;
};

/* Parses what follows the command's name, and moves the operands to the front of
 * `words`, where options->operands finds them. On a mistake *why (of why_bytes)
 * says which, and false is returned; options->json is right even then. */
bool options_parse(struct options *options, const struct command *command, int count, char **words,
                   char *why, size_t why_bytes);

/* Prints the options that a command takes. */
void options_help(FILE *file, const struct command *command);

/* One option as the help and the shells' completions see it. */
struct option_info {
    const char *name;  /* "--memory" */
    char letter;       /* 'h' for -h; 0: none */
    const char *value; /* what its value is called; NULL: it takes none */
    bool file;         /* the value is a file or a folder */
    const char *help;
};
/* The option `index` of those that a command takes; false past the last. */
bool option_at(const struct command *command, size_t index, struct option_info *info);

/* "16MiB", "1.5GB", "4096": bytes; what is above 0 is at least 1. */
bool size_parse(const char *text, uint64_t *bytes);

#endif
