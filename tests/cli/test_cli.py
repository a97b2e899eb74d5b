"""Tests of the command line as a user meets it: exit codes, texts, JSON, files, signals.

Needs python3's standard library and BRIM_CLI, the path of the program. The help texts are
compared with golden/; BRIM_UPDATE_GOLDEN=1 writes them anew, for a person to read and commit.
"""

import fcntl
import json
import os
import pathlib
import re
import select
import signal
import struct
import subprocess
import termios
import time

import support
from support import catches

CLI = os.environ["BRIM_CLI"]
GOLDEN = pathlib.Path(__file__).parent / "golden"
RANGE = "range 1000 | shuffle seed=7 | batch 64"
LIMIT = 120  # seconds that one command may take, sanitizers included


def brim(*words, **more):
    return subprocess.run(
        [CLI, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        timeout=LIMIT, **more)


def write_npy(path, shape, values, dtype="<f4", code="f", fortran=False):
    header = "{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }" % (
        dtype, fortran, ", ".join(map(str, shape)) + ("," if len(shape) == 1 else ""))
    padding = -(10 + len(header) + 1) % 64
    header = (header + " " * padding + "\n").encode()
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        file.write(struct.pack("<%d%s" % (len(values), code), *values))


class Case(support.Case):
    def good(self, *words):
        done = brim(*words)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return done.stdout.decode()

    def good_json(self, *words):
        return json.loads(self.good(*words, "--json"))

    def bad(self, code, *words):
        """The command fails with `code` and says why on stderr, and on stdout as JSON."""
        plain = brim(*words)
        self.assertEqual(plain.returncode, code, plain)
        self.assertTrue(plain.stderr.strip(), "nothing is said on stderr")
        return plain.stderr.decode()

    def bad_json(self, code, *words):
        done = brim(*words, "--json")
        self.assertEqual(done.returncode, code, done)
        self.assertTrue(done.stderr.strip(), "nothing is said on stderr")
        told = json.loads(done.stdout)
        self.assertTrue(told["error"])
        self.assertTrue(told["status"].startswith("BRIM_"))
        return told


class Help(Case):
    def golden(self, name, text):
        path = GOLDEN / name
        if os.environ.get("BRIM_UPDATE_GOLDEN"):
            path.write_text(text)
        self.assertEqual(text, path.read_text())

    def test_help_texts_are_the_golden_ones(self):
        self.golden("help.txt", self.good("help"))
        for command in ("plan", "run", "bench", "cat", "show", "inspect", "index", "cache",
                        "devices", "stages", "completion"):
            self.golden("help-%s.txt" % command, self.good("help", command))

    def test_all_ways_to_help_say_the_same(self):
        self.assertEqual(self.good("help"), self.good("--help"))
        self.assertEqual(self.good("help"), self.good("-h"))
        for command in ("plan", "run", "bench", "cat", "show", "inspect", "index", "cache",
                        "devices", "stages", "completion", "help", "version"):
            self.assertEqual(self.good("help", command), self.good(command, "--help"))
            self.assertEqual(self.good("help", command), self.good(command, "-h"))

    def test_help_needs_no_pipeline_and_no_right_order(self):
        self.assertEqual(self.good("run", RANGE, "--help"), self.good("help", "run"))

    def test_no_command_is_a_mistake_and_shows_the_help(self):
        done = brim()
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.decode(), self.good("help"))
        self.assertEqual(done.stdout, b"")

    def test_a_stage_is_helped_with_too(self):
        self.assertEqual(self.good("help", "shuffle"), self.good("stages", "shuffle"))

    def test_version(self):
        self.assertRegex(self.good("version"), r"^brim \d+\.\d+\.\d+\n$")
        self.assertEqual(self.good("version"), self.good("--version"))


