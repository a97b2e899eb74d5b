/*
 * opencl_kernels.c: the kernels' source, building and launching them.
 *
 * A work item does a run: on a CPU some thousand consecutive elements, which one core processes
 * without a call in between; on other devices one element (or unit), so that neighbours in a work
 * group access neighbours in memory. Work groups have one size for a device, because some drivers
 * compile a kernel again for every size.
 *
 * A row of a lookup has the dimensions a x b x c. Work items are numbered
 * (run in the plane b x c, index in a, row). Elements are copied out of the table as
 * bits, so that no device needs to know their type.
 */
#include "device/opencl_kernels.h"
#include "base/fault.h"

#define CPU_RUN     4096 /* elements, or units, of a work item on a CPU */
#define GROUP_ITEMS 64   /* on other devices */

/* The same layout in the kernels' source below. */
struct lookup_shape {
    cl_ulong source_offset, source_row;
    cl_ulong table_offset;
    cl_ulong destination_offset, destination_row;
    cl_ulong run;
    cl_uint dim[3];
    cl_uint stride[3];
    cl_uint axis;
    cl_uint unused;
};

struct gather_shape {
    cl_ulong part_rows;
    cl_ulong source_offset, source_row;
    cl_ulong destination_offset, destination_row;
    cl_ulong units; /* of a row */
    cl_ulong numbers_offset;
    cl_ulong run;
};

/* In pieces: a string literal has to fit into 4095 bytes. */
static const char *source_text[] = {
    "struct lookup_shape {\n"
    "    ulong source_offset, source_row;\n"
    "    ulong table_offset;\n"
    "    ulong destination_offset, destination_row;\n"
    "    ulong run;\n"
    "    uint dim[3];\n"
    "    uint stride[3];\n"
    "    uint axis;\n"
    "    uint unused;\n"
    "};\n"
    "#define LOOKUP(name, type)\\\n"
    "kernel void name(global const uchar *restrict source, global const uchar *restrict tables,\\\n"
    "                 global uchar *restrict destination, struct lookup_shape shape) {\\\n"
    "    const ulong plane = (ulong)shape.dim[1] * shape.dim[2];\\\n"
    "    const ulong begin = get_global_id(0) * shape.run;\\\n"
    "    const ulong end = min(begin + shape.run, plane);\\\n"
    "    if (begin >= end) {\\\n"
    "        return;\\\n"
    "    }\\\n"
    "    const ulong i = get_global_id(1);\\\n"
    "    const ulong row = get_global_id(2);\\\n"
    "    const uint c = shape.dim[2];\\\n"
    "    const ulong stride = shape.stride[2];\\\n"
    "    const uint axis = shape.axis;\\\n"
    "    source += shape.source_offset + row * shape.source_row + i * shape.stride[0];\\\n"
    "    global type *to = (global type *)(destination + shape.destination_offset +\\\n"
    "                                      row * shape.destination_row) + i * plane;\\\n"
    "    global const type *plane_table = (global const type *)(tables + shape.table_offset) +\\\n"
    "                                     (axis == 0 ? i * 256 : 0);\\\n"
    "    ulong j = begin / c;\\\n"
    "    uint k = (uint)(begin - j * c);\\\n"
    "    for (ulong at = begin; at < end; j++, k = 0) {\\\n"
    "        const uint count = (uint)min((ulong)(c - k), end - at);\\\n"
    "        global const uchar *from = source + j * shape.stride[1] + k * stride;\\\n"
    "        global const type *table = plane_table + (axis == 1 ? j * 256 : 0);\\\n"
    "        if (axis == 2) {\\\n"
    "            table += k * 256;\\\n"
    "            for (uint m = 0; m < count; m++) {\\\n"
    "                to[at + m] = table[m * 256 + from[m * stride]];\\\n"
    "            }\\\n"
    "        } else {\\\n"
    "            for (uint m = 0; m < count; m++) {\\\n"
    "                to[at + m] = table[from[m * stride]];\\\n"
    "            }\\\n"
    "        }\\\n"
    "        at += count;\\\n"
    "    }\\\n"
    "}\n"
    "LOOKUP(lookup_1, uchar)\n"
    "LOOKUP(lookup_2, ushort)\n"
    "LOOKUP(lookup_4, uint)\n",

    "struct gather_shape {\n"
    "    ulong part_rows;\n"
    "    ulong source_offset, source_row;\n"
    "    ulong destination_offset, destination_row;\n"
    "    ulong units;\n"
    "    ulong numbers_offset;\n"
    "    ulong run;\n"
    "};\n"
    "#define GATHER(name, type)\\\n"
    "kernel void name(global const uchar *part0, global const uchar *part1,\\\n"
    "                 global const uchar *part2, global const uchar *part3,\\\n"
    "                 global const uchar *part4, global const uchar *part5,\\\n"
    "                 global const uchar *part6, global const uchar *part7,\\\n"
    "                 global uchar *restrict destination, global const uchar *numbers,\\\n"
    "                 struct gather_shape shape) {\\\n"
    "    const ulong row = get_global_id(1);\\\n"
    "    const uint number = ((global const uint *)(numbers + shape.numbers_offset))[row];\\\n"
    "    const ulong begin = get_global_id(0) * shape.run;\\\n"
    "    const ulong end = min(begin + shape.run, shape.units);\\\n"
    "    if (number == UINT_MAX || begin >= end) {\\\n"
    "        return;\\\n"
    "    }\\\n"
    "    const ulong part = number / shape.part_rows;\\\n"
    "    global const uchar *source = part == 0   ? part0\\\n"
    "                                 : part == 1 ? part1\\\n"
    "                                 : part == 2 ? part2\\\n"
    "                                 : part == 3 ? part3\\\n"
    "                                 : part == 4 ? part4\\\n"
    "                                 : part == 5 ? part5\\\n"
    "                                 : part == 6 ? part6\\\n"
    "                                             : part7;\\\n"
    "    global const type *from = (global const type *)(source + shape.source_offset +\\\n"
    "                              (number - part * shape.part_rows) * shape.source_row);\\\n"
    "    global type *restrict to = (global type *)(destination + shape.destination_offset +\\\n"
    "                                               row * shape.destination_row);\\\n"
    "    for (ulong at = begin; at < end; at++) {\\\n"
    "        to[at] = from[at];\\\n"
    "    }\\\n"
    "}\n"
    "GATHER(gather_1, uchar)\n"
    "GATHER(gather_4, uint)\n"
    "GATHER(gather_16, uint4)\n",
};

