/*
 * test_revoke.c: elastic memory gives way: who is asked, for how much, and what
 * threads may do meanwhile.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "budget_util.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* --------------------------------------------------------------- revocation */

/* Holds elastic memory in pieces and gives them back as asked. */
struct holder {
    brim_budget *budget;
    brim_memory kind;
    brim__mutex mutex;
    uint64_t held; /* mutex */
    uint64_t piece;
    uint64_t asked;  /* mutex: times */
    uint64_t wanted; /* mutex: the last time */
    bool tries;      /* tests whether what it gave up can be snatched */
    bool snatched;
    bool lies; /* says that it gave, and gives nothing */
};

static uint64_t give(void *user, brim_memory kind, uint64_t wanted, bool firmly) {
    (void)firmly;
    struct holder *holder = user;
    assert_int_equal(kind, holder->kind);
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
        brim__budget_return(holder->budget, kind, given);
        if (holder->tries && brim__budget_try(holder->budget, kind, 1)) {
            holder->snatched = true;
        }
    }
    const bool lies = holder->lies;
    brim__unlock(&holder->mutex);
    return lies ? wanted : given;
}

static void hold_kind(struct holder *holder, brim_budget *budget, brim_memory kind, uint64_t piece,
                      uint64_t pieces) {
    *holder =
        (struct holder){ .budget = budget, .kind = kind, .piece = piece, .held = piece * pieces };
    assert_int_equal(brim__mutex_init(&holder->mutex), BRIM_OK);
    for (uint64_t i = 0; i < pieces; i++) {
        assert_true(brim__budget_try(budget, kind, piece));
    }
    brim__budget_on_revoke(budget, give, holder);
}

static void hold(struct holder *holder, brim_budget *budget, uint64_t piece, uint64_t pieces) {
    hold_kind(holder, budget, BRIM_MEMORY_HOST, piece, pieces);
}

static void let_go(struct holder *holder) {
    brim__budget_on_revoke(holder->budget, NULL, NULL);
    brim__budget_return(holder->budget, holder->kind, holder->held);
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
    assert_int_equal(brim__budget_free_now(root, BRIM_MEMORY_HOST), 2 * KIB);
    assert_int_equal(brim__budget_available(root, BRIM_MEMORY_HOST), 10 * KIB);
    assert_false(brim__budget_try(a, BRIM_MEMORY_HOST, 3 * KIB)); /* elastic takes from nobody */
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
    assert_int_equal(brim_budget_new(root, "c", BRIM_UNLIMITED, 5 * KIB, &c), BRIM_STATUS_BUDGET);
    assert_int_equal(large.held + small.held, 0);            /* all was taken before refusing */
    assert_true(brim__budget_try(a, BRIM_MEMORY_HOST, KIB)); /* and may be taken again */
    brim__budget_return(a, BRIM_MEMORY_HOST, KIB);
    brim__budget_check(root);
    let_go(&small);
    let_go(&large);
    brim_budget_free(a);
    brim_budget_free(b);
    brim__budget_unref(root);
}

/* Every kind is a tree of limits of its own: who holds another kind is not asked. */
static void every_kind_gives_way(brim_memory kind, const char *where) {
    brim_budget *root = new_root_of(kind, 10 * KIB);
    brim_budget *a = new_child(root, "a", BRIM_UNLIMITED, 0);
    brim_budget *b = new_child(root, "b", BRIM_UNLIMITED, 0);
    brim_budget *other = new_child(root, "other", BRIM_UNLIMITED, 0);
    struct holder small;
    struct holder large;
    struct holder host;
    char expected[160];
    hold_kind(&small, a, kind, KIB, 2);
    hold_kind(&large, b, kind, KIB, 6);
    hold(&host, other, KIB, 100);
    large.tries = small.tries = true;
    assert_int_equal(brim__budget_free_now(a, kind), 2 * KIB);
    assert_int_equal(brim__budget_available(a, kind), 10 * KIB);
    assert_false(brim__budget_try(a, kind, 2 * KIB + 1));
    assert_true(charges_of(a, kind, 5 * KIB));
    assert_int_equal(large.asked, 1);
    assert_int_equal(large.held, 3 * KIB);
    assert_int_equal(small.asked, 0);
    assert_false(large.snatched);

    assert_false(charges_of(a, kind, 5 * KIB + 1));
    assert_int_equal(small.held + large.held, 0);
    snprintf(expected, sizeof expected,
             "budget \"runtime\" (limit 10.0 KiB%s) refused 5.0 KiB for ", where);
    assert_memory_equal(brim_detail(), expected, strlen(expected));
    assert_non_null(strstr(brim_detail(), "5.0 KiB is in use; held by a 5.0 KiB; raise"));
    assert_true(charges_of(b, kind, 5 * KIB));
    assert_int_equal(brim__budget_free_now(b, kind), 0);
    assert_int_equal(read_kind(root, kind).peak, 10 * KIB);

    assert_int_equal(host.asked, 0);
    assert_int_equal(host.held, 100 * KIB);
    assert_int_equal(brim__budget_revoke(root, kind, UINT64_MAX), 0);
    assert_int_equal(host.asked, 0);
    brim__budget_check(root);
    let_go(&small);
    let_go(&large);
    let_go(&host);
    brim_budget_free(a);
    brim_budget_free(b);
    brim_budget_free(other);
    brim__budget_unref(root);
}

