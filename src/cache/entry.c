/*
 * entry.c: a cache in a program: makes an entry from fields, and fields from an entry.
 *
 * Dense fields are written directly into the block of scratch that has the entry's layout, and are
 * read from the entry as from a source's record, so a hit in memory is not copied. The span of a
 * field without a fixed length stays in scratch; a hit points that span into the entry. Images of
 * different sizes are kept as bytes (picture_bytes.c) and are images again after the cache.
 *
 * An entry comes from memory or from a file, and a file may contain anything: lengths are checked
 * before they are used.
 */
#include "cache/cache.h"

#define ALIGNMENT 16 /* of what lies in an entry */
#define STAGE     brim__stage_cache.info.name

static bool is_unsized(const struct brim__program_field *field) {
    return field->open != NULL && !brim__picture_of(field)->extent.fixed;
}

static bool is_part(const struct brim__program_field *field) {
    return field->form != BRIM_FORM_DENSE || is_unsized(field);
}

/* The most bytes of a field in an entry; false: not bounded, or too many. */
static bool field_bytes(const struct brim__program_field *field, uint64_t *bytes) {
    const struct brim__shape *shape = &field->pending.from.shape;
    if (is_unsized(field)) {
        return brim__picture_bytes_bound(brim__picture_of(field), bytes);
    }
    if (field->deferred && shape->dim[0] == UINT32_MAX) {
        return false;
    }
    return !brim__shape_bytes_overflow(shape, brim_dtype_bytes(field->pending.to), bytes) &&
           *bytes <= UINT64_MAX / 64;
}

/* Whether an image's pixels may replace it in the entry. If not, brim__cache_attach gives the
 * reason. */
static bool may_rest(const struct brim__program_field *field) {
    return field->open == NULL ||
           (brim__picture_is_open(field) ? brim__picture_check_kept(STAGE, field) == BRIM_OK
                                         : brim__picture_of(field)->extent.fixed);
}

bool brim__cache_entry_bytes(const struct brim__program *program, uint64_t *total) {
    *total = 0;
    for (uint32_t f = 0; f < program->field_count; f++) {
        const struct brim__program_field *field = &program->field[f];
        uint64_t bytes;
        if (!field_bytes(field, &bytes) || !may_rest(field)) {
            return false;
        }
        *total += brim__align(bytes, ALIGNMENT) + (is_part(field) ? sizeof(uint64_t) : 0);
    }
    *total = brim__align(*total, ALIGNMENT);
    return *total <= UINT64_MAX / 8;
}

/* --------------------------------------------------------------- attaching */

static brim_status too_large(const struct brim__program_field *field) {
    return brim__fail(
        BRIM_STATUS_INVALID,
        "cache: field '%s' has no size bound%s: put the cache after a stage that gives it a size",
        field->name, field->deferred ? " (or give probe=yes to its source)" : "");
}

/* Moves a dense field to its place in the block. It is then read from the entry. */
static brim_status keep_dense(struct brim__program *program, uint32_t f,
                              const struct brim__leaf_cache *leaf_cache, uint64_t offset) {
    struct brim__program_field *field = &program->field[f];
    const struct brim__operand to = { .where = BRIM__IN_SCRATCH,
                                      .offset = leaf_cache->block + offset };
    const brim_status status = brim__program_move(program, STAGE, f, to);
    if (status != BRIM_OK) {
        return status;
    }
    struct brim__view view = field->pending.from;
    view.offset = offset;
    brim__conversion_init(&field->pending, &view);
    field->at = (struct brim__operand){ .where = BRIM__IN_RECORD, .index = leaf_cache->record };
    field->written = NULL;
    field->images = NULL;
    field->stage = program->stage;
    return BRIM_OK;
}

/* Adds a field without a fixed length. Its span stays in its place. */
static brim_status keep_part(struct brim__program *program, uint32_t f,
                             struct brim__cache_part *part) {
    struct brim__program_field *field = &program->field[f];
    const brim_status status = brim__program_flush(program, f, true);
    if (status != BRIM_OK) {
        return status;
    }
    struct brim__shape unit = field->pending.from.shape;
    part->bound = unit.dim[0];
    unit.dim[0] = 1;
    if (brim__shape_bytes_overflow(&unit, brim_dtype_bytes(field->pending.to), &part->unit_bytes)) {
        return too_large(field);
    }
    part->span_at = field->at.offset;
    field->written = NULL; /* must not be moved to its row, because a hit does not run the step */
    field->images = NULL;
    field->stage = program->stage;
    return BRIM_OK;
}