static const char *const kernel_names[BRIM__OPENCL_KERNELS] = {
    [BRIM__LOOKUP_1] = "lookup_1", [BRIM__LOOKUP_2] = "lookup_2", [BRIM__LOOKUP_4] = "lookup_4",
    [BRIM__GATHER_1] = "gather_1", [BRIM__GATHER_4] = "gather_4", [BRIM__GATHER_16] = "gather_16",
};

/* ----------------------------------------------------------------- building */

/* Guards programs of contexts; taken with the lock of some kernels held. */
static pthread_mutex_t programs_lock = PTHREAD_MUTEX_INITIALIZER;

static bool fails(void) {
    return brim__fault(BRIM__FAULT_DEVICE);
}

static brim_status fail(const struct brim__opencl_kernels *kernels, const char *what,
                        cl_int error) {
    return brim__opencl_fail(kernels->index, what, error);
}

static void discard_kernels(struct brim__opencl_kernels *kernels) {
    for (int i = 0; i < BRIM__OPENCL_KERNELS; i++) {
        if (kernels->kernel[i] != NULL) {
            (void)kernels->opencl->clReleaseKernel(kernels->kernel[i]);
            kernels->kernel[i] = NULL;
        }
    }
    kernels->made = false;
}

void brim__opencl_program_free(const struct brim__opencl *opencl,
                               struct brim__opencl_program *program) {
    if (program->built != NULL) {
        (void)opencl->clReleaseProgram(program->built);
        program->built = NULL;
    }
}

