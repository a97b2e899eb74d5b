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

#endif
