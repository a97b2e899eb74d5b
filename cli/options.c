/*
 * options.c: parses the command line's words by one table.
 *
 * A value is the next word, or follows '=', or follows an option's letter directly. Options and the
 * operand may come in any order; "--" ends the options. Numbers are read strictly: a sign, a blank
 * or a letter too many is a mistake, never ignored.
 */
#include "options.h"

#include "cli.h"

#include <brim.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum form {
    FORM_FLAG,    /* bool */
    FORM_COUNT,   /* uint64_t from 1 */
    FORM_COUNT32, /* the same, at most UINT32_MAX */
    FORM_NUMBER,  /* uint64_t from 0 */
    FORM_SIZE,    /* uint64_t, bytes from 1 */
    FORM_ROOM,    /* the same from 0, below BRIM_UNLIMITED */
    FORM_THREADS, /* int32_t: "auto" or a number from 0 */
    FORM_SECONDS, /* double above 0 */
    FORM_TEXT,    /* const char *, not empty: a file */
    FORM_NAMES,   /* const char *, not empty: names with commas between */
    FORM_SHARD,   /* r/n */
    FORM_SEEK,    /* epoch:step */
    FORM_DEVICE,  /* kind:index */
    FORM_WORD,    /* const char *, not empty */
    FORM_GROWTH,  /* "grow" or "fixed" */
};

struct row {
    const char *name;
    enum form form;
    const char *value; /* what the help calls the value */
    unsigned commands;
    size_t offset; /* in struct options, where the form has one field */
    const char *help;
};

#define FIELD(name) offsetof(struct options, name)
#define IN_OPENING \
    (IN_PLAN | IN_RUN | IN_BENCH | IN_CAT | IN_SHOW | IN_INSPECT | IN_INDEX) /* take a budget */
#define IN_TRAINING (IN_PLAN | IN_RUN | IN_BENCH)                            /* as a loop would */

