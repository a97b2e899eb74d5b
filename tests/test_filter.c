/*
 * test_filter.c: which samples a filter keeps.
 *
 * Conditions against what they say, integers against a model that reckons in
 * thousandths, and functions of the caller.
 */
#include "program_util.h"

/* The samples of @data that a filter keeps, as the digits of their numbers. */
static const char *kept(const char *stage, const brim_binding *bindings, size_t binding_count) {
    static struct made made;
    static char digits[DATA_SAMPLES + 1];
    char text[512];
    snprintf(text, sizeof text, "callback @data | %s", stage);
    if (made_open(&made, text, bindings, binding_count) != BRIM_OK) {
        fail_msg("%s: %s", text, brim_detail());
    }
    assert_true(made.program.drops);
    size_t count = 0;
    for (uint64_t s = 0; s < DATA_SAMPLES; s++) {
        const char *output = run_samples(&made, s, s + 1);
        assert_string_not_equal(output, "bad");
        if (strcmp(output, "-") != 0) {
            digits[count++] = (char)('0' + s);
        }
    }
    digits[count] = '\0';
    made_close(&made);
    return digits;
}

static void test_conditions(void **state) {
    (void)state;
    static const struct {
        const char *stage, *kept;
    } cases[] = {
        { "filter \"id == 3\"", "3" },
        { "filter 'id==3'", "3" },
        { "filter \"  id  !=  3  \"", "012456" },
        { "filter id<3", "012" },
        { "filter \"id <= 3\"", "0123" },
        { "filter \"id > 3\"", "456" },
        { "filter \"id >= 3\"", "3456" },
        { "filter \"id > 2.5\"", "3456" },
        { "filter \"id == 2.5\"", "" },
        { "filter \"id != 2.5\"", "0123456" },
        { "filter \"id < 2.5\"", "012" },
        { "filter \"id > -0.5\"", "0123456" },
        { "filter \"id < -0.5\"", "" },
        { "filter \"id == -0\"", "0" },
        { "filter \"id == 0.3e1\"", "3" },
        { "filter \"id == 30e-1\"", "3" },
        { "filter \"id < 1e999999999999999999999\"", "0123456" },
        { "filter \"id > -1e400\"", "0123456" },
        { "filter \"id > 1e-99999999999999999999\"", "123456" },
        { "filter \"id == +4\"", "4" },
        /* a float32 of 0.1 is not the double 0.1, but was written so */
        { "filter \"score == 0.1\"", "1" },
        { "filter \"score > 0.3\"", "456" },
        { "filter \"score >= 0.3\"", "3456" },
        { "filter \"score < inf\"", "0123456" },
        { "filter \"score != .2e0\"", "013456" },
        { "filter \"odd == 1\"", "135" },
        { "filter \"odd != 1\"", "0246" },
        { "filter \"length(tokens) == 2\"", "2" },
        { "filter \"length( tokens ) >= 4.5\"", "56" },
        { "filter \"length(pairs) < 1\"", "0" },
        { "filter \"length (word) < 3\"", "012" },
        { "filter \"word == 'abc'\"", "3" },
        { "filter 'word != \"abc\"'", "012456" },
        { "filter \"word == ''\"", "0" },
        { "filter \"word == 'ab c'\"", "" },
        { "filter \"id > 1\" \"id < 5\" \"odd == 0\"", "24" },
        { "filter id>1 | filter id<3", "2" },
        { "cast uint8 on=id | filter \"id == 5\"", "5" },
        { "cast float16 on=id | filter \"id >= 5\"", "56" },
        { "cast float64 on=score | filter \"score == 0.1\"", "" },
        { "cast bfloat16 on=score | filter \"score == 0.1\"", "1" },
        { "cast uint16 on=score | filter \"score == 0\"", "0123456" },
        { "cast float32 on=tokens | filter \"length(tokens) == 6\"", "6" },
    };
    const brim_binding binding = data_binding(0, 7);
    for (size_t c = 0; c < BRIM__COUNT(cases); c++) {
        const char *got = kept(cases[c].stage, &binding, 1);
        if (strcmp(got, cases[c].kept) != 0) {
            fail_msg("%s: keeps \"%s\", not \"%s\"", cases[c].stage, got, cases[c].kept);
        }
    }
}

