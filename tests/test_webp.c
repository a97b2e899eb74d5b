/*
 * test_webp.c: WebP against libwebp used plainly: the region of an image is that of
 * the whole, an animation's first frame lies on its canvas, and what libwebp takes
 * by itself stays within what the header said.
 */
#include "decode_util.h"

#include <malloc.h>
#include <string.h>
#include <webp/decode.h>
#include <webp/encode.h>

/* ------------------------------------------------- what libwebp takes by itself */

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

static bool counting; /* tests here run on one thread */
static size_t taken, most_taken;

#ifndef SANITIZED
/* Stand before the C library's for everything in this process. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void __libc_free(void *memory);

static void *count_taken(void *memory) {
    if (counting && memory != NULL) {
        taken += malloc_usable_size(memory);
        most_taken = taken > most_taken ? taken : most_taken;
    }
    return memory;
}

void *malloc(size_t size) {
    return count_taken(__libc_malloc(size));
}

void *calloc(size_t nmemb, size_t size) {
    return count_taken(__libc_calloc(nmemb, size));
}

void free(void *ptr) {
    if (counting && ptr != NULL) {
        taken -= malloc_usable_size(ptr);
    }
    __libc_free(ptr);
}
#endif

static brim_status ignore_row(void *user, const uint8_t *row, uint32_t y) {
    (void)user, (void)row, (void)y;
    return BRIM_OK;
}

/* Decodes, whatever comes of it, and compares what was taken with what was said. */
static void check_outside(const uint8_t *data, size_t bytes) {
    struct brim__input input;
    struct brim__image_info info;
    void *memory;
    brim__input_memory(&input, data, bytes);
    assert_int_equal(brim__image_info(&input, false, &info), BRIM_OK);
    assert_int_equal(posix_memalign(&memory, 64, info.memory), 0);
    const struct brim__decoding decoding = {
        .input = &input,
        .info = &info,
        .color = BRIM__RGBA,
        .width = info.width,
        .height = info.height,
        .scale = 1,
        .memory = memory,
        .memory_bytes = info.memory,
    };
    taken = most_taken = 0;
    counting = true;
    (void)brim__image_decode(&decoding, ignore_row, NULL);
    counting = false;
    assert_int_equal(taken, 0);
    assert_true(most_taken <= info.outside);
#ifndef SANITIZED
    assert_true(most_taken > 0);
    /* of large ones with alpha libwebp needs less than of all kinds */
    assert_true(info.outside < most_taken * 7 / 4 + 160 * 1024);
#endif
    free(memory);
}

/* ------------------------------------------------------------------ encoding */

struct webp {
    uint8_t *data;
    size_t bytes;
};

struct kind {
    bool lossless, alpha;
    float quality;
    int method, filtering, alpha_compression;
};

static const struct kind kinds[] = {
    { false, false, 75, 4, 1, 1 }, { false, false, 5, 0, 0, 1 }, { false, false, 30, 6, 1, 1 },
    { false, true, 75, 4, 1, 1 },  { false, true, 10, 2, 2, 1 }, { false, true, 60, 4, 0, 0 },
    { true, false, 75, 4, 1, 1 },  { true, false, 90, 4, 1, 1 }, { true, true, 50, 3, 1, 1 },
    { true, true, 0, 0, 1, 1 },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* Waves and noise: neither flat nor incompressible. */
static void fill_image(uint8_t *rgba, uint32_t width, uint32_t height, uint64_t *random) {
    const uint64_t begin = next_random(random);
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            uint8_t *pixel = rgba + 4 * ((size_t)y * width + x);
            const uint64_t noise = next_random(random) >> 20;
            pixel[0] = (uint8_t)(begin + 3 * x + 5 * y + noise % 16);
            pixel[1] = (uint8_t)(begin * 3 + x * y / 8 + (noise >> 8) % 8);
            pixel[2] = (uint8_t)(x / 8 % 2 == y / 8 % 2 ? 200 : 30);
            pixel[3] = (uint8_t)(255 - 7 * x - (noise >> 16) % 4);
        }
    }
}

