/*
 * test_budget_model.c: the arithmetic of the tree against a naive model, over
 * random trees and random operations.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "budget_util.h"

#include <stdio.h>
#include <stdlib.h>

/* ---------------------------------------------------- against a naive model */

#define NODES 14
#define ROOM  (24 * KIB)

struct model {
    bool alive;
    int parent;
    uint64_t limit, minimum, firm, elastic, reserved, peak, nodes;
    brim_budget *real;
};

static struct model model[NODES];

static uint64_t model_sum(int node, bool elastic_only, bool minimums, bool with_elastic) {
    uint64_t sum = 0;
    if (!elastic_only) {
        sum += model[node].firm + model[node].reserved + model[node].nodes;
    }
    if (with_elastic) {
        sum += model[node].elastic;
    }
    for (int child = 1; child < NODES; child++) {
        if (!model[child].alive || model[child].parent != node) {
            continue;
        }
        const uint64_t below = model_sum(child, elastic_only, minimums, with_elastic);
        sum += minimums ? brim__max(model[child].minimum, below) : below;
    }
    return sum;
}

static bool model_fits(int node, bool with_elastic) {
    for (;; node = model[node].parent) {
        if (model_sum(node, false, true, with_elastic) > model[node].limit) {
            return false;
        }
        if (node == 0) {
            return true;
        }
    }
}

static bool model_charge(int node, uint64_t *column, uint64_t bytes, bool with_elastic) {
    *column += bytes;
    if (model_fits(node, with_elastic)) {
        return true;
    }
    *column -= bytes;
    return false;
}

