/*
 * png_fuzz.c: the bytes of a PNG. Checksums would stop nearly every input at once;
 * half of the decodings bear wrong ones.
 */
#include "fuzz_image.h"

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    fuzz_image_begin();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    fuzz_image(data, bytes);
    return 0;
}