/* What a filter looked at still comes out as it would without it. */
static void test_values_after_a_filter(void **state) {
    (void)state;
    const brim_binding binding = data_binding(0, 7);
    expect_output("callback @data | filter \"id >= 2\" \"word != 'abc'\"", &binding, 1, 1, 4,
                  "-; id=2 score=0.2 odd=[0] v=[19 20 21] tokens=(200 201) pairs=(0 0.5 1 1.5) "
                  "word='ab'; -");
    expect_output("callback @data | cast int8 on=id,tokens | filter id>1 \"length(tokens)<3\" | "
                  "cast float32 on=id",
                  &binding, 1, 1, 4,
                  "-; id=2 score=0.2 odd=[0] v=[19 20 21] tokens=(-56 -55) "
                  "pairs=(0 0.5 1 1.5) word='ab'; -");
}

/* ---------------------------------------------------------------- the model */

struct number {
    brim_dtype dtype;
    uint64_t bits;
};

static int read_number(void *user, const brim_call *call, brim_value *outputs, size_t count,
                       char *why, size_t why_bytes) {
    const struct number *number = user;
    (void)call, (void)count, (void)why, (void)why_bytes;
    memcpy(outputs[0].data, &number->bits, brim_dtype_bytes(number->dtype));
    return 0;
}

static bool keeps_number(struct number *number, const char *condition) {
    static struct made made;
    const brim_field_spec field = { .size = sizeof field, .name = "n", .dtype = number->dtype };
    const brim_binding binding = { .size = sizeof binding,
                                   .name = "number",
                                   .kind = BRIM_BINDING_SOURCE,
                                   .user = number,
                                   .count = 1,
                                   .fields = &field,
                                   .field_count = 1,
                                   .flags = BRIM_CALLBACK_CONCURRENT,
                                   .read = read_number };
    char text[256];
    snprintf(text, sizeof text, "callback @number | filter \"%s\"", condition);
    if (made_open(&made, text, &binding, 1) != BRIM_OK) {
        fail_msg("%s: %s", text, brim_detail());
    }
    const bool keeps = strcmp(run_samples(&made, 0, 1), "-") != 0;
    made_close(&made);
    return keeps;
}

__extension__ typedef __int128 wide;

static wide number_value(const struct number *number) {
    const uint64_t bits = number->bits;
    switch (number->dtype) {
    case BRIM_DTYPE_U8:
        return (uint8_t)bits;
    case BRIM_DTYPE_I8:
        return (int8_t)bits;
    case BRIM_DTYPE_U16:
        return (uint16_t)bits;
    case BRIM_DTYPE_I16:
        return (int16_t)bits;
    case BRIM_DTYPE_U32:
        return (uint32_t)bits;
    case BRIM_DTYPE_I32:
        return (int32_t)bits;
    case BRIM_DTYPE_U64:
        return bits;
    default:
        return (int64_t)bits;
    }
}