/* The largest charge that fits, by trying. */
static uint64_t model_room(int node, bool with_elastic) {
    uint64_t low = 0;
    uint64_t high = 1 << 20;
    while (low < high) {
        const uint64_t middle = (low + high + 1) / 2;
        if (model_charge(node, &model[node].firm, middle, with_elastic)) {
            model[node].firm -= middle;
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

static uint64_t model_taken(int node) {
    return model_sum(node, false, false, true);
}

static void model_note_peaks(void) {
    for (int node = 0; node < NODES; node++) {
        if (model[node].alive) {
            model[node].peak = brim__max(model[node].peak, model_taken(node));
        }
    }
}

static bool model_new(int child, int parent, uint64_t limit, uint64_t minimum) {
    if (!model_charge(parent, &model[parent].nodes, node_bytes(), true)) {
        return false;
    }
    model_note_peaks();
    model[child] =
        (struct model){ .alive = true, .parent = parent, .limit = limit, .minimum = minimum };
    if (model_fits(parent, true)) {
        return true;
    }
    model[child].alive = false;
    model[parent].nodes -= node_bytes();
    return false;
}

/* Nothing is elastic to a holder here, so nothing gives way. */
static bool model_set(int node, uint64_t limit, uint64_t minimum) {
    const struct model before = model[node];
    model[node].limit = limit;
    model[node].minimum = minimum;
    if (model_fits(node, true)) {
        return true;
    }
    model[node] = before;
    return false;
}

static bool is_leaf(int node) {
    for (int child = 1; child < NODES; child++) {
        if (model[child].alive && model[child].parent == node) {
            return false;
        }
    }
    return true;
}

static void random_step(int node) {
    struct model *m = &model[node];
    const uint64_t bytes = random_below(3000);
    switch (random_below(11)) {
    case 0: {
        int child = 1;
        while (child < NODES && model[child].alive) {
            child++;
        }
        if (child == NODES) {
            return;
        }
        const uint64_t minimum = random_below(2) ? random_below(4000) : 0;
        const uint64_t limit =
            random_below(2) ? BRIM_UNLIMITED : minimum + random_below(3) * random_below(9000);
        brim_budget *real = NULL;
        const brim_status status = brim_budget_new(m->real, "node", limit, minimum, &real);
        assert_int_equal(status,
                         model_new(child, node, limit, minimum) ? BRIM_OK : BRIM_STATUS_BUDGET);
        if (status == BRIM_OK) {
            model[child].real = real;
        }
        return;
    }
    case 1:
        if (node == 0 || !is_leaf(node)) {
            return;
        }
        brim_budget_free(m->real);
        m->alive = false;
        model[m->parent].nodes -= node_bytes();
        return;
    case 2:
    case 3:
        assert_int_equal(charges(m->real, bytes), model_charge(node, &m->firm, bytes, true));
        return;
    case 4:
        assert_int_equal(brim__budget_try(m->real, BRIM_MEMORY_HOST, bytes),
                         model_charge(node, &m->elastic, bytes, true));
        return;
    case 5:
        assert_int_equal(brim__budget_reserve(m->real, BRIM_MEMORY_HOST, bytes) == BRIM_OK,
                         model_charge(node, &m->reserved, bytes, true));
        return;
    case 6: {
        const uint64_t back = random_below(m->firm + 1);
        brim_budget_uncharge(m->real, BRIM_MEMORY_HOST, back);
        m->firm -= back;
        return;
    }
    case 7: {
        const uint64_t back = random_below(m->elastic + 1);
        brim__budget_return(m->real, BRIM_MEMORY_HOST, back);
        m->elastic -= back;
        return;
    }
    case 8: {
        const uint64_t back = random_below(m->reserved + 1);
        brim__budget_unreserve(m->real, BRIM_MEMORY_HOST, back);
        m->reserved -= back;
        return;
    }
    case 9: {
        const uint64_t minimum = node > 0 && random_below(2) ? random_below(5000) : 0;
        const uint64_t taken = model_sum(node, false, true, true);
        uint64_t limit = node > 0 && random_below(3) == 0
                             ? BRIM_UNLIMITED
                             : taken - brim__min(taken, 1000) + random_below(9000);
        if (node == 0 && random_below(2)) {
            limit = root_bytes() + ROOM; /* which the others come back to */
        }
        if (minimum > limit) {
            return;
        }
        assert_int_equal(sets(m->real, BRIM_MEMORY_HOST, limit, minimum),
                         model_set(node, limit, minimum));
        return;
    }
    default: {
        const uint64_t firm = random_below(m->elastic + 1);
        brim__budget_firm_up(m->real, BRIM_MEMORY_HOST, firm);
        m->elastic -= firm;
        m->firm += firm;
        return;
    }
    }
}

static void the_arithmetic_is_that_of_a_naive_model(void **state) {
    (void)state;
    memset(model, 0, sizeof model);
    model[0] = (struct model){ .alive = true,
                               .limit = root_bytes() + ROOM,
                               .nodes = root_bytes(),
                               .peak = root_bytes(),
                               .real = new_root(ROOM) };
    for (int step = 0; step < 100000; step++) {
        int node;
        do {
            node = (int)random_below(NODES);
        } while (!model[node].alive);
        random_step(node);
        model_note_peaks();
        if (step % 20 != 0) {
            continue;
        }
        brim__budget_check(model[0].real);
        for (node = 0; node < NODES; node++) {
            if (!model[node].alive) {
                continue;
            }
            const brim_budget_info info = read_info(model[node].real);
            assert_int_equal(info.charged + info.reserved, model_taken(node));
            assert_int_equal(info.elastic, model_sum(node, true, false, true));
            assert_int_equal(info.peak, model[node].peak);
            assert_int_equal(info.limit, model[node].limit);
            assert_int_equal(info.minimum, model[node].minimum);
        }
        do {
            node = (int)random_below(NODES);
        } while (!model[node].alive);
        assert_int_equal(brim__budget_free_now(model[node].real, BRIM_MEMORY_HOST),
                         model_room(node, true));
        assert_int_equal(brim__budget_available(model[node].real, BRIM_MEMORY_HOST),
                         model_room(node, false));
    }
    for (int node = NODES - 1; node > 0; node--) { /* parents may go before children */
        if (model[node].alive) {
            brim_budget_free(model[node].real);
        }
    }
    brim_budget_uncharge(model[0].real, BRIM_MEMORY_HOST, model[0].firm);
    brim__budget_return(model[0].real, BRIM_MEMORY_HOST, model[0].elastic);
    brim__budget_unreserve(model[0].real, BRIM_MEMORY_HOST, model[0].reserved);
    assert_int_equal(read_info(model[0].real).charged, root_bytes());
    brim__budget_unref(model[0].real);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_arithmetic_is_that_of_a_naive_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
