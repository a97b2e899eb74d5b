/*
 * output.h: how results are written: tables, and numbers for people.
 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <brim.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* ------------------------------------------------------------------- tables
 *
 * Cells are copied; widths follow the longest. The first row is the heading. */

#define TABLE_COLUMNS 6
#define CELL_BYTES    512

struct table {
    size_t columns;
    size_t rows;
    unsigned right; /* bit c: column c is aligned to the right */
    int line;       /* columns of a line, to which the last cell is cut; 0: any */
    bool tails;     /* ... at its left: it is a pipeline, of which the end tells more */
    char *cells;    /* CELL_BYTES each; NULL before the first */
};

/* `texts`: as many as there are columns. */
void table_row(struct table *table, const char *const *texts);
void table_print(struct table *table, FILE *file); /* and frees it */

/* Columns of a terminal; 0: it is none. */
int terminal_columns(int descriptor);

/* ----------------------------------------------------------------- numbers */

#define NUMBER_TEXT 32
const char *bytes_text(double bytes, char text[NUMBER_TEXT]);   /* "1.5 MiB" */
const char *count_text(uint64_t count, char text[NUMBER_TEXT]); /* "60,000", "unknown" */
const char *rate_text(double rate, char text[NUMBER_TEXT]);     /* "48,780", "3.25" */
const char *time_text(double seconds, char text[NUMBER_TEXT]);  /* "12.3 ms", "4:05 min" */
#define SHAPE_TEXT 192
const char *shape_text(const int64_t *shape, uint32_t rank, char text[SHAPE_TEXT]); /* "64x3" */
/* Of a planned field, the batch's dimension first or left out; a bound is marked: "64x<=3". */
const char *field_shape_text(const brim_plan_field *field, bool batch, char text[SHAPE_TEXT]);
const char *form_name(brim_form form); /* "dense", "ragged", "text", "bytes" */
/* "float32"; "ragged int64"; "text"; "bytes" */
const char *field_type_text(const brim_plan_field *field, char text[NUMBER_TEXT]);

#define DEVICE_TEXT 32
const char *device_text(brim_device kind, uint32_t index, char text[DEVICE_TEXT]); /* "cuda:0" */

/* Text from files and users on its way to a terminal: control characters are
 * shown as '?'. */
void put_clean(FILE *file, const char *text);

/* A stream to an output's file, with a descriptor of its own: it is closed before the output is
 * committed. NULL: errno says why. */
FILE *stream_of(const brim_output *output);

/* Memory for the command line itself, or an exit that says so. */
void *take(size_t count, size_t bytes);

#endif
