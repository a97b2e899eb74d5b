"""Processes that are killed while they fill a cache file: nothing torn is ever found, and the file
fills on.

SIGKILL comes at random moments: while the file is made, while samples and their places in the
table are written, and to one of two processes that share the file. After each kill all that the
table names is whole, what was there is still there, and a whole epoch with what the killed one left
gives the batches without a cache and finds all that is there. The one of two that lives on gives
the right batches too, those among them that it makes or finds while the other dies. With
BRIM_TEST_LONG=1 in the environment there are 200 kills instead of 25.
"""

# label: quick, long

import json
import os
import random
import shutil
import signal
import time

from support import LIMIT, SANITIZED, Case, main, start, state_position

KILLS = 200 if os.environ.get("BRIM_TEST_LONG") else 8 if SANITIZED else 25
SAMPLES = 600
SOURCE = "range %d | one_hot %d on=index" % (SAMPLES, SAMPLES)


class Killed(Case):
    def setUp(self):
        super().setUp()
        self.random = random.Random(11)
        self.path = self.folder / "x.brimcache"
        self.cache = "cache file=%s" % self.path
        self.once = "%s | %s | shuffle seed=3 | batch 20" % (SOURCE, self.cache)
        # so long that it never ends by itself
        self.ever = "%s | %s | repeat 1000000000 | shuffle seed=5 | batch 20" % (SOURCE, self.cache)
        self.wanted = self.digest(self.without(self.once))
        self.copy = self.folder / "copy.brimcache"

    def without(self, text):
        return text.replace(self.cache + " | ", "")

    def fill(self, text=None, *words):
        return start("run", text or self.ever, "--quiet", *words)

    def kill(self, process):
        process.kill()
        _, said = process.communicate()
        self.assertEqual(process.returncode, -signal.SIGKILL, said)

    def info(self):
        return self.good_json("cache", "info", self.path)["files"][0]

    def check(self, least=0):
        """All that is there is whole. How many are there."""
        told = self.good_json("cache", "verify", self.path)["files"][0]
        self.assertEqual(told["bad"], 0)
        self.assertGreaterEqual(told["good"], least, "what was there is gone")
        return told["good"]

    def check_left(self, turn, least=0):
        """What a killed process left: all of it is whole, and a run that begins with it gives the
        right batches. That run has a copy, so that the file stays as it was left. How many are
        there."""
        there = 0
        if self.path.exists():
            there = self.check(least) if self.path.stat().st_size > 0 else 0
            shutil.copyfile(self.path, self.copy)
        else:
            self.copy.unlink(missing_ok=True)
        ran = self.good_json("run", self.once.replace(str(self.path), str(self.copy)), "--digest",
                             "--threads", turn % 3)
        self.assertEqual(ran["digest"], self.wanted)
        self.assertGreaterEqual(ran["caches"][0]["hits"], there, "what is there is not found")
        self.assertEqual(ran["caches"][0]["damaged"], 0)
        return there

    def end(self, process):
        """Ends a run for ever in its own time; the batches that it gave are the right ones."""
        process.send_signal(signal.SIGINT)
        told, said = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 128 + signal.SIGINT, said)
        told = json.loads(told)
        self.assertGreater(told["batches"], 0)
        self.assertEqual(told["digest"],
                         self.digest(self.without(self.ever), "--steps", told["batches"]))
        return told

    def check_fills_on(self):
        """Two runs from one process: the first fills what is missing, the second makes nothing."""
        self.assertEqual(self.digest(self.once, "--threads=0"), self.wanted)
        ran = self.good_json("run", self.once, "--threads=0", "--digest")
        self.assertEqual(ran["digest"], self.wanted)
        self.assertEqual(ran["caches"][0]["misses"], 0)
        self.assertEqual(self.check(), SAMPLES)

    def test_while_it_fills(self):
        least, partly = 0, 0
        for turn in range(KILLS):
            if least == SAMPLES:
                self.path.unlink()
                least = 0
            process = self.fill(None, "--threads", turn % 3)
            self.wait_for("nothing is stored", lambda: self.path.exists())
            time.sleep(self.random.random() ** 3 * (0.5 if SANITIZED else 0.1))
            self.kill(process)
            least = self.check_left(turn, least)
            partly += 0 < least < SAMPLES
        print("%d kills, %d of them with the file filled in part" % (KILLS, partly))
        self.check_fills_on()

    def test_while_it_is_made(self):
        for turn in range(KILLS):
            self.path.unlink(missing_ok=True)
            process = self.fill(None, "--threads", turn % 2)
            time.sleep(self.random.random() * (0.5 if SANITIZED else 0.03))
            self.kill(process)
            self.check_left(turn)
        self.check_fills_on()

    def test_one_of_two(self):
        state = self.folder / "second.state"

        def second_is_at():
            return state_position(state)[1] if state.exists() else -1

        for turn in range(max(2, KILLS // 8)):
            self.path.unlink(missing_ok=True)
            state.unlink(missing_ok=True)
            first = self.fill(None, "--threads=1")
            self.wait_for("nobody fills the file",
                          lambda: self.path.exists() and self.path.stat().st_size > 0
                          and self.info()["in_use"])
            second = self.fill(None, "--threads", turn % 2, "--digest", "--json", "--state", state,
                               "--state-every=50")
            time.sleep(self.random.random() * 0.05)
            self.kill(first)
            second.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, second.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            self.check_left(turn)
            second.send_signal(signal.SIGCONT)
            # the other one goes on: reads what is there, and fills the rest
            self.wait_for("it does not go on", lambda: self.info()["filled"] == SAMPLES)
            before = second_is_at()
            self.wait_for("it reads nothing", lambda: second_is_at() > before + 4 * SAMPLES)
            ran = self.end(second)["caches"][0]
            self.assertEqual(ran["damaged"], 0)
            self.assertGreater(ran["hits"], 0)
            self.assertEqual(self.check(), SAMPLES)
            self.assertEqual(self.digest(self.once), self.wanted)

    def test_a_reader_is_killed(self):
        filler = self.fill(self.ever.replace("repeat", "take 300 | repeat"), "--threads=1")
        self.wait_for("nothing is stored", lambda: self.path.exists())
        for _ in range(max(3, KILLS // 5)):
            reader = self.fill(None, "--threads=1")
            time.sleep(self.random.random() * 0.05)
            self.kill(reader)
        self.kill(filler)
        self.check()
        self.check_fills_on()


if __name__ == "__main__":
    main()
