"""Default settings learn what there is to learn: a small version of benchmarks/quality.py."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))  # as for a script that runs there

import quality  # noqa: E402
from quality_teachers import TEACHERS  # noqa: E402

from penstock.nn.registry import MODELS  # noqa: E402


@pytest.mark.parametrize("teacher", list(TEACHERS))
def test_teachers_are_the_same_every_time_and_leave_something_to_learn(teacher: str) -> None:
    one, again = (TEACHERS[teacher](300, 3_000) for _ in range(2))
    assert one.train.equals(again.train) and one.test.equals(again.test)
    assert set(one.train.columns) == {"click", *one.categorical, *one.continuous}
    assert 0.7 < quality.auc(one.best, one.test["click"].to_numpy()) < 0.95
    assert abs(one.best.mean() - one.test["click"].mean()) < 0.05


@pytest.mark.parametrize(
    ("teacher", "model"), [("id_only", "DLRM"), pytest.param("numeric", "MLP", marks=pytest.mark.slow)]
)
def test_defaults_reach_what_a_linear_model_reaches(teacher: str, model: str, tmp_path: Path) -> None:
    planted = TEACHERS[teacher](2_000, 5_000)
    own = quality.penstock_auc(planted, model, tmp_path / "run", {"epochs": 3})
    features = quality.Features.of(planted, tmp_path / "run")
    assert [len(labels) for _, _, labels in features.parts.values()] == [1_800, 200, 5_000]
    linear = quality.linear_auc(features)
    assert linear is not None and own > linear - 0.02 and own > 0.55


def test_the_rule() -> None:
    assert quality.holds(0.75, 0.754, 0.752) and quality.holds(0.75, None, None)
    assert not quality.holds(0.75, 0.756, 0.7) and not quality.holds(0.75, 0.7, 0.754)


@pytest.mark.slow
@pytest.mark.parametrize("teacher", ["id_only", "interactions"])
@pytest.mark.parametrize("model", list(MODELS))
def test_every_model_keeps_the_rule(teacher: str, model: str) -> None:
    (claim,) = quality.measure(teacher, 8_000, [model], 30_000, search=True)
    assert claim.extra["holds"], claim.line()


def test_auc_is_that_of_the_metric() -> None:
    assert quality.auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])) == 0.75
