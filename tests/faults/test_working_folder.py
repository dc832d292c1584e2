"""A working folder full of modules that carry the names of others: `python -m penstock` imports none of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl

from penstock import Workflow

OTHERS = ("numpy", "polars", "pyarrow", "yaml", "rich", "typer", "click", "torch", "numba", "sitecustomize")


def _imported(folder: Path, *arguments: str) -> tuple[set[str], int]:
    mark = folder / "mark"
    mark.unlink(missing_ok=True)
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=folder, capture_output=True)
    return set(mark.read_text().split()) if mark.exists() else set(), done.returncode


def test_nothing_of_the_working_folder_is_imported(tmp_path: Path) -> None:
    for name in {*OTHERS, *sys.stdlib_module_names} - {"__future__"}:
        (tmp_path / f"{name}.py").write_text(f"print(__name__, file=open({str(tmp_path / 'mark')!r}, 'a'))\n1 / 0\n")
    while found := _imported(tmp_path, "no_such_module")[0]:  # by Python, for any `-m`: before anything of ours runs
        for name in found:
            (tmp_path / f"{name}.py").unlink()
    assert (tmp_path / "typing.py").exists() and (tmp_path / "json.py").exists()
    Workflow(["price"]).fit(pl.DataFrame({"price": [1.0, 2.0]})).save(tmp_path / "flow")
    for arguments in (["--version"], ["inspect", "flow"]):
        assert _imported(tmp_path, "penstock", *arguments) == (set(), 0)
