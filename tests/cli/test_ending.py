"""A process that ends at once ends as Python would end it, but sooner."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BEGIN = "import sys\nfrom penstock.cli.ending import end_at_once\n"
AT_ONCE = "\ntry:\n    sys.exit({code})\nexcept SystemExit as error:\n    end_at_once(error)\n    raise\n"
BY_PYTHON = "\nsys.exit({code})\n"
LEFT = """
import atexit, logging, logging.handlers, threading, time
from penstock.data.scratch import Scratch

class Last:
    def __del__(self):
        print("taken apart")

def late():
    time.sleep(0.2)
    print("a thread")

last = Last()
scratch = Scratch()
print(scratch.path, flush=True)
atexit.register(print, "registered")
file = open("file.txt", "w")
file.write("nobody closed it")
held = logging.handlers.MemoryHandler(1000, target=logging.FileHandler("log.txt"))
logging.getLogger().addHandler(held)
logging.getLogger().warning("logged")
threading.Thread(target=late).start()
print("no end of line", end="")
"""


def run(script: str, **options: object) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # there is to be a buffer
    streams = {"env": env, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.run([sys.executable, "-c", script], check=False, **streams)


@pytest.mark.parametrize("code", ["", "None", "0", "1", "130", "256", "-1", "True", "'words'", "2.5"])
def test_codes_are_those_of_python(code: str) -> None:
    found, expected = (run(BEGIN + end.format(code=code)) for end in (AT_ONCE, BY_PYTHON))
    assert (found.returncode, found.stdout, found.stderr) == (expected.returncode, expected.stdout, expected.stderr)


def test_what_has_to_run_does(tmp_path: Path) -> None:
    done = run(BEGIN + LEFT + AT_ONCE.format(code=3), cwd=tmp_path)
    scratch, *rest = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (3, "")
    assert rest == ["no end of linea thread", "registered"]  # and nothing is taken apart
    assert not Path(scratch).exists()
    assert (tmp_path / "file.txt").read_text() == "nobody closed it"
    assert (tmp_path / "log.txt").read_text() == "logged\n"


def test_a_reader_that_has_gone_changes_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    done = run(BEGIN + "print('lost')" + AT_ONCE.format(code=0), stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_what_cannot_be_written_is_told_as_by_python() -> None:
    with Path("/dev/full").open("w") as full:
        found, expected = (
            run(BEGIN + "print('lost')" + end.format(code=0), stdout=full) for end in (AT_ONCE, BY_PYTHON)
        )
    assert (found.returncode, found.stderr) == (expected.returncode, expected.stderr)
    assert found.returncode == 120


@pytest.mark.parametrize("watch", ["settrace", "setprofile"])
def test_who_watches_sees_the_end(watch: str) -> None:
    done = run(BEGIN + f"sys.{watch}(lambda *_: None)\nend_at_once(SystemExit(0))\nprint('goes on')")
    assert done.stdout == "goes on\n"


def test_streams_may_be_closed() -> None:
    assert run(BEGIN + "sys.stdout.close()\nsys.stderr = None" + AT_ONCE.format(code=5)).returncode == 5


def test_a_command_that_works_long_ends_at_once(tmp_path: Path) -> None:
    """And its errors are the same."""
    script = """
from penstock.cli import main

class Last:
    def __del__(self):
        print("taken apart")

last = Last()
main()
"""
    commands = {("etl", "none.tsv", "-o", "out", "--preset", "criteo"): 1, ("etl", "--wrong"): 2, ("--version",): 0}
    for arguments, code in commands.items():
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == code
        assert ("taken apart" in done.stdout) is (code != 1)
        if code == 1:
            assert done.stderr == "error: none.tsv does not exist\n"
