from __future__ import annotations

import itertools
import json
import math
import shutil

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from penstock import ColumnSelector, Dataset, Workflow, ops
from penstock.core.errors import ColumnNotFoundError, DataError, ParameterError, SchemaError
from penstock.core.schema import Role

# Hashing


def test_hashes_are_pinned_and_do_not_depend_on_width() -> None:
    frame = pl.DataFrame({"x": [0, 1, -1, None]})
    codes = [
        Workflow(["x"] >> ops.HashBucket(1000)).transform(frame.cast({"x": dtype}))["x"].to_list()
        for dtype in (pl.Int8, pl.Int32, pl.Int64)
    ]
    assert codes[0] == codes[1] == codes[2] == [535, 465, 936, 485]  # 0xE220A8397B1DCDAF, splitmix64 of 0, ends so


def test_hash_buckets_are_even() -> None:
    frame = pl.DataFrame({"x": np.arange(20_000)})
    counts = np.bincount(Workflow(["x"] >> ops.HashBucket(10)).transform(frame)["x"].to_numpy(), minlength=10)
    assert abs(counts - 2000).max() < 250


def test_hash_buckets_check_their_arguments() -> None:
    with pytest.raises(ParameterError, match="num_buckets must be an int from 1"):
        ops.HashBucket(0)
    with pytest.raises(ColumnNotFoundError, match=r"HashBucket\.num_buckets"):
        Workflow(["x"] >> ops.HashBucket({"y": 3})).transform(pl.DataFrame({"x": [1]}))


def test_crosses_depend_on_the_order_of_columns() -> None:
    frame = pl.DataFrame({"a": np.arange(100), "b": np.arange(100)[::-1]})
    out = Workflow([["a", "b"], ["b", "a"]] >> ops.HashedCross({"a_X_b": 50, "b_X_a": 9999})).transform(frame)
    assert out.columns == ["a_X_b", "b_X_a"]
    assert out["a_X_b"].max() < 50 < out["b_X_a"].max()
    with pytest.raises(SchemaError, match="lists"):
        Workflow(["a", "b"] >> ops.HashedCross(5)).transform(pl.DataFrame({"a": [[1]], "b": [1]}))


# Joins


TABLE = pl.DataFrame({"id": [1, 2, 3], "name": ["x", "y", "z"], "size": [1.0, 2.0, 3.0]})


@pytest.mark.parametrize("kind", ["polars", "pandas", "arrow", "dataset", "path"])
def test_tables_of_every_kind_join(kind: str, tmp_path) -> None:
    TABLE.write_parquet(tmp_path / "table.parquet")
    table = {
        "polars": lambda: TABLE,
        "pandas": lambda: TABLE.to_pandas(),
        "arrow": lambda: TABLE.to_arrow(),
        "dataset": lambda: Dataset(TABLE),
        "path": lambda: tmp_path / "table.parquet",
    }[kind]()
    frame = pl.DataFrame({"k": [3, 9, 1, None]}, schema={"k": pl.Int32})  # meets int64 keys
    op = ops.JoinExternal(table, on="k", on_ext="id", columns_ext=["name"])
    workflow = Workflow(["k"] >> op).fit(frame)
    assert workflow.transform(frame).to_dict(as_series=False) == {"k": [3, 9, 1, None], "name": ["z", None, "x", None]}
    workflow.save(tmp_path / "first")
    Workflow.load(tmp_path / "first").save(tmp_path / "second")
    shutil.rmtree(tmp_path / "first")
    assert Workflow.load(tmp_path / "second").transform(frame).equals(workflow.transform(frame))
    if kind != "path":  # the workflow keeps the table, as far as it is used; a recipe cannot
        assert pl.read_parquet(tmp_path / "second" / "attached" / "0.parquet").columns == ["id", "name"]
        with pytest.raises(ParameterError, match=r"lives in memory.*save the workflow"):
            workflow.to_yaml()


def test_repeated_keys_multiply_rows_unless_dropped() -> None:
    table = pl.DataFrame({"k": [1, 1, 2], "v": ["a", "a", "b"]})
    frame = pl.DataFrame({"k": [1, 2]})
    assert ops.JoinExternal(table, on="k").changes_rows
    assert Workflow(["k"] >> ops.JoinExternal(table, on="k")).transform(frame)["v"].to_list() == ["a", "a", "b"]
    once = ops.JoinExternal(table, on="k", drop_duplicates_ext=True)
    assert not once.changes_rows
    assert Workflow(["k"] >> once).transform(frame)["v"].to_list() == ["a", "b"]