static const struct row rows[] = {
    { "--memory", FORM_SIZE, "SIZE", IN_OPENING, FIELD(memory),
      "the budget, e.g. 64MiB; default: a quarter of the free memory" },
    { "--threads", FORM_THREADS, "N", IN_OPENING, FIELD(threads),
      "at most N workers; 0: the calling thread works; default: auto, the CPUs" },
    { "--index-dir", FORM_TEXT, "DIR", IN_OPENING, FIELD(index_dir),
      "directory for indexes; default: $XDG_CACHE_HOME/brim, else ~/.cache/brim" },
    { "--trust-foreign", FORM_FLAG, NULL, IN_OPENING, FIELD(trust_foreign),
      "use indexes and caches that other users own or may write" },
    { "--shared", FORM_WORD, "NAME", IN_OPENING, FIELD(shared),
      "use the shared budget NAME of this user's processes" },
    { "--shared-memory", FORM_SIZE, "SIZE", IN_OPENING, FIELD(shared_memory),
      "limit of the shared budget; may be left out if it exists already" },
    { "--shard", FORM_SHARD, "R/N", IN_TRAINING | IN_CAT, 0, "read as rank R (from 0) of N" },
    { "--hold", FORM_COUNT32, "N", IN_TRAINING, FIELD(hold),
      "hold N batches at a time; default: 1" },
    { "--slots", FORM_COUNT32, "N", IN_TRAINING, FIELD(slots), "at most N slots for batches" },
    { "--growth", FORM_GROWTH, "HOW", IN_TRAINING, FIELD(growth),
      "grow: from the minimum, on demand; fixed: all at once; default: grow" },
    { "--device", FORM_DEVICE, "DEVICE", IN_TRAINING, 0,
      "deliver batches there, e.g. cuda:0 or opencl:0; default: host" },
    { "--device-memory", FORM_SIZE, "SIZE", IN_TRAINING, FIELD(device_memory),
      "the device's budget; default: a quarter of its free memory" },
    { "--pinned", FORM_SIZE, "SIZE", IN_TRAINING, FIELD(pinned),
      "limit of page-locked memory; default: all of --memory" },
    { "--epochs", FORM_COUNT, "N", IN_RUN, FIELD(epochs), "run N epochs; default: 1" },
    { "--steps", FORM_COUNT, "N", IN_RUN | IN_BENCH, FIELD(steps),
      "stop after N steps (bench: in each repeat)" },
    { "--seek", FORM_SEEK, "EPOCH:STEP", IN_RUN, 0, "start there; both count from 0" },
    { "--state", FORM_TEXT, "FILE", IN_RUN, FIELD(state),
      "write the state to FILE when the run ends" },
    { "--state-every", FORM_COUNT, "K", IN_RUN, FIELD(state_every),
      "also write the state after every K batches" },
    { "--resume", FORM_TEXT, "FILE", IN_RUN, FIELD(resume), "continue from the state in FILE" },
    { "--digest", FORM_FLAG, NULL, IN_RUN, FIELD(digest), "print a hash of all batches" },
    { "--repeat", FORM_COUNT, "N", IN_BENCH, FIELD(repeat), "measure N times; default: 5" },
    { "--seconds", FORM_SECONDS, "S", IN_BENCH, FIELD(seconds),
      "measure for S seconds each time; default: 1" },
    { "--count", FORM_COUNT, "N", IN_CAT | IN_SHOW, FIELD(count),
      "stop after N samples; show: 16 by default" },
    { "--skip", FORM_NUMBER, "K", IN_CAT, FIELD(skip), "skip the first K samples" },
    { "--npy", FORM_TEXT, "DIR", IN_CAT, FIELD(npy), "write one .npy file for each field to DIR" },
    { "--output", FORM_TEXT, "FILE", IN_SHOW, FIELD(output),
      "write the sheet to FILE as PNG; -: to standard output" },
    { "--field", FORM_NAMES, "NAMES", IN_SHOW, FIELD(field),
      "show these fields, a,b side by side; default: all images" },
    { "--columns", FORM_COUNT32, "N", IN_SHOW, FIELD(columns),
      "samples in a row; default: about square, at most 8" },
    { "--epoch", FORM_NUMBER, "E", IN_SHOW, FIELD(epoch),
      "show epoch E, counted from 0; default: 0" },
    { "--verify", FORM_FLAG, NULL, IN_INSPECT | IN_INDEX, FIELD(verify),
      "read every sample (index: compare every checksum)" },
    { "--to", FORM_ROOM, "SIZE", IN_CACHE, FIELD(to),
      "prune: the size that caches may have together, e.g. 50GiB; 0: none" },
    { "--dry-run", FORM_FLAG, NULL, IN_CACHE, FIELD(dry_run),
      "rm, prune: only print what would be deleted" },
    { "--markdown", FORM_FLAG, NULL, IN_STAGES, FIELD(markdown), "print all stages as a page" },
    { "--json", FORM_FLAG, NULL, IN_OPENING | IN_STAGES | IN_CACHE | IN_DEVICES, FIELD(json),
      "print one JSON object (cat: one for each sample)" },
    { "--quiet", FORM_FLAG, NULL, IN_RUN | IN_BENCH | IN_INSPECT | IN_INDEX | IN_CACHE,
      FIELD(quiet), "no progress line; run: no summary either, only the digest" },
    { "--help", FORM_FLAG, NULL, IN_OPENING | IN_STAGES | IN_CACHE | IN_DEVICES | IN_OTHER,
      FIELD(help), "show this text" },
};
#define ROWS (sizeof rows / sizeof rows[0])

/* The letter that stands for an option after one dash; 0: none. */
static char letter_of(const struct row *row) {
    static const struct {
        const char *name;
        char letter;
    } letters[] = {
        { "--help", 'h' }, { "--count", 'n' }, { "--dry-run", 'n' }, { "--output", 'o' }
    };
    for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++) {
        if (strcmp(row->name, letters[i].name) == 0) {
            return letters[i].letter;
        }
    }
    return '\0';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Decimal digits up to `end`, nothing else. */
static bool digits_parse(const char *text, const char *end, uint64_t *number) {
    if (text == end) {
        return false;
    }
    uint64_t value = 0;
    for (; text < end; text++) {
        if (!is_digit(*text) || __builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value)) {
            return false;
        }
    }
    *number = value;
    return true;
}

static bool number_parse(const char *text, uint64_t *number) {
    return digits_parse(text, text + strlen(text), number);
}

