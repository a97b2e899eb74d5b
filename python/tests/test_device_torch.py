"""brim.torch on CUDA devices: streams and lifetimes, with a stand-in driver.

torch has no CUDA here. What it would do is done in its place: its streams are the stand-in's, and
the tensor that it would make of a capsule is one that keeps the capsule's memory and can be read
by a kernel that is late.
"""

# label: full

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


TYPES = {(0, 64): torch.int64, (1, 8): torch.uint8, (2, 32): torch.float32}  # by code and bits
LATE = 2000  # microseconds that a kernel takes


class Tensor:
    """A tensor on a device, as far as the adapter goes."""

    stream = staticmethod(lambda: 0)  # the current one, which torch's own kernels are put into

    def __init__(self, capsule: object) -> None:
        self._taken = devices.Taken(capsule)
        tensor = self._taken.managed.tensor
        self.address = tensor.data
        self.place = (tensor.device_type, tensor.device_id)
        self.shape = tuple(tensor.shape[: tensor.ndim])
        self.strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
        self.dtype = TYPES[tensor.code, tensor.bits]

    def __getitem__(self, rows: slice) -> Tensor:
        return self

    def read(self, stream: int, microseconds: int) -> ctypes.Array:
        bytes_of_all = self.dtype.itemsize * int(numpy.prod(self.shape))
        return standin.read(stream, self.address, bytes_of_all, microseconds)

    def clone(self) -> Made:
        return Made(self, self.dtype)

    def to(self, dtype: torch.dtype) -> Made:
        return Made(self, dtype)

    def permute(self, *order: int) -> View:
        return View(self, order)

    def __del__(self) -> None:
        self._taken.delete()


class Made:
    """What a kernel in the current stream makes of a tensor, which may be gone when it begins."""

    memory: list[ctypes.Array] = []  # that kernels write to: kept until they are done

    def __init__(self, tensor: Tensor, dtype: torch.dtype) -> None:
        self.shape, self.dtype, self._from = tensor.shape, dtype, tensor.dtype
        self._read = tensor.read(Tensor.stream() or 1, LATE)
        self.memory.append(self._read)

    def numbers(self) -> list[int]:
        made = torch.frombuffer(bytearray(self._read), dtype=self._from).to(self.dtype)
        return made.reshape(self.shape).tolist()


class View:
    """The same memory with its dimensions in another order."""

    def __init__(self, tensor: Tensor, order: tuple[int, ...]) -> None:
        self.tensor = tensor
        self.shape = tuple(tensor.shape[axis] for axis in order)
        self.strides = tuple(tensor.strides[axis] for axis in order)


class Torch(support.Case):
    def setUp(self) -> None:
        super().setUp()
        standin.delay(0)
        self.current = 0  # torch's name for the default stream
        self.device = 0
        self.asked: list[str] = []
        self.runtime = brim.Runtime("64MiB", threads=1, index_dir=self.folder)
        self.addCleanup(self.runtime.close)
        with contextlib.ExitStack() as stack:
            for target, name, value in (
                (torch.cuda, "is_available", lambda: True),
                (torch.cuda, "current_device", lambda: self.device),
                (torch.cuda, "current_stream", self.stream),
                (torch._C, "_from_dlpack", Tensor),
            ):
                stack.enter_context(mock.patch.object(target, name, value))
            stack.enter_context(mock.patch.object(Tensor, "stream", lambda: self.current))
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
                read.append(x.read(self.current, LATE))
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
                    read.append(x.read(other, LATE))
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

    def finish(self) -> None:
        standin.finish(self.current or 1)
        Made.memory.clear()

    def open_labelled(self, dtype: str, **options) -> brim.torch.TorchLoader:
        pixels = numpy.arange(40 * 24, dtype=numpy.float32).reshape(40, 2, 4, 3)
        images = brim.array(pixels, name="x")
        labels = brim.array((numpy.arange(40) * 3).astype(dtype), name="y")
        data = brim.zip(images, labels).batch(ROWS)
        loader = brim.torch.loader(data, runtime=self.runtime, device="cuda", **options)
        self.addCleanup(loader.close)
        return loader

    def test_labels_may_be_collected(self) -> None:
        # They are copied by a kernel of torch's, which is late; the slot is filled after it.
        self.current = standin.stream()
        for dtype in ("int64", "uint8"):
            loader = self.open_labelled(dtype, hold=2, slots=4)
            for _ in range(3):
                labels, shapes = [], set()
                for x, y in loader:
                    labels.append(y)
                    shapes.add((x.shape, y.shape, y.dtype))
                del x
                self.finish()
                self.assertEqual(shapes, {((ROWS, 2, 4, 3), (ROWS,), torch.int64)})
                got = [number for y in labels for number in y.numbers()]
                self.assertEqual(got, [3 * i for i in range(40)])
            self.assertEqual(loader.stats()["copies"], 0)
        self.assertEqual(standin.violations(), [])

    def test_batches_as_dicts(self) -> None:
        loader = self.open_labelled("int64", as_dict=True, fields=("y", "x"))
        for batch in loader:
            self.assertEqual(list(batch), ["y", "x"])
            self.assertEqual((batch["x"].place, batch["x"].dtype), ((2, 0), torch.float32))
        del batch
        self.finish()
        self.assertEqual(standin.violations(), [])

    def test_channels_last(self) -> None:
        self.current = standin.stream()
        read = []
        for x, _ in self.open_labelled("int64", channels_last=True):
            # as torch has it: the channels of a pixel are next to each other
            like = torch.empty(ROWS, 3, 2, 4).to(memory_format=torch.channels_last)
            self.assertEqual((x.shape, x.strides), (tuple(like.shape), like.stride()))
            read.append(x.tensor.read(self.current, LATE))
        del x
        self.finish()
        got = numpy.concatenate([numpy.frombuffer(r, numpy.float32) for r in read])
        numpy.testing.assert_array_equal(got, numpy.arange(40 * 24))
        self.assertEqual(standin.violations(), [])

    def test_without_cuda_in_torch(self) -> None:
        with mock.patch.object(torch.cuda, "is_available", lambda: False):
            with self.assertRaisesRegex(brim.PipelineError, "is_available"):
                self.open(device="cuda")
            device = "cuda" if torch.cuda.is_available() else "cpu"
            self.assertEqual(self.open(device=device).device, torch.device("cpu"))


if __name__ == "__main__":
    support.main()
