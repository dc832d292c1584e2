"""Contract 1: what every operator promises, checked by one body over a table of cases."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from polars.testing import assert_frame_equal

from penstock import Workflow, ops
from penstock.core.schema import Role, Schema
from penstock.data.dataset import Dataset
from penstock.data.partition import FramePartition
from penstock.etl.fitted_operator import FittedOperator
from penstock.etl.graph import Node, as_node
from penstock.etl.operator import ROW_NUMBER, Operator


@dataclass(frozen=True)
class Case:
    """`build(folder)` gives the graph; `rows` says that row i of the output is row i of the input."""

    id: str
    op: type[Operator]
    build: Callable[[Path], Any]
    rows: bool = True
    order: tuple[str, ...] = ()  # columns to sort outputs by where partitions may order rows differently
    refits: bool = True  # updating gives exactly the state of fitting on all


def _features(folder: Path) -> str:
    path = folder / "features.npy"
    np.save(path, np.random.default_rng(0).random((12, 5)).round(1))
    return str(path)


def _table(folder: Path, repeated: bool = False) -> str:
    path = folder / f"table-{repeated}.parquet"
    users = [0, 1, 2, 3, 5] + [2] * repeated
    pl.DataFrame({"id": users, "country": list("abcdea")[: len(users)]}).write_parquet(path)
    return str(path)


A, B = ["user", "city"], ["price", "weight", "age"]
CASES = [
    Case("AddMetadata", ops.AddMetadata, lambda _: A >> ops.AddMetadata("t", {"unit": "EUR"})),
    Case("AddProperties", ops.AddProperties, lambda _: [*A, "genres"] >> ops.AddProperties({"unit": "EUR"})),
    Case("AddTags", ops.AddTags, lambda _: [*A, "genres"] >> ops.AddTags(["x", "y"])),
    Case("Binarize", ops.Binarize, lambda _: [*B, "flag", "ratings"] >> ops.Binarize(2.5)),
    Case("Binarize-ones", ops.Binarize, lambda _: ["city", "blank", "words"] >> ops.Binarize(ones=["a", "Zoë"])),
    Case("Binarize-numbers", ops.Binarize, lambda _: ["user", "age", "flag"] >> ops.Binarize(ones=[1, 3.0, 2.5])),
    Case("Bucketize", ops.Bucketize, lambda _: [*B, "ratings"] >> ops.Bucketize([0, 2.5, 7])),
    Case("Categorify", ops.Categorify, lambda _: [*A, "genres", "void", "blank", "flag"] >> ops.Categorify()),
    Case("Categorify-threshold", ops.Categorify, lambda _: [*A, "words"] >> ops.Categorify(freq_threshold=4)),
    Case("Categorify-buckets", ops.Categorify, lambda _: A >> ops.Categorify(max_size=8, num_buckets=3), refits=False),
    Case("Categorify-joint", ops.Categorify, lambda _: [["user", "other"], "city"] >> ops.Categorify()),
    Case("Categorify-combo", ops.Categorify, lambda _: [["user", "city"]] >> ops.Categorify(encode_type="combo")),
    Case("Categorify-old", ops.Categorify, lambda _: A >> ops.Categorify(start_index=1, dtype="int64")),
    Case("Categorify-vocabs", ops.Categorify, lambda _: ["city"] >> ops.Categorify(vocabs={"city": ["b", "a"]})),
    Case("Clip", ops.Clip, lambda _: [*B, "ratings"] >> ops.Clip(0, 5)),
    Case("ColumnSimilarity", ops.ColumnSimilarity, lambda f: [["user", "other"]] >> ops.ColumnSimilarity(_features(f))),
    Case(
        "ColumnSimilarity-inner",
        ops.ColumnSimilarity,
        lambda f: ["user", "other"] >> ops.ColumnSimilarity(_features(f), metric="inner"),
    ),
    Case("DataStats", ops.DataStats, lambda _: [*A, *B, "genres", "void", "blank"] >> ops.DataStats()),
    Case("DateParts", ops.DateParts, lambda _: ["time", "age"] >> ops.DateParts(["year", "weekday", "is_weekend"])),
    Case("DateParts-format", ops.DateParts,
         lambda _: ["time"] >> ops.Expr({"at": "14102100 + time % 24"}) >> ops.DateParts(format="%y%m%d%H")),
    Case("DifferenceLag", ops.DifferenceLag, lambda _: ["time", "weight"] >> ops.DifferenceLag("user", [1, -2])),
    Case("DifferenceLag-two", ops.DifferenceLag, lambda _: ["time", "user"] >> ops.DifferenceLag(["user", "city"])),
    Case("DropLowCardinality", ops.DropLowCardinality,
         lambda _: [*A, "flag"] >> ops.Categorify() >> ops.DropLowCardinality(7)),
    Case("Dropna", ops.Dropna, lambda _: [*A, "price"] >> ops.Dropna(), rows=False),
    Case("Expr", ops.Expr,
         lambda _: B >> ops.Expr({"a": pl.col("price") * 2 + pl.col("age"), "price": pl.col("price")})),
    Case("Expr-list", ops.Expr,
         lambda _: ["genres"] >> ops.Expr([pl.col("genres").list.len().alias("n"), pl.col("city")])),
    Case("Expr-text", ops.Expr,
         lambda _: [*B, "city"] >> ops.Expr({"a": "coalesce(price, 0) % 7 + age", "is_a": "city = 'a'", "one": "1"})),
    Case("FillMedian", ops.FillMedian, lambda _: B >> ops.FillMedian(add_binary_cols=True)),
    Case("FillMedian-plain", ops.FillMedian, lambda _: [*B, "void"] >> ops.FillMedian()),
    Case("FillMissing", ops.FillMissing, lambda _: [*B, "void"] >> ops.FillMissing(3)),
    Case("FillMissing-flags", ops.FillMissing, lambda _: B >> ops.FillMissing(3, add_binary_cols=True)),
    Case("Filter", ops.Filter, lambda _: [*A, "time"] >> ops.Filter(pl.col("time") % 3 > 0), rows=False),
    Case("Filter-text", ops.Filter, lambda _: [*A, "time"] >> ops.Filter("time % 3 > 0"), rows=False),
    Case("Filter-function", ops.Filter, lambda _: [*A, "time"] >> ops.Filter(pl.DataFrame.drop_nulls), rows=False),
    Case(
        "Groupby",
        ops.Groupby,
        lambda _: ["user", "time", "city", "price", "age", "weight"]
        >> ops.Groupby(
            "user", "time",
            {
                "city": ["list", "first", "last", "count", "nunique", "max"],
                "price": ["sum", "mean", "std", "var", "min", "median"],
                "age": ["sum", "mean", "median", "list"],
                "weight": ["sum", "std"],
            },
        ),
        rows=False, order=("user",),
    ),
    Case(
        "Groupby-two", ops.Groupby,
        lambda _: ["user", "city", "time", "genres"]
        >> ops.Groupby(["user", "city"], ["time"], ["first", "count"], ascending=False),
        rows=False, order=("user", "city"),
    ),
    Case("HashBucket", ops.HashBucket,
         lambda _: [*A, "genres", "words", "price", "weight", "flag"] >> ops.HashBucket(50)),
    Case("HashBucket-each", ops.HashBucket, lambda _: A >> ops.HashBucket({"user": 5, "city": 7})),
    Case("HashId", ops.HashId, lambda _: [*A, "genres", "words", "price", "weight", "flag"] >> ops.HashId()),
    Case("HashedCross", ops.HashedCross, lambda _: [["user", "city"], ["city", "price"]] >> ops.HashedCross(99)),
    Case("JoinExternal", ops.JoinExternal, lambda f: A >> ops.JoinExternal(_table(f), on="user", on_ext="id")),
    Case(
        "JoinExternal-inner", ops.JoinExternal,
        lambda f: A >> ops.JoinExternal(_table(f, True), on="user", on_ext="id", how="inner"), rows=False,
    ),
    Case("JoinGroupby", ops.JoinGroupby,
         lambda _: A >> ops.JoinGroupby(B, ["count", "sum", "mean", "std", "var", "min", "max"])),
    Case("JoinGroupby-group", ops.JoinGroupby,
         lambda _: [["user", "city"]] >> ops.JoinGroupby("void", ["count", "mean"])),
    Case("LambdaOp", ops.LambdaOp, lambda _: ["price", "weight"] >> ops.LambdaOp(pl.Series.abs, tags="size")),
    Case("LambdaOp-dtype", ops.LambdaOp, lambda _: ["age"] >> ops.LambdaOp(pl.Series.is_null, dtype="int8")),
    Case("ListSlice", ops.ListSlice, lambda _: ["genres", "words"] >> ops.ListSlice(1, -1)),
    Case("ListSlice-pad", ops.ListSlice, lambda _: ["genres", "ratings"] >> ops.ListSlice(-2, pad=True, pad_value=9)),
    Case("LogOp", ops.LogOp, lambda _: [*B, "ratings", "void"] >> ops.LogOp()),
    Case("Normalize", ops.Normalize, lambda _: [*B, "ratings", "void"] >> ops.Normalize()),
    Case("Normalize-float64", ops.Normalize, lambda _: B >> ops.Normalize(out_dtype="float64")),
    Case("NormalizeMinMax", ops.NormalizeMinMax, lambda _: [*B, "void"] >> ops.NormalizeMinMax()),
    Case("ReduceDtypeSize", ops.ReduceDtypeSize, lambda _: [*B, "time", "city", "void"] >> ops.ReduceDtypeSize()),
    Case("Rename", ops.Rename, lambda _: [*A, "genres"] >> ops.Rename(postfix="_x")),
    Case("Rename-function", ops.Rename, lambda _: A >> ops.Rename(str.capitalize)),
    Case("Rename-name", ops.Rename, lambda _: ["user"] >> ops.Rename(name="member")),
    Case("Split", ops.Split, lambda _: ["city", "blank"] >> ops.Split("a")),
    Case("TagAsItemFeatures", ops.TagAsItemFeatures, lambda _: A >> ops.TagAsItemFeatures()),
    Case("TagAsItemID", ops.TagAsItemID, lambda _: A >> ops.TagAsItemID()),
    Case("TagAsUserFeatures", ops.TagAsUserFeatures, lambda _: A >> ops.TagAsUserFeatures()),
    Case("TagAsUserID", ops.TagAsUserID, lambda _: A >> ops.TagAsUserID()),
    Case("TargetEncoding", ops.TargetEncoding, lambda _: [*A, ["user", "city"]] >> ops.TargetEncoding("click")),
    Case("TargetEncoding-two", ops.TargetEncoding, lambda _: A >> ops.TargetEncoding(["click", "price"], p_smooth=3)),
    Case("ValueCount", ops.ValueCount, lambda _: ["genres", "words"] >> ops.ValueCount()),
]  # fmt: skip


def make_frame(num_rows: int = 160, seed: int = 3) -> pl.DataFrame:
    rng = np.random.default_rng(seed)

    def some(values: list, share: float = 0.12) -> list:
        return [None if rng.random() < share else v for v in values]

    def lists(pick: Callable[[], Any]) -> list:
        return some([some([pick() for _ in range(rng.integers(0, 5))], 0.1) for _ in range(num_rows)], 0.1)

    price = [float(v) for v in rng.normal(3, 4, num_rows)]
    price[5], price[6], price[7] = math.nan, 0.1, -0.0
    user = rng.zipf(1.6, num_rows).clip(0, 11)
    return pl.DataFrame(
        {
            "user": some(user.tolist()),
            "other": some(rng.integers(0, 11, num_rows).tolist()),
            "city": some(rng.choice([*"aabcdé", "Zoë", ""], num_rows).tolist()),
            "price": some(price),
            "weight": some(rng.random(num_rows).tolist()),
            "age": some(rng.integers(0, 90, num_rows).tolist()),
            "time": rng.permutation(num_rows).tolist(),
            "click": some(rng.integers(0, 2, num_rows).tolist(), 0.05),
            "flag": some((rng.random(num_rows) < 0.5).tolist()),
            "genres": lists(lambda: int(rng.integers(0, 9))),
            "words": lists(lambda: str(rng.choice(["x", "yy", "ü"]))),
            "ratings": lists(lambda: float(rng.normal())),
            "void": [None] * num_rows,
            "blank": [None] * num_rows,
        },
        schema={
            "user": pl.Int64, "other": pl.Int32, "city": pl.String, "price": pl.Float64, "weight": pl.Float32,
            "age": pl.Int16, "time": pl.Int64, "click": pl.Int8, "flag": pl.Boolean, "genres": pl.List(pl.Int64),
            "words": pl.List(pl.String), "ratings": pl.List(pl.Float32), "void": pl.Float32, "blank": pl.String,
        },
    )  # fmt: skip


FRAME = make_frame()
UNSEEN = pl.concat(
    [
        make_frame(20, seed=99).with_columns(user=pl.col("user") + 1000, city=pl.col("city") + "?"),
        pl.DataFrame({n: [None, None] for n in FRAME.columns} | {"time": [0, 1]}, schema=FRAME.schema),
    ]
)


def cut(frame: pl.DataFrame, *bounds: int) -> list[pl.DataFrame]:
    edges = [0, *bounds, frame.height]
    return [frame[a:b] for a, b in pairwise(edges)]


def dataset(frames: list[pl.DataFrame]) -> Dataset:
    schema = Schema.from_polars(FRAME.schema).with_roles(label=["click"])
    return Dataset.from_partitions([FramePartition(f) for f in frames], schema)


ONE = [FRAME]
MANY = cut(FRAME, 0, 3, 40, 40, 90, 91, 160)  # empty partitions first, in between and last


FITTED = [case for case in CASES if issubclass(case.op, FittedOperator)]
ROWWISE = [case for case in CASES if case.rows and case.op is not ops.DifferenceLag]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    name = metafunc.function.__name__
    cases = FITTED if "merging" in name or "updating" in name else ROWWISE if "_rows_come_out" in name else CASES
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", cases, ids=lambda case: case.id)


@pytest.fixture
def fresh(case: Case, tmp_path: Path) -> Callable[[], Workflow]:
    return lambda: Workflow(as_node(case.build(tmp_path)), engine="local:2")


def ordered(case: Case, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort(case.order) if case.order else frame


def saved_state(workflow: Workflow, folder: Path) -> dict[str, Any]:
    """What the fitted operators would save, as comparable data."""
    plan = workflow._fitted_plan()
    found: dict[str, Any] = {}
    for i in plan.fitted_nodes():
        place = folder / f"{id(workflow)}-{i}"
        place.mkdir()
        plan.nodes[i].fitted_op.save_state(place)
        for file in sorted(place.iterdir()):
            key = f"{i}/{file.name}"
            if file.suffix == ".json":
                found[key] = json.loads(file.read_text())
            else:
                table = pl.read_parquet(file)
                found[key] = table.sort(table.columns).to_dict(as_series=False) | {"schema": str(table.schema)}
    return found


def test_every_operator_has_a_case() -> None:
    classes = {getattr(ops, n) for n in ops.__all__ if isinstance(getattr(ops, n), type)} - {Operator, FittedOperator}
    assert {case.op for case in CASES} == classes


def test_one_partition_and_many_learn_and_give_the_same(case: Case, fresh: Callable, tmp_path: Path) -> None:
    one, many, mixed = fresh(), fresh(), fresh()
    whole = one.fit_transform(dataset(ONE)).to_polars()
    pieces = many.fit_transform(dataset(MANY)).to_polars()
    assert_frame_equal(ordered(case, whole), ordered(case, pieces), check_exact=True)
    mixed.fit(dataset([MANY[i] for i in (4, 0, 2, 5, 3, 1, 6)]))
    expected = saved_state(one, tmp_path)
    assert saved_state(many, tmp_path) == expected
    assert saved_state(mixed, tmp_path) == expected
    assert_frame_equal(one.transform(UNSEEN), mixed.transform(UNSEEN), check_exact=True)
    again = mixed.transform(dataset(MANY)).to_polars()
    assert_frame_equal(ordered(case, one.transform(FRAME)), ordered(case, again), check_exact=True)


def test_merging_does_not_depend_on_the_order(case: Case, fresh: Callable, tmp_path: Path) -> None:
    workflow = fresh().fit(dataset(ONE))
    plan = workflow._fitted_plan()
    i = plan.fitted_nodes()[0]
    op, columns = plan.nodes[i].fitted_op, plan.columns[i]

    def parts() -> list[Any]:
        out, first = [], 0
        for frame in MANY:
            environment = plan.start(frame)
            plan.run(environment, [*plan.parents[i], *plan.dependencies[i]])
            rows = pl.Series(ROW_NUMBER, np.arange(first, first + frame.height))
            first += frame.height
            out.append(op.partial(plan.inputs_of(i, environment).with_columns(rows), columns))
        return out

    expected = saved_state(workflow, tmp_path)
    for order in ([6, 5, 4, 3, 2, 1, 0], [3, 1, 5, 0, 6, 2, 4]):
        states = parts()
        total = states[order[0]]
        for number in order[1:]:
            total = op.merge(states[number], total)
        op.finish(total, columns)
        plan.refresh()
        folder = tmp_path / f"order-{order[0]}"
        folder.mkdir()
        assert saved_state(workflow, folder) == expected


def test_updating_is_fitting_on_all(case: Case, fresh: Callable, tmp_path: Path) -> None:
    half, rest = cut(FRAME, 100)
    updated, fitted = fresh().fit(dataset(cut(half, 30))), fresh().fit(dataset(ONE))
    loaded = _saved_and_loaded(updated, tmp_path / "half")
    codes = {n.fitted_op: _codes(n.fitted_op) for n in updated._fitted_plan().nodes if _has_codes(n)}
    updated.update(dataset(cut(rest, 5)))
    loaded.update(dataset(cut(rest, 0, 20)))
    for op, before in codes.items():
        after = _codes(op)
        assert {k: after[k] for k in before} == before  # codes already given stay
    if any(map(_has_codes, fitted._fitted_plan().nodes)):
        if case.refits:
            assert _vocabularies(updated) == _vocabularies(fitted)
        assert _vocabularies(loaded) == _vocabularies(updated)
    else:
        expected = saved_state(fitted, tmp_path)
        assert saved_state(updated, tmp_path) == expected
        assert saved_state(loaded, tmp_path) == expected
    assert_frame_equal(loaded.transform(UNSEEN), updated.transform(UNSEEN), check_exact=True)


def _has_codes(node: Node) -> bool:
    return isinstance(node.operator, ops.Categorify)


def _codes(op: Any) -> dict[tuple[str, Any], int]:
    return {(name, v): i for name, known in op.vocabularies_.items() for i, v in enumerate(known.values.to_list())}


def _vocabularies(workflow: Workflow) -> dict[tuple[str, Any], int]:
    found = [n.operator for n in workflow._fitted_plan().nodes if _has_codes(n)]
    return {
        (name, value): count
        for op in found
        for name, known in op.vocabularies_.items()
        for value, count in zip(known.values.to_list(), known.counts.tolist(), strict=True)
    }


def _saved_and_loaded(workflow: Workflow, path: Path) -> Workflow:
    workflow.save(path)
    return Workflow.load(path, trust=["polars"])


def test_saving_and_loading_keeps_everything(case: Case, fresh: Callable, tmp_path: Path) -> None:
    workflow = fresh().fit(dataset(MANY))
    loaded = _saved_and_loaded(workflow, tmp_path / "saved")
    assert loaded.output_schema == workflow.output_schema
    assert saved_state(loaded, tmp_path) == saved_state(workflow, tmp_path)
    for frame in (FRAME, UNSEEN):
        assert_frame_equal(loaded.transform(frame), workflow.transform(frame), check_exact=True)


def test_recipes_round_trip_through_yaml(case: Case, fresh: Callable, tmp_path: Path) -> None:
    workflow = fresh()
    text = workflow.to_yaml(tmp_path / "recipe.yaml")
    again = Workflow.from_recipe(tmp_path / "recipe.yaml")
    assert again.to_recipe() == yaml.safe_load(text) == workflow.to_recipe()
    assert_frame_equal(again.fit_transform(FRAME), workflow.fit_transform(FRAME), check_exact=True)


def test_the_declared_schema_is_what_comes_out(case: Case, fresh: Callable) -> None:
    workflow = fresh().fit(dataset(MANY))
    declared = workflow.output_schema
    for frame in (FRAME, UNSEEN, FRAME.clear(), FRAME[:1]):
        out = workflow.transform(frame)
        assert dict(out.schema) == declared.polars_schema
        for column in declared:
            series = out[column.name]
            if not column.nullable:
                assert series.null_count() == 0, column.name
            if column.cardinality is not None and column.role is Role.CATEGORICAL:
                values = series.list.explode(empty_as_null=False) if column.is_list else series
                top = values.drop_nulls().max()
                assert top is None or 0 <= values.drop_nulls().min() <= top < column.cardinality
    if case.rows:
        assert workflow.transform(UNSEEN).height == UNSEEN.height


def test_single_rows_come_out_as_in_a_frame(case: Case, fresh: Callable) -> None:
    workflow = fresh().fit(dataset(MANY))
    for frame in (FRAME[:40], UNSEEN):
        expected = workflow.transform(frame).rows(named=True)
        for row, want in zip(frame.rows(named=True), expected, strict=True):
            assert _bits(workflow.transform_row(row)) == _bits(want)


def test_a_few_rows_come_out_as_in_a_frame(case: Case, fresh: Callable) -> None:
    workflow = fresh().fit(dataset(MANY))
    for frame in (FRAME[:1], FRAME[:40], UNSEEN):
        found = workflow.transform_rows(frame.rows(named=True))
        expected = workflow.transform(frame)
        assert list(found) == expected.columns
        for name, cell in found.items():
            values = cell if isinstance(cell, list) else cell.to_list()
            assert _bits(values) == _bits(expected[name].to_list()), name


def _bits(value: Any) -> Any:
    """Comparable to the last bit: NaN equals NaN, -0.0 differs from 0.0, 1 from 1.0."""
    if isinstance(value, dict):
        return {k: _bits(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_bits(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return "nan" if value != value else float(value).hex()
    return value if value is None or isinstance(value, (str, bool)) else ("int", int(value))


def test_inputs_are_left_alone(case: Case, fresh: Callable) -> None:
    frames = [frame.clone() for frame in MANY]
    before = [frame.write_ipc(None).getvalue() for frame in frames]
    workflow = fresh()
    workflow.fit_transform(dataset(frames)).to_polars()
    workflow.transform(frames[2])
    assert [frame.write_ipc(None).getvalue() for frame in frames] == before
