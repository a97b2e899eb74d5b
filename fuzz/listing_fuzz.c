/*
 * listing_fuzz.c: the bytes of a folder's listing: a true one that is damaged, and a
 * forged one that passes every check of its own.
 *
 * The input says what is written over a true listing:
 *
 *     how (1 byte) | place (2 bytes), length (1 byte), that many bytes | ...
 *
 * A place counts the header's bytes, goes on with the records, and then with the entries
 * of the index that lie between them; the empty rest of the header's page is left out.
 * `how` is a set of bits:
 *
 *     0       hashes are made right, and so is the listing forged
 *     1       the header says how long the file is
 *     2 to 7  how many times 64 zeros are behind it
 *
 * Damage is noticed: when the listing is opened, and the folder is listed again, or when the
 * damaged record or page of entries is read, and that is an error. What is read is the same, or
 * nothing is. Of a forged listing nothing is asked but that it does no harm, whether files are
 * decoded or not.
 */
#include "fuzz.h"

#include "source/listing.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

enum { FORGED = 1, FITTED = 2 };
enum {
    MOST_BYTES = 16384,
    MOST_ZEROS = 63 * 64,
    HEADER = sizeof(struct brim__listing_header),
    RECORDS = 2 * BRIM__INDEX_PAGE, /* where they begin: one page has all entries */
    PIPELINES = 2
};

static const char *const pipelines[PIPELINES] = {
    "folder photos index=beside | batch 64",
    "folder photos index=beside | decode max_pixels=4096 | resize 4 4 | batch 2 on_error=skip",
};

static uint8_t whole[MOST_BYTES]; /* a true listing */
static size_t whole_bytes;
static char listing_name[NAME_MAX + 1];
static uint64_t truth[PIPELINES]; /* the digests of what is read */

/* 2 x 2 pixels in grey */
static const uint8_t image[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44,
    0x52, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x02, 0x08, 0x00, 0x00, 0x00, 0x00, 0x57,
    0xdd, 0x52, 0xf8, 0x00, 0x00, 0x00, 0x0e, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0x10,
    0x08, 0x60, 0x98, 0x70, 0x01, 0x00, 0x03, 0x86, 0x01, 0xc1, 0xbf, 0x63, 0x88, 0x96, 0x00,
    0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
};

static void make_directory(const char *name) {
    char path[FUZZ_PATH_BYTES];
    if (mkdir(fuzz_path(path, name), 0700) != 0) {
        fuzz_wrong("%s cannot be made", path);
    }
}

static void read_listing(void) {
    char path[FUZZ_PATH_BYTES];
    DIR *place = opendir(fuzz_path(path, "."));
    for (const struct dirent *entry; place != NULL && (entry = readdir(place)) != NULL;) {
        const size_t length = strlen(entry->d_name);
        if (length > 8 && strcmp(entry->d_name + length - 8, ".brimlst") == 0) {
            memcpy(listing_name, entry->d_name, length + 1);
        }
    }
    if (place == NULL || closedir(place) != 0 || listing_name[0] == '\0') {
        fuzz_wrong("there is no listing: %s", brim_detail());
    }
    FILE *file = fopen(fuzz_path(path, listing_name), "rbe");
    if (file == NULL) {
        fuzz_wrong("%s cannot be read", path);
    }
    whole_bytes = fread(whole, 1, sizeof whole, file);
    fclose(file);
    if (whole_bytes <= RECORDS || whole_bytes + MOST_ZEROS > sizeof whole) {
        fuzz_wrong("%s has %zu bytes", path, whole_bytes);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    fuzz_begin();
    make_directory("photos");
    make_directory("photos/cat");
    make_directory("photos/dog");
    fuzz_write("photos/cat/1.png", image, sizeof image);
    fuzz_write("photos/cat/2.png", "none", 4);
    fuzz_write("photos/cat/3.png", image, sizeof image);
    fuzz_write("photos/dog/1.png", image, sizeof image);
    fuzz_write("photos/dog/none.png", "", 0);
    for (int i = 0; i < PIPELINES; i++) {
        truth[i] = fuzz_run(pipelines[i]);
        if (truth[i] == 0 || truth[i] == FUZZ_NOTHING) {
            fuzz_wrong("%s: %s", pipelines[i], brim_detail());
        }
    }
    read_listing();
    fuzz_may_miss_files = true; /* a forged listing may name any */
    return 0;
}

/* Puts the right hash into each record of [at, end). */
static void hash_records(uint8_t *listing, uint64_t at, uint64_t end) {
    while (at < end && end - at >= BRIM__LISTING_RECORD) {
        struct brim__listed listed;
        memcpy(&listed, listing + at, sizeof listed);
        const uint64_t bytes = sizeof listed + listed.path_bytes;
        if (bytes > end - at) {
            break;
        }
        listed.hash =
            brim__hash(listing + at + sizeof listed.hash, (size_t)bytes - sizeof listed.hash, at);
        memcpy(listing + at, &listed.hash, sizeof listed.hash);
        at += bytes;
    }
}

static void forge(uint8_t *listing, size_t bytes) {
    struct brim__listing_header header;
    memcpy(&header, listing, sizeof header);
    const uint64_t directories_at = brim__min(header.directories_at, bytes);
    const uint64_t classes_at = brim__min(header.classes_at, directories_at);
    hash_records(listing, RECORDS, classes_at);
    hash_records(listing, brim__max(classes_at, RECORDS), directories_at);
    hash_records(listing, brim__max(directories_at, RECORDS), bytes);
    brim__index_seal(listing + BRIM__INDEX_PAGE, 1);
    brim__index_seal(listing, 0);
}

/* Returns the listing's bytes; 0: it would lead to files of others. */
static size_t change(const uint8_t *data, size_t bytes, uint8_t listing[MOST_BYTES]) {
    const unsigned how = data[0];
    const size_t made = whole_bytes + (size_t)(how >> 2) * 64;
    const size_t places = made - BRIM__INDEX_PAGE + HEADER;
    memset(listing, 0, made);
    memcpy(listing, whole, whole_bytes);
    for (size_t from = 1; bytes - from > 3;) {
        size_t at = (size_t)(data[from] | data[from + 1] << 8) % places;
        const size_t entries = HEADER + made - RECORDS; /* the place of the first of them */
        at = at < HEADER    ? at
             : at < entries ? RECORDS + (at - HEADER)
                            : BRIM__INDEX_PAGE + (at - entries);
        const size_t room = brim__min(bytes - from - 3, made - at);
        const size_t length = brim__min(data[from + 2], room);
        memcpy(listing + at, data + from + 3, length);
        from += 3 + length;
    }
    if ((how & FITTED) != 0) {
        const uint64_t fitted = made;
        memcpy(listing + offsetof(struct brim__listing_header, bytes), &fitted, sizeof fitted);
    }
    if (memmem(listing, made, "../", 3) != NULL) {
        return 0;
    }
    if ((how & FORGED) != 0) {
        forge(listing, made);
    }
    return made;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static uint8_t listing[MOST_BYTES];
    const size_t made = bytes > 0 ? change(data, bytes, listing) : 0;
    if (made == 0) {
        return -1;
    }
    for (int i = 0; i < PIPELINES; i++) {
        fuzz_write(listing_name, listing, made);
        const uint64_t digest = fuzz_run(pipelines[i]);
        /* where bad samples are skipped, damaged ones are missing */
        if (i == 0 && digest != truth[i] && digest != FUZZ_NOTHING && (data[0] & FORGED) == 0) {
            fuzz_wrong("%s reads something else through a damaged listing", pipelines[i]);
        }
    }
    return 0;
}
