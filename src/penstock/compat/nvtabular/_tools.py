"""`nvtabular.tools`: data drawn from a description, and the description of a data set."""

from __future__ import annotations

import argparse
import json
import random
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.io.dataset import Dataset
from penstock.compat.nvtabular.ops._learned import DataStats
from penstock.compat.nvtabular.workflow import Workflow
from penstock.core.artefact import replacing
from penstock.core.bounded import read_json
from penstock.core.errors import ParameterError, suggest
from penstock.core.extras import require

# Data drawn from a description: columns of numbers, categories and labels, each from a distribution.

pandas = require("pandas", "pandas")


_ROWS_PER_FILE = 1_000_000


class UniformDistro:
    """Values spread evenly.

    >>> UniformDistro().create_col(3, min_val=2, max_val=2).tolist()
    [2.0, 2.0, 2.0]
    """

    def create_col(self, num_rows: int, dtype: Any = np.float32, min_val: float = 0, max_val: float = 1) -> Any:
        return pandas.Series(np.random.uniform(min_val, max_val, num_rows)).astype(dtype)

    def verify(self, pandas_series: Any) -> Any:
        """Kolmogorov's and Smirnov's test against the even distribution on [0, 1]."""
        stats = require("scipy.stats", "scipy")
        return stats.kstest(pandas_series, stats.uniform().cdf)


class PowerLawDistro:
    """Values of which small ones are the most frequent, by a power law.

    >>> bool(PowerLawDistro(0.1).create_col(100, min_val=1, max_val=9).between(1, 9).all())
    True
    """

    def __init__(self, alpha: float = 0.1) -> None:
        self.alpha = alpha

    def create_col(self, num_rows: int, dtype: Any = np.float32, min_val: float = 0, max_val: float = 1) -> Any:
        power = 1 - self.alpha
        low, high = np.power(float(min_val), power), np.power(float(max_val), power)
        drawn = low + np.random.uniform(0, 1, num_rows) * (high - low)
        return pandas.Series(np.power(drawn, 1 / power)).astype(dtype)

    def verify(self, pandas_series: Any) -> Any:
        """Kolmogorov's and Smirnov's test against the power law on [0, 1]."""
        stats = require("scipy.stats", "scipy")
        return stats.kstest(pandas_series, stats.powerlaw(self.alpha).cdf)


DISTRO_TYPES = {"powerlaw": PowerLawDistro, "uniform": UniformDistro}


class Col:
    """A column: its name, dtype and distribution.

    >>> Col("a", "int32").name
    'a'
    """

    def __init__(self, name: str, dtype: Any, distro: Any = None) -> None:
        self.name, self.dtype, self.distro = name, dtype, distro


class ContCol(Col):
    """Numbers between two bounds; `width` columns of them.

    >>> ContCol("x", "float32", max_val=5).max_val
    5
    """

    def __init__(
        self,
        name: str,
        dtype: Any,
        min_val: float = 0,
        max_val: float = 1,
        mean: float | None = None,
        std: float | None = None,
        per_nan: float | None = None,
        width: int = 1,
        distro: Any = None,
    ) -> None:
        super().__init__(name, dtype, distro)
        self.min_val, self.max_val, self.mean, self.std = min_val, max_val, mean, std
        self.per_nan, self.width = per_nan, width


class CatCol(Col):
    """Categories, as numbers or as texts of some length; with `multi_min` and `multi_max`, lists of them.

    >>> CatCol("c", "int32", cardinality=10).cardinality
    10
    """

    def __init__(
        self,
        name: str,
        dtype: Any,
        cardinality: int,
        min_entry_size: int | None = None,
        max_entry_size: int | None = None,
        avg_entry_size: float | None = None,
        per_nan: float | None = None,
        multi_min: int | None = None,
        multi_max: int | None = None,
        multi_avg: float | None = None,
        distro: Any = None,
        min_val: int = 0,
        permutate_index: bool = False,
    ) -> None:
        super().__init__(name, dtype, distro)
        self.cardinality, self.min_val, self.permutate_index = cardinality, min_val, permutate_index
        self.min_entry_size, self.max_entry_size, self.avg_entry_size = min_entry_size, max_entry_size, avg_entry_size
        self.multi_min, self.multi_max, self.multi_avg, self.per_nan = multi_min, multi_max, multi_avg, per_nan


class LabelCol(Col):
    """Labels from 0 to a cardinality.

    >>> LabelCol("click", "int8", 2).cardinality
    2
    """

    def __init__(
        self, name: str, dtype: Any, cardinality: int, per_nan: float | None = None, distro: Any = None
    ) -> None:
        super().__init__(name, dtype, distro)
        self.cardinality, self.per_nan = cardinality, per_nan


