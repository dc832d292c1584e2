"""Models over a schema in torch. Embeddings come from a store or from on-device tables; the models cannot tell.

Nothing is imported before it is asked for, so that `penstock.nn.keras` works where torch is not installed.

>>> __all__
['DCNv2', 'DLRM', 'DeepFM', 'MLP', 'MODELS', 'Model', 'NormedLayers', 'from_config']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.lazy_names import lazy_names
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
_HOMES = {
    "Model": "base",
    "NormedLayers": "normed_layers",
    "from_config": "config",
    **{name: place.partition(":")[0].removeprefix(f"{__name__}.") for name, place in MODELS.places.items()},
}
__getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES, extras=dict.fromkeys(_HOMES, "torch"))
