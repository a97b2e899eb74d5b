"""brim.torch on CUDA devices: streams and lifetimes, with a stand-in driver.

torch has no CUDA here. What it would do is done in its place: its streams are the stand-in's, and
the tensor that it would make of a capsule is one that keeps the capsule's memory and can be read
by a kernel that is late.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from types import SimpleNamespace
from unittest import mock

import devices
import support

standin = devices.Standin()
import brim  # noqa: E402  (it finds the stand-in, which is loaded)

numpy = support.need("numpy")
torch = support.need("torch")

ROWS, WIDTH = 4, 32
VALUES = numpy.arange(40 * WIDTH, dtype=numpy.float32).reshape(40, WIDTH)


def tearDownModule() -> None:
    standin.end()


class Tensor:
    """A tensor on a device, as far as the adapter goes."""

    dtype = torch.float32

    def __init__(self, capsule: object) -> None:
        self._taken = devices.Taken(capsule)
        tensor = self._taken.managed.tensor
        self.address = tensor.data
        self.place = (tensor.device_type, tensor.device_id)
        self.shape = tuple(tensor.shape[: tensor.ndim])

    def __getitem__(self, rows: slice) -> Tensor:
        return self

    def read(self, stream: int, microseconds: int) -> ctypes.Array:
        bytes_of_all = 4 * int(numpy.prod(self.shape))
        return standin.read(stream, self.address, bytes_of_all, microseconds)

    def __del__(self) -> None:
        self._taken.delete()


class Torch(support.Case):
    def setUp(self) -> None:
        super().setUp()
        standin.delay(0)
        self.current = 0  # torch's name for the default stream
        self.device = 0
        self.asked: list[str] = []
        self.runtime = brim.Runtime("64MiB", threads=1, cache_dir=self.folder)
        self.addCleanup(self.runtime.close)
        with contextlib.ExitStack() as stack:
            for target, name, value in (
                (torch.cuda, "is_available", lambda: True),
                (torch.cuda, "current_device", lambda: self.device),
                (torch.cuda, "current_stream", self.stream),
                (torch._C, "_from_dlpack", Tensor),
            ):
                stack.enter_context(mock.patch.object(target, name, value))
            self.addCleanup(stack.pop_all().close)

    def stream(self, device: str) -> SimpleNamespace:
        self.asked.append(str(device))
        return SimpleNamespace(cuda_stream=self.current)

    def open(self, **options) -> brim.torch.TorchLoader:
        data = brim.array(VALUES, name="x").batch(ROWS)
        loader = brim.torch.loader(data, runtime=self.runtime, **options)
        self.addCleanup(loader.close)
        return loader

    def check(self, read: list[ctypes.Array]) -> None:
        got = numpy.concatenate([numpy.frombuffer(r, numpy.float32) for r in read])
        numpy.testing.assert_array_equal(got.reshape(-1, WIDTH), VALUES)
        self.assertEqual(standin.violations(), [])

    def test_devices(self) -> None:
        for told, device in (
            ("cuda", "cuda:0"),
            ("cuda:1", "cuda:1"),
            (torch.device("cuda", 1), "cuda:1"),
        ):
            loader = self.open(device=told)
            self.assertEqual(loader.device, torch.device(device))
            (x,) = next(iter(loader))
            self.assertEqual((x.place, x.shape), ((2, int(device[-1])), (ROWS, WIDTH)))
            self.assertEqual(set(self.asked), {device})
            self.asked.clear()
            del x
        self.device = 1
        self.assertEqual(self.open(device="cuda").device, torch.device("cuda:1"))
        with self.assertRaisesRegex(brim.PipelineError, "cuda:5"):
            self.open(device="cuda:5")
        with self.assertRaisesRegex(brim.PipelineError, r"x\.to\('meta'\)"):
            self.open(device="meta")
        for told in ("gpu", "host", "opencl", "opencl:0"):
            with self.assertRaisesRegex(ValueError, r"use rt\.open\(device='opencl'\)"):
                self.open(device=told)
        self.assertEqual(self.open(device=None).device, torch.device("cpu"))

    def test_the_stream_of_next_waits(self) -> None:
        standin.delay(3000)
        streams = [0, standin.stream(), standin.stream()]
        loader = self.open(device="cuda")
        read = []
        for number, (x,) in enumerate(loader):
            read.append(x.read(self.current or 1, 0))
            self.current = streams[number % 3]
        for stream in streams:
            standin.finish(stream or 1)
        self.check(read)

    def test_memory_is_filled_anew_after_late_reads(self) -> None:
        self.current = standin.stream()
        loader = self.open(device="cuda", hold=2)
        for _ in range(3):
            read = []
            for (x,) in loader:
                read.append(x.read(self.current, 2000))
            del x
            standin.finish(self.current)
            self.check(read)
        self.assertEqual(loader.stats()["copies"], 0)

    def test_work_in_another_stream_that_the_first_waits_for(self) -> None:
        self.current, other = standin.stream(), standin.stream()
        event = ctypes.c_void_p()
        standin.call("cuEventCreate", ctypes.byref(event), 2)
        read = []
        for (x,) in self.open(device="cuda"):
            # wait_stream() one way, then the other
            for first, then in ((self.current, other), (other, self.current)):
                standin.call("cuEventRecord", event, ctypes.c_void_p(first))
                standin.call("cuStreamWaitEvent", ctypes.c_void_p(then), event, 0)
                if then == other:
                    read.append(x.read(other, 2000))
        del x
        standin.finish(other)
        standin.call("cuEventDestroy_v2", event)
        self.check(read)

    def test_more_than_hold_are_copies(self) -> None:
        loader = self.open(device="cuda", hold=1)
        with self.assertWarns(brim.HoldWarning):
            kept = list(loader)
        read = [x.read(1, 0) for (x,) in kept]
        standin.finish(1)
        self.check(read)
        self.assertEqual(loader.stats()["copies"], len(kept) - 1)
        del kept
        gc.collect()

    def test_without_cuda_in_torch(self) -> None:
        with mock.patch.object(torch.cuda, "is_available", lambda: False):
            with self.assertRaisesRegex(brim.PipelineError, "is_available"):
                self.open(device="cuda")
            device = "cuda" if torch.cuda.is_available() else "cpu"
            self.assertEqual(self.open(device=device).device, torch.device("cpu"))


if __name__ == "__main__":
    support.main()
