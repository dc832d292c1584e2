"""Where and what NVTabular saved: into folders that hold other things too, and workflows that have not seen data."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import polars as pl

from penstock.core import artefact
from penstock.core.artefact import MANIFEST, SavedFolder
from penstock.core.bounded import read_json
from penstock.core.errors import ArtefactError, OutputExistsError
from penstock.core.params import STR, Instance
from penstock.etl import recipe
from penstock.etl import workflow as native
from penstock.etl.saved_workflow import ARTEFACT
from penstock.etl.trust import saving

UNFITTED = "unfitted.json"
_KIND, _VERSION = "graph", 1


def save(workflow: native.Workflow, path: Any) -> None:
    """Write a workflow over one that was saved there before; what else lies in the folder stays."""
    place = Path(path)
    if not place.is_dir() or _lists(place) >= _files(place):
        _write(workflow, place)
        return
    staging = place / f".{uuid.uuid4().hex[:8]}"
    try:
        _write(workflow, staging)
        for mark in (MANIFEST, UNFITTED):  # while files change there is nothing that could be loaded
            (place / mark).unlink(missing_ok=True)
        for file in sorted(_files(staging), key=lambda name: name == MANIFEST):
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (staging / file).replace(place / file)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def _lists(folder: Path) -> set[str]:
    """The files of the workflow that was saved in a folder; what others saved there is not ours to replace."""
    try:
        manifest = read_json(folder / MANIFEST, {"penstock": STR, "files": Instance(dict)})
    except ArtefactError:
        return set()
    kind, files = manifest["penstock"], {MANIFEST, *manifest["files"]}
    if kind not in (ARTEFACT, _KIND):
        raise OutputExistsError(f"{folder} holds another artefact ({kind}); choose another folder for the workflow")
    return files


def _write(workflow: native.Workflow, path: Path) -> None:
    if workflow.is_fitted:
        workflow.save(path, overwrite=True)
    else:
        _write_graph(workflow, path)


def _write_graph(workflow: native.Workflow, path: Path) -> None:
    tables: dict[str, pl.DataFrame] = {}
    with saving():
        graph = workflow.to_recipe(tables)
    with artefact.writing(path, _KIND, _VERSION, overwrite=True) as folder:
        (folder / UNFITTED).write_text(json.dumps({"recipe": graph}, indent=1))
        for file, table in tables.items():
            (folder / "attached").mkdir(exist_ok=True)
            table.write_parquet(folder / "attached" / file)


def load_unfitted(path: Path, engine: Any) -> native.Workflow:
    """A workflow that was saved before it saw data, still to be fitted."""

    def loaded(folder: SavedFolder) -> native.Workflow:
        graph = folder.json(UNFITTED, {"recipe": Instance(dict, "a mapping")})["recipe"]
        whole = recipe.with_attached(graph, lambda file: folder.frame(f"attached/{file}"))
        return native.Workflow.from_recipe(whole, engine=engine)

    return artefact.read(path, _KIND, _VERSION, loaded)
