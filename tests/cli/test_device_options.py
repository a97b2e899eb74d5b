"""Tests of the options that name devices and budgets: --device, --device-memory, --pinned,
--growth, --shared, --shared-memory; and of what is told about memory.

Needs python3's standard library, BRIM_CLI, the path of the program, and BRIM_CUDA_STANDIN, the path
of the stand-in for CUDA's driver (tests/standin/cuda_standin.h). What needs a device of OpenCL is
skipped where there is none.
"""

import json
import os
import pathlib
import re
import signal
import tempfile
import time
import unittest

from support import Case, brim, main, start, write_npy

STANDIN = os.environ.get("BRIM_CUDA_STANDIN", "")
SAMPLES, SIDE = 300, 16


def devices():
    """The devices of this machine, and the stand-in's."""
    found = json.loads(brim("devices", "--json").stdout)["devices"]
    return [row["device"] for row in found if row["device"] == "opencl:0"] + ["cuda:0", "cuda:1"]


@unittest.skipUnless(STANDIN, "BRIM_CUDA_STANDIN does not say where the stand-in is")
class Run(Case):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        write_npy(cls.folder / "images.npy", (SAMPLES, SIDE, SIDE, 3), "|u1", seed=3)
        write_npy(cls.folder / "labels.npy", (SAMPLES,), "|u1", seed=4)
        cls.data = "zip (npy %s/images.npy name=image) (npy %s/labels.npy name=label) | " % (
            holder.name, holder.name)
        cls.text = cls.data + ("shuffle seed=7 | normalize imagenet on=image | "
                               "layout chw on=image | batch 32")
        cls.devices = devices()

    def brim(self, *words, device="host", code=0):
        """On a device of CUDA with the stand-in, which must have nothing to complain about."""
        environment = dict(os.environ)
        report = self.folder / "report"
        if device.startswith("cuda"):
            folders = [str(pathlib.Path(STANDIN).parent), environment.get("LD_LIBRARY_PATH")]
            environment["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if folder)
            environment["CUDA_STANDIN_REPORT"] = str(report)
        done = brim(*words, "--device", device, env=environment)
        self.assertEqual(done.returncode, code, done)
        if device.startswith("cuda"):
            self.assertNotIn("violation:", report.read_text())
        return done

    def json(self, *words, **more):
        return json.loads(self.brim(*words, "--json", **more).stdout)


class Devices(Run):
    def test_batches_are_the_same_on_every_device(self):
        others = (self.data + "filter \"label != 7\" | batch 32",
                  self.data + "random_crop 8 on=image | flip on=image | batch 20 micro=3",
                  "text %s | batch 6" % __file__)
        for text in (self.text, *others):
            wanted = self.json("run", text, "--epochs", "2", "--digest")
            for device in self.devices:
                told = self.json("run", text, "--epochs", "2", "--digest", "--hold", "2",
                                 device=device)
                self.assertEqual(told["digest"], wanted["digest"], (device, text))
                self.assertEqual(told["bytes"], wanted["bytes"])
                self.assertEqual(told["device"], device)
                self.assertGreaterEqual(told["device_slots"], 2)
            self.assertEqual((wanted["device"], wanted["copied_bytes"]), ("host", 0))

    def test_what_is_converted_there_is_copied_as_bytes(self):
        for device in self.devices:
            plan = self.json("plan", self.text, device=device)
            fields = {field["name"]: field for field in plan["fields"]}
            converts = device.startswith("opencl")
            self.assertEqual(fields["image"]["converted_on_device"], converts)
            self.assertFalse(fields["label"]["converted_on_device"])
            self.assertEqual(fields["image"]["dtype"], "float32")
            # batches that are made ahead may be copied too, those of the next epoch
            least = SAMPLES * (SIDE * SIDE * 3 * (1 if converts else 4) + 1)
            told = self.json("run", self.text, device=device)
            self.assertGreaterEqual(told["copied_bytes"], least)
            self.assertLess(told["copied_bytes"], 2 * least)
            people = self.brim("plan", self.text, device=device).stdout.decode()
            said = "converted    image: uploaded as uint8, converted to float32 on the device\n" in people
            self.assertEqual(said, converts, people)

    def test_plans_show_all_kinds_of_memory(self):
        for device in self.devices:
            plan = self.json("plan", self.text, "--hold", "3", device=device)
            self.assertEqual(plan["device"], device)
            self.assertEqual(plan["minimum_device_slots"], 3)
            self.assertGreaterEqual(plan["device_slots"], 4)
            self.assertEqual(plan["minimum_device_bytes"],
                             3 * plan["device_slot_bytes"] + plan["device_fixed_bytes"])
            self.assertEqual(plan["minimum_pinned_bytes"],
                             plan["minimum_slots"] * plan["slot_bytes"])
            self.assertLessEqual(plan["minimum_device_bytes"], plan["planned_device_bytes"])
            people = self.brim("plan", self.text, "--hold", "3", device=device).stdout.decode()
            for row in (r"device +%s: \d+ slots of .*, at least 3 for --hold 3" % device,
                        r" +minimum .* \(%d bytes\), planned " % plan["minimum_device_bytes"],
                        r"page-locked +minimum .* \(%d bytes\), planned "
                        % plan["minimum_pinned_bytes"]):
                self.assertRegex(people, "(?m)^%s" % row)
        plan = self.json("plan", self.text)
        self.assertEqual([plan[name] for name in plan if "device" in name or "pinned" in name],
                         ["host"] + [0] * 8)

    def test_the_minimum_is_enough_and_a_byte_less_is_refused(self):
        for device in self.devices:
            plan = self.json("plan", self.text, device=device)
            least = {"--memory": plan["minimum_bytes"], "--pinned": plan["minimum_pinned_bytes"],
                     "--device-memory": plan["minimum_device_bytes"]}
            words = [word for pair in least.items() for word in pair]
            told = self.json("run", self.text, *words, device=device)
            self.assertEqual(told["samples"], SAMPLES)
            peaks = {kind["memory"]: kind["budgets"][0]["peak_bytes"] for kind in told["usage"]}
            self.assertLessEqual(peaks["host"], least["--memory"])
            self.assertLessEqual(peaks["page-locked"], least["--pinned"])
            self.assertLessEqual(peaks[device], least["--device-memory"])
            for option in least:
                less = [word if word != least[option] else word - 1 for word in words]
                done = self.brim("run", self.text, *less, device=device, code=3)
                said = done.stderr.decode()
                self.assertIn("the smallest budget that fits: --memory ", said)
                self.assertIn(" %s %d (" % (option, least[option]), said)
                answer = self.json("run", self.text, *less, device=device, code=3)
                self.assertIs(answer["fits"], False)
                self.assertEqual(answer["minimum_device_bytes"], least["--device-memory"])
                self.assertEqual(answer["minimum_pinned_bytes"], least["--pinned"])
                self.assertIs(self.json("plan", self.text, *less, device=device, code=3)["fits"],
                              False)

    def test_bench_tells_what_was_copied(self):
        for device in self.devices[:1]:
            words = ("bench", self.text, "--repeat", "1", "--steps", "20")
            told = self.json(*words, device=device)
            self.assertGreater(told["copied_bytes"], 0)
            self.assertEqual(told["device"], device)
            people = self.brim(*words, device=device).stdout.decode()
            self.assertRegex(people, r"(?m)^device +%s: \d+ slots, .* copied$" % device)

    def test_a_set_that_stays_on_the_device_is_copied_once(self):
        text = self.text.replace(" | batch", " | cache device | batch")
        for device in self.devices:
            once, often = (self.json("run", text, "--epochs", epochs, "--digest", device=device)
                           for epochs in "15")
            self.assertEqual(often["copied_bytes"], once["copied_bytes"], device)
            self.assertEqual(often["caches"][0]["tier"], "device")
            self.assertEqual(often["caches"][0]["filled"], SAMPLES)
            plain = self.json("run", self.text, "--epochs", "5", "--digest")
            self.assertEqual(often["digest"], plain["digest"])

    def test_states_go_from_one_device_to_another(self):
        state = str(self.folder / "at.state")
        wanted = self.json("run", self.text, "--seek", "0:4", "--digest")["digest"]
        for device in self.devices:
            self.brim("run", self.text, "--steps", "4", "--state", state, device=device)
            for other in ("host", device):
                told = self.json("run", self.text, "--resume", state, "--digest", device=other)
                self.assertEqual(told["digest"], wanted)


class Memory(Run):
    def test_holders_are_shown_as_a_tree_with_their_peaks(self):
        for device in self.devices:
            told = self.json("run", self.text, "--growth", "fixed", device=device)
            kinds = {kind["memory"]: kind["budgets"] for kind in told["usage"]}
            self.assertEqual(list(kinds), ["host", "page-locked", device])
            for budgets in kinds.values():
                root, *below = budgets
                self.assertEqual((root["label"], root["depth"]), ("runtime", 0))
                self.assertIn("run", [row["label"] for row in below])
                for row in budgets:
                    self.assertLessEqual(row["charged_bytes"], row["peak_bytes"])
                    self.assertLessEqual(row["elastic_bytes"], row["charged_bytes"])
                own = [row for row in below if row["depth"] == 1]
                self.assertLessEqual(sum(row["charged_bytes"] for row in own),
                                     root["charged_bytes"])
            people = self.brim("run", self.text, device=device).stdout.decode()
            at = people.index("memory  ", people.index("\n\n"))
            names = re.findall(r"(?m)^( *\S+)", people[at:])[1:]
            self.assertEqual([name for name in names if not name.startswith(" ")],
                             ["host", "page-locked", device], people)
            self.assertEqual(names.count("  run"), 3)

    def test_caches_are_below_their_loader(self):
        text = self.text.replace(" | batch", " | cache memory | batch")
        (host,) = self.json("run", text)["usage"]
        self.assertEqual([row["depth"] for row in host["budgets"]][-1], 2)

    def test_fixed_takes_all_that_was_planned(self):
        for device in ("host", *self.devices):
            plan = self.json("plan", self.text, "--memory", "32MiB", device=device)
            told = self.json("run", self.text, "--memory", "32MiB", "--growth", "fixed",
                             device=device)
            self.assertEqual(told["peak_charged_bytes"], plan["planned_bytes"])
            kinds = {kind["memory"]: kind["budgets"][0] for kind in told["usage"]}
            if device != "host":
                self.assertEqual(kinds[device]["peak_bytes"], plan["planned_device_bytes"])
                self.assertEqual(kinds["page-locked"]["peak_bytes"], plan["planned_pinned_bytes"])


class Shared(Run):
    def setUp(self):
        self.name = "cli-test-%d" % os.getpid()

    def test_takes_part_and_says_what_all_have(self):
        told = self.json("run", self.text, "--shared", self.name, "--shared-memory", "32MiB")
        self.assertEqual(told["limit_bytes"], 32 << 20)
        self.assertEqual(told["shared"]["limit_bytes"], 32 << 20)
        self.assertEqual(told["shared"]["processes"], 1)
        self.assertGreaterEqual(told["shared"]["used_bytes"], told["minimum_bytes"])
        people = self.brim("run", self.text, "--shared", self.name, "--shared-memory", "32MiB")
        self.assertRegex(people.stdout.decode(), r"(?m)^shared +.* of 32\.0 MiB, by 1 process$")
        self.assertNotIn("shared", self.json("run", self.text))

    def test_a_budget_that_is_too_small_is_refused(self):
        done = self.brim("run", self.text, "--shared", self.name, "--shared-memory", "200KiB",
                         code=3)
        said = done.stderr.decode()
        least = re.search(r"the smallest budget that fits: --shared-memory (\d+) ", said)
        self.assertIsNotNone(least, said)
        self.assertNotIn("--memory ", said.replace("--shared-memory ", ""))
        self.assertNotIn("other processes", said)
        words = ("run", self.text, "--shared", self.name, "--shared-memory")
        answer = self.json(*words, "200KiB", code=3)
        self.assertEqual(answer["minimum_shared_bytes"], int(least[1]))
        self.assertEqual(self.json(*words, least[1])["samples"], SAMPLES)
        self.brim(*words, str(int(least[1]) - 1), code=3)
        tiny = self.brim(*words, "1000", code=3).stderr.decode()
        self.assertIn("--shared-memory %s " % least[1], tiny)
        self.assertNotIn("other processes", tiny)

    def test_a_budget_that_another_process_fills_is_refused(self):
        other = start("run", "range 10000000 | cache memory | batch 10000", "--epochs", 1000000,
                      "--quiet", "--shared", self.name, "--shared-memory", "1MiB")
        self.addCleanup(other.communicate)
        self.addCleanup(other.send_signal, signal.SIGINT)  # so that it leaves nothing behind
        path = pathlib.Path("/dev/shm/brim-%d-%s" % (os.geteuid(), self.name))
        ends = time.monotonic() + 60
        while time.monotonic() < ends and not (path.exists() and path.stat().st_size):
            time.sleep(0.01)
        large = "range 1000000 | batch 100000"
        words = ("run", large, "--shared", self.name)
        said = self.brim(*words, code=3).stderr.decode()
        self.assertRegex(said, r"the smallest budget that fits: --shared-memory \d+ ")
        self.assertIn("other processes have ", said)
        self.assertIn("its limit can change only after all of them have ended", said)
        self.assertGreater(self.json(*words, code=3)["minimum_shared_bytes"], 1 << 20)


class Mistakes(Run):
    def refused(self, *words):
        done = brim("run", self.text, *words)
        self.assertEqual(done.returncode, 2, done)
        self.assertEqual(done.stdout, b"")
        return done.stderr.decode()

    def test_values_are_read_strictly(self):
        for option, value, wanted in (
                ("--device", "gpu", "brim devices lists them"),
                ("--device", "opencl:x", "opencl:0"),
                ("--device", "opencl:99", "at most 8 of a kind"),
                ("--device", "", "opencl:0"), ("--growth", "big", "grow or fixed"),
                ("--device-memory", "0", "64MiB"), ("--pinned", "some", "64MiB"),
                ("--shared", "", "a name"), ("--shared-memory", "-1", "64MiB")):
            said = self.refused(option, value)
            self.assertIn("%s: '%s' is not" % (option, value), said)
            self.assertIn(wanted, said)

    def test_options_that_need_another(self):
        for option in ("--device-memory", "--pinned"):
            self.assertIn("%s needs a device: give --device too" % option,
                          self.refused(option, "1MiB"))
        self.assertIn("--shared-memory needs --shared NAME",
                      self.refused("--shared-memory", "1MiB"))
        self.assertIn("a/b", self.refused("--shared", "a/b"))
        done = brim("show", self.text, "--device", "opencl")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("not an option of brim show but of brim plan, run and bench",
                      done.stderr.decode())

    def test_devices_that_are_not_there(self):
        said = self.brim("run", self.text, device="cuda:5", code=2).stderr.decode()
        self.assertIn("cuda:5", said)
        environment = dict(os.environ, LD_LIBRARY_PATH=str(pathlib.Path(STANDIN).parent),
                           CUDA_STANDIN_DEVICES="0")
        done = brim("run", self.text, "--device", "cuda:0", env=environment)
        self.assertIn(done.returncode, (1, 2), done)
        self.assertIn("cuda:0", done.stderr.decode())

if __name__ == "__main__":
    main()
