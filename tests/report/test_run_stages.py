"""Every second of a run belongs to a stage that has a name."""

from __future__ import annotations

import json
import random

import pytest

from penstock.jobs import RunRecorder
from penstock.report import render
from penstock.report.run_stages import STAGES, whole_run


def stage(name: str, begin: float, seconds: float | None) -> dict:
    return {"name": name, "begin": begin, "seconds": seconds}


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([], [("start", 10.0)]),
        ([stage("etl", 0.0, 10.0)], [("etl", 10.0)]),
        ([stage("etl", 1.0, 2.0)], [("start", 1.0), ("etl", 2.0), ("finish", 7.0)]),
        ([stage("train", 4.0, None)], [("start", 4.0), ("train", 6.0)]),
        (
            [stage("etl", 1.0, 2.0), stage("train", 4.0, 5.0), stage("save", 9.0, 0.5)],
            [("start", 1.0), ("etl", 2.0), ("build", 1.0), ("train", 5.0), ("save", 0.5), ("finish", 0.5)],
        ),
        # Ready features: the first stage is training itself.
        ([stage("train", 3.0, 7.0)], [("start", 3.0), ("train", 7.0)]),
        ([stage("rank", 3.0, 7.0)], [("start", 3.0), ("rank", 7.0)]),  # a stage of one's own
    ],
)
def test_gaps_get_the_name_of_what_was_done_in_them(stages: list, expected: list) -> None:
    assert [(found["name"], found["seconds"]) for found in whole_run(stages, 10.0)] == expected


@pytest.mark.parametrize("seed", range(20))
def test_whatever_was_told_it_adds_up(seed: int) -> None:
    rng = random.Random(seed)
    stages, at = [], 0.0
    for name in rng.sample(sorted(STAGES), 4):
        at += rng.choice([0.0, rng.random()])
        stages.append(stage(name, round(at, 3), round(rng.random(), 3)))
        at += stages[-1]["seconds"] * rng.choice([1.0, 0.9])  # clocks of two places may overlap a little
    seconds = at + rng.random()
    found = whole_run(stages, seconds)
    assert sum(s["seconds"] for s in found) == pytest.approx(seconds, abs=0.01)
    ends = [s["begin"] + s["seconds"] for s in found]
    assert all(abs(end - after["begin"]) < 0.005 for end, after in zip(ends, found[1:], strict=False))


def test_the_page_explains_the_whole_run(recorded: RunRecorder) -> None:
    report = json.loads((recorded.directory / "report.json").read_text())
    found = whole_run(report["stages"], report["seconds"])
    assert sum(s["seconds"] for s in found) == pytest.approx(report["seconds"], abs=0.01)
    assert {"etl", "train"} <= {s["name"] for s in found} <= set(STAGES)
    page = render(report)
    assert all(STAGES[s["name"]] in page for s in found)
    loop = next(lane for lane in report["time"]["lanes"] if lane["name"] == "training loop")
    trained = next(s["seconds"] for s in report["stages"] if s["name"] == "train")
    assert loop["seconds"] == pytest.approx(trained, rel=0.05)  # the loop's lane is the stage, seen closer
