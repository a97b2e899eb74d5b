/*
 * status.c: the names of the statuses, and the version.
 */
#include "base/base.h"
#include "base/struct.h"

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

#define TEXT_OF(x)  #x
#define VALUE_OF(x) TEXT_OF(x)

const char *brim_version(void) {
    return VALUE_OF(BRIM_VERSION_MAJOR) "." VALUE_OF(BRIM_VERSION_MINOR) "." VALUE_OF(
        BRIM_VERSION_PATCH);
}

uint32_t brim_version_number(void) {
    return BRIM_VERSION_NUMBER;
}
