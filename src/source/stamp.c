/*
 * stamp.c: stamps, which show whether the files of samples have changed: for samples that are
 * files, and for sources side by side.
 *
 * The paths of a source come from fetching its records, whose deferred fields have them. All
 * samples are read in runs, so that memory does not grow with their number. A record that cannot be
 * fetched is a bad sample with and without a cache; in the stamp of all samples it counts as one
 * whose files are missing.
 */
#include "source/paths.h"

/* Stamps all files that one record refers to. */
static brim_status stamp_record(const struct brim__source *source, const uint8_t *record,
                                bool may_lack, uint64_t *stamp, const char **last) {
    brim_status status = BRIM_OK;
    for (uint32_t f = 0; f < source->field_count && status == BRIM_OK; f++) {
        struct brim__deferred deferred;
        uint64_t own;
        if (!source->field[f].deferred) {
            continue;
        }
        memcpy(&deferred, record + source->field[f].view.offset, sizeof deferred);
        assert(deferred.path != NULL);
        status = brim__file_stamp(deferred.path, may_lack, &own);
        *stamp = brim__hash_words(*stamp, own, f);
        *last = deferred.path;
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
    if (status == BRIM_STATUS_CORRUPT && may_lack) {
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
    uint64_t got, reported_ns = brim__now();
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
                brim__probe_tell(opening, "looking at", last, s + got, source->count, &reported_ns);
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

/* ----------------------------------------------------------------- content */

#define PIECE 16384 /* bytes of a file that are read at once, on the stack */

/* Hashes all bytes that a deferred field refers to. */
static brim_status hash_deferred(const struct brim__deferred *deferred, uint64_t *hash,
                                 uint64_t *read) {
    uint8_t piece[PIECE];
    struct brim__file own;
    const struct brim__file *file;
    uint64_t offset, left;
    brim_status status = brim__deferred_open(deferred, &own, &file, &offset, &left);
    if (status != BRIM_OK) {
        return status;
    }
    *read += left;
    *hash = brim__hash_words(*hash, left, 0);
    while (left > 0 && status == BRIM_OK) {
        const size_t bytes = brim__min(left, sizeof piece);
        status = brim__file_read(file, offset, piece, bytes);
        if (status == BRIM_OK) {
            *hash = brim__hash(piece, bytes, *hash);
        }
        offset += bytes;
        left -= bytes;
    }
    brim__file_close(&own);
    return status;
}

/* Hashes the elements of a dense field, in their order, and no bytes between them: in Fortran order
 * those belong to other samples. */
static uint64_t hash_dense(const struct brim__view *view, const uint8_t *record, uint64_t hash) {
    uint64_t run = brim_dtype_bytes(view->dtype); /* bytes that lie one after the other */
    uint32_t outer = view->shape.rank;            /* dimensions that are gone through */
    while (outer > 0 && view->stride[outer - 1] == (int64_t)run) {
        run *= view->shape.dim[--outer];
    }
    uint64_t at[BRIM_MAX_RANK] = { 0 };
    const uint8_t *from = record + view->offset;
    for (uint32_t d = 0; d < view->shape.rank; d++) {
        if (view->shape.dim[d] == 0) {
            return hash;
        }
    }
    for (;;) {
        hash = brim__hash(from, (size_t)run, hash);
        uint32_t d = outer;
        while (d > 0 && ++at[d - 1] == view->shape.dim[d - 1]) {
            from -= (int64_t)(view->shape.dim[d - 1] - 1) * view->stride[d - 1];
            at[--d] = 0;
        }
        if (d == 0) {
            return hash;
        }
        from += view->stride[d - 1];
    }
}

static brim_status hash_record(const struct brim__source *source, const uint8_t *record,
                               uint64_t *hash, uint64_t *read) {
    brim_status status = BRIM_OK;
    for (uint32_t f = 0; f < source->field_count && status == BRIM_OK; f++) {
        const struct brim__source_field *field = &source->field[f];
        const uint8_t *at = record + field->view.offset;
        if (field->deferred) {
            struct brim__deferred deferred;
            memcpy(&deferred, at, sizeof deferred);
            status = hash_deferred(&deferred, hash, read);
        } else if (field->form == BRIM_FORM_DENSE) {
            *hash = hash_dense(&field->view, record, *hash);
        } else {
            struct brim__span span;
            struct brim__shape unit = field->view.shape;
            uint64_t bytes = 0;
            unit.dim[0] = 1;
            memcpy(&span, at, sizeof span);
            (void)brim__shape_bytes_overflow(&unit, brim_dtype_bytes(field->view.dtype), &bytes);
            *hash = brim__hash_words(*hash, span.count, f);
            if (span.count > 0) {
                *hash = brim__hash(span.data, (size_t)(span.count * bytes), *hash);
            }
        }
    }
    return status;
}

brim_status brim__sources_content(struct brim__source *const *sources, uint32_t count,
                                  uint64_t sample, uint8_t *const *buffers, uint64_t *content,
                                  uint64_t *read) {
    const brim_call call = { .size = sizeof call, .sample = sample };
    brim_status status = BRIM_OK;
    *content = 0;
    *read = 0;
    for (uint32_t s = 0; s < count && status == BRIM_OK; s++) {
        const struct brim__source *source = sources[s];
        const uint8_t *record = NULL;
        uint64_t got = 0, own = 0;
        status = source->ops->fetch(source, &call, 1, buffers[s], &record, &got);
        if (status == BRIM_OK) {
            *read += source->is_file ? source->record_bytes : 0;
            status = hash_record(source, record, &own, read);
        }
        *content = brim__hash_words(*content, own, s);
    }
    *content += *content == 0;
    return status;
}

/* ------------------------------------------------------------- all samples */

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
