/*
 * argument.c: reads one value and checks it by its row: type, range, choices.
 *
 * brim__value_read() makes an item of a value's text, or gives the reason why it cannot. It takes
 * no memory, so that printing can use it to compare with a default. Numbers are read the same under
 * every locale.
 */
#include "plan/parse.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* ---------------------------------------------------------------- numbers */

/* Digits, with single underscores between them; returns what follows, or `text`
 * when there are none. *fits: the value is below 2^63. */
static const char *read_digits(const char *text, uint64_t *value, bool *fits) {
    const char *c = text;
    *value = 0;
    *fits = true;
    while (is_digit(*c) || (*c == '_' && c > text && is_digit(c[-1]) && is_digit(c[1]))) {
        if (*c != '_') {
            *fits = *fits && !brim__mul_overflows(*value, 10, value) &&
                    !brim__add_overflows(*value, (uint64_t)(*c - '0'), value) &&
                    *value <= INT64_MAX;
        }
        c++;
    }
    return c;
}

static enum brim__outcome read_integer(const char *text, int64_t *integer) {
    const bool negative = text[0] == '-';
    const char *digits = text + (text[0] == '-' || text[0] == '+');
    uint64_t value;
    bool fits;
    const char *end = read_digits(digits, &value, &fits);
    if (end == digits || *end != '\0') {
        return BRIM__MALFORMED;
    }
    if (!fits) {
        return BRIM__TOO_LARGE;
    }
    *integer = negative ? -(int64_t)value : (int64_t)value;
    return BRIM__GOOD;
}

static enum brim__outcome read_size(const char *text, int64_t *bytes) {
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {
        { "", 1 },
        { "B", 1 },
        { "KiB", 1ull << 10 },
        { "MiB", 1ull << 20 },
        { "GiB", 1ull << 30 },
        { "TiB", 1ull << 40 },
        { "kB", 1000 },
        { "MB", 1000000 },
        { "GB", 1000000000 },
        { "TB", 1000000000000 },
    };
    uint64_t value;
    bool fits;
    const char *end = read_digits(text, &value, &fits);
    if (end == text) {
        return BRIM__MALFORMED;
    }
    for (size_t i = 0; i < BRIM__COUNT(units); i++) {
        if (strcmp(end, units[i].name) == 0) {
            if (!fits || brim__mul_overflows(value, units[i].bytes, &value) || value > INT64_MAX) {
                return BRIM__TOO_LARGE;
            }
            *bytes = (int64_t)value;
            return BRIM__GOOD;
        }
    }
    return BRIM__MALFORMED;
}

/* [+-] digits [. digits] [e [+-] digits]; at least one digit before the e. */
static bool is_real(const char *c) {
    c += *c == '-' || *c == '+';
    size_t digits = 0;
    for (; is_digit(*c); c++) {
        digits++;
    }
    if (*c == '.') {
        for (c++; is_digit(*c); c++) {
            digits++;
        }
    }
    if (digits > 0 && (*c == 'e' || *c == 'E')) {
        c++;
        c += *c == '-' || *c == '+';
        for (digits = 0; is_digit(*c); c++) {
            digits++;
        }
    }
    return digits > 0 && *c == '\0';
}

static enum brim__outcome read_real(const char *text, struct brim__item *item) {
    if (read_integer(text, &item->integer) == BRIM__GOOD) {
        item->real = (double)item->integer;
        item->integral = true;
        return BRIM__GOOD;
    }
    if (!is_real(text)) {
        return BRIM__MALFORMED;
    }
    /* The C locale of glibc and musl is a static object, so this takes no memory. */
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const double value = strtod_l(text, NULL, plain);
    freelocale(plain);
    if (!isfinite(value)) {
        return BRIM__TOO_LARGE;
    }
    item->real = value == 0 ? 0.0 : value; /* no negative zero: it would not equal a default */
    return BRIM__GOOD;
}

