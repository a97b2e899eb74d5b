/*
 * layout.c: `layout chw`: puts dimensions into another order. This costs nothing by itself: the
 * conversion into the row walks the source in the new order.
 */
#include "transform/program.h"
#include "transform/stages.h"

enum { TO, FROM, ON };

/* place[i]: which dimension of `from` is the i-th of `to`. */
static brim_status match(const char *from, const char *to, uint32_t rank, uint32_t *place) {
    if (strlen(from) != rank || strlen(to) != rank) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "layout: the field has %u dimensions, but from=%s and to=%s name %zu and "
                          "%zu",
                          rank, from, to, strlen(from), strlen(to));
    }
    for (uint32_t i = 0; i < rank; i++) {
        const char *found = strchr(from, to[i]);
        if (found == NULL || strchr(to + i + 1, to[i]) != NULL) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "layout: '%s' is not the letters of '%s' in another "
                              "order",
                              to, from);
        }
        place[i] = (uint32_t)(found - from);
    }
    return BRIM_OK;
}

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    uint32_t fields = 0;
    brim_status status = brim__program_on(program, use, ON, BRIM__ON_FIRST, true, &fields);
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        struct brim__program_field *field = &program->field[f];
        uint32_t place[BRIM_MAX_RANK];
        if ((fields >> f & 1) == 0) {
            continue;
        }
        status = match(brim__item(use, FROM)->text, brim__item(use, TO)->text,
                       field->pending.from.shape.rank, place);
        if (status != BRIM_OK) {
            return brim__fail_within(status, "field '%s'", field->name);
        }
        const struct brim__view old = field->pending.from;
        const uint32_t old_axis = field->pending.channel_axis;
        for (uint32_t i = 0; i < old.shape.rank; i++) {
            field->pending.from.shape.dim[i] = old.shape.dim[place[i]];
            field->pending.from.stride[i] = old.stride[place[i]];
            if (place[i] == old_axis) {
                field->pending.channel_axis = i;
            }
        }
        field->stage = program->stage;
    }
    return status;
}

static const brim_argument_info arguments[] = {
    [TO] = { .name = "to",
             .type = BRIM_TYPE_WORD,
             .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
             .help = "a letter for each dimension, in the new order: chw" },
    [FROM] = { .name = "from",
               .type = BRIM_TYPE_WORD,
               .fallback = "hwc",
               .help = "the same letters in the order of the data" },
    [ON] = BRIM__ON_ARGUMENT("fields to reorder; default: the first"),
};

const struct brim__stage brim__stage_layout = {
    .info = { .name = "layout",
              .summary = "puts dimensions into another order",
              .example = "layout chw from=hwc",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};
