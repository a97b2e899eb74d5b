"""brim.jax: batches as JAX arrays, on one device or sharded over several.

    for x, y in brim.jax.loader(data, memory="256MiB"):
        state = step(state, x, y)

On a CPU an array is in brim's memory, without a copy, and its slot is released when JAX no longer
needs it, which is after the computations that were dispatched so far. Beyond `hold` batches JAX
gets copies, which the budget counts; if it is used up, the next batch waits until one is released.
Other devices have their own memory.

JAX has 64-bit types only if `jax_enable_x64` is set: otherwise int64 becomes int32, uint64 uint32
and float64 float32, each by a copy. uint8 stays: normalise on the device to move a quarter of the
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax

from . import _core
from ._adapters import Source, need_host
from ._opened import Opened
from ._opening import opening_by, planner
from ._pipeline import Pipeline
from ._runtime import Progress, Runtime
from ._trainers import AHEAD

__all__ = ["JaxLoader", "loader", "plan"]

Sharding: TypeAlias = jax.sharding.Sharding | jax.Device | None

_opening = opening_by(
    need_host, lambda: (jax.process_index(), jax.process_count()), least=AHEAD, who="JAX"
)


def loader(
    data: Pipeline | str,
    *,
    memory: int | str | None = None,
    runtime: Runtime | None = None,
    fields: str | Sequence[str] | None = None,
    as_dict: bool = False,
    sharding: Sharding | Mapping[str, Sharding] = None,
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
) -> JaxLoader:
    """Opens a pipeline as an iterable of batches, each a tuple of JAX arrays.

    memory: the budget of the process's common runtime; see brim.runtime
    runtime: a brim.Runtime to open it in instead
    fields: the fields of a batch, in order; default: all of the pipeline. It may also name "ids"
        (the samples' numbers) and "valid" (which rows are samples; padding rows are then not cut
        off)
    as_dict: batches are dicts by the fields' names instead of tuples
    sharding: the device, or a sharding over several; for all fields, or a dict by field name. With
        several processes each gives its own part of the global array
    hold: batches that JAX may hold at a time before brim copies; at least 3, because it returns
        before it has computed
    shard: "auto": this process's part by jax.process_index() and jax.process_count()
    rank, world: this process's part, given explicitly
    label, threads, slots, fixed, progress: as in Runtime.open
    device: "cpu": batches are in host memory, and JAX moves them from there
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
        return JaxLoader(source, fields, as_dict, sharding)
    except BaseException:
        source.core.close()
        raise


plan = planner(loader, _opening)


class JaxLoader(Opened):
    """A running pipeline whose batches are JAX arrays; brim.jax.loader opens one."""

    _name = "brim.jax.loader"

    def __init__(
        self,
        source: Source,
        fields: str | Sequence[str] | None,
        as_dict: bool,
        sharding: Sharding | Mapping[str, Sharding],
    ) -> None:
        self._source = source
        self._core = source.core
        self._pipeline = source.pipeline
        self._names = source.choose(fields)
        self._as_dict = as_dict
        source.need_dense(self._names, "JAX")
        if not isinstance(sharding, Mapping):
            sharding = dict.fromkeys(self._names, sharding)
        for name in sharding:
            if name not in self._names:
                raise _core.PipelineError(
                    f"sharding: a batch has no field {name!r}; it has {', '.join(self._names)}"
                )
        self._shardings = {name: sharding.get(name) for name in self._names}
        for name, layout in self._shardings.items():
            if isinstance(layout, jax.sharding.Sharding):
                self._check(name, layout)

    def _check(self, name: str, layout: jax.sharding.Sharding) -> None:
        """Refuses now what would fail at the first batch, or at the last."""
        shape = (self._source.rows, *self._source.fields.get(name, {"shape": ()})["shape"][1:])
        if jax.process_count() == 1:  # else the global shape is the other processes' business too
            try:
                layout.shard_shape(shape)
            except ValueError as error:
                raise _core.PipelineError(f"sharding of field {name!r}: {error}") from None
        if not (self._source.all_full or self._source.pads(self._names) or layout.num_devices == 1):
            raise _core.PipelineError(
                f"sharding of field {name!r} over {layout.num_devices} devices needs batches of "
                'equal size: write batch(..., remainder="drop"), or remainder="pad" and name '
                '"valid" among the fields'
            )

    # ------------------------------------------------------------------------ batches

    def __iter__(self) -> Iterator[Any]:
        return JaxIterator(self, iter(self._core))

    def __len__(self) -> int:
        return len(self._core)

    def __bool__(self) -> bool:
        return True

    def epochs(self, count: int | None = None) -> Iterator[JaxEpoch]:
        """This many more epochs, one after the other; by default without end."""
        epochs = self._core.epochs(count)
        return (JaxEpoch(self, epoch) for epoch in epochs)

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iterator begins."""
        self._core.set_epoch(epoch)

    def _convert(self, values: list[Any]) -> Any:
        arrays = [self._put(value, name) for name, value in zip(self._names, values)]
        return dict(zip(self._names, arrays)) if self._as_dict else tuple(arrays)

    def _put(self, value: Any, name: str) -> jax.Array:
        layout = self._shardings[name]
        if isinstance(layout, jax.sharding.Sharding) and jax.process_count() > 1:
            return jax.make_array_from_process_local_data(layout, value)
        return jax.device_put(value, layout)

    # ---------------------------------------------------------------------- the rest

    def state_dict(self) -> _core.State:
        """The position of the loader: after the batches delivered so far."""
        return self._core.state_dict()

    def load_state_dict(self, state: _core.State) -> None:
        """Continues from a state: the next iterator begins there, in the middle of its epoch."""
        self._core.load_state_dict(state)


class JaxIterator:
    """The batches of one epoch. It keeps none of them."""

    def __init__(self, loader: JaxLoader, core: Iterator[_core.Batch]) -> None:
        self._loader = loader
        self._core = core

    def __iter__(self) -> JaxIterator:
        return self

    def __next__(self) -> Any:
        source = self._loader._source
        batch = source.take(self._core.__next__)
        return self._loader._convert(source.values(batch, self._loader._names))


class JaxEpoch:
    """One pass over the data."""

    def __init__(self, loader: JaxLoader, core: _core.Epoch) -> None:
        self.number = core.number
        self._core = core
        self._iterator = JaxIterator(loader, iter(core))

    def __iter__(self) -> JaxIterator:
        return self._iterator

    def __len__(self) -> int:
        return len(self._core)

    def __repr__(self) -> str:
        return f"<epoch {self.number}>"
