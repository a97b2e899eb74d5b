/*
 * json.c: libyajl, with its memory bounded and its text checked.
 *
 *     memory: | struct brim__json | blocks of yajl ... --> | spare, for the error's text |
 *
 * yajl takes memory through hooks, and uses their result without checking it, so a hook without
 * memory must not return. It leaves yajl by longjmp, which is safe, because everything that yajl
 * has is in this memory and is discarded with it. Blocks are never freed one by one. Only the last
 * block grows in place, and that is usually the one that grows (the buffer of a decoded string).
 *
 * yajl takes its handle, lexer and two buffers' heads (a few hundred bytes), 128 bytes for 128
 * levels, and the two buffers, which begin at 2 KiB and double: one for the string being decoded,
 * one for a token that is cut by the end of a piece.
 *
 * yajl's own check of UTF-8 accepts overlong forms and surrogates, an unpaired escaped surrogate is
 * decoded to something else, and vertical tabs and form feeds count as blanks. So the text is
 * checked here, before it goes to yajl, and yajl's check is off. Backslashes occur only in strings,
 * so escapes can be checked without knowing where strings begin.
 */
#include "source/json.h"

#include <setjmp.h>
#include <stdio.h>
#include <yajl/yajl_parse.h>

#define FIXED_BYTES     1024 /* all but the two buffers: twice what version 2.1 takes */
#define BUFFER_BYTES    2048 /* what yajl's buffers begin with */
#define SPARE_BYTES     512  /* for the text of an error */
#define BLOCK_HEAD      16
#define CHECKED_AT_ONCE 32

/* The state of the check of a text after the bytes so far. */
struct check {
    uint8_t more;        /* continuation bytes that must follow ... */
    uint8_t least, most; /* ... the next of them in this range */
    uint8_t digits;      /* hexadecimal ones of \u that must follow */
    bool escaped;        /* after a backslash */
    bool high;           /* after an escaped high surrogate: a low one must follow */
    uint16_t unit;       /* of \u so far */
};

struct brim__json {
    uint8_t *memory, *end; /* what is left: [next, end) */
    uint8_t *next;
    uint8_t *last; /* the newest block, NULL before the first */
    jmp_buf refused;
    yajl_handle handle;
    brim__json_visit *visit;
    void *user;
    brim_status status; /* what ended the parse */
    uint32_t depth;
    uint64_t before; /* bytes of the pieces before this one */
    uint8_t *whole;  /* the whole text, which may be written over; NULL: in pieces */
    struct check check;
};

/* ------------------------------------------------------------------ memory */

static void *take(void *self, size_t bytes) {
    struct brim__json *json = self;
    if (bytes > (size_t)(json->end - json->next) ||
        brim__align(bytes, BLOCK_HEAD) + BLOCK_HEAD > (size_t)(json->end - json->next)) {
        longjmp(json->refused, 1);
    }
    json->last = json->next + BLOCK_HEAD;
    memcpy(json->next, &bytes, sizeof bytes);
    json->next = json->last + brim__align(bytes, BLOCK_HEAD);
    return json->last;
}

static void *take_again(void *self, void *block, size_t bytes) {
    struct brim__json *json = self;
    if (block == NULL) {
        return take(self, bytes);
    }
    size_t old;
    memcpy(&old, (uint8_t *)block - BLOCK_HEAD, sizeof old);
    if (block == json->last) {
        json->next = json->last - BLOCK_HEAD;
        return take(self, bytes);
    }
    return memcpy(take(self, bytes), block, brim__min(old, bytes));
}

static void give_back(void *self, void *block) {
    (void)self;
    (void)block;
}

/* The buffer in which yajl keeps `longest` bytes and a zero. */
static uint64_t buffer_bytes(uint64_t longest) {
    uint64_t bytes = BUFFER_BYTES;
    while (bytes <= longest && bytes < UINT64_MAX / 8) {
        bytes *= 2;
    }
    return bytes + BLOCK_HEAD;
}

uint64_t brim__json_whole_bytes(uint64_t longest) {
    /* the end of a text also uses the buffer for tokens that are cut */
    return sizeof(struct brim__json) + FIXED_BYTES + buffer_bytes(longest) + buffer_bytes(0) +
           SPARE_BYTES;
}

uint64_t brim__json_pieces_bytes(uint64_t longest) {
    /* both buffers, and the same again for the smaller blocks before they grew; a cut string is
     * kept with its quotes */
    return sizeof(struct brim__json) + FIXED_BYTES + 4 * buffer_bytes(longest + 2) + SPARE_BYTES;
}

/* ------------------------------------------------------------------- check */

static const char *check_lead(struct check *check, uint8_t byte) {
    check->least = 0x80;
    check->most = 0xbf;
    if (byte >= 0xc2 && byte <= 0xdf) {
        check->more = 1;
    } else if (byte >= 0xe0 && byte <= 0xef) {
        check->more = 2;
        check->least = byte == 0xe0 ? 0xa0 : 0x80; /* not overlong */
        check->most = byte == 0xed ? 0x9f : 0xbf;  /* no surrogates */
    } else if (byte >= 0xf0 && byte <= 0xf4) {
        check->more = 3;
        check->least = byte == 0xf0 ? 0x90 : 0x80;
        check->most = byte == 0xf4 ? 0x8f : 0xbf; /* up to U+10FFFF */
    } else {
        return "is not UTF-8";
    }
    return NULL;
}

