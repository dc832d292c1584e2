"""Click logs to a trained recommender at full pressure.

Nothing is imported before it is asked for, so that `penstock --help` answers at once.
"""

import importlib  # loaded already whoever starts Python, unlike `typing`: `python -m` would take the working folder's

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing

    from penstock.core.errors import PenstockError
    from penstock.core.schema import ColumnSchema, Role, Schema
    from penstock.data import Dataset
    from penstock.embedding import Adagrad, Store, slots_from_schema
    from penstock.etl import ColumnSelector, Workflow, ops
    from penstock.nn import DLRM
    from penstock.serve import Predictor, save_model
    from penstock.train import fit

    __version__: str
del TYPE_CHECKING

__all__ = [  # noqa: RUF022
    "Adagrad",
    "ColumnSchema",
    "ColumnSelector",
    "DLRM",
    "Dataset",
    "PenstockError",
    "Predictor",
    "Role",
    "Schema",
    "Store",
    "Workflow",
    "fit",
    "ops",
    "save_model",
    "slots_from_schema",
]

_WHERE = {
    "Adagrad": "embedding",
    "DLRM": "nn",
    "Predictor": "serve",
    "Store": "embedding",
    "fit": "train",
    "save_model": "serve",
    "slots_from_schema": "embedding",
    "ColumnSchema": "core.schema",
    "ColumnSelector": "etl",
    "Dataset": "data",
    "PenstockError": "core.errors",
    "Role": "core.schema",
    "Schema": "core.schema",
    "Workflow": "etl",
}
_PACKAGES = ("compat", "core", "data", "embedding", "engine", "etl", "kernels", "loader", "nn", "serve", "train")
_MODULES = {**{name: name for name in _PACKAGES}, "ops": "etl.ops"}


def __getattr__(name: str) -> "typing.Any":
    if name == "__version__":
        found: typing.Any = _version()
    elif name in _MODULES:
        found = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    elif name in _WHERE:
        found = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found  # once
    return found


def _version() -> str:
    """What is installed; a source tree that is not has no version."""
    from importlib import metadata

    try:
        return metadata.version("penstock")
    except metadata.PackageNotFoundError:
        return "unknown"


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES])
