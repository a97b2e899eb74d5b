"""The same pipeline, cached in memory if it fits and in a file if it does not.

    python cache_tier.py             in a temporary folder, which it removes
    python cache_tier.py FOLDER      the file stays there, and the next run finds it full

A plan says how much a cache after each stage would keep of a sample; the program compares that with
the free budget above the minimum. A file is keyed by the data and by the stages before the cache:
any process may use it, at any time.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
from typing import Any

import brim
from drawn import draw


def finish(samples: brim.Pipeline) -> brim.Pipeline:
    """The stages after the cache, or after where it would be."""
    return samples.shuffle(seed=7).flip().normalize("unit").batch(16)


def cached(samples: brim.Pipeline, rt: brim.Runtime, file: pathlib.Path) -> brim.Pipeline:
    """The samples with the cache that suits the budget."""
    plan = rt.plan(finish(samples))
    (resize,) = (stage for stage in plan.stages if stage["name"] == "resize")
    needed = plan.samples * resize["sample_bytes"]
    left = plan.limit_bytes - plan.minimum_bytes
    print(f"  {needed / 2**20:.1f} MiB of samples, {left / 2**20:.1f} MiB are left:", end=" ")
    return samples.cache("memory") if needed < left * 0.9 else samples.cache(file=file)


def run(samples: brim.Pipeline, memory: str, file: pathlib.Path) -> dict[str, Any]:
    """Epochs until the cache has all samples, but at least one; what it says then."""
    with brim.Runtime(memory=memory, threads=0) as rt:
        with rt.open(finish(cached(samples, rt, file))) as loader:
            for epoch in loader.epochs():
                for _ in epoch:
                    pass
                (cache,) = loader.stats()["caches"]
                if cache["filled"] == cache["samples"]:
                    break
            print(f"{cache['tier']}, {cache['misses']} made, {cache['hits']} found")
            assert rt.usage()["peak"] <= rt.usage()["limit"]
            return dict(cache)


def main(folder: str, keep: str) -> None:
    samples = brim.folder(folder).decode().resize(64, 64)
    file = pathlib.Path(keep, "images.brimcache")
    print("in 32 MiB:")
    assert run(samples, "32MiB", file)["misses"] == 240
    print("in 4 MiB:")
    run(samples, "4MiB", file)
    print("in 4 MiB, as the next run of a program:")
    again = run(samples, "4MiB", file)
    assert (again["hits"], again["misses"]) == (240, 0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as own:
        kept = sys.argv[1] if len(sys.argv) > 1 else own
        images = pathlib.Path(kept, "images")
        main(str(images if images.exists() else draw(images)), kept)
