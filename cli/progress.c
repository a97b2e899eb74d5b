/*
 * progress.c: draws the progress line: rate, budget, time left.
 *
 * The line is cut to the terminal's width, because a wrapped line cannot be
 * drawn over.
 */
#include "progress.h"

#include "output.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define INTERVAL_SECONDS 0.2

double now_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void progress_begin(struct progress *progress, bool wanted) {
    *progress = (struct progress){ .shown = wanted && isatty(STDERR_FILENO) == 1 };
    progress->begun = progress->drawn = now_seconds();
}

/* Whether a line is to be drawn now. */
static bool is_due(struct progress *progress, double now) {
    if (!progress->shown || now - progress->drawn < INTERVAL_SECONDS) {
        return false;
    }
    progress->drawn = now;
    return true;
}

/* Control characters, which may come from a file's name, would break the line. */
static void draw(struct progress *progress, char *line) {
    const int columns = terminal_columns(STDERR_FILENO) - 1;
    if (strlen(line) > (size_t)columns) {
        line[columns] = '\0';
    }
    fputc('\r', stderr);
    put_clean(stderr, line);
    fputs("\033[K", stderr);
    fflush(stderr);
    progress->on_screen = true;
}

/* Does `what` count files? All else that is done while opening counts bytes. */
static bool counts_files(const char *what) {
    static const char *const begin[] = { "listing ", "looking at the files of " };
    return strncmp(what, begin[0], strlen(begin[0])) == 0 ||
           strncmp(what, begin[1], strlen(begin[1])) == 0;
}

static const char *amount_text(bool files, uint64_t amount, char text[NUMBER_TEXT]) {
    return files ? count_text(amount, text) : bytes_text((double)amount, text);
}

void progress_opening(struct progress *progress, const char *what, uint64_t done, uint64_t total) {
    const double now = now_seconds();
    if (!is_due(progress, now)) {
        return;
    }
    char line[512], a[NUMBER_TEXT], b[NUMBER_TEXT];
    const bool files = counts_files(what);
    const char *unit = files ? " files" : "";
    if (total > 0 && total != BRIM_UNKNOWN) {
        snprintf(line, sizeof line, "%s, %s of %s%s", what, amount_text(files, done, a),
                 amount_text(files, total, b), unit);
    } else {
        snprintf(line, sizeof line, "%s, %s%s", what, amount_text(files, done, a), unit);
    }
    draw(progress, line);
}

void progress_say(struct progress *progress, const char *what) {
    char line[256];
    if (is_due(progress, now_seconds())) {
        snprintf(line, sizeof line, "%s", what);
        draw(progress, line);
    }
}

void progress_counting(struct progress *progress, const char *what, uint64_t done, uint64_t total,
                       const char *unit) {
    char line[512], a[NUMBER_TEXT], b[NUMBER_TEXT];
    if (is_due(progress, now_seconds())) {
        snprintf(line, sizeof line, "%s, %s of %s %s", what, count_text(done, a),
                 count_text(total, b), unit);
        draw(progress, line);
    }
}

void progress_update(struct progress *progress, brim_runtime *runtime, brim_loader *loader,
                     double done) {
    const double now = now_seconds();
    if (!is_due(progress, now)) {
        return;
    }
    brim_stats stats = BRIM_STATS_INIT;
    brim_usage usage = BRIM_USAGE_INIT;
    if (brim_loader_read_stats(loader, &stats) != BRIM_OK ||
        brim_runtime_read_usage(runtime, &usage) != BRIM_OK) {
        return;
    }
    const double seconds = now - progress->begun;
    char batches[NUMBER_TEXT], rate[NUMBER_TEXT], used[NUMBER_TEXT], limit[NUMBER_TEXT];
    char left[NUMBER_TEXT] = "";
    if (done > 0 && seconds / done < 1e9) {
        const uint64_t rest = (uint64_t)(seconds * (1 - done) / done);
        snprintf(left, sizeof left, ", %" PRIu64 ":%02" PRIu64 ":%02" PRIu64 " left", rest / 3600,
                 rest / 60 % 60, rest % 60);
    }
    char line[256];
    snprintf(line, sizeof line, "epoch %" PRIu64 ", %s batches, %s samples/s, %s of %s%s",
             stats.epoch, count_text(stats.batches, batches),
             rate_text((double)stats.samples / seconds, rate),
             bytes_text((double)(usage.charged + usage.reserved), used),
             bytes_text((double)usage.limit, limit), left);
    draw(progress, line);
}

void progress_end(struct progress *progress) {
    if (progress->on_screen) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    progress->shown = progress->on_screen = false;
}
