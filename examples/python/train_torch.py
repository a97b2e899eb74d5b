"""Trains a small network with PyTorch on images of unequal size, inside 64 MiB.

    python train_torch.py            on images that it draws first
    python train_torch.py FOLDER     on a folder of your own, with a folder for each class

The loader replaces a DataLoader. Images come decoded, augmented and normalised, as (N, C, H, W) in
torch's channels_last format, in brim's memory: nothing is copied. At the end the program prints the
use of the budget.
"""

from __future__ import annotations

import sys
import tempfile

import torch
from torch import nn

import brim
from drawn import draw


def main(folder: str) -> None:
    data = (
        brim.folder(folder).shuffle(seed=7).decode().random_resized_crop(32).flip()
        .normalize("imagenet").batch(32)
    )  # fmt: skip
    loader = brim.torch.loader(data, memory="64MiB", channels_last=True)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, len(loader.classes["label"])),
    )  # fmt: skip
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for epoch in loader.epochs(3):
        right = total = 0.0
        for x, y in epoch:
            scores = model(x)
            loss = nn.functional.cross_entropy(scores, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == y).sum().item()
            total += len(y)
        print(f"epoch {epoch.number}: loss {loss.item():.3f}, {right / total:.0%} right")
    print(brim.runtime().usage())
    loader.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as drawn:
            main(str(draw(drawn)))
