"""The identity of functions: a hash that changes when what they do changes.

It becomes `version=` in the text of a pipeline, which caches and resumed states compare; so it must
be the same in every process that runs the same program, whatever PYTHONHASHSEED is.

It sees
  - the function's byte code, names and constants, those of functions inside it, and its defaults;
  - the values that it closes over, and the globals that it names: numbers, strings, containers,
    numpy arrays, and any object whose state can be pickled, by its type and state;
  - functions and classes of the same module that it names, in the same way, and so on;
  - what functools.partial holds, the object of a bound method, the state of an instance that is
    called, with the methods of its class and of base classes in the same module.
It does not see
  - the code of other modules: these functions and classes count by their names alone;
  - what is looked up by name while it runs: attributes of modules, files, the environment;
  - the Python version, except for the byte code, which differs between versions (3.11, 3.12).
If an object cannot be hashed at all (an open file, a lock, more than 64 MiB of values), there is no
identity: None.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import types
from typing import Any

_MOST_BYTES = 64 << 20
_MOST_OBJECTS = 100_000


class _Unseen(Exception):
    """Something that has no identity."""


class _Walk:
    """Feeds an object and all that it refers to into one hash, each object once."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.hash = hashlib.blake2b(digest_size=8)
        self.places: dict[int, int] = {}
        self.alive: list[object] = []  # so that no id is used again
        self.bytes = 0

    def feed(self, tag: str, data: bytes = b"") -> None:
        self.bytes += len(data)
        if self.bytes > _MOST_BYTES:
            raise _Unseen("more than 64 MiB")
        self.hash.update(f"{tag}:{len(data)}:".encode())
        self.hash.update(data)

    def walk(self, value: object) -> None:
        if value is None or isinstance(value, (bool, int, float, complex)):
            if type(value) in (type(None), bool, int, float, complex):
                self.feed(type(value).__name__, repr(value).encode())
                return
        if type(value) is str:
            self.feed("str", value.encode("utf-8", "surrogatepass"))
            return
        if type(value) is bytes:
            self.feed("bytes", value)
            return
        if value is Ellipsis or value is NotImplemented:
            self.feed("constant", repr(value).encode())
            return
        if id(value) in self.places:
            self.feed("again", str(self.places[id(value)]).encode())
            return
        if len(self.places) > _MOST_OBJECTS:
            raise _Unseen("more than 100,000 objects")
        if not isinstance(value, (tuple, frozenset)):  # equal constants may or may not be one
            self.places[id(value)] = len(self.places)
        self.alive.append(value)
        self.walk_into(value)

    def walk_into(self, value: Any) -> None:
        if type(value) in (tuple, list):
            self.feed(type(value).__name__, str(len(value)).encode())
            for item in value:
                self.walk(item)
        elif type(value) is dict:
            self.feed("dict", str(len(value)).encode())
            for key, item in value.items():
                self.walk(key)
                self.walk(item)
        elif type(value) in (set, frozenset):
            self.unordered(value)
        elif isinstance(value, types.CodeType):
            self.code(value)
        elif isinstance(value, types.FunctionType):
            self.function(value)
        elif isinstance(value, types.ModuleType):
            self.feed("module", self.module_name(value.__name__).encode())
        elif isinstance(value, type):
            self.class_(value)
        elif isinstance(value, functools.partial):
            self.feed("partial")
            self.walk((value.func, value.args, value.keywords))
        elif isinstance(value, types.MethodType):
            self.feed("method")
            self.walk((value.__func__, value.__self__))
        elif isinstance(value, (staticmethod, classmethod)):
            self.feed(type(value).__name__)
            self.walk(value.__func__)
        elif isinstance(value, property):
            self.feed("property")
            self.walk((value.fget, value.fset))
        elif hasattr(value, "__array_interface__") or _is_tensor(value):
            self.array(value)
        else:
            self.instance(value)

    def unordered(self, values: set[object] | frozenset[object]) -> None:
        """A set: in the order of its members' own hashes, for it has none."""
        digests = []
        for item in values:
            inner = _Walk(self.module)
            inner.walk(item)
            self.bytes += inner.bytes
            digests.append(inner.hash.digest())
        self.feed("set", b"".join(sorted(digests)))

    def code(self, code: types.CodeType) -> None:
        self.feed("code", code.co_code)
        self.feed("exceptions", getattr(code, "co_exceptiontable", b""))
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        self.walk((counts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
        self.walk(code.co_consts)

    def module_name(self, name: str | None) -> str:
        """A module's name; one's own has none, for a script is __main__ in one process and
        __mp_main__ in another that was started from it."""
        if name == self.module:
            return ""
        return "__main__" if name == "__mp_main__" else str(name)

    def function(self, function: types.FunctionType) -> None:
        if function.__module__ != self.module:
            module = self.module_name(function.__module__)
            self.feed("named", f"{module}.{function.__qualname__}".encode())
            return
        self.feed("function")
        self.walk(function.__code__)
        self.walk((function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # not assigned yet
                self.feed("empty")
            else:
                self.walk(content)
        names: dict[str, None] = {}
        _names_in(function.__code__, names)
        for name in names:
            if name in function.__globals__:
                self.feed("global", name.encode())
                self.walk(function.__globals__[name])

    def class_(self, cls: type) -> None:
        self.feed("type", f"{self.module_name(cls.__module__)}.{cls.__qualname__}".encode())
        if cls.__module__ != self.module:
            return
        for name, value in cls.__dict__.items():
            plain = isinstance(value, (bool, int, float, complex, str, bytes, tuple, type(None)))
            called = isinstance(value, (types.FunctionType, staticmethod, classmethod, property))
            if (plain or called) and name not in ("__module__", "__doc__", "__firstlineno__"):
                self.feed("attribute", name.encode())
                self.walk(value)
        self.walk(cls.__bases__)

    def array(self, value: Any) -> None:
        import numpy

        array = numpy.asarray(value.detach().cpu() if _is_tensor(value) else value)
        if array.dtype.hasobject:
            raise _Unseen("an array of objects")
        self.feed("array", f"{array.dtype.str}{array.shape}".encode())
        if self.bytes + array.nbytes > _MOST_BYTES:
            raise _Unseen("more than 64 MiB")
        self.feed("elements", array.tobytes())

    def instance(self, value: object) -> None:
        """Any other object: its type, and what pickle would store of it."""
        reducer = copyreg.dispatch_table.get(type(value))
        reduced = reducer(value) if reducer is not None else value.__reduce_ex__(4)
        self.feed("instance")
        self.walk(type(value))
        if isinstance(reduced, str):
            self.feed("named", reduced.encode())
            return
        made_by, arguments, *rest = reduced
        self.walk((made_by, arguments))
        for part in rest:
            if part is None or isinstance(part, (tuple, dict)):
                self.walk(part)
            else:  # iterators of what lists and dicts hold beside their state
                self.walk(list(part) if hasattr(part, "__iter__") else part)


def _is_tensor(value: object) -> bool:
    return type(value).__module__.split(".")[0] == "torch" and hasattr(value, "detach")


def _names_in(code: types.CodeType, names: dict[str, None]) -> None:
    """The names that code and the code inside it look up, as keys."""
    names.update(dict.fromkeys(code.co_names))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _names_in(constant, names)


def identity(function: object) -> str | None:
    """16 hexadecimal digits that change when the function does, or None; see above."""
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if isinstance(inner, types.MethodType):
        inner = type(inner.__self__)
    elif not isinstance(inner, (type, types.FunctionType)):
        inner = type(inner)
    walk = _Walk(getattr(inner, "__module__", None) or "")
    try:
        walk.walk(function)
    except Exception:  # whatever an object raises that will not be pickled
        return None
    return walk.hash.hexdigest()
