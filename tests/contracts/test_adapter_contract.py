"""Contract 4: every adapter delivers the same numbers for the same plan, whatever the layout and the lists."""

import importlib

import numpy as np
import pytest

from penstock.loader import Loader, Pad, Ragged

ADAPTERS = ["torch", "torch-staged", "jax"]
OPTIONS = [
    {},
    {"shuffle": True},
    {"shuffle": True, "batch_size": 100},  # batches that are not aligned by themselves
    {"shuffle": True, "last_batch": "drop", "rank": 1, "world": 3},
    {"shuffle": True, "last_batch": "wrap", "rank": 2, "world": 3},
    {"lists": Pad(3), "shuffle": True},
    {"lists": Pad(side="left", value=-1)},
    {"layout": "packed", "shuffle": True},
    {"layout": "packed", "lists": Pad(2), "dtypes": {"label": "int32", "categorical": "int32"}},
    {"dtypes": {"user": "int32", "price": "float64"}},
]


def make(adapter, rows_for_adapters, options):
    module = importlib.import_module(f"penstock.loader.{adapter.split('-')[0]}")
    kind = module.Loader
    if adapter == "torch-staged":  # the road to a GPU, run on the CPU
        kind = type("StagedLoader", (kind,), {"_staged": property(lambda self: True)})
    return kind(rows_for_adapters, **options)


def flat(batch) -> dict[str, np.ndarray]:
    """The arrays of a batch by where they are."""
    if isinstance(batch, dict):
        return {f"{k}.{path}": v for k, item in batch.items() for path, v in flat(item).items()}
    if isinstance(batch, (tuple, list)):
        return {f"{k}.{path}": v for k, item in enumerate(batch) for path, v in flat(item).items()}
    return {} if batch is None else {"": np.asarray(batch)}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_same_numbers(adapter, rows_for_adapters, options):
    options = {"batch_size": 128, "chunk_rows": 700, "seed": 4, **options}
    expected = [flat(batch) for batch in Loader(rows_for_adapters, **options)]
    loader = make(adapter, rows_for_adapters, options)
    got = [flat(batch) for batch in loader]
    assert len(got) == len(expected) == len(loader)
    for batch, wanted in zip(got, expected, strict=True):
        assert batch.keys() == wanted.keys()
        for name in wanted:
            assert batch[name].shape == wanted[name].shape
            np.testing.assert_array_equal(batch[name], wanted[name], err_msg=name)
            if adapter != "jax":  # which has no 64-bit numbers by default
                assert batch[name].dtype == wanted[name].dtype, name


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_resumes_in_the_middle(adapter, rows_for_adapters):
    options = {"batch_size": 128, "chunk_rows": 700, "shuffle": True}
    loader = make(adapter, rows_for_adapters, options)
    iterator = iter(loader)
    for _ in range(9):
        next(iterator)
    state = loader.state_dict()
    rest = [flat(batch) for batch in iterator]
    other = make(adapter, rows_for_adapters, options)
    other.load_state_dict(state)
    resumed = [flat(batch) for batch in other]
    assert len(rest) == len(resumed) == len(loader) - 9
    for a, b in zip(rest, resumed, strict=True):
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_list_is_the_row_s_own(adapter, rows_for_adapters):
    frame = rows_for_adapters.to_polars().with_row_index("n")
    by_key = {(r["user"], r["item"], r["price"]): r["genres"] for r in frame.iter_rows(named=True)}
    for features, _ in make(adapter, rows_for_adapters, {"batch_size": 256, "chunk_rows": 700, "shuffle": True}):
        genres = features["genres"]
        assert isinstance(genres, Ragged)
        values, offsets = np.asarray(genres.values).tolist(), np.asarray(genres.offsets).tolist()
        columns = [np.asarray(features[n]).tolist() for n in ("user", "item", "price")]
        for i, key in enumerate(zip(*columns, strict=True)):
            assert by_key[key] == values[offsets[i] : offsets[i + 1]]
