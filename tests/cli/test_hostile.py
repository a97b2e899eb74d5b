"""Files that are cut, lie or are no files at all: an error that says where, and little memory.

Whatever a file claims, the command line ends by itself with exit code 1, names the file and, where
there is one, the byte, and takes no more memory than it would have taken for good data.
"""

import json
import os
import random
import stat
import struct
import subprocess
import time
import unittest

from support import (CLI, LIMIT, MIB, SANITIZED, Case, main, npy_header, start, write_megatron,
                     write_npy, write_tokens)

# More than the interpreter that starts the command line has resident: a child's peak begins there.
RESIDENT = 64 * MIB


class Hostile(Case):
    def run_measured(self, *words):
        """Exit code, stdout, stderr and peak resident bytes of one command."""
        out, err = self.folder / "stdout", self.folder / "stderr"
        with open(out, "wb") as to_out, open(err, "wb") as to_err:
            process = subprocess.Popen([CLI, *words], stdin=subprocess.DEVNULL, stdout=to_out,
                                       stderr=to_err)
            deadline = time.monotonic() + LIMIT
            done = 0
            while done == 0:
                if time.monotonic() > deadline:
                    process.kill()
                    process.wait()
                    self.fail("still running after %d s: %s" % (LIMIT, words))
                done, status, usage = os.wait4(process.pid, os.WNOHANG)
                time.sleep(0.001)
            process.returncode = os.waitstatus_to_exitcode(status)
        return (process.returncode, out.read_bytes(), err.read_text(errors="replace"),
                usage.ru_maxrss * 1024)

    def refused(self, pipeline, *parts, code=1, options=()):
        """The pipeline is refused with every one of `parts` in the message, in little memory."""
        for command in ("plan", "run"):
            done, out, said, resident = self.run_measured(command, pipeline, "--json", *options)
            with self.subTest(command=command, pipeline=pipeline):
                self.assertEqual(done, code, said)
                told = json.loads(out)
                why = told["error"] if "error" in told else told["reason"]
                for part in parts:
                    self.assertIn(part, why)
                    self.assertIn(part, said)
                if not SANITIZED:
                    self.assertLess(resident, RESIDENT)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path


class Claims(Hostile):
    def test_npy_of_elements_that_are_not_there(self):
        for shape in ("(1000000000000000000,)", "(3, 1000000000)", "(4294967296, 1048576)"):
            path = self.write("huge.npy", npy_header(shape) + bytes(64))
            self.refused(f"npy {path} | batch 4", "huge.npy: byte ")
        for shape in ("(9223372036854775807, 2)", "(4294967296, 4294967296, 4294967296)",
                      "(18446744073709551616,)", "(1" + "0" * 60 + ",)"):
            path = self.write("over.npy", npy_header(shape) + bytes(64))
            self.refused(f"npy {path} | batch 4", "over.npy: byte ")

    def test_npy_header_lengths(self):
        text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }\n"
        for version in (2, 3):
            for length in (2**32 - 1, 2**31, 65536 * 2, len(text) + 1000, 0):
                path = self.write("long.npy", b"\x93NUMPY" + bytes([version, 0]) +
                                  struct.pack("<I", length) + text + bytes(16))
                self.refused(f"npy {path} | batch 4", "long.npy: byte ")

    def test_npy_headers_that_are_no_headers(self):
        for shape in ("(-5,)", "(" * 5000, "(1,) " * 2000, "(0x10,)", "None", "(1, )" + "\0" * 40,
                      "(4,), 'shape': (5,)", "()" * 3):
            path = self.write("odd.npy", npy_header(shape) + bytes(64))
            self.refused(f"npy {path} | batch 4", "odd.npy: byte ")

    def test_npy_of_python_objects(self):
        path = self.write("objects.npy", npy_header("(4,)", "|O") + bytes(64))
        self.refused(f"npy {path} | batch 4", "objects.npy: byte ")

    def test_samples_of_no_bytes(self):
        path = self.write("none.npy", npy_header("(1000000000000000000, 0)"))
        done, _, said, resident = self.run_measured("run", f"npy {path} | batch 4", "--steps=10")
        self.assertIn(done, (0, 1, 2), said)
        if not SANITIZED:
            self.assertLess(resident, RESIDENT)

    def test_a_batch_that_no_memory_holds(self):
        path = write_npy(self.folder / "x.npy", (100, 100))
        for rows in (2**31 - 1, 2**20):
            text = f"npy {path} | repeat 100000000 | batch {rows}"
            self.refused(text, "budget", code=3, options=["--memory=64MiB"])

    def test_megatron_indexes_that_lie(self):
        stem = self.folder / "m"
        index = write_megatron(stem, [100, 50, 70])
        lies = {
            "magic": (0, b"XMIDIDX\0\0"), "version": (9, struct.pack("<Q", 2)),
            "dtype 0": (17, b"\0"), "dtype 99": (17, b"\x63"), "float": (17, b"\7"),
            "sequences": (18, struct.pack("<Q", 2**60)), "all": (18, struct.pack("<Q", 2**64 - 1)),
            "documents": (26, struct.pack("<Q", 2**61)), "negative": (34, struct.pack("<i", -1)),
            "too long": (42, struct.pack("<i", 2**31 - 1)), "pointer": (54, struct.pack("<q", 4)),
            "far": (62, struct.pack("<q", 2**62)), "behind": (62, struct.pack("<q", -2**63)),
        }
        for name, (at, lie) in lies.items():
            with self.subTest(lie=name):
                self.write("m.idx", index[:at] + lie + index[at + len(lie):])
                self.refused(f"tokens {stem}.idx length=8 | batch 4", "m.idx", ": byte ")
        self.write("m.idx", index)
        self.write("m.bin", bytes(100))
        self.refused(f"tokens {stem}.bin length=8 | batch 4", "m.")
        os.remove(f"{stem}.bin")
        self.refused(f"tokens {stem}.idx length=8 | batch 4", "m.bin")

    def test_llmc_headers_that_lie(self):
        for name, words in {"count": (20240520, 1, 2**31 - 1), "negative": (20240520, 1, -1),
                            "version": (20240520, 9, 100)}.items():
            with self.subTest(lie=name):
                header = struct.pack("<3i", *words).ljust(1024, b"\0")
                path = self.write("l.bin", header + bytes(64))
                self.refused(f"tokens {path} length=8 format=llmc | batch 4", "l.bin: byte ")


