"""Once a run is under way, it asks the system for nothing but data.

strace lists the calls of a run with many batches. Between the first and the last tenth of its reads
no memory is mapped, moved or returned, no thread starts and no file is opened. A run with workers
may still be growing there, because it grows when it pays: it may map each slot and each thread's
scratch that its plan has above the minimum once, and nothing else.
"""

import re
import shutil
import unittest

from support import SANITIZED, Case, brim, main, write_npy, write_tokens

TRACE = "memory,process,pread64,openat,open,read,close"
CALL = re.compile(r"^\d+ +(?:<\.\.\. )?(\w+)(.*)$")


def why_not():
    if SANITIZED:
        return "a sanitizer maps memory of its own"
    if shutil.which("strace") is None:
        return "there is no strace"
    done = brim("version", before=["strace", "-f", "-o", "/dev/null"])
    if done.returncode != 0:
        return "strace may not trace here: %s" % done.stderr.decode(errors="replace").strip()
    return None


@unittest.skipIf(why_not(), why_not())
class Steady(Case):
    def calls_in_the_middle(self, pipeline, *words, path):
        """The calls between the first and last tenth of the reads of the file, reads left out."""
        trace = self.folder / "trace"
        done = brim("run", pipeline, "--quiet", *words,
                    before=["strace", "-f", "-e", "trace=" + TRACE, "-s", "0", "-o", trace])
        self.assertEqual(done.returncode, 0, done.stderr)
        calls, reads, data = [], [], None
        for line in trace.read_text().splitlines():
            call = CALL.match(line)
            if call is None or " resumed>" in line:
                continue
            name, rest = call.groups()
            if name == "openat" and str(path) in rest:
                data = re.search(r"= (\d+)$", rest)[1]
            if name == "pread64" and rest.startswith(f"({data},"):
                reads.append(len(calls))
            else:
                calls.append(line)
        self.assertGreater(len(reads), 500, "too few reads to tell")
        first, last = reads[len(reads) // 10], reads[-len(reads) // 10]
        self.assertGreater(first, 20, "the calls of the beginning are missing: nothing was traced")
        self.assertGreater(len(calls), last, "the calls of the end are missing")
        return calls[first:last]

    def pipelines(self):
        array = write_npy(self.folder / "x.npy", (2000, 3000), "|u1")
        tokens = write_tokens(self.folder / "t.bin", 500000)
        return [
            (array, f"npy {array} | shuffle seed=7 | normalize unit | batch 25"),
            (tokens, f"tokens {tokens} length=512 | shuffle seed=7 | batch 16 remainder=drop"),
        ]

    def test_without_workers(self):
        for path, text in self.pipelines():
            for words in (["--memory=8MiB"], []):
                with self.subTest(pipeline=text, words=words):
                    self.assertEqual(self.calls_in_the_middle(
                        text, "--threads=0", "--epochs=2", *words, path=path), [])

    def test_with_workers(self):
        for path, text in self.pipelines():
            for words in (["--threads=2", "--slots=2"], ["--threads=2"]):
                with self.subTest(pipeline=text, words=words):
                    plan = self.good_json("plan", text, *words)
                    calls = self.calls_in_the_middle(text, *words, "--epochs=3", path=path)
                    sizes = [re.search(r" mmap\(NULL, (\d+), .*MAP_ANONYMOUS", call)
                             for call in calls]
                    self.assertNotIn(None, sizes, calls)
                    sizes = [int(size[1]) for size in sizes]
                    slots = sizes.count(plan["slot_bytes"])
                    scratches = sizes.count(plan["scratch_bytes"])
                    self.assertEqual(slots + scratches, len(sizes), calls)
                    self.assertLessEqual(slots, plan["slots"] - plan["minimum_slots"])
                    self.assertLessEqual(scratches, plan["threads"])

    def test_a_call_in_the_middle_would_be_seen(self):
        path, text = self.pipelines()[0]
        calls = self.calls_in_the_middle(text, "--threads=0", "--state", self.folder / "at.state",
                                         "--state-every=20", path=path)
        self.assertIn("at.state", "".join(calls))


if __name__ == "__main__":
    main()
