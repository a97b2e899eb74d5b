/*
 * program.c: builds programs; see program.h.
 *
 * Scratch is never reused within a sample. A sample's scratch is small compared with a slot, and so
 * no two values can overlap by mistake.
 */
#include "transform/program.h"

#define ALIGNMENT 64

static brim_status run_conversion(const struct brim__step *step, const struct brim__frame *frame) {
    brim__convert(&step->conversion, brim__operand_read(&step->from, frame),
                  brim__operand_write(&step->to, frame));
    return BRIM_OK;
}

/* Single numbers, of which tables have many: a copy whose size the compiler knows. */
#define COPY(bytes)                                                                           \
    static brim_status copy_##bytes(const struct brim__step *step,                            \
                                    const struct brim__frame *frame) {                        \
        memcpy(brim__operand_write(&step->to, frame),                                         \
               brim__operand_read(&step->from, frame) + step->conversion.from.offset, bytes); \
        return BRIM_OK;                                                                       \
    }
COPY(1)
COPY(2)
COPY(4)
COPY(8)

/* Copies the elements of a value that is not dense. Only a faulty source gives more than a row
 * holds, but this is checked, because they would overwrite other rows. */
static brim_status run_ragged(const struct brim__step *step, const struct brim__frame *frame) {
    const struct brim__conversion *conversion = &step->conversion;
    const struct brim__span from = brim__operand_span(&step->from, conversion->from.offset, frame);
    uint64_t *count;
    uint8_t *to = brim__operand_ragged(&step->to, frame, &count);
    const uint64_t bound = conversion->from.shape.dim[0];
    if (BRIM__UNLIKELY(from.count > bound)) {
        return brim__fail(BRIM_STATUS_CORRUPT, "a value has %llu elements, but its bound is %llu",
                          (unsigned long long)from.count, (unsigned long long)bound);
    }
    const uint64_t elements = from.count * (conversion->elements / brim__max(1, bound));
    *count = from.count;
    if (elements == 0) { /* without elements the address may be NULL */
        return BRIM_OK;
    }
    if (conversion->from.dtype == conversion->to) {
        memcpy(to, from.data, elements * brim_dtype_bytes(conversion->to));
    } else {
        conversion->kernels->convert[conversion->from.dtype][conversion->to](from.data, to,
                                                                             elements);
    }
    return BRIM_OK;
}

/* Reads all bytes of a deferred field to their destination. */
static brim_status run_deferred(const struct brim__step *step, const struct brim__frame *frame) {
    const struct brim__deferred *deferred =
        (const struct brim__deferred *)(const void *)(brim__operand_read(&step->from, frame) +
                                                      step->conversion.from.offset);
    struct brim__file own;
    const struct brim__file *file;
    uint64_t offset, bytes, *count;
    brim_status status = brim__deferred_open(deferred, &own, &file, &offset, &bytes);
    if (status != BRIM_OK) {
        return status;
    }
    uint8_t *to = brim__operand_ragged(&step->to, frame, &count);
    const uint64_t bound = step->conversion.from.shape.dim[0];
    if (bytes > bound) {
        status = brim__fail(BRIM_STATUS_CORRUPT,
                            "%s has %llu bytes, but none had more than %llu when they were "
                            "indexed",
                            file->path, (unsigned long long)bytes, (unsigned long long)bound);
        status = brim__at_source(status, file->path);
    } else {
        *count = bytes;
        status = brim__file_read(file, offset, to, bytes);
    }
    brim__file_close(&own);
    return status;
}

static brim__step_run *run_of(const struct brim__program_field *field) {
    const struct brim__conversion *conversion = &field->pending;
    if (field->deferred) {
        return run_deferred;
    }
    if (field->form != BRIM_FORM_DENSE) {
        return run_ragged;
    }
    if (brim__conversion_is_copy(conversion)) {
        switch (conversion->bytes) {
        case 1:
            return copy_1;
        case 2:
            return copy_2;
        case 4:
            return copy_4;
        case 8:
            return copy_8;
        default:
            break;
        }
    }
    return run_conversion;
}

