"""Objects of Python's that samples come from: arrays, files, datasets, streams."""

# sanitizers: yes
# label: quick, full

from __future__ import annotations

import array as plain_array
import collections
import gc
import importlib.util
import pathlib
import pickle
import random
import unittest
import weakref
from collections.abc import Iterator
from typing import Any

import support

numpy = support.need("numpy")

import brim

X = numpy.arange(50 * 6, dtype="float32").reshape(50, 6)
Y = numpy.arange(50, dtype="int64") * 3


def collect(
    data: brim.Pipeline, *, threads: int = 0, epochs: int = 1, memory: str = "64MiB"
) -> list[dict[str, Any]]:
    """All batches of some epochs, copied."""
    found = []
    with brim.Runtime(memory, threads=threads) as runtime, runtime.open(data) as loader:
        for epoch in loader.epochs(epochs):
            for batch in epoch:
                found.append(
                    {
                        name: batch[name].tolist()
                        if isinstance(batch[name], brim.Ragged)
                        else numpy.array(batch[name])
                        for name in batch
                    }
                )
    return found


def joined(batches: list[dict[str, Any]], name: str) -> Any:
    return numpy.concatenate([batch[name] for batch in batches])


def resident() -> int:
    """Bytes of this process's memory that belong to no file."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


class Arrays(support.Case):
    def same(self, given: Any, expected: Any, **keywords: Any) -> None:
        for threads in (0, 2):
            batches = collect(brim.array(given, **keywords).batch(7), threads=threads)
            got = joined(batches, keywords.get("name", "x"))
            self.assertEqual(got.dtype, expected.dtype)
            self.assertTrue(numpy.array_equal(got, expected))

    def test_every_dtype(self) -> None:
        for dtype in "? b B h H i I l L q Q e f d F D".split():
            expected = (numpy.arange(30).reshape(10, 3) % 2).astype(dtype)
            self.same(expected, expected.astype(expected.dtype.name))

    def test_any_strides(self) -> None:
        self.same(X[::-1], X[::-1])
        self.same(X[5:40:3, 1::2], X[5:40:3, 1::2])
        self.same(X.T, X.T)
        self.same(X[:, ::-1], X[:, ::-1])
        self.same(numpy.broadcast_to(X[3], (9, 6)), numpy.broadcast_to(X[3], (9, 6)))
        self.same(numpy.asfortranarray(X.reshape(50, 2, 3)), X.reshape(50, 2, 3))

    def test_read_only_and_names(self) -> None:
        frozen = X.copy()
        frozen.flags.writeable = False
        self.same(frozen, X, name="pixels")

    def test_other_objects(self) -> None:
        self.same(plain_array.array("i", range(20)), numpy.arange(20, dtype="int32"))
        self.same(b"some bytes", numpy.frombuffer(b"some bytes", "uint8"))
        self.same(memoryview(X), X)

        class Interface:
            __array_interface__ = X.__array_interface__

        self.same(Interface(), X)

        class Capsule:
            def __dlpack__(self, **keywords: Any) -> Any:
                return X.__dlpack__()

            def __dlpack_device__(self) -> tuple[int, int]:
                return X.__dlpack_device__()

        self.same(Capsule(), X)

    def test_what_it_does_not_take(self) -> None:
        for value, pattern in (
            (X.astype(">f4"), "byte order"),
            (numpy.array(["a", "b"]), "no dtype"),
            (numpy.array([object()]), "no dtype"),
            (numpy.float32(3), "dimensions"),
            (numpy.zeros((1,) * 9), "9 dimensions"),
        ):
            with self.assertRaisesRegex(brim.PipelineError, pattern):
                brim.array(value)
        with self.assertRaisesRegex(TypeError, "buffer protocol"):
            brim.array([1, 2, 3])
        with self.assertRaises(brim.PipelineError):
            collect(brim.array(numpy.zeros((0, 3))).batch(1))

    def test_one_element_over_and_over(self) -> None:
        """All strides 0, which to the library is a row-major array of as many elements."""
        from brim import _core

        for shape in ((4_000_000,), (3, 2), (1, 2)):
            repeated = numpy.broadcast_to(numpy.float32(7), shape)
            with self.assertRaisesRegex(brim.PipelineError, "strides are 0.*ascontiguousarray"):
                brim.array(repeated)
            with self.assertRaisesRegex(brim.PipelineError, "strides are 0"):
                _core.Binding("a", "array", repeated, dtype="float32")
            if numpy.prod(shape) < 10:
                self.same(numpy.ascontiguousarray(repeated), repeated)
        single = numpy.broadcast_to(numpy.float32(7), (1, 1))
        self.assertEqual(single.strides, (0, 0))
        self.same(single, single)

    def test_bfloat16_by_dtype_and_shape(self) -> None:
        from brim import _core

        bits = (X.view("uint32") >> 16).astype("uint16")
        runtime = _core.Runtime(64 << 20, threads=0)
        bindings = [
            _core.Binding("a", "array", bits, dtype="bfloat16"),
            _core.Binding("b", "array", bits.tobytes(), dtype="bfloat16", shape=(50, 6)),
        ]
        for binding in bindings:
            text = f"array @{binding.name} name=x | cast float32 | batch 50"
            loader = runtime.open(text, [binding])
            got = numpy.array(loader.next()["x"])
            self.assertTrue(numpy.array_equal(got.view("uint32") >> 16, bits))
            loader.close()
        for shape in ((50, 7), (-1, 6), (1 << 40, 1 << 40), ()):
            with self.assertRaises(brim.PipelineError):
                _core.Binding("c", "array", bits.tobytes(), dtype="bfloat16", shape=shape)
        with self.assertRaisesRegex(brim.PipelineError, "contiguous array"):
            _core.Binding("c", "array", bits[::2].view("uint8"), dtype="bfloat16", shape=(25, 6))
        runtime.close()

    def test_several_arrays(self) -> None:
        for data in (brim.arrays(X, Y), brim.arrays(x=X, y=Y), brim.arrays(X, y=Y)):
            batches = collect(data.shuffle(seed=1).batch(50))
            self.assertTrue(numpy.array_equal(batches[0]["x"][:, 0] * 3, batches[0]["y"] * 6))
        with self.assertRaises(TypeError):
            brim.arrays(X, X, X)
        with self.assertRaises(TypeError):
            brim.arrays(X, x=X)
        with self.assertRaises(TypeError):
            brim.arrays()
        with self.assertRaises(brim.PipelineError):
            collect(brim.arrays(X, Y[:40]).batch(1))

    def test_a_memmap_is_not_copied(self) -> None:
        rows, width = 4096, 4096  # 64 MiB
        path = self.folder / "big.bin"
        writing = numpy.memmap(path, "float32", "w+", shape=(rows, width))
        writing[:, 0] = numpy.arange(rows)
        writing.flush()
        del writing
        mapped = numpy.memmap(path, "float32", "r", shape=(rows, width))
        data = brim.array(mapped).shuffle(seed=2).batch(32)
        before, most, seen = resident(), 0, []
        with brim.Runtime("8MiB", threads=1) as runtime, runtime.open(data) as loader:
            for batch in loader:
                seen.append(numpy.array(batch["x"])[:, 0].copy())
                most = max(most, resident())
        self.assertEqual(sorted(numpy.concatenate(seen)), list(range(rows)))
        if not support.SANITIZED:  # which keeps memory that is free
            self.assertLess(most - before, (8 + 8) << 20)

    def test_the_array_lives_as_long_as_its_batches(self) -> None:
        class Owner(numpy.ndarray):
            pass

        owner = X.copy().view(Owner)
        dead = weakref.ref(owner)
        runtime = brim.Runtime("64MiB", threads=0)
        loader = runtime.open(brim.array(owner).batch(8))
        batch = loader.next()
        del owner
        gc.collect()
        self.assertIsNotNone(dead())
        loader.close()
        runtime.close()
        assert batch is not None
        batch.release()
        del loader, batch, runtime
        gc.collect()
        self.assertIsNone(dead())

    def test_equality_and_pickling(self) -> None:
        data = brim.array(X).batch(8)
        again = pickle.loads(pickle.dumps(data))
        self.assertEqual(data, again)
        self.assertNotEqual(data, brim.array(X + 1).batch(8))
        self.assertTrue(numpy.array_equal(joined(collect(again), "x"), X))

    def test_a_memmap_is_pickled_as_a_place_in_its_file(self) -> None:
        path = self.folder / "numbers"
        shape = (5000, 6)
        numbers = numpy.memmap(path, "int32", "w+", 5000, shape)
        numbers[:] = numpy.arange(5000 * 6).reshape(shape)
        numbers.flush()
        copied = numpy.memmap(path, "int32", "c", 5000, shape)
        copied[0] = 7  # not in the file
        for value in (numbers, numbers[10:4000], numbers.T, numbers[7]):
            data = brim.array(value)
            pickled = pickle.dumps(data)
            self.assertLess(len(pickled), 1000)
            again = pickle.loads(pickled)
            self.assertEqual(again, data)
            self.assertTrue(numpy.array_equal(again.bindings["x"].value, value))
        for value in (numbers[::2], copied):
            again = pickle.loads(pickle.dumps(brim.array(value)))
            self.assertTrue(numpy.array_equal(again.bindings["x"].value, value))
        self.assertNotEqual(brim.array(numbers[:10]), brim.array(numbers[1:11]))


class Files(support.Case):
    def setUp(self) -> None:
        super().setUp()
        self.drawn = support.drawn_set(self.folder, 9)

    def test_lists_of_paths(self) -> None:
        paths = [image.path for image in self.drawn]
        labels = [image.label for image in self.drawn]
        for given in (paths, [str(path) for path in paths], [bytes(path) for path in paths]):
            data = brim.files(given, labels).decode().resize(8, 8).batch(9)
            batch = collect(data, threads=2)[0]
            self.assertEqual(list(batch["label"]), labels)
        folder = collect(brim.folder(self.folder).decode().resize(8, 8).batch(9))[0]
        self.assertTrue(numpy.array_equal(batch["image"], folder["image"]))
        bare = brim.files([p.name for p in paths[:3]], root=paths[0].parent, probe=True)
        bare = collect(bare.batch(3))[0]
        self.assertEqual(bare["image"], [path.read_bytes() for path in paths[:3]])

    def test_manifests(self) -> None:
        manifest = self.folder / "list.csv"
        rows = "".join(f"{image.path},{image.label}\n" for image in self.drawn)
        manifest.write_text("path,kind\n" + rows)
        with brim.Runtime("64MiB", threads=0, index_dir=self.folder) as runtime:
            data = brim.files(manifest, columns=["path", "kind"]).decode().resize(8, 8).batch(9)
            with runtime.open(data) as loader:
                batch = loader.next()
                assert batch is not None
                self.assertEqual(
                    list(numpy.array(batch["kind"])), [image.label for image in self.drawn]
                )

    def test_what_is_wrong(self) -> None:
        with self.assertRaisesRegex(TypeError, "labels are ints, not 'cat'; number the names"):
            brim.files(["a"], labels=["cat"])
        with self.assertRaisesRegex(brim.PipelineError, "2 paths, but 1 labels"):
            brim.files(["a", "b"], [1])
        with self.assertRaises(TypeError):
            brim.files([1, 2])
        with self.assertRaises(ValueError):
            brim.files(["a\0b"])
        with self.assertRaises(TypeError):
            brim.files("list.csv", [1])


class Pairs:
    """As a torch Dataset is."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if not 0 <= index < 50:
            raise IndexError(index)
        return X[index] * 2, int(Y[index])


