"""The generator's kernels against NumPy formulas and plain Python formatting."""

import numpy as np
import pytest

from penstock.data.synthetic import draws
from penstock.kernels import cpu_synthetic as kernels

KEY, NULL_KEY = draws.stream_key(5, "a"), draws.stream_key(5, "b")


def plain_lines(labels, integers, ranks, masks):
    lines = []
    for i in range(len(labels)):
        fields = [str(labels[i])]
        fields += ["" if column[i] == kernels.NULL_INTEGER else str(column[i]) for column in integers]
        for column, mask in zip(ranks, masks, strict=True):
            rank = np.array([column[i]])
            fields.append("" if column[i] < 0 else f"{draws.mix32(rank, mask)[0]:08x}")
        lines.append("\t".join(fields) + "\n")
    return "".join(lines).encode()


@pytest.mark.parametrize("rows", [0, 1, 3, 500])
def test_format_lines_writes_what_python_would(rows):
    rng = np.random.default_rng(rows)
    labels = rng.integers(0, 2, rows).astype(np.int32)
    odd = np.array([kernels.NULL_INTEGER, 0, 9, 10, 99, 100, -1, -3, -1000, 2**31 - 1, -(2**31) + 1], np.int32)
    integers = rng.choice(odd, (13, rows))
    ranks = rng.choice(np.array([-1, 0, 1, 2**31 - 1, 77777], np.int32), (26, rows))
    masks = rng.integers(0, 2**32, 26, dtype=np.uint32)
    out = np.empty(rows * (2 + 13 * 12 + 26 * 9), np.uint8)
    used = kernels.format_lines(labels, integers, ranks, masks, out)
    assert out[:used].tobytes() == plain_lines(labels, integers, ranks, masks)


def test_format_hex_is_the_arrow_layout():
    ranks = np.array([4, -1, -1, 0, 2**31 - 1], np.int32)
    text, offsets = np.empty(40, np.uint8), np.empty(6, np.int32)
    used = kernels.format_hex(ranks, np.uint32(99), text, offsets)
    assert offsets.tolist() == [0, 8, 8, 8, 16, 24] and used == 24
    expected = "".join(f"{i:08x}" for i in draws.mix32(ranks[ranks >= 0], 99))
    assert text[:used].tobytes().decode() == expected


def test_bits_are_splitmix64():
    # The first outputs of SplitMix64 seeded with 1234567, from its public reference implementation.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [int(kernels.bits(np.uint64(1234567), i)) for i in range(3)] == expected
    assert draws.bits(np.uint64(1234567), np.arange(3)).tolist() == expected


@pytest.mark.parametrize("cardinality", [1, 3, 1000, 2**31 - 1])
@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.1, 2.0])
def test_ranks_follow_the_numpy_formula(cardinality, exponent):
    out = np.empty(2000, np.int32)
    kernels.draw_ranks(KEY, NULL_KEY, 10, 0.25, cardinality, exponent, out)
    rows = np.arange(10, 2010)
    null = draws.uniform(NULL_KEY, rows) < 0.25
    np.testing.assert_array_equal(out, np.where(null, -1, draws.zipf(KEY, rows, cardinality, exponent)))


def test_integers_and_labels_follow_the_numpy_formula():
    out, rows = np.empty(2000, np.int32), np.arange(7, 2007)
    kernels.draw_integers(KEY, NULL_KEY, 7, 0.1, 1.5, 1.2, -3, out)
    null = draws.uniform(NULL_KEY, rows) < 0.1
    expected = np.floor(np.exp(1.5 + 1.2 * draws.normal(KEY, rows))) - 3
    np.testing.assert_array_equal(out, np.where(null, kernels.NULL_INTEGER, expected))
    labels, probability = np.empty(2000, np.int32), np.linspace(0, 1, 2000)
    kernels.draw_labels(KEY, 7, probability, labels)
    np.testing.assert_array_equal(labels, draws.uniform(KEY, rows) < probability)


def test_effects_follow_the_numpy_formula():
    a, b = np.arange(-1, 600, dtype=np.int32), np.arange(600, -1, -1, dtype=np.int32)
    shrink_a, shrink_b = (256 / (256 + np.maximum(x, 0)) for x in (a, b))
    logit = np.ones(a.size)
    kernels.add_main_effect(a, KEY, 0.5, 256.0, logit)
    expected = 1 + 0.5 * shrink_a * draws.normal(KEY, a.astype(np.int64) + 1)
    np.testing.assert_allclose(logit, expected, rtol=1e-12)

    def vectors(key, ranks):
        z = draws.bits(key, ranks.astype(np.int64) + 1)
        return np.stack([((z >> np.uint64(16 * k)) & np.uint64(0xFFFF)).astype(float) - 32767.5 for k in range(4)])

    kernels.add_pair_effect(a, KEY, b, NULL_KEY, 0.7, 256.0, logit)
    dot = (vectors(KEY, a) * vectors(NULL_KEY, b)).sum(0) * 6 / 65536**2
    assert 0.8 < dot.std() < 1.2
    expected += 0.7 * shrink_a * shrink_b * dot
    np.testing.assert_allclose(logit, expected, rtol=1e-9)

    numbers = np.empty(a.size)
    integers = np.where(a == 5, kernels.NULL_INTEGER, a - 3).astype(np.int32)
    kernels.standard_log(integers, 2.0, 1.5, numbers)
    np.testing.assert_allclose(numbers, np.where(a == 5, 0, (np.log1p(np.maximum(a - 3, 0)) - 2) / 1.5), rtol=1e-12)
    kernels.add_slope_effect(a, NULL_KEY, numbers, 0.3, 256.0, logit)
    expected += 0.3 * shrink_a * draws.normal(NULL_KEY, a.astype(np.int64) + 1) * numbers
    np.testing.assert_allclose(logit, expected, rtol=1e-9)


def test_mixed_ids_are_a_bijection():
    ranks = np.arange(200_000, dtype=np.int32)
    out = np.empty(ranks.size, np.uint32)
    kernels.mix_ids(ranks, np.uint32(12345), out)
    np.testing.assert_array_equal(out, draws.mix32(ranks, 12345))
    np.testing.assert_array_equal(draws.unmix32(out, 12345), ranks)
    assert np.unique(out).size == ranks.size
    assert abs(np.corrcoef(ranks, out)[0, 1]) < 0.01
