"""One module over fused tables: all weights in one tensor, one look-up, a backward pass that is the update.

Where a row is in the weight is the business of its `RowHome`; `FusedEmbeddings`, `CachedEmbeddings` and
`FrozenEmbeddings` are this module over three of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from penstock.core.errors import DataError, ParameterError, SchemaError
from penstock.core.params import NONE, Int, OneOf, Real, Satisfies, check_all
from penstock.core.schema import Role, Schema
from penstock.embedding.fused.feature_places import FeaturePlaces
from penstock.embedding.fused.ids import Ids, read_ids
from penstock.embedding.fused.key_sorter import KeySorter
from penstock.embedding.fused.look_up_function import LookUpFunction
from penstock.embedding.fused.replayed_update import Claim, ReplayedUpdates
from penstock.embedding.fused.row_home import RowHome
from penstock.embedding.fused.settings import WEIGHT_DTYPES, table_optimizer, table_sizes, update_rule, weight_dtype
from penstock.embedding.fused.step_rates import correct_rates
from penstock.embedding.fused.table_lookup import TableLookup
from penstock.embedding.module_files import load_module, save_module
from penstock.embedding.optimizers import Optimizer
from penstock.embedding.parameter_tables import EmbeddingTables
from penstock.embedding.schedules import rate_at
from penstock.embedding.slots import DIM
from penstock.kernels.fused_contract import POOLINGS, table_and_id


class TableModule(nn.Module):
    """Tables in one weight over a `RowHome`. Arguments are those of `FusedEmbeddings`.

    Weights and state are buffers: they are in `state_dict()` and not in `parameters()`.
    """

    weight: Tensor
    first_state: Tensor | None
    second_state: Tensor | None
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
        dim: int,
        home: RowHome,
        *,
        optimizer: str | Optimizer = "rowwise_adagrad",
        lr: float | None = None,
        dtype: str | torch.dtype = "float32",
        output: str = "stack",
        output_dtype: str | torch.dtype | None = None,
        pooling: str = "sum",
        scale: float = 0.01,
        align: int = 1,
        device: torch.device | str | int | None = None,
    ) -> None:
        super().__init__()
        given = {"dim": dim, "output": output, "pooling": pooling, "scale": scale, "align": align, "lr": lr}
        constraints = {"dim": DIM, "output": OneOf(("stack", "concat")), "pooling": OneOf(tuple(POOLINGS)),
                       "scale": Real(min=0), "align": Int(min=1), "lr": NONE | Real(min=0)}  # fmt: skip
        check_all(given, constraints, type(self).__name__)
        self.schema = tables.select(roles=Role.CATEGORICAL) if isinstance(tables, Schema) else None
        self.sizes = table_sizes(tables)
        self.named = isinstance(tables, (Schema, Mapping))  # else tables go by their order alone
        self.names, self.dim, self.pooling, self.output, self.align = list(self.sizes), dim, pooling, output, align
        self.output_dtype = None if output_dtype is None else weight_dtype("output_dtype", output_dtype)
        self.optimizer = table_optimizer(optimizer, lr)
        self.rule = update_rule(self.optimizer)
        self.home, self._sorter, self._replayed = home, KeySorter(), ReplayedUpdates()
        self._register(home.rows_on_device(self.num_rows), weight_dtype("dtype", dtype), scale, device)
        self._features = FeaturePlaces(list(self.sizes.values()))
        self._taken: int | None = 0  # steps, as far as the host knows

    def _register(self, total: int, kind: torch.dtype, scale: float, device: Any) -> None:
        dim = self.dim
        self.register_buffer("weight", torch.empty((total, dim), device=device).uniform_(-scale, scale).to(kind))
        start = getattr(self.optimizer, "initial_accumulator", 0.0)
        for name, shape in zip(("first_state", "second_state"), self.rule.states(dim), strict=True):
            state = None if shape is None else torch.full((total, *shape), start, dtype=torch.float32, device=device)
            self.register_buffer(name, state)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64, device=device))
        rate = rate_at(self.optimizer.lr, 0)
        self.register_buffer("rates", torch.tensor([rate, rate, 1.0], dtype=torch.float32, device=device))
        self.register_buffer("errors", torch.zeros(1, dtype=torch.int64, device=device), persistent=False)
        self.register_buffer("unscale", torch.ones(1, dtype=torch.float32, device=device), persistent=False)
        self.register_buffer("skipped", torch.zeros(1, dtype=torch.int64, device=device), persistent=False)

    @property
    def num_rows(self) -> int:
        """Rows of all tables."""
        return sum(self.sizes.values())

    @property
    def dims(self) -> dict[str, int]:
        """The width of each table's embeddings."""
        return dict.fromkeys(self.names, self.dim)

    def width(self, num_dense: int = 0) -> int:
        """Columns of the output of "concat" with `num_dense` numbers beside the embeddings.

        Args:
            num_dense: how many.

        Returns:
            The width.
        """
        return -(-(len(self.names) * self.dim + num_dense) // self.align) * self.align

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
        found = read_ids(ids, self.names, self.weight.device, sample_weights)
        if dense is not None and self.output == "stack":
            raise ParameterError('numbers can be written beside the embeddings with output="concat" only')
        if torch.is_grad_enabled():
            anchor = _anchor(self.weight.device)
            out: Tensor = LookUpFunction.apply(anchor, dense, self, found, ids)  # type: ignore[no-untyped-call]
        else:
            out, _ = self.look_up(found, dense, training=False, given=ids)
        return out.view(len(out), len(self.names), self.dim) if self.output == "stack" else out

    def check_ids(self) -> None:
        """Raise `DataError` if any id since the last call lay outside its table. Waits for the GPU.

        Such an id gives zeros and is not trained. On the CPU `forward` calls this itself.

        Raises:
            DataError: there was one; its table is named.
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

    def look_up(self, ids: Ids, dense: Tensor | None, training: bool, given: Any = None) -> tuple[Tensor, Any]:
        """The `(B, width)` output and, for training, what `step` needs.

        Args:
            ids: of the batch, read.
            dense: numbers beside the embeddings.
            training: whether `step` will follow.
            given: the caller's own object.

        Returns:
            Both.
        """
        located, token = self.home.locate(self, ids, given, training)
        out, saved = self._look_up_rows(located, dense, training)
        self.home.looked_up(self, token, training)
        return out, (saved, token)

    def _look_up_rows(self, ids: Ids, dense: Tensor | None, training: bool) -> tuple[Tensor, Any]:
        """The output and, for training, sorted keys and the bags' sources."""
        device, rows = self.weight.device, len(ids.singles)
        extra = 0 if dense is None else dense.shape[1]
        width = self.width(extra) if self.output == "concat" else len(self.names) * self.dim
        out = torch.empty((rows, width), dtype=self._output_dtype(), device=device)
        embedded = len(self.names) * self.dim
        if dense is not None:
            out[:, embedded : embedded + extra] = dense
        if embedded + extra < width:
            out[:, embedded + extra :] = 0
        saved = claim = None
        if training:
            claim = self._claim(ids, out)
            saved = self._room_for_update(ids, claim)
        self._kernels.look_up(
            self.weight, self._places(ids.bags), ids.singles, ids.lists, self.pooling, out, self.errors, saved
        )
        if device.type == "cpu" and not interpreted():
            self.check_ids()
        if saved is None:
            return out, None
        return out, (claim or self._sorter.sorted(self._kernels, saved[0]), saved[1:])

    def _claim(self, ids: Ids, out: Tensor) -> Claim | None:
        """Room for an update that is replayed: for plain ids of rows that have their places."""
        if ids.lists is not None or self.home.joint or not self.capturable:
            return None
        memory = (self.weight, self.first_state, self.second_state, self.rates)
        return self._replayed.claim(ids.num_occurrences, self._key_dtype, out, memory)

    def _room_for_update(self, ids: Ids, claim: Claim | None) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, and of lists the sources and scales, for the look-up to fill."""
        device = self.weight.device
        if claim is not None:
            return claim.room.keys, _empty(torch.int32, device), _empty(torch.float32, device)
        keys = self._sorter.empty(ids.num_occurrences, self._key_dtype, device)
        if ids.lists is None:
            return keys, _empty(torch.int32, device), _empty(torch.float32, device)
        keys[ids.singles.numel() :] = len(self.weight)  # those that no bag claims
        values = len(ids.lists[0])
        sources = torch.empty(values, dtype=torch.int32, device=device)
        # Kernels of a GPU leave scales out where all are one.
        plain = device.type == "cuda" and self.pooling == "sum" and ids.lists[2] is None
        return keys, sources, torch.empty(0 if plain else values, dtype=torch.float32, device=device)

    def step(self, ids: Ids, saved: Any, gradient: Tensor) -> None:
        """Apply the optimizer for a gradient of `look_up`'s output.

        Args:
            ids: of the batch, read.
            saved: what `look_up` gave.
            gradient: of its output.
        """
        (in_order, bags), token = saved
        self.home.before_step(token)
        if isinstance(in_order, Claim):
            in_order.room.check(in_order)
            in_order.done, keys = True, in_order.room.keys
            in_order.room.update(gradient, lambda given: self._update(ids, self._kernels.sort(keys), None, given))
            return
        self._sorter.wait(self.weight.device)
        self._update(ids, in_order, bags if ids.bags else None, gradient)

    def _update(self, ids: Ids, in_order: Any, bags: Any, gradient: Tensor) -> None:
        self._advance()
        self._kernels.update(
            self.rule, self.weight, (self.first_state, self.second_state), self._places(ids.bags), in_order, bags,
            gradient, ids.singles.shape[1], self.rates, self.steps, self.unscale, self.skipped,
        )  # fmt: skip

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
        dtype = str(self.weight.dtype).removeprefix("torch.")
        arguments = {"dim": self.dim, "pooling": self.pooling, "dtype": dtype}
        description = {"class": "FrozenEmbeddings", "schema": sized.to_dict(), "arguments": arguments}
        return description, {"weight": self.state_dict()["weight"].detach().cpu().contiguous()}

    # The protocol `Embeddings`, by hand.

    def lookup(self, batch: Mapping[str, Any], train: bool = True) -> TableLookup:
        """Embeddings by column, for `update`. A module that is called (`tables(ids)`) needs neither."""
        self._check_dtypes()
        with torch.no_grad():
            ids = read_ids(batch, self.names, self.weight.device)
            out, saved = self.look_up(ids, None, training=train, given=batch)
        return TableLookup(self.names, out[:, : len(self.names) * self.dim], ids, saved if train else None)

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
        states = (self.weight, self.first_state, self.second_state)
        held = sum(t.numel() * t.element_size() for t in states if t is not None)
        return {"rows": self.num_rows, "bytes": held, "steps": int(self.steps), "skipped_rows": self.skipped_rows}

    def close(self) -> None:
        """Nothing is held open."""

    def tables(self) -> EmbeddingTables:
        """Plain tables with these weights, as serving takes them; needs a schema.

        Returns:
            The tables.

        Raises:
            SchemaError: there is no schema.
        """
        if self.schema is None:
            raise SchemaError("plain tables need a schema: build FusedEmbeddings from one")
        plain = EmbeddingTables(self.schema, self.dim, pooling=self.pooling).to(self.weight.device)
        with torch.no_grad():
            plain.weight.copy_(self.weight)
        return plain

    @property
    def _kernels(self) -> Any:
        if self.weight.device.type == "cuda" or interpreted():
            from penstock.kernels import gpu_embedding

            return gpu_embedding
        from penstock.embedding.fused import cpu_kernels

        return cpu_kernels

    def _check_dtypes(self) -> None:
        """`module.half()` and its like convert weights and state, too; the kernels take them as they were made."""
        if self.weight.dtype not in WEIGHT_DTYPES or self.rates.dtype != torch.float32:
            raise ParameterError(
                f"the kernels of FusedEmbeddings take weights in float32 or bfloat16 and state in float32, and these "
                f"are {self.weight.dtype} and {self.rates.dtype} now; give dtype= when you make them, and move them "
                f"with .to(device) alone"
            )

    @property
    def _key_dtype(self) -> torch.dtype:
        return torch.int32 if len(self.weight) < 2**31 - 1 else torch.int64

    def _output_dtype(self) -> torch.dtype:
        if self.output_dtype is not None:
            return self.output_dtype
        kind = self.weight.device.type
        if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.bfloat16:
            return torch.bfloat16
        return torch.float32

    def _places(self, bags: tuple[int, ...]) -> Tensor:
        """What the kernels read the weight by."""
        if self.home.joint:
            return self._features.joint(bags, self.weight.device, len(self.weight))
        return self.table_places(bags)

    def table_places(self, bags: tuple[int, ...]) -> Tensor:
        """`fused_contract`'s features for a batch in which these features are bags.

        Args:
            bags: the features that are lists.

        Returns:
            A tensor on the device.
        """
        return self._features.tables(bags, self.weight.device)

    def _advance(self) -> None:
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
        name = type(self.optimizer).__name__
        return f"{len(self.names)} tables, {len(self.weight)} rows, dim={self.dim}, {name}, {self.weight.dtype}"


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


@cache
def _empty(kind: torch.dtype, device: torch.device) -> Tensor:
    """Nothing, for arguments that are not read."""
    return torch.empty(0, dtype=kind, device=device)


def interpreted() -> bool:
    """Whether Triton kernels run on the CPU, for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"