/* Exact for integers too: a long double holds all of them. */
static enum brim__outcome in_range(const brim_argument_info *info, long double value) {
    const bool any = info->least == 0 && info->most == 0;
    return any || (value >= info->least && value <= info->most) ? BRIM__GOOD : BRIM__OUT_OF_RANGE;
}

/* -------------------------------------------------------------- one value */

static enum brim__outcome read_choice(const char *choices, const char *text, int64_t *index) {
    const size_t length = strlen(text);
    int64_t i = 0;
    for (const char *choice = choices;; i++) {
        const size_t choice_length = strcspn(choice, "|");
        if (choice_length == length && memcmp(choice, text, length) == 0) {
            *index = i;
            return BRIM__GOOD;
        }
        if (choice[choice_length] == '\0') {
            return BRIM__MALFORMED;
        }
        choice += choice_length + 1;
    }
}

static enum brim__outcome read_binding(const char *text, enum brim__spelling spelling) {
    if (text[0] != '@' || text[1] == '\0' || spelling == BRIM__QUOTED) {
        return BRIM__MALFORMED;
    }
    for (const char *c = text + 1; *c != '\0'; c++) {
        const bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        if (!letter && !is_digit(*c) && strchr("_.-", *c) == NULL) {
            return BRIM__MALFORMED;
        }
    }
    return BRIM__GOOD;
}

enum brim__outcome brim__value_read(const brim_argument_info *info, const char *text,
                                    enum brim__spelling spelling, struct brim__item *item) {
    enum brim__outcome outcome = BRIM__MALFORMED;
    *item = (struct brim__item){ .text = text };
    if (spelling == BRIM__BARE && text[0] == '@' && info->type != BRIM_TYPE_BINDING) {
        return BRIM__MALFORMED;
    }
    switch (info->type) {
    case BRIM_TYPE_INTEGER:
        outcome = read_integer(text, &item->integer);
        return outcome == BRIM__GOOD ? in_range(info, item->integer) : outcome;
    case BRIM_TYPE_SIZE:
        outcome = read_size(text, &item->integer);
        return outcome == BRIM__GOOD ? in_range(info, item->integer) : outcome;
    case BRIM_TYPE_REAL:
    case BRIM_TYPE_WEIGHTED:
        outcome = read_real(text, item);
        return outcome == BRIM__GOOD ? in_range(info, item->real) : outcome;
    case BRIM_TYPE_YESNO:
        item->integer = strcmp(text, "yes") == 0 || strcmp(text, "true") == 0;
        return item->integer != 0 || strcmp(text, "no") == 0 || strcmp(text, "false") == 0
                   ? BRIM__GOOD
                   : BRIM__MALFORMED;
    case BRIM_TYPE_CHOICE:
        return read_choice(info->choices, text, &item->integer);
    case BRIM_TYPE_BINDING:
        item->text = text + 1;
        return read_binding(text, spelling);
    case BRIM_TYPE_WORD:
    case BRIM_TYPE_PATH:
        return BRIM__GOOD;
    case BRIM_TYPE_PIPELINE:
        return BRIM__MALFORMED;
    }
    return BRIM__MALFORMED;
}

static bool same_item(const brim_argument_info *info, const struct brim__item *a,
                      const struct brim__item *b) {
    switch (info->type) {
    case BRIM_TYPE_INTEGER:
    case BRIM_TYPE_SIZE:
    case BRIM_TYPE_YESNO:
    case BRIM_TYPE_CHOICE:
        return a->integer == b->integer;
    case BRIM_TYPE_REAL:
        return a->real == b->real && a->integral == b->integral && a->integer == b->integer;
    default:
        return strcmp(a->text, b->text) == 0;
    }
}

const char *brim__fallback_piece(const brim_argument_info *info, const char *rest,
                                 char piece[BRIM__PIECE_BYTES]) {
    const size_t length =
        (info->flags & BRIM_ARGUMENT_FLAG_LIST) != 0 ? strcspn(rest, ",") : strlen(rest);
    assert(length < BRIM__PIECE_BYTES);
    memcpy(piece, rest, length);
    piece[length] = '\0';
    return rest[length] == ',' ? rest + length + 1 : NULL;
}

