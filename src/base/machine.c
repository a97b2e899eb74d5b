/*
 * machine.c: what the machine and the control groups leave to this process.
 *
 * A process is in one group of each hierarchy, and every group up to the root
 * may limit it, so each chain is walked upwards and the tightest one counts:
 *
 *     /proc/self/cgroup          looked for under /sys/fs/cgroup
 *     4:memory:/a/b              memory/a/b, memory/a, memory           (v1)
 *     3:cpu,cpuacct:/a           cpu/a, cpu (or cpu,cpuacct/...)        (v1)
 *     0::/a/b                    a/b, a, the root, or unified/...       (v2)
 *
 * A system may run both versions side by side (hybrid); all chains that exist
 * are walked, and files that do not exist do not limit. A container that shows
 * the host's group names has its own group mounted as the root: a group that
 * is not found is looked for there.
 *
 * Everything is read into one fixed buffer on the stack; nothing is allocated.
 */
#include "base/machine.h"
#include "base/platform.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* v1 writes "no limit" as the largest multiple of a page in 63 bits. */
#define V1_UNLIMITED (UINT64_C(1) << 62)

/* The kernel's own bound on CPUs is 8192. */
#define MOST_CPUS 16384

struct chain {
    char path[PATH_MAX];  /* the group's directory; shortened while walking up */
    size_t mount_length;  /* path is not shortened below the mount */
    char text[16 * 1024]; /* of the file being read */
};

/* Reads the file `name` of the group that the walk has reached. */
static bool read_group(struct chain *chain, const char *name) {
    char path[PATH_MAX + 64];
    const int length = snprintf(path, sizeof path, "%s/%s", chain->path, name);
    return length > 0 && (size_t)length < sizeof path &&
           brim__system_text(path, chain->text, sizeof chain->text);
}

/* The number at the beginning of a text; false for "max", "-1" and nonsense. */
static bool parse_number(const char *text, const char **rest, uint64_t *number) {
    if (*text < '0' || *text > '9') {
        return false;
    }
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0) {
        return false;
    }
    *rest = end;
    *number = value;
    return true;
}

static bool read_number(struct chain *chain, const char *name, uint64_t *number) {
    const char *rest;
    return read_group(chain, name) && parse_number(chain->text, &rest, number);
}

/* The value of "key value" on a line of its own; 0 if there is none. */
static uint64_t value_of(const char *text, const char *key) {
    const size_t length = strlen(key);
    const char *rest;
    uint64_t value;
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == ' ') {
            return parse_number(line + length + 1, &rest, &value) ? value : 0;
        }
    }
    return 0;
}

/* Starts the walk at the group, or at the mount if the group is not found. false: there is no such
 * mount. */
static bool enter(struct chain *chain, const char *root, const char *mount, const char *group) {
    const int length = snprintf(chain->path, sizeof chain->path, "%s/sys/fs/cgroup%s", root, mount);
    struct stat facts;
    if (length < 0 || (size_t)length >= sizeof chain->path || stat(chain->path, &facts) != 0) {
        return false;
    }
    chain->mount_length = (size_t)length;
    size_t group_length = strlen(group);
    while (group_length > 0 && group[group_length - 1] == '/') {
        group_length--;
    }
    if (group_length >= sizeof chain->path - chain->mount_length || strstr(group, "/..") != NULL) {
        return true; /* outside of what this process can see */
    }
    memcpy(chain->path + length, group, group_length);
    chain->path[chain->mount_length + group_length] = '\0';
    if (stat(chain->path, &facts) != 0 || !S_ISDIR(facts.st_mode)) {
        chain->path[chain->mount_length] = '\0';
    }
    return true;
}

static bool step_up(struct chain *chain) {
    if (chain->path[chain->mount_length] == '\0') {
        return false;
    }
    *strrchr(chain->path + chain->mount_length, '/') = '\0';
    return true;
}

static void limit_memory(struct brim__machine *machine, const struct chain *chain, int version,
                         uint64_t limit, uint64_t used, uint64_t reclaimable) {
    const uint64_t firm = used - brim__min(used, reclaimable);
    const uint64_t free_bytes = limit - brim__min(limit, firm);
    if (free_bytes >= machine->free_bytes) {
        return;
    }
    machine->free_bytes = free_bytes;
    char limit_text[BRIM__SIZE_TEXT];
    char firm_text[BRIM__SIZE_TEXT];
    const char *group = chain->path + chain->mount_length;
    const size_t length = strlen(group);
    const size_t most = 64; /* the end of a long name says more than its beginning */
    snprintf(machine->origin, sizeof machine->origin,
             "cgroup v%d %s%s: limit %s, %s in use that cannot be reclaimed", version,
             length > most ? "..." : "",
             length == 0 ? "/" : group + (length > most ? length - most : 0),
             brim__size_text(limit, limit_text), brim__size_text(firm, firm_text));
}

static void memory_v1(struct brim__machine *machine, struct chain *chain) {
    do {
        uint64_t limit;
        uint64_t used = 0;
        uint64_t reclaimable = 0;
        if (!read_number(chain, "memory.limit_in_bytes", &limit) || limit >= V1_UNLIMITED) {
            continue;
        }
        if (!read_number(chain, "memory.usage_in_bytes", &used)) {
            used = 0;
        }
        if (read_group(chain, "memory.stat")) {
            reclaimable = value_of(chain->text, "total_inactive_file") +
                          value_of(chain->text, "total_active_file");
        }
        limit_memory(machine, chain, 1, limit, used, reclaimable);
    } while (step_up(chain));
}

