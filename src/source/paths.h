/*
 * paths.h: samples that are files of their own, named by paths.
 *
 *     paths_list.c      the stage `files`, and paths from the caller
 *     paths_manifest.c  paths from the columns of a CSV file or the keys of JSON lines
 *     paths_columns.c   opens the manifest's own source, and finds the paths' column
 *     paths_probe.c     the header of one image, and what many of them need
 *     stamp.c           the stamps of samples that are files, and of sources side by side
 *
 * What the stages `folder` and `files` share: a field of such a file's bytes is deferred,
 * and all that is known of it comes from its path and its header.
 */
#ifndef BRIM_PATHS_H
#define BRIM_PATHS_H

#include "source/source.h"

#include <limits.h>

/* ----------------------------------------------------------- paths_probe.c */

/* What many files need at most, as it is kept on disk. */
struct brim__probed {
    uint64_t images, others; /* files that are images, and that are none */
    uint64_t largest;        /* bytes of the largest file */
    struct brim__image_band band[BRIM__IMAGE_BANDS];
};
/* Looks at one file. window: BRIM__INPUT_WINDOW bytes, or NULL: only its size.
 * A file that cannot be read for good, or is no image, is counted, not a failure. */
brim_status brim__probe(struct brim__probed *probed, const char *path, uint64_t sample,
                        uint8_t *window, uint64_t *bytes, enum brim__image_format *format);
/* As a field tells it, in the arena; NULL: no file was an image. */
brim_status brim__probed_survey(const struct brim__probed *probed, struct brim__arena *arena,
                                const struct brim__image_survey **survey);
/* Can this be true of that many files? What was read from a disk is asked this first. */
bool brim__probed_plausible(const struct brim__probed *probed, uint64_t files);
#define BRIM__PROBED_BYTES (UINT64_C(1) << 48) /* every size is below; a larger file is no image */

/* Tells the opening's progress function at most every 100 ms, and returns BRIM_STATUS_INTERRUPTED
 * if it wants no more. *reported_ns: at first brim__now(). */
brim_status brim__probe_tell(const struct brim__opening *opening, const char *what,
                             const char *path, uint64_t done, uint64_t total,
                             uint64_t *reported_ns);

/* --------------------------------------------------------- paths_manifest.c */

/* `files MANIFEST`; the arguments are those of the stage, in the order of its table. */
enum brim__paths_argument {
    BRIM__PATHS_MANIFEST,
    BRIM__PATHS_FORMAT,
    BRIM__PATHS_PATH,
    BRIM__PATHS_ROOT,
    BRIM__PATHS_COLUMNS,
    BRIM__PATHS_TYPES,
    BRIM__PATHS_HEADER,
    BRIM__PATHS_PROBE,
    BRIM__PATHS_INDEX,
    BRIM__PATHS_LIST,
    BRIM__PATHS_FIELD,
    BRIM__PATHS_LABEL,
};
enum brim__paths_probe { BRIM__PROBE_AUTO, BRIM__PROBE_YES, BRIM__PROBE_NO };
extern brim__source_open brim__manifest_open;

/* paths_columns.c: the manifest as the source of its format reads it, with these
 * columns as bytes or texts; and which column holds the paths, if it is not given:
 * *item, and the *note of the index that was opened for that. */
brim_status brim__manifest_inner(const struct brim__use *use, const char *path,
                                 const struct brim__values *paths, struct brim__opening *opening,
                                 struct brim__source *inner);
brim_status brim__manifest_guess(const struct brim__use *use, const char *path,
                                 const struct brim__opening *opening, struct brim__item *item,
                                 const char **note);

/* paths_list.c: the directory that relative paths start from, wherever the process is
 * then: from "/" on, in the arena. One that there is not stays as it is written. */
brim_status brim__paths_root(const char *path, struct brim__arena *arena, const char **root);
/* The end of "ROOT/path", if it does not fit; root "" or an absolute path: the path. */
void brim__paths_name(const char *root, const char *path, char *text, size_t bytes);
/* What a plan should say: files that look like samples but are not, because
 * they lie beside the classes, and samples that are no images. *note: NULL if none. */
brim_status brim__paths_note(uint64_t loose, uint64_t others, struct brim__arena *arena,
                             const char **note);
/* "ROOT/text" with a zero; `room` bytes. An absolute text stands alone. */
brim_status brim__paths_join(const char *root, const char *text, size_t length, char *to,
                             size_t room);
/* A deferred field whose brim__deferred lies at `offset`. */
void brim__paths_field(struct brim__source_field *field, uint64_t offset, uint64_t longest);

/* ------------------------------------------------------------------ stamp.c */

/* `stamp` of a source whose deferred fields are paths. */
brim_status brim__paths_stamp(const struct brim__source *source, uint64_t sample, uint8_t *buffer,
                              const struct brim__opening *opening, uint64_t *stamp);

#endif