class DatasetGen:
    """Draws frames and files of columns.

    >>> cols = {"conts": [ContCol("x", "float32")], "cats": [CatCol("c", "int32", 5)]}
    >>> DatasetGen(UniformDistro()).create_df(4, cols).shape
    (4, 2)
    """

    def __init__(self, distribution: Any, gpu_frac: float = 0.8, use_cpu: bool | None = None) -> None:
        if distribution is None:
            raise ParameterError(f"DatasetGen needs a distribution: {' or '.join(DISTRO_TYPES)}")
        self.dist, self.gpu_frac = distribution, gpu_frac

    def create_df(self, size: int, cols: Mapping[str, Sequence[Any]], entries: bool = False) -> Any:
        """A frame; with `entries`, categories are texts."""
        conts, cats, labels = (cols.get(kind) or () for kind in ("conts", "cats", "labels"))
        made = [self.create_conts(size, conts), self.create_cats(size, cats, entries), self.create_labels(size, labels)]
        return pandas.concat([frame for frame in made if frame.shape[1]], axis=1)

    def create_conts(self, size: int, conts_rep: Sequence[ContCol]) -> Any:
        columns = {}
        for col in conts_rep:
            for i in range(col.width):
                drawn = (col.distro or self.dist).create_col(size, col.dtype, col.min_val, col.max_val)
                columns[col.name if i == 0 else f"{col.name}_{i}"] = drawn
        return pandas.DataFrame(columns)

    def create_cats(self, size: int, cats_rep: Sequence[CatCol], entries: bool = False) -> Any:
        columns = {}
        for col in cats_rep:
            lengths = None
            if col.multi_min and col.multi_max:
                lengths = self._drawn(col, size, col.multi_min, col.multi_max).to_numpy()
            codes = self._drawn(col, size if lengths is None else int(lengths.sum()), col.min_val, col.cardinality)
            codes = codes.astype(np.int32)
            if col.permutate_index:
                codes = self.permutate_index(codes)
            if entries:
                codes, _ = self.merge_cats_encoding(codes, self._entries(col))
            values = codes.to_numpy()
            columns[col.name] = codes if lengths is None else pandas.Series(np.split(values, np.cumsum(lengths)[:-1]))
        return pandas.DataFrame(columns)

    def create_labels(self, size: int, labs_rep: Sequence[LabelCol]) -> Any:
        columns = {}
        for col in labs_rep:
            columns[col.name] = self._drawn(col, size, 0, col.cardinality).astype(col.dtype)
        return pandas.DataFrame(columns)

    def _drawn(self, col: Col, size: int, low: float, high: float) -> Any:
        """Whole numbers from a column's distribution."""
        return np.floor((col.distro or self.dist).create_col(size, np.float64, low, high)).astype(np.int64)

    def _entries(self, col: CatCol) -> list[str]:
        return self.create_cat_entries(col.cardinality, col.min_entry_size or 1, col.max_entry_size or 5)

    def create_cat_entries(self, cardinality: int, min_size: int = 1, max_size: int = 5) -> list[str]:
        """Different texts, one more than the cardinality says."""
        letters = string.ascii_letters + string.digits
        found: dict[str, None] = {}
        while len(found) <= cardinality:
            found["".join(random.choices(letters, k=random.randint(min_size, max_size)))] = None
        return list(found)

    def merge_cats_encoding(self, ser: Any, cats: Any) -> tuple[Any, Any]:
        """Texts in the place of numbers; for lists also the offsets."""
        offsets = None
        if len(ser) and pandas.api.types.is_list_like(ser.iloc[0]):
            offsets = pandas.Series(np.concatenate([[0], np.cumsum(ser.map(len).to_numpy())]))
            ser = pandas.Series(np.concatenate(ser.to_numpy()))
        names = np.asarray(cats, dtype=object)
        return pandas.Series(names[np.clip(ser.to_numpy(), 0, len(names) - 1)], name=ser.name), offsets

    def permutate_index(self, ser: Any) -> Any:
        """The same values under other numbers."""
        known = ser.drop_duplicates().to_numpy()
        return ser.map(dict(zip(known.tolist(), np.random.permutation(known).tolist(), strict=True)))

    def full_df_create(
        self, size: int, cols: Mapping[str, Sequence[Any]], entries: bool = False, output: Any = "."
    ) -> list[str]:
        """Write files of at most a million rows; gives their names."""
        files = []
        for number, start in enumerate(range(0, size, _ROWS_PER_FILE)):
            frame = self.create_df(min(_ROWS_PER_FILE, size - start), cols, entries)
            files.append(str(Path(output) / f"{'FINAL' if entries else 'dataset'}_{number}.parquet"))
            frame.to_parquet(files[-1])
        return files

    def verify_df(self, df_to_verify: Any) -> tuple[list[float], list[float]]:
        """Statistics and p-values of each column."""
        found = [self.dist.verify(df_to_verify[name]) for name in df_to_verify.columns]
        return [f[0] for f in found], [f[1] for f in found]

    def get_row_size(self, row: Any, cats_rep: Sequence[CatCol] | None) -> int:
        """Bytes of a row; a list counts with its longest length."""
        longest = {col.name: col.multi_max or 1 for col in cats_rep or ()}
        sizes = [longest.get(n, 1) * (8 if row[n].dtype == object else row[n].dtype.itemsize) for n in row.columns]
        return int(sum(sizes))


