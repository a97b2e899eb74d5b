"""The smallest budget of a loop: brim.torch in two slots, beside itself in 256 MiB.

    PYTHONPATH=build/release/python tools/python bench/python/hold.py [--quick]

The images of images.py (random_resized_crop 224, flip, batches of 64, two threads): normalised
float32 with the channels first in 80 MiB, and uint8 in 24 MiB, each beside the same pipeline in 256
MiB. A slot of float32 has 36.8 MiB, so 80 MiB hold the two of the minimum and no third. The loop
does nothing with a batch, or sleeps half as long as a batch takes to make.
"""

from __future__ import annotations

import os
import time
from typing import Any

import images
import support

ROOMY = "256MiB"
KINDS = {"float32": "80MiB", "uint8": "24MiB"}


def _text(folder: str, kind: str) -> str:
    text = images._text(folder)
    return text if kind == "float32" else text.replace(" | normalize imagenet | layout chw", "")


def _open(folder: str, kind: str, memory: str) -> Any:
    import brim
    import brim.torch

    runtime = brim.Runtime(memory=memory, threads=support.THREADS)
    return brim.torch.loader(_text(folder, kind), runtime=runtime)


def loop(clock: support.Clock, folder: str, kind: str, memory: str, pause: float) -> None:
    loader = _open(folder, kind, memory)
    while True:
        for (x,) in loader:
            if pause > 0:
                time.sleep(pause)
            clock(len(x))


SIDES = {"loop": loop}


def _measure(options: support.Options, folder: str, kind: str, pause: float) -> float:
    """Compares the budgets. Seconds in which a batch comes in the roomy one."""
    import brim
    import brim.torch

    sides = {
        memory: support.Process(
            "loop", {"folder": folder, "kind": kind, "memory": memory, "pause": pause}
        )
        for memory in (ROOMY, KINDS[kind])
    }
    plan = brim.torch.plan(_text(folder, kind), memory=KINDS[kind], threads=support.THREADS)
    wanted = "0.97" if pause > 0 else "0.90"
    rates = support.compare(
        f"{kind}, {len(os.listdir(folder))} files, batches of {images.BATCH}; "
        f"{KINDS[kind]} hold {plan.slots} slots (minimum {plan.minimum_bytes / support.MIB:.1f} MiB, "
        f"planned {plan.planned_bytes / support.MIB:.1f} MiB); "
        f"the loop sleeps {1000 * pause:.1f} ms for each batch",
        sides,
        ROOMY,
        options,
        f"wanted: {wanted}",
    )
    return images.BATCH / rates[ROOMY]


def measure(options: support.Options, folder: str) -> None:
    try:
        import torch  # noqa: F401

        found = images.find(folder)
    except ModuleNotFoundError as error:
        print(f"{error.name} is not installed; nothing was measured")
        return
    for kind in KINDS:
        seconds = _measure(options, found, kind, 0)
        _measure(options, found, kind, seconds / 2)


if __name__ == "__main__":
    support.main(__doc__, SIDES, measure, seconds=2)
