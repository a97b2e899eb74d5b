/*
 * test_parse.c: the text of a pipeline: what is read, what is refused and how
 * the refusal reads, and that printing and parsing are each other's inverse.
 */
#include "pipeline_rows.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static brim_pipeline *parse(const char *text) {
    brim_pipeline *pipeline = NULL;
    const brim_status status = brim__pipeline_parse(test_table, text, &pipeline);
    if (status != BRIM_OK) {
        print_error("%s\n%s\n", text, brim_detail());
    }
    assert_int_equal(status, BRIM_OK);
    return pipeline;
}

static const struct brim__values *values_of(const brim_pipeline *pipeline, size_t use,
                                            const char *argument) {
    const brim_stage_info *stage = &pipeline->use[use].stage->info;
    for (size_t i = 0; i < stage->argument_count; i++) {
        if (strcmp(brim_stage_argument_at(stage, i)->name, argument) == 0) {
            return &pipeline->use[use].values[i];
        }
    }
    fail_msg("no argument %s", argument);
    return NULL;
}

static const struct brim__item *value_of(const brim_pipeline *pipeline, size_t use,
                                         const char *argument) {
    const struct brim__values *values = values_of(pipeline, use, argument);
    assert_true(values->count > 0);
    return &values->items[0];
}

/* The short text and the full one both mean the same pipeline again. */
static void check_round_trip(const brim_pipeline *pipeline) {
    brim_pipeline *again = parse(brim_pipeline_text(pipeline));
    assert_true(same_pipeline(pipeline, again));
    assert_string_equal(brim_pipeline_text(pipeline), brim_pipeline_text(again));
    brim_pipeline_free(again);

    const size_t length = brim__pipeline_write(pipeline, true, false, NULL, 0);
    char *full = malloc(length + 1);
    assert_int_equal(brim__pipeline_write(pipeline, true, false, full, length + 1), length);
    assert_int_equal(strlen(full), length);
    again = parse(full);
    assert_true(same_pipeline(pipeline, again));
    assert_string_equal(brim_pipeline_text(pipeline), brim_pipeline_text(again));
    brim_pipeline_free(again);
    free(full);
}

static void check_prints(const char *text, const char *canonical) {
    brim_pipeline *pipeline = parse(text);
    assert_string_equal(brim_pipeline_text(pipeline), canonical);
    check_round_trip(pipeline);
    brim_pipeline_free(pipeline);
}

/* ------------------------------------------------------------------ values */

static void test_reads_values_of_every_type(void **state) {
    (void)state;
    brim_pipeline *p = parse("files a.npy 'b c.npy' map=yes | shuffle seed=-1_000 each_epoch=false "
                             "| split validation 2_5 test=1e-2 | cache 3MiB | batch 64");
    assert_int_equal(p->use_count, 5);
    assert_int_equal(values_of(p, 0, "files")->count, 2);
    assert_string_equal(values_of(p, 0, "files")->items[0].text, "a.npy");
    assert_string_equal(values_of(p, 0, "files")->items[1].text, "b c.npy");
    assert_int_equal(value_of(p, 0, "map")->integer, 1);
    assert_string_equal(value_of(p, 0, "name")->text, "x");
    assert_int_equal(values_of(p, 0, "index")->count, 0);
    assert_int_equal(value_of(p, 1, "seed")->integer, -1000);
    assert_int_equal(value_of(p, 1, "each_epoch")->integer, 0);
    assert_int_equal(value_of(p, 2, "part")->integer, 1);
    assert_true(value_of(p, 2, "validation")->real == 25.0);
    assert_true(value_of(p, 2, "validation")->integral);
    assert_int_equal(value_of(p, 2, "validation")->integer, 25);
    assert_true(value_of(p, 2, "test")->real == 0.01);
    assert_false(value_of(p, 2, "test")->integral);
    assert_int_equal(value_of(p, 3, "bytes")->integer, 3 << 20);
    assert_int_equal(value_of(p, 4, "rows")->integer, 64);
    assert_int_equal(value_of(p, 4, "remainder")->integer, 0);
    brim_pipeline_free(p);
}

