/*
 * cache_tell.h: prints what is known of a cache file.
 */
#ifndef CLI_CACHE_TELL_H
#define CLI_CACHE_TELL_H

#include "cache_files.h"
#include "document.h"

#include <brim.h>

/* All of one: an object in an array, or some lines. */
void cache_json(struct document *json, const char *path, const brim_cache_info *info);
void cache_print(const char *path, const brim_cache_info *info);
/* A line for each. */
void cache_list_print(const struct cache_files *found);

#endif
