/*
 * compile.c: makes sources, an order, and a program for each leaf from stages.
 *
 * A chain is one pipeline, the whole text or the text in parentheses. Its first stage opens sources
 * (one, several side by side in `zip`, or the chains of a `mix`), which makes the leaves. The
 * stages after it act on the order and on the programs of all leaves of the chain.
 *
 * Random keys depend on a stage's position among the stages of its room and on its branch, so that
 * adding a transform to a pipeline does not change its order.
 */
#include "plan/compile.h"

static brim_status compile_chain(struct brim__compiler *compiler, const brim_pipeline *pipeline,
                                 uint64_t branch, bool nested);

/* A brim__join_site's open_part. */
static brim_status open_part(void *user, const brim_pipeline *part, uint64_t branch) {
    return compile_chain(user, part, branch, true);
}

static brim_status compile_join(struct brim__compiler *compiler, const struct brim__use *use,
                                uint32_t index, uint64_t branch) {
    brim_plan *plan = compiler->plan;
    const struct brim__join_site site = {
        .order = &plan->order,
        .arena = &plan->arena,
        .branch = branch,
        .fingerprint = &plan->info.order_fingerprint,
        .bytes = &plan->stage[index].bytes,
        .open_part = open_part,
        .user = compiler,
    };
    const brim_status status = use->stage->join_parts(use, &site);
    return status == BRIM_OK ? brim__effect_of_order(compiler, index) : status;
}

/* The first stage of a chain. */
static brim_status compile_head(struct brim__compiler *compiler, const struct brim__use *use,
                                uint32_t index, uint64_t branch, bool nested) {
    if (use->stage->join_parts != NULL) {
        return compile_join(compiler, use, index, branch);
    }
    if (use->stage->open != NULL || use->stage->zip_parts != NULL) {
        return brim__open_leaf(compiler, use, index, branch, nested);
    }
    return brim__fail(
        BRIM_STATUS_SYNTAX,
        "a pipeline begins with a source, mix or concat, not with '%s'; `brim stages` "
        "lists the sources",
        use->stage->info.name);
}

static brim_status compile_order(struct brim__compiler *compiler, const struct brim__use *use,
                                 uint32_t index, uint64_t key) {
    brim_plan *plan = compiler->plan;
    const struct brim__order_site site = {
        .order = &plan->order,
        .key = key,
        .arena = &plan->arena,
        .labels = brim__plan_labels,
        .user = plan,
    };
    const uint64_t before = plan->arena.taken;
    brim_status status = plan->sequence.on ? brim__sequence_order(plan, use, key)
                                           : use->stage->add_order(use, &site);
    plan->stage[index].bytes += plan->arena.taken - before;
    if (status == BRIM_OK) {
        status = brim__enter_stage(compiler, &plan->info.order_fingerprint, use);
    }
    return status == BRIM_OK ? brim__effect_of_order(compiler, index) : status;
}

/* Compiles a transform after which the number of samples is not known. */
static brim_status compile_unnumbered(struct brim__compiler *compiler, const struct brim__use *use,
                                      bool expands, bool nested) {
    brim_plan *plan = compiler->plan;
    const struct brim__unnumbered *asked = &plan->sequence.asked;
    if (asked->bounded || (expands && asked->shuffled)) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED,
                          "'%s' cannot come after %s of samples without numbers: put it before",
                          use->stage->info.name,
                          asked->bounded ? "take or skip" : "shuffle with buffer=");
    }
    const brim_status status = brim__sequence_begin(plan, use->stage->info.name, nested);
    return status == BRIM_OK ? brim__enter_stage(compiler, &plan->info.order_fingerprint, use)
                             : status;
}

