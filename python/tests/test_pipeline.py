"""Pipelines as values: methods of the table, arguments, bound objects, looking into the data."""
# sanitizers: yes

from __future__ import annotations

import builtins
import copy
import inspect
import keyword
import pathlib
import pickle
import subprocess
import sys
import unittest

import support

import brim
from brim import _core, _pipeline, _table

numpy = support.need("numpy")


class Bound:
    """An object of a test's that stands in a pipeline; it is never bound."""

    def __init__(self, name: str, value: object = 0) -> None:
        self.name, self.value = name, value

    def bind(self, name: str, runtime: object) -> None:
        raise AssertionError("bound in a test that opens nothing")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bound) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def source(name: str, value: object = 0) -> brim.Pipeline:
    return brim.Pipeline._source("array", [("name", name)], Bound(name, value))


def halved(sample: dict[str, object]) -> dict[str, object]:
    return {"x": sample["x"] / 2}


class Value(unittest.TestCase):
    def test_text_is_what_the_methods_say(self) -> None:
        data = (
            brim.folder("train")
            .shuffle(seed=7)
            .decode()
            .random_resized_crop(224, scale=(0.35, 1))
            .flip()
            .normalize("imagenet")
            .batch(64, remainder="drop")
        )
        text = (
            "folder train | shuffle seed=7 | decode | random_resized_crop 224 scale=0.35,1 | flip"
            " | normalize imagenet | batch 64 remainder=drop"
        )
        self.assertEqual(str(data), text)
        self.assertEqual(data.text, text)
        self.assertEqual(repr(data), f"brim.Pipeline({text!r})")
        self.assertEqual(data, brim.pipeline(text))

    def test_a_method_leaves_its_pipeline_as_it_was(self) -> None:
        data = brim.range(10)
        data.take(3)
        self.assertEqual(str(data), "range 10")
        with self.assertRaises(AttributeError):
            data.text = "range 11"
        with self.assertRaises(TypeError):
            data.bindings["x"] = 1

    def test_equality_goes_by_text_and_objects(self) -> None:
        self.assertEqual(brim.range(10), brim.pipeline(" range   10 "))
        self.assertEqual(hash(brim.range(10)), hash(brim.range(10)))
        self.assertNotEqual(brim.range(10), brim.range(11))
        self.assertEqual(source("x", 1), source("x", 1))
        self.assertNotEqual(source("x", 1), source("x", 2))
        self.assertNotEqual(brim.range(10), "range 10")

    def test_pickles_and_copies(self) -> None:
        data = brim.concat(source("x", 1), source("x", 2)).shuffle(seed=3).batch(2)
        for other in (pickle.loads(pickle.dumps(data)), copy.copy(data), copy.deepcopy(data)):
            self.assertEqual(other, data)
            self.assertEqual(other.text, data.text)
            self.assertEqual(dict(other.bindings), dict(data.bindings))

    def test_is_no_sequence(self) -> None:
        with self.assertRaisesRegex(TypeError, "open it"):
            iter(brim.range(10))
        with self.assertRaisesRegex(TypeError, "open it"):
            list(brim.range(10))
        self.assertTrue(brim.folder("/nowhere/at/all"))  # not planned to be asked that


