"""Data on the command line: make it, turn it into features, look at it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from penstock.cli.app import Preset, Progress, Recipe, Trust, Verify, app, console, loading, recipe_of, say
from penstock.cli.choices import FileFormat, OnError
from penstock.cli.long_work import LongCommand


class Kind(StrEnum):
    criteo = "criteo"
    multihot = "multihot"
    movielens = "movielens"


class Shuffle(StrEnum):
    none = "none"
    inside = "partition"
    full = "full"


@app.command()
def synth(
    output: Annotated[
        str, typer.Argument(metavar="OUTPUT", help="The file to write, or the folder where --files is above 1.")
    ],
    rows: Annotated[int, typer.Option(min=0, help="How many rows.")] = 1_000_000,
    kind: Annotated[Kind, typer.Option(help="Click logs, click logs with list columns, or ratings.")] = Kind.criteo,
    format: Annotated[
        FileFormat | None, typer.Option(help="Of the files.", show_default="tsv for criteo, else parquet")
    ] = None,
    seed: Annotated[int, typer.Option(help="Other rows from the same distribution and teacher.")] = 0,
    cardinality_cap: Annotated[
        int | None, typer.Option(min=1, help="At most this many values in a category column.", show_default="none")
    ] = None,
    files: Annotated[int, typer.Option(min=1, help="How many files.")] = 1,
    overwrite: Annotated[bool, typer.Option(help="Replace what is there.")] = False,
    progress: Progress = None,
) -> None:
    """Make synthetic click logs that a model can learn, with a known best AUC."""
    from penstock.data import synthetic

    if kind is not Kind.criteo and format is FileFormat.TSV:
        raise typer.BadParameter(f"{kind} has list columns, which TSV cannot hold; use parquet", param_hint="--format")
    common: dict[str, Any] = {"seed": seed, "num_files": files, "overwrite": overwrite, "progress": progress}
    if kind is Kind.criteo:
        made = synthetic.criteo(
            output, rows, format=str(format or FileFormat.TSV), cardinalities=cardinality_cap, **common
        )
    elif kind is Kind.multihot:
        cap = 100_000 if cardinality_cap is None else min(cardinality_cap, 100_000)
        made = synthetic.multihot(output, rows, cardinality=cap, **common)
    else:
        users, items = (min(most, cardinality_cap or most) for most in (10_000, 2_000))
        made = synthetic.movielens(output, rows, num_users=users, num_items=items, **common)
    print(made)


@app.command(cls=LongCommand)
def etl(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT", help="Files, globs, folders or URLs.")],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="DIR", help="The folder to write; it appears whole or not at all."),
    ],
    recipe: Recipe = None,
    preset: Preset = None,
    engine: Annotated[
        str, typer.Option(help="Where it runs: local, local:N (threads), tcp://… (Dask), ray or ray://…")
    ] = "local",
    part_size: Annotated[
        str | None,
        typer.Option(help="Bytes that a partition aims at, such as 64MB.", show_default="two partitions a core"),
    ] = None,
    on_error: Annotated[OnError, typer.Option(help="What a malformed text line does.")] = OnError.RAISE,
    workflow: Annotated[
        str | None, typer.Option(help="Where the fitted workflow goes.", show_default="DIR-workflow")
    ] = None,
    apply: Annotated[
        str | None,
        typer.Option(
            metavar="WORKFLOW",
            help="Transform with this fitted workflow and fit nothing; a recipe or preset then only says how to read.",
            show_default="none",
        ),
    ] = None,
    shuffle: Annotated[
        Shuffle, typer.Option(help="Permute rows inside each partition, or over the whole data.")
    ] = Shuffle.none,
    seed: Annotated[int, typer.Option(help="Of the shuffle.")] = 0,
    trust: Trust = None,
    verify: Verify = None,
    row_group_size: Annotated[int, typer.Option(min=1, help="Rows in a parquet row group.")] = 250_000,
    files: Annotated[
        int | None, typer.Option(min=1, help="How many files to write.", show_default="a few for each worker")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace what is there.")] = False,
    progress: Progress = None,
) -> None:
    """Fit a recipe on raw rows and write features that are ready to train on."""
    from penstock.jobs.etl import EtlJob
    from penstock.report import terminal

    if recipe is None and preset is None and apply is None:
        raise typer.BadParameter("give --recipe FILE, --preset NAME or --apply WORKFLOW")
    if apply is None and verify is not None:
        raise typer.BadParameter("it goes with --apply: a recipe is not signed", param_hint="--verify")
    if apply is not None and workflow is not None:
        raise typer.BadParameter("a workflow that is applied is not saved again", param_hint="--workflow")
    job = EtlJob(
        inputs, output, recipe=recipe_of(recipe, preset), apply=apply, workflow=workflow, engine=engine,
        part_size=part_size, on_error=str(on_error), shuffle=None if shuffle is Shuffle.none else str(shuffle),
        seed=seed, row_group_size=row_group_size, num_files=files, overwrite=overwrite, progress=progress,
    )  # fmt: skip
    with loading(trust, verify):
        done = job.run()
    if done.assumed is not None:
        say(done.assumed)
    terminal.show_etl(done.to_dict(), console())


@app.command()
def inspect(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", help="Data, or the folder of a run, model or workflow.")
    ],
    recipe: Recipe = None,
    preset: Preset = None,
    rows: Annotated[int, typer.Option(min=1, help="Look at no more than this many rows.")] = 1_000_000,
    on_error: Annotated[OnError, typer.Option(help="What a malformed text line does.")] = OnError.RAISE,
    trust: Trust = None,
    verify: Verify = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show the schema, roles, cardinalities, null shares and a small histogram of each column."""
    from penstock.etl import Workflow
    from penstock.etl.input_section import open_input
    from penstock.jobs.assumptions import assumed_line
    from penstock.jobs.workflow_profile import profile_workflow
    from penstock.report import profile, terminal

    workflow = profile.saved_workflow(paths[0]) if len(paths) == 1 else None
    if workflow is not None:
        with loading(trust, verify):
            found = profile_workflow(Workflow.load(workflow), str(workflow))
    elif verify is not None:
        raise typer.BadParameter("only a saved workflow is signed, data is not", param_hint="--verify")
    else:
        data = open_input(paths, (recipe_of(recipe, preset) or {}).get("input"), on_error=str(on_error))
        found = profile.profile_dataset(data, rows)
        if (line := assumed_line(data)) is not None:
            say(line)
    if json:
        from json import dumps

        print(dumps(found, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        terminal.show(found, console())
