"""Images that all are in a cache: brim's two, tf.data's two, and DataLoaders over memory.

    PYTHONPATH=build/release/python tools/python bench/python/caches.py [--quick]

1,536 uint8 images of 224x224x3 (231 MB), each a cached sample: shuffled, flipped with chance,
normalised to float32, batches of 64. The first epochs, in which caches fill, are not measured.
Files are in the page cache, which is not counted as memory.

brim        `cache memory` and `cache file=` with two threads and five batches in memory, as many as
            such a DataLoader has, in a budget of 224 MiB, and of the images where they are in
            memory too; channels first for torch, last for TensorFlow
DataLoader  two worker processes over one uint8 tensor: a Dataset of single images as people write
            it; a TensorDataset that is asked for whole batches; and that without workers
tf.data     .cache() and .cache(file) of single images, .shuffle(1000), two parallel calls, of which
            each makes an image, or where the name says so a batch, and .prefetch(2)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import support

BATCH = 64
SIDE = 224
IMAGE_BYTES = SIDE * SIDE * 3
COUNT, QUICK_COUNT = 1536, 256
WORKING = 224 * support.MIB  # what brim has beside the cached images
SLOTS = 5
MOST_EPOCHS = 20  # in which a cache must be full
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _full(loader: Any, batches: Any) -> Iterator[Any]:
    """The batches of all epochs after the one in which the cache became full."""
    for _ in range(MOST_EPOCHS):
        for _ in batches:
            pass
        (cache,) = loader.stats()["caches"]
        if cache["filled"] == cache["samples"]:
            break
    else:
        raise RuntimeError(f"only {cache['filled']} samples are cached. {cache['warning']}")
    while True:
        yield from batches


def _text(folder: str, tier: str, rest: str) -> str:
    return (
        f'npy "{folder}/images.npy" | shuffle seed=1 | cache {tier} | flip | normalize imagenet'
        f" | {rest}batch {BATCH} remainder=drop"
    )


def _runtime(cached: int) -> Any:
    import brim

    return brim.Runtime(memory=cached * IMAGE_BYTES + WORKING, threads=support.THREADS)


# ------------------------------------------------------------------------------------------ torch


def brim_torch(clock: support.Clock, folder: str, tier: str, cached: int) -> None:
    import brim.torch

    text = _text(folder, tier, "layout chw | ")
    loader = brim.torch.loader(text, runtime=_runtime(cached), slots=SLOTS)
    for (x,) in _full(loader, loader):
        clock(len(x))


def _torch_images(folder: str) -> Any:
    import numpy
    import torch

    images = torch.from_numpy(numpy.load(f"{folder}/images.npy"))
    return images.permute(0, 3, 1, 2).contiguous()


def torch_items(clock: support.Clock, folder: str) -> None:
    import torch

    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)

    class Images(torch.utils.data.Dataset):
        def __init__(self) -> None:
            self.images = _torch_images(folder)

        def __len__(self) -> int:
            return len(self.images)

        def __getitem__(self, index: int) -> torch.Tensor:
            image = self.images[index]
            if torch.rand(()) < 0.5:
                image = image.flip(-1)
            return (image.float() / 255 - mean) / std

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


def torch_batches(clock: support.Clock, folder: str, workers: int) -> None:
    import torch

    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)

    def augment(batch: tuple[torch.Tensor]) -> torch.Tensor:
        (images,) = batch
        flipped = torch.rand(len(images)) < 0.5
        images[flipped] = images[flipped].flip(-1)
        return images.float().div_(255).sub_(mean).div_(std)

    dataset = torch.utils.data.TensorDataset(_torch_images(folder))
    order = torch.utils.data.RandomSampler(dataset)
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=None,
        sampler=torch.utils.data.BatchSampler(order, BATCH, drop_last=True),
        collate_fn=augment,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    while True:
        for x in loader:
            clock(len(x))


# ------------------------------------------------------------------------------------- TensorFlow


def brim_tensorflow(clock: support.Clock, folder: str, tier: str, cached: int) -> None:
    import brim.tensorflow

    text = _text(folder, tier, "")
    data = brim.tensorflow.dataset(text, runtime=_runtime(cached), slots=SLOTS)
    for (x,) in _full(data.loader, data):
        clock(len(x))


def tf_data(clock: support.Clock, folder: str, count: int, file: str, batches: bool) -> None:
    import tensorflow as tf

    mean, std = tf.constant(MEAN), tf.constant(STD)

    def decode(record: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.io.decode_raw(record, tf.uint8), (SIDE, SIDE, 3))

    def augment(images: tf.Tensor) -> tf.Tensor:
        images = tf.image.random_flip_left_right(images)
        return (tf.cast(images, tf.float32) / 255 - mean) / std

    data = tf.data.FixedLengthRecordDataset(f"{folder}/images.npy", IMAGE_BYTES, header_bytes=128)
    data = data.map(decode).cache(file).shuffle(1000).repeat()
    if batches:
        data = data.batch(BATCH).map(augment, num_parallel_calls=support.THREADS)
    else:
        data = data.map(augment, num_parallel_calls=support.THREADS).batch(BATCH)
    options = tf.data.Options()
    options.threading.private_threadpool_size = support.THREADS
    filling = 2 * count // BATCH  # batches: .shuffle takes the first epoch in before its end
    for number, x in enumerate(data.prefetch(2).with_options(options)):
        if number >= filling:
            clock(len(x))


SIDES: dict[str, Callable[..., None]] = {
    "brim.torch, memory": brim_torch,
    "brim.torch, file": brim_torch,
    "DataLoader, images": torch_items,
    "DataLoader, batches": torch_batches,
    "DataLoader, batches, 0 workers": torch_batches,
    "brim.tensorflow, memory": brim_tensorflow,
    "brim.tensorflow, file": brim_tensorflow,
    "tf.data, memory": tf_data,
    "tf.data, memory, batches": tf_data,
    "tf.data, file": tf_data,
    "tf.data, file, batches": tf_data,
}


def make(folder: str, count: int) -> None:
    import numpy

    chance = numpy.random.default_rng(1)
    shape = (count, SIDE, SIDE, 3)
    images = numpy.lib.format.open_memmap(f"{folder}/images.npy", "w+", numpy.uint8, shape)
    for number in range(count):
        images[number] = chance.integers(0, 256, shape[1:], numpy.uint8)


def _given(name: str, folder: str, count: int) -> dict[str, Any]:
    """The arguments of a side."""
    own = f"{folder}/{name.replace(', ', '-')}.cache"
    in_file = ", file" in name
    if name.startswith("brim"):
        tier = f'file="{own}"' if in_file else "memory"
        return {"folder": folder, "tier": tier, "cached": 0 if in_file else count}
    if name.startswith("tf.data"):
        file = own if in_file else ""
        return {"folder": folder, "count": count, "file": file, "batches": "batches" in name}
    if name.startswith("DataLoader, batches"):
        return {"folder": folder, "workers": 0 if "0 workers" in name else support.THREADS}
    return {"folder": folder}


def measure(options: support.Options, folder: str) -> None:
    count = QUICK_COUNT if options.quick else COUNT
    make(folder, count)
    title = f"{count:,} cached images of {SIDE}x{SIDE}x3 ({count * IMAGE_BYTES / 1e6:.0f} MB)"
    for framework, begins, reference in (
        ("torch", ("brim.torch", "DataLoader"), "DataLoader, images"),
        ("TensorFlow", ("brim.tensorflow", "tf.data"), "tf.data, memory"),
    ):
        support.compare(
            f"{framework}: {title}",
            {
                name: support.Process(name, _given(name, folder, count))
                for name in SIDES
                if name.startswith(begins)
            },
            reference,
            options,
            "wanted: brim twice as fast, in less memory",
        )


if __name__ == "__main__":
    support.main(__doc__, SIDES, measure)
