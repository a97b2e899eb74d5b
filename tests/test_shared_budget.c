/*
 * test_shared_budget.c: one budget for several processes: sums and limits, elastic memory,
 * the dead, forks, and refusals in words.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "shared_util.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* ------------------------------------------------------------ sums and limits */

static void all_processes_together_obey_the_limit(void **state) {
    (void)state;
    const char *name = shared_name("sums");
    const uint64_t limit = 3 * join_bytes() + 100 * KIB;
    brim_budget *root = join(name, limit);
    assert_true(charges(root, 40 * KIB));
    const struct child a = new_child_process(name, 0);
    const struct child b = new_child_process(name, 3 * join_bytes() + 100 * KIB); /* the same */
    assert_true(child_charges(&a, 30 * KIB));
    assert_true(child_charges(&b, 30 * KIB));
    assert_int_equal(sharing_of(root, BRIM_MEMORY_HOST).limit, 3 * join_bytes() + 100 * KIB);
    assert_int_equal(sharing_of(root, BRIM_MEMORY_HOST).used, 3 * join_bytes() + 100 * KIB);
    assert_int_equal(sharing_of(root, BRIM_MEMORY_HOST).processes, 3);
    assert_false(charges(root, 1));
    assert_false(child_charges(&a, 1));
    assert_false(child_charges(&b, 1));
    assert_int_equal(brim__budget_free_now(root, BRIM_MEMORY_HOST), 0);
    assert_int_equal(brim__budget_available(root, BRIM_MEMORY_HOST), 0);

    tell(&b, UNCHARGE, BRIM_MEMORY_HOST, 10 * KIB);
    assert_int_equal(brim__budget_available(root, BRIM_MEMORY_HOST), 10 * KIB);
    assert_int_equal(brim__budget_free_now(root, BRIM_MEMORY_HOST), 0); /* not for elastic memory */
    assert_false(charges(root, 10 * KIB + 1));
    assert_true(charges(root, 10 * KIB));
    assert_false(child_charges(&b, 1));

    end_child(&a); /* what it had, and joining, is free */
    assert_int_equal(sharing_of(root, BRIM_MEMORY_HOST).processes, 2);
    assert_int_equal(brim__budget_available(root, BRIM_MEMORY_HOST), 30 * KIB + join_bytes());
    assert_int_equal(brim__budget_free_now(root, BRIM_MEMORY_HOST),
                     30 * KIB + join_bytes() - firm_part(limit));
    assert_true(child_charges(&b, 30 * KIB + join_bytes()));
    assert_false(charges(root, 1));
    brim__budget_check(root);

    brim__budget_unref(root);
    assert_true(name_exists(name)); /* b is still in it */
    end_child(&b);
    assert_false(name_exists(name));
}

static void every_kind_of_memory_is_shared(void **state) {
    (void)state;
    const char *name = shared_name("kinds");
    const brim_memory opencl = (brim_memory)(BRIM_MEMORY_DEVICE + 9);
    uint64_t limits[BRIM_MEMORY_KINDS] = { 10 * MIB };
    limits[opencl] = 8 * KIB;
    brim_status status;
    brim_budget *root = join_with(name, limits, &status);
    assert_non_null(root);
    const struct child child = new_child_process(name, 0);
    assert_int_equal(tell(&child, CHARGE, opencl, 5 * KIB).status, BRIM_OK);
    assert_false(charges_of(root, opencl, 3 * KIB + 1));
    assert_non_null(strstr(brim_detail(), "(limit 8.0 KiB on opencl:1) refused 3.0 KiB"));
    assert_true(charges_of(root, opencl, 3 * KIB));
    assert_int_equal(tell(&child, CHARGE, opencl, 1).status, BRIM_STATUS_BUDGET);
    /* page-locked memory as much as of the host, other devices without a limit */
    assert_int_equal(tell(&child, CHARGE, BRIM_MEMORY_PINNED, 7 * MIB).status, BRIM_OK);
    assert_false(charges_of(root, BRIM_MEMORY_PINNED, 4 * MIB));
    assert_non_null(strstr(brim_detail(), "of page-locked memory"));
    assert_true(charges_of(root, BRIM_MEMORY_DEVICE, UINT64_MAX / 4));
    assert_int_equal(tell(&child, CHARGE, BRIM_MEMORY_DEVICE, UINT64_MAX / 4).status, BRIM_OK);
    assert_int_equal(brim__budget_limit(root, opencl), 8 * KIB);
    assert_int_equal(brim__budget_limit(root, BRIM_MEMORY_DEVICE), BRIM_UNLIMITED);
    brim__budget_check(root);
    end_child(&child);
    assert_int_equal(sharing_of(root, opencl).used, 3 * KIB);
    brim__budget_unref(root);
    assert_false(name_exists(name));
}

