"""Contract 4 for Keras: the same numbers as the NumPy and torch adapters for the same plan, by both of its roads."""

import numpy as np
import pytest

from penstock.core.errors import MissingExtraError
from penstock.loader import Loader as NumpyLoader
from penstock.loader import Pad

OPTIONS = [
    {},
    {"shuffle": True},
    {"shuffle": True, "batch_size": 100},  # batches that are not aligned by themselves
    {"shuffle": True, "last_batch": "drop", "rank": 1, "world": 3},
    {"shuffle": True, "last_batch": "wrap", "rank": 2, "world": 3},
    {"lists": Pad(3), "shuffle": True},
    {"lists": Pad(side="left", value=-1)},
    {"dtypes": {"user": "int32", "price": "float64"}},
]


@pytest.fixture(scope="module", autouse=True)
def tensorflow_loaded():
    """TensorFlow is loaded by the process that runs this file, not by every process that collects it."""
    global tf, Loader
    Loader = pytest.importorskip("penstock.loader.keras", exc_type=MissingExtraError).Loader
    tf = pytest.importorskip("tensorflow")


def flat(batch) -> dict[str, np.ndarray]:
    """The arrays of a batch by where they are; lists of all kinds as values and offsets."""
    if isinstance(batch, tf.RaggedTensor):
        batch = (batch.values, batch.row_splits)
    if isinstance(batch, dict):
        return {f"{k}.{path}": v for k, item in batch.items() for path, v in flat(item).items()}
    if isinstance(batch, (tuple, list)):
        return {f"{k}.{path}": v for k, item in enumerate(batch) for path, v in flat(item).items()}
    return {"": np.asarray(batch)}


def assert_same(got, expected):
    assert len(got) == len(expected)
    for batch, wanted in zip(got, expected, strict=True):
        assert batch.keys() == wanted.keys()
        for name in wanted:
            np.testing.assert_array_equal(batch[name], wanted[name], err_msg=name)
            assert batch[name].dtype == wanted[name].dtype, name


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("road", ["tensors", "tf_data", "by_number"])
def test_the_same_numbers(rows_for_adapters, options, road):
    options = {"batch_size": 128, "chunk_rows": 700, "seed": 4, **options}
    expected = [flat(batch) for batch in NumpyLoader(rows_for_adapters, **options)]
    loader = Loader(rows_for_adapters, flat=True, **options)
    if road == "by_number":
        batches = [loader[i] for i in range(loader.num_batches)]
    else:
        batches = list(loader if road == "tensors" else loader.as_tf_dataset())
    assert_same([flat(batch) for batch in batches], expected)


def test_as_torch_does(rows_for_adapters):
    torch = pytest.importorskip("penstock.loader.torch")
    options = {"batch_size": 128, "chunk_rows": 700, "shuffle": True, "seed": 9}
    expected = [flat(batch) for batch in torch.Loader(rows_for_adapters, **options)]
    assert_same([flat(batch) for batch in Loader(rows_for_adapters, flat=True, **options)], expected)


@pytest.mark.parametrize("road", ["tensors", "tf_data", "by_number"])
def test_resumes_in_the_middle(rows_for_adapters, road):
    options = {"batch_size": 128, "chunk_rows": 700, "shuffle": True, "flat": True}
    loader = Loader(rows_for_adapters, **options)
    whole = [flat(batch) for batch in loader.epochs(2)]
    loader.set_epoch(0)
    iterator = iter(loader)
    for _ in range(9):
        next(iterator)
    resumed = Loader(rows_for_adapters, **options)
    resumed.load_state_dict(loader.state_dict())
    if road == "by_number":
        rest = [resumed[i] for i in range(resumed.num_batches)]
    else:
        rest = list(resumed if road == "tensors" else resumed.as_tf_dataset())
    # For Keras every pass is as long as an epoch: it goes on into the next one.
    last = len(loader) + (0 if road == "tensors" else 9)
    assert_same([flat(batch) for batch in rest], whole[9:last])
    assert (resumed.epoch, resumed._batch) == divmod(last, len(loader))