brim_status brim__program_step(struct brim__program *program, struct brim__step **step) {
    if (program->step_count == BRIM__MAX_STEPS) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "a sample needs more than %d steps: use fewer stages", BRIM__MAX_STEPS);
    }
    const brim_status status = brim__arena_take(program->arena, sizeof **step, step);
    if (status == BRIM_OK) {
        (*step)->stage = program->stage;
        program->step[program->step_count++] = *step;
    }
    return status;
}

brim_status brim__program_scratch(struct brim__program *program, uint64_t bytes,
                                  struct brim__operand *operand) {
    uint64_t end;
    if (bytes > UINT64_MAX / 2 ||
        brim__add_overflows(program->scratch_bytes, brim__align(bytes, ALIGNMENT), &end)) {
        return brim__fail(BRIM_STATUS_INVALID, "a value of %llu bytes is too large",
                          (unsigned long long)bytes);
    }
    *operand =
        (struct brim__operand){ .where = BRIM__IN_SCRATCH, .offset = program->scratch_bytes };
    program->scratch_bytes = end;
    return BRIM_OK;
}

brim_status brim__program_room(struct brim__program *program, brim_form form, uint64_t bytes,
                               struct brim__operand *operand) {
    if (form != BRIM_FORM_DENSE && brim__add_overflows(bytes, BRIM__SPAN_ROOM, &bytes)) {
        bytes = UINT64_MAX;
    }
    return brim__program_scratch(program, bytes, operand);
}

void brim__program_set(struct brim__program *program, uint32_t field, brim_form form,
                       brim_dtype dtype, const struct brim__shape *shape, double range,
                       struct brim__operand *written) {
    struct brim__program_field *target = &program->field[field];
    struct brim__view view = { .dtype = dtype, .shape = *shape };
    brim__view_row_major(&view);
    brim__conversion_init(&target->pending, &view);
    target->form = form;
    target->deferred = false;
    target->open = NULL;
    target->image = target->mask = false;
    target->range = range;
    target->at = *written;
    target->written = written;
    target->stage = program->stage;
}

/* Adds a step that writes a field's pending conversion to `to`. */
static brim_status emit(struct brim__program *program, uint32_t field, struct brim__operand to) {
    struct brim__program_field *source = &program->field[field];
    if (source->deferred && source->pending.from.shape.dim[0] == UINT32_MAX) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "field '%s': it has no size bound: decode it, or give probe=yes to its source",
            source->name);
    }
    brim_status status = brim__conversion_prepare(&source->pending);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "field '%s'", source->name);
    }
    if (source->open != NULL) {
        return source->open->ops->settle(program, field, to);
    }
    struct brim__step *step;
    status = brim__program_step(program, &step);
    if (status != BRIM_OK) {
        return status;
    }
    step->run = run_of(source);
    step->stage = source->stage;
    step->from = source->at;
    step->to = to;
    step->conversion = source->pending;
    return BRIM_OK;
}

brim_status brim__program_flush(struct brim__program *program, uint32_t field, bool always) {
    struct brim__program_field *source = &program->field[field];
    source->image = source->mask = false;
    if (source->open == NULL && !source->deferred && brim__conversion_is_copy(&source->pending) &&
        (source->at.where == BRIM__IN_SCRATCH || !always)) {
        return BRIM_OK;
    }
    const struct brim__shape shape = source->pending.from.shape;
    const brim_dtype dtype = source->pending.to;
    uint64_t bytes;
    if (brim__shape_bytes_overflow(&shape, brim_dtype_bytes(dtype), &bytes)) {
        return brim__fail(BRIM_STATUS_INVALID, "field '%s' is too large", source->name);
    }
    struct brim__operand to;
    brim_status status = brim__program_room(program, source->form, bytes, &to);
    if (status != BRIM_OK) {
        return status;
    }
    struct brim__open_value *open = source->open;
    status = emit(program, field, to);
    if (status == BRIM_OK) {
        struct brim__step *step =
            open != NULL ? open->step : program->step[program->step_count - 1];
        brim__program_set(program, field, source->form, dtype, &shape, source->range, &step->to);
    }
    return status;
}

