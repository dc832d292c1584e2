"""What can go wrong with files, values and consumers, and that it ends in a named error and no thread left."""

import gc
import os
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.errors import DataError, PenstockError
from penstock.data import Dataset
from penstock.loader import Loader


def loader_threads():
    return [t for t in threading.enumerate() if t.name.startswith(("penstock-loader", "penstock-stager"))]


def open_handles():
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def write(path, **columns):
    pq.write_table(pa.table(columns), path, row_group_size=500)
    return str(path)


def drain(loader):
    return sum(1 for _ in loader)


def test_nulls_name_file_and_column(tmp_path):
    path = write(tmp_path / "a.parquet", x=pa.array([1, None, 3], pa.int32()), y=[1.0, 2.0, 3.0])
    with pytest.raises(DataError, match=r"a\.parquet.*column 'x' has 1 nulls"):
        drain(Loader(path, 2))
    assert loader_threads() == []
    values = np.concatenate([f["x"] for f, _ in Loader(path, 2, fill={"x": -7})])
    assert values.tolist() == [1, -7, 3]
    frame = pl.DataFrame({"x": [1, None]}, schema={"x": pl.Int32})
    with pytest.raises(DataError, match="the frame: column 'x' has 1 nulls"):
        drain(Loader(frame, 2))
    assert next(iter(Loader(frame, 2, fill=0)))[0]["x"].tolist() == [1, 0]


def test_null_lists(tmp_path):
    path = write(tmp_path / "a.parquet", x=pa.array([[1], None, [2, None]], pa.list_(pa.int32())))
    with pytest.raises(DataError, match="column 'x' has 1 nulls"):
        drain(Loader(path, 2))
    (features, _) = next(iter(Loader(path, 3, fill=9)))
    assert features["x"].values.tolist() == [1, 2, 9]
    assert features["x"].offsets.tolist() == [0, 1, 1, 3]


def test_nan_labels(tmp_path):
    path = write(tmp_path / "a.parquet", x=[1, 2], y=pa.array([0.5, float("nan")], pa.float32()))
    with pytest.raises(DataError, match=r"a\.parquet.*label 'y' is NaN in row 1"):
        drain(Loader(path, 2, categorical=["x"], labels=["y"]))


def test_ids_outside_their_cardinality(tmp_path):
    path = write(tmp_path / "a.parquet", x=pa.array([1, 2, 30], pa.int32()))
    data = Dataset(path)
    data = data.with_schema(data.schema.with_column(data.schema["x"].with_(cardinality=30, role="categorical")))
    with pytest.raises(DataError, match=r"column 'x' holds 30 at position 2 there, outside its cardinality 30"):
        drain(Loader(data, 2))


def test_numbers_that_do_not_fit(tmp_path):
    path = write(tmp_path / "a.parquet", x=pa.array([1, 2**40], pa.int64()))
    with pytest.raises(DataError, match="1099511627776 at position 1 there, which int32 cannot hold"):
        drain(Loader(path, 2, dtypes={"x": "int32"}))


def test_a_file_that_vanishes_or_changes_between_epochs(tmp_path):
    path = write(tmp_path / "a.parquet", x=np.arange(2000, dtype=np.int32))
    loader = Loader(path, 100)
    drain(loader)
    time.sleep(0.01)
    write(tmp_path / "a.parquet", x=np.arange(1000, dtype=np.int32))
    with pytest.raises(DataError, match=r"a\.parquet was changed after the loader had opened it"):
        drain(loader)
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(DataError, match=r"a\.parquet cannot be opened any more"):
        drain(loader)
    assert loader_threads() == []


def test_a_damaged_row_group_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"x": np.arange(2000, dtype=np.int64)})
    pq.write_table(table, path, row_group_size=500, compression="snappy", use_dictionary=False, write_statistics=False)
    start = pq.read_metadata(path).row_group(2).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + 60] = b"\xff" * 60
    loader = Loader(Dataset(str(path), part_size=1), 100)
    path.write_bytes(data)
    delivered = 0
    with pytest.raises(DataError, match=r"a\.parquet.*row group 2"):
        for _ in Loader(Dataset(str(path), part_size=1), 100, chunk_rows=500):
            delivered += 1
    assert delivered == 10  # the batches before the damage were delivered
    assert loader_threads() == []
    del loader


def test_files_that_disagree(tmp_path):
    write(tmp_path / "a.parquet", x=np.arange(10, dtype=np.int32))
    write(tmp_path / "b.parquet", x=["text"])
    with pytest.raises(PenstockError, match=r"b\.parquet"):
        drain(Loader(str(tmp_path / "*.parquet"), 5))


def test_an_error_in_a_transform_reaches_the_consumer(dataset):
    def explode(frame):
        if frame["row"][0] > 2000:
            raise ZeroDivisionError("in the user's own code")
        return frame

    with pytest.raises(ZeroDivisionError, match="in the user's own code") as caught:
        drain(Loader(dataset, 100, transform=explode, chunk_rows=500))
    assert "explode" in "".join(traceback.format_tb(caught.value.__traceback__))
    assert loader_threads() == []


def test_a_transform_that_drops_rows(dataset):
    with pytest.raises(DataError, match=r"gives \d+ rows where 7\d\d were counted.*must keep the rows"):
        drain(Loader(dataset, 100, transform=lambda f: f.filter(pl.col("row") % 2 == 0)))


def test_a_thousand_iterators_opened_and_dropped(tmp_path):
    path = write(tmp_path / "a.parquet", x=np.arange(3000), y=np.arange(3000.0))
    loader = Loader(Dataset(path, part_size=1), 100, shuffle=True, chunk_rows=500, num_threads=2)
    handles = open_handles()
    for i in range(1000):
        iterator = iter(loader)
        next(iterator)
        if i % 3 == 0:
            iterator.close()
        del iterator
    gc.collect()
    assert loader_threads() == []
    assert open_handles() <= handles + 2
    assert loader._running().pool.num_bytes < 20e6


def test_leaving_the_loop_ends_the_threads(dataset):
    for _ in Loader(dataset, 100, chunk_rows=500):
        assert loader_threads()
        break
    gc.collect()
    assert loader_threads() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("lists", [False, True])
def test_fork_after_use(path, lists):
    names = {"categorical": ["row", "genres"] if lists else ["row"]}
    loader = Loader(Dataset(path, part_size=1), 500, shuffle=True, chunk_rows=1000, **names)
    expected = [f["row"].sum() for f, _ in loader]
    half_way = iter(loader)
    next(half_way)
    loader.set_epoch(0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert [f["row"].sum() for f, _ in loader] == expected
            try:
                list(half_way)
            except PenstockError:
                status = 0
        finally:
            os._exit(status)
    deadline = time.time() + 300
    while time.time() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        time.sleep(0.01)
    else:
        os.kill(child, 9)
        pytest.fail("the forked process hangs")
    assert os.waitstatus_to_exitcode(status) == 0


def test_memory_is_bounded_by_the_chunks(tmp_path):
    rows, columns = 400_000, 20
    rng = np.random.default_rng(0)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({f"c{i}": rng.integers(0, 1000, rows).astype(np.int32) for i in range(columns)}), path,
                   row_group_size=10_000)  # fmt: skip
    loader = Loader(Dataset(str(path), part_size=1), 4096, shuffle=True, chunk_rows=40_000)
    chunk = 40_000 * columns * 4
    for _ in loader:
        assert loader._running().pool.num_bytes <= 4 * chunk
