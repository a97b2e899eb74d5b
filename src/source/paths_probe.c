/*
 * paths_probe.c: reads the headers of images and computes the most that any of them needs.
 *
 * A file that is no image, or that is permanently unreadable (a link that leads nowhere, no
 * permission), will be a bad sample. It is no reason to refuse all others. Any other failure is the
 * system's, and must not be kept.
 */
#include "base/fault.h"
#include "base/progress.h"
#include "source/paths.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int stat_once(const char *path, struct stat *facts) {
    if (brim__fault(BRIM__FAULT_OPEN)) {
        errno = EIO;
        return -1;
    }
    return stat(path, facts);
}

/* Whether opening the file, which has failed, would fail again. */
static bool is_unreadable(const char *path) {
    struct stat facts;
    if (stat(path, &facts) != 0) {
        return errno == ENOENT || errno == ELOOP || errno == EACCES || errno == ENOTDIR ||
               errno == ENAMETOOLONG;
    }
    return !S_ISREG(facts.st_mode) || (access(path, R_OK) != 0 && errno == EACCES);
}

brim_status brim__probed_survey(const struct brim__probed *probed, struct brim__arena *arena,
                                const struct brim__image_survey **survey) {
    struct brim__image_survey *made;
    struct brim__image_band *bands;
    uint32_t count = 0;
    *survey = NULL;
    for (uint32_t i = 0; i < BRIM__IMAGE_BANDS; i++) {
        count += probed->band[i].images > 0;
    }
    if (count == 0) {
        return BRIM_OK;
    }
    brim_status status = brim__arena_take(arena, sizeof *made, &made);
    if (status == BRIM_OK) {
        status = brim__arena_take(arena, count * sizeof *bands, &bands);
    }
    if (status != BRIM_OK) {
        return status;
    }
    made->band = bands;
    made->count = 0;
    for (uint32_t i = 0; i < BRIM__IMAGE_BANDS; i++) {
        if (probed->band[i].images > 0) {
            bands[made->count++] = probed->band[i];
        }
    }
    *survey = made;
    return BRIM_OK;
}

bool brim__probed_plausible(const struct brim__probed *probed, uint64_t files) {
    uint64_t images = 0;
    bool plausible = probed->images <= files && probed->others <= files - probed->images &&
                     probed->largest < BRIM__PROBED_BYTES;
    for (uint32_t i = 0; plausible && i < BRIM__IMAGE_BANDS; i++) {
        plausible = brim__image_band_plausible(&probed->band[i], i, files, BRIM__PROBED_BYTES) &&
                    probed->band[i].images <= probed->images - images;
        images += probed->band[i].images;
    }
    return plausible && images == probed->images;
}

/* A file that is larger than any image does not count: it will be a bad sample, because it exceeds
 * the bound. */
static void enter_size(struct brim__probed *probed, uint64_t bytes) {
    probed->largest =
        bytes < BRIM__PROBED_BYTES ? brim__max(probed->largest, bytes) : probed->largest;
}

/* Only its size. */
static brim_status look_outside(struct brim__probed *probed, const char *path, uint64_t *bytes) {
    struct stat facts;
    if (stat_once(path, &facts) != 0) {
        const int error = errno;
        char why[BRIM__ERROR_TEXT];
        return is_unreadable(path) ? BRIM_OK
                                   : brim__fail(BRIM_STATUS_IO, "%s: cannot be examined: %s", path,
                                                brim__error_text(error, why));
    }
    *bytes = (uint64_t)facts.st_size;
    enter_size(probed, *bytes);
    return BRIM_OK;
}

brim_status brim__probe(struct brim__probed *probed, const char *path, uint64_t sample,
                        uint8_t *window, uint64_t *bytes, enum brim__image_format *format) {
    struct brim__file file;
    struct brim__input input;
    struct brim__image_info info;
    *bytes = 0;
    *format = BRIM__IMAGE_NONE;
    if (window == NULL) {
        return look_outside(probed, path, bytes);
    }
    brim_status status = brim__file_open(&file, path);
    if (status != BRIM_OK) {
        probed->others++;
        return is_unreadable(path) ? BRIM_OK : status;
    }
    *bytes = file.bytes;
    enter_size(probed, file.bytes);
    brim__input_file(&input, &file, 0, file.bytes, window);
    status = brim__image_info(&input, true, &info);
    brim__file_close(&file);
    if (status == BRIM_OK) {
        *format = info.format;
        brim__image_bands_add(probed->band, &info, sample);
        probed->images++;
    } else if (status == BRIM_STATUS_CORRUPT || status == BRIM_STATUS_UNSUPPORTED) {
        probed->others++;
        status = BRIM_OK;
    }
    return status;
}

brim_status brim__probe_tell(const struct brim__opening *opening, const char *what,
                             const char *path, uint64_t done, uint64_t total,
                             uint64_t *reported_ns) {
    char text[256];
    if (!brim__progress_is_due(opening->progress, reported_ns)) {
        return BRIM_OK;
    }
    snprintf(text, sizeof text, "%s %s", what, path);
    if (brim__progress_report(opening->progress, opening->progress_user, text, BRIM_UNIT_FILES,
                              done, total)) {
        return BRIM_OK;
    }
    return brim__fail(BRIM_STATUS_INTERRUPTED, "%s: %s it was stopped after %llu files", path, what,
                      (unsigned long long)done);
}
