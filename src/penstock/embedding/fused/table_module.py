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
from torch import Tensor, nn

from penstock.core.errors import DataError, ParameterError, SchemaError
from penstock.core.params import BOOL, NONE, Int, OneOf, Real, Satisfies, check_all
from penstock.core.schema import Role, Schema
from penstock.embedding.dims import Dims, dims_of, plain_dim
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
from penstock.embedding.fused.step_rates import correct_rates
from penstock.embedding.fused.table_group import TableGroup
from penstock.embedding.fused.table_lookup import TableLookup
from penstock.embedding.module_files import load_module, save_module
from penstock.embedding.optimizers import Optimizer
from penstock.embedding.parameter_tables import EmbeddingTables
from penstock.embedding.schedules import rate_at
from penstock.kernels.fused_contract import POOLINGS, table_and_id


class TableModule(nn.Module):
    """Tables over a `RowHome`, those of one dim in one weight. Arguments are those of `FusedEmbeddings`.

    Weights and state are buffers: they are in `state_dict()` and not in `parameters()`. Tables of one dim have them as
    `weight`, `first_state` and `second_state`; those of several as `weight_32`, `weight_8`, … with their dim.

    Args:
        home: makes the home of the rows of a group of tables, given their sizes.
        sizes: rows by table, where `tables` does not say them: 0 of hashed ones, whose rows come as ids do.
    """

    weight: Tensor
    steps: Tensor
    rates: Tensor
    errors: Tensor
    unscale: Tensor
    skipped: Tensor
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
        self._taken: int | None = 0  # steps, as far as the host knows

    def _register(self, kind: torch.dtype, scale: float, device: torch.device | str | int | None) -> None:
        for group in self.groups:
            group.register(kind, scale, device)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64, device=device))
        rate = rate_at(self.optimizer.lr, 0)
        self.register_buffer("rates", torch.tensor([rate, rate, 1.0], dtype=torch.float32, device=device))
        self.register_buffer("errors", torch.zeros(1, dtype=torch.int64, device=device), persistent=False)
        self.register_buffer("unscale", torch.ones(1, dtype=torch.float32, device=device), persistent=False)
        self.register_buffer("skipped", torch.zeros(1, dtype=torch.int64, device=device), persistent=False)

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
    def dims(self) -> dict[str, int]:
        """The width of each table's embeddings."""
        return dict(self._dims)

    @property
    def is_one_dim(self) -> bool:
        """Whether all tables are as wide."""
        return len(set(self._dims.values())) == 1

    @property
    def dim(self) -> int | dict[str, int]:
        """The width of embeddings: one number where it is the same for all tables, else by table."""
        return plain_dim(self._dims)

    @property
    def embedded_width(self) -> int:
        """Columns that all embeddings take side by side."""
        return sum(self._dims.values())

    @property
    def device(self) -> torch.device:
        """Where the tables are."""
        return self.errors.device

    def width(self, num_dense: int = 0) -> int:
        """Columns of the output of "concat" with `num_dense` numbers beside the embeddings.

        Args:
            num_dense: how many.

        Returns:
            The width.
        """
        return -(-(self.embedded_width + num_dense) // self.align) * self.align

    @property
    def lr(self) -> float:
        """The rate. Setting it takes effect at the next step, in captured CUDA graphs too; reading it waits."""
        return float(self.rates[0])

    @lr.setter
    def lr(self, rate: float) -> None:
        check_all({"lr": rate}, {"lr": Real(min=0)}, type(self).__name__)
        self.rates[0].fill_(rate)

    @property
    def loss_scale(self) -> float:
        """What losses are multiplied by before `backward()`; gradients are divided by it. Reading it waits.

        It can be a tensor on the device; setting it waits for nothing, and works between replays of captured graphs.
        """
        return 1.0 / float(self.unscale)

    @loss_scale.setter
    def loss_scale(self, scale: float | Tensor) -> None:
        if isinstance(scale, Tensor):
            self.unscale.copy_(scale.detach().reshape(1).reciprocal())
        else:
            above_zero = Satisfies(lambda v: Real(min=0).accepts(v) and v > 0, "a number above 0")
            check_all({"loss_scale": scale}, {"loss_scale": above_zero}, type(self).__name__)
            self.unscale.fill_(1.0 / scale)

    @property
    def skipped_rows(self) -> int:
        """How often a row was left alone because its gradient was not finite. Waits for the GPU."""
        return int(self.skipped)

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can hold a step: a rate that is a function of the step is worked out on the host."""
        return not callable(self.optimizer.lr)

    def forward(self, ids: Any, dense: Tensor | None = None, sample_weights: Mapping[str, Any] | None = None) -> Tensor:
        """The embeddings of a batch.

        `ids` are `(B, tables)`, or `{name: column}` with `(B,)`, padded `(B, n)` or ragged `(values, offsets)` columns,
        or a packed batch with lists. `sample_weights` are `{list column: one weight a value}`; they are not trained.

        Args:
            ids: of the batch.
            dense: numbers that are written beside the embeddings.
            sample_weights: by list column, one a value.

        Returns:
            `(B, width)`, or `(B, tables, dim)`.

        Raises:
            DataError: the ids have a form that is not known.
            ParameterError: numbers were given, and the output has no place for them.
        """
        return _embedded(self, ids, dense, sample_weights)

    def embedded(self, ids: Any, dense: Tensor | None, sample_weights: Mapping[str, Any] | None) -> Tensor:
        """What `forward` returns.

        Args:
            ids: of the batch.
            dense: numbers that are written beside the embeddings.
            sample_weights: by list column, one a value.

        Returns:
            `(B, width)`, or `(B, tables, dim)`.

        Raises:
            ParameterError: numbers were given, and the output has no place for them.
        """
        self._check_dtypes()
        found = self.read(ids, sample_weights)
        if dense is not None and self.output == "stack":
            raise ParameterError('numbers can be written beside the embeddings with output="concat" only')
        if torch.is_grad_enabled():
            anchor = _anchor(self.device)
            out: Tensor = LookUpFunction.apply(anchor, dense, self, found, ids)  # type: ignore[no-untyped-call]
        else:
            out, _ = self.look_up(found, dense, training=False, given=ids)
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
        self, ids: Sequence[Ids], dense: Tensor | None, training: bool, given: Any = None
    ) -> tuple[Tensor, list[Any]]:
        """The `(B, width)` output and, for training, what `step` needs.

        Args:
            ids: of the batch, as `read` gave them.
            dense: numbers beside the embeddings.
            training: whether `step` will follow.
            given: the caller's own object.

        Returns:
            Both.
        """
        extra, embedded = 0 if dense is None else dense.shape[1], self.embedded_width
        width = self.width(extra) if self.output == "concat" else embedded
        out = torch.empty((len(ids[0].singles), width), dtype=self._output_dtype(), device=self.device)
        if dense is not None:
            out[:, embedded : embedded + extra] = dense
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
        names, sizes = schema.names, self.sizes.values()
        if len(names) != len(sizes) or (self.named and names != self.names):
            raise ParameterError(
                f"the model reads embeddings of {names}, and the tables are {self.names}; they must agree, in order"
            )
        sized = Schema([schema[name].with_(cardinality=size) for name, size in zip(names, sizes, strict=True)])
        dtype = str(self.groups[0].weight.dtype).removeprefix("torch.")
        dims = dict(zip(names, self._dims.values(), strict=True))
        arguments: dict[str, Any] = {"dim": plain_dim(dims), "pooling": self.pooling, "dtype": dtype}
        if self.schema is not None and any(owner != name for name, owner in self.owners.items()):
            arguments["share"], sized = True, self.schema  # which says what is shared
        description = {"class": "FrozenEmbeddings", "schema": sized.to_dict(), "arguments": arguments}
        state, kept = self.state_dict(), [group.key("weight") for group in self.groups]
        return description, {name: state[name].detach().cpu().contiguous() for name in kept}

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
        plain = self._plain_tables().to(self.device)
        with torch.no_grad():
            plain.weight.copy_(self.of_columns(self.weight))
        return plain

    def of_columns(self, rows: Tensor) -> Tensor:
        """Rows of tables of one dim, column by column: those that columns share come for each of them.

        Args:
            rows: of the tables.

        Returns:
            Rows of the columns, one above the other.
        """
        starts = self.groups[0].starts
        return torch.cat([rows[starts[name] : starts[name] + size] for name, size in self.sizes.items()])

    def _plain_tables(self) -> EmbeddingTables:
        """Tables as these, with weights of their own."""
        if self.schema is None:
            raise SchemaError("plain tables need a schema: build FusedEmbeddings from one")
        if not isinstance(self.dim, int):
            raise ParameterError(f"plain tables have one dim, and these have {self.dims}; save_model takes them as is")
        return EmbeddingTables(self.schema, self.dim, pooling=self.pooling)

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

    def advance(self) -> None:
        """Count the step and work out its rates, on the device."""
        self.steps.add_(1)
        if callable(self.optimizer.lr):
            taken = int(self.steps) - 1 if self._taken is None else self._taken
            self.rates[0].fill_(rate_at(self.optimizer.lr, taken))
            self._taken = taken + 1
        correct_rates(self.rule, self.rates, self.steps)

    def _load_from_state_dict(self, *arguments: Any, **named: Any) -> None:
        super()._load_from_state_dict(*arguments, **named)
        self._taken = None

    def extra_repr(self) -> str:
        """What `repr` shows of the tables.

        Returns:
            Text.
        """
        rows = sum(len(group.weight) for group in self.groups)
        return f"{len(self.names)} tables, {rows} rows, {self._described()}"

    def _described(self) -> str:
        return f"dim={self.dim}, {type(self.optimizer).__name__}, {self.groups[0].weight.dtype}"


def keep_from_compiler() -> None:
    """The compiler shall not look into a look-up. Saying so imports it, which takes seconds: so not before it must."""
    global _embedded
    if not getattr(_embedded, "_torchdynamo_disable", False):
        _embedded = torch.compiler.disable(_embedded)


_embedded: Callable[..., Tensor] = TableModule.embedded


@cache
def _anchor(device: torch.device) -> Tensor:
    """What makes the backward pass call a look-up: it takes no gradient, so one does for all."""
    return torch.empty(0, device=device, requires_grad=True)
