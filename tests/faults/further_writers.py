"""What else is written: tables of a device, scores, reports, recipes, signatures, settings, other people's layouts."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import torch
from tests.faults.writers import RECIPE, Writer, fitted, frame

from penstock import Dataset, Workflow
from penstock.compat.merlin.io.dataset import Dataset as MerlinDataset
from penstock.compat.nvtabular.workflow import Workflow as OldWorkflow
from penstock.compat.persia.utils import dump_yaml, load_yaml
from penstock.core.keys import read_key, verifying
from penstock.core.signing import new_key, sign
from penstock.embedding.module_files import load_module, save_module
from penstock.jobs.run_folder import RunFolder
from penstock.jobs.scoring_output import writer_of
from penstock.jobs.text_output import write_text
from penstock.report.writing import write as write_report


def _write_tables(place: Path, version: int) -> None:
    tables = torch.nn.EmbeddingBag(5, 2)
    torch.nn.init.constant_(tables.weight, version)
    save_module(tables, place, overwrite=True)


def _versions_of_tables(place: Path) -> set[int]:
    tables = torch.nn.EmbeddingBag(5, 2)
    load_module(tables, place)
    return {int(value) for value in tables.weight.detach().unique().tolist()}


def _write_scores(place: Path, version: int) -> None:
    for suffix in (".csv", ".parquet"):
        file = place.with_suffix(suffix)
        with writer_of(file)(file) as scores:
            scores.write(pl.DataFrame({"score": [version] * 50}))
            scores.write(pl.DataFrame({"score": [version] * 50}))


def _versions_of_scores(place: Path) -> set[int]:
    """Each file is whole; they are two outputs, and nobody promises that they belong together."""
    found = [Dataset(place.with_suffix(suffix)).to_polars()["score"] for suffix in (".parquet", ".csv")]
    assert all(len(scores) == 100 and scores.n_unique() == 1 for scores in found)
    return {int(found[0][0])}


def _write_report(place: Path, version: int) -> None:
    write_report({"version": 1, "title": f"version {version}", "kind": "profile"}, place)


def _versions_of_report(place: Path) -> set[int]:
    assert (place / "report.html").read_text().rstrip().endswith("</html>")
    return {int(json.loads((place / "report.json").read_text())["title"].split()[-1])}


def _write_recipe(place: Path, version: int) -> None:
    nodes = {**RECIPE["nodes"], f"more_{version}": {"columns": ["age"], "ops": ["FillMedian"]}}
    Workflow.from_recipe({**RECIPE, "nodes": nodes}).to_yaml(place)


def _versions_of_recipe(place: Path) -> set[int]:
    return {int(name[-1]) for name in Workflow.from_recipe(place).to_recipe()["nodes"] if name.startswith("more_")}


def _write_signature(place: Path, version: int) -> None:
    if not place.exists():
        fitted(0).save(place)
    for number in (0, 1):
        if not (place.parent / f"key-{number}").exists():
            new_key(place.parent / f"key-{number}")
    sign(place, place.parent / f"key-{version}")


def _versions_of_signature(place: Path) -> set[int]:
    found = set()
    for number in (0, 1):
        try:
            with verifying(read_key(place.parent / f"key-{number}")):
                Workflow.load(place)
        except Exception as error:
            assert "signed with another key" in str(error) or "key" in str(error), error
        else:
            found.add(number)
    return found


def _write_old_data(place: Path, version: int) -> None:
    MerlinDataset(frame(version).to_pandas()).to_parquet(str(place))


def _versions_of_old_data(place: Path) -> set[int]:
    rows = Dataset(place).to_polars()
    assert rows.height == 12
    return {int(name[1]) for name in rows["user"].unique()}


def _old_workflow(version: int) -> OldWorkflow:
    return OldWorkflow._of(fitted(version))


def _versions_of_old_workflow(place: Path) -> set[int]:
    from tests.faults.writers import version_of

    return version_of(OldWorkflow.load(place).native)


FURTHER_WRITERS = [
    Writer("tables", _write_tables, _versions_of_tables),
    Writer("scores", _write_scores, _versions_of_scores),
    Writer("report", _write_report, _versions_of_report),
    Writer(
        "page", lambda p, v: write_text(p, f"<p>{v}" * 99), lambda p: {int(n) for n in p.read_text().split("<p>")[1:]}
    ),
    Writer("recipe", _write_recipe, _versions_of_recipe),
    Writer("signature", _write_signature, _versions_of_signature),
    Writer("run", lambda p, v: RunFolder(p).write({"seed": v}), lambda p: {RunFolder(p).read()[1]["seed"]}),
    Writer("settings", lambda p, v: dump_yaml({"x": v}, p), lambda p: {load_yaml(p)["x"]}),
    Writer("old data", _write_old_data, _versions_of_old_data),
    Writer("old workflow", lambda p, v: _old_workflow(v).save(p), _versions_of_old_workflow),
]
