"""brim.keras: a pipeline as a keras.utils.PyDataset, for fit, evaluate and predict on any backend.

    train = brim.keras.dataset(data, memory="256MiB")
    model.fit(train, epochs=3, validation_data=brim.keras.dataset(held_out))

Keras asks a PyDataset for batches by index, in an order of its own if it shuffles. brim's order is
the pipeline's: an index is only a ticket for the next batch. What must be told is when a pass over
the data begins, for each pass is one epoch of the pipeline, complete and in order:

    an epoch of fit, an evaluation, a prediction    the next epoch
    a look at one or two batches (for shapes)       the same epoch again, nothing is lost
    a pass that was left early                      the next epoch
    steps_per_epoch                                 one pass, over several of fit's epochs

Keras makes a generator for each pass, so the generator that asks tells the pass. One that was left
may still ask, from a thread that reads ahead; it is refused, or it would take another's batches.

What is handed out are numpy arrays in brim's memory, which backends take without a copy and keep as
long as they need it; beyond `hold` they are copies, which the budget counts. brim makes batches
with its own threads: `workers` stays 1. On the TensorFlow backend a dataset lives until close(),
for TensorFlow never lets go of generators.
"""

from __future__ import annotations

import inspect
import sys
import threading
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

import keras

from . import _core
from ._adapters import Source
from ._opened import Opened
from ._pipeline import Pipeline
from ._runtime import Progress, Runtime
from ._shard import part

__all__ = ["Dataset", "dataset"]

Names = str | Sequence[str] | Mapping[str, str]

_LOOK = 2  # batches of a pass that was only a look
_NEAR = 3  # frames above ours in which the generator is
_AHEAD = 16  # batches that a backend takes before it has worked on those before them


def dataset(
    data: Pipeline | str,
    *,
    memory: int | str | None = None,
    runtime: Runtime | None = None,
    x: Names | None = None,
    y: Names | None = None,
    sample_weight: str | None = None,
    hold: int = 3,
    shard: str | None = None,
    rank: int | None = None,
    world: int | None = None,
    label: str | None = None,
    threads: int | None = None,
    slots: int = 0,
    fixed: bool = False,
    progress: Progress | None = None,
    device: str = "cpu",
) -> Dataset:
    """Opens a pipeline as a keras.utils.PyDataset.

    memory: what the runtime that all loaders of the process share may take; see brim.runtime
    runtime: a brim.Runtime to open it in instead
    x, y: names of fields: a name, several, or a dict of a model's inputs or outputs to names.
        Neither: the first field is x, the second y; x alone: there is no y
    sample_weight: the field of weights. "valid": 1 for samples and 0 for rows that only fill the
        last batch up (`remainder="pad"`); without it such rows are cut off
    hold: batches that Keras may keep at a time before brim copies
    shard: "auto": this process's part by RANK and WORLD_SIZE of the environment
    rank, world: this process's part, said outright
    label, threads, slots, fixed, progress: as in Runtime.open
    device: "cpu": batches lie in host memory, from where Keras moves them

    Where nobody can tell the number of batches (a filter, a stream), Keras must be told: give fit
    `steps_per_epoch`, and evaluate and predict `steps`. Batches then come without end, epoch after
    epoch, with a warning that tells the number if Keras was not told; of a stream that cannot be
    opened again, those of a look are lost.

    Text and fields whose rows differ in length need the TensorFlow backend.
    """
    source = Source(
        data,
        memory=memory,
        runtime=runtime,
        hold=hold,
        part=part(shard, rank, world),
        label=label,
        threads=threads,
        slots=slots,
        fixed=fixed,
        progress=progress,
        device=device,
    )
    try:
        return Dataset(source, x, y, sample_weight)
    except BaseException:
        source.core.close()
        raise


