/*
 * test_budget.c: the tree of limits: arithmetic against a naive model, elastic
 * memory and its revocation, refusals in words, the life of nodes, forks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "memory/alloc.h"
#include "memory/node.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

static uint64_t root_bytes(void) {
    return brim__alloc_bytes(sizeof(struct brim__tree));
}
static uint64_t node_bytes(void) {
    return brim__alloc_bytes(sizeof(struct brim_budget));
}

/* A root that leaves exactly `room` bytes of host memory, and 1 MiB of
 * page-locked memory. */
static brim_budget *new_root(uint64_t room) {
    const uint64_t limits[BRIM_MEMORY_KINDS] = { root_bytes() + room, MIB };
    brim_budget *root;
    assert_int_equal(brim__budget_root("runtime", limits, &root), BRIM_OK);
    return root;
}

static brim_budget *new_child(brim_budget *parent, const char *label, uint64_t limit,
                              uint64_t minimum) {
    brim_budget *child;
    assert_int_equal(brim_budget_new(parent, label, limit, minimum, &child), BRIM_OK);
    return child;
}

static brim_budget_info read_info(brim_budget *budget) {
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    assert_int_equal(brim_budget_read(budget, BRIM_HOST, &info), BRIM_OK);
    return info;
}

static bool charges(brim_budget *budget, uint64_t bytes) {
    const brim_status status = brim_budget_charge(budget, BRIM_HOST, bytes);
    assert_true(status == BRIM_OK || status == BRIM_BUDGET);
    return status == BRIM_OK;
}

/* ------------------------------------------------------------------ limits */

static void a_limit_is_exact(void **state) {
    (void)state;
    brim_budget *root = new_root(100);
    assert_true(charges(root, 100));
    assert_false(charges(root, 1));
    assert_true(charges(root, 0));
    brim_budget_uncharge(root, BRIM_HOST, 1);
    assert_true(charges(root, 1));
    assert_false(charges(root, UINT64_MAX));
    assert_int_equal(read_info(root).charged, root_bytes() + 100);
    brim_budget_uncharge(root, BRIM_HOST, 100);
    assert_int_equal(read_info(root).charged, root_bytes());
    assert_int_equal(read_info(root).peak, root_bytes() + 100);

    /* every kind has its own limit and peak */
    assert_int_equal(brim_budget_charge(root, BRIM_PINNED, MIB), BRIM_OK);
    assert_int_equal(brim_budget_charge(root, BRIM_PINNED, 1), BRIM_BUDGET);
    assert_non_null(strstr(brim_detail(), "page-locked"));
    assert_int_equal(brim_budget_charge(root, (brim_memory)(BRIM_DEVICE + 7), 1), BRIM_BUDGET);
    assert_non_null(strstr(brim_detail(), "device 7"));
    assert_int_equal(brim_budget_charge(root, (brim_memory)BRIM_MEMORY_KINDS, 1), BRIM_INVALID);
    assert_int_equal(brim_budget_charge(NULL, BRIM_HOST, 1), BRIM_INVALID);
    brim__budget_check(root);
    brim__budget_unref(root);

    const uint64_t too_small[BRIM_MEMORY_KINDS] = { root_bytes() - 1 };
    assert_int_equal(brim__budget_root("tiny", too_small, &root), BRIM_BUDGET);
    assert_non_null(strstr(brim_detail(), "\"tiny\""));
}

