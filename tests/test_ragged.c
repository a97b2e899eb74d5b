/*
 * test_ragged.c: samples that differ in length, and samples that become several:
 * callback and map with such fields, cast, pad, unbatch, flat_map.
 */
#include "program_util.h"
#include "support/support.h"

/* ------------------------------------------------------------- in and out */

static void test_source(void **state) {
    (void)state;
    const brim_binding binding = data_binding(0, 7);
    static struct made made;
    expect_output("callback @data", &binding, 1, 0, 3,
                  "id=0 score=0 odd=[0] v=[-1 0 1] tokens=() pairs=() word=''; "
                  "id=1 score=0.1 odd=[1] v=[9 10 11] tokens=(100) pairs=(0 0.5) word='a'; "
                  "id=2 score=0.2 odd=[0] v=[19 20 21] tokens=(200 201) pairs=(0 0.5 1 1.5) "
                  "word='ab'");
    /* alone: it is not taken for a record that is a row */
    const brim_binding alone = data_binding(4, 1);
    expect_output("callback @data", &alone, 1, 2, 4, "tokens=(200 201); tokens=(300 301 302)");
    assert_int_equal(made_open(&made, "callback @data", &binding, 1), BRIM_OK);
    for (uint32_t f = 0; f < 7; f++) {
        assert_int_equal(made.source.field[f].form, data_fields[f].form);
        assert_int_equal(made.source.field[f].view.offset % 64, 0);
    }
    made_close(&made);
}

struct wild {
    int64_t says;
};

static int read_wild(void *user, const brim_call *call, brim_value *outputs, size_t count,
                     char *why, size_t why_bytes) {
    const struct wild *wild = user;
    (void)call, (void)count, (void)why, (void)why_bytes;
    assert_int_equal(outputs[0].shape[0], 4);
    assert_int_equal(outputs[0].bytes, 4 * 3 * 2);
    memset(outputs[0].data, 1, outputs[0].bytes);
    outputs[0].shape[0] = wild->says;
    outputs[0].shape[1] = -1; /* not asked for */
    outputs[0].form = BRIM_FORM_TEXT;
    return 0;
}

static int map_wild(void *user, const brim_call *call, const brim_value *inputs, size_t input_count,
                    brim_value *outputs, size_t count, char *why, size_t why_bytes) {
    (void)inputs, (void)input_count;
    return read_wild(user, call, outputs, count, why, why_bytes);
}

static void test_lengths_out_of_bounds(void **state) {
    (void)state;
    static struct made made;
    struct wild wild = { 0 };
    const brim_field_spec field = { .size = sizeof field,
                                    .name = "x",
                                    .dtype = BRIM_DTYPE_U16,
                                    .rank = 2,
                                    .shape = { 4, 3 },
                                    .form = BRIM_FORM_RAGGED };
    const brim_binding bindings[] = { { .size = sizeof(brim_binding),
                                        .name = "wild",
                                        .kind = BRIM_BINDING_SOURCE,
                                        .user = &wild,
                                        .count = 9,
                                        .fields = &field,
                                        .field_count = 1,
                                        .read = read_wild },
                                      data_binding(0, 1),
                                      { .size = sizeof(brim_binding),
                                        .name = "map",
                                        .kind = BRIM_BINDING_MAP,
                                        .user = &wild,
                                        .fields = &field,
                                        .field_count = 1,
                                        .map = map_wild } };
    static const char *const texts[] = { "callback @wild", "callback @data | map @map" };
    for (size_t t = 0; t < BRIM__COUNT(texts); t++) {
        assert_int_equal(made_open(&made, texts[t], bindings, 3), BRIM_OK);
        wild.says = 0;
        assert_string_equal(run_samples(&made, 0, 1), "x=()");
        wild.says = 1;
        assert_string_equal(run_samples(&made, 0, 1), "x=(257 257 257)");
        wild.says = 4;
        assert_string_equal(run_samples(&made, 0, 1),
                            "x=(257 257 257 257 257 257 257 257 257 257 257 257)");
        static const int64_t wrong[] = { 5, -1, INT64_MAX, INT64_MIN };
        for (size_t i = 0; i < BRIM__COUNT(wrong); i++) {
            wild.says = wrong[i];
            assert_string_equal(run_samples(&made, 0, 1), "bad");
            detail_has("field 'x' has", texts[t]);
            detail_has("0 to 4 were declared", texts[t]);
        }
        made_close(&made);
    }
}

