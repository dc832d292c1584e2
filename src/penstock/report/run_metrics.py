"""A run's figures in the text format that Prometheus reads: every name is in `FAMILIES`, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

from penstock.core.latencies import BOUNDS, Counts

CONTENT_TYPE = "text/plain; version=0.0.4"
Labels: TypeAlias = Mapping[str, Any]
Sample: TypeAlias = tuple[str, Labels, Any]  # a family's name, labels, and a number or counts of durations


class Family(NamedTuple):
    """What is counted under one name."""

    kind: str  # "gauge", "counter" or "histogram"
    about: str


FAMILIES: dict[str, Family] = {
    "penstock_run_state": Family("gauge", "1 for the state that the run is in."),
    "penstock_run_seconds": Family("gauge", "Seconds since the run began."),
    "penstock_run_step": Family("gauge", "The last training step that was recorded."),
    "penstock_run_steps": Family("gauge", "The steps that there are to be."),
    "penstock_run_rows": Family("gauge", "Rows trained on."),
    "penstock_run_rows_per_second": Family("gauge", "How fast training goes, by its last record."),
    "penstock_run_figure": Family("gauge", "Loss and metrics of the last record, of training or held-out rows."),
    "penstock_run_stage_seconds_total": Family("counter", "Seconds of training by stage of a step."),
    "penstock_embedding_rows": Family("gauge", "Rows of embeddings by table."),
    "penstock_embedding_bytes": Family("gauge", "Memory of embeddings by table."),
    "penstock_store_restarts_total": Family("counter", "Deaths of shards that the store has recovered from."),
    "penstock_shard_up": Family("gauge", "1 where the process answers, 0 where it is silent or down."),
    "penstock_shard_rows": Family("gauge", "Rows that a shard holds."),
    "penstock_shard_bytes": Family("gauge", "Memory of a shard's tables."),
    "penstock_shard_updates_total": Family("counter", "Updates that a shard has applied."),
    "penstock_shard_evicted_total": Family("counter", "Rows that a shard has evicted."),
    "penstock_shard_straggles": Family("gauge", "Times what other shards take for a command; 0 where it keeps up."),
    "penstock_shard_queue_seconds": Family("gauge", "How long the last question stood in a shard's queue."),
    "penstock_shard_commands_at_hand": Family("gauge", "The most commands at once since the last look, at work too."),
    "penstock_shard_command_seconds": Family("histogram", "What a command takes at a shard."),
    "penstock_trainer_up": Family("gauge", "1 where the trainer answers, 0 where it is silent or down."),
    "penstock_trainer_queue": Family("gauge", "Batches ready, and look-ups and updates that were ordered."),
    "penstock_trainer_calls_in_flight": Family("gauge", "Calls of a trainer that shards have not answered."),
    "penstock_trainer_command_seconds": Family("histogram", "What a trainer waits for its shards."),
}
_NO_FIGURES = ("step", "rows", "rows_per_second", "seconds", "at", "epoch")
_STATES = ("running", "done", "failed", "interrupted")


def metrics_text(report: Mapping[str, Any]) -> str:
    """What Prometheus reads.

    Args:
        report: plain data, as `RunRecorder.report` gives it.

    Returns:
        Lines of text.

    >>> print(metrics_text({"state": "done", "seconds": 3.5}), end="")  # doctest: +ELLIPSIS
    # HELP penstock_run_state 1 for the state that the run is in.
    # TYPE penstock_run_state gauge
    penstock_run_state{state="running"} 0
    penstock_run_state{state="done"} 1
    ...
    # TYPE penstock_run_seconds gauge
    penstock_run_seconds 3.5
    """
    found: dict[str, list[tuple[Labels, Any]]] = {}
    for name, labels, value in (*_of_run(report), *_of_tables(report), *_of_cluster(report.get("cluster") or {})):
        if value is not None:
            found.setdefault(name, []).append((labels, value))
    return "".join(line for name in FAMILIES if name in found for line in _lines(name, found[name]))


# What there is.


def _of_run(report: Mapping[str, Any]) -> Iterator[Sample]:
    for state in _STATES:
        yield "penstock_run_state", {"state": state}, int(report.get("state") == state)
    yield "penstock_run_seconds", {}, report.get("seconds")
    yield "penstock_run_steps", {}, (report.get("training") or {}).get("steps")
    records, spent = report.get("records") or [], dict[str, float]()
    last = {record["kind"]: record for record in records}
    trained = last.get("train", {})
    for name, key in (("step", "step"), ("rows", "rows"), ("rows_per_second", "rows_per_second")):
        yield f"penstock_run_{name}", {}, trained.get(key)
    for kind in ("train", "valid"):
        for figure, value in last.get(kind, {}).items():
            if figure not in _NO_FIGURES and isinstance(value, float):
                yield "penstock_run_figure", {"rows": kind, "figure": figure}, value
    for record in records:
        if record["kind"] == "train":
            for stage, seconds in (record.get("seconds") or {}).items():
                spent[stage] = spent.get(stage, 0.0) + (seconds or 0.0)
    for stage, seconds in spent.items():
        yield "penstock_run_stage_seconds_total", {"stage": stage}, seconds


def _of_tables(report: Mapping[str, Any]) -> Iterator[Sample]:
    store = report.get("store") or {}
    for table in store.get("tables") or []:
        yield "penstock_embedding_rows", {"table": table["name"]}, table.get("rows")
        yield "penstock_embedding_bytes", {"table": table["name"]}, table.get("bytes")
    if "restarts" in store:
        yield "penstock_store_restarts_total", {}, len(store["restarts"])


def _of_cluster(cluster: Mapping[str, Any]) -> Iterator[Sample]:
    for shard in cluster.get("shards") or []:
        own = {"shard": shard["shard"], "replica": shard["replica"]}
        yield "penstock_shard_up", {**own, "role": shard.get("role", "unknown")}, int(shard["state"] == "up")
        yield "penstock_shard_queue_seconds", own, shard.get("answered_in")
        for name, key in (("rows", "rows"), ("bytes", "bytes"), ("updates_total", "updates")):
            yield f"penstock_shard_{name}", own, shard.get(key)
        yield "penstock_shard_evicted_total", own, shard.get("evicted")
        yield "penstock_shard_commands_at_hand", own, shard.get("queued")
        for command in ("lookup", "update") if "straggles" in shard else ():
            yield "penstock_shard_straggles", {**own, "command": command}, shard["straggles"].get(command, 0)
        for command, counts in (shard.get("seconds") or {}).items():
            yield "penstock_shard_command_seconds", {**own, "command": command}, counts
    for trainer in cluster.get("trainers") or []:
        own = {"trainer": trainer["trainer"]}
        yield "penstock_trainer_up", own, int(trainer["state"] == "up")
        yield "penstock_trainer_calls_in_flight", own, trainer.get("in_flight")
        for queue, length in (trainer.get("queues") or {}).items():
            yield "penstock_trainer_queue", {**own, "queue": queue}, length
        for command, counts in (trainer.get("seconds") or {}).items():
            yield "penstock_trainer_command_seconds", {**own, "command": command}, counts


# How it is written.


def _lines(name: str, samples: Iterable[tuple[Labels, Any]]) -> Iterator[str]:
    family = FAMILIES[name]
    yield f"# HELP {name} {family.about}\n# TYPE {name} {family.kind}\n"
    for labels, value in samples:
        if family.kind == "histogram":
            yield from _histogram(name, labels, value)
        else:
            yield f"{name}{_written(labels)} {_number(value)}\n"


def _histogram(name: str, labels: Labels, counts: Counts) -> Iterator[str]:
    for bound, total in zip((*BOUNDS, math.inf), accumulate(counts["buckets"]), strict=True):
        yield f"{name}_bucket{_written({**labels, 'le': _number(bound)})} {total}\n"
    yield f"{name}_sum{_written(labels)} {_number(counts['sum'])}\n"
    yield f"{name}_count{_written(labels)} {counts['count']}\n"


def _written(labels: Labels) -> str:
    pairs = ",".join(f'{key}="{_escaped(str(value))}"' for key, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(value) if isinstance(value, int) else repr(float(value))
