"""How many batches a trainer has at a time, found out when it begins an epoch.

A trainer that looks ahead has more batches than a loop. A loader that was opened for fewer is
refused before the first batch of the epoch: in the middle of it a copy may no longer fit. The
numbers were measured (test_trainers.py, test_hold.py):

- Lightning takes one batch ahead where it does not know how many there are; when it evaluates
  several loaders, of all of them where it does not know that of one;
- the Trainer of transformers takes the batches of a whole step while it still has those of the
  step before;
- accelerate has the next batch taken to see whether there is one.

What begins the epoch is found from the frame that asks for it. A loop of the program inside a
trainer's callback is a loop. No trainer is imported here.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

LOOP = 2  # its own batch, and the one that it gets
AHEAD = 3  # one more in between

# What passes an epoch on, between the trainer and the loader.
_BETWEEN = ("brim.", "torch.utils.data.", "accelerate.")
_LIGHTNING = ("lightning.pytorch.", "pytorch_lightning.")
_LIGHTNING_EVALUATES = (".evaluation_loop", ".prediction_loop")
_EVALUATES = ("evaluation_loop", "prediction_loop")


def needed(sized: bool) -> tuple[int, str]:
    """What the trainer needs that begins an epoch now, and its name; (1, "") for a loop.

    sized: the number of batches is known
    """
    if "lightning" in sys.modules or "pytorch_lightning" in sys.modules:
        frame = _asker()
        if frame is not None and _module(frame).startswith(_LIGHTNING):
            return _of_lightning(frame, sized)
    if "transformers.trainer" in sys.modules:
        frame = _asker()
        if frame is not None and _module(frame) == "transformers.trainer":
            return _of_transformers(frame)
    state = getattr(sys.modules.get("accelerate.state"), "GradientState", None)
    if state is not None and state._shared_state:
        return LOOP, "accelerate"
    return 1, ""


def _of_lightning(asker: FrameType, sized: bool) -> tuple[int, str]:
    frame: FrameType | None = asker
    while sized and frame is not None and _module(frame).startswith(_LIGHTNING):
        if _module(frame).endswith(_LIGHTNING_EVALUATES):
            combined = getattr(frame.f_locals.get("self"), "_combined_loader", None)
            sized = all(map(_is_sized, getattr(combined, "flattened", ())))
        frame = frame.f_back
    return (LOOP, "Lightning") if sized else (AHEAD, "Lightning without the length")


def _is_sized(loader: Any) -> bool:
    try:
        len(loader)
    except Exception:  # of any kind of loader
        return False
    return True


def _of_transformers(frame: FrameType) -> tuple[int, str]:
    arguments = getattr(frame.f_locals.get("self"), "args", None)
    steps = getattr(arguments, "gradient_accumulation_steps", 1)
    if frame.f_code.co_name in _EVALUATES or steps <= 1:
        return LOOP, "the Trainer of transformers"
    return 2 * steps, f"the Trainer of transformers with gradient_accumulation_steps={steps}"


def _asker() -> FrameType | None:
    """The frame that asks for an epoch."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module(frame).startswith(_BETWEEN):
        frame = frame.f_back
    return frame


def _module(frame: FrameType | None) -> str:
    name = "" if frame is None else frame.f_globals.get("__name__", "")
    return name if isinstance(name, str) else ""
