/*
 * parse.c: the text of a pipeline.
 *
 *     pipeline := stage ('|' stage)*
 *     stage    := name item*
 *     item     := value | key '=' value (',' value)*
 *     value    := word | "quoted" | 'quoted' | '(' pipeline ')' | @name
 *
 * White space separates; '#' where a word could begin starts a comment that lasts to the end of the
 * line. A word runs to white space or one of | ( ) =, and in arguments that take several values to
 * a comma. In quotes a backslash before a quote or a backslash makes it an ordinary character;
 * before any other character the backslash is an ordinary character.
 *
 * The characters that end a word depend on its argument, so there is no separate lexer: the parser
 * reads the text once and knows at each value which argument comes next. The text may be hostile:
 * the depth of recursion is bounded by BRIM__PIPELINE_DEPTH, and memory by the text's length.
 */
#include "plan/parse.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

struct parser {
    struct brim__reading reading;
    size_t at;       /* next byte to be read */
    uint32_t stages; /* that have begun */
};

/* --------------------------------------------------------------- messages */

/* Bytes of the character at `text`, 0 if it is not UTF-8. Bytes end with a
 * zero, which no multi-byte character contains. */
static size_t character_bytes(const char *text) {
    const unsigned char first = (unsigned char)text[0];
    const size_t bytes = first < 0x80                     ? 1
                         : first >= 0xc2 && first <= 0xdf ? 2
                         : first >= 0xe0 && first <= 0xef ? 3
                         : first >= 0xf0 && first <= 0xf4 ? 4
                                                          : 0;
    for (size_t i = 1; i < bytes; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    const unsigned char second = bytes > 1 ? (unsigned char)text[1] : 0;
    const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    const bool surrogate = first == 0xed && second > 0x9f;
    const bool too_far = first == 0xf4 && second > 0x8f;
    return overlong || surrogate || too_far ? 0 : bytes;
}

static bool is_control(char c) {
    return (unsigned char)c < 0x20 || c == 0x7f;
}

/* The bytes of one character; 1 for a byte that is not valid UTF-8. */
static size_t step(const char *text) {
    const size_t bytes = character_bytes(text);
    return bytes == 0 ? 1 : bytes;
}

size_t brim__characters(const char *text, size_t bytes) {
    size_t count = 0;
    for (size_t i = 0; i < bytes; i += step(text + i)) {
        count++;
    }
    return count;
}

/* Copies at most `most` characters of [text, end) so that they can be shown in
 * one line; returns the bytes written (at most 4 for each). */
static size_t copy_shown(char *to, const char *text, const char *end, size_t most) {
    size_t used = 0;
    for (size_t count = 0; text < end && count < most; count++) {
        const size_t bytes = character_bytes(text);
        if (bytes == 0 || is_control(*text)) {
            to[used++] = *text == '\t' ? ' ' : '?';
            text++;
        } else {
            memcpy(to + used, text, bytes);
            used += bytes;
            text += bytes;
        }
    }
    to[used] = '\0';
    return used;
}

const char *brim__show(char shown[BRIM__SHOWN], const char *text) {
    const size_t most = 40;
    _Static_assert(BRIM__SHOWN >= 40 * 4 + 4, "40 characters and the dots fit");
    const size_t length = strnlen(text, BRIM__PIPELINE_BYTES);
    const size_t used = copy_shown(shown, text, text + length, most);
    if (brim__characters(text, length) > most) {
        memcpy(shown + used, "...", 4);
    }
    return shown;
}

/* The line around `at` in `piece`, cut to what fits a terminal; returns the
 * column of `at` in it. */
#define PIECE_COLUMNS 64
#define PIECE_BYTES   (PIECE_COLUMNS * 4 + 8)
static size_t cut_piece(const char *text, size_t length, size_t at, char piece[PIECE_BYTES]) {
    size_t begin = at, end = at;
    while (begin > 0 && text[begin - 1] != '\n') {
        begin--;
    }
    while (end < length && text[end] != '\n') {
        end++;
    }
    size_t column = brim__characters(text + begin, at - begin);
    size_t used = 0;
    if (brim__characters(text + begin, end - begin) > PIECE_COLUMNS && column > PIECE_COLUMNS / 2) {
        for (; column > PIECE_COLUMNS / 2; column--) {
            begin += step(text + begin);
        }
        memcpy(piece, "...", 4);
        used = 3;
        column += 3;
    }
    used += copy_shown(piece + used, text + begin, text + end, PIECE_COLUMNS);
    if (brim__characters(text + begin, end - begin) > PIECE_COLUMNS) {
        memcpy(piece + used, "...", 4);
    }
    return column;
}

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_quote(char c) {
    return c == '"' || c == '\'';
}

/* The end of the stage that begins at `begin`, in a text that may be wrong: its '|' or ')', or the
 * end of the text. */
static size_t stage_end(const struct brim__reading *reading, size_t begin) {
    const char *text = reading->text;
    size_t at = begin, end = begin, depth = 0;
    for (char before = ' '; at < reading->length; before = text[at++]) {
        const bool fresh = is_blank(before) || strchr("|(=,", before) != NULL;
        if (fresh && is_quote(text[at])) {
            const char quote = text[at++];
            while (at < reading->length && text[at] != quote) {
                at += text[at] == '\\' && (text[at + 1] == quote || text[at + 1] == '\\') ? 2 : 1;
            }
        } else if (fresh && text[at] == '#') {
            at += strcspn(text + at, "\n");
            continue;
        } else if (text[at] == '(') {
            depth++;
        } else if (depth == 0 && (text[at] == '|' || text[at] == ')')) {
            break;
        } else if (text[at] == ')') {
            depth--;
        }
        end = is_blank(text[at]) ? end : brim__min(at + 1, reading->length);
    }
    return end;
}

brim_status brim__complain(const struct brim__reading *reading, size_t at, const char *format,
                           ...) {
    char message[640];
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    struct brim__spot spot = reading->spot;
    if (reading->text == NULL) {
        return brim__at_stage(brim__fail(BRIM_STATUS_SYNTAX, "%s", message), &spot);
    }
    char piece[PIECE_BYTES];
    const size_t column = cut_piece(reading->text, reading->length, at, piece);
    const brim_status status =
        brim__fail(BRIM_STATUS_SYNTAX, "at %zu: %s\n  %s\n  %*s^",
                   brim__characters(reading->text, at) + 1, message, piece, (int)column, "");
    brim__note_text_byte(at);
    if (spot.index != BRIM_NO_STAGE) {
        spot.end = stage_end(reading, spot.begin);
    }
    return brim__at_stage(status, &spot);
}

/* Names of other libraries, in lower case and without '_', and the stages here. */
static const struct {
    const char *foreign, *here;
} hints[] = {
    { "totensor", "normalize unit | layout chw" },
    { "horizontalflip", "flip" },
    { "randomhorizontalflip", "flip" },
    { "imagefolder", "folder" },
    { "center", "center_crop" },
    { "resizeshorter", "resize 256" },
    { "randomrotation", "rotate" },
    { "gray", "grayscale" },
    { "randaugment", "trivial_augment" },
    { "collate", "batch" },
    { "limit", "take" },
};

/* Whether two names differ only in case and '_': RandomResizedCrop, random_resized_crop. */
static bool is_same_name(const char *a, const char *b) {
    for (;; a++, b++) {
        a += strspn(a, "_");
        b += strspn(b, "_");
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) {
            return false;
        }
        if (*a == '\0') {
            return true;
        }
    }
}

