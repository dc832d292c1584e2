"""The update of fused embeddings on a GPU: gradients of equal keys added up, and the optimizer applied to each row.

The keys of a batch come sorted, so the occurrences of a row lie side by side. The sequence is cut into chunks of fixed
length, and one program reduces one chunk. A row that lies inside its chunk is updated at once. What a row has in
several chunks (an id that is in every sample) is left as partial sums, two places a chunk: one for the row of its first
occurrence, one for that of its last. These are again a sorted sequence, which a second kernel reduces in groups of
chunks, and a third adds up what is left. All sums are in float32, in an order that depends on the keys alone.

What limits it is the number of instructions a row takes beside its own bytes, so what can be known of an occurrence
before its gradient is read is worked out once (`locate`), one lane an occurrence. Where a row has 32 columns or more a
warp holds one at a time, or one of each of several chunks until it is full, adds as long as the key stays the same and
writes at its end: most occurrences then cost a load and an addition. Shorter rows are taken as a tile and added by a
segmented scan.
"""

from __future__ import annotations

from penstock.kernels.gpu_triton import require_triton

require_triton()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from penstock.kernels.fused_contract import FEATURE_FIELDS, HUGE, LIMIT  # noqa: E402
from penstock.kernels.gpu_embedding_optim import fetch, step  # noqa: E402

_FIELDS = tl.constexpr(FEATURE_FIELDS)
_LIMIT, _HUGE = tl.constexpr(LIMIT), tl.constexpr(HUGE)
_BEGINS, _ENDS, _FLAGS = tl.constexpr(1), tl.constexpr(2), tl.constexpr(4)


