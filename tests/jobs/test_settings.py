"""Settings of a run: layers, sections, and errors that name the nearest key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ParameterError, PenstockError
from penstock.core.yaml_files import read_yaml
from penstock.embedding import Adagrad, LazyAdam
from penstock.embedding.schedules import Warmup
from penstock.etl import trusting
from penstock.jobs.setting_sections import SHORTHANDS
from penstock.jobs.settings import TrainSettings, command_line_options, described, split_config


def test_later_layers_win_and_sections_are_merged() -> None:
    file = {"model": {"name": "MLP", "hidden": [8]}, "epochs": 5, "embedding_optimizer": {"lr": 0.2}}
    found = TrainSettings.resolve(file, {"epochs": 1, "dense_optimizer": {"lr": 0.1}})
    assert (found.model, found.epochs) == ({"name": "MLP", "hidden": [8]}, 1)
    assert found.dense_optimizer == {"name": "Adam", "lr": 0.1}
    assert found.build_embedding_optimizer() == Adagrad(lr=0.2)
    assert TrainSettings.resolve({"model": "DeepFM"}).model == {"name": "DeepFM"}
    assert TrainSettings.resolve({"slots": None}).slots == {}


def test_short_names_mean_what_the_sections_mean() -> None:
    given = {"learning_rate": 0.1, "dense_optimizer": {"name": "SGD"}, "on_error": "skip"}
    found = TrainSettings.resolve(given, {"embedding_learning_rate": 0.2})
    assert (found.dense_optimizer, found.etl) == ({"name": "SGD", "lr": 0.1}, {"on_error": "skip"})
    assert found.embedding_optimizer["lr"] == 0.2


def test_another_optimizer_does_not_inherit_arguments() -> None:
    found = TrainSettings.resolve({"embedding_optimizer": {"name": "LazyAdam"}})
    assert found.build_embedding_optimizer() == LazyAdam()


def test_a_rate_may_be_a_schedule() -> None:
    section = {"lr": {"schedule": "Warmup", "lr": 0.1, "steps": 10}}
    assert TrainSettings.resolve({"embedding_optimizer": section}).build_embedding_optimizer().lr == Warmup(0.1, 10)


def test_what_was_resolved_resolves_to_itself() -> None:
    found = TrainSettings.resolve({"model": {"name": "MLP", "hidden": (8, 4)}, "store": {"storage": "float16"}})
    assert TrainSettings.resolve(found.to_dict()) == TrainSettings.resolve(found.to_dict(), {})
    assert found.to_dict()["model"] == {"name": "MLP", "hidden": [8, 4]}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epoch": 1}, "unknown key 'epoch'; did you mean 'epochs'"),
        ({"epochs": 0}, "epochs must be an int ≥ 1, or None, got 0"),
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
        ({"slots": {"C1": {"dim": 0}}}, "slots.C1.dim must be"),
        ({"loader": {"shuffle": False}}, "unknown key 'shuffle' in loader"),
    ],
)
def test_bad_settings(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError) as error:
        TrainSettings.resolve(given)
    assert said in str(error.value)


def test_small_numbers_are_numbers(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    text = "learning_rate: 1e-3\nembedding_optimizer: {name: Adagrad, initial_accumulator: 2.5E-6}\nseed: 10\n"
    file.write_text(text)
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


def test_every_setting_that_is_no_section_is_an_option() -> None:
    sections = {"dense_optimizer", "embedding_optimizer", "store", "slots", "loader", "etl"}
    assert set(command_line_options()) == {*described(), *SHORTHANDS} - sections
    options = command_line_options()
    assert (options["batch_size"].default, options["learning_rate"].default) == ("by the rows", "by the batch size")
    for name, option in options.items():
        assert option.help and option.default, name
        for choice in option.choices:  # whatever the command line offers, the settings take
            TrainSettings.resolve({name: choice})


OWN_MODEL = """
from penstock.nn import MLP


class Tower(MLP):
    pass


class NoModel:
    pass


