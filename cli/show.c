/*
 * show.c: `brim show`: a contact sheet of a pipeline's first samples.
 *
 * The samples are copied until all are there, because how values become colours
 * depends on all of them; then the sheet is drawn and written. Copies and sheet
 * together are bounded, outside of the budget, which is the pipeline's.
 *
 * A file gets its name when it is complete. What is not a file (a pipe, a device)
 * is written to as it is.
 */
#include "cli.h"
#include "contact.h"
#include "feed.h"
#include "session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_COUNT 16
#define MOST_BYTES    (UINT64_C(256) << 20)
#define LEAST_SIDE    8 /* a matrix with less is hardly an image, unless --field names it */
#define LIST_BYTES    768

struct target {
    FILE *file;
    brim_output *output; /* that it writes to; NULL: it is no file that is made anew */
};

struct show {
    const struct options *options;
    struct session *session;
    struct feed feed;
    const brim_plan *plan;
    struct target target;
    const char *label; /* the field; NULL: none */
    uint64_t most;     /* samples to take */
    struct contact contact;
    struct sheet sheet;
    struct failure failure;
};

static brim_status fail(struct show *show, brim_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static brim_status fail(struct show *show, brim_status status, const char *format, ...) {
    show->failure = (struct failure){ .status = status };
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(show->failure.text, sizeof show->failure.text, format, arguments);
    va_end(arguments);
    return status;
}

/* ------------------------------------------------------------------- target */

static brim_status cannot_write(struct show *show, const char *why) {
    return fail(show, BRIM_STATUS_IO, "cannot write %.512s: %s", show->options->output, why);
}

/* Whether the name promises an image of another kind. */
static bool is_other_image(const char *path) {
    static const char *const endings[] = { ".jpg", ".jpeg", ".webp", ".gif", ".bmp" };
    const char *ending = strrchr(path, '.');
    for (size_t i = 0; i < sizeof endings / sizeof endings[0] && ending != NULL; i++) {
        if (strcasecmp(ending, endings[i]) == 0) {
            return true;
        }
    }
    return false;
}

static brim_status target_open(struct show *show) {
    struct target *target = &show->target;
    const char *path = show->options->output;
    struct stat facts;
    if (is_other_image(path)) {
        return fail(show, BRIM_STATUS_INVALID,
                    "-o %.256s: the sheet is a PNG: give it a name that ends in .png", path);
    }
    if (strcmp(path, "-") == 0) {
        target->file = stdout;
        return isatty(STDOUT_FILENO) != 1
                   ? BRIM_OK
                   : fail(show, BRIM_STATUS_INVALID,
                          "-o -: standard output is a terminal, which cannot show a PNG: give the "
                          "name of a file, or a pipe");
    }
    if (stat(path, &facts) == 0 && !S_ISREG(facts.st_mode)) { /* a pipe, a device */
        target->file = fopen(path, "wbe");
        return target->file != NULL ? BRIM_OK : cannot_write(show, strerror(errno));
    }
    if (brim_output_new(path, &target->output) != BRIM_OK) {
        return fail(show, BRIM_STATUS_IO, "cannot write: %s", brim_detail());
    }
    target->file = stream_of(target->output);
    return target->file != NULL ? BRIM_OK : cannot_write(show, strerror(errno));
}

static brim_status target_finish(struct show *show) {
    struct target *target = &show->target;
    errno = 0;
    const char *why = sheet_write(&show->sheet, target->file);
    if (why != NULL) {
        return cannot_write(show, errno != 0 ? strerror(errno) : why);
    }
    if (target->file == stdout) {
        return BRIM_OK; /* main sees whether it arrives */
    }
    const int closed = fclose(target->file);
    target->file = NULL;
    if (closed != 0) {
        return cannot_write(show, strerror(errno));
    }
    brim_output *output = target->output;
    target->output = NULL;
    return output == NULL || brim_output_commit(output) == BRIM_OK
               ? BRIM_OK
               : fail(show, BRIM_STATUS_IO, "cannot write: %s", brim_detail());
}

static void target_close(struct target *target) {
    if (target->file != NULL && target->file != stdout) {
        fclose(target->file);
    }
    brim_output_free(target->output);
}

/* ------------------------------------------------------------------- fields */

static const brim_plan_field *field_find(const brim_plan *plan, const char *name, size_t length) {
    for (uint32_t i = 0; i < brim_plan_get(plan)->field_count; i++) {
        const brim_plan_field *field = brim_plan_field_at(plan, i);
        if (strlen(field->name) == length && memcmp(field->name, name, length) == 0) {
            return field;
        }
    }
    return NULL;
}

/* "image float32 224x224x3; label int64 scalar (an image has 2 or 3 dimensions)" */
static void fields_list(const brim_plan *plan, char text[LIST_BYTES]) {
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < brim_plan_get(plan)->field_count && at < LIST_BYTES; i++) {
        const brim_plan_field *field = brim_plan_field_at(plan, i);
        char shape[SHAPE_TEXT], type[NUMBER_TEXT];
        const char *why;
        struct image image;
        if (image_of(field, &image, &why)) {
            why = "--field shows it as an image";
        }
        at += (size_t)snprintf(text + at, LIST_BYTES - at, "%s%s %s %s (%s)", i > 0 ? "; " : "",
                               field->name, field_type_text(field, type),
                               field_shape_text(field, false, shape), why);
    }
}

