"""The section of a run's page about its cluster: what it draws, and what it says is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.latencies import Latencies
from penstock.report.cluster_section import cluster, findings
from penstock.report.html import render


def took(*durations: float) -> dict[str, Any]:
    latencies = Latencies()
    for duration in durations:
        latencies.add(duration)
    return latencies.to_dict()


def shard(number: int, rows: int, **more: Any) -> dict[str, Any]:
    seconds = {"lookup": took(*[0.002] * 99, 0.08), "update": took(0.004), "follow": took(0.003), "save": took()}
    own = {"shard": number, "replica": 0, "state": "up", "role": "primary", "rows": rows, "bytes": 64 * rows}
    return {**own, "answered_in": 0.01, "up_seconds": 10.0, "queued": 2, "seconds": seconds, **more}


TRAINER = {
    "trainer": 0,
    "state": "up",
    "in_flight": 1,
    "queues": {"batches_ready": 3},
    "seconds": {"lookup": took(0.1)},
}
REPORT: dict[str, Any] = {
    "version": 1,
    "state": "running",
    "cluster": {
        "shards": [shard(0, 1000), shard(1, 500), shard(1, 500, role="standby", replica=1)],
        "trainers": [TRAINER],
    },
}


def test_a_shard_is_drawn_with_its_rows_and_percentiles() -> None:
    drawn = str(cluster(REPORT))
    assert "2 shards · 1 standby · 1 trainer · 1,500 rows" in drawn
    assert "width:max(50.00%,2px)" in drawn  # half the rows of the other one
    assert "1.9 ms" in drawn and "Standby 1" in drawn and "Trainer 0" in drawn


@pytest.mark.parametrize(
    ("process", "words"),
    [
        (shard(2, 0, state="silent", answered_in=7.0), "Shard 2 has not answered for 7.0 s"),
        (shard(2, 0, state="down"), "Shard 2 is down"),
        (shard(2, 0, role="empty"), "Shard 2 holds nothing yet"),
        (shard(2, 0, straggles={"update": 4.0}), "Shard 2 lately took 4.0 times as long for updates"),
        ({**TRAINER, "state": "down"}, "Trainer 0 is down"),
    ],
)
def test_what_is_wrong_is_said(process: dict[str, Any], words: str) -> None:
    kind = "trainers" if "trainer" in process else "shards"
    (found,) = findings({kind: [process]})
    assert found.startswith(words)
    assert words in str(cluster({"cluster": {kind: [process]}}))


def test_processes_that_have_said_nothing_yet_are_drawn() -> None:
    silent = {"shard": 0, "replica": 0, "state": "silent", "answered_in": 9.0}
    assert "Shard 0" in str(cluster({"cluster": {"shards": [silent], "trainers": [{"trainer": 0, "state": "down"}]}}))


def test_only_a_run_on_a_cluster_has_the_section() -> None:
    alone = render({"version": 1, "state": "done"})
    assert 'href="#cluster"' not in alone and '<section id="cluster" hidden' in alone
    begun = render({"version": 1, "state": "running", "configuration": {"cluster": {"address": "local"}}})
    assert 'href="#cluster"' in begun and "has not come to it yet" in begun
    assert 'href="#cluster"' in render(REPORT)
