"""Models on the command line: train, evaluate, predict."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.app import (
    Json,
    Preset,
    Progress,
    Recipe,
    Trust,
    Verify,
    app,
    console,
    loading,
    print_json,
    recipe_of,
    say,
)
from penstock.cli.attended import AttendedRun
from penstock.cli.choices import OnError
from penstock.cli.init import Label
from penstock.cli.long_work import LongCommand
from penstock.cli.setting_options import with_setting_options
from penstock.core.runtime.long_imports import long_imports
from penstock.metrics.registry import METRICS

if TYPE_CHECKING:
    from penstock.jobs import TrainJob, TrainSettings
    from penstock.jobs.draft import Draft
    from penstock.jobs.events import Event, Listener

ModelDir = Annotated[str, typer.Argument(metavar="MODEL_DIR", help="A saved model: OUTPUT/model of a training run.")]
Rows = Annotated[list[str], typer.Argument(metavar="DATA", help="Raw rows or features: files, globs, folders.")]
Features = Annotated[
    bool | None,
    typer.Option(
        "--features/--raw",
        help="Whether the data went through the workflow already.",
        show_default="told from the data",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help="Where the model runs: cpu, cuda, cuda:1.", show_default="the GPU where there is one"),
]
Bad = Annotated[OnError, typer.Option("--on-error", help="What a malformed text line does.")]


def _watching(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Watching", **more)


@app.command(cls=LongCommand)
@with_setting_options
def train(
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="The folder of the run.")],
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATA", help="Raw rows, or features that penstock etl made.", show_default=False),
    ] = None,
    recipe: Recipe = None,
    preset: Preset = None,
    label: Label = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Settings as YAML; options given here win over them.", show_default="none"),
    ] = None,
    valid: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Rows to evaluate on.", show_default="a share of DATA")
    ] = None,
    test: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Rows to test the model on at the end.", show_default="none"),
    ] = None,
    workflow: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The workflow that made the features.", show_default="DATA-workflow"),
    ] = None,
    trust: Trust = None,
    verify: Verify = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in DIR; DATA is not needed.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in DIR.")] = False,
    settings: dict[str, Any] | None = None,
    watch: Annotated[bool, _watching("--watch", help="Serve the report on this machine while it grows.")] = False,
    port: Annotated[int, _watching(min=0, max=65535, help="Of --watch; 0 takes a free one.")] = 0,
    tensorboard: Annotated[
        str | None, _watching(metavar="DIR", help="Also write TensorBoard events.", show_default="none")
    ] = None,
    json: Json = False,
    progress: Progress = None,
) -> None:
    """Train a click model on raw rows or features; DIR gets the model, its report and everything in between."""
    settings = settings or {}
    about = _given(data=data, valid=valid, test=test, workflow=workflow, recipe=recipe, preset=preset)
    if resume and (about or label or config or overwrite):
        raise typer.BadParameter("--resume goes on with the data and the configuration of the run; leave others out")
    if verify is not None and (recipe or preset or label):
        raise typer.BadParameter("it goes with features or --resume: a recipe is not signed", param_hint="--verify")
    # The key is the job's: what the run itself saves and reads again is not signed.
    with loading(trust, None), AttendedRun(output, progress, json) as attended:
        if tensorboard is not None:
            attended.log_to(tensorboard)
        if resume:
            from penstock.jobs import TrainJob

            job = TrainJob.resumed(output, settings, verify=verify, **attended.hooks)
        else:
            about["label"] = label
            job = _new_job(
                output, config, about, settings, {"overwrite": overwrite, "verify": verify, **attended.hooks}
            )
        attended.lines.is_reading_told = job.drafted is not None
        if watch:
            attended.watch(port)
        attended.run(job)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _new_job(output: str, config: str | None, said: dict[str, Any], settings: dict[str, Any], hooks: Any) -> TrainJob:
    """A job from the settings file and what was said besides, which wins."""
    from penstock.jobs import TrainJob, TrainSettings
    from penstock.jobs.events import Listeners
    from penstock.jobs.run_folder import RunFolder
    from penstock.jobs.settings import split_config

    label = said.pop("label", None)
    about, below = split_config(config)
    if "recipe" in said or "preset" in said:
        about["recipe"] = about["preset"] = None
    about.update(said)
    if not about["data"]:
        raise typer.BadParameter("give DATA: files of raw rows, or a folder of features")
    recipe, preset = about["recipe"], about["preset"]
    resolved = TrainSettings.resolve(below, settings)
    is_hashed = resolved.tables == "hashed"
    rules = recipe if isinstance(recipe, dict) and preset is None else recipe_of(recipe, preset, is_hashed)
    drafted = None
    if label is not None and (rules is not None or about["workflow"] is not None):
        raise typer.BadParameter("--label drafts a recipe; a recipe, preset or workflow names the label itself")
    is_described = rules is not None or about["workflow"] is not None or hooks.get("verify") is not None
    if label is not None or (not is_described and _is_raw(about["data"])):
        RunFolder(output).check_free(hooks["overwrite"])  # before rows are read for it
        draft = _draft(about["data"], label, resolved)
        rules, drafted = draft.recipe, draft.text
        lines = (draft.assumed, f"recipe drafted: {draft.summary}; {output}/recipe.yaml says why")
        hooks = {**hooks, "listener": Listeners(_saying_at_begin(lines), hooks["listener"])}
    return TrainJob(
        about["data"], output, rules, valid=about["valid"], test=about["test"], workflow=about["workflow"],
        settings=resolved, drafted=drafted, **hooks,
    )  # fmt: skip


def _is_raw(data: Any) -> bool:
    """Whether these are rows that can be read and that say of no column what it is for."""
    from penstock.core.errors import PenstockError
    from penstock.core.schema import Role
    from penstock.data.dataset import as_dataset

    try:
        return all(column.role is Role.OTHER for column in as_dataset(data).schema)
    except PenstockError:  # which is told in the words of who reads them
        return False


def _draft(data: Any, label: str | None, settings: TrainSettings) -> Draft:
    """A recipe for the rows."""
    from penstock.jobs.draft import draft_recipe

    is_hashed = settings.tables == "hashed"
    return draft_recipe(data, label, on_error=settings.etl.get("on_error") or "raise", hashed=is_hashed)


def _saying_at_begin(lines: Iterable[str | None]) -> Listener:
    """Says how rows were read and what was drafted once the run's folder is there; of a refused run only why."""
    from penstock.jobs.events import RunBegan

    def listen(event: Event) -> None:
        if isinstance(event, RunBegan):
            for line in filter(None, lines):
                say(line)

    return listen


