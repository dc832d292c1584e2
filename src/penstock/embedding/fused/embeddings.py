"""Embedding tables that train themselves: one look-up for all of them, and a backward pass that is the update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from penstock.core.schema import Schema
from penstock.embedding.dims import Dims
from penstock.embedding.fused.row_home import RowHome
from penstock.embedding.fused.table_module import TableModule
from penstock.embedding.optimizers import Optimizer


class FusedEmbeddings(TableModule):
    """All tables looked up at once; `loss.backward()` applies the optimizer to the rows of the batch.

    No gradient of a table is ever stored, so a step costs what the batch touches, not what the tables hold. Weights and
    state are buffers: they are in `state_dict()` and not in `parameters()`. On a GPU the work is done by Triton, on the
    CPU by numba, with the same numbers; repeated runs give the same bits. Every backward pass is a step: gradients
    cannot be accumulated over several. Where the loss was multiplied (a `GradScaler`), say by what in `loss_scale`. A
    row whose gradient is not finite is left alone and counted in `skipped_rows`; no other row suffers from it.

    Args:
        tables: a schema whose categorical columns have a cardinality, `{name: rows}`, or a list of rows.
        dim: the width of embeddings: one for all tables, `{name: dim}`, or a list. Tables of one dim lie in one weight,
            and each such weight has a look-up and an update of its own.
        optimizer: "sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam" (on the rows of the batch only), or an
            `SGD`, `Adagrad`, `LazyAdam` or `RowWiseAdam` of `penstock.embedding`.
        lr: the rate; None leaves the optimizer's own. Set `tables.lr` for a schedule.
        dtype: of the weights. bfloat16 is rounded stochastically, by a hash of row, column and step.
        output: "stack" for `(B, tables, dim)`, which needs one dim, and is what None means there; "concat" for all
            embeddings side by side, `(B, sum of dims)`, beside which `continuous` can be written.
        output_dtype: of the output; None is autocast's where that is on, else float32.
        pooling: of list columns: "sum", "mean" or "sqrt_n".
        scale: weights start uniform in ±scale.
        align: with "concat", the width is filled up with zeros to a multiple of this (tensor cores like 8 or 16).
        share: whether columns of a schema that have one vocabulary share their rows, as they do in a store.

    >>> tables = FusedEmbeddings({"user": 10, "item": 5}, dim=4, lr=0.5)
    >>> before = tables.weight.clone()
    >>> found = tables({"user": torch.tensor([3, 9]), "item": (torch.tensor([1, 2, 2]), torch.tensor([0, 1, 3]))})
    >>> found.shape
    torch.Size([2, 2, 4])
    >>> found.sum().backward()
    >>> (tables.weight != before).any(1).nonzero().flatten().tolist()
    [3, 9, 11, 12]
    >>> FusedEmbeddings({"user": 10, "item": 5}, dim={"user": 8, "item": 2})(torch.tensor([[3, 4]])).shape
    torch.Size([1, 10])
    """

    def __init__(
        self,
        tables: Schema | Mapping[str, int] | Sequence[int],
        dim: Dims = 16,
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
    ) -> None:
        super().__init__(
            tables, dim, lambda _: RowHome(), optimizer=optimizer, lr=lr, dtype=dtype, output=output,
            output_dtype=output_dtype, pooling=pooling, scale=scale, align=align, device=device, share=share,
        )  # fmt: skip
