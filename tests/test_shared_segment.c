/*
 * test_shared_segment.c: the memory in which processes count what they share: made by many
 * at once, under load, damaged, refused by the system.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "shared_util.h"

#include "base/fault.h"
#include "support/memory_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* --------------------------------------------------------------- many at once */

/* All make the name at the same moment: it is one budget. */
static void many_begin_at_once(void **state) {
    (void)state;
    enum { PROCESSES = 8 };
    const char *name = shared_name("race");
    for (int round = 0; round < (is_sanitized() ? 10 : 30); round++) {
        struct child children[PROCESSES];
        for (int i = 0; i < PROCESSES; i++) {
            children[i] = start_child(name, 16 * MIB);
        }
        for (int i = 0; i < PROCESSES; i++) {
            const struct answer answer = read_answer(&children[i]);
            if (answer.status != BRIM_OK) {
                fail_msg("process %d: %s", i, answer.detail);
            }
        }
        brim_budget *root = join(name, 0);
        assert_int_equal(sharing_of(root, BRIM_MEMORY_HOST).processes, PROCESSES + 1);
        assert_int_equal(sharing_of(root, BRIM_MEMORY_HOST).used, (PROCESSES + 1) * join_bytes());
        brim__budget_unref(root);
        /* they end at once too, some of them killed */
        for (int i = 0; i < PROCESSES; i++) {
            if (i % 4 == round % 4) {
                kill_child(&children[i]);
            } else {
                const struct message end = { .order = END };
                assert_int_equal(write(children[i].orders, &end, sizeof end), sizeof end);
            }
        }
        for (int i = 0; i < PROCESSES; i++) {
            bury(&children[i]);
        }
        if (name_exists(name)) { /* who left last may not have seen that others were killed */
            root = join(name, 16 * MIB);
            assert_int_equal(sharing_of(root, BRIM_MEMORY_HOST).processes, 1);
            brim__budget_unref(root);
        }
        assert_false(name_exists(name));
    }
}

/* One leaves as the last while others join: nobody joins what has no name any more. */
static void joining_and_leaving_at_once(void **state) {
    (void)state;
    const char *name = shared_name("doors");
    pid_t processes[3];
    fflush(NULL);
    for (int i = 0; i < 3; i++) {
        processes[i] = fork();
        if (processes[i] == 0) {
            const uint64_t limits[BRIM_MEMORY_KINDS] = { 16 * MIB };
            brim_status status;
            for (int round = 0; round < 300; round++) {
                brim_budget *root = join_with(name, limits, &status);
                if (root == NULL || !name_exists(name)) {
                    fprintf(stderr, "%s\n", brim_detail());
                    _exit(1);
                }
                brim__budget_unref(root);
            }
            _exit(0);
        }
    }
    for (int i = 0; i < 3; i++) {
        int status;
        assert_int_equal(waitpid(processes[i], &status, 0), processes[i]);
        assert_int_equal(status, 0);
    }
    assert_false(name_exists(name));
}

/* What all claim, at one instant. */
static uint64_t locked_sum(struct brim__shared_segment *segment) {
    uint64_t sum = 0;
    assert_int_equal(pthread_mutex_lock(&segment->lock), 0);
    for (uint32_t i = 0; i < BRIM__SHARED_ENTRIES; i++) {
        if (atomic_load(&segment->entry[i].number) != 0) {
            sum += atomic_load(&segment->entry[i].bytes[BRIM_MEMORY_HOST]);
        }
    }
    pthread_mutex_unlock(&segment->lock);
    return sum;
}

/* Random charges; true if what the tree counts was right at the end, and both happened:
 * what fits, and what does not. */
static bool charge_at_random(brim_budget *root, int charges_wanted) {
    uint64_t firm = 0;
    uint64_t elastic = 0;
    int granted = 0;
    int refused = 0;
    for (int i = 0; i < charges_wanted; i++) {
        const uint64_t bytes = random_below(16 * KIB);
        if (random_below(2) == 0) {
            const bool fits = brim_budget_charge(root, BRIM_MEMORY_HOST, bytes) == BRIM_OK;
            firm += fits ? bytes : 0;
            granted += fits;
            refused += !fits;
        } else {
            const bool fits = brim__budget_try(root, BRIM_MEMORY_HOST, bytes);
            elastic += fits ? bytes : 0;
        }
        if (random_below(2) == 0) {
            const uint64_t back = random_below(firm + 1);
            brim_budget_uncharge(root, BRIM_MEMORY_HOST, back);
            firm -= back;
        }
        if (random_below(2) == 0) {
            const uint64_t back = random_below(elastic + 1);
            brim__budget_return(root, BRIM_MEMORY_HOST, back);
            elastic -= back;
        }
    }
    brim_budget_info info = BRIM_BUDGET_INFO_INIT;
    const bool right = brim_budget_read(root, BRIM_MEMORY_HOST, &info) == BRIM_OK &&
                       info.charged == join_bytes() + firm + elastic;
    brim_budget_uncharge(root, BRIM_MEMORY_HOST, firm);
    brim__budget_return(root, BRIM_MEMORY_HOST, elastic);
    brim__budget_check(root);
    return right && granted > 0 && refused > 0;
}

