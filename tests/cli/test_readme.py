"""What the README and the pages of docs/ show is done as a reader would do it.

Blocks are told apart by the word after their three backticks:

    sh     run by sh -e in a folder of the page's own, block after block, with the command line on
           the PATH; lines that begin with `make` are left out
    c      with `int main`: compiled with the public header and the static library beside the
           command line, and run
    text   lines that begin with `brim `: the pipeline is planned
    console  lines that begin with `$ brim `: run, and what they say compared, numbers aside
    other  not looked at

A C program is saved as the NAME.c that the text before it, or its first line, gives in backticks or
in a comment, so that a later `cc NAME.c -lbrim` finds it: `cc` there finds header and library.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

from support import CLI, LIMIT, ROOT, main

BUILD = pathlib.Path(CLI).resolve().parent
FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```[ \t]*$", re.M | re.S)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LIBRARIES = ("-lxxhash", "-lz", "-lyajl", "-ljpeg", "-lspng", "-lwebp", "-pthread")
PLAN_OPTIONS = ("--memory", "--threads", "--shard", "--hold", "--slots")


class Block:
    def __init__(self, page, match):
        indent = len(match[1])
        text = page.read_text()
        self.kind = match[2]
        self.text = "".join(line[indent:] for line in match[3].splitlines(True))
        self.line = text.count("\n", 0, match.start()) + 1
        self.place = "%s:%d" % (page.relative_to(ROOT), self.line)
        before = text[:match.start()].rstrip().rsplit("\n\n", 1)[-1]
        names = re.findall(r"`([\w-]+\.c)`", before)
        first = re.match(r"\s*/[/*] ?([\w-]+\.c)\b", self.text)
        self.name = first[1] if first else names[-1] if names else None


def blocks_of(page):
    return [Block(page, match) for match in FENCE.finditer(page.read_text())]


def cached(name):
    """A variable of the build, "" if there is no build's cache beside the command line."""
    try:
        cache = (BUILD / "CMakeCache.txt").read_text()
    except OSError:
        return ""
    found = re.search(r"^%s:\w+=(.*)$" % re.escape(name), cache, re.M)
    return found[1] if found else ""


def compiler():
    return shutil.which(cached("CMAKE_C_COMPILER") or "cc")


def compiler_flags():
    sanitize = cached("BRIM_SANITIZE") or os.environ.get("BRIM_SANITIZE", "")
    return ["-fsanitize=" + sanitize] if sanitize else []


def plain_words(text):
    return re.sub(r"\d[\d.]*\b", "N", text).split()


class Page(unittest.TestCase):
    """All blocks of one page, in one folder."""

    maxDiff = None

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name) / "page"
        self.folder.mkdir()
        tools = pathlib.Path(holder.name) / "bin"
        tools.mkdir()
        os.symlink(pathlib.Path(CLI).resolve(), tools / "brim")
        if compiler():
            words = [compiler(), *compiler_flags(), "-I" + str(ROOT / "include"), "-L" + str(BUILD)]
            for name in ("cc", "gcc", "clang"):
                (tools / name).write_text("#!/bin/sh\nexec %s \"$@\" %s\n" % (
                    " ".join(map(shlex.quote, words)), " ".join(LIBRARIES)))
                (tools / name).chmod(0o755)
        self.environment = dict(os.environ)
        self.environment["PATH"] = "%s:%s" % (tools, os.environ["PATH"])
        self.environment["LD_LIBRARY_PATH"] = str(BUILD)
        self.environment["PKG_CONFIG_PATH"] = str(BUILD)

    def run_in_folder(self, words, place, good=(0,)):
        done = subprocess.run(list(map(str, words)), cwd=self.folder, env=self.environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=LIMIT)
        self.assertIn(done.returncode, good, "%s\n%s\n%s" % (
            place, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")))
        return done

    def run_shell(self, block):
        lines = [line for line in block.text.splitlines() if not re.match(r"make\b", line)]
        self.run_in_folder(["sh", "-e", "-c", "\n".join(lines)], block.place)

    def run_program(self, block, number):
        if compiler() is None:
            self.skipTest("there is no C compiler")
        source = self.folder / (block.name or "block-%d.c" % number)
        program = source.with_suffix("")
        source.write_text(block.text)
        self.run_in_folder(
            [compiler(), *compiler_flags(), "-std=c17", "-Wall", "-Wextra", "-Werror",
             "-I", ROOT / "include", source, BUILD / "libbrim.a", *LIBRARIES, "-o", program],
            block.place)
        self.run_in_folder([program], block.place)

    def plan_commands(self, block):
        """Plans what the lines that begin with `brim ` would run."""
        for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
            if not line.startswith("brim "):
                continue
            words = shlex.split(line)[1:]
            if words[0] not in ("plan", "run", "bench"):
                self.run_in_folder([CLI, *words], block.place)
                continue
            kept = ["plan"]
            rest = iter(words[1:])
            for word in rest:
                if not word.startswith("--"):
                    if any(c in word for c in "| "):  # the pipeline, not the value of an option
                        kept.append(word)
                elif word.split("=")[0] in PLAN_OPTIONS:
                    kept += [word] if "=" in word else [word, next(rest)]
            self.run_in_folder([CLI, *kept], block.place, good=(0, 3))

    def compare_console(self, block):
        """What `$ brim ...` says is what the page shows: word for word, but for the numbers and
        where lines are broken."""
        for piece in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
            command, _, shown = piece.partition("\n")
            if not command.startswith("brim "):
                continue
            done = self.run_in_folder(["sh", "-c", command + " 2>&1"], block.place, good=range(4))
            self.assertEqual(plain_words(shown), plain_words(done.stdout.decode()), block.place)

    def check(self, page):
        blocks = blocks_of(page)
        for number, block in enumerate(blocks):
            if block.kind == "c" and re.search(r"\bint main\b", block.text):
                with self.subTest(block=block.place):
                    self.run_program(block, number)
        for block in blocks:
            if block.kind == "sh":
                with self.subTest(block=block.place):
                    self.run_shell(block)
        for block in blocks:
            if block.kind == "console":
                with self.subTest(block=block.place):
                    self.compare_console(block)
        for block in blocks:
            if block.kind == "text":
                with self.subTest(block=block.place):
                    self.plan_commands(block)


def add_page(page):
    def test(self):
        self.check(page)
    test.__name__ = "test_" + re.sub(r"\W", "_", str(page.relative_to(ROOT)))
    setattr(Page, test.__name__, test)


for one in PAGES:
    if one.exists():
        add_page(one)


class Marks(unittest.TestCase):
    def test_no_block_hides_behind_another_word(self):
        for page in PAGES:
            if page.exists():
                for block in blocks_of(page):
                    self.assertNotIn(block.kind.lower(), ("bash", "shell", "zsh", "cpp", "c17"),
                                     block.place)
                    self.assertEqual(block.kind, block.kind.lower(), block.place)

    def test_there_is_something_to_run(self):
        kinds = [block.kind for page in PAGES if page.exists() for block in blocks_of(page)]
        self.assertIn("sh", kinds)
        self.assertIn("c", kinds)


if __name__ == "__main__":
    main()
