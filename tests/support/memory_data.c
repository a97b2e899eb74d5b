/*
 * memory_data.c: files in all formats, arrays, callbacks, and the pipelines
 * over them. Everything is small, but a batch is several pages, so that its
 * memory shows in what is counted.
 */
#include "support/memory_data.h"

#include <stdio.h>
#include <string.h>

#define IMAGES  96 /* in two files: 40 and 56 */
#define SIDE    16
#define TOKENS  24000
#define SAMPLES 160 /* of the array and the callback sources */
#define WIDTH   96
#define LENGTH  64 /* of a window of tokens */

/* --------------------------------------------------------------- callbacks */

static float matrix[SAMPLES][WIDTH];

static const brim_field_spec read_fields[] = {
    { .size = sizeof(brim_field_spec),
      .name = "noise",
      .dtype = BRIM_DTYPE_U32,
      .rank = 1,
      .shape = { WIDTH } },
    { .size = sizeof(brim_field_spec), .name = "number", .dtype = BRIM_DTYPE_I64 },
};
static const brim_field_spec map_fields[] = {
    { .size = sizeof(brim_field_spec),
      .name = "sum",
      .dtype = BRIM_DTYPE_U32,
      .rank = 1,
      .shape = { WIDTH } },
};

static int read_sample(void *user, const brim_call *call, brim_value *outputs, size_t count,
                       char *why, size_t why_bytes) {
    (void)user, (void)count, (void)why, (void)why_bytes;
    const int64_t number = (int64_t)(call->sample * 1000 + call->epoch);
    for (uint32_t i = 0; i < WIDTH; i++) {
        const uint32_t noise = brim_call_random(call, i);
        memcpy((char *)outputs[0].data + i * sizeof noise, &noise, sizeof noise);
    }
    memcpy(outputs[1].data, &number, sizeof number);
    return 0;
}

/* Adds up all bytes of all fields, with a random number for each element. */
static int map_sample(void *user, const brim_call *call, const brim_value *inputs, size_t count,
                      brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)output_count, (void)why, (void)why_bytes;
    uint32_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        for (uint64_t k = 0; k < inputs[i].bytes; k++) {
            sum = sum * 31 + ((const uint8_t *)inputs[i].data)[k];
        }
    }
    for (uint32_t i = 0; i < WIDTH; i++) {
        const uint32_t value = sum + brim_call_random(call, i);
        memcpy((char *)outputs[0].data + i * sizeof value, &value, sizeof value);
    }
    return 0;
}

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool shut;
    uint64_t from;
    unsigned waiting;
} gate = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

void gate_shut(uint64_t from) {
    pthread_mutex_lock(&gate.mutex);
    gate.shut = true;
    gate.from = from;
    pthread_mutex_unlock(&gate.mutex);
}

