"""Functions of Python's in pipelines: values, contracts, errors, random numbers, lifetime."""

# sanitizers: yes

from __future__ import annotations

import functools
import gc
import pickle
import random
import subprocess
import sys
import textwrap
import threading
import traceback
import unittest
import warnings
import weakref
from typing import Any

import support

numpy = support.need("numpy")

import brim
from brim import _calls
from brim._randomness import sources_of

X = numpy.arange(60 * 4, dtype="float32").reshape(60, 4)
Y = numpy.arange(60, dtype="int64") % 7


def source() -> brim.Pipeline:
    return brim.arrays(x=X, label=Y)


def collect(
    data: brim.Pipeline, *, threads: int = 0, epochs: int = 1, memory: str = "64MiB"
) -> list[dict[str, Any]]:
    """All batches of some epochs, copied: arrays, and lists where rows differ in length."""
    found = []
    with brim.Runtime(memory, threads=threads) as runtime, runtime.open(data) as loader:
        for epoch in loader.epochs(epochs):
            for batch in epoch:
                fields = {}
                for name in batch:
                    field = batch[name]
                    ragged = isinstance(field, brim.Ragged)
                    fields[name] = field.tolist() if ragged else numpy.array(field)
                fields["ids"] = numpy.array(batch.ids)
                found.append(fields)
    return found


def joined(batches: list[dict[str, Any]], name: str) -> Any:
    return numpy.concatenate([batch[name] for batch in batches])


