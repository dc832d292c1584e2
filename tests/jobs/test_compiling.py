"""Helpers compile for a command, and are never there without it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from penstock.cli.long_work import LongCommand
from penstock.jobs import compiling
from penstock.kernels.kernel_home import is_all_compiled, is_kept, note_all_compiled

SMALL = "cpu_lines.count_byte(uint8[::1], int64)"
OWNER = """
import signal, sys, time
from penstock.jobs.compiling import Helpers
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
helpers = Helpers(2)
print(*(process.pid for process in helpers._processes), flush=True)
try:
    time.sleep(600)
finally:
    helpers.stop()
"""
COMMAND = """
import typer
from penstock.cli.long_work import LongCommand, Program
from penstock.jobs.compiling import is_compiling
app = typer.Typer()

@app.command(cls=LongCommand)
def long() -> None:
    print(is_compiling())

app(obj=Program())
"""


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for compiled kernels."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def is_running(number: int) -> bool:
    """A process that has ended may still be listed, where nobody asks how it did."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_helpers_end_with_their_owner(empty: Path, how: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as owner:
        helpers = [int(number) for number in owner.stdout.readline().split()]
        assert len(helpers) == 2
        assert all(map(is_running, helpers))
        owner.send_signal(how)
    until = time.monotonic() + 20
    while any(map(is_running, helpers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_running, helpers))


def test_a_terminal_does_not_interrupt_helpers(empty: Path) -> None:
    helpers = compiling.Helpers(1)
    helper = helpers._processes[0]
    while not list(empty.rglob("*.lock")) and helper.poll() is None:  # it is at its first kernel
        time.sleep(0.05)
    helper.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        helper.wait(0.3)
    assert not helpers.stop()
    assert helper.returncode == -signal.SIGKILL


def test_what_helpers_compile_is_kept_once(empty: Path) -> None:
    helpers = compiling.Helpers(2, [SMALL])
    helpers.wait()
    assert helpers.stop()
    assert [path.name.split("-")[0] for path in empty.rglob("*.nbi")] == ["cpu_lines.count_byte"]


def test_helpers_that_fail_are_told_of_only_when_they_are_waited_for(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling.sys, "executable", shutil.which("false"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    with compiling.compiled_beside():
        assert compiling.is_compiling()
        time.sleep(0.2)
    assert not compiling.is_compiling()
    assert not is_all_compiled()
    with pytest.raises(compiling.PenstockError, match=r"compiling ahead failed: no words"):
        compiling.Helpers(1).wait()


def test_there_are_none_where_all_is_compiled_or_nothing_is_kept(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_kept()
    note_all_compiled()
    with compiling.compiled_beside():
        assert not compiling.is_compiling()
    monkeypatch.setenv("PENSTOCK_CACHE", str(empty / "another"))
    assert not is_all_compiled()
    for name, value in {"NUMBA_CACHE_DIR": str(empty), "NUMBA_DISABLE_JIT": "1"}.items():
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            assert not is_kept()
            with compiling.compiled_beside():
                assert not compiling.is_compiling()


def test_as_many_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, memory, number in ((1, None, 0), (2, None, 1), (16, None, 8), (16, 2_000_000_000, 3), (16, 10**8, 0)):
        monkeypatch.setattr(compiling, "available_cores", lambda cores=cores: cores)
        monkeypatch.setattr(compiling, "available_memory", lambda memory=memory: memory)
        assert compiling.number_of_helpers(spare_cores=1) == number


def test_a_command_has_helpers_where_it_is_the_process(empty: Path) -> None:
    app = typer.Typer()

    @app.command(cls=LongCommand)
    def long() -> None:
        print(compiling.is_compiling())

    assert CliRunner().invoke(app).stdout == "False\n"
    if compiling.number_of_helpers(spare_cores=1):
        done = subprocess.run([sys.executable, "-c", COMMAND], capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("True\n", "")