/* thousandths as a decimal number, in one of several spellings. */
static void spell(wide thousandths, unsigned how, char text[96]) {
    const bool negative = thousandths < 0;
    const wide size = negative ? -thousandths : thousandths;
    const unsigned long long high = (unsigned long long)(size / 1000 / 1000000000),
                             low = (unsigned long long)(size / 1000 % 1000000000);
    char whole[48];
    if (high > 0) {
        snprintf(whole, sizeof whole, "%llu%09llu", high, low);
    } else {
        snprintf(whole, sizeof whole, "%llu", low);
    }
    const unsigned rest = (unsigned)(size % 1000);
    switch (how % 4) {
    case 0:
        if (rest == 0) {
            snprintf(text, 96, "%s%s", negative ? "-" : "", whole);
            break;
        } /* fall through */
    case 1:
        snprintf(text, 96, "%s%s.%03u", negative ? "-" : "", whole, rest);
        break;
    case 2:
        snprintf(text, 96, "%s000%s%03u0e-4", negative ? "-" : "", whole, rest);
        break;
    default:
        snprintf(text, 96, "%s0.000%s%03ue+%zu", negative ? "-" : "", whole, rest,
                 strlen(whole) + 3);
    }
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

static void test_integers_against_a_model(void **state) {
    (void)state;
    static const brim_dtype dtypes[] = { BRIM_DTYPE_U8,  BRIM_DTYPE_I8,  BRIM_DTYPE_U16,
                                         BRIM_DTYPE_I16, BRIM_DTYPE_U32, BRIM_DTYPE_I32,
                                         BRIM_DTYPE_U64, BRIM_DTYPE_I64 };
    static const char *const operators[] = { "==", "!=", "<", "<=", ">", ">=" };
    static const uint64_t edges[] = { 0,
                                      1,
                                      UINT64_MAX,
                                      UINT64_C(1) << 63,
                                      (UINT64_C(1) << 63) - 1,
                                      (UINT64_C(1) << 53) + 1,
                                      UINT64_MAX - 1 };
    uint64_t random = 4711;
    for (unsigned round = 0; round < 6000; round++) {
        struct number number = { .dtype = dtypes[next_random(&random) % BRIM__COUNT(dtypes)] };
        number.bits = next_random(&random) % 3 == 0
                          ? edges[next_random(&random) % BRIM__COUNT(edges)]
                          : next_random(&random);
        const wide value = number_value(&number) * 1000;
        const wide other = value + (wide)(next_random(&random) % 5000) - 2500;
        const wide literal = next_random(&random) % 4 == 0 ? value : other;
        char spelled[96], condition[128];
        spell(literal, (unsigned)next_random(&random), spelled);
        const size_t op = next_random(&random) % BRIM__COUNT(operators);
        const bool truth[] = { value == literal, value != literal,
                               value<literal, value <= literal, value> literal, value >= literal };
        snprintf(condition, sizeof condition, "n %s %s", operators[op], spelled);
        if (keeps_number(&number, condition) != truth[op]) {
            fail_msg("%s of bits 0x%llx: \"%s\" is %d", brim_dtype_name(number.dtype),
                     (unsigned long long)number.bits, condition, truth[op]);
        }
    }
}

static void test_nan(void **state) {
    (void)state;
    static const struct {
        brim_dtype dtype;
        uint64_t bits;
    } nans[] = { { BRIM_DTYPE_F16, 0x7e00 },
                 { BRIM_DTYPE_BF16, 0x7fc0 },
                 { BRIM_DTYPE_F32, 0x7fc00000 },
                 { BRIM_DTYPE_F64, UINT64_C(0x7ff8000000000000) } };
    for (size_t i = 0; i < BRIM__COUNT(nans); i++) {
        struct number number = { nans[i].dtype, nans[i].bits };
        assert_true(keeps_number(&number, "n != 1"));
        assert_false(keeps_number(&number, "n == 1"));
        assert_false(keeps_number(&number, "n < 1"));
        assert_false(keeps_number(&number, "n >= 1"));
    }
}

/* ---------------------------------------------------------------- refusals */

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *stage;
        brim_status status;
        const char *part;
    } cases[] = {
        { "filter", BRIM_STATUS_INVALID, "give conditions" },
        { "filter id>1 by=@keep", BRIM_STATUS_INVALID, "one of the two" },
        { "filter \"\"", BRIM_STATUS_SYNTAX, "name of a field is missing" },
        { "filter \"== 3\"", BRIM_STATUS_SYNTAX, "name of a field is missing" },
        { "filter \"id\"", BRIM_STATUS_SYNTAX, "operator is missing" },
        { "filter \"id = 3\"", BRIM_STATUS_SYNTAX, "operator is missing" },
        { "filter \"id =< 3\"", BRIM_STATUS_SYNTAX, "operator is missing" },
        { "filter \"id ==\"", BRIM_STATUS_SYNTAX, "no value after the operator" },
        { "filter \"id == \t \"", BRIM_STATUS_SYNTAX, "no value after the operator" },
        { "filter \"id == 3x\"", BRIM_STATUS_SYNTAX, "no number" },
        { "filter \"id == 3 4\"", BRIM_STATUS_SYNTAX, "' 4' is left over" },
        { "filter \"id == 3 and v == 4\"", BRIM_STATUS_SYNTAX, "' and v == 4' is left over" },
        { "filter \"score > 0.5 and id == 1\"", BRIM_STATUS_SYNTAX, "as several arguments" },
        { "filter \"word == 'a' and id == 1\"", BRIM_STATUS_SYNTAX, "' and id == 1' is left over" },
        { "filter \"id == --3\"", BRIM_STATUS_SYNTAX, "no number" },
        { "filter \"id == .\"", BRIM_STATUS_SYNTAX, "no number" },
        { "filter \"id == 1e\"", BRIM_STATUS_SYNTAX, "no number" },
        { "filter \"id == 0x3\"", BRIM_STATUS_SYNTAX, "no number" },
        { "filter \"id == inf\"", BRIM_STATUS_SYNTAX, "no number" },
        { "filter \"score == nan\"", BRIM_STATUS_SYNTAX, "no number" },
        { "filter \"score == 1.2.3\"", BRIM_STATUS_SYNTAX, "no number" },
        { "filter \"score < 1e39\"", BRIM_STATUS_INVALID, "beyond float32" },
        { "filter \"id == 'a'\"", BRIM_STATUS_INVALID, "leave out the quotes" },
        { "filter \"idd == 3\"", BRIM_STATUS_INVALID, "no field 'idd'; did you mean 'id'?" },
        { "filter \"v == 3\"", BRIM_STATUS_INVALID, "field 'v' is 3, not one number" },
        { "filter \"tokens == 3\"", BRIM_STATUS_INVALID, "length(tokens)" },
        { "filter \"length(v) == 3\"", BRIM_STATUS_INVALID, "same length" },
        { "filter \"length(tokens == 3\"", BRIM_STATUS_SYNTAX, "')' is missing" },
        { "filter \"length() == 3\"", BRIM_STATUS_SYNTAX, "name of a field is missing" },
        { "filter \"word == abc\"", BRIM_STATUS_INVALID, "in quotes" },
        { "filter \"word == 'abc\"", BRIM_STATUS_SYNTAX, "never closed" },
        { "filter \"word == '\"", BRIM_STATUS_SYNTAX, "never closed" },
        { "filter \"word < 'abc'\"", BRIM_STATUS_INVALID, "== and != only" },
        { "filter \"length(word) == 'a'\"", BRIM_STATUS_INVALID, "leave out the quotes" },
        { "filter by=@keep", BRIM_STATUS_UNBOUND, "no binding has this name" },
        { "filter by=@data", BRIM_STATUS_INVALID, "BRIM_BINDING_FILTER" },
        { "filter \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa < 3\"",
          BRIM_STATUS_SYNTAX, "too long" },
    };
    const brim_binding binding = data_binding(0, 7);
    for (size_t c = 0; c < BRIM__COUNT(cases); c++) {
        char text[512];
        snprintf(text, sizeof text, "callback @data | %s", cases[c].stage);
        expect_unbuilt(text, &binding, 1, cases[c].status, cases[c].part);
    }
}