static void a_minimum_is_set_aside_and_used_first(void **state) {
    (void)state;
    brim_budget *root = new_root(10 * KIB + 2 * node_bytes());
    brim_budget *a = new_child(root, "a", BRIM_UNLIMITED, 6 * KIB);
    assert_int_equal(brim__budget_free_now(root), 4 * KIB + node_bytes());
    assert_int_equal(brim__budget_free_now(a), 10 * KIB + node_bytes());
    assert_int_equal(read_info(root).charged, root_bytes() + node_bytes()); /* really taken */

    brim_budget *refused;
    assert_int_equal(brim_budget_new(root, "b", BRIM_UNLIMITED, 5 * KIB, &refused), BRIM_BUDGET);
    assert_non_null(strstr(brim_detail(), "\"b\""));
    brim__budget_check(root);
    brim_budget *b = new_child(root, "b", 3 * KIB, 2 * KIB);
    assert_true(charges(a, 6 * KIB));
    assert_int_equal(brim__budget_free_now(root), 2 * KIB);
    assert_true(charges(a, 2 * KIB)); /* from the root now */
    assert_false(charges(a, 1));
    assert_true(charges(b, 2 * KIB)); /* was set aside all the time */
    assert_false(charges(b, 1));
    brim_budget_uncharge(a, BRIM_HOST, 2 * KIB);
    assert_false(charges(b, 2 * KIB)); /* its own limit */
    assert_non_null(strstr(brim_detail(), "budget \"b\" (limit 3.0 KiB)"));
    assert_true(charges(b, 1 * KIB));
    assert_int_equal(brim__budget_limit(b), 3 * KIB);
    assert_int_equal(brim__budget_limit(a), brim__budget_limit(root));
    brim__budget_check(root);

    brim_budget_free(a); /* returns its charges and its minimum */
    assert_int_equal(brim__budget_free_now(root), 7 * KIB + node_bytes());
    brim_budget_free(b);
    assert_int_equal(read_info(root).charged, root_bytes());
    assert_int_equal(brim__budget_free_now(root), 10 * KIB + 2 * node_bytes());

    assert_int_equal(brim_budget_new(root, "x", 1, 2, &a), BRIM_INVALID);
    assert_int_equal(brim_budget_new(root, NULL, 1, 0, &a), BRIM_INVALID);
    assert_int_equal(brim_budget_new(root, "", 1, 0, &a), BRIM_INVALID);
    assert_int_equal(brim_budget_new(root, "x", 1, 0, NULL), BRIM_INVALID);
    assert_int_equal(brim_budget_new(NULL, "x", 1, 0, &a), BRIM_INVALID);
    brim_budget_free(NULL);
    brim__budget_unref(root);
}

static void labels_are_made_harmless(void **state) {
    (void)state;
    brim_budget *root = new_root(MIB);
    brim_budget *odd = new_child(root, "a\x1b[31m\nb", BRIM_UNLIMITED, 0);
    assert_string_equal(read_info(odd).label, "a?[31m?b");
    /* 46 bytes, then a character of three: it is cut as a whole */
    char label[80];
    memset(label, 'x', 46);
    strcpy(label + 46, "\xE2\x82\xAC tail");
    brim_budget *cut = new_child(root, label, BRIM_UNLIMITED, 0);
    assert_int_equal(strlen(read_info(cut).label), 46);
    memset(label, 'x', 60);
    label[60] = '\0';
    brim_budget *plain = new_child(root, label, BRIM_UNLIMITED, 0);
    assert_int_equal(strlen(read_info(plain).label), BRIM_NAME_BYTES - 1);
    brim_budget_free(plain);
    brim_budget_free(cut);
    brim_budget_free(odd);
    brim__budget_unref(root);
}

/* ---------------------------------------------------- against a naive model */

#define NODES 14

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

static bool is_leaf(int node) {
    for (int child = 1; child < NODES; child++) {
        if (model[child].alive && model[child].parent == node) {
            return false;
        }
    }
    return true;
}

static uint64_t random_state = 12345;
static uint64_t random_below(uint64_t bound) {
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (random_state >> 33) % bound;
}

static void random_step(int node) {
    struct model *m = &model[node];
    const uint64_t bytes = random_below(3000);
    switch (random_below(10)) {
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
        assert_int_equal(status, model_new(child, node, limit, minimum) ? BRIM_OK : BRIM_BUDGET);
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
        assert_int_equal(brim__budget_try(m->real, BRIM_HOST, bytes),
                         model_charge(node, &m->elastic, bytes, true));
        return;
    case 5:
        assert_int_equal(brim__budget_reserve(m->real, BRIM_HOST, bytes) == BRIM_OK,
                         model_charge(node, &m->reserved, bytes, true));
        return;
    case 6: {
        const uint64_t back = random_below(m->firm + 1);
        brim_budget_uncharge(m->real, BRIM_HOST, back);
        m->firm -= back;
        return;
    }
    case 7: {
        const uint64_t back = random_below(m->elastic + 1);
        brim__budget_return(m->real, BRIM_HOST, back);
        m->elastic -= back;
        return;
    }
    case 8: {
        const uint64_t back = random_below(m->reserved + 1);
        brim__budget_unreserve(m->real, BRIM_HOST, back);
        m->reserved -= back;
        return;
    }
    default: {
        const uint64_t firm = random_below(m->elastic + 1);
        brim__budget_firm_up(m->real, BRIM_HOST, firm);
        m->elastic -= firm;
        m->firm += firm;
        return;
    }
    }
}