static void encode(const uint8_t *rgba, uint32_t width, uint32_t height, const struct kind *kind,
                   struct webp *webp) {
    WebPConfig config;
    WebPPicture picture;
    WebPMemoryWriter writer;
    assert_true(WebPConfigInit(&config) && WebPPictureInit(&picture));
    config.lossless = kind->lossless;
    config.quality = kind->quality;
    config.method = kind->method;
    config.alpha_filtering = kind->filtering;
    config.alpha_compression = kind->alpha_compression;
    config.exact = 1;
    picture.use_argb = kind->lossless;
    picture.width = (int)width;
    picture.height = (int)height;
    WebPMemoryWriterInit(&writer);
    picture.writer = WebPMemoryWrite;
    picture.custom_ptr = &writer;
    assert_true((kind->alpha ? WebPPictureImportRGBA : WebPPictureImportRGBX)(&picture, rgba,
                                                                              (int)width * 4));
    assert_true(WebPEncode(&config, &picture));
    WebPPictureFree(&picture);
    webp->data = malloc(writer.size);
    assert_non_null(webp->data);
    webp->bytes = writer.size;
    memcpy(webp->data, writer.mem, writer.size);
    WebPMemoryWriterClear(&writer);
}

static void make_webp(size_t kind, uint32_t width, uint32_t height, uint64_t *random,
                      struct webp *webp) {
    uint8_t *rgba = malloc((size_t)width * height * 4);
    assert_non_null(rgba);
    fill_image(rgba, width, height, random);
    encode(rgba, width, height, &kinds[kind], webp);
    free(rgba);
}

/* ----------------------------------------------------------------- containers */

static size_t put_u24(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 3; i++) {
        to[i] = (uint8_t)(value >> 8 * i);
    }
    return 3;
}

static size_t put_chunk(uint8_t *to, const char *name, const void *data, size_t bytes) {
    memcpy(to, name, 4);
    put_u24(to + 4, (uint32_t)bytes);
    to[7] = 0;
    if (bytes > 0) {
        memcpy(to + 8, data, bytes);
    }
    to[8 + bytes] = 0;
    return 8 + bytes + (bytes & 1);
}

static size_t begin_webp(uint8_t *to, uint8_t flags, uint32_t width, uint32_t height) {
    uint8_t extended[10] = { flags };
    memcpy(to, "RIFF....WEBP", 12);
    put_u24(extended + 4, width - 1);
    put_u24(extended + 7, height - 1);
    return 12 + put_chunk(to + 12, "VP8X", extended, sizeof extended);
}

static void end_webp(uint8_t *to, size_t bytes) {
    put_u24(to + 4, (uint32_t)bytes - 8);
    to[7] = 0;
}

/* The chunks of an image alone. */
static const uint8_t *image_of(const struct webp *webp, size_t *bytes) {
    const size_t skipped = memcmp(webp->data + 12, "VP8X", 4) == 0 ? 30 : 12;
    *bytes = webp->bytes - skipped;
    return webp->data + skipped;
}

/* --------------------------------------------------------------------- model */

/* The pixels of a region, from those of all. */
static void check_region(const uint8_t *whole, uint32_t width, const struct decoded *decoded,
                         enum brim__color color, bool alpha, const struct region *region) {
    for (uint32_t y = 0; y < region->height; y++) {
        for (uint32_t x = 0; x < region->width; x++) {
            const uint8_t *want = whole + 4 * ((size_t)(region->y + y) * width + region->x + x);
            const uint8_t *got =
                decoded->pixels + y * decoded->row_bytes + (size_t)x * brim__color_pixel(color);
            if (color == BRIM__GRAY || color == BRIM__MASK) {
                assert_int_equal(got[0], brim__luma(want[0], want[1], want[2]));
            } else {
                assert_memory_equal(got, want, 3);
                assert_int_equal(got[3], color == BRIM__RGBA && alpha ? want[3] : 255);
            }
        }
    }
}

