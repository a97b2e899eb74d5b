/*
 * test_augment.c: the stages that change an image's pixels at random: what they draw,
 * how often, and that what they do is what the operations on pixels do.
 *
 * Images are 12 x 10 and the same in every sample, so that two samples differ by their
 * draws alone; two boxes go with each.
 */
#include "program_util.h"

#include "image/pixels.h"

#define WIDTH  12
#define HEIGHT 10
#define PIXELS (WIDTH * HEIGHT)
#define BYTES  (PIXELS * 4) /* of an image in memory */
#define MANY   400

static uint8_t original[BYTES];

static void prepare(void) {
    uint32_t random = 3;
    for (uint32_t i = 0; i < BYTES; i++) {
        random = random * 1664525 + 1013904223;
        original[i] = i % 4 == 3 ? 255 : (uint8_t)(20 + (random >> 24) * 3 / 4);
    }
}

static int read_image(void *user, const brim_call *call, brim_value *outputs, size_t count,
                      char *why, size_t why_bytes) {
    (void)user, (void)call, (void)why, (void)why_bytes;
    const int64_t channels = outputs[0].shape[2];
    for (int64_t i = 0; i < PIXELS; i++) {
        memcpy((uint8_t *)outputs[0].data + i * channels, original + i * 4, (size_t)channels);
    }
    if (count > 1) {
        static const float boxes[8] = { 1, 2, 4, 3, 0, 0, WIDTH, HEIGHT };
        memcpy(outputs[1].data, boxes, sizeof boxes);
    }
    return 0;
}

/* clang-format off */
static const brim_field_spec fields[] = {
    { sizeof(brim_field_spec), "image", BRIM_DTYPE_U8, 3, { HEIGHT, WIDTH, 3 }, 0, BRIM_FORM_DENSE, 0 },
    { sizeof(brim_field_spec), "boxes", BRIM_DTYPE_F32, 2, { 2, 4 }, 0, BRIM_FORM_DENSE, 0 },
};
static const brim_field_spec gray_fields[] = {
    { sizeof(brim_field_spec), "image", BRIM_DTYPE_U8, 3, { HEIGHT, WIDTH, 1 }, 0, BRIM_FORM_DENSE, 0 },
};
/* clang-format on */

static const brim_binding binding = { .size = sizeof(brim_binding),
                                      .name = "data",
                                      .kind = BRIM_BINDING_SOURCE,
                                      .count = 1u << 20,
                                      .fields = fields,
                                      .field_count = 2,
                                      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
                                      .read = read_image };

static struct made made;

static void open_stages(const char *stages) {
    char text[400];
    snprintf(text, sizeof text, "callback @data | %s", stages);
    if (made_open(&made, text, &binding, 1) != BRIM_OK) {
        fail_msg("%s: %s", text, brim_detail());
    }
}

/* One sample in an epoch; its image is in the row. */
static const uint8_t *run_one(uint64_t sample, uint64_t epoch) {
    uint64_t got = 0;
    made.frame.call = (brim_call){ .size = sizeof(brim_call), .sample = sample, .epoch = epoch };
    assert_int_equal(made.source.ops->fetch(&made.source, &made.frame.call, 1, made.buffer,
                                            &made.frame.record[0], &got),
                     BRIM_OK);
    memset(made.frame.scratch, 0xee, made.program.scratch_bytes);
    assert_int_equal(run_steps(&made, 0, made.program.step_count), BRIM_OK);
    return made.frame.row[0];
}

/* A copy of the original in memory, to be changed. */
static struct brim__image copy_of(uint8_t memory[BYTES]) {
    memcpy(memory, original, BYTES);
    return (struct brim__image){
        .data = memory, .width = WIDTH, .height = HEIGHT, .pixel = 4, .stride = WIDTH * 4
    };
}

static bool same(const uint8_t *row, const uint8_t memory[BYTES]) {
    for (uint32_t i = 0; i < PIXELS; i++) {
        if (memcmp(row + i * 3, memory + i * 4, 3) != 0) {
            return false;
        }
    }
    return true;
}

/* In how many of MANY samples something changed. */
static uint32_t count_changed(const char *stages) {
    uint32_t changed = 0;
    open_stages(stages);
    for (uint64_t s = 0; s < MANY; s++) {
        changed += !same(run_one(s, 0), original);
    }
    made_close(&made);
    return changed;
}

/* ------------------------------------------------------------------------- all */