static const char *check_digit(struct check *check, uint8_t byte) {
    const uint8_t letter = (uint8_t)(byte | 0x20);
    uint32_t digit;
    if (byte >= '0' && byte <= '9') {
        digit = byte - (uint32_t)'0';
    } else if (letter >= 'a' && letter <= 'f') {
        digit = letter - (uint32_t)'a' + 10;
    } else {
        *check = (struct check){ 0 }; /* yajl will report the error */
        return NULL;
    }
    check->unit = (uint16_t)(check->unit << 4 | digit);
    if (--check->digits > 0) {
        return NULL;
    }
    const bool low = (check->unit & 0xfc00) == 0xdc00;
    if (low != check->high) {
        return "half of an escaped surrogate pair without the other half";
    }
    check->high = (check->unit & 0xfc00) == 0xd800;
    return NULL;
}

/* yajl takes these for blanks; JSON does not allow them anywhere. */
static bool is_feed(uint8_t byte) {
    return byte == '\v' || byte == '\f';
}

static const char *check_byte(struct check *check, uint8_t byte) {
    if (is_feed(byte)) {
        return "a control character that may not stand in JSON";
    }
    if (check->more > 0) {
        if (byte < check->least || byte > check->most) {
            return "is not UTF-8";
        }
        check->least = 0x80;
        check->most = 0xbf;
        check->more--;
        return NULL;
    }
    if (check->digits > 0) {
        return check_digit(check, byte);
    }
    if (check->escaped) {
        check->escaped = false;
        if (byte == 'u') {
            check->digits = 4;
            check->unit = 0;
            return NULL;
        }
    } else if (byte == '\\') {
        check->escaped = true;
        return NULL;
    }
    if (check->high) {
        return "half of an escaped surrogate pair without the other half";
    }
    return byte < 0x80 ? NULL : check_lead(check, byte);
}

static bool is_idle(const struct check *check) {
    return check->more == 0 && check->digits == 0 && !check->escaped && !check->high;
}

/* Almost all text is ASCII without escapes, which is checked in blocks. */
static bool is_plain(const uint8_t *text) {
    uint8_t found = 0;
    for (int i = 0; i < CHECKED_AT_ONCE; i++) {
        found |= (uint8_t)((text[i] & 0x80) | (text[i] == '\\') | is_feed(text[i]));
    }
    return found == 0;
}

static brim_status check_text(struct brim__json *json, const uint8_t *text, size_t length) {
    for (size_t at = 0; at < length;) {
        if (length - at >= CHECKED_AT_ONCE && is_idle(&json->check) && is_plain(text + at)) {
            at += CHECKED_AT_ONCE;
            continue;
        }
        const size_t end = (size_t)brim__min(at + CHECKED_AT_ONCE, length);
        for (; at < end; at++) {
            const char *why = check_byte(&json->check, text[at]);
            if (why != NULL) {
                const unsigned long long byte = json->before + at;
                return brim__fail(BRIM_STATUS_CORRUPT, "byte %llu: %s", byte, why);
            }
        }
    }
    return BRIM_OK;
}

/* ------------------------------------------------------------------ events */

static int tell(struct brim__json *json, enum brim__json_kind kind, const char *text,
                size_t length) {
    json->status = json->visit(json->user, kind, text, length);
    return json->status == BRIM_OK;
}

static int on_null(void *self) {
    return tell(self, BRIM__JSON_NULL, NULL, 0);
}

static int on_boolean(void *self, int value) {
    return tell(self, value ? BRIM__JSON_TRUE : BRIM__JSON_FALSE, NULL, 0);
}

static int on_number(void *self, const char *text, size_t length) {
    return tell(self, BRIM__JSON_NUMBER, text, length);
}

static int tell_string(struct brim__json *json, enum brim__json_kind kind,
                       const unsigned char *text, size_t length) {
    if (json->whole != NULL) {
        uint8_t *behind = json->whole + yajl_get_bytes_consumed(json->handle) - 1;
        if (text + length != behind) { /* decoded elsewhere: to where its raw form ends */
            text = length == 0 ? behind : memcpy(behind - length, text, length);
        }
    }
    return tell(json, kind, (const char *)text, length);
}

static int on_string(void *self, const unsigned char *text, size_t length) {
    return tell_string(self, BRIM__JSON_STRING, text, length);
}

static int on_key(void *self, const unsigned char *text, size_t length) {
    return tell_string(self, BRIM__JSON_KEY, text, length);
}

static int enter(struct brim__json *json, enum brim__json_kind kind) {
    if (json->depth == BRIM__JSON_DEPTH) {
        json->status = brim__fail(
            BRIM_STATUS_CORRUPT, "byte %llu: objects and lists are nested deeper than %d",
            (unsigned long long)(json->before + yajl_get_bytes_consumed(json->handle) - 1),
            BRIM__JSON_DEPTH);
        return 0;
    }
    json->depth++;
    return tell(json, kind, NULL, 0);
}

