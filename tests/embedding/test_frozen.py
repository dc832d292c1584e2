"""Tables that predict: the numbers of those that were trained, zeros for what has no row, no state, no training."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from penstock import ColumnSchema, Schema
from penstock.core.errors import ArtefactError, ParameterError
from penstock.embedding import CachedEmbeddings, FrozenEmbeddings, FusedEmbeddings
from penstock.nn import from_config

SIZES = {"user": 40, "item": 7, "tags": 12}
SCHEMA = Schema(
    [
        ColumnSchema(name, "int64", role="categorical", cardinality=size, is_list=name == "tags")
        for name, size in SIZES.items()
    ]
)


def batch(rows: int = 30, seed: int = 0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 4, (rows,), generator=generator)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    values = torch.randint(0, SIZES["tags"], (int(offsets[-1]),), generator=generator)
    singles = {name: torch.randint(0, SIZES[name], (rows,), generator=generator) for name in ("user", "item")}
    return {**singles, "tags": (values, offsets)}


def trained(kind: type[FusedEmbeddings] = FusedEmbeddings, **settings: Any) -> FusedEmbeddings:
    torch.manual_seed(1)
    tables = kind(SCHEMA, 4, lr=0.5, **settings)
    for seed in range(5):
        tables(batch(seed=seed)).square().sum().backward()
    return tables


def frozen(tables: FusedEmbeddings) -> FrozenEmbeddings:
    description, weights = tables.for_serving(SCHEMA)
    made = from_config(description)
    made.load_state_dict(weights)
    return made


@pytest.mark.parametrize("pooling", ["sum", "mean", "sqrt_n"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_same_bits_without_the_state(pooling: str, dtype: str) -> None:
    tables = trained(optimizer="adam", pooling=pooling, dtype=dtype)
    made = frozen(tables)
    with torch.no_grad():
        assert torch.equal(made(batch(seed=9)), tables(batch(seed=9)))
        assert made(batch(0)).shape == (0, 3, 4)
    held = sum(b.numel() * b.element_size() for b in made.buffers())
    assert held < 60 * 4 * made.weight.element_size() + 100 and list(made.state_dict()) == ["weight"]
    assert made.weight.dtype == tables.weight.dtype


def test_those_behind_a_cache() -> None:
    tables = trained(CachedEmbeddings, cache_rows=55)
    made = frozen(tables)
    with torch.no_grad():
        assert torch.equal(made(batch(seed=9)), tables(batch(seed=9)))


def test_an_id_without_a_row_is_zeros_and_no_neighbour() -> None:
    tables = trained(pooling="mean")
    made = frozen(tables)
    strange = {
        "user": torch.tensor([40, -1, 3]),
        "item": torch.tensor([0, 2**40, -(2**62)]),
        "tags": (torch.tensor([5, 12, 99, -3]), torch.tensor([0, 2, 4, 4])),
    }
    found, known = made(strange), tables.weight
    assert not found[:2, 0].any() and not found[1:, 1].any() and not found[1:, 2].any()
    assert torch.equal(found[2, 0], known[3]) and torch.equal(found[0, 1], known[40])
    assert torch.equal(found[0, 2], known[47 + 5] / 2)  # the unknown one of the two counts, as in a store


def test_nothing_trains_them() -> None:
    made = frozen(trained())
    before = made.weight.clone()
    found = made(batch())
    assert not found.requires_grad and torch.equal(made.weight, before)


def test_tables_without_names_go_by_their_order() -> None:
    torch.manual_seed(0)
    tables = FusedEmbeddings(list(SIZES.values()), 4)
    ids = torch.tensor([[39, 6], [1, 2]])
    made = frozen(tables)
    assert made.names == list(SIZES)
    with torch.no_grad():
        lists = {"tags": (torch.tensor([1]), torch.tensor([0, 1, 1]))}
        named = {"user": ids[:, 0], "item": ids[:, 1], **lists}
        by_order = tables((ids, {"table_2": lists["tags"]}))
        assert torch.equal(made(named), by_order)


def test_what_does_not_fit() -> None:
    for tables in (FusedEmbeddings([5, 5], 4), FusedEmbeddings({"a": 1, "b": 2, "c": 3}, 4)):
        with pytest.raises(ParameterError, match="the model reads embeddings of"):
            tables.for_serving(SCHEMA)
    description, weights = trained().for_serving(SCHEMA)
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        from_config(description).load_state_dict({"weight": weights["weight"][:-1]})
    with pytest.raises(ArtefactError, match="has no argument 'optimizer'"):
        from_config({**description, "arguments": {"optimizer": "sgd"}})
