"""Iterating: epochs, peeking, states, holding batches, charged copies."""

# sanitizers: yes

from __future__ import annotations

import contextlib
import pathlib
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable

import brim
import support

TEXT = "range 1000 | shuffle seed=7 | batch 64"  # 16 batches, the last with 40 rows


def ids(batches) -> list[int]:
    """The samples' numbers of all batches, one behind the other."""
    found: list[int] = []
    for batch in batches:
        found += batch.ids.tolist()
    return found


class Loader(support.Case):
    def setUp(self) -> None:
        super().setUp()
        self.runtime = brim.Runtime(memory="64MiB", threads=2, index_dir=self.folder)
        self.addCleanup(self.runtime.close)

    def open(self, text: str = TEXT, **options) -> brim.Loader:
        loader = self.runtime.open(text, **options)
        self.addCleanup(loader.close)
        return loader

    def epoch(self, number: int, text: str = TEXT) -> list[int]:
        """What an epoch holds, by a loader that did nothing else."""
        with self.runtime.open(text) as loader:
            loader.set_epoch(number)
            return ids(loader)


class EmptyBatches(Loader):
    """All samples of step 1 are bad: their class does not exist."""

    TEXT = (
        "concat (range 64 name=y | skip 40 | take 16) (range 16 name=y) | one_hot 48"
        " | batch 8 on_error=skip"
    )

    def test_one_rank_passes_over_them(self) -> None:
        for threads in (0, 2):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                loader = self.open(self.TEXT, threads=threads)
                seen = [(batch.step, batch.valid_rows, batch.skipped) for batch in loader]
            self.assertEqual(seen, [(0, 8, 0), (2, 8, 0), (3, 8, 0)])
            stats = loader.stats()
            self.assertEqual((stats["skipped"], stats["empty"], stats["batches"]), (8, 1, 3))
            self.assertEqual(stats["warning"], "")

    def test_states_around_them(self) -> None:
        loader = self.open(self.TEXT)
        batches = [(batch.ids.tolist(), batch.state) for batch in loader]
        for number, (_, state) in enumerate(batches[:-1]):
            loader.load_state_dict(state)
            self.assertEqual([batch.ids.tolist() for batch in loader],
                             [rows for rows, _ in batches[number + 1 :]])  # fmt: skip

    def test_several_ranks_have_them(self) -> None:
        text = self.TEXT.replace("batch 8", "batch 16 per=global")
        loader = self.open(text, rank=1, world=2)
        with self.assertWarnsRegex(brim.EmptyBatchWarning, "on_error=replace") as caught:
            seen = [(batch.step, batch.rows, batch.skipped) for batch in loader]
        self.assertEqual(seen, [(0, 0, 8), (1, 8, 0)])
        self.assertEqual(len(caught.warnings), 1)
        self.assertIn("on_error=replace", loader.stats()["warning"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # once
            self.assertEqual([batch.rows for batch in loader], [0, 8])

    def test_a_warning_that_is_an_exception_loses_no_batch(self) -> None:
        text = self.TEXT.replace("batch 8", "batch 16 per=global")
        loader = self.open(text, rank=1, world=2)
        batches = iter(loader)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaises(brim.EmptyBatchWarning):
                next(batches)
        self.assertEqual([batch.rows for batch in batches], [0, 8])
        # nor does a loop that it ends in the middle of an epoch
        text = "range 64 name=y | one_hot 48 | batch 16 per=global on_error=skip"
        loader = self.open(text, rank=1, world=2)
        seen = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaises(brim.EmptyBatchWarning):
                for batch in loader:
                    seen.append((batch.epoch, batch.step, batch.rows))
            for batch in loader:
                seen.append((batch.epoch, batch.step, batch.rows))
        self.assertEqual(seen, [(0, 0, 8), (0, 1, 8), (0, 2, 8), (0, 3, 0)])

    def test_an_epoch_of_nothing_else(self) -> None:
        loader = self.open("range 64 name=y | skip 50 | one_hot 48 | batch 4 on_error=skip")
        self.assertEqual(len(loader), 4)
        with self.assertWarnsRegex(brim.EmptyBatchWarning, "all samples of epoch 0 were bad"):
            self.assertEqual(list(loader), [])
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # once
            for _ in range(2):
                self.assertEqual(list(loader), [])
        self.assertEqual(loader.stats()["skipped"], 42)


class Epochs(Loader):
    def test_every_sample_once(self) -> None:
        loader = self.open()
        self.assertEqual(len(loader), 16)
        first, second = ids(loader), ids(loader)
        self.assertEqual(sorted(first), list(range(1000)))
        self.assertEqual(sorted(second), list(range(1000)))
        self.assertNotEqual(first, second)
        self.assertEqual(first, self.epoch(0))
        self.assertEqual(second, self.epoch(1))

    def test_epochs_are_numbered(self) -> None:
        loader = self.open()
        seen = []
        for epoch in loader.epochs(3):
            self.assertEqual(len(epoch), 16)
            seen.append((epoch.number, ids(epoch)))
        self.assertEqual(seen, [(n, self.epoch(n)) for n in range(3)])
        self.assertEqual([e.number for e in loader.epochs(0)], [])
        self.assertEqual(next(loader.epochs()).number, 3)
        with self.assertRaises(ValueError):
            loader.epochs(-1)

    def test_epochs_go_on_after_a_break(self) -> None:
        for taken in (0, 1, 5):
            loader = self.open()
            numbers = []
            for epoch in loader.epochs(3):
                numbers.append(epoch.number)
                for step, _ in enumerate(epoch, 1):
                    if step >= taken:
                        break
            self.assertEqual(numbers, [0, 1, 2], taken)

    def test_a_look_costs_no_epoch(self) -> None:
        loader = self.open()
        look = next(iter(loader)).ids.tolist()
        self.assertEqual(next(iter(loader)).ids.tolist(), look)
        self.assertEqual(loader.epoch, 0)
        self.assertEqual(ids(loader), self.epoch(0))
        look = next(iter(loader)).ids.tolist()
        self.assertEqual(ids(loader), self.epoch(1))
        self.assertEqual(look, self.epoch(1)[:64])

    def test_two_batches_are_an_epoch(self) -> None:
        loader = self.open()
        iterator = iter(loader)
        next(iterator)
        next(iterator)
        self.assertEqual(ids(loader), self.epoch(1))

    def test_an_epoch_of_one_batch(self) -> None:
        text = "range 10 | shuffle seed=3 | batch 16"
        loader = self.open(text)
        self.assertEqual([ids(loader) for _ in range(3)], [self.epoch(n, text) for n in range(3)])

    def test_a_new_iterator_ends_the_old_one(self) -> None:
        loader = self.open()
        old = iter(loader)
        next(old)
        new = iter(loader)
        next(new)
        with self.assertRaisesRegex(brim.IterationError, "newer iterator"):
            next(old)
        next(new)

    def test_an_ended_iterator_stays_ended(self) -> None:
        loader = self.open()
        iterator = iter(loader)
        for _ in iterator:
            pass
        for _ in range(3):
            self.assertRaises(StopIteration, next, iterator)

    def test_set_epoch(self) -> None:
        loader = self.open()
        loader.set_epoch(5)
        self.assertEqual(loader.epoch, 5)
        self.assertEqual(ids(loader), self.epoch(5))
        self.assertEqual(ids(loader), self.epoch(6))
        loader.set_epoch(2)
        self.assertEqual(ids(loader), self.epoch(2))
        for refused in (-1, "x"):
            with self.assertRaises((TypeError, OverflowError)):
                loader.set_epoch(refused)

    def test_next_by_hand(self) -> None:
        loader = self.open()
        found = []
        while (batch := loader.next()) is not None:
            found += batch.ids.tolist()
        self.assertEqual(found, self.epoch(0))
        self.assertEqual(loader.next(timeout=10).epoch, 1)
        with self.assertRaises(ValueError):
            loader.next(timeout=-1)

    def test_next_by_hand_and_iterators(self) -> None:
        loader = self.open()
        for _ in range(3):
            loader.next()
        self.assertEqual(ids(loader), self.epoch(1))
        self.assertEqual(ids(iter(loader.next, None)), self.epoch(2))
        loader.next()
        self.assertEqual(ids(loader), self.epoch(3))

    def test_set_epoch_in_every_epoch_keeps_what_was_made(self) -> None:
        loader = self.open(threads=0)
        for number in range(3):
            loader.set_epoch(number)
            self.assertEqual(ids(loader), self.epoch(number))
        self.assertEqual(loader.stats()["samples"], 3000)

    def test_unknown_length(self) -> None:
        loader = self.open("range 100 | filter index>50 | batch 8")
        with self.assertRaises(TypeError):
            len(loader)
        self.assertEqual(len(ids(loader)), 49)
        self.assertEqual(len(ids(loader)), 49)

    def test_micro_batches(self) -> None:
        loader = self.open("range 64 | batch 32 micro=8")
        seen = []
        for batch in loader:
            seen.append((batch.step, batch.micro, batch.micro_count, batch.rows))
        self.assertEqual(seen, [(s, m, 4, 8) for s in range(2) for m in range(4)])

    def test_padded_rows(self) -> None:
        loader = self.open("range 10 | batch 8 remainder=pad")
        self.assertEqual(ids(loader), [*range(10), *[-1] * 6])
        *_, last = [(b.valid.tolist(), b.rows, b.valid_rows, b.names[2]) for b in loader]
        self.assertEqual(last, ([True, True] + [False] * 6, 8, 2, None))


class Failing(Loader):
    """An epoch that an error ended goes on: the error has left it unfinished, and `for` has lost
    its iterator."""

    def collect(self, loader, found: list[tuple[int, int]]) -> None:
        for batch in loader:
            found.append((batch.epoch, batch.step))

    def test_the_next_loop_goes_on(self) -> None:
        for bad in (0, 1, 2, 9, 39):  # in batch 0, 0, 0, 2 and 9
            for made in (lambda data: data, lambda data: data.filter("x >= 0")):
                trouble = support.Trouble(40, bad)
                loader = self.open(made(trouble.data).batch(4), threads=0)
                found: list[tuple[int, int]] = []
                for _ in range(3):  # the same error each time, and nothing is lost by trying
                    with self.assertRaisesRegex(brim.FunctionError, r"same batch.*on_error=.skip"):
                        self.collect(loader, found)
                    self.assertEqual(found, [(0, step) for step in range(bad // 4)])
                    self.assertEqual(loader.epoch, 0)
                trouble.on = False
                self.collect(loader, found)
                self.collect(loader, found)
                self.assertEqual(found, [(e, step) for e in range(2) for step in range(10)])

    def test_past_it(self) -> None:
        trouble = support.Trouble(40, 9)
        loader = self.open(trouble.data.batch(4), threads=0)
        found: list[tuple[int, int]] = []
        with self.assertRaises(brim.FunctionError):
            self.collect(loader, found)
        loader.seek(0, 3)
        self.collect(loader, found)
        self.assertEqual(found, [(0, step) for step in range(10) if step != 2])
        found.clear()
        with self.assertRaises(brim.FunctionError):
            self.collect(loader, found)
        loader.set_epoch(2)
        with self.assertRaises(brim.FunctionError):
            self.collect(loader, found)
        self.assertEqual(found, [(1, 0), (1, 1), (2, 0), (2, 1)])

    def test_past_it_by_skipping(self) -> None:
        loader = self.open(support.Trouble(40, 9).data.batch(4, on_error="skip"))
        found: list[tuple[int, int]] = []
        self.collect(loader, found)
        self.assertEqual(len(found), 10)

    def test_set_epoch_begins_it_again(self) -> None:
        trouble = support.Trouble(40, 9)
        loader = self.open(trouble.data.batch(4), threads=0)
        with self.assertRaises(brim.FunctionError):
            self.collect(loader, [])
        trouble.on = False
        loader.set_epoch(0)
        found: list[tuple[int, int]] = []
        self.collect(loader, found)
        self.assertEqual(found, [(0, step) for step in range(10)])

    def test_epochs(self) -> None:
        """The rest of an epoch is no further one, unless there was no progress: a loop that catches
        an error that stays comes to its end."""
        trouble = support.Trouble(40, 9)
        loader = self.open(trouble.data.batch(4), threads=0)
        found: list[tuple[int, int]] = []
        numbers = []
        for epoch in loader.epochs(3):
            numbers.append(epoch.number)
            with self.assertRaises(brim.FunctionError):
                self.collect(epoch, found)
        self.assertEqual((numbers, found), ([0, 0, 0, 0], [(0, 0), (0, 1)]))
        numbers.clear()
        for epoch in loader.epochs(3):
            numbers.append(epoch.number)
            with contextlib.suppress(brim.FunctionError):
                self.collect(epoch, found)
            trouble.on = False
            self.collect(epoch, found)  # the same iterator goes on, or is at its end
            trouble.on = epoch.number == 0
        self.assertEqual(numbers, [0, 1, 2])
        self.assertEqual(found, [(e, step) for e in range(3) for step in range(10)])

    def test_states(self) -> None:
        """A state taken after an error, or after the loop that went on, has all that follows."""
        trouble = support.Trouble(40, 9)
        data = trouble.data.batch(4)
        loader = self.open(data, threads=0)
        with self.assertRaises(brim.FunctionError):
            self.collect(loader, [])
        states = [loader.state_dict()]
        trouble.on = False
        iterator = iter(loader)
        states.append(loader.state_dict())
        next(iterator)
        iterator = iter(loader)  # a look is begun again where it began
        states.append(loader.state_dict())
        for state in states:
            other = self.open(data)
            other.load_state_dict(state)
            self.assertEqual(ids(other), list(range(8, 40)))
        self.assertEqual(ids(iterator), list(range(8, 40)))

    def test_refused_copies(self) -> None:
        """A copy that the budget refuses comes with the next loop, and states leave it out."""
        loader = self.open(copies=True, hold=1)
        expected = self.epoch(0) + self.epoch(1)
        kept: list[brim.Batch] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            iterator = iter(loader)
            for _ in range(5):
                kept.append(next(iterator))
            filler = self.fill()
            kept.append(next(iterator))  # in the slot that copies are made from
            self.assertEqual([batch.is_copy for batch in kept], [False] + [True] * 4 + [False])
            for _ in range(2):
                with self.assertRaisesRegex(
                    brim.HeldError, "step 0, epoch 0 step 5.* no batch is lost"
                ):
                    next(iterator)
                iterator = iter(loader)
            found = ids(kept)
            state = loader.state_dict()
            self.runtime.uncharge(filler)
            kept.clear()
            for _ in range(2):
                for batch in loader:
                    found += batch.ids.tolist()
        self.assertEqual(found, expected)
        other = self.open()
        other.load_state_dict(state)
        self.assertEqual(ids(other), expected[6 * 64 : 1000])

    def fill(self) -> int:
        """Charges all that is left."""
        charged = 0
        step = 64 * support.MIB
        while step > 0:
            try:
                self.runtime.charge(step)
                charged += step
            except brim.BudgetError:
                step //= 2
        return charged

    def test_what_is_held(self) -> None:
        loader = self.open()
        with self.assertRaises(brim.HeldError):
            list(loader)
        self.assertEqual(ids(loader), self.epoch(0)[128:])
        self.assertEqual(ids(loader), self.epoch(1))

    def test_an_interrupt_counts_as_break(self) -> None:
        """Where Ctrl-C comes is chance: in the loop's body or in next(), it leaves the epoch."""
        loader = self.open("range 1000 | batch 64")

        def press(*_) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, press)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        signal.raise_signal(signal.SIGALRM)
        with self.assertRaises(KeyboardInterrupt):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
            next(iterator)
        self.assertEqual(next(iter(loader)).epoch, 1)


class States(Loader):
    def test_a_state_counts_what_was_delivered(self) -> None:
        whole = self.epoch(0)
        for taken in (0, 1, 2, 7, 15):
            loader, other = self.open(), self.open()
            iterator = iter(loader)
            for _ in range(taken):
                next(iterator)
            other.load_state_dict(loader.state_dict())
            self.assertEqual(ids(other), whole[taken * 64 :], taken)
            self.assertEqual(ids(other), self.epoch(1))

    def test_after_the_last_batch_comes_the_next_epoch(self) -> None:
        loader, other = self.open(), self.open()
        for batch in loader:
            state = batch.state
        for state in (state, loader.state_dict()):
            other.load_state_dict(state)
            self.assertEqual(other.epoch, 1)
            self.assertEqual(ids(other), self.epoch(1))
            other.load_state_dict(state)
            self.assertEqual(next(other.epochs()).number, 1)

    def test_the_state_of_a_batch(self) -> None:
        loader = self.open()
        states = []
        for batch in loader:
            states.append(batch.state)
        whole = self.epoch(0)
        other = self.open()
        for number in (0, 3, 14):
            other.load_state_dict(states[number])
            self.assertEqual(ids(other), whole[(number + 1) * 64 :])

    def test_a_look_after_a_resume(self) -> None:
        loader = self.open()
        loader.load_state_dict(self.state_after(3))
        next(iter(loader))
        self.assertEqual(ids(loader), self.epoch(0)[3 * 64 :])

    def state_after(self, batches: int) -> dict:
        with self.runtime.open(TEXT) as loader:
            iterator = iter(loader)
            for _ in range(batches):
                state = next(iterator).state
        return state

    def test_a_break_after_a_resume(self) -> None:
        loader = self.open()
        loader.load_state_dict(self.state_after(3))
        iterator = iter(loader)
        next(iterator), next(iterator)
        self.assertEqual(ids(loader), self.epoch(1))

    def test_set_epoch_after_a_resume(self) -> None:
        loader = self.open()
        loader.load_state_dict(self.state_after(3))
        loader.set_epoch(0)
        self.assertEqual(ids(loader), self.epoch(0)[3 * 64 :])
        loader.load_state_dict(self.state_after(3))
        loader.set_epoch(2)
        self.assertEqual(ids(loader), self.epoch(2))

    def test_epochs_of_a_filter(self) -> None:
        text = "range 100 | shuffle seed=1 | filter index>50 | batch 8"
        loader = self.open(text)
        iterator = iter(loader)
        next(iterator), next(iterator)
        self.assertEqual(loader.epoch, 0)
        self.assertEqual(ids(loader), self.epoch(1, text))
        self.assertEqual(loader.epoch, 2)
        for batch in loader:
            state = batch.state
        other = self.open(text)
        other.load_state_dict(state)
        self.assertEqual(ids(other), self.epoch(3, text))

    def test_under_another_world(self) -> None:
        text = "range 1000 | shuffle seed=7 | batch 64 per=global"
        with self.runtime.open(text) as loader:
            iterator = iter(loader)
            for _ in range(5):
                state = next(iterator).state
        rest = []
        for rank in range(2):
            with self.runtime.open(text, rank=rank, world=2) as loader:
                loader.load_state_dict(state)
                rest += ids(loader)
        self.assertEqual(sorted(rest), sorted(self.epoch(0)[5 * 64 : 15 * 64 + 40]))

    def test_wrong_states(self) -> None:
        loader = self.open()
        other = self.open("range 999 | shuffle seed=7 | batch 64")
        with self.assertRaises(brim.StateError):
            other.load_state_dict(loader.state_dict())
        for wrong in ({}, {"state": 3}, {"state": "ab"}, {"state": "x" * 256}, None, 7):
            with self.assertRaises(brim.StateError):
                loader.load_state_dict(wrong)
        self.assertEqual(ids(loader), self.epoch(0))

    def test_seek(self) -> None:
        loader = self.open()
        loader.seek(2, 4)
        self.assertEqual(ids(loader), self.epoch(2)[4 * 64 :])
        self.assertEqual(ids(loader), self.epoch(3))
        with self.assertRaises(brim.Error):
            loader.seek(0, 1000)


class Holding(Loader):
    def test_a_list_of_batches_is_refused_and_named(self) -> None:
        for hold in (1, 2, 5):
            loader = self.open(hold=hold)
            kept = []
            with self.assertRaises(brim.BudgetError) as caught:
                for batch in loader:
                    kept.append(batch)
            self.assertIsInstance(caught.exception, brim.HeldError)
            self.assertIsInstance(caught.exception, MemoryError)
            self.assertEqual(len(kept), hold)
            for step in range(hold):
                self.assertIn(f"epoch 0 step {step}", str(caught.exception))
            found = ids(kept)
            kept.clear()
            del batch
            while (batch := loader.next()) is not None:
                found += batch.ids.tolist()
                del batch
            self.assertEqual(found, self.epoch(0))

    def test_a_view_keeps_its_slot(self) -> None:
        loader = self.open(hold=1)
        view = memoryview(next(iter(loader))["index"])
        values = view.tolist()
        with self.assertRaises(brim.HeldError):
            loader.next()
        self.assertEqual(view.tolist(), values)
        view.release()
        self.assertEqual(loader.next().step, 1)

    def test_release(self) -> None:
        loader = self.open(hold=1)
        batch = loader.next()
        field = batch["index"]
        with self.assertRaises(BufferError):
            batch.release()
        del field
        batch.release()
        batch.release()
        with self.assertRaises(brim.ClosedError):
            batch["index"]
        self.assertEqual(loader.next().step, 1)

    def test_release_through_a_bound_method(self) -> None:
        loader = self.open(hold=1)
        batch = loader.next()
        release, view = batch.release, memoryview(batch["index"])
        del batch
        with self.assertRaises(BufferError):
            release()
        view.release()
        batches = [loader] * 3
        release()
        self.assertEqual(len(batches), 3)
        self.assertEqual(loader.next().step, 1)

    def test_a_batch_in_a_list_can_be_released(self) -> None:
        loader = self.open(hold=1)
        kept = [loader.next()]
        kept[0].release()
        self.assertEqual(loader.next().step, 1)

    def test_the_error_names_forgotten_variables(self) -> None:
        loader = self.open()
        for batch in loader:
            pass
        with self.assertRaisesRegex(brim.HeldError, "earlier loop"):
            sum(other.rows for other in loader)
        del batch

    def test_copies(self) -> None:
        loader = self.open()
        kept = [batch.copy() for batch in iter(loader.next, None)]
        self.assertEqual(ids(kept), self.epoch(0))
        self.assertTrue(all(batch.is_copy for batch in kept))

    def test_charged_copies_and_one_warning(self) -> None:
        loader = self.open(hold=2, copies=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            kept = list(loader)
        self.assertEqual([w.category for w in caught], [brim.HoldWarning])
        self.assertIn("hold=16 would avoid", str(caught[0].message))
        self.assertEqual([b.is_copy for b in kept], [False] * 2 + [True] * 14)
        self.assertEqual(ids(kept), self.epoch(0))
        self.assertEqual(loader.stats()["copies"], 14)

    def test_no_copies_within_hold(self) -> None:
        loader = self.open(hold=3, copies=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                before = None
                for batch in loader:
                    self.assertFalse(batch.is_copy)
                    before = batch  # noqa: F841: kept on purpose

    def test_copies_end_with_the_budget(self) -> None:
        text = "range 1000 | map @wide | batch 64"
        import numpy

        def wide(sample):
            return {"wide": numpy.full(4096, sample["index"], dtype=numpy.int64)}

        data = brim.range(1000).map(wide, out={"wide": ("int64", (4096,))}).batch(64)
        with brim.Runtime(memory="24MiB", threads=1) as runtime:
            with runtime.open(data, hold=2, copies=True) as loader, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kept, found = [], []
                for _ in range(20):
                    try:
                        for batch in iter(loader.next, None):
                            kept.append(batch)
                        break
                    except brim.BudgetError as error:
                        self.assertIn("are held", str(error))
                        self.assertGreater(len(kept), 2)
                        state = loader.state_dict()
                        found += ids(kept)
                        kept.clear()
                        del batch
                        with runtime.open(data) as other:
                            other.load_state_dict(state)
                            rest = ids(other)
                        self.assertEqual(rest, list(range(1000))[len(found) :])
                found += ids(kept)
                usage = runtime.usage()
        self.assertEqual(found, list(range(1000)), text)
        self.assertLessEqual(usage["peak"], usage["limit"])

    def warned(self, act: Callable[[], object]) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            act()
        return [str(warning.message) for warning in caught]

    def test_the_warning_waits_until_something_is_let_go(self) -> None:
        loader = self.open(hold=2, copies=True)
        kept = []
        self.assertEqual(self.warned(lambda: kept.extend(loader.next() for _ in range(5))), [])
        own = kept[0].copy()  # the program's own is no reason for a larger hold
        del kept[3]
        (text,) = self.warned(lambda: kept.append(loader.next()))
        self.assertIn("5 batches are held at a time, but hold=2", text)
        self.assertIn("hold=5 would avoid", text)
        kept.clear()
        self.assertEqual(self.warned(lambda: kept.extend(iter(loader.next, None))), [])
        self.assertEqual(loader.stats()["lent"], 2)
        del own

    def test_the_warning_comes_with_a_new_epoch_at_last(self) -> None:
        loader = self.open(hold=1, copies=True)
        iterator = iter(loader)
        self.assertEqual(self.warned(lambda: [next(iterator) for _ in range(3)]), [])
        (text,) = self.warned(lambda: next(iter(loader)))
        self.assertIn("hold=3 would avoid", text)

    def test_a_warning_as_an_error_loses_nothing(self) -> None:
        loader = self.open(hold=1, copies=True)
        found = ids([loader.next(), loader.next()])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaises(brim.HoldWarning):
                loader.next()
            found += ids(iter(loader.next, None))
        self.assertEqual(found, self.epoch(0))
        loader = self.open(hold=1, copies=True)
        iterator, kept = iter(loader), []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaises(brim.HoldWarning):
                kept.extend(iterator)
            self.assertEqual(ids(kept), self.epoch(0))
            self.assertEqual(list(iterator), [])
        kept.clear()
        self.assertEqual(ids(list(loader.next() for _ in range(16))), self.epoch(1))


class Waiting(Loader):
    def setUp(self) -> None:
        super().setUp()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def open(self, *arguments, **options) -> brim.Loader:
        loader = super().open(*arguments, **options)
        self.addCleanup(self.go_on.set)  # before it is closed
        return loader

    def held(self) -> brim.Pipeline:
        """Samples that are not there before they may go on."""

        def hold(sample):
            self.begun.set()
            self.go_on.wait(60)
            return sample

        return brim.range(100).map(hold, out={"index": ("int64", ())}).batch(4)

    def open_held(self, threads: int = 1) -> brim.Loader:
        """A worker has begun a sample, so that next() does not make it itself."""
        loader = self.open(self.held(), threads=threads)
        self.assertTrue(threads == 0 or self.begun.wait(60))
        return loader

    def meanwhile(self, act: Callable[..., object], *arguments: object) -> threading.Thread:
        """Acts once a sample has begun."""

        def wait() -> None:
            self.begun.wait(60)
            act(*arguments)

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    def test_timeout(self) -> None:
        loader = self.open_held()
        with self.assertRaises(TimeoutError):
            loader.next(timeout=0.03)
        self.go_on.set()
        self.assertEqual(loader.next().step, 0)

    def test_interrupt_from_another_thread(self) -> None:
        loader = self.open_held()
        thread = self.meanwhile(loader.interrupt)
        with self.assertRaises(brim.Error):
            loader.next()
        thread.join()

    def test_control_c(self) -> None:
        for threads in (0, 1):
            self.begun.clear()
            self.go_on.clear()
            loader = self.open_held(threads)
            with self.assertRaises(KeyboardInterrupt):
                thread = self.meanwhile(signal.pthread_kill, threading.get_ident(), signal.SIGINT)
                for _ in loader:
                    pass
            thread.join()
            self.go_on.set()

    def test_control_c_while_an_image_is_decoded(self) -> None:
        """The thread that decodes is the one that gets the signal, and the image takes seconds."""

        def segment(marker: int, data: bytes) -> bytes:
            return b"\xff" + bytes([marker]) + (len(data) + 2).to_bytes(2, "big") + data

        empty = segment(0xDA, b"\1\1\0\1\x3f\x10") + bytes(30)
        slow = (b"\xff\xd8" + segment(0xDB, b"\0" + b"\1" * 64) +
                segment(0xC2, b"\x08\x0f\xa0\x0f\xa0\1\1\x11\0") +
                segment(0xC4, b"\0\1" + bytes(16)) +
                segment(0xC4, b"\x10\1" + bytes(15) + b"\xe0") + segment(0xDA, b"\1\1\0\0\0\0") +
                bytes(31250) + empty * 999 + b"\xff\xd9")
        with tempfile.TemporaryDirectory() as place:
            path = pathlib.Path(place) / "slow.jpg"
            path.write_bytes(slow)
            (path.parent / "slow.csv").write_text(f"path\n{path}\n")
            text = (f'files "{path.parent / "slow.csv"}" probe=yes index=beside | decode '
                    "max_pixels=4000000000 | resize 8 8 | batch 1")
            for threads in (0, 1):
                with self.runtime.open(text, threads=threads) as loader:
                    sent = []  # of the processor: it does not matter what else the machine does

                    def send(sent: list[float] = sent) -> None:
                        sent.append(time.process_time())
                        signal.raise_signal(signal.SIGINT)

                    timer = threading.Timer(0.3, send)
                    with self.assertRaises(KeyboardInterrupt):
                        timer.start()
                        loader.next()
                    ended = time.process_time()
                    timer.join()
                    self.assertLess(ended - sent[0], 1.2)

    def test_a_signal_at_the_end_of_an_epoch(self) -> None:
        """The end is said by the next call."""

        inside = False

        def interrupt(*_: object) -> None:
            if inside:
                raise RuntimeError("signal")

        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)  # first
        loader = self.open("range 20 | batch 10")
        for number in range(200):
            iterator, epochs = iter(loader), []
            signal.setitimer(signal.ITIMER_REAL, 1e-6 * (number + 1))
            while True:
                try:
                    inside = True
                    epochs.append(next(iterator).epoch)
                    inside = False
                except StopIteration:
                    inside = False
                    break
                except RuntimeError:  # perhaps with a batch in hand, which is then lost
                    inside = False
            self.assertLessEqual(set(epochs), {number})

    def test_numbers_that_do_not_fit(self) -> None:
        for wrong in ({"hold": 2**32}, {"hold": 0}, {"rank": 2**32}, {"world": 2**32 + 2}):
            with self.assertRaises((OverflowError, ValueError)):
                self.runtime._core.open(TEXT, **wrong)
        with self.assertRaises(RuntimeError):
            self.runtime._core.open(TEXT, shared=_NoTruth())

    def test_closing_from_another_thread(self) -> None:
        loader = self.open_held()
        thread = self.meanwhile(loader.close)
        with self.assertRaises(brim.ClosedError):
            loader.next()
        self.go_on.set()
        thread.join()
        self.assertTrue(loader.closed)
        for call in (loader.next, loader.stats, loader.state_dict, lambda: iter(loader)):
            self.assertRaises(brim.ClosedError, call)

    def test_threads_share_a_loader(self) -> None:
        loader = self.open(hold=9)
        found, lock = [], threading.Lock()

        def take() -> None:
            while (batch := loader.next()) is not None:
                with lock:
                    found.extend(batch.ids.tolist())

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:  # each needs an end of its own: other epochs may begin
            thread.join(60)
            self.assertFalse(thread.is_alive())
        self.assertGreaterEqual(len(found), 1000)
        self.assertEqual(sorted(set(found)), list(range(1000)))

    def test_a_function_cannot_use_its_own_loader(self) -> None:
        def reach(sample):
            loader.close()
            return sample

        data = brim.range(8).map(reach, out={"index": ("int64", ())}).batch(4)
        loader = self.open(data, threads=0)
        with self.assertRaises(brim.FunctionError) as caught:
            loader.next()
        self.assertIsInstance(caught.exception.__cause__, brim.IterationError)


class Figures(Loader):
    def test_stats_and_usage(self) -> None:
        loader = self.open(label="training")
        ids(loader)
        stats = loader.stats()
        self.assertEqual((stats["samples"], stats["batches"], stats["lent"]), (1000, 16, 0))
        self.assertEqual([s["name"] for s in stats["stages"]], ["range", "shuffle", "batch"])
        usage = self.runtime.usage()
        self.assertIn("training", [holder["label"] for holder in usage["holders"]])
        self.assertLessEqual(usage["peak"], usage["limit"])
        self.assertGreaterEqual(self.runtime.trim(), 0)
        self.assertEqual(self.runtime.usage()["elastic"], 0)
        self.assertEqual(ids(loader), self.epoch(1))

    def test_charging_by_hand(self) -> None:
        before = self.runtime.usage()["charged"]
        self.runtime.charge(1 << 20)
        self.assertEqual(self.runtime.usage()["charged"], before + (1 << 20))
        with self.assertRaises(brim.BudgetError):
            self.runtime.charge(1 << 40)
        self.runtime.uncharge(1 << 20)

    def test_names_and_classes(self) -> None:
        images = support.drawn_set(self.folder / "set", 12)
        loader = self.open(f"folder {self.folder}/set | decode | resize 8,8 | batch 5")
        names = []
        for batch in loader:
            names += batch.names
        self.assertEqual(names, [str(image.path) for image in images])
        self.assertEqual(loader.classes, {"label": ["class0", "class1", "class2"]})
        loader.close()
        with self.assertRaises(brim.ClosedError):
            batch.names

    def test_a_batch_is_a_mapping(self) -> None:
        loader = self.open()
        batch = loader.next()
        self.assertEqual(list(batch), ["index"])
        self.assertEqual(batch.keys(), ["index"])
        self.assertIn("index", batch)
        self.assertNotIn("image", batch)
        self.assertNotIn(3, batch)
        self.assertIsNone(batch.get("image"))
        self.assertEqual(len(batch), 1)
        self.assertEqual(dict(batch.items())["index"].tolist(), batch.values()[0].tolist())
        with self.assertRaisesRegex(KeyError, "there are"):
            batch["image"]
        self.assertIn("epoch=0, step=0", repr(batch))

    def test_progress_and_its_exceptions(self) -> None:
        support.drawn_set(self.folder / "set", 6)
        text = f"folder {self.folder}/set | decode | resize 8,8 | batch 2"
        with self.runtime.open(text, progress=lambda what, done, total, unit: None) as loader:
            self.assertEqual(len(loader), 3)


class _NoTruth:
    def __bool__(self) -> bool:
        raise RuntimeError("no truth")


if __name__ == "__main__":
    support.main()
