"""Following a feed: packets are applied in order to embeddings that serve, beside the look-ups.

A packet that arrives in pieces (a copy under way) is looked at again until it is whole, one that is missing is waited
for. One that is damaged is reported and left out; what comes behind it is applied.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from penstock.core import artefact
from penstock.core.artefact import SavedFolder
from penstock.core.bounded import read_json
from penstock.core.errors import ArtefactError
from penstock.core.keys import KeyLike, current_key, read_key, verifying
from penstock.core.params import Real, check_all
from penstock.core.plain_files import open_plain
from penstock.embedding.feed_packets import DENSE, FIELDS, KIND, VERSION, packet_numbers, packet_path
from penstock.embedding.feed_targets import target_of

_LARGEST_MANIFEST = 1 << 26  # bytes
log = logging.getLogger("penstock.embedding")


class DamagedPacketError(ArtefactError):
    """A packet that is complete and yet cannot be applied: waiting does not help."""


class FeedReader:
    """Follows a feed into embeddings opened for serving.

    `poll()` applies every packet that is complete and next in order. One that stays unreadable for `patience` seconds,
    or is complete and damaged, is raised as an error once and left out. The packets behind it are applied; `problem`
    says what was left out until one that holds everything has come. One that is copied again is looked at again.

    Args:
        directory: where a `FeedWriter` publishes.
        embeddings: to apply packets to: a `Store`, or the tables of a saved model; None where there are none.
        patience: seconds that a packet may take to arrive.
        verify: the file of a key; a packet that it has not signed counts as one that is not whole.
        take_dense: given the weights of the dense model by name, once the embeddings of a packet are applied. It is
            asked with `check=True` before anything is changed, and raises an `ArtefactError` where they do not fit.
    """

    def __init__(
        self,
        directory: str | Path,
        embeddings: Any,
        patience: float = 60.0,
        verify: KeyLike | None = None,
        take_dense: Callable[..., None] | None = None,
    ) -> None:
        check_all({"patience": patience}, {"patience": Real(min=0)}, "FeedReader")
        self.directory, self.embeddings, self.patience = Path(directory), embeddings, patience
        self._target, self._take_dense = target_of(embeddings), take_dense
        self._key = current_key() if verify is None else read_key(verify)  # packets are read in other threads too
        self.applied = 0
        self.step: int | None = None  # of the training, when the last packet that was applied was published
        self._damage: str | None = None  # what was left out
        self._absence: str | None = None  # why the folder cannot be looked at
        self._writer: str | None = None  # of the last packet that was applied; packets of old do not name theirs
        self._waiting: dict[int, float] = {}  # since when packets are unreadable
        self._left_out: dict[int, list[tuple[str, int, int]]] = {}  # and the files that they had then
        self._unraised: ArtefactError | None = None

    @property
    def problem(self) -> str | None:
        """Why not everything that was published is applied; None where it is."""
        return self._absence or self._damage

    def poll(self) -> int:
        """Apply what has arrived.

        Returns:
            The number of packets applied.

        Raises:
            ArtefactError: where a packet was left out; once, and after those that could be applied.
        """
        self._look()
        count = 0
        while self._apply_next():
            count += 1
        if count == 0 and self._unraised is not None:
            error, self._unraised = self._unraised, None
            raise error
        return count

    def _look(self) -> None:
        """Note whether the folder is there: one that is gone, or was never there, holds no packets, as a quiet one."""
        try:
            os.scandir(self.directory).close()
            self._absence = None
        except OSError as error:
            reason = f"{self.directory} cannot be read: {error.strerror}; its packets are applied once it can be"
            if reason != self._absence:
                log.warning("%s", reason)
            self._absence = reason

    def _apply_next(self) -> bool:
        """Apply the first packet that can be; False where there is none."""
        numbers = [number for number in packet_numbers(self.directory) if number > self.applied]
        for at, number in enumerate(numbers):
            if number in self._left_out and self._left_out[number] == self._files(number):
                continue
            try:
                self._read(number)
                return True
            except ArtefactError as error:
                if self._may_still_arrive(number, error):
                    return self._apply_whole(numbers[at + 1 :])  # it makes up for whatever is not there
                self._leave_out(number, error)
        return False

    def _apply_whole(self, numbers: list[int]) -> bool:
        """Apply the first of these packets that holds everything; False where there is none."""
        for number in numbers:
            with suppress(ArtefactError):
                if read_json(packet_path(self.directory, number) / "packet.json", FIELDS)["whole"]:
                    self._read(number)
                    return True
        return False

    def _read(self, number: int) -> None:
        place = packet_path(self.directory, number)
        try:
            with verifying(self._key):
                is_whole = artefact.read(place, KIND, VERSION, partial(self._apply, number))
        except ArtefactError as error:
            if _is_no_manifest(place / artefact.MANIFEST):
                raise DamagedPacketError(str(error)) from error
            raise
        except OSError as error:
            raise ArtefactError(f"{place} cannot be read: {error.strerror or error}") from error
        self.applied = number
        self._waiting.clear()
        self._left_out = {other: files for other, files in self._left_out.items() if other > number}
        if is_whole:
            self._damage = self._unraised = None

    def _apply(self, number: int, folder: SavedFolder) -> bool:
        """Change what serves while others look ids up in it: none of them waits for a whole packet."""
        about = self._about(number, folder)
        try:
            dense = self._dense(folder) if about["dense"] and self._take_dense is not None else None
            self._target.apply(folder, about)
        except ArtefactError as error:
            raise DamagedPacketError(str(error)) from error
        if dense is not None and self._take_dense is not None:
            self._take_dense(dense)
        self.step, self._writer = about["step"], about["writer"]
        return bool(about["whole"])

    def _dense(self, folder: SavedFolder) -> Any:
        """The weights of the dense model, which fit it."""
        from penstock.embedding.tensor_files import read_tensors

        assert self._take_dense is not None
        weights = read_tensors(folder, DENSE)
        try:
            self._take_dense(weights, check=True)
        except ArtefactError as error:
            raise ArtefactError(f"{folder.file(DENSE)}: {error}") from error
        return weights

    def _about(self, number: int, folder: SavedFolder) -> dict[str, Any]:
        try:
            about: dict[str, Any] = folder.json("packet.json", FIELDS)
        except ArtefactError as error:
            raise DamagedPacketError(str(error)) from error
        if about["number"] != number:
            raise DamagedPacketError(f"{folder} holds packet {about['number']}")
        self._target.check(folder, about)
        left_out = sum(self.applied < other < number for other in self._left_out)
        if not about["whole"] and (number != self.applied + 1 + left_out or (left_out and not self.applied)):
            raise ArtefactError(f"{folder} builds on packet {number - 1}, which is missing from {self.directory}")
        writer = about.setdefault("writer", self._writer)
        if not about["whole"] and self._writer is not None and writer != self._writer:
            raise DamagedPacketError(f"{folder} is of another feed than packet {self.applied}, and builds on its own")
        return about

    def _may_still_arrive(self, number: int, error: ArtefactError) -> bool:
        if isinstance(error, DamagedPacketError):
            return False
        if number not in self._waiting:
            self._waiting[number] = time.monotonic()
            return True
        return time.monotonic() - self._waiting[number] <= self.patience

    def _leave_out(self, number: int, error: ArtefactError) -> None:
        self._left_out[number], self._unraised = self._files(number), error
        self._damage = (
            f"{error}; packet {number} was left out, and what it changed stays as it was until a packet that holds "
            f"everything comes: publish one, or copy this one again"
        )
        log.error("%s", self._damage)

    def _files(self, number: int) -> list[tuple[str, int, int]]:
        """What a packet's files look like from outside: another copy of it looks different."""
        found = []
        with suppress(OSError):
            for path in sorted(packet_path(self.directory, number).rglob("*")):
                about = path.stat()
                found.append((path.name, about.st_size, about.st_mtime_ns))
        return found


def _is_no_manifest(path: Path) -> bool:
    """Whether a file is whole JSON and yet no manifest: waiting for more of it would not help."""
    try:
        with open_plain(path) as file:
            manifest = json.loads(file.read(_LARGEST_MANIFEST))
    except RecursionError:
        return True
    except (OSError, ValueError):
        return False
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict) or not {"penstock", "version"} <= set(manifest):
        return True
    return not all(isinstance(about, dict) and {"bytes", "sha256"} <= set(about) for about in files.values())
