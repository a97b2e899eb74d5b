/*
 * completion_bash.c: the script for bash.
 *
 * A word in quotes that is not closed reaches the function with its quote, and is
 * replaced as a whole, so that candidates are whole pipelines. bash closes the
 * quote after a single candidate; a stage that is found is therefore offered with
 * what can follow it, which leaves the quote open.
 */
#include "completion.h"

#include "cli.h"

static const char pipeline[] =
    "# _brim_pipeline TEXT: fills COMPREPLY with texts that TEXT could become.\n"
    "_brim_pipeline() {\n"
    "    local text=$1 raw segment word before stage head=begin found\n"
    "    raw=${text##*[|(]}\n"
    "    segment=${raw#\"${raw%%[![:space:]]*}\"}\n"
    "    word=${segment##*[[:space:]]}\n"
    "    before=${text%\"$word\"}\n"
    "    stage=${segment%%[[:space:]]*}\n"
    "    [[ ${text%\"$raw\"} == *'|' ]] && head=follow\n"
    "    if [[ $segment == \"$word\" ]]; then\n"
    "        found=($(compgen -W \"$(_brim_stages $head)\" -- \"$word\"))\n"
    "        if ((${#found[@]} == 1)); then\n"
    "            before+=\"$found \"\n"
    "            found=($(_brim_arguments \"$found\") '|')\n"
    "        fi\n"
    "    elif [[ $word == *=* ]]; then\n"
    "        local key=${word%%=*} value=${word#*=}\n"
    "        found=($(compgen -P \"$key=\" -W \"$(_brim_values \"$stage.$key\")\" -- \"$value\"))\n"
    "        if _brim_takes_path \"$stage.$key\"; then\n"
    "            local IFS=$'\\n'\n"
    "            found=($(compgen -P \"$key=\" -f -- \"$value\"))\n"
    "        fi\n"
    "    else\n"
    "        found=($(compgen -W \"$(_brim_values \"$stage.\") $(_brim_arguments \"$stage\")\" "
    "-- \"$word\"))\n"
    "        if _brim_takes_path \"$stage.\"; then\n"
    "            local IFS=$'\\n'\n"
    "            found+=($(compgen -f -- \"$word\"))\n"
    "        fi\n"
    "    fi\n"
    "    if ((${#found[@]} == 1)); then\n"
    "        case $found in\n"
    "        *=) found+=($(compgen -P \"$found\" -W \"$(_brim_values \"$stage.${found%=}\")\")) "
    ";;\n"
    "        *) found+=(\"$found |\") ;;\n"
    "        esac\n"
    "    fi\n"
    "    COMPREPLY=(\"${found[@]/#/$before}\")\n"
    "}\n\n";

static const char command_begin[] =
    "_brim() {\n"
    "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local command=${COMP_WORDS[1]}\n"
    "    COMPREPLY=()\n"
    "    if ((COMP_CWORD == 1)); then\n"
    "        COMPREPLY=($(compgen -W '";
static const char file_options[] = "' -- \"$current\"))\n"
                                   "        return\n"
                                   "    fi\n"
                                   "    case $previous in\n    ";
static const char folder_options[] = ")\n"
                                     "        compopt -o filenames 2>/dev/null\n"
                                     "        COMPREPLY=($(compgen -f -- \"$current\"))\n"
                                     "        return ;;\n    ";
static const char operands[] =
    ")\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        COMPREPLY=($(compgen -d -- \"$current\"))\n"
    "        return ;;\n"
    "    esac\n"
    "    if [[ $current == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$(_brim_options \"$command\")\" -- \"$current\"))\n"
    "        return\n"
    "    fi\n"
    "    case $command in\n";
static const char command_end[] = "    esac\n"
                                  "}\n\n"
                                  "complete -F _brim brim\n";

void write_bash(FILE *file) {
    fputs("# Completes brim in bash; printed by: brim completion bash\n\n", file);
    write_tables(file);
    fputs(pipeline, file);
    fputs(command_begin, file);
    write_commands(file, NULL);
    fputs(file_options, file);
    write_file_options(file, false);
    fputs(folder_options, file);
    write_file_options(file, true);
    fputs(operands, file);
    fputs("    help) COMPREPLY=($(compgen -W '", file);
    write_commands(file, NULL);
    fputs("' -- \"$current\")) ;;\n", file);
    fputs("    cache)\n"
          "        if ((COMP_CWORD == 2)); then\n"
          "            COMPREPLY=($(compgen -W '" CACHE_ACTIONS "' -- \"$current\"))\n"
          "        else\n"
          "            compopt -o filenames 2>/dev/null\n"
          "            COMPREPLY=($(compgen -f -- \"$current\"))\n"
          "        fi ;;\n"
          "    completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$current\")) ;;\n"
          "    stages)\n"
          "        COMPREPLY=($(compgen -W \"$(_brim_stages begin) $(_brim_stages follow)\" "
          "-- \"$current\")) ;;\n",
          file);
    fputs("    *)\n"
          "        case \" ",
          file);
    write_commands(file, "PIPELINE");
    fputs(" \" in\n"
          "        *\" $command \"*)\n"
          "            compopt -o nospace 2>/dev/null\n"
          "            case $current in\n"
          "            [\\'\\\"]*) _brim_pipeline \"${current#?}\" ;;\n"
          "            *)\n"
          "                _brim_pipeline \"$current\"\n"
          "                COMPREPLY=(\"${COMPREPLY[@]/#/\\'}\") ;;\n"
          "            esac ;;\n"
          "        *)\n"
          "            compopt -o filenames 2>/dev/null\n"
          "            COMPREPLY=($(compgen -f -- \"$current\")) ;;\n"
          "        esac ;;\n",
          file);
    fputs(command_end, file);
}
