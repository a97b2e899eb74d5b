/*
 * picture_run.c: carries out a picture's acts for one sample.
 *
 * The acts are processed in groups. A group is a run of crops and flips with at most one resize
 * among them. It is one pass over the rows of its input: the encoded image, an array, or a buffer.
 * Acts on pixels between groups work on a buffer.
 *
 * Inside a group everything is in the coordinates of the stored image. The acts are in the
 * coordinates of the seen image, which is the stored one in one of eight orientations: first
 * flipped along the stored axes, then transposed. A group begins with EXIF's orientation. Flips
 * change the orientation, and crops and sizes are translated through it, so that an image that is
 * stored on its side can still be decoded by rows. The pixels are the same as if the image were
 * turned first: a mirrored axis has the mirrored weights, and a transposed image is resized
 * vertically first.
 */
#include "image/decode.h"
#include "image/kernels.h"
#include "image/pixels.h"
#include "transform/picture.h"

/* ----------------------------------------------------------------- groups */

/* Along one axis of the stored image. */
struct side {
    uint32_t begin, count;  /* of the source's pixels */
    uint32_t out;           /* what all of them become */
    uint32_t first, wanted; /* of these */
    bool flipped, mirrored;
};

struct group {
    struct side x, y;
    bool transposed;
    bool resized, tall;
    enum brim__filter filter;
};

static struct group begin_group(uint32_t width, uint32_t height, uint8_t orientation) {
    static const struct {
        bool transposed, x, y;
    } turns[9] = {
        [1] = { 0, 0, 0 }, [2] = { 0, 1, 0 }, [3] = { 0, 1, 1 }, [4] = { 0, 0, 1 },
        [5] = { 1, 0, 0 }, [6] = { 1, 0, 1 }, [7] = { 1, 1, 1 }, [8] = { 1, 1, 0 },
    };
    return (struct group){ .x = { .count = width, .flipped = turns[orientation].x },
                           .y = { .count = height, .flipped = turns[orientation].y },
                           .transposed = turns[orientation].transposed };
}

static void crop_side(struct side *side, bool resized, uint32_t first, uint32_t count) {
    const uint32_t all = resized ? side->wanted : side->count;
    if (side->flipped) {
        first = all - first - count;
    }
    if (resized) {
        side->first += first;
        side->wanted = count;
    } else {
        side->begin += first;
        side->count = count;
    }
}

static void resize_side(struct side *side, uint32_t out) {
    side->out = side->wanted = out;
    side->mirrored = side->flipped;
}

/* Adds an act to the group; false: it does not belong to this group. */
static bool take_act(struct group *group, const struct brim__act *act) {
    /* the stored axis of the seen x axis */
    struct side *x = group->transposed ? &group->y : &group->x;
    struct side *y = group->transposed ? &group->x : &group->y;
    switch (act->kind) {
    case BRIM__ACT_CROP:
        crop_side(x, group->resized, act->crop.x, act->width);
        crop_side(y, group->resized, act->crop.y, act->height);
        return true;
    case BRIM__ACT_FLIP:
        if (act->flip.vertical) {
            y->flipped = !y->flipped;
        } else {
            x->flipped = !x->flipped;
        }
        return true;
    case BRIM__ACT_RESIZE:
        if (group->resized) {
            return false;
        }
        group->tall = brim__resize_is_tall(x->count, y->count, act->width, act->height);
        group->resized = true;
        group->filter = act->resize.filter;
        resize_side(x, act->width);
        resize_side(y, act->height);
        return true;
    case BRIM__ACT_PIXELS:
    case BRIM__ACT_PLAIN:
        break;
    }
    return false;
}

/* ------------------------------------------------------------------ running */

struct running {
    const struct brim__picture *picture;
    uint8_t *scratch;
    struct brim__acts *acts;
    /* the pixels: encoded, an array, or in a buffer */
    struct brim__file own;
    struct brim__input input;
    struct brim__image_info info;
    const uint8_t *array;
    uint32_t array_width;
    struct brim__image image; /* data NULL: not in memory yet */
    uint8_t orientation;
    struct brim__sinking sinking;
};

/* The buffer that does not hold the image now. The plan made it large enough, but its size is
 * checked anyway, because writing past it would change other memory. */
