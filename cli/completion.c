/*
 * completion.c: `brim completion`: scripts that complete brim in bash, zsh and fish.
 *
 * A script holds copies of the tables of commands, options and stages, so that
 * completing starts no process. Inside a pipeline the last word is completed by
 * what stands before it: after '(' or at the begin a stage that can begin, after
 * '|' one that can follow, after a stage its arguments, after "key=" a choice or
 * a file.
 */
#include "completion.h"

#include "cli.h"
#include "session.h"

#include <string.h>

bool stage_begins(const brim_stage_info *stage) {
    for (size_t i = 0; i < stage->argument_count; i++) {
        const brim_type type = brim_stage_argument_at(stage, i)->type;
        if (type == BRIM_TYPE_PIPELINE || type == BRIM_TYPE_WEIGHTED) {
            return true;
        }
    }
    return stage->room == BRIM_ROOM_SOURCE;
}

bool is_positional(const brim_argument_info *argument) {
    return (argument->flags & BRIM_ARGUMENT_FLAG_POSITIONAL) != 0;
}

void write_commands(FILE *file, const char *operand) {
    const char *gap = "";
    for (size_t i = 0; i < command_count; i++) {
        const char *own = commands[i].operand != NULL ? commands[i].operand : "";
        if (operand == NULL || strcmp(own, operand) == 0) {
            fprintf(file, "%s%s", gap, commands[i].name);
            gap = " ";
        }
    }
}

void write_stages(FILE *file, bool begin) {
    const char *gap = "";
    for (size_t i = 0; i < brim_stage_count(); i++) {
        if (stage_begins(brim_stage_at(i)) == begin) {
            fprintf(file, "%s%s", gap, brim_stage_at(i)->name);
            gap = " ";
        }
    }
}

void write_arguments(FILE *file, const brim_stage_info *stage) {
    const char *gap = "";
    for (size_t i = 0; i < stage->argument_count; i++) {
        const brim_type type = brim_stage_argument_at(stage, i)->type;
        if (type != BRIM_TYPE_PIPELINE && type != BRIM_TYPE_WEIGHTED) {
            fprintf(file, "%s%s=", gap, brim_stage_argument_at(stage, i)->name);
            gap = " ";
        }
    }
}

bool write_values(FILE *file, const brim_argument_info *argument) {
    if (argument->type == BRIM_TYPE_YESNO) {
        fputs("yes no", file);
        return true;
    }
    const char *choices = argument->choices != NULL ? argument->choices : "";
    for (const char *c = choices; *c != '\0'; c++) {
        fputc(*c == '|' ? ' ' : *c, file);
    }
    return *choices != '\0';
}

static bool is_option_of(const struct command *command, const char *name) {
    struct option_info option;
    for (size_t i = 0; option_at(command, i, &option); i++) {
        if (strcmp(option.name, name) == 0) {
            return true;
        }
    }
    return false;
}

void write_file_options(FILE *file, bool folder) {
    const char *gap = "";
    struct option_info option;
    for (size_t i = 0; i < command_count; i++) {
        for (size_t k = 0; option_at(&commands[i], k, &option); k++) {
            bool listed = false; /* for a command before this one */
            for (size_t j = 0; j < i; j++) {
                listed |= is_option_of(&commands[j], option.name);
            }
            if (option.file && !listed && (strcmp(option.value, "DIR") == 0) == folder) {
                fprintf(file, "%s%s", gap, option.name);
                gap = " | ";
                if (option.letter != '\0') {
                    fprintf(file, "%s-%c", gap, option.letter);
                }
            }
        }
    }
}

void write_quoted(FILE *file, const char *text) {
    fputc('\'', file);
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            fputs("'\\''", file);
        } else {
            fputc(*text, file);
        }
    }
    fputc('\'', file);
}

/* ------------------------------------------------------------------- tables */

static void begin_case(FILE *file, const char *name) {
    fprintf(file, "%s() {\n    case $1 in\n", name);
}

static void end_case(FILE *file, const char *otherwise) {
    fprintf(file, "    %s\n    esac\n}\n\n", otherwise);
}

static void write_options(FILE *file) {
    begin_case(file, "_brim_options");
    for (size_t i = 0; i < command_count; i++) {
        fprintf(file, "    %s) echo '", commands[i].name);
        struct option_info option;
        for (size_t k = 0; option_at(&commands[i], k, &option); k++) {
            fprintf(file, "%s%s", k > 0 ? " " : "", option.name);
            if (option.letter != '\0') {
                fprintf(file, " -%c", option.letter);
            }
        }
        fputs("' ;;\n", file);
    }
    end_case(file, "*) ;;");
}

/* Each argument under its key, and under none if it may do without. */
static void write_argument_values(FILE *file, const brim_stage_info *stage) {
    for (size_t i = 0; i < stage->argument_count; i++) {
        const brim_argument_info *argument = brim_stage_argument_at(stage, i);
        if (argument->choices == NULL && argument->type != BRIM_TYPE_YESNO) {
            continue;
        }
        fprintf(file, "    %s.%s", stage->name, argument->name);
        if (is_positional(argument)) {
            fprintf(file, " | %s.", stage->name);
        }
        fputs(") echo '", file);
        (void)write_values(file, argument);
        fputs("' ;;\n", file);
    }
}

static void write_paths(FILE *file) {
    begin_case(file, "_brim_takes_path");
    for (size_t i = 0; i < brim_stage_count(); i++) {
        const brim_stage_info *stage = brim_stage_at(i);
        for (size_t k = 0; k < stage->argument_count; k++) {
            if (brim_stage_argument_at(stage, k)->type == BRIM_TYPE_PATH) {
                fprintf(file, "    %s.%s", stage->name, brim_stage_argument_at(stage, k)->name);
                if (is_positional(brim_stage_argument_at(stage, k))) {
                    fprintf(file, " | %s.", stage->name);
                }
                fputs(") return 0 ;;\n", file);
            }
        }
    }
    end_case(file, "*) return 1 ;;");
}

void write_tables(FILE *file) {
    write_options(file);
    begin_case(file, "_brim_stages");
    fputs("    begin) echo '", file);
    write_stages(file, true);
    fputs("' ;;\n    follow) echo '", file);
    write_stages(file, false);
    fputs("' ;;\n", file);
    end_case(file, "*) ;;");
    begin_case(file, "_brim_arguments");
    for (size_t i = 0; i < brim_stage_count(); i++) {
        fprintf(file, "    %s) echo '", brim_stage_at(i)->name);
        write_arguments(file, brim_stage_at(i));
        fputs("' ;;\n", file);
    }
    end_case(file, "*) ;;");
    begin_case(file, "_brim_values");
    for (size_t i = 0; i < brim_stage_count(); i++) {
        write_argument_values(file, brim_stage_at(i));
    }
    end_case(file, "*) ;;");
    write_paths(file);
}

/* ------------------------------------------------------------------ command */

int command_completion(const struct options *options) {
    static const struct {
        const char *name;
        void (*write)(FILE *file);
    } shells[] = { { "bash", write_bash }, { "zsh", write_zsh }, { "fish", write_fish } };
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(options->operand, shells[i].name) == 0) {
            shells[i].write(stdout);
            return EXIT_GOOD;
        }
    }
    struct failure failure = { .status = BRIM_STATUS_INVALID };
    snprintf(failure.text, sizeof failure.text,
             "there is no completion for '%s'; the shells are bash, zsh and fish",
             options->operand);
    return failure_tell(options, &failure);
}
