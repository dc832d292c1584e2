"""Tables of several dims: each group trains as tables of that dim alone do, in every form, behind a cache or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from penstock import ColumnSchema, Schema
from penstock.core.errors import DataError, ParameterError
from penstock.embedding import SGD, CachedEmbeddings, FrozenEmbeddings, FusedEmbeddings, SlotConfig, Store, prefetched
from penstock.embedding.cached.cache_shares import shared_rows

SIZES = {"user": 60, "item": 9, "shop": 30, "tags": 25}
DIMS = {"user": 6, "item": 3, "shop": 6, "tags": 3}  # columns of a dim do not lie side by side
OPTIMIZERS = ["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam"]


def batch(seed: int, rows: int = 14) -> dict:
    torch.manual_seed(seed)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.randint(0, 4, (rows,)).cumsum(0)])
    found = {name: torch.randint(0, SIZES[name], (rows,)) for name in ("user", "item", "shop")}
    return {**found, "tags": (torch.randint(0, 25, (int(offsets[-1]),)), offsets)}


def packed(ids: dict) -> tuple:
    return torch.stack([ids[name] for name in ("user", "item", "shop")], 1), {"tags": ids["tags"]}


def apart(tables: FusedEmbeddings, **settings) -> list[FusedEmbeddings]:
    """Tables of one dim each, with the weights of these."""
    found = []
    for group in tables.groups:
        found.append(FusedEmbeddings(group.sizes, group.dim, output="concat", **settings))
        found[-1].weight.copy_(group.weight)
    return found


def side_by_side(parts: list[FusedEmbeddings], ids: dict) -> torch.Tensor:
    """What tables of several dims give, of tables of one dim each."""
    columns = {}
    for tables in parts:
        columns.update(zip(tables.names, tables(ids).split(tables.dim, 1), strict=True))
    return torch.cat([columns[name] for name in DIMS], 1)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_group_trains_as_it_would_alone(optimizer: str, dtype: str) -> None:
    settings = {"optimizer": optimizer, "lr": 0.1, "pooling": "mean", "scale": 0.5, "dtype": dtype}
    tables = FusedEmbeddings(SIZES, DIMS, **settings)
    parts = apart(tables, **settings)
    for seed in range(3):
        ids = batch(seed)
        found, wanted = tables(packed(ids) if seed % 2 else ids), side_by_side(parts, ids)
        assert found.shape == (14, 18) == (14, tables.width())
        assert torch.equal(found, wanted)
        factor = torch.randn_like(found)
        for out in (found, wanted):
            (out * factor).sum().backward()
        for group, alone in zip(tables.groups, parts, strict=True):
            assert torch.equal(group.weight, alone.weight)
    assert int(tables.steps) == 3 and tables.stats()["rows"] == sum(SIZES.values())


def test_every_form_of_ids_and_dims_gives_the_same() -> None:
    sizes = {name: SIZES[name] for name in ("user", "item", "shop")}
    dims = {name: DIMS[name] for name in sizes}
    tables, listed = FusedEmbeddings(sizes, dims), FusedEmbeddings(sizes, [6, 3, 6])
    listed.load_state_dict(tables.state_dict())
    columns = {name: torch.randint(0, rows, (5,)) for name, rows in sizes.items()}
    matrix = torch.stack(list(columns.values()), 1)
    forms = [columns, matrix, matrix.int().t().contiguous().t(), {**columns, "item": columns["item"][:, None]}]
    for ids in forms:
        assert torch.equal(tables(ids), listed(matrix))
    found = tables.lookup(columns)
    assert {name: part.shape[1] for name, part in found.items()} == dims == tables.dims == tables.dim
    before = {group.dim: group.weight.clone() for group in tables.groups}
    tables.update(found, {"item": torch.ones(5, 3)})
    assert torch.equal(before[6], tables.groups[0].weight) and not torch.equal(before[3], tables.groups[1].weight)
    assert FusedEmbeddings(sizes, dict.fromkeys(sizes, 5)).output == "stack"  # one dim, however it is said


def test_numbers_beside_embeddings_of_several_dims() -> None:
    tables = FusedEmbeddings([7, 8], [3, 2], align=8)
    dense = torch.randn(5, 2, requires_grad=True)
    out = tables(torch.zeros(5, 2, dtype=torch.int64), dense)
    assert out.shape == (5, 8) and torch.equal(out[:, 5:7], dense) and not out[:, 7:].any()
    (out * torch.arange(8.0)).sum().backward()
    torch.testing.assert_close(dense.grad, torch.tensor([5.0, 6.0]).expand(5, 2))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_cache_for_each_dim_changes_nothing(optimizer: str) -> None:
    cached = CachedEmbeddings(SIZES, DIMS, cache_rows=90, optimizer=optimizer, lr=0.1, scale=0.3)
    plain = FusedEmbeddings(SIZES, DIMS, optimizer=optimizer, lr=0.1)
    plain.load_state_dict(cached.state_dict())
    assert sum(len(group.weight) for group in cached.groups) == 90 < cached.num_rows
    for ids in prefetched([batch(seed) for seed in range(8)], cached, ids=lambda b: b):
        found, wanted = cached(ids), plain(ids)
        assert torch.equal(found, wanted)
        factor = torch.randn_like(found)
        for out in (found, wanted):
            (out * factor).sum().backward()
    mine, theirs = cached.state_dict(), plain.state_dict()
    assert mine.keys() == theirs.keys() and {"weight_6", "weight_3"} <= mine.keys()
    for key in mine:
        assert torch.equal(mine[key], theirs[key]), key
    stats = cached.stats()
    assert stats["batches"] == 8 and stats["written_back"] > 0
    assert stats["rows"] == cached.num_rows and {s.dim for s in cached.store.config} == {3, 6}
    again = CachedEmbeddings(SIZES, DIMS, cache_rows=90, optimizer=optimizer, store=cached.store)
    assert torch.equal(again(batch(0)), plain(batch(0)))


def test_how_a_cache_is_shared() -> None:
    assert shared_rows(90, SIZES) == {"user": 28, "item": 9, "shop": 28, "tags": 25}
    assert shared_rows(1000, SIZES) == SIZES
    assert set(shared_rows(2, SIZES).values()) == {1}
    cached = CachedEmbeddings(SIZES, DIMS, cache_rows=20)
    with pytest.raises(ParameterError, match="=20, of which 10 are for the tables user, shop, does not hold"):
        cached(batch(0))


def matrix_of(ids: dict) -> dict:
    """The batch with padded lists of one id."""
    return {**ids, "tags": torch.zeros((len(ids["user"]), 1), dtype=torch.int64)}


def schema() -> Schema:
    settings = {"dtype": "int64", "role": "categorical"}
    return Schema([ColumnSchema(n, **settings, cardinality=r, is_list=n == "tags") for n, r in SIZES.items()])


def test_frozen_tables_of_several_dims(tmp_path: Path) -> None:
    for tables in (FusedEmbeddings(schema(), DIMS), CachedEmbeddings(schema(), DIMS, cache_rows=90)):
        description, weights = tables.for_serving(schema())
        frozen = FrozenEmbeddings(schema(), **description["arguments"])
        frozen.load_state_dict(weights)
        ids = batch(1)
        with torch.no_grad():
            assert torch.equal(frozen(ids), tables(ids))
        assert not frozen({**ids, "item": torch.full((14,), 9)})[:, 6:9].any()
        tables.save(tmp_path / type(tables).__name__)
        other = FusedEmbeddings(schema(), DIMS)
        other.load(tmp_path / type(tables).__name__)
        assert torch.equal(other(ids), tables(ids))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ParameterError, match=r'output="stack" .* needs one dim'):
        FusedEmbeddings(SIZES, DIMS, output="stack")
    with pytest.raises(ParameterError, match=r"FusedEmbeddings\.dim names 'usr'; did you mean 'user'"):
        FusedEmbeddings(SIZES, {**DIMS, "usr": 3})
    with pytest.raises(ParameterError, match=r"CachedEmbeddings\.dim has nothing for 'item'"):
        CachedEmbeddings(SIZES, {"user": 3}, cache_rows=9)
    with pytest.raises(ParameterError, match="lists 2 dims"):
        FusedEmbeddings(SIZES, [3, 4])
    with pytest.raises(ParameterError, match=r"FusedEmbeddings\.dim\.shop must be an int"):
        FusedEmbeddings(SIZES, {**DIMS, "shop": 0})
    with pytest.raises(ParameterError, match=r"FusedEmbeddings\.dim must be an int"):
        FusedEmbeddings(SIZES, "6")
    with pytest.raises(ParameterError, match="plain tables have one dim"):
        FusedEmbeddings(schema(), DIMS).tables()
    slots = [SlotConfig(name, 6) for name in SIZES]
    with pytest.raises(ParameterError, match=r"slot 'item' of CachedEmbeddings\.store must have dim=3"):
        CachedEmbeddings(SIZES, DIMS, cache_rows=90, optimizer="sgd", store=Store(slots, SGD()))


@pytest.mark.parametrize("kind", [FusedEmbeddings, CachedEmbeddings])
def test_wrong_ids_are_named(kind: type) -> None:
    tables = kind(SIZES, DIMS, **({"cache_rows": 90} if kind is CachedEmbeddings else {}))
    ids = batch(0)
    with pytest.raises(DataError, match="id 30 is outside table 'shop', which has rows 0 to 29"):
        tables({**ids, "shop": torch.full((14,), 30)})
    with pytest.raises(DataError, match="id -1 is outside table 'item'"):
        tables({**ids, "item": torch.full((14,), -1)})
    with pytest.raises(DataError, match=r"as long, got lengths \[13, 14\]"):
        tables({name: column[1:] if DIMS[name] == 3 else column for name, column in matrix_of(ids).items()})
    with pytest.raises(DataError, match=r"ids must be \(B, 4\)"):
        tables(torch.zeros((2, 3), dtype=torch.int64))
    with pytest.raises(DataError, match="sample weights of 'usr'"):
        tables(ids, sample_weights={"usr": torch.ones(3)})
    before = [group.weight.clone() for group in tables.groups]
    assert all(torch.equal(a, group.weight) for a, group in zip(before, tables.groups, strict=True))


def test_triton_trains_the_same(on_triton: Callable[..., str]) -> None:
    """The kernels of a GPU on Triton's interpreter."""
    assert "trained alike" in on_triton(__file__)


def _interpreted() -> None:
    torch.manual_seed(0)
    tables = FusedEmbeddings(SIZES, DIMS, lr=0.1)
    cached = CachedEmbeddings(SIZES, DIMS, cache_rows=90, lr=0.1)
    cached.load_state_dict(tables.state_dict())
    parts = apart(tables, lr=0.1)
    for seed in range(2):
        ids = batch(seed, rows=5)
        outputs = [tables(ids), cached(ids), side_by_side(parts, ids)]
        for out in outputs:
            assert torch.equal(out, outputs[0])
            out.square().sum().backward()
    for group, alone in zip(tables.groups, parts, strict=True):
        assert torch.equal(group.weight, alone.weight)
        assert torch.equal(cached.state_dict()[group.key("weight")], group.weight)
    tables({**batch(0), "shop": torch.full((14,), 30)})
    try:
        tables.check_ids()
    except DataError as error:
        assert "id 30 is outside table 'shop'" in str(error)
        print("trained alike")


if __name__ == "__main__":
    _interpreted()
