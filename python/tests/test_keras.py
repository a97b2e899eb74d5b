"""brim.keras with real models, on each backend of Keras that is installed.

Which samples a model was given is told by metrics of its targets, which are the samples' numbers.
"""

# label: full

from __future__ import annotations

import gc
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import unittest.mock
import warnings

import support
from keras_support import BACKEND, COUNT, Numbers, OnEveryBackend

if BACKEND:
    import keras
    import numpy
    from keras_support import Record, Stop, Total, counting_model

    import brim

    def totals(numbers) -> tuple[float, ...]:
        """What the metrics give for these targets; exact below 2**24."""
        return tuple(float(sum(int(n) ** power for n in numbers)) for power in (0, 1, 2))

    def seen(logs, prefix: str = "") -> list[tuple[float, ...]]:
        """For each epoch of a history, or for one evaluation, what the metrics told."""
        rows = [logs[prefix + name] for name in ("count", "sum", "squares")]
        return list(zip(*rows)) if isinstance(rows[0], list) else [tuple(map(float, rows))]

    class Placed(Total):
        """The sum of the targets, each times its place in the batch."""

        def update_state(self, y_true, y_pred, sample_weight=None) -> None:
            values = keras.ops.reshape(keras.ops.cast(y_true, "float32"), (-1,))
            places = keras.ops.cumsum(keras.ops.ones_like(values))
            self.total.assign(self.total + keras.ops.sum(values * places))


