/*
 * plan_fuzz.c: the text of a pipeline, run over a few small files: what stages
 * make of their arguments, and of each other.
 *
 * Standard input is one of them. Texts with a slash are left out, so that only
 * the files below can be named; so are numbers of more than four digits, whose
 * work would only take long.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define NPY_HEADER "{'descr': '<i4', 'fortran_order': False, 'shape': (12, 2, 3), }"

static const char csv[] =
    "label,score,name\n0,0.5,one\n1,1.5,two\n0,-2,\"three, four\"\n1,7,five\n";
static const char jsonl[] = "{\"label\": 1, \"ids\": [1, 2, 3], \"text\": \"a\"}\n"
                            "{\"label\": 0, \"ids\": [], \"text\": \"\\u00e9\"}\n"
                            "{\"label\": 1, \"ids\": [7], \"text\": \"long enough\"}\n";
static const char lines[] = "first\nsecond line\n\nfourth\n";
static const char numbers[] = "3\n1\n0\n2\n2\n";

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    static unsigned char npy[128 + 12 * 2 * 3 * 4];
    fuzz_begin();
    fuzz_may_miss_files = true;
    memset(npy, ' ', 128);
    memcpy(npy, "\x93NUMPY\x01\x00\x76\x00", 10);
    memcpy(npy + 10, NPY_HEADER, sizeof NPY_HEADER - 1);
    npy[127] = '\n';
    for (unsigned i = 0; i < 72; i++) {
        npy[128 + 4 * i] = (unsigned char)i;
    }
    fuzz_write("x.npy", npy, sizeof npy);
    fuzz_write("c.csv", csv, sizeof csv - 1);
    fuzz_write("j.jsonl", jsonl, sizeof jsonl - 1);
    fuzz_write("l.txt", lines, sizeof lines - 1);
    fuzz_write("n.txt", numbers, sizeof numbers - 1);
    char path[FUZZ_PATH_BYTES];
    const int input = open(fuzz_path(path, "l.txt"), O_RDONLY | O_CLOEXEC);
    if (input < 0 || dup2(input, 0) != 0 || close(input) != 0) {
        fuzz_wrong("l.txt cannot be made standard input");
    }
    return 0;
}

static bool is_small(const char *text) {
    unsigned digits = 0;
    for (; *text != '\0'; text++) {
        digits = *text >= '0' && *text <= '9' ? digits + 1 : 0;
        if (digits > 4 || *text == '/') {
            return false;
        }
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char text[1024];
    if (bytes >= sizeof text) {
        return -1;
    }
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (!is_small(text)) {
        return -1;
    }
    fuzz_run(text);
    return 0;
}
