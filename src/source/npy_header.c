/*
 * npy_header.c: the header of an npy file, read with a fixed grammar.
 *
 *     byte 0   \x93 N U M P Y
 *     6        major version (1, 2 or 3), minor version
 *     8        length of the text: 2 bytes (version 1) or 4, little-endian
 *     10 / 12  text, latin-1 or (version 3) UTF-8, ending in spaces and '\n'
 *     then     the elements
 *
 * The text is a Python dictionary, for which numpy's own reader runs a Python parser. This reader
 * accepts only the following grammar:
 *
 *     text  = { pair , pair , pair }         a comma may follow the last pair
 *     pair  = 'descr' : string | 'fortran_order' : True|False | 'shape' : tuple
 *     tuple = ( ) | ( n , ) | ( n , n ... )  a comma may follow the last number
 *     n     = decimal digits, with an L after them if Python 2 wrote the file
 *
 * Each key occurs once, in any order. Strings are quoted with ' or " and have no escapes. Space,
 * tab, CR and LF are allowed between any two of these. Each byte is read once, and none past the
 * text's end.
 *
 * Every error names the file and the byte of the error.
 */
#include "source/npy_header.h"

struct text {
    const char *path;
    uint64_t begin; /* byte of the file at which the text begins */
    const uint8_t *bytes;
    size_t count;
    size_t at;
};

/* The byte of the file at which byte `at` of the text lies. */
static unsigned long long file_byte(const struct text *text, size_t at) {
    return text->begin + at;
}

static brim_status bad(const struct text *text, const char *what) {
    return brim__fail_byte(BRIM_STATUS_CORRUPT, text->path, file_byte(text, text->at),
                           "npy header: %s", what);
}

static void skip_space(struct text *text) {
    while (text->at < text->count &&
           (text->bytes[text->at] == ' ' || text->bytes[text->at] == '\t' ||
            text->bytes[text->at] == '\n' || text->bytes[text->at] == '\r')) {
        text->at++;
    }
}

/* The next byte that is not space, or 0 at the end: 0 itself is never legal. */
static uint8_t peek(struct text *text) {
    skip_space(text);
    return text->at < text->count ? text->bytes[text->at] : 0;
}

static bool take(struct text *text, char wanted) {
    if (peek(text) != (uint8_t)wanted) {
        return false;
    }
    text->at++;
    return true;
}

static bool take_word(struct text *text, const char *word) {
    const size_t length = strlen(word);
    skip_space(text);
    if (text->count - text->at < length || memcmp(text->bytes + text->at, word, length) != 0) {
        return false;
    }
    text->at += length;
    return true;
}

#define STRING_BYTES 32

static brim_status take_string(struct text *text, char string[STRING_BYTES]) {
    const uint8_t quote = peek(text);
    if (quote != '\'' && quote != '"') {
        return bad(text, "expected a string in quotes");
    }
    const size_t first = text->at + 1;
    size_t length = 0;
    while (first + length < text->count && text->bytes[first + length] != quote) {
        const uint8_t c = text->bytes[first + length];
        text->at = first + length;
        if (c < ' ' || c > '~' || c == '\\') {
            return bad(text, "a character that cannot stand in the strings of a header");
        }
        if (length == STRING_BYTES - 1) {
            return bad(text, "a string longer than any valid one");
        }
        string[length++] = (char)c;
    }
    if (first + length >= text->count) {
        text->at = text->count;
        return bad(text, "the text ends inside a string");
    }
    string[length] = '\0';
    text->at = first + length + 1;
    return BRIM_OK;
}

static const struct {
    const char *code;
    brim_dtype dtype;
} dtypes[] = {
    { "b1", BRIM_DTYPE_BOOL }, { "u1", BRIM_DTYPE_U8 },    { "i1", BRIM_DTYPE_I8 },
    { "u2", BRIM_DTYPE_U16 },  { "i2", BRIM_DTYPE_I16 },   { "u4", BRIM_DTYPE_U32 },
    { "i4", BRIM_DTYPE_I32 },  { "u8", BRIM_DTYPE_U64 },   { "i8", BRIM_DTYPE_I64 },
    { "f2", BRIM_DTYPE_F16 },  { "f4", BRIM_DTYPE_F32 },   { "f8", BRIM_DTYPE_F64 },
    { "c8", BRIM_DTYPE_C64 },  { "c16", BRIM_DTYPE_C128 },
};

