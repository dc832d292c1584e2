"""What the columns of raw rows are good for, judged by their dtype, values and names, each with the reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from penstock.data.formats.text_sniffing import is_number
from penstock.data.written_times import written_forms

LEFT_OUT = "left out"
GIVES_AWAY = "gives the label away"
FLAGGED = {"add_binary_cols": True}  # for a node that fills gaps
_RARELY = 0.02  # a share of the rows: what is missing or there more seldom says little
_FEW_NUMBERS = 30  # distinct integers that are rather names of things than amounts
_ID_NAME = re.compile(
    r"(^|_|\b)(id|ids|uid|user|item|movie|product|ad|page|site|app|device|code|zip|zipcode|postcode|cat|category|type"
    r"|class|gender|sex|occupation|brand|city|country|region|channel|campaign|genre)s?($|_|\b)|[a-z]Id$|^[cC]\d+$",
)
_AMOUNT_NAME = re.compile(r"(^|_)(age|price|cost|amount|count|cnt|num|number|score|length|duration|size|qty|year)($|_)")
_TIME_NAME = re.compile(
    r"(?i:(^|_)(time|timestamp|ts|date|datetime|day|hour|created|updated|at|when|epoch|unix|millis|ms)($|_))"
    r"|[a-z](Time|Timestamp|Date|At)$"
)
_FRAME_INDEX = re.compile(r"__index_level_\d+__|Unnamed: 0(\.\d+)?")  # what pandas calls the numbers of its rows
_HEX = r"^[0-9a-f]{8}$"
_ISO = r"^\d{4}[-/]\d{2}[-/]\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?Z?)?$"
_DECIMAL_COMMA = r"^[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?$"
_THOUSANDS = r"^[+-]?(\d{1,3}|[1-9]\d{0,2}(,\d{3})+)(\.\d+)?$"
_UNITS = ("$", "€", "£", "%")
_NUMBERED_TIMES = {"%y%m%d%H": 8, "%Y%m%d": 8, "%Y%m%d%H": 10}
_MANY_TIMES = 10  # distinct numbers that all read as a time are one, whatever they are called
_EPOCHS = {"s": (5e8, 2.2e9), "ms": (5e11, 2.2e12), "us": (5e14, 2.2e15)}


@dataclass(frozen=True)
class Judged:
    """A column, which node of the recipe it goes to, and why.

    Args:
        name: of the column.
        node: "categories", "numbers", "skewed", "decimals", "skewed_decimals", "lists", "times"; or `LEFT_OUT`.
        why: in a few words.
        arguments: of the node's operator: columns of a node that differ in them become nodes of their own.
        dtype: to read it as, where text says another.
    """

    name: str
    node: str
    why: str
    arguments: dict[str, Any] = field(default_factory=dict)
    dtype: str | None = None


def judge(values: pl.Series, label: pl.Series) -> Judged:
    """What a column is good for.

    Args:
        values: of the column, in some rows.
        label: of the same rows, 0 and 1.

    Returns:
        The judgement.
    """
    if values.dtype in (pl.Categorical, pl.Enum):
        values = values.cast(pl.String)
    name, there = values.name, values.drop_nulls()
    if isinstance(values.dtype, pl.List):
        return _judge_list(values)
    if _FRAME_INDEX.fullmatch(name):
        return Judged(name, LEFT_OUT, "the numbers of rows that pandas has written with them")
    distinct = there.n_unique()
    if distinct <= 1:
        return Judged(name, LEFT_OUT, "no value in any row" if not distinct else f"the same everywhere: {there[0]!r}")
    leak = _gives_away(values, label, distinct)
    if leak:
        return Judged(name, LEFT_OUT, leak)
    found = _as_time(there, distinct) or _as_written_number(values, label)
    if found is not None:
        return found
    if there.dtype == pl.String:
        return _judge_text(there, distinct)
    if there.dtype == pl.Boolean:
        return Judged(name, "categories", "true and false")
    if there.dtype.is_numeric():
        return _judge_number(values, there, distinct)
    return Judged(name, LEFT_OUT, f"{there.dtype} is nothing that a model reads")


def _judge_list(values: pl.Series) -> Judged:
    parts = values.explode().drop_nulls()
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


def _as_time(there: pl.Series, distinct: int) -> Judged | None:
    name = there.name
    if there.dtype in (pl.Date, pl.Datetime):
        return Judged(name, "times", "a time; its weekday and hour count", {"parts": _parts(there.dtype == pl.Date)})
    if there.dtype == pl.String:
        if not there.str.contains(_ISO).all():
            return _as_written_time(there)
        only_dates = bool((there.str.len_chars() <= 10).all())
        return Judged(name, "times", "a time as text; its weekday and hour count", {"parts": _parts(only_dates)})
    if not there.dtype.is_integer() or distinct < 2:
        return None
    low, high = _number(there.min()), _number(there.max())
    is_named = _TIME_NAME.search(name) is not None
    for unit, (least, most) in _EPOCHS.items():
        if least <= low and high <= most and is_named:
            arguments = {"parts": _parts(False), **({"unit": unit} if unit != "s" else {})}
            return Judged(name, "times", f"a time in {unit} since 1970; its weekday and hour count", arguments)
    for form, digits in _NUMBERED_TIMES.items():
        is_likely = is_named or distinct >= _MANY_TIMES
        if is_likely and len(str(int(low))) == len(str(int(high))) == digits and _reads(there, form):
            return Judged(name, "times", f"a time written {form}", {"parts": _parts("H" not in form), "format": form})
    return None


def _as_written_time(there: pl.Series) -> Judged | None:
    """A time as text in another form than ISO's."""
    forms = written_forms(there)
    if not forms:
        return None
    doubt = f"; {forms[1]} would do as well" if len(forms) > 1 else ""
    arguments = {"parts": _parts(":" not in str(there[0])), "format": forms[0]}
    return Judged(there.name, "times", f"a time written {forms[0]}{doubt}", arguments)