static void test_reads_nested_pipelines_and_bindings(void **state) {
    (void)state;
    brim_pipeline *p =
        parse("mix 0.7 (files a | shuffle) 3 (bound @my.data-1 others=@b,@c) length=9");
    const struct brim__values *parts = values_of(p, 0, "parts");
    assert_int_equal(parts->count, 2);
    assert_true(parts->items[0].real == 0.7);
    assert_int_equal(parts->items[0].pipeline->use_count, 2);
    assert_true(parts->items[1].real == 3.0 && parts->items[1].integral);
    const brim_pipeline *second = parts->items[1].pipeline;
    assert_string_equal(value_of(second, 0, "array")->text, "my.data-1");
    assert_int_equal(values_of(second, 0, "others")->count, 2);
    assert_string_equal(values_of(second, 0, "others")->items[1].text, "c");
    assert_memory_equal(p->text + second->use[0].begin, "bound @my.data-1 others=@b,@c)", 30);
    assert_int_equal(value_of(p, 0, "length")->integer, 9);
    brim_pipeline_free(p);
}

static void test_sizes_take_units(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } sizes[] = {
        { "1024", 1024 },
        { "1024B", 1024 },
        { "1KiB", 1024 },
        { "2MiB", 2 << 20 },
        { "3GiB", 3ll << 30 },
        { "4TiB", 4ll << 40 },
        { "5kB", 5000 },
        { "6MB", 6000000 },
        { "7GB", 7000000000 },
        { "8TB", 8000000000000 },
        { "1_000_000", 1000000 },
        { "9223372036854775807", INT64_MAX },
        { "8388607TiB", 8388607ll << 40 },
    };
    for (size_t i = 0; i < BRIM__COUNT(sizes); i++) {
        char text[64];
        snprintf(text, sizeof text, "cache %s", sizes[i].text);
        brim_pipeline *p = parse(text);
        assert_int_equal(value_of(p, 0, "bytes")->integer, sizes[i].bytes);
        check_round_trip(p);
        brim_pipeline_free(p);
    }
    check_prints("cache 1048576KiB", "cache 1GiB");
    check_prints("cache 1TiB", "cache 1024GiB");
    check_prints("cache 1025", "cache 1025");
    check_prints("cache 1536KiB least=0B", "cache 1536KiB");
}

static void test_printing_is_canonical(void **state) {
    (void)state;
    check_prints("  files\ta.npy   name=x map=no\n| shuffle seed=0 # the default\n|batch rows=64 #",
                 "files a.npy | shuffle | batch 64");
    check_prints("files map=true files=a,b name=label", "files a b name=label map=yes");
    check_prints("files a,b \"c,d\" index=e,f", "files a b \"c,d\" index=e,f");
}

static void test_quoting(void **state) {
    (void)state;
    check_prints("files \"a b\" 'c' \"d\\\"e\" 'f\\'g' \"h\\\\i\" \"C:\\new\" C:\\data\\x",
                 "files \"a b\" c \"d\\\"e\" \"f'g\" h\\i C:\\new C:\\data\\x");
    check_prints("files \"\" '@x' 'a=b' '#c' d#e 'f|g' '(h)' \"i\nj\" \"k\x01\"",
                 "files \"\" \"@x\" \"a=b\" \"#c\" d#e \"f|g\" \"(h)\" \"i\nj\" \"k\x01\"");
    check_prints("files a name='b,c' index=\"\xff\xfe\"", "files a name=b,c index=\xff\xfe");
    check_prints("files gr\xc3\xbc\xc3\x9f"
                 "e.npy",
                 "files gr\xc3\xbc\xc3\x9f"
                 "e.npy");
    check_prints("files 'ends with \\\\'", "files \"ends with \\\\\"");
    check_prints("batch '64'", "batch 64");
    check_prints("batch 1 | batch 1048576", "batch 1 | batch 1048576");
}

static void test_positional_values_get_keys_where_one_is_left_out(void **state) {
    (void)state;
    check_prints("split train 0.2 0.3", "split train 0.2 0.3");
    check_prints("split train 0.1 0.3", "split train test=0.3");
    check_prints("split train test=0.3", "split train test=0.3");
    check_prints("split train 0.2 0", "split train 0.2");
    check_prints("pair 2 (plain) word", "pair 2 (plain) word");
    check_prints("pair note=word", "pair note=word");
    check_prints("pair first=2,(plain)", "pair 2 (plain)");
    check_prints("mix parts=1,(plain),2,(plain | plain) length=3",
                 "mix 1 (plain) 2 (plain | plain) length=3");
    check_prints("join (plain)(plain) else=(join (plain))",
                 "join (plain) (plain) else=(join (plain))");
    /* A list takes all that follow, up to a key=value. */
    check_prints("files a name=b c", "files a name=b index=c");
    check_prints("files a index=c", "files a index=c");
}

