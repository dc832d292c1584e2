"""What NVTabular 23.8 and Merlin's libraries gave for small programs, as seen beside them."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

from penstock.compat import settings

pytestmark = pytest.mark.usefixtures("old_names")


def frame():
    return pd.DataFrame({"k": [2, 1, 2, 1], "i": np.array([1, 2, 3, 4], "int8"), "x": [4.0, np.nan, 2.0, 1.0]})


class TestDatasets:
    def test_merge_takes_all_joins_of_pandas(self):
        from merlin.io import Dataset

        left, right = pd.DataFrame({"k": [1, 2], "x": [1.0, 2.0]}), pd.DataFrame({"k": [2, 5], "y": [7, 8]})
        for how in ("inner", "left", "right", "outer"):
            for keys in ({"on": "k"}, {}):
                found = Dataset.merge(Dataset(left), Dataset(right), how=how, **keys).compute()
                wanted = left.merge(right, how=how, **keys)
                assert found.columns.tolist() == wanted.columns.tolist()
                pd.testing.assert_frame_equal(
                    found.sort_values("k", ignore_index=True), wanted.sort_values("k", ignore_index=True)
                )

    def test_keys_of_two_names_both_stay_in_a_merge(self):
        from merlin.io import Dataset

        left = pd.DataFrame({"b": ["x", "y"], "c": [1, 2], "g": [1, 2]})
        right = pd.DataFrame({"key": ["x", "w"], "c": [7, 8], "g": [1, 3]})
        for how in ("inner", "left", "right", "outer"):
            for keys in (("b", "key"), (["g", "b"], ["g", "key"]), ("c", "g")):
                named = {"how": how, "left_on": keys[0], "right_on": keys[1]}
                found = Dataset.merge(Dataset(left), Dataset(right), **named).compute()
                wanted = left.merge(right, **named)
                assert found.columns.tolist() == wanted.columns.tolist()
                by = [name for name in wanted.columns if wanted[name].dtype != "float64"] or wanted.columns.tolist()
                found, wanted = (frame.sort_values(by, ignore_index=True) for frame in (found, wanted))
                assert found.isna().equals(wanted.isna())
                assert found.fillna(0).astype(str).values.tolist() == wanted.fillna(0).astype(str).values.tolist()
        with pytest.raises(ValueError, match="column 'b = c' is string on the left and int64 on the right"):
            Dataset.merge(Dataset(left), Dataset(right), left_on="b", right_on="c")

    def test_what_to_parquet_refuses(self, tmp_path):
        from merlin.io import Dataset

        data = Dataset(frame())
        with pytest.raises(ValueError, match="output_files excludes partition_on"):
            data.to_parquet(tmp_path, output_files=2, partition_on=["k"])
        with pytest.raises(ValueError, match="method must be"):
            data.to_parquet(tmp_path, method="cluster")
        with pytest.raises(TypeError, match="output_files must be a number"):
            data.to_parquet(tmp_path, output_files="a.parquet")
        with pytest.raises(FileNotFoundError, match="nowhere"):
            Dataset(str(tmp_path / "nowhere.parquet"))
        with pytest.raises(AttributeError, match="came from files"):
            data.file_partition_map  # noqa: B018

    def test_properties_come_back_as_they_were_written(self, tmp_path):
        from merlin.io import Dataset
        from merlin.schema import Tags

        data = Dataset(frame())
        domain = {"domain": {"min": 0, "max": 9}, "unit": "EUR"}
        data.schema["k"] = data.schema["k"].with_tags([Tags.ITEM, Tags.CATEGORICAL]).with_properties(domain)
        data.to_parquet(tmp_path / "out")
        found = Dataset(str(tmp_path / "out"), engine="parquet")
        assert found.schema["k"].properties == domain
        assert found.native.schema["k"].cardinality == 10

    def test_sizes_of_another_cardinality_give_way(self):
        from merlin.schema import ColumnSchema

        given = {"domain": {"min": 0, "max": 9}}
        native = ColumnSchema("k", dtype="int64", tags=["categorical"], properties=given).to_native()
        assert ColumnSchema.from_native(native).properties == given
        grown = ColumnSchema.from_native(native.with_(cardinality=40)).properties
        assert grown["domain"]["max"] == 39 and grown["embedding_sizes"]["cardinality"] == 40

    def test_vocabularies_are_named_by_domains(self):
        from merlin.schema import ColumnSchema

        sizes = {
            "domain": {"min": 0, "max": 7, "name": "items"},
            "embedding_sizes": {"cardinality": 8, "dimension": 16},
        }
        column = ColumnSchema("k", dtype="int64", tags=["categorical"], properties=sizes)
        assert column.to_native().properties == {"vocabulary": "items"}
        assert ColumnSchema.from_native(column.to_native()).properties == sizes


class TestOperators:
    def test_groupby_leaves_missing_keys_out_and_sorts_missing_last(self):
        from nvtabular import Dataset, Workflow, ops

        rows = pd.DataFrame({"k": ["b", None, "a", "a", "b"], "t": [1.0, 2.0, None, 3.0, 4.0], "v": [1, 2, 3, 4, 5]})
        for ascending in (True, False):
            node = ["k", "t", "v"] >> ops.Groupby("k", "t", {"v": "list"}, ascending=ascending)
            found = Workflow(node).fit_transform(Dataset(rows)).compute()
            wanted = rows.sort_values("t", ascending=ascending).groupby("k")["v"].apply(list)
            assert found["k"].tolist() == ["a", "b"] == wanted.index.tolist()
            assert [row.tolist() for row in found["v_list"]] == wanted.tolist()

    def test_groupby_sorts_the_keys_of_few_rows(self):
        import dask.dataframe as dd
        from nvtabular import Dataset, Workflow, ops

        rows = pd.DataFrame({"k": np.arange(40) % 13, "v": np.arange(40)})
        data = Dataset(dd.from_pandas(rows, npartitions=5))
        found = Workflow(["k", "v"] >> ops.Groupby("k", aggs="sum")).fit_transform(data)
        assert found.npartitions == 1
        assert found.compute()["k"].tolist() == list(range(13))
        assert found.compute()["v_sum"].tolist() == rows.groupby("k")["v"].sum().tolist()

    def test_statistics_of_integers_are_integers(self, tmp_path):
        from nvtabular import Dataset, Workflow, ops

        node = ["k"] >> ops.JoinGroupby(cont_cols=["i", "x"], stats=["sum", "min", "max", "mean"])
        workflow = Workflow(node).fit(Dataset(frame()))
        found = workflow.transform(frame())
        assert {n: str(d) for n, d in found.dtypes.items()} == {
            "k_i_sum": "int64", "k_i_min": "int8", "k_i_max": "int8", "k_i_mean": "float32",
            "k_x_sum": "float64", "k_x_min": "float64", "k_x_max": "float64", "k_x_mean": "float32",
        }  # fmt: skip
        assert found["k_i_sum"].tolist() == [4, 6, 4, 6]
        workflow.save(tmp_path / "saved")
        loaded = Workflow.load(tmp_path / "saved")
        pd.testing.assert_frame_equal(loaded.transform(frame()), found)
        assert loaded.output_schema == workflow.output_schema

    def test_domains_of_hashed_columns_end_one_further(self, tmp_path):
        from nvtabular import Dataset, Workflow, ops

        workflow = Workflow(["k"] >> ops.HashBucket(8)).fit(Dataset(frame()))
        wanted = {"domain": {"min": 0, "max": 8}, "embedding_sizes": {"cardinality": 8, "dimension": 16}}
        assert workflow.output_schema["k"].properties == wanted
        workflow.save(tmp_path / "saved")
        assert Workflow.load(tmp_path / "saved").output_schema["k"].properties == wanted
        with pytest.raises(TypeError, match="num_buckets"):
            ops.HashBucket("8")

    def test_boundaries_by_a_function(self, tmp_path):
        from nvtabular import Dataset, Workflow, ops

        bounds = {"i": [2, 4], "x": [2.5]}
        workflow = Workflow(["i", "x"] >> ops.Bucketize(lambda name: bounds[name])).fit(Dataset(frame()))
        found = workflow.transform(frame())
        pd.testing.assert_frame_equal(found, Workflow(["i", "x"] >> ops.Bucketize(bounds)).transform(frame()))
        workflow.save(tmp_path / "saved")
        pd.testing.assert_frame_equal(Workflow.load(tmp_path / "saved").transform(frame()), found)
        with pytest.raises(TypeError, match="boundaries"):
            ops.Bucketize(3)

    def test_labels_of_functions(self):
        from nvtabular import ops

        assert ops.LambdaOp(lambda column: column).label == "UDF"
        assert ops.LambdaOp(np.log1p.__call__, label="log").label == "log"
        with pytest.raises(TypeError, match="must be a function"):
            ops.LambdaOp(3)


class TestOperatorsByThemselves:
    """`op.transform(selector, frame)`, `op.fit(selector, dask_frame)`, and what old code asks of their class."""

    def rows(self):
        return pd.DataFrame({"k": [1, 2, 2], "x": [1.0, None, 3.0], "y": [0, 1, 0]}, index=[5, 6, 7])

    def learned(self, op, names):
        import dask
        import dask.dataframe as dd
        from nvtabular import ColumnSelector

        found = op.fit(ColumnSelector(names), dd.from_pandas(self.rows(), npartitions=1))
        op.fit_finalize(dask.compute(found)[0])
        return op

    def test_some_give_the_whole_frame(self):
        from nvtabular import ColumnSelector, ops

        other = pd.DataFrame({"k": [1, 2], "e": [5, 6]})
        given = {
            "LogOp": (ops.LogOp(), ["x"], ["k", "x", "y"]),
            "FillMissing": (ops.FillMissing(7, add_binary_cols=True), ["x"], ["k", "x", "y", "x_filled"]),
            "FillMedian": (self.learned(ops.FillMedian(), ["x"]), ["x"], ["k", "x", "y"]),
            "Categorify": (self.learned(ops.Categorify(), ["k"]), ["k"], ["k", "x", "y"]),
            "HashBucket": (ops.HashBucket(3), ["k"], ["k", "x", "y"]),
            "AddTags": (ops.AddTags(["mine"]), ["x"], ["k", "x", "y"]),
            "JoinExternal": (ops.JoinExternal(other, on="k"), ["k"], ["k", "x", "y", "e"]),
            "Dropna": (ops.Dropna(), ["x"], ["k", "x", "y"]),
            "Clip": (ops.Clip(2), ["x"], ["x"]),
            "Normalize": (self.learned(ops.Normalize(), ["x"]), ["x"], ["x"]),
            "Rename": (ops.Rename(postfix="_z"), ["x"], ["x_z"]),
        }
        for name, (op, selected, wanted) in given.items():
            found = op.transform(ColumnSelector(selected), self.rows())
            assert found.columns.tolist() == wanted, name
            if "y" in wanted and len(found) == 3:
                assert found["y"].tolist() == [0, 1, 0], name

    def test_dtypes_are_those_of_a_workflow(self):
        from nvtabular import ColumnSelector, ops

        found = ops.FillMissing(0, add_binary_cols=True).transform(ColumnSelector(["x"]), self.rows())
        assert found["x_filled"].tolist() == [False, True, False] and found["x_filled"].dtype == bool
        found = ops.Groupby("k", aggs={"x": "sum"}).transform(ColumnSelector(["k", "x"]), self.rows())
        assert found["x_sum"].dtype == np.float32
        found = ops.DifferenceLag("k").transform(ColumnSelector(["x"]), self.rows())
        assert found["x_difference_lag_1"].dtype == np.float32
        op = self.learned(ops.JoinGroupby(cont_cols=["y"], stats=["count", "sum"]), ["k"])
        found = op.transform(ColumnSelector(["k"]), self.rows())
        assert [str(dtype) for dtype in found.dtypes] == ["int32", "int64"]

    def test_classes_say_what_an_operator_is(self):
        from merlin.dag import BaseOperator
        from nvtabular import ops

        class Own(ops.Normalize):
            pass

        class Plain(ops.Operator):
            pass

        learning = [ops.Normalize(), Own(), ops.Categorify(), ops.ValueCount()]
        for op in (*learning, ops.LogOp(), ops.Clip(0), ops.TagAsUserID(), Plain()):
            learns = op in learning
            assert isinstance(op, ops.Operator) and isinstance(op, BaseOperator)
            assert isinstance(op, ops.StatOperator) == learns
            assert hasattr(op, "fit") == hasattr(op, "fit_finalize") == learns
        assert issubclass(ops.Categorify, ops.StatOperator) and not issubclass(ops.Clip, ops.StatOperator)
        assert not isinstance(ops.LogOp(), Plain)

    def test_users_derive_from_built_in_operators(self):
        from nvtabular import Dataset, Workflow, ops

        class MyLog(ops.LogOp):
            def transform(self, col_selector, df):
                df = super().transform(col_selector, df)
                df["x"] = df["x"] + 1
                return df

        class MyCodes(ops.Categorify):
            output_tags = property(lambda self: ["mine"])

            def transform(self, col_selector, df):
                return super().transform(col_selector, df).assign(k=lambda rows: rows["k"] + 100)

        class Named(ops.Normalize):
            output_dtype = np.float32
            output_properties = property(lambda self: {"unit": "EUR"})

        node = (["x"] >> MyLog()) + (["k"] >> MyCodes()) + (["y"] >> Named())
        workflow = Workflow(node).fit(Dataset(self.rows()))
        found = workflow.transform(self.rows())
        assert found["k"].tolist() == [104, 103, 103]
        np.testing.assert_allclose(found["x"], np.log([2.0, np.nan, 4.0]) + 1, rtol=1e-6)
        assert found["y"].dtype == np.float32 and workflow.output_schema["y"].properties["unit"] == "EUR"
        assert "mine" in workflow.output_schema["k"].tags and workflow.output_schema["k"].int_domain.max == 4

    def test_keys_of_another_name_come_out(self, tmp_path):
        from nvtabular import Dataset, Workflow, ops

        other = pd.DataFrame({"id": [1, 9], "e": [5, 6]})
        workflow = Workflow(["k", "y"] >> ops.JoinExternal(other, on="k", on_ext="id")).fit(Dataset(self.rows()))
        found = workflow.transform(self.rows())
        wanted = self.rows().merge(other, left_on="k", right_on="id", how="left")[["k", "y", "id", "e"]]
        assert workflow.output_schema.column_names == found.columns.tolist() == wanted.columns.tolist()
        pd.testing.assert_frame_equal(found.reset_index(drop=True), wanted)
        workflow.save(tmp_path / "saved")
        pd.testing.assert_frame_equal(Workflow.load(tmp_path / "saved").transform(self.rows()), found)

    def tags(self, graph, tagged):
        from nvtabular import Dataset, Workflow

        rows = pd.DataFrame({"k": [2, 1, 2], "g": [1, 1, 2], "x": [4.0, 3.0, 2.0], "y": [0, 1, 0]})
        data = Dataset(rows)
        for name, tags in tagged.items():
            data.schema[name] = data.schema[name].with_tags(tags).with_properties({"of": name})
        outputs = Workflow(graph).fit(data).output_schema
        return {
            c.name: ({str(tag).removeprefix("Tags.").lower() for tag in c.tags}, c.properties.get("of"))
            for c in outputs
        }

    def test_outputs_have_the_tags_and_properties_of_what_they_are_made_from(self):
        from nvtabular import ops

        tagged = {"k": ["mine", "user"], "x": ["theirs", "continuous"], "y": ["clicked", "target"]}
        for graph, wanted in (
            (["k"] >> ops.JoinGroupby(cont_cols=["x"], stats=["count", "mean"]), {"k_count": "k", "k_x_mean": "x"}),
            ([["k", "g"]] >> ops.JoinGroupby(cont_cols=["x"], stats=["sum"]), {"k_g_x_sum": "x"}),
            (["g", "x"] >> ops.Groupby("g", aggs={"x": "mean"}, name_sep="-"), {"g": None, "x-mean": "x"}),
            (["x"] >> ops.FillMedian(add_binary_cols=True), {"x": "x", "x_filled": "x"}),
        ):
            own = {"k": {"mine", "user"}, "x": {"theirs", "continuous"}, None: set()}
            assert self.tags(graph, tagged) == {name: (own[of], of) for name, of in wanted.items()}
        for graph, name, of, tags in (
            (["k"] >> ops.TargetEncoding("y", kfold=1), "TE_k_y", "y", {"clicked", "continuous"}),
            (["k"] >> ops.JoinGroupby(cont_cols=["y"], stats=["mean"]), "k_y_mean", "y", {"clicked"}),
            (["x"] >> ops.DifferenceLag("g"), "x_difference_lag_1", "x", {"theirs", "continuous"}),
            ([["k", "g"]] >> ops.HashedCross(5), "k_X_g", "k", {"mine", "user", "categorical"}),
            (["k"] >> ops.HashBucket(5), "k", "k", {"mine", "user", "categorical"}),
            (["k"] >> ops.LogOp() >> ops.Rename(postfix="_log"), "k_log", "k", {"mine", "user", "continuous"}),
        ):
            assert self.tags(graph, tagged) == {name: (tags, of)}

    def test_a_target_may_be_a_category_or_a_number_too(self, tmp_path):
        from merlin.io import Dataset
        from merlin.schema import Tags
        from nvtabular import ops

        target = {"x": Tags.TARGET, "y": [Tags.TARGET, Tags.CATEGORICAL]}
        assert self.tags(["x"] >> ops.Normalize(), target)["x"][0] == {"target", "continuous"}
        assert self.tags(["x"] >> ops.Bucketize([3]), target)["x"][0] == {"target", "categorical"}
        assert self.tags(["y"] >> ops.Rename(postfix="_"), target)["y_"][0] == {"target", "categorical"}
        assert self.tags(["k"] >> ops.AddTags(Tags.TARGET), {"k": Tags.CATEGORICAL})["k"][0] == {
            "target",
            "categorical",
        }
        assert self.tags(["k"] >> ops.Normalize(), {"k": Tags.CATEGORICAL})["k"][0] == {"continuous"}
        data = Dataset(pd.DataFrame({"y": [0, 1]}))
        data.schema["y"] = data.schema["y"].with_tags(target["y"])
        data.to_parquet(tmp_path / "data")
        again = Dataset(str(tmp_path / "data"), engine="parquet").schema
        assert (
            again.select_by_tag(Tags.CATEGORICAL).column_names == again.select_by_tag(Tags.TARGET).column_names == ["y"]
        )

    def test_a_domain_ends_at_the_cardinality_up_to_the_first_releases(self):
        from nvtabular import Dataset, Workflow, ops

        for age, largest, domain in (("1.0", 2, 3), ("latest", 4, 4)):
            with settings.using(nvtabular=age):
                workflow = Workflow(["k"] >> ops.Categorify()).fit(Dataset(pd.DataFrame({"k": ["a", "b", "a"]})))
                column = workflow.output_schema["k"]
                assert column.properties["domain"] == {"min": 0, "max": domain, "name": "k"}
                assert column.properties["embedding_sizes"]["cardinality"] == largest + 1
                assert ops.get_embedding_sizes(workflow)["k"][0] == largest + 1

    def test_dtypes_of_a_workflow_are_merlins_since_the_last_releases(self):
        import merlin.dtypes as md
        from nvtabular import Dataset, Workflow, ops

        workflow = Workflow(["x"] >> ops.LogOp()).fit(Dataset(pd.DataFrame({"x": [1.0]})))
        with settings.using(nvtabular="1.0"):
            assert isinstance(workflow.output_dtypes["x"], np.dtype) and workflow.input_dtypes["x"] == np.float64
        with settings.using(nvtabular="latest"):
            known = workflow.output_dtypes["x"]
            assert (
                known == md.float32 == np.float32 and known.element_size == 32 and workflow.input_dtypes["x"].is_float
            )
            assert np.zeros(1, dtype=known).dtype == pd.Series([1]).astype(known).dtype == np.float32

    def test_a_vocabulary_of_integers_is_read_as_such(self):
        from nvtabular import Dataset, Workflow, ops

        codes = ops.Categorify()
        Workflow(["k"] >> codes).fit(Dataset(pd.DataFrame({"k": [3, 1, 3]})))
        assert pd.read_parquet(codes.categories["k"])["k"].dtype == np.dtype("int64")

    def test_statistics_of_groups_come_as_they_were_asked_for(self):
        from nvtabular import Dataset, Workflow, ops

        rows = Dataset(pd.DataFrame({"k": [1, 1, 2], "x": [1.0, 2.0, 4.0], "z": [1, 2, 3]}))
        workflow = Workflow(["k"] >> ops.JoinGroupby(cont_cols=["x", "z"], stats=["max", "count", "sum"])).fit(rows)
        found = workflow.transform(rows).compute()
        assert found.columns.tolist() == ["k_x_max", "k_count", "k_x_sum", "k_z_max", "k_z_sum"]
        assert found.values.tolist() == [[2, 2, 3, 2, 3], [2, 2, 3, 2, 3], [4, 1, 4, 3, 3]]
        assert workflow.output_schema.column_names == found.columns.tolist()

    def test_a_name_for_several_columns(self):
        from nvtabular import Dataset, Workflow, ops

        with pytest.raises(RuntimeError, match="renames one column"):
            Workflow(["k", "y"] >> ops.Rename(name="z")).fit(Dataset(self.rows()))


class TestGraphs:
    def test_users_operators_may_refuse_their_schemas(self):
        from merlin.dag import Graph
        from merlin.schema import ColumnSchema, Schema
        from nvtabular import Dataset, Workflow, ops

        asked = []

        class Narrow(ops.Operator):
            def validate_schemas(self, parents, dependencies, inputs, outputs, strict_dtypes=False):
                asked.append((parents.column_names, inputs.column_names, outputs.column_names, strict_dtypes))
                if inputs["x"].dtype == "float64":
                    raise ValueError("x is too wide")

            def transform(self, col_selector, df):
                assert not len(df), "rows were read before"
                return df

        graph = ["x"] >> ops.Rename(postfix="") >> Narrow()
        for wide in (pd.DataFrame({"x": [1.0]}), pd.DataFrame({"x": [1.0], "z": [1]})):
            with pytest.raises(ValueError, match="too wide"):
                Workflow(graph).fit(Dataset(wide))
        for dtype in ("float64", "float32"):
            root = Schema([ColumnSchema("x", dtype=dtype)])
            if dtype == "float32":
                Graph(graph).construct_schema(root, preserve_dtypes=True)
                continue
            with pytest.raises(ValueError, match="too wide"):
                Graph(graph).construct_schema(root)
        assert asked == [(["x"], ["x"], ["x"], strict) for strict in (False, False, False, True)]

    def test_users_operators_lose_inputs(self):
        from merlin.dag import BaseOperator, Graph
        from merlin.schema import ColumnSchema, Schema
        from nvtabular import Dataset, Workflow, ops

        class Plus(BaseOperator):
            def transform(self, col_selector, df):
                return df[col_selector.names] + 1

        for op in (Plus(), ops.LambdaOp(lambda column: column + 1)):
            workflow = Workflow(["k", "i"] >> op).fit(Dataset(frame()))
            workflow.remove_inputs(["k"])
            assert workflow.output_schema.column_names == workflow.input_schema.column_names == ["i"]
            assert workflow.transform(frame()[["i"]])["i"].tolist() == [2, 3, 4, 5]
        schema = Schema([ColumnSchema(name, dtype="int64") for name in "abc"])
        graph = Graph(["a", "b"] >> Plus()).construct_schema(schema)
        assert graph.remove_inputs(["a"]).output_schema.column_names == ["b"]

    def test_inputs_come_in_the_order_of_the_graph(self):
        from nvtabular import Dataset, Workflow, ops

        node = (["x", "i"] >> ops.Normalize()) + (["k"] >> ops.JoinGroupby(cont_cols=["x"], stats=["sum"]))
        assert Workflow(node).fit(Dataset(frame())).input_schema.column_names == ["x", "i", "k"]

    def test_nodes_come_row_by_row_or_parents_first(self):
        from merlin.dag import iter_nodes
        from merlin.dag.node import postorder_iter_nodes, preorder_iter_nodes
        from nvtabular import ops

        node = (["a"] >> ops.Categorify()) + (["c"] >> ops.FillMissing() >> ops.Normalize())
        rows = ["ConcatColumns", "Categorify", "Normalize", "SelectionOp", "FillMissing", "SelectionOp"]
        for nodes in (iter_nodes([node]), preorder_iter_nodes(node), iter_nodes([node], flatten_subgraphs=True)):
            assert [type(found.op).__name__ for found in nodes] == rows
        first = ["SelectionOp", "Categorify", "SelectionOp", "FillMissing", "Normalize", "ConcatColumns"]
        assert [type(found.op).__name__ for found in postorder_iter_nodes(node, flatten_subgraphs=True)] == first
        shared = ["c"] >> ops.FillMissing()
        long = shared >> ops.LogOp() >> ops.Clip(0)
        found = [type(n.op).__name__ for n in iter_nodes([shared + long])]
        assert found == ["ConcatColumns", "Clip", "LogOp", "FillMissing", "SelectionOp"]

    def undated(self, monkeypatch):
        monkeypatch.delenv(settings.NVTABULAR, raising=False)
        settings.forget_the_program()
        for _, modules in settings._SIGNS:
            for name in modules:
                monkeypatch.delitem(sys.modules, name, raising=False)

    def test_a_call_of_one_age_shows_it(self, monkeypatch, capfd):
        self.undated(monkeypatch)
        import nvtabular as nvt

        rows = pd.DataFrame({"city": ["Rome", "Oslo", "Rome", None]})
        node = nvt.ColumnGroup(["city"]) >> nvt.ops.Categorify()
        assert nvt.Workflow(node).fit_transform(nvt.Dataset(rows)).compute()["city"].tolist() == [1, 2, 1, 0]
        assert "conventions of NVTabular 0.5: the program calls nvtabular.ColumnGroup" in capfd.readouterr().err
        settings.forget_the_program()  # another program
        assert settings.nvtabular() == "latest"

    def test_an_argument_that_only_one_age_took_tells_it(self, monkeypatch, capfd):
        self.undated(monkeypatch)
        import nvtabular as nvt

        rows = pd.DataFrame({"c": ["b", "a", "b", None]})
        codes = nvt.Workflow(["c"] >> nvt.ops.Categorify(start_index=1)).fit_transform(rows)["c"]
        assert codes.tolist() == [2, 3, 2, 1]  # the first code is that of what is missing
        assert "conventions of NVTabular 1.0: the program calls Categorify(start_index=…)" in capfd.readouterr().err
        settings.forget_the_program()


class TestTables:
    def test_columns_are_renamed_taken_and_deleted(self):
        from merlin.table import NumpyColumn, TensorTable

        table = TensorTable({"a": np.array([1, 2]), "b": np.array([3, 4])})
        table.columns = ["x", "y"]
        table.update(TensorTable({"z": np.array([5, 6])}))
        del table["x"]
        assert table.columns == ["y", "z"] and [d.name for d in table.dtypes()] == ["int64", "int64"]
        with pytest.raises(ValueError, match="2 columns, got 1"):
            table.columns = ["q"]
        assert table.as_tensor_type(np.ndarray).column_type is NumpyColumn
        with pytest.raises(ValueError, match="Unsupported tensor type"):
            table.as_tensor_type(int)

    def test_lists_of_one_length_become_an_array_where_the_schema_says_so(self):
        from merlin.core.dispatch import df_from_dict, dict_from_df
        from merlin.schema import ColumnSchema, Schema
        from merlin.table import TensorTable

        rows = pd.DataFrame({"a": [[1, 2], [3, 4]]})
        fixed = TensorTable.from_df(rows, schema=Schema([ColumnSchema("a", dims=(None, 2))]))
        assert fixed["a"].values.tolist() == [[1, 2], [3, 4]] and fixed["a"].offsets is None
        assert sorted(dict_from_df(rows)) == ["a__offsets", "a__values"]
        assert [list(row) for row in df_from_dict(dict_from_df(rows))["a"]] == [[1, 2], [3, 4]]
        ragged = pd.DataFrame({"a": [[1, 2], [3]]})
        with pytest.raises(ValueError, match="1 to 2 elements"):
            TensorTable.from_df(ragged, schema=Schema([ColumnSchema("a", dims=(None, 2))]))

    def test_registries_of_dtypes(self):
        import merlin.dtypes as md
        from merlin.dtypes.registry import DTypeMappingRegistry

        registry = DTypeMappingRegistry()
        registry.register("mine", {md.int32: ["foo"]})
        assert list(registry) == ["mine"] and registry.to_merlin("foo") == md.int32
        assert registry.from_merlin(md.int32, "mine") == "foo"
        assert registry.to_merlin("bar") == registry.from_merlin(md.int8, "mine") == md.unknown

    def test_names_of_dtypes_and_columns(self):
        import merlin.dtypes as md
        import merlin.dtypes.aliases as aliases
        from merlin.table.tensor_column import create_tensor_column

        assert aliases.int32 is md.int32 and md.aliases.datetime64ns is md.datetime64ns
        column = create_tensor_column(np.array([1, 2]), offsets=np.array([0, 2]))
        assert type(column).__name__ == "NumpyColumn" and len(column) == 1
        assert repr(md.Shape((None, 3))) == "Shape(dims=(Dimension(min=0, max=None), Dimension(min=3, max=3)))"

    def test_a_selection_takes_the_selector_that_it_is_given(self):
        from merlin.dag import ColumnSelector
        from merlin.dag.ops.selection import SelectionOp
        from merlin.io import Dataset

        op = SelectionOp(ColumnSelector(["k", "i"]))
        for given, wanted in ((["k"], ["k"]), ([], ["k", "i"])):
            assert op.transform(ColumnSelector(given), frame()).columns.tolist() == wanted
            assert op.compute_output_schema(Dataset(frame()).schema, ColumnSelector(given)).column_names == wanted

    def test_helpers(self):
        from merlin.core.dispatch import columnwise_explode, hex_to_int, list_val_dtype
        from merlin.dispatch.lazy import lazy_singledispatch

        lists = pd.Series([[1, 2], [3, 4]], name="e")
        assert columnwise_explode(lists).to_dict("list") == {"e_0": [1, 3], "e_1": [2, 4]}
        assert list_val_dtype(pd.Series([[]])) is None and list_val_dtype(pd.Series([["a"]])) == np.dtype(object)
        assert hex_to_int(pd.Series(["ff", "ffffffff"])).tolist() == [255, -1]

        @lazy_singledispatch
        def kind(value):
            raise NotImplementedError

        kind.register(int, lambda value: "whole")
        assert kind.dispatch(3)(3) == kind.dispatch(int)(3) == "whole"
