"""Metrics by group: held against scikit-learn, group by group."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import DataError
from penstock.metrics import NDCG, GroupAUC

ROW = st.tuples(st.integers(0, 3), st.integers(-3, 3), st.integers(0, 1), st.integers(1, 4))


def by_group(groups):
    return [groups == group for group in np.unique(groups)]


@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=30))
def test_group_auc_is_the_mean_of_the_groups_aucs(rows) -> None:
    from sklearn.metrics import roc_auc_score

    groups, scores, labels, weights = map(np.array, zip(*rows, strict=True))
    aucs, sizes = [], []
    for mine in by_group(groups):
        if len(set(labels[mine])) == 2:
            aucs.append(roc_auc_score(labels[mine], scores[mine], sample_weight=weights[mine]))
            sizes.append(weights[mine].sum())
    expected = np.average(aucs, weights=sizes) if aucs else math.nan
    first, second = GroupAUC(), GroupAUC()
    first.update(scores[::2], labels[::2], weights[::2], groups[::2])
    second.update(scores[1::2], labels[1::2], weights[1::2], groups[1::2])
    second.merge(first)
    assert second.compute() == pytest.approx(expected, abs=1e-12, nan_ok=True)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3), st.integers(0, 4)), min_size=1, max_size=30),
       st.sampled_from([None, 1, 3]))  # fmt: skip
def test_ndcg_is_scikit_learn_s(rows, k) -> None:
    from sklearn.metrics import ndcg_score

    groups, scores, labels = map(np.array, zip(*rows, strict=True))
    found = [
        ndcg_score([np.append(labels[mine], 0)], [np.append(scores[mine], -1e9)], k=k)  # which wants two rows at least
        for mine in by_group(groups)
        if labels[mine].any()
    ]
    ndcg = NDCG(k)
    for start in range(0, len(groups), 7):
        part = slice(start, start + 7)
        ndcg.update(scores[part], labels[part], groups=groups[part].astype(str))
    assert ndcg.compute() == pytest.approx(np.mean(found) if found else math.nan, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("create", [GroupAUC, lambda **options: NDCG(**options)])
def test_beyond_its_memory_it_keeps_a_sample_of_whole_groups(create) -> None:
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(2_000), 10)
    labels = random.integers(0, 2, 20_000)
    scores = random.normal(size=20_000) + labels
    exact, parts = create(max_rows=20_000), [create(max_rows=3_000) for _ in range(2)]
    exact.update(scores, labels, groups=groups)
    place = random.permutation(20_000)
    for number, rows in enumerate(np.array_split(place, 10)):
        parts[number % 2].update(scores[rows], labels[rows], groups=groups[rows])
    one, other = create(max_rows=3_000), create(max_rows=3_000)
    for target, order in ((one, parts), (other, parts[::-1])):
        for part in order:
            target.merge(part)
    assert exact.share == 1.0 and one.share == other.share < 0.2
    assert one.compute() == pytest.approx(other.compute(), rel=1e-12)
    assert one.compute() == pytest.approx(exact.compute(), abs=0.03) and one.compute() != exact.compute()
    kept = one.state()["group"]
    assert set(np.unique(kept, return_counts=True)[1]) == {10}


def test_what_is_refused() -> None:
    for metric in (GroupAUC(), NDCG()):
        with pytest.raises(DataError, match="needs groups"):
            metric.update([0.5], [1])
        with pytest.raises(DataError, match="integers or text"):
            metric.update([0.5], [1], groups=[0.5])
    with pytest.raises(DataError, match="one group has more than 3 rows"):
        GroupAUC(max_rows=3).update([1, 2, 3, 4], [0, 1, 0, 1], groups=[7, 7, 7, 7])
