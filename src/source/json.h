/*
 * json.h: JSON as a run of events, in memory that the caller gives.
 *
 * The JSON itself is libyajl's; only json.c knows it. This file adds:
 *
 * - Memory. The parser uses only memory that the caller gives. A text that
 *   needs more is refused.
 * - Text is Unicode. Everything is checked to be UTF-8, and escaped surrogates
 *   must come in pairs, so that every string is UTF-8.
 * - Depth is at most BRIM__JSON_DEPTH.
 *
 * Whole texts (brim__json_parse) are read in place: strings point into the text. Escaped strings
 * are decoded over their raw form, which is never shorter. All are valid as long as the text is.
 * Texts in pieces (brim__json_begin, _feed, _end) may have any length; a string is valid until its
 * visit returns.
 *
 * Failures are BRIM_STATUS_CORRUPT with a text that names the byte, counted from 0, and what is
 * wrong there. If a visit returns any status except BRIM_OK, the parse ends and returns that
 * status.
 */
#ifndef BRIM_JSON_H
#define BRIM_JSON_H

#include "base/base.h"

#define BRIM__JSON_DEPTH 64 /* objects and lists inside each other */

enum brim__json_kind {
    BRIM__JSON_NULL,
    BRIM__JSON_FALSE,
    BRIM__JSON_TRUE,
    BRIM__JSON_NUMBER, /* text: as it is written */
    BRIM__JSON_STRING, /* text: decoded */
    BRIM__JSON_KEY,    /* text: decoded; its value follows */
    BRIM__JSON_OBJECT,
    BRIM__JSON_OBJECT_END,
    BRIM__JSON_LIST,
    BRIM__JSON_LIST_END,
};

/* `text` has no zero at its end, and may contain zeros. */
typedef brim_status brim__json_visit(void *user, enum brim__json_kind kind, const char *text,
                                     size_t length);

/* How many bytes of memory, aligned to 16, are enough for every text of `longest` bytes; for
 * pieces: for every text whose strings are at most that long. */
uint64_t brim__json_whole_bytes(uint64_t longest);
uint64_t brim__json_pieces_bytes(uint64_t longest);

/* Parses one value, with optional blanks around it. The text is overwritten. */
brim_status brim__json_parse(uint8_t *text, size_t length, void *memory, uint64_t memory_bytes,
                             brim__json_visit *visit, void *user);

struct brim__json;
/* *json is in the memory; there is nothing to free. */
brim_status brim__json_begin(struct brim__json **json, void *memory, uint64_t memory_bytes,
                             brim__json_visit *visit, void *user);
brim_status brim__json_feed(struct brim__json *json, const uint8_t *text, size_t length);
brim_status brim__json_end(struct brim__json *json);

#endif