/* The error includes the compiler's log, if the log is short enough. */
static brim_status fail_build(const struct brim__opencl_kernels *kernels, cl_program program,
                              cl_int error) {
    char log[4096] = "";
    if (kernels->opencl->clGetProgramBuildInfo(program, kernels->device, CL_PROGRAM_BUILD_LOG,
                                               sizeof log - 1, log, NULL)) {
        log[0] = 0;
    }
    return brim__fail(BRIM_STATUS_DRIVER, "opencl:%u: building brim's kernels failed: %s (%d) %s",
                      kernels->index, brim__opencl_error_name(error), error, log);
}

static brim_status build_program(const struct brim__opencl_kernels *kernels,
                                 struct brim__opencl_program *program) {
    const struct brim__opencl *const opencl = kernels->opencl;
    cl_program built = NULL;
    cl_int error = CL_OUT_OF_RESOURCES;
    if (!fails()) {
        built = opencl->clCreateProgramWithSource(kernels->context, BRIM__COUNT(source_text),
                                                  source_text, NULL, &error);
    }
    if (error) {
        return fail(kernels, "making a program", error);
    }
    error = fails() ? CL_OUT_OF_RESOURCES
                    : opencl->clBuildProgram(built, 1, &kernels->device, "", NULL, NULL);
    if (error) {
        const brim_status status = fail_build(kernels, built, error);
        (void)opencl->clReleaseProgram(built);
        return status;
    }
    program->built = built;
    return BRIM_OK;
}

/* A caller that comes while another one builds the program waits for its result. */
static brim_status share_program(const struct brim__opencl_kernels *kernels, cl_program *built) {
    brim__lock(&programs_lock);
    const brim_status status =
        kernels->of_context->built != NULL ? BRIM_OK : build_program(kernels, kernels->of_context);
    *built = kernels->of_context->built;
    brim__unlock(&programs_lock);
    return status;
}

static brim_status make_all(struct brim__opencl_kernels *kernels) {
    const struct brim__opencl *const opencl = kernels->opencl;
    cl_program program = kernels->own.built;
    brim_status status = BRIM_OK;
    if (kernels->of_context != NULL) {
        status = share_program(kernels, &program);
    } else if (program == NULL) {
        status = build_program(kernels, &kernels->own);
        program = kernels->own.built;
    }
    if (status != BRIM_OK) {
        return status;
    }
    cl_int error;
    for (int i = 0; i < BRIM__OPENCL_KERNELS; i++) {
        error = CL_OUT_OF_RESOURCES;
        if (!fails()) {
            kernels->kernel[i] = opencl->clCreateKernel(program, kernel_names[i], &error);
        }
        if (error) {
            return fail(kernels, "making a kernel", error);
        }
    }
    return BRIM_OK;
}

/* With the lock: other callers that need a kernel wait for it. */
static brim_status build_once(struct brim__opencl_kernels *kernels) {
    if (kernels->made) {
        return BRIM_OK;
    }
    const brim_status status = make_all(kernels);
    if (status != BRIM_OK) {
        discard_kernels(kernels);
    }
    kernels->made = status == BRIM_OK;
    return status;
}

brim_status brim__opencl_kernels_build(struct brim__opencl_kernels *kernels) {
    brim__lock(&kernels->lock);
    const brim_status status = build_once(kernels);
    brim__unlock(&kernels->lock);
    return status;
}

brim_status brim__opencl_kernels_init(struct brim__opencl_kernels *kernels) {
    return brim__mutex_init(&kernels->lock);
}

void brim__opencl_kernels_fini(struct brim__opencl_kernels *kernels) {
    discard_kernels(kernels);
    brim__opencl_program_free(kernels->opencl, &kernels->own);
    brim__mutex_fini(&kernels->lock);
}

/* ---------------------------------------------------------------- launching */

struct argument {
    size_t bytes;
    const void *value;
};

