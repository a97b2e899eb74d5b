/*
 * session.c: opening, running and closing a loader, and what came out of it.
 */
#include "support/support.h"

#include "engine/chain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define PLENTY ((uint64_t)512 << 20)

/* ----------------------------------------------------------------- opening */

static brim_open_options options_of(const struct how *how) {
    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;
    options.rank = how->rank;
    options.world = how->world;
    options.hold = how->hold;
    options.growth = how->growth;
    options.bindings = how->bindings;
    options.binding_count = how->binding_count;
    options.device_kind = how->device;
    options.device_index = how->device_index;
    options.device_queue = how->queue;
    options.slots = how->slots;
    options.beyond = how->beyond;
    return options;
}

static void assert_ok(brim_status status, const char *what, const char *text) {
    if (status != BRIM_OK) {
        fail_msg("%s of \"%s\": %s: %s", what, text, brim_status_name(status), brim_detail());
    }
}

static brim_runtime *new_runtime(const struct how *how, uint64_t bytes, uint64_t pinned,
                                 uint64_t device) {
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    brim_runtime *runtime;
    options.threads = how->threads;
    options.host_bytes = bytes;
    options.pinned_bytes = pinned;
    options.device_bytes = device;
    assert_ok(brim_runtime_new(&options, &runtime), "a runtime", "");
    return runtime;
}

/* What the plan calls the smallest limits in which the pipeline opens. */
static brim_plan_info minimum_of(const brim_pipeline *pipeline, const char *text,
                                 const struct how *how) {
    const brim_open_options options = options_of(how);
    brim_runtime *runtime = new_runtime(how, PLENTY, 0, 0);
    brim_plan *plan;
    assert_ok(brim_plan_new(runtime, pipeline, &options, &plan), "a plan", text);
    const brim_plan_info info = *brim_plan_get(plan);
    brim_plan_free(plan);
    brim_runtime_free(runtime);
    return info;
}

static uint64_t limit(uint64_t given, uint64_t minimum, uint64_t usual) {
    return given == AT_MINIMUM ? minimum : given == 0 ? usual : given;
}

static uint64_t charged_of(brim_runtime *runtime) {
    brim_usage usage = BRIM_USAGE_INIT;
    assert_int_equal(brim_runtime_read_usage(runtime, &usage), BRIM_OK);
    return usage.charged + usage.reserved;
}

void session_open(struct session *session, const char *text, const struct how *how) {
    const brim_open_options options = options_of(how);
    brim_pipeline *pipeline;
    *session = (struct session){ .hold = how->hold == 0 ? 1 : how->hold };
    assert_true(session->hold <= MOST_HELD);
    assert_ok(brim_pipeline_parse(text, &pipeline), "parsing", text);
    brim_plan_info least = { 0 };
    if (how->bytes == AT_MINIMUM || how->device_bytes == AT_MINIMUM ||
        how->pinned_bytes == AT_MINIMUM) {
        least = minimum_of(pipeline, text, how);
    }
    session->runtime = new_runtime(how, limit(how->bytes, least.minimum_bytes, PLENTY),
                                   limit(how->pinned_bytes, least.minimum_pinned_bytes, 0),
                                   limit(how->device_bytes, least.minimum_device_bytes, 0));
    session->kind = brim_device_memory(how->device, how->device_index);
    session->charged_before = charged_of(session->runtime);
    assert_ok(brim_loader_open(session->runtime, pipeline, &options, &session->loader), "opening",
              text);
    brim_pipeline_free(pipeline);
}

/* Neither page-locked nor device memory was ever above its limit or what was planned. */
static void check_device(struct session *session) {
    const brim_plan_info *info = brim_plan_get(brim_loader_plan(session->loader));
    brim_budget *budget = brim_runtime_budget(session->runtime);
    brim_budget_info device = BRIM_BUDGET_INFO_INIT, pinned = BRIM_BUDGET_INFO_INIT;
    assert_int_equal(brim_budget_read(budget, session->kind, &device), BRIM_OK);
    assert_int_equal(brim_budget_read(budget, BRIM_MEMORY_PINNED, &pinned), BRIM_OK);
    assert_true(device.peak <= device.limit && device.peak <= info->planned_device_bytes);
    assert_true(pinned.peak <= pinned.limit && pinned.peak <= info->planned_pinned_bytes);
    assert_true(device.peak >= info->minimum_device_bytes);
}

static void check_all_given_back(struct session *session) {
    for (int kind = BRIM_MEMORY_PINNED; kind < BRIM_MEMORY_KINDS; kind++) {
        brim_budget_info info = BRIM_BUDGET_INFO_INIT;
        assert_int_equal(
            brim_budget_read(brim_runtime_budget(session->runtime), (brim_memory)kind, &info),
            BRIM_OK);
        assert_int_equal(info.charged + info.reserved, 0);
    }
}

