/*
 * libraries.c: the versions of the decoders. Two versions may differ in a bit of a pixel, and a
 * cache of pixels must know.
 */
#include "image/decode.h"

#include <stdio.h>

#include <jpeglib.h>
#include <spng.h>
#include <webp/decode.h>

uint64_t brim__image_libraries(void) {
    const char *png = spng_version_string();
    /* libjpeg cannot be asked when running: the one that was compiled with */
    return brim__hash(png, strlen(png),
                      brim__hash_words(LIBJPEG_TURBO_VERSION_NUMBER,
                                       (uint64_t)WebPGetDecoderVersion(), JPEG_LIB_VERSION));
}
