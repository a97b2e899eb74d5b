"""Tests of what the shared library shows: every call of brim.h, and nothing else.

Needs python3's standard library, nm, and BRIM_CLI, beside which the build has libbrim.so.
"""

import pathlib
import re
import shutil
import subprocess
import unittest

import support

LIBRARY = pathlib.Path(support.CLI).parent / "libbrim.so"


class Symbols(unittest.TestCase):
    def setUp(self):
        if shutil.which("nm") is None or not LIBRARY.exists():
            self.skipTest("needs nm and %s" % LIBRARY)
        listing = subprocess.run(["nm", "-D", "--defined-only", str(LIBRARY)], check=True,
                                 stdout=subprocess.PIPE, universal_newlines=True).stdout
        self.shown = {line.split()[-1] for line in listing.splitlines()}
        header = (support.ROOT / "include" / "brim.h").read_text()
        self.promised = set(re.findall(r"^BRIM_API [^;(]*?(brim_\w+)\(", header, re.M))

    def test_every_call_of_the_header_is_there(self):
        self.assertGreater(len(self.promised), 40)
        self.assertEqual(self.promised - self.shown, set())

    def test_nothing_else_is_shown(self):
        extra = {name for name in self.shown - self.promised if name.startswith("brim")}
        self.assertEqual(extra, set())
        if not support.SANITIZED:
            self.assertEqual(self.shown - self.promised, set())


if __name__ == "__main__":
    support.main()