static void test_specs_refused(void **state) {
    (void)state;
    static const struct {
        brim_field_spec spec;
        const char *part;
    } cases[] = {
        { { .dtype = BRIM_DTYPE_U8, .rank = 0, .form = BRIM_FORM_RAGGED }, "rank 1 or more" },
        { { .dtype = BRIM_DTYPE_U8, .rank = 1, .shape = { 0 }, .form = BRIM_FORM_RAGGED },
          "at least 1" },
        { { .dtype = BRIM_DTYPE_I8, .rank = 1, .shape = { 3 }, .form = BRIM_FORM_TEXT },
          "uint8 of rank 1" },
        { { .dtype = BRIM_DTYPE_U8, .rank = 2, .shape = { 3, 2 }, .form = BRIM_FORM_BYTES },
          "uint8 of rank 1" },
        { { .dtype = BRIM_DTYPE_U8, .rank = 1, .shape = { 3 }, .form = (brim_form)4 },
          "not a form" },
        { { .dtype = BRIM_DTYPE_U8, .rank = 1, .shape = { INT64_MAX }, .form = BRIM_FORM_TEXT },
          "more bytes than can be addressed" },
    };
    for (size_t c = 0; c < BRIM__COUNT(cases); c++) {
        brim_field_spec spec = cases[c].spec;
        spec.size = sizeof spec;
        spec.name = "x";
        const brim_binding bindings[] = { { .size = sizeof(brim_binding),
                                            .name = "source",
                                            .kind = BRIM_BINDING_SOURCE,
                                            .count = 1,
                                            .fields = &spec,
                                            .field_count = 1,
                                            .read = read_data },
                                          data_binding(0, 1),
                                          { .size = sizeof(brim_binding),
                                            .name = "map",
                                            .kind = BRIM_BINDING_MAP,
                                            .fields = &spec,
                                            .field_count = 1,
                                            .map = map_wild } };
        expect_unbuilt("callback @source", bindings, 3, BRIM_STATUS_INVALID, cases[c].part);
        expect_unbuilt("callback @data | map @map", bindings, 3, BRIM_STATUS_INVALID,
                       cases[c].part);
    }
    /* a caller from before there were forms: all is dense */
    struct {
        brim_field_spec spec;
    } old = { { .size = offsetof(brim_field_spec, form),
                .name = "id",
                .dtype = BRIM_DTYPE_I64,
                .form = BRIM_FORM_RAGGED } };
    brim_binding binding = data_binding(0, 1);
    binding.fields = &old.spec;
    expect_output("callback @data", &binding, 1, 3, 4, "id=3");
}

/* --------------------------------------------------------------------- map */

/* Turns the tokens round, and puts the word out twice. */
static int turn(void *user, const brim_call *call, const brim_value *inputs, size_t input_count,
                brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    (void)user, (void)call, (void)why, (void)why_bytes;
    assert_int_equal(input_count, 3);
    assert_int_equal(output_count, 2);
    assert_int_equal((uintptr_t)inputs[0].data % 64, 0);
    const int64_t count = inputs[0].shape[0];
    const int64_t letters = inputs[2].shape[0];
    assert_int_equal(inputs[0].bytes, 4 * count);
    for (int64_t i = 0; i < count; i++) {
        ((int32_t *)outputs[1].data)[i] = ((const int32_t *)inputs[0].data)[count - 1 - i];
    }
    outputs[1].shape[0] = count;
    assert_int_equal(outputs[0].bytes, 12);
    memcpy(outputs[0].data, inputs[2].data, (size_t)letters);
    memcpy((char *)outputs[0].data + letters, inputs[2].data, (size_t)letters);
    outputs[0].shape[0] = 2 * letters;
    return 0;
}

static void test_map(void **state) {
    (void)state;
    const brim_field_spec fields[] = { { .size = sizeof(brim_field_spec),
                                         .name = "twice",
                                         .dtype = BRIM_DTYPE_U8,
                                         .rank = 1,
                                         .shape = { 12 },
                                         .form = BRIM_FORM_TEXT },
                                       { .size = sizeof(brim_field_spec),
                                         .name = "turned",
                                         .dtype = BRIM_DTYPE_I32,
                                         .rank = 1,
                                         .shape = { 6 },
                                         .form = BRIM_FORM_RAGGED } };
    const brim_binding bindings[] = { data_binding(4, 3),
                                      { .size = sizeof(brim_binding),
                                        .name = "turn",
                                        .kind = BRIM_BINDING_MAP,
                                        .fields = fields,
                                        .field_count = 2,
                                        .flags = BRIM_CALLBACK_PURE | BRIM_CALLBACK_CONCURRENT,
                                        .map = turn } };
    expect_output("callback @data | map @turn", bindings, 2, 0, 4,
                  "twice='' turned=(); twice='aa' turned=(100); twice='abab' turned=(201 200); "
                  "twice='abcabc' turned=(302 301 300)");
    expect_output("callback @data | map @turn | cast int8 on=turned | cast float32 on=turned | "
                  "filter \"twice != 'aa'\"",
                  bindings, 2, 1, 3, "-; twice='abab' turned=(-55 -56)");
}

