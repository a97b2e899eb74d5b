"""Runtimes, plans and usage from Python; the runtime that a process shares."""
# sanitizers: yes

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import unittest

import support

import brim
from brim import _bytes, _runtime

MIB = support.MIB
DATA = "range 1000 | shuffle seed=7 | cast float32 | batch 8"
LARGE = "range 100000 | batch 20000"


class Amounts(unittest.TestCase):
    def test_units(self) -> None:
        amounts = {
            268435456: 268435456,
            "256MiB": 256 * MIB,
            " 1 GiB ": 1024 * MIB,
            "1_000kB": 1000000,
            "3MB": 3000000,
            "2GB": 2 * 10**9,
            "64KiB": 65536,
            "512B": 512,
            "512": 512,
            "1TiB": 2**40,
        }
        for amount, count in amounts.items():
            self.assertEqual(_bytes.read_bytes(amount), count, amount)

    def test_are_those_of_the_text(self) -> None:
        for unit in ("", "B", "KiB", "MiB", "GiB", "TiB", "kB", "MB", "GB", "TB"):
            count = _bytes.read_bytes("1" + unit)
            for size in (f"1{unit}", count):
                if count <= 2**40:
                    text = str(brim.text("a", max_bytes=size))
                    self.assertEqual(text, str(brim.text("a", max_bytes=count)), unit)

    def test_refusals(self) -> None:
        for wrong in ("", "MiB", "256 M", "256mib", "1.5GiB", "-1MiB", "0", 0, -5, 2**63, "8EiB"):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "^memory"):
                brim.Runtime(wrong)
        for wrong in (1.5, True, b"1MiB", [1]):
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, "^memory is an int or"):
                brim.Runtime(wrong)

    def test_text(self) -> None:
        texts = {0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 131072: "128.0 KiB", 2**30: "1.0 GiB"}
        for count, text in texts.items():
            self.assertEqual(_bytes.bytes_text(count), text)