static void the_limit_holds_under_load(void **state) {
    (void)state;
    enum { PROCESSES = 4 };
    const char *name = shared_name("load");
    /* so little that one of them alone is refused something too: they need not run at a time */
    const uint64_t limit = (PROCESSES + 1) * join_bytes() + 24 * KIB;
    const int count = is_sanitized() ? 10000 : 60000;
    brim_budget *root = join(name, limit);
    int joined[2];
    int go[2];
    char byte = 0;
    assert_int_equal(pipe(joined), 0);
    assert_int_equal(pipe(go), 0);
    fflush(NULL);
    for (int i = 0; i < PROCESSES; i++) {
        if (fork() == 0) {
            const uint64_t limits[BRIM_MEMORY_KINDS] = { 0 };
            brim_status status;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            random_state = (uint64_t)i * 77 + 1;
            brim_budget *own = join_with(name, limits, &status);
            bool right = own != NULL && brim_budget_charge(own, BRIM_MEMORY_HOST, KIB) == BRIM_OK;
            right = write(joined[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1 && right;
            if (right) {
                brim_budget_uncharge(own, BRIM_MEMORY_HOST, KIB);
                right = charge_at_random(own, count);
            }
            brim__budget_unref(own);
            _exit(right ? 0 : 1);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        assert_int_equal(read(joined[0], &byte, 1), 1);
    }
    assert_true(locked_sum(root->tree->shared.segment) > (PROCESSES + 1) * join_bytes());
    for (int i = 0; i < PROCESSES; i++) {
        assert_int_equal(write(go[1], &byte, 1), 1);
    }
    for (int left = PROCESSES; left > 0;) {
        int status;
        assert_true(locked_sum(root->tree->shared.segment) <= limit);
        if (waitpid(-1, &status, WNOHANG) > 0) {
            assert_int_equal(status, 0);
            left--;
        }
    }
    for (int i = 0; i < 2; i++) {
        close(joined[i]);
        close(go[i]);
    }
    assert_int_equal(locked_sum(root->tree->shared.segment), join_bytes());
    brim__budget_unref(root);
    assert_false(name_exists(name));
}

struct work {
    brim_budget *root;
    bool right;
};

static void *charge_in_thread(void *user) {
    struct work *work = user;
    work->right = true;
    for (int i = 0; i < 2000; i++) {
        const uint64_t bytes = 1 + (uint64_t)i * 37 % (20 * KIB);
        struct brim__sharing sharing;
        char text[128];
        if (brim_budget_charge(work->root, BRIM_MEMORY_HOST, bytes) == BRIM_OK) {
            brim_budget_uncharge(work->root, BRIM_MEMORY_HOST, bytes);
        }
        if (brim__budget_try(work->root, BRIM_MEMORY_HOST, bytes)) {
            brim__budget_return(work->root, BRIM_MEMORY_HOST, bytes);
        }
        if (i % 50 == 0) {
            work->right =
                work->right && brim__budget_sharing(work->root, BRIM_MEMORY_HOST, &sharing);
            brim__budget_holders(work->root, BRIM_MEMORY_HOST, text, sizeof text, NULL);
            (void)brim__budget_available(work->root, BRIM_MEMORY_HOST);
        }
    }
    return NULL;
}

static void threads_of_two_runtimes_share(void **state) {
    (void)state;
    const char *name = shared_name("threads");
    brim_budget *roots[2] = { join(name, 2 * join_bytes() + 40 * KIB), join(name, 0) };
    struct work work[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        work[i].root = roots[i % 2];
        assert_int_equal(pthread_create(&threads[i], NULL, charge_in_thread, &work[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_true(work[i].right);
    }
    assert_int_equal(sharing_of(roots[0], BRIM_MEMORY_HOST).used, 2 * join_bytes());
    brim__budget_check(roots[0]);
    brim__budget_check(roots[1]);
    brim__budget_unref(roots[0]);
    brim__budget_unref(roots[1]);
    assert_false(name_exists(name));
}

/* -------------------------------------------------------------------- damage */

static void write_at(const char *name, size_t offset, const void *data, size_t bytes) {
    char path[BRIM__SEGMENT_PATH];
    const int file = open(brim__segment_path(name, path), O_WRONLY | O_CREAT, 0600);
    assert_true(file >= 0);
    assert_int_equal(pwrite(file, data, bytes, (off_t)offset), (ssize_t)bytes);
    close(file);
}

static void refuses(const char *name, brim_status wanted, const char *words) {
    const uint64_t limits[BRIM_MEMORY_KINDS] = { 16 * MIB };
    char path[BRIM__SEGMENT_PATH];
    brim_status status;
    assert_null(join_with(name, limits, &status));
    assert_int_equal(status, wanted);
    if (strstr(brim_detail(), words) == NULL ||
        strstr(brim_detail(), brim__segment_path(name, path)) == NULL) {
        fail_msg("not \"%s\" in: %s", words, brim_detail());
    }
}

/* A file as somebody leaves it who is killed: complete, and nobody is in it. */
static void leave_behind(const char *name) {
    const struct child child = new_child_process(name, 16 * MIB);
    kill_child(&child);
    bury(&child);
    assert_true(name_exists(name));
}

static void a_damaged_file_is_refused(void **state) {
    (void)state;
    const char *name = shared_name("damage");
    char path[BRIM__SEGMENT_PATH];
    brim__segment_path(name, path);

    leave_behind(name);
    assert_int_equal(truncate(path, 100), 0);
    refuses(name, BRIM_STATUS_CORRUPT, "has 100 bytes, not ");
    refuses(name, BRIM_STATUS_CORRUPT, "delete it");
    assert_true(name_exists(name)); /* it may be somebody else's */
    assert_int_equal(truncate(path, sizeof(struct brim__shared_segment) + 1), 0);
    refuses(name, BRIM_STATUS_CORRUPT, "another version");
    assert_int_equal(unlink(path), 0);

    static const size_t fields[] = { offsetof(struct brim__shared_segment, format),
                                     offsetof(struct brim__shared_segment, mutex_bytes),
                                     offsetof(struct brim__shared_segment, kinds),
                                     offsetof(struct brim__shared_segment, entries) };
    for (size_t i = 0; i < BRIM__COUNT(fields); i++) {
        const uint32_t other = 99;
        leave_behind(name);
        write_at(name, fields[i], &other, sizeof other);
        refuses(name, BRIM_STATUS_CORRUPT, "another version");
        assert_int_equal(unlink(path), 0);
    }
    leave_behind(name);
    write_at(name, 0, "Brim", 4);
    refuses(name, BRIM_STATUS_CORRUPT, "not a shared budget");
    assert_int_equal(unlink(path), 0);

    leave_behind(name);
    assert_int_equal(chmod(path, 0644), 0);
    refuses(name, BRIM_STATUS_CORRUPT, "open to other users");
    assert_int_equal(unlink(path), 0);

    assert_int_equal(mkdir(path, 0700), 0);
    refuses(name, BRIM_STATUS_IO, "cannot be opened");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/dev/shm/elsewhere", path), 0);
    refuses(name, BRIM_STATUS_IO, "cannot be opened");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    refuses(name, BRIM_STATUS_CORRUPT, "not a file of this user");
    assert_int_equal(unlink(path), 0);
}

static void is_untouched(const char *path, uid_t owner) {
    struct stat facts;
    assert_int_equal(lstat(path, &facts), 0);
    assert_int_equal(facts.st_size, 0);
    assert_int_equal(facts.st_uid, owner);
}

/* An empty file of another user, or open to others, is neither locked, which would be another
 * refusal, nor enlarged: others may hold its lock for ever. */
static void a_file_of_somebody_else_is_left_alone(void **state) {
    (void)state;
    const char *name = shared_name("foreign");
    char path[BRIM__SEGMENT_PATH];
    brim__segment_path(name, path);
    const int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(file >= 0);
    assert_int_equal(flock(file, LOCK_EX), 0);
    assert_int_equal(fchmod(file, 0666), 0);
    refuses(name, BRIM_STATUS_CORRUPT, "open to other users");
    is_untouched(path, geteuid());
    if (geteuid() == 0) { /* only root can make a file of another user */
        assert_int_equal(fchmod(file, 0600), 0);
        assert_int_equal(fchown(file, 65534, 65534), 0);
        refuses(name, BRIM_STATUS_CORRUPT, "not a file of this user");
        is_untouched(path, 65534);
    } else {
        print_message("not root: no file of another user is tried\n");
    }
    close(file);
    assert_int_equal(unlink(path), 0);
}

static void what_was_not_made_to_the_end_is_made_again(void **state) {
    (void)state;
    const char *name = shared_name("unfinished");
    char path[BRIM__SEGMENT_PATH];
    static const uint64_t nothing = 0;
    for (int i = 0; i < 2; i++) {
        if (i == 0) { /* killed before it had a length */
            write_at(name, 0, "", 0);
        } else { /* and before the magic was written, with anything in the rest */
            static uint8_t junk[sizeof(struct brim__shared_segment)];
            memset(junk, 0xA5, sizeof junk);
            write_at(name, 0, junk, sizeof junk);
            write_at(name, 0, &nothing, sizeof nothing);
        }
        assert_int_equal(chmod(brim__segment_path(name, path), 0600), 0);
        brim_budget *root = join(name, join_bytes() + 10);
        assert_true(charges(root, 10));
        assert_false(charges(root, 1));
        assert_int_equal(sharing_of(root, BRIM_MEMORY_HOST).processes, 1);
        brim__budget_unref(root);
        assert_false(name_exists(name));
    }
}

/* Anything may stand in the entries and limits: no call crashes, hangs or grants what is
 * not there. The lock itself is the C library's, and is left alone. */
static void anything_may_stand_in_the_entries(void **state) {
    (void)state;
    const char *name = shared_name("junk");
    for (int round = 0; round < 200; round++) {
        brim_budget *root = join(name, join_bytes() + 10 * KIB);
        struct brim__shared_segment *segment = root->tree->shared.segment;
        const uint32_t own = root->tree->shared.entry;
        for (uint32_t i = 0; i < BRIM__SHARED_ENTRIES; i++) {
            uint64_t words[sizeof segment->entry[0] / 8];
            memcpy(words, &segment->entry[i], sizeof words);
            for (size_t k = 0; k < BRIM__COUNT(words); k++) {
                words[k] = random_below(4)   ? words[k]
                           : random_below(2) ? random_below(KIB)
                                             : random_below(UINT32_MAX) * random_below(UINT32_MAX);
            }
            if (i != own) {
                memcpy(&segment->entry[i], words, sizeof words);
            }
        }
        for (size_t kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
            segment->limits[kind] = random_below(UINT32_MAX);
        }
        char text[300];
        struct brim__sharing sharing;
        (void)charges(root, 11 * KIB);
        assert_false(charges(root, 10 * KIB + 1)); /* the limit that held when it joined */
        (void)brim__budget_try(root, BRIM_MEMORY_HOST, 0);
        brim__budget_holders(root, BRIM_MEMORY_HOST, text, sizeof text, NULL);
        for (const char *c = text; *c != '\0'; c++) {
            assert_in_range(*c, ' ', '~');
        }
        assert_true(brim__budget_sharing(root, BRIM_MEMORY_HOST, &sharing));
        assert_true(brim__budget_available(root, BRIM_MEMORY_HOST) <= 10 * KIB);
        const uint64_t limits[BRIM_MEMORY_KINDS] = { 0 };
        brim_status status;
        brim_budget *other = join_with(name, limits, &status); /* may or may not */
        brim__budget_unref(other);
        brim__budget_check(root);
        brim__budget_unref(root);
        brim__segment_remove(name);
    }
}

/* Somebody has deleted the file while it was in use: those in it go on, and do not delete
 * the file that others have made since. */
static void a_deleted_name_is_not_the_next_ones(void **state) {
    (void)state;
    const char *name = shared_name("deleted");
    brim_budget *old = join(name, 16 * MIB);
    brim__segment_remove(name);
    assert_true(charges(old, MIB));
    brim_budget *other = join(name, 2 * MIB);
    assert_int_equal(sharing_of(other, BRIM_MEMORY_HOST).processes, 1);
    brim__budget_unref(old);
    assert_true(name_exists(name));
    assert_int_equal(sharing_of(other, BRIM_MEMORY_HOST).processes, 1);
    brim__budget_unref(other);
    assert_false(name_exists(name));
}

/* ------------------------------------------------------- what the system refuses */

static void a_name_must_be_one(void **state) {
    (void)state;
    char too_long[BRIM__SHARED_NAME_BYTES + 1] = "";
    memset(too_long, 'x', sizeof too_long - 1);
    const char *const names[] = { "", "a/b", "a b", "../x", "t\xC3\xA4g", "a\n", too_long };
    const uint64_t limits[BRIM_MEMORY_KINDS] = { 16 * MIB };
    brim_status status;
    for (size_t i = 0; i < BRIM__COUNT(names); i++) {
        assert_null(join_with(names[i], limits, &status));
        assert_int_equal(status, BRIM_STATUS_INVALID);
        assert_non_null(strstr(brim_detail(), "the name of a shared budget"));
    }
    char longest[BRIM__SHARED_NAME_BYTES];
    snprintf(longest, sizeof longest, "T.t_-%d", (int)getpid());
    memset(longest + strlen(longest), 'x', sizeof longest - 1 - strlen(longest));
    longest[sizeof longest - 1] = '\0';
    brim_budget *root = join(longest, 16 * MIB);
    assert_true(name_exists(longest));
    brim__budget_unref(root);
    assert_false(name_exists(longest));
}

static void every_refusal_of_the_system_is_told(void **state) {
    (void)state;
    const char *name = shared_name("faults");
    const unsigned kinds = 1u << BRIM__FAULT_ALLOC | 1u << BRIM__FAULT_MAP |
                           1u << BRIM__FAULT_OPEN | 1u << BRIM__FAULT_WRITE;
    const uint64_t limits[BRIM_MEMORY_KINDS] = { 16 * MIB };
    brim_status status;
    int failures = 0;
    for (uint64_t nth = 1;; nth++) {
        brim__fault_arm(kinds, nth, false);
        brim_budget *root = join_with(name, limits, &status);
        const bool injected = brim__fault_injected() > 0;
        brim__fault_arm(0, 0, false);
        assert_int_equal(root == NULL, injected);
        if (root != NULL) {
            brim__budget_unref(root);
            assert_false(name_exists(name));
            break;
        }
        failures++;
        assert_true(status == BRIM_STATUS_IO || status == BRIM_STATUS_MEMORY);
        assert_true(strlen(brim_detail()) > 20);
        if (name_exists(name)) { /* made, and not even looked at: the next one takes it */
            brim_budget *next = join(name, 16 * MIB);
            brim__budget_unref(next);
        }
        assert_false(name_exists(name));
    }
    assert_int_equal(failures, 6); /* malloc, open, fstat, fstat again, fallocate, mmap */

    /* leaving cannot fail: the entry goes, and the name with the next one */
    for (uint64_t nth = 1; nth <= 2; nth++) {
        brim_budget *root = join(name, 16 * MIB);
        brim__fault_arm(kinds, nth, false);
        brim__budget_unref(root);
        assert_int_equal(brim__fault_injected(), 1);
        brim__fault_arm(0, 0, false);
        assert_true(name_exists(name));
        root = join(name, 8 * MIB);
        assert_int_equal(sharing_of(root, BRIM_MEMORY_HOST).processes, 1);
        brim__budget_unref(root);
        assert_false(name_exists(name));
    }
}

/* In a namespace of mounts of its own: /dev/shm as `options` say. 0: as it should be. */
static int without_room(const char *name, const char *options, unsigned long flags,
                        const char *words) {
    const uint64_t limits[BRIM_MEMORY_KINDS] = { 16 * MIB };
    brim_status status;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", flags, options) != 0) {
        return 77;
    }
    brim_budget *root = join_with(name, limits, &status);
    if (root != NULL || (status != BRIM_STATUS_IO && status != BRIM_STATUS_MEMORY) ||
        strstr(brim_detail(), words) == NULL || name_exists(name)) {
        fprintf(stderr, "%s\n", brim_detail());
        return 1;
    }
    return 0;
}

static void no_room_to_share_is_told(void **state) {
    (void)state;
    static const struct {
        const char *options, *words;
        unsigned long flags;
    } cases[] = {
        { "size=4k", "No space left", 0 },
        { "size=1m", "must be able to make files", MS_RDONLY },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        int status;
        fflush(NULL);
        const pid_t process = fork();
        if (process == 0) {
            _exit(without_room(shared_name("room"), cases[i].options, cases[i].flags,
                               cases[i].words));
        }
        assert_int_equal(waitpid(process, &status, 0), process);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77) {
            print_message("no mounts may be made here: not tested\n");
            skip();
        }
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_begin_at_once),
        cmocka_unit_test(joining_and_leaving_at_once),
        cmocka_unit_test(the_limit_holds_under_load),
        cmocka_unit_test(threads_of_two_runtimes_share),
        cmocka_unit_test(a_damaged_file_is_refused),
        cmocka_unit_test(a_file_of_somebody_else_is_left_alone),
        cmocka_unit_test(what_was_not_made_to_the_end_is_made_again),
        cmocka_unit_test(anything_may_stand_in_the_entries),
        cmocka_unit_test(a_deleted_name_is_not_the_next_ones),
        cmocka_unit_test(a_name_must_be_one),
        cmocka_unit_test(every_refusal_of_the_system_is_told),
        cmocka_unit_test(no_room_to_share_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