brim_status brim__program_move(struct brim__program *program, const char *stage, uint32_t field,
                               struct brim__operand to) {
    struct brim__program_field *source = &program->field[field];
    const struct brim__open_value *open = source->open;
    const bool image = open != NULL ? open->ops->is_open(source)
                                    : source->image && brim__conversion_is_copy(&source->pending);
    const bool mask = open != NULL ? open->mask : source->mask;
    brim_status status = image && open != NULL ? open->ops->check_kept(stage, source) : BRIM_OK;
    if (status != BRIM_OK) {
        return status;
    }
    if (source->open == NULL && source->written != NULL &&
        brim__conversion_is_copy(&source->pending)) {
        *source->written = to;
    } else {
        status = emit(program, field, to);
    }
    if (status == BRIM_OK) {
        const struct brim__shape shape = source->pending.from.shape;
        brim__program_set(program, field, source->form, source->pending.to, &shape, source->range,
                          &to);
        source->written = NULL; /* other steps read it in that place */
        source->image = image;
        source->mask = image && mask;
    }
    return status;
}

void brim__program_impure(struct brim__program *program, const char *stage) {
    program->impure_stage = program->impure ? program->impure_stage : stage;
    program->impure = true;
}

void brim__program_random(struct brim__program *program, const char *stage) {
    program->random_stage = program->random ? program->random_stage : stage;
    program->random = true;
}

void brim__program_unversioned(struct brim__program *program, const char *stage) {
    if (program->unversioned_stage == NULL) {
        program->unversioned_stage = stage;
    }
}

brim_status brim__program_init(struct brim__program *program, struct brim__opening *opening,
                               struct brim__source *const *sources, uint32_t source_count,
                               uint32_t stage) {
    *program = (struct brim__program){ .arena = opening->arena,
                                       .opening = opening,
                                       .stage = stage,
                                       .expand = BRIM__NO_EXPAND,
                                       .rows_per_sample = 1 };
    for (uint32_t s = 0; s < source_count; s++) {
        for (uint32_t f = 0; f < sources[s]->field_count; f++) {
            const struct brim__source_field *from = &sources[s]->field[f];
            if (program->field_count == BRIM__MAX_FIELDS) {
                return brim__fail(BRIM_STATUS_UNSUPPORTED, "a sample has more than %d fields",
                                  BRIM__MAX_FIELDS);
            }
            for (uint32_t i = 0; i < program->field_count; i++) {
                if (strcmp(program->field[i].name, from->name) == 0) {
                    return brim__fail(BRIM_STATUS_INVALID,
                                      "two fields are called '%s': give one of them another name, "
                                      "as in name=label (of folder: field=label)",
                                      from->name);
                }
            }
            if (from->view.shape.rank >= BRIM_MAX_RANK) {
                return brim__fail(BRIM_STATUS_UNSUPPORTED,
                                  "field '%s' has %u dimensions; with the batch's at most %d",
                                  from->name, from->view.shape.rank, BRIM_MAX_RANK);
            }
            struct brim__program_field *field = &program->field[program->field_count++];
            memcpy(field->name, from->name, sizeof field->name);
            field->form = from->form;
            field->deferred = from->deferred;
            field->images = from->images;
            field->source = sources[s];
            field->source_field = f;
            field->class_count = from->class_names != NULL ? from->class_count : 0;
            brim__conversion_init(&field->pending, &from->view);
            field->at = (struct brim__operand){ .where = BRIM__IN_RECORD, .index = s };
            field->stage = stage;
        }
        program->callback |= sources[s]->callback;
        if (sources[s]->impure) {
            brim__program_impure(program, sources[s]->maker);
        }
        if (sources[s]->random) {
            brim__program_random(program, sources[s]->maker);
        }
        if (sources[s]->unversioned) {
            brim__program_unversioned(program, sources[s]->maker);
        }
    }
    return BRIM_OK;
}

