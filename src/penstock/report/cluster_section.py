"""The part of a run's page that tells of its cluster: what shards and trainers do, and which of them fall behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.core.latencies import percentile
from penstock.core.pages.document import section
from penstock.core.pages.markup import Markup, joined, table, tag
from penstock.report.charts import bar, range_bar
from penstock.report.sections import Report, missing
from penstock.report.words import DASH, data_size, duration, plural, share, whole

_COMMANDS = {"lookup": "look-ups", "update": "updates"}
Process = Mapping[str, Any]


def is_on_cluster(report: Report) -> bool:
    """Whether the run has, or will have, figures of a cluster."""
    return bool(report.get("cluster") or (report.get("configuration") or {}).get("cluster"))


def cluster(report: Report) -> Markup:
    """Shards as bars of rows and latencies, trainers with their queues, and words for what is wrong."""
    if not is_on_cluster(report):
        return tag("section", id="cluster", hidden=True)
    found = report.get("cluster") or {}
    shards, trainers = found.get("shards") or [], found.get("trainers") or []
    if not shards and not trainers:
        return section("cluster", "Cluster", missing(report, "Shards and trainers", "the run ended before a look"))
    primaries = [shard for shard in shards if shard.get("role") == "primary"]
    known = [
        plural(len(primaries), "shard"),
        len(shards) > len(primaries) and plural(len(shards) - len(primaries), "standby"),
        plural(len(trainers), "trainer"),
        f"{whole(sum(shard.get('rows', 0) for shard in primaries))} rows",
        data_size(sum(shard.get("bytes", 0) for shard in primaries)),
    ]
    about = " · ".join(str(part) for part in known if part)
    callouts = [tag("p", words, class_="callout") for words in findings(found)]
    tables = [_shards(shards)] if shards else []
    tables += [_trainers(trainers)] if trainers else []
    return section("cluster", "Cluster", *callouts, tag("div", *tables, class_="panel"), _notes(), about=about)


def findings(found: Mapping[str, Any]) -> list[str]:
    """What somebody should look at, in words: who does not answer, who falls behind.

    >>> findings({"shards": [{"shard": 1, "replica": 0, "state": "up", "straggles": {"lookup": 3.2}}]})
    ['Shard 1 lately took 3.2 times as long for look-ups as the other shards; every step waits for the slowest.']
    """
    words = []
    for process in [*(found.get("shards") or []), *(found.get("trainers") or [])]:
        name = _name(process)
        if process["state"] == "silent":
            words.append(f"{name} has not answered for {duration(process['answered_in'])}: it is busy, or hangs.")
        elif process["state"] == "down":
            words.append(f"{name} is down; Ray starts it again.")
        elif process.get("role") == "empty":
            words.append(f"{name} holds nothing yet: it was started, and waits to be filled.")
        for command, times in (process.get("straggles") or {}).items():
            words.append(
                f"{name} lately took {times:.1f} times as long for {_COMMANDS[command]} as the other shards; "
                "every step waits for the slowest."
            )
    return words


def _name(process: Process) -> str:
    if "trainer" in process:
        return f"Trainer {process['trainer']}"
    is_standby = process.get("role") == "standby"
    return f"{'Standby' if is_standby else 'Shard'} {process['shard']}"


def _shards(shards: Sequence[Process]) -> Markup:
    most = max((shard.get("rows", 0) for shard in shards), default=0) or 1
    longest = _longest(shards)
    rows = [
        [
            tag("span", _name(shard), class_="name"),
            joined([bar(0, shard.get("rows", 0) / most, "two"), whole(shard.get("rows"))]),
            data_size(shard["bytes"]) if "bytes" in shard else DASH,
            *(_latency(shard, command, longest) for command in _COMMANDS),
            _busy(shard),
            whole(shard.get("queued")),
            _state(shard),
        ]
        for shard in shards
    ]
    head = ["shard", "rows", "memory", "look-up", "update", "busy", "queue", "state"]
    drawn = table(head, rows, "Shards: rows, and how long commands took there", "tables cluster", numeric=(2, 6))
    return tag("div", tag("h3", "Shards"), drawn, class_="scroll")


def _trainers(trainers: Sequence[Process]) -> Markup:
    longest = _longest(trainers)
    rows = [
        [
            tag("span", _name(trainer), class_="name"),
            *(_latency(trainer, command, longest) for command in _COMMANDS),
            *(whole(_queues(trainer).get(name)) for name in ("batches_ready", "lookups_ordered", "updates_ordered")),
            whole(trainer.get("in_flight")),
            _state(trainer),
        ]
        for trainer in trainers
    ]
    head = ["trainer", "look-up", "update", "ready", "look-ups due", "updates due", "in flight", "state"]
    drawn = table(
        head, rows, "Trainers: how long they waited for shards, and their queues", "tables trainers",
        numeric=(3, 4, 5, 6),
    )  # fmt: skip
    return tag("div", tag("h3", "Trainers"), drawn, class_="scroll")


def _queues(trainer: Process) -> Mapping[str, int]:
    return trainer.get("queues") or {}


def _longest(processes: Sequence[Process]) -> float:
    """The longest 99th percentile of all: what bars are drawn to."""
    counted = [p["seconds"][command] for p in processes for command in _COMMANDS if command in p.get("seconds", {})]
    return max((percentile(counts, 0.99) or 0.0 for counts in counted), default=0.0) or 1.0


def _latency(process: Process, command: str, longest: float) -> Any:
    seconds = process.get("seconds") or {}
    counts = seconds.get(command)
    if process.get("role") == "standby":  # it is told several commands at once
        counts = seconds["follow"] if command == "update" and "follow" in seconds else None
    if not counts or not counts["count"]:
        return DASH
    half, most = percentile(counts, 0.5) or 0.0, percentile(counts, 0.99) or 0.0
    return joined([range_bar(half / longest, most / longest), f"{duration(half)} · {duration(most)}"])


def _busy(shard: Process) -> Any:
    if not shard.get("up_seconds"):
        return DASH
    part = min(1.0, sum(counts["sum"] for counts in shard["seconds"].values()) / shard["up_seconds"])
    return joined([bar(0, part, "three"), share(part)])


def _state(process: Process) -> Markup:
    words = process["state"] if process.get("role") != "empty" else "empty"
    waited = process.get("answered_in")
    about = "" if waited is None else f" {duration(waited)}"
    return tag("span", words, tag("small", about), title="how long the last question waited for its answer")


def _notes() -> Markup:
    return tag(
        "p",
        "Latencies: the middle one and the 99th percentile, at shards the work alone, at trainers with the way there "
        "and back. A standby follows in one command. Busy: the share of its life that a shard has worked. Queue: the "
        "most commands that it had at once, lately. State: how long the last question stood in the process’s queue. "
        "Ready: batches that wait for the model; none means that the loader or the shards set the pace. In flight: "
        "calls that shards have not answered.",
        class_="note",
    )
