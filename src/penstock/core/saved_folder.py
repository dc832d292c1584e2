"""What readers of an artefact see: the files that its manifest lists, each read within bounds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from penstock.core.bounded import check_parquet, read_frame, read_json
from penstock.core.errors import ArtefactError
from penstock.core.params import Constraint

MANIFEST = "manifest.json"
Entry = Mapping[str, Any]  # bytes, sha256 and, of Parquet files, rows


@dataclass(frozen=True)
class SavedFolder:
    """The files that a verified manifest lists, and no others.

    `folder / name` is the path of a file that is listed, or a `SavedFolder` of those below; anything else is refused.
    """

    path: Path
    files: Mapping[str, Entry]
    root: Path

    def __truediv__(self, name: str) -> Path | SavedFolder:
        if name in self.files:
            return self.path / name
        below = self.folder(name)
        if not below.files:
            raise self._missing(name)
        return below

    def __contains__(self, name: str) -> bool:
        return name in self.files or any(key.startswith(f"{name}/") for key in self.files)

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def names(self) -> list[str]:
        """Of the files and folders right below, in order."""
        return sorted({key.split("/", 1)[0] for key in self.files})

    def file(self, name: str) -> Path:
        """The path of a file that is listed."""
        if name not in self.files:
            raise self._missing(name)
        return self.path / name

    def folder(self, name: str) -> SavedFolder:
        """The files listed below `name`, if any."""
        below = {key[len(name) + 1 :]: entry for key, entry in self.files.items() if key.startswith(f"{name}/")}
        return SavedFolder(self.path / name, below, self.root)

    def _missing(self, name: str) -> ArtefactError:
        return ArtefactError(f"{self.path / name} is missing: {self.root / MANIFEST} does not list it")

    def later(self, name: str) -> SavedFile:
        """A Parquet file to be read after everything else, if at all."""
        return SavedFile(self.file(name), self.files[name])

    def json(self, name: str, fields: Mapping[str, Constraint] | None = None) -> Any:
        """A JSON file as plain data, checked against `fields` (see `read_json`)."""
        return read_json(self.file(name), fields)

    def frame(self, name: str) -> pl.DataFrame:
        """A Parquet file as a frame."""
        return read_frame(self.file(name), self.files[name].get("rows"))

    def parquet(self, name: str) -> Path:
        """The path of a Parquet file whose footer has been checked, for those who read it in portions."""
        check_parquet(self.file(name), self.files[name].get("rows"))
        return self.path / name


@dataclass(frozen=True)
class SavedFile:
    """A file of an artefact that is read when it is needed, and verified again then."""

    path: Path
    entry: Entry

    def frame(self) -> pl.DataFrame:
        """The file's rows; refused where the file is gone or is another one by now."""
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise ArtefactError(
                f"{self.path} is gone; updating needs the folder that the workflow was loaded from"
            ) from error
        if hashlib.sha256(content).hexdigest() != self.entry["sha256"]:
            raise ArtefactError(f"{self.path} is not the file that was there when the workflow was loaded; load again")
        return read_frame(self.path, self.entry.get("rows"), content)
