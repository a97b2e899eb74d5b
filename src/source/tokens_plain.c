/*
 * tokens_plain.c: token files without a header, and files with llm.c's header.
 *
 *     nanoGPT:  u16 | u16 | ...                         (or u32)
 *     llm.c:    256 int32 | u16 or u32 tokens
 *               [0] magic, [1] version, [2] number of tokens, the rest unused
 *
 * llm.c has two magics: 20240520 (version 1) for u16, 20240801 (version 7) for
 * u32 tokens. All little-endian.
 */
#include "source/tokens.h"

#define LLMC_HEADER_BYTES 1024

static const struct {
    uint32_t magic, version;
    brim_dtype dtype;
} llmc_kinds[] = {
    { 20240520, 1, BRIM_DTYPE_U16 },
    { 20240801, 7, BRIM_DTYPE_U32 },
};

static const size_t no_kind = BRIM__COUNT(llmc_kinds);

static size_t find_kind(uint32_t magic) {
    size_t kind = 0;
    while (kind < no_kind && llmc_kinds[kind].magic != magic) {
        kind++;
    }
    return kind;
}

brim_status brim__tokens_plain(const struct brim__file *file, brim_dtype dtype,
                               struct brim__token_run *run) {
    const uint64_t item_bytes = brim_dtype_bytes(dtype);
    const uint64_t cut = file->bytes % item_bytes;
    if (cut != 0) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, file->path, (file->bytes - cut),
                               "the file ends inside a token: %llu bytes are not a multiple "
                               "of %llu; give the right format= (this is %s), or copy the whole "
                               "file",
                               (unsigned long long)file->bytes, (unsigned long long)item_bytes,
                               brim_dtype_name(dtype));
    }
    *run = (struct brim__token_run){ .dtype = dtype, .tokens = file->bytes / item_bytes };
    return BRIM_OK;
}

brim_status brim__tokens_is_llmc(const struct brim__file *file, bool *yes) {
    uint32_t magic;
    *yes = false;
    if (file->bytes < sizeof magic) {
        return BRIM_OK;
    }
    const brim_status status = brim__file_read(file, 0, &magic, sizeof magic);
    if (status == BRIM_OK) {
        *yes = find_kind(magic) != no_kind;
    }
    return status;
}

brim_status brim__tokens_llmc(const struct brim__file *file, struct brim__token_run *run) {
    uint32_t header[3];
    if (file->bytes < LLMC_HEADER_BYTES) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, file->path, file->bytes,
                               "the file ends inside llm.c's header of %d bytes",
                               LLMC_HEADER_BYTES);
    }
    const brim_status status = brim__file_read(file, 0, header, sizeof header);
    if (status != BRIM_OK) {
        return status;
    }
    const size_t kind = find_kind(header[0]);
    if (kind == no_kind) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, file->path, 0,
                               "the magic is %u, but that of llm.c's token files is %u or %u",
                               header[0], llmc_kinds[0].magic, llmc_kinds[1].magic);
    }
    if (header[1] != llmc_kinds[kind].version) {
        return brim__fail_byte(BRIM_STATUS_UNSUPPORTED, file->path, 4,
                               "version %u of llm.c's format; known for this magic is %u",
                               header[1], llmc_kinds[kind].version);
    }
    const uint64_t item_bytes = brim_dtype_bytes(llmc_kinds[kind].dtype);
    const uint64_t bytes = file->bytes - LLMC_HEADER_BYTES;
    if (bytes != header[2] * item_bytes) {
        return brim__fail_byte(BRIM_STATUS_CORRUPT, file->path, 8,
                               "the header counts %u tokens of %llu bytes, but %llu bytes "
                               "follow it",
                               header[2], (unsigned long long)item_bytes,
                               (unsigned long long)bytes);
    }
    *run = (struct brim__token_run){ .dtype = llmc_kinds[kind].dtype,
                                     .data = LLMC_HEADER_BYTES,
                                     .tokens = header[2] };
    return BRIM_OK;
}
