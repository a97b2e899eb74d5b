"""Tests of `brim cat`: lines, JSON and .npy files against what was written into the data.

Needs python3's standard library and BRIM_CLI, the path of the program; with numpy, the .npy files
are also read by it.
"""

import base64
import json
import math
import os
import pathlib
import random
import signal
import struct
import subprocess
import unittest

from support import CLI, LIMIT, Case, brim, catches, main, npy_header, start

try:
    import numpy
except ImportError:
    numpy = None

CODES = {"|b1": "?", "|u1": "B", "|i1": "b", "<u2": "H", "<i2": "h", "<u4": "I", "<i4": "i",
         "<u8": "Q", "<i8": "q", "<f2": "e", "<f4": "f", "<f8": "d"}


def read_npy(path):
    """(dtype, shape, flat values) of an .npy file, which must end where its shape says."""
    content = pathlib.Path(path).read_bytes()
    assert content[:8] == b"\x93NUMPY\x01\x00", content[:8]
    (length,) = struct.unpack_from("<H", content, 8)
    assert (10 + length) % 64 == 0 and content[9 + length:10 + length] == b"\n"
    header = eval(content[10:10 + length], {})
    assert header["fortran_order"] is False
    count = math.prod(header["shape"])
    values = struct.unpack("<%d%s" % (count, CODES[header["descr"]]), content[10 + length:])
    return header["descr"], header["shape"], list(values)


class Cat(Case):
    def write(self, name, dtype, shape, values):
        path = self.folder / name
        path.write_bytes(npy_header(shape, dtype) +
                         struct.pack("<%d%s" % (len(values), CODES[dtype]), *values))
        return path

    def text(self, content, name="lines.txt"):
        path = self.folder / name
        path.write_bytes(content)
        # the index beside the data: nothing is left in the user's cache
        return "text '%s' index=beside" % path

    def lines(self, *words, **more):
        done = brim("cat", *words, **more)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(done.stderr, b"")
        return done.stdout.decode().splitlines()

    def samples(self, *words, **more):
        return [json.loads(line) for line in self.lines(*words, "--json", **more)]


class Lines(Cat):
    def test_number_and_fields(self):
        x = self.write("x.npy", "<f4", (3, 2, 2), [i / 2 for i in range(12)])
        y = self.write("y.npy", "|u1", (3,), [7, 8, 9])
        self.assertEqual(self.lines("zip (npy %s) (npy %s name=label)" % (x, y)),
                         ["0  x float32 2x2 [0 0.5 1 1.5]  label uint8 7",
                          "1  x float32 2x2 [2 2.5 3 3.5]  label uint8 8",
                          "2  x float32 2x2 [4 4.5 5 5.5]  label uint8 9"])

    def test_only_the_first_elements_are_shown(self):
        x = self.write("x.npy", "<i2", (1, 100), list(range(100)))
        self.assertEqual(self.lines("npy %s" % x), ["0  x int16 100 [0 1 2 3 4 5 6 7 ...]"])

    def test_text_is_quoted_and_cut_between_characters(self):
        source = self.text("say \"hi\"\tto\x1b\\\n\n".encode() + "ä".encode() * 50 + b"\n")
        first, empty, long = self.lines(source)
        self.assertEqual(first, '0  text text 13 "say \\"hi\\"\\tto\\x1b\\\\"')
        self.assertEqual(empty, '1  text text 0 ""')
        self.assertEqual(long, '2  text text 100 "%s" ...' % ("ä" * 30))

    def test_the_order_is_the_pipelines(self):
        pipeline = "range 50 | shuffle seed=3"
        told = [sample["sample"] for sample in self.samples(pipeline)]
        self.assertEqual(sorted(told), list(range(50)))
        self.assertNotEqual(told, sorted(told))
        for words in (["--threads=0"], ["--threads=3"]):
            self.assertEqual([int(line.split()[0]) for line in self.lines(pipeline, *words)], told)

    def test_count_and_skip(self):
        every = self.lines("range 20 | shuffle seed=5")
        for batch in ("", " | batch 1", " | batch 7", " | batch 7 remainder=pad", " | batch 64"):
            pipeline = "range 20 | shuffle seed=5" + batch
            with self.subTest(pipeline=pipeline):
                self.assertEqual(self.lines(pipeline), every)
                self.assertEqual(self.lines(pipeline, "-n", "3"), every[:3])
                self.assertEqual(self.lines(pipeline, "--count=8", "--skip=6"), every[6:14])
                self.assertEqual(self.lines(pipeline, "--skip", "19"), every[19:])
                self.assertEqual(self.lines(pipeline, "--skip=20"), [])
                self.assertEqual(self.lines(pipeline, "--skip=1000000"), [])
                self.assertEqual(self.lines(pipeline, "--skip=0", "-n=99"), every)

    def test_skipping_single_samples_makes_none_of_them(self):
        done = brim("cat", "range 1_000_000_000_000", "--skip=999_999_999_999".replace("_", ""))
        self.assertEqual(done.stdout, b"999999999999  index int64 999999999999\n", done)

    def test_rows_that_fill_a_batch_up_are_left_out(self):
        self.assertEqual(len(self.lines("range 5 | batch 4 remainder=pad")), 5)

    def test_a_shard(self):
        told = [self.lines("range 12 | batch 2", "--shard=%d/3" % rank) for rank in range(3)]
        self.assertEqual(sorted(sum(told, [])), sorted(self.lines("range 12")))

    def test_what_comes_before_a_bad_sample_is_shown(self):
        source = self.text(b"one\ntwo\n\xff\xfe\nfour\n")
        done = brim("cat", source, "--threads=2")
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual(done.stdout.decode().splitlines(),
                         ['0  text text 3 "one"', '1  text text 3 "two"'])
        self.assertIn(b"lines.txt", done.stderr)
        self.assertEqual(self.lines(source + " | batch 2 on_error=skip")[-1],
                         '3  text text 4 "four"')

    def test_a_count_behind_its_letter(self):
        for words in (["-n2"], ["-n", "2"], ["-n=2"]):
            self.assertEqual(len(self.lines("range 5", *words)), 2)
        for word in ("-nx", "-n0", "-n2x", "-h2"):
            self.assertEqual(brim("cat", "range 5", word).returncode, 2, word)

    def test_usage(self):
        for words in ([], ["range 5", "--json", "--npy", "x"], ["range 5", "-n", "0"],
                      ["range 5", "--skip=-1"], ["range 5", "-x"], ["range", "5"]):
            self.assertEqual(brim("cat", *words).returncode, 2, words)
        self.assertEqual(brim("cat", "range 100 | batch 100", "--memory=1").returncode, 3)


