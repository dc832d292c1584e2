"""Whatever is refused of a text file, and by whom: the error names the file, and the line or the column at fault."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock import Workflow, ops
from penstock.core.errors import PenstockError
from penstock.data import Dataset
from penstock.loader import Loader

GOOD = ["click,user,price,word", *(f"{i % 2},{i % 40},{i}.5,w{i % 9}" for i in range(300))]


def text(row: int | None = None, line: str = "", header: str = GOOD[0]) -> bytes:
    lines = [header, *GOOD[1:]]
    if row is not None:
        lines[row] = line
    return ("\n".join(lines) + "\n").encode()


BAD = {
    "a ragged line": (text(150, "1,2"), "line 151"),
    "text among numbers": (text(150, "1,usr7,3.5,w1"), "line 151.*user|user.*line 151"),
    "a number beyond its range": (text(150, f"1,{10**30},3.5,w1"), "line 151.*user|user.*line 151"),
    "no number": (text(150, "1,7,3.5.5,w1"), "price"),
    "bytes that are no text": (text(150, "1,7,3.5,w\xff").replace("ÿ".encode(), b"\xff"), "line 151"),
    "a quote that is not closed": (text(150, '1,7,3.5,"w1'), r"line \d+"),
    "another name": (text(header="click,usr,price,word"), "column 'user'"),
    "no rows": (b"<html>404</html>\n", "column '(click|user)'|no column to load|column 'price'"),
    "JSON": (b'[{"click": 1}]\n', "one array of JSON"),
    "returns alone": (text().replace(b"\n", b"\r"), "carriage return"),
}


@pytest.fixture(scope="module")
def fitted() -> Workflow:
    rows = pl.read_csv(text())
    return Workflow(_graph()).fit(rows)


def _graph() -> Any:
    return (["user", "word"] >> ops.Categorify()) + (["price"] >> ops.FillMedian() >> ops.Normalize()) + ["click"]


ASKED: dict[str, Callable[[Path, Workflow], object]] = {
    "fit": lambda path, _: Workflow(_graph()).fit(Dataset(path), progress=False),
    "transform": lambda path, fitted: fitted.transform(Dataset(path)).to_polars(),
    "loader": lambda path, _: [*Loader(Dataset(path), batch_size=64, continuous=["price"], categorical=["user"])],
    "loader with a workflow": lambda path, fitted: [*Loader(Dataset(path), batch_size=64, transform=fitted)],
}


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
@pytest.mark.parametrize("fault", BAD)
def test_named(fault: str, suffix: str, fitted: Workflow, tmp_path: Path) -> None:
    content, place = BAD[fault]
    path = tmp_path / f"bad.{suffix}"
    path.write_bytes(gzip.compress(content) if suffix == "csv.gz" else content)
    refused = []
    for who, ask in ASKED.items():
        try:
            ask(path, fitted)
        except PenstockError as error:
            said = str(error)
            assert str(path) in said, (who, said)
            assert "penstock-scratch" not in said, (who, said)
            refused.append(said)
    assert any(re.search(place, said) for said in refused), refused
