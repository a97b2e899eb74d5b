/*
 * answer.h: makes a failure from the return value of a callback (brim_answer).
 */
#ifndef BRIM_ANSWER_H
#define BRIM_ANSWER_H

#include "base/base.h"

/* The status of a failed callback. on_error acts on BRIM_STATUS_CALLBACK only. */
static inline brim_status brim__answer_status(int answer) {
    return answer == BRIM_ANSWER_STOP ? BRIM_STATUS_STOPPED : BRIM_STATUS_CALLBACK;
}

/* The end of the text, after "it returned N". */
static inline const char *brim__answer_note(int answer) {
    return answer == BRIM_ANSWER_STOP ? ", which stops the run" : "";
}

/* To be called before each call of a binding's function. It clears the cause that an earlier call
 * left. */
static inline void brim__answer_begin(void) {
    brim_callback_cause(0);
}

static inline const char *brim__answer_reason(const char *why) {
    return why[0] != '\0' ? why : "the function failed and gave no reason";
}

/* A failure with the reason that the function gave. The returned number is left out if the function
 * set a cause, because the number then means nothing to the user. */
static inline brim_status brim__answer_fail(int answer, const char *why) {
    const brim_status status = brim__answer_status(answer);
    if (brim__cause_said()) {
        return brim__at_callback(brim__fail(status, "%s", brim__answer_reason(why)));
    }
    return brim__fail(status, "%s (it returned %d%s)", brim__answer_reason(why), answer,
                      brim__answer_note(answer));
}

#endif
