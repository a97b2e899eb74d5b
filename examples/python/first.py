"""Batches of images from a folder, three epochs, inside 32 MiB.

    python first.py            on images that it draws first
    python first.py FOLDER     on a folder of your own, with a folder for each class

A Pipeline describes what to do, a Runtime is the memory budget, a Loader returns batches. The plan
says how much memory is needed before an image is read.
"""

from __future__ import annotations

import sys
import tempfile

import brim
from drawn import draw


def main(folder: str) -> None:
    data = (
        brim.folder(folder).shuffle(seed=7).decode().random_resized_crop(32).flip()
        .normalize("imagenet").batch(32)
    )  # fmt: skip
    print(f"{len(data)} samples; sample 0 is", {name: v.shape for name, v in data[0].items()})
    print(data.plan(memory="32MiB"))

    with brim.Runtime(memory="32MiB") as rt, rt.open(data) as loader:
        names = loader.classes["label"]
        for epoch in loader.epochs(3):
            counts = [0] * len(names)
            for batch in epoch:
                x, y = batch["image"], batch["label"]  # views: numpy.asarray(x) copies nothing
                for label in y.tolist():
                    counts[label] += 1
            print(f"epoch {epoch.number}: {dict(zip(names, counts))}, the last batch is {x}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as drawn:
            main(str(draw(drawn)))
