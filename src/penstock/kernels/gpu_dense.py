"""What lies between the products of dense layers, on a GPU: each is one kernel in the place of several small ones.

At a few thousand rows a kernel of PyTorch's takes two microseconds whatever it does, and a sum over rows ten.
"""

from __future__ import annotations

import torch
from torch import Tensor

from penstock.kernels.gpu_triton import require_triton

require_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from penstock.kernels.gpu_launch import Launch, parts  # noqa: E402

_ROWS, _COLUMNS = 32, 64  # of a tile
_STRETCHES = 64  # of rows, whose sums are added up at the end
_ONE_PROGRAM, _LOSS_ROWS = 8192, 1024


@triton.jit(do_not_specialize=["rows"])
def _relu_gradients(
    gradient, output, masked, sums, rows, columns, stretch, HAS_OUTPUT: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    begin = tl.program_id(1).to(tl.int64) * stretch
    end = tl.minimum(begin + stretch, rows)
    total = tl.zeros((COLUMNS,), tl.float32)
    for first in range(begin, end, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < end)[:, None] & (column < columns)[None, :]
        place = row[:, None] * columns + column[None, :]
        value = tl.load(gradient + place, mask=inside, other=0)
        if HAS_OUTPUT:
            value = tl.where(tl.load(output + place, mask=inside, other=0) > 0, value, 0)
            tl.store(masked + place, value, mask=inside)
        total += tl.sum(value.to(tl.float32), 0)
    tl.store(sums + tl.program_id(1) * columns + column, total, mask=column < columns)


@triton.jit(do_not_specialize=["rows"])
def _add_up(parts, sums, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.arange(0, ROWS)[:, None], tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    place = row * columns + column[None, :]
    value = tl.load(parts + place, mask=(row < rows) & (column < columns)[None, :], other=0)
    tl.store(sums + column, tl.sum(value, 0), mask=column < columns)


@triton.jit(do_not_specialize=["rows"])
def _head(x, weight, bias, out, rows, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row, k = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (k < width)[None, :]
    value = tl.load(x + row.to(tl.int64)[:, None] * width + k[None, :], mask=inside, other=0)
    products = value * tl.load(weight + k, mask=k < width, other=0)[None, :]
    tl.store(out + row, tl.sum(products, 1) + tl.load(bias), mask=row < rows)


@triton.jit(do_not_specialize=["rows"])
def _head_gradients(x, weight, gradient, to_x, parts, rows, width, stretch, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    begin = tl.program_id(0).to(tl.int64) * stretch
    end = tl.minimum(begin + stretch, rows)
    k = tl.arange(0, WIDTH)
    factors = tl.load(weight + k, mask=k < width, other=0)
    of_weight, of_bias = tl.zeros((WIDTH,), tl.float32), tl.zeros((ROWS,), tl.float32)
    for first in range(begin, end, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < end)[:, None] & (k < width)[None, :]
        place = row[:, None] * width + k[None, :]
        slope = tl.load(gradient + row, mask=row < end, other=0)
        of_weight += tl.sum(tl.load(x + place, mask=inside, other=0) * slope[:, None], 0)
        of_bias += slope
        tl.store(to_x + place, slope[:, None] * factors[None, :], mask=inside)
    target = parts + tl.program_id(0) * (width + 1)
    tl.store(target + k, of_weight, mask=k < width)
    tl.store(target + width, tl.sum(of_bias, 0))


@triton.jit(do_not_specialize=["rows"])
def _log_loss(logits, labels, gradient, sums, rows, ROWS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    x = tl.load(logits + row, mask=inside, other=0).to(tl.float32)
    y = tl.load(labels + row, mask=inside, other=0).to(tl.float32)
    # log(1 + e) for an e that may be tiny: what is lost in 1 + e is made good by the quotient.
    e = tl.exp(-tl.abs(x))
    one_more = 1.0 + e
    lost = tl.where(one_more == 1.0, 1.0, one_more - 1.0)
    log1p = tl.where(one_more == 1.0, e, tl.log(one_more) * (e / lost))
    loss = tl.maximum(x, 0.0) - x * y + log1p
    tl.store(sums + tl.program_id(0), tl.sum(tl.where(inside, loss, 0.0), 0) / rows)
    # The smaller of a probability and what it lacks to 1 has all its digits.
    probability, lack = tl.where(x >= 0, 1.0, e) / one_more, tl.where(x >= 0, e, 1.0) / one_more
    wrong = tl.where(y > 0.5, (1.0 - y) - lack, probability - y)
    tl.store(gradient + row, (wrong / rows).to(gradient.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _append_rows(scores, labels, loss, to_scores, to_labels, filled, sums, rows, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    place = tl.load(filled) + row
    score = tl.load(scores + row, mask=inside)
    tl.store(to_scores + place, score.to(to_scores.dtype.element_ty), mask=inside)
    label = tl.load(labels + row, mask=inside)
    tl.store(to_labels + place, label.to(to_labels.dtype.element_ty), mask=inside)
    if tl.program_id(0) == 0:
        tl.store(sums, tl.load(sums) + tl.load(loss).to(tl.float64) * rows)
        tl.store(sums + 1, tl.load(sums + 1) + rows)


_RELU_GRADIENTS, _ADD_UP, _LOG_LOSS = Launch(_relu_gradients), Launch(_add_up), Launch(_log_loss)
_HEAD, _HEAD_GRADIENTS, _APPEND_ROWS = Launch(_head), Launch(_head_gradients), Launch(_append_rows)


def relu_gradients(gradient: Tensor, output: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gradient where `output` is above 0, and its sums over rows.

    Args:
        gradient: `(B, n)`, contiguous.
        output: of the layer behind its ReLU, likewise; None where it has no ReLU.

    Returns:
        `(B, n)` (the gradient itself without `output`), and `(n,)`.
    """
    rows, columns = gradient.shape
    stretch, count = _stretches(rows)
    masked = gradient if output is None else gradient.new_empty(rows, columns)
    sums = gradient.new_empty(count, columns)
    arguments = gradient, gradient if output is None else output, masked, sums, rows, columns, stretch
    constants = {"HAS_OUTPUT": output is not None, "ROWS": _ROWS, "COLUMNS": _COLUMNS}
    _RELU_GRADIENTS((parts(columns, _COLUMNS), count), arguments, constants)
    return masked, _added_up(sums)


def head(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`x · w + b` of each row: a layer with one output.

    Args:
        x: `(B, n)`, contiguous.
        weight: n numbers.
        bias: one.

    Returns:
        `(B,)`.
    """
    rows, width = x.shape
    out, (size, wide) = x.new_empty(rows), _tile_of_rows(width)
    _HEAD((parts(rows, size),), (x, weight, bias, out, rows, width), {"ROWS": size, "WIDTH": wide})
    return out


def head_gradients(x: Tensor, weight: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """What reaches `x`, and the weights with the bias behind them.

    Args:
        x, weight: as above.
        gradient: `(B,)`.

    Returns:
        `(B, n)` and `(n + 1,)`.
    """
    rows, width = x.shape
    (size, wide), (stretch, count) = _tile_of_rows(width), _stretches(rows)
    to_x, sums = torch.empty_like(x), x.new_empty(count, width + 1)
    arguments = x, weight, gradient, to_x, sums, rows, width, stretch
    _HEAD_GRADIENTS((count,), arguments, {"ROWS": size, "WIDTH": wide})
    return to_x, _added_up(sums)


def _stretches(rows: int) -> tuple[int, int]:
    """Rows of a stretch, and how many stretches there are."""
    stretch = _ROWS * parts(parts(max(rows, 1), _ROWS), _STRETCHES)
    return stretch, parts(max(rows, 1), stretch)


def _tile_of_rows(width: int) -> tuple[int, int]:
    """Rows and columns of a tile that has all columns."""
    wide = triton.next_power_of_2(max(width, 16))
    return max(1, min(_ROWS, 4096 // wide)), wide


def _added_up(sums: Tensor) -> Tensor:
    rows, columns = sums.shape
    out = sums.new_empty(columns)
    constants = {"ROWS": triton.next_power_of_2(rows), "COLUMNS": _COLUMNS // 4}
    _ADD_UP((parts(columns, _COLUMNS // 4),), (sums, out, rows, columns), constants)
    return out


def log_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the cross-entropy of binary labels, and its gradient.

    `max(x, 0) - x y + log(1 + exp(-|x|))` and `(1 / (1 + exp(-x)) - y) / B`.

    Args:
        logits: `(B,)`, contiguous, at least one.
        labels: likewise.

    Returns:
        A number, and `(B,)`.
    """
    rows = len(logits)
    size = triton.next_power_of_2(rows) if rows <= _ONE_PROGRAM else _LOSS_ROWS
    gradient, count = logits.new_empty(rows), parts(rows, size)
    sums = logits.new_empty(count)
    warps = max(1, min(16, size // 256))
    _LOG_LOSS((count,), (logits, labels, gradient, sums, rows), {"ROWS": size}, warps)
    return sums[0] if count == 1 else sums.sum(), gradient


def append_rows(
    scores: Tensor, labels: Tensor, loss: Tensor, to_scores: Tensor, to_labels: Tensor, filled: Tensor, sums: Tensor
) -> None:
    """A batch behind those that wait, and its loss added up: what a `Meter` does with a step of one output.

    Args:
        scores, labels: of the batch, contiguous.
        loss: their mean.
        to_scores, to_labels: where they wait.
        filled: the place of the first, on the device; it is not moved.
        sums: of losses and of rows.
    """
    rows = len(scores)
    arguments = scores, labels, loss, to_scores, to_labels, filled, sums, rows
    _APPEND_ROWS((parts(rows, _LOSS_ROWS),), arguments, {"ROWS": _LOSS_ROWS})