static void check_webp(const uint8_t *data, size_t bytes, const uint8_t *whole, uint32_t width,
                       uint32_t height, bool alpha, uint64_t *random) {
    for (enum brim__color color = BRIM__GRAY; color <= BRIM__MASK; color++) {
        struct region region = { 0, 0, width, height };
        for (int part = 0; part < 5; part++) {
            struct decoded decoded;
            const brim_status status = (part % 2 == 0 ? decode_bytes : decode_file)(
                data, bytes, color, &region, part == 4, &decoded);
            assert_int_equal(status, BRIM_OK);
            assert_int_equal(decoded.info.format, BRIM__IMAGE_WEBP);
            assert_true(decoded.info.whole);
            check_region(whole, width, &decoded, color, alpha, &region);
            decoded_free(&decoded);
            region.x = (uint32_t)next_random(random) % width;
            region.y = (uint32_t)next_random(random) % height;
            region.width = 1 + (uint32_t)next_random(random) % (width - region.x);
            region.height = 1 + (uint32_t)next_random(random) % (height - region.y);
        }
    }
}

/* --------------------------------------------------------------------- tests */

static void regions_are_those_of_the_whole_image(void **state) {
    (void)state;
    static const uint32_t sides[] = { 1, 2, 3, 15, 16, 17, 33, 50 };
    uint64_t random = 21;
    for (size_t i = 0; i < 6 * KINDS; i++) {
        const uint32_t width = sides[next_random(&random) % 8];
        const uint32_t height = sides[next_random(&random) % 8];
        struct webp webp;
        int got_width, got_height;
        make_webp(i % KINDS, width, height, &random, &webp);
        uint8_t *whole = WebPDecodeRGBA(webp.data, webp.bytes, &got_width, &got_height);
        assert_non_null(whole);
        check_webp(webp.data, webp.bytes, whole, width, height, kinds[i % KINDS].alpha, &random);
        WebPFree(whole);
        free(webp.data);
    }
}

static void of_an_animation_the_first_frame_is_taken(void **state) {
    (void)state;
    enum { WIDTH = 40, HEIGHT = 30 };
    uint64_t random = 22;
    for (size_t i = 0; i < 2 * KINDS; i++) {
        const struct region frame = { 2 * (uint32_t)(i % 5), 2 * (uint32_t)(i % 3),
                                      7 + (uint32_t)i % 13, 5 + (uint32_t)i % 11 };
        const bool alpha = i < KINDS;
        struct webp webp;
        size_t image_bytes;
        int got_width, got_height;
        make_webp(i % KINDS, frame.width, frame.height, &random, &webp);
        uint8_t *pixels = WebPDecodeRGBA(webp.data, webp.bytes, &got_width, &got_height);
        const uint8_t *image = image_of(&webp, &image_bytes);
        uint8_t *animation = calloc(1, 2 * image_bytes + 400);
        uint8_t *content = calloc(1, image_bytes + 16);
        uint8_t *canvas = calloc((size_t)WIDTH * HEIGHT, 4);
        assert_true(pixels != NULL && animation != NULL && content != NULL && canvas != NULL);
        size_t bytes = begin_webp(animation, alpha ? 0x12 : 0x02, WIDTH, HEIGHT);
        bytes += put_chunk(animation + bytes, "ANIM", "\1\2\3\4\0", 6);
        put_u24(content, frame.x / 2);
        put_u24(content + 3, frame.y / 2);
        put_u24(content + 6, frame.width - 1);
        put_u24(content + 9, frame.height - 1);
        memcpy(content + 16, image, image_bytes);
        bytes += put_chunk(animation + bytes, "ANMF", content, image_bytes + 16);
        put_u24(content, 0); /* the second one lies elsewhere */
        bytes += put_chunk(animation + bytes, "ANMF", content, image_bytes + 16);
        end_webp(animation, bytes);
        for (uint32_t y = 0; y < frame.height; y++) {
            memcpy(canvas + 4 * ((size_t)(frame.y + y) * WIDTH + frame.x),
                   pixels + 4 * (size_t)y * frame.width, 4 * (size_t)frame.width);
        }
        check_webp(animation, bytes, canvas, WIDTH, HEIGHT, alpha, &random);
        /* a frame that leaves the canvas, and one whose size is not its image's */
        put_u24(animation + 30 + 14 + 8, WIDTH);
        expect_bad_image(animation, bytes, BRIM__RGB, "on a canvas of 40 x 30");
        put_u24(animation + 30 + 14 + 8, frame.x / 2);
        animation[30 + 14 + 8 + 6]++;
        expect_bad_image(animation, bytes, BRIM__RGB, "holds an image of");
        free(animation);
        free(content);
        free(canvas);
        WebPFree(pixels);
        free(webp.data);
    }
}

