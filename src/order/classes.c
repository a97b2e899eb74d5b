/*
 * classes.c: from labels to classes, in one pass over the labels.
 *
 * Labels are read in blocks. Each new label gets an id, in the order of first occurrence; a hash
 * table finds it again. While there are few runs, they are kept as a list. When a table would be
 * smaller than the list, the table is taken from the arena. It first holds the id of each sample:
 *
 *     table[position] = id                while reading
 *     table[position] = rank              after the labels were sorted
 *     table[rank] = position              after this permutation was inverted
 *
 * Each step works in place, so a second table is never needed. Inverting follows the cycles of the
 * permutation and marks finished entries with the highest bit.
 */
#include "order/classes.h"

#include "order/sort.h"

#define LABELS_AT_ONCE 4096                /* also the blocks of the fingerprint */
#define FIRST_CAPACITY 256                 /* of labels and of runs; doubled as they come */
#define NARROW_MOST    ((uint64_t)1 << 31) /* the bit above is the mark */
#define NARROW_MARK    ((uint32_t)1 << 31)
#define WIDE_MARK      ((uint64_t)1 << 63)

struct met {
    int64_t label; /* first: sorted by it */
    uint64_t count;
    uint32_t id;
    uint32_t runs; /* while runs are noted */
};

struct noted_run {
    uint64_t position;
    uint32_t id;
};

/* Where the next member of a class goes. */
struct cursor {
    uint64_t rank;
    uint32_t run;
};

struct builder {
    brim_budget *budget;
    struct brim__arena *arena;
    const char *stage, *field;
    uint64_t samples;
    int64_t *labels; /* a block */
    struct met *met; /* by id, until sorted */
    uint32_t met_count, capacity;
    uint32_t *slot; /* 2 * capacity: id + 1, or 0 */
    struct noted_run *noted;
    uint64_t noted_count, noted_capacity, noted_most;
    struct cursor *cursor; /* by id */
    uint32_t last;         /* id of the sample before */
    bool in_table;
    uint32_t *narrow;
    uint64_t *wide;
    uint64_t hash;
};

static void release(struct builder *builder) {
    brim__free(builder->cursor);
    brim__free(builder->noted);
    brim__free(builder->slot);
    brim__free(builder->met);
    brim__free(builder->labels);
}

/* ------------------------------------------------------------------ labels */

static uint32_t *slot_of(uint32_t *slots, uint32_t capacity, const struct met *met, int64_t label) {
    const uint32_t mask = 2 * capacity - 1;
    uint32_t at = (uint32_t)brim__hash_words((uint64_t)label, 0, 0) & mask;
    while (slots[at] != 0 && met[slots[at] - 1].label != label) {
        at = (at + 1) & mask;
    }
    return &slots[at];
}

static brim_status grow(struct builder *builder) {
    brim_status status = BRIM_OK;
    const uint32_t capacity = builder->capacity == 0 ? FIRST_CAPACITY : 2 * builder->capacity;
    struct met *met = brim__alloc(builder->budget, (uint64_t)capacity * sizeof *met, &status);
    if (met == NULL) {
        assert(status != BRIM_OK);
        return status;
    }
    uint32_t *slot = brim__alloc(builder->budget, 2 * (uint64_t)capacity * sizeof *slot, &status);
    if (slot == NULL) {
        assert(status != BRIM_OK);
        brim__free(met);
        return status;
    }
    for (uint32_t id = 0; id < builder->met_count; id++) {
        met[id] = builder->met[id];
        *slot_of(slot, capacity, met, met[id].label) = id + 1;
    }
    brim__free(builder->slot);
    brim__free(builder->met);
    builder->met = met;
    builder->slot = slot;
    builder->capacity = capacity;
    return BRIM_OK;
}

static brim_status id_of(struct builder *builder, int64_t label, uint32_t *id) {
    uint32_t *slot = slot_of(builder->slot, builder->capacity, builder->met, label);
    if (*slot == 0) {
        if (builder->met_count == BRIM__CLASS_MOST) {
            return brim__fail(BRIM_STATUS_UNSUPPORTED,
                              "%s: field '%s' has more than %d different values: it does not look "
                              "like a label",
                              builder->stage, builder->field, BRIM__CLASS_MOST);
        }
        if (builder->met_count == builder->capacity) {
            const brim_status status = grow(builder);
            if (status != BRIM_OK) {
                return status;
            }
            slot = slot_of(builder->slot, builder->capacity, builder->met, label);
        }
        builder->met[builder->met_count] = (struct met){ .label = label, .id = builder->met_count };
        *slot = ++builder->met_count;
    }
    *id = *slot - 1;
    return BRIM_OK;
}

/* ----------------------------------------------------------------- reading */

static void set_id(struct builder *builder, uint64_t position, uint32_t id) {
    if (builder->narrow != NULL) {
        builder->narrow[position] = id;
    } else {
        builder->wide[position] = id;
    }
}

