import numpy as np
import pytest

from penstock.core.errors import MissingExtraError, ParameterError, SchemaError
from penstock.core.schema import ColumnSchema, Schema

USERS = np.array([[3], [1], [3]])
PRICES = np.array([[0.5], [1.0], [-2.0]], np.float32)
LISTS = [[1, 4, 4], [], [2]]
SCHEMA = Schema(
    [
        ColumnSchema("user", "int64", role="categorical", cardinality=5),
        ColumnSchema("genres", "int64", role="categorical", cardinality=6, is_list=True),
        ColumnSchema("price", "float32", role="continuous"),
        ColumnSchema("click", "int8", role="label"),
    ]
)


@pytest.fixture(scope="module", autouse=True)
def tensorflow_loaded():
    """TensorFlow is loaded by the process that runs this file, not by every process that collects it."""
    global keras, tf, fc, DenseFeatures, DotProductInteraction, FeatureColumn, LinearFeatures
    keras = pytest.importorskip("penstock.loader.keras", exc_type=MissingExtraError).keras
    tf = pytest.importorskip("tensorflow")
    from penstock.nn.keras import DenseFeatures, DotProductInteraction, FeatureColumn, LinearFeatures

    fc = tf.feature_column


def identity(name, size, **options):
    return fc.categorical_column_with_identity(name, size, **options)


def lists_as(kind):
    if kind == "ragged":
        return tf.ragged.constant(LISTS, dtype=tf.int64)
    if kind == "row_lengths":
        flat = np.array([i for row in LISTS for i in row])
        return tf.constant(flat.reshape(-1, 1)), tf.constant([[len(row)] for row in LISTS], tf.int64)
    filler = {"padded": 0, "padded_negative": -1}[kind]
    return tf.constant([(row + [filler] * 4)[:4] for row in LISTS], tf.int64)


def inputs(kind="ragged"):
    return {"user": tf.constant(USERS), "price": tf.constant(PRICES), "genres": lists_as(kind), "more": None}


def combined(table, combiner):
    """The slow way."""
    rows = []
    for items in LISTS:
        total = table[items].sum(0) if items else np.zeros(table.shape[1])
        rows.append(total / {"sum": 1, "mean": max(len(items), 1), "sqrtn": max(len(items), 1) ** 0.5}[combiner])
    return np.array(rows)


def test_columns_are_sorted_by_name_and_concatenated():
    columns = [
        fc.embedding_column(identity("user", 5), 4),
        fc.numeric_column("price"),
        fc.indicator_column(identity("genres", 6)),
    ]
    layer = DenseFeatures(columns)
    out = layer(inputs()).numpy()
    counts = np.array([np.bincount(row, minlength=6) for row in LISTS])
    table = layer.tables["user"].numpy()
    assert table.shape == (5, 4)
    np.testing.assert_allclose(out, np.concatenate([counts, PRICES, table[USERS[:, 0]]], axis=1), rtol=1e-6)
    assert layer.compute_output_shape() == (None, 11)


@pytest.mark.parametrize("kind", ["ragged", "row_lengths", "padded", "padded_negative"])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_lists_are_combined_however_they_come(kind, combiner):
    by_schema = DenseFeatures(SCHEMA.select(["genres"]), dimension=3, combiner=combiner)
    by_column = DenseFeatures([fc.embedding_column(identity("genres", 6), 3, combiner=combiner)])
    for layer in (by_schema, by_column):
        out = layer(inputs(kind))
        np.testing.assert_allclose(out, combined(layer.tables["genres"].numpy(), combiner), rtol=1e-5)


@pytest.mark.parametrize("kind", ["ragged", "row_lengths", "padded"])
def test_gradients_touch_the_rows_that_were_used(kind):
    layer = DenseFeatures(SCHEMA.select(["genres"]), dimension=2, combiner="sum")
    layer.build()
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(layer(inputs(kind)))
    gradient = tape.gradient(total, layer.tables["genres"].value)
    assert isinstance(gradient, tf.IndexedSlices)
    dense = tf.convert_to_tensor(gradient).numpy()
    np.testing.assert_array_equal(dense, np.repeat([[0], [1], [1], [0], [2], [0]], 2, axis=1))


def test_flat_inputs_and_wide_numbers():
    layer = DenseFeatures([fc.embedding_column(identity("user", 5), 2), fc.numeric_column("xy", shape=(2,))])
    out = layer({"user": tf.constant(USERS[:, 0]), "xy": tf.constant([[1.0, 2], [3, 4], [5, 6]])})
    np.testing.assert_array_equal(out[:, 2:], [[1, 2], [3, 4], [5, 6]])


def test_stack():
    columns = [fc.embedding_column(identity("user", 5), 4), fc.embedding_column(identity("genres", 6), 4)]
    layer = DenseFeatures(columns, aggregation="stack")
    out = layer(inputs()).numpy()
    assert out.shape == (3, 2, 4) == (3, *layer.compute_output_shape()[1:])
    np.testing.assert_allclose(out[:, 1], layer.tables["user"].numpy()[USERS[:, 0]])


