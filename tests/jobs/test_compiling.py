"""What a second process compiles on a first run, and that it does not outlive the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.data import Dataset
from penstock.embedding import Store
from penstock.jobs import compiling


def test_rows_are_read_and_trained(tmp_path: Path) -> None:
    compiling.compile_for_training(tmp_path)
    assert Dataset(tmp_path / "rows").num_rows == compiling.ROWS
    with Store.open(tmp_path / "store") as store:
        assert store.stats()["rows"] == compiling.ROWS


def test_only_a_first_run_has_a_process_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "available_cores", lambda: 2)
    with compiling.compiled_beside() as process:
        assert process is not None
    assert process.returncode is not None
    (tmp_path / "kernel.nbi").touch()
    with compiling.compiled_beside() as process:
        assert process is None
