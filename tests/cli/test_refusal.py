"""A refusal costs nothing of what it refused.

Compressed files that hold a GiB of zeros in a MiB are refused in 16 MiB by every command, with the
number that would do; the process has not taken it meanwhile, by the system's own count and inside
a memory control group. Headers, directories and trailers that lie are errors, never memory.
"""

import json
import os
import struct
import subprocess
import unittest
import zlib

from support import CLI, LIMIT, MIB, SANITIZED, Case, brim, main
from test_cgroup import OUTSIDE, PARENT, VERSION, WHY_NOT, Group

BUDGET = 16 * MIB
MOST_RESIDENT = 48 * MIB
ROW = 1024
GIB_ROWS = (1 << 30) // ROW


def deflated(head, megabytes):
    """Deflate's bytes of `head` and so many MiB of zeros. One MiB is compressed, and repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    begin = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    return begin + megabytes * block + packer.flush()


def npy_head(rows):
    text = "{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d), }" % (rows, ROW)
    text = text.ljust(117) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode()


def crc_of(head, megabytes):
    crc = zlib.crc32(head)
    for _ in range(megabytes):
        crc = zlib.crc32(bytes(MIB), crc)
    return crc


def write_npz(path, megabytes, rows=None, claimed=None, crc=0, zip64=False):
    """An array of zeros; rows and claimed: what the header and the directory say, true or not."""
    head = npy_head(megabytes * MIB // ROW if rows is None else rows)
    data = deflated(head, megabytes)
    size = len(head) + megabytes * MIB if claimed is None else claimed
    small = 0xffffffff if zip64 else size
    packed = 0xffffffff if zip64 else len(data)
    extra = struct.pack("<HHQQ", 1, 16, size, len(data)) if zip64 else b""
    common = struct.pack("<HHHHIIIHH", 0, 8, 0, 33, crc, packed, small, 5, len(extra))
    local = b"PK\3\4" + struct.pack("<H", 45) + common + b"a.npy" + extra
    entry = (b"PK\1\2" + struct.pack("<HH", 45, 45) + common + struct.pack("<HHHII", 0, 0, 0, 0, 0)
             + b"a.npy" + extra)
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(entry), len(local) + len(data), 0)
    path.write_bytes(local + data + entry + end)


def write_idx(path, megabytes, rows=None, length=None, crc=None):
    head = struct.pack(">HBBII", 0, 8, 2, megabytes * MIB // ROW if rows is None else rows, ROW)
    size = len(head) + megabytes * MIB if length is None else length
    if crc is None:
        crc = crc_of(head, megabytes) if megabytes <= 32 else 0
    path.write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + deflated(head, megabytes)
                     + struct.pack("<II", crc, size % (1 << 32)))


def commands(folder, stage, path):
    """All that open a pipeline, and what they are given."""
    text = "%s '%s'" % (stage, path)
    show = folder / "sheet.png"
    return (("plan", text), ("run", text), ("cat", text), ("bench", text),
            ("show", text, "-o", show), ("inspect", path, "--verify"),
            ("run", "zip (%s name=a) (%s name=b) | batch 2" % (text, text)),
            ("run", text + " | cache memory | batch 4"))


def measured(*words, memory=BUDGET):
    """What came of a command, and the most of memory that was resident."""
    with subprocess.Popen([CLI, *map(str, words), "--memory", str(memory)],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        out, err = process.stdout.read(), process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, out, err, usage.ru_maxrss * 1024


class Compressed(Case):
    def setUp(self):
        super().setUp()
        self.large = {"npz": self.folder / "large.npz", "idx": self.folder / "large.gz"}
        write_npz(self.large["npz"], 1024)
        write_idx(self.large["idx"], 1024)

    @unittest.skipIf(SANITIZED, "a sanitizer takes memory of its own")
    def test_no_command_takes_what_it_refuses(self):
        for stage, path in self.large.items():
            for words in commands(self.folder, stage, path):
                code, _, err, resident = measured(*words)
                self.assertEqual(code, 3, (words, err))
                self.assertIn(b"must be held in memory", err, words)
                self.assertIn(b"the smallest budget that fits: --memory ", err, words)
                self.assertLess(resident, MOST_RESIDENT, words)

    @unittest.skipIf(SANITIZED, "a sanitizer takes memory of its own")
    def test_headers_alone_tell_what_it_is(self):
        """What it holds is told without unpacking it."""
        for stage, path in self.large.items():
            code, out, err, resident = measured("inspect", path)
            self.assertEqual(code, 0, err)
            self.assertIn(b"1,048,576", out)
            self.assertLess(resident, MOST_RESIDENT)

    def test_the_plan_counts_it(self):
        for stage, path in self.large.items():
            done = brim("plan", "%s '%s' | batch 8" % (stage, path), "--memory", BUDGET, "--json")
            told = json.loads(done.stdout)
            self.assertEqual((done.returncode, told["fits"]), (3, False), done)
            self.assertGreater(told["minimum_bytes"], 1 << 30)
            self.assertLess(told["minimum_bytes"], (1 << 30) + MIB)

    @unittest.skipIf(WHY_NOT, WHY_NOT)
    def test_inside_a_group(self):
        group = Group(PARENT, VERSION)
        try:
            group.set_limit(BUDGET + OUTSIDE)
            for stage, path in self.large.items():
                for words in commands(self.folder, stage, path):
                    done = group.run(*words, "--memory", BUDGET)
                    self.assertEqual(done.returncode, 3, (words, done))
            self.assertEqual(group.killed(), 0)
        finally:
            group.remove()

    def test_the_number_that_is_told_does(self):
        """Told by a refusal, it opens; one byte less does not. The plan tells the same."""
        npz, idx = self.folder / "x.npz", self.folder / "x.gz"
        write_npz(npz, 32, crc=crc_of(npy_head(32 * MIB // ROW), 32))
        write_idx(idx, 32)
        for stage, path in (("npz", npz), ("idx", idx)):
            text = "%s '%s' | shuffle seed=1 | batch 64" % (stage, path)
            refused = brim("run", text, "--memory", BUDGET, "--json")
            minimum = json.loads(refused.stdout)["minimum_bytes"]
            planned = json.loads(brim("plan", text, "--json").stdout)["minimum_bytes"]
            self.assertEqual(minimum, planned)
            self.assertEqual(brim("run", text, "--memory", minimum - 1).returncode, 3)
            done = brim("run", text, "--memory", minimum, "--json")
            self.assertEqual(done.returncode, 0, done)
            told = json.loads(done.stdout)
            self.assertLessEqual(told["peak_charged_bytes"], minimum)

    def test_labels_are_read_where_they_fit(self):
        """An order that goes by labels needs them when it is planned: loaded, inside the limit."""
        path = self.folder / "labels.gz"
        head = struct.pack(">HBBI", 0, 8, 1, MIB)
        path.write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + deflated(head, 1)
                         + struct.pack("<II", crc_of(head, 1), len(head) + MIB))
        text = "idx '%s' name=y | balance label=y | batch 1024" % path
        done = brim("plan", text, "--memory", 64 * MIB, "--json")
        self.assertEqual(done.returncode, 0, done)
        minimum = json.loads(done.stdout)["minimum_bytes"]
        self.assertEqual(brim("run", text, "--memory", minimum).returncode, 0)
        self.assertEqual(brim("run", text, "--memory", minimum - 1).returncode, 3)
        refused = brim("run", text, "--memory", "256KiB", "--json")
        self.assertEqual(json.loads(refused.stdout)["minimum_bytes"], minimum, refused)


class Lies(Case):
    def refuse(self, pipeline, part, memory=BUDGET, code=1, command="run"):
        done = brim(command, pipeline, "--memory", memory)
        self.assertEqual(done.returncode, code, done)
        self.assertIn(part, done.stderr)
        return done

    def test_npz(self):
        path = self.folder / "x.npz"
        text = "npz '%s' | batch 4" % path
        good = crc_of(npy_head(MIB // ROW), 1)
        whole = 128 + MIB
        for zip64 in (False, True):
            write_npz(path, 1, crc=good, zip64=zip64)
            self.assertEqual(brim("run", text, "--memory", BUDGET).returncode, 0)
            write_npz(path, 1, rows=MIB // ROW + 1, zip64=zip64)
            self.refuse(text, b"the inflated member ends", command="plan")
            write_npz(path, 1, rows=1 << 50, zip64=zip64)
            self.refuse(text, b"the inflated member ends", command="plan")
            write_npz(path, 1, claimed=1 << 40, zip64=True)
            self.refuse(text, b"cannot inflate to", command="plan")
            write_npz(path, 1, claimed=whole - 1, zip64=zip64)
            self.refuse(text, b"the inflated member ends", command="plan")
            write_npz(path, 1, claimed=whole + 1, zip64=zip64)  # a lie that only unpacking sees
            self.assertEqual(brim("plan", text, "--memory", BUDGET).returncode, 0)
            self.refuse(text, b"but %d were expected" % (whole + 1))
            write_npz(path, 1, rows=10, claimed=128 + 10 * ROW, zip64=zip64)
            self.refuse(text, b"continue after the %d bytes" % (128 + 10 * ROW))
            write_npz(path, 1, crc=good ^ 1, zip64=zip64)
            self.refuse(text, b"CRC-32")

    def test_idx(self):
        path = self.folder / "x.gz"
        text = "idx '%s' | batch 4" % path
        write_idx(path, 1)
        self.assertEqual(brim("run", text, "--memory", BUDGET).returncode, 0)
        write_idx(path, 1, rows=MIB // ROW - 1)
        self.refuse(text, b"the gzip trailer gives a length", command="plan")
        write_idx(path, 1, length=1 << 31)
        self.refuse(text, b"the gzip trailer gives a length", command="plan")
        write_idx(path, 1, length=5)  # several members would have it so
        self.assertEqual(brim("plan", text, "--memory", BUDGET).returncode, 0)
        self.refuse(text, b"incorrect length check")
        write_idx(path, 1, rows=MIB // ROW + 1)
        self.refuse(text, b"were expected")
        write_idx(path, 1, rows=1 << 31)
        self.refuse(text, b"more than a file of", command="plan")
        # more than 2^32 bytes, of which the length is the rest: known by the header
        write_idx(path, 4100, rows=4100 * MIB // ROW)
        done = self.refuse(text, b"must be held in memory", code=3)
        self.assertIn(b"the smallest budget that fits: --memory 4299", done.stderr)


if __name__ == "__main__":
    main()
