/*
 * picture.c: builds pictures; see picture.h.
 *
 * The memory of a picture is counted while operations are added, for the largest possible image,
 * and taken from the program's scratch when the picture is settled.
 */
#include "transform/picture.h"

/* Describes the field to other stages as uint8 HWC in scratch. */
static void show(struct brim__program *program, uint32_t f, struct brim__picture *picture) {
    struct brim__program_field *field = &program->field[f];
    const struct brim__shape shape = {
        .rank = 3, .dim = { picture->extent.height, picture->extent.width, picture->channels }
    };
    picture->most_width = (uint32_t)brim__max(picture->most_width, picture->extent.width);
    picture->open.step->to = (struct brim__operand){ .where = BRIM__IN_SCRATCH };
    brim__program_set(program, f, BRIM_FORM_DENSE, picture->floats ? BRIM_DTYPE_F32 : BRIM_DTYPE_U8,
                      &shape, picture->floats ? BRIM__PIXELS : 0, &picture->open.step->to);
    field->open = &picture->open;
}

static bool is_fixed(const struct brim__program_field *field) {
    return brim__picture_of(field)->extent.fixed;
}

static const struct brim__open_value_ops picture_ops = {
    .settle = brim__picture_settle,
    .is_fixed = is_fixed,
    .is_open = brim__picture_is_open,
    .check_kept = brim__picture_check_kept,
    .unsized = brim__picture_unsized,
};

brim_status brim__picture_new(struct brim__program *program, uint32_t field,
                              const struct brim__picture_source *source,
                              const struct brim__picture_extent *extent, uint32_t channels,
                              bool mask) {
    struct brim__picture *picture;
    struct brim__picture_source *kept;
    brim_status status = brim__arena_take(program->arena, sizeof *picture, &picture);
    if (status == BRIM_OK) {
        status = brim__arena_take(program->arena, sizeof *kept, &kept);
    }
    if (status == BRIM_OK) {
        status = brim__program_step(program, &picture->open.step);
    }
    if (status != BRIM_OK) {
        return status;
    }
    *kept = *source;
    picture->source = kept;
    picture->extent = *extent;
    picture->channels = channels;
    picture->pixel = channels == 1 ? 1 : 4;
    picture->open.mask = mask;
    picture->open.ops = &picture_ops;
    picture->open.step->run = brim__picture_run;
    picture->open.step->self = picture;
    show(program, field, picture);
    return BRIM_OK;
}

brim_status brim__picture_clone(struct brim__program *program, uint32_t from, uint32_t to) {
    struct brim__picture *picture;
    struct brim__step *step;
    brim_status status = brim__arena_take(program->arena, sizeof *picture, &picture);
    if (status == BRIM_OK) {
        status = brim__program_step(program, &step);
    }
    if (status != BRIM_OK) {
        return status;
    }
    const struct brim__conversion pending = program->field[from].pending;
    *picture = *brim__picture_of(&program->field[from]);
    picture->open.step = step;
    step->run = brim__picture_run;
    step->self = picture;
    show(program, to, picture);
    program->field[to].pending = pending;
    program->field[to].range = program->field[from].range;
    return BRIM_OK;
}

bool brim__picture_is_open(const struct brim__program_field *field) {
    return !brim__picture_of(field)->floats && brim__conversion_is_copy(&field->pending);
}

/* Whether a field is an array of pixels that an image stage can act on. */
static bool is_array(const struct brim__program_field *field) {
    const struct brim__shape *shape = &field->pending.from.shape;
    return field->open == NULL && field->form == BRIM_FORM_DENSE &&
           field->pending.to == BRIM_DTYPE_U8 && field->pending.scale == NULL && shape->rank == 3 &&
           shape->dim[0] >= 1 && shape->dim[1] >= 1 && shape->dim[0] <= BRIM__MAX_SIDE &&
           shape->dim[1] <= BRIM__MAX_SIDE &&
           (shape->dim[2] == 1 || shape->dim[2] == 3 || shape->dim[2] == 4);
}