class Batches:
    """As a Keras Sequence is: the last one is shorter."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        rows = slice(index * 8, (index + 1) * 8)
        return X[rows], Y[rows]


class Drawn(Pairs):
    """Elements that draw from the global generator."""

    def __getitem__(self, index: int) -> Any:
        return random.random()


class Datasets(support.Case):
    def test_pairs(self) -> None:
        for threads in (0, 1, 3):
            batches = collect(brim.dataset(Pairs()).batch(8), threads=threads)
            self.assertTrue(numpy.array_equal(joined(batches, "x"), X * 2))
            self.assertTrue(numpy.array_equal(joined(batches, "y"), Y))
        shuffled = collect(brim.dataset(Pairs()).shuffle(seed=4).batch(50))[0]
        self.assertTrue(numpy.array_equal(shuffled["x"][:, 0] * 3, shuffled["y"] * 12))
        self.assertFalse(numpy.array_equal(shuffled["y"], Y))

    def test_how_elements_name_their_fields(self) -> None:
        point = collections.namedtuple("point", "across down")
        for element, names in (
            ({"a": 1, "b": 2}, {"a", "b"}),
            ((1, 2), {"x", "y"}),
            ((1, 2, 3), {"0", "1", "2"}),
            (point(1, 2), {"across", "down"}),
            ([1, 2], {"x"}),
            (numpy.zeros(3), {"x"}),
            (7, {"x"}),
            ("text", {"x"}),
        ):
            self.assertEqual(set(collect(brim.dataset([element] * 3).batch(3))[0]), names)

    def test_text_and_bytes(self) -> None:
        elements = [{"t": "ö" * i, "b": b"x" * i, "n": i} for i in range(20)]
        batch = collect(brim.dataset(elements).batch(20))[0]
        self.assertEqual(batch["t"], [element["t"] for element in elements])
        self.assertEqual(batch["b"], [element["b"] for element in elements])
        long = [{"t": "a"}, {"t": "b" * 3000}]
        with self.assertRaisesRegex(brim.FunctionError, "element 1.*out="):
            collect(brim.dataset(long).batch(2))
        self.assertEqual(
            collect(brim.dataset(long, out={"t": ("text", 3000)}).batch(2))[0]["t"][1], "b" * 3000
        )

    def test_declared_fields(self) -> None:
        elements = [numpy.arange(i, dtype="int32") for i in range(5)]
        out = {"tokens": ("int32", (4,), "ragged")}
        batch = collect(brim.dataset(elements, out=out).batch(5))[0]
        self.assertEqual(batch["tokens"], [list(range(i)) for i in range(5)])
        with self.assertRaisesRegex(brim.FunctionError, r"element 1: field 'x'.*int32 \(2,\)"):
            collect(brim.dataset(elements[1:], out={"x": ("int32", (1,))}).batch(2))

    def test_whole_batches(self) -> None:
        for threads in (0, 2):
            data = brim.dataset(Batches(), batched=True)
            batches = collect(data.unbatch().batch(16), threads=threads)
            self.assertTrue(numpy.array_equal(joined(batches, "x"), X))
            self.assertTrue(numpy.array_equal(joined(batches, "y"), Y))
            mixed = joined(collect(data.shuffle(seed=2).unbatch().batch(16), threads=threads), "y")
            self.assertEqual(sorted(mixed), list(Y))
            starts = [i for i in range(50) if mixed[i] % 24 == 0]  # of the batches of 8
            self.assertEqual([mixed[i + 1] - mixed[i] for i in starts], [3] * 7)
            self.assertNotEqual(list(mixed), list(Y))
        with self.assertRaisesRegex(TypeError, "no rows"):
            collect(brim.dataset([1, 2], batched=True).unbatch().batch(1))

    def test_errors(self) -> None:
        class Bad(Pairs):
            def __getitem__(self, index: int) -> Any:
                if index == 9:
                    raise OSError("gone")
                return super().__getitem__(index)

        with self.assertRaisesRegex(brim.FunctionError, "OSError: gone") as caught:
            collect(brim.dataset(Bad()).batch(8))
        self.assertRegex(str(caught.exception), "sample 9")
        self.assertIsInstance(caught.exception.__cause__, OSError)
        batches = collect(brim.dataset(Bad()).batch(50, on_error="skip"))
        self.assertEqual(len(batches[0]["y"]), 49)
        with self.assertRaisesRegex(TypeError, "stream"):
            brim.dataset(iter([1]))
        with self.assertRaisesRegex(TypeError, "element 0.*'x' is list"):
            collect(brim.dataset([["a", object()]]).batch(1))

    def test_a_first_element_that_is_missing_or_fails(self) -> None:
        class Broken(Pairs):
            def __getitem__(self, index: int) -> Any:
                raise LookupError("no such element")

        with self.assertRaisesRegex(brim.PipelineError, "dataset @list: it has no element"):
            collect(brim.dataset([]).batch(1))
        with self.assertRaisesRegex(brim.FunctionError, "LookupError.*element 0") as caught:
            collect(brim.dataset(Broken()).batch(1))
        self.assertIsInstance(caught.exception.__cause__, LookupError)

    def test_in_processes(self) -> None:
        runs = []
        for processes in (0, 2):
            data = brim.dataset(Drawn(), seed_globals=True, processes=processes)
            runs.append(joined(collect(data.batch(10), threads=2), "x"))
        self.assertTrue(numpy.array_equal(*runs))

    def test_seed_globals(self) -> None:
        data = brim.dataset(Drawn(), seed_globals=True).shuffle(seed=3).batch(10)
        runs = [joined(collect(data, threads=threads, epochs=2), "x") for threads in (0, 1, 3)]
        for run in runs[1:]:
            self.assertTrue(numpy.array_equal(runs[0], run))
        self.assertEqual(len(set(runs[0])), 100)


def numbers() -> Iterator[dict[str, Any]]:
    for i in range(25):
        yield {"n": i, "square": float(i * i)}


class Streams(support.Case):
    def test_a_function_begins_every_epoch(self) -> None:
        for threads in (0, 2):
            batches = collect(brim.stream(numbers).batch(10), threads=threads, epochs=3)
            self.assertEqual(list(joined(batches, "n")), list(range(25)) * 3)
            self.assertEqual(joined(batches, "square").dtype, "float64")

    def test_an_iterable_too(self) -> None:
        batches = collect(brim.stream([(i, i % 2) for i in range(9)]).batch(4), epochs=2)
        self.assertEqual(list(joined(batches, "x")), list(range(9)) * 2)

    def test_an_iterator_serves_once(self) -> None:
        data = brim.stream(numbers()).batch(10)
        with brim.Runtime("64MiB", threads=0) as runtime:
            runtime.plan(data)  # probes, and puts the first item back
            with runtime.open(data) as loader:
                got = [int(n) for batch in loader for n in numpy.array(batch["n"])]
                self.assertEqual(got, list(range(25)))
                with self.assertRaises(brim.StateError):
                    loader.seek(0, 1)

    def test_resuming(self) -> None:
        data = brim.stream(numbers).batch(4)
        with brim.Runtime("64MiB", threads=1) as runtime:
            with runtime.open(data) as loader:
                for _ in range(3):
                    loader.next().release()
                state = loader.state_dict()
            with runtime.open(data) as loader:
                loader.load_state_dict(state)
                batch = loader.next()
                self.assertEqual(list(numpy.array(batch["n"])), [12, 13, 14, 15])

    def test_items_that_fail(self) -> None:
        def breaks() -> Iterator[int]:
            yield 1
            raise LookupError("in the middle")

        with self.assertRaisesRegex(brim.FunctionError, "LookupError: in the middle"):
            collect(brim.stream(breaks).batch(1))
        with self.assertRaisesRegex(brim.PipelineError, "no item"):
            collect(brim.stream([]).batch(1))
        with self.assertRaisesRegex(TypeError, "gave int"):
            collect(brim.stream(lambda: 3).batch(1))
        with self.assertRaises(TypeError):
            brim.stream(3)

    def test_a_first_item_that_fails(self) -> None:
        def at_once() -> Iterator[int]:
            raise LookupError("before the first")
            yield 1

        def not_begun() -> Any:
            raise LookupError("before the first")

        for items in (at_once, not_begun):
            with self.assertRaisesRegex(brim.FunctionError, "before the first.*item 0") as caught:
                collect(brim.stream(items).batch(1))
            self.assertIsInstance(caught.exception.__cause__, LookupError)

    def test_a_position_beyond_the_end(self) -> None:
        self.assertEqual(brim.stream([1, 2, 3])[2], {"x": 3})
        for position in (3, 5, 70):
            with self.assertRaisesRegex(IndexError, f"position {position}"):
                brim.stream([1, 2, 3])[position]

    def test_behind_other_stages(self) -> None:
        data = brim.stream(numbers).filter("n >= 5").map(lambda s: {"m": s["n"] * 2}).batch(5)
        with self.assertRaises(brim.Error):
            brim.stream(numbers).shuffle(seed=1).batch(5).plan("1KiB")
        self.assertEqual(list(joined(collect(data), "m")), [2 * n for n in range(5, 25)])


@unittest.skipIf(support.SANITIZED, "without torch under sanitizers")
@unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
class Tensors(support.Case):
    def test_tensors_are_taken_without_a_copy(self) -> None:
        import torch

        tensor = torch.from_numpy(X.copy())
        data = brim.array(tensor).batch(50)
        tensor[0, 0] = 77  # after it was bound: the same memory
        self.assertEqual(collect(data)[0]["x"][0, 0], 77)
        strided = collect(brim.array(tensor.t()[1:]).batch(50))[0]["x"]
        self.assertTrue(numpy.array_equal(strided, tensor.t()[1:].numpy()))
        learned = torch.zeros(3, 2, requires_grad=True)
        self.assertEqual(collect(brim.array(learned).batch(3))[0]["x"].shape, (3, 2))
        with self.assertRaisesRegex(TypeError, "CPU"):
            brim.array(torch.zeros(3, device="meta"))

    def test_bfloat16(self) -> None:
        import torch

        tensor = torch.arange(40).reshape(10, 4).to(torch.bfloat16)
        got = collect(brim.array(tensor).cast("float32").batch(10))[0]["x"]
        self.assertTrue(numpy.array_equal(got, tensor.float().numpy()))

    def test_datasets_and_functions_of_torch(self) -> None:
        import torch

        pairs = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
        out = {"x": (torch.float32, (6,)), "r": torch.float32}

        def draw(sample: dict[str, Any]) -> dict[str, Any]:
            return {"x": torch.tensor(sample["x"]) * 2, "r": torch.rand(())}

        data = brim.dataset(pairs).map(draw, out=out, seed_globals=True).batch(10)
        torch.manual_seed(1)
        expected = torch.rand(3)
        torch.manual_seed(1)
        runs = [collect(data, threads=threads) for threads in (0, 2)]
        self.assertTrue(torch.equal(torch.rand(3), expected))
        self.assertTrue(numpy.array_equal(joined(runs[0], "x"), X * 2))
        self.assertTrue(numpy.array_equal(joined(runs[0], "r"), joined(runs[1], "r")))
        self.assertEqual(len(set(joined(runs[0], "r"))), 50)


if __name__ == "__main__":
    support.main()
