"""What the tests of the command line share: running it, making files, reading states.

Needs python3's standard library and BRIM_CLI, the path of the program. A file of tests ends with
`main()`, which exits with 77 when everything in it was skipped.
"""

import json
import os
import pathlib
import pty
import random
import struct
import subprocess
import sys
import tempfile
import time
import unittest

CLI = os.environ["BRIM_CLI"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 120  # seconds that one command may take, sanitizers included
MIB = 1 << 20
STATE_BYTES = 128


def is_sanitized():
    """Whether the program was built with a sanitizer, which takes memory of its own."""
    program = pathlib.Path(CLI).read_bytes()
    return any(name in program for name in (b"__asan_init", b"__tsan_init", b"__ubsan_handle"))


SANITIZED = is_sanitized()


def brim(*words, before=(), **more):
    """Runs the command line; `before` is put in front of it, such as strace and its options."""
    return subprocess.run([*map(str, before), CLI, *map(str, words)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT, **more)


def start(*words):
    """The command line in the background."""
    return subprocess.Popen([CLI, *map(str, words)], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def seconds_worked(process):
    """Of the processor, by all threads of a process that still runs."""
    numbers = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def catches(process, number):
    """Whether a signal would no longer just end the process."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


class Rows:
    """Pipelines run by one process (tests/rows.c); a pipeline's batches as numpy arrays by field."""

    def __init__(self, memory=1 << 30, threads=0):
        self.cache = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen([os.environ["BRIM_ROWS"], str(memory), str(threads),
                                         self.cache.name],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(LIMIT)
        self.process.stdout.close()
        self.cache.cleanup()

    def _field(self):
        import numpy
        word, name, dtype, size, *shape = self.process.stdout.readline().decode().split()
        assert word == "field"
        data = self.process.stdout.read(int(size))
        shape = [int(length) for length in shape]
        if -1 in shape:  # rows of unequal length
            at = 8 * (shape[0] + 1)
            offsets = numpy.frombuffer(data[:at], "int64")
            rows = numpy.frombuffer(data[at:], dtype).reshape([-1, *shape[2:]])
            return name, [rows[i:j] for i, j in zip(offsets, offsets[1:])]
        if dtype == "bfloat16":
            return name, (numpy.frombuffer(data, "uint16").astype("uint32") << 16).view(
                "float32").reshape(shape)
        return name, numpy.frombuffer(data, dtype).reshape(shape)

    def run(self, pipeline, batches=1 << 30):
        """The batches of the first epoch; an error is raised as RuntimeError(status, detail)."""
        self.process.stdin.write(f"{batches}\t{pipeline}\n".encode())
        self.process.stdin.flush()
        found = []
        while True:
            line = self.process.stdout.readline().decode(errors="replace")
            if line.startswith("batch "):
                found.append(dict(self._field() for _ in range(int(line.split()[2]))))
            elif line.startswith("error "):
                raise RuntimeError(*line.rstrip("\n").split(" ", 2)[1:])
            elif line == "end\n":
                return found
            else:
                raise RuntimeError("rows has ended", repr(line))


def npy_header(shape, dtype="<f4", fortran=False):
    """An npy file up to its first element. `shape`: a tuple, or text that claims anything."""
    header = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (dtype, fortran, shape)
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()


def fill(file, count, seed=1):
    """Writes `count` bytes that look random, fast: one block, cut at another place each time."""
    block = random.Random(seed).randbytes(2 * MIB)
    at = 0
    while count > 0:
        piece = block[at:at + min(count, MIB)]
        file.write(piece)
        count -= len(piece)
        at = (at + 12345) % MIB


def write_npy(path, shape, dtype="<f4", seed=1):
    """An npy file of arbitrary elements."""
    count = int(dtype[2:])
    for length in shape:
        count *= length
    with open(path, "wb") as file:
        file.write(npy_header(shape, dtype))
        fill(file, count, seed)
    return path


def write_tokens(path, count, seed=1):
    """`count` tokens of 16 bits and nothing else."""
    with open(path, "wb") as file:
        fill(file, 2 * count, seed)
    return path


def write_megatron(stem, lengths, seed=1):
    """stem.bin and stem.idx with sequences of 16-bit tokens. Returns the index's bytes."""
    with open("%s.bin" % stem, "wb") as file:
        fill(file, 2 * sum(lengths), seed)
    count = len(lengths)
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1)
    index += struct.pack("<%di" % count, *lengths)
    index += struct.pack("<%dq" % count, *(2 * sum(lengths[:i]) for i in range(count)))
    index += struct.pack("<%dq" % (count + 1), *range(count + 1))
    pathlib.Path("%s.idx" % stem).write_bytes(index)
    return index


def state_position(path):
    """(epoch, global sample, micro-batches since) at which a state file stands.

    The sample is None at the end of an epoch."""
    content = pathlib.Path(path).read_bytes()
    assert len(content) == STATE_BYTES, "%d bytes" % len(content)
    epoch, sample, micro = struct.unpack_from("<QQI", content, 24)
    return epoch, None if sample == 2**64 - 1 else sample, micro


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def wait_for(self, what, condition):
        """Until the condition holds; `what` is said if it does not within LIMIT."""
        deadline = time.monotonic() + LIMIT
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.002)

    def good_json(self, *words, **more):
        """What a command that must succeed says as JSON."""
        done = brim(*words, "--json", **more)
        self.assertEqual(done.returncode, 0, done)
        return json.loads(done.stdout)

    def digest(self, pipeline, *words, **more):
        return self.good_json("run", pipeline, "--digest", *words, **more)["digest"]

    def bad_json(self, code, *words, **more):
        """The command must fail with `code`; its JSON, with what it said on stderr as "said"."""
        done = brim(*words, "--json", **more)
        self.assertEqual(done.returncode, code, done)
        told = json.loads(done.stdout)
        told["said"] = done.stderr.decode(errors="replace")
        self.assertIn(told["error"].splitlines()[0][:60], told["said"])
        return told


def main():
    """Runs the script's tests and says what was skipped; 77 if every one of them was."""
    result = unittest.main(exit=False).result
    for test, reason in result.skipped:
        print("skipped: %s: %s" % (str(test).split()[0], reason))
    if not result.wasSuccessful():
        sys.exit(1)
    # a class or a file that is skipped as a whole counts as no test that ran
    sys.exit(77 if result.skipped and len(result.skipped) >= result.testsRun else 0)


def open_terminal(case):
    """Both ends of a new terminal; skips the test where the system has none to give."""
    try:
        return pty.openpty()
    except OSError as error:
        case.skipTest("no terminal can be made here: %s" % error)
