"""What is compiled ahead: kernels with the types that they are called with, so that no job is needed to compile them.

`kernel_lines.txt` has a line for each, in numba's own words for types, and those first that take longest.
`scripts/kernel_lines.py` writes it: it runs small jobs and lists what they have had compiled. A kernel that is missing
there is compiled when it is called.
"""

from __future__ import annotations

from pathlib import Path

LINES = Path(__file__).with_suffix(".txt")


def kernel_lines() -> list[str]:
    """All lines, always in the same order.

    >>> kernel_lines()[0].startswith("cpu_")
    True
    """
    return LINES.read_text().splitlines()