static void the_arithmetic_is_that_of_a_naive_model(void **state) {
    (void)state;
    const uint64_t room = 24 * KIB;
    memset(model, 0, sizeof model);
    model[0] = (struct model){ .alive = true,
                               .limit = root_bytes() + room,
                               .nodes = root_bytes(),
                               .peak = root_bytes(),
                               .real = new_root(room) };
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
        }
        do {
            node = (int)random_below(NODES);
        } while (!model[node].alive);
        assert_int_equal(brim__budget_free_now(model[node].real), model_room(node, true));
        assert_int_equal(brim__budget_available(model[node].real), model_room(node, false));
    }
    for (int node = NODES - 1; node > 0; node--) { /* parents may go before children */
        if (model[node].alive) {
            brim_budget_free(model[node].real);
        }
    }
    brim_budget_uncharge(model[0].real, BRIM_HOST, model[0].firm);
    brim__budget_return(model[0].real, BRIM_HOST, model[0].elastic);
    brim__budget_unreserve(model[0].real, BRIM_HOST, model[0].reserved);
    assert_int_equal(read_info(model[0].real).charged, root_bytes());
    brim__budget_unref(model[0].real);
}

/* --------------------------------------------------------------- revocation */

/* Holds elastic memory in pieces and gives them back as asked. */
struct holder {
    brim_budget *budget;
    brim__mutex mutex;
    uint64_t held; /* mutex */
    uint64_t piece;
    uint64_t asked;  /* mutex: times */
    uint64_t wanted; /* mutex: the last time */
    bool tries;      /* tests whether what it gave up can be snatched */
    bool snatched;
    bool lies; /* says that it gave, and gives nothing */
};

static uint64_t give(void *user, uint64_t wanted) {
    struct holder *holder = user;
    uint64_t given = 0;
    brim__lock(&holder->mutex);
    holder->asked++;
    holder->wanted = wanted;
    if (!holder->lies) {
        given = holder->held;
        if (wanted < given) {
            given = brim__divide_up(wanted, holder->piece) * holder->piece;
        }
        holder->held -= given;
        brim__budget_return(holder->budget, BRIM_HOST, given);
        if (holder->tries && brim__budget_try(holder->budget, BRIM_HOST, 1)) {
            holder->snatched = true;
        }
    }
    const bool lies = holder->lies;
    brim__unlock(&holder->mutex);
    return lies ? wanted : given;
}

static void hold(struct holder *holder, brim_budget *budget, uint64_t piece, uint64_t pieces) {
    *holder = (struct holder){ .budget = budget, .piece = piece, .held = piece * pieces };
    assert_int_equal(brim__mutex_init(&holder->mutex), BRIM_OK);
    for (uint64_t i = 0; i < pieces; i++) {
        assert_true(brim__budget_try(budget, BRIM_HOST, piece));
    }
    brim__budget_on_revoke(budget, give, holder);
}

static void let_go(struct holder *holder) {
    brim__budget_on_revoke(holder->budget, NULL, NULL);
    brim__budget_return(holder->budget, BRIM_HOST, holder->held);
    brim__mutex_fini(&holder->mutex);
}

static void elastic_memory_gives_way_to_firm(void **state) {
    (void)state;
    brim_budget *root = new_root(10 * KIB + 2 * node_bytes());
    brim_budget *a = new_child(root, "a", BRIM_UNLIMITED, 0);
    brim_budget *b = new_child(root, "b", BRIM_UNLIMITED, 0);
    struct holder small;
    struct holder large;
    hold(&small, a, KIB, 2);
    hold(&large, b, KIB, 6);
    large.tries = small.tries = true;
    assert_int_equal(brim__budget_free_now(root), 2 * KIB);
    assert_int_equal(brim__budget_available(root), 10 * KIB);
    assert_false(brim__budget_try(a, BRIM_HOST, 3 * KIB)); /* elastic takes from nobody */
    assert_int_equal(small.asked + large.asked, 0);

    assert_true(charges(a, 5 * KIB - 100));
    assert_int_equal(large.asked, 1); /* the one that has the most */
    assert_int_equal(large.wanted, 3 * KIB - 100);
    assert_int_equal(large.held, 3 * KIB);
    assert_int_equal(small.asked, 0);
    assert_false(large.snatched); /* nothing is granted while collecting */

    assert_false(charges(a, 5 * KIB + 101)); /* one byte more than there is at all */
    assert_true(charges(a, 100));
    brim_budget *c;
    assert_int_equal(brim_budget_new(root, "c", BRIM_UNLIMITED, 5 * KIB, &c), BRIM_BUDGET);
    assert_int_equal(large.held + small.held, 0);     /* all was taken before refusing */
    assert_true(brim__budget_try(a, BRIM_HOST, KIB)); /* and may be taken again */
    brim__budget_return(a, BRIM_HOST, KIB);
    brim__budget_check(root);
    let_go(&small);
    let_go(&large);
    brim_budget_free(a);
    brim_budget_free(b);
    brim__budget_unref(root);
}

