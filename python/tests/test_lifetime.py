"""Nothing leaks, hangs or crashes: many epochs and resets, early ends, exceptions, cycles, threads,
fork, and interpreters that end with a loader open."""

# sanitizers: yes

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Callable

import brim
import support

numpy = support.need("numpy")


def resident() -> int:
    """Resident bytes, counted page by page."""
    with open("/proc/self/smaps_rollup") as lines:
        for line in lines:
            if line.startswith("Rss:"):
                return int(line.split()[1]) << 10
    raise AssertionError("no Rss")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Steady(support.Case):
    @unittest.skipIf(support.SANITIZED, "the sanitizer keeps freed memory")
    def test_epochs_and_resets(self) -> None:
        pixels = numpy.zeros((256, 8192), dtype=numpy.uint8)
        data = brim.array(pixels, name="x").shuffle(seed=1).cast("float32").batch(32)
        # Three slots, the minimum: a fourth one, of 1 MiB, may come and go at any time.
        with (
            brim.Runtime(memory="24MiB", threads=2) as runtime,
            runtime.open(data, slots=3) as loader,
        ):
            figures = []
            for reset in range(1000):
                iterator = iter(loader)
                for _ in range(3):
                    next(iterator)
                if reset in (100, 999):
                    figures.append(resident())
            self.assertLess(figures[1] - figures[0], 1 * support.MIB)
            for epoch in loader.epochs(200):
                for batch in epoch:
                    numpy.asarray(batch["x"])
                if epoch.number % 100 == 99:
                    figures.append(resident())
            self.assertLess(abs(figures[-1] - figures[1]), 4 * support.MIB)

    @unittest.skipIf(support.SANITIZED, "the sanitizer keeps freed memory")
    def test_opening_and_closing(self) -> None:
        text = "range 1000 | batch 10"

        def use() -> None:
            with brim.Runtime(memory="16MiB", threads=2) as runtime:
                with runtime.open(text) as loader:
                    for _ in loader:
                        pass

        for _ in range(20):
            use()
        before = resident(), descriptors(), threading.active_count()
        for _ in range(300):
            use()
        self.assertLess(resident() - before[0], 2 * support.MIB)
        self.assertEqual((descriptors(), threading.active_count()), before[1:])