static void test_reals_print_shortest(void **state) {
    (void)state;
    check_prints("normalize max=0.1", "normalize max=0.1");
    check_prints("normalize max=1", "normalize max=1");
    check_prints("normalize max=1.0", "normalize max=1.0");
    check_prints("normalize max=1e3", "normalize max=1000.0");
    check_prints("normalize max=1E+300", "normalize max=1e+300");
    check_prints("normalize max=-.5", "normalize max=-0.5");
    check_prints("normalize max=-0.0", "normalize max=0.0");
    check_prints("normalize max=0.30000000000000004", "normalize max=0.30000000000000004");
    check_prints("normalize max=5e-324", "normalize max=4.94065645841247e-324");
    check_prints("normalize max=1.7976931348623157e308", "normalize max=1.7976931348623157e+308");
    check_prints("normalize max=9007199254740993", "normalize max=9007199254740993");
    check_prints("normalize max=99999999999999999999", "normalize max=1e+20");
    check_prints("normalize mean=0.5,0.5", "normalize");
    /* 0 and 0.0 may mean different things to a stage: a count, a fraction. */
    check_prints("split train test=0", "split train");
    check_prints("split train test=0.0", "split train test=0.0");
    check_prints("normalize mean=0.5", "normalize mean=0.5");
    check_prints("normalize mean=0.5,0.5,0.5 on=a,b", "normalize mean=0.5,0.5,0.5 on=a,b");
}

static void test_full_text_spells_defaults_out(void **state) {
    (void)state;
    brim_pipeline *p = parse("join (files a b index=i) else=(cache)");
    char text[256];
    brim__use_text(&p->use[0], true, false, text, sizeof text);
    assert_string_equal(text, "join (files a b name=x map=no index=i) "
                              "else=(cache 64MiB least=0)");
    brim__use_text(&p->use[0], true, true, text, sizeof text);
    assert_string_equal(text, "join (files name=x map=no) else=(cache 64MiB least=0)");
    brim__use_text(&p->use[0], false, true, text, sizeof text);
    assert_string_equal(text, "join (files) else=(cache)");
    brim_pipeline_free(p);

    p = parse("normalize | split test");
    brim__use_text(&p->use[0], true, false, text, sizeof text);
    assert_string_equal(text, "normalize mean=0.5,0.5");
    brim__use_text(&p->use[1], true, false, text, sizeof text);
    assert_string_equal(text, "split test 0.1 0");
    /* Like snprintf: cut, and the whole length returned. */
    assert_int_equal(brim__use_text(&p->use[1], true, false, text, 6), 16);
    assert_string_equal(text, "split");
    assert_int_equal(brim__use_text(&p->use[1], true, false, NULL, 0), 16);
    brim_pipeline_free(p);
}

static void test_locale_does_not_matter(void **state) {
    (void)state;
    static const char *const locales[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "nl_NL.UTF-8" };
    for (size_t i = 0; i < BRIM__COUNT(locales); i++) {
        if (setlocale(LC_ALL, locales[i]) != NULL) {
            check_prints("normalize max=0.25", "normalize max=0.25");
            setlocale(LC_ALL, "C");
            return;
        }
    }
    skip(); /* no locale with a decimal comma is installed */
}

/* ------------------------------------------------------------------ errors */

struct refusal {
    const char *text;
    size_t at; /* character in the message and column of the caret */
    const char *words;
};

