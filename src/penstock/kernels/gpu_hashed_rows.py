"""New rows of hashed tables on a GPU: numbered in the order of their ids in the batch, and given their first values.

Five launches a step, all told with the search, of which three find nothing to do where no id is new. The numbers are a
prefix sum over the occurrences that came first, so they are the same whatever the order of the programs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from penstock.kernels.gpu_triton import require_triton

require_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from penstock.kernels import hashed_contract as contract  # noqa: E402
from penstock.kernels.gpu_launch import Launch, parts  # noqa: E402

BLOCK = 1024
_PROGRAMS = 1024  # at most; each goes through several blocks
_ELEMENTS = 4096  # of weights that a program starts at a time
_USED, _FREE, _CLOCK = (tl.constexpr(n) for n in (contract.USED, contract.FREE, contract.CLOCK))
_PENDING, _NEW, _BY_TABLE = (tl.constexpr(n) for n in (contract.PENDING, contract.NEW, contract.BY_TABLE))
_CLAIMS, _NO_ROW = tl.constexpr(contract.CLAIMS), tl.constexpr(contract.NO_ROW)
_VECTOR, _NUMBER = tl.constexpr(contract.VECTOR), tl.constexpr(contract.NUMBER)
_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)


@triton.jit
def mix(key):
    """`cpu_half.mix`, of uint64."""
    key ^= key >> 32
    key *= 0xD6E8FEB86659FD93
    key ^= key >> 32
    key *= 0xD6E8FEB86659FD93
    return key ^ (key >> 32)


@triton.jit
def _first(block, out, index, num, SIZE: tl.constexpr):
    """The occurrences of a block, the entries of those without a row, and which of them came first."""
    k = tl.arange(0, SIZE).to(tl.int64) + block * SIZE
    entry = -2 - tl.load(out + k, mask=k < num, other=0).to(tl.int64)
    value = tl.load(index + 2 * entry + 1, mask=entry >= 0, other=_NO_ROW)
    return k, entry, (entry >= 0) & (value == k + _CLAIMS)


@triton.jit
def _count(out, index, counters, counts, waiting, num, SIZE: tl.constexpr):
    """How many new ids each block has, and how many occurrences without a row."""
    blocks = tl.where(tl.load(counters + _PENDING) > 0, tl.cdiv(num, SIZE), 0)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        _, entry, first = _first(block, out, index, num, SIZE)
        tl.store(counts + block, tl.sum(first.to(tl.int32), 0))
        tl.store(waiting + block, tl.sum((entry >= 0).to(tl.int32), 0))


@triton.jit
def _scan(counters, counts, num_blocks, SIZE: tl.constexpr):
    """Counts become the numbers of each block's first; one program."""
    blocks = tl.where(tl.load(counters + _PENDING) > 0, num_blocks, 0)
    total = tl.zeros((), tl.int64)
    for begin in range(0, blocks, SIZE):
        at = begin + tl.arange(0, SIZE)
        count = tl.load(counts + at, mask=at < blocks, other=0).to(tl.int64)
        tl.store(counts + at, (total + tl.cumsum(count, 0) - count).to(tl.int32), mask=at < blocks)
        total += tl.sum(count, 0)
    tl.store(counters + _NEW, total)


@triton.jit
def _assign(
    out, index, counters, counts, waiting, free, fresh, starts, num, num_tables, capacity, SIZE: tl.constexpr
):  # fmt: skip
    """Give each new id its row; its entry goes on the list `fresh`, or loses its claim where there is no room."""
    blocks = tl.where(tl.load(counters + _NEW) > 0, tl.cdiv(num, SIZE), 0)
    used, available = tl.load(counters + _USED), tl.load(counters + _FREE)
    clock = tl.load(counters + _CLOCK)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        if tl.load(waiting + block) > 0:
            _, entry, first = _first(block, out, index, num, SIZE)
            number = tl.load(counts + block).to(tl.int64) + tl.cumsum(first.to(tl.int64), 0) - 1
            again = first & (number < available)
            row = tl.load(free + available - 1 - number, mask=again, other=0).to(tl.int64)
            row = tl.where(again, row, used + number - available)
            fits = row < capacity
            value = tl.where(fits, row | (clock << 32), _NO_ROW)
            tl.store(index + 2 * entry + 1, value, mask=first)
            tl.store(fresh + number, entry.to(fresh.dtype.element_ty), mask=first)
            if tl.max((first & (fits == 0)).to(tl.int32), 0) > 0:
                table = tl.zeros_like(entry) - 1
                for t in range(num_tables):
                    table += (entry >= tl.load(starts + t)).to(tl.int64)
                refused = counters + _BY_TABLE + num_tables + table
                tl.atomic_add(refused, tl.full(entry.shape, 1, tl.int64), mask=first & (fits == 0))


