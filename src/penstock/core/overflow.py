"""Whether an expression's arithmetic left the dtype of its integers: polars lets them wrap, which nobody would see."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from penstock.core.errors import DataError

# As polars writes an expression: operators between parentheses, functions by name. Text that looks like one costs a
# check, nothing else.
_ARITHMETIC = re.compile(r"\) [-+*] \(|\.(sql_mul|negate|abs|pow|sum_horizontal)\(")
_ROUNDED = 1e-5  # by which floats may differ that came from wider ones
_FAILED_CAST = "conversion from `i128`"


def check_overflow(frame: pl.DataFrame, expressions: Sequence[pl.Expr], found: pl.DataFrame, where: str) -> None:
    """Refuse what expressions made of integers that were beyond their dtype on the way.

    Everything is computed once more on integers of 128 bits: where the two differ, the first has wrapped. Expressions
    without arithmetic on integer columns cost nothing; what polars cannot compute on 128 bits is not checked.

    Args:
        frame: what the expressions read.
        expressions: one for each column of `found`.
        found: what they gave.
        where: the operator, for the message.

    Raises:
        DataError: a number is beyond its dtype; it names column and row.

    >>> frame = pl.DataFrame({"x": [1, 100]}, schema={"x": pl.Int8})
    >>> check_overflow(frame, [pl.col("x") + 1], frame.select(pl.col("x") + 1), "Expr")
    >>> check_overflow(frame, [pl.col("x") * 2], frame.select(pl.col("x") * 2), "Expr")
    Traceback (most recent call last):
    ...
    penstock.core.errors.DataError: Expr, column 'x', row 1: ... leaves the dtype of its integers (x: Int8); ...
    """
    columns = found.get_columns()
    for position, expression in enumerate(expressions):
        made = [columns[position]] if len(columns) == len(expressions) else columns  # one may give several columns
        narrow = [name for name, dtype in frame.schema.items() if dtype.is_integer() and _reads(expression, name)]
        if not narrow or not _ARITHMETIC.search(str(expression)):
            continue
        wide = _computed(frame.with_columns(pl.col(narrow).cast(pl.Int128)), expression)
        for place in (_first_other(column, wide) for column in made if wide is not None):
            if place is not None:
                dtypes = ", ".join(f"{name}: {frame.schema[name]}" for name in narrow)
                raise DataError(
                    f"{where}{place}: {expression} leaves the dtype of its integers ({dtypes}); cast a column first: "
                    f"CAST(x AS BIGINT) in text, .cast(pl.Int64) in polars"
                )


def filtered(frame: pl.DataFrame, predicate: pl.Expr, where: str) -> pl.DataFrame:
    """The rows for which an expression holds.

    Raises:
        DataError: a number in it is beyond its dtype.
    """
    if _ARITHMETIC.search(str(predicate)):
        check_overflow(frame, [predicate], frame.select(predicate), where)
    return frame.filter(predicate)


def _reads(expression: pl.Expr, name: str) -> bool:
    roots = expression.meta.root_names()
    return name in roots or (expression.meta.has_multiple_outputs() and not roots)


def _computed(wide: pl.DataFrame, expression: pl.Expr) -> pl.DataFrame | None:
    """What the expression gives on wide integers; without columns where it asks for a dtype that does not hold one."""
    try:
        return wide.select(expression)
    except pl.exceptions.PolarsError as error:
        return pl.DataFrame() if _FAILED_CAST in str(error) else None


def _first_other(found: pl.Series, wide: pl.DataFrame) -> str | None:
    """Where the wide column of that name differs, in words; None where it does not, or nobody can tell."""
    if found.name not in wide.columns:
        return f", column {found.name!r}" if not wide.columns else None
    other = wide[found.name]
    try:
        if found.dtype.is_float():
            differ = _are_apart(found.cast(pl.Float64), other.cast(pl.Float64))
        elif found.dtype.is_integer():
            differ = found.cast(pl.Int128).ne_missing(other.cast(pl.Int128))
        else:
            differ = found.ne_missing(other.cast(found.dtype))
    except pl.exceptions.PolarsError:
        return None
    return f", column {found.name!r}, row {differ.arg_max()}" if differ.any() else None


def _are_apart(one: pl.Series, other: pl.Series) -> pl.Series:
    frame = pl.DataFrame({"one": one, "other": other})
    one_, other_ = pl.col("one"), pl.col("other")
    near = (one_ - other_).abs() <= _ROUNDED * pl.max_horizontal(one_.abs(), other_.abs())
    return frame.select(~(one_.eq_missing(other_) | near.fill_null(False))).to_series()