static brim_status take_array(struct brim__program *program, uint32_t f) {
    const bool mask = program->field[f].mask;
    const brim_status status = brim__program_flush(program, f, false);
    if (status != BRIM_OK) {
        return status;
    }
    const struct brim__shape *shape = &program->field[f].pending.from.shape;
    const struct brim__picture_extent extent = { .width = (uint32_t)shape->dim[1],
                                                 .height = (uint32_t)shape->dim[0],
                                                 .pixels = shape->dim[0] * shape->dim[1],
                                                 .fixed = true };
    struct brim__picture_source source = { .width = extent.width,
                                           .height = extent.height,
                                           .channels = (uint32_t)shape->dim[2] };
    brim__program_reader(program, f, &source.bytes);
    return brim__picture_new(program, f, &source, &extent, source.channels, mask);
}

static brim_status no_image(const struct brim__program *program, const char *stage) {
    for (uint32_t f = 0; f < program->field_count; f++) {
        const struct brim__program_field *field = &program->field[f];
        char shape[BRIM__SHAPE_TEXT];
        if (field->form == BRIM_FORM_BYTES) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "%s: there is no image yet: put decode before it", stage);
        }
        if (field->form == BRIM_FORM_DENSE && field->pending.from.shape.rank >= 2) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "%s: there is no image here: field '%s' is %s %s, and images are "
                              "uint8 with height, width and 1, 3 or 4 channels: put cast uint8, "
                              "layout hwc from=chw or reshape before it",
                              stage, field->name, brim_dtype_name(field->pending.to),
                              brim__shape_text(&field->pending.from.shape, shape));
        }
    }
    return brim__fail(BRIM_STATUS_INVALID, "%s: there is no image here: put decode before it",
                      stage);
}

/* Decides how a stage uses a field that it names: as picture, mask or boxes, or with an error. */
static brim_status admit(struct brim__program *program, const char *stage, uint32_t f,
                         uint32_t *pictures, uint32_t *boxes) {
    struct brim__program_field *field = &program->field[f];
    if (boxes != NULL && field->open == NULL && brim__boxes_are(field)) {
        *boxes |= 1u << f;
        return BRIM_OK;
    }
    if (field->open == NULL && !is_array(field)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: field '%s' is not an image: put decode before it, or cast uint8 and "
                          "layout hwc for an array of pixels",
                          stage, field->name);
    }
    if (field->open != NULL && !brim__picture_is_open(field)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "%s: field '%s' is no longer interleaved 8-bit pixels: put %s before "
                          "normalize, cast, layout, reshape and resize with antialias=no",
                          stage, field->name, stage);
    }
    const brim_status status = field->open == NULL ? take_array(program, f) : BRIM_OK;
    *pictures |= (uint32_t)(status == BRIM_OK) << f;
    return status;
}

brim_status brim__picture_on(struct brim__program *program, const struct brim__use *use,
                             size_t argument, bool masks, uint32_t *pictures, uint32_t *boxes) {
    const char *stage = use->stage->info.name;
    const struct brim__values *on = &use->values[argument];
    brim_status status = BRIM_OK;
    *pictures = 0;
    if (boxes != NULL) {
        *boxes = 0;
    }
    for (size_t i = 0; status == BRIM_OK && i < on->count; i++) {
        uint32_t f = 0;
        status = brim__at_argument(brim__program_find(program, stage, on->items[i].text, &f), "on");
        if (status == BRIM_OK) {
            status = admit(program, stage, f, pictures, boxes);
        }
        if (status == BRIM_OK && !masks && (*pictures >> f & 1) &&
            brim__picture_of(&program->field[f])->open.mask) {
            status =
                brim__fail(BRIM_STATUS_INVALID,
                           "%s: field '%s' is a mask, whose numbers are classes and not colours",
                           stage, program->field[f].name);
        }
    }
    if (on->count == 0) {
        for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
            const struct brim__program_field *field = &program->field[f];
            const bool mask =
                field->open != NULL ? brim__picture_of(field)->open.mask : field->mask;
            if ((field->open != NULL || field->image) && (masks || !mask)) {
                status = admit(program, stage, f, pictures, NULL);
            }
        }
        for (uint32_t f = 0; status == BRIM_OK && *pictures == 0 && f < program->field_count; f++) {
            if (is_array(&program->field[f]) && !program->field[f].image) {
                status = admit(program, stage, f, pictures, NULL);
            }
        }
    }
    return status == BRIM_OK && *pictures == 0 ? no_image(program, stage) : status;
}

