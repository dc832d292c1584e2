"""Merlin's schema, and the way between it and Penstock's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any

from penstock.compat.merlin.dtypes.base import DType, dtype_of, named
from penstock.compat.merlin.dtypes.base import from_native as dtype_from_native
from penstock.compat.merlin.dtypes.base import to_native as dtype_to_native
from penstock.compat.merlin.dtypes.shape import Shape
from penstock.compat.merlin.schema.tags import ROLE_TAGS, TagSet, as_tag, listed, role_of, text_of
from penstock.compat.missing import module_getattr
from penstock.core import schema as native
from penstock.core.errors import ColumnNotFoundError, ParameterError, SchemaError
from penstock.core.extras import require
from penstock.core.schema import Role
from penstock.etl.ops.embedding_sizes import default_dimension

__all__ = ["ColumnSchema", "Domain", "Schema"]


@dataclass(frozen=True)
class Domain:
    """The least and the largest value of a column.

    >>> Domain(0, 9).is_bounded
    True
    """

    min: float | None = None
    max: float | None = None
    name: str | None = None

    @property
    def is_bounded(self) -> bool:
        return self.min is not None and self.max is not None


@dataclass(frozen=True)
class ColumnSchema:
    """One column: name, tags, properties, dtype, and whether it holds lists.

    >>> from penstock.compat.merlin.schema import Tags
    >>> column = ColumnSchema("genres", dtype="int32", tags=[Tags.CATEGORICAL], dims=(None, (0, 4)))
    >>> column.is_list, column.is_ragged, column.value_count.max
    (True, True, 4)
    """

    name: str
    tags: Any = field(default_factory=TagSet)
    properties: dict[str, Any] = field(default_factory=dict)
    dtype: Any = None
    is_list: bool | None = None
    is_ragged: bool | None = None
    dims: InitVar[Any] = None

    def __post_init__(self, dims: Any) -> None:
        set_ = object.__setattr__
        set_(self, "tags", TagSet(self.tags))
        dtype = named("unknown") if self.dtype is None else dtype_of(self.dtype)
        shape = self._shape(dims, dtype)
        set_(self, "dtype", dtype.with_shape(shape))
        properties = dict(self.properties or {})
        if shape.dims is not None and len(shape.dims) > 1:
            properties["value_count"] = {"min": shape.dims[1].min, "max": shape.dims[1].max}
        set_(self, "properties", properties)
        set_(self, "is_list", shape.is_list)
        set_(self, "is_ragged", shape.is_ragged)

    def _shape(self, dims: Any, dtype: DType) -> Shape:
        """The shape that dims, the dtype, value counts or the flags give, if these agree."""
        counts = (self.properties or {}).get("value_count") or {}
        if self.is_list is False and (self.is_ragged or counts):
            raise SchemaError(f"column {self.name!r} holds no lists (is_list=False), so it can be neither ragged nor "
                              f"have value counts")  # fmt: skip
        if dims is not None:
            shape = Shape(dims)
        elif dtype.shape is not None and dtype.shape.dims is not None:
            shape = dtype.shape
        elif counts:
            low, high = counts.get("min"), counts.get("max")
            if self.is_ragged is False:  # all lists are as long: one bound says both
                low = high if low is None else low
                high = low if high is None else high
            shape = Shape((None, (low or 0, high)))
        else:
            return Shape((None, None)) if self.is_list else Shape()
        if self.is_ragged is not None and shape.is_ragged != self.is_ragged:
            raise SchemaError(f"column {self.name!r}: is_ragged={self.is_ragged} does not fit the shape {shape}")
        return shape

    @property
    def shape(self) -> Shape:
        return self.dtype.shape

    @property
    def value_count(self) -> Domain | None:
        return Domain(**counts) if (counts := self.properties.get("value_count")) else None

    @property
    def int_domain(self) -> Domain | None:
        return self._domain() if self.dtype.is_integer else None

    @property
    def float_domain(self) -> Domain | None:
        return self._domain() if self.dtype.is_float else None

    def _domain(self) -> Domain | None:
        return Domain(**domain) if (domain := self.properties.get("domain")) else None

    # Copies with a change.

    def with_name(self, name: str) -> ColumnSchema:
        return self._changed(name=name)

    def with_tags(self, tags: Any) -> ColumnSchema:
        """With further tags, and without those that they exclude."""
        return self._changed(tags=self.tags.override(tags))

    def with_properties(self, properties: Mapping[str, Any]) -> ColumnSchema:
        if not isinstance(properties, Mapping):
            raise ParameterError(f"properties must be a mapping, got {properties!r}")
        merged = {**self.properties, **properties}
        if properties.get("value_count"):
            return self._changed(properties=merged, dims=None, dtype=self.dtype.without_shape)
        return self._changed(properties=merged)

    def with_dtype(self, dtype: Any, is_list: bool | None = None, is_ragged: bool | None = None) -> ColumnSchema:
        dtype = dtype_of(dtype).without_shape
        if is_list is None and is_ragged is None:
            return self._changed(dtype=dtype)
        properties = {k: v for k, v in self.properties.items() if k != "value_count"}
        lists = bool(is_list or is_ragged)
        return self._changed(dtype=dtype, properties=properties, is_list=lists, dims=(None, None) if lists else (None,))

    def with_shape(self, shape: Any) -> ColumnSchema:
        properties = {k: v for k, v in self.properties.items() if k != "value_count"}
        return self._changed(dims=Shape(shape), dtype=self.dtype.without_shape, properties=properties)

    def _changed(self, **changes: Any) -> ColumnSchema:
        fields = {"name": self.name, "tags": self.tags, "properties": self.properties, "dtype": self.dtype}
        return ColumnSchema(**{**fields, "dims": self.shape.dims, **changes})

    def __merge__(self, other: ColumnSchema) -> ColumnSchema:
        merged = self.with_tags(other.tags).with_properties(other.properties)
        return merged if other.dtype.name == "unknown" else merged._changed(dtype=other.dtype, dims=other.shape.dims)

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash((self.name, self.dtype))

    # To Penstock's and back.

    def to_native(self) -> native.ColumnSchema:
        """Penstock's form: a role instead of the tags that stand for one, a cardinality instead of a domain.

        >>> column = ColumnSchema("user", dtype="int32", tags=["categorical"], properties={"domain": {"max": 9}})
        >>> column.to_native().role, column.to_native().cardinality
        (<Role.CATEGORICAL: 'categorical'>, 10)
        """
        role = role_of(self.tags) or Role.OTHER
        derived = {"embedding_sizes"} | ({"domain"} if not self.dtype.is_float else set())
        properties = {k: v for k, v in self.properties.items() if k not in derived}
        if not self.is_list:
            properties.pop("value_count", None)
        plain = frozenset(text_of(tag) for tag in self.tags if tag is not ROLE_TAGS.get(role))
        return native.ColumnSchema(
            self.name, dtype_to_native(self.dtype), role, bool(self.is_list), True, self._cardinality(), plain,
            properties,
        )  # fmt: skip

    def _cardinality(self) -> int | None:
        if sizes := self.properties.get("embedding_sizes"):
            return int(sizes["cardinality"])
        domain = self._domain()
        if domain is None or domain.max is None or self.dtype.is_float:
            return None
        return int(domain.max) + 1

    @classmethod
    def from_native(cls, column: native.ColumnSchema) -> ColumnSchema:
        """Merlin's form of a Penstock column."""
        role_tag = ROLE_TAGS.get(column.role)
        tags = TagSet([tag for tag in column.tags if as_tag(tag) not in ROLE_TAGS.values()])
        properties = dict(column.properties)
        if column.cardinality is not None:
            size = column.cardinality
            properties["domain"] = {"min": 0, "max": size - 1, "name": properties.get("vocabulary", column.name)}
            properties["embedding_sizes"] = {"cardinality": size, "dimension": default_dimension(size)}
        dims: Any = (None,)
        if column.is_list:
            counts = properties.get("value_count") or {}
            dims = (None, (counts.get("min") or 0, counts.get("max")))
        return cls(
            column.name, tags if role_tag is None else tags.override(role_tag), properties,
            dtype_from_native(column.dtype), dims=dims,
        )  # fmt: skip


