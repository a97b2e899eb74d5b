"""Functions in worker processes: the same bytes, no copies, and whatever may go wrong with them."""

# sanitizers: yes

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import pathlib
import resource
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import support

numpy = support.need("numpy")

import brim
from brim import _core, _workers

ROWS = 48
X = numpy.arange(ROWS * 6, dtype="float32").reshape(ROWS, 6)
LABEL = numpy.arange(ROWS, dtype="int64") % 5


def source(rows: int = ROWS) -> brim.Pipeline:
    return brim.arrays(x=X[:rows], label=LABEL[:rows])


# Functions live at the top of the script, as most do: every worker imports it, so what takes long
# to import is imported where it is used.


def mix(sample: dict[str, Any], rng: Any) -> dict[str, Any]:
    noise = rng.random(6, dtype="float32")
    return {"x": sample["x"] + noise, "label": sample["label"] * 2, "pid": numpy.int64(os.getpid())}


MIX_OUT = {"x": ("float32", (6,)), "label": ("int64", ()), "pid": ("int64", ())}


def lengthen(sample: dict[str, Any]) -> dict[str, Any]:
    count = int(sample["label"])
    x = numpy.full((count, 2), count, "int32")
    return {"x": x, "text": "äbc" * count, "raw": b"\0" * count}


LENGTHEN_OUT = {"x": ("int32", (5, 2), "ragged"), "text": ("text", 64), "raw": ("bytes", 64)}


def join(sample: dict[str, Any]) -> dict[str, Any]:
    total, size = numpy.int64(sample["x"].sum()), numpy.int64(len(sample["raw"]))
    return {"sum": total, "text": sample["text"] + "!", "size": size}


def is_odd(sample: dict[str, Any]) -> bool:
    return bool(sample["label"] % 2)


def draw(sample: dict[str, Any]) -> dict[str, Any]:
    import random

    return {"draw": numpy.array([random.random(), numpy.random.random()])}


def centre(batch: dict[str, Any], rng: Any) -> None:
    """In place."""
    batch["x"] -= batch["x"].mean(axis=0)
    batch["x"] += rng.random(dtype="float32")
    batch["label"][:] = batch["label"][::-1] + 10


def pair(batch: dict[str, Any]) -> dict[str, Any]:
    batch["x"] += 1  # what it is given may be written here too
    pid = numpy.full(len(batch["x"]), os.getpid(), "int64")
    return {"pair": numpy.stack([batch["x"], batch["x"][::-1]], axis=1), "pid": pid}


PAIR_OUT = {"pair": ("float32", (2, 6)), "pid": "int64"}


class BatchOnce:
    """Changes its batch, and then ends its process or fails, unless its marker is there."""

    def __init__(self, marker: pathlib.Path | None, how: str) -> None:
        self.marker, self.how = marker, how

    def __call__(self, batch: dict[str, Any]) -> None:
        batch["x"] += 1
        if 60 in batch["x"][:, 0] - 1 and not (self.marker and self.marker.exists()):
            if self.marker:
                self.marker.touch()
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyError("no such batch")


class OwnError(Exception):
    def __init__(self, one: object, two: object) -> None:
        super().__init__(f"{one} and {two}")  # so it cannot be made again from its args


def fail_at_7(sample: dict[str, Any]) -> Any:
    if sample["x"][0] == 42:
        raise KeyError("no such thing")
    return sample["x"]


def leave_at_7(sample: dict[str, Any]) -> Any:
    if sample["x"][0] == 42:
        raise SystemExit("enough")
    return sample["x"]


def fail_own(sample: dict[str, Any]) -> Any:
    raise OwnError("this", "that")


class Elements:
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": X[index] * 3, "pid": numpy.int64(os.getpid())}


class Once:
    """Does something to its process at sample `at`, unless its marker is there already."""

    def __init__(self, marker: pathlib.Path | None, how: str, at: int = 10) -> None:
        self.marker, self.how, self.at = marker, how, at

    def __call__(self, sample: dict[str, Any]) -> Any:
        if sample["x"][0] == self.at * 6 and not (self.marker and self.marker.exists()):
            if self.marker:
                self.marker.touch()
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.how == "fork and kill":  # the child of the worker has its socket still
                if os.fork() == 0:
                    time.sleep(4)
                    os._exit(0)
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.how == "exit":
                os._exit(3)
            elif self.how == "hang":
                signal.pause()
            elif self.how == "take memory":
                numpy.empty(1 << 29, "uint8")
            elif self.how == "forbid descriptors":
                forbid_descriptors()
            elif self.how == "keep":
                self.kept = sample["x"]
        return sample["x"] + 1


class WithoutDescriptors:
    """Its process has no descriptors left, from the start."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        forbid_descriptors()

    def __getstate__(self) -> dict[str, Any]:
        return {"not": "empty, so that it is set"}

    def __call__(self, sample: dict[str, Any]) -> Any:
        return sample["x"]


def forbid_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))  # the socket is 3


def forbid_addresses(sample: dict[str, Any]) -> Any:
    """Leaves its process less than a batch has."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + support.MIB
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return sample["x"]


