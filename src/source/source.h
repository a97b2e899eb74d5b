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
 * bytes apart. A source takes its memory when it is opened, from the opening's
 * arena; fetching takes none, and is safe from any number of threads.
 *
 * A source that reads files says two things instead of how to fetch:
 *
 *     locate(sample, count)  -> ranges: which bytes of which file the samples are
 *     parse(range, bytes)    -> a record
 *
 * and brim__source_fetch puts them together: it locates, reads neighbouring ranges with
 * one read into the buffer (or uses a map as it lies), and parses. Without `parse` the
 * bytes are the records. So the same ranges can be read ahead (brim__source_advise does),
 * merged, or brought from elsewhere, without the source's knowledge. A sample is one
 * range, and a function of its bytes alone: neither epoch nor random numbers enter.
 *
 * All memory of a fetch is the buffer, which the caller owns. Its size is known when the
 * source is open and bounds what is read and parsed at once: at most BRIM__MOST_RANGES
 * ranges that are parsed, and `range_bytes` bytes from the first to the last of them.
 * Records and what they point to stay valid until the buffer is used again.
 *
 *     buffer: | record | record | ... | range_bytes: as read | work | work | ... | scratch |
 *
 * A failure of `locate` is that of its first sample, or of all: later samples that cannot
 * be located end the run before them. A failing read is that of all samples of the run.
 * A record that cannot be parsed ends the run; if it is the first one, fetching fails.
 * After a failure the buffer holds nothing, and nothing has to be given back.
 *
 * Opening reads headers alone. A source whose samples must be held in memory, since
 * they are compressed, says when it is opened how much that is (held_bytes), and takes
 * and fills it when it is loaded. So a plan counts what loading will take, and takes none
 * of it.
 *
 * A dense field is a view into the record. Of any other form the record holds,
 * at view.offset, a brim__span: where the sample's elements lie (after the
 * records in the same buffer, or in memory that stays) and how many there are;
 * view.shape.dim[0] is the bound that the span's count never exceeds.
 *
 *     buffer: | record | record | ... | extra_bytes: what spans point to |
 *
 * (of a source that parses, the bytes that were read and its work memory)
 *
 * A field of bytes may be deferred: the record then holds, at view.offset, a
 * brim__deferred, which says where the bytes are to be read. An image's decoder reads
 * them through a window and stops where the crop ends; other steps
 * read all of them (transform/program.c).
 *
 * A stream has no numbers to fetch by: its samples are pulled one after the
 * other by one thread at a time.
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

/* What a source is opened with. */
struct brim__opening {
    struct brim__arena *arena;
    const brim_binding *bindings;
    size_t binding_count;
    const char *index_dir;            /* where indexes are kept; NULL: in the user's home */
    bool trust_foreign;               /* those that other users could have written are used too */
    brim_progress_callback *progress; /* NULL: it is not told */
    void *progress_user;
    struct brim__serial **serials; /* list of the plan, which ends them */
    struct brim__index **indexes;  /* list of the plan, newest first; or NULL */
};

/* The lock of a function that must not run on two threads at once: one for a
 * name, however often the pipeline uses it. */
struct brim__serial {
    brim__mutex mutex;
    const char *name;
    struct brim__serial *next;
};
brim_status brim__serial_find(struct brim__opening *opening, const char *name, brim__mutex **mutex);

/* The elements of a field that is not dense: contiguous, row-major, native byte
 * order, not necessarily aligned. Lies in a record at a multiple of 8. */
struct brim__span {
    const uint8_t *data;
    uint64_t count; /* in the first dimension */
};

/* Bytes that have not been read: a file, or a part of one that is open. */
struct brim__deferred {
    const char *path;              /* after the records in the same buffer; NULL: `file` */
    bool described;                /* the source's describe() tells the path: errors need not */
    const struct brim__file *file; /* open, for as long as the source */
    uint64_t offset, bytes;        /* of `file`; a path's are known when it is opened */
};
/* Makes ready to read: *file is `own`, opened here, or the source's. The bytes are
 * [*offset, *offset + *bytes) of it. Afterwards brim__file_close(own), on success. */
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
    /* open as long as the source; or closed (fd -1), since its content was inflated */
    const struct brim__file *file;
    /* the first of the bytes, where they are in memory: the file's map, or what was inflated;
     * NULL: they are to be read */
    const uint8_t *memory;
    uint64_t offset, bytes; /* of the file, or of what was inflated */
    uint64_t samples;       /* 1; of a source without `parse` that many records, `pitch` apart */
    uint32_t mark;          /* what `locate` tells `parse` */
};

