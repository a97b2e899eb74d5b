"""Tests of `csv` against Python's csv module.

Python's reader and brim's must see the same records in files of random text and quoting; numbers
must have the bits of float(). Needs python3's standard library and BRIM_CLI. test_pandas.py compares
with pandas.
"""

import csv
import gzip
import io
import json
import math
import random
import struct
import subprocess

from support import CLI, LIMIT, Case, brim, main

SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def bits(value, form="<d"):
    """What makes two numbers the same: all NaNs are one."""
    value = float(SPECIAL.get(value, value))
    return "nan" if math.isnan(value) else struct.pack(form, value)


def random_float(rng):
    kind = rng.randrange(5)
    if kind == 0:
        value = struct.unpack("<d", rng.randbytes(8))[0]
        return repr(value) if math.isfinite(value) else "0.5"
    if kind == 1:
        return "%.*f" % (rng.randrange(8), rng.gauss(0, 1000))
    if kind == 2:
        return "%.*e" % (rng.randrange(20), rng.gauss(0, 1))
    if kind == 3:
        return "%d.%s" % (rng.randrange(10**rng.randrange(1, 18)),
                          "".join(rng.choices("0123456789", k=rng.randrange(1, 30))))
    return repr(rng.random())


def random_text(rng, letters='ab ,;"\'\n\té\\'):
    return "".join(rng.choices(letters, k=rng.randrange(12)))


class Csv(Case):
    maxDiff = 2000

    def rows(self, source, **more):
        """All samples of a source, each a dictionary of its fields."""
        if "stdin" in more:
            done = subprocess.run([CLI, "cat", source, "--json"], input=more["stdin"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT)
        else:
            done = brim("cat", source, "--json")
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return [json.loads(line)["fields"] for line in done.stdout.decode().split("\n") if line]

    def write(self, content, name="t.csv"):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


class AgainstPython(Csv):
    def test_text_of_every_kind_of_quoting(self):
        rng = random.Random(1)
        for quoting in (csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC):
            for end in ("\n", "\r\n"):
                out = io.StringIO()
                writer = csv.writer(out, quoting=quoting, lineterminator=end)
                # a \r that is not quoted would be part of the line's end
                letters = "ab ,\"\n" + ("" if quoting == csv.QUOTE_MINIMAL else "\r")
                rows = [["x" + random_text(rng, letters), random_text(rng), random_text(rng)]
                        for _ in range(400)]
                writer.writerows([["a", "b", "c"], *rows])
                path = self.write(out.getvalue())
                got = self.rows(f"csv {path} types=text index=beside")
                for mine, row in zip(got, rows, strict=True):
                    self.assertEqual(list(mine.values()), row)

    def test_text_that_nobody_quoted_with_care(self):
        """Quotes anywhere: the records are those that Python's reader sees."""
        rng = random.Random(2)
        compared = 0
        for _ in range(30):
            text = "".join(rng.choices('"",,,ab \n\n', k=rng.randrange(40, 400)))
            text = "x\n" + text.strip("\n") + "\n"
            wanted = [row for row in csv.reader(io.StringIO(text, newline="")) if row][1:]
            if list(csv.reader(io.StringIO(text + "end", newline="")))[-1] != ["end"]:
                continue  # a quote is never closed: Python takes what came, brim refuses it
            compared += 1
            path = self.write(text)
            for width in {len(row) for row in wanted}:
                header = ",".join("c%d" % i for i in range(width))
                self.write(header + text[1:])
                got = self.rows(f"csv {path} types=text header=yes index=beside "
                                "| batch 1 on_error=skip")
                self.assertEqual([list(row.values()) for row in got],
                                 [row for row in wanted if len(row) == width], text)
        self.assertGreater(compared, 10)

    def test_numbers_have_the_bits_of_float(self):
        rng = random.Random(3)
        texts = [[random_float(rng) for _ in range(4)] for _ in range(3000)]
        path = self.write("a,b,c,d\n" + "".join(",".join(row) + "\n" for row in texts))
        rows = self.rows(f"csv {path} types=float64 index=beside")
        for got, row in zip(rows, texts, strict=True):
            self.assertEqual([bits(value) for value in got.values()], [bits(text) for text in row],
                             row)

    def test_float32_is_float64_rounded_once_more(self):
        rng = random.Random(4)
        texts = ["%r" % rng.gauss(0, 10**rng.randrange(-20, 20)) for _ in range(2000)]
        path = self.write("a\n" + "\n".join(texts) + "\n")
        got = self.rows(f"csv {path} types=float32 index=beside")
        for row, text in zip(got, texts, strict=True):
            self.assertEqual(bits(row["a"], "<f"), bits(text, "<f"))

    def test_standard_input_is_as_the_file(self):
        rng = random.Random(5)
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["n", "text"])
        for i in range(5000):
            writer.writerow([i, "x" + random_text(rng)])
        content = out.getvalue().encode()
        path = self.write(content)
        self.assertEqual(self.rows("csv - types=int64,text", stdin=content),
                         self.rows(f"csv {path} types=int64,text index=beside"))

    def test_any_order_gives_the_same_samples(self):
        path = self.write("n,t\n" + "".join('%d,"t%d\n"\n' % (i, i) for i in range(2000)))
        got = self.rows(f"csv {path} index=beside | shuffle seed=7")
        self.assertNotEqual([row["n"] for row in got], list(range(2000)))
        self.assertEqual(sorted((row["n"], row["t"]) for row in got),
                         [(i, "t%d\n" % i) for i in range(2000)])


