"""Embeddings of ids that need no vocabulary: tables that grow as ids come, trained by sparse optimizers.

>>> sorted(name for name in __all__ if name.endswith("Store"))
['EmbeddingStore', 'RayStore', 'Store']
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "SlotConfig": "slots",
    "HashStack": "slots",
    "Init": "slots",
    "EmbeddingConfig": "slots",
    "SGD": "optimizers",
    "Adagrad": "optimizers",
    "Adam": "optimizers",
    "LazyAdam": "optimizers",
    "RowWiseAdam": "optimizers",
    "FTRL": "optimizers",
    "Optimizer": "optimizers",
    "Warmup": "schedules",
    "ExponentialDecay": "schedules",
    "CosineDecay": "schedules",
    "Admission": "policies",
    "Eviction": "policies",
    "MemoryBudgetError": "policies",
    "SecondWriterError": "locks",
    "Lookup": "lookup",
    "EmbeddingStore": "store",
    "Store": "store",
    "RayStore": "ray_store",
    "StoreTimeoutError": "ray_store",
    "ShardRestartedWarning": "ray_store",
    "FeedReader": "feed",
    "FeedWriter": "feed",
}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    """Each name when it is first asked for: the kernels are compiled code that nobody should wait for in vain."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
