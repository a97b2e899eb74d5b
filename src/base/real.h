/*
 * real.h: the few functions of real numbers that decide samples.
 *
 * The C library's differ by CPU and release in their last bit, and a crop or a
 * weight that differs is another sample. These are plain arithmetic on doubles,
 * the same everywhere; right within a few units of the last place.
 */
#ifndef BRIM_REAL_H
#define BRIM_REAL_H

#include "base/base.h"

#define BRIM__PI 3.14159265358979323846

double brim__exp(double x);
double brim__log(double x);           /* x > 0 */
double brim__pow(double x, double y); /* x > 0 */
double brim__sin(double x);           /* |x| below 2^20 */
double brim__cos(double x);
double brim__sqrt(double x); /* exact everywhere */

#endif
