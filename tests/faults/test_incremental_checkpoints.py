"""Chains of checkpoints that were damaged or forged: what cannot be followed is refused, and the file is named."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.core import artefact
from penstock.core.errors import ArtefactError
from penstock.embedding import SGD, EmbeddingConfig, SlotConfig, Store
from penstock.train.checkpoint_folder import chain

IDS = {"user": np.arange(20)}
NAMES = ["store-1", "store-2", "store-3"]
Content = dict[str, Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, np.ndarray]:
    """A full checkpoint and two that build on it, and the rows that they come to."""
    place = tmp_path_factory.mktemp("chain")
    with Store(EmbeddingConfig([SlotConfig("user", dim=2)]), SGD(lr=1.0)) as store:
        for number, name in enumerate(NAMES):
            found = store.lookup({"user": np.arange(20 - 6 * number)})
            store.update(found, {"user": np.full((20 - 6 * number, 2), number + 1, np.float32)})
            store.save(place / name, base=place / NAMES[number - 1] if number else None)
        return place, store.lookup(IDS, train=False)["user"].copy()


@pytest.fixture
def place(whole, tmp_path) -> Path:
    shutil.copytree(whole[0], tmp_path / "chain")
    return tmp_path / "chain"


def edit(place: Path, name: str, change: Callable[[Content], Any]) -> None:
    """Change what a link says of itself, and fit all manifests and checksums to it."""
    for own in NAMES[NAMES.index(name) :]:
        file, manifest = place / own / "store.json", place / own / artefact.MANIFEST
        content = json.loads(file.read_text())
        if own == name:
            change(content)
        else:
            before = place / NAMES[NAMES.index(own) - 1] / artefact.MANIFEST
            content["base"]["manifest"] = artefact.checksum(before)
        file.write_text(json.dumps(content))
        about = json.loads(manifest.read_text())
        manifest.unlink()
        manifest.write_text(json.dumps({**about, "files": artefact.describe_files(place / own)}))


def replaced_by_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "its base is gone": lambda place: shutil.rmtree(place / "store-1"),
    "a link is gone": lambda place: shutil.rmtree(place / "store-2"),
    "its base is another": lambda place: (
        shutil.rmtree(place / "store-1"), shutil.copytree(place / "store-2", place / "store-1"),
    ),
    "a pipe for a manifest": lambda place: replaced_by_a_pipe(place / "store-1" / artefact.MANIFEST),
    "a pipe for a description": lambda place: replaced_by_a_pipe(place / "store-1" / "store.json"),
    "rows are gone": lambda place: shutil.rmtree(place / "store-2" / "rows"),
    "a description is cut off": lambda place: cut(place / "store-2" / "store.json"),
    "a manifest is cut off": lambda place: cut(place / "store-2" / artefact.MANIFEST),
}  # fmt: skip
BASES: list[Any] = [
    {}, [], 5, {"path": 5, "manifest": "x"}, {"path": "x" * 5000, "manifest": "x"}, {"path": "a\0b", "manifest": "x"},
    {"path": "\ud800", "manifest": "x"}, {"path": "store-2", "manifest": "x"}, {"path": "store-3", "manifest": "x"},
    {"path": "", "manifest": "x"}, {"path": ".", "manifest": "x"}, {"path": "/etc", "manifest": "x"},
    {"path": "/dev/zero", "manifest": "x"},
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_link_is_named(damage, place) -> None:
    DAMAGE[damage](place)
    with pytest.raises(ArtefactError, match="store-"):
        Store.open(place / "store-3")
    assert "store-3" in chain(place / "store-3")


@pytest.mark.parametrize("number", range(len(BASES)))
def test_a_base_that_is_none_is_refused(number, place) -> None:
    edit(place, "store-2", lambda content: content.update(base=BASES[number]))
    with pytest.raises(ArtefactError):
        Store.open(place / "store-3")
    assert {"store-2", "store-3"} <= chain(place / "store-3")  # what is swept asks for it too


@pytest.mark.parametrize("field", ["clock", "evicted"])
@pytest.mark.parametrize("value", [-1, 2**63, 10**40, 1.5, None])
def test_what_kernels_count_on_with_fits_them(field, value, place) -> None:
    edit(place, "store-3", lambda content: content["shards"][0].update({field: value}))
    with pytest.raises(ArtefactError, match=f"'{field}' must be an int"):
        Store.open(place / "store-3")


def test_a_whole_chain_is_read(whole) -> None:
    with Store.open(whole[0] / "store-3") as found:
        assert np.array_equal(found.lookup(IDS, train=False)["user"], whole[1])
    assert chain(whole[0] / "store-3") == set(NAMES)
