"""A training run under way: from the checks that need torch to the saved model."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from penstock.core.errors import OutputExistsError, ParameterError
from penstock.core.schema import Schema
from penstock.data.dataset import as_dataset
from penstock.embedding.feed_packets import packet_numbers
from penstock.embedding.protocol import is_on_host
from penstock.etl import trusting
from penstock.etl.trust import modules_in
from penstock.jobs import building
from penstock.jobs.cluster import Cluster
from penstock.jobs.defaults import is_worth_a_second_try
from penstock.jobs.embeddings import build_embeddings, count_rows
from penstock.jobs.events import Event, ModelSaved, RunBegan, RunDone, RunFailed
from penstock.jobs.label_figures import label_figures
from penstock.jobs.linear_start import begin_linear, may_begin_linear
from penstock.jobs.model_card import model_card
from penstock.jobs.prediction_figures import describe_predictions, example_predictions
from penstock.jobs.preparation import Prepared, RawRows, ReadyFeatures
from penstock.jobs.rehearsal import rehearsing
from penstock.jobs.run_folder import RunFolder
from penstock.jobs.second_try import Training, is_better, take_place, trained_again
from penstock.jobs.settings import TrainSettings
from penstock.jobs.stages import timed_stage
from penstock.jobs.training_loaders import open_loaders
from penstock.jobs.training_result import TrainingStopped, TrainResult, finite
from penstock.jobs.training_stage import TrainingStage
from penstock.report.learning import learning_verdict
from penstock.serve.model import save_model
from penstock.serve.predictor import Predictor
from penstock.train.records import record_to_dict
from penstock.train.selection import selected

if TYPE_CHECKING:
    from penstock.jobs.training import TrainJob

STAGES = ("etl", "regression", "train", "second", "save", "predict")


class TrainRun:
    """One run of a job, which has opened its data and may be reading it already.

    Args:
        job: what was asked for.
        folder: of the run.
        preparation: what turns its rows into features.

    Raises:
        PenstockError: the settings do not allow it. Nothing is written before they are checked.
    """

    def __init__(self, job: TrainJob, folder: RunFolder, preparation: RawRows | ReadyFeatures) -> None:
        assert isinstance(job.settings, TrainSettings)
        self.job, self.folder, self.preparation, self.settings = job, folder, preparation, job.settings
        self.device = building.training_device(job.settings)
        preparation.check()
        if job.test is not None:
            preparation.check_test(job.test)
        self.seconds = dict.fromkeys(STAGES, 0.0)

    def run(self) -> TrainResult:
        """Do it all, and tell the job's listener.

        Returns:
            What it has reached.
        """
        job, config = self.job, self.job.configuration
        if job.is_resumed:
            shutil.rmtree(self.folder.second, ignore_errors=True)  # of a second training that was interrupted
            self.folder.write(config)
        else:
            self.folder.begin(config, job.drafted)
        self._notify(RunBegan(config, str(job.output), job.best_auc, job.is_resumed))
        try:
            if (cluster := Cluster.of(self.settings)) is not None:
                cluster.check_shared(self.folder.path, job.source, job.valid)
            result = self._tested(self._run())
        except BaseException as error:
            stopped = isinstance(error, (KeyboardInterrupt, SystemExit, TrainingStopped))
            self._notify(RunFailed(str(error) or type(error).__name__, stopped))
            raise
        self._notify(RunDone(result.to_dict()))
        return result

    def _run(self) -> TrainResult:
        settings, device = self.settings, self.device
        with self._stage("etl", self.preparation.has_work), self._rehearsing():
            ready = self.preparation.run(self.folder, self._notify, self.job.progress)
        is_asked = settings.linear_start is True and not self.job.is_resumed
        loader, valid, settings = open_loaders(settings, ready, device)
        settings = self._settled(settings)
        held_out = None if ready.valid is None else as_dataset(ready.valid)
        labels = label_figures(as_dataset(ready.features), held_out, ready.label)
        network = building.build_model(settings, loader.schema)
        store = self._embeddings(settings, loader.schema, device)
        try:
            with self._stage("regression", may_begin_linear(settings, network, store, loader.schema)):
                settings = self._begun_linear(settings, ready, network, store, is_asked)
            with self._stage("train"):
                self._open_feed(settings, ready, network, store, loader.num_rows)  # it begins with these weights
                stage = TrainingStage(
                    settings, ready, loader, valid, network, store, device, self.folder, self._notify,
                    self.job.callbacks, self.job.stop, self.job.progress,
                )  # fmt: skip
                history, rows_per_second = stage.run(labels)
            if settings.linear_start and not is_asked and valid is not None and Cluster.of(settings) is None:
                trained = Training(settings, network, store, history, rows_per_second)
                trained = self._tried_again(trained, ready, labels, device, loader.num_rows)
                settings, network, store = trained.settings, trained.network, trained.store
                history, rows_per_second = trained.history, trained.rows_per_second
            with self._stage("save"):
                kept = {} if history.best is None else history.best.metrics
                metrics = {name: finite(value) for name, value in kept.items()}
                self._save(settings, ready, network, store, loader.num_rows, metrics, labels["constant_log_loss"])
            embedding_rows = count_rows(store)
        finally:
            if store is not None and is_on_host(store):
                store.close()
        with self._stage("predict", valid is not None):
            examples, predictions = self._predictions(ready)
        chosen = selected(history, building.selected_by(settings))
        records = [record_to_dict(record) for record in history.records]
        return TrainResult(
            metrics=metrics,
            best_auc=self.job.best_auc,
            selected=chosen,
            labels=labels,
            learning=learning_verdict(records, labels, chosen),
            rows={"train": loader.num_rows, "valid": None if valid is None else valid.num_rows},
            steps=history.stats["steps"],
            rows_per_second=rows_per_second,
            embedding_rows=embedding_rows,
            model=str(self.folder.model),
            examples=examples,
            predictions=predictions,
            seconds={**self.seconds, "total": round(sum(self.seconds.values()), 3)},
        )

    def _rehearsing(self) -> AbstractContextManager[None]:
        rows = self.preparation
        if Cluster.of(self.settings) is not None or not isinstance(rows, RawRows) or not rows.has_work:
            return nullcontext()
        return rehearsing(rows.data, rows.recipe, self.settings, self.device)

    def _embeddings(self, settings: TrainSettings, schema: Schema, device: torch.device) -> Any:
        cluster = Cluster.of(settings)
        return build_embeddings(settings, schema, device) if cluster is None else cluster.store(settings, schema)

    def _save(
        self,
        settings: TrainSettings,
        ready: Prepared,
        network: Any,
        store: Any,
        num_rows: int,
        metrics: dict[str, float | None],
        constant: float | None,
    ) -> None:
        card = model_card(self.job.source, ready, network, num_rows, metrics, settings.keep_example, constant)
        save_model(self.folder.model, ready.workflow, network, store, overwrite=True, card=card)
        self._notify(ModelSaved(str(self.folder.model)))

    def _open_feed(self, settings: TrainSettings, ready: Prepared, network: Any, store: Any, num_rows: int) -> None:
        """Put a model beside the packets to come: whoever follows them needs its workflow, and where to begin."""
        if settings.feed is None:
            return
        place = Path(settings.feed)
        if (place / "model").exists() and not packet_numbers(place):
            raise OutputExistsError(f"{place} holds a model that no feed has begun with; choose another feed:")
        card = model_card(self.job.source, ready, network, num_rows, {}, settings.keep_example)
        save_model(place, ready.workflow, network, store, overwrite=True, card=card)

    def _tested(self, result: TrainResult) -> TrainResult:
        """The result, with what the saved model reaches on the rows to test on."""
        if self.job.test is None:
            return result
        from penstock.jobs.scoring import evaluate_model

        metrics, progress = self.settings.metrics, self.job.progress
        with trusting(*modules_in(self.job.recipe)):
            found = evaluate_model(result.model, self.job.test, metrics=metrics, progress=progress)
        return replace(result, test={**found.metrics, "rows": found.rows})

    def _begun_linear(
        self, settings: TrainSettings, ready: Prepared, network: torch.nn.Module, store: Any, is_asked: bool
    ) -> TrainSettings:
        """Let the linear part begin with a regression where it can; the settings say whether it did."""
        if not settings.linear_start or begin_linear(settings, network, store, as_dataset(ready.features), ready.label):
            return settings
        if is_asked:
            raise ParameterError(
                "linear_start cannot be true here: it needs a model with a linear part, a cardinality of every "
                "category, both labels, and embeddings in float32, in fused tables or in a store of this process "
                "without FTRL, admission, eviction or slots of their own; leave it out"
            )
        return self._settled(replace(settings, linear_start=False))

    def _tried_again(
        self, first: Training, ready: Prepared, labels: dict[str, Any], device: torch.device, num_rows: int
    ) -> Training:
        """The better of the training that began with a regression and one that does without; the other is closed."""
        if not is_worth_a_second_try(first.settings, num_rows):
            return first
        with self._stage("second"):
            second = trained_again(
                first, ready, labels, device, num_rows, self.folder, self.job.callbacks, self.job.stop,
                self.job.progress,
            )  # fmt: skip
            if not is_better(second.history, first.history):
                second.close()
                shutil.rmtree(self.folder.second)
                return first
            first.close()
            take_place(self.folder, lambda: self._settled(second.settings))
            for event in second.events:
                self._notify(event)
        return second

    def _settled(self, settings: TrainSettings) -> TrainSettings:
        """Whoever resumes this run needs the same batches, and embeddings where they are: its settings say so."""
        asked, self.settings = self.settings, settings
        self.job.settings = settings
        if settings != asked:
            self.folder.write(self.job.configuration)
        return settings

    def _predictions(self, ready: Prepared) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        """Held-out rows through the saved model: a few as a service would send them, and how all of them lie."""
        if ready.valid is None:
            return [], None
        trust = [] if ready.workflow is None else modules_in(ready.workflow.to_recipe({}))
        with Predictor(self.folder.model, trust=trust) as predictor:
            examples = example_predictions(predictor, ready, self.job.num_examples)
            return examples, describe_predictions(predictor, as_dataset(ready.valid), ready.label)

    def _notify(self, event: Event) -> None:
        if self.job.listener is not None:
            self.job.listener(event)

    def _stage(self, name: str, is_there: bool = True) -> AbstractContextManager[None]:
        return timed_stage(name, self._notify, self.seconds) if is_there else nullcontext()
