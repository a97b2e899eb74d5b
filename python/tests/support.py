"""What the tests of the Python package share.

A test is a script, `python/tests/test_NAME.py`, that CTest runs as `py_test_NAME` with brim in its
path; it ends with `support.main()`. By hand:

    PYTHONPATH=build/release/python tools/python python/tests/test_NAME.py

A file that needs a package says `torch = support.need("torch")`, and is skipped as a whole (exit
code 77) where there is none. Under the address sanitizer run only the files that have the line

    # sanitizers: yes

below their docstring: those that import nothing but brim, numpy and the standard library.
"""

from __future__ import annotations

import gc
import gzip
import importlib
import os
import pathlib
import struct
import sys
import tempfile
import time
import unittest
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

ROOT = pathlib.Path(__file__).resolve().parents[2]
SANITIZED = bool(os.environ.get("BRIM_SANITIZE"))
MIB = 1 << 20


def skip_all(why: str) -> NoReturn:
    """Ends the script as skipped."""
    print(f"skipped: {why}", flush=True)
    sys.exit(77)


def need(name: str) -> ModuleType:
    """The module of that name; the whole file is skipped where it is not installed.

    One that is installed and cannot be imported for another reason is an error."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or name.split(".")[0] != error.name.split(".")[0]:
            raise
        skip_all(f"{name} is not installed (tools/venv installs it where it can)")


def despite_gloo(run: Callable[[], Any], is_abort: Callable[[Any], bool]) -> Any:
    """What `run` gives when it is not aborted by torch, in three tries.

    Threads of gloo outlive destroy_process_group(). On a busy machine one may still hold a tensor
    when the interpreter is gone, which ends the process with "terminate called without an active
    exception", after all that the program did (a pull request to PyTorch, 179291, tells of it). A
    program of torch alone, without brim, was seen to end so once in 17 runs beside others."""
    for _ in range(2):
        result = run()
        if not is_abort(result):
            return result
        print("gloo aborted a process that was done; once more", flush=True)
    return run()


def collected(gone: Callable[[], bool]) -> bool:
    """Whether the garbage collector makes it true. A worker that is inside of a function keeps
    what that refers to until it returns, so it is tried for a minute."""
    deadline = time.monotonic() + 60
    gc.collect()
    while not gone() and time.monotonic() < deadline:
        time.sleep(0.01)
        gc.collect()
    return gone()


def data(name: str) -> pathlib.Path | None:
    """A folder of real files, such as "imagenet": below BRIM_DATA, or below shared/data beside the
    repository. None where it is absent."""
    folder = pathlib.Path(os.environ.get("BRIM_DATA") or ROOT.parent / "shared" / "data") / name
    return folder if folder.is_dir() else None


def mnist(case: unittest.TestCase) -> Any:
    """A pipeline of `image` (28, 28, 1), from 0 to 1, and `label`: MNIST's 10 000 digits for
    testing. The test is skipped where they are absent."""
    import brim
    import numpy

    folder = data("mnist")
    if folder is None:
        case.skipTest("there is no MNIST")
    with gzip.open(folder / "t10k-labels-idx1-ubyte.gz") as file:
        labels = numpy.frombuffer(file.read()[8:], dtype=numpy.uint8)
    images = brim.idx(folder / "t10k-images-idx3-ubyte.gz", name="image")
    digits = brim.zip(images, brim.array(labels, "label")).reshape(28, 28, 1, on="image")
    return digits.normalize("unit", on="image")


class Drawn(NamedTuple):
    """An image that drawn_set has written."""

    path: pathlib.Path
    label: int
    width: int
    height: int
    pixels: bytes  # height * width * 3, row by row


def write_png(path: pathlib.Path, width: int, height: int, pixels: bytes) -> None:
    """An RGB image of 8 bits as PNG."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(
        b"\0" + pixels[row * width * 3 : (row + 1) * width * 3] for row in range(height)
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows, 6))
        + chunk(b"IEND", b"")
    )


def drawn_set(directory: str | os.PathLike[str], count: int, classes: int = 3) -> list[Drawn]:
    """Writes `count` small images below `directory`, a folder for each class ("class0", ...), and
    returns them in the order in which brim lists them.

    Always the same pixels. Sizes differ from 24 to 47; an image is a gradient whose strongest
    channel tells its class (of the first three), so that a network can learn it."""
    drawn = []
    for index in range(count):
        label = index % classes
        folder = pathlib.Path(directory) / f"class{label}"
        folder.mkdir(parents=True, exist_ok=True)
        width, height = 24 + index * 7 % 24, 24 + index * 5 % 24
        pixels = bytearray()
        for y in range(height):
            for x in range(width):
                pixel = [(x * 3 + index) % 97, (y * 2 + index * 3) % 89, (x + y) % 83]
                pixel[label % 3] += 120 + (x * y + index) % 32
                pixels += bytes(pixel)
        path = folder / f"{index:05}.png"
        write_png(path, width, height, bytes(pixels))
        drawn.append(Drawn(path, label, width, height, bytes(pixels)))
    return sorted(drawn, key=lambda image: os.fsencode(image.path))


class Trouble:
    """Samples x, from 0 on, one of which cannot be had while `on`."""

    def __init__(self, count: int, bad: int) -> None:
        import brim
        import numpy

        self.on = True
        column = numpy.arange(count, dtype=numpy.float32).reshape(count, 1)

        def look(sample: Any) -> Any:
            if self.on and float(numpy.asarray(sample["x"])[0]) == bad:
                raise ValueError("in trouble")
            return {"x": numpy.asarray(sample["x"])}

        self.data = brim.array(column, name="x").map(look, out={"x": ("float32", (1,))})


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    maxDiff = None

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


def main() -> NoReturn:
    """Runs the script's tests and says what was skipped; 77 if every one of them was."""
    result = unittest.main(module="__main__", exit=False).result
    for test, reason in result.skipped:
        print(f"skipped: {str(test).split()[0]}: {reason}")
    if not result.wasSuccessful():
        sys.exit(1)
    # a class that is skipped as a whole counts as no test that ran
    sys.exit(77 if result.skipped and len(result.skipped) >= result.testsRun else 0)
