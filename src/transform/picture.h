/*
 * picture.h: an image on its way from its encoded bytes to its row.
 *
 * `decode` makes a field a picture. The image stages after it (resize, crops, flip, colours) do not
 * run one by one: each adds an operation to the picture. For every sample the operations first
 * choose a list of acts, by its size and its random draws. Then the acts are carried out together:
 *
 *     bytes --(decode only the crop)--> rows --(resize)--> rows --(convert)--> row
 *                                                      |
 *                  acts on pixels, where there are any: in a buffer
 *
 * Crops, flips and one resize in a run are one pass over rows, whatever their order; later stages
 * (cast, normalize, layout) are part of that pass. Only acts on pixels that need their neighbours
 * or the whole image use a buffer, and later acts start from that buffer.
 *
 * An array of uint8 pixels (HWC) becomes a picture in the same way when an image
 * stage names it.
 *
 * A picture is open until another stage needs its pixels; then it is settled: its memory is laid
 * out and its step writes to where the field goes.
 */
#ifndef BRIM_PICTURE_H
#define BRIM_PICTURE_H

#include "image/image.h"
#include "image/resize.h"
#include "transform/program.h"

#define BRIM__MAX_OPS  24 /* of one picture */
#define BRIM__MAX_ACTS 48 /* of one sample */
/* Rows in memory between two checks for a stop: few enough for the widest images, and enough for
 * the smallest that the check costs nothing. Decoders check at each row. */
#define BRIM__ROWS_UNASKED 16

/* ------------------------------------------------------- for image stages */

/* The size of a picture's images, as far as it is known when the pipeline is planned. */
struct brim__picture_extent {
    uint32_t width, height; /* at most */
    uint64_t pixels;        /* at most */
    bool fixed;             /* always exactly width x height */
};

struct brim__act;
/* Changes the pixels of an image in memory. In place: from and to are the same. scratch: as many
 * bytes as the operation requested. */
typedef void brim__act_run(const struct brim__act *act, const struct brim__image *from,
                           const struct brim__image *to, uint8_t *scratch);

enum brim__act_kind {
    BRIM__ACT_CROP,
    BRIM__ACT_RESIZE,
    BRIM__ACT_FLIP,
    BRIM__ACT_PIXELS,
    BRIM__ACT_PLAIN, /* the last one: resized to floats, without antialiasing */
};

struct brim__act {
    enum brim__act_kind kind;
    uint32_t op;            /* which operation asked for it */
    uint32_t width, height; /* of its result */
    uint32_t pixel;         /* bytes, of its result */
    double map[6];          /* a point moves to (m0 x + m1 y + m2, m3 x + m4 y + m5) */
    union {
        struct {
            uint32_t x, y;
        } crop; /* inside the image */
        struct {
            enum brim__filter filter;
        } resize;
        struct {
            bool vertical;
        } flip;
        struct {
            brim__act_run *run;
            bool in_place;
            uint8_t color[4];
            double number[8]; /* what `run` needs to know */
        } pixels;
    };
};

/* The acts of one sample; width, height and pixel are those after the last. */
struct brim__acts {
    uint32_t width, height, pixel;
    uint32_t op;
    bool mask;    /* its pixels are classes: only nearest makes sense */
    bool alpha;   /* the fourth byte is alpha */
    bool resized; /* some resize was asked for ... */
    bool exact;   /* ... of which the first left the image as it was: no decoder may shrink it */
    uint32_t count;
    struct brim__act act[BRIM__MAX_ACTS];
};

/* The random numbers of one operation for one sample. */
struct brim__picture_draws {
    uint64_t key, sample, epoch;
};
/* Uniform in [0, 1); in [low, high). `draw` numbers them. */
double brim__draw(const struct brim__picture_draws *draws, uint32_t draw);
double brim__draw_between(const struct brim__picture_draws *draws, uint32_t draw, double low,
                          double high);
/* Uniform in 0 .. bound - 1, bound > 0. */
uint64_t brim__draw_below(const struct brim__picture_draws *draws, uint32_t draw, uint64_t bound);

/* Chooses the acts for an image of acts->width x acts->height and adds them. Depends only on its
 * arguments. BRIM_STATUS_CORRUPT if the operation cannot accept such an image. */
