/*
 * inflate.h: deflated bytes of a file, inflated in order into memory that the
 * caller has sized.
 *
 *     begin (file, range, form) ─► read n bytes ─► read ... ─► end
 *
 * Only as many bytes as were requested are inflated, so that a file that inflates to a thousand
 * times its size costs what its header promised and the budget held, not more. If the data is bad,
 * the failure is BRIM_STATUS_CORRUPT and names the byte of the file up to which it was consumed.
 *
 * One inflater does one range after the other: headers when a source is opened, whole files when
 * the source is loaded. Its memory (some 60 KiB, including zlib's) comes from the opening's arena
 * and stays there. If it were freed, it would not be in the plan's minimum, and a loader could be
 * refused in exactly the memory that its plan had called enough.
 */
#ifndef BRIM_INFLATE_H
#define BRIM_INFLATE_H

#include "source/source.h"

/* Deflate puts out at most this many bytes for each byte that it takes in. */
#define BRIM__INFLATE_RATIO 1032

enum brim__deflate_form {
    BRIM__DEFLATE_RAW,  /* without checksum; see brim__inflate_crc */
    BRIM__DEFLATE_ZLIB, /* zlib's header and Adler-32, checked */
    BRIM__DEFLATE_GZIP, /* one or several members, each with its CRC-32, checked */
};

struct brim__inflater;

brim_status brim__inflater_new(const struct brim__opening *opening,
                               struct brim__inflater **inflater);
/* Uses the progress function of another opening, of the same arena, from now on. */
void brim__inflater_use(struct brim__inflater *inflater, const struct brim__opening *opening);
/* Begins to inflate the range [begin, begin + bytes) of the file, which must stay open
 * meanwhile. */
brim_status brim__inflate_begin(struct brim__inflater *inflater, enum brim__deflate_form form,
                                const struct brim__file *file, uint64_t begin, uint64_t bytes);
/* The next `bytes` bytes; BRIM_STATUS_CORRUPT if there are fewer. */
brim_status brim__inflate_read(struct brim__inflater *inflater, void *to, uint64_t bytes);
/* Checks that the data ends here: there is no more output, the checksums are right, and no bytes of
 * the range are left. */
brim_status brim__inflate_end(struct brim__inflater *inflater);
/* Bytes put out since brim__inflate_begin, and their CRC-32. */
uint64_t brim__inflate_total(const struct brim__inflater *inflater);
uint32_t brim__inflate_crc(const struct brim__inflater *inflater);

#endif
