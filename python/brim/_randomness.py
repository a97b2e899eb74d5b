"""Whether a function draws random numbers that brim does not give it.

The result of such a function differs each time, and a cache must not keep it: the function is bound
as random, like one that takes `rng`. The search covers
  - in the function's code, and in that of functions and classes that it names, of its module and
    of the program's own files: those of the standard library and of installed packages count by
    their names;
  - in the values that these close over, name as globals, or have as defaults, and in the state of
    objects. An attribute of one of the program's own objects counts where code that was reached
    names it, so that one method may draw and another not.
Found are generators (objects of random, numpy.random and torch), the modules and functions that
draw from them, and transforms of libraries that are known to. Objects that are not looked up by
name, and draws inside compiled code, are not found. Nothing is imported or called. If a function is
called once anyway, to find its fields, _seeding.trial compares the generators of the process before
and after.

For caches, the name of a module is enough (`draws`). A warning says more and must be right more
often (`sources_of`): whether functions are named that draw from the generators of the process,
which can be seeded for each sample, and whether there are generators that no seeding reaches:
objects that the function holds, those that it makes without a seed, the system's random numbers,
TensorFlow's.
"""

from __future__ import annotations

import dis
import functools
import gc
import re
import sys
import types
import warnings
from collections import deque
from typing import Any, NamedTuple

from . import _core

_MOST_OBJECTS = 20_000
_MOST_ITEMS = 1_000  # of one container: a million paths are not looked at

_VISION = r"""torchvision\.transforms\..*\.(Random[A-Za-z]*|ColorJitter|AutoAugment|RandAugment
      |TrivialAugmentWide|AugMix|GaussianBlur|GaussianNoise|ElasticTransform|ScaleJitter|CutMix
      |MixUp)"""
_DROPOUT = r"torch\.(nn\.functional\.)?(\w*dropout[123d]*_?|rrelu_?|gumbel_softmax)"
_DRAWS = re.compile(
    rf"""(random | secrets | (os|posix)\.urandom | uuid\.uuid4
      | numpy\.random
      | torch\.(cuda\.)?(random|rand[a-z_]*|normal|bernoulli|multinomial|poisson)
      | torch\.(_C\.)?Generator | torch\.distributions | {_DROPOUT}
      | tensorflow\.(_api\.v2\.)?random | tensorflow\.python\.ops\.random_ops
      | tensorflow\.(_api\.v2\.)?image\.random_[a-z_]+
      | albumentations\..*\.[A-Z][A-Za-z]*
      | {_VISION}
    )(\.|$)""",
    re.VERBOSE,
)
_SHARED = re.compile(  # draw from the generators of the process
    rf"""(random\.(?!(Random|SystemRandom|seed|getstate|setstate)$)[a-z][a-z_]*
      | numpy\.random\.(?!(default_rng|mtrand|bit_generator|seed|get_state|set_state|test)$)[a-z]\w*
      | torch\.(cuda\.)?(rand[a-z_]*|normal|bernoulli|multinomial|poisson)
      | torch\.distributions\..* | {_DROPOUT}
      | albumentations\..*\.[A-Z][A-Za-z]*
      | {_VISION}
    )$""",
    re.VERBOSE,
)
_OWN = re.compile(  # no seeding reaches these
    r"""(secrets | (os|posix)\.urandom | uuid\.uuid4 | random\.SystemRandom
      | tensorflow\.(_api\.v2\.)?random | tensorflow\.python\.ops\.random_ops
      | tensorflow\.(_api\.v2\.)?image\.random_[a-z_]+
    )(\.|$)""",
    re.VERBOSE,
)
_GENERATOR = re.compile(  # the classes of generators, by their names
    r"""random\.(Random|SystemRandom)$ | torch\.(_C\.)?Generator$
      | numpy\.random\.([a-z_0-9]+\.)?(Generator|RandomState|BitGenerator|MT19937|PCG64|PCG64DXSM
            |Philox|SFC64)$""",
    re.VERBOSE,
)
_SEEDABLE = re.compile(  # that take a seed from the system when they are given none
    r"random\.Random$|numpy\.random\.([a-z_0-9]+\.)?(default_rng|RandomState|MT19937|PCG64"
    r"|PCG64DXSM|Philox|SFC64)$"
)
_CALLS = ("CALL", "PRECALL", "CALL_FUNCTION", "CALL_METHOD")

_IN_PLACE = frozenset(  # methods of tensors: no other objects have such names
    ("random_", "normal_", "uniform_", "bernoulli_", "exponential_", "log_normal_", "cauchy_")
)

_ATOMS = (type(None), bool, int, float, complex, str, bytes, bytearray, type(...), range, slice)
_OPAQUE = (types.FrameType, types.GeneratorType, types.CoroutineType, types.TracebackType)
_PLAIN = ("builtins", "collections", "functools", "types", "operator", "itertools")
_NOT_CALLED = ("__init__", "__new__", "__annotate__", "__annotate_func__")  # on an instance
_KEPT = ("EXTENDED_ARG", "CACHE", "NOP", "PUSH_NULL", "SWAP", "ROT_TWO", "POP_TOP")


