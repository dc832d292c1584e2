"""NVTabular's Keras loader and validator on Penstock's own data sets, paths and feature columns."""

import inspect
import os

import numpy as np
import polars as pl
import pytest

from penstock.compat import settings as ages
from penstock.core.errors import ColumnNotFoundError, DataError, MissingExtraError, ParameterError, SchemaError
from penstock.data import Dataset
from penstock.loader import settings

NAMES = {"label_names": ["click"], "cat_names": ["user", "item"], "cont_names": ["price"]}


@pytest.fixture(scope="module", autouse=True)
def tensorflow_loaded():
    """TensorFlow is loaded by the process that runs this file, not by every process that collects it."""
    global keras, tf, fc, layers, KerasSequenceLoader, KerasSequenceValidater, _buffered_rows
    global FeatureColumn, feature_columns
    keras = pytest.importorskip("penstock.loader.keras", exc_type=MissingExtraError).keras
    tf = pytest.importorskip("tensorflow")
    from penstock.compat.nvtabular import _keras as layers
    from penstock.compat.nvtabular.loader.tensorflow import KerasSequenceLoader, KerasSequenceValidater, _buffered_rows
    from penstock.nn.keras.columns import FeatureColumn, feature_columns

    fc = tf.feature_column


@pytest.fixture(autouse=True)
def older():
    with ages.using(nvtabular="1.0"):
        yield


@pytest.fixture(scope="module")
def frame():
    rng, rows = np.random.default_rng(0), 5003
    lists = np.split(rng.integers(0, 20, 2 * rows), np.sort(rng.integers(0, 2 * rows, rows - 1)))
    return pl.DataFrame(
        {
            "row": np.arange(rows, dtype=np.int32),
            "user": rng.integers(0, 100, rows),
            "item": rng.integers(0, 40_000, rows).astype(np.int32),
            "price": rng.random(rows).astype(np.float32),
            "genres": pl.Series(lists, dtype=pl.List(pl.Int32)),
            "click": rng.integers(0, 2, rows).astype(np.int8),
        }
    )


@pytest.fixture(scope="module")
def path(frame, tmp_path_factory):
    file = tmp_path_factory.mktemp("keras") / "clicks.parquet"
    frame.write_parquet(file, row_group_size=700)
    return str(file)


@pytest.fixture
def dataset(path):
    data = Dataset(path, part_size=1)
    schema = data.schema.with_roles(
        categorical=["row", "user", "item", "genres"], continuous=["price"], label=["click"]
    )
    return data.with_schema(schema.with_column(schema["user"].with_(cardinality=100)))


def identity(name, size, **options):
    return fc.categorical_column_with_identity(name, size, **options)


def columns(users=100):
    return [fc.embedding_column(identity("user", users), 2), fc.numeric_column("price")]


def a_model(metrics=("AUC",)):
    inputs = {"user": keras.Input((1,), name="user", dtype="int64"), "price": keras.Input((1,), name="price")}
    vector = keras.layers.Flatten()(keras.layers.Embedding(100, 2)(inputs["user"]))
    output = keras.layers.Dense(1, activation="sigmoid")(keras.layers.Concatenate()([vector, inputs["price"]]))
    model = keras.Model(inputs, output)
    model.compile("sgd", "binary_crossentropy", metrics=list(metrics), jit_compile=False)
    return model


def test_arguments_are_nvtabular_s():
    wanted = (
        "paths_or_dataset batch_size label_names feature_columns cat_names cont_names engine shuffle seed_fn "
        "buffer_size device parts_per_chunk reader_kwargs global_size global_rank drop_last sparse_names sparse_max "
        "sparse_as_dense schema"
    )
    parameters = inspect.signature(KerasSequenceLoader).parameters
    assert list(parameters) == wanted.split()
    assert (parameters["shuffle"].default, parameters["buffer_size"].default) == (True, 0.1)


@pytest.mark.parametrize("source", ["path", "glob", "list", "dataset", "csv"])
def test_sources(source, path, frame, tmp_path):
    if source == "csv":
        target = tmp_path / "clicks.csv"
        frame.drop("genres").write_csv(target)
    given = {"path": path, "glob": path.replace("clicks", "*"), "list": [path], "dataset": Dataset(path)}
    data = str(tmp_path / "clicks.csv") if source == "csv" else given[source]
    engine = "csv" if source == "csv" else None
    loader = KerasSequenceLoader(data, 1000, shuffle=False, engine=engine, **NAMES)
    users = np.concatenate([features["user"][:, 0] for features, _ in loader])
    np.testing.assert_array_equal(users, frame["user"])
    assert list(loader.peek()[0]) == ["user", "item", "price"]


