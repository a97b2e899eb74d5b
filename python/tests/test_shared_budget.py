"""One budget for several processes, by its name."""

# sanitizers: yes

from __future__ import annotations

import os
import subprocess
import sys
import unittest

import brim
import support

MIB = support.MIB
DATA = "range 1000 | shuffle seed=7 | batch 8"

# Says a line when it has what it was told to take, and ends when it is told so.
OTHER = """
import sys, brim
name, amount = sys.argv[1:]
runtime = brim.Runtime(shared=name, threads=1)
runtime.charge(int(amount))
print("taken", flush=True)
sys.stdin.readline()
"""


class Shared(support.Case):
    def setUp(self) -> None:
        super().setUp()
        self.name = f"brim-test-{os.getpid()}-{self._testMethodName}"[:64]

    def runtime(self, **options) -> brim.Runtime:
        options.setdefault("shared", self.name)
        runtime = brim.Runtime(**{"threads": 1, **options})
        self.addCleanup(runtime.close)
        return runtime

    def other(self, amount: int) -> subprocess.Popen[str]:
        """Another process that has taken so much."""
        process = subprocess.Popen(
            [sys.executable, "-c", OTHER, self.name, str(amount)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.stdout.readline(), "taken\n")
        return process

    def test_processes_together_stay_inside(self) -> None:
        runtime = self.runtime(shared_memory="64MiB")
        usage = runtime.usage()
        self.assertEqual(usage["limit"], 64 * MIB)
        self.assertEqual((usage["shared"]["limit"], usage["shared"]["processes"]), (64 * MIB, 1))
        self.assertIn(self.name, usage["origin"])
        process = self.other(40 * MIB)
        shared = runtime.usage()["shared"]
        self.assertEqual(shared["processes"], 2)
        self.assertGreaterEqual(shared["used"], 40 * MIB)
        self.assertRegex(str(runtime.usage()), r"(?m)^shared: 4\d\.\d MiB of 64\.0 MiB, by 2 proc")
        with self.assertRaisesRegex(brim.BudgetError, rf"process {process.pid} \(.*\) 4\d\.\d MiB"):
            runtime.charge("30MiB")
        with runtime.open(DATA) as loader:
            self.assertEqual(sum(batch.rows for batch in loader), 1000)
        process.stdin.write("\n")
        process.stdin.flush()
        self.assertEqual(process.wait(), 0)
        runtime.charge("30MiB")
        self.assertEqual(runtime.usage()["shared"]["processes"], 1)

    def test_what_a_killed_process_had_is_free_again(self) -> None:
        runtime = self.runtime(shared_memory="64MiB")
        process = self.other(40 * MIB)
        process.kill()
        process.wait()
        runtime.charge("40MiB")

    def test_a_runtime_may_have_less(self) -> None:
        first = self.runtime(shared_memory="64MiB")
        second = self.runtime(memory="16MiB", shared_memory="64MiB")
        self.assertEqual(second.usage()["limit"], 16 * MIB)
        self.assertEqual(first.usage()["shared"]["processes"], 1)
        with self.assertRaises(brim.BudgetError):
            second.charge("17MiB")
        first.charge("55MiB")
        with self.assertRaises(brim.BudgetError):
            second.charge("12MiB")
        first.uncharge("55MiB")
        second.charge("12MiB")

    def test_refusals(self) -> None:
        self.runtime(shared_memory="64MiB")
        with self.assertRaisesRegex(brim.PipelineError, f"{64 * MIB}"):
            self.runtime(shared_memory="32MiB")
        for wrong in ("a/b", "", "x" * 65):
            with self.subTest(wrong), self.assertRaises(brim.PipelineError):
                self.runtime(shared=wrong, shared_memory="64MiB")
        with self.assertRaisesRegex(ValueError, "shared_memory= needs shared="):
            brim.Runtime(shared_memory="1MiB")
        with self.assertRaisesRegex(TypeError, "shared is the name"):
            brim.Runtime(shared=3)
        self.assertIsNone(brim.Runtime("16MiB", threads=0).usage()["shared"])


if __name__ == "__main__":
    support.main()
