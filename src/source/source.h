/*
 * source.h: sources, which read samples.
 *
 * A source has `count` samples. A sample is a record of `record_bytes` bytes in which each field is
 * a view. Fetching gives the address of a record: in the caller's memory, in a map, or in the
 * buffer that the engine passes.
 *
 *     fetch(sample, count, buffer) -> address of the first record, how many
 *
 * One fetch may give several consecutive samples; their records are `pitch` bytes apart. A source
 * takes its memory when it is opened, from the opening's arena. Fetching takes none, and is safe
 * from any number of threads.
 *
 * A source that reads files has two other functions instead of its own fetch:
 *
 *     locate(sample, count)  -> ranges: which bytes of which file the samples are
 *     parse(range, bytes)    -> a record
 *
 * and brim__source_fetch combines them: it locates the samples, reads neighbouring ranges with one
 * read into the buffer (or uses a map in place), and parses. Without `parse` the bytes are the
 * records. So ranges can be read ahead (brim__source_advise), merged, or read from elsewhere,
 * without code in the source. A sample is one range, and depends only on its bytes, not on the
 * epoch or on random numbers.
 *
 * All memory of a fetch is the buffer, which the caller owns. Its size is known when the source is
 * open, and bounds what is read and parsed at once: at most BRIM__MOST_RANGES ranges that are
 * parsed, and `range_bytes` bytes from the first to the last of them. Records, and the bytes that
 * they point to, are valid until the buffer is used again.
 *
 *     buffer: | record | record | ... | range_bytes: as read | work | work | ... | scratch |
 *
 * A failure of `locate` concerns its first sample, or all samples: a later sample that cannot be
 * located ends the run before it. A failing read concerns all samples of the run. A record that
 * cannot be parsed ends the run; if it is the first one, fetching fails. After a failure the buffer
 * has no valid record, and nothing has to be freed.
 *
 * Opening reads only headers. A source whose samples must be held in memory, because they are
 * compressed, sets held_bytes when it is opened, and takes and fills that memory when it is loaded.
 * So a plan counts the memory for loading without taking it.
 *
 * A dense field is a view into the record. For any other form the record has, at view.offset, a
 * brim__span: the address of the sample's elements (after the records in the same buffer, or in
 * memory that stays) and their count. The count never exceeds view.shape.dim[0].
 *
 *     buffer: | record | record | ... | extra_bytes: what spans point to |
 *
 * (for a source that parses, the bytes that were read and its work memory)
 *
 * A field of bytes may be deferred: the record then has, at view.offset, a brim__deferred, which
 * refers to bytes that have not been read. An image's decoder reads them through a window and stops
 * where the crop ends; other steps read all of them (transform/program.c).
 *
 * The samples of a stream have no numbers. They are pulled in order, by one thread at a time.
 */
#ifndef BRIM_SOURCE_H
#define BRIM_SOURCE_H

#include "base/file.h"
#include "base/platform.h"
#include "base/stage.h"
#include "image/decode.h"
#include "memory/alloc.h"
#include "tensor/tensor.h"

#define BRIM__MAX_FIELDS  16
#define BRIM__SAMPLE_NAME 8192  /* bytes that hold what any sample is called */
#define BRIM__READ_WINDOW 65536 /* neighbours are read together up to this many bytes */
#define BRIM__MOST_RANGES 64    /* that are looked at together */
#define BRIM__ALL_SAMPLES UINT64_MAX

struct brim__index; /* source/index.h */

/* The arguments for opening a source. */
struct brim__opening {
    struct brim__arena *arena;
    const brim_binding *bindings;
    size_t binding_count;
    const char *index_dir;            /* where indexes are kept; NULL: in the user's home */
    bool trust_foreign;               /* those that other users could have written are used too */
    brim_progress_callback *progress; /* NULL: none */
    void *progress_user;
    struct brim__serial **serials; /* list of the plan, which ends them */
    struct brim__index **indexes;  /* list of the plan, newest first; or NULL */
};

/* The lock of a function that must not run on two threads at once. There is one for each name,
 * however often the pipeline uses it. */
struct brim__serial {
    brim__mutex mutex;
    const char *name;
    struct brim__serial *next;
};
brim_status brim__serial_find(struct brim__opening *opening, const char *name, brim__mutex **mutex);

/* The elements of a field that is not dense: contiguous, row-major, native byte order, not
 * necessarily aligned. A span is at a multiple of 8 in its record. */