def test_joins_say_what_is_wrong() -> None:
    with pytest.raises(ColumnNotFoundError, match="df_ext"):
        Workflow(["k"] >> ops.JoinExternal(TABLE, on="k"))
    with pytest.raises(SchemaError, match="'name' is in the data and in df_ext"):
        Workflow(["id", "name"] >> ops.JoinExternal(TABLE, on="id")).transform(TABLE)
    with pytest.raises(ParameterError, match="as many columns"):
        ops.JoinExternal(TABLE, on=["a", "b"], on_ext="id")


# Lists


LISTS = [[1, 2, 3, 4, 5], [6], [], None, [7, None, 9]]


@pytest.mark.parametrize(("start", "end"), itertools.product([-9, -3, -1, 0, 1, 3, 9], [-4, -1, 0, 2, 9]))
def test_slices_are_those_of_python(start: int, end: int) -> None:
    frame = pl.DataFrame({"x": LISTS}, schema={"x": pl.List(pl.Int16)})
    out = Workflow(["x"] >> ops.ListSlice(start, end)).transform(frame)
    assert out["x"].to_list() == [None if v is None else v[start:end] for v in LISTS]
    assert out.schema["x"] == pl.List(pl.Int16)


@pytest.mark.parametrize(("start", "end", "width"), [(3, None, 3), (-2, None, 2), (1, 3, 2), (-3, -1, 2), (-4, 2, 2)])
def test_padding_makes_all_lists_as_long(start: int, end: int | None, width: int) -> None:
    frame = pl.DataFrame({"x": LISTS}, schema={"x": pl.List(pl.Int16)})
    workflow = Workflow(["x"] >> ops.ListSlice(start, end, pad=True, pad_value=8)).fit(frame)
    low, high = (0, start) if end is None and start > 0 else (start, end)
    cut = [(v or [])[low:high] for v in LISTS]
    assert workflow.transform(frame)["x"].to_list() == [v + [8] * (width - len(v)) for v in cut]
    assert workflow.output_schema["x"].properties["value_count"] == {"min": width, "max": width}


def test_slices_say_what_is_wrong() -> None:
    with pytest.raises(ParameterError, match="known length"):
        ops.ListSlice(1, -1, pad=True)
    with pytest.raises(SchemaError, match="needs lists"):
        Workflow(["x"] >> ops.ListSlice(1)).transform(pl.DataFrame({"x": [1]}))
    with pytest.raises(SchemaError, match=r"pad_value 0\.5 does not fit"):
        frame = pl.DataFrame({"x": [[1]]})
        Workflow(["x"] >> ops.ListSlice(2, pad=True, pad_value=0.5)).transform(frame)


def test_value_counts_stand_in_the_schema() -> None:
    workflow = Workflow(["x"] >> ops.ValueCount()).fit(pl.DataFrame({"x": LISTS}))
    assert workflow.output_schema["x"].properties["value_count"] == {"min": 0, "max": 5}


# Similarity


def test_similarities_are_those_of_dense_products() -> None:
    scipy_sparse = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(1)
    left = (rng.random((20, 7)) * (rng.random((20, 7)) < 0.4)).round(2)
    right = (rng.random((9, 7)) * (rng.random((9, 7)) < 0.4)).round(2)
    frame = pl.DataFrame({"a": rng.integers(0, 20, 50), "b": rng.integers(0, 9, 50)})
    a, b = left[frame["a"].to_numpy()], right[frame["b"].to_numpy()]
    csr = scipy_sparse.csr_matrix(right)
    for features in (right, csr, (csr.data, csr.indices, csr.indptr)):
        node = [["a", "b"]] >> ops.ColumnSimilarity(left, features, metric="inner")
        assert Workflow(node).transform(frame)["a_b_sim"].to_numpy() == pytest.approx((a * b).sum(1), rel=1e-5)
    cosine = Workflow([["a", "b"]] >> ops.ColumnSimilarity(left, right, metric="cosine")).transform(frame)["a_b_sim"]
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    assert cosine.to_numpy() == pytest.approx(
        np.divide((a * b).sum(1), norms, where=norms > 0, out=0 * norms), abs=1e-6
    )
    weights = np.log(20 / np.maximum((left > 0).sum(0), 1))
    other = np.log(9 / np.maximum((right > 0).sum(0), 1))
    a, b = a * weights, b * other
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    tfidf = Workflow([["a", "b"]] >> ops.ColumnSimilarity(left, right)).transform(frame)["a_b_sim"].to_numpy()
    assert tfidf == pytest.approx(np.divide((a * b).sum(1), norms, where=norms > 0, out=0 * norms), abs=1e-6)


