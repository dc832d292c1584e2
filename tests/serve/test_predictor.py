"""Predictions on raw rows equal what training saw, whatever the rows come as."""

from __future__ import annotations

import json
import shutil

import numpy as np
import polars as pl
import pytest
import torch

import penstock as ps
from penstock import ops
from penstock.core.errors import ArtefactError, DataError, OutputExistsError, ParameterError, SchemaError
from penstock.embedding import FeedWriter
from penstock.serve import Predictor, save_model


@pytest.fixture
def predictor(place):
    with Predictor(place, batch_size=128) as predictor:
        yield predictor


FORMS = {
    "polars": lambda frame: frame,
    "pandas": lambda frame: frame.with_columns(pl.col("ad").cast(pl.Int64)).to_pandas(),
    "arrow": lambda frame: frame.to_arrow(),
    "dataset": lambda frame: ps.Dataset(frame, part_size=2000),
    "many dicts": lambda frame: frame.to_dicts(),
    "hex dicts": lambda frame: [{**row, "ad": f"{row['ad']:08x}"} for row in frame.to_dicts()],
    "hex frame": lambda frame: frame.with_columns(ad=pl.Series([f"{n:08x}" for n in frame["ad"]])),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_rows_gives_the_same(predictor, trained, form) -> None:
    rows = FORMS[form](trained.frame.drop("click"))  # the label is not there when serving
    np.testing.assert_allclose(predictor.predict(rows), trained.expected(), rtol=1e-5, atol=1e-6)


def test_few_rows_and_one(predictor, trained) -> None:
    rows = [{**row, "ad": f"{row['ad']:x}"} for row in trained.frame.to_dicts()[:7]]
    np.testing.assert_allclose(predictor.predict(rows), trained.expected()[:7], rtol=1e-5, atol=1e-6)
    assert predictor.predict_row(rows[3]) == pytest.approx(trained.expected()[3], rel=1e-5)
    assert predictor.predict([]).shape == (0,) == predictor.predict(trained.frame.head(0)).shape


def test_it_has_learned(predictor, trained) -> None:
    scores, clicks = predictor.predict(trained.frame), trained.frame["click"].to_numpy()
    assert scores[clicks == 1].mean() > scores[clicks == 0].mean() + 0.1


def test_unseen_ids_are_zeros_and_nothing_is_inserted(predictor) -> None:
    before = predictor.store.stats()["rows"]
    row = {"user": "nobody", "ad": 7, "tags": [100, 101], "price": None}
    first = predictor.predict_row(row)
    assert 0 < first < 1 and predictor.predict_row({**row, "user": "somebody else"}) == first
    assert predictor.store.stats()["rows"] == before


def test_a_row_is_the_same_in_every_batch_but_for_rounding(predictor, trained) -> None:
    rows = trained.frame.drop("click").to_dicts()
    whole = predictor.predict(rows)
    np.testing.assert_array_equal(predictor.predict(rows), whole)
    for size in (1, 2, 3, 7, 31, 32, 33, 100):
        parts = [predictor.predict(rows[i : i + size]) for i in range(0, len(rows), size)]
        np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=1e-6, err_msg=f"in batches of {size}")


def test_unknown_categories_are_counted(place, trained, tmp_path) -> None:
    rows = trained.frame.drop("click").to_dicts()[:5]
    strange = [{**rows[0], "user": "nobody", "tags": [1, 100, 101]}, {**rows[1], "ad": 7, "tags": None, "user": None}]
    with Predictor(place) as predictor:
        predictor.predict(rows)
        assert predictor.unknown.to_dict() == {}
        predictor.predict([*rows, *strange])
        assert predictor.unknown.to_dict() == {"user": 1, "ad": 1, "tags": 2}
        predictor.predict(pl.DataFrame(strange, schema=trained.frame.drop("click").schema))
        assert predictor.unknown.to_dict() == {"user": 2, "ad": 2, "tags": 4}
    save_model(tmp_path / "m", None, trained.model, trained.store)
    with Predictor(tmp_path / "m") as predictor:  # ids as they are: unknown is what the store has no row for
        predictor.predict(
            [
                {"user": 3, "ad": 3, "tags": [3], "price": 0.0},
                {"user": 9_999, "ad": 3, "tags": [9_999, 8_888], "price": 0.0},
            ]
        )
        assert predictor.unknown.to_dict() == {"user": 1, "tags": 1}


def test_a_fingerprint_names_the_model(place, trained, tmp_path) -> None:
    save_model(tmp_path / "m", trained.workflow, trained.model, trained.store)
    with Predictor(place) as one, Predictor(place) as again, Predictor(tmp_path / "m") as other:
        assert one.fingerprint == again.fingerprint != other.fingerprint and len(one.fingerprint) == 16


