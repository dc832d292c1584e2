"""Follows a run, event by event, and keeps what there is to tell as plain data."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.bounded import read_json
from penstock.core.errors import ArtefactError
from penstock.core.params import Instance
from penstock.core.runtime.threads import start_thread
from penstock.jobs.events import (
    METHODS,
    ClusterWatched,
    DataOpened,
    DataPrepared,
    Event,
    EventListener,
    ModelSaved,
    Recorded,
    RunBegan,
    RunDone,
    RunFailed,
    StageBegan,
    StageEnded,
    Trained,
    TrainingBegan,
)
from penstock.jobs.table_figures import hot_ids, store_tables
from penstock.jobs.workflow_graph import workflow_graph
from penstock.report.headline import headline, title
from penstock.report.learning import learning_verdict
from penstock.report.machine import gpus, machine_facts, versions
from penstock.report.plain import plain
from penstock.report.profile import profile_dataset
from penstock.report.time_spent import time_spent
from penstock.report.writing import write

if TYPE_CHECKING:
    from penstock.train.records import Record

REPORT_VERSION = 1
SAMPLE_ROWS = 200_000
_WRITE_EVERY = 20.0  # seconds between reports on disk while training goes on
_LOOK_EVERY = 1.0  # seconds between looks at the loader's and the store's counters


class RunRecorder(EventListener):
    """Listens to a training job (see `penstock.jobs.events`) and writes `report.json` and `report.html`.

    Args:
        directory: where the two files go.
        title: what the report is called; the model and the data by default.
        best_auc: the best AUC that any model could reach, where it is known (synthetic data).
        sample_rows: at most so many rows of a data set are profiled.

    What cannot be collected is noted in the report (`problems`) and never stops the run. A training of one's own can be
    recorded too: `fit(…, callbacks=[recorder.record])` between the events `TrainingBegan` and `Trained`.

    >>> import tempfile
    >>> recorder = RunRecorder(tempfile.mkdtemp(), title="A first run")
    >>> recorder(RunBegan({"epochs": 1}, "run"))
    >>> from penstock.train import ValidRecord
    >>> recorder.record(ValidRecord(step=10, epoch=0, rows=100, loss=0.5, metrics={"auc": 0.75}))
    >>> recorder(RunDone({"auc": 0.75}))
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
        self._looking: list[threading.Thread] = []  # at the run's data
        self._objects: dict[str, Any] = {}  # live ones, asked while the run goes on
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
            "selected": {},
            "labels": {},
            "loader": None,
            "store": None,
            "cluster": None,
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

    def __call__(self, event: Event) -> None:
        """Keep what an event brings, and write both files now and then; what goes wrong becomes a problem noted."""
        if not isinstance(event, Event):
            raise TypeError(f"{event!r} is no event of a job")
        with self._lock:
            try:
                super().__call__(event)
            except Exception as error:  # a report must not stop the run that it tells of
                self._data["problems"].append(f"{METHODS[type(event)]}: {error or type(error).__name__}")
            self.version += 1
        if isinstance(event, RunDone | RunFailed | Trained) or time.perf_counter() - self._written > _WRITE_EVERY:
            try:
                self.write()
            except Exception as error:
                warnings.warn(f"the report could not be written to {self.directory}: {error}", stacklevel=2)

    def record(self, record: Record) -> None:
        """A callback of `fit`.

        Args:
            record: of `fit`.
        """
        self(Recorded(record))

    # What the events bring.

    def run_began(self, event: RunBegan) -> None:
        self._data["configuration"] = plain(event.configuration)
        self._data["output"] = plain(event.output)
        self._data["best_auc"] = event.best_auc or self._data["best_auc"]
        if event.is_resumed:
            self._earlier = _records_of(self.directory / "report.json")
            self._data["records"] = list(self._earlier)

    def stage_began(self, event: StageBegan) -> None:
        now = time.perf_counter() - self._began
        self._data["stages"].append({"name": event.name, "begin": round(now, 3), "seconds": None})

    def stage_ended(self, event: StageEnded) -> None:
        now = time.perf_counter() - self._began
        for stage in reversed(self._data["stages"]):
            if stage["name"] == event.name and stage["seconds"] is None:
                stage["seconds"] = round(now - stage["begin"] if event.seconds is None else event.seconds, 3)
                return

    def data_opened(self, event: DataOpened) -> None:
        self._beside("data_opened", lambda: {"raw": profile_dataset(event.raw, self._sample_rows)})

    def data_prepared(self, event: DataPrepared) -> None:
        def looked() -> dict[str, Any]:
            profile = profile_dataset(event.features, self._sample_rows)
            return {"features": profile, "hot_ids": hot_ids(profile, event.workflow)}

        if event.workflow is not None:
            self._data["workflow"] = plain(workflow_graph(event.workflow))
        self._beside("data_prepared", looked)

    def _beside(self, name: str, look: Callable[[], dict[str, Any]]) -> None:
        """Find out beside the run what the report says of its data; a report that is asked for waits for it."""

        def work() -> None:
            found: dict[str, Any] = {}
            problems: list[str] = []
            try:
                found = look()
            except Exception as error:  # as of an event that the run waits for
                problems = [f"{name}: {error or type(error).__name__}"]
            with self._lock:
                self._data.update(found)
                self._data["problems"] += problems
                self.version += 1

        self._looking.append(start_thread("profile", work))

    def training_began(self, event: TrainingBegan) -> None:
        if self._data["history"]:  # another training takes the place of one that has ended
            self._data["records"], self._data["history"], self._data["selected"] = [], {}, {}
        loader, model = event.loader, event.model
        self._objects = {"loader": loader, "store": event.embeddings}
        parameters = sum(p.numel() for p in model.parameters()) if hasattr(model, "parameters") else None
        self._data["training"] = plain(
            {
                "model": type(model).__name__,
                "parameters": parameters,
                "rows": getattr(loader, "num_rows", None),
                "batch_size": getattr(loader, "batch_size", None),
                "batches": len(loader) if hasattr(loader, "__len__") else None,
                "valid_rows": getattr(event.valid, "num_rows", None),
                "steps": event.steps,
            }
        )
        self._data["labels"] = plain(event.labels or {})
        self._data["machine"]["gpus"] = gpus()
        self._look()

    def recorded(self, event: Recorded) -> None:
        from penstock.train.records import record_to_dict  # torch is there when this is called

        new = plain(record_to_dict(event.record))
        if self._earlier:  # what came behind the checkpoint is done again
            self._data["records"] = [record for record in self._earlier if record["step"] < new["step"]]
            self._earlier = []
        self._data["records"].append({**new, "at": round(time.perf_counter() - self._began, 3)})
        if time.perf_counter() - self._looked > max(_LOOK_EVERY, 50 * self._look_cost):
            self._look()

    def cluster_watched(self, event: ClusterWatched) -> None:
        self._data["cluster"] = plain(event.figures)

    def trained(self, event: Trained) -> None:
        from penstock.train.records import record_to_dict  # torch is there when this is called
        from penstock.train.selection import DEFAULT, selected

        history, seen = event.history, {(r["kind"], r["step"]) for r in self._data["records"]}
        self._data["history"] = plain(history.stats)
        self._data["selected"] = selected(
            history, event.select_by or self._data["configuration"].get("select_by") or DEFAULT
        )
        records = [plain(record_to_dict(record)) for record in history.records]
        earlier = [r for r in records if (r["kind"], r["step"]) not in seen]
        self._data["records"] = sorted([*earlier, *self._data["records"]], key=lambda record: record["step"])
        self._look()
        self._objects = {}  # a store that is closed must not be asked

    def model_saved(self, event: ModelSaved) -> None:
        self._data["saved"] = plain(event.path)

    def run_done(self, event: RunDone) -> None:
        self._data["figures"] = plain(event.figures)
        self._end("done")

    def run_failed(self, event: RunFailed) -> None:
        self._data["error"] = plain(event.error)
        self._end("interrupted" if event.is_interrupted else "failed")

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
        """Everything so far as plain data.

        Returns:
            What `penstock.report.render` takes.
        """
        for thread in list(self._looking):  # several may ask at once, and all of them wait
            thread.join()
        with self._lock:
            data = {**self._data, "records": list(self._data["records"]), "stages": list(self._data["stages"])}
            data["problems"] = list(data["problems"])
        now = round(time.perf_counter() - self._began, 3)
        data["seconds"] = data.get("seconds", now)
        data["updated"] = datetime.now(UTC).isoformat(timespec="seconds")
        settings = {key: data["configuration"].get(key) for key in ("staleness", "device")}
        trained = sum(stage["seconds"] or 0.0 for stage in data["stages"] if stage["name"] == "train")
        data["time"] = time_spent(data["records"], data["loader"], settings, trained)
        is_over = data["state"] != "running"
        data["learning"] = learning_verdict(data["records"], data["labels"], data["selected"], is_over)
        data["title"] = data["title"] or title(data)
        data["headline"] = headline(data)
        return data

    def write(self) -> Path:
        """Write both files as things stand; the page's path.

        Returns:
            The path.
        """
        self._written = time.perf_counter()
        return write(self.report(), self.directory)


def _records_of(report: Path) -> list[dict[str, Any]]:
    """What an earlier part of the run has recorded."""
    records: list[dict[str, Any]] = read_json(report, {"records": Instance(list, "a list of records")})["records"]
    if not all(isinstance(record, dict) for record in records):
        raise ArtefactError(f"{report} is not the report of a run: its records must be mappings")
    return records
