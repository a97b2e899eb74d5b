"""The identity of a function: a hash of its code and of all that it refers to, by which caches know
samples that it made."""

# sanitizers: yes

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
import threading
from typing import Any

import support

numpy = support.need("numpy")

from brim._identity import identity
from test_functions import halve, source

OFFSET = 3


def add_offset(sample: Any) -> Any:
    return sample["x"] + OFFSET + helper()


def helper() -> int:
    return 1


class Scale:
    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, sample: Any) -> Any:
        return sample["x"] * self.by


class Identity(support.Case):
    def test_it_sees_what_a_function_refers_to(self) -> None:
        def closing(value: object) -> Any:
            return lambda sample: (sample, value)

        kinds = [
            identity(add_offset),
            identity(halve),
            identity(lambda s: s),
            identity(lambda s: s + 1),
            identity(functools.partial(halve, sample=1)),
            identity(functools.partial(halve, sample=2)),
            identity(Scale(1)),
            identity(Scale(2)),
            identity(Scale(2).__call__),
            identity(closing(1)),
            identity(closing("1")),
            identity(closing((1, 2))),
            identity(closing([1, 2])),
            identity(closing({"a", "b"})),
            identity(closing(numpy.arange(3))),
            identity(closing(numpy.arange(4))),
            identity(closing(halve)),
        ]
        self.assertNotIn(None, kinds)
        self.assertEqual(len(set(kinds)), len(kinds))
        self.assertEqual(identity(closing({"b", "a"})), identity(closing({"a", "b"})))
        self.assertEqual(identity(Scale(2)), identity(Scale(2)))

    def test_it_changes_with_globals_and_helpers(self) -> None:
        global OFFSET, helper
        before, saved = identity(add_offset), helper
        OFFSET = 4
        changed = identity(add_offset)
        OFFSET = 3
        self.assertNotEqual(before, changed)
        helper = lambda: 2  # noqa: E731
        self.assertNotEqual(before, identity(add_offset))
        helper = saved
        self.assertEqual(before, identity(add_offset))

    def test_none_where_nothing_can_be_seen(self) -> None:
        lock = threading.Lock()
        self.assertIsNone(identity(lambda sample: (lock, sample)))
        data = source().map(lambda sample: (lock, sample)[1], out={"x": ("float32", (4,))})
        self.assertNotIn("version", str(data))
        self.assertIn("version=7", str(source().map(halve, version=7)))

    def test_the_same_in_every_process(self) -> None:
        script = textwrap.dedent(
            """
            import functools, re
            from brim._identity import identity
            WORDS = {"one", "two", "three", "four"}
            PATTERN = re.compile("a+")
            class Crop:
                def __init__(self): self.state = {"a": {1, 2}, "b": frozenset(WORDS)}
                def __call__(self, sample): return sample["x"] in WORDS and PATTERN
            def inner(sample): return outer(sample) in {"x", "y", "zed"}
            def outer(sample): return inner(sample), [w for w in WORDS]
            print(identity(inner), identity(Crop()), identity(functools.partial(inner, k=WORDS)))
            """
        )
        path = self.folder / "script.py"
        path.write_text(script)
        told = {
            subprocess.run(
                [sys.executable, str(path)],
                env={**os.environ, "PYTHONHASHSEED": str(seed)},
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            for seed in (1, 2, 3)
        }
        self.assertEqual(len(told), 1, told)
        self.assertNotIn("None", told.pop())

    def test_the_same_in_a_process_that_imports_the_script(self) -> None:
        path = self.folder / "script.py"
        path.write_text(
            textwrap.dedent(
                """
                import functools, multiprocessing, sys
                from brim._identity import identity
                class Odd:
                    def __call__(self, sample): return sample["y"] % LIMIT == 1
                LIMIT = 2
                def tell():
                    print(identity(Odd()), identity(functools.partial(print, Odd)), flush=True)
                if __name__ == "__main__":
                    tell()
                    process = multiprocessing.get_context("spawn").Process(target=tell)
                    process.start()
                    process.join()
                """
            )
        )
        told = subprocess.run(
            [sys.executable, str(path)], check=True, capture_output=True, text=True
        ).stdout.splitlines()
        self.assertEqual(len(told), 2)
        self.assertEqual(told[0], told[1])
        self.assertNotIn("None", told[0])


if __name__ == "__main__":
    support.main()
