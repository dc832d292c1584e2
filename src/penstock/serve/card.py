"""What a person wants to know of a saved model: its data, its date, how good it is, and what a row looks like."""

from __future__ import annotations

import base64
import datetime
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from penstock.core.bounded import check_fields
from penstock.core.metric_names import metric_title
from penstock.core.params import NONE, STR, Instance, Int, ListOf, Real
from penstock.core.schema import ColumnSchema, Schema

_MAPPING = Instance(dict, "a mapping")
_FIELDS = {
    "trained": NONE | STR,
    "data": ListOf(STR),
    "rows": NONE | Int(0),
    "metrics": _MAPPING,
    "example": NONE | _MAPPING,
    "constant_log_loss": NONE | Real(min=0),
}
_LONGEST = 200  # characters of a name that is shown


@dataclass(frozen=True)
class ModelCard:
    """Says of a saved model what its weights do not.

    Args:
        trained: when, as ISO text.
        data: the names of the files that it was trained on.
        rows: how many rows it was trained on.
        metrics: on held-out rows, by name.
        example: a row as a request would send it.
        constant_log_loss: what a constant has on the held-out rows.

    >>> card = ModelCard("2026-11-15T13:45:00+00:00", ["clicks.csv"], 9000, {"auc": 0.75}, {"user": "ann"})
    >>> card.title("DLRM")
    'DLRM on clicks.csv · AUC 0.7500 · 2026-11-15'
    >>> ModelCard().title("DLRM")
    'DLRM'
    """

    trained: str | None = None
    data: list[str] = field(default_factory=list)
    rows: int | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)
    example: dict[str, Any] | None = None
    constant_log_loss: float | None = None

    def title(self, model: str) -> str:
        """The model, its data, how good it is and its date, as far as they are known.

        Args:
            model: its class.

        Returns:
            One line.
        """
        words = [self.name(model)]
        auc = self.metrics.get("auc")
        words += [] if auc is None else [f"{metric_title('auc')} {auc:.4f}"]
        words += [] if self.trained is None else [self.trained[:10]]
        return " · ".join(words)

    def name(self, model: str) -> str:
        """The model and its data.

        Args:
            model: its class.

        Returns:
            A few words.
        """
        if not self.data:
            return model
        others = f" and {len(self.data) - 1} more" if len(self.data) > 1 else ""
        return f"{model} on {self.data[0][:_LONGEST]}{others}"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data that JSON can hold.

        Returns:
            Fields by name.
        """
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any], where: str | Path) -> Self:
        """What `to_dict` gave.

        Args:
            found: plain data, whoever wrote it.
            where: the file, for errors.

        Returns:
            The card.

        Raises:
            ArtefactError: it is none.
        """
        if isinstance(found, Mapping):
            found = {"constant_log_loss": None, **found}  # cards of earlier versions have none
        check_fields(found, _FIELDS, where)
        numbers = {str(name): _finite(value) for name, value in found["metrics"].items()}
        return cls(
            found["trained"], list(found["data"]), found["rows"], numbers, found["example"], found["constant_log_loss"]
        )


def _finite(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def as_request(row: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """A row of a frame as a request would send it: what `RowChecker` takes for the same values.

    Args:
        row: values by column.
        schema: the columns that a request has.

    Returns:
        Plain data that JSON can hold.

    >>> schema = Schema([ColumnSchema("ad", "uint32", properties={"text": "hex"}), ColumnSchema("day", "date")])
    >>> as_request({"ad": 26, "day": datetime.date(2026, 11, 15), "click": 1}, schema)
    {'ad': '0000001a', 'day': '2026-11-15'}
    """
    return {column.name: _plain(row.get(column.name), column) for column in schema}


def _plain(value: Any, column: ColumnSchema) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item, column) for item in value]
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and column.properties.get("text") == "hex":
        return f"{value:0{16 if column.dtype == 'uint64' else 8}x}"
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if isinstance(value, (str, int, float)) else str(value)
