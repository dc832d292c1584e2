"""Files for a saved model: opened as its training opened them, raw or as features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from penstock.core.errors import DataError, SchemaError
from penstock.core.schema import Role
from penstock.data import Dataset
from penstock.data.finding import find
from penstock.data.formats import FORMATS, format_of_name
from penstock.data.formats.text import Text
from penstock.data.formats.text_sniffing import sniff_encoding
from penstock.data.formats.unpacking import first_bytes
from penstock.data.sources import DataLike, Paths, are_paths
from penstock.etl import Workflow
from penstock.etl.input_section import checked, column_dtypes, open_input
from penstock.serve.predictor import Predictor

_HEAD = 1 << 20  # bytes that hold a first line
# Beside a GPU threads wait for the interpreter's lock and not for the model: fewer, larger partitions take it less.
_ON_CPU, _PART_SIZES = "16MB", {"cuda": "64MB"}


@dataclass(frozen=True)
class RowsToScore:
    """Rows for a model, and whether they are raw."""

    data: Dataset
    is_raw: bool
    fitted: Workflow | None  # what turns them into features and labels; None for features

    def label(self) -> str:
        """The one label behind the workflow."""
        schema = self.data.schema if self.fitted is None else self.fitted.output_schema
        labels = schema.select(roles=Role.LABEL).names
        if len(labels) != 1:
            raise SchemaError(
                f"evaluation needs one label column, and there are {len(labels)} ({', '.join(labels) or 'none'}); "
                f"give it the role label. Columns: {', '.join(schema.names[:40])}"
            )
        return labels[0]

    def spelled(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Ids that came as hexadecimal text, as that text again."""
        schema = self.data.schema
        coded = [name for name in frame.columns if frame[name].dtype.is_integer()]
        spelled = [name for name in coded if schema[name].properties.get("text") == "hex"]
        texts = []
        for name in spelled:
            width = 16 if schema[name].dtype == "uint64" else 8
            values = [None if v is None else f"{v:0{width}x}" for v in frame[name].to_list()]
            texts.append(pl.Series(name, values, dtype=pl.String))
        return frame.with_columns(texts) if texts else frame


def open_rows(
    predictor: Predictor,
    source: DataLike,
    *,
    input: Mapping[str, Any] | None = None,
    is_raw: bool | None = None,
    on_error: str = "raise",
) -> RowsToScore:
    """The rows at `source` for a model.

    Args:
        source: files, a frame, or a Dataset.
        input: how to read text, as the section of that name of a recipe; what training used by default. Files without
            the label column are understood where the text has no header.
        is_raw: False for features that the workflow has made; told from the schema by default.
        on_error: what a malformed text line does.
    """
    fitted = predictor.saved.fitted
    section = input if input is not None or fitted is None else fitted.input
    if section is not None and are_paths(source):
        section = _without_labels(source, section, predictor.saved.labels)
    part_size = _PART_SIZES.get(predictor.device.type, _ON_CPU)
    data = open_input(source, section, may_lack=True, part_size=part_size, on_error=on_error)
    if is_raw is None:
        is_raw = fitted is not None and not _is_made(data, predictor)
    if is_raw and fitted is None:
        raise DataError(f"{predictor.directory} was saved without a workflow; it predicts on features, not on raw rows")
    return RowsToScore(data, is_raw, fitted if is_raw else None)


def model_columns(predictor: Predictor) -> list[str]:
    """The features that the model reads."""
    return predictor.columns.names


def _is_made(data: Dataset, predictor: Predictor) -> bool:
    """Whether the columns are described as the model's features are, codes and all."""
    wanted = [predictor.model.schema[name] for name in model_columns(predictor)]
    same = all((found := data.schema.get(column.name)) is not None and found == column for column in wanted)
    return same and any(column.cardinality or column.properties.get("ids") == "hashed" for column in wanted)


def _without_labels(paths: Paths, section: Mapping[str, Any], labels: list[str]) -> Mapping[str, Any]:
    """The section less the labels, where a text file without a header is that much narrower."""
    section = checked(section)
    names, file = section.get("names"), find(paths)[0]
    kind = format_of_name(file) or section.get("format")
    known = FORMATS.get(kind or "")
    if names is None or not isinstance(known, Text) or not labels:
        return section
    separator = section.get("separator") or known.separator
    head = first_bytes(file, _HEAD)
    first, newline, _ = head.decode(sniff_encoding(head), errors="replace").partition("\n")
    if not newline and len(head) == _HEAD:
        return section  # a line that long is refused where rows are read
    width = first.count(separator) + 1
    left = [name for name in names if name not in labels]
    if width == len(names) or width != len(left):
        return section  # as it should be, or wrong in a way that the reader names with its line
    dtypes = {n: d for n, d in column_dtypes(section.get("dtypes", {})).items() if n in left}
    return {**section, "names": left, "dtypes": dtypes}
