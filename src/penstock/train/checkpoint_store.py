"""The store's side of a checkpoint: written whole or on the one before, and put back as it was saved."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from penstock.core import artefact
from penstock.core.artefact import SavedFolder
from penstock.core.errors import ArtefactError
from penstock.core.runtime.memory import available_memory
from penstock.embedding.checkpoint import OtherBaseError, read_chain
from penstock.embedding.locks import SecondWriterError
from penstock.embedding.protocol import is_on_host
from penstock.train import distributed
from penstock.train.checkpoint_folder import STORE_NAMES, chain, clear, read_about

_PATIENCE = 20.0  # seconds; the right to save ends 15 after the last sign of life of who has it


class StoreCheckpoints:
    """Saves a store, every so often whole and else on the checkpoint before, and loads it.

    Args:
        full_every: every how many checkpoints it is written whole.
    """

    def __init__(self, full_every: int) -> None:
        self._full_every = full_every
        self._base: Path | None = None
        self._since_full = 0

    def forget_base(self) -> None:
        """Write the next one whole: the last was lost."""
        self._base = None

    def begin(self, home: Any, place: Path, begin: Callable[..., Any] | None) -> Callable[[], dict[str, str] | None]:
        """Settle what the checkpoint at `place` holds, where it can be written aside.

        Args:
            home: the embeddings.
            place: where it goes.
            begin: how it is saved beside training (see `beginning`), or None.

        Returns:
            What writes it, or finishes that, and gives its name and checksum; None of embeddings without a store.
        """
        if not is_on_host(home):
            return lambda: None
        base = self._base
        clear(place, STORE_NAMES)
        if self._full_every == 1 or self._since_full + 1 >= self._full_every or base == place:
            base = None
        begun = None
        if begin is not None:
            begun = _save_on(base, partial(_patiently, begin), place)

        def save() -> dict[str, str]:
            if begun is None:
                _, is_based = _save_on(base, home.save, place)
            else:
                saving, is_based = begun
                saving.finish()
            self._since_full = self._since_full + 1 if is_based else 0
            self._base = place
            return {"path": place.name, "manifest": _checksum(place)}

        return save

    def load(self, home: Any, named: Mapping[str, str] | None, place: Path) -> None:
        """Put a store back; all workers call this.

        Args:
            home: the embeddings.
            named: the name and checksum that the dense side has of it.
            place: of the dense side.

        Raises:
            ArtefactError: it is not there, or not the one that was saved with the dense side.
        """
        if not is_on_host(home):
            return
        if named is None:
            raise ArtefactError(f"{place} was saved without a store, and this training has one")
        store = _named_store(named, place.parent, place)
        if distributed.rank() == 0:
            home.load(store)
        distributed.barrier()
        self._base, self._since_full = store, len(chain(store)) - 1


def check_store(folder: SavedFolder, directory: Path) -> None:
    """Refuse a checkpoint whose store is not there as it was saved."""
    named = read_about(folder)["store"]
    if named is None:
        return
    store = _named_store(named, directory, folder)
    if (store / artefact.MANIFEST).is_file():
        read_chain(store, lambda chain: None)


def _named_store(named: Mapping[str, str], directory: Path, dense: Path | SavedFolder) -> Path:
    store = directory / named["path"]
    if not store.exists():
        raise ArtefactError(f"{dense} belongs to the store checkpoint {store}, which is not there; copy it along")
    if _checksum(store) != named["manifest"]:
        raise ArtefactError(f"{store} is not the store checkpoint that {dense} was saved with")
    return store


def beginning(home: Any) -> Callable[..., Any] | None:
    """How embeddings are saved beside training, where they can be, and a copy of theirs in this process has room."""
    begin: Callable[..., Any] | None = getattr(home, "begin_save", None)
    copied: int = getattr(home, "copy_bytes", 0)
    room = available_memory() if copied else None
    return None if room is not None and 2 * copied > room else begin


def _save_on(base: Path | None, save: Callable[..., Any], place: Path) -> tuple[Any, bool]:
    """Save on a base, where there is one that can be built upon; what came of it, and whether it was built upon."""
    if base is not None:
        with suppress(OtherBaseError):  # a shard died while the last one was written: it is whole, but no base
            return save(place, overwrite=True, base=base), True
    return save(place, overwrite=True), False


def _patiently(save: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Save, though a trainer that died while it saved has not lost the right to yet."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return save(*given, **named)
        except SecondWriterError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _checksum(saved: Path) -> str:
    """That of an artefact's manifest; of whatever else embeddings of one's own have written, that of its files."""
    if (saved / artefact.MANIFEST).is_file():
        return artefact.checksum(saved / artefact.MANIFEST)
    files = [saved] if saved.is_file() else sorted(path for path in saved.rglob("*") if path.is_file())
    parts = [f"{path.relative_to(saved.parent)} {artefact.checksum(path)}" for path in files]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
