/*
 * contact.c: the layout of a contact sheet, and its drawing.
 *
 * Images keep their pixels; those that are narrower than a few words are enlarged
 * by a whole number. All cells have one size. Letters are large where every label
 * can be read in full, else small.
 */
#include "contact.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MOST_COLUMNS 8   /* unless the caller says so */
#define SMALL        96  /* narrower images are enlarged to at least this */
#define TALLEST      512 /* but not to more than this */
#define LARGEST_SIDE 65536
#define MARGIN       10
#define GAP          10 /* between cells */
#define PICTURE_GAP  4
#define TEXT_GAP     4
#define LARGE_TEXT   2
#define LABEL_LINES  2

#define PAPER 0xf7f7f5u
#define FRAME 0xc9c9c5u
#define INK   0x1c1c1cu
#define ASIDE 0x8a8a86u

/* ------------------------------------------------------------------- layout */

static uint32_t picture_width(const struct picture *picture) {
    return picture->scale * picture->image.width + 2; /* with its frame */
}

static uint32_t picture_height(const struct picture *picture) {
    return picture->scale * picture->image.height + 2;
}

static uint32_t cell_height(const struct contact *contact) {
    const uint32_t lines =
        contact->label_lines + contact->number_apart + (contact->picture_count > 1);
    return contact->picture_height + TEXT_GAP + lines * line_height(contact->text_scale);
}

uint64_t contact_measure(struct contact *contact) {
    for (uint32_t i = 0; i < contact->picture_count; i++) {
        struct picture *picture = &contact->pictures[i];
        const struct image *image = &picture->image;
        if (image->width > LARGEST_SIDE || image->height > LARGEST_SIDE) {
            return UINT64_MAX;
        }
        picture->scale = image->width < SMALL ? (SMALL + image->width - 1) / image->width : 1;
        while (picture->scale > 1 && picture->scale * image->height > TALLEST) {
            picture->scale--;
        }
        const uint32_t height = picture_height(picture);
        contact->cell_width += picture_width(picture) + (i > 0 ? PICTURE_GAP : 0);
        contact->picture_height =
            height > contact->picture_height ? height : contact->picture_height;
    }
    contact->text_scale = LARGE_TEXT;
    contact->label_lines = LABEL_LINES;
    contact->number_apart = true;
    return (uint64_t)(contact->cell_width + GAP) * (cell_height(contact) + GAP) * SHEET_PIXEL;
}

static size_t letters_of(const struct contact *contact) {
    return contact->cell_width / letter_width(contact->text_scale);
}

static int number_text(uint64_t number, char text[32]) {
    return snprintf(text, 32, "#%" PRIu64, number);
}

/* Finds the lines that the labels take, and whether the numbers fit beside them. Whether all can
 * be read in full. */
static bool words_measure(struct contact *contact) {
    bool whole = true;
    const size_t letters = letters_of(contact);
    contact->label_lines = 0;
    contact->number_apart = false;
    for (uint64_t i = 0; i < contact->count; i++) {
        char lines[LABEL_LINES][LINE_BYTES] = { "" }, number[32];
        bool fits;
        const size_t count = lines_break(contact->captions[i], letters, LABEL_LINES, lines, &fits);
        const size_t digits = (size_t)number_text(contact->numbers[i], number);
        const size_t beside = count > 0 ? strlen(lines[0]) + 1 : 0;
        whole = whole && fits && digits <= letters;
        contact->number_apart |= count == 0 || beside + digits > letters;
        contact->label_lines =
            count > contact->label_lines ? (uint32_t)count : contact->label_lines;
    }
    return whole;
}

/* About square, with few cells left empty. */
static uint32_t columns_choose(const struct contact *contact) {
    uint32_t best = 1;
    double least = INFINITY;
    for (uint32_t columns = 1; columns <= MOST_COLUMNS && columns <= contact->count; columns++) {
        const double rows = ceil((double)contact->count / columns);
        const double shape = columns * (double)contact->cell_width / (rows * contact->cell_height);
        const double waste = rows * columns / (double)contact->count;
        const double badness = fmax(shape, 1 / shape) * waste;
        if (badness < least) {
            least = badness;
            best = columns;
        }
    }
    return best;
}

