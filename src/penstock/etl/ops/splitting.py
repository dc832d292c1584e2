"""Text that holds several values, as lists of them."""

from __future__ import annotations

from typing import Any

import polars as pl

from penstock.core.errors import SchemaError
from penstock.core.params import BOOL, STR, Satisfies
from penstock.core.schema import ColumnSchema, Schema
from penstock.etl.cells import RowFunction
from penstock.etl.operator import Columns, Operator, per_column, same_names


class Split(Operator):
    """The parts of a text, as a list: `Comedy|Drama` becomes `["Comedy", "Drama"]`.

    Empty parts are left out; an empty or missing text is an empty list.

    Args:
        separator: what stands between the parts.
        strip: whether blanks around a part are left out; or the characters that are, as `"[]' "` of `['a', 'b']`.

    >>> from penstock import Workflow
    >>> frame = pl.DataFrame({"genres": ["Comedy|Drama", "", None, "Drama"]})
    >>> Workflow(["genres"] >> Split("|")).transform(frame)["genres"].to_list()
    [['Comedy', 'Drama'], [], [], ['Drama']]
    """

    constraints = {"separator": Satisfies(lambda s: isinstance(s, str) and bool(s), "a text"), "strip": BOOL | STR}

    def __init__(self, separator: str = "|", strip: bool | str = True) -> None:
        self.separator = separator
        self.strip = strip

    @property
    def _stripped(self) -> str:
        return self.strip if isinstance(self.strip, str) else _BLANKS * self.strip

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        part = pl.element().str.strip_chars(self._stripped) if self._stripped else pl.element()
        return frame.select(
            pl.col(name)
            .cast(pl.String)
            .fill_null("")
            .str.split(self.separator)
            .list.eval(part)
            .list.eval(pl.element().filter(pl.element() != ""))
            for name in columns.names
        )

    def row_function(self, columns: Columns) -> RowFunction:
        names, separator, stripped = columns.names, self.separator, self._stripped

        def parts(text: str | None) -> list[str]:
            found = (text or "").split(separator)
            return [part for part in ([p.strip(stripped) for p in found] if stripped else found) if part]

        def run(values: dict[str, Any]) -> dict[str, Any]:
            return {name: parts(values[name]) for name in names}

        return run

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        return per_column(inputs, columns, self._column)

    def _column(self, column: ColumnSchema) -> ColumnSchema:
        if column.is_list or column.dtype not in ("string", "null"):
            raise SchemaError(
                f"Split needs text; column {column.name!r} is {'a list' * column.is_list or column.dtype}"
            )
        return column.with_(dtype="string", is_list=True, nullable=False, cardinality=None)


_BLANKS = " \t\r\n"
