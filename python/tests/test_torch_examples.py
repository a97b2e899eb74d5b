"""The examples of PyTorch run, and print what they promise."""

# label: full

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest

import support

support.need("numpy")
support.need("torch")

EXAMPLES = support.ROOT / "examples" / "python"


class Examples(unittest.TestCase):
    def run_example(self, name: str, *expected: str) -> None:
        def start() -> subprocess.CompletedProcess[str]:
            with tempfile.TemporaryDirectory() as folder:
                return subprocess.run(
                    [sys.executable, EXAMPLES / name],
                    capture_output=True, text=True, timeout=300, cwd=folder,
                )  # fmt: skip

        abort = "terminate called without an active exception"
        run = support.despite_gloo(start, lambda run: run.returncode != 0 and abort in run.stderr)
        self.assertEqual(run.returncode, 0, run.stderr)
        for line in expected:
            self.assertRegex(run.stdout, line)

    def test_train(self) -> None:
        self.run_example("train_torch.py", r"epoch 2: loss [\d.]+, \d+% right", "64.0 MiB")

    def test_validate(self) -> None:
        self.run_example("validate_torch.py", r"epoch 2: of 48 images .* is /.*\.png")

    def test_resume(self) -> None:
        self.run_example("resume_torch.py", "broken off after 45 steps, in epoch 1", "the same")

    def test_ddp(self) -> None:
        self.run_example(
            "ddp_torch.py",
            "epoch 2: 1.. of 150 right",
            "rank 0: 13 and 3 steps, 86 samples",
            "rank 1: 13 and 3 steps, 64 samples",
        )


if __name__ == "__main__":
    support.main()
