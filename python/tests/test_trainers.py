"""Trainers that are written for DataLoader take brim's loader in its place: Lightning, accelerate
and the Trainer of transformers, each with resuming in the middle of an epoch.

How each is used is shown here in its shortest form:

- Lightning: `trainer.fit(model, train_loader, val_loader)`. Its checkpoints hold the loader's
  state; that is exact where the number of batches is known, for else Lightning looks one ahead.
- accelerate: `prepare` gives the loader back as it is, for it has its rank from shard="auto";
  `register_for_checkpointing(loader)` makes its state a part of `save_state`. test_accelerate.py
  has what accelerate sees of it batch by batch.
- transformers: a Trainer whose `get_train_dataloader` and `get_eval_dataloader` return the loader,
  opened with as_dict=True. It takes the batches of a whole step at once, while it still has those
  of the step before: `hold=` is twice gradient_accumulation_steps, or brim copies, and warns. It
  resumes by skip_first_batches, which is a seek. Where there is no place to seek to (a stream), a
  callback keeps the state, and `ignore_data_skip=True` leaves the skipping to it; the Trainer then
  counts the batches of the epoch from 0, and those that do not fill its last step get no step.

Where batches are equal, so are the runs: the classes ...Compared hold the same run with a
DataLoader beside it, step by step.
"""

# label: full

from __future__ import annotations

import json
import logging
import os
import pathlib
import unittest
import warnings
from collections.abc import Iterator
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
LONG = 101 * BATCH - 3
X = numpy.random.default_rng(3).normal(size=(LONG, 6)).astype(numpy.float32)
Y = (X[:, 0] + X[:, 1] > 0).astype(numpy.uint8)


class Unsized(torch.utils.data.IterableDataset):  # type: ignore[misc]
    def __init__(self, data: Any) -> None:
        self.data = data

    def __iter__(self) -> Any:
        return iter(self.data)


def tensors(count: int, as_dict: bool = False, sized: bool = True) -> Any:
    """A DataLoader of what Trainers.rows has."""
    parts = (torch.from_numpy(X), torch.from_numpy(Y).long(), torch.arange(LONG))
    data = torch.utils.data.TensorDataset(*(part[:count] for part in parts))

    data = data if sized else Unsized(data)

    def collate(rows: Any) -> Any:
        batch = torch.utils.data.default_collate(rows)
        return dict(zip(("x", "labels", "ids"), batch)) if as_dict else batch

    return torch.utils.data.DataLoader(data, batch_size=BATCH, collate_fn=collate)


class Trainers(support.Case):
    def setUp(self) -> None:
        super().setUp()
        self.runtime = brim.Runtime(memory="32MiB", threads=2, index_dir=self.folder / "cache")
        self.addCleanup(self.runtime.close)

    def open(self, *, shuffled: bool = True, **options) -> brim.torch.TorchLoader:
        data = brim.arrays(x=X[:ROWS], labels=Y[:ROWS])
        data = data.shuffle(seed=5) if shuffled else data
        options = {"fields": ("x", "labels", "ids"), "runtime": self.runtime, **options}
        loader = brim.torch.loader(data.batch(BATCH), **options)
        self.addCleanup(loader.close)
        return loader

    def rows(self, count: int, *, known: bool = True, **options: Any) -> brim.torch.TorchLoader:
        """The first rows in their order; not known: how many batches there are shows at the end."""
        data = brim.arrays(x=X[:count], labels=Y[:count])
        data = data if known else data.filter(lambda sample: True)
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
                self.log_of_steps: list[tuple[Any, ...]] = []
                self.validated: list[int] = []

            def training_step(self, batch: Any, index: int) -> Any:
                x, y, ids = batch
                self.seen += ids.tolist()
                loss = nn.functional.cross_entropy(self.net(x), y)
                trainer = self.trainer
                last = trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
                place = (trainer.current_epoch, index, trainer.global_step)
                self.log_of_steps.append((ids.tolist(), loss.item(), *place, last))
                return loss

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

    def test_too_few_are_refused_before_the_epoch(self) -> None:
        """Lightning looks one batch ahead where it does not know their number."""
        module = self.module()
        for loaders in (
            (self.rows(LONG, known=False),),
            (self.rows(LONG), self.rows(27, known=False)),
            (self.rows(LONG, hold=1),),
        ):
            with self.assertRaisesRegex(ValueError, "hold=[12]: Lightning .*hold=[23] or more"):
                self.trainer(max_epochs=1).fit(module, *loaders)
            self.assertEqual(module.seen, [])

    def test_a_sized_loader_beside_an_unsized_one(self) -> None:
        """Evaluating both, Lightning looks ahead in both."""
        module = self.module()
        module.validation_step = lambda batch, index, dataloader_idx=0: None
        for hold in (2, 3):
            loaders = self.rows(LONG, hold=hold), self.rows(LONG, known=False, hold=3)
            if hold == 2:
                with self.assertRaisesRegex(ValueError, "hold=2: Lightning .*hold=3 or more"):
                    self.trainer().validate(module, loaders, verbose=False)
                self.assertEqual(loaders[0].stats()["batches"], 0)
            else:
                self.trainer().validate(module, loaders, verbose=False)
                self.assertEqual([loader.stats()["copies"] for loader in loaders], [0, 0])

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


