"""Batches on CUDA devices: streams, DLPack, __cuda_array_interface__, with a stand-in driver."""

# sanitizers: yes

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import subprocess
import sys
import threading
import unittest

import devices
import support

standin = devices.Standin()
import brim  # noqa: E402  (it finds the stand-in, which is loaded)

numpy = support.need("numpy")

ROWS, WIDTH = 4, 64
VALUES = numpy.arange(40 * WIDTH, dtype=numpy.float32).reshape(40, WIDTH)
LEGACY, PER_THREAD = 1, 2


def tearDownModule() -> None:
    standin.end()


def values_of(read: ctypes.Array) -> numpy.ndarray:
    return numpy.frombuffer(read, numpy.float32).reshape(-1, WIDTH)


class Cuda(support.Case):
    def setUp(self) -> None:
        super().setUp()
        standin.delay(0)
        self.runtime = brim.Runtime("64MiB", threads=1, index_dir=self.folder)
        self.addCleanup(self.runtime.close)

    def open(self, **options) -> brim.Loader:
        options.setdefault("device", "cuda")
        loader = self.runtime.open(brim.array(VALUES, name="x").batch(ROWS), **options)
        self.addCleanup(loader.close)
        return loader


class Devices(unittest.TestCase):
    def test_are_listed(self) -> None:
        found = [device for device in brim.devices() if device.kind == "cuda"]
        self.assertEqual([str(device) for device in found], ["cuda:0", "cuda:1"])
        first = found[0]
        self.assertEqual(first.index, 0)
        self.assertFalse(first.converts)
        self.assertEqual(first.total, 1 << 30)
        self.assertLessEqual(first.free, first.total)
        self.assertIn("CUDA", first.driver)
        with self.assertRaises(AttributeError):
            first.index = 3

    def test_of_other_names_are_refused(self) -> None:
        with brim.Runtime("16MiB", threads=0) as runtime:
            for wrong in ("cuda:7", "cuda:", "gpu", "cuda:x", ""):
                with self.subTest(wrong), self.assertRaises(brim.PipelineError):
                    runtime.open("range 8 | batch 4", device=wrong)
            with self.assertRaisesRegex(TypeError, "device is a str"):
                runtime.open("range 8 | batch 4", device=0)


class Fields(Cuda):
    def test_say_where_they_are(self) -> None:
        batch = self.open(device="cuda:1").next()
        field = batch["x"]
        self.assertEqual((batch.device, field.device), ("cuda:1", "cuda:1"))
        self.assertEqual(field.__dlpack_device__(), (2, 1))
        self.assertEqual((field.shape, field.dtype), ((ROWS, WIDTH), "float32"))
        self.assertEqual(field.offset, 0)
        self.assertIsInstance(batch.ready, int)
        self.assertIn("device=cuda:1", repr(field))
        self.assertEqual(batch.ids.tolist(), [0, 1, 2, 3])

    def test_are_no_host_memory(self) -> None:
        field = self.open().next()["x"]
        text = r"on cuda:0: use \.to_host\(\) or DLPack"
        with self.assertRaisesRegex(BufferError, text):
            memoryview(field)
        calls = (numpy.asarray, list, lambda f: f[0], lambda f: f.numpy(), lambda f: f.tolist(),
                 lambda f: f == 1)  # fmt: skip
        for call in calls:
            with self.assertRaisesRegex(TypeError, text):
                call(field)
        self.assertFalse(hasattr(field, "__array_interface__"))

    def test_to_host(self) -> None:
        standin.delay(2000)
        got = [batch["x"].to_host() for batch in self.open()]
        numpy.testing.assert_array_equal(numpy.concatenate(got), VALUES)

    def test_dlpack_shows_the_device_memory(self) -> None:
        field = self.open().next()["x"]
        for version in (None, (1, 0)):
            capsule = field.__dlpack__(max_version=version)
            tensor = devices.look(capsule).tensor
            self.assertEqual((tensor.device_type, tensor.device_id), (2, 0))
            self.assertEqual(tensor.data, field.handle)
            self.assertEqual(tensor.byte_offset, 0)
            self.assertEqual((tensor.shape[:2], tensor.strides[:2]), ([ROWS, WIDTH], [WIDTH, 1]))

    def test_host_copies_through_dlpack(self) -> None:
        field = self.open().next()["x"]
        capsule = field.__dlpack__(max_version=(1, 0), dl_device=(1, 0))
        managed = devices.look(capsule)
        self.assertEqual((managed.flags, managed.tensor.device_type), (2, 1))
        del capsule
        copy = numpy.from_dlpack(field, device="cpu", copy=True)
        numpy.testing.assert_array_equal(copy, VALUES[:ROWS])
        self.assertIn('"dltensor"', repr(field.__dlpack__(dl_device=(1, 0), stream=LEGACY)))
        for refused in (
            {"dl_device": (1, 0), "copy": False},
            {"dl_device": (2, 1)},
            {"dl_device": (4, 0)},
            {"copy": True},
        ):
            with self.assertRaises(BufferError):
                field.__dlpack__(**refused)
        field.__dlpack__(dl_device=(2, 0), copy=False)

    def test_a_copy_outlives_its_batch(self) -> None:
        loader = self.open(hold=1)
        copy = loader.next().copy()
        self.assertEqual((copy.device, copy.is_copy, copy.ready), ("cuda:0", True, None))
        numpy.testing.assert_array_equal(loader.next()["x"].to_host(), VALUES[ROWS : 2 * ROWS])
        numpy.testing.assert_array_equal(copy["x"].to_host(), VALUES[:ROWS])

    def test_texts_and_ragged_rows(self) -> None:
        path = self.folder / "lines.txt"
        path.write_text("eins\nzwei\n\nvier äöü\n", encoding="utf-8")
        with self.runtime.open(f"text {path} | batch 4", device="cuda") as loader:
            batch = loader.next()
            field = batch["text"]
            self.assertEqual(field.device, "cuda:0")
            self.assertEqual(field.offsets.tolist(), [0, 4, 8, 8, 19])
            for call in (lambda: field[0], field.tolist, field.values.tolist):
                with self.assertRaisesRegex(TypeError, "on cuda:0"):
                    call()
            self.assertEqual(bytes(field.values.to_host()), "einszweivier äöü".encode())
            host = field.to_host()
            del call, field, batch
            gc.collect()
            self.assertEqual(loader.lent, 0)
            self.assertEqual(host.device, "cpu")
            self.assertEqual(host.tolist(), ["eins", "zwei", "", "vier äöü"])
            self.assertIs(host.to_host(), host)


