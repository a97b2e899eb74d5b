"""The validation set is cached, the training set is not, and both share one budget.

    python cache_validation.py

A small set that is the same after every epoch is worth keeping; a large one with other crops each
time is not. A cache takes free budget and gives way to all other holders, so the hundredth
validation takes no more memory than the second.
"""

from __future__ import annotations

import tempfile

import brim
from drawn import draw


def main(folder: str) -> None:
    images = brim.folder(folder)
    train = (
        images.split("train", validation=0.25, seed=1).shuffle(seed=7)
        .decode().random_resized_crop(32).flip().normalize("unit").batch(36)
    )  # fmt: skip
    validation = (
        images.split("validation", validation=0.25, seed=1)
        .decode().resize(32, 32).normalize("unit").cache("memory").batch(30)
    )  # fmt: skip
    with (
        # threads=0: no worker runs ahead, and the counts are exact
        brim.Runtime(memory="16MiB", threads=0) as rt,
        rt.open(train, label="train") as fit,
        rt.open(validation, label="validation") as check,
    ):
        for epoch in range(4):
            before = check.stats()["caches"][0]
            rows = [sum(batch.valid_rows for batch in loader) for loader in (fit, check)]
            cache, usage = check.stats()["caches"][0], rt.usage()
            found = cache["hits"] - before["hits"]
            print(
                f"epoch {epoch}: {rows[0]} images for training, {rows[1]} for validation, of which "
                f"{found} were found in memory; {usage['charged'] / 2**20:.1f} of 16.0 MiB"
            )
            assert usage["peak"] <= 16 << 20
            assert found == (60 if epoch > 0 else 0)
        print(f"the cache holds {cache['filled']} samples, {cache['bytes'] / 1024:.0f} KiB")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as drawn:
        main(str(draw(drawn)))
