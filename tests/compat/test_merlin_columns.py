"""Columns under Merlin's names: schemas laid over one another, dtypes of classes, tables of tensors, dispatch."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from penstock.core.errors import DataError

pytestmark = pytest.mark.usefixtures("old_names")


class TestSchemas:
    def test_a_column_with_what_only_another_says(self):
        from merlin.schema import ColumnSchema, Tags

        short = ColumnSchema("short", dtype="float32", properties={"value_count": {"min": 1, "max": 2}})
        fixed = ColumnSchema(
            "fixed", tags=[Tags.ITEM], dtype="float64", properties={"value_count": {"min": 4, "max": 4}, "unit": "m"}
        )
        mine = short | fixed
        assert (mine.name, mine.dtype.name, mine.is_ragged, mine.properties["unit"]) == ("short", "float32", True, "m")
        assert mine.properties["value_count"] == {"min": 1, "max": 2} and Tags.ITEM in mine.tags
        other = fixed | short
        assert (other.name, other.dtype.name, other.is_ragged) == ("fixed", "float64", False)
        assert (ColumnSchema("bare") | fixed).dtype.name == "float64"

    def test_flags_that_value_counts_deny(self):
        from merlin.schema import ColumnSchema

        with pytest.raises(ValueError, match="`is_ragged=True` is inconsistent with value counts") as error:
            ColumnSchema("sizes", is_list=True, is_ragged=True, properties={"value_count": {"min": 3, "max": 3}})
        assert "sizes" in str(error.value)

    def test_compound_tags_are_listed_with_their_parts(self):
        from merlin.schema import Tags
        from merlin.schema.tags import COMPOUND_TAGS, TAG_COLLISIONS, TagSet

        assert COMPOUND_TAGS[Tags.USER_ID] == (Tags.USER, Tags.ID)
        assert all(part in TagSet(list(parts)) for parts in COMPOUND_TAGS.values() for part in parts)
        assert Tags.CATEGORICAL in TAG_COLLISIONS[Tags.CONTINUOUS]

    def test_schemas_in_the_form_that_was_never_finished(self):
        from merlin.schema import ColumnSchema, Schema
        from merlin.schema.io.merlin_metadata import MerlinMetadata

        schema = Schema([ColumnSchema("a", dtype="int32", tags=["t"])])
        assert (
            MerlinMetadata.from_json(MerlinMetadata.from_merlin_schema(schema).to_json()).to_merlin_schema() == schema
        )


class TestDtypes:
    def test_classes(self):
        import merlin.dtypes as md

        assert md.dtype(pd.StringDtype) == md.string and md.dtype(pd.BooleanDtype) == md.boolean
        assert md.dtype(str) == md.string and md.dtype(np.int16) == md.int16

        class Nothing:
            pass

        assert md.dtype("i4") == md.int32 and md.dtype("<M8[ms]") == md.datetime64ms
        assert md.dtype(Nothing) == md.unknown  # and not one of objects, which NumPy takes any class for

    def test_mappings_of_each_library(self):
        import merlin.dtypes as md
        import torch
        from merlin.dtypes.mappings.numpy import numpy_dtypes
        from merlin.dtypes.mappings.torch import torch_dtypes

        assert numpy_dtypes.from_merlin(md.int32) == np.dtype("int32")
        assert torch_dtypes.to_merlin(torch.float16) == md.float16
        assert not torch_dtypes.matches_merlin(md.string)


class TestTables:
    def test_equal_frames_and_tables(self):
        from merlin.table import TensorTable
        from merlin.testing import assert_transformable_equal

        frame = pd.DataFrame({"a": [1, 2], "l": [[1], [2, 3]]})
        for one, other in ((frame, frame.assign(a=[1, 3])), (TensorTable.from_df(frame), TensorTable({"a": [1]}))):
            assert_transformable_equal(one, one)
            with pytest.raises(AssertionError):
                assert_transformable_equal(one, other)
        with pytest.raises(NotImplementedError, match="int"):
            assert_transformable_equal(1, 1)

    def test_rows_of_ragged_columns_count_from_both_ends(self):
        from merlin.table import NumpyColumn

        column = NumpyColumn(np.array([1, 2, 3]), np.array([0, 1, 3]))
        assert column[-1].tolist() == [2, 3] and column[-2].tolist() == [1]
        assert column.tolist() == [[1], [2, 3]] and column.ravel().tolist() == [1, 2, 3]
        assert NumpyColumn(np.array([7])).tolist() == [7] and np.asarray(column).tolist() == [1, 2, 3]

    def test_columns_from_lists(self):
        from merlin.table import NumpyColumn, TensorColumn, TorchColumn
        from merlin.table.conversions import convert_col

        vectors = NumpyColumn([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]])
        assert vectors.shape.as_tuple == (2, (0, None), 2) and vectors.values.shape == (3, 2)
        assert convert_col(vectors, TorchColumn).shape.as_tuple == (2, (0, None), 2)
        assert TensorColumn([[1, 2], [3, 4]]).shape.as_tuple == (2, 2)
        with pytest.raises(DataError, match="offsets"):
            NumpyColumn(np.array([1, 2, 3]), np.array([0, 2]))

    def test_one_framework_in_a_table(self):
        import torch
        from merlin.table import TensorTable

        assert TensorTable({"a": np.arange(2), "b": np.arange(3)}).columns == ["a", "b"]
        with pytest.raises(TypeError, match="from the same framework"):
            TensorTable({"a": np.arange(2), "b": torch.arange(2)})

    def test_operators_take_tables_and_dicts_of_arrays(self):
        from merlin.dag import ColumnSelector
        from merlin.table import TensorTable
        from nvtabular import ops

        table = TensorTable({"x": np.array([1, 2]), "y": np.array([3, 4])})
        renamed = ops.Rename(postfix="_1").transform(ColumnSelector(["x", "y"]), table)
        assert isinstance(renamed, TensorTable) and renamed.columns == ["x_1", "y_1"]
        arrays = ops.Clip(min_value=2).transform(ColumnSelector(["x"]), {"x": np.array([1, 3])})
        assert arrays["x"].tolist() == [2, 3]


class TestDispatch:
    def test_frames_without_columns_leave_the_others_alone(self):
        from merlin.core.dispatch import concat_columns, make_df

        two, none = make_df({"a": [1, 2]}), make_df({"b": [1, 2, 3]})[[]]
        assert concat_columns([two, none]).dtypes.to_dict() == two.dtypes.to_dict()
        assert concat_columns([none, none]).shape == (3, 0)

    def test_frames_as_dicts_of_arrays_and_back(self):
        from merlin.core.dispatch import dataframe_columnwise_explode, df_from_dict, dict_from_df, make_df

        frame = make_df({"a": [[1, 2], [3]], "b": [5, 6]})
        pd.testing.assert_frame_equal(df_from_dict(dict_from_df(frame)), frame)
        assert dataframe_columnwise_explode(make_df({"b": [5], "e": [[1, 2]]})).to_numpy().tolist() == [[5, 1, 2]]

    def test_functions_for_types_of_libraries_that_come_later(self):
        from merlin.dispatch.lazy import lazy_singledispatch

        @lazy_singledispatch
        def kind(value):
            raise NotImplementedError

        @kind.register_lazy("pandas")
        def register():
            kind.register(pd.Series, lambda value: "series")

        @kind.register
        def number(value: int):
            return "number"

        assert kind(pd.Series([1])) == kind(pd.Series) == "series" and kind(3) == "number"
        with pytest.raises(NotImplementedError, match="kind doesn't have a registered implementation"):
            kind("text")
        named = lazy_singledispatch("by_name")
        named.register(int, lambda value: "number")
        plain = lazy_singledispatch(lambda value: "whatever it is")
        assert named(3) == "number"
        for function in (named, plain):
            with pytest.raises(NotImplementedError, match=r"implementation for 'text' \(builtins\.str\)"):
                function("text")
        with pytest.raises(TypeError, match="a function or its name, got 3"):
            lazy_singledispatch(3)

    def test_tables_of_arrow_in_a_worker_s_cache(self, tmp_path):
        from merlin.io.worker import fetch_table_data

        frame = pd.DataFrame({"f": [1, 2]})
        cache = {"kept": pa.Table.from_pandas(frame)}
        pd.testing.assert_frame_equal(fetch_table_data(cache, "kept"), frame)
        assert fetch_table_data(cache, "kept", cats_only=True).columns.tolist() == ["labels", "f"]

    @pytest.mark.parametrize("module", ["nvtabular._version", "merlin.core._version", "merlin.dataloader._version"])
    def test_versions(self, module):
        import importlib

        assert importlib.import_module(module).get_versions()["version"] == "23.08.00"


def test_columns_stay_where_they_are():
    """A column of CuPy's lies on a GPU; nothing moves there or back unasked."""
    from merlin.table import CupyColumn, Device, NumpyColumn
    from merlin.table.conversions import convert_col

    assert CupyColumn.supported_devices() == [Device.GPU] and NumpyColumn.supported_devices() == [Device.CPU]
    with pytest.raises(NotImplementedError, match="Could not convert from type NumpyColumn"):
        convert_col(NumpyColumn(np.array([1])), CupyColumn)


def test_an_empty_list_does_not_make_integers_floats():
    from merlin.table import TensorTable

    for rows in ([[1], [2, 3], []], [[], [1, 2, 3]]):
        column = TensorTable.from_df(pd.DataFrame({"a": rows}))["a"]
        assert column.values.dtype == np.dtype("int64") and column.values.tolist() == [1, 2, 3]
