"""The index of a cache of embedding rows on a GPU: what a batch needs that is not there, and where the rest is.

The words and the arrays are those of `cache_contract`. Nothing is sorted and nothing waits: of all ids that name the
same missing row, the first to exchange its entry for CLAIMED puts it on the list.
"""

from __future__ import annotations

import torch
from torch import Tensor

from penstock.core.extras import require

require("triton", "torch")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from penstock.kernels.cache_contract import CLAIMED  # noqa: E402
from penstock.kernels.fused_contract import FEATURE_FIELDS, ID_BITS  # noqa: E402
from penstock.kernels.gpu_launch import Launch, parts  # noqa: E402

_FIELDS, _CLAIMED = tl.constexpr(FEATURE_FIELDS), tl.constexpr(CLAIMED)
_ID_BITS, _ID_MASK = tl.constexpr(ID_BITS), tl.constexpr((1 << ID_BITS) - 1)
_BLOCK = 1024


@triton.jit
def _report(errors, place, identity, wrong):
    """Keep one of the wrong ids, the one with the highest code."""
    code = ((place + 1) << _ID_BITS) | (identity & _ID_MASK)
    tl.atomic_max(errors + tl.zeros_like(identity), code, mask=wrong)


@triton.jit
def _write(
    identity, feature, inside, features, slot_of, target, errors, absent, total, capacity, SLOTS: tl.constexpr
):  # fmt: skip
    """Write the keys of some ids, or their slots."""
    start = tl.load(features + feature * _FIELDS)
    size = tl.load(features + feature * _FIELDS + 1)
    known = (identity >= 0) & (identity < size)
    found = tl.where(known & inside, start + identity, total)
    if SLOTS:
        place = tl.load(features + feature * _FIELDS + 2)
        slot = tl.load(slot_of + found, mask=known & inside, other=-1).to(tl.int64)
        _report(errors, place, identity, inside & (known == 0))
        _report(absent, place, identity, inside & known & (slot < 0))
        found = tl.where(slot >= 0, slot, capacity)
    return found.to(target.dtype.element_ty)


@triton.jit
def _read_singles(
    ids, features, slot_of, out, errors, absent, num_rows, row_stride, column_stride, total, capacity,
    BLOCK: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    feature = tl.program_id(1)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = row < num_rows
    at = row.to(tl.int64) * row_stride + feature.to(tl.int64) * column_stride
    identity = tl.load(ids + at, mask=inside, other=0).to(tl.int64)
    found = _write(identity, feature, inside, features, slot_of, out, errors, absent, total, capacity, SLOTS)
    tl.store(out + feature.to(tl.int64) * num_rows + row, found, mask=inside)


@triton.jit
def _read_bags(
    values, offsets, features, slot_of, out, errors, absent, num_rows, num_values, singles, bags, total, capacity,
    BLOCK: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = k < num_values
    identity = tl.load(values + k, mask=inside, other=0).to(tl.int64)
    feature, claimed = tl.zeros_like(k) + singles, inside & (k < 0)
    for bag in range(bags):
        first = offsets + bag * (num_rows + 1)
        own = inside & (k >= tl.load(first)) & (k < tl.load(first + num_rows))
        feature = tl.where(own, singles + bag, feature)
        claimed = claimed | own
    found = _write(identity, feature, claimed, features, slot_of, out, errors, absent, total, capacity, SLOTS)
    tl.store(out + k, found, mask=inside)


@triton.jit(do_not_specialize=["number"])
def _claim(keys, slot_of, used, missing, was, count, num, total, number, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + i, mask=i < num, other=total).to(tl.int64)
    inside = key < total
    slot = tl.load(slot_of + key, mask=inside, other=0).to(tl.int64)
    hit = inside & (slot >= 0)
    last = tl.load(used + slot, mask=hit, other=0)
    tl.store(used + slot, tl.zeros_like(last) + number, mask=hit & (last != number))
    miss = inside & (slot < 0)
    former = tl.atomic_xchg(slot_of + key, tl.full(key.shape, _CLAIMED, tl.int32), mask=miss)
    first = miss & (former != _CLAIMED)
    ones = first.to(tl.int32)
    most = tl.sum(ones, 0)
    if most > 0:
        place = tl.atomic_add(count, most) + tl.cumsum(ones, 0) - 1
        tl.store(missing + place, key.to(missing.dtype.element_ty), mask=first)
        tl.store(was + place, former, mask=first)


_READ_SINGLES, _READ_BAGS, _CLAIM = Launch(_read_singles), Launch(_read_bags), Launch(_claim)


def read(
    features: Tensor,
    ids: Tensor,
    bags: tuple[Tensor, Tensor] | None,
    total: int,
    out: Tensor,
    slots: tuple[Tensor, int, Tensor, Tensor] | None = None,
) -> None:
    """Fill `out` with the keys of a batch, or with `slots` (`slot_of`, capacity, errors, absent) with their slots.

    An id outside its table is kept in `errors`, one whose row is not in the cache in `absent`, both as the code of
    `reference_cache`; either gets the slot `capacity`.
    """
    rows, singles = ids.shape
    slot_of, capacity, errors, absent = slots or (out, 0, out, out)
    sizes = {"BLOCK": _BLOCK, "SLOTS": slots is not None}
    if ids.numel():
        arguments = (ids, features, slot_of, out, errors, absent, rows, *ids.stride(), total, capacity)
        _READ_SINGLES((parts(rows, _BLOCK), singles), arguments, sizes)
    if bags is not None and len(bags[0]):
        values, offsets = bags
        arguments = (
            values, offsets, features, slot_of, out[ids.numel() :], errors, absent, rows, len(values), singles,
            len(features) - singles, total, capacity,
        )  # fmt: skip
        _READ_BAGS((parts(len(values), _BLOCK),), arguments, sizes)


def claim(keys: Tensor, slot_of: Tensor, used: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """`reference_cache.claim`. Waits for the number of missing rows."""
    missing, was = torch.empty_like(keys), torch.empty(len(keys), dtype=torch.int32, device=keys.device)
    count = torch.zeros(1, dtype=torch.int32, device=keys.device)
    if len(keys):
        arguments = (keys, slot_of, used, missing, was, count, len(keys), len(slot_of) - 1, number)
        _CLAIM((parts(len(keys), _BLOCK),), arguments, {"BLOCK": _BLOCK})
    found = int(count)
    missing, order = torch.sort(missing[:found])  # the order of arrival is that of the programs: never the same
    return missing, was[order]
