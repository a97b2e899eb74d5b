"""Tests of `safetensors` against the safetensors package: the same values, and nothing taken that
the package refuses.

Needs the package and numpy; all is skipped without them.
"""

# label: full

import json
import random
import unittest

from support import SANITIZED, brim, main
from test_json import Json, tensors_file

try:
    import numpy
    import safetensors.numpy
except ImportError:
    safetensors = None


@unittest.skipIf(safetensors is None, "safetensors is not installed for this python")
class Tensors(Json):
    def test_the_same_values_as_the_package(self):
        rng = numpy.random.default_rng(1)
        tensors = {}
        for dtype in ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64",
                      "int64", "float16", "float32", "float64"):
            raw = rng.integers(0, 100, (5, 2, 3))
            tensors["t " + dtype] = (raw % 2 == 0 if dtype == "bool" else raw).astype(dtype)
            tensors[dtype + "é"] = tensors["t " + dtype][:, 0, 0].copy()
        path = self.folder / "t.safetensors"
        safetensors.numpy.save_file(tensors, path, metadata={"a": "b"})
        for name, tensor in tensors.items():
            with self.subTest(tensor=name):
                told = self.samples('safetensors %s tensor="%s"' % (path, name))
                self.assertEqual([fields["x"] for fields in told], tensor.tolist())

    def test_what_the_package_refuses_is_refused(self):
        """Headers with members changed at random: brim takes none that the package does not."""
        rng = random.Random(5)
        taken = 0
        for round_ in range(60 if SANITIZED else 300):
            header = {"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
                      "b": {"dtype": "F32", "shape": [2, 2], "data_offsets": [4, 20]}}
            for _ in range(rng.randrange(3)):
                tensor = header[rng.choice("ab")]
                key = rng.choice(list(tensor))
                tensor[key] = rng.choice([[], [0], [4], [2, 2], [0, 4], [4, 20], [4, 0], [-1, 4],
                                          [1, 5], [2**63], [2**32, 2**32], "U8", "F32", "I32", "F8",
                                          None, 1.5, {}, [[4]], [4.0]])
            data = bytes(20 if rng.random() < 0.9 else rng.randrange(30))
            text = json.dumps(header).encode()
            text += b" " * rng.choice([0, 0, 3])
            if rng.random() < 0.2:
                at = rng.randrange(len(text))
                text = text[:at] + bytes([rng.choice(b'{}[]",:0')]) + text[at + 1:]
            path = tensors_file(self.folder / "t.safetensors", text, data)
            try:
                wanted = safetensors.numpy.load(path.read_bytes())
            except Exception:  # its own errors and numpy's
                wanted = None
            done = brim("cat", "safetensors %s tensor=a" % path, "--json")
            if done.returncode == 0:
                taken += 1
                self.assertIsNotNone(wanted, (text, data))
                self.assertEqual([json.loads(line)["fields"]["x"] for line in
                                  done.stdout.splitlines()], wanted["a"].tolist())
            else:
                self.assertIn(b"t.safetensors", done.stderr, done)
        self.assertGreater(taken, 10 if SANITIZED else 60)


if __name__ == "__main__":
    main()
