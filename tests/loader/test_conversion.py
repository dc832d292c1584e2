"""A loader delivers the values that are stored, or says which one the dtype asked for does not hold."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.errors import DataError, ParameterError
from penstock.data import Dataset
from penstock.loader import Loader

ROADS = ["frame", "parquet", "mapped", "memory"]


def opened(column: pl.Series, road: str, folder) -> tuple[Dataset, dict]:
    frame = pl.DataFrame({"x": column})
    if road == "frame":
        return Dataset(frame), {}
    frame.write_parquet(folder / "a.parquet")
    data = Dataset(folder / "a.parquet")
    if road == "mapped":
        data = data.map(lambda f: f, data.schema)
    return data, {"cache": "memory"} if road == "memory" else {}


def delivered(column: pl.Series, road: str, folder, **settings) -> np.ndarray:
    data, extra = opened(column, road, folder)
    loader = Loader(data, len(column), **{"continuous": ["x"], **settings}, **extra)
    (batch,) = list(loader.epochs(1))
    values = batch[1][:, 0] if settings.get("layout") == "packed" else batch[0]["x"]
    return values.values if hasattr(values, "values") else values


REFUSED = [
    (pl.Series([1.5, 2.5, float("nan")]), "int32", "is no int32"),
    (pl.Series([1.0, float("nan")]), "int32", "row 1.*nan is no int32"),
    (pl.Series([1.0, float("inf")]), "int64", "row 1.*inf is no int64"),
    (pl.Series([0, 4294967295], dtype=pl.UInt32), "int32", "4294967295 at position 1 there, which int32 cannot hold"),
    (pl.Series([0, -1], dtype=pl.Int32), "uint32", "-1 at position 1 there, which uint32 cannot hold"),
    (pl.Series([0, 2**63], dtype=pl.UInt64), "int64", "9223372036854775808 at position 1"),
    (pl.Series([1, 1700000001]), "float32", "row 1.*1700000001 is no float32"),
    (pl.Series([1.0, 1e300]), "float32", r"row 1.*1e\+300 is no float32"),
    (pl.Series([1.0, -(2.0**63) - 4096]), "int64", "row 1"),
]


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(("column", "dtype", "message"), REFUSED)
def test_what_a_dtype_does_not_hold_is_refused(column, dtype, message, road, tmp_path):
    with pytest.raises(DataError, match=message):
        delivered(column, road, tmp_path, dtypes={"x": dtype})
    lists = pl.Series([column.to_list()], dtype=pl.List(column.dtype))
    with pytest.raises(DataError):
        delivered(lists, road, tmp_path, dtypes={"x": dtype})


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        (pl.Series([1.0, -2.0]), "int8"),
        (pl.Series([2**31 - 1, 0], dtype=pl.UInt32), "int32"),
        (pl.Series([2**24, -(2**24), 2**30]), "float32"),
        (pl.Series([255, 0], dtype=pl.UInt8), "int16"),
        (pl.Series([-0.0, float("nan"), float("inf")]), "float32"),
    ],
)
def test_what_it_holds_is_delivered_exactly(column, dtype, road, tmp_path):
    found = delivered(column, road, tmp_path, dtypes={"x": dtype})
    assert found.dtype == dtype and np.array_equal(found.astype(np.float64), column.to_numpy(), equal_nan=True)


@pytest.mark.parametrize("road", ROADS)
def test_the_packed_block_refuses_too(road, tmp_path):
    with pytest.raises(DataError, match="1700000001 is no float32"):
        delivered(pl.Series([1700000001]), road, tmp_path, layout="packed")
    with pytest.raises(DataError, match=r"0\.5 is no int64"):
        delivered(pl.Series([0.5]), road, tmp_path, layout="packed", continuous=None, categorical=["x"])
    assert delivered(pl.Series([0.1]), road, tmp_path, layout="packed")[0] == np.float32(0.1)


@pytest.mark.parametrize("road", ROADS)
def test_a_cardinality_beyond_the_delivered_dtype(road, tmp_path):
    data, extra = opened(pl.Series([1, 200], dtype=pl.Int32), road, tmp_path)
    data = data.with_schema(data.schema.with_column(data.schema["x"].with_(cardinality=1000, role="categorical")))
    with pytest.raises(DataError, match="200 at position 1 there, which int8 cannot hold"):
        list(Loader(data, 2, dtypes={"x": "int8"}, **extra))


def test_data_set_dtypes_are_exact_on_every_road(tmp_path):
    pq.write_table(pa.table({"x": pa.array([1, 4294967295], pa.uint32()), "f": [1.5, 2.0]}), tmp_path / "a.parquet")
    path = str(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"column 'x', row 1 of .*a\.parquet: 4294967295 is no int32"):
        list(Loader(Dataset(path, dtypes={"x": "int32"}), 2, continuous=["x"]))
    with pytest.raises(DataError, match=r"column 'f', row 0 of .*a\.parquet: 1.5 is no int64"):
        Dataset(path, dtypes={"f": "int64"}).to_polars()
    with pytest.raises(DataError, match=r"column 'f', row 0 of the frame: 1\.5 is no int64"):
        Dataset({"f": [1.5]}, dtypes={"f": "int64"})
    wide = Dataset(path, dtypes={"x": "int64"})
    assert next(iter(Loader(wide, 2, continuous=["x"])))[0]["x"].tolist() == [1, 4294967295]
    with pytest.raises(ParameterError, match="hex32"):
        Dataset({"id": ["10", "ff"]}, dtypes={"id": "hex32"})


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("fill", [float("nan"), 2**40, 0.5])
def test_a_fill_that_the_column_cannot_hold(fill, road, tmp_path):
    column = pl.Series([1, None], dtype=pl.Int32)
    with pytest.raises(DataError, match=r"column 'x' has 1 nulls.*is no int32"):
        delivered(column, road, tmp_path, fill=fill)
    with pytest.raises(ParameterError, match=r"fill\['x'\]: .* is no int32"):
        delivered(column, road, tmp_path, fill={"x": fill})
    assert delivered(column, road, tmp_path, fill=7.0).tolist() == [1, 7]


@pytest.mark.parametrize("road", ROADS)
def test_decimals_and_lists_of_a_fixed_size(road, tmp_path):
    assert delivered(pl.Series([Decimal("1.10"), Decimal("-2.5")]), road, tmp_path).tolist() == [1.1, -2.5]
    arrays = pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int32, 2))
    assert delivered(arrays, road, tmp_path).tolist() == [1, 2, 3, 4]
