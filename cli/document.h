/*
 * document.h: results as one JSON document, made from the outside in.
 *
 * Nested objects and arrays are begun and ended like brackets; ending the
 * outermost prints the document with its line's end and frees it. `key` is NULL
 * for the outermost and inside arrays.
 */
#ifndef CLI_DOCUMENT_H
#define CLI_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define DOCUMENT_DEPTH 8

struct document {
    FILE *file;
    unsigned depth;
    void *open[DOCUMENT_DEPTH]; /* objects and arrays begun and not ended */
};

void put_object(struct document *document, const char *key);
void put_array(struct document *document, const char *key);
void end_object(struct document *document);
void end_array(struct document *document);
/* Text that is not UTF-8 has its bytes outside ASCII replaced by U+FFFD; NULL
 * becomes null. */
void put_text(struct document *document, const char *key, const char *text);
void put_count(struct document *document, const char *key, uint64_t number);
/* The same, null for BRIM_UNKNOWN. */
void put_known(struct document *document, const char *key, uint64_t number);
void put_signed(struct document *document, const char *key, int64_t number);
void put_real(struct document *document, const char *key, double number); /* not finite: null */
void put_bool(struct document *document, const char *key, bool value);
void put_hex(struct document *document, const char *key, uint64_t number); /* "0123456789abcdef" */

/* One string, in quotes and escaped, outside of any document. False, and nothing
 * is written, when the text is not UTF-8. */
bool json_string_write(FILE *file, const char *text, size_t length);

#endif
