/*
 * array.c: `array @name`, samples in the caller's memory.
 *
 * The first dimension counts the samples, the others are a sample's. All strides are allowed, so
 * transposed, reversed and sliced arrays need no copy. Opening reads nothing.
 *
 * A record is the range of bytes that one sample covers. If an inner stride is negative, element 0
 * is not at the lowest address:
 *
 *     lowest ............ element 0 ............ highest
 *     |<- view.offset  ->|                      |
 *     |<------------- record_bytes ------------>|
 *
 * Invariant: for all samples, offset and record are inside the memory that shape and strides
 * describe. Their arithmetic was checked for overflow.
 */
#include "source/arguments.h"
#include "source/source.h"

#include <stdio.h>

enum { ARGUMENT_ARRAY, ARGUMENT_NAME, ARGUMENT_VERSION };

struct array {
    const uint8_t *first;            /* lowest address of sample 0 */
    int64_t stride;                  /* between samples; may be zero or negative */
    char label[2 * BRIM_NAME_BYTES]; /* "array @name" */
};

static brim_status fetch(const struct brim__source *source, const brim_call *call, uint64_t count,
                         uint8_t *buffer, const uint8_t **records, uint64_t *got) {
    const struct array *array = source->self;
    (void)buffer;
    assert(call->sample < source->count && count > 0);
    *records = array->first + (int64_t)call->sample * array->stride;
    *got = brim__min(brim__min(count, source->most_run), source->count - call->sample);
    return BRIM_OK;
}

static void describe(const struct brim__source *source, uint64_t sample, char *text, size_t bytes) {
    const struct array *array = source->self;
    snprintf(text, bytes, "%s, sample %llu", array->label, (unsigned long long)sample);
}

static void close_array(struct brim__source *source) {
    source->ops = NULL;
}

static const struct brim__source_ops array_ops = {
    .fetch = fetch,
    .describe = describe,
    .close = close_array,
};

static bool all_zero(const int64_t *strides, uint32_t rank) {
    for (uint32_t i = 0; i < rank; i++) {
        if (strides[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Checks that the farthest element of the whole array is reachable in 63 bits. */
static bool span_overflows(const brim_binding *binding, const int64_t *strides) {
    uint64_t span = brim_dtype_bytes(binding->dtype);
    for (uint32_t i = 0; i < binding->rank; i++) {
        if (strides[i] == INT64_MIN) {
            return true;
        }
        const uint64_t step = (uint64_t)(strides[i] < 0 ? -strides[i] : strides[i]);
        uint64_t reach;
        if (brim__mul_overflows(step, (uint64_t)binding->shape[i] - 1, &reach) ||
            brim__add_overflows(span, reach, &span) || span > INT64_MAX) {
            return true;
        }
    }
    return false;
}

static brim_status check_shape(const brim_binding *binding) {
    const char *name = binding->name;
    if (binding->data == NULL) {
        return brim__fail(BRIM_STATUS_INVALID, "array @%s: its `data` is NULL", name);
    }
    if (brim_dtype_bytes(binding->dtype) == 0) {
        return brim__fail(BRIM_STATUS_INVALID, "array @%s: %d is not a dtype", name,
                          (int)binding->dtype);
    }
    if (binding->rank == 0 || binding->rank > BRIM_MAX_RANK) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "array @%s: rank %u, but an array has 1 to %d dimensions, of which the "
                          "first counts the samples",
                          name, binding->rank, BRIM_MAX_RANK);
    }
    for (uint32_t i = 0; i < binding->rank; i++) {
        if (binding->shape[i] < 1) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "array @%s: dimension %u is %lld, but must be at least 1", name, i,
                              (long long)binding->shape[i]);
        }
    }
    return BRIM_OK;
}

