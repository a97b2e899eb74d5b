/*
 * spec.h: the declared outputs of the caller's functions, and the records of sources whose samples
 * these functions make.
 *
 * A record has the fields one after the other, each at an offset that is a multiple of 64. A field
 * that is not dense is its span and, after it, room for as many elements as its bound:
 *
 *     0              64-aligned          64-aligned
 *     | dense field ... | span | elements ... | dense field ... |
 */
#ifndef BRIM_SPEC_H
#define BRIM_SPEC_H

#include "source/source.h"

/* Field `index` that a callback's binding declares, with a row-major view at offset 0, and its size
 * in bytes: for a field that is not dense, that of its bound. */
brim_status brim__spec_field(const brim_binding *binding, size_t index,
                             struct brim__source_field *field, uint64_t *bytes);

/* The value that describes a field to a callback, still without its data pointer. */
brim_value brim__spec_value(const char *name, brim_form form, brim_dtype dtype,
                            const struct brim__shape *shape);
/* Reads the length of the first dimension that a callback has set for the output `name`, which is
 * not dense; BRIM_STATUS_CALLBACK unless it is 0 to `bound`. */
brim_status brim__spec_length(const char *name, const brim_value *output, uint64_t bound,
                              uint64_t *count);

/* Sets a source's fields from the binding, and the layout of its record: field, field_count,
 * record_bytes and pitch. Hashes them into its identity. */
brim_status brim__spec_record(const brim_binding *binding, const char *stage,
                              struct brim__source *source);
/* The values through which a callback fills one record ... */
void brim__spec_outputs(const struct brim__source *source, uint8_t *record, brim_value *outputs);
/* ... and the record's spans, from the lengths that it has set in them. */
brim_status brim__spec_spans(const struct brim__source *source, const brim_value *outputs,
                             uint8_t *record);

#endif
