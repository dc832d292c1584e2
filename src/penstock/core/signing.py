"""Signing artefacts, and reading only what was signed.

`penstock sign` and `sign` put `signature.json` beside the manifest of every artefact in a folder. Whoever loads with
`verify=KEY` (`--verify`), or in a block of `verifying`, takes nothing that the key has not signed.

>>> import tempfile
>>> from penstock.core import artefact
>>> place = Path(tempfile.mkdtemp())
>>> with artefact.writing(place / "thing", kind="demo", version=1) as folder:
...     _ = (folder / "a.json").write_text("[1]")
>>> key = new_key(place / "key")
>>> with verifying(key):
...     artefact.read(place / "thing", "demo", 1, lambda saved: saved.json("a.json"))
Traceback (most recent call last):
...
penstock.core.errors.ArtefactError: ...thing is not signed (it has no signature.json), ...
>>> [path.name for path in sign(place, key)]
['thing']
>>> with verifying(place / "key"):
...     artefact.read(place / "thing", "demo", 1, lambda saved: saved.json("a.json"))
[1]
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from penstock.core.artefact import read_any
from penstock.core.errors import ArtefactError
from penstock.core.keys import SIGNATURE, KeyLike, SigningKey, new_key, read_key, verifying, write_signature
from penstock.core.saved_folder import MANIFEST
from penstock.core.staging import SCHEMA_FILE

__all__ = ["SIGNATURE", "KeyLike", "SigningKey", "check_signed", "new_key", "read_key", "sign", "verifying"]


def sign(place: str | Path, key: KeyLike) -> list[Path]:
    """Sign the artefact at a place, or every one in the folder: a model's directory, a run, a feed.

    Each is verified first, so that nothing damaged is signed. What lies inside an artefact is signed with it.

    Args:
        place: a folder.
        key: its file, or what `new_key` gave.

    Returns:
        The artefacts that were signed.

    Raises:
        ArtefactError: there is none, or one is damaged.
        ParameterError: there is no key.
    """
    place, key = Path(place), read_key(key)
    if (place / SCHEMA_FILE).is_file():
        raise ArtefactError(
            f"{place} is a data set, which cannot be signed: its manifest has checksums of footers and pages against "
            f"damage, and none against forgers; sign the workflow or the model"
        )
    found = sorted(_artefacts(place))
    if not found:
        raise ArtefactError(f"{place} holds nothing to sign: no folder in it has a {MANIFEST}")
    manifests = [read_any(path) for path in found]
    for path, manifest in zip(found, manifests, strict=True):
        write_signature(path, manifest, key)
    return found


def check_signed(place: str | Path, key: KeyLike) -> None:
    """Refuse a folder that holds an artefact which a key has not signed, or a damaged one.

    Args:
        place: a folder: of a run, say.
        key: its file, or what `new_key` gave.

    Raises:
        ArtefactError: one is unsigned, signed with another key, or altered since.
        ParameterError: there is no key.
    """
    with verifying(key):
        for path in sorted(_artefacts(Path(place), follow=True)):
            read_any(path)


def _artefacts(place: Path, follow: bool = False) -> Iterator[Path]:
    """Every artefact in a folder; `follow` also those that links lead to, as whoever loads them by name would."""
    seen: set[str] = set()
    for folder, below, files in os.walk(place, followlinks=follow):
        if (real := os.path.realpath(folder)) in seen:  # a link back
            below.clear()
            continue
        seen.add(real)
        below[:] = [name for name in below if not name.startswith(".")]  # what writers are still at
        if MANIFEST in files:
            yield Path(folder)
            below.clear()
