"""The smallest budget of a loop in frameworks.

brim.torch runs a plain loop in two slots without a copy; what is kept beyond is copied as long as
the budget has room, and then named. Frameworks that look ahead run in the slots that they need; for
fewer they are refused when they open, with the number that would do.
"""

# label: full

from __future__ import annotations

import importlib
import importlib.util
import os
import pathlib
import unittest
import warnings
from collections.abc import Callable
from typing import Any

import brim
import support

numpy = support.need("numpy")
torch = support.need("torch")

import brim.torch  # noqa: E402
import loops  # noqa: E402
from loops import BATCH, LABEL, PAGE, ROWS, X  # noqa: E402


def has(framework: str) -> bool:
    return importlib.util.find_spec(framework) is not None


def resident() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * PAGE


class Torch(support.Case):
    def test_a_loop_in_two_slots(self) -> None:
        for name, data in loops.pipelines():
            wanted = loops.expected(data)
            for threads in (0, 1, 2):
                with self.subTest(name, threads=threads), loops.answered():
                    with brim.Runtime("64MiB", threads=threads) as runtime:
                        plan = brim.torch.plan(data, runtime=runtime)
                        self.assertEqual((plan.hold, plan.minimum_slots), (2, 2))
                        minimum = plan.minimum_bytes
                    with brim.Runtime(minimum, threads=threads) as runtime:
                        loader = brim.torch.loader(data, runtime=runtime)
                        found = []
                        with warnings.catch_warnings():
                            warnings.simplefilter("error")
                            for _ in range(2):
                                for _, label in loader:
                                    found.append(label.tolist())
                        stats = loader.stats()
                        loader.close()
                        usage = runtime.usage()
                    self.assertEqual(found, wanted)
                    self.assertEqual((stats["slots"], stats["copies"]), (2, 0))
                    self.assertLessEqual(usage["peak"], minimum)
                    with brim.Runtime(minimum - PAGE, threads=threads) as runtime:
                        with self.assertRaisesRegex(brim.BudgetError, str(minimum)):
                            brim.torch.loader(data, runtime=runtime)

    def test_as_many_are_kept_as_fit(self) -> None:
        """Two slots, copies beyond, and the last one in the slot that copies are made from: each
        slot's worth of memory is one batch more. Then all of them are named, and no batch is
        lost."""
        data = brim.arrays(x=X, label=LABEL).batch(BATCH, remainder="keep")
        plan = brim.torch.plan(data, memory="64MiB", threads=1)
        for more in range(5):
            limit = plan.minimum_bytes + more * (plan.slot_bytes + 2 * PAGE)
            with self.subTest(more), brim.Runtime(limit, threads=1) as runtime, loops.answered():
                loader = brim.torch.loader(data, runtime=runtime, threads=1)
                kept: list[Any] = []
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    iterator = iter(loader)
                    with self.assertRaisesRegex(
                        brim.HeldError, f"{2 + more} batches and copies of batches are held"
                    ) as caught:
                        for x, _ in iterator:
                            kept.append(x)
                    self.assertIn("epoch 0 step 0, epoch 0 step 1", str(caught.exception))
                    self.assertGreaterEqual(caught.exception.wanted, plan.slot_bytes)
                    self.assertEqual(len(kept), 2 + more)
                    self.assertEqual(loader.stats()["copies"], max(more - 1, 0))
                    for step, x in enumerate(kept):
                        rows = X[step * BATCH : (step + 1) * BATCH]
                        self.assertTrue(numpy.array_equal(x.numpy(), rows))
                    usage = runtime.usage()
                    self.assertLessEqual(usage["charged"], limit)
                    self.assertGreater(usage["charged"], limit - plan.slot_bytes)
                    kept.clear()
                    del x
                    rest = [label for _, labels in iterator for label in labels.tolist()]
                self.assertEqual(rest, list(range((2 + more) * BATCH, ROWS)))
                loader.close()

    def test_a_list_of_all(self) -> None:
        """slots= bounds what is made ahead, not what is copied."""
        data = brim.arrays(x=X, label=LABEL).batch(BATCH, remainder="keep")
        for slots in (0, 2, 3):
            with self.subTest(slots=slots):
                loader = brim.torch.loader(data, runtime=self.runtime("64MiB"), slots=slots)
                self.assertIn(loader.plan.slots, (slots or loader.plan.slots,))
                with self.assertWarnsRegex(brim.HoldWarning, "hold=10 would avoid"):
                    kept = list(loader)
                self.assertTrue(numpy.array_equal(torch.cat([x for x, _ in kept]).numpy(), X))
                self.assertEqual(loader.stats()["copies"], 8)
                loader.close()

    def test_the_end_needs_no_third_slot(self) -> None:
        data = brim.arrays(x=X[:32], label=LABEL[:32]).batch(BATCH)
        minimum = brim.torch.plan(data, memory="64MiB", threads=1).minimum_bytes
        with brim.Runtime(minimum, threads=1) as runtime, loops.answered():
            loader = brim.torch.loader(data, runtime=runtime, threads=1)
            self.assertEqual(len(list(loader)), 2)
            loader.close()

    def test_resident_memory(self) -> None:
        """Float32 batches of 8 MiB, in two slots: the process grows by no more than the budget."""
        values = numpy.zeros((512, 1 << 15), dtype=numpy.uint8)
        data = brim.array(values, "image").cast("float32").batch(64)
        plan = brim.torch.plan(data, memory="64MiB", threads=2)
        self.assertLess(plan.minimum_bytes, 18 * support.MIB)
        with brim.Runtime("18MiB", threads=2) as runtime:
            loader = brim.torch.loader(data, runtime=runtime)
            self.assertEqual(loader.plan.slots, 2)
            before = resident()
            for _ in range(5):
                for (image,) in loader:
                    self.assertEqual(float(image[0, 0]), 0)
            self.assertLess(resident() - before, 20 * support.MIB)
            del image
            loader.close()

    def runtime(self, memory: str) -> brim.Runtime:
        runtime = brim.Runtime(memory, threads=2)
        self.addCleanup(runtime.close)
        return runtime


