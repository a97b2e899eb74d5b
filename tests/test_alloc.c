/*
 * test_alloc.c: charged memory, pages of their own, arenas, and what is left
 * when the system refuses any one of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/platform.h"
#include "memory/alloc.h"
#include "memory/node.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static brim_budget *new_root(uint64_t room) {
    const uint64_t limits[BRIM_MEMORY_KINDS] = { brim__alloc_bytes(sizeof(struct brim__tree)) +
                                                 room };
    brim_budget *root;
    assert_int_equal(brim__budget_root("runtime", limits, &root), BRIM_OK);
    return root;
}

/* What is charged beyond the root itself. */
static uint64_t charged(brim_budget *root) {
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    assert_int_equal(brim_budget_read(root, BRIM_MEMORY_HOST, &info), BRIM_OK);
    brim__budget_check(root);
    return info.charged + info.reserved - brim__alloc_bytes(sizeof(struct brim__tree));
}

static bool is_zero(const void *memory, size_t bytes) {
    const uint8_t *at = memory;
    for (size_t i = 0; i < bytes; i++) {
        if (at[i] != 0) {
            return false;
        }
    }
    return true;
}

static void a_block_is_zeroed_aligned_and_charged(void **state) {
    (void)state;
    brim_budget *root = new_root(MIB);
    static const size_t sizes[] = { 0, 1, 15, 16, 17, 64, 1000, 100000 };
    uint8_t *blocks[BRIM__COUNT(sizes)];
    uint64_t expected = 0;
    for (size_t i = 0; i < BRIM__COUNT(sizes); i++) {
        brim_status status = BRIM_STATUS_IO;
        blocks[i] = brim__alloc(root, sizes[i], &status);
        assert_non_null(blocks[i]);
        assert_int_equal(status, BRIM_OK);
        assert_int_equal((uintptr_t)blocks[i] % 64, 0);
        assert_true(is_zero(blocks[i], sizes[i]));
        memset(blocks[i], 0xFF, sizes[i]);
        assert_int_equal(brim__alloc_bytes(sizes[i]), 64 + (sizes[i] + 15) / 16 * 16);
        expected += brim__alloc_bytes(sizes[i]);
        assert_int_equal(charged(root), expected);
    }
    for (size_t i = 0; i < BRIM__COUNT(sizes); i++) {
        brim__free(blocks[i]);
    }
    brim__free(NULL);
    assert_int_equal(charged(root), 0);

    brim_status status;
    assert_null(brim__alloc(root, MIB, &status));
    assert_int_equal(status, BRIM_STATUS_BUDGET);
    assert_non_null(strstr(brim_detail(), "runtime"));
    assert_null(brim__alloc(root, UINT64_MAX, &status));
    assert_int_equal(status, BRIM_STATUS_MEMORY);
    assert_null(brim__alloc(NULL, UINT64_MAX - 70, &status));
    assert_int_equal(status, BRIM_STATUS_MEMORY);
    assert_null(brim__alloc(root, UINT64_MAX / 4, NULL));
    assert_int_equal(charged(root), 0);

    void *uncounted = brim__alloc(NULL, 10, &status);
    assert_non_null(uncounted);
    assert_int_equal(charged(root), 0);
    brim__free(uncounted);
    brim__budget_unref(root);
}