static void elastic_memory_of_every_kind_gives_way(void **state) {
    (void)state;
    every_kind_gives_way(BRIM_MEMORY_PINNED, " of page-locked memory");
    every_kind_gives_way(BRIM_MEMORY_DEVICE, " on cuda:0");
    every_kind_gives_way((brim_memory)(BRIM_MEMORY_DEVICE + 7), " on cuda:7");
    every_kind_gives_way((brim_memory)(BRIM_MEMORY_DEVICE + 9), " on opencl:1");
    every_kind_gives_way((brim_memory)(BRIM_MEMORY_KINDS - 1), " on opencl:7");
}

/* Who gives way readily does so to an elastic charge for which somebody waits: the idle
 * before caches, and nobody who is in use. */
static void memory_is_made_free_by_those_who_give_way(void **state) {
    (void)state;
    const brim_memory kind = BRIM_MEMORY_DEVICE;
    brim_budget *root = new_root_of(kind, 12 * KIB);
    brim_budget *node[3];
    struct holder holder[3];
    static const enum brim__yield yields[3] = { BRIM__YIELDS_LAST, BRIM__YIELDS_CACHE,
                                                BRIM__YIELDS_IDLE };
    for (int i = 0; i < 3; i++) {
        node[i] = new_child(root, "holder", BRIM_UNLIMITED, 0);
        hold_kind(&holder[i], node[i], kind, KIB, 4);
        brim__budget_yields(node[i], yields[i]);
    }
    brim__budget_make_free(root, BRIM_MEMORY_HOST, KIB); /* there is enough of that */
    brim__budget_make_free(root, kind, 3 * KIB);
    assert_int_equal(holder[2].held, KIB);
    assert_int_equal(holder[0].asked + holder[1].asked, 0);
    assert_int_equal(brim__budget_free_now(root, kind), 3 * KIB);
    brim__budget_make_free(root, kind, 6 * KIB);
    assert_int_equal(holder[2].held, 0);
    assert_int_equal(holder[1].held, 2 * KIB);
    brim__budget_make_free(root, kind, 12 * KIB);
    assert_int_equal(holder[1].held, 0);
    assert_int_equal(holder[0].asked, 0);
    assert_int_equal(brim__budget_free_now(root, kind), 8 * KIB);
    brim__budget_check(root);
    for (int i = 0; i < 3; i++) {
        let_go(&holder[i]);
        brim_budget_free(node[i]);
    }
    brim__budget_unref(root);
}

