/*
 * copy.c: `copy FROM TO`: a second field with the same value, for different treatment: several
 * views of one image, or an input that is also the target.
 *
 * Nothing is copied until the two differ. An image's encoded bytes are read, and its crop is
 * decoded, once for each view.
 */
#include "transform/picture.h"
#include "transform/stages.h"

enum { FROM, TO };

static brim_status add(const struct brim__use *use, struct brim__program *program) {
    uint32_t from = 0, to = 0;
    brim_status status = brim__at_argument(
        brim__program_find(program, "copy", brim__item(use, FROM)->text, &from), "from");
    if (status == BRIM_OK) {
        status = brim__program_field(program, "copy", brim__item(use, TO)->text, &to);
    }
    if (status != BRIM_OK) {
        return status;
    }
    char name[BRIM_NAME_BYTES];
    memcpy(name, program->field[to].name, sizeof name);
    if (program->field[from].open != NULL) {
        return brim__picture_clone(program, from, to);
    }
    /* both use the value in its place, so neither may move it to its row */
    program->field[from].written = NULL;
    program->field[to] = program->field[from];
    memcpy(program->field[to].name, name, sizeof name);
    return BRIM_OK;
}

static const brim_argument_info arguments[] = {
    [FROM] = { .name = "from",
               .type = BRIM_TYPE_WORD,
               .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
               .help = "the field" },
    [TO] = { .name = "to",
             .type = BRIM_TYPE_WORD,
             .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
             .help = "name of the second field" },
};

const struct brim__stage brim__stage_copy = {
    .info = { .name = "copy",
              .summary = "a second field with the same value, such as another view of an image",
              .example = "copy image view2",
              .room = BRIM_ROOM_TRANSFORM,
              .version = 1,
              .arguments = arguments,
              .argument_count = BRIM__COUNT(arguments) },
    .add_transform = add,
};
