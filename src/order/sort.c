/*
 * sort.c: heap sort.
 *
 * Element 0 of a heap is the largest; those below element i are 2i + 1 and
 * 2i + 2. The heap is built, then its largest element is exchanged with the
 * last until nothing is left.
 */
#include "order/sort.h"

struct heap {
    uint8_t *elements;
    size_t bytes;
    uint64_t flip; /* makes signed keys ascend as unsigned ones */
};

static uint64_t key_of(const struct heap *heap, uint64_t i) {
    uint64_t key;
    memcpy(&key, heap->elements + i * heap->bytes, sizeof key);
    return key ^ heap->flip;
}

static void exchange(const struct heap *heap, uint64_t a, uint64_t b) {
    uint8_t held[BRIM__SORT_BYTES];
    memcpy(held, heap->elements + a * heap->bytes, heap->bytes);
    memcpy(heap->elements + a * heap->bytes, heap->elements + b * heap->bytes, heap->bytes);
    memcpy(heap->elements + b * heap->bytes, held, heap->bytes);
}

/* Lets element i sink to its place among the first `count`. */
static void sink(const struct heap *heap, uint64_t i, uint64_t count) {
    while (2 * i + 1 < count) {
        uint64_t larger = 2 * i + 1;
        if (larger + 1 < count && key_of(heap, larger + 1) > key_of(heap, larger)) {
            larger++;
        }
        if (key_of(heap, i) >= key_of(heap, larger)) {
            return;
        }
        exchange(heap, i, larger);
        i = larger;
    }
}

void brim__sort(void *elements, uint64_t count, size_t bytes, bool is_signed) {
    assert(bytes >= sizeof(uint64_t) && bytes <= BRIM__SORT_BYTES);
    const struct heap heap = { .elements = elements,
                               .bytes = bytes,
                               .flip = is_signed ? (uint64_t)1 << 63 : 0 };
    for (uint64_t i = count / 2; i > 0; i--) {
        sink(&heap, i - 1, count);
    }
    for (uint64_t left = count; left > 1; left--) {
        exchange(&heap, 0, left - 1);
        sink(&heap, 0, left - 1);
    }
}
