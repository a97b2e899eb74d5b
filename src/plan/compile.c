/*
 * compile.c: from stages to sources, an order, and a program for each leaf.
 *
 * A chain is one pipeline, the whole text or what stands in parentheses. Its
 * first stage opens sources (one, several side by side in `zip`, or the chains
 * of a `mix`) and so makes leaves; the stages after it act on the order and on
 * the programs of all leaves of the chain.
 *
 * Random keys come from a stage's place among the stages of its room and from
 * its branch, so that a transform added to a pipeline does not change its order.
 */
#include "plan/plan.h"

#include "batching/batching.h"
#include "order/stages.h"

#include <stdio.h>

#define TEXT_BYTES 512 /* of an effect */

struct compiler {
    brim_plan *plan;
    struct brim__opening opening;
    uint32_t stage; /* the next free record of plan->stage */
    bool has_batch;
};

/* ------------------------------------------------------------ descriptions */

static size_t count_stages(const brim_pipeline *pipeline) {
    size_t count = pipeline->use_count;
    for (size_t u = 0; u < pipeline->use_count; u++) {
        const struct brim__use *use = &pipeline->use[u];
        for (size_t a = 0; a < use->stage->info.argument_count; a++) {
            for (size_t i = 0; i < use->values[a].count; i++) {
                const brim_pipeline *nested = use->values[a].items[i].pipeline;
                count += nested != NULL ? count_stages(nested) : 0;
            }
        }
    }
    return count;
}

/* Begins the record of a stage: its name and full text. */
static brim_status begin_stage(struct compiler *compiler, const struct brim__use *use,
                               uint32_t *place) {
    brim_plan_stage *stage = &compiler->plan->stage[compiler->stage];
    *place = compiler->stage++;
    stage->name = use->stage->info.name;
    stage->effect = "";
    const size_t length = brim__use_text(use, true, false, NULL, 0);
    char *text;
    const brim_status status =
        brim__arena_take(&compiler->plan->arena, (uint64_t)length + 1, &text);
    if (status == BRIM_OK) {
        brim__use_text(use, true, false, text, length + 1);
        stage->text = text;
    }
    return status;
}

static brim_status set_effect(struct compiler *compiler, uint32_t place, const char *text) {
    return brim__arena_text(&compiler->plan->arena, text, &compiler->plan->stage[place].effect);
}

static brim_status effect_of_program(struct compiler *compiler, uint32_t place,
                                     const struct brim__program *program) {
    char text[TEXT_BYTES] = "";
    for (uint32_t f = 0; f < program->field_count; f++) {
        brim__append_field(text, sizeof(text), program->field[f].name, program->field[f].pending.to,
                           &program->field[f].pending.from.shape);
    }
    const size_t length = strlen(text);
    snprintf(text + length, sizeof(text) - length, "%s", program->impure ? "; not pure" : "");
    return set_effect(compiler, place, text);
}

/* Enters a stage into a fingerprint: its version and full text without paths. */
static brim_status enter(struct compiler *compiler, uint64_t *fingerprint,
                         const struct brim__use *use) {
    char small[1024];
    char *text = small;
    const size_t length = brim__use_text(use, true, true, small, sizeof(small));
    if (length >= sizeof(small)) {
        const brim_status status =
            brim__arena_take(&compiler->plan->arena, (uint64_t)length + 1, &text);
        if (status != BRIM_OK) {
            return status;
        }
        brim__use_text(use, true, true, text, length + 1);
    }
    *fingerprint =
        brim__hash_words(*fingerprint, brim__hash(text, length, use->stage->info.version), 0);
    return BRIM_OK;
}

/* ----------------------------------------------------------------- sources */

static brim_status new_leaf(struct compiler *compiler, struct brim__leaf **leaf) {
    brim_plan *plan = compiler->plan;
    if (plan->leaf_count == BRIM__MAX_LEAVES) {
        return brim__fail(BRIM_UNSUPPORTED, "a mix of more than %d sources in all",
                          BRIM__MAX_LEAVES);
    }
    const brim_status status = brim__arena_take(&plan->arena, sizeof(**leaf), leaf);
    if (status == BRIM_OK) {
        plan->leaf[plan->leaf_count++] = *leaf;
    }
    return status;
}

