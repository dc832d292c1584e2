"""What the columns of raw rows are good for, judged by their dtype, values and names, each with the reason."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from penstock.core.described import described
from penstock.data.formats.text_sniffing import is_number
from penstock.jobs.draft_times import as_time

LEFT_OUT = "left out"
GIVES_AWAY = "gives the label away"
_RARELY = 0.02  # a share of the rows: what is missing or there more seldom says little
_UNIQUE, _ENOUGH = 0.95, 50  # a share of the rows that differ, and rows that can tell
_MOSTLY_NONE = 0.3  # a share of labels that are 0 where any other means that something happened
_FEW_NUMBERS = 30  # distinct integers that are rather names of things than amounts
_ID_NAME = re.compile(
    r"(?i:(^|_|\b)(id|ids|uid|user|item|movie|product|ad|page|site|app|device|code|zip|zipcode|postcode|cat|category|type"
    r"|class|gender|sex|occupation|brand|city|country|region|channel|campaign|genre)s?($|_|\b))|[a-z]I[dD]$|^[cC]\d+$",
)
_AMOUNT_NAME = re.compile(
    r"(?i:(^|_|\b)(age|price|cost|amount|count|cnt|num|number|score|length|duration|size|qty|year)($|_|\b))"
)
NAMELESS = re.compile(r"column_\d+")  # what a column is called that has no name
_FRAME_INDEX = re.compile(r"__index_level_\d+__|Unnamed: 0(\.\d+)?")  # what pandas calls the numbers of its rows
_ROW_NUMBER = re.compile(
    rf"{NAMELESS.pattern}|(?i:#|index|idx|seq|sequence|serial|record|no\.?|nr\.?|(row|record|serial|line)[ _]?"
    r"(id|index|no\.?|nr\.?|num|number)?)"
)
_BRACKETS = r"^\s*\[.*\]\s*$"
_LIST_MARKS = " []'\""
_HEX = r"^[0-9a-f]{8}$"
_DECIMAL_COMMA = r"^[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?$"
_THOUSANDS = r"^[+-]?(\d{1,3}|[1-9]\d{0,2}(,\d{3})+)(\.\d+)?$"
_BLANKED = r"^[+-]?\d{1,3}([ \u00a0\u202f]\d{3})*([.,]\d+)?$"
_BLANKS = (" ", "\u00a0", "\u202f")
_UNITS = (
    "$", "€", "£", "¥", "₹", "₽", "₩", "₺", "%", "USD", "EUR", "GBP", "CHF", "JPY", "CNY", "INR", "RUB", "BRL", "AUD",
    "CAD", "SEK", "NOK", "DKK", "PLN", "KRW", "MXN",
)  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """A column, which node of the recipe it goes to, and why.

    Args:
        name: of the column.
        node: "categories", "numbers", "skewed", "signed", "decimals", "skewed_decimals", "signed_decimals", "lists",
            "times"; or `LEFT_OUT`.
        why: in a few words.
        arguments: of the node's operator: columns of a node that differ in them become nodes of their own.
        dtype: to read it as, where text says another.
        is_flagged: whether it is said beside a number that it was missing.
        bounds: of a number that is infinite now and then, the least and the most that it is else.
    """

    name: str
    node: str
    why: str
    arguments: dict[str, Any] = field(default_factory=dict)
    dtype: str | None = None
    is_flagged: bool = False
    bounds: tuple[float, float] | None = None


def judge(values: pl.Series, label: pl.Series) -> Judged:
    """What a column is good for.

    Args:
        values: of the column, in some rows.
        label: of the same rows, 0 and 1.

    Returns:
        The judgement.
    """
    values = described(values)
    name, there = values.name, values.drop_nulls()
    if isinstance(values.dtype, pl.List):
        return _judge_list(values)
    if _FRAME_INDEX.fullmatch(name) or (_ROW_NUMBER.fullmatch(name) and _counts_rows(values)):
        return Judged(name, LEFT_OUT, "the numbers of rows, as pandas writes them too")
    distinct = there.n_unique()
    if distinct <= 1:
        return Judged(name, LEFT_OUT, "no value in any row" if not distinct else f"the same everywhere: {there[0]!r}")
    leak = _gives_away(values, label, distinct)
    if leak:
        return Judged(name, LEFT_OUT, leak)
    if (time := as_time(there, distinct)) is not None:
        return Judged(name, "times", *time)
    if (number := _as_written_number(values, label)) is not None:
        return number
    if there.dtype == pl.String:
        return _judge_text(there, distinct)
    if there.dtype == pl.Boolean:
        return Judged(name, "categories", "true and false")
    if there.dtype.is_numeric():
        return _judge_number(values, there, distinct)
    return Judged(name, LEFT_OUT, f"{there.dtype} is nothing that a model reads")


def _counts_rows(values: pl.Series) -> bool:
    return values.len() > 1 and values.dtype.is_integer() and bool((values.diff().drop_nulls() == 1).all())


def _judge_list(values: pl.Series) -> Judged:
    parts = values.explode().drop_nulls()
    if not parts.len():
        return Judged(values.name, LEFT_OUT, "no value in any row")
    if isinstance(parts.dtype, pl.List):
        return Judged(values.name, LEFT_OUT, "lists of lists; make columns of them")
    if parts.dtype.is_float():
        return Judged(values.name, LEFT_OUT, "lists of fractions; make columns of them")
    return Judged(values.name, "categories", f"lists of {parts.n_unique():,} values")


def _gives_away(values: pl.Series, label: pl.Series, distinct: int) -> str | None:
    """Whether a column says the label: each of its values goes with one label, or its order sorts the labels."""
    rows = pl.DataFrame({"v": values, "y": label.cast(pl.Float64)}).drop_nulls()
    if rows.height < 20 or rows["y"].n_unique() < 2:
        return None
    if distinct * 5 <= rows.height:
        groups = rows.group_by("v").agg(pl.col("y").min().alias("low"), pl.col("y").max().alias("high"))
        if (groups["low"] == groups["high"]).all():
            return f"{GIVES_AWAY}: each of its values goes with one label only"
    if rows["v"].dtype.is_numeric() and distinct > 2:
        ranks = rows["v"].rank("average")
        ones = float(rows["y"].sum())
        auc = (float((ranks * rows["y"]).sum()) - ones * (ones + 1) / 2) / (ones * (rows.height - ones))
        if max(auc, 1 - auc) > 0.999:
            return f"{GIVES_AWAY}: alone it has an AUC of {max(auc, 1 - auc):.4f}"
    return None


def _as_written_number(values: pl.Series, label: pl.Series) -> Judged | None:
    """A number that only people read as one: with a unit, with commas between its thousands or before its fraction."""
    there = values.drop_nulls()
    if there.dtype != pl.String:
        return None
    unit = next((sign for sign in _UNITS if there.str.contains(sign, literal=True).all()), None)
    removed = [] if unit is None else [unit, " "]
    bare = _without(there, removed)
    is_blanked = unit is None and bool(bare.str.contains(_BLANKED).all()) and bool(bare.str.contains("[.,]").any())
    if is_blanked and bare.str.contains("[ \u00a0\u202f]").any():
        removed, bare, unit = [*_BLANKS], _without(bare, _BLANKS), "blanks between thousands"
    found = _commas(bare, unit)
    if found is None:
        return None
    how, marks, is_decimal = found
    removed += marks
    bare = _without(values, removed)
    judged = judge((bare.str.replace(",", ".", literal=True) if is_decimal else bare).cast(pl.Float64), label)
    if judged.node not in ("numbers", "skewed", "signed"):
        return judged if judged.node == LEFT_OUT else None
    number = _quoted(values.name)
    for mark, other in [*((mark, "") for mark in removed), *([(",", ".")] if is_decimal else [])]:
        number = f"REPLACE({number}, '{mark}', '{other}')"
    number = f"CAST({number} AS DOUBLE)"
    node = "decimals" if judged.node == "numbers" else f"{judged.node}_decimals"
    number = _signed_logarithm(number) if judged.node == "signed" else number
    return replace(judged, node=node, why=f"{judged.why}, written {how}", arguments={values.name: number})


def _quoted(name: str) -> str:
    """A column's name in an expression."""
    return '"' + name.replace('"', '""') + '"'


