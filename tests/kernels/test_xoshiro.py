"""Numbers of xoshiro256++ seeded by PCG32: the kernel, the slow oracle and the published sequence agree."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.embedding import SGD, EmbeddingConfig, Init, SlotConfig, Store
from penstock.embedding.table import xoshiro_width
from penstock.kernels import cpu_xoshiro
from penstock.kernels import reference_embedding as oracle


def test_the_oracle_gives_the_published_sequence() -> None:
    state = [1, 2, 3, 4]  # the seed that tests of xoshiro256++ begin with
    assert [oracle.xoshiro_next(state) for _ in range(4)] == [41943041, 58720359, 3588806011781223, 3591011842654386]


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1, 0x0100_0000_0000_002A])
def test_the_kernel_agrees_with_the_oracle(seed: int) -> None:
    state, found = cpu_xoshiro.seeded(np.uint64(seed)), []
    for _ in range(9):
        number, state = cpu_xoshiro.drawn(tuple(np.uint64(word) for word in state))
        found.append(float(number))
    assert found == oracle.xoshiro_draws(seed, 9)
    assert all(0 <= number < 1 for number in found)


@pytest.mark.parametrize("dim", [1, 5, 16])
@pytest.mark.parametrize(("a", "b"), [(-0.01, 0.01), (0.5, 0.75), (0.25, 0.25)])
def test_rows_of_a_store_are_float32_arithmetic_on_these_numbers(dim: int, a: float, b: float) -> None:
    init = Init("uniform", a, b, generator="xoshiro256++")
    config = EmbeddingConfig([SlotConfig("user", dim, init=init), SlotConfig("item", dim, init=init)], prefix_bits=8)
    ids = np.array([0, 1, 7, 2**40], np.uint64)
    with Store(config, SGD(lr=0.1)) as store:
        found = store.lookup({"user": ids, "item": ids}, train=True)
        for number, name in enumerate(["user", "item"], start=1):
            for row, identity in zip(found[name], ids.tolist(), strict=True):
                draws = np.array(oracle.xoshiro_draws((number << 56) + identity, dim), np.float32)
                expected = draws * np.float32(xoshiro_width(init)) + np.float32(a)
                assert row.tobytes() == expected.tobytes()


def test_the_upper_end_is_never_reached() -> None:
    init = Init("uniform", 1.0, float(np.nextafter(np.float32(1), np.float32(2))), generator="xoshiro256++")
    largest = np.float32(1 - 2.0**-23) * np.float32(xoshiro_width(init)) + np.float32(init.a)
    assert largest < np.float32(init.b)