def halve(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"] / numpy.float32(2), "label": sample["label"]}


def noise(sample: dict[str, Any], rng: numpy.random.Generator) -> dict[str, Any]:
    return {"x": sample["x"] + rng.random(4, dtype="float32"), "draw": rng.integers(1 << 60)}


def takes_much(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": len(bytearray(1 << 30))}


class Values(support.Case):
    def test_map_gives_what_numpy_gives(self) -> None:
        for threads in (0, 1, 3):
            batches = collect(source().map(halve).batch(8), threads=threads)
            self.assertTrue(numpy.array_equal(joined(batches, "x"), X / 2))
            self.assertTrue(numpy.array_equal(joined(batches, "label"), Y))

    def test_declared_and_probed_are_the_same(self) -> None:
        out = {"x": ("float32", (4,)), "label": "int64"}
        declared = source().map(halve, out=out).batch(8)
        probed = source().map(halve).batch(8)
        self.assertTrue(
            numpy.array_equal(joined(collect(declared), "x"), joined(collect(probed), "x"))
        )
        self.assertEqual(str(declared), str(probed))

    def test_plan_says_what_was_probed(self) -> None:
        with brim.Runtime("64MiB", threads=0) as runtime:
            probed = runtime.plan(source().map(halve).batch(8)).stages
            out = {"x": ("float32", (4,)), "label": "int64"}
            declared = runtime.plan(source().map(halve, out=out).batch(8)).stages
        (told,) = (stage["effect"] for stage in probed if stage["name"] == "map")
        (plain,) = (stage["effect"] for stage in declared if stage["name"] == "map")
        self.assertEqual(plain, "x float32 4, label int64 scalar")
        self.assertEqual(told, f"{plain}, probed")

    def test_every_kind_of_input(self) -> None:
        (self.folder / "d.jsonl").write_text(
            "".join(f'{{"t": "{"ä" * i}", "v": {i}, "w": {i}.5}}\n' for i in range(5))
        )
        seen = []

        def look(sample: dict[str, Any]) -> dict[str, Any]:
            seen.append({name: type(value) for name, value in sample.items()})
            return {"n": len(sample["t"]), "v": int(sample["v"])}

        batches = collect(brim.jsonl(self.folder / "d.jsonl").map(look).batch(5))
        self.assertEqual(list(batches[0]["n"]), [0, 1, 2, 3, 4])
        self.assertEqual(seen[0]["t"], str)
        self.assertTrue(issubclass(seen[0]["v"], numpy.integer), seen[0])
        self.assertTrue(issubclass(seen[0]["w"], numpy.floating), seen[0])

    def test_ragged_text_and_bytes_out(self) -> None:
        def make(sample: dict[str, Any]) -> dict[str, Any]:
            count = int(sample["label"])
            return {
                "r": numpy.full((count, 2), count, "int16"),
                "t": "ü" * count,
                "b": bytes(range(count)),
            }

        out = {"r": ("int16", (6, 2), "ragged"), "t": ("text", 12), "b": "bytes"}
        data = source().map(make, out=out).batch(7)
        for threads in (0, 2):
            batch = collect(data, threads=threads)[0]
            self.assertEqual(batch["t"], ["ü" * i for i in range(7)])
            self.assertEqual(batch["b"], [bytes(range(i)) for i in range(7)])
            self.assertEqual(batch["r"][3], [[3, 3]] * 3)
            self.assertEqual(batch["r"][0], [])

    def test_bare_array_of_one_field(self) -> None:
        data = brim.array(X).map(lambda sample: sample["x"][:2] * 2).batch(60)
        self.assertTrue(numpy.array_equal(collect(data)[0]["x"], X[:, :2] * 2))

    def test_numbers_of_python_take_the_declared_dtype(self) -> None:
        out = {"a": "float32", "b": "uint8", "c": "bool"}
        data = source().map(lambda sample: {"a": 0.5, "b": 255, "c": True}, out=out).batch(60)
        batch = collect(data)[0]
        self.assertEqual(
            [(batch[name].dtype.name, batch[name][7]) for name in "abc"],
            [("float32", 0.5), ("uint8", 255), ("bool", True)],
        )

    def test_chain_of_functions(self) -> None:
        data = source().map(halve).map(lambda s: {"y": s["x"].sum()}).map(lambda s: s["y"] * 2)
        self.assertTrue(numpy.allclose(collect(data.batch(60))[0]["y"], X.sum(1)))

    def test_the_same_function_twice(self) -> None:
        data = source().map(halve).map(halve).batch(60)
        self.assertTrue(numpy.array_equal(collect(data)[0]["x"], X / 4))

    def test_filter(self) -> None:
        for threads in (0, 1, 3):
            data = source().filter(lambda sample: sample["label"] == 3).batch(4)
            kept = joined(collect(data, threads=threads), "x")
            self.assertTrue(numpy.array_equal(kept, X[Y == 3]))
        data = source().filter("label == 3", "label < 5").batch(4)
        self.assertTrue(numpy.array_equal(joined(collect(data), "x"), X[Y == 3]))

    def test_flat_map_of_lists_and_generators(self) -> None:
        def windows(sample: dict[str, Any]) -> Any:
            for at in range(int(sample["label"]) % 4):
                yield {"w": sample["x"][at : at + 2]}  # a view, taken after the call that made it

        def listed(sample: dict[str, Any]) -> Any:
            return list(windows(sample))

        expected = numpy.array([X[i, at : at + 2] for i in range(60) for at in range(Y[i] % 4)])
        for function in (windows, listed):
            for threads in (0, 3):
                data = source().flat_map(function, out={"w": ("float32", (2,))}, most=3)
                batches = collect(data.batch(5), threads=threads)
                self.assertTrue(numpy.array_equal(joined(batches, "w"), expected))

    def test_flat_map_probes_and_bounds(self) -> None:
        data = source().skip(1).flat_map(lambda s: [{"w": s["x"]}] * 3, most=3).batch(177)
        self.assertEqual(len(collect(data)[0]["w"]), 177)
        data = source().flat_map(lambda s: [{"w": s["x"]}] * 3, most=2).batch(4)
        with self.assertRaisesRegex(brim.FunctionError, "more than 2"):
            collect(data)
        with self.assertRaisesRegex(brim.PipelineError, "makes no samples.*out="):
            collect(source().flat_map(lambda s: []).batch(4))

    def test_batch_map_in_place(self) -> None:
        def scale(batch: dict[str, Any]) -> None:
            batch["x"] *= 2

        def replace(batch: dict[str, Any]) -> dict[str, Any]:
            batch["x"] = batch["x"] * numpy.float32(2)
            return batch

        for function in (scale, replace):
            for threads in (0, 2):
                data = source().batch(8).batch_map(function)
                batches = collect(data, threads=threads)
                self.assertTrue(numpy.array_equal(joined(batches, "x"), X * 2), function)
                self.assertTrue(numpy.array_equal(joined(batches, "label"), Y))
        data = source().batch(8).batch_map(scale, out={})
        self.assertTrue(numpy.array_equal(joined(collect(data), "x"), X * 2))

    def test_batch_map_with_other_fields(self) -> None:
        def sums(batch: dict[str, Any]) -> dict[str, Any]:
            return {"sum": batch["x"].sum(1), "order": batch["label"][::-1]}

        data = source().batch(8).batch_map(sums)
        batches = collect(data, threads=2)
        self.assertEqual(set(batches[0]), {"sum", "order", "ids"})
        self.assertTrue(numpy.array_equal(joined(batches, "sum"), X.sum(1)))
        self.assertTrue(numpy.array_equal(batches[1]["order"], Y[8:16][::-1]))

    def test_batch_map_that_adds_a_field_in_place(self) -> None:
        def add(batch: dict[str, Any]) -> None:
            batch["double"] = batch["x"] * 2

        batches = collect(source().batch(8).batch_map(add), threads=2)
        self.assertEqual(set(batches[0]), {"x", "label", "double", "ids"})
        self.assertTrue(numpy.array_equal(joined(batches, "double"), X * 2))
        self.assertTrue(numpy.array_equal(joined(batches, "x"), X))


class Contract(support.Case):
    """What a function gives that was not declared."""

    def fails(self, function: Any, pattern: str, **keywords: Any) -> brim.FunctionError:
        with self.assertRaisesRegex(brim.FunctionError, pattern) as caught:
            collect(source().map(function, **keywords).batch(60))
        return caught.exception

    def test_mismatches_name_field_and_sample(self) -> None:
        out = {"x": ("float32", (4,)), "label": "int64"}
        self.fails(lambda s: {"x": s["x"]}, "sample 0: .*no field 'label'", out=out)
        self.fails(lambda s: {**s, "z": 1}, "sample 0: .*'z'.*not declared", out=out)
        self.fails(
            lambda s: {**s, "x": s["x"].astype("float64")},
            r"sample 0: field 'x' was declared float32 \(4,\), but is float64 \(4,\).*astype",
            out=out,
        )
        self.fails(lambda s: {**s, "x": s["x"][:3]}, r"float32 \(4,\).*float32 \(3,\)", out=out)
        self.fails(lambda s: None, "NoneType", out=out)
        self.fails(lambda s: {**s, "label": 0.5}, "'label' was declared int64", out=out)
        self.fails(lambda s: {**s, "label": 1 << 70}, "'label' was declared int64", out=out)

    def test_a_later_sample_that_differs_from_the_probed_one(self) -> None:
        def odd(sample: dict[str, Any]) -> dict[str, Any]:
            return {"x": sample["x"][: 3 if sample["x"][0] == 40 else 4]}

        error = self.fails(odd, "sample 10")
        self.assertIsInstance(error.__cause__, ValueError)

    def test_what_was_found_by_looking_is_not_called_declared(self) -> None:
        def turns(after: Any) -> Any:
            return lambda s: {"v": 1} if s["x"][0] < 40 else after

        first = r"sample 10: field 'v' was int64 \(\) in the first sample, but is float64 \(\)"
        self.fails(turns({"v": 0.5}), f"{first}.*give out= with the type that all have")
        self.fails(turns({"v": 1, "w": 2}), "'w' was not in the first sample; .* had 'v'")
        self.fails(turns({"w": 2}), "no field 'v', which was int64 .* in the first sample")
        with self.assertRaisesRegex(brim.FunctionError, "item 1: field 'x' .* in item 0"):
            collect(brim.stream([1, 0.5]).batch(1))
        with self.assertRaisesRegex(brim.FunctionError, "element 1: field 'x' .* in element 0"):
            collect(brim.dataset([1, 0.5]).batch(1))

    def test_processes_are_checked_alike(self) -> None:
        def dataset(_: Any, **options: Any) -> Any:
            return brim.dataset([1, 2], **options)

        for make in (source().map, source().filter, dataset):
            for count in (-1, 1025, 1 << 40):
                with self.assertRaisesRegex(ValueError, "@.*: processes=-?[0-9]+, .*1 to 1024"):
                    make(halve, processes=count)
            for wrong in ("2", 1.5, None, True):
                with self.assertRaisesRegex(TypeError, "@.*: processes is an int"):
                    make(halve, processes=wrong)
            with self.assertRaisesRegex(ValueError, "process_memory='1GiB'.*give processes="):
                make(halve, process_memory="1GiB")

    @unittest.skipIf(support.SANITIZED, "sanitizers need terabytes of address space")
    def test_a_process_that_has_used_its_memory_up(self) -> None:
        data = source().map(takes_much, out={"x": "int64"}, processes=1, process_memory="300MiB")
        told = r"process_memory=314572800 \(300.0 MiB\): give it more"
        with self.assertRaisesRegex(brim.FunctionError, told) as caught:
            collect(data.batch(1))
        self.assertIsInstance(caught.exception.__cause__, MemoryError)

    def test_samples_are_gone_behind_batch(self) -> None:
        batches = source().batch(4)
        told = r"map acts on samples: put it before batch\(\), or use batch_map\(\)"
        with self.assertRaisesRegex(brim.PipelineError, told):
            batches.map(halve)
        for call, argument in ((batches.filter, "label > 1"), (batches.flat_map, halve)):
            with self.assertRaisesRegex(brim.PipelineError, "acts on samples: put it before"):
                call(argument)

    def test_bounds_of_text_and_ragged(self) -> None:
        self.fails(lambda s: "x" * 9, "'t' .*at most 8 bytes, but has 9", out={"t": ("text", 8)})
        self.fails(
            lambda s: numpy.zeros(5, "int8"), r"at most \(4", out={"t": ("int8", (4,), "ragged")}
        )

    def test_inputs_are_read_only(self) -> None:
        def write(sample: dict[str, Any]) -> dict[str, Any]:
            sample["x"][0] = 1
            return {"x": sample["x"]}

        self.fails(write, "read-only", out={"x": ("float32", (4,))})
        self.fails(write, "read-only")

    def test_counts_of_processes_that_are_wrong(self) -> None:
        from brim import _core

        fields = [("x", "float32", (4,), "dense")]
        for count in (-1, 0, 1025, (1 << 32) + 1, 1 << 70):
            with self.assertRaises((brim.PipelineError, ValueError, OverflowError)):
                _core.Binding("f", "map", halve, fields=fields, processes=(halve, count))

    def test_out_that_is_wrong(self) -> None:
        for out in ({}, [], {"x": ("float32", (4,), "square")}, {"x": ("text", "long")}):
            with self.assertRaises(TypeError):
                source().map(halve, out=out)
        for out, told in (
            ({"x": ("flaot32", (4,))}, "map @halve: field 'x' .*'flaot32' is no dtype"),
            ({"x": (None, (4,))}, "None is no dtype"),
            ({"x": ("float32", (4.5,))}, "field 'x' .*a shape is a tuple of ints"),
            ({3: "int64"}, "a field named 3, but names are str"),
        ):
            with self.assertRaisesRegex(TypeError, told):
                source().map(halve, out=out)
        with self.assertRaises(TypeError):
            source().map("halve")
        with self.assertRaises(TypeError):
            source().filter()
        with self.assertRaisesRegex(brim.PipelineError, "no dtype"):
            collect(source().map(halve, out={"x": ("datetime64[s]", (4,))}).batch(4))

    def test_dtypes_by_any_name(self) -> None:
        for dtype in ("float32", "f4", numpy.float32, numpy.dtype("float32")):
            data = brim.array(X).map(lambda s: s["x"], out={"x": (dtype, (4,))}).batch(60)
            self.assertTrue(numpy.array_equal(collect(data)[0]["x"], X))

    def test_a_filter_gives_truth_values(self) -> None:
        with self.assertRaisesRegex(brim.FunctionError, "true or false.*NoneType"):
            collect(source().filter(lambda s: None).batch(4))

    def test_bfloat16_is_seen_as_bits(self) -> None:
        bits = (X.view("uint32") >> 16).astype("uint16")
        out = {"x": ("bfloat16", (4,))}
        data = brim.array(X).cast("bfloat16").map(lambda s: s["x"].copy(), out=out)
        batch = collect(data.cast("float32").batch(60))[0]
        self.assertTrue(numpy.array_equal(batch["x"].view("uint32") >> 16, bits))


class Errors(support.Case):
    def test_exception_is_the_cause_with_its_traceback(self) -> None:
        def breaks(sample: dict[str, Any]) -> dict[str, Any]:
            if sample["label"] == 3:
                raise KeyError("no such thing")
            return sample

        for threads in (0, 2):
            data = source().map(breaks, out={"x": ("float32", (4,)), "label": "int64"}).batch(2)
            with self.assertRaisesRegex(brim.FunctionError, "KeyError.*no such thing") as caught:
                collect(data, threads=threads)
            self.assertNotIn("[#", str(caught.exception))
            self.assertRegex(str(caught.exception), "sample 3")
            cause = caught.exception.__cause__
            self.assertIsInstance(cause, KeyError)
            frames = [frame.name for frame in traceback.extract_tb(cause.__traceback__)]
            self.assertEqual(frames[-1], "breaks")

    def test_probe_that_fails(self) -> None:
        pattern = "ZeroDivisionError.*first sample"
        with self.assertRaisesRegex(brim.FunctionError, pattern) as caught:
            collect(source().map(lambda s: 1 // 0).batch(4))
        self.assertIsInstance(caught.exception.__cause__, ZeroDivisionError)

    def test_on_error_skip(self) -> None:
        def breaks(sample: dict[str, Any]) -> dict[str, Any]:
            if sample["label"] == 3:
                raise ValueError("three")
            return dict(sample)

        data = source().map(breaks).batch(10, on_error="skip")
        for threads in (0, 2):
            with brim.Runtime("64MiB", threads=threads) as runtime, runtime.open(data) as loader:
                ids = [i for batch in loader for i in numpy.array(batch.ids) if i >= 0]
                stats = loader.stats()
            self.assertEqual(ids, [i for i in range(60) if Y[i] != 3])
            self.assertEqual(stats["skipped"], (Y == 3).sum())
            self.assertIn("three", str(stats))
            self.assertNotIn("[#", str(stats))

    def test_what_is_no_exception_is_not_skipped(self) -> None:
        leaving = True

        def leaves(sample: dict[str, Any]) -> dict[str, Any]:
            if leaving and sample["label"] == 3:
                raise SystemExit("enough")
            return dict(sample)

        out = {"x": ("float32", (4,)), "label": "int64"}
        data = source().map(leaves, out=out).batch(10, on_error="skip")
        for threads in (0, 2):
            leaving = True
            with brim.Runtime("64MiB", threads=threads) as runtime, runtime.open(data) as loader:
                for _ in range(2):
                    with self.assertRaisesRegex(SystemExit, "enough"):
                        list(loader)
                self.assertEqual(loader.stats()["skipped"], 0)
                leaving = False
                if threads == 0:  # workers have met it in the batches that they made ahead
                    ids = [i for batch in loader for i in numpy.array(batch.ids) if i >= 0]
                    self.assertEqual(ids[-1], 59)

    def test_views_that_are_kept(self) -> None:
        kept = []

        def keeps(sample: dict[str, Any]) -> dict[str, Any]:
            kept.append(sample["x"][1:])
            return {"x": sample["x"]}

        with self.assertRaisesRegex(brim.FunctionError, "kept a view of field 'x'.*copy"):
            collect(brim.array(X).map(keeps, out={"x": ("float32", (4,))}).batch(4))
        kept.clear()

        def keeps_copies(sample: dict[str, Any]) -> dict[str, Any]:
            kept.append((sample["x"].copy(), sample["label"]))
            return {"x": sample["x"]}

        collect(source().map(keeps_copies, out={"x": ("float32", (4,))}).batch(60))
        self.assertTrue(numpy.array_equal([x for x, _ in kept], X))
        self.assertEqual([label for _, label in kept], list(Y))

    def test_a_kept_view_can_be_looked_at(self) -> None:
        """Its memory is gone: it reads as zeros, whoever gave the memory back."""
        script = textwrap.dedent(
            """
            import gc, sys
            import brim, numpy
            threads, end, kept = int(sys.argv[1]), sys.argv[2], []
            def keeps(sample):
                kept.append(sample["x"])
                return sample
            data = brim.array(numpy.ones((1000, 40960))).cast("float32")
            data = data.map(keeps, out={"x": ("float32", (40960,))}).batch(2)
            runtime = brim.Runtime("64MiB", threads=threads)
            loader = runtime.open(data)
            try:
                loader.next()
            except brim.FunctionError as error:
                print("kept a view" in str(error))
            if end == "close":
                loader.close()
            else:
                del loader
                gc.collect()
                runtime.trim()
            runtime.close()
            print({float(view.sum()) for view in kept})
            """
        )
        path = self.folder / "script.py"
        path.write_text(script)
        for threads, end in ((0, "close"), (0, "drop"), (2, "close")):
            ran = subprocess.run(
                [sys.executable, str(path), str(threads), end],
                capture_output=True,
                text=True,
                timeout=240,
            )
            self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "True\n{0.0}\n", ""))

    def test_views_in_cycles_and_exceptions_are_let_go(self) -> None:
        def cycle(sample: dict[str, Any]) -> dict[str, Any]:
            ring: list[Any] = [sample["x"]]
            ring.append(ring)
            return {"x": sample["x"]}

        out = {"x": ("float32", (4,))}
        self.assertEqual(len(collect(brim.array(X).map(cycle, out=out).batch(60))), 1)

        def raises(sample: dict[str, Any]) -> dict[str, Any]:
            raise ValueError("with", sample["x"])

        with self.assertRaisesRegex(brim.FunctionError, "exception kept a view of field 'x'"):
            collect(brim.array(X).map(raises, out=out).batch(60))

    def test_a_loader_goes_on_after_a_failure(self) -> None:
        fail = [True]

        def breaks(sample: dict[str, Any]) -> dict[str, Any]:
            if fail[0]:
                raise RuntimeError("for now")
            return dict(sample)

        out = {"x": ("float32", (4,)), "label": "int64"}
        data = source().map(breaks, out=out).batch(60)
        with brim.Runtime("64MiB", threads=1) as runtime, runtime.open(data) as loader:
            with self.assertRaises(brim.FunctionError):
                loader.next()
            fail[0] = False
            batch = loader.next()
            assert batch is not None
            self.assertTrue(numpy.array_equal(batch["x"], X))

    def test_many_exceptions_are_kept_apart(self) -> None:
        def breaks(sample: dict[str, Any]) -> dict[str, Any]:
            raise ValueError(f"number {int(sample['x'][0])}")

        out = {"x": ("float32", (4,))}
        data = brim.array(X).map(breaks, out=out).batch(1)
        with brim.Runtime("64MiB", threads=0) as runtime, runtime.open(data) as loader:
            for step in range(60):
                loader.seek(0, step)
                with self.assertRaises(brim.FunctionError) as caught:
                    loader.next()
                self.assertEqual(str(caught.exception.__cause__), f"number {4 * step}")


    def test_exceptions_keep_nothing_of_the_program_alive(self) -> None:
        class Mark:
            pass

        def breaks(sample: dict[str, Any]) -> dict[str, Any]:
            try:
                raise KeyError("inner")
            except KeyError as error:
                raise ValueError("outer") from error

        def run(runtime: brim.Runtime, on_error: str, handling: bool) -> Any:
            mark = Mark()
            data = brim.array(X).map(breaks, out={"x": ("float32", (4,))})
            loader = runtime.open(data.batch(10, on_error=on_error))
            try:
                if handling:
                    try:
                        raise OSError("of the program's", mark)
                    except OSError:
                        loader.next()
                loader.next()
            except brim.FunctionError:
                self.assertEqual(on_error, "fail")
            return weakref.ref(mark), loader

        for threads in (0, 2):
            for on_error in ("fail", "skip"):
                for handling in (False, True):
                    with brim.Runtime("64MiB", threads=threads) as runtime:
                        mark, loader = run(runtime, on_error, handling)
                        gc.collect()
                        self.assertIsNone(mark(), (threads, on_error, handling))
                        del loader
                        gc.collect()
                        self.assertEqual(runtime.usage()["loaders"], 0)

    def test_exceptions_that_refer_to_their_loader(self) -> None:
        class Holder:
            def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
                raise ValueError(self)

        for on_error in ("fail", "skip"):
            with brim.Runtime("64MiB", threads=0) as runtime:
                holder = Holder()
                data = brim.array(X).map(holder, out={"x": ("float32", (4,))}, version=1)
                holder.loader = runtime.open(data.batch(10, on_error=on_error))  # type: ignore
                try:
                    holder.loader.next()  # type: ignore
                except brim.FunctionError as error:
                    assert error.__cause__ is not None
                    self.assertIs(error.__cause__.args[0], holder)
                dead = weakref.ref(holder)
                del holder, data
                gc.collect()
                self.assertIsNone(dead(), on_error)
                self.assertEqual(runtime.usage()["loaders"], 0)

    def test_exceptions_are_kept_no_longer_than_needed(self) -> None:
        class Mine(Exception):
            pass

        raised = []

        def breaks(sample: dict[str, Any]) -> dict[str, Any]:
            error = Mine()
            raised.append(weakref.ref(error))
            raise error

        data = brim.array(X).map(breaks, out={"x": ("float32", (4,))})
        with brim.Runtime("64MiB", threads=0) as runtime:
            with runtime.open(data.batch(10)) as loader:
                with self.assertRaises(brim.FunctionError) as caught:
                    loader.next()
                self.assertIs(caught.exception.__cause__, raised[0]())
                del caught
                gc.collect()
                self.assertIsNone(raised[0]())
            loader = runtime.open(data.batch(10, on_error="skip"))
            loader.next()
            self.assertGreater(sum(error() is not None for error in raised), 0)
            loader.close()
            del loader
            gc.collect()
            self.assertEqual([error() for error in raised], [None] * len(raised))

    def test_tracebacks_are_told_in_full(self) -> None:
        def inner(value: float) -> float:
            return 1 + (2 // (value - value)) * 3

        def breaks(sample: dict[str, Any]) -> float:
            try:
                return inner(float(sample["x"][0]))
            except ZeroDivisionError as error:
                raise ValueError("outer") from error

        def told(exception: BaseException | None) -> list[str]:
            assert exception is not None
            frames = traceback.format_tb(exception.__traceback__)
            while ", in breaks" not in frames[0]:
                frames.pop(0)  # of whoever called
            return frames

        try:
            breaks({"x": X[0]})
        except ValueError as error:
            expected = told(error), told(error.__cause__)
        self.assertEqual([len(frames) for frames in expected], [1, 2])
        for threads in (0, 2):
            data = brim.array(X).map(breaks, out={"x": "float64"}).batch(4)
            with self.assertRaises(brim.FunctionError) as caught:
                collect(data, threads=threads)
            cause = caught.exception.__cause__
            assert cause is not None
            self.assertEqual((told(cause), told(cause.__cause__)), expected)

    def test_a_stream_that_cannot_be_opened_again_keeps_nothing_alive(self) -> None:
        class Mark:
            pass

        marks, opened = [], []

        def opens() -> Any:
            mark = Mark()
            marks.append(weakref.ref(mark))
            opened.append(True)
            if len(opened) == 2:
                raise OSError("gone")
            return iter([{"x": 1}] * 3)

        def run(runtime: brim.Runtime) -> Any:
            mark = Mark()
            marks.append(weakref.ref(mark))
            loader = runtime.open(brim.stream(opens, out={"x": "int64"}).batch(2))
            with self.assertRaises(brim.Error) as caught:
                for epoch in loader.epochs(2):
                    for batch in epoch:
                        del batch
            cause = caught.exception.__cause__
            assert isinstance(cause, OSError)
            for frame, _ in traceback.walk_tb(cause.__traceback__):
                self.assertEqual((frame.f_locals, frame.f_back), ({}, None))

        with brim.Runtime("64MiB", threads=0) as runtime:
            run(runtime)
            self.assertEqual(len(opened), 2)
            gc.collect()
            self.assertEqual([mark() for mark in marks], [None] * len(marks))
            self.assertEqual(runtime.usage()["loaders"], 0)


class Random(support.Case):
    def test_same_numbers_on_any_thread(self) -> None:
        data = source().shuffle(seed=3).map(noise, seed=5).batch(8)
        runs = [collect(data, threads=threads, epochs=2) for threads in (0, 1, 3)]
        for run in runs[1:]:
            for one, other in zip(runs[0], run, strict=True):
                self.assertTrue(numpy.array_equal(one["x"], other["x"]))
                self.assertTrue(numpy.array_equal(one["draw"], other["draw"]))
        draws = joined(runs[0], "draw")
        self.assertEqual(len(set(draws)), len(draws))  # others for each sample and epoch
        other = joined(collect(source().map(noise, seed=6).batch(8)), "draw")
        self.assertFalse(set(draws) & set(other))

    def test_the_generator_is_philox_of_key_sample_and_epoch(self) -> None:
        made = numpy.random.Generator(numpy.random.Philox(key=77, counter=(5 << 192) | (9 << 128)))
        expected = made.random(7), made.integers(1 << 30, size=3, dtype="uint32")
        for _ in range(2):
            rng = _calls.generator(77, 5, 9)
            self.assertTrue(numpy.array_equal(rng.random(7), expected[0]))
            self.assertTrue(
                numpy.array_equal(rng.integers(1 << 30, size=3, dtype="uint32"), expected[1])
            )

    def test_who_takes_a_generator(self) -> None:
        from brim._functions import takes_rng

        def with_default(sample: Any, strength: float = 0.5) -> None: ...
        def named(sample: Any, rng: Any = None) -> None: ...

        class Callable:
            def __call__(self, sample: Any, generator: Any) -> None: ...

        self.assertTrue(takes_rng(noise))
        self.assertTrue(takes_rng(named))
        self.assertTrue(takes_rng(Callable()))
        self.assertFalse(takes_rng(functools.partial(with_default, strength=1)))
        self.assertFalse(takes_rng(functools.partial(named, rng=numpy.random.default_rng(1))))
        self.assertFalse(takes_rng(halve))
        self.assertFalse(takes_rng(with_default))
        self.assertFalse(takes_rng(len))

    def test_a_parameter_named_rng_is_found_wherever_it_stands(self) -> None:
        def later(sample: Any, scale: int = 1, rng: Any = None) -> Any:
            return {"d": scale * rng.random()}

        def only_named(sample: Any, *, rng: Any) -> Any:
            return {"d": rng.random()}

        def before(sample: Any, scale: int, rng: Any) -> Any:
            return {"d": scale * rng.random()}

        def items(sample: Any, *, rng: Any) -> Any:
            yield {"d": rng.random()}

        functions = (later, only_named, functools.partial(before, scale=1))
        drawn = [joined(collect(source().map(f, seed=3).batch(60)), "d") for f in functions]
        drawn.append(joined(collect(source().flat_map(items, seed=3).batch(60)), "d"))
        for other in drawn[1:]:
            self.assertTrue(numpy.array_equal(drawn[0], other))
        self.assertEqual(len(set(drawn[0])), 60)

    def test_flat_map_and_batch_map_draw_too(self) -> None:
        def items(sample: dict[str, Any], rng: Any) -> Any:
            for _ in range(2):
                yield {"d": rng.random()}

        def rows(batch: dict[str, Any], rng: Any) -> dict[str, Any]:
            return {"d": rng.random(len(batch["x"]))}

        for data in (source().flat_map(items).batch(10), source().batch(10).batch_map(rows)):
            runs = [joined(collect(data, threads=threads), "d") for threads in (0, 2)]
            self.assertTrue(numpy.array_equal(*runs))
            self.assertEqual(len(set(runs[0])), len(runs[0]))

    def test_seed_globals(self) -> None:
        def draws(sample: dict[str, Any]) -> dict[str, Any]:
            return {"a": random.random(), "b": numpy.random.rand()}

        out = {"a": "float64", "b": "float64"}
        data = source().map(draws, out=out, seed_globals=True).batch(10)
        runs = []
        for threads in (0, 1, 3):
            random.seed(1)
            numpy.random.seed(1)
            expected = random.random(), numpy.random.rand()
            random.seed(1)
            numpy.random.seed(1)
            runs.append(collect(data, threads=threads))
            self.assertEqual((random.random(), numpy.random.rand()), expected)  # put back
        for name in "ab":
            for run in runs[1:]:
                self.assertTrue(numpy.array_equal(joined(runs[0], name), joined(run, name)))
            self.assertEqual(len(set(joined(runs[0], name))), 60)


def warned(data: brim.Pipeline, **options: Any) -> list[str]:
    """The texts of the warnings when it is planned, and opened and run twice."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data.plan("16MiB")
        for _ in range(2):
            collect(data, **options)
    for warning in caught:
        assert warning.category is brim.RandomnessWarning, warning
        assert warning.filename == __file__, warning
    return [str(warning.message) for warning in caught]


class Transformed:
    """A Dataset whose elements draw."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Any:
        return {"x": X[index] + numpy.float32(numpy.random.rand())}


GENERATOR = numpy.random.default_rng(1)


def held(sample: Any) -> Any:
    return {"d": GENERATOR.random()}


def made(sample: Any) -> Any:
    return {"d": numpy.random.default_rng().random()}


def hidden(sample: Any) -> Any:
    return {"d": getattr(numpy, "random").rand()}  # noqa: B009


class Warnings(support.Case):
    """Functions that draw without being given a generator, on threads of the program."""

    def test_once_with_both_ways_out(self) -> None:
        def items(sample: Any) -> Any:
            yield {"d": random.random()}

        def in_place(batch: Any) -> None:
            batch["x"] += numpy.random.rand()

        def chosen(sample: Any) -> bool:
            return random.random() < 2

        def numbers() -> Any:
            for _ in range(60):
                yield {"x": random.random()}

        def drawn(sample: Any) -> Any:
            return {"d": numpy.random.rand()}

        found = {
            "map @drawn": (source().map(drawn).batch(10), "numpy.random.rand"),
            "filter @chosen": (source().filter(chosen).batch(10), "random.random"),
            "flat_map @items": (source().flat_map(items).batch(10), "random.random"),
            "batch_map @in_place": (source().batch(10).batch_map(in_place), "numpy.random.rand"),
            "dataset @transformed": (brim.dataset(Transformed()).batch(10), "numpy.random.rand"),
            "stream @numbers": (brim.stream(numbers).batch(10), "random.random"),
        }
        for name, (data, drawn_from) in found.items():
            with self.subTest(name):
                (text,) = warned(data, threads=2)
                self.assertTrue(text.startswith(f"{name} draws from {drawn_from}, "), text)
                self.assertIn("parameter rng", text)
                if not name.startswith("flat_map"):  # which has none
                    self.assertIn("processes=", text)

    def test_draws_that_no_code_names(self) -> None:
        """Seen where the function is called once to find out its fields."""

        def also_own(sample: Any) -> Any:
            return {"d": getattr(numpy, "random").rand() + GENERATOR.random()}  # noqa: B009

        class Hidden:
            def __len__(self) -> int:
                return 60

            def __getitem__(self, index: int) -> Any:
                return hidden(index)

        self.assertEqual(sources_of(hidden), (None, None))
        for data in (source().map(hidden).batch(10), brim.dataset(Hidden()).batch(10)):
            (text,) = warned(data, threads=2)
            self.assertRegex(text, "draws from numpy.random, .*parameter rng.*, or give processes=")
        (text,) = warned(source().map(also_own).batch(10))
        self.assertNotIn("where all are seeded", text)  # its own would not be
        self.assertEqual(warned(source().map(hidden, processes=1).batch(10)), [])
        for options in ({"seed_globals": False}, {"processes": 1}):
            with self.subTest(options):  # a cache would keep the first draw
                with self.assertRaisesRegex(brim.PipelineError, "random"):
                    source().map(hidden, version="1", **options).cache().batch(10).plan("16MiB")

    def test_generators_that_no_seeding_reaches(self) -> None:
        seen = {held: "numpy.random.*Generator", made: r"numpy.random.default_rng\(\)"}
        for function, name in seen.items():
            for options in ({}, {"seed_globals": True}):
                (text,) = warned(source().map(function, **options).batch(10))
                self.assertRegex(text, f"draws from {name}.*cannot seed.*parameter rng")
            with self.assertWarnsRegex(brim.RandomnessWarning, "depend on processes"):
                source().map(function, out={"d": "float64"}, processes=1).batch(10).plan("16MiB")

    def test_none_where_all_is_well(self) -> None:
        def by_number(sample: Any) -> Any:
            return {"d": numpy.random.default_rng(int(sample["label"])).random()}

        def both(sample: Any, rng: Any) -> Any:
            return {"d": rng.random() + 0 * GENERATOR.random()}

        def drawn(sample: Any) -> Any:
            return {"d": numpy.random.rand()}

        def seeded_later(sample: Any) -> Any:
            made = numpy.random.RandomState()
            made.seed(int(sample["label"]))
            return {"d": made.rand()}

        def given(sample: Any) -> Any:
            import torch

            generator = torch.Generator().manual_seed(int(sample["label"]))
            return {"d": float(torch.rand(1, generator=generator))}

        self.assertEqual(sources_of(given), (None, None))

        def numbers() -> Any:
            rng = numpy.random.default_rng(7)
            for _ in range(60):
                yield {"x": rng.random()}

        for name, data in {
            "seeded later": source().map(seeded_later).batch(10),
            "quiet": source().map(halve).batch(10),
            "rng": source().map(noise).batch(10),
            "rng and more": source().map(both).batch(10),
            "by number": source().map(by_number).batch(10),
            "seeded": source().map(drawn, seed_globals=True).batch(10),
            "meant": source().map(drawn, seed_globals=False).batch(10),
            "dataset": brim.dataset(Transformed(), seed_globals=False).batch(10),
            "stream": brim.stream(numbers).batch(10),
        }.items():
            with self.subTest(name):
                self.assertEqual(warned(data), [])

    def test_nothing_is_seeded_here(self) -> None:
        """What it draws, the program would have drawn."""

        def drawn(sample: Any) -> Any:
            return {"d": numpy.random.rand()}

        numpy.random.seed(5)
        expected = numpy.random.rand(61)
        numpy.random.seed(5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", brim.RandomnessWarning)
            found = joined(collect(source().map(drawn, out={"d": "float64"}).batch(10)), "d")
        self.assertEqual([*found, numpy.random.rand()], list(expected))

    def test_other_words_are_refused(self) -> None:
        for wrong in ("yes", None, 0.5):
            with self.assertRaisesRegex(TypeError, 'seed_globals is "auto", True or False'):
                source().map(halve, seed_globals=wrong)
            with self.assertRaisesRegex(TypeError, 'seed_globals is "auto", True or False'):
                brim.dataset(Transformed(), seed_globals=wrong)


class Lives(support.Case):
    def test_pipelines_with_functions_pickle_and_compare(self) -> None:
        data = source().map(halve).batch(8)
        again = pickle.loads(pickle.dumps(data))
        self.assertEqual(data, again)
        self.assertEqual(hash(data), hash(again))
        self.assertNotEqual(data, source().map(halve, concurrent=True).batch(8))
        self.assertTrue(numpy.array_equal(joined(collect(again), "x"), X / 2))

    def test_cycles_are_collected(self) -> None:
        class Holder:
            def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
                return dict(sample)

        holder = Holder()
        out = {"x": ("float32", (4,)), "label": "int64"}
        runtime = brim.Runtime("64MiB", threads=2)
        holder.loader = runtime.open(source().map(holder, out=out).batch(8))  # type: ignore
        holder.loader.next()  # type: ignore
        runtime.close()
        dead = weakref.ref(holder)
        del holder, runtime
        self.assertTrue(support.collected(lambda: dead() is None))

    def test_thread_states_are_kept_and_let_go(self) -> None:
        """threading.local lasts from call to call, and not longer than the threads do."""
        local = threading.local()
        made = []

        class Mark:
            pass

        def count(sample: dict[str, Any]) -> dict[str, Any]:
            if not hasattr(local, "mark"):
                local.mark = Mark()
                made.append(weakref.ref(local.mark))
            return {"x": sample["x"]}

        out = {"x": ("float32", (4,))}
        for _ in range(20):
            collect(source().map(count, out=out).batch(2), threads=2)
        self.assertLessEqual(len(made), 20 * 3)  # the program's thread may make rows too
        alive = sum(mark() is not None for mark in made)
        self.assertLessEqual(alive, 4)

    def test_functions_run_while_the_program_waits_elsewhere(self) -> None:
        data = source().repeat(3).map(halve).batch(8)
        with brim.Runtime("64MiB", threads=2) as runtime:
            loaders = [runtime.open(data, hold=3) for _ in range(3)]
            for batches in zip(*loaders):
                first = numpy.array(batches[0]["x"])
                for batch in batches[1:]:
                    self.assertTrue(numpy.array_equal(first, batch["x"]))
            for loader in loaders:
                loader.close()

    def test_interpreter_ends_with_loaders_open(self) -> None:
        script = textwrap.dedent(
            """
            import brim, numpy, time
            def slow(sample):
                time.sleep(0.01)
                return sample["x"]
            runtime = brim.Runtime("64MiB", threads=2)
            data = brim.array(numpy.zeros((1000, 4), "float32"))
            loader = runtime.open(data.map(slow, out={"x": ("float32", (4,))}).batch(4))
            batch = next(iter(loader))
            print("here", flush=True)
            """
        )
        path = self.folder / "script.py"
        path.write_text(script)
        for _ in range(3):
            ran = subprocess.run(
                [sys.executable, str(path)], capture_output=True, text=True, timeout=240
            )
            self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "here\n", ""))


if __name__ == "__main__":
    support.main()