static void the_orientation_is_looked_for_on_request(void **state) {
    (void)state;
    static const uint8_t exif[] =
        "Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0\0\0\0";
    uint64_t random = 23;
    struct webp webp;
    size_t image_bytes;
    make_webp(0, 9, 9, &random, &webp);
    const uint8_t *image = image_of(&webp, &image_bytes);
    uint8_t *file = calloc(1, webp.bytes + 300);
    assert_non_null(file);
    for (int skipped = 0; skipped <= 6; skipped += 6) {
        size_t bytes = begin_webp(file, 0x08, 9, 9);
        bytes += put_chunk(file + bytes, "ICCP", "profile", 7);
        memcpy(file + bytes, image, image_bytes);
        bytes += image_bytes;
        bytes += put_chunk(file + bytes, "XMP ", "x", 1);
        bytes += put_chunk(file + bytes, "EXIF", exif + skipped, sizeof exif - 1 - (size_t)skipped);
        end_webp(file, bytes);
        struct brim__input input;
        struct brim__image_info info;
        brim__input_memory(&input, file, bytes);
        assert_int_equal(brim__image_info(&input, true, &info), BRIM_OK);
        assert_int_equal(info.orientation, 8);
        assert_int_equal(brim__image_info(&input, false, &info), BRIM_OK);
        assert_int_equal(info.orientation, 1);
        struct decoded decoded;
        assert_int_equal(decode_file(file, bytes, BRIM__RGB, NULL, false, &decoded), BRIM_OK);
        decoded_free(&decoded);
        expect_bad_image(file, bytes - 4, BRIM__RGB, "ends after");
    }
    free(file);
    free(webp.data);
}

static size_t put_many(uint8_t *to, const char *name, size_t count) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += put_chunk(to + bytes, name, "", 0);
    }
    return bytes;
}

/* A file whose image stands behind so many chunks, and its EXIF behind so many more. */
static size_t put_bomb(uint8_t *file, const struct webp *webp, bool animated, size_t before,
                       size_t inside, size_t behind) {
    size_t image_bytes;
    const uint8_t *image = image_of(webp, &image_bytes);
    size_t bytes = begin_webp(file, animated ? 0x0a : 0x08, 9, 9);
    bytes += put_many(file + bytes, "JUNK", before);
    if (animated) {
        uint8_t *frame = file + bytes;
        uint8_t begin[16] = { 0 };
        put_u24(begin + 6, 9 - 1);
        put_u24(begin + 9, 9 - 1);
        bytes += put_chunk(frame, "ANMF", begin, sizeof begin);
        bytes += put_many(file + bytes, "JUNK", inside);
        memcpy(file + bytes, image, image_bytes);
        bytes += image_bytes;
        put_u24(frame + 4, (uint32_t)(file + bytes - frame) - 8);
    } else {
        memcpy(file + bytes, image, image_bytes);
        bytes += image_bytes;
    }
    bytes += put_many(file + bytes, "ANMF", behind);
    static const uint8_t exif[] = "II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0";
    bytes += put_chunk(file + bytes, "EXIF", exif, sizeof exif - 1);
    end_webp(file, bytes);
    return bytes;
}