static void pages_are_charged_whole_without_their_guard(void **state) {
    (void)state;
    const size_t page = brim__page_bytes();
    brim_budget *root = new_root(8 * page);
    struct brim__pages firm;
    struct brim__pages elastic;
    assert_int_equal(brim__pages_new(&firm, root, page + 1, false, true), BRIM_OK);
    assert_int_equal(firm.bytes, 2 * page);
    assert_int_equal(firm.guard, page);
    assert_int_equal(charged(root), 2 * page);
    assert_int_equal((uintptr_t)firm.memory % page, 0);
    assert_true(is_zero(firm.memory, firm.bytes));

    brim__fail(BRIM_STATUS_IO, "an earlier text");
    assert_int_equal(brim__pages_new(&elastic, root, 7 * page, true, false), BRIM_STATUS_BUDGET);
    assert_string_equal(brim_detail(), "an earlier text"); /* no text for elastic refusals */
    assert_null(elastic.memory);
    brim__pages_free(&elastic);
    assert_int_equal(brim__pages_new(&elastic, root, 6 * page, true, false), BRIM_OK);
    struct brim__pages refused;
    assert_int_equal(brim__pages_new(&refused, root, 1, false, false), BRIM_STATUS_BUDGET);
    assert_non_null(strstr(brim_detail(), "runtime"));
    assert_null(refused.memory);
    assert_int_equal(brim__pages_new(&refused, root, UINT64_MAX, true, true), BRIM_STATUS_MEMORY);

    /* elastic pages that become firm */
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    brim__budget_firm_up(root, BRIM_MEMORY_HOST, elastic.bytes);
    elastic.elastic = false;
    assert_int_equal(brim_budget_read(root, BRIM_MEMORY_HOST, &info), BRIM_OK);
    assert_int_equal(info.elastic, 0);
    assert_int_equal(charged(root), 8 * page);
    /* and elastic again, and firm */
    brim__budget_soften(root, BRIM_MEMORY_HOST, elastic.bytes);
    assert_int_equal(brim_budget_read(root, BRIM_MEMORY_HOST, &info), BRIM_OK);
    assert_int_equal(info.elastic, elastic.bytes);
    assert_int_equal(charged(root), 8 * page);
    brim__budget_check(root);
    brim__budget_firm_up(root, BRIM_MEMORY_HOST, elastic.bytes);
    brim__pages_free(&elastic);
    brim__pages_free(&elastic);
    brim__pages_free(&firm);
    assert_int_equal(charged(root), 0);

    assert_int_equal(brim__pages_new(&firm, NULL, 0, false, false), BRIM_OK);
    assert_int_equal(firm.bytes, page);
    brim__pages_free(&firm);
    brim__budget_unref(root);
}

static void freed_pages_leave_the_process(void **state) {
    (void)state;
    const uint64_t bytes = 64 * MIB;
    uint64_t before;
    uint64_t with;
    uint64_t after;
    uint64_t peak;
    struct brim__pages pages;
    brim__rss(&before, &peak);
    assert_int_equal(brim__pages_new(&pages, NULL, bytes, false, false), BRIM_OK);
    memset(pages.memory, 1, bytes);
    brim__rss(&with, &peak);
    brim__pages_free(&pages);
    brim__rss(&after, &peak);
    assert_true(with >= before + bytes - 4 * MIB);
    assert_true(after + bytes <= with + 4 * MIB);
    assert_true(peak + MIB >= with);
}

/* How a process ends that writes to `at`. */
static int end_of_writing(volatile uint8_t *at) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *at = 1;
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void a_guard_page_guards(void **state) {
    (void)state;
    struct brim__pages pages;
    assert_int_equal(brim__pages_new(&pages, NULL, 1, false, true), BRIM_OK);
    assert_int_equal(end_of_writing(pages.memory), 0);
    assert_int_equal(end_of_writing(pages.memory - 1), SIGSEGV);
    assert_int_equal(end_of_writing(pages.memory - pages.guard), SIGSEGV);
    brim__pages_free(&pages);
}

/* Of this range alone: what a sanitizer remembers of it is resident too. */
static size_t resident_pages(void *memory, uint64_t bytes) {
    static unsigned char present[32 * MIB / 4096];
    assert_int_equal(mincore(memory, bytes, present), 0);
    size_t count = 0;
    for (size_t i = 0; i < bytes / brim__page_bytes(); i++) {
        count += present[i] & 1;
    }
    return count;
}

/* Pages of `kind` (0 private, 1 with a guard, 2 shared) filled and freed: where they
 * were, the guard included. */
static uint8_t *used_and_freed(unsigned kind, brim_budget *root, uint64_t bytes) {
    struct brim__pages pages;
    const brim_status status = kind == 2 ? brim__pages_new_shared(&pages, root, bytes, false)
                                         : brim__pages_new(&pages, root, bytes, false, kind == 1);
    assert_int_equal(status, BRIM_OK);
    assert_int_equal(charged(root), bytes);
    memset(pages.memory, 1, bytes);
    assert_int_equal(resident_pages(pages.memory, bytes), bytes / brim__page_bytes());
    uint8_t *const first = pages.memory - pages.guard;
    brim__pages_free(&pages);
    assert_null(pages.memory);
    assert_int_equal(charged(root), 0);
    return first;
}

