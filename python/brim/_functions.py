"""Python functions in pipelines: map, filter, flat_map and batch_map.

A function is called with a sample, a dict of numpy arrays in brim's memory (single numbers as numpy
scalars, text as str, bytes as bytes; bfloat16 as its bits in uint16), and returns the fields of a
new one. The arrays are read-only and not valid after it returns: copy what you keep. A function
with a parameter named `rng`, or a second parameter without a default, gets a numpy.random.Generator
there, which draws the same numbers for a sample in any thread or process, and others in every
epoch.

The output of a function must be known before it runs. It is declared,

    out={"image": ("uint8", (224, 224, 3)),      # dtype and shape
         "tokens": ("int32", (512,), "ragged"),  # at most 512
         "caption": "text",                      # up to 1 KiB; ("text", 4096): up to 4 KiB
         "label": "int64"}                       # a single number

or it is found by calling the function once on the first sample, when the pipeline is opened or
planned. Every sample must then have these fields: a field that is missing or unknown, another dtype
or another shape is an error.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from . import _core
from ._bytes import read_bytes
from ._identity import identity
from ._randomness import draws, sources_of, warn

if TYPE_CHECKING:
    from ._calls import Call, Spec
    from ._pipeline import Pipeline
    from ._runtime import Runtime

Out = Mapping[str, Any]
SeedGlobals = bool | Literal["auto"]

_TEXT_BOUND = 1024
_MOST_PROCESSES = 1024
_MOST_SECONDS = 1_000_000


def read_out(out: Any, whose: str) -> tuple[Spec, ...]:
    """What was declared in out=, as (name, dtype, shape, form) for each field."""
    if not isinstance(out, Mapping) or not out:
        raise TypeError(
            f"{whose}: out= is a dict of fields such as {{'image': ('uint8', (224, 224, 3))}}, "
            f"not {out!r}"
        )
    return tuple(_read_field(name, given, whose) for name, given in out.items())


def _read_field(name: object, given: Any, whose: str) -> Spec:
    if not isinstance(name, str):
        raise TypeError(f"{whose}: out= has a field named {name!r}, but names are str")
    parts = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if parts[:1] in (("text",), ("bytes",)):
        bound = parts[1] if len(parts) > 1 else _TEXT_BOUND
        if len(parts) > 2 or not hasattr(bound, "__index__"):
            raise TypeError(f"{whose}: field '{name}': text is \"text\" or (\"text\", bound)")
        return name, "uint8", (int(bound),), parts[0]
    shape = parts[1] if len(parts) > 1 else ()
    form = parts[2] if len(parts) > 2 else "dense"
    if hasattr(shape, "__index__"):
        shape = (shape,)
    if (
        not 1 <= len(parts) <= 3
        or form not in ("dense", "ragged")
        or not isinstance(shape, (tuple, list))
        or not all(hasattr(size, "__index__") for size in shape)
    ):
        raise TypeError(
            f"{whose}: field '{name}' is declared {given!r}, but is (dtype, shape), "
            "(dtype, shape, \"ragged\") or \"text\"; a shape is a tuple of ints"
        )
    try:
        dtype = _dtype_name(parts[0])
    except TypeError:
        raise TypeError(
            f"{whose}: field '{name}' is declared {given!r}, but {parts[0]!r} is no dtype; one is "
            "'uint8', 'int64', 'float32' and so on"
        ) from None
    return name, dtype, tuple(operator.index(size) for size in shape), form


def _dtype_name(dtype: Any) -> str:
    """ "float32", from that, numpy.float32, numpy.dtype("f4") or torch.float32."""
    if dtype is None:  # float64 to numpy
        raise TypeError("None is no dtype")
    name = str(dtype).removeprefix("torch.")
    if name == "bfloat16":  # numpy has none
        return name
    from ._numpy import numpy

    return str(numpy.dtype(name if str(dtype) != name else dtype).name)


def takes_rng(function: Callable[..., Any]) -> int:
    """How a function wants a generator, see above: 0 not; 1 as the second argument; 2 as rng=."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of C, without a signature
        return 0
    given = function.keywords if isinstance(function, functools.partial) else {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for parameter in parameters[1:]:
        if parameter.name == "rng" and parameter.kind in by_name and "rng" not in given:
            return 2
    places = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    second = places[1] if len(places) > 1 else None
    return int(second is not None and (second.default is second.empty or second.name == "rng"))


def read_processes(
    whose: str, processes: int, process_memory: int | str | None, timeout: float | None
) -> tuple[int, int | None, float | None]:
    """processes=, process_memory= and timeout=, checked."""
    if isinstance(processes, bool) or not hasattr(processes, "__index__"):
        raise TypeError(f"{whose}: processes is an int, not {processes!r}")
    count = operator.index(processes)
    if not 0 <= count <= _MOST_PROCESSES:
        raise ValueError(
            f"{whose}: processes={count}, but it is 0 for none, or from 1 to {_MOST_PROCESSES}"
        )
    if count == 0 and process_memory is not None:
        raise ValueError(
            f"{whose}: process_memory={process_memory!r} is of worker processes, and there are "
            "none: give processes= too"
        )
    if count == 0 and timeout is not None:
        raise ValueError(
            f"{whose}: timeout={timeout!r} ends worker processes, and there are none, for a thread "
            "cannot be stopped: give processes= too"
        )
    memory = process_memory
    if memory is not None:
        memory = read_bytes(memory, f"{whose}: process_memory")
    return count, memory, _read_timeout(whose, timeout)


def _read_timeout(whose: str, timeout: float | None) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, (bool, str)) or not hasattr(timeout, "__float__"):
        raise TypeError(f"{whose}: timeout is a number of seconds, not {timeout!r}")
    seconds = float(timeout)
    if not 0.001 <= seconds <= _MOST_SECONDS:
        raise ValueError(
            f"{whose}: timeout={timeout!r}, but it is from 0.001 to {_MOST_SECONDS} seconds, or "
            "None for none"
        )
    return seconds


