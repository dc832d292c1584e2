"""How large the partitions of a data set are when nobody says: two a core, within bounds.

One partition is one core's work: 60 MB in a single one leave every other core idle. Each also costs some 10 ms in the
interpreter, whose lock all threads share, so that more of them than keep the cores busy are a loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.core.runtime.threads import available_cores
from penstock.data.files import is_remote

SMALLEST, LARGEST = 4_000_000, 64_000_000
_A_CORE = 2  # partitions: the cores end at about the same time, too


def part_size_for(num_bytes: int) -> int:
    """The bytes that a partition of so much data aims at.

    >>> part_size_for(1_000), part_size_for(10**12)
    (4000000, 64000000)
    """
    return max(SMALLEST, min(LARGEST, num_bytes // (_A_CORE * available_cores())))


def part_size_of_files(files: Sequence[str]) -> int:
    """The same for files; those of other machines are read in large pieces."""
    if any(is_remote(file) for file in files):
        return LARGEST
    return part_size_for(sum(Path(file).stat().st_size for file in files))
