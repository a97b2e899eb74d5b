/*
 * completion_zsh.c: the script for zsh, as a function file of its completion system.
 *
 * zsh takes what stands before the last word out of the way (compset), so that
 * candidates are single words.
 */
#include "completion.h"

#include "cli.h"

static const char pipeline[] =
    "# Completes the last word of a pipeline that is being written. brim_found is what was\n"
    "# offered.\n"
    "_brim_pipeline() {\n"
    "    local text=$1 raw segment word stage head=begin key\n"
    "    raw=${text##*[|\\(]}\n"
    "    segment=${raw#\"${raw%%[![:space:]]*}\"}\n"
    "    word=${segment##*[[:space:]]}\n"
    "    stage=${segment%%[[:space:]]*}\n"
    "    [[ ${text%\"$raw\"} == *'|' ]] && head=follow\n"
    "    brim_found=()\n"
    "    compset -P '*[|([:space:]]'\n"
    "    if [[ $segment == \"$word\" ]]; then\n"
    "        brim_found=($(_brim_stages $head))\n"
    "        compadd -S ' ' -a brim_found\n"
    "    elif [[ $word == *=* ]]; then\n"
    "        key=${word%%=*}\n"
    "        compset -P '*='\n"
    "        if _brim_takes_path \"$stage.$key\"; then\n"
    "            _files\n"
    "        else\n"
    "            brim_found=($(_brim_values $stage.$key))\n"
    "            compadd -S ' ' -a brim_found\n"
    "        fi\n"
    "    else\n"
    "        brim_found=($(_brim_values $stage.) $(_brim_arguments $stage))\n"
    "        compadd -S '' -a brim_found\n"
    "        if _brim_takes_path \"$stage.\"; then\n"
    "            _files\n"
    "        fi\n"
    "    fi\n"
    "}\n\n";

static const char command[] = "_brim() {\n"
                              "    local -a brim_found\n"
                              "    if ((CURRENT == 2)); then\n"
                              "        _describe command brim_commands\n"
                              "        return\n"
                              "    fi\n"
                              "    case ${words[CURRENT-1]} in\n    ";
static const char operands[] =
    ") _files -/; return ;;\n"
    "    esac\n"
    "    if [[ $PREFIX == -* ]]; then\n"
    "        brim_found=($(_brim_options $words[2]))\n"
    "        compadd -a brim_found\n"
    "        return\n"
    "    fi\n"
    "    case $words[2] in\n"
    "    help) _describe command brim_commands ;;\n"
    "    cache) if ((CURRENT == 3)); then compadd " CACHE_ACTIONS "; else _files; fi ;;\n"
    "    completion) compadd bash zsh fish ;;\n"
    "    stages) _describe stage brim_all_stages ;;\n";

static const char command_end[] =
    "        # a pipeline stands in quotes: what is begun without gets its quote\n"
    "        if [[ -z $compstate[quote] ]]; then\n"
    "            brim_found=($(_brim_stages begin))\n"
    "            compadd -Q -P \"'\" -S ' ' -a brim_found\n"
    "        else\n"
    "            _brim_pipeline \"$PREFIX\"\n"
    "        fi ;;\n"
    "    *) _files ;;\n"
    "    esac\n"
    "}\n\n"
    "# autoloaded as _brim, or sourced\n"
    "if [[ $funcstack[1] == _brim ]]; then\n"
    "    _brim \"$@\"\n"
    "elif (($+functions[compdef])); then\n"
    "    compdef _brim brim\n"
    "fi\n";

/* 'name:summary', with the colons of the summary escaped. */
static void write_described(FILE *file, const char *name, const char *summary) {
    char text[512];
    size_t at = (size_t)snprintf(text, sizeof text, "%s:", name);
    for (; *summary != '\0' && at + 3 < sizeof text; summary++) {
        if (*summary == ':') {
            text[at++] = '\\';
        }
        text[at++] = *summary;
    }
    text[at] = '\0';
    fputs("    ", file);
    write_quoted(file, text);
    fputc('\n', file);
}

void write_zsh(FILE *file) {
    fputs("#compdef brim\n# Completes brim in zsh; printed by: brim completion zsh\n\n", file);
    fputs("typeset -ga brim_commands=(\n", file);
    for (size_t i = 0; i < command_count; i++) {
        write_described(file, commands[i].name, commands[i].summary);
    }
    fputs(")\ntypeset -ga brim_all_stages=(\n", file);
    for (size_t i = 0; i < brim_stage_count(); i++) {
        write_described(file, brim_stage_at(i)->name, brim_stage_at(i)->summary);
    }
    fputs(")\n\n", file);
    write_tables(file);
    fputs(pipeline, file);
    fputs(command, file);
    write_file_options(file, false);
    fputs(") _files; return ;;\n    ", file);
    write_file_options(file, true);
    fputs(operands, file);
    for (size_t i = 0, found = 0; i < command_count; i++) {
        const char *operand = commands[i].operand;
        if (operand != NULL && operand[0] == 'P' && operand[1] == 'I') {
            fprintf(file, "%s%s", found++ > 0 ? " | " : "    ", commands[i].name);
        }
    }
    fputs(")\n", file);
    fputs(command_end, file);
}
