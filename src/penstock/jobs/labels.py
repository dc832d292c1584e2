"""The label of a click model: there is one, and it is 0 or 1 in every row. What is wrong with it names file and row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any

import polars as pl

from penstock.core.errors import DataError, SchemaError
from penstock.core.schema import Role, Schema
from penstock.data import Dataset, tasks
from penstock.data.formats.text_partition import line_of
from penstock.data.partition import Partition
from penstock.engine import resolve
from penstock.etl import Workflow

_LOOK_PARTS = 2  # partitions that are looked at before the work
_MOST_VALUES = 6


def check_label(schema: Schema, where: str) -> str:
    """The one label of a click model.

    Args:
        schema: of the features.
        where: what has it, for the error.

    Returns:
        Its name.

    Raises:
        SchemaError: there is none, or there are several.
    """
    labels = schema.select(roles=Role.LABEL).names
    if not labels:
        raise SchemaError(
            f"{where} has no label column; give one column the role label. Columns: {', '.join(schema.names[:40])}"
        )
    if len(labels) > 1:
        raise SchemaError(
            f"{where} has {len(labels)} labels ({', '.join(labels)}); these models predict one, and several are not "
            f"there yet: leave all but one out of the output, or give the others no role"
        )
    return labels[0]


def check_raw_label(data: Dataset, workflow: Workflow, label: str) -> None:
    """Look at the labels of the first rows before the work, where the workflow passes them on as they are.

    Args:
        data: raw rows.
        workflow: bound to their schema.
        label: the output's name.

    Raises:
        SchemaError: a label is text, missing, or neither 0 nor 1; file and row are named.
    """
    column = workflow.output_schema[label]
    if column.dtype in ("string", "binary"):
        raise _text_label(data, label)
    operators = _operators(workflow, label) if label in data.schema else None
    if operators is None or set(operators) - {"Binarize"}:
        return
    check = _check_there if operators else _check_values  # what is missing stays so
    for part in islice(data.partitions, _LOOK_PARTS):
        check(part.read([label])[label], label, part)


def check_label_values(features: Dataset, label: str, raw: Dataset | None = None) -> None:
    """A click is 0 or 1: another number would train to nonsense without a word.

    Args:
        features: what training reads.
        label: its label.
        raw: the rows that they were made from, to say where the fault is.

    Raises:
        SchemaError: a label is missing, or neither 0 nor 1.
    """
    try:
        for frame in resolve().map(partial(tasks.read, columns=[label]), features.partitions):
            _check_values(frame[label], label, None)
    except SchemaError:
        _say_where_missing(raw, label)
        raise


def check_click(values: pl.Series, label: str, part: Partition | None = None) -> None:
    """A label that predictions are held against is 0 or 1.

    Args:
        values: of some rows.
        label: the column's name.
        part: whose rows these are, one for one, to say where the fault is.

    Raises:
        SchemaError: one is missing.
        DataError: one is neither.
    """
    _check_there(values, label, part)
    numbers = values.cast(pl.UInt8) if values.dtype == pl.Boolean else values
    odd = (numbers != 0) & (numbers != 1)
    if odd.any():
        found = values.filter(odd)[0]
        raise DataError(f"the label {label!r} must be 0 or 1 in every row, got {found!r}{_place(part, odd)}")


def _say_where_missing(raw: Dataset | None, label: str) -> None:
    """Raise with the file and the line, where a label is missing in raw rows."""
    for part in raw.partitions if raw is not None and label in raw.schema else ():
        _check_there(part.read([label])[label], label, part)


def _check_there(values: pl.Series, label: str, part: Partition | None) -> None:
    missing = values.is_null() | values.is_nan() if values.dtype.is_float() else values.is_null()
    if missing.any():
        raise SchemaError(
            f"the label {label!r} has missing values{_place(part, missing)}; leave such lines out of the "
            f"file, or fill them in the recipe (ops: [{{FillMissing: {{fill_val: 0}}}}] on the label)"
        )


def _check_values(values: pl.Series, label: str, part: Partition | None) -> None:
    _check_there(values, label, part)
    if not values.len():
        return
    values = values.cast(pl.UInt8) if values.dtype == pl.Boolean else values
    low, high = float(values.min()), float(values.max())  # type: ignore[arg-type]
    if low < 0 or high > 1:
        wrong = (values < 0) | (values > 1)
        raise SchemaError(
            f"the label {label!r} has values from {low:g} to {high:g}{_place(part, wrong)}; these models predict 0 or "
            f"1, and regression is not there yet: turn the label into that in the recipe, such as ops: [{{Binarize: "
            f"{{threshold: {_middle(low, high):g}}}}}], 1 from there up"
        )


def _middle(low: float, high: float) -> float:
    """A threshold between both, a whole number where there is room for one."""
    middle = (low + high) / 2
    return round(middle) + 1.0 if high - low >= 2 else middle


def _place(part: Partition | None, wrong: pl.Series) -> str:
    if part is None:
        return ""
    row = int(wrong.arg_true()[0])
    line = line_of(part, row)
    if line is not None:
        return f", first in {part.path}, line {line}"
    return f", first in row {row:,}" + (f" of a part of {part.path}" if part.path else "")


def _text_label(data: Dataset, label: str) -> SchemaError:
    counts: dict[Any, int] = {}
    name = label if label in data.schema else None
    if name is not None:
        for part in islice(data.partitions, _LOOK_PARTS):
            for value, count in part.read([name])[name].value_counts().iter_rows():
                counts[value] = counts.get(value, 0) + count
    shown, mapping = shown_values(counts)
    return SchemaError(
        f"the label {label!r} is text{': ' * bool(shown)}{shown}; turn it into 0 and 1 in the recipe, such as {mapping}"
    )


def shown_values(counts: Mapping[Any, int]) -> tuple[str, str]:
    """The values of a label with their counts, the most frequent first, and the operators that make 0 and 1 of them.

    >>> shown_values({"no": 7, "maybe": 9, "yes": 8})
    ("'maybe' (9), 'yes' (8), 'no' (7)", "ops: [{Binarize: {ones: ['yes']}}]")
    """
    ordered = sorted((v for v in counts if v is not None), key=lambda v: counts[v])
    shown = ", ".join(f"{v!r} ({counts[v]:,})" for v in reversed(ordered[-_MOST_VALUES:]))
    more = f" and {len(ordered) - _MOST_VALUES:,} more" if len(ordered) > _MOST_VALUES else ""
    return shown + more, f"ops: [{{Binarize: {{ones: [{positive_value(ordered)!r}]}}}}]"


def positive_value(values: list[Any]) -> Any:
    """Which of some words means a click: one that says yes, else the first, which is the rarest.

    >>> positive_value(["no", "yes"]), positive_value(["bought", "left"])
    ('yes', 'bought')
    """
    for value in values:
        if str(value).lower() in ("yes", "y", "true", "t", "1", "click", "clicked", "positive", "buy", "like"):
            return value
    return values[0] if values else "yes"


def _operators(workflow: Workflow, label: str) -> list[str] | None:
    """What is done to the label on its way through the workflow; None where rows change, or it is made of others."""
    from penstock.etl.graph import ancestors

    nodes = ancestors([workflow.output])
    if any(node.operator is not None and node.operator.changes_rows for node in nodes):
        return None
    recipe = workflow.to_recipe({})
    entries = [recipe["nodes"][name] for name in recipe["output"]]
    found = next((entry for entry in entries if label in (entry.get("columns") or ())), None)
    if found is None:
        return None
    return [item if isinstance(item, str) else next(iter(item)) for item in found.get("ops") or ()]