static void check_refused(const struct refusal *refusal) {
    brim_pipeline *pipeline = NULL;
    const brim_status status = brim__pipeline_parse(test_table, refusal->text, &pipeline);
    const char *detail = brim_detail();
    char place[32];
    snprintf(place, sizeof place, "at %zu: ", refusal->at);
    if (status != BRIM_STATUS_SYNTAX || strncmp(detail, place, strlen(place)) != 0 ||
        strstr(detail, refusal->words) == NULL) {
        fail_msg("text: %s\nwanted: %s... %s\ngot: %s", refusal->text, place, refusal->words,
                 detail);
    }
    assert_null(pipeline);
    const char *caret = strrchr(detail, '\n') + 1;
    if (strchr(refusal->text, '\n') == NULL && strlen(refusal->text) <= 64) {
        assert_int_equal(strlen(caret), 2 + refusal->at);
    }
    assert_int_equal(caret[strlen(caret) - 1], '^');
    assert_true(strlen(caret) < 76);
}

static void test_errors_show_the_place(void **state) {
    (void)state;
    static const struct refusal refusals[] = {
        { "files a.npy | shufle", 15, "unknown stage 'shufle'; did you mean 'shuffle'?" },
        { "zzzzzz", 1, "unknown stage 'zzzzzz'\n" },
        { "\xc3\xa4\xc3\xb6 x", 1, "unknown stage '\xc3\xa4\xc3\xb6'" },
        { "files \xc3\xa4 | x\xff", 11, "unknown stage 'x?'" },
        { "shuffle sed=7", 9,
          "shuffle: unknown argument 'sed'; did you mean 'seed'? its arguments are seed, "
          "each_epoch" },
        { "files data/a=b.npy", 7, "in quotes" },
        { "files name=a=b", 13, "put a value that contains '=' in quotes" },
        { "plain x=1", 7, "its arguments are none" },
        { "shuffle | batch", 11,
          "batch: rows is missing: an integer from 1 to 1048576; for example: batch" },
        { "batch 64 32", 10, "batch: too many values: only rows may be given without a key" },
        { "shuffle 7", 9, "too many values: none may be given without a key" },
        { "plain 7", 7, "it takes none" },
        { "shuffle seed=1 seed=2", 16, "seed is given twice" },
        { "batch rows=1 2", 14, "rows is given twice" },
        { "batch 1 rows=2", 9, "rows is given twice" },
        { "normalize on=a on=b", 16, "on is given twice" },
        { "files a name=b c d", 18, "too many values" },
        { "batch many", 7, "rows must be an integer from 1 to 1048576, not 'many'" },
        { "batch 6.5", 7, "must be an integer" },
        { "batch 64k", 7, "must be an integer" },
        { "batch 1__0", 7, "must be an integer" },
        { "batch 10_", 7, "must be an integer" },
        { "batch 0x10", 7, "must be an integer" },
        { "batch ''", 7, "must be an integer" },
        { "batch 0", 7, "from 1 to 1048576, not '0'" },
        { "batch 1_048_577", 7, "from 1 to 1048576" },
        { "shuffle seed=9223372036854775808", 14, "too large" },
        { "batch (plain)", 7, "not a pipeline" },
        { "split train nan", 13, "validation must be a number from 0 to 1000000" },
        { "split train inf", 13, "must be a number" },
        { "split train 1e", 13, "must be a number" },
        { "split train .", 13, "must be a number" },
        { "split train 0,1", 13, "must be a number" },
        { "normalize max=1e999", 15, "too large" },
        { "split train -1", 13, "from 0 to 1000000, not '-1'" },
        { "split tran", 7,
          "part must be one of train, validation, test, not 'tran'; did you mean 'train'?" },
        { "split zzzzzzzzz", 7, "one of train, validation, test, not 'zzzzzzzzz'\n" },
        { "batch 1 remainder=keep|", 23, "there is no stage after '|'" },
        { "shuffle each_epoch=maybe", 20, "each_epoch must be yes or no, not 'maybe'" },
        { "cache 64XB", 7, "bytes must be a size of at least 1KiB" },
        { "cache 1.5GiB", 7, "a whole number" },
        { "cache -1", 7, "must be a size" },
        { "cache 8388608TiB", 7, "too large" },
        { "cache 99999999999999999999", 7, "too large" },
        { "cache 1023", 7, "at least 1KiB" },
        { "cache least=2MiB", 13, "from 0 to 1MiB" },
        { "bound x", 7, "such as @data, not 'x'" },
        { "bound '@x'", 7, "such as @data" },
        { "bound @", 7, "a name must follow the '@'" },
        { "bound @a/b", 7, "a name has letters" },
        { "files @x", 7, "put text that begins with '@' in quotes" },
        { "@x", 1, "the name of a stage is expected" },
        { "'files' x", 1, "the name of a stage is expected" },
        { "(plain)", 1, "the name of a stage is expected" },
        { "seed=7 | plain", 1, "the name of a stage is expected" },
        { "join x", 6, "parts must be a pipeline in parentheses, not 'x'" },
        { "join ()", 6, "the parentheses are empty" },
        { "join (plain", 6, "the parenthesis ( is never closed" },
        { "join (", 6, "the parenthesis ( is never closed" },
        { "join (plain))", 13, "this ) has no ( before it" },
        { ") plain", 1, "this ) has no ( before it" },
        { "join (plain |)", 13, "there is no stage after '|'" },
        { "join (batch)", 7, "rows is missing" },
        { "files a(1).npy", 8, "in quotes" },
        { "mix (plain)", 5, "a weight must come before the pipeline" },
        { "mix 1 2", 7, "a pipeline in parentheses must follow the weight '1'" },
        { "mix 1 (plain) 2", 15, "must follow the weight '2'" },
        { "mix 1 length=2", 5, "must follow the weight '1'" },
        { "mix 0 (plain)", 5, "not '0'" },
        { "mix x (plain)", 5, "a weight from 0.001 to 1000000000" },
        { "pair 1 (plain) a b", 18, "too many values" },
        { "files 'a", 7, "the quote ' is never closed" },
        { "files \"a\\\"", 7, "the quote \" is never closed" },
        { "files 'a'b", 10, "white space is missing after the closing quote" },
        { "batch '6',7", 10, "rows takes one value" },
        { "plain | | plain", 7, "there is no stage after '|'" },
        { "| plain", 1, "there is no stage before '|'" },
        { "plain |", 7, "there is no stage after '|'" },
        { "", 1, "the text is empty" },
        { "  \n # only a comment", 1, "the text is empty" },
        { "shuffle seed= 7", 13, "a value must follow '='" },
        { "shuffle seed =7", 14, "white space is not allowed before '='" },
        { "shuffle seed = 7", 14, "white space is not allowed before '='" },
        { "shuffle =7", 9, "there is no key before '='" },
        { "shuffle seed=", 13, "a value must follow '='" },
        { "shuffle seed=#7", 13, "a value must follow '='" },
        { "normalize on=a, b", 15, "a value must follow ','" },
        { "normalize on=,a", 13, "a value must follow '='" },
        { "files ,a", 7, "there is no value before ','" },
        { "files a\x01"
          "b",
          8, "control character 0x01" },
        { "files \x7f", 7, "control character 0x7f" },
        { "\x02", 1, "control character 0x02" },
        { "plain\x02", 6, "control character 0x02" },
        { "files a |\n  batch 0", 19, "from 1 to 1048576" },
        { "join (join (join (join (join (join (join (join (join (plain)))))))))", 54,
          "nested deeper than 8 levels" },
    };
    for (size_t i = 0; i < BRIM__COUNT(refusals); i++) {
        check_refused(&refusals[i]);
    }
}

