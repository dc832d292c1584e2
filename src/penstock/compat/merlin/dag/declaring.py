"""What an operator says of its columns before a row is read, by the methods that Merlin's operators have.

A user's operator overrides the pieces that differ. Penstock's own operators know their output schema as a whole, so
their pieces are cut from that; where a dtype is not known yet, they are asked for several, and what does not depend on
it is declared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Flag, auto
from typing import Any

from penstock.compat.merlin.dag.selector import ColumnSelector
from penstock.compat.merlin.schema import Schema
from penstock.compat.merlin.schema.columns import ColumnSchema
from penstock.compat.merlin.schema.tags import ROLE_TAGS, TARGETS, role_of, text_of
from penstock.core.errors import ColumnNotFoundError, PenstockError, SchemaError
from penstock.core.schema import ColumnSchema as NativeColumn
from penstock.core.schema import Role
from penstock.core.schema import Schema as NativeSchema
from penstock.etl.operator import Columns

_TRIED = ("float64", "int64", "string")  # what a column whose dtype is not known may turn out to be


class Supports(Flag):
    """What an operator can work on; here that is always a pandas frame.

    >>> bool(Supports.CPU_DATAFRAME & Supports.CPU_DATAFRAME)
    True
    """

    CPU_DATAFRAME = auto()
    GPU_DATAFRAME = auto()
    CPU_DICT_ARRAY = auto()
    GPU_DICT_ARRAY = auto()


class DataFormats(Flag):
    """What an operator can work on, in the words of the last releases."""

    CUDF_DATAFRAME = auto()
    PANDAS_DATAFRAME = auto()
    NUMPY_TENSOR_TABLE = auto()
    CUPY_TENSOR_TABLE = auto()
    TF_TENSOR_TABLE = auto()
    TORCH_TENSOR_TABLE = auto()
    NUMPY_DICT_ARRAY = auto()
    CUPY_DICT_ARRAY = auto()


class MissingColumnsError(ColumnNotFoundError):
    """Columns that a graph or an operator needs are not there, in the words that Merlin has for it."""

    def __init__(self, name: str, known: Iterable[str], where: str = "the data") -> None:
        super().__init__(name, known, where)
        self.args = (f"Missing column {name!r}: {self.args[0]}",)


class Declares:
    """Mixin: schemas, selectors and names of outputs from `column_mapping` and the pieces of a column's schema.

    >>> from penstock.compat.merlin.dag import BaseOperator
    >>> BaseOperator().output_column_names(ColumnSelector(["a", "b"])).names
    ['a', 'b']
    """

    __array_ufunc__ = None  # so that an array of names leaves `>>` to the operator

    # Pieces to override.

    def column_mapping(self, col_selector: Any) -> dict[str, list[str]]:
        """`{output: inputs}`."""
        return {name: [name] for name in col_selector.names}

    @property
    def output_dtype(self) -> Any:
        return None

    @property
    def output_tags(self) -> Any:
        return []

    @property
    def output_properties(self) -> dict[str, Any]:
        return {}

    @property
    def dynamic_dtypes(self) -> bool:
        return False

    @property
    def is_subgraph(self) -> bool:
        return False

    @property
    def label(self) -> str:
        return type(self).__name__

    @property
    def supports(self) -> Supports:
        return Supports.CPU_DATAFRAME | Supports.GPU_DATAFRAME

    @property
    def supported_formats(self) -> DataFormats:
        return DataFormats.PANDAS_DATAFRAME | DataFormats.CUDF_DATAFRAME

    @property
    def export_name(self) -> str:
        return type(self).__name__.lower()

    # What is asked.

    def output_column_names(self, col_selector: Any) -> ColumnSelector:
        return ColumnSelector(list(self.column_mapping(as_selector(col_selector))))

    def compute_selector(
        self, input_schema: Schema, selector: Any, parents_selector: Any = None, dependencies_selector: Any = None
    ) -> ColumnSelector:
        """The columns by name, once a schema is known."""
        chosen = as_selector(selector) or ColumnSelector("*")
        self._validate_matching_cols(input_schema, chosen, "compute_selector")
        return chosen.resolve(input_schema)

    def compute_input_schema(
        self, root_schema: Schema, parents_schema: Schema, deps_schema: Schema, selector: Any
    ) -> Schema:
        inputs = parents_schema + deps_schema
        self._validate_matching_cols(inputs, as_selector(selector), "compute_input_schema")
        return inputs

    def compute_output_schema(self, input_schema: Schema, col_selector: Any, prev_output_schema: Any = None) -> Schema:
        """The output columns' schemas."""
        chosen = as_selector(col_selector) or ColumnSelector(input_schema.column_names)
        self._validate_matching_cols(input_schema, chosen, "compute_output_schema")
        chosen = chosen.resolve(input_schema)
        columns = [self.compute_column_schema(n, input_schema[f]) for n, f in self.column_mapping(chosen).items()]
        if self.dynamic_dtypes and prev_output_schema:
            columns = [c.with_dtype(prev_output_schema[c.name].dtype) for c in columns]
        return Schema(columns)

    def compute_column_schema(self, col_name: str, input_schema: Schema) -> ColumnSchema:
        column = ColumnSchema(col_name)
        for piece in (self._compute_dtype, self._compute_tags, self._compute_properties, self._compute_shape):
            column = piece(column, input_schema)
        return column

    def _compute_dtype(self, col_schema: ColumnSchema, input_schema: Schema) -> ColumnSchema:
        dtype = input_schema.first.dtype if len(input_schema) else col_schema.dtype
        return col_schema.with_dtype(dtype if self.output_dtype is None else self.output_dtype)

    def _compute_tags(self, col_schema: ColumnSchema, input_schema: Schema) -> ColumnSchema:
        tags = input_schema.first.tags if len(input_schema) else []
        return col_schema.with_tags(tags).with_tags(self.output_tags)

    def _compute_properties(self, col_schema: ColumnSchema, input_schema: Schema) -> ColumnSchema:
        own = dict(input_schema.first.properties) if len(input_schema) else {}
        return col_schema.with_properties({**own, **dict(self.output_properties or {})})

    def _compute_shape(self, col_schema: ColumnSchema, input_schema: Schema) -> ColumnSchema:
        return col_schema.with_shape(input_schema.first.shape if len(input_schema) else col_schema.shape)

    def validate_schemas(
        self, parents_schema: Any, deps_schema: Any, input_schema: Any, output_schema: Any, strict_dtypes: bool = False
    ) -> None:
        """A hook: raise where the schemas do not fit the operator."""

    def _validate_matching_cols(self, schema: Schema, selector: ColumnSelector | None, method_name: str) -> None:
        for name in selector.names if selector else ():
            if name not in schema:
                where = f"the inputs of {type(self).__name__} ({method_name})"
                raise MissingColumnsError(name, schema.column_names, where)

    def _get_columns(self, df: Any, selector: ColumnSelector) -> Any:
        return {name: df[name] for name in selector.names} if isinstance(df, dict) else df[selector.names]

    def load_artifacts(self, artifact_path: Any = None) -> None:
        """A hook of Merlin's; workflows keep what operators learned."""

    def save_artifacts(self, artifact_path: Any = None) -> None:
        """A hook of Merlin's; workflows keep what operators learned."""


