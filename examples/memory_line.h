/*
 * memory_line.h: the common part of the examples about memory: the device, generated data, and a
 * line with the charges of each kind of memory.
 *
 *                         host KiB             page-locked KiB      opencl:0 KiB
 *                         charged     peak     charged     peak     charged     peak
 *     opened                1234.5   1234.5       392.0    392.0      1731.5   1731.5
 */
#ifndef EXAMPLES_MEMORY_LINE_H
#define EXAMPLES_MEMORY_LINE_H

#include <brim.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program if a call failed, or if what the example claims does not hold. */
static inline void must(brim_status status) {
    if (status != BRIM_OK) {
        fprintf(stderr, "%s: %s\n", brim_status_name(status), brim_detail());
        exit(1);
    }
}

static inline void must_hold(int claim, const char *otherwise) {
    if (!claim) {
        fprintf(stderr, "%s\n", otherwise);
        exit(1);
    }
}

/* Where batches are delivered. */
struct place {
    brim_device kind;
    uint32_t index;
    char name[16]; /* "opencl:0" */
};

/* What the first word says, such as cuda:0 or host; without one the first device of OpenCL,
 * or the host if there is none. */
static inline struct place choose_place(int count, char **words) {
    struct place place = { .kind = BRIM_DEVICE_OPENCL };
    uint32_t devices = 0;
    if (count > 1) {
        must(brim_device_parse(words[1], &place.kind, &place.index));
    } else if (brim_device_count(place.kind, &devices) != BRIM_OK || devices == 0) {
        printf("no device of OpenCL: on the host\n");
        place.kind = BRIM_DEVICE_HOST;
    }
    if (place.kind == BRIM_DEVICE_HOST) {
        snprintf(place.name, sizeof place.name, "host");
    } else {
        snprintf(place.name, sizeof place.name, "%s:%u", brim_device_name(place.kind),
                 (unsigned)place.index);
    }
    printf("batches are delivered on %s\n", place.name);
    return place;
}

enum { SIDE = 32, IMAGE_BYTES = SIDE * SIDE * 3 };

/* So many images of 32 x 32 pixels, drawn into `pixels`, as `array @images`. */
static inline brim_binding draw_images(uint8_t *pixels, int64_t count) {
    brim_binding images = BRIM_BINDING_INIT;
    for (int64_t i = 0; i < count * IMAGE_BYTES; i++) {
        pixels[i] = (uint8_t)(i / IMAGE_BYTES * 31 + i % IMAGE_BYTES * 7);
    }
    images.name = "images";
    images.kind = BRIM_BINDING_ARRAY;
    images.data = pixels;
    images.dtype = BRIM_DTYPE_U8;
    images.rank = 4;
    images.shape[0] = count;
    images.shape[1] = images.shape[2] = SIDE;
    images.shape[3] = 3;
    return images;
}

/* What is charged at one moment, of each kind of memory. */
struct memory {
    brim_budget_info host, pinned, device; /* device: all 0 on the host */
};

static inline struct memory memory_now(brim_runtime *runtime, const struct place *place) {
    struct memory now = { .host = BRIM_BUDGET_INFO_INIT,
                          .pinned = BRIM_BUDGET_INFO_INIT,
                          .device = BRIM_BUDGET_INFO_INIT };
    brim_budget *budget = brim_runtime_budget(runtime);
    must(brim_budget_read(budget, BRIM_MEMORY_HOST, &now.host));
    must(brim_budget_read(budget, BRIM_MEMORY_PINNED, &now.pinned));
    if (place->kind != BRIM_DEVICE_HOST) {
        must(brim_budget_read(budget, brim_device_memory(place->kind, place->index), &now.device));
    }
    return now;
}

static inline void memory_heading(const struct place *place) {
    char device[32];
    snprintf(device, sizeof device, "%s KiB",
             place->kind == BRIM_DEVICE_HOST ? "device" : place->name);
    printf("%-22s  %-19s  %-19s  %s\n", "", "host KiB", "page-locked KiB", device);
    printf("%-22s", "");
    for (int i = 0; i < 3; i++) {
        printf("  %9s%10s", "charged", "peak");
    }
    putchar('\n');
}

static inline struct memory memory_line(brim_runtime *runtime, const struct place *place,
                                        const char *when) {
    const struct memory now = memory_now(runtime, place);
    const brim_budget_info *const kinds[] = { &now.host, &now.pinned, &now.device };
    printf("%-22s", when);
    for (int i = 0; i < 3; i++) {
        printf("  %9.1f%10.1f", (double)kinds[i]->charged / 1024, (double)kinds[i]->peak / 1024);
    }
    putchar('\n');
    return now;
}

/* Whether two moments differ in nothing that is charged. */
static inline int same_memory(const struct memory *a, const struct memory *b) {
    return a->host.charged == b->host.charged && a->pinned.charged == b->pinned.charged &&
           a->device.charged == b->device.charged;
}

/* A sum over a batch of float32 that tells other batches and another order apart, wherever it
 * lies. */
static inline double batch_sum(const brim_batch *batch) {
    const brim_field *field = brim_batch_field_at(batch, 0);
    float *values = malloc(field->bytes);
    double sum = 0;
    must_hold(values != NULL, "the system refused memory");
    must(brim_batch_copy_field(batch, 0, values, field->bytes));
    for (uint64_t i = 0; i < field->bytes / sizeof(float); i++) {
        sum += (double)values[i] * (double)(i % 97 + 1);
    }
    free(values);
    return sum;
}

#endif
