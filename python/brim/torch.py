"""brim.torch: batches as PyTorch tensors, as a replacement for DataLoader.

    for x, y in brim.torch.loader(data, memory="256MiB"):
        loss = criterion(model(x), y)

A tensor is made from a field through DLPack and is in the memory of the batch: nothing is copied,
and the slot is released when the last tensor in it dies. Two small things are copied, so that a
program may collect them over a whole epoch without holding slots: fields of one number for each
sample (labels), and the rows' "ids" and "valid".

A program that holds more batches than `hold` gets copies as long as the budget has room for them,
and one warning; then the error names the batches that it holds. A trainer that looks ahead
(Lightning, the Trainer of transformers) is refused before an epoch begins, with the `hold` that it
needs. All loaders of the process use one runtime unless `runtime=` names another.

Padding rows (`remainder="pad"`) are cut off, so that counts and means are right; at the end a rank
may then get a batch of fewer rows than the others, or of none. With the field "valid", which marks
them, they are not cut off: then every batch has the same shape.

With device="cuda" tensors are in device slots, to which brim uploads ahead of time. A tensor
belongs to the stream that was current when its batch was requested: work in that stream sees it
complete, and its memory is filled again only after the work that is in the stream when the tensor
dies. If you use a tensor in another stream, make the first stream wait for that stream before you
drop the tensor: `torch.cuda.current_stream().wait_stream(other)`.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from . import _core
from ._accelerate import Pass, Prepared, Step
from ._opened import Opened
from ._opening import need_hold, opening_by, planner
from ._pipeline import Pipeline
from ._runtime import Progress, Runtime
from ._shard import Part
from ._trainers import needed

__all__ = ["TorchLoader", "loader", "plan"]

_REMEMBERED = 64  # batches by which state_dict() can go back
_OF_ROWS = ("ids", "valid", "names")  # what `fields` may name beside the pipeline's own
_INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
# torch has these types, and next to no operation on them.
_WIDER = {"uint16": torch.int32, "uint32": torch.int64, "uint64": torch.int64}


def loader(
    data: Pipeline | str,
    *,
    memory: int | str | None = None,
    runtime: Runtime | None = None,
    fields: str | Sequence[str] | None = None,
    as_dict: bool = False,
    channels_last: bool = False,
    integers: str | torch.dtype | None = "int64",
    hold: int = 2,
    shard: str | None = None,
    rank: int | None = None,
    world: int | None = None,
    device: str | torch.device | None = None,
    label: str | None = None,
    threads: int | None = None,
    slots: int = 0,
    fixed: bool = False,
    progress: Progress | None = None,
) -> TorchLoader:
    """Opens a pipeline as an iterable of batches, each a tuple of tensors.

    memory: the budget of the process's common runtime; see brim.runtime
    runtime: a brim.Runtime to open it in instead
    fields: the fields of a batch, in order; default: all of the pipeline. It may also name "ids"
        (the samples' numbers), "valid" (which rows are samples; padding rows are then not cut off)
        and "names" (the samples' names)
    as_dict: batches are dicts by the fields' names instead of tuples
    channels_last: images that the pipeline leaves as height, width, channels are given as
        (N, C, H, W) in torch's channels_last memory format, without a copy
    integers: the type of fields of one integer for each sample, for losses; None: the type in the
        pipeline. uint16 becomes int32, and uint32 and uint64 become int64, in any case
    hold: batches that the program has when it gets the next one, that one included: 2 for a `for`
        loop. As many slots are reserved, and at least 2; beyond them brim copies
    shard: "auto": this process's part by torch.distributed, or by RANK and WORLD_SIZE of torchrun
    rank, world: this process's part, given explicitly
    device: where tensors are: "cpu" (the default), "cuda" (the current device), "cuda:1" or a
        torch.device
    label, threads, slots, fixed, progress: as in Runtime.open

    Fields of unequal rows are nested tensors (layout jagged), text is a list of str.
    """
    opening = _opening(
        data,
        memory=memory,
        runtime=runtime,
        hold=hold,
        shard=shard,
        rank=rank,
        world=world,
        device=device,
        label=label,
        threads=threads,
        slots=slots,
        fixed=fixed,
        progress=progress,
    )
    core = opening.open()
    try:
        return TorchLoader(
            core,
            opening.pipeline,
            fields,
            as_dict,
            channels_last,
            integers,
            _place(device),
            opening.part,
        )
    except BaseException:
        core.close()
        raise


_opening = opening_by(lambda device: str(_place(device)), lambda: _known())
plan = planner(loader, _opening)


def _place(device: str | torch.device | None) -> torch.device:
    """The device, with its number."""
    if device is None:
        return torch.device("cpu")
    try:
        place = torch.device(device)
    except RuntimeError:  # torch knows none of that name
        place = None
    if place is not None and place.type == "cpu":
        return torch.device("cpu")
    if place is None or place.type != "cuda":
        advice = "for OpenCL use rt.open(device='opencl')"
        if place is not None and place.type != "opencl":
            advice = f"leave device out and move tensors with x.to({str(device)!r})"
        raise _core.PipelineError(
            f"device={str(device)!r}: brim.torch delivers to 'cpu' and 'cuda'; {advice}"
        )
    if not torch.cuda.is_available():
        _core.devices("cuda")  # where there is no driver, this says what was looked for
        raise _core.PipelineError(
            f"device={str(device)!r}: torch.cuda.is_available() is False; leave device out, or "
            "install a torch that is built with CUDA"
        )
    index = torch.cuda.current_device() if place.index is None else place.index
    return torch.device("cuda", index)


def _known() -> Part | None:
    """This process's part by torch.distributed."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return None


def _integers(wanted: str | torch.dtype) -> torch.dtype:
    """torch.int64, from that or "int64"."""
    name = str(wanted).removeprefix("torch.")
    dtype = getattr(torch, name) if name in _INTEGERS else None
    if not isinstance(dtype, torch.dtype) or (not isinstance(wanted, str) and wanted != dtype):
        raise ValueError(
            f"integers={wanted!r}: it must be an integer type, such as 'int64' or 'int32', or None"
        )
    return dtype


class Dataset:
    """What trainers ask a loader's dataset for: its length, in samples over all ranks."""

    def __init__(self, samples: int | None) -> None:
        self._samples = samples

    def __len__(self) -> int:
        if self._samples is None:
            raise TypeError("how many samples there are is not known before the end of an epoch")
        return self._samples

    def __getitems__(self, steps: list[Step]) -> Any:
        """A batch, for the DataLoader that accelerate's skip_first_batches makes."""
        return steps[0].read()


class TorchLoader(Prepared, Opened):
    """A running pipeline that replaces a DataLoader; brim.torch.loader opens one."""

    _name = "brim.torch.loader"

    def __init__(
        self,
        core: _core.Loader,
        pipeline: Pipeline,
        fields: str | Sequence[str] | None,
        as_dict: bool,
        channels_last: bool,
        integers: str | torch.dtype | None,
        device: torch.device,
        part: Part,
    ) -> None:
        plan = core.plan
        self.device = device
        self.dataset = Dataset(plan["samples"])
        self.batch_size: int = plan["batch_rows"]  # of this rank
        self._core = core
        self._pipeline = pipeline
        self._own = {field["name"]: field for field in plan["fields"]}
        self._fields = self._choose(fields)
        self._pads = "valid" in self._fields and "valid" not in self._own
        self._as_dict = as_dict
        self._integers = None if integers is None else _integers(integers)
        self._images = {name for name in self._fields if channels_last and self._is_image(name)}
        if channels_last and not self._images:
            shapes = ", ".join(f"{name} {self._own[name]['shape']}" for name in self._own)
            raise _core.PipelineError(
                "channels_last=True, but no field is (rows, height, width, 1 to 4 channels): there "
                f"are {shapes}; leave it out, or take 'layout' out of the pipeline"
            )
        # Where the loader would stand after each of the last batches; first, where it began.
        self._states: deque[_core.State] = deque(maxlen=_REMEMBERED + 1)
        self._ended = False  # the newest iterator has come to the end of its epoch
        self._prepare(*part, self._pads)

    def _choose(self, fields: str | Sequence[str] | None) -> tuple[str, ...]:
        if fields is None:
            return tuple(self._own)
        chosen = (fields,) if isinstance(fields, str) else tuple(fields)
        for name in chosen:
            if name not in self._own and name not in _OF_ROWS:
                raise _core.PipelineError(
                    f"fields: the pipeline gives no {name!r}; it gives {', '.join(self._own)}, and "
                    f"there are {', '.join(_OF_ROWS)}"
                )
        return chosen

    def _is_image(self, name: str) -> bool:
        field = self._own.get(name)
        return (
            field is not None
            and field["form"] == "dense"
            and len(field["shape"]) == 4
            and 1 <= field["shape"][-1] <= 4
        )

    # ------------------------------------------------------------------------ batches

    def __iter__(self) -> Iterator[Any]:
        self._need_hold()
        self._put_back()
        return TorchIterator(self, iter(self._core))

    def _need_hold(self) -> None:
        """Refuses a trainer that has more batches than `hold`, before the epoch begins."""
        least, who = needed(self._plan_batches is not None)
        need_hold(self._core.hold, least, who)

    def _skipped(self, count: int) -> TorchIterator:
        self._need_hold()
        self._put_back()
        return TorchIterator(self, self._skip(count))

    def __len__(self) -> int:
        return len(self._core)

    def __bool__(self) -> bool:
        return True

    def epochs(self, count: int | None = None) -> Iterator[TorchEpoch]:
        """This many more epochs, one after the other; by default without end."""
        self._put_back()
        epochs = self._core.epochs(count)
        return (TorchEpoch(self, epoch) for epoch in epochs)

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iterator begins. After load_state_dict() in the middle of an
        epoch, that epoch's number leaves the place in it as it is."""
        if epoch != self._core.epoch:
            self._ended = False
        self._stand = self._undo = None
        self._core.set_epoch(epoch)

    def _began(self) -> None:
        """An iterator was made. At the end of an epoch the last state is where the next begins."""
        if not self._ended:
            self._states.clear()
            with contextlib.suppress(_core.Error):  # a stream that cannot be opened again
                self._states.append(self._core.state_dict())
        self._ended = False

    def _convert(self, batch: _core.Batch) -> Any:
        if self._states:
            self._states.append(batch.state)
        rows = batch.rows if self._pads else batch.valid_rows
        cut = rows < batch.rows
        values = [self._field(batch, name, rows, cut) for name in self._fields]
        return dict(zip(self._fields, values)) if self._as_dict else tuple(values)

    def _field(self, batch: _core.Batch, name: str, rows: int, cut: bool) -> Any:
        """The first rows of a field; cut: there are more."""
        if name in self._own:
            field = batch[name]
            if isinstance(field, _core.Ragged):
                return _ragged(field, rows, self.device)
            tensor = self._dense(field)
            if name in self._images:
                tensor = tensor.permute(0, 3, 1, 2)
        elif name == "names":
            return batch.names[:rows]
        else:
            tensor = torch.from_dlpack(batch.ids if name == "ids" else batch.valid)
            tensor = tensor.to(self.device, copy=True)
        return tensor[:rows] if cut else tensor

    def _dense(self, array: _core.Array) -> torch.Tensor:
        tensor = torch.from_dlpack(array)
        wanted = _WIDER.get(array.dtype)
        if array.ndim == 1 and self._integers is not None and array.dtype in _INTEGERS:
            wanted = self._integers
        if wanted is not None and wanted != tensor.dtype:
            return tensor.to(wanted)
        return tensor.clone() if array.ndim == 1 else tensor

    # ------------------------------------------------------------------------- states

    def state_dict(self, behind: int = 0) -> _core.State:
        """The position of the loader: after the batches delivered so far. Load it into a loader of
        the same data to go on from there, also with other batches or another number of ranks.

        behind: as if this many fewer batches had been delivered, for a trainer that has taken
            batches and not trained on them yet; at most 64
        """
        if behind < 0:
            raise ValueError(f"behind={behind}: a number of batches is not negative")
        if behind == 0:
            return self._stand or self._core.state_dict()
        if behind >= len(self._states):
            raise _core.StateError(
                f"behind={behind}, but {max(len(self._states) - 1, 0)} batches are remembered: the "
                f"last {_REMEMBERED} since the loader was opened or moved"
            )
        return self._states[-1 - behind]

    def load_state_dict(self, state: _core.State) -> None:
        """Continues from a state: the next iterator begins there, in the middle of its epoch."""
        self._core.load_state_dict(state)
        self._stand = self._undo = None
        self._cut_epoch = self._core.epoch
        self._ended = False

    def close(self) -> None:
        """Closes the loader. Batches that are still held stay valid."""
        self._forget()
        super().close()


def _ragged(field: _core.Ragged, rows: int, device: torch.device) -> Any:
    """Rows that differ in length: a list of str or bytes, or a nested tensor."""
    if field.form != "ragged":
        texts = field.to_host()
        return [texts[row] for row in range(rows)]
    offsets = torch.from_dlpack(field.offsets)[: rows + 1]
    values = torch.from_dlpack(field.values)[: int(offsets[rows])]
    values = values.to(_WIDER.get(field.values.dtype, values.dtype))
    return torch.nested.nested_tensor_from_jagged(values, offsets.to(device, copy=True))


class TorchIterator(Pass):
    """The batches of one epoch. It keeps none of them, and goes on after a BudgetError."""

    _loader: TorchLoader

    def __init__(self, loader: TorchLoader, core: Iterator[_core.Batch]) -> None:
        super().__init__(loader, core)
        loader._began()

    def __iter__(self) -> TorchIterator:
        return self

    def __next__(self) -> Any:
        batch = self._ahead
        if batch is None:
            try:
                batch = next(self._core)
            except StopIteration:
                self._loader._ended = True
                self._ended()
                raise
        self._note(batch)
        return self._loader._convert(batch)


class TorchEpoch:
    """One pass over the data."""

    def __init__(self, loader: TorchLoader, core: _core.Epoch) -> None:
        self.number = core.number
        self._core = core
        self._iterator = TorchIterator(loader, iter(core))

    def __iter__(self) -> TorchIterator:
        return self._iterator

    def __len__(self) -> int:
        return len(self._core)

    def __repr__(self) -> str:
        return f"<epoch {self.number}>"
