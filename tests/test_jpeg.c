/*
 * test_jpeg.c: JPEG against libjpeg used plainly: regions have the bits of the whole
 * image, memory stays below what the header promised, and a file gives what memory gives.
 */
#include "jpeg_util.h"

/* -------------------------------------------------------------- reference */

static uint8_t cmyk_channel(uint32_t ink, uint32_t key) {
    const uint32_t lost = (2 * (255 - ink) * key + 255) / 510; /* rounded to the nearest */
    return (uint8_t)(key - lost);
}

/* With nothing but what libjpeg's manual shows. */
static struct picture decode_plainly(const struct bytes *file, enum brim__color color,
                                     uint32_t scale, bool cheap) {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct picture picture = { .pixel = brim__color_pixel(color) };
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, file->data, file->count);
    jpeg_read_header(&jpeg, TRUE);
    jpeg.scale_denom = scale;
    jpeg.do_fancy_upsampling = !cheap;
    jpeg.out_color_space = jpeg.num_components == 4   ? JCS_CMYK
                           : jpeg.num_components == 1 ? JCS_GRAYSCALE
                                                      : JCS_RGB;
    jpeg_start_decompress(&jpeg);
    picture.width = jpeg.output_width;
    picture.height = jpeg.output_height;
    picture.data = malloc((size_t)picture.width * picture.height * picture.pixel);
    uint8_t *row = malloc((size_t)picture.width * 4);
    assert_true(picture.data != NULL && row != NULL);
    for (uint32_t y = 0; y < picture.height; y++) {
        jpeg_read_scanlines(&jpeg, &row, 1);
        for (uint32_t x = 0; x < picture.width; x++) {
            const uint8_t *p = row + x * (uint32_t)jpeg.num_components;
            uint8_t rgb[4] = { p[0], p[0], p[0], 255 };
            for (uint32_t c = 0; c < 3 && jpeg.num_components > 1; c++) {
                rgb[c] = jpeg.num_components == 4 ? cmyk_channel(p[c], p[3]) : p[c];
            }
            uint8_t *to = picture.data + ((size_t)y * picture.width + x) * picture.pixel;
            if (picture.pixel == 4) {
                memcpy(to, rgb, 4);
            } else {
                *to = jpeg.num_components == 1 ? p[0] : brim__luma(rgb[0], rgb[1], rgb[2]);
            }
        }
    }
    free(row);
    jpeg_finish_decompress(&jpeg);
    jpeg_destroy_decompress(&jpeg);
    return picture;
}

/* ---------------------------------------------------------------- regions */

static const char *describe(char text[256], const struct spec *spec,
                            const struct brim__decoding *decoding) {
    (void)snprintf(text, 256,
                   "%u x %u, %d components %dx%d %dx%d %dx%d%s%s%s restart %u: region %u,%u %u x "
                   "%u, 1/%u%s, colour %d",
                   spec->width, spec->height, spec->components, spec->h[0], spec->v[0], spec->h[1],
                   spec->v[1], spec->h[2], spec->v[2], spec->progressive ? " progressive" : "",
                   spec->dc_only ? " DC only" : "", spec->apart ? " apart" : "", spec->restart,
                   decoding->x, decoding->y, decoding->width, decoding->height, decoding->scale,
                   decoding->cheap ? " cheap" : "", (int)decoding->color);
    return text;
}

/* Regions of one file in one colour, at one scale. */
static void check_regions(const struct spec *spec, const struct bytes *file, enum brim__color color,
                          uint32_t scale, bool cheap, unsigned rounds, uint64_t *random) {
    struct brim__input input;
    struct brim__image_info info;
    struct picture picture = decode_plainly(file, color, scale, cheap);
    char text[256];
    brim__input_memory(&input, file->data, file->count);
    assert_int_equal(brim__jpeg_info(&input, true, &info), BRIM_OK);
    assert_int_equal(info.width, spec->width);
    assert_int_equal(info.height, spec->height);
    assert_int_equal(info.components, spec->components);
    assert_int_equal(info.progressive, spec->progressive || spec->dc_only);
    assert_int_equal(info.whole, info.progressive || (spec->apart && spec->components > 1));
    for (unsigned round = 0; round < rounds; round++) {
        struct brim__decoding decoding = whole_of(&input, &info);
        struct run run = { .picture = &picture };
        decoding.color = color;
        decoding.scale = scale;
        decoding.cheap = cheap;
        choose_region(&decoding, random, round);
        if (run_decoding(&decoding, &run) != BRIM_OK) {
            fail_msg("%s: %s", describe(text, spec, &decoding), brim_detail());
        }
        if (run.differs) {
            fail_msg("%s: other bits than the whole image's", describe(text, spec, &decoding));
        }
    }
    free(picture.data);
}

