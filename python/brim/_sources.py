"""Python objects as sources: arrays, lists of files, datasets and streams.

Each function returns a Pipeline of one source. Its text names the objects as @name; the Pipeline
keeps them, and so do loaders until their last batch is gone.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import getitem, index
from typing import TYPE_CHECKING, Any, Literal

from . import _core
from ._functions import (
    Out,
    SeedGlobals,
    read_out,
    read_processes,
    read_seed_globals,
    seeding,
    seeds_here,
    spawner,
    warn_of_draws,
)
from ._randomness import draws, sources_of, warn

if TYPE_CHECKING:
    from ._calls import Spec
    from ._pipeline import Pipeline
    from ._runtime import Runtime

Paths = Sequence[str | bytes | os.PathLike[Any]]


def _source(stage: str, arguments: Sequence[tuple[str | None, object]], bound: Any) -> Pipeline:
    from ._pipeline import Pipeline

    return Pipeline._source(stage, arguments, bound)


# ------------------------------------------------------------------------- arrays


def _buffer(value: Any) -> tuple[Any, str | None]:
    """An object with the buffer protocol in the same memory, and its dtype if the protocol has
    no word for it."""
    module = type(value).__module__.split(".")[0]
    if module == "torch":
        if value.device.type != "cpu":
            raise TypeError(f"array() takes tensors on the CPU, not on {value.device}")
        value = value.detach()
        if str(value.dtype) == "torch.bfloat16":
            import torch

            return value.view(torch.int16).numpy(), "bfloat16"
        return value.numpy(), None
    try:
        memoryview(value)
    except (TypeError, ValueError, BufferError):
        pass
    else:
        return value, None
    import numpy

    if not isinstance(value, numpy.ndarray):
        if hasattr(value, "__array_interface__"):
            value = numpy.asarray(value)
        elif hasattr(value, "__dlpack__"):
            value = numpy.from_dlpack(value)
        else:
            raise TypeError(
                f"array() takes numpy arrays, tensors and whatever has the buffer protocol, "
                f"__array_interface__ or __dlpack__, not {type(value).__name__}; give "
                "numpy.asarray(...) of it"
            )
    if value.dtype.name == "bfloat16":
        return value.view("int16"), "bfloat16"
    return value, None


# path, offset, shape, dtype, order
Mapped = tuple[str, int, tuple[int, ...], Any, Literal["C", "F"]]


def _mapped(value: Any) -> Mapped | None:
    """The file and the part of it that a numpy.memmap shows; None if it is not one, or has no
    file."""
    if type(value).__module__.split(".")[0] != "numpy" or type(value).__name__ != "memmap":
        return None
    pages, path = value._mmap, value.filename
    if pages is None or path is None or value.mode == "c" or value.size == 0:
        return None
    if not value.flags.forc:
        return None
    order: Literal["C", "F"] = "C" if value.flags.c_contiguous else "F"
    import numpy

    # `offset` is that of the memmap of which this may be a part, whose pages begin at a whole one.
    begin = value.offset - value.offset % mmap.ALLOCATIONGRANULARITY
    first = numpy.frombuffer(pages, "uint8").__array_interface__["data"][0]
    offset = begin + value.__array_interface__["data"][0] - first
    return os.path.abspath(path), offset, value.shape, value.dtype, order


def _map_again(mapped: Mapped, name: str) -> BoundArray:
    import numpy

    path, offset, shape, dtype, order = mapped
    return BoundArray(numpy.memmap(path, dtype, "r", offset, shape, order), name)


class BoundArray:
    """An array: `array @name`. A memmap is pickled as the path of its file and the offset."""

    def __init__(self, value: Any, name: str) -> None:
        self.value = value
        self.name = name
        self._buffer, self._dtype = _buffer(value)
        _core.Binding(name, "array", self._buffer, dtype=self._dtype)  # checks it

    def bind(self, name: str, runtime: Runtime) -> _core.Binding:
        return _core.Binding(name, "array", self._buffer, dtype=self._dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundArray):
            return NotImplemented
        if self.value is other.value:
            return True
        mapped = _mapped(self.value)
        if mapped is not None and mapped == _mapped(other.value):
            return True
        import numpy

        mine, its = numpy.asarray(self._buffer), numpy.asarray(other._buffer)
        if (self._dtype, mine.dtype, mine.shape) != (other._dtype, its.dtype, its.shape):
            return False
        rows = max(1, (1 << 20) // max(1, mine[:1].nbytes))  # by pieces: it may be a memmap
        return all(
            mine[at : at + rows].tobytes() == its[at : at + rows].tobytes()
            for at in range(0, len(mine), rows)
        )

    def __hash__(self) -> int:
        return hash((self._dtype, memoryview(self._buffer).shape))

    def __reduce__(self) -> tuple[Any, ...]:
        mapped = _mapped(self.value)
        if mapped is not None:
            return _map_again, (mapped, self.name)
        return BoundArray, (self.value, self.name)


def array(x: Any, name: str = "x", *, version: object = None) -> Pipeline:
    """Samples from an array in memory, without a copy: x[0], x[1], ...

    x: a numpy array or memmap, a torch tensor on the CPU, or any object with the buffer protocol,
        __array_interface__ or DLPack; of any strides, and of the machine's byte order. It must not
        change while it is used.
    name: the field's name
    version: changes when the values do, such as a hash of them; a cache file needs one, because it
        outlives the array
    """
    bound = BoundArray(x, name)
    return _source(
        "array", [("name", name), ("version", None if version is None else str(version))], bound
    )


def arrays(*positional: Any, version: object = None, **fields: Any) -> Pipeline:
    """Samples from several arrays of equal length: arrays(image=x, label=y).

    One or two without names are x, or x and y. version is that of all of them, as of array().
    """
    if hasattr(version, "__len__") and not isinstance(version, (str, bytes)):
        raise TypeError(
            "arrays(): version= is a str or a number, the version of all arrays; a field of that "
            'name goes in as brim.zip(brim.array(x, "version"), ...)'
        )
    if len(positional) > 2:
        raise TypeError(f"arrays() got {len(positional)} arrays without names; give name=array")
    named = dict(zip(("x", "y"), positional))
    for name in named.keys() & fields.keys():
        raise TypeError(f"arrays() got two arrays '{name}'")
    named.update(fields)
    if not named:
        raise TypeError("arrays() needs at least one array: arrays(image=x, label=y)")
    parts = [array(value, name, version=version) for name, value in named.items()]
    if len(parts) == 1:
        return parts[0]
    return _source("zip", [(None, part) for part in parts], None)


# -------------------------------------------------------------------------- files


def _label(label: Any) -> int:
    if not hasattr(label, "__index__"):
        raise TypeError(
            f"files(): labels are ints, not {label!r}; number the names: names = "
            "sorted(set(labels)), then labels=[names.index(label) for label in labels]"
        )
    return index(label)


class BoundFiles:
    """Paths, and perhaps a label for each: `files list=@name`."""

    name = "paths"

    def __init__(self, paths: Paths, labels: Sequence[int] | None) -> None:
        self.paths = tuple(os.fspath(path) for path in paths)
        self.labels = None if labels is None else tuple(map(_label, labels))
        _core.Binding(self.name, "files", self.paths, labels=self.labels)  # checks them

    def bind(self, name: str, runtime: Runtime) -> _core.Binding:
        return _core.Binding(name, "files", self.paths, labels=self.labels)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundFiles):
            return NotImplemented
        return (self.paths, self.labels) == (other.paths, other.labels)

    def __hash__(self) -> int:
        return hash((self.paths, self.labels))


def files(
    paths: str | os.PathLike[str] | Paths,
    labels: Sequence[int] | None = None,
    **options: Any,
) -> Pipeline:
    """Samples from files: from a list of paths, with or without labels, or from a manifest.

    paths: a list of paths; or the path of a manifest, a CSV, TSV or JSON lines file that lists them
    labels: a number for each path of a list
    options: those of the stage: for a list root, field, label and probe; for a manifest format,
        path, root, columns, types, header, probe and index
    """
    given = [
        (key, os.fspath(value) if isinstance(value, os.PathLike) else value)
        for key, value in options.items()
    ]
    several = [
        (key, item)
        for key, value in given
        for item in (value if isinstance(value, (list, tuple)) else [value])
    ]
    if isinstance(paths, (str, os.PathLike)):
        if labels is not None:
            raise TypeError("files() takes labels for a list of paths; a manifest has its own")
        return _source("files", [(None, os.fspath(paths)), *several], None)
    return _source("files", several, BoundFiles(paths, labels))


# ----------------------------------------------------------------------- datasets


def named(element: Any) -> Mapping[str, Any]:
    """The fields of an element: a dict's own; x and y of a pair; a named tuple's names; 0, 1, 2,
    ... of longer tuples; x of anything else."""
    if isinstance(element, Mapping):
        return element
    if isinstance(element, tuple):
        if hasattr(element, "_fields"):
            return dict(zip(element._fields, element))
        names = ("x", "y") if len(element) <= 2 else map(str, range(len(element)))
        return dict(zip(names, element))
    return {"x": element}


def _probing(whose: str, what: str, error: Exception) -> _core.FunctionError:
    return _core.FunctionError(
        f"{whose}: {type(error).__name__}: {error} ({what}, taken to find out the fields; out= "
        "declares them)"
    )


class BoundDataset:
    """An object with len() and []: `callback @name`."""

    def __init__(
        self,
        value: Any,
        batched: bool,
        out: Out | None,
        seed_globals: SeedGlobals,
        processes: int,
        process_memory: int | str | None,
        timeout: float | None,
        concurrent: bool,
        version: str | None,
    ) -> None:
        name = type(value).__name__
        self.name = name.lower() if name.isidentifier() and name.isascii() else "dataset"
        self.value = value
        self.batched = batched
        self.out = out
        self.seed_globals = read_seed_globals(f"dataset @{self.name}", seed_globals)
        self.warned = False
        self.processes, self.process_memory, self.timeout = read_processes(
            f"dataset @{self.name}", processes, process_memory, timeout
        )
        self.concurrent = concurrent or self.processes > 0
        self.version = version
        self.specs = None if out is None else read_out(out, f"dataset @{self.name}")
        self.probed = False
        self.drew: str | None = None

    def _probe(self) -> tuple[Spec, ...]:
        from . import _calls, _seeding

        if len(self.value) == 0:
            raise _core.PipelineError(f"dataset @{self.name}: it has no element")
        try:
            with _seeding.trial(seeds_here(self.seed_globals, self.processes)) as trial:
                element = named(self.value[0])
            self.drew = trial.drew
        except Exception as error:
            raise _probing(f"dataset @{self.name}", "element 0", error) from error
        try:
            specs = _calls.specs_of(element, ragged=self.batched)
        except TypeError as error:
            raise TypeError(f"dataset @{self.name}, element 0: {error}") from None
        for name, _, shape, form in specs:
            if self.batched and (form != "ragged" or not shape):
                raise TypeError(
                    f"dataset @{self.name}, batch 0: field '{name}' has no rows, but batched=True "
                    "says that every element is a batch"
                )
        return specs

    def bind(self, name: str, runtime: Runtime) -> _core.Binding:
        from . import _calls

        if self.specs is None:
            self.specs = self._probe()
            self.probed = True
        if not self.warned:
            self.warned = True
            warn_of_draws(
                f"dataset @{self.name}",
                self.value,
                self.seed_globals,
                self.processes,
                self.drew,
                "draw in a map() whose function takes a parameter rng, a numpy.random.Generator "
                "for each sample",
            )
        known = self.seed_globals is True or self.drew is not None
        call = _calls.Source(
            partial(getitem, self.value),
            self.specs,
            0,
            seeding(self.seed_globals, self.processes),
            "element 0" if self.probed else "",
            name=_only(named, self.specs),
        )
        return _core.Binding(
            name,
            "source",
            call,
            fields=self.specs,
            count=len(self.value),
            pure=self.version is not None,
            random=known or draws(self.value) is not None,
            concurrent=self.concurrent,
            probed=self.probed,
            processes=spawner(
                call, name, runtime, self.processes, self.process_memory, self.timeout
            ),
        )

    def _key(self) -> tuple[object, ...]:
        given = None if self.out is None else read_out(self.out, "")
        return (
            self.batched,
            given,
            self.seed_globals,
            self.processes,
            self.process_memory,
            self.timeout,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundDataset):
            return NotImplemented
        return self.value is other.value and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self.value), self.batched))


class _only:
    """Names an element's fields, but takes a bare value for the one field that is declared."""

    def __init__(self, name: Callable[[Any], Mapping[str, Any]], specs: tuple[Spec, ...]) -> None:
        self.name = name
        self.single = specs[0][0] if len(specs) == 1 else None

    def __call__(self, element: Any) -> Mapping[str, Any]:
        fields = self.name(element)
        if self.single is not None and fields.keys() == {"x"} and not isinstance(element, Mapping):
            return {self.single: fields["x"]}
        return fields


