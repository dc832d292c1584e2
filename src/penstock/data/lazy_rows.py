"""Changes that are made when rows are read: other columns, fewer rows, other partitions. No row is moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

import polars as pl

from penstock.core.errors import ParameterError
from penstock.core.params import Int, check
from penstock.core.schema import Schema
from penstock.data import splitting, tasks
from penstock.data.described import merged
from penstock.data.files import parse_bytes
from penstock.data.partition import MappedPartition, SelectedPartition
from penstock.data.partitioned_rows import PartitionedRows


class LazyRows(PartitionedRows):
    """Rows that can be chosen and changed before they are read: the second part of `Dataset`."""

    def with_schema(self, schema: Schema) -> Self:
        """The same rows under another description (roles, tags, cardinalities) of the same columns.

        Args:
            schema: of the same names and dtypes.

        Returns:
            The data set under that schema.

        Raises:
            SchemaError: it describes other columns.
        """
        return self.from_partitions(self._parts, merged(self._schema, schema, True, self.place))

    def with_roles(self, **roles: Sequence[str]) -> Self:
        """`data.with_roles(label=["click"], categorical=["user"])`.

        Args:
            roles: names of columns by role.

        Returns:
            The data set with these roles; others stay.
        """
        return self.with_schema(self._schema.with_roles(**roles))

    def select(self, columns: Sequence[str]) -> Self:
        """Only some columns.

        Args:
            columns: names, in the order wanted.

        Returns:
            The data set with these columns.

        Raises:
            ColumnNotFoundError: there is no such column.
        """
        schema = self._schema.select(columns)
        return self.from_partitions([SelectedPartition(p, tuple(schema.names)) for p in self._parts], schema)

    def map(
        self,
        function: Callable[[pl.DataFrame], pl.DataFrame],
        schema: Schema,
        inputs: Sequence[str] | None = None,
        keeps_rows: bool = True,
    ) -> Self:
        """Run `function` on each partition when it is read; `schema` describes the result.

        Args:
            function: takes and gives a polars frame.
            schema: of what it gives.
            inputs: columns it needs; all by default.
            keeps_rows: whether it gives as many rows as it takes.

        Returns:
            The data set as it will be read.
        """
        wanted = tuple(inputs if inputs is not None else self._schema.names)
        parts = [MappedPartition(p, function, wanted, keeps_rows) for p in self._parts]
        return self.from_partitions(parts, schema)

    def filter(self, predicate: pl.Expr) -> Self:
        """Only the rows for which a polars expression holds.

        Args:
            predicate: a polars expression that is true or false.

        Returns:
            The data set with the rows for which it is true.
        """
        return self.map(partial(tasks.filter, predicate=predicate), self._schema, keeps_rows=False)

    def repartition(self, num_partitions: int | None = None, *, part_size: int | str | None = None) -> Self:
        """The same rows in the same order, in another number of partitions of equal length.

        Args:
            num_partitions: how many there shall be.
            part_size: or how many bytes each (`"64MB"`).

        Returns:
            The data set in these partitions.

        Raises:
            ParameterError: not exactly one of the two is given.
        """
        if (num_partitions is None) == (part_size is None):
            raise ParameterError("repartition takes either num_partitions or part_size")
        if num_partitions is None:
            num_bytes = sum(p.num_bytes for p in self._parts)
            num_partitions = max(1, -(-num_bytes // parse_bytes(part_size)))  # type: ignore[arg-type]
        check("num_partitions", num_partitions, Int(min=1))
        parts = splitting.even_partitions(self._parts, self._row_counts(), num_partitions, self._schema)
        return self.from_partitions(parts, self._schema)

    def split(
        self,
        fractions: Sequence[float],
        *,
        seed: int = 0,
        by: str | Sequence[str] | None = None,
        time: str | None = None,
        stratify: str | None = None,
    ) -> list[Self]:
        """Disjoint data sets that together hold every row.

        At random with exact proportions, every choice of rows equally likely (inside each value of `stratify`, when
        given, to the row; null and NaN are one value); or `by` the hash of some columns, so that all rows of a user
        stay together; or by `time`: the earliest rows first, rows of one time together, rows without one with the
        earliest.

        Args:
            fractions: the share of each part; their sum counts as all.
            seed: of the draw.
            by: columns whose rows stay together.
            time: a column to cut by.
            stratify: a column inside whose values proportions are kept.

        Returns:
            One data set for each fraction.

        Raises:
            ParameterError: the fractions make no sense, or several ways to split are asked for.
            SchemaError: a key column holds lists.

        >>> from penstock import Dataset
        >>> train, valid = Dataset({"x": list(range(10))}).split([0.8, 0.2])
        >>> train.num_rows, valid.num_rows
        (8, 2)
        """
        check("seed", seed, Int())
        found = splitting.split_partitions(self, fractions, seed, by, time, stratify)
        return [self.from_partitions(parts, self._schema) for parts in found]

    def sample(
        self, fraction: float | None = None, *, num_rows: int | None = None, seed: int = 0, stratify: str | None = None
    ) -> Self:
        """A random subset without replacement, of exactly the size asked for.

        Args:
            fraction: the share of rows, or
            num_rows: their number.
            seed: of the draw.
            stratify: a column inside whose values proportions are kept.

        Returns:
            The data set with the rows drawn.

        Raises:
            ParameterError: not exactly one of fraction and num_rows is given, or there are fewer rows.
        """
        check("seed", seed, Int())
        parts = splitting.sampled_partitions(self, fraction, num_rows, seed, stratify)
        return self.from_partitions(parts, self._schema)
