"""brim.tensorflow with the real tf.data: values, specs, epochs, memory, training."""

# label: full

from __future__ import annotations

import gc
import os
import pathlib
import subprocess
import sys
import time
import unittest.mock
import warnings

import support

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
tf = support.need("tensorflow")

import numpy

import brim
import plans

COUNT = 200
COLUMN = numpy.arange(COUNT, dtype=numpy.float32).reshape(COUNT, 1)


class Dataset(support.Case):
    def setUp(self) -> None:
        super().setUp()
        self.runtime = brim.Runtime(memory="64MiB", threads=2, index_dir=self.folder)
        self.addCleanup(self.runtime.close)
        self.data = brim.arrays(x=COLUMN, y=COLUMN[:, 0].astype("int64")).shuffle(seed=7).batch(16)

    def open(self, data=None, **options):
        dataset = brim.tensorflow.dataset(
            self.data if data is None else data, runtime=self.runtime, **options
        )
        self.addCleanup(dataset.loader.close)
        return dataset

    def order(self, data, epoch: int) -> list[int]:
        with self.runtime.open(data, copies=True) as loader:
            loader.set_epoch(epoch)
            return [number for batch in loader for number in batch.ids.tolist()]

    def numbers(self, dataset) -> list[int]:
        return [int(n) for batch in dataset for n in batch[0][:, 0].numpy()]

    # --------------------------------------------------------------------------- Keras

    @unittest.skipUnless(tf.keras.backend.backend() == "tensorflow", "Keras has another backend")
    def test_keras_evaluates_padded_batches_as_unpadded_ones(self) -> None:
        """Unless it is given the mask, which is no weight: the reason why the page warns."""
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(loss="mae", metrics=["mse"])
        numbers = brim.arrays(x=COLUMN, y=COLUMN + 1)
        kept = self.open(numbers.batch(64))
        padded = numbers.batch(64, remainder="pad")
        cut, masked = self.open(padded), self.open(padded, fields=("x", "y", "valid"))
        self.assertEqual(model.evaluate(kept, verbose=0), [1.0, 1.0])
        self.assertEqual(model.evaluate(cut, verbose=0), [1.0, 1.0])
        self.assertEqual(len(model.predict(cut, verbose=0)), COUNT)
        self.assertEqual(model.evaluate(masked, verbose=0), [COUNT / 256, COUNT / 256])

    @unittest.skipUnless(tf.keras.backend.backend() == "tensorflow", "Keras has another backend")
    def test_keras_begins_with_a_later_epoch(self) -> None:
        first: list[int] = []

        class First(tf.keras.Model):
            """Notes the first number of each batch."""

            def train_step(self, data):
                first.append(int(data[0][0, 0]))
                return {"loss": tf.constant(0.0)}

        expected = [self.order(self.data, epoch)[::16] for epoch in range(3)]
        for begin in (0, 1):
            dataset, model = self.open(), First()
            model.compile(run_eagerly=True)
            first.clear()
            model.fit(
                dataset, epochs=3, initial_epoch=begin, verbose=0,
                callbacks=[brim.keras.Resume(dataset)],
            )  # fmt: skip
            self.assertEqual(first, sum(expected[begin:], []))
        with self.assertRaisesRegex(TypeError, "use brim.keras.dataset"):
            brim.keras.Backup(dataset, self.folder / "backup")
        with self.assertRaisesRegex(ValueError, "5 steps, and of 13 batches"):
            model.fit(
                dataset, epochs=3, initial_epoch=1, steps_per_epoch=5, verbose=0,
                callbacks=[brim.keras.Resume(dataset)],
            )  # fmt: skip

    # --------------------------------------------------------------------------- ranks

    def test_rows_are_told_only_where_all_ranks_have_as_many(self) -> None:
        data = brim.arrays(x=numpy.zeros((164, 2), "float32"))
        for rows, keywords, told in (
            (15, {"per": "global", "remainder": "drop"}, None),  # 8 and 7
            (16, {"per": "global", "remainder": "drop"}, 8),
            (8, {"remainder": "drop"}, 8),
            (16, {"micro": 5, "remainder": "drop"}, None),  # 5, 5, 5 and 1
            (16, {"micro": 4, "remainder": "drop"}, 4),
            (16, {"remainder": "drop", "on_error": "skip"}, None),
            (2, {}, 2),
            (3, {}, None),
        ):
            with self.subTest(rows=rows, **keywords):
                found = set()
                for rank in range(2):
                    dataset = self.open(data.batch(rows, **keywords), rank=rank, world=2)
                    self.assertEqual(dataset.element_spec[0].shape[0], told)
                    found |= {len(x) for (x,) in dataset}
                if told is not None:
                    self.assertEqual(found, {told})

    def test_an_epoch_of_fewer_batches(self) -> None:
        text = "concat (range 64 name=y | skip 40 | take 16) (range 16 name=y) | one_hot 48"
        dataset = self.open(brim.pipeline(text + " | batch 8 on_error=skip"))
        self.assertEqual(int(dataset.cardinality()), tf.data.UNKNOWN_CARDINALITY)
        self.assertEqual([len(y) for (y,) in dataset], [8, 8, 8])

    def test_shard_auto(self) -> None:
        data = brim.arrays(x=COLUMN).batch(10)
        with unittest.mock.patch.dict(os.environ, {"RANK": "1", "WORLD_SIZE": "2"}):
            dataset = self.open(data, shard="auto")
            self.assertEqual(self.numbers(dataset)[:10], list(range(10, 20)))
            self.assertRaises(ValueError, self.open, shard="auto", rank=0, world=1)
        self.assertRaises(ValueError, self.open, shard="yes")
        with self.assertRaisesRegex(brim.PipelineError, "device='cuda'.*host memory"):
            self.open(device="cuda")
        self.assertRaises(ValueError, self.open, rank=0)

    # -------------------------------------------------------------------------- epochs

    def test_each_iteration_is_an_epoch(self) -> None:
        dataset = self.open()
        self.assertEqual(len(dataset), 13)
        for epoch in range(3):
            self.assertEqual(self.numbers(dataset), self.order(self.data, epoch))

    def test_a_look_costs_nothing(self) -> None:
        dataset = self.open()
        for _ in dataset.take(1):
            pass
        next(iter(dataset))
        self.assertEqual(self.numbers(dataset), self.order(self.data, 0))
        for _ in dataset.take(3):
            pass
        self.assertEqual(self.numbers(dataset), self.order(self.data, 2))

    def test_a_new_iteration_ends_an_older_one(self) -> None:
        dataset = self.open()
        old = iter(dataset)
        next(old)
        new = iter(dataset)
        next(new)
        with self.assertRaisesRegex(tf.errors.OpError, "a newer iterator"):
            next(old)
        self.assertEqual(sum(1 for _ in new), 12)

    def test_with_tf_data(self) -> None:
        dataset = self.open().map(lambda x, y: (x * 2, y)).prefetch(2).repeat(2)
        given = [int(n) for x, _ in dataset for n in x[:, 0].numpy() / 2]
        self.assertEqual(given, self.order(self.data, 0) + self.order(self.data, 1))

    def test_inside_a_function(self) -> None:
        dataset = self.open()

        @tf.function
        def total() -> tf.Tensor:
            result = tf.constant(0, tf.int64)
            for _, y in dataset:
                result += tf.reduce_sum(y)
            return result

        for _ in range(3):
            self.assertEqual(int(total()), COUNT * (COUNT - 1) // 2)

    def test_errors_arrive(self) -> None:
        dataset = self.open()
        dataset.loader.close()
        with self.assertRaisesRegex(tf.errors.OpError, "closed"):
            next(iter(dataset))
        with self.assertRaisesRegex(brim.PipelineError, "'z'; it gives x, y"):
            self.open(fields="z")

    # --------------------------------------------------------------------------- batches

    def test_specs(self) -> None:
        spec = tf.TensorSpec
        self.assertEqual(
            self.open().element_spec, (spec((None, 1), tf.float32), spec((None,), tf.int64))
        )
        arrays = brim.arrays(x=COLUMN, y=COLUMN)
        for data in (arrays.batch(20), arrays.batch(16, remainder="drop")):
            dataset = self.open(data, fields="y")
            rows = 20 if len(dataset) == 10 else 16
            self.assertEqual(dataset.element_spec, (spec((rows, 1), tf.float32),))
        skips = self.open(arrays.batch(20, on_error="skip"), fields=["x"])
        self.assertEqual(skips.element_spec, (spec((None, 1), tf.float32),))
        named = self.open(
            arrays.cast("bfloat16", on="x").batch(64, remainder="pad"),
            fields=("x", "ids", "valid"),
            as_dict=True,
        )
        self.assertEqual(
            named.element_spec,
            {
                "x": spec((64, 1), tf.bfloat16),
                "ids": spec((64,), tf.int64),
                "valid": spec((64,), tf.bool),
            },
        )
        batches = list(named)
        ids = [int(n) for b in batches for n in tf.boolean_mask(b["ids"], b["valid"]).numpy()]
        self.assertEqual(ids, list(range(COUNT)))
        self.assertEqual(batches[1]["x"][5, 0].numpy(), 69)
        self.assertEqual(batches[-1]["ids"].numpy()[-1], -1)

    def test_images_are_those_of_the_core_loader(self) -> None:
        support.drawn_set(self.folder / "drawn", 20)
        data = (
            brim.folder(self.folder / "drawn").shuffle(seed=3).decode().random_resized_crop(16)
            .flip().normalize("imagenet").batch(8)
        )  # fmt: skip
        given = [(x.numpy().copy(), y.numpy()) for x, y in self.open(data)]
        with self.runtime.open(data) as loader:
            for (x, y), batch in zip(given, loader, strict=True):
                numpy.testing.assert_array_equal(x, batch["image"].numpy())
                numpy.testing.assert_array_equal(y, batch["label"].numpy())

    def test_padded_rows_are_cut_off(self) -> None:
        dataset = self.open(brim.arrays(x=COLUMN).batch(64, remainder="pad"))
        self.assertEqual([len(x) for (x,) in dataset], [64, 64, 64, 8])

    def test_unknown_length(self) -> None:
        data = brim.arrays(x=COLUMN).filter("x < 50").batch(16)
        dataset = self.open(data)
        self.assertEqual(dataset.cardinality(), tf.data.UNKNOWN_CARDINALITY)
        self.assertEqual(self.numbers(dataset), list(range(50)))

    def test_text(self) -> None:
        (self.folder / "lines.txt").write_text("one\ntwo ünd three\n\nfour\n")
        dataset = self.open(brim.text(self.folder / "lines.txt").batch(3))
        self.assertEqual(dataset.element_spec, (tf.TensorSpec((None,), tf.string),))
        lines = [line.decode() for (text,) in dataset for line in text.numpy()]
        self.assertEqual(lines, ["one", "two ünd three", "", "four"])

    def test_ragged(self) -> None:
        def steps(sample):
            return {"steps": numpy.arange(int(sample["x"][0]) % 4, dtype=numpy.int32)}

        data = brim.arrays(x=COLUMN).map(steps, out={"steps": ("int32", (4,), "ragged")}).batch(7)
        dataset = self.open(data, fields="steps")
        self.assertEqual(
            dataset.element_spec, (tf.RaggedTensorSpec((None, None), tf.int32, 1, tf.int64),)
        )
        rows = [row for (batch,) in dataset for row in batch.to_list()]
        self.assertEqual(rows, [list(range(n % 4)) for n in range(COUNT)])

    def test_ranks(self) -> None:
        given = [self.numbers(self.open(rank=rank, world=2)) for rank in range(2)]
        self.assertEqual(sorted(given[0] + given[1]), list(range(COUNT)))
        self.assertRaises(ValueError, self.open, world=2)

    # ---------------------------------------------------------------------------- memory

    def images(self):
        pixels = numpy.zeros((COUNT, 64, 64, 3), numpy.float32) + COLUMN[:, :, None, None]
        return brim.arrays(x=pixels, y=COLUMN).shuffle(seed=3).batch(20)

    def assert_lent(self, dataset, count: int) -> None:
        """TensorFlow has so many slots, in the end: its threads let go in their own time."""
        deadline = time.monotonic() + 60
        while dataset.loader.stats()["lent"] != count and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(dataset.loader.stats()["lent"], count)

    def test_tensors_lie_in_the_batch(self) -> None:
        dataset = self.open(self.images(), fields="x")
        iterator = iter(dataset)
        for _ in range(3):
            (x,) = next(iterator)
            self.assert_lent(dataset, 1)
            del x
        kept = [next(iterator), next(iterator)]
        self.assert_lent(dataset, 2)
        del kept

    def test_what_is_kept_stays(self) -> None:
        dataset = self.open(self.images())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", brim.HoldWarning)
            kept = list(dataset.prefetch(3))
        self.assertEqual(self.numbers_of(kept), self.order(self.images(), 0))
        self.assertTrue(all(bool(tf.reduce_all(x == y[:, :, None, None])) for x, y in kept))
        self.assert_lent(dataset, 3)
        self.assertEqual(dataset.loader.stats()["copies"], 7)
        del kept
        for _ in dataset:
            self.assertLess(dataset.loader.stats()["lent"], 4)

    def test_looking_ahead_is_held_back(self) -> None:
        """tf.data may ask for more than fits: it waits until batches are done with."""
        with brim.Runtime("8MiB", threads=1) as runtime, warnings.catch_warnings():
            warnings.simplefilter("ignore", brim.HoldWarning)
            dataset = brim.tensorflow.dataset(self.images(), runtime=runtime)
            found = []
            for x, _ in dataset.prefetch(100):
                time.sleep(0.02)
                found += [int(n) for n in x[:, 0, 0, 0]]
                del x
            self.assertEqual(found, self.order(self.images(), 0))
            self.assertLessEqual(runtime.usage()["peak"], 8 << 20)
            dataset.loader.close()

    def test_kept_beyond_the_budget(self) -> None:
        """When nothing more fits, and nothing goes for a while, that is said."""
        with brim.Runtime("8MiB", threads=1) as runtime, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = brim.tensorflow.dataset(self.images(), runtime=runtime)
            kept = []
            with (
                unittest.mock.patch("brim._adapters.PATIENCE", 0.1),
                unittest.mock.patch("brim._adapters.PATIENCE_AHEAD", 0.1),
                self.assertRaisesRegex(
                    tf.errors.OpError, "HeldError: .*[0-9]+ batches and copies of batches are held"
                ),
            ):
                for batch in dataset:
                    kept.append(batch)
            self.assertGreater(len(kept), 3)
            self.assertLess(len(kept), 10)
            expected = self.order(self.images(), 0)
            self.assertEqual(self.numbers_of(kept), expected[: 20 * len(kept)])
            kept.clear()
            del batch
            gc.collect()
            self.assertEqual(self.numbers_of(dataset), expected)  # the epoch that it ended
            self.assertEqual(self.numbers_of(dataset), self.order(self.images(), 1))
            self.assertLessEqual(runtime.usage()["peak"], 8 << 20)
            dataset.loader.close()

    def numbers_of(self, batches) -> list[int]:
        return [int(n) for _, y in batches for n in y[:, 0].numpy()]

    def test_memory_stays_flat(self) -> None:
        dataset = self.open(self.images())

        def rss() -> int:
            gc.collect()
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096

        def work(epochs: int) -> int:
            for _ in range(epochs):
                self.assertEqual(sorted(self.numbers_of(dataset)), list(range(COUNT)))
                next(iter(dataset))  # a look
            return rss()

        before = work(5)
        self.assertLess(work(30) - before, 24 * support.MIB)  # an epoch has 10 MiB
        usage = self.runtime.usage()
        self.assertLessEqual(usage["peak"], usage["limit"])

    def test_a_dataset_that_is_gone_frees_its_loader(self) -> None:
        dataset = brim.tensorflow.dataset(self.data, runtime=self.runtime)
        self.assertEqual(len(self.numbers(dataset)), COUNT)
        self.assertEqual(self.runtime.usage()["loaders"], 1)
        del dataset
        gc.collect()
        self.assertEqual(self.runtime.usage()["loaders"], 0)
        for derived in (
            iter(brim.tensorflow.dataset(self.data, runtime=self.runtime)),
            brim.tensorflow.dataset(self.data, runtime=self.runtime).map(lambda x, y: (x, y)),
        ):
            gc.collect()
            self.assertEqual(len(self.numbers(derived)), COUNT)
        del derived
        gc.collect()
        self.assertEqual(self.runtime.usage()["loaders"], 0)

    # -------------------------------------------------------------------------- learning

    def test_learns_mnist(self) -> None:
        digits = support.mnist(self)
        data = digits.split("train", validation=0.2).shuffle(seed=2).batch(50)
        train = self.open(data, fields=("image", "label", "ids"))
        valid = self.open(digits.split("validation", validation=0.2).batch(250))
        tf.random.set_seed(1)
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(64, activation="relu"),
                tf.keras.layers.Dense(10),
            ]
        )
        model.build((None, 28, 28, 1))
        optimizer = tf.keras.optimizers.Adam(0.003)

        @tf.function
        def step(x: tf.Tensor, y: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x))
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))

        with self.runtime.open(data) as core:
            numbers = sorted(number for batch in core for number in batch.ids.tolist())
        self.assertEqual(len(set(numbers)), len(data))
        for _ in range(2):
            seen: list[int] = []
            for x, y, ids in train:
                step(x, tf.cast(y, tf.int32))
                seen += ids.numpy().tolist()
            self.assertEqual(sorted(seen), numbers)
        right = rows = 0
        for x, y in valid:
            found = tf.argmax(model(x), 1).numpy()
            right += int((found == y.numpy()).sum())
            rows += len(found)
        self.assertEqual(rows, len(digits) - len(numbers))
        self.assertGreaterEqual(right / rows, 0.9)

    def test_example_learns(self) -> None:
        example = support.ROOT / "examples" / "python" / "train_tensorflow.py"
        done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"epoch 5: (9[0-9]|100)% right")

    # ------------------------------------------------------------- plans, and going on

    def take(self, data, **options) -> int:
        dataset = brim.tensorflow.dataset(data, **options)
        try:
            return sum(1 for _ in dataset)
        finally:
            dataset.loader.close()

    def test_what_fits_opens(self) -> None:
        plans.check(self, brim.tensorflow.plan, self.take, self.folder)

    def test_an_error_begins_the_epoch_again(self) -> None:
        """tf.data counts the batches of an iteration: the rest of an epoch would be too few."""
        trouble = support.Trouble(40, 9)
        dataset = self.open(trouble.data.batch(4), threads=0)
        for _ in range(2):
            found: list[int] = []
            with self.assertRaisesRegex(tf.errors.OpError, "in trouble"):
                for (x,) in dataset:
                    found += [int(n) for n in x[:, 0].numpy()]
            self.assertEqual(found, list(range(8)))
        trouble.on = False
        for epoch in range(2):
            self.assertEqual(dataset.loader.epoch, epoch)
            self.assertEqual(self.numbers(dataset), list(range(40)))

    def test_where_nothing_is_counted_it_goes_on(self) -> None:
        trouble = support.Trouble(40, 9)
        dataset = self.open(trouble.data.filter("x >= 0").batch(4), threads=0)
        with self.assertRaisesRegex(tf.errors.OpError, "in trouble"):
            self.numbers(dataset)
        trouble.on = False
        self.assertEqual(self.numbers(dataset), list(range(8, 40)))
        self.assertEqual(self.numbers(dataset), list(range(40)))


if __name__ == "__main__":
    support.main()
