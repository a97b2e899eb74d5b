/*
 * cache.c: `brim cache`: what the files of `cache file=` hold, and their deletion.
 *
 * The first word is the action. Each action reports on one path after the other: a few lines, or an
 * object in the array "files". A failure is also reported on stderr, and the next paths follow.
 */
#include "cache_files.h"
#include "cache_tell.h"
#include "cli.h"
#include "feed.h"
#include "progress.h"
#include "session.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct work {
    const struct options *options;
    struct document json; /* begun only if asked for */
    struct failure first;
    int code;
};

static void failed(void *user, const char *path, const struct failure *failure) {
    struct work *work = user;
    if (work->options->json) {
        put_object(&work->json, NULL);
        put_text(&work->json, "path", path);
        failure_json(&work->json, failure);
        end_object(&work->json);
    }
    fflush(stdout);
    const int code = failure_print(work->options, failure);
    if (work->first.status == BRIM_OK) {
        work->first = *failure;
    }
    work->code = work->code == EXIT_GOOD || code >= EXIT_SIGNAL ? code : work->code;
}

/* The last call on `path` failed. */
static void failed_now(struct work *work, const char *path, brim_status status) {
    const struct failure failure =
        failure_now(&(struct session){ .options = work->options }, status);
    failed(work, path, &failure);
}

/* ------------------------------------------------------------------- actions */

/* What stands after the action's name. */
static size_t paths_of(const struct work *work, char *const **paths) {
    *paths = work->options->operands + 1;
    return work->options->operand_count - 1;
}

/* All caches at the paths; returns their bytes. */
static uint64_t find(struct work *work, struct cache_files *found) {
    char *const *paths;
    const size_t count = paths_of(work, &paths);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        cache_files_add(found, paths[i], failed, work);
    }
    for (size_t i = 0; i < found->count; i++) {
        bytes += found->files[i].info.bytes;
    }
    return bytes;
}

/* "3 caches, 1.5 GiB" */
static void print_sum(size_t count, uint64_t bytes) {
    char a[NUMBER_TEXT], b[NUMBER_TEXT];
    printf("%s cache%s, %s", count_text(count, a), count == 1 ? "" : "s",
           bytes_text((double)bytes, b));
}

static void list(struct work *work) {
    struct cache_files found = { 0 };
    const uint64_t bytes = find(work, &found);
    if (work->options->json) {
        for (size_t i = 0; i < found.count; i++) {
            cache_json(&work->json, found.files[i].path, &found.files[i].info);
        }
        end_array(&work->json);
        put_count(&work->json, "bytes", bytes);
    } else {
        cache_list_print(&found);
        print_sum(found.count, bytes);
        putchar('\n');
    }
    cache_files_free(&found);
}

static void info(struct work *work) {
    char *const *paths;
    const size_t count = paths_of(work, &paths);
    for (size_t i = 0; i < count; i++) {
        brim_cache_info found = BRIM_CACHE_INFO_INIT;
        const brim_status status = brim_cache_read(paths[i], &found);
        if (status != BRIM_OK) {
            failed_now(work, paths[i], status);
        } else if (work->options->json) {
            cache_json(&work->json, paths[i], &found);
        } else {
            cache_print(paths[i], &found);
        }
    }
}

static void verify(struct work *work) {
    const struct options *options = work->options;
    char *const *paths;
    const size_t count = paths_of(work, &paths);
    feed_watch();
    for (size_t i = 0; i < count && work->code < EXIT_SIGNAL; i++) {
        struct progress progress;
        uint64_t good = 0, bad = 0;
        progress_begin(&progress, !options->quiet && !options->json);
        const brim_status status =
            brim_cache_verify(paths[i], feed_progress, &progress, &good, &bad);
        progress_end(&progress);
        if (status != BRIM_OK) {
            failed_now(work, paths[i], status);
            continue;
        }
        if (options->json) {
            put_object(&work->json, NULL);
            put_text(&work->json, "path", paths[i]);
            put_count(&work->json, "good", good);
            put_count(&work->json, "bad", bad);
            end_object(&work->json);
        } else {
            char a[NUMBER_TEXT], b[NUMBER_TEXT];
            put_clean(stdout, paths[i]);
            printf(": %s samples good, %s bad\n", count_text(good, a), count_text(bad, b));
        }
        work->code = work->code == EXIT_GOOD && bad > 0 ? EXIT_FAILED : work->code;
    }
}

