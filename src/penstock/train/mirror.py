"""Checkpoints on another file system (s3://, gs://, …): copied there beside training, and fetched from there.

A checkpoint is written to a local disk first, and a thread copies it while training goes on. A folder counts once its
manifest is there, which is copied last and removed first: whenever a process or the network breaks off, what is whole
over there can be loaded. Where copies take longer than the steps between checkpoints, only the newest are made.
"""

from __future__ import annotations

import re
import shutil
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.core import artefact
from penstock.core.bounded import MOST_JSON_BYTES, check_fields, parse_json
from penstock.core.errors import ArtefactError, OutputExistsError, ParameterError
from penstock.core.keys import SIGNATURE
from penstock.core.params import Instance, Int
from penstock.core.runtime.threads import start_thread
from penstock.data.files import filesystem, reaching

_FOLDER = re.compile(r"(step|store)-\d{8,}")


class MirrorWarning(UserWarning):
    """A checkpoint could not be copied; the next attempt is made with the next checkpoint."""


class Mirror:
    """The copies of a folder of checkpoints.

    Args:
        url: where they go, as fsspec takes it.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> with artefact.writing(place / "step-00000001", "training", 1) as folder:
    ...     _ = (folder / "about.json").write_text("{}")
    >>> mirror = Mirror("memory://example-of-a-mirror")
    >>> mirror.send(place, ["step-00000001"])
    >>> mirror.wait()
    >>> mirror.fetch(place / "again")
    ['step-00000001']
    >>> (place / "again" / "step-00000001" / "about.json").read_text()
    '{}'
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            self._files = filesystem(url)
        except ParameterError as error:
            raise ParameterError(f"checkpoints cannot be copied: {error}") from error
        self._root = str(self._files._strip_protocol(self.url))
        self._has_folders = self._root.startswith("/")  # else it begins with a bucket, which must be there
        self._lock = threading.Lock()
        self._wanted: tuple[Path, list[str]] | None = None
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    # There.

    def send(self, directory: Path, names: Iterable[str]) -> None:
        """Begin to make the copies be those of these folders, and no others; an earlier call that waits is dropped."""
        with self._lock:
            failed, self._error = self._error, None
            self._wanted = directory, sorted(names, key=_stores_first)
            if self._thread is None:
                self._thread = start_thread("checkpoint-mirror", self._work)
        if failed is not None:
            warnings.warn(f"{self._explained(failed)}; it is tried again", MirrorWarning, stacklevel=4)

    def wait(self) -> None:
        """Wait until all is copied.

        Raises:
            ArtefactError: the newest checkpoints could not be copied.
        """
        while (thread := self._thread) is not None:
            thread.join()
        failed, self._error = self._error, None
        if failed is not None:
            raise ArtefactError(f"{self._explained(failed)}; they are whole on this machine") from failed

    def _explained(self, error: Exception) -> str:
        return f"checkpoints could not be copied to {self.url}: {type(error).__name__}: {error}"

    def _work(self) -> None:
        while True:
            with self._lock:
                wanted, self._wanted = self._wanted, None
                if wanted is None:
                    self._thread = None
                    return
            try:
                self._copy_all(*wanted)
            except Exception as error:  # whatever a file system raises: training goes on
                directory, names = wanted
                # What was deleted here meanwhile is replaced by what is about to be sent.
                is_old = any(not (directory / name).is_dir() for name in names)
                with self._lock:
                    self._error = None if is_old or self._wanted is not None else error

    def _copy_all(self, directory: Path, names: list[str]) -> None:
        for name in names:
            self._copy(directory / name, f"{self._root}/{name}")
        for name in sorted(self.names() - set(names), key=_stores_first, reverse=True):
            place = f"{self._root}/{name}"
            if self._files.exists(f"{place}/{artefact.MANIFEST}"):
                self._files.rm_file(f"{place}/{artefact.MANIFEST}")
            self._files.rm(place, recursive=True)

    def _copy(self, folder: Path, place: str) -> None:
        manifest = (folder / artefact.MANIFEST).read_bytes()
        theirs = f"{place}/{artefact.MANIFEST}"
        if self._files.exists(theirs):
            if self._files.cat_file(theirs) == manifest:
                return
            self._files.rm_file(theirs)
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = file.relative_to(folder).as_posix()
            if name != artefact.MANIFEST:
                if self._has_folders:
                    self._files.makedirs(f"{place}/{name}".rpartition("/")[0], exist_ok=True)
                self._files.put_file(str(file), f"{place}/{name}")
        self._files.pipe_file(theirs, manifest)

    def names(self) -> set[str]:
        """The folders there are, whole or not."""
        self._files.invalidate_cache()
        if not self._files.exists(self._root):
            return set()
        found = {str(path).rstrip("/").rpartition("/")[2] for path in self._files.ls(self._root, detail=False)}
        return {name for name in found if _FOLDER.fullmatch(name)}

    def check_free(self) -> None:
        """Refuse copies of another training: those of two would become one.

        Raises:
            OutputExistsError: there are some.
            DataError: nobody answers there.
        """
        with reaching(self.url):
            found = self.names()
        if found:
            raise OutputExistsError(f"{self.url} holds checkpoints already; resume that run, or name another URL")

    # And back.

    def fetch(self, directory: Path) -> list[str]:
        """Bring every whole folder that is not here yet; its files are verified when they are read.

        Returns:
            The names of the folders that were brought.

        Raises:
            ArtefactError: a folder is none that a checkpoint could be.
            DataError: nobody answers there, or a folder cannot be read.
        """
        brought = []
        with reaching(self.url):
            for name in sorted(self.names(), key=_stores_first):
                if not (directory / name).exists() and self._fetch(name, directory):
                    brought.append(name)
        return brought

    def _fetch(self, name: str, directory: Path) -> bool:
        place = f"{self._root}/{name}"
        manifest = f"{place}/{artefact.MANIFEST}"
        if not self._files.exists(manifest):
            return False
        if int(self._files.size(manifest) or 0) > MOST_JSON_BYTES:
            raise ArtefactError(f"{self.url}/{name}/{artefact.MANIFEST} is longer than a manifest can be")
        content = self._files.cat_file(manifest)
        where = Path(name) / artefact.MANIFEST
        staging = directory / f".{name}.fetched"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        for file, size in _listed(content, where).items():
            if int(self._files.size(f"{place}/{file}") or 0) != size:
                raise ArtefactError(f"{self.url}/{name}/{file} is truncated or altered: its manifest says {size} bytes")
            (staging / file).parent.mkdir(parents=True, exist_ok=True)
            self._files.get_file(f"{place}/{file}", str(staging / file))
        (staging / artefact.MANIFEST).write_bytes(content)
        signature = f"{place}/{SIGNATURE}"
        if self._files.exists(signature) and int(self._files.size(signature) or 0) <= MOST_JSON_BYTES:
            self._files.get_file(signature, str(staging / SIGNATURE))
        staging.rename(directory / name)
        return True


def _listed(manifest: bytes, where: Path) -> dict[str, int]:
    """The files that a manifest names, and their sizes."""
    listed: dict[str, Any] = parse_json(manifest, where, {"files": Instance(dict, "a mapping of files")})["files"]
    for name, entry in listed.items():
        artefact.check_name(name, where)
        check_fields(entry, {"bytes": Int(min=0)}, where)
    return {name: entry["bytes"] for name, entry in listed.items()}


def _stores_first(name: str) -> tuple[bool, str]:
    """An order in which no step comes before the store that it names."""
    return not name.startswith("store"), name