/* The stage that an unknown name probably means; NULL: no guess. */
static const char *find_meant(const char *name, const char *const *names, size_t count) {
    for (size_t i = 0; i < BRIM__COUNT(hints); i++) {
        if (is_same_name(name, hints[i].foreign)) {
            return hints[i].here;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (is_same_name(name, names[i])) {
            return names[i];
        }
    }
    return strlen(name) < BRIM_NAME_BYTES ? brim_nearest(name, names, count) : NULL;
}

brim_status brim__find_stage(const struct brim__reading *reading, const char *name, size_t at,
                             const struct brim__stage **stage) {
    const char *names[128];
    size_t count = 0;
    for (size_t i = 0; i < reading->table.count; i++) {
        const struct brim__stage *row = reading->table.rows[i];
        if (strcmp(row->info.name, name) == 0) {
            *stage = row;
            return BRIM_OK;
        }
        if (count < BRIM__COUNT(names)) {
            names[count++] = row->info.name;
        }
    }
    char shown[BRIM__SHOWN];
    const char *meant = find_meant(name, names, count);
    struct brim__reading named = *reading;
    named.spot.stage = name;
    if (meant == NULL) {
        return brim__complain(&named, at, "unknown stage '%s'", brim__show(shown, name));
    }
    return brim__complain(&named, at, "unknown stage '%s'; did you mean '%s'?",
                          brim__show(shown, name), meant);
}

/* ------------------------------------------------------------------ words */

static char peek(const struct parser *parser) {
    return parser->reading.text[parser->at];
}

static bool at_end(const struct parser *parser) {
    return parser->at == parser->reading.length;
}

/* Skips white space and comments. */
static void skip_blank(struct parser *parser) {
    while (is_blank(peek(parser)) || peek(parser) == '#') {
        if (peek(parser) == '#') {
            parser->at += strcspn(parser->reading.text + parser->at, "\n");
        } else {
            parser->at++;
        }
    }
}

/* The end of the word that begins here. */
static size_t word_end(const struct parser *parser, bool commas) {
    size_t end = parser->at;
    for (;; end++) {
        const char c = parser->reading.text[end];
        if (is_control(c) || strchr(" |()=", c) != NULL || (commas && c == ',')) {
            return end;
        }
    }
}

static brim_status copy_bytes(struct parser *parser, size_t begin, size_t end, const char **copy) {
    char *to;
    const brim_status status = brim__arena_take(parser->reading.arena, end - begin + 1, &to);
    if (status == BRIM_OK) {
        memcpy(to, parser->reading.text + begin, end - begin);
        *copy = to;
    }
    return status;
}

/* Fails for a control character that is not white space: these are allowed only in quotes. */
static brim_status refuse_control(const struct parser *parser) {
    const char c = peek(parser);
    if (at_end(parser) || is_blank(c) || !is_control(c)) {
        return BRIM_OK;
    }
    return brim__complain(&parser->reading, parser->at,
                          "control character 0x%02x; put a value that contains it in quotes",
                          (unsigned)(unsigned char)c);
}

static brim_status read_quoted(struct parser *parser, const char **copy) {
    const char *text = parser->reading.text;
    const size_t open = parser->at;
    const char quote = text[open];
    size_t close = open + 1;
    while (close < parser->reading.length && text[close] != quote) {
        close +=
            text[close] == '\\' && (text[close + 1] == quote || text[close + 1] == '\\') ? 2 : 1;
    }
    if (close >= parser->reading.length) {
        return brim__complain(&parser->reading, open, "the quote %c is never closed", quote);
    }
    char *to;
    const brim_status status = brim__arena_take(parser->reading.arena, close - open, &to);
    if (status != BRIM_OK) {
        return status;
    }
    *copy = to;
    for (size_t i = open + 1; i < close; i++) {
        i += text[i] == '\\' && (text[i + 1] == quote || text[i + 1] == '\\');
        *to++ = text[i];
    }
    parser->at = close + 1;
    const char next = peek(parser);
    if (next != '\0' && !is_control(next) && strchr(" |()=,#", next) == NULL) {
        return brim__complain(&parser->reading, parser->at,
                              "white space is missing after the closing quote");
    }
    return refuse_control(parser);
}

/* ----------------------------------------------------------------- values */

static brim_status parse_stages(struct parser *parser, size_t depth, brim_pipeline *pipeline);

/* ( pipeline ) */
static brim_status parse_nested(struct parser *parser, size_t depth, brim_pipeline **nested) {
    const size_t open = parser->at;
    if (depth == BRIM__PIPELINE_DEPTH) {
        return brim__complain(&parser->reading, open,
                              "parentheses are nested deeper than %d levels", BRIM__PIPELINE_DEPTH);
    }
    brim_status status = brim__arena_take(parser->reading.arena, sizeof **nested, nested);
    if (status != BRIM_OK) {
        return status;
    }
    parser->at++;
    skip_blank(parser);
    if (peek(parser) == ')') {
        return brim__complain(&parser->reading, open, "the parentheses are empty");
    }
    if (!at_end(parser)) {
        status = parse_stages(parser, depth + 1, *nested);
    }
    if (status == BRIM_OK && at_end(parser)) {
        return brim__complain(&parser->reading, open, "the parenthesis ( is never closed");
    }
    parser->at++;
    return status;
}

/* The error if there is no value where one should begin. */
static brim_status value_missing(const struct parser *parser) {
    const brim_status status = refuse_control(parser);
    if (status != BRIM_OK) {
        return status;
    }
    const size_t at = parser->at;
    const char before = at > 0 ? parser->reading.text[at - 1] : '\0';
    if (before == '=') {
        return brim__complain(&parser->reading, at - 1,
                              "a value must follow '=' without white space; an empty one is \"\"");
    }
    if (before == ',') {
        return brim__complain(&parser->reading, at - 1,
                              "a value must follow ',' without white space; an empty one is \"\"");
    }
    if (peek(parser) == ',') {
        return brim__complain(&parser->reading, at, "there is no value before ','");
    }
    return brim__complain(&parser->reading, at, "there is no key before '='");
}

static brim_status parse_value(struct parser *parser, size_t depth, struct brim__draft *draft,
                               size_t argument) {
    const bool commas = brim__takes_several(brim_stage_argument_at(&draft->stage->info, argument));
    struct brim__raw raw = { .at = parser->at };
    brim_status status;
    if (is_quote(peek(parser))) {
        raw.spelling = BRIM__QUOTED;
        status = read_quoted(parser, &raw.text);
    } else if (peek(parser) == '(') {
        status = brim__draft_opens(draft, argument, parser->at);
        if (status == BRIM_OK) {
            status = parse_nested(parser, depth, &raw.pipeline);
        }
    } else {
        const size_t end = word_end(parser, commas);
        if (end == parser->at || peek(parser) == '#') {
            return value_missing(parser);
        }
        status = copy_bytes(parser, parser->at, end, &raw.text);
        parser->at = end;
        if (status == BRIM_OK) {
            status = refuse_control(parser);
        }
    }
    if (status == BRIM_OK && peek(parser) == '=') {
        return brim__complain(&parser->reading, parser->at,
                              "put a value that contains '=' in quotes");
    }
    return status == BRIM_OK ? brim__draft_put(draft, argument, &raw) : status;
}

/* value (',' value)* */
static brim_status parse_values(struct parser *parser, size_t depth, struct brim__draft *draft,
                                size_t argument) {
    const bool commas = brim__takes_several(brim_stage_argument_at(&draft->stage->info, argument));
    brim_status status = parse_value(parser, depth, draft, argument);
    while (status == BRIM_OK && peek(parser) == ',') {
        if (!commas) { /* only after quotes and parentheses: a word contains the comma */
            const char *name = brim_stage_argument_at(&draft->stage->info, argument)->name;
            status = brim__complain(&parser->reading, parser->at, "%s: %s takes one value",
                                    draft->stage->info.name, name);
            return brim__at_argument(status, name);
        }
        parser->at++;
        status = parse_value(parser, depth, draft, argument);
    }
    return status;
}

static brim_status parse_item(struct parser *parser, size_t depth, struct brim__draft *draft) {
    const size_t begin = parser->at;
    const size_t end = word_end(parser, false);
    size_t after = end;
    while (is_blank(parser->reading.text[after])) {
        after++;
    }
    const bool word = !is_quote(peek(parser)) && end > begin;
    size_t argument;
    brim_status status;
    if (word && parser->reading.text[end] == '=') {
        const char *key;
        status = copy_bytes(parser, begin, end, &key);
        if (status == BRIM_OK) {
            status = brim__draft_key(draft, key, begin, false, &argument);
        }
        parser->at = end + 1;
    } else if (end == begin && peek(parser) != '(') {
        return value_missing(parser);
    } else if (word && parser->reading.text[after] == '=') {
        return brim__complain(&parser->reading, after, "white space is not allowed before '='");
    } else {
        status = brim__draft_next(draft, begin, &argument);
    }
    return status == BRIM_OK ? parse_values(parser, depth, draft, argument) : status;
}

/* ----------------------------------------------------------------- stages */

static brim_status parse_name(struct parser *parser, const struct brim__stage **stage) {
    const size_t begin = parser->at;
    const size_t end = word_end(parser, false);
    const char *name;
    if (is_quote(peek(parser)) || peek(parser) == '@' || end == begin ||
        parser->reading.text[end] == '=') {
        const brim_status status = refuse_control(parser);
        return status != BRIM_OK ? status
                                 : brim__complain(&parser->reading, begin,
                                                  "the name of a stage is expected here");
    }
    brim_status status = copy_bytes(parser, begin, end, &name);
    parser->at = end;
    if (status == BRIM_OK) {
        status = refuse_control(parser);
    }
    return status == BRIM_OK ? brim__find_stage(&parser->reading, name, begin, stage) : status;
}

static bool stage_ends(const struct parser *parser) {
    return at_end(parser) || peek(parser) == '|' || peek(parser) == ')';
}

static brim_status parse_stage(struct parser *parser, size_t depth, struct brim__use *use) {
    const size_t begin = parser->at;
    const struct brim__spot outer = parser->reading.spot;
    const struct brim__stage *stage = NULL;
    struct brim__draft draft;
    parser->reading.spot =
        (struct brim__spot){ .stage = "", .index = parser->stages++, .begin = begin };
    brim_status status = parse_name(parser, &stage);
    if (status == BRIM_OK) {
        assert(stage != NULL);
        parser->reading.spot.stage = stage->info.name;
        status = brim__draft_begin(&draft, &parser->reading, stage, begin);
    }
    while (status == BRIM_OK) {
        skip_blank(parser);
        if (stage_ends(parser)) {
            status = brim__draft_end(&draft, use);
            use->given_begin = begin;
            use->given_end = stage_end(&parser->reading, begin);
            parser->reading.spot = outer;
            return status;
        }
        status = parse_item(parser, depth, &draft);
    }
    return status;
}

/* stage ('|' stage)*, up to the end or a ')'. Begins where a stage should. */
static brim_status parse_stages(struct parser *parser, size_t depth, brim_pipeline *pipeline) {
    for (;;) {
        if (pipeline->use_count == BRIM__PIPELINE_STAGES && !stage_ends(parser)) {
            return brim__complain(&parser->reading, parser->at, "a pipeline has at most %d stages",
                                  BRIM__PIPELINE_STAGES);
        }
        if (peek(parser) == '|') {
            return brim__complain(&parser->reading, parser->at, "there is no stage before '|'");
        }
        struct brim__use *use;
        brim_status status = brim__pipeline_room(parser->reading.arena, pipeline, &use);
        if (status == BRIM_OK) {
            status = parse_stage(parser, depth, use);
        }
        if (status != BRIM_OK) {
            return status;
        }
        pipeline->use_count++;
        if (peek(parser) != '|') {
            return BRIM_OK;
        }
        const size_t bar = parser->at++;
        skip_blank(parser);
        if (stage_ends(parser)) {
            return brim__complain(&parser->reading, bar, "there is no stage after '|'");
        }
    }
}

static brim_status parse_text(struct parser *parser, brim_pipeline *pipeline) {
    skip_blank(parser);
    if (at_end(parser)) {
        return brim__complain(&parser->reading, 0,
                              "the text is empty; write a pipeline like 'npy images.npy | shuffle "
                              "seed=7 | batch 64'");
    }
    brim_status status = BRIM_OK;
    if (peek(parser) != ')') {
        status = parse_stages(parser, 0, pipeline);
    }
    if (status == BRIM_OK && peek(parser) == ')') {
        return brim__complain(&parser->reading, parser->at, "this ) has no ( before it");
    }
    return status;
}

brim_status brim__pipeline_parse(struct brim__table table, const char *text,
                                 brim_pipeline **pipeline) {
    if (pipeline == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "brim_pipeline_parse: pipeline must not be NULL");
    }
    *pipeline = NULL;
    if (text == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "brim_pipeline_parse: text must not be NULL");
    }
    const size_t length = strnlen(text, BRIM__PIPELINE_BYTES + 1);
    if (length > BRIM__PIPELINE_BYTES) {
        return brim__fail(BRIM_STATUS_SYNTAX,
                          "the text is longer than %u bytes, the most that a "
                          "pipeline may have",
                          BRIM__PIPELINE_BYTES);
    }
    brim_pipeline *parsed = NULL;
    brim_status status = brim_pipeline_new(&parsed);
    if (status != BRIM_OK) {
        return status;
    }
    struct parser parser = {
        .reading = { .table = table,
                     .arena = &parsed->arena,
                     .text = text,
                     .length = length,
                     .spot = { .stage = "", .index = BRIM_NO_STAGE } },
    };
    status = parse_text(&parser, parsed);
    if (status == BRIM_OK) {
        status = brim__pipeline_keep_text(parsed);
    }
    if (status != BRIM_OK) {
        brim_pipeline_free(parsed);
        return status;
    }
    *pipeline = parsed;
    return BRIM_OK;
}

brim_status brim_pipeline_parse(const char *text, brim_pipeline **pipeline) {
    const struct brim__table table = { brim__stages, brim__stages_count };
    return brim__pipeline_parse(table, text, pipeline);
}