@unittest.skipIf(lightning is None, "lightning is not installed")
class LightningCompared(Lightning):
    """Runs of 101 batches, 8 to a step, beside the same runs with a DataLoader."""

    test_training_and_validation = test_checkpoints_hold_the_place = None  # those of its base
    test_too_few_are_refused_before_the_epoch = None

    def loaders(self) -> Iterator[tuple[Any, Any]]:
        """Loaders for training and validation of equal batches; DataLoaders first."""
        yield tensors(LONG), tensors(27)
        yield self.rows(LONG), self.rows(27)
        # Lightning looks one batch ahead where it does not know their number.
        yield self.rows(LONG, known=False, hold=3), self.rows(27, known=False, hold=3)

    def compare(self, **options: Any) -> Any:
        """Runs all, which must be equal. The trainer and the module of one of them."""
        runs = []
        for training, validation in self.loaders():
            module = self.module()
            trainer = self.trainer(**{"max_epochs": 2, "accumulate_grad_batches": 8, **options})
            with warnings.catch_warnings():
                warnings.simplefilter("error", brim.HoldWarning)
                trainer.fit(module, training, validation)
            runs.append((module.log_of_steps, module.validated, trainer.global_step,
                         module.net.weight.tolist()))  # fmt: skip
        for run in runs[1:]:
            self.assertEqual(run, runs[0])
        return trainer, module

    def test_accumulation(self) -> None:
        trainer, module = self.compare()
        self.assertEqual(trainer.global_step, 26)
        self.assertEqual([step[-1] for step in module.log_of_steps], ([False] * 100 + [True]) * 2)

    def test_limits(self) -> None:
        trainer, module = self.compare(limit_train_batches=37, limit_val_batches=3)
        self.assertEqual(trainer.global_step, 10)
        self.assertEqual(len(module.validated), 2 * 3 * BATCH)

    def test_validation_inside_an_epoch(self) -> None:
        trainer, module = self.compare(val_check_interval=10, num_sanity_val_steps=2)
        self.assertEqual(trainer.global_step, 26)
        self.assertEqual(module.validated, list(range(27)) * 20)

    def test_resuming_inside_an_epoch(self) -> None:
        for every, known in ((5, True), (13, True), (17, True), (5, False)):
            folder = self.folder / f"{every} {known}"
            keep = lightning.pytorch.callbacks.ModelCheckpoint(
                folder, every_n_train_steps=every, save_top_k=-1
            )
            options = {"max_epochs": 2, "accumulate_grad_batches": 8}
            module = self.module()
            trainer = self.trainer(enable_checkpointing=True, callbacks=[keep], **options)
            trainer.fit(module, self.rows(LONG, known=known, hold=3))
            checkpoint = min(folder.glob("*.ckpt"), key=os.path.getmtime)
            resumed = self.module()
            trainer = self.trainer(**options)
            trainer.fit(resumed, self.rows(LONG, known=known, hold=3), ckpt_path=checkpoint)
            self.assertEqual(trainer.global_step, 26)
            done = every * 8 - (3 if every >= 13 else 0)
            if not known:  # the batch that Lightning had taken when it saved the state is lost
                self.assertEqual(resumed.seen, module.seen[(done + 1) * BATCH :])
                continue
            self.assertEqual(resumed.log_of_steps, module.log_of_steps[done:])
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
    def trainer(self, accumulate: int, save_steps: int = 0, hold: int = 0) -> Any:
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

        train = self.open(as_dict=True, hold=hold or 2 * accumulate)
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

    def test_too_few_are_refused_before_the_epoch(self) -> None:
        """It has the batches of a step when it gets those of the next one."""
        for hold in (2, 7):
            trainer, loader = self.trainer(accumulate=4, hold=hold)
            with self.assertRaisesRegex(
                ValueError, f"hold={hold}: .*gradient_accumulation_steps=4 .*hold=8 or more"
            ):
                trainer.train()
            self.assertEqual((trainer.model.seen, loader.stats()["batches"]), ([], 0))
            # a loop of the program's own, and an evaluation, need no more than 2
            self.assertEqual(sum(1 for _ in loader), ROWS // BATCH)
            trainer.evaluate()

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


@unittest.skipIf(transformers is None or accelerate is None, "transformers is not installed")
class TransformersCompared(Trainers):
    """Runs of 101 batches, 8 to a step, beside the same runs with a DataLoader."""

    def run_it(self, kind: str, resume: str | None = None, **options: Any) -> Any:
        class Model(nn.Module):
            main_input_name = "x"

            def __init__(self) -> None:
                super().__init__()
                torch.manual_seed(0)
                self.net = nn.Linear(6, 2)
                self.seen: list[list[int]] = []

            def forward(self, x: Any, labels: Any, ids: Any) -> dict[str, Any]:
                if self.training:
                    self.seen.append(ids.tolist())
                logits = self.net(x)
                return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

        case = self

        class Trainer(transformers.Trainer):
            def opened(self, rows: int, **options: Any) -> Any:
                if kind.endswith("DataLoader"):
                    sized = not kind.startswith("unsized")
                    return self.accelerator.prepare(tensors(rows, as_dict=True, sized=sized))
                return case.rows(rows, known=kind == "known", as_dict=True, **options)

            def get_train_dataloader(self) -> Any:
                return self.opened(LONG, hold=16)

            def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
                return self.opened(27)

        trainer = Trainer(
            Model(),
            transformers.TrainingArguments(
                str(self.folder / kind),
                **{
                    "num_train_epochs": 2,
                    "gradient_accumulation_steps": 8,
                    "learning_rate": 0.05,
                    "optim": "sgd",
                    "report_to": [],
                    "save_strategy": "no",
                    "logging_steps": 1,
                    "include_num_input_tokens_seen": "all",
                    "disable_tqdm": True,
                    "use_cpu": True,
                    **options,
                },
            ),
            eval_dataset=tensors(27).dataset,  # not read: it must be there for eval_strategy
            compute_metrics=lambda guess: {
                "right": float((guess.predictions.argmax(1) == guess.label_ids).mean()),
                "rows": len(guess.label_ids),
            },
        )
        trainer.remove_callback(transformers.PrinterCallback)
        with warnings.catch_warnings():
            warnings.simplefilter("error", brim.HoldWarning)
            trainer.train(resume_from_checkpoint=resume)
            trainer.evaluate()
        state = trainer.state
        timed = ("_runtime", "_per_second")
        log = [{key: value for key, value in entry.items() if not key.endswith(timed)}
               for entry in state.log_history]  # fmt: skip
        return {
            "steps": state.global_step,
            "epoch": state.epoch,
            "tokens": state.num_input_tokens_seen,
            "log": log,
            "seen": trainer.model.seen,
            "weight": trainer.model.net.weight.tolist(),
        }

    def test_steps_logs_and_evaluation(self) -> None:
        wanted = self.run_it("DataLoader")
        self.assertEqual(wanted["steps"], 26)
        self.assertEqual(wanted["log"][-1]["eval_rows"], 27)
        self.assertEqual(self.run_it("known"), wanted)

    def test_max_steps(self) -> None:
        options = {"max_steps": 17, "eval_strategy": "steps", "eval_steps": 6}
        wanted = self.run_it("DataLoader", **options)
        self.assertEqual(self.run_it("known", **options), wanted)
        self.assertEqual(wanted["steps"], 17)
        # Without a length the Trainer does not apply what is left at the end of an epoch, neither
        # of a DataLoader.
        unsized = self.run_it("unsized DataLoader", **options)
        self.assertEqual(self.run_it("unknown", **options), unsized)
        self.assertEqual(len(unsized["seen"]), len(wanted["seen"]) + 8)

    def test_resuming_by_skipping(self) -> None:
        whole = {kind: self.run_it(kind, save_strategy="steps", save_steps=8)
                 for kind in ("DataLoader", "known")}  # fmt: skip
        self.assertEqual(whole["known"], whole["DataLoader"])
        for step in (8, 16, 24):
            place = str(self.folder / "known" / f"checkpoint-{step}")
            found = self.run_it("known", place)
            self.assertEqual(found["seen"], whole["known"]["seen"][step * 8 - (step > 13) * 3 :])
            self.assertEqual(found["steps"], 26)
            self.assertEqual(found["weight"], whole["known"]["weight"])
            self.assertEqual(found, self.run_it("DataLoader", place))


if __name__ == "__main__":
    support.main()
