"""What the benchmarks of the Python package share: sides that are measured in turn.

    PYTHONPATH=build/release/python tools/python bench/python/NAME.py [--quick]

A *side* is one way to do the work, in a process of its own that lives as long as the comparison: a
function that makes batches without end and calls `clock(rows)` after each. The clock keeps it
waiting until its turn comes, lets what was made in advance run out, and then counts. Rounds go over
all sides, A B C A B C ..., so that whatever else the machine does falls on all alike; a rate is the
median over the rounds, and so is a ratio, which is taken within each round.

Memory is what the side's process and its children have in a round of its own after the others, the
most of many looks: their proportional shares (Pss) of anonymous memory, and all of the shared
memory that one of them has open, for a batch on its way from a worker is mapped by nobody. Pages of
libraries and data files are left out: the system can drop them, and other sides map them too.

A side whose framework is not installed is left out with a sentence.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

ROOT = pathlib.Path(__file__).resolve().parents[2]
THREADS = 2
LEAD = 0.3  # of a round's length before the clock counts, and
LEAD_BATCHES = 6  # batches at least: what a DataLoader of two workers has at hand
MIB = 1 << 20


class Missing(Exception):
    """Something that a side needs is not there."""


# ------------------------------------------------------------------------------ in a side's process


class Clock:
    """Called after each batch; see above."""

    def __init__(self, answers: Any) -> None:
        self._answers = answers
        self._seconds = 0.0
        self._next = 0.0  # when the counting begins, and then when it ends
        self._since: float | None = None  # when it began
        self._rows = self._batches = 0
        self._begun = False

    def __call__(self, rows: int) -> None:
        self._rows += rows
        self._batches += 1
        now = time.perf_counter()
        if now < self._next:
            return
        if not self._begun:
            self._begun = True
        elif self._since is None:
            if self._batches < LEAD_BATCHES:
                return
            self._since, self._next = now, now + self._seconds
            self._rows = self._batches = 0
            return
        self._wait(now)

    def _wait(self, now: float) -> None:
        """Tells the result, or at first that all is ready, and waits for the next turn."""
        seconds = now - self._since if self._since is not None else 0.0
        answer = {"rows": self._rows, "batches": self._batches, "seconds": seconds}
        print(json.dumps(answer), file=self._answers, flush=True)
        self._since = None
        self._rows = self._batches = 0
        told = sys.stdin.readline()
        if not told:
            sys.exit(0)
        self._seconds = float(told)
        self._next = time.perf_counter() + LEAD * self._seconds


def _serve(run: Callable[..., None], given: dict[str, Any]) -> NoReturn:
    """Runs one side. What frameworks print goes to where errors go."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        run(Clock(answers), **given)
    except ModuleNotFoundError as error:
        print(json.dumps({"missing": f"{error.name} is not installed"}), file=answers, flush=True)
    except Missing as error:
        print(json.dumps({"missing": str(error)}), file=answers, flush=True)
    sys.exit(0)


# ------------------------------------------------------------------------ in the measuring process


class Result(NamedTuple):
    rows: int
    batches: int
    seconds: float


