/*
 * resume.c: a run is killed in the middle of an epoch, another one goes on.
 *
 * A child process takes batches and saves its state after each, as a training does with its
 * checkpoints; then it is killed, without a chance to clean up. Its parent opens the same pipeline
 * with other memory and other threads, goes on from the state, and must receive the batches that
 * the child would have received: they are compared with those of an uninterrupted run.
 *
 * The state is saved after its batch was used, so no sample is lost; those of a batch in use when
 * the run is killed come again.
 */
#include <brim.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAMPLES = 1000, EPOCH = 1, KILLED_AFTER = 7 };

static const char text[] = "range 1000 | shuffle seed=7 | batch 64";

struct session {
    brim_runtime *runtime;
    brim_pipeline *pipeline;
    brim_loader *loader;
};

/* Ends the program if a call failed. */
static void must(brim_status status) {
    if (status != BRIM_OK) {
        fprintf(stderr, "resume: %s: %s\n", brim_status_name(status), brim_detail());
        exit(1);
    }
}

static void must_hold(int claim, const char *otherwise) {
    if (!claim) {
        fprintf(stderr, "resume: %s\n", otherwise);
        exit(1);
    }
}

static struct session open_session(uint64_t bytes, int32_t threads) {
    struct session session;
    brim_runtime_options options = BRIM_RUNTIME_OPTIONS_INIT;
    options.host_bytes = bytes;
    options.threads = threads;
    must(brim_runtime_new(&options, &session.runtime));
    must(brim_pipeline_parse(text, &session.pipeline));
    must(brim_loader_open(session.runtime, session.pipeline, NULL, &session.loader));
    return session;
}

static void close_session(struct session *session) {
    brim_loader_close(session->loader);
    brim_pipeline_free(session->pipeline);
    brim_runtime_free(session->runtime);
}

/* The samples' numbers from where the loader stands to the end of the epoch. */
static size_t take_rest(brim_loader *loader, uint64_t *numbers) {
    size_t count = 0;
    brim_batch *batch;
    brim_status status;
    while ((status = brim_loader_next(loader, BRIM_FOREVER, &batch)) == BRIM_OK) {
        const brim_batch_info *info = brim_batch_get(batch);
        for (uint64_t row = 0; row < info->rows && count < SAMPLES; row++) {
            numbers[count++] = info->samples[row];
        }
        brim_batch_release(batch);
    }
    must(status == BRIM_STATUS_END ? BRIM_OK : status);
    return count;
}

static void train_until_killed(FILE *checkpoint) {
    struct session session = open_session(16 << 20, 2);
    brim_state state;
    brim_batch *batch;
    must(brim_loader_seek(session.loader, EPOCH, 0));
    for (int step = 0; step < KILLED_AFTER; step++) {
        must(brim_loader_next(session.loader, BRIM_FOREVER, &batch));
        brim_batch_release(batch); /* a training would learn from it first */
        must(brim_loader_state(session.loader, &state));
        rewind(checkpoint);
        must_hold(fwrite(&state, sizeof state, 1, checkpoint) == 1 && fflush(checkpoint) == 0,
                  "cannot write the state");
    }
    raise(SIGKILL);
}

int main(void) {
    static uint64_t whole[SAMPLES], rest[SAMPLES];
    FILE *checkpoint = tmpfile();
    must_hold(checkpoint != NULL, "cannot make a temporary file");

    /* forked before there is a runtime: the child makes its own */
    const pid_t child = fork();
    if (child == 0) {
        train_until_killed(checkpoint);
        _exit(1);
    }
    int ended = 0;
    must_hold(child > 0 && waitpid(child, &ended, 0) == child && WIFSIGNALED(ended),
              "the first run was not killed");
    printf("killed in epoch %d after %d batches of 64\n", EPOCH, KILLED_AFTER);

    brim_state state;
    rewind(checkpoint);
    must_hold(fread(&state, sizeof state, 1, checkpoint) == 1, "the first run left no state");
    fclose(checkpoint);
    struct session resumed = open_session(1 << 20, 0);
    must(brim_loader_restore(resumed.loader, &state));
    const size_t count = take_rest(resumed.loader, rest);
    close_session(&resumed);
    printf("resumed: %zu samples came, %d are left of %d\n", count, SAMPLES - KILLED_AFTER * 64,
           SAMPLES);

    struct session undisturbed = open_session(16 << 20, 1);
    must(brim_loader_seek(undisturbed.loader, EPOCH, 0));
    must_hold(take_rest(undisturbed.loader, whole) == SAMPLES, "an epoch is not whole");
    close_session(&undisturbed);
    must_hold(count == SAMPLES - KILLED_AFTER * 64, "the wrong number of samples came");
    for (size_t i = 0; i < count; i++) {
        must_hold(rest[i] == whole[SAMPLES - count + i], "another sample came");
    }
    printf("they are the samples of a run that was not killed, in the same order: %d, %d, %d ...\n",
           (int)rest[0], (int)rest[1], (int)rest[2]);
    return 0;
}
