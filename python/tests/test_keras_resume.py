"""brim.keras after a restart: fit goes on with the batches that it would have had.

A crash is an exception in a callback, and a new model and a new dataset after it; in one test it is
a process that is killed. Which batches were trained on is told by the metrics after each.
"""

# label: full

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import unittest
import warnings

import support
from keras_support import BACKEND, COUNT, Numbers, OnEveryBackend

CHILD = os.environ.get("BRIM_TEST_KERAS_CHILD", "")  # options of a run that is killed

if BACKEND:
    import keras
    import numpy
    from keras_support import Record, Stop, Total, counting_model

    import brim

    class Crash(Exception):
        pass

    class Log(keras.callbacks.Callback):
        """What each batch had that was trained on; ends the process, or fit, after so many."""

        def __init__(self, path: pathlib.Path, crash: int | None, kill: bool) -> None:
            super().__init__()
            self.path, self.crash, self.kill = path, crash, kill
            self.count = 0
            self.before = (0.0, 0.0, 0.0)

        def on_epoch_begin(self, epoch, logs=None) -> None:
            self.epoch, self.before = epoch, (0.0, 0.0, 0.0)

        def on_train_batch_end(self, batch, logs=None) -> None:
            now = tuple(float(logs[name]) for name in ("count", "sum", "squares"))
            line = [self.epoch, *(int(a - b) for a, b in zip(now, self.before))]
            self.before = now
            with open(self.path, "a") as file:
                file.write(json.dumps(line) + "\n")
            self.count += 1

        def on_train_batch_begin(self, batch, logs=None) -> None:
            if self.count == self.crash:
                if self.kill:
                    os._exit(9)
                raise Crash

    def train(
        folder: str,
        *,
        crash: int | None = None,
        kill: bool = False,
        how: str = "backup",
        save_freq: str | int = "epoch",
        rows: int = 32,
        micro: int = 0,
        below: int | None = None,
        compiled: bool = False,
        **options,
    ) -> tuple[list[list[int]], list]:
        """Trains as a program that is started again and again does: what its batches had, and the
        weights in the end. Which it was given before a crash is in the log, too."""
        here = pathlib.Path(folder)
        keras.utils.set_random_seed(3)
        column = numpy.arange(COUNT, dtype=numpy.float32).reshape(COUNT, 1)
        # What the model is given is the number, scaled; what the metrics are, the number itself.
        data = brim.arrays(x=column / COUNT, y=column).shuffle(seed=7)
        if below is not None:
            data = data.filter(f"y < {below}")
        model = keras.Sequential([keras.layers.Dense(1)])
        model.build((None, 1))
        model.compile(
            optimizer=keras.optimizers.SGD(0.01, momentum=0.9),
            loss="mse",
            run_eagerly=not compiled,  # compiling takes longer than all the batches
            metrics=[Total(name, n) for n, name in enumerate(("count", "sum", "squares"))],
        )
        path = here / "log"
        path.unlink(missing_ok=True)
        with (
            brim.Runtime("32MiB", threads=1, index_dir=here) as runtime,
            brim.keras.dataset(data.batch(rows, micro=micro), runtime=runtime) as dataset,
        ):
            callbacks = [Log(path, crash, kill)]
            if how == "backup":
                callbacks.insert(0, brim.keras.Backup(dataset, here / "backup", save_freq))
            elif how == "resume":
                callbacks.insert(0, brim.keras.Resume(dataset))
            elif how == "beside":
                callbacks.insert(0, keras.callbacks.BackupAndRestore(here / "backup", save_freq))
                callbacks.insert(0, brim.keras.Resume(dataset))
            try:
                model.fit(dataset, verbose=0, callbacks=callbacks, **options)
            except Crash:
                pass
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines], [
            *model.get_weights(), int(model.optimizer.iterations)
        ]  # fmt: skip