static const char *const random_stages[] = {
    "color_jitter brightness=0.4 hue=0.2",
    "brightness max=0.5",
    "grayscale p=0.5",
    "gaussian_blur 5 sigma=0.5,3",
    "random_erasing p=1",
    "rotate 60",
    "trivial_augment",
};

static void test_draws_depend_on_sample_epoch_and_seed(void **state) {
    (void)state;
    for (size_t i = 0; i < BRIM__COUNT(random_stages); i++) {
        static uint8_t first[32][PIXELS * 3];
        char text[100];
        uint32_t by_sample = 0, by_epoch = 0, by_seed = 0;
        open_stages(random_stages[i]);
        for (uint64_t s = 0; s < 32; s++) {
            memcpy(first[s], run_one(s, 0), sizeof first[s]);
            by_sample += s > 0 && memcmp(first[s], first[0], sizeof first[s]) != 0;
        }
        for (uint64_t s = 0; s < 32; s++) {
            by_epoch += memcmp(first[s], run_one(s, 1), sizeof first[s]) != 0;
            assert_memory_equal(first[s], run_one(s, 0), sizeof first[s]);
        }
        made_close(&made);
        snprintf(text, sizeof text, "%s seed=1", random_stages[i]);
        open_stages(text);
        for (uint64_t s = 0; s < 32; s++) {
            by_seed += memcmp(first[s], run_one(s, 0), sizeof first[s]) != 0;
        }
        made_close(&made);
        if (by_sample < 8 || by_epoch < 8 || by_seed < 8) {
            fail_msg("%s: %u samples, %u epochs, %u seeds differ", random_stages[i], by_sample,
                     by_epoch, by_seed);
        }
    }
}

static void test_probability(void **state) {
    (void)state;
    assert_int_equal(count_changed("brightness 0.3"), MANY);
    assert_int_equal(count_changed("brightness 0.3 p=0"), 0);
    assert_int_equal(count_changed("grayscale p=0"), 0);
    static const char *const quarter[] = {
        "color_jitter brightness=1.5,2 p=0.25",
        "brightness 0.3 p=0.25",
        "grayscale p=0.25",
        "gaussian_blur 5 sigma=2 p=0.25",
        "rotate 40 50 p=0.25",
        "random_erasing 0.25 scale=0.1,0.2",
    };
    for (size_t i = 0; i < BRIM__COUNT(quarter); i++) {
        const uint32_t changed = count_changed(quarter[i]);
        if (changed < MANY / 4 - 40 || changed > MANY / 4 + 40) {
            fail_msg("%s: %u of %d", quarter[i], changed, MANY);
        }
    }
}

/* ---------------------------------------------------------------- color_jitter */

static void change(const struct brim__image *image, uint32_t kind) {
    switch (kind) {
    case 0:
        brim__image_brightness(image, 1.3);
        return;
    case 1:
        brim__image_contrast(image, 0.6);
        return;
    case 2:
        brim__image_saturation(image, 1.7);
        return;
    default:
        brim__image_hue(image, 0.15);
    }
}

static void test_jitter_in_all_orders(void **state) {
    (void)state;
    static uint8_t outcome[24][BYTES];
    uint32_t count = 0, seen[24] = { 0 };
    for (uint32_t code = 0; code < 256; code++) {
        const uint32_t order[4] = { code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 };
        if ((1u << order[0] | 1u << order[1] | 1u << order[2] | 1u << order[3]) == 15) {
            const struct brim__image image = copy_of(outcome[count++]);
            for (int i = 0; i < 4; i++) {
                change(&image, order[i]);
            }
        }
    }
    assert_int_equal(count, 24);
    open_stages("color_jitter brightness=1.3,1.3 contrast=0.6,0.6 saturation=1.7,1.7 "
                "hue=0.15,0.15");
    for (uint64_t s = 0; s < MANY; s++) {
        const uint8_t *row = run_one(s, 0);
        uint32_t hit = 0;
        while (hit < 24 && !same(row, outcome[hit])) {
            hit++;
        }
        assert_in_range(hit, 0, 23);
        seen[hit]++;
    }
    made_close(&made);
    for (uint32_t i = 0; i < 24; i++) { /* equal outcomes count for the first of them */
        bool repeated = false;
        for (uint32_t k = 0; k < i; k++) {
            repeated |= memcmp(outcome[i], outcome[k], BYTES) == 0;
        }
        assert_true(repeated || seen[i] > 0);
    }
}