/* In a process of its own: there is no way back. */
static void addresses_that_are_kept(void) {
    const uint64_t bytes = 32 * MIB;
    brim_budget *root = new_root(bytes);
    brim_keep_addresses();
    for (unsigned kind = 0; kind < 3; kind++) {
        uint8_t *const first = used_and_freed(kind, root, bytes);
        assert_int_equal(resident_pages(first, bytes), 0);
        assert_true(is_zero(first, bytes));
        *(volatile uint8_t *)first = 1; /* the guard too is gone */
        uint8_t *const second = used_and_freed(kind, root, bytes);
        assert_true(second + bytes <= first || first + bytes <= second);
    }
    /* where the system has no more maps, they go as ever */
    for (int guard = 0; guard < 2; guard++) {
        struct brim__pages pages;
        assert_int_equal(brim__pages_new(&pages, root, bytes, false, guard), BRIM_OK);
        uint8_t *const at = pages.memory;
        memset(at, 1, bytes);
        brim__fault_arm(1u << BRIM__FAULT_MAP, 1, false);
        brim__pages_free(&pages);
        assert_int_equal(brim__fault_injected(), 1);
        brim__fault_arm(0, 0, false);
        assert_int_equal(charged(root), 0);
        assert_int_equal(end_of_writing(at), SIGSEGV);
    }
    brim__budget_unref(root);
}

