/*
 * test_budget.c: the tree of limits: exact limits and minimums, refusals in
 * words, the life of nodes, forks.
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

/* ------------------------------------------------------------------ limits */

static void a_limit_is_exact(void **state) {
    (void)state;
    brim_budget *root = new_root(100);
    assert_true(charges(root, 100));
    assert_false(charges(root, 1));
    assert_true(charges(root, 0));
    brim_budget_uncharge(root, BRIM_MEMORY_HOST, 1);
    assert_true(charges(root, 1));
    assert_false(charges(root, UINT64_MAX));
    assert_int_equal(read_info(root).charged, root_bytes() + 100);
    brim_budget_uncharge(root, BRIM_MEMORY_HOST, 100);
    assert_int_equal(read_info(root).charged, root_bytes());
    assert_int_equal(read_info(root).peak, root_bytes() + 100);

    /* every kind has its own limit and peak */
    assert_int_equal(brim_budget_charge(root, BRIM_MEMORY_PINNED, MIB), BRIM_OK);
    assert_int_equal(brim_budget_charge(root, BRIM_MEMORY_PINNED, 1), BRIM_STATUS_BUDGET);
    assert_non_null(strstr(brim_detail(), "(limit 1.0 MiB of page-locked memory)"));
    assert_int_equal(brim_budget_charge(root, (brim_memory)(BRIM_MEMORY_DEVICE + 7), 1),
                     BRIM_STATUS_BUDGET);
    assert_non_null(strstr(brim_detail(), "(limit 0 B on cuda:7)"));
    assert_int_equal(brim_budget_charge(root, (brim_memory)BRIM_MEMORY_KINDS, 1),
                     BRIM_STATUS_INVALID);
    assert_int_equal(brim_budget_charge(NULL, BRIM_MEMORY_HOST, 1), BRIM_STATUS_INVALID);
    brim__budget_check(root);
    brim__budget_unref(root);

    const uint64_t too_small[BRIM_MEMORY_KINDS] = { root_bytes() - 1 };
    assert_int_equal(brim__budget_root("tiny", too_small, &root), BRIM_STATUS_BUDGET);
    assert_non_null(strstr(brim_detail(), "\"tiny\""));
}

static void a_minimum_is_set_aside_and_used_first(void **state) {
    (void)state;
    brim_budget *root = new_root(10 * KIB + 2 * node_bytes());
    brim_budget *a = new_child(root, "a", BRIM_UNLIMITED, 6 * KIB);
    assert_int_equal(brim__budget_free_now(root, BRIM_MEMORY_HOST), 4 * KIB + node_bytes());
    assert_int_equal(brim__budget_free_now(a, BRIM_MEMORY_HOST), 10 * KIB + node_bytes());
    assert_int_equal(read_info(root).charged, root_bytes() + node_bytes()); /* really taken */

    brim_budget *refused;
    assert_int_equal(brim_budget_new(root, "b", BRIM_UNLIMITED, 5 * KIB, &refused),
                     BRIM_STATUS_BUDGET);
    assert_non_null(strstr(brim_detail(), "\"b\""));
    brim__budget_check(root);
    brim_budget *b = new_child(root, "b", 3 * KIB, 2 * KIB);
    assert_true(charges(a, 6 * KIB));
    assert_int_equal(brim__budget_free_now(root, BRIM_MEMORY_HOST), 2 * KIB);
    assert_true(charges(a, 2 * KIB)); /* from the root now */
    assert_false(charges(a, 1));
    assert_true(charges(b, 2 * KIB)); /* was set aside all the time */
    assert_false(charges(b, 1));
    brim_budget_uncharge(a, BRIM_MEMORY_HOST, 2 * KIB);
    assert_false(charges(b, 2 * KIB)); /* its own limit */
    assert_non_null(strstr(brim_detail(), "budget \"b\" (limit 3.0 KiB)"));
    assert_true(charges(b, 1 * KIB));
    assert_int_equal(brim__budget_limit(b, BRIM_MEMORY_HOST), 3 * KIB);
    assert_int_equal(brim__budget_limit(a, BRIM_MEMORY_HOST),
                     brim__budget_limit(root, BRIM_MEMORY_HOST));
    brim__budget_check(root);

    brim_budget_free(a); /* returns its charges and its minimum */
    assert_int_equal(brim__budget_free_now(root, BRIM_MEMORY_HOST), 7 * KIB + node_bytes());
    brim_budget_free(b);
    assert_int_equal(read_info(root).charged, root_bytes());
    assert_int_equal(brim__budget_free_now(root, BRIM_MEMORY_HOST), 10 * KIB + 2 * node_bytes());

    assert_int_equal(brim_budget_new(root, "x", 1, 2, &a), BRIM_STATUS_INVALID);
    assert_int_equal(brim_budget_new(root, NULL, 1, 0, &a), BRIM_STATUS_INVALID);
    assert_int_equal(brim_budget_new(root, "", 1, 0, &a), BRIM_STATUS_INVALID);
    assert_int_equal(brim_budget_new(root, "x", 1, 0, NULL), BRIM_STATUS_INVALID);
    assert_int_equal(brim_budget_new(NULL, "x", 1, 0, &a), BRIM_STATUS_INVALID);
    brim_budget_free(NULL);
    brim__budget_unref(root);
}

