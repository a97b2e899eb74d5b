"""Tests of what programs have compiled in from brim.h: where each field of a struct is, the number
of every enumerator and constant, and the parameters of every call and callback.

docs/abi.md has the rules. A change of a line of tests/data/layout.txt or tests/data/calls.txt breaks
programs that were built before. New lines do not, except a new field inside a struct as it was. To
rewrite both, after reading these rules (it says what breaks):

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
CALLS = GOLDEN.with_name("calls.txt")
RULE_OF_CALLS = RULE.replace("structs, enumerators and constants", "calls and callbacks")


def golden_lines(path):
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


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
    for body in re.findall(r"typedef enum \w+ BRIM__ENUM \{(.*?)\} \w+;", CODE, re.S):
        for name in re.findall(r"^\s*(BRIM_\w+) =", body, re.M):
            yield 'printf("%s = %%lld\\n", (long long)%s);' % (name, name)
    for name in re.findall(r"X\((BRIM_\w+), \d+,", CODE):
        yield 'printf("%s = %%lld\\n", (long long)%s);' % (name, name)
    for name in re.findall(r"X\((\w+), \w+, \d+, \d+\)", CODE):
        yield 'printf("BRIM_DTYPE_%s = %%lld\\n", (long long)BRIM_DTYPE_%s);' % (name, name)
    for name in re.findall(r"^#define (BRIM_(?!VERSION|_)[A-Z0-9_]+) +[^({\s]", CODE, re.M):
        if not name.endswith(("_INIT", "_API")):
            yield 'printf("%s = %%lld\\n", (long long)%s);' % (name, name)


def ends():
    """A statement for each struct that begins with its size: its bytes after the last field."""
    for match in re.finditer(r"typedef struct \w+ \{(.*?)\} (\w+);", CODE, re.S):
        names = list(fields(match[1]))
        if names[0] == "size":
            yield ('printf("%s %%zu\\n", sizeof(%s) - offsetof(%s, %s) - sizeof(((%s *)0)->%s));'
                   % (match[2], match[2], match[2], names[-1], match[2], names[-1]))


def calls():
    """The declarations of calls, and the types of callbacks, a line each."""
    found = re.findall(r"^BRIM_API ([^;{]*);|^(typedef [^;{]*\([^;{]*\));", CODE, re.M)
    return "".join(re.sub(r"\s+", " ", call or callback) + ";\n" for call, callback in found)


def breaks(old, new):
    """The lines of a layout that break programs which were built with the old one."""
    sizes = {line.split()[0]: int(line.split()[1]) for line in old if line.endswith(" bytes")}
    places = {line.split(" at ")[0]: int(line.split(" at ")[1]) for line in new if " at " in line}
    gone = [line for line in old if line not in new and not line.endswith(" bytes")]
    inside = [name for name, place in places.items()
              if not any(line.startswith(name + " at ") for line in old)
              and place < sizes.get(name.split(".")[0], 0)]
    return gone + [name + ": new, inside" for name in inside]


def layout(compiler, statements):
    text = '#include <brim.h>\n#include <stdio.h>\nint main(void) {\n%s\nreturn 0;\n}\n'
    with tempfile.TemporaryDirectory() as holder:
        source = pathlib.Path(holder, "layout.c")
        source.write_text(text % "\n".join(statements))
        program = source.with_suffix("")
        subprocess.run([compiler, "-std=c17", "-I", ROOT / "include", source, "-o", program],
                       check=True)
        return subprocess.run([program], check=True, stdout=subprocess.PIPE,
                              universal_newlines=True).stdout


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    made = layout("cc", lines())
    for line in breaks(golden_lines(GOLDEN), made.splitlines()):
        print("breaks programs:", line)
    GOLDEN.write_text(RULE + made)
    CALLS.write_text(RULE_OF_CALLS + calls())
    sys.exit(0)

HOW = "see docs/abi.md, and the top of this file for how to rewrite the list"

import support  # noqa: E402, which needs the program that is tested


class Layout(unittest.TestCase):
    maxDiff = None

    def test_it_is_that_of_the_list(self):
        if shutil.which("cc") is None:
            self.skipTest("needs a C compiler")
        golden = golden_lines(GOLDEN)
        self.assertGreater(len(golden), 300)
        self.assertEqual(golden, layout("cc", lines()).splitlines(), HOW)

    def test_calls_are_those_of_the_list(self):
        golden = golden_lines(CALLS)
        self.assertGreater(len(golden), 90)
        self.assertEqual(golden, calls().splitlines(), HOW)

    def test_no_struct_that_grows_ends_with_padding(self):
        """A later field would lie in it, where an older library looks for no option."""
        if shutil.which("cc") is None:
            self.skipTest("needs a C compiler")
        found = layout("cc", ends()).splitlines()
        self.assertGreater(len(found), 12)
        self.assertEqual([line for line in found if not line.endswith(" 0")], [])

    def test_what_breaks_programs(self):
        old = ["s 16 bytes", "s.a at 0", "s.b at 8", "E = 1"]
        for new, broken in (
            (["s 24 bytes", "s.a at 0", "s.b at 8", "s.c at 16", "E = 1", "F = 2"], []),
            (["s 16 bytes", "s.a at 0", "s.b at 8", "s.c at 12", "E = 1"], ["s.c: new, inside"]),
            (["s 16 bytes", "s.a at 0", "s.b at 4", "E = 2"], ["s.b at 8", "E = 1"]),
        ):
            self.assertEqual(breaks(old, new), broken)

    def test_no_enumerator_is_left_out(self):
        golden = GOLDEN.read_text()
        for name in set(re.findall(r"\bBRIM_(?:STATUS|ANSWER|MEMORY|DEVICE|GROWTH|FORM)_[A-Z0-9_]+",
                                   CODE)):
            if not name.endswith(("_INIT", "_INFO")):
                self.assertIn(name + " = ", golden)


if __name__ == "__main__":
    support.main()
