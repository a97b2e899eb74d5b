"""A shuffle after a cache: another order in every epoch, and every image decoded once.

    python cache_shuffle.py

Stages before the cache run in the first epoch, stages after it in every epoch. So random stages
come after it: flips are drawn in every epoch. An order holds no samples, it is arithmetic: shuffle
may come before or after the cache.
"""

from __future__ import annotations

import tempfile

import brim
from drawn import draw


def main(folder: str) -> None:
    data = (
        brim.folder(folder).decode().resize(32, 32).cache("memory")
        .shuffle(seed=7).flip().normalize("unit").batch(48)
    )  # fmt: skip
    # threads=0: no worker runs ahead, and the counts are exact
    with brim.Runtime(memory="32MiB", threads=0) as rt, rt.open(data) as loader:
        begins = []
        for epoch in loader.epochs(3):
            before = loader.stats()["caches"][0]
            ids = [number for batch in epoch for number in batch.ids.tolist()]
            after = loader.stats()["caches"][0]
            begins.append(ids[:3])
            print(
                f"epoch {epoch.number}: samples {ids[:3]} ...: "
                f"{after['misses'] - before['misses']} made, {after['hits'] - before['hits']} found"
            )
            assert sorted(ids) == list(range(240))
        assert begins[0] != begins[1] != begins[2]
        assert after["misses"] == 240 and after["hits"] == 480


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as drawn:
        main(str(draw(drawn)))
