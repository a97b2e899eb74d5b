/*
 * test_machine.c: memory and CPU limits read from imitated /proc and /sys trees.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/machine.h"

#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static char root[64];

static int make_root(void **state) {
    (void)state;
    strcpy(root, "/tmp/brim-machine-XXXXXX");
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *facts, int type, struct FTW *ftw) {
    (void)facts, (void)type, (void)ftw;
    return remove(path);
}

static int remove_root(void **state) {
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Writes a file of the tree and the folders above it. */
static void put(const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(path, 0700);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static struct brim__machine look(void) {
    struct brim__machine machine;
    brim__machine_read(root, &machine);
    assert_true(machine.cpus >= 1);
    assert_true(machine.origin[0] != '\0');
    return machine;
}

static uint32_t affinity(void) {
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return (uint32_t)CPU_COUNT(&set);
}

static void put_available(void) {
    put("/proc/meminfo", "MemTotal:       16384 kB\nMemFree:         1024 kB\n"
                         "MemAvailable:    8192 kB\n");
}

static void nothing_readable_limits_nothing(void **state) {
    (void)state;
    const struct brim__machine machine = look();
    assert_true(machine.free_bytes == UINT64_MAX);
    assert_int_equal(machine.cpus, affinity());
}

static void the_machine_itself_limits(void **state) {
    (void)state;
    put_available();
    const struct brim__machine machine = look();
    assert_true(machine.free_bytes == 8 * MIB);
    assert_non_null(strstr(machine.origin, "MemAvailable"));
}

static void v2_takes_the_tightest_group_up_the_parents(void **state) {
    (void)state;
    put_available();
    put("/proc/self/cgroup", "0::/user/app\n");
    put("/sys/fs/cgroup/user/app/memory.max", "max\n");
    put("/sys/fs/cgroup/user/app/memory.current", "1048576\n");
    put("/sys/fs/cgroup/user/app/cpu.max", "max 100000\n");
    assert_true(look().free_bytes == 8 * MIB);
    assert_int_equal(look().cpus, affinity());

    /* 6 MiB - 5 MiB in use, of which 2 + 1 are reclaimable; a key that only
     * ends like one of them does not count */
    put("/sys/fs/cgroup/user/memory.max", "6291456\n");
    put("/sys/fs/cgroup/user/memory.current", "5242880\n");
    put("/sys/fs/cgroup/user/memory.stat", "anon 1\nworkingset_inactive_file 4096\n"
                                           "inactive_file 1048576\nactive_file 1048576\n"
                                           "slab_reclaimable 1048576\n");
    put("/sys/fs/cgroup/user/cpu.max", "50000 100000\n");
    struct brim__machine machine = look();
    assert_true(machine.free_bytes == 4 * MIB);
    assert_non_null(strstr(machine.origin, "cgroup v2 /user:"));
    assert_non_null(strstr(machine.origin, "6.0 MiB"));
    assert_int_equal(machine.cpus, 1);

    /* the group itself is tighter */
    put("/sys/fs/cgroup/user/app/memory.max", "3145728\n");
    machine = look();
    assert_true(machine.free_bytes == 2 * MIB);
    assert_non_null(strstr(machine.origin, "/user/app:"));

    /* over its limit, nothing reclaimable: nothing is free */
    put("/sys/fs/cgroup/user/app/memory.current", "4194304\n");
    assert_true(look().free_bytes == 0);
}

static void v1_knows_its_unlimited_number(void **state) {
    (void)state;
    put("/proc/self/cgroup", "4:memory:/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(look().free_bytes == UINT64_MAX);

    put_available();
    put("/proc/self/cgroup", "5:cpuset:/\n4:memory:/a/b\n3:cpuacct,cpu:/a\n1:name=systemd:/x\n");
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4194304\n");
    put("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "3145728\n");
    put("/sys/fs/cgroup/memory/a/memory.stat", "inactive_file 5\ntotal_inactive_file 524288\n"
                                               "total_active_file 524288\n");
    put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "100001\n");
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    const struct brim__machine machine = look();
    assert_true(machine.free_bytes == 2 * MIB);
    assert_non_null(strstr(machine.origin, "cgroup v1 /a:"));
    assert_int_equal(machine.cpus, brim__min(affinity(), 2)); /* 1.00001 rounds up */
}

static void hybrid_looks_at_both(void **state) {
    (void)state;
    put("/proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/a\n0::/s\n");
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4194304\n");
    put("/sys/fs/cgroup/unified/s/memory.max", "3145728\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    assert_true(look().free_bytes == 3 * MIB);
    assert_int_equal(look().cpus, 1);
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2097152\n");
    assert_true(look().free_bytes == 2 * MIB);
}

static void a_group_of_the_hosts_names_is_the_mounts_root(void **state) {
    (void)state;
    put_available();
    put("/proc/self/cgroup", "0::/docker/0123456789\n");
    put("/sys/fs/cgroup/memory.max", "1048576\n");
    struct brim__machine machine = look();
    assert_true(machine.free_bytes == MIB);
    assert_non_null(strstr(machine.origin, "cgroup v2 /:"));
    put("/proc/self/cgroup", "0::/../other\n");
    put("/sys/fs/other/memory.max", "4096\n"); /* outside of the mount */
    assert_true(look().free_bytes == MIB);
    put("/proc/self/cgroup", "0::/\n");
    assert_true(look().free_bytes == MIB);
}

static void nonsense_does_not_limit(void **state) {
    (void)state;
    put_available();
    static const char *const cgroups[] = { "",    "\n\n",     "0",
                                           "0:",  "0::",      "0::x",
                                           ":::", "4:memory", "garbage without colons" };
    put("/sys/fs/cgroup/memory.max", "what\n");
    put("/sys/fs/cgroup/cpu.max", "1000\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "99999999999999999999999\n");
    for (size_t i = 0; i < BRIM__COUNT(cgroups); i++) {
        put("/proc/self/cgroup", cgroups[i]);
        assert_true(look().free_bytes == 8 * MIB);
    }
    put("/proc/self/cgroup", "0::/\n4:memory:/\n3:cpu:/");
    assert_true(look().free_bytes == 8 * MIB);
    assert_int_equal(look().cpus, affinity());
    put("/sys/fs/cgroup/cpu.max", "100000 0\n");
    assert_int_equal(look().cpus, affinity());

    char longest[6000];
    memset(longest, 'a', sizeof longest - 1);
    memcpy(longest, "0::/", 4);
    longest[sizeof longest - 1] = '\0';
    put("/proc/self/cgroup", longest);
    assert_true(look().free_bytes == 8 * MIB);
}

static void a_long_group_name_keeps_its_end(void **state) {
    (void)state;
    char group[128];
    char line[256];
    memset(group, 'g', sizeof group);
    group[100] = '\0';
    snprintf(line, sizeof line, "0::/%sTHE-END\n", group);
    put("/proc/self/cgroup", line);
    snprintf(line, sizeof line, "/sys/fs/cgroup/%sTHE-END/memory.max", group);
    put(line, "4096\n");
    const struct brim__machine machine = look();
    assert_true(machine.free_bytes == 4096);
    assert_non_null(strstr(machine.origin, "gTHE-END: limit 4.0 KiB"));
}

static void the_real_machine_has_memory(void **state) {
    (void)state;
    struct brim__machine machine;
    brim__machine_read("", &machine);
    assert_true(machine.free_bytes > MIB);
    assert_in_range(machine.cpus, 1, affinity());
}

#define ON_A_TREE(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_A_TREE(nothing_readable_limits_nothing),
        ON_A_TREE(the_machine_itself_limits),
        ON_A_TREE(v2_takes_the_tightest_group_up_the_parents),
        ON_A_TREE(v1_knows_its_unlimited_number),
        ON_A_TREE(hybrid_looks_at_both),
        ON_A_TREE(a_group_of_the_hosts_names_is_the_mounts_root),
        ON_A_TREE(nonsense_does_not_limit),
        ON_A_TREE(a_long_group_name_keeps_its_end),
        cmocka_unit_test(the_real_machine_has_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
