"""brim.jax with the real JAX: values, where arrays lie, devices, training."""

# label: full

from __future__ import annotations

import gc
import os
import pathlib
import pickle
import subprocess
import sys
import time
import unittest.mock
import warnings

import support

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
jax = support.need("jax")

import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import brim
import plans

COUNT = 200
COLUMN = numpy.arange(COUNT, dtype=numpy.float32).reshape(COUNT, 1)


class Loader(support.Case):
    def setUp(self) -> None:
        super().setUp()
        self.runtime = brim.Runtime(memory="64MiB", threads=2, index_dir=self.folder)
        self.addCleanup(self.runtime.close)
        self.data = brim.arrays(x=COLUMN, y=COLUMN[:, 0].astype("int64")).shuffle(seed=7).batch(16)

    def open(self, data=None, **options):
        loader = brim.jax.loader(
            self.data if data is None else data, runtime=self.runtime, **options
        )
        self.addCleanup(loader.close)
        return loader

    def order(self, data, epoch: int) -> list[int]:
        with self.runtime.open(data, copies=True) as loader:
            loader.set_epoch(epoch)
            return [number for batch in loader for number in batch.ids.tolist()]

    def images(self):
        pixels = numpy.zeros((COUNT, 64, 64, 3), numpy.float32) + COLUMN[:, :, None, None]
        return brim.arrays(x=pixels, y=COLUMN).shuffle(seed=3).batch(20)

    # ----------------------------------------------------------------- epochs and batches

    def test_epochs(self) -> None:
        loader = self.open()
        self.assertEqual(len(loader), 13)
        for number, epoch in enumerate(loader.epochs(3)):
            given = [int(n) for x, _ in epoch for n in x[:, 0]]
            self.assertEqual(given, self.order(self.data, number))
        next(iter(loader))  # a look
        self.assertEqual([int(n) for _, y in loader for n in y], self.order(self.data, 3))
        loader.set_epoch(1)
        self.assertEqual([int(n) for _, y in loader for n in y], self.order(self.data, 1))

    def test_epochs_have_number_and_length(self) -> None:
        given = [(epoch.number, len(epoch), len(list(epoch))) for epoch in self.open().epochs(2)]
        self.assertEqual(given, [(0, 13, 13), (1, 13, 13)])

    def test_state(self) -> None:
        loader = self.open()
        iterator = iter(loader)
        for _ in range(5):
            next(iterator)
        state = loader.state_dict()
        rest = [int(n) for _, y in iterator for n in y]
        other = self.open()
        other.load_state_dict(state)
        self.assertEqual([int(n) for _, y in other for n in y], rest)

    def test_types(self) -> None:
        arrays = {name: COLUMN[:8].astype(name) for name in ("uint8", "int64", "float16", "bool")}
        arrays["half"] = COLUMN[:8]
        data = brim.arrays(**arrays).cast("bfloat16", on="half").batch(8)
        (batch,) = self.open(data, as_dict=True)
        wanted = {name: name for name in arrays} | {"int64": "int32", "half": "bfloat16"}
        self.assertEqual({name: str(array.dtype) for name, array in batch.items()}, wanted)
        self.assertEqual(batch.pop("bool")[:, 0].tolist(), [False] + [True] * 7)
        for array in batch.values():
            self.assertEqual(array[:, 0].astype(float).tolist(), list(range(8)))

    def test_fields(self) -> None:
        data = brim.arrays(x=COLUMN).batch(64, remainder="pad")
        self.assertEqual([len(x) for (x,) in self.open(data)], [64, 64, 64, 8])
        batches = list(self.open(data, fields=("ids", "valid", "x"), as_dict=True))
        self.assertEqual([len(batch["x"]) for batch in batches], [64] * 4)
        ids = [int(n) for batch in batches for n in batch["ids"][batch["valid"]]]
        self.assertEqual(ids, list(range(COUNT)))
        with self.assertRaisesRegex(brim.PipelineError, "'z'; it gives x"):
            self.open(data, fields="z")

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

    def test_refusals(self) -> None:
        (self.folder / "lines.txt").write_text("one\ntwo\n")
        with self.assertRaisesRegex(brim.PipelineError, "text, and JAX"):
            self.open(brim.text(self.folder / "lines.txt").batch(1))
        self.assertRaises(ValueError, self.open, shard="yes")
        self.assertRaises(ValueError, self.open, shard="auto", rank=0, world=1)
        self.assertRaises(ValueError, self.open, rank=0)
        self.assertRaises(TypeError, pickle.dumps, self.open())
        with self.assertRaisesRegex(brim.PipelineError, "no field 'z'; it has x, y"):
            self.open(sharding={"z": jax.devices()[0]})
        with self.assertRaisesRegex(brim.PipelineError, "device='cuda'.*host memory"):
            self.open(device="cuda")
        loader = self.open(shard="auto", device="cpu")
        loader.close()
        self.assertRaises(brim.ClosedError, iter, loader)

    def test_ranks(self) -> None:
        given = []
        for rank in range(2):
            given += [int(n) for _, y in self.open(rank=rank, world=2) for n in y]
        self.assertEqual(sorted(given), list(range(COUNT)))

    # ---------------------------------------------------------------------------- memory

    def assert_lent(self, loader, count: int) -> None:
        """JAX has so many slots, in the end. It lets go of Python's objects when it is called
        again after its threads are done."""
        deadline = time.monotonic() + 60
        while True:
            gc.collect()
            jax.device_put(numpy.zeros(1)).block_until_ready()
            if loader.stats()["lent"] == count or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        self.assertEqual(loader.stats()["lent"], count)

    def test_a_jitted_loop_gets_no_copies(self) -> None:
        loader = self.open(self.images())
        step = jax.jit(lambda total, x, y: total + x.mean() + y.sum())
        total = 0.0
        # however late JAX's threads are on a busy machine
        with unittest.mock.patch("brim._adapters.MOMENT", 60.0), warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(3):
                for x, y in loader:
                    total = step(total, x, y)
        self.assertAlmostEqual(float(total), 3 * (19900 + 995), delta=1)
        self.assertEqual(loader.stats()["copies"], 0)

    def test_one_that_keeps_all_is_not_waited_for_again(self) -> None:
        loader = self.open(self.images(), fields="x")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", brim.HoldWarning)
            kept = list(loader)
        self.assertEqual(len(kept), 10)
        self.assertFalse(loader._source.patient)
        del kept
        self.assert_lent(loader, 0)
        next(iter(loader))
        self.assertTrue(loader._source.patient)

    def test_arrays_lie_in_the_batch(self) -> None:
        loader = self.open(self.images(), fields="x")
        ((x,), own) = (next(iter(loader)), loader._core)
        self.assert_lent(loader, 1)
        loader.close()
        self.assertTrue(own.closed)
        self.assertEqual(len(numpy.unique(numpy.asarray(x[:, 5, 5, 1]))), 20)  # still there

    def test_a_slot_waits_for_what_was_dispatched(self) -> None:
        loader = self.open(self.images())
        work = jax.jit(lambda x: jnp.sin(jnp.cos(x)).sum((1, 2, 3)) * 0 + x[:, 0, 0, 0])
        for _ in range(3):
            # JAX runs ahead of its computations; a slot that went back too early would be
            # overwritten with another batch
            results = [(work(x), y) for x, y in loader]
            for found, y in results:
                self.assertEqual(found.tolist(), y[:, 0].tolist())
        self.assert_lent(loader, 0)

    def test_what_is_kept_stays(self) -> None:
        loader = self.open(self.images())
        with self.assertWarnsRegex(brim.HoldWarning, "hold=10 "):
            kept = list(loader)
        given = [int(n) for x, _ in kept for n in x[:, 3, 3, 1]]
        self.assertEqual(given, self.order(self.images(), 0))
        self.assertEqual(loader.stats()["copies"], 7)
        self.assert_lent(loader, 3)
        del kept
        self.assert_lent(loader, 0)

    def test_kept_beyond_the_budget(self) -> None:
        """What is kept is counted; when nothing more fits, and nothing goes, that is said."""
        with brim.Runtime("8MiB", threads=1) as runtime:
            loader = brim.jax.loader(self.images(), runtime=runtime)
            kept = []
            with (
                unittest.mock.patch("brim._adapters.PATIENCE", 0.1),
                self.assertRaisesRegex(brim.BudgetError, "are held"),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")
                for batch in loader:
                    kept.append(batch)
            found = [int(n) for x, _ in kept for n in x[:, 0, 0, 0]]
            kept.clear()
            del batch
            gc.collect()
            while (batch := loader._source.take(loader._core.next)) is not None:
                found += [int(n) for n in batch["x"][:, 0, 0, 0]]
            self.assertEqual(found, self.order(self.images(), 0))
            self.assertLessEqual(runtime.usage()["peak"], 8 << 20)
            del batch
            loader.close()

    def test_donated(self) -> None:
        loader = self.open(self.images())
        work = jax.jit(lambda x: x + 1, donate_argnums=0)
        for x, y in loader:
            self.assertEqual(work(x)[:, 0, 0, 0].tolist(), (y[:, 0] + 1).tolist())

    def test_memory_stays_flat(self) -> None:
        loader = self.open(self.images())
        work = jax.jit(lambda total, x: total + x[:, 0, 0, 0].sum())

        def rss() -> int:
            gc.collect()
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096

        def run(epochs: int) -> int:
            for _ in range(epochs):
                total = jnp.zeros(())
                for x, _ in loader:
                    total = work(total, x)
                self.assertEqual(float(total), COUNT * (COUNT - 1) / 2)
            return rss()

        before = run(5)
        self.assertLess(run(30) - before, 24 * support.MIB)  # an epoch has 10 MiB
        usage = self.runtime.usage()
        self.assertLessEqual(usage["peak"], usage["limit"])

    # --------------------------------------------------------------------------- devices

    def test_one_device(self) -> None:
        device = jax.devices()[2]
        for x, _ in self.open(sharding=device):
            self.assertEqual(x.devices(), {device})

    def test_over_devices(self) -> None:
        mesh = Mesh(numpy.array(jax.devices()), ("rows",))
        rows = NamedSharding(mesh, PartitionSpec("rows"))
        everywhere = NamedSharding(mesh, PartitionSpec())
        loader = self.open(self.images(), sharding=rows)
        given = []
        for x, y in loader:
            self.assertEqual([s.data.shape for s in x.addressable_shards], [(5, 64, 64, 3)] * 4)
            self.assertTrue(bool((x == y[:, :, None, None]).all()))
            given += y[:, 0].astype(int).tolist()
            del x, y
        self.assertEqual(given, self.order(self.images(), 0))
        self.assert_lent(loader, 0)
        for x, y in self.open(self.images(), sharding={"x": rows, "y": everywhere}):
            self.assertEqual((x.sharding, y.sharding), (rows, everywhere))
        with self.assertRaisesRegex(brim.PipelineError, "field 'x'"):
            self.open(brim.arrays(x=COLUMN).batch(10), sharding=rows)  # 10 rows on 4 devices
        uneven = brim.arrays(x=COLUMN).batch(16, remainder="pad")
        with self.assertRaisesRegex(brim.PipelineError, 'remainder="drop"'):
            self.open(uneven, sharding=rows)
        shapes = {x.shape for x, _ in self.open(uneven, fields=("x", "valid"), sharding=rows)}
        self.assertEqual(shapes, {(16, 1)})

    # -------------------------------------------------------------------------- learning

    def test_learns_mnist(self) -> None:
        digits = support.mnist(self)
        data = digits.split("train", validation=0.2).shuffle(seed=2).batch(50)
        train = self.open(data, fields=("image", "label", "ids"))
        valid = self.open(digits.split("validation", validation=0.2).batch(250))

        def scores(parameters, x):
            hidden = jax.nn.relu(x.reshape(len(x), -1) @ parameters["in"] + parameters["bias"])
            return hidden @ parameters["out"]

        def loss(parameters, x, y):
            picked = jnp.take_along_axis(jax.nn.log_softmax(scores(parameters, x)), y[:, None], 1)
            return -picked.mean()

        @jax.jit
        def step(parameters, moments, x, y):
            gradients = jax.grad(loss)(parameters, x, y.astype(jnp.int32))
            moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
            return jax.tree.map(lambda p, m: p - 0.03 * m, parameters, moments), moments

        keys = jax.random.split(jax.random.key(1))
        parameters = {
            "in": 0.05 * jax.random.normal(keys[0], (784, 64)),
            "bias": jnp.zeros(64),
            "out": 0.1 * jax.random.normal(keys[1], (64, 10)),
        }
        moments = jax.tree.map(jnp.zeros_like, parameters)
        with self.runtime.open(data) as core:
            numbers = sorted(number for batch in core for number in batch.ids.tolist())
        self.assertEqual(len(set(numbers)), len(data))
        for epoch in train.epochs(2):
            seen: list[int] = []
            for x, y, ids in epoch:
                parameters, moments = step(parameters, moments, x, y)
                seen += ids.tolist()
            self.assertEqual(sorted(seen), numbers)
        right = rows = 0
        for x, y in valid:
            right += int((scores(parameters, x).argmax(1) == y).sum())
            rows += len(y)
        self.assertEqual(rows, len(digits) - len(numbers))
        self.assertGreaterEqual(right / rows, 0.9)

    def test_example_learns(self) -> None:
        example = support.ROOT / "examples" / "python" / "train_jax.py"
        done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"epoch 5: (9[0-9]|100)% right")
        self.assertIn("over 4 devices", done.stdout)

    # ------------------------------------------------------------- plans, and going on

    def take(self, data, **options) -> int:
        with brim.jax.loader(data, **options) as loader:
            return sum(1 for _ in loader)

    def test_what_fits_opens(self) -> None:
        plans.check(self, brim.jax.plan, self.take, self.folder)

    def test_the_next_loop_goes_on(self) -> None:
        trouble = support.Trouble(40, 9)
        loader = self.open(trouble.data.batch(4), threads=0)
        found: list[int] = []
        for _ in range(2):
            with self.assertRaisesRegex(brim.FunctionError, "same batch"):
                for (x,) in loader:
                    found += [int(n) for n in x[:, 0]]
            self.assertEqual(found, list(range(8)))
        trouble.on = False
        for (x,) in loader:
            found += [int(n) for n in x[:, 0]]
        self.assertEqual(found, list(range(40)))
        self.assertEqual(len(list(loader)), 10)


if __name__ == "__main__":
    support.main()