static const struct spec samplings[] = {
    { .components = 1 },
    { .components = 1, .h = { 2 }, .v = { 2 } },
    { .components = 1, .h = { 3 }, .v = { 1 } },
    { .components = 3 },
    { .components = 3, .h = { 2 }, .v = { 1 } },
    { .components = 3, .h = { 2 }, .v = { 2 } },
    { .components = 3, .h = { 1 }, .v = { 2 } },
    { .components = 3, .h = { 4 }, .v = { 1 } },
    { .components = 3, .h = { 4 }, .v = { 2 } },
    { .components = 3, .h = { 1 }, .v = { 4 } },
    { .components = 3, .h = { 2 }, .v = { 4 } },
    { .components = 3, .h = { 3 }, .v = { 1 } },
    { .components = 3, .h = { 3 }, .v = { 2 } },
    { .components = 3, .h = { 2, 2, 1 }, .v = { 2, 1, 2 } },
    { .components = 3, .h = { 2, 1, 2 }, .v = { 2, 1, 1 } },
    { .components = 3, .h = { 4, 2, 2 }, .v = { 1, 1, 1 } },
    { .components = 3, .h = { 1, 2, 1 }, .v = { 1, 2, 1 } },
    { .components = 3, .h = { 2, 2, 2 }, .v = { 1, 1, 1 } },
    { .components = 3, .space = JCS_RGB },
    { .components = 4 },
    { .components = 4, .space = JCS_YCCK },
    { .components = 4, .space = JCS_YCCK, .h = { 2, 1, 1, 2 }, .v = { 2, 1, 1, 2 } },
    { .components = 4, .h = { 2, 1, 1, 2 }, .v = { 1, 1, 1, 1 } },
};

static const uint32_t sizes[][2] = {
    { 1, 1 }, { 3, 50 }, { 17, 33 }, { 33, 16 }, { 131, 77 }, { 250, 37 }, { 96, 128 },
};

static void test_regions(void **state) {
    (void)state;
    static const enum brim__color colors[] = { BRIM__RGB, BRIM__GRAY, BRIM__RGBA, BRIM__MASK };
    uint64_t random = 7;
    unsigned turn = 0;
    for (size_t i = 0; i < BRIM__COUNT(samplings); i++) {
        for (size_t k = 0; k < BRIM__COUNT(sizes); k++) {
            for (unsigned way = 0; way < WAYS; way++, turn++) {
                struct spec spec = samplings[i];
                spec.width = sizes[k][0];
                spec.height = sizes[k][1];
                set_way(&spec, way);
                const struct bytes file = make_jpeg(&spec, turn);
                check_regions(&spec, &file, BRIM__RGB, 1, false, 8, &random);
                check_regions(&spec, &file, colors[turn % 4], 1u << (1 + turn % 3), false, 4,
                              &random);
                check_regions(&spec, &file, colors[(turn + 1) % 4], 1u << turn % 4, true, 4,
                              &random);
                free(file.data);
            }
        }
    }
}

/* Every first row and every first column, where the margins begin, and the narrowest. */
static void test_every_offset(void **state) {
    (void)state;
    for (unsigned way = 0; way < WAYS; way++) {
        struct spec spec = { .width = 70, .height = 70, .components = 3, .h = { 2 }, .v = { 2 } };
        set_way(&spec, way);
        const struct bytes file = make_jpeg(&spec, way);
        struct picture picture = decode_plainly(&file, BRIM__RGB, 1, false);
        struct brim__input input;
        struct brim__image_info info;
        brim__input_memory(&input, file.data, file.count);
        assert_int_equal(brim__jpeg_info(&input, false, &info), BRIM_OK);
        for (uint32_t i = 0; i < 70; i++) {
            for (uint32_t size = 1; size <= 3 && i + size <= 70; size++) {
                struct brim__decoding decoding = whole_of(&input, &info);
                struct run run = { .picture = &picture };
                decoding.x = size == 2 ? 0 : i;
                decoding.width = size == 2 ? 1 : size;
                decoding.y = i;
                decoding.height = size;
                assert_int_equal(run_decoding(&decoding, &run), BRIM_OK);
                assert_false(run.differs);
            }
        }
        free(picture.data);
        free(file.data);
    }
}

/* ----------------------------------------------------------------- memory */