static brim_status next_buffer(const struct running *run, uint32_t width, uint32_t height,
                               uint32_t pixel, struct brim__image *image) {
    if ((uint64_t)width * height * pixel > run->picture->buffer_bytes) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "an image of %ux%u was not planned for", width,
                          height);
    }
    uint8_t *first = run->scratch + run->picture->at_buffer[0];
    *image = (struct brim__image){ .data = run->image.data == first
                                               ? run->scratch + run->picture->at_buffer[1]
                                               : first,
                                   .width = width,
                                   .height = height,
                                   .pixel = pixel,
                                   .stride = (size_t)width * pixel };
    return BRIM_OK;
}

/* An image in a buffer that rows are written to. */
struct filling {
    const struct brim__image *image;
    struct brim__stop *stop;
};

static brim_status to_image(void *user, const uint8_t *row, uint32_t y) {
    const struct filling *filling = user;
    const struct brim__image *image = filling->image;
    memcpy(brim__image_row(image, y), row, (size_t)image->width * image->pixel);
    return y % BRIM__ROWS_UNASKED == 0 && brim__stopped(filling->stop) ? brim__interrupted()
                                                                       : BRIM_OK;
}

/* Rows that are not resized: mirrored, or in another order. */
struct passing {
    brim__row_sink *sink;
    void *user;
    uint8_t *line;
    uint32_t width, height, pixel;
    bool flip_x, flip_y;
};

static brim_status pass(void *user, const uint8_t *row, uint32_t y) {
    const struct passing *passing = user;
    const struct brim__image_kernels *kernels = brim__image_kernels();
    if (passing->flip_x) {
        (passing->pixel == 4 ? kernels->reverse4 : kernels->reverse1)(row, passing->line,
                                                                      passing->width);
        row = passing->line;
    }
    return passing->sink(passing->user, row, passing->flip_y ? passing->height - 1 - y : y);
}

static brim_status to_resizer(void *user, const uint8_t *row, uint32_t y) {
    (void)y;
    return brim__resize_row(user, row);
}

/* Passes the rows of a region of the group's input to a sink. */
static brim_status feed(struct running *run, uint32_t x, uint32_t y, uint32_t width,
                        uint32_t height, uint32_t scale, brim__row_sink *sink, void *user) {
    const struct brim__picture_source *source = run->picture->source;
    if (run->image.data == NULL && source->encoded) {
        const struct brim__decoding decoding = { .input = &run->input,
                                                 .info = &run->info,
                                                 .color = source->color,
                                                 .x = x,
                                                 .y = y,
                                                 .width = width,
                                                 .height = height,
                                                 .scale = scale,
                                                 .cheap = source->fast,
                                                 .rough = source->fast,
                                                 .damaged = source->damaged,
                                                 .most_work = source->most_work,
                                                 .memory = run->scratch + source->at_memory,
                                                 .memory_bytes = source->memory };
        return brim__image_decode(&decoding, sink, user);
    }
    uint8_t *line = run->scratch + source->at_window;
    brim_status status = BRIM_OK;
    for (uint32_t i = 0; status == BRIM_OK && i < height; i++) {
        const uint8_t *row;
        if (i % BRIM__ROWS_UNASKED == 0 && brim__stopped(run->sinking.stop)) {
            return brim__interrupted();
        }
        if (run->image.data != NULL) {
            row = brim__image_row(&run->image, y + i) + (size_t)x * run->image.pixel;
        } else {
            row = run->array + ((size_t)(y + i) * run->array_width + x) * source->channels;
            if (source->channels == 3) {
                brim__image_kernels()->unpack3(row, line, width);
                row = line;
            }
        }
        status = sink(user, row, i);
    }
    return status;
}

/* For `fast`: the largest scale at which the decoder still gives at least the size of the resize.
 * Not for resizes that take single pixels, as for masks, because pixels at a reduced scale are
 * averages. */
static uint32_t choose_scale(const struct running *run, const struct group *group) {
    uint32_t scale = 1;
    if (run->image.data == NULL && run->picture->source->fast && group->resized &&
        group->filter != BRIM__NEAREST && !run->acts->exact &&
        run->info.format == BRIM__IMAGE_JPEG) {
        while (scale < 8 && group->x.count / (scale * 2) >= group->x.out &&
               group->y.count / (scale * 2) >= group->y.out) {
            scale *= 2;
        }
    }
    return scale;
}

