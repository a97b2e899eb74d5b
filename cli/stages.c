/*
 * stages.c: `brim stages`: the table of stages as a list, one stage in full, both
 * as JSON, and all of it as a page. All of it comes from the library's table.
 */
#include "cli.h"
#include "output.h"
#include "session.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const char *says;
} rooms[] = {
    [BRIM_ROOM_SOURCE] = { "source", "where samples come from" },
    [BRIM_ROOM_ORDER] = { "order", "which sample is next" },
    [BRIM_ROOM_TRANSFORM] = { "transform", "how samples are changed" },
    [BRIM_ROOM_BATCHING] = { "batching", "how samples become batches" },
    [BRIM_ROOM_CACHE] = { "cache", "where samples are kept after they are made" },
};
#define ROOMS (sizeof rooms / sizeof rooms[0])

static const char *type_name(brim_type type) {
    static const char *const names[] = {
        [BRIM_TYPE_INTEGER] = "integer",   [BRIM_TYPE_REAL] = "number",
        [BRIM_TYPE_SIZE] = "size",         [BRIM_TYPE_YESNO] = "yes or no",
        [BRIM_TYPE_CHOICE] = "choice",     [BRIM_TYPE_WORD] = "name",
        [BRIM_TYPE_PATH] = "path",         [BRIM_TYPE_BINDING] = "@name",
        [BRIM_TYPE_PIPELINE] = "pipeline", [BRIM_TYPE_WEIGHTED] = "weighted pipeline",
    };
    return (size_t)type < sizeof names / sizeof names[0] ? names[type] : "unknown";
}

static bool has_range(const brim_argument_info *argument) {
    return argument->least != 0 || argument->most != 0;
}

/* ------------------------------------------------------------------- people */

static void print_list(void) {
    for (size_t room = 0; room < ROOMS; room++) {
        printf("%s%s: %s\n", room > 0 ? "\n" : "", rooms[room].name, rooms[room].says);
        struct table table = { .columns = 2 };
        for (size_t i = 0; i < brim_stage_count(); i++) {
            const brim_stage_info *stage = brim_stage_at(i);
            if ((size_t)stage->room == room) {
                char name[CELL_BYTES];
                snprintf(name, sizeof name, "  %s", stage->name);
                table_row(&table, (const char *[]){ name, stage->summary });
            }
        }
        table_print(&table, stdout);
    }
    puts("\nbrim stages NAME shows one of them in full.");
}

/* "integer 1 .. 1000", "integer from 0", "drop|keep|pad", "path ..." */
static void print_type(const brim_argument_info *argument) {
    const double boundless = 0x1p53; /* limits past this are those of the number's type */
    fputs(argument->choices != NULL ? argument->choices : type_name(argument->type), stdout);
    if (has_range(argument) && argument->most >= boundless) {
        printf(" from %.15g", argument->least);
    } else if (has_range(argument)) {
        printf(" %.15g .. %.15g", argument->least, argument->most);
    }
    if (argument->flags & BRIM_ARGUMENT_FLAG_LIST) {
        fputs(" ...", stdout);
    }
}

static void print_form(const brim_argument_info *argument) {
    print_type(argument);
    if (argument->fallback != NULL) {
        printf(", default %s", argument->fallback);
    } else if (argument->flags & BRIM_ARGUMENT_FLAG_REQUIRED) {
        fputs(", required", stdout);
    }
}

static void print_stage(const brim_stage_info *stage) {
    printf("%s: %s\n\n", stage->name, stage->summary);
    printf("  room     %s (%s)\n", rooms[stage->room].name, rooms[stage->room].says);
    printf("  version  %" PRIu32 "\n", stage->version);
    printf("  example  %s\n", stage->example);
    if (stage->argument_count == 0) {
        puts("\nIt takes no arguments.");
        return;
    }
    puts("\narguments ([name=] may be left out, ... takes several values):");
    for (size_t i = 0; i < stage->argument_count; i++) {
        const brim_argument_info *argument = brim_stage_argument_at(stage, i);
        printf(argument->flags & BRIM_ARGUMENT_FLAG_POSITIONAL ? "  [%s=]  " : "  %s=  ",
               argument->name);
        print_form(argument);
        printf("\n      %s\n", argument->help);
    }
}

/* --------------------------------------------------------------------- page */

/* Text in a table: a '|' would end its cell, a '<' would begin a tag. */
static void print_cell(const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '|') {
            fputs("\\|", stdout);
        } else if (*text == '<') {
            fputs("&lt;", stdout);
        } else {
            putchar(*text);
        }
    }
}

static void page_argument(const brim_argument_info *argument) {
    printf(argument->flags & BRIM_ARGUMENT_FLAG_POSITIONAL ? "| `[%s=]` | " : "| `%s=` | ",
           argument->name);
    if (argument->choices != NULL) {
        print_cell(argument->choices);
        fputs(argument->flags & BRIM_ARGUMENT_FLAG_LIST ? " ..." : "", stdout);
    } else {
        print_type(argument);
    }
    fputs(" | ", stdout);
    if (argument->fallback != NULL) {
        putchar('`');
        print_cell(argument->fallback);
        putchar('`');
    } else if (argument->flags & BRIM_ARGUMENT_FLAG_REQUIRED) {
        fputs("required", stdout);
    }
    fputs(" | ", stdout);
    print_cell(argument->help);
    puts(" |");
}

