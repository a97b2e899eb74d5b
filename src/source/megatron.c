/*
 * megatron.c: Megatron-LM's indexed token files.
 *
 *     x.bin   tokens, the sequences back to back
 *     x.idx   byte 0   M M I D I D X 0 0
 *             9        u64 version, 1
 *             17       u8 dtype: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64, 7 f32, 8 u16
 *             18       u64 number of sequences S
 *             26       u64 number of document indices D
 *             34       int32 lengths[S], in tokens
 *             ...      int64 pointers[S], bytes into x.bin
 *             ...      int64 documents[D]
 *             ...      int8 modes[S], in multimodal files only
 *
 * Little-endian, nothing aligned. The windows of a token source go over all of x.bin, so the index
 * is only needed for the dtype and to check that x.bin is the file that was indexed: lengths are
 * not negative, each pointer is the sum of the lengths before it, and the last sequence ends where
 * x.bin does. The pass over the index needs two small buffers, whatever the length of the index.
 */
#include "source/tokens.h"

#include <unistd.h>

#define MAGIC_BYTES  9
#define HEADER_BYTES 34
#define CHUNK        512 /* sequences looked at together */

static const char magic[MAGIC_BYTES] = "MMIDIDX\0";

static const brim_dtype dtype_codes[] = {
    [1] = BRIM_DTYPE_U8,  [2] = BRIM_DTYPE_I8,  [3] = BRIM_DTYPE_I16, [4] = BRIM_DTYPE_I32,
    [5] = BRIM_DTYPE_I64, [6] = BRIM_DTYPE_F64, [7] = BRIM_DTYPE_F32, [8] = BRIM_DTYPE_U16,
};

static bool has_suffix(const char *path, size_t length, const char *suffix) {
    const size_t suffix_length = strlen(suffix);
    return length > suffix_length && strcmp(path + length - suffix_length, suffix) == 0;
}

brim_status brim__megatron_paths(struct brim__arena *arena, const char *path, const char **bin,
                                 const char **idx) {
    size_t stem = strlen(path);
    if (has_suffix(path, stem, ".bin") || has_suffix(path, stem, ".idx")) {
        stem -= 4;
    }
    char *copy[2];
    for (int i = 0; i < 2; i++) {
        const brim_status status = brim__arena_take(arena, stem + 5, &copy[i]);
        if (status != BRIM_OK) {
            return status;
        }
        memcpy(copy[i], path, stem);
        memcpy(copy[i] + stem, i == 0 ? ".bin" : ".idx", 5);
    }
    *bin = copy[0];
    *idx = copy[1];
    return BRIM_OK;
}

brim_status brim__megatron_guess(struct brim__arena *arena, const char *path, bool *yes) {
    const size_t length = strlen(path);
    *yes = has_suffix(path, length, ".idx");
    if (*yes || !has_suffix(path, length, ".bin")) {
        return BRIM_OK;
    }
    const char *bin, *idx;
    brim_status status = brim__megatron_paths(arena, path, &bin, &idx);
    /* An index that exists but cannot be read is an error. If it were treated as absent, its tokens
     * would be read with a guessed dtype. */
    if (status != BRIM_OK || access(idx, F_OK) != 0) {
        return status;
    }
    struct brim__file file = { .fd = -1 };
    char begin[MAGIC_BYTES];
    status = brim__file_open(&file, idx);
    if (status != BRIM_OK) {
        return status;
    }
    if (file.bytes >= sizeof begin) {
        status = brim__file_read(&file, 0, begin, sizeof begin);
        *yes = status == BRIM_OK && memcmp(begin, magic, sizeof magic) == 0;
    }
    brim__file_close(&file);
    return status;
}

struct header {
    brim_dtype dtype;
    uint64_t sequences;
};

