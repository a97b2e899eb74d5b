"""Tests that the examples do what they promise, as a reader would try them.

Needs python3's standard library and BRIM_CLI, the path of the program, beside which the build
has a folder of examples. Where they were not built (77) there is nothing to test.
"""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

import support

EXAMPLES = pathlib.Path(os.environ["BRIM_CLI"]).parent / "examples"
NAMES = ("first", "resume", "callback", "shard", "glyphs")
SANITIZED = bool(os.environ.get("BRIM_SANITIZE"))
LIMIT = 240  # seconds that one example may take, sanitizers included
MIB = 1 << 20

# Under a sanitizer the network is some twenty times slower; there it is the code that is looked
# at, and how well it learns from so little is not judged.
SAMPLES, EPOCHS, LEAST = (1000, 2, 0.5) if SANITIZED else (6000, 5, 0.9)

# Resident memory that is not brim's: code, libc, the program's own pages. A sanitizer's shadow
# memory is larger than all of it, so there only what is charged is judged.
OUTSIDE = 16 * MIB


def example(name, *words, **more):
    more.setdefault("stderr", subprocess.PIPE)
    return subprocess.run([str(EXAMPLES / name), *words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, timeout=LIMIT, **more)


class Case(unittest.TestCase):
    maxDiff = None

    def good(self, name, *words, **more):
        done = example(name, *words, **more)
        self.assertEqual(done.returncode, 0, (done.stderr or b"").decode(errors="replace"))
        return done.stdout.decode()

    def bad(self, code, name, *words):
        done = example(name, *words)
        self.assertEqual(done.returncode, code, done)
        return done.stderr.decode()


class Small(Case):
    def test_first_sums_an_array_in_random_order(self):
        lines = self.good("first").splitlines()
        self.assertEqual(len(lines), 17)
        self.assertEqual([line.split()[0] for line in lines[:16]], ["64"] * 15 + ["40"])
        self.assertNotIn("0   1   2", lines[0])
        self.assertEqual(lines[-1], "the sum of all is %d" % sum(range(1000)))

    def test_resume_goes_on_where_the_killed_run_stood(self):
        text = self.good("resume")
        self.assertIn("killed in epoch 1 after 7 batches", text)
        self.assertIn("552 samples came, 552 are left of 1000", text)
        self.assertIn("the samples of a run that was not killed, in the same order", text)

    def test_callback_makes_the_same_on_any_number_of_threads(self):
        lines = self.good("callback").splitlines()
        sums = [re.search(r"checksum ([0-9a-f]{16})$", line) for line in lines[:3]]
        self.assertTrue(all(sums), lines)
        self.assertEqual(len({match.group(1) for match in sums}), 1)
        self.assertEqual(lines[-1], "the same for any number of threads")

    def test_shard_joins_two_ranks_into_the_whole(self):
        text = self.good("shard")
        self.assertIn("16 steps: 1000 samples once each, 24 rows padded", text)
        self.assertIn("joined, are the batches of the whole", text)


class Glyphs(Case):
    """On few samples, drawn once for all tests."""

    FEW = ("--samples", str(SAMPLES))

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        # a path that must be quoted in a pipeline
        cls.data = str(cls.folder / 'a "data" | set')
        cls.first = cls.json("--epochs", str(EPOCHS))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def json(cls, *words):
        done = example("glyphs", "--data", cls.data, *cls.FEW, "--json", *words)
        if done.returncode != 0:
            raise AssertionError(done.stderr.decode(errors="replace"))
        return json.loads(done.stdout)

    def test_learns_inside_the_budget(self):
        told = self.first
        self.assertFalse(told["data_reused"])
        self.assertEqual(told["epochs"], EPOCHS)
        self.assertGreater(told["accuracy"], LEAST)
        self.assertLess(told["accuracy"], 1.0)
        self.assertGreater(told["samples_per_second"], 0)
        self.assertEqual(told["budget_bytes"], 16 * MIB)
        self.assertGreater(told["peak_charged_bytes"], 0)
        self.assertLessEqual(told["peak_charged_bytes"], told["budget_bytes"])
        if not SANITIZED:
            self.assertLess(told["peak_rss_bytes"] - told["budget_bytes"], OUTSIDE)
            self.assertLess(told["peak_rss_bytes"] - told["peak_charged_bytes"], OUTSIDE)

    def test_accuracy_depends_on_neither_threads_nor_memory(self):
        whole = self.json("--epochs", "1")
        self.assertTrue(whole["data_reused"])
        for words in (("--threads", "0", "--memory", "2MiB"), ("--threads", "3")):
            other = self.json("--epochs", "1", *words)
            self.assertEqual(other["accuracy"], whole["accuracy"], words)
            self.assertLessEqual(other["peak_charged_bytes"], other["budget_bytes"])
        self.assertNotEqual(self.json("--epochs", "1", "--seed", "8")["accuracy"],
                            whole["accuracy"])

    def test_files_are_arrays_as_numpy_writes_them(self):
        for name, shape, record in (("images", b"(%d, 28, 28)", 784), ("labels", b"(%d,)", 1)):
            content = (pathlib.Path(self.data) / (name + ".npy")).read_bytes()
            self.assertEqual(content[:8], b"\x93NUMPY\x01\x00")
            length = struct.unpack("<H", content[8:10])[0]
            self.assertEqual((10 + length) % 64, 0)
            self.assertIn(b"'descr': '|u1', 'fortran_order': False, 'shape': " + shape % SAMPLES,
                          content[10:10 + length])
            self.assertEqual(len(content), 10 + length + SAMPLES * record)
        counts = [content[10 + length:].count(bytes([digit])) for digit in range(10)]
        self.assertEqual(sum(counts), SAMPLES)
        self.assertGreater(min(counts), SAMPLES * 0.07)

    def test_data_that_are_not_complete_are_drawn_again(self):
        data = str(self.folder / "cut")
        words = ("--data", data, "--samples", "640", "--epochs", "1")
        self.assertIn("drawn into", self.good("glyphs", *words))
        self.assertIn("found in", self.good("glyphs", *words))
        images = pathlib.Path(data) / "images.npy"
        whole = images.read_bytes()
        images.write_bytes(whole[:-1])
        self.assertIn("drawn into", self.good("glyphs", *words))
        self.assertEqual(images.read_bytes(), whole)
        self.assertEqual(sorted(os.listdir(data)), ["images.npy", "labels.npy"])

    def test_shows_the_plan_and_a_line_for_each_epoch(self):
        text = self.good("glyphs", "--data", self.data, *self.FEW, "--epochs", "2",
                         stderr=subprocess.STDOUT)
        self.assertIn("training: zip (npy ", text)
        self.assertIn("validation: zip (npy ", text)
        for stage in ("zip", "npy", "split", "shuffle", "normalize", "batch"):
            self.assertRegex(text, r"(?m)^  %s +[0-9.]+ KiB  \S" % stage)
        self.assertEqual(len(re.findall(r"(?m)^  minimum .* planned .* limit .* slots, .* threads$",
                                        text)), 2)
        self.assertEqual(re.findall(r"(?m)^epoch (\d+): ", text), ["1", "2"])
        self.assertRegex(text, r"(?m)^validation accuracy +0\.\d{4}$")
        self.assertRegex(text, r"(?m)^budget +16\.0 MiB$")
        self.assertNotIn("\r", text)

    def test_terminals_get_a_progress_line(self):
        ours, theirs = support.open_terminal(self)
        with os.fdopen(ours, "rb", buffering=0) as screen:
            with subprocess.Popen(
                    [str(EXAMPLES / "glyphs"), "--data", self.data, *self.FEW, "--epochs", "10"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs) as running:
                os.close(theirs)
                seen = b""
                while True:
                    try:
                        seen += screen.read(65536)
                    except OSError:  # a terminal without a writer: it has ended
                        break
                text = running.stdout.read().decode()
        self.assertEqual(running.returncode, 0)
        self.assertRegex(seen.decode(), r"\repoch \d+ of 10  \d+ %  \d+ samples/s  "
                                        r"[0-9.]+ of 16\.0 MiB  [0-9.]+ s left")
        self.assertTrue(seen.endswith(b"\r\x1b[K"), seen[-80:])
        self.assertNotIn("\r", text)

    def test_help_and_mistakes(self):
        text = self.good("glyphs", "--help")
        for option in ("data", "samples", "epochs", "memory", "threads", "seed", "json", "help"):
            self.assertIn("  --%s" % option, text)
        for words in (("--samples", "12"), ("--epochs", "0"), ("--memory", "much"),
                      ("--memory", "-1MiB"), ("--threads", "-1"), ("--seed", "x")):
            said = self.bad(2, "glyphs", *words)
            self.assertIn("%s cannot be '%s'" % words, said)
        self.assertIn("nonsense", self.bad(2, "glyphs", "--nonsense"))
        self.assertIn("'nonsense'", self.bad(2, "glyphs", "nonsense"))

    def test_failures_say_what_and_have_their_exit_codes(self):
        said = self.bad(3, "glyphs", "--data", self.data, *self.FEW, "--memory", "600KiB")
        self.assertRegex(said, r"^glyphs: \S")
        self.assertRegex(said, r"\d")
        said = self.bad(1, "glyphs", "--data", str(self.folder / "no" / "such"))
        self.assertIn("cannot make the directory", said)


if __name__ == "__main__":
    missing = [name for name in NAMES if not (EXAMPLES / name).exists()]
    if missing:
        print("skipped: not built in %s: %s" % (EXAMPLES, ", ".join(missing)))
        sys.exit(77)
    unittest.main()