class Dataset(Opened, keras.utils.PyDataset):
    """A running pipeline for Keras; brim.keras.dataset opens one."""

    _name = "brim.keras.dataset"

    def __init__(
        self, source: Source, x: Names | None, y: Names | None, sample_weight: str | None
    ) -> None:
        super().__init__()
        self._source = source
        self._core = source.core
        self._pipeline = source.pipeline
        if x is None:
            if y is not None or sample_weight is not None:
                raise ValueError("y= and sample_weight= need x=: name the model's inputs too")
            x, y = [*source.fields, None][:2]
        elif y is None and sample_weight is not None:
            raise ValueError("sample_weight= needs y=: name the targets too")
        self._parts = [part for part in (x, y, sample_weight) if part is not None]
        self._names = source.choose([name for part in self._parts for name in _names(part)])
        self._weighs = sample_weight is not None and source.pads((sample_weight,))
        self._ragged = None
        backend = keras.backend.backend()
        if backend == "tensorflow":
            from .tensorflow import ragged

            self._ragged = ragged
        else:
            source.need_dense(self._names, f"Keras on {backend}")

        self._lock = threading.Lock()  # guards what follows; the loader is moved only with it
        self._caller: FrameType | None = None  # generator of the pass; None: somebody else
        self._left: deque[FrameType] = deque(maxlen=2)  # generators of passes left early
        self._taken = 0  # batches of the pass
        self._complete = True
        self._epoch = 0
        self._start: _core.State | None = None  # where the pass began
        self._whole = False  # which is where an epoch begins
        self._ended: tuple[int, int] | None = None  # its first epoch, and how many batches it had
        self._bounded = False  # Keras has come to the end of an epoch of its own in the pass
        self._warned = False

    # ------------------------------------------------------------------- what Keras asks

    @property
    def num_batches(self) -> int | None:
        """Batches of a pass; None: without end."""
        return self._source.batches

    def __len__(self) -> int:
        return len(self._core)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """The next batch, whatever the index."""
        del index
        caller = _generator(sys._getframe(1))
        with self._lock:
            if caller is not None and any(caller is left for left in self._left):
                raise _core.IterationError(
                    "this pass was ended by a newer one over the same dataset; for two at a time "
                    "open two datasets"
                )
            if self._complete or caller is not self._caller:
                self._begin(caller)
            return self._pack(self._next())

    def _begin(self, caller: FrameType | None) -> None:
        if not self._complete:
            if self._caller is not None:
                self._left.append(self._caller)
            if self._taken <= _LOOK and self._start is not None:
                self._core.load_state_dict(self._start)
            elif self._source.batches is not None:
                self._core.seek(self._epoch + 1, 0)
        try:
            self._start = self._core.state_dict()
        except _core.Error:  # a stream that cannot be opened again
            self._start = None
        self._caller = caller
        self._taken = 0
        self._complete = False
        self._ended = None
        self._bounded = False

    def _next(self) -> _core.Batch:
        take = self._source.take
        batch = take(self._core.next) or take(self._core.next)  # None: an epoch has ended
        if batch is None:
            raise _core.DataError("the pipeline gives no batch: an epoch of it is empty")
        self._taken += 1
        if self._source.batches is None:
            self._watch(batch)
        self._epoch = batch.epoch
        if self._taken == self._source.batches:
            self._complete = True
            self._caller = None
        return batch

    def _watch(self, batch: _core.Batch) -> None:
        """Warns where Keras goes on from epoch to epoch, for nobody has told it how long one is."""
        if self._taken == 1:
            self._whole = batch.step == 0 and batch.micro == 0
        elif self._ended is None and batch.epoch != self._epoch:
            self._ended = self._epoch, self._taken - 1
        if self._ended is None or not self._whole or self._bounded or self._warned:
            return
        epoch, length = self._ended
        if self._taken >= length + _AHEAD:
            self._warned = True
            warnings.warn(
                f"epoch {epoch} ended after {length} batches; give fit steps_per_epoch={length}",
                UserWarning,
                stacklevel=3,
            )

    def on_epoch_end(self) -> None:
        """Keras calls it at the end of its own epochs."""
        self._bounded = True

    def _pack(self, batch: _core.Batch) -> tuple[Any, ...]:
        values = dict(zip(self._names, self._source.values(batch, self._names, self._ragged)))
        if self._weighs:
            values["valid"] = values["valid"].astype("float32")
        return tuple(_structure(part, values) for part in self._parts)

    @property
    def workers(self) -> int:
        """1: batches are made by brim's threads."""
        return 1

    @workers.setter
    def workers(self, value: int) -> None:
        if value > 1:
            raise ValueError(
                f"workers={value}: batches are made by brim's own threads; their number is "
                "threads= of dataset()"
            )

    @property
    def use_multiprocessing(self) -> bool:
        """False: batches are made by brim's threads."""
        return False

    @use_multiprocessing.setter
    def use_multiprocessing(self, value: bool) -> None:
        if value:
            raise ValueError("use_multiprocessing: batches are made by brim's own threads")

    # ---------------------------------------------------------------------- the rest

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next pass, for fit(initial_epoch=...) in a program that goes on."""
        with self._lock:
            self._core.seek(epoch, 0)
            self._complete = True


def _generator(frame: FrameType | None) -> FrameType | None:
    """The frame of the generator that asks."""
    for _ in range(_NEAR):
        if frame is None or frame.f_code.co_flags & inspect.CO_GENERATOR:
            return frame
        frame = frame.f_back
    return None


def _names(part: Names) -> list[str]:
    if isinstance(part, str):
        return [part]
    return list(part.values() if isinstance(part, Mapping) else part)


def _structure(part: Names, values: dict[str, Any]) -> Any:
    """The values in the form in which their names were given."""
    if isinstance(part, str):
        return values[part]
    if isinstance(part, Mapping):
        return {key: values[name] for key, name in part.items()}
    return tuple(values[name] for name in part)
