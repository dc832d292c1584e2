"""What a saved model says of itself, and rows as requests send them."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import polars as pl
import pytest

from penstock.core.errors import ArtefactError
from penstock.core.schema import ColumnSchema, Schema
from penstock.serve import Predictor, save_model
from penstock.serve.card import ModelCard, as_request
from penstock.serve.checking import RowChecker

COLUMNS = {
    "text": (ColumnSchema("text", "string"), 'Zürich\'s "x"'),
    "number": (ColumnSchema("number", "float32"), 0.5),
    "nan": (ColumnSchema("nan", "float64"), float("nan")),
    "whole": (ColumnSchema("whole", "int64"), -(2**62)),
    "large": (ColumnSchema("large", "uint64"), 2**64 - 1),
    "hex": (ColumnSchema("hex", "uint32", properties={"text": "hex"}), 26),
    "hex64": (ColumnSchema("hex64", "uint64", properties={"text": "hex"}), 2**63 + 1),
    "truth": (ColumnSchema("truth", "bool"), True),
    "day": (ColumnSchema("day", "date"), datetime.date(2026, 11, 15)),
    "clock": (ColumnSchema("clock", "time"), datetime.time(13, 45)),
    "moment": (ColumnSchema("moment", "datetime[us]"), datetime.datetime(2026, 11, 15, 13, 45)),
    "bytes": (ColumnSchema("bytes", "binary"), b"\x00\xff"),
    "list": (ColumnSchema("list", "int64", is_list=True), [3, 1, 2]),
    "texts": (ColumnSchema("texts", "string", is_list=True), ["a", "b"]),
    "empty": (ColumnSchema("empty", "int64", is_list=True), []),
    "missing": (ColumnSchema("missing", "int32"), None),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_row_as_a_request_sends_it_is_read_back(name: str) -> None:
    column, value = COLUMNS[name]
    schema = Schema([column])
    sent = json.loads(json.dumps(as_request({name: value, "other": 1}, schema), allow_nan=False))
    assert RowChecker(schema)([sent])[0][name] == (None if name == "nan" else value)


def test_a_saved_model_keeps_its_card(trained, tmp_path: Path) -> None:
    example = {"user": "u1", "ad": "0000001a", "tags": [1], "price": 0.5}
    card = ModelCard("2026-11-15T13:45:00+00:00", ["clicks.csv"], 300, {"auc": 0.75}, example, 0.5)
    save_model(tmp_path, trained.workflow, trained.model, trained.store, card=card)
    with Predictor(tmp_path) as predictor:
        assert predictor.saved.card == card
        assert 0 < predictor.predict(pl.DataFrame([{**example, "ad": 26}])[0].to_dicts())[0] < 1
    save_model(tmp_path, trained.workflow, trained.model, trained.store, overwrite=True)
    with Predictor(tmp_path) as predictor:
        assert predictor.saved.card == ModelCard()


@pytest.mark.parametrize(
    "wrong",
    [
        [], {}, {"trained": 3}, {"data": "x"}, {"data": [3]}, {"rows": -1}, {"rows": "many"}, {"metrics": []},
        {"example": [1]}, {"constant_log_loss": -1}, {"constant_log_loss": "low"},
    ],
)  # fmt: skip
def test_a_card_that_is_none_is_refused(wrong: object) -> None:
    good = ModelCard().to_dict()
    found = {**good, **wrong} if isinstance(wrong, dict) and wrong else wrong
    with pytest.raises(ArtefactError, match=r"card\.json"):
        ModelCard.from_dict(found, "card.json")


def test_a_card_of_before_has_no_constant() -> None:
    before = {name: value for name, value in ModelCard(rows=3).to_dict().items() if name != "constant_log_loss"}
    assert ModelCard.from_dict(before, "card.json") == ModelCard(rows=3)


def test_figures_that_are_none_are_left_out() -> None:
    card = ModelCard.from_dict({**ModelCard().to_dict(), "metrics": {"auc": "high", "log_loss": 0.5}}, "card.json")
    assert card.metrics == {"auc": None, "log_loss": 0.5} and card.title("MLP") == "MLP"
