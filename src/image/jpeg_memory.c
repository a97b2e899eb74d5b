/*
 * jpeg_memory.c: libjpeg's memory manager, and how much one image can take of it.
 *
 * Everything is aligned to 64 bytes and takes a multiple of them: libjpeg's vector
 * code reads and writes rows up to the next 64 bytes.
 *
 * The bound repeats how libjpeg lays out its strips of samples (M = 8 / scale rows
 * of blocks' pixels; h, v: a component's sampling factors; H, V: the largest):
 *
 *     for each component, v * D / M rows in each of M groups, two groups more where
 *     chroma is interpolated between rows; D is the side of a transformed block, which
 *     libjpeg doubles while that spares it upsampling
 *     for each component that is upsampled, V rows of the full width
 *     one row of pixels
 *     held whole: 128 bytes for each block, padded to whole groups of h x v blocks
 *
 * and adds what does not depend on the size: tables and objects. Merged upsampling
 * (cheap) takes one more row of pixels twice, but neither the two groups nor the
 * upsampled rows, which is less.
 */
#include "image/jpeg_memory.h"

#include <jerror.h>

#define ALIGNMENT 64

/* What does not depend on the size, rounded up from what libjpeg-turbo 2.1 takes. */
#define OBJECTS        6144       /* its modules, and the table of clipped samples */
#define FILE_TABLES    3328       /* 8 Huffman and 4 quantisation tables, as in the file */
#define DECODING_TABLE 1408       /* of one Huffman table, derived from it */
#define COMPONENT      1280       /* what is known of it, its own quantisation tables */
#define COLOR_TABLES   (4 * 1600) /* YCbCr to RGB, where no vector code does it */

struct jvirt_barray_control {
    JBLOCKARRAY rows;
    JDIMENSION blocks, count; /* of a row; rows */
    JDIMENSION zeroed;        /* rows before this one have been set to 0 */
    struct jvirt_barray_control *next;
};

/* ---------------------------------------------------------------- manager */

static struct brim__jpeg_memory *memory_of(j_common_ptr jpeg) {
    return (struct brim__jpeg_memory *)jpeg->mem;
}

void *brim__jpeg_memory_take(j_common_ptr jpeg, size_t bytes) {
    struct brim__jpeg_memory *memory = memory_of(jpeg);
    if (bytes > memory->bytes - memory->used) {
        ERREXIT1(jpeg, JERR_OUT_OF_MEMORY, 0);
    }
    void *taken = memory->data + memory->used;
    memory->used = (size_t)brim__min(brim__align(memory->used + bytes, ALIGNMENT), memory->bytes);
    return taken;
}

static void *take_object(j_common_ptr jpeg, int pool, size_t bytes) {
    (void)pool;
    return brim__jpeg_memory_take(jpeg, bytes);
}

static JSAMPARRAY take_samples(j_common_ptr jpeg, int pool, JDIMENSION width, JDIMENSION count) {
    (void)pool;
    const size_t stride = (size_t)brim__align(width, ALIGNMENT);
    JSAMPARRAY rows = brim__jpeg_memory_take(jpeg, count * sizeof rows[0]);
    uint8_t *data = brim__jpeg_memory_take(jpeg, count * stride);
    for (JDIMENSION i = 0; i < count; i++) {
        rows[i] = data + i * stride;
    }
    return rows;
}

static JBLOCKARRAY take_blocks(j_common_ptr jpeg, int pool, JDIMENSION width, JDIMENSION count) {
    (void)pool;
    JBLOCKARRAY rows = brim__jpeg_memory_take(jpeg, count * sizeof rows[0]);
    JBLOCKROW data = brim__jpeg_memory_take(jpeg, (size_t)count * width * sizeof data[0]);
    for (JDIMENSION i = 0; i < count; i++) {
        rows[i] = data + (size_t)i * width;
    }
    return rows;
}

/* libjpeg holds whole images of samples only to choose palettes, which brim never requests. */
static jvirt_sarray_ptr request_samples(j_common_ptr jpeg, int pool, boolean zeroed,
                                        JDIMENSION width, JDIMENSION count, JDIMENSION at_once) {
    (void)pool, (void)zeroed, (void)width, (void)count, (void)at_once;
    ERREXIT(jpeg, JERR_NOTIMPL);
    return NULL;
}

static JSAMPARRAY access_samples(j_common_ptr jpeg, jvirt_sarray_ptr array, JDIMENSION first,
                                 JDIMENSION count, boolean write) {
    (void)array, (void)first, (void)count, (void)write;
    ERREXIT(jpeg, JERR_NOTIMPL);
    return NULL;
}

/* libjpeg always requests coefficients that are set to zero. */
static jvirt_barray_ptr request_blocks(j_common_ptr jpeg, int pool, boolean zeroed,
                                       JDIMENSION width, JDIMENSION count, JDIMENSION at_once) {
    (void)pool, (void)zeroed, (void)at_once;
    struct brim__jpeg_memory *memory = memory_of(jpeg);
    struct jvirt_barray_control *array = brim__jpeg_memory_take(jpeg, sizeof *array);
    *array =
        (struct jvirt_barray_control){ .blocks = width, .count = count, .next = memory->arrays };
    memory->arrays = array;
    return array;
}

static void realize_arrays(j_common_ptr jpeg) {
    for (jvirt_barray_ptr array = memory_of(jpeg)->arrays; array != NULL; array = array->next) {
        if (array->rows == NULL) {
            array->rows = take_blocks(jpeg, JPOOL_IMAGE, array->blocks, array->count);
        }
    }
}

