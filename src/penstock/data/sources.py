"""What data may be given as, wherever something takes data: the types of those arguments, and which is which."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

import polars as pl
import pyarrow as pa

from penstock.core.errors import DataError
from penstock.core.file_names import check_path

if TYPE_CHECKING:
    from penstock.data.dataset import Dataset


class PandasFrame(Protocol):
    """A pandas data frame, as far as it is needed here: pandas is an extra, and its types come with it."""

    @property
    def columns(self) -> Any:
        """The names of its columns."""
        ...

    def to_numpy(self) -> Any:
        """Its values."""
        ...


Paths: TypeAlias = str | os.PathLike[str] | Collection[str | os.PathLike[str]]  # files, folders, globs, URLs
Frame: TypeAlias = pl.DataFrame | pl.LazyFrame | pa.Table | pa.RecordBatch | PandasFrame | Mapping[str, Any]
Source: TypeAlias = Paths | Frame
DataLike: TypeAlias = "Dataset | Source"


def are_paths(source: object) -> TypeGuard[Paths]:
    """Whether it names files, and is no data itself.

    >>> are_paths("day.tsv"), are_paths(["a.csv", "b.csv"]), are_paths({"x": [1]}), are_paths([{"x": 1}])
    (True, True, False, False)
    """
    if isinstance(source, (str, os.PathLike)):
        return True
    several = isinstance(source, (list, tuple, set, frozenset))
    return several and all(isinstance(path, (str, os.PathLike)) for path in source)  # type: ignore[attr-defined]


def paths_of(source: Paths) -> str | list[str]:
    """One path as it is, several as a list: what lies beside data is looked for beside the one. A set has no order.

    >>> paths_of(["day.tsv"]), paths_of({"b.csv", "a.csv"})
    ('day.tsv', ['a.csv', 'b.csv'])
    """
    if isinstance(source, (str, os.PathLike)):
        check_path(source, DataError, is_utf8=False)
        return os.fspath(source)
    found = [os.fspath(path) for path in source]
    for path in found:
        check_path(path, DataError, is_utf8=False)
    if isinstance(source, (set, frozenset)):
        found.sort()
    return found[0] if len(found) == 1 else found
