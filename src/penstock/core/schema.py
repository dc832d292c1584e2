"""What each column is: its role in the model, dtype, cardinality, tags. Data, readable as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import polars as pl

from penstock.core import dtypes
from penstock.core.errors import ArtefactError, ColumnNotFoundError, SchemaError

SCHEMA_VERSION = 1


class Role(StrEnum):
    """What a column is to the model."""

    CATEGORICAL = "categorical"
    CONTINUOUS = "continuous"
    LABEL = "label"
    OTHER = "other"


@dataclass(frozen=True)
class ColumnSchema:
    """One column.

    `dtype` is the element's dtype where `is_list` is set. `cardinality` says that integer codes lie in
    `[0, cardinality)`: it is the number of rows an embedding table needs.

    Args:
        name: of the column.
        dtype: of its values, or of the elements of its lists.
        role: what it is to the model.
        is_list: whether a row holds several values.
        nullable: whether values may be missing.
        cardinality: one more than the largest code.
        tags: free marks to select by.
        properties: whatever else is known of it, as plain data.

    >>> c1 = ColumnSchema("C1", "int32", role="categorical", cardinality=1000, tags=["user"])
    >>> c1.with_(cardinality=2000).cardinality
    2000
    """

    name: str
    dtype: str
    role: Role = Role.OTHER
    is_list: bool = False
    nullable: bool = True
    cardinality: int | None = None
    tags: frozenset[str] = frozenset()
    properties: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError(f"a column needs a name, got {self.name!r}")
        if "\0" in self.name:  # where others read it, it would end there
            raise SchemaError(f"the name of a column cannot hold a byte of nought, got {self.name!r}")
        set_ = object.__setattr__
        set_(self, "dtype", dtypes.canonical(self.dtype))
        set_(self, "role", _role(self.role))
        set_(self, "tags", frozenset([self.tags] if isinstance(self.tags, str) else map(str, self.tags)))
        set_(self, "properties", MappingProxyType(dict(self.properties)))

    def with_(self, **changes: Any) -> ColumnSchema:
        """A copy with some fields changed.

        Args:
            changes: fields by name.

        Returns:
            The copy.
        """
        return dataclasses.replace(self, **changes)

    @property
    def polars_dtype(self) -> pl.DataType:
        return dtypes.to_polars(self.dtype, self.is_list)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; fields at their default are left out.

        Returns:
            Fields by name.
        """
        out: dict[str, Any] = {"name": self.name, "dtype": self.dtype}
        if self.role is not Role.OTHER:
            out["role"] = str(self.role)
        if self.is_list:
            out["is_list"] = True
        if not self.nullable:
            out["nullable"] = False
        if self.cardinality is not None:
            out["cardinality"] = self.cardinality
        if self.tags:
            out["tags"] = sorted(self.tags)
        if self.properties:
            out["properties"] = dict(self.properties)
        return out

    def __hash__(self) -> int:
        return hash((self.name, self.dtype, self.role, self.is_list, self.cardinality, self.tags))

    def __reduce__(self) -> tuple[Any, ...]:  # mappingproxy does not pickle
        return _column_from_dict, (self.to_dict(),)


