/*
 * digest.h: one hash over all batches of a run, in order.
 *
 * Equal digests mean the same batches: names, types, shapes, elements, sample
 * numbers and validity. How the bytes lie in memory does not enter.
 */
#ifndef CLI_DIGEST_H
#define CLI_DIGEST_H

#include <brim.h>

#define DIGEST_TEXT 33

struct digest;

struct digest *digest_new(void);
void digest_free(struct digest *digest);
/* A batch on a device is read back, which may fail. */
brim_status digest_add(struct digest *digest, const brim_batch *batch);
/* 32 hex digits. More may be added afterwards. */
const char *digest_text(const struct digest *digest, char text[DIGEST_TEXT]);

#endif
