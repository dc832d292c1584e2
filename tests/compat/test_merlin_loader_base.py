"""Merlin's loader without a framework, lists of lists in batches, and look-ups at the end of a graph."""

from __future__ import annotations

import importlib

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.usefixtures("old_names")


def labelled(**columns):
    from merlin.io import Dataset
    from merlin.schema import Tags

    data = Dataset(pd.DataFrame(columns))
    data.schema["y"] = data.schema["y"].with_tags(Tags.TARGET)
    return data


class TestLoaderBase:
    def test_columns_with_values_and_offsets(self):
        from merlin.dataloader.loader_base import LoaderBase
        from merlin.table import NumpyColumn, TensorTable

        loader = LoaderBase(labelled(a=[1, 2, 3], s=[[1], [], [2, 3]], y=[0, 1, 0]), batch_size=2, shuffle=False)
        (first, label), (last, _) = list(loader)
        assert isinstance(first["a"], NumpyColumn) and first["a"].values.tolist() == [1, 2]
        assert last["s"].tolist() == [[2, 3]] and label.tolist() == [0, 1]
        assert isinstance(first, TensorTable) and first.to_df()["a"].tolist() == [1, 2]
        assert loader.output_schema.column_names == ["a", "s", "y"] and loader.indices.tolist() == [0]

    def test_next_is_in_the_middle_of_an_epoch_until_it_ends(self):
        from merlin.dataloader.loader_base import LoaderBase

        loader = LoaderBase(labelled(a=[1, 2], y=[0, 1]), batch_size=1, shuffle=False)
        next(loader)
        assert loader._working
        loader.stop()
        assert not loader._working and loader._batch_itr is None

    def test_with_transforms_the_output_is_features(self):
        from merlin.dataloader.loader_base import LoaderBase
        from nvtabular import ops

        loader = LoaderBase(labelled(a=[1, 2], y=[0, 1]), 2, transforms=["a"] >> ops.LambdaOp(lambda column: column))
        assert loader.output_schema.column_names == ["a"]
        assert loader.input_schema.column_names == ["a", "y"]

    def test_what_old_tests_look_into(self):
        from merlin.core.dispatch import generate_local_seed
        from merlin.dataloader.loader_base import LoaderBase

        data, calls = labelled(a=list(range(8)), y=[0] * 8).repartition(4), []
        loaders = [
            LoaderBase(data, 2, shuffle=False, seed_fn=lambda: calls.append(0) or 5, global_size=2, global_rank=rank)
            for rank in (0, 1)
        ]
        assert [loader._indices_for_process() for loader in loaders] == [[0, 1], [2, 3]]
        rows = [pd.concat(list(loader.epochs(2)._buff.itr))["a"].tolist() for loader in loaders]
        assert rows == [[0, 1, 2, 3] * 2, [4, 5, 6, 7] * 2] and len(next(iter(loaders[0]._buff.itr))) == 2
        assert loaders[0]._row_lengths_to_offsets(np.array([1, 0, 3])).tolist() == [0, 1, 1, 4]
        for loader in loaders:
            loader._shuffle_indices()
        orders = [loader.indices.tolist() for loader in loaders]
        assert orders[0] == orders[1] and sorted(orders[0]) == [0, 1, 2, 3] and len(calls) == 2
        assert len({generate_local_seed(1, 2) for _ in range(4)}) > 1
        with pytest.raises(IndexError, match="5 processes for 4 partitions"):
            LoaderBase(data, 2, global_size=5, global_rank=0)._indices_for_process()

    def test_no_columns(self):
        from merlin.dataloader.loader_base import LoaderBase
        from merlin.io import Dataset

        with pytest.raises(ValueError, match="Neither Categorical or Continuous columns were found"):
            LoaderBase(Dataset(pd.DataFrame({})), batch_size=1)

    def test_look_ups_at_the_end_of_a_graph(self):
        from merlin.dataloader.loader_base import LoaderBase
        from merlin.dataloader.ops.embeddings import EmbeddingOperator
        from merlin.dataloader.ops.padding import Padding
        from merlin.io import Dataset

        table = np.arange(20.0).reshape(10, 2)
        graph = ["id"] >> Padding(3, 0) >> EmbeddingOperator(table, "id", "vector")
        loader = LoaderBase(Dataset(pd.DataFrame({"id": [[1, 2], [3]]})), 2, shuffle=False, transforms=graph)
        features, _ = loader.peek()
        assert features["id"].values.tolist() == [[1, 2, 0], [3, 0, 0]]
        assert (features["vector"].values == table[features["id"].values]).all()
        assert features.to_df()["id"].tolist() == [[1, 2, 0], [3, 0, 0]]  # lists, where all are of one length
        assert loader.output_schema.column_names == ["id", "vector"]

    def test_ids_of_a_look_up_from_a_frame(self):
        from merlin.dataloader.ops.embeddings.torch_embedding_op import Torch_NumpyEmbeddingOperator

        ids = pd.DataFrame({"id": [7, 5]}).to_numpy()
        found = Torch_NumpyEmbeddingOperator(np.eye(2), id_lookup_table=ids).lookup(np.array([5]))
        assert found.tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
