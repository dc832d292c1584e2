"""The verdict names what a training waits for."""

from __future__ import annotations

import pytest

from penstock.loader.stats import Stats
from penstock.report.time_spent import time_spent


def records(**seconds: float) -> list[dict]:
    half = {stage: value / 2 for stage, value in seconds.items()}
    return [{"kind": "train", "step": 50, "seconds": half}, {"kind": "train", "step": 100, "seconds": half}]


def loader_stats(**seconds: float) -> dict:
    stats = Stats(rows=10, batches=1)
    for stage, value in seconds.items():
        stats.add(stage, value)
    return stats.to_dict()


@pytest.mark.parametrize(
    ("seconds", "kind", "words"),
    [
        ({"total": 10, "wait": 0.1, "forward": 3, "backward": 6}, "dense-bound", "60 % went into the model’s backward"),
        ({"total": 10, "wait": 0.0, "forward": 3, "fetch": 9}, "dense-bound", "never waited"),
        ({"total": 10, "wait": 6, "fetch": 7, "lookup": 1}, "loader-bound", "60 % of the time, for the loader"),
        ({"total": 10, "wait": 6, "fetch": 1, "lookup": 6, "update": 2}, "look-up-bound", "look-ups of embeddings"),
        ({"total": 10, "wait": 6, "fetch": 1, "lookup": 2, "update": 6}, "update-bound", "updates of embeddings"),
        ({"total": 10, "wait": 6, "prepare": 7}, "copy-bound", "making batches ready"),
        # Tables on the device: the loop times whole steps, and there is no thread beside it.
        ({"total": 10, "wait": 1, "step": 8}, "dense-bound", "80 % went into training steps"),
        ({"total": 10, "wait": 5, "step": 4}, "loader-bound", "50 % of the time, for the loader"),
    ],
)
def test_verdicts(seconds: dict, kind: str, words: str) -> None:
    verdict = time_spent(records(**seconds))["verdict"]
    assert verdict["kind"] == kind and words in verdict["text"]


def test_advice_depends_on_the_settings() -> None:
    waits = records(total=10, wait=6, lookup=6)
    assert "staleness 4" in time_spent(waits, None, {"staleness": 1})["verdict"]["advice"]
    assert "staleness" not in time_spent(waits, None, {"staleness": 4})["verdict"]["advice"]
    dense = records(total=10, forward=9)
    assert "bfloat16" in time_spent(dense, None, {"device": "cuda:0"})["verdict"]["advice"]


def test_the_loader_names_its_slowest_stage() -> None:
    told = time_spent(records(total=10, wait=6, fetch=7), loader_stats(read=1.0, decode=3.0))
    assert "75 % of the loader’s work is decode" in told["verdict"]["text"]
    assert told["lanes"][-1]["name"] == "loader threads" and told["lanes"][-1]["seconds"] == 4.0


def test_without_timings_the_loader_alone_speaks() -> None:
    told = time_spent([{"kind": "train", "step": 1}], loader_stats(wait_for_consumer=1.0))
    assert told["verdict"] == {
        "kind": "unknown", "advice": "",
        "text": "The model is the bottleneck: the loader waited 100% of the time.",
    }  # fmt: skip
    assert time_spent([])["verdict"]["text"] == "Nothing was trained yet."
    assert time_spent([])["lanes"] == []


def test_evaluations_and_checkpoints_have_their_place_in_the_loop() -> None:
    more = [{"kind": "valid", "step": 100, "seconds": 2.0}, {"kind": "checkpoint", "step": 100, "seconds": 0.5}]
    lane = time_spent([*records(total=10, forward=4), *more])["lanes"][0]
    stages = {stage["key"]: stage["seconds"] for stage in lane["stages"]}
    assert (stages["rest"], stages["evaluation"], stages["checkpoints"], lane["seconds"]) == (6.0, 2.0, 0.5, 12.5)
