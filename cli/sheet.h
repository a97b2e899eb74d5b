/*
 * sheet.h: a picture in memory to draw boxes and words on, written as PNG.
 */
#ifndef CLI_SHEET_H
#define CLI_SHEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SHEET_PIXEL 3 /* bytes: red, green, blue */

struct sheet {
    uint32_t width, height;
    unsigned char *pixels; /* rows from the top, without gaps */
};

/* All of one colour, 0xrrggbb. sheet_free returns its memory. */
void sheet_init(struct sheet *sheet, uint32_t width, uint32_t height, uint32_t colour);
void sheet_free(struct sheet *sheet);

/* A box that is filled. What lies outside of the sheet is left out. */
void sheet_fill(struct sheet *sheet, uint32_t x, uint32_t y, uint32_t width, uint32_t height,
                uint32_t colour);

/* Sizes of words in letters `scale` times as large as the font's. */
uint32_t letter_width(uint32_t scale);
uint32_t line_height(uint32_t scale);
/* One line of UTF-8; letters that the font does not have are boxes. */
void sheet_text(struct sheet *sheet, uint32_t x, uint32_t y, uint32_t scale, uint32_t colour,
                const char *text);

#define LINE_BYTES 256
/* Breaks text into at most `most` lines of `letters`: at each '\n', and where a line is too long at
 * a blank, '_' or '-' if it can be; how many it took. What is cut off at the end is shown by dots. *whole: nothing is, and no
 * word is broken. */
size_t lines_break(const char *text, size_t letters, size_t most, char (*lines)[LINE_BYTES],
                   bool *whole);

/* Writes the PNG. NULL, or why it could not. */
const char *sheet_write(const struct sheet *sheet, FILE *file);

#endif
