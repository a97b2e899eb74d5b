"""npz, idx, cifar and records: the values against those of Python's own readers.

numpy's files need numpy, MNIST's need MNIST: a folder with t10k-images-idx3-ubyte.gz and
t10k-labels-idx1-ubyte.gz, named by BRIM_MNIST or found as data/mnist in a folder beside the source
tree. What is absent is skipped.
"""

import gzip
import io
import json
import os
import pathlib
import random
import struct
import subprocess
import unittest
import zipfile

from support import CLI, LIMIT, ROOT, Case, brim, main, npy_header

try:
    import numpy
except ImportError:
    numpy = None


def mnist(name):
    """The path of one of MNIST's files, or None."""
    given = os.environ.get("BRIM_MNIST")
    folders = [pathlib.Path(given)] if given else sorted(ROOT.parent.glob("*/data/mnist"))
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def read_npy(path):
    """(dtype, shape, elements' bytes) of an .npy file in C order."""
    content = pathlib.Path(path).read_bytes()
    assert content[:8] == b"\x93NUMPY\x01\x00", content[:8]
    length, = struct.unpack_from("<H", content, 8)
    header = eval(content[10:10 + length].decode(), {"__builtins__": {}})  # written by brim
    assert not header["fortran_order"]
    return header["descr"], header["shape"], content[10 + length:]


class Arrays(Case):
    def values(self, pipeline, *words, stdin=None):
        """The fields of all samples of a pipeline: {name: (dtype, shape, bytes)}."""
        to = self.folder / "out"
        done = subprocess.run([CLI, "cat", str(pipeline), "--npy", str(to), *words], input=stdin,
                              stdin=subprocess.DEVNULL if stdin is None else None,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done)
        fields = {path.stem: read_npy(path) for path in to.iterdir()}
        for path in to.iterdir():
            path.unlink()
        return fields

    def refused(self, code, pipeline, *parts, words=()):
        done = brim("cat", pipeline, "--json", *words)
        self.assertEqual(done.returncode, code, done)
        for part in parts:
            self.assertIn(part, done.stderr.decode())

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path


BAD_DATA, BAD_REQUEST, TOO_LARGE = 1, 2, 3  # exit codes


class Idx(Arrays):
    def check_mnist(self, name, shape):
        path = mnist(name)
        if path is None:
            self.skipTest("%s is not here" % name)
        with gzip.open(path) as file:
            content = file.read()
        rank = len(shape)
        self.assertEqual(struct.unpack_from(">%dI" % (rank + 1), content),
                         (0x0800 | rank, *shape))
        elements = content[4 + 4 * rank:]
        plain = self.write(name[:-3], content)
        for file in (path, plain):
            self.assertEqual(self.values("idx %s name=y" % file), {"y": ("|u1", shape, elements)})
        guessed = self.good_json("inspect", path)
        self.assertIn("idx %s" % path, json.dumps(guessed))

    def test_mnist_images(self):
        self.check_mnist("t10k-images-idx3-ubyte.gz", (10000, 28, 28))

    def test_mnist_labels(self):
        self.check_mnist("t10k-labels-idx1-ubyte.gz", (10000,))

    def test_mnist_together(self):
        images, labels = (mnist("t10k-%s-ubyte.gz" % part) for part in ("images-idx3",
                                                                        "labels-idx1"))
        if images is None or labels is None:
            self.skipTest("MNIST is not here")
        text = "zip (idx %s name=image) (idx %s name=label) | shuffle seed=3 | batch 100"
        sums = {self.digest(text % (images, labels), "--threads", threads) for threads in "02"}
        self.assertEqual(len(sums), 1)

    def test_types(self):
        types = {8: ("|u1", "B"), 9: ("|i1", "b"), 11: ("<i2", "h"), 12: ("<i4", "i"),
                 13: ("<f4", "f"), 14: ("<f8", "d")}
        for code, (kind, letter) in types.items():
            numbers = range(0, 60, 5) if letter == "B" else range(-30, 30, 5)
            content = struct.pack(">BBBBIII", 0, 0, code, 3, 3, 2, 2)
            content += struct.pack(">12" + letter, *numbers)
            expected = struct.pack("<12" + letter, *numbers)
            for name, data in (("x-idx", content), ("x.gz", gzip.compress(content))):
                path = self.write(name, data)
                self.assertEqual(self.values("idx %s" % path), {"x": (kind, (3, 2, 2), expected)})

    def test_budget(self):
        """Compressed, the array is part of the fixed bytes, or refused with its size."""
        content = struct.pack(">IIII", 0x0803, 4096, 32, 32) + bytes(4 << 20)
        path = self.write("zeros.gz", gzip.compress(content))
        plan = self.good_json("plan", "idx %s | batch 16" % path, "--memory", "16MiB")
        self.assertGreater(plan["minimum_bytes"], 4 << 20)
        minimum = str(plan["minimum_bytes"])
        self.digest("idx %s | batch 16" % path, "--memory", minimum, "--threads", "0")
        self.refused(TOO_LARGE, "idx %s" % path, "4.0 MiB (4194304 bytes)", "gunzip",
                     words=("--memory", "2MiB"))


