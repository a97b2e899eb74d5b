"""brim._core: the C extension. Programs use what `brim` exports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypedDict, final

from ._plan import Plan

version: str
MAX_RANK: int

class Error(Exception):
    """All that brim raises. What is not known of a failure is None."""

    status: str | None  # "BRIM_STATUS_BUDGET"; None: raised by the package itself
    stage: str | None  # of the pipeline, that failed; and its number, from 0, ...
    stage_index: int | None  # ... those in parentheses counted
    span: tuple[int, int] | None  # its bytes of the pipeline's text
    argument: str | None  # of the stage, that is wrong or missing
    source: str | None  # the file, or "@name"
    sample: int | None  # its number as batches give it
    byte: int | None  # of the file
    wanted: int | None  # bytes of memory that were refused
    minimum: dict[str, int] | None  # as arguments of Runtime: memory, pinned, device_memory
    exact: bool | None  # False: the minimum may be larger
    holders: tuple[tuple[str, int], ...]  # who holds the memory, and how many bytes

class BudgetError(Error, MemoryError): ...
class HeldError(BudgetError): ...
class PipelineError(Error, ValueError): ...
class DataError(Error): ...
class FunctionError(DataError): ...
class StateError(Error, ValueError): ...
class DeviceError(Error, RuntimeError): ...
class IterationError(Error, RuntimeError): ...
class ClosedError(Error, RuntimeError): ...
class HoldWarning(UserWarning): ...
class CacheWarning(UserWarning): ...
class RandomnessWarning(UserWarning): ...
class EmptyBatchWarning(UserWarning): ...

class ArgumentInfo(TypedDict):
    name: str
    type: str  # "integer", "real", "size", "yesno", "choice", "word", "path", "binding", ...
    required: bool
    positional: bool
    list: bool
    default: str | None
    least: float
    most: float
    choices: list[str] | None
    help: str

class StageInfo(TypedDict):
    name: str
    summary: str
    example: str
    room: str  # "source", "order", "transform", "batching", "cache"
    version: int
    arguments: list[ArgumentInfo]

class ValueUse(TypedDict):
    argument: str
    type: str
    value: Any  # int, float, bool, str; None: a pipeline in parentheses
    given: bool  # False: the default, which the text leaves out
    begin: int
    end: int

class StageUse(TypedDict):
    name: str
    room: str
    begin: int
    end: int
    depth: int  # parentheses that it stands in
    parent: int | None  # the stage that these belong to ...
    branch: int  # ... and which of its pipelines
    values: list[ValueUse]

class State(TypedDict):
    format: int
    state: str

def stages() -> list[StageInfo]: ...
def parse(text: str) -> tuple[str, list[StageUse]]:
    """The text as brim prints it, and its stages in their order, those in parentheses after the
    one that has them."""

def add(text: str, stage: str, arguments: Sequence[tuple[str | None, object]]) -> str:
    """The text with one stage more; "" is the empty pipeline. An argument is (key or None, value):
    str, int, float, bool (yes or no), or ("pipeline", text) for one in parentheses."""

def guess(path: str) -> str: ...
def devices(kind: str) -> list[dict[str, Any]]:
    """The devices of a kind; without a driver for it PipelineError."""

def shutdown() -> None: ...
def processes() -> list[dict[str, Any]]:
    """The worker processes that live: pid, function, calls, copied_in and copied_out (bytes of
    values that did not lie in memory that both sides map)."""

def serve(
    socket: int,
    load: Callable[[], object],
    describe: Callable[[BaseException], tuple[bytes, bytes]],
    /,
) -> None:
    """A worker process's whole life: load() gives the function, describe() pickles an exception and
    gives its traceback's text."""

