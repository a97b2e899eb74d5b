/*
 * safetensors_header.c: reads and checks the header of a safetensors file.
 *
 *     | length of the header, 8 bytes | header: JSON | data of all tensors |
 *
 * The header is an object. For each tensor it has the dtype, the shape and the place of its data,
 * counted from the header's end. It may be 100 MB long, so it is read through a window and parsed
 * in pieces. For each tensor three numbers are kept until all are known: begin and end of its data,
 * and a hash of its name. They show whether a name occurs twice, and whether the data of all
 * tensors has a hole or an overlap between the header's end and the file's end.
 */
#include "source/safetensors_header.h"

#include "base/number.h"
#include "memory/alloc.h"
#include "source/json.h"
#include "source/source.h"

#include <stdio.h>

#define LENGTH_BYTES   8
#define MOST_HEADER    100000000 /* bytes, as the format says */
#define MOST_TENSORS   65536
#define LEAST_ENTRY    50      /* bytes of the header that the shortest tensor takes */
#define LONGEST_STRING 1048000 /* in the header: a name, or a value of its metadata; fits 1 MiB */
#define LISTED_BYTES   700     /* of the tensors' names in a message */

static const struct dtype {
    const char *name;
    uint32_t bits;
    brim_dtype dtype; /* 0: none of brim's */
} dtypes[] = {
    { "BOOL", 8, BRIM_DTYPE_BOOL },
    { "U8", 8, BRIM_DTYPE_U8 },
    { "I8", 8, BRIM_DTYPE_I8 },
    { "U16", 16, BRIM_DTYPE_U16 },
    { "I16", 16, BRIM_DTYPE_I16 },
    { "U32", 32, BRIM_DTYPE_U32 },
    { "I32", 32, BRIM_DTYPE_I32 },
    { "U64", 64, BRIM_DTYPE_U64 },
    { "I64", 64, BRIM_DTYPE_I64 },
    { "F16", 16, BRIM_DTYPE_F16 },
    { "BF16", 16, BRIM_DTYPE_BF16 },
    { "F32", 32, BRIM_DTYPE_F32 },
    { "F64", 64, BRIM_DTYPE_F64 },
    { "C64", 64, BRIM_DTYPE_C64 },
    { "F8_E4M3", 8, 0 },
    { "F8_E5M2", 8, 0 },
    { "F8_E8M0", 8, 0 },
    { "F8_E4M3FNUZ", 8, 0 },
    { "F8_E5M2FNUZ", 8, 0 },
    { "F6_E2M3", 6, 0 },
    { "F6_E3M2", 6, 0 },
    { "F4", 4, 0 },
};

/* The parser's place in the header. */
enum place {
    BEFORE,   /* the header's object has not begun */
    TENSORS,  /* in it */
    METADATA, /* in the object of its metadata */
    TENSOR,   /* in the object of one tensor */
    SHAPE,    /* in the list of its dimensions */
    OFFSETS,  /* in the list of begin and end */
};

/* The member of a tensor that the last key named. */
enum member { NO_MEMBER = 0, DTYPE = 1, DIMENSIONS = 2, DATA = 4 };

struct tensor {
    const struct dtype *dtype;
    uint32_t rank; /* may be larger than what dim holds */
    uint64_t dim[BRIM_MAX_RANK];
    uint64_t elements;
    uint64_t offsets[2]; /* of its data: begin, end */
    uint32_t offset_count;
};

/* The numbers of a tensor that are kept until all are known. */
struct extent {
    uint64_t begin, end;
    uint64_t name; /* hash */
};

struct reader {
    const char *wanted; /* NULL: the only one */
    enum place place;
    bool is_metadata; /* in TENSORS: the last key was __metadata__ */
    bool has_metadata;
    enum member member;   /* in TENSOR: what the last key was */
    uint32_t members;     /* those that the tensor has had */
    struct tensor tensor; /* the one being read ... */
    char name[96];        /* ... its name, perhaps cut, for messages ... */
    uint64_t name_hash;
    bool is_wanted;
    bool found;
    struct tensor chosen; /* the one that was wanted */
    struct extent *extent;
    size_t count, room;
    char listed[LISTED_BYTES]; /* the tensors' names */
    size_t listed_length;
};

