"""Tests of what the shared library shows: every call of brim.h and nothing else, the calls of
tests/data/symbols.txt, and its soname.

docs/abi.md has the rules. tests/data/symbols.txt lists the calls; a change of it is a change of what
programs may rely on. To write it anew, after reading these rules:

    python3 tests/cli/test_symbols.py --write

Needs python3's standard library, nm and readelf, and BRIM_CLI, beside which the build has
libbrim.so.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "symbols.txt"
HEADER = (ROOT / "include" / "brim.h").read_text()
RULE = ("# The calls that libbrim.so shows, in order. docs/abi.md says when a line may be taken out;\n"
        "# python3 tests/cli/test_symbols.py --write makes this file from include/brim.h.\n")


def promised():
    return sorted(set(re.findall(r"^BRIM_API [^;(]*?(brim_\w+)\(", HEADER, re.M)))


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    GOLDEN.write_text(RULE + "".join(name + "\n" for name in promised()))
    sys.exit(0)

import support  # noqa: E402, which needs the program that is tested

LIBRARY = pathlib.Path(support.CLI).parent / "libbrim.so"


class Symbols(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        if shutil.which("nm") is None or not LIBRARY.exists():
            self.skipTest("needs nm and %s" % LIBRARY)
        listing = subprocess.run(["nm", "-D", "--defined-only", str(LIBRARY)], check=True,
                                 stdout=subprocess.PIPE, universal_newlines=True).stdout
        self.shown = {line.split()[-1] for line in listing.splitlines()}
        self.promised = set(promised())

    def test_every_call_of_the_header_is_there(self):
        self.assertGreater(len(self.promised), 40)
        self.assertEqual(self.promised - self.shown, set())

    def test_nothing_else_is_shown(self):
        extra = {name for name in self.shown - self.promised if name.startswith("brim")}
        self.assertEqual(extra, set())
        if not support.SANITIZED:
            self.assertEqual(self.shown - self.promised, set())

    def test_the_calls_are_those_of_the_list(self):
        golden = [line for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]
        self.assertEqual(golden, sorted(name for name in self.shown if name.startswith("brim_")),
                         "see docs/abi.md, and the top of this file for how to write the list anew")

    def test_the_soname_follows_the_version(self):
        if shutil.which("readelf") is None:
            self.skipTest("needs readelf")
        major, minor = (int(re.search(r"^#define BRIM_VERSION_%s (\d+)$" % part, HEADER, re.M)[1])
                        for part in ("MAJOR", "MINOR"))
        dynamic = subprocess.run(["readelf", "-d", str(LIBRARY)], check=True,
                                 stdout=subprocess.PIPE, universal_newlines=True).stdout
        soname = re.search(r"soname: \[(.*)\]", dynamic)[1]
        self.assertEqual(soname, "libbrim.so.%d" % major if major else "libbrim.so.0.%d" % minor)


class Nulls(unittest.TestCase):
    def test_every_call_is_made_with_null(self):
        """By tests/test_null.c, whatever it takes."""
        text = (ROOT / "tests" / "test_null.c").read_text()
        text += (ROOT / "tests" / "test_structs.c").read_text()
        missing = [name for name in promised() if not re.search(r"\b%s\(" % name, text)]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    support.main()