struct brim__source_ops {
    /* Where the samples from `sample` on lie, at most `count` of them: ranges[0 .. *found - 1],
     * at least one and at most `most`, in the samples' order. An index may be read for it, no
     * data. Takes no memory; from any thread. Each range fits range_bytes (without `parse`:
     * the records of most_run samples); a file that is not what its index says may make it
     * lie outside the file: then reading fails. NULL: the samples do not lie in files. */
    brim_status (*locate)(const struct brim__source *source, uint64_t sample, uint64_t count,
                          struct brim__file_range *ranges, size_t most, size_t *found);
    /* Makes the record of a range's bytes. They belong to the call: they may be written over,
     * and so may the range_margin bytes after them; spans may point into them and into `work`
     * (work_bytes of the record's own, and after them scratch_bytes that do not stay). Takes
     * no memory; from any thread. NULL: the bytes are the records. */
    brim_status (*parse)(const struct brim__source *source, const struct brim__file_range *range,
                         uint8_t *bytes, uint8_t *record, uint8_t *work);
    /* brim__source_fetch where there is `locate`. call->sample is the first sample's number.
     * *got: 1 .. count. */
    brim_status (*fetch)(const struct brim__source *source, const brim_call *call, uint64_t count,
                         uint8_t *buffer, const uint8_t **records, uint64_t *got);
    /* Streams: the next samples, 1 .. count of them, waiting at most until
     * something comes or deadline_ns of brim__now(): then BRIM_STATUS_TIMEOUT. BRIM_STATUS_END at
     * the end, again and again. A bad sample (BRIM_STATUS_CORRUPT, BRIM_STATUS_CALLBACK) is
     * returned alone and the stream goes on after it. One thread at a time. */
    brim_status (*pull)(const struct brim__source *source, uint64_t count, uint64_t deadline_ns,
                        uint8_t *buffer, const uint8_t **records, uint64_t *got);
    /* Streams: makes `sample` of `epoch` the next to be pulled; NULL: it cannot,
     * and is read once. */
    brim_status (*rewind)(const struct brim__source *source, uint64_t epoch, uint64_t sample);
    /* The order will jump about; may be NULL. */
    void (*expect_random)(const struct brim__source *source);
    /* "x.npy, sample 17": what to call a sample in messages. */
    void (*describe)(const struct brim__source *source, uint64_t sample, char *text, size_t bytes);
    /* For a failure: the file that a sample is in, cut to BRIM_SOURCE_BYTES, and the byte at which
     * it begins there (BRIM_UNKNOWN: not known). Leaves the thread's failure as it is. NULL: in
     * none. */
    void (*where)(const struct brim__source *source, uint64_t sample, char *path, uint64_t *byte);
    /* The path of the file that a field of a sample is, or the first path for a field that
     * is no file, for `text` of BRIM__SAMPLE_NAME bytes. Memory that it needs meanwhile is
     * charged to the budget. NULL: samples are not files. */
    brim_status (*path)(const struct brim__source *source, uint64_t sample, uint32_t field,
                        brim_budget *budget, char *text);
    /* A hash of what the system says now of the files that `sample` is made of (their
     * stamps, base/file.h): another value means that they may have changed, the same one
     * that they have not. BRIM__ALL_SAMPLES: of all files, in their order, those that are
     * not there as such. To be asked before the sample is fetched, or a change in between
     * would go unnoticed. What a source holds of a file since it was opened (a descriptor,
     * an index, what was inflated) is no longer what another opening would read once the
     * file has changed: what is made of it from then on has a stamp that no other opening
     * sees.
     * buffer: as for a fetch of one sample, for all of most_run samples; used only by a
     * source with deferred fields. Takes no memory: a worker that asks must not wait for
     * workers. opening: for all, whom to tell; else NULL. An error of one sample (BRIM_STATUS_IO:
     * its file is gone) says nothing of the sample, only that it cannot be told from
     * another. NULL: the samples do not come from files, or come as a stream. */
    brim_status (*stamp)(const struct brim__source *source, uint64_t sample, uint8_t *buffer,
                         const struct brim__opening *opening, uint64_t *stamp);
    /* Takes source->held_bytes, charged to the budget of the opening's arena, and fills
     * them; held_bytes is then 0. Before the first fetch, where held_bytes is not 0; by one
     * thread. After a failure only close is left. NULL: nothing is ever held. */
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
    bool no_read_ahead;      /* it does not help to tell the system of ranges that come */
    bool callback;           /* runs the user's code: needs a large stack */
    bool impure;             /* it may give something else each time */
    bool random;             /* a sample depends on the epoch, or on random numbers */
    bool unversioned;        /* the caller's own, and not told from another by version= */
    const char *maker;       /* of one that is one of these: "callback @name" */
    brim__mutex *serial;     /* held while fetching; NULL: fetch from any threads at once */
    /* Hash of what the data are, as far as opening knows it: the count of samples, and
     *     npy idx cifar records tokens safetensors   types, shapes; size of each file
     *     npz                                        the same, and the member's CRC-32
     *     csv jsonl text                             columns, types; size, records of each file
     *     files MANIFEST                             as of csv and jsonl; not the paths in it
     *     files list=                                paths as they are written, labels
     *     folder                                     names below the roots, sizes when listed,
     *                                                labels
     *     array callback stream range                types, shapes, version=
     * No source enters where its files lie, their times or (but for npz) their content:
     * whether these have changed is what stamps are for. */
    uint64_t identity;
    const char *note; /* what the plan says of the samples besides their count; or NULL */
    uint32_t field_count;
    struct brim__source_field field[BRIM__MAX_FIELDS];
};

