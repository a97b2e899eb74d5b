/*
 * jsonl.h: what the files of the jsonl source share.
 *
 *     jsonl.c        the stage: arguments, opening
 *     jsonl_types.c  which fields there are and of what type, from the first records
 *     jsonl_walk.c   one line: finds the values of the chosen keys
 *     jsonl_parse.c  one line to one record
 *
 * A dot in a key leads into an object: "a.b" is the key b of the object a. It is also the key "a.b"
 * itself, because the path to a value is compared as one text. A line with both has the key twice,
 * which is bad data.
 */
#ifndef BRIM_JSONL_H
#define BRIM_JSONL_H

#include "source/json.h"
#include "source/lines.h"

#define BRIM__JSONL_KEY_BYTES 256 /* longest key, with its dots and its zero */

enum brim__jsonl_missing {
    BRIM__JSONL_MISSING_ERROR, /* null or no such key: a bad sample */
    BRIM__JSONL_MISSING_NAN,
    BRIM__JSONL_MISSING_ZERO,
};

struct brim__jsonl_field {
    const char *key;
    size_t key_length;
    char name[BRIM_NAME_BYTES]; /* made of the key */
    bool typed;                 /* the rest is known */
    brim_form form;             /* BRIM_FORM_RAGGED: a list */
    brim_dtype dtype;
    uint64_t fixed; /* length of a list that is dense; 0: no list, or ragged */
    uint64_t inner; /* length of the lists in the list; 0: it holds elements */
    uint64_t at;    /* in the record: an element, all of a dense list's, or a span */
};

struct brim__jsonl {
    uint32_t count;
    struct brim__jsonl_field field[BRIM__MAX_FIELDS];
    enum brim__jsonl_missing missing;
    uint64_t max_length;    /* of a ragged list */
    uint64_t list_bytes;    /* of the work: what all ragged lists of a line may need */
    uint64_t parsing_bytes; /* of the scratch after it */
};

/* Elements in a row: 1, or `inner` if a row is a list. */
static inline uint64_t brim__jsonl_row(const struct brim__jsonl_field *field) {
    return brim__max(1, field->inner);
}

/* ------------------------------------------------------------- jsonl_walk.c */

#define BRIM__JSONL_LISTS 2 /* lists inside each other that are walked */

/* Receives a value of field `field` (lists: 0), a value in the field's list (1), or a value in a
 * list in that list (2). Of objects, and of lists that are nested deeper, only the begin is
 * reported. */
typedef brim_status brim__jsonl_value(void *user, uint32_t field, enum brim__json_kind kind,
                                      uint32_t lists, const char *text, size_t length);

/* Walks one line, which must be an object, with memory as in json.h. Strings point into the line.
 * *seen: a bit for each field that it has. */
brim_status brim__jsonl_walk(const struct brim__jsonl *jsonl, uint8_t *line, size_t length,
                             void *memory, uint64_t memory_bytes, brim__jsonl_value *value,
                             void *user, uint32_t *seen);

/* ------------------------------------------------------------ jsonl_types.c */

/* "float32", "text", "int64[]", "float32[3]", "float32[][4]": sets the field's type. */
brim_status brim__jsonl_type(struct brim__jsonl_field *field, const char *text);
/* Adds a field for a key, given as part of a text; the key is copied to the arena. */
brim_status brim__jsonl_add(struct brim__jsonl *jsonl, struct brim__arena *arena, const char *key,
                            size_t length);

/* The kinds of values that a field had. */
struct brim__jsonl_seen {
    uint32_t bits; /* of jsonl_types.c */
    uint64_t row;  /* length of the lists in its lists; 0: there was none */
    uint64_t open; /* elements so far of the one in progress */
};

/* Looks at records one by one. If no fields are given, the first record that is an object gives
 * them. Types are determined from all records. A record that is not JSON is ignored; it will be a
 * bad sample. */
struct brim__jsonl_look {
    struct brim__jsonl *jsonl;
    struct brim__arena *arena;
    struct brim__jsonl_seen seen[BRIM__MAX_FIELDS]; /* of the fields */
    uint64_t looked;                                /* records so far ... */
    uint64_t good; /* ... and those of them that were JSON objects */
    char why[256]; /* what was wrong with the first that was not */
};
brim_status brim__jsonl_look(struct brim__jsonl_look *look, uint8_t *line, size_t length,
                             void *memory, uint64_t memory_bytes);
/* Sets the types that are not given. */
brim_status brim__jsonl_decide(const struct brim__jsonl_look *look);

/* ------------------------------------------------------------ jsonl_parse.c */

/* Sets the format's memory for lines of at most `bound` bytes: work for the elements of ragged
 * lists, to which the record's spans point, and scratch for parsing. The format's self is the
 * brim__jsonl. */
void brim__jsonl_fit(struct brim__line_format *format, uint64_t bound);

/* The parse function of the line format. */
brim_status brim__jsonl_parse(const struct brim__source *source, void *self, uint8_t *bytes,
                              uint64_t length, uint8_t *record, uint8_t *work);

#endif
