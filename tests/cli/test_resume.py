"""Runs that are killed without warning and go on: the same batches, and a state that is never torn.

SIGKILL leaves nothing but the state file. What a resumed run puts out is held against two runs that
know of no state: one that seeks to the position in the file, and one whose pipeline skips to it, so
that a seek that is wrong in the same way is noticed too.
"""

import os
import random
import signal
import struct
import time

from support import (LIMIT, SANITIZED, STATE_BYTES, Case, main, start, state_position, write_npy,
                     write_tokens)

BATCH = 64
KILLS = 30
MICRO_AT, STEP_AT = 40, 104  # in a state; src/engine/state.h


class Killed(Case):
    def setUp(self):
        super().setUp()
        self.state = self.folder / "at.state"
        self.random = random.Random(7)
        array = write_npy(self.folder / "x.npy", (5000, 50), "|u1", seed=1)
        tokens = write_tokens(self.folder / "t.bin", 1000000, seed=2)
        # the pipeline before its batches, what makes them, and rows of what one call returns;
        # epochs so long that no disk is fast enough to end one before the kill
        self.pipelines = [
            ("range 10000000000 | shuffle seed=7", "batch 64", 64),
            (f"npy {array} | repeat 1000000 | shuffle seed=7 block=256 | normalize unit",
             "batch 64", 64),
            (f"tokens {tokens} length=64 | repeat 1000000 | shuffle seed=7",
             "batch 64 micro=16", 16),
        ]

    def run_and_kill(self, text, *words, wait=0.05):
        """Starts a run that writes states, kills it some time after it has written one."""
        before = self.stamp()
        process = start("run", text, "--quiet", "--state", self.state, *words)
        deadline = time.monotonic() + LIMIT
        while self.stamp() == before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(self.random.random() * wait)
        process.kill()
        process.communicate()
        return process.returncode

    def stamp(self):
        try:
            facts = os.stat(self.state)
        except FileNotFoundError:
            return None
        return facts.st_ino, facts.st_mtime_ns

    def test_killed_twice_and_resumed(self):
        for samples, batch, rows in self.pipelines:
            for threads in (0, 2):
                with self.subTest(samples=samples, batch=batch, threads=threads):
                    self.killed_twice(samples, batch, rows, "--threads", threads)

    def killed_twice(self, samples, batch, rows, *words):
        self.state.unlink(missing_ok=True)
        text = f"{samples} | {batch}"
        left = []  # (samples delivered, the state's file) after each kill
        for resume in ([], ["--resume", self.state]):
            code = self.run_and_kill(text, *words, "--state-every=3", *resume)
            self.assertEqual(code, -signal.SIGKILL, "it ended before it was killed")
            epoch, sample, micro = state_position(self.state)
            self.assertEqual((epoch, sample % BATCH), (0, 0))
            copy = self.folder / f"left-{len(left)}.state"
            copy.write_bytes(self.state.read_bytes())
            left.append((sample + micro * rows, copy))
        (first, _), (second, _) = left
        self.assertGreater(first, 0)
        self.assertGreater(second, first)
        # what came between the kills, to the end of its last step, and some of what is left
        for (begin, state), count in zip(left, (second // BATCH - first // BATCH + 1, 100)):
            end = (begin // BATCH + count) * BATCH
            steps = ["--steps", count]
            resumed = self.digest(text, *words, "--resume", state, *steps)
            cut = f"{samples} | skip {begin} | take {end - begin} | batch {rows}"
            self.assertEqual(resumed, self.digest(cut))
            if begin % BATCH == 0:
                self.assertEqual(resumed, self.digest(text, f"--seek=0:{begin // BATCH}", *steps))

    def test_killed_where_samples_are_placed_one_after_the_other(self):
        source = "range 10000000000 | shuffle seed=7 | filter 'index<7000000000'"
        for rest in ("batch 64", "batch 64 micro=16", "shuffle buffer=64KiB | batch 64"):
            for threads in (0, 2):
                with self.subTest(rest=rest, threads=threads):
                    text = f"{source} | {rest}"
                    code = self.run_and_kill(text, "--state-every=3", "--threads", threads)
                    self.assertEqual(code, -signal.SIGKILL, "it ended before it was killed")
                    step, = struct.unpack_from("<Q", self.state.read_bytes(), STEP_AT)
                    micro, = struct.unpack_from("<I", self.state.read_bytes(), MICRO_AT)
                    if micro == 0:  # a seek goes to whole steps only
                        self.assertGreater(step, 0)
                        self.assertEqual(
                            self.digest(text, "--resume", self.state, "--steps=20", "--threads=0"),
                            self.digest(text, f"--seek=0:{step}", "--steps=20"))
                    self.state.unlink()

    def test_a_state_is_never_torn(self):
        text = "range 10000000000 | shuffle seed=7 | batch 64"
        last = 0
        for _ in range(10 if SANITIZED else KILLS):
            resume = ["--resume", self.state] if self.state.exists() else []
            process = start("run", text, "--quiet", "--threads=0", "--state", self.state,
                            "--state-every=1", *resume)
            if not resume:
                self.wait_for("there is no state", self.state.exists)
            time.sleep(self.random.random() * (0.5 if SANITIZED else 0.06))
            process.kill()
            _, said = process.communicate()
            self.assertEqual(process.returncode, -signal.SIGKILL, said)
            self.assertEqual(self.state.stat().st_size, STATE_BYTES)
            epoch, sample, _ = state_position(self.state)
            self.assertEqual((epoch, sample % 64), (0, 0))
            self.assertGreaterEqual(sample, last, "it went backwards")
            last = sample
            resumed = self.digest(text, "--resume", self.state, "--steps=2")
            self.assertEqual(resumed, self.digest(text, f"--seek=0:{sample // 64}", "--steps=2"))
        self.assertGreater(last, 0)

    def test_a_kill_does_not_spoil_what_is_there(self):
        # a file of the same name is replaced as a whole, never opened for writing
        text = "range 10000000000 | batch 64"
        self.good_json("run", text, "--steps=5", "--state", self.state)
        other = self.folder / "linked.state"
        os.link(self.state, other)
        before = other.read_bytes()
        self.run_and_kill(text, "--state-every=1", "--resume", self.state)
        self.assertEqual(other.read_bytes(), before)
        self.assertNotEqual(self.state.read_bytes(), before)

    def test_epochs_go_on(self):
        text = "range 640 | shuffle seed=7 | batch 64"
        self.good_json("run", text, "--epochs=3", "--steps=27", "--state", self.state)
        self.assertEqual(state_position(self.state), (2, 7 * 64, 0))
        self.assertEqual(self.digest(text, "--resume", self.state, "--epochs=2"),
                         self.digest(text, "--seek=2:7", "--epochs=2"))


class Worlds(Case):
    def setUp(self):
        super().setUp()
        self.state = self.folder / "at.state"

    def test_another_number_of_ranks_goes_on_at_the_same_sample(self):
        for per, steps in (("global", 10), ("global", 11), ("rank", 10), ("rank", 11)):
            text = "range 10000 | shuffle seed=7 | {} batch 64 per=%s" % per
            for old, new in ((1, 2), (1, 4), (4, 1), (2, 4), (4, 2)):
                with self.subTest(per=per, steps=steps, old=old, new=new):
                    self.good_json("run", text.format(""), "--shard", f"0/{old}",
                                   "--steps", steps, "--state", self.state)
                    _, sample, _ = state_position(self.state)
                    self.assertEqual(sample, steps * 64 * (old if per == "rank" else 1))
                    for rank in {0, new - 1}:
                        shard = ["--shard", f"{rank}/{new}"]
                        resumed = self.good_json("run", text.format(""), *shard, "--digest",
                                                 "--resume", self.state)
                        skipped = self.good_json("run", text.format(f"skip {sample} |"), *shard,
                                                 "--digest")
                        self.assertEqual(resumed["digest"], skipped["digest"])
                        self.assertEqual(resumed["samples"], skipped["samples"])

    def test_every_rank_writes_the_same_state(self):
        text = "range 10000 | shuffle seed=7 | batch 64"
        states = set()
        for rank in range(4):
            self.good_json("run", text, "--shard", f"{rank}/4", "--steps=9", "--state", self.state)
            states.add(self.state.read_bytes())
        self.assertEqual(len(states), 1)


class Refused(Case):
    TEXT = "range 10000 | shuffle seed=7 | batch 64"

    def setUp(self):
        super().setUp()
        self.state = self.folder / "at.state"

    def refused(self, text, status, *parts):
        told = self.bad_json(1, "run", text, "--resume", self.state)
        self.assertEqual(told["status"], status)
        for part in parts:
            self.assertIn(part, told["said"])

    def test_another_order(self):
        self.good_json("run", self.TEXT, "--steps=5", "--state", self.state)
        for text in ("range 10000 | shuffle seed=8 | batch 64", "range 10000 | batch 64",
                     "range 10000 | shuffle seed=7 block=16 | batch 64",
                     "range 10000 | shuffle seed=7 | skip 1 | batch 64",
                     "range 10000 | shuffle seed=7 | repeat 2 | batch 64"):
            with self.subTest(text=text):
                self.refused(text, "BRIM_STATUS_MISMATCH", "another order", "shuffle")

    def test_other_data(self):
        self.good_json("run", self.TEXT, "--steps=5", "--state", self.state)
        self.refused(self.TEXT.replace("10000", "10001"), "BRIM_STATUS_MISMATCH", "other data")
        x = write_npy(self.folder / "x.npy", (10000, 2))
        self.refused(f"npy {x} | shuffle seed=7 | batch 64", "BRIM_STATUS_MISMATCH", "other data")

    def test_a_file_that_has_grown(self):
        path = write_npy(self.folder / "x.npy", (1000, 2))
        text = f"npy {path} | shuffle seed=7 | batch 64"
        self.good_json("run", text, "--steps=5", "--state", self.state)
        write_npy(path, (1001, 2))
        self.refused(text, "BRIM_STATUS_MISMATCH", "other data")

    def test_transforms_and_batches_may_change(self):
        self.good_json("run", self.TEXT, "--steps=5", "--state", self.state)
        text = "range 10000 | shuffle seed=7 | {} cast float32 | batch 50"
        self.assertEqual(self.digest(text.format(""), "--resume", self.state),
                         self.digest(text.format("skip 320 |")))

    def test_every_damaged_byte_is_noticed(self):
        self.good_json("run", self.TEXT, "--steps=5", "--state", self.state)
        whole = self.state.read_bytes()
        for at in range(0, STATE_BYTES, 8 if SANITIZED else 1):
            content = bytearray(whole)
            content[at] ^= 1 << (at % 8)
            self.state.write_bytes(content)
            self.refused(self.TEXT, "BRIM_STATUS_CORRUPT", "state")

    def test_files_that_are_no_states(self):
        self.good_json("run", self.TEXT, "--steps=5", "--state", self.state)
        whole = self.state.read_bytes()
        for content in (b"", whole[:-1], whole + b"\0", bytes(STATE_BYTES), whole[::-1]):
            self.state.write_bytes(content)
            self.refused(self.TEXT, "BRIM_STATUS_CORRUPT", "state")


if __name__ == "__main__":
    main()