void session_close(struct session *session) {
    brim_usage usage = BRIM_USAGE_INIT;
    if (session->kind != BRIM_MEMORY_HOST) {
        check_device(session);
    }
    assert_int_equal(session->held_count, 0);
    assert_int_equal(brim_runtime_read_usage(session->runtime, &usage), BRIM_OK);
    assert_true(usage.peak <= usage.limit);
    assert_true(usage.peak <= brim_plan_get(brim_loader_plan(session->loader))->planned_bytes);
    brim_loader_close(session->loader);
    assert_int_equal(brim_runtime_trim(session->runtime, NULL), BRIM_OK);
    assert_int_equal(charged_of(session->runtime), session->charged_before);
    check_all_given_back(session);
    brim_runtime_free(session->runtime);
}

/* What holds of the slots whenever nobody has the lock. */
static void check_slots(struct session *session) {
    brim__lock(&session->loader->mutex);
    brim__chain_check(session->loader);
    brim__unlock(&session->loader->mutex);
}

void session_restore(struct session *session, const brim_state *state) {
    assert_ok(brim_loader_restore(session->loader, state), "restoring", "");
    check_slots(session);
}

brim_state session_state(struct session *session) {
    brim_state state;
    assert_ok(brim_loader_state(session->loader, &state), "the state", "");
    return state;
}

void assert_detail_has(const char *part) {
    if (strstr(brim_detail(), part) == NULL) {
        fail_msg("\"%s\" is not in the detail \"%s\"", part, brim_detail());
    }
}

void expect_refused(const char *text, const struct how *how, brim_status status, const char *part) {
    const brim_open_options options = options_of(how);
    brim_runtime *runtime = new_runtime(how, how->bytes == 0 ? PLENTY : how->bytes,
                                        how->pinned_bytes, how->device_bytes);
    const uint64_t before = charged_of(runtime);
    brim_pipeline *pipeline = NULL;
    brim_loader *loader = NULL;
    brim_status got = brim_pipeline_parse(text, &pipeline);
    if (got == BRIM_OK) {
        got = brim_loader_open(runtime, pipeline, &options, &loader);
    }
    if (got != status || strstr(brim_detail(), part) == NULL) {
        fail_msg("\"%s\" gave %s (%s), not %s with \"%s\"", text, brim_status_name(got),
                 brim_detail(), brim_status_name(status), part);
    }
    assert_null(loader);
    assert_int_equal(charged_of(runtime), before);
    brim_pipeline_free(pipeline);
    brim_runtime_free(runtime);
}

/* ------------------------------------------------------------------ taking */

static void let_go(struct session *session, batch_visit *visit, void *user) {
    brim_batch *oldest = session->held[0];
    visit(user, oldest);
    brim_batch_release(oldest);
    session->held_count--;
    memmove(session->held, session->held + 1, session->held_count * sizeof session->held[0]);
}

bool take_batches(struct session *session, uint64_t most, batch_visit *visit, void *user) {
    brim_status status = BRIM_OK;
    for (uint64_t taken = 0; taken < most; taken++) {
        while (session->held_count >= session->hold) {
            let_go(session, visit, user);
        }
        brim_batch *batch;
        status = brim_loader_next(session->loader, BRIM_FOREVER, &batch);
        if (status != BRIM_OK) {
            break;
        }
        session->held[session->held_count++] = batch;
        check_slots(session);
    }
    while (session->held_count > 0) {
        let_go(session, visit, user);
    }
    if (status != BRIM_OK && status != BRIM_STATUS_END) {
        fail_msg("next: %s: %s", brim_status_name(status), brim_detail());
    }
    return status == BRIM_STATUS_END;
}

brim_batch *take_batch(struct session *session) {
    brim_batch *batch = NULL;
    assert_ok(brim_loader_next(session->loader, BRIM_FOREVER, &batch), "next", "");
    return batch;
}

/* ----------------------------------------------------------------- digests */

/* The bytes of one row. Inside a row brim lays elements out row-major; rows lie
 * one behind the other, or further apart where they are padded. */
static const char *row_bytes(const brim_field *field, uint64_t row, size_t *bytes) {
    int64_t stride = (int64_t)brim_dtype_bytes(field->dtype);
    for (uint32_t i = field->rank; i-- > (field->form == BRIM_FORM_DENSE ? 1u : 2u);) {
        assert_int_equal(field->strides[i], stride);
        stride *= field->shape[i];
    }
    if (field->form == BRIM_FORM_DENSE) {
        assert_true(field->strides[0] >= stride);
        *bytes = (size_t)stride;
        return (const char *)field->data + (int64_t)row * field->strides[0];
    }
    const int64_t *offsets = field->offsets + row;
    assert_int_equal(field->offsets[0], 0);
    assert_int_equal(field->offsets[field->shape[0]] * stride, field->bytes);
    assert_true(offsets[0] <= offsets[1]);
    *bytes = (size_t)((offsets[1] - offsets[0]) * stride);
    return (const char *)field->data + offsets[0] * stride;
}

/* A field as it is on the host: of one on a device, what is read back into *memory, which
 * the caller frees. Rows of it lie close together. */
