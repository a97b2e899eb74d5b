/*
 * layout.c: the second half of compiling: what the leaves give is the same, each
 * program writes into rows, and slots and scratch are measured.
 */
#include "plan/plan.h"

#include <stdio.h>

#define TEXT_BYTES 384

void brim__append_field(char *text, size_t bytes, const char *name, brim_dtype dtype,
                        const struct brim__shape *shape) {
    char shape_text[BRIM__SHAPE_TEXT];
    const size_t length = strlen(text);
    snprintf(text + length, bytes - length, "%s%s %s %s", length > 0 ? ", " : "", name,
             brim_dtype_name(dtype), brim__shape_text(shape, shape_text));
}

static brim_status check_same_fields(const brim_plan *plan, uint32_t other) {
    const struct brim__program *a = &plan->leaf[0]->program, *b = &plan->leaf[other]->program;
    bool same = a->field_count == b->field_count;
    for (uint32_t f = 0; same && f < a->field_count; f++) {
        same = strcmp(a->field[f].name, b->field[f].name) == 0 &&
               a->field[f].pending.to == b->field[f].pending.to &&
               brim__shape_equal(&a->field[f].pending.from.shape, &b->field[f].pending.from.shape);
    }
    if (same) {
        return BRIM_OK;
    }
    char left[TEXT_BYTES] = "", right[TEXT_BYTES] = "";
    for (uint32_t f = 0; f < a->field_count; f++) {
        brim__append_field(left, sizeof(left), a->field[f].name, a->field[f].pending.to,
                           &a->field[f].pending.from.shape);
    }
    for (uint32_t f = 0; f < b->field_count; f++) {
        brim__append_field(right, sizeof(right), b->field[f].name, b->field[f].pending.to,
                           &b->field[f].pending.from.shape);
    }
    return brim__fail(BRIM_INVALID,
                      "the parts of a mix must give the same fields, but source 1 gives (%s) and "
                      "source %u gives (%s)",
                      left, other + 1, right);
}

/* Where each field, the numbers and the flags lie in a slot. */
static brim_status place_rows(brim_plan *plan) {
    const struct brim__program *program = &plan->leaf[0]->program;
    const uint64_t rows = plan->shard.micro_rows;
    uint64_t offset = 0;
    plan->output_count = program->field_count;
    for (uint32_t f = 0; f < program->field_count; f++) {
        const struct brim__program_field *field = &program->field[f];
        struct brim__output *output = &plan->output[f];
        memcpy(output->name, field->name, sizeof(output->name));
        output->dtype = field->pending.to;
        output->shape = field->pending.from.shape;
        output->offset = offset;
        uint64_t bytes;
        if (brim__shape_bytes_overflow(&output->shape, brim_dtype_bytes(output->dtype),
                                       &output->row_bytes) ||
            brim__mul_overflows(output->row_bytes, rows, &bytes) || bytes > UINT64_MAX / 4 ||
            brim__add_overflows(offset, brim__align(bytes, BRIM__CACHE_LINE), &offset)) {
            return brim__fail(BRIM_INVALID, "field '%s': a batch of %llu rows is too large",
                              output->name, (unsigned long long)rows);
        }
    }
    plan->ids_offset = offset;
    plan->valid_offset = plan->ids_offset + rows * sizeof(uint64_t);
    plan->bad_offset = plan->valid_offset + rows;
    if (offset > UINT64_MAX / 4 || rows > UINT32_MAX) {
        return brim__fail(BRIM_INVALID, "a batch of %llu rows is too large",
                          (unsigned long long)rows);
    }
    plan->info.slot_bytes = brim__align(plan->bad_offset + rows, brim__page_bytes());
    return BRIM_OK;
}

/* What one thread needs: the sources' buffers, then the program's values. */
static brim_status size_scratch(brim_plan *plan) {
    uint64_t most = 1;
    for (uint32_t i = 0; i < plan->leaf_count; i++) {
        struct brim__leaf *leaf = plan->leaf[i];
        uint64_t offset = 0;
        for (uint32_t s = 0; s < leaf->source_count; s++) {
            const struct brim__source *source = leaf->source[s];
            uint64_t span = 0;
            leaf->run[s] = brim__min(source->most_run, plan->shard.micro_rows);
            leaf->buffer[s] = offset;
            if (leaf->program.direct[s] < 0) {
                span = brim__source_span(source, leaf->run[s]);
                plan->stage[leaf->source_stage[s]].bytes += span;
            }
            if (span > UINT64_MAX / 4 ||
                brim__add_overflows(offset, brim__align(span, BRIM__CACHE_LINE), &offset)) {
                return brim__fail(BRIM_INVALID, "a sample of %llu bytes is too large",
                                  (unsigned long long)span);
            }
        }
        leaf->program_scratch = offset;
        if (brim__add_overflows(offset, leaf->program.scratch_bytes, &offset) ||
            offset > UINT64_MAX / 4) {
            return brim__fail(BRIM_INVALID, "a sample's scratch is too large");
        }
        most = brim__max(most, offset);
    }
    plan->info.scratch_bytes = brim__align(most, brim__page_bytes());
    return BRIM_OK;
}

static brim_status describe_fields(brim_plan *plan) {
    const brim_status status =
        brim__arena_take(&plan->arena, plan->output_count * sizeof(brim_plan_field), &plan->field);
    for (uint32_t f = 0; status == BRIM_OK && f < plan->output_count; f++) {
        const struct brim__output *output = &plan->output[f];
        brim_plan_field *field = &plan->field[f];
        field->name = output->name;
        field->dtype = output->dtype;
        field->rank = output->shape.rank + 1;
        field->shape[0] = (int64_t)plan->shard.micro_rows;
        for (uint32_t i = 0; i < output->shape.rank; i++) {
            field->shape[i + 1] = (int64_t)output->shape.dim[i];
        }
        field->bytes = output->row_bytes * plan->shard.micro_rows;
    }
    return status;
}

brim_status brim__plan_lay_out(brim_plan *plan) {
    brim_status status = BRIM_OK;
    for (uint32_t i = 1; status == BRIM_OK && i < plan->leaf_count; i++) {
        status = check_same_fields(plan, i);
    }
    for (uint32_t i = 0; status == BRIM_OK && i < plan->leaf_count; i++) {
        struct brim__leaf *leaf = plan->leaf[i];
        status = brim__program_finish(&leaf->program, leaf->source, leaf->source_count);
    }
    if (status == BRIM_OK) {
        status = place_rows(plan);
    }
    if (status == BRIM_OK) {
        status = size_scratch(plan);
    }
    return status == BRIM_OK ? describe_fields(plan) : status;
}
