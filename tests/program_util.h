/*
 * program_util.h: a source and the transforms behind it, without an engine.
 *
 * A pipeline's text is parsed, its source opened and its stages added to one
 * program, which is then run sample by sample over rows of exactly the size that
 * they need, so that the sanitizer sees one byte too many. What comes out is
 * compared as text:
 *
 *     id=3 v=[1 2 3] tokens=(4 5) word='ab'; id=4 ...
 *
 * [] is a dense vector, () one whose length is the sample's own. "-" is a sample
 * that was dropped, "bad" one that failed.
 */
#ifndef BRIM_TESTS_PROGRAM_UTIL_H
#define BRIM_TESTS_PROGRAM_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/pipeline.h"
#include "source/source.h"
#include "transform/program.h"

#include <stdio.h>
#include <stdlib.h>

#define OUTPUT_BYTES 8192

struct made {
    brim_pipeline *pipeline;
    struct brim__arena arena;
    struct brim__serial *serials;
    struct brim__opening opening;
    struct brim__source source;
    struct brim__source *sources[1];
    struct brim__program program;
    struct brim__frame frame;
    uint8_t *buffer;
    uint64_t row_bytes[BRIM__MAX_FIELDS];
    uint64_t length[BRIM__MAX_FIELDS];
    char output[OUTPUT_BYTES];
};

static inline uint8_t *aligned_memory(uint64_t bytes) {
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 64, bytes > 0 ? bytes : 1), 0);
    memset(memory, 0xee, bytes);
    return memory;
}

static inline brim_status made_stages(struct made *made) {
    const struct brim__use *use = made->pipeline->use;
    brim_status status = use[0].stage->open(&use[0], &made->opening, &made->source);
    if (status == BRIM_OK) {
        status = brim__program_init(&made->program, &made->opening, made->sources, 1, 0);
    }
    for (size_t u = 1; status == BRIM_OK && u < made->pipeline->use_count; u++) {
        made->program.stage = (uint32_t)u;
        made->program.key = 1000 + u;
        status = use[u].stage->add_transform(&use[u], &made->program);
    }
    return status == BRIM_OK ? brim__program_finish(&made->program, made->sources, 1) : status;
}

static inline void made_close(struct made *made) {
    if (made->source.ops != NULL) {
        made->source.ops->close(&made->source);
    }
    while (made->serials != NULL) {
        brim__mutex_fini(&made->serials->mutex);
        made->serials = made->serials->next;
    }
    brim__arena_fini(&made->arena);
    brim_pipeline_free(made->pipeline);
    free(made->buffer);
    free(made->frame.scratch);
    for (uint32_t f = 0; f < BRIM__MAX_FIELDS; f++) {
        free(made->frame.row[f]);
    }
    memset(made, 0, sizeof *made);
}

/* Builds; a failure leaves nothing behind but the thread's detail. */
static inline brim_status made_open(struct made *made, const char *text,
                                    const brim_binding *bindings, size_t binding_count) {
    memset(made, 0, sizeof *made);
    brim__arena_init(&made->arena, NULL);
    made->opening = (struct brim__opening){ .arena = &made->arena,
                                            .bindings = bindings,
                                            .binding_count = binding_count,
                                            .serials = &made->serials };
    made->sources[0] = &made->source;
    brim_status status = brim_pipeline_parse(text, &made->pipeline);
    if (status == BRIM_OK) {
        status = made_stages(made);
    }
    if (status != BRIM_OK) {
        made_close(made);
        return status;
    }
    const uint64_t run = made->source.stream ? made->source.most_run : 1;
    made->buffer = aligned_memory(brim__source_buffer(&made->source, run));
    made->frame.scratch = aligned_memory(made->program.scratch_bytes);
    for (uint32_t f = 0; f < made->program.field_count; f++) {
        const struct brim__program_field *field = &made->program.field[f];
        assert_false(brim__shape_bytes_overflow(
            &field->pending.from.shape, brim_dtype_bytes(field->pending.to), &made->row_bytes[f]));
        made->frame.row[f] = aligned_memory(made->row_bytes[f]);
        made->frame.length[f] = &made->length[f];
    }
    return BRIM_OK;
}

/* ------------------------------------------------------------------ output */

