"""Hashed tables on a GPU: the rows of a batch's ids, and an entry for each id that is new.

The words and the arrays are those of `hashed_contract`. An empty entry is taken by compare-and-swap, so where a sign
lies depends on the order of the programs; no row and no number does. Nothing waits for the host.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from penstock.kernels.gpu_triton import require_triton

require_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from penstock.kernels import hashed_contract as contract  # noqa: E402
from penstock.kernels.fused_contract import FEATURE_FIELDS, ID_BITS  # noqa: E402
from penstock.kernels.gpu_hashed_rows import BLOCK, assign_rows, mix  # noqa: E402
from penstock.kernels.gpu_launch import Launch, parts  # noqa: E402

_FIELDS = tl.constexpr(FEATURE_FIELDS)
_ID_BITS, _ID_MASK = tl.constexpr(ID_BITS), tl.constexpr((1 << ID_BITS) - 1)
_CLOCK, _PENDING, _BY_TABLE = (tl.constexpr(n) for n in (contract.CLOCK, contract.PENDING, contract.BY_TABLE))
_CLAIMS, _PROBES = tl.constexpr(contract.CLAIMS), tl.constexpr(contract.PROBES)
_FIND_BLOCK = 512  # ids a program seeks


@triton.jit
def _skip(sign, start, size, at, held, probes, index):
    """Go on from the entries of other signs to the sign's own, or to an empty one. Reads alone, mostly of one line."""
    passing = (held != sign) & (held != 0)
    left = tl.max(passing.to(tl.int32), 0)
    while left > 0:
        at = tl.where(passing, start + ((at - start + 1) & (size - 1)), at)
        held = tl.where(passing, tl.load(index + 2 * at, mask=passing, other=0), held)
        passing = passing & (held != sign) & (held != 0)
        probes += 1
        left = tl.where(probes < _PROBES, tl.max(passing.to(tl.int32), 0), 0)
    return at, held, probes


@triton.jit
def _seek(
    sign, start, size, place, seeking, index, guards, counters, salt, INSERT: tl.constexpr, ONE_TABLE: tl.constexpr
):
    """The entry of each sign that is sought, and whether it has one; with INSERT an empty one is taken."""
    lane = tl.arange(0, sign.shape[0])
    bits = (size - 1).to(tl.uint64, bitcast=True)
    home = (mix((sign ^ salt).to(tl.uint64, bitcast=True)) & bits).to(tl.int64, bitcast=True)
    at = tl.where(seeking, start + home, guards + lane)
    held = tl.where(seeking, tl.load(index + 2 * at, mask=seeking, other=0), sign)
    at, held, probes = _skip(sign, start, size, at, held, tl.zeros((), tl.int32), index)
    if INSERT:
        empty = seeking & (held == 0)
        taken = tl.zeros(sign.shape, tl.int1)
        left = tl.max(empty.to(tl.int32), 0)
        while left > 0:
            # There is no mask: lanes that take nothing fail at an entry of their own.
            target = tl.where(empty, at, guards + lane)
            before = tl.atomic_cas(index + 2 * target, tl.zeros_like(sign), sign)
            taken = taken | (empty & (before == 0))
            held = tl.where(empty, tl.where(before == 0, sign, before), held)
            at, held, probes = _skip(sign, start, size, at, held, probes, index)
            empty = seeking & (held == 0)
            left = tl.where(probes < _PROBES, tl.max(empty.to(tl.int32), 0), 0)
        if ONE_TABLE:  # many adding to one place would wait for one another
            many = tl.sum(taken.to(tl.int64), 0)
            if many > 0:
                tl.atomic_add(counters + _BY_TABLE + place, many)
        else:
            tl.atomic_add(counters + _BY_TABLE + place, tl.full(sign.shape, 1, tl.int64), mask=taken)
    return at, seeking & (held == sign)


@triton.jit
def _find(
    identity, feature, inside, occurrence, features, index, guards, counters, out, wrong, num_tables, salt, nothing,
    TRAIN: tl.constexpr, STAMP: tl.constexpr, ONE_TABLE: tl.constexpr,
):  # fmt: skip
    """Write the row of each id to `out`: for one without, `nothing`; in training its entry, as `-2 - entry`."""
    start = tl.load(features + feature * _FIELDS)
    size = tl.load(features + feature * _FIELDS + 1)
    place = tl.load(features + feature * _FIELDS + 2)
    sign = identity + 1
    zero = tl.zeros_like(sign)
    code = ((place + 1) << _ID_BITS) | (identity & _ID_MASK)
    tl.atomic_max(wrong + zero, code, mask=inside & (sign == 0))
    seeking = inside & (sign != 0)
    at, found = _seek(
        sign, start + zero, size + zero, place, seeking, index, guards, counters, salt, TRAIN, ONE_TABLE
    )  # fmt: skip
    value = tl.load(index + 2 * at + 1, mask=found, other=-1)
    known = found & (value >= 0)
    row = tl.where(known, value & 0xFFFFFFFF, nothing)
    if TRAIN:
        clock = tl.load(counters + _CLOCK)
        if STAMP:
            tl.store(index + 2 * at + 1, row | (clock << 32), mask=known & ((value >> 32) != clock))
        pending = found & (value < 0)
        count = tl.sum(pending.to(tl.int64), 0)
        row = tl.where(known, row, nothing + 1)  # not trained
        if count > 0:
            tl.atomic_min(index + 2 * at + 1, occurrence + _CLAIMS, mask=pending)
            tl.atomic_add(counters + _PENDING, count)
            row = tl.where(pending, -2 - at, row)
        refused = seeking & (found == 0)
        tl.atomic_add(counters + _BY_TABLE + num_tables + place + zero, tl.full(sign.shape, 1, tl.int64), mask=refused)
    tl.store(out + occurrence, row.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["salt", "nothing"])