/* One axis for the resizer; at: of the source's pixels at that scale. */
static struct brim__axis axis_of(const struct side *side, uint32_t scale, uint32_t all,
                                 uint32_t *at) {
    struct brim__axis axis = { .in = side->count,
                               .out = side->out,
                               .from = 0,
                               .to = (float)side->count,
                               .first = side->first,
                               .count = side->wanted,
                               .mirrored = side->mirrored,
                               .flipped = side->flipped };
    *at = side->begin;
    if (scale > 1) {
        const uint64_t scaled = brim__divide_up(all, scale);
        const double begin = (double)side->begin / scale;
        const double end = (double)(side->begin + side->count) / scale;
        *at = side->begin / scale;
        axis.in =
            (uint32_t)brim__min(brim__divide_up(side->begin + side->count, scale), scaled) - *at;
        axis.from = (float)(begin - *at);
        axis.to = (float)(end - *at);
        axis.to = axis.to > (float)axis.in ? (float)axis.in : axis.to;
        if (side->mirrored) { /* counted from the other end */
            const float from = axis.from;
            axis.from = (float)axis.in - axis.to;
            axis.to = (float)axis.in - from;
        }
    }
    return axis;
}

/* Passes the group's rows, in the stored orientation, to the sink. */
static brim_status stream(struct running *run, const struct group *group, brim__row_sink *sink,
                          void *user) {
    const struct brim__picture *picture = run->picture;
    const uint32_t pixel = run->image.data != NULL ? run->image.pixel : run->acts->pixel;
    if (!group->resized) {
        struct passing passing = { .sink = sink,
                                   .user = user,
                                   .line = run->scratch + picture->at_line,
                                   .width = group->x.count,
                                   .height = group->y.count,
                                   .pixel = pixel,
                                   .flip_x = group->x.flipped,
                                   .flip_y = group->y.flipped };
        return feed(run, group->x.begin, group->y.begin, group->x.count, group->y.count, 1, pass,
                    &passing);
    }
    uint32_t x, y, first_x, first_y, width, height;
    const uint32_t scale = choose_scale(run, group);
    const struct brim__resize resize = {
        .x = axis_of(&group->x, scale, run->info.width, &x),
        .y = axis_of(&group->y, scale, run->info.height, &y),
        .filter = group->filter,
        .pixel = pixel,
        .alpha = run->acts->alpha && pixel == 4,
        .vertical_first = group->transposed != group->tall,
    };
    brim__axis_needs(&resize.x, group->filter, &first_x, &width);
    brim__axis_needs(&resize.y, group->filter, &first_y, &height);
    struct brim__resizer *resizer;
    const brim_status status = brim__resize_begin(&resize, run->scratch + picture->at_resize,
                                                  picture->resize_bytes, sink, user, &resizer);
    return status != BRIM_OK
               ? status
               : feed(run, x + first_x, y + first_y, width, height, scale, to_resizer, resizer);
}

static uint32_t wanted(const struct group *group, const struct side *side) {
    return group->resized ? side->wanted : side->count;
}

/* Writes the group's result to the next buffer. */
static brim_status stream_to_buffer(struct running *run, const struct group *group,
                                    uint32_t pixel) {
    struct brim__image to;
    brim_status status =
        next_buffer(run, wanted(group, &group->x), wanted(group, &group->y), pixel, &to);
    if (status == BRIM_OK) {
        struct filling filling = { &to, run->sinking.stop };
        status = stream(run, group, to_image, &filling);
    }
    if (status == BRIM_OK && group->transposed) {
        run->image = to;
        status = next_buffer(run, to.height, to.width, pixel, &to);
        if (status == BRIM_OK) {
            brim__image_orient(&run->image, &to, 5);
        }
    }
    run->image = to;
    return status;
}

static bool changes_nothing(const struct group *group, uint32_t width, uint32_t height) {
    return !group->resized && !group->transposed && !group->x.flipped && !group->y.flipped &&
           group->x.count == width && group->y.count == height;
}

