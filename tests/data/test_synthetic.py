"""Synthetic click logs: deterministic, Criteo-shaped, learnable up to the AUC they state."""

import json
import re

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from penstock.core.errors import ArtefactError, ColumnNotFoundError, DataError, OutputExistsError, ParameterError
from penstock.core.schema import Role, Schema
from penstock.data import synthetic
from penstock.data.synthetic import (
    CRITEO_DTYPES,
    CRITEO_NAMES,
    criteo,
    movielens,
    multihot,
    output,
    teacher_probability,
)

INTEGERS, CATEGORIES = CRITEO_NAMES[1:14], CRITEO_NAMES[14:]
ROWS = 30_000


def read_tsv(path):
    types = {name: pl.String if dtype == "hex32" else pl.Int32 for name, dtype in CRITEO_DTYPES.items()}
    return pl.read_csv(path, separator="\t", has_header=False, schema=types)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    summary = criteo(tmp_path_factory.mktemp("log") / "a.tsv", ROWS, seed=3)
    return summary, read_tsv(summary.path)


def test_summary_describes_the_file(log):
    summary, frame = log
    assert frame.shape == (ROWS, 40) and frame.columns == CRITEO_NAMES
    assert (summary.rows, summary.files, summary.bytes) == (ROWS, [summary.path], summary.path.stat().st_size)
    assert summary.positive_rate == frame["label"].mean() == pytest.approx(0.25, abs=0.01)
    assert summary.schema.select(roles="label").names == ["label"]
    assert summary.schema.select(roles="continuous").names == INTEGERS
    assert summary.schema.select(roles="categorical").names == CATEGORIES
    assert "best reachable AUC 0.8" in str(summary)
    assert list(summary.path.parent.iterdir()) == [summary.path]


def test_same_seed_same_bytes_whatever_the_chunks_and_threads(tmp_path):
    def text(name, **how):
        return criteo(tmp_path / name, 5000, cardinalities=1000, **how).path.read_bytes()

    whole = text("a")
    assert text("b", rows_per_chunk=777, num_threads=3) == whole
    assert text("c", rows_per_chunk=5000, num_threads=1) == whole
    assert text("d", seed=1) != whole
    parts = criteo(tmp_path / "e", 5000, cardinalities=1000, num_files=3, rows_per_chunk=100)
    assert b"".join(file.read_bytes() for file in parts.files) == whole
    longer = criteo(tmp_path / "f", 6000, cardinalities=1000).path.read_bytes()
    assert longer.startswith(whole)


def test_categories_are_hex_within_their_cardinality(log):
    summary, frame = log
    hex32 = re.compile("[0-9a-f]{8}")
    for name in CATEGORIES:
        values = frame[name].drop_nulls().unique()
        assert 1 < len(values) <= summary.cardinalities[name]
        assert all(hex32.fullmatch(value) for value in values.head(500))
        assert values.str.len_bytes().unique().to_list() == [8]
    assert frame["C9"].n_unique() == 3 and frame["C3"].n_unique() > 5000


def test_frequencies_fall_like_a_power_law(log):
    counts = log[1]["C3"].drop_nulls().value_counts(sort=True)["count"].to_numpy()
    slope = np.polyfit(np.log(np.arange(3, 101)), np.log(counts[2:100]), 1)[0]
    assert -1.3 < slope < -0.9


def test_missing_rates(log, tmp_path):
    frame = log[1]
    for name, rate in {"I1": 0.45, "I2": 0.0, "I12": 0.765, "C1": 0.0, "C22": 0.76, "C26": 0.44, "C3": 0.034}.items():
        assert frame[name].null_count() / ROWS == pytest.approx(rate, abs=0.012 if rate else 0)
    assert frame["label"].null_count() == 0
    own = read_tsv(criteo(tmp_path / "a.tsv", 4000, cardinalities=50, missing={"I2": 0.5, "C22": 1.0, "I1": 0}).path)
    assert own["I2"].null_count() / 4000 == pytest.approx(0.5, abs=0.04)
    assert own["C22"].null_count() == 4000 and own["I1"].null_count() == 0
    assert read_tsv(criteo(tmp_path / "b.tsv", 1000, missing=0.0).path).null_count().row(0) == (0,) * 40