def packet(number: int, result: int, exception: int, text: int, rest: int = 0) -> bytes:
    """A reply of a worker process, by its layout, with `rest` bytes for exception and text."""
    return struct.pack("<QiIII", number, result, exception, text, 0) + bytes(8 * 64 + rest)


class Babbles:
    """Writes packets to its process's socket, one of `packets` at each sample, once if `marker`."""

    def __init__(self, packets: list[bytes], marker: pathlib.Path | None) -> None:
        self.packets, self.marker = packets, marker

    def __call__(self, sample: dict[str, Any]) -> Any:
        number = int(sample["x"][0]) // 6
        marker = self.marker and self.marker.with_suffix(f".{number}")
        if number < len(self.packets) and not (marker and marker.exists()):
            if marker:
                marker.touch()
            os.write(3, self.packets[number])
            os._exit(0)  # so that nothing else is told
        return sample["x"] + 1


def first_number(sample: dict[str, Any]) -> Any:
    return sample["x"][0]


def open_files() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass
    return sorted(found)


def children() -> list[int]:
    found = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            path = pathlib.Path(f"/proc/self/task/{thread}/children")
            found += [int(pid) for pid in path.read_text().split()]
    return found


def run(data: brim.Pipeline, threads: int = 1, epochs: int = 1) -> dict[str, list[Any]]:
    """All rows of all fields."""
    rows: dict[str, list[Any]] = {}
    with brim.Runtime("64MiB", threads=threads) as runtime, runtime.open(data) as loader:
        for epoch in loader.epochs(epochs):
            for batch in epoch:
                for name in batch:
                    rows.setdefault(name, []).extend(batch[name].tolist())
                rows.setdefault("ids", []).extend(batch.ids.tolist())
    return rows


# Seconds in which the program hears of what became of a worker process, new ones started meanwhile.
ANSWER = 120


class Processes(support.Case):
    @contextlib.contextmanager
    def answered(self) -> Iterator[None]:
        """Fails if what is done here, on the main thread, takes longer than ANSWER."""

        def fail(*_: object) -> None:
            raise AssertionError(f"there was no answer in {ANSWER} seconds")

        before = signal.signal(signal.SIGALRM, fail)
        signal.setitimer(signal.ITIMER_REAL, ANSWER)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def setUp(self) -> None:
        super().setUp()
        gc.collect()
        files, before = open_files(), children()

        def look() -> None:
            gc.collect()
            self.assertEqual(_core.processes(), [])
            self.assertEqual(children(), before)
            self.assertEqual(open_files(), files)

        self.addCleanup(look)

    def script(self, body: str) -> subprocess.CompletedProcess[str]:
        path = self.folder / "script.py"
        path.write_text(textwrap.dedent(body))
        return subprocess.run(
            [sys.executable, str(path)], text=True, capture_output=True, timeout=240
        )