static brim_status compile_transform(struct brim__compiler *compiler, const struct brim__use *use,
                                     uint32_t index, uint64_t key, uint32_t first_leaf,
                                     bool nested) {
    brim_plan *plan = compiler->plan;
    bool drops = false, expands = false;
    uint32_t noted = first_leaf; /* the leaf that has the note */
    plan->stage[index].fused = 1;
    for (uint32_t i = first_leaf; i < plan->leaf_count; i++) {
        struct brim__program *program = &plan->leaf[i]->program;
        const uint32_t steps = program->step_count;
        const uint64_t scratch = program->scratch_bytes;
        const bool dropped = program->drops;
        const uint32_t expanded = program->expand;
        program->drops = program->probed = false;
        program->meaning = 0;
        program->note = NULL;
        program->stage = index;
        /* samples of several parts have the same numbers, so the keys must differ */
        program->key = i == first_leaf ? key : brim__hash_words(key, i - first_leaf, 0);
        plan->leaf[i]->draws = brim__hash_words(plan->leaf[i]->draws, program->key, 0);
        const brim_status status = use->stage->add_transform(use, program);
        if (status != BRIM_OK) {
            return status;
        }
        plan->stage[index].bytes =
            brim__max(plan->stage[index].bytes, program->scratch_bytes - scratch);
        if (program->step_count != steps) {
            plan->stage[index].fused = 0;
        }
        if (program->note != NULL &&
            (plan->leaf[noted]->program.note == NULL ||
             program->needed_bytes > plan->leaf[noted]->program.needed_bytes)) {
            noted = i;
        }
        plan->callback |= program->callback;
        drops |= program->drops;
        expands |= program->expand != expanded;
        program->drops |= dropped;
    }
    brim_status status = brim__enter_stage(compiler, &plan->info.sample_fingerprint, use);
    for (uint32_t i = first_leaf; status == BRIM_OK && i < plan->leaf_count; i++) {
        struct brim__leaf *leaf = plan->leaf[i];
        status = brim__enter_stage(compiler, &leaf->sample_fingerprint, use);
        if (leaf->program.meaning != 0) {
            leaf->sample_fingerprint =
                brim__hash_words(leaf->sample_fingerprint, leaf->program.meaning, 0);
            plan->info.sample_fingerprint =
                brim__hash_words(plan->info.sample_fingerprint, leaf->program.meaning, i);
        }
    }
    if (status == BRIM_OK && (drops || expands)) {
        status = compile_unnumbered(compiler, use, expands, nested);
    }
    brim__cacheable(plan, index, first_leaf);
    return status == BRIM_OK
               ? brim__effect_of_program(compiler, index, &plan->leaf[first_leaf]->program,
                                         plan->leaf[noted]->program.note)
               : status;
}

static brim_status compile_batching(struct brim__compiler *compiler, const struct brim__use *use,
                                    uint32_t index, uint64_t key, bool nested) {
    brim_plan *plan = compiler->plan;
    if (nested) {
        return brim__fail(
            BRIM_STATUS_SYNTAX,
            "'%s' cannot be inside parentheses: put it at the end of the whole pipeline",
            use->stage->info.name);
    }
    if (use->stage->add_batch != NULL) {
        return brim__compile_late(compiler, use, index, key);
    }
    brim_status status = use->stage->set_batching(use, &plan->batching);
    if (status == BRIM_OK && use->stage->makes_batches) {
        compiler->has_batch = true;
        plan->batch_stage = &plan->stage[index];
    }
    if (status == BRIM_OK && use->stage->sequences) {
        status = brim__sequence_begin(plan, use->stage->info.name, nested);
        if (status == BRIM_OK) {
            status = brim__enter_stage(compiler, &plan->info.order_fingerprint, use);
        }
    }
    return status;
}

static brim_status compile_stage(struct brim__compiler *compiler, const struct brim__site *site) {
    const struct brim__use *use = site->use;
    if (use->stage->add_order != NULL) {
        return compile_order(compiler, use, site->index, site->key);
    }
    if (use->stage->add_transform != NULL) {
        if (compiler->plan->device_cache != NULL) {
            return brim__fail(BRIM_STATUS_SYNTAX,
                              "'%s' comes after 'cache device', which keeps samples as they are "
                              "delivered: put it before",
                              use->stage->info.name);
        }
        return compiler->plan->batching.pack.on
                   ? brim__fail(BRIM_STATUS_SYNTAX,
                                "'%s' comes after 'pack_sequences': put it before",
                                use->stage->info.name)
                   : compile_transform(compiler, use, site->index, site->key, site->first_leaf,
                                       site->nested);
    }
    if (use->stage->set_batching != NULL || use->stage->add_batch != NULL) {
        return compile_batching(compiler, use, site->index, site->key, site->nested);
    }
    if (use->stage->make_cache != NULL) {
        return brim__compile_cache(compiler, site);
    }
    return brim__fail(
        BRIM_STATUS_SYNTAX,
        "'%s' can only be the first stage; join several sources with zip, mix or concat",
        use->stage->info.name);
}

