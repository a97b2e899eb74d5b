"""Tests of what the command line says of caches: `brim cache`, the lines of run and bench, and the
caches that bench proposes.

Needs python3's standard library and BRIM_CLI, the path of the program.
"""

import errno
import fcntl
import json
import os
import random
import struct
import subprocess
import termios
import time
import unittest
import zlib

import support
from support import CLI, LIMIT, MIB, SANITIZED, brim, main


def write_png(path, side, seed):
    """A colour image of noise."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))
    draw = random.Random(seed)
    rows = b"".join(b"\0" + draw.randbytes(3 * side) for _ in range(side))
    path.write_bytes(b"\x89PNG\r\n\x1a\n"
                     + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
                     + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


class Case(support.Case):
    def pipeline(self, path, count=200, options=""):
        return ("range %d | one_hot classes=64 on=index | cache file='%s' %s | batch 8"
                % (count, path, options))

    def make(self, name, count=64, samples=None):
        """A cache file with all of `count` samples, or the first of them."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        words = () if samples is None else ("--steps", samples // 8)
        # without workers no sample comes faster than the file takes it
        self.good_json("run", self.pipeline(path, count), "--threads=0", *words)
        with open(path, "rb+") as file:
            os.fsync(file.fileno())  # its blocks are what they stay
        return path

    def fill_slowly(self, path):
        """A process that fills a cache until it is ended."""
        source = "range 64 | repeat 1000000000 | one_hot classes=64 on=index"
        process = subprocess.Popen([CLI, "run", "%s | cache file=%s | batch 8" % (source, path)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            done = brim("cache", "info", path, "--json")
            if done.returncode == 0 and json.loads(done.stdout)["files"][0]["in_use"]:
                return process
            time.sleep(0.02)
        self.fail("the process never began to fill the cache")

    def shown(self, columns, *words):
        """What the command line writes to a terminal, line by line."""
        master, terminal = support.open_terminal(self)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        done = subprocess.run([CLI, *map(str, words)], stdout=terminal, stdin=subprocess.DEVNULL,
                              timeout=LIMIT)
        os.close(terminal)
        self.assertEqual(done.returncode, 0)
        said = b""
        try:
            while piece := os.read(master, 1 << 16):
                said += piece
        except OSError as error:  # how a terminal that nobody has open any more ends
            self.assertEqual(error.errno, errno.EIO)
        os.close(master)
        return said.decode().splitlines()

    def files(self, *words):
        return self.good_json("cache", *words)["files"]

    def damage_header(self, path):
        """What tells that it is a cache stays; behind it a byte is another."""
        for at in range(8, 256):
            content = bytearray(path.read_bytes())
            content[at] ^= 0xff
            path.write_bytes(content)
            told = brim("cache", "info", path, "--json")
            if told.returncode == 0 and not json.loads(told.stdout)["files"][0]["usable"]:
                return
            content[at] ^= 0xff
            path.write_bytes(content)
        self.fail("no byte of the header matters")


class Looking(Case):
    def test_list_finds_caches_and_nothing_else(self):
        first, second = self.make("a.brimcache"), self.make("deep/er/any name", 48, samples=16)
        (self.folder / "a.txt").write_text("no cache\n")
        (self.folder / "empty.brimcache").write_bytes(b"")
        os.mkfifo(self.folder / "pipe")
        os.symlink(second.parent, self.folder / "link")
        told = self.good_json("cache", "list", self.folder)
        self.assertEqual([file["path"] for file in told["files"]], [str(first), str(second)])
        self.assertEqual([(file["filled"], file["samples"]) for file in told["files"]],
                         [(64, 64), (16, 48)])
        self.assertEqual(told["bytes"], sum(file["bytes"] for file in told["files"]))
        for file, path in zip(told["files"], (first, second)):
            self.assertEqual(file["bytes"], 512 * path.stat().st_blocks)
        lines = brim("cache", "list", self.folder).stdout.decode().splitlines()
        self.assertRegex(lines[1], r"^ *[0-9.]+ [KM]iB +100 %% .* %s +range 64 \| one_" % first)
        self.assertRegex(lines[2], r" 33 %% .* %s +range 48 " % second)
        self.assertRegex(lines[3], r"^2 caches, [0-9.]+ [KM]iB$")
        self.assertEqual(len(lines), 4)

    def test_a_file_by_two_names_counts_once(self):
        path = self.make("a")
        os.link(path, self.folder / "b")
        self.assertEqual(len(self.files("list", self.folder, path, self.folder)), 1)

    def test_list_of_nothing(self):
        self.assertEqual(brim("cache", "list", self.folder).stdout, b"0 caches, 0 B\n")

    def test_list_goes_on_after_a_failure(self):
        path = self.make("a")
        (self.folder / "b").write_text("no cache\n")
        told = self.bad_json(1, "cache", "list", self.folder / "none", self.folder / "b", path)
        self.assertEqual([file.get("status") for file in told["files"]],
                         ["BRIM_STATUS_IO", "BRIM_STATUS_INVALID", None])
        self.assertEqual(self.bad_json(2, "cache", "list", self.folder / "b")["status"],
                         "BRIM_STATUS_INVALID")

    def test_list_is_cut_to_the_terminal(self):
        self.make("a")
        room = self.shown(1000, "cache", "list", self.folder)[1].index("range 64")
        for columns in (room + 10, room - 20):  # what is before the pipeline is never cut
            shown = self.shown(columns, "cache", "list", self.folder)
            if columns > room:
                self.assertEqual(len(shown[1]), columns)
            self.assertIn(str(self.folder / "a"), shown[1])

    def test_pipelines_that_differ_at_their_end_look_different(self):
        array = support.write_npy(self.folder / "x.npy", (8, 8, 8, 3), "|u1")
        for name, size in (("a", 4), ("b", 6)):
            self.good_json("run", "npy %s | resize %d %d | cast float32 | cache file=%s | batch 4"
                           % (array, size, size, self.folder / name))
        wide = self.shown(1000, "cache", "list", self.folder)
        ends = ["npy %s | resize %d %d | cast float32" % (array, size, size) for size in (4, 6)]
        self.assertTrue(wide[1].endswith("  " + ends[0]) and wide[2].endswith("  " + ends[1]), wide)
        used = wide[1].index(ends[0])
        for columns, ends in ((used + 31, ["  ... | resize 4 4 | cast float32",
                                           "  ... | resize 6 6 | cast float32"]),
                              (used + 30, ["  ... | cast float32"] * 2),
                              (used + 14, ["  ...ast float32"] * 2)):
            shown = self.shown(columns, "cache", "list", self.folder)
            with self.subTest(columns=columns, shown=shown):
                for line, end in zip(shown[1:], ends):
                    self.assertTrue(line.endswith(end))

    def test_of_a_long_pipeline_the_end_is_listed(self):
        path = self.folder / "a"
        stages = " | ".join("cast int%d" % (32 + 32 * (i % 2)) for i in range(60))
        self.good_json("run", "range 8 | %s | cache file=%s | batch 4" % (stages, path))
        line = brim("cache", "list", path).stdout.decode().splitlines()[1]
        self.assertRegex(line, r"  \.\.\..* \| cast int32 \| cast int64$")

    def test_info(self):
        began = time.time()
        path = self.make("a")
        file, = self.files("info", path)
        self.assertEqual((file["path"], file["samples"], file["filled"]), (str(path), 64, 64))
        self.assertIn("range 64 | one_hot", file["pipeline"])
        self.assertNotIn("batch", file["pipeline"])
        self.assertEqual((file["usable"], file["in_use"], file["limit"], file["verify"]),
                         (True, False, None, "open"))
        # times of files are those of the last tick
        self.assertTrue(began - 1 < file["created"] < file["used"] + 1, file)
        self.assertLess(file["used"], time.time() + 1)
        plan = self.good_json("plan", self.pipeline(path, 64))
        self.assertRegex(file["fingerprints"]["data"], "^[0-9a-f]{16}$")
        self.assertNotEqual(file["fingerprints"]["data"], file["fingerprints"]["sample"])
        self.assertTrue(plan["fits"])
        said = brim("cache", "info", path).stdout.decode()
        for line in ("  pipeline     range 64 ", "  samples      64 of 64, 100.0 %\n",
                     "  verify       open\n", "  in use       no\n", "  usable       yes\n"):
            self.assertIn(line, said)

        limited = self.folder / "b"
        self.good_json("run", self.pipeline(limited, 64, "limit=1MiB verify=never"))
        file, = self.files("info", limited)
        self.assertEqual((file["limit"], file["verify"]), (MIB, "never"))
        by_content = self.folder / "content.brimcache"
        for _ in range(2):
            cache = self.good_json("run", self.pipeline(by_content, 64, "verify=content"),
                                   "--threads=0")["caches"][0]
        self.assertEqual((cache["misses"], cache["changed"]), (0, 0))
        file = self.good_json("cache", "info", by_content)["files"][0]
        self.assertEqual((file["usable"], file["verify"]), (True, "content"))
        file = self.good_json("cache", "verify", by_content)["files"][0]
        self.assertEqual((file["good"], file["bad"]), (64, 0))
        self.assertIn(" of at most 1.0 MiB\n", brim("cache", "info", limited).stdout.decode())

    def test_what_cannot_be_used(self):
        path = self.make("a")
        self.damage_header(path)
        said = brim("cache", "info", path).stdout.decode()
        self.assertIn("usable       no: of another format or damaged", said)
        self.assertIn("; a pipeline that opens it resets it", said)
        self.assertIn("of another format or damaged\n",
                      brim("cache", "list", self.folder).stdout.decode())
        file, = self.files("list", self.folder)
        self.assertEqual((file["usable"], "samples" in file), (False, False))

    def test_verify(self):
        path, other = self.make("a"), self.make("b", 48)
        self.assertEqual(self.files("verify", path, other),
                         [{"path": str(path), "good": 64, "bad": 0},
                          {"path": str(other), "good": 48, "bad": 0}])
        # one_hot's ones are nowhere else
        content = path.read_bytes()
        at = content.rindex(struct.pack("<f", 1))
        path.write_bytes(content[:at] + struct.pack("<f", 2) + content[at + 4:])
        done = brim("cache", "verify", path, other, "--json")
        self.assertEqual(done.returncode, 1)
        self.assertEqual([(file["good"], file["bad"]) for file in json.loads(done.stdout)["files"]],
                         [(63, 1), (48, 0)])
        done = brim("cache", "verify", path)
        self.assertEqual((done.returncode, done.stderr), (1, b""))
        self.assertEqual(done.stdout.decode(), "%s: 63 samples good, 1 bad\n" % path)

    def test_verify_of_what_is_no_cache(self):
        path = self.folder / "a"
        path.write_bytes(random.Random(1).randbytes(100000))
        self.bad_json(2, "cache", "verify", path)
        self.bad_json(1, "cache", "verify", self.folder / "none")

    def test_verify_shows_its_progress_only_on_a_terminal(self):
        path = self.make("a")
        self.assertEqual(brim("cache", "verify", path).stderr, b"")


class Deleting(Case):
    def test_rm(self):
        path, other = self.make("a"), self.make("b")
        said = brim("cache", "rm", path, other, "-n").stdout.decode().splitlines()
        self.assertRegex(said[0], "^would delete %s, [0-9.]+ [KM]iB$" % path)
        self.assertTrue(path.exists() and other.exists())
        told = self.good_json("cache", "rm", path)
        self.assertEqual(([file["path"] for file in told["files"]], told["dry_run"]),
                         ([str(path)], False))
        self.assertEqual((path.exists(), other.exists()), (False, True))

    def test_rm_deletes_what_cannot_be_used(self):
        path = self.make("a")
        self.damage_header(path)
        self.assertEqual(len(self.files("rm", path)), 1)
        self.assertFalse(path.exists())

    def test_rm_refuses_what_is_no_cache(self):
        text, array = self.folder / "t.txt", self.folder / "x.npy"
        text.write_text("precious\n")
        support.write_npy(array, (4, 4))
        path = self.make("a")
        for words in ((), ("--dry-run",)):
            told = self.bad_json(2, "cache", "rm", text, array, self.folder, *words)
            self.assertEqual([file["status"] for file in told["files"]], ["BRIM_STATUS_INVALID"] * 3)
            self.assertIn("%s is a directory: brim cache prune DIR --to 0" % self.folder,
                          told["files"][2]["error"])
        self.assertTrue(text.exists() and array.exists() and path.exists())
        self.bad_json(1, "cache", "rm", self.folder / "none")

    def test_rm_refuses_what_is_being_filled(self):
        path = self.folder / "a"
        process = self.fill_slowly(path)
        for words in ((), ("--dry-run",)):
            told = self.bad_json(1, "cache", "rm", path, *words)
            self.assertEqual(told["status"], "BRIM_STATUS_BUSY")
            self.assertTrue(path.exists())
        self.assertIn("in use", brim("cache", "list", path).stdout.decode())
        process.kill()
        process.wait()
        self.assertEqual(len(self.files("rm", path)), 1)

    def test_prune_deletes_the_least_recently_used(self):
        paths = [self.make("%s/x" % name) for name in "cab"]
        for age, path in zip((3000, 2000, 1000), paths):
            os.utime(path, (time.time() - age,) * 2)
        self.make("c/x")  # used once more
        listed = self.good_json("cache", "list", self.folder)
        rest = listed["bytes"] - next(file["bytes"] for file in listed["files"]
                                      if file["path"] == str(paths[1]))
        words = ("cache", "prune", self.folder, "--to", rest)
        told = self.good_json(*words, "--dry-run")
        self.assertEqual([file["path"] for file in told["files"]], [str(paths[1])])
        self.assertTrue(all(path.exists() for path in paths))
        again = self.good_json(*words)
        self.assertEqual(again, dict(told, dry_run=False))
        self.assertEqual([path.exists() for path in paths], [True, False, True])
        self.assertEqual((again["left"], again["left_bytes"]), (2, rest))
        self.assertEqual(self.good_json(*words)["files"], [])
        done = brim("cache", "prune", self.folder, "--to", 1)
        self.assertEqual(done.returncode, 0)
        said = done.stdout.decode().splitlines()
        self.assertEqual([line.split(",")[0] for line in said[:2]],
                         ["deleted %s" % paths[2], "deleted %s" % paths[0]])
        self.assertEqual(said[2], "left: 0 caches, 0 B")

    def test_prune_to_nothing(self):
        for size in ("0", "0B", "0.0GiB"):
            paths = [self.make("a"), self.make("b/c")]
            (self.folder / "b/t.txt").write_text("precious\n")
            told = self.good_json("cache", "prune", self.folder, "--to", size, "--dry-run")
            self.assertEqual((len(told["files"]), told["left"]), (2, 0))
            self.assertTrue(all(path.exists() for path in paths))
            told = self.good_json("cache", "prune", self.folder, "--to", size)
            self.assertEqual((len(told["files"]), told["left"], told["left_bytes"]), (2, 0, 0))
            self.assertFalse(any(path.exists() for path in paths))
            self.assertTrue((self.folder / "b/t.txt").exists())

    def test_prune_begins_with_what_cannot_be_used(self):
        old, damaged = self.make("a"), self.make("b")
        self.damage_header(damaged)
        told = self.good_json("cache", "list", self.folder)
        self.files("prune", self.folder, "--to", str(told["bytes"] - 1))
        self.assertEqual((old.exists(), damaged.exists()), (True, False))

    def test_prune_leaves_what_is_being_filled(self):
        busy, idle = self.folder / "a", self.make("b")
        self.fill_slowly(busy)
        told = self.good_json("cache", "prune", self.folder, "--to", "1B", "--dry-run")
        self.assertEqual(([file["path"] for file in told["files"]], told["left_in_use"]),
                         ([str(idle)], 1))
        done = brim("cache", "prune", self.folder, "--to", "1B")
        self.assertEqual((busy.exists(), idle.exists()), (True, False))
        self.assertEqual(done.returncode, 0)
        self.assertIn("more than --to is left: 1 in use was not deleted", done.stderr.decode())
        for size in ("1B", "0"):
            told = self.good_json("cache", "prune", self.folder, "--to", size)
            self.assertEqual((told["files"], told["left"], told["left_in_use"]), ([], 1, 1))


class Usage(Case):
    def test_wrong_words(self):
        for words, says in (
                (["lst", "x"], "did you mean list?"),
                (["xyzzyplugh", "x"], "it has list info verify rm prune"),
                (["list"], "a path is missing: brim cache list PATH..."),
                ([], "an argument is missing"),
                (["list", "x", "--to", "1GiB"], "--to is an option of brim cache prune"),
                (["list", "x", "--to", "0"], "--to is an option of brim cache prune"),
                (["prune", "x"], "--to 50GiB"),
                (["prune", "x", "--to", "0.1B"], "'0.1B' is not bytes from 0"),
                (["prune", "x", "--to", str(2**64 - 1)], "is not bytes from 0"),
                (["prune", "x", "--to", "much"], "'much' is not bytes"),
                (["verify", "x", "--dry-run"], "verify deletes nothing"),
                (["list", "x", "--memory", "1MiB"], "not an option of brim cache")):
            with self.subTest(words=words):
                self.assertIn(says, self.bad_json(2, "cache", *words)["error"])

    def test_one_letter_of_two_options(self):
        self.assertEqual(brim("cat", "range 5", "-n", "2").stdout.count(b"\n"), 2)
        self.assertIn("deletes nothing", self.bad_json(2, "cache", "info", "x", "-n")["error"])


class Running(Case):
    def test_lines_and_json(self):
        path = self.folder / "a"
        pipeline = "range 64 | cache memory | one_hot classes=64 on=index | cache file=%s | batch 8"
        told = self.good_json("run", pipeline % path, "--threads=0")["caches"]
        self.assertEqual([(one["tier"], one["stage"], one["samples"], one["misses"], one["hits"],
                           one["filled"]) for one in told],
                         [("memory", 1, 64, 64, 0, 64), ("file", 3, 64, 64, 0, 64)])
        self.assertEqual([(one["fills"], one["warning"], one["note"], one["damaged"],
                           one["changed"]) for one in told], [(True, "", "", 0, 0)] * 2)
        done = brim("run", pipeline % path, "--epochs=3", "--threads=0")
        self.assertEqual(done.stderr, b"")
        self.assertRegex(done.stdout.decode(), r"(?m)^cache +file: 64 of 64 samples, [0-9.]+ "
                                               r"[KM]iB; 192 hits, 0 misses$")
        self.assertEqual(self.good_json("run", "range 64 | batch 8")["caches"], [])

    def test_one_of_each(self):
        done = brim("run", "range 1 | cache memory | batch 1", "--epochs=2", "--threads=0")
        self.assertRegex(done.stdout.decode(), r"(?m)^cache +memory: .*; 1 hit, 1 miss$")

    def test_a_note_tells_why_a_file_was_begun_anew(self):
        path = self.make("a")
        done = brim("run", self.pipeline(path, 48), "--threads=0")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr.decode(), r"\Abrim run: note: reset: .*\n\Z")
        self.assertEqual(brim("run", self.pipeline(path, 48)).stderr, b"")
        self.assertEqual(brim("run", self.pipeline(path, 40), "--quiet").stderr, b"")
        cache, = self.good_json("run", self.pipeline(path, 48), "--threads=0")["caches"]
        self.assertRegex(cache["note"], "^reset: ")
        self.assertEqual((cache["warning"], cache["filled"]), ("", 48))
        done = brim("bench", self.pipeline(path, 40), "--repeat=1", "--steps=5")
        self.assertRegex(done.stderr.decode(), r"(?m)^brim bench: note: reset: ")

    def test_a_file_that_changed_is_no_damage(self):
        images = [self.folder / "images" / ("%d.png" % i) for i in range(4)]
        images[0].parent.mkdir()
        for i, image in enumerate(images):
            write_png(image, 8, i)
        pipeline = ("folder %s | decode | resize 8 8 | cache file=%s verify=hit | batch 4"
                    % (images[0].parent, self.folder / "a"))
        self.good_json("run", pipeline, "--threads=0")
        for turn, (count, line) in enumerate(((1, "3 hits, 1 miss, 1 changed"),
                                              (3, "1 hit, 3 misses, 3 changed"))):
            for image in images[:count]:
                os.utime(image, (1000000 + turn,) * 2)
            cache, = self.good_json("run", pipeline, "--threads=0")["caches"]
            self.assertEqual((cache["changed"], cache["damaged"]), (count, 0))
            for image in images[:count]:
                os.utime(image, (2000000 + turn,) * 2)
            said = brim("run", pipeline, "--threads=0").stdout.decode()
            self.assertRegex(said, r"(?m)^cache +file: 4 of 4 samples, .*; %s$" % line)

    def test_a_warning_is_no_failure(self):
        pipeline = self.pipeline("/proc/none/x", 64)
        done = brim("run", pipeline, "--quiet", "--digest")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr.decode(), r"\Abrim run: warning: .*/proc/none/x.*\n\Z")
        told = self.good_json("run", pipeline, "--digest")
        self.assertEqual(told["digest"] + "\n", done.stdout.decode())
        self.assertFalse(told["caches"][0]["fills"])
        self.assertIn("/proc/none/x", told["caches"][0]["warning"])


