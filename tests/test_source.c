/*
 * test_source.c: the caller's memory and functions as sources, bindings, and
 * what all sources do when the system refuses.
 */
#include "source_util.h"

#include "base/fault.h"

#include <sys/resource.h>

static brim_status open_stage(struct opened *opened, const struct brim__stage *stage,
                              const char *argument, const char *value, const char *name,
                              const brim_binding *bindings, size_t binding_count) {
    struct test_use use;
    use_init(&use, stage);
    use_set(&use, argument, value);
    if (name != NULL) {
        use_set(&use, "name", name);
    }
    return open_use(opened, &use, bindings, binding_count);
}

static brim_status refuse_array(const brim_binding *binding) {
    struct opened opened;
    const brim_status status =
        open_stage(&opened, &brim__stage_array, "array", "a", NULL, binding, 1);
    close_opened(&opened);
    return status;
}

/* ------------------------------------------------------------------ rows */

static void test_rows_are_complete(void **state) {
    (void)state;
    const struct brim__stage *const rows[] = { &brim__stage_npy,   &brim__stage_tokens,
                                               &brim__stage_array, &brim__stage_callback,
                                               &brim__stage_range, &brim__stage_zip };
    for (size_t i = 0; i < BRIM__COUNT(rows); i++) {
        const brim_stage_info *info = &rows[i]->info;
        assert_int_equal(info->room, BRIM_ROOM_SOURCE);
        assert_true(info->version >= 1);
        assert_true(strlen(info->summary) > 10);
        assert_int_equal(strncmp(info->example, info->name, strlen(info->name)), 0);
        assert_true((rows[i]->open == NULL) == (rows[i] == &brim__stage_zip));
        assert_true(info->argument_count > 0);
        for (size_t a = 0; a < info->argument_count; a++) {
            const brim_argument_info *argument = brim_stage_argument_at(info, a);
            assert_non_null(argument->name);
            assert_true(argument->help != NULL && strlen(argument->help) > 8);
            if (argument->flags & BRIM_ARGUMENT_FLAG_REQUIRED) {
                assert_null(argument->fallback);
            }
            assert_true((argument->type == BRIM_TYPE_CHOICE) == (argument->choices != NULL));
            assert_true(argument->least <= argument->most);
        }
    }
}

/* ----------------------------------------------------------------- array */

/* Opens an array with these strides and compares every element with plain
 * pointer arithmetic. */
static void check_array(const void *data, brim_dtype dtype, uint32_t rank, const int64_t *shape,
                        const int64_t *strides) {
    brim_binding binding = BRIM_BINDING_INIT;
    binding.name = "a";
    binding.data = data;
    binding.dtype = dtype;
    binding.rank = rank;
    memcpy(binding.shape, shape, rank * sizeof *shape);
    if (strides != NULL) {
        memcpy(binding.strides, strides, rank * sizeof *strides);
    }
    struct opened opened;
    if (open_stage(&opened, &brim__stage_array, "array", "a", NULL, &binding, 1) != BRIM_OK) {
        fail_msg("%s", brim_detail());
    }
    const struct brim__source *source = &opened.source;
    assert_true(source->in_memory && !source->is_file && source->serial == NULL &&
                !source->callback);
    assert_int_equal(source->count, shape[0]);
    assert_string_equal(source->field[0].name, "a");
    const struct brim__view *view = &source->field[0].view;
    assert_int_equal(view->shape.rank, rank - 1);
    int64_t own[BRIM_MAX_RANK], step = (int64_t)brim_dtype_bytes(dtype);
    for (uint32_t i = rank; i-- > 0; step *= shape[i]) {
        own[i] = step;
    }
    if (strides == NULL) {
        strides = own;
    }
    uint64_t elements = 1;
    for (uint32_t i = 1; i < rank; i++) {
        elements *= (uint64_t)shape[i];
    }
    for (uint64_t run = 1; run <= 3; run++) {
        for (uint64_t sample = 0; sample < source->count;) {
            const uint8_t *records;
            uint64_t got;
            assert_int_equal(fetch_run(source, sample, run, NULL, &records, &got), BRIM_OK);
            assert_true(got >= 1 && got <= run && got <= source->most_run);
            for (uint64_t r = 0; r < got; r++) {
                const uint8_t *record = records + r * source->pitch;
                for (uint64_t e = 0; e < elements; e++) {
                    const uint8_t *wanted =
                        (const uint8_t *)data + (int64_t)(sample + r) * strides[0];
                    const uint8_t *found = record + view->offset;
                    uint64_t rest = e;
                    for (uint32_t i = rank - 1; i > 0; i--) {
                        const int64_t at = (int64_t)(rest % (uint64_t)shape[i]);
                        rest /= (uint64_t)shape[i];
                        wanted += at * strides[i];
                        found += at * view->stride[i - 1];
                    }
                    assert_ptr_equal(found, wanted);
                    assert_true(found >= record &&
                                found + brim_dtype_bytes(dtype) <= record + source->record_bytes);
                }
            }
            sample += got;
        }
    }
    char text[64];
    source->ops->describe(source, 1, text, sizeof text);
    assert_string_equal(text, "array @a, sample 1");
    close_opened(&opened);
}

