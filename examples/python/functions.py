"""Python functions on samples: in threads and in processes, with the same result.

    python functions.py

`noisy` draws from the generator that it gets, which depends only on the sample and the epoch. So
the batches do not depend on where it runs. `tokens` returns rows of unequal length, which must be
declared; the output of `noisy` is found by calling it once.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy

import brim

X = numpy.linspace(0, 1, 4096, dtype=numpy.float32).reshape(256, 16)
WORDS = [" ".join(["word"] * (1 + i % 5)) for i in range(256)]


def noisy(sample: dict[str, Any], rng: numpy.random.Generator) -> dict[str, Any]:
    """A new sample: its fields take the place of those that came in."""
    noise = rng.normal(scale=0.1, size=16).astype(numpy.float32)
    return {"x": sample["x"] + noise, "process": numpy.int64(os.getpid())}


def tokens(sample: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": numpy.array([len(word) for word in sample["x"].split()], numpy.int32)}


def digest(data: brim.Pipeline) -> tuple[str, set[int]]:
    """A hash of all batches of two epochs, and the processes that made them."""
    found, processes = hashlib.sha256(), set()
    with brim.Runtime(memory="16MiB", threads=2) as rt, rt.open(data) as loader:
        for epoch in loader.epochs(2):
            for batch in epoch:
                found.update(numpy.asarray(batch["x"]).tobytes())
                processes.update(batch["process"].tolist())
    return found.hexdigest()[:16], processes


def main() -> None:
    data = brim.array(X).shuffle(seed=7)
    here, by = digest(data.map(noisy).batch(32))
    assert by == {os.getpid()}
    print("in threads of this process:", here)
    there, by = digest(data.map(noisy, processes=2).batch(32))
    assert os.getpid() not in by
    print("in other processes:        ", there)
    assert here == there
    print("the same batches")

    out = {"tokens": ("int32", (8,), "ragged")}  # up to 8
    texts = brim.dataset(WORDS).map(tokens, out=out).filter("length(tokens) > 1").batch(4)
    with brim.Runtime(memory="16MiB") as rt, rt.open(texts) as loader:
        print("rows of unequal length:", next(iter(loader))["tokens"].tolist())


if __name__ == "__main__":  # the processes import this file
    main()
