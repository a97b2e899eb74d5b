"""Tests of indexes through the command line: made ahead of time and on the way, killed in the
middle, stale, damaged, in little memory.

Needs python3's standard library and BRIM_CLI, the path of the program.
"""

import json
import os
import random
import signal
import subprocess
import time
import unittest

import support
from support import CLI, MIB, brim

LINES = 30000 if support.SANITIZED else 300000


def write_lines(path, count, seed=1):
    """Lines of 3 to 40 characters, each of which names its number."""
    draw = random.Random(seed)
    with open(path, "w") as file:
        for first in range(0, count, 10000):
            file.write("".join("%d %s\n" % (i, "x" * draw.randrange(1, 34))
                               for i in range(first, min(count, first + 10000))))
    return path


class Index(support.Case):
    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"
        self.text = self.folder / "lines.txt"

    def in_cache(self, ending="*"):
        return sorted((self.cache / "index").glob(ending)) if self.cache.exists() else []

    def run_digest(self, *words, options=""):
        return self.digest("text %s %s | shuffle seed=3 | batch 100" % (self.text, options),
                           "--index-dir", self.cache, "--steps", 20, *words)

    def test_what_is_no_file_is_a_pipeline_if_it_begins_like_one(self):
        for command in "index", "inspect":
            for subject, said in (("npy x |", "there is no stage after '|'"),
                                  ("npy x | shufle", "did you mean 'shuffle'"),
                                  ("no file.csv", "no file.csv: cannot be opened")):
                done = brim(command, subject)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(said, done.stderr.decode())

    def test_it_says_where_and_what(self):
        self.text.write_bytes(b"\xef\xbb\xbfone\r\nlonger\n\nlast")
        told = self.good_json("index", self.text, "--index-dir", self.cache)["files"]
        self.assertEqual(len(told), 1)
        self.assertEqual(told[0]["path"], str(self.text))
        self.assertEqual(told[0]["pipeline"], "text %s" % self.text)
        index, = told[0]["indexes"]
        self.assertEqual([index["index"]], [str(path) for path in self.in_cache()])
        self.assertEqual(index["index_bytes"], os.path.getsize(index["index"]))
        self.assertEqual(index["data_bytes"], self.text.stat().st_size)
        self.assertEqual((index["records"], index["largest_bytes"]), (4, 6))
        self.assertTrue(index["made"])
        again = self.good_json("index", self.text, "--index-dir", self.cache, "--verify")
        self.assertFalse(again["files"][0]["indexes"][0]["made"])
        self.assertTrue(again["files"][0]["verified"])

        said = brim("index", "text %s index=beside" % self.text, "--verify").stdout.decode()
        self.assertIn("records  4 in 20 B", said)
        self.assertIn("%s.text.brimidx, 8.0 KiB, made now, verified" % self.text, said)

    def test_files_that_need_none_and_files_that_fail(self):
        array = support.write_npy(self.folder / "x.npy", (4, 2))
        self.assertIn(b"needs no index", brim("index", array).stdout)
        self.text.write_text("a\n")
        done = brim("index", self.folder / "none.txt", self.text, "--json", "--index-dir",
                    self.cache)
        self.assertEqual(done.returncode, 1)
        told = json.loads(done.stdout)
        self.assertEqual(told["status"], "BRIM_STATUS_IO")
        self.assertEqual([file.get("status") for file in told["files"]], ["BRIM_STATUS_IO", None])

    def test_the_environment_names_the_cache_for_the_command_line(self):
        write_lines(self.text, 10)
        environment = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "xdg"))
        self.assertEqual(brim("index", self.text, env=environment).returncode, 0)
        self.assertEqual(len(list((self.folder / "xdg" / "brim" / "index").iterdir())), 1)
        environment["XDG_CACHE_HOME"] = "not/absolute"
        environment["HOME"] = str(self.folder)  # not what decides
        self.assertEqual(brim("index", self.text, "--index-dir", self.cache,
                              env=environment).returncode, 0)
        self.assertEqual(len(self.in_cache()), 1)

    def test_a_changed_file_is_indexed_anew(self):
        self.text.write_text("a\nb\nc\n")
        pipeline = "text %s | batch 2" % self.text
        self.assertEqual(self.good_json("plan", pipeline, "--index-dir", self.cache)["samples"], 3)
        with open(self.text, "a") as file:
            file.write("d\n")
        self.assertEqual(self.good_json("plan", pipeline, "--index-dir", self.cache)["samples"], 4)
        self.text.write_text("aaa\nbbb\n")  # as long as before
        os.utime(self.text, ns=(1, 1))
        self.assertEqual(self.good_json("plan", pipeline, "--index-dir", self.cache)["samples"], 2)
        self.text.write_text("a\nb\nccc\n")
        os.utime(self.text, ns=(1, 2))
        self.assertEqual(self.good_json("plan", pipeline, "--index-dir", self.cache)["samples"], 3)
        self.assertEqual(len(self.in_cache()), 1)

    def test_damage_never_gives_other_samples(self):
        write_lines(self.text, 3000)
        pipeline = "text %s | batch 10" % self.text
        words = ("run", pipeline, "--index-dir", self.cache, "--digest", "--json")
        good = json.loads(brim(*words).stdout)["digest"]
        path, = self.in_cache()
        whole = path.read_bytes()
        draw = random.Random(5)
        failed = 0
        for case in range(40):
            content = bytearray(whole)
            if case % 4 == 0:
                del content[draw.randrange(len(content)):]
            else:
                content[draw.randrange(len(content))] ^= draw.randrange(1, 256)
            path.write_bytes(content)
            verified = brim("index", "text %s" % self.text, "--index-dir", self.cache, "--verify")
            path.write_bytes(content)
            done = brim(*words)
            self.assertIn(done.returncode, (0, 1))
            self.assertEqual(done.returncode, verified.returncode)
            if done.returncode == 0:
                self.assertEqual(json.loads(done.stdout)["digest"], good)
            else:
                failed += 1
                self.assertIn(b"delete it", done.stderr)
                self.assertIn(str(path).encode(), done.stderr)
        self.assertGreater(failed, 5)

    def test_killed_at_any_moment(self):
        write_lines(self.text, LINES)
        good = self.run_digest()
        path, = self.in_cache()
        took = []
        for _ in range(3):
            path.unlink()
            began = time.monotonic()
            self.assertEqual(brim("index", self.text, "--index-dir", self.cache).returncode, 0)
            took.append(time.monotonic() - began)
        draw = random.Random(7)
        whole = 0
        for _ in range(30):
            for left in self.in_cache():
                left.unlink()
            child = support.start("index", self.text, "--index-dir", self.cache)
            time.sleep(draw.random() * min(took))
            child.kill()
            child.communicate()
            there = path.exists()
            whole += there
            self.assertLessEqual(len(self.in_cache("*.brimidx")), 1)
            told = self.good_json("index", self.text, "--index-dir", self.cache, "--verify")
            index, = told["files"][0]["indexes"]
            self.assertEqual(index["made"], not there)
            self.assertEqual(index["records"], LINES)
            self.assertEqual(self.run_digest(), good)
        self.assertLess(whole, 30)

    def test_several_processes_at_once(self):
        write_lines(self.text, LINES)
        good = self.run_digest()
        for _ in range(3):
            for left in self.in_cache():
                left.unlink()
            words = ("run", "text %s | shuffle seed=3 | batch 100" % self.text, "--index-dir",
                     self.cache, "--steps", 20, "--digest", "--quiet")
            children = [support.start(*words) for _ in range(3)]
            for child in children:
                said, wrong = child.communicate(timeout=support.LIMIT)
                self.assertEqual((child.returncode, wrong), (0, b""))
                self.assertIn(good.encode(), said)
            self.assertEqual(len(self.in_cache()), 1)

    @unittest.skipIf(support.SANITIZED, "takes long")
    def test_a_signal_leaves_nothing_behind(self):
        write_lines(self.text, 10 * LINES)
        seen = 0
        for _ in range(20):
            for left in self.in_cache():
                left.unlink()
            child = support.start("index", self.text, "--index-dir", self.cache)
            while not self.in_cache() and child.poll() is None:
                time.sleep(0.001)
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=support.LIMIT)
            self.assertIn(child.returncode, (0, 128 + signal.SIGINT))
            self.assertEqual(self.in_cache("*.tmp"), [])
            if child.returncode != 0:
                seen += 1
                self.assertEqual(self.in_cache(), [])
            if seen > 2:
                return
        self.skipTest("the index was always made before the signal came")

    def test_places_that_cannot_be_written(self):
        write_lines(self.text, 100)
        told = self.bad_json(1, "plan", "text %s" % self.text, "--index-dir", self.text / "below")
        self.assertEqual(told["status"], "BRIM_STATUS_IO")
        self.assertIn("index=beside", told["said"])
        self.assertIn("--index-dir", told["said"])
        if os.geteuid() == 0:
            return  # who may write everywhere
        self.folder.chmod(0o500)
        self.addCleanup(self.folder.chmod, 0o700)
        told = self.bad_json(1, "plan", "text %s index=beside" % self.text)
        self.assertIn("index=cache", told["said"])

    def test_a_read_only_place_with_an_index_is_enough(self):
        write_lines(self.text, 5000)
        good = self.run_digest(options="index=beside")
        self.folder.chmod(0o500)
        self.addCleanup(self.folder.chmod, 0o700)
        self.assertEqual(self.run_digest(options="index=beside"), good)

    def test_the_least_memory_makes_the_same_index(self):
        write_lines(self.text, LINES)
        good = self.run_digest()
        path, = self.in_cache()
        content = path.read_bytes()
        pipeline = "text %s | shuffle seed=3 | batch 100" % self.text
        least = self.good_json("plan", pipeline, "--index-dir", self.cache)["minimum_bytes"]
        path.unlink()
        self.assertEqual(self.run_digest("--memory", least), good)
        self.assertEqual(path.read_bytes(), content)

    def test_standard_input(self):
        write_lines(self.text, 5000)
        words = [CLI, "run", "text - | batch 100", "--digest", "--json"]
        by_pipe = subprocess.run(words, input=self.text.read_bytes(), stdout=subprocess.PIPE,
                                 timeout=support.LIMIT, check=True).stdout
        with open(self.text, "rb") as file:
            by_file = subprocess.run(words, stdin=file, stdout=subprocess.PIPE,
                                     timeout=support.LIMIT, check=True).stdout
        self.assertEqual(json.loads(by_pipe)["digest"], json.loads(by_file)["digest"])
        self.assertEqual(json.loads(by_pipe)["samples"], 5000)
        said = subprocess.run([CLI, "cat", "text -"], input=b"a\nb\r\n\nc", stdout=subprocess.PIPE,
                              timeout=support.LIMIT, check=True).stdout.decode()
        self.assertEqual([line.split('"')[1] for line in said.splitlines()], ["a", "b", "", "c"])

    @unittest.skipIf(support.SANITIZED, "takes long, and sanitizers take memory of their own")
    def test_twenty_million_lines_in_8_mib(self):
        count = 20000000
        with open(self.text, "wb") as file:
            for first in range(0, count, 1000000):
                file.write(b"".join(b"%09d\n" % i for i in range(first, first + 1000000)))
        words = ("text %s | shuffle seed=1 | batch 512" % self.text, "--memory", "8MiB",
                 "--index-dir", self.cache)
        for made in (True, False):
            self.assertEqual(len(self.in_cache()), 0 if made else 1)
            told = self.good_json("run", *words, "--steps", 200)
            self.assertEqual(told["samples"], 200 * 512)
            self.assertLessEqual(told["peak_charged_bytes"], 8 * MIB)
            self.assertLess(told["peak_rss_bytes"], 12 * MIB)
        plan = self.good_json("plan", *words)
        self.assertEqual(plan["samples"], count)
        self.assertLess(plan["fixed_bytes"], MIB)


if __name__ == "__main__":
    support.main()