class Arguments(unittest.TestCase):
    def test_lists_by_position_and_by_key(self) -> None:
        begin = brim.folder("a").decode()
        wanted = str(begin) + " | resize 200 300"
        for size in ((200, 300), ([200, 300],), ((200, 300),), (numpy.array([200, 300]),)):
            self.assertEqual(str(begin.resize(*size)), wanted)
        self.assertEqual(str(begin.resize(size=(200, 300))), wanted)
        self.assertEqual(str(begin.resize(size=200)), str(begin) + " | resize 200")
        self.assertEqual(
            str(begin.normalize(mean=numpy.array([0.5, 0.25]), std=0.5)),
            str(begin) + " | normalize mean=0.5,0.25 std=0.5",
        )
        self.assertEqual(str(brim.npy("a.npy", "b.npy")), "npy a.npy b.npy")
        self.assertEqual(str(brim.npy(["a.npy", "b.npy"])), "npy a.npy b.npy")

    def test_kinds_of_values(self) -> None:
        self.assertEqual(
            str(brim.npy(pathlib.Path("with space.npy"), map=True)), 'npy "with space.npy" map=yes'
        )
        self.assertEqual(str(brim.npy(b"a.npy", map=False)), "npy a.npy")  # the default
        for size in (65536, "64KiB", "65536"):
            self.assertEqual(str(brim.text("a", max_bytes=size)), "text a max_bytes=64KiB")
        self.assertEqual(str(brim.range(numpy.int32(5)).take(numpy.uint8(2))), "range 5 | take 2")
        self.assertEqual(str(brim.cifar("a", kind=10)), "cifar a kind=10")
        self.assertEqual(str(brim.csv("a", header=True)), "csv a header=yes")
        self.assertEqual(str(brim.range(5, name=None)), "range 5")
        self.assertEqual(str(brim.csv("a", columns=["a,b", "c"])), 'csv a columns="a,b",c')

    def test_from_is_a_keyword(self) -> None:
        data = brim.folder("a").decode()
        self.assertEqual(str(data.copy("image", "b")), "folder a | decode | copy image b")
        self.assertEqual(data.copy(from_="image", to="b"), data.copy("image", "b"))
        self.assertEqual(str(data.layout("hcw", from_="chw")), str(data) + " | layout hcw from=chw")

    def test_nested_pipelines(self) -> None:
        a, b = brim.range(10, name="a"), brim.range(10, name="b").shuffle(seed=1)
        joined = "zip (range 10 name=a) (range 10 name=b | shuffle seed=1)"
        self.assertEqual(str(brim.zip(a, b)), joined)
        self.assertEqual(str(brim.zip([a, str(b)])), joined)
        self.assertEqual(str(brim.zip(parts=[a, b])), joined)
        mixed = "mix 0.7 (range 10 name=a) 0.3 (range 10 name=b | shuffle seed=1) seed=5"
        self.assertEqual(str(brim.mix((0.7, a), (0.3, b), seed=5)), mixed)
        self.assertEqual(str(brim.mix([(0.7, a), (0.3, b)], seed=5)), mixed)
        self.assertEqual(str(brim.mix(parts=[(0.7, a), (0.3, b)], seed=5)), mixed)
        self.assertEqual(str(brim.mix((1, a))), "mix 1 (range 10 name=a)")
        for wrong in ((a, b), (0.7, a), ((a, 0.7),), (("0.7", a),)):
            with self.assertRaises((TypeError, brim.PipelineError)):
                brim.mix(*wrong)

    def test_wrong_calls_say_what_is_right(self) -> None:
        data = brim.range(10)
        cases = [
            (lambda: data.shuffle(sed=7), r"shuffle\(\) has no argument 'sed'.*block.*n 'seed'"),
            (lambda: data.batch(1, rows=2), r"batch\(\) got rows twice"),
            (lambda: data.batch(), r"batch\(\) needs rows"),
            (lambda: data.batch(None), r"batch\(\) needs rows"),
            (lambda: data.batch(1, 2), r"batch\(\) takes 1 argument by position, not 2"),
            (lambda: data.batch(object()), r"batch\(\): rows is int, not object"),
            (lambda: brim.zip(3), r"zip\(\): parts is Pipeline"),
            (lambda: brim.npy(brim.range(3)), r"npy\(\): files is str"),
        ]
        for call, text in cases:
            with self.subTest(text), self.assertRaisesRegex(TypeError, text):
                call()

    def test_wrong_values_are_for_c_to_refuse(self) -> None:
        data = brim.range(10)
        cases = [
            (lambda: data.batch(0), "rows"),
            (lambda: data.batch(2**70), "rows"),
            (lambda: data.batch(1.5), "rows"),
            (lambda: data.batch(4, remainder="cut"), "keep, drop, pad"),
            (lambda: brim.pipeline("range 10 | shufle"), "did you mean 'shuffle'"),
            (lambda: brim.text("a", max_bytes="64 parsec"), "max_bytes"),
        ]
        for call, text in cases:
            with self.subTest(text), self.assertRaisesRegex(brim.PipelineError, text):
                call()
        self.assertTrue(issubclass(brim.PipelineError, ValueError))


