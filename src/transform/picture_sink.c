/*
 * picture_sink.c: converts rows of pixels to the element type and layout of the field.
 *
 * Rows come one at a time, in any order, while they are in the CPU's cache. The usual layouts are
 * written at once: pixels side by side (HWC) and planes (CHW), in any type. Any other pending
 * conversion of later stages is carried out at the end, on a copy of the whole image.
 */
#include "image/kernels.h"
#include "transform/picture.h"

enum way { PACKED, ROWS, PLANES, PLANAR, WHOLE, FLOATS };

struct brim__picture_sink {
    enum way way;
    uint32_t width, height, channels;
    brim_dtype to;
    uint64_t line; /* in scratch: a row on its way; WHOLE and FLOATS: the image */
    bool affine;
    float scale[4], bias[4];
    struct brim__conversion conversion; /* ROWS: of one row; WHOLE: of all */
};

static bool has_strides(const struct brim__view *view, const int64_t stride[3]) {
    return view->shape.rank == 3 && view->stride[0] == stride[0] && view->stride[1] == stride[1] &&
           view->stride[2] == stride[2];
}

/* Chooses the way for a conversion of uint8 HWC. */
static enum way choose(const struct brim__picture_sink *sink,
                       const struct brim__conversion *conversion) {
    const int64_t pixel = sink->channels, row = pixel * sink->width;
    const struct brim__view *view = &conversion->from;
    const bool scaled = conversion->scale != NULL;
    const bool one = !scaled || conversion->channels == 1;
    const bool rows_first = view->shape.rank == 3 && view->shape.dim[0] == sink->height &&
                            view->shape.dim[1] == sink->width &&
                            has_strides(view, (int64_t[]){ row, pixel, 1 });
    if (view->offset != 0 || view->swapped) {
        return WHOLE;
    }
    if (rows_first && (one || conversion->channel_axis == 2)) {
        return brim__conversion_is_copy(conversion) ? PACKED : ROWS;
    }
    if (sink->channels > 1 && view->shape.rank == 3 && view->shape.dim[0] == sink->channels &&
        view->shape.dim[1] == sink->height && view->shape.dim[2] == sink->width &&
        has_strides(view, (int64_t[]){ 1, row, pixel }) && (one || conversion->channel_axis == 0)) {
        return conversion->to == BRIM_DTYPE_F32 && sink->channels == 3 ? PLANES : PLANAR;
    }
    return WHOLE;
}

/* The conversion of one row of pixels. */
static void make_row(struct brim__conversion *row, const struct brim__conversion *all) {
    struct brim__view view = {
        .dtype = BRIM_DTYPE_U8,
        .shape = { .rank = 2, .dim = { all->from.shape.dim[1], all->from.shape.dim[2] } }
    };
    brim__view_row_major(&view);
    brim__conversion_init(row, &view);
    row->to = all->to;
    row->scale = all->scale;
    row->bias = all->bias;
    row->channels = all->channels;
    row->channel_axis = 1;
}

brim_status brim__picture_sink_new(struct brim__program *program,
                                   const struct brim__picture *picture,
                                   const struct brim__conversion *conversion,
                                   struct brim__picture_sink **sink_out) {
    struct brim__picture_sink *sink;
    brim_status status = brim__arena_take(program->arena, sizeof *sink, &sink);
    if (status != BRIM_OK) {
        return status;
    }
    sink->width = picture->extent.width;
    sink->height = picture->extent.height;
    sink->channels = picture->channels;
    sink->to = conversion->to;
    sink->way = picture->to_bytes ? PACKED : picture->floats ? FLOATS : choose(sink, conversion);
    sink->affine = conversion->scale != NULL;
    for (uint32_t c = 0; c < 4; c++) {
        const uint32_t from = conversion->channels > 1 ? c % conversion->channels : 0;
        sink->scale[c] = sink->affine ? conversion->scale[from] : 1;
        sink->bias[c] = sink->affine ? conversion->bias[from] : 0;
    }
    sink->conversion = *conversion;
    if (sink->way == ROWS) {
        make_row(&sink->conversion, conversion);
        status = brim__conversion_prepare(&sink->conversion);
    }
    struct brim__operand line = { 0 };
    const uint64_t row = (uint64_t)sink->width * sink->channels;
    const uint64_t bytes = sink->way == WHOLE    ? row * sink->height
                           : sink->way == FLOATS ? row * sink->height * sizeof(float)
                                                 : row;
    if (status == BRIM_OK) {
        status = brim__program_scratch(program, bytes, &line);
    }
    sink->line = line.offset;
    *sink_out = sink;
    return status;
}

