"""brim.keras: a pipeline as a keras.utils.PyDataset, for fit, evaluate and predict on any backend.

    train = brim.keras.dataset(data, memory="256MiB")
    model.fit(train, epochs=3, validation_data=brim.keras.dataset(held_out))

Keras asks a PyDataset for batches by index, in its own order if it shuffles. brim delivers batches
in the pipeline's order and ignores the value of the index. It must only know when a pass over the
data begins, because each pass is one epoch of the pipeline, complete and in order:

    an epoch of fit, an evaluation, a prediction    the next epoch
    taking one or two batches (for shapes)          the same epoch again, no batch is lost
    a pass that ended early                         the next epoch
    a pass that ended with an error of brim         the same epoch again, from its start
    steps_per_epoch                                 one pass, over several of fit's epochs
    the first epoch of fit with Resume or Backup    the epoch, and the position in it, of fit

Keras makes a generator for each pass, so the generator that asks identifies the pass. A generator
of a pass that ended may still ask, from a thread that reads ahead; it is refused, because it would
take batches of another pass.

Keras gets numpy arrays in brim's memory, which backends take without a copy and keep as long as
they need them; beyond `hold` they are copies, which the budget counts. brim's threads make the
batches: `workers` stays 1. On the TensorFlow backend a dataset exists until close(), because
TensorFlow never releases generators.
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
import numpy

from . import _core
from ._adapters import Source, need_host
from ._keras_resume import Backup, Resume
from ._opened import Opened
from ._opening import opening_by, planner
from ._pipeline import Pipeline
from ._runtime import Progress, Runtime
from ._trainers import AHEAD

__all__ = ["Backup", "Dataset", "Resume", "dataset", "plan"]

Position = tuple["_core.State", int]  # a state, and how many batches of its epoch are done
Names = str | Sequence[str] | Mapping[str, str]

_LOOK = 2  # batches of a pass that was only a look
_NEAR = 3  # callers among which the generator is looked for
_DEPTH = 6  # and the iterator of an epoch of Keras
_AHEAD = 16  # batches that a backend takes before it has worked on those before them

_opening = opening_by(need_host, least=AHEAD, who="Keras")


def dataset(
    data: Pipeline | str,
    *,
    memory: int | str | None = None,
    runtime: Runtime | None = None,
    x: Names | None = None,
    y: Names | None = None,
    sample_weight: str | None = None,
    hold: int = AHEAD,
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

    memory: the budget of the process's common runtime; see brim.runtime
    runtime: a brim.Runtime to open it in instead
    x, y: names of fields: a name, several, or a dict of a model's inputs or outputs to names.
        Neither: the first field is x, the second y; x alone: there is no y
    sample_weight: the field of weights, which is then neither x nor y. "valid": 1 for each
        sample. Padding rows (`remainder="pad"`) are always cut off
    hold: batches that Keras may hold at a time before brim copies; at least 3, because it looks
        ahead
    shard: "auto": this process's part by RANK and WORLD_SIZE of the environment
    rank, world: this process's part, given explicitly
    label, threads, slots, fixed, progress: as in Runtime.open
    device: "cpu": batches are in host memory, and Keras moves them from there

    If the number of batches is not known (a filter, a stream), give fit `steps_per_epoch`, and
    evaluate and predict `steps`. Otherwise batches come without end, epoch after epoch, with a
    warning that gives the number. Of a stream that cannot be opened again, batches that were taken
    for their shapes are lost.

    Text and fields whose rows differ in length need the TensorFlow backend.
    """
    opening = _opening(
        data,
        memory=memory,
        runtime=runtime,
        hold=hold,
        shard=shard,
        rank=rank,
        world=world,
        label=label,
        threads=threads,
        slots=slots,
        fixed=fixed,
        progress=progress,
        device=device,
    )
    source = Source(opening)
    try:
        return Dataset(source, x, y, sample_weight)
    except BaseException:
        source.core.close()
        raise