class Ends(support.Case):
    def setUp(self) -> None:
        super().setUp()
        self.runtime = brim.Runtime(memory="64MiB", threads=2)
        self.addCleanup(self.runtime.close)

    def loaders(self) -> int:
        return self.runtime.usage()["loaders"]

    def test_del_closes(self) -> None:
        loader = self.runtime.open("range 1000 | batch 10")
        next(iter(loader))
        self.assertEqual(self.loaders(), 1)
        del loader
        gc.collect()
        self.assertEqual(self.loaders(), 0)

    def test_an_exception_in_the_loop(self) -> None:
        with self.runtime.open("range 1000 | batch 10") as loader:
            with self.assertRaises(ZeroDivisionError):
                for batch in loader:
                    1 / 0  # noqa: B018
            del batch
            self.assertEqual(sum(batch.rows for batch in loader), 1000)
        self.assertEqual(self.loaders(), 0)

    def test_cycles_are_collected(self) -> None:
        def open_in_a_cycle() -> None:
            cycle: list[object] = []

            def function(sample: dict) -> dict:
                return sample if cycle is not None else {}

            data = brim.range(100).map(function, out={"index": ("int64", ())}).batch(10)
            loader = self.runtime.open(data)
            cycle.append(loader)
            next(iter(loader))

        open_in_a_cycle()
        self.assertTrue(support.collected(lambda: self.loaders() == 0))

    def test_iterators_and_views_in_cycles_are_collected(self) -> None:
        class Program:
            def __init__(self, runtime: brim.Runtime, what: str) -> None:
                data = brim.range(100).map(self.function, out={"index": ("int64", ())}).batch(10)
                self.loader = runtime.open(data)
                self.kept = {
                    "iterator": lambda: iter(self.loader),
                    "epochs": lambda: self.loader.epochs(),
                    "epoch": lambda: next(self.loader.epochs()),
                    "batch": lambda: self.loader.next(),
                    "array": lambda: self.loader.next()["index"],
                }[what]()

            def function(self, sample: dict) -> dict:
                return sample

        for what in ("iterator", "epochs", "epoch", "batch", "array"):
            Program(self.runtime, what)
            self.assertTrue(support.collected(lambda: self.loaders() == 0), what)

    def test_numpy_views_in_cycles_are_collected(self) -> None:
        """The collector does not see through numpy's arrays, but the program's cycle is its own."""

        class Program:
            def __init__(self, runtime: brim.Runtime, double: Callable[[dict], dict]) -> None:
                data = brim.range(100).map(double, out={"index": ("int64", ())}).batch(10)
                self.me, self.loader = self, runtime.open(data)
                self.kept = [numpy.asarray(self.loader.next()["index"])[2:]]
                self.kept.append(self.kept)

        def double(sample: dict) -> dict:
            return {"index": sample["index"] * 2}

        charged = self.runtime.usage()["charged"]
        for _ in range(3):
            program = Program(self.runtime, double)
            self.assertEqual(program.kept[0].tolist(), list(range(4, 20, 2)))
            lending = program.loader
            self.assertEqual(lending.lent, 1)
            del program, lending
            self.assertTrue(support.collected(lambda: self.loaders() == 0))
        self.runtime.trim()
        self.assertEqual(self.runtime.usage()["charged"], charged)

    def test_the_collector_closes_a_loader_that_is_looked_at(self) -> None:
        """A finaliser may run in the middle of stats() and plan."""

        class Closes:
            def __init__(self, loader: brim.Loader) -> None:
                self.me, self.loader = self, loader

            def __del__(self) -> None:
                self.loader.close()

        threshold = gc.get_threshold()
        self.addCleanup(gc.set_threshold, *threshold)
        for look in (lambda loader: loader.stats(), lambda loader: loader.plan):
            for _ in range(20):
                loader = self.runtime.open("range 1000 | shuffle seed=1 | batch 10")
                Closes(loader)
                gc.set_threshold(1)
                look(loader)
                gc.set_threshold(*threshold)
                gc.collect()
                self.assertTrue(loader.closed)

    def test_closing_a_runtime_that_is_in_use(self) -> None:
        class Closes:
            def __init__(self, runtime: brim.Runtime) -> None:
                self.runtime = runtime

            def __index__(self) -> int:
                self.runtime.close()
                return 1 << 20

        runtime = brim._core.Runtime(1 << 24)
        with self.assertRaises(brim.ClosedError):
            runtime.charge(Closes(runtime))
        for _ in range(20):
            runtime = brim._core.Runtime(1 << 24)
            thread = threading.Thread(target=runtime.close)
            thread.start()
            try:
                for _ in range(50):
                    runtime.open("range 1000 | batch 10").close()
            except brim.ClosedError:
                pass
            thread.join()

    def test_a_function_drops_its_own_loader(self) -> None:
        """On a worker, which cannot wait for itself."""
        for drop in ("del", "close"):
            program: dict[str, brim.Loader] = {}
            raised: list[BaseException] = []
            begun = threading.Event()

            def function(sample: dict) -> dict:
                begun.wait(30)
                try:
                    if drop == "del":
                        program.clear()
                    else:
                        program["loader"].close()
                except brim.IterationError as error:
                    raised.append(error)
                return sample

            data = brim.range(4).map(function, out={"index": ("int64", ())}).batch(1)
            program["loader"] = self.runtime.open(data, fixed=True)
            begun.set()
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and (
                self.loaders() > 0 if drop == "del" else not raised
            ):
                time.sleep(0.02)
            if drop == "close":
                self.assertTrue(raised)
                program.clear()
            while time.monotonic() < deadline and self.loaders() > 0:
                time.sleep(0.02)
            self.assertEqual(self.loaders(), 0, drop)

    def test_closing_the_runtime_first(self) -> None:
        runtime = brim.Runtime(memory="16MiB", threads=1)
        loader = runtime.open("range 100 | batch 10")
        iterator = iter(loader)
        next(iterator)
        runtime.close()
        self.assertEqual(sum(batch.rows for batch in iterator), 90)
        with self.assertRaises(brim.ClosedError):
            runtime.open("range 100 | batch 10")
        loader.close()

    def test_batches_die_on_other_threads(self) -> None:
        with self.runtime.open("range 10000 | batch 10", hold=8) as loader:
            slots: list[brim.Batch] = []
            for batch in loader:
                slots.append(batch)
                del batch
                if len(slots) == 5:
                    dying, slots = slots, []
                    thread = threading.Thread(target=dying.clear)
                    thread.start()
                    thread.join()
            slots.clear()
            self.assertEqual(loader.stats()["lent"], 0)

    @unittest.skipIf(support.SANITIZED, "the sanitizer's malloc may be locked in a child")
    def test_fork(self) -> None:
        def double(sample: dict) -> dict:
            return {"index": sample["index"] * 2}

        data = brim.range(1000).map(double, out={"index": ("int64", ())}).batch(10)
        loader = self.runtime.open(data)
        iterator = iter(loader)
        kept = next(iterator)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(60)
                assert kept["index"].tolist() == list(range(0, 20, 2))
                for call in (lambda: next(iterator), loader.stats, lambda: iter(loader)):
                    try:
                        call()
                    except brim.ClosedError:
                        continue
                    raise AssertionError(call)
                loader.close()
                with brim.Runtime(memory="16MiB", threads=1) as own:
                    with own.open("range 100 | batch 10") as other:
                        assert sum(batch.rows for batch in other) == 100
                code = 0
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        del kept
        self.assertEqual(sum(batch.rows for batch in iterator), 990)
        loader.close()


