"""merlin-core under its own names: nodes put together by hand, loops, foreign dtypes, workers and writers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from penstock.compat import settings
from penstock.core.errors import DataError, GraphError, NotFittedError, ParameterError

pytestmark = pytest.mark.usefixtures("old_names")


@pytest.fixture(autouse=True)
def newest():
    with settings.using(nvtabular="latest"):
        yield


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame({"a": [1, 2, 3], "b": [4.0, 5.0, 6.0], "c": ["x", "y", "x"]})


class TestNodes:
    def test_every_step_has_an_operator(self):
        from merlin.dag import BaseOperator, ColumnSelector, Graph
        from merlin.dag.ops.concat_columns import ConcatColumns
        from merlin.dag.ops.selection import SelectionOp
        from merlin.dag.ops.subset_columns import SubsetColumns
        from merlin.dag.ops.subtraction import SubtractionOp
        from merlin.schema import Schema

        class Kept(BaseOperator):
            pass

        node = ["a", "b"] >> Kept()
        both, less, some = node + ["c"], node - ["a"], node[["b"]]
        assert isinstance(node.op, Kept) and isinstance(node.parents[0].op, SelectionOp)
        assert isinstance(both.op, ConcatColumns) and isinstance(some.op, SubsetColumns)
        assert isinstance(less.op, SubtractionOp) and some.selector.names == ["b"]
        assert both.parents[0] is node and node.children == [both, less, some]
        known = Schema(["a", "b", "c"])
        for last, names in ((both, ["a", "b", "c"]), (less, ["b"]), (some, ["b"])):
            last.compute_schemas(known)
            last.validate_schemas(known)
            assert last.output_columns.names == names
        assert Graph.get_nodes_by_op_type([both], ConcatColumns) == {both}
        assert not Graph.get_nodes_by_op_type([less], SubsetColumns)
        assert (ColumnSelector(["a"]) + node).parents[0] is node

    def test_put_together_by_hand(self, frame):
        from merlin.dag import BaseOperator, ColumnSelector, Graph, Node
        from merlin.dag.executors import LocalExecutor
        from merlin.dag.ops.concat_columns import ConcatColumns

        empty = Node([])
        assert empty.selector == ColumnSelector([]) and empty.op is None
        empty.selector = ["a", "b"]
        assert empty.selector == ColumnSelector(["a", "b"])
        left, right, both = Node(["a"]), Node(["b"]), Node()
        both.op = ConcatColumns()
        both.add_parent(left)
        right.add_child(both)
        assert both.parents == [left, right] and left.children == [both]
        assert LocalExecutor().transform(frame, Graph(both)).columns.tolist() == ["a", "b"]
        right.remove_child(both)
        assert both.parents == [left] and right.children == []

        class Sum(BaseOperator):
            def transform(self, col_selector, df):
                return df[["a"]] + df[["b"]].to_numpy()

        summed = Node()
        summed.op = Sum()
        summed.add_parent(left)
        summed.add_dependency("b")
        assert len(summed.dependencies) == 1 and summed.export_name == "sum" and not summed.exportable()
        with pytest.raises(GraphError):
            Node.construct_from(12)
        with pytest.raises(TypeError):
            Node("a")

    def test_graphs_without_some_inputs(self):
        from merlin.dag import BaseOperator, Graph
        from merlin.dag.ops.rename import Rename
        from merlin.dag.ops.subgraph import Subgraph
        from merlin.schema import ColumnSchema, Schema

        known = Schema([ColumnSchema("a", dtype="int64"), ColumnSchema("b", dtype="float32")])
        for schema in (known, Schema(["a", "b"])):
            graph = Graph(Subgraph("one", ["a"] >> BaseOperator()) + (["b"] >> Rename(postfix="_x")))
            with pytest.raises(NotFittedError, match="construct_schema"):
                graph.remove_inputs("b")
            graph.construct_schema(schema)
            assert graph.subgraph("one").output_schema.column_names == ["a"]
            graph.remove_inputs(["b"])
            assert graph.input_schema.column_names == graph.output_schema.column_names == ["a"]
            with pytest.raises(ValueError, match="'z' is not in"):
                graph.remove_inputs(["z"])
            with pytest.raises(ParameterError, match="nothing is left"):
                graph.remove_inputs(["a"])
            graph.clear_stats()

    def test_dask_frames(self, frame):
        import dask.dataframe as dd
        import nvtabular as nvt

        rows = dd.from_pandas(frame[["b"]], npartitions=2)
        workflow = nvt.Workflow(["b"] >> nvt.ops.NormalizeMinMax())
        for done in (workflow.fit_transform(rows), workflow.transform(rows)):
            assert done.npartitions == 2 and done.compute()["b"].tolist() == [0.0, 0.5, 1.0]

    def test_a_subgraph_in_a_loop(self, frame):
        import nvtabular as nvt
        from merlin.dag.ops.subgraph import Subgraph

        doubled = Subgraph(
            "doubled", ["a"] >> nvt.ops.LambdaOp(lambda c: c * 2), loop_until=lambda df: df["a"].min() > 6
        )
        for graph in (doubled, ["a", "b"] >> nvt.ops.Operator() >> doubled):
            workflow = nvt.Workflow(graph).fit(nvt.Dataset(frame))
            assert workflow.transform(frame)["a"].tolist() == [8, 16, 24]
        assert workflow.get_subworkflow("doubled").output_schema.column_names == ["a"]
        with pytest.raises(ParameterError, match="operators that learn nothing"):
            Subgraph("x", ["a"] >> nvt.ops.Normalize(), loop_until=bool)


def test_tags_of_two_parts_are_deprecated():
    from merlin.schema import ColumnSchema, Tags, TagSet

    for tag, parts in ((Tags.USER_ID, [Tags.USER, Tags.ID]), (Tags.TEXT_TOKENIZED, [Tags.TEXT, Tags.TOKENIZED])):
        with pytest.warns(UserWarning, match="deprecated"):
            column = ColumnSchema("x", tags=[tag])
        assert all(part in column.tags for part in (tag, *parts))
        assert column.tags == TagSet(parts) and hash(column.tags) == hash(TagSet(parts))
        assert list(column.tags) == list(TagSet(parts)) and len(column.tags) == 2
        column.with_tags(["more"]).with_name("y")  # says nothing again
    with pytest.raises(ValueError, match="incompatible"):
        TagSet([Tags.CATEGORICAL, Tags.CONTINUOUS])


def test_quantities():
    from merlin.schema import ColumnSchema
    from merlin.schema.schema import ColumnQuantity

    assert ColumnSchema("x").quantity is ColumnQuantity.SCALAR
    assert ColumnSchema("x", is_list=True, is_ragged=True).quantity is ColumnQuantity.RAGGED_LIST
    assert ColumnSchema("x", dims=(None, 4)).quantity is ColumnQuantity.FIXED_LIST


def test_dtypes_of_other_libraries(monkeypatch):
    import merlin.dtypes as md
    from merlin.dtypes.mapping import DTypeMapping, NumpyPreprocessor
    from merlin.dtypes.registry import DTypeMappingRegistry, _dtype_registry

    monkeypatch.setattr(_dtype_registry, "mappings", {})

    class Kind:
        def __init__(self, name: str) -> None:
            self.name_here = name

    translator = NumpyPreprocessor("kinds", lambda kind: np.dtype(kind.name_here), attrs=["name_here"])
    mapping = DTypeMapping({md.int8: np.dtype("int8")}, base_class=Kind, translator=translator)
    assert mapping.matches_external(Kind("int8")) and not mapping.matches_external(Kind("int16"))
    assert not mapping.matches_external(np.dtype("int8"))  # no Kind
    md.register("kinds", mapping)
    assert md.dtype(Kind("int8")) == md.int8 and md.int8.to("kinds") == np.dtype("int8")
    own = DTypeMappingRegistry()
    own.register("texts", {md.string: "text"})
    assert own.mappings["texts"].to_merlin("text") == md.string
    assert md.dtype(object) == md.object_ and md.dtype(np.datetime64) == md.datetime64


class TestFiles:
    def test_tables_of_a_worker(self, frame, tmp_path):
        from merlin.io.worker import clean_worker_cache, fetch_table_data, get_worker_cache

        path = str(tmp_path / "t.parquet")
        frame.to_parquet(path)
        with get_worker_cache("t") as cache:
            first = fetch_table_data(cache, path, cache="host", columns=["a"])
            assert fetch_table_data(cache, path).equals(first) and list(cache) == [path]
        clean_worker_cache("t")
        with get_worker_cache("t") as cache:
            coded = fetch_table_data(cache, path, cats_only=True, reader=pd.read_parquet)
            assert coded["labels"].tolist() == [0, 1, 2] and not cache
        clean_worker_cache()
        with pytest.raises(ParameterError, match="cache must be one of"):
            fetch_table_data({}, path, cache="nowhere")

    def test_writers(self, frame, tmp_path):
        from merlin.io import Dataset, Shuffle
        from merlin.io.parquet import CPUParquetWriter
        from merlin.io.writer_factory import writer_factory

        writer = CPUParquetWriter(tmp_path / "out", num_out_files=2, shuffle=Shuffle.PER_PARTITION)
        with pytest.raises(DataError, match="nothing was written"):
            writer.close()
        writer.set_col_names(labels=["a"], cats=["c"], conts=["b"])
        writer.add_data(frame)
        writer.add_data(frame.iloc[:1])
        general, special = writer.close()
        assert [stat["num_rows"] for stat in general["file_stats"]] == [3, 1] and special == {}
        assert general["labels"] == [{"col_name": "a", "index": 0}]
        data = Dataset(str(tmp_path / "out"), engine="parquet")
        assert data.num_rows == 4 and sorted(data.compute()["b"]) == [4.0, 4.0, 5.0, 6.0]
        assert data.validate_dataset() and (tmp_path / "out" / "_file_list.txt").read_text().startswith("2\n")
        named = writer_factory("parquet", tmp_path / "named", 1, None, fns=["rows"])
        named.add_data(frame)
        assert [Path(p).name for p in named.close()[0]["data_paths"]] == ["rows.parquet"]
        with pytest.raises(ParameterError, match="output_format"):
            writer_factory("hugectr", tmp_path, 1, None)

    def test_engines(self, frame, tmp_path):
        from merlin.io.avro import AvroDatasetEngine
        from merlin.io.csv import CSVDatasetEngine
        from merlin.io.parquet import ParquetDatasetEngine

        frame.to_csv(tmp_path / "t.csv", index=False)
        frame.to_parquet(tmp_path / "t.parquet")
        for kind, name in ((CSVDatasetEngine, "t.csv"), (ParquetDatasetEngine, "t.parquet")):
            engine = kind(str(tmp_path / name), "1MB")
            assert engine.to_ddf(columns=["a"]).compute()["a"].tolist() == [1, 2, 3] and engine.num_rows == 3
        with pytest.raises(DataError):
            AvroDatasetEngine(str(tmp_path / "t.csv"))

    def test_folders_of_values_and_lists_of_lists(self, frame, tmp_path):
        import merlin.dtypes as md
        from merlin.core import dispatch
        from merlin.dataloader.array import ArrayLoader
        from merlin.io import Dataset

        Dataset(frame).to_parquet(tmp_path / "by", partition_on=["c"])
        assert Dataset(str(tmp_path / "by"), engine="parquet").num_rows == 3
        frame["n"] = [[[1], [2, 3]], [[4]], []]
        data = Dataset(frame)
        assert data.schema["n"].is_list and len(data.schema["n"].shape) == 3
        assert data.schema["n"].dtype.without_shape == md.int64 and dispatch.list_val_dtype(frame["n"]) == np.int64
        data.to_parquet(tmp_path / "lists")
        back = Dataset(str(tmp_path / "lists"), engine="parquet")
        assert [[list(inner) for inner in row] for row in back.compute()["n"]] == frame["n"].tolist()
        features, _ = ArrayLoader(Dataset(frame[["a", "n"]]), 3, shuffle=False).peek()
        assert features["n__values"].tolist() == [1, 2, 3, 4] and features["n__offsets"].tolist() == [0, 3, 4, 4]
        with pytest.raises(TypeError, match=r"merlin.schema.Schema"):
            Dataset(frame, schema=["a"])


def test_columns_of_cupy_need_cupy():
    from merlin.table import CupyColumn, TensorTable
    from merlin.table.conversions import df_from_tensor_table, tensor_table_from_df

    with pytest.raises(TypeError, match="arrays of cupy"):
        CupyColumn(np.array([1]))
    table = tensor_table_from_df(pd.DataFrame({"a": [1, 2]}))
    assert isinstance(table, TensorTable) and df_from_tensor_table(table)["a"].tolist() == [1, 2]


def test_parents_and_dependencies_are_kept_apart():
    """The left side of `+` and `-` is the parent, what stands right of it a dependency, as of an operator's names."""
    from merlin.dag import BaseOperator, ColumnSelector
    from merlin.schema import Schema
    from nvtabular import ops

    first, second, third = (list(names) >> BaseOperator() for names in ("ab", "cd", "b"))
    both = first + second + third
    assert both.parents == [first] and both.dependencies == [second, third]
    assert (second + both).parents == [second] and (second + both).dependencies == [first, second, third]
    assert (first - ["a"]).dependencies == [] and (first - third).dependencies == [third]
    assert (["a", "b"] - third).parents[0].selector == ColumnSelector(["a", "b"])
    group = first + [second, "e"]
    assert group.parents == [first] and len(group.dependencies) == 1
    lag = ["time"] >> ops.DifferenceLag(partition_cols=["user"])
    assert [node.selector.names for node in lag.parents_with_dependencies] == [["time"], ["user"]]
    both.compute_schemas(Schema(list("abcd")))
    assert both.parents == [first] and both.output_columns.names == ["a", "c", "d", "b"]
    both.add_dependency("e")
    both.add_parent("f")
    assert [len(nodes) for nodes in (both.parents, both.dependencies)] == [2, 3]
    first.remove_child(both)
    assert len(both.parents) == 1 and both.dependencies[:2] == [second, third]


def test_frameworks_are_named_in_both_ways():
    import torch
    from merlin.core.compat import torch as of_23_6
    from merlin.core.compat.torch import torch as of_23_8

    assert of_23_6.nn is torch.nn and of_23_8 is torch
