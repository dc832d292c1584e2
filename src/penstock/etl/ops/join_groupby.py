"""Statistics of a category's rows as new columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.core.artefact import SavedFolder
from penstock.core.errors import ParameterError, SchemaError
from penstock.core.params import NONE, STR, Int, ListOf, OneOf
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.operator import Columns
from penstock.etl.ops.grouped_sums import GroupedSums, key_frame, mean_of, numbers, total_of, totals, variance_of
from penstock.etl.ops.keyed_table import KeyedTable

STATISTICS = ("count", "sum", "mean", "std", "var", "min", "max")
ROWS = "count:"  # rows of a key, whatever stands in the other columns


class JoinGroupby(FittedOperator):
    """Statistics of numeric columns over all rows of a category, joined to each row.

    Sums are exact, so the result does not depend on partitions or their order. An unseen category has count 0 and
    null statistics. Nested names (`[["a", "b"]]`) group by several columns.

    Args:
        cont_cols: the columns to take statistics of; none are needed for `count`.
        stats: any of count, sum, mean, std, var (of the sample), min, max.
        name_sep: joins the names: `<category>_count`, `<category>_<column>_<statistic>`.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"city": ["Rome", "Rome", "Oslo"], "price": [1.0, 2.0, 5.0]})
    >>> workflow = Workflow(["city"] >> JoinGroupby("price", stats=["count", "mean"]))
    >>> workflow.fit_transform(frame).to_dict(as_series=False)
    {'city_count': [2, 2, 1], 'city_price_mean': [1.5, 1.5, 5.0]}
    """

    constraints = {
        "cont_cols": STR | ListOf(STR) | NONE,
        "stats": OneOf(STATISTICS) | ListOf(OneOf(STATISTICS)),
        "name_sep": STR,
    }

    def __init__(
        self,
        cont_cols: str | Sequence[str] | None = None,
        stats: str | Sequence[str] = ("count",),
        name_sep: str = "_",
    ) -> None:
        self.cont_cols = cont_cols
        self.stats = stats
        self.name_sep = name_sep

    def check_params(self) -> None:
        super().check_params()
        if not self._conts and any(s != "count" for s in self._stats):
            raise ParameterError(f"JoinGroupby needs cont_cols for {[s for s in self._stats if s != 'count']}")

    @property
    def _stats(self) -> list[str]:
        return [self.stats] if isinstance(self.stats, str) else list(self.stats)

    @property
    def _conts(self) -> list[str]:
        return [self.cont_cols] if isinstance(self.cont_cols, str) else list(self.cont_cols or ())

    fit_only_dependencies = True

    def dependencies(self) -> list[str]:
        return self._conts

    def output_names(self, group: tuple[str, ...]) -> dict[str, tuple[str, str]]:
        """`{output: (statistic, column)}` of one group of key columns.

        Args:
            group: the key columns.

        Returns:
            By output, its statistic and the column it is of.
        """
        out = {}
        for statistic in self._stats:
            if statistic == "count":
                out[self.name_sep.join((*group, "count"))] = ("count", "")
        for cont in self._conts:
            for statistic in self._stats:
                if statistic != "count":
                    out[self.name_sep.join((*group, cont, statistic))] = (statistic, cont)
        return out

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        out = []
        for name in columns.names:
            if inputs[name].is_list:
                raise SchemaError(f"JoinGroupby groups by single values; column {name!r} holds lists")
        for group in columns.groups:
            for name, (statistic, _) in self.output_names(group).items():
                if statistic == "count":
                    out.append(ColumnSchema(name, "int64", Role.CONTINUOUS, nullable=False))
                else:
                    out.append(ColumnSchema(name, "float64", Role.CONTINUOUS))
        return Schema(out)

    # Fitting.

    def partial(self, frame: pl.DataFrame, columns: Columns) -> list[GroupedSums]:
        return self.accumulate(None, frame, columns)

    def accumulate(self, state: list[GroupedSums] | None, frame: pl.DataFrame, columns: Columns) -> list[GroupedSums]:
        wanted = set(self._stats)
        values: dict[str, Any] = {ROWS: np.ones(frame.height, np.int64)}
        for cont in self._conts:
            numeric = numbers(frame[cont], "JoinGroupby")
            squares = bool(wanted & {"std", "var"})
            values |= totals(cont, numeric, squares, squares or bool(wanted & {"sum", "mean"}))
            if wanted & {"min", "max"}:
                extreme = pl.Series(numeric.values).fill_nan(None)
                values |= {f"min:{cont}": extreme, f"max:{cont}": extreme}
        added = pl.DataFrame(values)
        if state is None:
            state = [GroupedSums([f"k{i}" for i in range(len(group))]) for group in columns.groups]
        for sums, group in zip(state, columns.groups, strict=True):
            sums.add(key_frame(frame, group, "JoinGroupby").hstack(added))
        return state

    def merge(self, left: list[GroupedSums], right: list[GroupedSums]) -> list[GroupedSums]:
        return [a.merge(b) for a, b in zip(left, right, strict=True)]

    def finish(self, state: list[GroupedSums], columns: Columns) -> None:
        self.state_ = state
        groups = zip(state, columns.groups, strict=True)
        self.tables_ = [KeyedTable(self._table(sums.frame(), group), sums.keys) for sums, group in groups]

    def _table(self, sums: pl.DataFrame, group: tuple[str, ...]) -> pl.DataFrame:
        """Keys with their finished statistics, under the outputs' names."""
        table = sums.select(n for n in sums.columns if ":" not in n)
        return table.with_columns(
            pl.Series(name, statistic_of(sums, statistic, cont)).fill_nan(None)
            if statistic != "count"
            else sums[ROWS].alias(name)
            for name, (statistic, cont) in self.output_names(group).items()
        )

    # Transforming.

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        out = []
        for group, table in zip(columns.groups, self.tables_, strict=True):
            found = table.rows_of(key_frame(frame, group, "JoinGroupby"))
            for name, (statistic, _) in self.output_names(group).items():
                out.append(found[name].fill_null(0) if statistic == "count" else found[name])
        return pl.DataFrame(out)

    # Saving.

    def save_state(self, folder: Path) -> None:
        for i, sums in enumerate(self.state_):
            sums.frame().write_parquet(folder / f"totals.{i}.parquet")
        (folder / "state.json").write_text(json.dumps({"groups": len(self.state_)}))

    def load_state(self, folder: SavedFolder, columns: Columns) -> None:
        count = folder.json("state.json", {"groups": Int(min=0)})["groups"]
        frames = [folder.frame(f"totals.{i}.parquet") for i in range(count)]
        keys = ([n for n in frame.columns if ":" not in n] for frame in frames)
        self.finish([GroupedSums(k, [f]) for k, f in zip(keys, frames, strict=True)], columns)


def statistic_of(sums: pl.DataFrame, statistic: str, cont: str) -> np.ndarray:
    """One statistic of each key, as float64; NaN where it is not defined."""
    if statistic == "sum":
        return total_of(sums, cont)
    if statistic == "mean":
        return mean_of(sums, cont)
    if statistic in ("min", "max"):
        return sums[f"{statistic}:{cont}"].fill_null(np.nan).to_numpy()
    variance = variance_of(sums, cont)
    return variance if statistic == "var" else np.sqrt(variance)
