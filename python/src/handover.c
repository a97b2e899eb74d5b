/*
 * handover.c: how a sample's values get to a worker process and back.
 *
 * Values in the batch's and the scratch's pages stay where they are: the process maps
 * these pages. Others are copied through the process's bounce file, which grows to the
 * largest sample so far, charged before it is taken. See processes.h.
 */
#include "extension.h"
#include "processes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BOUNCE_ALIGN 64
#define BOUNCE_STEP  65536
#define FILL_PIECE   ((uint64_t)1 << 20)

void brim_py_handover_init(struct handover *handover, struct bounce_budget *budget) {
    *handover = (struct handover){ .budget = budget, .bounce_file = -1 };
}

void brim_py_handover_fini(struct handover *handover) {
    if (handover->bounce != NULL) {
        munmap(handover->bounce, handover->bounce_bytes);
    }
    if (handover->bounce_file >= 0) {
        close(handover->bounce_file);
    }
}

void brim_py_handover_begin(struct handover *handover) {
    memset(handover->map, 0, sizeof handover->map);
    handover->bounce_mapped = 0;
}

/* Takes the file's pages from `done` on. Piece by piece, because a signal undoes the
 * piece in work. */
static int fill(int file, uint64_t done, uint64_t bytes) {
    while (done < bytes) {
        const uint64_t piece = bytes - done < FILL_PIECE ? bytes - done : FILL_PIECE;
        if (fallocate(file, 0, (off_t)done, (off_t)piece) == 0) {
            done += piece;
        } else if (errno != EINTR) {
            return -1;
        }
    }
    return 0;
}

/* The pool's budget, made if there is none. NULL: refused. */
static brim_budget *bounce_budget(struct bounce_budget *pool) {
    brim_budget *budget = atomic_load(&pool->budget), *none = NULL;
    if (budget == NULL &&
        brim_budget_new(pool->above, pool->label, BRIM_UNLIMITED, 0, &budget) == BRIM_OK &&
        !atomic_compare_exchange_strong(&pool->budget, &none, budget)) {
        brim_budget_free(budget); /* another thread was first */
        budget = none;
    }
    return budget;
}

/* Grows the bounce file to `bytes`; the process maps it again with the next request. */
static int grow_bounce(struct handover *handover, uint64_t bytes, char *why, size_t why_bytes) {
    if (bytes <= handover->bounce_bytes) {
        return 0;
    }
    if (bytes > PTRDIFF_MAX / 2) {
        snprintf(why, why_bytes, "the sample's values are too large");
        return -1;
    }
    bytes = (bytes + BOUNCE_STEP - 1) / BOUNCE_STEP * BOUNCE_STEP;
    const uint64_t more = bytes - handover->bounce_bytes;
    brim_budget *budget = bounce_budget(handover->budget);
    if (budget == NULL || brim_budget_charge(budget, BRIM_MEMORY_HOST, more) != BRIM_OK) {
        snprintf(why, why_bytes, "memory to hand the sample to a worker process: %s",
                 brim_detail());
        return -1;
    }
    if (handover->bounce_file < 0) {
        handover->bounce_file = memfd_create("brim bounce", MFD_CLOEXEC);
    }
    void *memory = MAP_FAILED;
    if (handover->bounce_file >= 0 &&
        fill(handover->bounce_file, handover->bounce_bytes, bytes) == 0) {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, handover->bounce_file, 0);
    }
    if (memory == MAP_FAILED) {
        snprintf(why, why_bytes, "%llu bytes of shared memory for a worker process: %s",
                 (unsigned long long)bytes, strerror(errno));
        /* what the file cannot give back stays charged */
        if (handover->bounce_file < 0 ||
            ftruncate(handover->bounce_file, (off_t)handover->bounce_bytes) == 0) {
            brim_budget_uncharge(budget, BRIM_MEMORY_HOST, more);
        }
        return -1;
    }
    if (handover->bounce != NULL) {
        munmap(handover->bounce, handover->bounce_bytes);
    }
    handover->bounce = memory;
    handover->bounce_bytes = bytes;
    return 0;
}

static int lies_in(const brim_region *region, const brim_value *value) {
    const uintptr_t from = (uintptr_t)region->memory, at = (uintptr_t)value->data;
    return region->memory != NULL && at >= from && at - from <= region->bytes &&
           value->bytes <= region->bytes - (at - from);
}