/* Padding is of the field that was padded, not of what takes its place. */
static void test_map_behind_pad(void **state) {
    (void)state;
    static struct made made;
    struct wild wild = { 1 };
    const brim_field_spec field = { .size = sizeof field,
                                    .name = "x",
                                    .dtype = BRIM_DTYPE_U16,
                                    .rank = 2,
                                    .shape = { 4, 3 },
                                    .form = BRIM_FORM_RAGGED };
    const brim_binding bindings[] = { data_binding(4, 1),
                                      { .size = sizeof(brim_binding),
                                        .name = "map",
                                        .kind = BRIM_BINDING_MAP,
                                        .user = &wild,
                                        .fields = &field,
                                        .field_count = 1,
                                        .map = map_wild } };
    assert_int_equal(made_open(&made, "callback @data | pad on=tokens", bindings, 2), BRIM_OK);
    assert_true(made.program.field[0].padded);
    made_close(&made);
    assert_int_equal(made_open(&made, "callback @data | pad on=tokens | map @map", bindings, 2),
                     BRIM_OK);
    assert_false(made.program.field[0].padded);
    assert_string_equal(run_samples(&made, 2, 3), "x=(257 257 257)");
    made_close(&made);
}

/* -------------------------------------------------------------------- cast */

static void test_cast(void **state) {
    (void)state;
    const brim_binding binding = data_binding(0, 7);
    /* all but text */
    expect_output("callback @data | cast int8", &binding, 1, 2, 3,
                  "id=2 score=0 odd=[0] v=[19 20 21] tokens=(-56 -55) pairs=(0 0 1 1) word='ab'");
    expect_output("callback @data | cast int8 on=tokens,pairs | cast float64 on=tokens", &binding,
                  1, 2, 3,
                  "id=2 score=0.2 odd=[0] v=[19 20 21] tokens=(-56 -55) pairs=(0 0 1 1) "
                  "word='ab'");
    expect_output("callback @data | cast float32 on=tokens | cast uint8 on=tokens", &binding, 1, 2,
                  3,
                  "id=2 score=0.2 odd=[0] v=[19 20 21] tokens=(200 201) pairs=(0 0.5 1 1.5) "
                  "word='ab'");
    expect_output("callback @data | cast int64 on=word", &binding, 1, 2, 3,
                  "id=2 score=0.2 odd=[0] v=[19 20 21] tokens=(200 201) pairs=(0 0.5 1 1.5) "
                  "word=(97 98)");
    expect_output("callback @data | cast uint8 on=word", &binding, 1, 2, 3,
                  "id=2 score=0.2 odd=[0] v=[19 20 21] tokens=(200 201) pairs=(0 0.5 1 1.5) "
                  "word=(97 98)");
}

static void test_stages_for_dense_fields(void **state) {
    (void)state;
    static const char *const stages[] = { "normalize unit", "layout a from=a", "reshape 3 1",
                                          "one_hot 300" };
    const brim_binding binding = data_binding(0, 7), ragged = data_binding(4, 3);
    for (size_t i = 0; i < BRIM__COUNT(stages); i++) {
        char text[256];
        snprintf(text, sizeof text, "callback @data | %s on=tokens", stages[i]);
        expect_unbuilt(text, &binding, 1, BRIM_STATUS_INVALID, "field 'tokens' differs in length");
        detail_has("pad", text);
        snprintf(text, sizeof text, "callback @data | %s on=word", stages[i]);
        expect_unbuilt(text, &binding, 1, BRIM_STATUS_INVALID, "field 'word' differs in length");
        snprintf(text, sizeof text, "callback @data | %s", stages[i]);
        expect_unbuilt(text, &ragged, 1, BRIM_STATUS_INVALID, "pad");
        snprintf(text, sizeof text, "callback @data | pad on=tokens | %s on=tokens", stages[i]);
        expect_unbuilt(text, &ragged, 1, BRIM_STATUS_INVALID, "field 'tokens' differs in length");
    }
    /* not named: the first and the last that are dense */
    const brim_binding mixed = data_binding(3, 2);
    expect_output("callback @data | normalize unit max=2 | cast int64 on=v | one_hot 2", &mixed, 1,
                  1, 2, "bad");
    expect_output("callback @data | normalize unit max=10 | reshape 3 1 | cast int64 on=v | "
                  "one_hot 3",
                  &mixed, 1, 1, 2, "v=[1 0 0 0 1 0 0 1 0] tokens=(100)");
}

/* --------------------------------------------------------------------- pad */