bool size_parse(const char *text, uint64_t *bytes) {
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {
        { "", 1 },
        { "B", 1 },
        { "KiB", 1ull << 10 },
        { "MiB", 1ull << 20 },
        { "GiB", 1ull << 30 },
        { "TiB", 1ull << 40 },
        { "kB", 1000 },
        { "MB", 1000000 },
        { "GB", 1000000000 },
        { "TB", 1000000000000 },
    };
    const char *end = text;
    while (is_digit(*end) || *end == '.') {
        end++;
    }
    uint64_t unit = 0;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].name) == 0) {
            unit = units[i].bytes;
        }
    }
    if (unit == 0 || !is_digit(*text)) {
        return false;
    }
    uint64_t whole;
    if (digits_parse(text, end, &whole)) {
        return !__builtin_mul_overflow(whole, unit, bytes);
    }
    char *stop;
    const double value = strtod(text, &stop) * (double)unit;
    if (stop != end || !((value >= 1 && value < 0x1p63) || value == 0)) {
        return false;
    }
    *bytes = (uint64_t)value;
    return true;
}

static bool threads_parse(const char *text, int32_t *threads) {
    uint64_t number;
    if (strcmp(text, "auto") == 0) {
        *threads = BRIM_THREADS_AUTO;
        return true;
    }
    if (!number_parse(text, &number) || number > INT32_MAX) {
        return false;
    }
    *threads = (int32_t)number;
    return true;
}

static bool seconds_parse(const char *text, double *seconds) {
    if (text[strspn(text, "0123456789.")] != '\0') {
        return false;
    }
    char *end;
    *seconds = strtod(text, &end);
    return *end == '\0' && *seconds > 0 && isfinite(*seconds);
}

static bool shard_parse(const char *text, struct options *options) {
    const char *slash = strchr(text, '/');
    uint64_t rank, world;
    if (slash == NULL || !digits_parse(text, slash, &rank) || !number_parse(slash + 1, &world) ||
        world > UINT32_MAX || rank >= world) {
        return false;
    }
    options->rank = (uint32_t)rank;
    options->world = (uint32_t)world;
    return true;
}

static bool seek_parse(const char *text, struct options *options) {
    const char *colon = strchr(text, ':');
    options->seek = colon != NULL && digits_parse(text, colon, &options->seek_epoch) &&
                    number_parse(colon + 1, &options->seek_step);
    return options->seek;
}

static bool device_parse(const char *text, struct options *options) {
    return brim_device_parse(text, &options->device, &options->device_index) == BRIM_OK;
}

static bool growth_parse(const char *text, brim_growth *growth) {
    *growth = strcmp(text, "fixed") == 0 ? BRIM_GROWTH_FIXED : BRIM_GROWTH_ON_DEMAND;
    return *growth == BRIM_GROWTH_FIXED || strcmp(text, "grow") == 0;
}

/* Stores a value by its row; false when it has not the form that is wanted,
 * which *wanted then names. */
static bool value_store(const struct row *row, const char *text, struct options *options,
                        const char **wanted) {
    void *field = (char *)options + row->offset;
    switch (row->form) {
    case FORM_FLAG:
        *(bool *)field = true;
        return true;
    case FORM_COUNT:
        *wanted = "a whole number from 1";
        return number_parse(text, field) && *(uint64_t *)field >= 1;
    case FORM_COUNT32:
        *wanted = "a whole number from 1 to 4294967295";
        return number_parse(text, field) && *(uint64_t *)field >= 1 &&
               *(uint64_t *)field <= UINT32_MAX;
    case FORM_NUMBER:
        *wanted = "a whole number from 0";
        return number_parse(text, field);
    case FORM_SIZE:
        *wanted = "bytes, or a number with KiB, MiB, GiB, TiB, kB, MB, GB or TB, such as 64MiB";
        return size_parse(text, field) && *(uint64_t *)field > 0;
    case FORM_ROOM:
        *wanted = "bytes from 0, or a number with KiB, MiB, GiB, TiB, kB, MB, GB or TB";
        return size_parse(text, field) && *(uint64_t *)field < BRIM_UNLIMITED;
    case FORM_THREADS:
        *wanted = "a whole number from 0, or auto";
        return threads_parse(text, field);
    case FORM_SECONDS:
        *wanted = "seconds above 0, such as 0.5";
        return seconds_parse(text, field);
    case FORM_TEXT:
        *wanted = "the name of a file";
        *(const char **)field = text;
        return *text != '\0';
    case FORM_NAMES:
        *wanted = "the name of a field, or several separated by commas";
        *(const char **)field = text;
        return *text != '\0';
    case FORM_SHARD:
        *wanted = "rank/ranks with the rank counted from 0, such as 0/4";
        return shard_parse(text, options);
    case FORM_SEEK:
        *wanted = "epoch:step, both counted from 0, such as 2:100";
        return seek_parse(text, options);
    case FORM_DEVICE:
        *wanted = "host, or cuda or opencl with a number from 0 to 7 (there are at most 8 of a "
                  "kind), such "
                  "as opencl:0; brim devices lists them";
        return device_parse(text, options);
    case FORM_WORD:
        *wanted = "a name";
        *(const char **)field = text;
        return *text != '\0';
    case FORM_GROWTH:
        *wanted = "grow or fixed";
        return growth_parse(text, field);
    }
    return false;
}