/* Bytes from the first record of a fetch of `count` samples to the last one's end. */
static inline uint64_t brim__source_span(const struct brim__source *source, uint64_t count) {
    return source->in_memory ? 0 : (count - 1) * source->pitch + source->record_bytes;
}
/* Where the extra bytes of such a fetch begin in its buffer, and all that the
 * buffer must hold. */
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
/* Tells the system that samples [sample, sample + count) will be read soon; of any source. */
void brim__source_advise(const struct brim__source *source, uint64_t sample, uint64_t count);
/* Of a source that parses: extra_bytes, from its parts and most_run. */
static inline uint64_t brim__source_parsing_bytes(const struct brim__source *source) {
    return source->range_bytes + source->most_run * source->work_bytes + source->scratch_bytes;
}

/* stamp.c: the stamps of sources side by side as one; 0 if none has files. buffers: of
 * each source, as its `stamp` wants it. */
brim_status brim__sources_stamp(struct brim__source *const *sources, uint32_t count,
                                uint64_t sample, uint8_t *const *buffers, uint64_t *stamp);
/* The same of all samples. Memory that it needs meanwhile is charged to the budget. The
 * progress function may be NULL; it is told some times a second, and may give up:
 * BRIM_STATUS_INTERRUPTED. */
brim_status brim__sources_stamp_all(struct brim__source *const *sources, uint32_t count,
                                    brim_budget *budget, brim_progress_callback *progress,
                                    void *progress_user, uint64_t *stamp);
/* A hash of what the sources' records of a sample hold now, as reading them gives it: values,
 * texts, and all bytes of files that are named; never 0. *read: bytes that were read. buffers:
 * of each source, for a fetch of one sample. Not of callbacks. */
brim_status brim__sources_content(struct brim__source *const *sources, uint32_t count,
                                  uint64_t sample, uint8_t *const *buffers, uint64_t *content,
                                  uint64_t *read);
/* What that takes of the budget meanwhile. */
uint64_t brim__sources_stamp_bytes(struct brim__source *const *sources, uint32_t count);

/* Whether the text of version= is that of its default: none was given. */
static inline bool brim__unversioned(const char *version) {
    return strcmp(version, "0") == 0;
}

/* The binding that a stage's @name means: found and of the right kind, or an
 * error that names the stage, the name and what is bound. */
brim_status brim__binding_find(const struct brim__opening *opening, const struct brim__use *use,
                               const char *name, brim_binding_kind kind, brim_binding *binding);
/* Copies a name into a field after checking that it is one (letters, digits,
 * '_', '.', '-', at most BRIM_NAME_BYTES - 1). */
brim_status brim__field_name(char to[BRIM_NAME_BYTES], const char *name);
/* Makes a name of any text: "sepal length (cm)" becomes "sepal_length_cm". What a
 * name cannot hold is one '_', and left out at the ends. Nothing may be left: "". */
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
