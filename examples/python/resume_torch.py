"""A training that is interrupted in the middle of an epoch, and goes on as if it had not been.

    python resume_torch.py

The checkpoint has the loader's state as well as the model's: its position in the epoch. A second
run, with another amount of memory, loads it and takes exactly the next batch; both runs together
end with the same weights, bit for bit, as an uninterrupted run.
"""

from __future__ import annotations

import tempfile

import numpy
import torch
from torch import nn

import brim

EPOCHS = 2


class Training:
    """A model, its optimizer, and the data."""

    def __init__(self, memory: str) -> None:
        x = numpy.random.default_rng(0).normal(size=(1000, 8)).astype(numpy.float32)
        y = (x[:, 0] * x[:, 1] > 0).astype(numpy.uint8)
        self.runtime = brim.Runtime(memory=memory)
        data = brim.arrays(x=x, y=y).shuffle(seed=3).batch(32)
        self.loader = brim.torch.loader(data, runtime=self.runtime)
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        self.step = 0

    def run(self, until: int | None = None) -> None:
        """Trains to the end, or until this many steps are done."""
        while self.loader.epoch < EPOCHS:
            for x, y in self.loader:
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.model(x), y).backward()
                self.optimizer.step()
                self.step += 1
                if self.step == until:
                    return

    def save(self, path: str) -> None:
        parts = {"model": self.model, "optimizer": self.optimizer, "loader": self.loader}
        state = {name: part.state_dict() for name, part in parts.items()}
        torch.save({"step": self.step, **state}, path)

    def load(self, path: str) -> None:
        state = torch.load(path)
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(state["loader"])

    def close(self) -> None:
        self.loader.close()
        self.runtime.close()


def main() -> None:
    whole = Training("8MiB")
    whole.run()
    print(f"undisturbed: {whole.step} steps")

    with tempfile.NamedTemporaryFile(suffix=".pt") as checkpoint:
        first = Training("8MiB")
        first.run(until=45)
        first.save(checkpoint.name)
        print(f"broken off after {first.step} steps, in epoch {first.loader.epoch}")

        second = Training("16MiB")
        second.load(checkpoint.name)
        second.run()
        print(f"went on to {second.step} steps")

    assert second.step == whole.step
    for mine, its in zip(second.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, its)
    print("the weights are the same")
    for training in (whole, first, second):
        training.close()


if __name__ == "__main__":
    main()