@unittest.skipUnless(numpy, "numpy is not here")
class Npz(Arrays):
    def arrays(self):
        random_numbers = numpy.random.default_rng(5)
        return {
            "bytes": random_numbers.integers(0, 256, (17, 3, 5), dtype="u1"),
            "shorts": random_numbers.integers(-2**15, 2**15, (40,), dtype="i2"),
            "big": random_numbers.integers(-2**31, 2**31, (9, 4)).astype(">i4"),
            "halves": random_numbers.standard_normal((6, 2, 2)).astype("f2"),
            "floats": random_numbers.standard_normal((1000, 33)).astype("f4"),
            "doubles": random_numbers.standard_normal((3, 1)),
            "flags": random_numbers.integers(0, 2, (8, 8)).astype(bool),
            "complex": random_numbers.standard_normal((4, 2)).astype("c16"),
            "with space": numpy.arange(5, dtype="u8"),
        }

    def test_values(self):
        arrays = self.arrays()
        for save in (numpy.savez, numpy.savez_compressed):
            path = self.folder / ("%s.npz" % save.__name__)
            save(path, **arrays)
            for name, array in arrays.items():
                for form in ('array="%s"', 'array="%s.npy" map=yes'):
                    with self.subTest(save=save.__name__, array=name, form=form):
                        values = self.values("npz %s %s" % (path, form % name))["x"]
                        little = array.astype(array.dtype.newbyteorder("<"))
                        self.assertEqual(values, (little.dtype.str, array.shape, little.tobytes()))

    def test_fortran_order(self):
        array = numpy.asfortranarray(numpy.arange(24, dtype="i4").reshape(4, 3, 2))
        for save, more in ((numpy.savez, " map=yes"), (numpy.savez_compressed, "")):
            path = self.folder / "fortran.npz"
            save(path, array)
            values = self.values("npz %s%s" % (path, more))["x"]
            self.assertEqual(values, ("<i4", (4, 3, 2), array.tobytes()))
            self.assertEqual(values[2], numpy.arange(24, dtype="i4").tobytes())
        numpy.savez(path, array)
        self.refused(BAD_REQUEST, "npz %s" % path, "map=yes")

    def test_which(self):
        path = self.folder / "two.npz"
        numpy.savez(path, a=numpy.zeros(3), b=numpy.ones(3))
        self.refused(BAD_REQUEST, "npz %s" % path, "array=", "a, b")
        self.refused(BAD_REQUEST, "npz %s array=c" % path, "no array 'c'", "a, b")
        numpy.savez(path, numpy.ones(3))
        self.assertEqual(self.values("npz %s" % path)["x"][1], (3,))

    def test_objects(self):
        path = self.folder / "objects.npz"
        numpy.savez(path, a=numpy.array([{}, []], dtype=object))
        self.refused(BAD_DATA, "npz %s" % path, "pickle")

    def test_streamed(self):
        """A zip file that was written to a pipe has its sizes behind the data."""
        class Pipe(io.BytesIO):
            def seekable(self):
                return False

            def tell(self):
                raise OSError("a pipe")

        array = numpy.arange(12, dtype="f4").reshape(3, 4)
        for save in (numpy.savez, numpy.savez_compressed):
            pipe = Pipe()
            save(pipe, a=array)
            path = self.write("streamed.npz", pipe.getvalue())
            self.assertEqual(self.values("npz %s" % path)["x"], ("<f4", (3, 4), array.tobytes()))

    def test_budget(self):
        path = self.folder / "zeros.npz"
        array = numpy.zeros((4096, 1024), dtype="u1")
        numpy.savez_compressed(path, a=array)
        self.refused(TOO_LARGE, "npz %s" % path, "4.0 MiB (4198400 bytes)", "numpy.savez",
                     words=("--memory", "2MiB"))
        text = "npz %s | batch 16" % path
        plan = self.good_json("plan", text, "--memory", "16MiB")
        held = self.digest(text, "--memory", plan["minimum_bytes"], "--threads", 0)
        numpy.savez(path, a=array)
        self.assertEqual(self.digest(text, "--memory", "2MiB"), held)


