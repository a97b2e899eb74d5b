"""The sources `folder` and `files` through the command line, against a Python re-implementation of
how torchvision's ImageFolder finds its samples.

A file's content is its own path, so that what comes out says where it came from. Needs python3's
standard library and BRIM_CLI, the path of the program.
"""

import base64
import contextlib
import csv
import fcntl
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import termios
import time
import unittest

import support
from support import brim

EXTENSIONS = (b".jpg", b".jpeg", b".png", b".webp")


def image_folder(root):
    """Paths and labels in torchvision's order, without what is hidden: make_dataset."""
    root = os.fsencode(root)
    classes = sorted(entry.name for entry in os.scandir(root)
                     if entry.is_dir() and not entry.name.startswith(b"."))
    samples = []
    for label, name in enumerate(classes):
        walked = []
        for directory, below, files in os.walk(os.path.join(root, name), followlinks=True):
            below[:] = [each for each in below if not each.startswith(b".")]
            walked.append((directory, files))
        for directory, files in sorted(walked):
            for file in sorted(files):
                if file.lower().endswith(EXTENSIONS) and not file.startswith(b"."):
                    samples.append((os.path.join(directory, file), label))
    return samples


class Case(support.Case):
    def setUp(self):
        super().setUp()
        self.root = self.folder / "data"
        self.cache = self.folder / "cache"

    def put(self, name):
        path = os.path.join(os.fsencode(self.root), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(path)

    def listed(self, pipeline, *words):
        """(content of the image, label) of all samples."""
        done = brim("cat", pipeline, "--json", "--index-dir", self.cache, *words)
        self.assertEqual(done.returncode, 0, done)
        samples = [json.loads(line)["fields"] for line in done.stdout.splitlines()]
        return [(base64.b64decode(sample["image"]["base64"]), sample.get("label"))
                for sample in samples]

    def in_cache(self, ending):
        return sorted((self.cache / "index").glob("*" + ending))


class Folder(Case):
    def test_order_and_labels(self):
        draw = random.Random(5)
        pieces = [b"a", b"b", b"a-b", b"a.b", b"A", b"10", b"9", b"a b", b"\xc3\xa9", b"n\nl",
                  b"_", b"~", b"0", b"a0", b"b'"]
        for _ in range(300):
            depth = draw.randrange(1, 5)
            directory = b"/".join(draw.choice(pieces) for _ in range(depth))
            ending = draw.choice([b".jpg", b".JPEG", b".png", b".webp", b".txt", b".gz"])
            self.put(directory + b"/" + draw.choice(pieces) + ending)
        for name in pieces:
            self.put(name + b"/z.jpg")
        self.put(".hidden/x.jpg")
        self.put("a/.x.jpg")
        self.put("loose.jpg")
        wanted = image_folder(self.root)
        self.assertGreater(len(wanted), 100)
        self.assertEqual(self.listed("folder %s" % self.root), wanted)
        self.assertEqual(self.listed("folder %s" % self.root), wanted)
        # in little memory, and whatever the budget, the order is the same
        self.assertEqual(self.listed("folder %s probe=no" % self.root, "--memory", "2MiB"), wanted)

    def test_changes(self):
        for name in ("a/1.jpg", "a/2.jpg", "b/sub/3.jpg"):
            self.put(name)
        pipeline = "folder %s" % self.root
        self.assertEqual(self.listed(pipeline), image_folder(self.root))
        listing, = self.in_cache(".brimlst")
        made = listing.stat()
        self.assertEqual(self.listed(pipeline), image_folder(self.root))
        self.assertEqual(listing.stat().st_mtime_ns, made.st_mtime_ns)
        self.assertEqual(listing.stat().st_ino, made.st_ino)
        changes = [lambda: self.put("b/sub/0.jpg"),
                   lambda: os.remove(self.root / "a/1.jpg"),
                   lambda: os.rename(self.root / "a/2.jpg", self.root / "a/20.jpg"),
                   lambda: self.put("aa/new.jpg"),
                   lambda: os.rename(self.root / "aa", self.root / "zz")]
        for change in changes:
            change()
            # a renamed file still holds the path that it had
            wanted = [(pathlib.Path(os.fsdecode(path)).read_bytes(), label)
                      for path, label in image_folder(self.root)]
            self.assertEqual(self.listed(pipeline), wanted)
        self.assertEqual(len(self.in_cache(".brimlst")), 1)

    def test_shuffle_split_and_balance_work_as_ever(self):
        for i in range(60):
            self.put("%s/%02d.jpg" % ("rare" if i % 6 == 0 else "usual", i))
        everything = image_folder(self.root)
        shuffled = self.listed("folder %s | shuffle seed=3" % self.root)
        self.assertNotEqual(shuffled, everything)
        self.assertEqual(sorted(shuffled), sorted(everything))
        parts = [self.listed("folder %s | shuffle seed=3 | %s" % (self.root, stage))
                 for stage in ("take 20", "skip 20")]
        self.assertEqual(parts[0] + parts[1], shuffled)
        balanced = self.listed("folder %s | balance label=label" % self.root)
        labels = [label for _, label in balanced]
        self.assertEqual(labels.count(0), labels.count(1))

    def test_the_same_data_elsewhere_are_the_same(self):
        for i in range(10):
            self.put("%d/%d.jpg" % (i % 2, i))
        plan = self.good_json("plan", "folder %s" % self.root, "--index-dir", self.cache)
        moved = self.folder / "moved"
        shutil.move(self.root, moved)
        again = self.good_json("plan", "folder %s" % moved, "--index-dir", self.cache)

        def fingerprint(told):
            return json.dumps(told).split('"data')[1].split(",")[0]
        self.assertEqual(fingerprint(plan), fingerprint(again))

    def test_changes_whose_times_are_set_back(self):
        self.put("a/1.jpg")
        self.put("b/2.jpg")
        pipeline = "folder %s" % self.root
        self.assertEqual(self.listed(pipeline), image_folder(self.root))
        before = os.stat(self.root / "a")
        self.put("a/0.jpg")
        os.utime(self.root / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
        self.assertEqual(self.listed(pipeline), image_folder(self.root))

    def test_what_is_left_out_is_said(self):
        for name in ("a/1.jpg", "b/2.jpg", "loose.jpg", "loose.png", "note.txt"):
            self.put(name)
        told = brim("plan", "folder %s" % self.root, "--index-dir", self.cache).stdout.decode()
        self.assertIn("; 2 images beside the classes are left out; 2 are no images", told)
        told = brim("plan", "folder %s probe=no classes=no" % self.root, "--index-dir", self.cache)
        self.assertEqual(told.returncode, 0, told)
        self.assertNotIn(b"left out", told.stdout)
        self.assertNotIn(b"no images", told.stdout)

    def test_a_bad_sample_is_named_once_and_as_it_was_written(self):
        self.put("a/1.jpg")
        (self.root / "a" / "2.jpg").symlink_to("nowhere")
        told = brim("run", "folder data", "--index-dir", self.cache, cwd=self.folder)
        self.assertEqual(told.stderr.count(b"2.jpg"), 1, told.stderr)
        self.assertIn(b": data/a/2.jpg: cannot be opened", told.stderr)

    @unittest.skipIf(support.SANITIZED, "too slow for the files that it needs")
    def test_progress_counts_files(self):
        controller, terminal = support.open_terminal(self)
        os.set_blocking(controller, False)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 400, 0, 0))
        for i in range(2000):
            self.put("0/%d.jpg" % i)
        shown = b""
        for i in range(1, 1000):
            (self.root / str(i)).symlink_to("0")  # as many files again
            if i not in (50, 200, 999):
                continue
            with subprocess.Popen([support.CLI, "run", "folder %s | take 1" % self.root,
                                   "--index-dir", self.cache], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=terminal) as process:
                done = False
                while not done:
                    done = process.poll() is not None  # what is read now is the last
                    with contextlib.suppress(BlockingIOError):
                        while True:
                            shown += os.read(controller, 65536)
                    time.sleep(0.01)
            if b"listing " in shown or b"looking at " in shown:
                break
        os.close(controller)
        os.close(terminal)
        lines = [line for line in re.split(rb"[\r\n]", shown)
                 if line.startswith((b"listing ", b"looking at "))]
        self.assertGreater(len(lines), 0)
        for line in lines:
            self.assertRegex(line, rb", [0-9,]+( of [0-9,]+)? files")

    def test_refusals(self):
        self.put("a/1.gif")
        told = self.bad_json(2, "plan", "folder %s" % self.root, "--index-dir", self.cache)
        self.assertIn("1.gif", told["error"])
        told = self.bad_json(1, "plan", "folder %s/none" % self.root, "--index-dir", self.cache)
        self.assertIn("no such directory", told["error"])

    def test_links(self):
        self.put("a/1.jpg")
        (self.root / "b").symlink_to("a")
        (self.root / "a" / "loop").symlink_to("..")
        contents = self.listed("folder %s" % self.root)
        # through loop the root's other directories are met, but never one on the way down
        self.assertEqual(len(contents), 2)
        self.assertEqual({label for _, label in contents}, {0, 1})
        self.assertEqual(len(self.listed("folder %s links=no" % self.root)), 1)

    @unittest.skipIf(support.SANITIZED, "counts calls of the system")
    def test_the_second_opening_reads_no_directory(self):
        if shutil.which("strace") is None:
            self.skipTest("strace is not installed")
        for i in range(50):
            self.put("%d/%d.jpg" % (i % 5, i))
        counts = []
        for _ in range(2):
            log = self.folder / "log"
            done = subprocess.run(["strace", "-f", "-e", "trace=getdents64", "-o", log,
                                   support.CLI, "plan", "folder %s" % self.root,
                                   "--index-dir", self.cache], capture_output=True)
            if b"ptrace" in done.stderr:
                self.skipTest("nothing can be traced here")
            counts.append(log.read_text().count("getdents64("))
        self.assertGreaterEqual(counts[0], 6)
        self.assertEqual(counts[1], 0)


class Files(Case):
    def test_manifests(self):
        names = ["x/%d.jpg" % i for i in range(20)]
        for name in names:
            self.put(name)
        table = self.root / "m.csv"
        with open(table, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["image", "label", "note"])
            writer.writerows([name, i % 3, "a, b"] for i, name in enumerate(names))
        wanted = [(os.fsencode(self.root / name), i % 3) for i, name in enumerate(names)]
        self.assertEqual(self.listed("files %s" % table), wanted)
        lines = self.folder / "m.jsonl"
        lines.write_text("".join(json.dumps({"image": name, "label": i % 3}) + "\n"
                                 for i, name in enumerate(names)))
        self.assertEqual(self.listed("files %s root=%s" % (lines, self.root)), wanted)
        self.assertEqual(sorted(self.listed("files %s | shuffle seed=1" % table)), sorted(wanted))

    def test_a_file_that_is_missing_is_named(self):
        table = self.folder / "m.csv"
        table.write_text("path\nnowhere.jpg\n")
        told = self.bad_json(1, "run", "files %s" % table, "--index-dir", self.cache)
        self.assertIn("nowhere.jpg", told["error"])


if __name__ == "__main__":
    support.main()