class Messages(Csv):
    def refused(self, source, stdin, *parts, code=1):
        done = subprocess.run([CLI, "cat", source], input=stdin, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=LIMIT)
        self.assertEqual((done.returncode, done.stdout), (code, b""), done)
        for part in parts:
            self.assertIn(part, done.stderr.decode())

    def test_a_pipe_without_records(self):
        self.refused("csv -", b"", "standard input", "it is empty")
        self.refused("jsonl -", b"", "standard input", "it is empty")
        for content in (b"age,name\n", b"age,na", b"age"):
            self.refused("csv -", content, "standard input", "has a header but no records")
        self.refused("csv - types=text", b"age,na", "has a header but no records")
        self.assertEqual(self.rows("text -", stdin=b""), [])

    def test_what_gzip_compressed(self):
        content = gzip.compress(b"age,name\n1,x\n")
        path = self.write(content)
        for stage in ("csv", "jsonl", "text"):
            self.refused(f"{stage} -", content, "gzip", f"'{stage} -'")
            self.refused(f"{stage} {path} index=beside", b"", "gzip", "zcat")

    def test_a_bad_value_names_file_record_column_and_text(self):
        path = self.write("age,name\n1,x\n2,y\nten,z\n")
        done = brim("run", f"csv {path} types=int64,text index=beside | batch 2")
        self.assertEqual(done.returncode, 1)
        for part in (str(path), "record 2", "column 'age'", '"ten"', "int64"):
            self.assertIn(part, done.stderr.decode())
        told = self.good_json("run", f"csv {path} types=int64,text index=beside "
                              "| batch 2 on_error=skip")
        self.assertEqual((told["samples"], told["skipped"]), (2, 1))

    def test_a_misspelt_column_names_the_nearest(self):
        path = self.write("length,width\n1,2\n")
        done = brim("plan", f"csv {path} columns=lenght index=beside | batch 1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("did you mean 'length'", done.stderr.decode())

    def test_a_file_of_other_columns_is_refused(self):
        one, two = self.write("a,b\n1,2\n", "one.csv"), self.write("b,a\n1,2\n", "two.csv")
        done = brim("plan", f"csv {one} {two} index=beside | batch 1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("two.csv", done.stderr.decode())


if __name__ == "__main__":
    main()
