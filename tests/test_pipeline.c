/*
 * test_pipeline.c: pipelines as objects: building equals parsing, copies are
 * deep, a cut leaves what the text of the rest says, and what is refused, by the checks or for want of memory, changes
 * nothing and leaks nothing.
 */
#include "base/fault.h"
#include "pipeline_rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define TEXT(name, value) \
    { .size = sizeof(brim_argument), .key = name, .kind = BRIM_ARGUMENT_TEXT, .text = value }
#define INTEGER(name, value) \
    { .size = sizeof(brim_argument), .key = name, .kind = BRIM_ARGUMENT_INTEGER, .integer = value }
#define REAL(name, value) \
    { .size = sizeof(brim_argument), .key = name, .kind = BRIM_ARGUMENT_REAL, .real = value }
#define PIPELINE(name, value)                                                       \
    {                                                                               \
        .size = sizeof(brim_argument), .key = name, .kind = BRIM_ARGUMENT_PIPELINE, \
        .pipeline = value                                                           \
    }

static brim_pipeline *fresh(void) {
    brim_pipeline *pipeline = NULL;
    assert_int_equal(brim_pipeline_new(&pipeline), BRIM_OK);
    return pipeline;
}

static brim_pipeline *parse(const char *text) {
    brim_pipeline *pipeline = NULL;
    assert_int_equal(brim__pipeline_parse(test_table, text, &pipeline), BRIM_OK);
    return pipeline;
}

static void add(brim_pipeline *pipeline, const char *stage, const brim_argument *arguments,
                size_t count) {
    if (brim__pipeline_add(test_table, pipeline, stage, arguments, count) != BRIM_OK) {
        fail_msg("%s: %s", stage, brim_detail());
    }
}

/* Builds the one stage and checks that it equals the text. */
static void check_equals_text(const char *stage, const brim_argument *arguments, size_t count,
                              const char *text) {
    brim_pipeline *built = fresh();
    brim_pipeline *parsed = parse(text);
    add(built, stage, arguments, count);
    assert_true(same_pipeline(built, parsed));
    assert_string_equal(brim_pipeline_text(built), brim_pipeline_text(parsed));
    brim_pipeline_free(built);
    brim_pipeline_free(parsed);
}

static void test_building_equals_parsing(void **state) {
    (void)state;
    check_equals_text("plain", NULL, 0, "plain");
    const brim_argument files[] = { TEXT(NULL, "a b"), TEXT(NULL, "@c"), TEXT(NULL, "d,e"),
                                    TEXT("name", "x"), TEXT("map", "yes") };
    check_equals_text("files", files, 5, "files 'a b' '@c' 'd,e' map=yes");
    const brim_argument keyed[] = { TEXT("files", "a"), TEXT("name", "y"), TEXT("files", "b") };
    check_equals_text("files", keyed, 3, "files a b name=y");
    const brim_argument bound[] = { TEXT(NULL, "@x"), TEXT("others", "@y"), TEXT("others", "@z") };
    check_equals_text("bound", bound, 3, "bound @x others=@y,@z");
    const brim_argument rows[] = { INTEGER(NULL, 64), TEXT("remainder", "drop") };
    check_equals_text("batch", rows, 2, "batch 64 remainder=drop");
    const brim_argument seed[] = { INTEGER("seed", INT64_MIN + 1) };
    check_equals_text("shuffle", seed, 1, "shuffle seed=-9223372036854775807");
    const brim_argument size[] = { TEXT(NULL, "2MiB"), INTEGER("least", 1024) };
    check_equals_text("cache", size, 2, "cache 2MiB least=1KiB");
    const brim_argument reals[] = { TEXT(NULL, "test"), REAL(NULL, 1.0 / 3), INTEGER("test", 5) };
    check_equals_text("split", reals, 3, "split test 0.3333333333333333 5");
    const brim_argument means[] = { REAL("mean", 0.5), REAL("mean", 2.0), REAL("max", 1e300) };
    check_equals_text("normalize", means, 3, "normalize mean=0.5,2.0 max=1e300");
}