static void a_minimum_is_claimed_and_own_limits_hold(void **state) {
    (void)state;
    const char *name = shared_name("minimum");
    brim_budget *root = join(name, 2 * join_bytes() + 20 * KIB + 2 * node_bytes());
    const struct child child = new_child_process(name, 0);
    brim_budget *a = new_child(root, "a", BRIM_UNLIMITED, 12 * KIB);
    assert_false(child_charges(&child, 8 * KIB + node_bytes() + 1));
    assert_true(child_charges(&child, 8 * KIB + node_bytes()));
    assert_true(charges(a, 12 * KIB)); /* was set aside: needs nothing */
    assert_false(charges(a, 1));
    tell(&child, UNCHARGE, BRIM_MEMORY_HOST, 8 * KIB + node_bytes());
    assert_true(sets(a, BRIM_MEMORY_HOST, 14 * KIB, 14 * KIB)); /* other bounds are claimed too */
    assert_false(charges(a, 2 * KIB + 1));
    assert_non_null(strstr(brim_detail(), "budget \"a\" (limit 14.0 KiB)"));
    assert_false(sets(a, BRIM_MEMORY_HOST, BRIM_UNLIMITED, 20 * KIB + node_bytes() + 1));
    assert_non_null(strstr(brim_detail(), "shared budget"));
    assert_true(child_charges(&child, 6 * KIB + node_bytes()));
    brim_budget_uncharge(a, BRIM_MEMORY_HOST, 12 * KIB);
    assert_false(child_charges(&child, 1)); /* what is set aside stays so */
    assert_true(sets(a, BRIM_MEMORY_HOST, 14 * KIB, 0));
    assert_true(child_charges(&child, 14 * KIB));
    brim__budget_check(root);

    /* a limit of the root's own, below what is shared */
    tell(&child, UNCHARGE, BRIM_MEMORY_HOST, 20 * KIB);
    assert_true(sets(root, BRIM_MEMORY_HOST, join_bytes() + 5 * KIB + node_bytes(), 0));
    assert_false(charges(root, 5 * KIB + 1));
    assert_non_null(strstr(brim_detail(), "budget \"runtime\""));
    assert_true(charges(root, 5 * KIB));
    brim_budget_free(a);
    end_child(&child);
    brim__budget_unref(root);
}

static void a_process_may_join_twice(void **state) {
    (void)state;
    const char *name = shared_name("twice");
    brim_budget *a = join(name, 2 * join_bytes() + 10 * KIB);
    brim_budget *b = join(name, 0);
    assert_true(charges(a, 6 * KIB));
    assert_false(charges(b, 4 * KIB + 1));
    assert_true(charges(b, 4 * KIB));
    assert_int_equal(sharing_of(a, BRIM_MEMORY_HOST).processes, 1);
    assert_int_equal(sharing_of(a, BRIM_MEMORY_HOST).used, sharing_of(b, BRIM_MEMORY_HOST).used);
    brim__budget_unref(a);
    assert_true(charges(b, 6 * KIB + join_bytes()));
    brim__budget_check(b);

    /* memory of brim's own keeps the entry, as it keeps the tree */
    void *memory = brim__alloc(b, 1, NULL);
    assert_null(memory);
    brim_budget_uncharge(b, BRIM_MEMORY_HOST, 6 * KIB);
    memory = brim__alloc(b, 5 * KIB, NULL);
    assert_non_null(memory);
    brim__budget_unref(b);
    a = join(name, 0);
    assert_int_equal(sharing_of(a, BRIM_MEMORY_HOST).used,
                     join_bytes() + root_bytes() + brim__alloc_bytes(5 * KIB));
    brim__free(memory);
    assert_int_equal(sharing_of(a, BRIM_MEMORY_HOST).used, join_bytes());
    brim__budget_unref(a);
    assert_false(name_exists(name));
}

