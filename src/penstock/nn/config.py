"""Models as plain data: built again from what `config()` described."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.core.errors import ArtefactError, suggest
from penstock.core.schema import Schema
from penstock.embedding.frozen import FrozenEmbeddings
from penstock.embedding.parameter_tables import EmbeddingTables
from penstock.nn.base import constructor_names
from penstock.nn.dcn import DCNv2
from penstock.nn.deepfm import DeepFM
from penstock.nn.dlrm import DLRM
from penstock.nn.mlp import MLP

_BUILT_IN: dict[str, Any] = {c.__name__: c for c in (DCNv2, DLRM, DeepFM, EmbeddingTables, FrozenEmbeddings, MLP)}


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
