/*
 * process.c: identifies a process, and says whether it is gone, from /proc.
 *
 * A killed process that its parent has not waited for yet (a zombie) has a number and a start time,
 * but no memory: it is gone. A process whose first thread has ended while others run looks the same
 * except for its number of threads, and is not gone.
 *
 * A process that has replaced its program (exec) has given all memory back and keeps number and
 * start: it counts as the old process until it ends. This errs on the safe side.
 */
#include "memory/process.h"

#include "base/platform.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* What /proc/N/stat says: "4711 (python3) S 1 ..." with the start in field 22. */
struct facts {
    uint64_t number, start, threads;
    char state;
    char command[BRIM__COMMAND_BYTES];
};

static bool read_facts(const char *path, struct facts *facts) {
    char text[1024];
    if (!brim__system_text(path, text, sizeof text)) {
        return false;
    }
    /* a command may hold parentheses and spaces; no field after it does */
    const char *begin = strchr(text, '(');
    const char *end = strrchr(text, ')');
    unsigned long long threads;
    unsigned long long start;
    if (begin == NULL || end == NULL || end < begin ||
        sscanf(end + 1,
               " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %*s %llu",
               &facts->state, &threads, &start) != 3) {
        return false;
    }
    facts->number = strtoull(text, NULL, 10);
    facts->threads = threads;
    facts->start = start;
    const size_t length = brim__min((size_t)(end - begin - 1), BRIM__COMMAND_BYTES - 1);
    memset(facts->command, 0, sizeof facts->command);
    for (size_t i = 0; i < length; i++) {
        const char c = begin[1 + i];
        facts->command[i] = c >= ' ' && c <= '~' ? c : '?';
    }
    return true;
}

static uint64_t inode_of(const char *path) {
    struct stat facts;
    return stat(path, &facts) == 0 ? (uint64_t)facts.st_ino : 0;
}

void brim__identity_own(struct brim__identity *own, char command[BRIM__COMMAND_BYTES]) {
    struct facts facts;
    memset(command, 0, BRIM__COMMAND_BYTES);
    *own = (struct brim__identity){ .number = brim__process() };
    if (!read_facts("/proc/self/stat", &facts)) {
        return;
    }
    memcpy(command, facts.command, BRIM__COMMAND_BYTES);
    const uint64_t numbers = inode_of("/proc/self/ns/pid");
    const uint64_t times = inode_of("/proc/self/ns/time"); /* 0: older systems have one */
    if (facts.number == own->number && numbers != 0) {
        own->start = facts.start;
        own->space = numbers ^ (times << 32); /* inodes of namespaces have 32 bits */
    }
}

bool brim__identity_is_gone(const struct brim__identity *who, const struct brim__identity *own) {
    if (own->space == 0 || who->space != own->space) {
        return false;
    }
    if (who->number > INT32_MAX || (kill((pid_t)who->number, 0) != 0 && errno == ESRCH)) {
        return true;
    }
    char path[64];
    struct facts facts;
    snprintf(path, sizeof path, "/proc/%u/stat", (unsigned)who->number);
    return read_facts(path, &facts) &&
           (facts.start != who->start ||
            ((facts.state == 'Z' || facts.state == 'X') && facts.threads <= 1));
}
