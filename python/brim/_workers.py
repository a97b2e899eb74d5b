"""Worker processes for functions: starting them, and their memory.

A worker process is a new interpreter that runs brim._worker: no state of the program is copied into
it. Its set-up comes pickled in a memory file over its socket, and from then on C talks to C
(src/processes.c, src/serve.c). This module starts processes when C asks for one, makes exceptions
of their reports, and reads how much memory they have taken.

A function that pickle refers to by its name is imported by that name; if it is in the script that
was started, the script is imported too, under another name than "__main__", as multiprocessing
does. Others (lambdas, functions inside functions or in a notebook) are pickled by value with
cloudpickle, if that is installed.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
from typing import Any, TypedDict

from . import _core

# Set by brim._worker: worker processes start no others.
in_worker = False

# Each process works on one sample at a time; threads of its libraries would only fight for CPUs.
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_SOCKET = 3  # the number under which a worker finds its socket
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from brim._worker import main; main()"


class WorkerTraceback(Exception):
    """Where an exception was raised in a worker process: the cause of that exception here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def rebuild(pickled: bytes, text: bytes) -> BaseException:
    """The exception that a worker process has reported, with its traceback there as the cause."""
    traceback = text.decode(errors="replace")
    lines = traceback.strip().splitlines() or ["a worker process failed"]
    exception: BaseException = RuntimeError(lines[-1])
    try:
        made = pickle.loads(pickled)
        exception = made if isinstance(made, BaseException) else exception
    except Exception:
        pass  # of a module that cannot be imported here: its text says all there is
    exception.__cause__ = WorkerTraceback(traceback)
    return exception


class Spawner:
    """Starts worker processes for `call`; what _core.Binding takes in `processes`.

    `label` names the function in usage, `runtime` is the _core.Runtime in whose budget memory for
    handing samples over is counted, `memory` the most bytes that a process may take for itself,
    its interpreter included (None: no limit), and `timeout` the most seconds that a call may take.
    """

    def __init__(
        self,
        call: object,
        label: str,
        runtime: _core.Runtime,
        memory: int | None = None,
        timeout: float | None = None,
    ) -> None:
        if in_worker:
            raise RuntimeError(
                "worker processes start no worker processes. If this is a script that opens a "
                'loader when it is imported, put that part under if __name__ == "__main__":'
            )
        self.label = label
        self.runtime = runtime
        self.timeout = timeout
        pickled, by_value = _pickle(call, label)
        preparation = _preparation(not by_value and b"__main__" in pickled)
        setup = pickle.dumps((preparation, memory, pickled))
        self._setup = os.memfd_create("brim worker")
        with open(self._setup, "wb", closefd=False) as file:
            file.write(setup)

    def __del__(self) -> None:
        if hasattr(self, "_setup"):
            os.close(self._setup)

    def __call__(self) -> tuple[int, int]:
        """Starts one: its pid, and the descriptor of its socket, which is C's to close."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            socket.send_fds(ours, [b"setup"], [self._setup])
            pid = _start(theirs.fileno())
            return pid, ours.detach()


def _start(file: int) -> int:
    """A process whose one descriptor besides the three standard ones is `file`."""
    environment = dict.fromkeys(_ONE_THREAD, "1") | os.environ
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    executable = sys.executable or f"{sys.prefix}/bin/python3"
    return os.posix_spawn(
        executable,
        [executable, "-c", _PROGRAM, root],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, file, _SOCKET),
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        ],
        # until the worker ignores it: Ctrl-C is for the program, which ends its workers
        setsigmask=[signal.SIGINT],
    )


def _main_path() -> dict[str, str]:
    """How multiprocessing.spawn.prepare is told to import the program's script; {}: no script."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return {"init_main_from_name": name}
    path = getattr(main, "__file__", None)
    if path is None or not os.path.exists(path):
        return {}
    return {"init_main_from_path": os.path.abspath(path)}


def _preparation(with_main: bool) -> dict[str, Any]:
    return {
        "name": "brim worker",
        "sys_path": [path or os.getcwd() for path in sys.path],
        "sys_argv": list(sys.argv),
        **(_main_path() if with_main else {}),
    }


def _pickle(call: object, label: str) -> tuple[bytes, bool]:
    """`call`, pickled, and whether by value."""
    try:
        pickled = pickle.dumps(call)
        if b"__main__" not in pickled or _main_path():
            return pickled, False
        problem = "it lives in a program without a file, such as a notebook"
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        problem = str(error)
    try:
        import cloudpickle
    except ImportError:
        raise TypeError(
            f"{label} cannot be handed to worker processes ({problem}): move it to the top level "
            "of a module, or pip install cloudpickle"
        ) from None
    return cloudpickle.dumps(call), True


class WorkerUsage(TypedDict):
    """A worker process: its own memory, its RSS, and whose function it runs."""

    pid: int
    private: int
    rss: int
    function: str


def usage() -> list[WorkerUsage]:
    """All worker processes of this program that live."""
    rows: list[WorkerUsage] = []
    for process in _core.processes():
        try:
            with open(f"/proc/{process['pid']}/smaps_rollup") as file:
                lines = [line.split() for line in file]
        except OSError:  # it has ended meanwhile
            continue
        kilobytes = {line[0]: int(line[1]) for line in lines if len(line) == 3}
        private = kilobytes.get("Private_Clean:", 0) + kilobytes.get("Private_Dirty:", 0)
        rows.append(
            {
                "pid": process["pid"],
                "private": private * 1024,
                "rss": kilobytes.get("Rss:", 0) * 1024,
                "function": process["function"],
            }
        )
    return rows
