"""Pipelines that a loop runs over in the smallest budget, and what must come of them: shared by the
tests of `hold` with and without frameworks.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

import brim
import numpy

PAGE = 4096
ROWS, BATCH = 150, 16  # the last batch is not full
X = numpy.arange(ROWS * 2000, dtype=numpy.float32).reshape(ROWS, 2000)
LABEL = numpy.arange(ROWS)
OUT = {"x": ("float32", (2000,)), "label": ("int64", ())}
ANSWER = 240  # seconds in which every loop here comes to its end, on a busy machine too


def twice(sample: Any) -> Any:
    return {"x": numpy.asarray(sample["x"]) * 2, "label": sample["label"]}


def most(sample: Any) -> bool:
    return int(numpy.asarray(sample["label"])) % 7 != 3


def negate(batch: Any) -> None:
    batch["x"] *= -1


def pipelines() -> Iterator[tuple[str, Any]]:
    """Pipelines of every kind of plan, each of which keeps the field `label`."""
    rows = brim.arrays(x=X, label=LABEL)
    keep = {"remainder": "keep"}
    yield "direct", rows.shuffle(seed=1).batch(BATCH, **keep)
    yield "filtered", rows.filter("label != 7").batch(BATCH, **keep)
    some = rows.filter("label != 7")
    yield "buffered", some.shuffle(seed=2, buffer="256KiB").batch(BATCH, **keep)
    yield "map", rows.map(twice, out=OUT).batch(BATCH, **keep)
    yield "filter by a function", rows.filter(most).batch(BATCH, **keep)
    yield "batch_map", rows.batch(BATCH, **keep).batch_map(negate, out={})
    yield "cached", rows.cache().batch(BATCH, **keep)
    yield "processes", rows.map(twice, out=OUT, processes=1).batch(BATCH, **keep)
    yield "a batch in a process", rows.batch(BATCH, **keep).batch_map(negate, out={}, processes=1)


@contextlib.contextmanager
def answered() -> Iterator[None]:
    """Fails if what is done here takes longer than ANSWER: it waits for ever."""

    def fail(*_: object) -> None:
        raise AssertionError(f"no end in {ANSWER} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, ANSWER)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def labels(batches: Any) -> list[list[int]]:
    """Those of each batch."""
    return [[int(label) for label in batch["label"].tolist()] for batch in batches]


def expected(data: Any) -> list[list[int]]:
    """The labels of two epochs, in memory in plenty."""
    with brim.Runtime("64MiB", threads=0) as runtime, runtime.open(data) as loader:
        return labels(loader) + labels(loader)
