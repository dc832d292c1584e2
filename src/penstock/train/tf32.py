"""Products of float32 matrices that read ten bits of each factor, which a GPU does several times as fast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def products_in_tf32(is_wanted: bool = True) -> Iterator[None]:
    """A block in which they do, unless torch was told already how precise they are to be.

    >>> with products_in_tf32():
    ...     torch.get_float32_matmul_precision()
    'high'
    >>> torch.get_float32_matmul_precision()
    'highest'
    """
    if not is_wanted or torch.get_float32_matmul_precision() != "highest":
        yield
        return
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")
