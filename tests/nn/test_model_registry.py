"""Models: one registry, from which settings, the command line and saved models take them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from penstock.core.errors import ArtefactError, ParameterError
from penstock.core.schema import ColumnSchema, Schema
from penstock.etl import trusting
from penstock.jobs.building import build_model
from penstock.jobs.settings import TrainSettings
from penstock.nn import MODELS, Model, from_config

SCHEMA = Schema(
    [
        ColumnSchema("user", "int64", role="categorical", cardinality=10),
        ColumnSchema("price", "float32", role="continuous"),
        ColumnSchema("click", "int32", role="label"),
    ]
)


@pytest.mark.parametrize("name", MODELS)
class TestModel:
    def test_is_public_under_its_name(self, name: str) -> None:
        import penstock.nn

        assert getattr(penstock.nn, name) is MODELS[name]
        assert issubclass(MODELS[name], Model)
        assert MODELS[name].__name__ == name

    def test_is_built_from_settings_and_from_its_own_description(self, name: str) -> None:
        made = build_model(TrainSettings.resolve({"model": name, "embedding_dim": 8}), SCHEMA)
        assert type(made) is MODELS[name]
        assert type(from_config(made.config())) is MODELS[name]


def test_the_command_line_offers_every_model() -> None:
    from penstock.jobs.settings import command_line_options

    assert command_line_options()["model"].choices == tuple(MODELS)


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    known = ", ".join(MODELS)
    with pytest.raises(ParameterError, match=known):
        TrainSettings.resolve({"model": "Transformer"})
    with pytest.raises(ArtefactError, match=known):
        from_config({"class": "Transformer", "schema": SCHEMA.to_dict(), "arguments": {}})


class TestOneOfYourOwn:
    @pytest.fixture
    def linear(self) -> Iterator[type[Model]]:
        @MODELS.register
        class Linear(MODELS["MLP"]):  # type: ignore[misc]
            """A perceptron by another name."""

        yield Linear
        del MODELS._registered["Linear"]

    @pytest.mark.parametrize(
        ("reference", "said"),
        [
            ("subprocess:Popen", "nothing of the standard library is run"),
            ("numpy:ndarray", "which would be imported and run"),
            ("penstock.etl.ops:Categorify", "which is no model"),
            ("penstock.nn.mlp:MLP", "which is not the model 'Tower'"),
            ("__import__('os')", "unknown model 'Tower'"),
            (7, "unknown model 'Tower'"),
        ],
    )
    def test_a_description_imports_what_is_trusted_alone(self, reference: object, said: str) -> None:
        described = {"class": "Tower", "schema": SCHEMA.to_dict(), "arguments": {}, "reference": reference}
        with pytest.raises(ArtefactError, match=said):
            from_config(described)
        if reference == "numpy:ndarray":
            with trusting("numpy"), pytest.raises(ArtefactError, match="which is not the model 'Tower'"):
                from_config(described)

    def test_is_named_like_the_others(self, linear: type[Model]) -> None:
        made = build_model(TrainSettings.resolve({"model": {"name": "Linear", "hidden": [4]}}), SCHEMA)
        assert type(made) is linear
        again = from_config(made.config())
        assert type(again) is linear
        assert [p.shape for p in again.parameters()] == [p.shape for p in made.parameters()]
        assert all(isinstance(p, torch.nn.Parameter) for p in again.parameters())
