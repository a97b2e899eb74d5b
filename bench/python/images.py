"""JPEG files to normalised float32 crops: brim in C, brim in each framework, and a DataLoader.

    PYTHONPATH=build/release/python tools/python bench/python/images.py [--quick]

random_resized_crop 224, flip, normalise, channels first, batches of 64, two threads, 256 MiB. brim
in C is `brim bench` on the same text. Keras is measured through `fit` of a model whose step does
nothing. The DataLoader has two worker processes and a Dataset that does the same with Pillow and
numpy, in torchvision's way (the whole image is decoded, cropped, resized).

Files are those of imagenet below BRIM_DATA, or below shared/data beside the repository; else 200
images of 500x375 are drawn. Each epoch goes over them 50 times.
"""

from __future__ import annotations

import math
import os
import pathlib
from typing import Any

import support

BATCH = 64
SIDE = 224
REPEAT = 50
MEMORY = "256MiB"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _text(folder: str) -> str:
    return (
        f'folder "{folder}" classes=no | repeat {REPEAT} | shuffle seed=1 | decode'
        f" | random_resized_crop {SIDE} | flip | normalize imagenet | layout chw"
        f" | batch {BATCH} remainder=drop"
    )


def _runtime() -> Any:
    import brim

    return brim.Runtime(memory=MEMORY, threads=support.THREADS)


def torch(clock: support.Clock, folder: str) -> None:
    import brim.torch

    loader = brim.torch.loader(_text(folder), runtime=_runtime())
    while True:
        for (x,) in loader:
            clock(len(x))


def jax(clock: support.Clock, folder: str) -> None:
    import brim.jax

    loader = brim.jax.loader(_text(folder), runtime=_runtime())
    while True:
        for (x,) in loader:
            clock(len(x))


def tensorflow(clock: support.Clock, folder: str) -> None:
    import brim.tensorflow

    data = brim.tensorflow.dataset(_text(folder), runtime=_runtime())
    while True:
        for (x,) in data:
            clock(len(x))


def keras(clock: support.Clock, folder: str, backend: str) -> None:
    os.environ["KERAS_BACKEND"] = backend
    __import__(backend)  # keras does not say which one it misses
    import keras

    import brim.keras

    class Nothing(keras.Model):
        """A model whose training step takes a batch and does nothing."""

        def build(self, shape: Any) -> None:
            self.built = True

        def call(self, x: Any) -> Any:
            return x

        def train_step(self, *arguments: Any) -> Any:
            logs = {"loss": keras.ops.zeros(())}
            return (logs, arguments[0]) if backend == "jax" else logs

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            clock(BATCH)

    model = Nothing()
    model.build(None)
    model.compile()
    data = brim.keras.dataset(_text(folder), runtime=_runtime())
    model.fit(data, epochs=1 << 30, verbose=0, callbacks=[Count()])


def dataloader(clock: support.Clock, folder: str) -> None:
    import numpy
    import torch
    from PIL import Image

    mean, std = numpy.float32(MEAN), numpy.float32(STD)

    class Images(torch.utils.data.Dataset):
        def __init__(self) -> None:
            self.paths = sorted(pathlib.Path(folder).iterdir())
            self.chance: numpy.random.Generator | None = None

        def __len__(self) -> int:
            return len(self.paths) * REPEAT

        def box(self, width: int, height: int) -> tuple[int, int, int, int]:
            assert self.chance is not None
            for _ in range(10):
                area = width * height * self.chance.uniform(0.08, 1)
                shape = math.exp(self.chance.uniform(math.log(3 / 4), math.log(4 / 3)))
                w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
                if 0 < w <= width and 0 < h <= height:
                    left = int(self.chance.integers(width - w + 1))
                    top = int(self.chance.integers(height - h + 1))
                    return left, top, left + w, top + h
            side = min(width, height)
            left, top = (width - side) // 2, (height - side) // 2
            return left, top, left + side, top + side

        def __getitem__(self, index: int) -> torch.Tensor:
            if self.chance is None:  # in the worker
                self.chance = numpy.random.default_rng(torch.initial_seed() % (1 << 63))
            with Image.open(self.paths[index % len(self.paths)]) as file:
                image = file.convert("RGB")
            image = image.crop(self.box(*image.size)).resize((SIDE, SIDE), Image.BILINEAR)
            if self.chance.random() < 0.5:
                image = image.transpose(Image.FLIP_LEFT_RIGHT)
            pixels = (numpy.asarray(image, numpy.float32) / 255 - mean) / std
            return torch.from_numpy(numpy.ascontiguousarray(pixels.transpose(2, 0, 1)))

    loader = torch.utils.data.DataLoader(
        Images(),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=support.THREADS,
        persistent_workers=True,
    )
    while True:
        for x in loader:
            clock(len(x))


SIDES = {
    "brim.torch": torch,
    "brim.jax": jax,
    "brim.tensorflow": tensorflow,
    "brim.keras on torch": lambda clock, folder: keras(clock, folder, "torch"),
    "brim.keras on jax": lambda clock, folder: keras(clock, folder, "jax"),
    "brim.keras on tensorflow": lambda clock, folder: keras(clock, folder, "tensorflow"),
    "DataLoader, Pillow": dataloader,
}


def draw(folder: str, count: int = 200) -> None:
    """Writes photographs of a sort: smooth shapes with some noise."""
    import numpy
    from PIL import Image

    chance = numpy.random.default_rng(1)
    for number in range(count):
        coarse = Image.fromarray(chance.integers(0, 256, (6, 8, 3), numpy.uint8))
        smooth = numpy.asarray(coarse.resize((500, 375), Image.BICUBIC), numpy.int16)
        pixels = (smooth + chance.integers(-12, 13, smooth.shape)).clip(0, 255).astype(numpy.uint8)
        Image.fromarray(pixels).save(f"{folder}/{number:05}.jpg", quality=88)


def find(folder: str) -> str:
    """The folder of images."""
    data = pathlib.Path(os.environ.get("BRIM_DATA") or support.ROOT.parent / "shared" / "data")
    if (data / "imagenet").is_dir():
        return str(data / "imagenet")
    draw(folder)
    return folder


def measure(options: support.Options, folder: str) -> None:
    try:
        images = find(folder)
    except ModuleNotFoundError as error:
        print(f"no images, and none can be drawn: {error}; nothing was measured")
        return
    sides: dict[str, Any] = {
        "brim in C": support.Command(options.cli, _text(images), MEMORY, BATCH)
    }
    sides |= {name: support.Process(name, {"folder": images}) for name in SIDES}
    support.compare(
        f"images: {len(os.listdir(images))} files, crops of {SIDE}, batches of {BATCH}",
        sides,
        "brim in C",
        options,
        "wanted: 0.97 for torch, 0.9 for the others",
    )


if __name__ == "__main__":
    support.main(__doc__, SIDES, measure, seconds=2)
