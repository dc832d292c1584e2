"""`merlin.schema`: columns with tags, dtypes and properties."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from penstock.compat.merlin.schema.columns import ColumnSchema
from penstock.compat.merlin.schema.tags import as_tag, listed
from penstock.compat.missing import CompatTypeError
from penstock.core import schema as native
from penstock.core.errors import ColumnNotFoundError, SchemaError
from penstock.core.extras import require

# Merlin's schema, and the way between it and Penstock's.


class Schema:
    """Columns by name, selected by name and tag.

    >>> from penstock.compat.merlin.schema import Tags
    >>> schema = Schema([ColumnSchema("user", tags=[Tags.USER, Tags.ID]), ColumnSchema("click", tags=[Tags.TARGET])])
    >>> schema.select_by_tag(Tags.USER).column_names, schema.excluding_by_name(["user"]).column_names
    (['user'], ['click'])
    """

    def __init__(self, column_schemas: Any = None) -> None:
        if isinstance(column_schemas, Mapping):
            self.column_schemas: dict[str, ColumnSchema] = dict(column_schemas)
        elif column_schemas is None or isinstance(column_schemas, (list, tuple)):
            columns = [ColumnSchema(c) if isinstance(c, str) else c for c in column_schemas or ()]
            self.column_schemas = {column.name: column for column in columns}
        else:
            raise CompatTypeError(f"column_schemas must be a list or a dict of ColumnSchema, got {column_schemas!r}")

    @classmethod
    def from_native(cls, schema: native.Schema) -> Schema:
        """Merlin's form of a Penstock schema."""
        return cls([ColumnSchema.from_native(column) for column in schema])

    def to_native(self) -> native.Schema:
        """Penstock's form."""
        return native.Schema(column.to_native() for column in self)

    @property
    def column_names(self) -> list[str]:
        return list(self.column_schemas)

    @property
    def first(self) -> ColumnSchema:
        if not self.column_schemas:
            raise SchemaError("the schema has no column, so there is no first one")
        return next(iter(self))

    # Choosing.

    def select(self, selector: Any) -> Schema:
        """The columns that a ColumnSelector means."""
        if selector is None or selector.all:
            return self
        return self._kept(self._matched(selector))

    apply = select

    def excluding(self, selector: Any) -> Schema:
        if selector is None:
            return self
        gone = self.column_names if selector.all else self._matched(selector)
        return self.excluding_by_name(gone)

    apply_inverse = excluding

    def _matched(self, selector: Any) -> list[str]:
        tagged = self.select_by_tag(selector.tags).column_names if selector.tags else []
        return list(dict.fromkeys([*selector.names, *tagged]))

    def select_by_tag(self, tags: Any, pred_fn: Callable[[Iterable[bool]], bool] | None = None) -> Schema:
        """Columns with any of the tags, or as `pred_fn` (`any`, `all`) decides."""
        wanted = [as_tag(tag) for tag in listed(tags)]
        return Schema([c for c in self if (pred_fn or any)(tag in c.tags for tag in wanted)])

    def excluding_by_tag(self, tags: Any, pred_fn: Callable[[Iterable[bool]], bool] | None = None) -> Schema:
        """The columns that `select_by_tag` does not choose."""
        chosen = self.select_by_tag(tags, pred_fn)
        return Schema([c for c in self if c.name not in chosen])

    remove_by_tag = excluding_by_tag

    def select_by_name(self, names: Any) -> Schema:
        return self._kept([names] if isinstance(names, str) else names)

    def excluding_by_name(self, col_names: Any) -> Schema:
        gone = {col_names} if isinstance(col_names, str) else set(col_names)
        return Schema([c for c in self if c.name not in gone])

    without = excluding_by_name

    def remove_col(self, col_name: str) -> Schema:
        return self.excluding_by_name([col_name])

    def _kept(self, names: Iterable[str]) -> Schema:
        return Schema([self.column_schemas[n] for n in names if n in self.column_schemas])

    def get(self, col_name: str, default: Any = None) -> Any:
        return self.column_schemas.get(col_name, default)

    def copy(self) -> Schema:
        return Schema(self.column_schemas)

    def to_pandas(self) -> Any:
        """A frame with a row for each column; every property is a column of its own, `properties.domain.max`."""
        return require("pandas", "pandas").json_normalize([dict(column.__dict__) for column in self])

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, str):
            if name not in self.column_schemas:
                raise ColumnNotFoundError(name, self.column_schemas, "the schema")
            return self.column_schemas[name]
        return Schema([self[n] for n in name])

    def __setitem__(self, name: str, column: ColumnSchema) -> None:
        self.column_schemas[name] = column

    def __contains__(self, name: object) -> bool:
        return name in self.column_schemas

    def __iter__(self) -> Iterator[ColumnSchema]:
        return iter(self.column_schemas.values())

    def __len__(self) -> int:
        return len(self.column_schemas)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.column_schemas == other.column_schemas

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Any) -> Schema:
        """Both schemas' columns; where both have one, what the second says is laid over the first."""
        if other is None:
            return self
        if not isinstance(other, Schema):
            raise CompatTypeError(f"a Schema can be added to a Schema only, got {type(other).__name__}")
        mine = [c for c in self if c.name not in other]
        return Schema([*mine, *(self[c.name].__merge__(c) if c.name in self else c for c in other)])

    def __radd__(self, other: Any) -> Schema:
        return self if other in (None, 0) else self + other

    def __sub__(self, other: Any) -> Schema:
        if other is not None and not isinstance(other, Schema):
            raise CompatTypeError(f"a Schema can be taken from a Schema only, got {type(other).__name__}")
        return self if other is None else self.excluding_by_name(other.column_names)

    def __repr__(self) -> str:
        return repr([column.__dict__ for column in self])

    def _repr_html_(self) -> str:
        return self.to_pandas()._repr_html_()


def as_native(schema: Any) -> native.Schema | None:
    """Penstock's schema from either kind."""
    return schema.to_native() if isinstance(schema, Schema) else schema
