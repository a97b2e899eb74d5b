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

static const char *amount_text(brim_unit unit, uint64_t amount, char text[NUMBER_TEXT]) {
    return unit == BRIM_UNIT_BYTES ? bytes_text((double)amount, text) : count_text(amount, text);
}

void progress_work(struct progress *progress, const brim_progress *work) {
    char line[512], of[NUMBER_TEXT + 4] = "", a[NUMBER_TEXT], b[NUMBER_TEXT];
    if (!is_due(progress, now_seconds())) {
        return;
    }
    if (work->total != BRIM_UNKNOWN) {
        snprintf(of, sizeof of, " of %s", amount_text(work->unit, work->total, b));
    }
    snprintf(line, sizeof line, "%s, %s%s%s", work->what, amount_text(work->unit, work->done, a),
             of,
             work->unit == BRIM_UNIT_FILES     ? " files"
             : work->unit == BRIM_UNIT_SAMPLES ? " samples"
                                               : "");
    draw(progress, line);
}

void progress_say(struct progress *progress, const char *what) {
    char line[256];
    if (is_due(progress, now_seconds())) {
        snprintf(line, sizeof line, "%s", what);
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
