"""Tests of `brim inspect`: what it says of files and pipelines, and --verify on damaged ones.

Needs python3's standard library and BRIM_CLI, the path of the program.
"""

import json
import signal
import struct
import subprocess
import zipfile

from support import CLI, LIMIT, Case, brim, main, npy_header, start, write_npy


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
        self.assertEqual(told["status"], "BRIM_UNSUPPORTED")
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
        self.assertLessEqual(len(done.stdout.splitlines()), 12)

    def test_a_file_cut_short(self):
        path = self.folder / "x.npy"
        path.write_bytes(npy_header((100, 4)) + struct.pack("<100f", *range(100)))
        self.assertEqual(self.bad_json(1, "inspect", path)["status"], "BRIM_CORRUPT")

    def test_interrupted(self):
        process = start("inspect", "range 1000000000000", "--verify", "--json")
        try:
            process.communicate(timeout=1)
        except subprocess.TimeoutExpired:
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


if __name__ == "__main__":
    main()