/* Packs pixels to 1, 3 or 4 bytes. */
static void pack(const struct brim__sinking *sinking, const uint8_t *row, uint8_t *to) {
    if (sinking->sink->channels == 3) {
        brim__image_kernels()->pack4(row, to, sinking->width);
    } else {
        memcpy(to, row, (size_t)sinking->width * sinking->sink->channels);
    }
}

/* Separates the bytes of each channel, then writes each channel to its plane. */
static void split(const struct brim__picture_sink *sink, const struct brim__sinking *sinking,
                  const uint8_t *row, uint32_t y) {
    const struct brim__kernels *kernels = brim__kernels();
    const size_t element = brim_dtype_bytes(sink->to);
    const size_t plane = (size_t)sink->width * sink->height * element;
    uint8_t *line = sinking->scratch + sink->line;
    uint8_t *to = sinking->to + (size_t)y * sink->width * element;
    if (sink->to == BRIM_DTYPE_U8 && !sink->affine) {
        brim__image_kernels()->split4(row, to, plane, sink->width, sink->channels);
        return;
    }
    brim__image_kernels()->split4(row, line, sink->width, sink->width, sink->channels);
    for (uint32_t c = 0; c < sink->channels; c++) {
        const uint8_t *from = line + (size_t)c * sink->width;
        if (sink->affine) {
            kernels->affine[BRIM_DTYPE_U8][sink->to](from, to + c * plane, sink->width,
                                                     sink->scale[c], sink->bias[c]);
        } else {
            kernels->convert[BRIM_DTYPE_U8][sink->to](from, to + c * plane, sink->width);
        }
    }
}

brim_status brim__picture_sink_row(void *user, const uint8_t *row, uint32_t y) {
    const struct brim__sinking *sinking = user;
    const struct brim__picture_sink *sink = sinking->sink;
    const size_t row_bytes = (size_t)sinking->width * sink->channels;
    uint8_t *line = sinking->scratch + sink->line;
    if (y % BRIM__ROWS_UNASKED == 0 && brim__stopped(sinking->stop)) {
        return brim__interrupted();
    }
    switch (sink->way) {
    case PACKED:
        pack(sinking, row, sinking->to + y * row_bytes);
        break;
    case ROWS:
        if (sink->channels == 3) {
            pack(sinking, row, line);
            row = line;
        }
        brim__convert(&sink->conversion, row,
                      sinking->to + y * row_bytes * brim_dtype_bytes(sink->to));
        break;
    case PLANES:
        brim__image_kernels()->planes4(row, (float *)(void *)sinking->to + (size_t)y * sink->width,
                                       (size_t)sink->width * sink->height, sink->width, sink->scale,
                                       sink->bias);
        break;
    case PLANAR:
        split(sink, sinking, row, y);
        break;
    case WHOLE:
        pack(sinking, row, line + y * row_bytes);
        break;
    case FLOATS:
        break;
    }
    return BRIM_OK;
}

void brim__picture_sink_end(const struct brim__sinking *sinking) {
    const struct brim__picture_sink *sink = sinking->sink;
    if (sink->way == WHOLE) {
        brim__convert(&sink->conversion, sinking->scratch + sink->line, sinking->to);
    }
}

void brim__picture_sink_plain(const struct brim__sinking *sinking, const struct brim__image *image,
                              enum brim__filter filter) {
    const struct brim__picture_sink *sink = sinking->sink;
    float *floats = (float *)(void *)(sinking->scratch + sink->line);
    brim__resize_plain(image, sink->channels, sink->width, sink->height, filter, floats);
    brim__convert(&sink->conversion, (const uint8_t *)floats, sinking->to);
}
