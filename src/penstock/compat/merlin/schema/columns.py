"""One column of Merlin's schema, and the way between it and Penstock's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from enum import Enum
from typing import Any

from penstock.compat.merlin.dtypes import DType, dtype_of, named
from penstock.compat.merlin.dtypes import from_native as dtype_from_native
from penstock.compat.merlin.dtypes import to_native as dtype_to_native
from penstock.compat.merlin.dtypes.shape import Shape
from penstock.compat.merlin.schema.tags import ROLE_TAGS, Tags, TagSet, as_tag, role_of, text_of
from penstock.compat.missing import CompatTypeError
from penstock.core import schema as native
from penstock.core.dtypes import levels_of, nested
from penstock.core.errors import SchemaError
from penstock.core.schema import Role
from penstock.etl.ops.embedding_sizes import default_dimension


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


class ColumnQuantity(Enum):
    """How many values a row of a column holds.

    >>> ColumnQuantity("scalar") is ColumnQuantity.SCALAR
    True
    """

    SCALAR = "scalar"
    FIXED_LIST = "fixed_list"
    RAGGED_LIST = "ragged_list"


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
        counts = dict((self.properties or {}).get("value_count") or {})
        if self.is_list is False and self.is_ragged:
            raise SchemaError(f"column {self.name!r} holds no lists (is_list=False), so it cannot be ragged")
        if self.is_list and self.is_ragged is False:  # all lists are as long: one bound says both
            counts |= {"min": counts.get("max")} if counts.get("min") is None and "max" in counts else {}
            counts |= {"max": counts.get("min")} if counts.get("max") is None and "min" in counts else {}
        if dims is not None:
            return Shape(dims)  # which count, whatever else is said
        if dtype.shape is not None and dtype.shape.dims is not None:
            shape = dtype.shape
        elif counts:
            shape = Shape((None, (counts.get("min") or 0, counts.get("max"))))
        else:
            return Shape((None, None)) if self.is_list else Shape()
        self._check_shape(shape, counts)
        return shape

    def _check_shape(self, shape: Shape, counts: Mapping[str, Any]) -> None:
        for flag, given, found in (("is_ragged", self.is_ragged, shape.is_ragged),
                                   ("is_list", self.is_list, shape.is_list)):  # fmt: skip
            if given is not None and found != given and not (flag == "is_list" and counts):
                if counts:
                    raise SchemaError(
                        f"Provided value of `{flag}={given}` is inconsistent with value counts {dict(counts)}, column "
                        f"{self.name!r}"
                    )
                raise SchemaError(f"column {self.name!r}: {flag}={given} does not fit the shape {shape}")
        if not counts or not shape.is_list:
            return
        if any(counts.get(bound) and counts[bound] != getattr(shape[1], bound) for bound in ("min", "max")):
            raise SchemaError(f"column {self.name!r}: the value counts {dict(counts)} do not fit the shape {shape}")

    @property
    def shape(self) -> Shape:
        return self.dtype.shape

    @property
    def value_count(self) -> Domain | None:
        return Domain(**counts) if (counts := self.properties.get("value_count")) else None

    @property
    def quantity(self) -> ColumnQuantity:
        """Whether rows hold one value, as many as any other row, or any number."""
        if not self.is_list:
            return ColumnQuantity.SCALAR
        return ColumnQuantity.RAGGED_LIST if self.is_ragged else ColumnQuantity.FIXED_LIST

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
            raise CompatTypeError(f"properties must be a mapping, got {properties!r}")
        merged = {**self.properties, **properties}
        if properties.get("value_count"):
            return self._changed(properties=merged, dims=None, dtype=self.dtype.without_shape)
        return self._changed(properties=merged)

    def with_dtype(self, dtype: Any, is_list: bool | None = None, is_ragged: bool | None = None) -> ColumnSchema:
        dtype = dtype_of(dtype).without_shape
        if is_list is None and is_ragged is None:
            return self._changed(dtype=dtype)
        properties = {k: v for k, v in self.properties.items() if k != "value_count"}
        return self._changed(
            dtype=dtype, properties=properties, dims=None, is_list=is_list or is_ragged, is_ragged=is_ragged
        )

    def with_shape(self, shape: Any) -> ColumnSchema:
        properties = {k: v for k, v in self.properties.items() if k != "value_count"}
        return self._changed(dims=Shape(shape), dtype=self.dtype.without_shape, properties=properties)

    def _changed(self, **changes: Any) -> ColumnSchema:
        fields = {"name": self.name, "tags": self.tags, "properties": self.properties, "dtype": self.dtype}
        return ColumnSchema(**{**fields, "dims": self.shape.dims, **changes})

    def __merge__(self, other: ColumnSchema) -> ColumnSchema:
        merged = self.with_name(other.name).with_tags(other.tags).with_properties(other.properties)
        return merged if other.dtype.name == "unknown" else merged._changed(dtype=other.dtype, dims=other.shape.dims)

    def __or__(self, other: ColumnSchema) -> ColumnSchema:
        """This column, with what only the other says."""
        dtype = other.dtype.without_shape if self.dtype.name == "unknown" else self.dtype.without_shape
        dims = other.shape.dims if self.shape.dims is None else self.shape.dims
        further = {k: v for k, v in other.properties.items() if k != "value_count" and k not in self.properties}
        tags = other.tags.override(self.tags)
        return self._changed(tags=tags, properties={**self.properties, **further}, dtype=dtype, dims=dims)

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
        cardinality = self._cardinality()
        properties = dict(self.properties)
        if cardinality is not None:
            properties = _without_sizes(properties, cardinality, self.name)
        if not self.is_list:
            properties.pop("value_count", None)
        plain = frozenset(text_of(tag) for tag in self.tags._tags if tag is not ROLE_TAGS.get(role))
        levels = len(self.shape) - 2 if len(self.shape) > 2 and Tags.EMBEDDING not in self.tags else 0
        return native.ColumnSchema(
            self.name, nested(dtype_to_native(self.dtype), levels), role, bool(self.is_list), True,
            cardinality, plain, properties,
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
        stale = () if column.role is Role.LABEL else ROLE_TAGS.values()  # a label may be a category or a number too
        tags = TagSet._of([tag for tag in column.tags if as_tag(tag) not in stale])
        properties = dict(column.properties)
        if column.cardinality is not None and not _told(properties, column.cardinality):
            properties |= _sizes(column.cardinality, properties.pop("vocabulary", column.name))
        dims: Any = (None,)
        if column.is_list:
            counts = properties.get("value_count") or {}
            dims = (None, (counts.get("min") or 0, counts.get("max")))
            dims = (*dims, *(None for _ in range(levels_of(column.dtype))))
        return cls(
            column.name, tags if role_tag is None else tags.override(role_tag), properties,
            dtype_from_native(column.dtype), dims=dims,
        )  # fmt: skip


# What Merlin's properties say of a cardinality. Those that Categorify gives follow from it and from the vocabulary's
# name; others (no sizes beside a domain, HashBucket's domain, which ends one further) are kept as they were written.


def _sizes(cardinality: int, name: str) -> dict[str, Any]:
    return {
        "domain": {"min": 0, "max": cardinality - 1, "name": name},
        "embedding_sizes": {"cardinality": cardinality, "dimension": default_dimension(cardinality)},
    }


def _told(properties: Mapping[str, Any], cardinality: int) -> bool:
    """Whether what was written is of this cardinality, and not of what the column held before."""
    domain, sizes = (properties.get(key) or {} for key in ("domain", "embedding_sizes"))
    return domain.get("max") in (cardinality - 1, cardinality) or sizes.get("cardinality") == cardinality


def _without_sizes(properties: Mapping[str, Any], cardinality: int, column: str) -> dict[str, Any]:
    """Properties for Penstock's column: a vocabulary instead of the sizes that follow, else as they were written."""
    name = (properties.get("domain") or {}).get("name", column)
    follow = _sizes(cardinality, name)
    if {key: properties.get(key) for key in follow} != follow:
        return dict(properties)
    return {**{k: v for k, v in properties.items() if k not in follow}, "vocabulary": name}
