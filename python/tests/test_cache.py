"""Caches: batches that do not depend on them, statistics, changed data, refusals, warnings."""

# sanitizers: yes

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import random
import resource
import struct
import threading
import unittest
import warnings
from collections.abc import Iterable
from typing import Any

import support

numpy = support.need("numpy")

import brim
from brim._pipeline import _without_caches

COUNT = 40
ROW = 16


def digest(batches: Iterable[brim.Batch]) -> str:
    """Of all bytes and numbers of some batches."""
    state = hashlib.blake2b()
    for batch in batches:
        for name in batch:
            field = batch[name]
            ragged = isinstance(field, brim.Ragged)
            state.update(repr(field.tolist()).encode() if ragged else numpy.array(field).tobytes())
        state.update(numpy.array(batch.ids).tobytes())
    return state.hexdigest()


def run(
    data: brim.Pipeline, epochs: int = 1, threads: int = 0, memory: str = "64MiB"
) -> tuple[list[str], list[dict[str, Any]]]:
    """A digest of each epoch, and what the caches say at the end."""
    with brim.Runtime(memory, threads=threads) as runtime, runtime.open(data) as loader:
        found = [digest(epoch) for epoch in loader.epochs(epochs)]
        caches: list[dict[str, Any]] = loader.stats()["caches"]
        return found, caches


class Case(support.Case):
    def setUp(self) -> None:
        super().setUp()
        self.npy = self.folder / "x.npy"
        self.file = self.folder / "kept" / "x.brimcache"
        self.save(1)

    def save(self, factor: int) -> None:
        """Other values in a file of the same size."""
        x = numpy.arange(COUNT * ROW, dtype="int32").reshape(COUNT, ROW)
        numpy.save(self.npy, x * factor)

    def samples(self) -> brim.Pipeline:
        return brim.npy(self.npy).cast("float32")


class Values(Case):
    def test_batches_do_not_depend_on_caches(self) -> None:
        support.drawn_set(self.folder / "images", 24)
        images = brim.folder(self.folder / "images").decode()

        def small(data: brim.Pipeline) -> brim.Pipeline:
            return data.shuffle(seed=7).random_resized_crop(16).flip().batch(7)

        wanted, none = run(small(images), 3)
        self.assertEqual(none, [])
        for number, cached in enumerate(
            (
                images.cache("memory"),
                images.cache(file=self.folder / "images.brimcache"),
                images.cache(file=self.folder / "images.brimcache").cache("memory"),
                images.cache("memory", limit="20KiB"),
                images.cache(file=self.folder / "small.brimcache", limit=30_000, verify="hit"),
            )
        ):
            for threads in (0, 2):
                with self.subTest(number, threads=threads):
                    self.assertEqual(run(small(cached), 3, threads)[0], wanted)

    def test_text_and_ragged_fields(self) -> None:
        lines = self.folder / "lines.jsonl"
        lines.write_text(
            "".join(f'{{"tokens": {list(range(n % 5))}, "name": "{"x" * n}"}}\n' for n in range(30))
        )
        data = brim.jsonl(lines)
        wanted = run(data.shuffle(seed=3).batch(8), 2)[0]
        for cached in (data.cache("memory"), data.cache(file=self.file)):
            found, (cache,) = run(cached.shuffle(seed=3).batch(8), 2)
            self.assertEqual(found, wanted)
            self.assertEqual((cache["misses"], cache["hits"]), (30, 30))

    def test_a_file_is_found_by_the_next_run(self) -> None:
        data = self.samples().cache(file=self.file)
        first, (cache,) = run(data.batch(8))
        self.assertEqual((cache["misses"], cache["filled"]), (COUNT, COUNT))
        self.assertGreaterEqual(cache["bytes"], COUNT * ROW * 4)  # of the disk: in whole blocks
        again, (cache,) = run(data.batch(8))
        self.assertEqual(again, first)
        self.assertEqual((cache["hits"], cache["misses"]), (COUNT, 0))
        # what stands behind it is not part of it
        _, (cache,) = run(data.shuffle(seed=1).normalize("unit", max=1).batch(5))
        self.assertEqual((cache["hits"], cache["misses"]), (COUNT, 0))
        # what stands before it is
        _, (cache,) = run(self.samples().reshape(4, 4).cache(file=self.file).batch(8))
        self.assertEqual((cache["hits"], cache["misses"]), (0, COUNT))

    def test_a_directory_holds_a_file_for_each_pipeline(self) -> None:
        for data in (self.samples(), self.samples().reshape(4, 4), self.samples()):
            run(data.cache(file=f"{self.folder}/many/").batch(8))
        self.assertEqual(len(list((self.folder / "many").iterdir())), 2)