def test_integers_have_heavy_tails_and_only_i2_is_negative(log):
    frame = log[1]
    assert [name for name in INTEGERS if frame[name].min() < 0] == ["I2"]
    assert frame["I2"].min() == -3
    scales = []
    for name in INTEGERS:
        column = frame[name].drop_nulls()
        assert column.max() > 10 * max(column.median(), 0.5)
        scales.append(column.mean())
    assert max(scales) > 1000 * min(scales)


def test_teacher_reaches_the_stated_auc(log):
    from sklearn.metrics import roc_auc_score

    summary, frame = log
    probability = summary.teacher.probability(frame)
    assert 0.80 <= summary.best_auc <= 0.85
    # The deviation of an AUC over 30,000 rows is about 0.003.
    assert roc_auc_score(frame["label"], probability) == pytest.approx(summary.best_auc, abs=0.012)
    assert probability.mean() == pytest.approx(summary.positive_rate, abs=0.01)
    bins = pl.DataFrame({"p": probability, "y": frame["label"], "bin": np.minimum((probability * 5).astype(int), 4)})
    for _, part in bins.group_by("bin"):  # calibrated, not merely in the right order
        assert part["y"].mean() == pytest.approx(part["p"].mean(), abs=4 * 0.5 / len(part) ** 0.5)


def test_teacher_probability_from_any_frame(log):
    summary, frame = log
    few = frame.head(2000)
    expected = summary.teacher.probability(few)
    np.testing.assert_array_equal(teacher_probability(few), expected)
    for other in (few.to_pandas(), few.to_arrow(), few.to_dict(as_series=False), few.lazy()):
        np.testing.assert_array_equal(summary.teacher.probability(other), expected)
    ids = few.with_columns(pl.col(name).str.to_integer(base=16, dtype=pl.UInt32) for name in CATEGORIES)
    np.testing.assert_array_equal(summary.teacher.probability(ids), expected)
    assert not np.allclose(teacher_probability(few, teacher_seed=1), expected)
    with pytest.raises(ColumnNotFoundError, match="C26"):
        summary.teacher.probability(few.drop("C26"))
    with pytest.raises(DataError, match=r"'C1', row \d+: .*cardinalities"):
        teacher_probability(few, cardinalities=100)
    with pytest.raises(DataError, match=r"'C1'.*hex"):
        summary.teacher.probability(few.with_columns(C1=pl.lit("xyz")))


@pytest.mark.parametrize(("cardinalities", "teacher_seed"), [(10, 0), (1000, 7), ("terabyte", 3)])
def test_best_auc_holds_for_other_settings(tmp_path, cardinalities, teacher_seed):
    how = {"cardinalities": cardinalities, "teacher_seed": teacher_seed, "base_rate": 0.1}
    summary = criteo(tmp_path / "a.tsv", 5000, **how)
    assert 0.79 <= summary.best_auc <= 0.86
    assert summary.positive_rate == pytest.approx(0.1, abs=0.02)
    np.testing.assert_array_equal(
        teacher_probability(read_tsv(summary.path), **how), summary.teacher.probability(read_tsv(summary.path))
    )


def test_a_simple_model_learns_and_carries_over_to_another_seed(log, tmp_path):
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    train, valid = log[1], read_tsv(criteo(tmp_path / "valid.tsv", 10_000, seed=4).path)
    frequent = {name: train[name].value_counts(sort=True)[name].head(10).to_list() for name in CATEGORIES}

    def features(frame):
        logs = (pl.col(name).fill_null(0).clip(lower_bound=0).log1p() for name in INTEGERS)
        hot = (
            pl.col(name).eq_missing(pl.lit(value, pl.String)).cast(pl.Float64).alias(f"{name}={value}")
            for name, values in frequent.items()
            for value in values
        )
        return frame.select(*logs, *hot).to_numpy()

    model = LogisticRegression(max_iter=300, C=0.3).fit(features(train), train["label"].to_numpy())
    auc = roc_auc_score(valid["label"], model.predict_proba(features(valid))[:, 1])
    assert 0.68 < auc < log[0].best_auc