def _as_written_number(values: pl.Series, label: pl.Series) -> Judged | None:
    """A number that only people read as one: with a unit, with commas between its thousands or before its fraction."""
    there = values.drop_nulls()
    if there.dtype != pl.String:
        return None
    unit = next((sign for sign in _UNITS if there.str.contains(sign, literal=True).all()), None)
    removed = [] if unit is None else [unit, " "]
    found = _commas(_without(there, removed), unit)
    if found is None:
        return None
    how, marks, is_decimal = found
    removed += marks
    bare = _without(values, removed)
    judged = judge((bare.str.replace(",", ".", literal=True) if is_decimal else bare).cast(pl.Float64), label)
    if judged.node not in ("numbers", "skewed"):
        return judged if judged.node == LEFT_OUT else None
    number = '"' + values.name.replace('"', '""') + '"'
    for mark, other in [*((mark, "") for mark in removed), *([(",", ".")] if is_decimal else [])]:
        number = f"REPLACE({number}, '{mark}', '{other}')"
    node = "decimals" if judged.node == "numbers" else "skewed_decimals"
    return Judged(values.name, node, f"{judged.why}, written {how}", {values.name: f"CAST({number} AS DOUBLE)"})


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


def _parts(is_date: bool) -> list[str]:
    return ["weekday", "month"] if is_date else ["weekday", "hour"]


def _reads(there: pl.Series, form: str) -> bool:
    text = there.head(1000).cast(pl.String)
    if form.endswith("%H"):
        text, form = text + "\n00", form + "\n%M"
    return not text.str.to_datetime(form, strict=False).null_count()


def _judge_text(there: pl.Series, distinct: int) -> Judged:
    name, rows = there.name, there.len()
    if distinct > 0.95 * rows and rows >= 50:
        return Judged(name, LEFT_OUT, "a different value in every row")
    separator = _list_separator(there, distinct)
    if separator is not None:
        parts = there.str.split(separator).explode().n_unique()
        why = f"lists in text, {parts:,} values between {separator!r}"
        return Judged(name, "lists", why, {"separator": separator})
    words = there.str.count_matches(" ").mean() or 0
    if _number(words) > 3 and distinct > 0.5 * rows:
        return Judged(name, LEFT_OUT, "free text, hardly the same twice")
    is_hex = bool(there.str.contains(_HEX).all()) and bool(there.str.contains("[a-f]").any())
    dtype = "hex32" if is_hex else None
    return Judged(name, "categories", f"{distinct:,} texts", _rare(there, distinct), dtype)


