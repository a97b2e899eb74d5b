/*
 * status.c: the names of the statuses and the calling thread's detail text.
 *
 * The detail is a fixed buffer for each thread, so that failing never
 * allocates and never fails itself; a longer text is cut. Every text is built
 * beside the detail and copied over it at the end, because an argument may
 * point into the detail that is being replaced.
 */
#include "base/base.h"
#include "base/struct.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char detail[BRIM__DETAIL_BYTES];

const char *brim_status_name(brim_status status) {
    switch (status) {
#define X(name, number, text) \
    case name:                \
        return #name;
        BRIM_STATUSES(X)
#undef X
    }
    return "BRIM_?";
}

const char *brim_status_text(brim_status status) {
    switch (status) {
#define X(name, number, text) \
    case name:                \
        return text;
        BRIM_STATUSES(X)
#undef X
    }
    return "unknown status";
}

const char *brim_detail(void) {
    return detail;
}

#define TEXT_OF(x)  #x
#define VALUE_OF(x) TEXT_OF(x)

const char *brim_version(void) {
    return VALUE_OF(BRIM_VERSION_MAJOR) "." VALUE_OF(BRIM_VERSION_MINOR) "." VALUE_OF(
        BRIM_VERSION_PATCH);
}

uint32_t brim_version_number(void) {
    return BRIM_VERSION_NUMBER;
}

static _Thread_local struct brim__refusal_note refusal;

struct brim__refusal_note *brim__refusal_note(void) {
    return &refusal;
}

void brim__refusal_begin(void) {
    refusal = (struct brim__refusal_note){ 0 };
}

brim_status brim__refusal_end(brim_status status) {
    if (status == BRIM_STATUS_BUDGET) {
        refusal.told.others_bytes = refusal.others_bytes;
        refusal.told.blocked = refusal.blocked;
    } else {
        refusal.told = (brim_refusal){ 0 };
    }
    return status;
}

brim_status brim_refusal_read(brim_refusal *out) {
    const brim_status status = brim__struct_check("refusal", "BRIM_REFUSAL_INIT", out);
    if (status == BRIM_OK) {
        brim__struct_give(out, &refusal.told, sizeof refusal.told);
    }
    return status;
}

bool brim__detail_write(const char *format, ...) {
    char text[BRIM__DETAIL_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return brim__detail_copy(length < 0 ? format : text);
}

bool brim__detail_prefix(const char *format, ...) {
    char text[BRIM__DETAIL_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0) {
        return true;
    }
    const size_t prefix = strlen(text);
    brim__copy_text(text + prefix, sizeof text - prefix, ": ");
    const size_t both = strlen(text);
    brim__copy_text(text + both, sizeof text - both, detail);
    return brim__detail_copy(text);
}

bool brim__detail_copy(const char *text) {
    if (text != detail) {
        brim__copy_text(detail, sizeof detail, text);
    }
    return true;
}
