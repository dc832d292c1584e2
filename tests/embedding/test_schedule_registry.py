"""Schedules: one list, from which checkpoints and settings take them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from penstock.core.errors import ParameterError
from penstock.embedding.schedules import SCHEDULES, from_data, rate_at, to_data
from penstock.jobs.setting_sections import rate
from penstock.jobs.settings import TrainSettings

# One row a schedule: arguments, and the rates of the first three steps.
CASES = {
    "Warmup": ({"lr": 0.1, "steps": 2}, [0.05, 0.1, 0.1]),
    "ExponentialDecay": ({"lr": 0.1, "rate": 0.25, "steps": 2}, [0.1, 0.05, 0.025]),
    "CosineDecay": ({"lr": 0.1, "steps": 2, "final": 0.02}, [0.1, 0.06, 0.02]),
}


def test_every_schedule_has_a_row_here() -> None:
    assert list(CASES) == list(SCHEDULES)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_known_by_its_name(name: str) -> None:
    arguments, rates = CASES[name]
    made = SCHEDULES[name](**arguments)
    assert [rate_at(made, step) for step in range(3)] == pytest.approx(rates)
    assert from_data(to_data(made)) == made
    named = {"schedule": name, **arguments}
    assert rate(named, "learning_rate") == made
    settings = TrainSettings.resolve({"embedding_learning_rate": named})
    assert settings.build_embedding_optimizer().lr == made


def test_one_of_your_own_is_known_once_it_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Halving:
        lr: float

        def __call__(self, step: int) -> float:
            return self.lr / 2**step

    monkeypatch.setitem(SCHEDULES, "Halving", Halving)
    assert from_data(to_data(Halving(0.1))) == Halving(0.1)
    assert rate({"schedule": "Halving", "lr": 0.1}, "learning_rate") == Halving(0.1)


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ParameterError, match=", ".join(SCHEDULES)):
        rate({"schedule": "Sawtooth", "lr": 0.1}, "learning_rate")