/* Whether the source's record has the same bytes as the field's row. */
static bool record_is_row(const struct brim__program_field *field,
                          const struct brim__source *source) {
    uint64_t bytes;
    return field->form == BRIM_FORM_DENSE && field->at.where == BRIM__IN_RECORD &&
           brim__conversion_is_copy(&field->pending) && !source->in_memory &&
           source->extra_bytes == 0 && /* a row has no room after it */
           source->field_count == 1 && field->pending.from.offset == 0 &&
           !brim__shape_bytes_overflow(&field->pending.from.shape,
                                       brim_dtype_bytes(field->pending.to), &bytes) &&
           bytes == source->record_bytes &&
           (source->most_run == 1 || source->pitch == source->record_bytes);
}

brim_status brim__program_finish(struct brim__program *program, struct brim__source *const *sources,
                                 uint32_t source_count) {
    program->opening = NULL; /* it need not outlive the building */
    for (uint32_t s = 0; s < BRIM__MAX_SOURCES; s++) {
        program->direct[s] = -1;
    }
    for (uint32_t f = 0; f < program->field_count; f++) {
        struct brim__program_field *field = &program->field[f];
        const struct brim__operand row = { .where = BRIM__IN_ROW, .index = f };
        if (field->open == NULL && field->written != NULL &&
            brim__conversion_is_copy(&field->pending)) {
            *field->written = row;
        } else if (program->expand == BRIM__NO_EXPAND && field->at.where == BRIM__IN_RECORD &&
                   field->at.index < source_count &&
                   record_is_row(field, sources[field->at.index])) {
            program->direct[field->at.index] = (int32_t)f;
        } else {
            const brim_status status = emit(program, f, row);
            if (status != BRIM_OK) {
                return status;
            }
        }
    }
    return BRIM_OK;
}

/* Whether a stage can use the elements of a field. */
static bool is_able(const struct brim__program_field *field, bool dense) {
    return (!dense || field->form == BRIM_FORM_DENSE) &&
           (field->open == NULL || field->open->ops->is_fixed(field));
}

static brim_status unable(const char *stage, const struct brim__program_field *field) {
    if (field->open != NULL) {
        return field->open->ops->unsized(stage, field);
    }
    return brim__fail(BRIM_STATUS_INVALID,
                      "%s: field '%s' differs in length from sample to sample: give it one shape "
                      "first, with pad to=",
                      stage, field->name);
}

static brim_status unknown_field(const struct brim__program *program, const char *stage,
                                 const char *name) {
    char list[BRIM__MAX_FIELDS * BRIM_NAME_BYTES + 2 * BRIM__MAX_FIELDS] = "";
    const char *names[BRIM__MAX_FIELDS];
    size_t length = 0;
    for (uint32_t i = 0; i < program->field_count; i++) {
        names[i] = program->field[i].name;
        const size_t bytes = strlen(names[i]);
        memcpy(list + length, i > 0 ? ", " : "", i > 0 ? 2 : 0);
        length += i > 0 ? 2 : 0;
        memcpy(list + length, names[i], bytes + 1);
        length += bytes;
    }
    const char *near = brim_nearest(name, names, program->field_count);
    return brim__fail(BRIM_STATUS_INVALID, "%s: no field '%s'%s%s%s; the fields here are: %s",
                      stage, name, near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                      near != NULL ? "'?" : "", list);
}