/* --------------------------------------------------------------- functions */

struct keeper {
    unsigned calls;
    uint64_t key;
};

static int keep(void *user, const brim_call *call, const brim_value *inputs, size_t count,
                char *why, size_t why_bytes) {
    struct keeper *keeper = user;
    const int64_t s = (int64_t)call->sample;
    keeper->calls++;
    keeper->key = call->key;
    assert_int_equal(count, 7);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal((uintptr_t)inputs[i].data % 64, 0);
        assert_string_equal(inputs[i].name, data_fields[i].name);
        assert_int_equal(inputs[i].form, data_fields[i].form);
    }
    assert_int_equal(*(const int64_t *)inputs[0].data, s);
    assert_int_equal(inputs[3].bytes, 6);
    assert_int_equal(inputs[4].shape[0], s);
    assert_int_equal(inputs[4].bytes, 4 * s);
    assert_int_equal(inputs[5].shape[1], 2);
    assert_int_equal(inputs[5].bytes, 8 * s);
    assert_int_equal(inputs[6].bytes, s);
    assert_memory_equal(inputs[6].data, "abcdefgh", (size_t)s);
    if (s == 4) {
        snprintf(why, why_bytes, "no fours");
        return -3;
    }
    return s % 3 == 0 ? BRIM_ANSWER_SAMPLE : BRIM_ANSWER_DONE;
}

static void test_functions(void **state) {
    (void)state;
    static struct made made;
    struct keeper keeper = { 0 };
    const brim_binding bindings[] = { data_binding(0, 7),
                                      { .size = sizeof(brim_binding),
                                        .name = "keep",
                                        .kind = BRIM_BINDING_FILTER,
                                        .user = &keeper,
                                        .filter = keep } };
    assert_int_equal(made_open(&made, "callback @data | filter by=@keep", bindings, 2), BRIM_OK);
    assert_true(made.program.drops && made.program.callback && made.program.impure);
    assert_string_equal(run_samples(&made, 2, 6),
                        "-; id=3 score=0.3 odd=[1] v=[29 30 31] tokens=(300 301 302) "
                        "pairs=(0 0.5 1 1.5 2 2.5) word='abc'; bad; -");
    assert_int_equal(keeper.calls, 4);
    run_samples(&made, 4, 5);
    detail_has("filter @keep returned -3: no fours", "a bad sample");
    const uint64_t key = keeper.key;
    made_close(&made);

    assert_int_equal(made_open(&made, "callback @data | filter by=@keep seed=1", bindings, 2),
                     BRIM_OK);
    run_samples(&made, 4, 5);
    assert_int_not_equal(keeper.key, key);
    made_close(&made);

    const brim_binding empty[] = {
        data_binding(0, 7),
        { .size = sizeof(brim_binding), .name = "keep", .kind = BRIM_BINDING_FILTER }
    };
    expect_unbuilt("callback @data | filter by=@keep", empty, 2, BRIM_STATUS_INVALID,
                   "`filter` is NULL");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_values_after_a_filter),
        cmocka_unit_test(test_integers_against_a_model),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
