"""Pipelines: what to do, as an immutable value.

A Pipeline is a text, which C parses, prints and checks, and the Python objects that the text names
as @name. Each of its methods returns a new one, with one more stage.

A bound object (see _functions and _sources) has `name`, its preferred name, `bind(name, runtime)`,
which makes it a _core.Binding, `==`, `hash` and pickling. The pipeline decides its name: if two
objects prefer one name, the later is called name_2, and texts in parentheses are rewritten.
"""

from __future__ import annotations

import difflib
import operator
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

from . import _core, _functions
from ._stages import Stages
from ._table import binding_argument, table

if TYPE_CHECKING:
    from ._plan import Plan
    from ._runtime import Runtime

# Stages that make an epoch longer or shorter, beside sources and those of the order.
_COUNTING = ("filter", "flat_map", "unbatch")


def _rename(text: str, names: Mapping[str, str]) -> str:
    """The text with other @names."""
    text, stages = _core.parse(text)
    values = [value for stage in stages for value in stage["values"]]
    kept, begin = "", 0
    for value in sorted(values, key=lambda value: value["begin"]):
        if value["type"] == "binding" and value["given"]:
            kept += text[begin : value["begin"]] + "@" + names.get(value["value"], value["value"])
            begin = value["end"]
    return kept + text[begin:]


def _uses(text: str) -> Iterator[tuple[str, str, str]]:
    """For each @name: itself, the stage that takes it, and the text before that stage."""
    text, stages = _core.parse(text)
    chains: dict[tuple[int | None, int], tuple[int, int]] = {}  # what of each has been passed
    for stage in stages:
        chain = (stage["parent"], stage["branch"])
        begin, end = chains.get(chain, (stage["begin"], stage["begin"]))
        for value in sorted(stage["values"], key=lambda value: value["begin"]):
            if value["type"] == "binding" and value["given"]:
                yield value["value"], stage["name"], text[begin:end]
        chains[chain] = (begin, stage["end"])


def _outer(text: str) -> list[_core.StageUse]:
    """The stages of a text as brim prints it, those in parentheses left out."""
    return [stage for stage in _core.parse(text)[1] if stage["depth"] == 0]


def _without_caches(text: str) -> str:
    """The text without its caches, which change no sample, those in parentheses too."""
    text, stages = _core.parse(text)
    kept, begin = "", 0
    ends: dict[tuple[int | None, int], int] = {}  # of the last stage of each chain
    for stage in stages:
        chain = (stage["parent"], stage["branch"])
        if stage["room"] == "cache":
            kept += text[begin : ends.get(chain, stage["begin"])]
            begin = stage["end"]
        ends[chain] = stage["end"]
    return kept + text[begin:]


def _enter(bindings: dict[str, Any], wanted: str, bound: Any) -> str:
    """Gives a bound object a name that no other has."""
    wanted = re.sub(r"[^\w.-]", "_", wanted, flags=re.ASCII)[:40] or "object"
    name, number = wanted, 1
    while name in bindings and bindings[name] is not bound:
        number += 1
        name = f"{wanted}_{number}"
    bindings[name] = bound
    return name