def dataset(
    obj: Any,
    *,
    batched: bool = False,
    out: Out | None = None,
    version: object = None,
    seed: int = 0,
    seed_globals: SeedGlobals = "auto",
    processes: int = 0,
    process_memory: int | str | None = None,
    timeout: float | None = None,
    concurrent: bool = False,
) -> Pipeline:
    """Samples from an object with len() and [], such as a torch Dataset or a Keras Sequence.

    An element is a dict of fields; a pair, whose fields are x and y; a longer tuple, whose fields
    are 0, 1, 2, ... (a named tuple's: its names); or a bare value, x. Fields are arrays, tensors,
    images of PIL, numbers, str or bytes.

    batched: every element is a whole batch, with at most as many rows as element 0. shuffle
        reorders these batches; unbatch() after it makes samples of them:
        dataset(sequence, batched=True).shuffle(seed=7).unbatch().batch(32)
    out: the fields, as for map; default: those of element 0
    version: changes when the elements do; giving one says that an element is the same each time, so
        that it may be cached
    seed, seed_globals: for elements that draw random numbers: whether random, numpy.random and
        torch are seeded for each element, so that it is the same on any thread; see map
    processes, process_memory, timeout, concurrent: as in map; obj is pickled for each process
    """
    if not hasattr(obj, "__getitem__") or not hasattr(obj, "__len__"):
        raise TypeError(
            f"dataset() takes an object with len() and [], not {type(obj).__name__}; an iterable "
            "goes into stream()"
        )
    text = None if version is None else str(version)
    bound = BoundDataset(
        obj, batched, out, seed_globals, processes, process_memory, timeout, concurrent, text
    )
    return _source("callback", [("seed", seed or None), ("version", text)], bound)