/* ------------------------------------------------------------------ events */

static brim_status expected(const struct reader *reader, const char *what) {
    if (reader->place >= TENSOR) {
        return brim__fail(BRIM_STATUS_CORRUPT, "tensor '%s': %s", reader->name, what);
    }
    return brim__fail(BRIM_STATUS_CORRUPT, "%s", what);
}

/* Names may have any characters, but a message is one line. */
static void copy_shown(char *to, size_t bytes, const char *text, size_t length) {
    size_t used = 0;
    for (; used < length && used < bytes - 4; used++) {
        const unsigned char c = (unsigned char)text[used];
        to[used] = c < 0x20 || c == 0x7f ? '?' : text[used];
    }
    memcpy(to + used, used < length ? "..." : "", used < length ? 4 : 1);
}

static brim_status begin_tensor(struct reader *reader) {
    reader->place = TENSOR;
    reader->member = NO_MEMBER;
    reader->members = 0;
    reader->tensor = (struct tensor){ .elements = 1 };
    return BRIM_OK;
}

static void list_tensor(struct reader *reader) {
    const size_t left = sizeof reader->listed - reader->listed_length;
    const int length = snprintf(reader->listed + reader->listed_length, left, "%s'%s'",
                                reader->listed_length == 0 ? "" : ", ", reader->name);
    if ((size_t)length >= left) { /* cut here; the caller adds the number of tensors */
        reader->listed[reader->listed_length] = '\0';
        reader->listed_length = sizeof reader->listed - 1;
    } else {
        reader->listed_length += (size_t)length;
    }
}

static brim_status end_tensor(struct reader *reader) {
    const struct tensor *tensor = &reader->tensor;
    if (reader->members != (DTYPE | DIMENSIONS | DATA)) {
        return expected(reader, "needs dtype, shape and data_offsets");
    }
    if (tensor->offset_count != 2 || tensor->offsets[0] > tensor->offsets[1]) {
        return expected(reader, "data_offsets are not a begin and an end");
    }
    uint64_t bits;
    if (brim__mul_overflows(tensor->elements, tensor->dtype->bits, &bits) || bits % 8 != 0 ||
        bits / 8 != tensor->offsets[1] - tensor->offsets[0]) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "tensor '%s': data_offsets span %llu bytes, but its shape has %llu "
                          "elements of %s",
                          reader->name,
                          (unsigned long long)(tensor->offsets[1] - tensor->offsets[0]),
                          (unsigned long long)tensor->elements, tensor->dtype->name);
    }
    if (reader->count == reader->room) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "more than %zu tensors", reader->room);
    }
    reader->extent[reader->count++] = (struct extent){ .begin = tensor->offsets[0],
                                                       .end = tensor->offsets[1],
                                                       .name = reader->name_hash };
    list_tensor(reader);
    if (reader->is_wanted) {
        reader->chosen = *tensor;
        reader->found = true;
    }
    reader->place = TENSORS;
    return BRIM_OK;
}

static bool is_text(const char *text, size_t length, const char *what) {
    return length == strlen(what) && memcmp(text, what, length) == 0;
}

static brim_status on_key(struct reader *reader, const char *text, size_t length) {
    if (reader->place == TENSORS) {
        reader->is_metadata = is_text(text, length, "__metadata__");
        reader->is_wanted = reader->wanted == NULL || is_text(text, length, reader->wanted);
        reader->name_hash = brim__hash(text, length, 0);
        copy_shown(reader->name, sizeof reader->name, text, length);
        if (reader->is_metadata && reader->has_metadata) {
            return brim__fail(BRIM_STATUS_CORRUPT, "__metadata__ occurs twice");
        }
        reader->has_metadata |= reader->is_metadata;
        return BRIM_OK;
    }
    if (reader->place != TENSOR) {
        return BRIM_OK; /* metadata: any key */
    }
    reader->member = is_text(text, length, "dtype")          ? DTYPE
                     : is_text(text, length, "shape")        ? DIMENSIONS
                     : is_text(text, length, "data_offsets") ? DATA
                                                             : NO_MEMBER;
    if (reader->member == NO_MEMBER) {
        return expected(reader, "has a member that is not dtype, shape or data_offsets");
    }
    if (reader->members & reader->member) {
        return expected(reader, "has dtype, shape or data_offsets twice");
    }
    reader->members |= reader->member;
    return BRIM_OK;
}