static void test_jitter_ranges(void **state) {
    (void)state;
    /* 1 - 0.5 to 1 + 0.5 of a gray 100: all of 50 to 150, and evenly */
    prepare();
    for (uint32_t i = 0; i < BYTES; i++) {
        original[i] = 100;
    }
    uint32_t below = 0;
    int least = 255, most = 0;
    open_stages("color_jitter brightness=0.5");
    for (uint64_t s = 0; s < MANY; s++) {
        const int value = run_one(s, 0)[0];
        least = value < least ? value : least;
        most = value > most ? value : most;
        below += value < 100;
    }
    made_close(&made);
    assert_in_range(least, 50, 53);
    assert_in_range(most, 146, 150);
    assert_in_range(below, MANY / 2 - 50, MANY / 2 + 50);
    open_stages("color_jitter brightness=3"); /* no factor below 0 */
    for (uint64_t s = 0; s < 50; s++) {
        run_one(s, 0);
    }
    made_close(&made);
    prepare();
}

/* ---------------------------------------------------------- plain operations */

static void test_brightness_adds(void **state) {
    (void)state;
    uint8_t memory[BYTES];
    const struct brim__image image = copy_of(memory);
    open_stages("brightness -0.2");
    brim__image_add(&image, -0.2);
    assert_true(same(run_one(5, 0), memory));
    made_close(&made);
}

static void test_grayscale(void **state) {
    (void)state;
    uint8_t memory[BYTES];
    const struct brim__image image = copy_of(memory);
    brim__image_gray(&image);
    open_stages("grayscale");
    assert_true(same(run_one(5, 0), memory));
    made_close(&made);
    open_stages("grayscale channels=1");
    assert_int_equal(made.row_bytes[0], PIXELS);
    const uint8_t *row = run_one(5, 0);
    for (uint32_t i = 0; i < PIXELS; i++) {
        assert_int_equal(row[i], memory[i * 4]);
    }
    made_close(&made);
}

static void test_blur(void **state) {
    (void)state;
    uint8_t memory[BYTES];
    const struct brim__image image = copy_of(memory);
    uint8_t *scratch = aligned_memory(brim__image_blur_bytes(WIDTH, HEIGHT, 4));
    brim__image_blur(&image, 7, 1.25, scratch);
    free(scratch);
    open_stages("gaussian_blur 7 sigma=1.25");
    assert_true(same(run_one(5, 0), memory));
    made_close(&made);
    open_stages("gaussian_blur 63 sigma=30"); /* far larger than the image */
    run_one(0, 0);
    made_close(&made);
}

/* ------------------------------------------------------------- random_erasing */

/* The box around all pixels that changed; returns how many did. */
static uint32_t changed_box(const uint8_t *row, uint32_t *width, uint32_t *height) {
    uint32_t left = WIDTH, right = 0, top = HEIGHT, bottom = 0, count = 0;
    for (uint32_t i = 0; i < PIXELS; i++) {
        if (memcmp(row + i * 3, original + i * 4, 3) != 0) {
            const uint32_t x = i % WIDTH, y = i / WIDTH;
            left = x < left ? x : left;
            right = x + 1 > right ? x + 1 : right;
            top = y < top ? y : top;
            bottom = y + 1 > bottom ? y + 1 : bottom;
            count++;
        }
    }
    *width = count > 0 ? right - left : 0;
    *height = count > 0 ? bottom - top : 0;
    return count;
}

static void test_erasing_paints_a_rectangle(void **state) {
    (void)state;
    uint32_t width, height, corners = 0;
    open_stages("random_erasing p=1 scale=0.1,0.4 ratio=0.5,2 value=1,2,3");
    for (uint64_t s = 0; s < MANY; s++) {
        const uint8_t *row = run_one(s, 0);
        const uint32_t count = changed_box(row, &width, &height);
        assert_int_equal(count, width * height); /* 1 to 3 appear nowhere else */
        assert_in_range(count, 8, 58);           /* of 120, and sides are rounded */
        assert_true(width < WIDTH && height < HEIGHT);
        corners += memcmp(row + (PIXELS - 1) * 3, (const uint8_t[3]){ 1, 2, 3 }, 3) == 0;
    }
    assert_true(corners > 0); /* it reaches the last row and column */
    made_close(&made);
    open_stages("random_erasing p=1 scale=1 ratio=1"); /* never smaller than the image */
    assert_true(same(run_one(0, 0), original));
    made_close(&made);
    open_stages("random_erasing p=1 scale=0 ratio=1"); /* no area */
    assert_true(same(run_one(0, 0), original));
    made_close(&made);
}

