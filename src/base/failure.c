/*
 * failure.c: the calling thread's last failure: its text and what else is known of it.
 *
 * Each thread has one record of fixed size, so that failing never allocates and never fails itself.
 * A text that is too long is cut. Every text is built outside the record and copied into it at the
 * end, because an argument may point into the text that is being replaced.
 *
 *     brim__fail          begins a failure: all but its text is unknown
 *     brim__at_...        say more of it, each once: what is said first is nearest to the cause
 *     brim__fail_within   puts words before its text, and leaves all else
 *     brim__failure_keep, brim__fail_kept   carry it from thread to thread
 *
 * The part about memory (brim__lack) stays with the thread that was refused the memory.
 */
#include "base/struct.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local struct brim__failure last = {
    .stage_index = BRIM_NO_STAGE,
    .sample = BRIM_UNKNOWN,
    .byte = BRIM_UNKNOWN,
};
static _Thread_local struct brim__lack lack;
static _Thread_local uint64_t said_cause; /* by a callback that is failing */

const char *brim_detail(void) {
    return last.text;
}

/* All but the text. */
static void begin(struct brim__failure *failure, brim_status status) {
    failure->status = status;
    failure->stage_index = BRIM_NO_STAGE;
    failure->begin = failure->end = failure->at = 0;
    failure->sample = failure->byte = BRIM_UNKNOWN;
    failure->cause = 0;
    failure->stage[0] = failure->argument[0] = failure->source[0] = '\0';
}

static void forget_lack(void) {
    lack.needed = lack.wanted = lack.others_bytes = 0;
    lack.minimum_bytes = lack.minimum_pinned_bytes = lack.minimum_device_bytes = 0;
    lack.kind = BRIM_MEMORY_HOST;
    lack.exact = lack.blocked = lack.final = false;
    lack.holder_count = 0;
}

bool brim__failure_copy(brim_status status, const char *text) {
    begin(&last, status);
    forget_lack();
    if (text != last.text) {
        brim__copy_text(last.text, sizeof last.text, text);
    }
    return true;
}