class Zip(Arrays):
    """Zip files of Python's own zipfile module, without numpy."""

    def make(self, name, compression):
        path = self.folder / name
        with zipfile.ZipFile(path, "w", compression) as file:
            file.writestr("a.npy", npy_header((3, 2), "<i2") + struct.pack("<6h", *range(6)))
            file.writestr("about.txt", "two integers for each of three samples")
        return path

    def test_values(self):
        for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            path = self.make("x.npz", compression)
            self.assertEqual(self.values("npz %s" % path),
                             {"x": ("<i2", (3, 2), struct.pack("<6h", *range(6)))})

    def test_other_methods(self):
        self.refused(BAD_DATA, "npz %s" % self.make("x.npz", zipfile.ZIP_BZIP2), "method 12")
        self.refused(BAD_DATA, "npz %s" % self.make("x.npz", zipfile.ZIP_LZMA), "method 14")


class Cifar(Arrays):
    def test_values(self):
        numbers = random.Random(1)
        for labels in (1, 2):
            records = [numbers.randbytes(labels + 3072) for _ in range(9)]
            path = self.write("data_batch_%d.bin" % labels, b"".join(records))
            fields = self.values("cifar %s" % path)
            expected = {
                "image": ("|u1", (9, 3, 32, 32), b"".join(r[labels:] for r in records)),
                "label": ("|u1", (9,), bytes(r[labels - 1] for r in records)),
            }
            if labels == 2:
                expected["coarse"] = ("|u1", (9,), bytes(r[0] for r in records))
            self.assertEqual(fields, expected)
            self.assertIn("cifar", json.dumps(self.good_json("inspect", path)))


class Records(Arrays):
    TEXT = "records %s bytes=16 skip=3 order=%s fields=a:int32:2,b:float64"

    def content(self, order):
        samples = [((i, -i), i / 7) for i in range(100)]
        layout = "%s2id" % order
        content = b"hdr" + b"".join(struct.pack(layout, *pair, real) for pair, real in samples)
        expected = {
            "a": ("<i4", (100, 2), b"".join(struct.pack("<2i", *pair) for pair, _ in samples)),
            "b": ("<f8", (100,), b"".join(struct.pack("<d", real) for _, real in samples)),
        }
        return content, expected

    def test_values(self):
        for order, name in (("<", "little"), (">", "big")):
            content, expected = self.content(order)
            path = self.write("r.bin", content)
            self.assertEqual(self.values(self.TEXT % (path, name)), expected)
            self.assertEqual(self.values((self.TEXT + " map=yes") % (path, name)), expected)

    def test_stream(self):
        """From a pipe, the same; cut inside a record, an error that names it."""
        content, expected = self.content("<")
        self.assertEqual(self.values(self.TEXT % ("-", "little"), stdin=content), expected)
        done = subprocess.run([CLI, "cat", self.TEXT % ("-", "little"), "--json"],
                              input=content[:-5], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=LIMIT)
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual(len(done.stdout.splitlines()), 99)
        self.assertIn("ends inside record 99: 11 of its 16 bytes came", done.stderr.decode())


if __name__ == "__main__":
    main()
