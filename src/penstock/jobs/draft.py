"""A recipe drafted from the data: which column is what, with a comment on each line that says why."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from penstock.core.errors import ColumnNotFoundError, DataError, SchemaError
from penstock.core.yaml_files import parse_yaml
from penstock.data import Dataset
from penstock.data.sources import DataLike, are_paths, paths_of
from penstock.etl import presets
from penstock.etl.input_section import column_dtypes, open_input
from penstock.jobs.assumptions import assumed_line
from penstock.jobs.draft_columns import (
    GIVES_AWAY,
    LEFT_OUT,
    NAMELESS,
    Judged,
    judge,
    label_codes,
    looks_like_label,
)

_ROWS = 200_000
_LABEL_NAMES = (
    "label", "click", "clicked", "target", "y", "converted", "conversion", "liked", "purchased", "bought", "outcome",
    "rating", "ratings", "stars", "overall", "like", "purchase", "buy", "churn", "churned", "exited", "attrition",
    "survived", "fraud", "subscribed", "response", "responded",
)  # fmt: skip
_QUESTION = re.compile(r"^(is|was|has|did)_?(?=[a-z])")  # before a label's name: is_click
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_YAML_WORDS = ("on", "off", "yes", "no", "true", "false", "null", "y", "n")
# What becomes of the columns of a node.
_OPERATORS: dict[str, list[Any]] = {
    "categories": [{"Categorify": {}}],
    "lists": [{"Split": {}}, "Categorify"],
    "times": [{"DateParts": {}}, "Categorify"],
    "numbers": [{"FillMedian": {}}, "Normalize"],
    "skewed": [{"FillMedian": {}}, {"Clip": {"min_value": 0}}, "LogOp", "Normalize"],
    "signed": [{"Expr": {}}, {"FillMedian": {}}, "Normalize"],
    "decimals": [{"Expr": {}}, {"FillMedian": {}}, "Normalize"],
    "skewed_decimals": [{"Expr": {}}, {"FillMedian": {}}, {"Clip": {"min_value": 0}}, "LogOp", "Normalize"],
    "signed_decimals": [{"Expr": {}}, {"FillMedian": {}}, "Normalize"],
}
_MEANING = {
    "categories": "ids and names of things: each value gets an embedding",
    "lists": "several values in a text",
    "times": "parts of times, as categories",
    "numbers": "amounts, scaled",
    "skewed": "amounts of which a few are large: their logarithm, scaled",
    "signed": "amounts on both sides of 0 of which a few are large: their logarithm with its sign, scaled",
    "decimals": "amounts in text, scaled",
    "skewed_decimals": "amounts in text of which a few are large: their logarithm, scaled",
    "signed_decimals": "amounts in text on both sides of 0, a few of them large: their logarithm with its sign, scaled",
}
_BESIDE = "; beside each whether it was missing, which says something too"


@dataclass(frozen=True)
class Draft:
    """A recipe that was drafted from data.

    Args:
        text: as YAML with comments.
        label: the column that is predicted.
        preset: whose recipe it is, where the data is of a known shape.
        assumed: how text was read where nobody said.
        left_out: columns that are no features, with the reason.

    >>> Draft("recipe: 1\\nnodes: {label: {columns: [y]}, ids: {columns: [a]}}\\noutput: [label, ids]", "y").summary
    'label y, 1 id'
    """

    text: str
    label: str
    preset: str | None = None
    assumed: str | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The label and how many columns go where, in a few words; those that give the label away by name."""
        recipe, totals = self.recipe, dict[str, int]()
        for node in recipe["output"]:
            if node != "label":
                kind = re.sub(r"_\d+$", "", node)  # times_2 are times
                totals[kind] = totals.get(kind, 0) + len(recipe["nodes"][node]["columns"])
        counts = [f"{count} {_one(kind) if count == 1 else kind}".replace("_", " ") for kind, count in totals.items()]
        leaks = [name for name, why in self.left_out.items() if why.startswith(GIVES_AWAY)]
        if self.left_out:
            counts.append(f"{len(self.left_out)} left out")
        told = f" ({', '.join(leaks)}: {GIVES_AWAY})" if leaks else ""
        preset = f"the preset {self.preset}, " if self.preset else ""
        return f"{preset}label {self.label}{self._counted_as_1()}, {', '.join(counts)}{told}"

    def _counted_as_1(self) -> str:
        """Which labels count as 1, where they are not 0 and 1 in the data."""
        for item in self.recipe["nodes"]["label"].get("ops", ()):
            how = item.get("Binarize", {}) if isinstance(item, Mapping) else {}
            if "threshold" in how:
                return f" ({how['threshold']:g} and more are 1)"
            if how.get("ones", [True]) != [True]:
                return f" ({', '.join(map(repr, how['ones']))} is 1)"
        return ""

    @property
    def recipe(self) -> dict[str, Any]:
        """The recipe as plain data."""
        return parse_yaml(self.text, "the drafted recipe")


