"""A plan says what opening does: of Runtime.open, and of Pipeline.plan.

Tests of the adapters have the same property for theirs; see plans.py."""

# sanitizers: yes

from __future__ import annotations

import inspect

import support

import brim
import plans


def take(data, memory=None, runtime=None, device_memory=None, **options) -> int:
    """Opens, and counts the batches of an epoch."""
    made = runtime or brim.Runtime(memory, device_memory=device_memory)
    try:
        with made.open(data, **options) as loader:
            return sum(1 for _ in loader)
    finally:
        if runtime is None:
            made.close()


def plan(data, **options):
    if "runtime" in options:
        options.pop("device_memory", None)
    return data.plan(**options)


class Plans(support.Case):
    def test_opening(self) -> None:
        for extra in ({}, {"hold": 5, "copies": True, "rank": 1, "world": 2}):
            plans.check(self, plan, take, self.folder, **extra)

    def test_on_a_device(self) -> None:
        if not any(str(device).startswith("opencl") for device in brim.devices()):
            self.skipTest("there is no OpenCL device")
        options = {"device": "opencl", "device_memory": "256MiB"}
        plans.check(self, plan, take, self.folder, without=("processes",), **options)
        data = brim.array(plans.X, name="x").batch(16)
        minimum = plan(data, memory="64MiB", **options).minimum_device_bytes
        for memory in (minimum, minimum - 1):
            options["device_memory"] = memory
            said = plans.refusal(lambda: plan(data, memory="64MiB", **options))
            got = plans.refusal(lambda: take(data, memory="64MiB", **options))
            self.assertEqual((said == "", got == ""), (memory == minimum,) * 2)
            self.assertEqual(f"{minimum} bytes" in said, f"{minimum} bytes" in got)

    def test_same_arguments(self) -> None:
        """What opening takes planning takes, with the same defaults."""
        opening = inspect.signature(brim.Runtime.open).parameters
        self.assertEqual(opening, inspect.signature(brim.Runtime.plan).parameters)

    def test_in_a_runtime(self) -> None:
        data = brim.array(plans.X, name="x").batch(16)
        with brim.Runtime("1MiB", threads=3) as runtime:
            self.assertEqual(data.plan(runtime=runtime), runtime.plan(data))
            self.assertEqual(
                data.plan(runtime=runtime, threads=1, hold=4), runtime.plan(data, threads=1, hold=4)
            )
            runtime.charge("900KiB")
            self.assertFalse(data.plan(runtime=runtime).fits)
            with self.assertRaisesRegex(ValueError, "memory, pinned and runtime="):
                data.plan("1MiB", pinned="1MiB", runtime=runtime)
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'holds'"):
            data.plan("1MiB", holds=3)

    def test_hold(self) -> None:
        """A plan says what `hold` it is for, also that of a loader that hands out copies."""
        data = brim.array(plans.X, name="x").batch(16)
        kept = data.plan("8MiB", hold=3)
        copied = data.plan("8MiB", hold=3, copies=True)
        self.assertEqual((kept.hold, kept.copies, kept.minimum_slots), (3, False, 3))
        self.assertEqual((copied.hold, copied.copies, copied.minimum_slots), (3, True, 3))
        self.assertEqual(kept.minimum_bytes, copied.minimum_bytes)
        self.assertRegex(str(kept), r"\nhold +3 batches kept at a time, with the one")
        self.assertRegex(str(copied), r"\nhold .*; those beyond are copied as long as that fits\n")
        with brim.Runtime("8MiB") as runtime, runtime.open(data, hold=3, copies=True) as loader:
            self.assertEqual((loader.plan.hold, loader.hold), (3, 3))


if __name__ == "__main__":
    support.main()