class Pipeline(Stages):
    """What to do, from reading to batches: a text, and the objects that it names as @name.

    Begin one with `brim.folder`, `brim.npy` and the other sources, or from text with
    `brim.pipeline`; each method adds a stage and returns a new Pipeline. Nothing is read before it
    is opened, planned, or indexed: `data[17]` is a sample of the first epoch, `len(data)` the
    number of samples.
    """

    __slots__ = ("__weakref__", "_bindings", "_text")
    _text: str
    _bindings: dict[str, Any]

    def __init__(self, text: str, bindings: Mapping[str, Any] | None = None) -> None:
        self._text = _core.parse(text)[0]
        self._bindings = dict(bindings or {})

    @classmethod
    def _source(
        cls, stage: str, arguments: Sequence[tuple[str | None, object]] = (), bound: Any = None
    ) -> Pipeline:
        """A pipeline of one stage; see _add."""
        return cls("")._add(stage, arguments, bound)

    def _add(
        self, stage: str, arguments: Sequence[tuple[str | None, object]] = (), bound: Any = None
    ) -> Pipeline:
        """One stage more. Arguments are (key or None, value), the value a str, int, float, bool
        or Pipeline, and None if it is left out; `bound` goes where the stage takes an object."""
        bindings = dict(self._bindings)
        values: list[tuple[str | None, object]] = []
        if bound is not None:
            name = _enter(bindings, bound.name, bound)
            values.append((binding_argument(table[stage]), "@" + name))
        for key, value in arguments:
            if isinstance(value, Pipeline):
                names = {
                    name: _enter(bindings, name, inner) for name, inner in value._bindings.items()
                }
                value = ("pipeline", _rename(value._text, names))
            if value is not None:
                values.append((key, value))
        return Pipeline(_core.add(self._text, stage, values), bindings)

    def _part(self, text: str) -> Pipeline:
        """A pipeline of a part of the text, with the objects that it names."""
        names = [name for name, _, _ in _uses(text) if name in self._bindings]
        return Pipeline(text, {name: self._bindings[name] for name in names})

    def _bindings_for(self, runtime: Runtime) -> list[_core.Binding]:
        """The bound objects as C takes them."""
        return [bound.bind(name, runtime) for name, bound in self._bindings.items()]

    map = _functions.map
    filter = _functions.filter
    flat_map = _functions.flat_map
    batch_map = _functions.batch_map

    # ------------------------------------------------------------------------ a value

    @property
    def text(self) -> str:
        """The pipeline as `brim run` and C take it."""
        return self._text

    @property
    def bindings(self) -> Mapping[str, Any]:
        """The objects that stand as @name in the text."""
        return MappingProxyType(self._bindings)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"brim.Pipeline({self._text!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pipeline):
            return NotImplemented
        return self._text == other._text and self._bindings == other._bindings

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[Any, ...]:
        return Pipeline, (self._text, self._bindings)

    # --------------------------------------------------------------------- looking at it

    def plan(
        self,
        memory: int | str | None = None,
        *,
        runtime: Runtime | None = None,
        threads: int | None = None,
        index_dir: str | os.PathLike[str] | None = None,
        pinned: int | str | None = None,
        device_memory: int | str | None = None,
        shared: str | None = None,
        shared_memory: int | str | None = None,
        trust_foreign: bool = False,
        **options: Any,
    ) -> Plan:
        """What it will do and need inside this much memory, before it runs.

        memory, threads, index_dir, pinned, device_memory, shared, shared_memory, trust_foreign: as
            of the `Runtime` in which it will be opened
        runtime: that Runtime itself: the plan is for the memory that is free there now
        options: those of `Runtime.open` (hold, rank, world, slots, device, ...). A plan is for one
            way of opening: adapters have their own, such as brim.torch.plan()
        """
        from ._runtime import Runtime

        limits: dict[str, Any] = {
            "memory": memory,
            "index_dir": index_dir,
            "pinned": pinned,
            "device_memory": device_memory,
            "shared": shared,
            "shared_memory": shared_memory,
            "trust_foreign": trust_foreign,
        }
        if runtime is not None:
            given = [name for name, value in limits.items() if value not in (None, False)]
            if given:
                raise ValueError(f"{', '.join(given)} and runtime=: a runtime has its own already")
            return runtime.plan(self, threads=threads, **options)
        with Runtime(threads=threads, **limits) as made:
            return made.plan(self, **options)

    def _uncached(self) -> Pipeline:
        """The same samples without caches: looking at one leaves no files."""
        return self._part(_without_caches(self._text))

    def _samples(self) -> Pipeline:
        """The pipeline up to where samples become batches, with batches of one."""
        uncached = self._uncached()
        end = 0
        for stage in _outer(uncached._text):
            if stage["room"] == "batching":
                break
            end = stage["end"]
        return uncached._part(uncached._text[:end])._add("batch", [("rows", 1)])

    def _counted(self) -> Pipeline:
        """The samples without the transforms that do not change how many there are."""
        text = _without_caches(self._text)
        stages = _outer(text)
        if any(stage["name"] in _COUNTING for stage in stages):
            return self._samples()
        kept = [
            text[stage["begin"] : stage["end"]]
            for stage in stages
            if stage["room"] in ("source", "order")
        ]
        return self._part(" | ".join(kept))._add("batch", [("rows", 1)])

    def __len__(self) -> int:
        """Samples in an epoch, over all ranks. TypeError if it is not known before the end."""
        from ._runtime import Runtime

        with Runtime(threads=0) as runtime:
            try:
                samples = runtime.plan(self._counted()).samples
            except _core.PipelineError:  # files that must be decoded to fit a batch
                samples = runtime.plan(self._samples()).samples
        if samples is None:
            raise TypeError(
                f"how many samples {self!r} gives is not known before the end of an epoch"
            )
        return int(samples)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, position: SupportsIndex) -> dict[str, Any]:
        """One sample, as a function of `map` sees it: the one at a position of epoch 0."""
        from ._runtime import Runtime

        if not isinstance(position, SupportsIndex):
            raise TypeError(
                f"a sample's position is an int, not {type(position).__name__}; for several use "
                "take() and skip(), and open the pipeline"
            )
        at = operator.index(position)
        with Runtime(threads=0) as runtime, runtime.open(self._samples(), hold=1) as loader:
            samples = loader.plan["samples"]
            if at < 0 and samples is None:
                raise TypeError(
                    f"{self!r} has no known end that {at} could be counted from; use a position "
                    "from 0"
                )
            place = at + samples if at < 0 else at
            if place < 0 or (samples is not None and place >= samples):
                raise IndexError(f"position {at} of {samples} samples")
            loader.seek(0, place)
            try:
                batch = loader.next()
            except _core.PipelineError as error:
                if error.status != "BRIM_STATUS_INVALID":
                    raise
                batch = None  # the epoch ends before it
            if batch is None or batch.epoch > 0:
                raise IndexError(f"position {at}: the epoch ends before it")
            return _functions._own_sample(batch)

    def __getattr__(self, name: str) -> NoReturn:
        words = [] if name.startswith("_") else [word for word in dir(self) if word[0] != "_"]
        near = difflib.get_close_matches(name, words, 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise AttributeError(f"a Pipeline has no stage or attribute {name!r}{hint}")

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "a Pipeline says what to do and holds no data; open it: "
            "`with brim.Runtime() as rt, rt.open(data) as loader: for batch in loader: ...`"
        )


