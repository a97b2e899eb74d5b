"""Runtimes: one memory budget and the threads that work inside it.

A program makes one with `Runtime(memory=...)`. Adapters without `runtime=` use one for the process,
the implicit runtime, so that several loaders stay inside one budget together.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, SupportsIndex

from . import _core
from ._bytes import bytes_text, count_text, read_bytes, table_text
from ._devices import Device
from ._pipeline import Pipeline
from ._plan import Plan

Progress = Callable[[str, int, "int | None", str], object]

_COLUMNS = ("charged", "reserved", "elastic", "peak")


_KINDS = {"host": "host memory", "pinned": "of it page-locked"}


class Usage(dict[str, Any]):
    """The current use of a runtime; printed, a tree of the holders for each kind of memory."""

    def _tree(self, kind: str) -> list[list[str]]:
        """A row for each holder; those that have and had nothing are left out."""
        rows = []
        for holder in self["kinds"][kind]:
            if holder["depth"] == 0 or kind == "host" or holder["peak"] > 0:
                figures = [bytes_text(holder[key]) for key in _COLUMNS]
                limit = "" if holder["limit"] is None else bytes_text(holder["limit"])
                rows.append(["  " * holder["depth"] + holder["label"], *figures, limit])
        return rows

    def __str__(self) -> str:
        used = bytes_text(self["charged"] + self["reserved"])
        lines = [
            f"{used} of {bytes_text(self['limit'])} ({self['origin']}), at most "
            f"{bytes_text(self['peak'])} so far; {count_text(self['threads'], 'thread')}, "
            f"{count_text(self['loaders'], 'loader')}"
        ]
        head = [*_COLUMNS, "limit"]
        rows: list[list[str]] = []
        for kind in self["kinds"]:
            rows.append([_KINDS.get(kind, f"memory of {kind}"), *(head if not rows else [""] * 5)])
            rows += [["  " + row[0], *row[1:]] for row in self._tree(kind)]
        lines += table_text(rows, right={1, 2, 3, 4, 5})
        if self["shared"] is not None:
            count = self["shared"]["processes"]
            lines.append(
                f"shared: {bytes_text(self['shared']['used'])} of "
                f"{bytes_text(self['shared']['limit'])}, by {count} "
                f"process{'' if count == 1 else 'es'}"
            )
        lines.append(
            f"the process has an RSS of {bytes_text(self['rss'])}, of which "
            f"{bytes_text(self['outside'])} is not brim's"
        )
        for worker in self["processes"]:
            lines.append(
                f"process {worker['pid']} ({worker['function']}) has "
                f"{bytes_text(worker['private'])} of its own"
            )
        return "\n".join(lines)


def _check(hold: int, rank: int, world: int, progress: object) -> None:
    """Arguments of open and plan, by their names."""
    for name, value in (("hold", hold), ("rank", rank), ("world", world)):
        if isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise TypeError(f"{name} is an int, not {value!r}")
    if hold < 1:
        raise ValueError(f"hold={hold}: it is the number of batches held at a time, at least 1")
    if world < 1:
        raise ValueError(f"world={world}: it is the number of ranks, at least 1")
    if not 0 <= rank < world:
        raise ValueError(f"rank={rank}: it is from 0 to world - 1, which is {world - 1}")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is a function, not {progress!r}")


def _bytes(amount: int | str | None, what: str) -> int:
    """Bytes; 0 where nothing is given."""
    return 0 if amount is None else read_bytes(amount, what)


def _device_text(device: str | Device | None) -> str:
    if device is None:
        return "cpu"
    if not isinstance(device, (str, Device)):
        raise TypeError(f"device is a str such as 'cuda:0', or of brim.devices(), not {device!r}")
    return str(device)


def _memory_kind(device: str | Device | None, pinned: bool) -> tuple[str, str]:
    """The kind of memory, as usage() names it, and the device that it is of."""
    place = _device_text(device)
    if place.partition(":")[0] in ("cpu", "host"):
        return "pinned" if pinned else "host", "cpu"
    if pinned:
        raise ValueError(f"pinned=True and device={place!r}: page-locked memory is the host's")
    return place if ":" in place else f"{place}:0", place


class Runtime:
    """One memory budget, and the threads that work inside it.

    memory: int or str such as "256MiB"
        the limit of all its loaders together; default: a quarter of the free memory
    threads: int
        workers; 0: the thread that asks for a batch makes it; default: one for each CPU
    index_dir: str or PathLike
        where indexes are kept; default: .cache/brim in the home directory
    pinned: int or str
        the part of `memory` that may be page-locked, for staging slots; default: all
    device_memory: int or str
        the limit for each device; default: a quarter of the memory that is free there when it is
        first used
    shared: str
        the name of a budget that processes of this machine and user share: together they never take
        more than the limits that the first of them gave
    shared_memory: int or str
        host memory of all these processes together
    trust_foreign: bool
        use indexes and cache files that other users own or may write, for teams with a common
        directory; default: they count as absent, with a `CacheWarning`
    """

    def __init__(
        self,
        memory: int | str | None = None,
        *,
        threads: int | None = None,
        index_dir: str | os.PathLike[str] | None = None,
        pinned: int | str | None = None,
        device_memory: int | str | None = None,
        shared: str | None = None,
        shared_memory: int | str | None = None,
        trust_foreign: bool = False,
    ) -> None:
        if shared is not None and not isinstance(shared, str):
            raise TypeError(f"shared is the name of a budget, a str, not {shared!r}")
        if shared_memory is not None and shared is None:
            raise ValueError("shared_memory= needs shared=, the name of the budget")
        self._core = _core.Runtime(
            _bytes(memory, "memory"),
            threads=-1 if threads is None else threads,
            index_dir=None if index_dir is None else os.fspath(index_dir),
            pinned=_bytes(pinned, "pinned"),
            device_memory=_bytes(device_memory, "device_memory"),
            shared=shared,
            shared_memory=_bytes(shared_memory, "shared_memory"),
            trust_foreign=trust_foreign,
        )
        self._lock = threading.Lock()  # guards _charged
        self._charged: dict[str, int] = {}  # bytes by charge(), of each kind of memory

    def _opening(
        self, data: Pipeline | str, **options: Any
    ) -> tuple[str, list[_core.Binding], dict[str, Any]]:
        """The pipeline and the options as C's open and plan take them: the one place that makes
        them, so that a plan says what opening does."""
        _check(options["hold"], options["rank"], options["world"], options["progress"])
        if options["label"] is not None and not isinstance(options["label"], str):
            raise TypeError(f"label is a str, not {options['label']!r}")
        if not isinstance(data, (Pipeline, str)):
            raise TypeError(f"data is a Pipeline or its text, not {type(data).__name__}")
        options["threads"] = -1 if options["threads"] is None else options["threads"]
        options["device"] = _device_text(options["device"])
        pipeline = data if isinstance(data, Pipeline) else Pipeline(data)
        return pipeline.text, pipeline._bindings_for(self), options

    def open(
        self,
        data: Pipeline | str,
        *,
        hold: int = 2,
        rank: int = 0,
        world: int = 1,
        label: str | None = None,
        threads: int | None = None,
        slots: int = 0,
        fixed: bool = False,
        progress: Progress | None = None,
        copies: bool = False,
        device: str | Device | None = None,
        queue: object = None,
    ) -> _core.Loader:
        """Takes the pipeline's minimum, and starts. BudgetError if it does not fit.

        hold: batches that the program may hold at a time. As many slots are reserved, and 2 at
            least. A `for` loop still holds the last batch when it gets the next, so less than 2
            needs `release()`
        rank, world: this is shard `rank` of `world`
        label: its name in `usage()` and in refusals
        threads: the most workers of the runtime that it uses
        slots: most batches in memory at a time, without copies; 0: as planned
        fixed: take all planned memory when opening, instead of growing on demand
        progress: called as progress(what, done, total, unit) while an index is made: `unit` is
            "bytes", "files" or "samples", `total` may be None; an exception in it ends the opening
        copies: a batch beyond `hold` is a copy, charged to the budget, instead of an error, as
            long as that has room for it
        device: where batches are delivered: "cpu" (the default), "cuda:0", "opencl:0" (without a
            number the first), or one of brim.devices()
        queue: on a device, the queue in which batches are used: a CUDA stream or an OpenCL queue,
            as an int or as an object of torch, cupy or pyopencl. It waits for a batch before later
            work, and a batch is released after the work in it. Default: the consumer names a queue
            when it takes a batch through DLPack or calls its wait()
        """
        text, bindings, options = self._opening(
            data,
            hold=hold,
            rank=rank,
            world=world,
            label=label,
            threads=threads,
            slots=slots,
            fixed=fixed,
            progress=progress,
            copies=copies,
            device=device,
            queue=queue,
        )
        return self._core.open(text, bindings, **options)

    def plan(
        self,
        data: Pipeline | str,
        *,
        hold: int = 2,
        rank: int = 0,
        world: int = 1,
        label: str | None = None,
        threads: int | None = None,
        slots: int = 0,
        fixed: bool = False,
        progress: Progress | None = None,
        copies: bool = False,
        device: str | Device | None = None,
        queue: object = None,
    ) -> Plan:
        """The plan of `open` with the same options, for the memory that is free now."""
        text, bindings, options = self._opening(
            data,
            hold=hold,
            rank=rank,
            world=world,
            label=label,
            threads=threads,
            slots=slots,
            fixed=fixed,
            progress=progress,
            copies=copies,
            device=device,
            queue=queue,
        )
        return Plan(self._core.plan(text, bindings, **options))

    def usage(self) -> Usage:
        """What is charged, reserved and elastic, by holder and kind of memory, and what lies
        outside: a dict."""
        from . import _workers

        return Usage(self._core.usage(), processes=_workers.usage())

    def trim(self) -> int:
        """Frees all elastic memory; returns the number of bytes."""
        return self._core.trim()

    def charge(
        self, amount: int | str, device: str | Device | None = None, *, pinned: bool = False
    ) -> None:
        """Counts memory that the program is about to take. BudgetError if it does not fit.

        device: the device of the memory, as in `open`; default: the host
        pinned: it is page-locked memory of the host
        """
        count = read_bytes(amount, "amount")
        kind, place = _memory_kind(device, pinned)
        self._core.charge(count, place, pinned)
        with self._lock:
            self._charged[kind] = self._charged.get(kind, 0) + count

    def uncharge(
        self, amount: int | str, device: str | Device | None = None, *, pinned: bool = False
    ) -> None:
        """Uncharges memory. ValueError if it is more than `charge` has charged of that kind."""
        count = read_bytes(amount, "amount")
        kind, place = _memory_kind(device, pinned)
        with self._lock:
            charged = self._charged.get(kind, 0)
            if count > charged:
                raise ValueError(
                    f"uncharge({amount!r}): only {bytes_text(charged)} ({charged} bytes) of "
                    f"{kind} memory are charged"
                )
            self._charged[kind] = charged - count
        self._core.uncharge(count, place, pinned)

    def close(self) -> None:
        """Closes the runtime. Open loaders and batches keep the memory that they need."""
        self._core.close()

    @property
    def closed(self) -> bool:
        return self._core.closed

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<brim.Runtime, closed>"
        usage = self._core.usage()
        used = bytes_text(usage["charged"] + usage["reserved"])
        loaders = count_text(usage["loaders"], "loader")
        return f"<brim.Runtime: {used} of {bytes_text(usage['limit'])}, {loaders}>"


# ----------------------------------------------------------------- the implicit runtime

_lock = threading.Lock()  # guards _implicit
_implicit: Runtime | None = None


def _suited(memory: int | str | None) -> Runtime | None:
    """The implicit runtime, if it is as asked for; None: one is to be made. ValueError if open
    loaders keep one with another limit. The lock is held."""
    if _implicit is None or _implicit.closed:
        return None
    if memory is None:
        return _implicit
    usage = _implicit._core.usage()
    if usage["limit"] == read_bytes(memory):
        return _implicit
    if usage["loaders"] > 0:
        raise ValueError(
            f"memory={memory!r}, but the runtime of this process has "
            f"{bytes_text(usage['limit'])} ({usage['limit']} bytes) and "
            f"{count_text(usage['loaders'], 'open loader')}; close what is open, leave "
            "memory out to share what it has, or pass runtime=brim.Runtime(memory=...) "
            "for a budget of its own"
        )
    return None


def runtime(memory: int | str | None = None) -> Runtime:
    """The common runtime of this process, for adapters; made at its first use.

    With another amount of memory it is made again if none of its loaders is open; otherwise that is
    a ValueError. A forked child makes its own.
    """
    global _implicit
    with _lock:
        found = _suited(memory)
        if found is None:
            if _implicit is not None:
                _implicit.close()
            found = _implicit = Runtime(memory)
        return found


@contextlib.contextmanager
def planning_runtime(memory: int | str | None = None) -> Iterator[Runtime]:
    """What runtime(memory) would give, to plan in: where it would be made, one that is made only
    for this, so that a plan changes nothing."""
    with _lock:
        found = _suited(memory)
    if found is not None:
        yield found
    else:
        with Runtime(memory) as made:
            yield made


def _forget() -> None:
    """In a child after fork, where the parent's runtime and lock are of no use."""
    global _implicit, _lock
    _lock = threading.Lock()
    _implicit = None


os.register_at_fork(after_in_child=_forget)
