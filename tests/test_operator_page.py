"""docs/operators.md is what the docstrings say."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path

import pytest
import yaml

from penstock import Workflow
from penstock.etl import ops

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operators.md"


def test_the_page_is_current() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "operator_page.py"))["render"]()
    assert PAGE.read_text() == made, "the docstrings have changed: run python scripts/operator_page.py"


@pytest.mark.parametrize("name", [name for name in ops.__all__ if inspect.isclass(getattr(ops, name))])
def test_every_operator_has_an_example(name: str) -> None:
    found = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found and "```pycon\n>>> " in found[1]


@pytest.mark.parametrize("name", ["HashedCross", "TargetEncoding", "JoinGroupby", "Groupby", "Categorify", "Normalize"])
def test_what_a_recipe_writes_is_a_recipe(name: str) -> None:
    part = PAGE.read_text().split(f"### {name}\n")[1].split("### ")[0]
    nodes = yaml.safe_load(part.split("```yaml\n")[1].split("```")[0])
    again = Workflow.from_recipe({"recipe": 1, "nodes": nodes, "output": ["features"]})
    assert name in str(again.to_recipe()["nodes"])
