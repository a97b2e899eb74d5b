"""The generators of the process, seeded for one sample: what seed_globals=True does.

random and numpy.random always exist. torch exists only if it is imported, perhaps by the function
itself in the middle of its first sample, or by another thread meanwhile: a finder in
sys.meta_path seeds torch's generator at the end of that import, before anything can draw from it.
So brim never imports torch itself, and no sample depends on which function imported it first.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import random
import struct
import sys
import threading
from collections.abc import Iterator
from typing import Any

from ._numpy import numpy

_one = threading.Lock()  # held while the process's generators are a sample's


class _Torch:
    """torch's generator, which may come while a sample is made."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seed: int | None = None  # of the sample that is being made
        self.before: tuple[Any, Any] | None = None  # the generator, and its state until then
        self.watched = False

    def begin(self, seed: int) -> None:
        """Seeds it, now or when it is imported."""
        if not self.watched:
            self.watched = True
            sys.meta_path.insert(0, _Finder)
        torch = None
        if sys.modules.get("torch") is not None:
            with contextlib.suppress(ImportError):
                torch = importlib.import_module("torch")  # waits for a thread that imports it
        with self.lock:
            self.seed, self.before = seed, None
        if torch is not None:
            self.came(torch)

    def came(self, torch: Any) -> None:
        generator = getattr(torch, "default_generator", None)
        with self.lock:
            if self.seed is not None and self.before is None and generator is not None:
                self.before = generator, generator.get_state()
                generator.manual_seed(self.seed)

    def end(self) -> None:
        """Leaves it as it was."""
        with self.lock:
            if self.before is not None:
                generator, state = self.before
                generator.set_state(state)
            self.seed = self.before = None


_torch = _Torch()


class _Finder:
    """Finds torch as the other finders do, and is told when it has been imported."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None) if finder is not cls else None
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    cls.watch(spec.loader)
                return spec
        return None

    @staticmethod
    def watch(loader: Any) -> None:
        execute = loader.exec_module

        def execute_and_seed(module: Any) -> None:
            del loader.exec_module
            execute(module)
            _torch.came(module)

        loader.exec_module = execute_and_seed


def seed(key: int, epoch: int, sample: int) -> None:
    """Seeds them for a sample, in a process that has no other use for them."""
    digest = hashlib.blake2b(struct.pack("<QQQ", key, epoch, sample), digest_size=16).digest()
    first, second = struct.unpack("<QQ", digest)
    random.seed(first)
    numpy.random.seed([second & 0xFFFFFFFF, second >> 32])
    _torch.begin(first >> 1)


@contextlib.contextmanager
def seeded(key: int, epoch: int, sample: int) -> Iterator[None]:
    """The same for as long as it lasts. Other samples wait meanwhile, and afterwards the program
    finds the generators as they were."""
    with _one:
        states = random.getstate(), numpy.random.get_state()
        try:
            seed(key, epoch, sample)
            yield
        finally:
            _torch.end()
            random.setstate(states[0])
            numpy.random.set_state(states[1])


class Trial:
    """`drew`: the generator of the process that a call drew from; None: none."""

    drew: str | None = None


@contextlib.contextmanager
def trial(put_back: bool) -> Iterator[Trial]:
    """Looks at the generators before and after, so that also draws are seen that no code names.
    put_back: the program finds them as they were."""
    found = Trial()
    with seeded(0, 0, 0) if put_back else contextlib.nullcontext():
        before = _states()
        yield found
        after = _states()
        found.drew = next((name for name in before if before[name] != after.get(name)), None)


def _states() -> dict[str, Any]:
    legacy: Any = numpy.random.get_state()
    kind, keys, *rest = legacy
    states: dict[str, Any] = {"random": random.getstate()}
    states["numpy.random"] = kind, keys.tobytes(), *rest
    generator = getattr(sys.modules.get("torch"), "default_generator", None)
    if generator is not None:
        states["torch"] = generator.get_state().tolist()
    return states
