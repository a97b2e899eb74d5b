"""Small files that pandas, safetensors and Pillow wrote hold what these packages read from them.

The files lie in tests/data/recorded, whose make.py wrote them and what must be found in them. The
live comparisons, with thousands of cases, are the full tests (test_pandas, test_safetensors,
test_images, test_image_stages).
"""

import json
import unittest

from support import ROOT, Case, Rows, brim, main

try:
    import numpy
except ImportError:
    numpy = None

FILES = ROOT / "tests" / "data" / "recorded"
STAGES = {  # the names are those of make.py
    "whole": "crop 29 37",
    "bilinear": "resize 11 17",
    "lanczos": "crop 24 28 x=5 y=3 | resize 31 40 filter=lanczos",
}


class Recorded(Case):
    def rows(self, source):
        done = brim("cat", source, "--json", "--index-dir", self.folder)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return [json.loads(line)["fields"] for line in done.stdout.splitlines()]

    def recorded(self, name):
        return json.loads((FILES / f"{name}.json").read_text())

    def test_tables(self):
        for name, stage in (
            ("pandas.csv", "csv"),
            ("pandas-quoted.csv", "csv"),
            ("pandas-tabs.csv", "csv"),
            ("pandas.jsonl", "jsonl"),
        ):
            more = " delimiter=tab" if "tabs" in name else ""
            with self.subTest(name):
                got = self.rows(f'{stage} "{FILES / name}"{more}')
                self.assertEqual(got, self.recorded(name))

    def test_tensors(self):
        for name, values in self.recorded("package.safetensors").items():
            with self.subTest(name):
                got = self.rows(f'safetensors "{FILES / "package.safetensors"}" tensor={name}')
                self.assertEqual([row["x"] for row in got], values)

    @unittest.skipIf(numpy is None, "needs numpy")
    def test_pictures(self):
        names = sorted(path.stem for path in FILES.glob("*.npz"))
        self.assertEqual(len(names), 10)
        listing = self.folder / "list.csv"
        with Rows() as pipelines:
            for name in names:
                listing.write_text(f"image\n{FILES / name}\n")
                wanted = numpy.load(FILES / f"{name}.npz")
                for stage, text in STAGES.items():
                    with self.subTest(name, stage=stage):
                        batch, = pipelines.run(f'files "{listing}" | decode | {text} | batch 1')
                        numpy.testing.assert_array_equal(batch["image"][0], wanted[stage])


if __name__ == "__main__":
    main()
