"""Models as plain data: built again from what `config()` described."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.core.errors import ArtefactError, suggest
from penstock.core.schema import Schema
from penstock.embedding.frozen import FrozenEmbeddings
from penstock.embedding.parameter_tables import EmbeddingTables
from penstock.nn.base import constructor_names
from penstock.nn.registry import MODELS

_TABLES: dict[str, Any] = {c.__name__: c for c in (EmbeddingTables, FrozenEmbeddings)}


def from_config(data: Mapping[str, Any]) -> Any:
    """The model (or tables) that `config()` described, with fresh weights. Only classes that are registered are built.

    Args:
        data: what `config` gave.

    Returns:
        A model, or tables.

    Raises:
        ArtefactError: it names a class that is not known, or arguments that this has not.

    >>> from penstock import ColumnSchema
    >>> from penstock.nn import MLP
    >>> model = MLP(Schema([ColumnSchema("price", "float32", role="continuous")]), hidden=(4,))
    >>> from_config(model.config()).config() == model.config()
    True
    """
    try:
        name, schema, arguments = data["class"], Schema.from_dict(data["schema"]), dict(data["arguments"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ArtefactError(f"not the description of a model: {error!r}") from error
    known_classes: list[str] = [*MODELS, *_TABLES]
    if name not in known_classes:
        raise ArtefactError(f"unknown model {name!r}{suggest(str(name), known_classes, 'models')}")
    build: Any = MODELS[name] if name in MODELS else _TABLES[name]
    known = constructor_names(build)
    if strange := [key for key in arguments if key not in known]:
        raise ArtefactError(f"{name} has no argument {strange[0]!r}{suggest(strange[0], known, 'arguments')}")
    return build(schema, **{**getattr(build, "before", {}), **arguments})