static void only_those_who_help_are_asked(void **state) {
    (void)state;
    brim_budget *root = new_root(20 * KIB + 3 * node_bytes());
    brim_budget *tight = new_child(root, "tight", 4 * KIB, 0);
    brim_budget *other = new_child(root, "other", BRIM_UNLIMITED, 0);
    brim_budget *rich = new_child(root, "rich", BRIM_UNLIMITED, 6 * KIB);
    struct holder outside;
    struct holder inside;
    struct holder below_minimum;
    hold(&outside, other, KIB, 4);
    hold(&inside, tight, KIB, 2);
    hold(&below_minimum, rich, KIB, 6);
    assert_true(charges(tight, 3 * KIB)); /* the limit of "tight" is in the way, not the root's */
    assert_int_equal(inside.asked, 1);
    assert_int_equal(outside.asked, 0);

    /* now the root: what "rich" holds is set aside for it and frees nothing */
    assert_true(charges(root, 9 * KIB));
    assert_int_equal(brim__budget_free_now(root), 0);
    assert_int_equal(below_minimum.asked, 0);
    assert_int_equal(outside.held + inside.held, 2 * KIB);
    assert_false(charges(root, 2 * KIB + 1));
    assert_int_equal(below_minimum.asked, 0);
    /* but a charge of its own may fill it instead */
    const uint64_t others = outside.asked + inside.asked;
    assert_true(charges(rich, 6 * KIB));
    assert_int_equal(below_minimum.held, 2 * KIB); /* 2 KiB were free */
    assert_int_equal(outside.asked + inside.asked, others);

    brim__budget_check(root);
    let_go(&inside);
    let_go(&outside);
    let_go(&below_minimum);
    brim_budget_free(tight);
    brim_budget_free(other);
    brim_budget_free(rich);
    brim__budget_unref(root);
}

static void a_firm_charge_gets_what_is_available_and_no_more(void **state) {
    (void)state;
    enum { HOLDERS = 8 };
    brim_budget *nodes[HOLDERS + 1];
    struct holder holders[HOLDERS + 1];
    int refused = 0;
    for (int round = 0; round < 200; round++) {
        nodes[0] = new_root(16 * KIB + HOLDERS * node_bytes());
        for (int i = 1; i <= HOLDERS; i++) {
            const uint64_t minimum = random_below(2) * random_below(2000);
            const uint64_t limit =
                random_below(2) ? BRIM_UNLIMITED : minimum + 3 * node_bytes() + random_below(6000);
            brim_budget *parent = nodes[random_below((uint64_t)i)];
            if (brim_budget_new(parent, "node", limit, minimum, &nodes[i]) != BRIM_OK) {
                nodes[i] = new_child(nodes[0], "node", BRIM_UNLIMITED, 0);
            }
            hold(&holders[i], nodes[i], 1, 0);
        }
        for (int step = 0; step < 100; step++) {
            const int i = 1 + (int)random_below(HOLDERS);
            const uint64_t elastic = random_below(4000);
            if (brim__budget_try(nodes[i], BRIM_HOST, elastic)) {
                holders[i].held += elastic;
            }
            const int j = (int)random_below(HOLDERS + 1);
            const uint64_t available = brim__budget_available(nodes[j]);
            const uint64_t bytes = step % 4 ? random_below(4000) : available + step % 8 / 4;
            const bool fits = charges(nodes[j], bytes);
            assert_int_equal(fits, bytes <= available);
            refused += !fits;
            brim__budget_check(nodes[0]);
            if (fits && random_below(4)) {
                brim_budget_uncharge(nodes[j], BRIM_HOST, bytes);
            }
        }
        for (int i = 1; i <= HOLDERS; i++) {
            let_go(&holders[i]);
            brim_budget_free(nodes[i]);
        }
        brim__budget_unref(nodes[0]);
    }
    assert_true(refused > 1000);
}

