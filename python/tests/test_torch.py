"""brim.torch: what batches are, how long their memory lives, states, ranks, and a network that
learns from them."""

# label: full

from __future__ import annotations

import gc
import inspect
import gzip
import io
import json
import os
import pathlib
import pickle
import re
import signal
import warnings
from collections.abc import Iterable
from unittest import mock

import brim
import plans
import support
from brim._randomness import draws

numpy = support.need("numpy")
torch = support.need("torch")

from torch import distributed, nn  # noqa: E402

torch.set_num_threads(1)  # the networks are too small for more


def ids(batches: Iterable[dict]) -> list[int]:
    """The samples' numbers of batches opened with as_dict and "ids"."""
    return [number for batch in batches for number in batch["ids"].tolist()]


class Torch(support.Case):
    def setUp(self) -> None:
        super().setUp()
        self.runtime = brim.Runtime(memory="64MiB", threads=2, index_dir=self.folder / "cache")
        self.addCleanup(self.runtime.close)

    def open(self, data: brim.Pipeline | str, **options) -> brim.torch.TorchLoader:
        loader = brim.torch.loader(data, **{"runtime": self.runtime, **options})
        self.addCleanup(loader.close)
        return loader

    def one(self, data: brim.Pipeline | str, **options):
        """The first batch."""
        return next(iter(self.open(data, **options)))


# ------------------------------------------------------------------------------- batches