static uint64_t peak_of(const struct bytes *file, uint32_t scale, bool cheap,
                        struct brim__image_info *info) {
    struct brim__input input;
    brim__input_memory(&input, file->data, file->count);
    assert_int_equal(brim__jpeg_info(&input, false, info), BRIM_OK);
    struct brim__decoding decoding = whole_of(&input, info);
    struct run run = { .counts_memory = true };
    decoding.scale = scale;
    decoding.width = (uint32_t)brim__divide_up(info->width, scale);
    decoding.height = (uint32_t)brim__divide_up(info->height, scale);
    decoding.cheap = cheap;
    if (run_decoding(&decoding, &run) != BRIM_OK) {
        fail_msg("%u x %u: %s", info->width, info->height, brim_detail());
    }
    return run.peak;
}

/* Decoding never met its end, else it would have failed; and most of it was used. */
static void test_memory_is_tight(void **state) {
    (void)state;
    static const uint32_t widths[] = { 500, 1777 };
    for (size_t i = 0; i < BRIM__COUNT(samplings); i++) {
        for (unsigned way = 0; way < WAYS * BRIM__COUNT(widths); way++) {
            struct spec spec = samplings[i];
            struct brim__image_info info;
            uint64_t peak = 0;
            spec.width = widths[way / WAYS];
            spec.height = 24;
            set_way(&spec, way % WAYS);
            const struct bytes file = make_jpeg(&spec, way);
            for (uint32_t scale = 1; scale <= 8; scale *= 2) {
                peak = brim__max(peak, peak_of(&file, scale, false, &info));
                peak = brim__max(peak, peak_of(&file, scale, true, &info));
            }
            free(file.data);
            /* tables that these files do not have, and little else */
            if (info.memory > peak * 11 / 10 + 20000) {
                fail_msg("%u wide, sampling %zu, way %u: %llu of %llu bytes used", spec.width, i,
                         way % WAYS, (unsigned long long)peak, (unsigned long long)info.memory);
            }
        }
    }
}

/* Whatever tables a file brings along: all 8 Huffman and all 4 of quantisation. */
static void test_memory_covers_all_tables(void **state) {
    (void)state;
    struct spec spec = { .width = 8, .height = 8, .components = 4, .optimized = true };
    for (unsigned way = 0; way < 2; way++) {
        struct jpeg_compress_struct jpeg;
        struct jpeg_error_mgr errors;
        struct brim__image_info info;
        unsigned char *data = NULL;
        unsigned long count = 0;
        uint8_t pixels[8 * 4];
        uint8_t *row = pixels;
        jpeg.err = jpeg_std_error(&errors);
        jpeg_create_compress(&jpeg);
        jpeg_mem_dest(&jpeg, &data, &count);
        jpeg.image_width = spec.width;
        jpeg.image_height = spec.height;
        jpeg.input_components = 4;
        jpeg.in_color_space = JCS_CMYK;
        jpeg_set_defaults(&jpeg);
        jpeg_set_colorspace(&jpeg, JCS_YCCK);
        for (int c = 0; c < 4; c++) {
            static const unsigned flat[64] = { 16, 16, 16, 16, 16, 16, 16, 16 };
            jpeg_add_quant_table(&jpeg, c, flat, 100, TRUE);
            jpeg.comp_info[c].quant_tbl_no = jpeg.comp_info[c].dc_tbl_no =
                jpeg.comp_info[c].ac_tbl_no = c;
            jpeg.comp_info[c].h_samp_factor = jpeg.comp_info[c].v_samp_factor = 1;
        }
        jpeg.optimize_coding = TRUE;
        if (way == 1) {
            jpeg_simple_progression(&jpeg);
        }
        jpeg_start_compress(&jpeg, TRUE);
        for (uint32_t y = 0; y < 8; y++) {
            fill_random(pixels, sizeof pixels, y);
            jpeg_write_scanlines(&jpeg, &row, 1);
        }
        jpeg_finish_compress(&jpeg);
        jpeg_destroy_compress(&jpeg);
        const struct bytes file = { data, count };
        const uint64_t peak = peak_of(&file, 1, false, &info);
        assert_true(peak > info.memory / 2);
        free(data);
    }
}

static void test_memory_of_usual_images(void **state) {
    (void)state;
    struct brim__image_info info = { .width = 500,
                                     .height = 375,
                                     .components = 3,
                                     .horizontal = { 2, 1, 1 },
                                     .vertical = { 2, 1, 1 } };
    assert_true(brim__jpeg_memory_bound(&info) < 64 * 1024);
    info.height = 65500; /* as high as you like */
    assert_true(brim__jpeg_memory_bound(&info) < 64 * 1024);
    info.width = info.height = 4096;
    assert_true(brim__jpeg_memory_bound(&info) < 200 * 1024);
    info.progressive = info.whole = true; /* 3 bytes of coefficients for a pixel */
    assert_in_range(brim__jpeg_memory_bound(&info), 3 * 4096 * 4096, 3 * 4096 * 4096 + 400 * 1024);
    info.width = info.height = 65500;
    assert_in_range(brim__jpeg_memory_bound(&info), 12000000000, 14000000000);
}