/* By its name, or by its letter after one dash; of two with one letter, the command's. */
static const struct row *row_find(const struct command *command, const char *word, size_t length) {
    const struct row *found = NULL;
    for (size_t i = 0; i < ROWS; i++) {
        if (((strlen(rows[i].name) == length && memcmp(rows[i].name, word, length) == 0) ||
             (length == 2 && letter_of(&rows[i]) != '\0' && word[1] == letter_of(&rows[i]))) &&
            (found == NULL || (rows[i].commands & command->bit) != 0)) {
            found = &rows[i];
        }
    }
    return found;
}

/* "plan, run and bench": the commands of an option that another one does not take. */
static void commands_of(const struct row *row, char *text, size_t bytes) {
    size_t count = 0, done = 0, at = 0;
    for (size_t i = 0; i < command_count; i++) {
        count += (row->commands & commands[i].bit) != 0;
    }
    text[0] = '\0';
    for (size_t i = 0; i < command_count && at < bytes; i++) {
        if (row->commands & commands[i].bit) {
            const char *between = done == 0 ? "" : done + 1 < count ? ", " : " and ";
            at += (size_t)snprintf(text + at, bytes - at, "%s%s", between, commands[i].name);
            done++;
        }
    }
}

/* Says what is wrong with an option that the command does not take. */
static void explain_unknown(const struct command *command, const char *word, size_t length,
                            char *why, size_t why_bytes) {
    const struct row *row = row_find(command, word, length);
    char others[128] = "";
    if (row != NULL) {
        commands_of(row, others, sizeof others);
    }
    const char *names[ROWS];
    size_t count = 0;
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].commands & command->bit) {
            names[count++] = rows[i].name;
        }
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), word);
    const char *near = brim_nearest(name, names, count);
    if (others[0] != '\0' && (near == NULL || strncmp(near, name, length) != 0)) {
        snprintf(why, why_bytes, "%s is not an option of brim %s but of brim %s", row->name,
                 command->name, others);
    } else if (near != NULL) {
        snprintf(why, why_bytes, "there is no option %s; did you mean %s?", name, near);
    } else {
        snprintf(why, why_bytes, "there is no option %s; see brim help %s", name, command->name);
    }
}

static bool takes_pipeline(const struct command *command) {
    return command->operand != NULL && strcmp(command->operand, "PIPELINE") == 0;
}

static bool takes_many(const struct command *command) {
    return strstr(command->operand, "...") != NULL;
}

/* What must hold between options. */
static bool check(const struct options *options, char *why, size_t why_bytes) {
    if (options->help) {
        return true;
    }
    const struct command *command = options->command;
    if (command->operand_required && options->operand == NULL) {
        if (takes_pipeline(command)) {
            snprintf(why, why_bytes, "the pipeline is missing: brim %s '... | batch 64'",
                     command->name);
        } else {
            snprintf(why, why_bytes, "an argument is missing: brim %s %s", command->name,
                     command->operand);
        }
        return false;
    }
    if (options->json && options->npy != NULL) {
        snprintf(why, why_bytes, "--json and --npy both say what to write: give one of them");
        return false;
    }
    if ((command->bit & IN_SHOW) != 0 && options->output == NULL) {
        snprintf(why, why_bytes, "the output file is missing: -o sheet.png, or -o - for a pipe");
        return false;
    }
    if (options->json && options->output != NULL && strcmp(options->output, "-") == 0) {
        snprintf(why, why_bytes, "--json and -o - both write to standard output: give one of them");
        return false;
    }
    if (options->markdown && (options->json || options->operand != NULL)) {
        snprintf(why, why_bytes, "--markdown prints the page of all stages: no %s beside it",
                 options->json ? "--json" : "name");
        return false;
    }
    if (options->device == BRIM_DEVICE_HOST &&
        (options->device_memory > 0 || options->pinned > 0)) {
        snprintf(why, why_bytes, "%s needs a device: give --device too, such as --device opencl:0",
                 options->pinned > 0 ? "--pinned" : "--device-memory");
        return false;
    }
    if (options->shared_memory > 0 && options->shared == NULL) {
        snprintf(why, why_bytes, "--shared-memory needs --shared NAME to say which budget");
        return false;
    }
    if (options->state_every > 0 && options->state == NULL) {
        snprintf(why, why_bytes, "--state-every needs --state FILE to say where to write");
        return false;
    }
    if (options->seek && options->resume != NULL) {
        snprintf(why, why_bytes, "--seek and --resume both say where to start: give one of them");
        return false;
    }
    return true;
}

