/*
 * libraries.c: the versions of the decoders. Pixels of two versions may differ in a bit, so a cache
 * of pixels depends on the versions.
 */
#include "image/decode.h"

#include <stdio.h>

#include <jpeglib.h>
#include <spng.h>
#include <webp/decode.h>

uint64_t brim__image_libraries(void) {
    const char *png = spng_version_string();
    /* libjpeg has no call for its version, so this is the version at compile time */
    return brim__hash(png, strlen(png),
                      brim__hash_words(LIBJPEG_TURBO_VERSION_NUMBER,
                                       (uint64_t)WebPGetDecoderVersion(), JPEG_LIB_VERSION));
}