static void test_pad_to(void **state) {
    (void)state;
    const brim_binding binding = data_binding(4, 3), tokens = data_binding(4, 1);
    expect_output("callback @data | pad on=tokens to=3 value=-1", &tokens, 1, 0, 5,
                  "tokens=[-1 -1 -1] tokens_length=0; tokens=[100 -1 -1] tokens_length=1; "
                  "tokens=[200 201 -1] tokens_length=2; tokens=[300 301 302] tokens_length=3; bad");
    detail_has("field 'tokens' has 4 in its first dimension, more than to=3", "pad");
    expect_output("callback @data | pad on=tokens to=3 cut=yes lengths=n", &tokens, 1, 2, 5,
                  "tokens=[200 201 0] n=2; tokens=[300 301 302] n=3; tokens=[400 401 402] n=3");
    expect_output("callback @data | pad on=pairs,word to=2 value=7 cut=yes", &binding, 1, 1, 4,
                  "tokens=(100) pairs=[0 0.5 7 7] word=[97 7] pairs_length=1 word_length=1; "
                  "tokens=(200 201) pairs=[0 0.5 1 1.5] word=[97 98] pairs_length=2 "
                  "word_length=2; "
                  "tokens=(300 301 302) pairs=[0 0.5 1 1.5] word=[97 98] pairs_length=2 "
                  "word_length=2");
    /* what was pending is done on the way, and the field is dense behind it */
    expect_output("callback @data | cast int8 on=tokens | pad on=tokens to=4 value=-128 | "
                  "normalize unit max=2 on=tokens | reshape 2 2 on=tokens",
                  &tokens, 1, 2, 3, "tokens=[-28 -27.5 -64 -64] tokens_length=2");
    expect_output("callback @data | cast float32 on=tokens | cast uint8 on=tokens | "
                  "pad on=tokens to=2 value=255 cut=yes | filter tokens_length<2 | unbatch "
                  "on=tokens",
                  &tokens, 1, 0, 4,
                  "tokens=255 tokens_length=0; tokens=255 tokens_length=0; "
                  "tokens=100 tokens_length=1; tokens=255 tokens_length=1; -; -");
    expect_output("callback @data | cast float16 on=tokens | pad on=tokens to=9 value=0.5", &tokens,
                  1, 2, 3, "tokens=[200 201 0.5 0.5 0.5 0.5 0.5 0.5 0.5] tokens_length=2");
}

static void test_pad_to_the_longest(void **state) {
    (void)state;
    static struct made made;
    const brim_binding binding = data_binding(4, 3);
    assert_int_equal(made_open(&made,
                               "callback @data | pad on=tokens,word value=3 | "
                               "cast int8 on=tokens | cast float32 on=tokens",
                               &binding, 1),
                     BRIM_OK);
    const struct brim__program_field *field = made.program.field;
    float value;
    memcpy(&value, field[0].pad_value, sizeof value);
    assert_true(field[0].padded && field[0].form == BRIM_FORM_RAGGED && value == 3);
    assert_false(field[1].padded);
    assert_true(field[2].padded && field[2].form == BRIM_FORM_RAGGED && field[2].pad_value[0] == 3);
    assert_string_equal(run_samples(&made, 1, 3),
                        "tokens=(100) pairs=(0 0.5) word=(97) tokens_length=1 word_length=1; "
                        "tokens=(-56 -55) pairs=(0 0.5 1 1.5) word=(97 98) tokens_length=2 "
                        "word_length=2");
    made_close(&made);
    /* -1 wraps and saturates as the elements do */
    assert_int_equal(made_open(&made,
                               "callback @data | pad on=tokens value=-1 | cast uint16 on=tokens | "
                               "cast float64 on=tokens | cast int8 on=tokens",
                               &binding, 1),
                     BRIM_OK);
    assert_int_equal(made.program.field[0].pad_value[0], 127);
    made_close(&made);
}

static void test_pad_refused(void **state) {
    (void)state;
    static const struct {
        const char *stages;
        brim_status status;
        const char *part;
    } cases[] = {
        { "pad", BRIM_STATUS_SYNTAX, "on" },
        { "pad on=v", BRIM_STATUS_INVALID, "field 'v' has one shape already" },
        { "pad on=tokens | pad on=tokens", BRIM_STATUS_INVALID, "is padded already" },
        { "pad on=tokens to=3 | pad on=tokens", BRIM_STATUS_INVALID, "has one shape already" },
        { "pad on=nothing", BRIM_STATUS_INVALID, "no field 'nothing'" },
        { "pad on=tokens cut=yes", BRIM_STATUS_INVALID, "cut=yes needs to=" },
        { "pad on=tokens,pairs lengths=n", BRIM_STATUS_INVALID, "one by one" },
        { "pad on=tokens lengths=id", BRIM_STATUS_INVALID, "there is a field 'id' already" },
        { "pad on=tokens lengths='a b'", BRIM_STATUS_INVALID, "the field name \"a b\"" },
        { "pad on=tokens value=0.5", BRIM_STATUS_INVALID, "int32, which has no value 0.5" },
        { "pad on=tokens value=2147483648", BRIM_STATUS_INVALID, "no value 2147483648" },
        { "pad on=word value=-1", BRIM_STATUS_INVALID, "uint8, which has no value -1" },
        { "pad on=word value=256", BRIM_STATUS_INVALID, "no value 256" },
        { "cast uint64 on=word | pad on=word value=-1", BRIM_STATUS_INVALID, "no value -1" },
        { "cast bool on=word | pad on=word value=2", BRIM_STATUS_INVALID, "no value 2" },
        { "pad on=pairs value=1e39", BRIM_STATUS_INVALID, "float32, which has no value 1e39" },
        { "pad on=tokens | unbatch on=tokens", BRIM_STATUS_INVALID, "put unbatch before pad" },
    };
    const brim_binding binding = data_binding(0, 7);
    for (size_t c = 0; c < BRIM__COUNT(cases); c++) {
        char text[256];
        snprintf(text, sizeof text, "callback @data | %s", cases[c].stages);
        expect_unbuilt(text, &binding, 1, cases[c].status, cases[c].part);
    }
    brim_field_spec fields[2] = { data_fields[4], data_fields[5] };
    fields[0].name = "a-name-of-forty-one-characters-is-too-long";
    brim_binding named = data_binding(4, 2);
    named.fields = fields;
    expect_unbuilt("callback @data | pad on=a-name-of-forty-one-characters-is-too-long", &named, 1,
                   BRIM_STATUS_INVALID, "give another with lengths=");
    fields[0].dtype = BRIM_DTYPE_C64;
    expect_unbuilt("callback @data | pad on=a-name-of-forty-one-characters-is-too-long value=1 "
                   "lengths=n",
                   &named, 1, BRIM_STATUS_INVALID, "complex64, which has no value 1");
}

