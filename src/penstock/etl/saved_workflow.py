"""A fitted workflow on disk: its graph and schemas as JSON, the tables it holds, and a folder of state an operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import polars as pl

from penstock.core.artefact import SavedFolder
from penstock.core.errors import ArtefactError, ParameterError
from penstock.core.params import Instance
from penstock.core.schema import Schema
from penstock.etl import recipe
from penstock.etl.plan import Plan

ARTEFACT = "workflow"
FORMAT_VERSION = 1
_LONGEST = 255
_MAPPING = Instance(dict, "a mapping")
_PLAIN = " !#$&'()+,;=@[]^`{}~"  # what names of folders may hold besides letters, digits and "_.-"


def write_workflow(
    folder: Path, plan: Plan, graph: Mapping[str, Any], tables: Mapping[str, pl.DataFrame], names: dict[int, str]
) -> None:
    """Write a fitted plan to a folder; `names` are its nodes' names in the recipe `graph`, `tables` what that needs."""
    content = {"recipe": graph, "input_schema": plan.input_schema.to_dict()}
    content["output_schema"] = plan.schemas[plan.output].to_dict()
    (folder / "workflow.json").write_text(json.dumps(content, indent=1))
    for file, table in tables.items():
        (folder / "attached").mkdir(exist_ok=True)
        table.write_parquet(folder / "attached" / file)
    for name, i in _state_names(plan, names).items():
        op = plan.nodes[i].fitted_op
        assert op is not None
        if len(name) > _LONGEST:
            raise ParameterError(f"a node's name is too long to be saved: {name[:60]}…; give it a shorter one")
        (folder / "state" / name).mkdir(parents=True)
        op.save_state(folder / "state" / name)


def read_graph(folder: SavedFolder) -> tuple[Mapping[str, Any], Schema]:
    """The recipe of a saved workflow, with its tables, and the schema of its raw rows."""
    content = folder.json("workflow.json", {"recipe": _MAPPING, "input_schema": _MAPPING})
    schema = Schema.from_dict(content["input_schema"])
    return recipe.with_attached(content["recipe"], lambda file: folder.frame(f"attached/{file}")), schema


def read_states(folder: SavedFolder, plan: Plan, names: dict[int, str]) -> None:
    """Give every operator of a plan what it had learned."""
    for name, i in _state_names(plan, names).items():
        op = plan.nodes[i].fitted_op
        assert op is not None
        found = _state_folder(folder, name)
        op.load_state(found, plan.columns[i])
        unknown = [column for column in plan.columns[i].names if op.learns_by_column and column not in op.state_]
        if unknown:
            raise ArtefactError(f"{found} was learned of other columns than {unknown[0]!r}, which the recipe names")
        plan.refresh()


def _state_folder(folder: SavedFolder, name: str) -> SavedFolder:
    found = folder.folder(f"state/{name}")
    return found if found.files else folder.folder(f"state/{unquote(name)}")  # as names were written at first


def _state_names(plan: Plan, names: dict[int, str]) -> dict[str, int]:
    """A stable folder name for each fitted operator: its node's recipe name and its place in the chain.

    Letters that mean something in paths are written as `%2F`: a node's name never leads out of the folder.
    """
    out: dict[str, int] = {}
    for i in plan.fitted_nodes():
        node = plan.nodes[i]
        place = sum(
            1 for j in range(i) if plan.nodes[j].operator is not None and names[id(plan.nodes[j])] == names[id(node)]
        )
        out[f"{quote(names[id(node)], safe=_PLAIN)}-{place}"] = i
    return out