class Table(unittest.TestCase):
    def test_every_stage_is_there_by_its_name(self) -> None:
        own = {"callback": "dataset"}
        for stage in _core.stages():
            name = own.get(stage["name"], stage["name"])
            with self.subTest(name):
                self.assertTrue(name.isidentifier() and not keyword.iskeyword(name))
                owner = brim if _table.begins(stage) else brim.Pipeline
                self.assertIn(name, dir(owner))
                self.assertTrue(inspect.getdoc(getattr(owner, name)))

    def test_no_stage_hides_what_a_pipeline_has(self) -> None:
        own = {"text", "bindings", "plan"}
        methods = {s["name"] for s in _core.stages() if not _table.begins(s)}
        self.assertFalse(own & methods)
        self.assertFalse({name for name in methods if name.startswith("_")})

    def test_signatures_take_what_the_calls_take(self) -> None:
        signature = inspect.signature(brim.Pipeline.batch)
        self.assertEqual(signature.parameters["remainder"].default, "keep")
        self.assertEqual(signature.parameters["max_errors"].default, 1000)
        self.assertIs(signature.parameters["rows"].default, inspect.Parameter.empty)
        crop = inspect.signature(brim.Pipeline.random_resized_crop)
        self.assertIs(crop.parameters["size"].kind, inspect.Parameter.VAR_POSITIONAL)
        self.assertEqual(crop.parameters["scale"].default, (0.08, 1.0))
        self.assertEqual(list(inspect.signature(brim.Pipeline.copy).parameters)[1], "from_")
        self.assertIs(inspect.signature(brim.npy).parameters["map"].default, False)

    def test_defaults_are_those_of_c(self) -> None:
        """A default of a signature, given, changes nothing: C prints none of its own."""
        given = 0
        for stage in _core.stages():
            if _table.binding_argument(stage) is not None:
                continue
            begin = brim.Pipeline("") if _table.begins(stage) else brim.range(3)
            required = {
                _table.python_name(argument["name"]): _some(argument)
                for argument in stage["arguments"]
                if argument["required"]
            }
            plain = begin._add(stage["name"], _table.arguments(stage, (), required))
            for name, parameter in _table.signature(stage, method=False).parameters.items():
                if parameter.default not in (None, inspect.Parameter.empty):
                    values = {**required, name: parameter.default}
                    with self.subTest(stage["name"], name=name):
                        pairs = _table.arguments(stage, (), values)
                        self.assertEqual(begin._add(stage["name"], pairs), plain)
                    given += 1
        self.assertGreater(given, 100)

    def test_documents(self) -> None:
        text = inspect.getdoc(brim.Pipeline.batch)
        assert text is not None
        self.assertTrue(text.startswith("Collects samples into batches."), text)
        for part in ("rows: int 1 to 2147483647, required", "'keep' | 'drop' | 'pad'",
                     "default 'keep'", "As text: batch 64"):  # fmt: skip
            self.assertIn(part, text)
        self.assertEqual(brim.Pipeline.batch.__name__, "batch")
        self.assertEqual(brim.Pipeline.batch.__qualname__, "Pipeline.batch")

    def test_star_import_hides_no_builtin(self) -> None:
        self.assertFalse([name for name in brim.__all__ if hasattr(builtins, name)])
        for name in brim.__all__:
            self.assertTrue(hasattr(brim, name), name)
        self.assertTrue(callable(brim.range) and callable(brim.zip))

    def test_dir_shows_what_is_public(self) -> None:
        self.assertEqual(
            [name for name in dir(brim) if name.startswith("_")],
            ["__doc__", "__file__", "__name__", "__version__"],
        )
        self.assertLess({"Pipeline", "folder", "range", "torch", "array"}, set(dir(brim)))
        for name in ("annotations", "importlib", "atexit", "TYPE_CHECKING", "Any"):
            self.assertNotIn(name, dir(brim))

    def test_a_stage_that_is_not_there(self) -> None:
        with self.assertRaisesRegex(AttributeError, "'shufle'; did you mean shuffle"):
            brim.range(5).shufle(seed=1)
        with self.assertRaisesRegex(AttributeError, "no stage or attribute 'xyzzy'$"):
            brim.range(5).xyzzy
        self.assertFalse(hasattr(brim.range(5), "__array_interface__"))

    def test_frameworks_are_imported_when_asked_for(self) -> None:
        self.assertLessEqual({"torch", "keras", "tensorflow", "jax"}, set(dir(brim)))
        with self.assertRaises(AttributeError):
            brim.no_such_framework


def _some(argument: _core.ArgumentInfo) -> object:
    """A value that an argument takes."""
    values: dict[str, object] = {
        "integer": int(argument["least"]) or 1,
        "real": argument["most"] / 2,
        "size": 4096,
        "choice": (argument["choices"] or [""])[0],
        "word": "uint8",
        "path": "a",
        "pipeline": "range 3",
        "weighted": [(1, "range 3")],
    }
    return values[argument["type"]]


