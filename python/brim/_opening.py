"""How an adapter opens a pipeline: its arguments as Runtime.open takes them, in one place.

Each adapter has one function that makes an Opening of its arguments. Its loader opens that, and
its plan() plans that, so that a plan that fits opens.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

from . import _core
from ._pipeline import Pipeline
from ._plan import Plan
from ._runtime import Progress, Runtime, planning_runtime
from ._runtime import runtime as implicit_runtime
from ._shard import Part, part

Arguments = ParamSpec("Arguments")


class Opening:
    """A pipeline, where it is opened, and the options of Runtime.open."""

    def __init__(
        self,
        data: Pipeline | str,
        *,
        memory: int | str | None,
        runtime: Runtime | None,
        part: Part,
        **options: Any,
    ) -> None:
        if runtime is not None and memory is not None:
            raise ValueError(
                f"memory={memory!r} and runtime=: a runtime has its memory already; leave one out"
            )
        self.pipeline = data if isinstance(data, Pipeline) else Pipeline(data)
        self.part = part
        self._memory = memory
        self._runtime = runtime
        # frameworks may keep more than `hold` batches: those beyond are copies
        self._options = {**options, "rank": part[0], "world": part[1], "copies": True}

    def open(self) -> _core.Loader:
        runtime = self._runtime or implicit_runtime(self._memory)
        return runtime.open(self.pipeline, **self._options)

    def plan(self) -> Plan:
        if self._runtime is not None:
            return self._runtime.plan(self.pipeline, **self._options)
        with planning_runtime(self._memory) as runtime:
            return runtime.plan(self.pipeline, **self._options)


def batching(pipeline: Pipeline) -> dict[str, Any] | None:
    """The arguments of its `batch`, the last one's; None: it has none."""
    stages = [stage for stage in _core.parse(pipeline.text)[1] if stage["name"] == "batch"]
    values = stages[-1]["values"] if stages else []
    return {value["argument"]: value["value"] for value in values} or None


def may_be_fewer(pipeline: Pipeline, world: int) -> bool:
    """Whether an epoch may have fewer batches than planned: one rank passes over those of bad
    samples alone."""
    batch = batching(pipeline)
    return world == 1 and batch is not None and batch["on_error"] == "skip"


def need_hold(hold: int, least: int, who: str) -> None:
    """Refuses a `hold` that is less than `who` keeps: an epoch would come to an end in the middle,
    or be copied."""
    if hold < least and least > 1:
        raise ValueError(
            f"hold={hold}: {who} has {least} batches when it gets the next one, that one included; "
            f"open with hold={least} or more"
        )


def opening_by(
    place: Callable[[Any], str],
    ask: Callable[[], Part | None] = lambda: None,
    *,
    least: int = 1,
    who: str = "",
) -> Callable[..., Opening]:
    """The function that makes of an adapter's arguments what its loader opens and its plan()
    plans.

    place: the adapter's device as Runtime.open takes it, or an error
    ask: which part the framework says is this process's
    least: batches that the framework, `who`, has when it gets the next one
    """

    def opening(
        data: Pipeline | str,
        memory: int | str | None,
        runtime: Runtime | None,
        hold: int,
        shard: str | None,
        rank: int | None,
        world: int | None,
        label: str | None,
        threads: int | None,
        slots: int,
        fixed: bool,
        progress: Progress | None,
        device: Any,
    ) -> Opening:
        need_hold(hold, least, who)
        return Opening(
            data,
            memory=memory,
            runtime=runtime,
            part=part(shard, rank, world, ask),
            device=place(device),
            hold=hold,
            label=label,
            threads=threads,
            slots=slots,
            fixed=fixed,
            progress=progress,
        )

    return opening


def planner(
    loader: Callable[Arguments, Any], opening: Callable[..., Opening]
) -> Callable[Arguments, Plan]:
    """An adapter's plan(): the arguments of its loader, those of which `opening` takes go there."""
    signature = inspect.signature(loader)
    taken = list(inspect.signature(opening).parameters)

    def plan(*positional: Arguments.args, **named: Arguments.kwargs) -> Plan:
        bound = signature.bind(*positional, **named)
        bound.apply_defaults()
        return opening(**{name: bound.arguments[name] for name in taken}).plan()

    plan.__doc__ = (
        f"What {loader.__name__}() with the same arguments would do and need, before anything is "
        "opened: a brim.Plan,\n    for what is free now. If it `fits`, that opens."
    )
    plan.__module__ = loader.__module__
    plan.__qualname__ = "plan"
    plan.__signature__ = signature.replace(return_annotation="Plan")  # type: ignore[attr-defined]
    return plan