static void limits_are_those_of_the_first(void **state) {
    (void)state;
    const char *name = shared_name("limits");
    uint64_t limits[BRIM_MEMORY_KINDS] = { 0 };
    brim_status status;
    assert_null(join_with(name, limits, &status)); /* somebody has to say how much */
    assert_int_equal(status, BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "must give its size"));
    assert_false(name_exists(name));

    limits[BRIM_MEMORY_HOST] = MIB;
    limits[BRIM_MEMORY_DEVICE] = 2 * MIB;
    brim_budget *first = join_with(name, limits, &status);
    assert_non_null(first);
    limits[BRIM_MEMORY_HOST] = MIB + 1;
    assert_null(join_with(name, limits, &status));
    assert_int_equal(status, BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(),
                           "a limit of 1048577 bytes was given, but the limit is 1048576 bytes"));
    limits[BRIM_MEMORY_HOST] = 0;
    limits[BRIM_MEMORY_DEVICE] = MIB;
    assert_null(join_with(name, limits, &status));
    assert_non_null(strstr(brim_detail(),
                           "1048576 bytes of device memory was given, but the limit is 2097152 "
                           "bytes"));
    assert_non_null(strstr(brim_detail(), "give the same limit, or none"));
    limits[BRIM_MEMORY_DEVICE] = 0;
    brim_budget *second = join_with(name, limits, &status);
    assert_non_null(second);
    assert_int_equal(sharing_of(second, BRIM_MEMORY_DEVICE).limit, 2 * MIB);
    brim__budget_unref(first);
    limits[BRIM_MEMORY_HOST] = 3 * MIB;
    assert_null(join_with(name, limits, &status)); /* the second still holds it */
    brim__budget_unref(second);
    brim_budget *third = join_with(name, limits, &status); /* and now nobody does */
    assert_non_null(third);
    assert_int_equal(sharing_of(third, BRIM_MEMORY_HOST).limit, 3 * MIB);

    /* for a kind without a limit in common, that of a later one is its own affair */
    limits[BRIM_MEMORY_HOST] = 0;
    limits[BRIM_MEMORY_PINNED] = MIB;
    limits[BRIM_MEMORY_DEVICE + 9] = MIB;
    brim_budget *fourth = join_with(name, limits, &status);
    assert_non_null(fourth);
    assert_true(sharing_of(fourth, (brim_memory)(BRIM_MEMORY_DEVICE + 9)).limit == BRIM_UNLIMITED);
    brim__budget_unref(fourth);
    limits[BRIM_MEMORY_PINNED] = limits[BRIM_MEMORY_DEVICE + 9] = 0;

    /* no room even to join */
    assert_true(charges(third, 3 * MIB - join_bytes() - 10));
    limits[BRIM_MEMORY_HOST] = 0;
    assert_null(join_with(name, limits, &status));
    assert_int_equal(status, BRIM_STATUS_BUDGET);
    assert_non_null(strstr(brim_detail(), "no room for another process"));
    assert_int_equal(sharing_of(third, BRIM_MEMORY_HOST).processes, 1);
    brim__budget_unref(third);
    assert_false(name_exists(name));
}

/* ---------------------------------------------------------------- elastic memory */

struct holder {
    brim_budget *budget;
    uint64_t held;
};

static uint64_t give(void *user, brim_memory kind, uint64_t wanted, bool firmly) {
    (void)firmly;
    struct holder *holder = user;
    const uint64_t given = brim__min(wanted, holder->held);
    holder->held -= given;
    brim__budget_return(holder->budget, kind, given);
    return given;
}

