"""What a look-up by hand in tables on a device gives: embeddings by column, and the way back to their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from penstock.core.errors import DataError, PenstockError


class TableLookup(Mapping[str, Tensor]):
    """Embeddings of one batch, `(B, dim)` by column; all lie side by side in `packed`.

    `ids` and `saved` are what the tables need to apply gradients, once.
    """

    def __init__(self, dims: Mapping[str, int], packed: Tensor, ids: Any, saved: Any) -> None:
        self.names, self.packed, self.ids, self._saved = list(dims), packed, ids, saved
        parts = packed.split(list(dims.values()), 1)
        self._parts: dict[str, Tensor] = dict(zip(self.names, parts, strict=True))

    def __getitem__(self, name: str) -> Tensor:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def saved_for_update(self) -> Any:
        """What the look-up kept for its update; a second one is refused."""
        if self._saved is None:
            raise PenstockError(
                "this look-up was made with train=False or has been updated already; look the batch up again"
            )
        saved, self._saved = self._saved, None
        return saved

    def gradient(self, gradients: Mapping[str, Any]) -> Tensor:
        """Gradients by column, side by side; zeros for those left out."""
        if strange := [name for name in gradients if name not in self._parts]:
            raise DataError(f"there is a gradient of {strange[0]!r}, and the look-up has {self.names}")
        parts = []
        for name, found in self._parts.items():
            given = gradients.get(name)
            part = torch.zeros_like(found) if given is None else torch.as_tensor(given).to(found.device, found.dtype)
            if part.shape != found.shape:
                raise DataError(
                    f"the gradient of {name!r} must have the shape of its embeddings, {tuple(found.shape)}, got "
                    f"{tuple(part.shape)}"
                )
            parts.append(part)
        return torch.cat(parts, 1)