typedef brim_status brim__op_resolve(const void *self, const struct brim__picture_draws *draws,
                                     struct brim__acts *acts);

/* These add acts. They cannot fail, because an operation adds only a few. */
void brim__act_crop(struct brim__acts *acts, uint32_t x, uint32_t y, uint32_t width,
                    uint32_t height);
void brim__act_resize(struct brim__acts *acts, uint32_t width, uint32_t height,
                      enum brim__filter filter);
void brim__act_plain(struct brim__acts *acts, uint32_t width, uint32_t height,
                     enum brim__filter filter);
void brim__act_flip(struct brim__acts *acts, bool vertical);
/* Adds an act on pixels that keeps size and pixel. The caller fills in its numbers; if it changes
 * size, pixel or map, it sets those too, and acts->width and so on. */
struct brim__act *brim__act_pixels(struct brim__acts *acts, brim__act_run *run, bool in_place);

struct brim__op {
    brim__op_resolve *resolve;
    const void *self; /* in the program's arena */
    uint64_t key;     /* for draws: brim__hash_words(program->key, seed, 0) */
    bool resizes;     /* may add a resize, to `least_width` x `least_height` or more */
    uint32_t least_width, least_height;
    enum brim__filter filter; /* of the resize */
    bool pixels;              /* may add acts on pixels: the image then lies in memory before */
    bool plain;               /* ends with a BRIM__ACT_PLAIN: no operation can follow it */
    uint64_t scratch;         /* bytes that its acts need, whatever the image */
};

struct brim__picture {
    struct brim__open_value open;       /* first: what the program knows of it */
    struct brim__picture_extent extent; /* after all operations so far */
    uint32_t channels;                  /* delivered: 1, 3 or 4 */
    uint32_t pixel;                     /* bytes */
    bool floats;                        /* the last operation gave float32, not uint8 */
    /* the rest is picture.c's */
    struct brim__op op[BRIM__MAX_OPS];
    struct brim__picture_extent before[BRIM__MAX_OPS]; /* of the image that it acts on */
    uint32_t op_count;
    struct brim__picture_source *source;
    struct brim__picture_sink *sink;
    uint32_t most_width;    /* that an image in it ever has */
    bool resized;           /* since the begin or the last buffer */
    bool to_bytes;          /* settled as bytes, to be kept whole: see picture_bytes.c */
    uint64_t resize_bytes;  /* of the hungriest resize */
    uint64_t buffer_bytes;  /* of each of two */
    uint64_t scratch_bytes; /* of the hungriest act */
    /* offsets in the scratch */
    uint64_t at_acts, at_line, at_resize, at_buffer[2], at_scratch;
};

/* The picture of a field; NULL: the field is no picture. */
static inline struct brim__picture *brim__picture_of(const struct brim__program_field *field) {
    return (struct brim__picture *)(void *)field->open;
}

/* Finds the pictures that a stage acts on: those that argument `on` names, else all (masks: masks
 * too). Arrays of uint8 HWC become pictures if they are named, or if there is no picture and they
 * are the first such field. boxes: fields of boxes (x0, y0, x1, y1, float or integer, any number)
 * may be named beside a picture; they get all acts of the operations that are added for them. NULL:
 * not allowed. */
brim_status brim__picture_on(struct brim__program *program, const struct brim__use *use,
                             size_t argument, bool masks, uint32_t *pictures, uint32_t *boxes);
/* Adds an operation to a picture of `brim__picture_on`. After it the image has this extent, pixel
 * and channels. boxes: fields that move with it. */
brim_status brim__picture_add(struct brim__program *program, uint32_t field,
                              const struct brim__op *op, const struct brim__picture_extent *extent,
                              uint32_t channels, uint32_t boxes);

/* Acts of the next operation temporarily enlarge the image: up to width x height, or to at least
 * least_width x least_height. */
void brim__picture_buffer(struct brim__picture *picture, uint32_t width, uint32_t height,
                          uint32_t least_width, uint32_t least_height);

/* ---------------------------------------- what a program asks of an open value */

/* Lays out the picture's memory and makes its step write the field's pending conversion to `to`.
 * Fails if the images have several sizes. */
brim_status brim__picture_settle(struct brim__program *program, uint32_t field,
                                 struct brim__operand to);
