"""Data sets whose labels a known teacher draws: what there is to learn is known, and so is the best AUC."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from quality_logs import films, rare, sparse, tastes
from quality_planted import Planted, drawn, effect, pair, popular, standard
from quality_shapes import counts, display, impressions, ratings
from quality_tables import many60, many300, mixed, xor


def wide(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Thirteen skewed counts and twenty-six columns of ids, most of them rare: the shape of ad logs."""
    rng = np.random.default_rng(seed)
    total = num_rows + num_test
    sizes = np.geomspace(4, 200_000, 26).astype(int)
    ids = [popular(rng, total, size) for size in sizes]
    numbers = np.log1p(np.floor(rng.lognormal(1.5, 1.5, (total, 13)))).astype(np.float32)
    logit = sum(effect(rng, column, size, 0.28) for column, size in zip(ids, sizes, strict=True))
    logit = logit + standard(numbers) @ rng.normal(0, 0.18, 13)
    logit = logit + 0.35 * np.tanh(standard(numbers)[:, 0] * effect(rng, ids[4], sizes[4], 1.0))
    for first, second in ((0, 3), (2, 6), (5, 8)):
        logit = logit + pair(rng, ids[first], sizes[first], ids[second], sizes[second], 0.25)
    return drawn(rng, logit - 1.1, ids, numbers, num_rows)


def id_only(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Users and items, with a taste that is a product of two vectors: the shape of ratings."""
    rng = np.random.default_rng(seed)
    total, users, items = num_rows + num_test, 900, 1600
    ids = [popular(rng, total, users, 0.6), popular(rng, total, items, 0.8)]
    taste = (rng.normal(0, 1, (users, 4))[ids[0]] * rng.normal(0, 0.3, (items, 4))[ids[1]]).sum(1)
    logit = effect(rng, ids[0], users, 0.6) + effect(rng, ids[1], items, 0.8) + taste
    return drawn(rng, logit + 0.2, ids, np.empty((total, 0), np.float32), num_rows)


def numeric(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Sixteen numbers in a curved relation, and no ids."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(0, 1, (num_rows + num_test, 16)).astype(np.float32)
    hidden = np.tanh(numbers @ rng.normal(0, 0.35, (16, 8)))
    logit = hidden @ rng.normal(0, 1.0, 8) + numbers @ rng.normal(0, 0.15, 16)
    return drawn(rng, logit, [], numbers, num_rows)


def interactions(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Eight small columns of ids that say little alone and much in pairs, and four numbers."""
    rng = np.random.default_rng(seed)
    total = num_rows + num_test
    sizes = (6, 8, 12, 16, 20, 30, 40, 50)
    ids = [popular(rng, total, size, 0.5) for size in sizes]
    numbers = rng.normal(0, 1, (total, 4)).astype(np.float32)
    logit = sum(effect(rng, column, size, 0.25) for column, size in zip(ids, sizes, strict=True))
    logit = logit + numbers @ rng.normal(0, 0.25, 4)
    for first, second in ((0, 1), (2, 3), (1, 4), (0, 5), (3, 6)):
        logit = logit + pair(rng, ids[first], sizes[first], ids[second], sizes[second], 0.6)
    return drawn(rng, logit - 0.7, ids, numbers, num_rows)


def ads(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Twenty columns of ids and no numbers; two of them are almost unique: the shape of impressions."""
    rng = np.random.default_rng(seed)
    total = num_rows + num_test
    sizes = (4, 5, 7, 7, 8, 20, 24, 26, 60, 70, 170, 250, 430, 450, 2_000, 2_500, 4_000, 8_000, 100_000, 1_000_000)
    ids = [popular(rng, total, size) for size in sizes]
    logit = sum(effect(rng, column, size, 0.3) for column, size in zip(ids, sizes, strict=True))
    logit = logit + pair(rng, ids[5], sizes[5], ids[8], sizes[8], 0.3)
    return drawn(rng, logit - 1.8, ids, np.empty((total, 0), np.float32), num_rows)


TEACHERS: dict[str, Callable[..., Planted]] = {
    "wide": wide, "ads": ads, "id_only": id_only, "numeric": numeric, "interactions": interactions,
    "display": display, "counts": counts, "impressions": impressions, "ratings": ratings,
    "sparse": sparse, "rare": rare, "films": films, "tastes": tastes,
    "mixed": mixed, "xor": xor, "many60": many60, "many300": many300,
}  # fmt: skip
