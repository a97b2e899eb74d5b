/*
 * paths.h: samples that are files of their own, named by paths.
 *
 *     paths_list.c      the stage `files`, and paths from the caller
 *     paths_manifest.c  paths from the columns of a CSV file or the keys of JSON lines
 *     paths_columns.c   opens the manifest's own source, and finds the paths' column
 *     paths_probe.c     the header of one image, and what many of them need
 *     stamp.c           the stamps of samples that are files, and of sources side by side
 *
 * The common part of the stages `folder` and `files`. A field with the bytes of such a file is
 * deferred; only its path and its header are known.
 */
#ifndef BRIM_PATHS_H
#define BRIM_PATHS_H

#include "source/source.h"

#include <limits.h>

/* ----------------------------------------------------------- paths_probe.c */

/* The most that any of many files needs, in the form that is kept on disk. */
struct brim__probed {
    uint64_t images, others; /* files that are images, and that are none */
    uint64_t largest;        /* bytes of the largest file */
    struct brim__image_band band[BRIM__IMAGE_BANDS];
};
/* Examines one file. window: BRIM__INPUT_WINDOW bytes; NULL: only the file's size. A file that is
 * permanently unreadable, or is no image, is counted and is not a failure. */
brim_status brim__probe(struct brim__probed *probed, const char *path, uint64_t sample,
                        uint8_t *window, uint64_t *bytes, enum brim__image_format *format);
/* Makes the survey of a field, in the arena; NULL: no file was an image. */
brim_status brim__probed_survey(const struct brim__probed *probed, struct brim__arena *arena,
                                const struct brim__image_survey **survey);
/* Whether this can be the result for that many files. To be checked when it was read from a
 * disk. */
bool brim__probed_plausible(const struct brim__probed *probed, uint64_t files);
#define BRIM__PROBED_BYTES (UINT64_C(1) << 48) /* every size is below; a larger file is no image */

/* Calls the opening's progress function at most every 100 ms, and returns BRIM_STATUS_INTERRUPTED
 * if it asks to stop. *reported_ns: at first brim__now(). */
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

/* paths_columns.c. inner: opens the manifest with the source of its format, with these columns as
 * bytes or texts. guess: finds the column of the paths, if it is not given: *item, and the *note of
 * the index that was opened for it. */
brim_status brim__manifest_inner(const struct brim__use *use, const char *path,
                                 const struct brim__values *paths, struct brim__opening *opening,
                                 struct brim__source *inner);
brim_status brim__manifest_guess(const struct brim__use *use, const char *path,
                                 const struct brim__opening *opening, struct brim__item *item,
                                 const char **note);

/* paths_list.c: makes the directory for relative paths absolute, so that it does not depend on the
 * process's directory later; in the arena. A directory that does not exist stays as it is
 * written. */
brim_status brim__paths_root(const char *path, struct brim__arena *arena, const char **root);
/* Writes "ROOT/path", or its end if it does not fit. If root is "" or the path is absolute, only
 * the path. */
void brim__paths_name(const char *root, const char *path, char *text, size_t bytes);
/* The note for a plan: how many files look like samples but are none, because they are beside the
 * classes, and how many samples are no images. *note: NULL if none. */
brim_status brim__paths_note(uint64_t loose, uint64_t others, struct brim__arena *arena,
                             const char **note);
/* Writes "ROOT/text" with a zero; `room` bytes. If the text is absolute, only the text. */
brim_status brim__paths_join(const char *root, const char *text, size_t length, char *to,
                             size_t room);
/* A deferred field whose brim__deferred lies at `offset`. */
void brim__paths_field(struct brim__source_field *field, uint64_t offset, uint64_t longest);

/* ------------------------------------------------------------------ stamp.c */

/* `stamp` of a source whose deferred fields are paths. */
brim_status brim__paths_stamp(const struct brim__source *source, uint64_t sample, uint8_t *buffer,
                              const struct brim__opening *opening, uint64_t *stamp);

#endif