struct brim__span {
    const uint8_t *data;
    uint64_t count; /* in the first dimension */
};

/* Bytes that have not been read: a file, or a part of one that is open. */
struct brim__deferred {
    const char *path;              /* after the records in the same buffer; NULL: `file` */
    bool described;                /* describe() gives the path, so errors need not */
    const struct brim__file *file; /* open, for as long as the source */
    uint64_t offset, bytes;        /* of `file`; a path's are known when it is opened */
};
/* Opens the bytes for reading: they are [*offset, *offset + *bytes) of *file, which is `own`,
 * opened here, or the source's. After success the caller must call brim__file_close(own). */
brim_status brim__deferred_open(const struct brim__deferred *deferred, struct brim__file *own,
                                const struct brim__file **file, uint64_t *offset, uint64_t *bytes);

struct brim__source_field {
    char name[BRIM_NAME_BYTES];
    brim_form form;
    struct brim__view view; /* deferred: view.shape.dim[0] is the longest, UINT32_MAX if unknown */
    bool deferred;
    const struct brim__image_survey *images; /* of all images in the field; NULL: unknown */
    const char *const *class_names;          /* of a label; NULL: none */
    uint64_t class_count;
};

/* Bytes of a file that samples are made of. */
struct brim__file_range {
    /* open as long as the source; closed (fd -1) if its content was inflated */
    const struct brim__file *file;
    /* the first of the bytes, if they are in memory: the file's map, or inflated data; NULL: they
     * must be read */
    const uint8_t *memory;
    uint64_t offset, bytes; /* of the file, or of what was inflated */
    uint64_t samples;       /* 1; of a source without `parse` that many records, `pitch` apart */
    uint32_t mark;          /* passed from `locate` to `parse` */
};

struct brim__source_ops {
    /* Gives the ranges of the samples from `sample` on, at most `count` samples: ranges[0 .. *found
     * - 1], at least one and at most `most`, in the samples' order. May read an index, but no data.
     * Takes no memory; may be called from any thread. Each range fits range_bytes (without `parse`:
     * the records of most_run samples). If a file does not agree with its index, a range may be
     * outside the file; then reading fails. NULL: the samples are not in files. */
    brim_status (*locate)(const struct brim__source *source, uint64_t sample, uint64_t count,
                          struct brim__file_range *ranges, size_t most, size_t *found);
    /* Makes the record from a range's bytes. The bytes, and the range_margin bytes after them, may
     * be overwritten. Spans may point into them and into `work` (the record's work_bytes; the
     * scratch_bytes after them are temporary). Takes no memory; may be called from any thread.
     * NULL: the bytes are the records. */
    brim_status (*parse)(const struct brim__source *source, const struct brim__file_range *range,
                         uint8_t *bytes, uint8_t *record, uint8_t *work);
    /* Fetches samples; brim__source_fetch if there is `locate`. call->sample is the first sample's
     * number. *got: 1 .. count. */
    brim_status (*fetch)(const struct brim__source *source, const brim_call *call, uint64_t count,
                         uint8_t *buffer, const uint8_t **records, uint64_t *got);
    /* Streams: gives the next samples, 1 .. count of them. Waits until something comes, or until
     * brim__now() is deadline_ns: then BRIM_STATUS_TIMEOUT. At the end BRIM_STATUS_END, for every
     * call. A bad sample (BRIM_STATUS_CORRUPT, BRIM_STATUS_CALLBACK) is returned alone, and the
     * stream continues after it. One thread at a time. */
    brim_status (*pull)(const struct brim__source *source, uint64_t count, uint64_t deadline_ns,
                        uint8_t *buffer, const uint8_t **records, uint64_t *got);
    /* Streams: makes `sample` of `epoch` the next to be pulled; NULL: the stream can be read only
     * once. */
    brim_status (*rewind)(const struct brim__source *source, uint64_t epoch, uint64_t sample);
    /* Announces that samples will be read at random; may be NULL. */
    void (*expect_random)(const struct brim__source *source);
    /* The name of a sample in messages: "x.npy, sample 17". */
    void (*describe)(const struct brim__source *source, uint64_t sample, char *text, size_t bytes);
    /* For failures: the file that has a sample, cut to BRIM_SOURCE_BYTES, and the byte at which the
     * sample begins (BRIM_UNKNOWN: not known). Does not change the thread's failure. NULL: samples
     * are not in files. */
    void (*where)(const struct brim__source *source, uint64_t sample, char *path, uint64_t *byte);
    /* The path of the file that is a field of a sample, or the first path if the field is no file,
     * for `text` of BRIM__SAMPLE_NAME bytes. Temporary memory is charged to the budget. NULL:
     * samples are not files. */
    brim_status (*path)(const struct brim__source *source, uint64_t sample, uint32_t field,
                        brim_budget *budget, char *text);
    /* A hash of the present stamps (base/file.h) of the files that `sample` is made of. The same
     * value means that they have not changed; another value means that they may have changed.
     * BRIM__ALL_SAMPLES: of all files, in their order; a missing file counts as missing. It must be
     * read before the sample is fetched, or a change in between is not noticed. An open source
     * keeps data of its files (a descriptor, an index, inflated data). If a file changes, another
     * opening reads something else, so samples of this source then have a stamp that no other
     * opening has. buffer: as for a fetch of one sample, or, for all, of most_run samples; used
     * only by sources with deferred fields. Takes no memory, because a worker that calls it must
     * not wait for workers. opening: for all, for its progress function; else NULL. An error for
     * one sample (BRIM_STATUS_IO: its file is missing) only means that the sample has no stamp.
     * NULL: the samples are not from files, or are a stream. */
    brim_status (*stamp)(const struct brim__source *source, uint64_t sample, uint8_t *buffer,
                         const struct brim__opening *opening, uint64_t *stamp);
    /* Takes source->held_bytes, charged to the budget of the opening's arena, fills them, and sets
     * held_bytes to 0. If held_bytes is not 0, it must be called before the first fetch, by one
     * thread. After a failure only close may be called. NULL: nothing is ever held. */
    brim_status (*load)(struct brim__source *source, const struct brim__opening *opening);
    void (*close)(struct brim__source *source); /* also of one that was half opened */
};