static void test_whole_message(void **state) {
    (void)state;
    brim_pipeline *pipeline;
    assert_int_equal(brim__pipeline_parse(test_table, "files a.npy | shufle seed=7", &pipeline),
                     BRIM_STATUS_SYNTAX);
    assert_string_equal(brim_detail(), "at 15: unknown stage 'shufle'; did you mean 'shuffle'?\n"
                                       "  files a.npy | shufle seed=7\n"
                                       "                ^");
    /* Only the line with the place is shown; a tab is as wide as it is shown. */
    assert_int_equal(brim__pipeline_parse(test_table, "files a |\n\tbatch 0\n# end", &pipeline),
                     BRIM_STATUS_SYNTAX);
    assert_non_null(strstr(brim_detail(), "\n   batch 0\n         ^"));
}

static void test_long_texts_are_cut_around_the_place(void **state) {
    (void)state;
    char text[1600] = "files ";
    for (size_t i = 0, used = 6; i < 500; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, i == 250 ? "@ " : "\xc3\xa9 ");
    }
    brim_pipeline *pipeline;
    assert_int_equal(brim__pipeline_parse(test_table, text, &pipeline), BRIM_STATUS_SYNTAX);
    const char *detail = brim_detail();
    assert_int_equal(strncmp(detail, "at 507: files: files must be a path, not '@'", 44), 0);
    const char *piece = strchr(detail, '\n') + 1;
    const char *caret = strchr(piece, '\n') + 1;
    assert_int_equal(strncmp(piece, "  ...", 5), 0);
    assert_int_equal(strncmp(caret - 4, "...", 3), 0);
    /* The caret's column, in characters, is that of the '@'. */
    const char *at_sign = strchr(piece, '@');
    assert_int_equal(brim__characters(piece, (size_t)(at_sign - piece)), strcspn(caret, "^"));
    assert_true(brim__characters(piece, (size_t)(caret - piece)) < 76);

    /* A long word is cut in the message, which stays whole. */
    char word[5000];
    memset(word, 'w', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    assert_int_equal(brim__pipeline_parse(test_table, word, &pipeline), BRIM_STATUS_SYNTAX);
    assert_non_null(strstr(brim_detail(), "wwww...'\n"));
    assert_int_equal(brim_detail()[strlen(brim_detail()) - 1], '^');
}