static brim_status on_string(struct reader *reader, const char *text, size_t length) {
    if (reader->place == METADATA) {
        return BRIM_OK;
    }
    if (reader->place != TENSOR || reader->member != DTYPE) {
        return expected(reader, "has an unexpected string");
    }
    for (size_t i = 0; i < BRIM__COUNT(dtypes); i++) {
        if (is_text(text, length, dtypes[i].name)) {
            reader->tensor.dtype = &dtypes[i];
            return BRIM_OK;
        }
    }
    char shown[32];
    copy_shown(shown, sizeof shown, text, length);
    return brim__fail(BRIM_STATUS_UNSUPPORTED, "tensor '%s': dtype %s is not known", reader->name,
                      shown);
}

static brim_status on_number(struct reader *reader, const char *text, size_t length) {
    uint64_t value;
    if (reader->place != SHAPE && reader->place != OFFSETS) {
        return expected(reader, "has an unexpected number");
    }
    if (!brim__parse_unsigned(text, length, &value) || value > INT64_MAX) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "tensor '%s': %.*s is no %s: it must be an integer of 0 to 2^63 - 1",
                          reader->name, (int)brim__min(length, 40), text,
                          reader->place == SHAPE ? "dimension" : "offset");
    }
    struct tensor *tensor = &reader->tensor;
    if (reader->place == OFFSETS) {
        if (tensor->offset_count == 2) {
            return expected(reader, "data_offsets are not a begin and an end");
        }
        tensor->offsets[tensor->offset_count++] = value;
        return BRIM_OK;
    }
    if (tensor->rank < BRIM_MAX_RANK) {
        tensor->dim[tensor->rank] = value;
    }
    tensor->rank++;
    if (brim__mul_overflows(tensor->elements, value, &tensor->elements)) {
        return expected(reader, "its shape has more elements than can be counted");
    }
    return BRIM_OK;
}

static brim_status on_object(struct reader *reader) {
    switch (reader->place) {
    case BEFORE:
        reader->place = TENSORS;
        return BRIM_OK;
    case TENSORS:
        if (!reader->is_metadata) {
            return begin_tensor(reader);
        }
        reader->place = METADATA;
        return BRIM_OK;
    default:
        return expected(reader, reader->place == METADATA ? "__metadata__ may hold strings only"
                                                          : "has an unexpected object");
    }
}

static brim_status on_object_end(struct reader *reader) {
    if (reader->place == TENSOR) {
        return end_tensor(reader);
    }
    reader->place = TENSORS; /* the end of the metadata, or of the header itself */
    return BRIM_OK;
}

static brim_status on_list(struct reader *reader) {
    if (reader->place == TENSOR && reader->member == DIMENSIONS) {
        reader->place = SHAPE;
    } else if (reader->place == TENSOR && reader->member == DATA) {
        reader->place = OFFSETS;
    } else {
        return expected(reader, reader->place == METADATA ? "__metadata__ may hold strings only"
                                                          : "has an unexpected list");
    }
    return BRIM_OK;
}

static brim_status visit(void *self, enum brim__json_kind kind, const char *text, size_t length) {
    struct reader *reader = self;
    switch (kind) {
    case BRIM__JSON_KEY:
        return on_key(reader, text, length);
    case BRIM__JSON_STRING:
        return on_string(reader, text, length);
    case BRIM__JSON_NUMBER:
        if (reader->place != METADATA) {
            return on_number(reader, text, length);
        }
        break;
    case BRIM__JSON_OBJECT:
        return on_object(reader);
    case BRIM__JSON_OBJECT_END:
        return on_object_end(reader);
    case BRIM__JSON_LIST:
        return on_list(reader);
    case BRIM__JSON_LIST_END:
        reader->place = TENSOR;
        return BRIM_OK;
    case BRIM__JSON_NULL:
    case BRIM__JSON_FALSE:
    case BRIM__JSON_TRUE:
        break;
    }
    return expected(reader, reader->place == METADATA ? "__metadata__ may hold strings only"
                                                      : "has an unexpected null, true or false");
}

