"""Functions that draw random numbers by themselves: which are found, and which are not meant."""

# sanitizers: yes

from __future__ import annotations

import functools
import os
import random
import secrets
import subprocess
import sys
import textwrap
import types
import uuid
from random import gauss
from typing import Any

import support

numpy = support.need("numpy")

from brim._randomness import draws

torch = types.ModuleType("torch")  # names are all that is looked at
tensorflow = types.ModuleType("tensorflow")
GENERATOR = numpy.random.default_rng(1)
HELD = {"deep": [1, ("two", random.Random(3))]}
TABLE = numpy.arange(9)


def helper(x: Any) -> Any:
    return x + random.random()


def quiet(x: Any) -> Any:
    return numpy.clip(x, 0, 1) + TABLE.sum() + len(HELPERS)


HELPERS = {"quiet": quiet}


class Two:
    """One method that draws, another that does not."""

    limit = 3

    def __init__(self) -> None:
        self.rng = numpy.random.default_rng(1)
        self.scale = 2.0

    def prepare(self, sample: Any) -> Any:
        return self.normal(sample["x"] * self.scale + self.limit)

    def normal(self, x: Any) -> Any:
        return x / x.mean()

    def augment(self, sample: Any) -> Any:
        return self.noise(sample["x"])

    def noise(self, x: Any) -> Any:
        return x + self.rng.random()


class Slotted:
    __slots__ = ("rng", "unset")

    def __init__(self) -> None:
        self.rng = random.Random(1)

    def __call__(self, sample: Any) -> Any:
        return self.rng.random()


class Child(Two):
    def __call__(self, sample: Any) -> Any:
        return super().augment(sample)


def library_class(module: str, name: str, **state: Any) -> Any:
    """An object of a class that another library seems to have."""
    made = type(name, (), {"__module__": module})()
    vars(made).update(state)
    return made


