/*
 * answer.h: what a callback's return value means where it means a failure (brim_answer).
 */
#ifndef BRIM_ANSWER_H
#define BRIM_ANSWER_H

#include "base/base.h"

/* The status of a failure: on_error acts on BRIM_STATUS_CALLBACK alone. */
static inline brim_status brim__answer_status(int answer) {
    return answer == BRIM_ANSWER_STOP ? BRIM_STATUS_STOPPED : BRIM_STATUS_CALLBACK;
}

/* What follows "it returned N" in its text. */
static inline const char *brim__answer_note(int answer) {
    return answer == BRIM_ANSWER_STOP ? ", which stops the run" : "";
}

/* Before each call of a binding's function: a cause is that of the call in progress alone. */
static inline void brim__answer_begin(void) {
    brim_callback_cause(0);
}

static inline const char *brim__answer_reason(const char *why) {
    return why[0] != '\0' ? why : "the function failed and gave no reason";
}

/* A failure with the reason that a function gave for it: of one whose failure has a cause the
 * number means nothing to the user. */
static inline brim_status brim__answer_fail(int answer, const char *why) {
    const brim_status status = brim__answer_status(answer);
    if (brim__cause_said()) {
        return brim__at_callback(brim__fail(status, "%s", brim__answer_reason(why)));
    }
    return brim__fail(status, "%s (it returned %d%s)", brim__answer_reason(why), answer,
                      brim__answer_note(answer));
}

#endif