/* Says where a value lies; *bounce is how much of that file is used. */
static void describe(const brim_call *call, const brim_value *value, struct wire_value *wire,
                     uint64_t *bounce) {
    *wire = (struct wire_value){ .dtype = (uint32_t)value->dtype,
                                 .rank = value->rank,
                                 .form = (uint32_t)value->form,
                                 .region = NOWHERE,
                                 .bytes = value->bytes };
    snprintf(wire->name, sizeof wire->name, "%s", value->name);
    memcpy(wire->shape, value->shape, sizeof wire->shape);
    if (value->bytes == 0) {
        return;
    }
    if (lies_in(&call->batch, value)) {
        wire->region = IN_BATCH;
        wire->offset = (uintptr_t)value->data - (uintptr_t)call->batch.memory;
    } else if (lies_in(&call->scratch, value)) {
        wire->region = IN_SCRATCH;
        wire->offset = (uintptr_t)value->data - (uintptr_t)call->scratch.memory;
    } else {
        wire->region = IN_BOUNCE;
        wire->offset = *bounce;
        *bounce += (value->bytes + BOUNCE_ALIGN - 1) / BOUNCE_ALIGN * BOUNCE_ALIGN;
    }
}

/* The place where the process maps a region: where it is already, or where what was
 * not used for longest is. */
static struct wire_region find_map(struct handover *handover, const brim_region *region) {
    uint32_t found = 0;
    for (uint32_t m = 0; m < BOUNCE_MAP; m++) {
        if (handover->map[m].number == region->number) {
            found = m;
            break;
        }
        found = handover->map[m].used < handover->map[found].used ? m : found;
    }
    const int fresh = handover->map[found].number != region->number;
    handover->map[found].number = region->number;
    handover->map[found].used = ++handover->uses;
    return (struct wire_region){ .bytes = region->bytes, .map = found, .fresh = (uint32_t)fresh };
}

/* Which regions the values lie in, and the descriptors that have to go along. */
static size_t add_regions(struct handover *handover, const brim_call *call, struct request *request,
                          int files[REGIONS]) {
    unsigned used = 0;
    size_t count = 0;
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++) {
        used |= 1u << request->value[i].region;
    }
    const brim_region *const lent[] = { &call->batch, &call->scratch };
    for (uint32_t r = 0; r < IN_BOUNCE; r++) {
        request->region[r] = (struct wire_region){ 0 };
        if ((used & 1u << r) != 0) {
            request->region[r] = find_map(handover, lent[r]);
            if (request->region[r].fresh) {
                files[count++] = lent[r]->file;
            }
        }
    }
    request->region[IN_BOUNCE] = (struct wire_region){ 0 };
    if ((used & 1u << IN_BOUNCE) != 0) {
        const int fresh = handover->bounce_mapped != handover->bounce_bytes;
        request->region[IN_BOUNCE] = (struct wire_region){ .bytes = handover->bounce_bytes,
                                                           .map = BOUNCE_MAP,
                                                           .fresh = (uint32_t)fresh };
        handover->bounce_mapped = handover->bounce_bytes;
        if (fresh) {
            files[count++] = handover->bounce_file;
        }
    }
    return count;
}

void brim_py_write_request(struct work *work) {
    struct request *request = work->request;
    request->sample = work->call->sample;
    request->epoch = work->call->epoch;
    request->key = work->call->key;
    request->input_count = (uint32_t)work->input_count;
    request->output_count = (uint32_t)work->output_count;
    for (size_t i = 0; i < work->input_count; i++) {
        describe(work->call, brim_value_at(work->inputs, i), &request->value[i], &work->bounce);
    }
    for (size_t i = 0; i < work->output_count; i++) {
        describe(work->call, brim_value_at(work->outputs, i),
                 &request->value[work->input_count + i], &work->bounce);
    }
}

static void copy_in(const struct handover *handover, struct work *work) {
    for (size_t i = 0; i < work->input_count; i++) {
        const struct wire_value *wire = &work->request->value[i];
        if (wire->region == IN_BOUNCE) {
            memcpy(handover->bounce + wire->offset, brim_value_at(work->inputs, i)->data,
                   wire->bytes);
            work->copied.in += wire->bytes;
        }
    }
}

void brim_py_take_back(const struct handover *handover, struct work *work) {
    for (size_t i = 0; i < work->input_count && work->request->kind == CALL_BATCH_MAP; i++) {
        const struct wire_value *wire = &work->request->value[i];
        if (wire->region == IN_BOUNCE) {
            memcpy(brim_value_at(work->inputs, i)->data, handover->bounce + wire->offset,
                   wire->bytes);
            work->copied.out += wire->bytes;
        }
    }
    for (size_t i = 0; i < work->output_count; i++) {
        const struct wire_value *wire = &work->request->value[work->input_count + i];
        brim_value *output = brim_value_at(work->outputs, i);
        if (wire->region == IN_BOUNCE) {
            memcpy(output->data, handover->bounce + wire->offset, wire->bytes);
            work->copied.out += wire->bytes;
        }
        if (output->form != BRIM_FORM_DENSE) {
            output->shape[0] = work->reply->length[i]; /* the library checks it */
        }
    }
}

int brim_py_hand_over(struct handover *handover, struct work *work, int files[REGIONS],
                      size_t *file_count) {
    if (grow_bounce(handover, work->bounce, work->why, work->why_bytes) != 0) {
        return -1;
    }
    copy_in(handover, work);
    *file_count = add_regions(handover, work->call, work->request, files);
    return 0;
}
