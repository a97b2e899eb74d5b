"""The functions that C calls for a Python function: the trampolines.

A trampoline makes numpy arrays of brim's memory, calls the user's function, checks the result
against the declared fields, and copies it into the row. src/function.c says how each is called.
They are small and picklable: worker processes get them by value.

A declared field is (name, dtype, shape, form): see _functions.read_out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from . import _core, _seeding
from ._numpy import numpy

Spec = tuple[str, str, tuple[int, ...], str]

_asarray = numpy.asarray
_Array = _core.Array


# ------------------------------------------------------------------------- inputs


def _view(value: Any) -> Any:
    """A value as numpy sees it, in place: bfloat16, which numpy lacks, as its bits in uint16."""
    if type(value) is not _Array:
        return value
    array = _asarray(value)
    return array if array.dtype.kind != "V" else array.view("uint16")


def sample_views(inputs: dict[str, Any]) -> dict[str, Any]:
    """A sample's fields; single numbers as numpy scalars, which may be kept."""
    views = {}
    for name, value in inputs.items():
        array = _view(value)
        views[name] = array[()] if type(value) is _Array and array.ndim == 0 else array
    return views


# ------------------------------------------------------------------------ outputs

Where = tuple[str, object]  # what failed, such as ("sample", 7)


class Field:
    """A field that is put out, and how a value gets into it.

    first: where it was found by looking, such as "the first sample"; "": it was declared."""

    def __init__(
        self, name: str, dtype: str, shape: tuple[int, ...], form: str, first: str = ""
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.form = form
        self.first = first
        self.type = numpy.dtype("uint16" if dtype == "bfloat16" else dtype)

    def __str__(self) -> str:
        if self.form in ("text", "bytes"):
            return f"{self.form} of at most {self.shape[0]} bytes"
        if self.form == "ragged":
            return f"ragged {self.dtype} of at most {self.shape}"
        return f"{self.dtype} {self.shape}"

    def describe(self) -> str:
        """The expected type, and where it was declared."""
        if not self.first:
            return f"declared {self}"
        if self.form in ("text", "bytes"):
            return f"taken for {self} after {self.first}"
        return f"{self} in {self.first}"

    def wrong(self, where: Where, came: str, hint: str = "") -> ValueError:
        return ValueError(
            f"{where[0]} {where[1]}: field '{self.name}' was {self.describe()}, but {came}{hint}"
        )

    def put(self, where: Where, value: Any, output: Any) -> int | None:
        """Copies a value into an output; how many elements, or None if the field is dense."""
        if self.form in ("text", "bytes"):
            return self.put_bytes(where, value, output)
        target = _view(output)
        own = isinstance(value, (numpy.ndarray, numpy.generic))
        array: Any = value if own else self.read(value)
        if array.dtype != self.type:
            array = self.bits(where, array)
        if self.form == "dense":
            if array.shape != target.shape:
                raise self.differs(where, array)
            target[...] = array
            return None
        if array.shape[1:] != self.shape[1:] or not 0 < array.ndim == len(self.shape):
            raise self.differs(where, array)
        if len(array) > len(target):
            raise self.differs(where, array)
        target[: len(array)] = array
        return len(array)

    def read(self, value: Any) -> Any:
        """An array of anything else. Python numbers have no dtype of their own: they take the
        declared one, if it can have them."""
        kind, types = self.type.kind, {bool: "b", int: "iufc", float: "fc", complex: "c"}
        if kind in types.get(type(value), "") and self.dtype != "bfloat16":
            limits = numpy.iinfo(self.type) if kind in "iu" else None
            if limits is None or limits.min <= value <= limits.max:
                return numpy.array(value, self.type)
        return _asarray(value)

    def bits(self, where: Where, array: Any) -> Any:
        """What is not of the declared dtype: bfloat16 of ml_dtypes, or an error."""
        if self.dtype == "bfloat16" and array.dtype.name == "bfloat16":
            return array.view("uint16")
        raise self.differs(where, array)

    def differs(self, where: Where, array: Any) -> ValueError:
        other = array.dtype != self.type
        hint = f": convert it with .astype('{self.type}'), or" if other else ":"
        if self.first and other:
            hint += " give out= with the type that all have"
        elif self.first:
            hint += " make them alike, or give out= with the field as ragged"
        else:
            hint += " declare it so with out="
        return self.wrong(where, f"is {array.dtype} {array.shape}", hint)

    def put_bytes(self, where: Where, value: Any, output: Any) -> int:
        if isinstance(value, str) and self.form == "text":
            value = value.encode("utf-8", "surrogateescape")
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise self.wrong(where, f"is {type(value).__name__}")
        data = memoryview(value).cast("B")
        if len(data) > self.shape[0]:
            hint = f"; declare more with out={{'{self.name}': ('{self.form}', bound)}}"
            raise self.wrong(where, f"has {len(data)}", hint)
        memoryview(output)[: len(data)] = data
        return len(data)


def put(where: Where, fields: tuple[Field, ...], result: Any, outputs: tuple[Any, ...]) -> Any:
    """Copies what a function returned into the outputs: the lengths that C asks for."""
    if type(result) is not dict and not isinstance(result, Mapping):
        if len(fields) != 1 or result is None:
            raise TypeError(
                f"{where[0]} {where[1]}: the function gave {type(result).__name__}, but must give "
                f"a dict with {_listed(field.name for field in fields)}"
            )
        return (fields[0].put(where, result, outputs[0]),)
    lengths = []
    for field, output in zip(fields, outputs):
        try:
            value = result[field.name]
        except KeyError:
            raise ValueError(
                f"{where[0]} {where[1]}: there is no field '{field.name}', which was "
                f"{field.describe()}; there is {_listed(result)}"
            ) from None
        lengths.append(field.put(where, value, output))
    if len(result) != len(fields):
        unknown = [name for name in result if name not in {field.name for field in fields}]
        first = fields[0].first
        known = f"{f'{first} had' if first else 'declared:'} {_listed(f.name for f in fields)}"
        raise ValueError(
            f"{where[0]} {where[1]}: field {_listed(unknown)} was not "
            f"{f'in {first}' if first else 'declared'}; {known}"
        )
    return tuple(lengths)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"


# ------------------------------------------------------------------------- random


class _Thread(threading.local):
    """A thread's generator, whose state is set for each sample."""

    def __init__(self) -> None:
        self.generator = numpy.random.Generator(numpy.random.Philox(0))
        self.counter = numpy.zeros(4, "uint64")
        self.key = numpy.zeros(2, "uint64")
        self.state = {
            "bit_generator": "Philox",
            "state": {"counter": self.counter, "key": self.key},
            "buffer": numpy.zeros(4, "uint64"),
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }


_thread = _Thread()


def generator(key: int, epoch: int, sample: int) -> numpy.random.Generator:
    """The generator of a sample: the same numbers on any thread and in any process.

    Philox, with the stage's key; the sample and the epoch are in the upper words of its counter.
    It is the thread's own and lasts until the thread's next sample."""
    thread = _thread
    thread.key[0] = key
    thread.counter[2] = sample
    thread.counter[3] = epoch
    thread.generator.bit_generator.state = thread.state
    return thread.generator


# -------------------------------------------------------------------- trampolines


class Call:
    """A user's function, and how it is called.

    rng: it takes a generator: 0 no; 1 as its second argument; 2 as rng=. seed_globals: 0 no; 1 and
    put back; 2 in a process that has no other use for them. specs: what it puts out; first: where
    that was found, as a Field has it."""

    def __init__(
        self,
        function: Callable[..., Any],
        specs: tuple[Spec, ...] = (),
        rng: int = 0,
        seed_globals: int = 0,
        first: str = "",
    ) -> None:
        self.function = function
        self.fields = tuple(Field(*spec, first) for spec in specs)
        self.rng = rng
        self.seed_globals = seed_globals

    def run(self, value: Any, key: int, epoch: int, sample: int) -> Any:
        if self.seed_globals == 1:
            with _seeding.seeded(key, epoch, sample):
                return self.just_run(value, key, epoch, sample)
        if self.seed_globals == 2:
            _seeding.seed(key, epoch, sample)
        return self.just_run(value, key, epoch, sample)

    def just_run(self, value: Any, key: int, epoch: int, sample: int) -> Any:
        if self.rng:
            return self.draw(value, generator(key, epoch, sample))
        return self.function(value)

    def draw(self, value: Any, rng: numpy.random.Generator) -> Any:
        return self.function(value, rng) if self.rng == 1 else self.function(value, rng=rng)


class Map(Call):
    def __call__(
        self, sample: int, epoch: int, key: int, inputs: dict[str, Any], outputs: tuple[Any, ...]
    ) -> Any:
        result = self.run(sample_views(inputs), key, epoch, sample)
        return put(("sample", sample), self.fields, result, outputs)


class Filter(Call):
    def __call__(self, sample: int, epoch: int, key: int, inputs: dict[str, Any]) -> bool:
        result = self.run(sample_views(inputs), key, epoch, sample)
        if isinstance(result, (str, bytes, Mapping, list, tuple)) or result is None:
            raise TypeError(
                f"sample {sample}: a filter's function gives true or false, but this one gave "
                f"{type(result).__name__}"
            )
        return bool(result)


class BatchMap(Call):
    def __call__(
        self, number: int, epoch: int, key: int, inputs: dict[str, Any], outputs: tuple[Any, ...]
    ) -> Any:
        views = {name: _view(value) for name, value in inputs.items()}
        given = dict(views)
        result = self.run(given, key, epoch, number)
        if result is None:  # it has changed what it was given
            result = given
        where = ("the batch at position", number)
        if outputs:
            put(where, self.fields, result, outputs)
        else:
            _put_back(where, views, result)
        return None


def _put_back(where: Where, views: dict[str, Any], result: Any) -> None:
    """What a function that acts in place gave instead of the arrays that it was given."""
    if not isinstance(result, Mapping) or result.keys() != views.keys():
        given = _listed(result) if isinstance(result, Mapping) else type(result).__name__
        raise ValueError(
            f"{where[0]} {where[1]}: the function acts in place on {_listed(views)}, but gave "
            f"{given}; declare what it gives with out="
        )
    for name, view in views.items():
        if result[name] is not view:
            field = Field(name, view.dtype.name, view.shape, "dense")
            field.put(where, result[name], view)


class FlatMap(Call):
    """Calls the function once for a sample, with copies of its fields, and takes one item of what
    it gives for each call from C. A call that does not follow the last one begins again."""

    def __init__(self, *arguments: Any, most: int = 0, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.most = most
        self.thread = threading.local()

    def begin(self, key: int, epoch: int, sample: int, inputs: dict[str, Any]) -> Iterator[Any]:
        own = {
            name: value.copy() if isinstance(value, numpy.ndarray) else value
            for name, value in sample_views(inputs).items()
        }
        if self.seed_globals:
            return iter(self.run(own, key, epoch, sample))
        if self.rng:  # the thread's generator would not last
            draws = numpy.random.Philox(key=key, counter=(epoch << 192) | (sample << 128))
            result = self.draw(own, numpy.random.Generator(draws))
        else:
            result = self.function(own)
        return iter(_items(result, sample))

    def just_run(self, value: Any, key: int, epoch: int, sample: int) -> Any:
        """All items at once, while the generators are seeded."""
        return list(_items(super().just_run(value, key, epoch, sample), sample))

    def __call__(
        self,
        sample: int,
        epoch: int,
        key: int,
        index: int,
        inputs: dict[str, Any],
        outputs: tuple[Any, ...],
    ) -> Any:
        thread = self.thread
        if getattr(thread, "next", None) != (sample, epoch, key, index):
            thread.items = self.begin(key, epoch, sample, inputs)
            for _ in range(index):
                next(thread.items, None)
        thread.next = None
        for item in thread.items:
            lengths = put((f"sample {sample}, item", index), self.fields, item, outputs)
            if index + 1 == self.most and next(thread.items, self) is not self:
                raise ValueError(
                    f"sample {sample}: the function gives more than {self.most} samples of one; "
                    "raise most="
                )
            thread.next = (sample, epoch, key, index + 1)
            return lengths
        thread.items = None
        return None


def _items(result: Any, sample: int) -> Iterable[Any]:
    if isinstance(result, (Mapping, str, bytes)) or not isinstance(result, Iterable):
        raise TypeError(
            f"sample {sample}: a flat_map's function gives several samples, as a list or one "
            f"after the other with yield, but this one gave {type(result).__name__}"
        )
    return result


class Source(Call):
    """Elements of an object by number. In worker processes it is called as a map without inputs."""

    def __init__(self, *arguments: Any, name: Callable[[Any], Mapping[str, Any]], **keywords: Any):
        super().__init__(*arguments, **keywords)
        self.name = name

    def __call__(self, sample: int, epoch: int, key: int, *rest: Any) -> Any:
        element = self.name(self.run(sample, key, epoch, sample))
        return put(("element", sample), self.fields, element, rest[-1])


class Stream:
    """Items of an iterable, one after the other."""

    def __init__(
        self,
        begin: Callable[[], Iterator[Any]],
        specs: tuple[Spec, ...],
        name: Callable[[Any], Mapping[str, Any]],
        first: str = "",
    ) -> None:
        self.begin = begin
        self.fields = tuple(Field(*spec, first) for spec in specs)
        self.name = name
        self.items: Iterator[Any] | None = None
        self.number = 0

    def __call__(self, outputs: tuple[Any, ...]) -> Any:
        if self.items is None:
            self.items = self.begin()
        for item in self.items:
            self.number += 1
            return put(("item", self.number - 1), self.fields, self.name(item), outputs)
        return None

    def reopen(self, epoch: int, sample: int) -> None:
        self.items = self.begin()
        self.number = sample
        for skipped in range(sample):
            if next(self.items, self) is self:
                raise ValueError(f"the stream ends after {skipped} items")


# ------------------------------------------------------------------------ probing


def spec_of(name: str, value: Any, *, ragged: bool = False) -> Spec:
    """What a value is, as a field would be declared."""
    if isinstance(value, (str, bytes, bytearray)):
        form = "text" if isinstance(value, str) else "bytes"
        data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        # others are longer: room for four times as much, and 1 KiB at least
        return name, "uint8", (max(1024, 1 << (4 * len(data)).bit_length()),), form
    array = _asarray(value)
    if array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
        raise TypeError(
            f"field '{name}' is {type(value).__name__} ({array.dtype}), but must be numbers, an "
            "array of numbers, str or bytes"
        )
    return name, array.dtype.name, tuple(array.shape), "ragged" if ragged else "dense"


def specs_of(sample: Mapping[str, Any], *, ragged: bool = False) -> tuple[Spec, ...]:
    """The fields of a sample, as they would be declared."""
    return tuple(spec_of(name, value, ragged=ragged) for name, value in sample.items())