class Running(support.Case):
    def test_opens_pipelines_and_texts(self) -> None:
        for data in (brim.pipeline(DATA), DATA):
            with brim.Runtime(memory="16MiB", threads=1) as runtime:
                with runtime.open(data) as loader:
                    epochs = [sum(batch.rows for batch in epoch) for epoch in loader.epochs(2)]
                self.assertEqual(epochs, [1000, 1000])
            self.assertTrue(runtime.closed)
            with self.assertRaises(brim.ClosedError):
                runtime.open(data)

    def test_options_reach_c(self) -> None:
        with brim.Runtime("16MiB", threads=0) as runtime:
            with runtime.open(DATA, hold=3, rank=1, world=2, label="mine", slots=5) as loader:
                self.assertEqual(loader.hold, 3)
                self.assertEqual(loader.plan["batches"], 63)
                self.assertLessEqual(loader.plan["slots"], 5)
                self.assertIn("mine", [holder["label"] for holder in runtime.usage()["holders"]])
            with self.assertRaises(TypeError):
                runtime.open(DATA, shards=2)

    def test_wrong_options_are_refused_by_their_names(self) -> None:
        with brim.Runtime("16MiB", threads=0) as runtime:
            for call in (runtime.open, runtime.plan):
                for options in ({"hold": 0}, {"rank": 2, "world": 2}, {"rank": -1}, {"world": 0}):
                    with self.assertRaisesRegex(ValueError, next(iter(options))):
                        call(DATA, **options)
                for options in ({"hold": "2"}, {"rank": 0.5}, {"world": True}, {"progress": 3}):
                    with self.assertRaisesRegex(TypeError, next(iter(options))):
                        call(DATA, **options)
                with self.assertRaisesRegex(TypeError, "data is a Pipeline or its text, not int"):
                    call(3)
            with self.assertRaisesRegex(TypeError, "label"):
                runtime.open(DATA, label=3)

    def test_a_for_loop_needs_no_more_than_the_default_hold(self) -> None:
        with brim.Runtime("16MiB") as runtime, runtime.open(DATA) as loader:
            for batch in loader:
                first = batch
            self.assertEqual(first.step, 124)

    def test_too_small(self) -> None:
        plan = brim.pipeline(LARGE).plan("256KiB", threads=0)
        self.assertFalse(plan.fits)
        with brim.Runtime(plan.minimum_bytes - 1, threads=0) as runtime:
            with self.assertRaises(brim.BudgetError) as caught:
                runtime.open(LARGE)
        self.assertIsInstance(caught.exception, MemoryError)
        with brim.Runtime(plan.minimum_bytes, threads=0) as runtime, runtime.open(LARGE) as loader:
            self.assertEqual(sum(batch.rows for batch in loader), 100000)
        with self.assertRaises(brim.BudgetError):
            brim.Runtime("1KiB")

    def test_charge(self) -> None:
        with brim.Runtime("16MiB") as runtime:
            before = runtime.usage()["charged"]
            runtime.charge("10MiB")
            self.assertEqual(runtime.usage()["charged"], before + 10 * MIB)
            with self.assertRaises(brim.BudgetError):
                runtime.charge(10 * MIB)
            runtime.uncharge("10MiB")
            self.assertEqual(runtime.usage()["charged"], before)

    def test_no_more_is_uncharged_than_was_charged(self) -> None:
        with brim.Runtime("16MiB", threads=0) as runtime, runtime.open(DATA):
            before = runtime.usage()["charged"]
            runtime.charge("1MiB")
            with self.assertRaisesRegex(ValueError, "only 1.0 MiB"):
                runtime.uncharge((1 << 20) + 1)
            runtime.uncharge("1MiB")
            self.assertRaises(ValueError, runtime.uncharge, 1)
            self.assertEqual(runtime.usage()["charged"], before)

    def test_trim_gives_back(self) -> None:
        with brim.Runtime("64MiB", threads=0) as runtime:
            with runtime.open("range 100000 | batch 1000", fixed=True) as loader:
                next(iter(loader))
                self.assertEqual(runtime.usage()["loaders"], 1)
                self.assertGreater(runtime.trim(), 0)
                self.assertEqual(runtime.usage()["elastic"], 0)

    def test_index_directory(self) -> None:
        (self.folder / "a.txt").write_text("one\ntwo\n")
        cache = self.folder / "cache"
        cache.mkdir()
        with brim.Runtime("16MiB", index_dir=cache) as runtime:
            plan = runtime.plan(brim.text(self.folder / "a.txt"))
        self.assertEqual([index["records"] for index in plan.indexes], [2])
        self.assertTrue(plan.indexes[0]["path"].startswith(str(cache)))

    def test_progress_is_told_and_may_give_up(self) -> None:
        (self.folder / "a.txt").write_text("line\n" * 1000)
        data = brim.text(self.folder / "a.txt").batch(8)
        told = []

        def give_up(what: str, done: int, total: int | None, unit: str) -> None:
            told.append((what, done, total, unit))
            raise InterruptedError("enough")

        with brim.Runtime("16MiB", index_dir=self.folder) as runtime:
            for call in (runtime.open, runtime.plan):
                with self.assertRaisesRegex(InterruptedError, "enough"):
                    call(data, progress=give_up)
            self.assertEqual(told[-1][1:], (5000, 5000, "bytes"))
            self.assertIn("a.txt", told[-1][0])
            self.assertEqual(runtime.usage()["loaders"], 0)

    def test_repr_and_usage_are_readable(self) -> None:
        with brim.Runtime("16MiB") as runtime, runtime.open(DATA, label="train") as loader:
            next(iter(loader))
            self.assertIn("16.0 MiB, 1 loader>", repr(runtime))
            usage = runtime.usage()
            lines = str(usage).splitlines()
            self.assertIn("of 16.0 MiB", lines[0])
            self.assertTrue(any(re.match(r"\s+train ", line) for line in lines), str(usage))
            self.assertEqual(usage["limit"], 16 * MIB)
            self.assertEqual(usage["processes"], [])
        self.assertEqual(repr(runtime), "<brim.Runtime, closed>")