def _signed_logarithm(number: str) -> str:
    """An expression that keeps the sign and shortens what is far from 0."""
    return f"SIGN({number}) * LN(1 + ABS({number}))"


def _without(texts: pl.Series, marks: Sequence[str]) -> pl.Series:
    for mark in marks:
        texts = texts.str.replace_all(mark, "", literal=True)
    return texts


def _commas(bare: pl.Series, unit: str | None) -> tuple[str, list[str], bool] | None:
    """How numbers are written, what is left out to read them, and whether a comma is before the fraction."""
    with_unit = [] if unit is None else [f"with {unit}"]
    has_commas = bool(bare.str.contains(",", literal=True).any())
    # 1,250 may be either. Beside 999 it is a thousand and more, and where all have a comma a scaled number is the same.
    if has_commas and bare.str.contains(_THOUSANDS).all():
        return " and ".join([*with_unit, "with commas between thousands"]), [","], False
    if has_commas and bare.str.contains(_DECIMAL_COMMA).all():  # 1.234 alone may as well be a fraction
        return " and ".join([*with_unit, "with a comma"]), ["."], True
    if unit is not None and all(map(is_number, bare.to_list())):
        return with_unit[0], [], False
    return None


def _judge_text(there: pl.Series, distinct: int) -> Judged:
    name, rows = there.name, there.len()
    found = _as_list(there, distinct)
    if found is not None:
        return found
    if distinct > _UNIQUE * rows and rows >= _ENOUGH:
        return Judged(name, LEFT_OUT, f"a different value in {_every(distinct, rows)} row")
    words = there.str.count_matches(" ").mean() or 0
    if _number(words) > 3 and distinct > 0.5 * rows:
        return Judged(name, LEFT_OUT, "free text, hardly the same twice")
    is_hex = bool(there.str.contains(_HEX).all()) and bool(there.str.contains("[a-f]").any())
    dtype = "hex32" if is_hex else None
    return Judged(name, "categories", f"{distinct:,} texts", _rare(there, distinct), dtype)


