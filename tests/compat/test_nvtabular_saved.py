"""Workflows in the form that NVTabular saves: graph.json, metadata.json and parquet under artifacts/node_<id>/."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from penstock import Workflow as NativeWorkflow
from penstock.compat.nvtabular import Dataset, Workflow, ops
from penstock.core import artefact
from penstock.core.errors import ArtefactError, NotFittedError, OutputExistsError
from penstock.etl.operator import Operator

SELECTION = "merlin.dag.ops.selection.SelectionOp"
JOIN = "merlin.dag.ops.concat_columns.ConcatColumns"


def column(name: str, dtype: str = "float64", tags: tuple[str, ...] = (), is_list: bool = False) -> dict[str, Any]:
    described = {"name": dtype, "element_type": dtype.rstrip("0123456789"), "shape": [{"min": 0, "max": None}]}
    return {"name": name, "tags": list(tags), "properties": {}, "dtype": described, "is_list": is_list,
            "is_ragged": is_list}  # fmt: skip


class SavedGraph:
    """Writes what NVTabular's serializer writes, node by node."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.nodes = folder, []
        folder.mkdir(parents=True)
        versions = {"nvtabular": "23.08.00", "pandas": "1.5.3", "python": "3.10.6"}
        (folder / "metadata.json").write_text(json.dumps({"versions": versions, "generated_timestamp": 1700000000}))

    def add(
        self,
        kind: str | None,
        parents: list[int] = (),  # type: ignore[assignment]
        params: dict | None = None,
        state: dict | None = None,
        inputs: list = (),  # type: ignore[assignment]
        outputs: list = (),  # type: ignore[assignment]
        needs: list[int] = (),  # type: ignore[assignment]
    ) -> int:
        number = len(self.nodes)
        self.nodes.append(
            {
                "id": number, "op_class": kind, "op_params": params or {}, "op_state": state or {},
                "parent_ids": list(parents), "dependency_ids": list(needs), "selector": None,
                "input_schema": list(inputs), "output_schema": list(outputs or inputs),
            }
        )  # fmt: skip
        return number

    def select(self, *columns: dict) -> int:
        names = [c["name"] for c in columns]
        return self.add(SELECTION, [], {"selector": {"names": names, "tags": []}}, outputs=list(columns))

    def artefact(self, frame: pd.DataFrame, name: str) -> str:
        """A parquet file of the node that is added next; its path as the state tells it."""
        path = self.folder / "artifacts" / f"node_{len(self.nodes)}" / "categories" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(path)
        return f"categories/{name}"

    def vocabulary(self, name: str, values: list, first: int = 3, sizes: list | None = None) -> dict[str, Any]:
        frame = pd.DataFrame({name: values, f"{name}_size": sizes or list(range(len(values), 0, -1))})
        frame.index = pd.RangeIndex(first, first + len(values))
        return {"key": [name], "path": self.artefact(frame, f"unique.{name}.parquet")}

    def write(self, output: int, version: int = 1) -> Path:
        content = {"format_version": version, "output_node_id": output, "nodes": self.nodes}
        (self.folder / "graph.json").write_text(json.dumps(content, indent=2))
        return self.folder


def click_log(folder: Path) -> Path:
    """Two encoded columns and one that is filled, clipped, logged and normalized, joined with the label."""
    graph = SavedGraph(folder)
    cats = graph.select(column("city", "object"), column("item", "int64"))
    encoded = graph.add(
        "nvtabular.ops.categorify.Categorify",
        [cats],
        {"freq_threshold": 0, "cat_cache": "host", "dtype": None, "on_host": True, "encode_type": "joint",
         "name_sep": "_", "search_sorted": False, "num_buckets": None, "max_size": 0, "single_table": False,
         "cardinality_memory_limit": None, "split_out": 1, "split_every": 8},
        {"categories": [graph.vocabulary("city", ["Rome", "Oslo"]), graph.vocabulary("item", [70, 50, 60])],
         "storage_name": {}},
        [column("city", "object"), column("item", "int64")],
    )  # fmt: skip
    price = graph.select(column("price"))
    filled = graph.add("nvtabular.ops.fill.FillMissing", [price], {"fill_val": 0, "add_binary_cols": False})
    clipped = graph.add("nvtabular.ops.clip.Clip", [filled], {"min_value": 0, "max_value": None})
    logged = graph.add("nvtabular.ops.logop.LogOp", [clipped])
    scaled = graph.add(
        "nvtabular.ops.normalize.Normalize", [logged], {"out_dtype": {"name": "float32"}},
        {"means": {"price": 0.5}, "stds": {"price": 2.0}},
    )  # fmt: skip
    label = graph.select(column("click", "int8", ("Tags.TARGET",)))
    return graph.write(graph.add(JOIN, [encoded, scaled], needs=[label]))


