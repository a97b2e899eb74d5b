/*
 * layout.c: the second half of compiling: checks that all leaves give the same fields, makes each
 * program write into rows, and computes the size of slots and scratch.
 */
#include "plan/plan.h"

#include <stdio.h>

#define TEXT_BYTES 384

void brim__append_field(char *text, size_t bytes, const char *name, brim_form form,
                        brim_dtype dtype, const struct brim__shape *shape) {
    char shape_text[BRIM__SHAPE_TEXT];
    const size_t length = strlen(text);
    const char *type = form == BRIM_FORM_TEXT    ? "text"
                       : form == BRIM_FORM_BYTES ? "bytes"
                                                 : brim_dtype_name(dtype);
    snprintf(text + length, bytes - length, "%s%s %s %s%s", length > 0 ? ", " : "", name, type,
             form != BRIM_FORM_DENSE ? "up to " : "", brim__shape_text(shape, shape_text));
}

/* Whether two shapes agree. Fields that are not dense may differ in their bound. */
static bool same_shape(const struct brim__program_field *a, const struct brim__program_field *b) {
    struct brim__shape left = a->pending.from.shape, right = b->pending.from.shape;
    if (a->form != b->form) {
        return false;
    }
    if (a->form != BRIM_FORM_DENSE && left.rank > 0 && right.rank > 0) {
        left.dim[0] = right.dim[0] = 1;
    }
    return brim__shape_equal(&left, &right);
}

static brim_status check_same_fields(const brim_plan *plan, uint32_t other) {
    const struct brim__program *a = &plan->leaf[0]->program, *b = &plan->leaf[other]->program;
    bool same = a->field_count == b->field_count;
    for (uint32_t f = 0; same && f < a->field_count; f++) {
        same = strcmp(a->field[f].name, b->field[f].name) == 0 &&
               a->field[f].pending.to == b->field[f].pending.to &&
               same_shape(&a->field[f], &b->field[f]);
    }
    if (same) {
        return BRIM_OK;
    }
    char left[TEXT_BYTES] = "", right[TEXT_BYTES] = "";
    for (uint32_t f = 0; f < a->field_count; f++) {
        brim__append_field(left, sizeof left, a->field[f].name, a->field[f].form,
                           a->field[f].pending.to, &a->field[f].pending.from.shape);
    }
    for (uint32_t f = 0; f < b->field_count; f++) {
        brim__append_field(right, sizeof right, b->field[f].name, b->field[f].form,
                           b->field[f].pending.to, &b->field[f].pending.from.shape);
    }
    return brim__fail(BRIM_STATUS_INVALID,
                      "the parts of a mix or concat must have the same fields, but source 1 has "
                      "(%s) and source %u has (%s)",
                      left, other + 1, right);
}

/* Collects the fields of the programs, each with the longest bound of all leaves. */
static void collect_outputs(brim_plan *plan) {
    struct brim__layout *layout = &plan->made;
    const struct brim__program *program = &plan->leaf[0]->program;
    layout->output_count = program->field_count;
    for (uint32_t f = 0; f < program->field_count; f++) {
        const struct brim__program_field *field = &program->field[f];
        struct brim__output *output = &layout->output[f];
        memcpy(output->name, field->name, sizeof output->name);
        output->dtype = field->pending.to;
        output->form = field->form;
        output->shape = field->pending.from.shape;
        output->padded = field->padded;
        memcpy(output->pad_value, field->pad_value, sizeof output->pad_value);
        for (uint32_t i = 1; field->form != BRIM_FORM_DENSE && i < plan->leaf_count; i++) {
            const struct brim__program_field *other = &plan->leaf[i]->program.field[f];
            output->shape.dim[0] =
                brim__max(output->shape.dim[0], other->pending.from.shape.dim[0]);
        }
    }
}

/* Sets where an output is, from *offset on; false: it does not fit 64 bits. */
static bool set_offset(struct brim__output *output, uint64_t rows, uint64_t area,
                       uint64_t *offset) {
    const uint64_t element = brim_dtype_bytes(output->dtype);
    const bool by_area = area != 0 && output->padded;
    struct brim__shape unit = output->shape;
    uint64_t bytes;
    output->offset = *offset;
    if (output->form != BRIM_FORM_DENSE) {
        unit.dim[0] = 1;
    }
    if (rows >= UINT32_MAX ||
        brim__shape_bytes_overflow(&output->shape, element, &output->row_bytes) ||
        brim__shape_bytes_overflow(&unit, element, &output->unit_bytes) ||
        brim__mul_overflows(by_area ? output->unit_bytes : output->row_bytes, by_area ? area : rows,
                            &bytes) ||
        bytes > UINT64_MAX / 8 ||
        brim__add_overflows(*offset, brim__align(bytes, BRIM__CACHE_LINE), offset)) {
        return false;
    }
    if (output->form != BRIM_FORM_DENSE) {
        output->lengths = *offset;
        if (brim__add_overflows(
                *offset, brim__align((rows + 1) * sizeof(uint64_t), BRIM__CACHE_LINE), offset)) {
            return false;
        }
    }
    return *offset <= UINT64_MAX / 8;
}

static brim_status set_offsets(struct brim__layout *layout, uint64_t area, uint64_t *offset) {
    layout->ragged = false;
    for (uint32_t f = 0; f < layout->output_count; f++) {
        struct brim__output *output = &layout->output[f];
        layout->ragged |= output->form != BRIM_FORM_DENSE;
        if (!set_offset(output, layout->rows, area, offset)) {
            return brim__fail(BRIM_STATUS_INVALID, "field '%s': %llu rows of it are too large",
                              output->name, (unsigned long long)layout->rows);
        }
    }
    return BRIM_OK;
}