class DLRM(MLP):
    pass
"""


def test_a_model_of_ones_own_is_named_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock import ColumnSchema, Schema
    from penstock.jobs.building import build_model
    from penstock.nn import MODELS, from_config

    (tmp_path / "own_models_of_a_test.py").write_text(OWN_MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(MODELS, "_registered", {})
    schema = Schema([ColumnSchema("price", "float32", role="continuous")])

    def built(name: str) -> object:
        return build_model(TrainSettings.resolve({"model": {"name": name, "hidden": [4]}}), schema)

    model = built("own_models_of_a_test:Tower")
    assert type(model).__name__ == "Tower"
    assert type(from_config(model.config())) is type(model)  # known from now on
    for name, said in (
        ("own_models_of_a_test:NoModel", "not a subclass of penstock.nn.Model"),
        ("own_models_of_a_test:DLRM", "another model called DLRM"),
        ("own_models_of_a_test:Missing", "cannot find"),
        ("no_such_module:Tower", "cannot find"),
    ):
        with pytest.raises(ParameterError, match=said):
            built(name)
    monkeypatch.setattr(MODELS, "_registered", {})
    with pytest.raises(PenstockError, match="which would be imported and run"):
        from_config(model.config())
    with trusting("own_models_of_a_test"):
        assert type(from_config(model.config())) is type(model)


OWN_METRIC = """
from penstock.metrics import LogLoss


class Doubled(LogLoss):
    def __init__(self):
        super().__init__()
        self.name = "doubled"

    def compute(self):
        return 2 * super().compute()


class NoMetric:
    pass
"""


def test_metrics_are_named_by_the_registry_or_by_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.jobs.building import metric_classes, selected_by
    from penstock.metrics import AUC

    (tmp_path / "own_metrics_of_a_test.py").write_text(OWN_METRIC)
    monkeypatch.syspath_prepend(tmp_path)

    def found(*names: str) -> Any:
        return metric_classes(TrainSettings.resolve({"metrics": list(names)}))

    assert metric_classes(TrainSettings()) is None
    assert [metric.__name__ for metric in found("auc", "own_metrics_of_a_test:Doubled")] == [AUC.__name__, "Doubled"]
    for name, said in (
        ("acu", "metrics is 'acu'; did you mean 'auc'"),
        ("gauc", "metrics names 'gauc', which is measured within groups"),
        ("own_metrics_of_a_test:NoMetric", "has not all that penstock.metrics.Metric asks for"),
        ("own_metrics_of_a_test:Missing", "cannot find .* which metrics refers to"),
    ):
        with pytest.raises(ParameterError, match=said):
            found(name)
    by_own = TrainSettings.resolve({"select_by": "own_metrics_of_a_test:Doubled"})
    assert [metric().name for metric in metric_classes(by_own) or ()] == ["auc", "log_loss", "doubled"]
    assert (selected_by(by_own), selected_by(TrainSettings())) == ("doubled", "auc")
    assert TrainSettings.resolve({"metrics": "auc"}).metrics == ["auc"]
    with pytest.raises(ParameterError, match="metrics must be"):
        TrainSettings.resolve({"metrics": 3})


def test_options_of_metrics_on_the_command_line() -> None:
    import typer
    from typer.testing import CliRunner

    from penstock.cli.setting_options import with_setting_options

    app, given = typer.Typer(), []

    @app.command()
    @with_setting_options
    def train(settings: dict[str, Any] | None = None) -> None:
        given.append(settings)

    for words in ([], ["--metric", "auc", "--metrics", "my.own:Metric"]):
        assert CliRunner().invoke(app, words).exit_code == 0
    assert given == [{}, {"metrics": ["auc", "my.own:Metric"]}]
    refused = CliRunner().invoke(app, ["--metric", "acu"])
    assert refused.exit_code == 2 and len(given) == 2


def test_keys_of_earlier_files_are_read() -> None:
    assert TrainSettings.resolve({"loader": {"threads": 2}}).loader == {"num_threads": 2}