class DrawsInElements(Elements):
    """As a Dataset with random transforms."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return draw({})


def draws_above_half(sample: dict[str, Any]) -> bool:
    return draw(sample)["draw"].sum() > 1


def add_draw(batch: dict[str, Any]) -> None:
    batch["x"] += draw(batch)["draw"][0]


class Values(Processes):
    def test_the_generators_of_a_process_are_seeded_for_each_sample(self) -> None:
        """By default, so that the same comes out for any number of processes; the program's own
        are left alone, also where the function is called once to find out what it puts out."""
        import random

        out = {"draw": ("float64", (2,))}
        for name, make in {
            "map": lambda **how: source().map(draw, out=out, **how).batch(8),
            "map, found": lambda **how: source().map(draw, **how).batch(8),
            "filter": lambda **how: source().filter(draws_above_half, **how).batch(8),
            "batch_map": lambda **how: source().batch(8).batch_map(add_draw, out={}, **how),
            "dataset": lambda **how: brim.dataset(DrawsInElements(), **how).batch(8),
        }.items():
            random.seed(1)
            numpy.random.seed(1)
            before = str((random.getstate(), numpy.random.get_state()))
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                expected = run(make(seed=3, seed_globals=True), threads=0, epochs=2)
                for processes in (1, 2, 3) if name == "map" else (2,):
                    with self.subTest(name, processes=processes):
                        found = run(make(seed=3, processes=processes), processes, epochs=2)
                        self.assertEqual(found, expected)
            self.assertEqual(str((random.getstate(), numpy.random.get_state())), before, name)

    def test_seed_globals_false_in_processes(self) -> None:
        data = source().map(draw, out={"draw": ("float64", (2,))}, seed_globals=False, processes=1)
        self.assertNotEqual(run(data.batch(8)), run(data.batch(8)))

    def test_same_bytes_in_threads_and_processes(self) -> None:
        def data(processes: int) -> brim.Pipeline:
            mixed = source().shuffle(seed=3).map(mix, out=MIX_OUT, processes=processes)
            return mixed.batch(7, remainder="keep")

        expected = run(data(0), threads=0, epochs=2)
        own = set(expected.pop("pid"))
        self.assertEqual(own, {os.getpid()})
        for processes in (1, 2):
            for threads in (0, 1, 2):
                with self.subTest(processes=processes, threads=threads):
                    found = run(data(processes), threads, epochs=2)
                    pids = set(found.pop("pid"))
                    self.assertNotIn(os.getpid(), pids)
                    self.assertLessEqual(len(pids), processes)
                    self.assertEqual(found, expected)

    def test_ragged_text_and_bytes(self) -> None:
        def data(processes: int) -> brim.Pipeline:
            made = source().map(lengthen, out=LENGTHEN_OUT, processes=processes)
            return made.batch(8)

        self.assertEqual(run(data(2), 2), run(data(0), 0))

    def test_one_function_after_another(self) -> None:
        out = {"sum": "int64", "text": ("text", 65), "size": "int64"}

        def data(processes: int) -> brim.Pipeline:
            made = source().map(lengthen, out=LENGTHEN_OUT, processes=processes)
            return made.map(join, out=out, processes=processes).batch(8)

        expected = run(data(0), 0)
        self.assertEqual(expected["size"], [int(label) for label in LABEL])
        self.assertEqual(run(data(1), 2), expected)

    def test_filter(self) -> None:
        def data(processes: int) -> brim.Pipeline:
            return source().filter(is_odd, processes=processes).batch(4, remainder="keep")

        expected = run(data(0), 0)
        self.assertEqual(set(expected["label"]), {1, 3})
        self.assertEqual(run(data(2), 2), expected)

    def test_map_behind_filter(self) -> None:
        """Samples that are made into a window, and placed from there."""

        def data(processes: int) -> brim.Pipeline:
            kept = source().map(mix, out=MIX_OUT, processes=processes).filter("label != 4")
            return kept.shuffle(buffer="1KiB").batch(4, remainder="keep")

        expected = run(data(0), 0)
        found = run(data(2), 2)
        del expected["pid"], found["pid"]
        self.assertEqual(found, expected)

    def test_dataset(self) -> None:
        found = run(brim.dataset(Elements(), processes=2).batch(8), 2)
        self.assertEqual(found["x"], (X * 3).tolist())
        self.assertNotIn(os.getpid(), found["pid"])

    def test_seed_globals(self) -> None:
        def data(processes: int) -> brim.Pipeline:
            drawn = source().map(draw, seed_globals=True, processes=processes)
            return drawn.batch(8)

        expected = run(data(0), 0)
        self.assertEqual(len({tuple(row) for row in expected["draw"]}), ROWS)
        for processes in (1, 2):
            self.assertEqual(run(data(processes), 2), expected)

    def test_batch_map(self) -> None:
        def data(processes: int, way: str) -> brim.Pipeline:
            batches = source().shuffle(seed=3).batch(7)
            if way == "in place":
                return batches.batch_map(centre, out={}, processes=processes)
            if way == "found":
                return batches.batch_map(centre, processes=processes)
            return batches.batch_map(pair, out=PAIR_OUT, processes=processes)

        for way in ("in place", "found", "other fields"):
            expected = run(data(0, way), 0, epochs=2)
            expected.pop("pid", None)
            for processes in (1, 2):
                with self.subTest(way, processes=processes):
                    found = run(data(processes, way), 2, epochs=2)
                    self.assertNotIn(os.getpid(), found.pop("pid", []))
                    self.assertEqual(found, expected)

    def test_batch_map_behind_map(self) -> None:
        def data(processes: int) -> brim.Pipeline:
            made = source().map(mix, out=MIX_OUT, processes=processes).filter("label != 4")
            batches = made.batch(5, remainder="pad")
            return batches.batch_map(centre, out={}, processes=processes)

        expected, found = run(data(0), 0), run(data(1), 2)
        del expected["pid"], found["pid"]
        self.assertEqual(found, expected)

    def test_batches_are_not_copied(self) -> None:
        for shared in (True, False):
            data = source().batch(8).batch_map(centre, out={}, processes=1)
            with brim.Runtime("64MiB", threads=0) as runtime:  # nothing is made ahead
                bindings = data._bindings_for(runtime)
                loader = runtime._core.open(data.text, bindings, hold=2, shared=shared)
                rows = [row for batch in loader for row in batch["x"].tolist()]
                (process,) = _core.processes()
                loader.close()
                del loader, bindings
            self.assertEqual(rows, run(source().batch(8).batch_map(centre, out={}), 0)["x"])
            copied = process["copied_in"], process["copied_out"]
            bytes_ = 0 if shared else X.nbytes + LABEL.nbytes
            self.assertEqual(copied, (bytes_, bytes_))

    def test_nothing_is_copied(self) -> None:
        data = source().map(mix, out=MIX_OUT, processes=1).batch(8)
        with brim.Runtime("64MiB", threads=1) as runtime, runtime.open(data) as loader:
            for _ in loader:
                pass
            (process,) = _core.processes()
            self.assertGreaterEqual(process["calls"], ROWS)
            self.assertEqual((process["copied_in"], process["copied_out"]), (0, 0))

    def test_values_that_lie_elsewhere(self) -> None:
        """Without shared memory all goes through the bounce file, which is charged."""
        data = source().map(lengthen, out=LENGTHEN_OUT, processes=1).batch(8)
        with brim.Runtime("64MiB", threads=0) as runtime:
            bindings = data._bindings_for(runtime)
            loader = runtime._core.open(data.text, bindings, hold=2, shared=False)
            rows = [row for batch in loader for row in batch["text"].tolist()]
            (process,) = _core.processes()
            holders = {row["label"]: row["charged"] for row in runtime._core.usage()["holders"]}
            loader.close()
            del loader, bindings
        self.assertEqual(rows, run(source().map(lengthen, out=LENGTHEN_OUT).batch(8), 0)["text"])
        if process["copied_out"] == 0:
            self.skipTest("loaders with worker processes are always shared")
        self.assertGreater(process["copied_in"], 0)
        self.assertGreater(holders["processes of lengthen"], 0)

    def test_large_values_that_lie_elsewhere(self) -> None:
        """Memory for them can be refused, and comes also where a ticking timer interrupts the
        system at that (not all kernels let it)."""
        big = brim.array(numpy.ones((2, 16 * support.MIB), "float32"))
        data = big.map(first_number, out={"x": ("float32", ())}, processes=1).batch(1)
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        with brim.Runtime("256MiB", threads=0) as runtime:
            bindings = data._bindings_for(runtime)
            loader = runtime._core.open(data.text, bindings, hold=1, shared=False)

            def held() -> tuple[int, int]:
                (file,) = (
                    found.stat().st_blocks * 512
                    for found in pathlib.Path("/proc/self/fd").iterdir()
                    if found.is_file() and "brim bounce" in os.readlink(found)
                )
                holders = runtime._core.usage()["holders"]
                return file, sum(h["charged"] for h in holders if "processes" in h["label"])

            resource.setrlimit(resource.RLIMIT_FSIZE, (8 * support.MIB, unlimited[1]))
            try:
                with self.assertRaisesRegex(brim.FunctionError, "shared memory .* File too large"):
                    loader.next()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
            self.assertEqual(held(), (0, 0))

            before = signal.signal(signal.SIGALRM, lambda *_: None)
            faulthandler.dump_traceback_later(60, exit=True)  # else it might go on for ever
            signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
            try:
                self.assertEqual(loader.next()["x"].tolist(), [1])
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                faulthandler.cancel_dump_traceback_later()
                signal.signal(signal.SIGALRM, before)
            file, charged = held()
            self.assertEqual(file, charged)
            self.assertGreater(file, 64 * support.MIB - 1)
            loader.close()
            del loader, bindings

    def test_usage(self) -> None:
        data = source().map(mix, out=MIX_OUT, processes=1).batch(8)
        with brim.Runtime("64MiB", threads=1) as runtime, runtime.open(data) as loader:
            loader.next()
            (process,) = _workers.usage()
            self.assertIn(process["pid"], children())
            self.assertEqual(process["function"], "mix")
            self.assertGreater(process["rss"], process["private"])
            self.assertGreater(process["private"], 1 << 20)
            self.assertIn(str(process["pid"]), str(runtime.usage()))


class Failures(Processes):
    def raised(self, data: brim.Pipeline) -> brim.FunctionError:
        with self.assertRaises(brim.FunctionError) as caught:
            run(data.batch(8, remainder="keep"))
        return caught.exception

    def test_exception_has_the_childs_traceback(self) -> None:
        error = self.raised(source().map(fail_at_7, out={"x": ("float32", (6,))}, processes=1))
        self.assertIsInstance(error.__cause__, KeyError)
        self.assertIn("no such thing", str(error))
        self.assertIn("sample 7", str(error))
        text = "".join(traceback.format_exception(error))
        self.assertIn("in fail_at_7", text)
        self.assertIn('raise KeyError("no such thing")', text)

    def test_exception_that_cannot_be_pickled(self) -> None:
        error = self.raised(source().map(fail_own, out={"x": ("float32", (6,))}, processes=1))
        self.assertIsInstance(error.__cause__, RuntimeError)
        self.assertIn("OwnError: this and that", str(error))
        self.assertIn("in fail_own", "".join(traceback.format_exception(error)))

    def test_bad_samples_are_skipped(self) -> None:
        data = source().map(fail_at_7, out={"x": ("float32", (6,))}, processes=2)
        found = run(data.batch(8, on_error="skip"), 2)
        self.assertEqual(found["ids"], [i for i in range(ROWS) if i != 7])

    def test_what_is_no_exception_is_not_skipped(self) -> None:
        data = source().map(leave_at_7, out={"x": ("float32", (6,))}, processes=1)
        with self.assertRaisesRegex(SystemExit, "enough"):
            run(data.batch(8, on_error="skip"), 2)

    def test_kept_view(self) -> None:
        function = Once(self.folder / "marker", "keep")
        error = self.raised(source().map(function, out={"x": ("float32", (6,))}, processes=1))
        self.assertIn("kept a view of field 'x'", str(error))

    def died(
        self, how: str, once: bool, processes: int = 1, **options: Any
    ) -> dict[str, list[Any]]:
        marker = self.folder / "marker" if once else None
        out = {"x": ("float32", (6,))}
        made = source().map(Once(marker, how), out=out, processes=processes, **options)
        return run(made.batch(8), processes)

    def test_a_process_that_dies_is_replaced(self) -> None:
        for how, processes in (("kill", 2), ("exit", 1)):
            with self.subTest(how):
                (self.folder / "marker").unlink(missing_ok=True)
                found = self.died(how, once=True, processes=processes)
                self.assertEqual(found["x"], (X + 1).tolist())

    def test_a_batch_whose_process_dies_is_made_anew(self) -> None:
        """It was changed already: it is not changed twice."""
        function = BatchOnce(self.folder / "marker", "kill")
        data = source().batch(8).batch_map(function, out={}, processes=1)
        with brim.Runtime("64MiB", threads=1) as runtime, runtime.open(data) as loader:
            rows = loader.next()["x"].tolist()
            with self.assertRaisesRegex(
                brim.FunctionError, r"ended by signal 9 \(.*\) in the batch at position 8"
            ):
                loader.next()
            rows += [row for batch in iter(loader.next, None) for row in batch["x"].tolist()]
        self.assertEqual(rows, (X + 1).tolist())

    def test_a_process_that_was_killed_before_it_took_a_batch(self) -> None:
        """Which is as it was: another process takes it."""
        data = source().batch(8).batch_map(centre, out={}, processes=1)
        with brim.Runtime("64MiB", threads=0) as runtime, runtime.open(data) as loader:
            rows = loader.next()["x"].tolist()
            (process,) = _core.processes()
            pid = process["pid"]
            os.kill(pid, signal.SIGSTOP)  # it takes no request any more
            state = pathlib.Path(f"/proc/{pid}/stat")
            while state.read_text().rpartition(")")[2].split()[0] != "T":
                time.sleep(0.01)
            kill = threading.Timer(0.5, os.kill, (pid, signal.SIGKILL))
            kill.start()
            with self.answered():
                rest = [batch["x"].tolist() for batch in iter(loader.next, None)]
            kill.join()
        self.assertEqual(
            rows + sum(rest, []), run(source().batch(8).batch_map(centre, out={}), 0)["x"]
        )

    def test_a_batch_that_fails(self) -> None:
        function = BatchOnce(self.folder / "marker", "raise")
        data = source().batch(8).batch_map(function, out={}, processes=1)
        # one at a time: of two processes the later may find its batch made for the next epoch
        with brim.Runtime("64MiB", threads=1) as runtime, runtime.open(data) as loader:
            rows = loader.next()["x"].tolist()
            with self.assertRaises(brim.FunctionError) as caught:
                loader.next()
            error = caught.exception
            self.assertIsInstance(error.__cause__, KeyError)
            self.assertIn("the batch from position 8", str(error))
            told = "".join(traceback.format_exception(error))
            self.assertIn('raise KeyError("no such batch")', told)
            rows += [row for batch in iter(loader.next, None) for row in batch["x"].tolist()]
        self.assertEqual(rows, (X + 1).tolist())

    def test_a_process_whose_socket_stays_open(self) -> None:
        found = self.died("fork and kill", once=True)
        self.assertEqual(found["x"], (X + 1).tolist())

    def test_a_process_that_always_dies(self) -> None:
        told = r"ended by signal 9 .* at sample 10, as"
        with self.answered(), self.assertRaisesRegex(brim.FunctionError, told):
            self.died("kill", once=False)
        told = r"process \d+ left with exit code 3 at"
        with self.answered(), self.assertRaisesRegex(brim.FunctionError, told):
            self.died("exit", once=False)

    def test_a_process_that_hangs_and_is_killed(self) -> None:
        """By the system or somebody: the program waits for it, and then for another one."""
        marker = self.folder / "marker"
        made = source().map(Once(marker, "hang"), out={"x": ("float32", (6,))}, processes=1)
        with brim.Runtime("64MiB", threads=1) as runtime, runtime.open(made.batch(8)) as loader:
            rows = loader.next()["x"].tolist()
            while not marker.exists():
                time.sleep(0.01)
            (process,) = _core.processes()
            with self.answered():
                os.kill(process["pid"], signal.SIGKILL)
                rows += [row for batch in iter(loader.next, None) for row in batch["x"].tolist()]
            self.assertNotEqual(_core.processes()[0]["pid"], process["pid"])
        self.assertEqual(rows, (X + 1).tolist())

    def test_a_process_without_descriptors(self) -> None:
        """It cannot map the next batch: another one does."""
        found = self.died("forbid descriptors", once=True)
        self.assertEqual(found["x"], (X + 1).tolist())
        function = WithoutDescriptors()
        error = self.raised(source(1).map(function, out={"x": ("float32", (6,))}, processes=1))
        self.assertRegex(str(error), "exit code 83 at sample 0, as .* see ulimit -n and -v")

    def test_a_process_without_addresses(self) -> None:
        if support.SANITIZED:
            self.skipTest("sanitizers need terabytes of address space")
        x = numpy.arange(3 * support.MIB, dtype="float32").reshape(12, -1)
        out = {"x": ("float32", x.shape[1:])}
        data = brim.array(x).map(forbid_addresses, out=out, processes=1).batch(4)
        with brim.Runtime("64MiB", threads=0) as runtime, runtime.open(data) as loader:
            made = [batch["x"].numpy().copy() for batch in loader]
        numpy.testing.assert_array_equal(numpy.concatenate(made), x)

    def test_a_process_that_sends_what_is_no_reply(self) -> None:
        # requests are numbered from 1, and each of these samples has two
        packets = [
            b"too short",
            packet(3, -1, 0x7FFFFFFF, 0x7FFFFFFF),
            packet(5, -1, 0, 40000, 40000),
            packet(7, -1, 32768, 32768, 100_000),
            packet(9, 7, 0, 0),
            packet(10, 0, 0, 0),
        ]
        out = {"x": ("float32", (6,))}
        once = Babbles(packets, self.folder / "marker")
        found = run(source().map(once, out=out, processes=1).batch(8), 0)
        self.assertEqual(found["x"], (X + 1).tolist())
        self.assertEqual(len(list(self.folder.glob("marker.*"))), len(packets))
        always = Babbles(packets[:1], None)
        error = self.raised(source().map(always, out=out, processes=1))
        self.assertRegex(str(error), r"process \d+ sent an invalid reply at sample 0, as")

    def test_too_many_processes(self) -> None:
        fields = [("x", "float32", (6,), "dense")]
        for count in (-1, 0, 1025, 1 << 32, (1 << 32) + 1):
            with self.subTest(count), self.assertRaisesRegex(ValueError, "1 to 1024"):
                _core.Binding("mix", "map", mix, fields=fields, processes=(None, count))

    def test_process_memory(self) -> None:
        if support.SANITIZED:
            self.skipTest("sanitizers need terabytes of address space")
        with self.assertRaises(brim.FunctionError) as caught:
            self.died("take memory", once=False, process_memory="300MiB")
        self.assertIsInstance(caught.exception.__cause__, MemoryError)
        self.died("take memory", once=False, process_memory="2GiB")

    def test_a_process_that_cannot_start(self) -> None:
        from unittest import mock

        module = self.folder / "gone.py"
        module.write_text("def function(sample): return sample\n")
        with mock.patch.object(sys, "path", [str(self.folder), *sys.path]):
            import gone
        module.write_text("raise ImportError('it is gone')\n")
        for cached in self.folder.glob("__pycache__/*"):
            cached.unlink()
        with mock.patch.object(sys, "path", [str(self.folder), *sys.path]):
            error = self.raised(source(1).map(gone.function, out=source_out(), processes=1))
        self.assertIsInstance(error.__cause__, ImportError)
        self.assertIn("it is gone", str(error))

    def test_lambda(self) -> None:
        from unittest import mock

        data = source().map(lambda sample: sample, out=source_out(), processes=1).batch(8)
        with (
            mock.patch.dict(sys.modules, cloudpickle=None),
            self.assertRaisesRegex(TypeError, "top level of a module, or pip install cloudpickle"),
        ):
            run(data)
        try:
            import cloudpickle  # noqa: F401
        except ImportError:
            return
        self.assertEqual(run(data)["x"], X.tolist())

    def test_what_a_process_imports(self) -> None:
        """The function's module and what that imports, not what the program has imported."""
        (self.folder / "light.py").write_text("")
        (self.folder / "heavy.py").write_text("")
        (self.folder / "functions.py").write_text(
            "import sys, light\n"
            "def modules(sample):\n"
            "    return {'names': ' '.join(sys.modules)}\n"
        )
        ran = self.script(
            """
            import brim, functions, heavy
            if __name__ == "__main__":
                out = {"names": ("text", 65536)}
                data = brim.range(1).map(functions.modules, out=out, processes=1).batch(1)
                with brim.Runtime("16MiB", threads=1) as runtime, runtime.open(data) as loader:
                    print(loader.next()["names"][0])
            """
        )
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        names = set(ran.stdout.split())
        self.assertLess({"functions", "light", "numpy", "brim._worker"}, names)
        frameworks = {"torch", "tensorflow", "keras", "jax", "brim.torch", "brim.keras"}
        self.assertFalse(names & {"heavy", "script", "PIL", "cloudpickle", *frameworks})
        packages = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
        others = {name for name in packages if not name.startswith(("_", "cython"))}
        others -= {"sitecustomize", "usercustomize", "apport_python_hook"}  # of the installation
        self.assertEqual(others, {"functions", "light", "numpy", "brim"})

    def test_a_script_without_a_guard(self) -> None:
        ran = self.script(
            """
            import numpy, brim
            def double(sample):
                return sample["x"] * 2
            data = brim.array(numpy.zeros((4, 2), "float32")).map(
                double, out={"x": ("float32", (2,))}, processes=1).batch(2)
            with brim.Runtime("16MiB", threads=1) as runtime, runtime.open(data) as loader:
                for batch in loader:
                    pass
            """
        )
        self.assertEqual(ran.returncode, 1)
        self.assertIn('if __name__ == "__main__":', ran.stderr)