void gate_open(void) {
    pthread_mutex_lock(&gate.mutex);
    gate.shut = false;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

void gate_await(unsigned waiting) {
    pthread_mutex_lock(&gate.mutex);
    while (gate.waiting < waiting) {
        pthread_cond_wait(&gate.changed, &gate.mutex);
    }
    pthread_mutex_unlock(&gate.mutex);
}

static int read_gated(void *user, const brim_call *call, brim_value *outputs, size_t count,
                      char *why, size_t why_bytes) {
    pthread_mutex_lock(&gate.mutex);
    if (gate.shut && call->sample >= gate.from) {
        gate.waiting++;
        pthread_cond_broadcast(&gate.changed);
        while (gate.shut) {
            pthread_cond_wait(&gate.changed, &gate.mutex);
        }
        gate.waiting--;
    }
    pthread_mutex_unlock(&gate.mutex);
    return read_sample(user, call, outputs, count, why, why_bytes);
}

const brim_binding memory_bindings[] = {
    { .size = sizeof(brim_binding),
      .name = "matrix",
      .kind = BRIM_BINDING_ARRAY,
      .data = matrix,
      .dtype = BRIM_DTYPE_F32,
      .rank = 2,
      .shape = { SAMPLES, WIDTH } },
    { .size = sizeof(brim_binding),
      .name = "reader",
      .kind = BRIM_BINDING_SOURCE,
      .count = SAMPLES,
      .fields = read_fields,
      .field_count = 2,
      .read = read_sample },
    { .size = sizeof(brim_binding),
      .name = "parallel",
      .kind = BRIM_BINDING_SOURCE,
      .count = SAMPLES,
      .fields = read_fields,
      .field_count = 2,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
      .read = read_sample },
    { .size = sizeof(brim_binding),
      .name = "gated",
      .kind = BRIM_BINDING_SOURCE,
      .count = SAMPLES,
      .fields = read_fields,
      .field_count = 2,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
      .read = read_gated },
    { .size = sizeof(brim_binding),
      .name = "serial",
      .kind = BRIM_BINDING_MAP,
      .fields = map_fields,
      .field_count = 1,
      .map = map_sample },
    { .size = sizeof(brim_binding),
      .name = "concurrent",
      .kind = BRIM_BINDING_MAP,
      .fields = map_fields,
      .field_count = 1,
      .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
      .map = map_sample },
};
const size_t memory_binding_count = sizeof memory_bindings / sizeof memory_bindings[0];

/* --------------------------------------------------------------- pipelines */

const struct recipe recipes[] = {
    { "npy", "npy $/a.npy $/b.npy | shuffle seed=5 | normalize imagenet | layout chw | batch 24" },
    { "zip", "zip (npy $/a.npy $/b.npy name=image) (npy $/labels.npy name=label) | shuffle | "
             "cast float32 on=image | one_hot 10 on=label | batch 40 micro=24" },
    { "tokens", "tokens $/plain.bin length=64 | shuffle seed=1 | cast int64 | batch 64" },
    { "llmc", "tokens $/llmc.bin length=64 stride=48 | batch 200" },
    { "megatron", "tokens $/mega.bin length=64 | shuffle seed=3 | cast int64 | batch 64" },
    { "mapped", "npy $/a.npy $/b.npy map=yes | shuffle seed=6 | cast float32 | batch 24" },
    { "mix", "mix 0.6 (npy $/a.npy | shuffle seed=1) 0.4 (npy $/b.npy | repeat 3) length=150 | "
             "cast float32 | batch 24" },
    { "callback", "callback @reader | shuffle seed=8 | map @concurrent | map @serial | batch 100" },
    { "array", "array @matrix | shuffle | normalize mean=1 std=2 | batch 120" },
    { "pad", "npy $/a.npy $/b.npy | cast float32 | batch 20 per=rank remainder=pad" },
};
const size_t recipe_count = sizeof recipes / sizeof recipes[0];

const char *expand(const char *text, char expanded[TEXT_BYTES]) {
    const struct path directory = in_directory("");
    const size_t length = strlen(directory.text) - 1; /* without its slash */
    size_t used = 0;
    for (; *text != '\0'; text++) {
        assert_true(used + length + 1 < TEXT_BYTES);
        if (*text == '$') {
            memcpy(expanded + used, directory.text, length);
            used += length;
        } else {
            expanded[used++] = *text;
        }
    }
    expanded[used] = '\0';
    return expanded;
}

const char *recipe_text(const char *name, char text[TEXT_BYTES]) {
    for (size_t i = 0; i < recipe_count; i++) {
        if (strcmp(recipes[i].name, name) == 0) {
            return expand(recipes[i].text, text);
        }
    }
    fail_msg("there is no recipe \"%s\"", name);
    return NULL;
}

/* ------------------------------------------------------------------- files */

static void write_llmc(const uint16_t *tokens, size_t count) {
    static struct {
        uint32_t header[256];
        uint16_t tokens[TOKENS];
    } file = { .header = { 20240520, 1 } };
    file.header[2] = (uint32_t)count;
    memcpy(file.tokens, tokens, count * sizeof tokens[0]);
    write_file("llmc.bin", &file, sizeof file.header + count * sizeof tokens[0]);
}

/* One sequence and one document more than there are sequences: its end. */
static void write_megatron(const uint16_t *tokens, size_t count) {
    unsigned char index[34 + 4 + 8 + 16] = "MMIDIDX";
    const uint64_t version = 1, sequences = 1, documents = 2;
    const uint8_t dtype = 8; /* uint16 */
    const int32_t length = (int32_t)count;
    const int64_t pointer = 0, document[2] = { 0, 1 };
    memcpy(index + 9, &version, 8);
    memcpy(index + 17, &dtype, 1);
    memcpy(index + 18, &sequences, 8);
    memcpy(index + 26, &documents, 8);
    memcpy(index + 34, &length, 4);
    memcpy(index + 38, &pointer, 8);
    memcpy(index + 46, document, 16);
    write_file("mega.idx", index, sizeof index);
    write_file("mega.bin", tokens, count * sizeof tokens[0]);
}

static void write_files(void) {
    static uint8_t images[IMAGES][SIDE][SIDE][3], labels[IMAGES];
    static uint16_t tokens[TOKENS];
    fill_random(images, sizeof images, 1);
    fill_random(labels, sizeof labels, 2);
    fill_random(tokens, sizeof tokens, 3);
    for (size_t i = 0; i < IMAGES; i++) {
        labels[i] %= 10;
    }
    for (size_t i = 0; i < SAMPLES * WIDTH; i++) {
        ((float *)matrix)[i] = (float)i * 0.37f - 100;
    }
    write_npy("a.npy", BRIM_DTYPE_U8, 4, (const int64_t[]){ 40, SIDE, SIDE, 3 }, images[0]);
    write_npy("b.npy", BRIM_DTYPE_U8, 4, (const int64_t[]){ IMAGES - 40, SIDE, SIDE, 3 },
              images[40]);
    write_npy("labels.npy", BRIM_DTYPE_U8, 1, (const int64_t[]){ IMAGES }, labels);
    write_file("plain.bin", tokens, sizeof tokens);
    write_llmc(tokens, TOKENS / 2);
    write_megatron(tokens, TOKENS);
}

int begin_memory_tests(void **state) {
    const int failed = begin_tests(state);
    if (failed == 0) {
        write_files();
    }
    return failed;
}

int begin_memory_tests_in_memory(void **state) {
    const int failed = begin_tests_in_memory(state);
    if (failed == 0) {
        write_files();
    }
    return failed;
}