static brim_status refuse_dtype(const struct text *text, size_t at, const char *descr) {
    const char *why;
    switch (descr[0] == '\0' ? '\0' : descr[1]) {
    case 'O':
        why = "an object array is a pickle, which runs code when it is read: save the array with a "
              "numeric dtype";
        break;
    case 'V':
        why = "raw bytes without a meaning (numpy has no bfloat16 and writes it as V2): save the "
              "array as float32, or as .view('uint16')";
        break;
    case 'S':
    case 'U':
    case 'a':
        why = "arrays of text are not supported: save numbers";
        break;
    case 'M':
    case 'm':
        why = "brim has no dtype for times: save the array as .view('int64')";
        break;
    default:
        why = "not a dtype of brim; known are <, > or | and one of b1 u1 i1 u2 i2 u4 i4 u8 i8 f2 "
              "f4 "
              "f8 c8 c16";
        break;
    }
    return brim__fail_byte(BRIM_STATUS_UNSUPPORTED, text->path, file_byte(text, at),
                           "dtype '%s': %s", descr, why);
}

static brim_status take_descr(struct text *text, struct brim__npy_header *header) {
    const uint8_t next = peek(text);
    const size_t at = text->at;
    if (next == '[' || next == '(') {
        return brim__fail_byte(BRIM_STATUS_UNSUPPORTED, text->path, file_byte(text, at),
                               "a structured dtype: save each of its fields as a file of "
                               "its own and join them with zip");
    }
    char descr[STRING_BYTES] = "";
    const brim_status status = take_string(text, descr);
    if (status != BRIM_OK) {
        return status;
    }
    if (descr[0] == '<' || descr[0] == '>' || descr[0] == '|') {
        for (size_t i = 0; i < BRIM__COUNT(dtypes); i++) {
            if (strcmp(descr + 1, dtypes[i].code) == 0) {
                const bool single = brim_dtype_bytes(dtypes[i].dtype) == 1;
                if (descr[0] == '|' && !single) {
                    break; /* more than one byte, in no order */
                }
                header->dtype = dtypes[i].dtype;
                header->swapped = descr[0] == '>' && !single;
                return BRIM_OK;
            }
        }
    }
    return refuse_dtype(text, at, descr);
}

static brim_status take_dimension(struct text *text, uint64_t *value) {
    const uint8_t next = peek(text);
    if (next == '-') {
        return bad(text, "a negative dimension");
    }
    if (next < '0' || next > '9') {
        return bad(text, "expected a dimension: a decimal number");
    }
    const size_t first = text->at;
    uint64_t number = 0;
    while (text->at < text->count && text->bytes[text->at] >= '0' && text->bytes[text->at] <= '9') {
        if (brim__mul_overflows(number, 10, &number) ||
            brim__add_overflows(number, (uint64_t)(text->bytes[text->at] - '0'), &number) ||
            number > INT64_MAX) {
            return bad(text, "a dimension of 2^63 or more");
        }
        text->at++;
    }
    if (next == '0' && text->at - first > 1) {
        return bad(text, "a number that begins with 0");
    }
    if (text->at < text->count && text->bytes[text->at] == 'L') {
        text->at++;
    }
    *value = number;
    return BRIM_OK;
}