static brim_status compile_chain(struct brim__compiler *compiler, const brim_pipeline *pipeline,
                                 uint64_t branch, bool nested) {
    const uint32_t first_leaf = compiler->plan->leaf_count;
    uint64_t counted[BRIM_ROOM_CACHE + 1] = { 0 }; /* stages so far of each room */
    uint32_t begin = 0;
    if (pipeline->use_count == 0) {
        return brim__fail(BRIM_STATUS_SYNTAX, "the pipeline is empty: begin with a source");
    }
    for (size_t u = 0; u < pipeline->use_count; u++) {
        const struct brim__use *use = &pipeline->use[u];
        const brim_room room = use->stage->info.room;
        const struct brim__spot spot = brim__spot_of(use);
        uint32_t index;
        brim_status status = brim__begin_stage(compiler, use, &index);
        if (status != BRIM_OK) {
            return brim__at_stage(status, &spot);
        }
        begin = u == 0 ? index : begin;
        const uint64_t key = brim__hash_words(room, counted[room]++, branch);
        if (compiler->has_batch && use->stage->add_batch == NULL) {
            status =
                brim__fail(BRIM_STATUS_SYNTAX,
                           "'%s' comes after '%s', where only stages that act on whole batches "
                           "may come, such as mixup",
                           use->stage->info.name, compiler->plan->batch_stage->name);
            return brim__at_stage(status, &spot);
        }
        const struct brim__site site = { .use = use,
                                         .pipeline = pipeline,
                                         .number = u,
                                         .index = index,
                                         .begin = begin,
                                         .first_leaf = first_leaf,
                                         .key = key,
                                         .nested = nested };
        status = u == 0 ? compile_head(compiler, use, index, branch, nested)
                        : compile_stage(compiler, &site);
        if (status != BRIM_OK) {
            return brim__at_stage(status, &spot);
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
    struct brim__compiler compiler = { .plan = plan,
                                       .device = request->device,
                                       .opening = { .arena = &plan->arena,
                                                    .bindings = options->bindings,
                                                    .binding_count = options->binding_count,
                                                    .index_dir = request->index_dir,
                                                    .trust_foreign = request->trust_foreign,
                                                    .progress = options->progress,
                                                    .progress_user = options->progress_user,
                                                    .serials = &plan->serials,
                                                    .indexes = &plan->indexes } };
    const size_t stages = brim__count_stages(pipeline);
    if (stages > BRIM__MAX_STAGES) {
        return brim__fail(BRIM_STATUS_UNSUPPORTED, "the pipeline has %zu stages; at most %d",
                          stages, BRIM__MAX_STAGES);
    }
    plan->progress = options->progress;
    plan->progress_user = options->progress_user;
    brim__order_init(&plan->order);
    plan->batching = (struct brim__batching){ .rows = 1, .max_errors = UINT64_MAX };
    brim_status status =
        brim__arena_take(&plan->arena, stages * sizeof(brim_plan_stage), &plan->stage);
    if (status == BRIM_OK) {
        status =
            brim__arena_take(&plan->arena, stages * sizeof(brim_plan_field *), &plan->stage_field);
    }
    if (status == BRIM_OK) {
        status = compile_chain(&compiler, pipeline, 0, false);
    }
    if (status == BRIM_OK) {
        status = brim__plan_list_indexes(plan);
    }
    if (status == BRIM_OK) {
        plan->info.stage_count = compiler.stage;
        status = brim__shard_init(&plan->shard, &plan->batching, brim__order_count(&plan->order),
                                  options->rank, options->world == 0 ? 1 : options->world);
    }
    if (status == BRIM_OK) {
        status = brim__check_residents(&compiler);
    }
    if (status == BRIM_OK) {
        status = brim__plan_lay_out(plan, request->device, compiler.late_count > 0);
    }
    if (status == BRIM_OK && brim__order_jumps(&plan->order)) {
        expect_random(plan);
    }
    plan->info.order_fingerprint =
        plan->order.fingerprint == 0
            ? plan->info.order_fingerprint
            : brim__hash_words(plan->info.order_fingerprint, plan->order.fingerprint, 0);
    plan->replace_key = brim__hash_words(0x7265706c616365u, plan->info.order_fingerprint, 0);
    if (status == BRIM_OK) {
        status = brim__add_late(&compiler);
    }
    return status == BRIM_OK ? brim__plan_lay_out_slots(plan, request->device) : status;
}