class Plans(support.Case):
    def test_figures(self) -> None:
        plan = brim.pipeline(DATA).plan(memory="16MiB", hold=1, threads=0)
        self.assertIsInstance(plan, brim.Plan)
        self.assertIsInstance(plan, dict)
        self.assertEqual((plan.samples, plan.batches), (1000, 125))
        self.assertEqual((plan.fits, plan.reason), (True, ""))
        self.assertEqual(plan.limit_bytes, plan["limit_bytes"])
        self.assertEqual([stage["name"] for stage in plan.stages],
                         ["range", "shuffle", "cast", "batch"])  # fmt: skip
        (field,) = plan.fields
        self.assertEqual(
            (field["name"], field["dtype"], tuple(field["shape"]), field["form"]),
            ("index", "float32", (8,), "dense"),
        )
        self.assertEqual(plan.hold, 1)
        self.assertEqual(plan.threads, 0)
        with self.assertRaisesRegex(AttributeError, "no 'sample'.*samples"):
            plan.sample
        self.assertEqual(pickle.loads(pickle.dumps(plan)), plan)
        self.assertIn("minimum_bytes", dir(plan))

    def test_declared_figures_are_those_that_c_gives(self) -> None:
        self.assertEqual(set(brim.Plan.__annotations__), set(brim.pipeline(DATA).plan("16MiB")))

    def test_prints_as_the_command_line(self) -> None:
        text = str(brim.pipeline(DATA).plan("16MiB", hold=1))
        for part in (
            r"^stage +at most  puts out$",
            r"^range 1000 name=index +[\d.]+ (Ki)?B  1000 samples, index int64 scalar$",
            r"^\+ cast float32 ",
            r"^\(\+ is done in one pass with the stage before it\)$",
            r"^index  float32  8 +32 B$",
            r"^epoch +1,000 samples, 125 batches$",
            r"^minimum +[\d.]+ KiB \(\d+ bytes\)$",
            r"^slots +\d+, at least 2 for hold=1$",
            r"^fits +yes$",
        ):
            self.assertRegex(text, re.compile(part, re.MULTILINE))
        self.assertEqual(repr(brim.pipeline(DATA).plan("16MiB", hold=1)), text)
        command = os.environ.get("BRIM_CLI")
        if command:
            shown = subprocess.run(
                [command, "plan", DATA, "--memory", "16MiB"], capture_output=True, text=True
            ).stdout
            self.assertEqual(shown.split("\n\n")[:2], text.split("\n\n")[:2])

    def test_one_that_does_not_fit_says_why(self) -> None:
        plan = brim.pipeline(LARGE).plan("256KiB")
        self.assertRegex(str(plan), r"(?m)^fits +no: .+")
        self.assertGreater(plan.minimum_bytes, 256 * 1024)

    def test_html_is_escaped(self) -> None:
        page = brim.range(10).filter("index < 5").batch(2).plan("16MiB")._repr_html_()
        self.assertIn("<table>", page)
        self.assertIn("index &lt; 5", page)
        self.assertIn("unknown", page)

    def test_classes(self) -> None:
        support.drawn_set(self.folder, 6)
        plan = brim.folder(self.folder, index="beside").plan("64MiB")
        self.assertEqual(plan.classes, {"label": ["class0", "class1", "class2"]})
        self.assertEqual(plan.samples, 6)


class Implicit(support.Case):
    def setUp(self) -> None:
        super().setUp()
        if _runtime._implicit is not None:
            _runtime._implicit.close()

    def test_is_one(self) -> None:
        runtime = brim.runtime("16MiB")
        self.assertIs(brim.runtime(), runtime)
        self.assertIs(brim.runtime(16 * MIB), runtime)
        self.assertEqual(runtime.usage()["limit"], 16 * MIB)

    def test_other_memory_is_refused_while_a_loader_is_open(self) -> None:
        runtime = brim.runtime("16MiB")
        with runtime.open(DATA):
            with self.assertRaisesRegex(ValueError, r"16\.0 MiB.*1 open loader.*runtime=brim"):
                brim.runtime("32MiB")
            self.assertIs(brim.runtime(), runtime)
        other = brim.runtime("32MiB")
        self.assertIsNot(other, runtime)
        self.assertTrue(runtime.closed)
        self.assertEqual(other.usage()["limit"], 32 * MIB)

    def test_is_made_again_when_closed(self) -> None:
        runtime = brim.runtime("16MiB")
        runtime.close()
        self.assertFalse(brim.runtime().closed)

    def test_wrong_memory_changes_nothing(self) -> None:
        runtime = brim.runtime("16MiB")
        with self.assertRaises(ValueError):
            brim.runtime("16 M")
        self.assertFalse(runtime.closed)

    @unittest.skipIf(support.SANITIZED, "the sanitizer's malloc may be locked in a child")
    def test_a_child_makes_its_own(self) -> None:
        parent = brim.runtime("16MiB")
        with parent.open(DATA) as loader:
            next(iter(loader))
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    own = brim.runtime("8MiB")
                    with own.open(DATA) as its:
                        code = 0 if own is not parent and sum(b.rows for b in its) == 1000 else 2
                finally:
                    os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.assertIs(brim.runtime(), parent)

    def test_the_interpreter_ends_with_a_loader_open(self) -> None:
        script = (
            "import brim\n"
            f"loader = brim.runtime('16MiB').open({DATA!r})\n"
            "batch = next(iter(loader))\n"
            "print('end')\n"
        )
        run = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, cwd=self.folder
        )
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "end\n", ""))


if __name__ == "__main__":
    support.main()
