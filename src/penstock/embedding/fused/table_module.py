"""One module over fused tables: one weight, one look-up and one update for all tables of a dim, in one backward pass.

Where a row is in the weight is the business of its `RowHome`; `FusedEmbeddings`, `CachedEmbeddings` and
`FrozenEmbeddings` are this module over three of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from penstock.core.errors import DataError, ParameterError
from penstock.core.params import BOOL, NONE, Int, OneOf, Real, check_all
from penstock.core.schema import Role, Schema
from penstock.embedding.dims import Dims, dims_of
from penstock.embedding.fused import table_exports
from penstock.embedding.fused.ids import Ids, read_groups
from penstock.embedding.fused.look_up_function import LookUpFunction
from penstock.embedding.fused.row_home import RowHome
from penstock.embedding.fused.settings import (
    WEIGHT_DTYPES,
    row_owners,
    table_optimizer,
    table_sizes,
    update_rule,
    weight_dtype,
)
from penstock.embedding.fused.table_group import TableGroup
from penstock.embedding.fused.table_lookup import TableLookup
from penstock.embedding.fused.table_steps import TableSteps
from penstock.embedding.fused.table_widths import TableWidths
from penstock.embedding.module_files import load_module, save_module
from penstock.embedding.optimizers import Optimizer
from penstock.embedding.parameter_tables import EmbeddingTables
from penstock.kernels.fused_contract import POOLINGS, table_and_id


class TableModule(TableWidths, TableSteps):
    """Tables over a `RowHome`, those of one dim in one weight. Arguments are those of `FusedEmbeddings`.

    Weights and state are buffers: they are in `state_dict()` and not in `parameters()`. Tables of one dim have them as
    `weight`, `first_state` and `second_state`; those of several as `weight_32`, `weight_8`, … with their dim.

    Args:
        home: makes the home of the rows of a group of tables, given their sizes.
        sizes: rows by table, where `tables` does not say them: 0 of hashed ones, whose rows come as ids do.
    """

    weight: Tensor
    errors: Tensor
    on_host = False
    updates_in_backward = True

    def __init__(
        self,
        tables: Schema | Mapping[str, int] | Sequence[int],
        dim: Dims,
        home: Callable[[Mapping[str, int]], RowHome],
        *,
        optimizer: str | Optimizer = "rowwise_adagrad",
        lr: float | None = None,
        dtype: str | torch.dtype = "float32",
        output: str | None = None,
        output_dtype: str | torch.dtype | None = None,
        pooling: str = "sum",
        scale: float = 0.01,
        align: int = 1,
        device: torch.device | str | int | None = None,
        share: bool = True,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        given = {"output": output, "pooling": pooling, "scale": scale, "align": align, "lr": lr, "share": share}
        constraints = {"output": OneOf((None, "stack", "concat")), "pooling": OneOf(tuple(POOLINGS)),
                       "scale": Real(min=0), "align": Int(min=1), "lr": NONE | Real(min=0), "share": BOOL}  # fmt: skip
        check_all(given, constraints, type(self).__name__)
        self.schema = tables.select(roles=Role.CATEGORICAL) if isinstance(tables, Schema) else None
        self.sizes = table_sizes(tables) if sizes is None else dict(sizes)
        self.named = isinstance(tables, (Schema, Mapping))  # else tables go by their order alone
        self.names, self.pooling, self.align = list(self.sizes), pooling, align
        self._dims = dims_of(dim, self.names, f"{type(self).__name__}.dim")
        self.owners = row_owners(tables if share else None, self._dims)
        self.output = output or ("stack" if self.is_one_dim else "concat")
        if self.output == "stack" and not self.is_one_dim:
            raise ParameterError(
                f'output="stack" gives (B, tables, dim) and needs one dim, and the tables have {self.dims}; use '
                f'output="concat", which writes them side by side, or one dim for all'
            )
        self.output_dtype = None if output_dtype is None else weight_dtype("output_dtype", output_dtype)
        self.optimizer = table_optimizer(optimizer, lr)
        self.rule = update_rule(self.optimizer)
        self.groups = self._grouped(home)
        self._register(weight_dtype("dtype", dtype), scale, device)

    def _register(self, kind: torch.dtype, scale: float, device: torch.device | str | int | None) -> None:
        for group in self.groups:
            group.register(kind, scale, device)
        self.register_steps(device)
        self.register_buffer("errors", torch.zeros(1, dtype=torch.int64, device=device), persistent=False)

    def _grouped(self, home: Callable[[Mapping[str, int]], RowHome]) -> list[TableGroup]:
        """The tables by dim, those of the first table first."""
        columns = [0, *accumulate(self._dims.values())]
        found = []
        for dim in dict.fromkeys(self._dims.values()):
            numbers = [number for number, own in enumerate(self._dims.values()) if own == dim]
            sizes = {self.names[number]: self.sizes[self.names[number]] for number in numbers}
            suffix = "" if self.is_one_dim else f"_{dim}"
            begins = [columns[number] for number in numbers]
            found.append(TableGroup(self, sizes, self.owners, dim, numbers, begins, suffix, home(sizes)))
        return found

    @property
    def num_rows(self) -> int:
        """Rows of all tables."""
        return sum(group.num_rows for group in self.groups)

    @property
    def device(self) -> torch.device:
        """Where the tables are."""
        return self.errors.device

    def forward(
        self, ids: Any, continuous: Tensor | None = None, sample_weights: Mapping[str, Any] | None = None
    ) -> Tensor:
        """The embeddings of a batch.

        `ids` are `(B, tables)`, or `{name: column}` with `(B,)`, padded `(B, n)` or ragged `(values, offsets)` columns,
        or a packed batch with lists. `sample_weights` are `{list column: one weight a value}`; they are not trained.

        Args:
            ids: of the batch.
            continuous: numbers that are written beside the embeddings.
            sample_weights: by list column, one a value.

        Returns:
            `(B, width)`, or `(B, tables, dim)`.

        Raises:
            DataError: the ids have a form that is not known.
            ParameterError: numbers were given, and the output has no place for them.
        """
        if torch.compiler.is_compiling():
            return _embedded_apart(self, ids, continuous, sample_weights)
        return self.embedded(ids, continuous, sample_weights)

    def embedded(self, ids: Any, continuous: Tensor | None, sample_weights: Mapping[str, Any] | None) -> Tensor:
        """What `forward` returns.

        Args:
            ids: of the batch.
            continuous: numbers that are written beside the embeddings.
            sample_weights: by list column, one a value.

        Returns:
            `(B, width)`, or `(B, tables, dim)`.

        Raises:
            ParameterError: numbers were given, and the output has no place for them.
        """
        self._check_dtypes()
        found = self.read(ids, sample_weights)
        if continuous is not None and self.output == "stack":
            raise ParameterError('numbers can be written beside the embeddings with output="concat" only')
        if torch.is_grad_enabled():
            anchor = _anchor(self.device)
            out: Tensor = LookUpFunction.apply(anchor, continuous, self, found, ids)  # type: ignore[no-untyped-call]
        else:
            out, _ = self.look_up(found, continuous, training=False, given=ids)
        return out.view(len(out), len(self.names), self.groups[0].dim) if self.output == "stack" else out

    def read(self, ids: Any, sample_weights: Mapping[str, Any] | None = None) -> list[Ids]:
        """What `forward` is given, as each group of tables reads it.

        Args:
            ids: of the batch.
            sample_weights: by list column, one a value.

        Returns:
            As many as there are groups.

        Raises:
            DataError: the ids have a form that is not known.
        """
        numbers = [group.numbers for group in self.groups]
        return read_groups(ids, self.names, numbers, self.device, sample_weights)

    def check_ids(self) -> None:
        """Raise `DataError` if any id since the last call lay outside its table. Waits for the GPU.

        Such an id gives zeros and is not trained. On the CPU `forward` calls this itself.

        Raises:
            DataError: there was one; its table is named.
        """
        self.check_wrong_ids()

    def check_wrong_ids(self) -> None:
        """What `check_ids` does of every kind of tables.

        Raises:
            DataError: an id lay outside its table.
        """
        code = int(self.errors)
        if not code:
            return
        self.errors.zero_()
        number, identity = table_and_id(code)
        table = self.names[number]
        raise DataError(
            f"id {identity} is outside table {table!r}, which has rows 0 to {self.sizes[table] - 1}; encode the "
            f"column with the workflow the tables were made for, or make the table larger"
        )

    def look_up(
        self, ids: Sequence[Ids], continuous: Tensor | None, training: bool, given: Any = None
    ) -> tuple[Tensor, list[Any]]:
        """The `(B, width)` output and, for training, what `step` needs.

        Args:
            ids: of the batch, as `read` gave them.
            continuous: numbers beside the embeddings.
            training: whether `step` will follow.
            given: the caller's own object.

        Returns:
            Both.
        """
        extra, embedded = 0 if continuous is None else continuous.shape[1], self.embedded_width
        width = self.width(extra) if self.output == "concat" else embedded
        out = torch.empty((len(ids[0].singles), width), dtype=self._output_dtype(), device=self.device)
        if continuous is not None:
            out[:, embedded : embedded + extra] = continuous
        if embedded + extra < width:
            out[:, embedded + extra :] = 0
        return out, [group.look_up(part, out, training, given) for group, part in zip(self.groups, ids, strict=True)]

    def step(self, ids: Sequence[Ids], saved: Sequence[Any], gradient: Tensor) -> None:
        """Apply the optimizer for a gradient of `look_up`'s output.

        Args:
            ids: of the batch, as `read` gave them.
            saved: what `look_up` gave.
            gradient: of its output.
        """
        for group, own in zip(self.groups, saved, strict=True):
            group.check_step(own)
        for number, (group, part, own) in enumerate(zip(self.groups, ids, saved, strict=True)):
            group.step(part, own, gradient, counts=number == 0)

    def for_serving(self, schema: Schema) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What `from_config` builds `FrozenEmbeddings` from, and their weights in host memory.

        Args:
            schema: names the columns of the tables, in their order.

        Raises:
            ParameterError: the columns are not those of the tables.

        Returns:
            Both.
        """
        return table_exports.frozen(self, schema)

    # The protocol `Embeddings`, by hand.

    def lookup(self, batch: Mapping[str, Any], train: bool = True) -> TableLookup:
        """Embeddings by column, for `update`. A module that is called (`tables(ids)`) needs neither."""
        self._check_dtypes()
        with torch.no_grad():
            ids = self.read(batch)
            out, saved = self.look_up(ids, None, training=train, given=batch)
        return TableLookup(self.dims, out[:, : self.embedded_width], ids, saved if train else None)

    def update(self, lookup: TableLookup, gradients: Mapping[str, Any], scale: float = 1.0) -> None:
        """Apply the gradients of a training look-up, divided by `scale`; once."""
        gradient, saved = lookup.gradient(gradients), lookup.saved_for_update()
        with torch.no_grad():
            before = self.unscale.clone()
            self.unscale.fill_(1.0 / scale)
            self.step(lookup.ids, saved, gradient)
            self.unscale.copy_(before)

    def save(self, path: str | Path, overwrite: bool = False, base: str | Path | None = None) -> None:
        """Write weights and optimizer state as a folder; always whole, whatever `base` is."""
        save_module(self, path, overwrite)

    def load(self, path: str | Path) -> None:
        """Replace weights and optimizer state by what `save` wrote."""
        load_module(self, path)

    def stats(self) -> dict[str, Any]:
        """Plain figures: rows, bytes of weights and state, updates that were left out. Waits for the GPU."""
        states = [tensor for group in self.groups for tensor in (group.weight, *group.states) if tensor is not None]
        held = sum(tensor.numel() * tensor.element_size() for tensor in states)
        return {"rows": self.num_rows, "bytes": held, "steps": int(self.steps), "skipped_rows": self.skipped_rows}

    def close(self) -> None:
        """Nothing is held open."""

    def tables(self) -> EmbeddingTables:
        """Plain tables with these weights, as serving takes them; needs a schema.

        Returns:
            The tables.

        Raises:
            ParameterError: the tables have several dims.
            SchemaError: there is no schema.
        """
        return table_exports.plain(self, self.groups[0].weight).to(self.device)

    def _check_dtypes(self) -> None:
        """`module.half()` and its like convert weights and state, too; the kernels take them as they were made."""
        kind = self.groups[0].weight.dtype
        if kind not in WEIGHT_DTYPES or self.rates.dtype != torch.float32:
            raise ParameterError(
                f"the kernels of FusedEmbeddings take weights in float32 or bfloat16 and state in float32, and these "
                f"are {kind} and {self.rates.dtype} now; give dtype= when you make them, and move them "
                f"with .to(device) alone"
            )

    def _output_dtype(self) -> torch.dtype:
        if self.output_dtype is not None:
            return self.output_dtype
        kind = self.device.type
        if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.bfloat16:
            return torch.bfloat16
        return torch.float32

    def extra_repr(self) -> str:
        """What `repr` shows of the tables.

        Returns:
            Text.
        """
        rows = sum(len(group.weight) for group in self.groups)
        return f"{len(self.names)} tables, {rows} rows, {self._described()}"

    def _described(self) -> str:
        return f"dim={self.dim}, {type(self.optimizer).__name__}, {self.groups[0].weight.dtype}"


# Torch's compiler shall not look into a look-up. This way of saying so imports it only where something is compiled.
_embedded_apart: Callable[..., Tensor] = _disable_dynamo(TableModule.embedded)


@cache
def _anchor(device: torch.device) -> Tensor:
    """What makes the backward pass call a look-up: it takes no gradient, so one does for all."""
    return torch.empty(0, device=device, requires_grad=True)
