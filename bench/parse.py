#!/usr/bin/env python3
"""Text formats: MB/s of brim beside pandas and pyarrow, on the same files in the same run.

    tools/python bench/parse.py [--cli build/release/brim] [--mb 64] [--repeat 5] [CASE...]

brim is measured as a whole process (`brim run`, without workers, in order, batches of 1024) that finds
its index made; the first run, which makes it, is shown too. The others are measured as one call
that gives a table. All read from the page cache, and none uses more than one thread for the work, so
that seconds of CPU are compared: other programs on the machine disturb them least. Best of --repeat.
"""

import argparse
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

try:
    import pandas
    import pyarrow.csv
    import pyarrow.json
except ImportError as error:
    print("bench/parse.py compares with pandas and pyarrow: %s; nothing was measured" % error)
    sys.exit(0)

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORDS = "the of a to in is that it was for on are with as his they be at one have this".split()


# ------------------------------------------------------------------------------------------- files

def write_numeric(file, rng):
    """Eight columns of float64 with all their digits."""
    file.write(",".join("x%d" % i for i in range(8)) + "\n")
    return lambda: ",".join([repr(rng.gauss(0, 1)) for _ in range(8)]) + "\n"


def write_short(file, rng):
    """Eight columns of numbers as people and sensors write them."""
    file.write(",".join("x%d" % i for i in range(8)) + "\n")
    return lambda: ",".join(["%.4f" % rng.uniform(-100, 100) for _ in range(8)]) + "\n"


def sentence(rng):
    return " ".join(rng.choices(WORDS, k=rng.randrange(4, 16)))


def write_mixed(file, rng):
    """Two integers, two reals, a word, and text of which a part is quoted."""
    file.write("id,count,price,score,kind,text\n")

    def line():
        text = sentence(rng)
        if rng.random() < 0.3:
            text = '"%s, ""%s"""' % (text, rng.choice(WORDS))
        return "%d,%d,%.2f,%r,%s,%s\n" % (rng.randrange(10**9), rng.randrange(1000),
                                           rng.uniform(0, 1000), rng.random(), rng.choice(WORDS),
                                           text)
    return line


def write_jsonl(file, rng):
    """An integer, two reals, a word and text."""
    return lambda: json.dumps({"id": rng.randrange(10**9), "price": round(rng.uniform(0, 1000), 2),
                               "score": rng.random(), "kind": rng.choice(WORDS),
                               "text": sentence(rng)}) + "\n"


def make_file(path, write, size):
    """A file of about `size` bytes: a block of different lines, again and again."""
    rng = random.Random(1)
    with open(path, "w") as file:
        line = write(file, rng)
        block = "".join(line() for _ in range(20000))
        while file.tell() < size:
            file.write(block)


# ------------------------------------------------------------------------------------------ rivals

def pandas_csv(path):
    return pandas.read_csv(path, engine="c")


def arrow_csv(path):
    return pyarrow.csv.read_csv(path, read_options=pyarrow.csv.ReadOptions(use_threads=False),
                                parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True))


def pandas_jsonl(path):
    return pandas.read_json(path, lines=True)


def arrow_jsonl(path):
    return pyarrow.json.read_json(path, read_options=pyarrow.json.ReadOptions(use_threads=False))


CSV = {"pandas": pandas_csv, "pyarrow": arrow_csv}
JSONL = {"pandas": pandas_jsonl, "pyarrow": arrow_jsonl}

# name: what writes the file, the source that reads it, the others
CASES = {
    "csv-numeric": (write_numeric, "csv %s", CSV),
    "csv-numeric-pack": (write_numeric, "csv %s pack=yes", CSV),
    "csv-short": (write_short, "csv %s", CSV),
    "csv-mixed": (write_mixed, "csv %s", CSV),
    "jsonl-mixed": (write_jsonl, "jsonl %s", JSONL),
}


# --------------------------------------------------------------------------------------- measuring

def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_brim(cli, source):
    begin = children_seconds()
    done = subprocess.run([cli, "run", source + " | batch 1024 remainder=keep", "--threads=0",
                           "--json", "--quiet"], stdout=subprocess.PIPE, text=True)
    seconds = children_seconds() - begin
    if done.returncode != 0:
        sys.exit("brim run %s: exit code %d" % (source, done.returncode))
    return seconds, json.loads(done.stdout)["samples"]


def run_call(call, path):
    begin = time.process_time()
    table = call(path)
    return time.process_time() - begin, len(table)


def measure(name, arguments, folder):
    write, source, rivals = CASES[name]
    path = os.path.join(folder, name)
    make_file(path, write, arguments.mb * 1_000_000)
    size = os.path.getsize(path)
    source = (source % path) + " index=beside"
    first, rows = run_brim(arguments.cli, source)
    own = min(run_brim(arguments.cli, source)[0] for _ in range(arguments.repeat))
    print("%s: %.0f MB, %d records" % (name, size / 1e6, rows))
    print("  %-24s %8.0f MB/s" % ("brim", size / own / 1e6))
    print("  %-24s %8.0f MB/s" % ("brim, making its index", size / first / 1e6))
    for label, call in rivals.items():
        runs = [run_call(call, path) for _ in range(arguments.repeat)]
        if runs[0][1] != rows:
            sys.exit("%s read %d records, brim %d" % (label, runs[0][1], rows))
        seconds = min(seconds for seconds, _ in runs)
        print("  %-24s %8.0f MB/s   brim is %.2f times as fast" % (label, size / seconds / 1e6,
                                                                  seconds / own))
    os.unlink(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--cli", default=str(ROOT / "build" / "release" / "brim"))
    parser.add_argument("--mb", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    for name in arguments.cases:
        if name not in CASES:
            parser.error("no case %r: there are %s" % (name, ", ".join(CASES)))
    pyarrow.set_cpu_count(1)
    pyarrow.set_io_thread_count(1)
    print("pandas %s, pyarrow %s" % (pandas.__version__, pyarrow.__version__))
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.cases or CASES:
            measure(name, arguments, folder)


if __name__ == "__main__":
    main()
