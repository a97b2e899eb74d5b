/*
 * cache_files.c: finds cache files.
 *
 * Any regular file may be one, whatever its name: brim_cache_read looks at its first bytes and
 * refuses all others. A file that is gone before it is looked at, as those of a training in
 * progress may be, is ignored.
 */
#include "cache_files.h"

#include "output.h"

#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_known(const struct cache_files *found, const struct stat *facts) {
    for (size_t i = 0; i < found->count; i++) {
        if (found->files[i].device == facts->st_dev && found->files[i].inode == facts->st_ino) {
            return true;
        }
    }
    return false;
}

static void keep(struct cache_files *found, const char *path, const struct stat *facts,
                 const brim_cache_info *info) {
    if (found->count == found->room) {
        const size_t room = 2 * found->room + 16;
        struct cache_file *files = take(room, sizeof files[0]);
        if (found->files != NULL) {
            memcpy(files, found->files, found->count * sizeof files[0]);
            free(found->files);
        }
        found->files = files;
        found->room = room;
    }
    struct cache_file *file = &found->files[found->count++];
    *file = (struct cache_file){ .device = facts->st_dev, .inode = facts->st_ino, .info = *info };
    file->path = strcpy(take(strlen(path) + 1, 1), path);
}

/* A regular file; `given`: by the user, who means a cache. */
static void look(struct cache_files *found, const FTSENT *entry, bool given, cache_failed *failed,
                 void *user) {
    brim_cache_info info = BRIM_CACHE_INFO_INIT;
    struct stat facts;
    if (is_known(found, entry->fts_statp)) {
        return;
    }
    const brim_status status = brim_cache_read(entry->fts_path, &info);
    if (status == BRIM_OK) {
        keep(found, entry->fts_path, entry->fts_statp, &info);
    } else if (given || (status != BRIM_STATUS_INVALID && lstat(entry->fts_path, &facts) == 0)) {
        struct failure failure = { .status = status };
        snprintf(failure.text, sizeof failure.text, "%s", brim_detail());
        failed(user, entry->fts_path, &failure);
    }
}

static void fail_at(const char *path, int problem, cache_failed *failed, void *user) {
    struct failure failure = { .status = BRIM_STATUS_IO };
    snprintf(failure.text, sizeof failure.text, "%.512s: %s", path, strerror(problem));
    failed(user, path, &failure);
}

static int by_name(const FTSENT **a, const FTSENT **b) {
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

void cache_files_add(struct cache_files *found, const char *path, cache_failed *failed,
                     void *user) {
    char *root = strcpy(take(strlen(path) + 1, 1), path);
    FTS *tree = fts_open((char *const[]){ root, NULL }, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR,
                         by_name);
    const FTSENT *entry;
    if (tree == NULL) {
        fail_at(path, errno, failed, user);
        free(root);
        return;
    }
    while (errno = 0, (entry = fts_read(tree)) != NULL) {
        const bool given = entry->fts_level == FTS_ROOTLEVEL;
        switch (entry->fts_info) {
        case FTS_F:
            look(found, entry, given, failed, user);
            break;
        case FTS_DEFAULT: /* neither a file nor a directory, which could wait for ever */
            if (given) {
                struct failure failure = { .status = BRIM_STATUS_INVALID };
                snprintf(failure.text, sizeof failure.text, "%.512s is not a file", path);
                failed(user, path, &failure);
            }
            break;
        case FTS_SLNONE:
            if (given) {
                fail_at(path, ENOENT, failed, user);
            }
            break;
        case FTS_DNR:
        case FTS_ERR:
        case FTS_NS:
            if (given || entry->fts_errno != ENOENT) {
                fail_at(entry->fts_path, entry->fts_errno, failed, user);
            }
            break;
        default:
            break;
        }
    }
    if (errno != 0) {
        fail_at(path, errno, failed, user);
    }
    (void)fts_close(tree);
    free(root);
}

void cache_files_free(struct cache_files *found) {
    for (size_t i = 0; i < found->count; i++) {
        free(found->files[i].path);
    }
    free(found->files);
    *found = (struct cache_files){ 0 };
}
