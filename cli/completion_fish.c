/*
 * completion_fish.c: the script for fish.
 *
 * fish replaces the whole word, so that candidates are whole pipelines; it keeps
 * or adds the quotes itself.
 */
#include "completion.h"

#include "cli.h"

static const char pipeline[] =
    "function __brim_offer --argument-names before\n"
    "    for word in $argv[2..]\n"
    "        echo $before$word\n"
    "    end\n"
    "end\n\n"
    "# Whole pipelines that the word under the cursor could become.\n"
    "function __brim_pipeline\n"
    "    set -l text (commandline -ct | string replace -r '^[\"\\']' '')\n"
    "    set -l raw (string replace -r '^.*[|(]' '' -- $text)\n"
    "    set -l segment (string replace -r '^\\s+' '' -- $raw)\n"
    "    set -l word (string replace -r '^.*\\s' '' -- $segment)\n"
    "    set -l before (string sub -l (math (string length -- \"$text\") - (string length -- "
    "\"$word\")) -- \"$text\")\n"
    "    set -l stage (string replace -r '\\s.*$' '' -- $segment)\n"
    "    set -l head (string sub -l (math (string length -- \"$text\") - (string length -- "
    "\"$raw\")) -- \"$text\")\n"
    "    if test \"$segment\" = \"$word\"\n"
    "        if string match -q -- '*|' \"$head\"\n"
    "            __brim_offer \"$before\" (__brim_stages follow)\n"
    "        else\n"
    "            __brim_offer \"$before\" (__brim_stages begin)\n"
    "        end\n"
    "    else if string match -q -- '*=*' $word\n"
    "        set -l key (string replace -r '=.*$' '' -- $word)\n"
    "        set -l value (string replace -r '^[^=]*=' '' -- $word)\n"
    "        __brim_offer \"$before$key=\" (__brim_values $stage.$key)\n"
    "        if __brim_takes_path $stage.$key\n"
    "            __brim_offer \"$before$key=\" (__fish_complete_path \"$value\" | string replace "
    "-r "
    "'\\t.*$' '')\n"
    "        end\n"
    "    else\n"
    "        __brim_offer \"$before\" (__brim_values $stage.) (__brim_arguments $stage)\n"
    "        if __brim_takes_path $stage.\n"
    "            __brim_offer \"$before\" (__fish_complete_path \"$word\" | string replace -r "
    "'\\t.*$' '')\n"
    "        end\n"
    "    end\n"
    "end\n\n";

static void write_lines(FILE *file, const char *name) {
    fprintf(file, "function %s\n    switch $argv[1]\n", name);
}

static void end_function(FILE *file) {
    fputs("    end\nend\n\n", file);
}

static void write_stage_functions(FILE *file) {
    write_lines(file, "__brim_stages");
    for (int begin = 0; begin < 2; begin++) {
        fprintf(file, "        case %s\n            string split ' ' -- '",
                begin ? "begin" : "follow");
        write_stages(file, begin != 0);
        fputs("'\n", file);
    }
    end_function(file);
    write_lines(file, "__brim_arguments");
    for (size_t i = 0; i < brim_stage_count(); i++) {
        fprintf(file, "        case %s\n            string split -n ' ' -- '",
                brim_stage_at(i)->name);
        write_arguments(file, brim_stage_at(i));
        fputs("'\n", file);
    }
    end_function(file);
}

/* Under STAGE.KEY, and under STAGE. where the key may be left out. */
static void write_place(FILE *file, const brim_stage_info *stage,
                        const brim_argument_info *argument) {
    fprintf(file, "        case %s.%s", stage->name, argument->name);
    if (is_positional(argument)) {
        fprintf(file, " %s.", stage->name);
    }
    fputc('\n', file);
}

static void write_value_functions(FILE *file) {
    write_lines(file, "__brim_values");
    for (size_t i = 0; i < brim_stage_count(); i++) {
        const brim_stage_info *stage = brim_stage_at(i);
        for (size_t k = 0; k < stage->argument_count; k++) {
            const brim_argument_info *argument = brim_stage_argument_at(stage, k);
            if (argument->choices != NULL || argument->type == BRIM_TYPE_YESNO) {
                write_place(file, stage, argument);
                fputs("            string split ' ' -- '", file);
                (void)write_values(file, argument);
                fputs("'\n", file);
            }
        }
    }
    end_function(file);
    write_lines(file, "__brim_takes_path");
    for (size_t i = 0; i < brim_stage_count(); i++) {
        const brim_stage_info *stage = brim_stage_at(i);
        for (size_t k = 0; k < stage->argument_count; k++) {
            if (brim_stage_argument_at(stage, k)->type == BRIM_TYPE_PATH) {
                write_place(file, stage, brim_stage_argument_at(stage, k));
                fputs("            return 0\n", file);
            }
        }
    }
    fputs("    end\n    return 1\nend\n\n", file);
}

static void write_command(FILE *file, const struct command *command) {
    fprintf(file, "complete -c brim -n __fish_use_subcommand -f -a %s -d ", command->name);
    write_quoted(file, command->summary);
    fputc('\n', file);
    struct option_info option;
    for (size_t i = 0; option_at(command, i, &option); i++) {
        fprintf(file, "complete -c brim -n '__fish_seen_subcommand_from %s' -l %s", command->name,
                option.name + 2);
        if (option.letter != '\0') {
            fprintf(file, " -s %c", option.letter);
        }
        fputs(option.file ? " -r -F -d " : option.value != NULL ? " -x -d " : " -f -d ", file);
        write_quoted(file, option.help);
        fputc('\n', file);
    }
}

void write_fish(FILE *file) {
    fputs("# Completes brim in fish; printed by: brim completion fish\n\n", file);
    write_stage_functions(file);
    write_value_functions(file);
    fputs(pipeline, file);
    for (size_t i = 0; i < command_count; i++) {
        write_command(file, &commands[i]);
    }
    fputs("complete -c brim -n '__fish_seen_subcommand_from ", file);
    write_commands(file, "PIPELINE");
    fputs("' -f -k -a '(__brim_pipeline)'\n", file);
    fputs("complete -c brim -n '__fish_seen_subcommand_from stages' -f -a "
          "'(__brim_stages begin) (__brim_stages follow)'\n"
          "complete -c brim -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'\n"
          "complete -c brim -n '__fish_seen_subcommand_from cache; and test (count (commandline "
          "-opc)) -eq 2' -f -a '" CACHE_ACTIONS "'\n"
          "complete -c brim -n '__fish_seen_subcommand_from help' -f -a '",
          file);
    write_commands(file, NULL);
    fputs("'\n", file);
}
