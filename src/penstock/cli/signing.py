"""Signing what others will load."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.app import app


@app.command()
def sign(
    artefacts: Annotated[
        list[str],
        typer.Argument(metavar="ARTEFACT", help="A saved model, workflow, store or feed, or the folder of a run."),
    ],
    key: Annotated[str, typer.Option("--key", "-k", metavar="FILE", help="The signing key; keep it secret.")],
    new_key: Annotated[bool, typer.Option("--new-key", help="Make the key first; FILE must not exist.")] = False,
) -> None:
    """Sign artefacts, so that others can load them with --verify KEY and know that nothing was exchanged."""
    from penstock.core import signing

    found = signing.new_key(key) if new_key else signing.read_key(key)
    for place in artefacts:
        for path in signing.sign(place, found):
            print(f"{path}: signed with key {found.name}")
