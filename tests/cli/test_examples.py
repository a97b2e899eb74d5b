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
NAMES = ("first", "resume", "callback", "shard", "glyphs", "cache_shuffle", "cache_validation",
         "cache_tier", "cache_decode", "validation_reset", "resident_evaluation", "one_limit",
         "clear_between_phases", "growth", "shortest")
SANITIZED = bool(os.environ.get("BRIM_SANITIZE"))
LIMIT = 240  # seconds that one example may take, sanitizers included
MIB = 1 << 20

# Under a sanitizer the network is some twenty times slower; there it is the code that is looked
# at, and how well it learns from so little is not judged.
SAMPLES, EPOCHS, LEAST = (640, 2, 0.5) if SANITIZED else (1000, 10, 0.9)

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


class Caches(Case):
    def test_shuffle_has_other_orders_of_samples_made_once(self):
        lines = self.good("cache_shuffle").splitlines()
        begins = [re.match(r"epoch \d: samples (.*) \.\.\. (\d+) made$", line) for line in lines[:3]]
        self.assertEqual([match[2] for match in begins], ["500", "0", "0"])
        self.assertEqual(len({match[1] for match in begins}), 3)
        self.assertRegex(lines[3], r"^in the cache: 500 of 500 samples, .*; 1000 hits, 500 misses$")

    def test_validation_is_found_and_training_made(self):
        lines = self.good("cache_validation").splitlines()
        made = [re.search(r": +(\d+) samples made for training, +(\d+) for validation; (.*) of", line)
                for line in lines]
        self.assertEqual([match.groups()[:2] for match in made],
                         [("1000", "200"), ("1000", "0"), ("1000", "0"), ("1000", "0")])
        self.assertEqual(len({match[3] for match in made[1:]}), 1, lines)  # memory stays

    def test_tier_is_chosen_by_size_and_a_file_is_found_again(self):
        with tempfile.TemporaryDirectory() as folder:
            for words, first in ((), "1000 misses"), ((folder,), "1000 misses"), ((folder,), "0 misses"):
                text = self.good("cache_tier", *words)
                tiers = re.findall(r"(?m)^  cache (\w+): 1000 of 1000 .* (\d+ misses)$", text)
                self.assertEqual(tiers, [("memory", "1000 misses"), ("file", first),
                                         ("file", "0 misses")])
            self.assertEqual(os.listdir(folder), ["waves.brimcache"])

    def test_decode_stands_still_from_the_second_epoch_on(self):
        lines = self.good("cache_decode").splitlines()
        self.assertEqual(lines[:3], ["epoch 0: 120 images decoded, 120 cropped",
                                     "epoch 1:   0 images decoded, 120 cropped",
                                     "epoch 2:   0 images decoded, 120 cropped"])
        self.assertIn("120 images of 64 x 64", lines[3])