ROWS = pd.DataFrame(
    {
        "city": ["Oslo", None, "Lima", "Rome"],
        "item": [50, 70, 99, 60],
        "price": [1.0, np.nan, -4.0, 6.0],
        "click": np.array([0, 1, 1, 0], "int8"),
    }
)


def test_a_click_log_workflow_transforms_as_it_did(tmp_path):
    workflow = Workflow.load(click_log(tmp_path / "saved"))
    out = workflow.transform(ROWS)
    assert out.columns.tolist() == ["city", "item", "price", "click"]
    assert out["city"].tolist() == [4, 1, 2, 3]  # 0 padding, 1 null, 2 unknown, then the vocabulary
    assert out["item"].tolist() == [4, 3, 2, 5]
    expected = (np.log1p([1.0, 0.0, 0.0, 6.0]) - 0.5) / 2.0
    np.testing.assert_allclose(out["price"], expected, rtol=1e-6)
    assert out["price"].dtype == np.float32 and out["item"].dtype == np.int64
    assert ops.get_embedding_sizes(workflow) == {"city": (5, 16), "item": (6, 16)}
    assert workflow.remove_inputs(["click"]).transform(ROWS.drop(columns="click")).columns.tolist() == [
        "city", "item", "price",
    ]  # fmt: skip


def test_it_is_a_fitted_workflow_that_penstock_saves(tmp_path):
    workflow = Workflow.load(click_log(tmp_path / "saved"))
    shutil.rmtree(tmp_path / "saved")
    workflow.save(tmp_path / "again")
    again = NativeWorkflow.load(tmp_path / "again")
    pd.testing.assert_frame_equal(again.transform(ROWS), workflow.transform(ROWS))
    assert again.transform_row({"city": "Rome", "item": 70, "price": None, "click": 1})["city"] == 3
    with pytest.raises(NotFittedError, match="cannot learn from more rows"):
        again.update(ROWS)


def test_it_can_be_fitted_anew(tmp_path):
    workflow = Workflow.load(click_log(tmp_path / "saved")).fit(ROWS)
    assert workflow.transform(ROWS)["price"].mean() == pytest.approx(0, abs=1e-6)
    assert workflow.transform(ROWS)["city"].tolist() == [4, 1, 3, 5]
    workflow.save(tmp_path / "again")
    kinds = {
        type(node.operator).__name__ for node in NativeWorkflow.load(tmp_path / "again")._plan.nodes if node.operator
    }
    assert "Normalize" in kinds


def one_operator(folder: Path, kind: str, params: dict, state: Any, *columns: dict) -> Workflow:
    graph = SavedGraph(folder)
    source = graph.select(*columns)
    found = state(graph) if callable(state) else state
    return Workflow.load(graph.write(graph.add(kind, [source], params, found, list(columns))))


@pytest.mark.parametrize(
    ("kind", "params", "state", "values", "expected"),
    [
        ("fill.FillMedian", {"add_binary_cols": False}, {"medians": {"x": 2.5}}, [1.0, np.nan], [1.0, 2.5]),
        ("normalize.NormalizeMinMax", {"out_dtype": None}, {"mins": {"x": 1.0}, "maxs": {"x": 5.0}}, [3.0], [0.5]),
        ("normalize.Normalize", {"out_dtype": None}, {"means": {"x": 1.0}, "stds": {"x": 0.0}}, [3.0, 5.0], [2.0, 4.0]),
        ("bucketize.Bucketize", {"boundaries": [2.0, 4.0]}, {}, [3.0, 5.0], [1, 2]),
        ("clip.Clip", {"min_value": None, "max_value": 4}, {}, [3.0, 5.0], [3.0, 4.0]),
        ("dropna.Dropna", {}, {}, [3.0, np.nan], [3.0]),
    ],
)  # fmt: skip
def test_operators_with_small_state(tmp_path, kind, params, state, values, expected):
    workflow = one_operator(tmp_path / "saved", f"nvtabular.ops.{kind}", params, state, column("x"))
    assert workflow.transform(pd.DataFrame({"x": values}))["x"].tolist() == expected
    workflow.save(tmp_path / "again")
    again = Workflow.load(tmp_path / "again")
    assert again.transform(pd.DataFrame({"x": values}))["x"].tolist() == expected


