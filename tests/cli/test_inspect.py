"""Tests of `brim inspect`: what it says of files and pipelines, and --verify on damaged ones.

Needs python3's standard library and BRIM_CLI, the path of the program.
"""

import json
import signal
import struct
import subprocess
import zipfile
import zlib

from support import (CLI, LIMIT, Case, brim, catches, main, npy_header, seconds_worked, start,
                     write_npy)


def png(width, height):
    """A gray image."""
    def chunk(name, body):
        checksum = struct.pack(">I", zlib.crc32(name + body))
        return struct.pack(">I", len(body)) + name + body + checksum
    rows = b"".join(b"\0" + bytes((x * y) % 251 for x in range(width)) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Inspect(Case):
    def one(self, *words):
        told = self.good_json("inspect", *words)
        self.assertEqual(len(told["files"]), 1)
        return told["files"][0]

    def text(self, content, name="lines.txt"):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def test_an_array(self):
        path = write_npy(self.folder / "x.npy", (10, 3, 4))
        told = self.one(path)
        self.assertEqual(told["path"], str(path))
        self.assertEqual(told["bytes"], path.stat().st_size)
        self.assertEqual(told["samples"], 10)
        self.assertEqual(told["largest_sample_bytes"], 48)
        self.assertEqual(told["fields"], [{"name": "x", "dtype": "float32", "form": "dense",
                                           "shape": [3, 4]}])
        self.assertNotIn("verified", told)

    def test_the_pipeline_it_names_reads_the_file(self):
        path = write_npy(self.folder / "a name, with (odd) | signs.npy", (10, 3))
        told = self.one(path)
        ran = self.good_json("run", told["pipeline"])
        self.assertEqual(ran["samples"], 10)

    def test_lines_of_text(self):
        path = self.text(b"one\nthree\n\nx\n")
        told = self.one("text '%s' index=beside" % path, "--verify")
        self.assertEqual(told["samples"], 4)
        self.assertEqual(told["fields"], [{"name": "text", "dtype": "uint8", "form": "text",
                                           "shape": [5]}])
        self.assertEqual(told["largest_sample_bytes"], 5)
        self.assertEqual(told["verified"], {"samples": 4, "bad": 0, "errors": []})

    def test_what_people_see(self):
        path = write_npy(self.folder / "x.npy", (10, 3, 4))
        done = brim("inspect", path, "--verify")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(done.stdout.decode().splitlines(), [
            str(path),
            "  pipeline  npy %s" % path,
            "  size      %d B" % path.stat().st_size,
            "  samples   10",
            "  largest   48 B",
            "  field     x float32 3x4",
            "  verified  10 samples good, 0 bad"])

    def test_several_and_in_any_order(self):
        paths = [write_npy(self.folder / ("%d.npy" % i), (i + 1, 2)) for i in range(3)]
        told = self.good_json("inspect", paths[0], "--verify", paths[1], paths[2])
        self.assertEqual([one["samples"] for one in told["files"]], [1, 2, 3])
        self.assertEqual([one["verified"]["samples"] for one in told["files"]], [1, 2, 3])

    def test_a_pipeline(self):
        told = self.one("range 1000 | take 100", "--verify")
        self.assertNotIn("bytes", told)
        self.assertEqual((told["samples"], told["verified"]["samples"]), (100, 100))
        told = self.one("range 1000 | batch 64", "--verify")
        self.assertEqual((told["verified"]["samples"], told["largest_sample_bytes"]), (1000, 8))

    def test_what_is_not_there_and_what_nobody_knows(self):
        told = self.bad_json(1, "inspect", self.folder / "none.npy")
        self.assertIn("none.npy", told["error"])
        self.assertEqual(told["files"][0]["error"], told["error"])
        told = self.bad_json(1, "inspect", self.text(b"\0\1\2\3", "odd.xyz"))
        self.assertEqual(told["status"], "BRIM_STATUS_UNSUPPORTED")
        self.assertEqual(brim("inspect").returncode, 2)

    def test_a_bad_file_does_not_hide_the_others(self):
        good = write_npy(self.folder / "x.npy", (10, 3))
        done = brim("inspect", self.folder / "none.npy", good, "--json")
        self.assertEqual(done.returncode, 1, done)
        told = json.loads(done.stdout)["files"]
        self.assertIn("error", told[0])
        self.assertEqual(told[1]["samples"], 10)
        done = brim("inspect", self.folder / "none.npy", good)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(b"samples   10", done.stdout)

    def test_no_budget(self):
        path = write_npy(self.folder / "x.npy", (10, 3))
        self.assertEqual(brim("inspect", path, "--memory=1").returncode, 3)

    def test_one_byte_that_no_text_has(self):
        lines = [b"line %d" % i for i in range(1000)]
        for bad in (0, 500, 999):
            damaged = list(lines)
            damaged[bad] = b"\xff"
            path = self.text(b"\n".join(damaged) + b"\n", "%d.txt" % bad)
            done = brim("inspect", "text '%s' index=beside" % path, "--verify", "--json")
            with self.subTest(bad=bad):
                self.assertEqual(done.returncode, 1, done)
                told = json.loads(done.stdout)["files"][0]["verified"]
                self.assertEqual((told["samples"], told["bad"]), (999, 1))
                self.assertEqual(len(told["errors"]), 1)
                self.assertIn("%d.txt" % bad, told["errors"][0])

    def test_more_bad_samples_than_are_told(self):
        path = self.text(b"\xff\n" * 3000 + b"good\n")
        done = brim("inspect", "text '%s' index=beside" % path, "--verify")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(b"1 samples good, 3,000 bad", done.stdout)
        shown = [line for line in done.stdout.splitlines() if b"record " in line]
        self.assertEqual(len(set(shown)), len(shown))
        self.assertLessEqual(len(shown), 20)
        self.assertIn(b"and %s more" % format(3000 - len(shown), ",").encode(), done.stdout)

    def test_a_file_cut_short(self):
        path = self.folder / "x.npy"
        path.write_bytes(npy_header((100, 4)) + struct.pack("<100f", *range(100)))
        self.assertEqual(self.bad_json(1, "inspect", path)["status"], "BRIM_STATUS_CORRUPT")

    def test_interrupted(self):
        process = start("inspect", "range 1000000000000", "--verify", "--json")
        self.wait_for("it does not begin", lambda: catches(process, signal.SIGINT))
        before = seconds_worked(process)
        self.wait_for("it does nothing", lambda: seconds_worked(process) > before + 0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
        self.assertEqual((process.returncode, err), (130, b""))
        self.assertGreater(json.loads(out)["files"][0]["verified"]["samples"], 0)

    def test_a_stream(self):
        done = subprocess.run([CLI, "inspect", "text -", "--verify", "--json"], input=b"a\nb\n",
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done)
        told = json.loads(done.stdout)["files"][0]
        self.assertEqual(told["pipeline"], "text -")
        self.assertIsNone(told["samples"])
        self.assertEqual(told["verified"]["samples"], 2)

    def test_streams_are_opened_once(self):
        rows = b"a,b\n" + b"".join(b"%d,2\n" % i for i in range(1000))
        for text in ("csv -", "csv - | batch 7", "csv /dev/stdin", 'csv - | filter "b == 2"'):
            done = subprocess.run([CLI, "inspect", text, "--verify", "--json"], input=rows,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT)
            with self.subTest(text=text):
                self.assertEqual(done.returncode, 0, done)
                told = json.loads(done.stdout)["files"][0]
                self.assertEqual(told["pipeline"].split(" |")[0], text.split(" |")[0])
                self.assertEqual([field["name"] for field in told["fields"]], ["a", "b"])
                self.assertEqual(told["verified"]["samples"], 1000)

    def test_a_bad_sample_of_a_stream(self):
        done = subprocess.run([CLI, "inspect", "text -", "--verify", "--json"],
                              input=b"a\n\xff\nb\n", stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=LIMIT)
        self.assertEqual(done.returncode, 1, done)
        told = json.loads(done.stdout)["files"][0]["verified"]
        self.assertEqual((told["samples"], told["bad"]), (2, 1))

    def test_several_arrays_in_a_file(self):
        path = self.folder / "two.npz"
        with zipfile.ZipFile(path, "w") as file:
            for name in ("first", "second"):
                file.writestr(name + ".npy", npy_header((3,)) + bytes(12))
        told = self.one(path, "--verify")
        self.assertEqual((told["samples"], told["verified"]["samples"]), (3, 3))
        self.assertIn("first, second", told["note"])
        path = self.folder / "two.safetensors"
        header = json.dumps({name: {"dtype": "F32", "shape": [2], "data_offsets": [at, at + 8]}
                             for name, at in (("first", 0), ("second", 8))}).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
        told = self.one(path)
        self.assertIn("'first', 'second'", told["note"])
        self.assertNotIn("samples", told)
        done = brim("inspect", path)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn(b"  note      ", done.stdout)
        self.bad_json(2, "inspect", path, "--verify")

    def test_a_pipeline_with_batches_of_its_own(self):
        path = self.text(b"\xff\ngood\n" * 5 + b"good\n")
        for more in ("batch 4", "batch 4 max_errors=1 on_error=skip", "batch 4 on_error=replace",
                     "batch 4 remainder=drop", "shuffle | batch 4 micro=2",
                     "pack_sequences 8 | batch 2", "pad on=text | bucket 64",
                     "pad on=text | bucket 64 on_error=skip max_errors=0"):
            done = brim("inspect", "text '%s' index=beside | %s" % (path, more), "--verify",
                        "--json")
            with self.subTest(more=more):
                self.assertEqual(done.returncode, 1, done)
                told = json.loads(done.stdout)["files"][0]
                self.assertIn(more.split()[-2], told["pipeline"])
                told = told["verified"]
                self.assertEqual((told["samples"], told["bad"]), (6, 5))
                self.assertEqual(len(set(told["errors"])), len(told["errors"]))


class Images(Case):
    def setUp(self):
        super().setUp()
        self.images = self.folder / "data"
        self.cache = ("--index-dir", self.folder / "cache")

    def put(self, name, content):
        path = self.images / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def verified(self, subject):
        done = brim("inspect", subject, "--verify", "--json", *self.cache)
        told = json.loads(done.stdout)["files"][0]["verified"]
        self.assertEqual(done.returncode, 1 if told["bad"] > 0 else 0, done)
        return told

    def test_a_folder(self):
        for name in ("dog/1.png", "cat/1.png", "cat/2.png"):
            self.put(name, png(20, 10))
        done = brim("inspect", self.images, *self.cache)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(done.stdout.decode().splitlines(), [
            str(self.images),
            "  pipeline  folder %s" % self.images,
            "  samples   3",
            "  largest   %d B" % (len(png(20, 10)) + 8),
            "  field     image bytes <=%d" % len(png(20, 10)),
            "  field     label int64 scalar",
            "  classes   2 of label: cat, dog"])
        told = self.good_json("inspect", self.images, *self.cache)["files"][0]
        self.assertNotIn("bytes", told)
        self.assertEqual([field.get("classes") for field in told["fields"]],
                         [None, ["cat", "dog"]])

    def test_many_classes(self):
        for i in range(25):
            self.put("c%02d/1.png" % i, png(2, 2))
        shown = brim("inspect", self.images, *self.cache).stdout.decode()
        self.assertRegex(shown, r"classes   25 of label: c00, c01, .*, c19 and 5 more\n")
        told = self.good_json("inspect", self.images, *self.cache)["files"][0]
        self.assertEqual(len(told["fields"][1]["classes"]), 25)

    def test_damage_is_found_by_decoding(self):
        for i in range(30):
            self.put("a/%d.png" % i, png(64, 48))
        self.assertEqual(self.verified(self.images), {"samples": 30, "bad": 0, "errors": []})
        bad = {"a/text.jpg": b"not an image", "b/cut.png": png(64, 48)[:200], "b/empty.png": b"",
               "b/cut.jpg": b"\xff\xd8\xff\xe0"}
        bad.update(("c/%d.webp" % i, b"RIFF") for i in range(20))
        for name, content in bad.items():
            self.put(name, content)
        for subject in (self.images, "folder '%s'" % self.images,
                        "folder '%s' | shuffle | batch 8" % self.images,
                        "folder '%s' | decode | resize 8 8 | batch 8" % self.images):
            with self.subTest(subject=subject):
                told = self.verified(subject)
                self.assertEqual((told["samples"], told["bad"]), (30, len(bad)))
                # one and only one for each
                named = sorted(name for text in told["errors"] for name in bad if name in text)
                self.assertEqual(named, sorted(bad))
                self.assertEqual(len(told["errors"]), len(bad))
        done = brim("inspect", self.images, "--verify", *self.cache)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(b"30 samples good, 24 bad", done.stdout)
        self.assertIn(b"and 4 more, more of them with --json", done.stdout)

    def test_bytes_that_are_no_images_by_name_are_not_decoded(self):
        self.put("a/x.bin", b"anything")
        told = self.verified("folder '%s' extensions=bin" % self.images)
        self.assertEqual(told, {"samples": 1, "bad": 0, "errors": []})

    def test_the_index_of_a_folder(self):
        for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
            self.put(name, png(20, 10))
        told = self.good_json("index", self.images, *self.cache)["files"][0]["indexes"][0]
        self.assertEqual((told["files"], told["classes"]), (3, 2))
        self.assertNotIn("largest_bytes", told)  # that of a path
        shown = brim("index", self.images, *self.cache).stdout.decode()
        self.assertIn("  files    3\n  classes  2\n  index    ", shown)

    def test_one_image(self):
        path = self.put("a/1.png", png(20, 10))
        told = self.bad_json(1, "inspect", path)
        self.assertEqual(told["status"], "BRIM_STATUS_UNSUPPORTED")
        self.assertIn("a PNG image of 20 x 10 pixels", told["error"])
        self.assertIn("folder \"%s\" | decode" % path.parent, told["error"])
        self.assertIn("files ", told["error"])
        told = self.bad_json(1, "inspect", self.put("a/2.jpg", b"not an image"))
        self.assertIn("2.jpg: is not a JPEG", told["error"])


if __name__ == "__main__":
    main()