static void kept_addresses_read_as_zeros_and_cost_nothing(void **state) {
    (void)state;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        addresses_that_are_kept();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static uint64_t fill(struct brim__arena *arena) {
    static const size_t sizes[] = { 1, 16, 63, 64, 100, 5000, 0, 3, 70000, 40, 2000, 16384, 8 };
    uintptr_t last = 0;
    for (size_t i = 0; i < 10 * BRIM__COUNT(sizes); i++) {
        const size_t bytes = sizes[i % BRIM__COUNT(sizes)];
        uint8_t *memory;
        assert_int_equal(brim__arena_take(arena, bytes, &memory), BRIM_OK);
        assert_int_equal((uintptr_t)memory % (bytes >= 64 ? 64 : 16), 0);
        assert_true((uintptr_t)memory != last);
        assert_true(is_zero(memory, bytes)); /* and nobody else's bytes */
        memset(memory, 0xFF, bytes);
        last = (uintptr_t)memory;
    }
    return arena->bytes;
}

static void an_arena_charges_the_same_for_the_same(void **state) {
    (void)state;
    const size_t page = brim__page_bytes();
    brim_budget *root = new_root(4 * MIB);
    struct brim__arena arena;
    brim__arena_init(&arena, root);
    assert_int_equal(charged(root), 0);
    void *memory;
    assert_int_equal(brim__arena_take(&arena, 1, &memory), BRIM_OK);
    assert_int_equal(charged(root), page);
    const char *copy;
    assert_int_equal(brim__arena_text(&arena, "text", &copy), BRIM_OK);
    assert_string_equal(copy, "text");
    assert_int_equal(charged(root), page); /* in the same page */
    /* a large one gets pages of its own, and small ones go on where they were */
    assert_int_equal(brim__arena_take(&arena, 10 * page - 64, &memory), BRIM_OK);
    assert_int_equal(charged(root), 11 * page);
    assert_int_equal(brim__arena_take(&arena, 100, &memory), BRIM_OK);
    assert_int_equal(charged(root), 11 * page);
    brim__arena_fini(&arena);
    assert_int_equal(charged(root), 0);
    brim__arena_fini(&arena);

    brim__arena_init(&arena, root);
    const uint64_t first = fill(&arena);
    assert_int_equal(charged(root), first);
    /* a refusal leaves the arena as it was */
    assert_int_equal(brim__arena_take(&arena, 4 * MIB, &memory), BRIM_STATUS_BUDGET);
    assert_int_equal(brim__arena_take(&arena, UINT64_MAX, &memory), BRIM_STATUS_MEMORY);
    assert_int_equal(brim__arena_take(&arena, UINT64_MAX - 64, &memory), BRIM_STATUS_MEMORY);
    assert_int_equal(charged(root), first);
    brim__arena_fini(&arena);
    brim__arena_init(&arena, NULL);
    assert_int_equal(fill(&arena), first);
    assert_int_equal(charged(root), 0);
    brim__arena_fini(&arena);
    brim__budget_unref(root);
}

/* Takes one of everything; gives all back whatever happened. */
static brim_status take_one_of_everything(brim_budget *root) {
    brim_budget *child = NULL;
    void *block = NULL;
    void *memory;
    struct brim__pages pages = { 0 };
    struct brim__pages elastic = { 0 };
    struct brim__arena arena;
    brim__arena_init(&arena, root);
    brim_status status = brim_budget_new(root, "child", BRIM_UNLIMITED, 10000, &child);
    if (status == BRIM_OK) {
        block = brim__alloc(child, 1000, &status);
    }
    if (status == BRIM_OK) {
        status = brim__pages_new(&pages, child, 10000, false, true);
    }
    if (status == BRIM_OK) {
        status = brim__pages_new(&elastic, root, 10000, true, false);
    }
    for (int i = 0; i < 3 && status == BRIM_OK; i++) {
        status = brim__arena_take(&arena, 30000, &memory);
    }
    brim__arena_fini(&arena);
    brim__pages_free(&elastic);
    brim__pages_free(&pages);
    brim__free(block);
    brim_budget_free(child);
    return status;
}

static void every_refusal_of_the_system_is_unwound(void **state) {
    (void)state;
    brim_budget *root = new_root(MIB);
    const unsigned kinds = 1u << BRIM__FAULT_ALLOC | 1u << BRIM__FAULT_MAP;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        for (uint64_t nth = 1;; nth++) {
            brim__fault_arm(kinds, nth, for_ever);
            const brim_status status = take_one_of_everything(root);
            const uint64_t injected = brim__fault_injected();
            brim__fault_arm(0, 0, false);
            assert_int_equal(charged(root), 0);
            assert_int_equal(brim__budget_free_now(root, BRIM_MEMORY_HOST), MIB);
            if (injected == 0) {
                assert_int_equal(status, BRIM_OK);
                assert_int_equal(nth, 8); /* two blocks, two pages, three of the arena */
                break;
            }
            assert_int_equal(status, BRIM_STATUS_MEMORY);
            assert_non_null(strstr(brim_detail(), "bytes"));
        }
    }
    brim__budget_unref(root);

    const uint64_t limits[BRIM_MEMORY_KINDS] = { MIB };
    brim__fault_arm(kinds, 1, false);
    assert_int_equal(brim__budget_root("runtime", limits, &root), BRIM_STATUS_MEMORY);
    brim__fault_arm(0, 0, false);
}

/* The same with many limits: refusals of the budget
 * are unwound as well, and it succeeds from one limit on. */
static void every_refusal_of_the_budget_is_unwound(void **state) {
    (void)state;
    uint64_t succeeded_at = 0;
    for (uint64_t room = 0; room < 200000; room += 997) {
        brim_budget *root = new_root(room);
        const brim_status status = take_one_of_everything(root);
        assert_true(status == BRIM_OK || status == BRIM_STATUS_BUDGET);
        assert_int_equal(charged(root), 0);
        if (status == BRIM_OK && succeeded_at == 0) {
            succeeded_at = room;
        }
        assert_true(status == BRIM_OK || succeeded_at == 0);
        brim__budget_unref(root);
    }
    assert_true(succeeded_at > 100000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_zeroed_aligned_and_charged),
        cmocka_unit_test(pages_are_charged_whole_without_their_guard),
        cmocka_unit_test(freed_pages_leave_the_process),
        cmocka_unit_test(a_guard_page_guards),
        cmocka_unit_test(kept_addresses_read_as_zeros_and_cost_nothing),
        cmocka_unit_test(an_arena_charges_the_same_for_the_same),
        cmocka_unit_test(every_refusal_of_the_system_is_unwound),
        cmocka_unit_test(every_refusal_of_the_budget_is_unwound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
