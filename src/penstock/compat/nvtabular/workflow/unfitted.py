"""A workflow that was saved before it saw data: its graph alone, as JSON behind a manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from penstock.core import artefact
from penstock.core.artefact import SavedFolder
from penstock.core.params import Instance
from penstock.etl import recipe
from penstock.etl import workflow as native
from penstock.etl.trust import saving

FILE = "unfitted.json"
_KIND, _VERSION = "graph", 1


def save(workflow: native.Workflow, path: Any) -> None:
    """Write the graph of a workflow that has not learned."""
    tables: dict[str, pl.DataFrame] = {}
    with saving():
        graph = workflow.to_recipe(tables)
    with artefact.writing(path, _KIND, _VERSION, overwrite=True) as folder:
        (folder / FILE).write_text(json.dumps({"recipe": graph}, indent=1))
        for file, table in tables.items():
            (folder / "attached").mkdir(exist_ok=True)
            table.write_parquet(folder / "attached" / file)


def load(path: Path, engine: Any) -> native.Workflow:
    """What `save` wrote, still to be fitted."""

    def loaded(folder: SavedFolder) -> native.Workflow:
        graph = folder.json(FILE, {"recipe": Instance(dict, "a mapping")})["recipe"]
        whole = recipe.with_attached(graph, lambda file: folder.frame(f"attached/{file}"))
        return native.Workflow.from_recipe(whole, engine=engine)

    return artefact.read(path, _KIND, _VERSION, loaded)
