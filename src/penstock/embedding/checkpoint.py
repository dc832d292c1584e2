"""Checkpoints of a store: Parquet rows and a description behind a manifest; whole, or only what changed.

A checkpoint is a folder (see `penstock.core.artefact`): `store.json` says what the store is and how far it has come,
`rows/shard-00000/…` holds the rows of each shard that wrote it. An incremental one names its base and holds the rows
touched since, and the signs removed; loading follows the chain. Any number of shards can load what any number wrote.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from penstock.core import artefact
from penstock.core.artefact import SavedFolder
from penstock.core.bounded import check_fields
from penstock.core.errors import ArtefactError, PenstockError
from penstock.core.keys import vouching
from penstock.core.params import NONE, STR, Instance, Int, ListOf
from penstock.embedding.locks import write_lock
from penstock.embedding.optimizers import Optimizer, optimizer_from_dict
from penstock.embedding.policies import Admission, Eviction
from penstock.embedding.row_files import Keep, copy_weights, read_shard
from penstock.embedding.slots import EmbeddingConfig
from penstock.embedding.tables import TableSet

if TYPE_CHECKING:
    from penstock.embedding.store import Store

KIND, VERSION = "embedding-store", 1
WATCHER = "checkpoint"
Result = TypeVar("Result")
_MAPPING = Instance(dict, "a mapping")
_FIELDS = {
    "config": _MAPPING | Instance(list, "a list"),
    "optimizer": NONE | _MAPPING,
    "storage": STR,
    "seed": Int(),
    "base": NONE | _MAPPING,
    "shards": ListOf(_MAPPING),
}
_COUNT = Int(0, 2**62)  # kernels count on in 64 bits
_SHARD_FIELDS = {
    "clock": _COUNT,
    "steps": ListOf(_COUNT),
    "evicted": _COUNT,
    "history": Instance(list, "a list"),
}


class OtherBaseError(PenstockError):
    """An incremental checkpoint was to build on another one than the last."""


class CheckpointLostError(ArtefactError):
    """A shard that was writing a checkpoint beside training is gone; earlier checkpoints are whole."""


@dataclass
class Trail:
    """The checkpoint that a store last wrote or read: the only one an incremental one may build on."""

    path: Path | None = None
    checksum: str = ""

    def check(self, base: str | Path) -> None:
        if self.path is None or self.path.resolve() != Path(base).resolve():
            last = f"that is {self.path}" if self.path else "there is none yet; save a full one first"
            raise OtherBaseError(
                f"an incremental checkpoint builds on the last one saved or loaded: {last}, not {base}"
            )
        if _checksum(Path(base)) != self.checksum:
            raise ArtefactError(f"{base} was changed since this store saved or loaded it; save a full checkpoint")


@dataclass(frozen=True)
class Description:
    """What `store.json` says, the files of its checkpoint, and the checksum of their manifest."""

    data: Mapping[str, Any]
    path: Path
    folder: SavedFolder
    checksum: str

    def config(self) -> EmbeddingConfig:
        return EmbeddingConfig.from_dict(self.data["config"])

    def optimizer(self) -> Optimizer | None:
        return optimizer_from_dict(self.data["optimizer"]) if self.data["optimizer"] else None

    def settings(self) -> dict[str, Any]:
        """What a store is made with besides its slots and optimizer; checkpoints of old say nothing of policies."""
        admission, eviction = self.data.get("admission"), self.data.get("eviction")
        try:
            return {
                "storage": self.data["storage"],
                "seed": self.data["seed"],
                "admission": Admission(**admission) if admission else None,
                "eviction": Eviction(**eviction) if eviction else None,
            }
        except TypeError as error:
            raise ArtefactError(f"{self.path / 'store.json'} has policies that cannot be read: {error}") from error


def describe(
    config: EmbeddingConfig,
    optimizer: Optimizer | None,
    storage: str,
    seed: int,
    admission: Admission | None = None,
    eviction: Eviction | None = None,
) -> dict[str, Any]:
    """What a store is, as plain data."""
    return {
        "config": config.to_dict(),
        "optimizer": optimizer.to_dict() if optimizer else None,
        "layout": optimizer.layout() if optimizer else None,
        "storage": storage,
        "seed": seed,
        "admission": dataclasses.asdict(admission) if admission else None,
        "eviction": dataclasses.asdict(eviction) if eviction else None,
    }


def progress(tables: TableSet) -> dict[str, Any]:
    """How far a shard has come."""
    history = [tables.history(i).tolist() for i in range(len(tables.tables))] if tables.keeps_history else []
    return {"clock": tables.clock, "steps": tables.steps, "evicted": tables.evicted, "history": history}


@contextmanager
def writing_checkpoint(path: str | Path, overwrite: bool) -> Iterator[Path]:
    """The staging folder of a checkpoint: locked against a second writer, renamed into place at the end."""
    place = Path(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with write_lock(place), artefact.writing(place, KIND, VERSION, overwrite) as folder:
            yield folder
    except PenstockError:
        raise
    except OSError as error:  # a full disk, a lost mount: the staging folder is gone, what was at `path` is untouched
        reason = error.strerror or str(error)
        raise ArtefactError(f"cannot write the checkpoint {place}: {reason}; what was there before is whole") from error


def base_entry(path: str | Path, base: str | Path) -> dict[str, str]:
    """How an incremental checkpoint names its base: relative, so both can be moved together."""
    relative = os.path.relpath(Path(base).resolve(), Path(path).resolve().parent)
    return {"path": relative, "manifest": _checksum(Path(base))}


def load_store(store: Store, path: str | Path) -> None:
    """Replace what an in-process store holds by a checkpoint."""

    def fill(chain: list[Description]) -> Trail:
        check_fits(chain[-1], store.config, store.optimizer, store.storage, store.seed)
        restore(store.tables, chain, None)
        return Trail(Path(path), chain[-1].checksum)

    store._saved = read_chain(path, fill)


def restore(tables: TableSet, chain: list[Description], keep: Keep | None, number: int = 0) -> None:
    """Fill a shard from a chain of checkpoints; `keep` says which signs are its own."""
    tables.clear()
    if tables.optimizer is None and (saved := chain[-1].optimizer()) and saved.formula.replays:
        # Rows lag behind until they are next read, which takes their state: catch up before leaving the state out.
        full = TableSet(tables.config, saved, tables.storage, num_threads=1)
        restore(full, chain, keep, number)
        copy_weights(full, tables)
        tables.clock = full.clock
        return
    for link in chain:
        rows = link.folder.folder("rows")
        for name in rows.names():
            shard = rows.folder(name)
            read_shard(tables, shard, keep, with_state=tables.optimizer is not None, written_by=link.config())
    shards = chain[-1].data["shards"]
    # Written by as many shards as now: each takes its own clock; else the furthest of all.
    state = shards[number] if len(shards) > number and keep is not None else max(shards, key=lambda s: s["clock"])
    tables.clock = max(state["clock"], max(s["clock"] for s in shards))
    history = [np.array(h, np.float32).reshape(-1, 2) for h in state["history"]]
    tables.evicted = state["evicted"]
    tables.set_steps(np.max([s["steps"] for s in shards], axis=0).tolist(), history or None)
    tables.watch(WATCHER)


def read_description(path: str | Path) -> Description:
    """`store.json` of a checkpoint whose files have all been verified."""
    return artefact.read(path, KIND, VERSION, _described)


def _described(folder: SavedFolder) -> Description:
    data = folder.json("store.json", _FIELDS)
    for shard in data["shards"]:
        check_fields(shard, _SHARD_FIELDS, folder.file("store.json"))
    if data["base"] is not None:
        check_fields(data["base"], {"path": STR, "manifest": STR}, folder.file("store.json"))
    return Description(data, folder.path, folder, _checksum(folder.path))


def read_chain(path: str | Path, use: Callable[[list[Description]], Result]) -> Result:
    """What `use` makes of the checkpoint and everything it builds on, oldest first.

    It is called again when the checkpoint was replaced while it was read.
    """

    def load(folder: SavedFolder) -> Result:
        chain = _chain(_described(folder))
        result = use(chain)
        for link in chain[:-1]:
            if _checksum(link.path) != link.checksum:
                raise ArtefactError(f"{link.path} was replaced while {folder} was read, which builds on it; load again")
        return result

    return artefact.read(path, KIND, VERSION, load)


def _chain(last: Description) -> list[Description]:
    chain = [last]
    while (base := chain[0].data["base"]) is not None:
        place = (chain[0].path.resolve().parent / base["path"]).resolve()
        if not place.is_dir():
            raise ArtefactError(f"{chain[0].path} builds on {place}, which is not there; copy it along")
        if any(place == link.path.resolve() for link in chain):
            raise ArtefactError(f"{chain[0].path} builds on {place}, which builds on it")
        if _checksum(place) != base["manifest"]:
            raise ArtefactError(f"{chain[0].path} builds on {place}, which was replaced since by another checkpoint")
        with vouching([base["manifest"]]):
            chain.insert(0, read_description(place))
    return chain


def check_fits(
    saved: Description, config: EmbeddingConfig, optimizer: Optimizer | None, storage: str, seed: int
) -> None:
    """Refuse a checkpoint of other slots, another optimizer or another precision, saying which."""
    theirs, path = saved.config(), saved.path
    if theirs.prefix_bits and not config.prefix_bits:  # signs with a prefix can be read without it, not the other way
        theirs = EmbeddingConfig(theirs.slots)
    if theirs != config:
        mine = {slot.name: slot for slot in config}
        for slot in theirs:
            if mine.get(slot.name) != slot:
                raise ArtefactError(
                    f"{path} was saved with {slot}, this store has {mine.get(slot.name, 'no such slot')}"
                )
        raise ArtefactError(f"{path} was saved with {theirs!r}, this store has {config!r}")
    if storage != saved.data["storage"]:
        raise ArtefactError(f"{path} was saved with storage={saved.data['storage']!r}, this store has {storage!r}")
    if optimizer is not None and optimizer.layout() != saved.data["layout"]:
        name = (saved.data["optimizer"] or {"name": "no optimizer"})["name"]
        raise ArtefactError(
            f"{path} was saved with {name} ({saved.data['layout']}), this store has {type(optimizer).__name__} "
            f"({optimizer.layout()}); its optimizer state does not fit"
        )
    if seed != saved.data["seed"]:
        raise ArtefactError(f"{path} was saved with seed={saved.data['seed']}, this store has seed={seed}")


def _checksum(path: Path) -> str:
    manifest = path / artefact.MANIFEST
    if not manifest.is_file():
        raise ArtefactError(f"{path} has no {artefact.MANIFEST}: it is not a checkpoint, or was never finished")
    return artefact.checksum(manifest)
