"""Tracebacks without references to objects of the program.

A function's exception is kept until its batch is requested, perhaps for longer. Its traceback
refers to the frames that it passed, these to their variables, which include views of brim's memory,
and to the frames that called them: if a loader has no threads, to the program's own frames, with
the loader and all their variables. So each frame is replaced by one with the same file, line and
name, and with neither variables nor a caller: that of a generator that was never started.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType, TracebackType


def _blank() -> Iterator[None]:
    yield


def _copy(traceback: TracebackType | None) -> TracebackType | None:
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    made = None
    for entry in reversed(entries):
        code = entry.tb_frame.f_code
        blank = _blank.__code__.replace(
            co_filename=code.co_filename,
            co_name=code.co_name,
            co_firstlineno=code.co_firstlineno,
            co_linetable=code.co_linetable,  # which columns of a line to underline
        )
        generator = FunctionType(blank, entry.tb_frame.f_globals)()
        made = TracebackType(made, generator.gi_frame, entry.tb_lasti, entry.tb_lineno)
    return made


def detach(exception: BaseException) -> None:
    """Gives the exception, its causes and its contexts such tracebacks. What the program was
    handling when it called is no context of a function's exception, and is cut off."""
    handled = sys.exc_info()[1]
    found, seen = [exception], set()
    while found:
        one = found.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _copy(one.__traceback__)
        if one.__context__ is handled:
            one.__context__ = None
        others = one.__cause__, one.__context__, *getattr(one, "exceptions", ())
        found += [other for other in others if isinstance(other, BaseException)]
