/*
 * output.c: writes tables and numbers.
 *
 * Nothing here is set by the locale: the program never calls setlocale, so the
 * decimal point is a point everywhere.
 */
#include "output.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void *take(size_t count, size_t bytes) {
    void *memory = calloc(count > 0 ? count : 1, bytes);
    if (memory == NULL) {
        fprintf(stderr, "brim: the system refused %zu bytes for the command line\n", count * bytes);
        exit(EXIT_FAILED);
    }
    return memory;
}

/* ------------------------------------------------------------------- tables */

static char *cell(const struct table *table, size_t row, size_t column) {
    return table->cells + (row * table->columns + column) * CELL_BYTES;
}

void table_row(struct table *table, const char *const *texts) {
    const size_t before = table->rows * table->columns * CELL_BYTES;
    char *cells = take(1, before + table->columns * CELL_BYTES);
    if (table->cells != NULL) {
        memcpy(cells, table->cells, before);
        free(table->cells);
    }
    table->cells = cells;
    for (size_t c = 0; c < table->columns; c++) {
        snprintf(cell(table, table->rows, c), CELL_BYTES, "%s", texts[c]);
    }
    table->rows++;
}

/* Columns on a terminal: UTF-8 characters, all taken as one column wide. */
static int width_of(const char *text) {
    int width = 0;
    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return width;
}

