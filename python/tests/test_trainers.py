"""Trainers that are written for DataLoader take brim's loader in its place: Lightning, accelerate
and the Trainer of transformers, each with resuming in the middle of an epoch.

How each is used is shown here in its shortest form:

- Lightning: `trainer.fit(model, train_loader, val_loader)`. Its checkpoints hold the loader's
  state; that is exact where the number of batches is known, for else Lightning looks one ahead.
- accelerate: `prepare` gives the loader back as it is, for it has its rank from shard="auto";
  `register_for_checkpointing(loader)` makes its state a part of `save_state`.
- transformers: a Trainer whose `get_train_dataloader` and `get_eval_dataloader` return the loader,
  opened with as_dict=True; a callback keeps the state, and `ignore_data_skip=True` leaves the
  skipping to it. It takes the batches of a whole step at once, while it still has those of the
  step before: `hold=` is twice gradient_accumulation_steps, or brim copies, and warns. In an epoch
  that it resumes in the middle, it counts batches from 0: batches that do not fill its last step
  then get no step at all. A number of batches that gradient_accumulation_steps divides avoids it.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import unittest
import warnings
from typing import Any

import brim
import support

os.environ.setdefault("HF_HUB_OFFLINE", "1")
numpy = support.need("numpy")
torch = support.need("torch")

from torch import nn  # noqa: E402

torch.set_num_threads(1)  # the networks are too small for more

try:
    import lightning
except ModuleNotFoundError:
    lightning = None
try:
    import accelerate
except ModuleNotFoundError:
    accelerate = None
try:
    import transformers
except ModuleNotFoundError:
    transformers = None

ROWS, BATCH = 96, 8  # 12 batches
X = numpy.random.default_rng(3).normal(size=(ROWS, 6)).astype(numpy.float32)
Y = (X[:, 0] + X[:, 1] > 0).astype(numpy.uint8)


class Trainers(support.Case):
    def setUp(self) -> None:
        super().setUp()
        self.runtime = brim.Runtime(memory="32MiB", threads=2, cache_dir=self.folder / "cache")
        self.addCleanup(self.runtime.close)

    def open(self, *, shuffled: bool = True, **options) -> brim.torch.TorchLoader:
        data = brim.arrays(x=X, labels=Y)
        data = data.shuffle(seed=5) if shuffled else data
        options = {"fields": ("x", "labels", "ids"), "runtime": self.runtime, **options}
        loader = brim.torch.loader(data.batch(BATCH), **options)
        self.addCleanup(loader.close)
        return loader

    def order(self, epochs: int) -> list[int]:
        """The samples' numbers of so many epochs, by a loader that nobody disturbs."""
        loader = self.open()
        return [int(n) for epoch in loader.epochs(epochs) for _, _, ids in epoch for n in ids]


# ------------------------------------------------------------------------------ Lightning


@unittest.skipIf(lightning is None, "lightning is not installed")
class Lightning(Trainers):
    def module(self) -> Any:
        class Module(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                torch.manual_seed(0)
                self.net = nn.Linear(6, 2)
                self.seen: list[int] = []
                self.validated: list[int] = []

            def training_step(self, batch: Any, index: int) -> Any:
                x, y, ids = batch
                self.seen += ids.tolist()
                return nn.functional.cross_entropy(self.net(x), y)

            def validation_step(self, batch: Any, index: int) -> None:
                x, y, ids = batch
                if not self.trainer.sanity_checking:
                    self.validated += ids.tolist()
                self.log("accuracy", (self.net(x).argmax(1) == y).float().mean())

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), 0.1)

        return Module()

    def trainer(self, **options: Any) -> Any:
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        return lightning.Trainer(
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=self.folder,
            **{"enable_checkpointing": False, **options},
        )

    def test_training_and_validation(self) -> None:
        module = self.module()
        trainer = self.trainer(max_epochs=2)
        with warnings.catch_warnings():
            warnings.simplefilter("error", brim.HoldWarning)
            trainer.fit(module, self.open(), self.open(shuffled=False))
        self.assertEqual(module.seen, self.order(2))
        self.assertEqual(module.validated, list(range(ROWS)) * 2)
        self.assertEqual(trainer.global_step, 24)
        self.assertGreater(trainer.callback_metrics["accuracy"], 0.6)

    def test_checkpoints_hold_the_place(self) -> None:
        keep = lightning.pytorch.callbacks.ModelCheckpoint(
            self.folder, every_n_train_steps=17, save_top_k=-1
        )
        module = self.module()
        self.trainer(max_epochs=2, enable_checkpointing=True, callbacks=[keep]).fit(
            module, self.open()
        )
        self.assertEqual(module.seen, self.order(2))
        (checkpoint,) = self.folder.glob("*.ckpt")
        resumed = self.module()
        trainer = self.trainer(max_epochs=2)
        trainer.fit(resumed, self.open(), ckpt_path=checkpoint)
        self.assertEqual(resumed.seen, module.seen[17 * BATCH :])
        self.assertEqual(trainer.global_step, 24)
        self.assertTrue(torch.equal(resumed.net.weight, module.net.weight))


