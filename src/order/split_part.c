/*
 * split_part.c: computes the ranks of a part, and the samples of these ranks.
 *
 * With classes the ranks of a part ascend class by class, so its positions are permuted first. A
 * part that is not shuffled then shows its classes mixed, as a part without classes does.
 */
#include "order/split_part.h"

/* What a key is for. */
enum key_use { KEY_ALL, KEY_POSITIONS, KEY_CLASS };

/* The rank of number p of the `chosen` ones that are spread over `whole`, and of number p of the
 * others. Counts are at most 2^63, so the products fit. */
static uint64_t chosen_at(uint64_t whole, uint64_t chosen, uint64_t p) {
    const unsigned __int128 ahead = (unsigned __int128)(p + 1) * whole;
    return (uint64_t)((ahead + chosen - 1) / chosen) - 1;
}

static uint64_t other_at(uint64_t whole, uint64_t chosen, uint64_t p) {
    return (uint64_t)((unsigned __int128)p * whole / (whole - chosen));
}

uint64_t brim__split_part_count(const struct brim__split_part *part) {
    /* every fold has whole / folds; the first ones share what is left */
    const uint64_t fold =
        part->folds == 0 ? 0 : part->whole / part->folds + (part->fold < part->whole % part->folds);
    switch (part->kind) {
    case BRIM__PART_VALIDATION:
        return part->validation;
    case BRIM__PART_TEST:
        return part->test;
    case BRIM__PART_FOLD:
        return fold;
    case BRIM__PART_NOT_FOLD:
        return part->whole - fold;
    case BRIM__PART_TRAIN:
        break;
    }
    return part->whole - part->validation - part->test;
}

uint64_t brim__split_part_rank(const struct brim__split_part *part, uint64_t position) {
    const uint64_t left = part->whole - part->validation; /* of a split */
    switch (part->kind) {
    case BRIM__PART_VALIDATION:
        return chosen_at(part->whole, part->validation, position);
    case BRIM__PART_TEST:
        return other_at(part->whole, part->validation, chosen_at(left, part->test, position));
    case BRIM__PART_FOLD:
        return position * part->folds + part->fold;
    case BRIM__PART_NOT_FOLD: {
        const uint64_t others = part->folds - 1, place = position % others;
        return position / others * part->folds + place + (place >= part->fold);
    }
    case BRIM__PART_TRAIN:
        break;
    }
    return other_at(part->whole, part->validation, other_at(left, part->test, position));
}

static void permute_all(uint64_t count, uint64_t key, uint64_t *positions, size_t lanes) {
    struct brim__permutation permutation;
    brim__permutation_init(&permutation, count, key);
    brim__permute_run(&permutation, positions, lanes);
}

void brim__split_part_run(const struct brim__split_part *part, uint64_t key, uint64_t *positions,
                          size_t count) {
    const struct brim__classes *classes = part->classes;
    struct brim__permutation_lane members[BRIM__PERMUTATION_LANES];
    uint32_t class_of[BRIM__PERMUTATION_LANES];
    assert(count <= BRIM__PERMUTATION_LANES);
    if (classes != NULL) {
        permute_all(brim__split_part_count(part), brim__hash_words(key, part->kind, KEY_POSITIONS),
                    positions, count);
    }
    for (size_t i = 0; i < count; i++) {
        positions[i] = brim__split_part_rank(part, positions[i]);
    }
    if (classes == NULL) {
        permute_all(part->whole, brim__hash_words(key, 0, KEY_ALL), positions, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const uint32_t c = brim__class_of_rank(classes, positions[i]);
        class_of[i] = c;
        members[i] = (struct brim__permutation_lane){
            .key = brim__hash_words(key, c, KEY_CLASS),
            .count = brim__class_size(classes, c),
            .value = positions[i] - classes->begin[c],
        };
    }
    brim__permute_each(members, count);
    for (size_t i = 0; i < count; i++) {
        positions[i] = brim__class_member(classes, class_of[i], members[i].value);
    }
}