class Objects(unittest.TestCase):
    def test_names_are_unique(self) -> None:
        a, b = source("x", 1), source("x", 2)
        both = brim.concat(a, b)
        self.assertEqual(str(both), "concat (array @x name=x) (array @x_2 name=x)")
        self.assertIs(both.bindings["x"], a.bindings["x"])
        self.assertIs(both.bindings["x_2"], b.bindings["x"])
        four = brim.concat(both, brim.concat(source("x", 3), b))
        self.assertEqual({bound.value for bound in four.bindings.values()}, {1, 2, 3})
        texts = [part.text for part in (a, b, source("x", 3), b)]
        self.assertEqual(len(set(texts)), 1)
        names = [name for name, _, _ in _pipeline._uses(str(four))]
        self.assertEqual([four.bindings[name].value for name in names], [1, 2, 3, 2])

    def test_one_object_has_one_name(self) -> None:
        a = source("x")
        self.assertEqual(
            str(brim.concat(a.take(3), a.skip(3))),
            "concat (array @x name=x | take 3) (array @x name=x | skip 3)",
        )

    def test_renaming_leaves_words_and_quotes_alone(self) -> None:
        text = 'records "@x" "a\\"@x" bytes=8 fields=a:uint8@x,b | array @x name="@x"'
        self.assertEqual(
            _pipeline._rename(text, {"x": "y"}),
            'records "@x" "a\\"@x" bytes=8 fields=a:uint8@x,b | array @y name="@x"',
        )

    def test_any_name_becomes_one_of_the_texts(self) -> None:
        data = brim.Pipeline._source("array", (), Bound("<lambda> of é"))
        self.assertEqual(data, brim.Pipeline(str(data), data.bindings))
        self.assertEqual(list(data.bindings), [str(data).removeprefix("array @")])

    def test_which_stage_takes_a_name(self) -> None:
        text = (
            "zip (array @a | map @f seed=3) (concat (array @b) (files list=@c)) | take 3"
            " | filter by=@f | batch 2 | batch_map @g"
        )
        uses = list(_pipeline._uses(text))
        self.assertEqual(
            [(name, stage) for name, stage, _ in uses],
            [("a", "array"), ("f", "map"), ("b", "array"), ("c", "files"), ("f", "filter"),
             ("g", "batch_map")],
        )  # fmt: skip
        self.assertEqual(uses[1][2], "array @a")
        self.assertEqual(uses[3][2], "")
        self.assertEqual(uses[5][2], text.removesuffix(" | batch_map @g"))

    def test_text_with_objects(self) -> None:
        x = numpy.arange(12, dtype="float32").reshape(6, 2)
        data = brim.pipeline("array @x | take 5 | map @halved | batch 2", x=x, halved=halved)
        self.assertEqual(list(data.bindings), ["x", "halved"])
        with brim.Runtime("64MiB", threads=0) as runtime, runtime.open(data) as loader:
            got = numpy.concatenate([numpy.array(batch["x"]) for batch in loader])
        numpy.testing.assert_array_equal(got, x[:5] / 2)
        again = pickle.loads(pickle.dumps(data))
        self.assertEqual(again, data)
        self.assertIs(again.bindings["halved"].function, halved)  # by reference
        x[:] = 0
        self.assertNotEqual(again, data)  # by value
        numpy.testing.assert_array_equal(again[4]["x"], [4, 4.5])
        numpy.testing.assert_array_equal(data[4]["x"], [0, 0])
        with self.assertRaisesRegex(TypeError, "pipeline.. got z, which the text does not name"):
            brim.pipeline("array @x", x=x, z=x)

    def test_an_unbound_name_is_refused_by_c(self) -> None:
        with self.assertRaisesRegex(brim.PipelineError, "nothing|not bound|unbound"):
            brim.pipeline("array @nothing").plan("64MiB")