def _one(kind: str) -> str:
    """The name of a node for one column."""
    return f"{kind[:-3]}y" if kind.endswith("ies") else kind.removesuffix("s")


def draft_recipe(
    source: DataLike,
    label: str | None = None,
    *,
    on_error: str = "raise",
    input: Mapping[str, Any] | None = None,
    hashed: bool = False,
) -> Draft:
    """A recipe for raw rows, drafted from some of them.

    Args:
        source: files, globs, folders, a frame, or a Dataset.
        label: the column to predict; told from its name and values when left out.
        on_error: what a malformed text line does.
        input: how text is read, as the section of that name of a recipe; told from the files by default.
        hashed: whether categories get ids without a vocabulary (`HashId`), as `tables: hashed` takes them.

    Returns:
        The draft.

    Raises:
        SchemaError: no column, or none of that name, can be the label, or no column can be a feature.
        ColumnNotFoundError: there is no column of that name.
        DataError: there are no rows.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "clicks.csv"
    >>> rows = [f"{i % 7},{'ab'[i % 2]},{i * 0.5},{int(i % 3 == 0)}" for i in range(100)]
    >>> _ = file.write_text("user,shop,price,click\\n" + "\\n".join(rows))
    >>> draft_recipe(str(file)).recipe["output"]
    ['label', 'categories', 'numbers']
    """
    data = open_input(source, input, on_error=on_error)
    known = None if input is not None else _known_shape(data, label)
    if known is not None:
        recipe = presets.text(known, hashed)
        own = presets.load(known)["input"]["roles"]["label"][0]
        head = f"# The columns are those of {known}: this is its preset (penstock train --preset {known}).\n"
        return Draft(head + recipe, own, known, assumed_line(data))
    rows = data.head(_ROWS)
    if not rows.height:
        given = paths_of(source) if are_paths(source) else "the data"
        files = given if isinstance(given, str) else ", ".join(given)
        raise DataError(f"{files} has no rows to draft a recipe from")
    name = _label(rows, label, data.place)
    codes, why, arguments = label_codes(rows[name])
    if codes is None:
        raise _no_label(rows, name, why, data.place)
    if missing := codes.null_count():
        why += f"; missing in {missing:,}, which training refuses: fill them, or leave these rows out"
    judged = [judge(rows[column], codes) for column in rows.columns if column != name]
    unread = "is not read; write what it holds as columns of their own to use it"
    judged += [Judged(column, LEFT_OUT, f"{dtype} {unread}") for column, dtype in data.schema.unread.items()]
    if all(column.node == LEFT_OUT for column in judged):
        reasons = "; ".join(f"{column.name}: {column.why}" for column in judged) or "there is no other column"
        raise SchemaError(f"no column is left to predict {name!r} from ({reasons})")
    text = _written(data, rows.height, Judged(name, "label", why, arguments), judged, input)
    text = presets.without_vocabulary(text) if hashed else text
    left_out = {column.name: column.why for column in judged if column.node == LEFT_OUT}
    return Draft(text, name, None, assumed_line(data), left_out)


