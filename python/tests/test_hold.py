"""The smallest budget of a loop: two slots, for the batch that it has and the one that it gets.

A plain loop runs in them whatever makes its batches, with any number of threads, and a page less is
refused. What keeps more is told which batches it has. test_hold_adapters.py has the frameworks.
"""

from __future__ import annotations

import brim
import support

support.need("numpy")

import loops  # noqa: E402


class Loop(support.Case):
    def test_a_loop_in_two_slots(self) -> None:
        for name, data in loops.pipelines():
            wanted = loops.expected(data)
            for threads in (0, 1, 2):
                with self.subTest(name, threads=threads), loops.answered():
                    with brim.Runtime("64MiB", threads=threads) as runtime:
                        plan = runtime.plan(data)
                        self.assertEqual((plan.hold, plan.minimum_slots), (2, 2))
                        minimum = plan.minimum_bytes
                    with brim.Runtime(minimum, threads=threads) as runtime:
                        with runtime.open(data) as loader:
                            found = loops.labels(loader) + loops.labels(loader)
                            self.assertEqual(loader.stats()["slots"], 2)
                            self.assertEqual(loader.stats()["copies"], 0)
                        usage = runtime.usage()
                    self.assertEqual(found, wanted)
                    self.assertLessEqual(usage["peak"], minimum)
                    with brim.Runtime(minimum - loops.PAGE, threads=threads) as runtime:
                        with self.assertRaisesRegex(brim.BudgetError, str(minimum)):
                            runtime.open(data)

    def test_two_that_are_kept_are_named(self) -> None:
        data = brim.arrays(x=loops.X, label=loops.LABEL).batch(loops.BATCH)
        minimum = data.plan("64MiB", threads=1).minimum_bytes
        with brim.Runtime(minimum, threads=1) as runtime, runtime.open(data, threads=1) as loader:
            first, second = loader.next(), loader.next()
            with loops.answered(), self.assertRaisesRegex(
                brim.HeldError, "2 batches .* hold=2 allows: epoch 0 step 0, epoch 0 step 1;"
            ):
                loader.next()
            del first
            self.assertEqual(loader.next().step, 2)
            del second


if __name__ == "__main__":
    support.main()
