"""NVTabular beside TensorFlow: feature columns as workflows, TFRecords as parquet."""

from __future__ import annotations

import pandas as pd
import pytest

from penstock.compat import settings

pytestmark = pytest.mark.usefixtures("old_names")


@pytest.fixture(autouse=True)
def newest():
    with settings.using(nvtabular="latest"):
        yield


class TestFeatureColumns:
    def test_every_kind(self):
        import nvtabular as nvt
        import tensorflow as tf
        from nvtabular.framework_utils.tensorflow import make_feature_column_workflow

        columns = tf.feature_column
        age = columns.numeric_column("age")
        buckets = columns.bucketized_column(age, [18, 35])
        wanted = [
            age,
            buckets,
            columns.embedding_column(columns.categorical_column_with_vocabulary_list("city", ["Rome", "Oslo"]), 4),
            columns.indicator_column(columns.categorical_column_with_hash_bucket("site", 10)),
            columns.embedding_column(columns.crossed_column([buckets, "city"], 20), 4),
            columns.embedding_column(columns.categorical_column_with_identity("id", 9), 2),
            columns.indicator_column(columns.bucketized_column(columns.numeric_column("z"), [0.0])),
        ]
        frame = pd.DataFrame(
            {"age": [10, 20, 40], "city": ["Oslo", "Rome", "Bari"], "site": list("abc"), "id": [1, 2, 3],
             "z": [-1.0, 1.0, 2.0], "y": [0, 1, 0]}
        )  # fmt: skip
        workflow, given = make_feature_column_workflow(wanted, "y")
        done = workflow.fit_transform(nvt.Dataset(frame)).compute()
        assert done["age"].tolist() == [10, 20, 40] and done["age_bucketized"].tolist() == [0, 1, 2]
        assert done["city"].tolist() == [4, 3, 2] and done["z"].tolist() == [0, 1, 1]
        assert done["site"].between(0, 9).all() and done["age_bucketized_X_city"].between(0, 19).all()
        names = {getattr(column, "categorical_column", column).key for column in given}
        assert names == {*done.columns} - {"y"}

    def test_names_before_a_fit(self):
        import tensorflow as tf
        from nvtabular.framework_utils.tensorflow import make_feature_column_workflow

        columns = tf.feature_column
        listed = [columns.categorical_column_with_vocabulary_list(name, ["x"]) for name in ("a", "b")]
        workflow, _ = make_feature_column_workflow([columns.embedding_column(c, 4) for c in listed], "y")
        assert workflow.output_node.selector.names == ["a", "b", "y"]

    def test_other_kinds_are_refused(self):
        import tensorflow as tf
        from nvtabular.framework_utils.tensorflow import make_feature_column_workflow

        bare = tf.feature_column.categorical_column_with_identity("id", 9)
        with pytest.raises(ValueError, match="IdentityCategoricalColumn"):
            make_feature_column_workflow([bare], "y")


class TestRecords:
    @pytest.fixture
    def records(self, tmp_path):
        import tensorflow as tf

        def example(number: int) -> bytes:
            features = {
                "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
                "pair": tf.train.Feature(float_list=tf.train.FloatList(value=[number, 0.5])),
                "seen": tf.train.Feature(int64_list=tf.train.Int64List(value=range(number))),
            }
            return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

        with tf.io.TFRecordWriter(str(tmp_path / "rows.tfrecords")) as writer:
            for number in range(5):
                writer.write(example(number))
        return str(tmp_path / "rows.tfrecords")

    @pytest.mark.parametrize("chunks", [2, 100])
    def test_as_parquet(self, records, tmp_path, chunks):
        from nvtabular.framework_utils.tensorflow.tfrecords_to_parquet import convert_tfrecords_to_parquet

        convert_tfrecords_to_parquet([records], str(tmp_path), chunks=chunks)
        lists = pd.read_parquet(tmp_path / "rows.parquet")
        assert lists["id"].map(list).tolist() == [[i] for i in range(5)]
        convert_tfrecords_to_parquet([records], str(tmp_path), chunks=chunks, convert_lists=True)
        flat = pd.read_parquet(tmp_path / "rows.parquet")
        assert flat["id"].tolist() == flat["pair_0"].tolist() == [0, 1, 2, 3, 4] and flat["pair_1"].unique() == [0.5]
        assert flat["seen"].map(list).tolist() == [list(range(i)) for i in range(5)]

    def test_no_records(self, tmp_path):
        from nvtabular.framework_utils.tensorflow.tfrecords_to_parquet import convert_tfrecords_to_parquet

        (tmp_path / "none.tfrecords").write_bytes(b"")
        with pytest.raises(ValueError, match="holds no records"):
            convert_tfrecords_to_parquet([str(tmp_path / "none.tfrecords")], str(tmp_path))


def test_linear_features_take_ids_as_they_are():
    import tensorflow as tf
    from nvtabular.framework_utils.tensorflow.layers import LinearFeatures

    ids = tf.feature_column.categorical_column_with_identity("id", 9)
    with pytest.raises(ValueError, match="id_indicator"):
        LinearFeatures([tf.feature_column.indicator_column(ids)])
    layer = LinearFeatures([ids, *(tf.feature_column.numeric_column(name) for name in ("x", "y"))])
    numbers = tf.constant([[1.0], [2.0]])
    assert layer({"id": tf.constant([[1], [2]]), "x": numbers, "y": numbers}).shape == (2, 1)
    assert layer.embedding_tables["numeric"].shape == (2, 1) and layer.embedding_tables["id"].shape == (9, 1)