def _known_shape(data: Dataset, label: str | None) -> str | None:
    """The preset whose columns these are."""
    layout, names = data.layout, data.schema.names
    for preset in presets.names():
        section = presets.load(preset)["input"]
        own = section["names"] if "names" in section else list(column_dtypes(section["dtypes"]))
        if label is not None and label not in (own if "names" in section else section["roles"]["label"]):
            continue
        said = {} if layout is None else {"separator": layout.file_separator, "header": layout.has_header}
        if names == own and all(section.get(key, value) == value for key, value in said.items()):
            return preset
        if layout is not None and not layout.has_header and len(names) == len(own) and _fits(data, section):
            return preset
    return None


def _fits(data: Dataset, section: Mapping[str, Any]) -> bool:
    """Whether rows without a header can be read as a preset reads them, which has to be telling: hex ids, or a time."""
    dtypes = column_dtypes(section["dtypes"])
    few = data.head(200)
    for (name, values), dtype in zip(few.to_dict().items(), dtypes.values(), strict=True):
        there = few[name].drop_nulls()
        if dtype.startswith("hex") and not (there.cast(pl.String).str.contains("^[0-9a-f]{1,16}$").all()):
            return False
        if not dtype.startswith(("hex", "string")) and there.len() and not values.dtype.is_numeric():
            return False
    if any(dtype.startswith("hex") for dtype in dtypes.values()):
        return True
    last = few[few.columns[-1]]
    rating = few[few.columns[-2]]
    return bool(last.min() > 8e8) and bool(rating.max() <= 10) and few.width == 4  # type: ignore[operator]


def _label(rows: pl.DataFrame, label: str | None, place: str) -> str:
    if label is not None:
        if label not in rows.columns:
            nameless = all(map(NAMELESS.fullmatch, rows.columns))
            read = "; its first line looks like a row, so its columns have no names" if nameless else ""
            raise ColumnNotFoundError(label, rows.columns, f"{place} (it is to be the label{read})")
        return label
    named = [name for wanted in _LABEL_NAMES for name in rows.columns if _named(name) == wanted]
    usable = [name for name in named if label_codes(rows[name])[0] is not None]
    found = [name for name in usable if looks_like_label(rows[name])] or usable or named
    if found:
        return found[0]
    if all(map(NAMELESS.fullmatch, rows.columns)):  # without names, the only column of 0 and 1
        outcomes = [name for name in rows.columns if rows[name].drop_nulls().unique().sort().to_list() == [0, 1]]
        if len(outcomes) == 1:
            return outcomes[0]
    columns = ", ".join(rows.columns[:40])
    raise SchemaError(f"{place}: which column is the label? Say label=…{_with_two_values(rows)}. Columns: {columns}")


def _no_label(rows: pl.DataFrame, name: str, why: str, place: str) -> SchemaError:
    """The error for a label of which nothing makes 0 and 1 by itself."""
    from penstock.jobs.labels import shown_values

    values, mapping = rows[name].drop_nulls(), "ops: [{Binarize: {threshold: …}}]"
    if values.dtype == pl.String and len(values):
        shown, mapping = shown_values(dict(values.value_counts().iter_rows()))
        why += f"; they are {shown}"
    return SchemaError(
        f"{place}: the label {name!r} has {why}; these models predict 0 or 1, and regression and several classes are "
        f"not there yet: choose another label{_with_two_values(rows)}, or write a recipe that makes 0 and 1 of it, "
        f"such as {mapping} on the label"
    )


def _with_two_values(rows: pl.DataFrame) -> str:
    two = [name for name in rows.columns if looks_like_label(rows[name])]
    return f" (with two values: {', '.join(two[:10])})" if two else ""


def _named(column: str) -> str:
    return _QUESTION.sub("", re.sub(r"\W+", "_", column.lower()).strip("_"))


# Writing: by hand, for the sake of the comments.