def _as_list(there: pl.Series, distinct: int) -> Judged | None:
    """Several values in a text: where parts come again in other combinations."""
    brackets = bool(there.str.contains(_BRACKETS).all())  # as JSON and Python write lists
    marks = _LIST_MARKS if brackets else " "
    for separator in (",",) if brackets else ("|", ";", ",", "^", " "):
        if not brackets and _number(there.str.contains(separator, literal=True).mean()) < 0.05:
            continue
        parts = there.str.split(separator).explode().str.strip_chars(marks)
        if separator in (" ", "^") and not parts.str.contains(r"^\S*\d\S*$").all():
            continue  # words of a name; ids have digits
        if brackets or (parts.n_unique() < 0.8 * distinct and parts.n_unique() < parts.len() / 5):
            arguments = {"separator": separator, **({"strip": _LIST_MARKS} if brackets else {})}
            why = f"lists in text, {parts.n_unique():,} values between {separator!r}"
            return Judged(there.name, "lists", why, arguments)
    return None


def _judge_number(values: pl.Series, there: pl.Series, distinct: int) -> Judged:
    name, rows = there.name, there.len()
    is_whole = there.dtype.is_integer() or bool((there.is_finite() & (there == there.round())).all())
    is_id = is_whole and _ID_NAME.search(name) is not None and not _AMOUNT_NAME.search(name)
    if is_whole and distinct > _UNIQUE * rows and rows >= _ENOUGH and (is_id or _is_large(there)):
        return Judged(name, LEFT_OUT, f"a different number in {_every(distinct, rows)} row")
    if is_id:
        return Judged(name, "categories", f"{distinct:,} ids, by its name", _rare(there, distinct))
    is_dense = _number(there.max()) - _number(there.min()) <= 3 * distinct
    if is_whole and distinct <= _FEW_NUMBERS and is_dense and not _AMOUNT_NAME.search(name):
        return Judged(name, "categories", f"{distinct:,} whole numbers")
    if is_whole and NAMELESS.fullmatch(name) and distinct <= rows / 2 and not _is_skewed(there):
        why = f"{distinct:,} whole numbers that come again, rather ids"
        return Judged(name, "categories", why, _rare(there, distinct))
    if is_whole and _is_large(there):
        return Judged(name, "categories", f"{distinct:,} large numbers, rather ids", _rare(there, distinct))
    finite = there.filter(there.is_finite()) if there.dtype.is_float() else there
    missing = values.null_count() + (there.is_nan().sum() if there.dtype.is_float() else 0)
    gaps = f", {missing / values.len():.0%} missing" if missing else ""
    is_endless = there.dtype.is_float() and bool(there.is_infinite().any())
    is_flagged = _RARELY <= missing / values.len() <= 1 - _RARELY
    low, high = _number(finite.min()), _number(finite.max())
    node, what, arguments = "numbers", f"a number from {_plain(low)} to {_plain(high)}", dict[str, Any]()
    if finite.len() and _is_skewed(finite if low >= 0 else finite.cast(pl.Float64).abs()):
        node, what = "skewed" if low >= 0 else "signed", f"an amount from {_plain(low)} to {_plain(high)}, mostly small"
        arguments = {name: _signed_logarithm(_quoted(name))} if low < 0 else {}
    if not is_endless:
        return Judged(name, node, what + gaps, arguments, is_flagged=is_flagged)
    most = math.log1p(max(-low, high))
    bounds = (-most, most) if node == "signed" else (low, high)
    return Judged(name, node, f"{what}{gaps}, infinite now and then", arguments, None, is_flagged, bounds)


