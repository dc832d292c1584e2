"""The command line called in this process."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from typer.testing import CliRunner, Result

from penstock.cli import app
from penstock.serve.http import HttpServer


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def ok(*arguments: object) -> str:
    """What a command that succeeds prints."""
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def fails(code: int, *arguments: object) -> str:
    """What a command that fails in the expected way says: one line, where the arguments were understood."""
    result = call(*arguments)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    if code == 1:
        assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def asked(model: Path, body: dict) -> list[float]:
    """What the model's service answers, over a socket."""
    with HttpServer(model, port=0) as server:
        sent = urllib.request.Request(
            f"{server.url}/predict", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(sent, timeout=600) as answer:
            return json.load(answer)["probabilities"]