/* ------------------------------------------------------------ other bounds */

static void a_limit_can_be_set(void **state) {
    (void)state;
    const brim_memory kind = (brim_memory)(BRIM_MEMORY_DEVICE + 8); /* opencl:0 */
    brim_budget *root = new_root_of(kind, 10 * KIB);
    brim_budget *a = new_child(root, "a", BRIM_UNLIMITED, 0);
    assert_true(charges_of(a, kind, 6 * KIB));
    assert_true(sets(a, kind, 6 * KIB, 0));
    assert_false(charges_of(a, kind, 1));
    assert_non_null(strstr(brim_detail(), "budget \"a\" (limit 6.0 KiB on opencl:0)"));
    assert_int_equal(brim__budget_limit(a, kind), 6 * KIB);

    assert_false(sets(a, kind, 6 * KIB - 1, 0)); /* below what is in use: as it was */
    assert_string_equal(
        brim_detail(),
        "budget \"a\" cannot be limited to 6.0 KiB on opencl:0: 6.0 KiB (6144 "
        "bytes) is in use; held by a 6.0 KiB; close one of them or choose a higher limit");
    assert_int_equal(read_kind(a, kind).limit, 6 * KIB);
    brim_budget_uncharge(a, kind, 1);
    assert_true(sets(a, kind, 6 * KIB - 1, 0));

    /* the root's: more and less */
    assert_false(charges_of(root, kind, 5 * KIB));
    assert_true(sets(root, kind, 12 * KIB, 0));
    assert_true(charges_of(root, kind, 5 * KIB));
    assert_false(sets(root, kind, 11 * KIB - 2, 0));
    assert_non_null(strstr(brim_detail(), "held by a 6.0 KiB, runtime 5.0 KiB"));
    assert_true(sets(root, kind, 11 * KIB - 1, 0));
    brim__budget_check(root);

    assert_int_equal(brim_budget_set(root, kind, MIB, 1), BRIM_STATUS_INVALID);
    assert_non_null(strstr(brim_detail(), "no parent"));
    assert_int_equal(brim_budget_set(a, kind, 1, 2), BRIM_STATUS_INVALID);
    assert_int_equal(brim_budget_set(a, (brim_memory)BRIM_MEMORY_KINDS, 1, 0), BRIM_STATUS_INVALID);
    assert_int_equal(brim_budget_set(NULL, kind, 1, 0), BRIM_STATUS_INVALID);
    brim_budget_free(a);
    brim__budget_unref(root);
}

static void a_minimum_can_be_set(void **state) {
    (void)state;
    const brim_memory kind = BRIM_MEMORY_DEVICE;
    brim_budget *root = new_root_of(kind, 10 * KIB);
    brim_budget *a = new_child(root, "a", BRIM_UNLIMITED, 0);
    brim_budget *b = new_child(root, "b", BRIM_UNLIMITED, 0);
    assert_true(charges_of(a, kind, 2 * KIB));
    assert_true(charges_of(b, kind, 3 * KIB));
    /* what it uses is part of its minimum: two more KiB are set aside */
    assert_true(sets(a, kind, BRIM_UNLIMITED, 4 * KIB));
    assert_int_equal(brim__budget_free_now(b, kind), 3 * KIB);
    assert_int_equal(brim__budget_free_now(a, kind), 5 * KIB);
    assert_false(sets(a, kind, BRIM_UNLIMITED, 7 * KIB + 1));
    assert_non_null(
        strstr(brim_detail(), "budget \"runtime\" (limit 10.0 KiB on cuda:0) refused "));
    assert_non_null(
        strstr(brim_detail(), " for \"a\": 7.0 KiB is in use; held by a 4.0 KiB, b 3.0"));
    assert_int_equal(read_kind(a, kind).minimum, 4 * KIB);
    assert_true(sets(a, kind, 7 * KIB, 7 * KIB));
    assert_false(charges_of(b, kind, 1));
    assert_true(charges_of(a, kind, 5 * KIB)); /* was set aside */
    assert_false(charges_of(a, kind, 1));      /* its limit */
    brim_budget_uncharge(a, kind, 6 * KIB);
    assert_true(sets(a, kind, 7 * KIB, 0)); /* given up again */
    assert_int_equal(brim__budget_free_now(b, kind), 6 * KIB);
    assert_int_equal(brim__budget_available(b, kind), 6 * KIB);
    brim__budget_check(root);
    brim_budget_free(a);
    brim_budget_free(b);
    assert_int_equal(brim__budget_free_now(root, kind), 10 * KIB);
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
    brim__budget_holders(train, BRIM_MEMORY_HOST, text, sizeof text, NULL);
    assert_string_equal(text, "nested 9.0 MiB, train 3.0 MiB");
    brim__budget_holders(validation, BRIM_MEMORY_HOST, text, sizeof text, NULL);
    assert_string_equal(text, "");
    brim__budget_holders(root, BRIM_MEMORY_HOST, text, 40, NULL);
    assert_string_equal(text, "nested 9.0 MiB, and 3 more");
    brim__budget_holders(root, BRIM_MEMORY_HOST, text, 4, NULL);
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
    assert_int_equal(brim__budget_reserve(c, BRIM_MEMORY_HOST, 7), BRIM_OK);
    char text[512] = "";
    assert_int_equal(brim_budget_walk(root, BRIM_MEMORY_HOST, collect, text), BRIM_OK);
    assert_string_equal(text, "0 runtime 7;1 a 7;2 c 7;1 b 0;");
    brim_budget *last = new_child(a, "last", BRIM_UNLIMITED, 0);
    text[0] = '\0';
    assert_int_equal(brim_budget_walk(a, BRIM_MEMORY_HOST, collect, text), BRIM_OK);
    assert_string_equal(text, "1 a 7;2 c 7;2 last 0;");
    text[0] = '\0';
    assert_int_equal(brim_budget_walk(root, BRIM_MEMORY_HOST, collect, text), BRIM_OK);
    assert_string_equal(text, "0 runtime 7;1 a 7;2 c 7;2 last 0;"); /* ended by the visitor */
    assert_int_equal(brim_budget_walk(root, BRIM_MEMORY_HOST, NULL, NULL), BRIM_STATUS_INVALID);
    brim_budget_info no_size = { 0 };
    assert_int_equal(brim_budget_read(root, BRIM_MEMORY_HOST, &no_size), BRIM_STATUS_INVALID);
    assert_int_equal(brim_budget_read(root, BRIM_MEMORY_HOST, NULL), BRIM_STATUS_INVALID);
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
    assert_true(brim__budget_free_now(deepest, BRIM_MEMORY_HOST) > MIB);
    brim__budget_check(root);
    brim__budget_unref(root);
    brim_budget_free(deepest); /* and with it everything above */
}

