/*
 * main.c: finds the command, parses its options, runs it; the help texts.
 *
 * Results go to stdout, everything else to stderr. A failure to write to stdout fails the
 * command, unless the reader of stdout has ended.
 */
#include "cli.h"
#include "output.h"
#include "session.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

const struct command commands[] = {
    { "plan", "show what a pipeline will do and need, before it runs", "PIPELINE", 1,
      "Reads headers and indexes, no samples. A pipeline that does not fit is shown with the\n"
      "reason and the smallest budget that fits (exit code 3).\n"
      "\n"
      "example:\n"
      "  brim plan 'npy x.npy | shuffle seed=7 | batch 64' --memory 16MiB\n",
      IN_PLAN, command_plan },
    { "run", "take all batches and print a summary", "PIPELINE", 1,
      "Ctrl-C ends the run after the batch in progress: the state is written if requested, the\n"
      "summary is printed, and the exit code is 130.\n"
      "\n"
      "examples:\n"
      "  brim run 'range 1000 | shuffle seed=7 | batch 64' --epochs 3 --digest\n"
      "  brim run 'npy x.npy | batch 64' --steps 100 --state at.state\n"
      "  brim run 'npy x.npy | batch 64' --resume at.state --json\n",
      IN_RUN, command_run },
    { "bench", "measure how fast a pipeline is, and how long each stage takes", "PIPELINE", 1,
      "Measures several times after a warm-up of the same length, and prints the median and the\n"
      "spread. Epochs follow each other.\n"
      "\n"
      "example:\n"
      "  brim bench 'npy x.npy | normalize unit | batch 64' --repeat 9 --seconds 0.5\n",
      IN_BENCH, command_bench },
    { "cat", "show the samples of a pipeline, or write them as .npy files", "PIPELINE", 1,
      "Prints one epoch in the pipeline's order, a line for each sample: its number and its "
      "fields\n"
      "with type, shape and first values. --json prints all values, --npy DIR writes FIELD.npy "
      "for\n"
      "each field and, if samples differ in length, FIELD.offsets.npy.\n"
      "\n"
      "examples:\n"
      "  brim cat 'npy x.npy | shuffle seed=7' -n 3\n"
      "  brim cat 'npy x.npy | normalize unit' --npy out\n",
      IN_CAT, command_cat },
    { "show", "draw the first images of a pipeline, as the network sees them", "PIPELINE", 1,
      "Runs the pipeline unchanged and writes one PNG with the first samples: their images pixel\n"
      "by pixel (small ones enlarged), normalisation undone, with label and number below. Masks "
      "get\n"
      "a colour for each class.\n"
      "\n"
      "examples:\n"
      "  brim show 'folder train | shuffle | decode | random_resized_crop 224 | batch 64' -o "
      "sheet.png\n"
      "  brim show 'cifar data_batch_1.bin' -n 40 --columns 10 -o sheet.png\n",
      IN_SHOW, command_show },
    { "inspect", "show what a file contains, and check it", "PATH...", 1,
      "Finds out what a file is from its bytes and its name, and prints how many samples it has,\n"
      "their fields, and the pipeline that reads it. PATH may also be a pipeline. --verify reads\n"
      "every sample, of a folder decodes every image; if one is bad, the exit code is 1.\n"
      "\n"
      "examples:\n"
      "  brim inspect train.csv\n"
      "  brim inspect *.npy --verify --json\n"
      "  brim inspect photos --verify\n",
      IN_INSPECT, command_inspect },
    { "index", "make the indexes of files ahead of time", "PATH...", 1,
      "Text, CSV and JSON lines files have an index, which is made when a pipeline first opens "
      "them\n"
      "and used again later. This command makes it now, and prints where it is. PATH may also be "
      "a\n"
      "pipeline. Give the pipeline if it has options: they may decide what a record is.\n"
      "\n"
      "examples:\n"
      "  brim index train.csv valid.csv\n"
      "  brim index 'text corpus.txt index=beside' --verify\n",
      IN_INDEX, command_index },
    { "cache", "list, check and delete cache files", "ACTION PATH...", 1,
      "ACTION is one of:\n"
      "  list PATH...    list the caches at paths and below directories\n"
      "  info FILE...    show all that is known about a cache, with the pipeline that made it\n"
      "  verify FILE...  read all samples; if one is bad, the exit code is 1\n"
      "  rm FILE...      delete caches that no process is filling, and no other files\n"
      "  prune DIR...    delete the least recently used caches, down to --to SIZE\n"
      "Pipelines with a stage such as 'cache file=x.brimcache' make them: see brim stages cache.\n"
      "\n"
      "examples:\n"
      "  brim cache list data\n"
      "  brim cache verify data/train.brimcache\n"
      "  brim cache prune data --to 50GiB --dry-run\n",
      IN_CACHE, command_cache },
    { "devices", "list the devices to which batches can be delivered", NULL, 0,
      "Asks the installed drivers for their devices, the memory of each, and how much of it is "
      "free.\n"
      "A kind without devices is listed with the reason.\n"
      "\n"
      "example:\n"
      "  brim devices --json\n",
      IN_DEVICES, command_devices },
    { "stages", "list the stages, or show one in full", "NAME", 0,
      "example:\n"
      "  brim stages shuffle\n",
      IN_STAGES, command_stages },
    { "completion", "print a script that completes brim in a shell", "SHELL", 1,
      "SHELL is bash, zsh or fish.\n"
      "\n"
      "example:\n"
      "  source <(brim completion bash)\n",
      IN_OTHER, command_completion },
    { "help", "show this text, or a command's", "COMMAND", 0, "", IN_OTHER, command_help },
    { "version", "print the version", NULL, 0, "", IN_OTHER, command_version },
};
const size_t command_count = sizeof commands / sizeof commands[0];