static brim__step_run run_store;

brim_status brim__cache_attach(struct brim__cache *cache, struct brim__program *program,
                               uint32_t number, struct brim__leaf_cache *leaf_cache) {
    struct brim__picture_bytes *kept[BRIM__MAX_FIELDS] = { NULL };
    brim_status status = brim__cache_allowed(cache, program);
    if (status != BRIM_OK) {
        return status;
    }
    if (number == BRIM__MAX_CACHES) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "cache: a sample passes at most %d caches",
                          BRIM__MAX_CACHES);
    }
    for (uint32_t f = 0; f < program->field_count; f++) {
        uint64_t bytes;
        if (!field_bytes(&program->field[f], &bytes)) {
            return is_unsized(&program->field[f])
                       ? brim__picture_to_bytes(program, STAGE, f, &kept[f])
                       : too_large(&program->field[f]);
        }
    }
    struct brim__operand block = { 0 };
    (void)brim__cache_entry_bytes(program, &leaf_cache->most_bytes);
    status = brim__program_scratch(program, leaf_cache->most_bytes, &block);
    leaf_cache->cache = cache;
    leaf_cache->record = BRIM__MAX_SOURCES + number;
    leaf_cache->block = block.offset;
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        if (is_unsized(&program->field[f])) {
            status = brim__picture_to_bytes(program, STAGE, f, &kept[f]);
        }
    }
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        uint64_t bytes = 0;
        if (!is_part(&program->field[f]) && field_bytes(&program->field[f], &bytes)) {
            status = keep_dense(program, f, leaf_cache, leaf_cache->head_bytes);
            leaf_cache->head_bytes += brim__align(bytes, ALIGNMENT);
        } else if (status == BRIM_OK) {
            status = keep_part(program, f, &leaf_cache->part[leaf_cache->part_count++]);
        }
    }
    for (uint32_t i = 0; i < leaf_cache->part_count; i++) {
        leaf_cache->part[i].count_at = leaf_cache->head_bytes + i * sizeof(uint64_t);
    }
    leaf_cache->head_bytes =
        brim__align(leaf_cache->head_bytes + leaf_cache->part_count * sizeof(uint64_t), ALIGNMENT);
    struct brim__step *step = NULL;
    if (status == BRIM_OK) {
        status = brim__program_step(program, &step);
    }
    if (status != BRIM_OK) {
        return status;
    }
    step->run = run_store;
    step->self = leaf_cache;
    leaf_cache->resume = program->step_count;
    for (uint32_t f = 0; status == BRIM_OK && f < program->field_count; f++) {
        if (kept[f] != NULL) {
            status = brim__picture_from_bytes(program, f, kept[f]);
        }
    }
    cache->most_bytes = brim__max(cache->most_bytes, leaf_cache->most_bytes);
    cache->varies |= leaf_cache->part_count > 0;
    return status;
}

/* ------------------------------------------------------------------ running */

/* Whether the cache uses the stamp of a sample's files, if it was read for any cache of the sample.
 * One in memory does, or it would hide a change that the other cache sees. One in a file does only
 * if its own verify= requires it, so that the file does not depend on other caches. */
static bool looks(const struct brim__cache *cache) {
    return cache->path == NULL || cache->verify == BRIM__VERIFY_HIT;
}

static bool reads(const struct brim__cache *cache) {
    return cache->path == NULL || cache->verify == BRIM__VERIFY_CONTENT;
}

static bool may_use(const struct brim__cache *cache, const struct brim__frame *frame) {
    return (!looks(cache) || !frame->unstamped) && (!reads(cache) || !frame->unread);
}