static void a_bomb_of_chunks_is_refused(void **state) {
    (void)state;
    static const struct {
        bool animated;
        size_t before, inside, behind;
        bool found, turned; /* its image; its EXIF too */
    } cases[] = {
        { false, 65000, 0, 400, true, true },    { true, 40000, 20000, 5000, true, true },
        { false, 65535, 0, 0, false, false },    { false, 900000, 0, 0, false, false },
        { true, 900000, 0, 0, false, false },    { true, 0, 900000, 0, false, false },
        { true, 40000, 40000, 0, false, false }, { false, 0, 0, 900000, true, false },
        { true, 0, 0, 900000, true, false },
    };
    uint64_t random = 25;
    struct webp webp;
    make_webp(0, 9, 9, &random, &webp);
    uint8_t *file = malloc(8u * 1000000 + webp.bytes);
    assert_non_null(file);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const size_t bytes = put_bomb(file, &webp, cases[i].animated, cases[i].before,
                                      cases[i].inside, cases[i].behind);
        struct brim__input input;
        struct brim__image_info info;
        brim__input_memory(&input, file, bytes);
        assert_int_equal(brim__image_info(&input, false, &info),
                         cases[i].found ? BRIM_OK : BRIM_STATUS_CORRUPT);
        if (cases[i].turned) {
            struct decoded decoded;
            assert_int_equal(brim__image_info(&input, true, &info), BRIM_OK);
            assert_int_equal(info.orientation, 6);
            assert_int_equal(decode_file(file, bytes, BRIM__RGB, NULL, false, &decoded), BRIM_OK);
            decoded_free(&decoded);
        } else { /* its EXIF is asked for */
            expect_bad_image(file, bytes, BRIM__RGB, "WebP: it has more than 65536 chunks");
        }
    }
    free(file);
    free(webp.data);
}

static void libwebp_takes_what_the_header_says(void **state) {
    (void)state;
    static const uint32_t sides[][2] = { { 1, 1 },    { 17, 300 }, { 300, 17 },
                                         { 120, 90 }, { 640, 64 }, { 1250, 800 } };
    uint64_t random = 24;
    for (size_t i = 0; i < BRIM__COUNT(sides) * KINDS; i++) {
        struct webp webp;
        make_webp(i % KINDS, sides[i / KINDS][0], sides[i / KINDS][1], &random, &webp);
        check_outside(webp.data, webp.bytes);
        free(webp.data);
    }
}

/* A writer of lossless streams, bit by bit. */
struct bits {
    uint8_t data[400];
    size_t count;
};

static void put_bits(struct bits *bits, uint32_t value, int n) {
    for (int i = 0; i < n; i++, bits->count++) {
        bits->data[bits->count / 8] |= (uint8_t)((value >> i & 1) << bits->count % 8);
    }
}

/* A code of one symbol, or of two. */
static void put_simple(struct bits *bits, uint32_t first, int32_t second) {
    put_bits(bits, 1, 1);
    put_bits(bits, second >= 0, 1);
    put_bits(bits, 1, 1);
    put_bits(bits, first, 8);
    if (second >= 0) {
        put_bits(bits, (uint32_t)second, 8);
    }
}

/* A few bytes that ask for tables of `sets` sets of codes: an image of set numbers,
 * all 0 but one. */
