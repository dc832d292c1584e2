"""The run from its first second to its last: every one of them belongs to a stage that has a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

STAGES = {
    "start": "starting up",
    "etl": "features",
    "build": "building the model",
    "regression": "regression first",
    "train": "training",
    "second": "training without it",
    "save": "saving",
    "predict": "prediction",
    "finish": "finishing",
}
# What a gap is that lies before a stage.
_BEFORE = {"etl": "start", "regression": "build", "train": "build"}
_SHORTEST = 0.005  # the share of a run from which a gap is a stage of its own; a shorter one goes to what follows it


def whole_run(stages: Iterable[Mapping[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """The stages that were told of and those between them, one after the other, `seconds` in all.

    Args:
        stages: `name`, `begin` and `seconds` (None for one that still goes on), in seconds since the run began.
        seconds: since the run began.

    Returns:
        Stages with `name`, `begin` and `seconds`, without gaps.

    >>> told = [{"name": "etl", "begin": 2.0, "seconds": 3.0}, {"name": "train", "begin": 6.0, "seconds": 4.0}]
    >>> [(stage["name"], stage["seconds"]) for stage in whole_run(told, 10.5)]
    [('start', 2.0), ('etl', 3.0), ('build', 1.0), ('train', 4.0), ('finish', 0.5)]
    """
    out: list[dict[str, Any]] = []
    at = 0.0

    def add(name: str, took: float) -> None:
        nonlocal at
        if took > 0:
            out.append({"name": name, "begin": round(at, 3), "seconds": round(took, 3)})
        at += took

    for stage in sorted(stages, key=lambda stage: stage["begin"]):
        if stage["begin"] - at >= _SHORTEST * seconds:
            add("start" if not out else _BEFORE.get(stage["name"], "finish"), stage["begin"] - at)
        end = seconds if stage["seconds"] is None else min(seconds, stage["begin"] + stage["seconds"])
        add(stage["name"], max(0.0, end - at))
    left = max(0.0, seconds - at)
    if out and left < _SHORTEST * seconds:
        out[-1]["seconds"] = round(out[-1]["seconds"] + left, 3)
    else:
        add("finish" if out else "start", left)
    return out


def stage_title(name: str) -> str:
    """A stage in words; one of a job of one's own is called as that calls it."""
    return STAGES.get(name, name)
