/*
 * filter.h: conditions such as "label == 3", "score>0.5", "lang != 'de'" and
 * "length(tokens) <= 512".
 *
 *     condition := operand operator literal
 *     operand   := field | length(field)
 *     operator  := == != < <= > >=
 *     literal   := number | 'text' | "text"
 *
 * Blanks are allowed between the parts. A text runs from its quote to the same quote at the
 * condition's end; there are no escapes.
 */
#ifndef BRIM_FILTER_H
#define BRIM_FILTER_H

#include "transform/program.h"

__extension__ typedef __int128 brim__wide; /* holds every int64 and uint64, and what lies beyond */

enum brim__compared { BRIM__AS_INTEGER, BRIM__AS_REAL, BRIM__AS_TEXT, BRIM__AS_LENGTH };

struct brim__comparison {
    enum brim__compared compared;
    brim_dtype dtype; /* of the element in its place */
    uint32_t accepts; /* outcomes of the comparison for which it holds, as bits */
    struct brim__reader reader;
    /* the literal: whole, or a value between whole and whole + 1 */
    brim__wide whole;
    bool between;
    double real; /* a value of the field's own type */
    const char *text;
    size_t text_bytes;
};

/* Reads a condition and finds its field. If the condition needs the field's value, its pending
 * conversion is carried out. */
brim_status brim__comparison_init(struct brim__comparison *comparison,
                                  struct brim__program *program, const char *text);
bool brim__comparison_holds(const struct brim__comparison *comparison,
                            const struct brim__frame *frame);

#endif
