"""Loading a saved workflow runs nothing that came with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from penstock import Workflow, ops
from penstock.core import artefact
from penstock.core.errors import ArtefactError, ParameterError
from penstock.etl import trusting

FRAME = pl.DataFrame({"price": [1.0, 2.0]})
MODULE = """
import polars as pl, subprocess
from pathlib import Path
Path({mark!r}).write_text("ran")
def twice(s): return s * 2
"""


def forged(place: Path, recipe_op: dict) -> Path:
    """A saved workflow with one operator changed, behind a manifest that fits."""
    Workflow(["price"] >> ops.LogOp()).fit(FRAME).save(place)
    content = json.loads((place / "workflow.json").read_text())
    [node] = content["recipe"]["nodes"].values()
    node["ops"] = [recipe_op]
    with artefact.writing(place, "workflow", 1, overwrite=True) as folder:
        (folder / "workflow.json").write_text(json.dumps(content))
    return place


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A module on the path, outside the working folder, that leaves a mark when it is imported."""
    mark, folder = tmp_path / "mark", tmp_path / "site"
    folder.mkdir()
    (folder / "shop_features.py").write_text(MODULE.format(mark=str(mark)))
    monkeypatch.syspath_prepend(folder)
    yield mark
    sys.modules.pop("shop_features", None)


@pytest.mark.parametrize("function", ["subprocess:getoutput", "os:system", "builtins:eval", "shutil:rmtree"])
def test_the_standard_library_is_never_run(tmp_path, function):
    place = forged(tmp_path / "flow", {"LambdaOp": {"f": function}})
    with pytest.raises(ArtefactError, match="standard library"):
        Workflow.load(place)
    with pytest.raises(ParameterError, match="standard library"):
        Workflow.load(place, trust=[function.partition(":")[0]])


def test_a_function_is_refused_before_its_module_is_imported(tmp_path, installed):
    place = forged(tmp_path / "flow", {"LambdaOp": {"f": "shop_features:twice"}})
    with pytest.raises(ArtefactError, match=r"trust=\['shop_features'\]"):
        Workflow.load(place)
    assert not installed.exists()
    loaded = Workflow.load(place, trust=["shop_features"])
    assert loaded.transform(FRAME)["price"].to_list() == [2.0, 4.0]
    with trusting("shop_features"):
        Workflow.load(place)


@pytest.mark.parametrize("name", ["subprocess.getoutput", "pl.read_csv", "Path.home"])
def test_a_trusted_module_does_not_lend_the_names_it_imports(tmp_path, installed, name):
    place = forged(tmp_path / "flow", {"LambdaOp": {"f": f"shop_features:{name}"}})
    with pytest.raises(ArtefactError, match="not in what is trusted"):
        Workflow.load(place, trust=["shop_features"])


@pytest.mark.parametrize("reference", ["penstock.core.durable:remove", "penstock.jobs.etl:EtlJob"])
def test_own_functions_are_no_operators(tmp_path, reference):
    with pytest.raises(ArtefactError, match="no operator"):
        Workflow.load(forged(tmp_path / "flow", {"LambdaOp": {"f": reference}}))
    with pytest.raises(ArtefactError, match="no operator"):
        Workflow.load(forged(tmp_path / "class", {reference: {}}))


def test_the_working_folder_is_never_imported(tmp_path, monkeypatch):
    mark = tmp_path / "mark"
    (tmp_path / "beside_the_artefact.py").write_text(MODULE.format(mark=str(mark)))
    place = forged(tmp_path / "flow", {"LambdaOp": {"f": "beside_the_artefact:twice"}})
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ArtefactError, match="working folder"):
        Workflow.load(place, trust=["beside_the_artefact"])
    assert not mark.exists()


@pytest.mark.parametrize("module", ["beside_the_artefact", "typer", "rich"])
def test_inspect_imports_nothing_of_the_working_folder(tmp_path, module):
    mark = tmp_path / "mark"
    (tmp_path / f"{module}.py").write_text(MODULE.format(mark=str(mark)))
    forged(tmp_path / "flow", {"LambdaOp": {"f": "beside_the_artefact:twice"}})
    command = [sys.executable, "-m", "penstock", "inspect", "flow", "--trust", "beside_the_artefact"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 1, done.stderr
    assert "beside_the_artefact:twice" in done.stderr
    assert not mark.exists()


def test_a_recipe_that_a_person_writes_names_anything(installed):
    recipe = {"recipe": 1, "nodes": {"n": {"columns": ["price"], "ops": [{"LambdaOp": {"f": "shop_features:twice"}}]}}}
    assert Workflow.from_recipe(recipe).transform(FRAME)["price"].to_list() == [2.0, 4.0]
    recipe["nodes"]["n"]["ops"] = [{"LambdaOp": {"f": "builtins:repr"}}]
    flow = Workflow.from_recipe(recipe).fit(FRAME)
    with pytest.raises(ParameterError, match="standard library"):
        flow.save("never")


@pytest.mark.filterwarnings("ignore")
def test_expressions_that_carry_code_are_refused(tmp_path):
    with_code = pl.col("price").map_elements(abs, return_dtype=pl.Float64)
    data = json.loads(with_code.meta.serialize(format="json"))
    place = forged(tmp_path / "flow", {"Expr": {"expressions": [{"expression": data}]}})
    with pytest.raises(ArtefactError, match="carries Python code"):
        Workflow.load(place)
    plugin = {"Function": {"input": [{"Column": "price"}], "function": {"FfiPlugin": {"lib": "/tmp/x.so"}}}}
    place = forged(tmp_path / "plugin", {"Expr": {"expressions": [{"expression": plugin}]}})
    with pytest.raises(ArtefactError, match="carries Python code"):
        Workflow.load(place)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("no_such_package:twice", "cannot find 'no_such_package:twice', which {} refers to: No module"),
        ("twice", "{} names 'twice'; write package.module:name"),
    ],
)
def test_an_error_says_whether_a_recipe_or_a_saved_workflow_names_what_is_not_there(tmp_path, reference, said) -> None:
    operator = {"LambdaOp": {"f": reference}}
    recipe = Workflow(["price"] >> ops.LogOp()).to_recipe()
    [node] = recipe["nodes"].values()
    node["ops"] = [operator]
    with pytest.raises(ParameterError, match=said.format("the recipe")):
        Workflow.from_recipe(recipe)
    place = forged(tmp_path / "flow", operator)
    with pytest.raises((ArtefactError, ParameterError), match=said.format("the saved workflow")):
        Workflow.load(place, trust=[reference.partition(":")[0]])
