"""A repeated evaluation on a set that is cached on the device: it is uploaded once.

    python resident_evaluation.py [DEVICE]

`cache("device")` keeps each sample on the device after its first upload; later passes gather their
batches from these. Repeating takes no memory: the charges are the same after the tenth pass as
after the first. Without a device everything runs on the host.
"""

from __future__ import annotations

import sys

import numpy

import brim

PASSES = 10


def main(device: str) -> None:
    images = numpy.random.default_rng(0).integers(0, 256, (512, 32, 32, 3), numpy.uint8)
    data = (
        brim.arrays(image=images).normalize("imagenet").layout("chw").cache("device").batch(32)
    )  # fmt: skip
    with (
        brim.Runtime(memory="32MiB", device_memory="32MiB") as rt,
        rt.open(data, device=device, label="evaluation", fixed=True) as loader,
    ):
        seen = set()
        for number in range(PASSES):
            for batch in loader:
                batch.release()
            copied = loader.stats()["copied_bytes"]
            peaks = {kind: holders[0]["peak"] for kind, holders in rt.usage()["kinds"].items()}
            seen.add((copied, *peaks.values()))
            if number in (0, PASSES - 1):
                line = ", ".join(f"{kind} {peak / 1024:.1f} KiB" for kind, peak in peaks.items())
                print(f"pass {number + 1}: {copied / 1024:.1f} KiB copied; at most {line}")
        assert len(seen) == 1, seen
        print(f"the same after each of {PASSES} passes, on {device}")


if __name__ == "__main__":
    found = [str(one) for one in brim.devices() if str(one).startswith("opencl")]
    main(sys.argv[1] if len(sys.argv) > 1 else next(iter(found), "host"))
