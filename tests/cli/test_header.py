"""Tests of brim.h itself: the program in its opening comment, and the header in C and in C++.

Needs python3's standard library, BRIM_CLI, beside which the build has libbrim.a, and compilers: a
C compiler, g++; what is not there is skipped.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import support

BUILD = pathlib.Path(support.CLI).resolve().parent
HEADER = (support.ROOT / "include" / "brim.h").read_text()
LIBRARIES = ("-lxxhash", "-lz", "-lyajl", "-ljpeg", "-lspng", "-lwebp", "-lm", "-pthread")
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-pedantic", "-Werror")
INIT = re.compile(r"^#define (BRIM_\w+_INIT) +BRIM__INIT(?:_THREADS)?\((\w+)\)$", re.M)


def opening_program():
    comment = HEADER[:HEADER.index("*/")]
    lines = comment.splitlines()
    first = lines.index(" *     #include <brim.h>")
    last = lines.index(" *     }", first)
    return "\n".join(line[7:] for line in lines[first:last + 1]) + "\n"


def every_struct():
    """A program that makes each struct with its macro, and uses each inline function."""
    made = INIT.findall(HEADER)
    lines = ["#include <brim.h>", "int main(void) {"]
    for i, (macro, name) in enumerate(made):
        lines += ["    %s s%d = %s;" % (name, i, macro),
                  "    if (s%d.size != sizeof(%s)) return %d;" % (i, name, i + 1)]
    lines += [
        "    brim_runtime_options limits = BRIM_RUNTIME_OPTIONS_INIT;",
        "    brim_open_options options = BRIM_OPEN_OPTIONS_INIT;",
        "    if (limits.threads != BRIM_THREADS_AUTO || options.threads != BRIM_THREADS_AUTO)",
        "        return 100;",
        "    const float numbers[6] = { 1, 2, 3, 4, 5, 6 };",
        "    const int64_t shape[2] = { 3, 2 };",
        "    const brim_binding binding = brim_bind_array(\"x\", numbers, BRIM_DTYPE_F32, 2, shape);",
        "    if (binding.size != sizeof binding || binding.shape[1] != 2) return 101;",
        "    brim_value values[2];",
        "    values[0].size = sizeof values[0];",
        "    if (brim_value_at(values, 1) != &values[1]) return 102;",
        "    if (BRIM_VERSION_NUMBER != (int)brim_version_number()) return 103;",
        "    return brim_status_name(BRIM_STATUS_STOPPED)[0] == 'B' ? 0 : 104;",
        "}", ""]
    return len(made), "\n".join(lines)


class Header(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def build(self, compiler, standard, text, name):
        """The path of the program. `compiler`: the words that call it."""
        if shutil.which(compiler) is None:
            self.skipTest("there is no %s" % compiler)
        source = self.folder / name
        source.write_text(text)
        program = source.with_suffix("")
        sanitize = os.environ.get("BRIM_SANITIZE")
        flags = ["-fsanitize=" + sanitize] if sanitize else []
        done = subprocess.run(
            [compiler, "-std=" + standard, *STRICT, *flags, "-I", support.ROOT / "include", source,
             BUILD / "libbrim.a", *LIBRARIES, "-o", program],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=support.LIMIT)
        self.assertEqual(done.returncode, 0, done.stdout.decode(errors="replace"))
        return program

    def run_program(self, program):
        done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=support.LIMIT)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout.decode()

    def check_opening_program(self, compiler, standard, name):
        said = self.run_program(self.build(compiler, standard, opening_program(), name))
        self.assertEqual(said.split(), (["64", "numbers"] * 15 + ["40", "numbers"]))

    def test_the_opening_program_in_c(self):
        self.check_opening_program("cc", "c17", "opening.c")

    def test_the_opening_program_in_cpp(self):
        self.check_opening_program("g++", "c++17", "opening.cpp")

    def test_the_opening_program_is_short_and_checks_every_status(self):
        text = opening_program()
        body = text[text.index("int main"):].splitlines()
        self.assertLessEqual(len(body), 21)
        calls = re.findall(r"brim_\w+\(", text)
        statuses = set(re.findall(r"^BRIM_API brim_status (brim_\w+)\(", HEADER, re.M))
        for call in {call[:-1] for call in calls} & statuses:
            self.assertRegex(text, r"status = %s\(" % call)

    def test_the_opening_program_is_the_shortest_example(self):
        example = (support.ROOT / "examples" / "shortest.c").read_text()
        code = example[example.index("*/") + 2:]
        self.assertEqual("".join(code.split()), "".join(opening_program().split()))

    def check_structs(self, compiler, standard, name):
        count, text = every_struct()
        self.assertGreaterEqual(count, 13)
        self.assertEqual(count, len(re.findall(r"^#define BRIM_\w+_INIT\b", HEADER, re.M)))
        self.run_program(self.build(compiler, standard, text, name))

    def test_every_struct_in_c(self):
        self.check_structs("cc", "c17", "structs.c")

    def test_every_struct_in_older_c(self):
        self.check_structs("cc", "c11", "structs.c")

    def test_every_struct_in_cpp(self):
        self.check_structs("g++", "c++17", "structs.cpp")

    def test_every_struct_in_newer_cpp(self):
        self.check_structs("g++", "c++20", "structs.cpp")

    def test_every_struct_with_clang(self):
        self.check_structs("clang", "c17", "structs.c")
        self.check_structs("clang++", "c++17", "structs.cpp")

    def test_inside_extern_c_and_twice(self):
        text = 'extern "C" {\n#include <brim.h>\n}\n#include <brim.h>\n%s'
        program = every_struct()[1].replace("#include <brim.h>", "")
        self.run_program(self.build("g++", "c++17", text % program, "twice.cpp"))

    def test_in_cpp_an_enum_takes_every_number(self):
        """Of another library, and of kinds of memory, which have more numbers than names."""
        text = ("#include <brim.h>\n#include <type_traits>\n%sint main() { return "
                "brim_device_memory(BRIM_DEVICE_CUDA, 7) == static_cast<brim_memory>(9) ? 0 : 1; }")
        checks = "".join(
            "static_assert(std::is_same<std::underlying_type<%s>::type, int>::value, \"\");\n" % name
            for name in re.findall(r"^typedef enum (\w+)", HEADER, re.M))
        self.assertGreater(len(checks), 800)
        self.run_program(self.build("g++", "c++17", text % checks, "enums.cpp"))


class Words(unittest.TestCase):
    """What the header promises of itself."""

    def test_every_handle_names_its_destroyer(self):
        for name in re.findall(r"^typedef struct (brim_\w+) \1;", HEADER, re.M):
            before = HEADER[:HEADER.index("typedef struct %s %s;" % (name, name))]
            self.assertTrue(before.endswith("*/\n"), name)
            comment = before[before.rindex("/*"):]
            self.assertRegex(comment, r"_(free|close|release|commit)\b", name)

    def test_every_struct_and_enum_has_a_comment(self):
        for match in re.finditer(r"^typedef (?:struct|enum) brim_\w+ (?:BRIM__ENUM )?\{", HEADER, re.M):
            self.assertTrue(HEADER[:match.start()].endswith("*/\n"), match[0])

    def test_one_verb_fills_a_struct(self):
        for _, name in INIT.findall(HEADER):
            for call in re.findall(r"brim_status (brim_\w+)\([^;]*\b(?<!const )%s \*\w+\);" % name,
                                   HEADER):
                self.assertIn("_read", call)

    def test_statuses_and_dtypes_are_prefixed_by_their_type(self):
        statuses = re.findall(r"^ +X\((BRIM_\w+), \d+,", HEADER, re.M)
        self.assertGreater(len(statuses), 20)
        self.assertEqual([s for s in statuses if not s.startswith("BRIM_STATUS_")], ["BRIM_OK"])
        self.assertIn("#define X(name, text, number, bytes) BRIM_DTYPE_##name = number,", HEADER)

    def test_enumerators_are_prefixed_by_their_type(self):
        for body, name in re.findall(r"typedef enum brim_\w+ BRIM__ENUM \{([^}]*)\} brim_(\w+);", HEADER):
            for word in re.findall(r"^ *(BRIM_\w+) =", body, re.M):
                prefix = "BRIM_" + name.upper()
                short = re.sub(r"_KIND$|_LEVEL$", "", prefix)
                self.assertTrue(word.startswith((prefix + "_", short + "_")), word)


if __name__ == "__main__":
    support.main()