class Shutdown(unittest.TestCase):
    """Scripts that end in the middle of something: exit code 0 and nothing on stderr."""

    def run_script(self, script: str, code: int = 0) -> str:
        result = subprocess.run(
            [sys.executable, "-c", PRELUDE + script], capture_output=True, text=True, timeout=120
        )
        self.assertEqual((result.returncode, result.stderr), (code, ""), result.stdout)
        return result.stdout

    def test_a_live_loader(self) -> None:
        self.run_script("loader = runtime.open(data); iterator = iter(loader); next(iterator)")

    def test_a_live_view(self) -> None:
        self.run_script(
            "import numpy\nloader = runtime.open(data)\n"
            "view = numpy.asarray(next(iter(loader))['index'])"
        )

    def test_a_thread_inside_next(self) -> None:
        self.run_script(
            "import threading, time\n"
            "def slow(sample):\n    time.sleep(0.05)\n    return sample\n"
            "data = brim.range(1000).map(slow, out={'index': ('int64', ())}).batch(10)\n"
            "loader = runtime.open(data)\n"
            "def take():\n"
            "    try:\n        [None for _ in loader]\n"
            "    except brim.Error:\n        pass\n"
            "threading.Thread(target=take, daemon=True).start()\n"
            "time.sleep(0.3)"
        )

    @unittest.skipIf(support.SANITIZED, "the sanitizer's malloc may be locked in a child")
    def test_a_forked_child_that_exits(self) -> None:
        self.run_script(
            "import os\nloader = runtime.open(data); next(iter(loader))\n"
            "if os.fork() == 0:\n"
            "    loader.close()\n"
            "    del loader\n"
            "    raise SystemExit(0)\n"
            "assert os.wait()[1] == 0\n"
            "if os.fork() == 0:\n    raise SystemExit(0)\n"
            "assert os.wait()[1] == 0"
        )

    def test_daemon_threads_that_open(self) -> None:
        self.run_script(
            "import threading, time\n"
            "def work():\n"
            "    while True:\n"
            "        try:\n            runtime.open(data).close()\n"
            "        except brim.Error:\n            return\n"
            "for _ in range(3): threading.Thread(target=work, daemon=True).start()\n"
            "time.sleep(0.2)"
        )

    def test_sys_exit_in_the_loop(self) -> None:
        self.run_script("for batch in runtime.open(data): raise SystemExit(7)", code=7)

    def test_functions_are_running(self) -> None:
        self.run_script(
            "def add(sample):\n    return {'index': sample['index'] + 1}\n"
            "data = brim.range(10**6).map(add, out={'index': ('int64', ())}).batch(10)\n"
            "loader = runtime.open(data)\n"
            "for step, batch in enumerate(loader):\n    if step == 20: break"
        )


PRELUDE = """
import brim
runtime = brim.Runtime(memory="32MiB", threads=2)
data = brim.range(1000).shuffle(seed=1).batch(10)
"""

if __name__ == "__main__":
    support.main()