@app.command(cls=LongCommand)
def evaluate(
    model: ModelDir,
    data: Rows,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar=f"[{'|'.join(METRICS)}|MODULE:CLASS]",
            help="What is measured; may be repeated.",
            show_default="auc, log_loss",
            autocompletion=lambda: list(METRICS),
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Of metrics within groups: the user or query.", show_default="none"),
    ] = None,
    recipe: Recipe = None,
    preset: Preset = None,
    features: Features = None,
    on_error: Bad = OnError.RAISE,
    device: Device = None,
    trust: Trust = None,
    verify: Verify = None,
    json: Json = False,
    progress: Progress = None,
) -> None:
    """AUC, log loss or other metrics, calibration and unknown categories of a saved model on labelled rows."""
    with long_imports():
        from penstock.jobs.scoring import evaluate_model  # brings torch
    from penstock.report.summary import show_evaluation

    with loading(trust, verify):
        figures = evaluate_model(
            model, data, metrics=metrics, group=group, input=_section(recipe, preset),
            is_raw=None if features is None else not features, on_error=str(on_error), device=device, progress=progress,
        )  # fmt: skip
    print_json(figures.to_dict()) if json else show_evaluation(figures.to_dict(), console())
    say_of_known_rows(model, data)


def say_of_known_rows(model: str, data: list[str]) -> None:
    """Figures of rows that a model has learned from flatter it."""
    from penstock.jobs.run_folder import trained_on

    if known := trained_on(model, data):
        say(f"the model was trained on rows of {', '.join(known)}: figures of them are better than those of new rows")


@app.command(cls=LongCommand)
def predict(
    model: ModelDir,
    data: Rows,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="By its suffix parquet, csv or tsv; - is standard output."),
    ],
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="A column to write beside the prediction; may be repeated.", show_default="none"
        ),
    ] = None,
    column: Annotated[str, typer.Option(help="What the prediction is called.")] = "probability",
    recipe: Recipe = None,
    preset: Preset = None,
    features: Features = None,
    on_error: Bad = OnError.RAISE,
    device: Device = None,
    trust: Trust = None,
    verify: Verify = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE.")] = False,
    json: Json = False,
    progress: Progress = None,
) -> None:
    """Predictions of a saved model for every row, in order, in bounded memory."""
    with long_imports():
        from penstock.jobs.scoring import predict_files  # brings torch

    with loading(trust, verify):
        found = predict_files(
            model, data, output, keep=keep or [], column=column, input=_section(recipe, preset),
            is_raw=None if features is None else not features, on_error=str(on_error), device=device,
            overwrite=overwrite, progress=progress,
        )  # fmt: skip
    if output == "-":
        return
    if json:
        print_json(found.to_dict())
    else:
        print(f"{found.output}: {found.rows:,} predictions in {found.seconds:.1f} s")


def _section(recipe: str | None, preset: str | None) -> dict[str, Any] | None:
    found = recipe_of(recipe, preset)
    return None if found is None else found.get("input", {})