bool brim__failure_write(brim_status status, const char *format, ...) {
    char text[BRIM__DETAIL_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return brim__failure_copy(status, length < 0 ? format : text);
}

bool brim__failure_write_byte(brim_status status, const char *path, uint64_t byte,
                              const char *format, ...) {
    char text[BRIM__DETAIL_BYTES];
    va_list arguments;
    snprintf(text, sizeof text, "%s: byte %llu: ", path, (unsigned long long)byte);
    const size_t prefix = strlen(text);
    va_start(arguments, format);
    vsnprintf(text + prefix, sizeof text - prefix, format, arguments);
    va_end(arguments);
    brim__failure_copy(status, text);
    brim__note_source_byte(path, byte);
    return true;
}

bool brim__failure_prefix(brim_status status, const char *format, ...) {
    char text[BRIM__DETAIL_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    last.status = status;
    if (length < 0) {
        return true;
    }
    const size_t prefix = strlen(text);
    brim__copy_text(text + prefix, sizeof text - prefix, ": ");
    const size_t both = strlen(text);
    brim__copy_text(text + both, sizeof text - both, last.text);
    memcpy(last.text, text, sizeof text);
    return true;
}

void brim__failure_keep(struct brim__failure *kept) {
    *kept = last;
}

void brim__failure_restore(const struct brim__failure *kept) {
    last = *kept;
    forget_lack();
}

bool brim__failure_copy_kept(brim_status status, const struct brim__failure *kept) {
    last = *kept;
    last.status = status;
    forget_lack();
    return true;
}

void brim__failure_set(struct brim__failure *kept, brim_status status, const char *format, ...) {
    va_list arguments;
    begin(kept, status);
    va_start(arguments, format);
    vsnprintf(kept->text, sizeof kept->text, format, arguments);
    va_end(arguments);
}

/* --------------------------------------------------------- what else is known */

void brim__note_stage(const struct brim__spot *spot) {
    if (last.stage[0] == '\0') {
        brim__copy_text(last.stage, sizeof last.stage, spot->stage);
        last.stage_index = spot->index;
        last.begin = spot->begin;
        last.end = spot->end;
        last.at = brim__max(last.at, spot->begin);
    }
}

void brim__note_text_byte(size_t at) {
    last.at = at;
}

void brim__note_extent(size_t begin, size_t end) {
    last.begin = last.at = begin;
    last.end = end;
}

uint32_t brim__noted_stage(void) {
    return last.stage_index;
}

void brim__note_step(uint32_t index) {
    if (last.stage_index == BRIM_NO_STAGE) {
        last.stage_index = index;
    }
}

uint32_t brim__noted_step(void) {
    return last.stage_index;
}

void brim__note_argument(const char *name) {
    if (last.argument[0] == '\0') {
        brim__copy_text(last.argument, sizeof last.argument, name);
    }
}

void brim__note_source(const char *name) {
    if (last.source[0] == '\0') {
        brim__copy_text(last.source, sizeof last.source, name);
    }
}

void brim__note_file(const char *path) {
    brim__copy_text(last.source, sizeof last.source, path);
}

void brim__note_source_byte(const char *path, uint64_t byte) {
    if (last.source[0] == '\0') {
        brim__copy_text(last.source, sizeof last.source, path);
        last.byte = byte;
    } else if (last.byte == BRIM_UNKNOWN &&
               strncmp(last.source, path, sizeof last.source - 1) == 0) {
        last.byte = byte;
    }
}

void brim__note_sample(uint64_t sample) {
    if (last.sample == BRIM_UNKNOWN) {
        last.sample = sample;
    }
}

void brim__note_cause(void) {
    last.cause = said_cause;
    said_cause = 0;
}

uint64_t brim__noted_cause(void) {
    return last.cause;
}

void brim__put_cause(uint64_t cause) {
    last.cause = cause;
}

bool brim__cause_said(void) {
    return said_cause != 0;
}

void brim_callback_cause(uint64_t cause) {
    said_cause = cause;
}

struct brim__lack *brim__lack(void) {
    return &lack;
}

void brim__lack_holder(struct brim__lack *out, const char *label, uint64_t bytes) {
    if (out->holder_count < BRIM_MAX_HOLDERS) {
        brim_holder *holder = &out->holder[out->holder_count++];
        brim__copy_text(holder->label, sizeof holder->label, label);
        holder->bytes = bytes;
    }
}

brim_status brim__lack_of_opening(brim_status status) {
    if (status == BRIM_STATUS_BUDGET && !lack.final) {
        lack.minimum_bytes = lack.minimum_pinned_bytes = lack.minimum_device_bytes = 0;
    }
    return status;
}

/* -------------------------------------------------------------------- telling */

brim_status brim__failure_tell(const struct brim__failure *kept, brim_failure *out) {
    const brim_status status = brim__struct_check("failure", "BRIM_FAILURE_INIT", out);
    if (status != BRIM_OK) {
        return status;
    }
    brim_failure whole = { .status = kept->status,
                           .stage_index = kept->stage_index,
                           .begin = kept->begin,
                           .end = kept->end,
                           .at = kept->at,
                           .sample = kept->sample,
                           .byte = kept->byte,
                           .cause = kept->cause };
    memcpy(whole.text, kept->text, sizeof whole.text);
    memcpy(whole.stage, kept->stage, sizeof whole.stage);
    memcpy(whole.argument, kept->argument, sizeof whole.argument);
    memcpy(whole.source, kept->source, sizeof whole.source);
    if (kept->status == BRIM_OK) {
        whole.stage_index = BRIM_NO_STAGE;
        whole.sample = whole.byte = BRIM_UNKNOWN;
    }
    if (kept == &last) {
        whole.wanted_kind = lack.kind;
        whole.wanted_bytes = lack.wanted;
        whole.minimum_bytes = lack.minimum_bytes;
        whole.minimum_pinned_bytes = lack.minimum_pinned_bytes;
        whole.minimum_device_bytes = lack.minimum_device_bytes;
        whole.exact = lack.exact;
        whole.blocked = lack.blocked;
        whole.others_bytes = lack.others_bytes;
        whole.holder_count = lack.holder_count;
        memcpy(whole.holder, lack.holder, lack.holder_count * sizeof lack.holder[0]);
    }
    brim__struct_give(out, &whole, sizeof whole);
    return BRIM_OK;
}

brim_status brim_failure_read(brim_failure *failure) {
    return brim__failure_tell(&last, failure);
}
