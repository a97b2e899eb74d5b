"""Gives accelerate the information that it takes from a prepared DataLoader.

accelerate's GradientState asks the loader that is being read whether the batch in hand is the last
of its epoch (gradients are then applied, however few batches were accumulated) and how many of its
rows are samples (gather_for_metrics drops the others). `Accelerator.prepare` wraps a DataLoader to
answer that and to divide it among processes, and returns any other object unchanged. A loader of
brim divides and answers itself:

- `Pass`, a base of the iterator, enters the loader in GradientState with its first batch and
  removes it at the end of the epoch or of the loop;
- `Prepared`, the loader's side, has the attributes that accelerate reads;
- `Steps` is the batch sampler for skip_first_batches.

The plan gives the number of the last batch. If it does not (streams, filters, on_error=skip, an
epoch that was resumed with other batches), the next batch is taken to see whether there is one,
when accelerate asks. The loop then holds two batches: the one in hand and the next.

accelerate is never imported here. Without an Accelerator in the process nothing is noted.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _core
from ._opening import may_be_fewer

if TYPE_CHECKING:  # a class that has a field `_core` cannot name the module
    from ._core import Batch, Loader, State
    from ._pipeline import Pipeline


def _living(name: str) -> Any:
    """accelerate's state of that name; None unless the program has made it."""
    kind = getattr(sys.modules.get("accelerate.state"), name, None)
    return kind() if kind is not None and kind._shared_state else None


def _process() -> tuple[int, int]:
    """This process's number and their count, by accelerate."""
    state = _living("PartialState")
    return (0, 1) if state is None else (state.process_index, state.num_processes)


class Pass:
    """Which batch of an epoch was delivered last. The iterator that inherits it takes the batches
    itself, `_ahead` before others, and calls `_note` with each and `_ended` at the end."""

    _loader: Prepared
    _core: Iterator[Batch]

    def __init__(self, loader: Prepared, core: Iterator[Batch]) -> None:
        self._loader = loader
        self._core = core
        self._delivered = 0
        self._ahead: Batch | None = None  # taken to see whether there is one
        self._over = False  # there is none after the one delivered last
        self._last: bool | None = None  # whether that is the last one; None: the plan cannot tell
        self._rows = -1  # samples in it, over all processes; -1: not known
        loader._pass = weakref.ref(self)

    def _note(self, batch: Batch) -> None:
        """A batch is about to be delivered."""
        if self._delivered == 0:
            self._loader._enter()
        self._delivered += 1
        self._ahead = None
        self._last = self._loader._is_last(batch)
        self._rows = self._loader._samples_of(batch)
        self._loader._stand = self._loader._undo = None

    def _ended(self) -> None:
        self._loader._warn_of_fewer()
        self._last = True
        self._loader._stand = self._loader._undo = None
        self._loader._leave(self)

    @property
    def end(self) -> bool:
        """Whether the batch delivered last is the last one."""
        if self._last is None and self._delivered > 0 and self._ahead is None and not self._over:
            with contextlib.suppress(_core.Error):  # comes again when the batch is asked for
                self._ahead = next(self._core, None)
                self._over = self._ahead is None
                self._loader._looked(self._delivered)
        return self._over if self._last is None else self._last

    @property
    def remainder(self) -> int:
        return self._rows if self.end else -1

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be ending
            self._loader._leave(self)


