/*
 * cache_decode.c: a cache after decoding: from the second epoch on no image is decoded.
 *
 * It draws JPEG files and runs over them three times. Random stages come after the cache, so that
 * every epoch has other crops and flips. The statistics count the work of each stage: reading and
 * decoding do nothing after the first epoch, the other stages go on.
 */
#include <brim.h>

#include <ftw.h>
#include <stdio.h> /* before jpeglib.h, which uses FILE */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jpeglib.h>

enum { IMAGES = 120, WIDTH = 96, HEIGHT = 80, EPOCHS = 3 };

/* Ends the program if a call failed. */
static void must(brim_status status) {
    if (status != BRIM_OK) {
        fprintf(stderr, "cache_decode: %s: %s\n", brim_status_name(status), brim_detail());
        exit(1);
    }
}

static void must_hold(int claim, const char *otherwise) {
    if (!claim) {
        fprintf(stderr, "cache_decode: %s\n", otherwise);
        exit(1);
    }
}

/* Stripes whose colour and slant are the image's own. */
static void draw(const char *path, int number) {
    struct jpeg_compress_struct compress;
    struct jpeg_error_mgr errors;
    FILE *file = fopen(path, "wb");
    must_hold(file != NULL, "cannot write an image");
    compress.err = jpeg_std_error(&errors);
    jpeg_create_compress(&compress);
    jpeg_stdio_dest(&compress, file);
    compress.image_width = WIDTH;
    compress.image_height = HEIGHT;
    compress.input_components = 3;
    compress.in_color_space = JCS_RGB;
    jpeg_set_defaults(&compress);
    jpeg_start_compress(&compress, TRUE);
    for (int y = 0; y < HEIGHT; y++) {
        JSAMPLE row[WIDTH * 3];
        JSAMPROW line = row;
        for (int x = 0; x < WIDTH; x++) {
            row[x * 3] = (JSAMPLE)(x * 2 + number);
            row[x * 3 + 1] = (JSAMPLE)(y * 3);
            row[x * 3 + 2] = (JSAMPLE)((x + y * (number % 5)) % 16 < 8 ? 220 : 40);
        }
        jpeg_write_scanlines(&compress, &line, 1);
    }
    jpeg_finish_compress(&compress);
    jpeg_destroy_compress(&compress);
    must_hold(fclose(file) == 0, "cannot write an image");
}

/* Samples that the stage of that name has had so far. */
static uint64_t samples_of(brim_loader *loader, const char *name) {
    brim_stage_stats stage = BRIM_STAGE_STATS_INIT;
    for (size_t i = 0; brim_loader_read_stage_stats(loader, i, &stage) == BRIM_OK; i++) {
        if (strcmp(stage.name, name) == 0) {
            return stage.samples;
        }
    }
    must_hold(0, "there is no such stage");
    return 0;
}

static void run(const char *folder) {
    char text[256];
    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
    limits.host_bytes = 16 << 20;
    limits.threads = 0;        /* no worker runs ahead: the counts below are exact */
    limits.index_dir = folder; /* for the listing of the images */
    snprintf(text, sizeof text,
             "folder %s | shuffle seed=7 | decode | resize 64 64 | cache memory"
             " | random_crop 48 | flip | normalize unit | batch 24",
             folder);
    must(brim_runtime_new(&limits, &runtime));
    must(brim_pipeline_parse(text, &pipeline));
    must(brim_loader_open(runtime, pipeline, NULL, &loader));
    uint64_t decoded = 0, cropped = 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        brim_batch *batch;
        brim_status status;
        while ((status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
            brim_batch_release(batch);
        }
        must(status == BRIM_STATUS_END ? BRIM_OK : status);
        const uint64_t decodes = samples_of(loader, "decode") - decoded;
        const uint64_t crops = samples_of(loader, "random_crop") - cropped;
        printf("epoch %d: %3d images decoded, %3d cropped\n", epoch, (int)decodes, (int)crops);
        must_hold(decodes == (epoch == 0 ? IMAGES : 0), "an image was decoded again");
        must_hold(crops == IMAGES, "an image was not cropped");
        decoded += decodes;
        cropped += crops;
    }
    brim_cache_stats cache = BRIM_CACHE_STATS_INIT;
    must(brim_loader_read_cache_stats(loader, 0, &cache));
    printf("in the cache: %d images of 64 x 64, %.1f MiB\n", (int)cache.filled,
           (double)cache.bytes / (1 << 20));
    brim_loader_close(loader);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *walk) {
    (void)about, (void)kind, (void)walk;
    return remove(path);
}

int main(void) {
    char folder[] = "/tmp/cache_decode.XXXXXX", path[64];
    must_hold(mkdtemp(folder) != NULL, "cannot make a temporary folder");
    for (int i = 0; i < IMAGES; i++) {
        snprintf(path, sizeof path, "%s/%03d.jpg", folder, i);
        draw(path, i);
    }
    run(folder);
    must_hold(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0, "cannot remove the images");
    return 0;
}