class Batches(Torch):
    def test_values_are_those_of_the_core_loader(self) -> None:
        support.drawn_set(self.folder / "set", 40)
        data = (
            brim.folder(self.folder / "set").shuffle(seed=3).decode()
            .random_resized_crop(16).flip().normalize("imagenet").batch(16)
        )
        with self.runtime.open(data) as core:
            expected = [
                (numpy.array(batch["image"]), numpy.array(batch["label"])) for batch in core
            ]
        found = [(x.clone(), y) for x, y in self.open(data)]
        self.assertEqual([len(y) for _, y in found], [16, 16, 8])
        for (x, y), (image, label) in zip(found, expected, strict=True):
            self.assertTrue(numpy.array_equal(x.numpy(), image))
            self.assertTrue(numpy.array_equal(y.numpy(), label))

    def test_every_dtype(self) -> None:
        same = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32",
                "float64", "complex64", "complex128")
        wider = {"uint16": torch.int32, "uint32": torch.int64, "uint64": torch.int64}
        for name in (*same, *wider):
            with self.subTest(name):
                values = numpy.arange(12).reshape(4, 3).astype(name)
                if name in wider:
                    values[0, 0] = numpy.iinfo(name).max >> (name == "uint64")
                (x,) = self.one(brim.array(values).batch(4))
                self.assertEqual(x.dtype, wider.get(name) or getattr(torch, name))
                self.assertEqual(x.tolist(), values.tolist())

    def test_one_integer_for_each_sample_is_int64(self) -> None:
        for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
            data = brim.array(numpy.arange(5, dtype=name), "label").batch(5)
            with self.subTest(name):
                self.assertEqual(self.one(data)[0].dtype, torch.int64)
                self.assertEqual(self.one(data, integers="int32")[0].dtype, torch.int32)
                self.assertEqual(self.one(data, integers=torch.int16)[0].dtype, torch.int16)
                self.assertEqual(self.one(data)[0].tolist(), [0, 1, 2, 3, 4])
        (kept,) = self.one(brim.array(numpy.arange(5, dtype="uint8")).batch(5), integers=None)
        self.assertEqual(kept.dtype, torch.uint8)
        for name in ("bool", "float32"):
            (kept,) = self.one(brim.array(numpy.ones(5, dtype=name)).batch(5))
            self.assertEqual(kept.dtype, getattr(torch, name))

    def test_bfloat16(self) -> None:
        values = numpy.linspace(-3, 3, 24, dtype=numpy.float32).reshape(4, 6)
        (x,) = self.one(brim.array(values).cast("bfloat16").batch(4))
        self.assertEqual(x.dtype, torch.bfloat16)
        self.assertTrue(torch.equal(x, torch.from_numpy(values).to(torch.bfloat16)))

    def test_fields_choose_and_order(self) -> None:
        data = brim.arrays(a=numpy.arange(6), b=numpy.arange(6) * 10, c=numpy.ones(6)).batch(3)
        self.assertEqual([x.tolist() for x in self.one(data)], [[0, 1, 2], [0, 10, 20], [1, 1, 1]])
        b, a = self.one(data, fields=("b", "a"))
        self.assertEqual((a.tolist(), b.tolist()), ([0, 1, 2], [0, 10, 20]))
        (b,) = self.one(data, fields="b")
        self.assertEqual(b.tolist(), [0, 10, 20])
        batch = self.one(data, fields=("b", "ids", "valid", "names"), as_dict=True)
        self.assertEqual(list(batch), ["b", "ids", "valid", "names"])
        self.assertEqual(batch["ids"].tolist(), [0, 1, 2])
        self.assertEqual(batch["valid"].tolist(), [True] * 3)
        self.assertEqual(len(batch["names"]), 3)
        self.assertEqual(list(self.one(data, as_dict=True)), ["a", "b", "c"])
        with self.assertRaisesRegex(brim.PipelineError, "no 'd'; it gives a, b, c"):
            self.open(data, fields=("a", "d"))

    def test_a_field_of_the_pipeline_comes_before_what_is_known_of_rows(self) -> None:
        data = brim.arrays(valid=numpy.arange(3) + 7).batch(2, remainder="pad")
        found = [valid.tolist() for (valid,) in self.open(data, fields="valid")]
        self.assertEqual(found, [[7, 8], [9]])

    def test_channels_last(self) -> None:
        images = numpy.arange(2 * 5 * 6 * 3, dtype=numpy.uint8).reshape(2, 5, 6, 3)
        data = brim.arrays(image=images, label=numpy.arange(2)).batch(2)
        x, _ = self.one(data)
        self.assertEqual(x.shape, (2, 5, 6, 3))
        x, _ = self.one(data, channels_last=True)
        self.assertEqual(x.shape, (2, 3, 5, 6))
        self.assertTrue(x.is_contiguous(memory_format=torch.channels_last))
        self.assertTrue(numpy.array_equal(x.permute(0, 2, 3, 1).numpy(), images))
        planar = brim.arrays(image=images).layout("chw").batch(2)
        with self.assertRaisesRegex(brim.PipelineError, r"image \(2, 3, 5, 6\)"):
            self.open(planar, channels_last=True)

    def test_text_and_ragged_fields(self) -> None:
        rows = [("one", [1, 2, 3]), ("zwei", []), ("drei ü", [4]), ("", [5, 6])]
        path = self.folder / "rows.jsonl"
        path.write_text("".join(json.dumps({"text": t, "n": n}) + "\n" for t, n in rows))
        data = brim.jsonl(path, fields=["text", "n"], types=["text", "uint16[]"]).batch(3)
        batches = []
        for text, n in self.open(data):
            self.assertTrue(n.is_nested)
            self.assertEqual(n.dtype, torch.int32)
            batches.append((text, [row.tolist() for row in n.unbind()]))
        self.assertEqual(batches[0], (["one", "zwei", "drei ü"], [[1, 2, 3], [], [4]]))
        self.assertEqual(batches[1], ([""], [[5, 6]]))

    def test_rows_that_fill_up(self) -> None:
        path = self.folder / "rows.jsonl"
        path.write_text("".join(json.dumps({"n": [i] * i, "x": i}) + "\n" for i in range(5)))
        data = brim.jsonl(path, fields=["n", "x"], types=["int64[]", "float32"])
        data = data.batch(4, remainder="pad")
        cut = [(n.unbind(), x.tolist()) for n, x in self.open(data)]
        self.assertEqual([x for _, x in cut], [[0, 1, 2, 3], [4]])
        self.assertEqual([row.tolist() for row in cut[1][0]], [[4] * 4])
        whole = [batch for batch in self.open(data, fields=("x", "valid"), as_dict=True)]
        self.assertEqual([len(batch["x"]) for batch in whole], [4, 4])
        self.assertEqual(whole[1]["valid"].tolist(), [True, False, False, False])

    def test_functions_that_draw_from_torch_are_random(self) -> None:
        from torch import randn

        generator = torch.Generator()
        for function in (
            lambda sample: torch.rand(3),
            lambda sample: torch.empty(3).uniform_(),
            lambda sample: randn(3),
            lambda sample: torch.ones(3) * torch.distributions.Normal(0, 1).sample(),
            lambda sample: generator,
        ):
            self.assertIsNotNone(draws(function))
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
        self.assertIsNone(draws(lambda sample: model(torch.as_tensor(sample["x"]).float())))
        self.assertIsNone(draws(nn.functional.interpolate))

    def test_wrong_options_are_refused_when_it_is_opened(self) -> None:
        data = brim.range(8).batch(2)
        with self.assertRaisesRegex(brim.PipelineError, r"device='meta'.*x.to\('meta'\)"):
            self.open(data, device="meta")
        if not torch.cuda.is_available():
            with self.assertRaisesRegex(brim.PipelineError, "libcuda.so.1|is_available"):
                self.open(data, device="cuda:1")
        with self.assertRaisesRegex(ValueError, "device='gpu': brim.torch delivers to 'cpu'"):
            self.open(data, device="gpu")
        with self.assertRaisesRegex(ValueError, "leave one out"):
            self.open(data, memory="1MiB")
        with self.assertRaisesRegex(ValueError, "integers='many'"):
            self.open(data, integers="many")
        for wrong in ("float32", torch.float32, "Tensor", 3):
            with self.assertRaisesRegex(ValueError, "an integer type"):
                self.open(data, integers=wrong)
        with self.assertRaises(brim.PipelineError):
            self.open("range 8 | batch 2 remainder=cut")
        kept = None
        try:
            brim.torch.loader(data, runtime=self.runtime, fields="none")
        except brim.PipelineError as error:
            kept = error  # and with it the frames in which the loader was opened
        self.assertIsNotNone(kept)
        self.assertEqual(self.runtime.usage()["loaders"], 0)