static void test_erasing_by_noise(void **state) {
    (void)state;
    uint32_t width, height;
    uint64_t sum = 0, count = 0;
    open_stages("random_erasing p=1 scale=0.3 ratio=1 noise=yes");
    for (uint64_t s = 0; s < MANY; s++) {
        const uint8_t *row = run_one(s, 0);
        changed_box(row, &width, &height);
        assert_true(width == 6 && height == 6); /* sqrt(36) each */
        for (uint32_t i = 0; i < PIXELS; i++) {
            if (memcmp(row + i * 3, original + i * 4, 3) != 0) {
                sum += row[i * 3];
                count++;
            }
        }
    }
    made_close(&made);
    assert_in_range(sum / count, 122, 133);
}

/* --------------------------------------------------------------------- rotate */

static void test_rotate(void **state) {
    (void)state;
    static const uint8_t fill[4] = { 9, 8, 7, 255 };
    for (int bilinear = 0; bilinear < 2; bilinear++) {
        uint8_t memory[BYTES], turned[BYTES];
        double m[6];
        const struct brim__image from = copy_of(memory), to = copy_of(turned);
        brim__image_rotation(WIDTH, HEIGHT, -33.5, m);
        brim__image_affine(&from, &to, m, bilinear != 0, fill);
        open_stages(bilinear != 0 ? "rotate -33.5 exact=yes filter=bilinear fill=9,8,7"
                                  : "rotate -33.5 exact=yes fill=9,8,7");
        assert_true(same(run_one(8, 0), turned));
        made_close(&made);
    }
}

static void test_boxes_turn_with_the_image(void **state) {
    (void)state;
    open_stages("rotate 180 exact=yes on=image,boxes");
    run_one(0, 0);
    float box[8];
    memcpy(box, made.frame.row[1], sizeof box);
    static const float half[8] = { 8, 7, 11, 8, 0, 0, WIDTH, HEIGHT };
    assert_memory_equal(box, half, sizeof half);
    made_close(&made);
    /* a quarter to the left about (6, 5): (x, y) comes to (y + 1, 11 - x) */
    open_stages("rotate 90 exact=yes on=image,boxes");
    const uint8_t *row = run_one(0, 0);
    memcpy(box, made.frame.row[1], sizeof box);
    assert_true(box[0] == 3 && box[1] == 7 && box[2] == 4 && box[3] == 10);
    assert_memory_equal(row + (7 * WIDTH + 3) * 3, original + (2 * WIDTH + 3) * 4, 3);
    made_close(&made);
}

/* ------------------------------------------------------------ trivial_augment */

#define OUTCOMES 1200

static uint8_t outcomes[OUTCOMES][BYTES];
static uint8_t outcome_kind[OUTCOMES];
static uint32_t outcome_count;

static struct brim__image add_outcome(uint8_t kind) {
    assert_true(outcome_count < OUTCOMES);
    outcome_kind[outcome_count] = kind;
    return copy_of(outcomes[outcome_count++]);
}

static void add_movement(uint8_t kind, const double m[6]) {
    uint8_t memory[BYTES];
    const struct brim__image from = copy_of(memory), to = add_outcome(kind);
    brim__image_affine(&from, &to, m, false, (const uint8_t[4]){ 0, 0, 0, 255 });
}

/* torch.linspace(0, most, 31)[step] in float32: from both ends to the middle. */
static double strength(float most, int step) {
    const float width = most / 30.0f;
    return (double)(step < 15 ? width * (float)step : most - width * (float)(30 - step));
}

