"""Runs that are over, on the command line: what matters to their models, and how they compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.app import Json, Preset, Progress, Recipe, Trust, Verify, app, console, loading, print_json, recipe_of
from penstock.cli.choices import OnError
from penstock.cli.model import Bad, Device, say_of_known_rows


@app.command()
def explain(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a training run, or a saved model.")],
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATA", help="Labelled rows: raw, or features.", show_default="what the run held out"),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="The page.", show_default="RUN/explain.html")
    ] = None,
    rows: Annotated[int, typer.Option(min=2, help="At most this many rows, drawn from all.")] = 10_000,
    repeats: Annotated[int, typer.Option(min=1, help="How often each column is shuffled.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw and the shuffling.")] = 0,
    recipe: Recipe = None,
    preset: Preset = None,
    on_error: Bad = OnError.RAISE,
    device: Device = None,
    trust: Trust = None,
    verify: Verify = None,
    json: Json = False,
    progress: Progress = None,
) -> None:
    """Which columns a model depends on: how much worse it gets when the values of one are shuffled."""
    from penstock.jobs.explaining import explain_model
    from penstock.jobs.text_output import write_text
    from penstock.report.explanation import render_explanation, show_explanation

    section = recipe_of(recipe, preset)
    with loading(trust, verify):
        found = explain_model(
            run, data or None, input=None if section is None else section.get("input", {}), num_rows=rows,
            repeats=repeats, seed=seed, on_error=str(on_error), device=device, progress=progress,
        ).to_dict()  # fmt: skip
    say_of_known_rows(run, data or [])
    page = Path(output) if output is not None else Path(run) / "explain.html"
    from json import dumps

    write_text(page.with_suffix(".json"), dumps(found, indent=1))
    write_text(page, render_explanation(found))
    if json:
        print_json({**found, "page": str(page)})
        return
    screen = console()
    show_explanation(found, screen)
    screen.print(f"page: {page}", highlight=False, markup=False, soft_wrap=True)


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help="Folders of training runs, two or more.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The page.")] = "compare.html",
    json: Json = False,
) -> None:
    """Runs on one page: figures side by side, curves in one chart, the settings that differ."""
    from penstock.jobs.comparing import compare_runs
    from penstock.report.comparison import differing_settings
    from penstock.report.side_by_side import show_comparison

    reports = compare_runs(runs, output)
    if json:
        heads = {name: report.get("headline") for name, report in reports.items()}
        print_json({"runs": heads, "differing": differing_settings(reports), "page": output})
        return
    screen = console()
    show_comparison(reports, screen)
    screen.print(f"page: {output}", highlight=False, markup=False, soft_wrap=True)