static void test_array_strides(void **state) {
    (void)state;
    static int32_t data[6 * 5 * 4];
    const int64_t shape[] = { 6, 5, 4 };
    check_array(data, BRIM_DTYPE_I32, 3, shape, NULL);
    check_array(data, BRIM_DTYPE_I32, 3, shape, (const int64_t[]){ 80, 16, 4 });
    check_array(data, BRIM_DTYPE_I32, 3, shape, (const int64_t[]){ 4, 24, 120 }); /* Fortran */
    check_array(data, BRIM_DTYPE_I32, 1, (const int64_t[]){ 120 }, NULL);
    check_array(data, BRIM_DTYPE_I32, 1, (const int64_t[]){ 40 }, (const int64_t[]){ 12 });
    check_array(data, BRIM_DTYPE_I32, 2, (const int64_t[]){ 3, 20 }, (const int64_t[]){ 160, 4 });
    /* reversed, in the samples and inside them */
    check_array(data + 100, BRIM_DTYPE_I32, 3, shape, (const int64_t[]){ -80, 16, 4 });
    check_array(data + 16, BRIM_DTYPE_I32, 3, shape, (const int64_t[]){ 80, -16, 4 });
    check_array(data + 119, BRIM_DTYPE_I32, 3, shape, (const int64_t[]){ -80, -16, -4 });
    /* one sample, again and again */
    check_array(data, BRIM_DTYPE_I32, 2, (const int64_t[]){ 100, 4 }, (const int64_t[]){ 0, 4 });
    check_array((const uint8_t *)data + 1, BRIM_DTYPE_C128, 2, (const int64_t[]){ 3, 4 }, NULL);
    check_array(data, BRIM_DTYPE_U8, 8, (const int64_t[]){ 2, 1, 2, 1, 2, 1, 2, 3 }, NULL);
}

static void test_array_refusals(void **state) {
    (void)state;
    static const uint8_t data[64];
    brim_binding good = BRIM_BINDING_INIT;
    good.name = "a";
    good.data = data;
    good.dtype = BRIM_DTYPE_U8;
    good.rank = 2;
    good.shape[0] = 4;
    good.shape[1] = 4;
    assert_int_equal(refuse_array(&good), BRIM_OK);
    brim_binding bad = good;
    bad.data = NULL;
    assert_int_equal(refuse_array(&bad), BRIM_STATUS_INVALID);
    assert_detail_has("array @a");
    bad = good;
    bad.dtype = (brim_dtype)77;
    assert_int_equal(refuse_array(&bad), BRIM_STATUS_INVALID);
    assert_detail_has("77");
    bad = good;
    bad.rank = 0;
    assert_int_equal(refuse_array(&bad), BRIM_STATUS_INVALID);
    bad.rank = BRIM_MAX_RANK + 1;
    assert_int_equal(refuse_array(&bad), BRIM_STATUS_INVALID);
    assert_detail_has("rank 9");
    for (int64_t dim = -1; dim <= 0; dim++) {
        for (int axis = 0; axis < 2; axis++) {
            bad = good;
            bad.shape[axis] = dim;
            assert_int_equal(refuse_array(&bad), BRIM_STATUS_INVALID);
            assert_detail_has("dimension");
        }
    }
    bad = good;
    bad.shape[0] = INT64_MAX;
    assert_int_equal(refuse_array(&bad), BRIM_STATUS_INVALID);
    bad = good;
    bad.strides[0] = INT64_MAX;
    bad.strides[1] = 1;
    assert_int_equal(refuse_array(&bad), BRIM_STATUS_INVALID);
    bad.strides[0] = INT64_MIN;
    assert_int_equal(refuse_array(&bad), BRIM_STATUS_INVALID);
    assert_detail_has("strides");
    struct opened opened;
    assert_int_equal(open_stage(&opened, &brim__stage_array, "array", "a", "a b", &good, 1),
                     BRIM_STATUS_INVALID);
    assert_detail_has("array @a");
    close_opened(&opened);
    assert_int_equal(open_stage(&opened, &brim__stage_array, "array", "a", "b", &good, 1), BRIM_OK);
    assert_string_equal(opened.source.field[0].name, "b");
    close_opened(&opened);
}

