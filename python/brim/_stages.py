"""The stages as methods and functions, made from the table at import.

A stage that continues a pipeline is a method of `Stages`, from which Pipeline inherits; one that
begins it is a function of this module, which `brim` exports. Stages that take a Python object
(`map`, `array`, ...) are written by hand in _functions and _sources. `_stages.pyi` is the same for
type checkers and editors; python/tools/stubs.py writes it.
"""

from __future__ import annotations

from typing import Any

from . import _core
from ._table import arguments, begins, binding_argument, document, signature, table


def _finish(call: Any, stage: _core.StageInfo, scope: str, *, method: bool) -> Any:
    call.__name__ = stage["name"]
    call.__qualname__ = scope + stage["name"]
    call.__doc__ = document(stage)
    call.__signature__ = signature(stage, method=method)
    return call


def _method(stage: _core.StageInfo) -> Any:
    def call(self: Any, /, *args: object, **keywords: object) -> Any:
        return self._add(stage["name"], arguments(stage, args, keywords))

    return _finish(call, stage, "Pipeline.", method=True)


def _function(stage: _core.StageInfo) -> Any:
    def call(*args: object, **keywords: object) -> Any:
        from ._pipeline import Pipeline

        return Pipeline._source(stage["name"], arguments(stage, args, keywords))

    return _finish(call, stage, "", method=False)


class Stages:
    """The stages that continue a pipeline, as methods."""

    __slots__ = ()


__all__: list[str] = []
for _stage in table.values():
    if binding_argument(_stage) is not None:
        continue
    if begins(_stage):
        globals()[_stage["name"]] = _function(_stage)
        __all__ += [_stage["name"]]
    else:
        setattr(Stages, _stage["name"], _method(_stage))
del _stage
