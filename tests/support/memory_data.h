/*
 * memory_data.h: the data and pipelines that the tests of memory and failure
 * share: one pipeline for each way that data comes in and is worked on.
 */
#ifndef BRIM_TESTS_MEMORY_DATA_H
#define BRIM_TESTS_MEMORY_DATA_H

#include "support/support.h"

#include <pthread.h>

/* Set-up of a cmocka group: begin_tests() and the files. Torn down by end_tests(). */
int begin_memory_tests(void **state);
int begin_memory_tests_in_memory(void **state); /* as begin_tests_in_memory() */

struct recipe {
    const char *name;
    const char *text; /* $ stands for the directory */
};
extern const struct recipe recipes[];
extern const size_t recipe_count;
/* The pipeline of that name as text, in the caller's buffer. */
const char *recipe_text(const char *name, char text[TEXT_BYTES]);
/* The directory in place of every $. */
const char *expand(const char *text, char expanded[TEXT_BYTES]);

/* What the pipelines name: @matrix (array), @reader and @parallel (sources),
 * @serial and @concurrent (maps), and @gated, a source that stops at a gate. */
extern const brim_binding memory_bindings[];
extern const size_t memory_binding_count;

/* Samples of @gated from number `from` on wait until the gate is opened. */
void gate_shut(uint64_t from);
void gate_open(void);
void gate_await(unsigned waiting); /* until so many threads wait at it */

#endif
