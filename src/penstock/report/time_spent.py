"""Where the time of a training went, and what that means: from the records of `fit` and the loader's counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.report.words import share

_LOOP = {
    "wait": "waiting for a batch",
    "forward": "model, forward",
    "backward": "model, backward",
    "optimizer": "dense optimizer",
    "step": "training steps",
    "rest": "metrics and the rest",
    "compile": "compiling the step",
    "evaluation": "evaluation",
    "checkpoints": "checkpoints",
    "around": "starting and ending",
}
_THREAD = {
    "fetch": "waiting for the loader",
    "prepare": "making a batch ready",
    "lookup": "embedding look-up",
    "update": "embedding update",
    "idle": "idle",
}
_LOADER = {"read": "read", "decode": "decode", "shuffle": "shuffle", "copy": "copy to the device"}
_DENSE = ("forward", "backward", "optimizer", "step")  # a loop whose tables are on the device times whole steps
_WAITS = 0.2  # from this share on, waiting is what a training's pace depends on


def time_spent(
    records: Iterable[Mapping[str, Any]],
    loader: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] = {},
    trained: float = 0.0,
) -> dict[str, Any]:
    """Lanes of stages (what runs beside what), with the verdict.

    `loader` is `Stats.to_dict()` of the training loader. `settings` may hold `staleness` and `device`, which the advice
    depends on. `trained` are the seconds of the whole stage of training, where it is over: those that no record tells
    of went by before the first step and after the last.

    >>> seconds = {"total": 10.0, "wait": 7.0, "forward": 1.0, "fetch": 8.0, "lookup": 1.0}
    >>> found = time_spent([{"kind": "train", "step": 50, "seconds": seconds}])
    >>> found["verdict"]["kind"], [lane["name"] for lane in found["lanes"]]
    ('loader-bound', ['training loop', 'embedding thread'])
    """
    records = list(records)
    spent = _sums(record["seconds"] for record in records if isinstance(record.get("seconds"), Mapping))
    lanes = []
    if spent.get("total"):
        lanes = [_loop(spent, records, trained), _thread(spent)]
    if loader is not None and loader.get("batches"):
        lanes.append(_loader(loader))
    return {
        "lanes": [lane for lane in lanes if any(stage["seconds"] for stage in lane["stages"])],
        "verdict": _verdict(spent, loader, settings),
    }


def _sums(parts: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for stage, seconds in part.items():
            total[stage] = total.get(stage, 0.0) + (seconds or 0.0)
    return total


def _loop(spent: Mapping[str, float], records: list[Mapping[str, Any]], trained: float) -> dict[str, Any]:
    own = {stage: spent.get(stage, 0.0) for stage in ("wait", *_DENSE)}
    own["rest"] = max(0.0, spent["total"] - sum(own.values()))
    own["compile"] = spent.get("compile", 0.0)
    for stage, kind in (("evaluation", "valid"), ("checkpoints", "checkpoint")):
        own[stage] = sum(record.get("seconds") or 0.0 for record in records if record["kind"] == kind)
    own["around"] = max(0.0, trained - sum(own.values()))
    return _lane("training loop", "one after the other: together they are the time training took", own, _LOOP)


def _thread(spent: Mapping[str, float]) -> dict[str, Any]:
    own = {stage: spent.get(stage, 0.0) for stage in ("fetch", "prepare", "lookup", "update")}
    own["idle"] = max(0.0, spent["total"] - sum(own.values())) if sum(own.values()) else 0.0
    return _lane("embedding thread", "beside the loop: coming batches and past updates", own, _THREAD)


def _loader(loader: Mapping[str, Any]) -> dict[str, Any]:
    own = {stage: loader["stages"][stage]["seconds"] for stage in _LOADER}
    lane = _lane("loader threads", "seconds of work, summed over the loader's threads", own, _LOADER)
    for stage in lane["stages"]:
        stage["bytes"] = loader["stages"][stage["key"]]["bytes"]
    return lane


def _lane(name: str, about: str, seconds: Mapping[str, float], titles: Mapping[str, str]) -> dict[str, Any]:
    stages = [{"key": key, "name": titles[key], "seconds": round(value, 6)} for key, value in seconds.items()]
    return {"name": name, "about": about, "seconds": round(sum(seconds.values()), 6), "stages": stages}


# The verdict.


def _verdict(
    spent: Mapping[str, float], loader: Mapping[str, Any] | None, settings: Mapping[str, Any]
) -> dict[str, str]:
    if not spent.get("total"):
        text = loader["verdict"] if loader is not None and loader.get("batches") else "nothing was trained yet"
        return _says("unknown", text[:1].upper() + text[1:] + ".", "")
    waited = spent.get("wait", 0.0) / spent["total"]
    if waited < _WAITS:
        return _dense_bound(spent, waited, settings)
    beside = {stage: spent.get(stage, 0.0) for stage in ("fetch", "prepare", "lookup", "update")}
    slowest = max(beside, key=lambda stage: beside[stage])
    said = f"The training loop waited for batches {share(waited)} of the time"
    if slowest == "fetch":
        return _loader_bound(said, loader)
    name = {"lookup": "look-up", "update": "update", "prepare": "copy"}[slowest]
    what = {"lookup": "look-ups of embeddings", "update": "updates of embeddings", "prepare": "making batches ready"}
    part = beside[slowest] / max(sum(beside.values()), 1e-9)
    text = f"{said}; {share(part)} of the work it waited for is {what[slowest]}."
    if settings.get("staleness") == 1:
        return _says(f"{name}-bound", text, "With staleness 1 nothing overlaps: staleness 4 would hide most of it.")
    advice = "Fewer or narrower embeddings, larger batches or more cores help." if slowest != "prepare" else ""
    return _says(f"{name}-bound", text, advice)


def _dense_bound(spent: Mapping[str, float], waited: float, settings: Mapping[str, Any]) -> dict[str, str]:
    own = {stage: spent.get(stage, 0.0) for stage in _DENSE}
    own["rest"] = max(0.0, spent["total"] - sum(own.values()) - spent.get("wait", 0.0))
    slowest = max(own, key=lambda stage: own[stage])
    most = f"{share(own[slowest] / spent['total'])} went into {_LOOP[slowest].replace('model, ', 'the model’s ')}"
    never = "never waited" if waited < 0.001 else f"waited only {share(waited)} of the time"
    text = f"The model sets the pace: the loop {never} for batches, and {most}."
    on_gpu = str(settings.get("device", "cpu")).startswith("cuda")
    advice = "Data and embeddings arrive in time. " + (
        "bfloat16 autocast or a smaller dense part would make it faster."
        if on_gpu
        else "Larger batches, a smaller dense part or a GPU would make it faster."
    )
    return _says("dense-bound", text, advice)


def _loader_bound(said: str, loader: Mapping[str, Any] | None) -> dict[str, str]:
    advice = "cache='memory' spares later epochs the reading, and more loader threads decode side by side."
    if loader is None or not loader.get("batches"):
        return _says("loader-bound", f"{said}, for the loader.", advice)
    work = {stage: loader["stages"][stage]["seconds"] for stage in _LOADER}
    slowest = max(work, key=lambda stage: work[stage])
    part = share(work[slowest] / max(sum(work.values()), 1e-9))
    return _says("loader-bound", f"{said}, for the loader; {part} of the loader’s work is {_LOADER[slowest]}.", advice)


def _says(kind: str, text: str, advice: str) -> dict[str, str]:
    return {"kind": kind, "text": text, "advice": advice}
