"""Embedding optimizers: one list of formulas and one of classes, from which everything that lists them derives."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from penstock.core.errors import ArtefactError, ParameterError
from penstock.embedding import FusedEmbeddings, SlotConfig, Store
from penstock.embedding.optimizers import (
    OPTIMIZERS,
    Adagrad,
    Optimizer,
    fused_optimizers,
    optimizer_from_dict,
    optimizer_named,
    register_optimizer,
)
from penstock.jobs.settings import TrainSettings
from penstock.kernels import reference_embedding
from penstock.kernels.optimizer_formulas import FORMULAS, FUSED

ORACLE_CASES = Path(__file__).parents[1] / "kernels" / "fused_cases.py"


def test_no_two_formulas_share_a_number() -> None:
    numbers = {formula.name: formula.number for formula in FORMULAS.values()}
    assert len(set(numbers.values())) == len(numbers)


def test_every_formula_has_an_oracle() -> None:
    """Adam's is torch's dense Adam, in the contract suite of stores."""
    assert set(reference_embedding._STEPS) == {f.name for f in FORMULAS.values() if not f.replays}
    assert set(runpy.run_path(str(ORACLE_CASES))["RULES"]) == set(FUSED)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
class TestOptimizer:
    def test_has_a_formula_and_is_read_back(self, optimizer: type[Optimizer]) -> None:
        made = optimizer()
        assert made.formula in FORMULAS.values()
        assert optimizer_from_dict(made.to_dict()) == made

    def test_settings_know_it(self, optimizer: type[Optimizer]) -> None:
        settings = TrainSettings.resolve({"embedding_optimizer": {"name": optimizer.__name__, "lr": 0.1}})
        made = settings.build_embedding_optimizer()
        assert type(made) is optimizer and made.lr == 0.1

    def test_rows_keep_the_state_that_the_formula_says(self, optimizer: type[Optimizer]) -> None:
        with Store([SlotConfig("user", dim=8)], optimizer(), num_threads=1) as store:
            layout = store.tables.tables[0].layout
        formula = optimizer().formula
        assert (layout.states, layout.scalar) == (formula.num_vectors, formula.has_number)

    def test_tables_on_a_device_take_it_where_the_formula_is_fused(self, optimizer: type[Optimizer]) -> None:
        made = optimizer()
        assert (optimizer.__name__ in fused_optimizers()) == made.formula.fused
        if not made.formula.fused:
            with pytest.raises(ParameterError, match="a store"):
                FusedEmbeddings({"user": 5}, 8, optimizer=made)
            return
        tables = FusedEmbeddings({"user": 5}, 8, optimizer=made)
        held = [state for state in (tables.first_state, tables.second_state) if state is not None]
        assert [tuple(state.shape[1:]) for state in held] == made.formula.shapes(8)


def test_short_names_are_listed_where_one_is_wrong() -> None:
    assert optimizer_named("rowwise_adagrad") == Adagrad(row_wise=True)
    with pytest.raises(ParameterError, match="did you mean 'rowwise_adam'"):
        FusedEmbeddings({"user": 5}, 8, optimizer="rowwise_adan")


class TestOneOfYourOwn:
    @pytest.fixture
    def signed(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Optimizer]]:
        @dataclass(frozen=True)
        class Halved(Adagrad):
            """Adagrad at half the rate."""

            def own_hyper(self, rate: float, step: int) -> tuple[float, ...]:
                return self.eps, 1.0

            def hyper(self, step: int, scale: float = 1.0) -> list[float]:
                rate, *rest = super().hyper(step, scale)
                return [rate / 2, *rest]

        monkeypatch.setitem(OPTIMIZERS, "Halved", Halved)  # taken out again at the end
        yield register_optimizer(Halved)

    def test_is_known_to_checkpoints_and_settings(self, signed: type[Optimizer], tmp_path: Path) -> None:
        assert (
            TrainSettings.resolve({"embedding_optimizer": {"name": "Halved"}}).build_embedding_optimizer() == signed()
        )
        with Store([SlotConfig("user", dim=4)], signed(lr=0.5), num_threads=1) as store:
            store.save(tmp_path / "saved")
        assert Store.open(tmp_path / "saved").optimizer == signed(lr=0.5)

    def test_trains(self, signed: type[Optimizer]) -> None:
        weights = []
        for optimizer in (signed(lr=0.2), Adagrad(lr=0.1)):
            with Store([SlotConfig("user", dim=4)], optimizer, num_threads=1) as store:
                found = store.lookup({"user": np.array([1, 2, 1])})
                store.update(found, {"user": np.ones((3, 4), np.float32)})
                weights.append(store.lookup({"user": np.array([1, 2])}, train=False)["user"].copy())
        np.testing.assert_array_equal(*weights)


def test_an_unknown_one_in_a_checkpoint_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        ArtefactError, match="optimizers: SGD, Adagrad, DecayedAdagrad, Adam, LazyAdam, RowWiseAdam, FTRL"
    ):
        optimizer_from_dict({"name": "Lion", "lr": 0.1})