static brim_status run_pixels(struct running *run, const struct brim__act *act) {
    struct brim__image to = run->image;
    if (brim__stopped(run->sinking.stop)) {
        return brim__interrupted();
    }
    const brim_status status =
        act->pixels.in_place ? BRIM_OK : next_buffer(run, act->width, act->height, act->pixel, &to);
    if (status == BRIM_OK) {
        act->pixels.run(act, &run->image, &to, run->scratch + run->picture->at_scratch);
        run->image = to;
    }
    return status;
}

static brim_status carry_out(struct running *run, uint32_t width, uint32_t height, uint32_t pixel) {
    struct brim__acts *acts = run->acts;
    brim_status status = BRIM_OK;
    acts->pixel = pixel; /* from now on the pixel of the decoder's output */
    for (uint32_t a = 0;;) {
        struct group group = begin_group(width, height, run->orientation);
        while (a < acts->count && take_act(&group, &acts->act[a])) {
            a++;
        }
        const bool last = a == acts->count;
        run->orientation = 1;
        if (last && !group.transposed) {
            status = stream(run, &group, brim__picture_sink_row, &run->sinking);
            if (status == BRIM_OK) {
                brim__picture_sink_end(&run->sinking);
            }
            return status;
        }
        if (run->image.data == NULL || !changes_nothing(&group, width, height)) {
            status =
                stream_to_buffer(run, &group, run->image.data != NULL ? run->image.pixel : pixel);
        }
        for (; status == BRIM_OK && a < acts->count && acts->act[a].kind == BRIM__ACT_PIXELS; a++) {
            status = run_pixels(run, &acts->act[a]);
        }
        if (status != BRIM_OK) {
            return status;
        }
        if (a < acts->count && acts->act[a].kind == BRIM__ACT_PLAIN) {
            brim__picture_sink_plain(&run->sinking, &run->image, acts->act[a].resize.filter);
            return BRIM_OK;
        }
        width = run->image.width;
        height = run->image.height;
        /* in the last round only streaming the buffer to the sink is left */
    }
}

/* The operations choose their acts. */
static brim_status resolve(const struct brim__picture *picture, const struct brim__frame *frame,
                           struct brim__acts *acts) {
    for (uint32_t i = 0; i < picture->op_count; i++) {
        const struct brim__op *op = &picture->op[i];
        const struct brim__picture_draws draws = {
            .key = frame->expansion_index == 0
                       ? op->key
                       : brim__hash_words(op->key, frame->expansion_index, 1),
            .sample = frame->call.sample,
            .epoch = frame->call.epoch,
        };
        acts->op = i;
        const brim_status status = op->resolve(op->self, &draws, acts);
        if (status != BRIM_OK) {
            return status;
        }
    }
    if (picture->extent.fixed &&
        (acts->width != picture->extent.width || acts->height != picture->extent.height)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "an image became %ux%u, but %ux%u was planned",
                          acts->width, acts->height, picture->extent.width, picture->extent.height);
    }
    return BRIM_OK;
}

#define CHANGED \
    "it has changed since it was indexed; touch its directory or manifest to index it again"

/* The memory was sized when the plan was made, so a larger image is a bad sample. */
static brim_status check_planned(const struct brim__picture_source *source,
                                 const struct brim__image_info *info) {
    const bool turned = source->orient && info->orientation >= 5;
    const uint32_t width = turned ? info->height : info->width;
    const uint32_t height = turned ? info->width : info->height;
    const uint64_t pixels = (uint64_t)info->width * info->height;
    if (pixels > source->allowed_pixels) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "%ux%u are %llu pixels, but at most %llu are allowed: raise decode's "
                          "max_pixels if the image is right",
                          info->width, info->height, (unsigned long long)pixels,
                          (unsigned long long)source->allowed_pixels);
    }
    if (width > source->max_width || height > source->max_height || pixels > source->max_pixels) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "%ux%u pixels are more than any image had when it was indexed: " CHANGED,
                          info->width, info->height);
    }
    if (source->indexed && info->outside > source->outside && info->memory <= source->memory) {
        return brim__fail(
            BRIM_STATUS_CORRUPT,
            "this %s needs more memory than any image did when it was indexed: " CHANGED,
            brim__image_format_name(info->format));
    }
    if (info->memory > source->memory || info->outside > source->outside) {
        const uint64_t room = brim__max(info->memory, info->outside);
        const bool held = info->whole && info->format != BRIM__IMAGE_WEBP;
        char need[BRIM__SIZE_TEXT], have[BRIM__SIZE_TEXT];
        return brim__fail(
            BRIM_STATUS_CORRUPT,
            "decoding this %s%s of %ux%u needs %s, but the plan has %s for one "
            "image: give decode room=%lluKiB%s",
            !held                             ? ""
            : info->format == BRIM__IMAGE_PNG ? "interlaced "
                                              : "progressive ",
            brim__image_format_name(info->format), info->width, info->height,
            brim__size_text(room, need), brim__size_text(source->memory, have),
            (unsigned long long)brim__divide_up(room, 1024),
            source->indexed ? ", or, if the file is new, touch its directory or manifest" : "");
    }
    return BRIM_OK;
}