struct brim__source {
    const struct brim__source_ops *ops; /* NULL: not open, nothing to close */
    void *self;                         /* in the opening's arena */
    uint64_t count;
    uint64_t record_bytes;
    uint64_t pitch;       /* between consecutive records of one fetch */
    uint64_t most_run;    /* most samples of one fetch; 1: no neighbours */
    uint64_t extra_bytes; /* of the buffer, after the records of one fetch */
    uint64_t range_bytes; /* with `parse`: of the extra bytes, for what is read, with margin, ... */
    uint64_t work_bytes;  /* ... for each of most_run records that are parsed, ... */
    uint64_t scratch_bytes;  /* ... and after the last of these */
    uint32_t range_margin;   /* bytes after a range that parsing may write */
    uint64_t held_bytes;     /* that `load` will take, in whole pages; 0: nothing is to be loaded */
    const char *held_label;  /* of what is most of them: "x.npz, a.npy" ... */
    const char *held_advice; /* ... and what to do instead of holding it */
    bool stream;             /* count is BRIM_UNKNOWN, and pull takes the place of fetch */
    bool in_memory;          /* fetch never uses the buffer */
    bool is_file;            /* what is fetched counts as read from files */
    bool no_read_ahead;      /* announcing ranges to the system does not help */
    bool callback;           /* runs the user's code: needs a large stack */
    bool impure;             /* results may differ each time */
    bool random;             /* a sample depends on the epoch, or on random numbers */
    bool unversioned;        /* an object of the caller's without version= */
    const char *maker;       /* of one that is one of these: "callback @name" */
    brim__mutex *serial;     /* held while fetching; NULL: fetch from any threads at once */
    /* Hash of the data's description, as far as opening knows it: the count of samples, and
     *     npy idx cifar records tokens safetensors   types, shapes; size of each file
     *     npz                                        the same, and the member's CRC-32
     *     csv jsonl text                             columns, types; size, records of each file
     *     files MANIFEST                             as of csv and jsonl; not the paths in it
     *     files list=                                paths as they are written, labels
     *     folder                                     names below the roots, sizes when listed,
     *                                                labels
     *     array callback stream range                types, shapes, version=
     * No source hashes the paths of its files, their times, or (except npz) their content. Stamps
     * show whether those have changed. */
    uint64_t identity;
    const char *note; /* what the plan says of the samples besides their count; or NULL */
    uint32_t field_count;
    struct brim__source_field field[BRIM__MAX_FIELDS];
};

