"""A run's figures as Prometheus reads them: its own parser takes every line, whatever names the run has."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.core.latencies import BOUNDS, Latencies
from penstock.report.run_metrics import FAMILIES, metrics_text

parser = pytest.importorskip("prometheus_client.parser")


def seconds(*durations: float) -> dict[str, Any]:
    latencies = Latencies()
    for duration in durations:
        latencies.add(duration)
    return latencies.to_dict()


def shard(number: int, **more: Any) -> dict[str, Any]:
    took = {"lookup": seconds(0.001, 0.003, 90.0), "update": seconds()}
    own = {"shard": number, "replica": 0, "state": "up", "role": "primary", "answered_in": 0.01}
    return {
        **own,
        "rows": 10,
        "bytes": 640,
        "updates": 3,
        "evicted": 0,
        "queued": 2,
        "seconds": took,
        "straggles": {},
        **more,
    }


REPORT: dict[str, Any] = {
    "state": "running",
    "seconds": 12.5,
    "training": {"steps": 100},
    "records": [
        {"kind": "train", "step": 5, "rows": 50, "loss": 0.7, "seconds": {"wait": 0.5, "total": 2.0}},
        {"kind": "train", "step": 9, "rows": 90, "loss": 0.5, "auc": 0.6, "seconds": {"wait": 0.25, "total": 1.0}},
        {"kind": "valid", "step": 9, "rows": 20, "loss": 0.4, "seconds": 0.1},
    ],
    "store": {"tables": [{"name": 'a "b" \\ c\nd', "rows": 5, "bytes": 80}], "restarts": [{"shard": 1}]},
    "cluster": {
        "shards": [shard(0), shard(1, state="silent", straggles={"lookup": 3.5})],
        "trainers": [
            {"trainer": 0, "state": "up", "in_flight": 1, "queues": {"batches_ready": 4},
             "seconds": {"lookup": seconds()}},
            {"trainer": 1, "state": "down"},
        ],
    },
}  # fmt: skip


def read(report: dict[str, Any]) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples by name and label values, as Prometheus' own parser reads them."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in parser.text_string_to_metric_families(metrics_text(report)):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_prometheus_reads_every_figure() -> None:
    found = read(REPORT)
    assert found["penstock_run_state"][("running",)] == 1 and found["penstock_run_state"][("done",)] == 0
    assert found["penstock_run_step"][()] == 9 and found["penstock_run_rows"][()] == 90
    assert found["penstock_run_figure"] == {("train", "loss"): 0.5, ("train", "auc"): 0.6, ("valid", "loss"): 0.4}
    assert found["penstock_run_stage_seconds_total"][("wait",)] == 0.75
    assert found["penstock_embedding_rows"] == {('a "b" \\ c\nd',): 5}
    assert found["penstock_store_restarts_total"][()] == 1
    assert found["penstock_shard_up"] == {("0", "0", "primary"): 1, ("1", "0", "primary"): 0}
    assert found["penstock_shard_straggles"][("1", "0", "lookup")] == 3.5
    assert found["penstock_trainer_up"] == {("0",): 1, ("1",): 0}
    assert found["penstock_trainer_queue"] == {("0", "batches_ready"): 4}


def test_histograms_grow_to_their_count() -> None:
    found = read(REPORT)
    buckets = {labels[-1]: n for labels, n in found["penstock_shard_command_seconds_bucket"].items()
               if labels[:3] == ("0", "0", "lookup")}  # fmt: skip
    assert len(buckets) == len(BOUNDS) + 1 and list(buckets.values()) == sorted(buckets.values())
    assert buckets["+Inf"] == found["penstock_shard_command_seconds_count"][("0", "0", "lookup")] == 3
    assert buckets[str(BOUNDS[-1])] == 2  # the one of 90 s is longer than all bounds
    assert math.isclose(found["penstock_shard_command_seconds_sum"][("0", "0", "lookup")], 90.004)


def test_a_run_that_has_just_begun_has_few_figures() -> None:
    assert set(read({"state": "running"})) == {"penstock_run_state"}


def test_every_family_is_used_and_told_of_in_the_docs() -> None:
    written = re.findall(r"# TYPE (\S+) (\S+)", metrics_text({**REPORT, "records": [
        {**REPORT["records"][1], "rows_per_second": 10.0}]}))  # fmt: skip
    assert dict(written) == {name: family.kind for name, family in FAMILIES.items()}
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    assert [name for name in FAMILIES if f"`{name}`" not in page] == []