class Cut(Hostile):
    STEP = 16 if SANITIZED else 3

    def test_npy_cut_anywhere(self):
        whole = npy_header((8, 4)) + bytes(8 * 4 * 4)
        for length in range(0, len(whole), self.STEP):
            path = self.write("cut.npy", whole[:length])
            self.refused(f"npy {path} | batch 4", "cut.npy: byte ")

    def test_megatron_index_cut_anywhere(self):
        index = write_megatron(self.folder / "m", [100, 50, 70])
        for length in range(0, len(index), self.STEP):
            self.write("m.idx", index[:length])
            self.refused(f"tokens {self.folder}/m.idx length=8 | batch 4", "m.idx: byte ")

    def test_headers_with_bits_flipped(self):
        whole = npy_header((8, 4)) + bytes(8 * 4 * 4)
        draw = random.Random(1)
        for _ in range(20 if SANITIZED else 100):
            content = bytearray(whole)
            for _ in range(draw.randrange(1, 4)):
                content[draw.randrange(128)] ^= 1 << draw.randrange(8)
            path = self.write("bits.npy", content)
            done, _, said, resident = self.run_measured("run", f"npy {path} | batch 4", "--quiet")
            self.assertIn(done, (0, 1, 2), (said, bytes(content[:128])))
            if done != 0:
                self.assertIn("bits.npy", said)
            if not SANITIZED:
                self.assertLess(resident, RESIDENT)

    def test_tokens_cut_inside_a_token(self):
        path = write_tokens(self.folder / "t.bin", 1000)
        os.truncate(path, 1001)
        self.refused(f"tokens {path} length=8 format=u16 | batch 4", "t.bin: byte ")
        self.refused(f"tokens {path} length=8 format=u32 | batch 4", "t.bin: byte ")


