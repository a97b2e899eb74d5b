"""The common attributes of the adapters' loaders: the running pipeline, its statistics, closing
it."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from . import _core
from ._pipeline import Pipeline
from ._plan import Plan

Self = TypeVar("Self", bound="Opened")


class Opened:
    """A running pipeline. Subclasses set `_core`, `_pipeline` and their own name."""

    _core: _core.Loader
    _pipeline: Pipeline
    _name = "brim.loader"

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that the loader runs."""
        return self._pipeline

    @property
    def plan(self) -> Plan:
        """The plan of the loader."""
        return self._core.plan

    @property
    def classes(self) -> dict[str, list[str]]:
        """The names of the labels, for each field that has them."""
        return self._core.classes

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self._core.epoch

    def stats(self) -> dict[str, Any]:
        """What the loader has done so far."""
        return self._core.stats()

    def close(self) -> None:
        """Closes the loader. Batches that are still held stay valid."""
        self._core.close()

    @property
    def closed(self) -> bool:
        return self._core.closed

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self._name} of {self._pipeline.text!r}{', closed' * self.closed}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {self._name.split('.')[-1]} is a running pipeline and cannot be pickled: send the "
            "Pipeline and open one in the process that uses it"
        )
