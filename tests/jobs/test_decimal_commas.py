"""Numbers with a comma before their fraction are drafted as numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

from penstock.etl import Workflow
from penstock.etl.input_section import open_input
from penstock.jobs import draft_recipe
from penstock.jobs.draft_columns import judge


def written(numbers: np.ndarray, thousands: str = "") -> list[str]:
    return [f"{n:,.2f}".translate(str.maketrans({",": thousands, ".": ","})) for n in numbers]


@pytest.mark.parametrize("thousands", ["", "."])
def test_they_are_features_by_their_value(tmp_path: Path, thousands: str) -> None:
    amounts = np.random.default_rng(0).normal(5_000, 900, 400).round(2)
    lines = [
        f"{text};{int(n > 5_000) if i % 4 else i % 8 // 4}"
        for i, (n, text) in enumerate(zip(amounts, written(amounts, thousands), strict=True))
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["Betrag in €;gekauft", *lines]) + "\n")
    draft = draft_recipe(tmp_path / "rows.csv", label="gekauft")
    assert "written with a comma" in draft.text
    recipe = yaml.safe_load(draft.text)
    data = open_input(tmp_path / "rows.csv", recipe["input"])
    features = Workflow.from_recipe(recipe).fit_transform(data).to_polars()
    np.testing.assert_allclose(features["Betrag in €"], (amounts - amounts.mean()) / amounts.std(ddof=1), atol=1e-4)


@pytest.mark.parametrize(
    ("values", "node"),
    [
        (["1,5", "2,25", "3,0"], "decimals"),
        (["1,5", "2", "-3,0"], "decimals"),
        (["0,5", "0,25", "9000,0"], "skewed_decimals"),
        (["1.234", "2.345", "3.456"], "categories"),  # fractions or thousands: nobody knows
        (["1,2,3", "4,5", "1,3,5", "2,4", "3", "1,5", "2,3,4"], "lists"),
        (["a,b", "b,c", "a,c", "a,b,c", "c", "b"], "lists"),
    ],
)
def test_what_is_one_and_what_is_not(values: list[str], node: str) -> None:
    series = pl.Series("x", values * 40)
    assert judge(series, pl.Series("y", [i // 7 % 2 for i in range(len(series))])).node == node
