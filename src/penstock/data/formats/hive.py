"""Values in the names of folders (`day=2024-01-02/country=NL/`), as Hive spells them: written and read back exactly."""

from __future__ import annotations

from urllib.parse import quote, unquote, unquote_to_bytes

import polars as pl

from penstock.core.conversion import convert
from penstock.core.dtypes import canonical
from penstock.core.errors import ConversionError, DataError
from penstock.core.schema import Schema

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


def hive_folders(path: str) -> dict[str, str]:
    """The columns that a file's folders name, with their values as they are spelled there.

    >>> hive_folders("data/day=2024-01-02/country=__HIVE_DEFAULT_PARTITION__/part-0.parquet")
    {'day': '2024-01-02', 'country': '__HIVE_DEFAULT_PARTITION__'}
    """
    pairs = [folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder]
    return {unquote(name): value for name, value in pairs}


def hive_dtypes(path: str, described: Schema | None) -> dict[str, str]:
    """The dtypes of columns that folder names hold as text, where a schema tells them."""
    names = hive_folders(path) if described is not None else {}
    return {n: column.dtype for n in names if (column := described.get(n)) is not None}  # type: ignore[union-attr]


def hive_names(column: pl.Series) -> pl.Series:
    """Every value of a column as a folder spells it; null for null.

    >>> hive_names(pl.Series("day", [True, None])).to_list(), hive_names(pl.Series("key", [b"a/", b"%"])).to_list()
    (['true', None], ['a%2F', '%25'])
    """
    if column.dtype == pl.Binary:
        return pl.Series(column.name, [None if v is None else quote(v, safe=" ") for v in column], dtype=pl.String)
    # polars writes times without their fractions unless it is told to.
    text = column.dt.to_string("%H:%M:%S%.f") if column.dtype == pl.Time else column.cast(pl.String)
    distinct = {value: _escaped(value) for value in text.unique() if value is not None}
    return text.replace_strict(distinct, default=None, return_dtype=pl.String)


def _escaped(value: str) -> str:
    # A value that looks like Hive's word for null is told apart by its first character.
    return "%5F" + value[1:] if value == HIVE_NULL else quote(value, safe=" ")


def hive_column(name: str, spelled: str, dtype: pl.DataType, path: str) -> pl.Series:
    """The one value that a folder's name spells, as a column of one row.

    >>> hive_column("day", "2024-01-02", pl.Date(), "").to_list(), hive_column("x", "%FF", pl.Binary(), "").to_list()
    ([datetime.date(2024, 1, 2)], [b'\\xff'])
    """
    if spelled == HIVE_NULL:
        return pl.Series(name, [None], dtype=dtype)
    if dtype == pl.Binary:
        return pl.Series(name, [unquote_to_bytes(spelled)], dtype=dtype)
    value = unquote(spelled)
    text = pl.Series(name, [value])
    try:
        if dtype == pl.Boolean:
            return pl.Series(name, [_BOOLEANS[value.lower()]])
        if dtype == pl.Date:
            return text.str.to_date("%Y-%m-%d")
        if dtype == pl.Time:
            return text.str.to_time("%H:%M:%S%.f")
        if isinstance(dtype, pl.Datetime):
            return text.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit=dtype.time_unit)
        return convert(text, canonical(dtype), column=name)
    except (KeyError, ConversionError, pl.exceptions.PolarsError):
        raise DataError(
            f"{path}: the folder {name}={spelled} does not spell a value of {canonical(dtype)}; "
            f"pass dtypes={{{name!r}: …}}, or rename the folder"
        ) from None