/* ----------------------------------------------------------------- unbatch */

static void test_unbatch(void **state) {
    (void)state;
    static struct made made;
    const brim_binding v = data_binding(3, 1), tokens = data_binding(4, 1);
    const brim_binding binding = data_binding(3, 4);
    expect_output("callback @data | unbatch", &v, 1, 0, 2, "v=-1; v=0; v=1; v=9; v=10; v=11");
    expect_output("callback @data | unbatch", &tokens, 1, 0, 4,
                  "tokens=100; tokens=200; tokens=201; tokens=300; tokens=301; tokens=302");
    expect_output("callback @data | unbatch on=tokens,pairs", &binding, 1, 0, 3,
                  "v=[9 10 11] tokens=100 pairs=[0 0.5] word='a'; "
                  "v=[19 20 21] tokens=200 pairs=[0 0.5] word='ab'; "
                  "v=[19 20 21] tokens=201 pairs=[1 1.5] word='ab'");
    /* what was pending, and what comes behind */
    expect_output("callback @data | cast int8 | unbatch on=tokens,pairs | filter tokens<-55 | "
                  "cast float32 on=v | layout a from=a on=pairs | normalize unit max=2 on=v",
                  &binding, 1, 2, 3, "v=[9.5 10 10.5] tokens=-56 pairs=[0 0] word='ab'; -");
    expect_output("callback @data | filter \"length(tokens) == 2\" | unbatch on=v | "
                  "pad on=word to=4",
                  &binding, 1, 1, 3,
                  "-; "
                  "v=19 tokens=(200 201) pairs=(0 0.5 1 1.5) word=[97 98 0 0] word_length=2; "
                  "v=20 tokens=(200 201) pairs=(0 0.5 1 1.5) word=[97 98 0 0] word_length=2; "
                  "v=21 tokens=(200 201) pairs=(0 0.5 1 1.5) word=[97 98 0 0] word_length=2");
    /* dense and ragged together: only where the sample has as many */
    expect_output("callback @data | unbatch on=v,tokens", &binding, 1, 2, 4,
                  "bad; "
                  "v=29 tokens=300 pairs=(0 0.5 1 1.5 2 2.5) word='abc'; "
                  "v=30 tokens=301 pairs=(0 0.5 1 1.5 2 2.5) word='abc'; "
                  "v=31 tokens=302 pairs=(0 0.5 1 1.5 2 2.5) word='abc'");
    assert_int_equal(made_open(&made, "callback @data | unbatch on=v,tokens", &binding, 1),
                     BRIM_OK);
    assert_int_equal(made.program.rows_per_sample, 3);
    assert_string_equal(run_samples(&made, 5, 6), "bad");
    detail_has("field 'tokens' has 5 in its first dimension, but another field has 3", "unbatch");
    made_close(&made);
    assert_int_equal(made_open(&made, "callback @data | unbatch on=tokens", &binding, 1), BRIM_OK);
    assert_int_equal(made.program.rows_per_sample, DATA_SAMPLES - 1);
    made_close(&made);
}

/* Channels along the dimension that is lost, and along another one; a view that
 * is not row-major. */