class Usage(Case):
    def test_unknown_words_get_the_nearest_suggestion(self):
        self.assertIn("did you mean run?", self.bad(2, "rum", RANGE))
        self.assertIn("did you mean --memory?", self.bad(2, "run", RANGE, "--memroy", "1MiB"))
        self.assertIn("did you mean --epochs?", self.bad(2, "run", RANGE, "--epoch=2"))
        self.assertIn("did you mean shuffle?", self.bad(2, "stages", "shufle"))
        self.assertIn("did you mean bench?", self.bad(2, "help", "bnech"))

    def test_what_resembles_nothing_gets_no_suggestion(self):
        for words in (["xyzzyplugh"], ["run", RANGE, "--xyzzyplugh"], ["stages", "xyzzyplugh"]):
            self.assertNotIn("did you mean", self.bad(2, *words))

    def test_a_file_in_the_place_of_a_pipeline(self):
        path = self.folder / "t.csv"
        path.write_bytes(b"a,b\n1,2\n")
        for command in ("plan", "run", "bench", "cat"):
            said = self.bad(2, command, str(path))
            self.assertIn("is a file", said)
            self.assertIn("'csv %s'" % path, said)
        path = self.folder / "odd.xyz"
        path.write_bytes(b"\0\1\2\3")
        self.assertIn("is a file", self.bad(2, "cat", str(path)))
        self.assertNotIn("is a file", self.bad(2, "cat", "none.csv"))
        (self.folder / "x.jpg").write_bytes(b"image")
        said = self.bad(2, "cat", str(self.folder))
        self.assertIn("is a directory", said)
        self.assertIn("'folder %s'" % self.folder, said)

    def test_an_option_of_another_command_is_named_as_such(self):
        self.assertIn("of brim run", self.bad(2, "plan", RANGE, "--digest"))
        self.assertIn("of brim bench", self.bad(2, "run", RANGE, "--repeat", "3"))

    def test_bad_values_name_the_option_and_what_is_wanted(self):
        for option, values in {
            "--memory": ["", "x", "-1", "0", "1.2.3MiB", "5XiB", "99999999TiB", "1e6", " 5",
                         "5 MiB"],
            "--threads": ["", "-1", "two", "99999999999"],
            "--epochs": ["0", "-1", "1.5", "18446744073709551616"],
            "--steps": ["0", "many"],
            "--shard": ["1", "2/2", "1/0", "/2", "0/", "-1/2", "0/4294967296"],
            "--hold": ["0", "4294967296"],
            "--seek": ["1", ":", "1:", ":1", "1:-1", "1:2:3"],
            "--state": [""],
        }.items():
            for value in values:
                with self.subTest(option=option, value=value):
                    said = self.bad(2, "run", RANGE, "%s=%s" % (option, value))
                    self.assertIn(option, said)
                    self.assertIn("is not", said)

    def test_values_may_follow_or_stand_behind_equals(self):
        for words in (["--memory", "32MiB"], ["--memory=32MiB"], ["--memory=33554432"],
                      ["--memory", "32768KiB"], ["--memory=0.03125GiB"]):
            with self.subTest(words=words):
                self.assertEqual(self.good_json("plan", RANGE, *words)["limit_bytes"], 32 << 20)
        self.assertEqual(self.good_json("plan", "--memory=5MB", RANGE)["limit_bytes"], 5000000)

    def test_options_and_pipeline_in_any_order(self):
        first = self.good("run", "--quiet", "--digest", RANGE)
        self.assertEqual(first, self.good("run", RANGE, "--digest", "--quiet"))
        self.assertEqual(first, self.good("run", "--quiet", "--digest", "--", RANGE))

    def test_a_missing_value_and_a_value_too_many(self):
        self.assertIn("needs a value", self.bad(2, "run", RANGE, "--memory"))
        self.assertIn("takes no value", self.bad(2, "run", RANGE, "--digest=yes"))

    def test_the_pipeline_is_one_argument(self):
        self.assertIn("pipeline is missing", self.bad(2, "run"))
        self.assertIn("in quotes", self.bad(2, "run", "range", "1000"))
        self.assertIn("takes no", self.bad(2, "version", "x"))

    def test_options_that_contradict(self):
        self.assertIn("--state", self.bad(2, "run", RANGE, "--state-every", "3"))
        self.assertIn("--resume", self.bad(2, "run", RANGE, "--seek", "0:1", "--resume", "x"))

    def test_mistakes_are_json_too(self):
        self.assertEqual(self.bad_json(2, "run", RANGE, "--memroy=1")["status"], "BRIM_STATUS_INVALID")
        self.assertEqual(self.bad_json(2, "plan")["status"], "BRIM_STATUS_INVALID")
        self.assertEqual(self.bad_json(2, "stages", "shufle")["status"], "BRIM_STATUS_INVALID")

    def test_bad_pipelines(self):
        for text in ("", "|", "range", "rnage 1000 | batch 64", "range 1000 | batch 64 |",
                     "range 1000 | batch (", "range 1000 | batch 64 nonsense=1",
                     "range 1000 | batch -1"):
            for command in ("plan", "run", "bench"):
                with self.subTest(text=text, command=command):
                    told = self.bad_json(2, command, text)
                    self.assertIn(told["status"], ("BRIM_STATUS_SYNTAX", "BRIM_STATUS_INVALID"))
        self.assertEqual(self.bad_json(2, "plan", "array @x | batch 4")["status"], "BRIM_STATUS_UNBOUND")

    def test_stages_as_others_call_them(self):
        names = {stage["name"] for stage in self.good_json("stages")["stages"]}
        for foreign, here in (("to_tensor", "normalize unit | layout chw"),
                              ("ToTensor", "normalize"), ("random_horizontal_flip", "flip"), ("image_folder", "folder"),
                              ("center", "center_crop"), ("resize_shorter", "resize"),
                              ("RandomResizedCrop", "random_resized_crop"), ("gray", "grayscale"),
                              ("RandAugment", "trivial_augment"), ("limit", "take")):
            with self.subTest(foreign=foreign):
                told = self.bad_json(2, "plan", "range 3 | %s | batch 2" % foreign)
                self.assertIn("did you mean '%s" % here, told["error"])
                self.assertIn(here.split()[0], names)

    def test_no_control_characters_reach_the_terminal(self):
        said = self.bad(2, "run", "ra\x1b[31mnge 1000")
        self.assertNotIn("\x1b", said)
        self.assertNotIn("\x1b", self.bad(2, "run", RANGE, "--mem\x1b[31mory"))

    def test_json_is_valid_whatever_the_bytes(self):
        for text in (b"range \xff\xfe", b"npy '\xed\xa0\x80.npy' | batch 1", b"\x01\x02\"\\",
                     "ñ 😀".encode()):
            done = brim("plan", text, "--json")
            self.assertNotEqual(done.returncode, 0)
            json.loads(done.stdout.decode("utf-8"))