static size_t make_many_sets(uint8_t *file, uint32_t width, uint32_t height, uint32_t sets) {
    struct bits bits = { 0 };
    put_bits(&bits, 0x2f, 8);
    put_bits(&bits, width - 1, 14);
    put_bits(&bits, height - 1, 14);
    put_bits(&bits, 0, 4); /* no alpha, version 0 */
    put_bits(&bits, 0, 1); /* no transform */
    put_bits(&bits, 0, 1); /* no cache */
    put_bits(&bits, 1, 1); /* sets */
    put_bits(&bits, 0, 3); /* for blocks of 4 x 4 */
    put_bits(&bits, 0, 1); /* no cache */
    const uint32_t last = sets - 1;
    put_simple(&bits, 0, last % 256 == 0 ? 1 : (int32_t)(last % 256)); /* green */
    put_simple(&bits, 0, last / 256 == 0 ? 1 : (int32_t)(last / 256)); /* red */
    put_simple(&bits, 0, -1);
    put_simple(&bits, 0, -1);
    put_simple(&bits, 0, -1);
    const uint32_t blocks = (width + 3) / 4 * ((height + 3) / 4);
    for (uint32_t i = 0; i < blocks; i++) {
        put_bits(&bits, i == 7 && last % 256 != 0, 1);
        put_bits(&bits, i == 7 && last / 256 != 0, 1);
    }
    for (int i = 0; i < 5 * 3; i++) { /* the first three sets; then the data ends */
        put_simple(&bits, 0, -1);
    }
    memcpy(file, "RIFF....WEBP", 12);
    const size_t bytes = 12 + put_chunk(file + 12, "VP8L", bits.data, (bits.count + 7) / 8);
    end_webp(file, bytes);
    return bytes;
}

static void a_small_file_that_asks_for_much_is_known_to(void **state) {
    (void)state;
    uint8_t file[500];
    struct brim__input input;
    struct brim__image_info few, many;
    size_t bytes = make_many_sets(file, 64, 64, 1);
    brim__input_memory(&input, file, bytes);
    assert_int_equal(brim__image_info(&input, false, &few), BRIM_OK);
    check_outside(file, bytes);
    bytes = make_many_sets(file, 64, 64, 1000);
    brim__input_memory(&input, file, bytes);
    assert_int_equal(brim__image_info(&input, false, &many), BRIM_OK);
    assert_true(bytes < 200);
    assert_true(few.outside < 100 * 1024);
    assert_true(many.outside > 11 << 20);
    check_outside(file, bytes);
    /* from 1001 on only the sets that occur get tables */
    bytes = make_many_sets(file, 64, 64, 65536);
    brim__input_memory(&input, file, bytes);
    assert_int_equal(brim__image_info(&input, false, &many), BRIM_OK);
    assert_true(many.outside < 4 << 20);
    struct decoded decoded;
    assert_int_equal(decode_bytes(file, bytes, BRIM__RGB, NULL, false, &decoded),
                     BRIM_STATUS_CORRUPT);
    decoded_free(&decoded);
}

static void cut_files_are_refused(void **state) {
    (void)state;
    uint64_t random = 25;
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct webp webp;
        make_webp(kind, 20, 20, &random, &webp);
        const size_t step = 1 + webp.bytes / 600;
        for (size_t left = 0; left < webp.bytes; left += step) {
            struct decoded decoded;
            assert_int_equal(decode_bytes(webp.data, left, BRIM__RGB, NULL, false, &decoded),
                             BRIM_STATUS_CORRUPT);
            decoded_free(&decoded);
            const brim_status borne =
                decode_bytes(webp.data, left, BRIM__RGB, NULL, true, &decoded);
            assert_true(borne == BRIM_OK || borne == BRIM_STATUS_CORRUPT);
            decoded_free(&decoded);
        }
        free(webp.data);
    }
}