static void elastic_memory_gives_way_to_bounds(void **state) {
    (void)state;
    const brim_memory kind = (brim_memory)(BRIM_MEMORY_DEVICE + 1);
    brim_budget *root = new_root_of(kind, 10 * KIB);
    brim_budget *a = new_child(root, "a", BRIM_UNLIMITED, 0);
    brim_budget *b = new_child(root, "b", BRIM_UNLIMITED, 0);
    struct holder in_a;
    struct holder in_b;
    hold_kind(&in_a, a, kind, KIB, 4);
    hold_kind(&in_b, b, kind, KIB, 6);
    assert_true(charges_of(a, kind, KIB)); /* from b, which has more */
    assert_int_equal(in_b.held, 5 * KIB);
    /* a lower limit: only those below it can help */
    assert_true(sets(a, kind, 3 * KIB, 0));
    assert_int_equal(in_a.held, 2 * KIB);
    assert_int_equal(in_b.held, 5 * KIB);
    assert_false(sets(a, kind, KIB - 1, 0));
    assert_int_equal(in_a.held, 0); /* all was taken before refusing */
    assert_int_equal(read_kind(a, kind).limit, 3 * KIB);
    assert_true(brim__budget_try(a, kind, KIB));
    in_a.held = KIB;

    /* a larger minimum: what lies below it is in it already and is not asked for, though
     * it is more than the others have */
    assert_true(charges_of(b, kind, 3 * KIB)); /* which were free */
    assert_int_equal(in_b.held, 5 * KIB);
    assert_true(sets(a, kind, 9 * KIB, 0));
    assert_int_equal(brim__budget_revoke(b, kind, 3 * KIB), 3 * KIB);
    assert_true(brim__budget_try(a, kind, 3 * KIB));
    in_a.held = 4 * KIB;
    const uint64_t asked = in_a.asked;
    assert_true(sets(a, kind, 9 * KIB, 6 * KIB));
    assert_int_equal(in_a.asked, asked);
    assert_int_equal(in_b.held, KIB);
    assert_false(sets(a, kind, 9 * KIB, 7 * KIB + 1));
    assert_int_equal(in_a.asked, asked);
    assert_int_equal(in_b.held, 0);
    assert_int_equal(read_kind(a, kind).minimum, 6 * KIB);
    assert_true(sets(a, kind, 9 * KIB, 7 * KIB));
    assert_int_equal(brim__budget_free_now(b, kind), 0);
    assert_int_equal(brim__budget_free_now(a, kind), 2 * KIB);
    brim__budget_check(root);
    let_go(&in_a);
    let_go(&in_b);
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
    assert_int_equal(brim__budget_free_now(root, BRIM_MEMORY_HOST), 0);
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
            if (brim__budget_try(nodes[i], BRIM_MEMORY_HOST, elastic)) {
                holders[i].held += elastic;
            }
            const int j = (int)random_below(HOLDERS + 1);
            const uint64_t available = brim__budget_available(nodes[j], BRIM_MEMORY_HOST);
            const uint64_t bytes = step % 4 ? random_below(4000) : available + step % 8 / 4;
            const bool fits = charges(nodes[j], bytes);
            assert_int_equal(fits, bytes <= available);
            refused += !fits;
            brim__budget_check(nodes[0]);
            if (random_below(4) == 0) {
                const uint64_t minimum = random_below(2) * random_below(3000);
                (void)sets(nodes[i], BRIM_MEMORY_HOST, minimum + random_below(9000), minimum);
                brim__budget_check(nodes[0]);
            }
            if (fits && random_below(4)) {
                brim_budget_uncharge(nodes[j], BRIM_MEMORY_HOST, bytes);
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
    assert_int_equal(brim__budget_revoke(root, BRIM_MEMORY_HOST, 2 * KIB), 2 * KIB);
    assert_int_equal(above.held, 3 * KIB);
    assert_int_equal(brim__budget_revoke(root, BRIM_MEMORY_HOST, UINT64_MAX), 6 * KIB);
    assert_int_equal(read_info(root).elastic, 0);
    assert_int_equal(brim__budget_revoke(root, BRIM_MEMORY_HOST, UINT64_MAX), 0);
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
        if (brim__budget_try(holder->budget, BRIM_MEMORY_HOST, holder->piece)) {
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
        brim_budget_uncharge(needy, BRIM_MEMORY_HOST, 64 * KIB);
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

static uint64_t linger(void *user, brim_memory kind, uint64_t wanted, bool firmly) {
    (void)firmly;
    assert_int_equal(kind, BRIM_MEMORY_HOST);
    brim__budget_return(user, BRIM_MEMORY_HOST, wanted);
    atomic_store(&inside, 1);
    while (atomic_load(&inside) != 2) {
        usleep(100);
    }
    usleep(20000);
    atomic_store(&inside, 3);
    return wanted;
}

static void *charge_one(void *user) {
    return brim_budget_charge(user, BRIM_MEMORY_HOST, KIB) == BRIM_OK ? user : NULL;
}

static void removing_a_holder_waits_for_who_is_inside(void **state) {
    (void)state;
    brim_budget *root = new_root(KIB + node_bytes());
    brim_budget *a = new_child(root, "a", BRIM_UNLIMITED, 0);
    assert_true(brim__budget_try(a, BRIM_MEMORY_HOST, KIB));
    brim__budget_on_revoke(a, linger, a);
    atomic_store(&inside, 0);
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, charge_one, root), 0);
    while (atomic_load(&inside) != 1) {
        usleep(100);
    }
    assert_false(brim__budget_try(a, BRIM_MEMORY_HOST, 1)); /* reading and trying do not block */
    atomic_store(&inside, 2);
    brim__budget_on_revoke(a, NULL, NULL);
    assert_int_equal(atomic_load(&inside), 3);
    brim_budget_free(a);
    pthread_join(thread, &result);
    assert_ptr_equal(result, root);
    brim_budget_uncharge(root, BRIM_MEMORY_HOST, KIB);
    brim__budget_unref(root);
}

static void *charge_and_return(void *user) {
    for (int i = 0; i < 3000; i++) {
        brim_budget *node;
        if (brim_budget_new(user, "mine", BRIM_UNLIMITED, 100, &node) != BRIM_OK) {
            continue;
        }
        if (brim_budget_charge(node, BRIM_MEMORY_HOST, 1000) == BRIM_OK && i % 2) {
            brim_budget_uncharge(node, BRIM_MEMORY_HOST, 1000);
        }
        char text[64];
        brim__budget_holders(user, BRIM_MEMORY_HOST, text, sizeof text, NULL);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elastic_memory_gives_way_to_firm),
        cmocka_unit_test(elastic_memory_of_every_kind_gives_way),
        cmocka_unit_test(memory_is_made_free_by_those_who_give_way),
        cmocka_unit_test(elastic_memory_gives_way_to_bounds),
        cmocka_unit_test(only_those_who_help_are_asked),
        cmocka_unit_test(a_firm_charge_gets_what_is_available_and_no_more),
        cmocka_unit_test(a_holder_that_gives_nothing_is_not_asked_for_ever),
        cmocka_unit_test(trimming_takes_everything_elastic),
        cmocka_unit_test(nobody_snatches_what_was_given_up),
        cmocka_unit_test(removing_a_holder_waits_for_who_is_inside),
        cmocka_unit_test(any_call_comes_from_any_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
