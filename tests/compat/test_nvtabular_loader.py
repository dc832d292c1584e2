"""Loaders as NVTabular's users call them: the batches of three ages, the old bugs gone, training loops."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from penstock.compat import settings
from penstock.core.errors import DataError, ParameterError, SchemaError

ROWS = 1_003


pytestmark = pytest.mark.usefixtures("old_names")


@pytest.fixture(autouse=True)
def oldest():
    """Most of these are about the first age's batches; others say which they are about."""
    with settings.using(nvtabular="0.5"):
        yield


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 4, ROWS)
    genres = np.split(rng.integers(0, 20, lengths.sum()), np.cumsum(lengths)[:-1])
    return pl.DataFrame(
        {
            "C1": np.arange(ROWS), "C10": rng.integers(0, 50, ROWS).astype(np.int32), "C2": rng.integers(0, 9, ROWS),
            "genres": pl.Series(genres, dtype=pl.List(pl.Int64)),
            "I1": rng.random(ROWS), "I2": np.where(np.arange(ROWS) % 7 == 0, np.nan, 1.0).astype(np.float32),
            "label": rng.integers(0, 2, ROWS).astype(np.int8), "weight": rng.random(ROWS),
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def paths(frame: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("loader")
    frame.slice(0, 500).write_parquet(folder / "a.parquet", row_group_size=100)
    frame.slice(500).write_parquet(folder / "b.parquet", row_group_size=100)
    return [str(folder / "a.parquet"), str(folder / "b.parquet")]


def itr(paths, cats=("C2", "C10", "C1"), conts=("I2", "I1"), labels=("label",), batch_size=100, **options):
    import nvtabular as nvt
    from nvtabular.loader.torch import TorchAsyncItr

    data = nvt.Dataset(paths, engine="parquet", part_size=1)
    return TorchAsyncItr(
        data, cats=list(cats), conts=list(conts), labels=list(labels), batch_size=batch_size, **options
    )


class TestBatchesOf05:
    def test_three_tensors_sorted_by_name(self, paths, frame):
        batches = list(itr(paths))
        assert len(batches) == 11
        cats, conts, labels = batches[0]
        assert (cats.shape, cats.dtype) == ((100, 3), torch.int64)
        assert (conts.shape, conts.dtype) == ((100, 2), torch.float32)
        assert (labels.shape, labels.dtype) == ((100,), torch.float32)
        whole = torch.cat([b[0] for b in batches])
        np.testing.assert_array_equal(whole, frame.select("C1", "C10", "C2").to_numpy())
        numbers = torch.cat([b[1] for b in batches])
        np.testing.assert_allclose(numbers, frame.select("I1", "I2").to_numpy(), rtol=1e-6)  # NaN stays NaN
        assert labels.long().tolist() == frame["label"][:100].to_list()

    def test_lists(self, paths, frame):
        (cats, lists), _, labels = next(iter(itr(paths, cats=["C1", "genres"], labels=["label", "weight"])))
        assert cats.shape == (100, 1) and labels.shape == (100, 2)
        values, offsets = lists["genres"]
        assert offsets.shape == (100, 1)
        ends = [*offsets[1:, 0].tolist(), len(values)]
        rows = [values[a:b].tolist() for a, b in zip(offsets[:, 0].tolist(), ends, strict=True)]
        assert rows == frame["genres"][:100].to_list()

    def test_what_there_is_none_of(self, paths):
        cats, conts, labels = next(iter(itr(paths, conts=[], labels=[])))
        assert conts is None and labels is None and cats.shape == (100, 3)
        cats, lists = next(iter(itr(paths, cats=["genres"])))[0]
        assert cats is None and list(lists) == ["genres"]

    def test_sparse_and_dense_lists(self, paths, frame):
        options = {"cats": ["C1", "genres"], "sparse_names": ["genres"], "sparse_max": {"genres": 5}}
        padded = np.zeros((100, 5), int)
        for i, row in enumerate(frame["genres"][:100].to_list()):
            padded[i, : len(row)] = row
        sparse = next(iter(itr(paths, **options)))[0][1]["genres"]
        assert sparse.is_sparse and sparse.shape == (100, 5)
        np.testing.assert_array_equal(sparse.to_dense(), padded)
        dense = next(iter(itr(paths, sparse_as_dense=True, **options)))[0][1]["genres"]
        np.testing.assert_array_equal(dense, padded)
        with pytest.raises(DataError, match=r"sparse_max allows 2 items: column 'genres' has a list of 3 items"):
            next(iter(itr(paths, **{**options, "sparse_max": {"genres": 2}})))


class TestLaterBatches:
    def test_10(self, paths, frame):
        with settings.using(nvtabular="1.0"):
            loader = itr(paths, cats=["C2", "genres", "C1"], labels=["label", "weight"])
        features, labels = next(iter(loader))
        assert list(features) == ["C2", "genres", "C1", "I2", "I1"]  # the user's order
        assert features["C1"].shape == (100, 1) and features["C1"].dtype == torch.int64
        assert features["I1"].dtype == torch.float32
        assert features["genres"][1].shape == (100, 1)
        assert [label.shape for label in labels] == [(100, 1), (100, 1)]
        with settings.using(nvtabular="1.0"):  # the only feature of its role was a vector
            alone, label = next(iter(itr(paths, cats=["C1", "genres"])))
        assert alone["C1"].shape == (100,) and alone["I1"].shape == (100, 1) and label.shape == (100,)

    def test_latest(self, paths, frame):
        with settings.using(nvtabular="latest"):
            features, label = next(iter(itr(paths, cats=["C2", "C10", "genres"], conts=["I1"])))
            assert list(features) == ["C2", "C10", "genres__values", "genres__offsets", "I1"]
            assert features["C10"].shape == (100,) and features["C10"].dtype == torch.int32  # as stored
            assert features["I1"].dtype == torch.float64
            assert len(features["genres__offsets"]) == 101
            assert label.shape == (100,) and label.dtype == torch.int8
            _, labels = next(iter(itr(paths, labels=["label", "weight"])))
            assert set(labels) == {"label", "weight"}

    @pytest.mark.parametrize("age", settings.NVTABULAR_AGES)
    def test_another_batch_size(self, paths, age):
        with settings.using(nvtabular=age):
            loader = itr(paths, shuffle=True)
            next(loader)
            loader.batch_size = 50
            assert len(loader) == 21 and len(next(iter(loader))[-1]) == 50
            assert sum(len(batch[-1]) for batch in loader) == ROWS

    def test_columns_from_the_schema(self, frame):
        import nvtabular as nvt
        from merlin.schema import Tags
        from nvtabular.loader.torch import TorchAsyncItr

        node = (["C1"] >> nvt.ops.Categorify()) + (["I1"] >> nvt.ops.Normalize())
        node += ["label"] >> nvt.ops.AddTags([Tags.TARGET])
        data = nvt.Workflow(node).fit_transform(nvt.Dataset(frame.drop("genres")))
        with settings.using(nvtabular="1.0"):
            loader = TorchAsyncItr(data, batch_size=10)
        assert (loader.cat_names, loader.cont_names, loader.label_names) == (["C1"], ["I1"], ["label"])
        features, label = loader.peek()
        assert list(features) == ["C1", "I1"] and label.shape == (10,)


class TestMended:
    def test_partitions_are_permuted_and_nothing_is_lost(self, paths):
        loader = itr(paths, shuffle=True, batch_size=64)
        epochs = [torch.cat([cats[:, 0] for cats, _, _ in loader]) for _ in range(2)]
        for epoch in epochs:
            assert sorted(epoch.tolist()) == list(range(ROWS))
        assert not torch.equal(*epochs)
        firsts = [int(e[0]) // 100 for e in epochs]
        more = [int(next(iter(itr(paths, shuffle=True, seed_fn=lambda s=s: s)))[0][0, 0]) // 100 for s in range(6)]
        assert len({*firsts, *more}) > 2

    def test_rows_processed_are_rows(self, paths):
        loader = itr(paths)
        assert sum(len(batch[0]) for batch in loader) == loader.num_rows_processed == ROWS

    def test_order_does_not_depend_on_numpys_global_state(self, paths):
        orders = []
        for seed in (1, 2):
            np.random.seed(seed)
            orders.append(torch.cat([cats[:, 0] for cats, _, _ in itr(paths, shuffle=True)]))
        assert torch.equal(*orders)

    def test_seeds_of_the_user(self, paths):
        seeds = iter([5, 6, 5])
        loaders = [itr(paths, shuffle=True, seed_fn=lambda: next(seeds)) for _ in range(3)]
        orders = [torch.cat([cats[:, 0] for cats, _, _ in loader]) for loader in loaders]
        assert torch.equal(orders[0], orders[2]) and not torch.equal(orders[0], orders[1])

    @pytest.mark.parametrize("world", [2, 3, 16])
    def test_ranks_get_equal_batches_even_of_few_partitions(self, paths, world):
        import nvtabular as nvt
        from nvtabular.loader.torch import TorchAsyncItr

        data = nvt.Dataset(paths)  # two partitions
        lengths, rows = set(), []
        for rank in range(world):
            loader = TorchAsyncItr(data, ["C1"], [], ["label"], batch_size=50, global_size=world, global_rank=rank)
            batches = list(loader)
            lengths.add(len(batches))
            assert len(loader) == len(batches)
            rows += [row for cats, _, _ in batches for row in cats[:, 0].tolist()]
        assert len(lengths) == 1
        assert set(rows) == set(range(ROWS))

    def test_the_last_batch_can_be_dropped(self, paths):
        assert len(itr(paths, drop_last=True)) == 10
        assert {len(cats) for cats, _, _ in itr(paths, drop_last=True)} == {100}


class TestAsOthersUseIt:
    def test_in_torchs_data_loader(self, paths):
        from nvtabular.loader.torch import DLDataLoader

        def collate(batch):
            return batch[0], batch[1], batch[2].long()

        loader = DLDataLoader(itr(paths), collate_fn=collate, batch_size=None, pin_memory=False, num_workers=0)
        assert len(loader) == 11
        assert loader.device == torch.device("cpu")
        assert {batch[2].dtype for batch in loader} == {torch.int64}

    def test_next_and_stop(self, paths):
        loader = itr(paths, batch_size=600)
        assert next(loader)[0].shape[0] == 600
        assert pickle.loads(pickle.dumps(loader)).batch_size == 600  # not while it is read from, but a copy may begin
        assert next(loader)[0].shape[0] == 403
        with pytest.raises(StopIteration):
            next(loader)
        next(loader)
        loader.stop()
        assert next(loader)[0][0, 0] == 0
        assert len(copy.copy(loader).epochs(3)) == 6
        assert sum(1 for _ in loader.epochs(2)) == 4

    @pytest.mark.parametrize("age", settings.NVTABULAR_AGES)
    def test_training_as_in_the_movielens_example(self, tmp_path, age):
        os.environ[settings.NVTABULAR] = age  # the fixture above leaves the environment as it was before
        import nvtabular as nvt
        from nvtabular.framework_utils.torch.models import Model
        from nvtabular.framework_utils.torch.utils import DictTransform, process_epoch
        from nvtabular.loader.torch import DLDataLoader, TorchAsyncItr

        torch.manual_seed(0)
        rng = np.random.default_rng(1)
        genres = [["a"], ["b", "c"], ["a", "c"]]
        users, movies = rng.integers(0, 20, 600), rng.integers(0, 30, 600)
        rows = pd.DataFrame({"userId": users, "movieId": movies, "genres": [genres[m % 3] for m in movies],
                             "age": rng.random(600), "rating": ((users + movies) % 2).astype("float32")})  # fmt: skip
        cats = ["userId", "movieId", "genres"]
        workflow = nvt.Workflow((cats >> nvt.ops.Categorify()) + (["age"] >> nvt.ops.Normalize()) + ["rating"])
        workflow.fit_transform(nvt.Dataset(rows)).to_parquet(tmp_path / "train")
        train = TorchAsyncItr(
            nvt.Dataset(str(tmp_path / "train" / "*.parquet")), batch_size=64, cats=cats, conts=["age"],
            labels=["rating"], shuffle=True,
        )  # fmt: skip
        loader = DLDataLoader(train, batch_size=None, collate_fn=lambda batch: batch, pin_memory=False, num_workers=0)
        model = Model(
            embedding_table_shapes=nvt.ops.get_embedding_sizes(workflow), num_continuous=1, emb_dropout=0.0,
            layer_hidden_dims=[64, 32], layer_dropout_rates=[0.0, 0.0],
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        losses = [process_epoch(loader, model, train=True, optimizer=optimizer)[0] for _ in range(8)]
        assert losses[-1] < 0.5 * losses[0]
        loss, predicted, labels = process_epoch(loader, model, train=False)
        assert predicted.shape == labels.shape == (600,)
        assert loss < 0.2
        if age != "0.5":
            again = process_epoch(loader, model, transform=DictTransform)[0]
            assert again == pytest.approx(loss, rel=1e-5)  # the rows come in another order

    def test_training_with_dicts(self, paths):
        from nvtabular.framework_utils.torch.layers import ConcatenatedEmbeddings, MultiHotEmbeddings
        from nvtabular.framework_utils.torch.utils import FastaiTransform, dict_transform

        with settings.using(nvtabular="1.0"):
            loader = itr(paths, cats=["C2", "genres", "C10"])
        (ids, lists), conts, labels = dict_transform(loader).transform(next(iter(loader)))
        vectors = ConcatenatedEmbeddings({"C2": (9, 4), "C10": (50, 8)}, dropout=0.1, sparse_columns=["C10"])(ids)
        bags = MultiHotEmbeddings({"genres": (20, 3)}, mode="mean")(lists)
        assert vectors.shape == (100, 12) and bags.shape == (100, 3)
        assert conts.shape == (100, 2) and labels.shape == (100,)
        with settings.using(nvtabular="1.0"):
            plain = itr(paths)
        ids, conts, labels = FastaiTransform(plain).transform(next(iter(plain)))
        assert ids.dtype == labels.dtype == torch.int64 and ids.shape == (100, 3)


class TestKeras:
    def test_fit_validate_and_rows(self, paths):
        import nvtabular as nvt
        import tensorflow as tf
        from nvtabular.framework_utils.tensorflow import layers
        from nvtabular.loader.tensorflow import KerasSequenceLoader, KerasSequenceValidater

        cats, conts = ["C1", "C10", "C2"], ["I1"]
        options = {"label_names": ["label"], "cat_names": cats, "cont_names": conts, "engine": "parquet"}
        train = KerasSequenceLoader(
            nvt.Dataset(paths, part_mem_fraction=0.04), batch_size=256, shuffle=True, parts_per_chunk=1, **options
        )
        valid = KerasSequenceLoader(paths, batch_size=256, shuffle=False, buffer_size=0.06, **options)
        inputs = {c: tf.keras.Input(name=c, dtype=tf.int32, shape=(1,)) for c in cats}
        inputs |= {c: tf.keras.Input(name=c, dtype=tf.float32, shape=(1,)) for c in conts}
        sizes = {"C1": ROWS, "C10": 50, "C2": 9}
        columns = [
            tf.feature_column.embedding_column(tf.feature_column.categorical_column_with_identity(c, sizes[c]), 4)
            for c in cats
        ]
        columns += [tf.feature_column.numeric_column(c) for c in conts]
        x = layers.DenseFeatures(columns)(inputs)
        assert x.shape == (None, 13)
        model = tf.keras.Model(inputs=inputs, outputs=tf.keras.layers.Dense(1, activation="sigmoid")(x))
        model.compile("sgd", "binary_crossentropy", metrics=["mse"])
        validation = KerasSequenceValidater(valid)
        history = model.fit(train, callbacks=[validation], epochs=2, verbose=0)
        assert len(history.history["val_mse"]) == 2
        fresh = model.evaluate(valid, verbose=0, return_dict=True)["mse"]
        assert history.history["val_mse"][-1] == pytest.approx(fresh, rel=1e-4)  # metrics began anew
        assert train.num_rows_processed == 2 * ROWS

    def test_lists_missing_numbers_and_readers(self, paths, frame, tmp_path):
        from nvtabular.loader.tensorflow import KerasSequenceLoader

        loader = KerasSequenceLoader(paths, 100, ["label"], cat_names=["genres"], cont_names=["I2"], shuffle=False)
        features, _ = loader.peek()
        _, lengths = features["genres"]
        assert lengths[:, 0].numpy().tolist() == frame["genres"][:100].list.len().to_list()
        assert np.isnan(features["I2"].numpy()[0, 0])
        frame.select("C1", "label").write_csv(tmp_path / "a.csv", separator="|")
        loader = KerasSequenceLoader(
            str(tmp_path / "a.csv"), 10, ["label"], cat_names=["C1"], engine="csv", shuffle=False,
            reader_kwargs={"sep": "|"},
        )  # fmt: skip
        assert loader.peek()[0]["C1"].numpy()[:, 0].tolist() == list(range(10))

    def test_other_layers(self):
        import tensorflow as tf
        from nvtabular.framework_utils.tensorflow import layers

        lists = tf.ragged.constant([[1, 2], [3]])
        layer = layers.SparseEmbeddingLookup(10, 4)
        out = layer(lists)
        table = layer.embedding_table.numpy()
        np.testing.assert_allclose(out.numpy()[0], table[1] + table[2], rtol=1e-5)
        left, right = tf.random.uniform((2, 3, 5)), tf.random.uniform((2, 4, 5))
        outer = layers.XDeepFmOuterProduct(6)
        got = outer([left, right]).numpy()
        expected = np.einsum("bhd,bmd,khm->bkd", left.numpy(), right.numpy(), outer.kernel.numpy())
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)
        assert layers.DotProductInteraction()(left).shape == (2, 3)
        again = layers.SparseEmbeddingLookup.from_config(layer.get_config())
        assert (again.vocab_size, again.dimension) == (10, 4)


class TestBadInput:
    def test_columns(self, paths):
        import nvtabular as nvt
        from nvtabular.loader.torch import TorchAsyncItr

        with pytest.raises(SchemaError, match="column 'C11' is not in"):
            itr(paths, cats=["C11"])
        with pytest.raises(ParameterError, match="there are no features"):
            TorchAsyncItr(nvt.Dataset(paths), labels=["label"])
        with pytest.raises(ParameterError, match="'C1', which is not a list column"):
            itr(paths, sparse_names=["C1"])
        with pytest.raises(ParameterError, match="sparse_max has no entry for 'genres'"):
            itr(paths, cats=["genres"], sparse_names=["genres"])
        with pytest.raises(SchemaError, match="a batch holds numbers; encode it first"):
            TorchAsyncItr(nvt.Dataset({"a": ["x"]}), ["a"])

    def test_nulls_among_ids(self):
        import nvtabular as nvt
        from nvtabular.loader.torch import TorchAsyncItr

        data = nvt.Dataset(pl.DataFrame({"a": [1, None]}))
        with pytest.raises(DataError, match="column 'a' has 1 nulls"):
            list(TorchAsyncItr(data, ["a"]))

    def test_models(self):
        from nvtabular.framework_utils.torch.layers import ConcatenatedEmbeddings
        from nvtabular.framework_utils.torch.models import Model

        with pytest.raises(SchemaError, match="column 'z' is not in embedding_table_shapes"):
            ConcatenatedEmbeddings({"a": (2, 2)}, sparse_columns=["z"])
        with pytest.raises(ParameterError, match="must be as long"):
            Model({"a": (2, 2)}, 0, 0.0, [8, 4], [0.1])


def test_names_that_are_not_here_say_why():
    import nvtabular

    with pytest.raises(ImportError, match=r"nvtabular\.loader\.torch\.IterDL exists in NVTabular and not here"):
        from nvtabular.loader.torch import IterDL  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"penstock\.serve; see docs/migrate-nvtabular\.md"):
        import nvtabular.inference.graph
    with pytest.raises(AttributeError, match="did you mean 'Categorify'"):
        nvtabular.ops.Categorify_  # noqa: B018
    assert not hasattr(nvtabular.ops, "Moments")


def test_helpers(tmp_path: Path):
    from nvtabular import dispatch
    from nvtabular.utils import device_mem_size, get_rmm_size

    assert dispatch._is_list_dtype(pd.Series([[1]])) and dispatch.concat_columns is dispatch._concat_columns
    assert get_rmm_size(device_mem_size()) <= device_mem_size()
