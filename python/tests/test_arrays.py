"""Fields of batches: the buffer protocol, __array_interface__, DLPack, ragged rows."""

# sanitizers: yes

from __future__ import annotations

import gc
import unittest

import brim
import support

numpy = support.need("numpy")

DTYPES = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64 " \
    "complex64 complex128".split()


class Arrays(support.Case):
    def setUp(self) -> None:
        super().setUp()
        self.runtime = brim.Runtime(memory="64MiB", threads=1, index_dir=self.folder)
        self.addCleanup(self.runtime.close)

    def first(self, data: brim.Pipeline | str, **options) -> brim.Batch:
        loader = self.runtime.open(data, **options)
        self.addCleanup(loader.close)
        return next(iter(loader))

    def test_every_dtype_three_ways(self) -> None:
        for dtype in DTYPES:
            with self.subTest(dtype=dtype):
                values = numpy.arange(24).reshape(4, 2, 3).astype(dtype)
                batch = self.first(brim.array(values, name="x").batch(4))
                field = batch["x"]
                self.assertEqual((field.dtype, field.shape, field.ndim), (dtype, (4, 2, 3), 3))
                self.assertEqual(field.nbytes, values.nbytes)
                by_buffer = numpy.asarray(memoryview(field))
                by_dlpack = numpy.from_dlpack(field)
                self.assertEqual(by_buffer.dtype, values.dtype)
                interface = field.__array_interface__
                self.assertEqual(interface["data"], (by_buffer.ctypes.data, False))
                self.assertEqual(numpy.dtype(interface["typestr"]), values.dtype)
                self.assertEqual(by_dlpack.ctypes.data, by_buffer.ctypes.data)
                numpy.testing.assert_array_equal(by_buffer, values)
                numpy.testing.assert_array_equal(by_dlpack, values)
                self.assertEqual(field.tolist(), values.tolist())
                numpy.testing.assert_array_equal(field[1], values[1])

    def test_comparing_and_iterating(self) -> None:
        field = self.first("range 4 | batch 4")["index"]
        self.assertEqual((field == 2).tolist(), [False, False, True, False])
        self.assertEqual([int(value) for value in field], [0, 1, 2, 3])
        self.assertIn(3, field)
        with self.assertRaises(TypeError):
            hash(field)

    def test_bfloat16_has_dlpack_alone(self) -> None:
        values = numpy.ones((4, 2), dtype=numpy.float32)
        field = self.first(brim.array(values, name="x").cast("bfloat16").batch(4))["x"]
        self.assertEqual(field.dtype, "bfloat16")
        with self.assertRaisesRegex(BufferError, "DLPack"):
            memoryview(field)
        with self.assertRaisesRegex(TypeError, "from_dlpack"):
            field.numpy()
        self.assertIn("dltensor", repr(field.__dlpack__()))

    def test_what_lies_there_can_be_written(self) -> None:
        batch = self.first("range 8 | batch 8")
        numpy.asarray(batch["index"])[:] = 5
        self.assertEqual(batch["index"].tolist(), [5] * 8)

    def test_ids_are_read_only(self) -> None:
        ids = self.first("range 8 | batch 8").ids
        self.assertFalse(numpy.asarray(ids).flags.writeable)
        with self.assertRaises(BufferError):
            ids.__dlpack__()
        self.assertIn("dltensor_versioned", repr(ids.__dlpack__(max_version=(1, 0))))

    def test_dlpack_arguments(self) -> None:
        field = self.first("range 8 | batch 8")["index"]
        self.assertEqual(field.__dlpack_device__(), (1, 0))
        self.assertIn('"dltensor"', repr(field.__dlpack__()))
        self.assertIn('"dltensor"', repr(field.__dlpack__(max_version=(0, 8))))
        self.assertIn('"dltensor_versioned"', repr(field.__dlpack__(max_version=(1, 1))))
        field.__dlpack__(dl_device=(1, 0), copy=False, stream=None)
        for refused in ({"stream": 1}, {"dl_device": (2, 0)}, {"copy": True}):
            with self.assertRaises(BufferError):
                field.__dlpack__(**refused)
        with self.assertRaises(TypeError):
            field.__dlpack__(max_version=3)
        with self.assertRaises(TypeError):
            field.__dlpack__(1)

    def test_every_kind_of_view_keeps_the_slot(self) -> None:
        loader = self.runtime.open("range 64 | batch 4", hold=1)
        views = {
            "field": lambda b: b["index"],
            "numpy": lambda b: numpy.asarray(b["index"]),
            "slice": lambda b: b["index"][1:3],
            "interface": lambda b: numpy.asarray(_Interface(b["index"])),
            "memoryview": lambda b: memoryview(b["index"])[1:],
            "dlpack": lambda b: numpy.from_dlpack(b["index"]),
            "capsule": lambda b: b["index"].__dlpack__(),
            "versioned": lambda b: b["index"].__dlpack__(max_version=(1, 0)),
            "ids": lambda b: numpy.asarray(b.ids),
        }
        for name, make in views.items():
            with self.subTest(view=name):
                view = make(loader.next())
                gc.collect()
                self.assertEqual(loader.stats()["lent"], 1)
                with self.assertRaises(brim.HeldError):
                    loader.next()
                del view
                gc.collect()
                self.assertEqual(loader.stats()["lent"], 0)
        loader.close()

    def test_views_outlive_loader_and_runtime(self) -> None:
        runtime = brim.Runtime(memory="16MiB", threads=1)
        loader = runtime.open("range 8 | batch 8")
        view = numpy.asarray(next(iter(loader))["index"])
        loader.close()
        runtime.close()
        del loader, runtime
        gc.collect()
        self.assertEqual(view.tolist(), list(range(8)))

    def test_text(self) -> None:
        path = self.folder / "lines.txt"
        path.write_text("eins\nzwei\n\nvier äöü\n", encoding="utf-8")
        field = self.first(f"text {path} | batch 4")["text"]
        self.assertEqual(field.form, "text")
        self.assertEqual(field.tolist(), ["eins", "zwei", "", "vier äöü"])
        self.assertEqual((len(field), field[1], field[-1]), (4, "zwei", "vier äöü"))
        self.assertEqual(field.offsets.tolist(), [0, 4, 8, 8, 19])
        self.assertEqual(bytes(memoryview(field.values)), "einszweivier äöü".encode())
        with self.assertRaises(IndexError):
            field[4]

    def test_ragged(self) -> None:
        path = self.folder / "rows.jsonl"
        path.write_text('{"x": [1, 2, 3]}\n{"x": []}\n{"x": [4]}\n')
        field = self.first(f"jsonl {path} | batch 3")["x"]
        self.assertEqual(field.form, "ragged")
        self.assertEqual(field.tolist(), [[1, 2, 3], [], [4]])
        self.assertEqual(numpy.asarray(field[0]).tolist(), [1, 2, 3])
        self.assertEqual(field.values.tolist(), [1, 2, 3, 4])
        self.assertIn("rows=3", repr(field))

    def test_nobody_makes_them_by_hand(self) -> None:
        for kind in (brim.Array, brim.Batch, brim.Loader, brim.Ragged):
            with self.assertRaises(TypeError):
                kind()


class _Interface:
    """An object that has nothing but __array_interface__, and keeps the array."""

    def __init__(self, array: brim.Array) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


if __name__ == "__main__":
    support.main()