bool brim__values_default(const brim_argument_info *info, const struct brim__values *values) {
    const char *rest = info->fallback;
    size_t i = 0;
    for (; rest != NULL && i < values->count; i++) {
        char piece[BRIM__PIECE_BYTES];
        struct brim__item item;
        rest = brim__fallback_piece(info, rest, piece);
        if (brim__value_read(info, piece, BRIM__BUILT, &item) != BRIM__GOOD ||
            !same_item(info, &item, &values->items[i])) {
            return false;
        }
    }
    return info->fallback != NULL && rest == NULL && i == values->count;
}

/* --------------------------------------------------------------- messages */

static void bound_text(const brim_argument_info *info, double bound, char text[BRIM__REAL_TEXT]) {
    const double most = 9.2e18; /* what an integer may be */
    if (info->type == BRIM_TYPE_SIZE && bound >= 0 && bound < most) {
        brim__bytes_text((int64_t)bound, text);
    } else if (bound > -most && bound < most && bound == (double)(int64_t)bound) {
        snprintf(text, BRIM__REAL_TEXT, "%lld", (long long)bound);
    } else {
        brim__real_text(bound, text);
    }
}

static void range_text(const brim_argument_info *info, char *text, size_t bytes) {
    char least[BRIM__REAL_TEXT], most[BRIM__REAL_TEXT];
    bound_text(info, info->least, least);
    bound_text(info, info->most, most);
    text[0] = '\0';
    if (info->least == 0 && info->most == 0) {
        return;
    }
    if (info->most >= 4.6e18) { /* 2^62 and more: no limit in practice */
        snprintf(text, bytes, " of at least %s", least);
    } else if (info->least <= -4.6e18) {
        snprintf(text, bytes, " of at most %s", most);
    } else {
        snprintf(text, bytes, " from %s to %s", least, most);
    }
}

static void choices_text(const char *choices, char *text, size_t bytes) {
    size_t used = (size_t)snprintf(text, bytes, "one of ");
    for (const char *c = choices; *c != '\0' && used + 3 < bytes; c++) {
        text[used++] = *c == '|' ? ',' : *c;
        if (*c == '|') {
            text[used++] = ' ';
        }
    }
    text[used] = '\0';
}

void brim__value_wanted(const brim_argument_info *info, char wanted[BRIM__WANTED]) {
    char range[96];
    switch (info->type) {
    case BRIM_TYPE_INTEGER:
        range_text(info, range, sizeof range);
        snprintf(wanted, BRIM__WANTED, "an integer%s", range);
        break;
    case BRIM_TYPE_REAL:
        range_text(info, range, sizeof range);
        snprintf(wanted, BRIM__WANTED, "a number%s", range);
        break;
    case BRIM_TYPE_SIZE:
        range_text(info, range, sizeof range);
        snprintf(wanted, BRIM__WANTED,
                 "a size%s: a whole number of bytes, or of B, KiB, MiB, GiB, TiB, kB, MB, GB, TB",
                 range);
        break;
    case BRIM_TYPE_YESNO:
        snprintf(wanted, BRIM__WANTED, "yes or no");
        break;
    case BRIM_TYPE_CHOICE:
        choices_text(info->choices, wanted, BRIM__WANTED);
        break;
    case BRIM_TYPE_WORD:
        snprintf(wanted, BRIM__WANTED, "a word");
        break;
    case BRIM_TYPE_PATH:
        snprintf(wanted, BRIM__WANTED, "a path");
        break;
    case BRIM_TYPE_BINDING:
        snprintf(wanted, BRIM__WANTED, "a name bound by the program, such as @data");
        break;
    case BRIM_TYPE_PIPELINE:
        snprintf(wanted, BRIM__WANTED, "a pipeline in parentheses");
        break;
    case BRIM_TYPE_WEIGHTED:
        range_text(info, range, sizeof range);
        snprintf(wanted, BRIM__WANTED, "a weight%s, followed by a pipeline in parentheses", range);
        break;
    }
}