@unittest.skipUnless(BACKEND, "run by OnEveryBackend")
class Resuming(Numbers):
    def check_resumed(self, crashes, expected: list[int], **options) -> None:
        """Each run goes on at the batch of that number, and comes to the same end."""
        whole, weights = train(self.new_folder(), **options)
        folder = self.new_folder()
        for crash, begin in zip([*crashes, None], [0, *expected]):
            with warnings.catch_warnings():
                warnings.filterwarnings("error", "Your input ran out of data")
                if "steps_per_epoch" in options:
                    warnings.simplefilter("ignore")
                found, reached = train(folder, crash=crash, **options)
            end = len(whole) if crash is None else begin + crash
            self.assertEqual(found, whole[begin:end])
        for one, other in zip(reached, weights, strict=True):
            numpy.testing.assert_array_equal(one, other)
        self.assertFalse((pathlib.Path(folder) / "backup").exists())

    def new_folder(self) -> str:
        folder = self.folder / f"run{len(list(self.folder.glob('run*')))}"
        folder.mkdir()
        return str(folder)

    def test_initial_epoch(self) -> None:
        """7 batches an epoch; that of fit is that of the pipeline, and so are parts of it."""
        whole, _ = train(self.new_folder(), how="none", epochs=5)
        self.assertEqual(len(whole), 35)
        begun, _ = train(self.new_folder(), how="resume", epochs=5, initial_epoch=3)
        self.assertEqual(begun, whole[21:])
        few, _ = train(self.new_folder(), how="resume", rows=100, epochs=5, initial_epoch=3)
        self.assertEqual(few, train(self.new_folder(), how="resume", rows=100, epochs=5)[0][6:])
        for options in (
            {"rows": 20, "steps_per_epoch": 5, "epochs": 7, "initial_epoch": 3},
            {"rows": 32, "steps_per_epoch": 3, "epochs": 8, "initial_epoch": 4},  # 3, 3 and 1
            {"rows": 20, "steps_per_epoch": 15, "epochs": 4, "initial_epoch": 2},
            {"rows": 20, "micro": 7, "steps_per_epoch": 6, "epochs": 9, "initial_epoch": 6},
            {"rows": 10, "below": 95, "steps_per_epoch": 4, "epochs": 7, "initial_epoch": 3},
        ):
            with self.subTest(options), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # 3 does not divide 7
                begin = options.pop("initial_epoch")
                whole, _ = train(self.new_folder(), how="none", **options)
                begun, _ = train(self.new_folder(), how="resume", initial_epoch=begin, **options)
                self.assertEqual(begun, [line for line in whole if line[0] >= begin])

    def test_epochs_stay_fits_own(self) -> None:
        """Whatever else is done with the dataset between."""
        dataset, record = self.open(), Record("count", "sum", "squares")
        model = counting_model()
        callbacks = [brim.keras.Resume(dataset), record]
        self.fit(model, dataset, epochs=3, validation_data=dataset, callbacks=callbacks)
        alone = Record("count", "sum", "squares")
        self.fit(model, self.open(), epochs=3, callbacks=[alone])
        self.assertEqual(record.rows, alone.rows)
        self.fit(model, dataset, epochs=3, initial_epoch=1, callbacks=callbacks)
        self.assertEqual(record.rows[39:], alone.rows[13:])

    def test_backup_of_epochs(self) -> None:
        self.check_resumed([10], [7], epochs=3)
        self.check_resumed([10, 3, 8], [7, 7, 14], epochs=3)
        self.check_resumed([10], [7], epochs=3, how="beside")

    def test_backup_of_batches(self) -> None:
        self.check_resumed([5], [4], epochs=2, save_freq=2)
        # A backup at the last batch of an epoch, crashes in an epoch that was resumed already.
        self.check_resumed([7, 1, 5], [7, 8, 13], epochs=3, save_freq=1)
        self.check_resumed([2, 9], [0, 9], epochs=2, save_freq=3)

    def test_backup_of_batches_in_a_compiled_step(self) -> None:
        """TensorFlow takes a part of a step even where it finds no batch for it."""
        self.check_resumed([5], [4], epochs=2, save_freq=2, compiled=True)

    def test_backup_of_batches_with_steps(self) -> None:
        self.check_resumed([8], [8], epochs=5, rows=20, steps_per_epoch=5, save_freq=1)
        self.check_resumed([4, 1, 6], [4, 5, 11], epochs=7, steps_per_epoch=3, save_freq=1)
        self.check_resumed(
            [9, 2], [9, 11], epochs=4, rows=20, micro=7, steps_per_epoch=6, save_freq=1
        )
        # Of unknown length: at the ends of fit's epochs.
        self.check_resumed([9], [8], rows=10, below=95, steps_per_epoch=4, epochs=4, save_freq=3)

    @unittest.skipIf(BACKEND == "torch", "Keras on torch takes one step at a time")
    def test_backup_with_several_steps_at_a_time(self) -> None:
        folder = self.new_folder()
        dataset = self.open(hold=6)  # TensorFlow takes those of four steps first
        model = counting_model()
        model.compile(
            loss="mse", optimizer="sgd", metrics=[Total("sum", 1)], steps_per_execution=4
        )
        model.optimizer.learning_rate = 0.0
        log = Record("sum")
        backup = brim.keras.Backup(dataset, folder, save_freq=4, delete_checkpoint=False)
        self.fit(model, dataset, callbacks=[backup, Stop(8)])
        again = self.open(hold=6)
        backup = brim.keras.Backup(again, folder, save_freq=4, delete_checkpoint=False)
        self.fit(model, again, callbacks=[backup, log])
        with self.runtime.open(self.data, copies=True) as loader:
            rest = [number for batch in loader for number in batch.ids.tolist()][8 * 16 :]
        self.assertEqual(log.rows[-1], (sum(rest),))

    def test_killed_and_started_again(self) -> None:
        for save_freq, crash, begin in (("epoch", 9, 7), (4, 6, 4)):
            options = {"save_freq": save_freq, "epochs": 2}
            whole, weights = train(self.new_folder(), **options)
            folder = self.new_folder()
            done = subprocess.run(
                [sys.executable, __file__],
                env={
                    **os.environ,
                    "BRIM_TEST_KERAS_CHILD": json.dumps(
                        {"folder": folder, "crash": crash, "kill": True, **options}
                    ),
                },
                capture_output=True,
                text=True,
            )
            self.assertEqual(done.returncode, 9, done.stderr)
            log = pathlib.Path(folder, "log").read_text().splitlines()
            self.assertEqual([json.loads(line) for line in log], whole[:crash])
            found, reached = train(folder, **options)
            self.assertEqual(found, whole[begin:])
            for one, other in zip(reached, weights, strict=True):
                numpy.testing.assert_array_equal(one, other)

    def test_what_cannot_be_resumed(self) -> None:
        folder, dataset = self.new_folder(), self.open()
        for wrong in (0, "batch", 1.5):
            with self.assertRaisesRegex(ValueError, "save_freq"):
                brim.keras.Backup(dataset, folder, save_freq=wrong)
        with self.assertRaisesRegex(TypeError, "not ndarray"):
            brim.keras.Resume(self.column)
        train(folder, crash=5, save_freq=2, epochs=2)
        with self.assertRaisesRegex(ValueError, "begins with epoch 1.*is of epoch 0"):
            train(folder, save_freq=2, epochs=2, initial_epoch=1)
        with self.assertRaisesRegex(ValueError, "'batches': 7.*'batches': 10"):
            train(folder, save_freq=2, rows=20, epochs=2)
        train(folder, crash=9, epochs=2)
        with self.assertRaises(brim.StateError):
            train(folder, below=COUNT + 1, epochs=2, steps_per_epoch=7)

    def test_a_backup_that_was_not_finished(self) -> None:
        """A pair of files counts when both are there; what a kill left is cleared away."""
        folder = self.new_folder()
        backup = pathlib.Path(folder) / "backup"
        train(folder, crash=5, save_freq=2, epochs=1)
        self.assertEqual(len(list(backup.iterdir())), 2)
        (backup / "7.json").write_text("{")
        (backup / "unfinished.weights.h5").write_text("part")
        found, _ = train(folder, save_freq=2, epochs=1)
        self.assertEqual(found, train(self.new_folder(), epochs=1)[0][4:])
        self.assertFalse(backup.exists())


if __name__ == "__main__":
    if CHILD:
        train(**json.loads(CHILD))
        sys.exit(0)
    if BACKEND:
        del OnEveryBackend
    else:
        del Resuming
    support.main()
