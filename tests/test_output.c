/*
 * test_output.c: brim_output: files of the caller that are there whole or not at all.
 */
#include "support/support.h"

#include "base/fault.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void check_content(const char *path, const char *wanted) {
    char found[64] = "";
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    (void)!fread(found, 1, sizeof found - 1, file);
    fclose(file);
    assert_string_equal(found, wanted);
}

static size_t count_entries(void) {
    size_t entries = 0;
    DIR *directory = opendir(in_directory("").text);
    assert_non_null(directory);
    while (readdir(directory) != NULL) {
        entries++;
    }
    closedir(directory);
    return entries - 2;
}

static brim_status write_new(const char *path) {
    brim_output *output = NULL;
    const brim_status status = brim_output_new(path, &output);
    if (status != BRIM_OK) {
        assert_null(output);
        return status;
    }
    assert_int_equal(write(brim_output_file(output), "new", 3), 3);
    return brim_output_commit(output);
}

static void it_takes_its_name_when_it_is_whole(void **state) {
    (void)state;
    const struct path path = in_directory("file");
    brim_output *output;
    struct stat facts;
    write_file("file", "old", 3);
    const mode_t before = umask(027);
    assert_int_equal(brim_output_new(path.text, &output), BRIM_OK);
    umask(before);
    assert_int_equal(write(brim_output_file(output), "new", 3), 3);
    check_content(path.text, "old");
    assert_int_equal(count_entries(), 2);
    assert_int_equal(brim_output_commit(output), BRIM_OK);
    check_content(path.text, "new");
    assert_int_equal(stat(path.text, &facts), 0);
    assert_int_equal(facts.st_mode & 07777, 0640);
    assert_int_equal(count_entries(), 1);
    assert_int_equal(unlink(path.text), 0);
}

static void given_up_it_leaves_nothing(void **state) {
    (void)state;
    brim_output *output;
    assert_int_equal(brim_output_new(in_directory("file").text, &output), BRIM_OK);
    brim_output_free(output);
    assert_int_equal(count_entries(), 0);
    brim_output_free(NULL);
}

static void a_child_of_fork_leaves_it_to_its_parent(void **state) {
    (void)state;
    const struct path path = in_directory("file");
    for (int commits = 0; commits < 2; commits++) {
        brim_output *output;
        int ended;
        assert_int_equal(brim_output_new(path.text, &output), BRIM_OK);
        const pid_t child = fork();
        if (child == 0) {
            const brim_status status = commits ? brim_output_commit(output) : BRIM_STATUS_FORKED;
            if (!commits) {
                brim_output_free(output);
            }
            _exit(status == BRIM_STATUS_FORKED ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
        assert_int_equal(access(path.text, F_OK), -1);
        assert_int_equal(write(brim_output_file(output), "new", 3), 3);
        assert_int_equal(brim_output_commit(output), BRIM_OK);
        check_content(path.text, "new");
        assert_int_equal(unlink(path.text), 0);
    }
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    brim_output *output;
    assert_int_equal(brim_output_new(NULL, &output), BRIM_STATUS_INVALID);
    assert_int_equal(brim_output_new("", &output), BRIM_STATUS_INVALID);
    assert_int_equal(brim_output_new("x", NULL), BRIM_STATUS_INVALID);
    assert_int_equal(brim_output_commit(NULL), BRIM_STATUS_INVALID);
    assert_int_equal(brim_output_file(NULL), -1);
    assert_int_equal(write_new(in_directory("nowhere/file").text), BRIM_STATUS_IO);
    assert_detail_has("nowhere/file");
    assert_int_equal(symlink("nowhere/file", in_directory("link").text), 0);
    assert_int_equal(write_new(in_directory("link").text), BRIM_STATUS_IO);
    assert_detail_has("leads nowhere");
    assert_int_equal(unlink(in_directory("link").text), 0);
    assert_int_equal(count_entries(), 0);
}

/* Whatever fails, there is the old file or the new one, and nothing else. */
static void every_fault(void **state) {
    (void)state;
    const struct path path = in_directory("file");
    uint64_t failures = 0;
    for (uint64_t nth = 1;; nth++) {
        write_file("file", "old", 3);
        brim__fault_arm((1u << BRIM__FAULT_KINDS) - 1, nth, false);
        const brim_status status = write_new(path.text);
        const bool injected = brim__fault_injected() > 0;
        brim__fault_arm(0, 0, false);
        assert_int_equal(count_entries(), 1);
        if (status == BRIM_OK) {
            check_content(path.text, "new");
        } else {
            const bool last = strstr(brim_detail(), "cannot be entered on the disk") != NULL;
            check_content(path.text, last ? "new" : "old");
            failures++;
        }
        if (!injected) {
            assert_int_equal(status, BRIM_OK);
            break;
        }
    }
    assert_int_equal(failures, 5); /* memory, making, syncing, renaming, the directory */
    assert_int_equal(unlink(path.text), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_takes_its_name_when_it_is_whole),
        cmocka_unit_test(given_up_it_leaves_nothing),
        cmocka_unit_test(a_child_of_fork_leaves_it_to_its_parent),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(every_fault),
    };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}
