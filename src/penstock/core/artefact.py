"""Saved artefacts: a folder behind a manifest with checksums, written beside its place and put into it in one step.

Whatever is saved (a workflow, a checkpoint, a model) is JSON, Parquet and safetensors files plus `manifest.json`, which
lists every file. `read` verifies them all and shows only these to whoever reads, so a truncated, altered or foreign
artefact is refused with the file and the reason, and what lies in the folder besides is never looked at. A reader
beside a writer gets the old artefact or the new one: one that was replaced meanwhile is read again.

>>> import tempfile
>>> place = Path(tempfile.mkdtemp()) / "model"
>>> with writing(place, kind="demo", version=1) as folder:
...     _ = (folder / "a.json").write_text('{"a": 1}')
>>> read(place, "demo", 1, lambda saved: (saved.names(), saved.json("a.json")))
(['a.json'], {'a': 1})
>>> _ = (place / "a.json").write_text('{"a": 2}')
>>> read(place, "demo", 1, lambda saved: saved.json("a.json"))
Traceback (most recent call last):
...
penstock.core.errors.ArtefactError: ...a.json was altered after it was saved (checksum differs)
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from penstock.core.bounded import check_fields, check_parquet, parse_json
from penstock.core.durable import publish, settle
from penstock.core.errors import ArtefactError, ForkError, MissingExtraError, PenstockError
from penstock.core.keys import SigningKey, check_signature, vouching, write_signature
from penstock.core.params import NONE, STR, Constraint, Instance, Int, Satisfies
from penstock.core.plain_files import open_plain
from penstock.core.runtime.threads import thread_count, thread_pool
from penstock.core.saved_folder import MANIFEST, SavedFile, SavedFolder
from penstock.core.staging import SCHEMA_FILE, check_free, replacing, staged, staged_together, working_folder

__all__ = [
    "MANIFEST",
    "SCHEMA_FILE",
    "SavedFile",
    "SavedFolder",
    "check_free",
    "check_name",
    "checksum",
    "describe_files",
    "explaining",
    "read",
    "read_any",
    "replace",
    "replacing",
    "staged",
    "staged_together",
    "verify_file",
    "working_folder",
    "writing",
]

Result = TypeVar("Result")
_ATTEMPTS = 100  # a reader beside a writer that never rests
_MOST_NAME, _MOST_PART = 1024, 255
_MOST_MANIFEST = 64 << 20
_LARGE, _MOST_THREADS = 16 << 20, 8  # bytes from which on threads take checksums, and how many
_HASH = re.compile("[0-9a-f]{64}")
_MANIFEST_FIELDS = {"penstock": STR, "version": Int(), "files": Instance(dict, "a mapping of files")}
_ENTRY_FIELDS: dict[str, Constraint] = {
    "bytes": Int(min=0),
    "sha256": Satisfies(lambda text: isinstance(text, str) and bool(_HASH.fullmatch(text)), "a SHA-256 in hex"),
}


# Writing.


@contextmanager
def writing(
    place: str | Path, kind: str, version: int, overwrite: bool = False, key: SigningKey | None = None
) -> Iterator[Path]:
    """Like `staged`, and closes the folder with a manifest of what was written, signed where there is a key."""
    with staged(place, overwrite) as folder:
        yield folder
        manifest = {"penstock": kind, "version": version, "files": describe_files(folder)}
        content = json.dumps(manifest, indent=1).encode()
        (folder / MANIFEST).write_bytes(content)
        if key is not None:
            write_signature(folder, content, key)


def describe_files(folder: Path) -> dict[str, dict[str, Any]]:
    """What a manifest says of each file in a folder: size and SHA-256, and the number of rows of a Parquet file."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        entry: dict[str, Any] = {"bytes": path.stat().st_size, "sha256": checksum(path)}
        if path.suffix == ".parquet":
            entry["rows"] = check_parquet(path)  # what could not be read back is not saved
        found[check_name(path.relative_to(folder).as_posix(), folder)] = entry
    return found


def replace(staging: Path, place: Path) -> None:
    """Let `staging` take the place of whatever is at `place`, in one step and on the disk."""
    settle(place)
    publish([(staging, place)])


# Reading.


def read(place: str | Path, kind: str, version: int, load: Callable[[SavedFolder], Result]) -> Result:
    """What `load` makes of the artefact at `place`.

    Args:
        place: the artefact's folder.
        kind: what it must hold, as given to `writing`.
        version: of the format.
        load: gets the verified `SavedFolder`. It is called again when the artefact was replaced while it ran, so a
            second call must overwrite whatever the first has left.

    Returns:
        What `load` returned.

    Raises:
        ArtefactError: it is truncated, altered, foreign, or `load` could not make sense of it.
    """
    place = Path(place)
    for attempt in range(_ATTEMPTS):
        with contextlib.suppress(OSError):  # a reader may not be allowed to write: it sees what there is
            settle(place)
        with _Manifest(place, kind) as manifest:
            try:
                saved = manifest.verified(version)
                with vouching(entry["sha256"] for name, entry in saved.files.items() if name.endswith(MANIFEST)):
                    result = load(saved)
            except (Exception, pl.exceptions.PanicException) as error:
                if manifest.is_current():
                    if (explained := _explained(error, place, kind)) is error:
                        raise
                    raise explained from error
            else:
                if manifest.is_current():
                    return result
        time.sleep(min(0.001 * attempt, 0.05))
    raise ArtefactError(f"{place} was replaced {_ATTEMPTS} times while it was read; read it when nobody writes it")