def test_roles_of_the_schema_do_when_no_column_is_named(dataset):
    features, labels = KerasSequenceLoader(dataset, 100, sparse_names=["genres"]).peek()
    assert set(features) == {"row", "user", "item", "genres", "price"}
    assert labels.shape == (100, 1)


def test_ranks_and_last_batch(path):
    parts = [KerasSequenceLoader(path, 500, global_size=2, global_rank=r, drop_last=True, **NAMES) for r in range(2)]
    assert [len(part) for part in parts] == [5, 5]
    assert all(batch[1].shape == (500, 1) for part in parts for batch in part)


def test_seeds_are_asked_for_once_an_epoch(path):
    seeds = iter([5, 6, 5])
    loader = KerasSequenceLoader(path, 1000, seed_fn=lambda: next(seeds), buffer_size=1000, **NAMES)
    epochs = [np.concatenate([f["item"][:, 0] for f, _ in loader]) for _ in range(2)]
    assert next(seeds) == 5
    assert (epochs[0] != epochs[1]).any()
    fixed = KerasSequenceLoader(path, 1000, seed_fn=lambda: 5, buffer_size=1000, **NAMES)
    np.testing.assert_array_equal(np.concatenate([f["item"][:, 0] for f, _ in fixed]), epochs[0])


def test_buffer_size_has_three_meanings(path):
    assert KerasSequenceLoader(path, 100, buffer_size=3, **NAMES).chunk_rows == 300
    assert KerasSequenceLoader(path, 100, buffer_size=250, **NAMES).chunk_rows == 250
    # A fraction of the memory is shared by the chunks that live at one time, and has a sensible upper end.
    wide = 10_000_000
    assert _buffered_rows(0.01, 100, wide) == int(0.01 * 2**34 / (3 * wide))  # whatever the machine
    assert _buffered_rows(0.9, 100, 16) <= 4 * settings.default_chunk_rows(16)
    data = Dataset(path, part_size=1)
    assert KerasSequenceLoader(data, 100, parts_per_chunk=2, **NAMES).chunk_rows >= 2 * 5003 // data.num_partitions


def test_lists(path, frame):
    import tensorflow as tf

    names = {"label_names": ["click"], "cat_names": ["genres"]}
    wanted = frame["genres"][:100].to_list()
    values, lengths = KerasSequenceLoader(path, 100, shuffle=False, **names).peek()[0]["genres"]
    assert (values.shape[1], lengths[:, 0].numpy().tolist()) == (1, list(map(len, wanted)))
    ragged = KerasSequenceLoader(path, 100, shuffle=False, sparse_names=["genres"], **names).peek()[0]["genres"]
    assert ragged.to_list() == wanted
    sparse = {"sparse_names": ["genres"], "sparse_max": {"genres": 10}, "sparse_as_dense": True}
    dense = KerasSequenceLoader(path, 100, shuffle=False, **sparse, **names).peek()[0]["genres"]
    assert dense.numpy().tolist() == [(row + [0] * 10)[:10] for row in wanted]
    sparse = {"sparse_names": ["genres"], "sparse_max": {"genres": 12}}
    made = KerasSequenceLoader(path, 100, shuffle=False, **sparse, **names).peek()[0]["genres"]
    assert isinstance(made, tf.SparseTensor) and made.shape == (100, 12)
    assert tf.sparse.to_dense(made).numpy().tolist() == [(row + [0] * 12)[:12] for row in wanted]
    with pytest.raises(DataError, match="sparse_max allows 1 items: column 'genres'"):
        KerasSequenceLoader(path, 100, **{**sparse, "sparse_max": {"genres": 1}}, **names).peek()
    with pytest.raises(ParameterError, match="name 'user', which is not a list column"):
        KerasSequenceLoader(path, 100, sparse_names=["user"], **names)


def test_another_batch_size(path):
    loader = KerasSequenceLoader(path, 100, ["click"], cat_names=["user"], cont_names=["price"])
    loader.batch_size = 1000
    assert len(loader) == 6 and len(loader.peek()[1]) == 1000


