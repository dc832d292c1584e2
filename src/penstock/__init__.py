"""Click logs to a trained recommender at full pressure.

Nothing is imported before it is asked for, so that `penstock --help` answers at once.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from penstock.core.schema import ColumnSchema, Role, Schema
    from penstock.data import Dataset
    from penstock.etl import ColumnSelector, Workflow, ops

__all__ = ["ColumnSchema", "ColumnSelector", "Dataset", "Role", "Schema", "Workflow", "ops"]

_WHERE = {
    "ColumnSchema": "core.schema",
    "ColumnSelector": "etl",
    "Dataset": "data",
    "Role": "core.schema",
    "Schema": "core.schema",
    "Workflow": "etl",
}
_PACKAGES = ("compat", "core", "data", "embedding", "engine", "etl", "kernels", "loader", "nn", "serve", "train")
_MODULES = {**{name: name for name in _PACKAGES}, "ops": "etl.ops"}


def __getattr__(name: str) -> typing.Any:
    if name in _MODULES:
        found: typing.Any = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    elif name in _WHERE:
        found = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found  # once
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES])
