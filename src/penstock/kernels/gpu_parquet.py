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
def _bits(words, bit, inside):
    """32 bits from any bit on; bits are counted from the first of `words`, in 32 bits, which GPUs compute with."""
    at, shift = bit >> 5, (bit & 31).to(tl.uint32)
    low = tl.load(words + at, mask=inside, other=0).to(tl.uint32, bitcast=True)
    high = tl.load(words + at + 1, mask=inside, other=0).to(tl.uint32, bitcast=True)
    return (low >> shift) | ((high << (31 - shift)) << 1)  # a shift by 32 would be none


@triton.jit
def _decode_runs(words, runs, pages, columns, out, flags, LANES: tl.constexpr):
    run = runs + tl.program_id(0).to(tl.int64) * _RUN_FIELDS
    row = tl.load(run).to(tl.int64)
    count = tl.load(run + 1)
    place = tl.load(run + 2)
    page = pages + tl.load(run + 3) * _PAGE_FIELDS
    column = tl.load(page)
    dictionary = tl.load(page + 1)
    entries = tl.load(page + 2)
    width = tl.load(page + 3)
    said = columns + column * _COLUMN_FIELDS
    size = tl.load(said + 1).to(tl.int32)
    check = tl.load(said + 2)
    low = tl.load(said + 3)
    high = tl.load(said + 4)
    out += tl.load(said) + row * size
    repeated = count < 0
    values = tl.abs(count)
    # Bytes are counted from whole words; packed runs are short, so that their bits need no more than 32 bits.
    packed = words + (place >> 2)
    first_bit = (place & 3) * 8
    entry = words + (dictionary >> 2)
    entry_bit = (dictionary & 3) * 8
    unsigned = tl.where(width >= 32, 0xFFFFFFFF, (1 << (width.to(tl.int64) & 31)) - 1).to(tl.uint32)
    wrong = tl.zeros((LANES,), tl.int32)
    for begin in range(0, values, LANES):
        i = begin + tl.arange(0, LANES)
        inside = i < values
        if dictionary >= 0:
            looked = (inside & (repeated == 0)) != 0
            code = _bits(packed, first_bit + i * width, looked) & unsigned
            code = tl.where(repeated, place.to(tl.uint32, bitcast=True), code)
            wrong |= (inside & (code >= entries.to(tl.uint32, bitcast=True))).to(tl.int32)
            # Dictionaries may be long: whole words are added to the address, and only what is left is counted in bits.
            known = tl.minimum(code, (entries - 1).to(tl.uint32, bitcast=True)).to(tl.int64) * size
            value = _bits(entry + known, tl.zeros_like(i) + entry_bit, inside)
            above = _bits(entry + known + 1, tl.zeros_like(i) + entry_bit, inside) if size == 2 else value
        else:
            value = _bits(packed, first_bit + i * size * 32, inside)
            above = _bits(packed, first_bit + i * 64 + 32, inside) if size == 2 else value
        target = out + i.to(tl.int64) * size
        word = value.to(tl.int32, bitcast=True)
        tl.store(target, word, mask=inside)
        if size == 2:
            tl.store(target + 1, above.to(tl.int32, bitcast=True), mask=inside)
            long = value.to(tl.int64) | (above.to(tl.int64) << 32)
            outside = (check == _IN_RANGE) & ((long < low) | (long > high))
            is_nan = (check == _NOT_NAN) & ((long & 0x7FFFFFFFFFFFFFFF) > _INFINITY_64)
        else:
            outside = (check == _IN_RANGE) & ((word < low.to(tl.int32)) | (word > high.to(tl.int32)))
            is_nan = (check == _NOT_NAN) & ((word & 0x7FFFFFFF) > _INFINITY_32)
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