class Proposing(Case):
    """What is proposed was measured; under a sanitizer that is mostly the sanitizer."""

    def setUp(self):
        super().setUp()
        self.images = self.folder / "images"
        for i in range(24):
            label = self.images / str(i % 2)
            label.mkdir(parents=True, exist_ok=True)
            write_png(label / ("%d.png" % i), 160, i)

    def bench(self, pipeline, *words):
        return self.good_json("bench", pipeline, "--repeat=1", "--seconds=0.3", "--memory=64MiB",
                              *words)

    @unittest.skipIf(SANITIZED, "brim's own code is slowed down, the decoders' is not")
    def test_behind_the_last_stage_before_a_random_one(self):
        pipeline = ("folder %s | shuffle seed=7 | decode | resize 32 32 | flip | normalize imagenet"
                    " | batch 8" % self.images)
        proposal, = self.bench(pipeline)["proposals"]
        self.assertEqual((proposal["after"], proposal["stage"]), ("resize", 3))
        self.assertGreaterEqual(proposal["sample_bytes"], 32 * 32 * 3)
        self.assertGreater(proposal["saves"], 0.1)
        self.assertEqual(proposal["pipeline"],
                         self.good_json("plan", pipeline.replace(
                             " | flip", " | cache memory | flip"))["pipeline"])
        said = brim("bench", pipeline, "--repeat=1", "--seconds=0.3").stdout.decode()
        self.assertRegex(said, r"(?m)^cache after resize: [0-9.]+ [KM]iB, saves [0-9]+ %$")
        self.assertIn("\n  " + proposal["pipeline"] + "\n", said)

    @unittest.skipIf(SANITIZED, "brim's own code is slowed down, the decoders' is not")
    def test_where_samples_are_smaller_too(self):
        pipeline = ("folder %s | decode | resize 32 32 | normalize imagenet | batch 8"
                    % self.images)
        told = self.bench(pipeline)["proposals"]
        self.assertEqual({one["after"] for one in told}, {"resize", "normalize"})

    @unittest.skipIf(SANITIZED, "brim's own code is slowed down, the decoders' is not")
    def test_one_that_does_not_fit_the_budget_is_a_file(self):
        pipeline = ("folder %s | repeat 3 | decode max_pixels=30000 | resize 160 160 | flip | "
                    "normalize imagenet | batch 2" % self.images)
        for _ in range(2):  # the first one makes the listing, which takes memory
            least = self.good_json("plan", pipeline, "--threads=0")["minimum_bytes"]
        # where trials may write; a name that has to be escaped
        place = self.folder / "it's \\ here"
        place.mkdir()
        words = ("bench", pipeline, "--repeat=1", "--steps=12", "--threads=0", "--memory")
        one, = self.good_json(*words, least + MIB, env=dict(os.environ, TMPDIR=place))["proposals"]
        self.assertIn("cache file=samples.brimcache", one["pipeline"])
        self.assertEqual(list(place.iterdir()), [])
        # it keeps what was promised in this budget
        text = one["pipeline"].replace("samples.brimcache", str(self.folder / "samples"))
        cache, = self.good_json("run", text, "--threads=0", "--memory", least + MIB)["caches"]
        self.assertEqual(cache["filled"], 24)
        # nor is one proposed that could not be filled, for want of memory or of a place
        self.assertEqual(self.good_json(*words, least)["proposals"], [])
        self.assertEqual(self.good_json(*words, least + MIB,
                                        env=dict(os.environ, TMPDIR="/none"))["proposals"], [])

    def test_none_where_none_can_pay(self):
        array = support.write_npy(self.folder / "x.npy", (256, 16, 16, 3), "|u1")
        for pipeline in (
                "range 1000 | batch 8",
                "npy %s | flip | normalize unit | batch 8" % array,
                "folder %s | decode | cache memory | resize 32 32 | batch 8" % self.images,
                "concat (folder %s | decode | resize 32 32) | batch 8" % self.images):
            with self.subTest(pipeline=pipeline):
                self.assertEqual(self.bench(pipeline)["proposals"], [])

    def test_the_cache_of_a_bench_gets_its_line(self):
        told = self.bench("folder %s | decode | resize 32 32 | cache memory | batch 8"
                          % self.images, "--steps=6")  # two epochs, however slow
        self.assertEqual([one["tier"] for one in told["caches"]], ["memory"])
        self.assertGreater(told["caches"][0]["hits"], 0)


if __name__ == "__main__":
    main()