def read_seed_globals(whose: str, seed_globals: SeedGlobals) -> SeedGlobals:
    """seed_globals=, checked."""
    if isinstance(seed_globals, str) and seed_globals == "auto":
        return "auto"
    if isinstance(seed_globals, int) or type(seed_globals).__name__ in ("bool", "bool_"):
        return bool(seed_globals)
    raise TypeError(f'{whose}: seed_globals is "auto", True or False, not {seed_globals!r}')


def seeding(seed_globals: SeedGlobals, processes: int) -> int:
    """What a Call takes as seed_globals."""
    if processes > 0 and seed_globals:
        return 2
    return int(seed_globals is True)


def seeds_here(seed_globals: SeedGlobals, processes: int) -> bool:
    """Whether a call in this process, to find out the fields, is seeded and leaves the program's
    generators as they were."""
    return seeding(seed_globals, processes) != 0


_RNG = "take a parameter rng, which brim fills with a numpy.random.Generator for each sample"


def warn_of_draws(
    whose: str,
    function: object,
    seed_globals: SeedGlobals,
    processes: int,
    drew: str | None,
    instead: str = _RNG,
) -> None:
    """A RandomnessWarning if what a function draws is not seeded for each sample. drew: what it
    was seen to draw from when it was tried."""
    if seed_globals is False:
        return
    sources = sources_of(function)
    shared = sources.shared or drew
    meant = "seed_globals=False says that this is meant"
    if shared is not None and processes == 0 and seed_globals == "auto":
        elsewhere = ""
        if sources.own is None and not whose.startswith("flat_map"):
            elsewhere = ", or give processes=, where all are seeded for each sample"
        warn(
            f"{whose} draws from {shared}, a generator that the whole process shares: the "
            "numbers that a sample gets depend on threads and on what else draws from it. To get "
            f"the same each time, {instead}{elsewhere}; seed_globals=True seeds it "
            f"here too, one sample at a time, and {meant}"
        )
    elif sources.own is not None:
        workers = "processes" if processes else "threads"
        warn(
            f"{whose} draws from {sources.own}, which brim cannot seed for each sample, not "
            f"even with processes=: the numbers that a sample gets depend on {workers}. To get the "
            f"same each time, {instead}; {meant}"
        )


