"""Partitions one by one, as pandas frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.compat.missing import module_getattr

__all__ = ["DataFrameIter"]


class DataFrameIter:
    """What `Dataset.to_iter` gives; its length is the number of rows.

    >>> from penstock.compat.merlin.io import Dataset
    >>> rows = Dataset({"x": [1, 2, 3]}, npartitions=2).to_iter()
    >>> len(rows), [len(frame) for frame in rows]
    (3, [1, 2])
    """

    def __init__(
        self,
        data: Any,
        columns: Sequence[str] | None = None,
        indices: Sequence[int] | None = None,
        partition_lens: Any = None,
        epochs: int = 1,
    ) -> None:
        self.data = getattr(data, "native", data)
        self.columns = None if columns is None else list(columns)
        self.indices = list(indices) if indices is not None else list(range(self.data.num_partitions))
        self.epochs = epochs

    def __len__(self) -> int:
        counts = self.data._row_counts()
        return self.epochs * sum(counts[i] for i in self.indices)

    def __iter__(self) -> Iterator[Any]:
        names = self.columns or self.data.schema.names
        for _ in range(self.epochs):
            for index in self.indices:
                yield self.data.partitions[index].read(names).to_pandas()


__getattr__ = module_getattr(__name__)