class Memory(Case):
    """On the first device of OpenCL where there is one, on the host, and with CUDA's stand-in."""

    @classmethod
    def setUpClass(cls):
        told = json.loads(support.brim("devices", "--json").stdout)
        has_opencl = any(row["device"] == "opencl:0" for row in told["devices"])
        cls.places = {"cuda:0": ("cuda:0",), "host": ("host",) if has_opencl else ()}
        if has_opencl:
            cls.places["opencl:0"] = ()

    def lines(self, name, place, words):
        """What was said, and the rows of numbers: when -> six of them."""
        environment = dict(os.environ)
        if place == "cuda:0":
            folder = str(pathlib.Path(os.environ["BRIM_CUDA_STANDIN"]).parent)
            environment["LD_LIBRARY_PATH"] = folder
            environment["CUDA_STANDIN_REPORT"] = self.report
        text = self.good(name, *words, env=environment)
        if place == "cuda:0":
            self.assertNotIn("violation:", pathlib.Path(self.report).read_text())
        self.assertIn("batches are delivered on %s\n" % place, text)
        rows = re.findall(r"(?m)^ *(\S.*?)" + r" +(\d+\.\d)" * 6 + "$", text)
        numbers = {row[0]: [float(word) for word in row[1:]] for row in rows}
        for when, row in numbers.items():
            self.assertTrue(all(row[i] <= row[i + 1] for i in (0, 2, 4)), (when, row))
            if place == "host":
                self.assertEqual(row[2:], [0, 0, 0, 0], when)
            elif when != "nothing open":
                self.assertGreater(min(row[3], row[5]), 0, when)
        return text, numbers

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.report = os.path.join(folder.name, "report")

    def test_resets_of_a_validation_leave_memory_flat(self):
        for place, words in self.places.items():
            text, rows = self.lines("validation_reset", place, words)
            self.assertEqual(list(rows), ["first pass", "reset 1", "reset 2", "reset 3",
                                          "reset 100"])
            self.assertEqual(len({tuple(row) for row in rows.values()}), 1, text)
            self.assertIn("100 resets: memory is flat", text)

    def test_a_resident_set_is_copied_once(self):
        for place, words in self.places.items():
            text, rows = self.lines("resident_evaluation", place, words)
            self.assertEqual(list(rows), ["pass %d" % i for i in range(1, 11)])
            self.assertEqual(len({tuple(row) for row in rows.values()}), 1, text)
            (first,) = re.findall(r"(?m)^  (\S+) KiB copied, 512 of 512 samples kept$", text)
            self.assertIn("10 passes: %s KiB copied in all, 512 samples made" % first, text)
            self.assertEqual(place == "host", first == "0.0")

    def test_training_and_validation_stay_in_one_limit(self):
        for place, words in self.places.items():
            text, rows = self.lines("one_limit", place, words)
            limits = re.search(r"host (\S+) KiB, page-locked (\S+) KiB, device (\S+) KiB", text)
            for row in rows.values():
                for peak, limit in zip(row[1::2], limits.groups()):
                    self.assertLessEqual(peak, float(limit))
            self.assertEqual(list(rows), ["opened"] + [
                when % n for i in range(1, 5) for when, n in (("trained %d", 16 * i),
                                                              ("validated %d", 8 * i))])
            self.assertIn("64 steps of training, 32 batches of validation, never above", text)

    def test_memory_is_cleared_between_phases(self):
        for place, words in self.places.items():
            text, rows = self.lines("clear_between_phases", place, words)
            full, trimmed = rows["after phase 1"], rows["trimmed"]
            given = float(re.search(r"trim gave back (\S+) KiB", text)[1])
            self.assertAlmostEqual(given, full[0] - trimmed[0] + full[4] - trimmed[4], delta=64)
            self.assertEqual(rows["closed and trimmed"][::2], rows["nothing open"][::2])
            has = [float(word) for word in re.findall(r"the process has (\S+) KiB", text)]
            self.assertEqual(len(has), 4)
            if place == "host" and not SANITIZED:  # a driver has memory of its own
                for when, now in zip(("after phase 1", "trimmed", "closed"), has[1:]):
                    self.assertLess(now - has[0], rows[when][0] + 2048, when)

    def test_growth_begins_small_and_fixed_stays(self):
        for place, words in self.places.items():
            text, rows = self.lines("growth", place, words)
            fixed = [row for when, row in rows.items() if when.startswith("fixed: ")]
            self.assertEqual(fixed, [fixed[0]] * 4)
            grown = [row for when, row in rows.items() if when.startswith("grow: ")]
            self.assertEqual(len(grown), 4)
            self.assertLess(grown[0][0], fixed[0][0])
            planned = re.search(r"planned for both: host (\S+) KiB, device (\S+) KiB", text)
            self.assertEqual([fixed[0][0], fixed[0][4]], [float(word) for word in planned.groups()])
            self.assertIn("the same batches from both", text)

    def test_a_device_that_is_not_there_is_an_error(self):
        self.assertIn("opencl:7", self.bad(1, "growth", "opencl:7"))
        self.assertIn("BRIM_STATUS_INVALID", self.bad(1, "growth", "nonsense"))


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
        for words in (("--threads", "0", "--memory", "6MiB"), ("--threads", "3")):
            other = self.json("--epochs", "1", *words)
            self.assertEqual(other["accuracy"], whole["accuracy"], words)
            self.assertLessEqual(other["peak_charged_bytes"], other["budget_bytes"])
        others = [self.json("--epochs", "1", "--seed", seed)["accuracy"] for seed in "89"]
        self.assertNotEqual(others, [whole["accuracy"]] * 2)

    def test_files_are_images_of_many_sizes_in_a_folder_for_each_class(self):
        sizes = set()
        for name, count in (("train", SAMPLES), ("validation", SAMPLES // 4)):
            folder = pathlib.Path(self.data) / str(SAMPLES) / name
            self.assertEqual(sorted(os.listdir(folder)), list("0123456789"))
            files = sorted(folder.glob("*/*"))
            self.assertEqual(len(files), count)
            for file in files:
                content = file.read_bytes()
                self.assertEqual((content[:2], content[-2:]), (b"\xff\xd8", b"\xff\xd9"), file)
                start = content.index(b"\xff\xc0")  # where a JPEG says how large it is
                sizes.add(struct.unpack(">HH", content[start + 5:start + 9]))
            self.assertEqual(len({file.read_bytes() for file in files}), count)
        self.assertGreater(len(sizes), SAMPLES // 4)
        self.assertTrue(all(48 <= side <= 96 for size in sizes for side in size))

    def test_data_that_are_not_complete_are_drawn_again(self):
        data = self.folder / "cut"
        words = ("--data", str(data), "--samples", "640", "--epochs", "1")
        self.assertIn("drawn into", self.good("glyphs", *words))
        self.assertIn("found in", self.good("glyphs", *words))
        image = data / "640" / "train" / "7" / "0003.jpg"
        whole = image.read_bytes()
        for damage in (lambda: image.write_bytes(whole[:-1]), image.unlink,
                       (data / "640" / "bytes").unlink):
            damage()
            self.assertIn("drawn into", self.good("glyphs", *words))
            self.assertEqual(image.read_bytes(), whole)
        self.assertIn("found in", self.good("glyphs", *words))

    def test_shows_the_plan_and_a_line_for_each_epoch(self):
        text = self.good("glyphs", "--data", self.data, *self.FEW, "--epochs", "2",
                         stderr=subprocess.STDOUT)
        self.assertIn("training: folder ", text)
        self.assertIn("validation: folder ", text)
        for stage in ("folder", "shuffle", "decode", "random_resized_crop", "resize", "normalize",
                      "batch"):
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
    support.main()
