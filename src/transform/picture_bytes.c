/*
 * picture_bytes.c: images of different sizes as bytes that a stage (cache) can keep.
 *
 *     | width, 4 bytes | height, 4 bytes | pixels of 1, 3 or 4 bytes, row by row |
 *
 * Making bytes of a picture settles it: all operations so far are carried out on the whole image.
 * The result is the source of a new picture. Orientation and colours are already as decode
 * requires, so the file is no longer needed.
 *
 * Later stages give the same pixels as without the bytes, because one pass over rows gives the same
 * pixels as its acts one by one (picture_run.c). There is one exception, which is refused: decode
 * fast=yes decodes at the size that the first resize needs, so the resize must be known before
 * decoding.
 *
 * Bytes that are read back may be from a damaged or forged file, so they are checked.
 */
#include "transform/picture.h"

#define HEADER 8
/* Every worker takes room for such an image, so its size is limited. */
#define MOST_BYTES (UINT64_C(512) << 20)

struct brim__picture_bytes {
    struct brim__picture_extent extent;
    uint32_t channels;
    bool mask;
    const char *keeper; /* the stage that has the bytes */
};

brim_status brim__picture_check_kept(const char *stage, const struct brim__program_field *field) {
    const struct brim__picture *picture = brim__picture_of(field);
    bool resized = false;
    for (uint32_t i = 0; i < picture->op_count; i++) {
        resized |= picture->op[i].resizes;
    }
    if (picture->source->fast && !resized) {
        return brim__fail(
            BRIM_STATUS_INVALID,
            "field '%s': decode fast=yes decodes at the size of the next resize, but the %s comes "
            "before it: put resize or random_resized_crop before the %s, or leave out fast=yes",
            field->name, stage, stage);
    }
    return BRIM_OK;
}

bool brim__picture_bytes_bound(const struct brim__picture *picture, uint64_t *bytes) {
    const struct brim__picture_extent *extent = &picture->extent;
    const uint64_t pixels = brim__min((uint64_t)extent->width * extent->height, extent->pixels);
    *bytes = HEADER + pixels * picture->channels; /* sides are of 16 bits */
    return *bytes <= MOST_BYTES;
}

brim_status brim__picture_to_bytes(struct brim__program *program, const char *stage, uint32_t field,
                                   struct brim__picture_bytes **bytes_out) {
    struct brim__program_field *target = &program->field[field];
    struct brim__picture *picture = brim__picture_of(target);
    uint64_t bytes;
    if (!brim__picture_is_open(target)) {
        return brim__picture_unsized(stage, target); /* no later image stage can give it one size */
    }
    if (!brim__picture_bytes_bound(picture, &bytes)) {
        char need[BRIM__SIZE_TEXT], most[BRIM__SIZE_TEXT];
        return brim__fail(BRIM_STATUS_INVALID,
                          "field '%s': its images have up to %llu pixels, %s, and are kept whole, "
                          "but the most is %s: resize them first, lower decode's max_pixels=, or "
                          "give probe=yes to their source, so that their sizes are known",
                          target->name, (unsigned long long)picture->extent.pixels,
                          brim__size_text(bytes, need), brim__size_text(MOST_BYTES, most));
    }
    brim_status status = brim__picture_check_kept(stage, target);
    struct brim__picture_bytes *kept;
    struct brim__operand to;
    if (status == BRIM_OK) {
        status = brim__arena_take(program->arena, sizeof *kept, &kept);
    }
    if (status == BRIM_OK) {
        status = brim__program_room(program, BRIM_FORM_BYTES, bytes, &to);
    }
    if (status != BRIM_OK) {
        return status;
    }
    *kept = (struct brim__picture_bytes){ .extent = picture->extent,
                                          .channels = picture->channels,
                                          .mask = picture->open.mask,
                                          .keeper = stage };
    picture->to_bytes = true;
    status = brim__picture_settle(program, field, to);
    const struct brim__shape shape = { .rank = 1, .dim = { bytes } };
    brim__program_set(program, field, BRIM_FORM_BYTES, BRIM_DTYPE_U8, &shape, 0,
                      &picture->open.step->to);
    target->images = NULL;
    *bytes_out = kept;
    return status;
}

brim_status brim__picture_from_bytes(struct brim__program *program, uint32_t field,
                                     const struct brim__picture_bytes *kept) {
    struct brim__picture_source source = { .from_bytes = true,
                                           .max_width = kept->extent.width,
                                           .max_height = kept->extent.height,
                                           .max_pixels = kept->extent.pixels,
                                           .channels = kept->channels,
                                           .keeper = kept->keeper };
    brim__program_reader(program, field, &source.bytes);
    return brim__picture_new(program, field, &source, &kept->extent, kept->channels, kept->mask);
}

/* ----------------------------------------------------------------- running */

brim_status brim__picture_bytes_begin(const struct brim__picture *picture,
                                      const struct brim__acts *acts, const struct brim__operand *to,
                                      const struct brim__frame *frame,
                                      struct brim__sinking *sinking) {
    const struct brim__picture_extent *extent = &picture->extent;
    const uint64_t pixels = (uint64_t)acts->width * acts->height;
    if (acts->width > extent->width || acts->height > extent->height || pixels > extent->pixels) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "an image of %ux%u was not planned for",
                          acts->width, acts->height);
    }
    uint64_t *count;
    uint8_t *data = brim__operand_ragged(to, frame, &count);
    const uint32_t size[2] = { acts->width, acts->height };
    memcpy(data, size, HEADER);
    *count = HEADER + pixels * picture->channels;
    sinking->to = data + HEADER;
    sinking->width = acts->width;
    return BRIM_OK;
}

brim_status brim__picture_bytes_read(const struct brim__picture_source *source,
                                     const struct brim__span *span, uint32_t *width,
                                     uint32_t *height, const uint8_t **pixels) {
    uint32_t size[2] = { 0, 0 };
    if (span->count >= HEADER) {
        memcpy(size, span->data, HEADER);
    }
    const uint64_t area = (uint64_t)size[0] * size[1];
    if (area == 0 || size[0] > source->max_width || size[1] > source->max_height ||
        area > source->max_pixels || span->count != HEADER + area * source->channels) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "a %s holds %llu bytes for an image of %ux%u with %u channels, which "
                          "this pipeline does not have: remove its file",
                          source->keeper, (unsigned long long)span->count, size[0], size[1],
                          source->channels);
    }
    *width = size[0];
    *height = size[1];
    *pixels = span->data + HEADER;
    return BRIM_OK;
}
