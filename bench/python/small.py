"""Samples that cost next to nothing: windows of tokens, and images of 32x32.

    PYTHONPATH=build/release/python tools/python bench/python/small.py [--quick]

tokens   windows of 1,024 and one more out of a file of 200 million uint16 (400 MB, in the page
         cache), shuffled, as int64 x and y, batches of 64
images   50,000 of 32x32x3 uint8 with labels, to normalised float32 with the channels first, batches
         of 128

brim.torch.loader has two threads and 256 MiB; the DataLoader has two worker processes over a
Dataset as people write it. The loop in numpy has no workers and makes a whole batch with a few
calls: random windows as nanoGPT takes them, and one indexing of the array.
"""

from __future__ import annotations

import pathlib
from typing import Any

import support

LENGTH = 1024
WINDOWS = 64
IMAGES = 128
MEMORY = "256MiB"
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def _runtime() -> Any:
    import brim

    return brim.Runtime(memory=MEMORY, threads=support.THREADS)


def _batches(dataset: Any, batch: int) -> Any:
    import torch

    return torch.utils.data.DataLoader(
        dataset,
        batch_size=batch,
        shuffle=True,
        drop_last=True,
        num_workers=support.THREADS,
        persistent_workers=True,
    )


# ----------------------------------------------------------------------------------------- tokens


def tokens_brim(clock: support.Clock, folder: str) -> None:
    import brim.torch

    data = brim.tokens(f"{folder}/tokens.bin", length=LENGTH).shuffle(seed=1).cast("int64")
    loader = brim.torch.loader(data.batch(WINDOWS, remainder="drop"), runtime=_runtime())
    while True:
        for x, y in loader:
            clock(len(x))


def tokens_dataloader(clock: support.Clock, folder: str) -> None:
    import numpy
    import torch

    class Windows(torch.utils.data.Dataset):
        def __init__(self) -> None:
            self.tokens = numpy.memmap(f"{folder}/tokens.bin", numpy.uint16, "r")

        def __len__(self) -> int:
            return (len(self.tokens) - 1) // LENGTH

        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            begin = index * LENGTH
            window = torch.from_numpy(self.tokens[begin : begin + LENGTH + 1].astype(numpy.int64))
            return window[:-1], window[1:]

    loader = _batches(Windows(), WINDOWS)
    while True:
        for x, y in loader:
            clock(len(x))


def tokens_numpy(clock: support.Clock, folder: str) -> None:
    import numpy

    tokens = numpy.memmap(f"{folder}/tokens.bin", numpy.uint16, "r")
    chance = numpy.random.default_rng(1)
    while True:
        begins = chance.integers(len(tokens) - LENGTH, size=WINDOWS)
        x = numpy.stack([tokens[at : at + LENGTH].astype(numpy.int64) for at in begins])
        y = numpy.stack([tokens[at + 1 : at + 1 + LENGTH].astype(numpy.int64) for at in begins])
        assert x.shape == y.shape
        clock(WINDOWS)


# ----------------------------------------------------------------------------------------- images


def images_brim(clock: support.Clock, folder: str) -> None:
    import numpy

    import brim.torch

    images, labels = numpy.load(f"{folder}/images.npy"), numpy.load(f"{folder}/labels.npy")
    data = brim.arrays(image=images, label=labels).shuffle(seed=1)
    data = data.normalize(mean=MEAN, std=STD, max=255, on="image").layout("chw", on="image")
    loader = brim.torch.loader(data.batch(IMAGES, remainder="drop"), runtime=_runtime())
    while True:
        for x, y in loader:
            clock(len(x))


def images_dataloader(clock: support.Clock, folder: str) -> None:
    import numpy
    import torch

    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)

    class Images(torch.utils.data.Dataset):
        def __init__(self) -> None:
            self.images = numpy.load(f"{folder}/images.npy")
            self.labels = numpy.load(f"{folder}/labels.npy")

        def __len__(self) -> int:
            return len(self.images)

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            pixels = torch.from_numpy(self.images[index]).permute(2, 0, 1).float() / 255
            return (pixels - mean) / std, int(self.labels[index])

    loader = _batches(Images(), IMAGES)
    while True:
        for x, y in loader:
            clock(len(x))


def images_numpy(clock: support.Clock, folder: str) -> None:
    import numpy

    images, labels = numpy.load(f"{folder}/images.npy"), numpy.load(f"{folder}/labels.npy")
    chance = numpy.random.default_rng(1)
    scale = numpy.float32(1 / (255 * numpy.float32(STD)))
    shift = numpy.float32(numpy.float32(MEAN) / numpy.float32(STD))
    while True:
        order = chance.permutation(len(images))
        for at in range(0, len(order) - IMAGES + 1, IMAGES):
            rows = order[at : at + IMAGES]
            x = images[rows].astype(numpy.float32) * scale - shift
            x, y = numpy.ascontiguousarray(x.transpose(0, 3, 1, 2)), labels[rows]
            clock(len(y))


SIDES = {
    "tokens, brim.torch": tokens_brim,
    "tokens, DataLoader": tokens_dataloader,
    "tokens, numpy": tokens_numpy,
    "images, brim.torch": images_brim,
    "images, DataLoader": images_dataloader,
    "images, numpy": images_numpy,
}


def make(folder: str, quick: bool) -> None:
    import numpy

    chance = numpy.random.default_rng(1)
    with open(f"{folder}/tokens.bin", "wb") as file:
        for _ in range(2 if quick else 100):
            file.write(chance.integers(0, 50257, 2_000_000, numpy.uint16).tobytes())
    count = 5_000 if quick else 50_000
    numpy.save(f"{folder}/images.npy", chance.integers(0, 256, (count, 32, 32, 3), numpy.uint8))
    numpy.save(f"{folder}/labels.npy", chance.integers(0, 10, count))


def measure(options: support.Options, folder: str) -> None:
    make(folder, options.quick)
    for load, title in (
        ("tokens", f"tokens: windows of {LENGTH} + 1, batches of {WINDOWS}"),
        ("images", f"images: 32x32x3, batches of {IMAGES}"),
    ):
        size = sum(
            path.stat().st_size
            for path in pathlib.Path(folder).iterdir()
            if path.name.startswith(load)
        )
        support.compare(
            f"{title} ({size / 1e6:.0f} MB)",
            {
                name: support.Process(name, {"folder": folder})
                for name in SIDES
                if name.startswith(load)
            },
            f"{load}, DataLoader",
            options,
            "wanted: 10, better 30",
        )


if __name__ == "__main__":
    support.main(__doc__, SIDES, measure)
