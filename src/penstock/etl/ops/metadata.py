"""Tags and properties of columns; the data passes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from penstock.core.params import NONE, STR, Instance, ListOf, OneOf
from penstock.core.schema import ColumnSchema, Role, Schema
from penstock.etl.cells import BulkFunction, RowFunction
from penstock.etl.operator import Columns, Operator, per_column, same_names

_TAGS = STR | ListOf(STR)
_PROPERTIES = Instance(Mapping, "a mapping")


class _Annotate(Operator):
    """Passes the data through and adds `added_tags` and `added_properties` to the schema."""

    takes_nested_lists = True

    bulk_takes_lists = True

    def added_tags(self) -> Sequence[str]:
        """The tags that columns get.

        Returns:
            Tags.
        """
        return ()

    def added_properties(self) -> Mapping[str, Any]:
        """The properties that columns get.

        Returns:
            Properties by name.
        """
        return {}

    def new_role(self) -> Role | None:
        """What the columns are to the model.

        Returns:
            The role; None where it stays.
        """
        return None

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        return frame.select(columns.names)

    def origins(self, columns: Columns) -> dict[str, str]:
        return same_names(columns)

    def row_function(self, columns: Columns) -> RowFunction:
        names = columns.names
        return lambda values: {name: values[name] for name in names}

    def bulk_function(self, columns: Columns) -> BulkFunction:
        return self.row_function(columns)  # values or cells: only the names matter

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        tags, properties = frozenset(self.added_tags()), dict(self.added_properties())
        role = self.new_role()

        def change(column: ColumnSchema) -> ColumnSchema:
            changed = column.with_(tags=column.tags | tags, properties={**column.properties, **properties})
            return changed if role is None else changed.with_(role=role)

        return per_column(inputs, columns, change)


class AddMetadata(_Annotate):
    """Add tags and properties to the columns' schema, and say what they are to the model (`role`).

    Args:
        tags: to add.
        properties: to add.
        role: to give; None keeps that of each column.

    >>> from penstock import Workflow
    >>> node = ["price"] >> AddMetadata(tags=["item"], properties={"unit": "EUR"})
    >>> column = Workflow(node).fit(pl.DataFrame({"price": [1.0]})).output_schema["price"]
    >>> sorted(column.tags), dict(column.properties)
    (['item'], {'unit': 'EUR'})
    """

    constraints = {
        "tags": _TAGS | NONE,
        "properties": _PROPERTIES | NONE,
        "role": OneOf(tuple(str(role) for role in Role)) | Instance(Role) | NONE,
    }

    def __init__(
        self,
        tags: str | Sequence[str] | None = None,
        properties: Mapping[str, Any] | None = None,
        role: Role | str | None = None,
    ) -> None:
        self.tags = tags
        self.properties = properties
        self.role = role

    def new_role(self) -> Role | None:
        return None if self.role is None else Role(self.role)

    def added_tags(self) -> Sequence[str]:
        return [self.tags] if isinstance(self.tags, str) else list(self.tags or ())

    def added_properties(self) -> Mapping[str, Any]:
        return self.properties or {}


class AddTags(_Annotate):
    """Add tags to the columns' schema.

    Args:
        tags: to add.

    >>> (["a"] >> AddTags("user")).operator
    AddTags(tags='user')
    """

    constraints = {"tags": _TAGS}

    def __init__(self, tags: str | Sequence[str]) -> None:
        self.tags = tags

    def added_tags(self) -> Sequence[str]:
        return [self.tags] if isinstance(self.tags, str) else list(self.tags)


class AddProperties(_Annotate):
    """Add properties to the columns' schema.

    Args:
        properties: to add.

    >>> (["a"] >> AddProperties({"unit": "EUR"})).operator
    AddProperties(properties={'unit': 'EUR'})
    """

    constraints = {"properties": _PROPERTIES}

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.properties = properties

    def added_properties(self) -> Mapping[str, Any]:
        return self.properties


class _Tag(_Annotate):
    fixed_tags: Sequence[str] = ()

    def __init__(self) -> None:
        pass

    def added_tags(self) -> Sequence[str]:
        return self.fixed_tags


class TagAsUserID(_Tag):
    """Tag the column that identifies users: `user_id` and `user`.

    >>> TagAsUserID().added_tags()
    ('user_id', 'user')
    """

    fixed_tags = ("user_id", "user")


class TagAsItemID(_Tag):
    """Tag the column that identifies items: `item_id` and `item`.

    >>> TagAsItemID().added_tags()
    ('item_id', 'item')
    """

    fixed_tags = ("item_id", "item")


class TagAsUserFeatures(_Tag):
    """Tag columns that describe users: `user`.

    >>> TagAsUserFeatures().added_tags()
    ('user',)
    """

    fixed_tags = ("user",)


class TagAsItemFeatures(_Tag):
    """Tag columns that describe items: `item`.

    >>> TagAsItemFeatures().added_tags()
    ('item',)
    """

    fixed_tags = ("item",)