static void test_limits(void **state) {
    (void)state;
    brim_pipeline *pipeline = NULL;
    const size_t most = BRIM__PIPELINE_BYTES;
    char *text = malloc(most + 2);
    memset(text, 'a', most + 1);
    memcpy(text, "files ", 6);
    text[most] = '\0';
    pipeline = parse(text);
    assert_string_equal(brim_pipeline_text(pipeline), text);
    brim_pipeline_free(pipeline);
    pipeline = NULL;
    text[most] = 'a';
    text[most + 1] = '\0';
    assert_int_equal(brim__pipeline_parse(test_table, text, &pipeline), BRIM_STATUS_SYNTAX);
    assert_non_null(strstr(brim_detail(), "longer than 1048576 bytes"));

    /* The canonical text may be the longer one. */
    size_t used = (size_t)sprintf(text, "normalize mean=1e9");
    while (used + 4 <= most) {
        memcpy(text + used, ",1e9", 5);
        used += 4;
    }
    assert_int_equal(brim__pipeline_parse(test_table, text, &pipeline), BRIM_STATUS_SYNTAX);
    assert_non_null(strstr(brim_detail(), "at most 1048576 are allowed"));

    /* Many small pipelines in one text. */
    used = (size_t)sprintf(text, "join");
    while (used + 8 <= most) {
        memcpy(text + used, " (cache)", 9);
        used += 8;
    }
    pipeline = parse(text);
    assert_int_equal(values_of(pipeline, 0, "parts")->count, (most - 4) / 8);
    assert_string_equal(brim_pipeline_text(pipeline), text);
    brim_pipeline_free(pipeline);
    pipeline = NULL;

    used = 0;
    for (size_t i = 0; i < BRIM__PIPELINE_STAGES; i++) {
        used += (size_t)snprintf(text + used, most - used, i == 0 ? "plain" : " | plain");
    }
    pipeline = parse(text);
    assert_int_equal(pipeline->use_count, BRIM__PIPELINE_STAGES);
    brim_pipeline_free(pipeline);
    pipeline = NULL;
    snprintf(text + used, most - used, " | plain");
    assert_int_equal(brim__pipeline_parse(test_table, text, &pipeline), BRIM_STATUS_SYNTAX);
    assert_int_equal(strncmp(brim_detail(), "at 513: a pipeline has at most 64 stages", 40), 0);
    free(text);

    pipeline = parse("join (join (join (join (join (join (join (join (plain))))))))");
    check_round_trip(pipeline);
    brim_pipeline_free(pipeline);
    assert_int_equal(brim__pipeline_parse(test_table, NULL, &pipeline), BRIM_STATUS_INVALID);
    assert_int_equal(brim__pipeline_parse(test_table, "plain", NULL), BRIM_STATUS_INVALID);
}

/* -------------------------------------------------------------------- fuzz */

static uint64_t draw(uint64_t *random) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random >> 11;
}

