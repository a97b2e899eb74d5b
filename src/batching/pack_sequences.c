/*
 * pack_sequences.c: puts documents end to end into windows of one length.
 *
 * Only the packed field is kept, with two new ones of the same length: `position`, an element's
 * place in its document, and `document`, the number of its document in the window, from 1 on; 0
 * marks the empty rest.
 *
 *     documents   aaaaa bbb cccccc        length=8
 *     x           aaaaabbb cccccc00       split=no, and the same with split=yes
 *     position    01234012 01234500       here, where the first two fill a window
 *     document    11111222 11111100
 */
#include "batching/batching.h"
#include "batching/stages.h"

enum { LENGTH, ON, SPLIT };

static const brim_argument_info arguments[] = {
    [LENGTH] = {
        .name = "length",
        .type = BRIM_TYPE_INTEGER,
        .flags = BRIM_ARGUMENT_FLAG_REQUIRED | BRIM_ARGUMENT_FLAG_POSITIONAL,
        .least = 1,
        .most = 16777216, /* 2^24 */
        .help = "elements of a window",
    },
    [ON] = {
        .name = "on",
        .type = BRIM_TYPE_WORD,
        .help = "the field to pack; default: the first that differs in length",
    },
    [SPLIT] = {
        .name = "split",
        .type = BRIM_TYPE_YESNO,
        .fallback = "yes",
        .help = "yes: a document that does not fit continues in the next window; no: it begins "
                "there, and only a document longer than a window is split",
    },
};

static brim_status set(const struct brim__use *use, struct brim__batching *batching) {
    struct brim__packing *pack = &batching->pack;
    if (pack->on) {
        return brim__fail(BRIM_STATUS_SYNTAX, "pack_sequences: there are two; remove one");
    }
    pack->on = true;
    pack->length = (uint64_t)brim__item(use, LENGTH)->integer;
    pack->split = brim__item(use, SPLIT)->integer != 0;
    if (brim__given(use, ON) &&
        !brim__copy_text(pack->field, sizeof pack->field, brim__item(use, ON)->text)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "pack_sequences: no field has a name as long as '%s'",
                          brim__item(use, ON)->text);
    }
    return BRIM_OK;
}

const struct brim__stage brim__stage_pack_sequences = {
    .info = {
        .name = "pack_sequences",
        .summary = "lays documents end to end in windows of one length",
        .example = "pack_sequences 1024",
        .room = BRIM_ROOM_BATCHING,
        .version = 1,
        .arguments = arguments,
        .argument_count = BRIM__COUNT(arguments),
    },
    .set_batching = set,
    .sequences = true,
};
