"""Files that the command line makes and reads: whole or not at all, through names that no other
user can have planted, and without waiting for what is no file."""

import fcntl
import os
import stat
import subprocess
import time

from support import CLI, STATE_BYTES, Case, brim, main, write_npy

IMAGES = "range 4 | batch 2"
SECONDS = 120  # after which a command counts as one that waits


def quick(*words):
    return subprocess.run([CLI, *map(str, words)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)


class Outputs(Case):
    def state(self, path, *words):
        done = brim("run", IMAGES, "--state", path, *words)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(path.stat().st_size, STATE_BYTES)

    def test_a_planted_link_is_not_followed(self):
        """The shell's number is the command's, so that the old name could be foretold."""
        victim = self.folder / "victim"
        victim.write_bytes(b"mine")
        target = self.folder / "x.state"
        plant = ('ln -s "$1" "$2.$$.tmp"; ln -s "$1" "$2.$$-0.tmp"; shift 2; exec "$@"')
        done = subprocess.run(["sh", "-c", plant, "sh", victim, target, CLI, "run", IMAGES,
                               "--state", target], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(victim.read_bytes(), b"mine")
        self.assertEqual(target.stat().st_size, STATE_BYTES)
        self.assertFalse(target.is_symlink())

    def test_a_planted_link_beside_a_picture(self):
        victim = self.folder / "victim"
        victim.write_bytes(b"mine")
        images = self.folder / "x.npy"
        text = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 8, 8), }".ljust(117) + "\n"
        images.write_bytes(b"\x93NUMPY\1\0v\0" + text.encode() + bytes(128))
        target = self.folder / "x.png"
        plant = 'ln -s "$1" "$2.$$.part"; shift 2; exec "$@"'
        done = subprocess.run(["sh", "-c", plant, "sh", victim, target, CLI, "show",
                               "npy '%s'" % images, "-o", target],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(victim.read_bytes(), b"mine")
        self.assertTrue(target.read_bytes().startswith(b"\x89PNG"))

    def test_rights_are_those_of_the_user(self):
        target = self.folder / "x.state"
        before = os.umask(0o027)
        try:
            self.state(target)
        finally:
            os.umask(before)
        self.assertEqual(stat.S_IMODE(target.stat().st_mode), 0o640)

    def test_nothing_is_left(self):
        target = self.folder / "x.state"
        self.state(target)
        self.state(target)
        self.assertEqual([entry.name for entry in self.folder.iterdir()], ["x.state"])

    def test_what_is_no_file_is_not_replaced(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        for path in (fifo, self.folder):
            done = quick("run", IMAGES, "--state", path)
            self.assertEqual(done.returncode, 2, done)
        self.assertTrue(stat.S_ISFIFO(fifo.stat().st_mode))

    def test_leftovers(self):
        """Those of a process that is gone are removed; all that a process may still use stay."""
        target = self.folder / "x.state"
        gone = subprocess.Popen(["true"])
        gone.wait()
        live = subprocess.Popen(["sleep", "60"])
        try:
            old = time.time() - 7200
            removed = self.folder / ("x.state.%d-0.tmp" % gone.pid)
            kept = [self.folder / (name % gone.pid) for name in
                    ("x.state.%d.tmp", "x.state.%d-0.tmp~", "x.state.%d-.tmp", "y.state.%d-0.tmp",
                     "x.state.%d-0x.tmp", "x.state.+%d-0.tmp", "x.state.%d-0.part")]
            kept.append(self.folder / ("x.state.%d-0.tmp" % live.pid))
            fresh = self.folder / ("x.state.%d-1.tmp" % gone.pid)
            for path in [removed, *kept]:
                path.write_bytes(b"?")
                os.utime(path, (old, old))
            fresh.write_bytes(b"?")
            link = self.folder / ("x.state.%d-2.tmp" % gone.pid)
            link.symlink_to(self.folder / "nowhere")
            os.utime(link, (old, old), follow_symlinks=False)
            folder = self.folder / ("x.state.%d-3.tmp" % gone.pid)
            folder.mkdir()
            os.utime(folder, (old, old))
            self.state(target)
            self.assertFalse(removed.exists())
            for path in [*kept, fresh, folder]:
                self.assertTrue(path.exists(), path)
            self.assertTrue(link.is_symlink())
        finally:
            live.kill()
            live.wait()

    def test_a_locked_leftover_stays(self):
        """Its number is of another container's process, say, which writes on."""
        target = self.folder / "x.state"
        gone = subprocess.Popen(["true"])
        gone.wait()
        path = self.folder / ("x.state.%d-0.tmp" % gone.pid)
        with open(path, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.utime(path, (1e9, 1e9))
            self.state(target)
            self.assertTrue(path.exists())
        self.state(target)
        self.assertFalse(path.exists())


class Links(Case):
    """What a link leads to is replaced, not the link."""

    def setUp(self):
        super().setUp()
        write_npy(self.folder / "x.npy", (4, 8, 8, 3), "|u1")
        self.images = "npy '%s' | batch 2" % (self.folder / "x.npy")

    def test_files(self):
        target, link = self.folder / "real", self.folder / "link"
        for words in (("run", IMAGES, "--state"), ("show", self.images, "-o")):
            target.write_bytes(b"old")
            link.unlink(missing_ok=True)
            link.symlink_to(target)
            done = quick(*words, link)
            self.assertEqual(done.returncode, 0, done)
            self.assertTrue(link.is_symlink())
            self.assertNotEqual(target.read_bytes(), b"old")

    def test_a_refusal_names_the_file_once(self):
        path = self.folder / "nowhere" / "x"
        done = quick("show", self.images, "-o", path)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count(bytes(path)), 1, done.stderr)
        self.assertIn(b"cannot be made: No such file or directory", done.stderr)

    def test_a_link_that_leads_nowhere(self):
        link = self.folder / "link"
        link.symlink_to(self.folder / "nowhere" / "x")
        done = quick("run", IMAGES, "--state", link)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"leads nowhere", done.stderr)
        self.assertTrue(link.is_symlink())

    def test_chains_and_relative_links(self):
        (self.folder / "below").mkdir()
        target = self.folder / "below" / "real"
        target.write_bytes(b"old")
        (self.folder / "below" / "second").symlink_to("real")
        link = self.folder / "first"
        link.symlink_to("below/second")
        self.assertEqual(quick("run", IMAGES, "--state", link).returncode, 0)
        self.assertTrue(link.is_symlink() and (self.folder / "below" / "second").is_symlink())
        self.assertNotEqual(target.read_bytes(), b"old")
        loop = self.folder / "loop"
        loop.symlink_to("loop")
        done = quick("run", IMAGES, "--state", loop)
        self.assertIn(b"leads nowhere", done.stderr)

    def test_links_of_other_users_are_not_followed(self):
        if os.geteuid() != 0:
            self.skipTest("only root can make a link of another user")
        target, planted, own = (self.folder / name for name in ("precious", "planted", "own"))
        target.write_bytes(b"old")
        planted.symlink_to(target)
        os.chown(planted, 65534, 65534, follow_symlinks=False)
        own.symlink_to(planted)
        for link in (planted, own):
            for words in (("run", IMAGES, "--state"), ("show", self.images, "-o")):
                done = quick(*words, link)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(b"a link of another user (number 65534)", done.stderr)
        self.assertEqual(target.read_bytes(), b"old")

    def test_standard_output_by_its_name(self):
        with open(self.folder / "sheet.png", "wb") as file:
            done = subprocess.run([CLI, "show", self.images, "-o", "/dev/stdout"], stdout=file,
                                  stderr=subprocess.PIPE, timeout=SECONDS)
        self.assertEqual(done.returncode, 0, done)
        direct = brim("show", self.images, "-o", "-").stdout
        self.assertEqual((self.folder / "sheet.png").read_bytes(), direct)
        self.assertTrue(os.path.islink("/dev/stdout"))


class Inputs(Case):
    def test_resume_does_not_wait(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        for path, why in ((fifo, b"not a regular file"), (self.folder, b"a directory"),
                          ("/dev/null", b"not a regular file")):
            done = quick("run", IMAGES, "--resume", path)
            self.assertEqual(done.returncode, 1, done)
            self.assertIn(why, done.stderr)

    def test_resume_from_a_file_on_standard_input(self):
        target = self.folder / "x.state"
        self.assertEqual(brim("run", IMAGES, "--state", target).returncode, 0)
        with open(target, "rb") as file:
            done = subprocess.run([CLI, "run", IMAGES, "--resume", "/dev/stdin"], stdin=file,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
        self.assertEqual(done.returncode, 0, done)

    def test_other_inputs_do_not_wait(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        for words in (("cache", "ls", fifo), ("cache", "verify", fifo), ("cache", "rm", fifo),
                      ("run", "range 4 | cache file='%s' | batch 2" % fifo),
                      ("inspect", fifo), ("run", "npy '%s'" % fifo)):
            quick(*words)  # whatever it says, it comes back
        self.assertTrue(stat.S_ISFIFO(fifo.stat().st_mode))


if __name__ == "__main__":
    main()