static void test_building_nested_pipelines(void **state) {
    (void)state;
    brim_pipeline *a = parse("files a | shuffle");
    brim_pipeline *b = parse("join (plain) (plain)");
    const brim_argument mix[] = { REAL(NULL, 0.25), PIPELINE(NULL, a), INTEGER(NULL, 3),
                                  PIPELINE(NULL, b), INTEGER("length", 7) };
    check_equals_text("mix", mix, 5,
                      "mix 0.25 (files a | shuffle) 3 (join (plain) (plain)) length=7");
    const brim_argument keyed[] = { REAL("parts", 0.25), PIPELINE("parts", a) };
    check_equals_text("mix", keyed, 2, "mix 0.25 (files a | shuffle)");

    /* The argument is copied: freeing and changing it does not matter. */
    brim_pipeline *outer = fresh();
    const brim_argument join[] = { PIPELINE(NULL, a), PIPELINE("else", b) };
    add(outer, "join", join, 2);
    add(a, "plain", NULL, 0);
    brim_pipeline_free(a);
    brim_pipeline_free(b);
    const char *text = "join (files a | shuffle) else=(join (plain) (plain))";
    assert_string_equal(brim_pipeline_text(outer), text);

    /* A pipeline may stand in a stage that is added to itself. */
    const brim_argument self[] = { PIPELINE(NULL, outer) };
    add(outer, "join", self, 1);
    char both[256];
    snprintf(both, sizeof both, "%s | join (%s)", text, text);
    assert_string_equal(brim_pipeline_text(outer), both);
    brim_pipeline *parsed = parse(both);
    assert_true(same_pipeline(outer, parsed));
    assert_int_equal(outer->use[1].begin, parsed->use[1].begin);
    assert_int_equal(outer->use[1].end, parsed->use[1].end);
    assert_int_equal(outer->use[1].number, 6);
    assert_int_equal(parsed->use[1].number, 6);
    brim_pipeline_free(parsed);
    brim_pipeline_free(outer);
}

static void test_elements_lie_size_bytes_apart(void **state) {
    (void)state;
    struct wider {
        brim_argument argument;
        uint64_t later[3];
    } arguments[2] = {
        { TEXT(NULL, "a"), { 0 } },
        { TEXT("name", "b"), { 0 } },
    };
    arguments[0].argument.size = sizeof arguments[0];
    brim_pipeline *pipeline = fresh();
    add(pipeline, "files", &arguments[0].argument, 2);
    assert_string_equal(brim_pipeline_text(pipeline), "files a name=b");
    arguments[1].later[2] = 1; /* what a newer header has, and this library does not know */
    assert_int_equal(brim__pipeline_add(test_table, pipeline, "files", &arguments[0].argument, 2),
                     BRIM_STATUS_UNSUPPORTED);
    arguments[0].argument.size = sizeof(size_t) - 1;
    assert_int_equal(brim__pipeline_add(test_table, pipeline, "files", &arguments[0].argument, 1),
                     BRIM_STATUS_INVALID);
    brim_pipeline_free(pipeline);
}

static void check_add_fails(brim_pipeline *pipeline, const char *stage,
                            const brim_argument *arguments, size_t count, brim_status expected,
                            const char *words) {
    char before[4096];
    snprintf(before, sizeof before, "%s", brim_pipeline_text(pipeline));
    const size_t uses = pipeline->use_count;
    const brim_status status = brim__pipeline_add(test_table, pipeline, stage, arguments, count);
    if (status != expected || strstr(brim_detail(), words) == NULL) {
        fail_msg("wanted %s '%s', got %s '%s'", brim_status_name(expected), words,
                 brim_status_name(status), brim_detail());
    }
    assert_int_equal(pipeline->use_count, uses);
    assert_string_equal(brim_pipeline_text(pipeline), before);
}