class Statistics(Case):
    def test_each_cache_has_its_figures(self) -> None:
        data = self.samples().cache(file=self.file).cache("memory", limit="1MiB").batch(8)
        with brim.Runtime("8MiB", threads=0) as runtime, runtime.open(data) as loader:
            for _ in range(2):
                digest(loader)
            file, memory = loader.stats()["caches"]
            stages = [stage["name"] for stage in loader.stats()["stages"]]
            holders = runtime.usage()["holders"]
        self.assertEqual(
            file,
            {
                "tier": "file",
                "stage": stages.index("cache"),
                "fills": True,
                "samples": COUNT,
                "filled": COUNT,
                "bytes": file["bytes"],
                "hits": 0,
                "misses": COUNT,
                "stored": COUNT,
                "dropped": 0,
                "damaged": 0,
                "changed": 0,
                "warning": "",
                "note": "",
            },
        )
        self.assertGreaterEqual(file["bytes"], COUNT * ROW * 4)
        self.assertEqual((memory["tier"], memory["stage"]), ("memory", file["stage"] + 1))
        self.assertEqual((memory["misses"], memory["hits"]), (COUNT, COUNT))
        self.assertTrue(COUNT * ROW * 4 <= memory["bytes"] <= 1 << 20, memory)
        self.assertIn("cache memory", [holder["label"] for holder in holders])

    def test_stages_before_a_hit_stand_still(self) -> None:
        data = self.samples().map(double).cache("memory").normalize("unit", max=1).batch(8)
        with brim.Runtime("64MiB", threads=0) as runtime, runtime.open(data) as loader:
            counts = []
            for _ in range(3):
                digest(loader)
                stages = {stage["name"]: stage["samples"] for stage in loader.stats()["stages"]}
                counts.append((stages["npy"], stages["map"], stages["normalize"]))
        self.assertEqual(counts, [(COUNT, COUNT, COUNT * n) for n in (1, 2, 3)])

    def test_plans_say_what_a_cache_would_keep(self) -> None:
        plan = self.samples().cache("memory").batch(8).plan("8MiB")
        kept = {stage["name"]: (stage["cacheable"], stage["sample_bytes"]) for stage in plan.stages}
        self.assertEqual(kept["cast"], (True, ROW * 4))
        self.assertEqual(kept["batch"], (False, 0))

    def test_it_gives_way_to_the_program(self) -> None:
        data = self.samples().cache("memory").batch(8)
        with brim.Runtime("1MiB", threads=0) as runtime, runtime.open(data) as loader:
            before = digest(loader)
            (cache,) = loader.stats()["caches"]
            self.assertEqual(cache["filled"], COUNT)
            runtime.trim()
            (cache,) = loader.stats()["caches"]
            self.assertEqual((cache["filled"], cache["bytes"]), (0, 0))
            usage = runtime.usage()
            runtime.charge(usage["limit"] - usage["charged"])
            self.assertEqual(digest(loader), before)
            self.assertLessEqual(runtime.usage()["peak"], 1 << 20)


