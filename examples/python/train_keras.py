"""Trains a small network with Keras, on whichever backend it has, inside 64 MiB.

    KERAS_BACKEND=jax python train_keras.py            on images that it draws first
    KERAS_BACKEND=jax python train_keras.py FOLDER     on a folder of your own, one for each class

The datasets replace those of Keras. Training and validation are in one budget; every epoch of fit
is one epoch of the pipeline, complete and in its order, whatever indexes Keras asks for.
"""

from __future__ import annotations

import sys
import tempfile

import keras

import brim
from drawn import draw


def main(folder: str) -> None:
    keras.utils.set_random_seed(0)
    files = brim.folder(folder)
    train = brim.keras.dataset(
        files.split("train", test=0.2).shuffle(seed=7).decode()
        .random_resized_crop(32).flip().normalize("imagenet").batch(32),
        memory="64MiB",
    )  # fmt: skip
    test = brim.keras.dataset(
        files.split("test", test=0.2).decode().resize(32, 32)
        .normalize("imagenet").batch(32)
    )  # fmt: skip
    model = keras.Sequential(
        [
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(len(train.classes["label"])),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.03),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(train, epochs=4, validation_data=test, verbose=0).history
    for epoch, (loss, right) in enumerate(zip(history["loss"], history["val_accuracy"])):
        print(f"epoch {epoch}: loss {loss:.3f}, {right:.0%} of the held-out images right")
    print(brim.runtime().usage())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as drawn:
            main(str(draw(drawn)))
