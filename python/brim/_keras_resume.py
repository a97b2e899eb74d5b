"""Callbacks of brim.keras that let fit go on where it was after a restart: Resume and Backup.

Keras does not tell a dataset the epoch or the batch, but tells callbacks both. After a restart it
begins with the epoch `initial_epoch`, or the one that keras.callbacks.BackupAndRestore has
restored, and with the first batch: a dataset that begins with its own epoch 0 trains on other data.
So a callback moves the dataset when an epoch of fit begins, before its first batch.

Keras always runs a whole epoch. An epoch that is resumed in its middle is a pass with fewer
batches. At its end Keras assumes that the data ran out, warns, and goes on with the next epoch.
That warning is suppressed. TensorFlow notices the end inside a step, whose graph has counted it
already: state that does not depend on the batch (the optimizer's iterations, random numbers) is
restored.

A backup is a pair of files, N.json and N.weights.h5. The latter gets its name last, when both are
complete, so a killed process leaves the previous pair or this one, never half a pair.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
import warnings
from typing import TYPE_CHECKING, Any

import keras

from ._adapters import Source

if TYPE_CHECKING:
    from .keras import Dataset, Position

_SMALL = 2  # numbers of a variable that counts, or is the state of random numbers
_WEIGHTS = ".weights.h5"  # the ending that Keras demands


class Resume(keras.callbacks.Callback):
    """Epoch n of fit gets epoch n of the pipeline, wherever fit begins.

        model.fit(train, epochs=10, initial_epoch=3, callbacks=[brim.keras.Resume(train)])

    dataset: the dataset that fit trains on: from brim.keras.dataset or brim.tensorflow.dataset

    For `initial_epoch=` after ModelCheckpoint, and together with keras.callbacks.BackupAndRestore,
    which resumes whole epochs. With `steps_per_epoch` an epoch of fit gets the same batches as
    without a restart. If the number of batches of a pipeline's epoch is not known, the batches
    before are made and dropped.
    """

    def __init__(self, dataset: Any) -> None:
        from .keras import Dataset

        super().__init__()
        loader = getattr(dataset, "loader", None)
        if not isinstance(dataset, Dataset) and not isinstance(loader, Source):
            raise TypeError(
                "dataset is what fit trains on, opened by brim.keras.dataset or "
                f"brim.tensorflow.dataset, not {type(dataset).__name__}"
            )
        self._dataset = dataset
        self._loader: Source | None = None if isinstance(dataset, Dataset) else loader
        self._first = True
        self._counters: list[tuple[Any, Any]] = []  # after the last batch of a pass with fewer

    def on_train_begin(self, logs: Any = None) -> None:
        self._first = True
        self._counters = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        first, self._first = self._first, False
        steps = self.params.get("steps")
        if self._loader is None:
            self._dataset._enter(epoch, steps, first)
        elif steps == self._loader.batches or epoch == 0:
            self._loader.set_epoch(epoch)
        elif first:
            raise ValueError(
                f"epochs of {steps} steps, and of {self._loader.batches} batches: with a "
                "tf.data.Dataset, Resume needs epochs of fit that are the pipeline's; leave "
                "steps_per_epoch out, or use brim.keras.dataset"
            )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        dataset, backend = self._dataset, keras.backend.backend()
        if self._loader is None and backend == "tensorflow" and dataset._shortened:
            self._counters = [
                (variable, variable.numpy())
                for owner in (self.model.optimizer, self.model)
                for variable in getattr(owner, "variables", ())
                if variable.name != "learning_rate" and math.prod(variable.shape) <= _SMALL
            ]

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        for variable, value in self._counters:
            variable.assign(value)
        self._counters = []


class Backup(Resume):
    """Backs up model, optimizer and position in the data, and restores them when fit begins again.

        backup = brim.keras.Backup(train, "backup", save_freq=100)
        model.fit(train, epochs=10, callbacks=[backup])

    dataset: the dataset that fit trains on, from brim.keras.dataset
    backup_dir: a folder for this run alone; each process has its own
    save_freq: "epoch": at the end of each epoch of fit; a number: also after every that many
        batches, before training on the next one
    delete_checkpoint: whether the backup is removed when fit ends

    Started again, the same program trains on the batches that an uninterrupted run would have
    trained on from the backup on, each once. It replaces keras.callbacks.BackupAndRestore, which
    does not restore the batch, and Resume. If the number of batches of a pipeline's epoch is not
    known, there are backups only at the ends of fit's epochs.
    """

    def __init__(
        self,
        dataset: Dataset,
        backup_dir: str | os.PathLike[str],
        save_freq: str | int = "epoch",
        delete_checkpoint: bool = True,
    ) -> None:
        super().__init__(dataset)
        if self._loader is not None:
            raise TypeError(
                "a tf.data.Dataset does not tell which batches were trained on: use "
                "brim.keras.dataset, or Resume beside keras.callbacks.BackupAndRestore"
            )
        if save_freq != "epoch" and (type(save_freq) is not int or save_freq < 1):
            raise ValueError(f"save_freq={save_freq!r}: it is 'epoch', or a number of batches")
        dataset._follow()
        self._folder = pathlib.Path(backup_dir)
        self._save_freq = save_freq
        self._delete = delete_checkpoint
        self._restored: dict[str, Any] | None = None  # until fit's first epoch begins
        self._at: Position | None = None  # after what was trained on
        self._epoch = 0  # of fit
        self._before = 0  # its batches that were trained on before the restart
        self._seen = 0  # and since
        self._since = 0  # batches since the last backup
        self._quiet: warnings.catch_warnings[Any] | None = None

    # --------------------------------------------------------------- what Keras calls

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        self._speak()  # if an error has ended fit before
        self._at = None
        self._since = 0
        number = max(self._numbers(_WEIGHTS), default=None)
        if number is None:
            self._restored = None
            return
        record = json.loads((self._folder / f"{number}.json").read_text())
        now = self._sizes()
        if record["batch"] and record["sizes"] != now:
            raise ValueError(
                f"the backup in {self._folder} is of batch {record['batch']} in an epoch with "
                f"{record['sizes']}, which are now {now}: use the same batch size and "
                "steps_per_epoch, or remove the backup"
            )
        model = self.model
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        model.load_weights(self._folder / f"{number}{_WEIGHTS}")
        model._initial_epoch = record["epoch"]  # as Keras's own callback does
        self._restored = record

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch, self._before, self._seen = epoch, 0, 0
        record, self._restored = self._restored, None
        if record is None:
            super().on_epoch_begin(epoch, logs)
            return
        self._first = False
        self.model._initial_epoch = None  # a later fit begins where it is told
        if epoch != record["epoch"]:
            raise ValueError(
                f"fit begins with epoch {epoch}, and the backup in {self._folder} is of epoch "
                f"{record['epoch']}: leave initial_epoch out, or remove the backup"
            )
        self._before = record["batch"]
        self._at = record["state"], record["done"]
        self._dataset._resume(self._at, self.params.get("steps"), self._before)
        if self._before:
            self._quiet = warnings.catch_warnings()
            self._quiet.__enter__()
            warnings.filterwarnings("ignore", "Your input ran out of data", UserWarning)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._due() and self._rest() > 0:
            self._save(self._epoch, self._before + self._seen)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_end(batch, logs)
        new = batch + 1 - self._seen
        self._at = self._dataset._trained(new) or self._at
        self._seen += new
        self._since += new

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        self._speak()
        if self._save_freq == "epoch" or self._due():
            if self._rest() > 0:  # fit was stopped
                self._save(epoch, self._before + self._seen)
            else:
                self._save(epoch + 1, 0)

    def on_train_end(self, logs: Any = None) -> None:
        if self._delete and self._folder.is_dir():
            self._remove(keep=None)
            if not any(self._folder.iterdir()):
                self._folder.rmdir()

    # ---------------------------------------------------------------------- the rest

    def _speak(self) -> None:
        """Lets Keras warn again."""
        if self._quiet is not None:
            self._quiet.__exit__(None, None, None)
            self._quiet = None

    def _due(self) -> bool:
        return isinstance(self._save_freq, int) and self._since >= self._save_freq

    def _rest(self) -> int:
        """How many batches are left of fit's epoch; 0 if that is not known."""
        batches = self._dataset._source.batches
        if batches is None or self._at is None:
            return 0
        steps = self.params.get("steps") or batches
        return int(min(steps - self._before - self._seen, batches - self._at[1]))

    def _sizes(self) -> dict[str, int | None]:
        return {"batches": self._dataset._source.batches, "steps": self.params.get("steps")}

    def _save(self, epoch: int, batch: int) -> None:
        if self._at is None:
            return
        state, done = self._at
        record = {
            "epoch": epoch,
            "batch": batch,
            "state": state,
            "done": done,
            "sizes": self._sizes(),
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        number = max([*self._numbers(_WEIGHTS), *self._numbers(".json")], default=-1) + 1
        with open(self._folder / f"{number}.json", "w") as file:
            json.dump(record, file)
            _flush(file)
        unfinished = self._folder / f"unfinished{_WEIGHTS}"
        self.model.save_weights(unfinished, overwrite=True)
        with open(unfinished, "rb") as file:
            _flush(file)
        os.replace(unfinished, self._folder / f"{number}{_WEIGHTS}")
        self._remove(keep=number)
        self._since = 0

    def _numbers(self, ending: str) -> list[int]:
        found = (re.fullmatch(r"(\d+)" + re.escape(ending), name) for name in self._names())
        return [int(match[1]) for match in found if match]

    def _names(self) -> list[str]:
        return os.listdir(self._folder) if self._folder.is_dir() else []

    def _remove(self, keep: int | None) -> None:
        """Removes backups, but that one; weights first, which are nothing without the other."""
        for name in sorted(self._names(), key=lambda name: not name.endswith(_WEIGHTS)):
            match = re.fullmatch(rf"(\d+|unfinished)({re.escape(_WEIGHTS)}|\.json)", name)
            if match and match[1] != str(keep):
                (self._folder / name).unlink(missing_ok=True)


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