static void a_holder_that_gives_nothing_is_not_asked_for_ever(void **state) {
    (void)state;
    brim_budget *root = new_root(4 * KIB + node_bytes());
    brim_budget *a = new_child(root, "a", BRIM_UNLIMITED, 0);
    struct holder holder;
    hold(&holder, a, KIB, 4);
    holder.lies = true;
    assert_false(charges(root, 1));
    assert_int_equal(holder.asked, 1);
    let_go(&holder);
    brim_budget_free(a);
    brim__budget_unref(root);
}

static void trimming_takes_everything_elastic(void **state) {
    (void)state;
    brim_budget *root = new_root(20 * KIB + 2 * node_bytes());
    brim_budget *a = new_child(root, "a", BRIM_UNLIMITED, 8 * KIB);
    brim_budget *b = new_child(root, "b", BRIM_UNLIMITED, 0);
    struct holder below_minimum;
    struct holder above;
    hold(&below_minimum, a, KIB, 3);
    hold(&above, b, KIB, 5);
    assert_int_equal(brim__budget_revoke(root, 2 * KIB), 2 * KIB);
    assert_int_equal(above.held, 3 * KIB);
    assert_int_equal(brim__budget_revoke(root, UINT64_MAX), 6 * KIB);
    assert_int_equal(read_info(root).elastic, 0);
    assert_int_equal(brim__budget_revoke(root, UINT64_MAX), 0);
    let_go(&above);
    let_go(&below_minimum);
    brim_budget_free(a);
    brim_budget_free(b);
    brim__budget_unref(root);
}

/* Several threads grab all elastic memory that they can get, all the time; a
 * firm charge of nearly everything must get it each time nevertheless. */
static _Atomic bool stop;

static void *snatch(void *user) {
    struct holder *holder = user;
    while (!atomic_load(&stop)) {
        brim__lock(&holder->mutex);
        if (brim__budget_try(holder->budget, BRIM_HOST, holder->piece)) {
            holder->held += holder->piece;
        }
        brim__unlock(&holder->mutex);
    }
    return NULL;
}

static void nobody_snatches_what_was_given_up(void **state) {
    (void)state;
    enum { SNATCHERS = 3 };
    brim_budget *root = new_root(64 * KIB + (SNATCHERS + 1) * node_bytes());
    brim_budget *needy = new_child(root, "needy", BRIM_UNLIMITED, 0);
    struct holder holders[SNATCHERS];
    pthread_t threads[SNATCHERS];
    atomic_store(&stop, false);
    for (int i = 0; i < SNATCHERS; i++) {
        hold(&holders[i], new_child(root, "snatcher", BRIM_UNLIMITED, 0), 512, 0);
        assert_int_equal(pthread_create(&threads[i], NULL, snatch, &holders[i]), 0);
    }
    for (int i = 0; i < 500; i++) {
        assert_true(charges(needy, 64 * KIB));
        assert_int_equal(read_info(root).elastic, 0);
        brim_budget_uncharge(needy, BRIM_HOST, 64 * KIB);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < SNATCHERS; i++) {
        pthread_join(threads[i], NULL);
        let_go(&holders[i]);
        brim_budget_free(holders[i].budget);
    }
    brim__budget_check(root);
    brim_budget_free(needy);
    brim__budget_unref(root);
}

/* Removing a holder waits for the thread that is inside its function. */
static _Atomic int inside; /* 0: not yet, 1: inside, 2: may leave, 3: left */

static uint64_t linger(void *user, uint64_t wanted) {
    brim__budget_return(user, BRIM_HOST, wanted);
    atomic_store(&inside, 1);
    while (atomic_load(&inside) != 2) {
        usleep(100);
    }
    usleep(20000);
    atomic_store(&inside, 3);
    return wanted;
}

static void *charge_one(void *user) {
    return brim_budget_charge(user, BRIM_HOST, KIB) == BRIM_OK ? user : NULL;
}

