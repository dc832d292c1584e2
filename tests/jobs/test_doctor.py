"""What the doctor finds: on a sound installation, and on broken ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.jobs import compiling, doctor
from penstock.jobs.first_run import is_first_run


def test_a_sound_installation() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["ok"] and found["problems"] == []
    stages = ["import", "synth", "etl", "loader", "import torch", "train", "predict", "total"]
    assert list(found["self_test"]["seconds"]) == stages and found["self_test"]["trained"]
    assert {p["name"] for p in found["packages"]} >= {"numpy", "polars", "pyarrow", "numba"}
    assert {e["name"]: e["state"] for e in found["extras"]}["torch"] == "installed"
    assert found["machine"]["cores"] >= 1 and found["machine"]["free_bytes"] > 0


def test_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["numpy>=999", "nosuchthing>=1; extra == 'sky'", "polars>=999; extra == 'future'"]
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: lines)
    result = CliRunner().invoke(app, ["doctor", "--no-self-test"])
    assert result.exit_code == 1
    said = " ".join(result.stdout.split())
    assert "extra sky missing pip install 'penstock[sky]'" in said
    assert "extra future outdated" in said and "hint: extra future: polars is " in said and ">=999 is needed" in said
    assert "broken: numpy: is " in said and "run: pip install 'numpy>=999'" in said
    assert "something is broken" in said


def test_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: ["nosuchthing>=1.2"])
    found = doctor.examine(run_self_test=False)
    assert found["problems"] == ["nosuchthing: is not installed; run: pip install 'nosuchthing>=1.2'"]
    assert not found["ok"]


def test_extras_include_one_another() -> None:
    lines = ["penstock[a,b]; extra == 'c'", "nosuch; extra == 'a'", "numpy>=2; extra == 'b'", "numpy<1; extra == 'd'"]
    _, extras = doctor.requirements(lines)
    states = {e["name"]: (e["state"], e["missing"], e["command"]) for e in extras}
    assert states["a"] == ("missing", ["nosuch"], "pip install 'penstock[a]'")
    assert states["b"] == ("installed", [], None)
    assert states["c"] == ("missing", ["nosuch"], "pip install 'penstock[c]'")
    assert states["d"] == ("outdated", [], "pip install 'penstock[d]'")


@pytest.mark.parametrize(
    ("version", "sign", "bound", "holds"),
    [
        ("2.13.0+cpu", ">=", "2.4", True),
        ("2.4", ">=", "2.4.0", True),
        ("0.9", ">=", "0.10", False),
        ("2.10.1", "<", "2.10", False),
        ("3.0rc1", ">", "2.9", True),
        ("1.0", "==", "1.0.0", True),
        ("1.0", "!=", "1.0", False),
        ("1.1", "<=", "1.0", False),
    ],
)
def test_versions_compare_by_number(version: str, sign: str, bound: str, holds: bool) -> None:
    assert doctor._holds(version, sign, bound) is holds


def test_a_broken_stage_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("penstock.data.synthetic.criteo", broken)
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["problems"] == ["the self-test failed at synth: OSError: no space left on device"]
    assert list(found["self_test"]["seconds"]) == ["import", "total"]


def test_without_torch_it_ends_behind_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    there = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "torch" else there(name))
    test = doctor.self_test(300)
    assert test["ok"] and not test["trained"] and list(test["seconds"])[-2] == "loader"


def test_running_from_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    found = doctor.examine(run_self_test=False)
    assert found["ok"] and "runs from its sources" in found["hints"][-1]


def test_a_first_run_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert is_first_run()
    (tmp_path / "kernels_1").mkdir()
    (tmp_path / "kernels_1" / "cpu_hash.mix-1.py311.nbi").touch()
    assert not is_first_run()


def test_compiling_ahead_that_fails_says_so(monkeypatch):
    monkeypatch.setattr(compiling.sys, "executable", shutil.which("false"))
    result = CliRunner().invoke(app, ["doctor", "--compile"])
    assert result.exit_code == 1 and "compiling ahead failed: no words" in result.output


@pytest.mark.slow
def test_after_compiling_ahead_nothing_is_compiled(tmp_path, monkeypatch):
    """The jobs that a user begins with leave no kernel beside those that are kept already."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    compiling.compile_ahead()
    kept = {path for path in (tmp_path / "cache").rglob("*") if path.suffix == ".nbc"}
    assert kept
    command = [sys.executable, "-m", "penstock", "demo", "--rows", "3000", "--output", str(tmp_path / "demo")]
    subprocess.run(command, check=True, capture_output=True)
    assert {path for path in (tmp_path / "cache").rglob("*") if path.suffix == ".nbc"} == kept
