from __future__ import annotations

from collections import defaultdict

import numpy as np
import polars as pl
import pytest

from penstock import Workflow, ops
from penstock.core.errors import ColumnNotFoundError, ParameterError, SchemaError
from penstock.etl.operator import ROW_NUMBER

RNG = np.random.default_rng(0)
FRAME = pl.DataFrame(
    {
        "city": RNG.choice(["a", "b", "c", None], 300).tolist(),
        "user": RNG.integers(0, 40, 300),
        "click": RNG.integers(0, 2, 300).astype(np.int8),
        "paid": np.where(RNG.random(300) < 0.1, np.nan, RNG.random(300)),
    }
)


def test_training_rows_are_encoded_from_the_other_folds() -> None:
    op = ops.TargetEncoding("click", kfold=4, p_smooth=5)
    node = ["city"] >> op
    out = Workflow(node).fit_transform(FRAME)["TE_city_click"].to_list()
    rows = pl.DataFrame({ROW_NUMBER: np.arange(FRAME.height)})
    folds = op._folds(rows)
    assert set(folds) == {0, 1, 2, 3}
    mean = FRAME["click"].mean()
    for i, (city, value) in enumerate(zip(FRAME["city"], out, strict=True)):
        others = FRAME.filter(pl.Series(folds != folds[i]) & FRAME["city"].eq_missing(pl.Series([city])))["click"]
        assert value == pytest.approx((others.sum() + 5 * mean) / (len(others) + 5), rel=1e-6)


def test_other_data_is_encoded_from_all_training_rows() -> None:
    workflow = Workflow(["city"] >> ops.TargetEncoding("paid", p_smooth=2, out_dtype="float64")).fit(FRAME)
    out = workflow.transform(FRAME)["TE_city_paid"]
    sums: dict = defaultdict(list)
    for city, paid in FRAME.select("city", "paid").rows():
        if paid == paid:  # NaN targets teach nothing
            sums[city].append(paid)
    mean = np.mean([v for values in sums.values() for v in values])
    for city, value in zip(FRAME["city"], out, strict=True):
        assert value == pytest.approx((sum(sums[city]) + 2 * mean) / (len(sums[city]) + 2), rel=1e-12)
    unseen = workflow.transform(pl.DataFrame({"city": ["?"], "paid": [None]}, schema_overrides={"paid": pl.Float64}))
    assert unseen["TE_city_paid"][0] == pytest.approx(mean, rel=1e-12)


def test_targets_do_not_leak_into_unique_keys() -> None:
    frame = pl.DataFrame({"id": range(500), "click": RNG.integers(0, 2, 500)})
    encoded = Workflow(["id"] >> ops.TargetEncoding("click", p_smooth=0)).fit_transform(frame)["TE_id_click"]
    assert encoded.n_unique() == 1  # nothing but the mean is known of a key that no other fold has
    leaky = Workflow(["id"] >> ops.TargetEncoding("click", p_smooth=0, kfold=1)).fit_transform(frame)["TE_id_click"]
    assert leaky.to_list() == frame["click"].to_list()


def test_a_workflow_serves_without_the_target(tmp_path) -> None:
    workflow = Workflow((["city", "user"] >> ops.TargetEncoding("click")) + ["click"]).fit(FRAME)
    serving = workflow.remove_inputs(["click"])
    expected = workflow.transform(FRAME).drop("click")
    without = FRAME.select("city", "user")
    assert serving.transform(without).equals(expected)
    serving.save(tmp_path / "serving")
    loaded = Workflow.load(tmp_path / "serving")
    assert loaded.input_schema.names == ["city", "user"]
    assert loaded.transform(without).equals(expected)
    assert loaded.transform_row(without.row(7, named=True)) == expected.row(7, named=True)
    with pytest.raises(ColumnNotFoundError, match="click"):
        loaded.update(without)


def test_names_and_means_can_be_given() -> None:
    op = ops.TargetEncoding(["click", "paid"], target_mean={"click": 0.5}, out_col=["x", "y"])
    workflow = Workflow([["city", "user"]] >> op).fit(FRAME)
    assert workflow.output_schema.names == ["x", "y"]
    unseen = workflow.transform(FRAME[:1].with_columns(city=pl.lit("?")))
    assert unseen["x"][0] == 0.5
    assert Workflow([["city", "user"]] >> ops.TargetEncoding("click")).fit(FRAME).output_schema.names == [
        "TE_city_user_click"
    ]
    with pytest.raises(ParameterError, match="names 1 outputs, but there are 2"):
        Workflow(["city", "user"] >> ops.TargetEncoding("click", out_col="x")).fit(FRAME)


def test_what_cannot_be_a_target_is_refused() -> None:
    with pytest.raises(SchemaError, match="'city' is String"):
        Workflow(["user"] >> ops.TargetEncoding("city")).fit(FRAME)
    with pytest.raises(ColumnNotFoundError, match="did you mean 'click'"):
        Workflow(["user"] >> ops.TargetEncoding("clicks")).fit(FRAME)
    with pytest.raises(ParameterError, match="kfold"):
        ops.TargetEncoding("click", kfold=0)


def test_folds_follow_rows_through_a_filter() -> None:
    filtered = ["city", "click", "user"] >> ops.Filter(pl.col("user") > 5)
    out = Workflow(filtered["city", "click"] >> ops.TargetEncoding("click", name_sep="-")).fit_transform(FRAME)
    assert out.columns == ["TE-city-click", "TE-click-click"]
    assert out.height == FRAME.filter(pl.col("user") > 5).height
