"""Trains a small network in a custom loop with TensorFlow, inside 64 MiB.

    python train_tensorflow.py            on images that it draws first
    python train_tensorflow.py FOLDER     on a folder of your own, with a folder for each class

The dataset is a tf.data.Dataset whose tensors are in brim's memory. It has specs and a length, and
every `for` over it is the next epoch; a whole epoch may run inside one tf.function, as here.
"""

from __future__ import annotations

import sys
import tempfile

import tensorflow as tf

import brim
from drawn import draw


def main(folder: str) -> None:
    data = (
        brim.folder(folder).shuffle(seed=7).decode().random_resized_crop(32).flip()
        .normalize("imagenet").batch(32)
    )  # fmt: skip
    dataset = brim.tensorflow.dataset(data, memory="64MiB")
    print(dataset.element_spec, len(dataset), "batches")

    tf.random.set_seed(0)
    filters = tf.Variable(tf.random.normal((5, 5, 3, 16), stddev=0.1))
    weights = tf.Variable(tf.random.normal((16, len(dataset.loader.classes["label"])), stddev=0.1))
    moments = [tf.Variable(tf.zeros_like(variable)) for variable in (filters, weights)]

    @tf.function
    def epoch() -> tf.Tensor:
        right, total = 0.0, 0.0
        for x, y in dataset:
            with tf.GradientTape() as tape:
                hidden = tf.reduce_mean(tf.nn.relu(tf.nn.conv2d(x, filters, 2, "VALID")), (1, 2))
                scores = hidden @ weights
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores))
            gradients = tape.gradient(loss, (filters, weights))
            for variable, moment, gradient in zip((filters, weights), moments, gradients):
                moment.assign(0.9 * moment + gradient)
                variable.assign_sub(0.1 * moment)
            found = tf.cast(tf.argmax(scores, 1), y.dtype)
            right += tf.reduce_sum(tf.cast(found == y, tf.float32))
            total += tf.cast(tf.size(y), tf.float32)
        return right / total

    for number in range(6):
        print(f"epoch {number}: {epoch().numpy():.0%} right")
    print(brim.runtime().usage())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as drawn:
            main(str(draw(drawn)))