static void uncharging_too_much_is_a_mistake(void **state) {
    (void)state;
    brim_budget *root = new_root(KIB);
    assert_true(charges(root, 10));
#ifdef NDEBUG
    brim_budget_uncharge(root, BRIM_MEMORY_HOST, 1000);
    assert_int_equal(read_info(root).charged, root_bytes());
#else
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        freopen("/dev/null", "w", stderr);
        root->tree->process = brim__process(); /* as if it had been made here */
        brim_budget_uncharge(root, BRIM_MEMORY_HOST, 1000);
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
    if (brim_budget_charge(node, BRIM_MEMORY_HOST, 1) != BRIM_STATUS_FORKED ||
        brim_budget_set(node, BRIM_MEMORY_HOST, 1, 0) != BRIM_STATUS_FORKED) {
        return 1;
    }
    if (brim_budget_new(node, "x", 1, 0, &other) != BRIM_STATUS_FORKED) {
        return 2;
    }
    if (brim_budget_read(node, BRIM_MEMORY_HOST, &info) != BRIM_STATUS_FORKED) {
        return 3;
    }
    if (brim_budget_walk(root, BRIM_MEMORY_HOST, visit_nothing, NULL) != BRIM_STATUS_FORKED) {
        return 4;
    }
    if (brim__budget_try(node, BRIM_MEMORY_HOST, 1) ||
        brim__budget_available(node, BRIM_MEMORY_HOST) != 0) {
        return 5;
    }
    if (brim__budget_reserve(node, BRIM_MEMORY_HOST, 1) != BRIM_STATUS_FORKED) {
        return 6;
    }
    if (strstr(brim_detail(), "\"node\"") == NULL) {
        return 7;
    }
    if (brim__budget_revoke(root, BRIM_MEMORY_HOST, 1) != 0) {
        return 8;
    }
    brim_status status = BRIM_OK;
    if (brim__alloc(node, 1, &status) != NULL || status != BRIM_STATUS_FORKED) {
        return 9;
    }
    brim__budget_holders(root, BRIM_MEMORY_HOST, text, sizeof text, NULL);
    brim_budget_uncharge(node, BRIM_MEMORY_HOST, 1);
    brim__budget_unreserve(node, BRIM_MEMORY_HOST, 1);
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
        alarm(120);
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
        cmocka_unit_test(a_limit_can_be_set),
        cmocka_unit_test(a_minimum_can_be_set),
        cmocka_unit_test(labels_are_made_harmless),
        cmocka_unit_test(a_refusal_names_the_holders_largest_first),
        cmocka_unit_test(a_walk_shows_parents_first),
        cmocka_unit_test(a_parent_stays_for_its_children),
        cmocka_unit_test(budgets_nest_to_a_bound),
        cmocka_unit_test(uncharging_too_much_is_a_mistake),
        cmocka_unit_test(after_a_fork_the_child_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