def test_similarity_of_unknown_ids_and_bad_features(tmp_path) -> None:
    node = [["a", "b"]] >> ops.ColumnSimilarity(np.eye(2), metric="inner")
    out = Workflow(node).fit(pl.DataFrame({"a": [0, 5, None], "b": [0, 0, 1]}))
    assert out.transform(pl.DataFrame({"a": [0, 5, None], "b": [0, 0, 1]}))["a_b_sim"].to_list() == [1.0, 0.0, None]
    with pytest.raises(ParameterError, match="lives in memory"):
        out.save(tmp_path / "x")
    with pytest.raises(ParameterError, match="do not describe"):
        node = [["a", "b"]] >> ops.ColumnSimilarity((np.ones(2), np.array([0, 1]), np.array([0, 9])))
        Workflow(node).transform(pl.DataFrame({"a": [0], "b": [0]}))
    with pytest.raises(ParameterError, match="two columns"):
        Workflow([["a", "b", "c"]] >> ops.ColumnSimilarity(np.eye(2))).transform(
            pl.DataFrame({"a": [0], "b": [0], "c": [0]})
        )


# Rows


def test_filters_take_masks_frames_and_expressions() -> None:
    frame = pl.DataFrame({"x": [1, 2, 3, 4]})
    for f in (
        pl.col("x") > 2,
        lambda frame: frame["x"] > 2,
        lambda frame: (frame["x"] > 2).to_numpy(),
        lambda frame: frame.filter(pl.col("x") > 2),
        lambda frame: pl.col("x") > 2,
        lambda frame: frame.max_horizontal() > 2,  # sees the inputs alone, no row numbers
    ):
        assert Workflow(["x"] >> ops.Filter(f)).transform(frame)["x"].to_list() == [3, 4]
        lagged = ["x"] >> ops.Filter(f) >> ops.Expr([pl.col("x"), pl.lit(1).alias("k")]) >> ops.DifferenceLag("k")
        assert Workflow(lagged).transform(frame)["x_difference_lag_1"].to_list() == [None, 1.0]
    with pytest.raises(DataError, match="mask of 1 rows for 4"):
        Workflow(["x"] >> ops.Filter(lambda frame: [True])).transform(frame)
    with pytest.raises(DataError, match="dropped the columns"):
        Workflow(["x"] >> ops.Filter(lambda frame: frame.drop("x"))).transform(frame)


def test_rows_with_nan_or_null_go() -> None:
    frame = pl.DataFrame({"x": [1.0, math.nan, None, 4.0], "y": ["a", "b", "c", None]})
    workflow = Workflow(["x", "y"] >> ops.Dropna()).fit(frame)
    assert workflow.transform(frame).rows() == [(1.0, "a")]
    assert not any(c.nullable for c in workflow.output_schema)


# Custom


def test_lambdas_work_and_are_refused_at_save(tmp_path) -> None:
    frame = pl.DataFrame({"x": [1, 2]})
    workflow = Workflow(ColumnSelector("x") >> (lambda x: x * 0.5)).fit(frame)
    assert workflow.transform(frame)["x"].to_list() == [0.5, 1.0]
    assert workflow.output_dtypes == {"x": "float64"}
    with pytest.raises(ParameterError, match="lambda cannot be saved"):
        workflow.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_functions_see_the_frame_and_other_nodes() -> None:
    frame = pl.DataFrame({"x": [1.0, 2.0], "y": [4.0, 8.0]})
    doubled = ["y"] >> ops.Expr(pl.col("y") * 2)
    op = ops.LambdaOp(lambda x, frame: x / frame["y"], dependency=doubled, label="share")
    assert Workflow(["x"] >> op).transform(frame)["x"].to_list() == [0.125, 0.125]


def test_a_function_that_fails_on_no_rows_needs_a_dtype() -> None:
    frame = pl.DataFrame({"x": [1, 2]})

    def first(x: pl.Series) -> pl.Series:
        return pl.Series([x[0]] * len(x))

    with pytest.raises(SchemaError, match=r"pass LambdaOp\(\.\.\., dtype=\.\.\.\)"):
        Workflow(["x"] >> ops.LambdaOp(first)).transform(frame)
    assert Workflow(["x"] >> ops.LambdaOp(first, dtype="int8")).transform(frame)["x"].to_list() == [1, 1]


def test_expressions_use_columns_made_before_and_raw_ones() -> None:
    frame = pl.DataFrame({"a": [1, 2], "b": [10, 20]})
    node = ["a"] >> ops.Rename(name="c") >> ops.Expr((pl.col("c") + pl.col("b")).alias("d"))
    assert Workflow(node).transform(frame).to_dict(as_series=False) == {"d": [11, 22]}
    with pytest.raises(ColumnNotFoundError, match="'z'"):
        Workflow(["a"] >> ops.Expr(pl.col("z"))).transform(frame)
    one = Workflow(["a"] >> ops.Expr({"a": pl.col("a"), "one": pl.lit(1, pl.Int8)})).transform(frame)
    assert one["one"].to_list() == [1, 1]