class Function:
    """A function as it stands in a pipeline as @name.

    `specs` is what it puts out: None until it is known, () for a filter and for a batch_map that
    acts in place; `probed` says that it was found by trying, and `drew` which generator of the
    process it drew from then."""

    def __init__(
        self,
        kind: str,
        function: Callable[..., Any],
        prefix: Pipeline,
        *,
        out: Out | None = None,
        version: object = None,
        seed_globals: SeedGlobals = "auto",
        processes: int = 0,
        process_memory: int | str | None = None,
        timeout: float | None = None,
        concurrent: bool = False,
        most: int = 0,
    ) -> None:
        if not callable(function):
            raise TypeError(f"{kind}() takes a function, not {function!r}")
        self.kind = kind
        self.function = function
        self.name = _name_of(function)
        self.prefix = prefix
        self.out = out
        self.specs = None if out is None else read_out(out, self.label)
        if kind == "filter":
            self.specs = ()
        self.probed = False
        self.drew: str | None = None
        self.version = identity(function) if version is None else str(version)
        self.seed_globals = read_seed_globals(self.label, seed_globals)
        self.warned = False
        self.processes, self.process_memory, self.timeout = read_processes(
            self.label, processes, process_memory, timeout
        )
        self.concurrent = concurrent or self.processes > 0
        self.most = most

    @property
    def label(self) -> str:
        return f"{self.kind} @{self.name}"

    def _key(self) -> tuple[object, ...]:
        given = None if self.out is None else read_out(self.out, self.label)
        return (
            self.kind,
            self.version,
            given,
            self.seed_globals,
            self.processes,
            self.process_memory,
            self.timeout,
            self.concurrent,
            self.most,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Function):
            return NotImplemented
        return self.function == other.function and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.kind, self.version))

    def __repr__(self) -> str:
        return f"<brim function {self.label}>"

    def call(self, *, seeds: bool = True) -> Call:
        """What C calls."""
        from . import _calls

        kinds = {
            "map": _calls.Map,
            "filter": _calls.Filter,
            "flat_map": _calls.FlatMap,
            "batch_map": _calls.BatchMap,
        }
        own = {"most": self.most} if self.kind == "flat_map" else {}
        first = f"the first {'batch' if self.kind == 'batch_map' else 'sample'}"
        return kinds[self.kind](
            self.function,
            self.specs or (),
            takes_rng(self.function),
            seeding(self.seed_globals, self.processes) if seeds else 0,
            first if self.probed else "",
            **own,
        )

    def bind(self, name: str, runtime: Runtime) -> _core.Binding:
        """The function as C takes it; what it puts out is found now if it is not known."""
        rng = takes_rng(self.function) != 0
        if self.specs is None:
            self.specs = self._probe(runtime)
            self.probed = True
        if not self.warned and not rng:
            self.warned = True
            warn_of_draws(self.label, self.function, self.seed_globals, self.processes, self.drew)
        known = self.seed_globals is True or rng or self.drew is not None
        call = self.call()
        return _core.Binding(
            name,
            self.kind,
            call,
            fields=self.specs,
            count=self.most,
            pure=self.version is not None,
            random=known or draws(self.function) is not None,
            concurrent=self.concurrent,
            probed=self.probed,
            processes=spawner(
                call, name, runtime, self.processes, self.process_memory, self.timeout
            ),
        )

    def _probe(self, runtime: Runtime) -> tuple[Spec, ...]:
        """Calls the function on the first sample, and looks at what it gives."""
        from . import _calls, _seeding

        batched = self.kind == "batch_map"
        before = self.prefix._uncached() if batched else self.prefix._samples()
        with runtime.open(before, hold=1, threads=0, label=f"probe of {self.name}") as loader:
            batch = loader.next()
            if batch is None:
                raise _core.PipelineError(
                    f"{self.label}: there is no sample to find its fields with; declare them "
                    "with out="
                )
            sample = _own_batch(batch) if batched else _own_sample(batch)
            batch.release()
        call: Any = self.call(seeds=False)
        given = dict(sample)
        try:
            with _seeding.trial(seeds_here(self.seed_globals, self.processes)) as trial:
                if self.kind == "flat_map":
                    result = next(call.begin(0, 0, 0, sample), None)
                else:
                    result = call.run(given, 0, 0, 0)
            self.drew = trial.drew
            if self.kind == "flat_map" and result is None:
                raise _core.PipelineError(
                    "it makes no samples of the first one; declare what it puts out with out="
                )
            if not batched:
                return _calls.specs_of(self._fields(result, sample))
            return self._batch_specs(sample, given if result is None else result)
        except _core.PipelineError as error:
            raise _core.PipelineError(f"{self.label}: {error}") from None
        except Exception as error:
            text = f"{self.label}: {type(error).__name__}: {error} (on the first sample, called to "
            text += "find out what it puts out; out= declares that)"
            raise _core.FunctionError(text) from error

    def _fields(self, result: Any, sample: dict[str, Any]) -> Mapping[str, Any]:
        if isinstance(result, Mapping):
            if not result:
                raise ValueError("it gave a dict without fields")
            return result
        if result is None or len(sample) != 1:
            raise TypeError(
                f"it gave {type(result).__name__}, but must give a dict of fields; a bare array "
                "only if the sample has one field, or out= declares one"
            )
        return {next(iter(sample)): result}

    def _batch_specs(self, batch: dict[str, Any], result: Any) -> tuple[Spec, ...]:
        """() if the function acts in place: it gave what it was given, or None."""
        from . import _calls

        result = self._fields(result, batch)
        if result.keys() == batch.keys() and all(result[name] is batch[name] for name in batch):
            return ()
        rows = len(next(iter(batch.values())))
        specs = _calls.specs_of(result)
        for name, _, shape, form in specs:
            if form != "dense" or shape[:1] != (rows,):
                raise ValueError(
                    f"field '{name}' has shape {shape}, but the batch has {rows} rows: what a "
                    "function gives for a batch has as many"
                )
        return tuple((name, dtype, shape[1:], form) for name, dtype, shape, form in specs)