brim_status brim__layout_set_offsets(struct brim__layout *layout, uint64_t rows, uint64_t area) {
    uint64_t offset = 0;
    layout->rows = rows;
    const brim_status status = set_offsets(layout, area, &offset);
    if (status != BRIM_OK) {
        return status;
    }
    layout->ids_offset = offset;
    layout->valid_offset = layout->ids_offset + rows * sizeof(uint64_t);
    layout->outcome_offset = layout->valid_offset + rows;
    layout->bytes = brim__align(layout->outcome_offset + rows, brim__page_bytes());
    return BRIM_OK;
}

brim_status brim__layout_append(struct brim__layout *layout) {
    uint64_t offset = layout->bytes;
    const brim_status status = set_offsets(layout, 0, &offset);
    layout->bytes = brim__align(offset, brim__page_bytes());
    return status;
}

/* Computes the scratch of a thread: the sources' buffers, then the program's values. */
static brim_status size_scratch(brim_plan *plan) {
    uint64_t most = 1;
    for (uint32_t i = 0; i < plan->leaf_count; i++) {
        struct brim__leaf *leaf = plan->leaf[i];
        uint64_t offset = 0;
        for (uint32_t s = 0; s < leaf->source_count; s++) {
            const struct brim__source *source = leaf->source[s];
            uint64_t span = 0;
            leaf->run[s] = brim__min(source->most_run, plan->deliveries.micro_rows);
            leaf->buffer[s] = offset;
            if (leaf->program.direct[s] < 0) {
                span = brim__source_buffer(source, leaf->run[s]);
                plan->stage[leaf->source_stage[s]].bytes += span;
            }
            if (span > UINT64_MAX / 4 ||
                brim__add_overflows(offset, brim__align(span, BRIM__CACHE_LINE), &offset)) {
                return brim__fail(BRIM_STATUS_INVALID, "a sample of %llu bytes is too large",
                                  (unsigned long long)span);
            }
        }
        leaf->program_scratch = offset;
        if (brim__add_overflows(offset, leaf->program.scratch_bytes, &offset) ||
            offset > UINT64_MAX / 4) {
            return brim__fail(BRIM_STATUS_INVALID, "a sample's scratch is too large");
        }
        most = brim__max(most, offset);
    }
    plan->info.scratch_bytes = brim__align(most, brim__page_bytes());
    return BRIM_OK;
}

/* Adds scratch to stages whose size was known only after all stages were added. */
static void count_late(brim_plan *plan, const struct brim__program *program) {
    for (uint32_t i = 0; i < program->step_count; i++) {
        brim_plan_stage *stage = &plan->stage[program->step[i]->stage];
        stage->bytes = brim__max(stage->bytes, program->step[i]->late_bytes);
    }
}

static brim_status describe_fields(brim_plan *plan) {
    const struct brim__layout *layout = &plan->delivered;
    const brim_status status = brim__arena_take(
        &plan->arena, layout->output_count * sizeof(brim_plan_field), &plan->field);
    for (uint32_t f = 0; status == BRIM_OK && f < layout->output_count; f++) {
        const struct brim__output *output = &layout->output[f];
        brim_plan_field *field = &plan->field[f];
        field->name = output->name;
        field->dtype = output->dtype;
        field->form = output->padded ? BRIM_FORM_DENSE : output->form;
        field->rank = output->shape.rank + 1;
        field->shape[0] = (int64_t)layout->rows;
        for (uint32_t i = 0; i < output->shape.rank; i++) {
            field->shape[i + 1] = (int64_t)output->shape.dim[i];
        }
        field->bytes = output->form != BRIM_FORM_DENSE ? output->lengths - output->offset
                                                       : output->row_bytes * layout->rows;
    }
    return status;
}

brim_status brim__plan_lay_out(brim_plan *plan, const struct brim__device *device, bool acts) {
    brim_status status = BRIM_OK;
    plan->rows_per_sample = 1;
    for (uint32_t i = 1; status == BRIM_OK && i < plan->leaf_count; i++) {
        status = check_same_fields(plan, i);
    }
    if (status == BRIM_OK && device != NULL) {
        brim__device_defer(plan, device, acts);
    }
    for (uint32_t i = 0; status == BRIM_OK && i < plan->leaf_count; i++) {
        struct brim__leaf *leaf = plan->leaf[i];
        plan->rows_per_sample = brim__max(plan->rows_per_sample, leaf->program.rows_per_sample);
        status = brim__program_finish(&leaf->program, leaf->source, leaf->source_count);
        count_late(plan, &leaf->program);
    }
    if (status != BRIM_OK) {
        return status;
    }
    collect_outputs(plan);
    if (plan->sequence.on) {
        status = brim__sequence_lay_out(plan);
    } else {
        plan->deliveries = plan->shard;
        status = brim__layout_set_offsets(&plan->made, plan->shard.micro_rows, 0);
        plan->placed = plan->made;
    }
    plan->delivered = plan->placed;
    return status == BRIM_OK ? size_scratch(plan) : status;
}

brim_status brim__plan_lay_out_slots(brim_plan *plan, const struct brim__device *device) {
    plan->info.slot_bytes = plan->delivered.bytes;
    const brim_status status = describe_fields(plan);
    return status == BRIM_OK && device != NULL ? brim__device_lay_out(plan, device) : status;
}