static void own_elastic_memory_gives_way_and_no_other(void **state) {
    (void)state;
    const char *name = shared_name("elastic");
    const uint64_t limit = limit_for_elastic(2 * join_bytes() + 20 * KIB + node_bytes());
    brim_budget *root = join(name, limit);
    const struct child child = new_child_process(name, 0);
    brim_budget *node = new_child(root, "loader", BRIM_UNLIMITED, 0);
    struct holder holder = { .budget = node, .held = 8 * KIB };
    assert_true(brim__budget_try(node, BRIM_MEMORY_HOST, 8 * KIB));
    brim__budget_on_revoke(node, give, &holder);
    assert_int_equal(tell(&child, TRY, BRIM_MEMORY_HOST, 12 * KIB).status, BRIM_OK);
    assert_int_equal(tell(&child, TRY, BRIM_MEMORY_HOST, 1).status,
                     BRIM_STATUS_BUDGET); /* takes from nobody */
    assert_false(brim__budget_try(node, BRIM_MEMORY_HOST, 1));
    assert_int_equal(brim__budget_available(root, BRIM_MEMORY_HOST), 8 * KIB + firm_part(limit));
    assert_int_equal(brim__budget_free_now(root, BRIM_MEMORY_HOST), 0);
    assert_true(charges(root, firm_part(limit))); /* the part that is for firm charges alone */
    assert_int_equal(holder.held, 8 * KIB);

    assert_true(charges(root, 3 * KIB)); /* exactly what is missing is given up */
    assert_int_equal(holder.held, 5 * KIB);
    assert_false(charges(root, 5 * KIB + 1)); /* the child's is not to be had */
    assert_int_equal(holder.held, 0);
    assert_int_equal(sharing_of(root, BRIM_MEMORY_HOST).used,
                     2 * join_bytes() + node_bytes() + 15 * KIB +
                         firm_part(limit)); /* and all is given back */
    brim__budget_check(root);
    brim_budget_uncharge(root, BRIM_MEMORY_HOST, firm_part(limit));
    assert_int_equal(tell(&child, TRY, BRIM_MEMORY_HOST, 5 * KIB).status, BRIM_OK);
    assert_int_equal(tell(&child, RETURN, BRIM_MEMORY_HOST, 1 * KIB).status, BRIM_OK);
    assert_true(brim__budget_try(node, BRIM_MEMORY_HOST, KIB));
    holder.held = KIB;

    /* for somebody who waits, those who give way readily give way */
    brim__budget_yields(node, BRIM__YIELDS_IDLE);
    brim__budget_make_free(root, BRIM_MEMORY_HOST, KIB);
    assert_int_equal(holder.held, 0);
    assert_int_equal(brim__budget_free_now(root, BRIM_MEMORY_HOST), KIB);
    brim__budget_on_revoke(node, NULL, NULL);
    brim_budget_free(node);
    end_child(&child);
    brim__budget_unref(root);
}

/* Whoever came first and took all that it got leaves room for others to begin, and is named
 * with what is elastic of it when they are refused more. */
static void elastic_memory_leaves_room_for_newcomers(void **state) {
    (void)state;
    const char *name = shared_name("newcomer");
    const struct child first = new_child_process(name, 8 * MIB);
    uint64_t taken = 0;
    for (uint64_t step = MIB; step > 0; step /= 2) {
        while (tell(&first, TRY, BRIM_MEMORY_HOST, step).status == BRIM_OK) {
            taken += step;
        }
    }
    assert_int_equal(taken, 7 * MIB - join_bytes());
    brim_budget *root = join(name, 0);
    assert_true(charges(root, MIB - join_bytes()));
    assert_false(charges(root, 1));
    char expected[128];
    char size[BRIM__SIZE_TEXT];
    snprintf(expected, sizeof expected, " 7.0 MiB (%s of it elastic), this process 1.0 MiB;",
             brim__size_text(taken, size));
    assert_non_null(strstr(brim_detail(), expected));
    assert_non_null(strstr(brim_detail(), "their caches a limit"));

    /* and one that cannot even begin is told the same */
    const uint64_t limits[BRIM_MEMORY_KINDS] = { 0 };
    brim_status status;
    assert_null(join_with(name, limits, &status));
    assert_int_equal(status, BRIM_STATUS_BUDGET);
    snprintf(expected, sizeof expected, "process %d (", (int)first.process);
    assert_non_null(strstr(brim_detail(), expected));
    assert_non_null(strstr(brim_detail(), " of it elastic), process "));
    snprintf(expected, sizeof expected, "at least %llu bytes",
             (unsigned long long)(8 * MIB + join_bytes()));
    assert_non_null(strstr(brim_detail(), expected));
    assert_int_equal(tell(&first, RETURN, BRIM_MEMORY_HOST, taken).status, BRIM_OK);
    assert_false(charges(root, 8 * MIB));
    assert_null(strstr(brim_detail(), "elastic"));
    brim__budget_unref(root);
    end_child(&first);
    assert_false(name_exists(name));
}

/* Again while another process stands still with the lock, which is another refusal. */
static bool charges_at_last(brim_budget *budget, uint64_t bytes) {
    for (int i = 0; i < 30; i++) {
        if (charges(budget, bytes)) {
            return true;
        }
        if (strstr(brim_detail(), "its lock is held by") == NULL) {
            break;
        }
    }
    return false;
}

/* What was given up for a firm charge is not for another process, which tries to get it
 * all the time. */