class Found(support.Case):
    def all_draw(self, functions: dict[str, Any]) -> None:
        for name, function in functions.items():
            with self.subTest(name):
                self.assertIsNotNone(draws(function))

    def test_modules_and_what_they_hold(self) -> None:
        def import_as(sample: Any) -> Any:
            import numpy.random as dice

            return dice.rand()

        def import_from(sample: Any) -> Any:
            from numpy import random as dice

            return dice.rand()

        def import_plain(sample: Any) -> Any:
            import numpy as np

            return [np.random.rand() for _ in range(3)]

        def import_absent(sample: Any) -> Any:
            import torch as absent

            return absent.randn(3)

        self.assertIsNone(draws(lambda s: numpy.float32(s)))
        self.all_draw(
            {
                "random": lambda s: random.random(),
                "from random": lambda s: gauss(0, 1),
                "numpy": lambda s: numpy.random.randint(3),
                "default_rng": lambda s: numpy.random.default_rng().random(),
                "secrets": lambda s: secrets.randbelow(3),
                "urandom": lambda s: os.urandom(3),
                "torch.randn": lambda s: torch.randn(3),
                "torch.randperm": lambda s: torch.randperm(3),
                "torch.rand_like": lambda s: torch.rand_like(s),
                "torch.normal": lambda s: torch.normal(s),
                "torch.dropout": lambda s: torch.nn.functional.dropout2d(s),
                "uuid": lambda s: uuid.uuid4(),
                "torch.Generator": lambda s: torch.Generator(),
                "uniform_": lambda s: s["x"].uniform_(),
                "tensorflow.random": lambda s: tensorflow.random.uniform((3,)),
                "tensorflow.image": lambda s: tensorflow.image.random_crop(s, 3),
                "the function itself": random.choice,
                "a partial": functools.partial(numpy.random.normal, 0.0),
                "import as": import_as,
                "import from": import_from,
                "import": import_plain,
                "import of what is absent": import_absent,
            }
        )

    def test_generators_wherever_they_are(self) -> None:
        rng = numpy.random.RandomState(1)

        def inner(sample: Any) -> Any:
            return [value for value in (lambda: GENERATOR.normal(),)]

        def default(sample: Any, generator: Any = rng) -> Any:
            return generator.rand()

        def keyword(sample: Any, *, generator: Any = rng) -> Any:
            return generator.rand()

        @functools.lru_cache
        def wrapped(sample: Any) -> Any:
            return helper(sample)

        self.all_draw(
            {
                "global": lambda s: GENERATOR.random(),
                "inner code": inner,
                "deep": lambda s: HELD["deep"],
                "closure": lambda s: rng.rand(),
                "default": default,
                "keyword": keyword,
                "helper": lambda s: helper(s),
                "wrapped": wrapped,
                "partial": functools.partial(default, generator=random.Random()),
                "bit generator": functools.partial(quiet, numpy.random.PCG64(1)),
                "method": Two().augment,
                "method of a class": lambda s: Two().augment(s),
                "method of its base": Child(),
                "slot": Slotted(),
            }
        )

    def test_transforms_of_libraries(self) -> None:
        vision = "torchvision.transforms.v2._geometry"
        crop = library_class(vision, "RandomCrop")
        both = library_class("torchvision.transforms.transforms", "Compose", transforms=[crop])
        plain = library_class(vision, "Resize", size=3)

        class Mine(type(crop)):  # type: ignore[misc]
            def __call__(self, sample: Any) -> Any:
                return sample

        self.all_draw(
            {
                "crop": crop,
                "jitter": library_class("torchvision.transforms.transforms", "ColorJitter"),
                "composed": both,
                "named": lambda s: both(s),
                "its class": lambda s: Mine,
                "derived": Mine(),
                "albumentations": library_class("albumentations.core.composition", "Compose"),
                "state": library_class("elsewhere.transforms", "Noise", rng=GENERATOR),
            }
        )
        self.assertIsNone(draws(plain))
        composed = library_class("torchvision.transforms.transforms", "Compose", transforms=[plain])
        self.assertIsNone(draws(composed))

    def test_other_files_of_the_program_are_followed(self) -> None:
        (self.folder / "mine.py").write_text(
            "import random\ndef jitter(x):\n    return x + random.random()\n"
            "def same(x):\n    return x\n"
        )
        installed = self.folder / "site-packages"
        installed.mkdir()
        (installed / "theirs.py").write_text((self.folder / "mine.py").read_text())
        script = self.folder / "script.py"
        script.write_text(
            textwrap.dedent(
                """
                import mine, theirs
                from mine import jitter, same
                from brim._randomness import draws
                for function in (
                    lambda s: mine.jitter(s), lambda s: jitter(s), mine.jitter, theirs.jitter,
                    lambda s: mine.same(s), lambda s: same(s), lambda s: theirs.jitter(s),
                ):
                    print(int(draws(function) is not None), end="")
                """
            )
        )
        paths = [os.environ.get("PYTHONPATH", ""), str(installed)]
        told = subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        self.assertEqual(told, "1111000")


class NotMeant(support.Case):
    def test_what_does_not_draw(self) -> None:
        two = Two()

        class Strange:
            def __getattribute__(self, name: str) -> Any:
                raise RuntimeError("do not touch")

        strange = Strange()

        def annotated(sample: Any, scale: numpy.random.Generator | None = None) -> Any:
            return sample

        functions = {
            "quiet": quiet,
            "quiet by name": lambda s: quiet(s),
            "a field of that name": lambda s: s["random"] + s.normal,
            "the other method": two.prepare,
            "of an object": lambda s: two.prepare(s),
            "annotation": annotated,
            "builtin": len,
            "numpy": numpy.square,
            "an object that resists": lambda s: strange,
            "torch": lambda s: torch.tensor(s).normal,
            "os": lambda s: os.path.join(s),
        }
        for name, function in functions.items():
            with self.subTest(name):
                self.assertIsNone(draws(function))

    def test_it_ends_with_large_and_circular_things(self) -> None:
        circle: list[Any] = []
        circle.append(circle)
        many = [(number, [number]) for number in range(100_000)]
        self.assertIsNone(draws(lambda s: (circle, many)))
        self.assertIsNotNone(draws(lambda s: (circle, many, GENERATOR)))


if __name__ == "__main__":
    support.main()
