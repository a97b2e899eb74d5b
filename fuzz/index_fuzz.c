/*
 * index_fuzz.c: the bytes of an index: a true one that is damaged, and a forged
 * one that passes every check of its own.
 *
 * The first two bytes of the input say where the rest of it is written over a
 * true index. Damage is noticed: the index is made anew, or the records that it
 * hits are bad samples, but nothing else is read than is there.
 *
 * The forged index has the header of a true one and right hashes; the input says
 * what it claims:
 *
 *     count, largest, total (8 bytes each) | entries (24 bytes each) ...
 *
 * Of that nothing is asked but that it does no harm.
 */
#include "fuzz.h"

#include "source/index_file.h"

#include <stdio.h>

enum { MOST_PAGES = 8, CLAIMS = 24 };

static const struct {
    const char *data, *index, *pipeline;
} kinds[] = {
    { "x.txt", "x.txt.text.brimidx",
      "text x.txt index=beside max_bytes=1KiB | batch 16 on_error=skip" },
    { "x.csv", "x.csv.csv.brimidx",
      "csv x.csv index=beside max_bytes=1KiB | batch 16 on_error=skip" },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static uint8_t whole[KINDS][MOST_PAGES * BRIM__INDEX_PAGE]; /* a true index */
static size_t whole_bytes[KINDS];
static uint64_t truth[KINDS]; /* the digest of what is read */

static void write_data(size_t kind) {
    char text[4096];
    size_t used = 0;
    for (unsigned i = 0; used < sizeof text - 64; i++) {
        used += (size_t)snprintf(text + used, 64, "%u,%u.5\n", i, i * 1000 % 77);
    }
    fuzz_write(kinds[kind].data, text, used);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    fuzz_begin();
    for (size_t i = 0; i < KINDS; i++) {
        write_data(i);
        truth[i] = fuzz_run(kinds[i].pipeline);
        char path[FUZZ_PATH_BYTES];
        FILE *file = fopen(fuzz_path(path, kinds[i].index), "rbe");
        if (truth[i] == 0 || file == NULL) {
            fuzz_wrong("%s: no index: %s", kinds[i].pipeline, brim_detail());
        }
        whole_bytes[i] = fread(whole[i], 1, sizeof whole[i], file);
        fclose(file);
    }
    return 0;
}

static void seal(uint8_t *page, uint64_t number) {
    const uint64_t hash = brim__index_page_hash(page, number);
    memcpy(page + BRIM__INDEX_HASHED, &hash, sizeof hash);
}

/* false: the input hits the true bytes. */
static bool damage(size_t kind, const uint8_t *data, size_t bytes, uint8_t *index) {
    const size_t at = (size_t)(data[0] | data[1] << 8) % whole_bytes[kind];
    const size_t room = whole_bytes[kind] - at;
    memcpy(index, whole[kind], whole_bytes[kind]);
    memcpy(index + at, data + 2, bytes - 2 < room ? bytes - 2 : room);
    return memcmp(index, whole[kind], whole_bytes[kind]) != 0;
}

/* Returns its bytes. */
static size_t forge(size_t kind, const uint8_t *data, size_t bytes,
                    uint8_t pages[MOST_PAGES][BRIM__INDEX_PAGE]) {
    const size_t claims = offsetof(struct brim__index_header, count);
    const size_t entries = (bytes - CLAIMS) / BRIM__INDEX_ENTRY;
    uint64_t count;
    memcpy(&count, data, sizeof count);
    const uint64_t claimed = count > MOST_PAGES * BRIM__INDEX_PER_PAGE ? 0 : count;
    const uint64_t wanted = brim__index_pages(claimed > entries ? claimed : entries);
    const size_t used = wanted < MOST_PAGES ? (size_t)wanted : MOST_PAGES;
    memset(pages, 0, used * BRIM__INDEX_PAGE);
    memcpy(pages[0], whole[kind], claims);
    memcpy(pages[0] + claims, data, CLAIMS);
    for (size_t i = 0; i < entries && 1 + i / BRIM__INDEX_PER_PAGE < used; i++) {
        memcpy(pages[1 + i / BRIM__INDEX_PER_PAGE] + i % BRIM__INDEX_PER_PAGE * BRIM__INDEX_ENTRY,
               data + CLAIMS + i * BRIM__INDEX_ENTRY, BRIM__INDEX_ENTRY);
    }
    for (size_t i = 0; i < used; i++) {
        seal(pages[i], i);
    }
    return used * BRIM__INDEX_PAGE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static uint8_t pages[MOST_PAGES][BRIM__INDEX_PAGE];
    for (size_t i = 0; i < KINDS; i++) {
        if (bytes > 2 && damage(i, data, bytes, pages[0])) {
            fuzz_write(kinds[i].index, pages, whole_bytes[i]);
            if (fuzz_run(kinds[i].pipeline) != truth[i] && fuzz_skipped == 0) {
                fuzz_wrong("%s reads something else through a damaged index", kinds[i].pipeline);
            }
        }
        if (bytes >= CLAIMS) {
            fuzz_write(kinds[i].index, pages, forge(i, data, bytes, pages));
            fuzz_run(kinds[i].pipeline);
        }
    }
    return 0;
}
