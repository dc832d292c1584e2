"""The optimizers of the dense model that settings can name: torch's, and how each becomes part of a CUDA graph."""

from __future__ import annotations

from collections.abc import Mapping

# By the name in `torch.optim`: the arguments that make it step on a GPU without the host, where torch has such.
DENSE_OPTIMIZERS: Mapping[str, Mapping[str, bool]] = {
    "Adam": {"fused": True, "capturable": True},
    "AdamW": {"fused": True, "capturable": True},
    "SGD": {"fused": True},
    "Adagrad": {},
    "RMSprop": {"capturable": True},
}
