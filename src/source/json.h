/*
 * json.h: JSON as a run of events, in memory that the caller gives.
 *
 * The JSON itself is libyajl's; only json.c knows it. This file adds:
 *
 * - Memory. The parser lives in memory of the caller and takes no
 *   other. A text that would need more is refused.
 * - Text is Unicode. Everything is checked to be UTF-8, and escaped surrogates
 *   to come in pairs, so that a string is UTF-8 whatever it was written as.
 * - Depth is at most BRIM__JSON_DEPTH.
 *
 * Whole texts (brim__json_parse) are read where they lie: strings point into
 * the text, escaped ones are decoded over their own raw form, which is never
 * shorter, and all stay as long as the text does. Texts in pieces
 * (brim__json_begin, _feed, _end) may be of any length; a string stays until
 * its visit returns.
 *
 * Failures are BRIM_STATUS_CORRUPT with a text that names the byte, counted from 0, and
 * what is wrong there; whatever else a visit returns ends the parse and is returned
 * as it is.
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

/* `text` is not ended by a zero, and may hold zeros. */
typedef brim_status brim__json_visit(void *user, enum brim__json_kind kind, const char *text,
                                     size_t length);

/* Bytes of memory, aligned to 16, in which every text of `longest` bytes can be
 * parsed; in pieces: every text whose strings are at most that long. */
uint64_t brim__json_whole_bytes(uint64_t longest);
uint64_t brim__json_pieces_bytes(uint64_t longest);

/* One value, with blanks around it. The text is written over. */
brim_status brim__json_parse(uint8_t *text, size_t length, void *memory, uint64_t memory_bytes,
                             brim__json_visit *visit, void *user);

struct brim__json;
/* *json lies in the memory; there is nothing to be freed. */
brim_status brim__json_begin(struct brim__json **json, void *memory, uint64_t memory_bytes,
                             brim__json_visit *visit, void *user);
brim_status brim__json_feed(struct brim__json *json, const uint8_t *text, size_t length);
brim_status brim__json_end(struct brim__json *json);

#endif