def _get_cols_from_schema(schema: Mapping[str, Any], distros: Mapping[str, Mapping[str, Any]] | None = None) -> dict:
    """Columns from a description: `{"conts": {name: {...}}, "cats": {...}, "labels": {...}}`."""
    kinds = {"conts": ContCol, "cats": CatCol, "labels": LabelCol}
    found: dict[str, list[Any]] = {}
    for kind, made in kinds.items():
        found[kind] = []
        for name, described in (schema.get(kind) or {}).items():
            fields = {key: value for key, value in described.items() if key != "distro"}
            chosen = (distros or {}).get(name) or described.get("distro")
            found[kind].append(made(name, distro=_distribution(chosen), **fields))
    return found


def _distribution(described: Mapping[str, Any] | None) -> Any:
    if described is None:
        return None
    name = described.get("name")
    if name not in DISTRO_TYPES:
        raise ParameterError(f"there is no distribution {name!r}{suggest(str(name), DISTRO_TYPES, 'distributions')}")
    return DISTRO_TYPES[name](**(described.get("params") or {}))


# The description of a data set, in the form that `data_gen` draws data from.

_FIELDS = {
    "cats": {"min_entry_size": "min", "max_entry_size": "max", "avg_entry_size": "mean", "cardinality": "cardinality"},
    "conts": {"min_val": "min", "max_val": "max", "mean": "mean", "std": "std"},
    "labels": {"cardinality": "cardinality"},
}


class DatasetInspector:
    """Writes the statistics of a data set's columns as JSON.

    >>> import pandas as pd
    >>> data = Dataset(pd.DataFrame({"c": ["x", "yy"], "x": [0.5, 1.5], "y": [0, 1]}))
    >>> DatasetInspector().inspect(data, {"cats": ["c"], "conts": ["x"], "labels": ["y"]}, "categories/described.json")
    >>> json.loads(Path("categories/described.json").read_text())["cats"]["c"]["max_entry_size"]
    2
    """

    def __init__(self, client: Any = None) -> None:
        self.client = client

    def inspect(self, dataset: Any, columns_dict: Mapping[str, Sequence[str]], output_file: Any) -> None:
        """Look at the columns named under cats, conts and labels."""
        data = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
        stats = DataStats()
        names = [name for kind in _FIELDS for name in columns_dict.get(kind, ())]
        Workflow(ColumnSelector(names) >> stats, client=self.client).fit(data)
        found: dict[str, Any] = {"num_rows": data.num_rows}
        for kind, fields in _FIELDS.items():
            found[kind] = {name: _entry(stats.output[name], fields) for name in columns_dict.get(kind, ())}
        file = Path(output_file)
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as partial:
            partial.write_text(json.dumps(found))


def _entry(stats: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    taken = {field: stats[name] for field, name in fields.items() if name in stats}
    return {"dtype": stats["dtype"], **taken, "per_nan": stats["per_nan"]}


# A program that writes the description of a data set: `python -m nvtabular.tools.inspector_script`.


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The program's arguments.

    >>> parse_args(["-d", "data", "-c", "columns.json"]).format
    'parquet'
    """
    parser = argparse.ArgumentParser(description="Describe a data set's columns")
    parser.add_argument("-c", "--config_file", required=True, help="JSON with the lists cats, conts and labels")
    parser.add_argument("-d", "--data_path", required=True, help="the data")
    parser.add_argument("-f", "--format", default="parquet", help="parquet or csv")
    parser.add_argument("-o", "--output_file", default="dataset_info.json", help="where the description goes")
    parser.add_argument("-g", "--gpus", "--devices", default=None, help="taken, and means nothing here")
    return parser.parse_args(args)


def main(args: argparse.Namespace | None = None) -> None:
    """Describe the data that the arguments name."""
    given = args or parse_args()
    columns = read_json(Path(given.config_file))
    DatasetInspector().inspect(Dataset(given.data_path, engine=given.format), columns, given.output_file)


if __name__ == "__main__":
    main()