static void removing_a_holder_waits_for_who_is_inside(void **state) {
    (void)state;
    brim_budget *root = new_root(KIB + node_bytes());
    brim_budget *a = new_child(root, "a", BRIM_UNLIMITED, 0);
    assert_true(brim__budget_try(a, BRIM_HOST, KIB));
    brim__budget_on_revoke(a, linger, a);
    atomic_store(&inside, 0);
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, charge_one, root), 0);
    while (atomic_load(&inside) != 1) {
        usleep(100);
    }
    assert_false(brim__budget_try(a, BRIM_HOST, 1)); /* reading and trying do not block */
    atomic_store(&inside, 2);
    brim__budget_on_revoke(a, NULL, NULL);
    assert_int_equal(atomic_load(&inside), 3);
    brim_budget_free(a);
    pthread_join(thread, &result);
    assert_ptr_equal(result, root);
    brim_budget_uncharge(root, BRIM_HOST, KIB);
    brim__budget_unref(root);
}

static void *charge_and_return(void *user) {
    for (int i = 0; i < 3000; i++) {
        brim_budget *node;
        if (brim_budget_new(user, "mine", BRIM_UNLIMITED, 100, &node) != BRIM_OK) {
            continue;
        }
        if (brim_budget_charge(node, BRIM_HOST, 1000) == BRIM_OK && i % 2) {
            brim_budget_uncharge(node, BRIM_HOST, 1000);
        }
        char text[64];
        brim__budget_holders(user, text, sizeof text);
        brim_budget_free(node);
    }
    return NULL;
}

static void any_call_comes_from_any_thread(void **state) {
    (void)state;
    brim_budget *root = new_root(2 * node_bytes() + 1500);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, charge_and_return, root), 0);
    }
    for (int i = 0; i < 300; i++) {
        brim__budget_check(root);
        const brim_budget_info info = read_info(root);
        assert_true(info.charged + info.reserved <= info.limit);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(read_info(root).charged, root_bytes());
    brim__budget_unref(root);
}

/* ------------------------------------------------------------------- words */

static void a_refusal_names_the_holders_largest_first(void **state) {
    (void)state;
    brim_budget *root = new_root(16 * MIB - root_bytes());
    brim_budget *train = new_child(root, "train", BRIM_UNLIMITED, 0);
    brim_budget *small = new_child(root, "small", BRIM_UNLIMITED, MIB);
    brim_budget *nested = new_child(train, "nested", BRIM_UNLIMITED, 0);
    brim_budget *validation = new_child(root, "validation", BRIM_UNLIMITED, 0);
    assert_true(charges(nested, 9 * MIB));
    assert_true(charges(train, 3 * MIB));
    const uint64_t used = 13 * MIB + root_bytes() + 4 * node_bytes();
    assert_false(charges(validation, 4 * MIB));
    char expected[512];
    snprintf(expected, sizeof expected,
             "budget \"runtime\" (limit 16.0 MiB) refused 4.0 MiB for \"validation\": 13.0 MiB is "
             "in use; held by nested 9.0 MiB, train 3.0 MiB, small 1.0 MiB, runtime %.1f KiB; "
             "raise the limit to at least 17.0 MiB (%llu bytes) or close one of them",
             (double)(root_bytes() + 3 * node_bytes()) / 1024,
             (unsigned long long)(used + 4 * MIB));
    assert_string_equal(brim_detail(), expected);

    char text[64];
    brim__budget_holders(train, text, sizeof text);
    assert_string_equal(text, "nested 9.0 MiB, train 3.0 MiB");
    brim__budget_holders(validation, text, sizeof text);
    assert_string_equal(text, "");
    brim__budget_holders(root, text, 40);
    assert_string_equal(text, "nested 9.0 MiB, and 3 more");
    brim__budget_holders(root, text, 4);
    assert_string_equal(text, "");

    brim_budget_free(nested);
    brim_budget_free(train);
    brim_budget_free(small);
    brim_budget_free(validation);
    brim__budget_unref(root);
}

static int collect(void *user, const brim_budget_info *info) {
    char *text = user;
    snprintf(text + strlen(text), 100, "%u %s %llu;", info->depth, info->label,
             (unsigned long long)info->reserved);
    return strcmp(info->label, "last") == 0;
}