static brim_status open_array(const struct brim__use *use, struct brim__opening *opening,
                              struct brim__source *source) {
    const char *name = brim__item(use, ARGUMENT_ARRAY)->text;
    memset(source, 0, sizeof *source);
    brim_binding binding;
    brim_status status = brim__binding_find(opening, use, name, BRIM_BINDING_ARRAY, &binding);
    if (status != BRIM_OK) {
        return status;
    }
    status = check_shape(&binding);
    if (status != BRIM_OK) {
        return status;
    }

    struct brim__source_field *field = &source->field[0];
    status = brim__field_name(
        field->name, brim__given(use, ARGUMENT_NAME) ? brim__item(use, ARGUMENT_NAME)->text : name);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "array @%s", name);
    }

    struct brim__shape whole = { .rank = binding.rank };
    for (uint32_t i = 0; i < binding.rank; i++) {
        whole.dim[i] = (uint64_t)binding.shape[i];
    }
    const uint64_t item_bytes = brim_dtype_bytes(binding.dtype);
    uint64_t bytes;
    if (brim__shape_bytes_overflow(&whole, item_bytes, &bytes) || bytes > INT64_MAX) {
        return brim__fail(BRIM_STATUS_INVALID, "array @%s: its shape needs more than 2^63 bytes",
                          name);
    }
    struct brim__view view = { .dtype = binding.dtype, .shape = whole };
    brim__view_row_major(&view);
    const int64_t *strides =
        all_zero(binding.strides, binding.rank) ? view.stride : binding.strides;
    if (span_overflows(&binding, strides)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "array @%s: its strides reach further than 2^63 bytes", name);
    }

    field->view =
        (struct brim__view){ .dtype = binding.dtype, .shape = { .rank = binding.rank - 1 } };
    uint64_t record_bytes = item_bytes;
    for (uint32_t i = 1; i < binding.rank; i++) {
        const uint64_t steps = whole.dim[i] - 1;
        field->view.shape.dim[i - 1] = whole.dim[i];
        field->view.stride[i - 1] = strides[i];
        if (strides[i] < 0) {
            field->view.offset += steps * (uint64_t)-strides[i];
        }
        record_bytes += steps * (uint64_t)(strides[i] < 0 ? -strides[i] : strides[i]);
    }

    struct array *array;
    status = brim__arena_take(opening->arena, sizeof *array, &array);
    if (status != BRIM_OK) {
        return status;
    }
    array->first = (const uint8_t *)binding.data - field->view.offset;
    array->stride = strides[0];
    snprintf(array->label, sizeof array->label, "array @%s", name);

    source->self = array;
    source->count = whole.dim[0];
    source->record_bytes = record_bytes;
    /* the pitch must be positive: samples in descending order are fetched one at a time */
    source->pitch = strides[0] > 0 ? (uint64_t)strides[0] : record_bytes;
    source->most_run = strides[0] > 0 ? brim__max(1, BRIM__READ_WINDOW / source->pitch) : 1;
    source->in_memory = true;
    source->maker = array->label;
    source->field_count = 1;
    source->identity = brim__hash("array", 5, (uint64_t)binding.dtype);
    for (uint32_t i = 0; i < binding.rank; i++) {
        source->identity = brim__hash_words(source->identity, i, whole.dim[i]);
    }
    source->ops = &array_ops;
    const char *version = brim__item(use, ARGUMENT_VERSION)->text;
    source->identity = brim__hash(version, strlen(version), source->identity);
    source->unversioned = brim__unversioned(version);
    return BRIM_OK;
}

static const brim_argument_info arguments[] = {
    [ARGUMENT_ARRAY] = { .name = "array",
                         .type = BRIM_TYPE_BINDING,
                         .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
                         .help = "the array, bound when planning or opening; its first dimension "
                                 "counts the samples" },
    [ARGUMENT_NAME] = { .name = "name",
                        .type = BRIM_TYPE_WORD,
                        .help = "the field's name; left out: the binding's name" },
    [ARGUMENT_VERSION] = BRIM__VERSION_ARGUMENT("the array's values change",
                                                "; a cache file needs one that is not 0"),
};

const struct brim__stage brim__stage_array = {
    .info = { .name = "array",
              .summary = "samples from an array in the caller's memory, without a copy",
              .example = "array @images name=x",
              .room = BRIM_ROOM_SOURCE,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .open = open_array,
};
