/*
 * parse.h: makes the arguments of a stage from the text of values.
 *
 * Texts and the builder both use this code, so they have the same checks:
 *
 *     text             --parse.c-----+
 *                                    +--> raw values --draft.c--> brim__use
 *     brim_argument[]  --pipeline.c--+
 *
 * A draft collects the values of one stage in the order in which they are written, finds the
 * argument that each belongs to, checks it, and at its end adds the defaults. Positions are bytes
 * of the text; messages count characters.
 */
#ifndef BRIM_PARSE_H
#define BRIM_PARSE_H

#include "plan/pipeline.h"

/* The rows in which names are looked up. */
struct brim__table {
    const struct brim__stage *const *rows;
    size_t count;
};

/* The context of reading: the table for names, the arena for copies and the text for messages. */
struct brim__reading {
    struct brim__table table;
    struct brim__arena *arena;
    const char *text; /* NULL: stages are added one by one, there is no text to show */
    size_t length;
    struct brim__spot spot; /* the stage in work; its end is found when it is asked for */
};

enum brim__spelling {
    BRIM__BARE,   /* a word: a leading @ makes it a binding */
    BRIM__QUOTED, /* never a binding */
    BRIM__BUILT,  /* from the builder: a binding where the argument wants one */
};

/* One value before it is checked. */
struct brim__raw {
    const char *text;        /* unquoted, lives as long as the arena; NULL: a pipeline */
    brim_pipeline *pipeline; /* only read */
    enum brim__spelling spelling;
    size_t at;
};

struct brim__draft_values {
    struct brim__item *items;
    size_t count, capacity;
    size_t at;       /* of the latest */
    bool positional; /* given without the key */
    bool closed;     /* positional list that a key=value has ended */
    bool half;       /* WEIGHTED: the latest weight still lacks its pipeline */
};

struct brim__draft {
    const struct brim__reading *reading;
    const struct brim__stage *stage;
    size_t at;     /* of the stage's name */
    size_t cursor; /* argument that the next value without a key belongs to */
    struct brim__draft_values *values;
};

/* ---------------------------------------------------------------- parse.c */

/* BRIM_STATUS_SYNTAX with the place, the message, and the piece of text with a caret. Adds the
 * stage to the failure. */
brim_status brim__complain(const struct brim__reading *reading, size_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Makes a value fit for a message: cuts a long one, and replaces control characters and bytes that
 * are not UTF-8 by '?'. Returns `shown`. */
#define BRIM__SHOWN 176
const char *brim__show(char shown[BRIM__SHOWN], const char *text);
/* Characters in the first `bytes` bytes. */
size_t brim__characters(const char *text, size_t bytes);
/* The row of that name, or a message with the nearest one. */
brim_status brim__find_stage(const struct brim__reading *reading, const char *name, size_t at,
                             const struct brim__stage **stage);
/* brim_pipeline_parse with any table. */
brim_status brim__pipeline_parse(struct brim__table table, const char *text,
                                 brim_pipeline **pipeline);

/* ------------------------------------------------------------- pipeline.c */

/* brim_pipeline_add with any table. */
brim_status brim__pipeline_add(struct brim__table table, brim_pipeline *pipeline, const char *stage,
                               const brim_argument *arguments, size_t count);
/* Makes room for one more use, from the given arena; the caller counts it. */
brim_status brim__pipeline_room(struct brim__arena *arena, brim_pipeline *pipeline,
                                struct brim__use **use);
/* Makes pipeline->text. */
brim_status brim__pipeline_keep_text(brim_pipeline *pipeline);

/* ------------------------------------------------------------- argument.c */

enum brim__outcome { BRIM__GOOD, BRIM__MALFORMED, BRIM__TOO_LARGE, BRIM__OUT_OF_RANGE };

/* Whether several values, separated by commas, are allowed. */
static inline bool brim__takes_several(const brim_argument_info *info) {
    return (info->flags & BRIM_ARGUMENT_FLAG_LIST) != 0 || info->type == BRIM_TYPE_WEIGHTED;
}
/* Reads one value; for WEIGHTED the weight. Takes no memory: item->text points into `text`. */
enum brim__outcome brim__value_read(const brim_argument_info *info, const char *text,
                                    enum brim__spelling spelling, struct brim__item *item);
/* The values that an argument allows: "an integer from 1 to 64". */
#define BRIM__WANTED 320
void brim__value_wanted(const brim_argument_info *info, char wanted[BRIM__WANTED]);
/* Copies the first value of a default, or of the rest of one, to `piece`;
 * returns the rest, NULL after the last value. */
#define BRIM__PIECE_BYTES 128
const char *brim__fallback_piece(const brim_argument_info *info, const char *rest,
                                 char piece[BRIM__PIECE_BYTES]);
/* Whether the values are the argument's default. */
bool brim__values_default(const brim_argument_info *info, const struct brim__values *values);

/* ---------------------------------------------------------------- draft.c */

brim_status brim__draft_begin(struct brim__draft *draft, const struct brim__reading *reading,
                              const struct brim__stage *stage, size_t at);
/* The argument that the next value without a key belongs to. */
brim_status brim__draft_next(struct brim__draft *draft, size_t at, size_t *argument);
/* The argument of that name. again: a list that has values may get more. */
brim_status brim__draft_key(struct brim__draft *draft, const char *key, size_t at, bool again,
                            size_t *argument);
/* Fails if the argument does not take a pipeline. */
brim_status brim__draft_opens(const struct brim__draft *draft, size_t argument, size_t at);
brim_status brim__draft_put(struct brim__draft *draft, size_t argument,
                            const struct brim__raw *raw);
brim_status brim__draft_end(struct brim__draft *draft, struct brim__use *use);

/* ---------------------------------------------------------------- print.c */

/* The shortest text that reads as the same number, with a '.' or an exponent, under every
 * locale. */
#define BRIM__REAL_TEXT 32
void brim__real_text(double value, char text[BRIM__REAL_TEXT]);
/* Bytes, or a whole number of KiB, MiB or GiB. */
void brim__bytes_text(int64_t bytes, char text[BRIM__SIZE_TEXT]);
/* All stages, like brim__use_text. */
size_t brim__pipeline_write(const brim_pipeline *pipeline, bool full, bool without_paths,
                            char *text, size_t bytes);
/* Write the pipeline's own text: all of it, or one more use after its first `at` bytes. They also
 * set the positions of stages and values in the text. */
void brim__pipeline_mark(brim_pipeline *pipeline, char *text, size_t bytes);
void brim__use_mark(brim_pipeline *pipeline, struct brim__use *use, char *text, size_t at,
                    size_t bytes);

#endif
