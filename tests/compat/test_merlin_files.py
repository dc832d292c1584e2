"""Files as NVTabular and Merlin wrote and read them, and the helpers around Dask, frames and made-up data."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from penstock.compat import settings
from penstock.core.errors import ColumnNotFoundError, ParameterError

pytestmark = pytest.mark.usefixtures("old_names")


@pytest.fixture(autouse=True)
def newest():
    with settings.using(nvtabular="latest"):
        yield


class TestReading:
    def test_an_index_of_pandas_is_no_feature(self, tmp_path):
        import nvtabular as nvt

        frame = pd.DataFrame({"a": [1, 2, 3]}, index=[7, 8, 9])
        frame.to_parquet(tmp_path / "a.parquet")
        assert nvt.Dataset(str(tmp_path / "a.parquet")).schema.column_names == ["a"]

    def test_filters(self, tmp_path):
        import nvtabular as nvt

        pd.DataFrame({"a": range(10), "b": list("xyxyxyxyxy")}).to_parquet(tmp_path / "a.parquet")
        path = str(tmp_path / "a.parquet")
        assert nvt.Dataset(path, filters=[("a", ">", 6), ("b", "==", "y")]).compute()["a"].tolist() == [7, 9]
        assert nvt.Dataset(path, filters=[[("a", "<", 1)], [("a", "in", {8})]]).compute()["a"].tolist() == [0, 8]
        assert nvt.Dataset(path, filters=[("b", "not in", ["x"])]).num_rows == 5
        with pytest.raises(ColumnNotFoundError, match="'c' is not in the data"):
            nvt.Dataset(path, filters=[("c", "<", 1)])
        with pytest.raises(ParameterError, match="compare by"):
            nvt.Dataset(path, filters=[("a", "~", 1)])

    def test_missing_values_and_dates(self, tmp_path):
        import nvtabular as nvt

        (tmp_path / "a.csv").write_text("n,d,t\n1,2021-01-02,-\nNA,2021-01-03,y\n3,2021-01-04,z\n")
        data = nvt.Dataset(str(tmp_path / "a.csv"), engine="csv", na_values=["NA", "-"], parse_dates=["d"])
        done = data.compute()
        assert done["n"].fillna(-1).tolist() == [1, -1, 3] and done["t"].isna().tolist() == [True, False, False]
        assert done["d"].dt.day.tolist() == [2, 3, 4]
        with pytest.raises(ParameterError, match="takes a list of columns"):
            nvt.Dataset(str(tmp_path / "a.csv"), parse_dates=True)

    def test_a_folder_of_parts(self, tmp_path):
        import nvtabular as nvt

        for i in range(11):
            (tmp_path / f"{i}.part").write_text(f"a,b\n{i},x\n")
        assert nvt.Dataset(str(tmp_path), engine="csv").compute()["a"].tolist() == list(range(11))

    def test_how_to_read_is_taken(self, tmp_path):
        import nvtabular as nvt

        pd.DataFrame({"a": range(50)}).to_parquet(tmp_path / "a.parquet", row_group_size=10)
        data = nvt.Dataset(str(tmp_path / "a.parquet"), use_cpu=True, row_groups_per_part=2)
        assert data.partition_lens == [20, 20, 10] and data.compute()["a"].tolist() == list(range(50))

    def test_small_floats(self):
        import nvtabular as nvt

        frame = pd.DataFrame({"h": np.array([0.5, 1.5], np.float16)})
        assert nvt.Dataset(frame).compute()["h"].tolist() == [0.5, 1.5]


class TestWriting:
    def test_what_lies_beside_the_data(self, tmp_path):
        import nvtabular as nvt
        import pyarrow.parquet as pq
        from merlin.schema import Tags

        data = nvt.Dataset(pd.DataFrame({"c": np.arange(6, dtype=np.int32), "x": np.arange(6.0), "y": 1}))
        for _ in range(2):  # the second time over the first
            data.to_parquet(tmp_path / "out", output_files=2, cats=["c"], conts=["x"], labels=["y"])
        folder = tmp_path / "out"
        assert {".merlin", "_file_list.txt", "_metadata", "_metadata.json", "schema.pbtxt"} <= {
            file.name for file in folder.iterdir()
        }
        assert pq.read_metadata(folder / "_metadata").num_rows == 6
        count, *files = (folder / "_file_list.txt").read_text().split()
        assert int(count) == len(files) == 2 and files[0] == str(folder / "part_0.parquet")
        described = json.loads((folder / "_metadata.json").read_text())
        assert [c["col_name"] for c in described["cats"]] == ["c"] and sum(
            f["num_rows"] for f in described["file_stats"]
        ) == 6
        again = nvt.Dataset(str(folder))
        assert again.compute()["c"].tolist() == list(range(6)) and again.schema["c"].dtype == np.int32
        for file in folder.glob("_schema.json"):
            file.unlink()
        (folder / "_manifest.json").unlink()
        assert nvt.Dataset(str(folder)).schema.select_by_tag(Tags.CATEGORICAL).column_names == ["c"]

    def test_how_files_are_laid_out(self, tmp_path):
        import nvtabular as nvt

        pd.DataFrame({"a": range(1000)}).to_parquet(tmp_path / "a.parquet")
        data = nvt.Dataset(str(tmp_path / "a.parquet"))
        assert not data.validate_dataset() and data.validate_dataset(require_metadata_file=False)
        assert not data.validate_dataset(require_metadata_file=False, row_group_max_size=10)
        assert not data.validate_dataset(require_metadata_file=False, file_min_size="1MB")
        data.regenerate_dataset(tmp_path / "again")
        assert nvt.Dataset(str(tmp_path / "again")).validate_dataset()
        assert data.validate_dataset(add_metadata_file=True) and (tmp_path / "_metadata").exists()
        assert not nvt.Dataset(pd.DataFrame({"a": [1]})).validate_dataset()

    def test_files_by_partition(self, tmp_path):
        import nvtabular as nvt

        data = nvt.Dataset(pd.DataFrame({"a": range(6)}), npartitions=3)
        data.to_parquet(tmp_path / "out", output_files={"one.parquet": [0, 2], "two.parquet": [1]})
        assert pd.read_parquet(tmp_path / "out" / "one.parquet")["a"].tolist() == [0, 1, 4, 5]
        with pytest.raises(ParameterError, match="names partition 7"):
            data.to_parquet(tmp_path / "out", output_files={"one.parquet": [7]})

    def test_vocabularies_where_notebooks_read_them(self, tmp_path, monkeypatch):
        import nvtabular as nvt

        frame = pd.DataFrame({"user": ["b", "a", "b"]})
        nvt.Workflow(["user"] >> nvt.ops.Categorify()).fit(nvt.Dataset(frame))
        assert pd.read_parquet("./categories/unique.user.parquet")["user"].tolist() == ["b", "a"]
        nvt.Workflow(["user"] >> nvt.ops.Categorify(out_path=str(tmp_path))).fit(nvt.Dataset(frame))
        assert (tmp_path / "categories" / "unique.user.parquet").exists()


class TestHelpers:
    def test_where_work_runs(self):
        from merlin.core.utils import Serial, global_dask_client, run_on_worker, set_dask_client

        assert global_dask_client() is None
        set_dask_client("a client")
        try:
            assert global_dask_client() == "a client"
            with Serial() as here:
                assert here.client is None and global_dask_client() is None
            assert global_dask_client() == "a client"
        finally:
            set_dask_client("auto")
        assert run_on_worker(max, 1, 2) == 2

    def test_what_there_is(self):
        import torch
        from merlin.core.compat import HAS_GPU, cudf, cupy, dask_cudf, numpy, pandas
        from merlin.core.compat.torch import torch as there
        from merlin.core.protocols import DataFrameLike, SeriesLike, Transformable

        assert not HAS_GPU and cudf is cupy is dask_cudf is None
        assert numpy is np and pandas is pd and there is torch
        frame = pd.DataFrame({"a": [1]})
        assert (
            isinstance(frame, Transformable) and isinstance(frame, DataFrameLike) and isinstance(frame["a"], SeriesLike)
        )

    def test_dispatch(self, tmp_path):
        import pyarrow as pa
        from merlin.core import dispatch

        frame = pd.DataFrame({"a": [1, 2]})
        assert dispatch.detect_format(frame) is dispatch.ExtData.PANDAS
        assert dispatch.detect_format(pa.table({"a": [1]})) is dispatch.ExtData.ARROW
        with pytest.raises(ValueError, match="no data of a known kind"):
            dispatch.detect_format("a.txt")
        assert dispatch.convert_data(frame, to_collection=True).compute()["a"].tolist() == [1, 2]
        with dispatch.parquet_writer_dispatch(frame, path=tmp_path / "a.parquet") as writer:
            writer.write_table(frame)
        assert dispatch.read_parquet_metadata(tmp_path / "a.parquet") == (2, 1, ["a"])
        assert dispatch.nullable_series([1, None], frame, "int32").isna().tolist() == [False, True]
        assert dispatch.random_state(3).randint(9) == dispatch.random_state(3).randint(9)

    def test_executors(self):
        from merlin.dag import Graph
        from merlin.dag.executors import DaskExecutor, LocalExecutor
        from merlin.dag.runtime import Runtime
        from nvtabular import Dataset, ops

        frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4]})
        node = ["a"] >> ops.LogOp()
        expected = np.log1p(frame["a"]).tolist()
        assert LocalExecutor().transform(frame, node, additional_columns=["b"])["b"].tolist() == [3, 4]
        assert Runtime().transform(Graph(node), frame)["a"].tolist() == pytest.approx(expected)
        lazily = DaskExecutor().transform(Dataset(frame).to_ddf(), [node])
        assert lazily.compute()["a"].tolist() == pytest.approx(expected)

    def test_made_up_data(self, tmp_path):
        from nvtabular import Dataset
        from nvtabular.tools import data_gen
        from nvtabular.tools.dataset_inspector import DatasetInspector
        from nvtabular.tools.inspector_script import main, parse_args

        described = {
            "conts": {"x": {"dtype": np.float32, "min_val": 0, "max_val": 2}},
            "cats": {
                "c": {"dtype": None, "cardinality": 20, "min_entry_size": 1, "max_entry_size": 4},
                "l": {"dtype": None, "cardinality": 5, "multi_min": 2, "multi_max": 4, "distro": {"name": "uniform"}},
            },
            "labels": {"y": {"dtype": "int8", "cardinality": 2}},
        }
        cols = data_gen._get_cols_from_schema(described)
        frame = data_gen.DatasetGen(data_gen.PowerLawDistro(0.1)).create_df(100, cols)
        assert list(frame.columns) == ["x", "c", "l", "y"] and frame["c"].between(0, 20).all()
        assert {len(row) for row in frame["l"]} <= {2, 3, 4} and set(frame["y"]) <= {0, 1, 2}
        texts = data_gen.DatasetGen(data_gen.UniformDistro()).create_df(50, {"cats": cols["cats"][:1]}, entries=True)
        assert texts["c"].map(len).between(1, 4).all()
        files = data_gen.DatasetGen(data_gen.UniformDistro()).full_df_create(30, cols, output=tmp_path)
        assert Dataset(files).num_rows == 30
        columns = {"cats": ["c"], "conts": ["x"], "labels": ["y"]}
        DatasetInspector().inspect(Dataset(files), columns, tmp_path / "found.json")
        found = json.loads((tmp_path / "found.json").read_text())
        assert found["num_rows"] == 30 and 0 <= found["conts"]["x"]["min_val"] <= found["conts"]["x"]["max_val"] <= 2
        (tmp_path / "columns.json").write_text(json.dumps(columns))
        arguments = ["-d", files[0], "-c", str(tmp_path / "columns.json"), "-o", str(tmp_path / "again.json")]
        main(parse_args(arguments))
        assert json.loads((tmp_path / "again.json").read_text()) == found
        with pytest.raises(ValueError, match="no distribution 'gauss'"):
            data_gen._get_cols_from_schema({"conts": {"x": {"dtype": "f4", "distro": {"name": "gauss"}}}})


class TestTables:
    def test_columns(self):
        import tensorflow as tf
        import torch
        from merlin.table import Device, NumpyColumn, TensorColumn, TensorflowColumn, TorchColumn

        lists = TensorColumn(torch.tensor([1, 2, 3]), offsets=torch.tensor([0, 1, 3]))
        assert isinstance(lists, TorchColumn) and len(lists) == 2 and lists[1].tolist() == [2, 3]
        assert lists.is_list and lists.is_ragged and lists.dtype == np.int64 and lists.device is Device.CPU
        assert TensorColumn(tf.constant([1.0])).__class__ is TensorflowColumn
        assert NumpyColumn.cast(lists).values.tolist() == [1, 2, 3] and lists == TorchColumn.cast(
            NumpyColumn.cast(lists)
        )
        with pytest.raises(TypeError, match="of one kind"):
            TensorColumn(np.array([1]), offsets=torch.tensor([0, 1]))
        with pytest.raises(TypeError, match="takes arrays of"):
            TorchColumn(np.array([1, 2]))
        with pytest.raises(ValueError, match="rise to the number of values"):
            TensorColumn(np.array([1, 2]), offsets=np.array([0, 1]))

    def test_tables(self):
        import torch
        from merlin.dag.executors import LocalExecutor
        from merlin.table import TensorTable, TorchColumn
        from nvtabular import ops

        frame = pd.DataFrame({"a": [1.0, 2.0], "l": [[1], [2, 3]]})
        table = TensorTable.from_df(frame)
        assert table.columns == ["a", "l"] and list(table.to_dict()) == ["a", "l__values", "l__offsets"]
        assert [list(row) for row in table.to_df()["l"]] == [[1], [2, 3]]
        assert TensorTable(table.to_dict()) == table and "a" in table and table[["a"]].columns == ["a"]
        assert table.as_tensor_type(TorchColumn)["a"].values.dtype == torch.float64
        with pytest.raises(TypeError, match="same framework"):
            TensorTable({"a": np.array([1]), "b": torch.tensor([1])})
        logged = LocalExecutor().transform(table, ["a"] >> ops.LogOp())
        assert isinstance(logged, TensorTable) and logged["a"].values.tolist() == pytest.approx(np.log1p([1.0, 2.0]))