static void page_stage(const brim_stage_info *stage) {
    printf("\n### %s\n\n", stage->name);
    putchar(toupper((unsigned char)stage->summary[0]));
    print_cell(stage->summary + 1);
    printf(". Version %" PRIu32 ".\n\n    %s\n", stage->version, stage->example);
    if (stage->argument_count > 0) {
        puts("\n| argument | takes | default | means |\n|---|---|---|---|");
        for (size_t i = 0; i < stage->argument_count; i++) {
            page_argument(brim_stage_argument_at(stage, i));
        }
    }
}

static void print_page(void) {
    puts("# Stages\n\n"
         "All stages, by room. `brim stages --markdown` prints this page; `make stages` writes it. "
         "An\n"
         "argument whose key is in brackets may be given without the key; `...` takes several "
         "values.\n"
         "[plan.md](plan.md) has the grammar.");
    for (size_t room = 0; room < ROOMS; room++) {
        printf("\n## %s: %s\n", rooms[room].name, rooms[room].says);
        for (size_t i = 0; i < brim_stage_count(); i++) {
            if ((size_t)brim_stage_at(i)->room == room) {
                page_stage(brim_stage_at(i));
            }
        }
    }
}

/* --------------------------------------------------------------------- JSON */

static void choices_json(struct document *json, const char *choices) {
    put_array(json, "choices");
    while (*choices != '\0') {
        const size_t length = strcspn(choices, "|");
        char word[CELL_BYTES];
        snprintf(word, sizeof word, "%.*s", (int)length, choices);
        put_text(json, NULL, word);
        choices += length + (choices[length] == '|');
    }
    end_array(json);
}

static void stage_json(struct document *json, const brim_stage_info *stage) {
    put_object(json, NULL);
    put_text(json, "name", stage->name);
    put_text(json, "room", rooms[stage->room].name);
    put_text(json, "summary", stage->summary);
    put_text(json, "example", stage->example);
    put_count(json, "version", stage->version);
    put_array(json, "arguments");
    for (size_t i = 0; i < stage->argument_count; i++) {
        const brim_argument_info *argument = brim_stage_argument_at(stage, i);
        put_object(json, NULL);
        put_text(json, "name", argument->name);
        put_text(json, "type", type_name(argument->type));
        put_bool(json, "required", (argument->flags & BRIM_ARGUMENT_FLAG_REQUIRED) != 0);
        put_bool(json, "positional", (argument->flags & BRIM_ARGUMENT_FLAG_POSITIONAL) != 0);
        put_bool(json, "list", (argument->flags & BRIM_ARGUMENT_FLAG_LIST) != 0);
        put_text(json, "default", argument->fallback);
        if (has_range(argument)) {
            put_real(json, "least", argument->least);
            put_real(json, "most", argument->most);
        }
        if (argument->choices != NULL) {
            choices_json(json, argument->choices);
        }
        put_text(json, "help", argument->help);
        end_object(json);
    }
    end_array(json);
    end_object(json);
}

/* The stages with `word` in their names as "a, b, c"; "": none, or too short a word. */
static void names_with(const char *word, char *list, size_t bytes) {
    size_t used = 0;
    list[0] = '\0';
    for (size_t i = 0; i < brim_stage_count() && strlen(word) >= 2 && used < bytes; i++) {
        const char *name = brim_stage_at(i)->name;
        if (strstr(name, word) != NULL) {
            used += (size_t)snprintf(list + used, bytes - used, "%s%s", used > 0 ? ", " : "", name);
        }
    }
}

static int unknown(const struct options *options) {
    struct failure failure = { .status = BRIM_STATUS_INVALID };
    char list[CELL_BYTES];
    const size_t count = brim_stage_count();
    const char **names = take(count, sizeof names[0]);
    for (size_t i = 0; i < count; i++) {
        names[i] = brim_stage_at(i)->name;
    }
    const char *near = brim_nearest(options->operand, names, count);
    free(names);
    names_with(options->operand, list, sizeof list);
    if (list[0] != '\0') {
        snprintf(failure.text, sizeof failure.text,
                 "there is no stage '%s'; those with that in their names: %s", options->operand,
                 list);
    } else if (near != NULL) {
        snprintf(failure.text, sizeof failure.text, "there is no stage '%s'; did you mean %s?",
                 options->operand, near);
    } else {
        snprintf(failure.text, sizeof failure.text,
                 "there is no stage '%s'; brim stages lists them all", options->operand);
    }
    return failure_tell(options, &failure);
}

int command_stages(const struct options *options) {
    const brim_stage_info *one = NULL;
    if (options->operand != NULL) {
        one = brim_stage_find(options->operand);
        if (one == NULL) {
            return unknown(options);
        }
    }
    struct document json = { .file = stdout };
    if (options->markdown) {
        print_page();
    } else if (options->json && one != NULL) {
        stage_json(&json, one);
    } else if (options->json) {
        put_object(&json, NULL);
        put_array(&json, "stages");
        for (size_t i = 0; i < brim_stage_count(); i++) {
            stage_json(&json, brim_stage_at(i));
        }
        end_array(&json);
        end_object(&json);
    } else if (one != NULL) {
        print_stage(one);
    } else {
        print_list();
    }
    return EXIT_GOOD;
}
