/*
 * source.h: where bytes come from.
 *
 * A source has `count` samples. A sample is a record of `record_bytes` bytes in
 * which each field is a view. Fetching gives the address of a record: in the
 * caller's memory or a map, or in the buffer that the engine lends for it.
 *
 *     fetch(sample, count, buffer) -> address of the first record, how many
 *
 * Consecutive samples may come from one read: their records then lie `pitch`
 * bytes apart. A source takes all its memory when it is opened, from the
 * opening's arena; fetching takes none, and is safe from any number of threads.
 */
#ifndef BRIM_SOURCE_H
#define BRIM_SOURCE_H

#include "base/file.h"
#include "base/platform.h"
#include "base/stage.h"
#include "memory/alloc.h"
#include "tensor/tensor.h"

#define BRIM__MAX_FIELDS  16
#define BRIM__READ_WINDOW 65536 /* neighbours are read together up to this many bytes */

/* What a source is opened with. */
struct brim__opening {
    struct brim__arena *arena;
    const brim_binding *bindings;
    size_t binding_count;
    struct brim__serial **serials; /* list of the plan, which ends them */
};

/* The lock of a function that must not run on two threads at once: one for a
 * name, however often the pipeline uses it. */
struct brim__serial {
    brim__mutex mutex;
    const char *name;
    struct brim__serial *next;
};
brim_status brim__serial_find(struct brim__opening *opening, const char *name, brim__mutex **mutex);

struct brim__source_field {
    char name[BRIM_NAME_BYTES];
    struct brim__view view;
};

struct brim__source_ops {
    /* call->sample is the first sample's number. *got: 1 .. count. */
    brim_status (*fetch)(const struct brim__source *source, const brim_call *call, uint64_t count,
                         uint8_t *buffer, const uint8_t **records, uint64_t *got);
    /* The order will jump about; may be NULL. */
    void (*expect_random)(const struct brim__source *source);
    /* Samples [sample, sample + count) will be read soon; may be NULL. */
    void (*advise)(const struct brim__source *source, uint64_t sample, uint64_t count);
    /* "x.npy, sample 17": what to call a sample in messages. */
    void (*describe)(const struct brim__source *source, uint64_t sample, char *text, size_t bytes);
    void (*close)(struct brim__source *source); /* also of one that was half opened */
};

struct brim__source {
    const struct brim__source_ops *ops; /* NULL: not open, nothing to close */
    void *self;                         /* in the opening's arena */
    uint64_t count;
    uint64_t record_bytes;
    uint64_t pitch;      /* between consecutive records of one fetch */
    uint64_t most_run;   /* most samples of one fetch; 1: no neighbours */
    bool in_memory;      /* fetch never uses the buffer */
    bool is_file;        /* reads may be slow: worth advice */
    bool callback;       /* runs the user's code: needs a large stack */
    brim__mutex *serial; /* held while fetching; NULL: fetch from any threads at once */
    uint64_t identity;   /* hash of what the data are, without paths */
    uint32_t field_count;
    struct brim__source_field field[BRIM__MAX_FIELDS];
};

/* Bytes of buffer that a fetch of `count` samples needs. */
static inline uint64_t brim__source_span(const struct brim__source *source, uint64_t count) {
    return source->in_memory ? 0 : (count - 1) * source->pitch + source->record_bytes;
}

/* The binding that a stage's @name means: found and of the right kind, or an
 * error that names the stage, the name and what is bound. */
brim_status brim__binding_find(const struct brim__opening *opening, const struct brim__use *use,
                               const char *name, brim_binding_kind kind, brim_binding *binding);
/* Copies a name into a field after checking that it is one (letters, digits,
 * '_', '.', '-', at most BRIM_NAME_BYTES - 1). */
brim_status brim__field_name(char to[BRIM_NAME_BYTES], const char *name);

/* Field `index` that a callback's binding declares, with a row-major view at
 * offset 0 and its bytes. */
brim_status brim__spec_field(const brim_binding *binding, size_t index,
                             struct brim__source_field *field, uint64_t *bytes);

/* The rows of the table; each is defined by its own file. */
extern const struct brim__stage brim__stage_npy;
extern const struct brim__stage brim__stage_tokens;
extern const struct brim__stage brim__stage_array;
extern const struct brim__stage brim__stage_callback;
extern const struct brim__stage brim__stage_range;
extern const struct brim__stage brim__stage_zip;

#endif
