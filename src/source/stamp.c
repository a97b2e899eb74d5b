/*
 * stamp.c: has what samples are made of changed? Of samples that are files, and of
 * sources side by side.
 *
 * A source of paths is asked for them as whoever reads the files would ask: by fetching
 * records, whose blobs name them. All samples are looked at in runs, so that memory does
 * not grow with their number. A record that cannot be fetched is a bad sample with and
 * without a cache; among all samples it counts as one that lacks its files.
 */
#include "source/folder.h"

/* Of all files that one record names. */
static brim_status stamp_record(const struct brim__source *source, const uint8_t *record,
                                bool may_lack, uint64_t *stamp, const char **last) {
    brim_status status = BRIM_OK;
    for (uint32_t f = 0; f < source->field_count && status == BRIM_OK; f++) {
        struct brim__blob blob;
        uint64_t own;
        if (!source->field[f].deferred) {
            continue;
        }
        memcpy(&blob, record + source->field[f].view.offset, sizeof blob);
        assert(blob.path != NULL);
        status = brim__file_stamp(blob.path, may_lack, &own);
        *stamp = brim__hash_words(*stamp, own, f);
        *last = blob.path;
    }
    return status;
}

static brim_status stamp_run(const struct brim__source *source, uint64_t sample, uint64_t count,
                             uint8_t *buffer, bool may_lack, uint64_t *stamp, const char **last,
                             uint64_t *got) {
    const brim_call call = { .size = sizeof call, .sample = sample };
    const uint8_t *records = NULL;
    *got = 0;
    brim_status status = source->ops->fetch(source, &call, count, buffer, &records, got);
    if (status == BRIM_CORRUPT && may_lack) {
        *stamp = brim__hash_words(*stamp, 0, BRIM__ALL_SAMPLES);
        *got = 1;
        return BRIM_OK;
    }
    for (uint64_t i = 0; i < *got && status == BRIM_OK; i++) {
        status = stamp_record(source, records + i * source->pitch, may_lack, stamp, last);
    }
    return status;
}

brim_status brim__paths_stamp(const struct brim__source *source, uint64_t sample, uint8_t *buffer,
                              const struct brim__opening *opening, uint64_t *stamp) {
    const char *last = "";
    uint64_t got, told_ns = brim__now();
    brim_status status = BRIM_OK;
    *stamp = 0;
    if (sample != BRIM__ALL_SAMPLES) {
        return stamp_run(source, sample, 1, buffer, false, stamp, &last, &got);
    }
    for (uint64_t s = 0; s < source->count && status == BRIM_OK; s += got) {
        status = stamp_run(source, s, brim__min(source->most_run, source->count - s), buffer, true,
                           stamp, &last, &got);
        if (status == BRIM_OK) {
            status =
                brim__probe_tell(opening, "looking at", last, s + got, source->count, &told_ns);
        }
    }
    return status;
}

/* ------------------------------------------------------------ side by side */

brim_status brim__sources_stamp(struct brim__source *const *sources, uint32_t count,
                                uint64_t sample, uint8_t *const *buffers, uint64_t *stamp) {
    brim_status status = BRIM_OK;
    *stamp = 0;
    for (uint32_t s = 0; s < count && status == BRIM_OK; s++) {
        uint64_t own = 0;
        if (sources[s]->ops->stamp != NULL) {
            status = sources[s]->ops->stamp(sources[s], sample, buffers[s], NULL, &own);
            *stamp = brim__hash_words(*stamp, own, s);
        }
    }
    return status;
}

static bool has_deferred(const struct brim__source *source) {
    bool deferred = false;
    for (uint32_t f = 0; f < source->field_count; f++) {
        deferred = deferred || source->field[f].deferred;
    }
    return deferred;
}

static brim_status stamp_all(const struct brim__source *source, brim_budget *budget,
                             const struct brim__opening *opening, uint64_t *stamp) {
    uint8_t *buffer = NULL;
    brim_status status = BRIM_OK;
    if (has_deferred(source)) {
        buffer = brim__alloc(budget, brim__source_buffer(source, source->most_run), &status);
    }
    if (status == BRIM_OK) {
        status = source->ops->stamp(source, BRIM__ALL_SAMPLES, buffer, opening, stamp);
    } else {
        status = brim__fail_within(status, "looking at the files of all samples");
    }
    brim__free(buffer);
    return status;
}

uint64_t brim__sources_stamp_bytes(struct brim__source *const *sources, uint32_t count) {
    uint64_t most = 0;
    for (uint32_t s = 0; s < count; s++) {
        if (has_deferred(sources[s])) {
            const uint64_t buffer = brim__source_buffer(sources[s], sources[s]->most_run);
            most = brim__max(most, brim__alloc_bytes(buffer));
        }
    }
    return most;
}

brim_status brim__sources_stamp_all(struct brim__source *const *sources, uint32_t count,
                                    brim_budget *budget, brim_progress_callback *progress,
                                    void *progress_user, uint64_t *stamp) {
    const struct brim__opening opening = { .progress = progress, .progress_user = progress_user };
    brim_status status = BRIM_OK;
    *stamp = 0;
    for (uint32_t s = 0; s < count && status == BRIM_OK; s++) {
        uint64_t own = 0;
        if (sources[s]->ops->stamp != NULL) {
            status = stamp_all(sources[s], budget, &opening, &own);
            *stamp = brim__hash_words(*stamp, own, s);
        }
    }
    return status;
}
