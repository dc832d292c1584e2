"""Embedding tables that train themselves: one look-up for all of them, and a backward pass that is the update."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from penstock.core.errors import DataError, ParameterError, SchemaError
from penstock.core.params import NONE, Int, OneOf, Real, Satisfies, check_all
from penstock.core.schema import Role, Schema
from penstock.embedding.fused.ids import Ids, read_ids
from penstock.embedding.fused.settings import WEIGHT_DTYPES, table_optimizer, table_sizes, update_rule, weight_dtype
from penstock.embedding.optimizers import Optimizer
from penstock.embedding.parameter_tables import EmbeddingTables
from penstock.embedding.schedules import rate_at
from penstock.embedding.slots import DIM
from penstock.kernels.reference_fused import POOLINGS


class FusedEmbeddings(nn.Module):
    """All tables in one weight, looked up at once; `loss.backward()` applies the optimizer to the rows of the batch.

    No gradient of a table is ever stored, so a step costs what the batch touches, not what the tables hold. Weights and
    state are buffers: they are in `state_dict()` and not in `parameters()`. On a GPU the work is done by Triton, on the
    CPU by numba, with the same numbers; repeated runs give the same bits. Every backward pass is a step: gradients
    cannot be accumulated over several. Where the loss was multiplied (a `GradScaler`), say by what in `loss_scale`. A
    row whose gradient is not finite is left alone and counted in `skipped_rows`; no other row suffers from it.

    Args:
        tables: a schema whose categorical columns have a cardinality, `{name: rows}`, or a list of rows.
        optimizer: "sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam" (on the rows of the batch only), or an
            `SGD`, `Adagrad`, `LazyAdam` or `RowWiseAdam` of `penstock.embedding`.
        lr: the rate; None leaves the optimizer's own. Set `tables.lr` for a schedule.
        dtype: of the weights. bfloat16 is rounded stochastically, by a hash of row, column and step.
        output: "stack" for `(B, tables, dim)`, "concat" for `(B, tables · dim)`, beside which `dense` can be written.
        output_dtype: of the output; None is autocast's where that is on, else float32.
        pooling: of list columns: "sum", "mean" or "sqrt_n".
        scale: weights start uniform in ±scale.
        align: with "concat", the width is filled up with zeros to a multiple of this (tensor cores like 8 or 16).

    >>> tables = FusedEmbeddings({"user": 10, "item": 5}, dim=4, lr=0.5)
    >>> before = tables.weight.clone()
    >>> found = tables({"user": torch.tensor([3, 9]), "item": (torch.tensor([1, 2, 2]), torch.tensor([0, 1, 3]))})
    >>> found.shape
    torch.Size([2, 2, 4])
    >>> found.sum().backward()
    >>> (tables.weight != before).any(1).nonzero().flatten().tolist()
    [3, 9, 11, 12]
    """

    weight: Tensor
    steps: Tensor
    rates: Tensor
    errors: Tensor
    unscale: Tensor
    skipped: Tensor

    def __init__(
        self,
        tables: Schema | Mapping[str, int] | Sequence[int],
        dim: int = 16,
        *,
        optimizer: str | Optimizer = "rowwise_adagrad",
        lr: float | None = None,
        dtype: str | torch.dtype = "float32",
        output: str = "stack",
        output_dtype: str | torch.dtype | None = None,
        pooling: str = "sum",
        scale: float = 0.01,
        align: int = 1,
        device: Any = None,
    ) -> None:
        super().__init__()
        self._keep_from_compiler()
        given = {"dim": dim, "output": output, "pooling": pooling, "scale": scale, "align": align, "lr": lr}
        constraints = {"dim": DIM, "output": OneOf(("stack", "concat")), "pooling": OneOf(tuple(POOLINGS)),
                       "scale": Real(min=0), "align": Int(min=1), "lr": NONE | Real(min=0)}  # fmt: skip
        check_all(given, constraints, "FusedEmbeddings")
        self.schema = tables.select(roles=Role.CATEGORICAL) if isinstance(tables, Schema) else None
        self.sizes = table_sizes(tables)
        self.named = isinstance(tables, (Schema, Mapping))  # else tables go by their order alone
        self.names, self.dim, self.pooling, self.output, self.align = list(self.sizes), dim, pooling, output, align
        self.output_dtype = None if output_dtype is None else weight_dtype("output_dtype", output_dtype)
        self.optimizer = table_optimizer(optimizer, lr)
        self.rule = update_rule(self.optimizer)
        total = self._rows_on_device()
        kind = weight_dtype("dtype", dtype)
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
        self._features: dict[Any, Tensor] = {}
        self._taken: int | None = 0  # steps, as far as the host knows
        self._side: Any = None  # the stream on which ids are sorted
        self._sorting = False  # whether it may still be at it

    def _keep_from_compiler(self) -> None:
        """It shall not look into `forward`. Saying so imports it, which takes seconds: so not before it must."""
        if not getattr(FusedEmbeddings.forward, "_torchdynamo_disable", False):
            FusedEmbeddings.forward = torch.compiler.disable(FusedEmbeddings.forward)  # type: ignore[method-assign]

    def _rows_on_device(self) -> int:
        """Rows of the weight."""
        return sum(self.sizes.values())

    def width(self, num_dense: int = 0) -> int:
        """Columns of the output of "concat" with `num_dense` numbers beside the embeddings."""
        return -(-(len(self.names) * self.dim + num_dense) // self.align) * self.align

    @property
    def lr(self) -> float:
        """The rate. Setting it takes effect at the next step, in captured CUDA graphs too; reading it waits."""
        return float(self.rates[0])

    @lr.setter
    def lr(self, rate: float) -> None:
        check_all({"lr": rate}, {"lr": Real(min=0)}, "FusedEmbeddings")
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
            check_all({"loss_scale": scale}, {"loss_scale": above_zero}, "FusedEmbeddings")
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
        """
        self._check_dtypes()
        found = read_ids(ids, self.names, self.weight.device, sample_weights)
        if dense is not None and self.output == "stack":
            raise ParameterError('numbers can be written beside the embeddings with output="concat" only')
        if torch.is_grad_enabled():
            anchor = torch.empty(0, device=self.weight.device, requires_grad=True)  # makes backward call us
            out = _LookUp.apply(anchor, dense, self, found)
        else:
            out, _ = self.look_up(found, dense, training=False)
        return out.view(len(out), len(self.names), self.dim) if self.output == "stack" else out

    def check_ids(self) -> None:
        """Raise `DataError` if any id since the last call lay outside its table. Waits for the GPU.

        Such an id gives zeros and is not trained. On the CPU `forward` calls this itself.
        """
        code = int(self.errors)
        if not code:
            return
        self.errors.zero_()
        number, identity = (code >> 40) - 1, code & ((1 << 40) - 1)
        identity = identity - (1 << 40) if identity >= 1 << 39 else identity
        table = self.names[number]
        raise DataError(
            f"id {identity} is outside table {table!r}, which has rows 0 to {self.sizes[table] - 1}; encode the "
            f"column with the workflow the tables were made for, or make the table larger"
        )

    def look_up(self, ids: Ids, dense: Tensor | None, training: bool) -> tuple[Tensor, Any]:
        """The `(B, width)` output and, for training, what `step` needs: sorted keys, and the bags' sources."""
        device, rows = self.weight.device, len(ids.singles)
        extra = 0 if dense is None else dense.shape[1]
        width = self.width(extra) if self.output == "concat" else len(self.names) * self.dim
        out = torch.empty((rows, width), dtype=self._output_dtype(), device=device)
        embedded = len(self.names) * self.dim
        if dense is not None:
            out[:, embedded : embedded + extra] = dense
        if embedded + extra < width:
            out[:, embedded + extra :] = 0
        saved = None
        if training:
            values = 0 if ids.lists is None else len(ids.lists[0])
            keys = self._empty_keys(ids.num_occurrences)
            sources = torch.empty(values, dtype=torch.int32, device=device)
            saved = keys, sources, torch.empty(values, dtype=torch.float32, device=device)
            keys[ids.singles.numel() :] = len(self.weight)  # values that no bag claims
        self._kernels.look_up(
            self.weight, self._places(ids.bags), ids.singles, ids.lists, self.pooling, out, self.errors, saved
        )
        if device.type == "cpu" and not _interpreted():
            self.check_ids()
        return out, None if saved is None else (self._sorted(saved[0]), saved[1:])

    def step(self, ids: Ids, saved: Any, gradient: Tensor) -> None:
        """Apply the optimizer for a gradient of `look_up`'s output."""
        self._advance()
        in_order, bags = saved
        if self._side is not None and self.weight.device.type == "cuda":  # it may have moved since
            torch.cuda.current_stream(self.weight.device).wait_stream(self._side)
            self._sorting = False
        self._kernels.update(
            self.rule, self.weight, (self.first_state, self.second_state), self._places(ids.bags), in_order,
            bags if ids.bags else None, gradient, ids.singles.shape[1], self.rates, self.steps, self.unscale,
            self.skipped,
        )  # fmt: skip

    def tables(self) -> EmbeddingTables:
        """Plain tables with these weights, as serving takes them; needs a schema."""
        if self.schema is None:
            raise SchemaError("plain tables need a schema: build FusedEmbeddings from one")
        plain = EmbeddingTables(self.schema, self.dim, pooling=self.pooling).to(self.weight.device)
        with torch.no_grad():
            plain.weight.copy_(self.weight)
        return plain

    @property
    def _kernels(self) -> Any:
        if self.weight.device.type == "cuda" or _interpreted():
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
        return self._table_places(bags)

    def _joint_places(self, bags: tuple[int, ...]) -> Tensor:
        """`_table_places` for ids that are rows of the weight already: every feature reads it as one table."""
        key = bags, self.weight.device, "joint"
        if key not in self._features:
            places = self._table_places(bags).clone()
            places[:, 0], places[:, 1] = 0, len(self.weight)
            self._features[key] = places
        return self._features[key]

    def _table_places(self, bags: tuple[int, ...]) -> Tensor:
        """`reference_fused`'s features for a batch in which these features are bags; made once for each such set."""
        key = bags, self.weight.device
        if key not in self._features:
            sizes = torch.tensor(list(self.sizes.values()), dtype=torch.int64)
            every = torch.stack([sizes.cumsum(0) - sizes, sizes, torch.arange(len(sizes))], 1)
            order = [i for i in range(len(sizes)) if i not in bags] + list(bags)
            self._features[key] = every[order].contiguous().to(self.weight.device)
        return self._features[key]

    def _empty_keys(self, count: int) -> Tensor:
        """Room for a batch's keys, in the memory of the stream that sorts them: free as soon as that is done."""
        device = self.weight.device
        if device.type != "cuda":
            return torch.empty(count, dtype=self._key_dtype, device=device)
        main = torch.cuda.current_stream(device)
        if self._side is None:
            self._side = torch.cuda.Stream(device)
        if self._sorting:  # a look-up that had no backward pass: its keys may still be read
            main.wait_stream(self._side)
        self._side.wait_stream(main)  # part of a capture, if there is one, before it allocates
        with torch.cuda.stream(self._side):
            return torch.empty(count, dtype=self._key_dtype, device=device)

    def _sorted(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Sort beside the dense model's work: nothing needs the order before the backward pass.

        The memory is the side stream's own. It is handed out again only to a later batch, whose sort waits for all that
        the main stream has done by then, and the main stream has waited for this one (`step`).
        """
        if keys.device.type != "cuda":
            return self._kernels.sort(keys)
        self._side.wait_stream(torch.cuda.current_stream(keys.device))
        self._sorting = True
        with torch.cuda.stream(self._side):
            return self._kernels.sort(keys)

    def _advance(self) -> None:
        """Count the step and work out its rates, on the device."""
        self.steps += 1
        if callable(self.optimizer.lr):
            taken = int(self.steps) - 1 if self._taken is None else self._taken
            self.rates[0].fill_(rate_at(self.optimizer.lr, taken))
            self._taken = taken + 1
        if self.rule.kind not in ("lazy_adam", "row_adam"):
            return
        number = self.steps.double()
        first, second = 1 - self.rule.beta1**number, 1 - self.rule.beta2**number
        if self.rule.kind == "lazy_adam":
            self.rates[1] = self.rates[0] * (second.sqrt() / first)
        else:
            self.rates[1] = self.rates[0] / first
            self.rates[2] = second.rsqrt()

    def _load_from_state_dict(self, *arguments: Any, **named: Any) -> None:
        super()._load_from_state_dict(*arguments, **named)
        self._taken = None

    def extra_repr(self) -> str:
        name = type(self.optimizer).__name__
        return f"{len(self.names)} tables, {len(self.weight)} rows, dim={self.dim}, {name}, {self.weight.dtype}"


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, dense: Tensor | None, tables: FusedEmbeddings, ids: Ids) -> Tensor:
        out, ctx.saved = tables.look_up(ids, dense, training=True)
        ctx.tables, ctx.ids = tables, ids
        ctx.dense = None if dense is None else (dense.shape[1], dense.dtype)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        tables = ctx.tables
        with torch.no_grad():
            tables.step(ctx.ids, ctx.saved, gradient)
            of_dense = None
            if ctx.dense is not None and ctx.needs_input_grad[1]:
                begin = len(tables.names) * tables.dim
                of_dense = gradient[:, begin : begin + ctx.dense[0]].to(ctx.dense[1])
        return None, of_dense, None, None


def _interpreted() -> bool:
    """Whether Triton kernels run on the CPU, for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"