static void test_refused_stages_change_nothing(void **state) {
    (void)state;
    brim_pipeline *p = parse("files a | shuffle seed=7");
    brim_pipeline *empty = fresh();
    brim_pipeline *plain = parse("plain");
    brim_pipeline *deep = parse("join (join (join (join (join (join (join (join (plain))))))))");
#define FAILS(stage, status, words, ...)                                   \
    do {                                                                   \
        const brim_argument list[] = { __VA_ARGS__ };                      \
        check_add_fails(p, stage, list, BRIM__COUNT(list), status, words); \
    } while (0)
    FAILS("shufle", BRIM_STATUS_SYNTAX, "unknown stage 'shufle'; did you mean 'shuffle'?",
          INTEGER("seed", 1));
    FAILS("shuffle", BRIM_STATUS_SYNTAX, "shuffle: unknown argument 'sed'; did you mean 'seed'?",
          INTEGER("sed", 1));
    FAILS("shuffle", BRIM_STATUS_SYNTAX, "given twice", INTEGER("seed", 1), INTEGER("seed", 2));
    FAILS("files", BRIM_STATUS_SYNTAX, "given twice", TEXT(NULL, "a"), TEXT("files", "b"));
    FAILS("files", BRIM_STATUS_SYNTAX, "given twice", TEXT("files", "a"), TEXT(NULL, "b"));
    FAILS("batch", BRIM_STATUS_SYNTAX, "from 1 to 1048576, not '0'", INTEGER(NULL, 0));
    FAILS("batch", BRIM_STATUS_SYNTAX, "must be an integer", REAL(NULL, 64.0));
    FAILS("batch", BRIM_STATUS_SYNTAX, "too many values", INTEGER(NULL, 1), INTEGER(NULL, 2));
    FAILS("batch", BRIM_STATUS_SYNTAX, "rows is missing", TEXT("remainder", "drop"));
    FAILS("batch", BRIM_STATUS_SYNTAX, "did you mean 'drop'?", INTEGER(NULL, 1),
          TEXT("remainder", "dropp"));
    FAILS("batch", BRIM_STATUS_SYNTAX, "not a pipeline", PIPELINE(NULL, plain));
    FAILS("normalize", BRIM_STATUS_SYNTAX, "must be a number", REAL("max", NAN));
    FAILS("normalize", BRIM_STATUS_SYNTAX, "must be a number", REAL("max", INFINITY));
    FAILS("bound", BRIM_STATUS_SYNTAX, "such as @data", TEXT(NULL, "x"));
    FAILS("mix", BRIM_STATUS_SYNTAX, "a weight must come before", PIPELINE(NULL, plain));
    FAILS("mix", BRIM_STATUS_SYNTAX, "must follow the weight '1'", INTEGER(NULL, 1));
    FAILS("join", BRIM_STATUS_SYNTAX, "nested deeper than 8", PIPELINE(NULL, deep));
    FAILS("join", BRIM_STATUS_INVALID, "is empty", PIPELINE(NULL, empty));
    FAILS("join", BRIM_STATUS_INVALID, "is NULL", PIPELINE(NULL, NULL));
    FAILS("files", BRIM_STATUS_INVALID, "is NULL", TEXT(NULL, NULL));
    FAILS("files", BRIM_STATUS_INVALID, "unknown kind 9",
          { .size = sizeof(brim_argument), .kind = (brim_argument_kind)9 });
#undef FAILS
    check_add_fails(p, "batch", NULL, 0, BRIM_STATUS_SYNTAX, "rows is missing");
    check_add_fails(p, "batch", NULL, 1, BRIM_STATUS_INVALID, "must not be NULL");
    assert_null(strstr(brim_detail(), "at "));
    assert_int_equal(brim__pipeline_add(test_table, NULL, "plain", NULL, 0), BRIM_STATUS_INVALID);
    assert_int_equal(brim__pipeline_add(test_table, p, NULL, NULL, 0), BRIM_STATUS_INVALID);

    while (p->use_count < BRIM__PIPELINE_STAGES) {
        add(p, "plain", NULL, 0);
    }
    check_add_fails(p, "plain", NULL, 0, BRIM_STATUS_SYNTAX, "at most 64 stages");
    brim_pipeline_free(deep);
    brim_pipeline_free(plain);
    brim_pipeline_free(empty);
    brim_pipeline_free(p);
}

