"""Merlin's loader for JAX."""

from __future__ import annotations

from penstock.compat.merlin.dataloader.loader_base import MerlinLoader
from penstock.loader import jax as native

__all__ = ["Loader"]


class Loader(MerlinLoader, native.Loader):
    """Batches `({name: (B,)}, label)` of JAX arrays; lists as `x__values` and `x__offsets`.

    >>> from penstock.compat.merlin.io import Dataset
    >>> features, label = Loader(Dataset({"user": [1, 2, 3]}), batch_size=2, shuffle=False).peek()
    >>> features["user"].tolist()
    [1, 2]
    """

    _put = native.Loader._put