static void memory_v2(struct brim__machine *machine, struct chain *chain) {
    do {
        uint64_t limit;
        uint64_t used = 0;
        uint64_t reclaimable = 0;
        if (!read_number(chain, "memory.max", &limit)) {
            continue;
        }
        if (!read_number(chain, "memory.current", &used)) {
            used = 0;
        }
        if (read_group(chain, "memory.stat")) {
            reclaimable = value_of(chain->text, "inactive_file") +
                          value_of(chain->text, "active_file") +
                          value_of(chain->text, "slab_reclaimable");
        }
        limit_memory(machine, chain, 2, limit, used, reclaimable);
    } while (step_up(chain));
}

/* Part of a CPU counts as one: a thread can use it. */
static void limit_cpus(struct brim__machine *machine, uint64_t quota, uint64_t period) {
    if (period == 0) {
        return;
    }
    const uint64_t cpus = brim__max(1, brim__divide_up(quota, period));
    machine->cpus = (uint32_t)brim__min(machine->cpus, cpus);
}

static void cpus_v1(struct brim__machine *machine, struct chain *chain) {
    do {
        uint64_t quota;
        uint64_t period;
        if (read_number(chain, "cpu.cfs_quota_us", &quota) &&
            read_number(chain, "cpu.cfs_period_us", &period)) {
            limit_cpus(machine, quota, period);
        }
    } while (step_up(chain));
}

static void cpus_v2(struct brim__machine *machine, struct chain *chain) {
    do {
        uint64_t quota;
        uint64_t period;
        const char *rest;
        if (read_group(chain, "cpu.max") && parse_number(chain->text, &rest, &quota) &&
            *rest == ' ' && parse_number(rest + 1, &rest, &period)) {
            limit_cpus(machine, quota, period);
        }
    } while (step_up(chain));
}

typedef void follow(struct brim__machine *machine, struct chain *chain);

static void follow_group(struct brim__machine *machine, const char *root, const char *mount,
                         const char *group, follow *walk) {
    struct chain chain;
    if (enter(&chain, root, mount, group)) {
        walk(machine, &chain);
    }
}

static bool has_controller(const char *list, size_t length, const char *name) {
    const size_t name_length = strlen(name);
    for (size_t at = 0; at + name_length <= length; at++) {
        if ((at == 0 || list[at - 1] == ',') && memcmp(list + at, name, name_length) == 0 &&
            (at + name_length == length || list[at + name_length] == ',')) {
            return true;
        }
    }
    return false;
}

/* One line "number:controllers:group" of /proc/self/cgroup. */
static void follow_line(struct brim__machine *machine, const char *root, const char *line) {
    const char *list = strchr(line, ':');
    const char *group = list != NULL ? strchr(list + 1, ':') : NULL;
    if (group == NULL || group[1] != '/') {
        return;
    }
    list++;
    const size_t list_length = (size_t)(group - list);
    group++;
    if (strncmp(line, "0::", 3) == 0) {
        static const char *const mounts[] = { "", "/unified" };
        for (size_t i = 0; i < BRIM__COUNT(mounts); i++) {
            follow_group(machine, root, mounts[i], group, memory_v2);
            follow_group(machine, root, mounts[i], group, cpus_v2);
        }
    }
    if (has_controller(list, list_length, "memory")) {
        follow_group(machine, root, "/memory", group, memory_v1);
    }
    if (has_controller(list, list_length, "cpu")) {
        follow_group(machine, root, "/cpu", group, cpus_v1);
        follow_group(machine, root, "/cpu,cpuacct", group, cpus_v1);
    }
}

static uint32_t affinity(void) {
    unsigned long mask[MOST_CPUS / (8 * sizeof(unsigned long))] = { 0 };
    if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)mask) == 0) {
        const int count = CPU_COUNT_S(sizeof mask, (cpu_set_t *)mask);
        if (count > 0) {
            return (uint32_t)count;
        }
    }
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

static void read_available(struct brim__machine *machine, const char *root) {
    char path[PATH_MAX];
    char text[4096];
    const int length = snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (length < 0 || (size_t)length >= sizeof path ||
        !brim__system_text(path, text, sizeof text)) {
        return;
    }
    const char *key = "MemAvailable:";
    const char *at = strstr(text, key);
    const char *rest;
    uint64_t kib;
    if (at == NULL) {
        return;
    }
    at += strlen(key);
    at += strspn(at, " ");
    uint64_t bytes;
    if (!parse_number(at, &rest, &kib) || brim__mul_overflows(kib, 1024, &bytes)) {
        return;
    }
    machine->free_bytes = bytes;
    brim__copy_text(machine->origin, sizeof machine->origin, "MemAvailable of the machine");
}

void brim__machine_read(const char *root, struct brim__machine *machine) {
    *machine = (struct brim__machine){ .free_bytes = UINT64_MAX, .cpus = affinity() };
    brim__copy_text(machine->origin, sizeof machine->origin, "nothing known limits memory");
    read_available(machine, root);
    char path[PATH_MAX];
    char text[8192];
    const int length = snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (length < 0 || (size_t)length >= sizeof path ||
        !brim__system_text(path, text, sizeof text)) {
        return;
    }
    for (char *line = text; line != NULL && *line;) {
        char *end = strchr(line, '\n');
        if (end != NULL) {
            *end++ = '\0';
        }
        follow_line(machine, root, line);
        line = end;
    }
}