static uint64_t stamp_of(const struct brim__cache *cache, const struct brim__frame *frame) {
    const uint64_t stamp = looks(cache) ? frame->stamp : 0;
    const uint64_t content = reads(cache) ? frame->content : 0;
    return content == 0 ? stamp : stamp == 0 ? content : brim__hash_words(stamp, content, 0);
}

static struct brim__span *span_of(const struct brim__cache_part *part,
                                  const struct brim__frame *frame) {
    return (struct brim__span *)(void *)(frame->scratch + part->span_at);
}

static uint64_t part_bytes(const struct brim__cache_part *part, uint64_t count) {
    return brim__align(count * part->unit_bytes, ALIGNMENT);
}

static void fill(const struct brim__leaf_cache *leaf_cache, const struct brim__frame *frame,
                 uint8_t *entry) {
    memcpy(entry, frame->scratch + leaf_cache->block, leaf_cache->head_bytes);
    uint64_t at = leaf_cache->head_bytes;
    for (uint32_t i = 0; i < leaf_cache->part_count; i++) {
        const struct brim__cache_part *part = &leaf_cache->part[i];
        const struct brim__span *span = span_of(part, frame);
        const uint64_t bytes = span->count * part->unit_bytes;
        const uint64_t padded = part_bytes(part, span->count);
        memcpy(entry + part->count_at, &span->count, sizeof span->count);
        if (bytes > 0) {
            memcpy(entry + at, span->data, bytes);
        }
        memset(entry + at + bytes, 0, padded - bytes); /* no old bytes get into a file */
        at += padded;
    }
}

/* Offers the sample to the tier. The sample is used whether the tier keeps it or not. */
static brim_status run_store(const struct brim__step *step, const struct brim__frame *frame) {
    const struct brim__leaf_cache *leaf_cache = step->self;
    struct brim__cache *cache = leaf_cache->cache;
    struct brim__room room;
    uint64_t bytes = leaf_cache->head_bytes;
    atomic_fetch_add_explicit(&cache->misses, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < leaf_cache->part_count; i++) {
        bytes += part_bytes(&leaf_cache->part[i], span_of(&leaf_cache->part[i], frame)->count);
    }
    if (may_use(cache, frame) &&
        cache->ops->begin(cache->tier, leaf_cache->first + frame->call.sample,
                          stamp_of(cache, frame), bytes, &room)) {
        fill(leaf_cache, frame, room.data);
        cache->ops->commit(cache->tier, &room);
    }
    return BRIM_OK;
}

/* Points the spans in scratch into the entry; false: it is not an entry of this cache. */
static bool set_spans(const struct brim__leaf_cache *leaf_cache, const struct brim__frame *frame,
                      const struct brim__found *found) {
    uint64_t at = leaf_cache->head_bytes;
    if (found->bytes < at || found->bytes > leaf_cache->most_bytes) {
        return false;
    }
    for (uint32_t i = 0; i < leaf_cache->part_count; i++) {
        const struct brim__cache_part *part = &leaf_cache->part[i];
        uint64_t count;
        memcpy(&count, found->data + part->count_at, sizeof count);
        if (count > part->bound || part_bytes(part, count) > found->bytes - at) {
            return false;
        }
        *span_of(part, frame) = (struct brim__span){ found->data + at, count };
        at += part_bytes(part, count);
    }
    return at == found->bytes;
}

bool brim__cache_enter(const struct brim__leaf_cache *leaf_cache, struct brim__frame *frame,
                       struct brim__found *found) {
    struct brim__cache *cache = leaf_cache->cache;
    if (!may_use(cache, frame) ||
        !cache->ops->find(cache->tier, leaf_cache->first + frame->call.sample,
                          stamp_of(cache, frame), frame->scratch + leaf_cache->block,
                          leaf_cache->most_bytes, found)) {
        return false;
    }
    if (!set_spans(leaf_cache, frame, found)) {
        cache->ops->done(cache->tier, found);
        return false;
    }
    frame->record[leaf_cache->record] = found->data;
    atomic_fetch_add_explicit(&cache->hits, 1, memory_order_relaxed);
    return true;
}

void brim__cache_leave(const struct brim__leaf_cache *leaf_cache, struct brim__found *found) {
    leaf_cache->cache->ops->done(leaf_cache->cache->tier, found);
}