/* Puts `items` x second x third work items into the queue. */
static brim_status launch(struct brim__opencl_kernels *kernels, cl_command_queue queue,
                          enum brim__opencl_kernel which, const struct argument *arguments,
                          cl_uint argument_count, uint64_t items, uint64_t second, uint64_t third) {
    const struct brim__opencl *const opencl = kernels->opencl;
    const size_t local[3] = { kernels->is_cpu ? 1 : GROUP_ITEMS, 1, 1 };
    const size_t global[3] = { brim__divide_up(items, local[0]) * local[0], second, third };
    brim__lock(&kernels->lock);
    brim_status status = build_once(kernels);
    for (cl_uint i = 0; i < argument_count && status == BRIM_OK; i++) {
        const cl_int error = fails()
                                 ? CL_OUT_OF_RESOURCES
                                 : opencl->clSetKernelArg(kernels->kernel[which], i,
                                                          arguments[i].bytes, arguments[i].value);
        status = error ? fail(kernels, "setting an argument of a kernel", error) : BRIM_OK;
    }
    if (status == BRIM_OK) {
        const cl_int error =
            fails() ? CL_OUT_OF_RESOURCES
                    : opencl->clEnqueueNDRangeKernel(queue, kernels->kernel[which], 3, NULL, global,
                                                     local, 0, NULL, NULL);
        status = error ? fail(kernels, "starting a kernel", error) : BRIM_OK;
    }
    brim__unlock(&kernels->lock);
    return status;
}

brim_status brim__opencl_lookup(struct brim__opencl_kernels *kernels, cl_command_queue queue,
                                const struct brim__lookup *lookup) {
    const uint64_t run = kernels->is_cpu ? CPU_RUN : 1;
    const struct lookup_shape shape = {
        .source_offset = lookup->source_offset,
        .source_row = lookup->source_row,
        .table_offset = lookup->table_offset,
        .destination_offset = lookup->destination_offset,
        .destination_row = lookup->destination_row,
        .run = run,
        .dim = { lookup->dim[0], lookup->dim[1], lookup->dim[2] },
        .stride = { lookup->stride[0], lookup->stride[1], lookup->stride[2] },
        .axis = lookup->axis,
    };
    const struct argument arguments[] = {
        { sizeof(cl_mem), &lookup->source->handle },
        { sizeof(cl_mem), &lookup->table->handle },
        { sizeof(cl_mem), &lookup->destination->handle },
        { sizeof shape, &shape },
    };
    const enum brim__opencl_kernel which = lookup->element == 1   ? BRIM__LOOKUP_1
                                           : lookup->element == 2 ? BRIM__LOOKUP_2
                                                                  : BRIM__LOOKUP_4;
    const uint64_t plane = (uint64_t)lookup->dim[1] * lookup->dim[2];
    return launch(kernels, queue, which, arguments, BRIM__COUNT(arguments),
                  brim__divide_up(plane, run), lookup->dim[0], lookup->rows);
}

brim_status brim__opencl_gather(struct brim__opencl_kernels *kernels, cl_command_queue queue,
                                const struct brim__gather *gather) {
    /* its low zero bits: the power of two that divides all offsets and sizes */
    const uint64_t bits = gather->source_offset | gather->source_row | gather->destination_offset |
                          gather->destination_row | gather->row_bytes;
    const uint64_t unit = bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 1;
    const enum brim__opencl_kernel which = unit == 16  ? BRIM__GATHER_16
                                           : unit == 4 ? BRIM__GATHER_4
                                                       : BRIM__GATHER_1;
    const struct gather_shape shape = {
        .part_rows = gather->part_rows,
        .source_offset = gather->source_offset,
        .source_row = gather->source_row,
        .destination_offset = gather->destination_offset,
        .destination_row = gather->destination_row,
        .units = gather->row_bytes / unit,
        .numbers_offset = gather->numbers_offset,
        .run = kernels->is_cpu ? CPU_RUN : 1,
    };
    struct argument arguments[BRIM__GATHER_PARTS + 3];
    cl_uint count = 0;
    for (; count < BRIM__GATHER_PARTS; count++) {
        /* an unused part needs some memory as an argument; no number refers to it */
        const struct brim__device_memory *part =
            gather->part[count] != NULL ? gather->part[count] : gather->part[0];
        arguments[count] = (struct argument){ sizeof(cl_mem), &part->handle };
    }
    arguments[count++] = (struct argument){ sizeof(cl_mem), &gather->destination->handle };
    arguments[count++] = (struct argument){ sizeof(cl_mem), &gather->numbers->handle };
    arguments[count++] = (struct argument){ sizeof shape, &shape };
    return launch(kernels, queue, which, arguments, count, brim__divide_up(shape.units, shape.run),
                  gather->rows, 1);
}