class Json(Cat):
    def test_numbers_read_back_to_the_same_bits(self):
        random_bits = random.Random(7)
        for dtype, code in (("<f8", "d"), ("<f4", "f"), ("<f2", "e")):
            size = struct.calcsize(code)
            bits = [random_bits.randbytes(size) for _ in range(300)]
            values = [struct.unpack("<" + code, one)[0] for one in bits]
            values += [0.0, -0.0, math.inf, -math.inf, math.nan, 1 / 3 if size == 8 else 0.5]
            path = self.write("x.npy", dtype, (len(values),), values)
            told = [sample["fields"]["x"] for sample in self.samples("npy %s | batch 64" % path)]
            with self.subTest(dtype=dtype):
                for value, text in zip(values, told):
                    if math.isnan(value):
                        self.assertEqual(text, "NaN")
                    elif math.isinf(value):
                        self.assertEqual(text, "Infinity" if value > 0 else "-Infinity")
                    else:
                        self.assertEqual(struct.pack("<" + code, text), struct.pack("<" + code,
                                                                                    value))

    def test_integers_of_all_widths(self):
        for dtype, code in CODES.items():
            if code in "?efd":
                continue
            bits = 8 * struct.calcsize(code)
            ends = [0, 2**bits - 1] if code.isupper() else [-2**(bits - 1), -1, 2**(bits - 1) - 1]
            path = self.write("x.npy", dtype, (len(ends),), ends)
            with self.subTest(dtype=dtype):
                told = [one["fields"]["x"] for one in self.samples("npy %s" % path)]
                self.assertEqual(told, ends)

    def test_bool_bfloat16_and_complex(self):
        path = self.write("x.npy", "|b1", (2,), [True, False])
        self.assertEqual([one["fields"]["x"] for one in self.samples("npy %s" % path)],
                         [True, False])
        path = self.write("x.npy", "<f4", (2,), [1.5, -0.25])
        told = self.samples("npy %s | cast bfloat16" % path)
        self.assertEqual([one["fields"]["x"] for one in told], [1.5, -0.25])
        path = self.folder / "c.npy"
        path.write_bytes(npy_header((1, 2), "<c8") + struct.pack("<4f", 1, 2, math.inf, -4))
        self.assertEqual(self.samples("npy %s" % path)[0]["fields"]["x"],
                         [[1, 2], ["Infinity", -4]])

    def test_lists_are_nested_by_shape(self):
        path = self.write("x.npy", "|u1", (2, 2, 1, 3), list(range(12)))
        self.assertEqual(self.samples("npy %s" % path),
                         [{"sample": 0, "fields": {"x": [[[0, 1, 2]], [[3, 4, 5]]]}},
                          {"sample": 1, "fields": {"x": [[[6, 7, 8]], [[9, 10, 11]]]}}])

    def test_what_lies_in_another_order(self):
        values = list(range(24))
        path = self.folder / "f.npy"
        fortran = [values[s * 6 + i * 3 + j] for j in range(3) for i in range(2) for s in range(4)]
        path.write_bytes(npy_header((4, 2, 3), "<i4", fortran=True) + struct.pack("<24i", *fortran))
        told = self.samples("npy %s map=yes | batch 2" % path)
        self.assertEqual([one["fields"]["x"] for one in told],
                         [[values[6 * s:6 * s + 3], values[6 * s + 3:6 * s + 6]] for s in range(4)])

    def test_text_and_bytes(self):
        content = 'a "b" \\ ä\t\x01'
        source = self.text(content.encode() + b"\n\nx\0y\n")
        for batch in ("", " | batch 2", " | batch 3"):
            told = [one["fields"]["text"] for one in self.samples(source + batch)]
            self.assertEqual(told, [content, "", "x\0y"])
        raw = [b"", b"\xff", b"\xff\xfe", b"\x00\x80\xff", b"abcd"]
        source = self.text(b"\n".join(raw) + b"\n", "raw.txt") + " form=bytes"
        for batch in ("", " | batch 2"):
            told = [one["fields"]["text"] for one in self.samples(source + batch)]
            self.assertEqual([base64.b64decode(one["base64"], validate=True) for one in told], raw)

    def test_a_padded_field_is_walked_by_its_strides(self):
        source = self.text(b"a\nbcd\nef\n")
        told = self.samples(source + " | pad on=text | batch 3")
        self.assertEqual([one["fields"]["text"] for one in told],
                         [[97, 0, 0], [98, 99, 100], [101, 102, 0]])
        self.assertEqual([one["fields"]["text_length"] for one in told], [1, 3, 2])


