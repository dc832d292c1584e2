"""Rewrite a script for NVTabular, Merlin or PERSIA natively where that is mechanical, and say where it is not.

Imports, names and arguments follow one table of rules; formatting and comments stay. What a rule does not cover is
listed with its line and goes on working under `penstock run`.
"""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from pathlib import Path

from penstock.compat.migrate_rewrite import Note, rewrite
from penstock.compat.missing import CompatError
from penstock.core.artefact import replacing
from penstock.core.errors import DataError


@dataclass
class Migration:
    """A script before and after, and what is left to a person."""

    path: str
    before: str
    after: str
    notes: list[Note]
    left: list[str]  # old names that stay

    def diff(self) -> str:
        """The change as a unified diff; empty where there is none."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.after.splitlines(keepends=True), self.path, self.path
        )
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def write(self) -> None:
        """Put the new text in the script's place, in one step."""
        with replacing(self.path) as partial:
            partial.write_bytes(self.after.encode())
            partial.chmod(Path(self.path).stat().st_mode)

    def summary(self, written: bool = False) -> str:
        """What is left to a person, line by line, and how it runs meanwhile."""
        if self.before == self.after and not self.left:
            return f"{self.path} imports nothing of NVTabular, Merlin or PERSIA that could be rewritten"
        lines = [f"{self.path}, {note}" for note in self.notes]
        done = "written" if written else "nothing was written; --write changes the script"
        stays = f"; it still needs penstock run, for {', '.join(self.left)}" if self.left else ""
        return "\n".join([*lines, f"{done}{stays}"])


def migrate(path: str | Path) -> Migration:
    """The native form of a script; nothing is written."""
    path = Path(path)
    if path.suffix == ".ipynb":
        raise CompatError(f"{path} is a notebook; run it as it is with penstock run, or migrate a script made from it")
    try:
        source = path.read_bytes().decode()  # as it is, ends of lines included
    except OSError as error:
        raise CompatError(f"cannot open {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a text in UTF-8: {error.reason} at byte {error.start}") from error
    return migrate_source(source, str(path))


def migrate_source(source: str, path: str = "script.py") -> Migration:
    """The same for a text.

    >>> print(migrate_source("from nvtabular.ops import Clip\\nx = ['a'] >> Clip(0)\\n").after, end="")
    from penstock.etl.ops import Clip
    x = ['a'] >> Clip(0)
    """
    try:
        tree = ast.parse(source, path)
    except SyntaxError as error:
        raise DataError(f"{path}: line {error.lineno} is not Python: {error.msg}") from error
    return Migration(path, source, *rewrite(tree, source))