static void test_unbatch_of_views(void **state) {
    (void)state;
    static const int16_t data[1][2][3] = { { { 2, 4, 6 }, { 8, 10, 12 } } };
    brim_binding array = { .size = sizeof array,
                           .name = "x",
                           .kind = BRIM_BINDING_ARRAY,
                           .data = data,
                           .dtype = BRIM_DTYPE_I16,
                           .rank = 3,
                           .shape = { 1, 2, 3 } };
    expect_output("array @x | normalize mean=0,1 std=2,1 axis=0 | unbatch", &array, 1, 0, 1,
                  "x=[1 2 3]; x=[7 9 11]");
    expect_output("array @x | normalize mean=0,1,2 std=2,1,1 axis=1 | unbatch", &array, 1, 0, 1,
                  "x=[1 3 4]; x=[4 9 10]");
    expect_output("array @x | layout ba from=ab | unbatch", &array, 1, 0, 1,
                  "x=[2 8]; x=[4 10]; x=[6 12]");
    expect_output("array @x | layout ba from=ab | normalize mean=0,1 std=2,1 axis=1 | unbatch",
                  &array, 1, 0, 1, "x=[1 7]; x=[2 9]; x=[3 11]");
    array.data = &data[0][1][2];
    array.strides[0] = -12;
    array.strides[1] = -6;
    array.strides[2] = -2;
    expect_output("array @x | cast uint8 | unbatch", &array, 1, 0, 1, "x=[12 10 8]; x=[6 4 2]");
}

static void test_unbatch_refused(void **state) {
    (void)state;
    static const struct {
        const char *stages;
        brim_status status;
        const char *part;
    } cases[] = {
        { "unbatch", BRIM_STATUS_INVALID, "field 'id' is one number" },
        { "unbatch on=word", BRIM_STATUS_INVALID, "field 'word' is text" },
        { "unbatch on=odd,v", BRIM_STATUS_INVALID, "field 'v' has 3 in its first dimension" },
        { "unbatch on=v | unbatch on=tokens", BRIM_STATUS_UNSUPPORTED, "only one" },
        { "unbatch on=v | unbatch on=v", BRIM_STATUS_INVALID, "field 'v' is one number" },
        { "unbatch on=w", BRIM_STATUS_INVALID, "no field 'w'" },
    };
    const brim_binding binding = data_binding(0, 7);
    for (size_t c = 0; c < BRIM__COUNT(cases); c++) {
        char text[256];
        snprintf(text, sizeof text, "callback @data | %s", cases[c].stages);
        expect_unbuilt(text, &binding, 1, cases[c].status, cases[c].part);
    }
}

/* ---------------------------------------------------------------- flat_map */

struct windows {
    unsigned calls;
    uint64_t keys[16];
};

/* Windows of two tokens; sample 4 fails at its third. */
static int window(void *user, const brim_call *call, uint64_t index, const brim_value *inputs,
                  size_t input_count, brim_value *outputs, size_t output_count, char *why,
                  size_t why_bytes) {
    struct windows *windows = user;
    windows->keys[windows->calls++ % 16] = call->key;
    assert_int_equal(input_count, 1);
    assert_int_equal(output_count, 2);
    const uint64_t count = (uint64_t)inputs[0].shape[0];
    if (call->sample == 4 && index == 2) {
        snprintf(why, why_bytes, "no third window");
        return -9;
    }
    if (index + 2 > count) {
        return 0;
    }
    memcpy(outputs[0].data, (const int32_t *)inputs[0].data + index, 8);
    memcpy(outputs[1].data, "0123456789", index);
    outputs[1].shape[0] = (int64_t)index;
    return 1;
}

static void test_flat_map(void **state) {
    (void)state;
    static struct made made;
    struct windows windows = { 0 };
    const brim_field_spec fields[] = { { .size = sizeof(brim_field_spec),
                                         .name = "pair",
                                         .dtype = BRIM_DTYPE_I32,
                                         .rank = 1,
                                         .shape = { 2 } },
                                       { .size = sizeof(brim_field_spec),
                                         .name = "mark",
                                         .dtype = BRIM_DTYPE_U8,
                                         .rank = 1,
                                         .shape = { 9 },
                                         .form = BRIM_FORM_BYTES } };
    brim_binding bindings[] = { data_binding(4, 1),
                                { .size = sizeof(brim_binding),
                                  .name = "window",
                                  .kind = BRIM_BINDING_FLAT_MAP,
                                  .user = &windows,
                                  .count = 4,
                                  .fields = fields,
                                  .field_count = 2,
                                  .flat_map = window } };
    expect_output("callback @data | flat_map @window", bindings, 2, 0, 5,
                  "pair=[200 201] mark=''; "
                  "pair=[300 301] mark=''; pair=[301 302] mark='0'; "
                  "pair=[400 401] mark=''; pair=[401 402] mark='0'; bad");
    detail_has("flat_map @window returned -9: no third window", "flat_map");
    /* not asked for more than it may make: 6 tokens would give 5 windows */
    windows.calls = 0;
    expect_output("callback @data | flat_map @window | cast int64 on=pair | filter "
                  "\"mark != '01'\"",
                  bindings, 2, 6, 7,
                  "pair=[600 601] mark=''; pair=[601 602] mark='0'; -; pair=[603 604] mark='012'");
    assert_int_equal(windows.calls, 4);
    for (unsigned i = 1; i < 4; i++) {
        assert_int_equal(windows.keys[i], windows.keys[0]);
    }
    assert_int_equal(made_open(&made, "callback @data | flat_map @window", bindings, 2), BRIM_OK);
    assert_true(made.program.callback && made.program.impure && made.program.rows_per_sample == 4);
    made_close(&made);

    expect_unbuilt("callback @data | flat_map @window | unbatch on=pair", bindings, 2,
                   BRIM_STATUS_UNSUPPORTED, "only one");
    bindings[1].count = 0;
    expect_unbuilt("callback @data | flat_map @window", bindings, 2, BRIM_STATUS_INVALID,
                   "its `count` is 0");
    bindings[1].count = 1000001;
    expect_unbuilt("callback @data | flat_map @window", bindings, 2, BRIM_STATUS_INVALID,
                   "1 to 1000000");
    bindings[1].count = 1;
    bindings[1].field_count = 0;
    expect_unbuilt("callback @data | flat_map @window", bindings, 2, BRIM_STATUS_INVALID,
                   "0 fields");
    bindings[1].flat_map = NULL;
    expect_unbuilt("callback @data | flat_map @window", bindings, 2, BRIM_STATUS_INVALID,
                   "`flat_map` is NULL");
}