def test_expressions_with_python_code_are_neither_saved_nor_loaded() -> None:
    expression = pl.col("a").map_batches(lambda s: s + 1, return_dtype=pl.Int64)
    workflow = Workflow(["a"] >> ops.Expr(expression))
    assert workflow.transform(pl.DataFrame({"a": [1]}))["a"].to_list() == [2]
    with pytest.raises(ParameterError, match="calls Python code"):
        workflow.to_recipe()
    recipe = Workflow(["a"] >> ops.Expr(pl.col("a") + 1)).to_recipe()
    data = json.loads(expression.meta.serialize(format="json"))
    recipe["nodes"]["expr"]["ops"] = [{"Expr": {"expressions": [{"expression": data}]}}]
    with pytest.raises(ParameterError, match="never loaded"):
        Workflow.from_recipe(recipe)
    recipe["nodes"]["expr"]["ops"] = [{"Filter": {"f": {"expression": data}}}]
    with pytest.raises(ParameterError, match="never loaded"):
        Workflow.from_recipe(recipe)


# Names, metadata, statistics, sizes


def test_rename_takes_one_way_at_a_time() -> None:
    with pytest.raises(ParameterError, match="exactly one"):
        ops.Rename(postfix="x", name="y")
    with pytest.raises(ParameterError, match="renames one column"):
        Workflow(["a", "b"] >> ops.Rename(name="c")).transform(pl.DataFrame({"a": [1], "b": [1]}))


def test_tags_choose_columns_later() -> None:
    frame = pl.DataFrame({"u": [1], "i": [2], "p": [3.0]})
    tagged = (["u"] >> ops.TagAsUserID()) + (["i"] >> ops.TagAsItemID()) + (["p"] >> ops.TagAsItemFeatures())
    schema = Workflow(tagged).fit(frame).output_schema
    assert schema.select(tags="item").names == ["i", "p"]
    assert schema.select(tags=["user_id", "item_id"]).names == ["u", "i"]
    assert schema["u"].tags == {"user_id", "user"}


def test_statistics_tell_what_is_there() -> None:
    frame = pl.DataFrame({"x": [1.0, math.nan, 3.0, None], "s": ["a", "a", None, "b"], "l": [[1, 2], [2], [], None]})
    op = ops.DataStats()
    workflow = Workflow(["x", "s", "l"] >> op).fit(frame)
    assert op.statistics_["x"] == {
        "count": 2, "null_share": 0.5, "cardinality": 2, "min": 1.0, "max": 3.0, "mean": 2.0,
        "std": pytest.approx(math.sqrt(2)),
    }  # fmt: skip
    assert op.statistics_["s"] == {"count": 3, "null_share": 0.25, "cardinality": 2}
    assert (op.statistics_["l"]["count"], op.statistics_["l"]["max"]) == (3, 2)
    assert workflow.output_schema["s"].properties["statistics"]["cardinality"] == 2


def test_reduced_dtypes_widen_by_update_and_refuse_what_does_not_fit() -> None:
    frame = pl.DataFrame({"x": [0, 200], "f": [0.1, 0.2]})
    workflow = Workflow(["x", "f"] >> ops.ReduceDtypeSize()).fit(frame)
    assert workflow.output_dtypes == {"x": "uint8", "f": "float32"}
    large = frame.with_columns(x=pl.lit(-70_000, pl.Int64))
    with pytest.raises(DataError, match="column 'x', row 0: -70000 is no uint8"):
        workflow.transform(large)
    workflow.update(large)
    assert workflow.output_dtypes["x"] == "int32"
    assert workflow.transform(large)["x"].to_list() == [-70_000] * 2


def test_arrow_in_arrow_out() -> None:
    table = pa.table({"x": [1, 2]})
    assert isinstance(Workflow(["x"] >> ops.HashBucket(3)).transform(table), pa.Table)


@pytest.mark.parametrize("scale", [ops.Normalize, ops.NormalizeMinMax, ops.LogOp])
def test_a_code_that_is_scaled_is_a_number(scale):
    """Flags of gaps went on as categories, which no embedding takes as fractions."""
    frame = pl.DataFrame({"x": [1.0, None, 3.0, None]})
    workflow = Workflow(["x"] >> ops.FillMedian(add_binary_cols=True) >> scale()).fit(frame)
    assert {(c.name, c.role, c.dtype) for c in workflow.output_schema} == {
        ("x", Role.CONTINUOUS, "float32"),
        ("x_filled", Role.CONTINUOUS, "float32"),
    }
