"""Rows of a chunk's columns in a new order and in their delivered dtype, on a GPU: one kernel for all columns.

Programs of one column follow one another, so that what is read at random stays in the device's cache.
"""

from __future__ import annotations

from torch import Tensor

from penstock.kernels.gpu_triton import require_triton

require_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from penstock.kernels.gpu_launch import Launch, parts  # noqa: E402

_ROWS, _WARPS = 1024, 4


# Rows that are carried over from the chunk before shift the place of the others: no form for each shift.
@triton.jit(
    do_not_specialize=["rows", "source_stride", "out_stride"],
    do_not_specialize_on_alignment=["source", "order", "out"],
)
def _gather_columns(source, order, out, rows, source_stride, out_stride, ROWS: tl.constexpr):
    column = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    pick = tl.load(order + row, mask=inside, other=0)
    value = tl.load(source + column * source_stride + pick, mask=inside, other=0)
    tl.store(out + column * out_stride + row, value.to(out.dtype.element_ty), mask=inside)


_GATHER_COLUMNS = Launch(_gather_columns)


def gather_columns(source: Tensor, order: Tensor, out: Tensor) -> None:
    """`out[c, i] = source[c, order[i]]`, cast to the dtype of `out`.

    Args:
        source: `(columns, rows)`, the values of a column side by side.
        order: 32-bit row numbers.
        out: `(columns, rows)` likewise, on the same device.
    """
    columns, rows = out.shape
    if columns and rows:
        arguments = (source, order, out, rows, source.stride(0), out.stride(0))
        _GATHER_COLUMNS((parts(rows, _ROWS), columns), arguments, {"ROWS": _ROWS}, _WARPS)