def test_lists_names_tags_and_functions(tmp_path, monkeypatch):
    (tmp_path / "saved_functions.py").write_text("def double(column):\n    return column * 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    graph = SavedGraph(tmp_path / "saved")
    items = graph.select(column("items", "int64", is_list=True))
    cut = graph.add(
        "nvtabular.ops.list_slice.ListSlice", [items], {"start": 0, "end": 2, "pad": True, "pad_value": 0.0}
    )
    tagged = graph.add("nvtabular.ops.add_metadata.AddMetadata", [cut], {"tags": ["Tags.ITEM"], "properties": {"k": 1}})
    number = graph.select(column("x"))
    f = {"module": "saved_functions", "qualname": "double"}
    made = graph.add(
        "merlin.dag.ops.udf.UDF", [number], {"f": f, "dependency": [], "dtype": None}, outputs=[column("x")]
    )
    renamed = graph.add("nvtabular.ops.rename.Rename", [made], {"f": None, "postfix": "_2", "name": None})
    workflow = Workflow.load(graph.write(graph.add(JOIN, [tagged, renamed])), trust=["saved_functions"])
    out = workflow.transform(pd.DataFrame({"items": [[1, 2, 3], [4]], "x": [1.0, 2.0]}))
    assert [list(row) for row in out["items"]] == [[1, 2], [4, 0]]
    assert out["x_2"].tolist() == [2.0, 4.0]
    assert workflow.output_schema["items"].properties["k"] == 1


def test_target_encoding_uses_all_rows_and_no_folds(tmp_path):
    def state(graph: SavedGraph) -> dict:
        whole = pd.DataFrame({"c": ["a", "b"], "c_count": [3, 1], "c_y_sum": [2.0, 1.0]})
        folds = pd.DataFrame({"__fold__": [0, 1], "c": ["a", "a"], "n": [1, 2], "s": [1.0, 1.0]})
        return {
            "stats": [
                {"key": ["c"], "path": graph.artefact(whole, "cat_stats.c.parquet")},
                {"key": ["__fold___c"], "path": graph.artefact(folds, "cat_stats.__fold___c.parquet")},
            ],
            "means": {"y": 0.75},
        }

    params = {"target_cols": ["y"], "target_mean": None, "kfold": 3, "fold_seed": 42, "p_smooth": 1, "out_col": None,
              "out_dtype": None, "name_sep": "_", "drop_folds": True}  # fmt: skip
    kind = "nvtabular.ops.target_encoding.TargetEncoding"
    workflow = one_operator(tmp_path / "saved", kind, params, state, column("c", "str"))
    out = workflow.transform(pd.DataFrame({"c": ["a", "b", "new"]}))
    np.testing.assert_allclose(out["TE_c_y"], [(2 + 0.75) / 4, (1 + 0.75) / 2, 0.75], rtol=1e-6)
    workflow.save(tmp_path / "again")
    np.testing.assert_allclose(Workflow.load(tmp_path / "again").transform(pd.DataFrame({"c": ["a"]})), [[0.6875]])


def test_statistics_by_a_group_of_columns(tmp_path):
    def state(graph: SavedGraph) -> dict:
        stats = pd.DataFrame({"a": [1, 2], "b": ["x", "y"], "a_b_count": [5, 6], "a_b_p_mean": [0.5, 0.25]})
        path = graph.artefact(stats, "cat_stats.a_b.parquet")
        return {"categories": [{"key": ["a_b"], "path": path}], "storage_name": {"a": "a_b", "b": "a_b"}}

    params = {"cont_cols": ["p"], "stats": ["count", "mean"], "name_sep": "_"}
    columns = (column("a", "int64"), column("b", "str"))
    workflow = one_operator(tmp_path / "saved", "nvtabular.ops.join_groupby.JoinGroupby", params, state, *columns)
    out = workflow.transform(pd.DataFrame({"a": [2, 1, 1], "b": ["y", "x", "y"]}))
    assert out["a_b_count"].tolist() == [6, 5, 0]
    assert out["a_b_p_mean"].fillna(-1).tolist() == [0.25, 0.5, -1]
    workflow.save(tmp_path / "again")
    assert Workflow.load(tmp_path / "again").transform(pd.DataFrame({"a": [2], "b": ["y"]}))["a_b_count"].tolist() == [
        6
    ]


def categorify(folder: Path, state: Any, *columns: dict, **params: Any) -> Workflow:
    defaults = {"freq_threshold": 0, "dtype": {"name": "<i4"}, "encode_type": "joint", "name_sep": "_", "max_size": 0}
    return one_operator(folder, "nvtabular.ops.categorify.Categorify", {**defaults, **params}, state, *columns)


def test_joint_and_combined_vocabularies(tmp_path):
    def joint(graph: SavedGraph) -> dict:
        return {"categories": [graph.vocabulary("a_b", ["x", "y"])], "storage_name": {"a": "a_b", "b": "a_b"}}

    columns = (column("a", "str"), column("b", "str"))
    rows = pd.DataFrame({"a": ["x", "y"], "b": ["y", "q"]})
    out = categorify(tmp_path / "joint", joint, *columns).transform(rows)
    assert out["a"].tolist() == [3, 4] and out["b"].tolist() == [4, 2]
    assert out["a"].dtype == np.int32

    def combo(graph: SavedGraph) -> dict:
        pairs = pd.DataFrame({"a": ["x", "y"], "b": ["y", "y"], "a_b_size": [2, 1]})
        pairs.index = pd.RangeIndex(3, 5)
        path = graph.artefact(pairs, "unique.a_b.parquet")
        return {"categories": [{"key": ["a_b"], "path": path}], "storage_name": {"a": "a_b", "b": "a_b"}}

    out = categorify(tmp_path / "combo", combo, *columns, encode_type="combo").transform(rows)
    assert out["a_b"].tolist() == [3, 2]


def test_a_subgraph(tmp_path):
    inner = SavedGraph(tmp_path / "inner")
    output = inner.add("nvtabular.ops.logop.LogOp", [inner.select(column("x"))])
    params = {"name": "logs", "loop_until": None, "inner_graph": {"output_node_id": output, "nodes": inner.nodes}}
    graph = SavedGraph(tmp_path / "saved")
    source = graph.select(column("x"))
    workflow = Workflow.load(graph.write(graph.add("merlin.dag.ops.subgraph.Subgraph", [source], params)))
    assert workflow.get_subworkflow("logs").transform(pd.DataFrame({"x": [0.0]}))["x"].tolist() == [0.0]


class TestRefusals:
    def test_an_operator_that_is_not_known(self, tmp_path):
        with pytest.raises(ArtefactError, match=r"graph\.json: node 1 is a my\.package\.Sort, which is not known here"):
            one_operator(tmp_path / "saved", "my.package.Sort", {}, {}, column("x"))

    def test_hashes(self, tmp_path):
        with pytest.raises(ArtefactError, match=r"node 1 is a HashBucket.*Fit and train again"):
            one_operator(
                tmp_path / "saved", "nvtabular.ops.hash_bucket.HashBucket", {"num_buckets": 9}, {}, column("x")
            )

    def test_buckets_for_unknown_values_are_refused(self, tmp_path):
        def state(graph: SavedGraph) -> dict:
            return {"categories": [graph.vocabulary("c", ["a"], first=2 + 5)], "storage_name": {}}

        for buckets in (5, {"c": 5}):
            with pytest.raises(ArtefactError, match=r"num_buckets=.*other ids than the model was trained on"):
                categorify(tmp_path / f"saved{buckets}", state, column("c", "str"), num_buckets=buckets)

    def test_other_formats_and_damage(self, tmp_path):
        folder = click_log(tmp_path / "saved")
        graph = folder / "graph.json"
        whole = graph.read_text()
        graph.write_text(whole.replace('"format_version": 1', '"format_version": 2'))
        with pytest.raises(ArtefactError, match=r"graph\.json has format_version 2"):
            Workflow.load(folder)
        graph.write_text(whole[:100])
        with pytest.raises(ArtefactError, match=r"graph\.json is not valid JSON"):
            Workflow.load(folder)
        graph.write_text(whole.replace('"parent_ids": [\n        0\n', '"parent_ids": [\n        77\n'))
        with pytest.raises(ArtefactError, match=r"graph\.json is damaged"):
            Workflow.load(folder)
        graph.write_text(whole)
        unique = folder / "artifacts" / "node_1" / "categories" / "unique.city.parquet"
        unique.write_bytes(unique.read_bytes()[:40])
        with pytest.raises(ArtefactError, match=r"unique\.city\.parquet is damaged or truncated"):
            Workflow.load(folder)
        unique.unlink()
        with pytest.raises(ArtefactError, match=r"unique\.city\.parquet is missing"):
            Workflow.load(folder)

    def test_codes_that_begin_elsewhere(self, tmp_path):
        def state(graph: SavedGraph) -> dict:
            return {"categories": [graph.vocabulary("c", ["a"], first=9)], "storage_name": {}}

        with pytest.raises(ArtefactError, match=r"codes of 'c' begin with \[9\], not with 3"):
            categorify(tmp_path / "saved", state, column("c", "str"))

    def test_files_outside_the_folder(self, tmp_path):
        def state(graph: SavedGraph) -> dict:
            return {"categories": [{"key": ["c"], "path": "../../../elsewhere.parquet"}], "storage_name": {}}

        with pytest.raises(ArtefactError, match="lies outside"):
            categorify(tmp_path / "saved", state, column("c", "str"))


def test_operators_in_the_form_are_penstocks(tmp_path):
    workflow = Workflow.load(click_log(tmp_path / "saved"))
    found = [node.operator for node in workflow.native._plan.nodes if node.operator is not None]
    assert found and all(isinstance(op, Operator) for op in found)


def test_before_it_saw_data(tmp_path):
    frame = pd.DataFrame({"city": ["Rome", "Oslo", "Rome"], "x": [1.0, 2.0, 6.0]})
    graph = (["city"] >> ops.Categorify(out_path=str(tmp_path))) + (["x"] >> ops.LambdaOp(np.abs) >> ops.Normalize())
    Workflow(graph).save(tmp_path / "workflow", modules_byvalue="auto")
    loaded = Workflow.load(tmp_path / "workflow")
    wanted = Workflow(graph).fit_transform(Dataset(frame)).compute()
    pd.testing.assert_frame_equal(loaded.fit_transform(Dataset(frame)).compute(), wanted)
    loaded.save(tmp_path / "workflow")  # over the one that had not learned
    again = Workflow.load(tmp_path / "workflow").transform(Dataset(frame)).compute()
    pd.testing.assert_frame_equal(again, wanted)


class TestFoldersWithOtherThings:
    """`workflow.save(folder)` where old programs put data, notes and workflows side by side."""

    frame = pd.DataFrame({"a": [1, 2, 3, 1], "b": [0.1, 0.2, 0.3, 0.4]})

    def fitted(self) -> Workflow:
        return Workflow((["a"] >> ops.Categorify()) + ["b"]).fit(Dataset(self.frame))

    @pytest.mark.parametrize("data_first", [True, False])
    def test_data_stays(self, tmp_path, data_first):
        workflow = self.fitted()
        if not data_first:
            workflow.save(tmp_path)
        workflow.transform(Dataset(self.frame)).to_parquet(tmp_path)
        workflow.save(tmp_path)
        workflow.save(tmp_path)
        assert Dataset(str(tmp_path), engine="parquet").compute()["a"].tolist() == [3, 4, 5, 3]
        assert Workflow.load(tmp_path).transform(self.frame)["a"].tolist() == [3, 4, 5, 3]

    def test_files_of_others_stay_and_nothing_is_left_behind(self, tmp_path):
        (tmp_path / "train").mkdir()
        (tmp_path / "train" / "notes.md").write_text("kept")
        Workflow(["a"] >> ops.Categorify()).save(tmp_path)
        self.fitted().save(tmp_path)
        assert (tmp_path / "train" / "notes.md").read_text() == "kept"
        assert Workflow.load(tmp_path).native.is_fitted  # and not the one that was saved before it saw data
        assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []

    def test_a_workflow_alone_is_replaced_whole(self, tmp_path):
        self.fitted().save(tmp_path / "w")
        Workflow(["b"] >> ops.LogOp()).fit(Dataset(self.frame)).save(tmp_path / "w")
        assert not (tmp_path / "w" / "state").exists()

    def test_another_artefact_is_not_replaced(self, tmp_path):
        with artefact.writing(tmp_path / "m", "model", 1) as folder:
            (folder / "weights.json").write_text("{}")
        with pytest.raises(OutputExistsError, match=r"another artefact \(model\)"):
            self.fitted().save(tmp_path / "m")
