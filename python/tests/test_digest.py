"""Batches in Python are the batches of the command line, bit for bit: the same digest."""

# sanitizers: yes

from __future__ import annotations

import os
import struct
import subprocess
import unittest

import brim
import support

numpy = support.need("numpy")
xxhash = support.need("xxhash")

FORMS = {"ragged": 1, "text": 2, "bytes": 3}


class Digest:
    """What `brim run --digest` hashes; cli/digest.c says how."""

    def __init__(self) -> None:
        self.state = xxhash.xxh3_128()

    def numbers(self, *numbers: int) -> None:
        self.state.update(struct.pack(f"<{len(numbers)}q", *numbers))

    def text(self, text: str) -> None:
        self.numbers(len(text))
        self.state.update(text.encode())

    def field(self, name: str, field: brim.Array | brim.Ragged) -> None:
        values = field.values if isinstance(field, brim.Ragged) else field
        self.text(name)
        self.text(values.dtype)
        if not isinstance(field, brim.Ragged):
            self.numbers(field.ndim, *field.shape)
            self.state.update(numpy.asarray(field).tobytes())
            return
        self.numbers(values.ndim + 1, len(field), -1, *values.shape[1:])
        self.numbers(FORMS[field.form])
        offsets, elements = numpy.asarray(field.offsets), numpy.asarray(values)
        for first, end in zip(offsets[:-1], offsets[1:]):
            self.numbers(int(end - first))
            self.state.update(elements[first:end].tobytes())

    def batch(self, batch: brim.Batch) -> None:
        self.numbers(len(batch))
        for name, field in batch.items():
            self.field(name, field)
        self.numbers(batch.rows)
        self.state.update(numpy.asarray(batch.ids).tobytes())
        self.state.update(numpy.asarray(batch.valid).tobytes())


class Same(support.Case):
    def compare(self, text: str) -> None:
        command = os.environ.get("BRIM_CLI")
        if command is None:
            self.skipTest("BRIM_CLI is not set: there is no command line to compare with")
        words = [command, "run", text, "--epochs", "2", "--digest", "--quiet"]
        wanted = subprocess.run(
            [*words, "--index-dir", str(self.folder / "cache")],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()[-1]
        for threads in (0, 2):
            digest = Digest()
            with (
                brim.Runtime("64MiB", threads=threads, index_dir=self.folder / "cache") as runtime,
                runtime.open(text) as loader,
            ):
                for epoch in loader.epochs(2):
                    for batch in epoch:
                        digest.batch(batch)
            self.assertEqual(digest.state.hexdigest(), wanted, text)

    def test_numbers(self) -> None:
        self.compare("range 1000 | shuffle seed=3 | batch 64 remainder=pad")
        self.compare("range 100 | shuffle seed=3 | batch 32 micro=8")
        self.compare("range 100 | filter index>20 | cast float32 | batch 7")

    def test_arrays(self) -> None:
        path = self.folder / "x.npy"
        numpy.save(path, numpy.arange(3000, dtype=numpy.uint16).reshape(100, 3, 10))
        self.compare(f"npy {path} | shuffle seed=1 | cast float32 | batch 16")

    def test_images(self) -> None:
        support.drawn_set(self.folder / "set", 30)
        self.compare(
            f"folder {self.folder}/set | shuffle seed=7 | decode | random_resized_crop 20 seed=1 | "
            "flip | color_jitter brightness=0.2 | normalize imagenet | batch 8"
        )

    def test_text_and_ragged(self) -> None:
        path = self.folder / "rows.jsonl"
        rows = [f'{{"x": {list(range(n % 5))}, "name": "row {n}"}}' for n in range(40)]
        path.write_text("\n".join(rows) + "\n")
        self.compare(f"jsonl {path} | shuffle seed=2 | batch 6")


if __name__ == "__main__":
    support.main()
