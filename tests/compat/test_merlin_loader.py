"""Merlin's loaders in torch, TensorFlow and JAX: one contract of batches, operators on batches."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from penstock.core.errors import DataError, NotFittedError, ParameterError

ROWS = 250
FRAMEWORKS = ("torch", "tensorflow", "jax")


pytestmark = pytest.mark.usefixtures("old_names")


def frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 5, ROWS)
    items = pl.Series(np.split(rng.integers(0, 30, lengths.sum()).astype(np.int32), np.cumsum(lengths)[:-1]))
    return pl.DataFrame(
        {
            "user": np.arange(ROWS, dtype=np.int32), "price": rng.random(ROWS).astype(np.float32), "items": items,
            "pair": pl.Series([[i, i + 1] for i in range(ROWS)], dtype=pl.List(pl.Int32)),
            "click": rng.integers(0, 2, ROWS).astype(np.int32), "stars": rng.random(ROWS).astype(np.float32),
        }
    )  # fmt: skip


def dataset(targets: tuple[str, ...] = ("click",), columns: tuple[str, ...] = ("user", "price", "items", "pair")):
    from merlin.io import Dataset
    from merlin.schema import ColumnSchema, Schema, Tags

    described = {
        "user": ColumnSchema("user", tags=[Tags.CATEGORICAL, Tags.USER, Tags.ID]),
        "price": ColumnSchema("price", tags=[Tags.CONTINUOUS]),
        "items": ColumnSchema("items", dtype=np.int32, tags=[Tags.CATEGORICAL], is_list=True, is_ragged=True),
        "pair": ColumnSchema("pair", dtype=np.int32, properties={"value_count": {"min": 2, "max": 2}}),
    }
    labels = [ColumnSchema(name, tags=[Tags.TARGET]) for name in targets]
    return Dataset(frame(), npartitions=4, schema=Schema([*(described[n] for n in columns), *labels]))


def make(framework: str, data: Any, batch_size: int = 100, **options: Any):
    module = importlib.import_module(f"merlin.dataloader.{framework}")
    return module.Loader(data, batch_size=batch_size, **{"shuffle": False, **options})


@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestEveryFramework:
    def test_batches(self, framework):
        loader = make(framework, dataset())
        batches = list(loader)
        assert len(loader) == len(batches) == 3
        features, label = batches[0]
        assert list(features) == ["user", "price", "items__values", "items__offsets", "pair"]
        assert tuple(features["user"].shape) == tuple(label.shape) == (100,)
        assert tuple(features["pair"].shape) == (100, 2)  # lists of one length are dense
        assert tuple(features["items__offsets"].shape) == (101,)
        expected = frame()["items"][:100].explode().to_numpy()
        np.testing.assert_array_equal(np.asarray(features["items__values"]), expected)
        np.testing.assert_array_equal(np.concatenate([np.asarray(x["user"]) for x, _ in batches]), np.arange(ROWS))
        assert loader.num_rows_processed == ROWS

    def test_labels(self, framework):
        _, none = make(framework, dataset(targets=())).peek()
        assert none is None
        _, several = make(framework, dataset(targets=("click", "stars"))).peek()
        assert set(several) == {"click", "stars"}

    def test_peek_map_epochs_and_context(self, framework):
        with make(framework, dataset(columns=("user", "price")), batch_size=150) as loader:
            first, _ = loader.peek()
            again, _ = loader.peek()
            np.testing.assert_array_equal(np.asarray(first["user"]), np.asarray(again["user"]))
            assert loader.map(lambda x, y: (x, y, np.asarray(y) + 1)) is loader
            assert len(next(loader)) == 3
            assert len(loader.epochs(4)) == 8 and sum(1 for _ in loader.epochs(2)) == 4

    def test_what_can_be_asked_and_changed(self, framework):
        from merlin.schema import Schema, Tags

        loader = make(framework, dataset(columns=("user", "items")))
        assert isinstance(loader.schema, Schema) and loader.schema == loader.input_schema
        assert loader.schema.select_by_tag(Tags.TARGET).column_names == ["click"]
        loader.map(lambda x, y: (x, y, 1))
        loader.batch_size = 50
        assert loader.batch_size == 50 and len(loader) == 5 and len(next(loader)) == 3
        given = {"a": np.array([1, 2]), "l": (np.array([1, 2, 3]), np.array([0, 1, 3]))}
        features, label = loader.convert_batch((given, None))
        assert type(features["a"]) is type(loader.peek()[0]["user"]) and label is None
        assert sorted(features) == ["a", "l__offsets", "l__values"]

    def test_shuffles_by_seed(self, framework):
        orders = []
        for seed in (3, 3, 4):
            loader = make(framework, dataset(columns=("user",)), shuffle=True, seed_fn=lambda seed=seed: seed)
            orders.append(np.concatenate([np.asarray(x["user"]) for x, _ in loader]))
        assert sorted(orders[0]) == list(range(ROWS))
        np.testing.assert_array_equal(orders[0], orders[1])
        assert not np.array_equal(orders[0], orders[2])

    def test_shares_of_ranks(self, framework):
        shares = [make(framework, dataset(columns=("user",)), 10, global_size=3, global_rank=r) for r in range(3)]
        assert len({len(s) for s in shares}) == 1
        seen = {int(row) for s in shares for x, _ in s for row in np.asarray(x["user"])}
        assert seen == set(range(ROWS))

    def test_embeddings_and_padding(self, framework, tmp_path):
        from merlin.dataloader.ops.embeddings import EmbeddingOperator
        from merlin.dataloader.ops.padding import Padding

        table = np.random.default_rng(1).random((ROWS, 6)).astype(np.float32)
        ids = np.random.default_rng(2).permutation(ROWS)
        np.save(tmp_path / "table.npy", table)
        np.save(tmp_path / "ids.npy", ids)
        pl.DataFrame({"id": ids, "vector": table}).write_parquet(tmp_path / "table.parquet")
        path, by_id = str(tmp_path / "table.npy"), table[np.argsort(ids)]
        ops = [
            EmbeddingOperator(table, lookup_key="user", embedding_name="plain"),
            EmbeddingOperator(path, "user", "mapped", id_lookup_table=str(tmp_path / "ids.npy"), mmap=True),
            EmbeddingOperator(str(tmp_path / "table.parquet"), "user", "parquet", id_lookup_table="id"),
            EmbeddingOperator(table, "items", "items_vectors"),
            Padding(padding_size=5, padding_value=0),
        ]
        features, _ = make(framework, dataset(columns=("user", "items")), transforms=ops).peek()
        np.testing.assert_array_equal(np.asarray(features["plain"]), table[:100])
        np.testing.assert_array_equal(np.asarray(features["mapped"]), by_id[:100])
        np.testing.assert_array_equal(np.asarray(features["parquet"]), by_id[:100])
        padded = np.zeros((100, 5), int)
        for i, row in enumerate(frame()["items"][:100].to_list()):
            padded[i, : len(row)] = row
        np.testing.assert_array_equal(np.asarray(features["items"]), padded)
        np.testing.assert_array_equal(np.asarray(features["items_vectors"]), table[padded])

    def test_vectors_of_ragged_lists(self, framework):
        from merlin.dataloader.ops.embeddings import EmbeddingOperator

        table = np.eye(30, dtype=np.float32)
        transforms = [EmbeddingOperator(table, "items", "vectors")]
        features, _ = make(framework, dataset(columns=("items",)), transforms=transforms).peek()
        assert tuple(features["vectors__values"].shape) == (*features["items__values"].shape, 30)
        np.testing.assert_array_equal(
            np.asarray(features["vectors__values"]).argmax(1), np.asarray(features["items__values"])
        )


class TestWorkflowsInTheLoader:
    def raw(self) -> pd.DataFrame:
        rng = np.random.default_rng(3)
        return pd.DataFrame({"city": rng.choice(["Rome", "Oslo", "Lima"], 90), "price": rng.random(90), "y": 1.0})

    def test_a_fitted_workflow(self):
        import nvtabular as nvt
        from merlin.dataloader.torch import Loader
        from merlin.schema import Tags

        node = (["city"] >> nvt.ops.Categorify()) + (["price"] >> nvt.ops.Normalize())
        node += ["y"] >> nvt.ops.AddTags(Tags.TARGET)
        workflow = nvt.Workflow(node).fit(nvt.Dataset(self.raw()))
        expected = workflow.transform(self.raw())
        loader = Loader(nvt.Dataset(self.raw()), batch_size=90, transforms=workflow)
        features, label = next(loader)
        assert features["city"].tolist() == expected["city"].tolist()
        np.testing.assert_allclose(features["price"], expected["price"])
        assert label.tolist() == [1.0] * 90
        assert loader.output_schema["city"].int_domain.max == 5

    def test_operators_in_a_list_and_a_graph(self):
        import nvtabular as nvt
        from merlin.dag import Graph
        from merlin.dataloader.torch import Loader

        data = nvt.Dataset(self.raw()[["price"]])
        listed, _ = Loader(data, 90, transforms=[nvt.ops.LambdaOp(lambda c: c * 2), nvt.ops.Clip(max_value=1)]).peek()
        graph, _ = Loader(data, 90, transforms=Graph(["price"] >> nvt.ops.LogOp())).peek()
        np.testing.assert_allclose(listed["price"], (2 * self.raw()["price"]).clip(upper=1))
        np.testing.assert_allclose(graph["price"], np.log1p(self.raw()["price"]), rtol=1e-5)

    def test_mistakes(self):
        import nvtabular as nvt
        from merlin.dataloader.ops.embeddings import EmbeddingOperator
        from merlin.dataloader.ops.padding import Padding
        from merlin.dataloader.torch import Loader
        from merlin.schema import ColumnSchema, Schema, Tags

        data = nvt.Dataset({"x": [1, 5], "y": [0.5, 1.0]})
        with pytest.raises(NotFittedError, match="fit"):
            list(Loader(data, 2, transforms=[nvt.ops.Normalize()]))
        with pytest.raises(ParameterError, match="put Padding and embeddings last"):
            Loader(data, 2, transforms=[Padding(2), nvt.ops.LogOp()])
        with pytest.raises(ParameterError, match="transforms takes a fitted Workflow"):
            Loader(data, 2, transforms="log")
        with pytest.raises(DataError, match="column 'x' holds id 5, and there are embeddings for 0 to 2"):
            Loader(data, 2, transforms=[EmbeddingOperator(np.eye(3), "x")]).peek()
        unknown = EmbeddingOperator(np.eye(2), "x", id_lookup_table=[1, 2], unknown_value=7)
        made = unknown.compute_output_schema(Schema([ColumnSchema("x", tags=["user"])]), None)
        assert made["embeddings"].tags == [Tags.USER, Tags.EMBEDDING]
        assert Loader(data, 2, transforms=[unknown]).peek()[0]["embeddings"].max() == 7
        with pytest.raises(ParameterError, match="lookup_key 'z' is no column of the batch"):
            Loader(data, 2, transforms=[EmbeddingOperator(np.eye(9), "z")]).peek()
        with pytest.raises(ParameterError, match="3 ids for 2 embeddings"):
            EmbeddingOperator(np.eye(2), "x", id_lookup_table=[1, 2, 3])
        with pytest.raises(ParameterError, match="two axes"):
            EmbeddingOperator(np.zeros(3), "x")

    def test_the_same_operators_in_a_workflow(self):
        import nvtabular as nvt
        from merlin.dataloader.ops.embeddings import MmapNumpyTorchEmbedding, NumpyEmbeddingOperator
        from merlin.dataloader.ops.padding import Padding

        rows = pd.DataFrame({"id": [1, 0], "items": [[1, 2], [4]]})
        node = ["id", "items"] >> Padding(2) >> NumpyEmbeddingOperator(np.eye(2))
        out = nvt.Workflow(node).transform(rows)
        assert [list(x) for x in out["items"]] == [[1, 2], [4, 0]]
        assert [list(x) for x in out["embeddings"]] == [[0, 1], [1, 0]]
        with pytest.raises(DataError, match="does not exist"):
            MmapNumpyTorchEmbedding("nowhere.npy")


def test_training_in_keras():
    import tensorflow as tf
    from merlin.dataloader.tensorflow import KerasSequenceValidater, Loader

    data = dataset(columns=("user", "price"))
    loader = Loader(data, batch_size=64)
    inputs = {"user": tf.keras.Input((), name="user", dtype="int32"), "price": tf.keras.Input((), name="price")}
    vector = tf.keras.layers.Embedding(ROWS, 8)(inputs["user"])
    joined = tf.keras.layers.Concatenate()([vector, tf.keras.layers.Reshape((1,))(inputs["price"])])
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, activation="sigmoid")(joined))
    model.compile("adam", "binary_crossentropy", metrics=["mae"])
    validation = KerasSequenceValidater(Loader(data, batch_size=64, shuffle=False))
    history = model.fit(loader, epochs=2, verbose=0, callbacks=[validation])
    assert loader.num_rows_processed == 2 * ROWS
    assert len(history.history["val_mae"]) == 2


def test_training_in_jax():
    import jax
    import jax.numpy as jnp

    loader = make("jax", dataset(columns=("price",)), batch_size=50, drop_last=True)

    @jax.jit
    def step(weights, price, label):
        def loss(w):
            return jnp.mean((w[0] * price + w[1] - label) ** 2)

        value, gradient = jax.value_and_grad(loss)(weights)
        return weights - 0.1 * gradient, value

    weights = jnp.zeros(2)
    losses = []
    for _ in range(3):
        for features, label in loader:
            weights, value = step(weights, features["price"], label)
            losses.append(float(value))
    assert len(losses) == 15 and losses[-1] < losses[0]


def test_older_names_of_the_modules():
    from merlin.dataloader.torch import Loader
    from merlin.loader.torch import Loader as Older

    assert Older is Loader


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_another_input_schema_makes_the_loader_anew(framework):
    from merlin.schema import Tags

    loader = make(framework, dataset(columns=("user", "price")), batch_size=50, shuffle=False)
    chosen = loader.input_schema.select_by_name(["user", "price"])
    chosen["price"] = chosen["price"].with_tags(Tags.TARGET)
    loader.input_schema = chosen
    features, label = next(iter(loader))
    assert list(features) == ["user"] and len(label) == 50
    assert loader.input_schema.column_names == ["user", "price"] and loader.label_names == ["price"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_transforms_in_a_graph(framework):
    from merlin.dataloader.ops.embeddings import EmbeddingOperator
    from merlin.dataloader.ops.padding import Padding
    from merlin.io import Dataset

    data = Dataset(pd.DataFrame({"a": [[1, 2], [3], []], "id": [1, 0, 1]}))
    features, _ = next(iter(make(framework, data, batch_size=3, shuffle=False, transforms=["a"] >> Padding(4, 0))))
    assert np.asarray(features["a"]).tolist() == [[1, 2, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0]] and list(features) == ["a"]
    looked_up = ["id"] >> EmbeddingOperator(np.eye(2, dtype=np.float32))
    features, _ = next(iter(make(framework, data, batch_size=3, shuffle=False, transforms=looked_up)))
    assert np.asarray(features["embeddings"]).tolist() == [[0, 1], [1, 0], [0, 1]]
    with pytest.raises(TypeError, match="takes operators"):
        make(framework, data, batch_size=3, transforms=["a"])


def test_numpy():
    from merlin.dataloader.array import ArrayLoader
    from merlin.dataloader.frameworks.torch import TorchArrayDataloader
    from merlin.dataloader.torch import Loader
    from merlin.io import Dataset

    assert TorchArrayDataloader is Loader
    loader = ArrayLoader(Dataset({"user": [1, 2, 3], "items": [[1], [2, 3], []]}), batch_size=2, shuffle=False)
    features, label = next(loader)
    assert features["items__values"].tolist() == [1, 2, 3] and features["items__offsets"].tolist() == [0, 1, 3]
    mapped = loader.map(lambda x, y: (x["user"] + 1, y))
    assert [batch[0].tolist() for batch in mapped] == [[2, 3], [4]] and label is None
