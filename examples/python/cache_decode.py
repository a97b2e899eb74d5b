"""A cache after decoding: from the second epoch on no image is read or decoded.

    python cache_decode.py

The statistics of a loader count the work of each stage: stages before the cache do nothing after
the first epoch; crops and flips after it go on, with other draws in every epoch.
"""

from __future__ import annotations

import tempfile

import brim
from drawn import draw


def counts(loader: brim.Loader) -> dict[str, int]:
    """What each stage has done so far."""
    return {stage["name"]: stage["samples"] for stage in loader.stats()["stages"]}


def main(folder: str) -> None:
    data = (
        brim.folder(folder).shuffle(seed=7).decode().resize(40, 40).cache("memory")
        .random_crop(32).flip().normalize("unit").batch(48)
    )  # fmt: skip
    # threads=0: no worker runs ahead, and the counts are exact
    with brim.Runtime(memory="32MiB", threads=0) as rt, rt.open(data) as loader:
        for epoch in loader.epochs(3):
            before = counts(loader)
            for _ in epoch:
                pass
            done = {name: count - before[name] for name, count in counts(loader).items()}
            print(f"epoch {epoch.number}: {done['decode']} decoded, {done['random_crop']} cropped")
            assert done["decode"] == (240 if epoch.number == 0 else 0)
            assert done["random_crop"] == 240


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as drawn:
        main(str(draw(drawn)))