class Streams(Cat):
    def test_standard_input_is_the_pipelines(self):
        done = subprocess.run([CLI, "cat", "text -", "--json"], input=b"one\ntwo\n\nlast",
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done)
        told = [json.loads(line)["fields"]["text"] for line in done.stdout.splitlines()]
        self.assertEqual(told, ["one", "two", "", "last"])

    def test_lines_are_seen_as_they_come(self):
        process = subprocess.Popen([CLI, "cat", "text -"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
        try:
            # the first is held back for as long as it may turn out to be the end
            process.stdin.write(b"first\nsecond\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), b'0  text text 5 "first"\n')
            process.stdin.close()
            self.assertEqual(process.stdout.read(), b'1  text text 6 "second"\n')
            self.assertEqual(process.wait(timeout=LIMIT), 0)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def test_interrupted(self):
        process = start("cat", "range 1000000000000 | batch 64", "--npy", self.folder / "out")
        self.wait_for("nothing is written", lambda: any((self.folder / "out").glob("*")))
        self.assertTrue(catches(process, signal.SIGINT))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
        self.assertEqual((process.returncode, out, err), (130, b"", b""))
        self.assertEqual(os.listdir(self.folder / "out"), [])

    def test_a_reader_that_goes_away_ends_it(self):
        for ignored in (False, True):
            process = subprocess.Popen(
                [CLI, "cat", "range 1000000000000 | batch 64"], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, restore_signals=not ignored)
            process.stdout.readline()
            process.stdout.close()
            code = process.wait(timeout=LIMIT)
            said = process.stderr.read()
            process.stderr.close()
            with self.subTest(ignored=ignored):
                self.assertIn(code, (-signal.SIGPIPE, 128 + signal.SIGPIPE))
                self.assertEqual(said, b"")

    def test_a_full_disk_is_a_failure(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([CLI, "cat", "range 1000000 | batch 64"], stdout=full,
                                  stderr=subprocess.PIPE, timeout=LIMIT)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot write", done.stderr)


class Digests(Cat):
    def test_the_digest_sees_where_a_sample_ends(self):
        one = self.text(b"ab\nc\n", "one.txt") + " | batch 2"
        same = self.text(b"ab\nc", "same.txt") + " | batch 2"
        other = self.text(b"a\nbc\n", "other.txt") + " | batch 2"
        raw = self.text(b"ab\nc\n", "raw.txt") + " form=bytes | batch 2"
        self.assertEqual(self.digest(one), self.digest(same))
        self.assertEqual(self.digest(one), self.digest(one, "--threads=0"))
        self.assertEqual(len({self.digest(text) for text in (one, other, raw)}), 3)


class Npy(Cat):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def test_dense_fields(self):
        values = [float(i) for i in range(5 * 2 * 3)]
        x = self.write("x.npy", "<f4", (5, 2, 3), values)
        y = self.write("y.npy", "<i8", (5,), [-1, 2, 3, 4, 5])
        source = "zip (npy %s) (npy %s name=y)" % (x, y)
        for batch in ("", " | batch 2", " | batch 3 remainder=pad"):
            self.assertEqual(self.lines(source + batch, "--npy", self.out), [])
            self.assertEqual(sorted(os.listdir(self.out)), ["x.npy", "y.npy"])
            self.assertEqual(read_npy(self.out / "x.npy"), ("<f4", (5, 2, 3), values))
            self.assertEqual(read_npy(self.out / "y.npy"), ("<i8", (5,), [-1, 2, 3, 4, 5]))

    def test_a_part(self):
        self.lines("range 20", "--npy", self.out, "--skip=3", "-n=4")
        self.assertEqual(read_npy(self.out / "index.npy"), ("<i8", (4,), [3, 4, 5, 6]))
        self.lines("range 20", "--npy", self.out, "--skip=20")
        self.assertEqual(read_npy(self.out / "index.npy"), ("<i8", (0,), []))

    def test_what_differs_in_length(self):
        source = self.text(b"one\n\nthree\n")
        for batch in ("", " | batch 2"):
            self.lines(source + batch, "--npy", self.out)
            self.assertEqual(sorted(os.listdir(self.out)), ["text.npy", "text.offsets.npy"])
            dtype, shape, values = read_npy(self.out / "text.npy")
            self.assertEqual((dtype, shape, bytes(values)), ("|u1", (8,), b"onethree"))
            self.assertEqual(read_npy(self.out / "text.offsets.npy"), ("<i8", (4,), [0, 3, 3, 8]))

    def test_brim_reads_it_again(self):
        self.lines("range 100 | shuffle seed=9 | batch 16", "--npy", self.out)
        told = self.samples("npy %s" % (self.out / "index.npy"))
        self.assertEqual([one["fields"]["x"] for one in told],
                         [one["fields"]["index"] for one in self.samples("range 100 | shuffle "
                                                                         "seed=9")])

    @unittest.skipIf(numpy is None, "this Python has no numpy")
    def test_numpy_reads_it(self):
        for dtype in ("?", "u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4",
                      "<f8", "<c8", "<c16"):
            data = numpy.random.default_rng(1).integers(0, 100, (17, 3, 2)).astype(dtype)
            numpy.save(self.folder / "x.npy", data)
            self.lines("npy %s | batch 4" % (self.folder / "x.npy"), "--npy", self.out)
            told = numpy.load(self.out / "x.npy")
            self.assertEqual(told.dtype, data.dtype)
            self.assertTrue(numpy.array_equal(told, data), dtype)

    def test_samples_of_several_shapes(self):
        source = self.text(b"a\nbcd\nef\n")
        self.lines(source + " | pad on=text to=4 | batch 1", "--npy", self.out)
        self.assertEqual(read_npy(self.out / "text.npy")[1], (3, 4))
        done = brim("cat", source + " | pad on=text | batch 1", "--npy", self.folder / "other")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn(b"differ in shape", done.stderr)
        self.assertEqual(os.listdir(self.folder / "other"), [])

    def test_what_numpy_does_not_have(self):
        path = self.write("x.npy", "<f4", (2,), [1, 2])
        done = brim("cat", "npy %s | cast bfloat16" % path, "--npy", self.out)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(b"cast float32", done.stderr)

    def test_a_failure_leaves_the_old_files_and_no_others(self):
        self.lines("range 3 name=text", "--npy", self.out)
        before = (self.out / "text.npy").read_bytes()
        done = brim("cat", self.text(b"one\n\xff\n"), "--npy", self.out)
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual(os.listdir(self.out), ["text.npy"])
        self.assertEqual((self.out / "text.npy").read_bytes(), before)

    def test_names_that_lead_elsewhere(self):
        path = self.write("x.npy", "<f4", (2,), [1, 2])
        for name in ("../evil", "/tmp/evil", ".hidden", "a/b", ".."):
            done = brim("cat", "npy %s name='%s'" % (path, name), "--npy", self.out)
            self.assertNotEqual(done.returncode, 0, name)
            self.assertFalse((self.folder / "evil.npy").exists())
            self.assertEqual(os.listdir(self.out) if self.out.exists() else [], [])

    def test_a_folder_that_cannot_be(self):
        (self.folder / "file").write_text("")
        for place in (self.folder / "no" / "folder", self.folder / "file"):
            done = brim("cat", "range 3", "--npy", place)
            self.assertEqual(done.returncode, 1, done)
            self.assertRegex(done.stderr.decode(), r"cannot (make|write)")

    def test_a_file_that_may_not_grow(self):
        done = subprocess.run(
            ["sh", "-c", "ulimit -f 8; trap '' XFSZ; exec \"$0\" cat 'range 100000 | batch 64' "
             "--npy \"$1\"", CLI, str(self.out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL, timeout=LIMIT)
        self.assertEqual(done.returncode, 1, done)
        self.assertRegex(done.stderr.decode(), "cannot write .*index.npy")
        self.assertEqual(os.listdir(self.out), [])


if __name__ == "__main__":
    main()
