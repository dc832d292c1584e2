"""Lists in captured steps: memory with room behind the values gives the numbers of batches as they came.

A recorder that runs eagerly stands in for CUDA graphs: like one, it runs the step that was recorded on the memory that
it was recorded with.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from penstock import ColumnSchema, Schema
from penstock.core.errors import DataError, ParameterError
from penstock.embedding import CachedEmbeddings, FusedEmbeddings
from penstock.embedding.fused.ids import BoundedLists
from penstock.loader import Pad
from penstock.loader.torch import Loader
from penstock.metrics import Meter
from penstock.nn import MLP
from penstock.train import DeviceStep, fit
from penstock.train.executors import device_step
from penstock.train.executors.list_memory import ListMemory
from penstock.train.executors.step_graph import EagerRecorder

from .conftest import assert_same_bits

SCHEMA = Schema(
    [
        ColumnSchema("user", "int64", role="categorical", cardinality=9),
        ColumnSchema("tags", "int64", role="categorical", cardinality=20, is_list=True),
        ColumnSchema("seen", "int64", role="categorical", cardinality=15, is_list=True),
        ColumnSchema("click", "int64", role="label"),
    ]
)
DIM = {"user": 4, "tags": 4, "seen": 3}


class AsCaptured(EagerRecorder):
    """Replays are known as such, as those of a graph are: the host has made room for their rows already."""

    is_replaying = False

    def replay(self) -> None:
        AsCaptured.is_replaying = True
        try:
            super().replay()
        finally:
            AsCaptured.is_replaying = False


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are captured here, too."""
    monkeypatch.setattr(DeviceStep, "_can_capture", lambda step: True)
    monkeypatch.setattr(device_step, "GraphRecorder", lambda device: AsCaptured())
    monkeypatch.setattr(Meter, "_is_capturing", lambda meter: AsCaptured.is_replaying)


def some_lists(rng: np.random.Generator, size: int, low: int, high: int, rows: int = 400) -> list[list[int]]:
    return [rng.integers(0, size, n).tolist() for n in rng.integers(low, high + 1, rows)]


def loader(late: int = 0, fixed: bool = False, **options) -> Loader:
    """Sixteen batches of 25 rows; from the tenth on, lists have `late` values more."""
    rng = np.random.default_rng(0)
    tags, seen = some_lists(rng, 20, 3 if fixed else 0, 3), some_lists(rng, 15, 2 if fixed else 0, 2)
    for row in range(250, 400):
        tags[row] = (tags[row] * (late + 1))[: len(tags[row]) + late]
    data = {"user": rng.integers(0, 9, 400), "tags": tags, "seen": seen}
    data["click"] = np.array([(sum(one) + len(two)) % 2 for one, two in zip(tags, seen, strict=True)])
    roles = {"categorical": ["user", "tags", "seen"], "labels": ["click"]}
    return Loader(data, 25, **roles, **{"layout": "packed", **options})


def trained(data: Loader, kind=FusedEmbeddings, dim=DIM, **settings):
    torch.manual_seed(0)
    model = MLP(SCHEMA, dim, hidden=(8,))
    tables = kind(SCHEMA, dim, optimizer="adagrad", lr=0.3, scale=0.1, **{"pooling": "mean", **settings})
    history = fit(model, data, tables, epochs=2, log_every=None, progress=False)
    state = {**model.state_dict(), **tables.state_dict()}
    return {name: value.float().numpy().copy() for name, value in state.items()}, history


CASES = {
    "ragged": {},
    "of fixed length": {"fixed": True},
    "longer later": {"late": 6},
    "padded": {"lists": Pad(3)},
    "one padded": {"lists": {"tags": Pad(2)}, "late": 2},
    "by name": {"layout": "dict"},
}


@pytest.mark.parametrize("name", CASES)
def test_room_behind_the_values_changes_no_bit(name: str, request: pytest.FixtureRequest) -> None:
    wanted, plain = trained(loader(**CASES[name]))
    request.getfixturevalue("capturing")
    found, history = trained(loader(**CASES[name]))
    assert_same_bits(wanted, found)
    assert history.stats["captured"] and not plain.stats["captured"] and "lists" not in plain.stats
    assert history.last("train").loss == plain.last("train").loss
    assert history.last("train").metrics == plain.last("train").metrics
    lists = history.stats["lists"]
    if name == "of fixed length":
        assert lists == {"bounds": {"tags": 75, "seen": 50}, "captures": 1}  # no room at all
    elif name == "longer later":
        assert lists["captures"] == 3  # it had not enough, twice: of twice the room, and twice that
        assert lists["bounds"]["tags"] >= 9 * 25 > lists["bounds"]["seen"]
    elif name == "padded":
        assert lists == {"bounds": {}, "captures": 1}


@pytest.mark.parametrize("settings", [{"pooling": "sum"}, {"pooling": "sqrt_n", "dtype": "bfloat16"}], ids=str)
def test_every_pooling(settings: dict, request: pytest.FixtureRequest) -> None:
    wanted, _ = trained(loader(), dim=4, **settings)
    request.getfixturevalue("capturing")
    assert_same_bits(wanted, trained(loader(), dim=4, **settings)[0])


