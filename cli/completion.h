/*
 * completion.h: what the completion scripts of the three shells share.
 *
 * bash and zsh get the tables as shell functions of the same form (write_tables)
 * and differ in what they do with them; fish has its own language.
 */
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include <brim.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Whether a pipeline, or one in parentheses, may begin with the stage. */
bool stage_begins(const brim_stage_info *stage);
/* Whether values may stand without a key where this argument is meant. */
bool is_positional(const brim_argument_info *argument);

/* Words with a blank between them. */
void write_commands(FILE *file, const char *operand); /* those with this operand; NULL: all */
void write_stages(FILE *file, bool begin); /* those that begin a pipeline, or all others */
void write_arguments(FILE *file, const brim_stage_info *stage); /* "seed= block=" */
/* What can be foreseen of a value: choices, yes and no. False: nothing can. */
bool write_values(FILE *file, const brim_argument_info *argument);
/* Options of any command whose value is a file, or a folder, as a pattern: "--a | --b". */
void write_file_options(FILE *file, bool folder);
/* Text in single quotes, as all three shells read it. */
void write_quoted(FILE *file, const char *text);

/* Shell functions: _brim_options COMMAND, _brim_stages begin|follow, _brim_arguments
 * STAGE, _brim_values STAGE.ARGUMENT (STAGE. for what needs no key) and
 * _brim_takes_path of the same. */
void write_tables(FILE *file);

void write_bash(FILE *file);
void write_zsh(FILE *file);
void write_fish(FILE *file);

#endif