def test_a_layer_built_on_pairs_tells_how_lists_come(path, monkeypatch, capsys):
    names = {"label_names": ["click"], "cat_names": ["genres"]}
    del os.environ[ages.NVTABULAR]  # the fixture above leaves the environment as it was before
    monkeypatch.setattr(ages, "_pairs", [])
    monkeypatch.setattr(ages, "_found", [("latest", "nothing says otherwise")])
    loader = KerasSequenceLoader(path, 100, shuffle=False, **names)
    assert sorted(loader.peek()[0]) == ["genres__offsets", "genres__values"]
    pair = tuple(tf.keras.Input((1,), name=f"genres__{part}", dtype=tf.int64) for part in ("values", "nnzs"))
    output = layers.DenseFeatures([FeatureColumn("genres", "embedding", 20, 4)])({"genres": pair})
    values, lengths = loader.peek()[0]["genres"]
    assert len(lengths) == 100 and len(values) == int(tf.reduce_sum(lengths))
    assert "as (values, row lengths): DenseFeatures takes them so" in capsys.readouterr().err
    model = tf.keras.Model({"genres": pair}, tf.keras.layers.Dense(1)(output))
    model.compile("sgd", "mse")
    assert model.evaluate(loader, verbose=0) > 0


def test_fit_with_the_validator(path, tmp_path):
    model = a_model()
    train = KerasSequenceLoader(path, 512, ["click"], feature_columns=columns())
    valid = KerasSequenceLoader(path, 2000, ["click"], feature_columns=columns(), shuffle=False)
    best = tmp_path / "best.keras"
    callbacks = [
        KerasSequenceValidater(valid),
        keras.callbacks.ModelCheckpoint(str(best), monitor="val_loss", save_best_only=True),
    ]
    history = model.fit(train, epochs=2, callbacks=callbacks, verbose=0).history
    assert set(history) == {"loss", "AUC", "val_loss", "val_AUC"}
    assert {len(values) for values in history.values()} == {2}
    # Metrics of the second epoch hold nothing of the first: they are those of an evaluation now.
    results = model.evaluate(valid, return_dict=True, verbose=0)
    assert history["val_AUC"][1] == pytest.approx(results["AUC"], abs=1e-6)
    assert history["val_loss"][1] == pytest.approx(results["loss"], rel=1e-5)
    saved = keras.models.load_model(best).evaluate(valid, return_dict=True, verbose=0)
    assert saved["loss"] == pytest.approx(min(history["val_loss"]), rel=1e-5)
    assert (train.num_rows_processed, train.epoch) == (2 * 5003, 2)


def test_early_stopping_sees_the_validator(path):
    model = a_model(metrics=())
    train = KerasSequenceLoader(path, 2000, ["click"], feature_columns=columns())
    stop = keras.callbacks.EarlyStopping("val_loss", patience=0, min_delta=1e9)
    history = model.fit(train, epochs=5, callbacks=[KerasSequenceValidater(train), stop], verbose=0).history
    assert len(history["val_loss"]) == 2


def test_an_embedding_smaller_than_the_ids(path, dataset):
    loader = KerasSequenceLoader(path, 512, ["click"], feature_columns=columns(users=60))
    with pytest.raises(SchemaError, match="'user' has 60 buckets, and the largest id in the data is 99: it needs 100"):
        a_model().fit(loader, verbose=0)
    with pytest.raises(SchemaError, match=r"'user' has 60 buckets, .* largest id .* is 99, as its schema says"):
        KerasSequenceLoader(dataset, 512, ["click"], feature_columns=columns(users=60))
    genres = [fc.embedding_column(identity("genres", 5), 2)]
    with pytest.raises(SchemaError, match="'genres' has 5 buckets, and the largest id in the data is 19"):
        list(KerasSequenceLoader(path, 512, ["click"], feature_columns=genres))
    default = [fc.embedding_column(identity("user", 60, default_value=0), 2)]
    assert len(list(KerasSequenceLoader(path, 512, ["click"], feature_columns=default))) == 10


