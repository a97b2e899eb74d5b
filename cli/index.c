/*
 * index.c: `brim index`: makes the indexes of files ahead of time, and checks them.
 *
 * Planning a pipeline opens its indexes and makes those that are missing or
 * stale; all that is done here is planning, and telling what the plan has.
 */
#include "cli.h"
#include "session.h"

#include <string.h>
#include <sys/stat.h>

#define TEXT_BYTES 8192

/* A path becomes the pipeline that reads it. */
static brim_status find_text(const char *subject, char text[TEXT_BYTES]) {
    struct stat file;
    if (stat(subject, &file) != 0 && strlen(subject) < TEXT_BYTES && is_pipeline(subject)) {
        strcpy(text, subject);
        return BRIM_OK;
    }
    return brim_guess(subject, text, TEXT_BYTES);
}

static bool is_folder(const brim_plan_index *index) {
    struct stat file;
    return stat(index->data_path, &file) == 0 && S_ISDIR(file.st_mode);
}

/* Of a folder, whose records are paths: how many classes there are, if it is the only one. */
static size_t classes_of(const brim_plan *plan) {
    size_t classes = 0;
    if (brim_plan_get(plan)->index_count > 1) {
        return 0;
    }
    for (uint32_t i = 0; i < brim_plan_get(plan)->field_count && classes == 0; i++) {
        classes = brim_plan_class_count(plan, brim_plan_field_at(plan, i)->name);
    }
    return classes;
}

static void print_json(struct document *json, const struct session *session, const brim_plan *plan,
                       bool verified) {
    const brim_plan_index *index;
    put_text(json, "pipeline", brim_pipeline_text(session->pipeline));
    put_array(json, "indexes");
    for (size_t i = 0; (index = brim_plan_index_at(plan, i)) != NULL; i++) {
        put_object(json, NULL);
        put_text(json, "data", index->data_path);
        put_text(json, "index", index->path);
        if (is_folder(index)) {
            put_count(json, "files", index->records);
            put_count(json, "classes", classes_of(plan));
        } else {
            put_count(json, "records", index->records);
            put_count(json, "largest_bytes", index->largest_bytes);
            put_count(json, "data_bytes", index->data_bytes);
        }
        put_count(json, "index_bytes", index->bytes);
        put_bool(json, "made", index->made != 0);
        put_text(json, "note", index->note);
        end_object(json);
    }
    end_array(json);
    if (verified) {
        put_bool(json, "verified", true);
    }
}

static void print_text(const brim_plan *plan, bool verified) {
    const brim_plan_index *index;
    char records[NUMBER_TEXT], bytes[NUMBER_TEXT];
    for (size_t i = 0; (index = brim_plan_index_at(plan, i)) != NULL; i++) {
        put_clean(stdout, index->data_path);
        if (is_folder(index)) {
            const size_t classes = classes_of(plan);
            printf("\n  files    %s\n", count_text(index->records, records));
            if (classes > 0) {
                printf("  classes  %s\n", count_text(classes, records));
            }
        } else {
            printf("\n  records  %s in %s\n", count_text(index->records, records),
                   bytes_text((double)index->data_bytes, bytes));
            printf("  largest  %s\n", bytes_text((double)index->largest_bytes, bytes));
        }
        fputs("  index    ", stdout);
        put_clean(stdout, index->path);
        printf(", %s, %s%s\n", bytes_text((double)index->bytes, bytes),
               index->made ? "made now" : "was there", verified ? ", verified" : "");
    }
}

/* One path or pipeline. */
static int make(const struct options *options, const char *subject, struct document *json,
                struct failure *failure) {
    struct session session = { .options = options };
    char text[TEXT_BYTES];
    brim_plan *plan = NULL;
    *failure = (struct failure){ .status = BRIM_OK };
    brim_status status = find_text(subject, text);
    if (status == BRIM_OK) {
        status = session_open(&session, options, text, failure);
    }
    if (status == BRIM_OK) {
        status = session_plan(&session, &plan);
    }
    if (status == BRIM_OK && options->verify) {
        status = session_verify(&session, plan);
    }
    if (status != BRIM_OK && failure->status == BRIM_OK) {
        *failure = failure_now(&session, status);
    }
    if (json != NULL) {
        put_object(json, NULL);
        put_text(json, "path", subject);
        if (status == BRIM_OK) {
            print_json(json, &session, plan, options->verify);
        } else {
            failure_json(json, failure);
        }
        end_object(json);
    } else if (status == BRIM_OK) {
        print_text(plan, options->verify);
        if (brim_plan_get(plan)->index_count == 0) {
            put_clean(stdout, subject);
            puts("\n  needs no index");
        }
    }
    brim_plan_free(plan);
    session_end(&session);
    if (status != BRIM_OK) {
        fflush(stdout);
        return failure_print(options, failure);
    }
    return EXIT_GOOD;
}

int command_index(const struct options *options) {
    return each_operand(options, make);
}
