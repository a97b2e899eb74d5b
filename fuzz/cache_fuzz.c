/*
 * cache_fuzz.c: the bytes of a cache file: a true one that is damaged, one that is forged and
 * passes every check of its own, and one that is all the input's.
 *
 *     how (1 byte) | which of the pipelines (1 byte) | rest
 *
 * `how` modulo 4 is one of
 *
 *     0  the rest is written over a true file: place (2 bytes), length (1 byte), bytes, ...
 *     1  the same, and then all checksums are made right
 *     2  the rest is the file
 *
 * and above these two bits it says, of the first two, how many times 64 bytes are added to the
 * file (below 32) or cut off. A place leaves out what is empty: it counts the beginning of the
 * header, its end, the table and the heap.
 *
 * A damaged file never changes what is read, and is whole when the loader has closed; what is
 * no cache is not touched. Of a forged one nothing is asked but that it does no harm, and of
 * all that looking at them from outside agrees with itself.
 */
#include "fuzz.h"

#include "cache/file_format.h"

#include <stdio.h>

enum { DAMAGED, FORGED, RAW, HOWS = 4 };
enum { HEAD = 192, TAIL = 16, MOST_BYTES = 65536, MOST_ADDED = 31 * 64 };

static const struct {
    const char *cache, *pipeline;
} kinds[] = {
    { "1.brimcache", "npy x.npy | cast float32 | cache file=1.brimcache verify=never | batch 4" },
    { "2.brimcache", "text x.txt index=beside max_bytes=1KiB | cache file=2.brimcache | batch 4" },
    { "3.brimcache",
      "csv x.csv index=beside max_bytes=1KiB | cache file=3.brimcache verify=hit | batch 4" },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static struct {
    uint8_t file[MOST_BYTES]; /* a true one */
    size_t bytes;
    struct brim__cache_header header;
    uint64_t digest; /* of what is read */
} truth[KINDS];

static size_t read_back(size_t kind, uint8_t *data, size_t room) {
    char path[FUZZ_PATH_BYTES];
    FILE *file = fopen(fuzz_path(path, kinds[kind].cache), "rbe");
    if (file == NULL) {
        fuzz_wrong("%s cannot be read", path);
    }
    const size_t bytes = fread(data, 1, room, file);
    fclose(file);
    return bytes;
}

static void write_data(void) {
    static const char header[] = "\x93NUMPY\x01\x00\x76\x00{'descr': '<u2', 'fortran_order': "
                                 "False, 'shape': (10, 7), }";
    uint8_t npy[128 + 10 * 7 * 2];
    memset(npy, ' ', 128);
    memcpy(npy, header, sizeof header - 1);
    npy[127] = '\n';
    for (size_t i = 128; i < sizeof npy; i++) {
        npy[i] = (uint8_t)(i * 7);
    }
    fuzz_write("x.npy", npy, sizeof npy);
    fuzz_write("x.txt", "one\n\ntwo and more\nthree\n4\n", 25);
    fuzz_write("x.csv", "a,b,c\n1,2.5,x\n2,3.5,yy\n3,4.5,\n", 30);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    fuzz_begin();
    write_data();
    for (size_t i = 0; i < KINDS; i++) {
        truth[i].digest = fuzz_run(kinds[i].pipeline);
        if (truth[i].digest == 0) {
            fuzz_wrong("%s: %s", kinds[i].pipeline, brim_detail());
        }
        truth[i].bytes = read_back(i, truth[i].file, sizeof truth[i].file);
        memcpy(&truth[i].header, truth[i].file, sizeof truth[i].header);
        if (truth[i].bytes <= brim__cache_heap(truth[i].header.count) ||
            truth[i].bytes + MOST_ADDED > MOST_BYTES) {
            fuzz_wrong("%s has %zu bytes", kinds[i].cache, truth[i].bytes);
        }
    }
    return 0;
}

/* ------------------------------------------------------------------ changing */

/* Where a place is in a file of so many bytes, and how far it goes on from there. */
static size_t place(size_t kind, size_t number, size_t bytes, size_t *room) {
    const uint64_t count = truth[kind].header.count;
    const size_t parts[][2] = {
        { 0, HEAD },
        { BRIM__CACHE_HEADER - TAIL, BRIM__CACHE_HEADER },
        { BRIM__CACHE_HEADER, (size_t)brim__cache_table_at(count) },
        { (size_t)brim__cache_heap(count), bytes },
    };
    size_t all = 0;
    for (size_t i = 0; i < BRIM__COUNT(parts); i++) {
        all += parts[i][1] > parts[i][0] ? parts[i][1] - parts[i][0] : 0;
    }
    number %= all;
    for (size_t i = 0; i < BRIM__COUNT(parts); i++) {
        const size_t length = parts[i][1] > parts[i][0] ? parts[i][1] - parts[i][0] : 0;
        if (number < length) {
            *room = parts[i][0] + number < bytes ? bytes - parts[i][0] - number : 0;
            return parts[i][0] + number;
        }
        number -= length;
    }
    *room = 0;
    return 0;
}

/* Makes right what is inside the file. */
static void forge(uint8_t *file, size_t bytes) {
    struct brim__cache_header header;
    struct brim__cache_entry entry;
    if (bytes < sizeof header) {
        return;
    }
    memcpy(&header, file, sizeof header);
    brim__cache_header_seal(&header);
    memcpy(file, &header, sizeof header);
    const uint64_t seed = brim__cache_seed(&header);
    for (uint64_t i = 0; i < header.count && brim__cache_table_at(i + 1) <= bytes; i++) {
        memcpy(&entry, file + brim__cache_table_at(i), sizeof entry);
        if (!brim__cache_is_none(&entry) && entry.offset <= bytes &&
            entry.length <= bytes - entry.offset) {
            entry.checksum = brim__cache_checksum(seed, i, &entry, file + entry.offset);
            memcpy(file + brim__cache_table_at(i), &entry, sizeof entry);
        }
    }
}

/* Returns its bytes. */
static size_t change(size_t kind, unsigned how, const uint8_t *data, size_t bytes,
                     uint8_t file[MOST_BYTES]) {
    const size_t steps = how >> 2;
    size_t made = truth[kind].bytes;
    if (how % HOWS == RAW) {
        made = brim__min(bytes, MOST_BYTES);
        memcpy(file, data, made);
        return made;
    }
    memset(file, 0, MOST_BYTES);
    memcpy(file, truth[kind].file, made);
    made = steps < 32 ? made + steps * 64 : made - brim__min((steps - 31) * 64, made);
    for (size_t from = 0; bytes - from > 3;) {
        size_t room;
        const size_t at = place(kind, (size_t)(data[from] | data[from + 1] << 8), made, &room);
        const size_t length = brim__min(data[from + 2], brim__min(bytes - from - 3, room));
        memcpy(file + at, data + from + 3, length);
        from += 3 + length;
    }
    if (how % HOWS == FORGED) {
        forge(file, made);
    }
    return made;
}

/* ------------------------------------------------------------------- looking */

/* What the calls for cache files say; false: it is none. */
static bool look(size_t kind, brim_cache_info *info, uint64_t *good, uint64_t *bad) {
    char path[FUZZ_PATH_BYTES];
    *info = (brim_cache_info)BRIM_CACHE_INFO_INIT;
    *good = *bad = 0;
    const brim_status status = brim_cache_read(fuzz_path(path, kinds[kind].cache), info);
    const brim_status checked = brim_cache_verify(path, NULL, NULL, good, bad);
    if (status != BRIM_OK) {
        fuzz_check_refusal("brim_cache_read", status);
    }
    if (checked != (status != BRIM_OK ? status : info->usable ? BRIM_OK : BRIM_STATUS_CORRUPT)) {
        fuzz_wrong("brim_cache_verify: %s, and brim_cache_read: %s", brim_status_name(checked),
                   brim_status_name(status));
    }
    if (status == BRIM_OK && info->usable && *good + *bad != info->filled) {
        fuzz_wrong("%llu good and %llu bad of %llu", (unsigned long long)*good,
                   (unsigned long long)*bad, (unsigned long long)info->filled);
    }
    return status == BRIM_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static uint8_t file[MOST_BYTES], after[MOST_BYTES];
    if (bytes < 2 || data[0] % HOWS > RAW) {
        return -1;
    }
    const size_t kind = data[1] % KINDS;
    const size_t made = change(kind, data[0], data + 2, bytes - 2, file);
    brim_cache_info info;
    uint64_t good, bad;
    fuzz_write(kinds[kind].cache, file, made);
    const bool ours = look(kind, &info, &good, &bad);
    const uint64_t digest = fuzz_run(kinds[kind].pipeline);
    if (digest != truth[kind].digest && data[0] % HOWS != FORGED) {
        fuzz_wrong("%s reads something else through a damaged cache", kinds[kind].pipeline);
    }
    if (!ours && made > 0) {
        const size_t now = read_back(kind, after, sizeof after);
        if (now != made || memcmp(file, after, made) != 0) {
            fuzz_wrong("a file that is no cache was changed");
        }
    } else if (!look(kind, &info, &good, &bad) || !info.usable || info.filled != info.samples ||
               bad > 0) {
        fuzz_wrong("after a run %llu of %llu are kept, %llu of them damaged",
                   (unsigned long long)info.filled, (unsigned long long)info.samples,
                   (unsigned long long)bad);
    }
    return 0;
}
