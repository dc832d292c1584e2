"""A look-up as a node of torch's graph, whose backward pass is the update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from penstock.embedding.fused.ids import Ids

if TYPE_CHECKING:
    from penstock.embedding.fused.table_module import TableModule


class LookUpFunction(torch.autograd.Function):
    """Gives the output of `TableModule.look_up`; its gradient goes to `TableModule.step`, that of `continuous` on."""

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, continuous: Tensor | None, tables: TableModule, ids: Sequence[Ids], given: Any
    ) -> Tensor:
        out, ctx.saved = tables.look_up(ids, continuous, training=True, given=given)
        ctx.tables, ctx.ids = tables, ids
        ctx.continuous = None if continuous is None else (continuous.shape[1], continuous.dtype)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        tables = ctx.tables
        with torch.no_grad():
            tables.step(ctx.ids, ctx.saved, gradient)
            of_continuous = None
            if ctx.continuous is not None and ctx.needs_input_grad[1]:
                begin = tables.embedded_width
                of_continuous = gradient[:, begin : begin + ctx.continuous[0]].to(ctx.continuous[1])
        return None, of_continuous, None, None, None
