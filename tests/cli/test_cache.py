"""Caches in processes of their own: runs one after the other and at the same time, shards, data that
move, budgets that the kernel keeps.

What one process can show is in tests/test_cache*.c.
"""

import json
import random
import shutil
import struct
import unittest
import zlib

import test_cgroup
from support import LIMIT, MIB, SANITIZED, Case, brim, main, start, write_npy

SAMPLES = 400


def write_png(path, width, height, seed):
    """A colour image of noise."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))
    draw = random.Random(seed)
    rows = b"".join(b"\0" + draw.randbytes(3 * width) for _ in range(height))
    path.write_bytes(b"\x89PNG\r\n\x1a\n"
                     + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
                     + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


class Cached(Case):
    """A pipeline without and with a cache; self.text(cache) puts one in."""

    def setUp(self):
        super().setUp()
        self.path = self.folder / "x.brimcache"
        write_npy(self.folder / "x.npy", (SAMPLES, 30), "|u1")

    def text(self, cache=None, before="cast float32", behind="shuffle seed=7", batch="batch 16"):
        cache = "" if cache is None else "| %s" % cache
        return "npy %s | %s %s | %s | %s" % (self.folder / "x.npy", before, cache, behind, batch)

    def ran(self, text, *words):
        """(digest, statistics of the first cache)"""
        told = self.good_json("run", text, "--digest", *words)
        return told["digest"], told["caches"][0] if told["caches"] else None

    def file(self, options=""):
        return "cache file=%s %s" % (self.path, options)


class Runs(Cached):
    def test_one_after_the_other(self):
        wanted, none = self.ran(self.text(), "--epochs=2")
        self.assertIsNone(none)
        self.good_json("run", self.text(self.file()), "--steps=5", "--threads=0")
        digest, cache = self.ran(self.text(self.file()), "--epochs=2", "--threads=0")
        self.assertEqual(digest, wanted)
        self.assertEqual((cache["hits"], cache["misses"]), (80 + SAMPLES, SAMPLES - 80))
        for threads in (0, 1, 4):
            digest, cache = self.ran(self.text(self.file()), "--epochs=2", "--threads", threads)
            self.assertEqual(digest, wanted)
            self.assertEqual(cache["misses"], 0)
        digest, cache = self.ran(self.text(self.file(), behind="normalize mean=1 std=2"),
                                 "--threads=0")
        self.assertEqual(cache["misses"], 0, "a stage behind the cache is none of its business")
        self.assertEqual(digest, self.digest(self.text(behind="normalize mean=1 std=2")))
        digest, cache = self.ran(self.text(self.file(), before="cast float16"), "--threads=0")
        self.assertEqual(cache["hits"], 0)
        self.assertEqual(digest, self.digest(self.text(before="cast float16")))

    def test_a_plan_makes_no_file(self):
        plan = self.good_json("plan", self.text(self.file()))
        self.assertTrue(plan["fits"])
        self.assertFalse(self.path.exists())

    def test_resumed_runs(self):
        state = self.folder / "at.state"
        wanted = self.digest(self.text(), "--seek=0:9", "--epochs=2")
        for cache in (self.file(), "cache memory", self.file() + " | cache memory"):
            self.path.unlink(missing_ok=True)
            self.good_json("run", self.text(), "--steps=9", "--state", state)
            digest, _ = self.ran(self.text(cache), "--resume", state, "--epochs=2")
            self.assertEqual(digest, wanted)

    def images(self):
        """(folder, pipeline to put it, the cache's file and an option in)"""
        folder = self.folder / "images"
        folder.mkdir()
        for number in range(12):
            write_png(folder / ("%d.png" % number), 8 + number, 20 - number, number)
        return folder, ("folder %s index=beside | decode | cache file=%s verify=%s | "
                        "random_resized_crop 6 | batch 4")

    def test_data_that_move(self):
        folder, text = self.images()
        for verify, found in (("open", 12), ("hit", 12), ("never", 0)):
            self.path.unlink(missing_ok=True)
            wanted, _ = self.ran(text % (folder, self.path, verify), "--threads=0")
            moved = folder.with_name("moved-" + verify)
            folder.rename(moved)
            digest, cache = self.ran(text % (moved, self.path, verify), "--threads=0")
            self.assertEqual((digest, cache["hits"]), (wanted, found), verify)
            copy = folder.with_name("copied-" + verify)
            shutil.copytree(moved, copy)  # with its times
            digest, cache = self.ran(text % (copy, self.path, verify), "--threads=0")
            self.assertEqual((digest, cache["hits"]), (wanted, 0), verify)
            moved.rename(folder)

    def test_copies_in_the_place_of_data(self):
        folder, text = self.images()
        for verify, found in (("open", 0), ("hit", 0), ("never", 12)):
            self.path.unlink(missing_ok=True)
            wanted, _ = self.ran(text % (folder, self.path, verify), "--threads=0")
            copy = shutil.copytree(folder, folder.with_name("copy"))
            folder.rename(folder.with_name("before-" + verify))
            copy.rename(folder)
            digest, cache = self.ran(text % (folder, self.path, verify), "--threads=0")
            self.assertEqual((digest, cache["hits"]), (wanted, found), verify)

    def test_a_warning_and_the_same_batches(self):
        self.path.write_bytes(b"somebody's letters")
        done = brim("run", self.text(self.file()), "--digest", "--json")
        self.assertEqual(done.returncode, 0, done)
        told = json.loads(done.stdout)
        self.assertEqual(told["digest"], self.digest(self.text()))
        self.assertIn("is not a cache file", told["caches"][0]["warning"])
        self.assertEqual(self.path.read_bytes(), b"somebody's letters")


class Together(Cached):
    """Processes at the same time."""

    def finish(self, processes):
        told = []
        for process in processes:
            said, complained = process.communicate(timeout=LIMIT)
            self.assertEqual(process.returncode, 0, complained)
            told.append(json.loads(said))
        return told

    def test_many_begin_at_once(self):
        for turn in range(2 if SANITIZED else 6):
            self.path.unlink(missing_ok=True)
            words = [("--threads", turn % 2), ("--threads=1",), ("--threads=0", "--shard=0/2"),
                     ("--threads=1", "--shard=1/2")]
            wanted = [self.digest(self.text(), "--epochs=3", *more) for more in words]
            told = self.finish([start("run", self.text(self.file()), "--epochs=3", "--digest",
                                      "--json", *more) for more in words])
            self.assertEqual([one["digest"] for one in told], wanted)
            for one in told:
                self.assertEqual(one["caches"][0]["damaged"], 0)
            self.assertEqual(self.good_json("cache", "verify", self.path)["files"][0]["bad"], 0)
        self.digest(self.text(self.file()), "--threads=0")
        digest, cache = self.ran(self.text(self.file()), "--threads=0")
        self.assertEqual((cache["misses"], cache["filled"]), (0, SAMPLES))

    def test_two_pipelines_for_one_file(self):
        # who comes second keeps nothing, and both get what is theirs
        other = self.text(self.file(), before="cast float16")
        for turn in range(2 if SANITIZED else 6):
            told = self.finish([start("run", text, "--epochs=3", "--digest", "--json",
                                      "--threads", turn % 3)
                                for text in (self.text(self.file()), other)])
            self.assertEqual(told[0]["digest"], self.digest(self.text(), "--epochs=3"))
            self.assertEqual(told[1]["digest"],
                             self.digest(self.text(before="cast float16"), "--epochs=3"))
            self.assertEqual(self.good_json("cache", "verify", self.path)["files"][0]["bad"], 0)


@unittest.skipIf(test_cgroup.WHY_NOT, test_cgroup.WHY_NOT)
class InGroup(Case):
    """Caches in memory control groups little larger than the budget."""

    OUTSIDE = 16 * MIB
    TEXT = "range 4096 | one_hot 4096 on=index | cast float16 %s | shuffle | batch 16"  # 32 MiB

    def check(self, cache, *words):
        budget = 20 * MIB
        group = test_cgroup.Group(test_cgroup.PARENT, test_cgroup.VERSION)
        self.addCleanup(group.remove)
        group.set_limit(budget + self.OUTSIDE)
        done = group.run("run", self.TEXT % cache, "--memory", budget, "--epochs=2", "--digest",
                         "--json", *words)
        self.assertEqual(group.killed(), 0, "killed for memory")
        self.assertEqual(done.returncode, 0, done)
        told = json.loads(done.stdout)
        self.assertEqual(told["digest"], self.digest(self.TEXT % "", "--epochs=2"))
        self.assertLessEqual(told["peak_charged_bytes"], budget)
        self.assertLessEqual(told["peak_rss_bytes"], budget + self.OUTSIDE)
        return told["caches"][0]

    def test_in_memory(self):
        for threads in (0, 2):
            cache = self.check("| cache memory", "--threads", threads)
            self.assertGreater(cache["bytes"], 10 * MIB)
            self.assertGreater(cache["hits"], 0)

    def test_in_a_file(self):
        for threads in (0, 2):
            path = self.folder / ("%d.brimcache" % threads)
            cache = self.check("| cache file=%s" % path, "--threads", threads)
            self.assertGreater(cache["filled"], 0)


if __name__ == "__main__":
    main()