plan = planner(dataset, _opening)


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
            if y is not None:
                raise ValueError("y= needs x=: name the model's inputs too")
            x, y = [*(name for name in source.fields if name != sample_weight), None, None][:2]
        if x is None or (y is None and sample_weight is not None):
            raise ValueError("sample_weight= needs y=: name the targets too")
        self._parts = [part for part in (x, y, sample_weight) if part is not None]
        self._names = source.choose([name for part in self._parts for name in _names(part)])
        self._weighs = sample_weight is not None and source.pads((sample_weight,))
        self._needs_rows = len(self._parts) > 1
        self._ragged = None
        backend = keras.backend.backend()
        if backend == "tensorflow":
            from .tensorflow import ragged

            self._ragged = ragged
        else:
            source.need_dense(self._names, f"Keras on {backend}")

        self._lock = threading.Lock()  # guards what follows; the loader is moved only with it
        self._caller: FrameType | None = None  # generator of the pass; None: another caller
        self._left: deque[FrameType] = deque(maxlen=2)  # generators of passes left early
        self._taken = 0  # batches of the pass
        self._complete = True
        self._failed = False  # the last batch asked for could not be had
        self._epoch = 0  # of the last batch
        self._done = 0  # batches of that epoch, up to the last one
        self._length = source.batches  # batches of the pass
        self._cut: int | None = None  # of the next one, if it is to have fewer
        self._start: _core.State | None = None  # where the pass began
        self._start_done = 0  # and how many of its epoch were done there
        self._trail: deque[Position] | None = None  # after each batch that is not trained on yet
        self._whole = False  # which is where an epoch begins
        self._ended: tuple[int, int] | None = None  # its first epoch, and how many batches it had
        self._bounded = False  # Keras has come to the end of an epoch of its own in the pass
        self._warned = False
        self._blank: tuple[Any, ...] | None = None  # a batch of no rows, where Keras can take one
        self._over = False  # the epoch of the pass has ended: blank batches complete it
        self._borrowed = False  # batches of the next epoch complete it

    # ------------------------------------------------------------------- what Keras asks

    @property
    def num_batches(self) -> int | None:
        """Batches of a pass; None: without end."""
        if self._ragged is not None:
            self._need_hold(sys._getframe(1))
        return self._source.batches if self._cut is None else self._cut

    def __len__(self) -> int:
        return len(self._core)

    def _need_hold(self, frame: FrameType | None) -> None:
        """TensorFlow takes all batches of one execution before it lets go of the first. Refuses
        that where `hold` is less, before the first batch: in the middle copies may not fit."""
        for _ in range(_DEPTH):
            if frame is None:
                return
            steps = getattr(frame.f_locals.get("self"), "steps_per_execution", 1)
            if isinstance(steps, int) and steps > 1 and self._core.hold < steps + AHEAD - 1:
                raise ValueError(
                    f"hold={self._core.hold}: Keras on TensorFlow with steps_per_execution={steps} "
                    f"may have {steps + AHEAD - 1} batches when it gets the next one, that one "
                    f"included; open with hold={steps + AHEAD - 1} or more"
                )
            frame = frame.f_back

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """The next batch, whatever the index."""
        caller = _generator(sys._getframe(1))
        with self._lock:
            if caller is not None and any(caller is left for left in self._left):
                raise _core.IterationError(
                    "this pass was ended by a newer one over the same dataset; for two at a time "
                    "open two datasets"
                )
            # a look at the data, outside of any generator, begins with index 0
            looks = caller is None and self._taken > 0 and index == 0
            if self._complete or caller is not self._caller or looks:
                self._begin(caller)
            self._failed = True
            batch = self._next()
            self._failed = False
            if batch is None:
                assert self._blank is not None
                return self._blank
            return self._pack(batch)

    def _begin(self, caller: FrameType | None) -> None:
        if not self._complete:
            if self._caller is not None:
                self._left.append(self._caller)
            again = self._taken <= _LOOK or (self._failed and self._source.batches is not None)
            if again and self._start is not None:
                self._core.load_state_dict(self._start)
                self._done = self._start_done
            elif self._source.batches is not None:
                self._core.seek(self._epoch + 1, 0)
        try:
            self._start = self._core.state_dict()
        except _core.Error:  # a stream that cannot be opened again
            self._start = None
        self._start_done = self._done
        self._caller = caller
        self._taken = 0
        self._length, self._cut = self.num_batches, None
        if self._trail is not None:
            self._trail.clear()
        self._complete = False
        self._over = self._borrowed = False
        self._ended = None
        self._bounded = False

    def _next(self) -> _core.Batch | None:
        """The next batch; None: the epoch has ended, and Keras still counts on batches of it."""
        take = self._source.take
        batch = None if self._over else take(self._core.next)
        if batch is None and self._is_short():
            if self._blank is not None:
                self._over = True
                self._count(self._core.state_dict())
                return None
            self._borrow()
        if batch is None:  # an epoch has ended
            batch = take(self._core.next)
        if batch is None:
            raise _core.DataError("the pipeline gives no batch: an epoch of it is empty")
        if self._source.batches is None:
            self._watch(batch)
        self._epoch = batch.epoch
        if batch.step == 0 and batch.micro == 0:
            self._done = 0
        self._count(batch.state)
        return batch

    def _count(self, state: _core.State) -> None:
        """One batch more of the pass. state: where the loader stands after it."""
        self._taken += 1
        self._done += 1
        if self._trail is not None:
            self._trail.append((state, self._done))
        if self._taken == self._length:
            self._complete = True
            self._caller = None
            if self._borrowed:  # the next pass begins where that epoch begins
                self._core.seek(self._epoch, 0)
                self._epoch -= 1
                self._done = self._source.batches or 0

    def _is_short(self) -> bool:
        """Whether the epoch that has ended had fewer batches than planned: batches of only bad
        samples were skipped."""
        batches = self._source.batches
        if not self._source.may_be_fewer or batches is None or self._taken == 0:
            return False
        ends = self._length == batches - self._start_done % batches  # with its epoch
        return ends and not self._borrowed

    def _borrow(self) -> None:
        """Keras gets batches of the next epoch instead: the loss over no rows is NaN, and on the
        TensorFlow backend a step of no rows spoils what layers keep (BatchNormalization)."""
        self._borrowed = True
        warnings.warn(
            f"epoch {self._epoch} ended after fewer than {self._source.batches} batches: batches "
            "whose samples were all bad are passed over (on_error=skip). Keras gets batches of the "
            "next epoch in their place, which are repeated there; on_error=replace keeps epochs "
            "equally long",
            UserWarning,
            stacklevel=4,
        )

    def _watch(self, batch: _core.Batch) -> None:
        """Warns if Keras goes on from epoch to epoch, because it does not know the length of an
        epoch."""
        taken = self._taken + 1
        if taken == 1:
            self._whole = batch.step == 0 and batch.micro == 0
        elif self._ended is None and batch.epoch != self._epoch:
            self._ended = self._epoch, taken - 1
        if self._ended is None or not self._whole or self._bounded or self._warned:
            return
        epoch, length = self._ended
        if taken >= length + _AHEAD:
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
        """The samples of a batch. Rows that only fill it up never reach Keras: it would count them
        in the batch's size, by which it divides and weighs losses, and in unweighted metrics."""
        if batch.valid_rows == 0 and self._needs_rows:
            raise _core.DataError(
                f"epoch {batch.epoch}, step {batch.step}: the batch has no valid rows, with which "
                "the loss of Keras is NaN and layers lose their state; use "
                "batch(on_error='replace') for bad samples, remainder='drop' for a last batch "
                "that leaves a rank without rows, or name x= alone to predict"
            )
        arrays = self._source.values(batch, self._names, self._ragged, batch.valid_rows)
        values = dict(zip(self._names, arrays))
        if self._weighs:
            values["valid"] = values["valid"].astype("float32")
        if self._source.may_be_fewer and not self._needs_rows and self._blank is None:
            none = {name: _no_rows(value) for name, value in values.items()}
            self._blank = tuple(_structure(part, none) for part in self._parts)
        return tuple(_structure(part, values) for part in self._parts)

    @property
    def workers(self) -> int:
        """1: brim's threads make the batches."""
        return 1

    @workers.setter
    def workers(self, value: int) -> None:
        if value > 1:
            raise ValueError(
                f"workers={value}: brim's threads make the batches; their number is "
                "threads= of dataset()"
            )

    @property
    def use_multiprocessing(self) -> bool:
        """False: brim's threads make the batches."""
        return False

    @use_multiprocessing.setter
    def use_multiprocessing(self, value: bool) -> None:
        if value:
            raise ValueError("use_multiprocessing: brim's threads make the batches")

    # ---------------------------------------------------------------------- the rest

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next pass, for fit(initial_epoch=...) in a program that goes on. The
        callback Resume does it by itself."""
        with self._lock:
            self._core.seek(epoch, 0)
            self._end(0)

    def _end(self, done: int) -> None:
        """The loader was moved: the pass is over, and `done` batches of the epoch are done."""
        if not self._complete and self._caller is not None:
            self._left.append(self._caller)
        self._complete = True
        self._caller = None
        self._done = done
        self._cut = None

    # What follows is for the callbacks of _keras_resume, which know fit's epochs and steps.

    def _enter(self, epoch: int, steps: int | None, first: bool) -> None:
        """Goes to where an epoch of fit begins, each with `steps` steps."""
        batches = self._source.batches
        with self._lock:
            if batches is None:  # epochs of fit are counted in batches alone
                if first:
                    self._core.seek(0, 0)
                    self._skip(epoch * (steps or 0))
                    self._end(self._done)
                return
            steps = steps or batches
            passes = -(-batches // steps)  # epochs of fit in one of the pipeline
            if first or passes == 1:
                whole, done = epoch // passes, epoch % passes * steps
                there = self._complete and self._done == batches and self._epoch + 1 == whole
                if first or not there:
                    self._seek(whole, done)
            if self._complete:
                self._plan_pass(steps)

    def _resume(self, position: Position, steps: int | None, before: int) -> None:
        """Goes to a position in an epoch of fit of which `before` steps are done."""
        state, done = position
        with self._lock:
            self._core.load_state_dict(state)
            self._end(done)
            if self._source.batches is None:
                return
            steps = steps or self._source.batches
            if before:
                self._cut = min(steps - before, self._source.batches - done)
            else:
                self._plan_pass(steps)

    def _plan_pass(self, steps: int) -> None:
        """A pass that begins inside an epoch ends with it. But Keras counts on all its batches: it
        finds none left at the begin of an epoch of fit if these divide the pass, which then goes
        on into the next."""
        assert self._source.batches is not None
        done = self._done % self._source.batches
        if done and self._source.batches % steps:
            self._cut = self._source.batches - done

    def _seek(self, epoch: int, done: int) -> None:
        if done and self.plan["steps"] != self._source.batches:  # micro-batches
            self._core.seek(epoch, 0)
            self._skip(done)
        else:
            self._core.seek(epoch, done)
        self._end(done)

    def _skip(self, batches: int) -> None:
        take = self._source.take
        for _ in range(batches):
            if not take(self._core.next) and not take(self._core.next):
                raise _core.DataError("the pipeline gives no batch: an epoch of it is empty")

    @property
    def _shortened(self) -> bool:
        """Whether the pass has fewer batches than Keras counts on."""
        return self._length != self._source.batches

    def _follow(self) -> None:
        """Keeps the position after each batch until it is trained on."""
        self._core.state_dict()  # a stream that cannot be opened again has none, and says so
        with self._lock:
            self._trail = deque()

    def _trained(self, batches: int) -> Position | None:
        """Where the loader would stand if it had given what fit has trained on: `batches` batches
        more. The loader itself is ahead, for backends fetch batches early."""
        position = None
        with self._lock:
            assert self._trail is not None
            for _ in range(min(batches, len(self._trail))):
                position = self._trail.popleft()
        return position


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


def _no_rows(value: Any) -> Any:
    """The value without its rows, in memory of its own."""
    return value[:0].copy() if isinstance(value, numpy.ndarray) else value[:0]


def _structure(part: Names, values: dict[str, Any]) -> Any:
    """The values in the form in which their names were given."""
    if isinstance(part, str):
        return values[part]
    if isinstance(part, Mapping):
        return {key: values[name] for key, name in part.items()}
    return tuple(values[name] for name in part)