/* ----------------------------------------------------------------- extents */

static bool is_before(const struct extent *a, const struct extent *b, bool by_name) {
    if (by_name) {
        return a->name < b->name;
    }
    /* of tensors with the same begin, the empty ones come first */
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
}

/* Heap sort: works in place, and no order in the file makes it slow. (The C library's sort may take
 * memory.) */
static void sift(struct extent *extent, size_t root, size_t count, bool by_name) {
    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && is_before(&extent[child], &extent[child + 1], by_name)) {
            child++;
        }
        if (!is_before(&extent[root], &extent[child], by_name)) {
            return;
        }
        const struct extent swap = extent[root];
        extent[root] = extent[child];
        extent[child] = swap;
    }
}

static void sort(struct extent *extent, size_t count, bool by_name) {
    for (size_t i = count / 2; i-- > 0;) {
        sift(extent, i, count, by_name);
    }
    for (size_t i = count; i-- > 1;) {
        const struct extent swap = extent[0];
        extent[0] = extent[i];
        extent[i] = swap;
        sift(extent, 0, i, by_name);
    }
}

static brim_status check_extents(struct reader *reader, uint64_t data_bytes) {
    struct extent *extent = reader->extent;
    sort(extent, reader->count, true);
    for (size_t i = 1; i < reader->count; i++) {
        if (extent[i].name == extent[i - 1].name) {
            return brim__fail(BRIM_STATUS_CORRUPT, "the header names a tensor twice");
        }
    }
    sort(extent, reader->count, false);
    uint64_t end = 0;
    for (size_t i = 0; i < reader->count; i++) {
        if (extent[i].begin != end) {
            return brim__fail(BRIM_STATUS_CORRUPT,
                              "the tensors' data have %s: one ends at byte %llu of the data, the "
                              "next begins at %llu",
                              extent[i].begin > end ? "a hole" : "an overlap",
                              (unsigned long long)end, (unsigned long long)extent[i].begin);
        }
        end = extent[i].end;
    }
    if (end != data_bytes) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "the tensors' data are %llu bytes, but %llu follow the header: the "
                          "file is %s",
                          (unsigned long long)end, (unsigned long long)data_bytes,
                          end > data_bytes ? "cut short" : "too long");
    }
    return BRIM_OK;
}

/* ------------------------------------------------------------------ header */

static brim_status header_length(const struct brim__file *file, uint64_t *length) {
    uint8_t bytes[LENGTH_BYTES + 1]; /* and the header's first */
    if (file->bytes < sizeof bytes) {
        return brim__fail(BRIM_STATUS_CORRUPT, "%llu bytes: too short for a safetensors file",
                          (unsigned long long)file->bytes);
    }
    const brim_status status = brim__file_read(file, 0, bytes, sizeof bytes);
    if (status != BRIM_OK) {
        return status;
    }
    *length = 0;
    for (int i = LENGTH_BYTES; i-- > 0;) {
        *length = *length << 8 | bytes[i];
    }
    if (*length > MOST_HEADER) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "its header's length is %llu bytes, but %d are allowed",
                          (unsigned long long)*length, MOST_HEADER);
    }
    if (*length > file->bytes - LENGTH_BYTES) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "its header's length is %llu bytes, but the file has only %llu",
                          (unsigned long long)*length, (unsigned long long)file->bytes);
    }
    if (*length < 2 || bytes[LENGTH_BYTES] != '{') {
        return brim__fail(BRIM_STATUS_CORRUPT, "byte %d: its header does not begin with '{'",
                          LENGTH_BYTES);
    }
    return BRIM_OK;
}