static void no_process_snatches_what_was_given_up(void **state) {
    (void)state;
    const char *name = shared_name("snatch");
    for (int round = 0; round < 5; round++) {
        const uint64_t limit = limit_for_elastic(2 * join_bytes() + 64 * KIB + node_bytes());
        brim_budget *root = join(name, limit);
        const struct child child = new_child_process(name, 0);
        brim_budget *node = new_child(root, "loader", BRIM_UNLIMITED, 0);
        struct holder holder = { .budget = node, .held = 64 * KIB };
        assert_true(brim__budget_try(node, BRIM_MEMORY_HOST, 64 * KIB));
        brim__budget_on_revoke(node, give, &holder);
        assert_true(charges(root, firm_part(limit))); /* so that the rest has to be given up */
        tell(&child, SNATCH, BRIM_MEMORY_HOST, 1);
        for (int i = 0; i < 4096; i++) {
            assert_true(charges_at_last(root, 16));
        }
        assert_int_equal(holder.held, 0);
        kill_child(&child);
        bury(&child);
        brim__budget_on_revoke(node, NULL, NULL);
        brim_budget_free(node);
        brim__budget_unref(root);
    }
}

/* ------------------------------------------------------------------- the dead */

static void the_share_of_a_killed_process_is_found(void **state) {
    (void)state;
    const char *name = shared_name("killed");
    brim_budget *root = join(name, 2 * join_bytes() + 20 * KIB);
    struct child child = new_child_process(name, 0);
    assert_true(child_charges(&child, 20 * KIB));
    assert_false(charges(root, 1));
    kill_child(&child); /* nobody has waited for it: it has a number, but no memory */
    assert_true(charges(root, 20 * KIB));
    assert_int_equal(sharing_of(root, BRIM_MEMORY_HOST).processes, 1);
    bury(&child);
    brim_budget_uncharge(root, BRIM_MEMORY_HOST, 20 * KIB);

    child = new_child_process(name, 0);
    assert_true(child_charges(&child, 20 * KIB));
    kill_child(&child);
    bury(&child); /* now there is no such process */
    assert_int_equal(brim__budget_free_now(root, BRIM_MEMORY_HOST), 0);
    assert_int_equal(brim__budget_available(root, BRIM_MEMORY_HOST), 20 * KIB + join_bytes());
    assert_true(charges(root, 20 * KIB + join_bytes()));
    brim_budget_uncharge(root, BRIM_MEMORY_HOST, 20 * KIB + join_bytes());

    /* elastic charges find it too, if not at once */
    child = new_child_process(name, 0);
    assert_true(child_charges(&child, 20 * KIB));
    kill_child(&child);
    bury(&child);
    for (int i = 0; i < 6000 && !brim__budget_try(root, BRIM_MEMORY_HOST, 20 * KIB); i++) {
        usleep(10000);
    }
    assert_int_equal(read_info(root).elastic, 20 * KIB);

    /* the last one who leaves counts only the living */
    child = new_child_process(name, 0);
    kill_child(&child);
    bury(&child);
    brim__budget_unref(root);
    assert_false(name_exists(name));
}

static void what_the_killed_have_left_is_taken_over(void **state) {
    (void)state;
    const char *name = shared_name("left");
    const struct child child = new_child_process(name, 4 * MIB);
    assert_true(child_charges(&child, MIB));
    kill_child(&child);
    assert_true(name_exists(name));
    brim_budget *root = join(name, 2 * MIB); /* with another limit */
    assert_int_equal(sharing_of(root, BRIM_MEMORY_HOST).limit, 2 * MIB);
    assert_int_equal(sharing_of(root, BRIM_MEMORY_HOST).used, join_bytes());
    bury(&child);
    brim__budget_unref(root);
    assert_false(name_exists(name));
}

/* The lock is held by a process that does not go on: a charge fails, and collects nothing
 * for it. */
