"""The promise kept by the kernel: runs inside memory control groups little larger than the budget.

A group of budget + 16 MiB (code, libc, tables of the kernel and a little page cache) reads files
many times as large. Nothing is killed and the batches are those of a run outside. Files are dropped
from the page cache before each run, so that the group pays for its own. As a check of the check, a
run that is allowed more than the group has is killed.

Groups are made below /sys/fs/cgroup/memory (v1) or /sys/fs/cgroup (v2), which takes root or a
delegated group; without, everything here is skipped.
"""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

from support import (CLI, LIMIT, MIB, SANITIZED, Case, main, write_npy, write_tokens)

V1 = pathlib.Path("/sys/fs/cgroup/memory")
V2 = pathlib.Path("/sys/fs/cgroup")
OUTSIDE = 16 * MIB
ROWS, ROW_BYTES = 4000, 49152  # 188 MiB of float32 samples
TOKENS = 100 * MIB  # 200 MiB, 16 bits each


class Group:
    """A memory control group: made here, removed by remove()."""

    def __init__(self, parent, version, name=None):
        self.version = version
        self.path = parent / (name or "brim-test-%d-%d" % (os.getpid(), time.monotonic_ns()))
        self.path.mkdir()

    def set_limit(self, limit):
        if self.version == 1:
            self.write("memory.limit_in_bytes", limit)
            self.try_write("memory.memsw.limit_in_bytes", limit)  # no way out into swap
        else:
            self.write("memory.max", limit)
            self.try_write("memory.swap.max", 0)

    def write(self, name, value):
        (self.path / name).write_text(str(value))

    def try_write(self, name, value):
        try:
            self.write(name, value)
        except OSError:
            pass

    def read(self, name):
        try:
            return (self.path / name).read_text()
        except OSError:
            return ""

    def killed(self):
        """How many processes of the group the kernel has killed for memory."""
        text = self.read("memory.oom_control" if self.version == 1 else "memory.events")
        found = re.search(r"^oom_kill (\d+)$", text, re.M)
        return int(found[1]) if found else 0

    def peak(self):
        text = self.read("memory.max_usage_in_bytes" if self.version == 1 else "memory.peak")
        return int(text) if text else 0

    def run(self, *words):
        """The command line inside the group, from its first byte on."""
        enter = 'echo $$ > "$0" && exec "$@"'
        return subprocess.run(
            ["sh", "-c", enter, self.path / "cgroup.procs", CLI, *map(str, words)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT)

    def remove(self):
        """The kernel lets go of a group some time after its last process has gone."""
        deadline = time.monotonic() + 60
        while True:
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def find_parent():
    """(folder to make groups in, version, None), or (None, 0, why there is none)."""
    why = "no memory control groups under /sys/fs/cgroup"
    for parent, version, file in ((V1, 1, "memory.limit_in_bytes"), (V2, 2, "memory.max")):
        if not (parent / "cgroup.procs").exists():
            continue
        try:
            group = Group(parent, version)
        except OSError as error:
            why = "no group can be made in %s: %s" % (parent, error.strerror)
            continue
        try:
            if not (group.path / file).exists():
                why = "%s hands no memory controller down" % parent
            elif group.run("version").returncode != 0:
                why = "no process may enter a group in %s" % parent
            else:
                return parent, version, None
        finally:
            group.remove()
    return None, 0, why


PARENT, VERSION, WHY_NOT = (None, 0, "a sanitizer takes memory of its own") if SANITIZED \
    else find_parent()


class Data:
    """The files, made once, and the digests of what is read from them without a group."""

    @classmethod
    def make(cls):
        holder = tempfile.TemporaryDirectory()
        unittest.addModuleCleanup(holder.cleanup)
        folder = pathlib.Path(holder.name)
        cls.files = (write_npy(folder / "x.npy", (ROWS, ROW_BYTES // 4)),
                     write_tokens(folder / "t.bin", TOKENS))
        for path in cls.files:
            with open(path, "rb") as file:
                os.fsync(file.fileno())  # what is not on disk cannot be dropped
        cls.array = "npy %s | shuffle seed=7 | batch 16" % cls.files[0]
        cls.tokens = "tokens %s length=16384 | shuffle seed=7 | batch 16" % cls.files[1]
        cls.mapped = "tokens %s length=16384 map=yes | batch 16" % cls.files[1]
        cls.digests = {}


def setUpModule():
    if WHY_NOT is None:
        Data.make()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class InGroup(Case):
    def drop_files(self):
        for path in Data.files:
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def group(self, limit, parent=None):
        group = Group(parent or PARENT, VERSION)
        self.addCleanup(group.remove)
        if limit is not None:
            group.set_limit(limit)
        return group

    def digest_outside(self, text):
        if text not in Data.digests:
            Data.digests[text] = self.digest(text)
        return Data.digests[text]

    def run_within(self, group, text, *words):
        """A whole epoch inside the group; its JSON."""
        self.drop_files()
        done = group.run("run", text, *words, "--digest", "--json")
        self.assertEqual(group.killed(), 0, "killed for memory")
        self.assertEqual(done.returncode, 0, done)
        ran = json.loads(done.stdout)
        self.assertEqual(ran["digest"], self.digest_outside(text))
        return ran


class Budget(InGroup):
    def check(self, text, budget, threads):
        least = self.good_json("plan", text, "--threads", threads)["minimum_bytes"]
        budget = budget or least
        group = self.group(budget + OUTSIDE)
        ran = self.run_within(group, text, "--memory", budget, "--threads", threads)
        self.assertLessEqual(ran["peak_charged_bytes"], budget)
        self.assertLessEqual(ran["peak_rss_bytes"], budget + OUTSIDE)
        self.assertLessEqual(group.peak(), budget + OUTSIDE)
        self.assertGreater(ran["bytes"], 7 * (budget + OUTSIDE), "too little data to tell")
        print("budget %d, %d threads: peak of the group %d, of the process %d, charged %d"
              % (budget, threads, group.peak(), ran["peak_rss_bytes"], ran["peak_charged_bytes"]))

    def test_npy_at_the_minimum(self):
        self.check(Data.array, None, 0)

    def test_npy_at_the_minimum_with_workers(self):
        self.check(Data.array, None, 2)

    def test_npy_in_8_mib(self):
        self.check(Data.array, 8 * MIB, 0)

    def test_npy_in_8_mib_with_workers(self):
        self.check(Data.array, 8 * MIB, 2)

    def test_tokens_at_the_minimum(self):
        self.check(Data.tokens, None, 0)

    def test_tokens_at_the_minimum_with_workers(self):
        self.check(Data.tokens, None, 2)

    def test_tokens_in_8_mib(self):
        self.check(Data.tokens, 8 * MIB, 0)

    def test_tokens_in_8_mib_with_workers(self):
        self.check(Data.tokens, 8 * MIB, 2)

    def test_mapped_files_too(self):
        # their pages are the kernel's to take back, so only the group can say that it is enough
        ran = self.run_within(self.group(8 * MIB + OUTSIDE), Data.mapped, "--memory=8MiB")
        self.assertLessEqual(ran["peak_charged_bytes"], 8 * MIB)

    def test_the_group_kills_who_takes_more(self):
        text = Data.array.replace("batch 16", "batch 1000")
        group = self.group(24 * MIB)
        done = group.run("run", text, "--memory=512MiB", "--threads=0")
        self.assertIn(done.returncode, (-9, 137), done)
        self.assertGreater(group.killed(), 0)


class Default(InGroup):
    """Without --memory: a quarter of what is free in the tightest group."""

    def check(self, group, limit, label):
        done = group.run("plan", Data.array, "--json")
        self.assertEqual(done.returncode, 0, done)
        plan = json.loads(done.stdout)
        self.assertLessEqual(plan["limit_bytes"], limit // 4)
        self.assertGreater(plan["limit_bytes"], limit // 4 - limit // 16)
        self.assertIn("a quarter of", plan["limit_origin"])
        self.assertIn("cgroup v%d" % VERSION, plan["limit_origin"])
        self.assertIn(label.path.name, plan["limit_origin"])
        self.assertIn("%d.0 MiB" % (limit // MIB), plan["limit_origin"])

    def test_a_quarter_of_the_group(self):
        for limit in (64 * MIB, 200 * MIB):
            group = self.group(limit)
            self.check(group, limit, group)

    def test_page_cache_counts_as_free(self):
        group = self.group(64 * MIB)
        self.run_within(group, Data.tokens, "--memory=8MiB")
        self.check(group, 64 * MIB, group)

    def test_the_tightest_group_counts(self):
        outer = self.group(64 * MIB)
        if VERSION == 2:
            outer.write("cgroup.subtree_control", "+memory")
        inner = self.group(None, outer.path)
        self.check(inner, 64 * MIB, outer)
        inner.set_limit(32 * MIB)
        self.check(inner, 32 * MIB, inner)

    def test_a_run_stays_within(self):
        for text in (Data.array, Data.tokens):
            group = self.group(48 * MIB)
            ran = self.run_within(group, text)
            self.assertLessEqual(ran["peak_charged_bytes"], ran["limit_bytes"])
            self.assertLessEqual(ran["limit_bytes"], 12 * MIB)

    def test_a_quarter_that_is_too_little_is_refused_not_killed(self):
        group = self.group(16 * MIB)
        text = Data.array.replace("batch 16", "batch 256")
        done = group.run("run", text, "--json")
        self.assertEqual(done.returncode, 3, done)
        self.assertEqual(group.killed(), 0)
        self.assertEqual(json.loads(done.stdout)["status"], "BRIM_STATUS_BUDGET")


if __name__ == "__main__":
    main()
