"""The arguments of an operator's constructor, and how a recipe holds them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from penstock.core.dtypes import canonical
from penstock.core.errors import ParameterError


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    """The parameters of a class's constructor that have a name of their own, as it declares them."""
    found = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    return {n: p for n, p in found.items() if n != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def parameter_names(cls: type) -> list[str]:
    """The names of a class's constructor arguments."""
    return list(parameters(cls))


def plain(value: Any, where: str) -> Any:
    """`value` as JSON and YAML can hold it, or an error that says which argument cannot be written."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, (np.generic, pl.DataType))):
        return canonical(value)
    if isinstance(value, (list, tuple)):
        return [plain(v, where) for v in value]
    if isinstance(value, Mapping):
        return {str(k): plain(v, where) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise ParameterError(f"{where} cannot be written into a recipe: {type(value).__name__} is not plain data")
