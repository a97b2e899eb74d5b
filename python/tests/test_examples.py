"""The examples that need no framework run, and print what they promise.

Those that import one are tested beside its adapter.
"""

from __future__ import annotations

import re
import subprocess
import sys

import support

support.need("numpy")

EXAMPLES = support.ROOT / "examples" / "python"
FRAMEWORK = re.compile(r"^(?:import|from) (torch|keras|tensorflow|jax)\b", re.M)
EXPECTED = {
    "arrays.py": ["20000 samples of x, y, 4.9 MiB", "the same batches from all three"],
    "budget.py": [
        "1600 and 400 samples an epoch, for the third time",
        r"of 8\.0 MiB \(given\)",
        "  validation +[0-9.]+ MiB",
        'refused: "too large" needs at least .* held by: .*train ',
    ],
    "cache_decode.py": ["epoch 0: 240 decoded, 240 cropped", "epoch 2: 0 decoded, 240 cropped"],
    "cache_shuffle.py": [
        "epoch 0: samples .* 240 made, 0 found",
        "epoch 2: samples .* 0 made, 240 found",
    ],
    "cache_tier.py": [
        r"in 32 MiB:\n  2\.8 MiB of samples, .* memory, 240 made, 0 found",
        r"in 4 MiB:\n  2\.8 MiB of samples, .* file, 240 made, 0 found",
        r"next run of a program:\n  .* file, 0 made, 240 found",
    ],
    "cache_validation.py": [
        "epoch 0: 180 images for training, 60 for validation, of which 0 were found in memory",
        "epoch 3: .* of which 60 were found in memory; .* of 16.0 MiB",
        "the cache holds 60 samples, ",
    ],
    "first.py": [
        r"240 samples; sample 0 is {'image': \(32, 32, 3\), 'label': \(\)}",
        r"limit +32\.0 MiB: given",
        "epoch 2: {'blue': 80, 'green': 80, 'red': 80}",
    ],
    "functions.py": ["the same batches", r"unequal length: \[\[4, 4\], \[4, 4, 4\], "],
    "resident_evaluation.py": [
        r"pass 1: (\d+\.\d KiB copied; at most host .*)\npass 10: \1\n",
        "the same after each of 10 passes, on (opencl:0|host)",
    ],
    "resume.py": ["broken off after 320 of 1000 samples", "every sample once"],
}


class Examples(support.Case):
    def test_each_has_its_lines_here(self) -> None:
        texts = {path.name: path.read_text() for path in EXAMPLES.glob("*.py")}
        programs = {name for name, text in texts.items() if "__main__" in text}
        plain = {name for name in programs if not FRAMEWORK.search(texts[name])}
        self.assertEqual(plain, set(EXPECTED))

    def test_they_run(self) -> None:
        for name, lines in EXPECTED.items():
            with self.subTest(name):
                run = subprocess.run(
                    [sys.executable, EXAMPLES / name],
                    capture_output=True, text=True, timeout=300, cwd=self.folder,
                )  # fmt: skip
                self.assertEqual((run.returncode, run.stderr), (0, ""), run.stdout)
                for line in lines:
                    self.assertRegex(run.stdout, line)


if __name__ == "__main__":
    support.main()