brim_status brim__program_find(const struct brim__program *program, const char *stage,
                               const char *name, uint32_t *field) {
    for (uint32_t f = 0; f < program->field_count; f++) {
        if (strcmp(program->field[f].name, name) == 0) {
            *field = f;
            return BRIM_OK;
        }
    }
    return unknown_field(program, stage, name);
}

brim_status brim__program_field(struct brim__program *program, const char *stage, const char *name,
                                uint32_t *field) {
    if (program->field_count == BRIM__MAX_FIELDS) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "%s: a sample has more than %d fields", stage,
                          BRIM__MAX_FIELDS);
    }
    for (uint32_t f = 0; f < program->field_count; f++) {
        if (strcmp(program->field[f].name, name) == 0) {
            return brim__fail(BRIM_STATUS_INVALID, "%s: there is a field '%s' already", stage,
                              name);
        }
    }
    struct brim__program_field *added = &program->field[program->field_count];
    *added = (struct brim__program_field){ .stage = program->stage };
    const brim_status status = brim__field_name(added->name, name);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "%s", stage);
    }
    *field = program->field_count++;
    return BRIM_OK;
}

void brim__program_reader(const struct brim__program *program, uint32_t field,
                          struct brim__reader *reader) {
    const struct brim__program_field *from = &program->field[field];
    *reader = (struct brim__reader){ .operand = from->written,
                                     .own = from->at,
                                     .offset = from->pending.from.offset };
}

brim_status brim__program_expand(struct brim__program *program, const char *stage, uint64_t most) {
    if (program->expand != BRIM__NO_EXPAND) {
        return brim__fail(
            BRIM_STATUS_UNSUPPORTED,
            "%s: a pipeline can have only one unbatch or flat_map: leave out the second one",
            stage);
    }
    for (uint32_t f = 0; f < program->field_count; f++) {
        const brim_status status =
            program->field[f].open != NULL ? brim__program_flush(program, f, true) : BRIM_OK;
        if (status != BRIM_OK) {
            return status;
        }
        program->field[f].written = NULL;
        program->field[f].image = program->field[f].mask = false;
    }
    program->expand = program->step_count;
    program->rows_per_sample = most;
    return BRIM_OK;
}

brim_status brim__program_on(const struct brim__program *program, const struct brim__use *use,
                             size_t argument, enum brim__on fallback, bool dense,
                             uint32_t *fields) {
    const struct brim__values *on = &use->values[argument];
    const char *stage = use->stage->info.name;
    uint32_t able = 0; /* fields that it can act on at all */
    for (uint32_t f = 0; f < program->field_count; f++) {
        able |= (uint32_t)is_able(&program->field[f], dense) << f;
    }
    if (on->count == 0 && fallback == BRIM__ON_FIRST && program->field_count > 0 &&
        program->field[0].deferred) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: field '%s' is still encoded: put decode before it", stage,
                          program->field[0].name);
    }
    if (on->count == 0 && program->field_count > 0 && program->field[0].open != NULL &&
        !is_able(&program->field[0], dense)) {
        return unable(stage, &program->field[0]); /* do not act on the label instead */
    }
    if (on->count == 0 && able == 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: every field here differs in length from sample to sample: give one "
                          "of them one shape first, with pad to=",
                          stage);
    }
    if (on->count == 0) {
        *fields = fallback == BRIM__ON_ALL     ? able
                  : fallback == BRIM__ON_FIRST ? able & -able
                                               : 1u << (31 - __builtin_clz(able));
        return BRIM_OK;
    }
    *fields = 0;
    for (size_t i = 0; i < on->count; i++) {
        uint32_t f = 0;
        const brim_status status =
            brim__at_argument(brim__program_find(program, stage, on->items[i].text, &f), "on");
        if (status != BRIM_OK) {
            return status;
        }
        if ((able >> f & 1) == 0) {
            return unable(stage, &program->field[f]);
        }
        *fields |= 1u << f;
    }
    return BRIM_OK;
}