def _list_separator(there: pl.Series, distinct: int) -> str | None:
    """What parts several values in a text: where parts come again in other combinations."""
    for separator in ("|", ";", ","):
        share = _number(there.str.contains(separator, literal=True).mean())
        if share < 0.05:
            continue
        parts = there.str.split(separator).explode().str.strip_chars()
        if parts.n_unique() < 0.8 * distinct and parts.n_unique() < parts.len() / 5:
            return separator
    return None


def _judge_number(values: pl.Series, there: pl.Series, distinct: int) -> Judged:
    name, rows = there.name, there.len()
    is_whole = there.dtype.is_integer() or bool((there.is_finite() & (there == there.round())).all())
    is_id = is_whole and _ID_NAME.search(name) is not None and not _AMOUNT_NAME.search(name)
    if is_whole and distinct > 0.95 * rows and rows >= 50 and (is_id or _is_large(there)):
        return Judged(name, LEFT_OUT, "a different number in every row")
    if is_id:
        return Judged(name, "categories", f"{distinct:,} ids, by its name", _rare(there, distinct))
    is_dense = _number(there.max()) - _number(there.min()) <= 3 * distinct
    if is_whole and distinct <= _FEW_NUMBERS and is_dense and not _AMOUNT_NAME.search(name):
        return Judged(name, "categories", f"{distinct:,} whole numbers")
    if is_whole and _is_large(there):
        return Judged(name, "categories", f"{distinct:,} large numbers, rather ids", _rare(there, distinct))
    finite = there.filter(there.is_finite()) if there.dtype.is_float() else there
    missing = values.null_count() + there.len() - finite.len()
    gaps = f", {missing / values.len():.0%} missing" if missing else ""
    flags = FLAGGED if _RARELY <= missing / values.len() <= 1 - _RARELY else {}
    low, high = _number(finite.min()), _number(finite.max())
    if finite.len() and low >= 0 and _is_skewed(finite):
        return Judged(name, "skewed", f"an amount from {low:g} to {high:g}, mostly small{gaps}", flags)
    return Judged(name, "numbers", f"a number from {low:g} to {high:g}{gaps}", flags)


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

    there = values.drop_nulls()
    distinct = there.n_unique()
    if there.dtype == pl.Boolean:
        return values.cast(pl.Int8), f"true in {_number(there.mean()):.1%} of the rows", {"ones": [True]}
    if there.dtype == pl.String:
        if distinct > 2 or not distinct:
            return None, f"{distinct:,} texts", {}
        counts = there.value_counts().sort("count")
        one = positive_value(counts[there.name].to_list())
        share = _number((there == one).mean())
        return (values == one).cast(pl.Int8), f"{one!r} in {share:.1%} of the rows", {"ones": [one]}
    if not there.dtype.is_numeric() or not distinct:
        return None, str(there.dtype), {}
    low, high = _number(there.min()), _number(there.max())
    if low >= 0 and high <= 1 and distinct <= 2:
        return values.cast(pl.Int8), f"0 or 1; 1 in {_number(there.mean()):.1%} of the rows", {}
    if distinct > 20 and not (there == there.round()).all():
        return None, f"numbers from {low:g} to {high:g}", {}
    at_least = _number(there.filter(there >= low + 0.7 * (high - low)).min())
    share = _number((there >= at_least).mean())
    plain = int(at_least) if at_least.is_integer() else at_least
    why = f"from {low:g} to {high:g}; {plain} and more count as 1, which is {share:.1%} of the rows"
    return (values >= at_least).cast(pl.Int8), why, {"threshold": plain}


def looks_like_label(values: pl.Series) -> bool:
    """Whether a column has two values, as a label has."""
    there = values.drop_nulls()
    if there.dtype == pl.String:
        return there.n_unique() == 2 and not is_number(str(there[0]))
    return there.dtype != pl.List and there.n_unique() == 2
