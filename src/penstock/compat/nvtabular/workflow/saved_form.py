"""A node of a workflow that NVTabular saved, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.errors import ArtefactError
from penstock.etl.operator import Columns, Operator

Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Saved:
    """A node as it was saved."""

    record: Mapping[str, Any]
    folder: Path  # its artefacts
    file: Path  # the graph, for messages

    @property
    def params(self) -> Mapping[str, Any]:
        return self.record.get("op_params") or {}

    @property
    def state(self) -> Mapping[str, Any]:
        return self.record.get("op_state") or {}

    @property
    def input_names(self) -> list[str]:
        return [column["name"] for column in self.record.get("input_schema") or ()]

    def artefact(self, path: str) -> Path:
        """A file of the node's, which must lie inside its folder."""
        found = self.folder / path
        if not found.resolve().is_relative_to(self.folder.resolve()):
            raise ArtefactError(f"{self.file} names {path!r}, which lies outside {self.folder}")
        if not found.exists():
            raise ArtefactError(f"{found} is missing; the saved workflow is incomplete, copy it again")
        return found


@dataclass
class Restored:
    """An operator, how its columns are grouped, and what it learned, which is put in place once the graph stands."""

    op: Operator
    groups: Groups = ()
    finish: Callable[[Any, Columns], None] | None = None
    dtypes: dict[str, str] = field(default_factory=dict)  # of its raw columns, as the values learned show them


def numpy_name(value: Any, default: str) -> str:
    """The name of a dtype as it was saved.

    >>> numpy_name({"name": "<i4"}, "int64"), numpy_name(None, "int64")
    ('int32', 'int64')
    """
    name = value.get("name") if isinstance(value, Mapping) else value
    return default if name is None else np.dtype(name).name
