"""Types that others see: no argument is typed less than it could be, and lazy packages have a type for every name."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "penstock"
# Public arguments typed bare Any: what a framework's own signature has, states of operators, and a few to come.
# Lower it when there are fewer.
CEILING = 53
LAZY = [path for path in sorted(SOURCE.rglob("__init__.py")) if "__getattr__" in path.read_text()]


def test_few_public_arguments_are_typed_any(public_names: ModuleType) -> None:
    bare = {one.name: one.bare for one in public_names.public() if one.bare}
    count = sum(map(len, bare.values()))
    assert count <= CEILING, f"{count} arguments say nothing of what they take; use a protocol or a union: {bare}"


def test_all_public_functions_are_seen(public_names: ModuleType) -> None:
    found = {one.name for one in public_names.public()}
    assert {
        "penstock.data.dataset.Dataset.to_parquet",
        "penstock.embedding.store.Store",
        "penstock.loader.base.BaseLoader.state_dict",  # inherited by what is public
        "penstock.train.fit.fit",
    } <= found


@pytest.mark.parametrize("path", LAZY, ids=lambda path: path.parent.relative_to(SOURCE.parent).as_posix())
def test_lazy_packages_import_their_names_for_type_checkers(path: Path) -> None:
    tree = ast.parse(path.read_text())
    public: list[str] = []
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            bound |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            bound |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            if isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
                public = ast.literal_eval(node.value)
    assert public or "compat" in path.parts, "a lazy package says in __all__ what it has"
    assert set(public) <= bound, f"no type for {sorted(set(public) - bound)}: import them under TYPE_CHECKING"


@pytest.mark.slow
def test_a_type_checker_knows_what_lazy_packages_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = pytest.importorskip("mypy.api")
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    script = tmp_path / "seen.py"
    script.write_text(
        "from penstock import Workflow\nfrom penstock.embedding import Store\nfrom penstock.nn import DLRM\n"
        "from penstock.jobs import TrainJob\nreveal_type(Workflow)\nreveal_type(Store)\nreveal_type(DLRM)\n"
        "reveal_type(TrainJob)\n"
    )
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    shown, errors, _ = api.run([*config, str(script)])
    assert not errors
    for name in ("etl.workflow.Workflow", "embedding.store.Store", "nn.dlrm.DLRM", "jobs.training.TrainJob"):
        assert f"-> penstock.{name}" in shown, shown
