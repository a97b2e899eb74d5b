/*
 * format_data.h: a small file of every format, and functions for the stages that
 * call one: what the tests of faults in formats and stages share.
 */
#ifndef BRIM_TESTS_FORMAT_DATA_H
#define BRIM_TESTS_FORMAT_DATA_H

#include "support/support.h"

/* Set-up of a cmocka group: begin_tests_in_memory() and the files. Torn down by end_tests().
 *
 *   lines.txt                60 lines of text
 *   table.csv                label, score, name: 24 records, text between quotes
 *   documents.jsonl          label, ids (0 to 8 numbers), text: 24 records
 *   x.safetensors            x float32 60 x 8
 *   stored.npz deflated.npz  x float32 60 x 8
 *   images.idx images.idx.gz uint8 50 x 6 x 6
 *   cifar.bin                12 images of CIFAR-10
 *   raw.bin                  200 records of 7 bytes
 *   chosen.txt chosen.npy    30 numbers below 60
 */
int begin_format_tests(void **state);

/* Opening with what pipelines name: @documents (a stream of 40 samples, number
 * and ragged ids), @even (keeps even numbers), @twice (two samples of each), @double
 * (on whole batches of int64). */
brim_open_options format_options(void);
/* @documents begins anew: to be called before it is opened. */
void rewind_documents(void);

#endif
