"""`--tables hashed` on the command line, alone and behind a cache: trained, resumed, evaluated, asked, served."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

from .conftest import asked, call, ok

QUICK = ("--model", "MLP", "--embedding-dim", 4, "--batch-size", 32, "--epochs", 1, "--device", "cpu")
ROWS, MOST = 600, 120
BOUND = ("--tables", "hashed", "--max-rows", MOST)


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ids of which more come than rows may stay."""
    draw, place = np.random.default_rng(0), tmp_path_factory.mktemp("clicks") / "clicks.csv"
    users = draw.integers(0, 200, ROWS)
    columns = {"user": users + 2**40, "city": [f"city {user % 9}" for user in users], "price": draw.random(ROWS)}
    pl.DataFrame(columns | {"click": (draw.random(ROWS) < 0.2 + 0.6 * (users % 2)).astype(np.int64)}).write_csv(place)
    return place


@pytest.mark.parametrize("cached", [(), ("--cache-rows", 110)], ids=["on the device", "behind a cache"])
def test_the_whole_way(clicks: Path, tmp_path: Path, cached: tuple[str, int] | tuple[()]) -> None:
    place = tmp_path / "run"
    result = call("train", clicks, "--label", "click", "-o", place, *QUICK, *BOUND, *cached)
    assert result.exit_code == 0, result.output
    config = yaml.safe_load((place / "config.yaml").read_text())
    assert config["tables"] == "hashed" and config["store"]["eviction"] == {"max_rows": MOST}
    report = json.loads((place / "report.json").read_text())
    assert sum(table["rows"] for table in report["store"]["tables"]) <= MOST
    found = json.loads(ok("train", "--resume", "-o", place, "--epochs", 2, "--json"))
    assert found["steps"] == 2 * 17 and found["embedding_rows"] <= MOST
    figures = json.loads(ok("evaluate", place, place / "valid", "--json"))
    assert figures["log_loss"] == pytest.approx(found["log_loss"], rel=1e-5)
    scores = pl.read_csv(ok("predict", place, clicks, "--output", "-").encode())["probability"]
    rows = pl.read_csv(clicks).head(3).to_dicts()
    np.testing.assert_allclose(asked(place / "model", {"rows": rows}), scores[:3], rtol=1e-5)


def test_a_bound_below_a_batch_says_so(clicks: Path, tmp_path: Path) -> None:
    options = (*QUICK, "--tables", "hashed", "--max-rows", 5)
    result = call("train", clicks, "--label", "click", "-o", tmp_path / "run", *options)
    said = result.stderr.splitlines()[-1]
    assert result.exit_code == 1 and "max_rows=5" in said and "smaller batches" in said
