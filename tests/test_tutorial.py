"""The tutorial, from its first block to its last, as a reader would do it: on fewer rows, and on a free port."""

from __future__ import annotations

import json
import re
import shlex
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.serve.http import HttpServer

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What is shown is the way, not how good it gets.
_QUICK = ["--epochs", "1", "--embedding-dim", "4", "--batch-size", "256", "--device", "cpu", "--no-progress"]


def steps() -> Iterator[tuple[str, str]]:
    """`(language, text)` of what a reader types, one command at a time."""
    for language, text in _BLOCK.findall(PAGE.read_text()):
        if language == "console":
            yield from (("console", command) for command in re.findall(r"^\$ (.*)$", text, re.MULTILINE))
        else:
            yield language, text


def ask(server: HttpServer, line: str) -> dict:
    """The answer to a curl command of the page."""
    _, _, address, _, header, _, body = shlex.split(line)
    name, value = header.split(": ")
    place = re.sub(r"^http://[^/]+", server.url, address)
    with urllib.request.urlopen(urllib.request.Request(place, body.encode(), {name: value})) as answer:
        return json.load(answer)


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    servers, answers, names = [], [], {"__name__": "tutorial"}
    with ExitStack() as services:
        for language, text in steps():
            if language == "python":
                exec(text.replace("20_000", "1_200").replace("18_000", "900"), names)
            elif language == "yaml":
                Path(re.match(r"# (\S+)\n", text)[1]).write_text(text)
            elif text.startswith("curl"):
                answers.append(ask(servers[-1], text))
            elif text.startswith("penstock serve"):
                servers.append(services.enter_context(HttpServer(shlex.split(text)[2], port=0)))
            else:
                program, *arguments = shlex.split(text)
                assert program == "penstock"
                more = _QUICK if arguments[0] == "train" else []
                found = CliRunner().invoke(app, [*arguments, *more])
                assert found.exit_code == 0, f"{text}\n{found.output}"
    assert len(answers) == 1 and 0 < answers[0]["probabilities"][0] < 1
    assert {path.name for path in tmp_path.iterdir()} >= {"first", "second", "runs.html", "scores.csv", "recipe.yaml"}
