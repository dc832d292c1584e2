"""Settings of a run: layers, sections, and errors that name the nearest key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ParameterError
from penstock.core.yaml_files import read_yaml
from penstock.embedding import Adagrad, LazyAdam
from penstock.embedding.schedules import Warmup
from penstock.jobs.settings import TrainSettings, split_config


def test_later_layers_win_and_sections_are_merged() -> None:
    file = {"model": {"name": "MLP", "hidden": [8]}, "epochs": 5, "embedding_optimizer": {"lr": 0.2}}
    found = TrainSettings.resolve(file, {"epochs": 1, "dense_optimizer": {"lr": 0.1}})
    assert (found.model, found.epochs) == ({"name": "MLP", "hidden": [8]}, 1)
    assert found.dense_optimizer == {"name": "Adam", "lr": 0.1}
    assert found.sparse_optimizer() == Adagrad(lr=0.2, initial_accumulator=1e-5)
    assert TrainSettings.resolve({"model": "DeepFM"}).model == {"name": "DeepFM"}
    assert TrainSettings.resolve({"slots": None}).slots == {}


def test_short_names_mean_what_the_sections_mean() -> None:
    given = {"learning_rate": 0.1, "dense_optimizer": {"name": "SGD"}, "on_error": "skip"}
    found = TrainSettings.resolve(given, {"embedding_learning_rate": 0.2})
    assert (found.dense_optimizer, found.etl) == ({"name": "SGD", "lr": 0.1}, {"on_error": "skip"})
    assert found.embedding_optimizer["lr"] == 0.2


def test_another_optimizer_does_not_inherit_arguments() -> None:
    found = TrainSettings.resolve({"embedding_optimizer": {"name": "LazyAdam"}})
    assert found.sparse_optimizer() == LazyAdam()


def test_a_rate_may_be_a_schedule() -> None:
    section = {"lr": {"schedule": "Warmup", "lr": 0.1, "steps": 10}}
    assert TrainSettings.resolve({"embedding_optimizer": section}).sparse_optimizer().lr == Warmup(0.1, 10)


def test_what_was_resolved_resolves_to_itself() -> None:
    found = TrainSettings.resolve({"model": {"name": "MLP", "hidden": (8, 4)}, "store": {"storage": "float16"}})
    assert TrainSettings.resolve(found.to_dict()) == TrainSettings.resolve(found.to_dict(), {})
    assert found.to_dict()["model"] == {"name": "MLP", "hidden": [8, 4]}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epoch": 1}, "unknown key 'epoch'; did you mean 'epochs'"),
        ({"epochs": 0}, "epochs must be an int ≥ 1, got 0"),
        ({"valid_share": 1}, "valid_share must be a finite number from 0 to 0.9, got 1"),
        ({"autocast": "int8"}, "autocast must be one of"),
        ({"tables": "cuda"}, "tables must be one of"),
        ({"model": {"name": "DLMR"}}, "did you mean 'DLRM'"),
        ({"model": 3}, "model must be a mapping"),
        ({"dense_optimizer": {"name": "Adma"}}, "did you mean 'Adam'"),
        ({"embedding_optimizer": {"name": "Adagrad", "initial_acumulator": 1}}, "mean 'initial_accumulator'"),
        ({"embedding_optimizer": {"lr": -1}}, "embedding_optimizer: Adagrad.lr must be"),
        ({"embedding_optimizer": {"lr": {"schedule": "Warmp"}}}, "did you mean 'Warmup'"),
        ({"embedding_optimizer": {"lr": {"schedule": "Warmup"}}}, "embedding_optimizer.lr is not complete"),
        ({"store": {"capacity": 1}}, "unknown key 'capacity' in store"),
        ({"store": {"eviction": {"policy": "ttl"}}}, "store.eviction: Eviction: policy='ttl' needs steps"),
        ({"store": {"admission": {"min_cout": 2}}}, "unknown key 'min_cout' in store.admission; did you mean"),
        ({"store": {"init": {"kind": "ones"}}, "slots": {"C1": {}}}, "store.init: Init.kind must be one of"),
        ({"slots": {"C1": {"poling": "sum"}}}, "unknown key 'poling' in slots.C1; did you mean 'pooling'"),
        ({"slots": {"C1": 3}}, "slots.C1 must be a mapping"),
        ({"loader": {"shuffle": False}}, "unknown key 'shuffle' in loader"),
    ],
)
def test_bad_settings(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError) as error:
        TrainSettings.resolve(given)
    assert said in str(error.value)


def test_small_numbers_are_numbers(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("learning_rate: 1e-3\nembedding_optimizer: {initial_accumulator: 2.5E-6}\nseed: 10\n")
    found = TrainSettings.resolve(read_yaml(file))
    assert (found.dense_optimizer["lr"], found.seed) == (1e-3, 10)
    assert found.embedding_optimizer["initial_accumulator"] == 2.5e-6
    file.write_text("a: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(ParameterError, match="is not valid YAML"):
        read_yaml(file)


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("data: [day.tsv]\npreset: criteo\nepochs: 2\n")
    about, settings = split_config(file)
    assert (about["data"], about["preset"], settings) == (["day.tsv"], "criteo", {"epochs": 2})
    assert split_config(None)[1] == {}
    file.write_text("epoch: 2\n")
    with pytest.raises(ParameterError, match=r"train\.yaml: unknown key 'epoch'"):
        split_config(file)
    for text, said in (("- 1", "must hold a mapping"), ("a: [", "is not valid YAML")):
        file.write_text(text)
        with pytest.raises(ParameterError, match=said):
            read_yaml(file)
    with pytest.raises(ParameterError, match="does not exist"):
        read_yaml(tmp_path / "nope.yaml")
