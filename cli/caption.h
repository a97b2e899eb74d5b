/*
 * caption.h: the text below a sample of a sheet: its label in words.
 */
#ifndef CLI_CAPTION_H
#define CLI_CAPTION_H

#include "value.h"

#include <brim.h>
#include <stdbool.h>

#define CAPTION_BYTES 192

/* Whether a field can be put into words: a number, a vector of them, or text. */
bool caption_able(const brim_plan_field *field);
/* A class by its name where the plan knows one, else its number; a vector of shares by the
 * largest two, "cat 0.7\ndog 0.3"; text as it is. */
void caption_write(const brim_plan *plan, const char *field, const struct value *value,
                   char text[CAPTION_BYTES]);

#endif
