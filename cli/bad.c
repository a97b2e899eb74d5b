/*
 * bad.c: keeps the texts of bad samples.
 */
#include "bad.h"

#include "output.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 512

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

/* Workers may add a text between two calls, which moves the others: then one would
 * be passed over, and the list is read once more. */
void bad_look(struct bad *bad, brim_loader *loader) {
    brim_stats before, after = BRIM_STATS_INIT;
    char text[TEXT_BYTES];
    brim_status status = brim_loader_read_stats(loader, &after);
    do {
        before = after;
        /* the loader counts from the latest */
        for (uint32_t i = before.error_count; status == BRIM_OK && i-- > 0;) {
            if (brim_loader_error(loader, i, text, sizeof text) == BRIM_OK) {
                keep(bad, text);
            }
        }
        status = brim_loader_read_stats(loader, &after);
    } while (status == BRIM_OK && after.errors != before.errors);
}

void bad_free(struct bad *bad) {
    for (size_t i = 0; i < bad->count; i++) {
        free(bad->texts[i]);
    }
    free(bad->texts);
    *bad = (struct bad){ 0 };
}
