"""Merlin's graphs before and after they learn: executors, selectors of nodes, groups, subgraphs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from penstock.compat import settings

pytestmark = pytest.mark.usefixtures("old_names")


@pytest.fixture(autouse=True)
def newest():
    with settings.using(nvtabular="latest"):
        yield


@pytest.fixture
def frame():
    return pd.DataFrame({"a": [1, 2, 3], "b": [4.0, 5.0, 6.0], "c": ["x", "y", "x"]})


@pytest.fixture
def counting():
    """An operator that counts how often it learned, in `stats`, which it does not make itself."""
    from merlin.dag.ops.stat_operator import StatOperator

    class Counting(StatOperator):
        def __init__(self):
            pass

        def fit(self, col_selector, ddf):
            return self.stats.get("fits", 0)

        def fit_finalize(self, dask_stats):
            self.stats["fits"] = dask_stats + 1

        def clear(self):
            self.stats.pop("fits", None)

    return Counting()


class TestExecutors:
    def test_what_has_not_learned_does_not_transform(self, frame, counting):
        from merlin.dag import Graph
        from merlin.dag.executors import DaskExecutor
        from merlin.io import Dataset

        graph = Graph(["a", "b"] >> counting)
        with pytest.raises(RuntimeError, match="attempting to use them to transform data"):
            DaskExecutor().transform(Dataset(frame), graph)
        DaskExecutor().fit(Dataset(frame), graph)
        assert len(DaskExecutor().transform(Dataset(frame), graph)) == 3

    def test_learning_again_only_where_asked(self, frame, counting):
        from merlin.dag import Graph
        from merlin.dag.executors import DaskExecutor
        from merlin.io import Dataset

        graph, executor = Graph(["a"] >> counting), DaskExecutor()
        executor.fit(Dataset(frame), graph)
        counting.stats["kept"] = counting.stats["fits"]
        executor.fit(Dataset(frame), graph, refit=False)
        assert counting.stats == {"fits": 1, "kept": 1}


class TestNodes:
    def test_selectors(self):
        from merlin.dag import BaseOperator, ColumnSelector, Graph
        from merlin.schema import Schema

        chosen = ColumnSelector(["a", "b"])
        node = chosen >> BaseOperator()
        assert node._selector is None and node.parents[0]._selector == chosen
        both = node + "target"
        assert both.selector.names == ["a", "b", "target"]  # before any schema, by names
        graph = Graph(both)
        graph.construct_schema(Schema(["a", "b", "target"]))
        assert node.selector.names == ["a", "b"]
        graph.remove_inputs(["target"])
        left = [graph.output_node, *graph.output_node.parents_with_dependencies]
        assert all("target" not in part.selector.names and "target" not in part.output_schema for part in left)

    def test_columns_in_and_out_of_a_choice(self):
        from nvtabular import Schema, Workflow, ops

        filled = ["a", "b", "c"] >> ops.FillMissing()
        node = Workflow(filled[["b", "c"]]).fit_schema(Schema(["a", "b", "c"])).output_node
        assert node.input_columns.names == node.output_columns.names == ["b", "c"]
        assert (["a"] >> ops.TargetEncoding("y")).dependency_columns.names == ["y"]

    def test_missing_columns_are_called_so(self):
        from merlin.dag import BaseOperator, ColumnSelector, Graph
        from merlin.schema import Schema

        operator, known, wanted = BaseOperator(), Schema(["a"]), ColumnSelector(["z"])
        for ask in (
            lambda: operator.compute_selector(known, wanted, ColumnSelector(), ColumnSelector()),
            lambda: operator.compute_output_schema(known, wanted),
            lambda: Graph(["z"] >> operator).construct_schema(known),
            lambda: Graph(["z"] >> operator).construct_schema(Schema([known["a"].with_dtype("int64")])),
        ):
            with pytest.raises(ValueError, match="Missing column 'z'"):
                ask()

    def test_groups_of_computed_columns(self, frame):
        import nvtabular as nvt
        from nvtabular import ops

        upper = ["c"] >> ops.LambdaOp(lambda col: col.str.upper()) >> ops.Rename(postfix="_up")
        node = upper + "a" + [upper + "a"] >> ops.Categorify(encode_type="combo")
        done = nvt.Workflow(node).fit_transform(nvt.Dataset(frame)).compute()
        assert sorted(done.columns) == ["a", "c_up", "c_up_a"]
        assert done["c_up"].tolist() == [3, 4, 3] and done["c_up_a"].nunique() == 3
        with pytest.raises(ValueError, match="group"):
            [[upper + "a"] + upper + "a"] >> ops.Categorify(encode_type="combo")

    def test_keys_of_a_node_in_a_list(self, frame):
        import nvtabular as nvt
        from nvtabular import ops

        keys = ["c"] >> ops.LambdaOp(lambda col: col.str.upper()) >> ops.Rename(postfix="_up")
        node = ["a"] >> ops.DifferenceLag(partition_cols=[keys])
        assert list(node.dependencies) == [keys]
        assert nvt.Workflow(node).fit_transform(nvt.Dataset(frame)).compute().iloc[2].tolist() == [2.0]

    def test_a_subgraph_is_itself_before_and_after_it_is_placed(self):
        import nvtabular as nvt
        from merlin.dag import BaseOperator, Graph
        from merlin.dag.ops.subgraph import Subgraph

        part = Subgraph("part", ["a"] >> BaseOperator())
        assert Graph(["a", "b"] >> part >> BaseOperator()).subgraph("part") == part.graph
        workflow = nvt.Workflow(part + ["b"])
        assert workflow.graph.subgraph("part") != Graph(["a"] >> BaseOperator())
        with pytest.raises(ValueError, match="No subgraph named 'other'"):
            workflow.get_subgraph("other")

    def test_a_selection_by_itself(self, frame):
        from merlin.dag import ColumnSelector
        from merlin.dag.ops.selection import SelectionOp

        assert SelectionOp(ColumnSelector(["b"])).transform(ColumnSelector(), frame).columns.tolist() == ["b"]

    def test_lists_are_declared_of_columns_whose_shape_is_not_known(self):
        from merlin.schema import ColumnSchema, Schema
        from nvtabular import ColumnSelector, ops

        schema = Schema([ColumnSchema("a", dtype=np.int32)])
        assert ops.ListSlice(2).compute_output_schema(schema, ColumnSelector(["a"]))["a"].dtype.name == "int32"
