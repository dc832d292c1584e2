"""Hashed ids, with the sizes of their embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.compat.nvtabular.ops.placed import Placed
from penstock.etl import ops as native
from penstock.etl.ops.embedding_sizes import default_dimension


class HashBucket(Placed, native.HashBucket):
    """Values as one of `num_buckets` ids, by Penstock's hash.

    >>> HashBucket({"a": 10}).get_embedding_sizes(["a"])
    {'a': (10, 16)}
    """

    def get_embedding_sizes(self, columns: Any) -> dict[str, tuple[int, int]]:
        """`{column: (rows, dimension)}`."""
        known = self.num_buckets
        sizes = {name: int(known[name] if isinstance(known, Mapping) else known) for name in columns}
        return {name: (size, default_dimension(size)) for name, size in sizes.items()}