static brim_field on_host(const brim_batch *batch, uint32_t index, void **memory) {
    brim_field field = *brim_batch_field_at(batch, index);
    *memory = NULL;
    if (field.device_kind != BRIM_DEVICE_HOST) {
        *memory = malloc(field.bytes + 1);
        assert_non_null(*memory);
        assert_ok(brim_batch_copy_field(batch, index, *memory, field.bytes), "reading", field.name);
        field.data = *memory;
        if (field.form == BRIM_FORM_DENSE && field.shape[0] > 0) {
            field.strides[0] = (int64_t)field.bytes / field.shape[0];
        }
    }
    return field;
}

void digest_batch(void *user, const brim_batch *batch) {
    struct digest *digest = user;
    const brim_batch_info *info = brim_batch_get(batch);
    const uint64_t numbers[] = { digest->value,     info->epoch,          info->step,
                                 info->micro,       info->micro_count,    info->rows,
                                 info->valid_rows,  info->skipped,        info->step_rows,
                                 info->global_rows, info->first_position, info->field_count };
    uint64_t value = XXH3_64bits(numbers, sizeof numbers);
    value = XXH3_64bits_withSeed(info->samples, info->rows * sizeof info->samples[0], value);
    value = XXH3_64bits_withSeed(info->valid, info->rows, value);
    for (uint32_t i = 0; i < info->field_count; i++) {
        void *memory;
        const brim_field field = on_host(batch, i, &memory);
        value = XXH3_64bits_withSeed(field.name, strlen(field.name), value + field.dtype);
        value = XXH3_64bits_withSeed(field.shape, field.rank * sizeof field.shape[0], value);
        for (uint64_t r = 0; r < info->rows; r++) {
            size_t bytes;
            const char *row = row_bytes(&field, r, &bytes);
            value = XXH3_64bits_withSeed(row, bytes, value + bytes);
        }
        free(memory);
    }
    digest->value = value;
    digest->batches++;
}

/* -------------------------------------------------------------------- logs */

static void *grown(void *array, size_t *capacity, size_t wanted, size_t element) {
    if (wanted > *capacity) {
        *capacity = 2 * wanted;
        array = realloc(array, *capacity * element);
        assert_non_null(array);
    }
    return array;
}

void log_batch(void *user, const brim_batch *batch) {
    struct log *log = user;
    const brim_batch_info *info = brim_batch_get(batch);
    log->batch = grown(log->batch, &log->batch_capacity, log->batches + 1, sizeof log->batch[0]);
    log->row = grown(log->row, &log->row_capacity, log->rows + info->rows, sizeof log->row[0]);
    struct logged *logged = &log->batch[log->batches++];
    *logged = (struct logged){ .info = *info, .first_row = log->rows };
    logged->info.samples = NULL;
    logged->info.valid = NULL;
    for (uint64_t r = 0; r < info->rows; r++) {
        log->row[log->rows + r] =
            (struct row){ .id = info->samples[r], .valid = info->valid[r] == 1 };
        assert_true(info->valid[r] <= 1);
    }
    for (uint32_t f = 0; f < info->field_count; f++) {
        void *memory;
        const brim_field field = on_host(batch, f, &memory);
        for (uint64_t r = 0; r < info->rows; r++) {
            struct row *row = &log->row[log->rows + r];
            size_t bytes;
            const char *at = row_bytes(&field, r, &bytes);
            row->hash = XXH3_64bits_withSeed(at, bytes, row->hash + f);
        }
        free(memory);
    }
    log->rows += info->rows;
}

void log_free(struct log *log) {
    free(log->row);
    free(log->batch);
    *log = (struct log){ 0 };
}

void log_run(struct log *log, const char *text, const struct how *how, unsigned epochs) {
    struct session session;
    session_open(&session, text, how);
    for (unsigned i = 0; i < epochs; i++) {
        assert_true(take_batches(&session, TO_THE_END, log_batch, log));
    }
    session_close(&session);
}

void assert_info_equal(const brim_batch_info *a, const brim_batch_info *b) {
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->micro, b->micro);
    assert_int_equal(a->micro_count, b->micro_count);
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->valid_rows, b->valid_rows);
    assert_int_equal(a->skipped, b->skipped);
    assert_int_equal(a->step_rows, b->step_rows);
    assert_int_equal(a->global_rows, b->global_rows);
    assert_int_equal(a->first_position, b->first_position);
    assert_int_equal(a->field_count, b->field_count);
}

void assert_rows_equal(const struct row *a, const struct row *b, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (a[i].id != b[i].id || a[i].hash != b[i].hash || a[i].valid != b[i].valid) {
            fail_msg("row %zu: sample %llu (%s, %016llx) and sample %llu (%s, %016llx)", i,
                     (unsigned long long)a[i].id, a[i].valid ? "valid" : "padded",
                     (unsigned long long)a[i].hash, (unsigned long long)b[i].id,
                     b[i].valid ? "valid" : "padded", (unsigned long long)b[i].hash);
        }
    }
}
