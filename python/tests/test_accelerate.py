"""accelerate sees brim's loader as it sees a DataLoader that it has prepared.

Every test runs the same loop over a DataLoader that `Accelerator.prepare` has wrapped and over a
brim loader of the same rows, and compares batch by batch: the rows, whether gradients are applied,
whether it is the last batch, the loss. `TwoProcesses` starts this script twice, as torchrun would
(gloo), and compares what the two ranks wrote down.
"""

# label: full

from __future__ import annotations

import gc
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any

import brim
import support

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["ACCELERATE_USE_CPU"] = "true"
numpy = support.need("numpy")
torch = support.need("torch")
accelerate = support.need("accelerate")

from accelerate.state import AcceleratorState, GradientState  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

torch.set_num_threads(1)  # the networks are too small for more

BATCH = 4
Rows = list[int]


def table(rows: int) -> tuple[Any, Any]:
    x = numpy.random.default_rng(3).normal(size=(rows, 6)).astype(numpy.float32)
    return x, (x[:, 0] > 0).astype(numpy.int64)


def accelerator(**options: Any) -> Any:
    AcceleratorState._reset_state(reset_partial_state=False)
    GradientState._reset_state()
    return accelerate.Accelerator(cpu=True, **options)


def data_loader(rows: int, batch: int = BATCH, **options: Any) -> Any:
    x, y = (torch.from_numpy(part) for part in table(rows))
    return DataLoader(TensorDataset(x, y, torch.arange(rows)), batch_size=batch, **options)


def pipeline(rows: int, batch: int = BATCH, **options: Any) -> brim.Pipeline:
    x, y = table(rows)
    return brim.arrays(x=x, y=y).batch(batch, **options)


def train(accelerator: Any, loader: Any, epochs: int, limit: int | None = None) -> list[list[Any]]:
    """What every batch of every epoch saw: rows, sync_gradients, end_of_dataloader, the loss."""
    torch.manual_seed(0)
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    seen = []
    for _ in range(epochs):
        epoch = []
        for x, y, ids, *_ in loader:
            with accelerator.accumulate(model):
                end = accelerator.gradient_state.end_of_dataloader
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            epoch.append([ids.tolist(), accelerator.sync_gradients, end, loss.item()])
            if len(epoch) == limit:
                break
        seen.append(epoch)
    return seen


def steps(seen: list[list[Any]]) -> list[int]:
    return [sum(batch[1] for batch in epoch) for epoch in seen]


def gathered(accelerator: Any, loader: Any) -> list[Rows]:
    """The rows of each batch, as gather_for_metrics gives them."""
    loader = accelerator.prepare(loader)
    return [accelerator.gather_for_metrics(batch[2]).tolist() for batch in loader]


# ---------------------------------------------------------------------------- one process