class Stages(Case):
    def test_the_list_has_the_rooms_in_order(self):
        lines = self.good("stages").splitlines()
        expected = (GOLDEN / "stages.txt").read_text().splitlines()
        fixed = [line for line in lines if not re.fullmatch(r"  \S+ +\S.*", line)]
        self.assertEqual(fixed, expected)

    def test_list_and_json_name_the_same_stages(self):
        stages = self.good_json("stages")["stages"]
        listed = re.findall(r"^  (\S+)", self.good("stages"), re.M)
        self.assertEqual(sorted(listed), sorted(stage["name"] for stage in stages))
        self.assertLessEqual({"range", "npy", "shuffle", "batch"}, set(listed))
        for stage in stages:
            self.assertIn(stage["room"], ("source", "order", "transform", "batching", "cache"))
            self.assertTrue(stage["summary"] and stage["example"])
            self.assertTrue(stage["example"].startswith(stage["name"]), stage["example"])

    def test_one_stage_in_full(self):
        for stage in self.good_json("stages")["stages"]:
            with self.subTest(stage=stage["name"]):
                self.assertEqual(self.good_json("stages", stage["name"]), stage)
                shown = self.good("stages", stage["name"])
                self.assertIn(stage["summary"], shown)
                self.assertIn(stage["example"], shown)
                for argument in stage["arguments"]:
                    self.assertRegex(shown, r"(?m)^  \[?%s=" % re.escape(argument["name"]))
                    self.assertIn(argument["help"], shown)
                    if argument["default"]:
                        self.assertIn(argument["default"], shown)


class Plan(Case):
    def test_json(self):
        plan = self.good_json("plan", RANGE, "--memory", "32MiB", "--threads", "2")
        self.assertIs(plan["fits"], True)
        self.assertEqual(plan["reason"], "")
        self.assertEqual(plan["limit_bytes"], 32 << 20)
        self.assertLessEqual(plan["minimum_bytes"], plan["planned_bytes"])
        self.assertLessEqual(plan["planned_bytes"], plan["limit_bytes"])
        self.assertLessEqual(plan["threads"], 2)
        self.assertGreaterEqual(plan["slots"], 2)
        self.assertEqual(plan["samples"], 1000)
        self.assertEqual(plan["steps"], plan["batches"])
        self.assertEqual(plan["batches"], 16)
        self.assertEqual(len(plan["fields"]), 1)
        for key in ("name", "dtype", "shape", "bytes"):
            self.assertIn(key, plan["fields"][0])
        self.assertEqual(plan["fields"][0]["shape"][0], 64)
        self.assertEqual([stage["name"] for stage in plan["stages"]], ["range", "shuffle", "batch"])
        for stage in plan["stages"]:
            self.assertEqual(set(stage), {"name", "text", "effect", "bytes", "fused"})
        for name in ("data", "sample", "order"):
            self.assertRegex(plan["fingerprints"][name], r"^[0-9a-f]{16}$")

    def test_table_shows_what_the_json_says(self):
        words = ["plan", RANGE, "--memory", "32MiB"]
        plan = self.good_json(*words)
        shown = self.good(*words)
        for stage in plan["stages"]:
            self.assertIn(stage["text"], shown)
            self.assertIn(stage["effect"], shown)
        for value in plan["fingerprints"].values():
            self.assertIn(value, shown)
        self.assertIn("%d bytes" % plan["minimum_bytes"], shown)
        self.assertIn("32.0 MiB", shown)
        self.assertIn(plan["limit_origin"], shown)

    def test_fields_of_a_file(self):
        path = self.folder / "x.npy"
        write_npy(path, (10, 3, 4), range(120))
        plan = self.good_json("plan", "npy %s | batch 5" % path)
        field = plan["fields"][0]
        self.assertEqual((field["dtype"], field["shape"]), ("float32", [5, 3, 4]))
        self.assertEqual(field["bytes"], 5 * 3 * 4 * 4)
        self.assertEqual((plan["samples"], plan["batches"]), (10, 2))

    def test_the_fingerprints_follow_what_they_stand_for(self):
        one = self.good_json("plan", RANGE)["fingerprints"]
        other = self.good_json("plan", RANGE.replace("7", "8"))["fingerprints"]
        self.assertEqual(one["data"], other["data"])
        self.assertNotEqual(one["order"], other["order"])
        same = self.good_json("plan", RANGE, "--memory=40MiB", "--threads=1", "--shard=0/2")
        self.assertEqual(one["order"], same["fingerprints"]["order"])