/* Bytes from the first record of a fetch of `count` samples to the last one's end. */
static inline uint64_t brim__source_span(const struct brim__source *source, uint64_t count) {
    return source->in_memory ? 0 : (count - 1) * source->pitch + source->record_bytes;
}
/* extra: where the extra bytes of such a fetch begin in its buffer. buffer: the size of the
 * buffer. */
static inline uint64_t brim__source_extra(const struct brim__source *source, uint64_t count) {
    return brim__align(brim__source_span(source, count), BRIM__CACHE_LINE);
}
static inline uint64_t brim__source_buffer(const struct brim__source *source, uint64_t count) {
    return source->extra_bytes == 0 ? brim__source_span(source, count)
                                    : brim__source_extra(source, count) + source->extra_bytes;
}

/* fetch.c: `fetch` of a source that has `locate`. */
brim_status brim__source_fetch(const struct brim__source *source, const brim_call *call,
                               uint64_t count, uint8_t *buffer, const uint8_t **records,
                               uint64_t *got);
/* Tells the system that samples [sample, sample + count) will be read soon; for any source. */
void brim__source_advise(const struct brim__source *source, uint64_t sample, uint64_t count);
/* For a source that parses: extra_bytes, computed from its parts and most_run. */
static inline uint64_t brim__source_parsing_bytes(const struct brim__source *source) {
    return source->range_bytes + source->most_run * source->work_bytes + source->scratch_bytes;
}

/* stamp.c: combines the stamps of sources side by side; 0 if none has files. buffers: the buffer of
 * each source, as its `stamp` needs it. */
brim_status brim__sources_stamp(struct brim__source *const *sources, uint32_t count,
                                uint64_t sample, uint8_t *const *buffers, uint64_t *stamp);
/* The same for all samples. Temporary memory is charged to the budget. The progress function may be
 * NULL; it is called some times a second, and can ask to stop: BRIM_STATUS_INTERRUPTED. */
brim_status brim__sources_stamp_all(struct brim__source *const *sources, uint32_t count,
                                    brim_budget *budget, brim_progress_callback *progress,
                                    void *progress_user, uint64_t *stamp);
/* A hash of the present content of a sample's records: values, texts, and all bytes of files that
 * are given by paths; never 0. *read: bytes that were read. buffers: the buffer of each source, for
 * a fetch of one sample. Not for callbacks. */
brim_status brim__sources_content(struct brim__source *const *sources, uint32_t count,
                                  uint64_t sample, uint8_t *const *buffers, uint64_t *content,
                                  uint64_t *read);
/* The temporary memory of brim__sources_stamp_all. */
uint64_t brim__sources_stamp_bytes(struct brim__source *const *sources, uint32_t count);

/* Whether version= has its default: none was given. */
static inline bool brim__unversioned(const char *version) {
    return strcmp(version, "0") == 0;
}

/* Finds the binding of a stage's @name. If it is missing or of the wrong kind, the error names the
 * stage, the name and the existing bindings. */
brim_status brim__binding_find(const struct brim__opening *opening, const struct brim__use *use,
                               const char *name, brim_binding_kind kind, brim_binding *binding);
/* Copies a name into a field after checking that it is one (letters, digits,
 * '_', '.', '-', at most BRIM_NAME_BYTES - 1). */
brim_status brim__field_name(char to[BRIM_NAME_BYTES], const char *name);
/* Makes a name from any text: "sepal length (cm)" becomes "sepal_length_cm". Each run of characters
 * that a name cannot have becomes one '_', or is left out at the ends. The result may be "". */
void brim__field_name_of(char to[BRIM_NAME_BYTES], const char *text, size_t length);

/* The rows of the table; each is defined by its own file. */
extern const struct brim__stage brim__stage_npy;
extern const struct brim__stage brim__stage_safetensors;
extern const struct brim__stage brim__stage_jsonl;
extern const struct brim__stage brim__stage_npz;
extern const struct brim__stage brim__stage_idx;
extern const struct brim__stage brim__stage_cifar;
extern const struct brim__stage brim__stage_records;
extern const struct brim__stage brim__stage_tokens;
extern const struct brim__stage brim__stage_csv;
extern const struct brim__stage brim__stage_text;
extern const struct brim__stage brim__stage_array;
extern const struct brim__stage brim__stage_callback;
extern const struct brim__stage brim__stage_stream;
extern const struct brim__stage brim__stage_range;
extern const struct brim__stage brim__stage_folder;
extern const struct brim__stage brim__stage_files;
extern const struct brim__stage brim__stage_zip;

#endif