_REWRITTEN = {"transform", "compute_output_schema", "output_dtype", "output_tags", "output_properties"}


def rewritten(op: Any) -> set[str]:
    """Which of these methods a user's class defines anew, where it derives from a built-in operator."""
    users = (kind for kind in type(op).__mro__ if not kind.__module__.startswith("penstock.") and kind is not object)
    return {name for kind in users for name in vars(kind)} & _REWRITTEN


class DeclaresNatively(Declares):
    """Mixin over one of Penstock's operators: what its `output_schema` says, in Merlin's words."""

    output_schema: Callable[[NativeSchema, Columns], NativeSchema]

    def compute_output_schema(self, input_schema: Schema, col_selector: Any, prev_output_schema: Any = None) -> Schema:
        """The output columns' schemas; a dtype that depends on one that is not known is not known either."""
        chosen = as_selector(col_selector) or ColumnSelector(input_schema.column_names)
        self._validate_matching_cols(input_schema, chosen, "compute_output_schema")
        columns = as_columns(chosen.resolve(input_schema))
        if all(c.dtype.name != "unknown" for c in input_schema):
            return self._as_derived(Schema.from_native(self._known_schema(input_schema, columns)))
        answers: list[Any] = []
        refusal = None
        for lists in (False, True):  # an operator on lists takes columns of which nothing is known as such
            for dtype in _TRIED if not answers else ():
                try:
                    answers.append(self.output_schema(_as(input_schema, dtype, lists), columns))
                except PenstockError as error:
                    refusal = error
        if not answers:
            assert refusal is not None
            raise refusal
        declared = []
        for column in Schema.from_native(answers[0]):
            dtypes = {answer[column.name].dtype for answer in answers if column.name in answer}
            declared.append(column if len(dtypes) == 1 and len(answers) > 1 else column.with_dtype("unknown"))
        return self._as_derived(Schema(declared))

    def _as_derived(self, schema: Schema) -> Schema:
        """What a class that a user derived from an operator says of its columns, over what the operator says."""
        says = rewritten(self)
        if "output_dtype" in says:
            schema = Schema([column.with_dtype(self.output_dtype) for column in schema])
        if "output_tags" in says:
            schema = Schema([column.with_tags(self.output_tags) for column in schema])
        if "output_properties" in says:
            schema = Schema([column.with_properties(self.output_properties) for column in schema])
        return schema

    def _known_schema(self, input_schema: Schema, columns: Columns) -> NativeSchema:
        """What comes out; an operator on lists is asked of lists where a schema does not say that these are some."""
        try:
            return self.output_schema(input_schema.to_native(), columns)
        except SchemaError:
            lists = [c.with_dtype(c.dtype, is_list=True) if c.shape.is_unknown else c for c in input_schema]
            return self.output_schema(Schema(lists).to_native(), columns)

    def column_mapping(self, col_selector: Any) -> dict[str, list[str]]:
        """`{output: inputs}`: the inputs whose names are in an output's, else all."""
        chosen = as_selector(col_selector)
        outputs = self._outputs_of(Schema(chosen.names), chosen).column_names
        origins: Mapping[str, str] = self.origins(as_columns(chosen))  # type: ignore[attr-defined]
        found = {}
        for output in outputs:
            named = [name for name in chosen.names if re.search(rf"(^|_){re.escape(name)}(_|$)", output)]
            found[output] = [origins[output]] if output in origins else named or chosen.names
        return found

    def _outputs_of(self, input_schema: Schema, chosen: ColumnSelector) -> Schema:
        return self.compute_output_schema(self._with_named(input_schema), chosen)

    def _with_named(self, input_schema: Schema) -> Schema:
        """The schema with the columns that the operator names besides its inputs."""
        named = [n for n in self.dependencies() if isinstance(n, str) and n not in input_schema]  # type: ignore[attr-defined]
        return input_schema + Schema(named)

    def _piece(self, col_schema: ColumnSchema, input_schema: Schema) -> ColumnSchema:
        known = self._outputs_of(input_schema, ColumnSelector(input_schema.column_names))
        if not len(known) and len(input_schema):  # nothing is made of keys alone: asked of a column like these
            like = Schema([input_schema.first.with_name(f"{col_schema.name}_")])
            known = self._outputs_of(like, ColumnSelector(like.column_names))
        return known.get(col_schema.name) or (known.first if len(known) else col_schema)

    def _compute_dtype(self, col_schema: ColumnSchema, input_schema: Schema) -> ColumnSchema:
        return col_schema.with_dtype(self._piece(col_schema, input_schema).dtype)

    def _compute_tags(self, col_schema: ColumnSchema, input_schema: Schema) -> ColumnSchema:
        return col_schema.with_tags(self._piece(col_schema, input_schema).tags)

    def _compute_properties(self, col_schema: ColumnSchema, input_schema: Schema) -> ColumnSchema:
        return col_schema.with_properties(self._piece(col_schema, input_schema).properties)

    def _compute_shape(self, col_schema: ColumnSchema, input_schema: Schema) -> ColumnSchema:
        return col_schema.with_shape(self._piece(col_schema, input_schema).shape)


