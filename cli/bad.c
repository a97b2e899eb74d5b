/*
 * bad.c: keeps the texts of bad samples.
 */
#include "bad.h"

#include "output.h"

#include <stdlib.h>
#include <string.h>

static bool is_known(const struct bad *bad, const char *text) {
    for (size_t i = 0; i < bad->count; i++) {
        if (strcmp(bad->texts[i], text) == 0) {
            return true;
        }
    }
    return false;
}

static void keep(struct bad *bad, const char *text) {
    if (bad->count == bad->most || is_known(bad, text)) {
        return;
    }
    if (bad->texts == NULL) {
        bad->texts = take(bad->most, sizeof bad->texts[0]);
    }
    char *copy = take(strlen(text) + 1, 1);
    bad->texts[bad->count++] = strcpy(copy, text);
}

void bad_look(struct bad *bad, brim_loader *loader) {
    brim_stats stats = BRIM_STATS_INIT;
    if (brim_loader_read_stats(loader, &stats) != BRIM_OK) {
        return;
    }
    if (stats.errors - bad->seen > stats.error_count) {
        bad->seen = stats.errors - stats.error_count; /* those before are kept no more */
    }
    for (; bad->seen < stats.errors; bad->seen++) {
        brim_failure failure = BRIM_FAILURE_INIT;
        if (brim_loader_read_error(loader, bad->seen, &failure) == BRIM_OK) {
            keep(bad, failure.text);
        }
    }
}

void bad_free(struct bad *bad) {
    for (size_t i = 0; i < bad->count; i++) {
        free(bad->texts[i]);
    }
    free(bad->texts);
    *bad = (struct bad){ 0 };
}
