/*
 * image_data.c: images written by the formats' own libraries.
 */
#include "support/image_data.h"

#include <spng.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <webp/encode.h>

#include <jpeglib.h>

#define SAME_WIDTH  64
#define SAME_HEIGHT 48

void draw_pixels(uint8_t *pixels, uint32_t width, uint32_t height, uint64_t seed) {
    uint64_t random = seed * 2 + 1;
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            for (uint32_t c = 0; c < 3; c++) {
                *pixels++ =
                    (uint8_t)(x * (c + 2) + y * (4 - c) + (next_random(&random) >> 33) % 40);
            }
        }
    }
}

void make_folder(const char *name) {
    assert_int_equal(mkdir(in_directory(name).text, 0700), 0);
}

void write_png(const char *name, const uint8_t *pixels, uint32_t width, uint32_t height) {
    spng_ctx *png = spng_ctx_new(SPNG_CTX_ENCODER);
    struct spng_ihdr header = {
        .width = width, .height = height, .bit_depth = 8, .color_type = SPNG_COLOR_TYPE_TRUECOLOR
    };
    size_t bytes = 0;
    int error = 0;
    spng_set_option(png, SPNG_ENCODE_TO_BUFFER, 1);
    spng_set_ihdr(png, &header);
    assert_int_equal(spng_encode_image(png, pixels, (size_t)width * height * 3, SPNG_FMT_PNG,
                                       SPNG_ENCODE_FINALIZE),
                     0);
    void *data = spng_get_png_buffer(png, &bytes, &error);
    assert_int_equal(error, 0);
    write_file(name, data, bytes);
    free(data);
    spng_ctx_free(png);
}

void write_jpeg(const char *name, const uint8_t *pixels, uint32_t width, uint32_t height,
                bool progressive) {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned char *data = NULL;
    unsigned long bytes = 0;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &data, &bytes);
    jpeg.image_width = width;
    jpeg.image_height = height;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    if (progressive) {
        jpeg_simple_progression(&jpeg);
    }
    jpeg_start_compress(&jpeg, TRUE);
    for (uint32_t y = 0; y < height; y++) {
        uint8_t row[3 * 1024];
        assert_true(width <= 1024);
        memcpy(row, pixels + (size_t)y * width * 3, (size_t)width * 3);
        JSAMPROW rows[] = { row };
        jpeg_write_scanlines(&jpeg, rows, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    write_file(name, data, bytes);
    free(data);
}

void write_webp(const char *name, const uint8_t *pixels, uint32_t width, uint32_t height) {
    uint8_t *data = NULL;
    const size_t bytes = WebPEncodeRGB(pixels, (int)width, (int)height, (int)width * 3, 80, &data);
    assert_true(bytes > 0);
    write_file(name, data, bytes);
    WebPFree(data);
}

static void write_pets(void) {
    static uint8_t pixels[200 * 200 * 3];
    make_folder("pets");
    make_folder("pets/cat");
    make_folder("pets/dog");
    for (uint32_t i = 0; i < 8; i++) {
        const char *class_name = i < 4 ? "cat" : "dog";
        const uint32_t width = 40 + 9 * i, height = 30 + 13 * (7 - i);
        char name[64];
        draw_pixels(pixels, width, height, i + 1);
        switch (i % 4) {
        case 0:
        case 1:
            snprintf(name, sizeof name, "pets/%s/%u.jpg", class_name, i);
            write_jpeg(name, pixels, width, height, i % 4 == 1);
            break;
        case 2:
            snprintf(name, sizeof name, "pets/%s/%u.png", class_name, i);
            write_png(name, pixels, width, height);
            break;
        default:
            snprintf(name, sizeof name, "pets/%s/%u.webp", class_name, i);
            write_webp(name, pixels, width, height);
            break;
        }
    }
    static const char list[] = "path,label\npets/cat/0.jpg,3\npets/dog/6.png,4\n";
    write_file("pets.csv", list, sizeof list - 1);
}

static void write_same(void) {
    static uint8_t pixels[2][SAME_HEIGHT][SAME_WIDTH][3];
    static const int64_t shape[] = { 2, SAME_HEIGHT, SAME_WIDTH, 3 };
    make_folder("same");
    for (uint32_t i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "same/%u.png", i);
        draw_pixels(&pixels[i][0][0][0], SAME_WIDTH, SAME_HEIGHT, i + 50);
        write_png(name, &pixels[i][0][0][0], SAME_WIDTH, SAME_HEIGHT);
    }
    write_npy("pets.npy", BRIM_DTYPE_U8, 4, shape, pixels);
}

int begin_image_tests(void **state) {
    const int failed = begin_tests_in_memory(state);
    if (failed == 0) {
        write_pets();
        write_same();
    }
    return failed;
}
