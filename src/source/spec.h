/*
 * spec.h: the declared output of the caller's functions, and the records of sources whose samples
 * they make.
 *
 * A record holds the fields one after the other, each at an offset that is a
 * multiple of 64. A field that is not dense is its span and, after it, room for
 * as many elements as its bound says:
 *
 *     0              64-aligned          64-aligned
 *     | dense field ... | span | elements ... | dense field ... |
 */
#ifndef BRIM_SPEC_H
#define BRIM_SPEC_H

#include "source/source.h"

/* Field `index` that a callback's binding declares, with a row-major view at
 * offset 0 and its bytes, which are the bound's if it is not dense. */
brim_status brim__spec_field(const brim_binding *binding, size_t index,
                             struct brim__source_field *field, uint64_t *bytes);

/* What a callback is told of a field: all but where its data lie. */
brim_value brim__spec_value(const char *name, brim_form form, brim_dtype dtype,
                            const struct brim__shape *shape);
/* How many elements of the first dimension a callback says that it has put into
 * the output `name`, which is not dense; BRIM_STATUS_CALLBACK if not 0 to `bound`. */
brim_status brim__spec_length(const char *name, const brim_value *output, uint64_t bound,
                              uint64_t *count);

/* Gives a source the fields of the binding and the record that holds them:
 * field, field_count, record_bytes and pitch. Enters them into its identity. */
brim_status brim__spec_record(const brim_binding *binding, const char *stage,
                              struct brim__source *source);
/* The values through which a callback fills one record ... */
void brim__spec_outputs(const struct brim__source *source, uint8_t *record, brim_value *outputs);
/* ... and the record's spans, from the lengths that it has set in them. */
brim_status brim__spec_spans(const struct brim__source *source, const brim_value *outputs,
                             uint8_t *record);

#endif
