/*
 * decode.c: `decode`: makes pictures of encoded images.
 *
 * The memory that decoding needs in one worker is known before the first image is read: from the
 * index, if the source has probed every file, or from `room`. An image that needs more is a bad
 * sample, and the error gives the room that it needs. An image of more than max_pixels is always a
 * bad sample: no memory is planned for it. The plan names the file that needs the most, because one
 * file may decide the memory for all.
 */
#include "transform/picture.h"
#include "transform/stages.h"

#include <stdio.h>

enum { MODE, ORIENT, FAST, DAMAGED, ROOM, MAX_PIXELS, ON };
enum { RGB, RGBA, GRAY, MASK };

#define UNKNOWN_ROOM (UINT64_C(16) << 20)
#define NAME_SHOWN   200 /* bytes of a file's path, the last ones */

/* The path of a sample's file, as a plan shows it. */
static brim_status name_file(const struct brim__program *program,
                             const struct brim__program_field *field, uint64_t sample,
                             const char **name) {
    char text[BRIM__SAMPLE_NAME] = "";
    const brim_status status = field->source->ops->path(field->source, sample, field->source_field,
                                                        program->arena->budget, text);
    const size_t length = strlen(text);
    return status != BRIM_OK
               ? status
               : brim__arena_text(program->arena,
                                  text + (length > NAME_SHOWN ? length - NAME_SHOWN : 0), name);
}

/* The plan's note: which file decides the memory, and which images are left out of it. */
static brim_status note(struct brim__program *program, const struct brim__program_field *field,
                        const struct brim__image_bounds *known, bool room, uint64_t max_pixels,
                        const char **most) {
    char text[8 * NAME_SHOWN] = "", size[BRIM__SIZE_TEXT];
    brim_status status = BRIM_OK;
    size_t length = (size_t)snprintf(text, sizeof text / 2, "%s", /* of other fields */
                                     program->note != NULL ? program->note : "");
    length = (size_t)brim__min(length, sizeof text / 2 - 1);
    if (known->images > 0) {
        status = name_file(program, field, known->sample, most);
    }
    if (status == BRIM_OK && known->images > 0 && !room) {
        length += (size_t)snprintf(text + length, sizeof text - length,
                                   "; up to %s to decode %s: %s needs the most",
                                   brim__size_text(known->needs, size), field->name, *most);
    }
    if (status == BRIM_OK && known->over > 0) {
        const char *over = "";
        status = name_file(program, field, known->over_sample, &over);
        snprintf(text + length, sizeof text - length, "; %llu over max_pixels=%llu %s %s",
                 (unsigned long long)known->over, (unsigned long long)max_pixels,
                 known->over == 1 ? "is a bad sample:" : "are bad samples, such as", over);
    }
    return status == BRIM_OK ? brim__arena_text(program->arena, text, &program->note) : status;
}

static brim_status decode(const struct brim__use *use, struct brim__program *program, uint32_t f) {
    struct brim__program_field *field = &program->field[f];
    static const enum brim__color colors[] = {
        [RGB] = BRIM__RGB, [RGBA] = BRIM__RGBA, [GRAY] = BRIM__GRAY, [MASK] = BRIM__MASK
    };
    if (field->form != BRIM_FORM_BYTES || field->open != NULL) {
        return brim__fail(
            BRIM_STATUS_INVALID, "decode: field '%s' contains no encoded images%s", field->name,
            field->open != NULL ? ": it is decoded already; give the first decode on= too" : "");
    }
    struct brim__picture_source source = {
        .encoded = true,
        .deferred = field->deferred,
        .color = colors[brim__item(use, MODE)->integer],
        .orient = brim__item(use, ORIENT)->integer != 0,
        .fast = brim__item(use, FAST)->integer != 0,
        .damaged = brim__item(use, DAMAGED)->integer != 0,
        .allowed_pixels = (uint64_t)brim__item(use, MAX_PIXELS)->integer,
    };
    /* a max_pixels below the default does not lower the number of scans allowed */
    source.most_work = BRIM__IMAGE_SCANS * brim__max(source.allowed_pixels, BRIM__IMAGE_PIXELS);
    struct brim__picture_extent extent = { .width = BRIM__MAX_SIDE, .height = BRIM__MAX_SIDE };
    const bool known = field->images != NULL;
    struct brim__image_bounds bounds = { 0 };
    source.indexed = known;
    extent.pixels = source.max_pixels = source.allowed_pixels;
    source.memory = source.outside = UNKNOWN_ROOM;
    if (known) {
        bounds = brim__image_bounds_within(field->images, source.allowed_pixels);
        extent.width = (uint32_t)brim__max(1, bounds.width); /* 0: all are over the bound */
        extent.height = (uint32_t)brim__max(1, bounds.height);
        extent.pixels = source.max_pixels = brim__max(1, bounds.pixels);
        source.memory = bounds.memory;
        source.outside = bounds.outside;
        if (source.orient && bounds.turned) {
            extent.width = extent.height = (uint32_t)brim__max(extent.width, extent.height);
        }
    }
    source.max_width = extent.width;
    source.max_height = extent.height;
    if (brim__given(use, ROOM)) {
        const uint64_t room = (uint64_t)brim__item(use, ROOM)->integer;
        source.memory = room;
        source.outside = known ? brim__min(room, source.outside) : room;
    }
    if (known) {
        const char *most = NULL;
        const brim_status status =
            note(program, field, &bounds, brim__given(use, ROOM), source.allowed_pixels, &most);
        if (status != BRIM_OK) {
            return brim__fail_within(status, "decode");
        }
        if (source.memory + source.outside > program->needed_bytes) {
            program->neediest = most;
            program->needed_bytes = source.memory + source.outside;
        }
    }
    brim__program_reader(program, f, &source.bytes);
    const enum brim__color color = source.color;
    return brim__picture_new(program, f, &source, &extent, brim__color_channels(color),
                             color == BRIM__MASK);
}

