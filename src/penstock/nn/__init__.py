"""Models over a schema in torch. Embeddings come from a store or from on-device tables; the models cannot tell.

>>> __all__
['CachedEmbeddings', 'DCNv2', 'DLRM', 'DeepFM', 'EmbeddingTables', 'FusedEmbeddings', 'MLP', 'Model', 'from_config']
"""

from collections.abc import Mapping
from typing import Any

from penstock.core.errors import ArtefactError, suggest
from penstock.core.extras import require
from penstock.core.schema import Schema

require("torch", "torch")

from penstock.nn.base import Model, constructor_names  # noqa: E402
from penstock.nn.cached import CachedEmbeddings  # noqa: E402
from penstock.nn.dcn import DCNv2  # noqa: E402
from penstock.nn.deepfm import DeepFM  # noqa: E402
from penstock.nn.dlrm import DLRM  # noqa: E402
from penstock.nn.embeddings import EmbeddingTables  # noqa: E402
from penstock.nn.fused import FusedEmbeddings  # noqa: E402
from penstock.nn.mlp import MLP  # noqa: E402

__all__ = [  # noqa: RUF022
    "CachedEmbeddings",
    "DCNv2",
    "DLRM",
    "DeepFM",
    "EmbeddingTables",
    "FusedEmbeddings",
    "MLP",
    "Model",
    "from_config",
]

_BUILT_IN: dict[str, Any] = {c.__name__: c for c in (DCNv2, DLRM, DeepFM, EmbeddingTables, MLP)}


def from_config(data: Mapping[str, Any]) -> Any:
    """The model (or tables) that `config()` described, with fresh weights. Only classes of this package are built.

    >>> from penstock import ColumnSchema
    >>> model = MLP(Schema([ColumnSchema("price", "float32", role="continuous")]), hidden=(4,))
    >>> from_config(model.config()).config() == model.config()
    True
    """
    try:
        name, schema, arguments = data["class"], Schema.from_dict(data["schema"]), dict(data["arguments"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ArtefactError(f"not the description of a model: {error!r}") from error
    if name not in _BUILT_IN:
        raise ArtefactError(f"unknown model {name!r}{suggest(str(name), _BUILT_IN, 'models')}")
    known = constructor_names(_BUILT_IN[name])
    if strange := [key for key in arguments if key not in known]:
        raise ArtefactError(f"{name} has no argument {strange[0]!r}{suggest(strange[0], known, 'arguments')}")
    return _BUILT_IN[name](schema, **arguments)