class Streams(Cuda):
    def test_that_are_no_streams(self) -> None:
        field = self.open().next()["x"]
        with self.assertRaisesRegex(ValueError, "stream=0 may mean two streams"):
            field.__dlpack__(stream=0)
        for wrong in (-2, 1 << 64):
            with self.assertRaisesRegex(ValueError, "no stream or queue"):
                field.__dlpack__(stream=wrong)
        with self.assertRaises(brim.PipelineError):
            field.__dlpack__(stream=3)
        for wrong in ("1", 1.5):
            with self.assertRaises(TypeError):
                field.__dlpack__(stream=wrong)
        field.__dlpack__(stream=standin.stream())  # what was refused has left no trace

    def test_wait_for_the_batch(self) -> None:
        standin.delay(5000)  # batches are long on their way
        stream = standin.stream()
        for told, used in ((None, LEGACY), (1, LEGACY), (2, PER_THREAD), (stream, stream)):
            with self.subTest(told):
                read = []
                for batch in self.open():
                    capsule = batch["x"].__dlpack__(stream=told)
                    tensor = devices.look(capsule).tensor
                    read.append(standin.read(used, tensor.data, batch["x"].nbytes))
                    del capsule
                standin.finish(used)
                numpy.testing.assert_array_equal(
                    numpy.concatenate([values_of(r) for r in read]), VALUES
                )
        self.assertEqual(standin.violations(), [])

    def test_memory_is_filled_anew_after_late_reads(self) -> None:
        stream = standin.stream()
        with self.open(hold=1, slots=2) as loader:
            for epoch in range(3):
                read = []
                for _ in range(len(loader)):
                    batch = loader.next()
                    capsule = batch["x"].__dlpack__(stream=stream, max_version=(1, 0))
                    address = devices.look(capsule).tensor.data
                    read.append(standin.read(stream, address, batch["x"].nbytes, 3000))
                    taken = devices.Taken(capsule)
                    del batch, capsule
                    taken.delete()  # the kernel has not begun
                self.assertIsNone(loader.next())
                standin.finish(stream)
                numpy.testing.assert_array_equal(
                    numpy.concatenate([values_of(r) for r in read]), VALUES, f"epoch {epoch}"
                )
        self.assertEqual(standin.violations(), [])

    def test_a_loader_of_one_queue(self) -> None:
        standin.delay(2000)
        stream = standin.stream()

        class Stream:  # as torch's
            cuda_stream = stream

        for queue in (stream, Stream()):
            read = []
            for batch in self.open(queue=queue, hold=1, slots=3, copies=True):
                read.append(standin.read(stream, batch["x"].handle, batch["x"].nbytes, 1000))
                del batch
            standin.finish(stream)
            numpy.testing.assert_array_equal(
                numpy.concatenate([values_of(r) for r in read]), VALUES
            )

    def test_queues_that_are_none(self) -> None:
        with self.assertRaisesRegex(TypeError, "queue is a CUDA stream"):
            self.open(queue="0")
        with self.assertRaisesRegex(ValueError, "stream=0"):
            self.open(queue=0)
        with self.assertRaisesRegex(ValueError, "device="):
            self.open(queue=1, device="cpu")

    def test_no_wait_if_told_so(self) -> None:
        batch = self.open().next()
        capsule = batch["x"].__dlpack__(stream=-1)
        batch.wait()  # the thread itself
        peeked = (ctypes.c_uint8 * batch["x"].nbytes)()
        standin.call(
            "cuda_standin_peek",
            ctypes.c_uint64(devices.look(capsule).tensor.data),
            peeked,
            ctypes.c_size_t(len(peeked)),
        )
        numpy.testing.assert_array_equal(values_of(peeked), VALUES[:ROWS])
        batch["x"].__dlpack__(stream=standin.stream())  # none was named before

    def test_one_stream_for_a_batch(self) -> None:
        batch = self.open().next()
        field = batch["x"]
        first, second = standin.stream(), standin.stream()
        kept = field.__dlpack__(stream=first)
        with self.assertRaisesRegex(BufferError, "one stream for a batch"):
            field.__dlpack__(stream=second)
        with self.assertRaisesRegex(BufferError, "one stream for a batch"):
            batch.wait(second)
        field.__dlpack__(stream=first)
        batch.copy()["x"].__dlpack__(stream=second)
        del kept

    def test_the_threads_own_stream_and_the_legacy_one_are_in_order(self) -> None:
        field = self.open().next()["x"]
        field.__dlpack__(stream=PER_THREAD)
        field.__dlpack__(stream=LEGACY)

    def test_cuda_array_interface(self) -> None:
        stream = standin.stream()
        for queue, named in ((None, LEGACY), (stream, stream)):
            field = self.open(queue=queue).next()["x"]
            interface = field.__cuda_array_interface__
            self.assertEqual(
                interface,
                {
                    "shape": (ROWS, WIDTH),
                    "typestr": "<f4",
                    "data": (field.handle, False),
                    "strides": (WIDTH * 4, 4),
                    "stream": named,
                    "version": 3,
                },
            )
            read = standin.read(named, field.handle, field.nbytes, 3000)
            del field, interface  # the kernel has not begun
            standin.finish(named)
            numpy.testing.assert_array_equal(values_of(read), VALUES[:ROWS])
        # whoever only looks whether it is there takes nothing from those who name a stream
        field = self.open().next()["x"]
        self.assertTrue(hasattr(field, "__cuda_array_interface__"))
        field.__dlpack__(stream=stream)
        self.assertEqual(field.__cuda_array_interface__["stream"], stream)
        host = self.open(device="cpu").next()["x"]
        self.assertFalse(hasattr(host, "__cuda_array_interface__"))


