/*
 * holders.h: what holds memory, and the most that it held: a tree of budgets for each kind of
 * memory that was used; and what went to a device.
 */
#ifndef CLI_HOLDERS_H
#define CLI_HOLDERS_H

#include "document.h"
#include "options.h"

#include <brim.h>

/* A table: now, at its peak, the part that gives way, and the limit. */
void holders_print(brim_runtime *runtime);
/* "usage": a list of kinds, each with its budgets, parents first. */
void holders_json(struct document *json, brim_runtime *runtime);

/* Of a budget that processes share: what all of them have; nothing where there is none. */
void shared_print(const brim_usage *usage, int width);
void shared_json(struct document *json, const brim_usage *usage);

/* "device": as it is written after --device. */
void put_device(struct document *json, const struct options *options);
/* "device", "device_slots" and "copied_bytes" of a loader; the line for people only on a
 * device, its text beginning in column `width`. */
void copies_json(struct document *json, const struct options *options, const brim_stats *stats);
void copies_print(const struct options *options, const brim_stats *stats, int width);

#endif