class Prepared:
    """A loader that accelerate need not prepare. The class that inherits it has the fields below,
    iterates by a `Pass`, and calls `_prepare` when it is made and `_put_back` before it begins an
    epoch."""

    _core: Loader
    _pipeline: Pipeline
    _states: deque[State]  # after each batch delivered; before them, where the first began
    batch_size: int
    _is_accelerate_prepared = True  # prepare_data_loader gives it back, and checkpoints it
    use_stateful_dataloader = True  # by its state_dict
    # What skip_first_batches hands on to the DataLoader that it makes of `batch_sampler`.
    sampler = None
    prefetch_factor = None

    def _prepare(self, rank: int, world: int, padded: bool) -> None:
        """padded: padding rows are left in a batch."""
        plan = self._core.plan
        self._part = rank, world
        self._padded = padded
        self._plan_batches: int | None = plan["batches"]
        self._plan_steps: int | None = plan["steps"]
        self._may_be_fewer = may_be_fewer(self._pipeline, world)
        self._cut_epoch = -1  # the epoch that was resumed, perhaps with other batches
        self._pass: weakref.ref[Pass] | None = None  # the newest
        # After a look ahead: where the batches delivered end, and where the epoch began if that
        # was one batch.
        self._stand: State | None = None
        self._undo: State | None = None
        self._warned: set[str] = set()

    @staticmethod
    def collate_fn(batch: Any) -> Any:
        return batch

    @property
    def batch_sampler(self) -> Steps:
        return Steps(self)

    @property
    def drop_last(self) -> bool:
        """There is none, so that accelerate's function prepare_data_loader, which would divide the
        batches once more, is refused: it asks for this, and skip_first_batches does not."""
        raise AttributeError(
            "a brim loader has no drop_last and cannot be wrapped or divided by "
            "prepare_data_loader: Accelerator.prepare gives it back as it is; its part of the data "
            "is that of shard='auto', or of rank= and world=, and batch(..., remainder='drop') "
            "drops what is too little for a last batch"
        )

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the batch delivered last is the last of its epoch; for accelerate."""
        newest = self._newest()
        return newest is not None and newest.end

    @property
    def remainder(self) -> int:
        """How many samples the last batch of the epoch has, over all processes, where they do not
        fill it; 0 where they do, -1 before it or if that is not known. For accelerate."""
        newest = self._newest()
        return -1 if newest is None else newest.remainder

    def _newest(self) -> Pass | None:
        return None if self._pass is None else self._pass()

    # ---------------------------------------------------------------- told by a Pass

    def _enter(self) -> None:
        """A pass is about to deliver its first batch."""
        state = _living("GradientState")
        if state is None:
            return
        state._remove_dataloader(self)
        state._add_dataloader(self)
        count = _process()[1]
        if count > 1 and self._part[1] == 1:
            self._warn(
                "undivided",
                f"accelerate runs {count} processes, and this loader was opened for one: each of "
                "them gets every sample, for Accelerator.prepare leaves a brim loader as it "
                "is; open it with shard='auto'"
            )

    def _leave(self, left: Pass) -> None:
        """A pass has come to its end, or is no longer used."""
        if self._newest() in (left, None):
            self._forget()

    def _forget(self) -> None:
        state = _living("GradientState")
        if state is not None:
            state._remove_dataloader(self)

    def _is_last(self, batch: Batch) -> bool | None:
        if self._plan_steps is None or self._may_be_fewer or batch.epoch == self._cut_epoch:
            return None
        return batch.step + 1 == self._plan_steps and batch.micro + 1 == batch.micro_count

    def _samples_of(self, batch: Batch) -> int:
        """Samples of the batches that all processes have now, modulo what fits, as accelerate
        counts them; -1: not known."""
        number, count = _process()
        if count == 1:
            return batch.valid_rows % self.batch_size
        if self._part != (number, count) or batch.micro_count > 1:
            return -1
        rows = batch.rows if self._padded else batch.valid_rows
        if rows * count != batch.global_rows and not (self._padded and rows == self.batch_size):
            self._warn(
                "uneven",
                f"a batch of {batch.global_rows} samples has {rows} rows at rank {number} of "
                f"{count} and another number at others: accelerate's gather and gather_for_metrics "
                "need equally many at each, and a mean over no rows is not a number; use "
                "batch(..., remainder='drop'), or remainder='pad' with 'valid' among the fields"
            )
        return batch.global_rows % (self.batch_size * count)

    def _warn_of_fewer(self) -> None:
        """An epoch has ended: it may have had fewer batches than len() says."""
        stats = self._core.stats()
        passed = stats["empty"] > 0 and not stats["warning"]  # of one delivered it says something
        if self._may_be_fewer and self._plan_batches and passed:
            self._warn(
                "fewer",
                f"an epoch had fewer batches than the {self._plan_batches} of len(): those of bad "
                "samples alone are passed over (on_error=skip); a trainer that counts on len(), "
                "such as Lightning's or that of transformers, misses the end of the epoch then: "
                "use batch(..., on_error='replace')"
            )

    def _warn(self, kind: str, text: str) -> None:
        """Once for each kind."""
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(text, UserWarning, stacklevel=5)

    # ------------------------------------------------------------------------ places

    def _looked(self, delivered: int) -> None:
        """The core stands one batch, or the end, further than what was delivered."""
        if self._states:
            self._stand = self._states[-1]
            self._undo = self._states[-2] if delivered == 1 else None

    def _put_back(self) -> None:
        """An epoch of which one batch was delivered begins again, though two were taken."""
        if self._undo is not None:
            self._core.load_state_dict(self._undo)
        self._stand = self._undo = None

    def _skip(self, count: int) -> Iterator[Batch]:
        """The next epoch without its first batches."""
        batches = iter(self._core)  # from here on `epoch` is the one that begins
        if self._plan_steps and self._plan_batches:
            each = -(-self._plan_batches // self._plan_steps)  # micro-batches of a step
            step = min(count // each, self._plan_steps - 1)
            self._core.seek(self._core.epoch, step)
            batches = iter(self._core)
            count -= step * each
        for _ in itertools.islice(batches, count):
            pass
        return batches

    def _skipped(self, count: int) -> Iterator[Any]:
        raise NotImplementedError


class Steps:
    """In a batch sampler's place. skip_first_batches makes a DataLoader of it that leaves out its
    first items; what an item stands for is read when the DataLoader asks `dataset` for it, so that
    leaving out is a seek."""

    even_batches = True  # join_uneven_inputs sets it; all ranks have equally many batches anyway

    def __init__(self, loader: Prepared) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[list[Step]]:
        opened: list[Iterator[Any]] = []
        for number in itertools.count():  # the DataLoader ends when a Step raises StopIteration
            yield [Step(self._loader, opened, number)]

    def __len__(self) -> int:
        return len(self._loader._core)

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)  # type: ignore[attr-defined]


class Step:
    """A batch that is yet to be read; `opened` has the iterator once the first was."""

    def __init__(self, loader: Prepared, opened: list[Iterator[Any]], number: int) -> None:
        self._loader = loader
        self._opened = opened
        self._number = number

    def read(self) -> Any:
        if not self._opened:
            self._opened.append(self._loader._skipped(self._number))
        return next(self._opened[0])
