/*
 * options.h: the options of all commands, from one table.
 *
 * The table in options.c gives each option its name, the form of its value, the
 * commands that take it and its help. Parsing, suggestions and the help texts
 * come from it.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Which commands take an option. */
#define IN_PLAN   1u
#define IN_RUN    2u
#define IN_BENCH  4u
#define IN_STAGES 8u
#define IN_OTHER  16u

struct command;

struct options {
    const struct command *command;
    const char *operand; /* the pipeline, or the name that follows stages and help */
    uint64_t memory;     /* 0: the library's choice */
    int32_t threads;
    uint64_t epochs;
    uint64_t steps; /* 0: no limit */
    uint32_t rank, world;
    uint64_t hold;
    uint64_t slots; /* 0: as planned */
    bool seek;
    uint64_t seek_epoch, seek_step;
    const char *state;
    uint64_t state_every; /* 0: at the end only */
    const char *resume;
    uint64_t repeat;
    double seconds;
    bool digest, json, quiet, help;
};

/* Parses what follows the command's name. On a mistake *why (of why_bytes) says
 * which, and false is returned; options->json is right even then. */
bool options_parse(struct options *options, const struct command *command, int count,
                   char *const *words, char *why, size_t why_bytes);

/* Prints the options that a command takes. */
void options_help(FILE *file, const struct command *command);

/* "16MiB", "1.5GB", "4096": bytes, at least 1. */
bool size_parse(const char *text, uint64_t *bytes);

#endif
