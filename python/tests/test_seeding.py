"""seed_globals: a sample has the same bytes in any process, and wherever torch is imported.

Each way to run is a fresh interpreter, for torch can be imported for the first time only once. Most
tests have a small module in torch's place: they are quick, and run where there is no torch."""

# sanitizers: yes
# label: quick, full

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import textwrap
from typing import Any

import support

support.need("numpy")

# Its generator begins with another state in every process, as torch's does.
STAND_IN = """
    import random, time

    class Generator:
        def __init__(self):
            self.random = random.Random()
        def get_state(self):
            return self.random.getstate()
        def set_state(self, state):
            self.random.setstate(state)
        def manual_seed(self, seed):
            self.random.seed(seed)

    time.sleep(0.3)  # others see a module that is not whole yet
    default_generator = Generator()
    FIRST = default_generator.get_state()

    def rand(count):
        return [default_generator.random.random() for _ in range(count)]
    """

SCRIPT = """
    import json, random, sys, threading, time
    import brim, numpy

    ROWS = 12
    OUT = {"r": ("float64", (4,))}

    def draw(sample):
        import random
        first = random.random()
        import torch
        import numpy.random as of_numpy
        return {"r": numpy.array([first, *map(float, torch.rand(2)), of_numpy.random()])}

    def draw_without(sample):
        import random
        return {"r": numpy.array([random.random(), numpy.random.random(), 0, 0])}

    def items(sample):
        for _ in range(2):
            yield draw(sample)

    def draw_batch(batch):
        batch["r"] += sum(draw(None)["r"])

    def run(data, threads):
        rows = []
        with brim.Runtime("16MiB", threads=threads) as runtime, runtime.open(data) as loader:
            for epoch in loader.epochs(2):
                for batch in epoch:
                    rows += batch["r"].tolist()
        return rows

    def state(generator):
        return str(generator.getstate() if generator is random else generator.get_state())

    if __name__ == "__main__":
        way, threads, processes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
        assert "torch" not in sys.modules
        samples, seeded = brim.range(ROWS), {"seed": 3}
        if len(sys.argv) < 5:  # "auto" is the default
            seeded["seed_globals"] = True
        if way in ("map", "import"):
            data = samples.map(draw, out=OUT, processes=processes, **seeded)
        elif way == "without":
            data = samples.map(draw_without, out=OUT, processes=processes, **seeded)
        elif way == "flat_map":
            data = samples.flat_map(items, out=OUT, most=2, **seeded)
        else:
            data = brim.array(numpy.zeros((ROWS, 4)), "r")
        data = data.batch(4)
        if way == "batch_map":
            data = data.batch_map(draw_batch, out={}, processes=processes, **seeded)
        before = state(random), state(numpy.random)  # the program finds them so afterwards
        if way == "import":  # another thread is in the middle of it when the first sample begins
            importing = threading.Thread(target=__import__, args=("torch",))
            importing.start()
            while "torch" not in sys.modules:
                time.sleep(0.001)
        rows = run(data, threads)
        assert (state(random), state(numpy.random)) == before
        torch = sys.modules.get("torch")
        if hasattr(torch, "FIRST"):
            assert torch.default_generator.get_state() == torch.FIRST
        print(json.dumps({"rows": rows, "torch": torch is not None}))
    """


class Seeding(support.Case):
    stand_in = True

    def setUp(self) -> None:
        super().setUp()
        (self.folder / "script.py").write_text(textwrap.dedent(SCRIPT))
        if self.stand_in:
            (self.folder / "torch").mkdir()
            (self.folder / "torch" / "__init__.py").write_text(textwrap.dedent(STAND_IN))

    def run_it(
        self, way: str, threads: int = 0, processes: int = 0, *more: str
    ) -> dict[str, Any]:
        script = [sys.executable, str(self.folder / "script.py")]
        ran = subprocess.run(
            [*script, way, str(threads), str(processes), *more],
            capture_output=True,
            text=True,
            timeout=250,
        )
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        return json.loads(ran.stdout)

    def check(self, found: dict[str, Any], expected: dict[str, Any]) -> None:
        self.assertEqual(found["rows"], expected["rows"])
        rows = [tuple(row) for row in expected["rows"]]
        self.assertEqual(len(set(rows)), len(rows))


class StandIn(Seeding):
    def test_a_function_that_is_the_first_to_import_torch(self) -> None:
        expected = self.run_it("map")
        self.assertTrue(expected["torch"])
        for threads, processes in ((2, 0), (1, 1), (2, 2)):
            with self.subTest(threads=threads, processes=processes):
                found = self.run_it("map", threads, processes)
                self.check(found, expected)
                self.assertEqual(found["torch"], processes == 0)

    def test_torch_is_imported_for_nobody_else(self) -> None:
        expected = self.run_it("without")
        self.assertFalse(expected["torch"])
        self.check(self.run_it("without", 2, 2), expected)

    def test_processes_are_seeded_by_default(self) -> None:
        """As seed_globals=True does."""
        for way in ("map", "batch_map"):
            expected = self.run_it(way)
            for processes in (1, 3) if way == "map" else (2,):
                with self.subTest(way=way, processes=processes):
                    found = self.run_it(way, processes, processes, "auto")
                    self.assertEqual(found["rows"], expected["rows"])

    def test_another_thread_imports_torch_meanwhile(self) -> None:
        expected = self.run_it("map")
        for threads in (0, 2):
            self.check(self.run_it("import", threads), expected)

    def test_items_that_are_drawn_one_after_the_other(self) -> None:
        expected = self.run_it("flat_map")
        self.assertEqual(len(expected["rows"]), 48)
        self.check(self.run_it("flat_map", 2), expected)

    def test_batches_in_place(self) -> None:
        expected = self.run_it("batch_map")
        found = self.run_it("batch_map", 2)
        self.assertEqual(found["rows"], expected["rows"])
        self.assertEqual(len({tuple(row) for row in found["rows"]}), 2 * 3)


class Torch(Seeding):
    stand_in = False

    def test_a_function_that_is_the_first_to_import_torch(self) -> None:
        if support.SANITIZED or importlib.util.find_spec("torch") is None:
            self.skipTest("torch is not installed, or the sanitizer is in its way")
        expected = self.run_it("map", 2)
        self.assertTrue(expected["torch"])
        for processes in (1, 2):
            with self.subTest(processes=processes):
                self.check(self.run_it("map", processes, processes), expected)


if __name__ == "__main__":
    support.main()
