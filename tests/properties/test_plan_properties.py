"""Any data set, world, batch size and seed: nothing lost, nothing doubled, every rank as many batches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import ParameterError
from penstock.loader.plan import EpochPlan, units_of

SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=12)


def rows_of(plan: EpochPlan, starts: np.ndarray) -> np.ndarray:
    """Row numbers in the order in which the rank delivers them."""
    out = [np.empty(0, np.int64)]
    for chunk in plan.chunks:
        stored = np.concatenate([np.arange(p.start, p.stop) + starts[p.partition] for p in chunk.pieces])
        order = plan.row_order(chunk)
        out.append(stored if order is None else stored[order])
    return np.concatenate(out)


@settings(deadline=None)  # the first call compiles
@given(
    SIZES, st.integers(1, 9), st.integers(1, 30), st.integers(1, 5), st.integers(0, 3), st.booleans(),
    st.sampled_from(["keep", "drop", "wrap"]), st.booleans(),
)  # fmt: skip
def test_an_epoch_is_a_permutation(sizes, batch_size, chunk_rows, world, seed, shuffle, last_batch, divisible):
    total = sum(sizes)
    units = units_of(sizes, [divisible] * len(sizes), chunk_rows)
    options = {"batch_size": batch_size, "chunk_rows": chunk_rows, "shuffle": shuffle, "seed": seed, "world": world}
    if last_batch == "keep" and total // world < -(-total // (world * batch_size)):
        with pytest.raises(ParameterError, match="ranks"):
            EpochPlan.build(units, rank=0, **options)
        return
    plans = [EpochPlan.build(units, rank=r, last_batch=last_batch, **options) for r in range(world)]
    assert len({p.num_batches for p in plans}) == 1
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    delivered = np.concatenate([rows_of(p, starts) for p in plans])
    assert len(delivered) == sum(p.num_rows for p in plans)
    counts = np.bincount(delivered, minlength=total)
    full = [stop - start == batch_size for p in plans for start, stop in map(p.bounds, range(p.num_batches))]
    if last_batch == "keep":
        assert (counts == 1).all()
    elif last_batch == "drop":
        assert counts.max(initial=0) <= 1
        assert all(full)
        assert total - counts.sum() < world * batch_size
    elif total:
        assert counts.min(initial=1) >= 1
        assert counts.max() - counts.min() <= 1
        assert all(full)


@settings(deadline=None)  # the first call compiles
@given(SIZES, st.integers(1, 9), st.integers(1, 30), st.integers(1, 5))
def test_batches_tile_the_epoch(sizes, batch_size, chunk_rows, world):
    if sum(sizes) // world < -(-sum(sizes) // (world * batch_size)) or not sum(sizes):
        return
    units = units_of(sizes, [False] * len(sizes), chunk_rows)
    for rank in range(world):
        plan = EpochPlan.build(units, batch_size=batch_size, chunk_rows=chunk_rows, rank=rank, world=world)
        bounds = [plan.bounds(b) for b in range(plan.num_batches)]
        assert [b for b, _ in bounds] == [0, *[e for _, e in bounds[:-1]]]
        assert bounds[-1][1] == plan.num_rows
        assert all(0 < end - start <= batch_size for start, end in bounds)
        # Each batch lies in one slab or bridge, inside one of its slots for batches, and these tile the epoch too.
        ranges = []
        for chunk in plan.chunks:
            ranges += [r for r in (plan.bridge_rows(chunk), plan.slab_rows(chunk)) if r is not None and r[0] < r[1]]
        assert [a for a, _ in ranges] == [0, *[b for _, b in ranges[:-1]]]
        for start, end in bounds:
            (low,) = [a for a, b in ranges if a <= start and end <= b]
            assert (start - low) % batch_size + (end - start) <= batch_size
