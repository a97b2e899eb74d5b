"""Tests of `csv` and `jsonl` against pandas: files that it writes come back as it reads them.

Needs pandas; all is skipped without it.
"""

# label: full

import csv
import math
import random
import unittest
import warnings

from support import main
from test_csv import Csv, bits, random_float
from test_csv import random_text as random_cell
from test_json import Json, random_text

try:
    import pandas
except ImportError:
    pandas = None


@unittest.skipIf(pandas is None, "pandas is not installed for this python")
class Tables(Csv):
    def read(self, path, **more):
        with warnings.catch_warnings():  # pandas 3 reads exactly without being told
            warnings.simplefilter("ignore")
            return pandas.read_csv(path, float_precision="round_trip", **more)

    def frame(self, seed, rows=500):
        rng = random.Random(seed)
        return pandas.DataFrame({
            "i": [rng.randrange(-2**63, 2**63) for _ in range(rows)],
            "small": [rng.randrange(-100, 100) for _ in range(rows)],
            "f": [float(random_float(rng)) for _ in range(rows)],
            "g": [rng.gauss(0, 1) for _ in range(rows)],
            "holes": [None if rng.random() < 0.2 else rng.random() for _ in range(rows)],
            "t": ["x" + random_cell(rng, 'ab ,;"\né') for _ in range(rows)],
        })

    def assert_same(self, got, frame):
        self.assertEqual(len(got), len(frame))
        for column in frame.columns:
            values = frame[column].tolist()
            for row, value in zip(got, values):
                mine = row[column if column in row else "c0"]
                if isinstance(value, float):
                    self.assertEqual(bits(mine), bits(value), (column, mine, value))
                else:
                    self.assertEqual(mine, value, column)

    def test_files_that_pandas_wrote(self):
        for seed, options in enumerate([
                {}, {"quoting": csv.QUOTE_ALL}, {"quoting": csv.QUOTE_NONNUMERIC},
                {"lineterminator": "\r\n"}, {"float_format": "%.15g"}, {"float_format": "%.3e"},
                {"na_rep": "NA"}, {"na_rep": "nan"}, {"encoding": "utf-8-sig"}]):
            path = self.folder / "t.csv"
            self.frame(seed).to_csv(path, index=False, **options)
            self.assert_same(self.rows(f"csv {path} missing=nan index=beside"), self.read(path))

    def test_with_the_index_of_the_frame_and_other_delimiters(self):
        path = self.folder / "t.csv"
        for delimiter, word in ((";", ";"), ("\t", "tab"), ("|", '"|"'), (" ", '" "')):
            self.frame(20).to_csv(path, sep=delimiter)
            got = self.rows(f"csv {path} missing=nan delimiter={word} index=beside")
            frame = self.read(path, sep=delimiter)
            self.assertEqual(list(got[0]), ["c0", *frame.columns[1:]])
            self.assert_same(got, frame)

    def test_packed(self):
        path = self.folder / "t.csv"
        frame = self.frame(30)[["g", "small", "f"]]
        frame.to_csv(path, index=False)
        got = self.rows(f"csv {path} pack=yes types=float64 index=beside")
        wanted = self.read(path).to_numpy(dtype="float64").tolist()
        for mine, row in zip(got, wanted, strict=True):
            self.assertEqual([bits(v) for v in mine["x"]], [bits(v) for v in row])


@unittest.skipIf(pandas is None, "pandas is not installed for this python")
class Lines(Json):
    def test_the_same_table_as_pandas(self):
        rng = random.Random(3)
        table = pandas.DataFrame({
            "i": [rng.randrange(-2**53, 2**53) for _ in range(500)],
            "f": [rng.gauss(0, 1) for _ in range(500)],
            "b": [rng.random() < 0.5 for _ in range(500)],
            "s": [random_text(rng).replace("\0", "") for _ in range(500)],
            "n": [None if rng.random() < 0.3 else rng.gauss(0, 1) for _ in range(500)]})
        path = self.folder / "pandas.jsonl"
        table.to_json(path, orient="records", lines=True, double_precision=15)
        read = pandas.read_json(path, lines=True, precise_float=True, dtype=False)
        told = self.samples("jsonl '%s' index=beside missing=nan "
                            "types=i:int64,f:float64,b:bool,s:text,n:float64 fields=i,f,b,s,n" % path)
        self.assertEqual(len(told), len(read))
        for got, row in zip(told, read.itertuples()):
            self.assertEqual((got["i"], got["b"], got["s"]), (row.i, row.b, row.s))
            self.assertEqual(got["f"], row.f)
            number = float("nan") if got["n"] is None else float(got["n"])
            self.assertTrue(number == row.n or (math.isnan(number) and math.isnan(row.n)))


if __name__ == "__main__":
    main()