int terminal_columns(int descriptor) {
    struct winsize size;
    if (isatty(descriptor) != 1) {
        return 0;
    }
    return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

/* Leaves `columns` of a text, between characters, and shows that there was more. */
static void cut(char *text, int columns) {
    static const char more[] = "...";
    const int shown = columns - (int)(sizeof more - 1);
    if (width_of(text) <= columns || shown < 1) {
        return;
    }
    for (int width = 0; width < shown; width++) {
        do {
            text++;
        } while (((unsigned char)*text & 0xc0) == 0x80);
    }
    strcpy(text, more);
}

/* The same at the left, before a stage if one begins in what is left. */
static void cut_left(char *text, int columns) {
    static const char more[] = "...";
    const size_t more_bytes = sizeof more - 1;
    const int shown = columns - (int)more_bytes, width = width_of(text);
    if (width <= columns || shown < 1) {
        return;
    }
    const char *rest = text;
    for (int gone = 0; gone < width - shown; gone++) {
        do {
            rest++;
        } while (((unsigned char)*rest & 0xc0) == 0x80);
    }
    const char *stage = strstr(rest, " | ");
    rest = stage != NULL ? stage : rest + strspn(rest, " |");
    memmove(text + more_bytes, rest, strlen(rest) + 1);
    memcpy(text, more, more_bytes);
}

void table_print(struct table *table, FILE *file) {
    int widths[TABLE_COLUMNS] = { 0 };
    for (size_t r = 0; r < table->rows; r++) {
        for (size_t c = 0; c < table->columns; c++) {
            const int width = width_of(cell(table, r, c));
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    int before = 0; /* the last column */
    for (size_t c = 0; c + 1 < table->columns; c++) {
        before += widths[c] + 2;
    }
    for (size_t r = 0; r < table->rows; r++) {
        if (table->line > 0) {
            (table->tails && r > 0 ? cut_left : cut)(cell(table, r, table->columns - 1),
                                                     table->line - before);
        }
        size_t columns = table->columns; /* empty ones at the end would only be blanks */
        while (columns > 1 && cell(table, r, columns - 1)[0] == '\0') {
            columns--;
        }
        for (size_t c = 0; c < columns; c++) {
            const char *text = cell(table, r, c);
            const int gap = widths[c] - width_of(text);
            const bool right = (table->right >> c & 1u) != 0;
            const bool last = c + 1 == columns;
            fprintf(file, "%*s", right ? gap : 0, "");
            put_clean(file, text);
            fprintf(file, "%*s", last ? 0 : (right ? 0 : gap) + 2, "");
        }
        fputc('\n', file);
    }
    free(table->cells);
    table->cells = NULL;
    table->rows = 0;
}

/* ----------------------------------------------------------------- numbers */

const char *bytes_text(double bytes, char text[NUMBER_TEXT]) {
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, NUMBER_TEXT, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return text;
}

const char *count_text(uint64_t count, char text[NUMBER_TEXT]) {
    if (count == BRIM_UNKNOWN) {
        snprintf(text, NUMBER_TEXT, "unknown");
        return text;
    }
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%" PRIu64, count);
    size_t to = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            text[to++] = ',';
        }
        text[to++] = digits[i];
    }
    text[to] = '\0';
    return text;
}

const char *rate_text(double rate, char text[NUMBER_TEXT]) {
    if (rate >= 100 && rate < 1e18) {
        return count_text((uint64_t)(rate + 0.5), text);
    }
    snprintf(text, NUMBER_TEXT, "%.3g", rate);
    return text;
}

const char *time_text(double seconds, char text[NUMBER_TEXT]) {
    if (seconds < 1e-3) {
        snprintf(text, NUMBER_TEXT, "%.0f us", seconds * 1e6);
    } else if (seconds < 1) {
        snprintf(text, NUMBER_TEXT, "%.1f ms", seconds * 1e3);
    } else if (seconds < 60) {
        snprintf(text, NUMBER_TEXT, "%.2f s", seconds);
    } else if (seconds < 1e15) {
        const uint64_t whole = (uint64_t)seconds;
        if (whole < 3600) {
            snprintf(text, NUMBER_TEXT, "%" PRIu64 ":%02" PRIu64 " min", whole / 60, whole % 60);
        } else {
            snprintf(text, NUMBER_TEXT, "%" PRIu64 ":%02" PRIu64 " h", whole / 3600,
                     whole / 60 % 60);
        }
    } else {
        snprintf(text, NUMBER_TEXT, "unknown");
    }
    return text;
}

const char *shape_text(const int64_t *shape, uint32_t rank, char text[SHAPE_TEXT]) {
    size_t at = 0;
    snprintf(text, SHAPE_TEXT, "scalar");
    for (uint32_t i = 0; i < rank && at < SHAPE_TEXT; i++) {
        at +=
            (size_t)snprintf(text + at, SHAPE_TEXT - at, "%s%" PRId64, i > 0 ? "x" : "", shape[i]);
    }
    return text;
}

const char *field_shape_text(const brim_plan_field *field, bool batch, char text[SHAPE_TEXT]) {
    const uint32_t bound = field->form == BRIM_FORM_DENSE ? UINT32_MAX : 1;
    size_t at = 0;
    snprintf(text, SHAPE_TEXT, "scalar");
    for (uint32_t i = batch ? 0 : 1; i < field->rank && at < SHAPE_TEXT; i++) {
        at += (size_t)snprintf(text + at, SHAPE_TEXT - at, "%s%s%" PRId64, at > 0 ? "x" : "",
                               i == bound ? "<=" : "", field->shape[i]);
    }
    return text;
}

const char *form_name(brim_form form) {
    static const char *const names[] = {
        [BRIM_FORM_DENSE] = "dense",
        [BRIM_FORM_RAGGED] = "ragged",
        [BRIM_FORM_TEXT] = "text",
        [BRIM_FORM_BYTES] = "bytes",
    };
    return (size_t)form < sizeof names / sizeof names[0] ? names[form] : "unknown";
}

const char *field_type_text(const brim_plan_field *field, char text[NUMBER_TEXT]) {
    const char *dtype = brim_dtype_name(field->dtype);
    if (field->form == BRIM_FORM_DENSE) {
        snprintf(text, NUMBER_TEXT, "%s", dtype);
    } else if (field->form == BRIM_FORM_RAGGED) {
        snprintf(text, NUMBER_TEXT, "ragged %s", dtype);
    } else {
        snprintf(text, NUMBER_TEXT, "%s", form_name(field->form));
    }
    return text;
}

const char *device_text(brim_device kind, uint32_t index, char text[DEVICE_TEXT]) {
    if (kind == BRIM_DEVICE_HOST) {
        snprintf(text, DEVICE_TEXT, "%s", brim_device_name(kind));
    } else {
        snprintf(text, DEVICE_TEXT, "%s:%u", brim_device_name(kind), index);
    }
    return text;
}

void put_clean(FILE *file, const char *text) {
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        fputc((c < 0x20 && c != '\n') || c == 0x7f ? '?' : c, file);
    }
}

FILE *stream_of(const brim_output *output) {
    const int fd = fcntl(brim_output_file(output), F_DUPFD_CLOEXEC, 0);
    FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (fd >= 0 && file == NULL) {
        const int problem = errno;
        close(fd);
        errno = problem;
    }
    return file;
}
