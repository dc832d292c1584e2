"""Teachers whose rows are shaped as well-known logs are: display ads, impressions of a network, ratings of films."""

from __future__ import annotations

import numpy as np
import polars as pl
from quality_planted import Planted, drawn, effect, popular, standard


def display(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Thirteen counts with long tails and gaps, and twenty-six columns of ids that repeat one another, up to 10^5 ids.

    Every column is a view of one of six hidden things (a user, a page, an advertiser, …), most of them blurred: what
    a column says is said again by others, and a label depends on what is hidden rather than on the columns.
    """
    rng = np.random.default_rng(seed)
    total = num_rows + num_test
    hidden = [popular(rng, total, size, 0.9) for size in (40, 300, 1_000, 4_000, 12_000, 40_000)]
    numbers = np.full((total, 13), np.nan, np.float32)
    for i, gaps in enumerate(np.linspace(0.0, 0.45, 13)):
        level = effect(rng, hidden[i % 6], 40_000, 1.0) + rng.normal(0, 1.0, total)
        counts = np.floor(np.exp(0.6 + i % 4 + level)).astype(np.float32)
        numbers[:, i] = np.where(rng.random(total) < gaps / (1 + np.exp(level)) * 2, np.nan, counts)
    ids = []
    for i, size in enumerate(np.geomspace(4, 100_000, 26).astype(int)):
        view = (hidden[i % 6] * 2_654_435_761 + i) % size
        ids.append(np.where(rng.random(total) < 0.3, popular(rng, total, int(size)), view))
    logit = sum(effect(rng, column, 40_000, 0.42) for column in hidden)
    tastes = [rng.normal(0, 0.55, (40_000, 3))[column] for column in (hidden[1], hidden[3])]
    logit = logit + (tastes[0] * tastes[1]).sum(1)
    known = np.nan_to_num(np.log1p(numbers), nan=-1.0)
    logit = logit + standard(known) @ rng.normal(0, 0.14, 13)
    return drawn(rng, logit - 1.3, ids, numbers, num_rows, number_ops=("FillMissing", "LogOp", "Normalize"))


def counts(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Thirteen counts whose worth rises and falls, whose absence says something by itself, and eight columns of ids."""
    rng = np.random.default_rng(seed)
    total = num_rows + num_test
    users = popular(rng, total, 5_000, 0.9)
    numbers = np.full((total, 13), np.nan, np.float32)
    logit = np.zeros(total)
    for i, gaps in enumerate(np.linspace(0.0, 0.5, 13)):
        level = effect(rng, users, 5_000, 0.7) + rng.normal(0, 1.1, total)
        missing = rng.random(total) < gaps
        numbers[:, i] = np.where(missing, np.nan, np.floor(np.exp(0.5 + i % 4 + level)))
        turn, slope, hump, gone = rng.normal(0, 0.6), rng.normal(0, 0.15), rng.normal(0, 0.3), rng.normal(0, 0.3)
        logit += np.where(missing, gone, slope * level + hump * (np.abs(level - turn) < 0.8))
    sizes = (5, 12, 40, 150, 600, 2_500, 10_000)
    ids = [users, *[popular(rng, total, size) for size in sizes]]
    logit = logit + effect(rng, users, 5_000, 0.3)
    logit = logit + sum(effect(rng, column, size, 0.25) for column, size in zip(ids[1:], sizes, strict=True))
    return drawn(rng, logit - 1.2, ids, numbers, num_rows, number_ops=("FillMissing", "LogOp", "Normalize"))


def impressions(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Twenty columns of ids with heavy tails and 17 % clicks, in the order of time: what pages are worth moves on."""
    rng = np.random.default_rng(seed)
    total = num_rows + num_test
    day = np.arange(total) / total
    page, advert = popular(rng, total, 3_000, 1.15), popular(rng, total, 1_500, 1.1)
    device = np.where(rng.random(total) < 0.75, 0, popular(rng, total, 60_000, 0.7))
    address = popular(rng, total, 500_000, 0.75)
    hour = (24 * 10 * day).astype(int) % 24
    of_page = [(page * 2_654_435_761 + salt) % size for salt, size in enumerate((2_500, 1_600, 22, 7))]
    of_advert = [(advert * 40_503 + salt) % size for salt, size in enumerate((400, 170, 8, 9, 60, 4))]
    small = [popular(rng, total, size, 1.3) for size in (5, 4, 7, 60)]
    model = popular(rng, total, 4_000, 0.9)
    ids = [hour, page, *of_page, advert, *of_advert, device, address, model, *small, (address // 400) % 900]
    moved = effect(rng, page, 3_000, 0.6) + 2 * (day - 0.5) * effect(rng, page, 3_000, 0.25)
    logit = moved + effect(rng, advert, 1_500, 0.5) + effect(rng, address, 500_000, 0.2)
    logit = logit + effect(rng, model, 4_000, 0.25) + effect(rng, hour, 24, 0.1)
    tastes = [rng.normal(0, 0.5, (3_000, 3))[page], rng.normal(0, 0.5, (1_500, 3))[advert]]
    logit = logit + (tastes[0] * tastes[1]).sum(1) + sum(effect(rng, column, 60, 0.15) for column in small)
    return drawn(rng, logit - 2.25, ids, np.empty((total, 0), np.float32), num_rows)


def ratings(num_rows: int, num_test: int, seed: int = 0) -> Planted:
    """Users, films and a list of genres, with an age, a job and a gender: what is liked is a matter of taste."""
    rng = np.random.default_rng(seed)
    total, users, films, genres = num_rows + num_test, 940, 1_680, 18
    user, film = popular(rng, total, users, 0.55), popular(rng, total, films, 0.7)
    kinds = [np.sort(rng.choice(genres, rng.integers(1, 4), replace=False)) for _ in range(films)]
    of_film = np.zeros((films, genres))
    for i, found in enumerate(kinds):
        of_film[i, found] = 1 / len(found)
    ages = rng.integers(8, 70, users)
    jobs, genders = popular(rng, users, 21, 0.6), (rng.random(users) < 0.3).astype(int)
    likes = rng.normal(0, 0.5, (users, genres)) + rng.normal(0, 0.3, (21, genres))[jobs]
    logit = effect(rng, user, users, 0.6) + effect(rng, film, films, 0.75)
    logit = logit + np.einsum("ij,ij->i", likes[user], of_film[film])
    logit = logit + (rng.normal(0, 0.8, (users, 4))[user] * rng.normal(0, 0.5, (films, 4))[film]).sum(1)
    planted = drawn(
        rng, logit + 0.25, [user, film, jobs[user], genders[user]], ages[user].astype(np.float32)[:, None], num_rows
    )
    lists = pl.Series("genres", [kinds[i].tolist() for i in film], pl.List(pl.Int64))
    return Planted(
        planted.train.with_columns(lists[:num_rows]), planted.test.with_columns(lists[num_rows:]), planted.best,
        [*planted.categorical, "genres"], planted.continuous, lists=("genres",),
    )  # fmt: skip