/* ------------------------------------------------------------------- keys */

static int note_key(void *user, const brim_call *call, const brim_value *inputs, size_t input_count,
                    brim_value *outputs, size_t output_count, char *why, size_t why_bytes) {
    struct windows *windows = user;
    windows->keys[windows->calls++ % 16] = call->key;
    (void)why, (void)why_bytes;
    assert_int_equal(input_count, output_count);
    memcpy(outputs[0].data, inputs[0].data, outputs[0].bytes);
    return 0;
}

/* The samples that one became do not draw the same random numbers. */
static void test_keys_behind_an_expansion(void **state) {
    (void)state;
    struct windows windows = { 0 };
    const brim_field_spec field = { .size = sizeof field, .name = "w", .dtype = BRIM_DTYPE_I16 };
    const brim_binding bindings[] = { data_binding(3, 1),
                                      { .size = sizeof(brim_binding),
                                        .name = "note",
                                        .kind = BRIM_BINDING_MAP,
                                        .user = &windows,
                                        .fields = &field,
                                        .field_count = 1,
                                        .map = note_key } };
    expect_output("callback @data | unbatch | map @note", bindings, 2, 1, 3,
                  "w=9; w=10; w=11; w=19; w=20; w=21");
    assert_int_equal(windows.calls, 6);
    assert_int_not_equal(windows.keys[0], windows.keys[1]);
    assert_int_not_equal(windows.keys[1], windows.keys[2]);
    /* the sample's number stands beside the key */
    assert_memory_equal(windows.keys, windows.keys + 3, 3 * sizeof windows.keys[0]);
}

/* ------------------------------------------------------------------ batches */

/* Rows of a field that is not dense lie one behind the other. */
static void check_ragged(const brim_batch *batch, const char *name, int64_t unit) {
    const brim_batch_info *info = brim_batch_get(batch);
    const brim_field *field = brim_batch_find(batch, name);
    assert_non_null(field);
    int64_t at = 0;
    for (uint64_t r = 0; r < info->rows; r++) {
        const int64_t s = (int64_t)info->samples[r];
        assert_int_equal(field->offsets[r], at);
        at += s;
    }
    assert_int_equal(field->offsets[info->rows], at);
    assert_int_equal(field->shape[1], -1);
    assert_int_equal(field->bytes, at * unit);
}

static void check_batch(void *user, const brim_batch *batch) {
    const brim_batch_info *info = brim_batch_get(batch);
    const brim_field *tokens = brim_batch_find(batch, "tokens");
    const brim_field *pairs = brim_batch_find(batch, "pairs");
    const brim_field *word = brim_batch_find(batch, "word");
    const brim_field *lengths = brim_batch_find(batch, "word_length");
    uint64_t *rows = user;
    int64_t longest = 0;
    check_ragged(batch, "tokens", 8);
    check_ragged(batch, "pairs", 8);
    assert_int_equal(tokens->form, BRIM_FORM_RAGGED);
    assert_int_equal(tokens->rank, 2);
    assert_int_equal(pairs->rank, 3);
    assert_int_equal(word->form, BRIM_FORM_DENSE);
    for (uint64_t r = 0; r < info->rows; r++) {
        const int64_t s = (int64_t)info->samples[r];
        const char *letters = (const char *)word->data + (int64_t)r * word->strides[0];
        longest = s > longest ? s : longest;
        assert_int_equal(((const int64_t *)lengths->data)[r], s);
        for (int64_t k = 0; k < s; k++) {
            const int64_t *token = (const int64_t *)tokens->data + tokens->offsets[r] + k;
            const float *pair = (const float *)pairs->data + 2 * (pairs->offsets[r] + k);
            assert_int_equal(*token, 100 * s + k);
            assert_true(pair[0] == (float)k && pair[1] == (float)k + 0.5f);
        }
        for (int64_t k = 0; k < word->shape[1]; k++) {
            assert_int_equal(letters[k], k < s ? "abcdefgh"[k] : '-');
        }
    }
    assert_int_equal(word->shape[1], longest);
    *rows += info->rows;
}