static brim_status read_header(const struct brim__file *idx, struct header *header) {
    uint8_t bytes[HEADER_BYTES];
    if (idx->bytes < HEADER_BYTES) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, idx->path, idx->bytes,
                               "the file ends inside the index's header of %d bytes", HEADER_BYTES);
    }
    const brim_status status = brim__file_read(idx, 0, bytes, sizeof bytes);
    if (status != BRIM_OK) {
        return status;
    }
    if (memcmp(bytes, magic, sizeof magic) != 0) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, idx->path, 0,
                               "not a Megatron index: it does not begin with "
                               "MMIDIDX");
    }
    uint64_t version, documents;
    memcpy(&version, bytes + 9, sizeof version);
    memcpy(&header->sequences, bytes + 18, sizeof header->sequences);
    memcpy(&documents, bytes + 26, sizeof documents);
    if (version != 1) {
        return brim__fail_byte(BRIM_STATUS_UNSUPPORTED, idx->path, 9,
                               "version %llu of the index; only 1 is known",
                               (unsigned long long)version);
    }
    const uint8_t code = bytes[17];
    if (code == 0 || code >= BRIM__COUNT(dtype_codes)) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, idx->path, 17,
                               "the dtype's code is %u, but they go from 1 "
                               "to 8",
                               code);
    }
    header->dtype = dtype_codes[code];
    if (header->dtype == BRIM_DTYPE_F32 || header->dtype == BRIM_DTYPE_F64) {
        return brim__fail_byte(BRIM_STATUS_UNSUPPORTED, idx->path, 17, "%s values are not tokens",
                               brim_dtype_name(header->dtype));
    }
    /* counts are not trusted: each is compared with the bytes that are left before it is used */
    const uint64_t bytes_left = idx->bytes - HEADER_BYTES;
    if (header->sequences > bytes_left / 12) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, idx->path, 18,
                               "%llu sequences need 12 bytes each, but the index has only "
                               "%llu left",
                               (unsigned long long)header->sequences,
                               (unsigned long long)bytes_left);
    }
    const uint64_t after = bytes_left - 12 * header->sequences;
    if (documents > after / 8 ||
        (after - 8 * documents != 0 && after - 8 * documents != header->sequences)) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, idx->path, 26,
                               "%llu sequences and %llu document indices do not make an "
                               "index of %llu bytes",
                               (unsigned long long)header->sequences, (unsigned long long)documents,
                               (unsigned long long)idx->bytes);
    }
    return BRIM_OK;
}

/* *end: the byte of the tokens' file at which the last sequence ends. */
static brim_status check_sequences(const struct brim__file *idx, const struct header *header,
                                   const struct brim__file *bin, uint64_t *end) {
    int32_t lengths[CHUNK];
    int64_t pointers[CHUNK];
    const uint64_t item_bytes = brim_dtype_bytes(header->dtype);
    const uint64_t pointers_at = HEADER_BYTES + 4 * header->sequences;
    uint64_t sum = 0;
    for (uint64_t first = 0; first < header->sequences; first += CHUNK) {
        const size_t count = brim__min(CHUNK, header->sequences - first);
        brim_status status = brim__file_read(idx, HEADER_BYTES + 4 * first, lengths, 4 * count);
        if (status == BRIM_OK) {
            status = brim__file_read(idx, pointers_at + 8 * first, pointers, 8 * count);
        }
        if (status != BRIM_OK) {
            return status;
        }
        for (size_t i = 0; i < count; i++) {
            const unsigned long long sequence = first + i;
            if (lengths[i] < 0) {
                return brim__fail_byte(BRIM_STATUS_CORRUPT, idx->path, HEADER_BYTES + 4 * sequence,
                                       "sequence %llu has %d tokens", sequence, lengths[i]);
            }
            if (pointers[i] < 0 || (uint64_t)pointers[i] != sum) {
                return brim__fail_byte(BRIM_STATUS_CORRUPT, idx->path, pointers_at + 8 * sequence,
                                       "sequence %llu begins at byte %lld of the tokens, "
                                       "but those before it end at %llu",
                                       sequence, (long long)pointers[i], (unsigned long long)sum);
            }
            sum += (uint64_t)lengths[i] * item_bytes;
            if (sum > bin->bytes) { /* checked after each addition, so the sum cannot overflow */
                return brim__fail_byte(BRIM_STATUS_CORRUPT, bin->path, bin->bytes,
                                       "the file ends, but according to %s sequence %llu continues "
                                       "to byte %llu",
                                       idx->path, sequence, (unsigned long long)sum);
            }
        }
    }
    *end = sum;
    return BRIM_OK;
}

brim_status brim__megatron_read(const char *idx_path, const struct brim__file *bin,
                                struct brim__token_run *run) {
    struct brim__file idx = { .fd = -1 };
    struct header header = { 0 };
    uint64_t end = 0;
    brim_status status = brim__file_open(&idx, idx_path);
    if (status != BRIM_OK) {
        return status;
    }
    status = read_header(&idx, &header);
    if (status == BRIM_OK) {
        status = check_sequences(&idx, &header, bin, &end);
    }
    if (status == BRIM_OK && end != bin->bytes) {
        status = brim__fail_byte(BRIM_STATUS_CORRUPT, bin->path, end,
                                 "the last sequence of %s ends here, but the file has %llu bytes: "
                                 "the index may be of another file",
                                 idx_path, (unsigned long long)bin->bytes);
    }
    if (status == BRIM_OK) {
        *run = (struct brim__token_run){ .dtype = header.dtype,
                                         .tokens = end / brim_dtype_bytes(header.dtype) };
    }
    brim__file_close(&idx);
    return status;
}