@triton.jit
def locate(
    keys, order, features, sources, scales, samples, places, in_scale, num, single_occurrences, num_rows, missing,
    BAGS: tl.constexpr, SCALED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """For each key in order: its sample, its column of the output, and whether it is the first or the last of its row.

    `places` holds four times the column, plus 1 where a row begins, plus 2 where it ends. Values that no bag claims
    have no source: their keys are missing, and nothing is read for them.
    """
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = i < num
    occurrence = tl.load(order + i, mask=inside, other=0)
    key = tl.load(keys + i, mask=inside, other=missing)
    before = tl.load(keys + i - 1, mask=inside & (i > 0), other=-1)
    following = tl.load(keys + i + 1, mask=i + 1 < num, other=-1)
    flags = _BEGINS * (key != before).to(tl.int32) + _ENDS * ((key != following) & (key < missing)).to(tl.int32)
    if BAGS:
        from_bag = inside & (occurrence >= single_occurrences)
        of_bag = from_bag & (key < missing)
        value = occurrence - single_occurrences
        occurrence = tl.where(from_bag, tl.load(sources + value, mask=of_bag, other=0), occurrence)
        if SCALED:
            tl.store(in_scale + i, tl.load(scales + value, mask=of_bag, other=1.0), mask=inside)
    feature = occurrence // num_rows
    column = tl.load(features + feature * _FIELDS + 3, mask=inside, other=0).to(tl.int32)
    tl.store(samples + i, occurrence - feature * num_rows, mask=inside)
    tl.store(places + i, column * _FLAGS + flags, mask=inside)


@triton.jit
def _first_column(packed, UNIT: tl.constexpr):
    """Of a place; as a multiple of `UNIT`, which it is anyway, so that the compiler reads wide."""
    return packed // (_FLAGS * UNIT) * UNIT


@triton.jit
def _kept_finite(gradient):
    """What is not finite becomes a number whose sums stay above the limit: an infinity less another would be NaN."""
    return tl.where(tl.abs(gradient) < _LIMIT, gradient, _HUGE)


@triton.jit
def _add_in_row(sum_a, begins_a, sum_b, begins_b):
    """The operator of a segmented scan."""
    return tl.where(begins_b != 0, sum_b, sum_a + sum_b), begins_a | begins_b


@triton.jit
def _sums_in_rows(values, begins):
    """For each line of a tile the sum of its row so far; `begins` says at which lines rows begin."""
    everywhere = begins.to(tl.int32)[:, None] + tl.zeros_like(values).to(tl.int32)
    total, _ = tl.associative_scan((values, everywhere), 0, _add_in_row)
    return total


@triton.jit
def reduce_tiles(
    keys, samples, places, in_scale, gradient, weight, first, second, partial, stride, rates, steps, unscale,
    skipped, num, missing, eps, take1, take2, decay, bound,
    KIND: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, SCALED: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """Rows inside the chunk: updated. Rows that reach over an end of it: their sum here goes to `partial`."""
    chunk = tl.program_id(0)
    begin = chunk * SIZE
    lane = tl.arange(0, SIZE)
    i = begin + lane
    inside = i < num
    key = tl.load(keys + i, mask=inside, other=missing)
    packed = tl.load(places + i, mask=inside, other=0)
    sample = tl.load(samples + i, mask=inside, other=0).to(tl.int64)
    first_key = tl.load(keys + begin)
    from_before = (tl.load(places + begin) & _BEGINS) == 0
    column = tl.arange(0, DIM)
    g = tl.load(
        gradient + (sample * stride + _first_column(packed, UNIT))[:, None] + column[None, :],
        mask=(inside & (key < missing))[:, None] & (column < WIDTH)[None, :],
        other=0.0,
    ).to(tl.float32)
    ends = (packed & _ENDS) != 0
    outer = (key == first_key) & from_before
    whole = ends & (outer == 0)
    row = key.to(tl.int64)
    w, m, v = fetch(row, whole, weight, first, second, KIND, WIDTH, DIM)
    if SCALED:
        g = g * tl.load(in_scale + i, mask=inside, other=0.0)[:, None]
    total = _sums_in_rows(_kept_finite(g), packed & _BEGINS)
    step(
        row, whole, total, w, m, v, weight, first, second, rates, steps, unscale, skipped, eps, take1, take2, decay,
        bound, KIND, WIDTH, DIM,
    )  # fmt: skip
    left = (ends & outer) | ((lane == SIZE - 1) & (ends == 0) & (key < missing))
    slot = chunk * 2 + (key != first_key).to(tl.int32)
    at = partial + slot.to(tl.int64)[:, None] * DIM + column[None, :]
    tl.store(at, total, mask=(left != 0)[:, None] & (column >= 0)[None, :])


@triton.jit
def _read_rows(
    samples, places, in_scale, gradient, i, end, stride,
    WIDTH: tl.constexpr, DIM: tl.constexpr, SCALED: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """The gradients of occurrences, one of each chunk, and their flags; zeros and no flag behind a chunk's end."""
    there = i < end
    sample = tl.load(samples + i, mask=there, other=0).to(tl.int64)
    packed = tl.load(places + i, mask=there, other=0)
    column = tl.arange(0, DIM)
    at = gradient + (sample * stride + _first_column(packed, UNIT))[:, None] + column[None, :]
    g = tl.load(at, mask=there[:, None] & (column < WIDTH)[None, :], other=0.0)
    scale = tl.full(i.shape, 1.0, tl.float32)
    if SCALED:
        scale = tl.load(in_scale + i, mask=there, other=0.0)
    return g, scale, packed & (_FLAGS - 1)


@triton.jit
def _add_rows(
    i, g, scale, flags, total, from_before, later, keys, chunk, begin, weight, first, second, partial, rates, steps,
    unscale, skipped, eps, take1, take2, decay, bound, KIND: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """One occurrence more of each chunk; where a row ends, its update, or its partial sum if it began before."""
    x = _kept_finite(g.to(tl.float32) * scale[:, None])
    begins = (flags & _BEGINS) != 0
    total = tl.where(begins[:, None], x, total + x)
    from_before = from_before & (begins == 0)
    later = tl.where(begins & (i > begin), 1, later)
    ends = (flags & _ENDS) != 0
    if tl.max(ends.to(tl.int32), 0) > 0:
        column = tl.arange(0, DIM)
        at = partial + (chunk * 2).to(tl.int64)[:, None] * DIM + column[None, :]
        tl.store(at, total, mask=(ends & from_before)[:, None] & (column >= 0)[None, :])
        whole = ends & (from_before == 0)
        row = tl.load(keys + i, mask=whole, other=0).to(tl.int64)
        w, m, v = fetch(row, whole, weight, first, second, KIND, WIDTH, DIM)
        step(
            row, whole, total, w, m, v, weight, first, second, rates, steps, unscale, skipped, eps, take1, take2,
            decay, bound, KIND, WIDTH, DIM,
        )  # fmt: skip
    return total, from_before, later


@triton.jit
def reduce_rows(
    keys, samples, places, in_scale, gradient, weight, first, second, partial, stride, rates, steps, unscale,
    skipped, num, missing, eps, take1, take2, decay, bound,
    KIND: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, SCALED: tl.constexpr,
    UNIT: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """`reduce_tiles`, one occurrence after the other, of `SIDE` chunks side by side.

    Four gradients of each are under way while one is added.
    """
    chunk = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    begin = chunk * SIZE
    end = tl.minimum(begin + SIZE, num)
    total = tl.zeros((SIDE, DIM), tl.float32)
    from_before = (tl.load(places + begin, mask=begin < num, other=_BEGINS) & _BEGINS) == 0
    later = begin * 0  # 1 once a row has begun behind the first one
    for offset in range(0, SIZE, 4):
        i = begin + offset
        g0, s0, f0 = _read_rows(samples, places, in_scale, gradient, i, end, stride, WIDTH, DIM, SCALED, UNIT)
        g1, s1, f1 = _read_rows(samples, places, in_scale, gradient, i + 1, end, stride, WIDTH, DIM, SCALED, UNIT)
        g2, s2, f2 = _read_rows(samples, places, in_scale, gradient, i + 2, end, stride, WIDTH, DIM, SCALED, UNIT)
        g3, s3, f3 = _read_rows(samples, places, in_scale, gradient, i + 3, end, stride, WIDTH, DIM, SCALED, UNIT)
        total, from_before, later = _add_rows(
            i, g0, s0, f0, total, from_before, later, keys, chunk, begin, weight, first, second, partial, rates, steps,
            unscale, skipped, eps, take1, take2, decay, bound, KIND, WIDTH, DIM,
        )  # fmt: skip
        total, from_before, later = _add_rows(
            i + 1, g1, s1, f1, total, from_before, later, keys, chunk, begin, weight, first, second, partial, rates,
            steps, unscale, skipped, eps, take1, take2, decay, bound, KIND, WIDTH, DIM,
        )  # fmt: skip
        total, from_before, later = _add_rows(
            i + 2, g2, s2, f2, total, from_before, later, keys, chunk, begin, weight, first, second, partial, rates,
            steps, unscale, skipped, eps, take1, take2, decay, bound, KIND, WIDTH, DIM,
        )  # fmt: skip
        total, from_before, later = _add_rows(
            i + 3, g3, s3, f3, total, from_before, later, keys, chunk, begin, weight, first, second, partial, rates,
            steps, unscale, skipped, eps, take1, take2, decay, bound, KIND, WIDTH, DIM,
        )  # fmt: skip
    goes_on = (begin < num) & ((tl.load(places + end - 1, mask=begin < num, other=_ENDS) & _ENDS) == 0)
    column = tl.arange(0, DIM)
    at = partial + (chunk * 2 + later).to(tl.int64)[:, None] * DIM + column[None, :]
    tl.store(at, total, mask=goes_on[:, None] & (column >= 0)[None, :])


@triton.jit
def reduce_partials(
    keys, partial, weight, first, second, joined, rates, steps, unscale, skipped, num, missing, eps, take1, take2,
    decay, bound, KIND: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """The partial sums of a group of chunks, two a chunk: rows inside the group are updated, others go to `joined`.

    Most groups have no row that reaches over the end of a chunk, and end at once.
    """
    group = tl.program_id(0)
    entry = tl.arange(0, 2 * GROUP)
    chunk, is_last = group * GROUP + entry // 2, entry % 2 == 1
    begin = chunk * SIZE
    end = tl.minimum(begin + SIZE, num)
    there = begin < num
    first_key = tl.load(keys + begin, mask=there, other=missing)
    last_key = tl.load(keys + end - 1, mask=there, other=missing)
    preceding = tl.load(keys + begin - 1, mask=there & (begin > 0), other=-1)
    following = tl.load(keys + end, mask=there & (end < num), other=-1)
    one_row, goes_on = first_key == last_key, last_key == following
    key = tl.where(is_last, last_key, first_key)
    from_chunk_before = first_key == preceding
    is_there = tl.where(is_last, (one_row == 0) & goes_on, from_chunk_before | (one_row & goes_on))
    used = (there & (key < missing) & is_there) != 0
    if tl.max(used.to(tl.int32), 0) > 0:
        group_first = tl.load(keys + group * GROUP * SIZE)
        group_preceding = tl.load(keys + group * GROUP * SIZE - 1, mask=group > 0, other=-1)
        ends = used & (is_last == 0) & ((one_row == 0) | (goes_on == 0))
        beyond = used & (entry // 2 == GROUP - 1) & (is_last | one_row) & goes_on
        outer = (key == group_first) & (key == group_preceding)
        whole = ends & (outer == 0)
        row = key.to(tl.int64)
        w, m, v = fetch(row, whole, weight, first, second, KIND, WIDTH, DIM)
        column = tl.arange(0, DIM)
        at = partial + (chunk * 2 + entry % 2).to(tl.int64)[:, None] * DIM + column[None, :]
        sums = tl.load(at, mask=used[:, None] & (column >= 0)[None, :], other=0.0)
        begins = tl.where(is_last, one_row == 0, (from_chunk_before == 0) | (entry == 0))
        total = _sums_in_rows(sums, begins)
        step(
            row, whole, total, w, m, v, weight, first, second, rates, steps, unscale, skipped, eps, take1, take2, decay,
            bound, KIND, WIDTH, DIM,
        )  # fmt: skip
        slot = group * 2 + (key != group_first).to(tl.int32)
        to = joined + slot.to(tl.int64)[:, None] * DIM + column[None, :]
        tl.store(to, total, mask=(((ends & outer) | beyond) != 0)[:, None] & (column >= 0)[None, :])


@triton.jit
def finish_rows(
    keys, joined, weight, first, second, rates, steps, unscale, skipped, num, missing, eps, take1, take2, decay, bound,
    KIND: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr,
    CHUNKS: tl.constexpr,
):  # fmt: skip
    """The rows that begin in these groups (of SIZE occurrences) and reach over their ends: sums added, and the update.

    Most groups have none, and a program that finds nothing costs its start: so one looks after several.
    """
    for group in range(tl.program_id(0) * CHUNKS, tl.program_id(0) * CHUNKS + CHUNKS):
        begin = group * SIZE
        end = begin + SIZE
        if end < num:
            first_key, key = tl.load(keys + begin), tl.load(keys + end - 1)
            preceding = tl.where(begin > 0, tl.load(keys + tl.maximum(begin - 1, 0)), -1)
            if (key == tl.load(keys + end)) & (key != preceding) & (key < missing):
                column = tl.arange(0, DIM)
                slot = group * 2 + (key != first_key).to(tl.int32)
                total = tl.load(joined + slot.to(tl.int64) * DIM + column)
                groups = group + 1 + tl.arange(0, TILE)
                same = tl.load(keys + groups * SIZE, mask=groups * SIZE < num, other=-1) == key
                while tl.max(same.to(tl.int32), 0) > 0:
                    at = joined + (groups * 2).to(tl.int64)[:, None] * DIM + column[None, :]
                    total += tl.sum(tl.load(at, mask=same[:, None], other=0.0), 0)
                    groups += TILE
                    same = tl.load(keys + groups * SIZE, mask=groups * SIZE < num, other=-1) == key
                row = tl.zeros((1,), tl.int64) + key
                w, m, v = fetch(row, row >= 0, weight, first, second, KIND, WIDTH, DIM)
                step(
                    row, row >= 0, total[None, :], w, m, v, weight, first, second, rates, steps, unscale, skipped, eps,
                    take1, take2, decay, bound, KIND, WIDTH, DIM,
                )  # fmt: skip
