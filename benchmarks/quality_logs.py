"""Teachers with the sizes, rates of clicks and tails that public samples of logs have: ads, impressions, films."""

from __future__ import annotations

import numpy as np
import polars as pl
from quality_planted import Planted, drawn, effect, popular, standard

# Ids of the 26 columns of Criteo's Kaggle logs, as its users count them.
_CRITEO = (
    1_460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5_683, 8_351_593, 3_194, 27, 14_992, 5_461_306,
    10, 5_652, 2_173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572,
)  # fmt: skip


def sparse(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Thirteen counts and twenty-six columns up to 10^7 ids; few ids of each come often and say most; 25 % clicks.

    A page, an advert and a user are behind the columns. Counts grow with what a user does, and are missing in part.
    """
    rng = np.random.default_rng(seed)
    total = num_rows + num_test
    hidden = [popular(rng, total, size, skew) for size, skew in ((5_000, 1.2), (20_000, 1.1), (1_000_000, 1.0))]
    ids = []
    for i, size in enumerate(_CRITEO):
        view = (hidden[i % 3] * 2_654_435_761 + 97 * i) % size
        ids.append(np.where(rng.random(total) < 0.25, popular(rng, total, min(size, 100_000), 1.3), view))
    habit = effect(rng, hidden[2], 1_000_000, 0.6)
    numbers = np.full((total, 13), np.nan, np.float32)
    for i, gaps in enumerate((0.45, 0, 0.21, 0.22, 0.03, 0.22, 0.04, 0, 0.04, 0.45, 0.04, 0.76, 0.22)):
        level = rng.normal(0, 0.6) * habit + rng.normal(0, 1.2, total)
        numbers[:, i] = np.where(rng.random(total) < gaps, np.nan, np.floor(np.exp(0.8 + i % 5 + level)))
    logit = sum(effect(rng, column, size, 0.4) for column, size in zip(hidden, (5_000, 20_000, 1_000_000), strict=True))
    logit = logit + sum(effect(rng, ids[i], _CRITEO[i], 0.3) for i in (5, 8, 13, 16, 19, 21, 22)) + 0.4 * habit
    tastes = [rng.normal(0, 0.45, (20_000, 3))[column] for column in hidden[:2]]
    logit = logit + (tastes[0] * tastes[1]).sum(1)
    logit = logit + standard(np.nan_to_num(np.log1p(numbers), nan=-1.0)) @ rng.normal(0, 0.2, 13)
    return drawn(rng, logit - 1.35, ids, numbers, num_rows, number_ops=("FillMissing", "LogOp", "Normalize"))


def rare(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Sixteen columns of ids in the order of time and 3 % clicks; the test rows come later, with adverts of their own.

    Every advert runs for a while: many of the test rows' were seldom seen before.
    """
    rng = np.random.default_rng(seed)
    total = num_rows + num_test
    day = np.arange(total) / total
    site, place = popular(rng, total, 2_000, 1.2), popular(rng, total, 7, 1.4)
    advert = (popular(rng, total, 600, 1.0) + (200 * day).astype(int)) % 800
    person, model = popular(rng, total, 300_000, 0.6), popular(rng, total, 3_000, 1.0)
    hour = (24 * 7 * day).astype(int) % 24
    of_site = [(site * 2_654_435_761 + salt) % size for salt, size in enumerate((1_500, 300, 25))]
    of_advert = [(advert * 40_503 + salt) % size for salt, size in enumerate((150, 60, 9, 5))]
    small = [popular(rng, total, size, 1.3) for size in (4, 5, 60)]
    logit = effect(rng, site, 2_000, 0.7) + effect(rng, place, 7, 0.4) + effect(rng, advert, 800, 0.6)
    logit = logit + effect(rng, model, 3_000, 0.3) + effect(rng, hour, 24, 0.15) + effect(rng, person, 300_000, 0.2)
    tastes = [rng.normal(0, 0.5, (2_000, 2))[site], rng.normal(0, 0.5, (800, 2))[advert]]
    logit = logit + (tastes[0] * tastes[1]).sum(1) + sum(effect(rng, column, 60, 0.15) for column in small)
    ids = [hour, site, *of_site, place, advert, *of_advert, person, model, *small]
    return drawn(rng, logit - 4.1, ids, np.empty((total, 0), np.float32), num_rows)


def films(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Users and films and nothing else, 60 % liked: what they say alone counts most, and taste a little."""
    rng = np.random.default_rng(seed)
    total, users, num_films = num_rows + num_test, 943, 1_682
    user, film = popular(rng, total, users, 0.6), popular(rng, total, num_films, 0.9)
    logit = effect(rng, user, users, 0.7) + effect(rng, film, num_films, 0.9) - 0.15 * np.log1p(film / 100)
    taste = (rng.normal(0, 0.6, (users, 3))[user] * rng.normal(0, 0.6, (num_films, 3))[film]).sum(1)
    return drawn(rng, logit + taste + 0.7, [user, film], np.empty((total, 0), np.float32), num_rows)


def tastes(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Visits of a shop, 20 % of them bought: what counts is whether an item is of the kind that a user likes.

    No column says that by itself, so there is hardly a slope where training begins.
    """
    rng = np.random.default_rng(seed)
    total, users, items, kinds = num_rows + num_test, 300, 150, 5
    user, item, hour = popular(rng, total, users, 0.7), popular(rng, total, items, 0.7), rng.integers(0, 24, total)
    likes = rng.integers(0, kinds, users)
    of_item = [np.sort(rng.choice(kinds, rng.integers(1, 3), replace=False)) for _ in range(items)]
    has = np.zeros((items, kinds), bool)
    for i, found in enumerate(of_item):
        has[i, found] = True
    price = rng.lognormal(2.5, 0.5, total).astype(np.float32)
    logit = -2.6 + 2.6 * has[item, likes[user]] + 0.6 * (hour >= 18) - 0.03 * (price - 12)
    planted = drawn(rng, logit, [user, item, hour], price[:, None], num_rows)
    lists = pl.Series("kinds", [of_item[i].tolist() for i in item], pl.List(pl.Int64))
    return Planted(
        planted.train.with_columns(lists[:num_rows]), planted.test.with_columns(lists[num_rows:]), planted.best,
        [*planted.categorical, "kinds"], planted.continuous, lists=("kinds",),
    )  # fmt: skip