static void a_lock_that_is_kept_is_no_lack_of_memory(void **state) {
    (void)state;
    const char *name = shared_name("stuck");
    brim_budget *root = join(name, 4 * MIB);
    const struct child child = new_child_process(name, 0);
    brim_budget *nodes[3];
    struct holder holders[3];
    for (int i = 0; i < 3; i++) {
        nodes[i] = new_child(root, "loader", BRIM_UNLIMITED, 0);
        holders[i] = (struct holder){ .budget = nodes[i], .held = 8 * KIB };
        assert_true(brim__budget_try(nodes[i], BRIM_MEMORY_HOST, 8 * KIB));
        brim__budget_on_revoke(nodes[i], give, &holders[i]);
    }
    assert_int_equal(tell(&child, LOCK, BRIM_MEMORY_HOST, 0).status, BRIM_OK);
    char expected[64];
    snprintf(expected, sizeof expected, "its lock is held by process %d,", (int)child.process);
    assert_false(charges(root, KIB));
    assert_non_null(strstr(brim_detail(), expected));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(holders[i].held, 8 * KIB);
    }
    assert_false(brim__budget_try(root, BRIM_MEMORY_HOST, 1));
    brim__budget_return(nodes[0], BRIM_MEMORY_HOST, KIB); /* giving back needs no lock */
    holders[0].held -= KIB;
    kill_child(&child);
    assert_true(charges(root, KIB));
    bury(&child);
    for (int i = 0; i < 3; i++) {
        brim__budget_on_revoke(nodes[i], NULL, NULL);
        brim_budget_free(nodes[i]);
    }
    brim__budget_check(root);
    brim__budget_unref(root);
    assert_false(name_exists(name));
}

static void the_lock_of_a_killed_process_is_taken_over(void **state) {
    (void)state;
    const char *name = shared_name("lock");
    brim_budget *root = join(name, 2 * join_bytes() + 20 * KIB);
    const struct child child = new_child_process(name, 0);
    assert_true(child_charges(&child, 15 * KIB));
    assert_int_equal(tell(&child, LOCK, BRIM_MEMORY_HOST, 0).status, BRIM_OK);
    assert_false(brim__budget_try(root, BRIM_MEMORY_HOST, 1)); /* does not wait for long */
    kill_child(&child);
    assert_true(charges(root, 20 * KIB));
    assert_true(charges(root, join_bytes()));
    assert_false(charges(root, 1));
    bury(&child);
    brim__budget_check(root);
    brim__budget_unref(root);
    assert_false(name_exists(name));
}

/* Writes an entry as another process would have. */
static struct brim__shared_entry *forge(brim_budget *root, uint32_t i,
                                        const struct brim__identity *who, uint64_t bytes) {
    struct brim__shared_entry *entry = &root->tree->shared.segment->entry[i];
    memset(entry->command, 'f', sizeof entry->command); /* without an end */
    atomic_store(&entry->start, who->start);
    atomic_store(&entry->space, who->space);
    atomic_store(&entry->bytes[BRIM_MEMORY_HOST], bytes);
    atomic_store(&entry->number, who->number);
    return entry;
}

static void a_number_that_is_used_again_deceives_nobody(void **state) {
    (void)state;
    const char *name = shared_name("reuse");
    brim_budget *root = join(name, join_bytes() + 30 * KIB);
    const struct brim__identity own = root->tree->shared.own;
    assert_int_equal(own.number, getpid());
    assert_true(own.start > 0 && own.space > 0);

    /* this very number, of a process that started at another time */
    struct brim__identity who = own;
    who.start -= 1;
    struct brim__shared_entry *entry = forge(root, 7, &who, 30 * KIB);
    assert_true(charges(root, 30 * KIB));
    assert_int_equal(atomic_load(&entry->number), 0);
    brim_budget_uncharge(root, BRIM_MEMORY_HOST, 30 * KIB);

    /* no process can have such a number */
    who = own;
    who.number = UINT64_C(1) << 40;
    entry = forge(root, 255, &who, 30 * KIB);
    assert_true(charges(root, 30 * KIB));
    assert_int_equal(atomic_load(&entry->number), 0);
    brim_budget_uncharge(root, BRIM_MEMORY_HOST, 30 * KIB);

    /* what is this process's own stays */
    entry = forge(root, 9, &own, 10 * KIB);
    assert_false(charges(root, 20 * KIB + 1));
    assert_int_equal(atomic_load(&entry->number), own.number);

    /* of another namespace: not judged, though there is no such process here */
    who = own;
    who.space++;
    who.number = INT32_MAX;
    entry = forge(root, 9, &who, 10 * KIB);
    assert_false(charges(root, 20 * KIB + 1));
    assert_int_equal(atomic_load(&entry->number), INT32_MAX);
    assert_non_null(strstr(brim_detail(), "process 2147483647 (fffffffffffffff) 10.0 KiB"));
    atomic_store(&entry->number, 0);
    brim__budget_unref(root);
    assert_false(name_exists(name));
}

static void *wait_for_ever(void *user) {
    for (;;) {
        pause();
    }
    return user;
}

