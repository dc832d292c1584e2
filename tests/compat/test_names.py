"""The tables of names tell the truth, in both directions, and the page is what they make."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.compat import CompatError, activate, deactivate, names
from penstock.compat.names import page

PAGE = Path(__file__).parents[2] / "docs" / "compat-names.md"


@pytest.fixture(autouse=True)
def activated() -> Iterator[None]:
    activate()
    yield
    deactivate()


@pytest.mark.parametrize("library", names.LIBRARIES)
def test_each_library_has_a_table(library: str) -> None:
    known = names.table(library)
    assert len(known.modules) > 5
    assert all(names.library_of(module) == library for module in [*known.modules, *known.absent])


@pytest.mark.parametrize("library", names.LIBRARIES)
def test_names_resolve_or_say_why_not(library: str) -> None:
    for module, entries in names.table(library).modules.items():
        found = importlib.import_module(module)
        for name, entry in entries.items():
            if entry.status == names.ABSENT:
                with pytest.raises(CompatError, match=rf"{module}\.{name} exists in .* and not here: ") as caught:
                    getattr(found, name)
                assert entry.note.rstrip(".") in str(caught.value)
            elif entry.note.startswith("None"):
                assert getattr(found, name) is None, f"{module}.{name}"
            else:
                assert getattr(found, name) is not None, f"{module}.{name}"


@pytest.mark.parametrize("library", names.LIBRARIES)
def test_absent_modules_say_why(library: str) -> None:
    for module in names.table(library).absent:
        with pytest.raises(ModuleNotFoundError, match=rf"{module} exists in .* and not here") as caught:
            importlib.import_module(module)
        assert isinstance(caught.value, CompatError)


def compat_modules(library: str) -> Iterator[str]:
    package = importlib.import_module(f"penstock.compat.{library}")
    yield package.__name__
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not any(part.startswith("_") for part in found.name.split(".")):
            yield found.name


@pytest.mark.parametrize("library", names.LIBRARIES)
def test_every_public_name_here_is_in_the_table(library: str) -> None:
    missing = []
    for name in compat_modules(library):
        module = importlib.import_module(name)
        known = names.table(library).modules.get(name.removeprefix("penstock.compat."), {})
        missing += [f"{name}.{public}" for public in getattr(module, "__all__", []) if public not in known]
    assert not missing


# modules that the table makes

ROOT = Path(importlib.import_module("penstock.compat").__file__ or "").parent


def test_no_file_only_passes_names_on() -> None:
    idle = []
    for path in (file for library in names.LIBRARIES for file in (ROOT / library).rglob("*.py")):
        body = [node for node in ast.parse(path.read_text()).body if not isinstance(node, ast.Expr)]
        if body and all(isinstance(node, (ast.Import, ast.ImportFrom)) or _renames(node) for node in body):
            idle.append(path.relative_to(ROOT).as_posix())
    assert not idle, "write these into names/*.yaml"


def test_the_room_stays_small() -> None:
    assert len(list(ROOT.rglob("*.py"))) < 110, "what only passes on goes to names/*.yaml, a helper to those it helps"


@pytest.mark.parametrize("library", names.LIBRARIES)
def test_a_name_is_what_its_home_holds(library: str) -> None:
    shadowed = []
    for module, entries in names.table(library).modules.items():
        for name, entry in entries.items():
            if entry.home and entry.status != names.ABSENT and (ROOT / module.replace(".", "/")).exists():
                where, _, attribute = entry.home.rpartition(".")
                there = getattr(importlib.import_module(where), attribute)
                shadowed += [f"{module}.{name}"] if getattr(importlib.import_module(module), name) is not there else []
    assert not shadowed, "a file imports something else under this name: give the import another one"


def test_a_private_name_lies_where_the_public_ones_do() -> None:
    from nvtabular.tools import data_gen

    assert not (ROOT / "nvtabular" / "tools").exists()
    assert data_gen._get_cols_from_schema.__module__ == "penstock.compat.nvtabular._tools"
    assert not hasattr(data_gen, "_no_such_name")


def _renames(node: ast.stmt) -> bool:
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        return ast.unparse(target) == "__all__" or isinstance(node.value, (ast.Name, ast.Attribute))
    return False


def test_a_module_without_a_file() -> None:
    module = importlib.import_module("nvtabular.columns")
    assert not (ROOT / "nvtabular" / "columns").exists()
    assert module is importlib.import_module("penstock.compat.nvtabular.columns")
    assert module.__all__ == ["ColumnSchema", "ColumnSelector", "Schema"]
    assert {"ColumnSchema", "schema", "selector"} <= set(dir(module))
    assert module.Schema is importlib.import_module("merlin.schema").Schema
    assert module.selector is importlib.import_module("nvtabular.columns.selector")
    assert inspect.getmodule(module) is module
    assert inspect.getmodule(module.Schema).__name__ == "penstock.compat.merlin.schema"  # type: ignore[union-attr]
    assert "yaml" in str(module.__spec__.origin)
    with pytest.raises(AttributeError, match="no attribute 'Schemas'; did you mean 'Schema'"):
        module.Schemas  # noqa: B018


@pytest.mark.parametrize(
    ("module", "name"),
    [("nvtabular.ops", "Clip"), ("merlin.dag.ops.udf", "UDF"), ("nvtabular.graph", "Tags"), ("persia.ctx", "cnt_ctx"),
     ("merlin.loader.torch", "Loader"), ("nvtabular.workflow_node", "WorkflowNode"), ("merlin.io", "Shuffle")],
)  # fmt: skip
def test_what_the_table_serves_can_be_pickled(module: str, name: str) -> None:
    found = getattr(importlib.import_module(module), name)
    assert pickle.loads(pickle.dumps(found)) is found


def test_a_package_that_holds_only_absent_modules_can_be_imported() -> None:
    assert importlib.import_module("nvtabular.tools").__all__ == []


def test_stars_and_attributes_bring_submodules_without_further_imports() -> None:
    script = (
        "import penstock.compat; penstock.compat.activate()\n"
        "import nvtabular as nvt\n"
        "import merlin.dag\n"
        "from nvtabular.columns import *\n"
        "assert nvt.ops.clip.Clip is nvt.ops.Clip and nvt.io.Dataset is nvt.Dataset\n"
        "assert merlin.dag.ops.udf.UDF is nvt.ops.LambdaOp and Schema is nvt.Schema\n"
        "assert nvt.dispatch._make_df is nvt.dispatch.make_df\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_entries_follow_their_homes() -> None:
    here, there = names.lookup("nvtabular", "Schema"), names.lookup("merlin.schema.schema", "Schema")
    assert here is not None
    assert there is not None
    assert (here.status, here.note) == (there.status, there.note) == (names.DIFFERS, there.note)
    clip = names.lookup("nvtabular.ops", "HashBucket")
    assert clip is not None
    assert clip.status == names.DIFFERS


def test_the_page_is_what_the_tables_make() -> None:
    made = page.render()
    assert PAGE.read_text() == made, "run: python -m penstock.compat.names.page > docs/compat-names.md"
    assert all(sign in made for sign in "✓≈✗")
    assert "| `Adagrad` | ≈ | weight_decay acts |" in made


@pytest.mark.parametrize(("guide", "libraries"), [("migrate-nvtabular.md", ("nvtabular", "merlin"))])
def test_the_guide_lists_the_rules(guide: str, libraries: tuple[str, ...]) -> None:
    _, after = (PAGE.parent / guide).read_text().split("<!-- rules -->\n")
    assert after.split("<!-- end of rules -->")[0] == page.native_table(*libraries)