class Deleters(Cuda):
    def taken(self, loader: brim.Loader) -> devices.Taken:
        return devices.Taken(loader.next()["x"].__dlpack__(stream=standin.stream()))

    def test_on_a_thread_without_the_lock(self) -> None:
        loader = self.open(hold=1)
        taken = self.taken(loader)
        with self.assertRaises(brim.HeldError):
            loader.next()
        thread = threading.Thread(target=taken.delete)
        thread.start()
        thread.join()
        self.assertEqual(loader.lent, 0)
        loader.next()

    def test_on_a_thread_that_is_not_pythons(self) -> None:
        loader = self.open(hold=1)
        taken = self.taken(loader)
        libc = ctypes.CDLL(None)
        thread = ctypes.c_ulong()
        libc.pthread_create(
            ctypes.byref(thread),
            None,
            ctypes.c_void_p(taken.deleter),
            ctypes.c_void_p(taken.address),
        )
        libc.pthread_join(thread, None)
        self.assertEqual(loader.lent, 0)

    def test_after_loader_and_runtime(self) -> None:
        runtime = brim.Runtime("16MiB", threads=1)
        loader = runtime.open("range 64 | batch 8", device="cuda", hold=1)
        stream = standin.stream()
        taken = devices.Taken(loader.next()["index"].__dlpack__(stream=stream))
        address = taken.managed.tensor.data
        loader.close()
        runtime.close()
        del loader, runtime
        gc.collect()
        read = standin.read(stream, address, 64, 20000)
        taken.delete()  # waits for the kernel before the memory goes
        standin.finish(stream)
        self.assertEqual(numpy.frombuffer(read, numpy.int64).tolist(), list(range(8)))
        self.assertEqual(standin.violations(), [])

    @unittest.skipIf(support.SANITIZED, "the sanitizer's malloc may be locked in a child")
    def test_in_a_forked_child(self) -> None:
        loader = self.open()
        batch = loader.next()
        taken = self.taken(loader)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with contextlib.suppress(brim.ClosedError):
                    batch["x"].to_host()
                    os._exit(2)
                with contextlib.suppress(brim.ClosedError):
                    batch["x"].__dlpack__()
                    os._exit(3)
                taken.delete()
                loader.close()
                del batch, loader
                gc.collect()
                code = 0
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(standin.get("forked_calls"), 0)
        numpy.testing.assert_array_equal(batch["x"].to_host(), VALUES[:ROWS])
        taken.delete()

    def test_after_the_interpreter(self) -> None:
        program = """
import ctypes, devices
standin = devices.Standin()
import brim
loader = brim.Runtime("16MiB").open("range 64 | batch 8", device="cuda")
kept = [devices.Taken(loader.next()["index"].__dlpack__(stream=1)) for _ in range(2)]
for taken in kept:
    ctypes.CDLL(None).__cxa_atexit(ctypes.c_void_p(taken.deleter), ctypes.c_void_p(taken.address),
                                   None)
print("kept")
"""
        report = self.folder / "report"
        folder = os.path.dirname(os.path.abspath(__file__))
        path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "CUDA_STANDIN_REPORT": str(report), "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "kept\n", ""))
        self.assertNotIn("violation:", report.read_text())


