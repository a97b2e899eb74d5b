/*
 * test_faults_images.c: faults while folders are listed and images are decoded, and
 * going on from a state; see support/fault_sweep.h.
 */
#include "support/fault_sweep.h"
#include "support/image_data.h"
#include "support/memory_data.h"

static void run_text(void) {
    char text[TEXT_BYTES];
    brim_state state;
    const void *none = NULL;
    begin_runtime(SIXTEEN_MIB);
    brim_loader *loader = open_text(expand(now.scenario->text, text), NULL);
    take(loader, 1);
    must(brim_loader_state(loader, &state), "state");
    take(loader, 1);
    ATTEMPT(brim_loader_restore(loader, &state), none);
    take(loader, 2);
    brim_loader_close(loader);
    end_runtime();
}

static struct scenario scenarios[] = {
    { .name = "folder", .run = run_text, .text = "folder $/pets index=beside | batch 2" },
    { .name = "train",
      .run = run_text,
      .text = "folder $/pets index=beside | shuffle | decode | random_resized_crop 16 | flip | "
              "normalize imagenet | layout chw | batch 2" },
    { .name = "unprobed",
      .run = run_text,
      .text =
          "folder $/pets index=beside probe=no | decode room=1MiB | resize 24 | center_crop 16 | "
          "color_jitter brightness=0.2 contrast=0.2 | batch 2" },
    { .name = "manifest",
      .run = run_text,
      .text = "files $/pets.csv index=beside | decode | resize 8 8 | batch 1" },
    { .name = "mixed",
      .run = run_text,
      .text = "folder $/pets index=beside | decode | resize 16 16 | one_hot 2 on=label | cast "
              "float32 | "
              "batch 4 | mixup | cutmix layout=hwc" },
};

int main(int argc, char **argv) {
    return sweep_main(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0],
                      begin_image_tests);
}
