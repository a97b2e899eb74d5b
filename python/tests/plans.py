"""A plan says what opening does: the property that tests of every way of opening share.

    plans.check(self, plan, take, folder)

`plan(data, **options)` is what says, `take(data, **options)` opens with the same options, takes an
epoch and gives its number of batches. Options are memory or runtime, and whatever `extra` has.
"""

from __future__ import annotations

import pathlib
import re
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import brim
import numpy
import support

PAGE = 4096
ROWS = 96
X = numpy.arange(ROWS * 600, dtype=numpy.float32).reshape(ROWS, 600)


def double(sample: Any) -> Any:
    return {"x": numpy.asarray(sample["x"]) * 2}


def positive(sample: Any) -> bool:
    return float(numpy.asarray(sample["x"])[0]) >= 0


def pipelines(folder: pathlib.Path) -> Iterator[tuple[str, Any]]:
    """Pipelines of every kind of plan, each of 96 samples."""
    rows = brim.array(X, name="x")
    yield "array", rows.shuffle(seed=1).batch(16)
    yield "padded", rows.batch(40, remainder="pad")
    yield "sequenced", rows.filter(positive).batch(16)
    yield "function", rows.map(double).batch(16)
    yield "processes", rows.map(double, processes=1).batch(16)
    yield "cached", rows.cache().batch(16)
    support.drawn_set(folder / "images", 12)
    yield "images", brim.folder(folder / "images").decode().resize(24).center_crop(24).batch(4)


def refusal(ask: Callable[[], Any]) -> str:
    """Why it does not fit: the plan's reason or the error's text; "" if it fits."""
    try:
        result = ask()
    except brim.BudgetError as error:
        return str(error)
    return "" if not isinstance(result, brim.Plan) or result.fits else result.reason


def named(text: str) -> list[str]:
    """The budget that a refusal names."""
    return re.findall(r"budget of (\d+) bytes|give at least ([\d.]+ \w+)", text)


def check(
    case: unittest.TestCase,
    plan: Callable[..., Any],
    take: Callable[..., int],
    folder: pathlib.Path,
    without: tuple[str, ...] = (),
    **extra: Any,
) -> None:
    """At the minimum that the plan tells it opens and delivers, a page below both refuse with the
    same number; and they agree where others have taken a part of the budget."""
    for name, data in pipelines(folder):
        if name in without:
            continue
        with case.subTest(name, **extra):
            made = plan(data, memory="256MiB", **extra)  # lists files, where there are any
            minimum = plan(data, memory="256MiB", **extra).minimum_bytes
            known = plan(data, memory=minimum, **extra)
            case.assertTrue(made.fits and known.fits, known.reason)
            case.assertEqual(known.minimum_bytes, minimum)
            batches = take(data, memory=minimum, **extra)
            if known.batches is not None:
                case.assertEqual(batches, known.batches)
            case.assertGreater(batches, 0)
            less = minimum - PAGE
            said = refusal(lambda: plan(data, memory=less, **extra))
            got = refusal(lambda: take(data, memory=less, **extra))
            case.assertNotEqual(said, "")
            case.assertEqual(named(said), named(got))
            case.assertTrue(named(said), said)
            limit = 4 * minimum + (1 << 20)
            with brim.Runtime(limit, threads=2) as runtime:
                agree(case, plan, take, data, runtime, minimum, extra)
                # a loader that has all it can use, and must give up what is elastic of it
                with runtime.open("range 65536 | batch 4096", fixed=True) as other:
                    next(iter(other))
                    agree(case, plan, take, data, runtime, minimum, extra)


def agree(
    case: unittest.TestCase,
    plan: Callable[..., Any],
    take: Callable[..., int],
    data: Any,
    runtime: brim.Runtime,
    minimum: int,
    extra: dict[str, Any],
) -> None:
    """They do wherever others have taken a part of the runtime's budget."""
    usage = runtime.usage()
    free = usage["limit"] - usage["charged"] + usage["elastic"]
    seen = set()
    for left in (minimum // 2, minimum - PAGE, minimum, minimum + PAGE, 2 * minimum):
        runtime.charge(free - left)
        said = refusal(lambda: plan(data, runtime=runtime, **extra))
        got = refusal(lambda: take(data, runtime=runtime, **extra))
        case.assertEqual(said == "", got == "", f"{left} left: {said!r}, {got!r}")
        runtime.uncharge(free - left)
        seen.add(said == "")
    case.assertEqual(seen, {True, False})