static void of_damaged_data_the_rows_before_the_damage_come(void **state) {
    (void)state;
    uint64_t random = 26;
    struct webp webp;
    struct decoded decoded;
    int width, height;
    make_webp(0, 200, 200, &random, &webp);
    uint8_t *whole = WebPDecodeRGBA(webp.data, webp.bytes, &width, &height);
    assert_int_equal(decode_file(webp.data, webp.bytes * 3 / 4, BRIM__RGB, NULL, true, &decoded),
                     BRIM_OK);
    check_region(whole, 200, &decoded, BRIM__RGB, false, &(struct region){ 0, 0, 200, 32 });
    const uint8_t black[4] = { 0, 0, 0, 255 };
    assert_memory_equal(decoded.pixels + 199 * decoded.row_bytes, black, 4);
    decoded_free(&decoded);
    WebPFree(whole);
    free(webp.data);
}

static void random_damage_is_borne_or_refused(void **state) {
    (void)state;
    uint64_t random = 27;
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct webp webp;
        make_webp(kind, 24, 18, &random, &webp);
        decode_damaged(webp.data, webp.bytes, 28 + kind, 500, 10000);
        free(webp.data);
    }
}

static void wrong_headers_are_refused(void **state) {
    (void)state;
    uint8_t file[300] = { 0 };
    size_t bytes;
    memcpy(file, "RIFF\x04\0\0\0WEBP", 12);
    expect_bad_image(file, 12, BRIM__RGB, "before its image");
    bytes = begin_webp(file, 0, 9, 9);
    end_webp(file, bytes);
    expect_bad_image(file, bytes, BRIM__RGB, "before its image");
    expect_bad_image(file, 29, BRIM__RGB, "VP8X chunk has only 9 bytes");
    bytes = begin_webp(file, 0, 1u << 24, 1u << 24);
    bytes += put_chunk(file + bytes, "VP8 ", "\x10\0\0\x9d\x01\x2a\x09\0\x09\0", 10);
    end_webp(file, bytes);
    expect_bad_image(file, bytes, BRIM__RGB, "an image of 9 x 9 pixels on a canvas of");
    bytes = begin_webp(file, 0x02, 1u << 24, 1u << 24);
    bytes += put_chunk(file + bytes, "ANMF", "short", 5);
    end_webp(file, bytes);
    expect_bad_image(file, bytes, BRIM__RGB, "has only 5 bytes");
    memcpy(file, "RIFF....WEBP", 12);
    static const struct {
        const char *name, *data;
        size_t bytes;
        const char *says;
    } cases[] = {
        { "VP8 ", "\x10\0\0\x9d\x01\x2a\x09\0\x09", 9, "has only 9 bytes" },
        { "VP8 ", "\x11\0\0\x9d\x01\x2a\x09\0\x09\0", 10, "begins no VP8 image" },
        { "VP8 ", "\x10\0\0\x9d\x01\x2b\x09\0\x09\0", 10, "begins no VP8 image" },
        { "VP8 ", "\x10\0\0\x9d\x01\x2a\0\0\x09\0", 10, "0 x 9 pixels" },
        { "VP8L", "\x2f\0\0\0", 4, "has only 4 bytes" },
        { "VP8L", "\x2e\0\0\0\0", 5, "begins no lossless image" },
        { "VP8L", "\x2f\0\0\0\x20", 5, "begins no lossless image" },
        { "VP8L", "\x2f\0\0\0\0", 5, "before the first pixel" },
        { "VP8L", "\x2f\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff", 14, "lossless data" },
        { "ALPH", "\x01", 1, "before its image" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bytes = 12 + put_chunk(file + 12, cases[i].name, cases[i].data, cases[i].bytes);
        end_webp(file, bytes);
        expect_bad_image(file, bytes, BRIM__RGB, cases[i].says);
    }
    /* a length that leads behind the end of all numbers */
    put_chunk(file + 12, "JUNK", "", 0);
    memset(file + 16, 0xff, 4);
    memset(file + 4, 0xff, 4);
    expect_bad_image(file, sizeof file, BRIM__RGB, "before its image");
}

/* ---------------------------------------------------------- piece by piece */

enum { LARGE = 2000 }; /* so wide and high, an image is decoded in four pieces */

static int go_on(void *user) {
    (void)user;
    return 0;
}

/* Decodes so many rows from the top: how many pieces that took. It is looked whether to stop
 * after each of them, and after each row. */
static uint32_t count_pieces(const struct webp *webp, uint32_t height, struct decoded *decoded) {
    struct brim__input input;
    atomic_bool flag = false;
    struct brim__stop stop = { .flag = &flag, .asked = go_on };
    brim__input_memory(&input, webp->data, webp->bytes);
    input.stop = &stop;
    const struct region region = { 0, 0, LARGE, height };
    assert_int_equal(decode_input(&input, BRIM__RGBA, &region, false, 0, decoded), BRIM_OK);
    return stop.looks - height;
}

static void of_a_large_image_no_more_is_decoded_than_the_region(void **state) {
    (void)state;
    static const size_t chosen[] = { 0, 3, 6 }; /* lossy, with alpha, lossless */
    uint64_t random = 29;
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        const bool alpha = kinds[chosen[i]].alpha;
        struct webp webp;
        struct decoded all, top;
        int width, height;
        make_webp(chosen[i], LARGE, LARGE, &random, &webp);
        uint8_t *whole = WebPDecodeRGBA(webp.data, webp.bytes, &width, &height);
        assert_non_null(whole);
        assert_in_range(count_pieces(&webp, LARGE, &all), 4, 5);
        check_region(whole, LARGE, &all, BRIM__RGBA, alpha, &(struct region){ 0, 0, LARGE, LARGE });
        assert_in_range(count_pieces(&webp, 100, &top), 1, 2);
        check_region(whole, LARGE, &top, BRIM__RGBA, alpha, &(struct region){ 0, 0, LARGE, 100 });
        decoded_free(&all);
        decoded_free(&top);
        WebPFree(whole);
        free(webp.data);
    }
}