static brim_status open_source(struct compiler *compiler, const struct brim__use *use,
                               uint32_t place, struct brim__leaf *leaf) {
    brim_plan *plan = compiler->plan;
    if (leaf->source_count == BRIM__MAX_SOURCES) {
        return brim__fail(BRIM_UNSUPPORTED, "zip: more than %d sources side by side",
                          BRIM__MAX_SOURCES);
    }
    struct brim__source *source;
    const uint64_t before = plan->arena.bytes;
    brim_status status = brim__arena_take(&plan->arena, sizeof(*source), &source);
    if (status != BRIM_OK) {
        return status;
    }
    /* entered before it is opened: a half-opened one is closed with the plan */
    const uint32_t s = leaf->source_count++;
    leaf->source[s] = source;
    leaf->source_stage[s] = place;
    status = use->stage->open(use, &compiler->opening, source);
    if (status != BRIM_OK) {
        return status;
    }
    plan->stage[place].bytes += plan->arena.bytes - before;
    plan->stage[place].samples = source->count;
    plan->callback |= source->callback;
    plan->info.data_fingerprint =
        brim__hash_words(plan->info.data_fingerprint, source->identity, source->count);
    status = enter(compiler, &plan->info.sample_fingerprint, use);
    if (status != BRIM_OK) {
        return status;
    }
    char text[TEXT_BYTES];
    snprintf(text, sizeof(text), "%llu samples", (unsigned long long)source->count);
    for (uint32_t f = 0; f < source->field_count; f++) {
        brim__append_field(text, sizeof(text), source->field[f].name, source->field[f].view.dtype,
                           &source->field[f].view.shape);
    }
    return set_effect(compiler, place, text);
}

static bool is_plain_source(const struct brim__use *use) {
    return use->stage->info.room == BRIM_ROOM_SOURCE && use->stage->open != NULL;
}

/* `zip (npy a.npy) (npy b.npy)`: each part is one source. */
static brim_status open_zip(struct compiler *compiler, const struct brim__use *use, uint32_t place,
                            struct brim__leaf *leaf) {
    const struct brim__values *parts = &use->values[0];
    for (size_t i = 0; i < parts->count; i++) {
        const brim_pipeline *part = parts->items[i].pipeline;
        if (part->use_count != 1 || !is_plain_source(&part->use[0])) {
            return brim__fail(BRIM_INVALID,
                              "zip: part %zu must be one source alone; put the other stages "
                              "behind zip, with on= for single fields",
                              i + 1);
        }
        uint32_t nested;
        brim_status status = begin_stage(compiler, &part->use[0], &nested);
        if (status == BRIM_OK) {
            status = open_source(compiler, &part->use[0], nested, leaf);
        }
        if (status != BRIM_OK) {
            return status;
        }
        if (leaf->source[i]->count != leaf->source[0]->count) {
            return brim__fail(BRIM_INVALID,
                              "zip: part 1 has %llu samples, part %zu has %llu: they must have "
                              "equally many",
                              (unsigned long long)leaf->source[0]->count, i + 1,
                              (unsigned long long)leaf->source[i]->count);
        }
    }
    compiler->plan->stage[place].samples = leaf->source[0]->count;
    return BRIM_OK;
}

/* A leaf: its sources, its place in the order, and an empty program. */
static brim_status open_leaf(struct compiler *compiler, const struct brim__use *use, uint32_t place,
                             uint64_t branch) {
    brim_plan *plan = compiler->plan;
    struct brim__leaf *leaf;
    brim_status status = new_leaf(compiler, &leaf);
    if (status == BRIM_OK) {
        status = use->stage == &brim__stage_zip ? open_zip(compiler, use, place, leaf)
                                                : open_source(compiler, use, place, leaf);
    }
    if (status == BRIM_OK) {
        for (uint32_t s = 0; s < leaf->source_count; s++) {
            leaf->key[s] = brim__hash_words(BRIM_ROOM_SOURCE, s, branch);
        }
        leaf->count = leaf->source[0]->count;
        if (plan->leaf_count > 1) {
            const struct brim__leaf *before = plan->leaf[plan->leaf_count - 2];
            leaf->first_id = before->first_id + before->count;
        }
        status = brim__order_leaf(&plan->order, plan->leaf_count - 1, leaf->count);
    }
    if (status == BRIM_OK) {
        status = brim__program_init(&leaf->program, &compiler->opening, leaf->source,
                                    leaf->source_count, place);
    }
    if (status == BRIM_OK && use->stage == &brim__stage_zip) {
        status = effect_of_program(compiler, place, &leaf->program);
    }
    return status;
}

