"""What a batch costs beside its making: microseconds for batches of 64 integers.

    PYTHONPATH=build/release/python tools/python bench/python/overhead.py [--quick]

The pipeline is `range 1000000 | batch 64`, whose batches cost brim next to nothing, so that what is
left is the way from brim to the program: in C (`brim bench`), in a loop in Python, with a view of
numpy's, and in each adapter. brim.keras is asked for batches from a generator, as Keras asks; the
loop of Keras itself is not run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import support

BATCH = 64
TEXT = f"range 1000000 | batch {BATCH}"
MEMORY = "64MiB"


def _runtime() -> Any:
    import brim

    return brim.Runtime(memory=MEMORY, threads=support.THREADS)


def loop(clock: support.Clock) -> None:
    with _runtime() as runtime, runtime.open(TEXT) as loader:
        while True:
            for batch in loader:
                clock(BATCH)


def view(clock: support.Clock) -> None:
    import numpy

    with _runtime() as runtime, runtime.open(TEXT) as loader:
        while True:
            for batch in loader:
                numpy.asarray(batch["index"])
                clock(BATCH)


def torch(clock: support.Clock) -> None:
    import brim.torch

    loader = brim.torch.loader(TEXT, runtime=_runtime())
    while True:
        for (x,) in loader:
            clock(BATCH)


def jax(clock: support.Clock) -> None:
    import brim.jax

    loader = brim.jax.loader(TEXT, runtime=_runtime())
    while True:
        for (x,) in loader:
            clock(BATCH)


def tensorflow(clock: support.Clock) -> None:
    import brim.tensorflow

    data = brim.tensorflow.dataset(TEXT, runtime=_runtime())
    while True:
        for (x,) in data:
            clock(BATCH)


def keras(clock: support.Clock) -> None:
    for backend in ("torch", "jax", "tensorflow"):
        try:
            __import__(backend)
        except ModuleNotFoundError:
            continue
        os.environ["KERAS_BACKEND"] = backend
        break
    import brim.keras

    data = brim.keras.dataset(TEXT, runtime=_runtime())

    def batches() -> Iterator[Any]:
        for index in range(len(data)):
            yield data[index]

    while True:
        for (x,) in batches():
            clock(BATCH)


SIDES = {
    "brim, a loop in Python": loop,
    "and a view of numpy's": view,
    "brim.torch": torch,
    "brim.keras": keras,
    "brim.jax": jax,
    "brim.tensorflow": tensorflow,
}


def measure(options: support.Options, folder: str) -> None:
    sides: dict[str, Any] = {"brim in C": support.Command(options.cli, TEXT, MEMORY, BATCH)}
    sides |= {name: support.Process(name, {}) for name in SIDES}
    support.compare(
        f"overhead: {TEXT}",
        sides,
        "brim in C",
        options,
        "of interest are the differences in microseconds",
        per_batch=True,
    )


if __name__ == "__main__":
    support.main(__doc__, SIDES, measure, seconds=0.5)
