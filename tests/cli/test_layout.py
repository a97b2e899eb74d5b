"""Tests of what programs have compiled in from brim.h: where each field of a struct is, and the
number of every enumerator and constant.

docs/abi.md has the rules. A change of a line of tests/data/layout.txt breaks programs that were built
before; new lines do not. To write it anew, after reading these rules:

    python3 tests/cli/test_layout.py --write

Needs python3's standard library and a C compiler.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "layout.txt"
HEADER = (ROOT / "include" / "brim.h").read_text()
CODE = re.sub(r"/\*.*?\*/|//[^\n]*", "", HEADER, flags=re.S).replace("\\\n", " ")
RULE = ("# The structs, enumerators and constants of brim.h, in the order of the header. docs/abi.md\n"
        "# says what may change; python3 tests/cli/test_layout.py --write makes this file.\n")


def fields(body):
    """The names of the fields that the body of a struct declares."""
    for statement in body.split(";"):
        for part in statement.split(","):
            name = re.search(r"(\w+)\s*(?:\[\w+\]\s*)*$", part)
            if name:
                yield name[1]


def lines():
    """A statement in C for each line of the list: it prints the line."""
    for match in re.finditer(r"typedef struct \w+ \{(.*?)\} (\w+);", CODE, re.S):
        body, name = match.groups()
        yield 'printf("%s %%zu bytes\\n", sizeof(%s));' % (name, name)
        for field in fields(body):
            yield ('printf("%s.%s at %%zu\\n", offsetof(%s, %s));' % (name, field, name, field))
    for body in re.findall(r"typedef enum \w+ \{(.*?)\} \w+;", CODE, re.S):
        for name in re.findall(r"^\s*(BRIM_\w+) =", body, re.M):
            yield 'printf("%s = %%lld\\n", (long long)%s);' % (name, name)
    for name in re.findall(r"X\((BRIM_\w+), \d+,", CODE):
        yield 'printf("%s = %%lld\\n", (long long)%s);' % (name, name)
    for name in re.findall(r"X\((\w+), \w+, \d+, \d+\)", CODE):
        yield 'printf("BRIM_DTYPE_%s = %%lld\\n", (long long)BRIM_DTYPE_%s);' % (name, name)
    for name in re.findall(r"^#define (BRIM_(?!VERSION)[A-Z0-9_]+) +[^({\s]", CODE, re.M):
        if not name.endswith(("_INIT", "_API")):
            yield 'printf("%s = %%lld\\n", (long long)%s);' % (name, name)


def layout(compiler):
    text = '#include <brim.h>\n#include <stdio.h>\nint main(void) {\n%s\nreturn 0;\n}\n'
    with tempfile.TemporaryDirectory() as holder:
        source = pathlib.Path(holder, "layout.c")
        source.write_text(text % "\n".join(lines()))
        program = source.with_suffix("")
        subprocess.run([compiler, "-std=c17", "-I", ROOT / "include", source, "-o", program],
                       check=True)
        return subprocess.run([program], check=True, stdout=subprocess.PIPE,
                              universal_newlines=True).stdout


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    GOLDEN.write_text(RULE + layout("cc"))
    sys.exit(0)

import support  # noqa: E402, which needs the program that is tested


class Layout(unittest.TestCase):
    maxDiff = None

    def test_it_is_that_of_the_list(self):
        if shutil.which("cc") is None:
            self.skipTest("needs a C compiler")
        golden = [line for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]
        self.assertGreater(len(golden), 300)
        self.assertEqual(golden, layout("cc").splitlines(),
                         "see docs/abi.md, and the top of this file for how to write the list anew")

    def test_no_enumerator_is_left_out(self):
        golden = GOLDEN.read_text()
        for name in set(re.findall(r"\bBRIM_(?:STATUS|ANSWER|MEMORY|DEVICE|GROWTH|FORM)_[A-Z0-9_]+",
                                   CODE)):
            if not name.endswith(("_INIT", "_INFO")):
                self.assertIn(name + " = ", golden)


if __name__ == "__main__":
    support.main()
