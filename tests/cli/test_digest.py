"""The batches are a function of the data and the pipeline's text alone.

One digest for any number of threads, any budget that is not refused, any number of slots and of
batches held, and for mapped files as for read ones; another digest for another seed. What a refusal
names as the smallest budget is one that works, and one byte less is not.
"""

import re

from support import Case, main, write_npy, write_tokens


class Pipelines(Case):
    """Pipelines over files of their own; MAP stands where a source may take map=yes."""

    def setUp(self):
        super().setUp()
        images = write_npy(self.folder / "images.npy", (3000, 3, 8, 8), "|u1", seed=1)
        labels = write_npy(self.folder / "labels.npy", (3000,), "<i8", seed=2)
        table = write_npy(self.folder / "table.npy", (999, 40), "<f4", seed=3)
        tokens = write_tokens(self.folder / "tokens.bin", 200001, seed=4)
        self.mappable = [
            f"npy {table} MAP | shuffle seed=7 | batch 100",
            f"npy {images} MAP | shuffle seed=7 block=32 | normalize unit | layout hwc from=chw "
            "| batch 64 remainder=pad",
            f"tokens {tokens} length=128 stride=100 MAP | shuffle seed=7 | batch 32",
            f"zip (npy {images} name=x MAP) (npy {labels} name=y) | shuffle seed=7 "
            "| batch 48 micro=16",
        ]
        self.pipelines = [text.replace(" MAP", "") for text in self.mappable] + [
            "range 5000 | shuffle seed=7 | batch 64",
            "mix 0.7 (range 900 | shuffle seed=7) 0.3 (range 400 | shuffle) length=2000 | batch 64",
        ]

    def least(self, text, *words):
        return self.good_json("plan", text, *words)["minimum_bytes"]


class Digest(Pipelines):
    def assert_one_digest(self, text, choices):
        digests = {str(words): self.digest(text, *words) for words in choices}
        self.assertEqual(len(set(digests.values())), 1, (text, digests))

    def test_any_number_of_threads(self):
        for text in self.pipelines:
            self.assert_one_digest(text, [["--epochs=2", "--threads", n] for n in (0, 1, 2, 8)])

    def test_any_budget(self):
        for text in self.pipelines:
            self.assert_one_digest(text, [
                ["--threads", threads, *memory] for threads in (0, 2)
                for memory in (["--memory", self.least(text)], ["--memory=64MiB"], [])])

    def test_any_number_of_slots_and_of_batches_held(self):
        for text in self.pipelines:
            self.assert_one_digest(text, [["--hold=1"], ["--hold=3"], ["--slots=2"],
                                          ["--hold=2", "--slots=9"]])

    def test_mapped_files_give_what_reads_give(self):
        for text in self.mappable:
            read, mapped = text.replace("MAP", "map=no"), text.replace("MAP", "map=yes")
            for threads in (0, 2):
                self.assertEqual(self.digest(read, "--threads", threads),
                                 self.digest(mapped, "--threads", threads), text)

    def test_another_seed_is_another_order(self):
        for text in self.pipelines:
            self.assertNotEqual(self.digest(text), self.digest(text.replace("seed=7", "seed=8")),
                                text)

    def test_another_epoch_is_another_order(self):
        for text in self.pipelines:
            self.assertNotEqual(self.digest(text), self.digest(text, "--seek=1:0"), text)

    def test_one_bit_of_the_data_changes_it(self):
        path = self.folder / "table.npy"
        before = self.digest(f"npy {path} | batch 100")
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        self.assertNotEqual(before, self.digest(f"npy {path} | batch 100"))


class Minimum(Pipelines):
    def test_one_byte_below_is_refused_and_what_is_named_works(self):
        for text in self.pipelines:
            for words in (["--threads=0"], ["--threads=2"], ["--threads=0", "--hold=4"]):
                with self.subTest(text=text, words=words):
                    told = self.bad_json(3, "run", text, *words,
                                         "--memory", self.least(text, *words) - 1)
                    self.assertEqual(told["status"], "BRIM_STATUS_BUDGET")
                    named = re.search(r"--memory (\d+)", told["said"])
                    self.assertTrue(named, told["said"])
                    self.assertEqual(int(named[1]), told["minimum_bytes"])
                    ran = self.good_json("run", text, *words, "--memory", named[1])
                    self.assertLessEqual(ran["peak_charged_bytes"], int(named[1]))

    def test_no_run_takes_more_than_was_planned(self):
        for text in self.pipelines:
            for words in (["--memory=64MiB"], ["--memory=2MiB"], ["--threads=8"], ["--hold=5"]):
                with self.subTest(text=text, words=words):
                    ran = self.good_json("run", text, *words)
                    self.assertLessEqual(ran["peak_charged_bytes"], ran["planned_bytes"])
                    self.assertLessEqual(ran["planned_bytes"], ran["limit_bytes"])


if __name__ == "__main__":
    main()
