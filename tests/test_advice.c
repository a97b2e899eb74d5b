/*
 * Reads that are coming are known in advance: when reads take long, the samples
 * of the next batch are on their way to the page cache before they are asked
 * for. Looked at from outside, through mincore. Where a file cannot be pushed out
 * of the page cache, or reads are fast even then, there is nothing to see: skipped.
 */
#include "engine/loader.h"
#include "support/support.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SAMPLES 4096
#define BYTES   4096 /* of a sample: a page, so that neighbours come by themselves rarely */
#define ROWS    32
#define HEADER  128

static int file_fd;
static uint8_t *file_map;
#define FILE_BYTES (HEADER + (size_t)SAMPLES * BYTES)

static bool resident(uint64_t sample) {
    unsigned char page;
    const size_t at = (HEADER + sample * BYTES) / 4096 * 4096;
    assert_int_equal(mincore(file_map + at, 1, &page), 0);
    return page & 1;
}

static uint32_t count_resident(const struct brim__location *places, uint32_t count) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        found += resident(places[i].sample);
    }
    return found;
}

static void make_cold_file(void) {
    const int64_t shape[] = { SAMPLES, BYTES };
    uint8_t *data = malloc((size_t)SAMPLES * BYTES);
    assert_non_null(data);
    fill_random(data, (size_t)SAMPLES * BYTES, 1);
    write_npy("cold.npy", BRIM_DTYPE_U8, 2, shape, data);
    free(data);
    file_fd = open(in_directory("cold.npy").text, O_RDONLY);
    assert_true(file_fd >= 0);
    file_map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, file_fd, 0);
    assert_true(file_map != MAP_FAILED);
    assert_int_equal(fsync(file_fd), 0);
    posix_fadvise(file_fd, 0, 0, POSIX_FADV_DONTNEED);
}

static void test_the_next_batch_is_on_its_way(void **state) {
    (void)state;
    make_cold_file();
    struct session session;
    struct brim__location places[ROWS];
    char text[TEXT_BYTES];
    session_open(&session,
                 format_text(text, "npy %s | shuffle seed=7 | batch %d",
                             in_directory("cold.npy").text, ROWS),
                 &(struct how){ 0 });
    brim__order_locate(&session.loader->plan->order, 0, ROWS, ROWS, places);
    const uint32_t before = count_resident(places, ROWS);
    brim_batch *batch;
    assert_int_equal(brim_loader_next(session.loader, BRIM_FOREVER, &batch), BRIM_OK);
    const bool cold = session.loader->pace.cold;
    uint32_t after = count_resident(places, ROWS);
    const bool skips = before > ROWS / 4 || !cold;
    for (int i = 0; i < 6000 && after < ROWS / 2 && !skips; i++) {
        usleep(10000); /* the disk may take its time */
        after = count_resident(places, ROWS);
    }
    brim_batch_release(batch);
    session_close(&session);
    munmap(file_map, FILE_BYTES);
    close(file_fd);
    if (skips) {
        print_message("skipped: %u of %d pages stayed in the page cache, reads are %s\n", before,
                      ROWS, cold ? "slow" : "fast all the same");
        skip();
    }
    assert_true(after >= ROWS / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_the_next_batch_is_on_its_way) };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}