/* The same through a loader, placed directly and one after the other. */
static void test_loaded(void **state) {
    (void)state;
    const brim_binding binding = data_binding(0, 7);
    static const char *const texts[] = {
        "callback @data | cast int64 on=tokens | pad on=word value=45 | batch 3",
        "callback @data | shuffle seed=3 | repeat 9 | cast int64 on=tokens | "
        "pad on=word value=45 | batch 4",
        "callback @data | shuffle seed=3 | repeat 9 | cast int64 on=tokens | filter 'id>=0' | "
        "pad on=word value=45 | batch 4",
    };
    for (size_t t = 0; t < BRIM__COUNT(texts); t++) {
        for (int32_t threads = 0; threads < 4; threads += 3) {
            const struct how how = { .threads = threads, .bindings = &binding, .binding_count = 1 };
            struct session session;
            uint64_t rows = 0;
            session_open(&session, texts[t], &how);
            assert_true(take_batches(&session, TO_THE_END, check_batch, &rows));
            assert_int_equal(rows, t == 0 ? DATA_SAMPLES : 9 * DATA_SAMPLES);
            session_close(&session);
        }
    }
}

/* A function that is not declared concurrent runs on one thread at a time,
 * whichever stage calls it. */
struct alone {
    int inside; /* 0 or 1; what the sanitizer watches */
    uint64_t calls;
};

static int filter_alone(void *user, const brim_call *call, const brim_value *inputs,
                        size_t input_count, char *why, size_t why_bytes) {
    struct alone *alone = user;
    (void)call, (void)inputs, (void)input_count, (void)why, (void)why_bytes;
    assert_int_equal(alone->inside++, 0);
    alone->calls++;
    alone->inside--;
    return 1;
}

static int flat_map_alone(void *user, const brim_call *call, uint64_t index,
                          const brim_value *inputs, size_t input_count, brim_value *outputs,
                          size_t output_count, char *why, size_t why_bytes) {
    assert_int_equal(output_count, 1);
    memcpy(outputs[0].data, inputs[0].data, outputs[0].bytes);
    return index < 3 ? filter_alone(user, call, inputs, input_count, why, why_bytes) : 0;
}

static void test_functions_are_serialised(void **state) {
    (void)state;
    struct alone alone[2] = { 0 };
    const brim_field_spec field = { .size = sizeof field, .name = "id", .dtype = BRIM_DTYPE_I64 };
    const brim_binding bindings[] = { data_binding(0, 7),
                                      { .size = sizeof(brim_binding),
                                        .name = "keep",
                                        .kind = BRIM_BINDING_FILTER,
                                        .user = &alone[0],
                                        .filter = filter_alone },
                                      { .size = sizeof(brim_binding),
                                        .name = "many",
                                        .kind = BRIM_BINDING_FLAT_MAP,
                                        .user = &alone[1],
                                        .count = 5,
                                        .fields = &field,
                                        .field_count = 1,
                                        .flat_map = flat_map_alone } };
    const struct how how = { .threads = 4, .bindings = bindings, .binding_count = 3 };
    struct session session;
    struct digest digest = { 0 };
    session_open(&session,
                 "callback @data | repeat 100 | filter by=@keep | flat_map @many | "
                 "filter by=@keep | batch 10",
                 &how);
    assert_true(take_batches(&session, TO_THE_END, digest_batch, &digest));
    session_close(&session);
    assert_int_equal(digest.batches, DATA_SAMPLES * 100 * 3 / 10);
    assert_true(alone[0].calls >= DATA_SAMPLES * 100 * 4);
    assert_true(alone[1].calls >= DATA_SAMPLES * 100 * 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_source),
        cmocka_unit_test(test_lengths_out_of_bounds),
        cmocka_unit_test(test_specs_refused),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_map_behind_pad),
        cmocka_unit_test(test_cast),
        cmocka_unit_test(test_stages_for_dense_fields),
        cmocka_unit_test(test_pad_to),
        cmocka_unit_test(test_pad_to_the_longest),
        cmocka_unit_test(test_pad_refused),
        cmocka_unit_test(test_unbatch),
        cmocka_unit_test(test_unbatch_of_views),
        cmocka_unit_test(test_unbatch_refused),
        cmocka_unit_test(test_flat_map),
        cmocka_unit_test(test_keys_behind_an_expansion),
        cmocka_unit_test(test_loaded),
        cmocka_unit_test(test_functions_are_serialised),
    };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}
