/*
 * npy_writer.h: writes the fields of samples as .npy files into a folder.
 *
 * FIELD.npy of a dense field has the samples in its first dimension. A field
 * whose samples differ in length gives two files: FIELD.npy with all of them one
 * after the other, and FIELD.offsets.npy, int64: sample i lies from offsets[i]
 * to offsets[i + 1].
 *
 * The files carry other names until npy_writer_finish renames them; a writer that
 * is only closed removes them.
 */
#ifndef CLI_NPY_WRITER_H
#define CLI_NPY_WRITER_H

#include "session.h"

#include <brim.h>

struct npy_writer;

/* Makes the folder if it is not there, and the files of the plan's fields. NULL:
 * *failure says why. */
struct npy_writer *npy_writer_new(const char *folder, const brim_plan *plan,
                                  struct failure *failure);
/* One row of a batch. */
brim_status npy_writer_add(struct npy_writer *writer, const brim_batch *batch, uint64_t row,
                           struct failure *failure);
brim_status npy_writer_finish(struct npy_writer *writer, struct failure *failure);
void npy_writer_close(struct npy_writer *writer);

#endif