/* ------------------------------------------------------------------ chains */

static brim_status compile_chain(struct compiler *compiler, const brim_pipeline *pipeline,
                                 uint64_t branch, bool nested);

static brim_status samples_effect(struct compiler *compiler, uint32_t place) {
    char text[TEXT_BYTES];
    const uint64_t count = brim__order_count(&compiler->plan->order);
    compiler->plan->stage[place].samples = count;
    snprintf(text, sizeof(text), "%llu samples", (unsigned long long)count);
    return set_effect(compiler, place, text);
}

static brim_status compile_mix(struct compiler *compiler, const struct brim__use *use,
                               uint32_t place, uint64_t branch) {
    enum { PARTS, LENGTH, SEED };
    brim_plan *plan = compiler->plan;
    const struct brim__values *parts = &use->values[PARTS];
    uint32_t tops[BRIM__ORDER_PARTS];
    double weights[BRIM__ORDER_PARTS];
    if (parts->count > BRIM__ORDER_PARTS) {
        return brim__fail(BRIM_UNSUPPORTED, "mix: more than %d parts", BRIM__ORDER_PARTS);
    }
    for (size_t i = 0; i < parts->count; i++) {
        const brim_status status = compile_chain(compiler, parts->items[i].pipeline,
                                                 brim__hash_words(branch, 1, i + 1), true);
        if (status != BRIM_OK) {
            return brim__fail_within(status, "mix: part %zu", i + 1);
        }
        tops[i] = plan->order.top;
        weights[i] = parts->items[i].real;
        /* the part's own order stages have entered themselves */
        plan->info.order_fingerprint =
            brim__hash_words(plan->info.order_fingerprint,
                             brim__hash(&weights[i], sizeof(weights[i]), i), plan->order.top);
    }
    struct brim__mix *mix;
    const uint64_t seed = (uint64_t)brim__item(use, SEED)->integer;
    const uint64_t length = (uint64_t)brim__item(use, LENGTH)->integer;
    brim_status status = brim__arena_take(&plan->arena, brim__mix_bytes(), &mix);
    if (status == BRIM_OK) {
        status = brim__order_mix(&plan->order, mix, brim__hash_words(seed, branch, 0), tops,
                                 weights, parts->count, length);
    }
    plan->info.order_fingerprint = brim__hash_words(plan->info.order_fingerprint, length, seed);
    plan->stage[place].bytes = brim__mix_bytes();
    return status == BRIM_OK ? samples_effect(compiler, place) : status;
}

/* The first stage of a chain. */
static brim_status compile_head(struct compiler *compiler, const struct brim__use *use,
                                uint32_t place, uint64_t branch) {
    if (use->stage == &brim__stage_mix) {
        return compile_mix(compiler, use, place, branch);
    }
    if (use->stage->info.room == BRIM_ROOM_SOURCE) {
        return open_leaf(compiler, use, place, branch);
    }
    return brim__fail(BRIM_SYNTAX,
                      "a pipeline begins with a source or a mix, not with '%s': put npy, tokens, "
                      "array, callback, range or zip first",
                      use->stage->info.name);
}

static brim_status compile_transform(struct compiler *compiler, const struct brim__use *use,
                                     uint32_t place, uint64_t key, uint32_t first_leaf) {
    brim_plan *plan = compiler->plan;
    plan->stage[place].fused = 1;
    for (uint32_t i = first_leaf; i < plan->leaf_count; i++) {
        struct brim__program *program = &plan->leaf[i]->program;
        const uint32_t steps = program->step_count;
        const uint64_t scratch = program->scratch_bytes;
        program->stage = place;
        /* samples of several parts have the same numbers */
        program->key = i == first_leaf ? key : brim__hash_words(key, i - first_leaf, 0);
        const brim_status status = use->stage->add_transform(use, program);
        if (status != BRIM_OK) {
            return status;
        }
        plan->stage[place].bytes =
            brim__max(plan->stage[place].bytes, program->scratch_bytes - scratch);
        if (program->step_count != steps) {
            plan->stage[place].fused = 0;
        }
        plan->callback |= program->callback;
    }
    const brim_status status = enter(compiler, &plan->info.sample_fingerprint, use);
    return status == BRIM_OK ? effect_of_program(compiler, place, &plan->leaf[first_leaf]->program)
                             : status;
}

