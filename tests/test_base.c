/*
 * test_base.c: statuses and details, texts, hashes, faults, threads and files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/platform.h"
#include "memory/alloc.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void every_status_has_a_name_and_a_text(void **state) {
    (void)state;
    assert_string_equal(brim_status_name(BRIM_OK), "BRIM_OK");
    assert_string_equal(brim_status_name(BRIM_STATUS_BUDGET), "BRIM_STATUS_BUDGET");
    assert_string_equal(brim_status_text(BRIM_STATUS_BUDGET), "does not fit the budget");
    assert_int_equal(BRIM_STATUS_UNSEEKABLE, 18);
    assert_non_null(brim_status_name((brim_status)99));
    assert_non_null(brim_status_text((brim_status)99));
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", BRIM_VERSION_MAJOR, BRIM_VERSION_MINOR,
             BRIM_VERSION_PATCH);
    assert_string_equal(brim_version(), version);
}

static void *detail_of_another_thread(void *argument) {
    (void)argument;
    const bool empty = brim_detail()[0] == '\0';
    brim__fail(BRIM_STATUS_IO, "elsewhere");
    return empty ? argument : NULL;
}

static void details_are_written_wrapped_and_kept_apart(void **state) {
    (void)state;
    assert_int_equal(brim__fail(BRIM_STATUS_CORRUPT, "byte %d", 7), BRIM_STATUS_CORRUPT);
    assert_string_equal(brim_detail(), "byte 7");
    assert_int_equal(brim__fail_within(BRIM_STATUS_IO, "file %s", "a"), BRIM_STATUS_IO);
    assert_string_equal(brim_detail(), "file a: byte 7");
    brim__fail(BRIM_STATUS_IO, "again: %s", brim_detail()); /* reads what it replaces */
    assert_string_equal(brim_detail(), "again: file a: byte 7");
    brim__fail_text(BRIM_STATUS_IO, brim_detail());
    assert_string_equal(brim_detail(), "again: file a: byte 7");

    pthread_t thread;
    void *result;
    int mark;
    assert_int_equal(pthread_create(&thread, NULL, detail_of_another_thread, &mark), 0);
    pthread_join(thread, &result);
    assert_ptr_equal(result, &mark);
    assert_string_equal(brim_detail(), "again: file a: byte 7");

    char longest[2 * BRIM__DETAIL_BYTES];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    brim__fail(BRIM_STATUS_IO, "%s", longest);
    assert_int_equal(strlen(brim_detail()), BRIM__DETAIL_BYTES - 1);
    brim__fail_within(BRIM_STATUS_IO, "%s", longest);
    assert_int_equal(strlen(brim_detail()), BRIM__DETAIL_BYTES - 1);
}

static void sizes_are_written_for_people(void **state) {
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        { 0, "0 B" },
        { 1023, "1023 B" },
        { 1024, "1.0 KiB" },
        { 1536, "1.5 KiB" },
        { 1048575, "1.0 MiB" }, /* never 1024.0 KiB */
        { UINT64_C(16) << 20, "16.0 MiB" },
        { UINT64_C(1) << 40, "1.0 TiB" },
        { UINT64_C(3) << 59, "1.5 EiB" },
        { UINT64_MAX, "16.0 EiB" },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        char text[BRIM__SIZE_TEXT];
        assert_string_equal(brim__size_text(cases[i].bytes, text), cases[i].text);
    }
}

static void copies_are_cut_and_ended(void **state) {
    (void)state;
    char text[4];
    assert_true(brim__copy_text(text, sizeof text, "abc"));
    assert_string_equal(text, "abc");
    assert_false(brim__copy_text(text, sizeof text, "abcd"));
    assert_string_equal(text, "abc");
    assert_false(brim__copy_text(text, 1, "a"));
    assert_string_equal(text, "");
}