static brim_status parse_header(const struct brim__file *file, uint64_t length,
                                struct brim__json *json, uint8_t *window) {
    for (uint64_t at = 0; at < length;) {
        const size_t piece = (size_t)brim__min(BRIM__READ_WINDOW, length - at);
        brim_status status = brim__file_read(file, LENGTH_BYTES + at, window, piece);
        if (status != BRIM_OK) {
            return status;
        }
        status = brim__json_feed(json, window, piece);
        if (status != BRIM_OK) {
            return brim__fail_within(status, "%s: header", file->path);
        }
        at += piece;
    }
    const brim_status status = brim__json_end(json);
    return status == BRIM_OK ? status : brim__fail_within(status, "%s: header", file->path);
}

/* Reads and checks the header; reader->chosen is the tensor wanted, if found.
 * *data: the byte after it. */
static brim_status read_header(const struct brim__file *file, struct reader *reader,
                               brim_budget *budget, uint64_t *data) {
    uint64_t length = 0;
    brim_status status = header_length(file, &length);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "%s", file->path);
    }
    const uint64_t window_bytes = brim__min(BRIM__READ_WINDOW, length);
    const uint64_t json_bytes = brim__json_pieces_bytes(brim__min(length, LONGEST_STRING));
    reader->room = (size_t)brim__min(MOST_TENSORS, length / LEAST_ENTRY + 1);
    const uint64_t extent_at = brim__align(json_bytes, BRIM__CACHE_LINE);
    const uint64_t window_at = extent_at + reader->room * sizeof(struct extent);
    uint8_t *memory = brim__alloc(budget, window_at + window_bytes, &status);
    if (memory == NULL) {
        return brim__fail_within(status, "%s: parsing its header of %llu bytes", file->path,
                                 (unsigned long long)length);
    }
    reader->extent = (struct extent *)(memory + extent_at);
    struct brim__json *json;
    status = brim__json_begin(&json, memory, json_bytes, visit, reader);
    if (status == BRIM_OK) {
        status = parse_header(file, length, json, memory + window_at);
    }
    if (status == BRIM_OK) {
        *data = LENGTH_BYTES + length;
        status = check_extents(reader, file->bytes - *data);
        if (status != BRIM_OK) {
            brim__fail_within(status, "%s", file->path);
        }
    }
    brim__free(memory);
    reader->extent = NULL;
    return status;
}

/* Fails if the tensor was not found, or if it is not clear which one is meant. */
static brim_status check_found(const struct reader *reader, const char *path) {
    const char *dots = reader->listed_length == sizeof reader->listed - 1 ? ", ..." : "";
    if (reader->count == 0) {
        return brim__fail(BRIM_STATUS_INVALID, "%s: holds no tensors", path);
    }
    if (reader->wanted == NULL && reader->count > 1) {
        const brim_status unclear = brim__fail(
            BRIM_STATUS_INVALID, "%s: holds %zu tensors: give one with tensor=; they are %s%s",
            path, reader->count, reader->listed, dots);
        return brim__at_argument(unclear, "tensor");
    }
    if (!reader->found) {
        const brim_status missing =
            brim__fail(BRIM_STATUS_INVALID, "%s: holds no tensor '%.60s'; its %zu tensors are %s%s",
                       path, reader->wanted, reader->count, reader->listed, dots);
        return brim__at_argument(missing, "tensor");
    }
    return BRIM_OK;
}

brim_status brim__safetensors_read(const struct brim__file *file, const char *wanted,
                                   brim_budget *budget, struct brim__safetensor *tensor) {
    struct reader reader = { .wanted = wanted };
    uint64_t data = 0;
    brim_status status = read_header(file, &reader, budget, &data);
    if (status == BRIM_OK) {
        status = check_found(&reader, file->path);
    }
    if (status != BRIM_OK) {
        return status;
    }
    const struct tensor *chosen = &reader.chosen;
    *tensor = (struct brim__safetensor){ .dtype_name = chosen->dtype->name,
                                         .dtype = chosen->dtype->dtype,
                                         .rank = chosen->rank,
                                         .data = data + chosen->offsets[0] };
    memcpy(tensor->dim, chosen->dim, sizeof tensor->dim);
    return BRIM_OK;
}
