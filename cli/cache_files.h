/*
 * cache_files.h: the cache files at some paths, and below them.
 */
#ifndef CLI_CACHE_FILES_H
#define CLI_CACHE_FILES_H

#include "session.h"

#include <brim.h>
#include <stddef.h>
#include <sys/types.h>

struct cache_file {
    char *path;
    dev_t device;
    ino_t inode;
    brim_cache_info info;
};

/* Each file once, by whatever names it was found. Zero to begin with. */
struct cache_files {
    struct cache_file *files;
    size_t count, room;
};

/* Told of what could not be looked at; the search goes on. */
typedef void cache_failed(void *user, const char *path, const struct failure *failure);

/* Adds the cache at `path`, or all below it if it is a directory, by name. Links below it
 * are not followed; files there that are no caches are left alone. */
void cache_files_add(struct cache_files *found, const char *path, cache_failed *failed, void *user);
void cache_files_free(struct cache_files *found);

#endif