/* Called when there are too many runs: takes the table and copies the runs so far, up to
 * `position`, into it. */
static brim_status change_to_table(struct builder *builder, uint64_t position) {
    uint64_t bytes;
    const bool is_narrow = builder->samples <= NARROW_MOST;
    if (brim__mul_overflows(builder->samples, is_narrow ? 4 : 8, &bytes)) {
        bytes = UINT64_MAX; /* refused, with its size */
    }
    const brim_status status = is_narrow ? brim__arena_take(builder->arena, bytes, &builder->narrow)
                                         : brim__arena_take(builder->arena, bytes, &builder->wide);
    if (status != BRIM_OK) {
        return brim__fail_within(status,
                                 "%s: the labels in '%s' do not come in runs, so a table of %s "
                                 "bytes a sample is needed",
                                 builder->stage, builder->field, is_narrow ? "4" : "8");
    }
    for (uint64_t r = 0; r < builder->noted_count; r++) {
        const uint64_t end =
            r + 1 < builder->noted_count ? builder->noted[r + 1].position : position;
        for (uint64_t i = builder->noted[r].position; i < end; i++) {
            set_id(builder, i, builder->noted[r].id);
        }
    }
    brim__free(builder->noted);
    builder->noted = NULL;
    builder->in_table = true;
    return BRIM_OK;
}

static brim_status note_run(struct builder *builder, uint64_t position, uint32_t id) {
    if (builder->noted_count == builder->noted_capacity) {
        brim_status status;
        const uint64_t capacity =
            brim__min(brim__max(2 * builder->noted_capacity, FIRST_CAPACITY), builder->noted_most);
        struct noted_run *noted = brim__alloc(builder->budget, capacity * sizeof *noted, &status);
        if (noted == NULL) {
            assert(status != BRIM_OK);
            return status;
        }
        for (uint64_t r = 0; r < builder->noted_count; r++) {
            noted[r] = builder->noted[r];
        }
        brim__free(builder->noted);
        builder->noted = noted;
        builder->noted_capacity = capacity;
    }
    builder->noted[builder->noted_count++] = (struct noted_run){ .position = position, .id = id };
    builder->met[id].runs++;
    return BRIM_OK;
}

static brim_status enter_label(struct builder *builder, uint64_t position, int64_t label) {
    if (position == 0 || builder->met[builder->last].label != label) {
        brim_status status = id_of(builder, label, &builder->last);
        if (status == BRIM_OK && !builder->in_table) {
            status = builder->noted_count < builder->noted_most
                         ? note_run(builder, position, builder->last)
                         : change_to_table(builder, position);
        }
        if (status != BRIM_OK) {
            return status;
        }
    }
    if (builder->in_table) {
        set_id(builder, position, builder->last);
    }
    builder->met[builder->last].count++;
    return BRIM_OK;
}

static brim_status read_labels(struct builder *builder, const struct brim__order_site *site) {
    for (uint64_t done = 0; done < builder->samples;) {
        const uint64_t some = brim__min(builder->samples - done, LABELS_AT_ONCE);
        brim_status status = site->labels(site->user, builder->field, done, some, builder->labels);
        if (status != BRIM_OK) {
            return brim__fail_within(status, "%s", builder->stage);
        }
        builder->hash = brim__hash(builder->labels, some * sizeof *builder->labels, builder->hash);
        for (uint64_t i = 0; i < some; i++, done++) {
            status = enter_label(builder, done, builder->labels[i]);
            if (status != BRIM_OK) {
                return status;
            }
        }
    }
    return BRIM_OK;
}

/* Takes the memory for reading the labels, and reads them. */
static brim_status collect(struct builder *builder, const struct brim__order_site *site) {
    brim_status status = grow(builder);
    if (status != BRIM_OK) {
        return status;
    }
    builder->labels = brim__alloc(builder->budget,
                                  brim__max(brim__min(builder->samples, LABELS_AT_ONCE), 1) *
                                      sizeof *builder->labels,
                                  &status);
    if (builder->labels == NULL) {
        return status;
    }
    /* as many as take no more than the table would */
    const uint64_t table_bytes =
        brim__min(builder->samples, (uint64_t)1 << 32) * (builder->samples <= NARROW_MOST ? 4 : 8);
    builder->noted_most =
        brim__min(brim__max(table_bytes / sizeof(struct brim__class_run), 1), BRIM__CLASS_RUNS);
    return read_labels(builder, site);
}

/* ---------------------------------------------------------------- the rest */

static void invert_narrow(uint32_t *table, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        uint32_t before = (uint32_t)i, at = table[i];
        if ((at & NARROW_MARK) != 0) {
            continue;
        }
        while (at != i) {
            const uint32_t next = table[at];
            table[at] = before | NARROW_MARK;
            before = at;
            at = next;
        }
        table[i] = before | NARROW_MARK;
    }
    for (uint64_t i = 0; i < count; i++) {
        table[i] &= ~NARROW_MARK;
    }
}

