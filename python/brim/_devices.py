"""Devices that batches can be delivered on: which there are, and how they are named."""

from __future__ import annotations

from dataclasses import dataclass

from . import _core

_KINDS = ("cuda", "opencl")  # that have a driver to be looked for


@dataclass(frozen=True)
class Device:
    """A device; `str(device)` is its name in `device=`."""

    kind: str  # "cuda", "opencl"
    index: int
    name: str  # what its maker calls it
    driver: str  # what drives it, with its version
    total: int  # bytes of its memory
    free: int | None  # of these, now; None: the driver does not tell
    unified: bool  # its memory is the host's
    converts: bool  # pixels are uploaded as uint8 and normalised there

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


def devices() -> list[Device]:
    """The devices of this machine. Kinds without a driver are left out."""
    found = []
    for kind in _KINDS:
        try:
            found += [Device(**info) for info in _core.devices(kind)]
        except _core.PipelineError:  # there is no driver
            continue
    return found
