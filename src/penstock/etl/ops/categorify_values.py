"""The values that `Categorify` encodes: combinations of columns as one, and vocabularies that a user gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from penstock.core.bounded import read_frame
from penstock.core.errors import ParameterError, PenstockError
from penstock.etl.arguments import plain
from penstock.etl.vocabulary import VALUE, Vocabulary


def combined_values(frame: pl.DataFrame, names: tuple[str, ...]) -> pl.Series:
    """One text a row for a combination of columns; rows where all of them are null are null."""
    parts = frame.select(_spelled(name, frame.schema[name]) for name in names)
    text = pl.struct(pl.all()).struct.json_encode()
    for name, dtype in parts.schema.items():
        if dtype.is_float() and parts[name].is_infinite().any():  # JSON has no infinity: it would be null
            sign = pl.when(pl.col(name) > 0).then(pl.lit("+")).otherwise(pl.lit("-"))
            text = pl.when(pl.col(name).is_infinite()).then(text + sign + pl.lit(name)).otherwise(text)
    empty = pl.all_horizontal(pl.all().is_null())
    return parts.select(pl.when(empty).then(None).otherwise(text).alias(names[0])).to_series()


def combined_order() -> pl.Expr:
    """The order of such texts among values seen equally often: a missing part comes before every other."""
    return pl.col(VALUE).str.replace_all(":null", ": null", literal=True)  # JSON spells it after quotes and digits


def _spelled(name: str, dtype: pl.DataType) -> pl.Expr:
    """A column as JSON can hold it, each value by itself: NaN is missing, -0.0 is 0.0, bytes are text."""
    column = pl.col(name)
    if dtype == pl.Binary:
        return column.bin.encode("hex")
    if not dtype.is_float():
        return column
    one_zero = pl.when(column == 0.0).then(pl.lit(0.0, dtype=dtype)).otherwise(column)
    return one_zero.fill_nan(None).alias(name)


def given_vocabulary(source: Any, name: str) -> Vocabulary:
    """A vocabulary that the user fixed: values in order, or a parquet file with a column of them."""
    if isinstance(source, (str, Path)):
        frame = _read_vocabulary(source, name)
        column = next((c for c in (VALUE, name) if c in frame.columns), frame.columns[0])
        values = frame[column]
    else:
        try:
            values = source if isinstance(source, pl.Series) else pl.Series(name, _listed(source))
        except (TypeError, pl.exceptions.PolarsError) as error:
            raise ParameterError(f"Categorify.vocabs[{name!r}] must hold values of one kind: {error}") from error
    values = values.drop_nans().drop_nulls() if values.dtype.is_float() else values.drop_nulls()
    if values.n_unique() != len(values):
        raise ParameterError(f"Categorify.vocabs[{name!r}] holds a value twice")
    return Vocabulary(values.alias(VALUE))


def _read_vocabulary(source: str | Path, name: str) -> pl.DataFrame:
    try:
        frame = read_frame(Path(source)) if Path(source).is_file() else pl.read_parquet(source)
    except (PenstockError, pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise ParameterError(f"Categorify.vocabs[{name!r}]: {source} holds no vocabulary: {error}") from error
    if not frame.width:
        raise ParameterError(f"Categorify.vocabs[{name!r}]: {source} has no columns; it needs one of values")
    return frame


def _listed(values: Any) -> list[Any]:
    return values.to_list() if hasattr(values, "to_list") else list(values)


def plain_vocabulary(values: Any, name: str) -> Any:
    """A vocabulary as a recipe can hold it."""
    if isinstance(values, (str, Path)):
        return str(values)
    try:
        return plain(_listed(values), f"Categorify.vocabs[{name!r}]")
    except ParameterError as error:
        raise ParameterError(f"{error}; write the values as parquet and pass its path") from None