class Stale(Case):
    def read(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        data = self.samples().cache(**options).batch(COUNT)
        with brim.Runtime("8MiB", threads=0) as runtime, runtime.open(data) as loader:
            batch = loader.next()
            assert batch is not None
            return int(batch["x"][1][0]), loader.stats()["caches"][0]

    def test_a_changed_file_is_noticed_as_verify_says(self) -> None:
        for verify, value, hits in (("open", 32, 0), ("hit", 32, 0), ("never", 16, COUNT)):
            with self.subTest(verify):
                options = {"file": self.folder / verify, "verify": verify}
                self.save(1)
                self.assertEqual(self.read(**options)[0], 16)
                self.assertEqual(self.read(**options)[1]["hits"], COUNT)
                self.save(2)
                found, cache = self.read(**options)
                self.assertEqual((found, cache["hits"]), (value, hits))
                self.assertEqual(bool(cache["note"]), verify == "open", cache)
                self.assertEqual(cache["changed"], COUNT if verify == "hit" else 0)
                self.assertEqual(cache["damaged"], 0)

    def test_content_of_every_kind_of_file(self) -> None:
        """A byte is changed in place and the times are set back: only the content tells."""
        count = 12
        rows = numpy.arange(count * 4, dtype="uint8").reshape(count, 4) + 48  # digits and letters
        place = self.folder / "data"
        place.mkdir()
        head = b"\0\0\x08\x02" + struct.pack(">2I", count, 4)
        tensor = {"x": {"dtype": "U8", "shape": [count, 4], "data_offsets": [0, count * 4]}}
        header = json.dumps(tensor).encode()
        numbers = [10 + i for i in range(count)]
        pixels = b"".join(bytes([i % 10]) + bytes([i]) * 3072 for i in range(count))
        files = {
            "npz": None,
            "npy": None,  # in Fortran order: records lie scattered
            "idx": head + rows.tobytes(),
            "safetensors": struct.pack("<Q", len(header)) + header + rows.tobytes(),
            "records": rows.tobytes(),
            "tokens": rows.astype("uint16").tobytes(),
            "cifar": pixels,
            "csv": ("x\n" + "".join(f"{n}\n" for n in numbers)).encode(),
            "jsonl": "".join(f'{{"x": {n}}}\n' for n in numbers).encode(),
            "text": "".join(f"{n}\n" for n in numbers).encode(),
        }
        for name, content in files.items():
            path = place / f"x.{name}"
            if name == "npy":
                numpy.save(path, numpy.asfortranarray(rows))
            elif content is None:
                numpy.savez(path, x=rows)
            else:
                path.write_bytes(content)
        texts = {name: f"{name} {place / ('x.' + name)}" for name in files}
        texts["records"] += " bytes=4"
        texts["npy"] += " map=yes"
        texts["tokens"] += " length=4 stride=4 shift=no format=u16"
        for name in ("csv", "jsonl", "text"):
            texts[name] += " index=beside"
        npz, idx = texts["npz"], texts["idx"]
        texts["concat"] = f"concat ({npz}) ({idx})"
        texts["zip"] = f"zip ({npz} name=a) ({idx} name=b)"
        texts["mix"] = f"mix 1 ({npz}) 1 ({idx})"
        for name, text in texts.items():
            with self.subTest(name):
                kept = f"cache file={self.folder / name}.brimcache verify=content"
                data = brim.pipeline(f"{text} | {kept} | batch 4")
                wanted, _ = run(brim.pipeline(f"{text} | batch 4"))
                self.assertEqual(run(data)[0], wanted)
                found, (cache,) = run(data)
                self.assertEqual((found, cache["misses"]), (wanted, 0))
                path = place / f"x.{name if name in files else 'idx'}"
                before = path.stat()
                with open(path, "r+b") as file:
                    at = path.read_bytes().rfind(b"1") if name in ("csv", "jsonl", "text") else -6
                    at = at if at >= 0 else before.st_size + at
                    if name == "npz":
                        at = path.read_bytes().index(rows.tobytes()) + 9
                    file.seek(at)
                    byte = file.read(1)[0]
                    file.seek(at)
                    file.write(bytes([byte ^ 2]))
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
                changed, _ = run(brim.pipeline(f"{text} | batch 4"))
                found, (cache,) = run(data)
                self.assertEqual(found, changed)
                self.assertNotEqual(found, wanted)
                self.assertEqual((cache["misses"], cache["changed"]), (1, 1))

    def test_of_many_files_only_the_changed_one_is_made_again(self) -> None:
        drawn = support.drawn_set(self.folder / "images", 12)
        data = brim.folder(self.folder / "images").decode().resize(16, 16)
        hit = data.cache(file=self.file, verify="hit").batch(4)
        before = run(hit)[0]
        self.assertEqual(run(hit)[1][0]["hits"], 12)
        one = drawn[5]
        support.write_png(one.path, one.width, one.height, bytes(len(one.pixels)))
        after, (cache,) = run(hit)
        self.assertNotEqual(after, before)
        self.assertEqual(after, run(data.batch(4))[0])
        self.assertEqual((cache["hits"], cache["misses"]), (11, 1))
        self.assertEqual((cache["changed"], cache["damaged"]), (1, 0))

    def test_a_moved_directory_is_the_same_data_and_a_copy_is_not(self) -> None:
        drawn = support.drawn_set(self.folder / "a", 6)

        def hits(name: str) -> int:
            data = brim.folder(self.folder / name).decode().resize(16, 16)
            return int(run(data.cache(file=self.file).batch(4))[1][0]["hits"])

        self.assertEqual([hits("a"), hits("a")], [0, 6])
        (self.folder / "a").rename(self.folder / "b")
        self.assertEqual(hits("b"), 6)
        for image in drawn:
            copy = self.folder / "c" / image.path.relative_to(self.folder / "a")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((self.folder / "b" / copy.relative_to(self.folder / "c")).read_bytes())
        self.assertEqual(hits("c"), 0)


def double(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"] * 2}


def triple(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"] * 3}


def noisy(sample: dict[str, Any], rng: numpy.random.Generator) -> dict[str, Any]:
    return {"x": sample["x"] + rng.random(ROW, dtype="float32")}


def drawing(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"] + numpy.random.randint(0, 9, ROW).astype("float32")}


class Augmented:
    """A dataset that draws inside."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": numpy.float32(index + random.random())}


class Steps:
    """One step that draws, and one that does not."""

    def plain(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {"x": sample["x"] * 2}

    def noise(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {"x": sample["x"] + numpy.float32(random.random())}


LOCK = threading.Lock()


def unseen(sample: dict[str, Any]) -> dict[str, Any]:
    with LOCK:  # has no identity
        return {"x": sample["x"]}


class Allowed(Case):
    def refused(self, data: brim.Pipeline) -> str:
        with self.assertRaises(brim.PipelineError) as caught:
            data.batch(8).plan("64MiB")
        return str(caught.exception)

    def test_what_is_random_comes_behind(self) -> None:
        support.drawn_set(self.folder / "images", 6)
        images = brim.folder(self.folder / "images").decode().random_resized_crop(16)
        text = self.refused(images.cache("memory"))
        self.assertIn("'random_resized_crop' before it is random", text)
        self.assertIn("freeze=yes", text)
        self.assertIn("'map @noisy'", self.refused(self.samples().map(noisy).cache("memory")))
        seeded = self.samples().map(double, seed_globals=True).cache(file=self.file)
        self.assertIn("'map @double'", self.refused(seeded))

    def test_a_function_that_draws_by_itself_is_random(self) -> None:
        for options in ({}, {"version": 1}):
            for where in ({"tier": "memory"}, {"file": self.file}):
                text = self.refused(self.samples().map(drawing, **options).cache(**where))
                self.assertIn("'map @drawing' before it is random", text)
        run(self.samples().map(drawing).batch(8), 2)
        run(self.samples().map(drawing).cache("memory", freeze=True).batch(8), 2)
        run(self.samples().cache("memory").map(drawing).batch(8), 2)
        text = self.refused(brim.dataset(Augmented(), version=1).cache("memory"))
        self.assertIn("'callback @augmented' before it is random", text)
        steps = Steps()
        both = self.samples().map(steps.plain).cache("memory").map(steps.noise).batch(8)
        self.assertEqual(run(both, 2)[1][0]["hits"], COUNT)
        self.assertIn("'map @noise'", self.refused(self.samples().map(steps.noise).cache("memory")))
        plan = self.samples().map(drawing).batch(8).plan("64MiB")
        kept = {stage["name"]: stage["cacheable"] for stage in plan.stages}
        self.assertEqual((kept["cast"], kept["map"]), (True, False))

    def test_freeze_draws_as_in_epoch_0(self) -> None:
        support.drawn_set(self.folder / "images", 12)
        images = brim.folder(self.folder / "images").decode().random_resized_crop(16)
        plain = run(images.batch(4), 3)[0]
        self.assertEqual(len(set(plain)), 3)
        for options in (
            {"tier": "memory"},
            {"tier": "memory", "limit": "8KiB"},
            {"file": self.file},
            {"file": self.file},
        ):
            with self.subTest(options):
                frozen = run(images.cache(freeze=True, **options).batch(4), 3)[0]
                self.assertEqual(frozen, [plain[0]] * 3)
        noise = self.samples().map(noisy).cache("memory", freeze=True).batch(8)
        self.assertEqual(len(set(run(noise, 3)[0])), 1)

    def test_functions_are_known_by_their_code(self) -> None:
        for function, hits in ((double, 0), (double, COUNT), (triple, 0), (double, 0)):
            data = self.samples().map(function).cache(file=self.file).batch(8)
            found, (cache,) = run(data)
            self.assertEqual(cache["hits"], hits)
            self.assertEqual(found, run(self.samples().map(function).batch(8))[0])

    def test_a_function_without_identity_wants_a_version(self) -> None:
        for options in ({"tier": "memory"}, {"file": self.file}):
            text = self.refused(self.samples().map(unseen).cache(**options))
            self.assertIn("'map @unseen'", text)
            self.assertIn("in Python version=", text)
        for version, hits in ((1, 0), (1, COUNT), (2, 0)):
            data = self.samples().map(unseen, version=version).cache(file=self.file).batch(8)
            self.assertEqual(run(data)[1][0]["hits"], hits)

    def test_arrays_want_a_version_in_files(self) -> None:
        x = numpy.arange(COUNT * 3, dtype="int16").reshape(COUNT, 3)
        for data in (brim.array(x), brim.arrays(x, x), brim.array(x, version=0)):
            text = self.refused(data.cache(file=self.file))
            self.assertIn("'array @x' before it has no version", text)
            self.assertIn("give it version=", text)
            run(data.cache("memory").batch(8))
        self.assertFalse(self.file.exists())
        for values, version, hits in ((x, "a", 0), (x, "a", COUNT), (-x, "b", 0), (x, "a", 0)):
            data = brim.arrays(x=values, y=values, version=version)
            found, (cache,) = run(data.cache(file=self.file).batch(8))
            self.assertEqual(cache["hits"], hits)
            self.assertEqual(found, run(data.batch(8))[0])
        with self.assertRaisesRegex(TypeError, "version= is a str or a number"):
            brim.arrays(x=x, version=x)

    def test_datasets_too(self) -> None:
        elements = [{"x": numpy.float32(i)} for i in range(COUNT)]
        text = self.refused(brim.dataset(elements).cache("memory"))
        self.assertIn("'callback @list'", text)
        for version, hits in ((1, 0), (1, COUNT), (2, 0)):
            data = brim.dataset(elements, version=version).cache(file=self.file).batch(8)
            self.assertEqual(run(data)[1][0]["hits"], hits)

    def test_calls_are_checked(self) -> None:
        data = self.samples()
        self.assertIn("give one of", self.refused(data.cache("memory", file="x")))
        self.assertEqual(run(data.cache().batch(8))[1][0]["tier"], "memory")
        with self.assertRaisesRegex(brim.PipelineError, "disk"):
            data.cache("disk")
        with self.assertRaisesRegex(TypeError, "no argument 'path'"):
            data.cache(path="x")
        text = str(data.cache(file=pathlib.Path("a b"), limit="2GiB", verify="hit", freeze=True))
        self.assertEqual(str(brim.pipeline(text)), text)
        self.assertIn('cache file="a b" limit=2GiB verify=hit freeze=yes', text)


class Looking(Case):
    def test_a_look_leaves_no_file(self) -> None:
        data = self.samples().cache(file=self.file)
        self.assertEqual(data[3]["x"].tolist(), list(range(3 * ROW, 4 * ROW)))
        self.assertEqual(len(data), COUNT)
        data.batch(8).plan("8MiB")
        data.map(double).batch(8).plan("8MiB")  # calls the function to find its fields
        data.batch(8).batch_map(lambda batch: {"y": batch["x"]}).plan("8MiB")
        self.assertFalse(self.file.parent.exists())
        self.assertEqual(run(data.map(double).batch(8))[1][0]["misses"], COUNT)

    def test_texts_without_their_caches(self) -> None:
        for text, without in (
            ("range 8 | cache memory", "range 8"),
            ("range 8 | cache memory | cast float32 | cache file=x | batch 2",
             "range 8 | cast float32 | batch 2"),
            ("mix 1 (range 8 | cache memory) 2 (range 9 | cache file=\"a | b)\" | cast uint8)",
             "mix 1 (range 8) 2 (range 9 | cast uint8)"),
            ("npy 'a | cache memory' | cache memory | batch 2", "npy 'a | cache memory' | batch 2"),
            ("npy cache | batch 2", "npy cache | batch 2"),
        ):  # fmt: skip
            self.assertEqual(str(brim.Pipeline(_without_caches(text))), str(brim.Pipeline(without)))


class Foreign(support.Case):
    """Files of brim's that other users may write count as absent, and that is said."""

    def setUp(self) -> None:
        super().setUp()
        path = self.folder / "x.csv"
        path.write_text("x\n1\n2\n3\n")
        self.data = brim.csv(path, index="beside").batch(2)
        self.run_it()
        (index,) = self.folder.glob("*.brimidx")
        self.index = index

    def run_it(self, **options: Any) -> list[str]:
        """The warnings of a run."""
        with (
            warnings.catch_warnings(record=True) as told,
            brim.Runtime("16MiB", threads=0, **options) as runtime,
            runtime.open(self.data) as loader,
        ):
            warnings.simplefilter("always")
            self.assertEqual([batch.rows for batch in loader], [2, 1])
        return [str(one.message) for one in told if one.category is brim.CacheWarning]

    def test_an_index_that_others_may_write(self) -> None:
        self.assertEqual(self.run_it(), [])
        self.index.chmod(0o666)
        self.assertEqual(self.run_it(trust_foreign=True), [])
        (text,) = self.run_it()
        self.assertIn("could be written by other users", text)
        self.assertEqual(self.index.stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.run_it(), [])

    @unittest.skipIf(os.geteuid() != 0, "only root makes files of another user")
    def test_an_index_of_another_user(self) -> None:
        os.chown(self.index, 65534, 65534)
        options = {"index_dir": self.folder / "cache"}
        self.assertEqual(self.run_it(trust_foreign=True, **options), [])
        (text,) = self.run_it(**options)
        self.assertIn("belongs to another user (number 65534)", text)
        self.assertEqual(self.index.stat().st_uid, 65534)


class Warnings(Case):
    def test_a_file_that_is_no_cache_is_not_touched(self) -> None:
        self.file.parent.mkdir()
        self.file.write_text("my letters")
        data = self.samples().cache(file=self.file).batch(8)
        with self.assertWarns(brim.CacheWarning) as caught:
            found, (cache,) = run(data, 3)
        self.assertEqual(len(caught.warnings), 1)
        self.assertEqual(cache["warning"], str(caught.warning))
        self.assertIn(str(self.file)[-40:], cache["warning"])
        self.assertFalse(cache["fills"])
        self.assertEqual(caught.filename.rpartition("/")[2], "test_cache.py")
        self.assertEqual(found, run(self.samples().batch(8), 3)[0])
        self.assertEqual(self.file.read_text(), "my letters")

        with brim.Runtime("8MiB") as runtime, warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaises(brim.CacheWarning):
                runtime.open(data)
            self.assertEqual(runtime.usage()["loaders"], 0)

    def test_one_that_is_begun_anew(self) -> None:
        data = self.samples().cache(file=self.file).batch(8)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run(data, 1)
            run(data, 1)
        self.file.chmod(0o660)
        with self.assertWarnsRegex(brim.CacheWarning, "^cache file at stage .*other users could"):
            run(data, 1)
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o600)
        other = self.samples().cast("float64").cache(file=self.file).batch(8)
        with self.assertWarnsRegex(brim.CacheWarning, "reset: .*other data or stages") as told:
            run(other, 3)
        self.assertEqual(len(told.warnings), 1)

    @unittest.skipIf(os.name != "posix", "limits of file sizes are the system's")
    def test_a_full_disk_is_said_once_at_the_end_of_the_epoch(self) -> None:
        data = self.samples().cache(file=self.file).batch(8)
        wanted = run(self.samples().batch(8), 3)[0]
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, (soft, hard))
        for action in ("always", "error"):
            self.file.unlink(missing_ok=True)
            with (
                self.subTest(action),
                brim.Runtime("8MiB", threads=0) as runtime,
                runtime.open(data) as loader,
                warnings.catch_warnings(record=action == "always") as caught,
            ):
                warnings.simplefilter(action)
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.file.stat().st_size + 256, hard))
                found, raised = [], 0
                for epoch in loader.epochs(3):
                    iterator, batches = iter(epoch), []
                    while True:
                        try:
                            batch = next(iterator, None)
                        except brim.CacheWarning:
                            raised += 1
                            continue
                        if batch is None:
                            break
                        batches.append(batch.copy())
                    found.append(digest(batches))
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
                self.assertEqual(found, wanted)
                (cache,) = loader.stats()["caches"]
                self.assertFalse(cache["fills"])
                self.assertIn("nothing more is kept", cache["warning"])
                self.assertGreater(cache["hits"], 0)
                told = raised if caught is None else len(caught)
                self.assertEqual(told, 1)


if __name__ == "__main__":
    support.main()