@unittest.skipUnless(BACKEND, "run by OnEveryBackend")
class Keras(Numbers):
    def setUp(self) -> None:
        super().setUp()
        self.all = totals(range(COUNT))

    def order(self, data, epoch: int) -> list[int]:
        with self.runtime.open(data, copies=True) as loader:
            loader.set_epoch(epoch)
            return [number for batch in loader for number in batch.ids.tolist()]

    # --------------------------------------------------------------- what is given when

    def test_an_epoch_of_fewer_batches(self) -> None:
        """Batches of bad samples alone are passed over. Keras, which counts on them, gets batches
        of no rows at the end to predict, and of the next epoch to train or evaluate."""
        data = self.some_bad({4, 5, 6, 7}).batch(4, on_error="skip")
        rows = [*range(4), *range(8, 20)]
        model, dataset = counting_model(), self.open(data, x="x")
        for _ in range(3):
            self.assertEqual(model.predict(dataset, verbose=0)[:, 0].astype(int).tolist(), rows)
        dataset = self.open(data)
        for epoch in range(2):
            fewer = f"epoch {epoch} ended after fewer than 5 batches"
            with self.assertWarnsRegex(UserWarning, fewer):
                found = model.evaluate(dataset, verbose=0, return_dict=True)
            self.assertEqual(seen(found), [totals([*rows, *range(4)])])

    def test_a_batch_of_no_rows_is_never_trained_on(self) -> None:
        """It would make the means that a layer keeps NaN."""
        data = self.some_bad({4, 5, 6, 7}).batch(4, on_error="skip")
        model = keras.Sequential([keras.layers.BatchNormalization(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(self.open(data), epochs=2, verbose=0)
        self.assertTrue(all(numpy.isfinite(weight).all() for weight in model.get_weights()))

    def test_a_look_after_a_look_is_the_same_epoch(self) -> None:
        """As after a fit that failed before it began: nothing is lost."""
        dataset = self.open()
        first = dataset[0][0].copy()
        dataset[1]
        for _ in range(3):
            numpy.testing.assert_array_equal(dataset[0][0], first)
            dataset[1]
        given = counting_model().predict(dataset, verbose=0)[:, 0].astype(int).tolist()
        self.assertEqual(given, self.order(self.data, 0))

    def test_every_sample_once_per_epoch(self) -> None:
        model, train = counting_model(), self.open()
        some = self.column[:50]
        valid = self.open(brim.arrays(x=some, y=some).shuffle(seed=2).batch(16))
        history = self.fit(model, train, epochs=3, validation_data=valid)
        self.assertEqual(seen(history), [self.all] * 3)
        self.assertEqual(seen(history, "val_"), [totals(range(50))] * 3)
        history = self.fit(model, train, epochs=2)
        self.assertEqual(seen(history), [self.all] * 2)
        self.assertEqual(len(train), 13)

    def test_order_and_epochs_are_the_pipelines(self) -> None:
        model, dataset = counting_model(), self.open()
        epochs = []
        for _ in range(3):
            epochs.append(model.predict(dataset, verbose=0)[:, 0].astype(int).tolist())
        self.assertEqual(epochs, [self.order(self.data, epoch) for epoch in range(3)])
        dataset.set_epoch(7)
        given = model.predict(dataset, verbose=0)[:, 0].astype(int).tolist()
        self.assertEqual(given, self.order(self.data, 7))

    def test_fit_shuffles_nothing(self) -> None:
        """Its own shuffling is on by default, and asks for batches by numbers out of order."""
        model, dataset = counting_model(), self.open()
        metrics = [Total("count", 0), Total("sum", 1), Total("squares", 2), Placed("placed", 1)]
        model.compile(optimizer=keras.optimizers.SGD(0.0), loss="mse", metrics=metrics)
        record = Record("count", "sum", "squares", "placed")
        self.fit(model, dataset, epochs=2, callbacks=[record])
        expected = []
        for epoch in range(2):
            so_far = numpy.zeros(4)
            with self.runtime.open(self.data) as loader:
                loader.set_epoch(epoch)
                for batch in loader:
                    ids = numpy.array(batch.ids)
                    places = numpy.arange(len(ids)) + 1
                    so_far += [len(ids), ids.sum(), (ids**2).sum(), (ids * places).sum()]
                    expected.append(tuple(so_far))
        self.assertEqual(record.rows, expected)

    def test_fit_begins_with_epoch_0(self) -> None:
        model, dataset = counting_model(), self.open()
        self.fit(model, dataset, epochs=2)  # has looked at batches before
        given = model.predict(dataset, verbose=0)[:, 0].astype(int).tolist()
        self.assertEqual(given, self.order(self.data, 2))

    def test_evaluations_between(self) -> None:
        model, dataset = counting_model(), self.open()
        for _ in range(2):
            self.assertEqual(seen(self.fit(model, dataset)), [self.all])
            found = model.evaluate(dataset, verbose=0, return_dict=True)
            self.assertEqual(seen(found), [self.all])
        same = self.fit(model, dataset, epochs=2, validation_data=dataset)
        self.assertEqual(seen(same) + seen(same, "val_"), [self.all] * 4)

    def test_stopped_early(self) -> None:
        model, dataset = counting_model(), self.open()
        for batches in (5, 1, 3):
            history = self.fit(model, dataset, epochs=9, callbacks=[Stop(batches)])
            self.assertEqual(seen(history)[0][0], 16.0 * batches)
            self.assertEqual(seen(self.fit(model, dataset, epochs=2)), [self.all] * 2)

    def test_steps_per_epoch(self) -> None:
        model = counting_model()
        dataset = self.open(self.numbers.batch(10))
        history = self.fit(model, dataset, epochs=8, steps_per_epoch=5)
        for half in (seen(history)[:4], seen(history)[4:]):
            self.assertEqual(tuple(map(sum, zip(*half))), self.all)

    def test_one_step_per_epoch(self) -> None:
        model = counting_model()
        dataset = self.open(self.numbers.batch(20))
        history = self.fit(model, dataset, epochs=10, steps_per_epoch=1)
        self.assertEqual(tuple(map(sum, zip(*seen(history)))), self.all)

    @unittest.skipIf(BACKEND == "torch", "Keras on torch takes one step at a time")
    def test_several_steps_at_a_time(self) -> None:
        model = counting_model()
        model.compile(
            loss="mse", optimizer="sgd", metrics=[Total("count", 0)], steps_per_execution=4
        )
        model.optimizer.learning_rate = 0.0
        data = self.numbers.batch(10)
        if BACKEND == "tensorflow":  # which takes the batches of all of them first
            dataset = self.open(data)
            with self.assertRaisesRegex(ValueError, "hold=3: .*execution=4 .*hold=6 or more"):
                self.fit(model, dataset, epochs=3)
            self.assertEqual(dataset.stats()["batches"], 0)
        minimum = brim.keras.plan(data, memory="64MiB", hold=6).minimum_bytes
        with brim.Runtime(minimum) as runtime:
            dataset = brim.keras.dataset(data, runtime=runtime, hold=6)
            history = self.fit(model, dataset, epochs=3)
            self.assertEqual(history["count"], [COUNT] * 3)
            self.assertEqual(dataset.stats()["copies"], 0)
            dataset.close()

    def test_unknown_length(self) -> None:
        data = self.numbers.filter("x < 100").batch(10)
        dataset = self.open(data)
        self.assertIsNone(dataset.num_batches)
        self.assertRaises(TypeError, len, dataset)
        history = self.fit(
            counting_model(), dataset, epochs=4, steps_per_epoch=5, shuffle=False
        )
        for half in (seen(history)[:2], seen(history)[2:]):
            self.assertEqual(tuple(map(sum, zip(*half))), totals(range(100)))

    def test_an_epoch_without_end_is_told(self) -> None:
        data = self.numbers.filter("x < 100").batch(10)
        model = counting_model()
        with self.assertWarnsRegex(
            UserWarning, "epoch 0 ended after 10 batches; give fit steps_per_epoch=10"
        ):
            self.fit(model, self.open(data), epochs=1, callbacks=[Stop(40)])
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "epoch [0-9]+ ended")
            for steps in (10, 4):
                self.fit(model, self.open(data), epochs=8, steps_per_epoch=steps)

    def test_shard_auto(self) -> None:
        with unittest.mock.patch.dict(os.environ, {"RANK": "1", "WORLD_SIZE": "2"}):
            dataset = self.open(brim.arrays(x=self.column).batch(10), shard="auto")
        self.assertEqual(len(dataset), 10)
        self.assertEqual(dataset[0][0][:, 0].tolist(), list(range(10, 20)))

    def test_a_loop_of_ones_own(self) -> None:
        dataset = self.open()
        for epoch in range(2):
            given = [int(n) for x, _ in dataset for n in x[:, 0]]
            self.assertEqual(given, self.order(self.data, epoch))
        first = iter(dataset)
        next(first), next(first), next(first)
        second = iter(dataset)
        next(second)
        with self.assertRaisesRegex(brim._core.IterationError, "newer one"):
            next(first)

    # --------------------------------------------------------------------- what a batch is

    def test_fields(self) -> None:
        n = numpy.arange(12, dtype=numpy.float32).reshape(12, 1)
        data = brim.arrays(a=n, b=n + 1, c=n + 2, w=n[:, 0]).batch(5)
        (batch,) = self.open(data, x="c")[0]
        self.assertEqual(batch[:, 0].tolist(), [2, 3, 4, 5, 6])
        x, y = self.open(data)[0]
        self.assertEqual((x[0, 0], y[0, 0]), (0, 1))
        x, y, w = self.open(data, x=["a", "c"], y={"out": "b"}, sample_weight="w")[0]
        self.assertEqual((x[0][1, 0], x[1][1, 0], y["out"][1, 0], w[1]), (1, 3, 2, 1))
        left, right = keras.Input((1,), name="left"), keras.Input((1,), name="right")
        model = keras.Model([left, right], keras.layers.Add()([left, right]))
        dataset = self.open(data, x={"left": "a", "right": "c"})
        self.assertEqual(
            model.predict(dataset, verbose=0)[:, 0].tolist(), (n * 2 + 2)[:, 0].tolist()
        )
        with self.assertRaisesRegex(brim.PipelineError, "'d'; it gives a, b, c, w"):
            self.open(data, x="d")
        self.assertRaises(ValueError, self.open, data, y="a")
        self.assertRaises(ValueError, self.open, data, x="a", sample_weight="w")

    def test_images_are_those_of_the_core_loader(self) -> None:
        support.drawn_set(self.folder / "drawn", 20)
        data = (
            brim.folder(self.folder / "drawn").shuffle(seed=3).decode().random_resized_crop(16)
            .flip().normalize("imagenet").batch(8)
        )  # fmt: skip
        given = [(numpy.array(x), numpy.array(y)) for x, y in self.open(data)]
        with self.runtime.open(data) as loader:
            for (x, y), batch in zip(given, loader, strict=True):
                numpy.testing.assert_array_equal(x, batch["image"].numpy())
                numpy.testing.assert_array_equal(y, batch["label"].numpy())
        flat = keras.Sequential([keras.layers.Flatten()])
        dataset = self.open(data, x="image")
        found = flat.predict(dataset, verbose=0)
        expected = numpy.concatenate([x.reshape(len(x), -1) for x, _ in given])
        numpy.testing.assert_array_equal(found, expected)

    def classifier(self, **options) -> keras.Model:
        """With dropout and momentum, so that every row of a train step counts."""
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.layers.Dropout(0.2), keras.layers.Dense(10)])
        model.compile(
            optimizer=keras.optimizers.SGD(0.01, momentum=0.9),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            **{"metrics": ["accuracy"], "weighted_metrics": ["accuracy"], **options},
        )
        return model

    def digits(self):
        """200 samples whose outputs for a row of zeros would show in any mean."""
        random = numpy.random.default_rng(5)
        x = random.normal(1.0, 1.0, (COUNT, 6)).astype(numpy.float32)
        y = random.integers(1, 10, COUNT).astype(numpy.int32)
        return brim.arrays(x=x, y=y).shuffle(seed=7)

    def assert_close(self, found: dict, expected: dict) -> None:
        self.assertEqual(found.keys(), expected.keys())
        for name, values in expected.items():
            numpy.testing.assert_allclose(found[name], values, rtol=2e-6, err_msg=name)

    def test_padded_rows(self) -> None:
        data = self.numbers.batch(64, remainder="pad")
        model = counting_model()
        for options in ({}, {"sample_weight": "valid"}):
            dataset = self.open(data, **options)
            self.assertEqual(seen(model.evaluate(dataset, verbose=0, return_dict=True)), [self.all])
            self.assertEqual(len(model.predict(dataset, verbose=0)), COUNT)
        batches = list(self.open(data, sample_weight="valid"))
        self.assertEqual([len(x) for x, _, _ in batches], [64, 64, 64, 8])
        for x, y, weights in batches:
            self.assertEqual((x.shape, weights.dtype), (y.shape, numpy.float32))
            self.assertEqual(weights.tolist(), [1.0] * len(x))
        for x, y in self.open(data, x={"in": "x", "mask": "valid"}, y="y"):
            self.assertEqual((len(x["mask"]), x["mask"].all()), (len(y), True))

    def test_padding_changes_no_result(self) -> None:
        """Losses, metrics and training steps are those of the same batches unpadded."""
        padded = self.digits().batch(64, remainder="pad")
        kept = self.digits().batch(64)
        found = []
        for data, options in (
            (kept, {}), (padded, {}), (kept, {"sample_weight": "valid"}),
            (padded, {"sample_weight": "valid"}),
        ):  # fmt: skip
            model, train = self.classifier(), self.open(data, **options)
            results = self.fit(model, train, epochs=2, validation_data=self.open(data, **options))
            results["weights"] = model.get_weights()[0]
            results |= model.evaluate(self.open(data, **options), verbose=0, return_dict=True)
            found.append(results)
        for results in found[1:]:
            self.assert_close(results, found[0])

    def test_padding_with_class_weights(self) -> None:
        weights = {n: 0.5 + n for n in range(10)}
        found = []
        for remainder in ("keep", "pad"):
            train = self.open(self.digits().batch(64, remainder=remainder))
            found.append(self.fit(self.classifier(), train, class_weight=weights))
        self.assert_close(found[1], found[0])
        both = self.open(self.digits().batch(64, remainder="pad"), sample_weight="valid")
        with self.assertRaisesRegex(ValueError, "class_weight"):
            self.fit(self.classifier(), both, class_weight=weights)

    def test_padding_with_several_outputs(self) -> None:
        x = keras.Input((1,), name="x")
        outputs = {name: keras.layers.Dense(1, name=name)(x) for name in ("a", "b")}
        model = keras.Model(x, outputs)
        names = {"a": ["mae"], "b": ["mae"]}
        model.compile(
            loss={"a": "mse", "b": "mae"}, loss_weights={"a": 1.0, "b": 0.5}, metrics=names,
            weighted_metrics=names,
        )  # fmt: skip
        column = self.column / COUNT + 1
        found = []
        for remainder, options in (
            ("keep", {}), ("pad", {}), ("pad", {"sample_weight": "valid"})
        ):  # fmt: skip
            data = brim.arrays(x=column, a=column * 2, b=column + 3)
            data = data.batch(64, remainder=remainder)
            dataset = self.open(data, x="x", y={"a": "a", "b": "b"}, **options)
            found.append(model.evaluate(dataset, verbose=0, return_dict=True))
            self.assertEqual(model.predict(dataset, verbose=0)["a"].shape, (COUNT, 1))
        self.assert_close(found[1], found[0])
        self.assert_close(found[2], found[0])

    def some_bad(self, bad, count: int = 20):
        def check(sample):
            if int(sample["x"][0]) in bad:
                raise ValueError("bad")
            return sample

        column = self.column[:count]
        return brim.arrays(x=column, y=column).map(check)

    def test_padding_with_bad_samples_left_out(self) -> None:
        bad = {3, 9, 17, 19}
        data = self.some_bad(bad).batch(8, on_error="skip", remainder="pad")
        expected = totals(set(range(20)) - bad)
        for options in ({}, {"sample_weight": "valid"}):
            dataset = self.open(data, **options)
            found = counting_model().evaluate(dataset, verbose=0, return_dict=True)
            self.assertEqual(seen(found), [expected])
            self.assertEqual(len(counting_model().predict(dataset, verbose=0)), 16)

    def test_a_batch_without_rows(self) -> None:
        """A mean over no rows is NaN: that is said, where Keras would go on with it. One of several
        ranks gets such batches."""
        data = self.some_bad({4, 5, 6, 7}).batch(4, on_error="skip")
        part = {"rank": 1, "world": 2}  # 4 to 7, 12 to 15, and a last batch of which it has no row
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", brim.EmptyBatchWarning)
            dataset = self.open(data, x="x", **part)
            self.assertEqual(len(counting_model().predict(dataset, verbose=0)), 6)
            with self.assertRaisesRegex(brim.DataError, "epoch 0, step 0.* no valid rows.*replace"):
                counting_model().evaluate(self.open(data, **part), verbose=0)

    def test_weights_alone(self) -> None:
        """x and y are the first two fields besides the weights."""
        n = self.column[:12]
        data = brim.arrays(w=n[:, 0], a=n + 1, b=n + 2).batch(5)
        x, y, w = self.open(data, sample_weight="w")[0]
        self.assertEqual((x[1, 0], y[1, 0], w[1]), (2, 3, 1))
        with self.assertRaisesRegex(ValueError, "needs y="):
            self.open(brim.arrays(x=n).batch(5), sample_weight="valid")
        with self.assertRaisesRegex(ValueError, "needs x="):
            self.open(data, y="a", sample_weight="w")

    def test_ranks(self) -> None:
        given = []
        for rank in range(2):
            dataset = self.open(rank=rank, world=2)
            given += [int(n) for x, _ in dataset for n in x[:, 0]]
        self.assertEqual(sorted(given), list(range(COUNT)))
        self.assertRaises(ValueError, self.open, rank=0)

    def test_rows_that_differ_in_length(self) -> None:
        path = self.folder / "lines.txt"
        path.write_text("one\ntwo and three\nfour\n")
        data = brim.text(path).batch(2)
        if BACKEND == "tensorflow":
            batches = [text.numpy().tolist() for (text,) in self.open(data)]
            self.assertEqual(batches, [[b"one", b"two and three"], [b"four"]])
        else:
            with self.assertRaisesRegex(brim.PipelineError, f"text, and Keras on {BACKEND}"):
                self.open(data)

    def test_what_it_is_not(self) -> None:
        dataset = self.open()
        with self.assertRaisesRegex(ValueError, "threads="):
            dataset.workers = 4
        with self.assertRaises(ValueError):
            dataset.use_multiprocessing = True
        with self.assertRaisesRegex(TypeError, "send the Pipeline"):
            pickle.dumps(dataset)
        with self.assertRaises(ValueError):
            brim.keras.dataset(self.data, memory="1MiB", runtime=self.runtime)
        with self.assertRaisesRegex(brim.PipelineError, "device='cuda'.*host memory"):
            self.open(device="cuda")
        self.open(device="cpu").close()
        dataset.close()
        self.assertRaises(brim.ClosedError, dataset.__getitem__, 0)

    # -------------------------------------------------------------------------- memory

    def images(self):
        pixels = numpy.zeros((COUNT, 64, 64, 3), numpy.float32)
        pixels += numpy.arange(COUNT, dtype=numpy.float32).reshape(COUNT, 1, 1, 1)
        return brim.arrays(x=pixels, y=self.column).shuffle(seed=3).batch(20)

    def test_what_is_kept_stays(self) -> None:
        dataset = self.open(self.images())
        kept = [dataset[i] for i in range(10)]
        given = [int(x[0, 0, 0]) for xs, _ in kept for x in xs]
        self.assertEqual(given, self.order(self.images(), 0))
        self.assertTrue(all((x == y[:, :, None, None]).all() for x, y in kept))
        self.assertEqual(dataset.stats()["lent"], 3)
        self.assertEqual(dataset.stats()["copies"], 7)
        del kept
        self.assertEqual(dataset.stats()["lent"], 0)

    def test_kept_beyond_the_budget(self) -> None:
        """When nothing more fits, and nothing goes for a while, that is said: to the main thread
        sooner than to one that reads ahead."""
        with brim.Runtime("8MiB", threads=1) as runtime:
            dataset = brim.keras.dataset(self.images(), runtime=runtime)
            found, raised = [], []

            def keep_all() -> None:
                kept = []
                try:
                    while len(kept) < 10:  # 10 MiB; any index but 0, which begins a look
                        kept.append(dataset[1])
                except brim.BudgetError as error:
                    raised.append(str(error))
                found.extend(int(x[0, 0, 0]) for xs, _ in kept for x in xs)

            for main, ahead in ((0.1, 600.0), (600.0, 0.1)):
                with (
                    unittest.mock.patch("brim._adapters.PATIENCE", main),
                    unittest.mock.patch("brim._adapters.PATIENCE_AHEAD", ahead),
                    warnings.catch_warnings(),
                ):
                    warnings.simplefilter("ignore")
                    if main < ahead:
                        keep_all()
                    else:
                        thread = threading.Thread(target=keep_all)
                        thread.start()
                        thread.join()
            self.assertEqual(len(raised), 2)
            for text in raised:
                self.assertRegex(text, "[0-9]+ batches and copies of batches are held")
            while len(found) < 2 * COUNT:  # it has gone on with the next batch
                found += [int(x[0, 0, 0]) for x in dataset[1][0]]
            orders = [self.order(self.images(), epoch) for epoch in range(2)]
            self.assertEqual(found, orders[0] + orders[1])
            self.assertLessEqual(runtime.usage()["peak"], 8 << 20)
            dataset.close()

    def test_memory_stays_flat(self) -> None:
        dataset = self.open(self.images())
        model = keras.Sequential(
            [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)]
        )
        model.compile(optimizer=keras.optimizers.SGD(0.0), loss="mse", metrics=[Total("sum", 1)])

        def rss() -> int:
            gc.collect()
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096

        def work(times: int) -> int:
            for _ in range(times):
                history = self.fit(model, dataset, validation_data=dataset)
                self.assertEqual(history["sum"] + history["val_sum"], [self.all[1]] * 2)
            return rss()

        before = work(3)
        self.assertLess(work(12) - before, 24 * support.MIB)  # an epoch has 10 MiB
        usage = self.runtime.usage()
        self.assertLessEqual(usage["peak"], usage["limit"])

    # ------------------------------------------------------------------------- learning

    def test_learns_the_drawn_set(self) -> None:
        support.drawn_set(self.folder / "drawn", 120)
        data = (
            brim.folder(self.folder / "drawn").shuffle(seed=7).decode().random_resized_crop(24)
            .flip().normalize("imagenet")
        )  # fmt: skip
        train = self.open(data.batch(16))
        whole = brim.folder(self.folder / "drawn").decode().resize(24, 24)
        valid = self.open(whole.normalize("imagenet").batch(16))
        self.assertEqual(train.classes["label"], ["class0", "class1", "class2"])
        model = keras.Sequential(
            [
                keras.layers.Conv2D(8, 3, strides=2, activation="relu"),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(3),
            ]
        )
        model.compile(
            optimizer=keras.optimizers.Adam(0.03),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        history = self.fit(model, train, epochs=6, validation_data=valid)
        self.assertGreater(history["val_accuracy"][-1], 0.95, history)
        self.assertGreater(history["accuracy"][-1], 0.9, history)

    def test_learns_mnist(self) -> None:
        digits = support.mnist(self)
        train = self.open(digits.split("train").shuffle(seed=2).batch(100))
        valid = self.open(digits.split("validation").batch(250))
        model = keras.Sequential(
            [
                keras.layers.Flatten(),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        model.compile(
            optimizer=keras.optimizers.Adam(0.005),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        history = self.fit(model, train, epochs=2, validation_data=valid)
        self.assertGreater(history["val_accuracy"][-1], 0.9, history)

    @unittest.skipUnless(BACKEND == "jax", "is the same on each, and jax is imported fastest")
    def test_example(self) -> None:
        example = support.ROOT / "examples" / "python" / "train_keras.py"
        done = subprocess.run(
            [sys.executable, str(example)], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("right", done.stdout)

    # ------------------------------------------------------------- plans, and going on

    def take(self, data, **options) -> int:
        with brim.keras.dataset(data, **options) as dataset:
            count = dataset.num_batches or 6
            for index in range(count):
                dataset[index]
            return count

    @unittest.skipUnless(BACKEND == "torch", "the same on every backend")
    def test_what_fits_opens(self) -> None:
        import plans

        plans.check(self, brim.keras.plan, self.take, self.folder)

    def test_an_error_begins_the_epoch_again(self) -> None:
        """Keras counts the batches of a pass: the rest of an epoch would be too few."""
        trouble = support.Trouble(40, 9)
        dataset = self.open(trouble.data.batch(4), threads=0)

        def a_pass():
            for index in range(len(dataset)):
                yield [int(n) for n in dataset[index][0][:, 0]]

        for _ in range(2):
            found: list[int] = []
            with self.assertRaisesRegex(brim.FunctionError, "in trouble"):
                for numbers in a_pass():
                    found += numbers
            self.assertEqual(found, list(range(8)))
        trouble.on = False
        for epoch in range(2):
            self.assertEqual([n for numbers in a_pass() for n in numbers], list(range(40)))
            self.assertEqual(dataset.epoch, epoch)


if __name__ == "__main__":
    if BACKEND:
        del OnEveryBackend
    else:
        del Keras
    support.main()
