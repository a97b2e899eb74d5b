"""Amounts and tables of them, as people write them and as brim prints them."""

from __future__ import annotations

import operator
import re
from collections.abc import Collection
from typing import SupportsIndex

_UNITS: dict[str, int] = {
    "": 1,
    "B": 1,
    **{unit: 1024**power for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)},
    **{unit: 1000**power for power, unit in enumerate(("kB", "MB", "GB", "TB"), 1)},
}


def read_bytes(amount: int | str, what: str = "memory") -> int:
    """Bytes of 268435456 or "256MiB", in the units that a pipeline's text takes."""
    if isinstance(amount, str):
        match = re.fullmatch(r"\s*([0-9][0-9_]*)\s*([A-Za-z]*)\s*", amount, re.ASCII)
        if match is None or match[2] not in _UNITS:
            raise ValueError(
                f"{what}: {amount!r} is not an amount; write whole bytes as an int, or a whole "
                'number with B, KiB, MiB, GiB, TiB, kB, MB, GB or TB, such as "256MiB"'
            )
        count = int(match[1].replace("_", "")) * _UNITS[match[2]]
    elif isinstance(amount, bool) or not isinstance(amount, SupportsIndex):
        raise TypeError(f'{what} is an int or a str such as "256MiB", not {amount!r}')
    else:
        count = operator.index(amount)
    if not 0 < count < 2**63:
        raise ValueError(f"{what} must lie from 1 byte to 8 EiB, not at {amount!r}")
    return count


def bytes_text(count: float) -> str:
    """256.0 MiB"""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    unit = 0
    while count >= 1024 and unit + 1 < len(units):
        count /= 1024
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.1f} {units[unit]}"


def count_text(count: int, noun: str) -> str:
    """1 loader, 2 loaders"""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def table_text(rows: list[list[str]], right: Collection[int]) -> list[str]:
    """Lines of a table; the columns of these numbers stand on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
