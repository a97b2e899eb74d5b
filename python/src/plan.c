/*
 * plan.c: a plan as a dict; brim._plan makes it a table.
 */
#include "extension.h"

#include <string.h>

/* A count, or None where it is not known. */
static PyObject *count_or_none(uint64_t count) {
    return count == BRIM_UNKNOWN ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(count);
}

static PyObject *describe_field(const brim_plan *plan, size_t index) {
    static const char *const forms[] = { "dense", "ragged", "text", "bytes" };
    const brim_plan_field *field = brim_plan_field_at(plan, index);
    if (field == NULL) {
        return NULL;
    }
    PyObject *shape = PyTuple_New((Py_ssize_t)field->rank);
    for (uint32_t i = 0; shape != NULL && i < field->rank; i++) {
        PyObject *size = PyLong_FromLongLong(field->shape[i]);
        if (size == NULL || PyTuple_SetItem(shape, (Py_ssize_t)i, size) != 0) {
            Py_CLEAR(shape);
        }
    }
    return shape == NULL
               ? NULL
               : Py_BuildValue("{s:s,s:s,s:N,s:K,s:s,s:N}", "name", field->name, "dtype",
                               brim_dtype_name(field->dtype), "shape", shape, "bytes",
                               (unsigned long long)field->bytes, "form", forms[field->form],
                               "converted", PyBool_FromLong(field->converted));
}

static PyObject *describe_stage(const brim_plan *plan, size_t index) {
    const brim_plan_stage *stage = brim_plan_stage_at(plan, index);
    return stage == NULL ? NULL
                         : Py_BuildValue("{s:s,s:s,s:s,s:K,s:N,s:N,s:N,s:K}", "name", stage->name,
                                         "text", stage->text, "effect", stage->effect, "bytes",
                                         (unsigned long long)stage->bytes, "samples",
                                         count_or_none(stage->samples), "fused",
                                         PyBool_FromLong(stage->fused), "cacheable",
                                         PyBool_FromLong(stage->cacheable), "sample_bytes",
                                         (unsigned long long)stage->sample_bytes);
}

static PyObject *describe_index(const brim_plan *plan, size_t number) {
    const brim_plan_index *index = brim_plan_index_at(plan, number);
    return index == NULL
               ? NULL
               : Py_BuildValue(
                     "{s:s,s:s,s:K,s:K,s:N,s:N}", "path", index->path, "data_path",
                     index->data_path, "records", (unsigned long long)index->records, "bytes",
                     (unsigned long long)index->bytes, "made", PyBool_FromLong(index->made), "note",
                     PyUnicode_DecodeUTF8(index->note, (Py_ssize_t)strlen(index->note), "replace"));
}

static PyObject *list(const brim_plan *plan, size_t count,
                      PyObject *describe(const brim_plan *, size_t)) {
    PyObject *result = PyList_New(0);
    for (size_t i = 0; result != NULL && i < count; i++) {
        PyObject *item = describe(plan, i);
        if (item == NULL || PyList_Append(result, item) != 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(item);
    }
    return result;
}

/* {field: [names of its labels]} */
static PyObject *list_classes(const brim_plan *plan) {
    PyObject *classes = PyDict_New();
    const uint32_t fields = brim_plan_get(plan)->field_count;
    for (size_t f = 0; classes != NULL && f < fields; f++) {
        const char *field = brim_plan_field_at(plan, f)->name;
        const size_t count = brim_plan_class_count(plan, field);
        PyObject *names = count == 0 ? NULL : PyList_New(0);
        for (size_t i = 0; names != NULL && i < count; i++) {
            PyObject *name = PyUnicode_DecodeFSDefault(brim_plan_class_name(plan, field, i));
            if (name == NULL || PyList_Append(names, name) != 0) {
                Py_CLEAR(names);
            }
            Py_XDECREF(name);
        }
        if (count > 0 && (names == NULL || PyDict_SetItemString(classes, field, names) != 0)) {
            Py_CLEAR(classes);
        }
        Py_XDECREF(names);
    }
    return classes;
}

PyObject *brim_py_plan_new(const brim_plan *plan, brim_device device_kind, uint32_t device_index,
                           int copies) {
    const brim_plan_info *info = brim_plan_get(plan);
    const struct {
        const char *name;
        uint64_t number;
    } numbers[] = {
        { "minimum_bytes", info->minimum_bytes },
        { "planned_bytes", info->planned_bytes },
        { "limit_bytes", info->limit_bytes },
        { "slot_bytes", info->slot_bytes },
        { "scratch_bytes", info->scratch_bytes },
        { "stack_bytes", info->stack_bytes },
        { "fixed_bytes", info->fixed_bytes },
        { "window_bytes", info->window_bytes },
        { "threads", info->threads },
        { "slots", info->slots },
        { "minimum_slots", info->minimum_slots },
        { "hold", info->hold },
        { "device_slot_bytes", info->device_slot_bytes },
        { "device_slots", info->device_slots },
        { "minimum_device_slots", info->minimum_device_slots },
        { "device_fixed_bytes", info->device_fixed_bytes },
        { "minimum_device_bytes", info->minimum_device_bytes },
        { "planned_device_bytes", info->planned_device_bytes },
        { "minimum_pinned_bytes", info->minimum_pinned_bytes },
        { "planned_pinned_bytes", info->planned_pinned_bytes },
        { "samples", info->samples },
        { "batches", info->batches },
        { "steps", info->steps },
        { "batch_rows", info->batch_rows },
        { "data_fingerprint", info->data_fingerprint },
        { "sample_fingerprint", info->sample_fingerprint },
        { "order_fingerprint", info->order_fingerprint },
    };
    PyObject *result = Py_BuildValue(
        "{s:N,s:s,s:s,s:N,s:N,s:N}", "fits", PyBool_FromLong(info->fits), "reason", info->reason,
        "limit_origin", info->limit_origin, "sequenced", PyBool_FromLong(info->sequenced), "copies",
        PyBool_FromLong(copies), "device", brim_py_device_text(device_kind, device_index));
    for (size_t i = 0; result != NULL && i < sizeof numbers / sizeof numbers[0]; i++) {
        PyObject *number = count_or_none(numbers[i].number);
        if (number == NULL || PyDict_SetItemString(result, numbers[i].name, number) != 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(number);
    }
    if (result == NULL) {
        return NULL;
    }
    const struct {
        const char *name;
        PyObject *value;
    } lists[] = {
        { "fields", list(plan, info->field_count, describe_field) },
        { "stages", list(plan, info->stage_count, describe_stage) },
        { "indexes", list(plan, info->index_count, describe_index) },
        { "classes", list_classes(plan) },
    };
    int bad = 0;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        bad |= lists[i].value == NULL ||
               PyDict_SetItemString(result, lists[i].name, lists[i].value) != 0;
        Py_XDECREF(lists[i].value);
    }
    if (bad) {
        Py_CLEAR(result);
    }
    return result;
}