# ------------------------------------------------------------------------ streams


class BoundStream:
    """Samples one after the other: `stream @name`."""

    def __init__(self, value: Any, out: Out | None) -> None:
        self.value = value
        self.out = out
        iterable = hasattr(value, "__iter__") and not isinstance(value, type)
        self.called = callable(value) and not iterable
        self.again = self.called or not hasattr(value, "__next__")
        name = getattr(value, "__name__", "stream")
        self.name = name if name.isidentifier() and name.isascii() else "stream"
        self.specs = None if out is None else read_out(out, f"stream @{self.name}")
        self.probed = False
        self.warned = False

    def begin(self) -> Iterator[Any]:
        """From the first item on; an iterator goes on where it is."""
        return self._iterate(self.value() if self.called else self.value)

    def _iterate(self, items: Any) -> Iterator[Any]:
        if not isinstance(items, Iterable):
            raise TypeError(
                f"stream @{self.name}: {self.name}() gave {type(items).__name__}, but must give "
                "an iterator"
            )
        return iter(items)

    def _probe(self) -> tuple[Spec, ...]:
        from . import _calls

        nothing = object()
        try:
            begun = self.value() if self.called else self.value
        except Exception as error:
            raise _probing(f"stream @{self.name}", "item 0", error) from error
        items = self._iterate(begun)
        try:
            first = next(items, nothing)
        except Exception as error:
            raise _probing(f"stream @{self.name}", "item 0", error) from error
        if first is nothing:
            raise _core.PipelineError(
                f"stream @{self.name}: it has no item to find out its fields; declare them with "
                "out="
            )
        if not self.again:
            self.value = chain([first], items)
        try:
            return _calls.specs_of(named(first))
        except TypeError as error:
            raise TypeError(f"stream @{self.name}, item 0: {error}") from None

    def _warn_of_draws(self) -> None:
        shared = sources_of(self.value).shared
        if shared is not None:
            warn(
                f"stream @{self.name} draws from {shared}, a generator that the whole process "
                "shares: the items depend on threads and on what else draws from it. To get the "
                "same each time, make a generator where the stream begins, such as "
                "numpy.random.default_rng(7); or draw after it in a map(), whose function takes a "
                "parameter rng or is given processes="
            )

    def bind(self, name: str, runtime: Runtime) -> _core.Binding:
        from . import _calls

        if not self.warned:
            self.warned = True
            self._warn_of_draws()
        if self.specs is None:
            self.specs = self._probe()
            self.probed = True
        first = "item 0" if self.probed else ""
        call = _calls.Stream(self.begin, self.specs, _only(named, self.specs), first)
        return _core.Binding(
            name,
            "stream",
            call,
            fields=self.specs,
            probed=self.probed,
            reopen=call.reopen if self.again else None,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundStream):
            return NotImplemented
        given = None if self.out is None else read_out(self.out, "")
        its = None if other.out is None else read_out(other.out, "")
        return self.value is other.value and given == its

    def __hash__(self) -> int:
        return hash(self.name)


def stream(
    items: Iterable[Any] | Callable[[], Iterable[Any]],
    *,
    out: Out | None = None,
    version: object = None,
) -> Pipeline:
    """Samples that come one after the other; their number is not known before the end.

    items: a function that begins again each time it is called, such as a generator function, or an
        iterable that can be iterated several times; every epoch begins it again, and a resumed run
        skips the items that it had. An iterator lasts for one epoch of one loader, and cannot be
        resumed. Items are like the elements of dataset.
    out: the fields, as for map; default: those of the first item
    version: changes when the items do
    """
    if not callable(items) and not isinstance(items, Iterable):
        raise TypeError(
            f"stream() takes an iterable or a function that gives one, not {type(items).__name__}"
        )
    text = None if version is None else str(version)
    return _source("stream", [("version", text)], BoundStream(items, out))
