"""A recipe drafted from data."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.app import app, say
from penstock.cli.choices import OnError

Label = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The column to predict.", show_default="told from its name")
]


@app.command()
def init(
    data: Annotated[list[str], typer.Argument(metavar="DATA", help="Raw rows: files, globs, folders.")],
    label: Label = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where the recipe goes; - is standard output.")
    ] = "-",
    on_error: Annotated[OnError, typer.Option(help="What a malformed text line does.")] = OnError.RAISE,
    hashed: Annotated[
        bool, typer.Option("--hashed", help="Ids without a vocabulary, for train --tables hashed.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE.")] = False,
) -> None:
    """Draft a recipe from the data: what each column is good for, with a comment on each line that says why."""
    from pathlib import Path

    from penstock.core.artefact import check_free
    from penstock.jobs.draft import draft_recipe
    from penstock.jobs.text_output import write_text

    if output != "-":
        check_free(Path(output), overwrite)
    draft = draft_recipe(data, label, on_error=str(on_error), hashed=hashed)
    if draft.assumed is not None:
        say(draft.assumed)
    if output == "-":
        print(draft.text, end="")
        return
    write_text(output, draft.text)
    say(f"{output}: a recipe to predict {draft.label}; train with: penstock train {data[0]} --recipe {output} -o run")