class TestListsOfLists:
    def test_of_one_shape(self, framework):
        from merlin.io import Dataset

        rows = np.arange(24.0).reshape(4, 2, 3)
        data = Dataset(pd.DataFrame({"m": rows.tolist()}))
        data.schema["m"] = data.schema["m"].with_shape((None, 2, 3))
        loader = importlib.import_module(f"merlin.dataloader.{framework}").Loader(data, batch_size=3, shuffle=False)
        first, last = (features["m"].numpy() for features, _ in loader)
        assert (first == rows[:3]).all() and last.shape == (1, 2, 3)

    def test_of_many(self, framework):
        rows = [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]]
        data = labelled(m=rows, y=[0, 1])
        loader = importlib.import_module(f"merlin.dataloader.{framework}").Loader(data, batch_size=2, shuffle=False)
        features, _ = next(iter(loader))
        assert features["m__values"].numpy().tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        assert features["m__offsets"].numpy().tolist() == [0, 2, 6]


class TestSchemas:
    def test_padding_shows_in_the_schema(self):
        from merlin.dataloader.loader_base import LoaderBase
        from merlin.dataloader.ops.padding import Padding
        from merlin.io import Dataset

        data = Dataset(pd.DataFrame({"a": [[1], [1, 2], [1, 2, 3]]}))
        for transforms in (["a"] >> Padding(5, 0), [Padding(5, 0)]):
            loader = LoaderBase(data, 2, shuffle=False, transforms=transforms)
            column = loader.output_schema["a"]
            assert column.shape.as_tuple[-1] == 5 and not column.is_ragged
            assert all(features["a"].values.shape[-1] == 5 for features, _ in loader)

    def test_lists_that_are_longer_than_the_padding_are_refused(self):
        from merlin.dataloader.loader_base import LoaderBase
        from merlin.dataloader.ops.padding import Padding
        from merlin.io import Dataset

        data = Dataset(pd.DataFrame({"a": [[1], [1, 2, 3]]}))
        for transforms in (["a"] >> Padding(2), [Padding(2)]):
            loader = LoaderBase(data, 1, shuffle=False, transforms=transforms)
            with pytest.raises(ValueError, match="have more values than padding_size=2: column 'a' has a list of 3"):
                list(loader)

    def test_another_schema_comes_before_the_first_batch(self):
        from merlin.dataloader.torch import Loader
        from merlin.io import Dataset

        data = Dataset(pd.DataFrame({"a": [1, 2], "b": [3, 4]}))
        loader = Loader(data, batch_size=1, shuffle=False)
        next(loader)
        with pytest.raises(RuntimeError, match="after the dataloader has started"):
            loader.input_schema = data.schema.excluding_by_name(["b"])
        loader.stop()
        loader.input_schema = data.schema.excluding_by_name(["b"])
        assert set(loader.peek()[0]) == {"a"}