/* What looks dead and is not: its first thread has ended, but another one runs. */
static void a_process_without_its_first_thread_lives(void **state) {
    (void)state;
    struct brim__identity own;
    char command[BRIM__COMMAND_BYTES];
    int answers[2];
    struct brim__identity who;
    assert_int_equal(pipe(answers), 0);
    fflush(NULL);
    const pid_t process = fork();
    if (process == 0) {
        pthread_t thread;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        brim__identity_own(&own, command);
        if (pthread_create(&thread, NULL, wait_for_ever, NULL) != 0 ||
            write(answers[1], &own, sizeof own) != sizeof own) {
            _exit(1);
        }
        syscall(SYS_exit, 0); /* this thread alone */
    }
    assert_int_equal(read(answers[0], &who, sizeof who), sizeof who);
    char path[64];
    char text[64] = "";
    char *after = text;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    for (int i = 0; i < 60000 && strncmp(after, ") Z", 3) != 0; i++) {
        usleep(1000);
        assert_true(brim__system_text(path, text, sizeof text));
        after = strrchr(text, ')');
        assert_non_null(after);
    }
    assert_memory_equal(after, ") Z", 3);
    brim__identity_own(&own, command);
    assert_false(brim__identity_is_gone(&who, &own));
    assert_int_equal(kill(process, SIGKILL), 0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)process, &info, WEXITED | WNOWAIT), 0);
    assert_true(brim__identity_is_gone(&who, &own)); /* a zombie */
    int status;
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_true(brim__identity_is_gone(&who, &own)); /* nothing */
    close(answers[0]);
    close(answers[1]);
}

/* --------------------------------------------------------------------- forks */

