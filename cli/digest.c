/*
 * digest.c: XXH3 (128 bits) over a canonical form of each batch.
 *
 *     number of fields
 *     for each field: name, dtype's name, rank, dimensions, then
 *         dense: the elements, row-major
 *         else: the form, and for each row its length and its elements
 *     number of rows, sample number of each row, valid flag of each row
 *
 * Numbers are 64 bits, little-endian; a name is its length and its bytes. The
 * platforms that brim runs on are little-endian, so numbers go in as they are.
 */
#include "digest.h"

#include "output.h"
#include "value.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct digest {
    XXH3_state_t *state;
    void *read; /* a field of a device, on the host */
    uint64_t read_bytes;
};

struct digest *digest_new(void) {
    struct digest *digest = take(1, sizeof *digest);
    digest->state = XXH3_createState();
    if (digest->state == NULL || XXH3_128bits_reset(digest->state) != XXH_OK) {
        digest_free(digest);
        return NULL;
    }
    return digest;
}

void digest_free(struct digest *digest) {
    if (digest != NULL) {
        XXH3_freeState(digest->state);
        free(digest->read);
        free(digest);
    }
}

static void add_bytes(struct digest *digest, const void *bytes, size_t count) {
    if (count > 0) {
        (void)XXH3_128bits_update(digest->state, bytes, count);
    }
}

static void add_number(struct digest *digest, uint64_t number) {
    add_bytes(digest, &number, sizeof number);
}

static void add_text(struct digest *digest, const char *text) {
    const size_t length = strlen(text);
    add_number(digest, length);
    add_bytes(digest, text, length);
}

struct run {
    struct digest *digest;
    size_t element_bytes;
};

static bool add_run(void *user, const unsigned char *data, uint64_t count) {
    const struct run *run = user;
    add_bytes(run->digest, data, count * run->element_bytes);
    return true;
}

static void add_elements(struct digest *digest, const brim_field *field) {
    struct run run = { .digest = digest, .element_bytes = brim_dtype_bytes(field->dtype) };
    if (field->form == BRIM_FORM_DENSE) {
        const struct value all = value_of_batch(field);
        (void)value_walk(&all, add_run, &run);
        return;
    }
    add_number(digest, (uint64_t)field->form);
    for (int64_t row = 0; row < field->shape[0]; row++) {
        const struct value value = value_of(field, (uint64_t)row);
        add_number(digest, (uint64_t)value.shape[0]);
        (void)value_walk(&value, add_run, &run);
    }
}

/* The field `index` of a batch with its elements on the host. */
static brim_status on_host(struct digest *digest, const brim_batch *batch, uint32_t index,
                           brim_field *field) {
    *field = *brim_batch_field_at(batch, index);
    if (field->device_kind == BRIM_DEVICE_HOST) {
        return BRIM_OK;
    }
    if (digest->read == NULL || digest->read_bytes < field->bytes) {
        free(digest->read);
        digest->read_bytes = field->bytes;
        digest->read = take(field->bytes > 0 ? (size_t)field->bytes : 1, 1);
    }
    field->data = digest->read;
    return brim_batch_copy_field(batch, index, digest->read, field->bytes);
}

brim_status digest_add(struct digest *digest, const brim_batch *batch) {
    const brim_batch_info *info = brim_batch_get(batch);
    add_number(digest, info->field_count);
    for (uint32_t i = 0; i < info->field_count; i++) {
        brim_field field;
        const brim_status status = on_host(digest, batch, i, &field);
        if (status != BRIM_OK) {
            return status;
        }
        add_text(digest, field.name);
        add_text(digest, brim_dtype_name(field.dtype));
        add_number(digest, field.rank);
        for (uint32_t d = 0; d < field.rank; d++) {
            add_number(digest, (uint64_t)field.shape[d]);
        }
        add_elements(digest, &field);
    }
    add_number(digest, info->rows);
    add_bytes(digest, info->samples, info->rows * sizeof info->samples[0]);
    add_bytes(digest, info->valid, info->rows);
    return BRIM_OK;
}

const char *digest_text(const struct digest *digest, char text[DIGEST_TEXT]) {
    const XXH128_hash_t hash = XXH3_128bits_digest(digest->state);
    snprintf(text, DIGEST_TEXT, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64,
             (uint64_t)hash.low64);
    return text;
}