/* Chooses the fields to decode, as bits. */
static brim_status choose(const struct brim__use *use, const struct brim__program *program,
                          uint32_t *fields) {
    const struct brim__values *on = &use->values[ON];
    const char *decoded = NULL;
    *fields = 0;
    for (size_t i = 0; i < on->count; i++) {
        uint32_t f = 0;
        const brim_status status =
            brim__at_argument(brim__program_find(program, "decode", on->items[i].text, &f), "on");
        if (status != BRIM_OK) {
            return status;
        }
        *fields |= 1u << f;
    }
    for (uint32_t f = 0; on->count == 0 && f < program->field_count; f++) {
        *fields |= (uint32_t)(program->field[f].form == BRIM_FORM_BYTES) << f;
        decoded = program->field[f].open != NULL ? program->field[f].name : decoded;
    }
    if (*fields == 0 && decoded != NULL) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "decode: field '%s' is decoded already: if fields are decoded in two "
                          "ways, the first decode needs on= too",
                          decoded);
    }
    if (*fields == 0) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "decode: no field contains bytes: images come from folder or files, or "
                          "as bytes from any other source");
    }
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    uint32_t fields = 0;
    brim_status status = choose(use, program, &fields);
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        if (fields >> f & 1) {
            status = decode(use, program, f);
        }
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [MODE] = { .name = "mode",
               .type = BRIM_TYPE_CHOICE,
               .flags = BRIM_ARGUMENT_FLAG_POSITIONAL,
               .fallback = "rgb",
               .choices = "rgb|rgba|gray|mask",
               .help = "the pixels' channels; mask: classes, resized by nearest" },
    [ORIENT] = { .name = "orient",
                 .type = BRIM_TYPE_YESNO,
                 .fallback = "no",
                 .help = "turn and mirror by the EXIF orientation" },
    [FAST] = { .name = "fast",
               .type = BRIM_TYPE_YESNO,
               .fallback = "no",
               .help = "decode JPEG at half, quarter or eighth size if that is enough; the pixels "
                       "differ slightly" },
    [DAMAGED] = { .name = "damaged",
                  .type = BRIM_TYPE_CHOICE,
                  .fallback = "fail",
                  .choices = "fail|keep",
                  .help = "fail: damaged or cut data are a bad sample; keep: decode as much as "
                          "possible" },
    [ROOM] = { .name = "room",
               .type = BRIM_TYPE_SIZE,
               .least = 65536,
               .most = 1e15,
               .help = "memory for decoding one image, in each worker; default: known from the "
                       "index, or 16MiB" },
    [MAX_PIXELS] = { .name = "max_pixels",
                     .type = BRIM_TYPE_INTEGER,
                     .fallback = "178956970",
                     .least = 1,
                     .most = 4294836225.0,
                     .help = "larger images are bad samples, and the plan has no memory for them" },
    [ON] = BRIM__ON_ARGUMENT("fields of encoded images; default: all fields of bytes"),
};

const struct brim__stage brim__stage_decode = {
    .info = { .name = "decode",
              .summary = "decodes JPEG, PNG and WebP images, only the part that later crops need",
              .example = "decode rgb orient=yes",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};
