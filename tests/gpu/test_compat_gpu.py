"""Old loaders on a real GPU: batches are there, whole and in their shapes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from penstock.compat import activate, deactivate

pd = pytest.importorskip("pandas")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(autouse=True)
def old_names() -> Iterator[None]:
    activate(packages=["nvtabular", "merlin"], nvtabular="latest")
    yield
    deactivate()


def test_every_kind_of_column() -> None:
    from merlin.dataloader.ops.embeddings import EmbeddingOperator
    from merlin.dataloader.torch import Loader
    from merlin.io import Dataset

    matrices = np.arange(24.0).reshape(4, 2, 3)
    frame = pd.DataFrame({"id": [3, 1, 2, 0], "m": matrices.tolist(), "l": [[1], [], [2, 3], [4]]})
    data = Dataset(frame)
    data.schema["m"] = data.schema["m"].with_shape((None, 2, 3))
    vectors = np.eye(4)
    loader = Loader(data, batch_size=3, transforms=[EmbeddingOperator(vectors)], device=0)
    batches = [features for features, _ in loader]
    assert all(tensor.is_cuda for features in batches for tensor in features.values())
    assert (torch.cat([f["m"] for f in batches]).cpu().numpy() == matrices).all()
    assert (torch.cat([f["embeddings"] for f in batches]).cpu().numpy() == vectors[frame["id"]]).all()
    assert batches[0]["l__offsets"].tolist() == [0, 1, 1, 3]


def test_columns_move_to_the_device_and_back() -> None:
    from merlin.table import Device, TensorTable

    table = TensorTable({"a": torch.tensor([1, 2])})
    there = table.gpu()
    assert there.device is Device.GPU and there.cpu().device is Device.CPU
    with pytest.raises(ValueError, match="on the same device"):
        TensorTable({"a": there["a"], "b": table["a"]})


def test_nvtabular_s_loader() -> None:
    import nvtabular as nvt
    from nvtabular.loader.torch import TorchAsyncItr

    data = nvt.Dataset(pd.DataFrame({"c": [1, 2, 3], "x": [0.5, 1.0, 1.5], "y": [0, 1, 0]}))
    features, label = next(iter(TorchAsyncItr(data, ["c"], ["x"], ["y"], batch_size=3)))
    assert features["c"].is_cuda and label.is_cuda and features["x"].tolist() == [0.5, 1.0, 1.5]
