/*
 * classes.c: the names of a field's labels, from its source.
 */
#include "plan/plan.h"

/* The first source with such a field; NULL: none has names. */
static const struct brim__source_field *find(const brim_plan *plan, const char *name) {
    for (uint32_t i = 0; plan != NULL && name != NULL && i < plan->leaf_count; i++) {
        const struct brim__leaf *leaf = plan->leaf[i];
        for (uint32_t s = 0; s < leaf->source_count; s++) {
            for (uint32_t f = 0; f < leaf->source[s]->field_count; f++) {
                const struct brim__source_field *field = &leaf->source[s]->field[f];
                if (field->class_names != NULL && strcmp(field->name, name) == 0) {
                    return field;
                }
            }
        }
    }
    return NULL;
}

size_t brim_plan_class_count(const brim_plan *plan, const char *field) {
    const struct brim__source_field *found = find(plan, field);
    return found == NULL ? 0 : (size_t)found->class_count;
}

const char *brim_plan_class_name(const brim_plan *plan, const char *field, size_t index) {
    const struct brim__source_field *found = find(plan, field);
    return found == NULL || index >= found->class_count ? NULL : found->class_names[index];
}
