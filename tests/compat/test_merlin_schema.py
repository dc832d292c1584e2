"""Merlin's schema, tags, dtypes and selectors, and the way to Penstock's schema and back."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

from penstock import ColumnSchema as NativeColumn
from penstock import Role
from penstock import Schema as NativeSchema
from penstock.core.errors import ArtefactError, ColumnNotFoundError, ParameterError, SchemaError

pytestmark = pytest.mark.usefixtures("old_names")


def schema():
    from merlin.schema import ColumnSchema, Schema, Tags

    return Schema(
        [
            ColumnSchema("user", dtype=np.int32, tags=[Tags.USER, Tags.ID, Tags.CATEGORICAL]),
            ColumnSchema("item", dtype=np.int64, tags=[Tags.ITEM, Tags.ID, "categorical"]),
            ColumnSchema("age", dtype=np.float32, tags=[Tags.USER, Tags.CONTINUOUS]),
            ColumnSchema("click", dtype=np.int8, tags=[Tags.TARGET, Tags.BINARY_CLASSIFICATION]),
        ]
    )


class TestSchemas:
    def test_choosing(self):
        from merlin.dag import ColumnSelector
        from merlin.schema import Tags

        s = schema()
        assert s.column_names == ["user", "item", "age", "click"]
        assert s.select_by_tag(Tags.USER).column_names == ["user", "age"]
        assert s.select_by_tag([Tags.USER, Tags.CATEGORICAL], all).column_names == ["user"]
        assert s.select_by_tag("id").column_names == ["user", "item"]
        assert s.excluding_by_tag(Tags.CATEGORICAL).column_names == ["age", "click"]
        assert s.remove_by_tag(["target"]).column_names == ["user", "item", "age"]
        assert s.select_by_name(["age", "nowhere"]).column_names == ["age"]
        assert s.without("age").column_names == s.remove_col("age").column_names == ["user", "item", "click"]
        assert s.select(ColumnSelector(["age"], tags=[Tags.TARGET])).column_names == ["age", "click"]
        assert s.excluding(ColumnSelector(["age"])).column_names == ["user", "item", "click"]
        assert s.apply(ColumnSelector("*")) == s and len(s.excluding(ColumnSelector("*"))) == 0
        assert s.first.name == "user" and s["age"].name == "age" and s[["age", "user"]].column_names == ["age", "user"]
        assert s.get("nowhere") is None and "age" in s and [c.name for c in s] == s.column_names

    def test_adding(self):
        from merlin.schema import ColumnSchema, Schema, Tags

        s = schema()
        more = Schema([ColumnSchema("age", properties={"unit": "years"}), ColumnSchema("time", dtype="datetime64[ns]")])
        both = s + more
        assert both.column_names == ["user", "item", "click", "age", "time"]
        assert both["age"].properties["unit"] == "years" and Tags.CONTINUOUS in both["age"].tags
        assert both["age"].dtype == np.float32
        assert (s - more).column_names == ["user", "item", "click"]
        assert sum([s, more], Schema()) == both
        copied = s.copy()
        copied["new"] = ColumnSchema("new")
        assert "new" not in s
        table = s.to_pandas()
        assert table["name"].tolist() == s.column_names and table["dtype"][0] == np.int32
        assert Tags.TARGET in table["tags"][3] and not table["is_list"].any()
        assert "user" in s._repr_html_()

    def test_columns(self):
        from merlin.schema import ColumnSchema, Domain, Tags

        c = ColumnSchema("g", dtype=np.int64, properties={"domain": {"min": 0, "max": 9}})
        assert c.int_domain == Domain(0, 9) and c.int_domain.is_bounded and c.float_domain is None
        assert not c.is_list and not c.is_ragged
        lists = c.with_dtype(np.float32, is_list=True, is_ragged=True)
        assert lists.is_list and lists.is_ragged and lists.value_count.max is None
        fixed = c.with_shape((None, 4))
        assert fixed.is_list and not fixed.is_ragged and fixed.value_count == Domain(4, 4)
        assert fixed.shape.as_tuple == ((0, None), 4)
        counted = c.with_properties({"value_count": {"min": 1, "max": 3}})
        assert counted.is_ragged and counted.shape.as_tuple == ((0, None), (1, 3))
        assert c.with_tags(Tags.CATEGORICAL).with_tags([Tags.CONTINUOUS]).tags == {Tags.CONTINUOUS}
        assert c.with_name("h").name == "h" == str(c.with_name("h"))
        assert ColumnSchema("x").dtype.name == "unknown"
        assert len({c, c.with_name("h")}) == 2

    def test_shapes(self):
        from merlin.dtypes.shape import DefaultShapes, Dimension, Shape

        shape = Shape((None, (1, 4)))
        assert shape.with_dim_max(1, 5).as_tuple == ((0, None), (1, 5)) and shape.with_dim(1, 2)[1] == Dimension(2, 2)
        assert shape.with_dim_min(1, 2).min == (0, 2) and int(Dimension(3, 3)) == 3
        assert (
            Shape(DefaultShapes.LIST).is_ragged and Shape() == shape and not Shape((2, 3)).with_dim_max(0, 4).is_fixed
        )
        for wrong in ((None, None), (-1, 2), (3, 2), (1, 2.5)):
            with pytest.raises(ValueError, match="dimension"):
                Dimension(*wrong)
        with pytest.raises(ValueError, match="no fixed size"):
            int(Dimension(1, 2))

    def test_value_counts_say_more_than_flags(self):
        from merlin.schema import ColumnSchema

        counted = ColumnSchema("x", is_list=False, properties={"value_count": {"min": 2, "max": 2}})
        assert counted.is_list and not counted.is_ragged and counted.shape.as_tuple == ((0, None), 2)
        half = ColumnSchema("x", is_list=True, is_ragged=False, properties={"value_count": {"max": 3}})
        assert half.value_count.min == half.value_count.max == 3
        for ragged, counts in ((True, {"min": 2, "max": 2}), (False, {"min": 1, "max": 2})):
            with pytest.raises(ValueError, match="is_ragged"):
                ColumnSchema("x", is_list=True, is_ragged=ragged, properties={"value_count": counts})
        stated = ColumnSchema("x", dims=(None, 4), is_ragged=True, properties={"value_count": {"min": 2, "max": 2}})
        assert stated.shape.as_tuple == ((0, None), 4) and stated.value_count.max == 4 and not stated.is_ragged

    def test_contradictions(self):
        from merlin.schema import ColumnSchema, Schema, Tags, TagSet

        with pytest.raises(SchemaError, match="exclude one another"):
            TagSet([Tags.CATEGORICAL, Tags.CONTINUOUS])
        with pytest.raises(SchemaError, match="cannot be ragged"):
            ColumnSchema("x", is_list=False, is_ragged=True)
        with pytest.raises(ColumnNotFoundError, match="did you mean 'user'"):
            schema()["users"]
        with pytest.raises(TypeError, match="list or a dict"):
            Schema("user")
        with pytest.raises(TypeError, match="to a Schema only"):
            schema() + ["x"]
        with pytest.raises(SchemaError, match="no first one"):
            Schema().first  # noqa: B018

    def test_to_penstock_and_back(self):
        from merlin.schema import ColumnSchema, Schema, Tags

        native = schema().to_native()
        assert [c.role for c in native] == [Role.CATEGORICAL, Role.CATEGORICAL, Role.CONTINUOUS, Role.LABEL]
        assert native["user"].tags >= {"user", "id"}
        assert Schema.from_native(native).select_by_tag(Tags.USER_ID).column_names == ["user"]
        column = NativeColumn(
            "c", "int32", Role.CATEGORICAL, True, cardinality=10, properties={"value_count": {"max": 5}}
        )
        merlin = ColumnSchema.from_native(column)
        assert merlin.int_domain.max == 9 and merlin.properties["embedding_sizes"] == {
            "cardinality": 10,
            "dimension": 16,
        }
        assert merlin.is_ragged and merlin.value_count.max == 5
        again = merlin.to_native()
        assert (again.cardinality, again.role, again.is_list) == (10, Role.CATEGORICAL, True)
        assert Schema.from_native(NativeSchema([column])).to_native().names == ["c"]


class TestDtypes:
    @pytest.mark.parametrize(
        ("given", "name"),
        [
            (np.int32, "int32"), (np.dtype("float64"), "float64"), ("str", "str"), (str, "str"), (bool, "bool"),
            (torch.int64, "int64"), (pd.Int64Dtype(), "int64"), ("datetime64[ns]", "datetime64[ns]"), (int, "int64"),
            (np.float16, "float16"), ("object", "object"),
        ],
    )  # fmt: skip
    def test_from_anywhere(self, given, name):
        import merlin.dtypes as md

        assert md.dtype(given).name == name

    def test_what_they_are(self):
        import merlin.dtypes as md
        import tensorflow as tf

        assert md.dtype(tf.float32) == md.float32 == np.float32 != md.int32
        assert md.int64.to_numpy == np.int64 and md.int64.to_python is int
        assert md.uint8.is_integer and md.float32.is_float and not md.string.is_float
        assert md.int32.with_shape((None, 3)).is_list and md.int32.with_shape((None, 3)) == md.int32
        assert md.int32.with_shape((None, 3)) != md.int32.with_shape((None, 4))
        assert md.string.to_numpy == np.dtype("O") and md.datetime64ns.element_unit is md.ElementUnit.Nanosecond
        with pytest.raises(TypeError, match="None is no dtype"):
            md.dtype(None)
        with pytest.raises(TypeError, match="no dtype that is known"):
            md.dtype("complicated")

    def test_other_libraries(self, monkeypatch):
        import merlin.dtypes as md
        from merlin.dtypes import mapping
        from merlin.dtypes.mapping import DTypeMapping

        monkeypatch.setattr(mapping._dtype_registry, "mappings", {})

        assert md.int32.to("torch") is torch.int32 and md.float32.to("numpy") == np.float32
        assert md.string.to("python") is str and md.int64.with_shape((None, 2)).to("pandas") == np.int64
        with pytest.raises(ValueError, match="no mapping of dtypes to 'mine'"):
            md.int32.to("mine")
        md.register("mine", DTypeMapping({md.int32: "I4", md.float64: ["F8", "DOUBLE"]}))
        assert md.int32.to("mine") == "I4" and md.dtype("DOUBLE") == md.float64
        with pytest.raises(ValueError, match="no mapping"):
            md.int32.to("theirs")


class TestSelectors:
    def test_names_groups_and_sums(self):
        from merlin.dag import ColumnSelector
        from merlin.schema import Tags

        s = ColumnSelector(["a", ("b", "c")], subgroups=ColumnSelector(["d", "e"]))
        assert s.names == ["a", "d", "e", "b", "c"] and s.grouped_names == ["a", ("d", "e"), ("b", "c")]
        assert (s + ["f"]).names[1] == "f" and ("z" + ColumnSelector("a")).names == ["a", "z"]
        assert (ColumnSelector("a") + Tags.USER).tags == [Tags.USER]
        assert ColumnSelector("*").all and (ColumnSelector("a") + ColumnSelector("*")).all
        assert not ColumnSelector() and ColumnSelector(tags=["x"])
        assert ColumnSelector(["a", "b"]).filter_columns(ColumnSelector(["a"])).names == ["b"]
        assert ColumnSelector(tags=[Tags.USER]).resolve(schema()).names == ["user", "age"]
        assert ColumnSelector(["a"]) == ColumnSelector("a") != ColumnSelector("b")
        with pytest.raises(TypeError, match="takes names"):
            ColumnSelector([3])
        with pytest.raises(ParameterError, match="is empty"):
            ColumnSelector() >> (lambda c: c)

    def test_graphs(self):
        import nvtabular as nvt
        from merlin.dag import Graph, Node, iter_nodes
        from merlin.schema import ColumnSchema, Schema

        node = ["x"] >> nvt.ops.FillMissing() >> nvt.ops.LogOp()
        assert Node.construct_from(["x"]).kind == "source"
        assert len(list(iter_nodes([node]))) == 3
        graph = Graph(node.named("logs") + "y")
        graph.construct_schema(Schema([ColumnSchema("x", dtype=np.int64), ColumnSchema("y", dtype=np.int8)]))
        assert graph.output_schema.column_names == graph.column_names == ["x", "y"]
        assert graph.input_schema["x"].dtype == np.int64 and node.output_schema["x"].dtype == np.float32
        assert graph.subgraph("logs").output_node is node
        with pytest.raises(ParameterError, match="no node is named 'log'; did you mean 'logs'"):
            graph.subgraph("log")


def test_dispatch():
    from merlin.core import dispatch

    series = pd.Series([[1, 2], [], [3]], name="l")
    values, offsets = dispatch.pull_apart_list(series)
    assert dispatch.create_multihot_col(offsets, values).map(list).tolist() == series.tolist()
    assert dispatch.list_val_dtype(series) == np.int64 and dispatch.flatten_list_column(series)["l"].tolist() == [
        1,
        2,
        3,
    ]
    assert dispatch.is_series_object(series) and dispatch.is_dataframe_object(dispatch.make_df({"a": [1]}))
    assert dispatch.get_lib() is pd and not dispatch.HAS_GPU and dispatch.cudf is None
    assert dispatch.add_to_series(pd.Series([1]), [None]).isna().tolist() == [True, False]
    assert dispatch.create_merlin_dataset(pd.DataFrame({"a": [1]})).num_rows == 1
    assert dispatch.read_dispatch(fmt="csv") is pd.read_csv
    with pytest.raises(AttributeError, match="exists in Merlin and not here"):
        dispatch.get_cuda_context  # noqa: B018


TEXT = """
# what Merlin writes beside data
feature {
  name: "item_id"
  type: INT
  int_domain { name: "item_id" min: 0 max: 51996 is_categorical: true }
  annotation {
    tag: "item_id" tag: "categorical"
    extra_metadata {
      type_url: "type.googleapis.com/google.protobuf.Struct"
      value: "\\n\\021\\n\\013num_buckets\\022\\002\\b\\000"
    }
  }
}
feature {
  name: "genres" type: INT
  value_count { min: 0 max: 4 }
  annotation { tag: ["list", "categorical"] }
}
feature { name: 'price' type: FLOAT float_domain { min: -1.5 max: 2e3 } annotation: { tag: "continuous" } }
feature { name: "click" type: INT annotation { tag: "target" tag: "binary_classification" } }
"""


class TestEditingInPlace:
    def test_what_is_written_into_a_data_sets_schema_counts(self):
        from merlin.dataloader.torch import Loader
        from merlin.io import Dataset
        from merlin.schema import Tags

        data = Dataset(pd.DataFrame({"x": [1.0, 2.0], "y": [0, 1]}))
        assert data.schema is data.schema
        data.schema["y"] = data.schema["y"].with_tags(Tags.TARGET)
        features, label = next(Loader(data, batch_size=2))
        assert list(features) == ["x"] and label.tolist() == [0, 1]
        data.schema.column_schemas["x"] = data.schema["x"].with_tags([Tags.CONTINUOUS, Tags.USER])
        assert data.native.schema["x"].role is Role.CONTINUOUS
        data.schema["x"].properties["unit"] = "km"
        assert data.native.schema["x"].properties["unit"] == "km"
        assert data.schema.select_by_tag(Tags.TARGET).column_names == ["y"]

    def test_shapes_and_columns_that_are_taken_away(self):
        from merlin.io import Dataset

        data = Dataset(pd.DataFrame({"x": [[1, 2], [3, 4]], "y": [0, 1]}))
        data.schema["x"] = data.schema["x"].with_shape((None, 2))
        assert data.native.schema["x"].properties["value_count"] == {"min": 2, "max": 2}
        del data.schema.column_schemas["y"]
        assert data.native.schema.names == ["x"]
        assert data.compute().columns.tolist() == data.to_ddf().columns.tolist() == ["x", "y"]

    def test_an_edit_of_one_data_set_is_not_another_ones(self):
        from merlin.io import Dataset
        from merlin.schema import Tags

        first = Dataset(pd.DataFrame({"y": [0, 1]}))
        second = Dataset(first)
        second.schema["y"] = second.schema["y"].with_tags(Tags.TARGET)
        assert not first.schema.select_by_tag(Tags.TARGET).column_names

    def test_tags_that_stand_for_two(self):
        from merlin.schema import ColumnSchema, Schema, Tags

        found = Schema([ColumnSchema("item", tags=[Tags.ITEM, Tags.ID]), ColumnSchema("price", tags=[Tags.ITEM])])
        assert found.select_by_tag(Tags.ITEM_ID).column_names == ["item"]
        assert found.remove_by_tag(Tags.ITEM_ID).column_names == ["price"]
        assert found.remove_by_tag([Tags.ITEM, Tags.ID], all).column_names == ["price"]
        assert found.excluding_by_tag([Tags.ITEM, "other"], pred_fn=all).column_names == found.column_names

    def test_dtypes_without_a_shape_are_those_of_plain_columns(self):
        import merlin.dtypes as md
        from merlin.schema import ColumnSchema

        column, lists = ColumnSchema("a", dtype=np.int32, dims=(None,)), ColumnSchema("b", dtype=np.int32, is_list=True)
        assert column.dtype == md.int32 and column.dtype != md.int64 and lists.dtype == md.int32
        assert lists.dtype != column.dtype
        assert md.struct.name == "struct" and column.shape.is_variable and not md.Shape((2, 3)).is_variable


class TestSchemasBesideData:
    @pytest.mark.parametrize("dims", [(None,), (None, (1, 4)), (None, 3, 2), (5, 2), (None, None)])
    def test_shapes_come_back_from_both_forms(self, dims):
        from merlin.schema import ColumnSchema, Schema
        from merlin.schema.io.tensorflow_metadata import TensorflowMetadata

        schema = Schema([ColumnSchema("x", dtype=np.int32, dims=dims, properties={"mine": 1})])
        described = TensorflowMetadata.from_merlin_schema(schema)
        for again in (
            TensorflowMetadata.from_json(described.to_json()),
            TensorflowMetadata.from_proto_text(described.to_proto_text()),
        ):
            found = again.to_merlin_schema()
            assert found == schema and found["x"].shape == schema["x"].shape and "_dims" not in found["x"].properties

    @pytest.mark.parametrize("dims", [[1e30], "abc", [[1, 2, 3]], [-1], 7, [float("inf")]])
    def test_shapes_that_are_none(self, dims):
        from merlin.schema.io.tensorflow_metadata import TensorflowMetadata

        text = json.dumps({"feature": [{"name": "x", "annotation": {"extraMetadata": [{"_dims": dims}]}}]})
        with pytest.raises(ArtefactError):
            TensorflowMetadata.from_json(text).to_merlin_schema()

    def test_json_keeps_everything(self, tmp_path):
        import json

        from merlin.schema import ColumnSchema, Schema, Tags
        from merlin.schema.io.tensorflow_metadata import TensorflowMetadata

        domain = {"min": 0, "max": 9, "name": "user"}
        user = ColumnSchema("user", dtype=np.int32, tags=[Tags.CATEGORICAL], properties={"domain": domain, "unit": 3})
        seen = ColumnSchema("seen", dtype=np.float32, dims=(None, (1, 4)))
        before = Schema([user, seen, ColumnSchema("name", dtype=str)])
        TensorflowMetadata.from_merlin_schema(before).to_json_file(tmp_path)
        written = json.loads((tmp_path / "schema.json").read_text())["feature"][0]
        assert written["intDomain"] == {"min": "0", "max": "9", "name": "user", "isCategorical": True}
        after = TensorflowMetadata.from_json_file(tmp_path).to_merlin_schema()
        assert after["user"].properties == user.properties and after["user"].dtype.name == "int32"
        assert after["seen"].value_count.max == 4 and after["seen"].dtype.name == "float32"
        assert after["name"].dtype.name == "str" and not after["name"].is_list

    def test_text_keeps_properties_and_dtypes(self, tmp_path):
        from merlin.schema import ColumnSchema, Schema, Tags
        from merlin.schema.io.tensorflow_metadata import TensorflowMetadata

        properties = {
            "domain": {"min": 0, "max": 9, "name": "user"},
            "unit": "€",
            "sizes": {"low": 0.5, "all": [1, None]},
        }
        user = ColumnSchema("user", dtype=np.int32, tags=[Tags.CATEGORICAL], properties=properties)
        before = Schema([user, ColumnSchema("x", dtype=np.float64), ColumnSchema("l", dtype=np.int8, is_list=True)])
        TensorflowMetadata.from_merlin_schema(before).to_proto_text_file(tmp_path)
        assert "google.protobuf.Struct" in (tmp_path / "schema.pbtxt").read_text()
        truth = TensorflowMetadata.from_merlin_schema(Schema([ColumnSchema("y", dtype="bool")])).to_proto_text()
        assert "BYTES" not in truth  # which would be read as text
        after = TensorflowMetadata.from_proto_text_file(tmp_path).to_merlin_schema()
        assert after["user"].properties == properties and [c.dtype.name for c in after] == ["int32", "float64", "int8"]
        assert after["l"].is_ragged and not after["x"].is_list
        damaged = (tmp_path / "schema.pbtxt").read_text().replace("EUR", "E").replace(r"\004unit", r"\377unit")
        with pytest.raises(ArtefactError, match="damaged"):
            TensorflowMetadata.from_proto_text(damaged)

    def test_text(self, tmp_path):
        from merlin.schema import Tags
        from merlin.schema.io.tensorflow_metadata import TensorflowMetadata

        (tmp_path / "schema.pbtxt").write_text(TEXT)
        s = TensorflowMetadata.from_proto_text_file(tmp_path).to_merlin_schema()
        assert s.column_names == ["item_id", "genres", "price", "click"]
        assert s["item_id"].int_domain.max == 51996 and Tags.ITEM in s["item_id"].tags
        assert s["genres"].is_ragged and s["genres"].value_count.max == 4
        assert s["price"].float_domain.max == 2000.0 and s["price"].float_domain.min == -1.5
        assert s.select_by_tag(Tags.TARGET).column_names == ["click"]
        TensorflowMetadata.from_merlin_schema(s).to_proto_text_file(tmp_path / "again")
        assert TensorflowMetadata.from_proto_text_file(tmp_path / "again").to_merlin_schema() == s

    def test_json(self):
        from merlin.schema.io.tensorflow_metadata import TensorflowMetadata

        text = """{"feature": [{"name": "user", "type": "INT", "intDomain": {"min": "0", "max": "9"},
          "valueCount": {"min": "2", "max": "2"}, "annotation": {"tag": ["categorical"],
          "extraMetadata": [{"is_list": true, "is_ragged": false, "dtype_item_size": 32.0, "myUnit": "EUR"}]}}]}"""
        column = TensorflowMetadata.from_json(text).to_merlin_schema()["user"]
        assert column.dtype.name == "int32" and column.int_domain.max == 9
        assert column.is_list and not column.is_ragged and column.properties["myUnit"] == "EUR"

    def test_data_that_nvtabular_wrote(self, tmp_path):
        import nvtabular as nvt
        from merlin.schema import Tags

        frame = pd.DataFrame({"item_id": [5, 6], "genres": [[1], [2, 3]], "price": [0.5, 1.0], "click": [0, 1], "x": 1})
        frame.to_parquet(tmp_path / "part_0.parquet")
        (tmp_path / "schema.pbtxt").write_text(TEXT)
        (tmp_path / "_file_list.txt").write_text("1\\npart_0.parquet")
        for source in (str(tmp_path), [str(tmp_path / "part_0.parquet")], str(tmp_path / "*.parquet")):
            data = nvt.Dataset(source)
            assert data.schema.select_by_tag(Tags.TARGET).column_names == ["click"]
            assert data.native.schema["item_id"].cardinality == 51997
        assert data.schema["x"].dtype == np.int64

    def test_damage(self, tmp_path):
        from merlin.schema.io.tensorflow_metadata import TensorflowMetadata

        with pytest.raises(ArtefactError, match=r"schema\.pbtxt does not exist"):
            TensorflowMetadata.from_proto_text_file(tmp_path)
        (tmp_path / "schema.pbtxt").write_text(TEXT[:200])
        with pytest.raises(ArtefactError, match="ends in the middle of a message"):
            TensorflowMetadata.from_proto_text_file(tmp_path)
        with pytest.raises(ArtefactError, match="line 2 is not the text form"):
            TensorflowMetadata.from_proto_text('feature {\n "open }')
        with pytest.raises(ArtefactError, match="'}' stands where a field"):
            TensorflowMetadata.from_proto_text("}")
        with pytest.raises(ArtefactError, match="without a name"):
            TensorflowMetadata.from_proto_text("feature { type: INT }")
        with pytest.raises(ArtefactError, match="not valid JSON"):
            TensorflowMetadata.from_json("[")


def test_tags_that_clash_are_named_as_they_were_written():
    from merlin.schema import TagSet

    for clash in (lambda: TagSet(["continuous", "categorical"]), lambda: TagSet(["continuous"]) + "categorical"):
        with pytest.raises(ValueError, match="incompatible: categorical, continuous"):
            clash()