/* Too little memory is refused, not overrun. */
static void test_too_little_memory(void **state) {
    (void)state;
    struct spec spec = { .width = 200, .height = 60, .components = 3, .h = { 2 }, .v = { 2 } };
    for (unsigned way = 0; way < 2; way++) {
        set_way(&spec, way);
        const struct bytes file = make_jpeg(&spec, 1);
        struct brim__input input;
        struct brim__image_info info;
        brim__input_memory(&input, file.data, file.count);
        assert_int_equal(brim__jpeg_info(&input, false, &info), BRIM_OK);
        const uint64_t needed = peak_of(&file, 1, false, &info);
        for (uint64_t bytes = 64; bytes < needed - 4096; bytes += 1024) {
            struct brim__decoding decoding = whole_of(&input, &info);
            struct run run = { 0 };
            decoding.memory_bytes = bytes;
            assert_int_equal(run_decoding(&decoding, &run), BRIM_STATUS_CORRUPT);
            assert_detail_has("needs more memory than");
        }
        free(file.data);
    }
}

/* ------------------------------------------------------------------ files */

/* Through a window as from memory, with segments that must be jumped over. */
static void test_file_window(void **state) {
    (void)state;
    static uint8_t window[BRIM__INPUT_WINDOW];
    static uint8_t comment[65533];
    uint64_t random = 3;
    for (size_t i = 0; i < sizeof comment; i++) {
        comment[i] = i % 2 == 0 ? 0xff : JPEG_EOI; /* whoever reads it ends here */
    }
    for (unsigned way = 0; way < WAYS; way++) {
        struct spec spec = { .width = 400, .height = 300, .components = 3, .h = { 2 }, .v = { 2 } };
        set_way(&spec, way);
        const struct bytes plain = make_jpeg(&spec, way);
        struct bytes file = { 0 };
        put(&file, "before", 6);
        put(&file, plain.data, 2);
        for (int i = 0; i < 3; i++) {
            put(&file, "\xff\xfe\xff\xff", 4);
            put(&file, comment, sizeof comment);
        }
        put(&file, plain.data + 2, plain.count - 2);
        write_file("window.jpg", file.data, file.count);
        const struct path path = in_directory("window.jpg");
        struct brim__file opened;
        assert_int_equal(brim__file_open(&opened, path.text), BRIM_OK);
        for (unsigned round = 0; round < 6; round++) {
            struct brim__input inputs[2];
            uint64_t digests[2];
            brim__input_memory(&inputs[0], plain.data, plain.count);
            brim__input_file(&inputs[1], &opened, 6, file.count - 6, window);
            const uint64_t same = random;
            for (int i = 0; i < 2; i++) {
                struct brim__image_info info;
                struct run run = { 0 };
                random = same;
                assert_int_equal(brim__jpeg_info(&inputs[i], true, &info), BRIM_OK);
                struct brim__decoding decoding = whole_of(&inputs[i], &info);
                choose_region(&decoding, &random, round);
                assert_int_equal(run_decoding(&decoding, &run), BRIM_OK);
                digests[i] = run.digest;
            }
            assert_int_equal(digests[0], digests[1]);
        }
        brim__file_close(&opened);
        free(file.data);
        free(plain.data);
    }
}

static brim_status refuse_row(void *user, const uint8_t *row, uint32_t y) {
    (void)user, (void)row;
    return y == 3 ? brim__fail(BRIM_STATUS_CALLBACK, "no more") : BRIM_OK;
}

static void test_sink_ends_it(void **state) {
    (void)state;
    const struct spec spec = { .width = 30, .height = 20, .components = 3 };
    const struct bytes file = make_jpeg(&spec, 1);
    struct brim__input input;
    struct brim__image_info info;
    brim__input_memory(&input, file.data, file.count);
    assert_int_equal(brim__jpeg_info(&input, false, &info), BRIM_OK);
    struct brim__decoding decoding = whole_of(&input, &info);
    give_memory(&decoding);
    assert_int_equal(brim__jpeg_decode(&decoding, refuse_row, NULL), BRIM_STATUS_CALLBACK);
    assert_detail_has("no more");
    free(file.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_every_offset),
        cmocka_unit_test(test_memory_is_tight),
        cmocka_unit_test(test_memory_covers_all_tables),
        cmocka_unit_test(test_memory_of_usual_images),
        cmocka_unit_test(test_too_little_memory),
        cmocka_unit_test(test_file_window),
        cmocka_unit_test(test_sink_ends_it),
    };
    return cmocka_run_group_tests(tests, begin_tests_in_memory, end_tests);
}