static void test_random_texts_never_crash_and_round_trip(void **state) {
    (void)state;
    static const char *const pieces[] = {
        "files",     "bound",   "join",    "shuffle",   "split", "mix",      "pair",    "cache",
        "normalize", "batch",   "plain",   "plain",     "a",     "train",    "keep",    "yes",
        "64",        "0.5",     "1e9",     "-3",        "4MiB",  "@b",       "seed=",   "rows=",
        "on=",       "mean=",   "name=",   "parts=",    "else=", "max=",     "\"q r\"", "'\\\\'",
        "'\\''",     "\"",      "'",       "\\",        "(",     ")",        "|",       "|",
        "=",         ",",       "#",       "\n",        "\t",    "\xc3\xa9", "\xff",    "\x01",
        "files a",   "batch 1", "(plain)", "1 (plain)",
    };
    uint64_t random = 0x9e3779b97f4a7c15;
    size_t accepted = 0;
    for (size_t round = 0; round < 100000; round++) {
        char text[256] = "";
        size_t used = 0;
        for (uint64_t count = 1 + draw(&random) % 9; count > 0; count--) {
            const char *piece = pieces[draw(&random) % BRIM__COUNT(pieces)];
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", piece,
                                     draw(&random) % 4 == 0 ? "" : " ");
        }
        brim_pipeline *pipeline = NULL;
        const brim_status status = brim__pipeline_parse(test_table, text, &pipeline);
        if (status == BRIM_OK) {
            accepted++;
            check_round_trip(pipeline);
            brim_pipeline_free(pipeline);
        } else {
            assert_int_equal(status, BRIM_STATUS_SYNTAX);
            assert_int_equal(strncmp(brim_detail(), "at ", 3), 0);
            assert_null(pipeline);
        }
    }
    assert_true(accepted > 2000);
}

/* ---------------------------------------------------------- the real table */

static void test_rows_of_the_table_are_sound(void **state) {
    (void)state;
    assert_true(brim_stage_count() > 0);
    assert_null(brim_stage_at(brim_stage_count()));
    assert_null(brim_stage_find("no such stage"));
    assert_null(brim_stage_find(NULL));
    for (size_t i = 0; i < brim_stage_count(); i++) {
        const brim_stage_info *stage = brim_stage_at(i);
        assert_ptr_equal(brim_stage_find(stage->name), stage);
        assert_ptr_equal(&brim__stage_by_name(stage->name, strlen(stage->name))->info, stage);
        assert_non_null(stage->summary);
        assert_true(stage->version > 0);
        if (i > 0) {
            assert_true(stage->room >= brim_stage_at(i - 1)->room);
        }
        for (size_t k = 0; k < stage->argument_count; k++) {
            const brim_argument_info *info = brim_stage_argument_at(stage, k);
            assert_non_null(info->name);
            assert_non_null(info->help);
            assert_true(info->least <= info->most);
            assert_int_equal(info->type == BRIM_TYPE_CHOICE, info->choices != NULL);
            assert_false((info->flags & BRIM_ARGUMENT_FLAG_REQUIRED) != 0 &&
                         info->fallback != NULL);
        }
        brim_pipeline *pipeline = NULL;
        if (brim_pipeline_parse(stage->example, &pipeline) != BRIM_OK) {
            fail_msg("%s: %s", stage->example, brim_detail());
        }
        brim_pipeline *again = NULL;
        assert_int_equal(brim_pipeline_parse(brim_pipeline_text(pipeline), &again), BRIM_OK);
        assert_true(same_pipeline(pipeline, again));
        brim_pipeline_free(again);
        brim_pipeline_free(pipeline);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_values_of_every_type),
        cmocka_unit_test(test_reads_nested_pipelines_and_bindings),
        cmocka_unit_test(test_sizes_take_units),
        cmocka_unit_test(test_printing_is_canonical),
        cmocka_unit_test(test_quoting),
        cmocka_unit_test(test_positional_values_get_keys_where_one_is_left_out),
        cmocka_unit_test(test_reals_print_shortest),
        cmocka_unit_test(test_full_text_spells_defaults_out),
        cmocka_unit_test(test_locale_does_not_matter),
        cmocka_unit_test(test_errors_show_the_place),
        cmocka_unit_test(test_whole_message),
        cmocka_unit_test(test_long_texts_are_cut_around_the_place),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_random_texts_never_crash_and_round_trip),
        cmocka_unit_test(test_rows_of_the_table_are_sound),
    };
    return cmocka_run_group_tests_name("parse", tests, NULL, NULL);
}
