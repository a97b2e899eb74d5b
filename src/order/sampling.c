/*
 * sampling.c: balanced and weighted draws from classes.
 */
#include "order/sampling.h"

#include "order/philox.h"

#include <float.h>

#define MOST_COUNT ((uint64_t)1 << 63)
#define ONE        ((uint64_t)1 << 53) /* all weights together */

/* What a key is for. */
enum key_use { KEY_EPOCH, KEY_ROUND, KEY_CLASS };
enum draw { DRAW_CLASS, DRAW_MEMBER };

static brim_status new_sampling(const struct brim__order_site *site,
                                const struct brim__classes *classes, const char *stage,
                                struct brim__sampling **sampling) {
    if (classes->samples == 0) {
        return brim__fail(BRIM_STATUS_INVALID, "%s: there are no samples to draw from", stage);
    }
    const brim_status status = brim__arena_take(site->arena, sizeof **sampling, sampling);
    if (status == BRIM_OK) {
        (*sampling)->classes = classes;
    }
    return status;
}

brim_status brim__sampling_balanced(const struct brim__order_site *site,
                                    const struct brim__classes *classes, uint64_t length,
                                    const struct brim__sampling **sampling) {
    struct brim__sampling *made;
    const brim_status status = new_sampling(site, classes, "balance", &made);
    if (status != BRIM_OK) {
        return status;
    }
    if (length == 0 &&
        (brim__mul_overflows(classes->count, classes->largest, &length) || length > MOST_COUNT)) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "balance: %u classes times %llu members of the largest are more than "
                          "2^63 samples; give a length",
                          classes->count, (unsigned long long)classes->largest);
    }
    assert(length <= MOST_COUNT);
    made->length = length;
    made->passes = brim__divide_up(brim__divide_up(length, classes->count), classes->smallest);
    *sampling = made;
    return BRIM_OK;
}

/* Uses only sums of doubles in a fixed order and single quotients, which are the same on every
 * machine. */
static brim_status share(const struct brim__classes *classes, const double *weights,
                         uint64_t *before) {
    double sum = 0;
    for (uint32_t c = 0; c < classes->count; c++) {
        const double weight = weights == NULL ? 1 : weights[c];
        if (!(weight >= 0) || weight > DBL_MAX) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "weighted: weight %u is %g; weights are finite numbers of at least 0",
                              c + 1, weight);
        }
        sum += weight;
    }
    if (!(sum > 0) || sum > DBL_MAX) {
        return brim__fail(BRIM_STATUS_INVALID,
                          "weighted: the weights add up to %g; one must be above 0, and their sum "
                          "finite",
                          sum);
    }
    double so_far = 0;
    for (uint32_t c = 0; c < classes->count; c++) {
        before[c] = (uint64_t)(so_far / sum * (double)ONE);
        so_far += weights == NULL ? 1 : weights[c];
    }
    before[classes->count] = ONE;
    return BRIM_OK;
}

brim_status brim__sampling_weighted(const struct brim__order_site *site,
                                    const struct brim__classes *classes, const double *weights,
                                    uint64_t length, const struct brim__sampling **sampling) {
    struct brim__sampling *made;
    uint64_t *before;
    brim_status status = new_sampling(site, classes, "weighted", &made);
    if (status == BRIM_OK) {
        status =
            brim__arena_take(site->arena, ((uint64_t)classes->count + 1) * sizeof *before, &before);
    }
    if (status == BRIM_OK) {
        status = share(classes, weights, before);
    }
    if (status != BRIM_OK) {
        return status;
    }
    assert(length <= MOST_COUNT);
    made->length = made->passes = length == 0 ? classes->samples : length;
    made->before = before;
    *sampling = made;
    return BRIM_OK;
}

/* ---------------------------------------------------------------- locating */

/* Replaces each lane's slot, its place in the round, by the class that this place shows. */
static void classes_of_rounds(uint32_t class_count, const uint64_t *epoch_keys,
                              const uint64_t *rounds, uint64_t *slots, size_t count) {
    for (size_t done = 0; done < count;) {
        size_t end = done + 1;
        while (end < count && rounds[end] == rounds[done] && epoch_keys[end] == epoch_keys[done]) {
            end++;
        }
        struct brim__permutation permutation;
        brim__permutation_init(&permutation, class_count,
                               brim__hash_words(epoch_keys[done], rounds[done], KEY_ROUND));
        brim__permute_run(&permutation, slots + done, end - done);
        done = end;
    }
}

void brim__balance_run(const struct brim__sampling *sampling, uint64_t key, uint64_t *epochs,
                       uint64_t *positions, size_t count) {
    const struct brim__classes *classes = sampling->classes;
    uint64_t epoch_keys[BRIM__PERMUTATION_LANES], rounds[BRIM__PERMUTATION_LANES];
    uint64_t shown[BRIM__PERMUTATION_LANES];
    struct brim__permutation_lane members[BRIM__PERMUTATION_LANES];
    assert(count <= BRIM__PERMUTATION_LANES);
    for (size_t i = 0; i < count; i++) {
        epoch_keys[i] = i > 0 && epochs[i] == epochs[i - 1]
                            ? epoch_keys[i - 1]
                            : brim__hash_words(key, epochs[i], KEY_EPOCH);
        rounds[i] = positions[i] / classes->count;
        shown[i] = positions[i] % classes->count;
    }
    classes_of_rounds(classes->count, epoch_keys, rounds, shown, count);
    for (size_t i = 0; i < count; i++) {
        const uint32_t c = (uint32_t)shown[i];
        const uint64_t size = brim__class_size(classes, c), pass = rounds[i] / size;
        epochs[i] = epochs[i] * sampling->passes + pass;
        members[i] = (struct brim__permutation_lane){
            .key = brim__hash_words(brim__hash_words(epoch_keys[i], c, KEY_CLASS), pass, 0),
            .count = size,
            .value = rounds[i] - pass * size,
        };
    }
    brim__permute_each(members, count);
    for (size_t i = 0; i < count; i++) {
        positions[i] = brim__class_member(classes, (uint32_t)shown[i], members[i].value);
    }
}

void brim__weighted_run(const struct brim__sampling *sampling, uint64_t key, uint64_t *epochs,
                        uint64_t *positions, size_t count) {
    const struct brim__classes *classes = sampling->classes;
    for (size_t i = 0; i < count; i++) {
        const uint64_t epoch = epochs[i], position = positions[i];
        const uint64_t drawn = brim__random_below(key, position, epoch, DRAW_CLASS, ONE);
        const uint32_t c = brim__interval(sampling->before, classes->count, drawn);
        const uint64_t k =
            brim__random_below(key, position, epoch, DRAW_MEMBER, brim__class_size(classes, c));
        epochs[i] = epoch * sampling->passes + position;
        positions[i] = brim__class_member(classes, c, k);
    }
}
