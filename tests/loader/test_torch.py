import copy
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from penstock.loader import Loader as NumpyLoader  # noqa: E402
from penstock.loader import NegativeSampling, Ragged  # noqa: E402
from penstock.loader.torch import Loader  # noqa: E402


class Staged(Loader):
    """The road to a GPU, run on the CPU."""

    @property
    def _staged(self):
        return True


def rows(batches):
    return torch.cat([features["row"] for features, _ in batches])


def test_tensors_are_views_of_the_block(dataset):
    features, labels = Loader(dataset, 256).peek()
    assert features["user"].dtype == torch.int64
    assert labels.dtype == torch.int8
    assert features["row"].untyped_storage().data_ptr() % 64 == 0
    assert isinstance(features["genres"], Ragged)


def test_packed_views_share_their_memory(path):
    names = {"categorical": ["user", "item"], "continuous": ["price", "age"], "labels": ["click"]}
    cats, conts, labels = Loader(path, 128, layout="packed", **names).peek()
    assert (cats.shape, conts.shape, labels.shape) == ((128, 2), (128, 2), (128,))
    assert (cats.dtype, conts.dtype, labels.dtype) == (torch.int64, torch.float32, torch.float32)
    assert not cats.is_contiguous()
    assert cats.t()[0].is_contiguous()
    _, no_conts, none = Loader(path, 128, layout="packed", categorical=["user"]).peek()
    assert (no_conts.shape, none) == ((128, 0), None)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork")
def test_inside_a_data_loader(dataset, workers):
    loader = Loader(dataset, 256, shuffle=True, chunk_rows=1000)
    outer = torch.utils.data.DataLoader(loader, batch_size=None, num_workers=workers)
    assert len(outer) == len(loader)
    got = rows(outer)
    assert sorted(got.tolist()) == list(range(5003))


def test_nested(dataset, frame):
    features, _ = Loader(dataset, 256, lists="nested").peek()
    assert [t.tolist() for t in features["genres"].unbind()] == frame["genres"].to_list()[:256]


def test_dtypes_as_torch_says_them(dataset):
    features, labels = Loader(dataset, 8, dtypes={"label": torch.float32, "user": torch.int32}).peek()
    assert labels.dtype == torch.float32
    assert features["user"].dtype == torch.int32


def test_unsigned_ids_become_signed():
    features, _ = Loader({"x": np.array([1, 2**32 - 1], np.uint32)}, 2).peek()
    assert features["x"].tolist() == [1, 2**32 - 1]
    assert features["x"].dtype == torch.int64


def test_negative_sampling(dataset):
    sampled = Loader(dataset, 100, categorical=["user", "item"], labels=["click"]).map(NegativeSampling(["item"], 3))
    features, labels = sampled.peek()
    assert len(labels) == len(features["item"]) == 400
    assert labels[100:].sum() == 0
    assert (features["user"][:100] == features["user"][100:200]).all()
    assert set(features["item"].tolist()) == set(features["item"][:100].tolist())


def test_copies_and_pickles(dataset):
    loader = Loader(dataset, 256, shuffle=True)
    assert (rows(pickle.loads(pickle.dumps(loader))) == rows(copy.deepcopy(loader))).all()
    assert loader.to("cpu").device == torch.device("cpu")


@pytest.mark.parametrize("shuffle", [False, True])
def test_staging_resumes_and_ends_its_threads(dataset, shuffle):
    import threading

    expected = [f["row"] for f, _ in NumpyLoader(dataset, 256, shuffle=shuffle, chunk_rows=1000)]
    loader = Staged(dataset, 256, shuffle=shuffle, chunk_rows=1000)
    iterator = iter(loader)
    got = [next(iterator)[0]["row"] for _ in range(7)]
    state = loader.state_dict()
    iterator.close()
    assert not [t for t in threading.enumerate() if t.name.startswith(("penstock-loader", "penstock-stager"))]
    other = Staged(dataset, 256, shuffle=shuffle, chunk_rows=1000)
    other.load_state_dict(state)
    got += [f["row"] for f, _ in other]
    assert (torch.cat(got).numpy() == np.concatenate(expected)).all()