def read_any(place: Path) -> bytes:
    """The bytes of the manifest of an artefact of any kind, once every file has been verified.

    Args:
        place: the artefact's folder.

    Returns:
        The manifest.

    Raises:
        ArtefactError: it is truncated or altered, or not signed by the key of `verifying`.
    """
    with _Manifest(place, "artefact") as manifest:
        content = manifest.content()
        check_signature(place, content)
        manifest.verify_files(manifest.parsed(content)["files"])
        return content


@contextmanager
def explaining(place: Path, kind: str) -> Iterator[None]:
    """Whatever goes wrong in the block with what was read from `place` is an `ArtefactError`."""
    try:
        yield
    except (Exception, pl.exceptions.PanicException) as error:
        if (explained := _explained(error, place, kind)) is error:
            raise
        raise explained from error


def _explained(error: BaseException, place: Path, kind: str) -> BaseException:
    """One error class for everything that the content of an artefact can cause."""
    if isinstance(error, (MissingExtraError, ForkError, MemoryError)):
        return error
    if isinstance(error, ArtefactError):
        return error if str(place) in str(error) else ArtefactError(f"{place}: {error}")
    reason = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
    return ArtefactError(f"{place} cannot be read as a {kind}: {reason}")


class _Manifest:
    """An open manifest: held, so that its inode stays its own while the artefact is read."""

    def __init__(self, place: Path, kind: str) -> None:
        self.place, self.kind, self.path = place, kind, place / MANIFEST
        if not place.is_dir():
            raise ArtefactError(f"{place} is not a folder; a saved {kind} is a folder with a {MANIFEST}")
        try:
            self._file = open_plain(self.path)
        except (FileNotFoundError, IsADirectoryError):
            raise ArtefactError(
                f"{place} has no {MANIFEST}: it is not a {kind} saved by Penstock, or was never finished"
            ) from None
        except OSError as error:
            raise ArtefactError(f"{self.path} cannot be read: {error.strerror}") from error

    def __enter__(self) -> _Manifest:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def is_current(self) -> bool:
        """Whether the artefact at the place is still the one that was opened."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except OSError:
            return False

    def verified(self, version: int) -> SavedFolder:
        """The files, once the signature (where one is asked for) and every checksum have been verified."""
        content = self.content()
        check_signature(self.place, content)
        manifest = self.parsed(content)
        if manifest["penstock"] != self.kind:
            raise ArtefactError(f"{self.place} holds a {manifest['penstock']}, not a {self.kind}")
        if manifest["version"] != version:
            at = manifest["version"]
            raise ArtefactError(f"{self.place} was saved in format {at}; this Penstock reads format {version}")
        self.verify_files(manifest["files"])
        return SavedFolder(self.place, manifest["files"], self.place)

    def content(self) -> bytes:
        """The manifest's bytes."""
        content = self._file.read(_MOST_MANIFEST + 1)
        if len(content) > _MOST_MANIFEST:
            raise ArtefactError(f"{self.path} is not a readable manifest: it is longer than {_MOST_MANIFEST} bytes")
        return content

    def parsed(self, content: bytes) -> dict[str, Any]:
        """What the manifest says."""
        try:
            found: dict[str, Any] = parse_json(content, self.path, _MANIFEST_FIELDS)
        except ArtefactError as error:
            raise ArtefactError(f"{self.path} is not a readable manifest: {error}") from error
        return found

    def verify_files(self, files: Mapping[str, Any]) -> None:
        """Refuse files that are not as the manifest says."""
        for name, entry in files.items():
            check_name(name, self.path)
            check_fields(entry, _ENTRY_FIELDS, f"{self.path}, {name!r}")
            if "rows" in entry:
                check_fields(entry, {"rows": Int(min=0) | NONE}, f"{self.path}, {name!r}")
        verify = partial(verify_file, self.place)
        verified: Iterator[None]
        if sum(entry["bytes"] for entry in files.values()) < _LARGE:
            verified = map(verify, files, files.values())
        else:
            with thread_pool(thread_count(None, most=_MOST_THREADS), "checksums") as pool:
                verified = pool.map(verify, files, files.values())
        for _ in verified:  # the first one that is wrong says so
            pass


def check_name(name: str, where: Path) -> str:
    """A file's name inside an artefact, once it is known to stay inside."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in name or "\0" in name or ":" in parts[0]:
        raise ArtefactError(f"{where} names {name!r}, which lies outside the artefact")
    if len(name) > _MOST_NAME or any(len(part.encode(errors="replace")) > _MOST_PART for part in parts):
        raise ArtefactError(f"{where} names {name[:80]!r}…, which is too long for a file's name")
    return name


def verify_file(folder: Path, name: str, entry: Mapping[str, Any]) -> None:
    """Refuse a file that is not as its manifest says."""
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