static void a_walk_shows_parents_first(void **state) {
    (void)state;
    brim_budget *root = new_root(MIB);
    brim_budget *a = new_child(root, "a", BRIM_UNLIMITED, 0);
    brim_budget *b = new_child(root, "b", BRIM_UNLIMITED, 0);
    brim_budget *c = new_child(a, "c", BRIM_UNLIMITED, 0);
    assert_int_equal(brim__budget_reserve(c, BRIM_HOST, 7), BRIM_OK);
    char text[512] = "";
    assert_int_equal(brim_budget_walk(root, BRIM_HOST, collect, text), BRIM_OK);
    assert_string_equal(text, "0 runtime 7;1 a 7;2 c 7;1 b 0;");
    brim_budget *last = new_child(a, "last", BRIM_UNLIMITED, 0);
    text[0] = '\0';
    assert_int_equal(brim_budget_walk(a, BRIM_HOST, collect, text), BRIM_OK);
    assert_string_equal(text, "1 a 7;2 c 7;2 last 0;");
    text[0] = '\0';
    assert_int_equal(brim_budget_walk(root, BRIM_HOST, collect, text), BRIM_OK);
    assert_string_equal(text, "0 runtime 7;1 a 7;2 c 7;2 last 0;"); /* ended by the visitor */
    assert_int_equal(brim_budget_walk(root, BRIM_HOST, NULL, NULL), BRIM_INVALID);
    brim_budget_info no_size = { 0 };
    assert_int_equal(brim_budget_read(root, BRIM_HOST, &no_size), BRIM_INVALID);
    assert_int_equal(brim_budget_read(root, BRIM_HOST, NULL), BRIM_INVALID);
    assert_true(brim__budget_is_below(c, root) && brim__budget_is_below(root, root));
    assert_false(brim__budget_is_below(b, a));
    brim_budget_free(last);
    brim_budget_free(c);
    brim_budget_free(b);
    brim_budget_free(a);
    brim__budget_unref(root);
}

/* -------------------------------------------------------------------- lives */

static void a_parent_stays_for_its_children(void **state) {
    (void)state;
    brim_budget *root = new_root(10 * KIB + 3 * node_bytes());
    brim_budget *parent = new_child(root, "parent", 4 * KIB + 2 * node_bytes(), 0);
    brim_budget *child = new_child(parent, "child", BRIM_UNLIMITED, 0);
    assert_true(charges(parent, KIB));
    assert_true(charges(child, 3 * KIB));
    brim_budget_free(parent); /* what it had charged itself is returned */
    assert_int_equal(read_info(root).charged, root_bytes() + 2 * node_bytes() + 3 * KIB);
    assert_true(charges(child, KIB));
    assert_false(charges(child, 4 * KIB)); /* its limit still holds */
    brim__budget_check(root);
    brim_budget_free(child);
    assert_int_equal(read_info(root).charged, root_bytes());

    /* memory of brim's own keeps its budget, and a whole tree stays for it */
    parent = new_child(root, "parent", BRIM_UNLIMITED, 0);
    child = new_child(parent, "child", BRIM_UNLIMITED, KIB);
    void *memory = brim__alloc(child, 100, NULL);
    assert_non_null(memory);
    brim__budget_ref(child);
    brim_budget_free(child);
    assert_true(charges(child, 1)); /* there is one reference left */
    brim__budget_unref(child);
    brim_budget_free(parent);
    assert_int_equal(read_info(root).charged,
                     root_bytes() + 2 * node_bytes() + brim__alloc_bytes(100));
    brim__budget_check(root);
    brim__budget_unref(root);
    brim__free(memory); /* the leak checkers see that all of it goes */
}

static void budgets_nest_to_a_bound(void **state) {
    (void)state;
    brim_budget *root = new_root(10 * MIB);
    brim_budget *deepest = root;
    brim_budget *next;
    int levels = 1;
    while (brim_budget_new(deepest, "level", BRIM_UNLIMITED, 10, &next) == BRIM_OK) {
        if (deepest != root) {
            brim_budget_free(deepest);
        }
        deepest = next;
        levels++;
    }
    assert_int_equal(levels, 64);
    assert_non_null(strstr(brim_detail(), "64 levels"));
    assert_true(charges(deepest, KIB));
    assert_true(brim__budget_free_now(deepest) > MIB);
    brim__budget_check(root);
    brim__budget_unref(root);
    brim_budget_free(deepest); /* and with it everything above */
}