def pipeline(text: str, **objects: Any) -> Pipeline:
    """A Pipeline from text, with an object for each @name in it.

    The stage decides the kind of the object: an array for `array @x`, a function for
    `map @f`, `filter by=@f`, `flat_map @f` and `batch_map @f`, an object with len() and [] for
    `callback @d`, an iterable for `stream @s`, paths for `files list=@p`.

        brim.pipeline("array @x | shuffle seed=7 | map @half | batch 8", x=images, half=half)
    """
    from . import _sources

    result = Pipeline(text)
    makers: dict[str, Callable[..., Pipeline]] = {
        "array": _sources.array,
        "callback": _sources.dataset,
        "stream": _sources.stream,
        "files": _sources.files,
    }
    left = dict(objects)
    for name, stage, before in _uses(result._text):
        if name not in left:
            continue
        bound = left.pop(name)
        if not hasattr(bound, "bind"):
            prefix = result._part(before)
            made = makers[stage](bound) if stage in makers else getattr(prefix, stage)(bound)
            (bound,) = (b for n, b in made._bindings.items() if n not in prefix._bindings)
        result._bindings[name] = bound
    if left:
        unused = ", ".join(sorted(left))
        raise TypeError(f"pipeline() got {unused}, which the text does not name: {result._text}")
    return result


def guess(path: str | os.PathLike[str]) -> Pipeline:
    """The pipeline that reads a file, found from its bytes and its name."""
    return Pipeline(_core.guess(os.fspath(path)))
