"""NVTabular's operators: limits, vocabularies and orders as the last release had them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from penstock.compat import settings

pytestmark = pytest.mark.usefixtures("old_names")


@pytest.fixture(autouse=True)
def newest():
    with settings.using(nvtabular="latest"):
        yield


def done(node, frame):
    import nvtabular as nvt

    return nvt.Workflow(node).fit_transform(nvt.Dataset(pd.DataFrame(frame))).compute()


class TestCategorify:
    def test_a_limit_of_memory_warns(self):
        from nvtabular import ops

        with pytest.warns(UserWarning, match=r"'city' take .* cardinality_memory_limit='4B'"):
            done(["city"] >> ops.Categorify(cardinality_memory_limit="4B"), {"city": ["Rome", "Oslo"]})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            done(["city"] >> ops.Categorify(cardinality_memory_limit="1MB"), {"city": ["Rome", "Oslo"]})

    def test_tree_width_is_of_the_past(self):
        from nvtabular import ops

        with pytest.warns(FutureWarning, match="split_out"):
            ops.Categorify(tree_width=8)

    def test_a_vocabulary_in_a_frame(self):
        from nvtabular import ops

        vocabulary = pd.DataFrame({"city": ["Oslo", "Rome"], "city_size": [2, 1]})
        assert done(["city"] >> ops.Categorify(vocabs={"city": vocabulary}), {"city": ["Rome", "Oslo"]})[
            "city"
        ].tolist() == [4, 3]

    def test_single_requests(self):
        import nvtabular as nvt
        from nvtabular import ops

        node = ["n"] >> ops.Categorify()
        nvt.Workflow(node).fit(nvt.Dataset(pd.DataFrame({"n": [5, 5, 7]})))
        ready = node.op.inference_initialize(node.input_columns, {})
        assert ready.transform(node.input_columns, {"n": np.array([7, 5, 1], dtype="int8")})["n"].tolist() == [4, 3, 2]


class TestOrders:
    def test_first_and_last_do_not_turn_with_the_lists(self):
        from nvtabular import ops

        frame = {"k": [1, 1, 1], "t": [2, 1, 3], "x": [20, 10, 30]}
        node = ["k", "t", "x"] >> ops.Groupby("k", "t", {"x": ["list", "first", "last"]}, ascending=False)
        [row] = done(node, frame).to_dict("records")
        assert (list(row["x_list"]), row["x_first"], row["x_last"]) == ([30, 20, 10], 10, 30)

    def test_differences_come_column_by_column(self):
        import nvtabular as nvt

        frame = pd.DataFrame({"user": [1, 1, 2], "x": [1, 4, 9], "y": [0.5, 1.0, 2.0]})
        made = nvt.Workflow(["x", "y"] >> nvt.ops.DifferenceLag("user", shift=[1, -1])).transform(frame)
        assert made.columns.tolist() == [f"{name}_difference_lag_{shift}" for name in "xy" for shift in (1, -1)]


class TestNumbers:
    def test_flags_are_bool_and_stay_so(self, tmp_path):
        import nvtabular as nvt

        frame = pd.DataFrame({"x": [1.0, None, 5.0], "n": [None, 2.0, 2.0]})
        graph = (["x"] >> nvt.ops.FillMissing(7, add_binary_cols=True)) + (
            ["n"] >> nvt.ops.FillMedian(add_binary_cols=True)
        )
        workflow = nvt.Workflow(graph)
        made = workflow.fit_transform(nvt.Dataset(frame)).compute()
        assert made["x_filled"].tolist() == [False, True, False] and made["n_filled"].tolist() == [True, False, False]
        assert str(made["x_filled"].dtype) == "bool" and not len(workflow.output_schema["n_filled"].tags)
        workflow.save(tmp_path / "workflow")
        again = nvt.Workflow.load(tmp_path / "workflow").transform(nvt.Dataset(frame)).compute()
        pd.testing.assert_frame_equal(again, made)

    def test_deviations_of_whole_numbers_and_of_lengths(self):
        import nvtabular as nvt

        frame = pd.DataFrame({"n": [1, 2, 3, 6], "s": ["a", "bb", "bb", "dddd"]})
        nvt.Workflow(["n", "s"] >> (stats := nvt.ops.DataStats())).fit(nvt.Dataset(frame))
        assert stats.output["n"]["std"] == pytest.approx(frame["n"].std())
        assert stats.output["s"]["std"] == pytest.approx(frame["s"].str.len().std())

    def test_logarithms_to_the_last_bit(self):
        from nvtabular import ops

        values = np.random.default_rng(0).uniform(-1, 1000, 500)
        expected = np.log(values.astype(np.float32) + np.float32(1))
        assert (done(["x"] >> ops.LogOp(), {"x": values})["x"].to_numpy() == expected).all()

    def test_a_row_has_the_bits_of_a_column(self, tmp_path):
        import nvtabular as nvt
        from nvtabular import ops

        frame = pd.DataFrame({"x": [0.1, -0.5, 3e-7]})
        workflow = nvt.Workflow(["x"] >> ops.LogOp()).fit(nvt.Dataset(frame))
        workflow.save(tmp_path / "saved")
        whole = nvt.Workflow.load(tmp_path / "saved").transform(frame)["x"].tolist()
        assert whole == [workflow.transform(frame.iloc[i : i + 1])["x"].item() for i in range(3)]

    def test_functions_of_dask(self):
        from dask.dataframe import to_datetime
        from nvtabular import ops

        node = ["s"] >> ops.LambdaOp(lambda col: to_datetime(col, unit="s")) >> ops.LambdaOp(lambda col: col.dt.year)
        assert done(node, {"s": [0, 1_000_000_000]})["s"].tolist() == [1970, 2001]


class TestNumbersOfGroups:
    frame = {"k": [1, 1, 2], "n": [2, 5, 7], "x": [0.1, 0.2, 0.7]}

    def test_are_float32_as_they_were(self):
        from nvtabular import ops

        numbers = ["sum", "mean", "median", "std", "var"]
        out = done(
            ["k", "n", "x"] >> ops.Groupby("k", aggs={"n": [*numbers, "count"], "x": [*numbers, "max"]}), self.frame
        )
        assert {str(out[f"{c}_{agg}"].dtype) for c in "nx" for agg in numbers} == {"float32"}
        assert (str(out["n_count"].dtype), str(out["x_max"].dtype)) == ("int32", "float64")
        assert out["n_sum"].tolist() == [7, 7]

    def test_differences_too(self):
        import nvtabular as nvt
        from nvtabular import ops

        workflow = nvt.Workflow(["n", "x"] >> ops.DifferenceLag("k")).fit(nvt.Dataset(pd.DataFrame(self.frame)))
        out = workflow.transform(pd.DataFrame(self.frame))
        assert set(map(str, out.dtypes)) == {"float32"} == {c.dtype.name for c in workflow.output_schema}
        np.testing.assert_array_equal(out["n_difference_lag_1"], [np.nan, 3, np.nan])


class TestFiles:
    def test_hugectr(self, tmp_path):
        import nvtabular as nvt

        frame = pd.DataFrame({"c": [7, 8, 9], "x": [0.5, 1.0, 2.0], "y": [0, 1, 0]})
        nvt.Dataset(frame).to_hugectr(tmp_path, cats=["c"], conts=["x"], labels=["y"], out_files_per_proc=2)
        content = (tmp_path / "0.data").read_bytes()
        assert np.frombuffer(content[:64], "<i8").tolist() == [0, 2, 1, 1, 1, 0, 0, 0]
        assert np.frombuffer(content[64:72], "<f4").tolist() == [0.0, 0.5]
        assert np.frombuffer(content[72:80], "<u4").tolist() == [1, 7] and len(content) == 64 + 2 * 16
        assert (tmp_path / "_file_list.txt").read_text().splitlines()[0] == "2"

    def test_ids_that_hugectr_does_not_hold(self, tmp_path):
        import nvtabular as nvt

        frame = pd.DataFrame({"c": [-1], "y": [0]})
        with pytest.raises(ValueError, match="32 bits"):
            nvt.Dataset(frame).to_hugectr(tmp_path, cats=["c"], conts=[], labels=["y"])

    def test_the_engine_of_a_data_set(self, tmp_path):
        import nvtabular as nvt
        from merlin.io.parquet import ParquetDatasetEngine

        pd.DataFrame({"x": [1, 2, 3]}).to_parquet(tmp_path / "x.parquet")
        data = nvt.Dataset(str(tmp_path / "x.parquet"))
        assert isinstance(data.engine, ParquetDatasetEngine) and data.engine._partition_lens == [3]
        assert data.engine.to_ddf(cpu=True).compute()["x"].tolist() == [1, 2, 3]

    def test_arguments_that_do_not_fit(self, tmp_path):
        import nvtabular as nvt

        with pytest.raises(TypeError, match=r"unsupported schema type for merlin\.io\.Dataset: dict"):
            nvt.Dataset("nowhere", schema={})
        with pytest.raises(ValueError, match="out_files_per_proc"):
            nvt.Dataset(pd.DataFrame({"x": [1]})).to_parquet(tmp_path, output_files=["a.parquet"], out_files_per_proc=2)

    def test_numbers_that_folders_spell(self, tmp_path):
        import nvtabular as nvt

        pd.DataFrame({"x": [1, 2], "day": [1, 2]}).to_parquet(tmp_path, partition_cols=["day"])
        data = nvt.Dataset(str(tmp_path), engine="parquet", filters=[("day", "==", 2)])
        assert data.compute()["x"].tolist() == [2]


class TestTriton:
    def test_a_model_s_folder(self, tmp_path):
        import nvtabular as nvt
        from nvtabular import ops
        from nvtabular.inference.triton import generate_nvtabular_model

        frame = pd.DataFrame({"user": ["a", "b"], "genres": [["x"], ["x", "y"]], "price": [1.0, 3.0]})
        node = (["user", "genres"] >> ops.Categorify()) + (["price"] >> ops.Normalize())
        workflow = nvt.Workflow(node)
        with pytest.raises(RuntimeError, match="fit it first"):
            generate_nvtabular_model(workflow, "model", tmp_path)
        workflow.fit(nvt.Dataset(frame))
        for _ in range(2):  # over what is there
            generate_nvtabular_model(workflow, "model", tmp_path)
        config = (tmp_path / "config.pbtxt").read_text()
        assert 'name: "genres__values"' in config and "data_type: TYPE_FP64" in config
        loaded = nvt.Workflow.load(tmp_path / "1" / "workflow")
        pd.testing.assert_frame_equal(loaded.transform(frame), workflow.transform(frame))

    def test_rows_as_a_frame_and_as_arrays(self):
        from nvtabular.inference.triton.data_conversions import convert_format
        from nvtabular.ops.operator import Supports

        frame = pd.DataFrame({"i": [1, 2], "l": [[1, 2], [3]], "s": ["a", "b"], "t": [["aa"], ["b", "c"]]})
        arrays, kind = convert_format(frame, Supports.CPU_DATAFRAME, Supports.CPU_DICT_ARRAY)
        assert kind == Supports.CPU_DICT_ARRAY and arrays["l"][1].tolist() == [0, 2, 3]
        back, kind = convert_format(arrays, kind, Supports.CPU_DATAFRAME)
        assert kind == Supports.CPU_DATAFRAME
        pd.testing.assert_frame_equal(back, frame)
        assert convert_format(frame, kind, kind)[0] is frame


class TestTraining:
    def test_batches_of_columns_by_name_train_the_model(self):
        import nvtabular as nvt
        import torch
        from nvtabular import ops
        from nvtabular.framework_utils.torch.models import Model
        from nvtabular.framework_utils.torch.utils import process_epoch
        from nvtabular.loader.torch import TorchAsyncItr

        frame = pd.DataFrame({"c": list("abac"), "l": [["x"], ["x", "y"], ["y"], []], "n": [0.1, 0.2, 0.3, 0.4]})
        frame["y"] = [1, 2, 3, 4]
        workflow = nvt.Workflow((["c", "l"] >> ops.Categorify()) + ["n", "y"])
        data = workflow.fit_transform(nvt.Dataset(frame))
        loader = TorchAsyncItr(data, ["c", "l"], ["n"], ["y"], batch_size=2)
        torch.manual_seed(0)
        model = Model(nvt.ops.get_embedding_sizes(workflow), 1, 0.0, [8], [0.0])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loss, predictions, labels = process_epoch(loader, model, train=True, optimizer=optimizer, amp=False)
        assert loss > 0 and len(predictions) == 4 and labels.tolist() == [1.0, 2.0, 3.0, 4.0]

    def test_totals_of_targets_by_fold(self, tmp_path):
        import nvtabular as nvt
        from nvtabular import ops

        node = ["c"] >> ops.TargetEncoding("y", kfold=2, drop_folds=False, out_path=str(tmp_path))
        out = nvt.Workflow(node + ["c"]).fit_transform(
            nvt.Dataset(pd.DataFrame({"c": list("abcd"), "y": [1, 2, 3, 4]}))
        )
        folds = pd.read_parquet(node.op.stats["__fold___c"])[["__fold__", "c"]].sort_values("c").to_numpy().tolist()
        assert folds == out.compute()[["__fold__", "c"]].sort_values("c").to_numpy().tolist()
        assert len(pd.read_parquet(node.op.stats["c"])) == 4