static void invert_wide(uint64_t *table, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        uint64_t before = i, at = table[i];
        if ((at & WIDE_MARK) != 0) {
            continue;
        }
        while (at != i) {
            const uint64_t next = table[at];
            table[at] = before | WIDE_MARK;
            before = at;
            at = next;
        }
        table[i] = before | WIDE_MARK;
    }
    for (uint64_t i = 0; i < count; i++) {
        table[i] &= ~WIDE_MARK;
    }
}

static void fill_table(struct builder *builder, struct brim__classes *classes) {
    if (builder->narrow != NULL) {
        for (uint64_t i = 0; i < builder->samples; i++) {
            builder->narrow[i] = (uint32_t)builder->cursor[builder->narrow[i]].rank++;
        }
        invert_narrow(builder->narrow, builder->samples);
    } else {
        for (uint64_t i = 0; i < builder->samples; i++) {
            builder->wide[i] = builder->cursor[builder->wide[i]].rank++;
        }
        invert_wide(builder->wide, builder->samples);
    }
    classes->narrow = builder->narrow;
    classes->wide = builder->wide;
}

static brim_status fill_runs(struct builder *builder, struct brim__classes *classes) {
    struct brim__class_run *runs;
    uint32_t *first_run;
    brim_status status =
        brim__arena_take(builder->arena, builder->noted_count * sizeof *runs, &runs);
    if (status == BRIM_OK) {
        status = brim__arena_take(
            builder->arena, ((uint64_t)builder->met_count + 1) * sizeof *first_run, &first_run);
    }
    if (status != BRIM_OK) {
        return status;
    }
    uint32_t before = 0;
    for (uint32_t c = 0; c < builder->met_count; c++) {
        first_run[c] = before;
        builder->cursor[builder->met[c].id].run = before;
        before += builder->met[c].runs;
    }
    first_run[builder->met_count] = before;
    for (uint64_t r = 0; r < builder->noted_count; r++) {
        const uint64_t position = builder->noted[r].position;
        const uint64_t end =
            r + 1 < builder->noted_count ? builder->noted[r + 1].position : builder->samples;
        struct cursor *cursor = &builder->cursor[builder->noted[r].id];
        runs[cursor->run++] =
            (struct brim__class_run){ .rank = cursor->rank, .position = position };
        cursor->rank += end - position;
    }
    classes->run = runs;
    classes->first_run = first_run;
    return BRIM_OK;
}

/* Sorts the labels, lays the ranks out, and enters the place of every sample. */
static brim_status place(struct builder *builder, struct brim__classes *classes) {
    int64_t *label;
    uint64_t *begin;
    brim_status status =
        brim__arena_take(builder->arena, (uint64_t)builder->met_count * sizeof *label, &label);
    if (status == BRIM_OK) {
        status = brim__arena_take(builder->arena,
                                  ((uint64_t)builder->met_count + 1) * sizeof *begin, &begin);
    }
    if (status != BRIM_OK) {
        return status;
    }
    builder->cursor = brim__alloc(
        builder->budget, brim__max(builder->met_count, 1) * sizeof *builder->cursor, &status);
    if (builder->cursor == NULL) {
        return status;
    }
    brim__sort(builder->met, builder->met_count, sizeof *builder->met, true);
    uint64_t rank = 0;
    *classes = (struct brim__classes){
        .count = builder->met_count,
        .samples = builder->samples,
        .smallest = builder->met_count > 0 ? UINT64_MAX : 0,
        .label = label,
        .begin = begin,
    };
    for (uint32_t c = 0; c < builder->met_count; c++) {
        const struct met *met = &builder->met[c];
        label[c] = met->label;
        begin[c] = rank;
        builder->cursor[met->id].rank = rank;
        rank += met->count;
        classes->smallest = brim__min(classes->smallest, met->count);
        classes->largest = brim__max(classes->largest, met->count);
    }
    begin[builder->met_count] = rank;
    assert(rank == builder->samples);
    if (builder->in_table) {
        fill_table(builder, classes);
        return BRIM_OK;
    }
    return fill_runs(builder, classes);
}

brim_status brim__classes_read(const struct brim__order_site *site, const char *stage,
                               const char *field, const struct brim__classes **classes) {
    struct builder builder = {
        .budget = site->arena->budget,
        .arena = site->arena,
        .stage = stage,
        .field = field,
        .samples = brim__order_count(site->order),
    };
    struct brim__classes *made;
    brim_status status = brim__arena_take(site->arena, sizeof *made, &made);
    if (status == BRIM_OK) {
        status = collect(&builder, site);
    }
    if (status == BRIM_OK) {
        status = place(&builder, made);
    }
    release(&builder);
    if (status != BRIM_OK) {
        return status;
    }
    site->order->fingerprint =
        brim__hash_words(site->order->fingerprint, builder.hash, builder.samples);
    *classes = made;
    return BRIM_OK;
}