class NoFiles(Hostile):
    def both(self, path, *parts):
        for text in (f"npy {path} | batch 4", f"tokens {path} length=8 | batch 4",
                     f"tokens {path} length=8 format=megatron | batch 4"):
            self.refused(text, *parts)

    def test_an_absent_file(self):
        self.both(self.folder / "absent", "absent", "No such file")

    def test_a_directory(self):
        for name in ("d", "d.bin", "d.idx"):
            (self.folder / name).mkdir()
        self.both(self.folder / "d", "is a directory")

    def test_a_pipe_does_not_hang(self):
        for name in ("p", "p.bin", "p.idx"):
            os.mkfifo(self.folder / name)
        self.both(self.folder / "p", "is a pipe")

    def test_a_device(self):
        for name in ("/dev/zero", "/dev/full", "/dev/tty"):
            if os.path.exists(name) and stat.S_ISCHR(os.stat(name).st_mode):
                done, _, said, _ = self.run_measured("run", f"npy {name} | batch 4")
                self.assertEqual(done, 1, said)
                self.assertIn(name, said)
        self.refused("tokens /dev/zero length=8 | batch 4", "/dev/zero", "a device")

    def test_a_file_of_proc_that_has_no_size(self):
        for text in ("npy /proc/self/maps | batch 4", "npy /proc/self/mem | batch 4"):
            self.refused(text, "/proc/self/m", "byte 0")

    def test_links_in_a_circle(self):
        for name in ("loop", "loop.bin", "loop.idx"):
            os.symlink(name, self.folder / name)
        self.both(self.folder / "loop", "loop", "symbolic links")

    def test_an_empty_file(self):
        path = self.write("empty", b"")
        self.refused(f"npy {path} | batch 4", "empty: byte 0")
        # nothing is wrong with the file: there are just no windows in it
        self.refused(f"tokens {path} length=8 | batch 4", "empty", "8", code=2)

    @unittest.skipIf(os.geteuid() == 0, "root may read every file")
    def test_a_file_that_may_not_be_read(self):
        for name in ("locked", "locked.bin", "locked.idx"):
            self.write(name, npy_header((4,)) + bytes(16)).chmod(0)
        self.both(self.folder / "locked", "locked", "Permission denied")


class Changing(Hostile):
    """What happens to a file while a run reads it."""

    def setUp(self):
        super().setUp()
        self.path = write_npy(self.folder / "x.npy", (4000, 256))
        self.state = self.folder / "at.state"

    def while_running(self, change, *words, stage="batch 16"):
        """Starts a run that would go on for long, changes the file in its midst and waits."""
        process = start("run", f"npy {self.path} | shuffle seed=1 | {stage}", "--epochs=1000000",
                        "--state", self.state, "--state-every=20", "--json", *words)
        try:
            deadline = time.monotonic() + LIMIT
            while not self.state.exists():
                self.assertIsNone(process.poll(), "it ended too early")
                self.assertLess(time.monotonic(), deadline, "no state was written")
                time.sleep(0.005)
            change()
            out, err = process.communicate(timeout=LIMIT)
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
        return process.returncode, json.loads(out), err.decode()

    def test_a_file_cut_short(self):
        for threads in (0, 2):
            for length in (2000000, 100, 0):
                with self.subTest(threads=threads, length=length):
                    write_npy(self.path, (4000, 256))
                    self.state.unlink(missing_ok=True)
                    code, told, said = self.while_running(
                        lambda: os.truncate(self.path, length), "--threads", threads)
                    self.assertEqual(code, 1, said)
                    self.assertEqual(told["status"], "BRIM_STATUS_CORRUPT")
                    self.assertRegex(said, r"x\.npy: .*byte \d+.*cut")
                    self.assertGreater(told["batches"], 0)

    def test_a_file_cut_short_where_bad_samples_are_skipped(self):
        for choice in ("skip", "replace"):
            with self.subTest(on_error=choice):
                write_npy(self.path, (4000, 256))
                self.state.unlink(missing_ok=True)
                code, told, said = self.while_running(
                    lambda: os.truncate(self.path, 1000), "--threads=2",
                    stage=f"batch 16 on_error={choice} max_errors=100")
                self.assertEqual(code, 1, said)
                self.assertRegex(said, "max_errors=100|other samples failed too")
                self.assertRegex(said, r"x\.npy: .*byte \d+.*cut")

    def test_a_run_that_failed_can_go_on_when_the_file_is_whole_again(self):
        whole = self.path.read_bytes()
        text = f"npy {self.path} | shuffle seed=1 | batch 16"
        self.while_running(lambda: os.truncate(self.path, 1000), "--threads=2")
        self.path.write_bytes(whole)
        resumed = self.good_json("run", text, "--resume", self.state, "--epochs=2", "--steps=30",
                                 "--digest")  # it may have failed near the end of an epoch
        self.assertEqual(resumed["batches"], 30)

    def test_a_file_that_is_replaced_is_read_on(self):
        text = f"npy {self.path} | shuffle seed=1 | batch 16"
        before = self.digest(text, "--epochs=8")
        other = write_npy(self.folder / "other.npy", (10, 3))
        process = start("run", text, "--epochs=8", "--digest", "--json",
                        "--state", self.state, "--state-every=20")
        deadline = time.monotonic() + LIMIT
        while not self.state.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        os.replace(other, self.path)
        out, err = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(json.loads(out)["digest"], before)


if __name__ == "__main__":
    main()