/* Whether image stages can still be added: no other stage has changed the field. */
bool brim__picture_is_open(const struct brim__program_field *field);
/* Fails if later stages could give other results from the picture's pixels than from the
 * picture. */
brim_status brim__picture_check_kept(const char *stage, const struct brim__program_field *field);
/* The error of a stage that needs an image of one size. */
brim_status brim__picture_unsized(const char *stage, const struct brim__program_field *field);
/* Makes field `to` an independent copy of the picture `from`. */
brim_status brim__picture_clone(struct brim__program *program, uint32_t from, uint32_t to);

/* -------------------------------------------------- for stages that keep samples */

/* Makes a picture of several sizes a field of bytes with its size and all its pixels, which the
 * stage `stage` can keep; and makes it a picture again, to which all image stages can be added as
 * before. */
struct brim__picture_bytes;
brim_status brim__picture_to_bytes(struct brim__program *program, const char *stage, uint32_t field,
                                   struct brim__picture_bytes **out);
brim_status brim__picture_from_bytes(struct brim__program *program, uint32_t field,
                                     const struct brim__picture_bytes *kept);
/* The most bytes of such a field; false: too many to be kept. */
bool brim__picture_bytes_bound(const struct brim__picture *picture, uint64_t *bytes);

/* ------------------------------------------------------ between its own files */

/* The source of the pixels: an encoded image, a dense array, or a picture kept as bytes. */
struct brim__picture_source {
    /* encoded: a span or a brim__deferred; array: its pixels; kept as bytes: a span */
    struct brim__reader bytes;
    bool encoded, deferred, from_bytes;
    /* encoded; of a picture kept as bytes, max_width, max_height and max_pixels */
    enum brim__color color;
    bool orient, fast, damaged;
    bool indexed;                   /* the limits below are those of the images that were indexed */
    uint32_t max_width, max_height; /* when turned; what the index knows, or any */
    uint64_t max_pixels, allowed_pixels; /* planned for; what the user allows */
    uint64_t most_work;                  /* of one image: scans times pixels */
    uint64_t memory, outside;            /* most that an image may need */
    uint64_t at_window, at_memory;
    /* array of uint8, row-major; of a picture kept as bytes, channels */
    uint32_t width, height, channels;
    const char *keeper; /* of a picture kept as bytes: the stage that has them */
};

brim_status brim__picture_new(struct brim__program *program, uint32_t field,
                              const struct brim__picture_source *source,
                              const struct brim__picture_extent *extent, uint32_t channels,
                              bool mask);
brim_status brim__picture_run(const struct brim__step *step, const struct brim__frame *frame);

/* Converts rows of pixels to the field: see picture_sink.c. */
struct brim__picture_sink;
brim_status brim__picture_sink_new(struct brim__program *program,
                                   const struct brim__picture *picture,
                                   const struct brim__conversion *conversion,
                                   struct brim__picture_sink **sink);
struct brim__sinking {
    struct brim__stop *stop;
    const struct brim__picture_sink *sink;
    uint8_t *scratch; /* of the frame */
    uint8_t *to;
    uint32_t width; /* of this sample's rows */
};
brim_status brim__picture_sink_row(void *user, const uint8_t *row, uint32_t y);
void brim__picture_sink_end(const struct brim__sinking *sinking);
/* Instead of rows and end, of a picture of floats. */
void brim__picture_sink_plain(const struct brim__sinking *sinking, const struct brim__image *image,
                              enum brim__filter filter);

/* picture_bytes.c: writes the size of an image that is kept as bytes, and gives the place of its
 * rows. */
brim_status brim__picture_bytes_begin(const struct brim__picture *picture,
                                      const struct brim__acts *acts, const struct brim__operand *to,
                                      const struct brim__frame *frame,
                                      struct brim__sinking *sinking);
/* Reads such bytes: the image's size and its pixels. */
brim_status brim__picture_bytes_read(const struct brim__picture_source *source,
                                     const struct brim__span *span, uint32_t *width,
                                     uint32_t *height, const uint8_t **pixels);

/* boxes.c: a step after the picture's that moves the boxes of `field` as the picture's operation
 * `op` moves the image. */
brim_status brim__boxes_follow(struct brim__program *program, struct brim__picture *picture,
                               uint32_t op, uint32_t field);
bool brim__boxes_are(const struct brim__program_field *field);

#endif