class Ahead(support.Case):
    """Frameworks that look ahead: what they need is reserved when they open, or refused."""

    def check(self, module: str, framework: str, open: str, loop: Callable[[Any], int]) -> None:
        if not has(framework):
            self.skipTest(f"{framework} is not installed")
        adapter = importlib.import_module(f"brim.{module}")
        make = getattr(adapter, open)
        data = brim.arrays(x=X[:144], label=LABEL[:144]).shuffle(seed=1).batch(BATCH)
        plan = adapter.plan(data, memory="64MiB", threads=2)
        self.assertEqual((plan.hold, plan.minimum_slots), (3, 3))
        with brim.Runtime(plan.minimum_bytes, threads=2) as runtime, loops.answered():
            loader = make(data, runtime=runtime)
            with warnings.catch_warnings():
                warnings.simplefilter("error", brim.HoldWarning)
                self.assertEqual(loop(loader), 3 * 9)
            stats = getattr(loader, "loader", loader).stats()
            self.assertEqual((stats["copies"], stats["slots"]), (0, 3))
            self.assertEqual(runtime.usage()["peak"] <= plan.minimum_bytes, True)
            getattr(loader, "loader", loader).close()
        with brim.Runtime(plan.minimum_bytes - PAGE, threads=2) as runtime:
            with self.assertRaisesRegex(brim.BudgetError, str(plan.minimum_bytes)):
                make(data, runtime=runtime)
        with brim.Runtime("64MiB", threads=2) as runtime:
            for hold in (1, 2):
                for ask in (make, adapter.plan):
                    with self.assertRaisesRegex(ValueError, f"hold={hold}: .* 3 batches .*hold=3"):
                        ask(data, runtime=runtime, hold=hold)
            self.assertEqual(runtime.usage()["loaders"], 0)

    def test_tensorflow(self) -> None:
        def loop(loader: Any) -> int:
            taken = sum(1 for _ in range(2) for _ in loader)
            return taken + sum(1 for _ in loader.prefetch(1))

        self.check("tensorflow", "tensorflow", "dataset", loop)

    def test_jax(self) -> None:
        self.check("jax", "jax", "loader", lambda loader: sum(1 for _ in range(3) for _ in loader))

    def test_keras(self) -> None:
        if not has("torch"):
            self.skipTest("torch is not installed")
        os.environ.setdefault("KERAS_BACKEND", "torch")

        def loop(loader: Any) -> int:
            import keras

            steps = []

            class Count(keras.callbacks.Callback):
                def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                    steps.append(batch)

            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile(loss="mse")
            model.fit(loader, epochs=3, verbose=0, callbacks=[Count()])
            return len(steps)

        self.check("keras", "keras", "dataset", loop)


if __name__ == "__main__":
    support.main()