static brim_status pictures_named(struct show *show) {
    struct contact *contact = &show->contact;
    for (const char *name = show->options->field; name != NULL;) {
        const size_t length = strcspn(name, ",");
        const int shown = (int)(length < BRIM_NAME_BYTES ? length : BRIM_NAME_BYTES);
        const brim_plan_field *field = field_find(show->plan, name, length);
        struct picture *picture = &contact->pictures[contact->picture_count];
        const char *why;
        if (field == NULL) {
            char list[LIST_BYTES];
            fields_list(show->plan, list);
            return fail(show, BRIM_STATUS_INVALID,
                        "--field: there is no field '%.*s'; the fields are: %s", shown, name, list);
        }
        if (contact->picture_count == CONTACT_PICTURES) {
            return fail(show, BRIM_STATUS_INVALID, "--field: at most %d fields can be side by side",
                        CONTACT_PICTURES);
        }
        if (!image_of(field, &picture->image, &why)) {
            return fail(show, BRIM_STATUS_INVALID, "--field: %s is not an image: %s", field->name,
                        why);
        }
        picture->field = field->name;
        contact->picture_count++;
        name = name[length] == ',' ? name + length + 1 : NULL;
    }
    return BRIM_OK;
}

static brim_status pictures_found(struct show *show) {
    struct contact *contact = &show->contact;
    for (uint32_t i = 0; i < brim_plan_get(show->plan)->field_count; i++) {
        const brim_plan_field *field = brim_plan_field_at(show->plan, i);
        struct picture *picture = &contact->pictures[contact->picture_count];
        const char *why;
        struct image image;
        if (contact->picture_count < CONTACT_PICTURES && image_of(field, &image, &why) &&
            (field->rank > 3 || (image.height >= LEAST_SIDE && image.width >= LEAST_SIDE))) {
            *picture = (struct picture){ .field = field->name, .image = image };
            contact->picture_count++;
        }
    }
    if (contact->picture_count == 0) {
        char list[LIST_BYTES];
        fields_list(show->plan, list);
        return fail(show, BRIM_STATUS_INVALID, "no field looks like an image: %s", list);
    }
    return BRIM_OK;
}

static bool is_shown(const struct show *show, const char *name) {
    for (uint32_t i = 0; i < show->contact.picture_count; i++) {
        if (strcmp(show->contact.pictures[i].field, name) == 0) {
            return true;
        }
    }
    return false;
}

/* The first field with names of classes, else the first that can be put into words. */
static void label_find(struct show *show) {
    for (uint32_t i = 0; i < brim_plan_get(show->plan)->field_count; i++) {
        const brim_plan_field *field = brim_plan_field_at(show->plan, i);
        if (is_shown(show, field->name) || !caption_able(field)) {
            continue;
        }
        if (brim_plan_class_count(show->plan, field->name) > 0) {
            show->label = field->name;
            return;
        }
        show->label = show->label != NULL ? show->label : field->name;
    }
}

/* ------------------------------------------------------------------ samples */

/* Refuses what would take too much, before any of it is taken. */
static brim_status samples_reserve(struct show *show) {
    struct contact *contact = &show->contact;
    const uint64_t samples = brim_plan_get(show->plan)->samples;
    const uint64_t cell = contact_measure(contact);
    uint64_t bytes = cell > MOST_BYTES ? UINT64_MAX : 2 * cell; /* as many may stay empty */
    for (uint32_t i = 0; i < contact->picture_count && bytes <= MOST_BYTES; i++) {
        bytes += image_bytes(&contact->pictures[i].image);
    }
    show->most = show->options->count > 0 ? show->options->count : DEFAULT_COUNT;
    show->most = samples < show->most ? samples : show->most; /* an unknown count is the largest */
    if (show->most > MOST_BYTES / bytes) {
        char all[NUMBER_TEXT];
        return fail(show, BRIM_STATUS_INVALID,
                    "making the sheet would take more than %s: show at most %" PRIu64
                    " samples (-n), or fewer fields (--field), or make the images smaller",
                    bytes_text((double)MOST_BYTES, all), MOST_BYTES / bytes);
    }
    contact->numbers = take(show->most, sizeof contact->numbers[0]);
    contact->captions = take(show->most, sizeof contact->captions[0]);
    for (uint32_t i = 0; i < contact->picture_count; i++) {
        struct picture *picture = &contact->pictures[i];
        picture->copies = take(show->most, sizeof picture->copies[0]);
    }
    return BRIM_OK;
}

static bool copy_run(void *user, const unsigned char *data, uint64_t bytes) {
    unsigned char **to = user;
    memcpy(*to, data, bytes);
    *to += bytes;
    return true;
}