static void layout(struct contact *contact, uint32_t columns) {
    contact->text_scale = LARGE_TEXT;
    if (!words_measure(contact)) {
        contact->text_scale = 1;
        (void)words_measure(contact);
    }
    contact->cell_height = cell_height(contact);
    contact->columns = columns > 0 ? columns : columns_choose(contact);
    if (contact->columns > contact->count) {
        contact->columns = (uint32_t)contact->count;
    }
}

/* ------------------------------------------------------------------ drawing */

static void draw_picture(struct sheet *sheet, const struct picture *picture, uint64_t sample,
                         uint32_t x, uint32_t y) {
    const struct image *image = &picture->image;
    const uint32_t scale = picture->scale;
    sheet_fill(sheet, x, y, picture_width(picture), picture_height(picture), FRAME);
    for (uint32_t row = 0; row < image->height; row++) {
        for (uint32_t column = 0; column < image->width; column++) {
            sheet_fill(sheet, x + 1 + column * scale, y + 1 + row * scale, scale, scale,
                       look_colour(&picture->look, image, picture->copies[sample], column, row));
        }
    }
}

/* The names of the fields, each under its picture. */
static void draw_names(const struct contact *contact, struct sheet *sheet, uint32_t x, uint32_t y) {
    for (uint32_t i = 0; i < contact->picture_count; i++) {
        const struct picture *picture = &contact->pictures[i];
        const size_t letters = picture_width(picture) / letter_width(contact->text_scale);
        char line[1][LINE_BYTES];
        bool fits;
        (void)lines_break(picture->field, letters, 1, line, &fits);
        sheet_text(sheet, x, y, contact->text_scale, ASIDE, line[0]);
        x += picture_width(picture) + PICTURE_GAP;
    }
}

static void draw_label(const struct contact *contact, struct sheet *sheet, uint64_t sample,
                       uint32_t x, uint32_t y) {
    const uint32_t scale = contact->text_scale, height = line_height(scale);
    char lines[LABEL_LINES][LINE_BYTES], number[32];
    bool fits;
    const uint32_t digits = (uint32_t)number_text(contact->numbers[sample], number);
    const size_t count = lines_break(contact->captions[sample], letters_of(contact),
                                     contact->label_lines, lines, &fits);
    for (uint32_t i = 0; i < count; i++) {
        sheet_text(sheet, x, y + i * height, scale, INK, lines[i]);
    }
    if (contact->number_apart) {
        sheet_text(sheet, x, y + (uint32_t)count * height, scale, ASIDE, number);
    } else { /* to the right; a letter's own gap hangs over */
        sheet_text(sheet, x + contact->cell_width + scale - digits * letter_width(scale), y, scale,
                   ASIDE, number);
    }
}

static void draw_cell(const struct contact *contact, struct sheet *sheet, uint64_t sample,
                      uint32_t x, uint32_t y) {
    uint32_t left = x, below = y + contact->picture_height + TEXT_GAP;
    for (uint32_t i = 0; i < contact->picture_count; i++) {
        draw_picture(sheet, &contact->pictures[i], sample, left, y);
        left += picture_width(&contact->pictures[i]) + PICTURE_GAP;
    }
    if (contact->picture_count > 1) {
        draw_names(contact, sheet, x, below);
        below += line_height(contact->text_scale);
    }
    draw_label(contact, sheet, sample, x, below);
}

void contact_draw(struct contact *contact, uint32_t columns, struct sheet *sheet) {
    layout(contact, columns);
    const uint32_t across = contact->cell_width + GAP, down = contact->cell_height + GAP;
    const uint64_t rows = (contact->count + contact->columns - 1) / contact->columns;
    sheet_init(sheet, 2 * MARGIN - GAP + contact->columns * across,
               2 * MARGIN - GAP + (uint32_t)rows * down, PAPER);
    for (uint64_t i = 0; i < contact->count; i++) {
        draw_cell(contact, sheet, i, MARGIN + (uint32_t)(i % contact->columns) * across,
                  MARGIN + (uint32_t)(i / contact->columns) * down);
    }
}
