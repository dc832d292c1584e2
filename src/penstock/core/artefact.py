"""Saved artefacts: a folder behind a manifest with checksums, written beside its place and renamed into it.

Whatever is saved (a workflow, a checkpoint, a model) is JSON, Parquet and safetensors files plus `manifest.json`.
Reading verifies every file first, so a truncated, altered or foreign artefact is refused with the file and the reason.

>>> import tempfile
>>> place = Path(tempfile.mkdtemp()) / "model"
>>> with writing(place, kind="demo", version=1) as folder:
...     _ = (folder / "a.json").write_text("{}")
>>> sorted(p.name for p in verified(place, kind="demo", version=1).iterdir())
['a.json', 'manifest.json']
>>> _ = (place / "a.json").write_text("[]")
>>> verified(place, kind="demo", version=1)
Traceback (most recent call last):
...
penstock.core.errors.ArtefactError: ...a.json was altered after it was saved (checksum differs)
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.core.errors import ArtefactError, OutputExistsError

MANIFEST = "manifest.json"
SCHEMA_FILE = "_schema.json"  # what marks a folder of data


@contextmanager
def staged(place: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """A fresh folder beside `place` that takes its place when the block ends well, and vanishes when it does not."""
    place = Path(place)
    check_free(place, overwrite)
    staging = place.parent / f".{place.name}.{uuid.uuid4().hex[:8]}.partial"
    try:
        staging.mkdir(parents=True)
    except OSError as error:
        raise ArtefactError(f"cannot write to {place.parent}: {error.strerror}; choose a writable folder") from error
    try:
        yield staging
        replace(staging, place)
    finally:  # also on Ctrl-C: nothing half-written stays behind
        shutil.rmtree(staging, ignore_errors=True)


def check_free(place: Path, overwrite: bool) -> None:
    """Refuse a place that is taken, and never replace a folder that Penstock did not write."""
    if not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return
    if not overwrite:
        raise OutputExistsError(f"{place} exists already; pass overwrite=True to replace it, or choose another path")
    if place.is_dir() and not any((place / mark).is_file() for mark in (MANIFEST, SCHEMA_FILE)):
        raise OutputExistsError(
            f"{place} was not written by Penstock (it has neither {SCHEMA_FILE} nor {MANIFEST}); remove it yourself, "
            f"or choose another path"
        )


@contextmanager
def replacing(file: str | Path) -> Iterator[Path]:
    """A path beside `file` to write to, renamed over it when the block ends well.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a.yaml"
    >>> with replacing(target) as partial:
    ...     _ = partial.write_text("x: 1")
    >>> target.read_text(), len(list(target.parent.iterdir()))
    ('x: 1', 1)
    """
    file = Path(file)
    partial = file.parent / f".{file.name}.{uuid.uuid4().hex[:8]}.partial"
    try:
        yield partial
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def replace(staging: Path, place: Path) -> None:
    """Rename `staging` to `place`; what was there stays until the rename has happened."""
    if staging.is_file() and (place.is_file() or not place.exists()):
        staging.replace(place)  # one step; folders cannot be renamed over one another
        return
    old = place.parent / f".{place.name}.{uuid.uuid4().hex[:8]}.old"
    if place.exists():
        place.replace(old)
    try:
        staging.replace(place)
    except OSError:
        if old.exists():
            old.replace(place)
        raise
    if old.is_dir():
        shutil.rmtree(old, ignore_errors=True)
    elif old.exists():
        old.unlink()


@contextmanager
def writing(place: str | Path, kind: str, version: int, overwrite: bool = False) -> Iterator[Path]:
    """Like `staged`, and closes the folder with a manifest of what was written."""
    with staged(place, overwrite) as folder:
        yield folder
        files = {
            str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": checksum(path)}
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        manifest = {"penstock": kind, "version": version, "files": files}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))


def verified(place: str | Path, kind: str, version: int) -> Path:
    """The folder at `place`, once its manifest and every checksum have been verified."""
    folder = Path(place)
    if not folder.is_dir():
        raise ArtefactError(f"{folder} is not a folder; a saved {kind} is a folder with a {MANIFEST}")
    path = folder / MANIFEST
    if not path.is_file():
        raise ArtefactError(f"{folder} has no {MANIFEST}: it is not a {kind} saved by Penstock, or was never finished")
    try:
        manifest = json.loads(path.read_text())
        found, at, files = manifest["penstock"], manifest["version"], manifest["files"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{path} is not a readable manifest: {error}") from error
    if found != kind:
        raise ArtefactError(f"{folder} holds a {found}, not a {kind}")
    if at != version:
        raise ArtefactError(f"{folder} was saved in format {at}; this Penstock reads format {version}")
    for name, entry in files.items():
        _verify(folder, name, entry)
    return folder


def _verify(folder: Path, name: str, entry: dict) -> None:
    file = folder / name
    if not file.resolve().is_relative_to(folder.resolve()):
        raise ArtefactError(f"{folder / MANIFEST} names {name!r}, which lies outside the artefact")
    if not file.is_file():
        raise ArtefactError(f"{file} is missing; the artefact is incomplete, save or copy it again")
    if (size := file.stat().st_size) != entry["bytes"]:
        raise ArtefactError(f"{file} is truncated or altered: {size} bytes, the manifest says {entry['bytes']}")
    if checksum(file) != entry["sha256"]:
        raise ArtefactError(f"{file} was altered after it was saved (checksum differs)")


def checksum(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