@triton.jit
def _rounded(value, seed, column, BITS: tl.constexpr, WIDTH: tl.constexpr):
    """`cpu_half.narrow_row` to bfloat16, left in a float32: four columns from each draw of a chain."""
    noise = tl.zeros(value.shape, tl.uint64)
    draw = seed
    for j in range((WIDTH + 3) // 4):
        draw = mix(draw + _GOLDEN)
        own = draw[:, None] >> ((column & 3) * 16).to(tl.uint64)[None, :]
        noise = tl.where(((column >> 2) == j)[None, :], own & 0xFFFF, noise)
    bits = value.to(tl.uint32, bitcast=True)
    up = (bits + noise.to(tl.uint32)) & 0xFFFF0000
    up = tl.where((up & 0x7F800000) == 0x7F800000, bits & 0xFFFF0000, up)
    return up.to(tl.float32, bitcast=True)


@triton.jit
def _start(
    number, many, fresh, index, starts, seeds, weight, first, second, num_tables, low, width, first_start, second_start,
    FIRST: tl.constexpr, SECOND: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """The first values of some new rows, from the hash of their signs."""
    entry = tl.load(fresh + number, mask=number < many, other=0).to(tl.int64)
    value = tl.load(index + 2 * entry + 1, mask=number < many, other=_NO_ROW)
    chosen = (number < many) & (value >= 0)
    sign = tl.load(index + 2 * entry, mask=chosen, other=0)
    table = tl.zeros_like(entry) - 1
    for t in range(num_tables):
        table += (entry >= tl.load(starts + t)).to(tl.int64)
    seed = mix((sign ^ tl.load(seeds + table, mask=chosen, other=0)).to(tl.uint64, bitcast=True))
    column = tl.arange(0, DIM)
    steps = (column + 1).to(tl.uint64) * _GOLDEN
    draw = mix(seed[:, None] + steps[None, :])
    drawn = low + width * ((draw >> 40).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08)  # 2⁻²⁴
    if weight.dtype.element_ty == tl.bfloat16:
        drawn = _rounded(drawn, seed, column, 16, WIDTH)
    row = value & 0xFFFFFFFF
    mask = chosen[:, None] & (column < WIDTH)[None, :]
    at = row[:, None] * WIDTH + column[None, :]
    tl.store(weight + at, drawn.to(weight.dtype.element_ty), mask=mask)
    if FIRST == _VECTOR:
        tl.store(first + at, tl.zeros_like(drawn) + first_start, mask=mask)
    elif FIRST == _NUMBER:
        tl.store(first + row, tl.zeros(row.shape, tl.float32) + first_start, mask=chosen)
    if SECOND == _VECTOR:
        tl.store(second + at, tl.zeros_like(drawn) + second_start, mask=mask)
    elif SECOND == _NUMBER:
        tl.store(second + row, tl.zeros(row.shape, tl.float32) + second_start, mask=chosen)


@triton.jit(do_not_specialize=["nothing"])
def _finish(
    out, index, counters, waiting, fresh, starts, seeds, weight, first, second, num, num_tables, capacity, nothing, low,
    width, first_start, second_start,
    FIRST: tl.constexpr, SECOND: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Occurrences learn their new rows, rows start, and the counters go on to the next step."""
    many = tl.load(counters + _NEW)
    blocks = tl.where(many > 0, tl.cdiv(num, SIZE), 0)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        if tl.load(waiting + block) > 0:
            k = tl.arange(0, SIZE).to(tl.int64) + block * SIZE
            entry = -2 - tl.load(out + k, mask=k < num, other=0).to(tl.int64)
            value = tl.load(index + 2 * entry + 1, mask=entry >= 0, other=_NO_ROW)
            row = tl.where(value >= 0, value & 0xFFFFFFFF, nothing + 1)
            tl.store(out + k, row.to(out.dtype.element_ty), mask=entry >= 0)
    for begin in range(tl.program_id(0) * ROWS, many, tl.num_programs(0) * ROWS):
        number = begin + tl.arange(0, ROWS)
        _start(
            number, many, fresh, index, starts, seeds, weight, first, second, num_tables, low, width, first_start,
            second_start, FIRST, SECOND, WIDTH, DIM,
        )  # fmt: skip
    if tl.program_id(0) == 0:
        available, used = tl.load(counters + _FREE), tl.load(counters + _USED)
        again = tl.minimum(available, many)
        tl.store(counters + _FREE, available - again)
        tl.store(counters + _USED, tl.minimum(used + many - again, capacity))
        tl.store(counters + _PENDING, tl.zeros((), tl.int64))
        tl.store(counters + _CLOCK, tl.load(counters + _CLOCK) + 1)


_COUNT, _SCAN, _ASSIGN = Launch(_count), Launch(_scan), Launch(_assign)
_FINISH = Launch(_finish, enable_fp_fusion=False)  # products and sums apart, so that numbers are a store's to the bit


def assign_rows(
    index: Tensor, counters: Tensor, out: Tensor, num_tables: int, nothing: int, rows: contract.NewRows
) -> None:
    """Rows for the ids that `gpu_hashed.find` has found to be new, in `out` as well; ends the step."""
    num, device, dim = len(out), out.device, rows.weight.shape[1]
    blocks = parts(num, BLOCK)
    counts, waiting = torch.empty((2, max(blocks, 1)), dtype=torch.int32, device=device)
    fresh = torch.empty(max(num, 1), dtype=out.dtype, device=device)
    programs, size = (max(1, min(blocks, _PROGRAMS)),), {"SIZE": BLOCK}
    _COUNT(programs, (out, index, counters, counts, waiting, num), size)
    _SCAN((1,), (counters, counts, blocks), size)
    numbered = out, index, counters, counts, waiting, rows.free, fresh, rows.starts, num, num_tables, rows.capacity
    _ASSIGN(programs, numbered, size)
    first, second = (rows.weight if state is None else state for state in rows.states)
    kinds: dict[str, Any] = dict(zip(("FIRST", "SECOND"), map(contract.state_kind, rows.states), strict=True))
    width = max(16, 1 << (dim - 1).bit_length())
    arguments = (
        out, index, counters, waiting, fresh, rows.starts, rows.seeds, rows.weight, first, second, num, num_tables,
        rows.capacity, nothing, rows.low, rows.width, *rows.state_starts,
    )  # fmt: skip
    _FINISH(programs, arguments, {**kinds, "WIDTH": dim, "DIM": width, "ROWS": max(4, _ELEMENTS // width), **size})