static int leave(struct brim__json *json, enum brim__json_kind kind) {
    json->depth--;
    return tell(json, kind, NULL, 0);
}

static int on_object(void *self) {
    return enter(self, BRIM__JSON_OBJECT);
}

static int on_object_end(void *self) {
    return leave(self, BRIM__JSON_OBJECT_END);
}

static int on_list(void *self) {
    return enter(self, BRIM__JSON_LIST);
}

static int on_list_end(void *self) {
    return leave(self, BRIM__JSON_LIST_END);
}

static const yajl_callbacks callbacks = {
    .yajl_null = on_null,
    .yajl_boolean = on_boolean,
    .yajl_number = on_number,
    .yajl_string = on_string,
    .yajl_start_map = on_object,
    .yajl_map_key = on_key,
    .yajl_end_map = on_object_end,
    .yajl_start_array = on_list,
    .yajl_end_array = on_list_end,
};

/* ----------------------------------------------------------------- parsing */

/* The failure has yajl's text without its kind ("parse error: ") and line end. yajl may or may not
 * have consumed the byte that it refuses, depending on the error. */
static brim_status fail_parse(struct brim__json *json, uint64_t byte) {
    json->end += SPARE_BYTES;
    const char *text = (const char *)yajl_get_error(json->handle, 0, NULL, 0);
    const char *colon = text == NULL ? NULL : strchr(text, ':');
    const char *why = colon == NULL ? "not JSON" : colon + 2;
    if (strncmp(why, "premature EOF", 13) == 0) {
        why = "ends too early";
    }
    return brim__fail(BRIM_STATUS_CORRUPT, "near byte %llu: %.*s", (unsigned long long)byte,
                      (int)strcspn(why, ".\n"), why);
}

brim_status brim__json_begin(struct brim__json **json, void *memory, uint64_t memory_bytes,
                             brim__json_visit *visit, void *user) {
    assert(memory_bytes >= brim__json_whole_bytes(0));
    struct brim__json *self = memory;
    *self = (struct brim__json){ .memory = memory, .visit = visit, .user = user };
    self->next = (uint8_t *)memory + brim__align(sizeof *self, BLOCK_HEAD);
    self->end = (uint8_t *)memory + memory_bytes - SPARE_BYTES;
    yajl_alloc_funcs hooks = {
        .malloc = take, .realloc = take_again, .free = give_back, .ctx = self
    };
    if (setjmp(self->refused) != 0) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "this version of libyajl needs more than %d bytes", FIXED_BYTES);
    }
    self->handle = yajl_alloc(&callbacks, &hooks, self);
    yajl_config(self->handle, yajl_dont_validate_strings, 1);
    *json = self;
    return BRIM_OK;
}

brim_status brim__json_feed(struct brim__json *json, const uint8_t *text, size_t length) {
    if (length == 0) {
        return BRIM_OK;
    }
    const brim_status status = check_text(json, text, length);
    if (status != BRIM_OK) {
        return status;
    }
    if (setjmp(json->refused) != 0) {
        if (json->whole != NULL) { /* yajl keeps only a token that the text's end cuts */
            return brim__fail(BRIM_STATUS_CORRUPT, "byte %llu: ends too early",
                              (unsigned long long)length);
        }
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "byte %llu: a string or number here is too long: %llu bytes are set "
                          "aside for parsing",
                          (unsigned long long)json->before,
                          (unsigned long long)(json->end - json->memory));
    }
    switch (yajl_parse(json->handle, text, length)) {
    case yajl_status_ok:
        json->before += length;
        return BRIM_OK;
    case yajl_status_client_canceled:
        return json->status;
    case yajl_status_error:
        break;
    }
    return fail_parse(json, json->before + yajl_get_bytes_consumed(json->handle));
}

brim_status brim__json_end(struct brim__json *json) {
    json->whole = NULL; /* the last value's text is in yajl's memory, not in `whole` */
    if (!is_idle(&json->check) || setjmp(json->refused) != 0) {
        return brim__fail(BRIM_STATUS_CORRUPT, "byte %llu: ends too early",
                          (unsigned long long)json->before);
    }
    switch (yajl_complete_parse(json->handle)) {
    case yajl_status_ok:
        return BRIM_OK;
    case yajl_status_client_canceled:
        return json->status;
    case yajl_status_error:
        break;
    }
    return fail_parse(json, json->before);
}

brim_status brim__json_parse(uint8_t *text, size_t length, void *memory, uint64_t memory_bytes,
                             brim__json_visit *visit, void *user) {
    struct brim__json *json;
    brim_status status = brim__json_begin(&json, memory, memory_bytes, visit, user);
    if (status != BRIM_OK) {
        return status;
    }
    json->whole = text;
    status = brim__json_feed(json, text, length);
    return status == BRIM_OK ? brim__json_end(json) : status;
}
