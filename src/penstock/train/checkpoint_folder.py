"""The folder that checkpoints lie in: their places, which of them are kept, and how the dense side of one is read.

It holds `step-00000050` (the dense side, an artefact with checksums) and `store-00000050` (the store's own checkpoint,
in its final place so that a restarted shard finds it, and the base of later incremental ones).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from penstock.core import artefact
from penstock.core.artefact import SavedFolder
from penstock.core.bounded import check_fields, read_json
from penstock.core.errors import ArtefactError
from penstock.core.keys import SIGNATURE
from penstock.core.params import NONE, STR, Instance, Int
from penstock.train.state import read_state

KIND, VERSION = "training", 1
STEP_NAMES = {"about.json", "model.json", "model.safetensors", "training.json", "training.safetensors", SIGNATURE}
STORE_NAMES = {"store.json", "rows", SIGNATURE}
_MAPPING = Instance(dict, "a mapping")
_FIELDS = {
    "step": Int(min=0),
    "store": NONE | _MAPPING,
    "position": NONE | _MAPPING,
    "counters": _MAPPING,
    "extra": _MAPPING,
}
_COUNTERS = {"steps": Int(min=0), "rows": Int(min=0), "skipped_steps": Int(min=0), "dropped_gradients": _MAPPING}


def step_place(directory: Path, step: int) -> Path:
    """Where the dense side of a step's checkpoint lies."""
    return directory / f"step-{step:08d}"


def store_place(directory: Path, step: int) -> Path:
    """Where the store's side of a step's checkpoint lies."""
    return directory / f"store-{step:08d}"


def saved_steps(directory: Path) -> list[int]:
    """The steps there are checkpoints of, in ascending order."""
    numbers = (path.name.removeprefix("step-") for path in directory.glob("step-*"))
    return sorted(int(number) for number in numbers if number.isdigit())


def folder_names(directory: Path) -> set[str]:
    """What the checkpoints there are consist of."""
    steps = saved_steps(directory)
    stores = [chain(store_place(directory, step)) for step in steps]
    return {step_place(directory, step).name for step in steps}.union(*stores)


def clear(place: Path, names: set[str]) -> None:
    """Remove a checkpoint that has lost its manifest: it was passed over, and is in the way of the next one."""
    if place.is_dir() and not (place / artefact.MANIFEST).is_file() and {p.name for p in place.iterdir()} <= names:
        shutil.rmtree(place)


def prune(directory: Path, keep: int, spared: int | None) -> None:
    """Delete what is older than the last `keep`, but not the spared one, nor the stores that others build on."""
    steps = saved_steps(directory)
    kept = {*steps[-keep:], *(step for step in steps if step == spared)}
    for step in steps:
        if step not in kept:
            shutil.rmtree(step_place(directory, step), ignore_errors=True)
    needed: set[str] = set()
    for step in kept:
        needed |= chain(store_place(directory, step))
    for path in directory.glob("store-*"):
        if path.name not in needed:
            path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)


def chain(store: Path) -> set[str]:
    """The names of a store checkpoint and those it builds on."""
    if not (store / "store.json").is_file():
        return {store.name} if store.exists() else set()
    names: set[str] = set()
    while (store / "store.json").is_file() and store.name not in names:
        names.add(store.name)
        try:
            base = read_json(store / "store.json", {"base": NONE | _MAPPING})["base"]
            if base is None:
                break
            check_fields(base, {"path": STR}, store / "store.json")
            store = store.parent / artefact.check_name(Path(base["path"]).name, store / "store.json")
        except ArtefactError:  # damaged: nothing can build on it, and it names nothing
            break
    return names


def read_dense(folder: SavedFolder) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The dense side of a checkpoint: what it says about itself, the weights, and the state of the training."""
    about, model, training = read_about(folder), read_state(folder, "model"), read_state(folder, "training")
    check_fields(model, {"model": _MAPPING}, folder.file("model.json"))
    parts = {"optimizer": NONE | _MAPPING, "scaler": NONE | _MAPPING, "scheduler": NONE | _MAPPING}
    check_fields(training, {**parts, "generators": Instance(list, "a list")}, folder.file("training.json"))
    return about, model, training


def read_about(folder: SavedFolder) -> dict[str, Any]:
    """What a checkpoint says about itself."""
    about: dict[str, Any] = folder.json("about.json", _FIELDS)
    check_fields(about["counters"], _COUNTERS, folder.file("about.json"))
    if about["store"] is not None:
        check_fields(about["store"], {"path": STR, "manifest": STR}, folder.file("about.json"))
        artefact.check_name(about["store"]["path"], folder.file("about.json"))
    return about
