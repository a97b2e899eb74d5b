/*
 * processes.h: the protocol between a program and its worker processes.
 *
 * One socket of packets (SOCK_SEQPACKET) for each process. The process speaks first,
 * with a reply that says it is ready or why it could not start; then every request
 * has one reply, with the request's number. Both ends are the same build on the same
 * machine, so packets are plain structs. But the function may write to any descriptor
 * of its process: the program takes nothing in a reply for granted, and a process that
 * sends anything else is killed.
 *
 * The values of a sample are not in the packets. They lie in memory files that both sides map: the
 * batch's and the scratch's pages (brim_call), and a bounce file of the process's own for values
 * that lie elsewhere. The program says which of the process's MAPS places a file is mapped at, and
 * sends the descriptor along (in the order of `region`) when what is there has to be replaced; so
 * only the program remembers what a process has mapped. A process that cannot map a file ends with
 * CANNOT_MAP, and the next one begins with nothing mapped.
 */
#ifndef BRIM_PYTHON_PROCESSES_H
#define BRIM_PYTHON_PROCESSES_H

#include <brim.h>
#include <stdatomic.h>

#define MAPS       32 /* files that a process keeps mapped */
#define BOUNCE_MAP (MAPS - 1)
#define MAX_VALUES 64 /* inputs and outputs of a call */
#define CANNOT_MAP 83 /* exit code */

enum region { IN_BATCH, IN_SCRATCH, IN_BOUNCE, REGIONS, NOWHERE = REGIONS };

struct wire_region {
    uint64_t bytes;
    uint32_t map;   /* where the process has it mapped */
    uint32_t fresh; /* 1: it has not yet; the descriptor comes along */
};

struct wire_value {
    char name[BRIM_NAME_BYTES];
    uint32_t dtype, rank, form;
    uint32_t region; /* NOWHERE: it has no bytes */
    int64_t shape[BRIM_MAX_RANK];
    uint64_t offset, bytes;
};

/* A filter has no outputs; a batch_map may write to its inputs. */
enum call_kind { CALL_MAP, CALL_FILTER, CALL_BATCH_MAP };

struct request {
    uint64_t number; /* from 1, of those to this process's place in the pool */
    uint64_t sample, epoch, key;
    uint32_t kind; /* a call_kind */
    uint32_t input_count, output_count;
    uint32_t unused;
    struct wire_region region[REGIONS];  /* bytes 0: none */
    struct wire_value value[MAX_VALUES]; /* inputs, then outputs; sent so far as there are any */
};

#define FAILED         (-1)
#define EXCEPTION_MOST 32768 /* of each: the pickled exception, the text of its traceback */

struct reply {
    uint64_t number; /* of the request; 0: the process has started, or failed to */
    int32_t result;  /* 0 or 1 as the callback's, or FAILED */
    uint32_t exception_bytes, text_bytes;
    uint32_t unused;
    int64_t length[MAX_VALUES];     /* shape[0] of each output, as the function left it */
    char bytes[2 * EXCEPTION_MOST]; /* FAILED: the exception, pickled, and its traceback */
};

/* -------------------------------------------------------------- handover.c */

/* The budget of a pool's bounce files, made for the first of them: most pools need none, and
 * what a plan says has none. */
struct bounce_budget {
    brim_budget *above;            /* the runtime's, which lives as long as a loader calls */
    _Atomic(brim_budget *) budget; /* what is charged goes when that is freed; NULL: none yet */
    char label[BRIM_NAME_BYTES];
};

/* What the program knows of one process's memory. */
struct handover {
    struct bounce_budget *budget; /* the pool's */
    struct {
        uint64_t number, used; /* of the region, 0: none; when it was used last */
    } map[BOUNCE_MAP];
    uint64_t uses;
    int bounce_file; /* -1: none yet */
    uint8_t *bounce;
    uint64_t bounce_bytes, bounce_mapped; /* and how much of it the process has mapped */
};

/* Bytes that went through bounce files. */
struct copied {
    uint64_t in, out;
};

/* A call as brim makes it, and what goes to and fro for it. */
struct work {
    const brim_call *call;
    const brim_value *inputs;
    brim_value *outputs;
    size_t input_count, output_count;
    uint64_t bounce; /* bytes of the bounce file that it needs */
    struct copied copied;
    struct request *request;
    struct reply *reply;
    char *why;
    size_t why_bytes;
};

void brim_py_handover_init(struct handover *handover, struct bounce_budget *budget);
void brim_py_handover_fini(struct handover *handover);
/* Another process takes the place of the one before it, and has mapped nothing. */
void brim_py_handover_begin(struct handover *handover);
/* Fills the request but for its regions; the same for whichever process gets it. */
void brim_py_write_request(struct work *work);
/* Puts the inputs where the process finds them, and says which descriptors have to go
 * along. -1 with `why`. */
int brim_py_hand_over(struct handover *handover, struct work *work, int files[REGIONS],
                      size_t *file_count);
/* Takes the outputs over, when the process has replied. */
void brim_py_take_back(const struct handover *handover, struct work *work);

#endif