def _name_of(function: Any) -> str:
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() and name.isascii() else "function"


def _own_sample(batch: Any) -> dict[str, Any]:
    """A batch's first row as a function sees a sample, in memory of its own."""
    from ._numpy import numpy

    sample: dict[str, Any] = {}
    for name in batch:
        field = batch[name]
        row: Any = field[0] if isinstance(field, _core.Ragged) else _numpy(field)[0]
        if isinstance(row, _core.Array):
            row = _numpy(row)
        if isinstance(row, numpy.ndarray):
            row = row.copy()
            row.flags.writeable = False
        sample[name] = row
    return sample


def _own_batch(batch: Any) -> dict[str, Any]:
    """A batch's dense fields and valid rows, in memory of their own."""
    return {
        name: _numpy(batch[name])[: batch.valid_rows].copy()
        for name in batch
        if not isinstance(batch[name], _core.Ragged)
    }


def _numpy(field: Any) -> Any:
    from ._numpy import numpy

    array = numpy.asarray(field)
    return array.view("uint16") if array.dtype.kind == "V" else array


def spawner(
    call: Call,
    label: str,
    runtime: Runtime,
    processes: int,
    memory: int | None,
    timeout: float | None,
) -> tuple[Any, int] | None:
    """What _core.Binding takes as `processes`."""
    if processes == 0:
        return None
    from ._workers import Spawner

    return Spawner(call, label, runtime._core, memory, timeout), processes


def _need_samples(pipeline: Pipeline, stage: str) -> None:
    """Refuses stages on samples after the stage that makes batches."""
    for stage_use in _core.parse(pipeline.text)[1]:
        name = stage_use["name"]
        if stage_use["room"] == "batching":
            instead = ", or use batch_map()" if stage == "map" else ""
            raise _core.PipelineError(
                f"{stage} acts on samples: put it before {name}(){instead}"
            )


def _arguments(function: Function, seed: int) -> list[tuple[str | None, object]]:
    return [("seed", seed or None), ("version", function.version)]


# ------------------------------------------------------------- methods of Pipeline


