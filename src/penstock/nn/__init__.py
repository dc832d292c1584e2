"""Models over a schema in torch. Embeddings come from a store or from on-device tables; the models cannot tell.

Nothing is imported before it is asked for, so that `penstock.nn.keras` works where torch is not installed.

>>> __all__
['DCNv2', 'DLRM', 'DeepFM', 'MLP', 'MODELS', 'Model', 'NormedLayers', 'from_config']
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from penstock.core.extras import require
from penstock.nn.registry import MODELS

if TYPE_CHECKING:
    from penstock.nn.base import Model
    from penstock.nn.config import from_config
    from penstock.nn.dcn import DCNv2
    from penstock.nn.deepfm import DeepFM
    from penstock.nn.dlrm import DLRM
    from penstock.nn.mlp import MLP
    from penstock.nn.normed_layers import NormedLayers

__all__ = [  # noqa: RUF022
    "DCNv2",
    "DLRM",
    "DeepFM",
    "MLP",
    "MODELS",
    "Model",
    "NormedLayers",
    "from_config",
]
_WHERE = {
    "Model": "penstock.nn.base",
    "NormedLayers": "penstock.nn.normed_layers",
    "from_config": "penstock.nn.config",
    **{name: place.partition(":")[0] for name, place in MODELS.places.items()},
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("torch", "torch")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