def test_parquet_holds_the_same_rows_as_tsv(log, tmp_path):
    frame = log[1].head(3000)
    text = criteo(tmp_path / "a.parquet", 3000, seed=3, format="parquet", rows_per_chunk=1000)
    assert pl.read_parquet(text.path).equals(frame)
    assert pq.ParquetFile(text.path).num_row_groups == 3
    ids = criteo(tmp_path / "ids", 3000, seed=3, format="parquet", raw_hex=False, num_files=2)
    back = pl.concat([pl.read_parquet(file) for file in ids.files])
    as_numbers = frame.with_columns(pl.col(name).str.to_integer(base=16, dtype=pl.UInt32) for name in CATEGORIES)
    assert back.equals(as_numbers)
    for summary, place in ((text, tmp_path / "a.parquet.schema.json"), (ids, tmp_path / "ids" / "_schema.json")):
        assert Schema.from_dict(json.loads(place.read_text())) == summary.schema
        assert summary.schema.polars_schema == dict(pl.read_parquet_schema(summary.files[0]))


def test_zero_rows_and_more_files_than_rows(tmp_path):
    assert criteo(tmp_path / "a.tsv", 0).path.read_bytes() == b""
    assert pl.read_parquet(criteo(tmp_path / "a.parquet", 0, format="parquet").path).columns == CRITEO_NAMES
    assert len(criteo(tmp_path / "b", 2, num_files=3).files) == 3


def test_existing_output_is_refused_unless_overwrite(tmp_path):
    target, folder = tmp_path / "a.tsv", tmp_path / "parts"
    target.write_text("mine")
    with pytest.raises(OutputExistsError, match=r"a\.tsv exists already; pass overwrite=True"):
        criteo(target, 10)
    assert target.read_text() == "mine"
    assert criteo(target, 10, overwrite=True).bytes == target.stat().st_size > 1000
    criteo(folder, 10, num_files=2)
    with pytest.raises(OutputExistsError, match="overwrite"):
        criteo(folder, 10, num_files=2)
    assert len(list(criteo(folder, 10, num_files=5, overwrite=True).path.glob("part-*"))) == 5
    (folder / "_schema.json").rename(folder / "thesis.txt")
    with pytest.raises(OutputExistsError, match="not written by Penstock"):
        criteo(folder, 10, num_files=5, overwrite=True)
    with pytest.raises(OutputExistsError, match="is a folder"):
        criteo(folder, 10, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tsv", "parts"]


@pytest.mark.parametrize("num_files", [1, 2])
@pytest.mark.parametrize("format", ["tsv", "parquet"])
def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch, num_files, format):
    class Interrupting(output.Bar):
        rows = 0

        def advance(self, amount=1):
            self.rows += amount
            if self.rows >= 600:
                raise KeyboardInterrupt

    class Drawn:
        def __enter__(self):
            return Interrupting()

        def __exit__(self, *details):
            return False

    monkeypatch.setattr(output, "bar", lambda *args, **kwargs: Drawn())
    with pytest.raises(KeyboardInterrupt):
        criteo(tmp_path / "out", 1000, rows_per_chunk=100, num_files=num_files, format=format, cardinalities=10)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_overwrite_keeps_the_old_data(tmp_path, monkeypatch):
    old = criteo(tmp_path / "a.tsv", 10, cardinalities=10).path.read_bytes()

    def fails(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output, "_write_file", fails)
    with pytest.raises(ArtefactError, match=r"cannot write .*a\.tsv: No space left"):
        criteo(tmp_path / "a.tsv", 20, cardinalities=10, overwrite=True)
    assert (tmp_path / "a.tsv").read_bytes() == old and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("num_files", [1, 2])
def test_unwritable_folder_is_a_clear_error(tmp_path, num_files):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtefactError, match=r"cannot write .*choose a writable folder"):
        criteo(tmp_path / "file" / "a.tsv", 10, num_files=num_files)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"num_rows": -1}, "num_rows must be an int ≥ 0, got -1"),
        ({"format": "csv"}, "format must be one of 'tsv', 'parquet', got 'csv'"),
        ({"cardinalities": 0}, "cardinalities must be an int"),
        ({"cardinalities": [5, 6]}, "one entry for each of C1 to C26, got 2"),
        ({"cardinalities": {"C1": 2**31}}, r"cardinalities\['C1'\] must be"),
        ({"cardinalities": "large"}, "one of 'kaggle', 'terabyte'"),
        ({"cardinalities": {"C27": 3}}, "'C27' is not in what cardinalities can name"),
        ({"missing": 1.5}, "missing must be"),
        ({"missing": {"label": 0.1}}, "'label' is not in what missing can name"),
        ({"base_rate": 0}, "base_rate must be"),
        ({"raw_hex": False}, "raw_hex=False needs format='parquet'"),
        ({"num_files": 0}, "num_files must be an int ≥ 1"),
    ],
)
def test_bad_settings_are_named(tmp_path, how, message):
    with pytest.raises((ParameterError, ColumnNotFoundError), match=message):
        criteo(tmp_path / "a", **{"num_rows": 10, **how})
    assert list(tmp_path.iterdir()) == []


