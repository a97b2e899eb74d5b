/*
 * guess.c: what a file is, and the pipeline that reads it.
 *
 * The first bytes of a file decide before its name. The name decides only for formats without magic
 * (text, CSV, JSON lines, CIFAR). Every step is bounded: it reads the first bytes of a file, the
 * directory of a zip file, the inflated first bytes of a gzip file, and the entries of a directory
 * up to the first image. There is no budget to charge here; the memory (below 100 KiB) is freed
 * before the call returns.
 *
 * The resulting pipeline always parses. Opening it may still fail if the file is damaged, with an
 * error that says so. Choices that a format leaves to the user are made: windows of 1024 tokens,
 * the first array of several. No pipeline reads a single image, so the error gives its kind and
 * size, and the sources that read many images.
 */
#include "base/file.h"
#include "base/struct.h"
#include "image/decode.h"
#include "source/inflate.h"
#include "source/listing.h"
#include "source/tokens.h"
#include "source/zip_file.h"

#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>

#define HEAD_BYTES   4096
#define OPTION_BYTES (2 * BRIM__ZIP_NAME_BYTES + 32)

struct look {
    struct brim__arena *arena;
    const char *path;
    struct brim__file *file;
    uint8_t head[HEAD_BYTES];
    size_t head_bytes;
    const char *stage;          /* NULL: not known yet */
    char options[OPTION_BYTES]; /* after the path, with a blank before it; or "" */
};

/* ----------------------------------------------------------------- writing */

struct writer {
    char *text;
    size_t bytes, length;
};

static void put(struct writer *writer, const char *text, size_t count) {
    for (size_t i = 0; i < count; i++, writer->length++) {
        if (writer->length < writer->bytes) {
            writer->text[writer->length] = text[i];
        }
    }
}

/* Writes a value with the quotes that a pipeline's text needs. */
static void put_value(struct writer *writer, const char *text) {
    bool plain = text[0] != '\0' && text[0] != '@' && text[0] != '#';
    for (const char *c = text; *c != '\0' && plain; c++) {
        plain = (unsigned char)*c > ' ' && *c != 0x7f && strchr("|()='\",", *c) == NULL;
    }
    if (plain) {
        put(writer, text, strlen(text));
        return;
    }
    put(writer, "\"", 1);
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            put(writer, "\\", 1);
        }
        put(writer, c, 1);
    }
    put(writer, "\"", 1);
}

static brim_status write_pipeline(const struct look *look, char *text, size_t bytes) {
    assert(look->stage != NULL);
    for (int pass = 0; pass < 2; pass++) { /* first only counted: on failure nothing is written */
        struct writer writer = { .text = text, .bytes = pass == 0 ? 0 : bytes };
        put(&writer, look->stage, strlen(look->stage));
        put(&writer, " ", 1);
        if (strcmp(look->path, "-") == 0) {
            put(&writer, "./", 2); /* alone it would be standard input */
        }
        put_value(&writer, look->path);
        put(&writer, look->options, strlen(look->options));
        put(&writer, "", 1);
        if (writer.length > bytes) {
            return brim__fail(BRIM_STATUS_INVALID,
                              "%s: its pipeline needs %zu bytes, but there are %zu", look->path,
                              writer.length, bytes);
        }
    }
    return BRIM_OK;
}

/* ------------------------------------------------------------------- names */

