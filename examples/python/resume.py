"""A run that is interrupted in the middle of an epoch, and goes on with exactly the next batch.

    python resume.py

The state is a small dict: save it with the model, as JSON or in any other format. The
second run has another batch size, another amount of memory and two ranks instead of one: the state
counts samples, so it does not matter.
"""

from __future__ import annotations

import json
import pathlib
import tempfile

import brim

SAMPLES = brim.range(1000).shuffle(seed=7)


def numbers(loader: brim.Loader, steps: int | None = None) -> list[int]:
    """The samples' numbers of the rest of the epoch, or of this many batches."""
    found: list[int] = []
    for step, batch in enumerate(loader, 1):
        found += batch.ids.tolist()
        if step == steps:
            break
    return found


def main(path: pathlib.Path) -> None:
    with brim.Runtime(memory="4MiB") as rt:
        with rt.open(SAMPLES.batch(64)) as loader:
            whole = numbers(loader)

        with rt.open(SAMPLES.batch(64)) as loader:
            first = numbers(loader, steps=5)
            path.write_text(json.dumps(loader.state_dict()))
        print(f"broken off after {len(first)} of {len(whole)} samples; {path.stat().st_size} bytes")

    rest: list[list[int]] = []
    with brim.Runtime(memory="1MiB", threads=0) as rt:
        for rank in range(2):  # two processes, in a real run
            with rt.open(SAMPLES.batch(40, per="global"), rank=rank, world=2) as loader:
                loader.load_state_dict(json.loads(path.read_text()))
                rest.append(numbers(loader))
                print(f"rank {rank} goes on with {len(rest[rank])} samples")
    assert set(first).isdisjoint(rest[0] + rest[1])
    assert sorted(first + rest[0] + rest[1]) == sorted(whole)
    print("every sample once")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(pathlib.Path(folder, "loader.json"))