def _written(
    data: Dataset, num_rows: int, label: Judged, judged: Sequence[Judged], input: Mapping[str, Any] | None
) -> str:
    path = data.partitions[0].path or "memory"
    lines = [
        f"# Drafted by penstock init from {num_rows:,} rows of {path}. Each line says why; change what is wrong.",
        "recipe: 1",
        "",
        "input:",
        *_input_lines(data, label, judged, input),
        "",
        "nodes:",
        "  label:",
        f"    columns: [{_scalar(label.name)}]  # {label.why}",
    ]
    if label.arguments:
        lines += ["    ops:", f"    - Binarize: {_flow(label.arguments)}"]
    groups: dict[str, list[Judged]] = {}
    for node in _OPERATORS:
        for column in judged:
            if column.node == node:
                groups.setdefault(f"{node} {column.is_flagged} {column.bounds} {_flow(column.arguments)}", []).append(
                    column
                )
    names = ["label"]
    for columns in groups.values():
        node = columns[0].node
        name, number = node, 2
        while name in names:
            name, number = f"{node}_{number}", number + 1
        names.append(name)
        beside = _BESIDE if columns[0].is_flagged else ""
        lines += [f"  {name}:  # {_MEANING[node]}{beside}", "    columns:"]
        width = max(len(_scalar(column.name)) for column in columns)
        lines += [f"    - {_scalar(column.name):<{width}}  # {column.why}" for column in columns]
        lines += ["    ops:", *_operator_lines(columns[0])]
    lines += ["", f"output: [{', '.join(names)}]"]
    gone = [column for column in judged if column.node == LEFT_OUT]
    if gone:
        lines += ["", "# Left out; put a column into a node above to use it all the same:"]
        lines += [f"#   {_scalar(column.name)}: {column.why}" for column in gone]
    return "\n".join(lines) + "\n"


def _input_lines(data: Dataset, label: Judged, judged: Sequence[Judged], input: Mapping[str, Any] | None) -> list[str]:
    layout, lines = data.layout, []
    if layout is not None:
        told: dict[str, Any] = {"separator": layout.file_separator, "header": layout.has_header}
        if layout.encoding != "utf-8":
            told["encoding"] = layout.encoding
        if not layout.has_header:
            told["names"] = list(layout.names)
        told |= {key: value for key, value in (input or {}).items() if key not in ("dtypes", "roles")}
        by_dtype: dict[str, list[str]] = {}
        for column in (label, *judged):
            if column.node != LEFT_OUT:
                by_dtype.setdefault(column.dtype or layout.dtypes[column.name], []).append(column.name)
        lines += [f"  {key}: {_flow(value)}" for key, value in told.items()]
        lines += ["  dtypes:", *(f"    {dtype}: {_flow(names)}" for dtype, names in by_dtype.items())]
    return [*lines, "  roles:", f"    label: [{_scalar(label.name)}]"]


def _operator_lines(column: Judged) -> list[str]:
    """The operators of a node, for one of its columns."""
    lines, bounds = [], {}
    if column.bounds is not None:
        bounds = dict(zip(("min_value", "max_value"), column.bounds, strict=True))
    for place, item in enumerate(_OPERATORS[column.node]):
        if isinstance(item, str):
            lines.append(f"    - {item}")
            continue
        name, own = next(iter(item.items()))
        filled = {**own, **(column.arguments if place == 0 else {})}
        if name == "FillMedian" and column.is_flagged:
            filled["add_binary_cols"] = True
        if name == "FillMedian" and bounds:  # a median of what is infinite would be as well
            lines.append(f"    - Clip: {_flow(bounds)}")
        lines.append(f"    - {name}: {_flow(filled)}" if filled else f"    - {name}")
    return lines


def _flow(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and (not _PLAIN.fullmatch(value) or value.lower() in _YAML_WORDS):
        is_plain = '"' in value and "'" not in value and value.isprintable()
        return f"'{value}'" if is_plain else json.dumps(value, ensure_ascii=False)
    return value if isinstance(value, str) else json.dumps(value)