bool options_parse(struct options *options, const struct command *command, int count, char **words,
                   char *why, size_t why_bytes) {
    *options = (struct options){
        .command = command,
        .operands = words,
        .threads = BRIM_THREADS_AUTO,
        .epochs = 1,
        .world = 1,
        .hold = 1,
        .repeat = 5,
        .seconds = 1,
        .to = BRIM_UNLIMITED,
    };
    /* known before anything can be wrong, so that mistakes are JSON too */
    for (int i = 0; i < count && strcmp(words[i], "--") != 0; i++) {
        options->json |= (command->bit & ~IN_OTHER) != 0 && strcmp(words[i], "--json") == 0;
    }
    bool operands_only = false;
    for (int i = 0; i < count; i++) {
        char *word = words[i];
        if (operands_only || word[0] != '-' || word[1] == '\0') {
            if (command->operand == NULL) {
                snprintf(why, why_bytes, "brim %s takes no argument; remove '%s'", command->name,
                         word);
                return false;
            }
            if (options->operand != NULL && !takes_many(command)) {
                snprintf(why, why_bytes, "'%s' is one word too many: %s", word,
                         takes_pipeline(command) ? "put the pipeline in quotes, as one argument"
                                                 : "one name is expected");
                return false;
            }
            words[options->operand_count++] = word; /* a place that is parsed already */
            options->operand = words[0];
            continue;
        }
        if (strcmp(word, "--") == 0) {
            operands_only = true;
            continue;
        }
        const char *equals = strchr(word, '=');
        const size_t length = equals != NULL ? (size_t)(equals - word) : strlen(word);
        const char *value = equals != NULL ? equals + 1 : NULL;
        const struct row *row = row_find(command, word, length);
        if (row == NULL && word[1] != '-') { /* -n5 */
            row = row_find(command, word, 2);
            row = row != NULL && row->form == FORM_FLAG ? NULL : row;
            value = word + 2;
        }
        if (row == NULL || !(row->commands & command->bit)) {
            explain_unknown(command, word, length, why, why_bytes);
            return false;
        }
        if (row->form == FORM_FLAG && value != NULL) {
            snprintf(why, why_bytes, "%s takes no value", row->name);
            return false;
        }
        if (row->form != FORM_FLAG && value == NULL) {
            if (i + 1 == count) {
                snprintf(why, why_bytes, "%s needs a value: %s %s", row->name, row->name,
                         row->value);
                return false;
            }
            value = words[++i];
        }
        const char *wanted = NULL;
        if (!value_store(row, value, options, &wanted)) {
            snprintf(why, why_bytes, "%s: '%s' is not %s", row->name, value, wanted);
            return false;
        }
    }
    if (options->output != NULL && strcmp(options->output, "/dev/stdout") == 0) {
        options->output = "-"; /* a link, and the file that it leads to is open already */
    }
    return check(options, why, why_bytes);
}

bool option_at(const struct command *command, size_t index, struct option_info *info) {
    for (size_t i = 0; i < ROWS; i++) {
        if ((rows[i].commands & command->bit) && index-- == 0) {
            *info = (struct option_info){
                .name = rows[i].name,
                .letter = letter_of(&rows[i]),
                .value = rows[i].value,
                .file = rows[i].form == FORM_TEXT,
                .help = rows[i].help,
            };
            return true;
        }
    }
    return false;
}

void options_help(FILE *file, const struct command *command) {
    fputs("\noptions:\n", file);
    struct option_info option;
    for (size_t i = 0; option_at(command, i, &option); i++) {
        char left[40];
        snprintf(left, sizeof left, "%s%s%s", option.name, option.value != NULL ? " " : "",
                 option.value != NULL ? option.value : "");
        if (option.letter != '\0') {
            const size_t length = strlen(left);
            snprintf(left + length, sizeof left - length, ", -%c", option.letter);
        }
        fprintf(file, "  %-20s  %s\n", left, option.help);
    }
}
