/*
 * utf8.h: checks whether bytes are UTF-8.
 */
#ifndef BRIM_UTF8_H
#define BRIM_UTF8_H

#include "base/base.h"

/* How many bytes at the beginning are whole characters of UTF-8 (RFC 3629: no surrogates, no
 * overlong forms, none above U+10FFFF): `count` if all are, else the index of the first wrong
 * byte. */
size_t brim__utf8_valid(const uint8_t *bytes, size_t count);

#endif