/* Rows are set to 0 at their first access, so they are in the cache when they are written. */
static JBLOCKARRAY access_blocks(j_common_ptr jpeg, jvirt_barray_ptr array, JDIMENSION first,
                                 JDIMENSION count, boolean write) {
    (void)write;
    if (array->rows == NULL || first > array->count || count > array->count - first) {
        ERREXIT(jpeg, JERR_BAD_VIRTUAL_ACCESS);
        return NULL; /* not reached: libjpeg does not declare its error function as noreturn */
    }
    for (; array->zeroed < first + count; array->zeroed++) {
        memset(array->rows[array->zeroed], 0, array->blocks * sizeof(JBLOCK));
    }
    return array->rows + first;
}

static void free_pool(j_common_ptr jpeg, int pool) {
    (void)jpeg, (void)pool;
}

static void self_destruct(j_common_ptr jpeg) {
    (void)jpeg;
}

void brim__jpeg_memory_init(struct brim__jpeg_memory *memory, uint8_t *data, size_t bytes) {
    assert((uintptr_t)data % ALIGNMENT == 0);
    *memory = (struct brim__jpeg_memory){
        .manager = {
            .alloc_small = take_object,
            .alloc_large = take_object,
            .alloc_sarray = take_samples,
            .alloc_barray = take_blocks,
            .request_virt_sarray = request_samples,
            .request_virt_barray = request_blocks,
            .realize_virt_arrays = realize_arrays,
            .access_virt_sarray = access_samples,
            .access_virt_barray = access_blocks,
            .free_pool = free_pool,
            .self_destruct = self_destruct,
            .max_alloc_chunk = 1000000000,
        },
        .data = data,
        .bytes = bytes,
    };
}

/* ------------------------------------------------------------------ bound */

static uint64_t array_bytes(uint64_t row, uint64_t count) {
    return brim__align(count * sizeof(void *), ALIGNMENT) + count * brim__align(row, ALIGNMENT);
}

struct largest {
    uint32_t h, v;
};

/* The side of a component's transformed blocks. */
static uint32_t block_side(const struct brim__image_info *info, uint32_t c, struct largest largest,
                           uint32_t group) {
    uint32_t side = group;
    while (side < DCTSIZE && largest.h * group % (info->horizontal[c] * side * 2u) == 0 &&
           largest.v * group % (info->vertical[c] * side * 2u) == 0) {
        side *= 2;
    }
    return side;
}

static uint64_t blocks_of(uint32_t side, uint32_t factor, uint32_t largest) {
    return brim__divide_up((uint64_t)side * factor, (uint64_t)largest * DCTSIZE);
}

/* Bytes of the strips of samples that are held at a time, at 1 / scale. */
static uint64_t strip_bytes(const struct brim__image_info *info, struct largest largest,
                            uint32_t scale) {
    const uint32_t group = DCTSIZE / scale;
    const uint64_t width = brim__divide_up(info->width, scale);
    uint64_t bytes = brim__align(width * 4 + BRIM__JPEG_UNALIGNED, ALIGNMENT);
    uint32_t side[4], v_in[4];
    bool context = false;
    for (uint32_t c = 0; c < info->components; c++) {
        side[c] = block_side(info, c, largest, group);
        const uint32_t h_in = info->horizontal[c] * side[c] / group;
        v_in[c] = info->vertical[c] * side[c] / group;
        if (h_in != largest.h || v_in[c] != largest.v) {
            bytes += array_bytes(brim__divide_up(width, largest.h) * largest.h, largest.v);
        }
        context |=
            group > 1 && v_in[c] * 2 == largest.v && (h_in == largest.h || h_in * 2 == largest.h);
    }
    for (uint32_t c = 0; c < info->components; c++) {
        const uint64_t row = blocks_of(info->width, info->horizontal[c], largest.h) * side[c];
        bytes += array_bytes(row, v_in[c] * (context ? group + 2 : group));
        if (context) {
            bytes += brim__align(2 * sizeof(void *) * v_in[c] * (group + 4), ALIGNMENT);
        }
    }
    return bytes;
}

static uint64_t coefficient_bytes(const struct brim__image_info *info, struct largest largest) {
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < info->components; c++) {
        const uint32_t h = info->horizontal[c], v = info->vertical[c];
        const uint64_t across = brim__divide_up(blocks_of(info->width, h, largest.h), h) * h;
        const uint64_t down = brim__divide_up(blocks_of(info->height, v, largest.v), v) * v;
        bytes += array_bytes(across * sizeof(JBLOCK), down);
    }
    return bytes;
}

/* Several scans may each have their own tables, in 4 places for each kind; progressive ones share
 * the places. A single scan uses two for each component. */
static uint64_t fixed_bytes(const struct brim__image_info *info) {
    const uint32_t tables = info->progressive ? 4u : info->whole ? 8u : 2u * info->components;
    return OBJECTS + FILE_TABLES + tables * DECODING_TABLE + COMPONENT * info->components +
           (info->components > 1 ? COLOR_TABLES : 0);
}

uint64_t brim__jpeg_memory_bound(const struct brim__image_info *info) {
    struct largest largest = { 1, 1 };
    uint64_t strip = 0;
    for (uint32_t c = 0; c < info->components; c++) {
        largest.h = (uint32_t)brim__max(largest.h, info->horizontal[c]);
        largest.v = (uint32_t)brim__max(largest.v, info->vertical[c]);
    }
    for (uint32_t scale = 1; scale <= DCTSIZE; scale *= 2) {
        strip = brim__max(strip, strip_bytes(info, largest, scale));
    }
    return fixed_bytes(info) + strip + (info->whole ? coefficient_bytes(info, largest) : 0);
}
