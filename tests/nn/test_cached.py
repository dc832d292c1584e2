"""Tables behind a cache train as tables without one, whatever is evicted."""

from __future__ import annotations

import pytest
import torch

from penstock.core.errors import DataError, ParameterError
from penstock.nn import CachedEmbeddings, FusedEmbeddings

SIZES = {"user": 300, "item": 9, "tags": 40}


def batch(seed: int, rows: int = 12) -> dict:
    torch.manual_seed(seed)
    lengths = torch.randint(0, 4, (rows,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    user = (300 ** torch.rand(rows)).long().clamp(max=299)  # some come again and again
    return {
        "user": user,
        "item": torch.randint(0, 9, (rows,), dtype=torch.int8),
        "tags": (torch.randint(0, 40, (int(offsets[-1]),)), offsets),
    }


@pytest.mark.parametrize("name", ["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam"])
@pytest.mark.parametrize("cache_rows", [60, 400])  # the smaller holds one batch and hardly more
def test_training_equals_tables_without_a_cache(name: str, cache_rows: int) -> None:
    settings = {"optimizer": name, "lr": 0.1, "pooling": "mean"}
    cached = CachedEmbeddings(SIZES, 6, cache_rows=cache_rows, **settings)
    plain = FusedEmbeddings(SIZES, 6, **settings)
    plain.load_state_dict(cached.state_dict())
    for seed in range(25):
        factor = torch.randn(12, 3, 6)
        found, wanted = cached(batch(seed)), plain(batch(seed))
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
        for out in (found, wanted):
            (out * factor).sum().backward()
        if seed % 7 == 0:  # looking without training moves rows, too
            with torch.no_grad():
                torch.testing.assert_close(cached(batch(seed + 100)), plain(batch(seed + 100)), rtol=0, atol=0)
    mine, theirs = cached.state_dict(), plain.state_dict()
    assert mine.keys() == theirs.keys()
    for key in mine:
        torch.testing.assert_close(mine[key], theirs[key], rtol=0, atol=0)


def test_rows_are_really_evicted() -> None:
    cached = CachedEmbeddings([1000], 4, cache_rows=10, optimizer="sgd", lr=1.0)
    start = cached.host["weight"].clone()
    for low in range(0, 1000, 10):
        cached(torch.arange(low, low + 10)[:, None]).sum().backward()
    assert len(cached.weight) == 10
    torch.testing.assert_close(cached.state_dict()["weight"], start - 1)


def test_loading_forgets_what_was_cached() -> None:
    first, second = (CachedEmbeddings([50], 4, cache_rows=8, scale=1.0) for _ in range(2))
    ids = torch.tensor([[1], [2]])
    second(ids)
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(second(ids), first(ids))


def test_bad_input() -> None:
    cached = CachedEmbeddings({"user": 20}, 4, cache_rows=4)
    with pytest.raises(ParameterError, match="cache_rows=4 does not hold the 5 ids"):
        cached(torch.arange(5)[:, None])
    with pytest.raises(DataError, match="id 20 is outside table 'user', which has rows 0 to 19"):
        cached(torch.tensor([[20]]))
    first = cached(torch.tensor([[1]]))
    cached(torch.tensor([[2]]))
    with pytest.raises(ParameterError, match="backward"):
        first.sum().backward()
    assert cached(torch.empty((0, 1), dtype=torch.int64)).shape == (0, 1, 4)
