"""Crosses of columns by hash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.compat.missing import module_getattr
from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native

__all__ = ["HashedCross"]


class HashedCross(Placed, native.HashedCross):
    """`[["a", "b"]] >> HashedCross(n)` gives `a_X_b`; the hashes are Penstock's own.

    >>> HashedCross({("a", "b"): 10}).num_buckets
    {'a_X_b': 10}
    """

    saved_as = native.HashedCross

    def __init__(self, num_buckets: int | Mapping[Any, int]) -> None:
        if isinstance(num_buckets, Mapping):
            num_buckets = {k if isinstance(k, str) else "_X_".join(k): v for k, v in num_buckets.items()}
        super().__init__(num_buckets)


__getattr__ = module_getattr(__name__)
