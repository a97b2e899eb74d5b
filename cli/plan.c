/*
 * plan.c: `brim plan`: what a pipeline will do and need, before it runs.
 *
 * A pipeline that does not fit is shown all the same, with the reason, and the
 * exit code says so.
 */
#include "cli.h"
#include "holders.h"
#include "session.h"

#include <inttypes.h>

static void print_json(const brim_plan *plan, const struct session *session) {
    const brim_plan_info *info = brim_plan_get(plan);
    struct document json = { .file = stdout };
    put_object(&json, NULL);
    put_text(&json, "pipeline", brim_pipeline_text(session->pipeline));
    put_bool(&json, "fits", info->fits != 0);
    put_text(&json, "reason", info->reason);
    put_count(&json, "minimum_bytes", info->minimum_bytes);
    put_count(&json, "planned_bytes", info->planned_bytes);
    put_count(&json, "limit_bytes", info->limit_bytes);
    put_text(&json, "limit_origin", info->limit_origin);
    put_count(&json, "slot_bytes", info->slot_bytes);
    put_count(&json, "scratch_bytes", info->scratch_bytes);
    put_count(&json, "stack_bytes", info->stack_bytes);
    put_count(&json, "fixed_bytes", info->fixed_bytes);
    put_count(&json, "threads", info->threads);
    put_count(&json, "slots", info->slots);
    put_count(&json, "minimum_slots", info->minimum_slots);
    put_count(&json, "hold", info->hold);
    put_known(&json, "samples", info->samples);
    put_known(&json, "batches", info->batches);
    put_known(&json, "steps", info->steps);
    put_count(&json, "batch_rows", info->batch_rows);
    put_bool(&json, "sequenced", info->sequenced != 0);
    put_count(&json, "window_bytes", info->window_bytes);
    put_device(&json, session->options);
    put_count(&json, "device_slot_bytes", info->device_slot_bytes);
    put_count(&json, "device_slots", info->device_slots);
    put_count(&json, "minimum_device_slots", info->minimum_device_slots);
    put_count(&json, "device_fixed_bytes", info->device_fixed_bytes);
    put_count(&json, "minimum_device_bytes", info->minimum_device_bytes);
    put_count(&json, "planned_device_bytes", info->planned_device_bytes);
    put_count(&json, "minimum_pinned_bytes", info->minimum_pinned_bytes);
    put_count(&json, "planned_pinned_bytes", info->planned_pinned_bytes);
    put_array(&json, "fields");
    for (uint32_t i = 0; i < info->field_count; i++) {
        const brim_plan_field *field = brim_plan_field_at(plan, i);
        put_object(&json, NULL);
        put_text(&json, "name", field->name);
        put_text(&json, "dtype", brim_dtype_name(field->dtype));
        put_text(&json, "form", form_name(field->form));
        put_array(&json, "shape");
        for (uint32_t d = 0; d < field->rank; d++) {
            put_signed(&json, NULL, field->shape[d]);
        }
        end_array(&json);
        put_count(&json, "bytes", field->bytes);
        put_bool(&json, "converted_on_device", field->converted != 0);
        end_object(&json);
    }
    end_array(&json);
    put_array(&json, "stages");
    for (uint32_t i = 0; i < info->stage_count; i++) {
        const brim_plan_stage *stage = brim_plan_stage_at(plan, i);
        put_object(&json, NULL);
        put_text(&json, "name", stage->name);
        put_text(&json, "text", stage->text);
        put_text(&json, "effect", stage->effect);
        put_count(&json, "bytes", stage->bytes);
        put_bool(&json, "fused", stage->fused != 0);
        end_object(&json);
    }
    end_array(&json);
    put_object(&json, "fingerprints");
    put_hex(&json, "data", info->data_fingerprint);
    put_hex(&json, "sample", info->sample_fingerprint);
    put_hex(&json, "order", info->order_fingerprint);
    end_object(&json);
    end_object(&json);
}

static void print_stages(const brim_plan *plan) {
    const brim_plan_info *info = brim_plan_get(plan);
    struct table table = { .columns = 3, .right = 1u << 1 };
    table_row(&table, (const char *[]){ "stage", "at most", "puts out" });
    bool fused = false;
    for (uint32_t i = 0; i < info->stage_count; i++) {
        const brim_plan_stage *stage = brim_plan_stage_at(plan, i);
        char name[CELL_BYTES], bytes[NUMBER_TEXT];
        snprintf(name, sizeof name, "%s%s", stage->fused ? "+ " : "", stage->text);
        table_row(&table,
                  (const char *[]){ name, bytes_text((double)stage->bytes, bytes), stage->effect });
        fused |= stage->fused != 0;
    }
    table_print(&table, stdout);
    if (fused) {
        puts("(+ is done in one pass with the stage before it)");
    }
}