class Schema:
    """Columns by name, selected by name and tag.

    >>> from penstock.compat.merlin.schema import Tags
    >>> schema = Schema([ColumnSchema("user", tags=[Tags.USER_ID]), ColumnSchema("click", tags=[Tags.TARGET])])
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
            raise ParameterError(f"column_schemas must be a list or a dict of ColumnSchema, got {column_schemas!r}")

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

    def excluding_by_tag(self, tags: Any) -> Schema:
        wanted = [as_tag(tag) for tag in listed(tags)]
        return Schema([c for c in self if not any(tag in c.tags for tag in wanted)])

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
        """A frame with a row for each column."""
        return require("pandas", "pandas").json_normalize([dataclasses.asdict(column) for column in self])

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
            raise TypeError(f"a Schema can be added to a Schema only, got {type(other).__name__}")
        mine = [c for c in self if c.name not in other]
        return Schema([*mine, *(self[c.name].__merge__(c) if c.name in self else c for c in other)])

    def __radd__(self, other: Any) -> Schema:
        return self if other in (None, 0) else self + other

    def __sub__(self, other: Any) -> Schema:
        return self if other is None else self.excluding_by_name(other.column_names)

    def __repr__(self) -> str:
        return repr([dataclasses.asdict(column) for column in self])

    def _repr_html_(self) -> str:
        return self.to_pandas()._repr_html_()


def as_native(schema: Any) -> native.Schema | None:
    """Penstock's schema from either kind."""
    return schema.to_native() if isinstance(schema, Schema) else schema


__getattr__ = module_getattr(__name__)