static bool has_suffix(const char *path, const char *suffix) {
    const size_t length = strlen(path), suffix_length = strlen(suffix);
    return length > suffix_length && strcasecmp(path + length - suffix_length, suffix) == 0;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static const struct {
    const char *suffix, *stage, *options;
} names[] = {
    { ".csv", "csv", "" },
    { ".tsv", "csv", " delimiter=tab" },
    { ".jsonl", "jsonl", "" },
    { ".ndjson", "jsonl", "" },
    { ".txt", "text", "" },
    { ".text", "text", "" },
    { ".npy", "npy", "" },
    { ".npz", "npz", "" },
    { ".idx1-ubyte", "idx", "" },
    { ".idx3-ubyte", "idx", "" },
    { "-idx1-ubyte", "idx", "" },
    { "-idx3-ubyte", "idx", "" },
    { ".safetensors", "safetensors", "" },
};

/* Whether the first line is a whole object: a .json file may be JSON lines. */
static bool first_line_is_object(const struct look *look) {
    const char *line = (const char *)look->head;
    const char *end = memchr(line, '\n', look->head_bytes);
    size_t length = end != NULL ? (size_t)(end - line) : look->head_bytes;
    while (length > 0 && strchr(" \t\r", line[length - 1]) != NULL) {
        length--;
    }
    return length >= 2 && line[0] == '{' && line[length - 1] == '}';
}

static void guess_by_name(struct look *look) {
    for (size_t i = 0; i < BRIM__COUNT(names); i++) {
        if (has_suffix(look->path, names[i].suffix)) {
            look->stage = names[i].stage;
            brim__copy_text(look->options, sizeof look->options, names[i].options);
            return;
        }
    }
    const char *name = base_name(look->path);
    const bool batch = strstr(name, "_batch") != NULL && has_suffix(name, ".bin");
    /* files of CIFAR-100 have common names, but each has one fixed size */
    const bool hundred = (strcmp(name, "train.bin") == 0 && look->file->bytes == 153700000) ||
                         (strcmp(name, "test.bin") == 0 && look->file->bytes == 30740000);
    const uint64_t bytes = look->file->bytes;
    if ((batch || hundred) && bytes > 0 && (bytes % 3073 == 0) != (bytes % 3074 == 0)) {
        look->stage = "cifar";
    } else if (has_suffix(name, ".json") && first_line_is_object(look)) {
        look->stage = "jsonl";
    }
}

/* ------------------------------------------------------------------- magic */

/* The header of an IDX file, and the bytes that it promises. */
static bool is_idx(const uint8_t *head, size_t count, uint64_t *promised) {
    static const uint8_t sizes[] = { [8] = 1, 1, 0, 2, 4, 4, 8 };
    if (count < 4 || head[0] != 0 || head[1] != 0 || head[2] >= sizeof sizes ||
        sizes[head[2]] == 0 || head[3] == 0 || head[3] > BRIM_MAX_RANK ||
        count < 4 + 4 * (size_t)head[3]) {
        return false;
    }
    uint64_t bytes = sizes[head[2]];
    for (size_t i = 0; i < head[3]; i++) {
        const uint8_t *at = head + 4 + 4 * i;
        const uint64_t dimension =
            (uint64_t)at[0] << 24 | (uint64_t)at[1] << 16 | (uint64_t)at[2] << 8 | (uint64_t)at[3];
        if (brim__mul_overflows(bytes, dimension, &bytes)) {
            return false;
        }
    }
    return !brim__add_overflows(bytes, 4 + 4 * (uint64_t)head[3], promised);
}

static brim_status look_into_gzip(struct look *look) {
    const struct brim__opening opening = { .arena = look->arena };
    uint8_t head[4 + 4 * BRIM_MAX_RANK];
    struct brim__inflater *inflater;
    uint64_t promised;
    brim_status status = brim__inflater_new(&opening, &inflater);
    if (status == BRIM_OK) {
        status =
            brim__inflate_begin(inflater, BRIM__DEFLATE_GZIP, look->file, 0, look->file->bytes);
    }
    if (status == BRIM_OK) {
        status = brim__inflate_read(inflater, head, 4);
    }
    if (status == BRIM_OK && head[3] > 0 && head[3] <= BRIM_MAX_RANK) {
        status = brim__inflate_read(inflater, head + 4, 4 * (uint64_t)head[3]);
        if (status == BRIM_OK && is_idx(head, (size_t)brim__inflate_total(inflater), &promised)) {
            look->stage = "idx";
            return BRIM_OK;
        }
    }
    return status != BRIM_OK ? status
                             : brim__fail(BRIM_STATUS_UNSUPPORTED,
                                          "%s: a gzip file that does not contain IDX: decompress "
                                          "it (gunzip)",
                                          look->path);
}

struct arrays {
    uint64_t count;
    char first[BRIM__ZIP_NAME_BYTES]; /* without its .npy */
};

static brim_status count_arrays(void *user, const struct brim__zip_member *member) {
    struct arrays *arrays = user;
    const size_t length = strlen(member->name);
    if (length > 4 && strcmp(member->name + length - 4, ".npy") == 0) {
        if (arrays->count++ == 0) {
            memcpy(arrays->first, member->name, length - 4);
        }
    }
    return BRIM_OK;
}

static brim_status look_into_zip(struct look *look) {
    struct arrays arrays = { 0 };
    struct brim__zip zip;
    brim_status status = brim__zip_open(&zip, look->file);
    if (status == BRIM_OK) {
        status = brim__zip_walk(&zip, count_arrays, &arrays);
    }
    if (status != BRIM_OK) {
        return status;
    }
    if (arrays.count == 0) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "%s: a zip file, but none of its %llu members is an array (*.npy)",
                          look->path, (unsigned long long)zip.members);
    }
    look->stage = "npz";
    if (arrays.count > 1) {
        struct writer writer = { .text = look->options, .bytes = sizeof look->options };
        put(&writer, " array=", 7);
        put_value(&writer, arrays.first);
        put(&writer, "", 1);
        assert(writer.length <= sizeof look->options);
    }
    return BRIM_OK;
}

