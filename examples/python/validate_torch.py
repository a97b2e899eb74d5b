"""Training and validation with PyTorch, two loaders in one budget.

    python validate_torch.py            on images that it draws first
    python validate_torch.py FOLDER     on a folder of your own, with a folder for each class

Both loaders are opened once and stay open: the second leaves out `memory=`, so both are in the
budget of 64 MiB. The same seed splits the folder into the same two parts. Labels, scores and
numbers of samples may be collected over a whole epoch: they are small copies, which hold none of
brim's memory. At the end the program names the worst images.
"""

from __future__ import annotations

import sys
import tempfile

import torch
from torch import nn

import brim
from drawn import draw


def main(folder: str) -> None:
    images = brim.folder(folder)
    train = brim.torch.loader(
        images.split("train", validation=0.2, seed=1, stratify="label").shuffle(seed=7).decode()
        .random_resized_crop(32).flip().normalize("imagenet").batch(32),
        memory="64MiB", channels_last=True,
    )  # fmt: skip
    validation = brim.torch.loader(
        images.split("validation", validation=0.2, seed=1, stratify="label").decode()
        .resize(40).center_crop(32).normalize("imagenet").batch(32),
        channels_last=True, fields=("image", "label", "names"),
    )  # fmt: skip
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, len(train.classes["label"])),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for epoch in range(3):
        for x, y in train:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        losses, right, names = [], 0, []
        with torch.no_grad():
            for x, y, paths in validation:
                scores = model(x)
                losses.append(nn.functional.cross_entropy(scores, y, reduction="none"))
                right += int((scores.argmax(1) == y).sum())
                names += paths
        loss = torch.cat(losses)
        assert len(loss) == len(validation.dataset)
        print(
            f"epoch {epoch}: of {len(loss)} images {right / len(loss):.0%} right, "
            f"loss {loss.mean():.3f}; the hardest is {names[loss.argmax()]}"
        )
    train.close()
    validation.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as drawn:
            main(str(draw(drawn)))
