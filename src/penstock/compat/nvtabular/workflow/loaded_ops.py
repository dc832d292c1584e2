"""What NVTabular's saved form holds, and operators that were learned elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.artefact import SavedFolder
from penstock.core.errors import ArtefactError, NotFittedError
from penstock.etl import ops as native
from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.operator import Columns, Operator
from penstock.etl.ops.keyed_table import KeyedTable

# Operators with the statistics that NVTabular saved: enough to transform, too little to learn more rows.


class _Loaded:
    """Mixin: the state is the finished statistics. Once these are forgotten, the plain operator is fitted."""

    plain: type[FittedOperator]

    def clear(self) -> None:
        super().clear()  # type: ignore[misc]
        self.__class__ = self.plain  # type: ignore[assignment]

    def merge(self, left: Any, right: Any) -> Any:
        raise NotFittedError(
            f"{self!r} holds finished statistics that NVTabular saved and cannot learn from more rows; fit the "
            f"workflow again"
        )


class _LoadedScale(_Loaded):
    def finish(self, state: dict[str, list[float]], columns: Columns) -> None:
        self.state_ = state
        self.offsets_ = {name: offset for name, (offset, _) in state.items()}
        self.scales_ = {name: scale if scale > 0 else 1.0 for name, (_, scale) in state.items()}

    def save_state(self, folder: Path) -> None:
        (folder / "state.json").write_text(json.dumps(self.state_))

    def load_state(self, folder: SavedFolder, columns: Columns) -> None:
        self.finish(folder.json("state.json"), columns)


class LoadedNormalize(_LoadedScale, native.Normalize):
    """`Normalize` with means and standard deviations; the state is `{column: [mean, std]}`."""

    plain = native.Normalize


class LoadedNormalizeMinMax(_LoadedScale, native.NormalizeMinMax):
    """`NormalizeMinMax` with ranges; the state is `{column: [least, range]}`."""

    plain = native.NormalizeMinMax


class LoadedFillMedian(_Loaded, native.FillMedian):
    """`FillMedian` with medians; the state is `{column: median}`."""

    plain = native.FillMedian

    def finish(self, state: dict[str, float], columns: Columns) -> None:
        self.state_, self.medians_ = state, dict(state)


class LoadedJoinGroupby(_Loaded, native.JoinGroupby):
    """`JoinGroupby` with finished tables, keys first, statistics under the names of the outputs."""

    plain = native.JoinGroupby

    def finish(self, state: Any, columns: Columns) -> None:
        self.state_ = state
        keys = ([f"k{i}" for i in range(len(group))] for group in columns.groups)
        self.tables_ = [KeyedTable(table, own) for table, own in zip(state, keys, strict=True)]

    def save_state(self, folder: Path) -> None:
        for i, table in enumerate(self.state_):
            table.write_parquet(folder / f"table.{i}.parquet")

    def load_state(self, folder: SavedFolder, columns: Columns) -> None:
        self.finish([folder.frame(f"table.{i}.parquet") for i in range(len(columns.groups))], columns)


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