/* Makes the buffers large enough for an image of this extent. */
static void need_buffer(struct brim__picture *picture, const struct brim__picture_extent *extent,
                        uint32_t pixel) {
    const uint64_t sides = (uint64_t)extent->width * extent->height;
    const uint64_t bytes = brim__align(brim__min(sides, extent->pixels) * pixel, BRIM__CACHE_LINE);
    picture->buffer_bytes = brim__max(picture->buffer_bytes, bytes);
    picture->most_width = (uint32_t)brim__max(picture->most_width, extent->width);
}

void brim__picture_buffer(struct brim__picture *picture, uint32_t width, uint32_t height,
                          uint32_t least_width, uint32_t least_height) {
    const uint64_t more = (uint64_t)(width - picture->extent.width) * height +
                          (uint64_t)(height - picture->extent.height) * width;
    struct brim__picture_extent extent = { .width = (uint32_t)brim__max(width, least_width),
                                           .height = (uint32_t)brim__max(height, least_height) };
    /* a narrow image that is widened to least_width may have any height */
    extent.pixels =
        brim__max(picture->extent.pixels + more, brim__max((uint64_t)least_width * extent.height,
                                                           (uint64_t)least_height * extent.width));
    need_buffer(picture, &extent, picture->pixel);
}

brim_status brim__picture_add(struct brim__program *program, uint32_t field,
                              const struct brim__op *op, const struct brim__picture_extent *extent,
                              uint32_t channels, uint32_t boxes) {
    struct brim__picture *picture = brim__picture_of(&program->field[field]);
    const uint32_t pixel = channels == 1 ? 1 : 4;
    if (picture->op_count == BRIM__MAX_OPS) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "field '%s': more than %d image stages",
                          program->field[field].name, BRIM__MAX_OPS);
    }
    if (op->pixels || op->plain || (op->resizes && picture->resized)) {
        need_buffer(picture, &picture->extent, picture->pixel);
        picture->resized = false;
    }
    if (op->pixels) {
        need_buffer(picture, extent, pixel);
        picture->scratch_bytes = brim__max(picture->scratch_bytes, op->scratch);
    }
    picture->resized |= op->resizes;
    const uint32_t index = picture->op_count++;
    picture->before[index] = picture->extent;
    picture->op[index] = *op;
    picture->extent = *extent;
    picture->channels = channels;
    picture->pixel = pixel;
    picture->floats = op->plain;
    show(program, field, picture);
    brim_status status = BRIM_OK;
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        if (boxes >> f & 1) {
            status = brim__boxes_follow(program, picture, index, f);
        }
    }
    return status;
}

brim_status brim__picture_unsized(const char *stage, const struct brim__program_field *field) {
    return brim__fail(BRIM_STATUS_INVALID,
                      "%s%sfield '%s': its images differ in size: make them one size with "
                      "random_resized_crop 224, resize 224 224, or resize 256 and center_crop 224",
                      stage, stage[0] != '\0' ? ": " : "", field->name);
}

/* The most memory that any of the picture's resizes needs. The window of a resize is what is left
 * of its result at the end of its group. */