def test_staging_raises_what_goes_wrong_behind_it(dataset):
    def explode(frame):
        raise ZeroDivisionError("here")

    with pytest.raises(ZeroDivisionError):
        Staged(dataset.with_schema(dataset.schema), 256, transform=_second_time(explode)).peek()


def _second_time(function):
    """Transforms are tried on the first rows when a loader is made; fail only afterwards."""
    calls = []

    def transform(frame):
        calls.append(1)
        return frame if len(calls) == 1 else function(frame)

    return transform


def test_wire_types_are_narrow(dataset):
    from penstock.loader.device_chunks import wire_layout

    layout = wire_layout(Loader(dataset, 256, layout="packed"))
    wire = {name: spec.dtype.name for spec in layout.blocks for name in spec.names}
    assert wire["user"] == "int8"  # cardinality 100
    assert wire["item"] == "int32"
    assert wire["age"] == "float32"  # stored as float64, delivered as float32
    assert wire["click"] == "float32"


def test_weighted_sampling_on_the_way_to_a_device(frame):
    from penstock.loader import WeightedSampling

    data = frame.with_columns(weight=(np.arange(frame.height) % 2).astype(np.float32))
    options = {"categorical": ["row"], "sampling": WeightedSampling("weight"), "chunk_rows": 2000}
    assert (rows(Staged(data, 500, **options)) == rows(Loader(data, 500, **options))).all()
    assert (rows(Staged(data, 500, **options)) % 2 == 1).all()


@pytest.mark.gpu
@pytest.mark.parametrize("lists", ["ragged", "nested"])
def test_on_a_gpu(dataset, lists):
    options = {"shuffle": True, "chunk_rows": 1000, "lists": lists}
    on_host, on_device = Loader(dataset, 256, **options), Loader(dataset, 256, device="cuda", **options)
    for (a, x), (b, y) in zip(on_host, on_device, strict=True):
        assert (b["row"].device.type, y.device.type) == ("cuda", "cuda")
        for name in ("row", "user", "item", "price", "age"):
            torch.testing.assert_close(a[name], b[name].cpu(), rtol=0, atol=0)
        left, right = a["genres"], b["genres"]
        for part in ("values", "offsets"):
            get = (lambda t: getattr(t, part)()) if lists == "nested" else (lambda t: getattr(t, part))  # noqa: B023
            torch.testing.assert_close(get(left), get(right).cpu(), rtol=0, atol=0)
        torch.testing.assert_close(x, y.cpu(), rtol=0, atol=0)


@pytest.mark.gpu
def test_device_memory_bounds_the_chunks(dataset):
    small = Loader(dataset, 64, device="cuda", device_memory=200_000)
    assert small.chunk_rows < Loader(dataset, 64, device="cuda").chunk_rows
    with pytest.raises(Exception, match="device_memory"):
        Loader(dataset, 4096, device="cuda", device_memory=1000)


@pytest.mark.gpu
def test_batches_kept_on_the_gpu_do_not_change(dataset):
    kept = [features["row"] for features, _ in Loader(dataset, 256, device="cuda", chunk_rows=700)]
    torch.cuda.synchronize()
    assert torch.cat(kept).tolist() == list(range(5003))


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's own
@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata_resumes_in_the_middle(dataset, workers):
    from torchdata.stateful_dataloader import StatefulDataLoader

    def feed():
        return StatefulDataLoader(Loader(dataset, 256, shuffle=True, seed=3), batch_size=None, num_workers=workers)

    whole = [labels for _, labels in feed()]
    first = feed()
    batches = iter(first)
    seen = [next(batches)[1] for _ in range(5)]
    state = first.state_dict()
    del batches
    second = feed()
    second.load_state_dict(state)
    rest = [labels for _, labels in second]
    assert len(seen) + len(rest) == len(whole)
    for expected, found in zip(whole, seen + rest, strict=True):
        assert torch.equal(expected, found)
