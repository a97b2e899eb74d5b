"""numpy arrays as samples: in memory, and in a file that is larger than the budget.

    python arrays.py

An array is not copied: brim reads its rows in place, in the order of the shuffle, and the budget
counts only batches. The same holds for a memmap, whose pages belong to the system; `npy` reads the
same file inside the budget.
"""

from __future__ import annotations

import pathlib
import tempfile

import numpy

import brim

ROWS = 20_000


def sums(data: brim.Pipeline) -> tuple[float, str]:
    """The sum of x over an epoch, in the order of its batches, and the most memory it took."""
    total = 0.0
    with brim.Runtime(memory="1MiB") as rt, rt.open(data) as loader:
        for batch in loader:
            total += float(numpy.asarray(batch["x"]).sum(dtype=numpy.float64))
        return total, f"{rt.usage()['peak'] / 2**20:.2f} MiB"


def main(folder: pathlib.Path) -> None:
    x = numpy.random.default_rng(0).normal(size=(ROWS, 64)).astype(numpy.float32)
    y = numpy.arange(ROWS) % 10

    data = brim.arrays(x=x, y=y)
    print(f"{len(data)} samples of {', '.join(data[0])}, {x.nbytes / 2**20:.1f} MiB")
    train = data.split("train", validation=0.1, seed=1).shuffle(seed=7).batch(64)
    print("training part, an epoch:", *sums(train))

    path = folder / "x.npy"
    numpy.save(path, x)
    mapped = numpy.load(path, mmap_mode="r")
    shuffled = [sums(source.shuffle(seed=7).batch(64)) for source in (
        brim.array(x), brim.array(mapped), brim.npy(path)
    )]  # fmt: skip
    for name, (total, peak) in zip(("array", "memmap", "file"), shuffled):
        print(f"{name:7} {total:.6f}, at most {peak}")
    assert len({total for total, _ in shuffled}) == 1
    print("the same batches from all three")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(pathlib.Path(folder))