class _Found(Exception):
    """What draws."""


class _Look:
    """Goes through all that a function refers to, each object once, the nearest first."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.seen: dict[int, object] = {}  # kept, so that no id is used again
        self.open: deque[object] = deque()
        self.classes: set[type] = set()
        self.names: set[str] = set()  # that some code looks up as attributes or globals
        self.waiting: dict[str, list[object]] = {}  # attributes that none has named yet

    def add(self, value: object) -> None:
        if type(value) not in _ATOMS and id(value) not in self.seen:
            self.seen[id(value)] = value
            self.open.append(value)

    def run(self) -> None:
        while self.open and len(self.seen) < _MOST_OBJECTS:
            self.look(self.open.popleft())

    def look(self, value: Any) -> None:
        kind = type(value)
        if issubclass(kind, types.ModuleType):
            self.check(value.__name__)
        elif kind is types.FunctionType:
            self.check(f"{value.__module__}.{value.__name__}")
            if self.reads(value.__module__):
                self.function(value)
        elif issubclass(kind, type):
            self.class_(value)
            if self.reads(value.__module__):
                self.add(vars(value).get("__new__"))
                self.add(vars(value).get("__init__"))
        elif not issubclass(kind, _OPAQUE):
            if kind is types.BuiltinFunctionType or kind.__name__ == "cython_function_or_method":
                self.check(f"{value.__module__}.{value.__name__}")
            self.instance(value, kind)

    def check(self, name: str) -> None:
        if _DRAWS.match(name):
            self.found(name)

    def found(self, name: str) -> None:
        raise _Found(name)

    def called(self, value: Any) -> None:
        """`value` is called without arguments."""

    def reads(self, module: str | None) -> bool:
        return not module or module == self.module or _own(module)

    def instance(self, value: object, kind: type) -> None:
        self.class_(kind)
        if kind.__module__ == "torch.nn.modules.dropout" and vars(value).get("training"):
            self.found(f"torch.nn.{kind.__name__}")
        bases = [base for base in kind.__mro__ if base.__module__ not in ("abc", "typing")]
        if all(base is object or _own(base.__module__) for base in bases):
            try:
                self.attributes(object.__getattribute__(value, "__dict__"))
            except AttributeError:
                self.slots(value, kind)
        elif kind.__module__ in _PLAIN or not _standard(kind.__module__):
            for item in gc.get_referents(value)[:_MOST_ITEMS]:
                if item is not kind:
                    self.add(item)

    def slots(self, value: object, kind: type) -> None:
        for base in kind.__mro__:
            for name, member in vars(base).items():
                if type(member) is types.MemberDescriptorType:
                    try:
                        self.attributes({name: member.__get__(value)})
                    except AttributeError:  # not set
                        continue

    def class_(self, cls: type) -> None:
        """Its bases' names, and of one's own what is called by name or by the language."""
        if cls in self.classes:
            return
        self.classes.add(cls)
        for base in cls.__mro__:
            self.check(f"{base.__module__}.{base.__qualname__}")
            if base is not object and self.reads(base.__module__):
                self.attributes(vars(base))

    def attributes(self, values: Any) -> None:
        for name, value in list(values.items())[:_MOST_ITEMS]:
            special = str(name).startswith("__") and name not in _NOT_CALLED
            if name in self.names or (special and type(value) is types.FunctionType):
                self.add(value)
            else:
                self.waiting.setdefault(name, []).append(value)

    def function(self, function: types.FunctionType) -> None:
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        known = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                known[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self.add(known[name])
        self.code(function.__code__, function.__globals__, known)

    def code(self, code: types.CodeType, names: dict[str, Any], known: dict[str, Any]) -> None:
        """Follows names, and attributes of modules and classes: numpy.random.rand.

        known: closed-over values, and modules imported in the function, by their names there."""
        for name in set(code.co_names) - self.names:
            self.names.add(name)
            for attribute in self.waiting.pop(name, ()):
                self.add(attribute)
        value: Any = None  # what the last instructions have looked up
        imported = ""
        for step in dis.get_instructions(code):
            name = step.argval
            if step.opname == "IMPORT_NAME":
                imported = name
                self.check(name)
                value = _Module(name.partition(".")[0])
            elif step.opname == "IMPORT_FROM":
                whole = imported.rpartition(".")[2] == name  # import a.b as c
                value = _Module(imported) if whole else self.attribute(_Module(imported), name)
            elif step.opname.startswith("STORE_"):
                stored, loaded = name if isinstance(name, tuple) else (name, None)
                known[stored] = value
                value = known.get(loaded)  # of STORE_FAST_LOAD_FAST
            elif step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and name in names:
                value = names[name]
                self.add(value)
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                if name in _IN_PLACE:
                    self.found(name)
                value = self.attribute(value, name)
            elif step.opname.startswith("LOAD_"):
                last = name[-1] if isinstance(name, tuple) else name
                value = known.get(last) if isinstance(last, str) else None
            elif step.opname not in _KEPT:
                if step.opname in _CALLS and step.arg == 0 and value is not None:
                    self.called(value)
                value = None
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.code(constant, names, known)

    def attribute(self, value: Any, name: str) -> Any:
        """That of a module or class, without calling anything; None of other objects."""
        found = None
        if isinstance(value, (_Module, types.ModuleType)):
            path = f"{value.__name__}.{name}"
            self.check(path)
            module = sys.modules.get(value.__name__, value)
            found = vars(module).get(name, sys.modules.get(path, _Module(path)))
        elif issubclass(type(value), type):
            found = next((vars(b)[name] for b in value.__mro__ if name in vars(b)), None)
        self.add(found)
        return found


def _standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _own(module: str) -> bool:
    """Of the program itself: neither the standard library nor an installed package."""
    if _standard(module) or module.partition(".")[0] == "brim" or module not in sys.modules:
        return False
    file = getattr(sys.modules[module], "__file__", None) or ""
    return "/site-packages/" not in file and "/dist-packages/" not in file


class _Module:
    """A module by its name, for it may not be imported yet, or by itself when it is used."""

    def __init__(self, name: str) -> None:
        self.__name__ = name


class Sources(NamedTuple):
    """What a function draws from, by name; None: nothing is seen.

    shared: the generators of the process; own: others, which no seeding reaches."""

    shared: str | None
    own: str | None


class _Closer(_Look):
    """Looks for what sources_of tells, until both are found or all has been seen."""

    def __init__(self, module: str) -> None:
        super().__init__(module)
        self.shared: str | None = None
        self.own: str | None = None
        self.of_process = _generators_of_process()
        self.gives = False  # the code looked at gives some call generator=
        self.seeds = False  # it calls a method seed or manual_seed

    def code(self, code: types.CodeType, names: dict[str, Any], known: dict[str, Any]) -> None:
        outer = self.gives, self.seeds
        keywords = (constant for constant in code.co_consts if isinstance(constant, tuple))
        self.gives = any("generator" in constant for constant in keywords)
        self.seeds = not {"seed", "manual_seed"}.isdisjoint(code.co_names)
        super().code(code, names, known)
        self.gives, self.seeds = outer

    def attribute(self, value: Any, name: str) -> Any:
        named = isinstance(value, (_Module, types.ModuleType)) and value.__name__ == "torch"
        if self.gives and named and _SHARED.match(f"torch.{name}"):
            return None  # torch.rand(2, generator=g)
        return super().attribute(value, name)

    def check(self, name: str) -> None:
        if _OWN.match(name):
            self.found_own(name)
        elif _SHARED.match(name):
            self.found(name)

    def found(self, name: str) -> None:
        self.shared = self.shared or name
        self.end()

    def found_own(self, name: str) -> None:
        self.own = self.own or name
        self.end()

    def end(self) -> None:
        if self.shared is not None and self.own is not None:
            raise _Found

    def called(self, value: Any) -> None:
        name = f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', '')}"
        if isinstance(value, _Module):
            name = value.__name__
        if _SEEDABLE.match(name) and not self.seeds:
            self.found_own(f"{name}()")

    def instance(self, value: object, kind: type) -> None:
        if id(value) in self.of_process:
            self.found(self.of_process[id(value)])
            return
        for base in kind.__mro__:
            name = f"{base.__module__}.{base.__qualname__}"
            if _GENERATOR.match(name):
                self.found_own(name)
                return
        super().instance(value, kind)


def _generators_of_process() -> dict[int, str]:
    """The objects that are seeded for each sample, so far as their modules are there, by id."""
    known = {}
    for module, *path in (
        ("random", "_inst"),
        ("numpy.random.mtrand", "_rand"),
        ("numpy.random.mtrand", "_rand", "_bit_generator"),
        ("torch", "default_generator"),
    ):
        value: Any = sys.modules.get(module)
        for name in path:
            value = getattr(value, name, None)
        if value is not None:
            known[id(value)] = module.removesuffix(".mtrand")
    return known


def _module_of(function: object) -> str:
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if type(inner) is types.MethodType:
        inner = inner.__func__
    named = inner if isinstance(inner, (type, types.FunctionType)) else type(inner)
    return str(named.__module__)


def sources_of(function: object) -> Sources:
    """What a function draws from without being given it."""
    if draws(function) is None:  # which sees more, and sooner
        return Sources(None, None)
    look = _Closer(_module_of(function))
    look.add(function)
    try:
        look.run()
    except Exception:  # both are found; or an object cannot be looked at
        pass
    return Sources(look.shared, look.own)


def warn(text: str) -> None:
    """A RandomnessWarning at the line of the program that has called brim."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _of_brim(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, _core.RandomnessWarning, stacklevel=level)


def _of_brim(frame: types.FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in ("brim", "contextlib")


def draws(function: object) -> str | None:
    """What random numbers a function draws from, such as "numpy.random"; None if none is seen."""
    look = _Look(_module_of(function))
    look.add(function)
    try:
        look.run()
    except _Found as found:
        return str(found)
    except Exception:  # objects may be of any kind: one that cannot be looked at says nothing
        return None
    return None
