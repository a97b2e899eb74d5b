/*
 * table.c: the one table of stages.
 *
 * All code that finds stages by name (parser, messages, lists, adapters) reads this table. A new
 * stage is a file with its row, and a line here.
 */
#include "batching/stages.h"
#include "cache/cache.h"
#include "order/stages.h"
#include "plan/pipeline.h"
#include "source/source.h"
#include "transform/stages.h"

const struct brim__stage *const brim__stages[] = {
    /* sources */
    &brim__stage_npy,
    &brim__stage_safetensors,
    &brim__stage_jsonl,
    &brim__stage_npz,
    &brim__stage_idx,
    &brim__stage_cifar,
    &brim__stage_records,
    &brim__stage_tokens,
    &brim__stage_csv,
    &brim__stage_text,
    &brim__stage_array,
    &brim__stage_callback,
    &brim__stage_stream,
    &brim__stage_range,
    &brim__stage_folder,
    &brim__stage_files,
    &brim__stage_zip,
    /* order */
    &brim__stage_shuffle,
    &brim__stage_split,
    &brim__stage_fold,
    &brim__stage_take,
    &brim__stage_skip,
    &brim__stage_repeat,
    &brim__stage_mix,
    &brim__stage_concat,
    &brim__stage_subset,
    &brim__stage_balance,
    &brim__stage_weighted,
    /* transforms */
    &brim__stage_cast,
    &brim__stage_normalize,
    &brim__stage_layout,
    &brim__stage_reshape,
    &brim__stage_one_hot,
    &brim__stage_map,
    &brim__stage_filter,
    &brim__stage_flat_map,
    &brim__stage_unbatch,
    &brim__stage_pad,
    &brim__stage_copy,
    /* of images */
    &brim__stage_decode,
    &brim__stage_resize,
    &brim__stage_crop,
    &brim__stage_center_crop,
    &brim__stage_random_crop,
    &brim__stage_random_resized_crop,
    &brim__stage_flip,
    &brim__stage_color_jitter,
    &brim__stage_brightness,
    &brim__stage_grayscale,
    &brim__stage_gaussian_blur,
    &brim__stage_random_erasing,
    &brim__stage_rotate,
    &brim__stage_trivial_augment,
    /* batching */
    &brim__stage_batch,
    &brim__stage_bucket,
    &brim__stage_pack_sequences,
    &brim__stage_mixup,
    &brim__stage_cutmix,
    &brim__stage_batch_map,
    /* caches */
    &brim__stage_cache,
};

const size_t brim__stages_count = BRIM__COUNT(brim__stages);

const struct brim__stage *brim__stage_by_name(const char *name, size_t length) {
    for (size_t i = 0; i < brim__stages_count; i++) {
        const char *known = brim__stages[i]->info.name;
        if (strlen(known) == length && memcmp(known, name, length) == 0) {
            return brim__stages[i];
        }
    }
    return NULL;
}

size_t brim_stage_count(void) {
    return brim__stages_count;
}

const brim_stage_info *brim_stage_at(size_t index) {
    return index < brim__stages_count ? &brim__stages[index]->info : NULL;
}

const brim_argument_info *brim_stage_argument_at(const brim_stage_info *stage, size_t index) {
    if (stage == NULL || index >= stage->argument_count) {
        return NULL;
    }
    return (const brim_argument_info *)stage->arguments + index;
}

const brim_stage_info *brim_stage_find(const char *name) {
    const struct brim__stage *stage = name == NULL ? NULL : brim__stage_by_name(name, strlen(name));
    return stage == NULL ? NULL : &stage->info;
}