@final
class Array:
    """A field of a batch, in the batch's own memory."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def ndim(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> str: ...  # "cpu", "cuda:0", "opencl:0"
    @property
    def handle(self) -> int: ...  # the address, or a cl_mem
    @property
    def offset(self) -> int: ...  # of the first element in a cl_mem, in bytes
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> Any: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def numpy(self) -> Any: ...
    def to_host(self) -> Any: ...
    def tolist(self) -> Any: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Ragged:
    """A field whose rows differ in length."""

    @property
    def form(self) -> str: ...  # "ragged", "text", "bytes"
    @property
    def values(self) -> Array: ...
    @property
    def offsets(self) -> Array: ...  # in host memory
    @property
    def device(self) -> str: ...
    def to_host(self) -> Ragged: ...
    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> Array | str | bytes: ...
    def tolist(self) -> list[Any]: ...

@final
class Batch(Mapping[str, Array | Ragged]):
    """A batch in a slot that brim lends. It is released when the last view of it dies."""

    def __getitem__(self, name: str, /) -> Any: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    @property
    def ids(self) -> Array: ...  # int64; -1 where a row only fills the batch up
    @property
    def valid(self) -> Array: ...  # bool
    @property
    def names(self) -> list[str | None]: ...
    @property
    def rows(self) -> int: ...
    @property
    def valid_rows(self) -> int: ...
    @property
    def skipped(self) -> int: ...  # bad samples left out of it
    @property
    def epoch(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def micro(self) -> int: ...
    @property
    def micro_count(self) -> int: ...
    @property
    def global_rows(self) -> int: ...
    @property
    def is_copy(self) -> bool: ...
    @property
    def device(self) -> str: ...
    @property
    def ready(self) -> int | None: ...  # a cl_event or CUevent
    @property
    def state(self) -> State: ...
    def copy(self) -> Batch: ...
    def wait(self, queue: object = None, /) -> None: ...
    def release(self) -> None: ...

@final
class Binding:
    """An object of Python's that stands as @name in a pipeline.

    kind "array": `object` has the buffer protocol (bfloat16: give dtype and shape).
    kind "files": `object` is a sequence of str or bytes paths, `labels` of int or None.
    kind "source", "map", "stream", "filter", "flat_map", "batch_map": `object` is the callable
    that function.c describes; `fields` is what it puts out: (name, dtype, shape, form), where form
    is "dense", "ragged", "text" or "bytes" and shape[0] of the last three the bound.
    """

    def __new__(
        cls,
        name: str,
        kind: str,
        object: object,
        *,
        fields: Sequence[tuple[str, str, tuple[int, ...], str]] = (),
        count: int = 0,
        labels: Sequence[int] | None = None,
        dtype: str | None = None,
        shape: tuple[int, ...] | None = None,
        pure: bool = False,
        random: bool = False,
        concurrent: bool = False,
        probed: bool = False,
        reopen: Callable[[int, int], object] | None = None,
        processes: object | None = None,
    ) -> Binding: ...
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...

class LoaderOptions(TypedDict, total=False):
    label: str | None
    rank: int
    world: int
    hold: int
    copies: bool
    threads: int
    slots: int
    fixed: bool
    shared: bool
    progress: Callable[[str, int, int | None, str], object] | None
    device: str | None
    queue: object

@final
class Runtime:
    """One memory budget, and the threads that work inside it."""

    def __new__(
        cls,
        memory: int = 0,
        *,
        threads: int = -1,
        index_dir: str | None = None,
        pinned: int = 0,
        device_memory: int = 0,
        shared: str | None = None,
        shared_memory: int = 0,
        trust_foreign: bool = False,
    ) -> Runtime: ...
    def open(self, text: str, bindings: Sequence[Binding] = (), **options: Any) -> Loader: ...
    def plan(
        self, text: str, bindings: Sequence[Binding] = (), **options: Any
    ) -> dict[str, Any]: ...
    def usage(self) -> dict[str, Any]: ...
    def charge(self, bytes: int, device: str = "cpu", pinned: bool = False, /) -> None: ...
    def uncharge(self, bytes: int, device: str = "cpu", pinned: bool = False, /) -> None: ...
    def trim(self) -> int: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...

@final
class Loader:
    """A running pipeline. `iter(loader)` is the next epoch."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __len__(self) -> int: ...
    def epochs(self, count: int | None = None) -> Iterator[Epoch]: ...
    def set_epoch(self, epoch: int) -> None: ...
    def seek(self, epoch: int, step: int) -> None: ...
    def next(self, timeout: float | None = None) -> Batch | None: ...
    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def interrupt(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Loader: ...
    def __exit__(self, *exception: object) -> None: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def classes(self) -> dict[str, list[str]]: ...
    @property
    def epoch(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def hold(self) -> int: ...
    @property
    def lent(self) -> int: ...
    @property
    def closed(self) -> bool: ...

@final
class Epoch:
    """One pass over the data."""

    number: int
    def __iter__(self) -> Iterator[Batch]: ...
    def __len__(self) -> int: ...