static void print_fields(const brim_plan *plan) {
    const brim_plan_info *info = brim_plan_get(plan);
    struct table table = { .columns = 4, .right = 1u << 3 };
    table_row(&table, (const char *[]){ "field", "dtype", "shape", "a batch" });
    for (uint32_t i = 0; i < info->field_count; i++) {
        const brim_plan_field *field = brim_plan_field_at(plan, i);
        char type[NUMBER_TEXT], shape[SHAPE_TEXT], bytes[NUMBER_TEXT];
        table_row(&table, (const char *[]){ field->name, field_type_text(field, type),
                                            field_shape_text(field, true, shape),
                                            bytes_text((double)field->bytes, bytes) });
    }
    table_print(&table, stdout);
}

/* What is delivered on a device takes there, and in page-locked memory. */
static void print_device(const brim_plan *plan, const struct options *options) {
    const brim_plan_info *info = brim_plan_get(plan);
    char device[DEVICE_TEXT], a[NUMBER_TEXT], b[NUMBER_TEXT];
    printf("device       %s: %" PRIu32 " slots of %s, at least %" PRIu32 " for --hold %" PRIu32
           "\n",
           device_text(options->device, options->device_index, device), info->device_slots,
           bytes_text((double)info->device_slot_bytes, a), info->minimum_device_slots, info->hold);
    printf("             minimum %s (%" PRIu64 " bytes), planned %s\n",
           bytes_text((double)info->minimum_device_bytes, a), info->minimum_device_bytes,
           bytes_text((double)info->planned_device_bytes, b));
    printf("page-locked  minimum %s (%" PRIu64 " bytes), planned %s\n",
           bytes_text((double)info->minimum_pinned_bytes, a), info->minimum_pinned_bytes,
           bytes_text((double)info->planned_pinned_bytes, b));
    for (uint32_t i = 0; i < info->field_count; i++) {
        const brim_plan_field *field = brim_plan_field_at(plan, i);
        if (field->converted) {
            printf("converted    %s: uploaded as uint8, converted to %s on the device\n",
                   field->name, brim_dtype_name(field->dtype));
        }
    }
}

static void print_table(const brim_plan *plan, const struct options *options) {
    const brim_plan_info *info = brim_plan_get(plan);
    char a[NUMBER_TEXT], b[NUMBER_TEXT], c[NUMBER_TEXT], d[NUMBER_TEXT];
    print_stages(plan);
    putchar('\n');
    print_fields(plan);
    printf("\nepoch        %s samples, %s batches", count_text(info->samples, a),
           count_text(info->batches, b));
    if (info->steps != info->batches) {
        printf(" in %s steps", count_text(info->steps, c));
    }
    printf("\nminimum      %s (%" PRIu64 " bytes)\n", bytes_text((double)info->minimum_bytes, a),
           info->minimum_bytes);
    printf("planned      %s: slots of %s, scratch of %s and a stack of %s for each thread\n",
           bytes_text((double)info->planned_bytes, a), bytes_text((double)info->slot_bytes, b),
           bytes_text((double)info->scratch_bytes, c), bytes_text((double)info->stack_bytes, d));
    if (info->sequenced) {
        printf("window       %s: the plan is sequenced\n",
               bytes_text((double)info->window_bytes, a));
    }
    printf("limit        %s: ", bytes_text((double)info->limit_bytes, a));
    put_clean(stdout, info->limit_origin);
    printf("\nthreads      %" PRIu32 "%s\n", info->threads,
           info->threads == 0 ? ", the calling thread works" : "");
    if (options->device == BRIM_DEVICE_HOST) {
        printf("slots        %" PRIu32 ", at least %" PRIu32 " for --hold %" PRIu32 "\n",
               info->slots, info->minimum_slots, info->hold);
    } else {
        printf("slots        %" PRIu32 " for staging, at least %" PRIu32 "\n", info->slots,
               info->minimum_slots);
        print_device(plan, options);
    }
    printf("fingerprint  data %016" PRIx64 ", sample %016" PRIx64 ", order %016" PRIx64 "\n",
           info->data_fingerprint, info->sample_fingerprint, info->order_fingerprint);
    printf("fits         %s\n", info->fits ? "yes" : "no");
}

int command_plan(const struct options *options) {
    struct session session;
    int code = session_begin(&session, options);
    if (code == EXIT_GOOD) {
        brim_plan *plan;
        const brim_status status = session_plan(&session, &plan);
        if (status != BRIM_OK) {
            const struct failure failure = failure_now(&session, status);
            code = failure_tell(options, &failure);
        } else {
            const brim_plan_info *info = brim_plan_get(plan);
            if (options->json) {
                print_json(plan, &session);
            } else {
                print_table(plan, options);
            }
            if (!info->fits) {
                struct failure failure = { .status = BRIM_STATUS_BUDGET };
                snprintf(failure.text, sizeof failure.text, "%s", info->reason);
                failure_minimum(&failure, &session, info);
                code = failure_print(options, &failure);
            }
            brim_plan_free(plan);
        }
    }
    session_end(&session);
    return code;
}
