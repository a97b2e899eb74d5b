"""Trains a small network with JAX on several devices, inside 64 MiB.

    python train_jax.py            on images that it draws first
    python train_jax.py FOLDER     on a folder of your own, with a folder for each class

Each batch is sharded over all devices of the machine; a CPU alone counts as two. A batch stays
uint8 until it is on its device, which moves a quarter of the bytes of float32.
"""

from __future__ import annotations

import os
import sys
import tempfile

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import brim
from drawn import draw


def scores(parameters, x):
    x = x.astype(jnp.float32) / 127.5 - 1
    hidden = jax.lax.conv_general_dilated(
        x, parameters["filters"], (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jax.nn.relu(hidden).mean((1, 2)) @ parameters["weights"]


def loss(parameters, x, y):
    logits = scores(parameters, x)
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)
    return -picked.mean(), (logits.argmax(1) == y).mean()


@jax.jit
def step(parameters, moments, x, y):
    (_, right), gradients = jax.value_and_grad(loss, has_aux=True)(parameters, x, y)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
    return jax.tree.map(lambda p, m: p - 0.1 * m, parameters, moments), moments, right


def main(folder: str) -> None:
    devices = Mesh(jax.devices(), ("rows",))
    data = (
        brim.folder(folder).shuffle(seed=7).decode().random_resized_crop(32).flip()
        .batch(32, remainder="drop")
    )  # fmt: skip
    loader = brim.jax.loader(
        data, memory="64MiB", sharding=NamedSharding(devices, PartitionSpec("rows"))
    )
    print(f"{len(loader)} batches of {loader.plan['batch_rows']} over {devices.size} devices")
    keys = jax.random.split(jax.random.key(0))
    parameters = {
        "filters": 0.1 * jax.random.normal(keys[0], (5, 5, 3, 16)),
        "weights": 0.1 * jax.random.normal(keys[1], (16, len(loader.classes["label"]))),
    }
    parameters = jax.device_put(parameters, NamedSharding(devices, PartitionSpec()))
    moments = jax.tree.map(jnp.zeros_like, parameters)
    for number, epoch in enumerate(loader.epochs(6)):
        right = []
        for x, y in epoch:
            parameters, moments, share = step(parameters, moments, x, y)
            right.append(share)
        print(f"epoch {number}: {sum(right) / len(right):.0%} right")
    print(brim.runtime().usage())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as drawn:
            main(str(draw(drawn)))
