"""The embedding kernels' building blocks against NumPy: odd shapes, empty inputs, every 16-bit pattern."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.core.runtime.buffers import BufferPool
from penstock.embedding.batches import IdBatch
from penstock.embedding.slot_layout import SlotLayout
from penstock.embedding.slots import EmbeddingConfig, HashStack, SlotConfig
from penstock.kernels import cpu_embedding_batch as layout
from penstock.kernels import cpu_embedding_client as client
from penstock.kernels import cpu_embedding_remote as remote
from penstock.kernels import cpu_half, cpu_vector
from penstock.kernels import reference_embedding as oracle
from penstock.kernels.cpu_intrinsics import address_of


def at(array):
    return np.uint64(address_of(array))


@pytest.mark.parametrize("dim", [0, 1, 3, 4, 7, 8, 15, 16, 17, 20, 31, 64, 100])
def test_row_operations(dim):
    rng = np.random.default_rng(dim)
    source, target = rng.normal(size=(2, dim + 3)).astype(np.float32)
    expected = target.copy()
    expected[:dim] += np.float32(0.3) * source[:dim]
    cpu_vector.add_row(at(target), at(source), dim, np.float32(0.3))
    np.testing.assert_allclose(target, expected, rtol=1e-6)
    np.testing.assert_allclose(cpu_vector.sum_squares(at(source), dim), (source[:dim] ** 2).sum(), rtol=1e-5, atol=1e-7)
    expected[:dim] = source[:dim]
    cpu_vector.copy_row(at(target), at(source), dim)
    np.testing.assert_allclose(target, expected, rtol=1e-6)
    expected[:dim] = 0
    cpu_vector.zero_row(at(target), dim)
    np.testing.assert_allclose(target, expected, rtol=1e-6)
    for i, bad in enumerate([np.nan, np.inf, -np.inf]):
        assert cpu_vector.row_is_finite(at(source), dim)
        if dim:
            hurt = source.copy()
            hurt[i % dim] = bad
            assert not cpu_vector.row_is_finite(at(hurt), dim)


def test_every_half_is_widened_exactly_and_narrowed_back():
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    for storage in (cpu_half.FLOAT16, cpu_half.BFLOAT16):
        wide, back = np.empty(len(bits), np.float32), np.empty(len(bits), np.uint16)
        cpu_half.widen_row(at(wide), at(bits), len(bits), storage)
        if storage == cpu_half.FLOAT16:
            expected = bits.view(np.float16).astype(np.float32)
        else:
            expected = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
        np.testing.assert_array_equal(wide, expected)
        cpu_half.narrow_row(at(back), at(wide), len(bits), storage, np.uint64(5))
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(back[finite], bits[finite])  # what is on the grid stays there


@pytest.mark.parametrize("storage", [cpu_half.FLOAT16, cpu_half.BFLOAT16])
@pytest.mark.parametrize("value", [1.0003, -0.7501, 3e-6, -1e-7, 60001.0, 1e-30])
def test_stochastic_rounding_is_unbiased_between_the_neighbours(storage, value):
    count = 100_000
    source, target, wide = np.full(count, value, np.float32), np.empty(count, np.uint16), np.empty(count, np.float32)
    cpu_half.narrow_row(at(target), at(source), count, storage, np.uint64(9))
    cpu_half.widen_row(at(wide), at(target), count, storage)
    neighbours = np.unique(wide.astype(np.float64))
    assert len(neighbours) <= 2
    assert neighbours[0] <= source[0] <= neighbours[-1] or len(neighbours) == 1
    grid = neighbours[-1] - neighbours[0]
    assert abs(wide.astype(np.float64).mean() - source[0]) <= max(0.01 * grid, 1e-9 * abs(value), 6e-10)


def test_halves_never_become_infinite():
    source = np.array([65504, 65520, 1e9, -1e9, 3.4e38], np.float32)
    target, wide = np.empty(5, np.uint16), np.empty(5, np.float32)
    cpu_half.narrow_row(at(target), at(source), 5, cpu_half.FLOAT16, np.uint64(1))
    assert target.view(np.float16).tolist() == [65504, 65504, 65504, -65504, 65504]
    cpu_half.narrow_row(at(target), at(source), 5, cpu_half.BFLOAT16, np.uint64(1))
    cpu_half.widen_row(at(wide), at(target), 5, cpu_half.BFLOAT16)
    assert np.isfinite(wide).all()


@pytest.mark.parametrize("top", [1, 10, 3000, 2**40, 2**63])
@pytest.mark.parametrize(("rounds", "hashing"), [(0, "mix"), (3, "mix"), (3, "farmhash")])
def test_distinct_signs_are_numbered_in_order_of_appearance(top, rounds, hashing):
    rng = np.random.default_rng(top % 1000)
    stack = HashStack(rounds, 50, hashing) if rounds else None
    config = EmbeddingConfig([SlotConfig("a", 4, hash_stack=stack), SlotConfig("b", 4, hash_stack=stack, group="a")])
    batch = {"a": rng.integers(0, top, 700, np.uint64), "b": rng.integers(0, top, 700, np.uint64)}
    ids, slots, counter = IdBatch(config, batch), SlotLayout(config), np.zeros(8, np.int64)
    work = slots.number(ids.inputs, BufferPool())
    owner, place = np.empty(len(work.signs), np.uint16), np.empty(len(work.signs), np.uint32)
    counts = np.zeros((3, 1), np.int64)
    client.number_and_route(
        counter, slots.group_starts, slots.members, slots.slots, work.inputs, work.groups, work.inverse, work.signs,
        np.empty(1 << 14, np.uint32), owner, place, counts,
    )  # fmt: skip
    expected = [
        sign
        for name in ("a", "b")
        for i in batch[name].tolist()
        for sign in oracle.signs_of(i, config.prefix("a"), config.modulus, rounds, 50, hashing)
    ]
    unique = list(dict.fromkeys(expected))
    assert work.groups[0, layout.UNIQUE] == len(unique)
    assert work.signs[: len(unique)].tolist() == unique
    assert work.signs[work.inverse].tolist() == expected
    for shard in range(3):
        mask = np.empty(len(unique), np.bool_)
        remote.owned(np.array(unique, np.uint64), shard, 3, mask)
        assert ((owner[: len(unique)] == shard) == mask).all() and counts[shard, 0] == mask.sum()
        assert place[: len(unique)][mask].tolist() == list(range(mask.sum()))


def test_shards_divide_all_signs_evenly():
    signs = (np.arange(30_000, dtype=np.uint64) * np.uint64(7)) | np.uint64(1 << 56)
    masks = np.empty((3, len(signs)), np.bool_)
    for shard in range(3):
        remote.owned(signs, shard, 3, masks[shard])
    assert (masks.sum(axis=0) == 1).all()
    assert (np.abs(masks.mean(axis=1) - 1 / 3) < 0.01).all()


def test_hash_agrees_with_the_reference():
    for key in (1, 2**56 | 12345, 2**64 - 1):
        assert int(cpu_half.mix(np.uint64(key))) == oracle.mix(key)