static brim_status take_shape(struct text *text, struct brim__shape *shape) {
    if (!take(text, '(')) {
        return bad(text, "expected the shape: a tuple in parentheses");
    }
    shape->rank = 0;
    bool comma = true; /* a number may follow */
    bool any_comma = false;
    while (!take(text, ')')) {
        if (!comma) {
            return bad(text, "expected ',' or ')' in the shape");
        }
        if (shape->rank == BRIM_MAX_RANK) {
            return brim__fail_byte(BRIM_STATUS_UNSUPPORTED, text->path, file_byte(text, text->at),
                                   "the array has more than %d dimensions: reshape it "
                                   "before saving",
                                   BRIM_MAX_RANK);
        }
        const brim_status status = take_dimension(text, &shape->dim[shape->rank]);
        if (status != BRIM_OK) {
            return status;
        }
        shape->rank++;
        comma = take(text, ',');
        any_comma = any_comma || comma;
    }
    if (shape->rank == 1 && !any_comma) {
        text->at--; /* report the parenthesis before which the comma is missing */
        return bad(text, "a shape of one dimension needs a comma: (n,)");
    }
    return BRIM_OK;
}

enum { HAS_DESCR = 1, HAS_ORDER = 2, HAS_SHAPE = 4, HAS_ALL = 7 };

static brim_status take_pair(struct text *text, unsigned *seen, struct brim__npy_header *header) {
    char key[STRING_BYTES] = "";
    (void)peek(text);
    const size_t at = text->at;
    brim_status status = take_string(text, key);
    if (status != BRIM_OK) {
        return status;
    }
    const unsigned which = strcmp(key, "descr") == 0           ? HAS_DESCR
                           : strcmp(key, "fortran_order") == 0 ? HAS_ORDER
                           : strcmp(key, "shape") == 0         ? HAS_SHAPE
                                                               : 0;
    if (which == 0 || (*seen & which) != 0) {
        text->at = at;
        return bad(text, which == 0 ? "a key other than descr, fortran_order and shape"
                                    : "a key that occurs twice");
    }
    *seen |= which;
    if (!take(text, ':')) {
        return bad(text, "expected ':' after a key");
    }
    if (which == HAS_DESCR) {
        return take_descr(text, header);
    }
    if (which == HAS_SHAPE) {
        return take_shape(text, &header->shape);
    }
    if (take_word(text, "True")) {
        header->fortran = true;
    } else if (take_word(text, "False")) {
        header->fortran = false;
    } else {
        return bad(text, "fortran_order must be True or False");
    }
    return BRIM_OK;
}

static brim_status parse(struct text *text, struct brim__npy_header *header) {
    unsigned seen = 0;
    if (!take(text, '{')) {
        return bad(text, "expected '{'");
    }
    bool comma = true; /* a pair may follow */
    while (!take(text, '}')) {
        if (!comma) {
            return bad(text, "expected ',' or '}'");
        }
        const brim_status status = take_pair(text, &seen, header);
        if (status != BRIM_OK) {
            return status;
        }
        comma = take(text, ',');
    }
    if (seen != HAS_ALL) {
        return bad(text, (seen & HAS_DESCR) == 0   ? "the key descr is missing"
                         : (seen & HAS_ORDER) == 0 ? "the key fortran_order is missing"
                                                   : "the key shape is missing");
    }
    skip_space(text);
    if (text->at != text->count) {
        return bad(text, "something follows the closing '}'");
    }
    return BRIM_OK;
}

/* Reads bytes [at, at + count) of the input. They are inside it and follow those that were read
 * before. */
static brim_status read_input(const struct brim__npy_input *input, uint64_t at, void *to,
                              size_t count) {
    assert(at <= input->bytes && count <= input->bytes - at);
    if (input->file != NULL) {
        return brim__file_read(input->file, input->begin + at, to, count);
    }
    assert(at == brim__inflate_total(input->inflater));
    return brim__inflate_read(input->inflater, to, count);
}

/* The error if the input ends too early. */
static brim_status ends(const struct brim__npy_input *input, const char *what) {
    const unsigned long long end = input->begin + input->bytes;
    return brim__fail_byte(BRIM_STATUS_CORRUPT, input->path, end, "the %s ends inside %s",
                           input->noun, what);
}