class Budget(Case):
    def test_the_minimum_is_exact(self):
        for pipeline, options in ((RANGE, ["--threads=0"]), (RANGE, ["--threads=2"]),
                                  ("range 5000 | batch 1000", ["--hold=3"])):
            with self.subTest(pipeline=pipeline, options=options):
                least = self.good_json("plan", pipeline, *options)["minimum_bytes"]
                enough = ["--memory=%d" % least, *options]
                self.assertTrue(self.good_json("plan", pipeline, *enough)["fits"])
                ran = self.good_json("run", pipeline, *enough)
                self.assertLessEqual(ran["peak_charged_bytes"], least)
                short = ["--memory=%d" % (least - 1), *options]
                for command in ("plan", "run", "bench"):
                    self.assertIn("--memory %d " % least, self.bad(3, command, pipeline, *short))

    def test_even_one_byte_is_refused_with_the_minimum(self):
        least = self.good_json("plan", RANGE)["minimum_bytes"]
        for command in ("plan", "run", "bench"):
            with self.subTest(command=command):
                done = brim(command, RANGE, "--memory=1", "--json")
                self.assertEqual(done.returncode, 3, done)
                told = json.loads(done.stdout)
                self.assertIs(told["fits"], False)
                self.assertEqual(told["minimum_bytes"], least)
                self.assertIn("smallest budget", done.stderr.decode())

    def test_run_says_its_status(self):
        told = self.bad_json(3, "run", RANGE, "--memory=100KiB")
        self.assertEqual(told["status"], "BRIM_STATUS_BUDGET")


    def test_a_stream_is_not_read_twice_for_the_minimum(self):
        def run(command, memory):
            done = subprocess.run([CLI, command, "csv - | batch 1000", "--memory", str(memory),
                                   "--json"], input=b"a,b\n1,2\n", stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=LIMIT)
            return done, json.loads(done.stdout)

        minimum = run("plan", 64 << 20)[1]["minimum_bytes"]
        for memory in (1024, minimum - 1):
            done, told = run("run", memory)
            self.assertEqual((done.returncode, told["minimum_bytes"]), (3, minimum), done)
            self.assertIn(b"--memory %d " % minimum, done.stderr)
        done, told = run("run", 200 << 10)
        self.assertEqual(done.returncode, 3, done)
        self.assertNotIn("minimum_bytes", told)
        self.assertIn(b"is not known, but it is at least: --memory %d " % told["at_least_bytes"],
                      done.stderr)
        self.assertTrue(200 << 10 < told["at_least_bytes"] <= minimum, told)
        self.assertEqual(run("run", minimum)[0].returncode, 0)