def map(
    self: Pipeline,
    fn: Callable[..., Any],
    *,
    out: Out | None = None,
    version: object = None,
    seed: int = 0,
    seed_globals: SeedGlobals = "auto",
    processes: int = 0,
    process_memory: int | str | None = None,
    timeout: float | None = None,
    concurrent: bool = False,
) -> Pipeline:
    """Calls a function on each sample: fn(sample) or fn(sample, rng) returns the new sample.

    sample: a dict of numpy arrays, valid during the call; str for text, bytes for bytes. The result
        replaces all fields: a dict, or a bare array if there is one field.

    out: the output fields, such as {"image": ("uint8", (224, 224, 3)), "label": "int64"}, with
        ("int32", (512,), "ragged") for up to 512 and "text" or ("text", 4096) for text; default:
        found by calling it on the first sample
    version: changes when the function does; default: a hash of its code and of the objects that it
        refers to, if these can be seen (brim._identity has the rules)
    seed: another seed gives rng other numbers
    seed_globals: whether random, numpy.random and torch are seeded for each sample, for functions
        that draw from these. "auto": yes in worker processes; not in this process, because the
        training draws from them too, and a function that is seen to draw is a RandomnessWarning.
        True: also in this process, and restored afterwards; samples are then made one at a time.
        False: never, without a warning
    processes: run it in this many worker processes
    process_memory: the most memory that each may take, such as "1GiB"
    timeout: the most seconds that a call may take in its process; a process that takes longer is
        killed and replaced, and its sample is a bad sample; default: no limit
    concurrent: it may run on several threads at once: it releases the interpreter's lock
    """
    _need_samples(self, "map")
    function = Function(
        "map",
        fn,
        self,
        out=out,
        version=version,
        seed_globals=seed_globals,
        processes=processes,
        process_memory=process_memory,
        timeout=timeout,
        concurrent=concurrent,
    )
    return self._add("map", _arguments(function, seed), function)


def filter(
    self: Pipeline,
    *conditions: str | Callable[..., Any],
    version: object = None,
    seed: int = 0,
    seed_globals: SeedGlobals = "auto",
    processes: int = 0,
    process_memory: int | str | None = None,
    timeout: float | None = None,
    concurrent: bool = False,
) -> Pipeline:
    """Leaves out samples: by conditions, filter("label != 3", "length(text) < 100"), which are
    fast, or by a function, filter(fn), which is called like that of map and returns true or false.

    Other arguments are for a function, and are those of map.
    """
    _need_samples(self, "filter")
    functions = [condition for condition in conditions if not isinstance(condition, str)]
    if not conditions or len(functions) != (len(conditions) if functions else 0):
        raise TypeError("filter() takes conditions as text, or one function")
    if not functions:
        return self._add("filter", [(None, condition) for condition in conditions])
    if len(functions) > 1:
        raise TypeError("filter() takes one function; use several filters")
    function = Function(
        "filter",
        functions[0],
        self,
        version=version,
        seed_globals=seed_globals,
        processes=processes,
        process_memory=process_memory,
        timeout=timeout,
        concurrent=concurrent,
    )
    return self._add("filter", _arguments(function, seed), function)


def flat_map(
    self: Pipeline,
    fn: Callable[..., Any],
    *,
    most: int = 1024,
    out: Out | None = None,
    version: object = None,
    seed: int = 0,
    seed_globals: SeedGlobals = "auto",
    concurrent: bool = False,
) -> Pipeline:
    """Makes many samples of one: fn(sample) returns a list of samples, or yields them.

    The function is called once for a sample, with copies of its fields, so that it may yield views
    of them. The number of samples of an epoch is then not known before its end.

    most: the most samples that it makes of one; more are an error. Memory for that many is set
        aside.
    Other arguments are those of map.
    """
    _need_samples(self, "flat_map")
    function = Function(
        "flat_map",
        fn,
        self,
        out=out,
        version=version,
        seed_globals=seed_globals,
        concurrent=concurrent,
        most=most,
    )
    return self._add("flat_map", _arguments(function, seed), function)


def batch_map(
    self: Pipeline,
    fn: Callable[..., Any],
    *,
    out: Out | None = None,
    version: object = None,
    seed: int = 0,
    seed_globals: SeedGlobals = "auto",
    processes: int = 0,
    process_memory: int | str | None = None,
    timeout: float | None = None,
    concurrent: bool = False,
) -> Pipeline:
    """Calls a function on each batch: fn(batch) or fn(batch, rng). It comes after batch().

    batch: a dict of numpy arrays of all dense fields, the rows first, which it may write to. A
        function that changes them in place returns None, or the dict; if it returns other arrays,
        they replace all fields, with the same number of rows.

    out: the output fields, for one row; {} if it acts in place; default: found by calling it on the
        first batch
    Other arguments are those of map.
    """
    function = Function(
        "batch_map",
        fn,
        self,
        out=None if out is None or not out else out,
        version=version,
        seed_globals=seed_globals,
        processes=processes,
        process_memory=process_memory,
        timeout=timeout,
        concurrent=concurrent,
    )
    if out is not None and not out:
        function.specs = ()
    return self._add("batch_map", _arguments(function, seed), function)