class Schema:
    """An ordered set of `ColumnSchema`, looked up by name.

    Args:
        columns: in order, each name once.
        unread: columns that the data has besides, with the dtype for which they cannot be read.
        place: what it is the schema of, for errors.

    Raises:
        SchemaError: a name comes twice.

    >>> schema = Schema([ColumnSchema("label", "int8", role="label"), ColumnSchema("I1", "float32")])
    >>> schema.names
    ['label', 'I1']
    >>> schema.select(roles="label").names
    ['label']
    >>> schema["labels"]
    Traceback (most recent call last):
    ...
    penstock.core.errors.ColumnNotFoundError: column 'labels' is not in the schema; did you mean 'label'? ...
    """

    def __init__(
        self,
        columns: Iterable[ColumnSchema] = (),
        unread: Mapping[str, str] | None = None,
        place: str = "the schema",
    ) -> None:
        self._columns: dict[str, ColumnSchema] = {}
        self.place = place
        self.unread = dict(unread or {})
        for column in columns:
            if column.name in self._columns:
                raise SchemaError(f"column {column.name!r} appears twice in the schema")
            self._columns[column.name] = column

    @classmethod
    def from_polars(cls, schema: Mapping[str, pl.DataType]) -> Schema:
        """Names and dtypes of a polars frame's schema; roles are left open.

        Args:
            schema: dtypes by name.

        Returns:
            The schema.

        Raises:
            SchemaError: a dtype has no name here.
        """
        columns = []
        for name, dtype in schema.items():
            inner, is_list = dtypes.split_list(dtype)
            try:
                # Spans of time are counts of a unit, which the dtype does not say.
                unit = {"duration": inner.time_unit} if isinstance(inner, pl.Duration) else {}
                columns.append(ColumnSchema(name, dtypes.canonical(inner), is_list=is_list, properties=unit))
            except SchemaError as error:
                raise SchemaError(f"column {name!r}: {error}") from None
        return cls(columns)

    @property
    def names(self) -> list[str]:
        return list(self._columns)

    def __iter__(self) -> Iterator[ColumnSchema]:
        return iter(self._columns.values())

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> ColumnSchema:
        try:
            return self._columns[name]
        except KeyError:
            if name in self.unread:
                raise SchemaError(
                    f"{self.place}: column {name!r} is of type {self.unread[name]}, which is not read; write what it "
                    f"holds as columns of their own"
                ) from None
            raise ColumnNotFoundError(name, self._columns, self.place) from None

    def get(self, name: str) -> ColumnSchema | None:
        """A column, if there is one of that name.

        Args:
            name: of a column.

        Returns:
            The column, or None.
        """
        return self._columns.get(name)

    def select(
        self,
        names: Iterable[str] | None = None,
        *,
        roles: Role | str | Iterable[Role | str] | None = None,
        tags: str | Iterable[str] | None = None,
    ) -> Schema:
        """The columns named (in that order), or those with one of the roles and one of the tags.

        Args:
            names: of columns.
            roles: one, or several of which a column has one.
            tags: one, or several of which a column has one.

        Returns:
            The schema of those columns.

        Raises:
            ColumnNotFoundError: there is no such column.
        """
        chosen = list(self) if names is None else [self[n] for n in names]
        if roles is not None:
            wanted = {_role(r) for r in ([roles] if isinstance(roles, str) else roles)}
            chosen = [c for c in chosen if c.role in wanted]
        if tags is not None:
            marks = {tags} if isinstance(tags, str) else set(map(str, tags))
            chosen = [c for c in chosen if c.tags & marks]
        return Schema(chosen)

    def without(self, names: Iterable[str]) -> Schema:
        """All columns but some.

        Args:
            names: of columns; those that are not there do not matter.

        Returns:
            The schema of the others.
        """
        gone = set(names)
        return Schema(c for c in self if c.name not in gone)

    def with_column(self, column: ColumnSchema) -> Schema:
        """A copy where `column` replaces its namesake, or is appended.

        Args:
            column: the new one.

        Returns:
            The copy.
        """
        return Schema({**self._columns, column.name: column}.values())

    def with_roles(self, **roles: Iterable[str]) -> Schema:
        """Roles by name: `schema.with_roles(label=["click"], categorical=["user", "item"])`.

        Args:
            roles: names of columns by role.

        Returns:
            The copy; columns not named stay as they are.
        """
        columns = dict(self._columns)
        for role, names in roles.items():
            for name in [names] if isinstance(names, str) else names:
                columns[name] = self[name].with_(role=role)
        return Schema(columns.values(), self.unread, self.place)

    def __add__(self, other: Schema) -> Schema:
        return Schema([*self, *other])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def polars_schema(self) -> dict[str, pl.DataType]:
        return {c.name: c.polars_dtype for c in self}

    def to_dict(self) -> dict[str, Any]:
        """Plain data.

        Returns:
            A version and the columns.
        """
        return {"version": SCHEMA_VERSION, "columns": [c.to_dict() for c in self]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schema:
        """A schema from plain data.

        Args:
            data: what `to_dict` gave.

        Returns:
            The schema.

        Raises:
            ArtefactError: it is of another version, or has fields that are not known.
        """
        if data.get("version") != SCHEMA_VERSION:
            raise ArtefactError(f"schema version {data.get('version')!r} is not readable here (needs {SCHEMA_VERSION})")
        return cls(_column_from_dict(c) for c in data["columns"])

    def to_json(self) -> str:
        """Plain data as JSON.

        Returns:
            The text.
        """
        return json.dumps(self.to_dict(), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """A schema from JSON.

        Args:
            text: what `to_json` gave.

        Returns:
            The schema.

        Raises:
            ArtefactError: it is no schema.
        """
        try:
            return cls.from_dict(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ArtefactError(f"not a Penstock schema: {error}") from error

    def __repr__(self) -> str:
        lines = []
        for c in self:
            dtype = f"list[{c.dtype}]" if c.is_list else c.dtype
            size = f" cardinality={c.cardinality}" if c.cardinality is not None else ""
            tags = f" tags={sorted(c.tags)}" if c.tags else ""
            lines.append(f"  {c.name}: {dtype} {c.role}{size}{tags}")
        return "Schema(\n" + "\n".join(lines) + "\n)" if lines else "Schema()"


def _role(role: Role | str) -> Role:
    try:
        return Role(role)
    except ValueError:
        raise SchemaError(f"role must be one of {', '.join(Role)}, got {role!r}") from None


def _column_from_dict(data: Mapping[str, Any]) -> ColumnSchema:
    known = {f.name for f in dataclasses.fields(ColumnSchema)}
    if extra := set(data) - known:
        raise ArtefactError(f"unknown field {sorted(extra)[0]!r} in the schema of column {data.get('name')!r}")
    return ColumnSchema(**data)
