"""Batches on an OpenCL device: the values of the host, lifetimes, queues, memory."""

# sanitizers: yes
# label: quick, full

from __future__ import annotations

import ctypes
import gc
import importlib.util
import pickle
import subprocess
import sys
import time
import unittest

import brim
import devices
import support

numpy = support.need("numpy")

ROWS = 4
VALUES = numpy.arange(40 * 16, dtype=numpy.int32).reshape(40, 16)


def same(sample):
    return sample


def setUpModule() -> None:
    if not devices.has_opencl():
        raise unittest.SkipTest("there is no OpenCL device")


class Consumer:
    """A context and a queue of the program's own, on the first device that brim lists."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libOpenCL.so.1")
        for name in ("clCreateContext", "clCreateCommandQueue", "clCreateUserEvent"):
            getattr(self.library, name).restype = ctypes.c_void_p
        error = ctypes.c_int()
        device = ctypes.c_void_p(self._find("opencl:0"))
        self.context = ctypes.c_void_p(
            self.library.clCreateContext(
                None, 1, ctypes.byref(device), None, None, ctypes.byref(error)
            )
        )
        assert error.value == 0
        self.queue = ctypes.c_void_p(
            self.library.clCreateCommandQueue(
                self.context, device, ctypes.c_uint64(0), ctypes.byref(error)
            )
        )
        assert error.value == 0

    def _find(self, wanted: str) -> int:
        (told,) = (device for device in brim.devices() if str(device) == wanted)
        platforms = (ctypes.c_void_p * 8)()
        count = ctypes.c_uint32()
        self.call("clGetPlatformIDs", 8, platforms, ctypes.byref(count))
        for platform in platforms[: count.value]:
            found = (ctypes.c_void_p * 8)()
            kinds = ctypes.c_uint64(0xFFFFFFFF)
            self.call("clGetDeviceIDs", ctypes.c_void_p(platform), kinds, 8, found,
                      ctypes.byref(count))  # fmt: skip
            for device in found[: count.value]:
                name = ctypes.create_string_buffer(256)
                self.call("clGetDeviceInfo", ctypes.c_void_p(device), 0x102B, ctypes.c_size_t(256),
                          name, None)  # fmt: skip
                if name.value.decode(errors="replace")[:100] == told.name[:100]:
                    return int(device)
        raise AssertionError(f"no device named {told.name}")

    def call(self, name: str, *arguments: object) -> None:
        result = getattr(self.library, name)(*arguments)
        assert result == 0, f"{name} says {result}"

    def event(self) -> ctypes.c_void_p:
        """One that is done when the program says so."""
        error = ctypes.c_int()
        event = self.library.clCreateUserEvent(self.context, ctypes.byref(error))
        assert error.value == 0
        return ctypes.c_void_p(event)

    def done(self, event: ctypes.c_void_p) -> None:
        self.call("clSetUserEventStatus", event, 0)
        self.call("clReleaseEvent", event)

    def read(self, field: brim.Array, after: ctypes.c_void_p | None = None) -> numpy.ndarray:
        """What the queue will have read when it has come so far."""
        to = numpy.zeros(field.shape, field.dtype)
        self.call(
            "clEnqueueReadBuffer",
            self.queue,
            ctypes.c_void_p(field.handle),
            0,
            ctypes.c_size_t(field.offset),
            ctypes.c_size_t(to.nbytes),
            ctypes.c_void_p(to.ctypes.data),
            0 if after is None else 1,
            None if after is None else ctypes.byref(after),
            None,
        )
        return to

    def finish(self) -> None:
        self.call("clFinish", self.queue)

    def close(self) -> None:
        self.finish()
        self.call("clReleaseCommandQueue", self.queue)
        self.call("clReleaseContext", self.context)


class Case(support.Case):
    def setUp(self) -> None:
        super().setUp()
        self.runtime = brim.Runtime("64MiB", threads=2, index_dir=self.folder / "cache")
        self.addCleanup(self.runtime.close)

    def open(self, data: brim.Pipeline | str | None = None, **options) -> brim.Loader:
        data = data if data is not None else brim.array(VALUES, name="x").batch(ROWS)
        options.setdefault("device", "opencl")
        loader = self.runtime.open(data, **options)
        self.addCleanup(loader.close)
        return loader


class Devices(Case):
    def test_are_listed(self) -> None:
        found = [device for device in brim.devices() if device.kind == "opencl"]
        first = found[0]
        self.assertEqual((first.kind, first.index, str(first)), ("opencl", 0, "opencl:0"))
        self.assertTrue(first.name and first.driver)
        self.assertGreater(first.total, 0)
        self.assertIsNone(first.free)
        self.assertTrue(first.converts)
        self.assertEqual(pickle.loads(pickle.dumps(first)), first)
        self.assertEqual(len({first, first}), 1)
        with self.assertRaises(AttributeError):
            first.name = "mine"
        self.assertEqual(self.open(device=first).device, "opencl:0")

    def test_the_host_is_one(self) -> None:
        for name in ("cpu", "host", None):
            with self.open(device=name) as loader:
                batch = loader.next()
                self.assertEqual((loader.device, batch.device, batch.ready), ("cpu", "cpu", None))
                self.assertEqual(batch["x"].device, "cpu")
                numpy.testing.assert_array_equal(batch["x"].to_host(), VALUES[:ROWS])
                self.assertEqual(batch["x"].to_host().ctypes.data, batch["x"].handle)
                batch.wait()
                with self.assertRaisesRegex(ValueError, "device="):
                    batch.wait(1)

    def test_without_a_driver(self) -> None:
        if any(device.kind == "cuda" for device in brim.devices()):
            self.skipTest("there is a CUDA device")
        with self.assertRaisesRegex(brim.PipelineError, "libcuda.so.1|no device cuda"):
            self.open(device="cuda")

    def test_that_there_are_not(self) -> None:
        with self.assertRaisesRegex(brim.PipelineError, "opencl:7"):
            self.open(device="opencl:7")
        with self.assertRaisesRegex(brim.PipelineError, "metal"):
            self.open(device="metal")


class Values(Case):
    def compare(self, data: brim.Pipeline | str, field: str) -> None:
        with self.open(data, device="cpu") as host:
            expected = [numpy.array(batch[field].to_host()) for batch in host]
        for growth in (False, True):
            with self.open(data, fixed=growth) as loader:
                got = [batch[field].to_host() for batch in loader]
            self.assertEqual(len(got), len(expected))
            for mine, other in zip(got, expected):
                self.assertEqual((mine.dtype, mine.shape), (other.dtype, other.shape))
                numpy.testing.assert_array_equal(mine, other)

    def test_of_arrays(self) -> None:
        for dtype in ("bool", "uint8", "int16", "float16", "int64", "float64", "complex64"):
            with self.subTest(dtype):
                values = numpy.arange(30 * 5).reshape(30, 5).astype(dtype)
                self.compare(brim.array(values, name="x").shuffle(seed=3).batch(7), "x")

    def test_of_images_that_are_normalised_there(self) -> None:
        support.drawn_set(self.folder / "set", 30)
        images = brim.folder(self.folder / "set").shuffle(seed=1).decode()
        for layout in ("hwc", "chw"):
            data = images.random_resized_crop(16).flip().normalize("imagenet").layout(layout)
            self.compare(data.batch(8), "image")

    def test_of_rows_that_differ(self) -> None:
        path = self.folder / "lines.txt"
        path.write_text("eins\nzwei\n\nvier äöü\n" * 5, encoding="utf-8")
        with self.open(f"text {path} | batch 4") as loader:
            for batch in loader:
                self.assertEqual(
                    batch["text"].to_host().tolist(), ["eins", "zwei", "", "vier äöü"]
                )

    def test_states_and_epochs(self) -> None:
        with self.open() as loader:
            first = [batch["x"].to_host() for batch in loader]
            loader.seek(0, 5)
            numpy.testing.assert_array_equal(loader.next()["x"].to_host(), first[5])
            state = loader.state_dict()
        with self.open() as other:
            other.load_state_dict(state)
            numpy.testing.assert_array_equal(next(iter(other))["x"].to_host(), first[6])


class Fields(Case):
    def test_dlpack(self) -> None:
        batch = self.open("range 64 | batch 4").next()
        field = batch["index"]
        self.assertEqual(field.__dlpack_device__(), (4, 0))
        for version in (None, (1, 0)):
            capsule = field.__dlpack__(max_version=version)
            tensor = devices.look(capsule).tensor
            self.assertEqual((tensor.device_type, tensor.device_id), (4, 0))
            self.assertEqual((tensor.data, tensor.byte_offset), (field.handle, field.offset))
        with self.assertRaisesRegex(BufferError, "no streams"):
            field.__dlpack__(stream=1)
        copy = numpy.from_dlpack(field, device="cpu")
        self.assertEqual(copy.tolist(), [0, 1, 2, 3])
        with self.assertRaises(AttributeError):
            field.__cuda_array_interface__

    def test_deleted_without_a_new_name(self) -> None:
        for device in ("cpu", "opencl"):
            for version in (None, (1, 0)):
                with self.subTest(device=device, version=version):
                    with self.open("range 64 | batch 4", device=device, hold=1) as loader:
                        field = loader.next()["index"]
                        before = sys.getrefcount(field)
                        capsule = field.__dlpack__(max_version=version)
                        devices.delete_and_leave(capsule)
                        self.assertEqual(sys.getrefcount(field), before)
                        devices.delete_and_leave(capsule)  # once more does nothing
                        self.assertEqual(sys.getrefcount(field), before)
                        # a later tensor may be where the first one was
                        later = field.__dlpack__(max_version=version)
                        del capsule
                        gc.collect()
                        self.assertEqual(sys.getrefcount(field), before + 1)
                        self.assertEqual(devices.look(later).tensor.ndim, 1)
                        taken = devices.Taken(later)
                        del later
                        self.assertEqual(sys.getrefcount(field), before + 1)
                        taken.delete()
                        self.assertEqual(sys.getrefcount(field), before)
                        del field
                        gc.collect()
                        self.assertEqual(loader.lent, 0)

    def test_that_outlive_the_interpreter(self) -> None:
        code = """if True:
            import sys
            import brim, devices
            runtime = brim.Runtime("16MiB", threads=1)
            loader = runtime.open("range 64 | batch 4", device="opencl", hold=3)
            kept = [loader.next()["index"].__dlpack__(max_version=v) for v in (None, (1, 0))]
            devices.delete_and_leave(kept[0])
            sys.kept = kept, devices.Taken(loader.next()["index"].__dlpack__())
            print("end")
            """
        self.run_alone(code, "end\n")

    @unittest.skipIf(support.SANITIZED, "torch does not run with sanitizers")
    @unittest.skipIf(importlib.util.find_spec("torch") is None, "torch is not installed")
    def test_are_none_of_torch(self) -> None:
        code = """if True:
            import gc, sys
            import brim, torch
            runtime = brim.Runtime("8MiB", threads=1, device_memory="8MiB")
            loader = runtime.open("range 64 | batch 16", device="opencl")
            field = loader.next()["index"]
            before = sys.getrefcount(field)
            for take in (
                torch.as_tensor,
                torch.tensor,
                torch.from_dlpack,
                lambda x: torch.from_dlpack(x, device="cpu"),
            ):
                try:
                    take(field)
                except Exception:
                    pass
                else:
                    print("torch takes it")
                gc.collect()
                if sys.getrefcount(field) != before:
                    print("something keeps the field")
            print(torch.from_dlpack(field.to_host()).sum().item())
            loader.close()
            runtime.close()
            """
        self.run_alone(code, "120\n")

    def run_alone(self, code: str, output: str) -> None:
        """In a process of its own, which may die of it."""
        here = str(support.ROOT / "python" / "tests")
        code = f"import sys; sys.path.insert(0, {here!r})\n" + code
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, output), done.stderr)

    def test_are_no_host_memory(self) -> None:
        field = self.open().next()["x"]
        with self.assertRaisesRegex(TypeError, r"on opencl:0: use \.to_host\(\) or DLPack"):
            numpy.asarray(field)
        with self.assertRaisesRegex(BufferError, "on opencl:0"):
            bytes(memoryview(field))

    def test_of_one_batch_lie_in_one_buffer(self) -> None:
        support.drawn_set(self.folder / "set", 8)
        batch = self.open(brim.folder(self.folder / "set").decode().resize(8, 8).batch(4)).next()
        image, label = batch["image"], batch["label"]
        self.assertEqual(image.handle, label.handle)
        self.assertNotEqual(image.offset, label.offset)
        self.assertEqual(label.to_host().shape, (4,))


class Lifetimes(Case):
    def test_every_kind_of_view_keeps_the_slot(self) -> None:
        loader = self.open(hold=1)
        views = {
            "batch": lambda batch: batch,
            "field": lambda batch: batch["x"],
            "capsule": lambda batch: batch["x"].__dlpack__(),
            "versioned": lambda batch: batch["x"].__dlpack__(max_version=(1, 0)),
            "ids": lambda batch: numpy.asarray(batch.ids),
        }
        for name, make in views.items():
            with self.subTest(view=name):
                view = make(loader.next())
                gc.collect()
                self.assertEqual(loader.lent, 1)
                with self.assertRaises(brim.HeldError):
                    loader.next()
                del view
                gc.collect()
                self.assertEqual(loader.lent, 0)

    def test_copies_on_the_host_keep_none(self) -> None:
        loader = self.open(hold=1)
        kept = []
        while (batch := loader.next()) is not None:
            kept += [batch["x"].to_host(), numpy.from_dlpack(batch["x"], device="cpu")]
            del batch
        numpy.testing.assert_array_equal(numpy.concatenate(kept[::2]), VALUES)
        numpy.testing.assert_array_equal(numpy.concatenate(kept[1::2]), VALUES)

    def test_release(self) -> None:
        loader = self.open(hold=1)
        batch = loader.next()
        field = batch["x"]
        with self.assertRaisesRegex(BufferError, "views"):
            batch.release()
        del field
        batch.release()
        with self.assertRaises(brim.ClosedError):
            batch.ready
        loader.next()

    def test_batches_outlive_loader_and_runtime(self) -> None:
        runtime = brim.Runtime("16MiB", threads=1)
        loader = runtime.open(brim.array(VALUES, name="x").batch(ROWS), device="opencl")
        batch = loader.next()
        copy = batch.copy()
        loader.close()
        runtime.close()
        del loader, runtime
        gc.collect()
        for kept in (batch, copy):
            numpy.testing.assert_array_equal(kept["x"].to_host(), VALUES[:ROWS])

    def test_batches_beyond_hold_are_copies(self) -> None:
        with self.assertWarns(brim.HoldWarning):
            batches = list(self.open(hold=1, copies=True))
        self.assertEqual([batch.is_copy for batch in batches], [False] + [True] * 9)
        got = numpy.concatenate([batch["x"].to_host() for batch in batches])
        numpy.testing.assert_array_equal(got, VALUES)


class Queues(Case):
    def setUp(self) -> None:
        super().setUp()
        self.consumer = Consumer()

    def test_wait_and_are_waited_for(self) -> None:
        class Queue:  # as pyopencl's
            int_ptr = self.consumer.queue.value

        for queue in (self.consumer.queue.value, Queue()):
            with self.open(hold=1, queue=queue) as loader:
                read = []
                while (batch := loader.next()) is not None:
                    read.append(self.consumer.read(batch["x"]))
                    del batch
                self.consumer.finish()
                numpy.testing.assert_array_equal(numpy.concatenate(read), VALUES)
        gc.collect()
        self.consumer.close()

    def test_a_late_reader_is_never_overtaken(self) -> None:
        with self.open(hold=1, queue=self.consumer.queue.value) as loader:
            for _ in range(2):
                read = []
                while (batch := loader.next()) is not None:
                    event = self.consumer.event()
                    read.append(self.consumer.read(batch["x"], event))
                    del batch
                    time.sleep(0.01)  # whoever would fill the slot has time to do so
                    self.consumer.done(event)
                self.consumer.finish()
                numpy.testing.assert_array_equal(numpy.concatenate(read), VALUES)
        gc.collect()
        self.consumer.close()

    def test_named_batch_by_batch(self) -> None:
        with self.open(hold=1) as loader:
            batch = loader.next()
            self.assertIsInstance(batch.ready, int)
            # its memory is of brim's own context, so the queue cannot be the consumer's
            with self.assertRaisesRegex(brim.PipelineError, "context|queue"):
                batch.wait(self.consumer.queue.value)
            batch.wait()
            with self.assertRaisesRegex(ValueError, "not a cl_command_queue"):
                batch.wait(1)
        for queue in (0, 2):
            with self.assertRaisesRegex(ValueError, f"queue={queue} is not a cl_command_queue"):
                self.open(queue=queue)
        del batch
        gc.collect()
        self.consumer.close()


class Memory(Case):
    def test_usage(self) -> None:
        with brim.Runtime("64MiB", threads=1, device_memory="1MiB") as runtime:
            self.assertEqual(list(runtime.usage()["kinds"]), ["host"])
            data = brim.array(VALUES, name="x").batch(ROWS)
            with runtime.open(data, device="opencl", label="a") as one:
                with runtime.open(data, device="opencl", label="b") as other:
                    self.assertEqual(one.next().rows + other.next().rows, 2 * ROWS)
                    kinds = runtime.usage()["kinds"]
                    self.assertEqual(list(kinds), ["host", "pinned", "opencl:0"])
                    labels = [holder["label"] for holder in kinds["opencl:0"]]
                    self.assertIn("a", labels)
                    self.assertIn("b", labels)
                    for holder in kinds["opencl:0"] + kinds["pinned"]:
                        self.assertLessEqual(holder["charged"], holder["peak"])
                        self.assertLessEqual(holder["elastic"], holder["charged"])
                    self.assertIn("memory of opencl:0\n  runtime ", str(runtime.usage()))
            gc.collect()
            for kind in ("pinned", "opencl:0"):
                root = runtime.usage()["kinds"][kind][0]
                self.assertEqual((root["charged"], root["peak"] > 0), (0, True))

    def test_a_budget_that_is_too_small(self) -> None:
        data = brim.array(VALUES, name="x").batch(ROWS)
        plan = data.plan("64MiB", device="opencl", threads=0, pinned="4KiB")
        self.assertFalse(plan.fits)
        self.assertIn("page-locked", plan.reason)
        with brim.Runtime("64MiB", threads=0, pinned=plan.minimum_pinned_bytes) as runtime:
            with runtime.open(data, device="opencl") as loader:
                self.assertEqual(sum(batch.rows for batch in loader), len(VALUES))
        host = data.plan("64MiB", threads=0)
        self.assertEqual((host.device_slots, host.planned_pinned_bytes), (0, 0))
        self.assertNotIn("device", str(host))

    def test_the_plan_that_is_printed(self) -> None:
        support.drawn_set(self.folder / "set", 8)
        data = brim.folder(self.folder / "set").decode().resize(8, 8).normalize("imagenet").batch(4)
        plan = self.runtime.plan(data, device="opencl", hold=3)
        self.assertEqual((plan.device, plan.minimum_device_slots), ("opencl:0", 3))
        converted = {field["name"]: field["converted"] for field in plan.fields}
        self.assertEqual(converted, {"image": True, "label": False})
        text = str(plan)
        self.assertRegex(text, r"\ndevice +opencl:0: \d+ slots of .*, at least 3 for hold=3\n")
        self.assertRegex(text, rf"\n +minimum .*\({plan.minimum_device_bytes} bytes\), planned ")
        self.assertRegex(text, rf"\npage-locked +minimum .*\({plan.minimum_pinned_bytes} bytes\)")
        self.assertIn("image: uploaded as uint8, converted to float32 on the device", text)
        self.assertRegex(text, r"\nslots +\d+ for staging, at least \d+\n")
        self.assertEqual(self.open(data).plan.device, "opencl:0")
        host = self.runtime.plan(data, device=None)
        self.assertEqual(host.device, "cpu")
        self.assertFalse(any(field["converted"] for field in host.fields))

    def test_charged_by_the_program(self) -> None:
        with brim.Runtime("8MiB", threads=1, device_memory="4MiB", pinned="2MiB") as runtime:

            def charged() -> dict[str, int]:
                kinds = runtime.usage()["kinds"]
                return {kind: holders[0]["charged"] for kind, holders in kinds.items()}

            host = charged()["host"]
            runtime.charge("3MiB", "opencl")
            runtime.charge("1MiB", pinned=True)
            expected = {"host": host + (1 << 20), "pinned": 1 << 20, "opencl:0": 3 << 20}
            self.assertEqual(charged(), expected)
            for wrong in ({"device": "opencl:0"}, {"pinned": True}):
                with self.assertRaises(brim.BudgetError):
                    runtime.charge("2MiB", **wrong)
            self.assertEqual(charged(), expected)
            with self.assertRaisesRegex(ValueError, "of host memory"):
                runtime.uncharge("1MiB")
            with self.assertRaisesRegex(ValueError, "page-locked memory is the host's"):
                runtime.charge(1, "opencl", pinned=True)
            with self.assertRaisesRegex(brim.PipelineError, "opencl:7"):
                runtime.charge(1, "opencl:7")
            runtime.uncharge("3MiB", device="opencl:0")
            runtime.uncharge("1MiB", pinned=True)
            self.assertEqual(charged(), {"host": host, "pinned": 0, "opencl:0": 0})
        (first,) = (device for device in brim.devices() if str(device) == "opencl:0")
        with brim.Runtime("8MiB", threads=1) as runtime:
            with self.assertRaises(brim.BudgetError):  # more than the quarter that it may take
                runtime.charge(first.total, first)

    def test_functions_in_processes(self) -> None:
        data = brim.array(VALUES, name="x").map(same, processes=2).batch(ROWS)
        for call in (self.open, lambda data: self.runtime.plan(data, device="opencl")):
            with self.assertRaisesRegex(
                brim.PipelineError, r"leave processes= out, or deliver on the host \(device='cpu'\)"
            ):
                call(data)

    def test_wrong_amounts(self) -> None:
        for name in ("pinned", "device_memory"):
            with self.assertRaisesRegex(ValueError, f"^{name}"):
                brim.Runtime("16MiB", **{name: "many"})


if __name__ == "__main__":
    support.main()