class Process:
    """A side that is a function of the script."""

    def __init__(self, name: str, given: Mapping[str, Any]) -> None:
        self._name = name
        self._errors = tempfile.TemporaryFile("w+", errors="replace")
        self._process = subprocess.Popen(
            [sys.executable, sys.argv[0], "--side", name, "--given", json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.pid = self._process.pid

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._errors.seek(0)
            told = "".join(self._errors.readlines()[-30:])
            sys.exit(f"{told}side {self._name!r} ended with {code}")
        answer: dict[str, Any] = json.loads(line)
        if "missing" in answer:
            raise Missing(answer["missing"])
        return answer

    def ready(self) -> None:
        self._answer()

    def round(self, seconds: float) -> Result:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return Result(**self._answer())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Command:
    """The same pipeline in C: `brim bench`, started for each round, which warms up by itself."""

    def __init__(self, cli: str, text: str, memory: str, batch: int) -> None:
        self._batch = batch
        self._words = [cli, "bench", text, "--json", "--quiet", "--repeat=1", f"--memory={memory}"]
        self._words.append(f"--threads={THREADS}")
        self.pid = 0

    def ready(self) -> None:
        if not os.access(self._words[0], os.X_OK):
            raise Missing(f"there is no {self._words[0]}; build it, or say --cli")

    def round(self, seconds: float) -> Result:
        words = [*self._words, f"--seconds={seconds}"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            self.pid = process.pid
            told = process.communicate()[0]
        if process.returncode != 0:
            sys.exit(f"brim bench ended with {process.returncode}")
        rate = json.loads(told)["samples_per_second"]["median"]
        return Result(round(rate * seconds), round(rate * seconds / self._batch), seconds)

    def close(self) -> None:
        pass


def _tree(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for parent in found:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children") as file:
                    found += map(int, file.read().split())
        except OSError:  # it has ended
            pass
    return found


def _memory(pid: int) -> int:
    """Bytes that the process and those below it have; see above."""
    total = 0
    shared = {}  # by device and inode
    for process in _tree(pid):
        try:
            with open(f"/proc/{process}/smaps_rollup") as file:
                for line in file:
                    if line.startswith("Pss_Anon:"):
                        total += int(line.split()[1]) * 1024
            for name in os.listdir(f"/proc/{process}/fd"):
                path = f"/proc/{process}/fd/{name}"
                if os.readlink(path).startswith(("/memfd:", "/dev/shm/")):
                    state = os.stat(path)
                    shared[state.st_dev, state.st_ino] = state.st_blocks * 512
        except OSError:  # it has ended, or closed the file
            pass
    return total + sum(shared.values())


def _peak(side: Process | Command, seconds: float) -> int:
    """The most memory that the side has in one more round."""
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            if side.pid:
                peak = max(peak, _memory(side.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        side.round(seconds)
    finally:
        done.set()
        watcher.join()
    return peak


class Options(argparse.Namespace):
    quick: bool
    seconds: float
    rounds: int
    cli: str


def compare(
    title: str,
    wanted: Mapping[str, Process | Command],
    reference: str,
    options: Options,
    goal: str,
    per_batch: bool = False,
) -> dict[str, float]:
    """Measures all sides in turn and prints a table. Ratios are against `reference`. The median
    rate of each side.

    per_batch: microseconds for each batch instead of samples for each second
    """
    print(f"\n{title}", flush=True)
    sides = {}
    try:
        for name, side in wanted.items():
            sides[name] = side
            try:
                side.ready()
            except Missing as missing:
                print(f"  {name} is left out: {missing}", flush=True)
                sides.pop(name).close()
        results: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(options.rounds):
            for name, side in sides.items():
                done = side.round(options.seconds)
                results[name].append((done.batches if per_batch else done.rows) / done.seconds)
        peaks = {name: _peak(side, min(options.seconds, 1)) for name, side in sides.items()}
    finally:
        for side in sides.values():
            side.close()

    medians = {name: statistics.median(rates) for name, rates in results.items()}
    if not results:
        return medians
    unit = "us a batch" if per_batch else "samples/s"
    print(f"  {'':30}{unit:>12}{'ratio':>9}{'from':>9}{'to':>9}{'memory':>13}")
    for name, rates in results.items():
        rate = medians[name]
        shown = f"{1e6 / rate:12.1f}" if per_batch else f"{rate:12,.0f}"
        if reference in results:
            ratios = [own / other for own, other in zip(rates, results[reference])]
            shown += "".join(
                f"{ratio:9.3f}" for ratio in (statistics.median(ratios), min(ratios), max(ratios))
            )
        else:
            shown += f"{'-':>9}" * 3
        print(f"  {name:30}{shown}{peaks[name] / MIB:9,.1f} MiB")
    print(f"  ratio: rate against {reference}, median over the rounds; {goal}", flush=True)
    return medians


def main(
    document: str | None,
    sides: Mapping[str, Callable[..., None]],
    measure: Callable[[Options, str], None],
    seconds: float = 1.5,
) -> None:
    """Reads the arguments and calls measure(options, folder), or runs the side that they name.

    seconds: the length of a round, of which there are 5
    """
    parser = argparse.ArgumentParser(
        description=document, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small and short: does it run?")
    parser.add_argument("--seconds", type=float, help=f"of a round; default {seconds}")
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument(
        "--cli", default=os.environ.get("BRIM_CLI") or str(ROOT / "build" / "release" / "brim")
    )
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--given", help=argparse.SUPPRESS)
    options = parser.parse_args(namespace=Options())
    if options.side is not None:
        _serve(sides[options.side], json.loads(options.given))
    try:
        import brim
        import numpy
    except ImportError as error:
        print(f"{sys.argv[0]}: {error}; nothing was measured")
        return
    print(f"brim {brim.__version__}, Python {sys.version.split()[0]}, numpy {numpy.__version__}")
    options.seconds = options.seconds or (0.2 if options.quick else seconds)
    options.rounds = options.rounds or (2 if options.quick else 5)
    with tempfile.TemporaryDirectory(prefix="brim-bench-") as folder:
        measure(options, folder)
