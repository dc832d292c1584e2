"""A graph made ready to run on data of one schema: order, schemas, stages, phases.

A *stage* ends where rows must move between partitions (`Groupby`, `DifferenceLag`). A *phase* is one pass over the
data that fits every operator whose inputs are ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from penstock.core.conversion import convert
from penstock.core.dtypes import is_nested, same_dtype, split_list
from penstock.core.errors import (
    ColumnNotFoundError,
    ConversionError,
    DataError,
    GraphError,
    PenstockError,
    SchemaError,
)
from penstock.core.schema import ColumnSchema, Schema
from penstock.data.partition import in_order
from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.graph import Node, ancestors
from penstock.etl.number_chain import NumberChain, chain_before, chains_of
from penstock.etl.operator import ROW_NUMBER, Columns, Operator
from penstock.etl.raw_values import FRAME, converted_column, policy_of

Environment = dict[int, pl.DataFrame]  # node number → its columns
RAW_ERRORS = (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError)  # what operators may run into


class Plan:
    """Nodes are known by their position in `nodes`, which survives pickling to other processes."""

    def __init__(self, output: Node, input_schema: Schema) -> None:
        self.nodes = ancestors([output])
        self.output = len(self.nodes) - 1
        number = {id(node): i for i, node in enumerate(self.nodes)}
        self.parents = [tuple(number[id(p)] for p in node.feeds) for node in self.nodes]
        self.dependencies = [tuple(number[id(d)] for d in node.extras) for node in self.nodes]
        self.input_schema = input_schema
        self.available = input_schema.names
        self.refresh()
        self.inputs = self._raw_columns()
        self.input_schema = input_schema.select(self.inputs)
        self._input_dtypes = list(self.input_schema.polars_schema.values())
        self.exchanges = [i for i in range(len(self.nodes)) if self.exchange_keys(i) is not None]
        self.stages = self._stages()
        self.phases = self._phases()
        self.needs_rows = bool(self.exchanges) or any(
            n.operator is not None and n.operator.needs_row_numbers for n in self.nodes
        )

    def refresh(self) -> None:
        """Work out every node's columns and schema again: fitting adds cardinalities."""
        self.schemas: list[Schema] = []
        self.columns: list[Columns] = []
        self._chains: dict[tuple[tuple[int, ...], tuple[int, ...]], dict[int, NumberChain]] = {}
        self._chains_before: dict[int, NumberChain | None] = {}
        self._is_alike: bool | None = None
        for i, node in enumerate(self.nodes):
            inputs = self.input_schema if node.kind == "source" else self._joined(self.parents[i], node)
            extra = self._joined(self.dependencies[i], node, allow_same=True)
            self._check_dependencies(node, inputs, extra)
            self.columns.append(node.columns(inputs))
            _refuse_nested(node, inputs, self.columns[-1])
            self.schemas.append(node.schema_of(inputs, extra))
        self.dtypes = [schema.polars_schema for schema in self.schemas]

    def _check_dependencies(self, node: Node, inputs: Schema, extra: Schema, fitting: bool = False) -> None:
        """Columns that an operator names must be there; those that only fitting reads, when it is fitted."""
        if node.operator is None or (node.operator.fit_only_dependencies and not fitting):
            return
        for name in node.operator.dependencies():
            if isinstance(name, str) and name not in inputs and name not in extra:
                known = [*inputs.names, *(n for n in self.available if n not in inputs)]
                raise ColumnNotFoundError(name, known, f"the inputs of {node.operator!r}")

    def check_fittable(self, number: int) -> None:
        """Refuse to fit a node whose fitting needs columns that are not there."""
        node = self.nodes[number]
        inputs, extra = self._joined(self.parents[number], node), self._joined(self.dependencies[number], node, True)
        self._check_dependencies(node, inputs, extra, fitting=True)

    def _joined(self, numbers: Sequence[int], node: Node, allow_same: bool = False) -> Schema:
        columns: dict[str, ColumnSchema] = {}
        for number in numbers:
            for column in self.schemas[number]:
                if column.name in columns and not allow_same:
                    raise GraphError(
                        f"column {column.name!r} comes from two branches of {node!r}; rename one of them (ops.Rename)"
                    )
                columns[column.name] = column
        return Schema(columns.values())

    def _raw_columns(self) -> list[str]:
        used = {n for i, node in enumerate(self.nodes) if node.kind == "source" for n in self.columns[i].names}
        return [name for name in self.input_schema.names if name in used]

    def exchange_keys(self, number: int) -> tuple[str, ...] | None:
        op = self.nodes[number].operator
        return None if op is None else op.exchange_keys(self.columns[number])

    def _stages(self) -> list[int]:
        """The stage each node runs in; exchanges come one after the other, so each starts a stage of its own."""
        stages: list[int] = []
        last = 0
        for i in range(len(self.nodes)):
            stage = max((stages[p] for p in (*self.parents[i], *self.dependencies[i])), default=0)
            if i in self.exchanges:
                stage = last = max(stage, last) + 1
            stages.append(stage)
        return stages

    def _phases(self) -> list[int]:
        """The pass in which each fitted operator is fitted; others have the phase of what they wait for."""
        phases: list[int] = []
        for i, node in enumerate(self.nodes):
            ready = max((phases[p] for p in (*self.parents[i], *self.dependencies[i])), default=0)
            phases.append(ready + (node.fitted_op is not None))
        return phases

    def fits(self, stage: int) -> list[list[int]]:
        """The fitted nodes of a stage, one list a pass."""
        passes: dict[int, list[int]] = {}
        for i, node in enumerate(self.nodes):
            if node.fitted_op is not None and self.stages[i] == stage:
                passes.setdefault(self.phases[i], []).append(i)
        return [passes[phase] for phase in sorted(passes)]

    def fitted_nodes(self) -> list[int]:
        return [i for i, node in enumerate(self.nodes) if node.fitted_op is not None]

    @property
    def keeps_rows(self) -> bool:
        """Whether row i of the output is row i of the input."""
        return self.nodes[self.output].domain is None and not self.exchanges

    @property
    def treats_rows_alike(self) -> bool:
        """Whether an output row depends on its own input row alone, also where it was fitted on."""
        if self._is_alike is None:
            operators = [(node.operator, columns) for node, columns in zip(self.nodes, self.columns, strict=True)]
            alike = all(op is None or _is_row_by_row(op, columns) for op, columns in operators)
            self._is_alike = alike and self.keeps_rows and not self.needs_rows
        return self._is_alike

    # Running it on one frame.

    def start(self, frame: pl.DataFrame) -> Environment:
        """The environment of raw rows: the sources' columns."""
        frame = self.coerced(frame)
        return {i: in_order(frame, self.columns[i].names) for i, n in enumerate(self.nodes) if n.kind == "source"}

    def run(
        self,
        environment: Environment,
        wanted: Sequence[int],
        rows: pl.Series | None = None,
        training: bool = False,
    ) -> pl.Series | None:
        """Compute the `wanted` nodes into `environment`; gives the row numbers of the rows that are left."""
        needed = self._needed(environment, wanted)
        chains = self._chains_of(tuple(needed), tuple(wanted))
        inside = {i for chain in chains.values() for i in chain.nodes}
        for i in needed:
            try:
                if i not in inside:
                    rows = self._compute(i, environment, rows, training)
                elif i in chains:
                    rows = self._run_chain(chains[i], environment, rows, training)
            except PenstockError:
                raise
            except RAW_ERRORS as error:
                raise self._failed(i, error) from error
        return rows

    def _chains_of(self, needed: tuple[int, ...], wanted: tuple[int, ...]) -> dict[int, NumberChain]:
        """Which of the nodes are computed together; found out once for what is needed."""
        if (needed, wanted) not in self._chains:
            self._chains[needed, wanted] = chains_of(self, needed, wanted)
        return self._chains[needed, wanted]

    def learned(self, i: int, environment: Environment) -> Any:
        """What a fitted node learns of rows whose inputs need not be made for it; None where they must be."""
        if i not in self._chains_before:
            self._chains_before[i] = chain_before(self, i)
        chain = self._chains_before[i]
        if chain is None or self.parents[chain.nodes[0]][0] not in environment:
            return None
        return chain.moments(self.inputs_of(chain.nodes[0], environment))

    def _run_chain(
        self, chain: NumberChain, environment: Environment, rows: pl.Series | None, training: bool
    ) -> pl.Series | None:
        out = chain.run(self.inputs_of(chain.nodes[0], environment))
        if out is not None:
            environment[chain.nodes[-1]] = out
            return rows
        for i in chain.nodes:
            rows = self._compute(i, environment, rows, training)
        return rows

    def _failed(self, i: int, error: Exception) -> DataError:
        return DataError(f"{self.nodes[i].operator!r} failed on columns {list(self.columns[i].names)}: {error}")

    def computed(self, i: int, frame: pl.DataFrame) -> pl.DataFrame:
        """A row-wise node's output for its inputs, by itself: what single rows take that have no quicker way."""
        op = self.nodes[i].operator
        assert op is not None
        try:
            return self.declared(i, in_order(op.transform(frame, self.columns[i]), self.schemas[i].names))
        except PenstockError:
            raise
        except RAW_ERRORS as error:
            raise self._failed(i, error) from error

    def declared(self, i: int, out: pl.DataFrame) -> pl.DataFrame:
        """A node's columns in the dtypes that its schema declares; what they do not hold is refused."""
        wanted, changed = self.dtypes[i], []
        for name, dtype in zip(out.columns, out.dtypes, strict=True):
            if not same_dtype(dtype, wanted[name]):
                changed.append(self._declared_column(i, out.get_column(name), self.schemas[i][name]))
        return out.with_columns(changed) if changed else out

    def _declared_column(self, i: int, series: pl.Series, column: ColumnSchema) -> pl.Series:
        is_list = split_list(series.dtype)[1]
        if series.dtype == pl.Null:
            return series.cast(column.polars_dtype)
        if is_list == column.is_list:
            try:
                return convert(series, column.dtype, column=column.name, policy=policy_of(column.dtype))
            except ConversionError as error:
                reason = str(error)
        else:
            reason = "one holds lists, the other single values"
        raise DataError(
            f"{self.nodes[i].operator!r} declares column {column.name!r} as {column.polars_dtype} and gave "
            f"{series.dtype}: {reason}; its output_schema must say what it gives"
        )

    def _needed(self, environment: Environment, wanted: Sequence[int]) -> list[int]:
        todo, needed = list(wanted), set()
        while todo:
            i = todo.pop()
            if i not in environment and i not in needed:
                needed.add(i)
                todo += [*self.parents[i], *self.dependencies[i]]
        return sorted(needed)

    def inputs_of(self, i: int, environment: Environment) -> pl.DataFrame:
        """What the node's operator is given: its parents' columns, then those of its dependencies."""
        frames = [environment[p] for p in self.parents[i]]
        frame = frames[0] if len(frames) == 1 else side_by_side(frames)
        for d in self.dependencies[i]:
            fresh = [c for c in environment[d].columns if c not in frame.columns]
            if fresh:
                frame = side_by_side([frame, environment[d].select(fresh)])
        return frame

    def _compute(self, i: int, environment: Environment, rows: pl.Series | None, training: bool) -> pl.Series | None:
        node = self.nodes[i]
        frame = self.inputs_of(i, environment)
        if node.kind == "pick":
            environment[i] = in_order(frame, self.columns[i].names)
        elif node.kind == "drop":
            environment[i] = frame.drop(self.columns[i].names)
        elif node.kind == "join":
            environment[i] = frame
        else:
            environment[i], rows = self._apply(i, frame, rows, training)
        return rows

    def _apply(
        self, i: int, frame: pl.DataFrame, rows: pl.Series | None, training: bool
    ) -> tuple[pl.DataFrame, pl.Series | None]:
        op = self.nodes[i].operator
        assert op is not None
        numbered = rows is not None and (op.changes_rows or op.needs_row_numbers)
        if numbered:
            frame = frame.with_columns(rows)
        transform = op.transform
        if isinstance(op, FittedOperator):
            op.check_fitted()
            if training:
                transform = op.transform_training
        out = transform(frame, self.columns[i])
        if not op.changes_rows and out.height != frame.height:
            raise GraphError(f"{op!r} gave {out.height} rows for {frame.height}; an operator that does must say so")
        if op.changes_rows:
            rows = out[ROW_NUMBER] if numbered and ROW_NUMBER in out.columns else None
        return self.declared(i, in_order(out, self.schemas[i].names)), rows

    def coerced(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The raw frame in the input schema's dtypes: hexadecimal text decoded, numbers exact, nulls typed."""
        dtypes = frame.dtypes
        if frame.columns == self.inputs and all(map(same_dtype, dtypes, self._input_dtypes)):
            return frame
        changed, found = [], dict(zip(frame.columns, dtypes, strict=True))
        for column in self.input_schema:
            if column.name not in found:
                raise ColumnNotFoundError(column.name, frame.columns, FRAME)
            if not same_dtype(found[column.name], column.polars_dtype):
                changed.append(converted_column(frame[column.name], column))
        return frame.with_columns(changed) if changed else frame


def side_by_side(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Frames of equal height as one."""
    filled = [frame for frame in frames if frame.width]
    heights = {frame.height for frame in filled}
    if len(heights) > 1:
        raise GraphError(f"branches with {' and '.join(map(str, sorted(heights)))} rows cannot stand side by side")
    if not filled:
        return pl.DataFrame()
    first, *others = filled
    return first.hstack([series for frame in others for series in frame.get_columns()]) if others else first


def _is_row_by_row(op: Operator, columns: Columns) -> bool:
    """Whether rows are computed one by one, for all that is known; somebody else's operator may do anything."""
    if not type(op).__module__.startswith("penstock.etl.ops."):
        return False
    if isinstance(op, FittedOperator) and not (op.is_fitted and _is_as_trained(op)):
        return False
    return op.row_function(columns) is not None


def _is_as_trained(op: FittedOperator) -> bool:
    """Whether it treats the rows that it was fitted on as any others."""
    return type(op).transform_training is FittedOperator.transform_training


def _refuse_nested(node: Node, inputs: Schema, columns: Columns) -> None:
    """Lists of lists pass through a workflow; operators that compute with values do not take them."""
    if node.operator is None or node.operator.takes_nested_lists:
        return
    for name in columns.names:
        column = inputs.get(name)
        if column is not None and is_nested(column.dtype):
            raise SchemaError(
                f"column {name!r} holds lists of lists, which {node.operator!r} does not take; flatten it first "
                f"(LambdaOp)"
            )
