"""Which part of the data is this process's, for all adapters."""

from __future__ import annotations

import os
from collections.abc import Callable

Part = tuple[int, int]  # rank and world


def part(
    shard: str | None,
    rank: int | None,
    world: int | None,
    ask: Callable[[], Part | None] = lambda: None,
) -> Part:
    """Which part of the data is this process's: rank and world. For shard="auto" `ask` says what
    the framework knows, and RANK and WORLD_SIZE of the environment serve where it knows nothing."""
    if shard not in (None, "auto"):
        raise ValueError(f"shard={shard!r}: it is 'auto', or left out; or give rank= and world=")
    if (rank is None) != (world is None):
        raise ValueError("rank= and world= belong together: give both or neither")
    if rank is not None and world is not None:
        if shard is not None:
            raise ValueError("shard='auto' and rank=, world= exclude each other")
        return rank, world
    if shard is None:
        return 0, 1
    known = ask()
    if known is not None:
        return known
    given = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE")}
    if given["RANK"] is None and given["WORLD_SIZE"] is None:
        return 0, 1
    try:
        return int(given["RANK"] or ""), int(given["WORLD_SIZE"] or "")
    except ValueError:
        raise ValueError(
            f"shard='auto': the framework knows of no other process, and the environment has "
            f"RANK={given['RANK']!r} and WORLD_SIZE={given['WORLD_SIZE']!r}, not two numbers; "
            "give rank= and world="
        ) from None
