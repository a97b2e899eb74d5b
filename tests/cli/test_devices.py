"""Tests of `brim devices`: what is there, and why something is not.

Needs python3's standard library, BRIM_CLI, the path of the program, and BRIM_CUDA_STANDIN, the path
of the stand-in for CUDA's driver (tests/standin/cuda_standin.h).
"""

import json
import os
import pathlib
import unittest

from support import ROOT, Case, brim, main

STANDIN = os.environ.get("BRIM_CUDA_STANDIN", "")


def told(with_cuda=False, **environment):
    """What `brim devices --json` says, with the stand-in as CUDA's driver or as the machine is."""
    done = run("--json", with_cuda=with_cuda, **environment)
    return json.loads(done.stdout)


def run(*words, with_cuda=False, **environment):
    environment = dict(os.environ, **environment)
    if with_cuda:
        folders = [str(pathlib.Path(STANDIN).parent), os.environ.get("LD_LIBRARY_PATH")]
        environment["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if folder)
    done = brim("devices", *words, env=environment)
    if (done.returncode, done.stderr) != (0, b""):
        raise AssertionError(done)
    return done


def of_kind(answer, kind):
    return [device for device in answer["devices"] if device["kind"] == kind]


def missing(answer, device):
    """Why a device, or a kind of devices, is not there; None: it is."""
    reasons = [row for row in answer["missing"] if row["device"] == device]
    return reasons[0] if reasons else None


class Devices(Case):
    def test_the_host_is_there(self):
        (host,) = of_kind(told(), "host")
        self.assertEqual((host["device"], host["index"]), ("host", 0))
        self.assertGreater(host["total_bytes"], 0)
        self.assertLessEqual(host["free_bytes"], host["total_bytes"])
        self.assertTrue(host["unified"])

    def test_every_kind_is_there_or_missing_with_a_reason(self):
        answer = told()
        for kind, library in (("cuda", "libcuda.so.1"), ("opencl", "libOpenCL.so.1")):
            why = missing(answer, kind)
            self.assertNotEqual(bool(of_kind(answer, kind)), bool(why))
            if why is not None and "has no device" not in why["error"]:
                self.assertIn(library, why["error"])

    def test_people_are_told_the_same(self):
        answer = told()
        lines = run().stdout.decode().splitlines()
        self.assertEqual(lines[0].split(),
                         ["device", "memory", "free", "normalises", "name", "driver"])
        for row, device in zip(lines[1:], answer["devices"]):
            self.assertEqual(row.split()[0], device["device"])
            self.assertIn(device["name"], row)
            self.assertIn(device["driver"], row)
        for row in answer["missing"]:
            self.assertIn("%s: %s" % (row["device"], row["error"]), lines)

    def test_usage(self):
        self.assertEqual(brim("devices", "cuda").returncode, 2)
        self.assertEqual(brim("devices", "--memory", "1MiB").returncode, 2)

    def test_the_manual_page_has_it(self):
        page = (ROOT / "docs" / "man" / "brim.1").read_text()
        self.assertIn(".B brim devices\n", page)
        self.assertIn(".B devices\n", page)


@unittest.skipUnless(os.path.exists(STANDIN), "the stand-in for CUDA's driver is not built")
class Cuda(Case):
    def test_devices_of_the_driver(self):
        report = self.folder / "report"
        first, second = of_kind(told(with_cuda=True, CUDA_STANDIN_BYTES="5000000",
                                     CUDA_STANDIN_REPORT=str(report)), "cuda")
        self.assertEqual(first, {
            "device": "cuda:0", "kind": "cuda", "index": 0, "name": "Stand-in 0",
            "driver": "CUDA 13.0", "total_bytes": 5000000, "free_bytes": 5000000,
            "largest_bytes": None, "unified": False, "converts": False})
        self.assertEqual((second["device"], second["name"]), ("cuda:1", "Stand-in 1"))
        counts = dict(line.split(" ", 1) for line in report.read_text().splitlines())
        for left in ("violations", "retained", "depth"):
            self.assertEqual(counts[left], "0")
        self.assertIn("cuda:1", run(with_cuda=True).stdout.decode())

    def test_a_driver_without_devices(self):
        answer = told(with_cuda=True, CUDA_STANDIN_DEVICES="0")
        self.assertEqual(of_kind(answer, "cuda"), [])
        self.assertIn("no device", missing(answer, "cuda")["error"])

    def test_a_driver_that_does_not_start(self):
        for result, status, says in (("999", "BRIM_STATUS_DRIVER", "CUDA_ERROR_UNKNOWN (unknown error)"),
                                     ("803", "BRIM_STATUS_DRIVER", "error 803"),
                                     ("34", "BRIM_STATUS_UNSUPPORTED", "CUDA_ERROR_STUB_LIBRARY")):
            with self.subTest(result=result):
                why = missing(told(with_cuda=True, CUDA_STANDIN_INIT=result), "cuda")
                self.assertEqual(why["status"], status)
                self.assertIn("libcuda.so.1", why["error"])
                self.assertIn(says, why["error"])


if __name__ == "__main__":
    main()