/* -------------------------------------------------------------- bindings */

static void test_bindings_are_found_by_name(void **state) {
    (void)state;
    static const uint8_t data[8];
    brim_binding bindings[3];
    for (size_t i = 0; i < 3; i++) {
        bindings[i] = (brim_binding)BRIM_BINDING_INIT;
        bindings[i].name = i == 0 ? "one" : i == 1 ? "a" : "three";
        bindings[i].data = data;
        bindings[i].dtype = BRIM_DTYPE_U8;
        bindings[i].rank = 1;
        bindings[i].shape[0] = (int64_t)i + 1;
    }
    struct opened opened;
    const struct brim__stage *stage = &brim__stage_array;
    assert_int_equal(open_stage(&opened, stage, "array", "a", NULL, bindings, 3), BRIM_OK);
    assert_int_equal(opened.source.count, 2);
    close_opened(&opened);
    assert_int_equal(open_stage(&opened, stage, "array", "two", NULL, bindings, 3),
                     BRIM_STATUS_UNBOUND);
    assert_detail_has("array @two");
    assert_detail_has("@one, @a, @three");
    close_opened(&opened);
    assert_int_equal(open_stage(&opened, stage, "array", "two", NULL, NULL, 0),
                     BRIM_STATUS_UNBOUND);
    assert_detail_has("array @two: nothing is bound");
    close_opened(&opened);
    assert_int_equal(open_stage(&opened, &brim__stage_callback, "callback", "a", NULL, bindings, 3),
                     BRIM_STATUS_INVALID);
    assert_detail_has("callback @a: is bound to an array");
    close_opened(&opened);
    bindings[2].name = "a";
    assert_int_equal(open_stage(&opened, stage, "array", "a", NULL, bindings, 3),
                     BRIM_STATUS_INVALID);
    assert_detail_has("two bindings");
    close_opened(&opened);
    bindings[2].name = NULL;
    assert_int_equal(open_stage(&opened, stage, "array", "a", NULL, bindings, 3),
                     BRIM_STATUS_INVALID);
    assert_detail_has("binding 2 has no name");
    close_opened(&opened);
    bindings[0].size = 0;
    assert_int_equal(open_stage(&opened, stage, "array", "a", NULL, bindings, 3),
                     BRIM_STATUS_INVALID);
    assert_detail_has("BRIM_BINDING_INIT");
    close_opened(&opened);

    /* a caller with a newer header: elements lie further apart */
    struct {
        brim_binding binding;
        uint8_t later[40];
    } newer[2];
    memset(newer, 0, sizeof newer);
    for (size_t i = 0; i < 2; i++) {
        bindings[i].size = sizeof newer[0];
        newer[i].binding = bindings[i];
    }
    assert_int_equal(open_stage(&opened, stage, "array", "a", NULL, &newer[0].binding, 2), BRIM_OK);
    assert_int_equal(opened.source.count, 2);
    close_opened(&opened);
    newer[1].later[39] = 1;
    assert_int_equal(open_stage(&opened, stage, "array", "a", NULL, &newer[0].binding, 2),
                     BRIM_STATUS_UNSUPPORTED);
    close_opened(&opened);
}