# ----------------------------------------------------------------------------- accelerate


@unittest.skipIf(accelerate is None, "accelerate is not installed")
class Accelerate(Trainers):
    def test_training_and_resuming(self) -> None:
        def prepared() -> tuple[Any, ...]:
            torch.manual_seed(0)
            accelerator = accelerate.Accelerator(cpu=True)
            model = nn.Linear(6, 2)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            loader = self.open(shard="auto")
            model, optimizer, same = accelerator.prepare(model, optimizer, loader)
            self.assertIs(same, loader)
            accelerator.register_for_checkpointing(loader)
            return accelerator, model, optimizer, loader

        def train(parts: tuple[Any, ...], epochs: int, save_at: int = -1) -> list[int]:
            accelerator, model, optimizer, loader = parts
            seen: list[int] = []
            while loader.epoch < epochs:
                for x, y, ids in loader:
                    loss = nn.functional.cross_entropy(model(x), y)
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                    seen += ids.tolist()
                    if len(seen) == save_at * BATCH:
                        accelerator.save_state(str(self.folder / "state"))
            return seen

        whole = prepared()
        seen = train(whole, 2, save_at=17)
        self.assertEqual(seen, self.order(2))
        resumed = prepared()
        resumed[0].load_state(str(self.folder / "state"))
        self.assertEqual(train(resumed, 2), seen[17 * BATCH :])
        self.assertTrue(torch.equal(whole[1].weight, resumed[1].weight))


# --------------------------------------------------------------------------- transformers


@unittest.skipIf(transformers is None or accelerate is None, "transformers is not installed")
class Transformers(Trainers):
    def trainer(self, accumulate: int, save_steps: int = 0) -> Any:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                torch.manual_seed(0)
                self.net = nn.Linear(6, 2)
                self.seen: list[int] = []

            def forward(self, x: Any, labels: Any, ids: Any) -> dict[str, Any]:
                if self.training:
                    self.seen += ids.tolist()
                logits = self.net(x)
                return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

        train = self.open(as_dict=True, hold=2 * accumulate)
        validation = self.open(shuffled=False, as_dict=True)

        class KeepPlace(transformers.TrainerCallback):
            """Where the loader stands, in every checkpoint."""

            def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                folder = pathlib.Path(args.output_dir, f"checkpoint-{state.global_step}")
                (folder / "loader.json").write_text(json.dumps(train.state_dict()))

        class Trainer(transformers.Trainer):
            def get_train_dataloader(self) -> Any:
                return train

            def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
                return validation

        trainer = Trainer(
            Model(),
            transformers.TrainingArguments(
                str(self.folder / "out"),
                num_train_epochs=2,
                gradient_accumulation_steps=accumulate,
                learning_rate=0.05,
                lr_scheduler_type="constant",
                optim="sgd",
                report_to=[],
                save_strategy="steps" if save_steps else "no",
                save_steps=save_steps or 500,
                logging_strategy="no",
                ignore_data_skip=True,
                disable_tqdm=True,
                use_cpu=True,
            ),
            callbacks=[KeepPlace()],
        )
        return trainer, train

    def test_training_and_evaluation(self) -> None:
        trainer, _ = self.trainer(accumulate=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error", brim.HoldWarning)
            trainer.train()
        self.assertEqual(trainer.model.seen, self.order(2))
        self.assertEqual(trainer.state.global_step, 24)
        self.assertIn("eval_loss", trainer.evaluate())

    def test_resuming_with_accumulation(self) -> None:
        trainer, loader = self.trainer(accumulate=4, save_steps=4)
        with warnings.catch_warnings():
            warnings.simplefilter("error", brim.HoldWarning)
            trainer.train()
        seen = trainer.model.seen
        self.assertEqual(seen, self.order(2))
        self.assertEqual(loader.stats()["copies"], 0)

        checkpoint = self.folder / "out" / "checkpoint-4"
        resumed, loader = self.trainer(accumulate=4)
        loader.load_state_dict(json.loads((checkpoint / "loader.json").read_text()))
        resumed.train(resume_from_checkpoint=str(checkpoint))
        self.assertEqual(resumed.model.seen, seen[16 * BATCH :])
        self.assertEqual(resumed.state.global_step, trainer.state.global_step)
        self.assertTrue(torch.equal(resumed.model.net.weight, trainer.model.net.weight))


if __name__ == "__main__":
    support.main()
