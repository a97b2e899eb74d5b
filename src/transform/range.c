/*
 * range.c: the range of the values of a field: 255 for pixels, whatever their type.
 *
 * Some types have a range: 1 for bool, 255 for uint8, 65535 for uint16; for others, such as floats,
 * it is unknown. A field keeps its range: a cast changes the type of a value and not its size. So a
 * field remembers its range if its type has another (brim__program_field.range), and every stage
 * that makes a new value sets its range (brim__program_set):
 *
 *     kept     cast (where the new type holds it), layout, reshape, pad, unbatch, copy, caches,
 *              crops, flips and all other image stages; resize antialias=no, which makes floats
 *     changed  normalize with mean 0 and one std for all channels: 0 to 1 after `normalize unit`
 *     lost     normalize else, one_hot, map, flat_map, boxes that an image stage moves
 */
#include "transform/program.h"

double brim__range_of_type(brim_dtype dtype) {
    return dtype == BRIM_DTYPE_BOOL  ? 1.0
           : dtype == BRIM_DTYPE_U8  ? BRIM__PIXELS
           : dtype == BRIM_DTYPE_U16 ? 65535.0
                                     : 0.0;
}

double brim__range(const struct brim__program_field *field) {
    return field->range > 0 ? field->range : brim__range_of_type(field->pending.to);
}

/* The largest value of an integer type, as the next power of two. */
static double end_of(brim_dtype dtype) {
    const int bits = 8 * (int)brim_dtype_bytes(dtype);
    const bool negative = dtype == BRIM_DTYPE_I8 || dtype == BRIM_DTYPE_I16 ||
                          dtype == BRIM_DTYPE_I32 || dtype == BRIM_DTYPE_I64;
    double end = 1;
    for (int i = negative; i < bits; i++) {
        end *= 2;
    }
    return end;
}

double brim__range_cast(const struct brim__program_field *field, brim_dtype dtype) {
    const double range = brim__range(field);
    if (brim__dtype_is_float(dtype)) {
        return range;
    }
    if (brim__range_of_type(dtype) > 0) {
        /* 8-bit pixels in a larger type; any other value has the range of the new type */
        return range >= BRIM__PIXELS && range < brim__range_of_type(dtype) ? range : 0;
    }
    return range < end_of(dtype) ? range : 0;
}