/* libwebp says of it, piece by piece, that the user aborted: that is no interrupt. */
static void alpha_that_ends_too_early_is_damage(void **state) {
    (void)state;
    uint64_t random = 30;
    struct webp webp;
    int width, height;
    make_webp(3, LARGE, LARGE / 2, &random, &webp);
    uint8_t *alpha = webp.data + 30, *file = calloc(1, webp.bytes);
    assert_non_null(file);
    assert_memory_equal(alpha, "ALPH", 4);
    const size_t alpha_bytes = alpha[4] | alpha[5] << 8 | alpha[6] << 16;
    const size_t rest = 38 + alpha_bytes + (alpha_bytes & 1);
    size_t bytes = begin_webp(file, 0x10, LARGE, LARGE / 2);
    bytes += put_chunk(file + bytes, "ALPH", alpha + 8, alpha_bytes / 2);
    memcpy(file + bytes, webp.data + rest, webp.bytes - rest);
    bytes += webp.bytes - rest;
    end_webp(file, bytes);
    assert_null(WebPDecodeRGBA(file, bytes, &width, &height));
    expect_bad_image(file, bytes, BRIM__RGBA, "the data is damaged");
    free(file);
    free(webp.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_are_those_of_the_whole_image),
        cmocka_unit_test(of_an_animation_the_first_frame_is_taken),
        cmocka_unit_test(the_orientation_is_looked_for_on_request),
        cmocka_unit_test(a_bomb_of_chunks_is_refused),
        cmocka_unit_test(libwebp_takes_what_the_header_says),
        cmocka_unit_test(a_small_file_that_asks_for_much_is_known_to),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(of_damaged_data_the_rows_before_the_damage_come),
        cmocka_unit_test(random_damage_is_borne_or_refused),
        cmocka_unit_test(wrong_headers_are_refused),
        cmocka_unit_test(of_a_large_image_no_more_is_decoded_than_the_region),
        cmocka_unit_test(alpha_that_ends_too_early_is_damage),
    };
    return cmocka_run_group_tests(tests, begin_tests_in_memory, end_tests);
}
