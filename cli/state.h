/*
 * state.h: a loader's state in a file: its bytes as they are, nothing around them.
 */
#ifndef CLI_STATE_H
#define CLI_STATE_H

#include "session.h"

#include <brim.h>

/* Whether a state can be written there, as far as can be told before there is
 * one: BRIM_OK, or *failure says why not. */
brim_status state_check(const char *path, struct failure *failure);
/* Both return BRIM_OK, or fill *failure. Writing replaces the file in one step:
 * a reader, or a crash, finds the old state or the new one, never a part. */
brim_status state_write(const char *path, const brim_state *state, struct failure *failure);
brim_status state_read(const char *path, brim_state *state, struct failure *failure);

#endif
