"""A function of Python's on each image: brim in processes and in threads, and a DataLoader.

    PYTHONPATH=build/release/python tools/python bench/python/functions.py [--quick]

The function crops an image of 224x224x3, resizes it with Pillow, flips it and changes its
brightness and contrast with numpy: a millisecond or two. Images come from one .npy file of 2,000
(300 MB, in the page cache), shuffled, and go out as uint8 in batches of 64. brim and the DataLoader
have two processes each; in brim's threads the function shares one interpreter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import support

if TYPE_CHECKING:
    import numpy

BATCH = 64
SIDE = 224
MEMORY = "57MiB"  # two workers with stacks for Python, and four batches


def augment(image: Any, rng: numpy.random.Generator) -> Any:
    """Some work of about a millisecond."""
    import numpy
    from PIL import Image

    side = int(rng.integers(SIDE // 2, SIDE + 1))
    left, top = rng.integers(SIDE - side + 1, size=2).tolist()
    box = (left, top, left + side, top + side)
    pixels = numpy.asarray(Image.fromarray(image).resize((SIDE, SIDE), Image.BILINEAR, box))
    if rng.random() < 0.5:
        pixels = pixels[:, ::-1]
    gain, shift = numpy.float32(rng.uniform(0.8, 1.2)), numpy.float32(rng.uniform(-20, 20))
    return (pixels * gain + shift).clip(0, 255).astype(numpy.uint8)


def sample(given: dict[str, Any], rng: numpy.random.Generator) -> dict[str, Any]:
    return {"image": augment(given["image"], rng)}


def _brim(clock: support.Clock, folder: str, **how: Any) -> None:
    import brim.torch

    data = brim.npy(f"{folder}/images.npy", name="image").shuffle(seed=1)
    data = data.map(sample, out={"image": ("uint8", (SIDE, SIDE, 3))}, **how)
    loader = brim.torch.loader(
        data.batch(BATCH, remainder="drop"),
        runtime=brim.Runtime(memory=MEMORY, threads=support.THREADS),
    )
    while True:
        for (x,) in loader:
            clock(len(x))


def processes(clock: support.Clock, folder: str) -> None:
    _brim(clock, folder, processes=support.THREADS)


def threads(clock: support.Clock, folder: str) -> None:
    _brim(clock, folder, concurrent=True)


def dataloader(clock: support.Clock, folder: str, workers: int) -> None:
    import numpy
    import torch

    class Images(torch.utils.data.Dataset):
        def __init__(self) -> None:
            self.images = numpy.load(f"{folder}/images.npy", mmap_mode="r")
            self.chance: numpy.random.Generator | None = None

        def __len__(self) -> int:
            return len(self.images)

        def __getitem__(self, index: int) -> torch.Tensor:
            if self.chance is None:  # in the worker
                self.chance = numpy.random.default_rng(torch.initial_seed() % (1 << 63))
            return torch.from_numpy(augment(self.images[index], self.chance))

    loader = torch.utils.data.DataLoader(
        Images(),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    while True:
        for x in loader:
            clock(len(x))


SIDES = {
    "brim.torch, 2 processes": processes,
    "brim.torch, 2 threads": threads,
    "DataLoader, 2 processes": lambda clock, folder: dataloader(clock, folder, support.THREADS),
    "DataLoader, none": lambda clock, folder: dataloader(clock, folder, 0),
}


def measure(options: support.Options, folder: str) -> None:
    import numpy

    try:
        import PIL
    except ModuleNotFoundError as error:
        print(f"{error}; nothing was measured")
        return
    print(f"Pillow {PIL.__version__}")
    chance = numpy.random.default_rng(1)
    count = 200 if options.quick else 2000
    images = numpy.lib.format.open_memmap(
        f"{folder}/images.npy", "w+", numpy.uint8, (count, SIDE, SIDE, 3)
    )
    for number in range(count):
        images[number] = chance.integers(0, 256, (SIDE, SIDE, 3), numpy.uint8)
    del images
    support.compare(
        f"functions: {count} images of {SIDE}x{SIDE}x3, batches of {BATCH}",
        {name: support.Process(name, {"folder": folder}) for name in SIDES},
        "DataLoader, 2 processes",
        options,
        "wanted: 1, in less memory",
    )


if __name__ == "__main__":
    support.main(__doc__, SIDES, measure)