def source_out() -> dict[str, Any]:
    return {"x": ("float32", (6,)), "label": ("int64", ())}


class Sleeps:
    """Hangs at sample 7: as a map, a filter, a batch_map in place, or elements."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self({"x": X[index]})}

    def __call__(self, sample: dict[str, Any]) -> Any:
        if 42 in sample["x"].reshape(-1, 6)[:, 0]:
            time.sleep(1000)
        return sample["x"]


class IsQuick(Sleeps):
    def __call__(self, sample: dict[str, Any]) -> Any:
        return super().__call__(sample) is not None


class InPlace(Sleeps):
    def __call__(self, batch: dict[str, Any]) -> None:
        super().__call__(batch)


class TimeOuts(Processes):
    SECONDS = 8  # others answer in less, unless a process stands still for so long
    OUT = {"x": ("float32", (6,))}

    def test_the_sample_fails_and_is_named(self) -> None:
        data = source().map(Sleeps(), out=self.OUT, processes=1, timeout=self.SECONDS).batch(8)
        with brim.Runtime("64MiB", threads=1) as runtime, runtime.open(data) as loader:
            with self.answered(), self.assertRaises(brim.FunctionError) as caught:
                loader.next()
        text = str(caught.exception)
        for part in ("@sleeps", f"timeout={self.SECONDS} seconds", "at sample 7", "killed"):
            self.assertIn(part, text.lower())
        self.assertIsInstance(caught.exception.__cause__, TimeoutError)

    def test_on_error_skip_goes_on_with_another_process(self) -> None:
        sleeps = Sleeps()
        options: dict[str, Any] = {"processes": 2, "timeout": self.SECONDS}
        for name, data in {
            "map": source().map(sleeps, out=self.OUT, **options),
            "filter": source().filter(IsQuick(), **options),
            "dataset": brim.dataset(sleeps, out=self.OUT, **options),
        }.items():
            with self.subTest(name), self.answered():
                found = run(data.batch(8, on_error="skip", remainder="keep"), threads=2)
                self.assertEqual(found["x"], numpy.delete(X, 7, axis=0).tolist())

    def test_a_batch_fails_and_the_next_ones_come(self) -> None:
        data = source().batch(8).batch_map(
            InPlace(), out={}, processes=1, timeout=self.SECONDS
        )
        with brim.Runtime("64MiB", threads=1) as runtime, runtime.open(data) as loader:
            with self.answered(), self.assertRaisesRegex(
                brim.FunctionError, "did not return within .* in the batch at position 0"
            ):
                loader.next()

    def test_without_processes_it_is_refused(self) -> None:
        for make in (
            lambda: source().map(Sleeps(), timeout=3),
            lambda: source().filter(Sleeps(), timeout=3),
            lambda: source().batch(8).batch_map(Sleeps(), timeout=3),
            lambda: brim.dataset(Sleeps(), timeout=3),
        ):
            with self.assertRaisesRegex(ValueError, "a thread cannot be stopped.*processes="):
                make()
        for wrong in (0, -1, float("nan"), float("inf"), 1e300):
            with self.assertRaisesRegex(ValueError, "from 0.001 to"):
                source().map(Sleeps(), processes=1, timeout=wrong)
        for wrong in ("3", True, [3]):
            with self.assertRaisesRegex(TypeError, "a number of seconds"):
                source().map(Sleeps(), processes=1, timeout=wrong)

    def test_it_is_a_part_of_what_is_compared(self) -> None:
        one, other = (
            source().map(mix, out=MIX_OUT, version=1, processes=1, timeout=seconds)
            for seconds in (3, 4)
        )
        self.assertNotEqual(one, other)


class Ending(Processes):
    def hanging(self, threads: int, act: Callable[[brim.Loader], None], **options: Any) -> None:
        """Calls `act` once a worker process hangs in its function."""
        marker = self.folder / "hangs"
        out = {"x": ("float32", (6,))}
        data = source().map(Once(marker, "hang"), out=out, processes=2, **options)
        with brim.Runtime("64MiB", threads=threads) as runtime:
            loader = runtime.open(data.batch(8))
            loader.next()
            while not marker.exists():
                time.sleep(0.01)
            act(loader)
            loader.close()

    def test_close_while_a_function_hangs(self) -> None:
        for options in ({}, {"timeout": 10 * ANSWER}):
            with self.subTest(**options), self.answered():
                (self.folder / "hangs").unlink(missing_ok=True)
                self.hanging(2, lambda loader: None, **options)
            self.assertEqual(_core.processes(), [])

    def test_close_before_anything_has_come_up(self) -> None:
        data = source().map(mix, out=MIX_OUT, processes=2).batch(8)
        with brim.Runtime("64MiB", threads=2) as runtime:
            for _ in range(5):
                runtime.open(data, fixed=True).close()

    @unittest.skipIf(support.SANITIZED, "the sanitizer's malloc may be locked in a child")
    def test_fork(self) -> None:
        """The child has nothing to do with the processes, and leaves them alone."""
        data = source().map(mix, out=MIX_OUT, processes=1).batch(8)
        with brim.Runtime("64MiB", threads=1) as runtime, runtime.open(data) as loader:
            loader.next().release()
            before = {process["pid"] for process in _core.processes()}
            child = os.fork()
            if child == 0:
                forgotten = _core.processes() == []
                del loader
                gc.collect()
                os._exit(0 if forgotten else 1)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.assertEqual(sum(batch.rows for batch in iter(loader.next, None)), ROWS - 8)
            self.assertEqual({process["pid"] for process in _core.processes()}, before)

    SCRIPT = """
        import os, signal, sys, numpy, brim
        from brim import _core
        signal.alarm(300)  # if all else fails
        def slow(sample):
            if sample["x"][0] >= 40:
                print("hangs", flush=True)
                signal.pause()
            return sample["x"]
        if __name__ == "__main__":
            threads, way = int(sys.argv[1]), sys.argv[2]
            x = numpy.arange(64, dtype="float32").reshape(64, 1)
            out, timeout = {"x": ("float32", (1,))}, 1000 if way == "timeout" else None
            data = brim.array(x).map(slow, out=out, processes=1, timeout=timeout).batch(4)
            runtime = brim.Runtime("16MiB", threads=threads)
            loader = runtime.open(data)
            loader.next()
            print("worker", *[process["pid"] for process in _core.processes()], flush=True)
            if way == "leave":
                sys.exit(0)
            try:
                for batch in loader:
                    pass
            except KeyboardInterrupt:
                print("interrupted", flush=True)
                loader.close()
                print(_core.processes(), flush=True)
        """

    def start(self, *arguments: str) -> tuple[subprocess.Popen[str], int]:
        """The script above, hanging in its function or left, and the worker process that it has."""
        path = self.folder / "script.py"
        path.write_text(textwrap.dedent(self.SCRIPT))
        started = subprocess.Popen(
            [sys.executable, str(path), *arguments],
            text=True,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.addCleanup(started.stdout.close)
        self.addCleanup(started.wait)
        self.addCleanup(started.kill)
        worker = 0
        hangs = arguments[1] == "leave"
        while not worker or not hangs:
            words = started.stdout.readline().split()
            self.assertIn(words[:1], (["worker"], ["hangs"]))
            hangs |= words[0] == "hangs"
            worker = int(words[1]) if words[0] == "worker" else worker
        return started, worker

    def wait_for(self, pid: int) -> None:
        while pathlib.Path(f"/proc/{pid}").exists():
            time.sleep(0.01)

    def test_interrupt(self) -> None:
        """Ctrl-C goes to all processes of the terminal: the workers leave it to the program."""
        for threads, way in (("0", "wait"), ("1", "wait"), ("0", "timeout")):
            with self.subTest(threads=threads, way=way):
                started, worker = self.start(threads, way)
                os.killpg(started.pid, signal.SIGINT)
                rest = started.communicate(timeout=ANSWER)[0]
                self.assertIn("interrupted", rest)
                self.assertIn("[]", rest)
                self.assertEqual(started.returncode, 0)
                self.wait_for(worker)

    def test_interpreters_end(self) -> None:
        started, worker = self.start("1", "leave")
        started.communicate(timeout=60)
        self.assertEqual(started.returncode, 0)
        self.wait_for(worker)

    def test_the_program_is_killed(self) -> None:
        started, worker = self.start("1", "wait")
        started.kill()
        started.wait()
        self.wait_for(worker)


if __name__ == "__main__":
    support.main()
