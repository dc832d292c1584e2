"""NVTabular's data sets, graphs and saved workflows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from penstock.compat import settings
from penstock.core.errors import (
    ArtefactError,
    ColumnNotFoundError,
    DataError,
    NotFittedError,
    OutputExistsError,
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


def in_files(frame: pd.DataFrame, folder: Path, count: int = 3) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for i, rows in enumerate(np.array_split(np.arange(len(frame)), count)):
        paths.append(str(folder / f"part_{i}.parquet"))
        frame.iloc[rows].reset_index(drop=True).to_parquet(paths[-1])
    return paths


class TestGraphs:
    def test_selectors_and_sums(self):
        import nvtabular as nvt

        frame = pd.DataFrame({"a": [1.0], "b": [2.0], "c": [3.0], "label": [0]})
        node = (nvt.ColumnSelector(["a"]) + "b") >> nvt.ops.LogOp()
        whole = (["c"] >> nvt.ops.Rename(postfix="_raw")) + node + nvt.ColumnSelector("label") - ["b"]
        assert nvt.Workflow(whole).transform(frame).columns.tolist() == ["c_raw", "a", "label"]
        listed = [node, "c", nvt.ColumnSelector(["label"])] >> nvt.ops.FillMissing()
        assert nvt.Workflow(listed).transform(frame).columns.tolist() == ["a", "b", "c", "label"]
        everything = nvt.ColumnSelector("*") >> nvt.ops.FillMissing()
        assert nvt.Workflow(everything).transform(frame).columns.tolist() == ["a", "b", "c", "label"]

    def test_selection_by_tag(self):
        import nvtabular as nvt
        from merlin.schema import Tags

        frame = pd.DataFrame({"u": ["x", "y"], "p": [1.0, 2.0]})
        first = (["u"] >> nvt.ops.Categorify() >> nvt.ops.TagAsUserID()) + (["p"] >> nvt.ops.Normalize())
        data = nvt.Workflow(first).fit_transform(nvt.Dataset(frame))
        assert data.schema.select_by_tag(Tags.USER_ID).column_names == ["u"]
        cats = nvt.ColumnSelector(tags=[Tags.CATEGORICAL]) >> nvt.ops.Rename(postfix="_c")
        users = nvt.ColumnSelector(tags=[Tags.USER]) >> nvt.ops.Rename(postfix="_u")
        assert nvt.Workflow(cats + users).transform(data).compute().columns.tolist() == ["u_c", "u_u"]

    def test_old_names_of_the_beginning_of_a_graph(self):
        import nvtabular as nvt
        from nvtabular.column_group import ColumnGroup

        frame = pd.DataFrame({"a": [1.0]})
        assert nvt.Workflow(nvt.ColumnGroup(["a"]) >> nvt.ops.LogOp()).transform(frame).shape == (1, 1)
        assert ColumnGroup is nvt.ColumnGroup

    def test_workflows_of_the_first_releases(self):
        import nvtabular as nvt

        from penstock.compat import CompatError

        with pytest.raises(CompatError, match=r"from 0\.4 on: Workflow\(columns >> ops\.Categorify"):
            nvt.Workflow(cat_names=["u"], cont_names=[], label_name=["label"])

    def test_smaller_workflows(self):
        import nvtabular as nvt
        from merlin.dag.ops.subgraph import Subgraph

        frame = pd.DataFrame({"u": ["x", "y"], "label": [0, 1]})
        users = Subgraph("users", ["u"] >> nvt.ops.Categorify())
        workflow = nvt.Workflow(users + ["label"]).fit(nvt.Dataset(frame))
        assert workflow.get_subworkflow("users").transform(frame)["u"].tolist() == [1, 2]
        assert workflow.remove_inputs(["label"]) is workflow
        assert workflow.transform(frame[["u"]]).columns.tolist() == ["u"]
        assert workflow.input_schema.column_names == ["u"]

    def test_schemas_and_dtypes(self):
        import nvtabular as nvt

        frame = pd.DataFrame({"u": ["x"], "p": [1.0]})
        workflow = nvt.Workflow((["u"] >> nvt.ops.Categorify(dtype=np.int32)) + (["p"] >> nvt.ops.LogOp()))
        assert workflow.output_schema is None
        workflow.fit(nvt.Dataset(frame))
        assert workflow.output_dtypes == {"u": np.dtype("int32"), "p": np.dtype("float32")}
        assert workflow.input_dtypes["p"] == np.float64
        assert workflow.output_node.output_columns.names == ["u", "p"]
        workflow.clear_stats()
        with pytest.raises(NotFittedError):
            workflow.transform(frame)

    def test_tags_give_roles(self):
        import nvtabular as nvt
        from merlin.schema import Tags

        node = ["y"] >> nvt.ops.AddMetadata(tags=[Tags.BINARY_CLASSIFICATION, Tags.TARGET], properties={"k": 1})
        schema = nvt.Workflow(node).fit(nvt.Dataset({"y": [0, 1]})).output_schema
        assert set(schema["y"].tags) == {Tags.BINARY_CLASSIFICATION, Tags.TARGET} and schema["y"].properties["k"] == 1


class TestDatasets:
    def frame(self) -> pd.DataFrame:
        return pd.DataFrame({"a": range(10), "b": list("xyxyxyxyxy"), "c": np.linspace(0, 1, 10)})

    def test_sources(self, tmp_path):
        import dask.dataframe as dd
        import nvtabular as nvt

        frame = self.frame()
        for source in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame), dd.from_pandas(frame, npartitions=3)):
            data = nvt.Dataset(source)
            assert data.compute()["b"].tolist() == frame["b"].tolist()
            assert data.schema.column_names == ["a", "b", "c"]
        frame.to_csv(tmp_path / "a.tsv", sep="\t", index=False, header=False)
        text = nvt.Dataset(
            str(tmp_path / "a.tsv"), engine="csv", sep="\t", names=["a", "b", "c"], dtypes={"a": np.int32}, header=None
        )
        assert text.compute()["a"].dtype == np.int32
        pl.from_pandas(frame).write_avro(tmp_path / "a.avro")
        assert nvt.Dataset(str(tmp_path / "a.avro"), engine="avro").num_rows == 10

    def test_paths_come_in_natural_order(self, tmp_path):
        import nvtabular as nvt

        for i in (10, 2, 1):
            pd.DataFrame({"a": [i]}).to_parquet(tmp_path / f"part_{i}.parquet")
        paths = [str(p) for p in tmp_path.glob("*.parquet")]
        assert nvt.Dataset(paths, part_mem_fraction=0.1, cpu=True).compute()["a"].tolist() == [1, 2, 10]

    def test_memory_fractions_only_make_partitions_smaller(self, tmp_path):
        import nvtabular as nvt

        pl.DataFrame({"a": np.arange(2_000_000)}).write_parquet(tmp_path / "a.parquet", row_group_size=100_000)
        assert nvt.Dataset(str(tmp_path / "a.parquet"), part_mem_fraction=0.9).npartitions == 1
        assert nvt.Dataset(str(tmp_path / "a.parquet"), part_mem_fraction=1e-9).npartitions > 10
        assert nvt.Dataset(str(tmp_path / "a.parquet"), part_size="2MB").npartitions > 5

    def test_looking_at_it(self):
        import nvtabular as nvt

        data = nvt.Dataset(self.frame(), npartitions=3)
        assert (data.num_rows, data.npartitions) == (10, 3)
        assert data.head(2)["a"].tolist() == [0, 1] and data.tail(4)["a"].tolist() == [6, 7, 8, 9]
        assert [len(f) for f in data.to_iter(columns="a")] == data.partition_lens
        assert len(data.to_iter(indices=[0, 2], epochs=2)) == 2 * (data.partition_lens[0] + data.partition_lens[2])
        assert data.to_ddf(columns=["a"]).sum().compute()["a"] == 45
        assert sorted(data.to_ddf(shuffle=True, seed=1).compute()["a"]) == list(range(10))
        assert data.persist().compute().equals(data.compute())  # a Dask frame, its index counting on
        assert [f.index[0] for f in data.to_iter()] == [0, 3, 6]
        assert data.sample_dtypes()["a"] == np.int64
        assert data.infer_schema().column_names == ["a", "b", "c"]

    def test_other_data_sets(self):
        import nvtabular as nvt

        data = nvt.Dataset(self.frame(), npartitions=3)
        by_key = data.shuffle_by_keys(["b"], npartitions=2)
        groups = [set(frame["b"]) for frame in by_key.to_iter()]
        assert sum(map(len, groups)) == 2  # each key in one partition
        assert data.repartition(npartitions=5).npartitions == 5
        right = nvt.Dataset(pd.DataFrame({"key": ["x"], "c": [7.0]}))
        joined = nvt.Dataset.merge(data, right, left_on="b", right_on="key", how="left").compute()
        assert joined["c_y"].fillna(0).tolist() == [7.0, 0.0] * 5
        assert joined["c_x"].tolist() == self.frame()["c"].tolist()

    def test_a_schema_chooses_and_describes(self):
        import nvtabular as nvt
        from merlin.schema import ColumnSchema, Schema, Tags

        schema = Schema([ColumnSchema("c", tags=[Tags.CONTINUOUS]), ColumnSchema("a", tags=["categorical"])])
        data = nvt.Dataset(self.frame(), schema=schema)
        assert data.schema is schema and data.native.schema.names == ["c", "a"]
        assert data.native.schema["a"].dtype == "int64"
        assert data.compute().columns.tolist() == ["a", "b", "c"]  # frames have all columns
        data.schema = Schema(["b"])
        assert data.native.schema.names == ["b"]
        with pytest.raises(ColumnNotFoundError, match="'z'"):
            nvt.Dataset(self.frame(), schema=Schema(["z"]))

    def test_writing(self, tmp_path):
        import nvtabular as nvt

        paths = in_files(self.frame(), tmp_path / "in")
        data = nvt.Dataset(paths, part_size=1)
        data.to_parquet(tmp_path / "out", output_files=2)
        assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
            ".merlin",
            "_file_list.txt",
            "_manifest.json",
            "_metadata",
            "_metadata.json",
            "_schema.json",
            "part_0.parquet",
            "part_1.parquet",
            "schema.pbtxt",
        ]
        data.to_parquet(tmp_path / "out", output_files=["one.parquet"])  # over what was written before
        assert [p.name for p in (tmp_path / "out").glob("*.parquet")] == ["one.parquet"]
        data.to_parquet(tmp_path / "kept", preserve_files=True)
        assert sorted(p.name for p in (tmp_path / "kept").glob("*.parquet")) == [Path(p).name for p in paths]
        assert pd.read_parquet(tmp_path / "kept" / "part_1.parquet").shape == (3, 3)
        nvt.Dataset({"day": [1, 2, 1], "x": [5, 6, 7]}).to_parquet(tmp_path / "days", partition_on="day")
        assert nvt.Dataset(tmp_path / "days").compute().groupby("day")["x"].sum().to_dict() == {1: 12, 2: 6}
        data.to_parquet(tmp_path / "hive", partition_on=["b"])
        assert nvt.Dataset(tmp_path / "hive").compute()["b"].value_counts().to_dict() == {"x": 5, "y": 5}
        (tmp_path / "beside" / "categories").mkdir(parents=True)
        (tmp_path / "beside" / "categories" / "mine.txt").write_text("stays")
        for files in (5, 2):
            data.to_parquet(tmp_path / "beside", shuffle=nvt.io.Shuffle.PER_WORKER, output_files=files)
            assert sorted(nvt.Dataset(str(tmp_path / "beside" / "*.parquet")).compute()["a"]) == list(range(10))
        assert (tmp_path / "beside" / "categories" / "mine.txt").read_text() == "stays"
        assert len(list((tmp_path / "beside").glob("part_*.parquet"))) == 2
        before = sorted(p.name for p in (tmp_path / "in").iterdir())
        with pytest.raises(OutputExistsError, match="not written by Penstock"):
            data.to_parquet(tmp_path / "in")
        assert sorted(p.name for p in (tmp_path / "in").iterdir()) == before
        many = nvt.Dataset(pd.DataFrame({"a": range(12)}), npartitions=12)
        many.to_parquet(tmp_path / "many", output_files=12)
        assert nvt.Dataset(tmp_path / "many").compute()["a"].tolist() == list(range(12))  # part_10 comes after part_9
        nvt.Dataset(self.frame()[["a", "c"]]).to_npy(tmp_path / "a.npy")
        assert np.load(tmp_path / "a.npy").shape == (10, 2)

    def test_bad_arguments(self, tmp_path):
        import nvtabular as nvt

        in_files(self.frame(), tmp_path)
        with pytest.raises(ParameterError, match="engine must be one of parquet, csv, avro"):
            nvt.Dataset(str(tmp_path), engine="orc")
        with pytest.raises(ParameterError, match="no argument 'seperator'"):
            nvt.Dataset(str(tmp_path), seperator=",")
        with pytest.raises(DataError, match="does not exist"):
            nvt.Dataset(str(tmp_path / "nowhere.parquet"))
        with pytest.raises(TypeError, match=r"must be a merlin\.schema\.Schema"):
            nvt.Dataset(self.frame(), schema=["a"])


class TestSaving:
    def test_a_saved_workflow_is_read_by_penstock_itself(self, tmp_path):
        import nvtabular as nvt

        from penstock import Workflow, ops

        frame = pd.DataFrame({"u": ["x", "y", "x"], "p": [1.0, 2.0, 3.0]})
        node = (["u"] >> nvt.ops.Categorify()) + (["p"] >> nvt.ops.Normalize())
        workflow = nvt.Workflow(node).fit(nvt.Dataset(frame))
        workflow.save(str(tmp_path / "workflow"))
        workflow.save(str(tmp_path / "workflow"))  # NVTabular writes over what is there
        loaded = Workflow.load(tmp_path / "workflow")
        assert {type(n.operator) for n in loaded._plan.nodes if n.operator} == {ops.Categorify, ops.Normalize}
        again = nvt.Workflow.load(str(tmp_path / "workflow"))
        pd.testing.assert_frame_equal(again.transform(frame), workflow.transform(frame))
        unique = pd.read_parquet(tmp_path / "workflow" / "categories" / "unique.u.parquet")
        assert unique["u"].tolist()[1:] == ["x", "y"]

    def test_what_cannot_be_loaded(self, tmp_path):
        import nvtabular as nvt

        (tmp_path / "workflow.pkl").write_bytes(b"\x80\x04N.")
        with pytest.raises(ArtefactError, match=r"workflow\.pkl is a pickle.*fit the workflow again"):
            nvt.Workflow.load(tmp_path)
        (tmp_path / "empty").mkdir()
        with pytest.raises(ArtefactError, match="holds no saved workflow"):
            nvt.Workflow.load(tmp_path / "empty")
        with pytest.raises(FileNotFoundError, match="nowhere"):
            nvt.Workflow.load(tmp_path / "nowhere")


def test_on_a_dask_cluster(tmp_path):
    import nvtabular as nvt
    from dask.distributed import Client

    frame = pd.DataFrame({"u": ["x", "y", "x"] * 20, "p": np.arange(60.0)})
    with Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as client:
        node = (["u"] >> nvt.ops.Categorify()) + (["p"] >> nvt.ops.Normalize())
        workflow = nvt.Workflow(node, client=client)
        out = workflow.fit_transform(nvt.Dataset(frame, npartitions=3, client=client)).compute()
    local = nvt.Workflow((["u"] >> nvt.ops.Categorify()) + (["p"] >> nvt.ops.Normalize())).fit_transform(frame)
    pd.testing.assert_frame_equal(out, local)
