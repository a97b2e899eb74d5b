"""What an exception says to programs: stage, source, sample, byte, memory."""

# sanitizers: yes

from __future__ import annotations

import pickle
import unittest
from typing import Any

import numpy
import support

import brim


def refuse(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["x"] == 7:
        raise ValueError("no sevens")
    return sample


def always(sample: dict[str, Any]) -> bool:
    return True


class Failures(support.Case):
    def test_a_text_that_is_wrong(self) -> None:
        text = 'npy "ä" | shuffle sed=7 | batch 2'
        with self.assertRaises(brim.PipelineError) as caught:
            brim.pipeline(text)
        error = caught.exception
        self.assertEqual(error.status, "BRIM_STATUS_SYNTAX")
        self.assertEqual((error.stage, error.stage_index, error.argument), ("shuffle", 1, "sed"))
        begin, end = error.span
        self.assertEqual(text.encode()[begin:end], b"shuffle sed=7")
        self.assertEqual((error.source, error.sample, error.byte), (None, None, None))
        self.assertEqual((error.wanted, error.minimum, error.exact), (None, None, None))
        self.assertEqual(error.holders, ())
        copy = pickle.loads(pickle.dumps(error))
        self.assertEqual((copy.stage, copy.span, str(copy)), ("shuffle", error.span, str(error)))

    def test_an_argument_of_a_method(self) -> None:
        with self.assertRaises(brim.PipelineError) as caught:
            brim.Pipeline("range 8").batch(0)
        self.assertEqual(caught.exception.stage, "batch")
        self.assertEqual(caught.exception.argument, "rows")
        self.assertIsNone(caught.exception.span)

    def test_a_corrupt_file(self) -> None:
        path = self.folder / "bad.npy"
        path.write_bytes(b"x" * 64)
        with self.assertRaises(brim.DataError) as caught, brim.Runtime() as runtime:
            runtime.open(brim.npy(path).batch(2))
        error = caught.exception
        self.assertEqual((error.source, error.byte, error.stage), (str(path), 0, "npy"))
        self.assertEqual(error.status, "BRIM_STATUS_CORRUPT")

    def test_a_bad_sample(self) -> None:
        data = brim.array(numpy.arange(16)).map(refuse, version=1).batch(4)
        for threads in (0, 2):
            with (
                self.assertRaises(brim.FunctionError) as caught,
                brim.Runtime(threads=threads) as runtime,
                runtime.open(data) as loader,
            ):
                for _ in loader:
                    pass
            error = caught.exception
            self.assertEqual((error.stage, error.stage_index, error.sample), ("map", 1, 7))
            begin, end = error.span
            self.assertTrue(data.text[begin:end].startswith("map @refuse"))
            self.assertEqual(str(error.__cause__), "no sevens")

    def test_too_many_bad_samples_have_the_cause_of_the_first(self) -> None:
        data = brim.array(numpy.arange(16)).map(refuse, version=1)
        for batch in (data.batch(4, on_error="skip", max_errors=0),
                      data.filter(always, version=1).batch(
                          4, on_error="skip", max_errors=0)):  # fmt: skip
            with (
                self.assertRaises(brim.DataError) as caught,
                brim.Runtime() as runtime,
                runtime.open(batch) as loader,
            ):
                for _ in loader:
                    pass
            self.assertEqual(str(caught.exception.__cause__), "no sevens")
            self.assertNotIn("returned", str(caught.exception))

    def test_what_does_not_fit(self) -> None:
        data = brim.Pipeline("range 100000 | batch 100000")
        with self.assertRaises(brim.BudgetError) as caught:
            with brim.Runtime(memory="256KiB", threads=0) as runtime:
                runtime.open(data)
        error = caught.exception
        self.assertTrue(error.exact)
        self.assertGreater(error.wanted, 1_600_000)
        self.assertTrue(all(label and size > 0 for label, size in error.holders))
        with brim.Runtime(**error.minimum, threads=0) as runtime, runtime.open(data) as loader:
            self.assertEqual(next(iter(loader)).rows, 100_000)
        less = {name: size - 1 for name, size in error.minimum.items()}
        with self.assertRaises(brim.BudgetError), brim.Runtime(**less, threads=0) as runtime:
            runtime.open(data)

    def test_a_refused_charge_names_the_holder(self) -> None:
        with brim.Runtime(memory="16MiB", threads=0) as runtime:
            charge = runtime.charge("12MiB")
            with self.assertRaises(brim.BudgetError) as caught:
                runtime.charge("8MiB")
            del charge
        error = caught.exception
        self.assertEqual(error.wanted, 8 << 20)
        self.assertGreaterEqual(error.holders[0][1], 12 << 20)
        self.assertGreaterEqual(error.minimum["memory"], 20 << 20)

    def test_errors_of_the_package_itself_know_nothing(self) -> None:
        error = brim.PipelineError("by hand")
        self.assertIsNone(error.stage)
        self.assertIsNone(error.status)
        self.assertEqual(error.holders, ())


class Walking(unittest.TestCase):
    def test_places_are_characters_of_the_text(self) -> None:
        text, stages = brim._core.parse(
            'zip (npy "ä b" map=yes) (npy c name=d) | batch 4 per=global'
        )
        spelled = [text[stage["begin"] : stage["end"]] for stage in stages]
        self.assertEqual(
            spelled,
            ['zip (npy "ä b" map=yes) (npy c name=d)', 'npy "ä b" map=yes', "npy c name=d",
             "batch 4 per=global"],
        )  # fmt: skip
        self.assertEqual([stage["parent"] for stage in stages], [None, 0, 0, None])
        self.assertEqual([stage["branch"] for stage in stages], [0, 0, 1, 0])
        values = {value["argument"]: value for value in stages[1]["values"]}
        self.assertIs(values["map"]["value"], True)
        self.assertEqual(values["files"]["value"], "ä b")
        self.assertEqual(text[values["files"]["begin"] : values["files"]["end"]], '"ä b"')
        self.assertFalse(values["name"]["given"])
        batch = {value["argument"]: value["value"] for value in stages[3]["values"]}
        self.assertEqual((batch["rows"], batch["per"], batch["on_error"]), (4, "global", "fail"))


if __name__ == "__main__":
    support.main()
