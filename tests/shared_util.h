/*
 * shared_util.h: what the tests of shared budgets have in common: names of their own,
 * roots that share, and children that do as they are told.
 *
 * A child is forked, joins the shared budget with a root of its own and serves one order
 * after the other, so that a test decides what happens when. It dies with its parent.
 */
#ifndef BRIM_TESTS_SHARED_UTIL_H
#define BRIM_TESTS_SHARED_UTIL_H

#include "budget_util.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A name that no other run of the tests has. */
static inline const char *shared_name(const char *test) {
    static char name[BRIM__SHARED_NAME_BYTES];
    snprintf(name, sizeof name, "test-%d-%s", (int)getpid(), test);
    return name;
}

/* What joining costs: the root and the segment's pages. */
static inline uint64_t join_bytes(void) {
    return root_bytes() + brim__align(sizeof(struct brim__shared_segment), brim__page_bytes());
}

/* A root without limits of its own, in the shared budget of a name with these. NULL: why is
 * in *status. */
static inline brim_budget *join_with(const char *name, const uint64_t limits[BRIM_MEMORY_KINDS],
                                     brim_status *status) {
    uint64_t unlimited[BRIM_MEMORY_KINDS];
    brim_budget *root;
    for (size_t kind = 0; kind < BRIM_MEMORY_KINDS; kind++) {
        unlimited[kind] = BRIM_UNLIMITED;
    }
    *status = brim__budget_root("runtime", unlimited, &root);
    if (*status == BRIM_OK) {
        *status = brim__budget_share(root, name, limits);
        if (*status != BRIM_OK) {
            brim__budget_unref(root);
        }
    }
    return *status == BRIM_OK ? root : NULL;
}

/* A limit of which elastic memory may have `bytes`, and what only firm memory may have. */
static inline uint64_t limit_for_elastic(uint64_t bytes) {
    uint64_t limit = bytes;
    while (limit - limit / BRIM__FIRM_PART < bytes) {
        limit++;
    }
    return limit;
}

static inline uint64_t firm_part(uint64_t limit) {
    return limit / BRIM__FIRM_PART;
}

/* host_bytes: the limit of host memory, 0 that of the others. */
static inline brim_budget *join(const char *name, uint64_t host_bytes) {
    const uint64_t limits[BRIM_MEMORY_KINDS] = { host_bytes };
    brim_status status;
    brim_budget *root = join_with(name, limits, &status);
    if (root == NULL) {
        fail_msg("cannot join: %s", brim_detail());
    }
    return root;
}

static inline struct brim__sharing sharing_of(brim_budget *root, brim_memory kind) {
    struct brim__sharing sharing;
    assert_true(brim__budget_sharing(root, kind, &sharing));
    return sharing;
}

static inline bool name_exists(const char *name) {
    char path[BRIM__SEGMENT_PATH];
    return access(brim__segment_path(name, path), F_OK) == 0;
}

/* ---------------------------------------------------------------- children */

enum order { CHARGE, UNCHARGE, TRY, RETURN, LOCK, SNATCH, END };

struct message {
    enum order order;
    brim_memory kind;
    uint64_t bytes;
};

struct answer {
    brim_status status;
    char detail[BRIM__DETAIL_BYTES];
};

struct child {
    pid_t process;
    int orders, answers;
};

static inline void send_answer(int answers, brim_status status) {
    struct answer answer = { .status = status };
    if (status != BRIM_OK) {
        brim__copy_text(answer.detail, sizeof answer.detail, brim_detail());
    }
    if (write(answers, &answer, sizeof answer) != sizeof answer) {
        _exit(2);
    }
}

static inline brim_status obey(brim_budget *root, const struct message *message) {
    switch (message->order) {
    case CHARGE:
        return brim_budget_charge(root, message->kind, message->bytes);
    case UNCHARGE:
        brim_budget_uncharge(root, message->kind, message->bytes);
        return BRIM_OK;
    case TRY:
        return brim__budget_try(root, message->kind, message->bytes) ? BRIM_OK : BRIM_STATUS_BUDGET;
    case RETURN:
        brim__budget_return(root, message->kind, message->bytes);
        return BRIM_OK;
    case LOCK: /* and never unlocks */
        if (pthread_mutex_lock(&root->tree->shared.segment->lock) != 0) {
            return BRIM_STATUS_IO;
        }
        atomic_store(&root->tree->shared.segment->holder, (uint64_t)getpid());
        return BRIM_OK;
    default:
        return BRIM_STATUS_INVALID;
    }
}

static inline _Noreturn void serve(const char *name, uint64_t host_bytes, int orders, int answers) {
    const uint64_t limits[BRIM_MEMORY_KINDS] = { host_bytes };
    brim_status status;
    struct message message;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    brim_budget *root = join_with(name, limits, &status);
    send_answer(answers, status);
    while (root != NULL && read(orders, &message, sizeof message) == sizeof message) {
        if (message.order == END) {
            brim__budget_unref(root);
            send_answer(answers, BRIM_OK);
            _exit(0);
        }
        if (message.order == SNATCH) {
            send_answer(answers, BRIM_OK);
            for (;;) {
                (void)brim__budget_try(root, message.kind, message.bytes);
            }
        }
        send_answer(answers, obey(root, &message));
    }
    _exit(root == NULL ? 1 : 2);
}

static inline struct answer read_answer(const struct child *child) {
    struct answer answer;
    assert_int_equal(read(child->answers, &answer, sizeof answer), sizeof answer);
    return answer;
}

static inline struct child start_child(const char *name, uint64_t host_bytes) {
    int orders[2];
    int answers[2];
    struct child child;
    assert_int_equal(pipe(orders), 0);
    assert_int_equal(pipe(answers), 0);
    fflush(NULL);
    child.process = fork();
    assert_true(child.process >= 0);
    if (child.process == 0) {
        serve(name, host_bytes, orders[0], answers[1]);
    }
    close(orders[0]);
    close(answers[1]);
    child.orders = orders[1];
    child.answers = answers[0];
    return child;
}

static inline struct child new_child_process(const char *name, uint64_t host_bytes) {
    const struct child child = start_child(name, host_bytes);
    const struct answer answer = read_answer(&child);
    if (answer.status != BRIM_OK) {
        fail_msg("the child cannot join: %s", answer.detail);
    }
    return child;
}

static inline struct answer tell(const struct child *child, enum order order, brim_memory kind,
                                 uint64_t bytes) {
    const struct message message = { .order = order, .kind = kind, .bytes = bytes };
    assert_int_equal(write(child->orders, &message, sizeof message), sizeof message);
    return read_answer(child);
}

static inline bool child_charges(const struct child *child, uint64_t bytes) {
    const brim_status status = tell(child, CHARGE, BRIM_MEMORY_HOST, bytes).status;
    assert_true(status == BRIM_OK || status == BRIM_STATUS_BUDGET);
    return status == BRIM_OK;
}

/* Waits for its end, however that comes. */
static inline void bury(const struct child *child) {
    int status;
    assert_int_equal(waitpid(child->process, &status, 0), child->process);
    close(child->orders);
    close(child->answers);
}

static inline void end_child(const struct child *child) {
    assert_int_equal(tell(child, END, BRIM_MEMORY_HOST, 0).status, BRIM_OK);
    bury(child);
}

/* Leaves a zombie, until it is buried. */
static inline void kill_child(const struct child *child) {
    siginfo_t info;
    assert_int_equal(kill(child->process, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)child->process, &info, WEXITED | WNOWAIT), 0);
}

#endif