def test_linear():
    columns = [identity("user", 5), fc.numeric_column("price"), fc.embedding_column(identity("genres", 6), 9)]
    layer = LinearFeatures(columns, units=2)
    assert not layer(inputs()).numpy().any()  # starts from nothing
    rng = np.random.default_rng(0)
    for weight in layer.weights:
        weight.assign(rng.random(weight.shape))
    tables = {name: table.numpy() for name, table in layer.tables.items()}
    wanted = tables["user"][USERS[:, 0]] + PRICES * tables["price"] + combined(tables["genres"], "sum")
    np.testing.assert_allclose(layer(inputs()), wanted + layer.bias.numpy(), rtol=1e-5)
    assert len(LinearFeatures(SCHEMA, use_bias=False).columns) == 3


@pytest.mark.parametrize("self_interaction", [False, True])
@pytest.mark.parametrize("kind", [None, "field_all", "field_each", "field_interaction"])
def test_interactions(kind, self_interaction):
    x = np.random.default_rng(1).random((2, 3, 4)).astype(np.float32)
    layer = DotProductInteraction(kind, self_interaction)
    out = layer(x).numpy()
    pairs = [(i, j) for i in range(3) for j in range(i + self_interaction)]
    kernel = None if kind is None else layer.kernel.numpy()
    for place, (i, j) in enumerate(pairs):
        middle = {
            None: lambda p, j: np.eye(4),
            "field_all": lambda p, j: kernel[0],
            "field_each": lambda p, j: kernel[j],
            "field_interaction": lambda p, j: kernel[p],
        }[kind](place, j)
        np.testing.assert_allclose(
            out[:, place], np.einsum("bd,de,be->b", x[:, j], middle, x[:, i]), rtol=1e-4, atol=1e-6
        )
    assert out.shape[1] == len(pairs) == layer.compute_output_shape((None, 3, 4))[1]


def test_default_ids_and_initializers():
    columns = [
        fc.embedding_column(
            identity("user", 3, default_value=0), 2, initializer=tf.constant_initializer(0.25), trainable=False
        )
    ]
    layer = DenseFeatures(columns)
    np.testing.assert_array_equal(layer(inputs()), np.full((3, 2), 0.25))
    assert not layer.trainable_weights


def test_layers_come_back_from_their_config():
    columns = [fc.embedding_column(identity("user", 5), 4, initializer=tf.constant_initializer(0.5)),
               fc.numeric_column("price")]  # fmt: skip
    for layer in (DenseFeatures(columns, padding=2), LinearFeatures(SCHEMA, 3), DotProductInteraction("field_all")):
        again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
        assert again.get_config() == layer.get_config()


def test_ids_outside_their_table_are_named():
    layer = DenseFeatures(SCHEMA, dimension=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)columns.*user.*largest ids.*7.*rows of the tables"):
        layer({**inputs(), "user": tf.constant([[7], [0], [1]])})
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)columns.*genres.*largest ids.*9"):
        tf.function(layer)(
            {**inputs(), "more": tf.constant(0), "genres": tf.ragged.constant([[1], [9], []], dtype=tf.int64)}
        )


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: DenseFeatures([identity("user", 5)]), ParameterError, "'user' holds plain ids; wrap it"),
        (lambda: DenseFeatures(SCHEMA, aggregation="sum"), ParameterError, "aggregation must be one of"),
        (lambda: DenseFeatures(SCHEMA, "stack", dimension=4), ParameterError, "columns of one width; 'genres' has 4"),
        (lambda: DenseFeatures(SCHEMA, dimension={"user": 2}), ParameterError, "dimension of 'genres' must be"),
        (lambda: DenseFeatures(SCHEMA, combiner="max"), ParameterError, "combiner must be one of mean, sum, sqrtn"),
        (lambda: DenseFeatures(SCHEMA.select(["click"])), SchemaError, "no column of the schema is categorical"),
        (lambda: DenseFeatures("user"), ParameterError, "must be a Schema or a list"),
        (lambda: DenseFeatures([FeatureColumn("a", "numeric")] * 2), ParameterError, "'a' appears twice"),
        (
            lambda: LinearFeatures(Schema([ColumnSchema("user", "int64", role="categorical")])),
            SchemaError,
            "cardinality of 'user' is not known",
        ),
        (lambda: LinearFeatures(SCHEMA, 0), ParameterError, "units must be an int ≥ 1"),
        (lambda: DotProductInteraction("all"), ParameterError, "interaction_type must be one of"),
        (lambda: DenseFeatures(SCHEMA)({"user": tf.constant(USERS)}), SchemaError, "'genres' is not in"),
        (
            lambda: DenseFeatures([fc.numeric_column("genres")])(inputs()),
            ParameterError,
            "'genres' is numeric and got lists",
        ),
    ],
)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()