/* Reads the header and checks it against what was planned. */
static brim_status begin_encoded(struct running *run, const struct brim__frame *frame) {
    const struct brim__picture_source *source = run->picture->source;
    brim_status status = BRIM_OK;
    if (source->deferred) {
        const struct brim__deferred *deferred =
            (const struct brim__deferred *)(const void *)brim__reader_data(&source->bytes, frame);
        const struct brim__file *file;
        uint64_t offset, bytes;
        status = brim__deferred_open(deferred, &run->own, &file, &offset, &bytes);
        if (status == BRIM_OK) {
            brim__input_file(&run->input, file, offset, bytes, run->scratch + source->at_window);
        }
    } else {
        const struct brim__span span = brim__reader_span(&source->bytes, frame);
        brim__input_memory(&run->input, span.data, span.count);
    }
    run->input.stop = frame->stop;
    if (status == BRIM_OK) {
        status = brim__image_info(&run->input, source->orient, &run->info);
    }
    if (status != BRIM_OK) {
        return status;
    }
    status = check_planned(source, &run->info);
    run->orientation = source->orient ? run->info.orientation : 1;
    return status;
}

brim_status brim__picture_run(const struct brim__step *step, const struct brim__frame *frame) {
    const struct brim__picture *picture = step->self;
    const struct brim__picture_source *source = picture->source;
    struct running run = {
        .picture = picture,
        .scratch = frame->scratch,
        .own = { .fd = -1 },
        .orientation = 1,
        .sinking = { .stop = frame->stop, .sink = picture->sink, .scratch = frame->scratch }
    };
    run.acts = (struct brim__acts *)(void *)(frame->scratch + picture->at_acts);
    brim_status status = BRIM_OK;
    uint32_t width = source->width, height = source->height, pixel = source->channels == 1 ? 1 : 4;
    if (source->encoded) {
        status = begin_encoded(&run, frame);
        width = run.info.width;
        height = run.info.height;
        pixel = brim__color_pixel(source->color);
    } else if (source->from_bytes) {
        const struct brim__span span = brim__reader_span(&source->bytes, frame);
        status = brim__picture_bytes_read(source, &span, &width, &height, &run.array);
    } else {
        run.array = brim__reader_data(&source->bytes, frame);
    }
    run.array_width = width;
    if (status == BRIM_OK) {
        const bool turned = run.orientation >= 5;
        run.acts->width = turned ? height : width;
        run.acts->height = turned ? width : height;
        run.acts->pixel = pixel;
        run.acts->mask = picture->open.mask;
        run.acts->alpha = source->encoded ? source->color == BRIM__RGBA : source->channels == 4;
        run.acts->resized = run.acts->exact = false;
        run.acts->count = 0;
        status = resolve(picture, frame, run.acts);
    }
    if (status == BRIM_OK && picture->to_bytes) {
        status = brim__picture_bytes_begin(picture, run.acts, &step->to, frame, &run.sinking);
    } else {
        run.sinking.to = brim__operand_write(&step->to, frame);
        run.sinking.width = picture->extent.width;
    }
    if (status == BRIM_OK) {
        status = carry_out(&run, width, height, pixel);
    }
    if (status != BRIM_OK && run.own.path != NULL) {
        brim__note_source(run.own.path);
    }
    brim__file_close(&run.own);
    return status;
}