/* Deletes one, or would: then what brim_cache_remove would refuse is refused here. */
static brim_status delete_one(const struct work *work, const char *path,
                              const brim_cache_info *facts) {
    if (!work->options->dry_run) {
        return brim_cache_remove(path);
    }
    return facts->in_use ? BRIM_STATUS_BUSY : BRIM_OK;
}

static void tell_deleted(struct work *work, const char *path, uint64_t bytes) {
    char text[NUMBER_TEXT];
    if (work->options->json) {
        put_object(&work->json, NULL);
        put_text(&work->json, "path", path);
        put_count(&work->json, "bytes", bytes);
        end_object(&work->json);
        return;
    }
    fputs(work->options->dry_run ? "would delete " : "deleted ", stdout);
    put_clean(stdout, path);
    printf(", %s\n", bytes_text((double)bytes, text));
}

static bool is_directory(const char *path) {
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

static void rm_one(struct work *work, const char *path) {
    brim_cache_info facts = BRIM_CACHE_INFO_INIT;
    struct failure refusal = { .status = BRIM_OK };
    if (is_directory(path)) {
        refusal.status = BRIM_STATUS_INVALID;
        snprintf(refusal.text, sizeof refusal.text,
                 "%.512s is a directory: brim cache prune DIR --to 0 deletes all caches in it; or "
                 "name the files",
                 path);
        failed(work, path, &refusal);
        return;
    }
    brim_status status = brim_cache_read(path, &facts);
    if (status == BRIM_OK && work->options->dry_run && facts.in_use) {
        refusal.status = BRIM_STATUS_BUSY;
        snprintf(refusal.text, sizeof refusal.text,
                 "a process is filling %.512s, so it would not be deleted", path);
        failed(work, path, &refusal);
        return;
    }
    if (status == BRIM_OK) {
        status = delete_one(work, path, &facts);
    }
    if (status == BRIM_OK) {
        tell_deleted(work, path, facts.bytes);
    } else {
        failed_now(work, path, status);
    }
}

static void rm(struct work *work) {
    char *const *paths;
    const size_t count = paths_of(work, &paths);
    for (size_t i = 0; i < count; i++) {
        rm_one(work, paths[i]);
    }
    if (work->options->json) {
        end_array(&work->json);
        put_bool(&work->json, "dry_run", work->options->dry_run);
    }
}

/* Those that no pipeline can use have no time and come first. */
static int by_use(const void *a, const void *b) {
    const brim_cache_info *x = &((const struct cache_file *)a)->info;
    const brim_cache_info *y = &((const struct cache_file *)b)->info;
    const int64_t u = x->usable ? x->used_ns : INT64_MIN, v = y->usable ? y->used_ns : INT64_MIN;
    return (u > v) - (u < v);
}

/* Nothing may be left of 0, not even a file that takes no block of the disk. */
static bool is_over(uint64_t bytes, uint64_t to) {
    return bytes > to || to == 0;
}

static void prune(struct work *work) {
    const struct options *options = work->options;
    struct cache_files found = { 0 };
    uint64_t left = find(work, &found);
    size_t deleted = 0, held = 0;
    if (found.count > 0) {
        qsort(found.files, found.count, sizeof found.files[0], by_use);
    }
    for (size_t i = 0; i < found.count && is_over(left, options->to); i++) {
        const struct cache_file *file = &found.files[i];
        const brim_status status = delete_one(work, file->path, &file->info);
        if (status == BRIM_OK) {
            tell_deleted(work, file->path, file->info.bytes);
            left -= file->info.bytes;
            deleted++;
        } else if (status == BRIM_STATUS_BUSY) {
            held++;
        } else {
            failed_now(work, file->path, status);
        }
    }
    const size_t count = found.count - deleted;
    if (options->json) {
        end_array(&work->json);
        put_count(&work->json, "left", count);
        put_count(&work->json, "left_bytes", left);
        put_count(&work->json, "left_in_use", held);
        put_bool(&work->json, "dry_run", options->dry_run);
    } else {
        fputs(options->dry_run ? "would leave " : "left: ", stdout);
        print_sum(count, left);
        putchar('\n');
    }
    if (is_over(left, options->to) && held > 0 && !options->quiet) {
        fflush(stdout);
        fprintf(stderr, "brim cache: more than --to is left: %zu in use %s not deleted\n", held,
                held == 1 ? "was" : "were");
    }
    cache_files_free(&found);
}

/* ------------------------------------------------------------------- command */

struct action {
    const char *name;
    void (*run)(struct work *work);
    bool deletes; /* takes --dry-run */
    bool bounded; /* takes --to */
    bool sums;    /* ends the array of files itself, to say more after it */
};

static const struct action actions[] = {
    { "list", list, false, false, true },      { "info", info, false, false, false },
    { "verify", verify, false, false, false }, { "rm", rm, true, false, true },
    { "prune", prune, true, true, true },
};
#define ACTIONS (sizeof actions / sizeof actions[0])

static const struct action *action_find(const char *name, char *why, size_t why_bytes) {
    const char *names[ACTIONS];
    for (size_t i = 0; i < ACTIONS; i++) {
        names[i] = actions[i].name;
        if (strcmp(names[i], name) == 0) {
            return &actions[i];
        }
    }
    const char *near = brim_nearest(name, names, ACTIONS);
    if (near != NULL) {
        snprintf(why, why_bytes, "brim cache has no '%s'; did you mean %s?", name, near);
    } else {
        snprintf(why, why_bytes, "brim cache has no '%s'; it has " CACHE_ACTIONS, name);
    }
    return NULL;
}

/* What must hold between the action and the options; false: *why says what does not. */
static bool check(const struct options *options, const struct action *action, char *why,
                  size_t why_bytes) {
    if (options->operand_count < 2) {
        snprintf(why, why_bytes, "a path is missing: brim cache %s PATH...", action->name);
    } else if (options->to != BRIM_UNLIMITED && !action->bounded) {
        snprintf(why, why_bytes, "--to is an option of brim cache prune, not of %s", action->name);
    } else if (options->to == BRIM_UNLIMITED && action->bounded) {
        snprintf(why, why_bytes, "the size that may be left is missing, such as --to 50GiB");
    } else if (options->dry_run && !action->deletes) {
        snprintf(why, why_bytes, "--dry-run is for rm and prune: %s deletes nothing", action->name);
    } else {
        return true;
    }
    return false;
}

int command_cache(const struct options *options) {
    struct failure failure = { .status = BRIM_STATUS_INVALID };
    const struct action *action = action_find(options->operand, failure.text, sizeof failure.text);
    if (action == NULL || !check(options, action, failure.text, sizeof failure.text)) {
        return failure_tell(options, &failure);
    }
    struct work work = { .options = options, .json = { .file = stdout } };
    if (options->json) {
        put_object(&work.json, NULL);
        put_array(&work.json, "files");
    }
    action->run(&work);
    if (options->json) {
        if (!action->sums) {
            end_array(&work.json);
        }
        if (work.first.status != BRIM_OK) {
            failure_json(&work.json, &work.first);
        }
        end_object(&work.json);
    }
    return work.code;
}
