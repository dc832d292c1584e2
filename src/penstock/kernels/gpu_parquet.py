"""The values of parquet pages decoded on a GPU, from the runs that the host has found (`parquet_runs_contract`).

One program decodes one run. Everything in a page lies at some bit of the buffer: a plain number, a packed code, an
entry of a dictionary. So there is one way to read: two words of 32 bits, shifted. Codes are held against their
dictionary, and values against what their column may hold; columns in which one fails are flagged, and the host looks
closer.
"""

from __future__ import annotations

from torch import Tensor

from penstock.kernels.gpu_triton import require_triton

require_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from penstock.kernels import parquet_runs_contract as contract  # noqa: E402
from penstock.kernels.gpu_launch import Launch  # noqa: E402

_RUN_FIELDS, _PAGE_FIELDS = tl.constexpr(contract.RUN_FIELDS), tl.constexpr(contract.PAGE_FIELDS)
_COLUMN_FIELDS = tl.constexpr(contract.COLUMN_FIELDS)
_IN_RANGE, _NOT_NAN = tl.constexpr(contract.IN_RANGE), tl.constexpr(contract.NOT_NAN)
_INFINITY_32, _INFINITY_64 = tl.constexpr(0x7F800000), tl.constexpr(0x7FF0000000000000)
_LANES, _WARPS = 512, 4


@triton.jit
def _bits(words, bit, mask, inside):
    """Up to 32 bits from any bit of the buffer on."""
    at = bit >> 5
    low = tl.load(words + at, mask=inside, other=0).to(tl.int64) & 0xFFFFFFFF
    high = tl.load(words + at + 1, mask=inside, other=0).to(tl.int64)
    return ((low | (high << 32)) >> (bit & 31)) & mask


@triton.jit
def _decode_runs(words, runs, pages, columns, out, flags, LANES: tl.constexpr):
    run = runs + tl.program_id(0).to(tl.int64) * _RUN_FIELDS
    row = tl.load(run).to(tl.int64)
    count = tl.load(run + 1)
    place = tl.load(run + 2).to(tl.int64)
    page = pages + tl.load(run + 3) * _PAGE_FIELDS
    column = tl.load(page)
    dictionary = tl.load(page + 1).to(tl.int64)
    entries = tl.load(page + 2).to(tl.int64)
    width = tl.load(page + 3).to(tl.int64)
    said = columns + column * _COLUMN_FIELDS
    base = tl.load(said)
    size = tl.load(said + 1)
    check = tl.load(said + 2)
    low = tl.load(said + 3)
    high = tl.load(said + 4)
    repeated = count < 0
    values = tl.abs(count)
    wrong = tl.zeros((LANES,), tl.int32)
    for begin in range(0, values, LANES):
        lane = begin + tl.arange(0, LANES)
        inside = lane < values
        i = lane.to(tl.int64)
        bit = place * 8 + i * size * 32
        if dictionary >= 0:
            packed = (inside & (repeated == 0)) != 0
            code = tl.where(repeated, place, _bits(words, place * 8 + i * width, (1 << width) - 1, packed))
            wrong |= (inside & (code >= entries)).to(tl.int32)
            bit = dictionary * 8 + tl.minimum(code, entries - 1) * size * 32
        first = _bits(words, bit, 0xFFFFFFFF, inside)
        target = out + base + (row + i) * size
        tl.store(target, first.to(tl.int32), mask=inside)
        value = first.to(tl.int32).to(tl.int64)
        infinity = tl.full((), _INFINITY_32, tl.int64)
        magnitude = first & 0x7FFFFFFF
        if size == 2:
            second = _bits(words, bit + 32, 0xFFFFFFFF, inside)
            tl.store(target + 1, second.to(tl.int32), mask=inside)
            value = first | (second << 32)
            infinity = tl.full((), _INFINITY_64, tl.int64)
            magnitude = value & 0x7FFFFFFFFFFFFFFF
        outside = (check == _IN_RANGE) & ((value < low) | (value > high))
        is_nan = (check == _NOT_NAN) & (magnitude > infinity)
        wrong |= (inside & (outside | is_nan)).to(tl.int32)
    if tl.max(wrong, 0) > 0:
        tl.atomic_max(flags + column, 1)


_DECODE_RUNS = Launch(_decode_runs)


def decode_runs(words: Tensor, runs: Tensor, pages: Tensor, columns: Tensor, out: Tensor, flags: Tensor) -> None:
    """Fill `out` and flag the columns that have a code or a value that cannot be right.

    Args:
        words: the bytes of the pages as 32-bit integers, with two to spare behind them.
        runs: `(runs, 4)`, 32-bit.
        pages: `(pages, 4)`, 32-bit.
        columns: `(columns, 5)`, 64-bit.
        out: words of 32 bits; each column's begin at its base.
        flags: one a column, 32-bit, zeros before.
    """
    if len(runs):
        _DECODE_RUNS((len(runs),), (words, runs, pages, columns, out, flags), {"LANES": _LANES}, _WARPS)
