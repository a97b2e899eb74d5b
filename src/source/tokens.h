/*
 * tokens.h: the readers of the formats of token files, for tokens.c.
 *
 * In every format a token file is a run of integers of one dtype that begins at some byte. Each
 * reader checks its file and gives that byte.
 */
#ifndef BRIM_TOKENS_H
#define BRIM_TOKENS_H

#include "base/file.h"
#include "memory/alloc.h"

/* The choices of the argument `format`, in its order. */
enum brim__token_format {
    BRIM__TOKENS_AUTO,
    BRIM__TOKENS_U16,
    BRIM__TOKENS_U32,
    BRIM__TOKENS_LLMC,
    BRIM__TOKENS_MEGATRON,
};

struct brim__token_run {
    brim_dtype dtype; /* an integer's; little-endian */
    uint64_t data;    /* byte of the first token */
    uint64_t tokens;
};

/* tokens_plain.c: headerless files, and llm.c's. */
brim_status brim__tokens_plain(const struct brim__file *file, brim_dtype dtype,
                               struct brim__token_run *run);
brim_status brim__tokens_llmc(const struct brim__file *file, struct brim__token_run *run);
brim_status brim__tokens_is_llmc(const struct brim__file *file, bool *yes);

/* megatron.c: tokens in a .bin, their sequences in an .idx. A path is that of
 * either, or of both without the suffix. */
brim_status brim__megatron_paths(struct brim__arena *arena, const char *path, const char **bin,
                                 const char **idx);
/* Whether `path` is an index, or has one beside it, that looks like Megatron-LM's. */
brim_status brim__megatron_guess(struct brim__arena *arena, const char *path, bool *yes);
/* Checks the whole index against the file of tokens. */
brim_status brim__megatron_read(const char *idx_path, const struct brim__file *bin,
                                struct brim__token_run *run);

#endif
