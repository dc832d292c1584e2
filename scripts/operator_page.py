"""The page of operators, made from their docstrings: `python scripts/operator_page.py` writes docs/operators.md.

Examples are those of the docstrings, which the tests run; each is run here too, to tell how a recipe writes it.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from penstock import Workflow
from penstock.etl import ops

PAGE = Path(__file__).parents[1] / "docs" / "operators.md"
# What operators are for, by the modules they are in. Those of other modules stand at the end.
FAMILIES = {
    "Categories": ("categorify", "hashing", "dtype_size"),
    "Numbers": ("continuous", "fill", "scale"),
    "Texts, times and labels": ("splitting", "dates", "binarize"),
    "What a category is worth": ("target", "join_groupby"),
    "Tables and groups of rows": ("join", "groupby", "lag"),
    "Rows": ("filters", "rows"),
    "Lists": ("lists",),
    "Columns": ("naming", "metadata", "similarity", "stats"),
    "Of your own": ("expression", "custom", "operator"),
}
OTHERS = "Further operators"
HEAD = """# Operators

<!-- Made by `python scripts/operator_page.py` from the docstrings; change them there. -->

What turns columns into features. `["city"] >> ops.Categorify()` in Python; in a recipe a node names its columns and its
chain of operators, as under each example. How they are put together is in [ETL](etl.md#workflows).

The examples begin with `import polars as pl`, and with the operator's name from `penstock.etl.ops`.
"""


def render() -> str:
    """The whole page.

    Returns:
        Markdown.
    """
    families: dict[str, list[type]] = {name: [] for name in (*FAMILIES, OTHERS)}
    for name in ops.__all__:
        found = getattr(ops, name)
        if inspect.isclass(found):
            families[_family(found)].append(found)
    families = {name: found for name, found in families.items() if found}
    parts = [HEAD, _contents(families)]
    for name, found in families.items():
        parts.append(f"## {name}\n")
        parts += [_operator(one) for one in found]
    return "\n".join(parts)


def _family(operator: type) -> str:
    module = operator.__module__.rsplit(".", 1)[-1]
    return next((name for name, modules in FAMILIES.items() if module in modules), OTHERS)


def _contents(families: dict[str, list[type]]) -> str:
    lines = ["| operator | what it does |", "|---|---|"]
    for found in families.values():
        lines += [f"| [`{one.__name__}`](#{one.__name__.lower()}) | {_cell(_summary(one))} |" for one in found]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _summary(operator: type) -> str:
    return " ".join((inspect.getdoc(operator) or "").split("\n\n")[0].split())


def _operator(operator: type) -> str:
    """One operator: what it does, its arguments, its example, and how a recipe writes that."""
    text = inspect.getdoc(operator) or ""
    about, _, rest = text.partition("\n>>> ")
    if not rest:
        raise ValueError(f"{operator.__name__} has no example in its docstring")
    words, _, arguments = about.partition("\nArgs:\n")
    parts = [f"### {operator.__name__}\n", words.strip() + "\n"]
    if arguments.strip():
        parts.append(_arguments(arguments) + "\n")
    parts.append(f"```pycon\n>>> {rest.strip()}\n```\n")
    if recipe := _recipe(operator):
        parts.append(f"In a recipe:\n\n```yaml\n{recipe}```\n")
    return "\n".join(parts)


def _arguments(text: str) -> str:
    """The lines of an Args section as a table."""
    entries = re.findall(r"^    ([\w, *]+): (.*?)(?=^    [\w, *]+: |\Z)", text, re.MULTILINE | re.DOTALL)
    lines = [f"| `{name}` | {_cell(' '.join(said.split()))} |" for name, said in entries]
    return "\n".join(["| argument | meaning |", "|---|---|", *lines])


def _recipe(operator: type) -> str | None:
    """The node of the example's workflow that holds the operator; None where a recipe cannot say it."""
    module = importlib.import_module(operator.__module__)
    with _made() as workflows:
        _run(operator, {**vars(module), "pl": pl})
    for workflow in workflows:
        try:
            nodes = workflow.to_recipe()["nodes"]
        except Exception:  # functions and frames are Python's alone
            continue
        for node in nodes.values():
            names = [op if isinstance(op, str) else next(iter(op)) for op in node.get("ops", ())]
            if operator.__name__ in names:
                return yaml.safe_dump({"features": node}, sort_keys=False, default_flow_style=None, width=100)
    return None


@contextlib.contextmanager
def _made() -> Iterator[list[Workflow]]:
    """The workflows that are made meanwhile."""
    made: list[Workflow] = []
    original = Workflow.__init__

    def noted(self: Workflow, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        made.append(self)

    Workflow.__init__ = noted  # type: ignore[method-assign]
    try:
        yield made
    finally:
        Workflow.__init__ = original  # type: ignore[method-assign]


def _run(operator: type, names: dict[str, Any]) -> None:
    for example in doctest.DocTestParser().get_examples(inspect.getdoc(operator) or ""):
        if example.exc_msg is None:
            exec(example.source, names)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    print(f"{PAGE}: {len(ops.__all__)} names")
