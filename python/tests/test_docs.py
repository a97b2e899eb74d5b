"""The Python code of the README and of docs/ is run as a reader would run it.

A page's ```python blocks are one script, in their order, in a folder with drawn images, "train" and
"val". Its lines are numbered as the page's, so that a traceback points into the page.

- A block whose first line is `# NAME.py` is a file of its own, and run by itself.
- A block that names a framework which is not installed is left out. On a page that has a
  framework's name, all blocks are that framework's.
- An ```output block is what the python block before it prints, word for word.
"""

# label: full

from __future__ import annotations

import importlib.util
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

import support

support.need("numpy")

PAGES = [support.ROOT / "README.md", *sorted((support.ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(python|output)\n(.*?)^```$", re.M | re.S)
FRAMEWORKS = ("torch", "torchvision", "keras", "tensorflow", "jax", "lightning", "accelerate",
              "transformers")  # fmt: skip
NAMED = re.compile(rf"\b({'|'.join(FRAMEWORKS)})\b")
MARK = "\x1e"


class Block(NamedTuple):
    kind: str
    line: int  # of its fence
    text: str


def blocks_of(page: pathlib.Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(match[1], text.count("\n", 0, match.start()) + 1, match[2])
        for match in FENCE.finditer(text)
    ]


def can_run(page: pathlib.Path, block: Block) -> bool:
    needs = set(NAMED.findall(block.text))
    if page.stem in FRAMEWORKS:
        needs.add(page.stem)
    return all(importlib.util.find_spec(name) for name in needs)


class Pages(support.Case):
    def setUp(self) -> None:
        super().setUp()
        support.drawn_set(self.folder / "train", 60)
        support.drawn_set(self.folder / "val", 12)

    def run_script(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        run = subprocess.run(
            [sys.executable, name], cwd=self.folder, text=True, capture_output=True, timeout=400
        )
        self.assertEqual(run.returncode, 0, f"{name}\n{run.stdout[-2000:]}\n{run.stderr[-4000:]}")
        return run.stdout

    def check(self, page: pathlib.Path) -> None:
        blocks = blocks_of(page)
        script: list[str] = []
        printed: dict[int, str] = {}
        for block in blocks:
            if block.kind != "python" or not can_run(page, block):
                continue
            own = re.match(r"# (\w+\.py)$", block.text, re.M)
            if own:
                printed[block.line] = self.run_script(own[1], block.text)
                continue
            script += [""] * (block.line - 1 - len(script))
            script += [f'print("{MARK}{block.line}", flush=True)', *block.text.splitlines()]
        if script:
            for part in self.run_script(page.name, "\n".join(script)).split(MARK)[1:]:
                line, _, text = part.partition("\n")
                printed[int(line)] = text
        for before, block in zip(blocks, blocks[1:]):
            if block.kind == "output" and before.line in printed:
                place = f"{page.name}:{block.line}"
                self.assertEqual(printed[before.line].split(), block.text.split(), place)

    def test_no_block_is_marked_otherwise(self) -> None:
        for page in PAGES:
            for line in re.findall(r"^ *```py.*$|^ +```output.*$", page.read_text(), re.M):
                self.assertEqual(line, "```python", page.name)


def add(page: pathlib.Path) -> None:
    def test(self: Pages) -> None:
        self.check(page)

    setattr(Pages, "test_" + page.stem, test)


for one in PAGES:
    if any(block.kind == "python" for block in blocks_of(one)):
        add(one)

if __name__ == "__main__":
    support.main()
