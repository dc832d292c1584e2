"""Follows a run, event by event, and keeps what there is to tell as plain data."""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.jobs.table_figures import hot_ids, store_tables
from penstock.jobs.workflow_graph import workflow_graph
from penstock.report.headline import headline, title
from penstock.report.machine import gpus, machine_facts, versions
from penstock.report.plain import plain
from penstock.report.profile import profile_dataset
from penstock.report.time_spent import time_spent
from penstock.report.writing import write

REPORT_VERSION = 1
SAMPLE_ROWS = 200_000
_WRITE_EVERY = 20.0  # seconds between reports on disk while training goes on
_LOOK_EVERY = 1.0  # seconds between looks at the loader's and the store's counters


class RunRecorder:
    """Listens to a training job (`recorder(event, payload)`) and writes `report.json` and `report.html`.

    Args:
        directory: where the two files go.
        title: what the report is called; the model and the data by default.
        best_auc: the best AUC that any model could reach, where it is known (synthetic data).
        sample_rows: at most so many rows of a data set are profiled.

    What cannot be collected is noted in the report (`problems`) and never stops the run. A training of one's own can be
    recorded too: `fit(…, callbacks=[recorder.record])` between the events `training` and `trained`.

    >>> import tempfile
    >>> recorder = RunRecorder(tempfile.mkdtemp(), title="A first run")
    >>> recorder("begin", {"configuration": {"epochs": 1}, "output": "run"})
    >>> recorder("record", {"kind": "valid", "step": 10, "auc": 0.75, "loss": 0.5})
    >>> recorder("done", {"figures": {"auc": 0.75}})
    >>> sorted(path.name for path in recorder.directory.iterdir())
    ['report.html', 'report.json']
    >>> recorder.report()["state"], recorder.report()["headline"]["auc"]
    ('done', 0.75)
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        title: str | None = None,
        best_auc: float | None = None,
        sample_rows: int = SAMPLE_ROWS,
    ) -> None:
        self.directory = Path(directory)
        self._sample_rows = sample_rows
        self._lock = threading.RLock()
        self._began = time.perf_counter()
        self._written = self._looked = float("-inf")
        self._look_cost = 0.0
        self._objects: dict[str, Any] = {}  # live ones, asked while the run goes on
        self._workflow: Any = None
        self._earlier: list[dict[str, Any]] = []  # records from before a resumption
        self.version = 0  # changes with every event: what a live page asks for
        self._data: dict[str, Any] = {
            "version": REPORT_VERSION,
            "kind": "run",
            "title": title,
            "state": "running",
            "error": None,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "best_auc": best_auc,
            "configuration": {},
            "output": None,
            "stages": [],
            "raw": None,
            "workflow": None,
            "features": None,
            "training": None,
            "records": [],
            "history": {},
            "loader": None,
            "store": None,
            "hot_ids": {},
            "saved": None,
            "figures": {},
            "problems": [],
            "machine": {**machine_facts(), "versions": versions()},
        }

    @property
    def path(self) -> Path:
        """Where the report is."""
        return self.directory / "report.html"

    def __call__(self, event: str, payload: Mapping[str, Any]) -> None:
        handler: Callable[[Mapping[str, Any]], None] | None = getattr(self, f"_on_{event}", None)
        with self._lock:
            try:
                if handler is not None:
                    handler(payload)
            except Exception as error:  # a report must not stop the run that it tells of
                self._data["problems"].append(f"{event}: {error or type(error).__name__}")
            self.version += 1
        if event in ("done", "failed", "trained") or time.perf_counter() - self._written > _WRITE_EVERY:
            try:
                self.write()
            except Exception as error:
                warnings.warn(f"the report could not be written to {self.directory}: {error}", stacklevel=2)

    def record(self, record: Mapping[str, Any]) -> None:
        """A callback of `fit`."""
        self("record", record)

    # What the events bring.

    def _on_begin(self, payload: Mapping[str, Any]) -> None:
        self._data["configuration"] = plain(payload.get("configuration") or {})
        self._data["output"] = plain(payload.get("output"))
        self._data["best_auc"] = payload.get("best_auc") or self._data["best_auc"]
        if payload.get("resumed"):
            self._earlier = json.loads((self.directory / "report.json").read_text())["records"]
            self._data["records"] = list(self._earlier)

    def _on_stage(self, payload: Mapping[str, Any]) -> None:
        stages, now = self._data["stages"], time.perf_counter() - self._began
        if payload["state"] == "begin":
            stages.append({"name": str(payload["name"]), "begin": round(now, 3), "seconds": None})
            return
        for stage in reversed(stages):
            if stage["name"] == payload["name"] and stage["seconds"] is None:
                given = payload.get("seconds")
                stage["seconds"] = round(now - stage["begin"], 3) if given is None else round(float(given), 3)
                return

    def _on_raw(self, payload: Mapping[str, Any]) -> None:
        self._data["raw"] = profile_dataset(payload["dataset"], self._sample_rows)

    def _on_workflow(self, payload: Mapping[str, Any]) -> None:
        self._workflow = payload["workflow"]
        self._data["workflow"] = plain(workflow_graph(self._workflow))

    def _on_features(self, payload: Mapping[str, Any]) -> None:
        profile = profile_dataset(payload["dataset"], self._sample_rows)
        self._data["features"] = profile
        self._data["hot_ids"] = hot_ids(profile, self._workflow)

    def _on_training(self, payload: Mapping[str, Any]) -> None:
        loader, model = payload["loader"], payload["model"]
        self._objects = {"loader": loader, "store": payload.get("store")}
        parameters = sum(p.numel() for p in model.parameters()) if hasattr(model, "parameters") else None
        self._data["training"] = plain(
            {
                "model": type(model).__name__,
                "parameters": parameters,
                "rows": getattr(loader, "num_rows", None),
                "batch_size": getattr(loader, "batch_size", None),
                "batches": len(loader) if hasattr(loader, "__len__") else None,
                "valid_rows": getattr(payload.get("valid"), "num_rows", None),
                "steps": payload.get("steps"),
            }
        )
        self._data["machine"]["gpus"] = gpus()
        self._look()

    def _on_record(self, payload: Mapping[str, Any]) -> None:
        if self._earlier:  # what came behind the checkpoint is done again
            self._data["records"] = [record for record in self._earlier if record["step"] < payload["step"]]
            self._earlier = []
        self._data["records"].append({**plain(payload), "at": round(time.perf_counter() - self._began, 3)})
        if time.perf_counter() - self._looked > max(_LOOK_EVERY, 50 * self._look_cost):
            self._look()

    def _on_trained(self, payload: Mapping[str, Any]) -> None:
        history, seen = payload["history"], {(r["kind"], r["step"]) for r in self._data["records"]}
        self._data["history"] = plain(history.stats)
        earlier = [plain(r) for r in history.records if (r["kind"], r["step"]) not in seen]
        self._data["records"] = sorted([*earlier, *self._data["records"]], key=lambda record: record["step"])
        self._look()
        self._objects = {}  # a store that is closed must not be asked

    def _on_saved(self, payload: Mapping[str, Any]) -> None:
        self._data["saved"] = plain(payload["model"])

    def _on_done(self, payload: Mapping[str, Any]) -> None:
        self._data["figures"] = plain(payload.get("figures") or {})
        self._end("done")

    def _on_failed(self, payload: Mapping[str, Any]) -> None:
        self._data["error"] = plain(payload.get("error"))
        self._end("interrupted" if payload.get("interrupted") else "failed")

    def _end(self, state: str) -> None:
        self._data["state"], self._objects = state, {}
        self._data["seconds"] = round(time.perf_counter() - self._began, 3)

    def _look(self) -> None:
        """Ask the loader and the store how far they are: on the training thread, so that nothing runs beside it."""
        began = time.perf_counter()
        loader, store = self._objects.get("loader"), self._objects.get("store")
        stats = getattr(loader, "stats", None)
        if callable(stats):
            self._data["loader"] = plain(stats().to_dict())
        if store is not None:
            self._data["store"] = store_tables(store)
        self._looked = time.perf_counter()
        self._look_cost = self._looked - began

    # What is told.

    def report(self) -> dict[str, Any]:
        """Everything so far as plain data."""
        with self._lock:
            data = {**self._data, "records": list(self._data["records"]), "stages": list(self._data["stages"])}
            data["problems"] = list(data["problems"])
        now = round(time.perf_counter() - self._began, 3)
        data["seconds"] = data.get("seconds", now)
        data["updated"] = datetime.now(UTC).isoformat(timespec="seconds")
        settings = {key: data["configuration"].get(key) for key in ("staleness", "device")}
        data["time"] = time_spent(data["records"], data["loader"], settings)
        data["title"] = data["title"] or title(data)
        data["headline"] = headline(data)
        return data

    def write(self) -> Path:
        """Write both files as things stand; the page's path."""
        self._written = time.perf_counter()
        return write(self.report(), self.directory)