static bool is_safetensors(const struct look *look) {
    uint64_t header = 0;
    if (look->head_bytes < 10) {
        return false;
    }
    for (size_t i = 8; i-- > 0;) {
        header = header << 8 | look->head[i];
    }
    return look->head[8] == '{' && header >= 2 && header <= 100000000 &&
           header <= look->file->bytes - 8;
}

static brim_status guess_tokens(struct look *look) {
    bool yes = false;
    brim_status status = BRIM_OK;
    if (look->head_bytes >= 9 && memcmp(look->head, "MMIDIDX\0\0", 9) == 0) {
        yes = true;
    } else if (has_suffix(look->path, ".bin")) {
        status = brim__megatron_guess(look->arena, look->path, &yes);
        if (status == BRIM_OK && !yes) {
            status = brim__tokens_is_llmc(look->file, &yes);
        }
    }
    if (status == BRIM_OK && yes) {
        look->stage = "tokens";
        brim__copy_text(look->options, sizeof look->options, " length=1024");
    }
    return status;
}

static bool begins(const struct look *look, const char *magic, size_t count) {
    return look->head_bytes >= count && memcmp(look->head, magic, count) == 0;
}

static bool is_image(const struct look *look) {
    static const char *const suffixes[] = { ".jpg", ".jpeg", ".png", ".webp" };
    bool yes = begins(look, "\xff\xd8\xff", 3) || begins(look, "\x89PNG\r\n\x1a\n", 8) ||
               (begins(look, "RIFF", 4) && look->head_bytes >= 12 &&
                memcmp(look->head + 8, "WEBP", 4) == 0);
    for (size_t i = 0; i < BRIM__COUNT(suffixes) && !yes; i++) {
        yes = has_suffix(look->path, suffixes[i]);
    }
    return yes;
}

/* The error for an image: its kind and the ways to read images, or what is wrong with it. */
static brim_status explain_image(const struct look *look) {
    struct brim__image_info info;
    struct brim__input input;
    uint8_t *window;
    brim_status status = brim__arena_take(look->arena, BRIM__INPUT_WINDOW, &window);
    if (status != BRIM_OK) {
        return status;
    }
    brim__input_file(&input, look->file, 0, look->file->bytes, window);
    status = brim__image_info(&input, false, &info);
    if (status != BRIM_OK) {
        return brim__fail_within(status, "%s", look->path);
    }
    const size_t parent = (size_t)(base_name(look->path) - look->path);
    return brim__fail(BRIM_STATUS_UNSUPPORTED,
                      "%s: a %s image of %u x %u pixels (width x height); images are read by the "
                      "directory, such as folder \"%.*s\" | decode, or by a list of paths, such as "
                      "files train.csv path=image | decode",
                      look->path, brim__image_format_name(info.format), info.width, info.height,
                      parent > 0 ? (int)brim__max(parent - 1, 1) : 1,
                      parent > 0 ? look->path : ".");
}

