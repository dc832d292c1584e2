"""Merlin's readers of one format each, which `Dataset` chose between; here they are data sets of that format."""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.compat.merlin.io.dataset import Dataset
from penstock.data.formats import format_of_name


class DatasetEngine:
    """A data set of one format: `to_ddf`, `num_rows`, `schema` and what else a `Dataset` has.

    >>> import pandas as pd
    >>> DataFrameDatasetEngine(pd.DataFrame({"x": [1, 2]})).num_rows
    2
    """

    format: ClassVar[str | None] = None

    def __init__(
        self,
        paths: Any,
        part_size: int | str | None = None,
        storage_options: dict[str, Any] | None = None,
        cpu: bool | None = None,
        schema: Any = None,
        **kwargs: Any,
    ) -> None:
        self.paths, self.part_size, self.storage_options, self.cpu = paths, part_size, storage_options or {}, True
        self.dataset = Dataset(
            paths, engine=self.format, part_size=part_size, storage_options=storage_options, schema=schema, **kwargs
        )

    def to_ddf(self, columns: Any = None, cpu: bool | None = None) -> Any:
        """A Dask frame of pandas partitions."""
        return self.dataset.to_ddf(columns)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["dataset"], name)

    @property
    def _partition_lens(self) -> list[int]:
        return self.dataset.partition_lens


class AvroDatasetEngine(DatasetEngine):
    """Reads Avro files."""

    format = "avro"


class CSVDatasetEngine(DatasetEngine):
    """Reads text."""

    format = "csv"


class ParquetDatasetEngine(DatasetEngine):
    """Reads parquet."""

    format = "parquet"


class DataFrameDatasetEngine(DatasetEngine):
    """Takes frames."""


def engine_of(dataset: Dataset) -> DatasetEngine:
    """The engine of a data set's format.

    >>> type(engine_of(Dataset({"x": [1, 2]}))).__name__
    'DataFrameDatasetEngine'
    """
    path = next((part.path for part in dataset.native.partitions if part.path), None)
    known: dict[str | None, type[DatasetEngine]] = {
        "parquet": ParquetDatasetEngine, "csv": CSVDatasetEngine, "avro": AvroDatasetEngine
    }  # fmt: skip
    named = known.get(format_of_name(path), DatasetEngine) if path else DataFrameDatasetEngine
    engine = object.__new__(named)
    engine.dataset, engine.paths, engine.cpu = dataset, list(dataset.file_partition_map) if path else [], True
    engine.part_size, engine.storage_options = None, {}
    return engine