def test_bad_input(path):
    def make(**options):
        return KerasSequenceLoader(path, 100, **{"label_names": ["click"], **options})

    with pytest.raises(ColumnNotFoundError, match="'prize' is not in the data; did you mean 'price'"):
        make(feature_columns=[fc.numeric_column("prize")])
    with pytest.raises(ParameterError, match="'click' is a label and a feature"):
        make(feature_columns=[fc.numeric_column("click")])
    with pytest.raises(ParameterError, match="feature_columns replaces cat_names and cont_names"):
        make(feature_columns=columns(), cat_names=["item"])
    with pytest.raises(ParameterError, match="there are no features"):
        make()
    with pytest.raises(ParameterError, match="engine must be one of"):
        make(cat_names=["user"], engine="orc")
    with pytest.raises(ParameterError, match="device must be"):
        make(cat_names=["user"], device="tpu")
    with pytest.raises(ParameterError, match="reader_kwargs say how to open paths"):
        KerasSequenceLoader(Dataset(path), 100, reader_kwargs={"part_size": 1}, **NAMES)
    empty = Dataset(pl.DataFrame({"user": [], "click": []}, schema={"user": pl.Int32, "click": pl.Int8}))
    with pytest.raises(DataError, match="the validation set is empty"):
        KerasSequenceValidater(KerasSequenceLoader(empty, 100, ["click"], cat_names=["user"]))


def test_feature_columns_as_plain_data():
    made = feature_columns([*columns(), fc.indicator_column(identity("item", 9, default_value=3))])
    assert made == [
        FeatureColumn("item", "indicator", 9, combiner="sum", default=3),
        FeatureColumn("price", "numeric", is_list=False),
        FeatureColumn("user", "embedding", 100, 2),
    ]
    constant = fc.embedding_column(identity("user", 4), 2, initializer=tf.constant_initializer(0.5), combiner="sqrtn")
    (column,) = feature_columns([constant])
    assert (column.initializer["class_name"], column.combiner) == ("Constant", "sqrtn")
    assert feature_columns([column.to_dict()]) == [column]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fc.numeric_column("x", normalizer_fn=abs), "normalizer_fn, which cannot be saved"),
        (lambda: fc.numeric_column("x", shape=(2, 2)), "only one axis"),
        (lambda: fc.indicator_column(fc.categorical_column_with_hash_bucket("x", 9)), "HashedCategoricalColumn"),
        (lambda: fc.embedding_column(identity("x", 9), 2, max_norm=1.0), "max_norm"),
        (lambda: "x", "not a feature column that is known here"),
        (lambda: {"name": "x", "kind": "text"}, "kind must be one of"),
    ],
)
def test_feature_columns_that_are_refused(make, message):
    with pytest.raises(ParameterError, match=message):
        feature_columns([make()])


def test_map_stop_and_what_old_readers_were_told(path):
    loader = KerasSequenceLoader(path, 100, **NAMES, shuffle=False, reader_kwargs={"cpu": True})
    loader.map(lambda x, y: (x["price"] * 0, y))
    features, labels = next(loader)
    assert float(tf.reduce_sum(features)) == 0 and len(labels) == 100
    loader.stop()
    assert len(list(loader)) == len(loader)


def test_lists_of_the_last_release(dataset):
    with ages.using(nvtabular="latest"):
        loader = KerasSequenceLoader(dataset, 50, ["click"], cat_names=["genres"], cont_names=["price"], shuffle=False)
    features, _ = next(iter(loader))
    assert sorted(features) == ["genres__offsets", "genres__values", "price"]
    assert len(features["genres__offsets"]) == 51
    layer = layers.DenseFeatures([fc.embedding_column(identity("genres", 20), 4), fc.numeric_column("price")])
    assert layer(features).shape == (50, 5) and layer.embedding_tables["genres"].shape == (20, 4)
    older = KerasSequenceLoader(dataset, 50, ["click"], cat_names=["genres"], cont_names=["price"], shuffle=False)
    np.testing.assert_allclose(layer(next(iter(older))[0]), layer(features))


@pytest.mark.parametrize(("kind", "shape"), [(None, None), ("field_all", (3, 3)), ("field_each", (4, 3, 3)),
                                             ("field_interaction", (4, 4, 3, 3))])  # fmt: skip
def test_pairs_come_row_by_row(kind, shape):
    rows = np.random.default_rng(0).random((2, 4, 3)).astype(np.float32)
    layer = layers.DotProductInteraction(kind)
    found = layer(rows).numpy()
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    if kind is None:
        expected = [[r[i] @ r[j] for i, j in pairs] for r in rows]
    else:
        kernel = layer.kernel.numpy()
        assert kernel.shape == shape
        made = {
            "field_all": lambda r, i, j: (r[i] @ kernel) @ r[j],
            "field_each": lambda r, i, j: (kernel[i] @ r[i]) @ r[j],
            "field_interaction": lambda r, i, j: (kernel[i, j] @ r[j]) @ r[i],
        }[kind]
        expected = [[made(r, i, j) for i, j in pairs] for r in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert layers.DotProductInteraction(self_interaction=True)(rows).shape == (2, 10)
