"""In a forked child everything works, or is refused with the reason; nothing waits for threads that are not there."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from penstock import Dataset, Workflow, ops
from penstock.core.errors import ForkError
from penstock.core.runtime.forks import Process, polars_is_lost, require_polars
from penstock.embedding import SGD, Store, slots_from_schema
from penstock.loader import Loader
from penstock.nn import MLP
from penstock.serve import Predictor, save_model

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
FRAME = pl.DataFrame({"row": np.arange(1000), "price": np.arange(1000) / 7, "shop": [f"s{i % 7}" for i in range(1000)]})
WORKS, REFUSED = 0, 3


def in_child(function: Callable[[], Any], seconds: float = 300.0) -> int:
    """How a forked child ends that calls the function: WORKS, REFUSED, or 1 after another error."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            function()
            status = WORKS
        except ForkError as error:
            status = REFUSED if "spawn" in str(error) else 1
        finally:
            os._exit(status)
    deadline = time.time() + seconds
    while time.time() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the forked process hangs")


class Parent:
    """What a process has that forks: data sets it has read, and a fitted workflow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        FRAME.write_parquet(folder / "a.parquet", row_group_size=300)
        FRAME.write_csv(folder / "a.csv")
        (folder / "a.csv.gz").write_bytes(gzip.compress((folder / "a.csv").read_bytes()))
        FRAME.write_ipc(folder / "a.arrow", compression="uncompressed")
        FRAME.write_avro(folder / "a.avro")
        self.parquet, self.text = self.open("a.parquet"), Dataset(str(folder / "a.csv"), part_size=5000)
        self.ipc, self.avro, self.memory = self.open("a.arrow"), self.open("a.avro"), Dataset(FRAME)
        self.several, self.packed = Dataset(FRAME, part_size=5000), Dataset(str(folder / "a.csv.gz"))
        for data in (self.parquet, self.text, self.several):
            assert data.to_polars().height == 1000
        graph = (["row", "price"] >> ops.Normalize()) + (["shop"] >> ops.Categorify())
        self.workflow = Workflow(graph).fit(self.parquet)
        self.workflow.save(folder / "workflow")
        Workflow(["price"] >> ops.Normalize()).fit(self.parquet).save(folder / "numbers")
        save_model(folder / "model", self.workflow, MLP(self.workflow.output_schema, 2, hidden=()), self.store())
        self.predictor = Predictor(folder / "model")
        assert len(self.predictor.predict(FRAME)) == 1000

    def store(self) -> Store:
        return Store(slots_from_schema(self.workflow.output_schema, 2), SGD())

    def open(self, name: str) -> Dataset:
        return Dataset(str(self.folder / name), part_size=1)

    def loaded(self, **options: Any) -> int:
        data = options.pop("data", self.parquet)
        return sum(len(features["row"]) for features, _ in Loader(data, 100, shuffle=True, **options))


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Parent:
    return Parent(tmp_path_factory.mktemp("forks"))


def equal(left: object, right: object) -> None:
    assert left == right


def naming_the_file(parent: Parent) -> None:
    """Packed text is read from a copy, of which nobody has heard."""
    try:
        parent.packed.to_polars()
    except ForkError as error:
        assert "a.csv.gz needs polars" in str(error)
        raise


# What may be asked of a child, and how it must end.
CASES: dict[str, tuple[int, Callable[[Parent], Any]]] = {
    "open parquet": (WORKS, lambda p: equal(p.open("a.parquet").num_rows, 1000)),
    "open a frame": (WORKS, lambda p: equal(Dataset({"x": [1, 2], "y": [3, 4]}).to_polars().rows(), [(1, 3), (2, 4)])),
    "open Arrow": (WORKS, lambda p: equal(Dataset(pa.table({"x": [1, 2]})).num_rows, 2)),
    "a frame in memory": (WORKS, lambda p: equal(p.memory.to_polars(["price", "row"]).height, 1000)),
    "numbers of parquet in a loader": (
        WORKS,
        lambda p: equal(p.loaded(data=p.parquet.select(["row", "price"]), continuous=["row", "price"]), 1000),
    ),
    "one row": (WORKS, lambda p: p.workflow.transform_row({"row": 1, "price": 2.0, "shop": "s1"})),
    "open text": (REFUSED, lambda p: p.open("a.csv")),
    "parquet": (REFUSED, lambda p: p.parquet.to_polars()),
    "text": (REFUSED, lambda p: p.text.to_polars()),
    "packed text": (REFUSED, naming_the_file),
    "rows of text": (REFUSED, lambda p: Dataset(str(p.folder / "a.csv"), names=FRAME.columns).num_rows),
    "Arrow IPC": (REFUSED, lambda p: p.ipc.to_polars()),
    "Avro": (REFUSED, lambda p: p.avro.to_polars()),
    "several partitions in memory": (REFUSED, lambda p: p.several.to_polars()),
    "the first rows": (REFUSED, lambda p: p.parquet.head()),
    "a filter": (REFUSED, lambda p: p.memory.filter(pl.col("row") > 3).to_polars()),
    "a split": (REFUSED, lambda p: p.memory.split([0.5, 0.5])[0].to_polars()),
    "a slice": (REFUSED, lambda p: p.parquet.repartition(2).to_polars()),
    "write": (REFUSED, lambda p: p.memory.to_parquet(p.folder / "never")),
    "fit": (REFUSED, lambda p: Workflow(["price"] >> ops.Normalize()).fit(p.memory)),
    "transform a frame": (REFUSED, lambda p: p.workflow.transform(FRAME)),
    "transform a data set": (REFUSED, lambda p: p.workflow.transform(p.memory).to_polars()),
    "load a workflow of numbers": (WORKS, lambda p: Workflow.load(p.folder / "numbers").transform_row({"price": 2.0})),
    "load a workflow": (REFUSED, lambda p: Workflow.load(p.folder / "workflow")),
    "save a workflow": (REFUSED, lambda p: p.workflow.save(p.folder / "never")),
    "predict one row": (WORKS, lambda p: p.predictor.predict([{"row": 1, "price": 2.0, "shop": "s1"}])),
    "predict a frame": (REFUSED, lambda p: p.predictor.predict(FRAME)),
    "predict rows": (WORKS, lambda p: p.predictor.predict(FRAME.to_dicts())),
    "open a model": (REFUSED, lambda p: Predictor(p.folder / "model")),
    "a store": (WORKS, lambda p: p.store().lookup({"shop": np.arange(3)})),
    "text in a loader": (REFUSED, lambda p: p.loaded(data=p.text.select(["row"]), continuous=["row"])),
    "a loader with a workflow": (REFUSED, lambda p: p.loaded(transform=p.workflow)),
    "a loader with a function": (REFUSED, lambda p: p.loaded(transform=lambda f: f.select(pl.col("row") * 2))),
}


@pytest.mark.parametrize("case", CASES)
def test_a_forked_child_works_or_says_why_not(case: str, parent: Parent) -> None:
    expected, function = CASES[case]
    assert in_child(lambda: function(parent)) == expected


def test_nothing_is_left_of_what_was_refused(parent: Parent) -> None:
    assert in_child(lambda: parent.memory.to_parquet(parent.folder / "refused")) == REFUSED
    assert not list(parent.folder.glob("*refused*"))


def test_the_parent_goes_on(parent: Parent) -> None:
    assert in_child(lambda: None) == WORKS
    assert not polars_is_lost() and parent.parquet.to_polars().height == 1000


def test_a_grandchild_knows_too(parent: Parent) -> None:
    assert in_child(lambda: equal(in_child(lambda: require_polars("this")), REFUSED)) == WORKS


def test_a_process_is_told_from_its_child() -> None:
    here = Process()
    assert here.is_this()
    assert in_child(lambda: equal(here.is_this(), False)) == WORKS


def test_a_child_forked_before_the_first_use_works() -> None:
    """In a process of its own: here polars has run long since."""
    import subprocess
    import sys

    script = """
import os
import penstock
from penstock.core.runtime.forks import polars_is_lost
child = os.fork()
if child == 0:
    try:
        import polars as pl
        assert not polars_is_lost()
        data = penstock.Dataset(pl.DataFrame({"x": [1, 2, 3], "y": [1, 2, 3]})).filter(pl.col("x") > 1)
        assert data.to_polars().rows() == [(2, 2), (3, 3)]
        os._exit(0)
    finally:
        os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert done.stdout == "0\n", done.stderr