static brim_status guess(struct look *look) {
    uint64_t promised;
    look->head_bytes = brim__min(sizeof look->head, look->file->bytes);
    brim_status status = brim__file_read(look->file, 0, look->head, look->head_bytes);
    if (status != BRIM_OK) {
        return status;
    }
    if (look->head_bytes == 0) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "%s: is empty", look->path);
    }
    if (begins(look, "\x93NUMPY", 6)) {
        look->stage = "npy";
    } else if (begins(look, "PK\3\4", 4) || begins(look, "PK\5\6", 4)) {
        return look_into_zip(look);
    } else if (begins(look, "\x1f\x8b", 2)) {
        return look_into_gzip(look);
    } else if (is_idx(look->head, look->head_bytes, &promised) && promised == look->file->bytes) {
        look->stage = "idx";
    } else if (is_safetensors(look)) {
        look->stage = "safetensors";
    } else if (is_image(look)) {
        return explain_image(look);
    } else {
        status = guess_tokens(look);
        if (status == BRIM_OK && look->stage == NULL) {
            guess_by_name(look);
        }
    }
    return status;
}

/* ------------------------------------------------------------- directories */

#define SUBDIRECTORIES 8 /* that are looked into */

struct images {
    bool found;
    size_t count;
    char name[SUBDIRECTORIES][NAME_MAX + 1];
};

static brim_status look_at_entry(void *user, const struct brim__entry *entry) {
    static const char *const endings[] = { "jpg", "jpeg", "png", "webp" };
    static const struct brim__folder folder = { .extension = endings,
                                                .extension_count = BRIM__COUNT(endings) };
    struct images *images = user;
    if (entry->directory && images->count < SUBDIRECTORIES) {
        brim__copy_text(images->name[images->count++], NAME_MAX + 1, entry->name);
    }
    images->found = !entry->directory && brim__folder_wants(&folder, entry->name);
    return images->found ? BRIM_STATUS_END : BRIM_OK;
}

/* Whether a directory, or one of the first directories in it, has images. */
static bool holds_images(struct brim__arena *arena, const char *path) {
    struct images images = { 0 };
    struct stat facts;
    uint8_t *buffer;
    char full[PATH_MAX];
    const size_t length = strlen(path);
    if (stat(path, &facts) != 0 || !S_ISDIR(facts.st_mode) || length + NAME_MAX + 2 > PATH_MAX ||
        brim__arena_take(arena, BRIM__WALK_BUFFER, &buffer) != BRIM_OK) {
        return false;
    }
    memcpy(full, path, length + 1);
    (void)brim__walk(full, length, true, buffer, look_at_entry, &images);
    for (size_t i = images.count; i-- > 0 && !images.found;) {
        snprintf(full + length, sizeof full - length, "/%s", images.name[i]);
        images.count = SUBDIRECTORIES; /* no more of them */
        (void)brim__walk(full, length, true, buffer, look_at_entry, &images);
    }
    return images.found;
}

brim_status brim_guess(const char *path, char *pipeline, size_t pipeline_bytes) {
    if (path == NULL || pipeline == NULL) {
        return brim__fail_null(path == NULL ? "path" : "pipeline");
    }
    struct brim__arena arena;
    struct brim__file file = { .fd = -1 };
    struct look look = { .arena = &arena, .path = path, .file = &file };
    brim__arena_init(&arena, NULL);
    brim_status status = BRIM_OK;
    if (holds_images(&arena, path)) {
        look.stage = "folder";
    } else {
        status = brim__file_open(&file, path);
        if (status == BRIM_OK) {
            status = guess(&look);
        }
    }
    if (status == BRIM_OK && look.stage == NULL) {
        status = brim__fail(
            BRIM_STATUS_UNSUPPORTED,
            "%s: neither its bytes nor its name say what it is; known are npy, npz, IDX (also "
            "gzipped), safetensors, CSV and TSV, JSON lines, text, token files of llm.c and "
            "Megatron, CIFAR's *_batch*.bin, and directories of images; for others write the "
            "source yourself, such as tokens length=1024 for tokens without a header, or records "
            "bytes=N",
            path);
    }
    if (status == BRIM_OK) {
        status = write_pipeline(&look, pipeline, pipeline_bytes);
    }
    brim__arena_fini(&arena);
    brim__file_close(&file);
    return status;
}
