/*
 * sheet.c: draws boxes and words, and writes PNG files through libspng.
 *
 * Rows go to the encoder one by one, so that only the pixels and the memory of the compression are
 * held.
 */
#include "sheet.h"

#include "font.h"
#include "output.h"

#include <spng.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void sheet_init(struct sheet *sheet, uint32_t width, uint32_t height, uint32_t colour) {
    *sheet = (struct sheet){ .width = width, .height = height };
    sheet->pixels = take((size_t)width * height, SHEET_PIXEL);
    sheet_fill(sheet, 0, 0, width, height, colour);
}

void sheet_free(struct sheet *sheet) {
    free(sheet->pixels);
    sheet->pixels = NULL;
}

void sheet_fill(struct sheet *sheet, uint32_t x, uint32_t y, uint32_t width, uint32_t height,
                uint32_t colour) {
    const uint32_t right = x + width < sheet->width ? x + width : sheet->width;
    const uint32_t below = y + height < sheet->height ? y + height : sheet->height;
    for (uint32_t row = y; row < below; row++) {
        unsigned char *pixel = sheet->pixels + ((size_t)row * sheet->width + x) * SHEET_PIXEL;
        for (uint32_t column = x; column < right; column++, pixel += SHEET_PIXEL) {
            pixel[0] = (unsigned char)(colour >> 16);
            pixel[1] = (unsigned char)(colour >> 8);
            pixel[2] = (unsigned char)colour;
        }
    }
}

/* -------------------------------------------------------------------- words */

uint32_t letter_width(uint32_t scale) {
    return scale * FONT_ADVANCE;
}

uint32_t line_height(uint32_t scale) {
    return scale * (FONT_HEIGHT + 1);
}

static bool is_letter_begin(char c) {
    return ((unsigned char)c & 0xc0) != 0x80;
}

static void draw_letter(struct sheet *sheet, uint32_t x, uint32_t y, uint32_t scale,
                        uint32_t colour, char letter) {
    const bool known = letter >= FONT_FIRST && letter < FONT_OTHER;
    const unsigned place = (unsigned)(known ? letter : FONT_OTHER) - FONT_FIRST;
    const char *const *rows = font[place / FONT_BLOCK];
    const size_t first = (size_t)(place % FONT_BLOCK) * FONT_ADVANCE;
    for (uint32_t row = 0; row < FONT_HEIGHT; row++) {
        for (uint32_t column = 0; column < FONT_WIDTH; column++) {
            if (rows[row][first + column] == '#') {
                sheet_fill(sheet, x + column * scale, y + row * scale, scale, scale, colour);
            }
        }
    }
}

void sheet_text(struct sheet *sheet, uint32_t x, uint32_t y, uint32_t scale, uint32_t colour,
                const char *text) {
    for (; *text != '\0'; text++) {
        if (is_letter_begin(*text)) {
            draw_letter(sheet, x, y, scale, colour, *text);
            x += letter_width(scale);
        }
    }
}

/* Bytes of the first `letters` letters. */
static size_t bytes_of(const char *text, size_t letters) {
    size_t bytes = 0;
    for (; text[bytes] != '\0'; bytes++) {
        if (is_letter_begin(text[bytes]) && letters-- == 0) {
            break;
        }
    }
    return bytes;
}

/* Where a line of at most `bytes` ends if the text is longer; 0: in no good place. */
static size_t break_before(const char *text, size_t bytes) {
    while (bytes > 0 && text[bytes] != ' ' && text[bytes - 1] != '_' && text[bytes - 1] != '-') {
        bytes--;
    }
    return bytes;
}

size_t lines_break(const char *text, size_t letters, size_t most, char (*lines)[LINE_BYTES],
                   bool *whole) {
    static const char dots[] = "..";
    size_t count = 0;
    *whole = true;
    letters = letters > sizeof dots ? letters : sizeof dots;
    letters = letters < LINE_BYTES / 4 ? letters : LINE_BYTES / 4 - 1; /* of UTF-8 */
    while (*text != '\0' && count < most) {
        const size_t room = bytes_of(text, letters), wanted = strcspn(text, "\n");
        size_t bytes = wanted < room ? wanted : room;
        const bool more = text[bytes] != '\0', cut = more && count + 1 == most;
        if (cut) {
            const size_t before_dots = bytes_of(text, letters - strlen(dots));
            bytes = bytes < before_dots ? bytes : before_dots;
        } else if (more && text[bytes] != '\n') {
            const size_t end = break_before(text, bytes);
            *whole = *whole && end > 0;
            bytes = end > 0 ? end : bytes;
        }
        *whole = *whole && !cut;
        snprintf(lines[count++], LINE_BYTES, "%.*s%s", (int)bytes, text, cut ? dots : "");
        text += bytes;
        text += strspn(text, " \n");
    }
    return count;
}

/* ---------------------------------------------------------------------- PNG */

const char *sheet_write(const struct sheet *sheet, FILE *file) {
    const size_t row_bytes = (size_t)sheet->width * SHEET_PIXEL;
    struct spng_ihdr header = {
        .width = sheet->width,
        .height = sheet->height,
        .bit_depth = 8,
        .color_type = SPNG_COLOR_TYPE_TRUECOLOR,
    };
    spng_ctx *context = spng_ctx_new(SPNG_CTX_ENCODER);
    if (context == NULL) {
        return "no memory for the encoder";
    }
    int code = spng_set_png_file(context, file);
    if (code == 0) {
        code = spng_set_ihdr(context, &header);
    }
    if (code == 0) {
        code = spng_encode_image(context, NULL, 0, SPNG_FMT_PNG,
                                 SPNG_ENCODE_PROGRESSIVE | SPNG_ENCODE_FINALIZE);
    }
    for (uint32_t row = 0; row < sheet->height && code == 0; row++) {
        code = spng_encode_row(context, sheet->pixels + row * row_bytes, row_bytes);
    }
    spng_ctx_free(context);
    return code == 0 || code == SPNG_EOI ? NULL : spng_strerror(code);
}
