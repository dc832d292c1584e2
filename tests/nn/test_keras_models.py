import numpy as np
import pytest

from penstock.core.errors import MissingExtraError, SchemaError
from penstock.core.schema import ColumnSchema, Schema
from penstock.data import Dataset
from penstock.loader import Pad

SMALL = {
    "wide_and_deep": {"dimension": 4, "hidden": [8]},
    "dlrm": {"dimension": 4, "bottom": [8], "top": [8]},
}
LISTS = {"ragged": "ragged", "row_lengths": "row_lengths", "padded": Pad(4)}


@pytest.fixture(scope="module", autouse=True)
def tensorflow_loaded():
    """TensorFlow is loaded by the process that runs this file, not by every process that collects it."""
    global keras, tf, Loader, models, dlrm, inputs_of, wide_and_deep
    keras = pytest.importorskip("penstock.loader.keras", exc_type=MissingExtraError).keras
    tf = pytest.importorskip("tensorflow")
    from penstock.loader.keras import Loader
    from penstock.nn import keras as models
    from penstock.nn.keras import dlrm, inputs_of, wide_and_deep


@pytest.fixture(scope="module")
def data():
    """Clicks that depend on the user, the price and the genres."""
    rng = np.random.default_rng(0)
    rows = 2_000
    user, price = rng.integers(0, 30, rows), rng.random(rows).astype(np.float32)
    lengths = rng.integers(0, 4, rows)
    genres = [rng.integers(1, 8, n).tolist() for n in lengths]
    score = (user % 3 - 1) * 2 + 2 * price - 1 + np.array([sum(g > 4 for g in row) for row in genres])
    frame = {
        "user": user.astype(np.int32),
        "price": price,
        "genres": genres,
        "click": (rng.random(rows) < 1 / (1 + np.exp(-score))).astype(np.int8),
    }
    dataset = Dataset(frame).with_roles(categorical=["user", "genres"], continuous=["price"], label=["click"])
    schema = dataset.schema
    for name, size in (("user", 30), ("genres", 8)):
        schema = schema.with_column(schema[name].with_(cardinality=size))
    return dataset.with_schema(schema)


@pytest.mark.parametrize(
    ("build", "lists"),
    [
        ("wide_and_deep", "ragged"),
        ("dlrm", "row_lengths"),
        pytest.param("wide_and_deep", "padded", marks=pytest.mark.slow),
    ],
)
def test_learns_saves_and_serves(build, lists, data, tmp_path):
    keras.utils.set_random_seed(1)
    model = getattr(models, build)(data.schema, lists=lists, **SMALL[build])
    model.compile(keras.optimizers.Adam(0.03), "binary_crossentropy", metrics=["AUC"])
    loader = Loader(data, 256, shuffle=True, lists=LISTS[lists])
    valid = Loader(data, 1024, lists=LISTS[lists])
    history = model.fit(loader, epochs=4, validation_data=valid, verbose=0).history
    assert len(history["val_AUC"]) == 4
    assert history["val_AUC"][-1] > 0.75

    predicted = model.predict(valid, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(valid, verbose=0), predicted)

    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    # Keras exports ragged inputs as dense ones, padded with 0.
    as_served = Pad() if lists == "ragged" else LISTS[lists]
    features = next(iter(Loader(data, 1024, lists=as_served)))[0]
    np.testing.assert_allclose(served.serve(features), predicted[:1024], rtol=1e-5, atol=1e-6)


def test_an_unloaded_table_is_found_in_fit(data):
    """A model made for other data: the error names the column and its largest id."""
    schema = data.schema.with_column(data.schema["user"].with_(cardinality=10))
    model = dlrm(schema, **SMALL["dlrm"])
    model.compile("sgd", "binary_crossentropy")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)user.*largest ids.*29"):
        model.fit(Loader(data, 3000), verbose=0)


def test_shapes_without_numbers_and_without_lists():
    user = ColumnSchema("user", "int64", role="categorical", cardinality=5)
    price = ColumnSchema("price", "float32", role="continuous")
    ids = {"user": tf.constant([[1], [2]], tf.int64)}
    assert dlrm(Schema([user]))(ids).shape == (2, 1)
    model = wide_and_deep(Schema([price]), hidden=[2], dropout=0.5, activation=None)
    assert model({"price": tf.constant([[1.0], [2.0]])}).shape == (2, 1)
    assert model.get_layer("output").activation is keras.activations.linear
    with pytest.raises(SchemaError, match="DLRM needs at least one categorical column"):
        dlrm(Schema([price]))
    assert inputs_of(Schema([user, price]))["user"].dtype == "int64"


def test_the_layers_of_the_notebook(data):
    """The network of NVTabular's Criteo notebook, as it is written there."""
    inputs = {"user": keras.Input((1,), name="user", dtype="int32"), "price": keras.Input((1,), name="price")}
    from penstock.nn.keras import DenseFeatures as layer

    identity = tf.feature_column.categorical_column_with_identity("user", 30)
    x = layer([tf.feature_column.embedding_column(identity, 4), tf.feature_column.numeric_column("price")])(inputs)
    x = keras.layers.Dense(8, activation="relu")(x)
    model = keras.Model(inputs=inputs, outputs=keras.layers.Dense(1, activation="sigmoid", name="output")(x))
    model.compile("sgd", "binary_crossentropy")
    loader = Loader(data, 512, categorical=["user"], continuous=["price"], labels=["click"])
    losses = model.fit(loader, epochs=2, verbose=0).history["loss"]
    assert losses[1] < losses[0]