class OneProcess(support.Case):
    def setUp(self) -> None:
        super().setUp()
        self.runtime = brim.Runtime(memory="32MiB", threads=2, index_dir=self.folder / "cache")
        self.addCleanup(self.runtime.close)

    def open(self, data: brim.Pipeline, **options: Any) -> brim.torch.TorchLoader:
        options = {"fields": ("x", "y", "ids"), "runtime": self.runtime, **options}
        loader = brim.torch.loader(data, **options)
        self.addCleanup(loader.close)
        return loader

    def unknown(self, rows: int, **options: Any) -> brim.torch.TorchLoader:
        """A loader that learns of the end of an epoch only when it comes there."""
        x, y = table(rows)
        data = brim.arrays(x=x, y=y).filter(lambda sample: True).batch(BATCH)
        loader = self.open(data, **options)
        with self.assertRaises(TypeError):
            len(loader)
        return loader

    def assert_clean(self) -> None:
        state = GradientState()
        self.assertIsNone(state.active_dataloader)
        self.assertEqual(state.dataloader_references, [None])
        self.assertFalse(state.end_of_dataloader)

    def test_the_last_batch_applies_gradients(self) -> None:
        for rows in (101 * BATCH, 101 * BATCH - 3, 96 * BATCH, 3):
            with self.subTest(rows=rows):
                options = {"gradient_accumulation_steps": 8}
                wanted = train(accelerator(**options), data_loader(rows), 2)
                for loader in (self.open(pipeline(rows)), self.unknown(rows)):
                    seen = train(accelerator(**options), loader, 2)
                    self.assertEqual(seen, wanted)
                    self.assert_clean()
                    self.assertEqual(loader.stats()["copies"], 0)
        self.assertEqual(steps(wanted), [1, 1])

    def test_a_last_batch_of_bad_samples_alone(self) -> None:
        """It is passed over: gradients are applied with the batch before it."""
        x, y = table(9 * BATCH + 1)

        def check(sample: dict[str, Any]) -> dict[str, Any]:
            if not sample["x"].any():
                raise ValueError("bad")
            return sample

        x[-1] = 0
        data = brim.arrays(x=x, y=y).map(check).batch(BATCH, on_error="skip")
        options = {"gradient_accumulation_steps": 8}
        seen = train(accelerator(**options), self.open(data), 2)
        self.assertEqual(seen, train(accelerator(**options), data_loader(9 * BATCH), 2))
        self.assert_clean()

    def test_who_is_told_of_fewer_batches(self) -> None:
        """Those that are passed over are missing; micro-batches of no rows are delivered."""
        for batch, fewer, empty in (("batch 4", 1, 0), ("batch 4 micro=2", 0, 1)):
            # samples 48 to 55 are bad: their class does not exist
            text = f"range 64 name=y | skip 40 | take 16 | one_hot 48 | {batch} on_error=skip"
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                loader = self.open(text, fields="y")
                self.assertEqual(len(loader) - len(list(loader)), 2 * fewer)
            texts = [str(warning.message) for warning in caught]
            self.assertEqual(sum("fewer batches than the" in text for text in texts), fewer)
            self.assertEqual(
                sum(warning.category is brim.EmptyBatchWarning for warning in caught), empty
            )

    def test_without_sync_with_dataloader_steps_run_over_the_end(self) -> None:
        def run(loader: Any) -> list[list[Any]]:
            plugin = accelerate.utils.GradientAccumulationPlugin(8, sync_with_dataloader=False)
            return train(accelerator(gradient_accumulation_plugin=plugin), loader, 2)

        wanted = run(data_loader(101))
        self.assertEqual(run(self.open(pipeline(101))), wanted)
        self.assertEqual(steps(wanted), [3, 3])

    def test_what_the_accelerator_was_told_of_loaders_leaves_it_as_it_is(self) -> None:
        for told in ("split_batches", "dispatch_batches", "even_batches"):
            config = accelerate.DataLoaderConfiguration(**{told: True})
            options = {"dataloader_config": config, "gradient_accumulation_steps": 8}
            wanted = train(accelerator(**options), data_loader(101), 2)
            loader = self.open(pipeline(101))
            accelerated = accelerator(**options)
            self.assertIs(accelerated.prepare(loader), loader)
            self.assertIs(accelerated.prepare_data_loader(loader), loader)
            self.assertEqual(train(accelerated, loader, 2), wanted)

    def test_it_cannot_be_divided_once_more(self) -> None:
        accelerator()
        loader = self.open(pipeline(101), rank=0, world=2)
        for dispatch in (False, True):
            with self.assertRaisesRegex(AttributeError, "shard='auto'"):
                accelerate.data_loader.prepare_data_loader(
                    loader, num_processes=2, put_on_device=True, dispatch_batches=dispatch
                )
        self.assertFalse(hasattr(loader, "drop_last"))

    def test_gather_for_metrics_drops_rows_that_only_fill_up(self) -> None:
        wanted = gathered(accelerator(), data_loader(101))
        for options in ({}, {"remainder": "pad"}):
            for fields in (("x", "y", "ids"), ("x", "y", "ids", "valid")):
                loader = self.open(pipeline(101, **options), fields=fields)
                self.assertEqual(gathered(accelerator(), loader), wanted)
        self.assertEqual(gathered(accelerator(), self.unknown(101)), wanted)

    def test_a_loop_that_is_left_leaves_nothing(self) -> None:
        for loader in (self.open(pipeline(101)), self.unknown(101)):
            accelerated = accelerator(gradient_accumulation_steps=8)
            self.assertEqual(len(train(accelerated, loader, 1, limit=5)[0]), 5)
            self.assert_clean()
            with self.assertRaisesRegex(RuntimeError, "in the loop"):
                for _ in loader:
                    self.assertIs(accelerated.gradient_state.active_dataloader, loader)
                    raise RuntimeError("in the loop")
            gc.collect()
            self.assert_clean()
            kept = iter(loader)
            next(kept)
            loader.close()
            self.assert_clean()

    def test_a_newer_iterator_takes_the_place_of_an_older_one(self) -> None:
        accelerator()
        loader = self.open(pipeline(101))
        older = iter(loader)
        next(older)
        newer = iter(loader)
        next(newer)
        self.assertEqual(GradientState().dataloader_references, [None, loader])
        del older
        self.assertEqual(GradientState().dataloader_references, [None, loader])
        del newer
        self.assert_clean()

    def test_validation_inside_training(self) -> None:
        def run(training: Any, validation: Any) -> list[Any]:
            accelerated = accelerator(gradient_accumulation_steps=3)
            state = accelerated.gradient_state
            training, validation = accelerated.prepare(training, validation)
            seen = []
            for _ in range(2):
                for index, batch in enumerate(training):
                    with accelerated.accumulate(nn.Linear(1, 1)):
                        seen.append([state.sync_gradients, state.end_of_dataloader])
                    if index % 4 == 3:
                        seen.append([state.end_of_dataloader for _ in validation])
                        seen.append([state.end_of_dataloader])
            return seen

        wanted = run(data_loader(37), data_loader(9))
        self.assertEqual(run(self.open(pipeline(37)), self.open(pipeline(9))), wanted)
        self.assertEqual(run(self.unknown(37), self.unknown(9)), wanted)

    def test_nothing_is_noted_without_an_accelerator(self) -> None:
        GradientState._reset_state()
        loader = self.open(pipeline(101))
        for _ in loader:
            self.assertFalse(GradientState._shared_state)

    def test_brim_does_not_import_accelerate(self) -> None:
        code = (
            "import sys, brim, brim.torch\n"
            "for _ in brim.torch.loader('range 9 | batch 4', memory='16MiB'): pass\n"
            "sys.exit('accelerate' in sys.modules)"
        )
        self.assertEqual(subprocess.run([sys.executable, "-c", code]).returncode, 0)

    # ----------------------------------------------------------------- places and states

    def test_looking_ahead_does_not_move_the_place(self) -> None:
        accelerator()
        state = GradientState()
        loader = self.unknown(101)
        iterator = iter(loader)
        for number in range(3):
            batch = next(iterator)
            before = loader.state_dict()
            self.assertFalse(state.end_of_dataloader)
            self.assertEqual(loader.state_dict(), before)
        behind = loader.state_dict(behind=1)
        del batch
        again = self.unknown(101)
        for place, first in ((before, 12), (behind, 8)):
            again.load_state_dict(place)
            self.assertEqual(next(iter(again))[2].tolist()[0], first)
        self.assertEqual(next(iterator)[2].tolist(), [12, 13, 14, 15])

    def test_a_look_at_the_first_batch_costs_nothing(self) -> None:
        accelerator()
        for rows in (101, 3):
            loader = self.unknown(rows)
            for _ in range(3):
                iterator = iter(loader)
                self.assertEqual(next(iterator)[2].tolist()[0], 0)
                self.assertEqual(GradientState().end_of_dataloader, rows == 3)
                del iterator
            iterator = iter(loader)
            self.assertEqual(sum(1 for _ in iterator), -(-rows // BATCH))
            self.assertEqual(loader.epoch, 1)

    def test_a_failure_of_the_next_batch_shows_when_it_is_asked_for(self) -> None:
        def refuse(sample: Any) -> bool:
            if sample["i"] == 6:
                raise ValueError("not this one")
            return True

        accelerator()
        data = brim.arrays(i=numpy.arange(12)).filter(refuse).batch(BATCH)
        iterator = iter(self.open(data, fields=("i",)))
        next(iterator)
        self.assertFalse(GradientState().end_of_dataloader)
        with self.assertRaisesRegex(brim.FunctionError, "not this one"):
            next(iterator)

    def test_the_end_of_an_epoch_that_was_cut_anew(self) -> None:
        accelerator()
        loader = self.open(pipeline(101))
        iterator = iter(loader)
        next(iterator), next(iterator)
        other = self.open(pipeline(101, 10))
        other.load_state_dict(loader.state_dict())
        state = GradientState()
        seen = [(len(ids), state.end_of_dataloader, state.remainder) for _, _, ids in other]
        self.assertEqual(seen[-2:], [(10, False, -1), (3, True, 3)])
        self.assertEqual(sum(end for _, end, _ in seen), 1)
        seen = [(len(ids), state.end_of_dataloader, state.remainder) for _, _, ids in other]
        self.assertEqual(seen[-2:], [(10, False, -1), (1, True, 1)])

    def test_micro_batches(self) -> None:
        accelerator()
        loader = self.open(pipeline(21, 8, micro=3))
        state = GradientState()
        seen = [(len(ids), state.end_of_dataloader) for _, _, ids in loader]
        self.assertEqual([rows for rows, _ in seen], [3, 3, 2, 3, 3, 2, 3, 2])
        self.assertEqual([end for _, end in seen], [False] * 7 + [True])

    def test_skip_first_batches(self) -> None:
        for skip in (0, 1, 5, 25, 26):
            wanted = accelerator()
            prepared = wanted.prepare(data_loader(101))
            skipped = wanted.skip_first_batches(prepared, skip)
            expected = [
                (ids.tolist(), wanted.gradient_state.end_of_dataloader) for _, _, ids in skipped
            ]
            for loader in (self.open(pipeline(101)), self.unknown(101)):
                accelerated = accelerator()
                skipping = accelerated.skip_first_batches(accelerated.prepare(loader), skip)
                state = accelerated.gradient_state
                seen = [(ids.tolist(), state.end_of_dataloader) for _, _, ids in skipping]
                self.assertEqual(seen, expected)
                self.assert_clean()
                # The epochs after it are whole.
                self.assertEqual(loader.epoch, 1)
                self.assertEqual(sum(1 for _ in loader), 26)
            self.assertEqual(
                len(accelerated.skip_first_batches(self.open(pipeline(101)), skip)), len(skipped)
            )

    def test_skip_first_batches_of_an_epoch_that_was_named(self) -> None:
        accelerated = accelerator()
        x, y = table(101)
        data = brim.arrays(x=x, y=y).shuffle(seed=5)
        whole = [ids.tolist() for epoch in self.open(data.batch(BATCH)).epochs(4)
                 for _, _, ids in epoch]  # fmt: skip
        loader = self.open(data.batch(BATCH))
        loader.set_epoch(2)
        skipped = accelerated.skip_first_batches(loader, 7)
        for _, _, ids in skipped:
            break
        self.assertEqual(ids.tolist(), whole[2 * 26 + 7])
        self.assert_clean()
        loader.set_epoch(3)
        self.assertEqual([ids.tolist() for _, _, ids in skipped], whole[3 * 26 + 7 :])
        micro = self.open(data.batch(BATCH, micro=3))
        halves = [ids.tolist() for _, _, ids in micro]
        self.assertEqual([len(half) for half in halves[:4]], [3, 1, 3, 1])
        for skip in (1, 2, 7, len(halves)):
            micro.set_epoch(0)
            skipped = accelerated.skip_first_batches(micro, skip)
            self.assertEqual([ids.tolist() for _, _, ids in skipped], halves[skip:])

    def test_checkpoints_of_a_loader_that_was_prepared_by_itself(self) -> None:
        accelerated = accelerator()
        loader = accelerated.prepare_data_loader(self.open(pipeline(101)))
        iterator = iter(loader)
        next(iterator), next(iterator)
        accelerated.save_state(str(self.folder / "state"))
        rest = [ids.tolist() for _, _, ids in iterator]
        accelerated = accelerator()
        loader = accelerated.prepare_data_loader(self.open(pipeline(101)))
        accelerated.load_state(str(self.folder / "state"))
        self.assertEqual([ids.tolist() for _, _, ids in loader], rest)


# -------------------------------------------------------------------------- two processes

ROWS = 27 * BATCH - 3  # 14 batches for each of two ranks; the last is short


def rank_main(out: pathlib.Path) -> None:
    """What one of two ranks sees, as JSON."""
    runtime = brim.Runtime(memory="32MiB", threads=1, index_dir=out.parent / "cache")
    found: dict[str, Any] = {}

    def opened(data: brim.Pipeline, **options: Any) -> Any:
        return brim.torch.loader(data, **{"fields": ("x", "y", "ids"), "shard": "auto",
                                          "runtime": runtime, **options})  # fmt: skip

    def told(**options: Any) -> Any:
        config = accelerate.DataLoaderConfiguration(**options)
        return accelerator(gradient_accumulation_steps=4, dataloader_config=config)

    valid = ("x", "y", "ids", "valid")
    found["rank"] = told().process_index
    found["drop torch"] = train(told(), data_loader(ROWS, drop_last=True), 2)
    found["drop brim"] = train(told(), opened(pipeline(ROWS, remainder="drop")), 2)
    found["even torch"] = train(told(even_batches=True), data_loader(ROWS), 2)
    found["even brim"] = train(told(), opened(pipeline(ROWS, remainder="pad"), fields=valid), 2)
    found["split torch"] = train(
        told(split_batches=True), data_loader(ROWS, 2 * BATCH, drop_last=True), 2
    )
    by_all = opened(pipeline(ROWS, 2 * BATCH, per="global", remainder="drop"))
    found["split brim"] = train(told(split_batches=True, dispatch_batches=True), by_all, 2)

    loader = opened(pipeline(ROWS, remainder="pad"), fields=valid)
    found["gather torch"] = gathered(told(), data_loader(ROWS))
    found["gather brim"] = gathered(told(), loader)
    found["gather again"] = gathered(told(), loader)
    x, y = table(ROWS)
    data = brim.arrays(x=x, y=y).filter(lambda sample: True).batch(BATCH, remainder="pad")
    found["gather unknown"] = gathered(told(), opened(data, fields=valid))

    accelerated = told()
    skipped = accelerated.skip_first_batches(accelerated.prepare(data_loader(ROWS)), 5)
    found["skip torch"] = [len(skipped), [ids.tolist() for _, _, ids in skipped][:-1]]
    skipped = accelerated.skip_first_batches(accelerated.prepare(loader), 5)
    found["skip brim"] = [len(skipped), [ids.tolist() for _, _, ids, _ in skipped][:-1]]

    for name, options in (("undivided", {"shard": None}), ("uneven", {})):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with opened(pipeline(ROWS), **options) as loader:
                for _ in range(2):
                    for _ in loader:
                        pass
        found[name] = [str(warning.message) for warning in caught]
    out.write_text(json.dumps(found))
    accelerate.PartialState().destroy_process_group()


class TwoProcesses(support.Case):
    found: list[dict[str, Any]]

    @classmethod
    def setUpClass(cls) -> None:
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        for _ in range(3):  # another program may take the port before rank 0 does
            codes = cls.run_ranks(folder)
            if not any(codes):
                break
        else:
            raise AssertionError(f"the ranks ended with {codes}")
        files = (pathlib.Path(folder, f"{rank}.json") for rank in range(2))
        cls.found = [json.loads(file.read_text()) for file in files]

    @classmethod
    def run_ranks(cls, folder: str) -> list[int]:
        """How they ended. One that fails ends the other, which would wait for it."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = []
        for rank in range(2):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "2",
                "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            out = pathlib.Path(folder, f"{rank}.json")
            command = [sys.executable, __file__, "--rank", str(out)]
            ranks.append(subprocess.Popen(command, env=environment))
        while any(rank.poll() is None for rank in ranks):
            if any(rank.poll() not in (None, 0) for rank in ranks):
                for rank in ranks:
                    rank.kill()
            time.sleep(0.05)
        return [rank.wait() for rank in ranks]

    def test_the_same_batches_and_steps(self) -> None:
        for rank, found in enumerate(self.found):
            self.assertEqual(found["rank"], rank)
            for told in ("drop", "split"):
                self.assertEqual(found[f"{told} brim"], found[f"{told} torch"])
                self.assertEqual(steps(found[f"{told} brim"]), [4, 4])

    def test_even_batches(self) -> None:
        for found in self.found:
            ours, theirs = found["even brim"], found["even torch"]
            self.assertEqual(steps(ours), [4, 4])
            for our, their in zip(ours, theirs):
                # sync_gradients and end_of_dataloader agree everywhere, and the rows of all
                # batches but the last: there accelerate repeats rows of the first batches.
                self.assertEqual([batch[1:3] for batch in our], [batch[1:3] for batch in their])
                self.assertEqual([batch[0] for batch in our[:-1]],
                                 [batch[0] for batch in their[:-1]])  # fmt: skip
        last = [found["even torch"][0][-1][0] for found in self.found]
        self.assertEqual(last, [[104, 0, 1, 2], [3, 4, 5, 6]])
        last = [found["even brim"][0][-1][0] for found in self.found]
        self.assertEqual(last, [[104, -1, -1, -1], [-1, -1, -1, -1]])

    def test_gather_for_metrics_gives_every_row_once(self) -> None:
        for found in self.found:
            self.assertEqual(sum(found["gather torch"], []), list(range(ROWS)))
            for name in ("gather brim", "gather again", "gather unknown"):
                self.assertEqual(found[name], found["gather torch"])

    def test_skip_first_batches(self) -> None:
        for found in self.found:
            self.assertEqual(found["skip brim"], found["skip torch"])

    def test_a_loader_that_is_not_divided_is_named(self) -> None:
        for found in self.found:
            (said,) = found["undivided"]
            self.assertIn("2 processes", said)
            self.assertIn("shard='auto'", said)

    def test_batches_that_differ_between_ranks_are_named(self) -> None:
        for found in self.found:
            (said,) = found["uneven"]
            self.assertIn("remainder='pad'", said)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank_main(pathlib.Path(sys.argv[2]))
    else:
        support.main()