static void the_nearest_name_is_one_that_may_be_meant(void **state) {
    (void)state;
    static const char *const names[] = { "shuffle", "batch", "normalize", "flip", "map" };
    const size_t count = BRIM__COUNT(names);
    assert_string_equal(brim_nearest("shufle", names, count), "shuffle");
    assert_string_equal(brim_nearest("bacth", names, count), "batch");
    assert_string_equal(brim_nearest("normalise", names, count), "normalize");
    assert_string_equal(brim_nearest("Flip", names, count), "flip");
    assert_string_equal(brim_nearest("mpa", names, count), "map");
    assert_null(brim_nearest("decode", names, count));
    assert_null(brim_nearest("", names, count));
    assert_null(brim_nearest(NULL, names, count));
    assert_null(brim_nearest("x", names, count));
    assert_null(brim_nearest("shuffle", names, 0));
    char longest[300];
    memset(longest, 'b', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_null(brim_nearest(longest, names, count));
}

static void hashes_are_part_of_the_formats(void **state) {
    (void)state;
    assert_true(brim__hash("", 0, 0) == UINT64_C(0x2D06800538D394C2));
    assert_true(brim__hash("brim", 4, 0) != brim__hash("brim", 4, 1));
    const uint8_t words[24] = { 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 3 };
    assert_true(brim__hash_words(1, 2, 3 << 8) == brim__hash(words, sizeof words, 0));
    assert_true(brim__hash_words(1, 2, 3) != brim__hash_words(3, 2, 1));
}

static void a_fault_hits_the_nth_point(void **state) {
    (void)state;
    const unsigned kinds = 1u << BRIM__FAULT_READ | 1u << BRIM__FAULT_OPEN;
    brim__fault_arm(kinds, 2, false);
    assert_false(brim__fault(BRIM__FAULT_READ));
    assert_false(brim__fault(BRIM__FAULT_ALLOC)); /* not armed, not counted */
    assert_true(brim__fault(BRIM__FAULT_OPEN));
    assert_false(brim__fault(BRIM__FAULT_READ));
    assert_int_equal(brim__fault_passed(BRIM__FAULT_READ), 2);
    assert_int_equal(brim__fault_injected(), 1);
    brim__fault_arm(kinds, 2, true);
    assert_false(brim__fault(BRIM__FAULT_READ));
    assert_true(brim__fault(BRIM__FAULT_READ));
    assert_true(brim__fault(BRIM__FAULT_READ));
    assert_int_equal(brim__fault_injected(), 2);
    brim__fault_arm(0, 0, false);
    assert_false(brim__fault(BRIM__FAULT_READ));
}

struct meeting {
    brim__mutex mutex;
    brim__condition condition;
    bool met;
    uintptr_t stack_address;
    bool interrupts_blocked;
    bool faults_blocked;
};

static void *meet(void *argument) {
    struct meeting *meeting = argument;
    char local[1];
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    brim__lock(&meeting->mutex);
    meeting->stack_address = (uintptr_t)__builtin_frame_address(0);
    local[0] = 1;
    meeting->interrupts_blocked = sigismember(&blocked, SIGINT) && sigismember(&blocked, SIGTERM);
    meeting->faults_blocked = sigismember(&blocked, SIGSEGV);
    meeting->met = local[0] == 1;
    brim__signal(&meeting->condition);
    brim__unlock(&meeting->mutex);
    return NULL;
}

static void a_thread_runs_on_the_stack_that_it_is_given(void **state) {
    (void)state;
    struct meeting meeting = { .met = false };
    assert_int_equal(brim__mutex_init(&meeting.mutex), BRIM_OK);
    assert_int_equal(brim__condition_init(&meeting.condition), BRIM_OK);

    const size_t bytes = brim__thread_stack_bytes(64 * 1024);
    assert_true(bytes >= 64 * 1024 + (size_t)sysconf(_SC_THREAD_STACK_MIN));
    assert_int_equal(bytes % brim__page_bytes(), 0);
    struct brim__pages stack;
    assert_int_equal(brim__pages_new(&stack, NULL, bytes, false, true), BRIM_OK);
    brim__thread thread;
    brim__fault_arm(1u << BRIM__FAULT_THREAD, 1, false);
    assert_int_equal(brim__thread_start(&thread, stack.memory, stack.bytes, "brim", meet, &meeting),
                     BRIM_STATUS_THREAD);
    assert_non_null(strstr(brim_detail(), "brim"));
    brim__fault_arm(0, 0, false);

    brim__lock(&meeting.mutex);
    const uint64_t begin = brim__now();
    assert_false(brim__wait(&meeting.condition, &meeting.mutex, begin + 20 * 1000 * 1000));
    assert_true(brim__now() >= begin + 20 * 1000 * 1000);
    assert_int_equal(brim__thread_start(&thread, stack.memory, stack.bytes,
                                        "a name that is too long", meet, &meeting),
                     BRIM_OK);
    while (!meeting.met) {
        brim__wait(&meeting.condition, &meeting.mutex, UINT64_MAX);
    }
    brim__unlock(&meeting.mutex);
    brim__thread_join(thread);
#if !defined(__SANITIZE_ADDRESS__)
    assert_in_range(meeting.stack_address, (uintptr_t)stack.memory,
                    (uintptr_t)stack.memory + stack.bytes);
#endif
    assert_true(meeting.interrupts_blocked);
    assert_false(meeting.faults_blocked);
    sigset_t blocked; /* ours is as it was */
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    assert_false(sigismember(&blocked, SIGINT));
    brim__pages_free(&stack);
    brim__condition_fini(&meeting.condition);
    brim__mutex_fini(&meeting.mutex);
}

static void facts_about_the_process_are_plausible(void **state) {
    (void)state;
    uint64_t now;
    uint64_t peak;
    brim__rss(&now, &peak);
    assert_true(now > 100 * 1024);
    assert_true(peak >= now);
    assert_int_equal(brim__process(), getpid());
    char text[8];
    assert_true(brim__system_text("/proc/self/status", text, sizeof text));
    assert_string_equal(text, "Name:\tt");
    assert_false(brim__system_text("/proc/none", text, sizeof text));
    assert_string_equal(text, "");
    assert_false(brim__system_text("/proc/self", text, sizeof text));
}

/* ------------------------------------------------------------------- files */

static char folder[64];
static char path[128];

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/brim-base-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    brim__fault_arm(0, 0, false);
    unlink(path);
    return rmdir(folder);
}

