"""From raw click logs to a model that serves, in one call."""

from __future__ import annotations

import polars as pl
import pytest

from penstock.core.errors import OutputExistsError, ParameterError
from penstock.data.synthetic import CRITEO_DTYPES, CRITEO_NAMES, criteo
from penstock.etl import presets
from penstock.serve import Predictor, train_click_model


def test_the_whole_way(tmp_path) -> None:
    made = criteo(tmp_path / "day.tsv", 6_000, cardinalities=50)
    lines: list[str] = []
    settings = {"epochs": 2, "batch_size": 256, "embedding_dim": 8, "progress": False}
    found = train_click_model(made.path, tmp_path / "out", say=lines.append, **settings)
    assert found["rows"] == {"train": 5_400, "valid": 600}
    assert 0.65 < found["auc"] < made.best_auc + 0.05
    assert found["embedding_rows"] > 200 and found["rows_per_second"] > 0
    assert [line.split(":")[0].split()[0] for line in lines] == ["features", "training", "saving"]
    assert set(found["seconds"]) == {"etl", "train", "save", "predict", "total"}
    assert len(found["examples"]) == 3 and all(0 < e["probability"] < 1 for e in found["examples"])

    raw = pl.read_csv(
        made.path, separator="\t", has_header=False, new_columns=CRITEO_NAMES, n_rows=200,
        schema_overrides=[pl.String if CRITEO_DTYPES[n] == "hex32" else pl.Int32 for n in CRITEO_NAMES],
    ).drop("label")  # fmt: skip
    with Predictor(found["model"]) as predictor:
        by_frame, by_row = predictor.predict(raw), predictor.predict(raw.to_dicts()[:5])
    assert by_frame[:5] == pytest.approx(by_row, rel=1e-5)

    with pytest.raises(OutputExistsError):
        train_click_model(made.path, tmp_path / "out", **settings)
    again = train_click_model(made.path, tmp_path / "out", overwrite=True, **settings)
    assert again["auc"] == found["auc"]


def test_bad_settings(tmp_path) -> None:
    with pytest.raises(ParameterError, match=r"train_click_model\.model must be one of 'DLRM'"):
        train_click_model("x.tsv", tmp_path, model="GPT")
    assert presets.names() == ["criteo"]