static void uncharging_too_much_is_a_mistake(void **state) {
    (void)state;
    brim_budget *root = new_root(KIB);
    assert_true(charges(root, 10));
#ifdef NDEBUG
    brim_budget_uncharge(root, BRIM_HOST, 1000);
    assert_int_equal(read_info(root).charged, root_bytes());
#else
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        freopen("/dev/null", "w", stderr);
        root->tree->process = brim__process(); /* as if it had been made here */
        brim_budget_uncharge(root, BRIM_HOST, 1000);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#endif
    brim__budget_check(root);
    brim__budget_unref(root);
}

static int visit_nothing(void *user, const brim_budget_info *info) {
    (void)user, (void)info;
    return 0;
}

/* In the child: every call says so, and none touches a lock. Returns the number
 * of the first that did not. */
static int use_after_fork(brim_budget *root, brim_budget *node, void *memory) {
    brim_budget *other;
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    char text[64];
    if (brim_budget_charge(node, BRIM_HOST, 1) != BRIM_FORKED) {
        return 1;
    }
    if (brim_budget_new(node, "x", 1, 0, &other) != BRIM_FORKED) {
        return 2;
    }
    if (brim_budget_read(node, BRIM_HOST, &info) != BRIM_FORKED) {
        return 3;
    }
    if (brim_budget_walk(root, BRIM_HOST, visit_nothing, NULL) != BRIM_FORKED) {
        return 4;
    }
    if (brim__budget_try(node, BRIM_HOST, 1) || brim__budget_available(node) != 0) {
        return 5;
    }
    if (brim__budget_reserve(node, BRIM_HOST, 1) != BRIM_FORKED) {
        return 6;
    }
    if (!strstr(brim_detail(), "\"node\"")) {
        return 7;
    }
    if (brim__budget_revoke(root, 1) != 0) {
        return 8;
    }
    brim_status status = BRIM_OK;
    if (brim__alloc(node, 1, &status) || status != BRIM_FORKED) {
        return 9;
    }
    brim__budget_holders(root, text, sizeof text);
    brim_budget_uncharge(node, BRIM_HOST, 1);
    brim__budget_unreserve(node, BRIM_HOST, 1);
    brim__free(memory);
    brim__budget_on_revoke(node, NULL, NULL);
    brim_budget_free(node);
    brim__budget_unref(root);
    return 0;
}

static void after_a_fork_the_child_is_told(void **state) {
    (void)state;
    brim_budget *root = new_root(MIB);
    brim_budget *node = new_child(root, "node", BRIM_UNLIMITED, 0);
    void *memory = brim__alloc(node, 100, NULL);
    assert_true(charges(node, 100));
    fflush(NULL);
    brim__lock(&root->tree->lock); /* as if another thread had been at it */
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        _exit(use_after_fork(root, node, memory));
    }
    brim__unlock(&root->tree->lock);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(read_info(node).charged, 100 + brim__alloc_bytes(100));
    brim__free(memory);
    brim_budget_free(node);
    brim__budget_unref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_is_exact),
        cmocka_unit_test(a_minimum_is_set_aside_and_used_first),
        cmocka_unit_test(labels_are_made_harmless),
        cmocka_unit_test(the_arithmetic_is_that_of_a_naive_model),
        cmocka_unit_test(elastic_memory_gives_way_to_firm),
        cmocka_unit_test(only_those_who_help_are_asked),
        cmocka_unit_test(a_firm_charge_gets_what_is_available_and_no_more),
        cmocka_unit_test(a_holder_that_gives_nothing_is_not_asked_for_ever),
        cmocka_unit_test(trimming_takes_everything_elastic),
        cmocka_unit_test(nobody_snatches_what_was_given_up),
        cmocka_unit_test(removing_a_holder_waits_for_who_is_inside),
        cmocka_unit_test(any_call_comes_from_any_thread),
        cmocka_unit_test(a_refusal_names_the_holders_largest_first),
        cmocka_unit_test(a_walk_shows_parents_first),
        cmocka_unit_test(a_parent_stays_for_its_children),
        cmocka_unit_test(budgets_nest_to_a_bound),
        cmocka_unit_test(uncharging_too_much_is_a_mistake),
        cmocka_unit_test(after_a_fork_the_child_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