class Memory(Cuda):
    def test_usage_and_stats(self) -> None:
        with brim.Runtime("64MiB", threads=1, pinned="1MiB", device_memory="2MiB") as runtime:
            data = brim.array(VALUES, name="x").batch(ROWS)
            with runtime.open(data, device="cuda:1", label="train") as loader:
                for batch in loader:
                    pass
                stats = loader.stats()
                self.assertGreaterEqual(stats["copied_bytes"], VALUES.nbytes)
                self.assertGreaterEqual(stats["device_slots"], 3)
                usage = runtime.usage()
                self.assertEqual(list(usage["kinds"]), ["host", "pinned", "cuda:1"])
                root, train = usage["kinds"]["cuda:1"][0], usage["kinds"]["cuda:1"][-1]
                self.assertEqual((root["depth"], root["limit"]), (0, 2 << 20))
                self.assertEqual((train["label"], train["depth"]), ("train", 1))
                plan = loader.plan
                self.assertEqual(train["charged"] % plan.device_slot_bytes, 0)
                self.assertGreaterEqual(train["charged"], plan.minimum_device_bytes)
                self.assertLessEqual(train["charged"], plan.planned_device_bytes)
                self.assertLessEqual(train["elastic"], train["charged"])
                self.assertGreaterEqual(train["peak"], train["charged"])
                self.assertEqual(usage["kinds"]["pinned"][0]["limit"], 1 << 20)
                self.assertEqual(usage["holders"], usage["kinds"]["host"])
                text = str(usage)
                self.assertRegex(text, r"(?m)^memory of cuda:1\n  runtime .* 2\.0 MiB\n    train ")
                self.assertRegex(text, r"(?m)^of it page-locked\n  runtime .* 1\.0 MiB\n")
                del batch
                devices.until(
                    lambda: runtime.trim() >= 0
                    and runtime.usage()["kinds"]["cuda:1"][0]["elastic"] == 0
                )

    def test_a_limit_that_is_too_small(self) -> None:
        data = brim.array(VALUES, name="x").batch(ROWS)
        plan = data.plan("64MiB", device="cuda", hold=1, threads=0)
        self.assertTrue(plan.fits, plan.reason)
        self.assertGreater(plan.minimum_device_bytes, 0)
        self.assertEqual(plan.minimum_device_slots, 2)
        self.assertIn("device ", str(plan))
        least = plan.minimum_device_bytes
        with brim.Runtime("64MiB", threads=0, device_memory=least - 1) as runtime:
            with self.assertRaisesRegex(brim.BudgetError, "on cuda:0"):
                runtime.open(data, device="cuda", hold=1)
            self.assertFalse(runtime.plan(data, device="cuda", hold=1).fits)
        with brim.Runtime("64MiB", threads=0, device_memory=least) as runtime:
            with runtime.open(data, device="cuda", hold=1) as loader:
                rows = 0
                while (batch := loader.next()) is not None:
                    rows += batch.rows
                    del batch
            self.assertEqual(rows, len(VALUES))
            self.assertLessEqual(runtime.usage()["kinds"]["cuda:0"][0]["peak"], least)

    def test_a_driver_that_fails(self) -> None:
        fail = standin.library.cuda_standin_fail
        fail.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_bool]
        loader = self.open()
        batch = loader.next()
        self.addCleanup(fail, None, 0, 0, False)
        fail(b"cuStreamWaitEvent", 1, 999, True)
        with self.assertRaisesRegex(brim.DeviceError, "cuda:0"):
            batch["x"].__dlpack__()
        fail(None, 0, 0, False)
        self.assertIsInstance(brim.DeviceError(), RuntimeError)
        batch["x"].__dlpack__()


if __name__ == "__main__":
    support.main()