class Looking(support.Case):
    def test_one_sample(self) -> None:
        x = numpy.arange(20, dtype="int32").reshape(10, 2)
        numpy.save(self.folder / "x.npy", x)
        data = brim.npy(self.folder / "x.npy").skip(2).batch(4)
        self.assertEqual(len(data), 8)
        numpy.testing.assert_array_equal(data[0]["x"], x[2])
        numpy.testing.assert_array_equal(data[-1]["x"], x[9])
        numpy.testing.assert_array_equal(data[numpy.int64(7)]["x"], x[9])
        sample = data[3]["x"]
        self.assertEqual((sample.dtype, sample.shape, sample.base), (x.dtype, (2,), None))
        for wrong in (8, -9, 2**40):
            with self.assertRaises(IndexError):
                data[wrong]
        for wrong in ("x", slice(0, 2), 1.0):
            with self.assertRaisesRegex(TypeError, "position is an int"):
                data[wrong]

    def test_is_the_sample_that_an_epoch_has_there(self) -> None:
        data = brim.range(100).shuffle(seed=7).batch(10, remainder="drop")
        with brim.Runtime("16MiB") as runtime, runtime.open(data) as loader:
            order = [int(index) for batch in loader for index in numpy.asarray(batch["index"])]
        self.assertEqual([int(data[i]["index"]) for i in (0, 1, 50, -1)],
                         [order[0], order[1], order[50], order[-1]])  # fmt: skip

    def test_images(self) -> None:
        drawn = support.drawn_set(self.folder, 7)
        data = brim.folder(self.folder, index="beside")
        self.assertEqual(len(data), 7)
        self.assertEqual(data[0]["image"], drawn[0].path.read_bytes())
        for position, image in enumerate(drawn):
            sample = data.decode().crop(24).batch(2)[position]
            pixels = numpy.frombuffer(image.pixels, "uint8").reshape(image.height, image.width, 3)
            numpy.testing.assert_array_equal(sample["image"], pixels[:24, :24])
            self.assertEqual(sample["label"], image.label)
        cropped = data.shuffle(seed=1).decode().random_resized_crop(16).flip()
        views = cropped.normalize("imagenet").layout("chw").batch(4)
        self.assertEqual(views[6]["image"].shape, (3, 16, 16))

    def test_pixels_stay_pixels_when_they_become_floats(self) -> None:
        support.drawn_set(self.folder, 4)
        images = brim.folder(self.folder, index="beside").decode()
        floats = images.resize(8, 8, antialias=False)
        raw, unit = floats.batch(1)[0]["image"], floats.normalize("unit").batch(1)[0]["image"]
        self.assertGreater(float(raw.max()), 2.0)
        numpy.testing.assert_allclose(unit, raw / 255, rtol=1e-6)
        data = numpy.ones((4, 3, 3, 3), "float32")
        with self.assertRaisesRegex(brim.PipelineError, "add max=1 .*max=255"):
            brim.array(data).normalize("imagenet").batch(1)[0]
        one = brim.array(data).normalize("unit", max=1).batch(1)[0]
        self.assertEqual(float(next(iter(one.values())).max()), 1.0)

    def test_text_is_str(self) -> None:
        (self.folder / "a.txt").write_text("one\ntwö\n\n", "utf-8")
        data = brim.text(self.folder / "a.txt", index="beside")
        self.assertEqual(data[1], {"text": "twö"})
        self.assertEqual(data[2], {"text": ""})

    def test_length_needs_no_equal_images(self) -> None:
        support.drawn_set(self.folder / "drawn", 12)
        images = brim.folder(self.folder / "drawn")
        with self.assertRaisesRegex(brim.PipelineError, "differ in size.*resize"):
            images.decode()[0]
        self.assertEqual(len(images.decode()), 12)
        self.assertEqual(len(images.decode().repeat(2).flip().batch(5)), 24)
        paths = sorted((self.folder / "drawn").glob("*/*.png"))
        self.assertEqual(len(brim.files(paths).decode().resize(8, 8)), 12)

    def test_length_calls_no_function(self) -> None:
        def never(sample: object) -> None:
            raise AssertionError

        data = brim.concat(brim.range(5).map(halved, out={"index": "int64"}), brim.range(7))
        self.assertEqual(len(data.map(never).skip(2)), 10)

    def test_without_numpy(self) -> None:
        script = (
            "import sys; sys.modules['numpy'] = None\n"
            "import brim\n"
            "assert len(brim.range(5)) == 5\n"
            "try: brim.range(5)[0]\n"
            "except ModuleNotFoundError as error: print(error)\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        self.assertIn("pip install brim[numpy]", done.stdout, done.stderr)

    def test_unknown_length(self) -> None:
        data = brim.range(10).filter("index >= 4").batch(2)
        with self.assertRaisesRegex(TypeError, "not known"):
            len(data)
        self.assertEqual(int(data[1]["index"]), 5)
        with self.assertRaisesRegex(TypeError, "counted from"):
            data[-1]
        with self.assertRaises(IndexError):
            data[6]

    def test_guess(self) -> None:
        numpy.save(self.folder / "x.npy", numpy.zeros(3))
        self.assertEqual(len(brim.guess(self.folder / "x.npy")), 3)
        (self.folder / "odd").write_bytes(b"\0\1\2")
        with self.assertRaises(brim.Error):
            brim.guess(self.folder / "odd")


if __name__ == "__main__":
    support.main()