static void test_field_names(void **state) {
    (void)state;
    char name[BRIM_NAME_BYTES];
    static const char *const good[] = { "x", "0", "a.b-c_D9",
                                        "12345678901234567890123456789012345678901234567" };
    static const char *const bad[] = { "",    " ",
                                       "a b", "a/b",
                                       "@a",  "\xc3\xa9",
                                       "a\n", "123456789012345678901234567890123456789012345678" };
    for (size_t i = 0; i < BRIM__COUNT(good); i++) {
        assert_int_equal(brim__field_name(name, good[i]), BRIM_OK);
        assert_string_equal(name, good[i]);
    }
    for (size_t i = 0; i < BRIM__COUNT(bad); i++) {
        assert_int_equal(brim__field_name(name, bad[i]), BRIM_STATUS_INVALID);
    }
    assert_int_equal(brim__field_name(name, NULL), BRIM_STATUS_INVALID);
}

/* -------------------------------------------------------------- callback */

struct reader {
    uint64_t calls;
    const char *why; /* fail with it */
};

static int read_sample(void *user, const brim_call *call, brim_value *outputs, size_t output_count,
                       char *why, size_t why_bytes) {
    struct reader *reader = user;
    reader->calls++;
    if (reader->why != NULL) {
        memset(why, 'w', why_bytes); /* not terminated */
        snprintf(why, why_bytes, "%s", reader->why);
        if (reader->why[0] == '!') {
            memset(why, 'w', why_bytes);
        }
        return 7;
    }
    assert_int_equal(output_count, 2);
    assert_string_equal(outputs[0].name, "image");
    assert_int_equal(outputs[0].dtype, BRIM_DTYPE_U8);
    assert_int_equal(outputs[0].rank, 2);
    assert_int_equal(outputs[0].shape[0], 5);
    assert_int_equal(outputs[0].shape[1], 3);
    assert_int_equal(outputs[0].bytes, 15);
    assert_string_equal(outputs[1].name, "label");
    assert_int_equal(outputs[1].rank, 0);
    assert_int_equal(outputs[1].bytes, 8);
    for (size_t i = 0; i < output_count; i++) {
        assert_int_equal((uintptr_t)outputs[i].data % 64, 0);
    }
    memset(outputs[0].data, (int)call->sample, 15);
    const int64_t label = -(int64_t)call->sample;
    memcpy(outputs[1].data, &label, sizeof label);
    memset(outputs, 0xee, output_count * sizeof *outputs); /* it is ours to spoil */
    return 0;
}

static void make_reader(brim_binding *binding, brim_field_spec fields[2], struct reader *reader) {
    fields[0] = (brim_field_spec){ .size = sizeof *fields,
                                   .name = "image",
                                   .dtype = BRIM_DTYPE_U8,
                                   .rank = 2,
                                   .shape = { 5, 3 },
                                   .largest_bytes = 15 };
    fields[1] =
        (brim_field_spec){ .size = sizeof *fields, .name = "label", .dtype = BRIM_DTYPE_I64 };
    *binding = (brim_binding)BRIM_BINDING_INIT;
    binding->name = "reader";
    binding->kind = BRIM_BINDING_SOURCE;
    binding->user = reader;
    binding->count = 10;
    binding->fields = fields;
    binding->field_count = 2;
    binding->read = read_sample;
}

static brim_status open_reader(struct opened *opened, const brim_binding *binding) {
    return open_stage(opened, &brim__stage_callback, "callback", "reader", NULL, binding, 1);
}

