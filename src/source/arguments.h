/*
 * arguments.h: rows of arguments that several sources have.
 */
#ifndef BRIM_ARGUMENTS_H
#define BRIM_ARGUMENTS_H

#include "base/stage.h"

#define BRIM__FILES_ARGUMENT(help_)                                                                \
    {                                                                                              \
        .name = "files", .type = BRIM_TYPE_PATH,                                                   \
        .flags =                                                                                   \
            BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL | BRIM_ARGUMENT_FLAG_LIST, \
        .help = help_                                                                              \
    }
#define BRIM__FILE_ARGUMENT(help_)                                                          \
    {                                                                                       \
        .name = "file", .type = BRIM_TYPE_PATH,                                             \
        .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL, .help = help_ \
    }
#define BRIM__NAME_ARGUMENT(fallback_, more)                           \
    {                                                                  \
        .name = "name", .type = BRIM_TYPE_WORD, .fallback = fallback_, \
        .help = "the field's name" more                                \
    }
/* what: "the files instead of reading them" */
#define BRIM__MAP_ARGUMENT(what, more)                                                         \
    {                                                                                          \
        .name = "map", .type = BRIM_TYPE_YESNO, .fallback = "no",                              \
        .help = "map " what ": saves a copy, but a file that is truncated while it is mapped " \
                "kills the process" more                                                       \
    }
/* Of sources of lines. */
#define BRIM__MAX_BYTES_ARGUMENT(what, most_)                                                    \
    {                                                                                            \
        .name = "max_bytes", .type = BRIM_TYPE_SIZE, .fallback = "0", .least = 0, .most = most_, \
        .help = "longest " what "; a longer one is a bad sample; 0: 1 MiB, or of a stream, "     \
                "whose batches need that much room for each, 64 KiB"                             \
    }
/* The choices are those of enum brim__index_home. */
#define BRIM__INDEX_ARGUMENT(help_)                                                                \
    {                                                                                              \
        .name = "index", .type = BRIM_TYPE_CHOICE, .fallback = "cache", .choices = "cache|beside", \
        .help = help_                                                                              \
    }
#define BRIM__LINES_INDEX_ARGUMENT \
    BRIM__INDEX_ARGUMENT(          \
        "where the index of each file is kept: in the index directory, or beside the file")
/* what: "the array's values change" */
#define BRIM__VERSION_ARGUMENT(what, more)                                        \
    {                                                                             \
        .name = "version", .type = BRIM_TYPE_WORD, .fallback = "0",               \
        .help = "change it when " what ": it is part of the data's identity" more \
    }

#endif