def test_cardinalities_can_be_given_in_every_form(tmp_path):
    def sizes(given):
        return criteo(tmp_path / "a", 0, cardinalities=given, overwrite=True).cardinalities

    assert sizes(100)["C3"] == 100 and sizes(100)["C9"] == 3
    assert list(sizes(list(range(1, 27))).values()) == list(range(1, 27))
    assert sizes({"C9": 7})["C9"] == 7 and sizes({"C9": 7})["C1"] == 1460
    assert sizes("terabyte")["C1"] == 10_000_000


def test_multihot(tmp_path):
    from sklearn.metrics import roc_auc_score

    how = {"cardinality": 500, "num_lists": 3, "num_categorical": 2, "num_continuous": 1, "missing": 0.1}
    summary = multihot(tmp_path / "a.parquet", 20_000, mean_length=5, max_length=20, **how)
    frame = pl.read_parquet(summary.path)
    assert frame.columns == ["label", "N1", "S1", "S2", "M1", "M2", "M3"]
    assert dict(frame.schema) == summary.schema.polars_schema
    lengths = frame["M1"].list.len()
    assert lengths.min() == 0 and lengths.max() == 20 and lengths.mean() == pytest.approx(5, abs=0.3)
    for name in ("M2", "S1"):
        assert frame[name].null_count() / 20_000 == pytest.approx(0.1, abs=0.01)
        values = frame[name].explode().drop_nulls()
        assert values.min() >= 0 and values.max() < 500 and values.n_unique() > 400
    assert summary.schema["M1"].is_list and summary.schema["M1"].cardinality == 500
    probability = summary.teacher.probability(frame)
    assert roc_auc_score(frame["label"], probability) == pytest.approx(summary.best_auc, abs=0.015)
    assert 0.79 < summary.best_auc < 0.86
    parts = multihot(tmp_path / "b", 20_000, mean_length=5, max_length=20, num_files=3, rows_per_chunk=999, **how)
    assert pl.concat([pl.read_parquet(file) for file in parts.files]).equals(frame)
    with pytest.raises(ParameterError, match="mean_length must be at most max_length=4"):
        multihot(tmp_path / "c", 10, mean_length=5, max_length=4)


def test_movielens(tmp_path):
    from sklearn.metrics import roc_auc_score

    summary = movielens(tmp_path / "a.parquet", 20_000, num_users=300, num_items=100)
    frame = pl.read_parquet(summary.path)
    assert dict(frame.schema) == summary.schema.polars_schema
    assert frame["user"].n_unique() == 300 and frame["item"].max() == 99 and frame["item"].min() == 0
    assert set(frame["rating"].unique().to_list()) == {k / 2 for k in range(1, 11)}
    assert frame.group_by("item").agg(pl.col("genres").n_unique())["genres"].unique().to_list() == [1]
    assert frame["genres"].list.len().unique().sort().to_list() == [1, 2, 3, 4]
    assert (frame["genres"].list.n_unique() == frame["genres"].list.len()).all()
    liked = frame["rating"] >= 4
    assert summary.positive_rate == liked.mean()
    assert roc_auc_score(liked, summary.teacher.probability(frame)) == pytest.approx(summary.best_auc, abs=0.015)
    rmse = float(np.sqrt(np.mean((summary.teacher.rating(frame) - frame["rating"].to_numpy()) ** 2)))
    assert rmse == pytest.approx(summary.best_rmse, abs=0.015)
    assert frame["rating"].std() > 1.2 * rmse
    assert summary.schema["rating"].role is Role.LABEL and summary.schema["genres"].is_list
    again = movielens(tmp_path / "b.parquet", 20_000, num_users=300, num_items=100, rows_per_chunk=1234)
    assert pl.read_parquet(again.path).equals(frame)


def test_public_names():
    assert sorted(synthetic.__all__) == synthetic.__all__
    assert all(hasattr(synthetic, name) for name in synthetic.__all__)
