"""A worker process, started by _workers.Spawner.

It reads its set-up from its socket (descriptor 3), loads the function and serves in C. Errors while
the function is loaded are sent over the socket, like its exceptions later.
"""

from __future__ import annotations

import mmap
import multiprocessing.spawn
import os
import pickle
import resource
import signal
import socket
import sys
import traceback

from . import _core, _workers
from ._bytes import bytes_text

_SOCKET = 3
_MOST = 30_000  # bytes of a pickled exception, and of a traceback's text
_limit: int | None = None  # process_memory


def main() -> None:
    """Until the program closes the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    os.closerange(_SOCKET + 1, os.sysconf("SC_OPEN_MAX"))
    os.set_inheritable(_SOCKET, False)
    _workers.in_worker = True
    _core.serve(_SOCKET, _load, _describe)


def _load() -> object:
    """The function, as it was pickled."""
    with socket.socket(fileno=os.dup(_SOCKET)) as packets:
        _, files, _, _ = socket.recv_fds(packets, 16, 1)
    if not files:
        sys.exit(0)  # the program has closed the socket already
    with mmap.mmap(files[0], 0, access=mmap.ACCESS_READ) as setup:
        preparation, memory, pickled = pickle.loads(setup)
    os.close(files[0])
    global _limit
    _limit = memory
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    multiprocessing.spawn.prepare(preparation)
    return pickle.loads(pickled)


def _describe(exception: BaseException) -> tuple[bytes, bytes]:
    """An exception, pickled, and its traceback's text."""
    if isinstance(exception, MemoryError) and not isinstance(exception, _core.Error) and _limit:
        reason = f"{exception}; " if str(exception) else ""
        limited = MemoryError(
            f"{reason}the worker process has reached process_memory={_limit} "
            f"({bytes_text(_limit)}): give it more, or take less at a time"
        )
        exception = limited.with_traceback(exception.__traceback__)
    text = "".join(traceback.format_exception(exception)).encode(errors="replace")[-_MOST:]
    try:
        pickled = pickle.dumps(exception)
        pickle.loads(pickled)  # some can be pickled, but not made again
        if len(pickled) <= _MOST:
            return pickled, text
    except Exception:
        pass
    last = "".join(traceback.format_exception_only(exception)).strip()[:1000]
    return pickle.dumps(RuntimeError(last)), text