def _find_singles(
    ids, features, index, guards, counters, out, wrong, num_rows, row_stride, column_stride, num_tables, salt, nothing,
    TRAIN: tl.constexpr, STAMP: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    feature = tl.program_id(1)
    row = (tl.program_id(0) * SIZE + tl.arange(0, SIZE)).to(tl.int64)
    inside = row < num_rows
    at = row * row_stride + feature.to(tl.int64) * column_stride
    identity = tl.load(ids + at, mask=inside, other=0).to(tl.int64)
    occurrence = feature.to(tl.int64) * num_rows + row
    _find(
        identity, feature, inside, occurrence, features, index, guards, counters, out, wrong, num_tables, salt, nothing,
        TRAIN, STAMP, True,
    )  # fmt: skip


@triton.jit(do_not_specialize=["salt", "nothing"])
def _find_bags(
    values, offsets, features, index, guards, counters, out, wrong, num_rows, num_values, singles, bags, num_tables,
    salt, nothing, TRAIN: tl.constexpr, STAMP: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = k < num_values
    identity = tl.load(values + k, mask=inside, other=0).to(tl.int64)
    feature = tl.zeros_like(k) + singles
    for bag in range(1, bags):
        feature += (k >= tl.load(offsets + bag * (num_rows + 1))).to(tl.int64)
    own = offsets + (feature - singles) * (num_rows + 1)
    claimed = inside & (k >= tl.load(own, mask=inside, other=0)) & (k < tl.load(own + num_rows, mask=inside, other=0))
    first = singles * num_rows
    tl.store(out + first + k, (tl.zeros_like(k) + nothing + 1).to(out.dtype.element_ty), mask=inside & (claimed == 0))
    _find(
        identity, feature, claimed, first + k, features, index, guards, counters, out, wrong, num_tables, salt, nothing,
        TRAIN, STAMP, False,
    )  # fmt: skip


@triton.jit(do_not_specialize=["salt", "num"])
def _enter(signs, tables, values, features, index, guards, counters, num, salt, SIZE: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = i < num
    sign = tl.load(signs + i, mask=inside, other=0)
    table = tl.load(tables + i, mask=inside, other=0).to(tl.int64)
    start = tl.load(features + table * _FIELDS)
    size = tl.load(features + table * _FIELDS + 1)
    at, found = _seek(sign, start, size, table, inside, index, guards, counters, salt, True, False)
    tl.store(index + 2 * at + 1, tl.load(values + i, mask=inside, other=-1), mask=found)


_FIND_SINGLES, _FIND_BAGS, _ENTER = Launch(_find_singles), Launch(_find_bags), Launch(_enter)


def find(
    index: Tensor,
    features: Tensor,
    ids: Tensor,
    bags: tuple[Tensor, Tensor] | None,
    counters: Tensor,
    num_tables: int,
    salt: int,
    nothing: int,
    out: Tensor,
    wrong: Tensor,
    rows: Any = None,
) -> None:
    """Fill `out` with the rows of a batch's occurrences, `nothing` for an id that has none.

    With `rows` (a `NewRows`) this is a training step: ids that are new get rows, which start as they are to; an id for
    which there is no room has `nothing + 1`. The id -1 has no sign: it is reported in `wrong` by its code.
    """
    num_rows, singles = ids.shape
    common = index, len(index) - contract.GUARDS, counters, out, wrong
    sizes: dict[str, Any] = {"TRAIN": rows is not None, "STAMP": rows is not None and rows.stamped, "SIZE": _FIND_BLOCK}
    if ids.numel():
        arguments = (ids, features, *common, num_rows, *ids.stride(), num_tables, salt, nothing)
        _FIND_SINGLES((parts(num_rows, _FIND_BLOCK), singles), arguments, sizes)
    if bags is not None and len(bags[0]):
        values, offsets = bags
        arguments = (
            values, offsets, features, *common, num_rows, len(values), singles, len(features) - singles, num_tables,
            salt, nothing,
        )  # fmt: skip
        _FIND_BAGS((parts(len(values), _FIND_BLOCK),), arguments, sizes)
    if rows is not None:
        assign_rows(index, counters, out, num_tables, nothing, rows)


def enter(
    index: Tensor, features: Tensor, signs: Tensor, tables: Tensor, values: Tensor, counters: Tensor, salt: int
) -> None:
    """Put signs that are not there, of the tables given, into the index with their values; `features` in the order of
    the tables."""
    if len(signs):
        arguments = (
            signs, tables, values, features, index, len(index) - contract.GUARDS, counters, len(signs), salt
        )  # fmt: skip
        _ENTER((parts(len(signs), BLOCK),), arguments, {"SIZE": BLOCK})