/* Doubling a pipeline by itself ends at the longest text, not in memory. */
static void test_text_bounds_what_is_built(void **state) {
    (void)state;
    brim_pipeline *p =
        parse("files aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    brim_argument parts[64];
    brim_status status = BRIM_OK;
    size_t rounds = 0;
    for (; status == BRIM_OK; rounds++) {
        brim_pipeline *next = fresh();
        for (size_t i = 0; i < BRIM__COUNT(parts); i++) {
            parts[i] = (brim_argument)PIPELINE(NULL, p);
        }
        status = brim__pipeline_add(test_table, next, "join", parts, BRIM__COUNT(parts));
        if (status == BRIM_OK) {
            brim_pipeline_free(p);
            p = next;
        } else {
            assert_string_equal(brim_pipeline_text(next), "");
            brim_pipeline_free(next);
        }
    }
    assert_int_equal(status, BRIM_STATUS_SYNTAX);
    assert_non_null(strstr(brim_detail(), "at most 1048576 are allowed"));
    assert_int_equal(rounds, 3);
    brim_pipeline_free(p);
}

static void test_copies_are_deep(void **state) {
    (void)state;
    brim_pipeline *p = parse("mix 1 (files a 'b c' name=n | shuffle) 2.5 (bound @x) | batch 64");
    brim_pipeline *copy = NULL;
    assert_int_equal(brim_pipeline_copy(p, &copy), BRIM_OK);
    assert_true(same_pipeline(p, copy));
    assert_ptr_not_equal(p->text, copy->text);
    for (size_t i = 0; i < p->use_count; i++) {
        assert_int_equal(p->use[i].begin, copy->use[i].begin);
        assert_int_equal(p->use[i].end, copy->use[i].end);
        assert_int_equal(p->use[i].number, copy->use[i].number);
    }
    char text[256];
    snprintf(text, sizeof text, "%s", brim_pipeline_text(p));
    add(p, "plain", NULL, 0);
    brim_pipeline_free(p);
    assert_string_equal(brim_pipeline_text(copy), text);
    brim_pipeline *parsed = parse(text);
    assert_true(same_pipeline(copy, parsed));
    brim_pipeline_free(parsed);
    add(copy, "plain", NULL, 0);
    assert_int_equal(copy->use_count, 3);
    brim_pipeline_free(copy);

    p = fresh();
    assert_string_equal(brim_pipeline_text(p), "");
    assert_int_equal(brim_pipeline_copy(p, &copy), BRIM_OK);
    assert_int_equal(copy->use_count, 0);
    brim_pipeline_free(copy);
    brim_pipeline_free(p);

    assert_int_equal(brim_pipeline_copy(NULL, &copy), BRIM_STATUS_INVALID);
    assert_int_equal(brim_pipeline_new(NULL), BRIM_STATUS_INVALID);
    assert_null(brim_pipeline_text(NULL));
    brim_pipeline_free(NULL);
}

static void test_counting_and_cutting(void **state) {
    (void)state;
    brim_pipeline *p = parse("mix 1 (files a | plain) 2 (bound @x) | shuffle | plain | batch 64");
    assert_int_equal(brim_pipeline_length(p), 4);
    assert_int_equal(brim_pipeline_stage_count(p), 7);
    assert_int_equal(brim_pipeline_cut(p, 5), BRIM_STATUS_INVALID);
    for (size_t count = 5; count-- > 0;) {
        char text[256] = "";
        for (size_t i = 0; i < count; i++) {
            char use[128];
            brim__use_text(&p->use[i], false, false, use, sizeof use);
            strcat(strcat(text, i > 0 ? " | " : ""), use);
        }
        assert_int_equal(brim_pipeline_cut(p, count), BRIM_OK);
        assert_int_equal(brim_pipeline_length(p), count);
        assert_int_equal(brim_pipeline_stage_count(p), count == 0 ? 0 : count + 3);
        assert_string_equal(brim_pipeline_text(p), text);
        if (count > 0) {
            brim_pipeline *parsed = parse(text);
            assert_true(same_pipeline(p, parsed));
            brim_pipeline_free(parsed);
        }
    }
    /* cut and built up again and again, it takes no more memory */
    const brim_argument batch[] = { INTEGER(NULL, 64) };
    uint64_t bytes = 0;
    for (int i = 0; i < 1000; i++) {
        add(p, "plain", NULL, 0);
        add(p, "batch", batch, 1);
        assert_string_equal(brim_pipeline_text(p), "plain | batch 64");
        bytes = i == 0 ? p->arena.bytes : bytes;
        assert_true(p->arena.bytes <= bytes);
        assert_int_equal(brim_pipeline_cut(p, 0), BRIM_OK);
    }
    brim_pipeline_free(p);
    assert_int_equal(brim_pipeline_length(NULL), 0);
    assert_int_equal(brim_pipeline_stage_count(NULL), 0);
    assert_int_equal(brim_pipeline_cut(NULL, 0), BRIM_STATUS_INVALID);
}

/* ------------------------------------------------------------------ faults */

static void test_a_refused_cut_changes_nothing(void **state) {
    (void)state;
    const char *text = "files z | shuffle | batch 1";
    uint64_t nth = 0;
    brim_status status;
    do {
        brim_pipeline *p = parse(text);
        brim__fault_arm(1u << BRIM__FAULT_ALLOC | 1u << BRIM__FAULT_MAP, ++nth, false);
        status = brim_pipeline_cut(p, 2);
        brim__fault_arm(0, 0, false);
        assert_string_equal(brim_pipeline_text(p), status == BRIM_OK ? "files z | shuffle" : text);
        assert_int_equal(brim_pipeline_length(p), status == BRIM_OK ? 2 : 3);
        assert_true(status == BRIM_OK || status == BRIM_STATUS_MEMORY);
        brim_pipeline_free(p);
    } while (status != BRIM_OK);
    assert_true(nth > 3);
}

static brim_status parse_and_build(brim_pipeline *base) {
    brim_pipeline *parsed = NULL, *copy = NULL;
    brim_status status = brim__pipeline_parse(
        test_table, "mix 1 (files a b c) 2 (join (plain) (cache)) | plain | plain | plain | plain",
        &parsed);
    if (status == BRIM_OK) {
        status = brim_pipeline_copy(parsed, &copy);
    }
    if (status == BRIM_OK) {
        const brim_argument parts[] = { REAL(NULL, 0.5), PIPELINE(NULL, copy) };
        status = brim__pipeline_add(test_table, base, "mix", parts, 2);
    }
    brim_pipeline_free(copy);
    brim_pipeline_free(parsed);
    return status;
}

static void test_every_refused_allocation(void **state) {
    (void)state;
    const unsigned kinds = 1u << BRIM__FAULT_ALLOC | 1u << BRIM__FAULT_MAP;
    size_t refused = 0;
    for (uint64_t nth = 1;; nth++) {
        brim_pipeline *base = parse("files z | shuffle | batch 1 | plain");
        brim__fault_arm(kinds, nth, false);
        const brim_status status = parse_and_build(base);
        const bool injected = brim__fault_injected() > 0;
        brim__fault_arm(0, 0, false);
        if (!injected) {
            assert_int_equal(status, BRIM_OK);
            assert_int_equal(base->use_count, 5);
            brim_pipeline_free(base);
            break;
        }
        refused++;
        assert_int_equal(status, BRIM_STATUS_MEMORY);
        assert_int_equal(base->use_count, 4);
        assert_string_equal(brim_pipeline_text(base), "files z | shuffle | batch 1 | plain");
        /* It can be tried again. */
        assert_int_equal(parse_and_build(base), BRIM_OK);
        brim_pipeline *parsed = parse(brim_pipeline_text(base));
        assert_true(same_pipeline(base, parsed));
        brim_pipeline_free(parsed);
        brim_pipeline_free(base);
    }
    assert_true(refused >= 6);
}

/* ---------------------------------------------------------- the real table */

static void test_real_stages_are_found(void **state) {
    (void)state;
    brim_pipeline *built = fresh();
    brim_pipeline *parsed = NULL;
    const brim_argument range[] = { INTEGER(NULL, 1000) };
    const brim_argument shuffle[] = { INTEGER("seed", 7) };
    const brim_argument batch[] = { INTEGER(NULL, 64), TEXT("remainder", "drop") };
    assert_int_equal(brim_pipeline_add(built, "range", range, 1), BRIM_OK);
    assert_int_equal(brim_pipeline_add(built, "shuffle", shuffle, 1), BRIM_OK);
    assert_int_equal(brim_pipeline_add(built, "batch", batch, 2), BRIM_OK);
    assert_int_equal(brim_pipeline_add(built, "no_such_stage", NULL, 0), BRIM_STATUS_SYNTAX);
    const char *text = "range 1000 | shuffle seed=7 | batch 64 remainder=drop";
    assert_int_equal(brim_pipeline_parse(text, &parsed), BRIM_OK);
    assert_true(same_pipeline(built, parsed));
    assert_string_equal(brim_pipeline_text(built), text);
    brim_pipeline_free(parsed);
    brim_pipeline_free(built);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_building_equals_parsing),
        cmocka_unit_test(test_building_nested_pipelines),
        cmocka_unit_test(test_elements_lie_size_bytes_apart),
        cmocka_unit_test(test_refused_stages_change_nothing),
        cmocka_unit_test(test_text_bounds_what_is_built),
        cmocka_unit_test(test_copies_are_deep),
        cmocka_unit_test(test_counting_and_cutting),
        cmocka_unit_test(test_a_refused_cut_changes_nothing),
        cmocka_unit_test(test_every_refused_allocation),
        cmocka_unit_test(test_real_stages_are_found),
    };
    return cmocka_run_group_tests_name("pipeline", tests, NULL, NULL);
}
