"""The command line called in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from penstock.cli import app


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
