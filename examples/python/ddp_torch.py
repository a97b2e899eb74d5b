"""Two processes train one model with DistributedDataParallel, each on its part of the data.

    python ddp_torch.py                                     starts two processes itself
    torchrun --nproc-per-node=2 ddp_torch.py                as one would on a cluster

`shard="auto"` takes rank and world from torch.distributed. `per="global"` keeps the batch at 64
rows for any number of processes. In training `remainder="drop"` leaves out samples that do not fill
a last batch, so that all gradients weigh the same; every epoch leaves out others. In validation
`remainder="pad"` gives every process the same number of steps, and padding rows are cut off: the
last batch of a process may be short or empty, and no sample counts twice or is left out.
"""

from __future__ import annotations

import os
import tempfile

import numpy
import torch
from torch import distributed, nn

import brim


def train(rank: int, world: int, meet: str) -> None:
    distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=world)
    torch.set_num_threads(1)
    x = numpy.random.default_rng(0).normal(size=(1000, 8)).astype(numpy.float32)
    data = brim.arrays(x=x, y=(x[:, 0] + x[:, 1] > 0).astype(numpy.int64))
    fit = brim.torch.loader(
        data.take(850).shuffle(seed=3).batch(64, per="global", remainder="drop"),
        memory="16MiB", shard="auto",
    )  # fmt: skip
    check = brim.torch.loader(
        data.skip(850).batch(64, per="global", remainder="pad"),
        shard="auto", fields=("x", "y", "ids"),
    )  # fmt: skip
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for epoch in range(3):
        for a, b in fit:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(a), b).backward()
            optimizer.step()
        counts = torch.zeros(2, dtype=torch.int64)  # right, all
        seen: list[int] = []
        with torch.no_grad():
            for a, b, ids in check:
                counts += torch.tensor([(model.module(a).argmax(1) == b).sum(), len(b)])
                seen += ids.tolist()
        distributed.all_reduce(counts)
        assert counts[1] == len(check.dataset) == 150
        if rank == 0:
            print(f"epoch {epoch}: {counts[0]} of {counts[1]} right", flush=True)
    steps = f"{len(fit)} and {len(check)} steps"
    print(f"rank {rank}: {steps}, {len(seen)} samples checked", flush=True)
    fit.close()
    check.close()
    distributed.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        with tempfile.TemporaryDirectory() as folder:
            meet = f"file://{folder}/meet"
            torch.multiprocessing.spawn(train, (2, meet), nprocs=2)