static uint64_t all_resize_bytes(const struct brim__picture *picture) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < picture->op_count; i++) {
        const struct brim__op *op = &picture->op[i];
        const struct brim__picture_extent in = picture->before[i];
        uint32_t end = i + 1;
        if (!op->resizes) {
            continue;
        }
        while (end < picture->op_count && !picture->op[end].pixels && !picture->op[end].resizes &&
               !picture->op[end].plain) {
            end++;
        }
        const struct brim__picture_extent *out =
            end < picture->op_count ? &picture->before[end] : &picture->extent;
        struct brim__resize_bounds bounds = { .in_width = in.width,
                                              .in_height = in.height,
                                              .least_width = op->least_width,
                                              .least_height = op->least_height,
                                              .window_width = out->width,
                                              .window_height = out->height,
                                              .filter =
                                                  picture->open.mask ? BRIM__NEAREST : op->filter };
        bytes = brim__max(bytes, brim__resize_memory(&bounds));
        bounds.vertical_first = true;
        bytes = brim__max(bytes, brim__resize_memory(&bounds));
        if (picture->source->orient) { /* stored transposed */
            bounds = (struct brim__resize_bounds){ .in_width = in.height,
                                                   .in_height = in.width,
                                                   .least_width = op->least_height,
                                                   .least_height = op->least_width,
                                                   .window_width = out->height,
                                                   .window_height = out->width,
                                                   .filter = bounds.filter,
                                                   .vertical_first = true };
            bytes = brim__max(bytes, brim__resize_memory(&bounds));
        }
    }
    return bytes;
}

/* A part of the scratch; none if it is not needed. */
static brim_status part(struct brim__program *program, uint64_t bytes, uint64_t *at) {
    struct brim__operand operand = { .offset = 0 };
    const brim_status status =
        bytes > 0 ? brim__program_scratch(program, bytes, &operand) : BRIM_OK;
    *at = operand.offset;
    return status;
}

brim_status brim__picture_settle(struct brim__program *program, uint32_t field,
                                 struct brim__operand to) {
    struct brim__picture *picture = brim__picture_of(&program->field[field]);
    struct brim__picture_source *source = picture->source;
    const uint64_t before = program->scratch_bytes;
    if (!picture->extent.fixed && !picture->to_bytes) {
        return brim__picture_unsized("", &program->field[field]);
    }
    /* turning an image needs a second buffer */
    if (source->orient && !picture->floats) {
        need_buffer(picture, &picture->extent, picture->pixel);
    }
    /* a clone has the same source, but separate memory to read into */
    struct brim__picture_source *own;
    brim_status status = brim__arena_take(program->arena, sizeof *own, &own);
    if (status != BRIM_OK) {
        return status;
    }
    *own = *source;
    picture->source = own;
    const uint64_t line = (uint64_t)picture->most_width * 4;
    status = part(program, sizeof(struct brim__acts), &picture->at_acts);
    if (status == BRIM_OK) {
        status = part(program, own->encoded ? BRIM__INPUT_WINDOW : line, &own->at_window);
    }
    if (status == BRIM_OK) {
        status = part(program, line, &picture->at_line);
    }
    if (status == BRIM_OK) {
        status = part(program, own->memory, &own->at_memory);
    }
    picture->resize_bytes = all_resize_bytes(picture);
    if (status == BRIM_OK) {
        status = part(program, picture->resize_bytes, &picture->at_resize);
    }
    for (int i = 0; i < 2 && status == BRIM_OK; i++) {
        status = part(program, picture->buffer_bytes, &picture->at_buffer[i]);
    }
    if (status == BRIM_OK) {
        status = part(program, picture->scratch_bytes, &picture->at_scratch);
    }
    if (status == BRIM_OK) {
        status = brim__picture_sink_new(program, picture, &program->field[field].pending,
                                        &picture->sink);
    }
    if (status == BRIM_OK) {
        /* never used: it counts the memory that a library takes by itself */
        uint64_t outside;
        status = part(program, own->outside, &outside);
    }
    picture->open.step->to = to;
    picture->open.step->late_bytes = program->scratch_bytes - before;
    program->field[field].open = NULL;
    return status;
}