static void test_callback_makes_samples(void **state) {
    (void)state;
    struct reader reader = { 0 };
    brim_field_spec fields[2];
    brim_binding binding;
    struct opened opened;
    make_reader(&binding, fields, &reader);
    assert_int_equal(open_reader(&opened, &binding), BRIM_OK);
    const struct brim__source *source = &opened.source;
    memset(fields, 0xee, sizeof fields); /* they were copied */
    assert_int_equal(source->count, 10);
    assert_int_equal(source->record_bytes, 128);
    assert_int_equal(source->most_run, 1);
    assert_true(source->callback && source->serial != NULL && !source->in_memory &&
                !source->is_file);
    assert_int_equal(source->field[1].view.offset, 64);
    uint8_t *buffer = new_buffer(source, 1);
    for (uint64_t sample = 0; sample < 10; sample++) {
        const uint8_t *record;
        uint64_t got;
        double value[2];
        assert_int_equal(fetch_run(source, sample, 4, buffer, &record, &got), BRIM_OK);
        assert_int_equal(got, 1);
        for (uint64_t i = 0; i < 15; i++) {
            read_element(&source->field[0].view, record, i, value);
            assert_true(value[0] == (double)sample);
        }
        read_element(&source->field[1].view, record, 0, value);
        assert_true(value[0] == -(double)sample);
    }
    assert_int_equal(reader.calls, 10);

    const uint8_t *record;
    uint64_t got;
    reader.why = "the disk is on fire";
    assert_int_equal(fetch_run(source, 3, 1, buffer, &record, &got), BRIM_STATUS_CALLBACK);
    assert_detail_has("the disk is on fire");
    reader.why = "";
    assert_int_equal(fetch_run(source, 3, 1, buffer, &record, &got), BRIM_STATUS_CALLBACK);
    assert_detail_has("no reason");
    reader.why = "!";
    assert_int_equal(fetch_run(source, 3, 1, buffer, &record, &got), BRIM_STATUS_CALLBACK);
    assert_detail_has("wwwwwww (it returned 7)");
    free(buffer);
    close_opened(&opened);

    make_reader(&binding, fields, &reader);
    binding.flags = BRIM_CALLBACK_CONCURRENT;
    assert_int_equal(open_reader(&opened, &binding), BRIM_OK);
    assert_false(opened.source.serial);
    close_opened(&opened);
}

static void test_callback_promises_are_checked(void **state) {
    (void)state;
    struct reader reader = { 0 };
    brim_field_spec fields[BRIM__MAX_FIELDS + 1];
    brim_binding binding;
    struct opened opened;
    static const char *const says[] = { "two fields",
                                        "77 is not a dtype",
                                        "rank 8",
                                        "dimension 0 is 0",
                                        "dimension 1 is -5",
                                        "addressed",
                                        "addressed",
                                        "largest_bytes is 14",
                                        "field 1",
                                        "`read` is NULL",
                                        "`count` is 0",
                                        "callback @reader: 0 fields",
                                        "fields, but a sample has",
                                        "size is 7",
                                        "NULL" };
    for (size_t i = 0; i < BRIM__COUNT(says); i++) {
        make_reader(&binding, fields, &reader);
        switch (i) {
        case 0:
            fields[1].name = "image";
            break;
        case 1:
            fields[0].dtype = (brim_dtype)77;
            break;
        case 2:
            fields[0].rank = BRIM_MAX_RANK;
            break;
        case 3:
            fields[0].shape[0] = 0;
            break;
        case 4:
            fields[0].shape[1] = -5;
            break;
        case 5:
            fields[0].shape[0] = INT64_MAX;
            break;
        case 6:
            fields[0].shape[0] = INT64_MAX / 3;
            break;
        case 7:
            fields[0].largest_bytes = 14;
            break;
        case 8:
            fields[1].name = NULL;
            break;
        case 9:
            binding.read = NULL;
            break;
        case 10:
            binding.count = 0;
            break;
        case 11:
            binding.field_count = 0;
            break;
        case 12:
            binding.field_count = BRIM__MAX_FIELDS + 1;
            break;
        case 13:
            fields[0].size = 7;
            break;
        default:
            binding.fields = NULL;
            break;
        }
        assert_int_equal(open_reader(&opened, &binding), BRIM_STATUS_INVALID);
        assert_detail_has("callback");
        assert_detail_has("@reader");
        assert_detail_has(says[i]);
        close_opened(&opened);
    }
    make_reader(&binding, fields, &reader);
    assert_int_equal(open_reader(&opened, &binding), BRIM_OK);
    const uint64_t identity = opened.source.identity;
    close_opened(&opened);
    fields[1].name = "other";
    assert_int_equal(open_reader(&opened, &binding), BRIM_OK);
    assert_true(opened.source.identity != identity);
    close_opened(&opened);
}