class Run(Case):
    def test_a_start_at_the_end_is_noted(self):
        words = ["run", "range 100 | batch 10", "--seek", "0:10"]
        done = brim(*words)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b"no batch came", done.stderr)
        self.assertEqual(brim(*words, "--quiet").stderr, b"")
        self.assertEqual(brim(*words[:-1], "0:9").stderr, b"")

    def test_json(self):
        ran = self.good_json("run", RANGE, "--memory", "32MiB", "--threads", "2", "--digest")
        self.assertEqual(ran["epochs"], 1)
        self.assertEqual((ran["skipped"], ran["replaced"]), (0, 0))
        self.assertEqual((ran["batches"], ran["samples"]), (16, 1000))
        self.assertGreater(ran["bytes"], 0)
        self.assertGreater(ran["seconds"], 0)
        self.assertAlmostEqual(ran["samples_per_second"] * ran["seconds"], ran["samples"], delta=1)
        self.assertGreater(ran["first_batch_seconds"], 0)
        self.assertLessEqual(ran["first_batch_seconds"], ran["seconds"])
        self.assertLessEqual(ran["minimum_bytes"], ran["planned_bytes"])
        self.assertLessEqual(ran["peak_charged_bytes"], ran["planned_bytes"])
        self.assertLessEqual(ran["planned_bytes"], ran["limit_bytes"])
        self.assertEqual(ran["limit_bytes"], 32 << 20)
        self.assertGreater(ran["peak_rss_bytes"], 0)
        self.assertGreaterEqual(ran["slots"], 2)
        self.assertLessEqual(ran["threads"], 2)
        self.assertRegex(ran["digest"], r"^[0-9a-f]{32}$")
        self.assertNotIn("digest", self.good_json("run", RANGE))

    def test_summary(self):
        shown = self.good("run", RANGE, "--memory=32MiB", "--digest")
        for word in ("samples", "time", "rate", "memory", "RSS", "workers", "digest"):
            self.assertRegex(shown, r"(?m)^%s +\S" % word)
        self.assertIn("of 32.0 MiB", shown)

    def test_quiet(self):
        self.assertEqual(self.good("run", RANGE, "--quiet"), "")
        self.assertRegex(self.good("run", RANGE, "--quiet", "--digest"), r"^[0-9a-f]{32}\n$")

    def test_the_digest_depends_on_the_batches_alone(self):
        digest = lambda *words: self.good_json("run", "--digest", *words)["digest"]
        one = digest(RANGE)
        for words in (["--threads=0"], ["--threads=1"], ["--threads=3"], ["--hold=3"],
                      ["--slots=2"], ["--memory=64MiB"], ["--shard=0/1"], ["--seek=0:0"]):
            with self.subTest(words=words):
                self.assertEqual(digest(RANGE, *words), one)
        for words in ([RANGE.replace("7", "8")], [RANGE.replace("64", "32")],
                      [RANGE, "--epochs=2"], [RANGE, "--steps=3"], [RANGE, "--shard=0/2"]):
            with self.subTest(words=words):
                self.assertNotEqual(digest(*words), one)

    def test_the_digest_sees_elements_not_how_they_lie(self):
        values = [float(i) for i in range(8 * 2 * 3)]
        columns = [values[s * 6 + i * 3 + j] for j in range(3) for i in range(2) for s in range(8)]
        write_npy(self.folder / "c.npy", (8, 2, 3), values)
        write_npy(self.folder / "f.npy", (8, 2, 3), columns, fortran=True)
        values[-1] += 1
        write_npy(self.folder / "other.npy", (8, 2, 3), values)
        digests = []
        for name in ("c.npy", "f.npy", "other.npy"):
            pipeline = "npy %s map=yes | batch 4" % (self.folder / name)
            digests.append(self.good_json("run", pipeline, "--digest")["digest"])
        self.assertEqual(digests[0], digests[1])
        self.assertNotEqual(digests[0], digests[2])

    def test_epochs_and_steps(self):
        one = self.good_json("run", RANGE)
        three = self.good_json("run", RANGE, "--epochs=3")
        self.assertEqual(three["batches"], 3 * one["batches"])
        self.assertEqual(three["epochs"], 3)
        some = self.good_json("run", RANGE, "--steps=5")
        self.assertEqual((some["batches"], some["samples"], some["epochs"]), (5, 320, 0))
        over = self.good_json("run", RANGE, "--epochs=2", "--steps=%d" % (one["batches"] + 1))
        self.assertEqual((over["batches"], over["epochs"]), (one["batches"] + 1, 1))

    def test_shards_share_the_samples(self):
        ran = [self.good_json("run", "range 1024 | batch 64", "--shard=%d/4" % rank)
               for rank in range(4)]
        self.assertEqual(sum(one["samples"] for one in ran), 1024)
        self.assertEqual(len({one["batches"] for one in ran}), 1)

    def test_seek(self):
        every = self.good_json("run", RANGE, "--epochs=2")
        last = self.good_json("run", RANGE, "--seek=1:10")
        self.assertEqual(last["batches"], every["batches"] // 2 - 10)
        self.bad(2, "run", RANGE, "--seek=0:1000")

    def test_bad_data(self):
        path = self.folder / "x.npy"
        write_npy(path, (100, 4), range(400))
        path.write_bytes(path.read_bytes()[:-100])
        told = self.bad_json(1, "run", "npy %s | batch 10" % path)
        self.assertEqual(told["status"], "BRIM_STATUS_CORRUPT")
        self.assertIn("x.npy", told["error"])
        told = self.bad_json(1, "run", "npy %s | batch 10" % (self.folder / "none.npy"))
        self.assertEqual(told["status"], "BRIM_STATUS_IO")
        self.assertIn("none.npy", told["error"])


class BadSamples(Case):
    def lines(self, *lines):
        path = self.folder / "lines.txt"
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return "text '%s' index=beside" % path

    def shown(self, out):
        return [line.strip() for line in out.splitlines() if "is not UTF-8" in line]

    def test_each_is_shown_once(self):
        text = self.lines(*[b"good"] * 7, b"\xff", *[b"good"] * 7, b"\xff", b"\xff")
        for threads in (0, 2):
            out = self.good("run", text + " | batch 4 on_error=skip", "--epochs=3",
                            "--threads=%d" % threads)
            self.assertIn("9 skipped, 0 replaced", out)
            shown = self.shown(out)
            self.assertEqual(len(shown), 3)
            self.assertEqual(len(set(shown)), 3)
            self.assertIn("and 6 more, counted in each epoch", out)
            out = self.good("run", text + " | batch 4 on_error=skip", "--threads=%d" % threads)
            self.assertEqual(len(self.shown(out)), 3)
            self.assertNotIn("more", out)

    def test_more_than_are_shown(self):
        text = self.lines(*[b"good", b"\xff"] * 40)
        out = self.good("run", text + " | batch 2 on_error=skip", "--threads=0")
        self.assertEqual(len(set(self.shown(out))), 5)
        self.assertIn("and 35 more\n", out)
        told = self.good_json("run", text + " | batch 2 on_error=skip", "--threads=0")
        self.assertEqual(told["skipped"], 40)
        self.assertEqual(len(set(told["errors"])), 40)
        self.assertIn("record 1 ", told["errors"][0])

    def test_not_those_of_a_batch_that_never_came(self):
        text = self.lines(*[b"good", b"\xff"] * 3)
        done = brim("run", text + " | batch 2 on_error=skip max_errors=2", "--threads=0")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(b"2 skipped", done.stdout)
        self.assertEqual(len(self.shown(done.stdout.decode())), 2)
        self.assertIn(b"max_errors=2", done.stderr)

    def test_empty_batches(self):
        text = self.lines(*[b"good"] * 2, *[b"\xff"] * 2, *[b"good"] * 4)
        told = self.good_json("run", text + " | batch 2 on_error=skip")
        self.assertEqual((told["batches"], told["samples"], told["empty"], told["warning"]),
                         (3, 6, 1, ""))
        done = brim("run", text + " | batch 4 per=global on_error=skip", "--shard=1/2",
                    "--epochs=2")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(done.stderr.count(b"brim run: warning: on_error=skip: all samples"), 1)
        self.assertIn(b"on_error=replace", done.stderr)

    def test_the_end_of_an_epoch_may_be_bad(self):
        """Of a run that begins behind the last good sample."""
        text = self.lines(*[b"good"] * 4, *[b"\xff"] * 4) + " | batch 2 on_error=skip"
        path = self.folder / "at.state"
        self.good("run", text, "--steps=2", "--state", path)
        told = self.good_json("run", text, "--resume", path, "--epochs=2")
        self.assertEqual((told["samples"], told["epochs"]), (4, 2))
        self.good("run", text, "--seek=0:3")

    def test_an_epoch_without_a_good_one_is_a_failure(self):
        text = self.lines(*[b"\xff"] * 5)
        told = self.bad_json(1, "run", text + " | batch 2 on_error=skip", "--epochs=2")
        self.assertIn("all 5 samples of epoch 0 were bad", told["error"])
        self.assertEqual((told["samples"], told["skipped"], told["epochs"]), (0, 5, 1))
        text = self.lines(*[b"\xff"] * 5, b"good")
        self.good("run", text + " | batch 2 on_error=skip", "--epochs=2")


class State(Case):
    def setUp(self):
        super().setUp()
        self.path = str(self.folder / "at.state")

    def rest(self, *words):
        return self.good_json("run", RANGE, "--digest", *words)

    def test_resume_goes_on_where_the_run_stopped(self):
        self.good("run", RANGE, "--steps=5", "--state", self.path)
        self.assertEqual(os.path.getsize(self.path), support.STATE_BYTES)
        self.assertEqual(os.listdir(self.folder), ["at.state"])
        sought = self.rest("--seek=0:5")
        for words in ([], ["--threads=0"]):
            resumed = self.rest("--resume", self.path, *words)
            self.assertEqual(resumed["digest"], sought["digest"])
            self.assertEqual(resumed["batches"], sought["batches"])

    def test_a_whole_epoch_is_followed_by_the_next(self):
        self.good("run", RANGE, "--state", self.path)
        self.assertEqual(self.rest("--resume", self.path)["digest"],
                         self.rest("--seek=1:0")["digest"])

    def test_the_state_may_be_read_and_written_in_one_run(self):
        for _ in range(3):
            words = ["--resume", self.path] if os.path.exists(self.path) else []
            self.good("run", RANGE, "--steps=4", "--state", self.path, *words)
        self.assertEqual(self.rest("--resume", self.path)["digest"],
                         self.rest("--seek=0:12")["digest"])

    def test_every_k_batches(self):
        # killed without mercy, what is left is the last state in full
        pipeline = "range 100000000 | shuffle seed=7 | batch 64"
        process = subprocess.Popen(
            [CLI, "run", pipeline, "--quiet", "--state", self.path, "--state-every=10"],
            stdin=subprocess.DEVNULL)
        try:
            self.wait_for("there is no state", lambda: os.path.exists(self.path))
        finally:
            process.kill()
            process.wait()
        self.assertEqual(os.path.getsize(self.path), support.STATE_BYTES)
        self.good("run", pipeline, "--steps=1", "--resume", self.path)

    def test_a_state_of_another_order_or_other_data_is_refused(self):
        self.good("run", RANGE, "--steps=5", "--state", self.path)
        for text in (RANGE.replace("7", "8"), RANGE.replace("1000", "1001")):
            told = self.bad_json(1, "run", text, "--resume", self.path)
            self.assertEqual(told["status"], "BRIM_STATUS_MISMATCH")

    def test_files_that_are_no_states(self):
        size = support.STATE_BYTES
        for content in (b"", b"x" * (size - 1), b"x" * (size + 1), b"x" * size):
            pathlib.Path(self.path).write_bytes(content)
            with self.subTest(length=len(content)):
                self.bad_json(1, "run", RANGE, "--resume", self.path)
        self.bad(1, "run", RANGE, "--resume", str(self.folder / "none"))
        self.bad(1, "run", RANGE, "--resume", str(self.folder))

    def test_a_state_that_cannot_be_written(self):
        for path in (self.folder / "no" / "folder", self.folder, "%s/new/" % self.folder):
            with self.subTest(path=path):
                told = self.bad_json(2, "run", RANGE, "--state", str(path))
                self.assertIn("cannot write the state", told["error"])
                self.assertNotIn("samples", told)  # not a batch was taken


class Bench(Case):
    WORDS = ["bench", RANGE, "--repeat=3", "--steps=20"]

    def test_json(self):
        told = self.good_json(*self.WORDS)
        rate = told["samples_per_second"]
        self.assertEqual(len(told["repeats"]), 3)
        self.assertEqual(sorted(told["repeats"]), told["repeats"])
        self.assertEqual(rate["min"], told["repeats"][0])
        self.assertEqual(rate["median"], told["repeats"][1])
        self.assertEqual(rate["max"], told["repeats"][2])
        self.assertTrue(rate["min"] <= rate["q1"] <= rate["median"] <= rate["q3"] <= rate["max"])
        self.assertGreater(rate["min"], 0)
        shares = sum(stage["share"] for stage in told["stages"])
        self.assertTrue(shares == 0 or abs(shares - 1) < 1e-6, shares)
        self.assertTrue(told["stages"])

    def test_fused_stages_have_no_numbers(self):
        path = self.folder / "x.npy"
        support.write_npy(path, (64, 4, 4, 3), "|u1")
        words = ["bench", "npy %s | normalize unit | layout chw | batch 8" % path, "--repeat=1",
                 "--steps=4"]
        plan = self.good_json("plan", words[1])
        fused = [stage["name"] for stage in plan["stages"] if stage["fused"]]
        self.assertTrue(fused)
        told = self.good_json(*words)
        self.assertEqual([stage["name"] for stage in told["stages"] if stage["fused"]], fused)
        lines = self.good(*words).splitlines()
        for name in fused:
            self.assertIn("+ " + name, lines)  # and nothing behind it
        self.assertTrue(any(line.startswith("(+ is done in one pass") for line in lines))

    def test_table(self):
        shown = self.good(*self.WORDS)
        for word in ("median", "spread", "repeats", "workers", "memory", "stage"):
            self.assertRegex(shown, r"(?m)^%s +\S" % word)

    def test_seconds_bound_each_repeat(self):
        begin = time.monotonic()
        told = self.good_json("bench", RANGE, "--repeat=2", "--seconds=0.1")
        self.assertEqual(len(told["repeats"]), 2)
        self.assertGreater(time.monotonic() - begin, 0.3)


class Signals(Case):
    LONG = "range 1000000000000 | shuffle seed=7 | batch 64"

    def interrupt(self, number, *words, command="run", when=lambda: True):
        process = subprocess.Popen([CLI, command, self.LONG, *words], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            self.wait_for("it does not begin", lambda: catches(process, number) and when())
            process.send_signal(number)
            out, err = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
        return process.returncode, out.decode(), err.decode()

    def test_interrupt_writes_the_state_and_sums_up(self):
        path = str(self.folder / "at.state")
        code, out, err = self.interrupt(signal.SIGINT, "--json", "--state", path,
                                        "--state-every=1", when=lambda: os.path.exists(path))
        self.assertEqual((code, err), (130, ""))
        told = json.loads(out)
        self.assertIs(told["interrupted"], True)
        self.assertGreater(told["batches"], 0)
        resumed = self.good_json("run", self.LONG, "--resume", path, "--steps=3", "--digest")
        sought = self.good_json("run", self.LONG, "--seek=0:%d" % told["batches"], "--steps=3",
                                "--digest")
        self.assertEqual(resumed["digest"], sought["digest"])

    def test_interrupt_for_people(self):
        code, out, err = self.interrupt(signal.SIGINT)
        self.assertEqual((code, err), (130, ""))
        self.assertIn("interrupted", out)

    def test_interrupt_in_the_warm_up_of_a_bench(self):
        code, out, err = self.interrupt(signal.SIGINT, "--json", "--seconds=100", command="bench")
        self.assertEqual((code, err), (130, ""))
        told = json.loads(out)
        self.assertEqual((told["interrupted"], told["repeats"]), (True, []))
        self.assertIsNone(told["samples_per_second"]["median"])

    def test_terminate(self):
        self.assertEqual(self.interrupt(signal.SIGTERM, "--quiet"), (143, "", ""))

    def test_a_reader_that_goes_away_is_no_failure(self):
        for ignored in (False, True):
            with self.subTest(ignored=ignored):
                reader, writer = os.pipe()
                os.close(reader)
                done = subprocess.run([CLI, "stages", "--json"], stdout=writer,
                                      stderr=subprocess.PIPE, timeout=LIMIT,
                                      restore_signals=not ignored)
                os.close(writer)
                self.assertIn(done.returncode, (-signal.SIGPIPE, 128 + signal.SIGPIPE))
                self.assertEqual(done.stderr, b"")

    def test_a_full_disk_is_a_failure(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([CLI, "stages"], stdout=full, stderr=subprocess.PIPE,
                                  timeout=LIMIT)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot write", done.stderr)


class Progress(Case):
    def on_terminal(self, *words, columns=120, stdin=subprocess.DEVNULL, look=lambda shown: None):
        """What a command shows on a terminal that is its stderr; `look` sees it as it comes."""
        master, terminal = support.open_terminal(self)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([CLI, *words], stdin=stdin, stdout=subprocess.DEVNULL,
                                   stderr=terminal)
        os.close(terminal)
        self.addCleanup(process.kill)
        shown = b""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            ready, _, _ = select.select([master], [], [], 1)
            if not ready:
                continue
            try:
                piece = os.read(master, 4096)
            except OSError:  # all ends of the terminal are closed
                break
            if not piece:
                break
            shown += piece
            look(shown)
        os.close(master)
        self.assertEqual(process.wait(timeout=LIMIT), 0)
        return shown.decode()

    WORDS = ["bench", RANGE, "--repeat=1", "--seconds=0.6"]

    def test_a_line_on_terminals_cleared_at_the_end(self):
        shown = self.on_terminal(*self.WORDS)
        self.assertIn("samples/s", shown)
        self.assertRegex(shown, r"[0-9]:[0-9]{2}:[0-9]{2} left")
        self.assertTrue(shown.endswith("\r\x1b[K"), repr(shown[-80:]))
        self.assertNotIn("\n", shown)

    def test_the_line_is_cut_to_the_terminal(self):
        for line in re.split(r"\r|\x1b\[K", self.on_terminal(*self.WORDS, columns=40)):
            self.assertLess(len(line), 40)

    def test_a_stream_has_no_total(self):
        reader, writer = os.pipe()
        os.write(writer, b"a,b\n")

        def go_on(shown):
            if b"waiting for the first bytes, 4 B" in shown and not written:
                written.append(os.write(writer, b"1,2\n"))
                os.close(writer)

        written = []
        shown = self.on_terminal("run", "csv -", stdin=reader, look=go_on)
        os.close(reader)
        self.assertTrue(written, shown)
        self.assertNotIn(" of ", shown.split("samples/s")[0])

    def test_silence_when_asked_for(self):
        self.assertEqual(self.on_terminal(*self.WORDS, "--quiet"), "")
        self.assertEqual(self.on_terminal(*self.WORDS, "--json"), "")

    def test_silence_without_a_terminal(self):
        self.assertEqual(brim(*self.WORDS).stderr, b"")


if __name__ == "__main__":
    support.main()
