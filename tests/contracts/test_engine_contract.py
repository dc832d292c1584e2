"""Contract 2: threads, Dask and Ray give byte-identical results, and errors that still name their cause."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import polars as pl
import pytest

from penstock import Dataset, Workflow, ops
from penstock.core.errors import DataError, ParameterError, PenstockError
from penstock.engine import resolve


@pytest.fixture(scope="module")
def dask_client():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(params=["local", "local:1", "dask", "ray"])
def engine(request):
    if request.param == "dask":
        return request.getfixturevalue("dask_client")
    if request.param == "ray":
        request.getfixturevalue("ray")
    return request.param


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Many small row groups, nulls, lists and floats whose sum depends on the order unless it is exact."""
    rng = np.random.default_rng(7)
    n = 4000
    frame = pl.DataFrame(
        {
            "user": rng.zipf(1.4, n) % 300,
            "city": [None if i % 13 == 0 else f"c{v}" for i, v in enumerate(rng.integers(0, 40, n))],
            "genres": [rng.integers(0, 9, k).tolist() for k in rng.integers(0, 4, n)],
            "price": rng.standard_normal(n) * 10.0 ** rng.integers(-8, 8, n),
            "count": rng.integers(-3, 900, n, dtype=np.int32),
            "click": rng.integers(0, 2, n, dtype=np.int8),
        }
    )
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    frame.write_parquet(path, row_group_size=250)
    return path


def workflow(engine) -> Workflow:
    cats = ["user", "city", "genres"] >> ops.Categorify(freq_threshold=2)
    conts = ["price", "count"] >> ops.FillMedian() >> ops.Normalize()
    encoded = ["user", "city"] >> ops.TargetEncoding("click", kfold=3)
    joined = ["city"] >> ops.JoinGroupby(cont_cols=["price"], stats=("count", "sum", "mean", "std"))
    lagged = ["count"] >> ops.DifferenceLag(["user"]) >> ops.FillMissing(0)
    return Workflow(cats + conts + encoded + joined + lagged + ["click"], engine=engine)


def fingerprint(folder) -> dict[str, str]:
    """The checksum of every file below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def expected(log, tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected")
    return _run(log, "local", folder)


def _run(log, engine, folder):
    data = Dataset(log, part_size=1)
    assert data.num_partitions == 16
    flow = workflow(engine)
    out = flow.fit_transform(data)
    flow.save(folder / "workflow")
    out.to_parquet(folder / "data", engine=engine, num_files=3)
    return fingerprint(folder), flow.transform(data).to_polars()


def test_same_bytes_everywhere(log, engine, expected, tmp_path):
    marks, frame = _run(log, engine, tmp_path)
    assert marks == expected[0]
    assert frame.equals(expected[1])


def test_groupby_and_shuffles_agree(log, engine):
    data = Dataset(log, part_size=1)
    grouped = Workflow(
        ["user", "count", "click"] >> ops.Groupby(["user"], sort_cols=["count"], aggs={"click": ["list", "sum"]}),
        engine=engine,
    )
    out = grouped.fit_schema(data.schema).transform(data).to_polars().sort("user")
    plain = data.to_polars().sort("count", maintain_order=True).group_by("user").agg(pl.col("click").sum()).sort("user")
    assert out["user"].to_list() == plain["user"].to_list()
    assert out["click_sum"].to_list() == plain["click"].to_list()
    shuffled = data.shuffle(3, engine=engine).to_polars()
    assert shuffled.equals(data.shuffle(3).to_polars())


def test_an_error_in_a_task_names_the_file(engine, tmp_path):
    path = tmp_path / "log.tsv"
    path.write_text("\n".join(["1\t2"] * 50 + ["broken"] + ["1\t2"] * 50))
    data = Dataset(path, names=["a", "b"], dtypes={"a": "int32", "b": "int32"}, part_size=100)
    with pytest.raises(DataError, match=r"log\.tsv, line 51"):
        Workflow(["a", "b"] >> ops.Normalize(), engine=engine).fit(data)


def test_map_keeps_order_and_reports_progress(engine):
    runner = resolve(engine)
    done: list[int] = []
    assert list(runner.map(_square, range(20), done.append)) == [i * i for i in range(20)]
    assert sorted(done) == list(range(20))
    assert runner.reduce(_add, _plus, range(20), None) == 190
    assert runner.reduce(_add, _plus, [], None) is None


def _square(x):
    return x * x


def _add(total, x):
    return (total or 0) + x


def _plus(a, b):
    return a + b


def test_a_dead_dask_worker_is_reported(dask_client):
    with pytest.raises(PenstockError, match="worker died"):
        list(resolve(dask_client).map(_die, [1]))


def _die(_):
    os._exit(1)


def test_unknown_engines_are_refused():
    for name in ("spark", "local:0", "local:x", 7):
        with pytest.raises(ParameterError, match="engine"):
            resolve(name)