static void write_file(const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

static void a_file_is_read_by_position(void **state) {
    (void)state;
    write_file("0123456789", 10);
    struct brim__file file;
    char buffer[16] = { 0 };
    assert_int_equal(brim__file_open(&file, path), BRIM_OK);
    assert_int_equal(file.bytes, 10);
    assert_true(file.modified_ns > 0 && file.inode != 0);
    assert_int_equal(brim__file_read(&file, 3, buffer, 4), BRIM_OK);
    assert_string_equal(buffer, "3456");
    assert_int_equal(brim__file_read(&file, 10, buffer, 0), BRIM_OK);
    assert_int_equal(brim__file_read(&file, 8, buffer, 3), BRIM_STATUS_CORRUPT);
    assert_non_null(strstr(brim_detail(), path));
    assert_non_null(strstr(brim_detail(), "byte 8"));
    assert_int_equal(brim__file_read(&file, UINT64_MAX, buffer, 2), BRIM_STATUS_CORRUPT);
    brim__file_advise(&file, 0, 4);
    brim__file_advise(&file, 100, 4);

    assert_int_equal(brim__file_map(&file), BRIM_OK);
    assert_memory_equal(file.map, "0123456789", 10);

    assert_int_equal(truncate(path, 5), 0);
    assert_int_equal(brim__file_read(&file, 3, buffer, 4), BRIM_STATUS_CORRUPT);
    assert_non_null(strstr(brim_detail(), "byte 5"));
    brim__file_close(&file);
    brim__file_close(&file);
    assert_int_equal(file.fd, -1);
    assert_null(file.map);

    write_file("", 0);
    assert_int_equal(brim__file_open(&file, path), BRIM_OK);
    assert_int_equal(brim__file_map(&file), BRIM_OK);
    assert_non_null(file.map);
    brim__file_close(&file);
}

static void only_regular_files_are_opened(void **state) {
    (void)state;
    struct brim__file file;
    assert_int_equal(brim__file_open(&file, path), BRIM_STATUS_IO);
    assert_non_null(strstr(brim_detail(), "No such file"));
    assert_non_null(strstr(brim_detail(), path));
    assert_int_equal(file.fd, -1);
    brim__file_close(&file);
    assert_int_equal(brim__file_open(&file, folder), BRIM_STATUS_IO);
    assert_non_null(strstr(brim_detail(), "a directory"));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(brim__file_open(&file, path), BRIM_STATUS_IO); /* does not hang */
    assert_non_null(strstr(brim_detail(), "a pipe"));
    assert_int_equal(brim__file_open(&file, "/dev/zero"), BRIM_STATUS_IO);
    assert_non_null(strstr(brim_detail(), "a device"));
}

static void a_failing_system_is_said_and_leaves_nothing_open(void **state) {
    (void)state;
    write_file("0123456789", 10);
    const int next_fd = dup(0);
    close(next_fd);
    struct brim__file file;
    char byte;
    for (uint64_t nth = 1;; nth++) {
        brim__fault_arm(1u << BRIM__FAULT_OPEN | 1u << BRIM__FAULT_READ | 1u << BRIM__FAULT_MAP,
                        nth, false);
        brim_status status = brim__file_open(&file, path);
        if (status == BRIM_OK) {
            status = brim__file_read(&file, 0, &byte, 1);
        }
        if (status == BRIM_OK) {
            status = brim__file_map(&file);
        }
        brim__file_close(&file);
        if (brim__fault_injected() == 0) {
            assert_int_equal(status, BRIM_OK);
            assert_int_equal(nth, 5); /* open, fstat, pread, mmap */
            break;
        }
        assert_int_equal(status, nth == 4 ? BRIM_STATUS_MEMORY : BRIM_STATUS_IO);
        assert_non_null(strstr(brim_detail(), path));
    }
    const int fd = dup(0);
    assert_int_equal(fd, next_fd);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name_and_a_text),
        cmocka_unit_test(details_are_written_wrapped_and_kept_apart),
        cmocka_unit_test(sizes_are_written_for_people),
        cmocka_unit_test(copies_are_cut_and_ended),
        cmocka_unit_test(the_nearest_name_is_one_that_may_be_meant),
        cmocka_unit_test(hashes_are_part_of_the_formats),
        cmocka_unit_test(a_fault_hits_the_nth_point),
        cmocka_unit_test(a_thread_runs_on_the_stack_that_it_is_given),
        cmocka_unit_test(facts_about_the_process_are_plausible),
        cmocka_unit_test_setup_teardown(a_file_is_read_by_position, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(only_regular_files_are_opened, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_failing_system_is_said_and_leaves_nothing_open,
                                        make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
