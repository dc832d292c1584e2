"""Models as plain data: built again from what `config()` described."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from penstock.core.errors import ArtefactError, suggest
from penstock.core.schema import Schema
from penstock.embedding.frozen import FrozenEmbeddings
from penstock.embedding.parameter_tables import EmbeddingTables
from penstock.etl.references import resolve_reference
from penstock.etl.trust import is_reference, loading
from penstock.nn.base import Model, constructor_names
from penstock.nn.registry import MODELS

_TABLES: dict[str, Any] = {c.__name__: c for c in (EmbeddingTables, FrozenEmbeddings)}


def from_config(data: Mapping[str, Any]) -> Any:
    """The model (or tables) that `config()` described, with fresh weights.

    Only classes that are registered are built, or that are in a module which whoever loads them trusts
    (`penstock.etl.trusting`).

    Args:
        data: what `config` gave.

    Returns:
        A model, or tables.

    Raises:
        ArtefactError: it names a class that is not known or not trusted, or arguments that this has not.

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
    build = _class_called(name, data.get("reference"))
    known = constructor_names(build)
    if strange := [key for key in arguments if key not in known]:
        raise ArtefactError(f"{name} has no argument {strange[0]!r}{suggest(strange[0], known, 'arguments')}")
    return build(schema, **{**getattr(build, "before", {}), **arguments})


def _class_called(name: Any, reference: Any) -> Any:
    """The class that a description names; one of somebody's own is imported where that is allowed."""
    known: list[str] = [*MODELS, *_TABLES]
    if name in known:
        return MODELS[name] if name in MODELS else _TABLES[name]
    if not isinstance(reference, str) or not is_reference(reference):
        raise ArtefactError(f"unknown model {name!r}{suggest(str(name), known, 'models')}")
    with loading((), "model"), torch.device("cpu"):  # what the module makes of tensors is its own, meta or not
        found = resolve_reference(reference, own_kind=Model, named_by="the saved model")
    if not (isinstance(found, type) and issubclass(found, Model) and found.__name__ == name):
        raise ArtefactError(f"the model names {reference!r}, which is not the model {name!r}")
    return MODELS.register(found)