_OF_VALUES = {"cat_path", "domain", "embedding_sizes", "freq_threshold", "max_size", "num_buckets", "value_count",
              "vocabulary"}  # fmt: skip


def inherited(
    column: NativeColumn, source: NativeColumn | None, own: NativeColumn | None, feature: bool = False
) -> NativeColumn:
    """A column with the tags of what it is made from and those that its operator gives by itself (`own`).

    Properties come from there too, but for those that describe values. A `feature` is no target, whatever it is from.
    """
    if source is None:
        return column
    tags = ColumnSchema.from_native(source).tags
    if feature:
        tags = tags - TARGETS
    if own is not None:
        tags = tags.override(ColumnSchema.from_native(own).tags)
    role = role_of(tags) or Role.OTHER
    kept = {key: value for key, value in source.properties.items() if key not in _OF_VALUES}
    plain = frozenset(text_of(tag) for tag in tags if tag is not ROLE_TAGS.get(role))
    return column.with_(role=role, tags=plain, properties={**kept, **column.properties})


def as_selector(columns: Any) -> ColumnSelector:
    """A selector from a selector, names, or nothing.

    >>> as_selector(["a"]).names, bool(as_selector(None))
    (['a'], False)
    """
    if isinstance(columns, ColumnSelector):
        return columns
    return getattr(columns, "selector", None) or ColumnSelector(columns)


def as_columns(selector: ColumnSelector) -> Columns:
    """The columns that an operator works on, as Penstock's operators take them."""
    return Columns(tuple((n,) if isinstance(n, str) else n for n in selector.grouped_names))


def _as(schema: Schema, dtype: str, lists: bool = False) -> NativeSchema:
    """The schema with a dtype for the columns that have none, and as lists of it where these are asked for."""
    unknown = [c.name for c in schema if c.dtype.name == "unknown"]
    shaped = {"is_list": True} if lists else {}
    columns = [c.with_dtype(dtype, **shaped) if c.name in unknown else c for c in schema]
    return Schema(columns).to_native()
