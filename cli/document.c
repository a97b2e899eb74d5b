/*
 * document.c: JSON through jansson, which keeps the order of keys, escapes text
 * and prints numbers in any locale.
 */
#include "document.h"

#include "cli.h"
#include "output.h"

#include <brim.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void out_of_memory(void) {
    fputs("brim: the system refused memory for the command line\n", stderr);
    exit(EXIT_FAILED);
}

/* Puts a value (which may be NULL: refused memory) into what is open. */
static void put(struct document *document, const char *key, json_t *value) {
    json_t *parent = document->depth > 0 ? document->open[document->depth - 1] : NULL;
    int failed = value == NULL;
    if (!failed && json_is_object(parent)) {
        failed = json_object_set_new(parent, key, value);
    } else if (!failed && parent != NULL) {
        failed = json_array_append_new(parent, value);
    }
    if (failed) {
        out_of_memory();
    }
}

static void begin(struct document *document, const char *key, json_t *nest) {
    put(document, key, nest);
    document->open[document->depth++] = nest;
}

static void end(struct document *document) {
    json_t *nest = document->open[--document->depth];
    if (document->depth == 0) {
        json_dumpf(nest, document->file, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
        fputc('\n', document->file);
        json_decref(nest);
    }
}

void put_object(struct document *document, const char *key) {
    begin(document, key, json_object());
}
void put_array(struct document *document, const char *key) {
    begin(document, key, json_array());
}
void end_object(struct document *document) {
    end(document);
}
void end_array(struct document *document) {
    end(document);
}

static json_t *replaced(const char *text) {
    static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */
    char *copy = take(strlen(text) + 1, sizeof replacement);
    size_t length = 0;
    for (const char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x80) {
            copy[length++] = *c;
        } else {
            memcpy(copy + length, replacement, sizeof replacement - 1);
            length += sizeof replacement - 1;
        }
    }
    json_t *value = json_stringn(copy, length);
    free(copy);
    return value;
}

void put_text(struct document *document, const char *key, const char *text) {
    json_t *value = text == NULL ? json_null() : json_string(text);
    put(document, key, value != NULL ? value : replaced(text));
}

void put_count(struct document *document, const char *key, uint64_t number) {
    put(document, key, json_integer(number > INT64_MAX ? INT64_MAX : (json_int_t)number));
}

void put_known(struct document *document, const char *key, uint64_t number) {
    if (number == BRIM_UNKNOWN) {
        put(document, key, json_null());
    } else {
        put_count(document, key, number);
    }
}

void put_signed(struct document *document, const char *key, int64_t number) {
    put(document, key, json_integer(number));
}

void put_real(struct document *document, const char *key, double number) {
    put(document, key, isfinite(number) ? json_real(number) : json_null());
}

void put_bool(struct document *document, const char *key, bool value) {
    put(document, key, json_boolean(value));
}

void put_hex(struct document *document, const char *key, uint64_t number) {
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, number);
    put_text(document, key, text);
}

bool json_string_write(FILE *file, const char *text, size_t length) {
    json_t *value = json_stringn(text, length);
    if (value == NULL) {
        return false;
    }
    json_dumpf(value, file, JSON_ENCODE_ANY);
    json_decref(value);
    return true;
}
