"""brim: training data of any size inside one hard memory budget.

    import brim

    data = (
        brim.folder("train").shuffle(seed=7).decode().random_resized_crop(224).flip()
        .normalize("imagenet").batch(64)
    )
    with brim.Runtime(memory="256MiB") as rt, rt.open(data) as loader:
        for epoch in loader.epochs(3):
            for batch in epoch:
                x, y = batch["image"], batch["label"]

A Pipeline describes what to do; a Runtime is the budget and its workers; a Loader, opened from
both, returns batches. `brim.torch`, `brim.keras`, `brim.tensorflow` and `brim.jax` are adapters;
each is
imported when it is first used, and needs its framework only then.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import _core, _stages
from ._core import (
    Array,
    Batch,
    BudgetError,
    CacheWarning,
    ClosedError,
    DataError,
    DeviceError,
    EmptyBatchWarning,
    Epoch,
    Error,
    FunctionError,
    HeldError,
    HoldWarning,
    IterationError,
    Loader,
    PipelineError,
    Ragged,
    RandomnessWarning,
    StateError,
)
from ._devices import Device, devices
from ._pipeline import Pipeline, guess, pipeline
from ._plan import Plan
from ._runtime import Runtime, Usage, runtime
from ._sources import array, arrays, dataset, files, stream
from ._stages import *  # noqa: F403  (folder, npy, ...: see the table of stages)

if TYPE_CHECKING:
    import brim.jax as jax
    import brim.keras as keras
    import brim.tensorflow as tensorflow
    import brim.torch as torch

__version__ = _core.version

_FRAMEWORKS = ("jax", "keras", "tensorflow", "torch")

# All names except those of builtins (brim.range, brim.zip), for import *.
__all__ = [
    "Array",
    "Batch",
    "BudgetError",
    "CacheWarning",
    "ClosedError",
    "DataError",
    "Device",
    "DeviceError",
    "EmptyBatchWarning",
    "Epoch",
    "Error",
    "FunctionError",
    "HeldError",
    "HoldWarning",
    "IterationError",
    "Loader",
    "Pipeline",
    "PipelineError",
    "Plan",
    "Ragged",
    "RandomnessWarning",
    "Runtime",
    "StateError",
    "Usage",
    "__version__",
    "array",
    "arrays",
    "dataset",
    "devices",
    "files",
    "guess",
    "pipeline",
    "runtime",
    "stream",
]
__all__ += [name for name in _stages.__all__ if name not in ("range", "zip")]
if TYPE_CHECKING:
    __all__ += ["jax", "keras", "tensorflow", "torch"]


def __getattr__(name: str) -> Any:
    if name in _FRAMEWORKS:
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module 'brim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_stages.__all__, *_FRAMEWORKS, "__doc__", "__file__", "__name__"})