def _every(distinct: int, rows: int) -> str:
    return "every" if distinct == rows else "nearly every"


def _plain(number: float) -> str:
    """A number as people write it, with four or so digits that count.

    >>> _plain(3978050.0), _plain(0.0123456), _plain(-3.0), _plain(2.5e12)
    ('3,978,050', '0.01235', '-3', '2.5e+12')
    """
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e10 else f"{number:.4g}"


def _number(value: Any) -> float:
    """A figure of a column as a number; 0 where there is none."""
    return 0.0 if value is None else float(value)


def _is_large(there: pl.Series) -> bool:
    return _number((there.abs() if there.dtype.is_signed_integer() else there).median()) > 2**31


def _is_skewed(finite: pl.Series) -> bool:
    """Whether a few values lie far above the others."""
    middle, high = _number(finite.median()), _number(finite.max())
    return high > 20 * max(middle, 0.01)


def _rare(there: pl.Series, distinct: int) -> dict[str, Any]:
    """Values seen once say nothing; where they are many they share a code."""
    if distinct < 1000:
        return {}
    once = there.value_counts().filter(pl.col("count") == 1).height
    return {"freq_threshold": 2} if once > 0.3 * distinct else {}


def label_codes(values: pl.Series) -> tuple[pl.Series | None, str, dict[str, Any]]:
    """The label as 0 and 1, why, and the arguments of `Binarize` that make it so; None where nothing does."""
    from penstock.jobs.labels import positive_value

    values = values.fill_nan(None) if values.dtype.is_float() else values
    there = values.drop_nulls()
    distinct = there.n_unique()
    if not distinct:
        return None, "no value in any row", {}
    if distinct == 1 and there.dtype != pl.String:
        why = f"{there[0]} in every row, so there is nothing to learn"
        return values.cast(pl.Int8, strict=False), why, {"ones": [True]} if there.dtype == pl.Boolean else {}
    if there.dtype == pl.Boolean:
        return values.cast(pl.Int8), f"true in {_number(there.mean()):.1%} of the rows", {"ones": [True]}
    if there.dtype == pl.String:
        if distinct > 2:
            return None, f"{distinct:,} texts", {}
        counts = there.value_counts().sort("count")
        one = positive_value(counts[there.name].to_list())
        share = _number((there == one).mean())
        return (values == one).cast(pl.Int8), f"{one!r} in {share:.1%} of the rows", {"ones": [one]}
    if not there.dtype.is_numeric():
        return None, str(there.dtype), {}
    low, high = _number(there.min()), _number(there.max())
    if low >= 0 and high <= 1 and distinct <= 2:
        return values.cast(pl.Int8), f"0 or 1; 1 in {_number(there.mean()):.1%} of the rows", {}
    if distinct > 20 and not (there == there.round()).all():
        return None, f"numbers from {low:g} to {high:g}", {}
    # A count, most of it 0, or a mark out of so many.
    least = (
        math.nextafter(0, 1) if low == 0 and _number((there == 0).mean()) >= _MOSTLY_NONE else low + 0.7 * (high - low)
    )
    at_least = _number(there.filter(there >= least).min())
    share = _number((there >= at_least).mean())
    plain = int(at_least) if at_least.is_integer() else at_least
    why = f"from {low:g} to {high:g}; {plain} and more count as 1, which is {share:.1%} of the rows"
    return (values >= at_least).cast(pl.Int8), why, {"threshold": plain}


def looks_like_label(values: pl.Series) -> bool:
    """Whether a column has two values, as a label has."""
    there = values.drop_nulls()
    if there.dtype == pl.String:
        return there.n_unique() == 2 and not is_number(str(there[0]))
    there = there.drop_nans() if there.dtype.is_float() else there
    return there.dtype != pl.List and there.n_unique() == 2
