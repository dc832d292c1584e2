"""The operator contract: columns to columns. What learns from the data first is in `fitted_operator`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl

from penstock.core.errors import ParameterError, suggest
from penstock.core.params import Constraint, check_all
from penstock.core.schema import ColumnSchema, Schema
from penstock.etl.arguments import parameter_names, parameters, plain
from penstock.etl.cells import BulkFunction, RowFunction

if TYPE_CHECKING:
    from penstock.etl.graph import Node


@dataclass(frozen=True)
class Columns:
    """The columns an operator works on: flat `names`, and `groups` as nested lists gave them (they may overlap)."""

    groups: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for group in self.groups for name in group))


class Operator:
    """A pure function from columns to columns.

    Subclasses store their constructor's arguments under the same names, list `constraints` for them, and define
    `transform`; `output_schema` defaults to the inputs' schema.

    >>> class Double(Operator):
    ...     def transform(self, frame, columns):
    ...         return frame.select(pl.col(columns.names) * 2)
    >>> (["x"] >> Double()).operator
    Double()
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {}
    changes_rows: ClassVar[bool] = False  # fewer, more or other rows than came in
    gathered_rows: ClassVar[int] = 0  # up to so many rows, all that were exchanged make one partition
    takes_nested_lists: ClassVar[bool] = False  # lists of lists among its columns are nothing it cannot work on
    needs_row_numbers: ClassVar[bool] = False  # `frame` carries ROW_NUMBER
    fit_only_dependencies: ClassVar[bool] = False  # only fitting reads them: a serving workflow does without
    puts_values_in: ClassVar[bool] = False  # values of its own, whose dtype need not be the column's
    bulk_takes_lists: ClassVar[bool] = False  # `bulk_function` also understands list columns

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        original = cls.__init__

        # Arguments are checked once, after the outermost constructor, from the class's table of constraints.
        if "__init__" in cls.__dict__:

            def __init__(self: Operator, *args: Any, **kw: Any) -> None:
                original(self, *args, **kw)
                if type(self).__init__ is __init__:
                    self.check_params()

            __init__.__wrapped__ = original  # type: ignore[attr-defined]
            __init__.__doc__ = original.__doc__
            cls.__init__ = __init__  # type: ignore[method-assign, assignment]

    def check_params(self) -> None:
        """Check the arguments against the class's table of constraints.

        Raises:
            ParameterError: an argument is none of what the table allows.
        """
        check_all(self.params(), self.constraints, type(self).__name__)

    # What a subclass defines.

    def transform(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        """The output columns for the input columns (and dependencies) in `frame`.

        Args:
            frame: rows with the input columns and the dependencies.
            columns: those that the operator works on.

        Returns:
            The output columns, as many rows (but for operators that change rows).

        Raises:
            TypeError: a subclass does not define it.
        """
        raise TypeError(f"{type(self).__name__} does not define transform")

    def output_schema(self, inputs: Schema, columns: Columns) -> Schema:
        """The schema of `transform`'s result, declared without reading a row.

        Args:
            inputs: the schema of what comes in.
            columns: those that the operator works on.

        Returns:
            The schema of the output columns, in order.

        Raises:
            SchemaError: a column has a dtype that the operator does not take.
            ColumnNotFoundError: it needs a column that is not there.
            ParameterError: its arguments do not fit the columns.
        """
        return inputs.select(columns.names)

    def dependencies(self) -> Sequence[Any]:
        """Further inputs: column names of the raw data, or nodes.

        Returns:
            Names or nodes; none by default.
        """
        return ()

    def origins(self, columns: Columns) -> dict[str, str]:
        """`{output: input}` for outputs that hold one input's values, some of them perhaps filled, cut or coded.

        Args:
            columns: those that the operator works on.

        Returns:
            Outputs by name; those that are something new are left out.
        """
        return {}

    def exchange_keys(self, columns: Columns) -> tuple[str, ...] | None:
        """Columns whose equal values must meet in one partition before `transform`; None for row-wise work.

        Args:
            columns: those that the operator works on.

        Returns:
            The names of the key columns, or None.

        Raises:
            ColumnNotFoundError: a key column is not among those that the operator works on.
        """
        return None

    def row_function(self, columns: Columns) -> RowFunction | None:
        """A function from one row's values to one row's values, for low latency; None falls back to a frame.

        Args:
            columns: those that the operator works on.

        Returns:
            The function, or None.
        """
        return None

    def bulk_function(self, columns: Columns) -> BulkFunction | None:
        """`row_function` for a few rows at once, exact to the bit; None falls back to the row function or a frame.

        Args:
            columns: those that the operator works on.

        Returns:
            The function, or None.
        """
        return None

    @classmethod
    def recipe_class(cls) -> type[Operator]:
        """The class that a recipe names, with the arguments of its constructor: this one.

        Override it in a class that is one of its parents under other arguments; what it writes is then read as that
        parent, which must understand the learned state too.

        Returns:
            The class.
        """
        return cls

    # What every operator has.

    def params(self) -> dict[str, Any]:
        """The constructor's arguments as given.

        Returns:
            Arguments by name.
        """
        return {name: getattr(self, name) for name in parameter_names(self.recipe_class())}

    def recipe_params(self) -> dict[str, Any]:
        """The arguments that differ from their defaults, as plain data for a recipe.

        Returns:
            Arguments by name, as JSON and YAML can hold them.

        Raises:
            ParameterError: an argument is no plain data.
        """
        out = {}
        for name, parameter in parameters(self.recipe_class()).items():
            value = getattr(self, name)
            default = parameter.default
            if default is inspect.Parameter.empty or type(value) is not type(default) or value != default:
                out[name] = plain(value, f"{type(self).__name__}.{name}")
        return out

    def frames(self) -> dict[str, pl.DataFrame]:
        """Arguments that hold a table: a saved workflow keeps them beside its recipe, as parquet.

        Returns:
            Tables by the name of their argument.
        """
        return {}

    @classmethod
    def from_recipe(cls, params: Mapping[str, Any]) -> Operator:
        """An operator from the arguments that a recipe has for it.

        Args:
            params: arguments by name, as `recipe_params` gives them.

        Returns:
            The operator, not fitted.

        Raises:
            ParameterError: there is no argument of that name.
        """
        known = parameter_names(cls)
        for name in params:
            if name not in known:
                raise ParameterError(f"{cls.__name__} has no argument {name!r}{suggest(name, known, 'arguments')}")
        return cls(**params)

    def __rrshift__(self, left: Any) -> Node:
        from penstock.etl.graph import as_node

        return as_node(left) >> self

    def __repr__(self) -> str:
        shown = {}
        for name, parameter in parameters(self.recipe_class()).items():
            value = getattr(self, name, None)
            if parameter.default is inspect.Parameter.empty or value is not parameter.default:
                shown[name] = value
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


ROW_NUMBER = "__row__"


def same_names(columns: Columns) -> dict[str, str]:
    """`origins` of an operator whose outputs are named as its inputs."""
    return {name: name for name in columns.names}


class Invertible:
    """Mixin for operators whose output columns can be turned back."""

    def inverse(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        """The inputs behind some of the output columns, under the outputs' names; lists come as their elements.

        Args:
            frame: output columns.
            columns: those that the operator works on.

        Returns:
            The input values, under the outputs' names.

        Raises:
            TypeError: a subclass does not define it.
        """
        raise TypeError(f"{type(self).__name__} does not define inverse")


def per_column(inputs: Schema, columns: Columns, change: Callable[[ColumnSchema], ColumnSchema]) -> Schema:
    """An output schema with one output for each input."""
    return Schema(change(inputs[name]) for name in columns.names)
