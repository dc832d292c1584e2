"""Target encoding: a category as the smoothed mean of the target over its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from penstock.core.artefact import SavedFolder
from penstock.core.dtypes import FLOATS, DtypeLike, canonical
from penstock.core.errors import DataError, ParameterError, SchemaError
from penstock.core.params import NONE, STR, Int, ListOf, PerColumn, Real, Satisfies
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.operator import ROW_NUMBER, Columns
from penstock.etl.ops.grouped_sums import GroupedSums, Terms, key_frame, mean_of, numbers, sum_of, totals
from penstock.etl.ops.keyed_table import KeyedTable

FOLD = "fold"
_NAMES = STR | ListOf(STR)


class TargetEncoding(FittedOperator):
    """`(sum of the target + p_smooth * mean) / (count + p_smooth)` over the rows of each category.

    `fit_transform` encodes the training rows out of fold: a row is encoded from the rows of the other folds, so its
    own target does not leak into its features. `transform` uses the statistics of all training rows. A category not
    seen in training becomes the target's mean; rows without a target (null, NaN) teach nothing.

    Args:
        target: the target column, or several.
        target_mean: the mean to smooth towards (one, or `{target: mean}`); of the training rows when left out.
        kfold: the number of folds; 1 switches them off.
        fold_seed: which rows fall into which fold is a hash of this and the row's number.
        p_smooth: how many rows' worth the mean weighs.
        out_col: names of the outputs, one for each column (or group) and target.
        out_dtype: float32 when left out.
        name_sep: joins the names: `TE_<column>_<target>`, `TE_<a>_<b>_<target>` for a group.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"city": ["Rome", "Rome", "Oslo"], "click": [1, 1, 0]})
    >>> workflow = Workflow(["city"] >> TargetEncoding("click", p_smooth=1, target_mean=0.5)).fit(frame)
    >>> workflow.transform(frame).to_dict(as_series=False)
    {'TE_city_click': [0.8333333134651184, 0.8333333134651184, 0.25]}
    """

    needs_row_numbers = True
    fit_only_dependencies = True
    constraints = {
        "target": _NAMES,
        "target_mean": PerColumn(Real()) | NONE,
        "kfold": Int(min=1, max=1000),
        "fold_seed": Int(min=0),
        "p_smooth": Real(min=0),
        "out_col": _NAMES | NONE,
        "out_dtype": Satisfies(lambda d: d is None or canonical(d) in FLOATS, "float32 or float64"),
        "name_sep": STR,
    }

    def __init__(
        self,
        target: str | Sequence[str],
        target_mean: float | Mapping[str, float] | None = None,
        kfold: int = 3,
        fold_seed: int = 42,
        p_smooth: float = 20,
        out_col: str | Sequence[str] | None = None,
        out_dtype: DtypeLike | None = None,
        name_sep: str = "_",
    ) -> None:
        self.target = target
        self.target_mean = target_mean
        self.kfold = kfold
        self.fold_seed = fold_seed
        self.p_smooth = p_smooth
        self.out_col = out_col
        self.out_dtype = out_dtype
        self.name_sep = name_sep

    @property
    def targets(self) -> list[str]:
        return [self.target] if isinstance(self.target, str) else list(self.target)

    @property
    def dtype(self) -> str:
        return "float32" if self.out_dtype is None else canonical(self.out_dtype)

    def dependencies(self) -> list[str]:
        return self.targets

    def output_names(self, columns: Columns) -> list[tuple[str, tuple[str, ...], str]]:
        """`(output, key columns, target)` for each output.

        Args:
            columns: those that the operator works on.

        Returns:
            One for each group of columns and each target.

        Raises:
            ParameterError: `out_col` names another number of outputs.
        """
        pairs = [(group, target) for group in columns.groups for target in self.targets]
        if self.out_col is None:
            return [(self.name_sep.join(("TE", *group, target)), group, target) for group, target in pairs]
        names = [self.out_col] if isinstance(self.out_col, str) else list(self.out_col)
        if len(names) != len(pairs):
            raise ParameterError(f"TargetEncoding.out_col names {len(names)} outputs, but there are {len(pairs)}")
        return [(name, group, target) for name, (group, target) in zip(names, pairs, strict=True)]

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        for name in columns.names:
            if inputs[name].is_list:
                raise SchemaError(f"TargetEncoding encodes single values; column {name!r} holds lists")
        names = (output for output, _, _ in self.output_names(columns))
        return Schema(ColumnSchema(name, self.dtype, Role.CONTINUOUS, nullable=False) for name in names)

    # Fitting: one table of totals by key and fold for each group of columns.

    def _folds(self, frame: pl.DataFrame) -> np.ndarray:
        from penstock.kernels.cpu_hash import combine_hashes, hash64

        if self.kfold == 1:
            return np.zeros(frame.height, np.int16)
        rows = frame[ROW_NUMBER].to_numpy().astype(np.uint64)
        seeds = np.full(frame.height, self.fold_seed, np.uint64)
        return (combine_hashes(hash64(seeds), hash64(rows)) % np.uint64(self.kfold)).astype(np.int16)

    def partial(self, frame: pl.DataFrame, columns: Columns) -> list[GroupedSums]:
        return self.accumulate(None, frame, columns)

    def accumulate(self, state: list[GroupedSums] | None, frame: pl.DataFrame, columns: Columns) -> list[GroupedSums]:
        values: dict[str, pl.Series] = {}
        for target in self.targets:
            values |= totals(target, _finite(numbers(frame[target], "TargetEncoding"), target))
        added = pl.DataFrame({FOLD: self._folds(frame), **values})
        state = [GroupedSums([*_keys(g), FOLD]) for g in columns.groups] if state is None else state
        for sums, group in zip(state, columns.groups, strict=True):
            sums.add(key_frame(frame, group, "TargetEncoding").hstack(added))
        return state

    def merge(self, left: list[GroupedSums], right: list[GroupedSums]) -> list[GroupedSums]:
        return [a.merge(b) for a, b in zip(left, right, strict=True)]

    def finish(self, state: list[GroupedSums], columns: Columns) -> None:
        self.state_ = state
        everything = state[0].frame().drop(state[0].keys).sum() if state else pl.DataFrame()
        self.means_ = {target: self._mean(everything, target) for target in self.targets}
        self.tables_ = [KeyedTable(self._encodings(_over_folds(sums)), sums.keys[:-1]) for sums in state]

    def _mean(self, everything: pl.DataFrame, target: str) -> float:
        if isinstance(self.target_mean, Mapping):
            if target in self.target_mean:
                return float(self.target_mean[target])
        elif self.target_mean is not None:
            return float(self.target_mean)
        count = int(everything[f"count:{target}"][0])
        return float(mean_of(everything, target)[0]) if count else 0.0

    def _encodings(self, sums: pl.DataFrame) -> pl.DataFrame:
        """Keys with the encoding of every target."""
        keys = [n for n in sums.columns if ":" not in n]
        encoded = {t: self._smoothed(sum_of(sums, t)[0], sums[f"count:{t}"].to_numpy(), t) for t in self.targets}
        return sums.select(keys).with_columns(pl.Series(f"te:{t}", v) for t, v in encoded.items())

    def _smoothed(self, total: np.ndarray, count: np.ndarray, target: str) -> np.ndarray:
        weight = count + float(self.p_smooth)
        smoothed = (total + self.means_[target] * self.p_smooth) / np.where(weight > 0, weight, 1.0)
        return np.where(weight > 0, smoothed, self.means_[target]).astype(self.dtype)

    # Transforming.

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return self._looked_up(frame, columns, self.tables_, None)

    def transform_training(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        if self.kfold == 1:
            return self.transform(frame, columns)
        folds = pl.Series(FOLD, self._folds(frame))
        return self._looked_up(frame, columns, [self._out_of_fold(sums) for sums in self.state_], folds)

    def _out_of_fold(self, sums: GroupedSums) -> KeyedTable:
        """The encodings of each key and fold, from the rows of the other folds."""
        if not hasattr(self, "_held_out") or self._held_out[0] is not self.state_:
            self._held_out: tuple[Any, dict[int, KeyedTable]] = (self.state_, {})
        known = self._held_out[1]
        if id(sums) not in known:
            by_fold = sums.frame()
            keys = [n for n in sums.keys if n != FOLD]
            names = [n for n in by_fold.columns if ":" in n]
            others = by_fold.with_columns(pl.col(n).sum().over(keys) - pl.col(n) for n in names)
            known[id(sums)] = KeyedTable(self._encodings(others), sums.keys)
        return known[id(sums)]

    def _looked_up(
        self, frame: pl.DataFrame, columns: Columns, tables: list[KeyedTable], folds: pl.Series | None
    ) -> pl.DataFrame:
        found = {}
        for group, table in zip(columns.groups, tables, strict=True):
            keys = key_frame(frame, group, "TargetEncoding")
            found[group] = table.rows_of(keys if folds is None else keys.with_columns(folds))
        return pl.DataFrame(
            found[group][f"te:{target}"].fill_null(self.means_[target]).alias(output)
            for output, group, target in self.output_names(columns)
        )

    # Saving: folds matter only to the data that was fitted, so what is saved is summed over them.

    def save_state(self, folder: Path) -> None:
        for i, sums in enumerate(self.state_):
            _over_folds(sums).write_parquet(folder / f"totals.{i}.parquet")
        (folder / "state.json").write_text(json.dumps({"groups": len(self.state_)}))

    def load_state(self, folder: SavedFolder, columns: Columns) -> None:
        count = folder.json("state.json", {"groups": Int(min=0)})["groups"]
        frames = [folder.frame(f"totals.{i}.parquet") for i in range(count)]
        first = pl.lit(0, dtype=pl.Int16).alias(FOLD)
        state = [
            GroupedSums([*_keys(group), FOLD], [frame.with_columns(first)])
            for group, frame in zip(columns.groups, frames, strict=True)
        ]
        self.finish(state, columns)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_held_out"}


def _finite(terms: Terms, target: str) -> Terms:
    infinite = np.isinf(terms.values)
    if infinite.any():
        row = int(infinite.argmax())
        found = terms.values[row]
        raise DataError(f"TargetEncoding: target {target!r} is {found} in row {row}; clip it first (ops.Clip)")
    return terms


def _keys(group: tuple[str, ...]) -> list[str]:
    return [f"k{i}" for i in range(len(group))]


def _over_folds(sums: GroupedSums) -> pl.DataFrame:
    frame = sums.frame()
    keys = [n for n in sums.keys if n != FOLD]
    return GroupedSums(keys, [frame.drop(FOLD)]).frame()
