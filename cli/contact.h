/*
 * contact.h: samples laid out as a contact sheet.
 *
 *     +--------+--------+      a cell for each sample: its images beside each
 *     | image  | image  |      other, the fields' names if there are several,
 *     | cat #17| dog  #3|      its label in one or two lines, and its number
 *     +--------+--------+
 */
#ifndef CLI_CONTACT_H
#define CLI_CONTACT_H

#include "caption.h"
#include "look.h"
#include "sheet.h"

#define CONTACT_PICTURES 8 /* beside each other */

/* One field of all samples. */
struct picture {
    const char *field;
    struct image image;
    struct look look;
    uint32_t scale;         /* how many times it is enlarged */
    unsigned char **copies; /* of each sample */
};

/* What it points to is the caller's. */
struct contact {
    struct picture pictures[CONTACT_PICTURES];
    uint32_t picture_count;
    uint64_t count;                  /* samples */
    uint64_t *numbers;               /* of each */
    char (*captions)[CAPTION_BYTES]; /* of each; "": it has no label */
    uint32_t columns;
    /* of the layout, in pixels */
    uint32_t cell_width, cell_height, picture_height;
    uint32_t text_scale, label_lines;
    bool number_apart; /* on a line of its own */
};

/* Measures the pictures. Bytes of the sheet that a sample takes at most; UINT64_MAX if its images
 * alone are too large for any. */
uint64_t contact_measure(struct contact *contact);
/* Lays out and draws a sheet; `columns` 0: about square. sheet_free afterwards. */
void contact_draw(struct contact *contact, uint32_t columns, struct sheet *sheet);

#endif
