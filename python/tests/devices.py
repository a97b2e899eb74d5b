"""What the tests of devices share: DLPack's structs, and the stand-in for CUDA's driver.

The stand-in (tests/standin/cuda_standin.h) is a libcuda.so.1 of brim's own, which counts whatever a
driver would let pass or answer with anything. CTest says in BRIM_CUDA_STANDIN where it is; it is
loaded here before brim looks for a driver.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time

import support

PATIENCE = 60.0  # seconds in which what must come has come


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManaged(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class DLVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
_USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}


def name_of(capsule: object) -> bytes:
    return b"dltensor_versioned" if '"dltensor_versioned"' in repr(capsule) else b"dltensor"


def look(capsule: object) -> DLManaged | DLVersioned:
    """What a capsule holds. Valid as long as the capsule."""
    name = name_of(capsule)
    kind = DLVersioned if name == b"dltensor_versioned" else DLManaged
    return kind.from_address(_pointer(capsule, name))


def delete_and_leave(capsule: object) -> None:
    """Calls the deleter and leaves the capsule's name, as torch does on a device it does not know:
    the capsule's destructor sees a tensor that nobody took."""
    managed = look(capsule)
    address = ctypes.addressof(managed)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)(address)


class Taken:
    """A capsule's tensor, taken over as a framework does it: its deleter is called by hand."""

    def __init__(self, capsule: object) -> None:
        name = name_of(capsule)
        self.address = _pointer(capsule, name)
        self.managed = look(capsule)
        _rename(capsule, _USED[name])
        self.deleter = int(self.managed.deleter)

    def delete(self) -> None:
        """Calls the deleter without the interpreter's lock, which ctypes gives up."""
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.deleter)(self.address)


def until(ready) -> None:
    """Waits for what must come."""
    deadline = time.monotonic() + PATIENCE
    while not ready():
        if time.monotonic() > deadline:
            raise AssertionError("waited in vain")
        time.sleep(0.001)


def has_opencl() -> bool:
    import brim

    return any(device.kind == "opencl" for device in brim.devices())


# ------------------------------------------------------------------------ the stand-in

_COUNTERS = """calls violations forked_calls not_locked copies_in copies_back copies_within bytes_in
    retained allocations device_bytes device_bytes_peak locked locked_bytes locked_bytes_peak
    streams events depth""".split()  # in the order of cuda_standin.h


class Standin:
    """The stand-in, and a consumer of its own: a context, current on the thread that makes it, and
    streams."""

    def __init__(self) -> None:
        path = os.environ.get("BRIM_CUDA_STANDIN", "")
        if not os.path.exists(path):
            support.skip_all(f"no stand-in for CUDA's driver at BRIM_CUDA_STANDIN={path!r}")
        self.library = ctypes.CDLL(path)
        self.library.cuda_standin_get.restype = ctypes.c_uint64
        self.library.cuda_standin_violation.restype = ctypes.c_char_p
        self.library.cuda_standin_empty.restype = ctypes.c_bool
        self.call("cuInit", 0)
        self.streams: list[int] = []
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxPushCurrent_v2", self.context)

    def call(self, name: str, *arguments: object) -> None:
        result = getattr(self.library, name)(*arguments)
        assert result == 0, f"{name} says {result}"

    def get(self, counter: str) -> int:
        return int(self.library.cuda_standin_get(_COUNTERS.index(counter)))

    def delay(self, microseconds: int) -> None:
        self.library.cuda_standin_delay(ctypes.c_uint64(microseconds))

    def stream(self) -> int:
        """A new stream, which takes no part in the order of the default streams."""
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        assert stream.value is not None
        self.streams.append(stream.value)
        return stream.value

    def read(self, stream: int, address: int, count: int, microseconds: int = 0) -> ctypes.Array:
        """A consumer's kernel that reads late: what it will have read."""
        to = (ctypes.c_uint8 * count)()
        self.call(
            "cuda_standin_read",
            ctypes.c_void_p(stream),
            ctypes.c_uint64(address),
            to,
            ctypes.c_size_t(count),
            ctypes.c_uint64(microseconds),
        )
        return to

    def finish(self, stream: int) -> None:
        self.call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def violations(self) -> list[str]:
        texts = [self.library.cuda_standin_violation(i) for i in range(16)]
        return [text.decode() for text in texts if text]

    def end(self) -> None:
        """Lets go of what the consumer has; then nothing may be left, and nothing wrong done."""
        gc.collect()
        for stream in self.streams:
            self.finish(stream)
            self.call("cuStreamDestroy_v2", ctypes.c_void_p(stream))
        popped = ctypes.c_void_p()
        self.call("cuCtxPopCurrent_v2", ctypes.byref(popped))
        self.call("cuDevicePrimaryCtxRelease_v2", 0)
        assert self.violations() == [], self.violations()
        locked = self.get("not_locked") <= self.get("copies_back")  # those go to the program's own
        assert locked, "copies from memory that is not page-locked"
        left = {name: self.get(name) for name in ("retained", "allocations", "locked", "events")}
        assert self.library.cuda_standin_empty(), left