/* All that torchvision's TrivialAugmentWide may do, by kind. */
static void list_outcomes(void) {
    outcome_count = 0;
    add_outcome(0);
    for (int step = 0; step <= 30; step++) {
        for (int sign = -1; sign <= 1; sign += 2) {
            const double slant = sign * strength(0.99f, step), moved = (int)strength(32, step);
            uint8_t memory[BYTES];
            double m[6];
            add_movement(1, (const double[6]){ 1, slant, 0, 0, 1, 0 });
            add_movement(2, (const double[6]){ 1, 0, 0, slant, 1, 0 });
            add_movement(3, (const double[6]){ 1, 0, sign * moved, 0, 1, 0 });
            add_movement(4, (const double[6]){ 1, 0, 0, 0, 1, sign * moved });
            brim__image_rotation(WIDTH, HEIGHT, sign * 4.5 * step, m);
            add_movement(5, m);
            struct brim__image to = add_outcome(6);
            brim__image_brightness(&to, 1 + slant);
            to = add_outcome(7);
            brim__image_saturation(&to, 1 + slant);
            to = add_outcome(8);
            brim__image_contrast(&to, 1 + slant);
            to = add_outcome(9);
            const struct brim__image from = copy_of(memory);
            brim__image_sharpness(&from, &to, 1 + slant);
        }
        const struct brim__image solarized = add_outcome(11);
        brim__image_solarize(&solarized, (uint32_t)(510 - 17 * step + 1) / 2);
    }
    for (uint32_t bits = 2; bits <= 8; bits++) {
        const struct brim__image to = add_outcome(10);
        brim__image_posterize(&to, bits);
    }
    const struct brim__image contrasted = add_outcome(12), equalized = add_outcome(13);
    brim__image_autocontrast(&contrasted);
    brim__image_equalize(&equalized);
}

static void test_trivial_augment(void **state) {
    (void)state;
    uint32_t seen[14] = { 0 };
    list_outcomes();
    open_stages("trivial_augment");
    for (uint64_t s = 0; s < 2 * MANY; s++) {
        const uint8_t *row = run_one(s, 0);
        uint32_t hit = 0;
        while (hit < outcome_count && !same(row, outcomes[hit])) {
            hit++;
        }
        if (hit == outcome_count) {
            fail_msg("sample %llu is no outcome", (unsigned long long)s);
        }
        seen[outcome_kind[hit]]++;
    }
    made_close(&made);
    /* some outcomes of one kind equal some of another: a translation that leaves nothing,
     * a strength of 0; and equalize changes nothing of so few pixels */
    for (uint32_t kind = 0; kind < 13; kind++) {
        assert_true(seen[kind] > 10);
    }
}

/* --------------------------------------------------------------------- others */

static void test_gray_images(void **state) {
    (void)state;
    brim_binding gray = binding;
    gray.fields = gray_fields;
    gray.field_count = 1;
    static const char text[] =
        "callback @data | color_jitter brightness=0.4 contrast=0.4 saturation=0.4 hue=0.3 | "
        "brightness max=0.2 | grayscale | gaussian_blur 5 | random_erasing value=3 | "
        "random_erasing noise=yes | rotate 30 filter=bilinear | trivial_augment";
    assert_int_equal(made_open(&made, text, &gray, 1), BRIM_OK);
    for (uint64_t s = 0; s < MANY; s++) {
        run_one(s, 0);
    }
    made_close(&made);
}

static void test_wrong_arguments(void **state) {
    (void)state;
    static const struct {
        const char *stage, *part;
    } cases[] = {
        { "color_jitter", "nothing to change" },
        { "color_jitter hue=-0.1", "0 or more, or low,high" },
        { "color_jitter brightness=2,1", "smaller one first" },
        { "brightness", "either the value to add" },
        { "brightness 0.1 max=0.1", "either the value to add" },
        { "grayscale channels=1 p=0.5", "leave out p" },
        { "gaussian_blur 4", "an odd size, 3 or 5" },
        { "gaussian_blur 5 sigma=1,2,3", "two numbers" },
        { "rotate -5", "without the sign" },
        { "rotate 5 9 exact=yes", "one angle" },
        { "rotate 9 5", "smaller one first" },
        { "random_erasing value=1,2,3,4,5", "one for each channel" },
        { "color_jitter brightness=0.1 on=boxes", "'boxes' is not an image" },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        char text[200];
        snprintf(text, sizeof text, "callback @data | %s", cases[i].stage);
        expect_unbuilt(text, &binding, 1, BRIM_STATUS_INVALID, cases[i].part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws_depend_on_sample_epoch_and_seed),
        cmocka_unit_test(test_probability),
        cmocka_unit_test(test_jitter_in_all_orders),
        cmocka_unit_test(test_jitter_ranges),
        cmocka_unit_test(test_brightness_adds),
        cmocka_unit_test(test_grayscale),
        cmocka_unit_test(test_blur),
        cmocka_unit_test(test_erasing_paints_a_rectangle),
        cmocka_unit_test(test_erasing_by_noise),
        cmocka_unit_test(test_rotate),
        cmocka_unit_test(test_boxes_turn_with_the_image),
        cmocka_unit_test(test_trivial_augment),
        cmocka_unit_test(test_gray_images),
        cmocka_unit_test(test_wrong_arguments),
    };
    prepare();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
