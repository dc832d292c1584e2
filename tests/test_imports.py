"""Imports go one way, heavy packages stay where they belong, and `import penstock` stays light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import penstock

ROOT = Path(penstock.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

# A package may import from its own level and from those below it, but for the siblings that must not know each other.
LEVELS = {
    "core": 0,
    "kernels": 1,
    "metrics": 2,
    "engine": 2,
    "data": 3,
    "etl": 4,
    "loader": 4,
    "embedding": 4,
    "nn": 5,
    "train": 6,
    "serve": 7,
    "report": 7,
    "jobs": 8,
    "compat": 9,
    "cli": 10,
    "__main__": 11,
}
STRANGERS = ({"etl", "loader", "embedding"}, {"serve", "report"})
# Rooms that may import less than their level allows.
ONLY = {"metrics": {"core", "kernels", "metrics"}, "report": {"core", "data", "report"}}

ADAPTERS = tuple(
    f"loader/{name}*" for name in ("torch", "tensorflow", "keras", "jax", "fastai", "lightning", "device_")
)
FRAMEWORKS = (
    *ADAPTERS,
    "metrics/*",
    "nn/*",
    "train/*",
    "embedding/*",
    "serve/*",
    "jobs/*",
    "compat/*",
    "kernels/gpu_*",
)
HOMES = {
    "numba": ("kernels/cpu_*", "kernels/kernel_*"),
    "llvmlite": ("kernels/cpu_*", "kernels/kernel_linking.py"),
    "triton": ("kernels/gpu_*",),
    "ray": ("engine/ray.py", "embedding/ray*", "embedding/*_ray*", "train/*"),
    "dask": ("engine/dask.py", "compat/merlin/*"),
    "distributed": ("engine/dask.py",),
    "torch": FRAMEWORKS,
    "tensorflow": FRAMEWORKS,
    "keras": FRAMEWORKS,
    "jax": FRAMEWORKS,
    "fastai": FRAMEWORKS,
    "lightning": FRAMEWORKS,
    "fastapi": ("serve/http*",),
    "uvicorn": ("serve/http*",),
    "starlette": ("serve/http*",),
    "prometheus_client": ("serve/http*",),
    "nbclient": ("compat/*",),
    "nbformat": ("compat/*",),
    "ipykernel": ("compat/*",),
    "jupyter_client": ("compat/*",),
    "tensorboard": ("train/*",),
    "typer": ("cli/*",),
    "rich": ("cli/*", "report/*", "jobs/demo.py", "core/progress.py"),
}


@cache
def imported(path: Path) -> tuple[tuple[str, int], ...]:
    """`(dotted module, line)` of every import that runs; those under TYPE_CHECKING do not."""
    return tuple(_walk(ast.parse(path.read_text())))


def _walk(node: ast.AST) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from _walk(ast.Module([other], []))
        elif isinstance(child, ast.Import):
            yield from ((alias.name, child.lineno) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"line {child.lineno}: relative import; spell it out"
            base = child.module or ""
            # `from penstock import x` names the package x; `from penstock.data import x` is data in any case.
            yield from ((f"{base}.{a.name}" if base == "penstock" else base, child.lineno) for a in child.names)
        else:
            called = child.func if isinstance(child, ast.Call) else None
            if getattr(called, "attr", getattr(called, "id", None)) in ("require", "import_module"):
                module = child.args[0]
                if isinstance(module, ast.Constant):  # an optional dependency, imported by its name
                    yield str(module.value), child.lineno
            yield from _walk(child)


def package_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def own_package(path: Path) -> str:
    return name_of(path).split("/")[0].removesuffix(".py")


def wrong_way(own: str, module: str) -> str:
    """Why a package may not import a module of Penstock; nothing where it may."""
    other = package_of(module)
    if other not in LEVELS:
        return "import from the package that defines it, not from penstock itself"
    if LEVELS[other] > LEVELS[own]:
        return f"{other} stands above {own}"
    if own != other and any({own, other} <= group for group in STRANGERS):
        return f"{own} and {other} must not know each other"
    return "" if other in ONLY.get(own, LEVELS) else f"{own} may only know {', '.join(sorted(ONLY[own]))}"


def test_imports_go_one_way() -> None:
    paths = [path for path in MODULES if own_package(path) != "__init__"]
    assert {own_package(path) for path in paths} <= LEVELS.keys(), "a package that LEVELS does not place"
    found = [
        f"{name_of(path)}:{line} imports {module}: {why}"
        for path in paths
        for module, line in imported(path)
        if module.split(".")[0] == "penstock" and (why := wrong_way(own_package(path), module))
    ]
    assert not found, "\n".join(found)


def test_heavy_packages_stay_in_their_files() -> None:
    found = [
        f"{name_of(path)}:{line} imports {module}, which belongs in {', '.join(homes)}"
        for path in MODULES
        for module, line in imported(path)
        if (homes := HOMES.get(module.split(".")[0])) and not any(fnmatch(name_of(path), home) for home in homes)
    ]
    assert not found, "\n".join(found)


OF_ROWS = {"Store", "RayStore", "CachedEmbeddings", "EmbeddingTables", "FrozenEmbeddings", "FusedEmbeddings",
           "HashedEmbeddings"}  # fmt: skip


def test_training_and_serving_ask_embeddings_what_they_are() -> None:
    """By the protocol `Embeddings`, so that a home of one's own is as good as any."""
    told_apart = []
    for room in ("train", "serve"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
                    names = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                    told_apart += [f"{path.name}:{node.lineno}"] if names & OF_ROWS else []
    assert told_apart == []


def test_oracles_are_for_tests() -> None:
    """What an oracle and a kernel share is a contract, in a file of its own."""
    oracle = re.compile(r"^\s*(from|import) penstock\.kernels(\.reference|\b.*\bimport\b.*\breference)", re.M)
    users = [name_of(path) for path in MODULES if oracle.search(path.read_text())]
    assert [name for name in users if not name.startswith("kernels/reference")] == []


def test_the_checks_see_what_they_should(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import torch\nelse:\n    import jax\n"
        "def late():\n    from penstock import ops\n    import ray.util\n    require('dask.array', 'dask')\n"
    )
    assert [module for module, _ in imported(source)] == ["typing", "jax", "penstock.ops", "ray.util", "dask.array"]
    assert wrong_way("etl", "penstock.Workflow") == "import from the package that defines it, not from penstock itself"
    assert wrong_way("etl", "penstock.jobs.etl") == "jobs stands above etl"
    assert wrong_way("etl", "penstock.loader") == "etl and loader must not know each other"
    assert wrong_way("report", "penstock.engine") == "report may only know core, data, report"
    assert not wrong_way("etl", "penstock.data.dataset")


HEAVY = [
    "torch",
    "tensorflow",
    "keras",
    "ray",
    "numba",
    "jax",
    "dask",
    "distributed",
    "pandas",
    "typer",
    "rich",
    "scipy",
]


def test_import_stays_light() -> None:
    script = f"import penstock, sys\nprint([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_line_and_old_names_start_light() -> None:
    script = "import sys, penstock.cli, penstock.compat\npenstock.compat.activate()\n"
    script += "print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = [name for name in [*HEAVY, "polars", "pyarrow", "numpy"] if name not in ("typer", "rich")]
    done = subprocess.run([sys.executable, "-c", script, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


_WHOLE_WAY = """
import sys
import numpy as np, polars as pl
from penstock.jobs import TrainJob
from penstock.loader.torch import Loader
from penstock.serve import Predictor
rows = pl.DataFrame({"user": ["a", "b", "c", "d"] * 50, "kinds": [[1, 2], [3], [], [2]] * 50, "age": [0.5, 1.0] * 100})
rows = rows.with_columns(click=pl.Series([0, 1, 0, 1] * 50))
rows.write_parquet("rows.parquet")
nodes = {"ids": {"columns": ["user", "kinds"], "ops": ["Categorify"]}, "rest": {"columns": ["age", "click"]}}
recipe = {"recipe": 1, "input": {"roles": {"label": ["click"]}}, "nodes": nodes, "output": list(nodes)}
for tables in ("store", "fused"):
    settings = {"device": "cpu", "embedding_dim": 4, "epochs": 1, "tables": tables}
    TrainJob("rows.parquet", tables, recipe, settings=settings, progress=False).run()
    with Predictor(tables) as predictor:
        predictor.predict("rows.parquet")
        predictor.predict(rows.drop("click"))
for _ in Loader(tables + "/features", 20, cache="disk"):
    pass
loaded = {name.partition(".")[0] for name in sys.modules} & {"pandas"}
print(sorted(loaded | {"torch._dynamo", "torch._inductor"} & set(sys.modules)))
"""


def test_from_rows_to_predictions_without_pandas_and_compiler(tmp_path: Path) -> None:
    """pyarrow loads the one and torch's optimizers the other, unless they are kept from it: up to two seconds."""
    script = [sys.executable, "-c", _WHOLE_WAY]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr
