"""ETL as NVTabular's users write it: imports, graphs, arguments and pandas on the outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from penstock.compat import settings
from penstock.compat.merlin.dag import unsaved
from penstock.compat.missing import CompatError
from penstock.core.errors import (
    ArtefactError,
    DataError,
    GraphError,
    ParameterError,
)

pytestmark = pytest.mark.usefixtures("old_names")


@pytest.fixture(autouse=True)
def oldest() -> Iterator[None]:
    """Codes and batches of the first age, where a test does not ask for the last."""
    with settings.using(nvtabular="0.5"):
        yield


@pytest.fixture
def latest(oldest: None) -> Iterator[None]:
    with settings.using(nvtabular="latest"):
        yield


def ratings(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "userId": rng.integers(1, 40, rows),
            "movieId": rng.integers(100, 160, rows),
            "rating": rng.integers(1, 6, rows).astype("float64"),
            "timestamp": rng.integers(1_000, 9_000, rows),
        }
    )


def movies() -> pd.DataFrame:
    genres = [["Drama"], ["Comedy", "Drama"], ["Action"], ["Action", "Comedy", "Crime"]]
    return pd.DataFrame({"movieId": range(100, 160), "genres": [genres[i % 4] for i in range(60)]})


def in_files(frame: pd.DataFrame, folder: Path, count: int = 3) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for i, rows in enumerate(np.array_split(np.arange(len(frame)), count)):
        paths.append(str(folder / f"part_{i}.parquet"))
        frame.iloc[rows].reset_index(drop=True).to_parquet(paths[-1])
    return paths


class TestMovielens:
    """Ids with their genres joined, ratings as a binary target."""

    def features(self):
        import nvtabular as nvt

        joined = ["userId", "movieId"] >> nvt.ops.JoinExternal(movies(), on=["movieId"])
        cats = joined >> nvt.ops.Categorify()
        target = nvt.ColumnSelector(["rating"]) >> nvt.ops.LambdaOp(lambda col: (col > 3).astype("int8"))
        return cats + target

    def test_fit_transform_and_parquet(self, tmp_path):
        import nvtabular as nvt

        train = nvt.Dataset(in_files(ratings(), tmp_path / "raw"), engine="parquet", part_size="1MB")
        workflow = nvt.Workflow(self.features())
        workflow.fit(train)
        out = tmp_path / "train"
        out.mkdir()
        workflow.transform(train).to_parquet(
            output_path=str(out), shuffle=nvt.io.Shuffle.PER_PARTITION,
            cats=["userId", "movieId"], labels=["rating"], dtypes={"userId": np.int64, "rating": np.float32},
        )  # fmt: skip
        written = nvt.Dataset(str(out / "*.parquet"))
        assert written.num_rows == 400
        frame = written.to_ddf().compute()
        assert isinstance(frame, pd.DataFrame)
        assert frame["rating"].dtype == np.float32
        assert set(frame["rating"]) == {0.0, 1.0}
        assert sorted(frame["userId"].unique()) == list(range(1, 1 + ratings()["userId"].nunique()))

    def test_sizes_of_embeddings(self):
        import nvtabular as nvt

        workflow = nvt.Workflow(self.features()).fit(nvt.Dataset(ratings()))
        single, multi = nvt.ops.get_embedding_sizes(workflow)
        assert list(single) == ["movieId", "userId"]  # sorted by name
        assert single["movieId"] == (1 + ratings()["movieId"].nunique(), 16)
        assert multi == {"genres": (5, 16)}

    def test_genres_are_lists_of_codes(self):
        import nvtabular as nvt

        out = nvt.Workflow(self.features()).fit_transform(nvt.Dataset(ratings())).to_ddf().compute()
        names = {"Drama": 0, "Comedy": 0, "Action": 0, "Crime": 0}
        for movie in ratings()["movieId"]:
            for genre in movies().set_index("movieId").loc[movie, "genres"]:
                names[genre] += 1
        order = sorted(names, key=lambda genre: (-names[genre], genre))
        codes = {genre: i + 1 for i, genre in enumerate(order)}
        expected = [[codes[g] for g in movies().set_index("movieId").loc[m, "genres"]] for m in ratings()["movieId"]]
        assert [list(row) for row in out["genres"]] == expected


class TestCriteo:
    cats = [f"C{i}" for i in range(1, 4)]
    conts = [f"I{i}" for i in range(1, 3)]

    def frame(self) -> pd.DataFrame:
        rng = np.random.default_rng(3)
        data: dict = {"label": rng.integers(0, 2, 300)}
        for name in self.conts:
            data[name] = np.where(rng.random(300) < 0.2, np.nan, rng.integers(-3, 90, 300))
        for name in self.cats:
            data[name] = [None if rng.random() < 0.1 else f"{x:08x}" for x in rng.integers(0, 20, 300)]
        return pd.DataFrame(data)

    def test_the_usual_workflow(self, tmp_path):
        import nvtabular as nvt
        from nvtabular.ops import Categorify, Clip, FillMissing, LogOp, Normalize

        frame = self.frame()
        cat_features = self.cats >> Categorify(
            freq_threshold=10, out_path=str(tmp_path), tree_width=8, cat_cache="host", on_host=True, search_sorted=False
        )
        cont_features = self.conts >> FillMissing() >> Clip(min_value=0) >> LogOp() >> Normalize()
        workflow = nvt.Workflow(cat_features + cont_features + ["label"], client=None)
        out = workflow.fit_transform(nvt.Dataset(frame, npartitions=4)).compute()

        numbers = np.log1p(frame["I1"].fillna(0).clip(lower=0))
        np.testing.assert_allclose(out["I1"], (numbers - numbers.mean()) / numbers.std(), rtol=1e-5, atol=1e-6)
        assert out["I1"].dtype == np.float32
        counts = frame["C1"].value_counts()
        kept = counts[counts >= 10]
        codes = {value: i + 1 for i, value in enumerate(sorted(kept.index, key=lambda v: (-kept[v], v)))}
        assert out["C1"].tolist() == [codes.get(value, 0) for value in frame["C1"]]  # null = unknown = 0
        assert out["C1"].dtype == np.int64
        unique = pd.read_parquet(tmp_path / "categories" / "unique.C1.parquet")
        assert [unique.loc[code, "C1"] for code in sorted(codes.values())] == list(codes)
        assert unique["C1"].isna().tolist() == [True] + [False] * len(codes)
        assert nvt.ops.get_embedding_sizes(workflow)["C1"] == (len(codes) + 1, 16)

    def test_codes_of_the_last_releases(self, latest):
        import nvtabular as nvt

        frame = pd.DataFrame({"c": ["b", "a", "b", None, "c"]})
        workflow = nvt.Workflow(["c"] >> nvt.ops.Categorify()).fit(nvt.Dataset(frame))
        assert workflow.transform(frame)["c"].tolist() == [3, 4, 3, 1, 5]
        assert workflow.transform(pd.DataFrame({"c": ["new"]}))["c"].tolist() == [2]
        assert workflow.output_schema["c"].properties["embedding_sizes"] == {"cardinality": 6, "dimension": 16}

    def test_codes_of_older_releases(self):
        import nvtabular as nvt

        frame = pd.DataFrame({"c": ["b", "a", "b", None]})
        assert nvt.Workflow(["c"] >> nvt.ops.Categorify(start_index=16)).fit_transform(frame)["c"].tolist() == [
            17, 18, 17, 16,
        ]  # fmt: skip
        hashed = nvt.Workflow(["c"] >> nvt.ops.Categorify(num_buckets=7)).fit(frame)
        codes = hashed.transform(frame)["c"]
        assert codes.between(0, 6).all() and codes[0] == codes[2]
        assert nvt.ops.get_embedding_sizes(hashed)["c"][0] == 7
        with pytest.raises(ParameterError, match=r"na_sentinel=5.*start_index"):
            nvt.ops.Categorify(na_sentinel=5)

    def test_split_out_gives_whole_vocabularies(self):
        import nvtabular as nvt

        frame = pd.DataFrame({"c": np.arange(500) % 97})
        node = ["c"] >> nvt.ops.Categorify(split_out=4, cardinality_memory_limit="1kB", split_every=2)
        assert nvt.Workflow(node).fit_transform(nvt.Dataset(frame, npartitions=5)).compute()["c"].nunique() == 97

    def test_joint_and_combined_encoding(self):
        import nvtabular as nvt

        frame = pd.DataFrame({"a": ["x", "y", "x"], "b": ["y", "y", "z"]})
        joint = nvt.Workflow([["a", "b"]] >> nvt.ops.Categorify()).fit_transform(frame)
        assert joint["a"].tolist() == [2, 1, 2] and joint["b"].tolist() == [1, 1, 3]
        combo = nvt.Workflow([["a", "b"]] >> nvt.ops.Categorify(encode_type="combo")).fit_transform(frame)
        assert combo.columns.tolist() == ["a_b"] and combo["a_b"].nunique() == 3

    def test_vocabularies_that_are_given(self):
        import nvtabular as nvt

        node = ["c"] >> nvt.ops.Categorify(vocabs={"c": pd.Series(["x", "y"])})
        assert nvt.Workflow(node).fit_transform(pd.DataFrame({"c": ["y", "z", "x"]}))["c"].tolist() == [2, 0, 1]


class TestSessions:
    def clicks(self) -> pd.DataFrame:
        rng = np.random.default_rng(5)
        return pd.DataFrame(
            {"session": rng.integers(0, 30, 300), "time": rng.permutation(300), "item": rng.integers(1, 50, 300)}
        )

    def test_groupby_is_over_all_partitions(self):
        import nvtabular as nvt

        frame = self.clicks()
        grouped = ["session", "time", "item"] >> nvt.ops.Groupby(
            groupby_cols=["session"], sort_cols=["time"], aggs={"item": ["list", "count"], "time": ["first"]}
        )
        cut = grouped["item_list"] >> nvt.ops.ListSlice(-3, pad=True) >> nvt.ops.Rename(postfix="_last")
        workflow = nvt.Workflow(grouped["session", "item_count", "item_list"] + cut)
        out = workflow.fit_transform(nvt.Dataset(frame, npartitions=5)).compute().set_index("session")
        expected = frame.sort_values("time").groupby("session")["item"].apply(list)
        assert len(out) == frame["session"].nunique()
        for session, items in expected.items():
            assert list(out.loc[session, "item_list"]) == items
            assert list(out.loc[session, "item_list_last"]) == (items[-3:] + [0, 0, 0])[:3]
            assert out.loc[session, "item_count"] == len(items)

    def test_filter_then_groupby(self):
        import nvtabular as nvt

        kept = ["session", "item"] >> nvt.ops.Filter(f=lambda df: df["item"] > 10)
        out = nvt.Workflow(kept >> nvt.ops.Groupby("session", aggs="count")).transform(
            nvt.Dataset(self.clicks(), npartitions=3)
        )
        expected = self.clicks().query("item > 10").groupby("session")["item"].count()
        assert out.compute().set_index("session")["item_count"].sort_index().tolist() == expected.tolist()

    def test_lag_over_partitions(self):
        import nvtabular as nvt

        frame = pd.DataFrame({"u": [1, 2, 1, 1], "t": [10, 11, 15, 35]})
        node = ["t"] >> nvt.ops.DifferenceLag(partition_cols=["u"], shift=[1, -1])
        out = nvt.Workflow(node).transform(nvt.Dataset(frame, npartitions=3)).compute()
        assert out["t_difference_lag_1"].fillna(-9).tolist() == [-9, -9, 5, 20]
        assert out["t_difference_lag_-1"].fillna(-9).tolist() == [-5, -9, -20, -9]


class TestTargets:
    def test_folds_only_for_the_rows_fitted_on(self):
        import nvtabular as nvt

        rng = np.random.default_rng(0)
        frame = pd.DataFrame({"c": rng.choice(list("abc"), 90), "click": rng.integers(0, 2, 90).astype("float32")})
        node = ["c"] >> nvt.ops.TargetEncoding(nvt.ColumnSelector(["click"]), kfold=5, p_smooth=20, fold_seed=42)
        workflow = nvt.Workflow(node)
        train = workflow.fit_transform(nvt.Dataset(frame)).compute()
        mean = frame["click"].mean()
        groups = frame.groupby("c")["click"]
        whole = ((groups.sum() + 20 * mean) / (groups.count() + 20)).to_dict()
        valid = workflow.transform(frame)
        np.testing.assert_allclose(valid["TE_c_click"], frame["c"].map(whole), rtol=1e-6)
        assert train.groupby(frame["c"])["TE_c_click"].nunique().min() > 1  # out of fold
        unseen = workflow.remove_inputs(["click"]).transform(pd.DataFrame({"c": ["new"]}))
        assert unseen["TE_c_click"].iloc[0] == pytest.approx(mean)

    def test_statistics_by_category(self):
        import nvtabular as nvt

        frame = pd.DataFrame({"c": ["a", "b", "a"], "x": [1.0, 2.0, 4.0]})
        node = ["c"] >> nvt.ops.JoinGroupby(cont_cols=["x"], stats=["count", "mean", "sum"], out_path="unused")
        out = nvt.Workflow(node).fit_transform(frame)
        assert out["c_count"].tolist() == [2, 1, 2]
        assert out["c_x_mean"].tolist() == [2.5, 2.0, 2.5]

        assert (out.dtypes["c_count"], out.dtypes["c_x_mean"]) == ("int32", "float32")
        assert out.dtypes["c_x_sum"] == "float64"

    def test_folds_as_a_column(self, tmp_path):
        import nvtabular as nvt

        logged = nvt.ops.TargetEncoding([["y"] >> nvt.ops.LogOp() >> nvt.ops.Rename(postfix="_log"), "y"], kfold=1)
        both = nvt.Workflow(["c"] >> logged).fit_transform(nvt.Dataset(pd.DataFrame({"c": ["a"], "y": [1.0]})))
        assert both.compute().columns.tolist() == ["TE_c_y_log", "TE_c_y"]
        frame = pd.DataFrame({"c": ["a", "b"] * 20, "y": [0, 1, 1, 1] * 10})
        op = nvt.ops.TargetEncoding("y", kfold=3, drop_folds=False, out_path="unused")
        workflow = nvt.Workflow(["c"] >> op)
        out = workflow.fit_transform(nvt.Dataset(frame)).compute()
        assert out.columns.tolist() == ["TE_c_y", "__fold__"] and set(out["__fold__"]) == {0, 1, 2}
        assert op.means == {"y": 0.75} and out.groupby([frame["c"], out["__fold__"]])["TE_c_y"].nunique().max() == 1
        workflow.save(tmp_path / "saved")
        again = nvt.Workflow.load(tmp_path / "saved").transform(frame)
        assert again.columns.tolist() == out.columns.tolist()
        pd.testing.assert_frame_equal(again, workflow.transform(frame))


class TestFunctions:
    def test_a_function_sees_pandas(self):
        import nvtabular as nvt

        kinds = []

        def f(col, df):
            kinds.append((type(col), type(df)))
            return col / df["views"]

        frame = pd.DataFrame({"clicks": [1, 3], "views": [2, 4]})
        node = ["clicks"] >> nvt.ops.LambdaOp(f, dependency=["views"]) >> nvt.ops.Rename(name="rate")
        assert nvt.Workflow(node).fit_transform(frame)["rate"].tolist() == [0.5, 0.75]
        assert set(kinds) == {(pd.Series, pd.DataFrame)}

    def test_a_bare_function(self):
        import nvtabular as nvt

        node = nvt.ColumnSelector(["a"]) >> (lambda col: col.str.upper())
        assert nvt.Workflow(node).transform(pd.DataFrame({"a": ["x", None]}))["a"].tolist()[0] == "X"

    def test_dtypes_are_seen_and_hold_in_every_partition(self):
        import nvtabular as nvt

        frame = pd.DataFrame({"t": ["a|b", "c", None, "d|e"], "n": [1, 2, 3, 4]})
        lists = ["t"] >> nvt.ops.FillMissing("") >> nvt.ops.LambdaOp(lambda col: col.str.split("|"))
        odd = ["n"] >> nvt.ops.LambdaOp(lambda col: col.where(col != 3))
        out = nvt.Workflow(lists + odd).fit_transform(nvt.Dataset(frame, npartitions=2))
        assert out.schema["t"].is_list
        assert [list(x) for x in out.compute()["t"]] == [["a", "b"], ["c"], [""], ["d", "e"]]
        assert out.schema["n"].dtype == np.float64  # pandas makes floats where a number is missing
        assert out.compute()["n"].fillna(-1).tolist() == [1, 2, -1, 4]

    def test_functions_are_saved_by_name(self, tmp_path, monkeypatch):
        import nvtabular as nvt

        (tmp_path / "my_functions.py").write_text("def halve(column):\n    return column / 2\n")
        monkeypatch.syspath_prepend(tmp_path)
        from my_functions import halve as importable  # type: ignore[import-not-found]

        workflow = nvt.Workflow(["x"] >> nvt.ops.LambdaOp(importable)).fit(pd.DataFrame({"x": [2, 4]}))
        workflow.save(tmp_path / "workflow")
        here = nvt.Workflow.load(tmp_path / "workflow")  # the process that saved it knows the function
        assert here.transform(pd.DataFrame({"x": [3]}))["x"].tolist() == [1.5]
        monkeypatch.setattr(unsaved, "_kept", {})  # as in another process
        with pytest.raises(ArtefactError, match="my_functions:halve"):
            nvt.Workflow.load(tmp_path / "workflow")
        again = nvt.Workflow.load(tmp_path / "workflow", trust=["my_functions"])
        assert again.transform(pd.DataFrame({"x": [3]}))["x"].tolist() == [1.5]

    def test_a_workflow_with_lambdas_is_saved_without_them(self, tmp_path: Path, monkeypatch) -> None:
        import nvtabular as nvt

        class Half(nvt.ops.Operator):
            def transform(self, col_selector, df):
                return df[col_selector.names] / 2

        frame = pd.DataFrame({"user": ["a", "b", "a"], "x": [2, 3, 4]})
        target = ["x"] >> nvt.ops.LambdaOp(lambda col: (col > 2).astype("int8"))
        halves = ["x"] >> Half() >> nvt.ops.Rename(postfix="_half")
        workflow = nvt.Workflow((["user"] >> nvt.ops.Categorify()) + target + halves).fit(frame)
        with pytest.warns(UserWarning, match="saved without it") as warned:
            workflow.save(tmp_path / "w")
        assert len(warned) == 2 and "test_nvtabular_etl.py:" in str(warned[0].message)
        here = nvt.Workflow.load(tmp_path / "w")  # in the process that saved it nothing is missing
        assert here.transform(frame)["x_half"].tolist() == [1.0, 1.5, 2.0]
        monkeypatch.setattr(unsaved, "_kept", {})  # as in another process
        again = nvt.Workflow.load(tmp_path / "w")
        assert nvt.ops.get_embedding_sizes(again) == nvt.ops.get_embedding_sizes(workflow)
        assert again.output_schema == workflow.output_schema
        with pytest.raises(CompatError, match="without the function"):
            again.transform(frame)

    def test_filters(self):
        import nvtabular as nvt

        frame = pd.DataFrame({"x": [5, 6, 7]})
        for f in (lambda df: df["x"] > 5, lambda df: df[df["x"] > 5], lambda df: (df["x"] > 5).to_numpy()):
            assert nvt.Workflow(["x"] >> nvt.ops.Filter(f)).transform(frame)["x"].tolist() == [6, 7]
        with pytest.raises(DataError, match="new index"):
            nvt.Workflow(["x"] >> nvt.ops.Filter(lambda df: df[df["x"] > 5].reset_index(drop=True))).transform(frame)


class TestSameArguments:
    """Operators that took NVTabular's arguments all along."""

    @pytest.mark.parametrize(
        ("name", "arguments", "values", "expected"),
        [
            ("Clip", {"max_value": 1.0}, [1.5, 0.0], [1.0, 0.0]),
            ("Dropna", {}, [1.0, None], [1.0]),
            ("FillMedian", {}, [1.0, 3.0, None], [1.0, 3.0, 2.0]),
            ("FillMissing", {"fill_val": 7.0}, [None, 0.0], [7.0, 0.0]),
            ("HashBucket", {"num_buckets": 100}, ["Rome", "Oslo"], [0, 8]),
            ("ListSlice", {"start": -2}, [[1, 2, 3]], [[2, 3]]),
            ("LogOp", {}, [0.0, 0.0], [0.0, 0.0]),
            ("ReduceDtypeSize", {}, [1, 2], [1, 2]),
            ("TagAsUserID", {}, [1, 2], [1, 2]),
            ("ValueCount", {}, [[1], [2, 3]], [[1], [2, 3]]),
        ],
    )
    def test_rows(self, name: str, arguments: dict, values: list, expected: list, tmp_path: Path) -> None:
        import nvtabular as nvt

        op = getattr(nvt.ops, name)(**arguments)
        assert isinstance(op, getattr(nvt.ops, name))
        assert type(op).__doc__
        workflow = nvt.Workflow(["x"] >> op)
        made = workflow.fit_transform(pd.DataFrame({"x": values}))["x"]
        assert [v if np.isscalar(v) else list(v) for v in made] == expected
        workflow.save(tmp_path / "saved")
        assert f'"{name}"' in (tmp_path / "saved" / "workflow.json").read_text()


class TestOwnOperators:
    def test_transform_with_a_list_of_names_or_a_selector(self):
        import nvtabular as nvt
        from nvtabular.ops import Operator

        class Ratio(Operator):
            def transform(self, columns, gdf):
                out = gdf[columns] / gdf[columns].sum(axis=1).to_numpy()[:, None]
                assert columns.names == ["a", "b"]
                return out.rename(columns={name: f"{name}_share" for name in columns})

        out = nvt.Workflow(["a", "b"] >> Ratio()).transform(pd.DataFrame({"a": [1, 3], "b": [3, 1]}))
        assert out.to_dict("list") == {"a_share": [0.25, 0.75], "b_share": [0.75, 0.25]}

    def test_declared_dtype_tags_and_columns(self):
        import nvtabular as nvt
        from merlin.schema import Tags

        class Hour(nvt.ops.Operator):
            output_dtype = np.int8
            output_tags = [Tags.CATEGORICAL, "clock"]

            def column_mapping(self, col_selector):
                return {f"{name}_hour": [name] for name in col_selector.names}

            def transform(self, col_selector, df):
                for name in col_selector.names:
                    df[f"{name}_hour"] = df[name] // 3600 % 24
                return df

        workflow = nvt.Workflow(["t"] >> Hour()).fit(nvt.Dataset(pd.DataFrame({"t": [3600, 7300]})))
        schema = workflow.output_schema
        assert schema.column_names == ["t_hour"]
        assert schema["t_hour"].dtype == np.int8
        assert Tags.CATEGORICAL in schema["t_hour"].tags and "clock" in schema["t_hour"].tags

    def test_dependencies_of_an_operator(self):
        import nvtabular as nvt

        class Minus(nvt.ops.Operator):
            @property
            def dependencies(self):
                return ["base"]

            def transform(self, col_selector, df):
                return df[col_selector.names].sub(df["base"], axis=0)

        frame = pd.DataFrame({"x": [5, 6], "base": [1, 2]})
        assert nvt.Workflow(["x"] >> Minus()).transform(frame)["x"].tolist() == [4, 4]

    def test_an_operator_that_learns(self, monkeypatch):
        import nvtabular as nvt

        class Rank(nvt.ops.StatOperator):
            def fit(self, col_selector, ddf):
                return {name: ddf[name].max() for name in col_selector.names}

            def fit_finalize(self, dask_stats):
                self.largest = dask_stats

            def transform(self, col_selector, df):
                return df[col_selector.names] / pd.Series(self.largest)

            def clear(self):
                self.largest = None

        frame = pd.DataFrame({"x": [1.0, 2.0, 4.0], "y": [5.0, 5.0, 10.0]})
        workflow = nvt.Workflow(["x", "y"] >> nvt.ops.FillMissing() >> Rank())
        out = workflow.fit_transform(nvt.Dataset(frame, npartitions=3)).compute()
        assert out["x"].tolist() == [0.25, 0.5, 1.0] and out["y"].tolist() == [0.5, 0.5, 1.0]
        with pytest.warns(UserWarning, match="known to it alone"):
            workflow.save("saved")
        assert nvt.Workflow.load("saved").transform(frame)["x"].tolist() == [0.25, 0.5, 1.0]
        monkeypatch.setattr(unsaved, "_kept", {})  # as in another process
        elsewhere = nvt.Workflow.load("saved")
        assert elsewhere.output_schema.column_names == ["x", "y"]
        with pytest.raises(CompatError, match="without the function"):
            elsewhere.transform(frame)

    def test_mistakes_are_named(self):
        import nvtabular as nvt

        class Nothing(nvt.ops.Operator):
            def transform(self, col_selector, df):
                return None

        with pytest.raises(DataError, match=r"Nothing\.transform returned None"):
            nvt.Workflow(["x"] >> Nothing()).transform(pd.DataFrame({"x": [1]}))
        with pytest.raises(GraphError, match="right side of >>"):
            ["x"] >> nvt.ops.LogOp() >> 3


def test_constant_columns_and_tags_of_lists(tmp_path):
    import nvtabular as nvt
    from merlin.schema import Tags

    frame = pd.DataFrame({"x": [3.0, 3.0, None], "y": [1.0, 2.0, 3.0], "z": [[1, 2], [3], []]})
    flow = nvt.Workflow((["x", "y"] >> nvt.ops.NormalizeMinMax()) + (["z"] >> nvt.ops.ListSlice(1)))
    made = flow.fit_transform(nvt.Dataset(frame)).compute()
    assert made["x"][:2].tolist() == [0.5, 0.5] and pd.isna(made["x"][2]) and made["y"].tolist() == [0.0, 0.5, 1.0]
    assert Tags.LIST in flow.output_schema["z"].tags
    flow.save(tmp_path / "flow")
    assert nvt.Workflow.load(tmp_path / "flow").transform(frame.assign(x=-7.0))["x"].tolist() == [0.5] * 3


def test_buckets_of_missing_values(tmp_path):
    """NaN is above every border for `np.digitize`; a saved workflow says the same wherever it is loaded."""
    import nvtabular as nvt

    import penstock as ps

    frame = pd.DataFrame({"x": [-1.0, 0.0, None, 7.0], "n": pd.array([None, 4, 5, 6], dtype="Int64")})
    flow = nvt.Workflow(["x", "n"] >> nvt.ops.Bucketize([0, 5]))
    coded = flow.fit_transform(nvt.Dataset(frame)).compute()
    assert coded["x"].tolist() == [0, 1, 2, 2] and coded["n"].tolist() == [2, 1, 2, 2]
    assert str(coded["x"].dtype) == "int32"
    flow.save(tmp_path / "flow")
    for load in (nvt.Workflow.load, ps.Workflow.load):
        again = load(tmp_path / "flow").transform(pl.from_pandas(frame))
        assert list(again["x"]) == [0, 1, 2, 2]