/* ----------------------------------------------------------------- range */

static void test_range(void **state) {
    (void)state;
    struct opened opened;
    assert_int_equal(open_stage(&opened, &brim__stage_range, "count", "100000", NULL, NULL, 0),
                     BRIM_OK);
    const struct brim__source *source = &opened.source;
    assert_int_equal(source->count, 100000);
    assert_string_equal(source->field[0].name, "index");
    assert_int_equal(source->field[0].view.dtype, BRIM_DTYPE_I64);
    assert_int_equal(source->field[0].view.shape.rank, 0);
    uint8_t *buffer = new_buffer(source, source->most_run);
    for (uint64_t sample = 0; sample < 100000;) {
        const uint8_t *records;
        uint64_t got;
        assert_int_equal(fetch_run(source, sample, 20000, buffer, &records, &got), BRIM_OK);
        assert_true(got == source->most_run || sample + got == 100000);
        for (uint64_t i = 0; i < got; i++) {
            int64_t number;
            memcpy(&number, records + i * source->pitch, sizeof number);
            assert_int_equal(number, sample + i);
        }
        sample += got;
    }
    free(buffer);
    close_opened(&opened);
    assert_int_equal(open_stage(&opened, &brim__stage_range, "count", "5", "n", NULL, 0), BRIM_OK);
    assert_string_equal(opened.source.field[0].name, "n");
    close_opened(&opened);
    assert_int_equal(open_stage(&opened, &brim__stage_range, "count", "5", "n n", NULL, 0),
                     BRIM_STATUS_INVALID);
    close_opened(&opened);
}

/* ---------------------------------------------------------------- faults */

static void write_fixtures(void) {
    static const char text[] = "{'descr':'<u2','fortran_order':False,'shape':(30,2)}";
    uint8_t bytes[512] = "\x93NUMPY\1";
    bytes[8] = sizeof text - 1;
    memcpy(bytes + 10, text, sizeof text - 1);
    write_file(scratch_path("a.npy").text, bytes, 10 + sizeof text - 1 + 120);
    write_file(scratch_path("b.npy").text, bytes, 10 + sizeof text - 1 + 120);
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, "MMIDIDX\0\0\1", 10);
    bytes[17] = 8; /* u16, one sequence of 100 tokens, no documents */
    bytes[18] = 1;
    bytes[34] = 100;
    write_file(scratch_path("m.idx").text, bytes, 46);
    write_file(scratch_path("m.bin").text, bytes, 200);
    write_file(scratch_path("p.bin").text, bytes, 200);
}

/* Opens a source, fetches all of it twice, and closes it: the first failure. */
static brim_status exercise(const struct test_use *use, const brim_binding *binding) {
    struct opened opened;
    brim_status status = open_use(&opened, use, binding, binding == NULL ? 0 : 1);
    if (status == BRIM_OK) {
        const struct brim__source *source = &opened.source;
        uint8_t *buffer = new_buffer(source, 4);
        for (uint64_t sample = 0; sample < source->count && status == BRIM_OK;) {
            const uint8_t *records;
            uint64_t got = 0;
            status = fetch_run(source, sample, 4, buffer, &records, &got);
            sample += got;
        }
        free(buffer);
    }
    close_opened(&opened);
    return status;
}

