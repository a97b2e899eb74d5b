"""Indexes and caches that other users own or may write: told once, not used, and with
--trust-foreign used.

What the library does with them is in tests/test_trust.c.
"""

import os
import unittest

from support import Case, brim, main, write_npy

SOMEBODY = 65534


class Trust(Case):
    def setUp(self):
        super().setUp()
        self.csv = self.folder / "x.csv"
        self.csv.write_text("x\n1\n2\n3\n")
        self.text = "csv %s index=beside | batch 2" % self.csv
        self.index = self.folder / "x.csv.csv.brimidx"
        self.place = "--index-dir=%s" % (self.folder / "cache")

    def run_it(self, *words):
        done = brim("run", self.text, self.place, *words, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def test_an_index_that_others_may_write(self):
        self.assertNotIn("note", self.run_it())
        self.index.chmod(0o666)
        self.assertNotIn("note", self.run_it("--trust-foreign"))
        told = self.run_it()
        self.assertEqual(told.count("could be written by other users"), 1, told)
        self.assertIn("brim run: note: ", told)
        self.assertEqual(self.index.stat().st_mode & 0o777, 0o600)
        self.index.chmod(0o666)
        self.assertNotIn("note", self.run_it("--quiet"))

    def test_json_has_the_note(self):
        self.run_it()
        self.index.chmod(0o622)
        done = brim("index", self.text, self.place, "--json", text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"note"', done.stdout)
        self.assertIn("could be written by other users (mode 0622)", done.stdout)

    @unittest.skipUnless(os.geteuid() == 0, "only root makes files of another user")
    def test_an_index_of_another_user(self):
        self.run_it()
        os.chown(self.index, SOMEBODY, SOMEBODY)
        before = self.index.stat()
        told = self.run_it()
        self.assertEqual(told.count("belongs to another user (number 65534)"), 1, told)
        self.assertIn("--trust-foreign", told)
        after = self.index.stat()
        self.assertEqual((before.st_ino, before.st_mtime_ns, before.st_uid),
                         (after.st_ino, after.st_mtime_ns, after.st_uid))
        self.assertNotIn("note", self.run_it("--trust-foreign"))

    @unittest.skipUnless(os.geteuid() == 0, "only root makes files of another user")
    def test_a_cache_of_another_user(self):
        write_npy(self.folder / "x.npy", (40, 30), "|u1")
        path = self.folder / "x.brimcache"
        text = "npy %s | cache file=%s | batch 8" % (self.folder / "x.npy", path)
        self.good_json("run", text)
        os.chown(path, SOMEBODY, SOMEBODY)
        done = brim("run", text, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("belongs to another user"), 1, done.stderr)
        trusting = self.good_json("run", text, "--trust-foreign")["caches"][0]
        self.assertGreaterEqual(trusting["hits"], 40)
        self.assertEqual((trusting["misses"], trusting["warning"]), (0, ""))

    def test_the_environment_does_not_decide(self):
        self.run_it()
        self.index.chmod(0o666)
        environment = dict(os.environ, BRIM_TRUST_FOREIGN="1", TRUST_FOREIGN="1")
        done = brim("run", self.text, self.place, env=environment, text=True)
        self.assertIn("could be written by other users", done.stderr)


if __name__ == "__main__":
    main()
