/*
 * call.c: random numbers for callbacks.
 */
#include "order/philox.h"

uint32_t brim_call_random(const brim_call *call, uint32_t draw) {
    return call == NULL ? 0 : brim__random(call->key, call->sample, call->epoch, draw);
}
