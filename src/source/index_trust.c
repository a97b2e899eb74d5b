/*
 * index_trust.c: decides which indexes, listings and other kept files are trusted, by their owner.
 *
 * Checksums detect accidents, not forgeries: another user who can write such a file can give it any
 * content. So a file is used only if the effective user or root owns it and no other user may write
 * it. This is checked on the open file. A file that fails the check counts as absent:
 *
 *     own, but others may write it     made anew: a new file takes its name
 *     another user's                   left alone; made in the index directory instead,
 *                                      there under a name with the user's number if the
 *                                      plain one is taken too
 *
 * brim itself makes these files readable and writable for their owner only, whatever the umask. An
 * opening with trust_foreign (for teams that share a directory) skips the checks.
 */
#include "source/index.h"

#include <stdio.h>

#define PATH_SHOWN 300

static brim_status kept_at(const struct brim__file *data, const struct brim__index_recipe *recipe,
                           const char *ending, struct brim__opening *opening, const char **path) {
    return ending == NULL ? brim__index_path(data, recipe, opening, path)
                          : brim__kept_path(data, recipe, ending, opening, path);
}

brim_status brim__index_settle(const struct brim__file *data, struct brim__index_recipe *recipe,
                               const char *ending, struct brim__opening *opening, const char **path,
                               const char **note) {
    char text[2 * PATH_SHOWN + 256];
    const char *first = NULL;
    uint32_t owner = 0, mode = 0, first_owner = 0;
    for (;;) {
        brim_status status = kept_at(data, recipe, ending, opening, path);
        if (status != BRIM_OK) {
            return status;
        }
        if (opening->trust_foreign || !brim__file_owner(*path, &owner, &mode) ||
            brim__trust_of(owner, mode) != BRIM__FOREIGN) {
            break;
        }
        if (first == NULL) {
            first = *path;
            first_owner = owner;
        }
        if (recipe->own) {
            return brim__fail(BRIM_STATUS_IO,
                              "%s: belongs to another user (number %u) and is not trusted: delete "
                              "it, give another index directory (index_dir of the runtime, "
                              "--index-dir on the command line), or trust such files "
                              "(trust_foreign, --trust-foreign)",
                              *path, owner);
        }
        recipe->own = recipe->home == BRIM__INDEX_CACHE;
        recipe->home = BRIM__INDEX_CACHE;
    }
    if (first == NULL) {
        return BRIM_OK;
    }
    snprintf(text, sizeof text,
             "%.*s belongs to another user (number %u) and is not used; %.*s is used instead "
             "(trust_foreign, --trust-foreign: such files are used)",
             PATH_SHOWN, first, first_owner, PATH_SHOWN, *path);
    return brim__arena_text(opening->arena, text, note);
}

brim_status brim__index_trust(const struct brim__file *file, const struct brim__opening *opening,
                              const char **note) {
    const enum brim__trust trust =
        opening->trust_foreign ? BRIM__TRUSTED : brim__trust_of(file->owner, file->mode);
    if (trust == BRIM__TRUSTED) {
        return BRIM_OK;
    }
    char text[PATH_SHOWN + 256];
    snprintf(text, sizeof text,
             "%.*s could be written by other users (mode %04o) and is made again (trust_foreign, "
             "--trust-foreign: such files are used)",
             PATH_SHOWN, file->path, file->mode & 07777);
    if (*note == NULL && trust == BRIM__EXPOSED) {
        const brim_status status = brim__arena_text(opening->arena, text, note);
        if (status != BRIM_OK) {
            return status;
        }
    }
    return brim__fail(
        BRIM_STATUS_IO,
        "%s: %s (owner %u, mode %04o), so it is not trusted; where the file system "
        "keeps neither owners nor modes, give another place (index=, index_dir of the "
        "runtime, --index-dir), or trust such files (trust_foreign, --trust-foreign)",
        file->path,
        trust == BRIM__FOREIGN ? "it belongs to another user" : "other users can write it",
        file->owner, file->mode & 07777);
}
