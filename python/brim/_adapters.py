"""The common part of the adapters for Keras, TensorFlow and JAX: an open pipeline and its batches'
arrays.

These frameworks hold batches for some time: tf.data fetches ahead, JAX returns before it has
computed. An array is in brim's memory and holds its slot; beyond `hold` batches there are copies,
which the budget counts, with one warning. If a framework releases a batch only a little late, brim
waits instead: see Source.take. If the budget has no room for another copy, the framework waits: a
thread that reads ahead waits until a batch is released. BudgetError comes only when no batch is
released for a while.

Fields of one number for each sample are always copied, because labels are often kept for longer.
"""

from __future__ import annotations

import gc
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy

from . import _core
from ._opened import Opened
from ._opening import Opening, batching, may_be_fewer
from ._pipeline import Pipeline

OF_ROWS = ("ids", "valid")  # what may be named beside the pipeline's own fields

Ragged = Callable[[_core.Ragged, int], Any]  # its first rows, as the framework has such things
T = TypeVar("T")

# Seconds in which a framework should have let go of a batch: asked by the program itself, and by
# a thread that reads ahead, for which the program may be busy elsewhere for long.
PATIENCE, PATIENCE_AHEAD = 60.0, 600.0
UNEASY = 5.0  # seconds of waiting after which the program is told
MOMENT = 0.1  # seconds in which one that has only dispatched its work should have


def all_full(plan: Mapping[str, Any], pipeline: Pipeline, world: int) -> bool:
    """Whether every batch of every rank has `batch_rows` rows: none is left over at the end, and
    what all ranks take in a step divides by their number and into micro-batches."""
    batch = batching(pipeline)
    if batch is None or None in (plan["samples"], plan["steps"], plan["batches"]):
        return False
    taken = plan["steps"] * batch["rows"] * (world if batch["per"] == "rank" else 1)
    most = plan["batches"] * plan["batch_rows"] * world
    return bool(taken == most <= plan["samples"]) and batch["on_error"] != "skip"


class Source(Opened):
    """An open pipeline whose batches come as numpy arrays."""

    _name = "brim.tensorflow.dataset"

    def __init__(self, opening: Opening) -> None:
        self._pipeline = opening.pipeline
        self._core = opening.open()
        plan = self.core.plan
        self.fields: dict[str, dict[str, Any]] = {field["name"]: field for field in plan["fields"]}
        self.batches: int | None = plan["batches"]
        self.rows: int = plan["batch_rows"]
        self.all_full = all_full(plan, opening.pipeline, opening.part[1])
        self.may_be_fewer = may_be_fewer(opening.pipeline, opening.part[1])
        self.failed = False  # the last batch asked for by each() could not be had
        self.patient = True  # it has paid to wait for a batch, so far
        self.uneasy = False  # a long wait was told

    def choose(self, fields: str | Sequence[str] | None) -> tuple[str, ...]:
        """The fields of that name; all of the pipeline's if there is none."""
        if fields is None:
            return tuple(self.fields)
        chosen = (fields,) if isinstance(fields, str) else tuple(fields)
        for name in chosen:
            if name not in self.fields and name not in OF_ROWS:
                raise _core.PipelineError(
                    f"the pipeline gives no field {name!r}; it gives {', '.join(self.fields)}, and "
                    f"there are {' and '.join(OF_ROWS)}"
                )
        return chosen

    def need_dense(self, names: Sequence[str], framework: str) -> None:
        """Refuses fields whose rows differ in length, where the framework has no such thing."""
        for name in names:
            form = self.fields.get(name, {"form": "dense"})["form"]
            if form != "dense":
                raise _core.PipelineError(
                    f"field {name!r} is {form}, and {framework} has no arrays whose rows differ in "
                    "length: add pad() to the pipeline, or leave the field out"
                )

    def pads(self, names: Sequence[str]) -> bool:
        """Whether padding rows are left in: "valid" marks them."""
        return "valid" in names and "valid" not in self.fields

    def take(self, ask: Callable[[], T]) -> T:
        """What `ask` gives, which asks for a batch; with patience where memory is short.

        The framework may be about to release a batch: a moment's wait saves the copy. If no batch
        is released, there is no other wait before one has been."""
        if self.core.lent < self.core.hold:
            self.patient = True
        elif self.patient:
            self.patient = self._wait()
        ahead = threading.current_thread() is not threading.main_thread()
        patience = PATIENCE_AHEAD if ahead else PATIENCE
        begun = None
        while True:
            try:
                return ask()
            except _core.BudgetError as error:
                begun = begun or time.monotonic()
                waited = time.monotonic() - begun
                if waited >= patience:
                    raise
                if waited >= UNEASY and not self.uneasy:
                    self.uneasy = True
                    warnings.warn(f"waiting for a batch to be released: {error}", stacklevel=3)
            time.sleep(0.002)
            gc.collect(0)

    def _wait(self) -> bool:
        """Waits a moment for a batch to come back: whether one did."""
        deadline = time.monotonic() + MOMENT
        while time.monotonic() < deadline:
            time.sleep(0.0005)
            gc.collect(0)  # JAX's threads leave what they are done with to the collector
            if self.core.lent < self.core.hold:
                return True
        return False

    def each(
        self, core: Iterator[_core.Batch], names: Sequence[str], ragged: Ragged | None = None
    ) -> Iterator[list[Any]]:
        """These fields of each batch; none is kept here while the framework has it."""
        while True:
            try:
                yield self.values(self._take_noting(core.__next__), names, ragged)
            except StopIteration:
                return

    def _take_noting(self, ask: Callable[[], T]) -> T:
        """take(), and a note of an error."""
        try:
            return self.take(ask)
        except StopIteration:
            raise
        except Exception:
            self.failed = True
            raise

    def again(self) -> None:
        """The next iteration restarts an epoch that an error ended, if the framework counts the
        batches of an epoch: the rest of it would be too few."""
        if self.failed and self.batches is not None:
            self._core.set_epoch(self._core.epoch)
        self.failed = False

    def values(
        self,
        batch: _core.Batch,
        names: Sequence[str],
        ragged: Ragged | None = None,
        rows: int | None = None,
    ) -> list[Any]:
        """These fields of a batch, of its first rows if a number is given."""
        if rows is None:
            rows = batch.rows if self.pads(names) else batch.valid_rows
        return [self._value(batch, name, rows, ragged) for name in names]

    def _value(self, batch: _core.Batch, name: str, rows: int, ragged: Ragged | None) -> Any:
        if name not in self.fields:
            return numpy.array((batch.ids if name == "ids" else batch.valid))[:rows]
        field = batch[name]
        if isinstance(field, _core.Ragged):
            assert ragged is not None
            return ragged(field, rows)
        array = view(field)[:rows]
        return array.copy() if array.size == rows else array

    @property
    def core(self) -> _core.Loader:
        """The library's loader."""
        return self._core

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iteration begins."""
        self._core.set_epoch(epoch)


def need_host(device: str) -> str:
    """The host. Refuses devices: these frameworks take numpy arrays."""
    if device not in ("cpu", "host"):
        raise _core.PipelineError(
            f"device={device!r}: this adapter gives arrays in host memory, which the framework "
            "moves to its device itself; leave device out"
        )
    return device


def view(array: _core.Array) -> numpy.ndarray[Any, Any]:
    """The array as a numpy array in the same memory, which it keeps lent."""
    result = numpy.asarray(array)
    if array.dtype == "bfloat16":
        import ml_dtypes

        return result.view(ml_dtypes.bfloat16)
    return result
