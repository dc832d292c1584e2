"""The whole way in one job: raw rows → features → a trained model → evaluation → a saved model that predicts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch

from penstock.core.errors import OutputExistsError, ParameterError
from penstock.core.schema import Schema
from penstock.core.signing import KeyLike, check_signed, verifying
from penstock.data.dataset import as_dataset
from penstock.data.sources import DataLike, are_paths
from penstock.embedding.feed_packets import packet_numbers
from penstock.embedding.protocol import is_on_host
from penstock.etl import Workflow, trusting
from penstock.etl.trust import check_references, modules_in
from penstock.jobs import building
from penstock.jobs.cluster import Cluster
from penstock.jobs.defaults import is_worth_a_second_try
from penstock.jobs.embeddings import build_embeddings, count_rows
from penstock.jobs.etl import check_outside
from penstock.jobs.events import (
    Event,
    Listener,
    ModelSaved,
    RunBegan,
    RunDone,
    RunFailed,
)
from penstock.jobs.holding_out import way_of
from penstock.jobs.label_figures import label_figures
from penstock.jobs.linear_start import begin_linear, may_begin_linear
from penstock.jobs.model_card import model_card
from penstock.jobs.prediction_figures import describe_predictions, example_predictions
from penstock.jobs.preparation import Prepared, RawRows, ReadyFeatures
from penstock.jobs.rehearsal import rehearsing
from penstock.jobs.run_folder import RunFolder, absolute_paths, plain_copy, with_absolute_folders
from penstock.jobs.second_try import Training, is_better, take_place, trained_again
from penstock.jobs.settings import TrainSettings
from penstock.jobs.stages import timed_stage
from penstock.jobs.training_loaders import open_loaders
from penstock.jobs.training_result import TrainingStopped, TrainResult, finite
from penstock.jobs.training_stage import TrainingStage
from penstock.report.learning import learning_verdict
from penstock.serve.model import save_model
from penstock.serve.predictor import Predictor
from penstock.train import Record
from penstock.train.mirror import Mirror
from penstock.train.records import record_to_dict
from penstock.train.selection import selected

STAGES = ("etl", "regression", "train", "second", "save", "predict")


@dataclass
class TrainJob:
    """Trains a click model and saves it.

    Args:
        source: raw rows that `recipe` describes, or features that are ready to train on: paths, a frame, or a Dataset.
        output: the folder of the run (see `RunFolder`).
        recipe: what turns raw rows into features; its `input` section says how to read them. None for features.
        valid: rows to evaluate on, of the same kind; without it `valid_share` of the rows are held out.
        test: rows to test the saved model on at the end; what it reaches there is `TrainResult.test`.
        workflow: with ready features, the fitted workflow that made them, so that the model predicts on raw rows.
        settings: `TrainSettings`, or a mapping of those that differ from the defaults.
        overwrite: replace a run in `output`.
        best_auc: the best that is reachable, where it is known.
        num_examples: held-out rows whose predictions are among the figures.
        progress: draw bars; None draws them on a terminal.
        listener: called with each event as the run goes on (see `penstock.jobs.events`).
        callbacks: of `penstock.train.fit`.
        drafted: the recipe as text with its comments, where it was drafted; the run keeps it as `recipe.yaml`.
        verify: a signing key. The workflow that is given and, when a run is resumed, everything it has saved must be
            signed with it (`penstock sign`); what the run writes from then on is its own and need not be.
        stop: asked at every training record; once it says True, training ends with a checkpoint and
            `TrainingStopped` is raised. `TrainJob.resumed(output)` goes on from there.
        cluster: where all of it runs, in the place of the settings' section of that name: "local" (a Ray of this
            machine's processes), "auto", an address ray://…, or a mapping of `address`, `trainers`, `shards` and
            `replicas`.

    >>> import tempfile
    >>> from penstock.data.synthetic import criteo
    >>> from penstock.etl import presets
    >>> place = Path(tempfile.mkdtemp())
    >>> _ = criteo(place / "day.tsv", 2000, cardinalities=50)
    >>> settings = {"model": {"name": "MLP", "hidden": [16]}, "epochs": 1, "batch_size": 256}
    >>> found = TrainJob(place / "day.tsv", place / "run", presets.load("criteo"), settings=settings).run()
    >>> found.rows, 0 < found.auc < 1, len(found.examples)
    ({'train': 1800, 'valid': 200}, True, 3)
    """

    source: DataLike
    output: str | Path
    recipe: Mapping[str, Any] | None = None
    valid: DataLike | None = None
    workflow: Workflow | str | Path | None = None
    settings: TrainSettings | Mapping[str, Any] = field(default_factory=dict)
    overwrite: bool = False
    best_auc: float | None = None
    num_examples: int = 3
    progress: bool | None = None
    listener: Listener | None = None
    callbacks: Sequence[Callable[[Record], Any]] = ()
    stop: Callable[[], bool] | None = None
    is_resumed: bool = False
    test: DataLike | None = None
    drafted: str | None = None
    verify: KeyLike | None = None
    cluster: str | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.settings, TrainSettings):
            self.settings = TrainSettings.resolve(self.settings)
        if self.cluster is not None:
            self.settings = TrainSettings.resolve(self.settings.to_dict(), {"cluster": self.cluster})
        self.settings = with_absolute_folders(self.settings)
        self._take_valid_file(self.settings)
        for name in ("source", "valid", "test"):
            value = getattr(self, name)
            if value is not None and not are_paths(value):
                setattr(self, name, as_dataset(value))
        self._folder = RunFolder(self.output)
        self._seconds = dict.fromkeys(STAGES, 0.0)

    def _take_valid_file(self, settings: TrainSettings) -> None:
        """`valid_by` may name a file, which is what `valid` is for."""
        if settings.valid_by is None or way_of(settings.valid_by) is not None:
            return
        if self.valid is not None:
            raise ParameterError("valid and valid_by both name rows to hold out; leave one of them out")
        self.valid, self.settings = settings.valid_by, replace(settings, valid_by=None)

    @classmethod
    def resumed(cls, output: str | Path, changes: Mapping[str, Any] | None = None, **hooks: Any) -> Self:
        """The job that began in `output`, to go on from its newest checkpoint, with some settings changed.

        Args:
            output: the folder of a run.
            changes: settings by key.
            hooks: other arguments of the job, such as `listener`. With `verify`, what the run has saved must be signed,
                and its `config.yaml`, which is not, may name only modules that are trusted.

        Returns:
            The job.

        Raises:
            ParameterError: the run read data from memory, or a setting cannot be changed.
            ArtefactError: there is no run in the folder, or it is not as `verify` asks.
        """
        about, config = RunFolder(output).read()
        if hooks.get("verify") is not None:
            check_signed(output, hooks["verify"])
            check_references([about, config], RunFolder(output).config)
        del about["preset"]  # a run keeps the recipe itself
        if about["data"] is None:
            raise ParameterError(f"the run in {output} read data from memory, so it cannot be resumed from its folder")
        settings = TrainSettings.resolve(config).changed(changes or {})
        return cls(about.pop("data"), output, settings=settings, is_resumed=True, **about, **hooks)

    @property
    def configuration(self) -> dict[str, Any]:
        """What the run was asked for, as `config.yaml` holds it."""
        assert isinstance(self.settings, TrainSettings)
        workflow = None if isinstance(self.workflow, Workflow) else absolute_paths(self.workflow)
        about = {
            "data": absolute_paths(self.source),
            "recipe": plain_copy(self.recipe),
            "valid": absolute_paths(self.valid),
            "test": absolute_paths(self.test),
        }
        return {**about, "workflow": workflow[0] if workflow else None, **self.settings.to_dict()}

    # Running.

    def run(self) -> TrainResult:
        """Do it all. What cannot work is refused before anything is written.

        Returns:
            What the run has reached, and where its model is.

        Raises:
            TrainingStopped: it was told to stop, and can go on.
            PenstockError: the data or the settings do not allow it.
        """
        settings = self._checked()
        cluster = Cluster.of(settings)
        if cluster is None:
            return self._run_here(settings)
        with cluster.running():
            return self._run_here(settings)

    def _run_here(self, settings: TrainSettings) -> TrainResult:
        device = building.training_device(settings)
        preparation = self._preparation(settings)
        if self.test is not None:
            preparation.check_test(self.test)
        config = self.configuration
        if self.is_resumed:
            preparation.resume(self._folder)
            shutil.rmtree(self._folder.second, ignore_errors=True)  # of a second training that was interrupted
            self._folder.write(config)
        else:
            self._folder.begin(config, self.drafted)
        self._notify(RunBegan(config, str(self.output), self.best_auc, self.is_resumed))
        try:
            if (cluster := Cluster.of(settings)) is not None:
                cluster.check_shared(self._folder.path, self.source, self.valid)
            result = self._tested(self._run(settings, preparation, device))
        except BaseException as error:
            stopped = isinstance(error, (KeyboardInterrupt, SystemExit, TrainingStopped))
            self._notify(RunFailed(str(error) or type(error).__name__, stopped))
            raise
        self._notify(RunDone(result.to_dict()))
        return result

    def _checked(self) -> TrainSettings:
        assert isinstance(self.settings, TrainSettings)
        if not self.is_resumed:
            self._folder.check_free(self.overwrite)
            if (copies := self.settings.copy_checkpoints_to) is not None:
                Mirror(copies).check_free()
        for source in (self.source, self.valid, self.test):
            for part in self._folder.parts:
                if (paths := absolute_paths(source)) and part.is_dir():
                    check_outside(paths, part)
        return self.settings

    def _preparation(self, settings: TrainSettings) -> RawRows | ReadyFeatures:
        cluster = Cluster.of(settings)
        settings = settings if cluster is None else cluster.settings_of_etl(settings)
        if self.recipe is None:
            with verifying(self.verify):
                return ReadyFeatures(self.source, self.valid, self.workflow, settings)
        if self.workflow is not None:
            raise ParameterError("a workflow goes with features that it has made; raw rows go with a recipe")
        return RawRows(self.source, self.valid, self.recipe, settings)

    def _run(self, settings: TrainSettings, preparation: RawRows | ReadyFeatures, device: torch.device) -> TrainResult:
        with self._stage("etl", preparation.has_work), self._rehearsing(settings, preparation, device):
            ready = preparation.run(self._folder, self._notify, self.progress)
        is_asked = settings.linear_start is True and not self.is_resumed
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
                    settings, ready, loader, valid, network, store, device, self._folder, self._notify, self.callbacks,
                    self.stop, self.progress,
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
            best_auc=self.best_auc,
            selected=chosen,
            labels=labels,
            learning=learning_verdict(records, labels, chosen),
            rows={"train": loader.num_rows, "valid": None if valid is None else valid.num_rows},
            steps=history.stats["steps"],
            rows_per_second=rows_per_second,
            embedding_rows=embedding_rows,
            model=str(self._folder.model),
            examples=examples,
            predictions=predictions,
            seconds={**self._seconds, "total": round(sum(self._seconds.values()), 3)},
        )

    def _rehearsing(
        self, settings: TrainSettings, preparation: RawRows | ReadyFeatures, device: torch.device
    ) -> AbstractContextManager[None]:
        if Cluster.of(settings) is not None or not isinstance(preparation, RawRows) or not preparation.has_work:
            return nullcontext()
        return rehearsing(preparation.data, preparation.recipe, settings, device)

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
        card = model_card(self.source, ready, network, num_rows, metrics, settings.keep_example, constant)
        save_model(self._folder.model, ready.workflow, network, store, overwrite=True, card=card)
        self._notify(ModelSaved(str(self._folder.model)))

    def _open_feed(self, settings: TrainSettings, ready: Prepared, network: Any, store: Any, num_rows: int) -> None:
        """Put a model beside the packets to come: whoever follows them needs its workflow, and where to begin."""
        if settings.feed is None:
            return
        place = Path(settings.feed)
        if (place / "model").exists() and not packet_numbers(place):
            raise OutputExistsError(f"{place} holds a model that no feed has begun with; choose another feed:")
        card = model_card(self.source, ready, network, num_rows, {}, settings.keep_example)
        save_model(place, ready.workflow, network, store, overwrite=True, card=card)

    def _tested(self, result: TrainResult) -> TrainResult:
        """The result, with what the saved model reaches on the rows to test on."""
        if self.test is None:
            return result
        from penstock.jobs.scoring import evaluate_model

        with trusting(*modules_in(self.recipe)):
            assert isinstance(self.settings, TrainSettings)
            found = evaluate_model(result.model, self.test, metrics=self.settings.metrics, progress=self.progress)
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
                first, ready, labels, device, num_rows, self._folder, self.callbacks, self.stop, self.progress
            )
            if not is_better(second.history, first.history):
                second.close()
                shutil.rmtree(self._folder.second)
                return first
            first.close()
            take_place(self._folder, lambda: self._settled(second.settings))
            for event in second.events:
                self._notify(event)
        return second

    def _settled(self, settings: TrainSettings) -> TrainSettings:
        """Whoever resumes this run needs the same batches, and embeddings where they are: its settings say so."""
        asked, self.settings = self.settings, settings
        if settings != asked:
            self._folder.write(self.configuration)
        return settings

    def _predictions(self, ready: Prepared) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        """Held-out rows through the saved model: a few as a service would send them, and how all of them lie."""
        if ready.valid is None:
            return [], None
        trust = [] if ready.workflow is None else modules_in(ready.workflow.to_recipe({}))
        with Predictor(self._folder.model, trust=trust) as predictor:
            examples = example_predictions(predictor, ready, self.num_examples)
            return examples, describe_predictions(predictor, as_dataset(ready.valid), ready.label)

    def _notify(self, event: Event) -> None:
        if self.listener is not None:
            self.listener(event)

    def _stage(self, name: str, is_there: bool = True) -> AbstractContextManager[None]:
        return timed_stage(name, self._notify, self._seconds) if is_there else nullcontext()