/* The elements one after the other. They are walked as bytes, one more dimension. */
static unsigned char *value_copy(const struct value *value) {
    const size_t element = brim_dtype_bytes(value->dtype);
    unsigned char *copy = take(value->count, element), *to = copy;
    struct value bytes = *value;
    bytes.dtype = BRIM_DTYPE_U8;
    bytes.shape[bytes.rank] = (int64_t)element;
    bytes.strides[bytes.rank++] = 1;
    bytes.count *= element;
    (void)value_walk(&bytes, copy_run, &to);
    return copy;
}

static void sample_take(struct show *show, const brim_batch *batch, uint64_t row) {
    struct contact *contact = &show->contact;
    for (uint32_t i = 0; i < contact->picture_count; i++) {
        struct picture *picture = &contact->pictures[i];
        const struct value value = value_of(brim_batch_find(batch, picture->field), row);
        picture->copies[contact->count] = value_copy(&value);
    }
    if (show->label != NULL) {
        const struct value value = value_of(brim_batch_find(batch, show->label), row);
        caption_write(show->plan, show->label, &value, contact->captions[contact->count]);
    }
    contact->numbers[contact->count++] = brim_batch_get(batch)->samples[row];
}

static brim_status samples_take(struct show *show) {
    const struct contact *contact = &show->contact;
    brim_status status = BRIM_OK;
    if (show->options->epoch > 0) {
        status = brim_loader_seek(show->feed.loader, show->options->epoch, 0);
    }
    while (status == BRIM_OK && contact->count < show->most) {
        const brim_batch *batch;
        status = feed_next(&show->feed, &batch);
        if (status != BRIM_OK) {
            break;
        }
        const brim_batch_info *info = brim_batch_get(batch);
        for (uint64_t row = 0; row < info->rows && contact->count < show->most; row++) {
            if (info->valid[row]) {
                sample_take(show, batch, row);
            }
        }
    }
    if (status != BRIM_OK && status != BRIM_STATUS_END) {
        show->failure = failure_now(show->session, status);
        return status;
    }
    return contact->count > 0 ? BRIM_OK
                              : fail(show, BRIM_STATUS_INVALID, "the pipeline has no samples");
}

/* ------------------------------------------------------------------ command */

static void draw(struct show *show) {
    struct contact *contact = &show->contact;
    for (uint32_t i = 0; i < contact->picture_count; i++) {
        struct picture *picture = &contact->pictures[i];
        look_find(&picture->look, show->plan, show->session->pipeline, picture->field,
                  &picture->image, picture->copies, contact->count);
        if (picture->look.note[0] != '\0') {
            fputs("brim show: ", stderr);
            put_clean(stderr, picture->look.note);
            fputc('\n', stderr);
        }
    }
    contact_draw(contact, (uint32_t)show->options->columns, &show->sheet);
}

/* The loader is open. */
static brim_status make_sheet(struct show *show) {
    show->plan = brim_loader_plan(show->feed.loader);
    brim_status status = show->options->field != NULL ? pictures_named(show) : pictures_found(show);
    if (status == BRIM_OK) {
        label_find(show);
        status = samples_reserve(show);
    }
    if (status == BRIM_OK) {
        status = samples_take(show);
    }
    if (status == BRIM_OK) {
        draw(show);
        status = target_finish(show);
    }
    return status;
}

static void print_result(const struct show *show) {
    const struct contact *contact = &show->contact;
    if (show->options->json) {
        struct document json = { .file = stdout };
        put_object(&json, NULL);
        put_text(&json, "output", show->options->output);
        put_count(&json, "samples", contact->count);
        put_count(&json, "columns", contact->columns);
        put_count(&json, "width", show->sheet.width);
        put_count(&json, "height", show->sheet.height);
        put_array(&json, "fields");
        for (uint32_t i = 0; i < contact->picture_count; i++) {
            put_text(&json, NULL, contact->pictures[i].field);
        }
        end_array(&json);
        put_text(&json, "label", show->label);
        end_object(&json);
    } else if (show->target.file != stdout) {
        put_clean(stdout, show->options->output);
        printf(": %" PRIu64 " samples, %ux%u pixels\n", contact->count, show->sheet.width,
               show->sheet.height);
    }
}

static void contact_free(struct contact *contact) {
    for (uint32_t i = 0; i < contact->picture_count; i++) {
        for (uint64_t k = 0; k < contact->count; k++) {
            free(contact->pictures[i].copies[k]);
        }
        free(contact->pictures[i].copies);
    }
    free(contact->numbers);
    free(contact->captions);
}

int command_show(const struct options *options) {
    struct session session;
    struct show show = { .options = options, .session = &session };
    int code = session_begin(&session, options);
    if (code == EXIT_GOOD) {
        brim_status status = target_open(&show);
        if (status == BRIM_OK) {
            status = feed_open(&show.feed, &session);
            if (status == BRIM_OK) {
                status = make_sheet(&show);
            } else {
                show.failure = failure_now(&session, status);
            }
        }
        if (status == BRIM_OK) {
            print_result(&show);
        } else {
            code = failure_tell(options, &show.failure);
        }
        contact_free(&show.contact);
        sheet_free(&show.sheet);
        target_close(&show.target);
        feed_close(&show.feed);
    }
    session_end(&session);
    return code;
}