static brim_status compile_chain(struct compiler *compiler, const brim_pipeline *pipeline,
                                 uint64_t branch, bool nested) {
    brim_plan *plan = compiler->plan;
    const uint32_t first_leaf = plan->leaf_count;
    uint64_t placed[4] = { 0 }; /* stages so far of each room */
    if (pipeline->use_count == 0) {
        return brim__fail(BRIM_SYNTAX, "the pipeline is empty: begin with a source");
    }
    for (size_t u = 0; u < pipeline->use_count; u++) {
        const struct brim__use *use = &pipeline->use[u];
        const brim_room room = use->stage->info.room;
        uint32_t place;
        brim_status status = begin_stage(compiler, use, &place);
        if (status != BRIM_OK) {
            return status;
        }
        const uint64_t key = brim__hash_words(room, placed[room]++, branch);
        if (compiler->has_batch) {
            return brim__fail(BRIM_SYNTAX, "'%s' stands after 'batch', which must be the last",
                              use->stage->info.name);
        }
        if (u == 0) {
            status = compile_head(compiler, use, place, branch);
        } else if (use->stage->add_order != NULL) {
            status = use->stage->add_order(use, key, &plan->order);
            if (status == BRIM_OK) {
                status = enter(compiler, &plan->info.order_fingerprint, use);
            }
            if (status == BRIM_OK) {
                status = samples_effect(compiler, place);
            }
        } else if (use->stage->add_transform != NULL) {
            status = compile_transform(compiler, use, place, key, first_leaf);
        } else if (use->stage->set_batching != NULL && !nested) {
            compiler->has_batch = true;
            plan->batch_stage = &plan->stage[place];
            status = use->stage->set_batching(use, &plan->batching);
        } else if (use->stage->set_batching != NULL) {
            status = brim__fail(BRIM_SYNTAX, "'batch' cannot stand inside parentheses: put it at "
                                             "the end of the whole pipeline");
        } else {
            status = brim__fail(BRIM_SYNTAX,
                                "'%s' can only begin a pipeline; several sources go into zip or "
                                "mix",
                                use->stage->info.name);
        }
        if (status != BRIM_OK) {
            return status;
        }
    }
    return BRIM_OK;
}

static void expect_random(const brim_plan *plan) {
    for (uint32_t i = 0; i < plan->leaf_count; i++) {
        for (uint32_t s = 0; s < plan->leaf[i]->source_count; s++) {
            const struct brim__source *source = plan->leaf[i]->source[s];
            if (source->ops->expect_random != NULL) {
                source->ops->expect_random(source);
            }
        }
    }
}

brim_status brim__plan_compile(brim_plan *plan, const struct brim__plan_request *request,
                               const brim_pipeline *pipeline) {
    const brim_open_options *options = request->options;
    struct compiler compiler = { .plan = plan,
                                 .opening = { .arena = &plan->arena,
                                              .bindings = options->bindings,
                                              .binding_count = options->binding_count,
                                              .serials = &plan->serials } };
    const size_t stages = count_stages(pipeline);
    if (stages > BRIM__MAX_STAGES) {
        return brim__fail(BRIM_UNSUPPORTED, "the pipeline has %zu stages; at most %d", stages,
                          BRIM__MAX_STAGES);
    }
    brim__order_init(&plan->order);
    plan->batching = (struct brim__batching){ .rows = 1, .max_errors = UINT64_MAX };
    brim_status status =
        brim__arena_take(&plan->arena, stages * sizeof(brim_plan_stage), &plan->stage);
    if (status == BRIM_OK) {
        status = compile_chain(&compiler, pipeline, 0, false);
    }
    if (status == BRIM_OK) {
        plan->info.stage_count = compiler.stage;
        status = brim__shard_init(&plan->shard, &plan->batching, brim__order_count(&plan->order),
                                  options->rank, options->world == 0 ? 1 : options->world);
    }
    if (status == BRIM_OK) {
        status = brim__plan_lay_out(plan);
    }
    if (status == BRIM_OK && brim__order_jumps(&plan->order)) {
        expect_random(plan);
    }
    plan->replace_key = brim__hash_words(0x7265706c616365u, plan->info.order_fingerprint, 0);
    return status;
}