const struct command *command_find(const char *name) {
    for (size_t i = 0; i < command_count; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static void print_help(FILE *file) {
    fputs("brim feeds training from data of any size inside one memory budget.\n"
          "\n"
          "usage: brim COMMAND [options]\n"
          "\n",
          file);
    for (size_t i = 0; i < command_count; i++) {
        fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].summary);
    }
    fputs("\n"
          "A pipeline is one argument: brim run 'range 1000 | shuffle seed=7 | batch 64'\n"
          "\n"
          "exit codes: 0 success, 1 the data or the system failed, 2 wrong options or pipeline,\n"
          "3 does not fit the budget\n",
          file);
}

static void print_command_help(const struct command *command) {
    printf("brim %s: %s\n\nusage: brim %s", command->name, command->summary, command->name);
    if (command->operand != NULL) {
        printf(command->operand_required ? " %s" : " [%s]", command->operand);
    }
    puts(" [options]");
    if (*command->text != '\0') {
        printf("\n%s", command->text);
    }
    options_help(stdout, command);
}

static int fail_usage(const struct options *options, const char *why) {
    struct failure failure = { .status = BRIM_STATUS_INVALID };
    snprintf(failure.text, sizeof failure.text, "%s", why);
    return failure_tell(options, &failure);
}

static void explain_unknown(const char *name, char *why, size_t why_bytes) {
    const char *names[sizeof commands / sizeof commands[0]];
    for (size_t i = 0; i < command_count; i++) {
        names[i] = commands[i].name;
    }
    const char *near = brim_nearest(name, names, command_count);
    if (near != NULL) {
        snprintf(why, why_bytes, "there is no command '%s'; did you mean %s?", name, near);
    } else {
        snprintf(why, why_bytes, "there is no command '%s'; brim help lists them", name);
    }
}

int command_help(const struct options *options) {
    if (options->operand == NULL) {
        print_help(stdout);
        return EXIT_GOOD;
    }
    const struct command *command = command_find(options->operand);
    if (command == NULL && brim_stage_find(options->operand) != NULL) {
        return command_stages(options);
    }
    if (command == NULL) {
        char why[256];
        explain_unknown(options->operand, why, sizeof why);
        return fail_usage(options, why);
    }
    print_command_help(command);
    return EXIT_GOOD;
}

int command_version(const struct options *options) {
    (void)options;
    printf("brim %s\n", brim_version());
    return EXIT_GOOD;
}

static int dispatch(int count, char **words) {
    if (count < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    const char *name = words[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        name = "help";
    } else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        name = "version";
    }
    const struct command *command = command_find(name);
    char why[512];
    if (command == NULL) {
        explain_unknown(name, why, sizeof why);
        fputs("brim: ", stderr);
        put_clean(stderr, why);
        fputc('\n', stderr);
        return EXIT_USAGE;
    }
    struct options options;
    if (!options_parse(&options, command, count - 2, words + 2, why, sizeof why)) {
        return fail_usage(&options, why);
    }
    if (options.help) {
        print_command_help(command);
        return EXIT_GOOD;
    }
    return command->run(&options);
}

/* What failed to be written before the end is known without its reason. */
static bool is_reader_gone(void) {
    struct pollfd out = { .fd = STDOUT_FILENO };
    const int problem = errno;
    const bool gone = poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
    errno = problem;
    return gone;
}

int main(int count, char **words) {
    const int code = dispatch(count, words);
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        if (errno == EPIPE || is_reader_gone()) {
            return EXIT_SIGNAL + SIGPIPE;
        }
        fprintf(stderr, "brim: cannot write the output%s%s\n", errno != 0 ? ": " : "",
                errno != 0 ? strerror(errno) : "");
        return code != EXIT_GOOD ? code : EXIT_FAILED;
    }
    return code;
}