static void a_fork_changes_nothing(void **state) {
    (void)state;
    const char *name = shared_name("fork");
    brim_budget *root = join(name, 2 * join_bytes() + 20 * KIB);
    assert_true(charges(root, 10 * KIB));
    fflush(NULL);
    const pid_t process = fork();
    if (process == 0) {
        struct brim__sharing sharing;
        alarm(60);
        bool right = brim_budget_charge(root, BRIM_MEMORY_HOST, 1) == BRIM_STATUS_FORKED &&
                     !brim__budget_sharing(root, BRIM_MEMORY_HOST, &sharing) &&
                     brim__budget_limit(root, BRIM_MEMORY_HOST) == 0 &&
                     /* and by no mistake either: it is not even there */
                     msync(root->tree->shared.segment, 1, MS_ASYNC) != 0 && errno == ENOMEM;
        brim_budget_uncharge(root, BRIM_MEMORY_HOST, 10 * KIB);
        brim__budget_unref(root);
        /* a share of its own is another one */
        const uint64_t limits[BRIM_MEMORY_KINDS] = { 0 };
        brim_status status;
        brim_budget *own = join_with(name, limits, &status);
        right = right && own != NULL &&
                brim_budget_charge(own, BRIM_MEMORY_HOST, 10 * KIB) == BRIM_OK &&
                brim_budget_charge(own, BRIM_MEMORY_HOST, 1) == BRIM_STATUS_BUDGET &&
                brim__budget_sharing(own, BRIM_MEMORY_HOST, &sharing) && sharing.processes == 2;
        brim__budget_unref(own);
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_int_equal(status, 0);
    assert_int_equal(sharing_of(root, BRIM_MEMORY_HOST).used, join_bytes() + 10 * KIB);
    assert_int_equal(sharing_of(root, BRIM_MEMORY_HOST).processes, 1);
    assert_true(charges(root, 10 * KIB + join_bytes()));
    assert_false(charges(root, 1));
    brim__budget_check(root);
    brim__budget_unref(root);
    assert_false(name_exists(name));
}

/* --------------------------------------------------------------------- words */

static void a_refusal_names_the_processes(void **state) {
    (void)state;
    const char *name = shared_name("words");
    brim_budget *root = join(name, 8 * MIB);
    brim_budget *train = new_child(root, "train", BRIM_UNLIMITED, 0);
    const struct child child = new_child_process(name, 0);
    assert_true(child_charges(&child, 5 * MIB));
    assert_true(charges(train, 2 * MIB));
    assert_false(charges(train, MIB));
    const uint64_t used = 7 * MIB + 2 * join_bytes() + node_bytes();
    struct brim__identity own;
    char command[BRIM__COMMAND_BYTES]; /* the child's too */
    char expected[BRIM__DETAIL_BYTES];
    char size[4][BRIM__SIZE_TEXT];
    brim__identity_own(&own, command);
    snprintf(expected, sizeof expected,
             "shared budget \"%s\" (limit 8.0 MiB) refused 1.0 MiB for \"train\": %s is in use; "
             "held by process %d (%s) %s, this process %s; in this process train "
             "2.0 MiB, runtime %s; end one of them, give each process less memory or their caches "
             "a limit, or start the shared budget with at least %llu bytes",
             name, brim__size_text(used, size[0]), (int)child.process, command,
             brim__size_text(5 * MIB + join_bytes(), size[1]),
             brim__size_text(2 * MIB + join_bytes() + node_bytes(), size[2]),
             brim__size_text(join_bytes() + node_bytes(), size[3]),
             (unsigned long long)(used + MIB));
    assert_string_equal(brim_detail(), expected);

    /* the tightest is the root, and it names the processes too */
    char text[256];
    assert_ptr_equal(brim__budget_tightest(train, BRIM_MEMORY_HOST), root);
    brim__budget_holders(root, BRIM_MEMORY_HOST, text, sizeof text, NULL);
    assert_non_null(strstr(expected, text));
    brim__budget_holders(root, BRIM_MEMORY_HOST, text, 8, NULL);
    assert_string_equal(text, "");

    /* an entry that is lost: nothing more is granted, and what is there goes on */
    struct brim__shared_entry *entry = &root->tree->shared.segment->entry[root->tree->shared.entry];
    const uint64_t number = atomic_load(&entry->number);
    atomic_store(&entry->number, number + 1);
    assert_false(charges(train, 1));
    assert_non_null(strstr(brim_detail(), "was damaged"));
    brim_budget_uncharge(train, BRIM_MEMORY_HOST, MIB);
    atomic_store(&entry->number, number);
    assert_true(charges(train, 1));
    end_child(&child);
    brim_budget_free(train);
    brim__budget_unref(root);
    assert_false(name_exists(name));
}

static void a_long_list_is_cut(void **state) {
    (void)state;
    const char *name = shared_name("many");
    brim_budget *root = join(name, join_bytes() + 256 * KIB);
    for (uint32_t i = 1; i < BRIM__SHARED_ENTRIES; i++) {
        forge(root, i, &root->tree->shared.own, KIB + i);
    }
    assert_false(charges(root, MIB));
    assert_non_null(strstr(brim_detail(), " more; in this process runtime "));
    assert_non_null(strstr(brim_detail(), " bytes")); /* to the end */
    brim_status status;
    const uint64_t limits[BRIM_MEMORY_KINDS] = { 0 };
    assert_null(join_with(name, limits, &status));
    assert_int_equal(status, BRIM_STATUS_BUDGET);
    for (uint32_t i = 2; i < BRIM__SHARED_ENTRIES; i++) {
        atomic_store(&root->tree->shared.segment->entry[i].bytes[BRIM_MEMORY_HOST], 0);
    }
    assert_null(join_with(name, limits, &status)); /* there is room, but no entry */
    assert_int_equal(status, BRIM_STATUS_BUDGET);
    assert_non_null(strstr(brim_detail(), "256 runtimes"));
    for (uint32_t i = 1; i < BRIM__SHARED_ENTRIES; i++) {
        atomic_store(&root->tree->shared.segment->entry[i].number, 0);
    }
    brim__budget_unref(root);
    assert_false(name_exists(name));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_processes_together_obey_the_limit),
        cmocka_unit_test(every_kind_of_memory_is_shared),
        cmocka_unit_test(a_minimum_is_claimed_and_own_limits_hold),
        cmocka_unit_test(a_process_may_join_twice),
        cmocka_unit_test(limits_are_those_of_the_first),
        cmocka_unit_test(own_elastic_memory_gives_way_and_no_other),
        cmocka_unit_test(elastic_memory_leaves_room_for_newcomers),
        cmocka_unit_test(no_process_snatches_what_was_given_up),
        cmocka_unit_test(the_share_of_a_killed_process_is_found),
        cmocka_unit_test(what_the_killed_have_left_is_taken_over),
        cmocka_unit_test(the_lock_of_a_killed_process_is_taken_over),
        cmocka_unit_test(a_lock_that_is_kept_is_no_lack_of_memory),
        cmocka_unit_test(a_number_that_is_used_again_deceives_nobody),
        cmocka_unit_test(a_process_without_its_first_thread_lives),
        cmocka_unit_test(a_fork_changes_nothing),
        cmocka_unit_test(a_refusal_names_the_processes),
        cmocka_unit_test(a_long_list_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
