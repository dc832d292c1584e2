"""Embeddings: stores whose tables grow as ids come, and tables on the model's device; trained by sparse optimizers.

>>> sorted(name for name in __all__ if name.endswith("Store"))
['EmbeddingStore', 'RayStore', 'Store']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.embedding.cached.embeddings import CachedEmbeddings
    from penstock.embedding.cached.in_flight import prefetched
    from penstock.embedding.feed import FeedWriter
    from penstock.embedding.feed_reader import FeedReader
    from penstock.embedding.frozen import FrozenEmbeddings
    from penstock.embedding.fused.embeddings import FusedEmbeddings
    from penstock.embedding.hashed.embeddings import HashedEmbeddings
    from penstock.embedding.locks import SecondWriterError
    from penstock.embedding.lookup import Lookup
    from penstock.embedding.optimizers import FTRL, SGD, Adagrad, Adam, DecayedAdagrad, LazyAdam, Optimizer, RowWiseAdam
    from penstock.embedding.parameter_tables import EmbeddingTables
    from penstock.embedding.policies import Admission, Eviction, MemoryBudgetError
    from penstock.embedding.protocol import Embeddings
    from penstock.embedding.ray_store import RayStore, ShardRestartedWarning, StoreTimeoutError
    from penstock.embedding.schedules import CosineDecay, ExponentialDecay, Warmup
    from penstock.embedding.slots import EmbeddingConfig, HashStack, Init, SlotConfig, slots_from_schema
    from penstock.embedding.store import EmbeddingStore, Store

__all__ = [  # noqa: RUF022
    "Adagrad",
    "Adam",
    "Admission",
    "CachedEmbeddings",
    "CosineDecay",
    "DecayedAdagrad",
    "EmbeddingConfig",
    "EmbeddingStore",
    "EmbeddingTables",
    "Embeddings",
    "Eviction",
    "ExponentialDecay",
    "FTRL",
    "FeedReader",
    "FeedWriter",
    "FrozenEmbeddings",
    "FusedEmbeddings",
    "HashStack",
    "HashedEmbeddings",
    "Init",
    "LazyAdam",
    "Lookup",
    "MemoryBudgetError",
    "Optimizer",
    "RayStore",
    "RowWiseAdam",
    "SGD",
    "SecondWriterError",
    "ShardRestartedWarning",
    "SlotConfig",
    "Store",
    "StoreTimeoutError",
    "Warmup",
    "prefetched",
    "slots_from_schema",
]
_HOMES = {
    "SlotConfig": "slots",
    "slots_from_schema": "slots",
    "HashStack": "slots",
    "Init": "slots",
    "EmbeddingConfig": "slots",
    "SGD": "optimizers",
    "Adagrad": "optimizers",
    "DecayedAdagrad": "optimizers",
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
    "Embeddings": "protocol",
    "Lookup": "lookup",
    "EmbeddingStore": "store",
    "Store": "store",
    "RayStore": "ray_store",
    "StoreTimeoutError": "ray_store",
    "ShardRestartedWarning": "ray_store",
    "FeedReader": "feed_reader",
    "FeedWriter": "feed",
}
_TORCH_HOMES = {
    "CachedEmbeddings": "cached.embeddings",
    "EmbeddingTables": "parameter_tables",
    "FrozenEmbeddings": "frozen",
    "FusedEmbeddings": "fused.embeddings",
    "HashedEmbeddings": "hashed.embeddings",
    "prefetched": "cached.in_flight",
}
__getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES | _TORCH_HOMES, extras=dict.fromkeys(_TORCH_HOMES, "torch"))
