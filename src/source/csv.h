/*
 * csv.h: what the files of the stage `csv` share.
 *
 *     csv.c          arguments; opens the files and puts the rest together
 *     csv_columns.c  header and first records: which columns, of which types
 *     csv_parse.c    one record: bytes to values
 *     csv_text.c     one field: quotes, UTF-8, and how it is shown in messages
 *
 * A record of the source has the chosen columns, in the chosen order: a number at a multiple of its
 * size, a text as a brim__span; with pack=yes all of them side by side. A text's span points into
 * the record's bytes as read from the file, which are unquoted in place.
 */
#ifndef BRIM_CSV_H
#define BRIM_CSV_H

#include "source/lines.h"

#define BRIM__CSV_COLUMNS 65536 /* most in a file */
#define BRIM__CSV_GUESS   100   /* records that automatic types are guessed from ... */
#define BRIM__CSV_LOOK    65536 /* ... or this many bytes of them */

/* The type of a column: a dtype's number, or one of these. */
enum brim__csv_kind {
    BRIM__CSV_SKIP = 0, /* not chosen */
    BRIM__CSV_TEXT = 32,
    BRIM__CSV_BYTES,
    BRIM__CSV_AUTO, /* only until types are guessed */
};

/* The choices of `header` and `missing`, in their order. */
enum brim__csv_header { BRIM__CSV_HEADER_AUTO, BRIM__CSV_HEADER_YES, BRIM__CSV_HEADER_NO };
enum brim__csv_missing { BRIM__CSV_MISSING_ERROR, BRIM__CSV_MISSING_NAN, BRIM__CSV_MISSING_ZERO };

struct brim__csv_column {
    const char *name; /* NULL: it has none, and is called c<number> */
    uint32_t offset;  /* in the record */
    uint8_t kind;
    bool guessed; /* its type was not said */
};

/* Constant once it is open. */
struct brim__csv {
    char delimiter;
    bool has_header;
    bool pack;
    enum brim__csv_missing missing;
    uint64_t most_text; /* bytes of one text */
    uint32_t count;     /* columns in the file */
    uint32_t chosen_count;
    struct brim__csv_column *column; /* in the order of the file */
    uint32_t *chosen;                /* columns in the order of the fields */
    const uint8_t *header;           /* the first record as it stands in the first file */
    uint64_t header_bytes;
};

/* ------------------------------------------------------------- csv_text.c */

/* Splits off the field that begins at `at` <= end, unquoted in place: *text, of *length bytes. *end
 * must be the delimiter. Returns where the next field begins (end + 1 after the last one), or NULL
 * if a quote is never closed. */
char *brim__csv_split(char delimiter, char *at, char *end, char **text, size_t *length);
/* The same without unquoting: only returns where the next field begins. */
const char *brim__csv_skip(char delimiter, const char *at, const char *end);
/* Makes a text fit for a message: cuts a long one, and replaces unprintable characters by '?'.
 * Returns `shown`. */
#define BRIM__CSV_SHOWN 64
const char *brim__csv_show(char shown[BRIM__CSV_SHOWN], const char *text, size_t length);
/* The name of a column in messages. Returns `shown`. */
const char *brim__csv_column_text(const struct brim__csv *csv, uint32_t column,
                                  char shown[BRIM__CSV_SHOWN]);
/* "int64", "text". */
const char *brim__csv_kind_name(unsigned kind);
/* Removes the blanks around a text. */
void brim__csv_strip(char **text, size_t *length);
/* Whether a field is empty or one of the usual words for a missing value. */
bool brim__csv_is_missing(const char *text, size_t length);

/* ---------------------------------------------------------- csv_columns.c */

struct brim__csv_wish {
    enum brim__csv_header header;
    const struct brim__values *columns, *types; /* count 0: all, automatic */
};
/* Fills in the columns: names, choice and kinds, not yet the offsets. */
brim_status brim__csv_choose(struct brim__csv *csv, const struct brim__csv_wish *wish,
                             struct brim__lines *lines, const char *path,
                             struct brim__arena *arena);

/* ------------------------------------------------------------ csv_parse.c */

/* The parse function of the line format; self is the brim__csv. */
brim_status brim__csv_parse(const struct brim__source *source, void *self, uint8_t *bytes,
                            uint64_t length, uint8_t *record, uint8_t *work);

#endif