# ---------------------------------------------------------------------------- their memory


class Memory(Torch):
    IMAGES = numpy.arange(64 * 12, dtype=numpy.float32).reshape(64, 3, 4)

    def images(self, rows: int) -> brim.Pipeline:
        return brim.arrays(image=self.IMAGES, label=numpy.arange(64)).batch(rows)

    def test_tensors_lie_in_the_batch(self) -> None:
        loader = self.open(self.images(4))
        batch = next(iter(loader._core))
        image, label = loader._convert(batch)
        place = batch["image"].__array_interface__["data"][0]
        self.assertEqual(image.data_ptr(), place)
        self.assertNotEqual(label.data_ptr(), batch["label"].__array_interface__["data"][0])

    def test_channels_last_lies_in_the_batch(self) -> None:
        pixels = numpy.arange(8 * 5 * 6 * 3, dtype=numpy.float32).reshape(8, 5, 6, 3)
        loader = self.open(brim.array(pixels, "image").batch(4), channels_last=True)
        batch = next(iter(loader._core))
        (image,) = loader._convert(batch)
        self.assertEqual(image.shape, (4, 3, 5, 6))
        self.assertEqual(image.data_ptr(), batch["image"].__array_interface__["data"][0])
        self.assertEqual(image.untyped_storage().nbytes(), batch["image"].nbytes)
        image[:, 1] = 7  # written where the batch is
        self.assertTrue((numpy.asarray(batch["image"])[:, :, :, 1] == 7).all())

    def test_a_slot_goes_back_with_its_last_tensor(self) -> None:
        loader = self.open(self.images(4))
        batches = iter(loader)
        image, label = next(batches)
        self.assertEqual(loader.stats()["lent"], 1)
        part = image[1:].view(-1)
        del image
        self.assertEqual(loader.stats()["lent"], 1)
        self.assertEqual(part[0], 12)
        del part
        self.assertEqual(loader.stats()["lent"], 0)
        self.assertEqual(label.tolist(), [0, 1, 2, 3])

    def test_tensors_outlive_loader_and_runtime(self) -> None:
        runtime = brim.Runtime(memory="16MiB")
        loader = brim.torch.loader(self.images(4), runtime=runtime)
        image, _ = next(iter(loader))
        loader.close()
        runtime.close()
        del loader, runtime
        gc.collect()
        self.assertTrue(numpy.array_equal(image.numpy(), self.IMAGES[:4]))

    def test_labels_of_a_whole_epoch_keep_no_slots(self) -> None:
        loader = self.open(self.images(4), fields=("label", "ids"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kept = list(loader)
        self.assertEqual(torch.cat([label for label, _ in kept]).tolist(), list(range(64)))
        self.assertEqual(loader.stats()["lent"], 0)
        self.assertEqual(loader.stats()["copies"], 0)

    def test_a_for_loop_needs_no_copies(self) -> None:
        loader = self.open(self.images(4))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for image, _ in loader:
                self.assertEqual(image.shape, (4, 3, 4))
        self.assertEqual(loader.stats()["copies"], 0)

    def accumulate(self, hold: int) -> int:
        """Two steps over eight batches each: how many of these were copies."""
        loader = self.open(self.images(4), hold=hold)
        found, window = [], []
        for image, _ in loader:
            window.append(image)
            if len(window) == 8:
                found += [kept.clone() for kept in window]
                window.clear()
        self.assertTrue(numpy.array_equal(torch.cat(found).numpy(), self.IMAGES))
        return loader.stats()["copies"]

    def test_gradient_accumulation_of_eight_warns_once_and_goes_on(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertGreater(self.accumulate(hold=2), 0)
        (warning,) = caught
        self.assertIs(warning.category, brim.HoldWarning)
        self.assertEqual(warning.filename, __file__)
        named = re.search("hold=([0-9]+) would avoid", str(warning.message))
        hold = int(named[1])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(self.accumulate(hold), 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertGreater(self.accumulate(hold - 1), 0)  # it names no more than is needed

    def test_keeping_all_batches_ends_in_the_budget(self) -> None:
        values = numpy.zeros((64, 64 << 10), dtype=numpy.uint8)
        values[:, 0] = numpy.arange(64)
        runtime = brim.Runtime(memory="3MiB", threads=1, index_dir=self.folder)
        self.addCleanup(runtime.close)
        loader = self.open(brim.array(values).batch(4), runtime=runtime)
        batches, kept, seen = iter(loader), [], []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with self.assertRaisesRegex(brim.BudgetError, "batches and copies of batches are held"):
                for batch in batches:
                    kept.append(batch)
            self.assertGreater(len(kept), 2)
            seen = [int(row[0]) for (x,) in kept for row in x]
            del batch
            kept.clear()
            seen += [int(row[0]) for (x,) in batches for row in x]
        self.assertEqual(seen, list(range(64)))

    def test_epochs_and_resets_with_memory_flat(self) -> None:
        def resident() -> int:
            gc.collect()
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096

        pixels = numpy.zeros((256, 64, 32, 4), dtype=numpy.uint8)
        data = brim.array(pixels, "image").shuffle(seed=1).cast("float32").batch(32)
        with brim.Runtime(memory="24MiB", threads=2) as runtime:  # an epoch has 8 MiB
            # The minimum: more slots, of 1 MiB each, may come at any time.
            slots = brim.torch.plan(data, memory="24MiB", channels_last=True).minimum_slots
            loader = brim.torch.loader(data, runtime=runtime, channels_last=True, slots=slots)
            figures = []
            for reset in range(1000):
                batches = iter(loader)
                for _ in range(3):
                    next(batches)
                if reset in (100, 999):
                    figures.append(resident())
            self.assertLess(figures[1] - figures[0], 2 * support.MIB)
            rows = 0
            for epoch in loader.epochs(200):
                for (image,) in epoch:
                    rows += len(image)
                del image
                if epoch.number % 100 == 99:
                    figures.append(resident())
            self.assertEqual(rows, 200 * 256)
            self.assertLess(abs(figures[-1] - figures[1]), 4 * support.MIB)
            usage = runtime.usage()
            self.assertLessEqual(usage["peak"], usage["limit"])
            loader.close()

    def test_one_runtime_for_the_process(self) -> None:
        train = brim.torch.loader(self.images(4), memory="48MiB")
        val = brim.torch.loader(self.images(8))
        with train, val:
            usage = brim.runtime().usage()
            self.assertEqual((usage["loaders"], usage["limit"]), (2, 48 << 20))
            with self.assertRaisesRegex(ValueError, "2 open loaders"):
                brim.torch.loader(self.images(4), memory="49MiB")
        with brim.torch.loader(self.images(4), memory="32MiB"):
            self.assertEqual(brim.runtime().usage()["limit"], 32 << 20)


# ------------------------------------------------------------------- in a DataLoader's place


class InPlace(Torch):
    TEXT = "range 100 | shuffle seed=7 | batch 8"  # 13 batches, the last with 4 rows

    def test_what_trainers_look_at(self) -> None:
        loader = self.open(self.TEXT)
        self.assertEqual((len(loader), len(loader.dataset), loader.batch_size), (13, 100, 8))
        self.assertTrue(loader)
        self.assertIn("range 100", repr(loader))
        self.assertEqual(loader.stats()["batches"], 0)
        self.assertTrue(loader.plan.fits)
        self.assertEqual(loader.pipeline, brim.pipeline(self.TEXT))

    def test_tqdm(self) -> None:
        try:
            import tqdm
        except ImportError:
            self.skipTest("tqdm is not installed")
        bar = tqdm.tqdm(self.open(self.TEXT), file=io.StringIO())
        self.assertEqual(bar.total, 13)
        self.assertEqual(sum(1 for _ in bar), 13)

    def test_no_length_where_nobody_knows(self) -> None:
        data = brim.stream(({"x": numpy.float32(i)} for i in range(5)), out={"x": "float32"})
        loader = self.open(data.batch(2))
        for sized in (loader, loader.dataset):
            with self.assertRaises(TypeError):
                len(sized)
        self.assertTrue(loader)
        self.assertEqual([x.tolist() for (x,) in loader], [[0, 1], [2, 3], [4]])

    def test_a_loop_written_for_dataloader(self) -> None:
        x = torch.randn(64, 5, generator=torch.Generator().manual_seed(1))
        y = (x.sum(1) > 0).long()

        def train(batches: Iterable) -> list[float]:
            torch.manual_seed(2)
            model = nn.Linear(5, 2)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            losses = []
            for _ in range(2):
                for a, b in batches:
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(model(a), b)
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.item())
            return losses

        dataset = torch.utils.data.TensorDataset(x, y)
        theirs = train(torch.utils.data.DataLoader(dataset, batch_size=12))
        ours = train(self.open(brim.arrays(x=x, y=y).batch(12)))
        self.assertEqual(ours, theirs)

    def test_epochs(self) -> None:
        loader = self.open(self.TEXT, fields="ids", as_dict=True)
        seen = []
        for epoch in loader.epochs(3):
            self.assertEqual(len(epoch), 13)
            seen.append((epoch.number, ids(epoch)))
        self.assertEqual([number for number, _ in seen], [0, 1, 2])
        for _, numbers in seen:
            self.assertEqual(sorted(numbers), list(range(100)))
        self.assertNotEqual(seen[0][1], seen[1][1])
        loader.set_epoch(1)
        self.assertEqual(loader.epoch, 1)
        self.assertEqual(ids(loader), seen[1][1])
        self.assertEqual(ids(self.open(self.TEXT, fields="ids", as_dict=True)), seen[0][1])

    def test_closing(self) -> None:
        with self.open(self.TEXT) as loader:
            batches = iter(loader)
            next(batches)
        self.assertTrue(loader.closed)
        self.assertIn("closed", repr(loader))
        with self.assertRaises(brim.ClosedError):
            next(batches)

    def test_it_is_not_sent_to_other_processes(self) -> None:
        loader = self.open(self.TEXT)
        with self.assertRaisesRegex(TypeError, "send the Pipeline"):
            pickle.dumps(loader)
        child = os.fork()
        if child == 0:
            try:
                next(iter(loader))
            except brim.ClosedError:
                os._exit(7)
            finally:
                os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)


# -------------------------------------------------------------------------------- states


class States(Torch):
    TEXT = InPlace.TEXT

    def open_ids(self) -> brim.torch.TorchLoader:
        return self.open(self.TEXT, fields="ids", as_dict=True)

    def from_state(self, state: dict) -> list[int]:
        """The rest of the epoch, in a loader that was opened anew."""
        loader = self.open_ids()
        loader.load_state_dict(json.loads(json.dumps(state)))
        return ids(loader)

    def test_resume_in_the_middle(self) -> None:
        loader = self.open_ids()
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        state = loader.state_dict()
        self.assertEqual(self.from_state(state), ids(batches))

    def test_behind(self) -> None:
        loader = self.open_ids()
        batches = iter(loader)
        taken = [ids([next(batches)]) for _ in range(7)]
        rest = [number for batch in taken[4:] for number in batch]
        state = loader.state_dict(behind=3)
        rest += ids(batches)
        self.assertEqual(self.from_state(state), rest)

    def test_behind_all_that_was_delivered(self) -> None:
        loader = self.open_ids()
        first = ids(loader)
        again = self.from_state(loader.state_dict(behind=13))
        self.assertEqual(again, first)
        with self.assertRaisesRegex(brim.StateError, "behind=14, but 13 batches"):
            loader.state_dict(behind=14)
        with self.assertRaises(ValueError):
            loader.state_dict(behind=-1)

    def test_behind_reaches_into_the_epoch_before(self) -> None:
        loader = self.open_ids()
        first = ids(loader)
        batches = iter(loader)
        next(batches)
        next(batches)
        state = loader.state_dict(behind=3)
        self.assertEqual(self.from_state(state), first[-4:])

    def test_behind_forgets_what_was_left_behind(self) -> None:
        loader = self.open_ids()
        for _ in zip(range(4), loader):
            pass
        batches = iter(loader)  # the next epoch
        second = ids([next(batches)])
        state = loader.state_dict(behind=1)
        self.assertEqual(self.from_state(state), second + ids(batches))
        with self.assertRaises(brim.StateError):
            loader.state_dict(behind=14)

    def test_sixty_four_batches_are_remembered(self) -> None:
        loader = self.open("range 100 | batch 1", fields="ids", as_dict=True)
        everything = ids(loader)
        state = loader.state_dict(behind=64)
        again = self.open("range 100 | batch 1", fields="ids", as_dict=True)
        again.load_state_dict(state)
        self.assertEqual(ids(again), everything[-64:])
        with self.assertRaises(brim.StateError):
            loader.state_dict(behind=65)

    def test_set_epoch_of_the_resumed_epoch_keeps_the_place(self) -> None:
        loader = self.open_ids()
        ids(loader)
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        state, rest = loader.state_dict(), ids(batches)
        resumed = self.open_ids()
        resumed.load_state_dict(state)
        self.assertEqual(resumed.epoch, 1)
        for epoch in range(resumed.epoch, 3):  # a loop as for a DistributedSampler
            resumed.set_epoch(epoch)
            found = ids(resumed)
            if epoch == 1:
                self.assertEqual(found, rest)
            else:
                self.assertEqual(len(found), 100)
        resumed.set_epoch(0)
        self.assertEqual(ids(resumed), ids(self.open_ids()))

    def test_a_state_of_other_data_is_refused(self) -> None:
        with self.assertRaises(brim.StateError):
            self.open("range 99 | batch 8").load_state_dict(self.open_ids().state_dict())


# --------------------------------------------------------------------------------- ranks

PARTS = "range 37 | shuffle seed=5 | batch 8 per=global remainder=pad"


def rank_main(rank: int, world: int, folder: str) -> None:
    """One of the ranks that test_two_ranks starts."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world
    )
    steps, rows, seen = 0, [], []
    total = torch.zeros(1, dtype=torch.int64)
    with brim.torch.loader(PARTS, memory="32MiB", shard="auto", fields=("index", "ids")) as loader:
        for index, numbers in loader:
            count = torch.tensor([len(index)])
            distributed.all_reduce(count)  # would hang if a rank had more steps
            total += count
            steps += 1
            rows.append(len(index))
            seen += numbers.tolist()
    result = {"steps": steps, "rows": rows, "ids": seen, "total": int(total)}
    pathlib.Path(folder, f"{rank}.json").write_text(json.dumps(result))
    distributed.destroy_process_group()


class Ranks(Torch):
    def test_two_ranks_have_equal_steps_and_each_sample_once(self) -> None:
        def start() -> int:
            """The signal that ended a rank, negative; 0: none."""
            pathlib.Path(self.folder, "meet").unlink(missing_ok=True)
            try:
                torch.multiprocessing.spawn(rank_main, (2, str(self.folder)), nprocs=2)
            except torch.multiprocessing.ProcessExitedException as error:
                return error.exit_code
            return 0

        self.assertEqual(support.despite_gloo(start, lambda code: code == -signal.SIGABRT), 0)
        zero, one = (json.loads((self.folder / f"{rank}.json").read_text()) for rank in (0, 1))
        self.assertEqual((zero["steps"], one["steps"]), (5, 5))
        self.assertEqual((zero["rows"], one["rows"]), ([4, 4, 4, 4, 4], [4, 4, 4, 4, 1]))
        self.assertEqual(sorted(zero["ids"] + one["ids"]), list(range(37)))
        self.assertEqual(zero["total"], 37)

    def test_a_rank_may_have_no_rows_at_the_end(self) -> None:
        data = "range 10 | batch 4 per=global remainder=pad"
        batches = [x.tolist() for (x,) in self.open(data, rank=1, world=2)]
        self.assertEqual(batches, [[2, 3], [6, 7], []])
        images = numpy.zeros((10, 8, 8, 3), dtype=numpy.float32)
        whole = brim.array(images).batch(4, per="global", remainder="pad")
        shapes = [x.shape for (x,) in self.open(whole, rank=1, world=2, channels_last=True)]
        self.assertEqual(shapes[-1], (0, 3, 8, 8))
        flagged = [
            batch["valid"].tolist()
            for batch in self.open(data, rank=1, world=2, fields="valid", as_dict=True)
        ]
        self.assertEqual(flagged, [[True, True], [True, True], [False, False]])

    def test_shard_auto_reads_what_torchrun_says(self) -> None:
        data = "range 8 | batch 2"
        with mock.patch.dict(os.environ, {"RANK": "1", "WORLD_SIZE": "4"}):
            self.assertEqual([x.tolist() for (x,) in self.open(data, shard="auto")], [[2, 3]])
            self.assertEqual(len(self.open(data)), 4)
        with mock.patch.dict(os.environ, {"RANK": "one", "WORLD_SIZE": "4"}):
            with self.assertRaisesRegex(ValueError, "RANK='one' and WORLD_SIZE='4'"):
                self.open(data, shard="auto")
        with mock.patch.dict(os.environ):
            os.environ.pop("RANK", None)
            os.environ.pop("WORLD_SIZE", None)
            self.assertEqual(len(self.open(data, shard="auto")), 4)

    def test_parts_that_contradict(self) -> None:
        for options in (
            {"shard": "all"},
            {"rank": 1},
            {"world": 2},
            {"shard": "auto", "rank": 0, "world": 2},
        ):
            with self.subTest(options), self.assertRaises(ValueError):
                self.open("range 8 | batch 2", **options)


# ------------------------------------------------------------------------------ learning


IMAGES = "t10k-images-idx3-ubyte"


def network(channels: int, classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, classes),
    )  # fmt: skip


class Learning(Torch):
    def learn(self, train: brim.Pipeline, val: brim.Pipeline, channels: int, classes: int,
              epochs: int) -> float:
        """The share of `val` that a network trained on `train` gets right."""
        torch.manual_seed(0)
        model = network(channels, classes).to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(model.parameters(), 5e-3)
        options = {"channels_last": True, "as_dict": True, "fields": ("image", "label", "ids")}
        loader = self.open(train, **options)
        for epoch in loader.epochs(epochs):
            seen: list[int] = []
            for batch in epoch:
                loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen += batch["ids"].tolist()
            self.assertEqual(len(seen), len(loader.dataset))
            self.assertEqual(len(set(seen)), len(loader.dataset))
        right = rows = 0
        with torch.no_grad():
            for batch in self.open(val, **options):
                right += int((model(batch["image"]).argmax(1) == batch["label"]).sum())
                rows += len(batch["label"])
        self.assertEqual(rows, len(val))
        return right / rows

    def test_drawn_set(self) -> None:
        support.drawn_set(self.folder / "set", 120)
        source = brim.folder(self.folder / "set")
        train = (
            source.split("train", validation=0.2).shuffle(seed=1).decode()
            .random_resized_crop(24).flip().normalize("imagenet").batch(16)
        )
        val = (
            source.split("validation", validation=0.2).decode().resize(24, 24)
            .normalize("imagenet").batch(16)
        )
        self.assertGreaterEqual(self.learn(train, val, 3, 3, epochs=5), 0.95)

    def test_mnist(self) -> None:
        folder = support.data("mnist")
        if folder is None:
            self.skipTest("there is no MNIST")
        pixels, labels = (
            numpy.frombuffer(gzip.decompress((folder / name).read_bytes())[header:], numpy.uint8)
            for name, header in ((f"{IMAGES}.gz", 16), ("t10k-labels-idx1-ubyte.gz", 8))
        )
        images = brim.idx(folder / f"{IMAGES}.gz", name="image")
        digits = brim.zip(images, brim.array(labels, "label")).reshape(28, 28, 1, on="image")
        digits = digits.normalize(mean=0.1307, std=0.3081, on="image")
        parts = {"validation": 0.2, "test": 0.4}
        train = digits.split("train", **parts).shuffle(seed=2).batch(32)
        val = digits.split("validation", **parts).batch(250)

        expected = (pixels.reshape(-1, 28, 28, 1) / 255 - 0.1307) / 0.3081
        for x, y, numbers in self.open(val, fields=("image", "label", "ids")):
            self.assertTrue(numpy.allclose(x.numpy(), expected[numbers], atol=1e-5))
            self.assertTrue(numpy.array_equal(y.numpy(), labels[numbers]))
        # with these settings a network comes to 0.92 to 0.94, by the numbers it begins with
        self.assertGreaterEqual(self.learn(train, val, 1, 10, epochs=2), 0.9)



# --------------------------------------------------------------------- plans, and going on


class Plans(Torch):
    def take(self, data, **options) -> int:
        with brim.torch.loader(data, **options) as loader:
            return sum(1 for _ in loader)

    def test_what_fits_opens(self) -> None:
        plans.check(self, brim.torch.plan, self.take, self.folder)
        plans.check(self, brim.torch.plan, self.take, self.folder, hold=4, rank=1, world=2)

    def test_same_arguments(self) -> None:
        loader, plan = inspect.signature(brim.torch.loader), inspect.signature(brim.torch.plan)
        self.assertEqual(loader.parameters, plan.parameters)
        data = brim.array(plans.X, name="x").batch(16)
        both = {"memory": "1MiB", "runtime": self.runtime}
        for refused in ({"device": "mps"}, both, {"rank": 1}):
            with self.assertRaises(ValueError) as by_loader:
                brim.torch.loader(data, **refused)
            with self.assertRaises(ValueError) as by_plan:
                brim.torch.plan(data, **refused)
            self.assertEqual(str(by_loader.exception), str(by_plan.exception))
        with self.assertRaisesRegex(TypeError, "holds"):
            brim.torch.plan(data, holds=3)

    def test_a_plan_changes_nothing(self) -> None:
        """The runtime of the process is as it was, and what its loaders have counts."""
        data = brim.array(plans.X, name="x").batch(16)
        with brim.torch.loader(data, memory="2MiB") as loader:
            runtime = brim.runtime()
            self.assertEqual(brim.torch.plan(data).limit_bytes, 2 << 20)
            self.assertTrue(brim.torch.plan(data, memory="2MiB", slots=5).fits)
            with self.assertRaisesRegex(ValueError, "1 open loader"):
                brim.torch.plan(data, memory="4MiB")
            self.assertEqual(loader.plan.hold, 2)
        self.assertEqual(brim.torch.plan(data, memory="4MiB").limit_bytes, 4 << 20)
        self.assertIs(brim.runtime(), runtime)
        self.assertEqual(runtime.usage()["limit"], 2 << 20)


class Failing(Torch):
    def test_the_next_loop_goes_on(self) -> None:
        trouble = support.Trouble(40, 9)
        loader = self.open(trouble.data.batch(4), fields=("x", "ids"), as_dict=True, threads=0)
        found: list[int] = []
        for _ in range(2):
            with self.assertRaisesRegex(brim.FunctionError, "same batch"):
                for batch in loader:
                    found += batch["ids"].tolist()
            self.assertEqual(found, list(range(8)))
        trouble.on = False
        for batch in loader:
            found += batch["ids"].tolist()
        self.assertEqual(found, list(range(40)))
        del batch
        self.assertEqual((len(ids(loader)), loader.epoch), (40, 2))


if __name__ == "__main__":
    support.main()
