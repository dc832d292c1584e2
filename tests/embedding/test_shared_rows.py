"""Columns of one vocabulary share their rows in tables on a device, as they do in a store."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from penstock import ColumnSchema, Schema
from penstock.core.errors import ParameterError
from penstock.embedding import SGD, CachedEmbeddings, FrozenEmbeddings, FusedEmbeddings, SlotConfig, Store

_SHARED = {"role": "categorical", "cardinality": 9, "properties": {"vocabulary": "item_last"}}
SCHEMA = Schema(
    [
        ColumnSchema("item", "int64", **_SHARED),
        ColumnSchema("user", "int64", role="categorical", cardinality=5),
        ColumnSchema("last", "int64", is_list=True, **_SHARED),
    ]
)
BATCH = {
    "item": torch.tensor([3, 8, 3]),
    "user": torch.tensor([0, 4, 4]),
    "last": (torch.tensor([8, 3, 1, 1]), torch.tensor([0, 1, 3, 4])),
}


@pytest.fixture(params=["fused", "cached"])
def make(request: pytest.FixtureRequest) -> Any:
    if request.param == "fused":
        return lambda *given, **named: FusedEmbeddings(*given, optimizer="sgd", lr=0.5, **named)
    return lambda *given, **named: CachedEmbeddings(*given, cache_rows=14, optimizer="sgd", lr=0.5, **named)


def test_steps_are_those_of_one_table(make: Any) -> None:
    tables = make(SCHEMA, 4)
    assert tables.num_rows == 14
    all_rows = tables.state_dict()["weight"].clone().requires_grad_()
    items, users = all_rows[:9], all_rows[9:]
    lists = torch.stack([items[8], items[3] + items[1], items[1]])
    wanted = torch.stack([items[BATCH["item"]], users[BATCH["user"]], lists], 1)
    found = tables(BATCH)
    torch.testing.assert_close(found, wanted)
    factors = torch.arange(36.0).view(3, 3, 4) / 10
    (found * factors).sum().backward()
    (gradient,) = torch.autograd.grad((wanted * factors).sum(), all_rows)
    torch.testing.assert_close(tables.state_dict()["weight"], (all_rows - 0.5 * gradient).detach())


def test_what_is_served_and_plain_tables_share_as_well(make: Any) -> None:
    tables = make(SCHEMA, 4)
    tables(BATCH).sum().backward()
    tables.eval()
    with torch.no_grad():
        wanted = tables(BATCH)
    description, weights = tables.for_serving(SCHEMA)
    frozen = FrozenEmbeddings(Schema.from_dict(description["schema"]), **description["arguments"])
    frozen.load_state_dict(weights)
    torch.testing.assert_close(frozen(BATCH), wanted)
    torch.testing.assert_close(tables.tables()(BATCH).detach(), wanted)
    assert torch.equal(frozen({**BATCH, "item": torch.tensor([9, 9, 9])})[:, 0], torch.zeros(3, 4))  # not a user's row


def test_nothing_is_shared_where_it_cannot_or_shall_not_be(make: Any) -> None:
    assert make(SCHEMA, 4, share=False).num_rows == 23
    assert make(SCHEMA, {"item": 4, "user": 4, "last": 8}).num_rows == 23
    assert make({"item": 9, "user": 5, "last": 9}, 4).num_rows == 23
    description, _ = make(SCHEMA, 4, share=False).for_serving(SCHEMA)
    assert "share" not in description["arguments"]


def test_either_kind_loads_the_others_state() -> None:
    fused = FusedEmbeddings(SCHEMA, 4, optimizer="sgd", lr=0.5)
    cached = CachedEmbeddings(SCHEMA, 4, cache_rows=14, optimizer="sgd", lr=0.5)
    fused(BATCH).sum().backward()
    cached.load_state_dict(fused.state_dict())
    torch.testing.assert_close(cached(BATCH), fused(BATCH))


@pytest.mark.parametrize("group", ["", "both"])
def test_a_store_behind_a_cache_must_share_likewise(group: str) -> None:
    slots = [SlotConfig("user", 4), *(SlotConfig(name, 4, group=group) for name in ("item", "last"))]
    with Store(slots, SGD(lr=0.5)) as store:
        if group:
            assert CachedEmbeddings(SCHEMA, 4, cache_rows=14, optimizer=SGD(lr=0.5), store=store).num_rows == 14
        else:
            with pytest.raises(ParameterError, match="'last' and 'item' have one vocabulary and share their rows"):
                CachedEmbeddings(SCHEMA, 4, cache_rows=14, optimizer=SGD(lr=0.5), store=store)