static void test_every_refusal_of_the_system(void **state) {
    (void)state;
    write_fixtures();
    struct reader reader = { 0 };
    brim_field_spec fields[2];
    brim_binding binding;
    make_reader(&binding, fields, &reader);
    const struct path a = scratch_path("a.npy"), b = scratch_path("b.npy"),
                      m = scratch_path("m.bin"), p = scratch_path("p.bin");
    struct test_use uses[6];
    for (size_t i = 0; i < 2; i++) {
        use_init(&uses[i], &brim__stage_npy);
        use_set(&uses[i], "files", a.text);
        use_set(&uses[i], "files", b.text);
        use_set(&uses[i], "map", i == 0 ? "no" : "yes");
    }
    for (size_t i = 2; i < 5; i++) {
        use_init(&uses[i], &brim__stage_tokens);
        use_set(&uses[i], "files", i == 2 ? p.text : m.text);
        use_set(&uses[i], "length", "7");
        use_set(&uses[i], "map", i == 4 ? "yes" : "no");
    }
    use_init(&uses[5], &brim__stage_callback);
    use_set(&uses[5], "callback", "reader");
    const unsigned all = (1u << BRIM__FAULT_KINDS) - 1;
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(exercise(&uses[i], &binding), BRIM_OK);
        for (int for_ever = 0; for_ever < 2; for_ever++) {
            uint64_t nth = 0, injected;
            do {
                const size_t before = open_descriptors();
                brim__fault_arm(all, ++nth, for_ever);
                const brim_status status = exercise(&uses[i], &binding);
                injected = brim__fault_injected();
                brim__fault_arm(0, 0, false);
                if ((status == BRIM_OK) != (injected == 0)) {
                    fail_msg("use %zu, fault %llu: status %d, %llu injected", i,
                             (unsigned long long)nth, (int)status, (unsigned long long)injected);
                }
                if (injected > 0) {
                    assert_true(status == BRIM_STATUS_IO || status == BRIM_STATUS_MEMORY);
                    assert_true(strlen(brim_detail()) > 0);
                }
                assert_int_equal(open_descriptors(), before);
                assert_true(nth < 1000);
            } while (injected > 0);
            assert_true(nth > (i < 5 ? 5 : 1)); /* there was something to refuse */
            assert_int_equal(exercise(&uses[i], &binding), BRIM_OK);
        }
    }
}

static void test_too_many_files(void **state) {
    (void)state;
    write_fixtures();
    struct test_use use;
    use_init(&use, &brim__stage_npy);
    const struct path a = scratch_path("a.npy");
    for (size_t i = 0; i < USE_ITEMS; i++) {
        use_set(&use, "files", a.text);
    }
    struct rlimit limit, tight;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const size_t before = open_descriptors();
    tight = limit;
    tight.rlim_cur = (rlim_t)dup(0) + 4; /* four more, once the dup is closed again */
    close((int)tight.rlim_cur - 4);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    struct opened opened;
    const brim_status status = open_use(&opened, &use, NULL, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, BRIM_STATUS_MEMORY);
    assert_detail_has("number 5 of 8");
    assert_detail_has("ulimit -n");
    close_opened(&opened);
    assert_int_equal(open_descriptors(), before);

    /* more than any list may have is refused before memory is taken */
    use.values[0].count = 100001;
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_STATUS_INVALID);
    assert_detail_has("100001 files");
    assert_int_equal(opened.arena.bytes, 0);
    close_opened(&opened);
}

/* A file cut short while in use is bad data, not the system's failure. */
static void test_file_shrinks(void **state) {
    (void)state;
    write_fixtures();
    struct test_use use;
    struct opened opened;
    const struct path a = scratch_path("a.npy");
    use_init(&use, &brim__stage_npy);
    use_set(&use, "files", a.text);
    assert_int_equal(open_use(&opened, &use, NULL, 0), BRIM_OK);
    assert_int_equal(truncate(a.text, 100), 0);
    uint8_t *buffer = new_buffer(&opened.source, 4);
    const uint8_t *records;
    uint64_t got;
    assert_int_equal(fetch_run(&opened.source, 0, 4, buffer, &records, &got), BRIM_OK);
    assert_int_equal(fetch_run(&opened.source, 20, 4, buffer, &records, &got), BRIM_STATUS_CORRUPT);
    assert_detail_has("a.npy");
    free(buffer);
    close_opened(&opened);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_complete),
        cmocka_unit_test(test_array_strides),
        cmocka_unit_test(test_array_refusals),
        cmocka_unit_test(test_bindings_are_found_by_name),
        cmocka_unit_test(test_field_names),
        cmocka_unit_test(test_callback_makes_samples),
        cmocka_unit_test(test_callback_promises_are_checked),
        cmocka_unit_test(test_range),
        cmocka_unit_test(test_every_refusal_of_the_system),
        cmocka_unit_test(test_too_many_files),
        cmocka_unit_test(test_file_shrinks),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