def test_behind_a_cache(request: pytest.FixtureRequest) -> None:
    wanted, _ = trained(loader(late=6), CachedEmbeddings, cache_rows=44)
    request.getfixturevalue("capturing")
    found, history = trained(loader(late=6), CachedEmbeddings, cache_rows=44)
    assert_same_bits(wanted, found)
    assert history.stats["captured"]


class OwnLists(nn.Module):
    """Reads lists by itself."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tables = FusedEmbeddings({"user": 9}, 4, lr=0.2)
        self.layer = nn.Linear(4, 1)

    def forward(self, ids, numbers: torch.Tensor) -> torch.Tensor:
        matrix, lists = ids
        values, _ = lists["tags"]
        return self.layer(self.tables(matrix).sum(1)).squeeze(1) + values.float().mean()


def test_a_model_that_reads_lists_by_itself_is_not_captured(request: pytest.FixtureRequest) -> None:
    models = OwnLists(), OwnLists(), OwnLists()
    fit(models[0], loader(), progress=False)
    request.getfixturevalue("capturing")
    history = fit(models[1], loader(), progress=False)
    states = [{name: value.numpy() for name, value in model.state_dict().items()} for model in models]
    assert_same_bits(states[0], states[1])
    assert not history.stats["captured"] and "by itself (TypeError" in history.stats["lists"]["not_captured"]
    step = DeviceStep(models[2])
    step._graph_wanted = True  # asked for, as on a GPU
    with pytest.raises(ParameterError, match=r"DeviceStep\.graph: the model reads its list columns by itself"):
        for ids, numbers, labels in loader():
            step(ids, numbers, labels)


@pytest.mark.usefixtures("capturing")
def test_wrong_ids_are_found_and_what_is_behind_the_values_is_not_looked_at() -> None:
    data = list(loader())
    (matrix, lists), numbers, labels = data[12]
    values, offsets = lists["tags"]
    spoiled = values.clone()
    spoiled[-1] = 20
    data[12] = (matrix, {**lists, "tags": (spoiled, offsets)}), numbers, labels
    tables = FusedEmbeddings(SCHEMA, 4)
    step = DeviceStep(MLP(SCHEMA, 4, hidden=(4,)), tables=tables)
    for batch in data[:12]:
        step(*batch)
    assert step.captured
    before, held = tables.weight.clone(), step.list_memory.filled(lists)["tags"].parts()[0]
    held[len(values) :] = 10**9  # nobody may look here
    step(*data[11])
    assert not torch.equal(before, tables.weight)
    with pytest.raises(DataError, match="id 20 is outside table 'tags'"):
        step(*data[12])


@pytest.mark.usefixtures("capturing")
def test_lists_of_another_form_are_trained_on_and_not_captured() -> None:
    torch.manual_seed(0)
    steps = []
    for _ in range(2):
        torch.manual_seed(0)
        steps.append(DeviceStep(MLP(SCHEMA, 4, hidden=(4,)), tables=FusedEmbeddings(SCHEMA, 4, lr=0.1)))
    steps[1]._can_capture = lambda: False
    for number, ((matrix, lists), numbers, labels) in enumerate(loader()):
        if number % 3 == 2:  # as int32
            lists = {name: (values.int(), offsets) for name, (values, offsets) in lists.items()}
        for step in steps:
            step((matrix, lists), numbers, labels)
    assert steps[0].captures and not steps[1].captures
    assert torch.equal(steps[0].tables.weight, steps[1].tables.weight)


def test_bounded_lists_are_checked() -> None:
    tables = FusedEmbeddings({"tags": 9}, 2)
    offsets = torch.tensor([0, 2, 3])
    lists = BoundedLists(torch.tensor([1, 2, 3, 99, 99]), offsets)
    plain = (torch.tensor([1, 2, 3]), offsets)
    assert torch.equal(tables({"tags": lists}), tables({"tags": plain}))
    with pytest.raises(DataError, match="must rise from 0 to the number of values, 2; they go from 0 to 3"):
        tables({"tags": BoundedLists(torch.tensor([1, 2]), offsets)})
    with pytest.raises(DataError, match="must rise from 0 to the number of values, 4"):
        tables({"tags": (torch.tensor([1, 2, 3, 4]), offsets)})  # values that are in no list are a mistake here


def test_memory_is_kept_and_grows_by_doubling() -> None:
    memory = ListMemory()
    rows = torch.tensor([0, 4, 8])
    for count in (8, 10, 9):
        memory.watch({"tags": (torch.arange(count), rows)})
    first = memory.filled({"tags": (torch.arange(8), rows)})["tags"]
    assert memory.bounds == {"tags": 12} and memory.growths == 0
    assert memory.filled({"tags": (torch.arange(12), rows)})["tags"] is first
    assert memory.filled({"tags": (torch.arange(13), rows)})["tags"] is not first
    assert memory.bounds == {"tags": 24} and memory.growths == 1
    memory.filled({"tags": (torch.arange(99), rows)})
    assert memory.bounds == {"tags": 99}
    assert memory.filled({"tags": (torch.arange(3), rows[:2])}) is None  # other rows
    assert memory.filled({"tags": torch.arange(6).view(3, 2)}) is None
    assert ListMemory().filled({}) is None
