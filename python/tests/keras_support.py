"""What the tests of brim.keras share: backends, metrics that tell which samples a model was given.

Keras chooses its backend when it is imported: such a script runs itself once for each of them.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import unittest

import brim
import numpy
import support

BACKEND = os.environ.get("BRIM_TEST_KERAS", "")
COUNT = 200

if BACKEND:
    os.environ["KERAS_BACKEND"] = BACKEND
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    keras = support.need("keras")
elif importlib.util.find_spec("keras") is None:
    support.skip_all("keras is not installed (tools/venv installs it where it can)")


class OnEveryBackend(unittest.TestCase):
    """The script again, with a backend."""

    def run_with(self, backend: str) -> None:
        if importlib.util.find_spec(backend) is None:
            self.skipTest(f"{backend} is not installed")
        environment = {**os.environ, "BRIM_TEST_KERAS": backend}
        done = subprocess.run(
            [sys.executable, sys.argv[0]], env=environment, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"Ran [1-9][0-9]* tests")

    def test_tensorflow(self) -> None:
        self.run_with("tensorflow")

    def test_torch(self) -> None:
        self.run_with("torch")

    def test_jax(self) -> None:
        self.run_with("jax")


class Numbers(support.Case):
    """Samples that are their own targets, from 0 to COUNT - 1."""

    def setUp(self) -> None:
        super().setUp()
        keras.utils.set_random_seed(1)
        self.runtime = brim.Runtime(memory="64MiB", threads=2, index_dir=self.folder)
        self.addCleanup(self.runtime.close)
        self.column = numpy.arange(COUNT, dtype=numpy.float32).reshape(COUNT, 1)
        self.numbers = brim.arrays(x=self.column, y=self.column).shuffle(seed=7)
        self.data = self.numbers.batch(16)  # 13 batches, the last with 8 rows

    def open(self, data=None, **options):
        dataset = brim.keras.dataset(
            self.data if data is None else data, runtime=self.runtime, **options
        )
        self.addCleanup(dataset.close)
        return dataset

    def fit(self, model, dataset, **options):
        return model.fit(dataset, verbose=0, **options).history


if BACKEND:

    class Total(keras.metrics.Metric):
        """The sum of the targets, to a power."""

        def __init__(self, name: str, power: int) -> None:
            super().__init__(name=name)
            self.power = power
            self.total = self.add_weight(shape=(), initializer="zeros", name="total")

        def update_state(self, y_true, y_pred, sample_weight=None) -> None:
            values = keras.ops.cast(y_true, "float32") ** self.power
            if sample_weight is not None:
                values = values * keras.ops.reshape(sample_weight, keras.ops.shape(values))
            self.total.assign(self.total + keras.ops.sum(values))

        def result(self):
            return self.total + 0

    def counting_model() -> keras.Model:
        """Puts out what is put in."""
        model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
        names = ("count", "sum", "squares")
        model.compile(
            optimizer=keras.optimizers.SGD(0.0),
            loss="mse",
            metrics=[Total(name, power) for power, name in enumerate(names)],
        )
        return model

    class Record(keras.callbacks.Callback):
        """What the metrics came to with each batch."""

        def __init__(self, *names: str) -> None:
            super().__init__()
            self.names = names
            self.rows: list[tuple[float, ...]] = []

        def on_train_batch_end(self, batch, logs=None) -> None:
            self.rows.append(tuple(float(logs[name]) for name in self.names))

    class Stop(keras.callbacks.Callback):
        """Stops fit after so many batches."""

        def __init__(self, batches: int) -> None:
            super().__init__()
            self.batches = batches

        def on_train_batch_end(self, batch, logs=None) -> None:
            self.model.stop_training = batch + 1 >= self.batches
