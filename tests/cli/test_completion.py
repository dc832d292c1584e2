"""Shell completion and the speed of --help: what the shell asks of the command before anything else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("penstock")
INSTALLED = {"bash": ".bash_completions/penstock.sh", "zsh": ".zfunc/_penstock",
             "fish": ".config/fish/completions/penstock.fish"}  # fmt: skip
SCRIPTS = {"bash": "complete -o default -F", "zsh": "#compdef penstock", "fish": "complete --command penstock"}
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="penstock is not installed as a command")


def ask(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    # Without detection the shell is named on the command line; a test run has no shell above it to be found.
    own = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    env = {**os.environ, **own, **environment}
    return subprocess.run([str(PROGRAM), *arguments], env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown_and_installed(shell: str, tmp_path: Path) -> None:
    shown = ask("--show-completion", shell)
    assert shown.returncode == 0 and SCRIPTS[shell] in shown.stdout, shown.stderr
    installed = ask("--install-completion", shell, HOME=str(tmp_path))
    assert installed.returncode == 0, installed.stderr
    assert SCRIPTS[shell] in (tmp_path / INSTALLED[shell]).read_text()


def completed(line: str, shell: str = "bash") -> set[str]:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_TYPER_COMPLETE_ARGS": line,
             "_TYPER_COMPLETE_FISH_ACTION": "get-args"}  # fmt: skip
    found = ask(_PENSTOCK_COMPLETE=f"complete_{shell}", **words)
    return {text.split("\t")[0].strip('"') for text in found.stdout.splitlines()}


def test_commands_options_models_and_presets_are_completed() -> None:
    assert completed("penstock train --embedding-d") == {"--embedding-dim"}
    assert completed("penstock train --model D") == {"DLRM", "DCNv2", "DeepFM"}
    assert completed("penstock train --preset cri") == {"criteo"}
    assert completed("penstock predi", "fish") == {"predict"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
def test_a_real_bash_completes(tmp_path: Path) -> None:
    script = tmp_path / "complete.sh"
    script.write_text(ask("--show-completion", "bash").stdout)
    words = "COMP_WORDS=(penstock doc); COMP_CWORD=1"
    line = f"source {script}; {words}; _penstock_completion penstock; echo ${{COMPREPLY[@]}}"
    path = f"{PROGRAM.parent}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", line], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.stdout.split() == ["doctor"], done.stderr


def test_help_answers_at_once() -> None:
    """It loads nothing that takes long: no frame, no kernel, no framework."""
    script = "import sys, penstock.cli\ntry:\n    penstock.cli.main()\nexcept SystemExit:\n    pass\n"
    heavy = ["numpy", "polars", "pyarrow", "numba", "torch", "tensorflow", "keras", "jax", "ray", "dask", "pandas"]
    script += f"print('loaded', [name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, text=True, check=True)
    assert "predict" in done.stdout and done.stdout.splitlines()[-1] == "loaded []"