static inline void put(struct made *made, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline void put(struct made *made, const char *format, ...) {
    const size_t length = strlen(made->output);
    va_list values;
    va_start(values, format);
    const int wrote =
        vsnprintf(made->output + length, sizeof made->output - length, format, values);
    va_end(values);
    assert_true(wrote >= 0 && (size_t)wrote < sizeof made->output - length);
}

static inline void put_element(struct made *made, brim_dtype dtype, const uint8_t *element) {
    double value;
    if (dtype == BRIM_DTYPE_U64) {
        uint64_t whole;
        memcpy(&whole, element, sizeof whole);
        put(made, "%llu", (unsigned long long)whole);
    } else if (dtype == BRIM_DTYPE_I64) {
        int64_t whole;
        memcpy(&whole, element, sizeof whole);
        put(made, "%lld", (long long)whole);
    } else {
        assert_false(brim__dtype_is_complex(dtype));
        if (dtype == BRIM_DTYPE_F64) {
            memcpy(&value, element, sizeof value);
        } else {
            brim__kernels()->convert[dtype][BRIM_DTYPE_F64](element, &value, 1);
        }
        put(made, "%g", value);
    }
}

static inline void put_field(struct made *made, uint32_t f) {
    const struct brim__program_field *field = &made->program.field[f];
    const struct brim__shape *shape = &field->pending.from.shape;
    const brim_dtype dtype = field->pending.to;
    const bool dense = field->form == BRIM_FORM_DENSE;
    const int32_t direct = made->program.direct[0];
    const uint8_t *row = direct == (int32_t)f ? made->frame.record[0] : made->frame.row[f];
    uint64_t elements = 1;
    for (uint32_t axis = 0; axis < shape->rank; axis++) {
        elements *= axis == 0 && !dense ? made->length[f] : shape->dim[axis];
    }
    assert_true(elements * brim_dtype_bytes(dtype) <= made->row_bytes[f]);
    put(made, "%s%s=", f > 0 ? " " : "", field->name);
    if (field->form == BRIM_FORM_TEXT || field->form == BRIM_FORM_BYTES) {
        put(made, "'%.*s'", (int)elements, (const char *)row);
        return;
    }
    put(made, "%s", !dense ? "(" : shape->rank > 0 ? "[" : "");
    for (uint64_t i = 0; i < elements; i++) {
        put(made, "%s", i > 0 ? " " : "");
        put_element(made, dtype, row + i * brim_dtype_bytes(dtype));
    }
    put(made, "%s", !dense ? ")" : shape->rank > 0 ? "]" : "");
}

/* ----------------------------------------------------------------- running */

static inline bool put_outcome(struct made *made, brim_status status) {
    if (status == BRIM_OK) {
        return true;
    }
    put(made, "%s%s", made->output[0] != '\0' ? "; " : "", status == BRIM__DROPPED ? "-" : "bad");
    return false;
}

static inline void put_row(struct made *made) {
    put(made, "%s", made->output[0] != '\0' ? "; " : "");
    for (uint32_t f = 0; f < made->program.field_count; f++) {
        put_field(made, f);
    }
}

/* Runs the steps first .. end - 1 over rows that hold nothing yet. */
static inline brim_status run_steps(struct made *made, uint32_t first, uint32_t end) {
    if (end == made->program.step_count) {
        for (uint32_t f = 0; f < made->program.field_count; f++) {
            memset(made->frame.row[f], 0xee, made->row_bytes[f]);
            made->length[f] = UINT64_MAX;
        }
    }
    return brim__program_run(&made->program, first, end, &made->frame);
}

/* One sample whose record is in the frame. Returns how it ended. */
static inline brim_status run_record(struct made *made) {
    const struct brim__program *program = &made->program;
    memset(made->frame.scratch, 0xee, program->scratch_bytes);
    made->frame.expansion_index = 0;
    if (program->expand == BRIM__NO_EXPAND) {
        const brim_status status = run_steps(made, 0, program->step_count);
        if (put_outcome(made, status)) {
            put_row(made);
        }
        return status;
    }
    brim_status status = brim__program_run(program, 0, program->expand, &made->frame);
    if (!put_outcome(made, status)) {
        return status;
    }
    for (;; made->frame.expansion_index++) {
        status = run_steps(made, program->expand, program->step_count);
        if (status == BRIM__EXHAUSTED) {
            assert_true(made->frame.expansion_index <= program->rows_per_sample);
            return BRIM_OK;
        }
        if (put_outcome(made, status)) {
            put_row(made);
        } else if (status != BRIM__DROPPED) {
            return status;
        }
    }
}

/* Samples first .. end - 1 as text. */
static inline const char *run_samples(struct made *made, uint64_t first, uint64_t end) {
    made->output[0] = '\0';
    for (uint64_t sample = first; sample < end; sample++) {
        uint64_t got = 0;
        made->frame.call = (brim_call){ .size = sizeof(brim_call), .sample = sample };
        const brim_status status = made->source.ops->fetch(
            &made->source, &made->frame.call, 1, made->buffer, &made->frame.record[0], &got);
        if (put_outcome(made, status)) {
            assert_int_equal(got, 1);
            run_record(made);
        }
    }
    return made->output;
}

/* The last failure's text has `part` in it. */
static inline void detail_has(const char *part, const char *what) {
    if (strstr(brim_detail(), part) == NULL) {
        fail_msg("%s: \"%s\" is not in the detail \"%s\"", what, part, brim_detail());
    }
}

/* Builds, runs the samples and compares. */
static inline void expect_output(const char *text, const brim_binding *bindings,
                                 size_t binding_count, uint64_t first, uint64_t end,
                                 const char *expected) {
    static struct made made;
    if (made_open(&made, text, bindings, binding_count) != BRIM_OK) {
        fail_msg("%s: %s", text, brim_detail());
    }
    const char *output = run_samples(&made, first, end);
    if (strcmp(output, expected) != 0) {
        fail_msg("%s\n  gives    %s\n  expected %s", text, output, expected);
    }
    made_close(&made);
}

static inline void expect_unbuilt(const char *text, const brim_binding *bindings,
                                  size_t binding_count, brim_status status, const char *part) {
    static struct made made;
    const brim_status got = made_open(&made, text, bindings, binding_count);
    if (got != status) {
        fail_msg("%s: %s, not %s: %s", text, brim_status_name(got), brim_status_name(status),
                 got == BRIM_OK ? "" : brim_detail());
    }
    detail_has(part, text);
}

/* ------------------------------------------------------------------ @data
 *
 * Samples of every kind of field; sample s has s elements in what is ragged. */

#define DATA_SAMPLES 7

static inline int read_data(void *user, const brim_call *call, brim_value *outputs, size_t count,
                            char *why, size_t why_bytes) {
    const int64_t s = (int64_t)call->sample;
    (void)user, (void)why, (void)why_bytes;
    for (size_t i = 0; i < count; i++) {
        const char *name = outputs[i].name;
        int32_t *numbers = outputs[i].data;
        float *reals = outputs[i].data;
        if (strcmp(name, "id") == 0) {
            memcpy(outputs[i].data, &s, sizeof s);
        } else if (strcmp(name, "score") == 0) {
            reals[0] = (float)s / 10.0f;
        } else if (strcmp(name, "odd") == 0) {
            *(uint8_t *)outputs[i].data = (uint8_t)(s % 2 * 0x80); /* any byte but 0 is true */
        } else if (strcmp(name, "v") == 0) {
            for (int k = 0; k < 3; k++) {
                ((int16_t *)outputs[i].data)[k] = (int16_t)(s * 10 + k - 1);
            }
        } else if (strcmp(name, "tokens") == 0) {
            for (int64_t k = 0; k < s; k++) {
                numbers[k] = (int32_t)(100 * s + k);
            }
            outputs[i].shape[0] = s;
        } else if (strcmp(name, "pairs") == 0) {
            for (int64_t k = 0; k < 2 * s; k++) {
                reals[k] = (float)k / 2;
            }
            outputs[i].shape[0] = s;
        } else {
            memcpy(outputs[i].data, "abcdefgh", (size_t)s);
            outputs[i].shape[0] = s;
        }
        outputs[i].name = NULL; /* a copy of ours: it may do so */
    }
    return 0;
}

/* clang-format off */
static const brim_field_spec data_fields[] = {
    { sizeof(brim_field_spec), "id", BRIM_DTYPE_I64, 0, { 0 }, 0, BRIM_FORM_DENSE, 0 },
    { sizeof(brim_field_spec), "score", BRIM_DTYPE_F32, 0, { 0 }, 0, BRIM_FORM_DENSE, 0 },
    { sizeof(brim_field_spec), "odd", BRIM_DTYPE_BOOL, 1, { 1 }, 0, BRIM_FORM_DENSE, 0 },
    { sizeof(brim_field_spec), "v", BRIM_DTYPE_I16, 1, { 3 }, 0, BRIM_FORM_DENSE, 0 },
    { sizeof(brim_field_spec), "tokens", BRIM_DTYPE_I32, 1, { DATA_SAMPLES - 1 }, 0, BRIM_FORM_RAGGED, 0 },
    { sizeof(brim_field_spec), "pairs", BRIM_DTYPE_F32, 2, { DATA_SAMPLES - 1, 2 }, 0, BRIM_FORM_RAGGED, 0 },
    { sizeof(brim_field_spec), "word", BRIM_DTYPE_U8, 1, { DATA_SAMPLES - 1 }, 0, BRIM_FORM_TEXT, 0 },
};
/* clang-format on */

/* The fields first .. first + count - 1 of it. */
static inline brim_binding data_binding(size_t first, size_t count) {
    return (brim_binding){ .size = sizeof(brim_binding),
                           .name = "data",
                           .kind = BRIM_BINDING_SOURCE,
                           .count = DATA_SAMPLES,
                           .fields = data_fields + first,
                           .field_count = count,
                           .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
                           .read = read_data };
}

#endif