/* The header's text, in `bytes`: text->begin, count. */
static brim_status read_text(const struct brim__npy_input *input, struct text *text,
                             uint8_t bytes[BRIM__NPY_HEADER_BYTES]) {
    if (input->bytes < 10) {
        return ends(input, "the first 10 bytes of an npy header");
    }
    brim_status status = read_input(input, 0, bytes, 10);
    if (status != BRIM_OK) {
        return status;
    }
    if (memcmp(bytes, "\x93NUMPY", 6) != 0) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, input->path, input->begin,
                               "not an npy file: it does not begin with \\x93NUMPY");
    }
    if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0) {
        return brim__fail_byte(BRIM_STATUS_UNSUPPORTED, input->path, input->begin + 6,
                               "npy version %u.%u; known are 1.0, 2.0 and 3.0", bytes[6], bytes[7]);
    }
    uint64_t at = 10, length = (uint64_t)bytes[8] | (uint64_t)bytes[9] << 8;
    if (bytes[6] > 1) {
        at = 12;
        if (input->bytes < 12) {
            return ends(input, "the header's length");
        }
        status = read_input(input, 10, bytes, 2);
        if (status != BRIM_OK) {
            return status;
        }
        length |= (uint64_t)bytes[0] << 16 | (uint64_t)bytes[1] << 24;
    }
    if (length > BRIM__NPY_HEADER_BYTES) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, input->path, input->begin + 8,
                               "a header of %llu bytes; more than %d is not a header of a "
                               "numeric array",
                               (unsigned long long)length, BRIM__NPY_HEADER_BYTES);
    }
    text->begin = input->begin + at;
    text->count = length;
    if (length > input->bytes - at) {
        const unsigned long long end = input->begin + input->bytes;
        return brim__fail_byte(
            BRIM_STATUS_CORRUPT, input->path, end,
            "the %s ends, but its header should have %llu bytes from byte %llu on", input->noun,
            (unsigned long long)length, (unsigned long long)text->begin);
    }
    return read_input(input, at, bytes, length);
}

brim_status brim__npy_header_read_in(const struct brim__npy_input *input,
                                     struct brim__npy_header *header) {
    uint8_t bytes[BRIM__NPY_HEADER_BYTES];
    struct text text = { .path = input->path, .bytes = bytes };
    memset(header, 0, sizeof *header);
    brim_status status = read_text(input, &text, bytes);
    if (status == BRIM_OK) {
        status = parse(&text, header);
    }
    if (status != BRIM_OK) {
        return status;
    }

    header->data = text.begin + text.count;
    char shape[BRIM__SHAPE_TEXT];
    /* a dimension of 0 must not hide an overflow of the others */
    struct brim__shape solid = header->shape;
    bool empty = false;
    for (uint32_t i = 0; i < solid.rank; i++) {
        empty = empty || solid.dim[i] == 0;
        solid.dim[i] = brim__max(1, solid.dim[i]);
    }
    uint64_t bytes_needed;
    if (brim__shape_bytes_overflow(&solid, brim_dtype_bytes(header->dtype), &bytes_needed) ||
        bytes_needed > INT64_MAX) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, input->path, text.begin,
                               "an array of shape %s would take more than 2^63 bytes",
                               brim__shape_text(&header->shape, shape));
    }
    header->bytes = empty ? 0 : bytes_needed;
    const uint64_t end = input->begin + input->bytes;
    if (header->bytes > end - header->data) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, input->path, end,
                               "the %s ends, but %s of shape %s from byte %llu on take "
                               "%llu bytes: the file was cut short",
                               input->noun, brim_dtype_name(header->dtype),
                               brim__shape_text(&header->shape, shape),
                               (unsigned long long)header->data, (unsigned long long)header->bytes);
    }
    return BRIM_OK;
}

brim_status brim__npy_header_read(const struct brim__file *file, struct brim__npy_header *header) {
    const struct brim__npy_input input = {
        .file = file, .bytes = file->bytes, .path = file->path, .noun = "file"
    };
    return brim__npy_header_read_in(&input, header);
}