def test_on_device_tables(train, tmp_path) -> None:
    trained = train(tables=True)
    save_model(tmp_path / "m", trained.workflow, trained.model, trained.store)
    with Predictor(tmp_path / "m") as predictor:
        rows = trained.frame.drop("click")
        np.testing.assert_allclose(predictor.predict(rows), trained.expected(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [1, 5, 3000])
def test_any_number_of_rows_is_read_by_the_same_rules(predictor, trained, count) -> None:
    row = {"user": "u1", "ad": int(trained.frame["ad"][0]), "tags": [1.0, 2], "price": np.float32(0.5)}
    expected = predictor.predict_row({**row, "tags": [1, 2], "price": 0.5})
    assert predictor.predict([row] * count) == pytest.approx([expected] * count, abs=1e-6)
    missing = predictor.predict_row({**row, "user": None})
    assert predictor.predict([{**row, "user": float("nan")}] * count) == pytest.approx([missing] * count, abs=1e-6)
    for bad in ({"ad": 1.9}, {"ad": -1}, {"tags": [1.5]}, {"price": 1e300}, {"user": 7.5}):
        with pytest.raises(DataError, match=next(iter(bad))):
            predictor.predict([row] * (count - 1) + [{**row, **bad}])


@pytest.mark.parametrize("count", [1, 5, 3000])
@pytest.mark.parametrize("bad", [{"user": 1.9}, {"user": -1}, {"tags": [1.5]}, {"tags": [None]}, {"user": "u1"}])
def test_features_are_no_fractions(tmp_path, trained, bad, count) -> None:
    if not (tmp_path / "m").exists():
        save_model(tmp_path / "m", None, trained.model, trained.store)
    row = {"user": 3, "ad": 3.0, "tags": [3], "price": 0.5}
    with Predictor(tmp_path / "m") as predictor:
        frame = pl.DataFrame([{**row, **bad}] * count)
        assert predictor.predict([row] * count) == pytest.approx(
            [predictor.predict_row({**row, "ad": 3})] * count, abs=1e-6
        )
        for rows in (frame, frame.to_dicts()):
            with pytest.raises(DataError, match=next(iter(bad))):
                predictor.predict(rows)


def test_without_a_workflow(tmp_path, trained) -> None:
    save_model(tmp_path / "m", None, trained.model, trained.store)
    with Predictor(tmp_path / "m") as predictor:
        np.testing.assert_allclose(predictor.predict(trained.features), trained.expected(), rtol=1e-5, atol=1e-6)
        with pytest.raises(DataError, match="column 'price' has missing values"):
            predictor.predict(trained.features.with_columns(price=pl.lit(None, pl.Float32)))


def test_following_a_feed(place, trained, tmp_path) -> None:
    torch.manual_seed(1)
    writer = FeedWriter(trained.store, tmp_path / "feed")
    with (
        Predictor(place, feed=tmp_path / "feed") as slow,
        Predictor(place, feed=tmp_path / "feed", poll_seconds=0) as eager,
    ):
        before = slow.predict(trained.frame)
        codes = {"user": np.arange(3, 23), "ad": np.full(20, 3), "tags": np.full(20, 3)}
        found = trained.store.lookup(codes)
        trained.store.update(found, {"user": np.ones((20, 4), np.float32)})
        writer.publish()
        np.testing.assert_array_equal(slow.predict(trained.frame), before)
        assert slow.refresh() == 1 and slow.refresh() == 0
        np.testing.assert_allclose(slow.predict(trained.frame), trained.expected(), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(eager.predict(trained.frame), slow.predict(trained.frame))
        assert (slow.predict(trained.frame) != before).any()
    writer.close()
    with pytest.raises(DataError, match="follows no feed"), Predictor(place) as plain:
        plain.refresh()


# What goes wrong.


def test_missing_columns_and_wrong_rows(predictor, trained) -> None:
    with pytest.raises(KeyError, match="column 'ad' is not in"):
        predictor.predict(trained.frame.drop("ad"))
    with pytest.raises(KeyError, match="column 'ad' is not in"):
        predictor.predict([{"user": "u1"}])
    with pytest.raises(KeyError, match="column 'ad' is not in"):
        predictor.predict([{"user": "u1"}] * 100)
    with pytest.raises(DataError, match="put a single row in a list"):
        predictor.predict({"user": "u1"})
    with pytest.raises(DataError, match="rows as mappings of columns to values, and one of the list is 7"):
        predictor.predict([7, 8])


def test_saving_twice_and_damage(trained, tmp_path) -> None:
    place = tmp_path / "m"
    save_model(place, trained.workflow, trained.model, trained.store)
    with pytest.raises(OutputExistsError, match="holds a model already"):
        save_model(place, trained.workflow, trained.model, trained.store)
    save_model(place, trained.workflow, trained.model, trained.store, overwrite=True)
    assert sorted(p.name.split("-")[0] for p in place.iterdir()) == ["model", "store"]
    (store,) = place.glob("store-*")
    shutil.move(store, tmp_path / "away")
    with pytest.raises(ArtefactError, match="which is not there; copy it along"):
        Predictor(place)
    shutil.move(tmp_path / "away", store)
    (place / "model" / "model.json").write_text("{}")
    with pytest.raises(ArtefactError, match=r"model\.json is truncated or altered"):
        Predictor(place)
    with pytest.raises(ArtefactError, match="nowhere does not exist; name the folder of a training run"):
        Predictor(tmp_path / "nowhere")
    with pytest.raises(ArtefactError, match="holds no model; name the folder of a training run"):
        Predictor(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ArtefactError, match="file is a file; name the folder of a training run"):
        Predictor(tmp_path / "file")


def test_what_cannot_be_served_is_not_saved(trained, tmp_path) -> None:
    with pytest.raises(ParameterError, match=r"one of penstock\.nn"):
        save_model(tmp_path / "m", trained.workflow, torch.nn.Linear(1, 1), trained.store)
    other = ps.Workflow(["user"] >> ops.Categorify()).fit(trained.frame)
    with pytest.raises(SchemaError, match="the model reads 'ad', which the workflow does not make"):
        save_model(tmp_path / "m", other, trained.model, trained.store)
    assert not (tmp_path / "m").exists()


def test_a_foreign_class_is_never_built(trained, tmp_path) -> None:
    from penstock.core import artefact

    place = tmp_path / "m"
    save_model(place, None, trained.model, trained.store)
    about = json.loads((place / "model" / "model.json").read_text())
    about["model"]["class"] = "os.system"
    shutil.rmtree(place / "model")
    with artefact.writing(place / "model", "model", 1) as folder:
        (folder / "model.json").write_text(json.dumps(about))
    with pytest.raises(ArtefactError, match=r"unknown model 'os\.system'"):
        Predictor(place)
