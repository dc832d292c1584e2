"""What data may be given as, wherever something takes data: the types of those arguments."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import polars as pl
import pyarrow as pa

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


Paths: TypeAlias = str | Path | Collection[str | Path]  # files, folders, globs, URLs
Frame: TypeAlias = pl.DataFrame | pl.LazyFrame | pa.Table | pa.RecordBatch | PandasFrame | Mapping[str, Any]
Source: TypeAlias = Paths | Frame
DataLike: TypeAlias = "Dataset | Source"
