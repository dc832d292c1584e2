"""Checkpoints of tables on a device whose numbers somebody has chosen: each is one that can be, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from penstock.core import artefact
from penstock.core.errors import ArtefactError
from penstock.embedding import CachedEmbeddings, HashedEmbeddings
from penstock.embedding.module_files import KIND, VERSION
from penstock.embedding.tensor_files import write_tensors

MAKERS: dict[str, Callable[[], HashedEmbeddings | CachedEmbeddings]] = {
    "hashed": lambda: HashedEmbeddings(["user", "item"], dim=4, capacity=16, max_rows=60),
    "cached": lambda: CachedEmbeddings(["user", "item"], dim=4, cache_rows=128, hashed=True),
}


def step(tables: HashedEmbeddings | CachedEmbeddings, seed: int) -> None:
    ids = torch.randint(0, 100, (20, 2), generator=torch.Generator().manual_seed(seed))
    tables(ids).sum().backward()


@pytest.fixture(scope="module", params=MAKERS)
def saved(request: pytest.FixtureRequest) -> tuple[str, dict[str, Tensor]]:
    """The state of tables that have rows, and of the bounded ones some that are nobody's."""
    tables = MAKERS[request.param]()
    for seed in range(4):
        step(tables, seed)
    return request.param, {name: tensor.detach().clone() for name, tensor in tables.state_dict().items()}


def put(name: str, place: int, value: int) -> Callable[[dict[str, Tensor]], None]:
    def change(state: dict[str, Tensor]) -> None:
        state[name].view(-1)[place] = value

    return change


def twice(state: dict[str, Tensor]) -> None:
    first, second = (state["tables"] == 0).nonzero().flatten()[:2].tolist()
    state["ids"][first] = state["ids"][second]


def as_dtype(name: str, dtype: torch.dtype) -> Callable[[dict[str, Tensor]], None]:
    return lambda state: state.update({name: state[name].to(dtype)})


FORGED: dict[str, Callable[[dict[str, Tensor]], None]] = {
    "one id twice": twice,
    "a table that there is not": put("tables", 0, 2),
    "a table below none": put("tables", 0, -2),
    "the id that is no id": lambda state: put("ids", int((state["tables"] == 0).nonzero()[0]), -1)(state),
    "a step beyond all": lambda state: put("touched", int((state["tables"] == 0).nonzero()[0]), 2**31)(state),
    "a step before all": lambda state: put("touched", int((state["tables"] == 0).nonzero()[0]), -5)(state),
    "a clock beyond all": put("clock", 0, 2**62),
    "a clock before all": put("clock", 0, -1),
    "a free row that is taken": lambda state: state.update(free=(state["tables"] >= 0).nonzero()[:1].flatten()),
    "no free row": lambda state: (put("tables", 0, -1)(state), state.update(free=torch.empty(0, dtype=torch.int64))),
    "free rows beyond all": lambda state: state.update(free=torch.full((1,), 2**40)),
    "fractions for ids": as_dtype("ids", torch.float32),
    "fractions for tables": as_dtype("tables", torch.float32),
    "fractions for steps": as_dtype("touched", torch.float64),
    "whole numbers for rows": as_dtype("weight", torch.int32),
    "fewer rows": lambda state: state.update(weight=state["weight"][:-1].contiguous()),
    "a list of clocks": lambda state: state.update(clock=state["clock"].repeat(3)),
    "ids without a shape": lambda state: state.update(ids=torch.tensor(3)),
}


@pytest.mark.parametrize("forged", FORGED)
def test_refused(forged: str, saved: tuple[str, dict[str, Tensor]], tmp_path: Path) -> None:
    kind, state = saved
    state = {name: tensor.clone() for name, tensor in state.items()}
    FORGED[forged](state)
    with artefact.writing(tmp_path / "tables", KIND, VERSION, overwrite=False) as folder:
        write_tensors(state, folder / "tables.safetensors")
    with pytest.raises(ArtefactError, match=r"tables does not hold the state of these"):
        MAKERS[kind]().load(tmp_path / "tables")


def test_read_as_saved(saved: tuple[str, dict[str, Tensor]], tmp_path: Path) -> None:
    kind, state = saved
    with artefact.writing(tmp_path / "tables", KIND, VERSION, overwrite=False) as folder:
        write_tensors(state, folder / "tables.safetensors")
    tables = MAKERS[kind]()
    tables.load(tmp_path / "tables")
    found = tables.state_dict()
    assert {name: tensor.tolist() for name, tensor in found.items()} == {n: t.tolist() for n, t in state.items()}
    step(tables, 9)
